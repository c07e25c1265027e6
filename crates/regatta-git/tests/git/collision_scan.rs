//! Tests of detecting collisions between attempts.

use std::fs;
use std::path::Path;

use regatta_core::ids::AttemptId;
use regatta_engine::ports::git::{TrialMerge, WorkspaceCollision};

use crate::world::*;

const ATTEMPTS: u64 = 4;

fn collisions(world: &World) -> Vec<WorkspaceCollision> {
    let attempts: Vec<AttemptId> = (1..=ATTEMPTS).map(AttemptId).collect();
    world
        .git
        .collisions(&world.repo, &attempts, &world.tip())
        .unwrap()
}

/// Pseudo-random numbers, deterministic for a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Changes one of twenty lines of one of three files, or removes the file, or replaces it by a
/// directory.
fn edit_randomly(dir: &Path, rng: &mut Rng, author: u64) {
    let file = dir.join(format!("f{}.txt", rng.below(3)));
    match rng.below(10) {
        0 => drop(fs::remove_file(&file)),
        1 => write(
            dir.join(format!("new{}.txt", rng.below(3))),
            format!("by {author}\n"),
        ),
        _ if file.exists() => {
            let line = rng.below(20) as usize;
            let text = read(&file);
            let lines = text.lines().enumerate().map(|(index, text)| {
                if index == line {
                    format!("{author}'s")
                } else {
                    text.into()
                }
            });
            write(&file, lines.collect::<Vec<String>>().join("\n") + "\n");
        }
        _ => {}
    }
}

#[test]
fn collisions_of_thirty_random_scenarios_equal_the_conflicts_of_merging() {
    let (mut warned, mut clean) = (0, 0);
    for seed in 0..30 {
        let world = World::new();
        let mut dice = Rng(seed);
        for file in 0..3 {
            let lines: String = (0..20).map(|number| format!("line {number}\n")).collect();
            write(world.user().join(format!("f{file}.txt")), lines);
        }
        commit_all(world.user(), "files");
        for attempt in 1..=ATTEMPTS {
            let dir = world.prepare(AttemptId(attempt)).path;
            (0..=dice.below(2)).for_each(|_| edit_randomly(&dir, &mut dice, attempt));
        }
        if dice.below(2) == 0 {
            edit_randomly(world.user(), &mut dice, 0);
            commit_all(world.user(), "the trunk moves");
        }
        let collisions_found = collisions(&world);
        assert_eq!(collisions_found, collisions(&world), "seed {seed}");
        // The expected collisions are the conflicts of merging the captures onto each other.
        let commits: Vec<_> = (1..=ATTEMPTS)
            .map(|number| (AttemptId(number), world.capture(AttemptId(number))))
            .collect();
        let tip = world.tip();
        for (nth, (attempt, capture)) in commits.iter().enumerate() {
            let conflicts = |tip: &_, commit: &_| match world
                .git
                .trial_merge(
                    &world.repo,
                    tip,
                    &change_of(commit, "x"),
                    CommitStyle::Squash,
                )
                .unwrap()
            {
                TrialMerge::Conflict(paths) => paths,
                _ => vec![],
            };
            let mut check_pair = |other_attempt: Option<AttemptId>, paths: Vec<String>| {
                let scanned_paths = collisions_found
                    .iter()
                    .find(|collision| {
                        collision.attempt == *attempt && collision.other_attempt == other_attempt
                    })
                    .map(|collision| collision.paths.clone());
                assert_eq!(
                    scanned_paths.unwrap_or_default(),
                    paths,
                    "seed {seed}: {attempt} and {other_attempt:?}"
                );
                if paths.is_empty() {
                    clean += 1
                } else {
                    warned += 1
                }
            };
            check_pair(None, conflicts(&tip, &capture.commit));
            for (other_attempt, other_capture) in &commits[nth + 1..] {
                check_pair(
                    Some(*other_attempt),
                    conflicts(&capture.commit, &other_capture.commit),
                );
            }
        }
    }
    assert!(
        warned > 20 && clean > 20,
        "{warned} collisions, {clean} clean pairs: the scenarios are too one-sided"
    );
}

#[test]
fn collisions_follow_the_files_and_leave_no_objects_behind() {
    let world = World::new();
    let (first_dir, second_dir) = (world.prepare(A1).path, world.prepare(A2).path);
    assert_eq!(collisions(&world), []);
    write(first_dir.join("a.txt"), "one's\n");
    write(second_dir.join("b.txt"), "two's\n");
    assert_eq!(collisions(&world), []);
    write(second_dir.join("a.txt"), "two's\n");
    let hot = WorkspaceCollision {
        attempt: A1,
        other_attempt: Some(A2),
        paths: vec!["a.txt".into()],
    };
    assert_eq!(collisions(&world), std::slice::from_ref(&hot));
    assert_eq!(collisions(&world), std::slice::from_ref(&hot));
    // Ignored files do not count, however many there are.
    write(first_dir.join("target/x/out.txt"), "one's\n");
    write(second_dir.join("target/x/out.txt"), "two's\n");
    assert_eq!(collisions(&world), std::slice::from_ref(&hot));
    write(world.user().join("a.txt"), "trunk's\n");
    commit_all(world.user(), "the trunk moves");
    assert_eq!(
        collisions(&world)
            .iter()
            .filter(|collision| collision.other_attempt.is_none())
            .count(),
        2
    );
    write(second_dir.join("a.txt"), "one\n");
    assert_eq!(
        collisions(&world),
        [WorkspaceCollision {
            attempt: A1,
            other_attempt: None,
            paths: vec!["a.txt".into()]
        }]
    );
    write(first_dir.join("a.txt"), "trunk's\n");
    assert_eq!(collisions(&world), []);

    let refs = git(
        &world.vault(),
        &["for-each-ref", "--format=%(refname)", "refs/regatta/keep"],
    );
    assert_eq!(refs, "");
    assert_eq!(
        git(
            &world.vault(),
            &["fsck", "--strict", "--unreachable", "--no-progress"]
        ),
        ""
    );
}

#[test]
fn detecting_collisions_without_new_changes_starts_no_process() {
    let world = World::new();
    for attempt in 1..=ATTEMPTS {
        write(
            world.prepare(AttemptId(attempt)).path.join("a.txt"),
            format!("{attempt}\n"),
        );
    }
    let collisions_found = collisions(&world);
    assert_eq!(collisions_found.len(), 6);
    let before = world.git.started_processes();
    assert_eq!(collisions(&world), collisions_found);
    assert_eq!(world.git.started_processes(), before);
    // An edit of the same size at the same moment is detected.
    write(world.data().join("workspaces/shop/A1/a.txt"), "2\n");
    assert_eq!(collisions(&world).len(), 5);
}
