//! Tests of reading the state of the trunk, without changing it.

use std::fs;

use regatta_core::ids::{CommitId, LandingId, TaskId};
use regatta_core::landing::trunk_check::TrunkCommit;
use regatta_engine::ports::git::TrunkFacts;

use crate::world::*;

#[test]
fn paths_of_the_trunk_are_those_of_its_tip() {
    let world = World::new();
    write(world.user().join("src/a b/ü.rs"), "x");
    commit_all(world.user(), "more");
    write(world.user().join("untracked"), "x");
    assert_eq!(
        world.git.paths_at_tip(&world.repo).unwrap(),
        [
            ".gitignore",
            "a.txt",
            "run.sh",
            "src/a b/ü.rs",
            "src/lib.rs"
        ]
    );
}

#[test]
fn trunk_behind_its_upstream_is_found_without_a_fetch() {
    let world = World::new();
    let facts = || world.git.trunk_facts(&world.repo).unwrap();
    assert_eq!(
        facts(),
        TrunkFacts {
            tip: world.tip(),
            upstream: None,
            commits_behind: 0
        }
    );
    let remote_dir = world.home.path().join("there");
    git(
        world.home.path(),
        &[
            "clone",
            "-q",
            world.user().to_str().unwrap(),
            remote_dir.to_str().unwrap(),
        ],
    );
    git(
        world.user(),
        &["remote", "add", "origin", remote_dir.to_str().unwrap()],
    );
    git(world.user(), &["fetch", "-q", "origin"]);
    git(
        world.user(),
        &["branch", "-q", "--set-upstream-to=origin/main", "main"],
    );
    assert_eq!(facts().upstream.as_deref(), Some("origin/main"));
    for message in ["one", "two"] {
        commit_all(&remote_dir, message);
    }
    assert_eq!(
        facts().commits_behind,
        0,
        "the new commits were not fetched yet"
    );
    git(world.user(), &["fetch", "-q", "origin"]);
    assert_eq!(facts().commits_behind, 2);
    commit_all(world.user(), "mine");
    assert_eq!(
        (facts().commits_behind, facts().tip),
        (2, world.tip()),
        "ahead and behind"
    );
}

#[test]
fn rewritten_trunk_no_longer_contains_the_landed_commits() {
    let world = World::new();
    let start = world.tip();
    let landed = commit_all(world.user(), "landed");
    let later = commit_all(world.user(), "landed later");
    let contains = |commit| {
        world
            .git
            .contains(&world.repo, &world.tip(), commit)
            .unwrap()
    };
    let all_commits = [start.clone(), landed.clone(), later.clone()];
    let missing = || {
        world
            .git
            .missing_commits(&world.repo, &world.tip(), &all_commits)
            .unwrap()
    };
    assert!(contains(&start) && contains(&landed));
    assert_eq!(missing(), []);
    git(
        world.user(),
        &["rebase", "-q", "--onto", start.as_str(), landed.as_str()],
    );
    assert_eq!(
        missing(),
        [landed.clone(), later.clone()],
        "the first was removed, and the second has another id now"
    );
    git(world.user(), &["reset", "-q", "--hard", start.as_str()]);
    assert!(contains(&start) && !contains(&landed));
    git(world.user(), &["reflog", "expire", "--expire=now", "--all"]);
    git(world.user(), &["gc", "-q", "--prune=now"]);
    assert!(
        !contains(&landed),
        "the repository no longer has the commit"
    );
    assert_eq!(missing(), [landed, later]);
}

/// Q12: the trunk is compared with recorded commits along first parents, including trailers.
/// Commits that the user's repository has lost are still known.
#[test]
fn q12_missing_and_added_commits_of_the_trunk_are_found() {
    let world = World::new();
    let start = world.tip();
    let message =
        |nth: u64| format!("Change {nth}\n\nRegatta-Task: T{nth}\nRegatta-Landing: L{nth}\n");
    let first = commit_all(world.user(), &message(1));
    let second = commit_all(world.user(), &message(2));
    let compare = |recorded: &[CommitId]| world.git.compare_trunk(&world.repo, recorded).unwrap();
    let described = |nth: u64, commit: &CommitId| TrunkCommit {
        commit: commit.clone(),
        landing: Some(LandingId(nth)),
        task: Some(TaskId(nth)),
        subject: format!("Change {nth}"),
    };
    let same = compare(std::slice::from_ref(&second));
    assert!(same.missing.is_empty() && same.added.is_empty(), "{same:?}");
    let differences = compare(std::slice::from_ref(&start));
    assert_eq!(
        (differences.missing, differences.added),
        (vec![], vec![described(2, &second), described(1, &first)])
    );

    git(world.user(), &["reset", "-q", "--hard", start.as_str()]);
    git(world.user(), &["reflog", "expire", "--expire=now", "--all"]);
    git(world.user(), &["gc", "-q", "--prune=now"]);
    let wave = commit_all(
        world.user(),
        "A wave\n\nRegatta-Task: T3\nRegatta-Landing: L3\nRegatta-Task: T4\nRegatta-Landing: L4\n",
    );
    let by_hand = commit_all(
        world.user(),
        "By hand\n\nIt says Regatta-Landing: L9\nin its middle.\n",
    );
    let reset = compare(std::slice::from_ref(&second));
    assert_eq!(reset.missing, [described(2, &second), described(1, &first)]);
    let commits: Vec<_> = reset
        .added
        .iter()
        .map(|commit| (commit.commit.clone(), commit.landing, commit.task))
        .collect();
    let landed_as = |nth: u64| (wave.clone(), Some(LandingId(nth)), Some(TaskId(nth)));
    assert_eq!(commits, [(by_hand, None, None), landed_as(3), landed_as(4)]);
}

#[test]
fn free_disk_space_is_known_before_the_data_directory_exists() {
    let world = World::new();
    assert!(!world.data().exists());
    assert!(world.git.free_disk_mb().is_some_and(|git| git > 0));
    fs::create_dir_all(world.data()).unwrap();
    assert!(world.git.free_disk_mb().is_some());
}

#[test]
fn unreleased_commits_are_those_after_the_last_tag() {
    let world = World::new();
    let listed = || {
        let unreleased = world
            .git
            .unreleased_commits(&world.repo, &world.tip())
            .unwrap();
        unreleased
            .into_iter()
            .map(|commit| (commit.subject, commit.task))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        listed(),
        [("start".to_owned(), None)],
        "without a tag nothing is released"
    );
    git(world.user(), &["tag", "-a", "-m", "first", "v1"]);
    assert_eq!(listed(), []);
    commit_all(
        world.user(),
        "Add a cart\n\nRegatta-Task: T7\nRegatta-Agent: amber",
    );
    commit_all(world.user(), "fix: totals");
    assert_eq!(
        listed(),
        [
            ("fix: totals".to_owned(), None),
            ("Add a cart".to_owned(), Some("T7".to_owned()))
        ]
    );
    git(world.user(), &["tag", "-f", "-a", "-m", "second", "v2"]);
    assert_eq!(listed(), []);
}
