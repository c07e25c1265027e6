//! Tests of rebasing the trunk onto a remote's trunk.

use std::fs;
use std::path::PathBuf;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{PushResult, RebaseResult, TrunkMoveResult, TrunkPermit};

use crate::world::{A1, A2, World, commit_all, git, read, write};

/// A world with a remote, and a colleague who pushes to it.
struct SharedRepo {
    world: World,
    remote: PathBuf,
    colleague: PathBuf,
}

impl SharedRepo {
    fn new() -> SharedRepo {
        let world = World::new();
        let home = world.home.path();
        git(
            home,
            &["clone", "-q", "--bare", "user's repo", "remote.git"],
        );
        git(home, &["clone", "-q", "remote.git", "colleague"]);
        git(world.user(), &["remote", "add", "origin", "../remote.git"]);
        let (remote, colleague) = (home.join("remote.git"), home.join("colleague"));
        SharedRepo {
            world,
            remote,
            colleague,
        }
    }

    /// Pushes a change as the colleague.
    fn push(&self, path: &str, text: &str) -> CommitId {
        write(self.colleague.join(path), text);
        let commit = commit_all(&self.colleague, &format!("Theirs: {path}"));
        git(&self.colleague, &["push", "-q"]);
        commit
    }

    /// Lands a change on the local trunk.
    fn land(&self, attempt: AttemptId, path: &str, text: &str) -> CommitId {
        let old = self.world.tip();
        let new = self.world.change_ready_to_land(attempt, &[(path, text)]);
        assert_eq!(self.world.land(&old, &new), TrunkMoveResult::Moved);
        new
    }

    fn rebase(&self) -> RebaseResult {
        let upstream = self
            .world
            .git
            .fetch_upstream(&self.world.repo, "origin")
            .unwrap();
        self.world
            .git
            .rebase_trunk(&self.world.repo, &upstream.tip)
            .unwrap()
    }

    fn move_trunk(&self, old: &CommitId, new: &CommitId) -> TrunkMoveResult {
        let permit = TrunkPermit::rebase_for_tests(self.world.repo.project.clone());
        self.world
            .git
            .move_trunk(&permit, &self.world.repo, old, new)
            .unwrap()
    }
}

/// Q2, Q3: the landed commits are replayed in a line on the remote's trunk. The old trunk is kept,
/// the checkout is updated, and the replacement of each commit is known.
#[test]
fn q3_landed_commits_are_rebased_onto_the_remote_trunk_and_the_old_trunk_is_kept() {
    let shared_repo = SharedRepo::new();
    let world = &shared_repo.world;
    let first = shared_repo.land(A1, "b.txt", "ours\n");
    write(world.user().join("c.txt"), "Ann's own\n");
    commit_all(world.user(), "Ann's own words\n\nSigned-off-by: Ann");
    let old = shared_repo.land(A2, "a.txt", "two\n");
    let theirs = shared_repo.push("src/theirs.rs", "// theirs\n");
    assert_eq!(
        world.git.push(&world.repo, "origin", &old).unwrap(),
        PushResult::NonFastForward
    );
    let upstream = world.git.fetch_upstream(&world.repo, "origin").unwrap();
    assert_eq!(
        (&upstream.tip, &upstream.changed),
        (&theirs, &vec!["src/theirs.rs".to_owned()])
    );
    let RebaseResult::Rebased { old: from, new, .. } = shared_repo.rebase() else {
        panic!()
    };
    assert_eq!(from, old);
    let RebaseResult::Rebased { new: again, .. } = shared_repo.rebase() else {
        panic!()
    };
    assert_eq!(again, new, "repeating it gives the same commits");
    assert_eq!(world.tip(), old, "nothing has moved yet");

    let plain_merge = world
        .git
        .move_trunk(&world.permit(), &world.repo, &old, &new);
    assert_eq!(
        plain_merge.unwrap_err().code,
        "not_a_descendant",
        "an ordinary permit does not allow it"
    );
    assert_eq!(shared_repo.move_trunk(&old, &new), TrunkMoveResult::Moved);
    assert_eq!(
        shared_repo.move_trunk(&old, &new),
        TrunkMoveResult::Moved,
        "the move can be repeated after a crash"
    );
    assert_eq!((world.tip(), world.status()), (new.clone(), String::new()));
    assert_eq!(read(world.user().join("src/theirs.rs")), "// theirs\n");
    assert_eq!(
        git(world.user(), &["rev-list", "--min-parents=2", "main"]),
        ""
    );
    let subjects = git(world.user(), &["log", "--format=%s|%an|%ae", "-4", "main"]);
    let line = "amber|amber@regatta.invalid";
    let expected = format!(
        "land it|{line}\nAnn's own words|Ann|ann@example.org\nland it|{line}\nTheirs: \
        src/theirs.rs|Ann|ann@example.org"
    );
    assert_eq!(subjects, expected);
    assert_eq!(
        git(
            world.user(),
            &["log", "-1", "--format=%(trailers)", "main~1"]
        )
        .trim(),
        "Signed-off-by: Ann"
    );
    let keep_ref = format!("refs/regatta/keep/trunk-{old}");
    for git_dir in [world.user(), &world.vault()] {
        assert_eq!(git(git_dir, &["rev-parse", &keep_ref]), old.as_str());
    }
    assert!(
        world.git.contains(&world.repo, &new, &first).unwrap(),
        "the trunk contains the replacement"
    );
    assert!(
        !world.git.contains_exactly(&world.repo, &first).unwrap(),
        "the trunk does not contain the commit itself"
    );
    assert_eq!(
        world.git.push(&world.repo, "origin", &new).unwrap(),
        PushResult::Pushed
    );
    assert_eq!(
        git(&shared_repo.remote, &["rev-parse", "main"]),
        new.as_str()
    );
    assert_eq!(shared_repo.rebase(), RebaseResult::UpToDate { tip: new });
}

/// The trunk follows the remote's trunk when no local commit is left to replay, also when both
/// sides made the same change.
#[test]
fn trunk_that_is_only_behind_moves_to_the_remote_trunk() {
    let shared_repo = SharedRepo::new();
    let old = shared_repo.world.tip();
    let theirs = shared_repo.push("b.txt", "the same\n");
    assert_eq!(
        shared_repo.rebase(),
        RebaseResult::Rebased {
            old: old.clone(),
            new: theirs.clone(),
            tasks: vec![]
        }
    );
    let ours = shared_repo.land(A1, "b.txt", "the same\n");
    assert_eq!(
        shared_repo.rebase(),
        RebaseResult::Rebased {
            old: ours.clone(),
            new: theirs.clone(),
            tasks: vec![]
        }
    );
    assert_eq!(
        shared_repo.move_trunk(&ours, &theirs),
        TrunkMoveResult::Moved
    );
    assert_eq!(shared_repo.world.status(), "");
}

/// Q6: conflicting paths are named, and nothing is changed. The same holds when a person's edit is
/// in the way, and when the trunk has moved in the meantime.
#[test]
fn q2_a_conflict_an_edit_or_a_moved_trunk_stops_the_rebase() {
    let shared_repo = SharedRepo::new();
    let world = &shared_repo.world;
    shared_repo.push("a.txt", "theirs\n");
    let ours = shared_repo.land(A1, "b.txt", "ours\n");
    let RebaseResult::Rebased { new, .. } = shared_repo.rebase() else {
        panic!()
    };
    write(world.user().join("a.txt"), "a person's\n");
    assert_eq!(
        shared_repo.move_trunk(&ours, &new),
        TrunkMoveResult::CheckoutDirty(vec!["a.txt".into()])
    );
    git(world.user(), &["checkout", "-q", "--", "a.txt"]);
    let conflicting = shared_repo.land(A2, "a.txt", "ours\n");
    assert_eq!(
        shared_repo.move_trunk(&ours, &new),
        TrunkMoveResult::TrunkElsewhere(conflicting.clone())
    );
    assert_eq!(
        shared_repo.rebase(),
        RebaseResult::Conflict {
            paths: vec!["a.txt".into()]
        }
    );
    assert_eq!((world.tip(), world.status()), (conflicting, String::new()));
}

/// The remote is gone, never existed, or has an unrelated history.
#[test]
fn unusable_remote_is_an_error() {
    let shared_repo = SharedRepo::new();
    let refused = |name: &str| {
        shared_repo
            .world
            .git
            .fetch_upstream(&shared_repo.world.repo, name)
            .unwrap_err()
    };
    for name in ["nowhere", "../remote.git", "--upload-pack=touch x"] {
        assert!(refused(name).message.contains("no remote"), "{name}");
    }
    git(
        &shared_repo.colleague,
        &["checkout", "-q", "--orphan", "other"],
    );
    commit_all(&shared_repo.colleague, "Another beginning");
    git(
        &shared_repo.colleague,
        &["push", "-q", "--force", "origin", "other:main"],
    );
    assert_eq!(refused("origin").code, "unrelated");
    fs::remove_dir_all(&shared_repo.remote).unwrap();
    assert_eq!(refused("origin").code, "not_fetched");
}
