//! The daemon's own runner: whenever the board changes, it polls for the agents of the running missions, and for agents
//! that were given a task.
//!
//! It uses the same verb as any runner elsewhere, so capacity, order and claims are decided in one place.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use regatta_core::agent::{self, Agent};
use regatta_core::board::{Board, ReadyFor};
use regatta_core::command::{Actor, Command, Outcome, Request};
use regatta_core::ids::{AgentName, MissionId, TaskId};
use regatta_core::launch;
use regatta_core::mission::State;
use regatta_core::runner::{self, Runner};
use regatta_core::schedule::{self, Poll};
use regatta_core::task::Task;
use tokio::sync::watch;

use crate::perform::{LOOK_UP, block_on_until};
use crate::weigh::{self, Scales};
use crate::{Engine, Failure};

/// What a round of polls found.
enum Round {
    Granted,
    /// Only a change of the board can make the next round differ.
    Nothing,
    /// The store could not keep it; it is tried again soon.
    Failed,
}

/// Starts the thread.
pub(crate) fn start(engine: &Engine, mut rings: watch::Receiver<u64>) {
    let it = engine.clone();
    engine.spawn("runner", move || {
        let mut scales = Scales::default();
        while !it.is_stopping() {
            rings.mark_unchanged();
            // Before the polls: a day that ends during them is no later noticed than one that ends behind them.
            let day = regatta_core::budget::day_of(it.now());
            match poll_all(&it, &it.board(), &mut scales) {
                Round::Granted => {}
                Round::Nothing => {
                    let looks_different = scales.refresh(&it, &it.board());
                    if !looks_different && !wait_for_change(&it, &mut rings, day) {
                        return;
                    }
                }
                Round::Failed => std::thread::sleep(LOOK_UP),
            }
        }
    });
}

/// Blocks until the board changes, or `day`, on which it was last polled, is over; `false` when the engine stops.
fn wait_for_change(engine: &Engine, rings: &mut watch::Receiver<u64>, day: u64) -> bool {
    // What the world has against a start ends without a word.
    let held = engine.board().missions.values().any(|it| !it.held.is_empty());
    let again = Instant::now() + weigh::FRESH;
    loop {
        // With a new day there is a new budget for it.
        if regatta_core::budget::day_of(engine.now()) != day {
            return true;
        }
        if held && Instant::now() >= again {
            return true;
        }
        match block_on_until(rings.changed(), Instant::now() + LOOK_UP) {
            Some(changed) => return changed.is_ok(),
            None if engine.is_stopping() => return false,
            None => {}
        }
    }
}

/// Polls once for everyone with room, wherever there is room.
fn poll_all(engine: &Engine, board: &Board, scales: &mut Scales) -> Round {
    let mut round = Round::Nothing;
    let places = places(board);
    let all = candidates(board).into_iter().chain(assigned(board)).chain(members(board));
    for Candidate { mission, task, agent } in all {
        let Some(who) = board.agents.get(&agent) else { continue };
        for place in places.iter().filter(|it| it.takes(who)) {
            let mut facts = mission.map(|it| scales.facts(engine, board, it)).unwrap_or_default();
            if let Some(runner) = &place.0 {
                // What this machine has free says nothing of that one.
                (facts.memory_mb, facts.disk_mb, facts.runner) = (None, None, Some(runner.name.clone()));
            }
            let may_start = engine.shared.may_start.lock().unwrap_or_else(PoisonError::into_inner);
            if !*may_start {
                return Round::Nothing;
            }
            let poll = Poll { mission, task, ..Poll::of(agent.clone()) };
            let command = Command::PollSupervised { poll, facts: Box::new(facts) };
            match engine.submit(Request { by: Actor::Regatta, key: None, command }) {
                Ok(reply) if matches!(reply.outcome, Outcome::Polled(Some(_))) => {
                    round = Round::Granted;
                    break;
                }
                Ok(_) => {}
                Err(Failure::Refused { refusal, .. }) => {
                    tracing::warn!("the runner's poll was refused: {}", refusal.message())
                }
                Err(Failure::Store(_) | Failure::Stopping) => return Round::Failed,
            }
        }
    }
    round
}

/// Somewhere an attempt may run: a runner, or this machine.
struct Place(Option<Arc<Runner>>);

impl Place {
    fn takes(&self, agent: &Agent) -> bool {
        self.0.as_ref().map_or(agent.profile.labels.is_empty(), |it| it.serves(agent))
    }
}

/// Where there is room, the most first.
fn places(board: &Board) -> Vec<Place> {
    let here = board.attempts.values().filter(|it| it.runner.is_none() && !it.light).count() as u32;
    let mut found = vec![(board.limits.max_attempts.saturating_sub(here), Place(None))];
    for it in board.runners.values().filter(|it| it.state == runner::State::Up) {
        let room = it.max_tasks.saturating_sub(runner::running(board, &it.name));
        found.push((room, Place(Some(it.clone()))));
    }
    // This machine is always one: who leads or answers takes none of its room.
    found.retain(|it| it.0 > 0 || it.1.0.is_none());
    found.sort_by_key(|it| std::cmp::Reverse(it.0));
    found.into_iter().map(|it| it.1).collect()
}

/// How many tasks of a line are tried for a member in one round: the first may have to wait for somebody's files.
const FEW: usize = 8;

/// The agents that were given work and have room for it. An assignment is a start of its own, without a run.
fn assigned(board: &Board) -> Vec<Candidate> {
    let mut found = Vec::new();
    for agent in board.agents.values().filter(|agent| agent.is_run_by_regatta()) {
        if agent::capacity(board, agent).available == 0 {
            continue;
        }
        let lines = [ReadyFor::Offered(agent.name.clone()), ReadyFor::Agent(agent.name.clone())];
        let starts = |id: &TaskId| board.tasks.get(id).is_some_and(|task| schedule::starts_by_assignment(board, task));
        let ready = lines.iter().flat_map(|line| board.ready_for(line)).filter(starts).take(FEW);
        found.extend(ready.map(|task| Candidate { mission: None, task: Some(task), agent: agent.name.clone() }));
    }
    found
}

/// The members of teams that are up and have room, with what waits for them: what they were given, else, for those who
/// do not lead, what nobody in particular was given in their project.
fn members(board: &Board) -> Vec<Candidate> {
    let mut found: Vec<(u32, AgentName, TaskId)> = Vec::new();
    for launch in board.launches.values().filter(|it| it.stopping.is_none()) {
        let pool: Vec<TaskId> = board.ready_for(&ReadyFor::Pool(launch.project.clone())).take(FEW).collect();
        for entry in launch.members.iter().filter(|it| it.state == launch::State::Alive) {
            let Some(agent) = board.agents.get(&entry.agent) else { continue };
            let room = agent::capacity(board, agent);
            if room.available == 0 {
                continue;
            }
            let line = ReadyFor::Agent(entry.agent.clone());
            let own = board.ready_for(&line).take(FEW);
            let shared = pool.iter().copied().filter(|_| !entry.lead);
            found.extend(own.chain(shared).map(|task| (room.current, entry.agent.clone(), task)));
        }
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found.into_iter().map(|(_, agent, task)| Candidate { mission: None, task: Some(task), agent }).collect()
}

/// Who may get something: of a mission, or just this task.
struct Candidate {
    mission: Option<MissionId>,
    task: Option<TaskId>,
    agent: AgentName,
}

/// First who leads or answers; then least busy first, so that work spreads over a mission's agents.
fn candidates(board: &Board) -> Vec<Candidate> {
    let mut found: Vec<(u32, MissionId, AgentName)> = Vec::new();
    for mission in board.missions.values().filter(|it| it.state == State::Active) {
        let waits = |task: &Task| task.status.is_waiting() && task.is_work();
        let waiting = board.open_tasks_of(mission.id).any(|(_, id)| board.tasks.get(&id).is_some_and(|it| waits(it)));
        if !waiting {
            continue;
        }
        for agent in mission.agents.iter().filter_map(|it| board.agents.get(it)) {
            let room = agent::capacity(board, agent);
            if room.available > 0 && agent.is_run_by_regatta() {
                found.push((room.current, mission.id, agent.name.clone()));
            }
        }
    }
    found.sort();
    let workers = found.into_iter().map(|(_, mission, agent)| Candidate { mission: Some(mission), task: None, agent });
    duties(board).into_iter().chain(workers).collect()
}

/// The turns of leads and the answers that are due.
fn duties(board: &Board) -> Vec<Candidate> {
    let mut found = Vec::new();
    for agent in board.agents.values().filter(|it| it.is_run_by_regatta()) {
        // Only what we named ourselves leads and answers; whoever is talked to answers in its own name.
        let ours = |task: &Task| if agent.of.is_some() { !task.is_work() } else { task.converses() };
        let room = agent::capacity(board, agent).available as usize;
        let line = ReadyFor::Agent(agent.name.clone());
        let due = board.ready_for(&line).filter(|id| board.tasks.get(id).is_some_and(|it| ours(it))).take(room);
        found.extend(due.map(|task| Candidate { mission: None, task: Some(task), agent: agent.name.clone() }));
    }
    found
}
