//! A bounded model checker of the landing queue.
//!
//! It explores every interleaving of the possible steps on a short queue: a trial begins, a
//! trial reports, the trunk moves, the move reports, a task is dropped, the queue is held and
//! released, somebody else moves the trunk, a fence expires, the daemon is killed, a check fails
//! without a fault. In every state the trunk is compared with the board.
//!
//! A [`ModelScenario`] fixes which trees fail. The order of the steps is free. The number of
//! disturbances is limited because each one multiplies the states. `REGATTA_MODEL_DISTURBANCES=3
//! cargo test -p regatta-core --test core queue_model` explores more.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use regatta_core::command::{Command, Report};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Event;
use regatta_core::ids::{CommitId, LandingId, TaskId};
use regatta_core::landing::{CarriedLanding, LandingState, MoveOutcome, NothingNew, TrialOutcome};

use crate::speculation::{held_queue, release_queue};
use crate::world::{MINUTE_MS, SECOND_MS, World, commit, shop};

/// The number from which commits of others on the trunk are counted.
const FIRST_OUTSIDE_COMMIT: u64 = 1_000;

/// A commit: its landings in order, each with whether it counts as validated.
type ModelCommit = Vec<(u64, bool)>;

/// Which trees fail, and which landings conflict.
#[derive(Clone, Copy)]
struct ModelScenario {
    name: &'static str,
    is_red: fn(&BTreeSet<u64>) -> bool,
    /// The two landings that conflict, if any.
    conflict: Option<(u64, u64)>,
}

const SCENARIOS: &[ModelScenario] = &[
    ModelScenario {
        name: "all good",
        is_red: |_| false,
        conflict: None,
    },
    ModelScenario {
        name: "the second is bad",
        is_red: |tree| tree.contains(&2),
        conflict: None,
    },
    ModelScenario {
        name: "the first two fail together",
        is_red: |tree| tree.contains(&1) && tree.contains(&2),
        conflict: None,
    },
    ModelScenario {
        name: "the third fixes the second",
        is_red: |tree| tree.contains(&2) && !tree.contains(&3),
        conflict: None,
    },
    ModelScenario {
        name: "the first and the third conflict",
        is_red: |_| false,
        conflict: Some((1, 3)),
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelStep {
    /// A trial reads the trunk, merges and validates.
    Begin(EffectKey),
    /// The same, but a check fails without a fault.
    BeginFlaky(EffectKey),
    /// A trial's report arrives.
    Report(EffectKey),
    /// The trunk is moved, or found elsewhere.
    Move(EffectKey),
    /// The move's report arrives.
    ReportMove(EffectKey),
    Drop(u64),
    Hold,
    Release,
    MoveOutside,
    ExpireFence,
    Restart,
}

#[derive(Clone)]
struct QueueModel {
    world: World,
    scenario: ModelScenario,
    verifies_every: bool,
    trunk: ModelCommit,
    /// Trees that passed their validation.
    passed_trees: BTreeSet<BTreeSet<u64>>,
    commits: BTreeMap<ModelCommit, u64>,
    trials: BTreeMap<EffectKey, (LandingId, TrialOutcome)>,
    moves: BTreeMap<EffectKey, (LandingId, u64, MoveOutcome)>,
    /// How landings ended on the board: landed as a commit, landed without one of their own, or
    /// removed from the queue.
    ended: BTreeMap<u64, Option<Option<CommitId>>>,
    disturbances_left: u32,
    outside_commits: u64,
}

impl QueueModel {
    fn new(scenario: ModelScenario, verifies_every: bool, disturbances_left: u32) -> QueueModel {
        let (mut world, _) = held_queue(3);
        if verifies_every {
            world.verify_every_commit(2);
        } else {
            world.speculate(2, Some(2));
        }
        release_queue(&mut world);
        world.skips_invariants = true;
        world.log.clear();
        let commits = BTreeMap::from([(vec![], 1)]);
        QueueModel {
            world,
            scenario,
            verifies_every,
            trunk: vec![],
            passed_trees: BTreeSet::from([BTreeSet::new()]),
            commits,
            trials: BTreeMap::new(),
            moves: BTreeMap::new(),
            ended: BTreeMap::new(),
            disturbances_left,
            outside_commits: 0,
        }
    }

    fn commit_of(&mut self, line: &ModelCommit) -> CommitId {
        let next = self.commits.len() as u64 + 1;
        commit(*self.commits.entry(line.clone()).or_insert(next))
    }

    fn content_of(&self, id: &CommitId) -> ModelCommit {
        self.commits
            .iter()
            .find(|pair| commit(*pair.1) == *id)
            .map(|commit| commit.0.clone())
            .expect("a commit of the model")
    }

    fn is_on_trunk(&self, landing: u64) -> bool {
        self.trunk.iter().any(|trunk| trunk.0 == landing)
    }

    // The possible steps.

    fn steps(&self) -> Vec<ModelStep> {
        let mut steps = Vec::new();
        let may_disturb = self.disturbances_left > 0;
        for (key, effect) in &self.world.outbox {
            match effect {
                Effect::TryLanding { .. } if self.trials.contains_key(key) => {
                    steps.push(ModelStep::Report(*key))
                }
                Effect::TryLanding { .. } => {
                    steps.push(ModelStep::Begin(*key));
                    steps.extend(may_disturb.then_some(ModelStep::BeginFlaky(*key)));
                }
                Effect::MoveTrunk { .. } if self.moves.contains_key(key) => {
                    steps.push(ModelStep::ReportMove(*key))
                }
                Effect::MoveTrunk { .. } => steps.push(ModelStep::Move(*key)),
                _ => {}
            }
        }
        let is_held = self.world.board.projects[&shop()].queue.held.is_some();
        if is_held {
            steps.push(ModelStep::Release);
        }
        if may_disturb && !self.world.board.landings.is_empty() {
            steps.extend(
                self.world
                    .board
                    .landings
                    .keys()
                    .map(|id| ModelStep::Drop(id.0)),
            );
            steps.extend([ModelStep::MoveOutside, ModelStep::Restart]);
            steps.extend((!is_held).then_some(ModelStep::Hold));
            let moves = self
                .world
                .board
                .landings
                .values()
                .any(|landing| matches!(landing.state, LandingState::Moving { .. }));
            steps.extend(moves.then_some(ModelStep::ExpireFence));
        }
        steps
    }

    fn apply_step(&mut self, step: ModelStep) {
        match step {
            ModelStep::Begin(key) => self.begin_trial(key, false),
            ModelStep::BeginFlaky(key) => {
                self.disturbances_left -= 1;
                self.begin_trial(key, true);
            }
            ModelStep::Report(key) => {
                let (landing, found) = self.trials.remove(&key).expect("a trial that ended");
                self.world.outbox.remove(&key);
                // If the landing was withdrawn in the meantime, the report is refused.
                let _late = self.world.try_report(Report::Trial {
                    landing,
                    outcome: found,
                });
            }
            ModelStep::Move(key) => self.move_trunk(key),
            ModelStep::ReportMove(key) => {
                let (landing, fence, found) = self.moves.remove(&key).expect("a move that ended");
                self.world.outbox.remove(&key);
                // If the fence has expired, the report is refused.
                let _late = self.world.try_report(Report::TrunkMove {
                    landing,
                    fence,
                    outcome: found,
                });
            }
            ModelStep::Release => {
                _ = self
                    .world
                    .ask("ann", Command::ReleaseQueue { project: shop() })
            }
            ModelStep::Drop(landing) => {
                self.disturbances_left -= 1;
                let task = self.world.board.landings[&LandingId(landing)].task;
                // Refused while a move carries the landing.
                let _refused = self.world.try_ask(
                    "ann",
                    Command::CancelTask {
                        task,
                        reason: "changed my mind".into(),
                    },
                );
            }
            ModelStep::Hold => {
                self.disturbances_left -= 1;
                self.world.ask(
                    "ann",
                    Command::HoldQueue {
                        project: shop(),
                        reason: "a look".into(),
                    },
                );
            }
            ModelStep::MoveOutside => {
                self.disturbances_left -= 1;
                self.outside_commits += 1;
                self.trunk
                    .push((FIRST_OUTSIDE_COMMIT + self.outside_commits, true));
                let tree = self.trunk.iter().map(|trunk| trunk.0).collect();
                self.passed_trees.insert(tree);
            }
            ModelStep::ExpireFence => {
                self.disturbances_left -= 1;
                self.world.advance(10 * MINUTE_MS);
            }
            ModelStep::Restart => {
                self.disturbances_left -= 1;
                self.trials.clear();
                self.moves.clear();
                self.world.report(Report::DaemonStarted { pid: 42 });
            }
        }
        self.world.outbox.retain(|_, effect| {
            matches!(effect, Effect::TryLanding { .. } | Effect::MoveTrunk { .. })
        });
        self.record_ends();
    }

    /// Starts a trial as the shell does: reads the board and the trunk now, and reports later.
    fn begin_trial(&mut self, key: EffectKey, flake: bool) {
        let Effect::TryLanding { landing } = self.world.outbox[&key] else {
            unreachable!()
        };
        let Some(row) = self.world.board.landings.get(&landing).cloned() else {
            self.world.outbox.remove(&key);
            return;
        };
        let unverified = match &row.state {
            LandingState::Trying { unverified, .. } => unverified.clone(),
            _ => vec![],
        };
        let old = self.trunk.clone();
        let mut line = old.clone();
        let mut carries = Vec::new();
        for member in row.trial_landings() {
            let has = |id: u64| line.iter().any(|line| line.0 == id);
            let clashes = self
                .scenario
                .conflict
                .is_some_and(|(a, b)| a == member.0 && has(b) || b == member.0 && has(a));
            if clashes && !has(member.0) {
                let found = TrialOutcome::Conflict {
                    landing: member,
                    paths: vec!["src/x.rs".into()],
                    kinds: vec![],
                };
                self.trials.insert(key, (landing, found));
                return;
            }
            let empty = has(member.0);
            if !empty {
                line.push((member.0, !unverified.contains(&member)));
            }
            let landed_as = self.landed_as(member.0);
            let nothing_new = empty.then_some(NothingNew { landed_as });
            carries.push(CarriedLanding {
                nothing_new,
                ..CarriedLanding::new(member, self.commit_of(&line))
            });
        }
        let found = if line == old {
            let landed_as = row
                .trial_landings()
                .into_iter()
                .filter_map(|id| Some((id, self.landed_as(id.0)?)))
                .collect();
            TrialOutcome::AlreadyOnTrunk {
                tip: self.commit_of(&old),
                landed_as,
            }
        } else {
            let tree: BTreeSet<u64> = line.iter().map(|line| line.0).collect();
            if (self.scenario.is_red)(&tree) || flake {
                TrialOutcome::Failed {
                    reason: "make test".into(),
                    output: None,
                    settled: vec![],
                }
            } else {
                self.passed_trees.insert(tree);
                TrialOutcome::Passed {
                    old: self.commit_of(&old),
                    new: self.commit_of(&line),
                    carries,
                }
            }
        };
        self.trials.insert(key, (landing, found));
    }

    /// Returns the commit of the trunk whose trailer names a landing.
    fn landed_as(&mut self, landing: u64) -> Option<CommitId> {
        let place = self.trunk.iter().position(|trunk| trunk.0 == landing)?;
        let line = self.trunk[..=place].to_vec();
        Some(self.commit_of(&line))
    }

    fn move_trunk(&mut self, key: EffectKey) {
        let Effect::MoveTrunk { landing, fence } = self.world.outbox[&key] else {
            unreachable!()
        };
        let state = self
            .world
            .board
            .landings
            .get(&landing)
            .map(|landing| landing.state.clone());
        let Some(LandingState::Moving {
            old,
            new,
            fence: live,
            ..
        }) = state.filter(|_| true)
        else {
            self.world.outbox.remove(&key);
            return;
        };
        if live != fence {
            self.world.outbox.remove(&key);
            return;
        }
        let trunk = self.trunk.clone();
        let tip = self.commit_of(&trunk);
        let found = if tip == new {
            MoveOutcome::Moved
        } else if tip == old {
            let line = self.content_of(&new);
            assert!(
                line.starts_with(&self.trunk),
                "Q2: {line:?} does not build on {:?}",
                self.trunk
            );
            self.trunk = line;
            MoveOutcome::Moved
        } else {
            MoveOutcome::TrunkMoved
        };
        self.moves.insert(key, (landing, fence, found));
    }

    /// Records the landings that ended with the last step.
    fn record_ends(&mut self) {
        for recorded in std::mem::take(&mut self.world.log) {
            let (landing, end) = match &recorded.event {
                Event::LandingLanded(landing_landed) => (
                    landing_landed.landing().0,
                    Some(landing_landed.commit().clone()),
                ),
                Event::LandingEnded(landing_ended) => (landing_ended.landing().0, None),
                _ => continue,
            };
            assert!(
                self.ended.insert(landing, end.map(Some)).is_none(),
                "Q7: L{landing} ended twice"
            );
        }
    }

    // The rules that must hold.

    fn check(&self) {
        for (place, (id, claims)) in self
            .trunk
            .iter()
            .enumerate()
            .filter(|trunk| trunk.1.0 < FIRST_OUTSIDE_COMMIT)
        {
            let tree: BTreeSet<u64> = self.trunk[..=place].iter().map(|trunk| trunk.0).collect();
            if *claims {
                assert!(
                    self.passed_trees.contains(&tree),
                    "Q14: L{id} counts as validated, but {tree:?} was never validated"
                );
            }
            assert!(
                *claims || !self.verifies_every,
                "Q1: L{id} was not validated as {tree:?}"
            );
            let twice = self.trunk.iter().filter(|trunk| trunk.0 == *id).count();
            assert_eq!(twice, 1, "Q7: L{id} is on the trunk twice");
        }
        for (id, end) in &self.ended {
            match end {
                // Q12: a landing that left the queue is not on the trunk, and one that landed is
                // there as the recorded commit.
                None => assert!(
                    !self.is_on_trunk(*id),
                    "Q12: L{id} left the queue and is on the trunk"
                ),
                Some(commit) => {
                    let place = self
                        .trunk
                        .iter()
                        .position(|trunk| trunk.0 == *id)
                        .expect("Q12: landed, not on the trunk");
                    let line = self.trunk[..=place].to_vec();
                    let known = self.commits.get(&line).map(|n| crate::world::commit(*n));
                    assert_eq!(
                        *commit, known,
                        "Q12: L{id} is recorded as another commit than the one on the trunk"
                    );
                }
            }
        }
        for landing in self.world.board.landings.values() {
            let task = self
                .world
                .board
                .tasks
                .get(&landing.task)
                .map(|task| task.landing);
            assert_eq!(
                task,
                Some(Some(landing.id)),
                "Q12: {} has no task with this landing",
                landing.id
            );
        }
    }

    /// Q8: when no step is possible, every landing has ended.
    fn check_end(&self) {
        let open: Vec<_> = self.world.board.landings.keys().collect();
        assert!(
            open.is_empty(),
            "Q8: the queue has stopped with {open:?}: {}",
            self.state_key()
        );
        for id in 1..=3 {
            assert_eq!(
                self.is_on_trunk(id),
                self.ended[&id].is_some(),
                "Q12: L{id}"
            );
        }
    }

    /// Returns what distinguishes this state from others, without revisions, tokens and times.
    fn state_key(&self) -> String {
        let mut key = String::new();
        for landing in self.world.board.landings.values() {
            let state = match &landing.state {
                LandingState::Moving {
                    old, new, carries, ..
                } => format!("moving {old} {new} {carries:?}"),
                state => format!("{state:?}"),
            };
            let red = landing
                .failed_trial
                .as_ref()
                .map(|failed_trial| &failed_trial.ahead);
            let is_held = landing.held.is_some();
            key += &format!(
                "{} {state} {red:?} {} {:?} {is_held};",
                landing.id, landing.faults, landing.deferred_behind
            );
        }
        let effects: Vec<_> = self
            .world
            .outbox
            .iter()
            .map(|(key, effect)| match effect {
                Effect::TryLanding { landing } => {
                    format!(
                        "try {landing} {:?}",
                        self.trials.get(key).map(|trial| &trial.1)
                    )
                }
                Effect::MoveTrunk { landing, .. } => {
                    format!("move {landing} {:?}", self.moves.get(key).map(|row| &row.2))
                }
                _ => String::new(),
            })
            .collect();
        let is_held = self.world.board.projects[&shop()].queue.held.is_some();
        let statuses: Vec<_> = (1..=3).map(|id| self.world.status(TaskId(id))).collect();
        key += &format!(
            "{effects:?} {is_held} {statuses:?} {:?} {:?} {}",
            self.trunk, self.ended, self.disturbances_left
        );
        key
    }
}

/// Explores all reachable states and returns their number.
fn explore(truth: ModelScenario, every: bool, disturbances: u32) -> usize {
    let first = QueueModel::new(truth, every, disturbances);
    let mut seen = HashSet::from([first.state_key()]);
    let mut open = VecDeque::from([(first, Vec::<ModelStep>::new())]);
    while let Some((mut model, path)) = open.pop_back() {
        let mut steps = model.steps();
        if steps.is_empty()
            && model
                .world
                .board
                .landings
                .values()
                .any(|landing| landing.retry_fleet_ms.is_some())
        {
            model.world.advance(SECOND_MS);
            model.record_ends();
            steps = model.steps();
            if steps.is_empty() {
                open.push_back((model, path));
                continue;
            }
        }
        if steps.is_empty() {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.check_end()));
            assert!(
                done.is_ok(),
                "{}, every = {every}: after {path:?}",
                truth.name
            );
        }
        for step in steps {
            let mut next = model.clone();
            let mut path = path.clone();
            path.push(step);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                next.apply_step(step);
                next.check();
            }));
            assert!(
                done.is_ok(),
                "{}, every = {every}: after {path:?}",
                truth.name
            );
            if seen.insert(next.state_key()) {
                open.push_back((next, path));
            }
        }
    }
    seen.len()
}

fn disturbances(default: u32) -> u32 {
    std::env::var("REGATTA_MODEL_DISTURBANCES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(default)
}

/// Q1, Q2, Q7, Q8, Q12, Q14: every interleaving of a queue of three landings with two slots, with
/// every commit validated.
#[test]
fn q1_q7_q8_q12_the_rules_hold_in_every_interleaving_of_a_short_queue() {
    for truth in SCENARIOS {
        let states = explore(*truth, true, disturbances(1));
        println!("every commit, {}: {states} states", truth.name);
        assert!(
            states > 100,
            "too few states: the model explores nothing: {states}"
        );
    }
}

/// Q7, Q8, Q12, Q14: the same, with only the tips of batches validated.
#[test]
fn q7_q8_q12_q14_the_rules_hold_in_every_interleaving_of_batches() {
    for truth in SCENARIOS {
        let states = explore(*truth, false, disturbances(1));
        println!("tips of batches, {}: {states} states", truth.name);
        assert!(
            states > 50,
            "too few states: the model explores nothing: {states}"
        );
    }
}
