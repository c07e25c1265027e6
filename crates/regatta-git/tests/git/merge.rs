use std::fs;

use regatta_engine::ports::git::{Git, Trial};

use crate::world::*;

#[test]
fn changes_of_different_files_merge_and_of_the_same_lines_conflict() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "agent's\n");
    write(workspace.join("ü b.txt"), "agent's\n");
    let capture = world.capture(A1);

    write(world.user().join("src/lib.rs"), "// theirs\n");
    let tip = commit_all(world.user(), "elsewhere");
    let merged = world.clean_trial(&capture.commit);
    assert_eq!(world.kept(&merged, "src/lib.rs"), "// theirs");
    assert_eq!(world.kept(&merged, "a.txt"), "agent's");
    assert_eq!(git(&world.vault(), &["rev-parse", &format!("{merged}^@")]), tip.as_str());

    write(world.user().join("a.txt"), "theirs\n");
    write(world.user().join("ü b.txt"), "theirs\n");
    commit_all(world.user(), "the same lines");
    assert_eq!(world.trial(&capture.commit), Trial::Conflict(vec!["a.txt".into(), "ü b.txt".into()]));

    fs::remove_file(world.user().join("a.txt")).unwrap();
    write(world.user().join("ü b.txt"), "agent's\n");
    commit_all(world.user(), "deleted there");
    assert_eq!(world.trial(&capture.commit), Trial::Conflict(vec!["a.txt".into()]));
}

#[test]
fn a_change_the_trunk_already_has_is_empty() {
    let world = World::new();
    write(world.prepare(A1).path.join("a.txt"), "two\n");
    let capture = world.capture(A1);
    write(world.user().join("a.txt"), "two\n");
    commit_all(world.user(), "the same by hand");
    assert_eq!(world.trial(&capture.commit), Trial::Empty);

    world.prepare(A2);
    let nothing = world.capture(A2);
    assert_eq!((nothing.commit == nothing.base, nothing.changed.is_empty()), (true, true));
    assert_eq!(world.trial(&nothing.commit), Trial::Empty);
}

#[test]
fn a_queue_merges_onto_what_has_not_landed_yet() {
    let world = World::new();
    for (attempt, path) in [(A1, "one.txt"), (A2, "two.txt")] {
        write(world.prepare(attempt).path.join(path), "x\n");
    }
    let first = world.clean_trial(&world.capture(A1).commit);
    let second =
        world.git.trial_merge(&world.repo, &first, &world.capture(A2).commit, &by("second"), Style::Squash).unwrap();
    let Trial::Clean(second) = second else { panic!("{second:?}") };
    assert_eq!(git(&world.vault(), &["ls-tree", "--name-only", second.as_str()]).lines().count(), 6);
    assert_eq!(world.land(&world.tip(), &second), regatta_engine::ports::git::Move::Moved);
    assert_eq!(read(world.user().join("one.txt")), "x\n");
}

#[test]
fn a_rewritten_trunk_does_not_get_its_dropped_commits_back() {
    let world = World::new();
    write(world.user().join("secret.txt"), "must go\n");
    commit_all(world.user(), "a mistake");
    write(world.prepare(A1).path.join("a.txt"), "two\n");
    let capture = world.capture(A1);
    git(world.user(), &["reset", "-q", "--hard", "HEAD^"]);
    write(world.user().join("other.txt"), "instead\n");
    commit_all(world.user(), "rewritten");
    let merged = world.clean_trial(&capture.commit);
    let files = git(&world.vault(), &["ls-tree", "-r", "--name-only", merged.as_str()]);
    assert_eq!(files, ".gitignore\na.txt\nother.txt\nrun.sh\nsrc/lib.rs");
    assert_eq!(world.kept(&merged, "a.txt"), "two");

    // With nothing in common at all it is the same.
    git(world.user(), &["checkout", "-q", "--orphan", "fresh"]);
    commit_all(world.user(), "a new beginning");
    git(world.user(), &["branch", "-q", "-M", "fresh", "main"]);
    assert_eq!(world.kept(&world.clean_trial(&capture.commit), "a.txt"), "two");
}

#[test]
fn s5_a_merge_driver_named_in_the_tree_runs_nothing() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join(".gitattributes"), "* merge=evil diff=evil filter=evil\n");
    write(workspace.join("a.txt"), "agent's\n");
    let canary = world.home.path().join("canary");
    git(&workspace, &["config", "merge.evil.driver", &format!("touch '{}'", canary.display())]);
    let capture = world.capture(A1);
    write(world.user().join("a.txt"), "theirs\n");
    commit_all(world.user(), "theirs");
    assert_eq!(world.trial(&capture.commit), Trial::Conflict(vec!["a.txt".into()]));
    assert!(!canary.exists());
}

#[test]
fn an_unknown_commit_is_told() {
    let world = World::new();
    let unknown = regatta_core::ids::CommitId::new(&"a".repeat(40)).unwrap();
    let told = world.git.trial_merge(&world.repo, &world.tip(), &unknown, &by("x"), Style::Squash).unwrap_err();
    assert_eq!(told.code, "no_such_commit");
    assert_eq!(world.git.stage(&world.repo, SLOT, &unknown).unwrap_err().code, "no_such_commit");
}
