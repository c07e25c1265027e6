//! Agents: named identities that can do work, and how much at once.

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now};
use crate::refusal::Refusal;

/// How an agent's program is driven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "runtime")]
pub enum Runtime {
    /// The built-in agent that follows a task's script.
    Scripted,
    /// Any program.
    Command { argv: Vec<String> },
    /// Nothing is started: somebody else polls in its name.
    Outside,
}

impl Runtime {
    /// Its name, as `--runtime` takes it.
    pub fn name(&self) -> &'static str {
        match self {
            Runtime::Scripted => "scripted",
            Runtime::Command { .. } => "command",
            Runtime::Outside => "outside",
        }
    }
}

/// What an agent is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Lead,
    #[default]
    Worker,
}

/// A named identity that can do work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent {
    pub name: AgentName,
    pub runtime: Runtime,
    pub role: Role,
    /// Who makes the program, if that is known: anthropic, codex, …
    pub provider: Option<String>,
    pub description: String,
    /// How many attempts it may have at once, 1 to 20.
    pub max_tasks: u32,
    pub created_wall: u64,
    pub updated_wall: u64,
}

facts! {
    Registered { agent: Agent }
    Removed { agent: AgentName }
}

/// What is asked of [`register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Register {
    pub name: AgentName,
    pub runtime: Runtime,
    #[serde(default)]
    pub role: Role,
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default)]
    pub description: String,
    pub max_tasks: u32,
}

/// Registers an agent, or brings its settings up to date. Lowering `max_tasks` ends nothing that runs.
pub fn register(draft: &mut Draft, ask: Register, now: Now) -> Result<AgentName, Refusal> {
    if !(1..=20).contains(&ask.max_tasks) {
        return Err(Refusal::invalid(
            format!("max_tasks is 1 to 20, not {}", ask.max_tasks),
            "give a number in that range",
        ));
    }
    if let Runtime::Command { argv } = &ask.runtime
        && argv.first().is_none_or(|it| it.is_empty())
    {
        return Err(Refusal::invalid(
            "the command runtime needs a command",
            "give one: --command 'my-agent --print {prompt}'",
        ));
    }
    let known = draft.board().agents.get(&ask.name).cloned();
    let agent = Agent {
        name: ask.name,
        runtime: ask.runtime,
        role: ask.role,
        provider: ask.provider,
        description: ask.description,
        max_tasks: ask.max_tasks,
        created_wall: known.as_ref().map_or(now.wall, |it| it.created_wall),
        updated_wall: now.wall,
    };
    let name = agent.name.clone();
    let same = known.is_some_and(|it| Agent { updated_wall: now.wall, ..(*it).clone() } == agent);
    if !same {
        draft.record(Event::AgentRegistered(Registered { agent }));
    }
    Ok(name)
}

/// Removes an agent that has nothing to do.
pub fn remove(draft: &mut Draft, name: &AgentName) -> Result<(), Refusal> {
    find(draft.board(), name)?;
    let board = draft.board();
    if let Some(attempt) = board.attempts.values().find(|it| it.agent == *name) {
        return Err(Refusal::InUse { what: format!("agent {name}"), by: attempt.id.to_string() });
    }
    if let Some(task) = board.tasks.values().find(|it| it.assignee.as_ref() == Some(name)) {
        return Err(Refusal::InUse { what: format!("agent {name}"), by: task.id.to_string() });
    }
    if let Some(mission) = board.missions.values().find(|it| it.agents.contains(name)) {
        return Err(Refusal::InUse { what: format!("agent {name}"), by: mission.id.to_string() });
    }
    draft.record(Event::AgentRemoved(Removed { agent: name.clone() }));
    Ok(())
}

/// The agent of that name.
pub fn find<'a>(board: &'a Board, name: &AgentName) -> Result<&'a Agent, Refusal> {
    board.agents.get(name).map(|it| &**it).ok_or_else(|| Refusal::NoSuchAgent { agent: name.clone() })
}

/// How much an agent has to do: counted from live attempts, never stored (J4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    pub current: u32,
    pub max: u32,
    pub available: u32,
}

/// Counts an agent's room.
pub fn capacity(board: &Board, agent: &Agent) -> Capacity {
    let current = board.running.get(&agent.name).copied().unwrap_or(0);
    Capacity { current, max: agent.max_tasks, available: agent.max_tasks.saturating_sub(current) }
}
