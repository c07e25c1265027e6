//! The commands `init`, `up` and `down`, and `regatta` without a command.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{AgentView, BridgeView, HookView, ProjectView};
use regatta_core::agent::Runtime;
use regatta_core::hook::HookAction;
use regatta_core::ids::{BranchName, HookId, ProjectName};
use regatta_engine::ports::git::Git;
use serde::Serialize;

use crate::args::{InitArgs, ListenArgs};
use crate::client::{self, CallReply, Client};
use crate::composition;
use crate::daemon::{self, RecoveredWork};
use crate::output::{
    CommandError, CommandResult, command_error, first_line, format_table, usage_error,
};
use crate::settings::{self, value_of};

use super::CommandContext;

/// Time that a daemon gets to exit after it has released its data directory.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `regatta` without a command: prints the status inside a managed repository, and the first
/// steps elsewhere.
pub(super) fn run_without_command(app: &CommandContext) -> CommandResult {
    let data_dir = app.data_dir()?;
    if let Some(client) = Client::find(&data_dir, app.timeout())?
        && app.project(&client)?.is_some()
    {
        return super::see::status(app);
    }
    let text = "\
regatta demo          see a whole run in ten seconds, on a throw-away repository
regatta init          put this repository under management
regatta run PLAN      run a plan; regatta run PLAN --agents scripted rehearses it
regatta status        what every agent is doing
regatta --help        all commands
";
    app.output.print_answer(
        "start",
        &serde_json::json!({ "words": ["demo", "init", "run", "status"] }),
        &[],
        |_| text.into(),
    )
}

/// The result of `init`.
#[derive(Serialize)]
struct InitResult {
    project: ProjectView,
    wrote: Option<String>,
    /// The hook that routes messages of the project's channel.
    router: Option<HookId>,
    /// Remarks about submodules, LFS content and checks that cannot pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// The request that puts a repository under management, and what to write to its settings file.
struct InitPlan {
    request: input::ProjectAdd,
    /// The path of its settings file, which may not exist yet.
    settings_path: PathBuf,
    /// True if the settings file does not exist and can be written.
    should_write_settings: bool,
    settings_text: String,
    /// Remarks about submodules, LFS content and checks that cannot pass.
    notes: Vec<String>,
}

/// Inspects the repository and its settings, without changing anything.
fn prepare_init(app: &CommandContext, ask: &InitArgs) -> Result<InitPlan, CommandError> {
    let here = app.working_dir()?;
    // A linked worktree belongs to its main repository, and that is the project.
    let here = match super::main_worktree(&here) {
        Some(main) => {
            app.output.print_note(&format!(
                "this is a worktree of {}, so the project is that repository",
                main.display()
            ));
            main
        }
        None => here,
    };
    let facts = composition::git_adapter(&app.data_dir()?)
        .inspect(&here)
        .map_err(|error| command_error(error.code, error.message, error.hint))?;
    if facts.is_unborn && ask.trunk.is_none() {
        return Err(command_error(
            "unborn_branch",
            "the repository has no commit yet, so tasks have nothing to start from",
            "make the first commit: git commit --allow-empty -m start",
        ));
    }
    let settings = settings::resolve_all(&facts.top)?;
    let found = |name: &str| Some(value_of(&settings, name)).filter(|s| !s.is_empty());
    let trunk = match (&ask.trunk, found("project.trunk")) {
        (Some(trunk), _) => Some(trunk.clone()),
        (None, Some(text)) => Some(BranchName::new(&text).map_err(|error| {
            usage_error(error.to_string(), "fix project.trunk in regatta.toml")
        })?),
        (None, None) => facts.branch.clone(),
    };
    let file = facts.top.join("regatta.toml");
    let known = settings::read_file(&file)?;
    let commands = match known
        .as_ref()
        .and_then(|settings_file| settings_file.validation.commands.clone())
    {
        _ if !ask.validate.is_empty() => ask.validate.clone(),
        Some(commands) => commands,
        None => detect_test_command(&facts.top).into_iter().collect(),
    };
    let name =
        match (&app.global.project, found("project.name")) {
            (Some(name), _) => Some(name.clone()),
            (None, Some(text)) => Some(ProjectName::new(&text).map_err(|error| {
                usage_error(error.to_string(), "fix project.name in regatta.toml")
            })?),
            (None, None) => None,
        };
    let text = settings_file_text(name.as_ref(), trunk.as_ref(), &commands);
    let timeout = settings::duration_ms(&value_of(&settings, "validation.timeout")).map_err(
        |duration_m| {
            command_error(
                "bad_config",
                duration_m,
                "fix validation.timeout in regatta.toml",
            )
        },
    )?;
    let add = input::ProjectAdd {
        path: here.to_string_lossy().into_owned(),
        name,
        trunk,
        validation: commands,
        validation_timeout_ms: Some(timeout),
        settings: settings::project_settings(&facts.top)?,
    };
    let notes = super::doctor::check_submodules_and_lfs(&facts)
        .into_iter()
        .map(|line| {
            let fix = if line.fix.is_empty() {
                String::new()
            } else {
                format!(" ({})", line.fix)
            };
            format!("{}: {}{fix}", line.id, line.text)
        });
    let mut notes: Vec<String> = notes.collect();
    notes.extend(missing_makefile_note(&facts.top, &add.validation));
    Ok(InitPlan {
        request: add,
        settings_path: file,
        should_write_settings: known.is_none() && !facts.is_bare,
        settings_text: text,
        notes,
    })
}

/// Returns a warning if a check runs `make` without a Makefile, because every task would fail it.
fn missing_makefile_note(top: &Path, commands: &[String]) -> Option<String> {
    let has_makefile = ["GNUmakefile", "makefile", "Makefile"]
        .iter()
        .any(|name| top.join(name).is_file());
    let uses_make = |command: &&String| {
        let mut words = command.split_whitespace();
        words.next() == Some("make")
            && !words.any(|word| word.starts_with("-f") || word.starts_with("-C"))
    };
    let command = commands.iter().find(uses_make).filter(|_| !has_makefile)?;
    let fix = match detect_test_command(top) {
        Some(found) => format!("regatta init --validate '{found}'"),
        None => "regatta init --validate COMMAND".to_owned(),
    };
    Some(format!(
        "`{command}` cannot pass: there is no Makefile here ({fix})"
    ))
}

/// Sends a project's current settings to the daemon.
pub(super) fn refresh_settings(
    app: &CommandContext,
    project: &ProjectName,
) -> Result<(), CommandError> {
    let add = prepare_init(app, &InitArgs::default())?.request;
    let add = input::ProjectAdd {
        name: Some(project.clone()),
        ..add
    };
    app.call::<ProjectView>(&Call::ProjectAdd(add)).map(|_| ())
}

/// Runs `regatta init`.
pub(super) fn init(app: &CommandContext, ask: &InitArgs) -> CommandResult {
    let InitPlan {
        request: add,
        settings_path: file,
        should_write_settings: writes,
        settings_text: text,
        notes,
    } = prepare_init(app, ask)?;
    if ask.print {
        return app
            .output
            .print_answer("config.file", &text, &[], |_| text.clone());
    }
    let commands = add.validation.clone();
    let client = app.client()?;
    let project: CallReply<ProjectView> = client.call(&Call::ProjectAdd(add))?;
    let wrote = if writes {
        let trunk = BranchName::new(&project.data.trunk).ok();
        std::fs::write(
            &file,
            settings_file_text(Some(&project.data.name), trunk.as_ref(), &commands),
        )
        .map_err(|error| {
            command_error(
                "io",
                format!("could not write {}: {error}", file.display()),
                "check the permissions of the directory",
            )
        })?;
        Some(file.display().to_string())
    } else {
        None
    };
    let router = if ask.no_router {
        None
    } else {
        Some(install_router(&client, &project.data.name)?)
    };
    let agents: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    let is_scripted = |view: &AgentView| matches!(view.agent.runtime, Runtime::Scripted);
    let next = match agents.data.iter().all(is_scripted) {
        true => ["regatta provider".to_owned(), "regatta demo".to_owned()],
        false => [
            "regatta agent list".to_owned(),
            "regatta run --help".to_owned(),
        ],
    };
    let done = InitResult {
        project: project.data,
        wrote,
        router,
        notes,
    };
    app.output.print_answer("init", &done, &next, |_| {
        let project = &done.project;
        let checks = if project.validation.is_empty() {
            "none yet: set [validation] commands in regatta.toml".into()
        } else {
            project.validation.join(" · ")
        };
        let mut text = format!(
            "project {}  {}\ntrunk   {}\nchecks  {checks}\n",
            project.name, project.path, project.trunk
        );
        if let Some(file) = &done.wrote {
            text += &format!("wrote   {file}\n");
        }
        if let Some(hook) = &done.router {
            // The router accepts requests in messages, including messages from chat services.
            text += &format!(
                "chat    regatta msg send {} '!help' lists what you can ask for ({hook})\n",
                project.name
            );
        }
        for note in &done.notes {
            text += &format!("note    {note}\n");
        }
        text
    })
}

/// Returns the router's hook on a project's channel. Adds the hook if it does not exist.
fn install_router(client: &Client, project: &ProjectName) -> Result<HookId, CommandError> {
    let hooks: CallReply<Vec<HookView>> = client.call(&Call::HookList(input::EmptyInput {}))?;
    let routes = |hook: &&HookView| {
        hook.hook.action == HookAction::Route && hook.hook.project.as_ref() == Some(project)
    };
    if let Some(known) = hooks.data.iter().find(routes) {
        return Ok(known.hook.id);
    }
    let new: CallReply<HookView> = client.call(&Call::HookAdd(
        super::migrate::router_hook_request(project, None)?,
    ))?;
    Ok(new.data.hook.id)
}

/// Returns the text of a new `regatta.toml`.
fn settings_file_text(
    name: Option<&ProjectName>,
    trunk: Option<&BranchName>,
    commands: &[String],
) -> String {
    let quote = |s: &str| toml::Value::String(s.into()).to_string();
    let name = name.map_or("# name = \"shop\"".into(), |project| {
        format!("name = {}", quote(project.as_str()))
    });
    let trunk = trunk.map_or("# trunk = \"main\"".into(), |branch| {
        format!("trunk = {}", quote(branch.as_str()))
    });
    let commands: Vec<String> = commands.iter().map(|command| quote(command)).collect();
    format!(
        "# Regatta's settings for this repository. See them all: regatta config show --origin\n\
         [project]\n{name}\n{trunk}   # work lands here\n\n\
         [validation]\ncommands = [{}]   # must pass before anything lands\n# timeout = \"10m\"\n\n\
         # [landing]\n# review = \"human\"   # a person reviews work before it lands\n\n\
         [run]\n# max_workers = 5\n# agents = [\"claude-1\"]\n",
        commands.join(", ")
    )
}

/// Guesses the test command from the files of a repository.
fn detect_test_command(top: &Path) -> Option<String> {
    let has = |name: &str| top.join(name).is_file();
    let says = |name: &str, word: &str| {
        std::fs::read_to_string(top.join(name)).is_ok_and(|s| s.contains(word))
    };
    let found = if has("Cargo.toml") {
        "cargo test"
    } else if has("go.mod") {
        "go test ./..."
    } else if says("package.json", "\"test\"") {
        "npm test"
    } else if has("pytest.ini") || says("pyproject.toml", "pytest") {
        "python3 -m pytest"
    } else if says("Makefile", "\ntest:") {
        "make test"
    } else if has("test.sh") {
        "sh ./test.sh"
    } else {
        return None;
    };
    Some(found.into())
}

/// Runs `regatta up`.
pub(super) fn up(app: &CommandContext, restart: bool, listen: &ListenArgs) -> CommandResult {
    let data_dir = app.data_dir()?;
    if restart && let Some(client) = Client::find(&data_dir, app.timeout())? {
        stop_daemon(&client, true)?;
    }
    let before = Client::find(&data_dir, app.timeout())?.is_some();
    let flags = listen.flags();
    if before && !flags.is_empty() {
        return Err(command_error(
            "already_running",
            "the daemon is already running, so these options have no effect",
            "restart it with the options; its agents keep running: regatta up --restart …",
        ));
    }
    if !before {
        client::start_daemon(&data_dir, &flags)?;
    }
    let client = app.client()?;
    let card = daemon::read_daemon_info(client.data_dir()).ok_or_else(|| {
        command_error(
            "unreachable",
            "the daemon is running, but the file with its address is missing",
            "try again: regatta up --restart",
        )
    })?;
    let bridges: Vec<BridgeView> = client.call(&Call::BridgeList(input::EmptyInput {}))?.data;
    let word = if before { "already up" } else { "up" };
    app.output
        .print_answer("up", &card, &["regatta status".into()], |_| {
            let found = card
                .recovered
                .as_ref()
                .filter(|_| !before)
                .map_or(String::new(), recovered_text);
            let outside = card
                .outside
                .as_ref()
                .map_or(String::new(), |outside| format!(" and {outside}"));
            format!(
                "{word} at {}{outside} (pid {})\n{found}{}",
                card.url,
                card.pid,
                disconnected_bridges_text(&bridges)
            )
        })
}

/// Lists the bridges that are configured but off. A bridge whose variables were only in the
/// environment of an earlier daemon stays off until a daemon is started with them.
fn disconnected_bridges_text(bridges: &[BridgeView]) -> String {
    let off = bridges
        .iter()
        .filter_map(|bridge| Some((&bridge.name, bridge.off.as_ref()?)));
    off.map(|(name, why)| format!("  bridge {name} is off: {}\n", first_line(why)))
        .collect()
}

/// Describes the running work that the new daemon took over, so that people see that nothing is
/// lost.
fn recovered_text(found: &RecoveredWork) -> String {
    let how = if found.unclean {
        "recovered after an unclean stop"
    } else {
        "took over from the previous daemon"
    };
    let count = |many: usize, one: &str, more: &str| {
        format!("{many} {}", if many == 1 { one } else { more })
    };
    let mut facts = Vec::new();
    if found.attempts > 0 {
        let text = count(
            found.attempts,
            "was working and continues",
            "were working and continue",
        );
        facts.push(vec![
            "  agents".to_owned(),
            text + &names_text(&found.agents),
        ]);
    }
    if found.landings > 0 {
        let text = count(
            found.landings,
            "landing continues where it was",
            "landings continue where they were",
        );
        facts.push(vec!["  queue".to_owned(), text + &names_text(&found.queue)]);
    }
    if found.claims > 0 {
        facts.push(vec![
            "  claims".to_owned(),
            format!("{} held, each with its full TTL again", found.claims),
        ]);
    }
    facts.push(vec![
        "  tasks".to_owned(),
        format!("{} open", found.open_tasks),
    ]);
    format!("{how}\n{}", format_table(&facts))
}

/// Returns the first eight names in brackets, and the number of further names.
fn names_text(all: &[String]) -> String {
    let more = if all.len() > 8 {
        format!(" and {} more", all.len() - 8)
    } else {
        String::new()
    };
    let first = all.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        String::new()
    } else {
        format!(" ({first}{more})")
    }
}

/// Runs `regatta down`.
pub(super) fn down(app: &CommandContext, keep_agents: bool) -> CommandResult {
    let place = daemon::DataDir::new(&app.data_dir()?);
    let Some(client) = Client::find(&place.path, app.timeout())? else {
        record_stopped(app, &place);
        return app.output.print_answer(
            "down",
            &serde_json::json!({ "was_up": false }),
            &["regatta up".into()],
            |_| "the daemon was not running\n".into(),
        );
    };
    // Noted before the daemon ends, so that no command that runs meanwhile starts it again.
    record_stopped(app, &place);
    if let Err(error) = stop_daemon(&client, keep_agents) {
        if let Err(error) = place.record_stopped(false) {
            app.output.print_note(&format!(
                "could not note that the daemon is still running: {error}"
            ));
        }
        return Err(error);
    }
    let told = if keep_agents {
        "down; the agents keep running\n"
    } else {
        "down; all work is kept\n"
    };
    app.output.print_answer(
        "down",
        &serde_json::json!({ "was_up": true }),
        &["regatta up".into()],
        |_| told.into(),
    )
}

/// Notes that a person has stopped the daemon. If that fails, for example on a full disk, the
/// daemon stops all the same.
fn record_stopped(app: &CommandContext, place: &daemon::DataDir) {
    if let Err(error) = place.record_stopped(true) {
        app.output.print_note(&format!(
            "could not note that the daemon was stopped, so the next regatta command starts it \
            again: {error}"
        ));
    }
}

/// Stops the daemon, and waits until it has released its data directory and its process has exited.
fn stop_daemon(client: &Client, keep_agents: bool) -> Result<(), CommandError> {
    let place = client.data_dir();
    // The process handle is opened before the request. The answer carries the daemon's pid, and
    // while the handle is open no other process gets this pid.
    let held = daemon::read_daemon_info(place).and_then(|daemon_info| {
        Some((
            daemon_info.pid,
            daemon::open_process_handle(daemon_info.pid)?,
        ))
    });
    let pid: Option<CallReply<u32>> =
        client.call_while_up(&Call::Down(input::DownInput { keep_agents }))?;
    let patience = Instant::now() + client::MAX_STOP_DURATION;
    // The daemon removes its card last. A card that appears after that belongs to another daemon,
    // which keeps running.
    let mut gone = false;
    while place.is_locked()? {
        let card = daemon::read_daemon_info(place);
        if gone && card.is_some() {
            break;
        }
        gone |= card.is_none();
        if Instant::now() > patience {
            return Err(command_error(
                "io",
                "the daemon does not stop",
                format!("see its log: {}", place.log_path().display()),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // The daemon releases the lock just before it exits. After "down" its process must be gone too
    // (P3).
    if let Some((_, process)) = held.filter(|held| pid.is_some_and(|got| got.data == held.0)) {
        daemon::wait_for_exit(&process, EXIT_TIMEOUT);
    }
    Ok(())
}

/// Starts a daemon for a separate data directory, as the demo does.
pub(super) fn start_separate_daemon(data_dir: &Path) -> Result<Client, CommandError> {
    client::start_daemon(data_dir, &["--listen".into(), "127.0.0.1:0".into()])?;
    Client::connect(data_dir, None, None)
}

/// Stops the daemon of a separate data directory.
pub(super) fn stop_separate_daemon(client: &Client) -> Result<(), CommandError> {
    stop_daemon(client, false)
}
