//! Landed work is pushed to a remote to which others push as well.

use std::path::{Path, PathBuf};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A world that pushes landed work to a bare repository, and a colleague who pushes there, too.
struct SharedRemote {
    world: World,
    remote: PathBuf,
    colleague: PathBuf,
}

impl SharedRemote {
    fn new() -> SharedRemote {
        let world = World::with_project();
        let (remote, colleague) = (world.root.join("remote.git"), world.root.join("colleague"));
        let settings = world.read_file("regatta.toml");
        let content: String = settings
            .lines()
            .take_while(|setting| !setting.starts_with("[landing]"))
            .map(|setting| format!("{setting}\n"))
            .collect();
        world.write_file(
            "regatta.toml",
            &format!("{content}[landing]\npush = \"origin\"\n"),
        );
        world.run_ok(&["init", "--yes"]);
        world.commit_all("Push what lands");
        world.git_in(
            &world.root,
            &["clone", "-q", "--bare", "shop", remote.to_str().unwrap()],
        );
        world.git_in(
            &world.root,
            &["clone", "-q", remote.to_str().unwrap(), "colleague"],
        );
        world.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
        world.run_ok(&[
            "agent",
            "add",
            "zoe",
            "--runtime",
            "outside",
            "--max-tasks",
            "4",
        ]);
        SharedRemote {
            world,
            remote,
            colleague,
        }
    }

    /// Pushes a file as the colleague.
    fn push_as_colleague(&self, path: &str, text: &str) {
        self.world
            .git_in(&self.colleague, &["pull", "-q", "--ff-only"]);
        std::fs::write(self.colleague.join(path), text).unwrap();
        self.world.git_in(&self.colleague, &["add", "-A"]);
        self.world.git_in(
            &self.colleague,
            &["commit", "-q", "-m", &format!("Theirs: {path}")],
        );
        self.world.git_in(&self.colleague, &["push", "-q"]);
    }

    /// Lands a task that writes this file.
    #[track_caller]
    fn land_task(&self, path: &str, text: &str) -> String {
        let world = &self.world;
        world.run_ok(&["task", "add", path, "--files", path, "--validate", "true"]);
        let grant = world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]);
        let task = grant["task"]["id"].as_str().unwrap().to_owned();
        std::fs::write(
            Path::new(grant["workspace"].as_str().unwrap()).join(path),
            text,
        )
        .unwrap();
        let (attempt, token) = (
            grant["attempt"].as_str().unwrap(),
            grant["token"].to_string(),
        );
        world.run_ok(&[
            "task",
            "finish",
            &task,
            "--attempt",
            attempt,
            "--token",
            &token,
        ]);
        let landed = wait_until(TEST_TIMEOUT, || {
            world.run_json(&["show", &task])["word"] == "landed"
        });
        assert!(landed, "{}", world.run_ok(&["why", &task]));
        task
    }

    fn trunk_tips(&self) -> (String, String) {
        (
            self.world.git_in(&self.remote, &["rev-parse", "main"]),
            self.world.git(&["rev-parse", "main"]),
        )
    }

    #[track_caller]
    fn wait_until_pushed(&self) {
        let same = || {
            self.trunk_tips().0 == self.trunk_tips().1
                && self.world.run_json(&["queue"])[0]["unpushed"].is_null()
        };
        assert!(
            wait_until(TEST_TIMEOUT, same),
            "{:?}: {}",
            self.trunk_tips(),
            self.world.run_ok(&["queue"])
        );
    }
}

/// Q1, Q2, Q3: a colleague pushed. Landed work is replayed on top of the remote's commits,
/// validated and pushed. The former trunk is kept, and the checkout has everything.
#[test]
fn q3_landed_work_is_replayed_on_top_of_a_colleagues_push() {
    let shared_remote = SharedRemote::new();
    shared_remote.land_task("one.txt", "1\n");
    shared_remote.wait_until_pushed();
    shared_remote.push_as_colleague("theirs.txt", "theirs\n");
    let before = shared_remote.world.git(&["rev-parse", "main"]);
    let task = shared_remote.land_task("two.txt", "2\n");
    let landed = shared_remote.world.run_json(&["show", &task])["landed"]
        .as_str()
        .unwrap()
        .to_owned();
    shared_remote.wait_until_pushed();
    let world = &shared_remote.world;
    assert_eq!(
        ["one.txt", "two.txt", "theirs.txt"].map(|file| world.read_file(file)),
        ["1\n", "2\n", "theirs\n"]
    );
    assert_eq!(
        world.git(&["rev-list", "--min-parents=2", "main"]),
        "",
        "the trunk's history is not linear"
    );
    assert_ne!(before, landed);
    assert_eq!(
        world
            .git(&["rev-parse", &format!("refs/regatta/keep/trunk-{landed}")])
            .trim(),
        landed
    );
    let tasks = world.git(&[
        "log",
        "--format=%(trailers:key=Regatta-Task,valueonly)",
        "main",
    ]);
    assert_eq!(
        tasks.split_whitespace().filter(|id| *id == task).count(),
        1,
        "Q7: {tasks}"
    );
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_green_everywhere();
    // `show` names the present commit and the former one.
    let shown = world.run_json(&["show", &task]);
    let there = world.git(&[
        "log",
        "--grep",
        &format!("^Regatta-Task: {task}$"),
        "--format=%H",
        "main",
    ]);
    assert_eq!(
        (shown["now_as"].as_str(), shown["landed"].as_str()),
        (Some(there.trim()), Some(landed.as_str()))
    );
    let text = world.run_ok(&["show", &task]);
    assert!(
        text.contains(there.trim()) && text.contains(&format!("{landed}, before the trunk")),
        "{text}"
    );
    // The task can be undone after the replay.
    world.run_ok(&["undo", &task, "--wait"]);
    shared_remote.wait_until_pushed();
    assert!(!world.repo.join("two.txt").exists());
}

/// Q6: a conflict with pushed commits holds the queue. The message names the commands that settle
/// it, and after those the queue goes on.
#[test]
fn q6_a_conflict_with_the_remote_holds_the_queue_and_names_the_fix() {
    let shared_remote = SharedRemote::new();
    shared_remote.push_as_colleague("clash.txt", "theirs\n");
    shared_remote.land_task("clash.txt", "ours\n");
    let world = &shared_remote.world;
    let hold_reason = || {
        world.run_json(&["queue"])[0]["held"]["reason"]
            .as_str()
            .map(str::to_owned)
    };
    assert!(
        wait_until(TEST_TIMEOUT, || hold_reason().is_some()),
        "{}",
        world.run_ok(&["queue"])
    );
    let reason = hold_reason().unwrap();
    let join = reason.rsplit(' ').next().unwrap().to_owned();
    assert!(
        reason.contains("clash.txt") && reason.contains("git pull --rebase origin main"),
        "{reason}"
    );
    assert!(world.run_ok(&["status"]).contains("is held by regatta"));
    assert!(
        world.run_ok(&["inbox"]).contains(&join),
        "{}",
        world.run_ok(&["inbox"])
    );
    assert!(world.run_ok(&["why", &join]).contains("git pull --rebase"));
    let refused = world.run_refused(&["revise", &join, "do it better"], 2);
    assert!(
        refused["hint"]
            .as_str()
            .is_some_and(|refused| refused.contains("git pull --rebase origin main")),
        "{refused}"
    );
    // Follows the message: a rebase by hand, with both sides in the file.
    let mut pull = std::process::Command::new("git");
    world.clean_environment(&mut pull);
    pull.args([
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.org",
        "pull",
        "-q",
        "--rebase",
        "origin",
        "main",
    ]);
    pull.current_dir(&world.repo);
    assert!(
        !pull.output().unwrap().status.success(),
        "the rebase must conflict"
    );
    world.write_file("clash.txt", "ours and theirs\n");
    world.git(&["add", "clash.txt"]);
    world.git(&["-c", "core.editor=true", "rebase", "--continue"]);
    world.run_ok(&["land", &join, "--wait"]);
    shared_remote.wait_until_pushed();
    assert_eq!(hold_reason(), None);
    assert_eq!(
        world
            .git_in(&shared_remote.remote, &["show", "main:clash.txt"])
            .trim_end(),
        "ours and theirs"
    );
    shared_remote.land_task("after.txt", "goes on\n");
    shared_remote.wait_until_pushed();
}

/// Q1: both sides pass alone and fail together. Nothing that fails is pushed, and no commit is
/// lost.
#[test]
fn q1_work_that_fails_together_with_a_colleagues_push_is_not_pushed() {
    let shared_remote = SharedRemote::new();
    let test = "#!/bin/sh\n[ ! -e left ] || [ ! -e right ] || { echo both are here; exit 1; }\n";
    shared_remote.push_as_colleague("test.sh", test);
    shared_remote.push_as_colleague("right", "");
    shared_remote.land_task("left", "");
    let world = &shared_remote.world;
    let hold_reason = || {
        world.run_json(&["queue"])[0]["held"]["reason"]
            .as_str()
            .map(str::to_owned)
    };
    assert!(
        wait_until(TEST_TIMEOUT, || hold_reason()
            .is_some_and(|reason| reason.contains("fails the checks together"))),
        "{:?}",
        world.run_ok(&["queue"])
    );
    assert!(
        hold_reason().unwrap().contains("both are here"),
        "{hold_reason:?}",
        hold_reason = hold_reason()
    );
    assert_eq!(
        world.git_in(&shared_remote.remote, &["log", "-1", "--format=%s", "main"]),
        "Theirs: right"
    );
    assert!(
        world.repo.join("left").exists() && !world.repo.join("right").exists(),
        "the trunk did not move"
    );
}

/// A remote that cannot be reached delays no landing. Commits that are not pushed are reported
/// once, and pushed when the remote is back.
#[test]
fn a_failed_push_is_reported_once_and_retried() {
    let shared_remote = SharedRemote::new();
    let away = shared_remote.world.root.join("away.git");
    std::fs::rename(&shared_remote.remote, &away).unwrap();
    shared_remote.land_task("one.txt", "1\n");
    shared_remote.land_task("two.txt", "2\n");
    let world = &shared_remote.world;
    let push_is_pending = || world.run_ok(&["status"]).contains("is not on origin");
    assert!(
        wait_until(TEST_TIMEOUT, push_is_pending),
        "{}",
        world.run_ok(&["status"])
    );
    assert!(world.run_ok(&["queue"]).contains("is not on origin"));
    let told = world
        .events()
        .iter()
        .filter(|event| event.to_string().contains("coord:push"))
        .count();
    assert_eq!(told, 1, "one message, not one for each retry");
    std::fs::rename(&away, &shared_remote.remote).unwrap();
    shared_remote.wait_until_pushed();
    assert!(!world.run_ok(&["status"]).contains("is not on origin"));
}

/// A remote that cannot be reached over the network does not hold the landing. `queue` names the
/// reason and the command that tests the connection, and the work is pushed when the remote is back.
#[test]
fn a_remote_without_a_network_is_named_with_the_command_that_tests_it() {
    let shared_remote = SharedRemote::new();
    let world = &shared_remote.world;
    // Nobody listens on a port that was just closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let away = format!("http://127.0.0.1:{port}/shop.git");
    world.git(&["remote", "set-url", "origin", &away]);
    shared_remote.land_task("one.txt", "1\n");
    let reason = || {
        let queue = world.run_json(&["queue"]);
        queue[0]["unpushed"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || !reason().is_empty()),
        "{}",
        world.run_ok(&["queue"])
    );
    let text = reason();
    assert!(
        text.contains("the remote origin cannot be reached over the network")
            && text.contains("to test the connection: git ls-remote origin"),
        "{text}"
    );
    let remote = shared_remote.remote.to_str().unwrap();
    world.git(&["remote", "set-url", "origin", remote]);
    shared_remote.land_task("two.txt", "2\n");
    shared_remote.wait_until_pushed();
}
