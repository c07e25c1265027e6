//! The arguments of every command, declared with clap.
//!
//! The documentation comments of these types are the help texts that people read with `--help`.
//! They are imperative and have no full stop. The examples below each help text are in
//! `crate::examples`.

mod access; // listening addresses, access tokens, runners, audit
mod agents; // agents, inbox, approvals, policy, budgets
mod bridges; // bridges to chat and issue services
mod hooks; // messages, hooks, generated names
mod missions; // missions, replay, graph, cost
mod plans; // run, plan check
mod review; // diff, revise
mod scope; // scope escapes and standing rules
mod tasks; // tasks and claims
mod teams; // teams

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, BranchName, ClaimId, MissionId, ProjectName, TaskId};

use crate::settings::duration_ms;

pub(crate) use access::*;
pub(crate) use agents::*;
pub(crate) use bridges::*;
pub(crate) use hooks::*;
pub(crate) use missions::*;
pub(crate) use plans::*;
pub(crate) use review::*;
pub(crate) use scope::*;
pub(crate) use tasks::*;
pub(crate) use teams::*;

/// The help that `regatta --help` prints: seven groups of commands, and the rest in one line.
pub(crate) const HELP: &str = "\
Run a team of coding agents on one git repository and land their work

Usage: regatta [OPTIONS] [COMMAND]

Start     init       put this repository under management
          demo       see a whole run on a throw-away repository
          doctor     find problems in the setup, and how to fix them
          up, down   start the daemon in the background; stop it and its agents
Work      run        run a plan: agents do its tasks, validated commits land
          add        add a task
          edit       change a task
          assign     give a task to an agent
          tell       send a message to the agent that works on a task
          mission    give a goal to a lead, an agent that breaks it into tasks
See       status     show what every agent is doing
          show       show a task, an attempt, an agent or a mission
          why        explain why a task waits now, what comes next, why it waited before
          watch      open a live view in this terminal; answer the inbox by key
          graph      show which task waits for which; cost: what was spent
          replay     show a mission as it was at any revision; compare missions
          open       print an address that opens the web page, signed in
          events     print every event since a revision
          logs       print the output of an attempt's program
Decide    inbox      list everything that needs a person
          answer     answer a question; allow or deny a request
Land      land       land a task's finished work; diff, revise, drop it
          queue      show the landing queue; hold it, release it
          undo       revert a task that has landed
Control   stop       stop a task, a mission or everything; the work is kept
          pause      pause a task; resume continues it, retry tries it again
          takeover   work in a task's workspace by hand
Set up    agent      manage agents; provider finds their programs
          team       manage teams of agents that start and stop together
          bridge     talk to agents in Slack, GitHub, Linear and Telegram
          policy     set what agents may do without asking
          budget     set what may be spent
          config     show the settings, and where they come from

Plumbing  serve project plan task scope rule claim msg hook token audit runner mcp name schema
          completions man version backup restore migrate guide help

Options:
  -C, --repo PATH     act as if started in PATH
      --project NAME  choose the project (default: that of the directory)
      --json          print one JSON object on standard output
  -q, --quiet         print only errors and requested data; -qq prints nothing
  -v, --verbose       print more; -vv prints everything
      --color WHEN    use colours: auto, always or never
      --no-input      never ask a question
  -y, --yes           answer yes to every question
      --timeout 10m   give up after this long (exit code 124)
      --server URL    use the daemon at URL; REGATTA_TOKEN holds its token
      --no-hint       print no next: lines
  -h, --help          print this; also regatta COMMAND --help and regatta help exit-codes
  -V, --version       print the version
";

/// The table of exit codes, for `regatta help exit-codes` and the manual.
pub(crate) const EXIT_CODES: &str = "\
  0  done
  1  failed
  2  usage: wrong command, option or argument
  3  needs a person (only with --wait)
  4  no agent for the work, or its program is not signed in
  5  conflict or stale: claim_held, stale_token, stale_attempt, already_exists
  6  the daemon cannot be reached
  7  budget reached
  8  partly done: some tasks landed, others did not
124  timed out
130  interrupted
";

#[derive(Debug, Parser)]
#[command(name = "regatta", version, override_help = HELP, disable_help_subcommand = true, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Act as if started in PATH
    #[arg(
        short = 'C',
        long,
        global = true,
        value_name = "PATH",
        env = "REGATTA_REPO",
        hide_env = true,
        hide = true
    )]
    pub(crate) repo: Option<PathBuf>,
    /// Choose the project
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) project: Option<ProjectName>,
    /// Print one JSON object
    #[arg(long, global = true, hide = true)]
    pub(crate) json: bool,
    /// Print only errors and requested data
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) quiet: u8,
    /// Print more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) verbose: u8,
    /// Choose when to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = ColorWhen::Auto, env = "REGATTA_COLOR", hide_env = true, hide = true)]
    pub(crate) color: ColorWhen,
    /// Never ask a question
    #[arg(long, global = true, env = "REGATTA_NO_INPUT", hide_env = true, value_parser = clap::builder::FalseyValueParser::new(), hide = true)]
    pub(crate) no_input: bool,
    /// Answer yes to every question
    #[arg(short, long, global = true, hide = true)]
    pub(crate) yes: bool,
    /// Give up after this long (exit code 124)
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration_ms, hide = true)]
    pub(crate) timeout: Option<u64>,
    /// Use the daemon at this address
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "REGATTA_SERVER",
        hide_env = true,
        hide = true
    )]
    pub(crate) server: Option<String>,
    /// Print no next: lines
    #[arg(long, global = true, hide = true)]
    pub(crate) no_hint: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Put this repository under management
    Init(InitArgs),
    /// See a whole run on a throw-away repository
    Demo(DemoArgs),
    /// Find problems in the setup, and how to fix them
    Doctor {
        /// End agent processes whose data directory has no running daemon
        #[arg(long)]
        end_strays: bool,
    },
    /// Start the daemon in the background
    Up {
        /// Replace the running daemon; its agents keep running
        #[arg(long)]
        restart: bool,
        #[command(flatten)]
        listen: ListenArgs,
    },
    /// Stop the daemon and its agents
    Down {
        /// Let the agents keep running; the next daemon picks them up
        #[arg(long)]
        keep_agents: bool,
    },
    /// Run a plan: agents do its tasks, and validated commits land on the trunk
    Run(RunArgs),
    /// Add a task
    Add(Box<TaskAddArgs>),
    /// Change a task
    Edit(Box<TaskEditArgs>),
    /// Give a task to an agent
    Assign(AssignArgs),
    /// Show what every agent is doing
    Status,
    /// Show a task, an attempt, an agent, a mission or a request
    Show {
        /// T21, A5, M3, Q7 or an agent's name
        id: String,
    },
    /// Explain why a task waits, what comes next, and what it waited for before
    Why {
        /// A task (T21), one of its requests (Q7) or landings (L3), or an agent's name
        id: String,
    },
    /// Show a live view in this terminal, and answer the inbox by key
    Watch,
    /// Show which tasks wait for which
    Graph(GraphArgs),
    /// Show spending by provider, mission, agent or model, and when the daily budget will be
    /// reached
    Cost {
        /// Group the sums by provider, mission, agent or model
        #[arg(long, value_enum, default_value_t = CostByArg::Provider)]
        by: CostByArg,
        /// First day to count: today, yesterday, 7d, 2w or a date such as 2026-07-01
        #[arg(long, value_name = "WHEN", value_parser = missions::parse_days_since)]
        since: Option<u32>,
    },
    /// Show a mission as it was at any revision
    Replay(ReplayArgs),
    /// Compare missions side by side: time, landed tasks, retries, cost, conflicts
    Compare {
        /// Missions to compare, such as M3
        #[arg(required = true, num_args = 1..=8, value_name = "MISSION")]
        ids: Vec<MissionId>,
    },
    /// Print a one-time address that signs a browser in to the web page
    Open,
    /// Print every event since a revision
    Events(EventsArgs),
    /// Print the output of an attempt's program
    Logs {
        /// Task (T7) or attempt (A9)
        id: String,
        /// Keep printing until the attempt ends
        #[arg(short, long)]
        follow: bool,
        /// Print the unprocessed journal: < marks input to the program, > its output, ! its errors
        #[arg(long)]
        raw: bool,
        /// Print the output of the checks on its work instead
        #[arg(long, conflicts_with_all = ["follow", "raw"])]
        check: bool,
    },
    /// Land a task's finished work
    Land {
        /// Task to land
        #[arg(required_unless_present = "now")]
        id: Option<TaskId>,
        /// Land this workspace (its task, attempt or path) under a claim on the trunk that you
        /// hold, and wait
        #[arg(long, value_name = "WORKSPACE", requires = "claim", requires = "token", conflicts_with_all = ["id", "first"])]
        now: Option<String>,
        /// Your claim on workspace://PROJECT/default
        #[arg(long, requires = "now")]
        claim: Option<ClaimId>,
        /// Fencing token of that claim, as claim acquire printed it
        #[arg(long, requires = "now", value_name = "N")]
        token: Option<u64>,
        /// Wait until the task has landed or has left the queue
        #[arg(long)]
        wait: bool,
        /// Put the task at the front of the queue, behind the trials that already run
        #[arg(long)]
        first: bool,
    },
    /// Show the landing queue, hold it or release it
    Queue {
        #[command(subcommand)]
        command: Option<QueueCommand>,
        /// Show the merge status of every branch, with its outcome, conflicts and fix-ups
        #[arg(long)]
        all: bool,
    },
    /// Show what a task's finished work changes
    Diff(DiffArgs),
    /// Send finished work back for changes
    Revise(ReviseArgs),
    /// Drop finished work; a copy is kept for thirty days
    Drop {
        /// Task whose work to drop
        id: TaskId,
        /// Reason to show to others
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Revert a landed task; the revert goes through the same queue
    Undo {
        /// Task or its landed commit; omit it to list the work that can be reverted
        id: Option<String>,
        /// Wait until the task has landed or has left the queue
        #[arg(long)]
        wait: bool,
    },
    /// Stop a task, a mission or all missions; the work is kept
    Stop(StopArgs),
    /// Pause a task; its session is kept if the program can continue it later
    Pause {
        /// Task, its attempt, or the agent that works on it
        id: String,
        /// Reason to show to others
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Resume a paused task, mission or agent
    Resume {
        /// Tasks, missions or agents to resume
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Try a task again
    Retry {
        /// Task to try again
        id: TaskId,
    },
    /// Work in a task's workspace by hand while its agent waits
    Takeover {
        /// Task to take over
        id: TaskId,
        /// Start the agent's own program in the workspace, in the agent's session
        #[arg(long, conflicts_with = "command")]
        session: bool,
        /// Command to start in the workspace instead of a shell
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Send a message to the agent that works on a task
    Tell {
        /// Task, its attempt, or the agent that works on it
        id: String,
        /// The message
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
    },
    /// List everything that needs a person
    Inbox(InboxArgs),
    /// Answer an item of the inbox
    Answer {
        /// Item, as the first column of regatta inbox names it: Q7, T9, A5, budget:day, agent:NAME,
        /// V3
        id: String,
        /// Answer to the question, the number of a choice, or the name of a choice and its argument
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
        /// Message to send with the answer
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
    },
    /// Allow a request of an agent
    Allow(AllowArgs),
    /// Deny a request of an agent
    Deny(DenyArgs),
    /// Manage agents
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Manage teams: a lead and its members, launched and stopped together
    #[command(subcommand)]
    Team(TeamSubcommand),
    /// Find the agent programs that are installed on this machine
    Provider,
    /// Manage the rules about what agents may do without asking
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Manage budgets: limits on tokens, money, turns, attempts and time
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// Show the settings and where they come from, or change one
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Run the daemon in the foreground
    #[command(hide = true)]
    Serve(ListenArgs),
    /// Manage projects
    #[command(subcommand, hide = true)]
    Project(ProjectCommand),
    /// Check plan files
    #[command(subcommand, hide = true)]
    Plan(PlanCommand),
    /// List changes outside the tasks' manifests, and make follow-up tasks
    #[command(hide = true)]
    Scope {
        #[command(subcommand)]
        command: Option<ScopeCommand>,
    },
    /// Manage the standing rules of this project
    #[command(subcommand, hide = true)]
    Rule(RuleCommand),
    /// Manage tasks one by one
    #[command(subcommand, hide = true)]
    Task(TaskCommand),
    /// Manage claims
    #[command(subcommand, hide = true)]
    Claim(ClaimCommand),
    /// Send and read messages
    #[command(subcommand, hide = true)]
    Msg(MsgCommand),
    /// Manage hooks: commands that run when a message, an event or a freed claim matches
    #[command(subcommand, hide = true)]
    Hook(HookCommand),
    /// Manage bridges: agents in Slack, GitHub, Linear and Telegram
    #[command(subcommand, hide = true)]
    Bridge(BridgeCommand),
    /// Give a goal to a lead, and control missions
    #[command(subcommand, hide = true)]
    Mission(MissionCommand),
    /// Update older configuration and hooks, after showing the change
    #[command(hide = true)]
    Migrate(MigrateArgs),
    /// Print a guide for agents
    #[command(hide = true)]
    Guide {
        /// triage, start, finish, landing or lead; omit it to list the guides
        name: Option<String>,
    },
    /// Manage access tokens for the API, the web page and runners
    #[command(subcommand, hide = true)]
    Token(TokenCommand),
    /// Run attempts on this machine for a daemon on another one: --server URL --token-file FILE
    #[command(hide = true)]
    Runner(RunnerArgs),
    /// List every requested change with its author, origin and outcome
    #[command(hide = true)]
    Audit(AuditArgs),
    /// Serve Regatta's tools on standard input and output (Model Context Protocol)
    #[command(hide = true)]
    Mcp,
    /// Print readable names that are not in use
    #[command(hide = true)]
    Name(NameArgs),
    /// Print the JSON Schema of an API verb's input or answer
    #[command(hide = true)]
    Schema {
        /// Schema to print, such as task.add, task.list, plan or config; omit it to list all
        kind: Option<String>,
    },
    /// Print a completion script
    #[command(hide = true)]
    Completions {
        /// Shell to print the script for
        shell: clap_complete::Shell,
    },
    /// Print the manual, or write its pages to a directory
    #[command(hide = true)]
    Man {
        /// Write one page per command to this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print the version
    #[command(hide = true)]
    Version,
    /// List the failpoints at which a test can end the daemon
    #[command(hide = true)]
    Failpoints,
    /// Complete a command line for a shell (internal)
    #[command(hide = true)]
    Complete {
        /// The arguments of regatta up to the cursor
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Write a copy of the store to a new file
    #[command(hide = true)]
    Backup {
        /// File to create
        file: PathBuf,
    },
    /// Restore the store from a copy; the daemon must be down
    #[command(hide = true)]
    Restore {
        /// File that regatta backup wrote
        file: PathBuf,
    },
    /// Print help on a command or a topic
    #[command(hide = true)]
    Help {
        /// A command, or exit-codes
        topic: Vec<String>,
    },
    /// Run the scripted agent (internal)
    #[command(hide = true)]
    ScriptedAgent {
        /// Speak the Agent Client Protocol
        #[arg(long)]
        acp: bool,
    },
    /// Notify and watch a worker of a gc pool (internal)
    #[command(hide = true)]
    GcWorker {
        /// Path of the gc program
        #[arg(long, default_value = "gc")]
        gc: String,
        /// Name of the worker
        alias: String,
    },
    /// Supervise an attempt's program (internal)
    #[command(hide = true)]
    Shim {
        /// Arguments that the adapter passes
        args: Vec<OsString>,
    },
}

impl CliCommand {
    /// Returns true if the command only reads. Such a command does not start a daemon that a person
    /// has stopped.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            CliCommand::Status
            | CliCommand::Show { .. }
            | CliCommand::Why { .. }
            | CliCommand::Watch
            | CliCommand::Graph(_)
            | CliCommand::Cost { .. }
            | CliCommand::Replay(_)
            | CliCommand::Compare { .. }
            | CliCommand::Open
            | CliCommand::Events(_)
            | CliCommand::Logs { .. }
            | CliCommand::Diff(_)
            | CliCommand::Inbox(_)
            | CliCommand::Audit(_)
            | CliCommand::Provider
            | CliCommand::Backup { .. } => true,
            CliCommand::Queue { command: word, .. } => word.is_none(),
            CliCommand::Undo { id, .. } => id.is_none(),
            CliCommand::Agent(word) => {
                matches!(
                    word,
                    AgentCommand::List | AgentCommand::Show { .. } | AgentCommand::Presets
                )
            }
            CliCommand::Team(word) => {
                matches!(
                    word,
                    TeamSubcommand::List { .. }
                        | TeamSubcommand::Show { .. }
                        | TeamSubcommand::Explain { .. }
                )
            }
            CliCommand::Policy(word) => matches!(word, PolicyCommand::List),
            CliCommand::Budget(word) => matches!(word, BudgetCommand::List),
            CliCommand::Config(word) => matches!(word, ConfigCommand::Show { .. }),
            CliCommand::Project(word) => matches!(word, ProjectCommand::List),
            CliCommand::Scope { command: word } => word
                .as_ref()
                .is_none_or(|word| matches!(word, ScopeCommand::List)),
            CliCommand::Rule(word) => matches!(word, RuleCommand::List | RuleCommand::Test { .. }),
            CliCommand::Task(word) => {
                matches!(word, TaskCommand::List { .. } | TaskCommand::Show { .. })
            }
            CliCommand::Claim(word) => {
                matches!(word, ClaimCommand::List | ClaimCommand::Check { .. })
            }
            CliCommand::Msg(word) => {
                matches!(
                    word,
                    MsgCommand::History { .. }
                        | MsgCommand::Watch { .. }
                        | MsgCommand::Attachment { .. }
                )
            }
            CliCommand::Hook(word) => matches!(word, HookCommand::List | HookCommand::Log { .. }),
            CliCommand::Bridge(word) => {
                matches!(
                    word,
                    BridgeCommand::List
                        | BridgeCommand::Conversations { .. }
                        | BridgeCommand::Show { .. }
                )
            }
            CliCommand::Mission(word) => {
                matches!(word, MissionCommand::List | MissionCommand::Show { .. })
            }
            CliCommand::Token(word) => matches!(word, TokenCommand::List),
            _ => false,
        }
    }
}

#[derive(Debug, Default, Args)]
pub(crate) struct InitArgs {
    /// Branch to land on (default: the branch that is checked out)
    #[arg(long)]
    pub(crate) trunk: Option<BranchName>,
    /// Command that every landing must pass; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// Print regatta.toml instead of writing it, and change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Do not add the hook that routes people's messages in the project's channel
    #[arg(long)]
    pub(crate) no_router: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of scripted agents
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) size: u32,
    /// Keep the repository afterwards
    #[arg(long)]
    pub(crate) keep: bool,
    /// Keep the daemon running afterwards
    #[arg(long)]
    pub(crate) serve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskTypeArg {
    Feature,
    Bug,
    Task,
    Docs,
    Chore,
    Ci,
}

#[derive(Debug, Args)]
pub(crate) struct TaskAddArgs {
    /// One line that describes the work
    pub(crate) subject: String,
    /// Kind of work
    #[arg(long = "type", value_enum, default_value_t = TaskTypeArg::Task)]
    pub(crate) issue_type: TaskTypeArg,
    /// Files that the task may change: src/a.rs,web/**
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Vec<String>,
    /// Command that must pass; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// File that must exist afterwards; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Vec<String>,
    /// Tasks that must land first: T1,T2
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    pub(crate) blocked_by: Vec<TaskId>,
    /// Priority: 0 starts first, 9 last
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// Details for the agent
    #[arg(short, long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// Finish with a report instead of changes
    #[arg(long)]
    pub(crate) report: bool,
    /// Steps for the scripted agent, as a JSON array
    #[arg(long, value_name = "JSON")]
    pub(crate) script: Option<String>,
    /// Put the task into the backlog, where it does not start
    #[arg(long)]
    pub(crate) backlog: bool,
    /// Assign the task to this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) assign: Option<AgentName>,
    /// Offer the task to the agent, which may decline it
    #[arg(long, requires = "assign", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Add the task to the agent's queue, even if the queue is full
    #[arg(long, requires = "assign")]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskEditArgs {
    /// Task to change
    pub(crate) id: TaskId,
    /// Change its subject
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Change its description
    #[arg(short, long)]
    pub(crate) description: Option<String>,
    /// Change its kind of work
    #[arg(long = "type", value_enum)]
    pub(crate) issue_type: Option<TaskTypeArg>,
    /// Change the files that it may change
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Option<Vec<String>>,
    /// Change the commands that must pass
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Option<Vec<String>>,
    /// Change the files that must exist afterwards
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Option<Vec<String>>,
    /// Change its blockers; "" removes them
    #[arg(long, value_name = "TASKS")]
    pub(crate) blocked_by: Option<String>,
    /// Change its priority: 0 starts first, 9 last
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Pause the task, with a reason
    #[arg(long, value_name = "REASON", conflicts_with = "ready")]
    pub(crate) pause: Option<String>,
    /// Make the task ready: out of the backlog and not paused
    #[arg(long)]
    pub(crate) ready: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AssignArgs {
    /// Task to assign
    pub(crate) id: TaskId,
    /// Agent to assign it to; omit it to remove the assignment
    pub(crate) agent: Option<AgentName>,
    /// Offer the task to the agent, which may decline it
    #[arg(long, requires = "agent", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Add the task to the agent's queue, even if the queue is full
    #[arg(long, requires = "agent")]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Start after this revision
    #[arg(long, value_name = "REVISION")]
    pub(crate) after: Option<u64>,
    /// Keep printing new events
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Task, attempt, agent, mission or hook firing to stop; omit it to stop every mission
    pub(crate) id: Option<String>,
    /// Start the stopped work again at once, in a new attempt
    #[arg(long, requires = "id", conflicts_with = "drain")]
    pub(crate) again: bool,
    /// Let running attempts finish, and start nothing new
    #[arg(long, conflicts_with = "now")]
    pub(crate) drain: bool,
    /// End running attempts at once (the default)
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting
    Show {
        /// Print where each setting comes from
        #[arg(long)]
        origin: bool,
    },
    /// Change a setting of the running daemon
    Set {
        /// Name of the setting, such as max_attempts
        name: String,
        /// Its new value
        value: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// List the projects
    List,
    /// Remove a project that has no open work; its repository and history are kept
    #[command(alias = "remove")]
    Rm {
        /// Project to remove
        name: ProjectName,
    },
}

/// The subcommands of `regatta queue`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Hold the queue: running trials finish, and nothing new starts or lands
    Hold {
        /// Reason to show to the people whose work waits
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
        /// Names that do not belong here, because the whole queue is held
        #[arg(hide = true)]
        unexpected: Vec<String>,
    },
    /// Release the queue
    Release,
    /// Accept the trunk as it is, although it differs from the landed work
    Accept,
}
