//! Tests that merges without a git process equal git's merges, on which Q1 depends.

use std::fs;
use std::path::{Path, PathBuf};

use crate::world::*;
use regatta_core::ids::CommitId;
use regatta_engine::ports::git::TrialMerge;

/// Pseudo-random numbers, deterministic for a seed.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn files(top: &Path) -> Vec<PathBuf> {
    let listed = git(top, &["ls-files", "--cached", "--others"]);
    listed
        .lines()
        .map(PathBuf::from)
        .filter(|path| fs::symlink_metadata(top.join(path)).is_ok())
        .collect()
}

/// Returns a text long and distinct enough for git to recognise a moved file.
fn text(name: &str) -> String {
    (0..12)
        .map(|line| format!("{name} says {line} {}\n", line * name.len()))
        .collect()
}

/// Makes one of the changes that people and agents make to files.
fn edit_randomly(top: &Path, dice: &mut Rng, side: &str, nth: usize) {
    let all_files = files(top);
    if all_files.is_empty() {
        return;
    }
    let file = top.join(&all_files[dice.roll(all_files.len())]);
    match dice.roll(9) {
        0 | 1 => {
            let lines = fs::read_to_string(&file).unwrap_or_default();
            fs::remove_file(&file).unwrap();
            write(
                &file,
                lines.replacen("says 3", &format!("{side} says 3"), 1) + side,
            );
        }
        2 => fs::remove_file(&file).unwrap(),
        3 => {
            let to = top
                .join(["a", "b", "b/c", "new"][dice.roll(4)])
                .join(format!("moved{}", dice.roll(3)));
            if !to.exists()
                && to
                    .parent()
                    .is_none_or(|path| path.is_dir() || !path.exists())
            {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::rename(&file, &to).unwrap();
            }
        }
        4 => write(
            top.join(format!("a/made{}", dice.roll(4))),
            text(&format!("made {side}")),
        ),
        5 => write(
            top.join(format!("new{}/x", dice.roll(3))),
            text("the same on both sides"),
        ),
        6 => make_executable(&file),
        7 => {
            let (from, to) = (
                top.join(["a", "b", "b/c"][dice.roll(3)]),
                top.join(format!("dir{}", dice.roll(2))),
            );
            if from.is_dir() && !to.exists() {
                fs::rename(from, to).unwrap();
            }
        }
        _ => write(&file, text(&format!("{side} wrote {nth}"))),
    }
}

#[test]
fn q1_a_merge_without_a_git_process_equals_gits_merge() {
    let world = World::new();
    let top = world.user();
    for (dir, count) in [("a", 3), ("b", 3), ("b/c", 3), ("deep/er", 2)] {
        for nth in 0..count {
            let name = format!("{dir}/f{nth}");
            write(top.join(&name), text(&name));
        }
    }
    let base = commit_all(top, "base");
    let vault = world
        .git
        .stage(&world.repo, SLOT, &base)
        .map(|_| world.vault())
        .unwrap();
    let mut dice = Rng(7);
    let (mut by_us, mut by_git, mut conflicts) = (0, 0, 0);
    for round in 0..40 {
        let mut side = |name: &str| -> CommitId {
            git(top, &["checkout", "-q", "-f", "--detach", base.as_str()]);
            git(top, &["clean", "-qfdx"]);
            for nth in 0..=dice.roll(4) {
                edit_randomly(top, &mut dice, name, nth);
            }
            commit_all(top, name)
        };
        let (ours, theirs) = (side("ours"), side("theirs"));
        for commit in [&ours, &theirs] {
            git(
                &vault,
                &["fetch", "-q", top.to_str().unwrap(), commit.as_str()],
            );
        }
        let before = world.git.started_processes();
        let merged = world
            .git
            .trial_merge(
                &world.repo,
                &ours,
                &change_of(&theirs, "land"),
                CommitStyle::Squash,
            )
            .unwrap();
        if world.git.started_processes() == before {
            by_us += 1;
        } else {
            by_git += 1;
        }
        let output = try_git(
            top,
            [
                "merge-tree",
                "--write-tree",
                "--name-only",
                ours.as_str(),
                theirs.as_str(),
            ],
        );
        let tree = String::from_utf8_lossy(&output.stdout)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let ours_tree = git(top, &["rev-parse", &format!("{ours}^{{tree}}")]);
        match merged {
            TrialMerge::Clean(commit) => {
                assert!(
                    output.status.success(),
                    "round {round}: git finds a conflict"
                );
                assert_eq!(
                    git(&vault, &["rev-parse", &format!("{commit}^{{tree}}")]),
                    tree,
                    "round {round}"
                );
            }
            TrialMerge::Empty => assert_eq!(tree, ours_tree, "round {round}"),
            TrialMerge::Conflict(_) => {
                assert!(
                    !output.status.success(),
                    "round {round}: git finds no conflict"
                );
                conflicts += 1;
            }
        }
    }
    // With fewer of each kind the test proves nothing.
    assert!(
        by_us > 8 && by_git > 8 && conflicts > 4,
        "{by_us} by us, {by_git} by git, {conflicts} conflicts"
    );
    git(&vault, &["fsck", "--strict", "--no-dangling"]);
}

/// A file that is moved to two places is a conflict, although each name was changed only once.
#[test]
fn q6_a_file_moved_to_two_places_is_a_conflict() {
    let world = World::new();
    write(world.user().join("x/one"), text("one"));
    write(world.user().join("x/two"), text("two"));
    commit_all(world.user(), "files");
    let moved = |attempt, to: &str| {
        let dir = world.prepare(attempt).path;
        fs::rename(dir.join("x/one"), dir.join(to)).unwrap();
        world.capture(attempt).commit
    };
    let (first, second) = (moved(A1, "x/here"), moved(A2, "there"));
    let old = world.tip();
    let new = world.clean_trial(&first);
    world.land(&old, &new);
    assert!(
        matches!(world.trial(&second), TrialMerge::Conflict(_)),
        "{:?}",
        world.trial(&second)
    );
}
