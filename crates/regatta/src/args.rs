//! The root of the command line: the global options and the list of commands, declared with clap.
//!
//! The arguments of each command are declared in the command's own file in `commands`, next to the
//! function that runs the command. The documentation comments are the help texts that people read
//! with `--help`. Help texts are imperative and have no full stop. The examples below each help
//! text are in the command's own file, too.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use regatta_core::ids::ProjectName;

use crate::commands::add::TaskAddArgs;
use crate::commands::agent::AgentCommand;
use crate::commands::approve::{AllowArgs, AnswerArgs, DenyArgs};
use crate::commands::assign::AssignArgs;
use crate::commands::audit::AuditArgs;
use crate::commands::backup::BackupArgs;
use crate::commands::bridge::BridgeCommand;
use crate::commands::budget::BudgetCommand;
use crate::commands::claim::ClaimCommand;
use crate::commands::compare::CompareArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::config::ConfigCommand;
use crate::commands::control::{PauseArgs, ResumeArgs, RetryArgs, TellArgs};
use crate::commands::cost::CostArgs;
use crate::commands::demo::DemoArgs;
use crate::commands::diff::DiffArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::down::DownArgs;
use crate::commands::drop::DropArgs;
use crate::commands::edit::TaskEditArgs;
use crate::commands::events::EventsArgs;
use crate::commands::graph::GraphArgs;
use crate::commands::guide::GuideArgs;
use crate::commands::help::HelpArgs;
use crate::commands::hook::HookCommand;
use crate::commands::inbox::InboxArgs;
use crate::commands::init::InitArgs;
use crate::commands::internal::{CompleteArgs, GcWorkerArgs, ScriptedAgentArgs, ShimArgs};
use crate::commands::land::LandArgs;
use crate::commands::logs::LogsArgs;
use crate::commands::man::ManArgs;
use crate::commands::migrate::MigrateArgs;
use crate::commands::mission::MissionCommand;
use crate::commands::msg::MsgCommand;
use crate::commands::name::NameArgs;
use crate::commands::open::OpenArgs;
use crate::commands::plan::PlanCommand;
use crate::commands::policy::PolicyCommand;
use crate::commands::project::ProjectCommand;
use crate::commands::queue::QueueArgs;
use crate::commands::replay::ReplayArgs;
use crate::commands::restore::RestoreArgs;
use crate::commands::revise::ReviseArgs;
use crate::commands::rule::RuleCommand;
use crate::commands::run::RunArgs;
use crate::commands::runner::RunnerArgs;
use crate::commands::schema::SchemaArgs;
use crate::commands::scope::{ScopeArgs, ScopeCommand};
use crate::commands::serve::ListenArgs;
use crate::commands::show::ShowArgs;
use crate::commands::stop::StopArgs;
use crate::commands::takeover::TakeoverArgs;
use crate::commands::task::TaskCommand;
use crate::commands::team::TeamSubcommand;
use crate::commands::token::TokenCommand;
use crate::commands::undo::UndoArgs;
use crate::commands::up::UpArgs;
use crate::commands::upgrade::UpgradeArgs;
use crate::commands::why::WhyArgs;
use crate::settings::duration_ms;

/// The text that `regatta --help` prints: seven groups of commands, and below the groups the names
/// of all other commands.
pub(crate) const HELP: &str = "\
Run a team of coding agents on one git repository and land their work

Usage: regatta [OPTIONS] [COMMAND]

Start     init       let Regatta manage this git repository
          demo       watch scripted agents work in a temporary repository
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
          watch      open a live view in this terminal; press keys to answer the inbox
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
          completions man version backup restore migrate upgrade guide help

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
      --no-hint       do not suggest next commands (the lines after next:)
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
  6  the daemon cannot be reached, or somebody stopped it with regatta down
  7  budget reached
  8  partly done: some tasks landed, others did not
124  timed out
129  hung up: the terminal was closed (only agent test)
130  interrupted
143  terminated by SIGTERM (only agent test)
";

#[derive(Debug, Parser)]
#[command(name = "regatta", version = crate::version::text(), override_help = HELP, disable_help_subcommand = true, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Act as if the command was started in the directory PATH
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
    /// Act on this project (default: the project of the current directory)
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) project: Option<ProjectName>,
    /// Print one JSON object on standard output
    #[arg(long, global = true, hide = true)]
    pub(crate) json: bool,
    /// Print only errors and requested data; -qq prints nothing
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) quiet: u8,
    /// Print more details; -vv prints everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide = true)]
    pub(crate) verbose: u8,
    /// Use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = ColorWhen::Auto, env = "REGATTA_COLOR", hide_env = true, hide = true)]
    pub(crate) color: ColorWhen,
    /// Never ask a question in the terminal
    #[arg(long, global = true, env = "REGATTA_NO_INPUT", hide_env = true, value_parser = clap::builder::FalseyValueParser::new(), hide = true)]
    pub(crate) no_input: bool,
    /// Answer yes to every question of the command
    #[arg(short, long, global = true, hide = true)]
    pub(crate) yes: bool,
    /// Give up after this time, such as 10m (exit code 124)
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration_ms, hide = true)]
    pub(crate) timeout: Option<u64>,
    /// Use the daemon at this address; the variable REGATTA_TOKEN contains the daemon's access
    /// token
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "REGATTA_SERVER",
        hide_env = true,
        hide = true
    )]
    pub(crate) server: Option<String>,
    /// Do not print suggested commands (the lines after next:)
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
    /// Let Regatta manage this git repository
    Init(InitArgs),
    /// Watch scripted agents do a small example in a temporary repository
    Demo(DemoArgs),
    /// Find problems in the setup, and print how to fix them
    Doctor(DoctorArgs),
    /// Start the daemon, the process that runs the agents, in the background
    Up(UpArgs),
    /// Stop the daemon and its agents
    Down(DownArgs),
    /// Run a plan: agents do its tasks, and work that passes its checks lands on the trunk
    Run(RunArgs),
    /// Add a task
    Add(Box<TaskAddArgs>),
    /// Change a task, such as its subject, files, checks or priority
    Edit(Box<TaskEditArgs>),
    /// Give a task to an agent
    Assign(AssignArgs),
    /// Show the present state of all agents and tasks
    Status,
    /// Show a task, an attempt, an agent, a mission or a request
    Show(ShowArgs),
    /// Explain why a task waits now, what happens next, and why the task waited before
    Why(WhyArgs),
    /// Show a live view of all agents and tasks in this terminal, and answer agents' requests by
    /// pressing a key
    Watch,
    /// Draw the graph of tasks, with an arrow from each task to the tasks that wait for it
    Graph(GraphArgs),
    /// Show spending by provider, mission, agent or model, and when the daily budget will be
    /// reached
    Cost(CostArgs),
    /// Show a mission (a goal with its tasks) as it was at an earlier revision (the number of an
    /// event)
    Replay(ReplayArgs),
    /// Compare missions side by side: time, landed tasks, retries, cost, conflicts
    Compare(CompareArgs),
    /// Print a one-time address that signs a browser in to the web page
    Open(OpenArgs),
    /// Print every event after a revision (the number of an event)
    Events(EventsArgs),
    /// Print the output of an agent's program from an attempt (one run of an agent on a task)
    Logs(LogsArgs),
    /// Put a task's finished work into the landing queue, which merges it into the trunk
    Land(LandArgs),
    /// Show, hold or release the landing queue, in which finished work waits to be merged
    Queue(QueueArgs),
    /// Show the changes in a task's finished work
    Diff(DiffArgs),
    /// Send finished work back to its agent for changes
    Revise(ReviseArgs),
    /// Discard a task's finished work instead of merging it; a copy is kept for thirty days
    Drop(DropArgs),
    /// Revert the merged work of a task with a new commit, which goes through the landing queue
    Undo(UndoArgs),
    /// Stop a task, a mission or all missions; the work is kept
    Stop(StopArgs),
    /// Pause a task, and keep its agent's session if the agent's program can continue sessions
    Pause(PauseArgs),
    /// Resume a paused task, mission or agent
    Resume(ResumeArgs),
    /// Try a task again
    Retry(RetryArgs),
    /// Work in a task's workspace by hand while its agent waits
    Takeover(TakeoverArgs),
    /// Send a message to the agent that works on a task
    Tell(TellArgs),
    /// List everything that needs a person
    Inbox(InboxArgs),
    /// Answer an agent's question, or another item of the inbox
    Answer(AnswerArgs),
    /// Allow an agent's permission request
    Allow(AllowArgs),
    /// Deny an agent's permission request
    Deny(DenyArgs),
    /// Manage agents: coding programs that work under a name
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Manage teams of agents: a lead (the agent that plans) and members that start and stop
    /// together
    #[command(subcommand)]
    Team(TeamSubcommand),
    /// Find the agent programs that are installed on this machine
    Provider,
    /// Manage the rules that answer agents' permission requests without a person
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Manage budgets: limits on tokens, money, turns, attempts and time
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// Show the settings and where they come from, or change one
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Run the daemon, the process that runs the agents, in the foreground
    #[command(hide = true)]
    Serve(ListenArgs),
    /// Manage projects: the git repositories in which agents work
    #[command(subcommand, hide = true)]
    Project(ProjectCommand),
    /// Check plan files, which list tasks
    #[command(subcommand, hide = true)]
    Plan(PlanCommand),
    /// List changes that a task made outside of its declared files, and create follow-up tasks for
    /// these changes
    #[command(hide = true)]
    Scope(ScopeArgs),
    /// Manage the standing rules of this project, which all work in it must follow
    #[command(subcommand, hide = true)]
    Rule(RuleCommand),
    /// Manage tasks one by one
    #[command(subcommand, hide = true)]
    Task(TaskCommand),
    /// Manage claims: locks on files or workspaces that expire unless their holders renew them
    #[command(subcommand, hide = true)]
    Claim(ClaimCommand),
    /// Send and read messages of agents and people
    #[command(subcommand, hide = true)]
    Msg(MsgCommand),
    /// Manage hooks: commands that run when a message or event matches a condition, or when a claim
    /// ends
    #[command(subcommand, hide = true)]
    Hook(HookCommand),
    /// Manage bridges, which connect agents to Slack, GitHub, Linear and Telegram
    #[command(subcommand, hide = true)]
    Bridge(BridgeCommand),
    /// Give a goal to a lead (an agent that breaks it into tasks), and control missions
    #[command(subcommand, hide = true)]
    Mission(MissionCommand),
    /// Update the configuration and hooks of older versions, after showing the changes
    #[command(hide = true)]
    Migrate(MigrateArgs),
    /// Print instructions for agents that use Regatta
    #[command(hide = true)]
    Guide(GuideArgs),
    /// Manage access tokens for the API, the web page and runners (which run agents on other
    /// machines)
    #[command(subcommand, hide = true)]
    Token(TokenCommand),
    /// Run agents on this machine for a daemon on another machine: --server URL --token-file FILE
    #[command(hide = true)]
    Runner(RunnerArgs),
    /// List every change that somebody requested, with its author, origin and outcome
    #[command(hide = true)]
    Audit(AuditArgs),
    /// Offer Regatta's functions as tools of the Model Context Protocol, on standard input and
    /// output
    #[command(hide = true)]
    Mcp,
    /// Print readable names for new agents, which no agent uses yet
    #[command(hide = true)]
    Name(NameArgs),
    /// Print the JSON Schema of an API call's input and answer, of plan files, or of settings files
    #[command(hide = true)]
    Schema(SchemaArgs),
    /// Print a script that completes commands in your shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print the manual, or write its pages to a directory
    #[command(hide = true)]
    Man(ManArgs),
    /// Print the version
    #[command(hide = true)]
    Version,
    /// List the points in the code at which a test can end the daemon (internal)
    #[command(hide = true)]
    Failpoints,
    /// Draw the screens of watch from frames of the live stream on standard input (internal)
    #[command(hide = true)]
    DrawFrames,
    /// Print the possible completions of a command line for a shell (internal)
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write a copy of the daemon's database to a new file
    #[command(hide = true)]
    Backup(BackupArgs),
    /// Restore the daemon's database from a copy; stop the daemon first
    #[command(hide = true)]
    Restore(RestoreArgs),
    /// Explain how this copy of regatta was installed, and how to update it
    #[command(hide = true)]
    Upgrade(UpgradeArgs),
    /// Print help on a command or a topic
    #[command(hide = true)]
    Help(HelpArgs),
    /// Run the built-in agent that follows a script (internal)
    #[command(hide = true)]
    ScriptedAgent(ScriptedAgentArgs),
    /// Pass a task to a worker of the external program gc, and watch the worker (internal)
    #[command(hide = true)]
    GcWorker(GcWorkerArgs),
    /// Supervise the program of an attempt, which is one run of an agent on a task (internal)
    #[command(hide = true)]
    Shim(ShimArgs),
}

impl CliCommand {
    /// Returns true if the command only reads the daemon's data. Such a command does not start a
    /// daemon that a person has stopped.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            CliCommand::Status
            | CliCommand::Show(_)
            | CliCommand::Why(_)
            | CliCommand::Watch
            | CliCommand::Graph(_)
            | CliCommand::Cost(_)
            | CliCommand::Replay(_)
            | CliCommand::Compare(_)
            | CliCommand::Open(_)
            | CliCommand::Events(_)
            | CliCommand::Logs(_)
            | CliCommand::Diff(_)
            | CliCommand::Inbox(_)
            | CliCommand::Audit(_)
            | CliCommand::Provider
            | CliCommand::Upgrade(_)
            | CliCommand::Backup(_) => true,
            CliCommand::Queue(args) => args.command.is_none(),
            CliCommand::Undo(args) => args.id.is_none(),
            CliCommand::Agent(command) => command.is_read_only(),
            CliCommand::Team(command) => command.is_read_only(),
            CliCommand::Policy(command) => command.is_read_only(),
            CliCommand::Budget(command) => command.is_read_only(),
            CliCommand::Config(command) => command.is_read_only(),
            CliCommand::Project(command) => command.is_read_only(),
            CliCommand::Rule(command) => command.is_read_only(),
            CliCommand::Task(command) => command.is_read_only(),
            CliCommand::Claim(command) => command.is_read_only(),
            CliCommand::Msg(command) => command.is_read_only(),
            CliCommand::Hook(command) => command.is_read_only(),
            CliCommand::Bridge(command) => command.is_read_only(),
            CliCommand::Mission(command) => command.is_read_only(),
            CliCommand::Token(command) => command.is_read_only(),
            CliCommand::Scope(args) => args
                .command
                .as_ref()
                .is_none_or(|command| matches!(command, ScopeCommand::List)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The expressions in place of a number, with the codes that they can have.
    const COMPUTED_CODES: [(&str, &[u8]); 5] = [
        ("128 + number", &[129, 130, 143]),
        ("TIMEOUT_EXIT_CODE", &[124]),
        // These codes come from a `CommandError` or from `Problem::exit_code`.
        ("code", &[]),
        ("problem.exit_code()", &[]),
        ("u8::try_from(code).unwrap_or(2)", &[2]),
    ];

    fn collect_sources(dir: &Path, found: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect_sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                *found += &std::fs::read_to_string(&path).unwrap();
            }
        }
    }

    /// Returns the text up to the bracket that closes the call.
    fn argument(rest: &str) -> &str {
        let mut depth = 0;
        let end = rest.find(|sign: char| {
            depth += match sign {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth < 0
        });
        &rest[..end.unwrap_or(0)]
    }

    /// Every exit code in the source has a line in the table that `regatta help exit-codes` prints,
    /// and every line of the table is used.
    #[test]
    fn every_exit_code_is_in_the_table() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = String::new();
        collect_sources(&crates.join("src"), &mut sources);
        let mut used = BTreeSet::from([0]);
        // The bracket is apart, so that this test does not find its own text.
        for name in ["CommandError::Exit", "ExitCode::from"] {
            let call = format!("{name}(");
            for rest in sources.split(&call).skip(1) {
                let code = argument(rest);
                let is_pattern = code == "_" || code.contains('{') || code.starts_with('"');
                match (code.parse::<u8>(), is_pattern) {
                    (Ok(code), _) => drop(used.insert(code)),
                    (Err(_), true) => {}
                    (Err(_), false) => {
                        let known = COMPUTED_CODES.iter().find(|(text, _)| *text == code);
                        let (_, codes) = known.unwrap_or_else(|| {
                            panic!("{call}{code}) is missing in COMPUTED_CODES")
                        });
                        used.extend(codes.iter());
                    }
                }
            }
        }
        let problem =
            std::fs::read_to_string(crates.join("../regatta-api/src/problem.rs")).unwrap();
        let (_, rest) = problem.split_once("fn exit_code(").unwrap();
        let body = rest.split("\n    }\n").next().unwrap();
        let of_problems: Vec<u8> = body
            .split("=> ")
            .skip(1)
            .map(|arm| arm.split(',').next().unwrap().parse().unwrap())
            .collect();
        assert!(of_problems.len() > 4, "{of_problems:?}");
        used.extend(of_problems);
        let listed: BTreeSet<u8> = EXIT_CODES
            .lines()
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(listed, used);
    }
}
