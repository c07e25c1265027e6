//! The commands of the command line, one file per command.
//!
//! Each file declares the arguments of its command, whose comments are also the help text, and has
//! the function that runs the command. A few files contain several short commands that belong
//! together.
//!
//! A command turns its arguments into calls of the API, sends them to the daemon and prints the
//! answer as text or JSON. This module parses the arguments, sets up output and logging, and
//! dispatches to the right command. [`CommandContext`] has the helpers that every command needs:
//! the client, the project and a test whether a person can answer questions.

pub(crate) mod add;
pub(crate) mod agent;
pub(crate) mod approve;
pub(crate) mod assign;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bridge;
pub(crate) mod budget;
pub(crate) mod claim;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod cost;
pub(crate) mod demo;
mod demo_planner; // the script with which the demo's agents make a plan
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod drop;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod graph;
pub(crate) mod guide;
pub(crate) mod help;
pub(crate) mod hook;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod internal;
pub(crate) mod land;
pub(crate) mod logs;
pub(crate) mod man;
mod mcp;
pub(crate) mod migrate;
pub(crate) mod mission;
pub(crate) mod msg;
pub(crate) mod name;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod project;
mod provider;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod revise;
pub(crate) mod rule;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod schema;
pub(crate) mod scope;
pub(crate) mod serve;
mod shell_files;
pub(crate) mod show;
mod starter_agents;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod takeover;
pub(crate) mod task;
pub(crate) mod team;
pub(crate) mod token;
pub(crate) mod undo;
pub(crate) mod up;
pub(crate) mod upgrade;
pub(crate) mod why;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use regatta_api::verb::TypedCall;
use regatta_api::view::ProjectView;
use regatta_api::{call, input};
use regatta_core::ids::{BranchName, ProjectName};
use regatta_engine::ports::git::ProjectRepo;
use serde::de::DeserializeOwned;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{CliCommand, ColorWhen, GlobalArgs};
use crate::client::{CallReply, Client};
use crate::output::{self, CommandError, CommandResult, Output};
use crate::{client, command_line, daemon, settings};

/// The examples of some commands, by the command's path, such as `queue hold`.
pub(crate) type CommandExamples = &'static [(&'static str, &'static [&'static str])];

/// The examples of all commands. Each command's file has its own.
pub(crate) const EXAMPLES: &[CommandExamples] = &[
    add::EXAMPLES,
    agent::EXAMPLES,
    approve::EXAMPLES,
    assign::EXAMPLES,
    audit::EXAMPLES,
    backup::EXAMPLES,
    bridge::EXAMPLES,
    budget::EXAMPLES,
    claim::EXAMPLES,
    compare::EXAMPLES,
    completions::EXAMPLES,
    config::EXAMPLES,
    control::EXAMPLES,
    cost::EXAMPLES,
    demo::EXAMPLES,
    diff::EXAMPLES,
    doctor::EXAMPLES,
    down::EXAMPLES,
    drop::EXAMPLES,
    edit::EXAMPLES,
    events::EXAMPLES,
    graph::EXAMPLES,
    guide::EXAMPLES,
    help::EXAMPLES,
    hook::EXAMPLES,
    inbox::EXAMPLES,
    init::EXAMPLES,
    land::EXAMPLES,
    logs::EXAMPLES,
    man::EXAMPLES,
    mcp::EXAMPLES,
    migrate::EXAMPLES,
    mission::EXAMPLES,
    msg::EXAMPLES,
    name::EXAMPLES,
    open::EXAMPLES,
    plan::EXAMPLES,
    policy::EXAMPLES,
    project::EXAMPLES,
    provider::EXAMPLES,
    queue::EXAMPLES,
    replay::EXAMPLES,
    restore::EXAMPLES,
    revise::EXAMPLES,
    rule::EXAMPLES,
    run::EXAMPLES,
    runner::EXAMPLES,
    schema::EXAMPLES,
    scope::EXAMPLES,
    serve::EXAMPLES,
    show::EXAMPLES,
    status::EXAMPLES,
    stop::EXAMPLES,
    takeover::EXAMPLES,
    task::EXAMPLES,
    team::EXAMPLES,
    token::EXAMPLES,
    undo::EXAMPLES,
    up::EXAMPLES,
    upgrade::EXAMPLES,
    why::EXAMPLES,
    crate::watch::EXAMPLES,
];

/// The context that every command gets: the output settings and the global options, with helpers to
/// reach the daemon and the project.
pub(crate) struct CommandContext {
    pub(crate) output: Output,
    pub(crate) global: GlobalArgs,
    /// True if the command only reads the daemon's data. Such a command does not start a daemon
    /// that a person has stopped.
    pub(crate) is_read_only: bool,
}

impl CommandContext {
    /// Returns the directory in which the command acts: `--repo`, or the current directory.
    pub(crate) fn working_dir(&self) -> Result<PathBuf, CommandError> {
        let path = self
            .global
            .repo
            .clone()
            .unwrap_or_else(|| PathBuf::from("."));
        path.canonicalize().map_err(|error| {
            output::usage_error(
                format!("cannot open the directory {}: {error}", path.display()),
                "name an existing directory with --repo",
            )
        })
    }

    /// Returns the data directory, in which the daemon of this user keeps all of its data.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, CommandError> {
        Ok(settings::data_dir()?.0)
    }

    /// Returns the value of `--timeout`.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.global.timeout.map(Duration::from_millis)
    }

    /// Connects to the daemon, and starts it if necessary. A command that only reads does not start
    /// a daemon that a person has stopped.
    pub(crate) fn client(&self) -> Result<Client, CommandError> {
        let data_dir = self.data_dir()?;
        let server = self.global.server.clone();
        let connect = || Client::connect(&data_dir, server, self.timeout(), Some(&self.output));
        if !self.is_read_only || self.global.server.is_some() {
            self.warn_of_broken_settings();
            return connect();
        }
        let client = match Client::find(&data_dir, self.timeout())? {
            Some(client) => client,
            None if daemon::DataDir::new(&data_dir).is_stopped() => {
                return Err(client::daemon_stopped_error());
            }
            None => connect()?,
        };
        Ok(client.read_only().with_notes(Some(&self.output)))
    }

    /// Prints a note if the `regatta.toml` of this repository is invalid, at most once per process.
    /// Commands that only read do not call this function, because they report the error where they
    /// print settings.
    fn warn_of_broken_settings(&self) {
        static WARN_ONCE: std::sync::Once = std::sync::Once::new();
        let Ok(dir) = self.working_dir() else { return };
        if let Some(Err(error)) = settings::nearest_file(&dir)
            .map(|path| settings::read_file(&path, settings::FileKind::Repository))
        {
            let note = format!(
                "regatta.toml is ignored and the previous settings stay in force: {}",
                crate::project_files::in_one_line(&error.message())
            );
            WARN_ONCE.call_once(|| self.output.print_note(&note));
        }
    }

    /// Sends one API call to the daemon and returns the answer.
    pub(crate) fn call<C: TypedCall>(&self, call: C) -> Result<CallReply<C::Output>, CommandError>
    where
        C::Output: DeserializeOwned,
    {
        self.client()?.call(call)
    }

    /// Returns the project that the command is about: the project of `--project`, or the project
    /// whose repository contains the current directory.
    pub(crate) fn project(&self, client: &Client) -> Result<Option<ProjectName>, CommandError> {
        if let Some(name) = &self.global.project {
            return Ok(Some(name.clone()));
        }
        // When an agent runs the command, the environment names the project, because the agent's
        // workspace is outside of the repository.
        if std::env::var_os("REGATTA_ATTEMPT").is_some()
            && let Some(name) = std::env::var("REGATTA_PROJECT")
                .ok()
                .and_then(|name| ProjectName::new(&name).ok())
        {
            return Ok(Some(name));
        }
        let projects: CallReply<Vec<ProjectView>> =
            client.call(call::ProjectList(input::EmptyInput {}))?;
        let projects: Vec<(ProjectName, String)> = projects
            .data
            .into_iter()
            .map(|project| (project.name, project.path))
            .collect();
        self.containing_project(&projects)
    }

    /// Returns the project whose repository contains the current directory. Each of `projects` has
    /// the path of its repository.
    pub(crate) fn containing_project(
        &self,
        projects: &[(ProjectName, String)],
    ) -> Result<Option<ProjectName>, CommandError> {
        let dir = self.working_dir()?;
        let roots: Vec<PathBuf> = main_worktree(&dir).into_iter().chain([dir]).collect();
        let containing = projects
            .iter()
            .filter(|(_, path)| roots.iter().any(|root| root.starts_with(path)));
        Ok(containing
            .max_by_key(|(_, path)| path.len())
            .map(|(name, _)| name.clone()))
    }

    /// Returns the git repository that contains the current directory. Returns `None` with
    /// `--server` or `--project`, because the command is then not about this directory.
    pub(crate) fn current_repository(&self) -> Result<Option<PathBuf>, CommandError> {
        if self.global.server.is_some() || self.global.project.is_some() {
            return Ok(None);
        }
        self.enclosing_repository()
    }

    /// Returns the git repository that contains the current directory, whatever the command is
    /// about.
    pub(crate) fn enclosing_repository(&self) -> Result<Option<PathBuf>, CommandError> {
        let top = repository_top(&self.working_dir()?);
        Ok(top.join(".git").exists().then_some(top))
    }

    /// Returns true if the command may ask a person for confirmation. With `--yes` it does not ask,
    /// because the person has already agreed.
    pub(crate) fn can_ask(&self) -> bool {
        !self.global.yes && self.can_ask_now()
    }

    /// Returns true if a person can answer questions in this terminal.
    pub(crate) fn can_ask_now(&self) -> bool {
        !self.global.no_input
            && !self.output.is_json
            && std::io::stdin().is_terminal()
            && output::is_stdout_watched()
            && std::env::var_os("CI").is_none()
    }
}

/// Returns the top directory of the repository that contains `here`, or `here` itself outside of a
/// repository.
fn repository_top(here: &Path) -> PathBuf {
    here.ancestors()
        .find(|path| path.join(".git").exists())
        .unwrap_or(here)
        .to_owned()
}

/// Returns the main repository if `here` is in a linked worktree (`git worktree add`), because both
/// belong to the same project.
fn main_worktree(here: &Path) -> Option<PathBuf> {
    let link = here
        .ancestors()
        .map(|path| path.join(".git"))
        .find(|path| path.exists())?;
    // In the main repository `.git` is a directory, so reading fails and the function returns
    // `None`.
    let text = std::fs::read_to_string(&link).ok()?;
    let git_dir = link
        .parent()?
        .join(text.strip_prefix("gitdir: ")?.trim_end());
    let (worktrees, git_dir) = (git_dir.parent()?, git_dir.parent()?.parent()?);
    if worktrees.file_name()? != "worktrees" {
        return None; // a submodule
    }
    // A bare repository is its git directory; otherwise the repository is the directory that
    // contains `.git`.
    let main = if git_dir.file_name()? == ".git" {
        git_dir.parent()?
    } else {
        git_dir
    };
    main.canonicalize().ok()
}

/// Returns a project's repository, so that this process can read it without the daemon.
fn project_repo(project: ProjectView) -> Option<ProjectRepo> {
    let trunk = BranchName::new(&project.trunk).ok()?;
    Some(ProjectRepo {
        project: project.name,
        path: project.path.into(),
        trunk,
        should_update_checkout: false,
        workspace: Default::default(),
    })
}

/// Parses the arguments and runs the command.
pub(crate) fn run_command_line(typed: Vec<OsString>) -> ExitCode {
    // Start a shim (the process that supervises the program of one attempt) without the argument
    // parser. Each attempt has a shim, and the parser's tables would use memory in each of these
    // processes.
    if let [_, word, dir] = typed.as_slice()
        && word == "shim"
    {
        return regatta_agents::shim::main(Path::new(dir));
    }
    let is_json = typed.iter().any(|name| name == "--json");
    let cli = match command_line::parse_args(&typed) {
        Ok(cli) => cli,
        Err(error) if is_json && error.use_stderr() => {
            let text = error.to_string();
            let message = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            let tip = text
                .lines()
                .find_map(|line| line.trim_start().strip_prefix("tip: "));
            let hint = tip.map_or("regatta --help".to_owned(), |tip| {
                format!("{tip}; or see regatta --help")
            });
            let problem = regatta_api::Problem::new(400, "usage", message, hint);
            eprint_all(&output::json_error(&problem));
            return ExitCode::from(2);
        }
        Err(error) => {
            let code = error.exit_code();
            // Ignore an error here, because it only means that the reader of the output has closed
            // the pipe early.
            let _gone = error.print();
            return ExitCode::from(u8::try_from(code).unwrap_or(2));
        }
    };
    let out = output_settings(&cli.global);
    init_logging(
        cli.global.verbose,
        matches!(cli.command, Some(CliCommand::Serve(_))),
    );
    let is_read_only = cli.command.as_ref().is_some_and(CliCommand::is_read_only);
    let app = CommandContext {
        output: out,
        global: cli.global,
        is_read_only,
    };
    let result = dispatch(&app, cli.command);
    app.output.finish(result)
}

fn eprint_all(text: &str) {
    use std::io::Write;
    let _gone = write!(std::io::stderr(), "{text}");
}

/// Decides from the options, the environment and the terminal whether output has colours, Unicode
/// and `next:` lines.
fn output_settings(global: &GlobalArgs) -> Output {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|name| !name.is_empty());
    let has_colour = match global.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if is_set("NO_COLOR") => false,
        ColorWhen::Auto if is_set("CLICOLOR_FORCE") => true,
        ColorWhen::Auto => output::is_stdout_watched(),
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|variable| {
            std::env::var(variable)
                .ok()
                .filter(|variable| !variable.is_empty())
        })
        .unwrap_or_default();
    let is_ascii = !locale.is_empty() && !locale.to_ascii_lowercase().contains("utf");
    let has_hints = output::is_stdout_watched() && !global.no_hint;
    Output {
        is_json: global.json,
        quiet_level: global.quiet,
        has_colour,
        has_hints,
        is_unicode: !is_ascii,
        pager: None,
        program: if output::is_person_reading() && !global.json {
            crate::own_program::word_for_this_program()
        } else {
            None
        },
    }
}

/// Starts logging on standard error. By default the daemon logs level `info` and above, and a
/// command logs only errors. `-v` and `REGATTA_LOG` change the level.
fn init_logging(verbose: u8, daemon: bool) {
    let level = match (verbose, daemon) {
        (0, false) => "error",
        (0, true) => "info",
        (1, _) => "debug",
        _ => "trace",
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| RedactedLog(std::io::stderr()))
        .with_ansi(false)
        .with_target(false)
        // A log line that cannot be written, for example to a full disk, is dropped. Reporting the
        // error would write to the same disk and panic the thread.
        .log_internal_errors(false);
    let (filter, problem) = log_filter(&std::env::var("REGATTA_LOG").unwrap_or_default(), level);
    let log = tracing_subscriber::registry();
    if std::env::var_os("REGATTA_LOG_FORMAT").is_some_and(|format| format == "json") {
        let lines = lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false);
        log.with(lines.with_filter(filter)).init();
    } else {
        log.with(lines.with_filter(filter)).init();
    }
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

/// Parses the log levels in `REGATTA_LOG`, such as `warn` or `warn,regatta_engine=debug`. If they
/// are invalid, returns the default `level` and a description of the problem.
fn log_filter(directives: &str, level: &str) -> (Targets, Option<String>) {
    let text = if directives.is_empty() {
        level
    } else {
        directives
    };
    match text.parse() {
        Ok(filter) => (filter, None),
        Err(problem) => {
            let problem = format!("REGATTA_LOG={directives:?} is ignored: {problem}");
            (level.parse().unwrap_or_default(), Some(problem))
        }
    }
}

/// Writes log lines after removing everything that looks like a secret (invariant S4).
struct RedactedLog<W>(W);

impl<W: std::io::Write> std::io::Write for RedactedLog<W> {
    /// Removes secrets from one log line and writes the line. The logging library passes a whole
    /// line per call.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let cleaned = crate::composition::redact(&String::from_utf8_lossy(event));
        self.0.write_all(cleaned.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Runs the function that implements a command.
fn dispatch(app: &CommandContext, command: Option<CliCommand>) -> CommandResult {
    let Some(command) = command else {
        return status::run_without_command(app);
    };
    match command {
        CliCommand::Init(args) => init::init(app, &args),
        CliCommand::Demo(args) => demo::demo(app, &args),
        CliCommand::Doctor(args) => doctor::doctor(app, &args),
        CliCommand::Up(args) => up::up(app, &args),
        CliCommand::Upgrade(args) => upgrade::upgrade(app, &args),
        CliCommand::Down(args) => down::down(app, &args),
        CliCommand::Run(args) => run::run(app, &args),
        CliCommand::Add(args) => add::add(app, *args),
        CliCommand::Edit(args) => edit::edit(app, *args),
        CliCommand::Assign(args) => assign::assign(app, args),
        CliCommand::Status => status::status(app),
        CliCommand::Show(args) => show::show(app, &args.id),
        CliCommand::Why(args) => why::why(app, &args.id),
        CliCommand::Watch => crate::watch::watch(app),
        CliCommand::Graph(args) => graph::graph(app, &args),
        CliCommand::Cost(args) => cost::cost(app, &args),
        CliCommand::Replay(args) => replay::replay(app, &args),
        CliCommand::Compare(args) => compare::compare(app, &args.ids),
        CliCommand::Open(args) => open::print_sign_in_url(app, &args),
        CliCommand::Events(args) => events::events(app, &args),
        CliCommand::Logs(args) => logs::logs(app, &args),
        CliCommand::Land(args) => land::land(app, args),
        CliCommand::Queue(args) => queue::queue(app, args),
        CliCommand::Diff(args) => diff::diff(app, &args),
        CliCommand::Revise(args) => revise::revise(app, &args),
        CliCommand::Drop(args) => drop::drop_work(app, args),
        CliCommand::Undo(args) => undo::undo(app, &args),
        CliCommand::Stop(args) => stop::stop(app, args),
        CliCommand::Pause(args) => control::pause(app, &args),
        CliCommand::Resume(args) => control::resume(app, &args.ids),
        CliCommand::Retry(args) => control::retry(app, args.id),
        CliCommand::Takeover(args) => takeover::takeover(app, &args),
        CliCommand::Tell(args) => control::tell(app, &args.id, &args.words),
        CliCommand::Inbox(args) => inbox::inbox(app, &args),
        CliCommand::Answer(args) => approve::answer(app, &args),
        CliCommand::Allow(args) => approve::allow(app, &args),
        CliCommand::Deny(args) => approve::deny(app, &args),
        CliCommand::Agent(command) => agent::agent(app, command),
        CliCommand::Team(command) => team::team(app, command),
        CliCommand::Provider => provider::provider(app),
        CliCommand::Policy(command) => policy::policy(app, command),
        CliCommand::Budget(command) => budget::budget(app, command),
        CliCommand::Config(command) => config::config(app, command),
        CliCommand::Serve(args) => serve::serve(app, args),
        CliCommand::Project(command) => project::project(app, &command),
        CliCommand::Plan(command) => plan::plan(app, &command),
        CliCommand::Scope(args) => scope::scope(app, args.command),
        CliCommand::Rule(command) => rule::rule(app, command),
        CliCommand::Task(command) => task::task(app, command),
        CliCommand::Claim(command) => claim::claim(app, command),
        CliCommand::Msg(command) => msg::msg(app, command),
        CliCommand::Hook(command) => hook::hook(app, command),
        CliCommand::Bridge(command) => bridge::bridge(app, command),
        CliCommand::Mission(command) => mission::mission(app, command),
        CliCommand::Migrate(args) => migrate::migrate(app, &args),
        CliCommand::Guide(args) => guide::guide(app, args.name.as_deref()),
        CliCommand::Token(command) => token::token(app, command),
        CliCommand::Runner(args) => runner::runner(app, args),
        CliCommand::Audit(args) => audit::audit(app, args),
        CliCommand::Mcp => mcp::mcp(app),
        CliCommand::Name(args) => name::name(app, args),
        CliCommand::Schema(args) => schema::schema(app, args.kind.as_deref()),
        CliCommand::Completions(args) => completions::completions(app, args.shell),
        CliCommand::Man(args) => man::man(app, args.out),
        CliCommand::Version => help::version(app),
        CliCommand::Failpoints => internal::failpoints(app),
        CliCommand::DrawFrames => crate::watch::draw_frames(app),
        CliCommand::Complete(args) => internal::complete(app, &args),
        CliCommand::Backup(args) => backup::backup(app, &args.file),
        CliCommand::Restore(args) => restore::restore(app, &args.file),
        CliCommand::Help(args) => help::help(app, &args.topic),
        CliCommand::ScriptedAgent(args) => internal::scripted_agent(&args),
        CliCommand::GcWorker(args) => internal::gc_worker(&args),
        CliCommand::Shim(args) => internal::shim(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn log_levels_apply_to_all_modules_or_to_named_ones() {
        let is_on = |directives: &str, target: &str, level| {
            log_filter(directives, "error")
                .0
                .would_enable(target, &level)
        };
        assert!(
            is_on("", "regatta", tracing::Level::ERROR)
                && !is_on("", "regatta", tracing::Level::WARN)
        );
        let some = "warn,regatta_engine=debug";
        assert!(is_on(some, "regatta_engine::writer", tracing::Level::DEBUG));
        assert!(
            is_on(some, "hyper", tracing::Level::WARN)
                && !is_on(some, "hyper", tracing::Level::INFO)
        );
        assert_eq!(log_filter(some, "error").1, None);
        let (filter, problem) = log_filter("regatta=loud", "info");
        assert!(
            filter.would_enable("regatta", &tracing::Level::INFO),
            "the default level applies"
        );
        assert!(problem.unwrap().contains("regatta=loud"));
    }

    /// S4: a line of the daemon's log is written without its secrets, and the write reports the
    /// full length.
    #[test]
    fn s4_a_log_line_has_no_secret() {
        let mut log = RedactedLog(Vec::new());
        let line = b"WARN could not push to https://ann:s3cretPass@example.invalid/shop: password=hunter2secret\n";
        log.write_all(line).unwrap();
        let written = String::from_utf8(log.0).unwrap();
        assert!(
            written.contains("https://ann:[redacted]@example.invalid/shop: password=[redacted]"),
            "{written}"
        );
        assert!(
            written.ends_with('\n') && written.lines().count() == 1,
            "{written:?}"
        );
    }
}
