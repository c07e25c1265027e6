//! Orders the requests for work ("polls") that the daemon makes for the agents whose programs it
//! starts: the agents that come first, and the machines on which an attempt is tried first.
//!
//! The dispatcher of the engine makes these requests. Not here: the decision whether a request gets
//! a task (see [`super::poll`]).

use std::cmp::Reverse;
use std::sync::Arc;

use crate::agent::{self, Agent};
use crate::board::{Board, ReadyFor};
use crate::ids::{AgentName, MissionId, RunnerName, TaskId};
use crate::launch::MemberState;
use crate::mission::MissionState;
use crate::runner::{self, Runner, RunnerState};
use crate::task::Task;

use super::{PollRequest, machine_running, starts_by_assignment};

/// The largest number of ready tasks that one round tries for an agent. More than one is tried,
/// because the first tasks may have to wait for a claim.
const MAX_TASKS_TRIED: usize = 8;

/// The requests for work that the daemon makes in one round.
pub struct PollPlan {
    /// The requests in order. Each agent in a request had free capacity when the round was planned.
    pub polls: Vec<PollRequest>,
    /// The machines with free capacity, the machine with most free capacity first. `None` is the
    /// daemon's machine.
    machines: Vec<Option<Arc<Runner>>>,
}

/// Plans one round of requests. First come the leads and the agents that answer people, then the
/// workers of missions, then the agents with assigned tasks, then the members of running teams.
pub fn plan_polls(board: &Board) -> PollPlan {
    let polls = duty_polls(board)
        .into_iter()
        .chain(worker_polls(board))
        .chain(assigned_polls(board))
        .chain(member_polls(board))
        .collect();
    PollPlan {
        polls,
        machines: free_machines(board),
    }
}

impl PollPlan {
    /// Returns the machines on which an attempt of this agent may run, in the order in which they
    /// are tried. `None` is the daemon's machine.
    pub fn places(&self, agent: &Agent) -> impl Iterator<Item = Option<&RunnerName>> {
        self.machines
            .iter()
            .map(Option::as_deref)
            .filter(|machine| match machine {
                Some(runner) => runner.can_run(agent),
                None => !agent.needs_runner(),
            })
            .map(|machine| machine.map(|runner| &runner.name))
    }
}

/// Returns the machines that can run another attempt, the machine with most free capacity first.
fn free_machines(board: &Board) -> Vec<Option<Arc<Runner>>> {
    let running_here = machine_running(board, None) as u32;
    // The daemon's machine is in the list even when it is full, because light attempts (turns of
    // leads and answers to questions) do not count against the machine's limit.
    let mut machines = vec![(board.limits.max_attempts.saturating_sub(running_here), None)];
    for runner in board
        .runners
        .values()
        .filter(|runner| runner.state == RunnerState::Up)
    {
        let running = runner::running_attempts(board, &runner.name);
        if running < runner.max_tasks {
            machines.push((runner.max_tasks - running, Some(runner.clone())));
        }
    }
    machines.sort_by_key(|(free_slots, _)| Reverse(*free_slots));
    machines.into_iter().map(|(_, machine)| machine).collect()
}

/// Returns a request for exactly this task.
fn poll_for_task(agent: &AgentName, task: TaskId) -> PollRequest {
    PollRequest {
        task: Some(task),
        ..PollRequest::new(agent.clone())
    }
}

/// Returns the agents whose programs Regatta starts.
fn supervised_agents(board: &Board) -> impl Iterator<Item = &Arc<Agent>> {
    board
        .agents
        .values()
        .filter(|agent| agent.is_run_by_regatta())
}

/// Returns the requests of agents that must now take a turn as a lead, or answer a person.
fn duty_polls(board: &Board) -> Vec<PollRequest> {
    let mut polls = Vec::new();
    for agent in supervised_agents(board) {
        // Only agents that Regatta derived from another agent act as leads of missions or answer
        // questions. In a conversation, the original agent itself answers.
        let is_duty = |task: &Task| {
            if agent.derived_from.is_some() {
                !task.is_polled()
            } else {
                task.is_conversation()
            }
        };
        let queue = ReadyFor::Agent(agent.name.clone());
        let due = board
            .ready_for(&queue)
            .filter(|id| board.tasks.get(id).is_some_and(|task| is_duty(task)))
            .take(agent::capacity(board, agent).available as usize);
        polls.extend(due.map(|task| poll_for_task(&agent.name, task)));
    }
    polls
}

/// Returns the requests of the workers of missions that have waiting tasks. The least busy workers
/// come first, so that work spreads over a mission's agents.
fn worker_polls(board: &Board) -> impl Iterator<Item = PollRequest> {
    let mut workers: Vec<(u32, MissionId, AgentName)> = Vec::new();
    for mission in board
        .missions
        .values()
        .filter(|mission| mission.state == MissionState::Active)
    {
        let is_startable = |task: &Task| task.status.is_waiting() && task.is_polled();
        let has_waiting_task = board
            .open_tasks_of(mission.id)
            .any(|(_, id)| board.tasks.get(&id).is_some_and(|task| is_startable(task)));
        if !has_waiting_task {
            continue;
        }
        for agent in mission
            .agents
            .iter()
            .filter_map(|name| board.agents.get(name))
            .filter(|agent| agent.is_run_by_regatta())
        {
            let capacity = agent::capacity(board, agent);
            if capacity.available > 0 {
                workers.push((capacity.current, mission.id, agent.name.clone()));
            }
        }
    }
    workers.sort();
    workers.into_iter().map(|(_, mission, agent)| PollRequest {
        mission: Some(mission),
        ..PollRequest::new(agent)
    })
}

/// Returns the requests of agents with free capacity for the ready tasks that were assigned to
/// them. Such a task needs no mission to start.
fn assigned_polls(board: &Board) -> Vec<PollRequest> {
    let mut polls = Vec::new();
    for agent in supervised_agents(board) {
        if agent::capacity(board, agent).available == 0 {
            continue;
        }
        let queues = [
            ReadyFor::Offered(agent.name.clone()),
            ReadyFor::Agent(agent.name.clone()),
        ];
        let starts = |id: &TaskId| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| starts_by_assignment(board, task))
        };
        let ready = queues
            .iter()
            .flat_map(|queue| board.ready_for(queue))
            .filter(starts)
            .take(MAX_TASKS_TRIED);
        polls.extend(ready.map(|task| poll_for_task(&agent.name, task)));
    }
    polls
}

/// Returns the requests of the members of running teams: the least busy members first, one request
/// for each ready task that the member may take. These are the tasks that are assigned to the
/// member and, unless the member leads the team, the project's tasks for any member.
fn member_polls(board: &Board) -> impl Iterator<Item = PollRequest> {
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
        for member in launch
            .members
            .iter()
            .filter(|member| member.state == MemberState::Alive)
        {
            let Some(agent) = board.agents.get(&member.agent) else {
                continue;
            };
            let capacity = agent::capacity(board, agent);
            if capacity.available == 0 {
                continue;
            }
            let queue = ReadyFor::Agent(agent.name.clone());
            let own_tasks = board.ready_for(&queue).take(MAX_TASKS_TRIED);
            let member_tasks = shared_tasks.iter().copied().filter(|_| !member.lead);
            ready_tasks.extend(
                own_tasks
                    .chain(member_tasks)
                    .map(|task| (capacity.current, agent.name.clone(), task)),
            );
        }
    }
    // The sort is stable, so the tasks of a member keep their order.
    ready_tasks.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    ready_tasks
        .into_iter()
        .map(|(_, agent, task)| poll_for_task(&agent, task))
}
