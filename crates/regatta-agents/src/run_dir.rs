//! The directory that the daemon and one shim share, and the way in which its files are written.
//!
//! The files are the protocol, so either side may die at any moment:
//!
//! - `launch.json`: the program to run and its settings.
//! - `start.lock`: locked while a process starts the launch or records its end.
//! - `shim.lock`: locked by the shim for its whole life.
//! - `shim.json`: the identity of the shim that has begun. Once it exists, no other shim ever
//!   begins.
//! - `program.json`: the program's identity.
//! - `shim.sock`: the socket that receives commands (see `shim_protocol`).
//! - `journal-*.jsonl`: the program's input and output (see `journal`).
//! - `copy.json`: present if the directory holds a copy from another machine (see `journal_copy`).
//! - `exit.json`: the exit, written when no process of the launch is left and the journal is
//!   synced.

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

/// The kind of a launch, which decides where its streams go and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaunchKind {
    /// An attempt. The journal keeps its streams, and it outlives the daemon.
    Attempt,
    /// A check. It gets no input and prints to the shim's standard output. It ends with the daemon,
    /// because only the daemon that asked can use the answer.
    Check,
}

/// The source of the program's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputSource {
    /// The unchanged prompt, followed by the end of the input.
    #[default]
    Prompt,
    /// Single lines, which the daemon's session loop sends.
    #[serde(rename = "said")]
    Lines,
}

/// The facts that the session loop needs about a launch. A daemon that restarts has no other source
/// for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionFacts {
    pub(crate) attempt: AttemptId,
    pub(crate) agent: AgentName,
    /// The settings, which name the sources of secrets but contain no secret.
    pub(crate) setup: DriverSetup,
}

/// The launch that a shim performs.
///
/// The environment is not part of it. It may hold an agent's key, so the shim receives it as its
/// own environment and it is never on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub(crate) v: u32,
    pub(crate) mode: LaunchKind,
    pub(crate) argv: Vec<String>,
    pub(crate) dir: PathBuf,
    /// The value of `REGATTA_ATTEMPT_MARK`, which every process of this launch carries and no other
    /// process does.
    pub(crate) mark: String,
    #[serde(default)]
    pub(crate) input: InputSource,
    /// The variables of the shim's environment that hold secrets. Their values are redacted from
    /// everything that the shim writes.
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    #[serde(default)]
    pub(crate) limits: ShimLimits,
    /// Tells the shim to create no control group.
    #[serde(default)]
    pub(crate) without_cgroup: bool,
    /// The egress routes of a program that has no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ways")]
    pub(crate) egress_routes: Option<EgressRoutes>,
    /// Set if the program's command enters a PID namespace of its own and waits there until the
    /// shim lets it continue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "held")]
    pub(crate) waits_for_shim: bool,
    /// The deadline after which the program ends without contact to the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "leash")]
    pub(crate) contact_deadline: Option<ContactDeadline>,
    /// The address at which the program reaches its daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relay: Option<RelayRecord>,
    /// The facts for the session loop; `None` for a check.
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

/// The record of a shim that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimRecord {
    #[serde(flatten)]
    pub(crate) identity: ProcessIdentity,
    /// The control group in which the shim will start the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<Cgroup>,
}

/// The record of a program that a shim has started.
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

/// The run directory of one launch.
#[derive(Clone, Debug)]
pub(crate) struct RunDir(pub(crate) PathBuf);

impl RunDir {
    /// Creates the directory with access for its owner only.
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

    /// Reads the launch record, if there is one. A torn record counts as missing: only a power cut
    /// leaves one, and no process of the launch survives a power cut.
    pub(crate) fn read_launch(&self) -> io::Result<Option<LaunchRecord>> {
        match read_json(&self.launch_file()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            read => read,
        }
    }

    /// Reads the shim's record, if a shim has begun.
    pub(crate) fn read_shim(&self) -> io::Result<Option<ShimRecord>> {
        read_json(&self.shim_file())
    }

    /// Reads the program's record, if there is one.
    pub(crate) fn read_program(&self) -> io::Result<Option<ProgramRecord>> {
        read_json(&self.program_file())
    }

    /// Reads the exit, if the launch has ended.
    pub(crate) fn read_exit(&self) -> io::Result<Option<Exit>> {
        Ok(read_json::<ExitRecord>(&self.exit_file())?.map(|record| record.exit))
    }

    /// Records the exit unless one is already recorded (P6), and returns the recorded exit.
    pub(crate) fn record_exit(&self, exit: &Exit) -> io::Result<Exit> {
        let record = serde_json::to_vec(&ExitRecord {
            v: 1,
            exit: exit.clone(),
        })?;
        if write_new(&self.exit_file(), &record)? {
            return Ok(exit.clone());
        }
        self.read_exit()?
            .ok_or_else(|| io::Error::other("the exit record vanished"))
    }
}

/// Opens a file for appending, with access for its owner only.
pub(crate) fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Replaces a file as a whole and syncs it. A reader sees the old or the new content, also after a
/// power cut.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    sync_parent(path)
}

/// Replaces a file as a whole without waiting for the disk, so a power cut may leave it torn. It is
/// for files that are useless once the machine and its processes are down.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, _) = create_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Writes a whole file that must not exist yet. Returns whether this call wrote it.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let temporary = write_temporary(path, bytes)?;
    // A hard link, unlike a rename, refuses to replace.
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

/// Reads a JSON file. A missing file is `None`, a torn file is an error.
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

/// Locks a file if no other process has locked it. The lock lasts as long as the returned file.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file, waiting as long as necessary. It is only for locks that are held briefly.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    file.lock()?;
    Ok(file)
}

/// Locks a file, waiting until a deadline. The kernel has no lock with a timeout, so this polls.
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

/// Returns a random mark that no other launch has.
pub(crate) fn new_launch_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
