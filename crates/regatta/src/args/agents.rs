//! The arguments of `agent`, `inbox`, `allow`, `deny`, `policy` and `budget`.

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::budget;
use regatta_core::ids::{AgentName, ApprovalId, RuleId};
use regatta_core::inbox::InboxItem;

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent, or change its settings
    Add(Box<AgentAddArgs>),
    /// List agents
    List,
    /// Show an agent
    Show {
        /// Agent to show
        name: AgentName,
    },
    /// Check that an agent's program starts, answers a short prompt and stops
    Test {
        /// Agent to test
        name: AgentName,
    },
    /// Give an agent no work until it registers again
    Close {
        /// Agent to close
        name: AgentName,
        /// Reason to show to others
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Remove an agent that has no work
    #[command(alias = "remove")]
    Rm {
        /// Agent to remove
        name: AgentName,
    },
    /// List the agent programs that this version knows, and which are installed
    Presets,
}

#[derive(Debug, Args)]
pub(crate) struct AgentAddArgs {
    /// Name of the agent, such as claude-1
    pub(crate) name: AgentName,
    /// Use the settings of a known program; regatta agent presets lists them
    #[arg(long, value_name = "NAME", required_unless_present = "runtime")]
    pub(crate) preset: Option<String>,
    /// Way in which Regatta runs the agent's program
    #[arg(long, value_enum)]
    pub(crate) runtime: Option<RuntimeArg>,
    /// Number of tasks the agent may work on at once, 1 to 20
    #[arg(
        long,
        default_value_t = 1,
        env = "MAX_CONCURRENT_TASKS",
        hide_env = true
    )]
    pub(crate) max_tasks: u32,
    /// Program and arguments; the command runtime replaces {prompt} with the prompt
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Provider of the program, such as anthropic
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Purpose of the agent
    #[arg(long, default_value = "")]
    pub(crate) description: String,
    /// Let the agent lead missions: a lead breaks a goal into tasks
    #[arg(long)]
    pub(crate) lead: bool,
    /// Model to use
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Reasoning effort, in the provider's own term
    #[arg(long)]
    pub(crate) effort: Option<String>,
    /// Permission mode of the program itself
    #[arg(long)]
    pub(crate) mode: Option<String>,
    /// Extra argument for the program; may be repeated
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// Text to add to the program's own instructions
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Environment variable for the program; use --key for secrets
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Secret variable for the program: NAME=env:VARIABLE, NAME=file:PATH or NAME=command:LINE
    #[arg(long = "key", value_name = "NAME=SOURCE", value_parser = parse_secret)]
    pub(crate) keys: Vec<regatta_core::agent::SecretVariable>,
    /// Sandbox level of the program
    #[arg(long, value_enum)]
    pub(crate) confine: Option<SandboxLevelArg>,
    /// Block network access
    #[arg(long)]
    pub(crate) no_network: bool,
    /// Allow network access only to the listed hosts: example.com, *.example.com, each with an
    /// optional :PORT; may be repeated
    #[arg(long = "egress", value_name = "HOST")]
    pub(crate) egress: Vec<String>,
    /// Run the agent only on runners that have this label; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Extra path that the program may read; may be repeated
    #[arg(long = "read", value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// Extra path that the program may write; may be repeated
    #[arg(long = "write", value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// Register the agent even if its program is not installed here
    #[arg(long)]
    pub(crate) anyway: bool,
}

/// Parses `NAME=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    check_variable_name(name)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Checks that `name` can be the name of an environment variable.
fn check_variable_name(name: &str) -> Result<(), String> {
    let fine = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fine {
        Ok(())
    } else {
        Err(format!(
            "{name:?} is not a valid variable name: use letters, digits and _, and do not start \
            with a digit"
        ))
    }
}

/// Parses the name and the source of a secret. The secret itself never stands on the command line.
fn parse_secret(text: &str) -> Result<regatta_core::agent::SecretVariable, String> {
    use regatta_core::agent::{SecretSource, SecretVariable};
    const SECRET_FORMAT: &str = "write it as NAME=env:VARIABLE, NAME=file:PATH or \
        NAME=command:LINE; the value itself is not stored";
    let (name, source) = text.split_once('=').ok_or(SECRET_FORMAT)?;
    check_variable_name(name)?;
    let from = match source.split_once(':') {
        Some(("env", s)) if check_variable_name(s).is_ok() => SecretSource::Env(s.to_owned()),
        Some(("file", s)) if !s.is_empty() => SecretSource::File(s.to_owned()),
        Some(("command", s)) if !s.is_empty() => SecretSource::Command(s.to_owned()),
        _ => return Err(SECRET_FORMAT.to_owned()),
    };
    Ok(SecretVariable {
        name: name.to_owned(),
        from,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeArg {
    /// The built-in agent that follows a task's script
    Scripted,
    /// Any program, run once per prompt
    Command,
    /// A program that speaks the Agent Client Protocol
    Acp,
    /// Claude Code, over its own stream of JSON
    Claude,
    /// codex exec: one process per prompt
    Codex,
    /// codex app-server: one process per session
    CodexServer,
    /// A program that Regatta does not start; it polls for tasks itself
    Outside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxLevelArg {
    /// Read system programs and its own directories only; no network
    Strict,
    /// Write to its workspace, its own home and its temporary files only
    Workspace,
    /// No sandbox: everything that you may do yourself
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerScopeArg {
    /// Only this request
    #[default]
    Once,
    /// Similar requests in this task
    Task,
    /// Similar requests in this mission
    Mission,
    /// Similar requests of this agent; adds a policy rule
    Always,
}

#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    pub(crate) command: Option<InboxCommand>,
    /// Exit with 3 if the inbox is not empty
    #[arg(long)]
    pub(crate) check: bool,
    /// Answer the items one by one in this terminal
    #[arg(short, long)]
    pub(crate) interactive: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Hide an item for a while; it comes back by itself
    Snooze {
        /// Item, as regatta inbox names it: Q7, T9, A5, budget:day, agent:NAME
        id: InboxItem,
        /// Time for which to hide it: 30m, 2h, 1d
        #[arg(value_parser = duration_ms)]
        time: u64,
    },
    /// Show a snoozed item again
    Wake {
        /// Item, as regatta inbox names it: Q7, T9, A5, budget:day, agent:NAME
        id: InboxItem,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// Request to allow, such as Q7
    pub(crate) id: ApprovalId,
    /// Also answer all identical requests
    #[arg(long)]
    pub(crate) all: bool,
    /// Which later requests the answer also covers
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: AnswerScopeArg,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// Request to deny, such as Q7
    pub(crate) id: ApprovalId,
    /// Also answer all identical requests
    #[arg(long)]
    pub(crate) all: bool,
    /// Which later requests the answer also covers
    #[arg(long = "for", value_enum, default_value_t)]
    pub(crate) reach: AnswerScopeArg,
    /// Reason to send to the agent
    #[arg(long, value_name = "REASON")]
    pub(crate) because: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policy rules
    List,
    /// Add a policy rule
    Add {
        /// Effect on a matching request; ask passes it to a person
        #[arg(value_enum)]
        effect: RuleEffectArg,
        /// Match this kind of tool: read, edit, delete, move, search, execute, think, fetch,
        /// switch_mode, other
        #[arg(long)]
        tool: Option<String>,
        /// Match this command line; * matches anything
        #[arg(long)]
        command: Option<String>,
        /// Match these paths; * matches anything
        #[arg(long)]
        path: Option<String>,
        /// Match these addresses, such as https://docs.rs/*; * matches anything
        #[arg(long)]
        url: Option<String>,
        /// Apply the rule to T7, M3, agent:NAME, leads, workers or all
        #[arg(long = "for", default_value = "all")]
        scope: String,
    },
    /// Remove a policy rule
    Rm {
        /// Rule to remove, such as R3
        rule: RuleId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleEffectArg {
    Allow,
    Deny,
    Ask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Show the budgets and the spending
    List,
    /// Set a budget; omitted limits are unlimited
    Set {
        /// Scope of the budget: each attempt, each task, T7, agent:NAME, M3 or day
        #[arg(value_parser = parse_budget_scope)]
        scope: budget::BudgetScope,
        /// Maximum number of tokens
        #[arg(long)]
        tokens: Option<u64>,
        /// Maximum cost in US dollars, such as 2.50
        #[arg(long, value_parser = parse_dollars)]
        usd: Option<u64>,
        /// Maximum number of turns
        #[arg(long)]
        turns: Option<u64>,
        /// Maximum number of attempts
        #[arg(long)]
        attempts: Option<u64>,
        /// Maximum working time, such as 30m
        #[arg(long, value_parser = duration_ms)]
        time: Option<u64>,
    },
    /// Remove a budget
    Rm {
        /// The budget: attempt, task, T7, agent:NAME, M3 or day
        #[arg(value_parser = parse_budget_scope)]
        scope: budget::BudgetScope,
    },
}

fn parse_budget_scope(text: &str) -> Result<budget::BudgetScope, String> {
    budget::BudgetScope::try_from(text.to_owned())
        .map_err(|_| "write attempt, task, T7, agent:NAME, M3 or day".to_owned())
}

/// Parses dollars as people write them, and returns millionths of a dollar.
pub(super) fn parse_dollars(text: &str) -> Result<u64, String> {
    let plain = text.strip_prefix('$').unwrap_or(text);
    let amount: f64 = plain
        .parse()
        .map_err(|_| "write dollars, such as 2.50".to_owned())?;
    if !(0.0..=1e9).contains(&amount) {
        return Err("write dollars, such as 2.50".to_owned());
    }
    Ok((amount * 1e6).round() as u64)
}
