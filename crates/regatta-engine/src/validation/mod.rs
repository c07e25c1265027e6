//! Checks the files in a directory: required files, required contents, lint commands, test
//! commands, then the project's own commands.
//!
//! This module also runs a task's ratchet (a command that must accept work that passed its checks).
//! The callers choose the directory (a workspace or a merged tree) and decide what follows from a
//! failure.

pub(crate) mod test_names; // naming rules for test files, by language

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_core::agent::SandboxLevel;
use regatta_core::attempt::{CheckEvidence, failed_check_reason, unrunnable_check_reason};
use regatta_core::check_output;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::shell_quote::quote;
use regatta_core::task::Task;

use crate::ports::agents::{AgentError, Agents, CheckCommand, CheckResult, CommandSandbox, Exit};
use crate::ports::git::{ProjectRepo, StorageGit};
use crate::running_commands::CommandEntry;

/// The directory in which checks run, and the conditions under which they run.
pub(crate) struct CheckDir<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) sandbox: Option<CommandSandbox>,
    /// Environment variables in addition to the variables that name the task, such as the network
    /// ports that the attempt may use.
    pub(crate) env: Vec<(String, String)>,
    /// A function that returns whether the result of the checks is still wanted. `None` means that
    /// the result is always wanted.
    pub(crate) is_wanted: Option<&'a dyn Fn() -> bool>,
    /// The entry in the list of running commands that shows people which command runs.
    pub(crate) entry: Option<&'a CommandEntry<'a>>,
}

impl CheckDir<'_> {
    /// Shows people in the list of running commands which command starts now.
    fn show_command(&self, command: &str) {
        if let Some(entry) = self.entry {
            entry.show_command(command);
        }
    }
}

/// Returns the sandbox for the setup commands and checks of a project: the sandbox that the
/// project's settings name, otherwise the strongest sandbox that the machine supports. `repo` is
/// the project's repository on the machine where the commands run.
pub(crate) fn check_sandbox(
    git: &dyn StorageGit,
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

/// Returns the environment variables that name the network ports which an attempt may use.
pub(crate) fn port_variables(ports: &[u16]) -> Vec<(String, String)> {
    let name = |(nth, port): (usize, &u16)| (format!("REGATTA_PORT_{nth}"), port.to_string());
    ports.iter().enumerate().map(name).collect()
}

/// Joins the message and the hint of an error into one text.
pub(crate) fn describe_agent_error(error: AgentError) -> String {
    format!("{} {}", error.message, error.hint)
}

/// The largest number of bytes of a failed check's output that is stored and shown to the agent
/// that repairs the work.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// A check that failed, as people and the agent that repairs the work see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedCheck {
    /// The reason why the check failed, in one line for people.
    pub(crate) reason: String,
    /// The name of the check and the parts of its output that help to repair the work.
    pub(crate) output: String,
}

impl FailedCheck {
    /// Builds a failed check from a description of how the check ended and from the check's output.
    pub(crate) fn from_output(outcome: &str, output: &str) -> FailedCheck {
        let summary = check_output::summary(output);
        let reason = if summary.is_empty() {
            outcome.to_owned()
        } else {
            format!("{outcome}: {summary}")
        };
        let mut output_text = format!("{outcome}\n");
        if let Some(first) = check_output::first_error(output) {
            output_text += &format!("First error: {first}\n");
        }
        output_text += &check_output::excerpt(output, MAX_OUTPUT_BYTES);
        FailedCheck {
            reason,
            output: output_text.trim_end().to_owned(),
        }
    }
}

/// Runs the checks until one fails and returns that check, or `None` if all passed. `Err` says why
/// the checks could not be run.
pub(crate) fn first_failed_check(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    check_dir: &CheckDir,
) -> Result<Option<FailedCheck>, AgentError> {
    let evidence = run_checks(agents, task, project, check_dir)?;
    if let Some(reason) = unrunnable_check_reason(&evidence) {
        return Err(AgentError {
            message: format!("{reason}."),
            hint: format!("Then land the work: regatta land {}", task.id),
        });
    }
    let failed = evidence.iter().find(|check| !check.passed);
    Ok(failed.map(|failed| FailedCheck::from_output(&failed.outcome, &failed.output)))
}

/// Returns the name of the command that this machine lacks, if the check could not run because of
/// that.
fn missing_command(check: &str, result: &CheckResult) -> Option<String> {
    match result.exit {
        Exit::Code(code) if !result.has_timed_out => {
            check_output::missing_command(check, code, &result.output)
        }
        _ => None,
    }
}

/// Runs the checks until one fails: required files, required contents, lint commands, test
/// commands, then the project's own commands. Returns the results of the checks that ran.
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
        missing_command: None,
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
    if !contract.content_check.is_empty() && failed_check_reason(&evidence).is_none() {
        let problem = contract.content_check.iter().find_map(|check| {
            let Some(path) = path_within(dir, &check.file) else {
                return Some(format!("{} does not exist", check.file));
            };
            // A named pipe counts as missing, because reading it would block for ever.
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
        if failed_check_reason(&evidence).is_some() {
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
            missing_command: missing_command(command, &result),
            output: result.output,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
    Ok(evidence)
}

/// Runs a check as long as its result is wanted. If a command with a `once_name` is interrupted,
/// deletes its record, so that the next call runs the command again.
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
        hint: "You need not do anything.".into(),
    })
}

/// Runs the task's ratchet (a command that must accept work that passed its checks) on the work of
/// `attempt`, at most once. Returns the reason if the ratchet rejects the work, otherwise `None`.
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

/// Returns the `once_name` of an attempt's ratchet (a command that must accept work that passed its
/// checks), under which the ratchet runs at most once.
pub(crate) fn ratchet_name(attempt: AttemptId) -> String {
    format!("ratchet-{attempt}")
}

/// Returns the environment variables that tell a check for which task and project it runs.
pub(crate) fn task_env(task: &Task, project: &Project) -> Vec<(String, String)> {
    vec![
        ("REGATTA_TASK".into(), task.id.to_string()),
        ("REGATTA_PROJECT".into(), project.name.to_string()),
    ]
}

/// Describes in a few words how a check ended, such as "exited with 1".
fn describe_end(result: &CheckResult) -> String {
    match (&result.exit, result.has_timed_out) {
        (_, true) => "ran out of time".to_owned(),
        (Exit::Code(code), _) => format!("exited with {code}"),
        (Exit::Signal(signal), _) => format!("was ended by signal {signal}"),
        (Exit::NotStarted(why), _) => format!("could not be started: {why}"),
        (Exit::Lost, _) => "vanished".to_owned(),
    }
}

/// Texts in a command's output that suggest that its sandbox denied access to a file or a host.
const DENIAL_TEXTS: [&str; 9] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
    "eacces",
    "erofs",
    // This path in the output means that the command looked for a file in the home directory. In
    // the sandbox, the home directory is a separate directory without the user's files.
    "/check-homes/",
];

/// Returns a hint about the sandbox if the output suggests that the sandbox made the command fail,
/// otherwise an empty string.
fn sandbox_hint(result: &CheckResult) -> String {
    let output = result.output.to_ascii_lowercase();
    match &result.sandbox {
        Some(sandbox)
            if !result.passed() && DENIAL_TEXTS.iter().any(|denial| output.contains(denial)) =>
        {
            format!(
                " (it ran in a sandbox, {sandbox}; if the sandbox is the cause: sandbox = \"off\" \
                under [run] in regatta.toml, then regatta init)"
            )
        }
        _ => String::new(),
    }
}

/// Describes in one line how a check ended, with a summary of its output.
pub(crate) fn describe_result(result: &CheckResult) -> String {
    let (outcome, summary) = (
        describe_end_with_hint(result),
        check_output::summary(&result.output),
    );
    if summary.is_empty() {
        outcome
    } else {
        format!("{outcome}: {summary}")
    }
}

/// Describes how a check ended, and adds a hint if its sandbox may be the cause of the failure.
pub(crate) fn describe_end_with_hint(result: &CheckResult) -> String {
    format!("{}{}", describe_end(result), sandbox_hint(result))
}

/// Returns the path of `file` inside `dir`. Returns `None` if `..` or a symbolic link in the path
/// leads out of `dir` (S6).
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
