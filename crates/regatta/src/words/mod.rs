//! The commands of the command line, one file per group.
//!
//! A command turns its arguments into calls of the API, sends them to the daemon and prints the
//! answer as text or JSON. This module parses the arguments, sets up output and logging, and
//! dispatches to the right command. [`App`] has the helpers that every command needs: the client,
//! the project and whether a person can be asked.

mod agents;
mod beads;
mod bridge;
mod claim;
pub(crate) mod cost;
mod decide;
mod demo;
mod diff;
pub(crate) mod doctor;
mod fill;
pub(crate) mod goal;
mod graph;
mod hook;
mod inbox;
mod land;
mod logs;
mod mcp;
mod migrate;
mod mission;
mod msg;
mod name;
mod plan;
mod plumbing;
mod preview;
mod replay;
mod run;
mod runner;
mod scope;
mod see;
mod setup;
mod start;
mod summary;
mod task;
mod team;
mod test_agent;
mod token;
mod wave;
mod work;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::ProjectView;
use regatta_core::ids::{BranchName, ProjectName};
use regatta_engine::ports::git::Repo;
use serde::de::DeserializeOwned;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Global, When, Word};
use crate::client::{Client, Got};
use crate::out::{self, Failed, Out, Said, failed};
use crate::{client, command_line, complete, daemon, settings};

/// The context of a command: its output, the global options and the connection to the daemon.
pub(crate) struct App {
    pub(crate) out: Out,
    pub(crate) global: Global,
    /// True if the command only reads. Such a command does not start a daemon that a person has
    /// stopped.
    pub(crate) only_looks: bool,
}

impl App {
    /// Returns the directory in which the command acts.
    pub(crate) fn here(&self) -> Result<PathBuf, Failed> {
        let path = self.global.repo.clone().unwrap_or_else(|| PathBuf::from("."));
        path.canonicalize().map_err(|it| {
            out::usage(
                format!("cannot open the directory {}: {it}", path.display()),
                "name an existing directory with --repo",
            )
        })
    }

    /// Returns the data directory of the fleet.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failed> {
        Ok(settings::data_dir()?.0)
    }

    /// Returns the value of `--timeout`.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.global.timeout.map(Duration::from_millis)
    }

    /// Connects to the daemon and starts it if necessary.
    pub(crate) fn client(&self) -> Result<Client, Failed> {
        let data_dir = self.data_dir()?;
        let connect = || Client::connect(&data_dir, self.global.server.clone(), self.timeout());
        if !self.only_looks || self.global.server.is_some() {
            self.note_broken_settings();
            return connect();
        }
        let client = match Client::find(&data_dir, self.timeout())? {
            Some(client) => client,
            None if daemon::Place::new(&data_dir).is_stopped() => return Err(client::stopped()),
            None => connect()?,
        };
        Ok(client.only_looking())
    }

    /// Prints once that the settings file of this repository is broken. A command that only reads
    /// reports this where it prints the settings.
    fn note_broken_settings(&self) {
        static SAID: std::sync::Once = std::sync::Once::new();
        let Ok(here) = self.here() else { return };
        if let Some(Err(error)) = settings::nearest(&here).map(|path| settings::read(&path)) {
            let said = format!(
                "regatta.toml is ignored and the previous settings stay in force: {}",
                crate::project_files::in_one_line(&error.words())
            );
            SAID.call_once(|| self.out.note(&said));
        }
    }

    /// Sends one call to the daemon.
    pub(crate) fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<Got<T>, Failed> {
        self.client()?.call(call)
    }

    /// Returns the project that the command is about: the named one, or the one whose repository
    /// contains the current directory.
    pub(crate) fn project(&self, client: &Client) -> Result<Option<ProjectName>, Failed> {
        if let Some(name) = &self.global.project {
            return Ok(Some(name.clone()));
        }
        // Inside an attempt the environment names the project, because the workspace can be
        // anywhere.
        if std::env::var_os("REGATTA_ATTEMPT").is_some()
            && let Some(name) = std::env::var("REGATTA_PROJECT").ok().and_then(|it| ProjectName::new(&it).ok())
        {
            return Ok(Some(name));
        }
        let here = self.here()?;
        let places: Vec<PathBuf> = main_worktree(&here).into_iter().chain([here]).collect();
        let projects: Got<Vec<ProjectView>> = client.call(&Call::ProjectList(input::Nothing {}))?;
        let inside = projects.data.into_iter().filter(|it| places.iter().any(|place| place.starts_with(&it.path)));
        Ok(inside.max_by_key(|it| it.path.len()).map(|it| it.name))
    }

    /// Returns the git repository that contains the current directory, if the daemon runs on this
    /// machine.
    pub(crate) fn repository_here(&self) -> Result<Option<PathBuf>, Failed> {
        let here = self.here()?;
        let local = self.global.server.is_none() && self.global.project.is_none();
        Ok(local.then(|| top_of(&here)).filter(|top| top.join(".git").exists()))
    }

    /// Returns true if the command may ask a person for confirmation. `--yes` is an answer in
    /// advance.
    pub(crate) fn may_ask(&self) -> bool {
        !self.global.yes && self.may_ask_now()
    }

    /// Returns true if a person can answer questions in this terminal.
    pub(crate) fn may_ask_now(&self) -> bool {
        !self.global.no_input
            && !self.out.json
            && std::io::stdin().is_terminal()
            && out::watched()
            && std::env::var_os("CI").is_none()
    }
}

/// Returns the top directory of the repository that contains `here`, or `here` itself outside of a
/// repository.
fn top_of(here: &Path) -> PathBuf {
    here.ancestors().find(|it| it.join(".git").exists()).unwrap_or(here).to_owned()
}

/// Returns the main repository of a linked worktree, because both are the same project.
fn main_worktree(here: &Path) -> Option<PathBuf> {
    let link = here.ancestors().map(|it| it.join(".git")).find(|it| it.exists())?;
    let text = std::fs::read_to_string(&link).ok()?; // fails for the main repository, where `.git` is a directory
    let git_dir = link.parent()?.join(text.strip_prefix("gitdir: ")?.trim_end());
    let (worktrees, git_dir) = (git_dir.parent()?, git_dir.parent()?.parent()?);
    if worktrees.file_name()? != "worktrees" {
        return None; // a submodule
    }
    // A bare repository has no directory around its git directory.
    let main = if git_dir.file_name()? == ".git" { git_dir.parent()? } else { git_dir };
    main.canonicalize().ok()
}

/// Returns a project's repository for reading it directly from this process.
fn repo_of(it: ProjectView) -> Option<Repo> {
    let trunk = BranchName::new(&it.trunk).ok()?;
    Some(Repo { project: it.name, path: it.path.into(), trunk, update_checkout: false, workspace: Default::default() })
}

/// Parses the arguments and runs the command.
pub(crate) fn run(typed: Vec<OsString>) -> ExitCode {
    // One shim process runs per attempt. It skips the parser, whose tables would make each of them
    // larger.
    if let [_, word, dir] = typed.as_slice()
        && word == "shim"
    {
        return regatta_agents::shim::main(Path::new(dir));
    }
    let json = typed.iter().any(|it| it == "--json");
    let cli = match command_line::parse(&typed) {
        Ok(cli) => cli,
        Err(error) if json && error.use_stderr() => {
            let text = error.to_string();
            let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            let tip = text.lines().find_map(|it| it.trim_start().strip_prefix("tip: "));
            let hint = tip.map_or("regatta --help".to_owned(), |it| format!("{it}; or see regatta --help"));
            let problem = regatta_api::Problem::new(400, "usage", message, hint);
            eprint_all(&out::json_error(&problem));
            return ExitCode::from(2);
        }
        Err(error) => {
            let code = error.exit_code();
            // A reader that closes the pipe early is not an error.
            let _gone = error.print();
            return ExitCode::from(u8::try_from(code).unwrap_or(2));
        }
    };
    let out = how_to_speak(&cli.global);
    log(cli.global.verbose, matches!(cli.word, Some(Word::Serve(_))));
    let only_looks = cli.word.as_ref().is_some_and(Word::only_looks);
    let app = App { out, global: cli.global, only_looks };
    let said = dispatch(&app, cli.word);
    app.out.finish(said)
}

fn eprint_all(text: &str) {
    use std::io::Write;
    let _gone = write!(std::io::stderr(), "{text}");
}

/// Decides how output looks: colours, Unicode and `next:` lines, from the options, the environment
/// and the terminal.
fn how_to_speak(global: &Global) -> Out {
    let set = |name: &str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
    let colour = match global.color {
        When::Always => true,
        When::Never => false,
        When::Auto if set("NO_COLOR") => false,
        When::Auto if set("CLICOLOR_FORCE") => true,
        When::Auto => out::watched(),
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|it| std::env::var(it).ok().filter(|it| !it.is_empty()))
        .unwrap_or_default();
    let plain = !locale.is_empty() && !locale.to_ascii_lowercase().contains("utf");
    let hints = out::watched() && !global.no_hint;
    Out { json: global.json, quiet: global.quiet, colour, hints, unicode: !plain, pager: None }
}

/// Starts logging on standard error. The daemon logs more than a command does.
fn log(verbose: u8, daemon: bool) {
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
        // On a full disk a log line is lost. Reporting that error on the same disk would panic the
        // thread.
        .log_internal_errors(false);
    let (filter, problem) = log_filter(&std::env::var("REGATTA_LOG").unwrap_or_default(), level);
    let log = tracing_subscriber::registry();
    if std::env::var_os("REGATTA_LOG_FORMAT").is_some_and(|format| format == "json") {
        let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
        log.with(lines.with_filter(filter)).init();
    } else {
        log.with(lines.with_filter(filter)).init();
    }
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

/// Parses log levels such as `warn` or `warn,regatta_engine=debug`. If they are invalid, returns
/// `level` and a description of the problem.
fn log_filter(directives: &str, level: &str) -> (Targets, Option<String>) {
    let text = if directives.is_empty() { level } else { directives };
    match text.parse() {
        Ok(filter) => (filter, None),
        Err(problem) => {
            let problem = format!("REGATTA_LOG={directives:?} is ignored: {problem}");
            (level.parse().unwrap_or_default(), Some(problem))
        }
    }
}

/// Writes log lines without secrets (S4).
struct RedactedLog<W>(W);

impl<W: std::io::Write> std::io::Write for RedactedLog<W> {
    /// Redacts and writes one log line. The subscriber passes one whole event per call.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let cleaned = crate::wire::redact(&String::from_utf8_lossy(event));
        self.0.write_all(cleaned.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Runs the function that implements a command.
fn dispatch(app: &App, word: Option<Word>) -> Said {
    match word {
        None => start::alone(app),
        Some(Word::Init(it)) => start::init(app, &it),
        Some(Word::Demo(it)) => demo::demo(app, &it),
        Some(Word::Doctor { end_strays }) => doctor::doctor(app, end_strays),
        Some(Word::Up { restart, listen }) => start::up(app, restart, &listen),
        Some(Word::Down { keep_agents }) => start::down(app, keep_agents),
        Some(Word::Run(it)) => run::run(app, &it),
        Some(Word::Add(it)) => task::add(app, *it),
        Some(Word::Edit(it)) => task::edit(app, *it),
        Some(Word::Assign(it)) => task::assign(app, it),
        Some(Word::Status) => see::status(app),
        Some(Word::Show { id }) => see::show(app, &id),
        Some(Word::Why { id }) => see::why(app, &id),
        Some(Word::Open) => see::open(app),
        Some(Word::Watch) => crate::watch::watch(app),
        Some(Word::Graph(it)) => graph::graph(app, &it),
        Some(Word::Cost { by, since }) => cost::cost(app, by, since),
        Some(Word::Replay(it)) => replay::replay(app, &it),
        Some(Word::Compare { ids }) => replay::compare(app, &ids),
        Some(Word::Events(it)) => see::events(app, &it),
        Some(Word::Logs { id, check: true, .. }) => scope::checks(app, &id),
        Some(Word::Logs { id, follow, raw, .. }) => logs::logs(app, &id, follow, raw),
        Some(Word::Scope { word }) => scope::scope(app, word),
        Some(Word::Rule(it)) => scope::rule(app, it),
        Some(Word::Land { now: Some(workspace), claim, token, .. }) => land::land_now(app, workspace, claim, token),
        Some(Word::Land { id: Some(id), wait, first, .. }) => land::land(app, id, wait, first),
        Some(Word::Land { .. }) => Err(Failed::Code(2)), // the parser requires one of the two
        Some(Word::Queue { word, all }) => land::queue(app, word, all),
        Some(Word::Diff(it)) => diff::diff(app, &it),
        Some(Word::Revise(it)) => diff::revise(app, &it),
        Some(Word::Drop { id, because }) => land::drop_work(app, id, because),
        Some(Word::Undo { id, wait }) => land::undo(app, id.as_deref(), wait),
        Some(Word::Stop(it)) => work::stop(app, it),
        Some(Word::Pause { id, because }) => decide::pause(app, &id, &because),
        Some(Word::Resume { ids }) => decide::resume(app, &ids),
        Some(Word::Retry { id }) => decide::retry(app, id),
        Some(Word::Takeover { id, session, command }) => decide::takeover(app, id, session, &command),
        Some(Word::Tell { id, words }) => decide::tell(app, &id, &words),
        Some(Word::Inbox(it)) => inbox::inbox(app, &it),
        Some(Word::Answer { id, words, message }) => inbox::answer(app, &id, &words, message.as_deref()),
        Some(Word::Allow(it)) => decide::allow(app, &it),
        Some(Word::Deny(it)) => decide::deny(app, &it),
        Some(Word::Policy(it)) => decide::policy(app, it),
        Some(Word::Budget(it)) => decide::budget(app, it),
        Some(Word::Provider) => agents::provider(app),
        Some(Word::Agent(it)) => agents::agent(app, it),
        Some(Word::Config(it)) => setup::config(app, it),
        Some(Word::Project(it)) => setup::project(app, &it),
        Some(Word::Serve(listen)) => crate::daemon::serve(&app.out, &app.data_dir()?, listen),
        Some(Word::Plan(it)) => plan::plan(app, &it),
        Some(Word::Task(it)) => task::task(app, it),
        Some(Word::Claim(it)) => claim::claim(app, it),
        Some(Word::Msg(it)) => msg::msg(app, it),
        Some(Word::Hook(it)) => hook::hook(app, it),
        Some(Word::Bridge(it)) => bridge::bridge(app, it),
        Some(Word::Mission(it)) => mission::mission(app, it),
        Some(Word::Migrate(it)) => migrate::migrate(app, &it),
        Some(Word::Guide { name }) => mission::guide(app, name.as_deref()),
        Some(Word::Token(it)) => token::token(app, it),
        Some(Word::Runner(it)) => runner::runner(app, it),
        Some(Word::Team(word)) => team::team(app, word),
        Some(Word::Audit(it)) => token::audit(app, it),
        Some(Word::Mcp) => mcp::mcp(app),
        Some(Word::Name(it)) => name::name(app, it),
        Some(Word::Schema { kind }) => plumbing::schema(app, kind.as_deref()),
        Some(Word::Completions { shell }) => plumbing::completions(app, shell),
        Some(Word::Man { out }) => plumbing::man(app, out),
        Some(Word::Version) => plumbing::version(app),
        Some(Word::Failpoints) => plumbing::failpoints(app),
        Some(Word::Backup { file }) => plumbing::backup(app, &file),
        Some(Word::Restore { file }) => plumbing::restore(app, &file),
        Some(Word::Help { topic }) => plumbing::help(app, &topic),
        Some(Word::ScriptedAgent { acp: true }) => {
            let input = std::io::BufReader::new(std::io::stdin());
            ended(regatta_agents::scripted::acp(None, input, &mut std::io::stdout()))
        }
        Some(Word::Complete { words }) => app.out.print(&complete::print(&app.data_dir()?, &words)),
        Some(Word::ScriptedAgent { acp: false }) => {
            let script = std::env::var_os(regatta_core::agent::SCRIPT_FILE).map(PathBuf::from);
            ended(regatta_agents::scripted::main(script, &mut std::io::stdout()))
        }
        Some(Word::GcWorker { gc, alias }) => {
            ended(regatta_agents::gc::main(&gc, &alias, &mut std::io::stdin(), &mut std::io::stdout()))
        }
        Some(Word::Shim { args }) => match args.first() {
            Some(dir) => ended(regatta_agents::shim::main(std::path::Path::new(dir))),
            None => Err(failed("usage", "shim needs a directory", "only Regatta itself runs this command")),
        },
    }
}

/// Passes on the exit code of an internal command, which has already printed its errors.
fn ended(code: ExitCode) -> Said {
    if code == ExitCode::SUCCESS { Ok(()) } else { Err(Failed::Code(if code == ExitCode::from(2) { 2 } else { 1 })) }
}

pub(crate) use bridge::{conversations as conversations_text, draw as bridges_text};
pub(crate) use decide::rules as policy_text;
pub(crate) use land::couplings;
pub(crate) use see::{hour, minute, plain_events};
#[cfg(test)]
pub(crate) use setup::words_of;
#[cfg(test)]
pub(crate) use team::FILE_FIELDS as TEAM_FILE_FIELDS;
pub(crate) use team::draw as team_text;

/// Returns tasks as rows of a table.
pub(crate) fn task_rows(out: &Out, tasks: &[regatta_api::view::TaskView]) -> Vec<Vec<String>> {
    task::rows(out, tasks)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn log_levels_apply_to_all_modules_or_to_named_ones() {
        let is_on =
            |directives: &str, target: &str, level| log_filter(directives, "error").0.would_enable(target, &level);
        assert!(is_on("", "regatta", tracing::Level::ERROR) && !is_on("", "regatta", tracing::Level::WARN));
        let some = "warn,regatta_engine=debug";
        assert!(is_on(some, "regatta_engine::writer", tracing::Level::DEBUG));
        assert!(is_on(some, "hyper", tracing::Level::WARN) && !is_on(some, "hyper", tracing::Level::INFO));
        assert_eq!(log_filter(some, "error").1, None);
        let (filter, problem) = log_filter("regatta=loud", "info");
        assert!(filter.would_enable("regatta", &tracing::Level::INFO), "the default level applies");
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
        assert!(written.contains("https://ann:[redacted]@example.invalid/shop: password=[redacted]"), "{written}");
        assert!(written.ends_with('\n') && written.lines().count() == 1, "{written:?}");
    }
}
