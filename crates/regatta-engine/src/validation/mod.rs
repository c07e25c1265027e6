//! Validates a directory: required files, required contents, lint, tests, then the project's own
//! commands.
//!
//! Also runs a task's ratchet. Where the directory comes from (a workspace, a trial merge) and what
//! follows from a failure is decided by the callers.

pub(crate) mod test_names; // naming rules for test files, by language

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_core::agent::SandboxLevel;
use regatta_core::failure;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::shell_quote::quote;
use regatta_core::task::Task;

use crate::artifacts::CheckEvidence;
use crate::ports::agents::{AgentError, Agents, CheckCommand, CheckResult, CommandSandbox, Exit};
use crate::ports::git::{Git, ProjectRepo};
use crate::running_commands::CommandEntry;

/// The directory in which checks run, and the circumstances under which they run.
pub(crate) struct CheckDir<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) sandbox: Option<CommandSandbox>,
    /// Environment variables in addition to those of the task: an attempt's ports.
    pub(crate) env: Vec<(String, String)>,
    /// A predicate that says whether the result is still wanted. Without it, the result is always
    /// wanted.
    pub(crate) is_wanted: Option<&'a dyn Fn() -> bool>,
    /// The entry in the list of running commands, in which people see the command that runs.
    pub(crate) entry: Option<&'a CommandEntry<'a>>,
}

impl CheckDir<'_> {
    /// Names the command that begins, for people who ask what runs.
    fn show_command(&self, command: &str) {
        if let Some(entry) = self.entry {
            entry.show_command(command);
        }
    }
}

/// Returns the sandbox of the setup commands and checks of a project: as its settings say,
/// otherwise the strongest one available. `repo` is the project on the machine where the commands
/// run.
pub(crate) fn check_sandbox(
    git: &dyn Git,
    repo: &ProjectRepo,
    level: Option<SandboxLevel>,
) -> Option<CommandSandbox> {
    if level == Some(SandboxLevel::Off) {
        return None;
    }
    Some(CommandSandbox {
        project: repo.project.clone(),
        level,
        objects: git.objects_dir(repo),
        hidden: vec![repo.path.clone()],
    })
}

/// Returns the environment variables with an attempt's ports.
pub(crate) fn port_variables(ports: &[u16]) -> Vec<(String, String)> {
    let name = |(nth, port): (usize, &u16)| (format!("REGATTA_PORT_{nth}"), port.to_string());
    ports.iter().enumerate().map(name).collect()
}

/// Joins the parts of an error into one text.
pub(crate) fn describe_agent_error(error: AgentError) -> String {
    format!("{} {}", error.message, error.hint)
}

/// The largest number of bytes of a check's output that a landing keeps and a fix-up is shown.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCheck {
    /// The reason in one line, for people.
    pub(crate) reason: String,
    /// The check and its output, as far as they help to fix the work.
    pub(crate) output: String,
}

impl FailedCheck {
    /// Describes a failed check by its end and its output.
    pub(crate) fn from_output(outcome: &str, output: &str) -> FailedCheck {
        let summary = failure::summary(output);
        let reason = if summary.is_empty() {
            outcome.to_owned()
        } else {
            format!("{outcome}: {summary}")
        };
        let mut output_text = format!("{outcome}\n");
        if let Some(first) = failure::first_error(output) {
            output_text += &format!("First error: {first}\n");
        }
        output_text += &failure::excerpt(output, MAX_OUTPUT_BYTES);
        FailedCheck {
            reason,
            output: output_text.trim_end().to_owned(),
        }
    }
}

/// Runs the checks and returns the first one that failed. `Err` says why the checks could not be
/// run.
pub(crate) fn first_failed_check(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    check_dir: &CheckDir,
) -> Result<Option<FailedCheck>, AgentError> {
    let evidence = run_checks(agents, task, project, check_dir)?;
    let failed = evidence.iter().find(|check| !check.passed);
    Ok(failed.map(|failed| FailedCheck::from_output(&failed.outcome, &failed.output)))
}

/// Returns a line about the first check that failed, if one failed.
pub(crate) fn failure_reason(evidence: &[CheckEvidence]) -> Option<String> {
    let failed = evidence.iter().find(|check| !check.passed)?;
    let summary = failure::summary(&failed.output);
    Some(if summary.is_empty() {
        failed.outcome.clone()
    } else {
        format!("{}: {summary}", failed.outcome)
    })
}

/// Runs the checks up to the first one that fails: required files, required contents, lint, tests,
/// the project's own.
pub(crate) fn run_checks(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    check_dir: &CheckDir,
) -> Result<Vec<CheckEvidence>, AgentError> {
    let dir = check_dir.dir;
    let mut evidence = Vec::new();
    let contract = &task.validation;
    let built_in = |check: &str, problem: Option<String>| CheckEvidence {
        check: check.into(),
        passed: problem.is_none(),
        outcome: problem.unwrap_or_else(|| "holds".into()),
        output: String::new(),
        duration_ms: 0,
    };
    if !contract.files_exist.is_empty() {
        let missing = contract
            .files_exist
            .iter()
            .find(|file| path_within(dir, file).is_none_or(|path| !path.exists()));
        evidence.push(built_in(
            "files_exist",
            missing.map(|missing| format!("{missing} does not exist")),
        ));
    }
    if !contract.content_check.is_empty() && failure_reason(&evidence).is_none() {
        let problem = contract.content_check.iter().find_map(|check| {
            let Some(path) = path_within(dir, &check.file) else {
                return Some(format!("{} does not exist", check.file));
            };
            // Reading a named pipe would block for ever.
            if !path.is_file() {
                return Some(format!("{} is not a file", check.file));
            }
            match std::fs::read(&path) {
                Ok(bytes) if String::from_utf8_lossy(&bytes).contains(&check.pattern) => None,
                Ok(_) => Some(format!(
                    "{} does not contain {:?}",
                    check.file, check.pattern
                )),
                Err(error) => Some(format!("{} could not be read: {error}", check.file)),
            }
        });
        evidence.push(built_in("content_check", problem));
    }
    for command in contract
        .lint
        .iter()
        .chain(&contract.tests)
        .chain(&project.validation)
    {
        if failure_reason(&evidence).is_some() {
            break;
        }
        let began = Instant::now();
        check_dir.show_command(&format!("check `{command}`"));
        let check = CheckCommand {
            command: command.clone(),
            dir: dir.to_owned(),
            env: task_env(task, project)
                .into_iter()
                .chain(check_dir.env.iter().cloned())
                .collect(),
            timeout: Duration::from_millis(project.validation_timeout_ms),
            once_name: None,
            sandbox: check_dir.sandbox.clone(),
        };
        let result = run_check(agents, &check, check_dir.is_wanted)?;
        evidence.push(CheckEvidence {
            check: command.clone(),
            passed: result.passed(),
            outcome: format!("`{command}` {}", describe_end_with_hint(&result)),
            output: result.output,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
    Ok(evidence)
}

/// Runs a check for as long as its result is wanted. A command that runs once and was interrupted
/// leaves no record, so that the next caller runs it again.
pub(crate) fn run_check(
    agents: &dyn Agents,
    check: &CheckCommand,
    is_wanted: Option<&dyn Fn() -> bool>,
) -> Result<CheckResult, AgentError> {
    let Some(is_wanted) = is_wanted else {
        return agents.run_check(check);
    };
    let result = agents.run_check_while(check, is_wanted)?;
    match (result, &check.once_name) {
        (Some(_), Some(name)) if !is_wanted() => agents.delete_command_record(name)?,
        (Some(result), _) => return Ok(result),
        (None, _) => {}
    }
    Err(AgentError {
        message: format!(
            "`{}` was stopped, because its result is no longer needed.",
            check.command
        ),
        hint: "Nothing need be done.".into(),
    })
}

/// Runs the task's ratchet on `attempt`'s work, once. Returns the reason if the ratchet refused the
/// work.
pub(crate) fn ratchet_refusal(
    agents: &dyn Agents,
    (task, project): (&Task, &Project),
    attempt: AttemptId,
    check_dir: &CheckDir,
) -> Result<Option<String>, AgentError> {
    let Some(argv) = &task.ratchet else {
        return Ok(None);
    };
    let command = argv
        .iter()
        .map(|argument| quote(argument))
        .collect::<Vec<_>>()
        .join(" ");
    check_dir.show_command(&format!("ratchet `{}`", argv.join(" ")));
    let check = CheckCommand {
        command,
        dir: check_dir.dir.to_owned(),
        env: task_env(task, project)
            .into_iter()
            .chain(check_dir.env.iter().cloned())
            .collect(),
        timeout: Duration::from_millis(project.validation_timeout_ms),
        once_name: Some(ratchet_name(attempt)),
        sandbox: check_dir.sandbox.clone(),
    };
    let result = run_check(agents, &check, check_dir.is_wanted)?;
    Ok((!result.passed()).then(|| {
        format!(
            "its ratchet `{}` {}",
            argv.join(" "),
            describe_result(&result)
        )
    }))
}

/// Returns the name under which the ratchet of an attempt runs once.
pub(crate) fn ratchet_name(attempt: AttemptId) -> String {
    format!("ratchet-{attempt}")
}

/// Returns the environment variables that name the task and the project.
pub(crate) fn task_env(task: &Task, project: &Project) -> Vec<(String, String)> {
    vec![
        ("REGATTA_TASK".into(), task.id.to_string()),
        ("REGATTA_PROJECT".into(), project.name.to_string()),
    ]
}

/// Describes the end of a check in words.
fn describe_end(result: &CheckResult) -> String {
    match (&result.exit, result.has_timed_out) {
        (_, true) => "ran out of time".to_owned(),
        (Exit::Code(code), _) => format!("exited with {code}"),
        (Exit::Signal(signal), _) => format!("was ended by signal {signal}"),
        (Exit::NotStarted(why), _) => format!("could not be started: {why}"),
        (Exit::Lost, _) => "vanished".to_owned(),
    }
}

/// Texts in a command's output that suggest that the command could not reach something.
const DENIAL_TEXTS: [&str; 9] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
    "eacces",
    "erofs",
    // A file of the user's home that does not exist in the check's own home.
    "/check-homes/",
];

/// Returns a hint about the sandbox if the output suggests that the sandbox made the command fail,
/// otherwise an empty text.
fn sandbox_hint(result: &CheckResult) -> String {
    let output = result.output.to_ascii_lowercase();
    match &result.sandbox {
        Some(sandbox)
            if !result.passed() && DENIAL_TEXTS.iter().any(|denial| output.contains(denial)) =>
        {
            format!(
                " (it ran in a sandbox, {sandbox}; if that is why: sandbox = \"off\" under [run] in \
                regatta.toml, then regatta init)"
            )
        }
        _ => String::new(),
    }
}

/// Describes the end of a check, with a summary of its output.
pub(crate) fn describe_result(result: &CheckResult) -> String {
    let (outcome, summary) = (
        describe_end_with_hint(result),
        failure::summary(&result.output),
    );
    if summary.is_empty() {
        outcome
    } else {
        format!("{outcome}: {summary}")
    }
}

/// Describes the end of a check, with a hint if its sandbox may be the cause.
pub(crate) fn describe_end_with_hint(result: &CheckResult) -> String {
    format!("{}{}", describe_end(result), sandbox_hint(result))
}

/// Returns `file` below `dir`, unless its spelling or a link leads out of `dir` (S6).
fn path_within(dir: &Path, file: &str) -> Option<PathBuf> {
    let is_plain = Path::new(file)
        .components()
        .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    let (top, path) = (
        dir.canonicalize().ok()?,
        dir.join(file).canonicalize().ok()?,
    );
    (is_plain && path.starts_with(top)).then_some(path)
}
