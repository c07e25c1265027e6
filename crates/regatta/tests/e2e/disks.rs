//! Data directories on disks that are full, read-only or corrupt, or with unusual paths: each case
//! gives an error with a hint, and nothing is lost (P9 in part).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::world::{
    TEST_TIMEOUT, World, is_root, kill_process, note_skipped_test, path_text, run_command,
    wait_for_child, wait_until,
};

/// A small file system of one test. Dropping the value unmounts it.
struct MountedDisk(PathBuf);

impl MountedDisk {
    fn new(path: &Path, options: &str) -> MountedDisk {
        std::fs::create_dir_all(path).unwrap();
        mount(&["-t", "tmpfs", "-o", options, "regatta-e2e", path_text(path)]);
        MountedDisk(path.to_owned())
    }

    /// Shrinks the file system to its present content. `remount` with a size makes room again.
    ///
    /// A file that fills the file system would not work: a process that another test starts at that
    /// moment inherits the open file, so the space stays in use for a while although the file was
    /// deleted.
    #[track_caller]
    fn fill(&self) {
        let shrunk = || {
            let stat_vfs = rustix::fs::statvfs(&self.0).unwrap();
            let used = (stat_vfs.f_blocks - stat_vfs.f_bfree) * stat_vfs.f_frsize;
            Command::new("mount")
                .args(["-o", &format!("remount,size={used}")])
                .arg(&self.0)
                .output()
        };
        // The kernel refuses this when more was written in the meantime.
        assert!(
            wait_until(TEST_TIMEOUT, || shrunk().unwrap().status.success()),
            "{:?}",
            shrunk()
        );
    }

    /// Remounts the file system. A process that has just ended may keep a file open for a moment.
    #[track_caller]
    fn remount(&self, options: &str) {
        let remounted = || {
            Command::new("mount")
                .args(["-o", &format!("remount,{options}")])
                .arg(&self.0)
                .output()
        };
        assert!(
            wait_until(TEST_TIMEOUT, || remounted().unwrap().status.success()),
            "{options}: {:?}",
            remounted()
        );
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        // Unmounts lazily, because a daemon that a failing test left may still have files open
        // there.
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[track_caller]
fn mount(args: &[&str]) {
    let mut command = Command::new("mount");
    command.args(args);
    let output = run_command(command, None);
    assert_eq!(output.exit_code, 0, "mount {args:?}: {output:?}");
}

/// A directory that becomes writable again when the value is dropped, so that it can be removed.
struct WritableOnDrop(PathBuf);

impl WritableOnDrop {
    fn set_mode(&self, mode: u32) {
        let _gone = std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode));
    }
}

impl Drop for WritableOnDrop {
    fn drop(&mut self) {
        self.set_mode(0o700);
    }
}

/// Each kind of damage to the store is refused with exit code 1 and a hint, and the file is not
/// changed.
#[test]
fn a_corrupt_store_is_refused_and_not_changed() {
    let world = World::new();
    world.run_ok(&["msg", "send", "dev", "kept"]);
    let copy = world.root.join("copy.db");
    world.run_ok(&["backup", path_text(&copy)]);
    world.run_ok(&["down"]);
    let db = world.data_dir.join("regatta.db");
    let good = std::fs::read(&copy).unwrap();
    let mut dice = crate::kills::SeededRng(11);
    let noise: Vec<u8> = (0..good.len()).map(|_| dice.below(256) as u8).collect();
    let mut half_noise = good.clone();
    half_noise[4096..].copy_from_slice(&noise[4096..]);
    let mut torn_header = good.clone();
    torn_header[..100].copy_from_slice(&noise[..100]);
    for (name, bytes) in [
        ("noise", noise),
        ("noise after the first page", half_noise),
        ("a torn header", torn_header),
        ("cut in half", good[..good.len() / 2].to_vec()),
        ("cut within a page", good[..5000].to_vec()),
        ("text", b"this is not a database\n".repeat(500)),
    ] {
        for leftover in ["regatta.db-wal", "regatta.db-shm"] {
            let _absent = std::fs::remove_file(world.data_dir.join(leftover));
        }
        std::fs::write(&db, &bytes).unwrap();
        let error = world.run_refused(&["up"], 1);
        assert_eq!(error["code"], "corrupt", "{name}: {error}");
        assert!(
            error["hint"].as_str().unwrap().contains("regatta restore"),
            "{name}: {error}"
        );
        assert_eq!(
            std::fs::read(&db).unwrap(),
            bytes,
            "{name}: the file was changed"
        );
        let output = world.run(&["doctor"]);
        assert_eq!(output.exit_code, 1, "{name}: {output:?}");
        assert!(
            output.stdout.contains("regatta restore"),
            "{name}: {output:?}"
        );
        assert_eq!(world.run(&["serve"]).exit_code, 1, "{name}");
    }
    world.run_ok(&["restore", path_text(&copy)]);
    world.run_ok(&["up"]);
    assert_eq!(
        world.run_json(&["msg", "history", "dev"])[0]["text"],
        "kept",
        "the restored store has the message"
    );
}

/// Writes until the disk is full. Everything that was acknowledged is kept, the daemon keeps
/// running, and it accepts writes again when there is space.
#[test]
fn a_full_disk_loses_nothing_and_writes_resume_when_there_is_space() {
    if !is_root() {
        note_skipped_test(
            "a_full_disk_loses_nothing_and_writes_resume_when_there_is_space",
            "mounting a small file system needs root",
            "a_store_that_reaches_a_file_size_limit_loses_nothing",
        );
        return;
    }
    let mut world = World::new();
    let mount = MountedDisk::new(&world.root.join("small"), "size=3m");
    world.data_dir = mount.0.join("data");
    world.run_ok(&["up"]);
    let pid = world.daemon_info().unwrap()["pid"].clone();
    let api = crate::http::ApiClient::for_data_dir(&world.data_dir);
    let send = |nth: usize| {
        let text = format!("{nth} {}", "x".repeat(2_000));
        api.call("msg.send", &json!({ "channel": "dev", "text": text }), None)
            .unwrap()
    };
    (0..20).for_each(|nth| assert_eq!(send(nth).status, 200));
    // Fills the rest of the disk, so that the store runs out of space.
    mount.fill();
    let mut sent = 20;
    let refused = loop {
        let reply = send(sent);
        if reply.status != 200 {
            break reply.json();
        }
        sent += 1;
        mount.fill();
        assert!(sent < 5_000, "the disk never became full");
    };
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&json!("disk_full"), &json!(true)),
        "{refused}"
    );
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("free some disk space"),
        "{refused}"
    );
    let error = world.run_refused(&["claim", "acquire", "port://1", "--as", "ann"], 1);
    assert_eq!(error["code"], "disk_full");
    assert_eq!(
        world.run_json(&["up"])["pid"],
        pid,
        "the daemon keeps running on a full disk"
    );
    assert_eq!(
        message_count(&world),
        sent,
        "D1: everything that was acknowledged can be read"
    );
    mount.remount("size=3m");
    assert!(
        wait_until(TEST_TIMEOUT, || send(sent).status == 200),
        "writes must resume when there is space"
    );
    sent += 1;
    assert_eq!(message_count(&world), sent);
    world.run_json(&["claim", "acquire", "port://1", "--as", "ann"]);
    // A start on a full disk reports the full disk and loses nothing.
    world.run_ok(&["down"]);
    mount.fill();
    let error = world.run_refused(&["up"], 1);
    assert_eq!(error["code"], "disk_full", "{error}");
    assert!(
        error["hint"].as_str().unwrap().contains("free some space"),
        "{error}"
    );
    let output = world.run(&["doctor"]);
    assert!(
        output.exit_code == 1 && output.stdout.contains("0 MB free"),
        "{output:?}"
    );
    mount.remount("size=3m");
    world.run_ok(&["up"]);
    assert_eq!(message_count(&world), sent);
    // `doctor` warns of so small a disk, but the store on it is sound.
    let (doctor, _) = world.run_json_any_exit(&["doctor"]);
    let store = doctor
        .as_array()
        .unwrap()
        .iter()
        .find(|doctor| doctor["id"] == "store")
        .unwrap();
    assert_eq!(store["level"], "ok", "D3: {doctor}");
    world.run_ok(&["down"]);
}

fn message_count(world: &World) -> usize {
    world
        .run_json(&["msg", "history", "dev", "--limit", "10000"])
        .as_array()
        .unwrap()
        .len()
}

/// Makes the same check without root: a limit on file sizes stands in for the full disk.
#[test]
fn a_store_that_reaches_a_file_size_limit_loses_nothing() {
    let world = World::new();
    let mut limited = Command::new("sh");
    world.clean_environment(&mut limited);
    // The limit is in blocks of half a kilobyte. The signal is ignored, so the write fails as on a
    // full disk.
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 1200; exec \"$0\" serve --json",
        env!("CARGO_BIN_EXE_regatta"),
    ]);
    let child = limited
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_until(TEST_TIMEOUT, || world.daemon_info().is_some()));
    let api = crate::http::ApiClient::for_data_dir(&world.data_dir);
    let mut sent = 0;
    let refused = loop {
        let text = format!("{sent} {}", "x".repeat(4_000));
        let reply = api
            .call("msg.send", &json!({ "channel": "dev", "text": text }), None)
            .unwrap();
        if reply.status != 200 {
            break reply.json();
        }
        sent += 1;
        assert!(sent < 5_000, "the limit was never reached");
    };
    assert!(sent > 10, "{refused}");
    assert!(
        ["disk_full", "io"].contains(&refused["code"].as_str().unwrap()),
        "{refused}"
    );
    assert!(!refused["hint"].as_str().unwrap().is_empty(), "{refused}");
    assert_eq!(message_count(&world), sent, "D1");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    wait_for_child(child, TEST_TIMEOUT).unwrap();
    // The next daemon has no such limit.
    assert_eq!(message_count(&world), sent, "D1");
    world.run_ok(&["msg", "send", "dev", "there is room again"]);
    assert_eq!(world.run(&["doctor"]).exit_code, 0, "D3");
}

/// A data directory that cannot be written gives an error. For root it is a read-only mount, for
/// others a read-only mode.
#[test]
fn a_read_only_data_directory_gives_an_error_with_a_hint() {
    let mut world = World::new();
    let mount = is_root().then(|| MountedDisk::new(&world.root.join("sealed"), "size=16m"));
    world.data_dir = world.root.join("sealed/data");
    let opened = WritableOnDrop(world.data_dir.clone());
    world.run_ok(&["msg", "send", "dev", "kept"]);
    world.run_ok(&["down"]);
    let seal = |sealed: bool| match &mount {
        Some(mount) => mount.remount(if sealed { "ro" } else { "rw" }),
        None => opened.set_mode(if sealed { 0o500 } else { 0o700 }),
    };
    seal(true);
    for args in [&["up"][..], &["msg", "send", "dev", "lost?"], &["serve"]] {
        let error = world.run_refused(args, 1);
        assert_eq!(error["code"], "read_only", "{args:?}: {error}");
        let hint = error["hint"].as_str().unwrap();
        assert!(
            hint.contains("REGATTA_DATA_DIR") || hint.contains(path_text(&world.data_dir)),
            "{args:?}: {error}"
        );
    }
    let output = world.run(&["doctor"]);
    assert_eq!(output.exit_code, 1, "{output:?}");
    let phrases = ["read-only", "may not be written", "cannot write to"];
    assert!(
        phrases
            .iter()
            .any(|phrases| output.stdout.contains(phrases)),
        "{output:?}"
    );
    seal(false);
    world.run_ok(&["up"]);
    assert_eq!(
        world.run_json(&["msg", "history", "dev"])[0]["text"],
        "kept"
    );
    assert_eq!(message_count(&world), 1);
    world.run_ok(&["down"]);
}

/// The data directory is a file, or lies below a file.
#[test]
fn a_data_directory_that_is_a_file_gives_an_error_with_a_hint() {
    let mut world = World::new();
    let file = world.root.join("file");
    std::fs::write(&file, "mine").unwrap();
    for data in [file.clone(), file.join("below")] {
        world.data_dir = data;
        for args in [&["status"][..], &["serve"], &["claim", "list"]] {
            let error = world.run_refused(args, 1);
            assert_eq!(error["code"], "bad_config", "{error}");
            assert!(
                error["hint"].as_str().unwrap().contains("REGATTA_DATA_DIR"),
                "{error}"
            );
        }
        assert_eq!(world.run(&["doctor"]).exit_code, 1);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// A data directory whose path is longer than a socket's address may be works, agents included.
#[test]
fn a_very_long_data_directory_works() {
    let mut world = World::with_repo();
    world.data_dir = world
        .root
        .join("a-very-long-name".repeat(6))
        .join("and-another-one".repeat(4))
        .join("data");
    assert!(world.data_dir.as_os_str().len() > 180);
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    assert!(world.data_dir.join("daemon.sock").exists());
    let plan = world.write_plan(
        "[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\nscript = [{ write = { path \
            = \"x\", text = \"x\" } }]\n",
    );
    assert_eq!(
        world
            .run(&["run", &plan, "--agents", "scripted", "--wait"])
            .exit_code,
        0
    );
    // Spaces, quotes and non-ASCII letters work, too.
    let mut odd = World::new();
    odd.data_dir = odd.root.join("with space/ünï 'q\"");
    odd.run_ok(&["msg", "send", "dev", "hello"]);
    assert_eq!(message_count(&odd), 1);
    odd.run_ok(&["down"]);
    world.run_ok(&["down"]);
}

/// P10: on a full disk neither a stop nor the end of an attempt can be recorded. `down` still
/// succeeds, and only once nothing runs.
#[test]
fn p10_down_on_a_full_disk_ends_when_nothing_runs() {
    if !is_root() {
        let instead = "the P10 tests of restarts in crates/regatta-engine/tests";
        note_skipped_test(
            "p10_down_on_a_full_disk_ends_when_nothing_runs",
            "mounting a small file system needs root",
            instead,
        );
        return;
    }
    let mut world = World::with_repo();
    // Each attempt needs 256 MiB of free space to start.
    let mount = MountedDisk::new(&world.root.join("small"), "size=320m");
    world.data_dir = mount.0.join("data");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    let plan = world.write_plan(
        "[[task]]\nid = \"a\"\nsubject = \"Hang\"\nfiles = [\"a.txt\"]\n\
         script = [{ write = { path = \"a.txt\", text = \"x\" } }, { hang = true }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "scripted"]);
    let working = || {
        world.run_json(&["status"])["working"].as_u64() == Some(1)
            && !world.foreign_processes().is_empty()
    };
    assert!(
        wait_until(TEST_TIMEOUT, working),
        "{}",
        world.run_json(&["status"])
    );
    mount.fill();
    // The attempts of the killed programs cannot be ended on the board, because the disk is full.
    for pid in world.foreign_processes() {
        kill_process(pid);
    }
    let output = world.run(&["down", "--timeout", "300s"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(
        wait_until(TEST_TIMEOUT, || world.processes().is_empty()),
        "P3: {:?}",
        world.describe_foreign_processes()
    );
    mount.remount("size=320m");
    world.run_ok(&["up"]);
    assert_eq!(
        world.run_json(&["task", "list"]).as_array().unwrap().len(),
        1,
        "J1: nothing is lost"
    );
    world.run_ok(&["down", "--timeout", "300s"]);
}

/// D10: a daemon does not start with an empty fleet where a fleet existed, neither without its log
/// nor without its store.
#[test]
fn d10_a_lost_log_or_store_is_refused() {
    let world = World::with_project();
    let acquire = |uri: &str| {
        world.run_json(&["claim", "acquire", uri, "--as", "ann"])["token"]
            .as_u64()
            .unwrap()
    };
    let token = acquire("file://shop/a");
    let copy = world.root.join("copy.db");
    world.run_ok(&["backup", path_text(&copy)]);
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    // The mark names the log while commits exist only in the log.
    let mark = || std::fs::read_to_string(world.data_dir.join("regatta.db.mark")).unwrap();
    let sent = |nth: usize| world.run_ok(&["msg", "send", "dev", &format!("{nth}")]);
    let mut nth = 0;
    assert!(wait_until(TEST_TIMEOUT, || {
        nth += 1;
        sent(nth);
        !mark().contains("\"log\":null")
    }));
    kill_process(pid);
    assert!(wait_until(TEST_TIMEOUT, || !crate::world::is_alive(pid)));
    let (store, log) = (
        world.data_dir.join("regatta.db"),
        world.data_dir.join("regatta.db-wal"),
    );
    let (kept_store, kept_log) = (std::fs::read(&store).unwrap(), std::fs::read(&log).unwrap());
    for (what, garbled) in [
        ("deleted", None),
        ("garbled", Some(b"garbage ".repeat(4_000))),
    ] {
        let _absent = std::fs::remove_file(world.data_dir.join("regatta.db-shm"));
        match garbled {
            None => std::fs::remove_file(&log).unwrap(),
            Some(bytes) => std::fs::write(&log, bytes).unwrap(),
        }
        let error = world.run_refused(&["status"], 1);
        assert_eq!(error["code"], "store_behind", "{what}: {error}");
        assert!(
            error["hint"].as_str().unwrap().contains("regatta restore"),
            "{what}: {error}"
        );
        let doctor = world.run(&["doctor"]);
        assert!(
            doctor.exit_code == 1 && doctor.stdout.contains("regatta.db-wal"),
            "{what}: {doctor:?}"
        );
    }
    std::fs::remove_file(&log).unwrap();
    std::fs::remove_file(&store).unwrap();
    assert_eq!(
        world.run_refused(&["status"], 1)["code"],
        "store_behind",
        "a mark without a store"
    );
    std::fs::remove_file(world.data_dir.join("regatta.db.mark")).unwrap();
    std::fs::create_dir_all(world.data_dir.join("vaults/shop.git")).unwrap();
    let error = world.run_refused(&["status"], 1);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("is missing, but the repositories"),
        "vaults without a store: {error}"
    );
    // With the files put back, everything exists. A restored backup works, too, and never repeats a
    // token (L2).
    std::fs::remove_dir(world.data_dir.join("vaults/shop.git")).unwrap();
    std::fs::write(&store, kept_store).unwrap();
    std::fs::write(&log, kept_log).unwrap();
    assert_eq!(message_count(&world), nth);
    world.run_ok(&["down"]);
    world.run_ok(&["restore", path_text(&copy)]);
    world.run_ok(&["up"]);
    let again = acquire("file://shop/b");
    assert!(again > token + (1 << 32), "L2: {again} after {token}");
}
