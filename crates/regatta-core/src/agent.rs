//! Agents: named identities that can do work, and how much at once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now};
use crate::provider_name;
use crate::refusal::Refusal;

/// The most tasks that an agent, a member of a team or a runner has at once.
pub const MAX_TASKS: u32 = 20;

/// How an agent's program is driven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "runtime")]
pub enum Runtime {
    /// The built-in agent that follows a task's script.
    Scripted,
    /// Any program: the prompt on its standard input or as an argument, its exit code for an answer.
    Command { argv: Vec<String> },
    /// A program that speaks the Agent Client Protocol, version 1, on its standard streams.
    Acp { argv: Vec<String> },
    /// Claude Code with its own stream of JSON, in and out.
    Claude { argv: Vec<String> },
    /// Codex with its own stream: one `exec` per turn, or one `app-server` for the session.
    Codex {
        argv: Vec<String>,
        #[serde(default)]
        app_server: bool,
    },
    /// Nothing is started: somebody else polls in its name.
    Outside,
}

impl Runtime {
    /// Its name, as `--runtime` takes it.
    pub fn name(&self) -> &'static str {
        match self {
            Runtime::Scripted => "scripted",
            Runtime::Command { .. } => "command",
            Runtime::Acp { .. } => "acp",
            Runtime::Claude { .. } => "claude",
            Runtime::Codex { .. } => "codex",
            Runtime::Outside => "outside",
        }
    }

    /// Whether it opens a session that takes one prompt after another.
    pub fn talks(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Scripted => true,
            Runtime::Codex { app_server, .. } => *app_server,
            Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Returns whether its model is told to use Regatta's own tools, which it gets over MCP. The scripted agent gets
    /// them too, but follows its script.
    pub fn has_tools(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Codex { .. } => true,
            Runtime::Scripted | Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Whether its protocol has room for the reason of a denied permission.
    pub fn carries_reasons(&self) -> bool {
        !matches!(self, Runtime::Acp { .. } | Runtime::Codex { .. })
    }

    /// The program and its arguments, where the agent names one.
    pub fn argv(&self) -> Option<&[String]> {
        match self {
            Runtime::Command { argv }
            | Runtime::Acp { argv }
            | Runtime::Claude { argv }
            | Runtime::Codex { argv, .. } => Some(argv),
            Runtime::Scripted | Runtime::Outside => None,
        }
    }
}

/// How far an agent's program is shut in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It sees only the system's programs and its own directories, and has no network but what is listed.
    Strict,
    /// It writes only its workspace, its own home and its temporary files, and reads no secret of the user's.
    #[default]
    Workspace,
    /// It can do whatever the user can.
    Off,
}

/// Where a secret comes from. Its value is never stored, and is redacted from everything the program prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// A variable of the daemon's own environment.
    Env(String),
    /// A file; a newline at its end does not count.
    File(String),
    /// A command line whose output it is.
    Command(String),
}

/// A secret that the program gets in its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Key {
    /// The variable the program reads it from.
    pub name: String,
    pub from: KeySource,
}

/// How an agent's program is set up: what is asked of the model, what it is given, what it may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Profile {
    /// The preset it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Whether the model answers faster for more money, where the program can have that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// The directory of its workspace in which its program begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The program's own permission mode, where it offers several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// More arguments, behind those of its command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Said to the model on top of its own instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Plain variables; nothing secret belongs here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
    /// How far it is shut in; as far as this machine can, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confine: Option<Level>,
    /// Whether it may use the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// The only hosts it may reach, if any are listed, for ports 443 and 80 or with `:PORT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// More paths that it may read, absolute or under `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// More paths that it may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// It runs only on a runner that has all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What it is there for, in its own words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// What it says it can do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

impl Profile {
    /// Whether nothing was asked.
    pub fn is_default(&self) -> bool {
        *self == Profile::default()
    }
}

/// What an agent is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Profile::is_default")]
    pub profile: Profile,
    pub description: String,
    /// How many attempts it may have at once, 1 to 20.
    pub max_tasks: u32,
    /// Whose program, home and sign-in it has, when it was named for one mission or one project's questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<AgentName>,
    pub created_wall: u64,
    pub updated_wall: u64,
    /// Why it takes no work until it registers again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<String>,
}

impl Agent {
    /// Whether Regatta starts its program. Otherwise somebody else polls in its name.
    pub fn is_run_by_regatta(&self) -> bool {
        !matches!(self.runtime, Runtime::Outside)
    }
}

/// The variable that names the script of a scripted agent, where the script is not the task's.
pub const SCRIPT_FILE: &str = "REGATTA_SCRIPT_FILE";

/// Whether an agent can do a task at all: a scripted one follows the task's script, or one of its own.
fn can_follow(agent: &Agent, has_script: bool) -> bool {
    let has_own = || agent.profile.env.iter().any(|(name, _)| name == SCRIPT_FILE);
    agent.runtime != Runtime::Scripted || has_script || has_own()
}

/// Returns whether nobody can do a task, because only scripted agents would and the task has no script.
///
/// A task without an assignee is for any of `agents`. Agents that are not registered are not judged.
pub fn lacks_script(board: &Board, agents: &[AgentName], assignee: Option<&AgentName>, has_script: bool) -> bool {
    let can = |name: &AgentName| board.agents.get(name).is_none_or(|agent| can_follow(agent, has_script));
    match assignee {
        Some(name) => !can(name),
        None => !agents.is_empty() && !agents.iter().any(can),
    }
}

facts! {
    Registered { agent: Arc<Agent> }
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
    #[serde(default, skip_serializing_if = "Profile::is_default")]
    pub profile: Profile,
    #[serde(default)]
    pub description: String,
    pub max_tasks: u32,
}

/// Registers an agent, or brings its settings up to date. Lowering `max_tasks` ends nothing that runs.
pub fn register(draft: &mut Draft, ask: Register, now: Now) -> Result<AgentName, Refusal> {
    if !(1..=MAX_TASKS).contains(&ask.max_tasks) {
        return Err(Refusal::invalid(
            format!("max_tasks is 1 to 20, not {}", ask.max_tasks),
            "give a number in that range",
        ));
    }
    if ask.runtime.argv().is_some_and(|it| it.first().is_none_or(|it| it.is_empty())) {
        return Err(Refusal::invalid(
            format!("the {} runtime needs a command", ask.runtime.name()),
            "give one: --command 'my-agent --print {prompt}'",
        ));
    }
    // What a host is, the sandbox knows; a URL or a blank is none anywhere.
    let odd = |it: &&String| it.is_empty() || it.contains(|it: char| it.is_whitespace() || it == '/' || it == '@');
    if let Some(entry) = ask.profile.egress.iter().find(odd) {
        return Err(Refusal::invalid(
            format!("{entry:?} is no host"),
            "write example.com, *.example.com or an address, each with :PORT if it is not 443 or 80",
        ));
    }
    let known = draft.board().agents.get(&ask.name).cloned();
    let agent = Agent {
        name: ask.name,
        runtime: ask.runtime,
        role: ask.role,
        provider: ask.provider.as_deref().map(provider_name::canonical).map(str::to_owned),
        profile: ask.profile,
        description: ask.description,
        max_tasks: ask.max_tasks,
        of: None,
        created_wall: known.as_ref().map_or(now.wall, |it| it.created_wall),
        updated_wall: now.wall,
        offline: None,
    };
    let name = agent.name.clone();
    let same = known.is_some_and(|it| Agent { updated_wall: now.wall, ..(*it).clone() } == agent);
    if !same {
        draft.record(Event::AgentRegistered(Registered { agent: agent.into() }));
    }
    Ok(name)
}

/// Registers an agent under a name of its own that is another one's program.
pub(crate) fn derive(
    draft: &mut Draft,
    of: &AgentName,
    name: AgentName,
    (role, max_tasks): (Role, u32),
    now: Now,
) -> Result<(), Refusal> {
    let base = find(draft.board(), of)?.clone();
    let known = draft.board().agents.get(&name).cloned();
    let agent = Agent {
        name,
        role,
        max_tasks,
        of: Some(base.of.clone().unwrap_or_else(|| of.clone())),
        created_wall: known.as_ref().map_or(now.wall, |it| it.created_wall),
        updated_wall: known.as_ref().map_or(now.wall, |it| it.updated_wall),
        ..base
    };
    if known.as_deref() != Some(&agent) {
        draft.record(Event::AgentRegistered(Registered { agent: Agent { updated_wall: now.wall, ..agent }.into() }));
    }
    Ok(())
}

/// Forgets an agent that was named for something that is over.
pub(crate) fn forget(draft: &mut Draft, name: &AgentName) {
    if draft.board().agents.contains_key(name) {
        draft.record(Event::AgentRemoved(Removed { agent: name.clone() }));
    }
}

/// Takes an agent off the line: it gets nothing more until it registers again. What it works on goes on.
pub fn leave(draft: &mut Draft, name: &AgentName, why: &str, now: Now) -> Result<(), Refusal> {
    let known = find(draft.board(), name)?.clone();
    if known.offline.is_none() {
        let agent = Agent { offline: Some(why.to_owned()), updated_wall: now.wall, ..known };
        draft.record(Event::AgentRegistered(Registered { agent: agent.into() }));
    }
    Ok(())
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
