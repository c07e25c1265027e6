//! Tests of the user's checkout of the trunk. A move updates it when no change of the user is in
//! the way, and never overwrites a change.

use std::fs;
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::TrunkMoveResult;

use crate::world::*;

/// Returns everything that a person could lose: every file outside `.git`, including ignored ones,
/// and git's status of them.
fn all_files_and_status(dir: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap() == ".git" {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else {
                files.push((path.display().to_string(), read(&path)));
            }
        }
    }
    files.push((
        "status".into(),
        git(dir, &["status", "--porcelain", "--ignored"]),
    ));
    files.sort();
    files
}

fn refused_paths(world: &World, old: &CommitId, new: &CommitId) -> Vec<String> {
    let before = all_files_and_status(world.user());
    let TrunkMoveResult::CheckoutDirty(paths) = world.land(old, new) else {
        panic!("the trunk moved")
    };
    assert_eq!(world.tip(), *old, "the ref moved");
    assert_eq!(all_files_and_status(world.user()), before);
    paths
}

#[test]
fn edited_file_in_the_checkout_stops_the_move_before_the_ref() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);

    write(world.user().join("a.txt"), "a person's\n");
    assert_eq!(refused_paths(&world, &old, &new), ["a.txt"]);
    git(world.user(), &["add", "a.txt"]);
    assert_eq!(refused_paths(&world, &old, &new), ["a.txt"]);
    git(world.user(), &["reset", "-q", "--hard"]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), "");
}

/// Like `git merge --ff-only`: edits in other files do not delay a move, and stay as they are.
#[test]
fn edits_in_other_files_stay_and_do_not_stop_the_move() {
    let world = World::new();
    let old = world.tip();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "two\n");
    write(workspace.join("new.txt"), "new\n");
    let new = world.clean_trial(&world.capture(A1).commit);
    // The files are edited, deleted, staged and edited again.
    write(world.user().join("src/lib.rs"), "edited\n");
    fs::remove_file(world.user().join("run.sh")).unwrap();
    write(world.user().join("b/staged.txt"), "staged\n");
    git(world.user(), &["add", "b/staged.txt"]);
    write(world.user().join("b/staged.txt"), "and edited\n");
    let status = world.status();
    let staged = git(world.user(), &["diff", "--cached"]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(
        (world.status(), git(world.user(), &["diff", "--cached"])),
        (status, staged)
    );
    assert_eq!(read(world.user().join("a.txt")), "two\n");
    assert_eq!(read(world.user().join("new.txt")), "new\n");
    assert_eq!(read(world.user().join("src/lib.rs")), "edited\n");

    // A file in the place of a folder that the next move needs, or the reverse, stops the move.
    let workspace = world.prepare(A2).path;
    write(workspace.join("b/staged.txt/deeper"), "d\n");
    fs::remove_dir_all(workspace.join("src")).unwrap();
    write(workspace.join("src"), "a file now\n");
    let next = world.clean_trial(&world.capture(A2).commit);
    assert_eq!(
        refused_paths(&world, &new, &next),
        ["b/staged.txt", "src/lib.rs"]
    );
}

/// Git updates no index with an unmerged path, wherever that path is.
#[test]
fn unmerged_path_in_the_index_stops_the_move() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("new.txt", "new\n")]);
    write(world.user().join("a.txt"), "a person's\n");
    git(world.user(), &["stash", "-q"]);
    write(world.user().join("a.txt"), "another\n");
    git(world.user(), &["commit", "-q", "-a", "-m", "another"]);
    let _conflict = std::process::Command::new("git")
        .args(["stash", "pop", "-q"])
        .current_dir(world.user())
        .output();
    git(
        world.user(),
        &["update-ref", "refs/heads/main", old.as_str()],
    );
    assert!(world.status().contains("UU a.txt"), "{}", world.status());
    assert_eq!(refused_paths(&world, &old, &new), ["a.txt"]);
}

#[test]
fn untracked_or_ignored_file_in_the_way_stops_the_move() {
    let world = World::new();
    let old = world.tip();
    let workspace = world.prepare(A1).path;
    write(workspace.join("plain.txt"), "agent's\n");
    write(workspace.join(".gitignore"), "nothing\n");
    write(workspace.join(".env"), "agent's\n");
    write(workspace.join("deep/er/file"), "agent's\n");
    // A file replaces a directory, and the reverse.
    fs::remove_dir_all(workspace.join("src")).unwrap();
    write(workspace.join("src"), "a file now\n");
    fs::remove_file(workspace.join("run.sh")).unwrap();
    write(workspace.join("run.sh/inner"), "a directory now\n");
    let new = world.clean_trial(&world.capture(A1).commit);

    for (path, told) in [
        ("plain.txt", "plain.txt"),
        (".env", ".env"),
        ("deep/er", "deep/er"),
        ("src/notes.log", "src/notes.log"),
    ] {
        let file = world.user().join(path);
        write(&file, "a person's only copy\n");
        assert_eq!(refused_paths(&world, &old, &new), [told]);
        assert_eq!(read(&file), "a person's only copy\n");
        fs::remove_file(&file).unwrap();
        let _ = fs::remove_dir(world.user().join("deep"));
    }
    write(world.user().join("unrelated.txt"), "stays\n");
    write(world.user().join("run.log"), "ignored, stays\n");
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(read(world.user().join("src")), "a file now\n");
    assert_eq!(read(world.user().join("run.sh/inner")), "a directory now\n");
    assert_eq!(read(world.user().join("unrelated.txt")), "stays\n");
    assert_eq!(read(world.user().join("run.log")), "ignored, stays\n");
    assert_eq!(world.status(), "?? run.log\n?? unrelated.txt");
}

#[test]
fn rewritten_file_with_the_same_content_does_not_stop_the_move() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    fs::remove_file(world.user().join("a.txt")).unwrap();
    write(world.user().join("a.txt"), "one\n");
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), "");
}

#[test]
fn linked_worktree_of_the_trunk_is_updated_or_stops_the_move() {
    let world = World::new();
    let old = world.tip();
    git(world.user(), &["checkout", "-q", "-b", "feature"]);
    let linked = world.home.path().join("linked tree");
    git(
        world.user(),
        &["worktree", "add", "-q", linked.to_str().unwrap(), "main"],
    );
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);

    write(linked.join("a.txt"), "a person's\n");
    assert_eq!(
        world.land(&old, &new),
        TrunkMoveResult::CheckoutDirty(vec!["a.txt".into()])
    );
    assert_eq!(world.tip(), old);
    git(&linked, &["checkout", "-q", "."]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(read(linked.join("a.txt")), "two\n");
    assert_eq!(git(&linked, &["status", "--porcelain"]), "");
    assert_eq!(read(world.user().join("a.txt")), "one\n");
    assert_eq!(world.status(), "");

    // The same seen from the linked tree, and after that tree was deleted by hand.
    let from_linked = World::with_repo_at(temp_dir(), linked.clone());
    let next = from_linked.change_ready_to_land(A1, &[("a.txt", "three\n")]);
    assert_eq!(from_linked.land(&new, &next), TrunkMoveResult::Moved);
    assert_eq!(read(linked.join("a.txt")), "three\n");
    fs::remove_dir_all(&linked).unwrap();
    let last = world.change_ready_to_land(A2, &[("a.txt", "four\n")]);
    assert_eq!(world.land(&next, &last), TrunkMoveResult::Moved);
    assert_eq!(world.tip(), last);
}

#[test]
fn repeated_move_after_a_crash_updates_the_checkout() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "new\n")]);
    git(
        world.user(),
        &["fetch", "-q", world.vault().to_str().unwrap(), new.as_str()],
    );
    git(
        world.user(),
        &["update-ref", "refs/heads/main", new.as_str(), old.as_str()],
    );
    assert_ne!(world.status(), "");
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), "");
    assert_eq!(read(world.user().join("new.txt")), "new\n");
}

#[test]
fn repeated_move_finishes_a_partial_update_of_the_checkout() {
    let world = World::new();
    let old = world.tip();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "two\n");
    write(workspace.join("new.txt"), "new\n");
    write(workspace.join("z.txt"), "z\n");
    fs::remove_file(workspace.join("src/lib.rs")).unwrap();
    let new = world.clean_trial(&world.capture(A1).commit);
    git(
        world.user(),
        &["fetch", "-q", world.vault().to_str().unwrap(), new.as_str()],
    );
    git(
        world.user(),
        &["update-ref", "refs/heads/main", new.as_str(), old.as_str()],
    );
    // Git writes the files first and the index last.
    write(world.user().join("a.txt"), "two\n");
    write(world.user().join("new.txt"), "new\n");
    fs::remove_file(world.user().join("src/lib.rs")).unwrap();
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), "");
    assert_eq!(read(world.user().join("z.txt")), "z\n");
}

#[test]
fn repeated_move_after_a_crash_keeps_a_persons_change() {
    for (path, text) in [("a.txt", "a person's\n"), ("new.txt", "a person's\n")] {
        let world = World::new();
        let old = world.tip();
        let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "new\n")]);
        git(
            world.user(),
            &["fetch", "-q", world.vault().to_str().unwrap(), new.as_str()],
        );
        git(
            world.user(),
            &["update-ref", "refs/heads/main", new.as_str(), old.as_str()],
        );
        write(world.user().join(path), text);
        let before = all_files_and_status(world.user());
        assert_eq!(
            world.land(&old, &new),
            TrunkMoveResult::Moved,
            "the trunk has moved already"
        );
        assert_eq!(all_files_and_status(world.user()), before);
        // The next landing, of another file, names the outdated file, because a commit would undo
        // the last landing.
        let next = world.change_ready_to_land(A2, &[("b.txt", "b\n")]);
        assert!(matches!(
            world.land(&new, &next),
            TrunkMoveResult::CheckoutDirty(_)
        ));
        assert_eq!(all_files_and_status(world.user()), before);
    }
}

/// Edits of a person in other files do not prevent the update of a checkout after a crash.
#[test]
fn repeated_move_after_a_crash_keeps_edits_in_other_files() {
    for is_staged in [false, true] {
        let world = World::new();
        let old = world.tip();
        let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "new\n")]);
        git(
            world.user(),
            &["fetch", "-q", world.vault().to_str().unwrap(), new.as_str()],
        );
        git(
            world.user(),
            &["update-ref", "refs/heads/main", new.as_str(), old.as_str()],
        );
        write(world.user().join("run.sh"), "a person's\n");
        if is_staged {
            git(world.user(), &["add", "run.sh"]);
        }
        // The update of the files was interrupted too.
        write(world.user().join("a.txt"), "two\n");
        assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
        assert_eq!(
            world.status(),
            if is_staged { "M  run.sh" } else { " M run.sh" }
        );
        assert_eq!(read(world.user().join("new.txt")), "new\n");
        assert_eq!(read(world.user().join("run.sh")), "a person's\n");
    }
}

#[test]
fn locked_index_or_unfinished_operation_is_busy_and_stops_the_move() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    let busy = |world: &World| {
        let error = world
            .git
            .move_trunk(&world.permit(), &world.repo, &old, &new)
            .unwrap_err();
        assert_eq!(error.code, "busy", "{error:?}");
        assert_eq!(world.tip(), old);
        error.message
    };
    let git_dir = world.user().join(".git");
    write(git_dir.join("index.lock"), "");
    assert!(busy(&world).contains("index.lock"));
    fs::remove_file(git_dir.join("index.lock")).unwrap();

    write(git_dir.join("MERGE_HEAD"), old.as_str());
    assert!(busy(&world).contains("a merge"));
    fs::remove_file(git_dir.join("MERGE_HEAD")).unwrap();

    git(world.user(), &["checkout", "-q", "--detach"]);
    write(git_dir.join("rebase-merge/head-name"), "refs/heads/main\n");
    assert!(busy(&world).contains("is rebasing the branch"));
    fs::remove_dir_all(git_dir.join("rebase-merge")).unwrap();
    git(world.user(), &["checkout", "-q", "main"]);
    write(git_dir.join("refs/heads/main.lock"), "");
    busy(&world);
    fs::remove_file(git_dir.join("refs/heads/main.lock")).unwrap();
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
}

#[test]
fn move_keeps_the_users_line_endings_and_runs_no_hook() {
    let world = World::new();
    git(world.user(), &["config", "core.autocrlf", "true"]);
    fs::remove_file(world.user().join("a.txt")).unwrap();
    git(world.user(), &["checkout", "-q", "."]);
    assert_eq!(read(world.user().join("a.txt")), "one\r\n");
    let canary = world.home.path().join("canary");
    for hook in [
        "reference-transaction",
        "post-checkout",
        "post-merge",
        "post-index-change",
    ] {
        let hook = world.user().join(".git/hooks").join(hook);
        write(&hook, format!("#!/bin/sh\ntouch '{}'\n", canary.display()));
        make_executable(&hook);
    }
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "new\n")]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert!(!canary.exists());
    assert_eq!(read(world.user().join("a.txt")), "two\r\n");
    assert_eq!(read(world.user().join("new.txt")), "new\r\n");
    assert_eq!(world.status(), "");
}

#[test]
fn changed_submodule_of_the_user_does_not_stop_the_move() {
    let world = World::new();
    let sub = world.user().join("sub");
    init(&sub, &[]);
    commit_all(&sub, "in the submodule");
    commit_all(world.user(), "with a submodule");
    write(sub.join("edited"), "x");
    commit_all(&sub, "ahead of the pointer");
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(world.status(), " M sub");
    assert_eq!(read(sub.join("edited")), "x");
}
