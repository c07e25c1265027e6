//! Tests of trial merges and reverts.

use std::fs;

use regatta_core::project::CommitStyle;
use regatta_engine::ports::git::{CommitRange, TrialMerge, TrunkMoveResult};

use crate::world::*;

#[test]
fn changes_of_different_files_merge_and_changes_of_the_same_lines_conflict() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "agent's\n");
    write(workspace.join("ü b.txt"), "agent's\n");
    let capture = world.capture(A1);

    write(world.user().join("src/lib.rs"), "// theirs\n");
    let tip = commit_all(world.user(), "elsewhere");
    let merged = world.clean_trial(&capture.commit);
    assert_eq!(world.read_from_vault(&merged, "src/lib.rs"), "// theirs");
    assert_eq!(world.read_from_vault(&merged, "a.txt"), "agent's");
    assert_eq!(
        git(&world.vault(), &["rev-parse", &format!("{merged}^@")]),
        tip.as_str()
    );

    write(world.user().join("a.txt"), "theirs\n");
    write(world.user().join("ü b.txt"), "theirs\n");
    commit_all(world.user(), "the same lines");
    assert_eq!(
        world.trial(&capture.commit),
        TrialMerge::Conflict(vec!["a.txt".into(), "ü b.txt".into()])
    );

    fs::remove_file(world.user().join("a.txt")).unwrap();
    write(world.user().join("ü b.txt"), "agent's\n");
    commit_all(world.user(), "deleted there");
    assert_eq!(
        world.trial(&capture.commit),
        TrialMerge::Conflict(vec!["a.txt".into()])
    );
}

#[test]
fn change_that_the_trunk_already_has_is_empty() {
    let world = World::new();
    write(world.prepare(A1).path.join("a.txt"), "two\n");
    let capture = world.capture(A1);
    write(world.user().join("a.txt"), "two\n");
    commit_all(world.user(), "the same by hand");
    assert_eq!(world.trial(&capture.commit), TrialMerge::Empty);

    world.prepare(A2);
    let empty_capture = world.capture(A2);
    assert_eq!(
        (
            empty_capture.commit == empty_capture.base,
            empty_capture.changed.is_empty()
        ),
        (true, true)
    );
    assert_eq!(world.trial(&empty_capture.commit), TrialMerge::Empty);
}

#[test]
fn change_merges_onto_a_trial_that_has_not_landed_yet() {
    let world = World::new();
    for (attempt, path) in [(A1, "one.txt"), (A2, "two.txt")] {
        write(world.prepare(attempt).path.join(path), "x\n");
    }
    let first = world.clean_trial(&world.capture(A1).commit);
    let second = world
        .git
        .trial_merge(
            &world.repo,
            &first,
            &change_of(&world.capture(A2).commit, "second"),
            CommitStyle::Squash,
        )
        .unwrap();
    let TrialMerge::Clean(second) = second else {
        panic!("{second:?}")
    };
    assert_eq!(
        git(&world.vault(), &["ls-tree", "--name-only", second.as_str()])
            .lines()
            .count(),
        6
    );
    assert_eq!(
        world.land(&world.tip(), &second),
        regatta_engine::ports::git::TrunkMoveResult::Moved
    );
    assert_eq!(read(world.user().join("one.txt")), "x\n");
}

/// The commit's parent is the tip, and its tree is the tree of the last merge. Folding again gives
/// the same commit.
#[test]
fn several_merges_are_folded_into_one_commit() {
    let world = World::new();
    let tip = world.tip();
    let (a, b) = (
        world.change_ready_to_land(A1, &[("one.txt", "a\n")]),
        world.change_ready_to_land(A2, &[("two.txt", "b\n")]),
    );
    let first = world.clean_trial(&a);
    let TrialMerge::Clean(second) = world
        .git
        .trial_merge(
            &world.repo,
            &first,
            &change_of(&b, "b"),
            CommitStyle::Squash,
        )
        .unwrap()
    else {
        panic!()
    };
    let folded = world
        .git
        .squash_range(&world.repo, &tip, &change_of(&second, "both"))
        .unwrap();
    assert_eq!(
        folded,
        world
            .git
            .squash_range(&world.repo, &tip, &change_of(&second, "both"))
            .unwrap()
    );
    let resolve = |name: &str| git(&world.vault(), &["rev-parse", name]);
    assert_eq!(resolve(&format!("{folded}^@")), tip.as_str());
    assert_eq!(
        resolve(&format!("{folded}^{{tree}}")),
        resolve(&format!("{second}^{{tree}}"))
    );
    assert_eq!(
        (
            world.read_from_vault(&folded, "one.txt"),
            world.read_from_vault(&folded, "two.txt")
        ),
        ("a".into(), "b".into())
    );
    assert_eq!(world.land(&tip, &folded), TrunkMoveResult::Moved);
    // The inverse of one change undoes its part, and the other stays.
    let TrialMerge::Clean(undone) = world
        .git
        .revert(&world.repo, &folded, &change_of(&a, "undo a"))
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(world.read_from_vault(&undone, "two.txt"), "b");
    assert!(
        world
            .git
            .file_at(&world.repo, &undone, "one.txt")
            .unwrap()
            .is_none()
    );
}

#[test]
fn commits_dropped_from_a_rewritten_trunk_do_not_return_with_a_merge() {
    let world = World::new();
    write(world.user().join("secret.txt"), "must go\n");
    commit_all(world.user(), "a mistake");
    write(world.prepare(A1).path.join("a.txt"), "two\n");
    let capture = world.capture(A1);
    git(world.user(), &["reset", "-q", "--hard", "HEAD^"]);
    write(world.user().join("other.txt"), "instead\n");
    commit_all(world.user(), "rewritten");
    let merged = world.clean_trial(&capture.commit);
    let files = git(
        &world.vault(),
        &["ls-tree", "-r", "--name-only", merged.as_str()],
    );
    assert_eq!(files, ".gitignore\na.txt\nother.txt\nrun.sh\nsrc/lib.rs");
    assert_eq!(world.read_from_vault(&merged, "a.txt"), "two");

    // The same holds without any common commit.
    git(world.user(), &["checkout", "-q", "--orphan", "fresh"]);
    commit_all(world.user(), "a new beginning");
    git(world.user(), &["branch", "-q", "-M", "fresh", "main"]);
    assert_eq!(
        world.read_from_vault(&world.clean_trial(&capture.commit), "a.txt"),
        "two"
    );
}

#[test]
fn s5_a_merge_driver_named_in_the_tree_does_not_run() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(
        workspace.join(".gitattributes"),
        "* merge=evil diff=evil filter=evil\n",
    );
    write(workspace.join("a.txt"), "agent's\n");
    let canary = world.home.path().join("canary");
    git(
        &workspace,
        &[
            "config",
            "merge.evil.driver",
            &format!("touch '{}'", canary.display()),
        ],
    );
    let capture = world.capture(A1);
    write(world.user().join("a.txt"), "theirs\n");
    commit_all(world.user(), "theirs");
    assert_eq!(
        world.trial(&capture.commit),
        TrialMerge::Conflict(vec!["a.txt".into()])
    );
    assert!(!canary.exists());
}

#[test]
fn unknown_commit_is_an_error() {
    let world = World::new();
    let unknown = regatta_core::ids::CommitId::new(&"a".repeat(40)).unwrap();
    let error = world
        .git
        .trial_merge(
            &world.repo,
            &world.tip(),
            &change_of(&unknown, "x"),
            CommitStyle::Squash,
        )
        .unwrap_err();
    assert_eq!(error.code, "no_such_commit");
    assert_eq!(
        world
            .git
            .stage(&world.repo, SLOT, &unknown)
            .unwrap_err()
            .code,
        "no_such_commit"
    );
}

#[test]
fn rebase_lands_each_commit_of_the_agent_and_no_other() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "two\n");
    commit_all(&workspace, "first of mine");
    write(workspace.join("b.txt"), "b\n");
    commit_all(&workspace, "second of mine");
    write(workspace.join("c.txt"), "never committed\n");
    let capture = world.capture(A1);
    assert_eq!(capture, world.capture(A1));
    assert_eq!(capture.changed, ["a.txt", "b.txt", "c.txt"]);

    write(world.user().join("other.txt"), "theirs\n");
    let tip = commit_all(world.user(), "theirs");
    let trial = |style| match world.git.trial_merge(
        &world.repo,
        &tip,
        &change_of(&capture.commit, "T\n\nTask: 1"),
        style,
    ) {
        Ok(TrialMerge::Clean(commit)) => commit,
        other => panic!("{other:?}"),
    };
    let log = |commit: &regatta_core::ids::CommitId| {
        git(
            &world.vault(),
            &[
                "log",
                "--format=%s|%(trailers:separator=%x2C)|%an|%P",
                &format!("{tip}..{commit}"),
            ],
        )
    };
    let rebased = trial(CommitStyle::Rebase);
    assert_eq!(rebased, trial(CommitStyle::Rebase));
    let lines: Vec<_> = log(&rebased)
        .lines()
        .map(|line| line.split('|').take(3).collect::<Vec<_>>().join("|"))
        .collect();
    assert_eq!(
        lines,
        [
            "T|Task: 1|amber",
            "second of mine|Task: 1|amber",
            "first of mine|Task: 1|amber"
        ]
    );
    let tree = |commit: &regatta_core::ids::CommitId| {
        git(
            &world.vault(),
            &["rev-parse", &format!("{commit}^{{tree}}")],
        )
    };
    let (squashed, merged) = (trial(CommitStyle::Squash), trial(CommitStyle::Merge));
    assert_eq!(
        (tree(&rebased), tree(&rebased)),
        (tree(&squashed), tree(&merged))
    );
    assert!(log(&squashed).ends_with(&format!("|{tip}")));
    let parents = git(
        &world.vault(),
        &["log", "-1", "--format=%P", merged.as_str()],
    );
    assert_eq!(parents, format!("{tip} {}", capture.commit));

    assert_eq!(
        world.land(&tip, &rebased),
        regatta_engine::ports::git::TrunkMoveResult::Moved
    );
    assert_eq!(
        git(
            world.user(),
            &["rev-list", "--count", &format!("{tip}..main")]
        ),
        "3"
    );
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    for style in [CommitStyle::Squash, CommitStyle::Rebase, CommitStyle::Merge] {
        let repeated = world
            .git
            .trial_merge(
                &world.repo,
                &rebased,
                &change_of(&capture.commit, "x"),
                style,
            )
            .unwrap();
        assert_eq!(repeated, TrialMerge::Empty, "{style:?}");
    }
}

#[test]
fn merge_commit_lands_with_its_history_and_only_once() {
    let world = World::new();
    write(world.prepare(A1).path.join("a.txt"), "two\n");
    let capture = world.capture(A1);
    let merge = |tip: &_| {
        world
            .git
            .trial_merge(
                &world.repo,
                tip,
                &change_of(&capture.commit, "m"),
                CommitStyle::Merge,
            )
            .unwrap()
    };
    let old = world.tip();
    let TrialMerge::Clean(merged) = merge(&old) else {
        panic!()
    };
    assert_eq!(
        world.land(&old, &merged),
        regatta_engine::ports::git::TrunkMoveResult::Moved
    );
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    write(world.user().join("a.txt"), "three\n");
    assert_eq!(
        merge(&commit_all(world.user(), "on top")),
        TrialMerge::Empty
    );
}

#[test]
fn unrelated_or_broken_history_is_left_out_of_a_capture() {
    let world = World::new();
    let workspace = world.prepare(A1).path;
    git(&workspace, &["checkout", "-q", "--orphan", "other"]);
    write(workspace.join("a.txt"), "two\n");
    commit_all(&workspace, "from nowhere");
    let capture = world.capture(A1);
    let parents = |commit: &_| {
        git(
            &world.vault(),
            &["log", "-1", "--format=%P", &format!("{commit}")],
        )
    };
    assert_eq!(parents(&capture.commit), world.tip().as_str());

    let workspace = world.prepare(A2).path;
    write(workspace.join("a.txt"), "three\n");
    commit_all(&workspace, "mine");
    fs::remove_dir_all(workspace.join(".git/objects")).unwrap();
    let capture = world.capture(A2);
    assert_eq!(parents(&capture.commit), world.tip().as_str());
    assert_eq!(world.read_from_vault(&capture.commit, "a.txt"), "three");
}

#[test]
fn q6_versions_dropped_by_ownership_are_kept_under_a_ref() {
    use regatta_engine::ports::git::MergeSide;
    let world = World::new();
    let workspace = world.prepare(A1).path;
    for file in ["a.txt", "b.txt", "new.txt"] {
        write(workspace.join(file), "agent's\n");
    }
    fs::remove_file(workspace.join("run.sh")).unwrap();
    let capture = world.capture(A1);
    for file in ["a.txt", "b.txt", "run.sh"] {
        write(world.user().join(file), "trunk's\n");
    }
    let tip = commit_all(world.user(), "theirs");
    let resolve = |sides: &[(&str, MergeSide)]| {
        let sides = sides
            .iter()
            .map(|(path, side)| ((*path).to_owned(), *side))
            .collect();
        world
            .git
            .merge_with_ownership(
                &world.repo,
                &tip,
                &change_of(&capture.commit, "settled"),
                &sides,
            )
            .unwrap()
    };
    let partial = resolve(&[("a.txt", MergeSide::Trunk), ("run.sh", MergeSide::Change)]);
    assert_eq!(
        (partial.trial, partial.dropped),
        (TrialMerge::Conflict(vec!["b.txt".into()]), None)
    );
    let all_sides = [
        ("a.txt", MergeSide::Trunk),
        ("b.txt", MergeSide::Change),
        ("run.sh", MergeSide::Change),
    ];
    let resolved = resolve(&all_sides);
    assert_eq!(resolved, resolve(&all_sides));
    let (TrialMerge::Clean(new), Some(dropped)) = (resolved.trial, resolved.dropped) else {
        panic!()
    };
    assert_eq!(
        (
            world.read_from_vault(&new, "a.txt"),
            world.read_from_vault(&new, "b.txt")
        ),
        ("trunk's".into(), "agent's".into())
    );
    assert_eq!(world.read_from_vault(&new, "new.txt"), "agent's");
    assert_eq!(
        git(&world.vault(), &["ls-tree", new.as_str(), "run.sh"]),
        ""
    );
    assert_eq!(dropped.paths, ["a.txt", "b.txt", "run.sh"]);
    assert_eq!(
        git(&world.vault(), &["rev-parse", &dropped.reference]),
        dropped.commit.as_str()
    );
    let difference = git(
        &world.vault(),
        &["diff", "--name-only", new.as_str(), dropped.commit.as_str()],
    );
    assert_eq!(difference, "a.txt\nb.txt\nrun.sh");
    assert_eq!(world.read_from_vault(&dropped.commit, "a.txt"), "agent's");
    assert_eq!(world.read_from_vault(&dropped.commit, "b.txt"), "trunk's");
    assert_eq!(world.read_from_vault(&dropped.commit, "run.sh"), "trunk's");
}

#[test]
fn reverting_a_landed_change_keeps_later_changes() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "x\n")]);
    world.land(&old, &new);
    write(world.user().join("src/lib.rs"), "// later\n");
    let tip = commit_all(world.user(), "later");
    let TrialMerge::Clean(undone) = world
        .git
        .revert(&world.repo, &tip, &change_of(&new, "undo"))
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(world.read_from_vault(&undone, "a.txt"), "one");
    assert_eq!(world.read_from_vault(&undone, "src/lib.rs"), "// later");
    assert_eq!(
        world.land(&tip, &undone),
        regatta_engine::ports::git::TrunkMoveResult::Moved
    );
    assert!(!world.user().join("new.txt").exists());
    assert_eq!(
        world
            .git
            .revert(&world.repo, &undone, &change_of(&new, "undo"))
            .unwrap(),
        TrialMerge::Empty
    );
    write(world.user().join("a.txt"), "four\n");
    let tip = commit_all(world.user(), "the same line again");
    assert_eq!(
        world
            .git
            .revert(&world.repo, &tip, &change_of(&new, "undo"))
            .unwrap(),
        TrialMerge::Conflict(vec!["a.txt".into()])
    );
    assert_eq!(
        world
            .git
            .revert(&world.repo, &tip, &change_of(&old, "undo"))
            .unwrap_err()
            .code,
        "first_commit"
    );
}

#[test]
fn files_and_diff_of_a_commit_can_be_read() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("[a]*.txt", "odd\n")]);
    let file = |path: &str| world.git.file_at(&world.repo, &new, path).unwrap();
    assert_eq!(file("a.txt").as_deref(), Some(b"two\n".as_slice()));
    assert_eq!(file("[a]*.txt").as_deref(), Some(b"odd\n".as_slice()));
    for path in ["src", "nope", "a.txt/x", "*", "", "../a.txt", ":(top)a.txt"] {
        assert_eq!(file(path), None, "{path}");
    }
    let range = CommitRange {
        base: &old,
        commit: &new,
    };
    let patch = world.git.diff(&world.repo, range).unwrap();
    assert!(
        patch.contains("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"),
        "{patch}"
    );
}

/// A batch is merged at once, up to the first conflict. Nothing of a conflicting batch stays in the
/// vault.
#[test]
fn merging_a_batch_equals_merging_its_changes_one_by_one() {
    let world = World::new();
    let (first_dir, second_dir) = (world.prepare(A1).path, world.prepare(A2).path);
    write(first_dir.join("src/one.rs"), "1\n");
    write(second_dir.join("src/two.rs"), "2\n");
    let (first, second) = (world.capture(A1).commit, world.capture(A2).commit);
    let changes = [change_of(&first, "one"), change_of(&second, "two")];
    let tip = world.tip();
    for style in [CommitStyle::Squash, CommitStyle::Rebase, CommitStyle::Merge] {
        let merged = world
            .git
            .trial_merges(&world.repo, &tip, &changes, style)
            .unwrap();
        let [TrialMerge::Clean(a), TrialMerge::Clean(b)] = merged.as_slice() else {
            panic!("{style:?}: {merged:?}")
        };
        assert_eq!(
            world
                .git
                .trial_merge(&world.repo, &tip, &change_of(&first, "one"), style)
                .unwrap(),
            merged[0]
        );
        assert_eq!(
            world
                .git
                .trial_merge(&world.repo, a, &change_of(&second, "two"), style)
                .unwrap(),
            merged[1]
        );
        assert_eq!(
            (
                world.read_from_vault(b, "src/one.rs"),
                world.read_from_vault(b, "src/two.rs")
            ),
            ("1".into(), "2".into())
        );
    }
    write(second_dir.join("src/one.rs"), "one\n");
    let third = world.capture(A2).commit;
    let before = git(&world.vault(), &["count-objects"]);
    let changes = [change_of(&first, "another one"), change_of(&third, "two")];
    let merged = world
        .git
        .trial_merges(&world.repo, &tip, &changes, CommitStyle::Squash)
        .unwrap();
    assert!(
        matches!(merged.as_slice(), [TrialMerge::Clean(_), TrialMerge::Conflict(paths)] if *paths == ["src/one.rs"])
    );
    assert_eq!(git(&world.vault(), &["count-objects"]), before);
}
