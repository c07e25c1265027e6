//! Tests that only dropped work is deleted.

use std::time::Duration;

use regatta_core::ids::AttemptId;
use regatta_engine::ports::git::DroppedProof;
use regatta_engine::ports::git::parts::*;

use crate::world::{A1, A2, World, commit_all, git, try_git, write};

/// Returns whether the vault has a file with this content.
fn vault_contains(world: &World, text: &str) -> bool {
    write(world.home.path().join("wanted"), text);
    let id = git(world.home.path(), &["hash-object", "wanted"]);
    try_git(&world.vault(), ["cat-file", "-e", &id])
        .status
        .success()
}

/// Q3: dropped work is deleted with all its captures. Landed work, other attempts' work and commits
/// that a rewritten trunk has dropped stay, however often garbage is collected.
#[test]
fn q3_only_dropped_work_is_deleted() {
    let world = World::new();
    let old = world.tip();
    // This landing is later removed from the trunk by a person.
    let landed = world.change_ready_to_land(AttemptId(3), &[("c.txt", "landed\n")]);
    world.land(&old, &landed);
    world.remove_workspace(AttemptId(3));
    git(world.user(), &["reset", "-q", "--hard", old.as_str()]);
    write(world.user().join("d.txt"), "anew\n");
    commit_all(world.user(), "Another way");
    for (attempt, texts) in [
        (A1, ["first draft\n", "dropped\n"]),
        (A2, ["other draft\n", "wanted\n"]),
    ] {
        let workspace = world.prepare(attempt);
        for text in texts {
            write(workspace.path.join("b.txt"), text);
            world.capture(attempt);
        }
    }
    assert_eq!(
        world.git.kept_attempts(&world.repo).unwrap(),
        [A1, A2, AttemptId(3)]
    );
    let forget = || {
        world
            .git
            .forget_dropped(&DroppedProof::for_tests(A1), &world.repo)
    };
    assert_eq!(
        forget().unwrap_err().code,
        "busy",
        "the attempt still has its workspace"
    );
    world.remove_workspace(A1);
    world.remove_workspace(A2);
    let ever = [landed.clone()];
    let collect = |unused| {
        world
            .git
            .collect_garbage(&world.repo, &ever, Duration::from_secs(unused))
            .unwrap()
    };
    collect(0);
    assert!(
        ["first draft\n", "dropped\n"]
            .iter()
            .all(|commit| vault_contains(&world, commit)),
        "the work is not dropped yet"
    );
    forget().unwrap();
    forget().unwrap();
    assert_eq!(
        world.git.kept_attempts(&world.repo).unwrap(),
        [A2, AttemptId(3)]
    );
    collect(3_600);
    assert!(
        vault_contains(&world, "dropped\n"),
        "recently written objects may be in use"
    );
    collect(0);
    assert!(
        ["first draft\n", "dropped\n"]
            .iter()
            .all(|commit| !vault_contains(&world, commit)),
        "the dropped work is deleted"
    );
    assert!(
        ["other draft\n", "wanted\n", "landed\n", "one\n"]
            .iter()
            .all(|commit| vault_contains(&world, commit)),
        "other work is kept"
    );
    assert!(
        try_git(&world.vault(), ["cat-file", "-e", landed.as_str()])
            .status
            .success(),
        "a commit that was on the trunk is kept"
    );
    assert_eq!(
        git(
            &world.vault(),
            &["fsck", "--connectivity-only", "--no-dangling"]
        ),
        ""
    );
}
