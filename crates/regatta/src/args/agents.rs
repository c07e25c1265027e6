//! What may be typed about agents, approvals, policy and budgets.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::budget;
use regatta_core::ids::{AgentName, ApprovalId, RuleId};
use regatta_core::inbox::Item;

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentWord {
    /// Register an agent, or change it
    Add(Box<AgentAdd>),
    /// List the agents
    List,
    /// Show one
    Show { name: AgentName },
    /// Start an agent's program, let it say a word, and stop it
    Test { name: AgentName },
    /// Take one off the line until it registers again
    Close {
        name: AgentName,
        /// Why
        #[arg(long, value_name = "WORDS", default_value = "")]
        because: String,
    },
    /// Remove one that has nothing to do
    #[command(alias = "remove")]
    Rm { name: AgentName },
    /// List the programs this version knows, and which are installed
    Presets,
}

#[derive(Debug, Args)]
pub(crate) struct AgentAdd {
    pub(crate) name: AgentName,
    /// Take the settings of a program this version knows: regatta agent presets
    #[arg(long, value_name = "NAME", required_unless_present = "runtime")]
    pub(crate) preset: Option<String>,
    /// How its program is driven
    #[arg(long, value_enum)]
    pub(crate) runtime: Option<RuntimeArg>,
    /// How many tasks at once, 1 to 20
    #[arg(long, default_value_t = 1, env = "MAX_CONCURRENT_TASKS", hide_env = true)]
    pub(crate) max_tasks: u32,
    /// The program and its arguments; for the command runtime {prompt} stands for the prompt
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Who makes the program
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// What it is there for
    #[arg(long, default_value = "")]
    pub(crate) description: String,
    /// What it may lead: a lead breaks missions into tasks
    #[arg(long)]
    pub(crate) lead: bool,
    /// The model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// How hard it should think, in its provider's word
    #[arg(long)]
    pub(crate) effort: Option<String>,
    /// The program's own permission mode
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// One more argument for the program; give it several times for several
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// Words on top of the program's own instructions
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// A plain variable for the program; nothing secret
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) env: Vec<(String, String)>,
    /// A secret for the program: NAME=env:VARIABLE, NAME=file:PATH or NAME=command:LINE
    #[arg(long = "key", value_name = "NAME=SOURCE", value_parser = key)]
    pub(crate) keys: Vec<regatta_core::agent::Key>,
    /// How far it is shut in
    #[arg(long, value_enum)]
    pub(crate) confine: Option<LevelArg>,
    /// Keep it from the network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// A host it may reach, and no other but those listed: example.com, *.example.com, either with :PORT
    #[arg(long = "egress", value_name = "HOST")]
    pub(crate) egress: Vec<String>,
    /// It runs only on a runner that has this label; repeat it for more
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// One more path it may read
    #[arg(long = "read", value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// One more path it may write
    #[arg(long = "write", value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// Register the agent although its program is not installed here
    #[arg(long)]
    pub(crate) anyway: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    variable(name)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn variable(name: &str) -> Result<(), String> {
    let fine = !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    if fine { Ok(()) } else { Err(format!("{name:?} is no name of a variable: letters, digits and _ only")) }
}

fn key(text: &str) -> Result<regatta_core::agent::Key, String> {
    use regatta_core::agent::{Key, KeySource};
    const HOW: &str =
        "write it as NAME=env:VARIABLE, NAME=file:PATH or NAME=command:LINE; the value itself is not stored";
    let (name, source) = text.split_once('=').ok_or(HOW)?;
    variable(name)?;
    let from = match source.split_once(':') {
        Some(("env", it)) if variable(it).is_ok() => KeySource::Env(it.to_owned()),
        Some(("file", it)) if !it.is_empty() => KeySource::File(it.to_owned()),
        Some(("command", it)) if !it.is_empty() => KeySource::Command(it.to_owned()),
        _ => return Err(HOW.to_owned()),
    };
    Ok(Key { name: name.to_owned(), from })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeArg {
    /// The built-in agent that follows a task's script
    Scripted,
    /// Any program
    Command,
    /// A program that speaks the Agent Client Protocol
    Acp,
    /// Claude Code with its own stream
    Claude,
    /// codex exec: one process for one prompt
    Codex,
    /// codex app-server: one process for a session
    CodexServer,
    /// Started by somebody else, who polls in its name
    Outside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelArg {
    /// Only the system's programs and its own directories; no network
    Strict,
    /// Writes only its workspace, its own home and its temporary files
    Workspace,
    /// Whatever you can do
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReachArg {
    #[default]
    Once,
    /// Everything like it in this task
    Task,
    /// Everything like it in this mission
    Mission,
    /// Everything like it by this agent: writes a rule
    Always,
}

#[derive(Debug, Args)]
pub(crate) struct Inbox {
    #[command(subcommand)]
    pub(crate) word: Option<InboxWord>,
    /// Exit with 3 if anything waits
    #[arg(long)]
    pub(crate) check: bool,
    /// Go through it at the terminal, one item at a time
    #[arg(short, long)]
    pub(crate) interactive: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxWord {
    /// Put something off for a while; it comes back by itself
    Snooze {
        /// Q7, or the name of anything else that needs you: T9, A5, budget:day, agent:NAME
        id: Item,
        /// For how long: 30m, 2h, 1d
        #[arg(value_parser = duration_ms)]
        time: u64,
    },
    /// Bring something back that was put off
    Wake {
        /// Q7, or the name of anything else that needs you: T9, A5, budget:day, agent:NAME
        id: Item,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Allow {
    pub(crate) id: ApprovalId,
    /// And all that ask the very same
    #[arg(long)]
    pub(crate) all: bool,
    /// How far it reaches
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: ReachArg,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    pub(crate) id: ApprovalId,
    /// And all that ask the very same
    #[arg(long)]
    pub(crate) all: bool,
    /// How far it reaches
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: ReachArg,
    /// What the agent is told
    #[arg(long, value_name = "WORDS")]
    pub(crate) because: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyWord {
    /// List the rules
    List,
    /// Add a rule
    Add {
        /// allow, deny or ask
        #[arg(value_enum)]
        effect: EffectArg,
        /// The kind of tool: read, edit, delete, move, search, execute, think, fetch, switch_mode, other
        #[arg(long)]
        tool: Option<String>,
        /// The command line; * stands for anything
        #[arg(long)]
        command: Option<String>,
        /// The paths it names; * stands for anything
        #[arg(long)]
        path: Option<String>,
        /// The addresses it fetches, such as https://docs.rs/*; * stands for anything
        #[arg(long)]
        url: Option<String>,
        /// For whom: T7, M3, agent:NAME, leads, workers or all
        #[arg(long = "for", default_value = "all")]
        scope: String,
    },
    /// Take a rule away
    Rm { rule: RuleId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectArg {
    Allow,
    Deny,
    Ask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetWord {
    /// Show the budgets and what is spent
    List,
    /// Set a budget; what is left out has no end
    Set {
        /// attempt, task, T7, agent:NAME, M3 or day
        #[arg(value_parser = scope)]
        scope: budget::Scope,
        #[arg(long)]
        tokens: Option<u64>,
        /// US dollars, such as 2.50
        #[arg(long, value_parser = dollars)]
        usd: Option<u64>,
        #[arg(long)]
        turns: Option<u64>,
        #[arg(long)]
        attempts: Option<u64>,
        /// Such as 30m
        #[arg(long, value_parser = duration_ms)]
        time: Option<u64>,
    },
    /// Take a budget away
    Rm {
        #[arg(value_parser = scope)]
        scope: budget::Scope,
    },
}

fn scope(text: &str) -> Result<budget::Scope, String> {
    budget::Scope::try_from(text.to_owned()).map_err(|_| "write attempt, task, T7, agent:NAME, M3 or day".to_owned())
}

/// Millionths of a dollar, from dollars as people write them.
pub(super) fn dollars(text: &str) -> Result<u64, String> {
    let plain = text.strip_prefix('$').unwrap_or(text);
    let amount: f64 = plain.parse().map_err(|_| "write dollars, such as 2.50".to_owned())?;
    if !(0.0..=1e9).contains(&amount) {
        return Err("write dollars, such as 2.50".to_owned());
    }
    Ok((amount * 1e6).round() as u64)
}
