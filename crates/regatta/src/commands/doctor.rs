//! The command `doctor`: checks the machine, the daemon and the agents, and prints a fix for each
//! problem.
//!
//! The result of a check has a level (ok, warning or bad), a text and a fix. The checks change
//! nothing; only `--clean` and `--end-strays` remove what was found. The daemon runs some of these
//! checks for the web page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use regatta_agents::program_discovery::{FoundProgram, MachineFacts, SignIn};
use regatta_agents::{presets, program_discovery};
use regatta_api::live_view::{CheckLevel, DoctorCheck, DoctorView};
use regatta_core::plural;
use regatta_engine::ports::git::RepoFacts;

use crate::client::Client;
use crate::commands::{CommandContext, CommandExamples, provider};
use crate::composition;
use crate::output::{CommandError, CommandResult, Output, display_width, format_table_for, wrap};
use crate::settings::{self, FileKind};

mod fleet; // checks of the store, the agents and the bridges
mod strays; // checks for leftover processes and directories

use fleet::FleetReport;
use strays::check_strays;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "doctor",
    &[
        "regatta doctor",
        "regatta doctor --clean",
        "regatta doctor --end-strays",
    ],
)];

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Remove leftovers that no daemon can find again: processes whose data directory was deleted,
    /// directories of interrupted agent tests, and empty control groups
    #[arg(long)]
    pub(crate) clean: bool,
    /// End agents' programs that still run although their daemon has ended
    #[arg(long)]
    pub(crate) end_strays: bool,
}

/// Returns the checks that the daemon runs when the web page or another API client asks. The checks
/// of the current directory's repository are left out.
pub(crate) fn daemon_doctor(dir: PathBuf) -> regatta_server::Doctor {
    Arc::new(move |patient| {
        let mut checks = vec![check_git(), check_disk(&dir)];
        let of_project =
            |(name, path): &(_, PathBuf)| check_repository(&format!("repo {name}"), path, &dir);
        checks.extend(patient.projects.iter().map(of_project));
        if patient.projects.is_empty() {
            let (what, fix) = ("none yet", "in a git repository: regatta init");
            checks.push(check_line("project", CheckLevel::Warn, what, fix));
        }
        let presets = provider::find_presets();
        let runtimes = patient.agents.iter().map(|view| &view.agent.runtime);
        checks.extend(fleet::check_agents_exist(runtimes, || presets.clone()));
        checks.extend(patient.agents.iter().flat_map(fleet::check_agent_view));
        checks.extend(fleet::check_parked(&patient.agents));
        checks.extend(patient.bridges.iter().map(fleet::check_bridge));
        checks.push(check_sandbox());
        DoctorView {
            checks,
            providers: presets.iter().map(provider::provider_line).collect(),
        }
    })
}

fn check_line(
    id: &str,
    level: CheckLevel,
    text: impl Into<String>,
    fix: impl Into<String>,
) -> DoctorCheck {
    DoctorCheck {
        id: id.to_owned(),
        level,
        text: text.into(),
        fix: fix.into(),
    }
}

/// Runs `regatta doctor`. Fails if the result of any check is bad.
pub(crate) fn doctor(app: &CommandContext, args: &DoctorArgs) -> CommandResult {
    let mut checks = vec![check_git()];
    checks.extend(check_kernel());
    let mut report = FleetReport::default();
    let mut project_checks = None;
    let data_dir = app.data_dir();
    checks.push(match &data_dir {
        Ok(dir) => check_data_dir(dir),
        Err(error) => check_from_error("data", error),
    });
    checks.push(match settings::resolve_all(&app.working_dir()?) {
        Ok(_) => check_line("config", CheckLevel::Ok, "settings can be read", ""),
        Err(error) => check_from_error("config", &error),
    });
    if let Ok(dir) = &data_dir {
        checks.push(check_disk(dir));
        checks.push(check_repository("repo", &app.working_dir()?, dir));
        let facts = composition::git_adapter(dir).inspect(&app.working_dir()?);
        if let Ok(facts) = &facts {
            checks.extend(check_submodules_and_lfs(facts));
        }
        let client_result = match app.global.server {
            Some(_) => app.client().map(Some),
            None => Client::find(dir, app.timeout()),
        };
        report = match client_result {
            Ok(Some(client)) => fleet::check_running_daemon(&client),
            Ok(None) => fleet::check_store_offline(dir),
            Err(error) => FleetReport {
                checks: vec![check_from_error("daemon", &error)],
                ..FleetReport::default()
            },
        };
        // The projects of a daemon on another machine are not in this directory.
        if facts.is_ok()
            && app.global.server.is_none()
            && let Some(projects) = &report.projects
        {
            let project = fleet::project_here(app, projects)?;
            checks.push(fleet::check_project(project));
            project_checks = project.map(|project| project.validation.clone());
        }
        checks.append(&mut report.checks);
        checks.extend(check_strays(dir, args));
    }
    let file_checks = settings::nearest_file(&app.working_dir()?)
        .and_then(|file| settings::read_file(&file, FileKind::Repository).ok()?)
        .and_then(|file| file.validation.commands);
    checks.extend(check_validation(file_checks, project_checks));
    checks.push(check_sandbox());
    checks.extend(check_path());
    checks.extend(check_providers(report.has_agents));
    let count = |level| {
        checks
            .iter()
            .filter(|doctor_check| doctor_check.level == level)
            .count()
    };
    let (bad, warnings) = (count(CheckLevel::Bad), count(CheckLevel::Warn));
    let summary = match (bad, warnings) {
        (0, 0) => "no problems\n".to_owned(),
        (0, _) => format!("{}\n", plural::count(warnings, "warning")),
        (_, 0) => format!("{bad} to fix\n"),
        _ => format!("{bad} to fix, {warnings} more to check\n"),
    };
    app.output.print_answer("doctor", &checks, &[], |out| {
        // The fixes of the checks are commands for this shell.
        let mut checks = checks.clone();
        for check in &mut checks {
            check.fix = out.command(&check.fix);
        }
        draw_checks(out, &checks, crate::output::window_width()) + &summary
    })?;
    if bad == 0 {
        Ok(())
    } else {
        Err(CommandError::Exit(1))
    }
}

/// Returns a warning if the project has no check commands, because without them tasks that change
/// files do not start. `file` has the commands of `regatta.toml`, if the file lists commands, which
/// then count. `project` has the commands that the project got at `init`, if it is a project.
fn check_validation(
    file: Option<Vec<String>>,
    project: Option<Vec<String>>,
) -> Option<DoctorCheck> {
    let commands = file.or(project)?;
    commands.is_empty().then(|| {
        check_line(
            "checks",
            CheckLevel::Warn,
            "none, so tasks that change files do not start",
            "regatta init --validate 'make test'",
        )
    })
}

/// Returns a problem if the kernel is older than Regatta needs.
fn check_kernel() -> Option<DoctorCheck> {
    let release = crate::this_machine::kernel_release()?;
    let (major, minor) = parse_kernel_release(&release)?;
    ((major, minor) < MIN_KERNEL).then(|| {
        check_line(
            "kernel",
            CheckLevel::Bad,
            format!(
                "Linux {major}.{minor} is too old; Regatta needs {}.{}",
                MIN_KERNEL.0, MIN_KERNEL.1
            ),
            "use a newer system, or a virtual machine with one: docs/platforms.md",
        )
    })
}

/// The oldest kernel that has all system calls that Regatta uses.
const MIN_KERNEL: (u32, u32) = (5, 6);

/// Returns the major and minor number of a kernel's release, such as `6.1.0-28-amd64`.
fn parse_kernel_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns a warning if the shell does not start this copy for `regatta`, because then no command
/// that Regatta prints works as it is printed. An unrelated program of the same name exists on PyPI.
fn check_path() -> Option<DoctorCheck> {
    let own = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .ok()?;
    path_warning(&own, crate::commands::upgrade::first_on_path().as_deref())
}

/// Returns a warning if `first`, the program that the shell starts for `regatta`, is not `own`.
fn path_warning(own: &Path, first: Option<&Path>) -> Option<DoctorCheck> {
    let text = match first {
        Some(first) if first == own => return None,
        Some(first) => format!(
            "the command `regatta` starts another program: {}",
            first.display()
        ),
        None => "the shell does not find `regatta`, so type the program's path instead".to_owned(),
    };
    let dir = own.parent().unwrap_or(own).display();
    let fix = format!("put {dir} first on the PATH: export PATH=\"{dir}:$PATH\"");
    Some(check_line("path", CheckLevel::Warn, text, fix))
}

/// Draws the results as a table. In a narrow window the text is wrapped and the fix is printed
/// below the text. The fix is never cut, because people copy it.
fn draw_checks(out: &Output, checks: &[DoctorCheck], window: Option<usize>) -> String {
    let head = |doctor_check: &DoctorCheck| {
        let (glyph, style) = match doctor_check.level {
            CheckLevel::Ok => (if out.is_unicode { "✓" } else { "+" }, "32"),
            CheckLevel::Warn => ("!", "33"),
            CheckLevel::Bad => (if out.is_unicode { "✕" } else { "x" }, "31"),
        };
        format!("{} {}", out.paint(glyph, style), doctor_check.id)
    };
    let row = |doctor_check: &DoctorCheck| {
        vec![
            head(doctor_check),
            doctor_check.text.clone(),
            doctor_check.fix.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = checks.iter().map(row).collect();
    let table = format_table_for(&rows, None);
    let Some(window) =
        window.filter(|window| table.lines().any(|line| display_width(line) > *window))
    else {
        return table;
    };
    let first_width = rows
        .iter()
        .map(|row| display_width(&row[0]))
        .max()
        .unwrap_or(0);
    let (room, indent) = (
        window.saturating_sub(first_width + 2).max(20),
        " ".repeat(first_width + 2),
    );
    let mut text = String::new();
    for (row, doctor_check) in rows.iter().zip(checks) {
        let mut lines = wrap(&doctor_check.text, room, MAX_TEXT_LINES);
        if !doctor_check.fix.is_empty() {
            lines.extend(wrap(
                &format!("fix: {}", doctor_check.fix),
                room,
                usize::MAX,
            ));
        }
        for (nth, line) in lines.iter().enumerate() {
            match nth {
                0 => {
                    text += &format!(
                        "{}{}{line}\n",
                        row[0],
                        " ".repeat(first_width + 2 - display_width(&row[0]))
                    )
                }
                _ => text += &format!("{indent}{line}\n"),
            }
        }
    }
    text
}

/// The maximum number of lines that `doctor` prints for the text of one check in a narrow window.
const MAX_TEXT_LINES: usize = 6;

fn check_from_error(id: &str, error: &CommandError) -> DoctorCheck {
    match error {
        CommandError::Problem(problem) => check_line(
            id,
            CheckLevel::Bad,
            crate::project_files::in_one_line(&problem.message),
            problem.hint.clone(),
        ),
        CommandError::Exit(code) => check_line(
            id,
            CheckLevel::Bad,
            format!("failed with exit code {code}"),
            "",
        ),
    }
}

fn check_git() -> DoctorCheck {
    let found = regatta_git::require_supported_version().and_then(|()| regatta_git::version());
    match found {
        Ok((version, _)) => check_line("git", CheckLevel::Ok, version, ""),
        Err(error) => check_line("git", CheckLevel::Bad, error.message, error.hint),
    }
}

fn check_disk(dir: &Path) -> DoctorCheck {
    match rustix::fs::statvfs(nearest_existing_dir(dir)) {
        Ok(stat_vfs) => {
            let free = stat_vfs.f_bavail.saturating_mul(stat_vfs.f_frsize) / (1 << 20);
            let level = if free < 500 {
                CheckLevel::Bad
            } else if free < 2_048 {
                CheckLevel::Warn
            } else {
                CheckLevel::Ok
            };
            let fix = if level == CheckLevel::Ok {
                ""
            } else {
                "free some space, because each workspace is a copy of the repository"
            };
            check_line("disk", level, format!("{free} MB free"), fix)
        }
        Err(error) => check_line(
            "disk",
            CheckLevel::Warn,
            format!("could not read the free space: {error}"),
            "",
        ),
    }
}

/// The command that commits the settings file that `init` has written.
pub(crate) const COMMIT_SETTINGS: &str = "git add regatta.toml && git commit -m 'Use Regatta'";

/// Checks that a repository has a commit, and warns of uncommitted changes, which delay landings.
fn check_repository(id: &str, path: &Path, data_dir: &Path) -> DoctorCheck {
    match composition::git_adapter(data_dir).inspect(path) {
        Err(error) => check_line(id, CheckLevel::Warn, error.message, error.hint),
        Ok(facts) if facts.is_unborn => check_line(
            id,
            CheckLevel::Bad,
            "no commit yet",
            "git commit --allow-empty -m start",
        ),
        Ok(facts) => match (&facts.operation_in_progress, facts.dirty_files.is_empty()) {
            (Some(what), _) => check_line(
                id,
                CheckLevel::Warn,
                format!("in the middle of {what}"),
                "finish or abort it, because landings wait until then",
            ),
            (None, false) => check_line(
                id,
                CheckLevel::Warn,
                format!("changes in {}", facts.dirty_files.join(", ")),
                "commit or stash them, because work on these files lands only after that: git \
                 commit -a, or git stash",
            ),
            (None, true) if facts.has_untracked_settings => check_line(
                id,
                CheckLevel::Warn,
                "regatta.toml is not committed, so other clones of the repository do not have it",
                COMMIT_SETTINGS,
            ),
            (None, true) => check_line(
                id,
                CheckLevel::Ok,
                format!(
                    "clean, on {}",
                    facts
                        .branch
                        .map_or("no branch".into(), |branch| branch.to_string())
                ),
                "",
            ),
        },
    }
}

/// Reports how submodules and LFS content get into workspaces, because a plain clone of the
/// repository does not contain them.
pub(crate) fn check_submodules_and_lfs(facts: &RepoFacts) -> Vec<DoctorCheck> {
    let mut found = Vec::new();
    let named = |is_checked_out: bool| {
        let submodules = facts
            .submodules
            .iter()
            .filter(|submodule| submodule.is_checked_out == is_checked_out);
        submodules
            .map(|submodule| submodule.path.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (along, empty) = (named(true), named(false));
    if !along.is_empty() {
        let text = format!("copied into workspaces and validation from your checkout: {along}");
        found.push(check_line("submodules", CheckLevel::Ok, text, ""));
    }
    if !empty.is_empty() {
        let text = format!("not checked out here, so empty in workspaces and validation: {empty}");
        found.push(check_line(
            "submodules",
            CheckLevel::Warn,
            text,
            "git submodule update --init --recursive",
        ));
    }
    if facts.has_lfs {
        let text = "LFS content is not copied: workspaces contain only the pointer files";
        found.push(check_line(
            "lfs",
            CheckLevel::Warn,
            text,
            "list the files you need in [workspace] copy in regatta.toml",
        ));
    }
    found
}

/// Checks that the data directory can be used, without creating it.
fn check_data_dir(dir: &Path) -> DoctorCheck {
    let path = nearest_existing_dir(dir);
    let shown = dir.display();
    let writable = rustix::fs::access(
        path,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    );
    match writable {
        _ if !path.is_dir() => {
            let what = format!("{} is not a directory", path.display());
            check_line(
                "data",
                CheckLevel::Bad,
                what,
                "move it away, or set REGATTA_DATA_DIR to another directory",
            )
        }
        Ok(()) if path == dir => check_line("data", CheckLevel::Ok, shown.to_string(), ""),
        Ok(()) => check_line(
            "data",
            CheckLevel::Ok,
            format!("{shown}, created at the first start"),
            "",
        ),
        Err(error) => {
            let what = format!("cannot write to {}: {error}", path.display());
            check_line(
                "data",
                CheckLevel::Bad,
                what,
                "change its permissions, or set REGATTA_DATA_DIR to another directory",
            )
        }
    }
}

/// Returns the directory itself, or its nearest parent that exists.
fn nearest_existing_dir(dir: &Path) -> &Path {
    dir.ancestors().find(|path| path.exists()).unwrap_or(dir)
}

/// Checks for each provider (such as anthropic) whether its agent program is installed and signed
/// in. Programs that are not installed share one line, which is a warning only if no program is
/// installed and `has_agents` is false.
fn check_providers(has_agents: bool) -> Vec<DoctorCheck> {
    let machine = MachineFacts::this_machine();
    let mut by_provider: BTreeMap<&str, Vec<&'static presets::Preset>> = BTreeMap::new();
    for preset in presets::PRESETS {
        by_provider.entry(preset.provider).or_default().push(preset);
    }
    let is_on_path = |preset: &&presets::Preset| {
        let path = &machine.path;
        preset
            .programs
            .iter()
            .any(|program| program_discovery::program_on_path(program, path).is_some())
    };
    let (mut installed, mut missing) = (vec![], vec![]);
    for (provider, presets) in by_provider {
        match presets.iter().copied().find(|preset| is_on_path(preset)) {
            None => missing.push(provider),
            Some(preset) => installed.push(preset),
        }
    }
    let found = program_discovery::discover_all(&installed, &machine);
    let mut checks: Vec<DoctorCheck> = found
        .iter()
        .map(|program| check_provider(program.preset.provider, program))
        .collect();
    let hint = "regatta provider lists how to install each";
    match (checks.is_empty(), missing.is_empty()) {
        (_, true) => {}
        (false, _) => checks.push(check_line(
            "providers",
            CheckLevel::Ok,
            format!("not installed: {}", missing.join(", ")),
            hint,
        )),
        (true, _) if has_agents => checks.push(check_line(
            "providers",
            CheckLevel::Ok,
            "no known agent program is installed",
            hint,
        )),
        (true, _) => {
            let text = "no agent program is installed";
            let fix = format!("{hint}; to try Regatta without one: regatta demo");
            checks.push(check_line("providers", CheckLevel::Warn, text, fix));
        }
    }
    checks
}

/// Reports the version and the sign-in of a provider's installed agent program.
fn check_provider(provider: &str, found: &FoundProgram) -> DoctorCheck {
    let version = found.version.as_deref().unwrap_or("unknown version");
    let name = found.preset.name;
    let signed = match &found.sign_in {
        SignIn::Key(key) => format!("signed in with {key}"),
        SignIn::File(_) => "signed in".to_owned(),
        SignIn::NotNeeded => "no sign-in needed".to_owned(),
        SignIn::None => "not signed in".to_owned(),
    };
    let level = if found.fix.is_some() {
        CheckLevel::Warn
    } else {
        CheckLevel::Ok
    };
    let text = format!("{provider}: {name} {version}, {signed}");
    check_line(
        "provider",
        level,
        text,
        found.fix.clone().unwrap_or_default(),
    )
}

/// Reports which sandbox this machine supports, or warns if it supports no sandbox.
fn check_sandbox() -> DoctorCheck {
    let found = composition::sandbox_mechanisms();
    match found.iter().find(|found| found.1.is_none()) {
        Some((name, _)) => check_line("sandbox", CheckLevel::Ok, name.clone(), ""),
        None => {
            let why: Vec<String> = found
                .iter()
                .map(|(name, why)| format!("{name}: {}", why.clone().unwrap_or_default()))
                .collect();
            let text = format!(
                "agents run without a sandbox, because this machine supports none ({})",
                why.join("; ")
            );
            check_line(
                "sandbox",
                CheckLevel::Warn,
                text,
                "install bubblewrap (apt-get install bubblewrap), or use a kernel with Landlock \
                (6.2)",
            )
        }
    }
}

#[cfg(test)]
mod tests;
