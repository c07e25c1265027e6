//! Tests of copied files: the user's untracked files (`workspace.copy`), and files that
//! `workspace.setup` makes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use regatta_core::pattern::PathPattern;
use regatta_engine::ports::git::CopiedFiles;

use crate::world::*;

fn patterns(texts: &[&str]) -> Vec<PathPattern> {
    texts
        .iter()
        .map(|text| PathPattern::new(text).unwrap())
        .collect()
}

fn world(copy: &[&str]) -> World {
    let mut world = World::new();
    world.repo.workspace.copy = patterns(copy);
    world
}

impl World {
    fn copy_untracked(&self, manifest: &[&str]) -> CopiedFiles {
        self.git
            .copy_untracked(&self.repo, A1, &patterns(manifest))
            .unwrap()
    }
}

#[test]
fn copied_files_keep_mode_and_time_and_are_not_captured() {
    let world = world(&[".env", "cache/", "notes.txt", "a.txt"]);
    let user = world.user();
    write(user.join(".env"), "SECRET=1\n");
    write(user.join("cache/deep/tool"), "#!/bin/sh\n");
    make_executable(&user.join("cache/deep/tool"));
    symlink("deep/tool", user.join("cache/link")).unwrap();
    write(user.join("notes.txt"), "mine\n");
    write(user.join("other.txt"), "not asked for\n");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    fs::File::options()
        .append(true)
        .open(user.join("cache/deep/tool"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    fs::set_permissions(user.join(".env"), fs::Permissions::from_mode(0o4600)).unwrap();
    write(user.join("a.txt"), "changed by the user, and tracked\n");

    let workspace = world.prepare(A1).path;
    let copied = world.copy_untracked(&[]);
    assert_eq!((copied.files, copied.skipped.len()), (4, 0), "{copied:?}");
    assert_eq!(read(workspace.join(".env")), "SECRET=1\n");
    assert_eq!(
        fs::metadata(workspace.join(".env"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o600
    );
    let tool = fs::metadata(workspace.join("cache/deep/tool")).unwrap();
    assert_eq!(
        (tool.permissions().mode() & 0o777, tool.modified().unwrap()),
        (0o755, old)
    );
    assert_eq!(
        fs::read_link(workspace.join("cache/link"))
            .unwrap()
            .to_str(),
        Some("deep/tool")
    );
    assert_eq!(
        read(workspace.join("a.txt")),
        "one\n",
        "a tracked file is the trunk's"
    );
    assert!(!workspace.join("other.txt").exists());
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");

    // Neither a changed .gitignore nor an edit of the file itself makes it the attempt's work.
    write(workspace.join(".gitignore"), "!.env\n!cache/\n!notes.txt\n");
    write(workspace.join("notes.txt"), "changed\n");
    assert_eq!(world.uncaptured_paths(A1), [".gitignore"]);
    assert_eq!(world.capture(A1).changed, [".gitignore"]);
    world.remove_workspace(A1);
    assert_eq!(read(user.join("notes.txt")), "mine\n");
}

#[test]
fn copied_file_that_the_manifest_names_is_captured() {
    let world = world(&["local/**"]);
    write(world.user().join("local/data.json"), "{}\n");
    write(world.user().join("local/rest.json"), "{}\n");
    let workspace = world.prepare(A1).path;
    world.copy_untracked(&["local/data.json"]);
    assert!(workspace.join("local/rest.json").exists());
    assert_eq!(world.capture(A1).changed, ["local/data.json"]);
}

#[test]
fn s6_links_and_git_directories_are_not_copied() {
    let world = world(&["**"]);
    let (user, outside) = (world.user(), world.home.path().join("outside"));
    write(outside.join("secret"), "outside\n");
    symlink(&outside, user.join("absolute")).unwrap();
    symlink("../outside/secret", user.join("upwards")).unwrap();
    symlink(".git/config", user.join("config")).unwrap();
    write(user.join("inner/file"), "x");
    init(&user.join("nested"), &[]);
    write(user.join("nested/file"), "x");
    // The user has a directory where the trunk has a link out of the workspace.
    let target = world.home.path().join("target");
    fs::create_dir(&target).unwrap();
    symlink(&target, user.join("way")).unwrap();
    git(user, &["add", "way"]);
    git(user, &["commit", "-qm", "a link"]);
    git(user, &["rm", "-q", "--cached", "way"]);
    fs::remove_file(user.join("way")).unwrap();
    write(user.join("way/file"), "must not leave the workspace\n");

    let workspace = world.prepare(A1).path;
    let copied = world.copy_untracked(&[]);
    let mut skipped = copied.skipped.clone();
    skipped.sort();
    assert_eq!(
        skipped,
        ["absolute", "config", "nested/", "upwards", "way/file"]
    );
    assert!(workspace.join("inner/file").exists());
    for missing in ["absolute", "upwards", "config", "nested"] {
        assert!(
            fs::symlink_metadata(workspace.join(missing)).is_err(),
            "{missing}"
        );
    }
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert_eq!(read(outside.join("secret")), "outside\n");
}

#[test]
fn repeated_copy_adds_missing_files_and_overwrites_nothing() {
    let world = world(&["*.local"]);
    write(world.user().join("a.local"), "a\n");
    write(world.user().join("b.local"), "b\n");
    write(world.user().join("odd [*]?\\ name.local"), "odd\n");
    let workspace = world.prepare(A1).path;
    world.copy_untracked(&[]);
    write(workspace.join("a.local"), "by setup\n");
    fs::remove_file(workspace.join("b.local")).unwrap();
    write(workspace.parent().unwrap().join(".A1.copy"), "torn");
    world.copy_untracked(&[]);
    assert_eq!(read(workspace.join("a.local")), "by setup\n");
    assert_eq!(read(workspace.join("b.local")), "b\n");
    assert_eq!(read(workspace.join("odd [*]?\\ name.local")), "odd\n");
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");
    assert!(!workspace.parent().unwrap().join(".A1.copy").exists());
}

#[test]
fn copy_of_too_many_bytes_is_refused_before_it_begins() {
    let world = world(&["huge*"]);
    for name in ["huge1", "huge2"] {
        // A sparse file, which takes no disk space.
        fs::File::create(world.user().join(name))
            .unwrap()
            .set_len(9 << 30)
            .unwrap();
    }
    let workspace = world.prepare(A1).path;
    let error = world.git.copy_untracked(&world.repo, A1, &[]).unwrap_err();
    assert_eq!(error.code, "too_much_to_copy");
    assert!(error.message.contains("18432 MiB"), "{}", error.message);
    assert!(!workspace.join("huge1").exists());
}

#[test]
fn files_made_by_setup_are_captured_only_if_the_manifest_names_them() {
    let mut world = world(&[]);
    world.repo.workspace.setup = vec!["make".into()];
    let workspace = world.prepare(A1).path;
    assert!(!world.git.is_ready(&world.repo, A1));
    write(workspace.join("vendor/lib.js"), "made by setup\n");
    write(workspace.join("src/made.rs"), "made by setup\n");
    world
        .git
        .mark_ready(&world.repo, A1, &patterns(&["src/**"]))
        .unwrap();
    assert!(world.git.is_ready(&world.repo, A1));
    assert_eq!(
        git(&workspace, &["status", "--porcelain"]),
        "?? src/made.rs"
    );
    write(workspace.join("vendor/new.js"), "made by the agent\n");
    assert_eq!(world.capture(A1).changed, ["src/made.rs", "vendor/new.js"]);
    world.remove_workspace(A1);
    assert!(
        !world.git.is_ready(&world.repo, A1),
        "the next workspace of this attempt has no setup yet"
    );
    assert_eq!(
        fs::read_dir(world.vault().join("regatta")).unwrap().count(),
        0,
        "no bookkeeping is left"
    );
}

#[test]
fn data_directory_inside_the_checkout_is_not_copied() {
    let world = world(&["**"]);
    let inside = regatta_git::GitAdapter::new(world.user().join("data"));
    write(world.user().join("local"), "x");
    let workspace = inside
        .prepare_workspace(&world.repo, A1, &branch("x"))
        .unwrap()
        .path;
    let copied = inside.copy_untracked(&world.repo, A1, &[]).unwrap();
    assert_eq!(copied.files, 1, "{copied:?}");
    assert!(workspace.join("local").exists() && !workspace.join("data").exists());
}

#[test]
fn staging_directory_gets_copied_files_until_it_is_staged_again() {
    let world = world(&["*.env", "a.txt"]);
    write(world.user().join("local.env"), "SECRET=1\n");
    let tip = world.tip();
    let dir = world.git.stage(&world.repo, SLOT, &tip).unwrap();
    assert!(!dir.join("local.env").exists());
    let copied = world.git.prepare_staging(&world.repo, SLOT, &tip).unwrap();
    assert_eq!(
        (
            copied.files,
            fs::read_to_string(dir.join("local.env")).unwrap().as_str()
        ),
        (1, "SECRET=1\n")
    );
    let dir = world.git.stage(&world.repo, SLOT, &tip).unwrap();
    assert!(!dir.join("local.env").exists());
}

/// If an agent commits copied files, its other files are captured without its history, so that no
/// secret lands by rebase.
#[test]
fn history_with_copied_files_is_left_out() {
    let world = world(&["*.env"]);
    write(world.user().join("local.env"), "SECRET=1\n");
    for (attempt, forced) in [(A1, true), (A2, false)] {
        let dir = world.prepare(attempt).path;
        world.git.copy_untracked(&world.repo, attempt, &[]).unwrap();
        write(dir.join("b.txt"), "b\n");
        if forced {
            git(&dir, &["add", "-f", "local.env"]);
        }
        commit_all(&dir, "mine");
        write(dir.join("c.txt"), "c\n");
        let capture = world.capture(attempt);
        assert_eq!(capture.changed, ["b.txt", "c.txt"]);
        let parents = git(
            &world.vault(),
            &["log", "-1", "--format=%P", capture.commit.as_str()],
        );
        assert_eq!(
            parents.split(' ').count(),
            if forced { 1 } else { 2 },
            "{attempt}"
        );
        let in_capture = git(
            &world.vault(),
            &["log", "--all", "--format=", "--name-only"],
        );
        assert!(!in_capture.contains("local.env"), "{in_capture}");
    }
}
