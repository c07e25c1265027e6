//! Tests of preparing and removing workspaces.

use std::fs;
use std::os::unix::fs::symlink;

use regatta_core::ids::AttemptId;

use crate::world::*;

#[test]
fn workspace_is_a_working_tree_in_which_git_works() {
    let world = World::new();
    let workspace = world.prepare(A1);
    let run = |args: &[&str]| git(&workspace.path, args);
    assert_eq!(workspace.path, world.data().join("workspaces/shop/A1"));
    assert_eq!(run(&["status", "--porcelain", "--branch"]), "## regatta/A1");
    assert_eq!(
        run(&["rev-parse", "HEAD", "main"]),
        format!("{0}\n{0}", world.tip())
    );
    assert!(workspace.path.join(".git").is_dir());
    write(workspace.path.join(".regatta/result.json"), "{}");
    assert_eq!(run(&["status", "--porcelain"]), "");
    // An agent can commit without an identity in its environment.
    write(workspace.path.join("a.txt"), "two\n");
    let commit = std::process::Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .args(["commit", "-qam", "by the agent"])
        .current_dir(&workspace.path)
        .status();
    assert!(commit.unwrap().success());
}

#[test]
fn repeated_prepare_keeps_the_work_and_the_base() {
    let world = World::new();
    let workspace = world.prepare(A1);
    write(workspace.path.join("a.txt"), "work\n");
    commit_all(world.user(), "the trunk goes on");
    assert_eq!(world.prepare(A1), workspace);
    assert_eq!(read(workspace.path.join("a.txt")), "work\n");
    assert_eq!(world.prepare(A2).base, world.tip());
    assert_ne!(world.prepare(A2).base, workspace.base);
}

#[test]
fn vault_and_workspace_of_an_interrupted_prepare_are_created_again() {
    let world = World::new();
    let data = world.data();
    write(data.join("vaults/.shop.new/HEAD"), "torn");
    write(data.join("workspaces/shop/.A1.new/a.txt"), "torn");
    let workspace = world.prepare(A1);
    assert_eq!(read(workspace.path.join("a.txt")), "one\n");
    assert!(!data.join("vaults/.shop.new").exists());
    assert!(!data.join("workspaces/shop/.A1.new").exists());

    // The workspace is recorded, but not yet in place.
    fs::remove_dir_all(&workspace.path).unwrap();
    write(world.user().join("a.txt"), "newer\n");
    let tip = commit_all(world.user(), "newer");
    assert_eq!(world.prepare(A1).base, tip);
    assert_eq!(read(workspace.path.join("a.txt")), "newer\n");
    assert_eq!(world.capture(A1).changed, Vec::<String>::new());

    // The directory exists but is not recorded, so it is moved aside and not deleted (Q5).
    let stray = data.join("workspaces/shop/A2");
    write(stray.join("precious"), "x");
    world.prepare(A2);
    assert!(!stray.join("precious").exists());
    assert_eq!(read(data.join("workspaces/shop/.A2.aside-1/precious")), "x");
}

#[test]
fn garbage_collection_in_the_users_repository_removes_nothing_from_the_vault() {
    let world = World::new();
    write(world.user().join("gone.txt"), "soon gone\n");
    commit_all(world.user(), "to be dropped");
    let workspace = world.prepare(A1).path;
    git(world.user(), &["reset", "-q", "--hard", "HEAD^"]);
    git(world.user(), &["reflog", "expire", "--expire=now", "--all"]);
    git(world.user(), &["gc", "-q", "--prune=now"]);
    world.prepare(A2);
    git(&workspace, &["fsck", "--strict"]);
    git(&workspace, &["log", "--stat"]);
    assert!(!world.vault().join("objects/info/alternates").exists());
    write(workspace.join("a.txt"), "two\n");
    assert_eq!(world.capture(A1).changed, ["a.txt"]);
}

#[test]
fn q5_unkept_files_are_named_until_they_are_captured() {
    let world = World::new();
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    let workspace = world.prepare(A1).path;
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    write(workspace.join("a.txt"), "work\n");
    write(workspace.join("new.txt"), "new\n");
    write(workspace.join("ignored.log"), "x");
    fs::remove_file(workspace.join("run.sh")).unwrap();
    assert_eq!(world.uncaptured_paths(A1), ["a.txt", "new.txt"]);
    world.capture(A1);
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    write(workspace.join("new.txt"), "newer\n");
    assert_eq!(world.uncaptured_paths(A1), ["new.txt"]);
    world.capture(A1);
    // The files get the content of an older capture, and of the trunk.
    write(workspace.join("new.txt"), "new\n");
    write(world.user().join("a.txt"), "on the trunk\n");
    commit_all(world.user(), "trunk");
    write(workspace.join("a.txt"), "on the trunk\n");
    assert_eq!(world.uncaptured_paths(A1), Vec::<String>::new());
    write(workspace.join("last.txt"), "x");
    assert_eq!(world.uncaptured_paths(A1), ["last.txt"]);
}

#[test]
fn q5_a_capture_of_another_attempt_is_no_proof() {
    let world = World::new();
    let ten = AttemptId(10);
    for attempt in [A1, ten] {
        write(
            world.prepare(attempt).path.join("new.txt"),
            format!("{attempt}\n"),
        );
    }
    world.capture(ten);
    assert_eq!(world.uncaptured_paths(A1), ["new.txt"]);
}

#[test]
fn removing_a_workspace_keeps_its_capture_and_all_files_outside() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "work\n");
    let outside = world.home.path().join("outside");
    write(outside.join("precious"), "x");
    symlink(&outside, workspace.join("link")).unwrap();
    fs::create_dir(workspace.join("locked")).unwrap();
    write(workspace.join("locked/file"), "x");
    let mut read_only = fs::metadata(workspace.join("locked"))
        .unwrap()
        .permissions();
    read_only.set_readonly(true);
    fs::set_permissions(workspace.join("locked"), read_only).unwrap();
    let capture = world.capture(A1);
    // An earlier removal was interrupted.
    write(world.data().join("workspaces/shop/.A1.gone/x"), "x");
    world.remove_workspace(A1);
    world.remove_workspace(A1);
    assert!(outside.join("precious").exists());
    assert_eq!(
        fs::read_dir(world.data().join("workspaces/shop"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(world.read_from_vault(&capture.commit, "a.txt"), "work");
    assert_eq!(
        git(&world.vault(), &["for-each-ref", "refs/regatta/base"]),
        ""
    );
    assert!(git(&world.vault(), &["for-each-ref"]).contains("refs/regatta/keep/A1"));
    assert_eq!(
        fs::read_dir(world.vault().join("regatta")).unwrap().count(),
        0,
        "no bookkeeping is left"
    );
    assert_eq!(
        world
            .git
            .capture(&world.repo, A1, &authorship("x"))
            .unwrap_err()
            .code,
        "no_workspace"
    );
}

#[test]
fn six_attempts_can_be_prepared_and_captured_at_once() {
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 1..=6 {
            let world = &world;
            scope.spawn(move || {
                let attempt = AttemptId(number);
                let workspace = world.prepare(attempt).path;
                write(workspace.join(format!("{number}.txt")), "x");
                assert_eq!(world.capture(attempt).changed, [format!("{number}.txt")]);
                world.remove_workspace(attempt);
            });
        }
    });
    assert_eq!(
        git(&world.vault(), &["for-each-ref", "refs/regatta/keep"])
            .lines()
            .count(),
        6
    );
    assert_eq!(
        fs::read_dir(world.vault().join("regatta")).unwrap().count(),
        0
    );
    git(&world.vault(), &["fsck", "--strict", "--no-dangling"]);
}

#[test]
fn data_directory_inside_the_users_repository_is_isolated() {
    let world = World::new();
    let inside = regatta_git::GitAdapter::new(world.user().join(".regatta"));
    let workspace = inside
        .prepare_workspace(&world.repo, A1, &branch("x"))
        .unwrap();
    assert_eq!(git(&workspace.path, &["rev-parse", "--show-cdup"]), "");
    assert_eq!(git(&workspace.path, &["status", "--porcelain"]), "");
}
