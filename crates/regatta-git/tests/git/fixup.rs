//! Tests of fix-ups: the workspace with both sides of a conflict, and the change that comes of it.

use std::fs;

use regatta_core::task::{Fixup, SettledPath};
use regatta_engine::ports::git::TrialMerge;

use crate::world::*;

/// Q6: a conflict goes to a fix-up with both sides in its workspace. Only the resolution is
/// captured, and for the trunk it is one change.
#[test]
fn q6_a_fixup_starts_from_both_sides_and_ends_as_one_change() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "agent's\n");
    write(workspace.join("new.txt"), "agent's\n");
    let capture = world.capture(A1);
    write(world.user().join("a.txt"), "trunk's\n");
    let tip = commit_all(world.user(), "theirs");
    let branch = regatta_core::ids::BranchName::new("regatta/T1-a").unwrap();
    let fixup = Fixup::new(capture.commit.clone());
    let prepare = || {
        world
            .git
            .prepare_fixup(&world.repo, A2, &branch, &fixup, &authorship("mend"))
            .unwrap()
    };
    let fixup_workspace = prepare();
    let marked = fs::read_to_string(fixup_workspace.path.join("a.txt")).unwrap();
    assert!(
        marked.starts_with("<<<<<<< ") && marked.contains("trunk's\n=======\nagent's\n>>>>>>> "),
        "{marked}"
    );
    assert_eq!(
        fs::read_to_string(fixup_workspace.path.join("new.txt")).unwrap(),
        "agent's\n",
        "the rest is merged"
    );
    assert_eq!(git(&fixup_workspace.path, &["status", "--porcelain"]), "");
    assert_eq!(
        git(&fixup_workspace.path, &["rev-parse", "HEAD~1"]),
        tip.as_str()
    );
    assert_eq!(
        git(
            &fixup_workspace.path,
            &["show", &format!("{}:a.txt", capture.commit)]
        ),
        "agent's",
        "both sides can be read"
    );
    write(fixup_workspace.path.join("a.txt"), "both\n");
    assert_eq!(
        prepare(),
        fixup_workspace,
        "the prepared workspace is reused"
    );
    let resolution = world.capture(A2);
    assert_eq!(
        resolution.changed,
        ["a.txt"],
        "only the resolution is captured"
    );
    let change = world
        .git
        .squash_fixup(&world.repo, A2, resolution.clone(), &authorship("mended"))
        .unwrap();
    assert_eq!(
        (&change.base, change.changed.as_slice()),
        (&tip, ["a.txt".to_owned(), "new.txt".into()].as_slice())
    );
    assert_eq!(
        world
            .git
            .squash_fixup(&world.repo, A2, resolution, &authorship("mended"))
            .unwrap(),
        change,
        "repeating it gives the same change"
    );
    assert_eq!(
        world
            .git
            .squash_fixup(&world.repo, A1, capture.clone(), &authorship("x"))
            .unwrap(),
        capture,
        "a capture of an ordinary attempt is not changed"
    );
    let style = regatta_core::project::CommitStyle::Squash;
    let TrialMerge::Clean(new) = world
        .git
        .trial_merge(&world.repo, &tip, &change_of(&change.commit, "x"), style)
        .unwrap()
    else {
        panic!("the resolved change conflicts")
    };
    assert_eq!(
        (
            world.read_from_vault(&new, "a.txt"),
            world.read_from_vault(&new, "new.txt")
        ),
        ("both".into(), "agent's".into())
    );
    assert_eq!(
        world.git.tree_of(&world.repo, &new).unwrap(),
        world.git.tree_of(&world.repo, &change.commit).unwrap()
    );
    assert_eq!(
        world.git.uncaptured_paths(&world.repo, A2).unwrap(),
        [] as [String; 0]
    );
}

/// Every kind of conflict is named with a path that exists on one of the sides, and the fix-up's
/// workspace contains no name that git invented.
#[test]
fn q6_every_kind_of_conflict_is_named_with_an_existing_path() {
    use regatta_core::task::ConflictKind;
    let world = World::new();
    let user = world.user();
    for name in ["deleted-here.txt", "deleted-there.txt", "both.txt"] {
        write(user.join(name), "one\ntwo\nthree\n");
    }
    write(user.join("picture.bin"), [0, 1, 2, 3, 0]);
    commit_all(user, "base");
    let workspace = world.prepare(A1).path;
    write(
        workspace.join("deleted-there.txt"),
        "one\nTWO of the task\nthree\n",
    );
    fs::remove_file(workspace.join("deleted-here.txt")).unwrap();
    write(workspace.join("both.txt"), "one\nthe task's\nthree\n");
    write(workspace.join("picture.bin"), [0, 9, 9, 9, 0]);
    write(workspace.join("notes"), "a file of the task's\n");
    write(workspace.join("new.txt"), "the task's\n");
    let capture = world.capture(A1);
    fs::remove_file(user.join("deleted-there.txt")).unwrap();
    write(
        user.join("deleted-here.txt"),
        "one\nTWO of the trunk\nthree\n",
    );
    write(user.join("both.txt"), "one\nthe trunk's\nthree\n");
    write(user.join("picture.bin"), [0, 7, 7, 7, 0]);
    fs::create_dir(user.join("notes")).unwrap();
    write(user.join("notes/one.md"), "a directory of the trunk's\n");
    write(user.join("new.txt"), "the trunk's\n");
    let tip = commit_all(user, "theirs");
    let kinds = world
        .git
        .conflicts(&world.repo, &tip, &capture.commit)
        .unwrap();
    let kind = |path: &str| {
        kinds
            .iter()
            .find(|conflict| conflict.path == path)
            .map(|conflict| conflict.kind)
    };
    let expected = [
        ("both.txt", ConflictKind::Content),
        ("deleted-here.txt", ConflictKind::DeletedByTask),
        ("deleted-there.txt", ConflictKind::DeletedOnTrunk),
        ("new.txt", ConflictKind::Added),
        ("notes", ConflictKind::FileAndDirectory),
        ("picture.bin", ConflictKind::Binary),
    ];
    for (path, expected) in expected {
        assert_eq!(kind(path), Some(expected), "{path}: {kinds:?}");
    }
    assert_eq!(kinds.len(), expected.len(), "{kinds:?}");
    let TrialMerge::Conflict(paths) = world.trial(&capture.commit) else {
        panic!("the trial should conflict")
    };
    assert_eq!(
        paths,
        expected.map(|(path, _)| path),
        "the trial names the same paths"
    );
    let branch = regatta_core::ids::BranchName::new("regatta/T1-a").unwrap();
    let fixup = Fixup::new(capture.commit.clone());
    let fixup_workspace = world
        .git
        .prepare_fixup(&world.repo, A2, &branch, &fixup, &authorship("mend"))
        .unwrap();
    let listed = git(&fixup_workspace.path, &["ls-files"]);
    assert!(!listed.contains('~'), "{listed}");
    assert_eq!(
        read(fixup_workspace.path.join("notes/one.md")),
        "a directory of the trunk's\n"
    );
    assert_eq!(
        git(
            &fixup_workspace.path,
            &["show", &format!("{}:notes", capture.commit)]
        ),
        "a file of the task's"
    );
    assert_eq!(git(&fixup_workspace.path, &["status", "--porcelain"]), "");
}

/// Q6: where ownership resolved a conflict, the fix-up's workspace has the taken version without
/// markers.
#[test]
fn q6_a_fixup_has_the_chosen_version_where_ownership_resolved_a_conflict() {
    let world = World::new();
    let user = world.user();
    write(user.join("b.txt"), "one\n");
    commit_all(user, "base");
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "the task's\n");
    write(workspace.join("b.txt"), "the task's\n");
    let capture = world.capture(A1);
    write(user.join("a.txt"), "the trunk's\n");
    write(user.join("b.txt"), "the trunk's\n");
    commit_all(user, "theirs");
    let taken_path = |path: &str, is_trunks| SettledPath {
        path: path.into(),
        is_trunks,
    };
    let settled_paths = vec![taken_path("a.txt", true), taken_path("b.txt", false)];
    let fixup = Fixup {
        settled: settled_paths,
        ..Fixup::new(capture.commit.clone())
    };
    let branch = regatta_core::ids::BranchName::new("regatta/T1-a").unwrap();
    let fixup_workspace = world
        .git
        .prepare_fixup(&world.repo, A2, &branch, &fixup, &authorship("mend"))
        .unwrap();
    assert_eq!(read(fixup_workspace.path.join("a.txt")), "the trunk's\n");
    assert_eq!(read(fixup_workspace.path.join("b.txt")), "the task's\n");
    write(fixup_workspace.path.join("a.txt"), "both\n");
    let resolution = world.capture(A2);
    assert_eq!(resolution.changed, ["a.txt"]);
    assert!(
        world
            .git
            .recognise_fixup(&world.repo, A2, &resolution.base, &fixup)
            .unwrap()
    );
    let plain_fixup = Fixup::new(capture.commit.clone());
    assert!(
        !world
            .git
            .recognise_fixup(&world.repo, A2, &resolution.base, &plain_fixup)
            .unwrap(),
        "the base has no conflict markers"
    );
}
