//! Checking a directory against a validation contract: files, contents, lint, tests, then the project's own.

pub(crate) mod test_names; // how a language names its tests

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_core::agent::Level;
use regatta_core::failure;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::shell::quoted;
use regatta_core::task::Task;

use crate::keep::Evidence;
use crate::ports::agents::{AgentError, Agents, Check, CheckResult, Exit, ShutIn};
use crate::ports::git::{Git, Repo};
use crate::running_commands::Entry;

/// Where a contract is checked, and how what runs there is shut in.
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) shut_in: Option<ShutIn>,
    /// Variables beside those that say what is checked: an attempt's ports.
    pub(crate) env: Vec<(String, String)>,
    /// Whether what is found out is still wanted; it is, where nobody is to be asked.
    pub(crate) wanted: Option<&'a dyn Fn() -> bool>,
    /// Where the command that runs is named, for people who ask what goes on.
    pub(crate) entry: Option<&'a Entry<'a>>,
}

impl Place<'_> {
    fn begin(&self, command: &str) {
        if let Some(entry) = self.entry {
            entry.begin(command);
        }
    }
}

/// How setup commands and checks of a project are shut in: as its settings say, else as far as can be had. `repo` is
/// the project on the machine where they run.
pub(crate) fn shut_in(git: &dyn Git, repo: &Repo, level: Option<Level>) -> Option<ShutIn> {
    if level == Some(Level::Off) {
        return None;
    }
    Some(ShutIn { project: repo.project.clone(), level, objects: git.objects(repo), hidden: vec![repo.path.clone()] })
}

/// The variables that tell of an attempt's ports.
pub(crate) fn port_variables(ports: &[u16]) -> Vec<(String, String)> {
    let name = |(nth, port): (usize, &u16)| (format!("REGATTA_PORT_{nth}"), port.to_string());
    ports.iter().enumerate().map(name).collect()
}

/// All that an error says.
pub(crate) fn in_full(error: AgentError) -> String {
    format!("{} {}", error.what, error.hint)
}

/// The most bytes of a check's output that are kept with a landing, and shown to a fix-up.
const MAX_OUTPUT_BYTES: usize = 8 * 1024;

/// A check that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Why, in a line for people.
    pub(crate) reason: String,
    /// The check and what it printed, as far as it helps to mend the work.
    pub(crate) output: String,
}

impl Broken {
    /// Describes a failed check by how it ended and what it printed.
    pub(crate) fn new(how: &str, output: &str) -> Broken {
        let summary = failure::summary(output);
        let reason = if summary.is_empty() { how.to_owned() } else { format!("{how}: {summary}") };
        let mut told = format!("{how}\n");
        if let Some(first) = failure::first_error(output) {
            told += &format!("First error: {first}\n");
        }
        told += &failure::excerpt(output, MAX_OUTPUT_BYTES);
        Broken { reason, output: told.trim_end().to_owned() }
    }
}

/// Checks a place. Returns the first check that does not hold. `Err` is why that could not be found out.
pub(crate) fn broken(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    place: &Place,
) -> Result<Option<Broken>, AgentError> {
    let found = examine(agents, task, project, place)?;
    let failed = found.iter().find(|evidence| !evidence.passed);
    Ok(failed.map(|failed| Broken::new(&failed.how, &failed.output)))
}

/// Why it does not hold, if it does not: the first check that failed.
pub(crate) fn reason(found: &[Evidence]) -> Option<String> {
    let failed = found.iter().find(|it| !it.passed)?;
    let summary = failure::summary(&failed.output);
    Some(if summary.is_empty() { failed.how.clone() } else { format!("{}: {summary}", failed.how) })
}

/// Checks `dir` up to the first check that fails: what exists, what it contains, lint, tests, the project's own.
pub(crate) fn examine(
    agents: &dyn Agents,
    task: &Task,
    project: &Project,
    place: &Place,
) -> Result<Vec<Evidence>, AgentError> {
    let dir = place.dir;
    let mut found = Vec::new();
    let contract = &task.validation;
    let looked = |check: &str, wrong: Option<String>| Evidence {
        check: check.into(),
        passed: wrong.is_none(),
        how: wrong.unwrap_or_else(|| "holds".into()),
        output: String::new(),
        ms: 0,
    };
    if !contract.files_exist.is_empty() {
        let missing = contract.files_exist.iter().find(|it| inside(dir, it).is_none_or(|it| !it.exists()));
        found.push(looked("files_exist", missing.map(|it| format!("{it} does not exist"))));
    }
    if !contract.content_check.is_empty() && reason(&found).is_none() {
        let wrong = contract.content_check.iter().find_map(|check| {
            let Some(path) = inside(dir, &check.file) else { return Some(format!("{} does not exist", check.file)) };
            // Whoever reads a pipe waits for ever.
            if !path.is_file() {
                return Some(format!("{} is no file", check.file));
            }
            match std::fs::read(&path) {
                Ok(bytes) if String::from_utf8_lossy(&bytes).contains(&check.pattern) => None,
                Ok(_) => Some(format!("{} does not contain {:?}", check.file, check.pattern)),
                Err(error) => Some(format!("{} could not be read: {error}", check.file)),
            }
        });
        found.push(looked("content_check", wrong));
    }
    for command in contract.lint.iter().chain(&contract.tests).chain(&project.validation) {
        if reason(&found).is_some() {
            break;
        }
        let began = Instant::now();
        place.begin(&format!("check `{command}`"));
        let check = Check {
            command: command.clone(),
            dir: dir.to_owned(),
            env: environment(task, project).into_iter().chain(place.env.iter().cloned()).collect(),
            timeout: Duration::from_millis(project.validation_timeout_ms),
            once: None,
            shut_in: place.shut_in.clone(),
        };
        let result = run(agents, &check, place.wanted)?;
        found.push(Evidence {
            check: command.clone(),
            passed: result.passed(),
            how: format!("`{command}` {}", ending_in_full(&result)),
            output: result.output,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
    Ok(found)
}

/// Runs a check for as long as it is wanted. A command that runs once and was broken off leaves no record: whoever
/// wants it again runs it again.
pub(crate) fn run(
    agents: &dyn Agents,
    check: &Check,
    wanted: Option<&dyn Fn() -> bool>,
) -> Result<CheckResult, AgentError> {
    let Some(wanted) = wanted else { return agents.check(check) };
    let said = agents.check_while(check, wanted)?;
    match (said, &check.once) {
        (Some(_), Some(name)) if !wanted() => agents.forget_command(name)?,
        (Some(result), _) => return Ok(result),
        (None, _) => {}
    }
    Err(AgentError {
        what: format!("`{}` was broken off: what it was to find out is no longer wanted.", check.command),
        hint: "Nothing need be done.".into(),
    })
}

/// Lets the task's ratchet have the last word on `attempt`'s work, once. `Ok(Some(reason))` says why it refused.
pub(crate) fn refused_by_ratchet(
    agents: &dyn Agents,
    (task, project): (&Task, &Project),
    attempt: AttemptId,
    place: &Place,
) -> Result<Option<String>, AgentError> {
    let Some(argv) = &task.ratchet else { return Ok(None) };
    let command = argv.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" ");
    place.begin(&format!("ratchet `{}`", argv.join(" ")));
    let check = Check {
        command,
        dir: place.dir.to_owned(),
        env: environment(task, project).into_iter().chain(place.env.iter().cloned()).collect(),
        timeout: Duration::from_millis(project.validation_timeout_ms),
        once: Some(ratchet_name(attempt)),
        shut_in: place.shut_in.clone(),
    };
    let result = run(agents, &check, place.wanted)?;
    Ok((!result.passed()).then(|| format!("its ratchet `{}` {}", argv.join(" "), verdict(&result))))
}

/// Returns the name under which the ratchet of an attempt runs once.
pub(crate) fn ratchet_name(attempt: AttemptId) -> String {
    format!("ratchet-{attempt}")
}

pub(crate) fn environment(task: &Task, project: &Project) -> Vec<(String, String)> {
    vec![("REGATTA_TASK".into(), task.id.to_string()), ("REGATTA_PROJECT".into(), project.name.to_string())]
}

/// How a check ended, in words.
fn ending(result: &CheckResult) -> String {
    match (&result.exit, result.timed_out) {
        (_, true) => "ran out of time".to_owned(),
        (Exit::Code(code), _) => format!("exited with {code}"),
        (Exit::Signal(signal), _) => format!("was ended by signal {signal}"),
        (Exit::NotStarted(why), _) => format!("could not be started: {why}"),
        (Exit::Lost, _) => "vanished".to_owned(),
    }
}

/// What a command says that could not reach something.
const DENIED: [&str; 9] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
    "eacces",
    "erofs",
    // A file of the user's home that the command's own has not.
    "/check-homes/",
];

/// How to open what a failed command may have been kept from; nothing where nothing speaks for that.
fn perhaps_shut_in(result: &CheckResult) -> String {
    let said = result.output.to_ascii_lowercase();
    match &result.sandbox {
        Some(sandbox) if !result.passed() && DENIED.iter().any(|it| said.contains(it)) => format!(
            " (it ran shut in, {sandbox}; if that is why: sandbox = \"off\" under [run] in regatta.toml, then regatta init)"
        ),
        _ => String::new(),
    }
}

pub(crate) fn verdict(result: &CheckResult) -> String {
    let (how, summary) = (ending_in_full(result), failure::summary(&result.output));
    if summary.is_empty() { how } else { format!("{how}: {summary}") }
}

/// How a check ended, and what to do if its sandbox may be why.
pub(crate) fn ending_in_full(result: &CheckResult) -> String {
    format!("{}{}", ending(result), perhaps_shut_in(result))
}

/// `file` below `dir`, unless it leads out of it, by its spelling or through a link (S6).
fn inside(dir: &Path, file: &str) -> Option<PathBuf> {
    let plain = Path::new(file).components().all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
    let (top, path) = (dir.canonicalize().ok()?, dir.join(file).canonicalize().ok()?);
    (plain && path.starts_with(top)).then_some(path)
}
