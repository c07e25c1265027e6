//! The daemon's own dispatcher: whenever the board (the state of all unfinished work) changes,
//! requests work ("polls") for the agents of running missions and for agents with assigned tasks.
//!
//! The dispatcher uses the same command as every runner (a process that executes attempts), so that
//! one place decides about capacity, order and claims (leases on files).

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use regatta_core::agent::{self, Agent};
use regatta_core::board::{Board, ReadyFor};
use regatta_core::command::{CommandOutcome, Report};
use regatta_core::ids::{AgentName, MissionId, TaskId};
use regatta_core::launch;
use regatta_core::mission::MissionState;
use regatta_core::runner::{self, Runner};
use regatta_core::schedule::{self, PollRequest};
use regatta_core::task::Task;
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

/// Requests work once for every agent with free capacity, on every machine with free capacity.
fn poll_all(engine: &Engine, board: &Board, facts_cache: &mut StartFactsCache) -> PollRound {
    let mut round = PollRound::Nothing;
    let machines = free_machines(board);
    let candidates = candidates(board)
        .into_iter()
        .chain(assigned_candidates(board))
        .chain(member_candidates(board));
    for Candidate {
        mission,
        task,
        agent,
    } in candidates
    {
        let Some(agent_record) = board.agents.get(&agent) else {
            continue;
        };
        for machine in machines
            .iter()
            .filter(|machine| machine.can_run(agent_record))
        {
            let mut facts = mission
                .map(|id| facts_cache.facts(engine, board, id))
                .unwrap_or_default();
            if let Some(runner) = &machine.0 {
                // The facts about memory and disk are about this machine, so they do not apply to
                // an attempt on a runner's machine.
                (facts.memory_mb, facts.disk_mb, facts.runner) =
                    (None, None, Some(runner.name.clone()));
            }
            let may_start = engine
                .shared
                .can_start
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if !*may_start {
                return PollRound::Nothing;
            }
            let poll = PollRequest {
                mission,
                task,
                ..PollRequest::new(agent.clone())
            };
            let report = Report::PollSupervised {
                poll,
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
                        "agent {agent} got no task, because the daemon refused its request for \
                        work: {}",
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

/// A machine on which an attempt may run: a runner's machine, or this machine for `None`.
struct FreeMachine(Option<Arc<Runner>>);

impl FreeMachine {
    fn can_run(&self, agent: &Agent) -> bool {
        self.0
            .as_ref()
            .map_or(agent.profile.labels.is_empty(), |runner| {
                runner.can_run(agent)
            })
    }
}

/// Returns the machines that can run another attempt, the machine with most free capacity first.
fn free_machines(board: &Board) -> Vec<FreeMachine> {
    let running_here = board
        .attempts
        .values()
        .filter(|attempt| attempt.runner.is_none() && !attempt.takes_no_slot)
        .count() as u32;
    let mut machines = vec![(
        board.limits.max_attempts.saturating_sub(running_here),
        FreeMachine(None),
    )];
    for runner in board
        .runners
        .values()
        .filter(|runner| runner.state == runner::RunnerState::Up)
    {
        let free_slots = runner
            .max_tasks
            .saturating_sub(runner::running_attempts(board, &runner.name));
        machines.push((free_slots, FreeMachine(Some(runner.clone()))));
    }
    // This machine stays in the list even when it is full, because leads (agents that split
    // missions into tasks) and answers to questions do not count against the machine's limit.
    machines.retain(|(free_slots, machine)| *free_slots > 0 || machine.0.is_none());
    machines.sort_by_key(|(free_slots, _)| std::cmp::Reverse(*free_slots));
    machines.into_iter().map(|(_, machine)| machine).collect()
}

/// The largest number of ready tasks that one round tries for an agent. More than one is tried,
/// because the first tasks may have to wait for a claim (a lease on files).
const MAX_TASKS_TRIED: usize = 8;

/// Returns the agents with free capacity and the ready tasks that were assigned to each of them. A
/// task that was assigned to an agent needs no mission (a goal with its tasks) to start.
fn assigned_candidates(board: &Board) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for agent in board
        .agents
        .values()
        .filter(|agent| agent.is_run_by_regatta())
    {
        if agent::capacity(board, agent).available == 0 {
            continue;
        }
        let queues = [
            ReadyFor::Offered(agent.name.clone()),
            ReadyFor::Agent(agent.name.clone()),
        ];
        let starts_here = |id: &TaskId| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| schedule::starts_by_assignment(board, task))
        };
        let ready = queues
            .iter()
            .flat_map(|queue| board.ready_for(queue))
            .filter(starts_here)
            .take(MAX_TASKS_TRIED);
        candidates.extend(ready.map(|task| Candidate {
            mission: None,
            task: Some(task),
            agent: agent.name.clone(),
        }));
    }
    candidates
}

/// Returns the members of running teams that have free capacity, once for each ready task that the
/// member may take. These are the tasks that are assigned to the member and, unless the member
/// leads the team, the project's tasks for any member.
fn member_candidates(board: &Board) -> Vec<Candidate> {
    let mut ready_tasks: Vec<(u32, AgentName, TaskId)> = Vec::new();
    for launch in board
        .launches
        .values()
        .filter(|launch| launch.stopping.is_none())
    {
        let shared_tasks: Vec<TaskId> = board
            .ready_for(&ReadyFor::Pool(launch.project.clone()))
            .take(MAX_TASKS_TRIED)
            .collect();
        for entry in launch
            .members
            .iter()
            .filter(|launch| launch.state == launch::MemberState::Alive)
        {
            let Some(agent) = board.agents.get(&entry.agent) else {
                continue;
            };
            let capacity = agent::capacity(board, agent);
            if capacity.available == 0 {
                continue;
            }
            let queue = ReadyFor::Agent(entry.agent.clone());
            let own_tasks = board.ready_for(&queue).take(MAX_TASKS_TRIED);
            let member_tasks = shared_tasks.iter().copied().filter(|_| !entry.lead);
            ready_tasks.extend(
                own_tasks
                    .chain(member_tasks)
                    .map(|task| (capacity.current, entry.agent.clone(), task)),
            );
        }
    }
    ready_tasks.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    ready_tasks
        .into_iter()
        .map(|(_, agent, task)| Candidate {
            mission: None,
            task: Some(task),
            agent,
        })
        .collect()
}

/// An agent for which the dispatcher (the thread that starts attempts) requests work: any task of
/// `mission`, or exactly `task`.
struct Candidate {
    mission: Option<MissionId>,
    task: Option<TaskId>,
    agent: AgentName,
}

/// Returns the agents to request work for: first the leads (agents that split missions into tasks)
/// and the agents that answer questions, then the workers of missions. The least busy workers come
/// first, so that work spreads over a mission's agents.
fn candidates(board: &Board) -> Vec<Candidate> {
    let mut workers: Vec<(u32, MissionId, AgentName)> = Vec::new();
    for mission in board
        .missions
        .values()
        .filter(|mission| mission.state == MissionState::Active)
    {
        let is_startable = |task: &Task| task.status.is_waiting() && task.is_polled();
        let waiting = board
            .open_tasks_of(mission.id)
            .any(|(_, id)| board.tasks.get(&id).is_some_and(|task| is_startable(task)));
        if !waiting {
            continue;
        }
        for agent in mission
            .agents
            .iter()
            .filter_map(|agent| board.agents.get(agent))
        {
            let capacity = agent::capacity(board, agent);
            if capacity.available > 0 && agent.is_run_by_regatta() {
                workers.push((capacity.current, mission.id, agent.name.clone()));
            }
        }
    }
    workers.sort();
    let workers = workers.into_iter().map(|(_, mission, agent)| Candidate {
        mission: Some(mission),
        task: None,
        agent,
    });
    duty_candidates(board).into_iter().chain(workers).collect()
}

/// Returns the agents that must now take a turn as a lead (split a mission into tasks) or answer a
/// question.
fn duty_candidates(board: &Board) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for agent in board
        .agents
        .values()
        .filter(|agent| agent.is_run_by_regatta())
    {
        // Only agents that Regatta derived from another agent act as leads of missions or answer
        // questions. In a conversation, the original agent itself answers.
        let is_duty = |task: &Task| {
            if agent.derived_from.is_some() {
                !task.is_polled()
            } else {
                task.is_conversation()
            }
        };
        let free_slots = agent::capacity(board, agent).available as usize;
        let queue = ReadyFor::Agent(agent.name.clone());
        let due = board
            .ready_for(&queue)
            .filter(|id| board.tasks.get(id).is_some_and(|task| is_duty(task)))
            .take(free_slots);
        candidates.extend(due.map(|task| Candidate {
            mission: None,
            task: Some(task),
            agent: agent.name.clone(),
        }));
    }
    candidates
}
