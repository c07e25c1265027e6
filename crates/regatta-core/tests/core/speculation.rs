//! Speculation: several prefixes of the queue are validated at the same time. A simulation runs
//! whole queues.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::command::{Command, Report};
use regatta_core::display;
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Event;
use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::{CarriedLanding, LandingState, MoveOutcome, TrialOutcome, batches};
use regatta_core::schedule;
use regatta_core::task::TaskStatus;

use crate::world::{SECOND_MS, World, commit, shop};

/// Returns a world with this many submitted landings in a held queue.
pub(crate) fn held_queue(count: usize) -> (World, Vec<LandingId>) {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.ask(
        "ann",
        Command::HoldQueue {
            project: shop(),
            reason: "until all are there".into(),
        },
    );
    let landings = (0..count)
        .map(|nth| {
            world.add_task(&format!("part {nth}"), &[&format!("src/{nth}.rs")]);
            let grant = world.take_task("ada");
            world.submit(&grant)
        })
        .collect();
    (world, landings)
}

pub(crate) fn release_queue(world: &mut World) {
    world.ask("ann", Command::ReleaseQueue { project: shop() });
}

pub(crate) fn report_passed(world: &mut World, landing: LandingId, old: u64, new: u64) {
    let train = world.board.landings[&landing].trial_landings();
    let first = new + 1 - train.len() as u64;
    let carries = train
        .iter()
        .zip(first..)
        .map(|(id, at)| CarriedLanding::new(*id, commit(at)))
        .collect();
    world.report_trial(
        landing,
        TrialOutcome::Passed {
            old: commit(old),
            new: commit(new),
            carries,
        },
    );
}

pub(crate) fn report_failed(world: &mut World, landing: LandingId) {
    world.report_trial(
        landing,
        TrialOutcome::Failed {
            reason: "make test".into(),
            output: None,
            settled: vec![],
        },
    );
}

pub(crate) fn running_trials(world: &World) -> Vec<Vec<u64>> {
    let trains = world
        .board
        .landings
        .values()
        .filter(|landing| matches!(landing.state, LandingState::Trying { .. }));
    let mut trains: Vec<Vec<u64>> = trains
        .map(|landing| landing.trial_landings().iter().map(|id| id.0).collect())
        .collect();
    trains.sort();
    trains
}

pub(crate) fn landed_commits(world: &World) -> Vec<(u64, CommitId)> {
    let landed = |event: &regatta_core::event::Recorded| match &event.event {
        Event::LandingLanded(landing_landed) => {
            Some((landing_landed.landing().0, landing_landed.commit().clone()))
        }
        _ => None,
    };
    world.log.iter().filter_map(landed).collect()
}

#[test]
fn batches_are_validated_together_and_the_longest_green_prefix_lands() {
    let (mut world, ids) = held_queue(6);
    world.speculate(2, Some(2));
    assert!(running_trials(&world).is_empty(), "the queue is held");
    release_queue(&mut world);
    assert_eq!(running_trials(&world), [vec![1, 2], vec![1, 2, 3, 4]]);
    // The longer trial ends first. It implies that the shorter one passed too, so it waits for that
    // (Q14).
    report_passed(&mut world, ids[3], 10, 14);
    assert_eq!(running_trials(&world), [vec![1, 2], vec![1, 2, 3, 4, 5, 6]]);
    assert_eq!(world.landing_state(ids[3]), "validated");
    report_passed(&mut world, ids[1], 10, 12);
    world.report_move(ids[3], MoveOutcome::Moved);
    assert_eq!(
        landed_commits(&world),
        [
            (1, commit(11)),
            (2, commit(12)),
            (3, commit(13)),
            (4, commit(14))
        ]
    );
    // The other trial builds on the landed commits now. Its move starts from the current trunk.
    assert_eq!(running_trials(&world), [vec![5, 6]]);
    world.report_trial(
        ids[5],
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(16),
            carries: (0..6)
                .map(|nth| CarriedLanding::new(ids[nth], commit(11 + nth as u64)))
                .collect(),
        },
    );
    let LandingState::Moving { old, new, .. } = world.board.landings[&ids[5]].state.clone() else {
        panic!()
    };
    assert_eq!(
        (old, new),
        (commit(14), commit(16)),
        "Q2: the move is not from the current tip to the validated commit"
    );
    world.report_move(ids[5], MoveOutcome::Moved);
    assert_eq!(
        landed_commits(&world)[4..],
        [(5, commit(15)), (6, commit(16))]
    );
}

/// Q9: a failed batch is split until the failing landing is found. The landings before it land at
/// once.
#[test]
fn q9_a_failed_batch_is_split_until_the_failing_landing_is_found() {
    let (mut world, ids) = held_queue(6);
    world.speculate(2, Some(6));
    release_queue(&mut world);
    report_failed(&mut world, ids[5]);
    assert_eq!(
        running_trials(&world),
        [vec![1, 2], vec![1, 2, 3, 4]],
        "two slots split the batch in three parts"
    );
    report_passed(&mut world, ids[1], 10, 12);
    world.report_move(ids[1], MoveOutcome::Moved);
    report_failed(&mut world, ids[3]);
    assert_eq!(landed_commits(&world).len(), 2);
    assert_eq!(running_trials(&world), [vec![3]]);
    report_failed(&mut world, ids[2]);
    assert_eq!(
        running_trials(&world),
        [vec![4, 5, 6]],
        "the others go first, because the failure may be a flake"
    );
    report_passed(&mut world, ids[5], 12, 15);
    world.report_move(ids[5], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world).len(), 5);
    assert_eq!(
        running_trials(&world),
        [vec![3]],
        "the failing landing is tried once more"
    );
    report_failed(&mut world, ids[2]);
    assert_eq!(world.landing_state(ids[2]), "gone");
}

/// Returns the queue as it is displayed: the state of each batch, its members, and the landing that
/// it builds on.
fn draw_queue(world: &World) -> Vec<String> {
    let line = |queue_batch: batches::QueueBatch| {
        let cars: Vec<String> = queue_batch
            .landings
            .iter()
            .map(|id| id.0.to_string())
            .collect();
        let on = queue_batch
            .stands_on
            .map_or(String::new(), |id| format!(" on {}", id.0));
        let failed = queue_batch
            .failed
            .map_or(String::new(), |failed| format!(": {failed}"));
        format!("{:?} {}{on}{failed}", queue_batch.progress, cars.join(" "))
    };
    batches::batches_of(&world.board, &shop(), world.now)
        .into_iter()
        .map(line)
        .collect()
}

/// Each landing of a batch is shown in the state of its batch. A failed batch is shown in parts.
#[test]
fn each_landing_is_shown_in_the_state_of_its_batch() {
    let (mut world, ids) = held_queue(6);
    assert_eq!(
        draw_queue(&world),
        [
            "Queued 1", "Queued 2", "Queued 3", "Queued 4", "Queued 5", "Queued 6"
        ]
    );
    world.speculate(2, Some(2));
    release_queue(&mut world);
    assert_eq!(
        draw_queue(&world),
        ["Testing 1 2", "Testing 3 4 on 2", "Queued 5", "Queued 6"]
    );
    report_passed(&mut world, ids[3], 10, 14);
    assert_eq!(
        draw_queue(&world),
        [
            "Testing 1 2",
            "Testing 3 on 2",
            "Passed 4 on 3",
            "Testing 5 6 on 4"
        ]
    );
    report_passed(&mut world, ids[1], 10, 12);
    assert_eq!(
        draw_queue(&world),
        ["Moving 1 2 3 4", "Testing 5 6 on 4"],
        "the longer batch carries the shorter one"
    );
    world.report_move(ids[3], MoveOutcome::Moved);
    assert_eq!(draw_queue(&world), ["Testing 5 6"]);

    let (mut world, ids) = held_queue(7);
    world.speculate(2, Some(6));
    release_queue(&mut world);
    assert_eq!(
        draw_queue(&world),
        ["Testing 1 2 3 4 5 6", "Testing 7 on 6"]
    );
    report_failed(&mut world, ids[5]);
    assert_eq!(
        draw_queue(&world),
        [
            "Testing 1 2 3",
            "Searching 4 5 6: make test",
            "Testing 7 on 6"
        ],
        "the failed batch is shown in parts at its place"
    );
    report_passed(&mut world, ids[2], 10, 13);
    assert_eq!(draw_queue(&world)[0], "Moving 1 2 3");
}

/// Landings that are held, wait for another one, or are in a void trial are shown as such.
#[test]
fn a_landing_in_no_batch_is_shown_with_the_reason() {
    // The landing passed while the trunk is claimed. Then the checkout is dirty.
    let (mut world, ids) = held_queue(2);
    world.speculate(1, Some(1));
    release_queue(&mut world);
    let hand = world.hold_claim("ada", &["workspace://shop/default"]);
    report_passed(&mut world, ids[0], 10, 11);
    assert_eq!(draw_queue(&world)[0], "Passed 1");
    world.release("ada", hand);
    assert_eq!(draw_queue(&world)[0], "Moving 1");
    world.report_move(
        ids[0],
        MoveOutcome::Dirty {
            paths: vec!["src/0.rs".into()],
        },
    );
    assert_eq!(draw_queue(&world), ["Queued 2", "Held 1"]);

    // A landing that conflicts with another waits until the other is gone, while the batch goes on
    // without it.
    let (mut world, ids) = held_queue(4);
    world.speculate(1, Some(4));
    release_queue(&mut world);
    world.report_trial(
        ids[3],
        TrialOutcome::Conflict {
            landing: ids[2],
            paths: vec!["src/2.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(draw_queue(&world), ["Testing 1 2 4", "Deferred 3"]);

    // Landings in a trial with withdrawn work are shown as queued.
    let (mut world, ids) = held_queue(4);
    world.speculate(2, Some(2));
    release_queue(&mut world);
    let task = world.board.landings[&ids[0]].task;
    world.ask(
        "ann",
        Command::CancelTask {
            task,
            reason: "changed my mind".into(),
        },
    );
    assert_eq!(draw_queue(&world), ["Queued 2", "Queued 3", "Queued 4"]);

    // A failed batch is shown in parts at the shortest trial that failed. The failing landing lets
    // the others go first.
    let (mut world, ids) = held_queue(6);
    world.speculate(2, Some(6));
    release_queue(&mut world);
    report_failed(&mut world, ids[5]);
    report_passed(&mut world, ids[1], 10, 12);
    world.report_move(ids[1], MoveOutcome::Moved);
    report_failed(&mut world, ids[3]);
    assert_eq!(
        draw_queue(&world),
        [
            "Testing 3",
            "Searching 4: make test",
            "Searching 5 6: make test"
        ]
    );
    report_failed(&mut world, ids[2]);
    assert_eq!(draw_queue(&world), ["Testing 4 5 6", "Deferred 3"]);
}

/// Q9: a flaky failure costs a retry and no landing.
#[test]
fn q9_a_flaky_failure_costs_a_retry_and_no_landing() {
    let (mut world, ids) = held_queue(2);
    world.speculate(1, Some(2));
    release_queue(&mut world);
    report_failed(&mut world, ids[1]);
    assert_eq!(running_trials(&world), [vec![1]]);
    report_passed(&mut world, ids[0], 10, 11);
    world.report_move(ids[0], MoveOutcome::Moved);
    assert_eq!(
        running_trials(&world),
        [vec![2]],
        "the same tree is validated again"
    );
    report_passed(&mut world, ids[1], 11, 12);
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world).len(), 2);
}

/// Q1: a trial that contains withdrawn work lands nothing, even if it passes.
#[test]
fn q1_a_trial_with_withdrawn_work_is_void() {
    let (mut world, ids) = held_queue(4);
    world.speculate(2, Some(2));
    release_queue(&mut world);
    let task = world.board.landings[&ids[0]].task;
    world.ask(
        "ann",
        Command::CancelTask {
            task,
            reason: "changed my mind".into(),
        },
    );
    report_passed(&mut world, ids[3], 10, 14);
    assert_eq!(world.landing_state(ids[3]), "queued");
    assert!(landed_commits(&world).is_empty());
    assert_eq!(
        running_trials(&world),
        [vec![1, 2], vec![2, 3]],
        "the old trial still takes its slot"
    );
    let late = world.board.landings[&ids[1]].state.clone();
    assert!(
        matches!(late, LandingState::Trying { void: true, .. }),
        "{late:?}"
    );
    report_passed(&mut world, ids[1], 10, 12);
    assert!(landed_commits(&world).is_empty());
    report_passed(&mut world, ids[2], 10, 12);
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world), [(2, commit(11)), (3, commit(12))]);
}

/// Q9: a landing that conflicts with an earlier one in the queue waits until that one is gone.
#[test]
fn q9_a_landing_that_conflicts_with_an_earlier_one_waits_for_it() {
    let (mut world, ids) = held_queue(4);
    world.speculate(1, Some(4));
    release_queue(&mut world);
    world.report_trial(
        ids[3],
        TrialOutcome::Conflict {
            landing: ids[2],
            paths: vec!["src/2.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(running_trials(&world), [vec![1, 2, 4]]);
    // The queue and the reasons of the task give the same explanation.
    let landing = &world.board.landings[&ids[2]];
    let queue = batches::batches_of(&world.board, &shop(), world.now);
    let batch = queue
        .iter()
        .find(|batch| batch.landings.contains(&ids[2]))
        .expect("the landing is in the queue");
    let detail = display::landing_detail(&world.board, landing, batch, None);
    assert_eq!(detail, "it conflicts with one of T1, T2, which land first");
    let task = world.task(landing.task);
    let reasons = schedule::wait_reasons(&world.board, task, world.now);
    assert_eq!(reasons[0].text, detail);
    report_passed(&mut world, ids[3], 10, 13);
    world.report_move(ids[3], MoveOutcome::Moved);
    assert_eq!(
        running_trials(&world),
        [vec![3]],
        "the landing is now tried on the trunk itself"
    );
    world.report_trial(
        ids[2],
        TrialOutcome::Conflict {
            landing: ids[2],
            paths: vec!["src/2.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(world.landing_state(ids[2]), "gone");
}

/// Q9: a conflicting landing waits only for the earlier landings that change the conflicting files.
#[test]
fn q9_a_conflicting_landing_waits_only_for_landings_that_change_the_same_files() {
    let (mut world, ids) = held_queue(4);
    world.speculate(1, Some(4));
    release_queue(&mut world);
    world.report_trial(
        ids[3],
        TrialOutcome::Conflict {
            landing: ids[2],
            paths: vec!["src/0.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(world.board.landings[&ids[2]].deferred_behind, [ids[0]]);
}

/// Q2: when somebody else moved the trunk, every result so far is dropped.
#[test]
fn q2_a_trunk_that_moved_elsewhere_makes_every_trial_void() {
    let (mut world, ids) = held_queue(4);
    world.speculate(2, Some(2));
    release_queue(&mut world);
    report_passed(&mut world, ids[1], 10, 12);
    world.report_move(ids[1], MoveOutcome::TrunkMoved);
    assert_eq!(running_trials(&world), [vec![1, 2], vec![1, 2, 3, 4]]);
    report_passed(&mut world, ids[3], 10, 14);
    assert_eq!(
        world.landing_state(ids[3]),
        "trying",
        "a trial that was merged onto the old tip counts"
    );
    report_passed(&mut world, ids[3], 20, 24);
    report_passed(&mut world, ids[1], 20, 22);
    world.report_move(ids[3], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world).len(), 4);
}

/// Q2: the same when a running trial finds the trunk moved. The other trials are void at once.
#[test]
fn q2_a_trial_that_finds_the_trunk_moved_makes_every_other_trial_void() {
    let (mut world, ids) = held_queue(4);
    world.speculate(2, Some(2));
    release_queue(&mut world);
    world.report_trial(ids[1], TrialOutcome::TrunkMoved);
    assert_eq!(
        running_trials(&world),
        [vec![1, 2], vec![1, 2, 3, 4]],
        "the first trial did not start again at once"
    );
    report_passed(&mut world, ids[3], 10, 14);
    assert_eq!(
        world.landing_state(ids[3]),
        "trying",
        "a trial that was merged onto the old tip counts"
    );
    report_passed(&mut world, ids[3], 20, 24);
    report_passed(&mut world, ids[1], 20, 22);
    world.report_move(ids[3], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world).len(), 4);
}

/// D4: the whole state of a search is in the rows, so a restart continues it.
#[test]
fn d4_a_search_survives_a_restart() {
    let (mut world, ids) = held_queue(4);
    world.speculate(1, Some(4));
    release_queue(&mut world);
    report_failed(&mut world, ids[3]);
    assert_eq!(running_trials(&world), [vec![1, 2]]);
    world.restart();
    report_passed(&mut world, ids[1], 10, 12);
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(running_trials(&world), [vec![3]]);
}

// The simulation.

/// A deterministic pseudo-random number generator.
struct QueueRng(u64);

impl QueueRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The landings of a simulated queue.
#[derive(Clone, Default)]
struct QueueMix {
    count: usize,
    /// These fail in every tree.
    failing: BTreeSet<u64>,
    /// Each of these pairs fails only together.
    failing_pairs: Vec<(u64, u64)>,
    /// The first of each pair fails in every tree without the second.
    dependencies: Vec<(u64, u64)>,
    /// Each of these pairs conflicts.
    conflicts: Vec<(u64, u64)>,
    /// One in this many trees fails once although it is good. 0 means never.
    flaky_one_in: u64,
    /// Before one in this many moves somebody else moves the trunk. 0 means never.
    outside_move_one_in: u64,
}

/// How a simulated queue validates.
#[derive(Clone, Copy, Debug)]
enum SimulatedPolicy {
    Serial,
    Every { slots: u32 },
    Tips { slots: u32, batch: Option<u32> },
}

/// The trunk, the trees and the validator of the simulation.
struct QueueSimulation {
    world: World,
    mix: QueueMix,
    /// Whether every commit must be validated, not only the tips of moves.
    verifies_every: bool,
    rng: QueueRng,
    /// The trunk: landings, and commits of others with numbers above 1000.
    trunk: Vec<u64>,
    commits: BTreeMap<Vec<u64>, u64>,
    passed_trees: BTreeSet<u64>,
    /// Landings whose trial failed without a fault. Each does so only once, because a second
    /// failure would count.
    flaky_landings: BTreeSet<LandingId>,
    /// Running trials: when they end, and their result.
    running_trials: Vec<(u64, EffectKey, LandingId, TrialOutcome)>,
    clock_ms: u64,
    validations: u64,
    flakes: u64,
    outside_commits: u64,
}

impl QueueSimulation {
    fn new(mix: QueueMix, seed: u64, pace: SimulatedPolicy) -> QueueSimulation {
        let (mut world, _) = held_queue(mix.count);
        match pace {
            SimulatedPolicy::Serial => {}
            SimulatedPolicy::Every { slots } => world.verify_every_commit(slots),
            SimulatedPolicy::Tips { slots, batch } => world.speculate(slots, batch),
        }
        release_queue(&mut world);
        QueueSimulation {
            world,
            mix,
            verifies_every: !matches!(pace, SimulatedPolicy::Tips { .. }),
            rng: QueueRng(seed * 2_654_435_769 + 1),
            trunk: vec![],
            commits: BTreeMap::new(),
            passed_trees: BTreeSet::new(),
            flaky_landings: BTreeSet::new(),
            running_trials: vec![],
            clock_ms: 0,
            validations: 0,
            flakes: 0,
            outside_commits: 0,
        }
    }

    fn commit_of(&mut self, tree: &[u64]) -> CommitId {
        let fresh = self.commits.len() as u64 + 1;
        commit(*self.commits.entry(tree.to_vec()).or_insert(fresh))
    }

    fn tree_of(&self, id: &CommitId) -> Vec<u64> {
        let is_commit = |pair: &(&Vec<u64>, &u64)| commit(*pair.1) == *id;
        self.commits
            .iter()
            .find(is_commit)
            .map(|commit| commit.0.clone())
            .expect("a commit of the simulation")
    }

    fn is_red(&self, tree: &[u64]) -> bool {
        tree.iter().any(|tree| self.mix.failing.contains(tree))
            || self
                .mix
                .failing_pairs
                .iter()
                .any(|(a, b)| tree.contains(a) && tree.contains(b))
            || self
                .mix
                .dependencies
                .iter()
                .any(|(a, b)| tree.contains(a) && !tree.contains(b))
    }

    /// Merges a train onto the trunk and validates it. The result is reported when the validation
    /// time is over.
    fn begin_trial(&mut self, key: EffectKey, landing: LandingId) {
        let Some(row) = self.world.board.landings.get(&landing) else {
            self.world.outbox.remove(&key);
            return;
        };
        let (train, old) = (row.trial_landings(), self.trunk.clone());
        let old = self.commit_of(&old);
        let mut tree = self.trunk.clone();
        let mut carries = Vec::new();
        for member in train {
            let clash = |pair: &(u64, u64)| {
                pair.1 == member.0 && tree.contains(&pair.0)
                    || pair.0 == member.0 && tree.contains(&pair.1)
            };
            if !tree.contains(&member.0) {
                if self.mix.conflicts.iter().any(clash) {
                    let found = TrialOutcome::Conflict {
                        landing: member,
                        paths: vec!["src/x.rs".into()],
                        kinds: vec![],
                    };
                    return self
                        .running_trials
                        .push((self.clock_ms, key, landing, found));
                }
                tree.push(member.0);
            }
            let commit = self.commit_of(&tree);
            carries.push(CarriedLanding::new(member, commit));
        }
        self.validations += 1;
        let new = self.commit_of(&tree);
        let flake = self.mix.flaky_one_in > 0
            && self.rng.roll(self.mix.flaky_one_in) == 0
            && self.flaky_landings.insert(landing);
        let found = if self.is_red(&tree) || flake {
            self.flakes += u64::from(flake);
            TrialOutcome::Failed {
                reason: "make test".into(),
                output: None,
                settled: vec![],
            }
        } else {
            self.passed_trees.insert(self.commits[&tree]);
            TrialOutcome::Passed { old, new, carries }
        };
        // A validation takes 90 to 110 units of time.
        let takes = 90 + self.rng.roll(21);
        self.running_trials
            .push((self.clock_ms + takes, key, landing, found));
    }

    fn move_trunk(&mut self, landing: LandingId, fence: u64) {
        if self.mix.outside_move_one_in > 0 && self.rng.roll(self.mix.outside_move_one_in) == 0 {
            self.outside_commits += 1;
            self.trunk.push(1_000 + self.outside_commits);
        }
        let LandingState::Moving { old, new, .. } =
            self.world.board.landings[&landing].state.clone()
        else {
            return;
        };
        let trunk = self.trunk.clone();
        let found = if self.commit_of(&trunk) == old {
            let tree = self.tree_of(&new);
            assert!(
                tree.starts_with(&self.trunk),
                "Q2: {tree:?} does not build on {:?}",
                self.trunk
            );
            let shortest = if self.verifies_every {
                self.trunk.len() + 1
            } else {
                tree.len()
            };
            for length in shortest..=tree.len() {
                let commit = &tree[..length];
                let validated = self
                    .commits
                    .get(commit)
                    .is_some_and(|commit| self.passed_trees.contains(commit));
                assert!(validated, "Q1: {commit:?} was never validated");
                assert!(!self.is_red(commit), "Q1: a red tree landed: {commit:?}");
            }
            self.trunk = tree;
            MoveOutcome::Moved
        } else {
            MoveOutcome::TrunkMoved
        };
        self.world.report(Report::TrunkMove {
            landing,
            fence,
            outcome: found,
        });
    }

    /// Performs effects until the queue has ended.
    fn run(&mut self) {
        self.run_until(|_| false);
    }

    fn run_until(&mut self, is_done: impl Fn(&QueueSimulation) -> bool) {
        for _ in 0..20_000 {
            if is_done(self) {
                return;
            }
            let owed: Vec<_> = self
                .world
                .outbox
                .iter()
                .map(|(key, effect)| (*key, effect.clone()))
                .collect();
            for (key, effect) in owed {
                match effect {
                    Effect::TryLanding { landing }
                        if self
                            .running_trials
                            .iter()
                            .all(|running_trial| running_trial.1 != key) =>
                    {
                        self.begin_trial(key, landing);
                    }
                    Effect::TryLanding { .. } => {}
                    Effect::MoveTrunk { landing, fence } => {
                        self.world.outbox.remove(&key);
                        self.move_trunk(landing, fence);
                    }
                    _ => _ = self.world.outbox.remove(&key),
                }
            }
            let next = self
                .running_trials
                .iter()
                .enumerate()
                .min_by_key(|running_trial| running_trial.1.0)
                .map(|running_trial| running_trial.0);
            let Some((end, key, landing, found)) =
                next.map(|index| self.running_trials.remove(index))
            else {
                if !self.world.outbox.is_empty() {
                    continue;
                }
                if self
                    .world
                    .board
                    .landings
                    .values()
                    .any(|landing| landing.retry_fleet_ms.is_some())
                {
                    self.world.advance(SECOND_MS);
                    continue;
                }
                let open: Vec<_> = self.world.board.landings.values().collect();
                assert!(
                    open.is_empty(),
                    "Q8: the queue has stopped with open landings: {open:#?}"
                );
                return;
            };
            self.clock_ms = self.clock_ms.max(end);
            self.world.outbox.remove(&key);
            // If the landing was withdrawn or overtaken, the report is refused or ignored.
            let _late = self.world.try_report(Report::Trial {
                landing,
                outcome: found,
            });
        }
        let rows = self.world.board.landings.values();
        let rows: Vec<_> = rows
            .map(|landing| {
                (
                    landing.id,
                    &landing.state,
                    &landing.failed_trial,
                    landing.faults,
                    &landing.deferred_behind,
                    landing.tries,
                )
            })
            .collect();
        panic!(
            "Q8: the queue does not end: {rows:#?} owed {:?} running {:?}",
            self.world.outbox, self.running_trials
        );
    }

    /// Checks that everything that could land has landed once, and nothing else.
    fn check(&self) {
        let mine: Vec<u64> = self
            .trunk
            .iter()
            .copied()
            .filter(|trunk| *trunk < 1_000)
            .collect();
        let once: BTreeSet<u64> = mine.iter().copied().collect();
        assert_eq!(
            once.len(),
            mine.len(),
            "Q7: a landing landed twice: {:?}",
            self.trunk
        );
        for id in 1..=self.mix.count as u64 {
            let task = self.world.stored_task(regatta_core::ids::TaskId(id));
            let here = once.contains(&id);
            assert_eq!(
                task.status == TaskStatus::Completed,
                here,
                "Q7: {id} is {} and the trunk is {mine:?}",
                task.status
            );
            let other_of = |pairs: &[(u64, u64)]| {
                pairs
                    .iter()
                    .filter(|pair| pair.0 == id || pair.1 == id)
                    .any(|(a, b)| once.contains(a) || once.contains(b))
            };
            let needs = self
                .mix
                .dependencies
                .iter()
                .any(|dependency| dependency.0 == id);
            let excused = needs
                || self.mix.failing.contains(&id)
                || other_of(&self.mix.failing_pairs)
                || other_of(&self.mix.conflicts);
            assert!(
                here || excused,
                "{id} is good, but is {} ({:?}): {mine:?}",
                task.status,
                task.reason
            );
        }
    }
}

fn random_mix(dice: &mut QueueRng, count: usize) -> QueueMix {
    let pick = |dice: &mut QueueRng| dice.roll(count as u64) + 1;
    let pairs = |dice: &mut QueueRng| {
        let (a, b) = (pick(dice), pick(dice));
        (a.min(b), a.max(b))
    };
    let bad = (0..dice.roll(4)).map(|_| pick(dice)).collect();
    let some = |dice: &mut QueueRng| {
        (0..dice.roll(3))
            .map(|_| pairs(dice))
            .filter(|pair| pair.0 != pair.1)
            .collect()
    };
    QueueMix {
        count,
        failing: bad,
        failing_pairs: some(dice),
        dependencies: some(dice),
        conflicts: some(dice),
        flaky_one_in: 12,
        outside_move_one_in: 9,
    }
}

/// Q1, Q7, Q8, Q9: random queues with failing landings, pairs that fail only together, conflicts,
/// flaky failures and moves of the trunk by others. Every good landing lands once, no failing tree
/// lands, and the number of validations is limited.
#[test]
fn q1_q7_q8_q9_random_queues_land_every_good_landing_once() {
    for seed in 1..=60 {
        let mut dice = QueueRng(seed * 7_919);
        let count = 4 + dice.roll(16) as usize;
        let mix = random_mix(&mut dice, count);
        let slots = 1 + dice.roll(4) as u32;
        let batch = [None, Some(1), Some(3), Some(8)][dice.roll(4) as usize];
        for pace in [
            SimulatedPolicy::Serial,
            SimulatedPolicy::Every { slots },
            SimulatedPolicy::Tips { slots, batch },
        ] {
            let mut sim = QueueSimulation::new(mix.clone(), seed, pace);
            sim.run();
            sim.check();
            // A search among at most 16 landings takes five splits, a retry, and the trials next to
            // it. A move by others costs the running trials.
            let troubles = mix.failing.len()
                + mix.failing_pairs.len()
                + mix.dependencies.len()
                + mix.conflicts.len();
            let troubles = troubles + sim.flakes as usize + sim.outside_commits as usize;
            let most = count + troubles * (6 + 2 * slots as usize) + slots as usize;
            let validations = sim.validations as usize;
            assert!(
                validations <= most,
                "seed {seed}, {pace:?}: {validations} validations of at most {most}"
            );
        }
    }
}

/// Speculation with two slots on 50 landings, of which two or three fail, as ratios to a serial
/// queue.
#[test]
fn speculation_is_at_least_1_5_times_as_fast_as_a_serial_queue() {
    let (mut serial, mut every, mut tips) = (0, 0, 0);
    for seed in 1..=3 {
        let mut dice = QueueRng(seed * 104_729);
        let mut bad = BTreeSet::new();
        while bad.len() < 2 + seed as usize % 2 {
            bad.insert(dice.roll(50) + 1);
        }
        let mix = QueueMix {
            count: 50,
            failing: bad,
            ..QueueMix::default()
        };
        let paces = [
            (SimulatedPolicy::Serial, &mut serial),
            (SimulatedPolicy::Every { slots: 2 }, &mut every),
            (
                SimulatedPolicy::Tips {
                    slots: 2,
                    batch: None,
                },
                &mut tips,
            ),
        ];
        for (pace, time) in paces {
            let mut sim = QueueSimulation::new(mix.clone(), seed, pace);
            sim.run();
            sim.check();
            *time += sim.clock_ms;
        }
    }
    let times = |time: u64| serial as f64 / time as f64;
    println!(
        "serial {serial}, every {every} ({:.2} times), tips {tips} ({:.2} times)",
        times(every),
        times(tips)
    );
    assert!(
        serial * 2 >= every * 3,
        "validating every commit with two slots must be at least 1.5 times as fast as a serial \
        queue"
    );
    assert!(
        serial * 2 >= tips * 5,
        "validating tips must be at least 2.5 times as fast as a serial queue"
    );
}

/// Q9: six failing landings at the head of the queue delay the good ones by at most 24 validations.
#[test]
fn q9_six_failing_landings_delay_the_good_ones_by_at_most_24_validations() {
    for pace in [
        SimulatedPolicy::Every { slots: 2 },
        SimulatedPolicy::Tips {
            slots: 2,
            batch: None,
        },
    ] {
        let mix = QueueMix {
            count: 40,
            failing: (1..=6).collect(),
            ..QueueMix::default()
        };
        let mut sim = QueueSimulation::new(mix, 1, pace);
        sim.run_until(|sim| !sim.trunk.is_empty());
        assert!(
            sim.validations <= 24,
            "{pace:?}: {} validations before the first good landing",
            sim.validations
        );
        sim.run();
        sim.check();
    }
}
