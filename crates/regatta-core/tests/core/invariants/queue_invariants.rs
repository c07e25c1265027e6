//! The laws of the landing queue.

use std::collections::BTreeSet;

use regatta_core::board::Board;
use regatta_core::claim::{ClaimMode, ClaimOwner};
use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::{Landing, LandingState};
use regatta_core::pattern::Uri;
use regatta_core::project::{Project, QueueMode};
use regatta_core::task::Task;

use super::claim_invariants::{ClaimParty, blockers};
use super::{check_files, needed_uris};

/// Returns a landing's rank: put first, then priority, then age.
fn rank(landing: &Landing) -> (bool, u8, LandingId) {
    (!landing.first, landing.priority, landing.id)
}

/// Returns the trials that a landing's row knows: its current trial, and the trial that failed.
fn trials_of(landing: &Landing) -> Vec<Vec<LandingId>> {
    let live = !matches!(
        landing.state,
        LandingState::Queued | LandingState::Trying { void: true, .. }
    );
    let red = landing
        .failed_trial
        .as_ref()
        .filter(|_| landing.deferred_behind.is_empty())
        .map(|red| red.ahead.iter().copied().chain([landing.id]).collect());
    live.then(|| landing.trial_landings())
        .into_iter()
        .chain(red)
        .collect()
}

/// Q10: a trial contains every landing with a higher rank than its own members, except those that
/// are held or deferred and those that came after its members were already in a trial.
pub(super) fn check_order(board: &Board, last: &LandingId, ahead: &[LandingId]) {
    let landing = &board.landings[last];
    let train: Vec<LandingId> = ahead.iter().copied().chain([*last]).collect();
    let all: BTreeSet<LandingId> = train.iter().copied().collect();
    assert_eq!(all.len(), train.len(), "a landing is twice in {train:?}");
    let of_project = || {
        board
            .landings
            .values()
            .filter(|other| other.project == landing.project)
    };
    assert!(
        of_project()
            .filter(|landing| all.contains(&landing.id))
            .count()
            == all.len(),
        "{train:?} contains landings of several queues"
    );
    let under_way: BTreeSet<LandingId> = of_project()
        .flat_map(|landing| trials_of(landing))
        .flatten()
        .collect();
    for other in of_project().filter(|landing| !all.contains(&landing.id)) {
        let overtaken = train
            .iter()
            .any(|id| !under_way.contains(id) && rank(other) < rank(&board.landings[id]));
        let aside = other.held.is_some()
            || other
                .deferred_behind
                .iter()
                .any(|id| board.landings.contains_key(id))
            || board.tasks[&other.task]
                .blocked_by
                .iter()
                .any(|id| board.tasks.contains_key(id));
        assert!(!overtaken || aside, "Q10: {train:?} overtook {}", other.id);
    }
}

/// Q10: trials are prefixes of one order, there are at most as many as slots, and only one moves
/// the trunk.
fn check_trials(board: &Board, project: &Project) {
    let queue: Vec<_> = board
        .landings
        .values()
        .filter(|landing| landing.project == project.name)
        .collect();
    let mut known: Vec<Vec<LandingId>> = queue
        .iter()
        .flat_map(|landing| trials_of(landing))
        .collect();
    known.sort_by_key(Vec::len);
    for pair in known.windows(2) {
        assert!(
            pair[1].starts_with(&pair[0]),
            "Q1: {:?} and {:?} have a different order",
            pair[0],
            pair[1]
        );
    }
    for id in known.iter().flatten() {
        assert!(
            board.landings.contains_key(id),
            "Q1: {id} has left the queue and is still in a trial"
        );
    }
    let count =
        |of: fn(&LandingState) -> bool| queue.iter().filter(|landing| of(&landing.state)).count();
    let landing = &project.settings.landing;
    let slots = if landing.mode == QueueMode::Serial {
        1
    } else {
        landing.slots.unwrap_or(2) as usize
    };
    assert!(
        count(|landing_state| matches!(landing_state, LandingState::Trying { .. })) <= slots,
        "more trials than slots"
    );
    assert!(
        count(|landing_state| matches!(landing_state, LandingState::Moving { .. })) <= 1,
        "Q2: two landings move the same trunk"
    );
}

/// Q1, Q14: checks that every commit of a trial that counts as validated is the tip of a trial that
/// passed.
fn are_claims_proven(board: &Board, landing: &Landing) -> bool {
    let (LandingState::Validated { new, carries, .. } | LandingState::Moving { new, carries, .. }) =
        &landing.state
    else {
        return false;
    };
    let passed = |commit: &CommitId| {
        commit == new
            || board
                .landings
                .values()
                .any(|landing| matches!(&landing.state, LandingState::Validated { new, .. } if new == commit))
    };
    carries
        .iter()
        .all(|carried_landing| carried_landing.unverified || passed(&carried_landing.commit))
}

/// Returns the other tasks of a landing's wave, if that wave lands as one commit.
fn wave_mates<'a>(board: &'a Board, landing: &'a Landing) -> impl Iterator<Item = &'a Task> {
    let one = landing
        .mission
        .filter(|id| !landing.first && board.missions[id].wave_commits);
    let step = board.tasks[&landing.task].step();
    let of_wave = move |task: &&Task| {
        one.is_some() && task.mission == one && task.step() == step && task.id != landing.task
    };
    board.tasks.values().map(|task| &**task).filter(of_wave)
}

/// Returns whether a task may reach the queue without a person's action.
fn may_still_queue(task: &Task) -> bool {
    (task.status.is_running() || task.status.is_waiting())
        && task.fixup.is_none()
        && task.paused.is_none()
}

/// Q8, Q10, L6: the queue does not stop without a reason, and only a current fence moves a trunk.
pub(super) fn check_landings(board: &Board) {
    for project in board.projects.values() {
        check_trials(board, project);
    }
    for landing in board.landings.values() {
        let task = board
            .tasks
            .get(&landing.task)
            .expect("a landing's task is open");
        assert_eq!(
            task.landing,
            Some(landing.id),
            "{} is not the landing of {}",
            landing.id,
            task.id
        );
        // A landing that a person stopped has no time at which it is tried again. Its reason says
        // how to continue it.
        let says_how = landing
            .held
            .as_ref()
            .is_some_and(|reason| reason.contains("regatta land "));
        assert!(
            landing.held.is_some() || landing.retry_fleet_ms.is_none(),
            "{} has a retry time and no reason",
            landing.id
        );
        assert!(
            landing.held.is_none() || landing.retry_fleet_ms.is_some() || says_how,
            "{} is held without an end",
            landing.id
        );
        check_files(
            board,
            &ClaimOwner::Landing(landing.id),
            &needed_uris(board, task),
        );
        let trunk = [Uri::for_trunk(&landing.project)];
        match &landing.state {
            LandingState::Queued | LandingState::Trying { .. } => {}
            LandingState::Validated { .. } => {
                let stopped = board.projects[&landing.project].queue.held.is_some();
                let held = !blockers(
                    board,
                    &ClaimParty::anonymous(&trunk, ClaimMode::Exclusive),
                    None,
                )
                .is_empty();
                let cut = wave_mates(board, landing).any(|task| {
                    task.landing.is_some_and(|id| {
                        board.landings.contains_key(&id) && !landing.trial_landings().contains(&id)
                    })
                });
                let waits = !are_claims_proven(board, landing);
                assert!(
                    stopped || held || cut || waits,
                    "Q8: the trunk is free and {} does not take it",
                    landing.id
                );
            }
            LandingState::Moving { fence, .. } => {
                assert!(
                    are_claims_proven(board, landing),
                    "Q1, Q14: {} carries a commit that did not pass",
                    landing.id
                );
                let own = board
                    .claims
                    .values()
                    .find(|claim| claim.token == *fence)
                    .expect("L6: the move has no fence");
                let lent = |id: &regatta_core::ids::LandingId| {
                    board.landings.get(id).is_some_and(|landing| {
                        landing
                            .lent_claim
                            .as_ref()
                            .is_some_and(|lent_trunk_claim| lent_trunk_claim.token == *fence)
                    })
                };
                if !landing.trial_landings().iter().any(lent) {
                    assert_eq!(
                        (&own.owner, &own.uris[..]),
                        (&ClaimOwner::Landing(landing.id), &trunk[..]),
                        "L6"
                    );
                }
            }
        }
    }
    for (name, project) in &board.projects {
        let mut queue: Vec<_> = board
            .landings
            .values()
            .filter(|landing| landing.project == *name)
            .collect();
        queue.sort_by_key(|landing| rank(landing));
        assert!(
            queue
                .iter()
                .map(|landing| landing.id)
                .eq(board.queue_of(name).map(|landing| landing.id)),
            "Q10: the order is wrong"
        );
        let stands = queue
            .iter()
            .all(|landing| landing.state == LandingState::Queued);
        let waits = |landing: &Landing| {
            landing.held.is_some()
                || landing
                    .deferred_behind
                    .iter()
                    .any(|id| board.landings.contains_key(id))
                || board.tasks[&landing.task]
                    .blocked_by
                    .iter()
                    .any(|id| board.tasks.contains_key(id))
                || wave_mates(board, landing).any(may_still_queue)
        };
        let all_wait = project.queue.held.is_some() || queue.iter().all(|landing| waits(landing));
        assert!(
            !stands || all_wait,
            "Q8: no landing of {name} is under way although some could be"
        );
    }
}
