//! The command `init`, which makes a git repository a project of Regatta.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use regatta_api::view::{AgentView, HookView, ProjectView, TaskView};
use regatta_api::{call, input};
use regatta_core::agent::Runtime;
use regatta_core::attempt;
use regatta_core::hook::HookAction;
use regatta_core::ids::{BranchName, HookId, ProjectName, TaskId};
use regatta_core::plural;
use regatta_core::schedule::{WaitKind, WaitReason};
use serde::Serialize;

use crate::client::{CallReply, Client};
use crate::commands::demo::is_data_of_a_demo;
use crate::commands::{CommandContext, CommandExamples};
use crate::commands::{doctor, shell_files, starter_agents};
use crate::output::{CommandError, CommandResult, Output, command_error, usage_error};
use crate::settings::{FileKind, value_of};
use crate::{composition, settings};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "init",
    &[
        "regatta init",
        "regatta init --yes",
        "regatta init --trunk main --validate 'cargo test'",
    ],
)];

#[derive(Debug, Default, Args)]
pub(crate) struct InitArgs {
    /// Branch into which finished work is merged (default: the branch that is checked out)
    #[arg(long)]
    pub(crate) trunk: Option<BranchName>,
    /// Command that must succeed before work is merged, such as 'cargo test'; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// Print regatta.toml instead of writing it, and change nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Do not add the hook that carries out requests in the project's messages, such as !mission
    #[arg(long)]
    pub(crate) no_router: bool,
    /// True if another command runs `init`. Then nothing is offered to the person.
    #[arg(skip)]
    pub(crate) offers_nothing: bool,
}

/// The result of `init`, for `--json`.
#[derive(Serialize)]
struct InitResult {
    project: ProjectView,
    wrote: Option<String>,
    /// The hook that passes messages in the project's channel to the router, which carries out
    /// requests in them; `None` with `--no-router`.
    router: Option<HookId>,
    /// The agents that were added, because their programs are installed and signed in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<String>,
    /// The commands that add the other agents whose programs are installed and signed in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    offers: Vec<String>,
    /// The shell completions and manual pages that were written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shell_files: Vec<String>,
    /// The tasks that waited because the project had no check, and that start now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    started: Vec<TaskId>,
    /// Remarks for the person: about submodules, LFS content, and checks that cannot pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// The request that adds a repository as a project, and the text for its settings file.
struct InitPlan {
    request: input::ProjectAdd,
    /// The path of the repository's `regatta.toml`, which may not exist yet.
    settings_path: PathBuf,
    /// True if the settings file does not exist yet and the repository has a working copy to write
    /// it to.
    should_write_settings: bool,
    settings_text: String,
    /// Remarks for the person: about submodules, LFS content, and checks that cannot pass.
    notes: Vec<String>,
}

/// Runs `regatta init`.
pub(crate) fn init(app: &CommandContext, args: &InitArgs) -> CommandResult {
    let InitPlan {
        request: add,
        settings_path: file,
        should_write_settings: writes,
        settings_text: text,
        notes,
    } = prepare_init(app, args)?;
    if args.print {
        return app
            .output
            .print_answer("config.file", &text, &[], |_| text.clone());
    }
    let commands = add.validation.clone();
    let new_file_text = if writes || args.validate.is_empty() || !file.exists() {
        None
    } else {
        Some(file_with_checks(&file, &commands)?)
    };
    let client = app.client()?;
    let gated = tasks_at_a_gate(&client)?;
    let project: CallReply<ProjectView> = client.call(call::ProjectAdd(add))?;
    let still_gated = tasks_at_a_gate(&client)?;
    let started: Vec<TaskId> = gated.difference(&still_gated).copied().collect();
    let wrote = if writes {
        let trunk = BranchName::new(&project.data.trunk).ok();
        std::fs::write(
            &file,
            settings_file_text(Some(&project.data.name), trunk.as_ref(), &commands),
        )
        .map_err(|error| write_error(&file, &error))?;
        Some(file.display().to_string())
    } else if let Some(text) = new_file_text {
        std::fs::write(&file, text).map_err(|error| write_error(&file, &error))?;
        Some(file.display().to_string())
    } else {
        None
    };
    // Print what was set up before the questions below, so that the person knows what they are about.
    let set_up = set_up_text(&app.output, &project.data, wrote.as_deref(), &started);
    if !app.output.is_json {
        app.output.print_answer("init", &(), &[], |_| set_up)?;
    }
    let router = if args.no_router {
        None
    } else {
        Some(install_router(&client, &project.data.name)?)
    };
    let agents: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let proposal = starter_agents::propose(app, &client, &agents.data)?;
    let shell_files = if args.offers_nothing {
        shell_files::OfferOutcome::default()
    } else {
        shell_files::offer(app)?
    };
    let is_scripted = |view: &AgentView| matches!(view.agent.runtime, Runtime::Scripted);
    let has_agents = !proposal.added.is_empty() || !agents.data.iter().all(is_scripted);
    let next: Vec<String> = if !started.is_empty() {
        vec!["regatta status".into()]
    } else if project.data.validation.is_empty() {
        vec!["regatta init --validate 'make test'".into()]
    } else if has_agents {
        vec!["regatta run \"WHAT TO DO\"".into()]
    } else if wrote.is_some() && proposal.commands.is_empty() {
        vec![doctor::COMMIT_SETTINGS.into()]
    } else if proposal.commands.is_empty() {
        vec!["regatta provider".into()]
    } else {
        proposal.commands.iter().take(1).cloned().collect()
    };
    let done = InitResult {
        project: project.data,
        wrote,
        router,
        agents: proposal.added,
        offers: proposal.commands,
        shell_files: shell_files.wrote,
        started,
        notes,
    };
    app.output.print_answer("init", &done, &next, |out| {
        let mut text = String::new();
        if !done.agents.is_empty() {
            text += &format!("agents  {}\n", done.agents.join(", "));
        }
        for command in &done.offers {
            text += &format!("offer   {}\n", out.command(command));
        }
        for line in &shell_files.lines {
            text += &format!("{}\n", out.command(line));
        }
        for note in &done.notes {
            text += &format!("note    {note}\n");
        }
        text
    })
}

/// Returns the lines about the project that `init` has set up.
fn set_up_text(
    out: &Output,
    project: &ProjectView,
    wrote: Option<&str>,
    started: &[TaskId],
) -> String {
    let checks = if project.validation.is_empty() {
        out.command(
            "none, so no task that changes files starts: regatta init --validate 'make test'",
        )
    } else {
        project.validation.join(" · ")
    };
    let mut text = format!(
        "project {}  {}\ntrunk   {}\nchecks  {checks}\n",
        project.name, project.path, project.trunk
    );
    if let Some(file) = wrote {
        text += &format!("wrote   {file}\n");
    }
    if !started.is_empty() {
        let names: Vec<String> = started.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text += &format!(
            "starts  {}, because {} waited for a check\n",
            attempt::first_few(&names),
            plural::choose(names.len(), "it", "they")
        );
    }
    text
}

/// Returns the tasks that an agent would start if a gate, such as a missing check, did not stop
/// them.
fn tasks_at_a_gate(client: &Client) -> Result<BTreeSet<TaskId>, CommandError> {
    let tasks: CallReply<Vec<TaskView>> = client.call(call::TaskList(input::TaskList {
        project: None,
        mission: None,
        status: vec![],
        all: false,
        limit: 0,
    }))?;
    let is_held = |view: &&TaskView| {
        let has_agents = view.task.mission.is_some() || view.task.assignee.is_some();
        let is_gate = |reason: &WaitReason| reason.kind == WaitKind::Gate;
        let can_start = |reason: &WaitReason| is_gate(reason) || reason.kind == WaitKind::Runner;
        has_agents && view.waits.iter().any(is_gate) && view.waits.iter().all(can_start)
    };
    let held = tasks.data.iter().filter(is_held);
    Ok(held.map(|view| view.task.id).collect())
}

/// Inspects the repository and its settings, without changing anything.
fn prepare_init(app: &CommandContext, args: &InitArgs) -> Result<InitPlan, CommandError> {
    composition::require_supported_git()?;
    let here = app.working_dir()?;
    let data_dir = app.data_dir()?;
    if is_data_of_a_demo(&data_dir) {
        return Err(command_error(
            "demo_data",
            format!(
                "this shell still uses the data of a demo, {}, and a project there is lost with \
                 the demo",
                data_dir.display()
            ),
            "unset REGATTA_DATA_DIR",
        ));
    }
    // In a linked worktree (`git worktree add`), make the main repository the project, and not the
    // worktree.
    let here = match crate::commands::main_worktree(&here) {
        Some(main) => {
            app.output.print_note(&format!(
                "this is a worktree of {}, so the project is that repository",
                main.display()
            ));
            main
        }
        None => here,
    };
    let facts = composition::git_adapter(&data_dir)
        .inspect(&here)
        .map_err(|error| command_error(error.code, error.message, error.hint))?;
    if facts.is_unborn && args.trunk.is_none() {
        return Err(command_error(
            "unborn_branch",
            "the repository has no commit yet, so tasks have nothing to start from",
            "make the first commit: git commit --allow-empty -m start",
        ));
    }
    let settings = settings::resolve_all(&facts.top)?;
    let found = |name: &str| Some(value_of(&settings, name)).filter(|s| !s.is_empty());
    let trunk = match (&args.trunk, found("project.trunk")) {
        (Some(trunk), _) => Some(trunk.clone()),
        (None, Some(text)) => Some(BranchName::new(&text).map_err(|error| {
            usage_error(
                error.to_string(),
                "set project.trunk in regatta.toml to a branch name, such as main",
            )
        })?),
        (None, None) => facts.branch.clone(),
    };
    let file = facts.top.join("regatta.toml");
    let known = settings::read_file(&file, FileKind::Repository)?;
    let commands = match known
        .as_ref()
        .and_then(|settings_file| settings_file.validation.commands.clone())
    {
        _ if !args.validate.is_empty() => args.validate.clone(),
        Some(commands) => commands,
        None => detect_test_command(&facts.top).into_iter().collect(),
    };
    let name = match (&app.global.project, found("project.name")) {
        (Some(name), _) => Some(name.clone()),
        (None, Some(text)) => Some(ProjectName::new(&text).map_err(|error| {
            usage_error(
                error.to_string(),
                "set project.name in regatta.toml to a valid name, such as shop",
            )
        })?),
        (None, None) => None,
    };
    let text = settings_file_text(name.as_ref(), trunk.as_ref(), &commands);
    let timeout = settings::duration_ms(&value_of(&settings, "validation.timeout")).map_err(
        |duration_m| {
            command_error(
                "bad_config",
                duration_m,
                "set validation.timeout in regatta.toml to a time, such as 10m",
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
    let notes = crate::commands::doctor::check_submodules_and_lfs(&facts)
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

/// Returns a warning if a check runs `make` and there is no Makefile, because every task would
/// fail.
fn missing_makefile_note(top: &Path, commands: &[String]) -> Option<String> {
    let has_makefile = MAKEFILES.iter().any(|name| top.join(name).is_file());
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

/// Reads a project's settings from its files again, and sends them to the daemon.
pub(crate) fn refresh_settings(
    app: &CommandContext,
    project: &ProjectName,
) -> Result<(), CommandError> {
    let add = prepare_init(app, &InitArgs::default())?.request;
    let add = input::ProjectAdd {
        name: Some(project.clone()),
        ..add
    };
    app.call(call::ProjectAdd(add)).map(|_| ())
}

fn write_error(file: &Path, error: &std::io::Error) -> CommandError {
    command_error(
        "io",
        format!(
            "could not write the settings file {}: {error}",
            file.display()
        ),
        "check the permissions of the directory",
    )
}

/// Returns the text of an existing settings file with its checks replaced by `commands`. Fails if
/// the file lists its checks in a form that cannot be edited here, because otherwise the project's
/// settings and its file would differ.
fn file_with_checks(file: &Path, commands: &[String]) -> Result<String, CommandError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        command_error(
            "io",
            format!(
                "could not read the settings file {}: {error}",
                file.display()
            ),
            "check the permissions of the file",
        )
    })?;
    replace_checks(&text, commands).ok_or_else(|| {
        usage_error(
            format!(
                "the settings file {file} already lists checks in a form that regatta init cannot \
                 change",
                file = file.display()
            ),
            "edit `commands` under [validation] in that file; the change applies when you save the \
             file",
        )
    })
}

/// Returns the text of a settings file with its checks replaced, or added if it has none. Returns
/// `None` if the file lists its checks in another form than `init` writes, for example on several
/// lines.
fn replace_checks(text: &str, commands: &[String]) -> Option<String> {
    let quoted: Vec<toml::Value> = commands
        .iter()
        .map(|command| toml::Value::String(command.clone()))
        .collect();
    let checks = toml::Value::Array(quoted);
    let before: toml::Table = text.parse().ok()?;
    let edited = edit_checks(text, &checks)?;
    // The edit works on lines of text, so verify it: parsed as TOML, the new text must differ from
    // the old one only in the checks.
    let mut expected = before;
    let section = expected
        .entry("validation")
        .or_insert_with(|| toml::Table::new().into());
    section.as_table_mut()?.insert("commands".into(), checks);
    let after: toml::Table = edited.parse().ok()?;
    (after == expected).then_some(edited)
}

/// Replaces the line `commands = …` under `[validation]` with a line that lists these checks. Adds
/// the line if it is missing.
fn edit_checks(text: &str, checks: &toml::Value) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(table) = lines.iter().position(|line| line.trim() == "[validation]") else {
        return Some(format!("{text}\n[validation]\ncommands = {checks}\n"));
    };
    let is_commands =
        |line: &String| line.split('=').next().unwrap_or_default().trim() == "commands";
    let end = lines[table + 1..]
        .iter()
        .position(|line| line.trim_start().starts_with('['))
        .map_or(lines.len(), |length| table + 1 + length);
    match lines[table + 1..end].iter().position(is_commands) {
        None => lines.insert(table + 1, format!("commands = {checks}")),
        Some(offset) => {
            let line = &mut lines[table + 1 + offset];
            let (_, value) = line.split_once('=')?;
            // Search for the end of the list: the first `]` at which the text up to there is valid
            // TOML. At a bracket inside a string the text is not valid yet. A comment may follow
            // the list.
            let is_list = |end: &usize| {
                let list = format!("commands = {}", &value[..=*end]);
                list.parse::<toml::Table>().is_ok()
            };
            let end = value.match_indices(']').map(|(end, _)| end).find(is_list)?;
            *line = format!("commands = {checks}{}", &value[end + 1..]);
        }
    }
    Some(lines.join("\n") + "\n")
}

/// Returns the hook that passes messages in a project's channel to the router, which carries out
/// requests in them. Adds the hook if it does not exist.
fn install_router(client: &Client, project: &ProjectName) -> Result<HookId, CommandError> {
    let hooks: CallReply<Vec<HookView>> = client.call(call::HookList(input::EmptyInput {}))?;
    let routes = |hook: &&HookView| {
        hook.hook.action == HookAction::Route && hook.hook.project.as_ref() == Some(project)
    };
    if let Some(known) = hooks.data.iter().find(routes) {
        return Ok(known.hook.id);
    }
    let new: CallReply<HookView> = client.call(call::HookAdd(
        crate::commands::migrate::router_hook_request(project, None)?,
    ))?;
    Ok(new.data.hook.id)
}

/// Returns the text of a new `regatta.toml`. Unknown values are written as comments.
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

/// The names of a Makefile, in the order in which `make` looks for them.
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];

/// Returns true if a line of a Makefile defines the target `test`.
fn is_test_target(line: &str) -> bool {
    line.strip_prefix("test")
        .map(str::trim_start)
        .is_some_and(|rest| rest.starts_with(':') && !rest.starts_with(":="))
}

/// Returns true if `package.json` has a test script other than the one that `npm init` writes,
/// which only fails.
fn has_npm_test(package: &str) -> bool {
    let package: serde_json::Value = serde_json::from_str(package).unwrap_or_default();
    package["scripts"]["test"]
        .as_str()
        .is_some_and(|script| !script.trim().is_empty() && !script.contains("no test specified"))
}

/// Returns the text of each Python file in a directory whose name matches.
fn python_files(dir: &Path, matches: impl Fn(&str) -> bool) -> Vec<String> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_suffix(".py").is_some_and(&matches)
        })
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .collect()
}

/// Returns the command that runs the Python tests of a repository, if it has any.
fn detect_python_test_command(top: &Path) -> Option<&'static str> {
    let has_part = |(file, part): &(&str, &str)| {
        std::fs::read_to_string(top.join(file)).is_ok_and(|text| text.contains(part))
    };
    let settings = [
        ("pytest.ini", ""),
        ("pyproject.toml", "pytest"),
        ("setup.cfg", "[tool:pytest]"),
        ("tox.ini", "pytest"),
        ("conftest.py", ""),
        ("tests/conftest.py", ""),
    ];
    if settings.iter().any(has_part) {
        return Some("python3 -m pytest");
    }
    // `unittest` searches `tests` only if it has an `__init__.py`.
    let mut unittests = python_files(top, |name| name.starts_with("test"));
    if top.join("tests/__init__.py").exists() {
        unittests.extend(python_files(&top.join("tests"), |name| {
            name.starts_with("test")
        }));
    }
    if unittests.iter().any(|text| text.contains("unittest")) {
        return Some("python3 -m unittest");
    }
    let is_pytest = |name: &str| name.starts_with("test_") || name.ends_with("_test");
    [top.to_owned(), top.join("tests")]
        .iter()
        .any(|dir| !python_files(dir, is_pytest).is_empty())
        .then_some("python3 -m pytest")
}

/// Guesses the test command from the files of a repository.
fn detect_test_command(top: &Path) -> Option<String> {
    let text_of = |name: &str| std::fs::read_to_string(top.join(name)).ok();
    let found = if top.join("Cargo.toml").is_file() {
        "cargo test"
    } else if top.join("go.mod").is_file() {
        "go test ./..."
    } else if text_of("package.json").is_some_and(|text| has_npm_test(&text)) {
        "npm test"
    } else if let Some(command) = detect_python_test_command(top) {
        command
    } else if MAKEFILES
        .iter()
        .find_map(|name| text_of(name))
        .is_some_and(|text| text.lines().any(is_test_target))
    {
        "make test"
    } else if top.join("test.sh").is_file() {
        "sh ./test.sh"
    } else {
        return None;
    };
    Some(found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_replaced_where_they_stand_and_nothing_else_changes() {
        let commands = ["make test".to_owned()];
        let file =
            "[project]\nname = \"a\"\n\n[validation]\ncommands = []   # must pass\n\n[run]\n";
        let expected = file.replace("[]", "[\"make test\"]");
        assert_eq!(replace_checks(file, &commands), Some(expected));
        let without = "[project]\nname = \"a\"\n";
        let added = replace_checks(without, &commands).unwrap();
        assert!(
            added.ends_with("\n[validation]\ncommands = [\"make test\"]\n"),
            "{added}"
        );
        let only_timeout = "[validation]\ntimeout = \"5m\"\n";
        let added = replace_checks(only_timeout, &commands).unwrap();
        assert!(
            added.starts_with("[validation]\ncommands = [\"make test\"]\ntimeout"),
            "{added}"
        );
        let on_lines = "[validation]\ncommands = [\n  \"a\",\n]\n";
        assert_eq!(replace_checks(on_lines, &commands), None);
    }

    /// The files of a repository with their texts, and the expected command.
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

    #[test]
    fn the_test_command_is_guessed_from_the_files() {
        let npm_default = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        let cases: &[Case] = &[
            (&[("Cargo.toml", "")], Some("cargo test")),
            (&[("go.mod", "")], Some("go test ./...")),
            (
                &[("package.json", r#"{"scripts": {"test": "vitest run"}}"#)],
                Some("npm test"),
            ),
            (&[("package.json", npm_default)], None),
            (&[("package.json", r#"{"keywords": ["test"]}"#)], None),
            // The default of npm hides no other way to test.
            (
                &[("package.json", npm_default), ("Makefile", "test:\n")],
                Some("make test"),
            ),
            (&[("pytest.ini", "")], Some("python3 -m pytest")),
            (
                &[("setup.cfg", "[tool:pytest]\n")],
                Some("python3 -m pytest"),
            ),
            (&[("setup.cfg", "[metadata]\n")], None),
            (
                &[("tox.ini", "[testenv]\ncommands = pytest\n")],
                Some("python3 -m pytest"),
            ),
            (&[("tox.ini", "[flake8]\n")], None),
            (&[("conftest.py", "")], Some("python3 -m pytest")),
            (&[("tests/conftest.py", "")], Some("python3 -m pytest")),
            (
                &[("tests/test_sum.py", "def test_sum(): pass\n")],
                Some("python3 -m pytest"),
            ),
            (
                &[
                    ("tests/__init__.py", ""),
                    ("tests/test_sum.py", "def test_sum(): pass\n"),
                ],
                Some("python3 -m pytest"),
            ),
            (
                &[
                    ("tests/__init__.py", ""),
                    ("tests/test_sum.py", "import unittest\n"),
                ],
                Some("python3 -m unittest"),
            ),
            (
                &[("test_sum.py", "import unittest\n")],
                Some("python3 -m unittest"),
            ),
            (&[("tests/data.py", "")], None),
            (&[("Makefile", "all:\n\ntest: all\n")], Some("make test")),
            (&[("GNUmakefile", "test:\n")], Some("make test")),
            (&[("makefile", "test :\n")], Some("make test")),
            (&[("Makefile", "test := 1\ntests:\n")], None),
            // `make` reads only the first of its files.
            (&[("GNUmakefile", "all:\n"), ("Makefile", "test:\n")], None),
            (&[("test.sh", "")], Some("sh ./test.sh")),
        ];
        for (files, expected) in cases {
            let top = tempfile::tempdir().unwrap();
            for (name, text) in *files {
                let file = top.path().join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            let found = detect_test_command(top.path());
            assert_eq!(found.as_deref(), *expected, "{files:?}");
        }
    }

    /// An edit that would make the file invalid, or change another setting, is refused.
    #[test]
    fn a_comment_with_a_bracket_stays_and_a_second_table_is_never_added() {
        let commands = ["make test".to_owned()];
        let file = "[validation]\ncommands = [\"a ] b\"] # see [landing] too\n";
        let expected = "[validation]\ncommands = [\"make test\"] # see [landing] too\n";
        assert_eq!(replace_checks(file, &commands).as_deref(), Some(expected));
        let commented_header = "[validation] # checks\ncommands = []\n";
        assert_eq!(replace_checks(commented_header, &commands), None);
        let dotted = "validation.commands = []\n";
        assert_eq!(replace_checks(dotted, &commands), None);
    }
}
