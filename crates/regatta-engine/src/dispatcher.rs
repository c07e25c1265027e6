//! The daemon's own dispatcher: whenever the board (the state of all unfinished work) changes,
//! requests work ("polls") for the agents of running missions and for agents with assigned tasks.
//!
//! `regatta_core::schedule::plan_polls` decides the order of the requests and of the machines that
//! are tried for each request. The dispatcher uses the same command as every runner (a process that
//! executes attempts), so that one place decides about capacity and claims (leases on files).

use std::sync::PoisonError;
use std::time::Instant;

use regatta_core::board::Board;
use regatta_core::command::{CommandOutcome, Report};
use regatta_core::schedule;
use tokio::sync::watch;

use crate::perform::{POLL_INTERVAL, block_on_until};
use crate::start_facts::{self, StartFactsCache};
use crate::{CommandFailure, Engine};

/// The result of one round, in which the dispatcher (the thread that starts attempts) requests work
/// once for each free agent.
enum PollRound {
    Granted,
    /// No agent got work. Another round of requests is pointless until something changes.
    Nothing,
    /// The store failed, so the dispatcher (the thread that starts attempts) repeats the round of
    /// requests soon.
    Failed,
}

/// Starts the dispatcher's thread. `board_changes` signals each change of the board (the state of
/// all unfinished work), because a change may bring work.
pub(crate) fn start(engine: &Engine, mut board_changes: watch::Receiver<u64>) {
    let engine_clone = engine.clone();
    engine.spawn_thread("dispatcher", move || {
        let mut facts_cache = StartFactsCache::default();
        while !engine_clone.is_stopping() {
            board_changes.mark_unchanged();
            // Read the day before the round of requests, so that `wait_for_change` notices a day
            // that begins during the round.
            let day = regatta_core::budget::day_of(engine_clone.now());
            match poll_all(&engine_clone, &engine_clone.board(), &mut facts_cache) {
                PollRound::Granted => {}
                PollRound::Nothing => {
                    let has_changed = facts_cache.refresh(&engine_clone, &engine_clone.board());
                    if !has_changed && !wait_for_change(&engine_clone, &mut board_changes, day) {
                        return;
                    }
                }
                PollRound::Failed => std::thread::sleep(POLL_INTERVAL),
            }
        }
    });
}

/// Blocks until the board (the state of all unfinished work) changes or a new day begins, because a
/// new day has a new budget. Returns `false` when the engine stops. `day` is the day on which the
/// dispatcher last requested work.
fn wait_for_change(engine: &Engine, board_changes: &mut watch::Receiver<u64>, day: u64) -> bool {
    // A start gate (a condition such as enough free disk) can open although the board does not
    // change, so the gate is checked again after a while.
    let has_closed_gate = engine
        .board()
        .missions
        .values()
        .any(|mission| !mission.blocking_gates.is_empty());
    let recheck_at = Instant::now() + start_facts::REFRESH_AFTER;
    loop {
        // Daily budgets start afresh with the new day, so tasks may start again.
        if regatta_core::budget::day_of(engine.now()) != day {
            return true;
        }
        if has_closed_gate && Instant::now() >= recheck_at {
            return true;
        }
        match block_on_until(board_changes.changed(), Instant::now() + POLL_INTERVAL) {
            Some(changed) => return changed.is_ok(),
            None if engine.is_stopping() => return false,
            None => {}
        }
    }
}

/// Makes the planned requests for work. Tries the machines of each request until one grants work.
fn poll_all(engine: &Engine, board: &Board, facts_cache: &mut StartFactsCache) -> PollRound {
    let mut round = PollRound::Nothing;
    let plan = schedule::plan_polls(board);
    for poll in &plan.polls {
        let Some(agent) = board.agents.get(&poll.agent) else {
            continue;
        };
        for runner in plan.places(agent) {
            let facts = poll
                .mission
                .map(|id| facts_cache.facts(engine, board, id))
                .unwrap_or_default()
                .at_place(runner);
            let may_start = engine
                .shared
                .can_start
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if !*may_start {
                return PollRound::Nothing;
            }
            let report = Report::PollSupervised {
                poll: poll.clone(),
                facts: Box::new(facts),
            };
            match engine.report(report) {
                Ok(reply) if matches!(reply.outcome, CommandOutcome::Polled(Some(_))) => {
                    round = PollRound::Granted;
                    break;
                }
                Ok(_) => {}
                Err(CommandFailure::Refused { refusal, .. }) => {
                    tracing::warn!(
                        "agent {} got no task, because the daemon refused its request for work: {}",
                        poll.agent,
                        refusal.message()
                    )
                }
                Err(CommandFailure::Store(_) | CommandFailure::Stopping) => {
                    return PollRound::Failed;
                }
            }
        }
    }
    round
}
