//! Checking a directory against a validation contract: files, contents, lint, tests, then the project's own.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::ports::agents::{AgentError, Agents, Check, CheckResult, Exit};

/// Checks `dir`. `Ok(Some(reason))` says what does not hold; `Err` that it could not be found out.
pub(crate) fn broken(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    dir: &Path,
) -> Result<Option<String>, AgentError> {
    let contract = &task.validation;
    for file in &contract.files_exist {
        if inside(dir, file).is_none_or(|it| !it.exists()) {
            return Ok(Some(format!("{file} does not exist")));
        }
    }
    for check in &contract.content_check {
        let Some(path) = inside(dir, &check.file) else { return Ok(Some(format!("{} does not exist", check.file))) };
        match std::fs::read(&path) {
            Ok(bytes) if String::from_utf8_lossy(&bytes).contains(&check.pattern) => {}
            Ok(_) => return Ok(Some(format!("{} does not contain {:?}", check.file, check.pattern))),
            Err(error) => return Ok(Some(format!("{} could not be read: {error}", check.file))),
        }
    }
    for command in contract.lint.iter().chain(&contract.tests).chain(&project.validation) {
        let result = agents.check(&Check {
            command: command.clone(),
            dir: dir.to_owned(),
            env: environment(task, project),
            timeout: Duration::from_millis(project.validation_timeout_ms),
            once: None,
        })?;
        if !result.passed() {
            return Ok(Some(format!("`{command}` {}", verdict(&result))));
        }
    }
    Ok(None)
}

/// Lets the task's ratchet have the last word on `attempt`'s work, once. `Ok(Some(reason))` says why it refused.
pub(crate) fn refused_by_ratchet(
    agents: &dyn Agents,
    (task, project): (&Task, &Project),
    attempt: AttemptId,
    dir: &Path,
) -> Result<Option<String>, AgentError> {
    let Some(argv) = &task.ratchet else { return Ok(None) };
    let command = argv.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" ");
    let result = agents.check(&Check {
        command,
        dir: dir.to_owned(),
        env: environment(task, project),
        timeout: Duration::from_millis(project.validation_timeout_ms),
        once: Some(format!("ratchet-{attempt}")),
    })?;
    Ok((!result.passed()).then(|| format!("its ratchet `{}` {}", argv.join(" "), verdict(&result))))
}

fn environment(task: &Task, project: &Project) -> Vec<(String, String)> {
    vec![("REGATTA_TASK".into(), task.id.to_string()), ("REGATTA_PROJECT".into(), project.name.to_string())]
}

/// A word as the shell reads it back unchanged.
fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|it| it.is_ascii_alphanumeric() || "-_./=:@%+,".contains(it));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn verdict(result: &CheckResult) -> String {
    let how = match (&result.exit, result.timed_out) {
        (_, true) => "ran out of time".to_owned(),
        (Exit::Code(code), _) => format!("exited with {code}"),
        (Exit::Signal(signal), _) => format!("was ended by signal {signal}"),
        (Exit::NotStarted(why), _) => format!("could not be started: {why}"),
        (Exit::Lost, _) => "vanished".to_owned(),
    };
    let tail = tail(&result.output);
    if tail.is_empty() { how } else { format!("{how}: {tail}") }
}

/// The last few lines, for a reason people read; the whole output stays in the log.
pub(crate) fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim_end).filter(|it| !it.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(5)..].join(" / ");
    let skip = last.chars().count().saturating_sub(600);
    last.chars().skip(skip).collect()
}

/// `file` below `dir`, unless it leads out of it, by its spelling or through a link (S6).
fn inside(dir: &Path, file: &str) -> Option<PathBuf> {
    let plain = Path::new(file).components().all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
    let (top, path) = (dir.canonicalize().ok()?, dir.join(file).canonicalize().ok()?);
    (plain && path.starts_with(top)).then_some(path)
}
