//! The run directory: the directory through which the daemon and one shim (a program's supervisor
//! process) communicate, and the way in which its files are written.
//!
//! The two processes share nothing but these files, so either side may die at any moment:
//!
//! - `launch.json`: the program to run and its settings.
//! - `start.lock`: locked by the daemon while it starts the launch or records its end.
//! - `shim.lock`: locked by the shim for its whole life.
//! - `shim.json`: the process id and start time of the shim that has begun. Once this file exists,
//!   no other shim ever begins.
//! - `program.json`: the process id and start time of the program.
//! - `shim.sock`: the socket on which the shim receives commands (see `shim_protocol`).
//! - `journal-*.jsonl`: the program's input and output (see `journal`).
//! - `copy.json`: present if the journal is a copy from another machine (see `journal_copy`).
//! - `exit.json`: how the program ended, written when no process of the launch is left and the
//!   journal is synced.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regatta_core::ids::{AgentName, AttemptId};
use regatta_engine::ports::agents::{Exit, ProcessIdentity};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, Containment};
use crate::drivers::DriverSetup;
use crate::egress::EgressRoutes;
use crate::relay::RelayRecord;
use crate::shim::ShimLimits;

/// The kind of program that is started under a supervisor process: an attempt (an agent's work on a
/// task) or a check (a command such as a test). The kind decides where the program's output goes
/// and when the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaunchKind {
    /// An attempt of an agent at a task. The program's input and output are recorded in the
    /// journal, and the program continues when the daemon ends.
    Attempt,
    /// A check (a command, such as a test, that judges an agent's work). A check gets no input,
    /// prints to the supervisor's standard output, and ends when the daemon ends, because only the
    /// daemon that started it can use its result.
    Check,
}

/// The source of a program's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputSource {
    /// The program reads the unchanged prompt file, and its input ends after the prompt.
    #[default]
    Prompt,
    /// Lines that the daemon's session loop sends one by one while the program runs.
    #[serde(rename = "said")]
    Lines,
}

/// The facts about a started program that the session loop needs to exchange input and output with
/// the program. A restarted daemon has no other source for these facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionFacts {
    pub(crate) attempt: AttemptId,
    pub(crate) agent: AgentName,
    /// The settings of the program's driver. The settings name the sources of secrets but contain
    /// no secret.
    pub(crate) setup: DriverSetup,
}

/// The content of `launch.json`: the program that a supervisor process has to start, and its
/// settings.
///
/// The environment is not part of the file, because it may hold an agent's API key. The supervisor
/// process receives the environment as its own environment, so the API key is never on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub(crate) v: u32,
    pub(crate) mode: LaunchKind,
    pub(crate) argv: Vec<String>,
    pub(crate) dir: PathBuf,
    /// The mark, which identifies this launch (one start of a program). It is the value of the
    /// environment variable `REGATTA_ATTEMPT_MARK` in every process of this launch and in no other
    /// process.
    pub(crate) mark: String,
    #[serde(default)]
    pub(crate) input: InputSource,
    /// The names of the environment variables that hold secrets. The values of these variables are
    /// removed from everything that the supervisor process writes.
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    #[serde(default)]
    pub(crate) limits: ShimLimits,
    /// True if the supervisor process must not create a control group for the program.
    #[serde(default)]
    pub(crate) without_cgroup: bool,
    /// The addresses that a program without a network may still reach, through the supervisor
    /// process. `None` if the program may reach no address or has a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ways")]
    pub(crate) egress_routes: Option<EgressRoutes>,
    /// True if the program's command first enters a PID namespace of its own and waits there until
    /// the supervisor process lets it continue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "held")]
    pub(crate) waits_for_shim: bool,
    /// The time without contact with the daemon after which the program is ended; `None` on the
    /// daemon's own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "leash")]
    pub(crate) contact_deadline: Option<ContactDeadline>,
    /// The local address at which the program reaches its daemon, if the supervisor process
    /// provides one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relay: Option<RelayRecord>,
    /// The facts that the daemon's session loop needs. `None` for a check (a command such as a
    /// test) and for a one-time command, because they have no session.
    #[serde(default)]
    #[serde(rename = "attended")]
    pub(crate) session_facts: Option<SessionFacts>,
}

/// The file in which a runner records its last contact with the daemon, and how many milliseconds a
/// program may run without contact. After that time the daemon may give the task to another agent,
/// and the runner may not be alive to end the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContactDeadline {
    pub(crate) file: PathBuf,
    #[serde(rename = "ms")]
    pub(crate) timeout_ms: u64,
}

/// The content of `shim.json`, which a supervisor process writes when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimRecord {
    #[serde(flatten)]
    pub(crate) identity: ProcessIdentity,
    /// The control group in which the supervisor process will start the program, or `None` if the
    /// supervisor uses no control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<Cgroup>,
}

/// The content of `program.json`, which a supervisor process writes after it has started its
/// program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramRecord {
    #[serde(flatten)]
    pub(crate) identity: ProcessIdentity,
    #[serde(default)]
    pub(crate) containment: Containment,
}

#[derive(Serialize, Deserialize)]
struct ExitRecord {
    v: u32,
    exit: Exit,
}

/// The run directory of one launch (one start of a program under a supervisor process).
#[derive(Clone, Debug)]
pub(crate) struct RunDir(pub(crate) PathBuf);

impl RunDir {
    /// Creates the directory if it does not exist. Only the owner of the directory can access it.
    pub(crate) fn create(path: PathBuf) -> io::Result<RunDir> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(RunDir(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub(crate) fn launch_file(&self) -> PathBuf {
        self.path("launch.json")
    }
    pub(crate) fn shim_file(&self) -> PathBuf {
        self.path("shim.json")
    }
    pub(crate) fn copy_file(&self) -> PathBuf {
        self.path("copy.json")
    }
    pub(crate) fn program_file(&self) -> PathBuf {
        self.path("program.json")
    }
    pub(crate) fn exit_file(&self) -> PathBuf {
        self.path("exit.json")
    }
    pub(crate) fn shim_lock(&self) -> PathBuf {
        self.path("shim.lock")
    }
    pub(crate) fn start_lock(&self) -> PathBuf {
        self.path("start.lock")
    }
    pub(crate) fn shim_log(&self) -> PathBuf {
        self.path("shim.log")
    }
    pub(crate) fn prompt_file(&self) -> PathBuf {
        self.path("prompt.md")
    }
    pub(crate) fn script_file(&self) -> PathBuf {
        self.path("script.json")
    }
    pub(crate) fn result_file(&self) -> PathBuf {
        self.path("outbox").join("result.json")
    }

    /// Reads the launch record (the program to start and its settings), or returns `None` if there
    /// is none. An incomplete record counts as missing: only a power cut leaves an incomplete
    /// record, and no process survives a power cut.
    pub(crate) fn read_launch(&self) -> io::Result<Option<LaunchRecord>> {
        match read_json(&self.launch_file()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            read => read,
        }
    }

    /// Reads the supervisor's record, or returns `None` if no supervisor process has begun.
    pub(crate) fn read_shim(&self) -> io::Result<Option<ShimRecord>> {
        read_json(&self.shim_file())
    }

    /// Reads the program's record, or returns `None` if no program was started.
    pub(crate) fn read_program(&self) -> io::Result<Option<ProgramRecord>> {
        read_json(&self.program_file())
    }

    /// Reads how the program ended, or returns `None` if that is not recorded.
    pub(crate) fn read_exit(&self) -> io::Result<Option<Exit>> {
        Ok(read_json::<ExitRecord>(&self.exit_file())?.map(|record| record.exit))
    }

    /// Records how the program ended unless that is already recorded (P6). Returns the recorded
    /// exit, which may be an earlier one.
    pub(crate) fn record_exit(&self, exit: &Exit) -> io::Result<Exit> {
        let record = serde_json::to_vec(&ExitRecord {
            v: 1,
            exit: exit.clone(),
        })?;
        if write_new(&self.exit_file(), &record)? {
            return Ok(exit.clone());
        }
        self.read_exit()?
            .ok_or_else(|| io::Error::other("the program's exit record was removed meanwhile"))
    }
}

/// Opens a file for appending and creates it if necessary. Only the owner of the file can access
/// it.
pub(crate) fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Replaces a file as a whole and syncs it to the disk. A reader sees the old or the new content,
/// never a mixture, also after a power cut.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    sync_parent(path)
}

/// Replaces a file as a whole without waiting for the disk, so a power cut may leave the file
/// incomplete. Use this function only for files that are useless after a reboot.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, _) = create_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Creates a file with this content unless it exists already. Returns whether this call created it.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let temporary = write_temporary(path, bytes)?;
    // Use a hard link, which fails if the file exists; a rename would replace the file.
    let linked = fs::hard_link(&temporary, path);
    drop(fs::remove_file(&temporary));
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes and syncs a temporary file beside `path`, and returns its path.
pub(crate) fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let (temporary, file) = create_temporary(path, bytes)?;
    file.sync_all()
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(temporary)
}

fn create_temporary(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".{name}.{}.{number}.tmp", std::process::id()));
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok((temporary, file))
}

pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Reads a JSON file. Returns `None` if the file is missing and an error if the file is incomplete.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => {
            let torn = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            serde_json::from_slice(&bytes).map(Some).map_err(torn)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Locks a file, or returns `None` if another process has locked it. The lock ends when the
/// returned file is dropped.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file and waits as long as necessary for other holders. Use this function only for locks
/// that are held briefly.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    file.lock()?;
    Ok(file)
}

/// Locks a file, or returns `None` if another process still holds the lock at the deadline. Polls
/// the lock, because the kernel offers no lock with a timeout.
pub(crate) fn lock_until(path: &Path, deadline: Instant) -> io::Result<Option<File>> {
    loop {
        if let Some(file) = try_lock(path)? {
            return Ok(Some(file));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a random text that identifies the processes of one launch (one start of a program).
pub(crate) fn new_launch_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_first_exit_record_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let dir = RunDir(directory.path().to_owned());
        assert_eq!(dir.record_exit(&Exit::Code(1)).unwrap(), Exit::Code(1));
        assert_eq!(dir.record_exit(&Exit::Lost).unwrap(), Exit::Code(1));
        assert_eq!(dir.read_exit().unwrap(), Some(Exit::Code(1)));
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1);
    }
}
