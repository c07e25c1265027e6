//! Creates the adapters of the engine's ports (interfaces to the outside): the database, git, and
//! the running of programs.
//!
//! This is the only module of the crate that names concrete adapters. All others use the ports of
//! the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use regatta_agents::AgentsAdapter;
use regatta_agents::leftovers::RunningShim;
use regatta_core::ids::AttemptId;
use regatta_core::plural;
use regatta_engine::ports::agents::Agents;
use regatta_engine::ports::git::{Git, RunnerGit, ServeGit};
use regatta_engine::ports::store::UnreadableRow;
use regatta_engine::timer::MachineClock;
use regatta_engine::{EngineSettings, Ports, RedactFn, ToolServer};
use regatta_git::GitAdapter;
use regatta_store::SqliteStore;

use crate::output::{CommandError, command_error, own_executable};

/// The name of the database file in a data directory.
pub(crate) const STORE_FILE: &str = "regatta.db";

/// The name of the daemon's unix socket in a data directory.
pub(crate) const SOCKET_FILE: &str = "daemon.sock";

/// The adapters of a daemon as the interfaces that the engine and the server use.
pub(crate) struct DaemonAdapters {
    pub(crate) ports: Ports,
    pub(crate) settings: EngineSettings,
    /// Serves projects to runners. It is the same adapter as in `ports`, because its locks keep
    /// two threads from writing one repository at the same time.
    pub(crate) git_server: Arc<dyn ServeGit>,
}

/// Opens the database, and creates the other adapters and the engine's settings.
pub(crate) fn open_ports(
    data_dir: &Path,
    tools: ToolServer,
) -> Result<DaemonAdapters, CommandError> {
    let exe = own_executable()?;
    check_store_not_lost(data_dir)?;
    let store = SqliteStore::open(&data_dir.join(STORE_FILE)).map_err(store_error)?;
    let agents = AgentsAdapter::new(data_dir.to_owned(), exe)
        .with_relay(&tools.url, data_dir.join(SOCKET_FILE));
    // This daemon has not run any check (such as a test command) yet, so every directory of a check
    // was left by an earlier daemon.
    if let Err(error) = agents.sweep_checks() {
        tracing::warn!(
            "could not remove the directories in which an earlier daemon ran checks; the \
             directories do no harm but use disk space: {error}"
        );
    }
    let git = Arc::new(GitAdapter::new(data_dir.to_owned()));
    let ports = Ports {
        store: Box::new(store),
        git: git.clone(),
        agents: Arc::new(agents),
        clock: Arc::new(MachineClock),
    };
    let attempt_env = attempt_env();
    let redact = RedactFn(Arc::new(redact));
    let settings = EngineSettings {
        attempt_env,
        data_dir: Some(data_dir.to_owned()),
        redactor: redact,
        parse_checks: Some(crate::settings::parse_checks),
        tool_server: Some(tools),
        prices: crate::settings::load_prices()?,
        ..EngineSettings::default()
    };
    Ok(DaemonAdapters {
        ports,
        settings,
        git_server: git,
    })
}

/// Environment variables by which an agent's program finds its sign-in and its tools.
pub(crate) const ATTEMPT_VARIABLES: [&str; 5] =
    ["HOME", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "NVM_DIR"];

/// Returns [`ATTEMPT_VARIABLES`] with their values in the user's environment. Agents' programs get
/// no other variable of this environment (invariant S3).
pub(crate) fn attempt_env() -> Vec<(String, String)> {
    ATTEMPT_VARIABLES
        .iter()
        .filter_map(|s| Some(((*s).to_owned(), std::env::var(s).ok()?)))
        .collect()
}

/// The adapters that a runner needs: for git, and for running programs.
pub(crate) type RunnerAdapters = (Arc<dyn RunnerGit>, Arc<dyn Agents>);

/// Returns the adapters of a runner (a process that runs agents for a daemon on another machine).
pub(crate) fn runner_adapters(data_dir: &Path) -> Result<RunnerAdapters, CommandError> {
    let exe = own_executable()?;
    let fence = Duration::from_millis(regatta_core::runner::SELF_FENCE_TIMEOUT_MS);
    let agents = AgentsAdapter::new(data_dir.to_owned(), exe)
        .with_contact_deadline(data_dir.join(CONTACT_FILE), fence);
    Ok((
        Arc::new(GitAdapter::new(data_dir.to_owned())),
        Arc::new(agents),
    ))
}

/// The name of a runner's contact file. The runner writes the file while it has contact with the
/// daemon. When nobody has written the file for too long, each shim (the process that supervises an
/// agent's program) stops its program.
const CONTACT_FILE: &str = "leash";

/// Writes the contact file (the sign that a runner has contact with its daemon), so that the
/// programs on this machine keep running.
pub(crate) fn record_contact(data_dir: &Path) {
    if let Err(error) =
        regatta_agents::contact_deadline::record_contact(&data_dir.join(CONTACT_FILE))
    {
        tracing::error!(
            "could not write the contact file, which shows that this runner has contact with the \
             daemon; without the file the runner's programs will be stopped: {error}"
        );
    }
}

/// Returns the command with which a person continues a session of an agent's program in a terminal.
/// Returns `None` for a program that Regatta does not know.
pub(crate) fn resume_command(
    agent: &regatta_core::agent::Agent,
    session: &str,
) -> Option<Vec<String>> {
    regatta_agents::presets::preset_of_agent(agent)?.resume_command(session)
}

/// Returns the home directory that a sandboxed agent's program gets instead of the user's.
pub(crate) fn agent_home(data_dir: &Path, agent: &regatta_core::ids::AgentName) -> PathBuf {
    regatta_agents::agent_home::home_path(data_dir, agent)
}

/// Fails if the database is missing although the data directory contains repositories or
/// workspaces, because a new database would not know them (invariant D10).
fn check_store_not_lost(data_dir: &Path) -> Result<(), CommandError> {
    let store = data_dir.join(STORE_FILE);
    let has = |folder: &str, end: &str| {
        let entries = std::fs::read_dir(data_dir.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .any(|name| name.ends_with(end))
    };
    if store.exists() || !(has("vaults", ".git") || has("workspaces", "")) {
        return Ok(());
    }
    Err(command_error(
        "store_behind",
        format!(
            "the database {} is missing, but the repositories and workspaces that belong to it \
             exist",
            store.display()
        ),
        format!(
            "restore the file together with the -wal file beside it, or restore a backup: regatta \
            restore FILE; to start with an empty database, move the directory {} away",
            data_dir.display()
        ),
    ))
}

/// Returns the attempts that have a directory with records (journal, exit code) in this data
/// directory.
pub(crate) fn recorded_attempts(data_dir: &Path) -> Vec<AttemptId> {
    let entries = std::fs::read_dir(data_dir.join("attempts"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The time for which the journals (records of a program's input and output) of ended attempts
/// (runs of an agent on a task) are kept.
const RECORD_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The age at which the journal (the record of a program's input and output) of an ended attempt
/// is compressed.
const COMPRESS_JOURNALS_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Returns today's date, from which the age of stored data is computed, in milliseconds since 1970.
/// Returns `None` if the date cannot be stored; in that case no data may be removed.
pub(crate) fn retention_date(data_dir: &Path) -> Option<u64> {
    let date = regatta_engine::retention_date(data_dir, &MachineClock);
    date.inspect_err(|error| {
        tracing::warn!(
            "could not store today's date, from which the age of data is computed, so no old data \
             is removed now: {error}"
        )
    })
    .ok()
}

/// Removes old journals and check output of ended attempts, and old records of commands such as
/// checks.
///
/// Until `settled` is true, only journals (records of a program's input and output) are removed,
/// because the daemon may still ask how a command of the previous daemon ended. `today_unix_ms` is
/// the date from which ages are computed.
pub(crate) fn prune_old_data(data_dir: &Path, settled: bool, today_unix_ms: u64) {
    let today = UNIX_EPOCH + Duration::from_millis(today_unix_ms);
    let agents = AgentsAdapter::new(data_dir.to_owned(), PathBuf::from("regatta"));
    match agents.prune(RECORD_RETENTION, COMPRESS_JOURNALS_AFTER, today) {
        Ok(pruned_journals)
            if pruned_journals.compressed.is_empty() && pruned_journals.removed.is_empty() => {}
        Ok(pruned_journals) => tracing::info!(
            "compressed the journals of {compressed} ended attempts, and removed the journals of \
             {removed} older attempts",
            compressed = pruned_journals.compressed.len(),
            removed = pruned_journals.removed.len()
        ),
        Err(error) => {
            tracing::warn!(
                "could not remove old journals (recorded input and output) of attempts, trying \
                 again in an hour: {error}"
            )
        }
    }
    if !settled {
        return;
    }
    match agents.prune_commands(RECORD_RETENTION, today) {
        Ok(0) => {}
        Ok(many) => tracing::info!("removed the old records of {many} commands, such as checks"),
        Err(error) => {
            tracing::warn!(
                "could not remove old records of commands, trying again in an hour: {error}"
            )
        }
    }
    match regatta_engine::prune_evidence(data_dir, RECORD_RETENTION, today) {
        Ok(0) => {}
        Ok(many) => tracing::info!(
            "removed the old check output of {}",
            plural::count(many, "attempt")
        ),
        Err(error) => {
            tracing::warn!("could not remove old check output, trying again in an hour: {error}")
        }
    }
}

/// Returns the sandbox mechanisms that Regatta knows, the best first. Each comes with the reason
/// why it does not work on this machine, or with `None` if it works.
pub(crate) fn sandbox_mechanisms() -> Vec<(String, Option<String>)> {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("regatta"));
    let found = regatta_agents::sandbox::detect_mechanisms(&exe).findings;
    let name =
        |mechanism_finding: &regatta_agents::sandbox::MechanismFinding| match &mechanism_finding
            .version
        {
            Some(version) => format!("{} {version}", mechanism_finding.mechanism),
            None => mechanism_finding.mechanism.to_string(),
        };
    found
        .iter()
        .map(|mechanism_finding| (name(mechanism_finding), mechanism_finding.problem.clone()))
        .collect()
}

/// Returns the git adapter, for commands that read a repository without the daemon.
pub(crate) fn git_adapter(data_dir: &Path) -> Box<dyn Git> {
    Box::new(GitAdapter::new(data_dir.to_owned()))
}

/// Fails if git is missing, or too old to merge in the way that Regatta merges.
pub(crate) fn require_supported_git() -> Result<(), CommandError> {
    regatta_git::require_supported_version()
        .map_err(|error| command_error(error.code, error.message, error.hint))
}

/// Returns the adapter that runs agents' programs, for commands that need no daemon, such as the
/// commands that read journals (records of a program's input and output).
pub(crate) fn agents_adapter(
    data_dir: &Path,
) -> Result<impl regatta_engine::ports::agents::Agents + use<>, CommandError> {
    let exe = own_executable()?;
    Ok(AgentsAdapter::new(data_dir.to_owned(), exe))
}

/// Like [`agents_adapter`], but for `regatta agent test`: a program is stopped when nobody has
/// written `contact_file` for the time `contact_timeout`.
pub(crate) fn agents_adapter_with_contact_deadline(
    data_dir: &Path,
    contact_file: PathBuf,
    contact_timeout: Duration,
) -> Result<impl regatta_engine::ports::agents::Agents + use<>, CommandError> {
    let exe = own_executable()?;
    Ok(AgentsAdapter::new(data_dir.to_owned(), exe)
        .with_contact_deadline(contact_file, contact_timeout))
}

/// Writes a contact file (which shows that the supervising process still runs), so that the
/// programs that depend on the file keep running.
pub(crate) fn write_contact_file(file: &Path) -> std::io::Result<()> {
    regatta_agents::contact_deadline::record_contact(file)
}

/// Lists the running shims (supervisors of agents' programs) of this user, of every data directory
/// on this machine.
pub(crate) fn running_shims() -> std::io::Result<Vec<RunningShim>> {
    regatta_agents::leftovers::running_shims()
}

/// Ends every shim (the process that supervises an agent's program) of a data directory, together
/// with its program. Returns the number of shims.
pub(crate) fn end_shims_in(data_dir: &Path) -> Result<usize, String> {
    let shims = running_shims()
        .map_err(|error| error.to_string())?
        .into_iter();
    let shims: Vec<RunningShim> = shims
        .filter(|shim| shim.data_dir() == Some(data_dir))
        .collect();
    for shim in &shims {
        shim.end().map_err(|error| error.to_string())?;
    }
    Ok(shims.len())
}

/// Leftovers that no daemon can find again.
pub(crate) struct Strays {
    /// The number of agent tests that ended without removing their directories.
    pub(crate) agent_tests: usize,
    /// The shims (supervisors of agents' programs) whose directory was deleted.
    pub(crate) shims: Vec<RunningShim>,
    /// The number of empty control groups (cgroups).
    pub(crate) control_groups: usize,
}

/// Finds everything that [`sweep_strays`] removes, and changes nothing.
pub(crate) fn find_strays(data_dir: &Path) -> std::io::Result<Strays> {
    let mut shims = running_shims()?;
    shims.retain(RunningShim::is_abandoned);
    Ok(Strays {
        agent_tests: crate::agent_test_dirs::find_abandoned(data_dir)?.len(),
        shims,
        control_groups: regatta_agents::leftovers::count_abandoned_control_groups()?,
    })
}

/// Removes leftovers that no daemon can find again, and returns a line about each removal. The
/// leftovers are those that [`find_strays`] returns.
pub(crate) fn sweep_strays(data_dir: &Path) -> std::io::Result<Vec<String>> {
    let mut done = Vec::new();
    let trials = crate::agent_test_dirs::sweep_abandoned(data_dir)?;
    if trials > 0 {
        done.push(format!(
            "removed the directories of {}",
            plural::count(trials, "interrupted agent test")
        ));
    }
    for shim in running_shims()?.iter().filter(|shim| shim.is_abandoned()) {
        let what = format!(
            "the shim {} of the deleted directory {}",
            shim.pid(),
            shim.run_dir().display()
        );
        match shim.end() {
            Ok(()) => done.push(format!("ended {what}")),
            Err(error) => done.push(format!("could not end {what}: {error}")),
        }
    }
    let groups = regatta_agents::leftovers::sweep_control_groups()?;
    if groups > 0 {
        done.push(format!(
            "removed {}",
            plural::count(groups, "empty control group")
        ));
    }
    Ok(done)
}

/// Removes the leftovers of an earlier daemon of this data directory. These are everything that
/// [`sweep_strays`] removes, and programs that still run although their attempt (run of an agent on
/// a task) has ended.
pub(crate) fn sweep_at_start(data_dir: &Path, is_live: impl Fn(AttemptId) -> bool) {
    match sweep_strays(data_dir) {
        Ok(done) => done.iter().for_each(|what| tracing::info!("{what}")),
        Err(error) => {
            tracing::warn!(
                "could not remove leftovers of earlier processes; to see them, run regatta doctor: \
                 {error}"
            )
        }
    }
    for shim in running_shims()
        .into_iter()
        .flatten()
        .filter(|shim| shim.data_dir() == Some(data_dir))
    {
        let attempt = shim
            .run_dir()
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse().ok());
        let Some(attempt) = attempt.filter(|attempt| !is_live(*attempt)) else {
            continue;
        };
        match shim.end() {
            Ok(()) => {
                tracing::warn!(%attempt, "stopped the program of attempt {attempt}, \
                    which still ran although the attempt has ended")
            }
            Err(error) => {
                tracing::error!(
                    %attempt,
                    "could not stop the program of attempt {attempt}, which still runs although \
                     the \
                     attempt has ended; to find such programs, run regatta doctor: {error}"
                )
            }
        }
    }
}

/// Replaces the database by the copy `from`, and returns the rows of the copy that cannot be read
/// and were left out. No daemon may run.
pub(crate) fn restore_store(
    from: &Path,
    data_dir: &Path,
) -> Result<Vec<UnreadableRow>, CommandError> {
    regatta_store::restore(from, &data_dir.join(STORE_FILE)).map_err(store_error)
}

/// Converts an error of the database into an error of a command, with the same code, message and
/// hint.
pub(crate) fn store_error(error: regatta_engine::ports::store::StoreError) -> CommandError {
    command_error(error.code, error.message, error.hint)
}

/// Removes everything that looks like a secret from a text.
pub(crate) fn redact(text: &str) -> String {
    regatta_agents::redact::redact_text(text)
}
