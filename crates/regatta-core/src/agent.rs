//! Agents: named identities that can do work. This module has their settings, their registration,
//! and their limit of simultaneous attempts.
//!
//! Not here: the choice of an agent's next task (see [`schedule`](crate::schedule)), and the pause
//! of an agent that cannot work (see [`provider_outage`](crate::provider_outage)).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now};
use crate::provider_name;
use crate::refusal::Refusal;

/// The largest number of tasks that an agent, a member of a team or a runner can have at once.
pub const MAX_TASKS: u32 = 20;

/// The way in which Regatta drives an agent's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "runtime")]
pub enum Runtime {
    /// The built-in agent, which follows the script of a task.
    Scripted,
    /// Any program. It gets the prompt on its standard input or as an argument, and its exit code
    /// is the answer.
    Command { argv: Vec<String> },
    /// A program that speaks the Agent Client Protocol, version 1, on its standard streams.
    Acp { argv: Vec<String> },
    /// Claude Code with its own JSON stream in both directions.
    Claude { argv: Vec<String> },
    /// Codex with its own stream: one `exec` per turn, or one `app-server` per session.
    Codex {
        argv: Vec<String>,
        #[serde(default)]
        app_server: bool,
    },
    /// Regatta starts no program. An outside agent polls under this name.
    Outside,
}

impl Runtime {
    /// Returns the runtime's name, as `--runtime` accepts it.
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

    /// Returns whether the program opens a session that takes one prompt after another.
    pub fn accepts_follow_ups(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Scripted => true,
            Runtime::Codex { app_server, .. } => *app_server,
            Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Returns whether the prompt mentions Regatta's own tools, which the program gets over MCP.
    /// The scripted agent gets them too, but follows its script.
    pub fn has_tools(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Codex { .. } => true,
            Runtime::Scripted | Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Returns whether the program's protocol can carry the reason of a denied permission.
    pub fn carries_denial_reasons(&self) -> bool {
        !matches!(self, Runtime::Acp { .. } | Runtime::Codex { .. })
    }

    /// Returns the program and its arguments, if the runtime names a program.
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

/// The strictness of an agent's sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// The program sees only the system's programs and its own directories, and reaches only listed
    /// hosts.
    Strict,
    /// The program writes only its workspace, its own home and its temporary files, and reads no
    /// secret of the user.
    #[default]
    Workspace,
    /// The program can do everything that the user can do.
    Off,
}

/// The source of a secret. Its value is never stored, and is redacted from everything the program
/// prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// A variable of the daemon's own environment.
    Env(String),
    /// A file. A newline at its end is ignored.
    File(String),
    /// A command line that prints the secret.
    Command(String),
}

/// A secret that the program gets in its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretVariable {
    /// The variable from which the program reads the secret.
    pub name: String,
    pub from: SecretSource,
}

/// The settings of an agent's program: the model, its environment, and its sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Profile {
    /// The preset that these settings come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The model answers faster for more money, if the program supports that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// The directory of the workspace in which the program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The program's own permission mode, where it offers several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Further arguments, added after the arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// A text that is added to the model's own instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Plain variables. Secrets do not belong here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<SecretVariable>,
    /// The strictness of the sandbox. If absent, it is as strict as this machine allows.
    #[serde(rename = "confine")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// The program may use the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// The only hosts that the program may reach, if any are listed, for ports 443 and 80 or with
    /// `:PORT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// Further paths that the program may read, absolute or under `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Further paths that the program may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Labels that a runner must have to run the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The agent's purpose, in its own words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The agent's skills, as it states them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

impl Profile {
    /// Returns whether every setting is at its default.
    pub fn is_default(&self) -> bool {
        *self == Profile::default()
    }
}

/// The role of an agent.
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
    /// The maker of the program, if known: anthropic, codex, …
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Profile::is_default")]
    pub profile: Profile,
    pub description: String,
    /// The largest number of simultaneous attempts, 1 to 20.
    pub max_tasks: u32,
    /// The agent whose program, home and sign-in this agent uses, if it was derived for one mission
    /// or for the questions of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub derived_from: Option<AgentName>,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
    /// The reason why the agent gets no work until it registers again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<String>,
}

impl Agent {
    /// Returns whether Regatta starts the agent's program. Otherwise an outside agent polls under
    /// its name.
    pub fn is_run_by_regatta(&self) -> bool {
        !matches!(self.runtime, Runtime::Outside)
    }
}

/// The variable that names the script of a scripted agent, if the task has no script.
pub const SCRIPT_FILE: &str = "REGATTA_SCRIPT_FILE";

/// Returns whether an agent has the script that it needs for a task. Only a scripted agent needs
/// one: the task's script or a script of its own.
fn has_needed_script(agent: &Agent, task_has_script: bool) -> bool {
    let has_own_script = || {
        agent
            .profile
            .env
            .iter()
            .any(|(name, _)| name == SCRIPT_FILE)
    };
    agent.runtime != Runtime::Scripted || task_has_script || has_own_script()
}

/// Returns whether nobody can do a task, because all candidates are scripted agents and the task
/// has no script.
///
/// A task without an assignee is for any of `agents`. Agents that are not registered count as able.
pub fn lacks_script(
    board: &Board,
    agents: &[AgentName],
    assignee: Option<&AgentName>,
    has_script: bool,
) -> bool {
    let can_do_task = |name: &AgentName| {
        board
            .agents
            .get(name)
            .is_none_or(|agent| has_needed_script(agent, has_script))
    };
    match assignee {
        Some(name) => !can_do_task(name),
        None => !agents.is_empty() && !agents.iter().any(can_do_task),
    }
}

facts! {
    AgentRegistered { agent: Arc<Agent> }
    AgentRemoved { agent: AgentName }
}

/// The arguments of [`register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterAgent {
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

/// Registers an agent, or updates its settings. Lowering `max_tasks` stops nothing that runs.
pub fn register(
    draft: &mut Draft,
    settings: RegisterAgent,
    now: Now,
) -> Result<AgentName, Refusal> {
    if !(1..=MAX_TASKS).contains(&settings.max_tasks) {
        return Err(Refusal::invalid(
            format!("max_tasks must be 1 to 20, not {}", settings.max_tasks),
            "give a number in that range",
        ));
    }
    let lacks_program = |argv: &[String]| argv.first().is_none_or(String::is_empty);
    if settings.runtime.argv().is_some_and(lacks_program) {
        return Err(Refusal::invalid(
            format!("the {} runtime needs a command", settings.runtime.name()),
            "give one: --command 'my-agent --print {prompt}'",
        ));
    }
    // The sandbox checks hosts in detail. A URL or a blank is never a host, so it is refused here.
    let is_not_a_host = |text: &&String| {
        text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '/' || c == '@')
    };
    if let Some(host) = settings.profile.egress.iter().find(is_not_a_host) {
        return Err(Refusal::invalid(
            format!("{host:?} is not a host"),
            "write example.com, *.example.com or an address, each with :PORT if it is not 443 or \
            80",
        ));
    }
    let known = draft.board().agents.get(&settings.name).cloned();
    let agent = Agent {
        name: settings.name,
        runtime: settings.runtime,
        role: settings.role,
        provider: settings
            .provider
            .as_deref()
            .map(provider_name::canonical)
            .map(str::to_owned),
        profile: settings.profile,
        description: settings.description,
        max_tasks: settings.max_tasks,
        derived_from: None,
        created_unix_ms: known
            .as_ref()
            .map_or(now.unix_ms, |agent| agent.created_unix_ms),
        updated_unix_ms: now.unix_ms,
        offline: None,
    };
    let name = agent.name.clone();
    let is_unchanged = known.is_some_and(|known| {
        Agent {
            updated_unix_ms: now.unix_ms,
            ..(*known).clone()
        } == agent
    });
    if !is_unchanged {
        draft.record(Event::AgentRegistered(AgentRegistered {
            agent: agent.into(),
        }));
    }
    Ok(name)
}

/// Registers an agent under a new name that uses another agent's program.
pub(crate) fn derive(
    draft: &mut Draft,
    original: &AgentName,
    name: AgentName,
    role: Role,
    max_tasks: u32,
    now: Now,
) -> Result<(), Refusal> {
    let base = find(draft.board(), original)?.clone();
    let known = draft.board().agents.get(&name).cloned();
    let agent = Agent {
        name,
        role,
        max_tasks,
        derived_from: Some(
            base.derived_from
                .clone()
                .unwrap_or_else(|| original.clone()),
        ),
        created_unix_ms: known
            .as_ref()
            .map_or(now.unix_ms, |agent| agent.created_unix_ms),
        updated_unix_ms: known
            .as_ref()
            .map_or(now.unix_ms, |agent| agent.updated_unix_ms),
        ..base
    };
    if known.as_deref() != Some(&agent) {
        draft.record(Event::AgentRegistered(AgentRegistered {
            agent: Agent {
                updated_unix_ms: now.unix_ms,
                ..agent
            }
            .into(),
        }));
    }
    Ok(())
}

/// Removes a derived agent, because its mission or project needs it no longer.
pub(crate) fn remove_derived(draft: &mut Draft, name: &AgentName) {
    if draft.board().agents.contains_key(name) {
        draft.record(Event::AgentRemoved(AgentRemoved {
            agent: name.clone(),
        }));
    }
}

/// Takes an agent offline: it gets no work until it registers again. Its current work goes on.
pub fn take_offline(
    draft: &mut Draft,
    name: &AgentName,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let known = find(draft.board(), name)?.clone();
    if known.offline.is_none() {
        let agent = Agent {
            offline: Some(reason.to_owned()),
            updated_unix_ms: now.unix_ms,
            ..known
        };
        draft.record(Event::AgentRegistered(AgentRegistered {
            agent: agent.into(),
        }));
    }
    Ok(())
}

/// Removes an agent that has no attempt, task or mission.
pub fn remove(draft: &mut Draft, name: &AgentName) -> Result<(), Refusal> {
    find(draft.board(), name)?;
    let board = draft.board();
    let in_use = |by: String| {
        Err(Refusal::InUse {
            what: format!("agent {name}"),
            by,
        })
    };
    let mut attempts = board.attempts.values();
    if let Some(attempt) = attempts.find(|attempt| attempt.agent == *name) {
        return in_use(attempt.id.to_string());
    }
    let mut tasks = board.tasks.values();
    if let Some(task) = tasks.find(|task| task.assignee.as_ref() == Some(name)) {
        return in_use(task.id.to_string());
    }
    let mut missions = board.missions.values();
    if let Some(mission) = missions.find(|mission| mission.agents.contains(name)) {
        return in_use(mission.id.to_string());
    }
    draft.record(Event::AgentRemoved(AgentRemoved {
        agent: name.clone(),
    }));
    Ok(())
}

/// Returns the agent with that name.
pub fn find<'a>(board: &'a Board, name: &AgentName) -> Result<&'a Agent, Refusal> {
    board
        .agents
        .get(name)
        .map(|agent| &**agent)
        .ok_or_else(|| Refusal::NoSuchAgent {
            agent: name.clone(),
        })
}

/// An agent's load and limit, counted from live attempts and never stored (J4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    pub current: u32,
    pub max: u32,
    pub available: u32,
}

/// Returns an agent's load and limit.
pub fn capacity(board: &Board, agent: &Agent) -> Capacity {
    let current = board
        .running_by_agent
        .get(&agent.name)
        .copied()
        .unwrap_or(0);
    Capacity {
        current,
        max: agent.max_tasks,
        available: agent.max_tasks.saturating_sub(current),
    }
}
