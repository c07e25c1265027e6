//! What may be typed. Help texts are imperative, without a period.

mod agents; // agents, approvals, policy, budgets
mod bridges; // conversations in outside services
mod doors; // tokens, runners
mod hooks; // messages, hooks, names
mod missions; // missions with a lead
mod plans; // runs and plans
mod review; // finished work
mod scope; // escapes and standing rules
mod tasks; // tasks, claims
mod teams; // teams

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, BranchName, ClaimId, MissionId, ProjectName, TaskId};

use crate::settings::duration_ms;

pub(crate) use agents::*;
pub(crate) use bridges::*;
pub(crate) use doors::*;
pub(crate) use hooks::*;
pub(crate) use missions::*;
pub(crate) use plans::*;
pub(crate) use review::*;
pub(crate) use scope::*;
pub(crate) use tasks::*;
pub(crate) use teams::*;

/// The help of `regatta` alone: seven groups, and the rest in one line.
pub(crate) const HELP: &str = "\
regatta runs a team of coding agents on one git repository and lands their work

Usage: regatta [OPTIONS] [COMMAND]

Start     init       put this repository under management
          demo       see the whole thing work on a throw-away repository
          doctor     find what is wrong, and the fix
          up, down   start the daemon in the background; stop it and the agents
Work      run        start a plan: tasks in, validated commits out
          add        add a task
          edit       change a task
          assign     give a task to an agent
          tell       say something to the agent that works on a task
          mission    give a goal to a lead that makes the tasks
See       status     what everybody is doing
          show       a task, an attempt, an agent or a mission
          why        why a task waits: now, next and before
          watch      everything, live, in this terminal; the inbox by key
          graph      what waits for what; cost: what was spent
          replay     a mission as it stood at any revision; compare two
          open       an address that lets a browser in
          events     what happened, from any revision on
          logs       what an attempt's program printed
Decide    inbox      what needs you
          answer     answer a question; allow, deny a request
Land      land       land a task's finished work; diff, revise, drop it
          queue      the landing queue; hold it, release it
          undo       take back what landed
Control   stop       stop a task, a mission or everything; work is kept
          pause      hold a task; resume lets it go on, retry tries again
          takeover   work in a task's workspace yourself
Set up    agent      the agents; provider finds their programs
          team       agents of several providers, launched and stopped together
          bridge     agents in Slack, GitHub, Linear and Telegram
          policy     what agents may do unasked
          budget     what may be spent
          config     the settings and where they come from

Plumbing  serve project plan task scope rule claim msg hook token audit runner mcp name schema
          completions man version backup restore migrate guide help

Options:
  -C, --repo PATH     act as if started there
      --project NAME  the project, where it is not clear from the directory
      --json          one JSON object on standard output
  -q, --quiet         only errors and asked-for data; -qq nothing
  -v, --verbose       say more; -vv everything
      --color WHEN    auto, always or never
      --no-input      never ask
  -y, --yes           answer yes
      --timeout 10m   give up after that long (exit 124)
      --server URL    another daemon; REGATTA_TOKEN has its token
      --no-hint       no next: lines
  -h, --help          this; regatta COMMAND --help for one command, regatta help exit-codes
  -V, --version       the version
";

/// The table of exit codes, for `regatta help exit-codes` and the manual.
pub(crate) const EXIT_CODES: &str = "\
  0  done
  1  failed
  2  usage: what was typed cannot be understood
  3  needs a person (only with --wait)
  4  no agent to do the work, or not signed in
  5  conflict or stale: claim_held, stale_token, stale_attempt, already_exists
  6  the daemon cannot be reached
  7  budget reached
  8  partly done: some tasks landed, some did not
124  timed out
130  interrupted
";

#[derive(Debug, Parser)]
#[command(name = "regatta", version, override_help = HELP, disable_help_subcommand = true, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) word: Option<Word>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Act as if started in PATH
    #[arg(short = 'C', long, global = true, value_name = "PATH", env = "REGATTA_REPO", hide_env = true, hide = true)]
    pub(crate) repo: Option<PathBuf>,
    /// Name the project
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) project: Option<ProjectName>,
    /// Print one JSON object
    #[arg(long, global = true, hide = true)]
    pub(crate) json: bool,
    /// Print only errors and asked-for data
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) quiet: u8,
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) verbose: u8,
    /// Use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = When::Auto, env = "REGATTA_COLOR", hide_env = true, hide = true)]
    pub(crate) color: When,
    /// Never ask
    #[arg(long, global = true, env = "REGATTA_NO_INPUT", hide_env = true, value_parser = clap::builder::FalseyValueParser::new(), hide = true)]
    pub(crate) no_input: bool,
    /// Answer yes
    #[arg(short, long, global = true, hide = true)]
    pub(crate) yes: bool,
    /// Give up after that long
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration_ms, hide = true)]
    pub(crate) timeout: Option<u64>,
    /// Use another daemon
    #[arg(long, global = true, value_name = "URL", env = "REGATTA_SERVER", hide_env = true, hide = true)]
    pub(crate) server: Option<String>,
    /// Print no next: lines
    #[arg(long, global = true, hide = true)]
    pub(crate) no_hint: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Word {
    /// Put this repository under management
    Init(Init),
    /// See the whole thing work on a throw-away repository
    Demo(Demo),
    /// Find what is wrong, and the fix
    Doctor {
        /// End agents of data directories that no daemon looks after
        #[arg(long)]
        end_strays: bool,
    },
    /// Start the daemon in the background
    Up {
        /// Replace the daemon that runs; agents go on
        #[arg(long)]
        restart: bool,
        #[command(flatten)]
        listen: Listen,
    },
    /// Stop the daemon and the agents
    Down {
        /// Let the agents go on; the next daemon joins them again
        #[arg(long)]
        keep_agents: bool,
    },
    /// Start a plan: tasks in, validated commits out
    Run(Run),
    /// Add a task
    Add(Box<TaskAdd>),
    /// Change a task
    Edit(Box<TaskEdit>),
    /// Give a task to an agent
    Assign(Assign),
    /// Show what everybody is doing
    Status,
    /// Show a task, an attempt, an agent, a mission or a request
    Show {
        /// T21, A5, M3, Q7 or an agent's name
        id: String,
    },
    /// Say why a task waits, what comes next, and what it waited for before
    Why {
        /// The task, a request or landing of it, or an agent
        id: String,
    },
    /// Show everything live in this terminal, and answer the inbox by key
    Watch,
    /// Show what waits for what
    Graph(Graph),
    /// Show what was spent today or since a day, on what, and when the cap is reached
    Cost {
        /// Sum it up by provider, mission, agent or model
        #[arg(long, value_enum, default_value_t = CostBy::Provider)]
        by: CostBy,
        /// Since when: today, yesterday, 7d, 2w or a date such as 2026-07-01
        #[arg(long, value_name = "WHEN", value_parser = missions::days_since)]
        since: Option<u32>,
    },
    /// Show a mission as it stood at any revision
    Replay(Replay),
    /// Put missions side by side: time, landed, retries, cost, conflicts
    Compare {
        /// The missions
        #[arg(required = true, num_args = 1..=8, value_name = "MISSION")]
        ids: Vec<MissionId>,
    },
    /// Print an address that lets a browser in, once
    Open,
    /// Print what happened, from any revision on
    Events(Events),
    /// Print what an attempt's program printed
    Logs {
        /// The attempt, or its task
        id: String,
        /// Go on until it ends
        #[arg(short, long)]
        follow: bool,
        /// Print its journal as it is: < said to it, > said by it, ! its errors
        #[arg(long)]
        raw: bool,
        /// Print what the checks of its work said instead
        #[arg(long, conflicts_with_all = ["follow", "raw"])]
        check: bool,
    },
    /// Land a task's finished work
    Land {
        /// The task
        #[arg(required_unless_present = "now")]
        id: Option<TaskId>,
        /// Land a workspace (its task, its attempt or its path) under a claim on the trunk that you hold, and wait for it
        #[arg(long, value_name = "WORKSPACE", requires = "claim", requires = "token", conflicts_with_all = ["id", "first"])]
        now: Option<String>,
        /// The claim on workspace://PROJECT/default
        #[arg(long, requires = "now")]
        claim: Option<ClaimId>,
        /// Its token: the fence of the move
        #[arg(long, requires = "now", value_name = "N")]
        token: Option<u64>,
        /// Wait until it has landed or is out
        #[arg(long)]
        wait: bool,
        /// Before all that are not under way
        #[arg(long)]
        first: bool,
    },
    /// Show the landing queue, hold it, or let it go on
    Queue {
        #[command(subcommand)]
        word: Option<QueueWord>,
        /// Show the merge status of every branch: what became of it, its conflicts and fix-ups
        #[arg(long)]
        all: bool,
    },
    /// Show what a task's finished work changes
    Diff(Diff),
    /// Send finished work back to be worked on again
    Revise(Revise),
    /// Drop finished work; it is kept for thirty days
    Drop {
        /// The task
        id: TaskId,
        /// Why
        #[arg(long, value_name = "WORDS", default_value = "")]
        because: String,
    },
    /// Take back what a task landed, by a revert through the same queue
    Undo {
        /// The task, or the commit it landed as; none lists what can be taken back
        id: Option<String>,
        /// Wait until it has landed or is out
        #[arg(long)]
        wait: bool,
    },
    /// Stop a task, a mission or all missions; work is kept
    Stop(Stop),
    /// Hold a task; a session that can wait is kept
    Pause {
        /// The task, its attempt, or the agent at it
        id: String,
        /// Why
        #[arg(long, value_name = "WORDS", default_value = "")]
        because: String,
    },
    /// Let a task, a mission or an agent go on
    Resume {
        /// The tasks, missions or agents
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Try a task again
    Retry {
        /// The task
        id: TaskId,
    },
    /// Work in a task's workspace yourself; its agent waits meanwhile
    Takeover {
        /// The task
        id: TaskId,
        /// Start the agent's own program there, in its session
        #[arg(long, conflicts_with = "command")]
        session: bool,
        /// Start this there instead of a shell
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Say something to whoever works on a task
    Tell {
        /// The task, its attempt, or the agent at it
        id: String,
        /// What to say
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
    },
    /// List what needs you
    Inbox(Inbox),
    /// Answer anything in the inbox
    Answer {
        /// What regatta inbox lists first in a row: Q7, T9, A5, budget:day, agent:NAME, V3
        id: String,
        /// The answer to a question, or the number of a choice; else one of the item's choices and what it needs
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
        /// Something more to say
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
    },
    /// Allow what an agent asks
    Allow(Allow),
    /// Deny what an agent asks
    Deny(Deny),
    /// Manage the agents
    #[command(subcommand)]
    Agent(AgentWord),
    /// Manage teams: a lead and its members, launched and stopped together
    #[command(subcommand)]
    Team(TeamWord),
    /// Find the programs of providers on this machine
    Provider,
    /// Say what agents may do unasked
    #[command(subcommand)]
    Policy(PolicyWord),
    /// Say what may be spent
    #[command(subcommand)]
    Budget(BudgetWord),
    /// Show the settings and where they come from
    #[command(subcommand)]
    Config(ConfigWord),

    /// Run the daemon in the foreground
    #[command(hide = true)]
    Serve(Listen),
    /// Manage the projects
    #[command(subcommand, hide = true)]
    Project(ProjectWord),
    /// Check plan files
    #[command(subcommand, hide = true)]
    Plan(PlanWord),
    /// List what was found outside manifests, and take it up
    #[command(hide = true)]
    Scope {
        #[command(subcommand)]
        word: Option<ScopeWord>,
    },
    /// Manage the standing rules of this project
    #[command(subcommand, hide = true)]
    Rule(RuleWord),
    /// Manage tasks one by one
    #[command(subcommand, hide = true)]
    Task(TaskWord),
    /// Manage claims
    #[command(subcommand, hide = true)]
    Claim(ClaimWord),
    /// Send and read messages
    #[command(subcommand, hide = true)]
    Msg(MsgWord),
    /// Start something when a message, an event or a free claim matches
    #[command(subcommand, hide = true)]
    Hook(HookWord),
    /// Talk to agents in Slack, GitHub, Linear and Telegram
    #[command(subcommand, hide = true)]
    Bridge(BridgeWord),
    /// Give a goal to a lead, and steer missions
    #[command(subcommand, hide = true)]
    Mission(MissionWord),
    /// Bring older configuration and hooks up to date; shows the change first
    #[command(hide = true)]
    Migrate(Migrate),
    /// Print how an agent's day goes
    #[command(hide = true)]
    Guide {
        /// triage, start, finish, landing or lead; none lists them
        name: Option<String>,
    },
    /// Manage the tokens that open the doors
    #[command(subcommand, hide = true)]
    Token(TokenWord),
    /// Work for a daemon on another machine: --server URL --token-file FILE
    #[command(hide = true)]
    Runner(RunnerArgs),
    /// List who asked for which change, from where, and what came of it
    #[command(hide = true)]
    Audit(Audit),
    /// Serve the tools on standard input and output (Model Context Protocol)
    #[command(hide = true)]
    Mcp,
    /// Print readable names that nobody has
    #[command(hide = true)]
    Name(NameArgs),
    /// Print the JSON Schema of a verb's input or of an answer
    #[command(hide = true)]
    Schema {
        /// Such as task.add, task.list, plan or config; none lists them
        kind: Option<String>,
    },
    /// Print a completion script
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual, or write its pages to a directory
    #[command(hide = true)]
    Man {
        /// Write one page per word there
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print the version
    #[command(hide = true)]
    Version,
    /// List the places where a test may end the daemon
    #[command(hide = true)]
    Failpoints,
    /// Complete a line for a shell (internal)
    #[command(hide = true)]
    Complete {
        /// What is typed behind regatta, up to the cursor
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Write a copy of the store to a new file
    #[command(hide = true)]
    Backup {
        /// The new file
        file: PathBuf,
    },
    /// Put a copy of the store back; the daemon must be down
    #[command(hide = true)]
    Restore {
        /// The copy
        file: PathBuf,
    },
    /// Print help on a word or a topic
    #[command(hide = true)]
    Help {
        /// A word, or exit-codes
        topic: Vec<String>,
    },
    /// Follow a script (internal)
    #[command(hide = true)]
    ScriptedAgent {
        /// Speak the Agent Client Protocol
        #[arg(long)]
        acp: bool,
    },
    /// Nudge and watch a worker of a gc pool (internal)
    #[command(hide = true)]
    GcWorker {
        /// The gc program
        #[arg(long, default_value = "gc")]
        gc: String,
        /// The worker
        alias: String,
    },
    /// Supervise an attempt's program (internal)
    #[command(hide = true)]
    Shim {
        /// What the adapter passes
        args: Vec<OsString>,
    },
}

impl Word {
    /// Whether the command only looks. Such a command starts no daemon that a person has stopped.
    pub(crate) fn only_looks(&self) -> bool {
        match self {
            Word::Status
            | Word::Show { .. }
            | Word::Why { .. }
            | Word::Watch
            | Word::Graph(_)
            | Word::Cost { .. }
            | Word::Replay(_)
            | Word::Compare { .. }
            | Word::Open
            | Word::Events(_)
            | Word::Logs { .. }
            | Word::Diff(_)
            | Word::Inbox(_)
            | Word::Audit(_)
            | Word::Provider
            | Word::Backup { .. } => true,
            Word::Queue { word, .. } => word.is_none(),
            Word::Undo { id, .. } => id.is_none(),
            Word::Agent(word) => {
                matches!(word, AgentWord::List | AgentWord::Show { .. } | AgentWord::Presets)
            }
            Word::Team(word) => {
                matches!(word, TeamWord::List { .. } | TeamWord::Show { .. } | TeamWord::Explain { .. })
            }
            Word::Policy(word) => matches!(word, PolicyWord::List),
            Word::Budget(word) => matches!(word, BudgetWord::List),
            Word::Config(word) => matches!(word, ConfigWord::Show { .. }),
            Word::Project(word) => matches!(word, ProjectWord::List),
            Word::Scope { word } => word.as_ref().is_none_or(|word| matches!(word, ScopeWord::List)),
            Word::Rule(word) => matches!(word, RuleWord::List | RuleWord::Test { .. }),
            Word::Task(word) => matches!(word, TaskWord::List { .. } | TaskWord::Show { .. }),
            Word::Claim(word) => matches!(word, ClaimWord::List | ClaimWord::Check { .. }),
            Word::Msg(word) => {
                matches!(word, MsgWord::History { .. } | MsgWord::Watch { .. } | MsgWord::Attachment { .. })
            }
            Word::Hook(word) => matches!(word, HookWord::List | HookWord::Log { .. }),
            Word::Bridge(word) => {
                matches!(word, BridgeWord::List | BridgeWord::Conversations { .. } | BridgeWord::Show { .. })
            }
            Word::Mission(word) => matches!(word, MissionWord::List | MissionWord::Show { .. }),
            Word::Token(word) => matches!(word, TokenWord::List),
            _ => false,
        }
    }
}

#[derive(Debug, Default, Args)]
pub(crate) struct Init {
    /// Land on this branch; the one checked out if not given
    #[arg(long)]
    pub(crate) trunk: Option<BranchName>,
    /// Run this on every tree that lands; may be given again
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// Print regatta.toml instead of writing it; change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Leave out the hook that routes what people say in the project's channel
    #[arg(long)]
    pub(crate) no_router: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Use that many scripted agents
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) size: u32,
    /// Keep the repository
    #[arg(long)]
    pub(crate) keep: bool,
    /// Leave the daemon up
    #[arg(long)]
    pub(crate) serve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Type {
    Feature,
    Bug,
    Task,
    Docs,
    Chore,
    Ci,
}

#[derive(Debug, Args)]
pub(crate) struct TaskAdd {
    /// One line that says what is to be done
    pub(crate) subject: String,
    /// What kind of work it is
    #[arg(long = "type", value_enum, default_value_t = Type::Task)]
    pub(crate) issue_type: Type,
    /// The files it may touch: src/a.rs,web/**
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Vec<String>,
    /// A command that must pass; may be given again
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// A file that must be there afterwards; may be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Vec<String>,
    /// Tasks that must land first: T1,T2
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    pub(crate) blocked_by: Vec<TaskId>,
    /// 0 comes first, 9 last
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// The details
    #[arg(short, long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// Finish with a report instead of changes
    #[arg(long)]
    pub(crate) report: bool,
    /// The scripted agent's steps, as a JSON array
    #[arg(long, value_name = "JSON")]
    pub(crate) script: Option<String>,
    /// Do not give it to anybody yet
    #[arg(long)]
    pub(crate) backlog: bool,
    /// Give it to this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) assign: Option<AgentName>,
    /// Offer it instead
    #[arg(long, requires = "assign", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Put it into the agent's line, however full
    #[arg(long, requires = "assign")]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskEdit {
    /// The task
    pub(crate) id: TaskId,
    /// Say it differently
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Describe it differently
    #[arg(short, long)]
    pub(crate) description: Option<String>,
    /// Change its kind
    #[arg(long = "type", value_enum)]
    pub(crate) issue_type: Option<Type>,
    /// Change its manifest
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Option<Vec<String>>,
    /// Change the commands that must pass
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Option<Vec<String>>,
    /// Change the files that must be there afterwards
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Option<Vec<String>>,
    /// Change its blockers; "" takes them away
    #[arg(long, value_name = "TASKS")]
    pub(crate) blocked_by: Option<String>,
    /// Change its priority: 0 comes first, 9 last
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Keep it from starting, with a reason
    #[arg(long, value_name = "REASON", conflicts_with = "ready")]
    pub(crate) pause: Option<String>,
    /// Let it start: out of the backlog, not paused
    #[arg(long)]
    pub(crate) ready: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Assign {
    /// The task
    pub(crate) id: TaskId,
    /// The agent; nobody if not given
    pub(crate) agent: Option<AgentName>,
    /// Offer it instead
    #[arg(long, requires = "agent", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Put it into the agent's line, however full
    #[arg(long, requires = "agent")]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Start after this revision
    #[arg(long, value_name = "REVISION")]
    pub(crate) after: Option<u64>,
    /// Go on as things happen
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// A task, an attempt, an agent, a mission or a hook's firing; every mission if not given
    pub(crate) id: Option<String>,
    /// Start what was stopped again at once, in a new attempt
    #[arg(long, requires = "id", conflicts_with = "drain")]
    pub(crate) again: bool,
    /// Let what runs finish and start nothing new
    #[arg(long, conflicts_with = "now")]
    pub(crate) drain: bool,
    /// End what runs (the default)
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigWord {
    /// Show every setting
    Show {
        /// Say where each comes from
        #[arg(long)]
        origin: bool,
    },
    /// Change a setting of the running daemon: max_attempts
    Set { name: String, value: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectWord {
    /// List the projects
    List,
    /// Remove a project that has no open work; its repository and its history stay
    #[command(alias = "remove")]
    Rm {
        /// The project
        name: ProjectName,
    },
}

/// What is done with the landing queue.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueWord {
    /// Stop it: what is under way ends, and nothing more is begun or moved
    Hold {
        /// Why, for the people whose work waits
        #[arg(long, value_name = "WORDS", default_value = "")]
        because: String,
        /// Nothing: the whole queue is held
        #[arg(hide = true)]
        unexpected: Vec<String>,
    },
    /// Let it go on
    Release,
    /// Accept the trunk as it is, although it differs from what landed
    Accept,
}
