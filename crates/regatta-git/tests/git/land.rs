//! Tests of moving the trunk to a merged commit.

use std::fs;
use std::sync::Barrier;

use regatta_core::ids::{CommitId, ProjectName};
use regatta_engine::ports::git::{TrialMerge, TrunkMoveResult, TrunkPermit};

use crate::world::*;

#[test]
fn every_step_from_workspace_to_trunk_can_be_repeated() {
    let world = World::new();
    let old = world.tip();
    let workspace = world.prepare(A1);
    assert_eq!(workspace, world.prepare(A1));
    assert_eq!(workspace.base, old);
    assert_eq!(read(workspace.path.join("a.txt")), "one\n");

    write(workspace.path.join("a.txt"), "two\n");
    write(workspace.path.join("new/file.txt"), "new\n");
    fs::remove_file(workspace.path.join("src/lib.rs")).unwrap();
    let capture = world.capture(A1);
    assert_eq!(capture, world.capture(A1));
    assert_eq!(capture.changed, ["a.txt", "new/file.txt", "src/lib.rs"]);
    assert_eq!(world.prepare(A1), workspace);
    assert_eq!(read(workspace.path.join("a.txt")), "two\n");

    let merged = world.clean_trial(&capture.commit);
    assert_eq!(merged, world.clean_trial(&capture.commit));
    let stage = world.git.stage(&world.repo, SLOT, &merged).unwrap();
    write(stage.join("left over"), "x");
    assert_eq!(stage, world.git.stage(&world.repo, SLOT, &merged).unwrap());
    assert_eq!(read(stage.join("a.txt")), "two\n");
    assert!(!stage.join("left over").exists() && !stage.join("src").exists());
    assert_eq!(git(&stage, &["status", "--porcelain"]), "");
    assert_eq!(
        git(&stage, &["ls-files"]),
        ".gitignore\na.txt\nnew/file.txt\nrun.sh"
    );
    assert_eq!(git(&stage, &["rev-parse", "HEAD"]), merged.as_str());

    assert_eq!(world.land(&old, &merged), TrunkMoveResult::Moved);
    assert_eq!(world.land(&old, &merged), TrunkMoveResult::Moved);
    assert_eq!(world.tip(), merged);
    assert_eq!(world.status(), "");
    assert_eq!(read(world.user().join("a.txt")), "two\n");
    assert_eq!(read(world.user().join("new/file.txt")), "new\n");
    assert!(!world.user().join("src").exists());
    let log = git(world.user(), &["log", "--format=%an %ae %at %s %P", "-1"]);
    assert_eq!(
        log,
        format!("amber amber@regatta.invalid 1000 land it {old}")
    );
    assert!(git(world.user(), &["reflog", "-1"]).contains("regatta: landing L1"));
    git(world.user(), &["fsck", "--strict", "--no-dangling"]);

    world.git.unstage(&world.repo, SLOT).unwrap();
    world.git.unstage(&world.repo, SLOT).unwrap();
    assert!(!stage.exists());
    world.remove_workspace(A1);
    world.remove_workspace(A1);
    assert!(!workspace.path.exists());
}

#[test]
fn q2_a_trunk_that_was_moved_by_somebody_else_is_not_moved() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    write(world.user().join("b.txt"), "b\n");
    let theirs = commit_all(world.user(), "theirs");
    assert_eq!(
        world.land(&old, &new),
        TrunkMoveResult::TrunkElsewhere(theirs.clone())
    );
    assert_eq!(world.tip(), theirs);
    assert_eq!(world.status(), "");
}

#[test]
fn q2_of_four_simultaneous_moves_exactly_one_wins() {
    let world = World::new();
    let old = world.tip();
    let news: Vec<CommitId> = (1..=4)
        .map(|number| {
            world.change_ready_to_land(
                regatta_core::ids::AttemptId(number),
                &[("a.txt", &format!("{number}\n"))],
            )
        })
        .collect();
    // The two adapters share no lock, as two daemons started by mistake would not.
    let other_adapter = regatta_git::GitAdapter::new(world.data());
    let start = Barrier::new(news.len());
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = news
            .iter()
            .enumerate()
            .map(|(number, new)| {
                let (world, other_adapter, old, start) = (&world, &other_adapter, &old, &start);
                scope.spawn(move || {
                    let git = if number % 2 == 0 {
                        &world.git
                    } else {
                        other_adapter
                    };
                    start.wait();
                    git.move_trunk(&world.permit(), &world.repo, old, new)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let tip = world.tip();
    assert!(news.contains(&tip));
    for (new, outcome) in news.iter().zip(&outcomes) {
        match outcome {
            Ok(TrunkMoveResult::Moved) => assert_eq!(*new, tip),
            Ok(TrunkMoveResult::TrunkElsewhere(there)) => assert_eq!(*there, tip),
            // A move that loses the race may also find the winner's half-updated checkout or its
            // lock.
            Ok(TrunkMoveResult::CheckoutDirty(_)) | Err(_) => assert_ne!(*new, tip),
        }
    }
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == Ok(TrunkMoveResult::Moved))
            .count(),
        1
    );
    assert_eq!(world.status(), "");
}

#[test]
fn q11_an_agents_git_commands_in_its_workspace_do_not_move_the_trunk() {
    let world = World::new();
    let old = world.tip();
    let workspace = world.prepare(A1).path;
    write(workspace.join("a.txt"), "mine\n");
    let mine = commit_all(&workspace, "mine");
    let refs = || {
        (
            git(world.user(), &["show-ref"]),
            git(&world.vault(), &["show-ref"]),
        )
    };
    let before = refs();
    for args in [
        ["update-ref", "refs/heads/main", mine.as_str()].as_slice(),
        &["update-ref", "refs/regatta/trunk", mine.as_str()],
        &["push", "--force", "origin", "HEAD:main"],
        &["push", "--force", ".", "HEAD:refs/heads/main"],
        &["branch", "-f", "main", mine.as_str()],
        &["checkout", "-q", "-B", "main"],
        &["gc", "-q", "--prune=now"],
        &["config", "core.hooksPath", "/tmp/evil"],
    ] {
        try_git(&workspace, args);
    }
    assert_eq!(refs(), before);
    assert_eq!(world.tip(), old);
    assert_eq!(world.capture(A1).base, old);
}

#[test]
fn permit_for_another_project_is_refused() {
    let world = World::new();
    let old = world.tip();
    let new = world.change_ready_to_land(A1, &[("a.txt", "two\n")]);
    let permit = TrunkPermit::for_tests(ProjectName::new("other").unwrap());
    assert_eq!(
        world
            .git
            .move_trunk(&permit, &world.repo, &old, &new)
            .unwrap_err()
            .code,
        "wrong_permit"
    );
    assert_eq!(world.tip(), old);
}

#[test]
fn move_that_would_drop_commits_is_refused() {
    let world = World::new();
    let first = world.tip();
    let second = commit_all(world.user(), "second");
    world.prepare(A1);
    let refused = world
        .git
        .move_trunk(&world.permit(), &world.repo, &second, &first)
        .unwrap_err();
    assert_eq!(refused.code, "not_a_descendant");
    let unknown = CommitId::new(&"1".repeat(40)).unwrap();
    let refused = world
        .git
        .move_trunk(&world.permit(), &world.repo, &second, &unknown)
        .unwrap_err();
    assert_eq!(refused.code, "no_such_commit");
    assert_eq!(world.tip(), second);
}

#[test]
fn trunk_without_a_checkout_moves_and_changes_no_working_tree() {
    for arrange in ["other branch", "detached", "bare"] {
        let mut world = World::new();
        let old = world.tip();
        match arrange {
            "other branch" => drop(git(world.user(), &["checkout", "-q", "-b", "feature"])),
            "detached" => drop(git(world.user(), &["checkout", "-q", "--detach"])),
            _ => {
                let bare = world.home.path().join("bare.git");
                git(
                    world.home.path(),
                    &["clone", "-q", "--bare", "user's repo", "bare.git"],
                );
                world = World::with_repo_at(world.home, bare);
            }
        }
        if arrange != "bare" {
            write(world.user().join("a.txt"), "a person's\n");
            write(world.user().join("new.txt"), "a person's\n");
        }
        let new = world.change_ready_to_land(A1, &[("a.txt", "two\n"), ("new.txt", "new\n")]);
        assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved, "{arrange}");
        assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved, "{arrange}");
        assert_eq!(world.tip(), new);
        if arrange != "bare" {
            assert_eq!(read(world.user().join("a.txt")), "a person's\n");
            assert_eq!(read(world.user().join("new.txt")), "a person's\n");
        }
    }
}

#[test]
fn shallow_and_sha256_repositories_work() {
    let source = World::new();
    write(source.user().join("a.txt"), "deeper\n");
    commit_all(source.user(), "second");
    let url = format!("file://{}", source.user().display());
    git(
        source.home.path(),
        &["clone", "-q", "--depth=1", &url, "shallow"],
    );
    let path = source.home.path().join("shallow");
    for world in [
        World::with_repo_at(source.home, path),
        World::with_init_args(&["--object-format=sha256"]),
    ] {
        let old = world.tip();
        let workspace = world.prepare(A1).path;
        write(workspace.join("new.txt"), "new\n");
        git(&workspace, &["log"]);
        commit_all(&workspace, "the agent's own");
        let capture = world.capture(A1);
        assert_eq!(capture.changed, ["new.txt"]);
        let new = world.clean_trial(&capture.commit);
        world.git.stage(&world.repo, SLOT, &new).unwrap();
        assert_eq!(world.land(&old, &new), TrunkMoveResult::Moved);
        assert_eq!(world.status(), "");
        assert_eq!(world.trial(&capture.commit), TrialMerge::Empty);
        git(world.user(), &["fsck", "--strict", "--no-dangling"]);
    }
}
