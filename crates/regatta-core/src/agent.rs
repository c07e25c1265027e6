//! Agents: named identities that can do work. This module has the settings of agents, their
//! registration, and the limit on an agent's simultaneous attempts.
//!
//! Not here: the choice of an agent's next task (see [`schedule`](crate::schedule)), and the pause
//! of an agent that cannot work (see [`provider_outage`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now, TaskId};
use crate::refusal::Refusal;
use crate::{provider_name, provider_outage};

/// Maximum number of tasks that an agent, a member of a team or a runner (a machine that executes
/// attempts) can work on at once.
pub const MAX_TASKS: u32 = 20;

/// The way in which Regatta starts an agent's program and talks to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "runtime")]
pub enum Runtime {
    /// The built-in agent, which asks no model: it follows the script (a list of steps) of its
    /// task.
    Scripted,
    /// Any program without a known protocol. Regatta gives the program the prompt on its standard
    /// input or as an argument, and treats exit code 0 as success.
    Command { argv: Vec<String> },
    /// A program that speaks the Agent Client Protocol (ACP), version 1, on its standard input and
    /// output.
    Acp { argv: Vec<String> },
    /// Claude Code, driven through its own JSON stream on its standard input and output.
    Claude { argv: Vec<String> },
    /// Codex, driven through its own stream: one `codex exec` process per turn or, with
    /// `app_server`, one `codex app-server` process per session.
    Codex {
        argv: Vec<String>,
        #[serde(default)]
        app_server: bool,
    },
    /// Regatta starts no program for this agent. Somebody else runs the agent, and it polls Regatta
    /// for tasks under its name.
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

    /// Returns whether the program accepts further prompts in the same session after the first one.
    pub fn accepts_follow_ups(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Scripted => true,
            Runtime::Codex { app_server, .. } => *app_server,
            Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Returns whether the agent's prompt mentions Regatta's own tools, such as `ask`, which the
    /// program calls over MCP. The prompt of the scripted agent does not mention the tools, because
    /// that agent follows a script.
    pub fn has_tools(&self) -> bool {
        match self {
            Runtime::Acp { .. } | Runtime::Claude { .. } | Runtime::Codex { .. } => true,
            Runtime::Scripted | Runtime::Command { .. } | Runtime::Outside => false,
        }
    }

    /// Returns whether the program's protocol can carry the reason when a person denies a
    /// permission. Otherwise Regatta sends the reason as a separate prompt.
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

/// The strictness of the sandbox in which an agent's program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// The program sees only the system's programs and its own directories, and can reach only the
    /// hosts in the agent's settings.
    Strict,
    /// The program may write only its workspace, its own home and its temporary files, and cannot
    /// read the user's secrets, such as SSH keys.
    #[default]
    Workspace,
    /// No sandbox: the program can do everything that the daemon's user can do.
    Off,
}

/// The source from which Regatta reads a secret when it starts an agent's program. The secret
/// itself is never stored, and Regatta redacts it from everything that the program prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// The name of a variable in the daemon's own environment.
    Env(String),
    /// The path of a file that contains the secret. A newline at the end of the file is ignored.
    File(String),
    /// A command line that prints the secret.
    Command(String),
}

/// A secret, such as an API key, that the agent's program gets in an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretVariable {
    /// The name of the environment variable in which the program gets the secret.
    pub name: String,
    pub from: SecretSource,
}

/// The settings with which Regatta starts an agent's program: the model, environment variables,
/// extra arguments, and the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Profile {
    /// The name of the preset (Regatta's built-in settings for a known program) that these settings
    /// come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// True if the program should use its faster and more expensive mode, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// The directory in which the program starts, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The name of the program's own permission mode, if the program offers several modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Arguments that are appended to the command which starts the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Text that is added to the instructions (the system prompt) that the program gives the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Environment variables for the program, as pairs of name and value. The values are stored in
    /// plain text, so secrets belong in `keys`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<SecretVariable>,
    /// The strictness of the program's sandbox. If absent, the sandbox is as strict as this machine
    /// allows.
    #[serde(rename = "confine")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// True if the program may use the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// The only hosts that the program may reach, on ports 443 and 80 unless the entry ends in
    /// `:PORT`. An empty list adds no such restriction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// Paths outside the workspace that the sandboxed program may read, absolute or under `~`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Paths outside the workspace that the sandboxed program may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Labels that a runner (a machine that executes attempts) must have before it gets this
    /// agent's work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// A short description of the agent's purpose, which the agent itself wrote when it registered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The skills that the agent listed when it registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

impl Profile {
    /// Returns whether every setting is at its default.
    pub fn is_default(&self) -> bool {
        *self == Profile::default()
    }
}

/// The role of an agent: a worker works on tasks, and a lead splits a mission into tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Lead,
    #[default]
    Worker,
}

/// An agent: a named identity, such as `claude-1`, that works on tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent {
    pub name: AgentName,
    pub runtime: Runtime,
    pub role: Role,
    /// The provider of the agent's program, if known: `anthropic`, `codex`, …
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Profile::is_default")]
    pub profile: Profile,
    pub description: String,
    /// Maximum number of attempts that the agent may have at once, from 1 to 20.
    pub max_tasks: u32,
    /// The original agent, if this agent was created for one mission or for the questions of one
    /// project. Both agents share the program, the home directory and the sign-in. Empty for every
    /// other agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub derived_from: Option<AgentName>,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
    /// The reason why the agent gets no tasks until it registers again. Empty while the agent is
    /// available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<String>,
    /// The task at which the agent's last attempt failed for good. Empty after the agent has
    /// started another attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<TaskId>,
}

impl Agent {
    /// Returns whether Regatta starts the agent's program. If not, the agent runs elsewhere and
    /// polls Regatta for tasks.
    pub fn is_run_by_regatta(&self) -> bool {
        !matches!(self.runtime, Runtime::Outside)
    }

    /// Returns whether the agent's program runs only on a runner that has the agent's labels, and
    /// so not on the daemon's machine.
    pub fn needs_runner(&self) -> bool {
        !self.profile.labels.is_empty()
    }
}

/// Environment variable that contains the path of a script file. A scripted agent (the built-in
/// agent that asks no model) follows this script if its task has no script.
pub const SCRIPT_FILE: &str = "REGATTA_SCRIPT_FILE";

/// Returns whether an agent has the script that it needs for a task. Only a scripted agent needs a
/// script: the script of the task, or a script file that the agent's environment variables name.
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

/// Returns whether nobody can do a task, because all candidates are scripted agents (built-in
/// agents that follow a script) and the task has no script.
///
/// A task without an assignee may be done by any of `agents`. Agents that are not registered count
/// as able to do the task.
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

/// The settings of an agent to register or change: the arguments of [`register`].
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

/// Registers a new agent, or updates the settings of an existing agent. A lower `max_tasks` does
/// not stop attempts that are already running.
pub fn register(
    draft: &mut Draft,
    settings: RegisterAgent,
    now: Now,
) -> Result<AgentName, Refusal> {
    if !(1..=MAX_TASKS).contains(&settings.max_tasks) {
        return Err(Refusal::invalid(
            format!("max_tasks must be 1 to 20, not {}", settings.max_tasks),
            "give a number from 1 to 20",
        ));
    }
    let lacks_program = |argv: &[String]| argv.first().is_none_or(String::is_empty);
    if settings.runtime.argv().is_some_and(lacks_program) {
        return Err(Refusal::invalid(
            format!("the {} runtime needs a command", settings.runtime.name()),
            "give the command that starts the program, such as --command 'my-agent --print \
            {prompt}'",
        ));
    }
    // Refuse only entries that are certainly not hosts: a URL, an empty entry, or an entry with
    // blanks. The sandbox checks every host in detail when the program starts.
    let is_not_a_host = |text: &&String| {
        text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '/' || c == '@')
    };
    if let Some(host) = settings.profile.egress.iter().find(is_not_a_host) {
        return Err(Refusal::invalid(
            format!("{host:?} is not a host, so it cannot be allowed for the agent's program"),
            "write example.com, *.example.com or an address, and add :PORT for a port other than \
            443 and 80",
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
        last_failed: known.as_ref().and_then(|agent| agent.last_failed),
    };
    let name = agent.name.clone();
    let has_new_program = known
        .as_ref()
        .is_some_and(|known| known.runtime != agent.runtime || known.profile != agent.profile);
    let is_unchanged = known.is_some_and(|known| {
        Agent {
            updated_unix_ms: now.unix_ms,
            ..(*known).clone()
        } == agent
    });
    // A recorded fault belongs to the earlier settings, so the new settings are tried.
    if has_new_program {
        provider_outage::clear_own_outage(draft, &name);
    }
    if !is_unchanged {
        draft.record(Event::AgentRegistered(AgentRegistered {
            agent: agent.into(),
        }));
    }
    Ok(name)
}

/// Registers a derived agent: an agent with its own name, role and task limit that uses the
/// program, home directory and sign-in of another agent.
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
        last_failed: known.as_ref().and_then(|agent| agent.last_failed),
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

/// Removes a derived agent (see [`derive()`]) when its mission or project no longer needs it.
pub(crate) fn remove_derived(draft: &mut Draft, name: &AgentName) {
    if draft.board().agents.contains_key(name) {
        draft.record(Event::AgentRemoved(AgentRemoved {
            agent: name.clone(),
        }));
    }
}

/// Takes an agent offline: it gets no new tasks until it registers again, and its running attempts
/// continue.
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

/// Removes an agent. Refuses if the agent still has an attempt, a task or a mission.
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

/// Returns the agent with this name, or a refusal if no such agent is registered.
pub fn find<'a>(board: &'a Board, name: &AgentName) -> Result<&'a Agent, Refusal> {
    board
        .agents
        .get(name)
        .map(|agent| &**agent)
        .ok_or_else(|| Refusal::NoSuchAgent {
            agent: name.clone(),
        })
}

/// The number of attempts that an agent has now, and the maximum number. The attempts are counted
/// on demand and the count is never stored, so the count cannot become stale (J4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    pub current: u32,
    pub max: u32,
    pub available: u32,
}

/// Returns how many attempts an agent has now and how many it may have at once.
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
