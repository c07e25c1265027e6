//! The directory that the daemon and one shim share, and how files in it are written.
//!
//! The files are the protocol, so that either side may die at any moment:
//! `launch.json` what to run · `start.lock` held by whoever starts or concludes · `shim.lock` held by
//! the shim for its life · `shim.json` a shim has begun, so no other ever may · `program.json` the
//! program's identity · `shim.sock` takes commands (see `socket`) · `journal-*.jsonl` what was said (see
//! `journal`) · `copy.json` that is a copy, of a program elsewhere (see `copies`) · `exit.json` how it ended, written when no process of it is left and the journal is synced.

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
use crate::drivers::Setup;
use crate::egress::Ways;
use crate::relay::RelayRecord;
use crate::shim::Limits;

/// What the shim does with the program's streams, and whom it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// An attempt: its streams are kept in the journal, and it outlives the daemon.
    Attempt,
    /// A check: nothing in, the shim's standard output out, and it ends with the daemon, because only
    /// the daemon that asked can use the answer.
    Check,
}

/// Where the program's input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Input {
    /// The prompt, as it is, and then its end.
    #[default]
    Prompt,
    /// Line by line, as its attendant says.
    Said,
}

/// What whoever attends the program must know of its launch; a daemon that starts anew has nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attended {
    pub(crate) attempt: AttemptId,
    pub(crate) agent: AgentName,
    /// It names where secrets come from, never a secret.
    pub(crate) setup: Setup,
}

/// What the shim is to run.
///
/// The environment is not here: it may hold an agent's key, so it travels as the shim's own
/// environment and is never at rest on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub(crate) v: u32,
    pub(crate) mode: Mode,
    pub(crate) argv: Vec<String>,
    pub(crate) dir: PathBuf,
    /// The value of `REGATTA_ATTEMPT_MARK` in every process of this launch and in no other.
    pub(crate) mark: String,
    #[serde(default)]
    pub(crate) input: Input,
    /// The variables of the shim's environment that are secrets. Their values are redacted from all that is written.
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    #[serde(default)]
    pub(crate) limits: Limits,
    /// No control group is to be made for it.
    #[serde(default)]
    pub(crate) without_cgroup: bool,
    /// The ways out of a program that has no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ways: Option<Ways>,
    /// The program's command puts it into a PID namespace of its own, and waits there for the shim's word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) held: bool,
    /// What must go on being written for the program to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leash: Option<Leash>,
    /// Where the program reaches its daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relay: Option<RelayRecord>,
    /// `None` for a check.
    #[serde(default)]
    pub(crate) attended: Option<Attended>,
}

/// A file in which a runner notes when it last heard of the daemon, and for how long a program goes on after that: by
/// then its task may be given to somebody else, and the runner may not be there to end it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leash {
    pub(crate) file: PathBuf,
    pub(crate) ms: u64,
}

/// A shim that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimRecord {
    #[serde(flatten)]
    pub(crate) identity: ProcessIdentity,
    /// Where it means to start the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<Cgroup>,
}

/// The program that a shim has started.
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

/// The directory of one launch.
#[derive(Clone, Debug)]
pub(crate) struct RunDir(pub(crate) PathBuf);

impl RunDir {
    /// Makes the directory, for its owner's eyes only.
    pub(crate) fn create(path: PathBuf) -> io::Result<RunDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
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

    /// Reads what was launched, if anything was. A torn record is none: only a power cut leaves one, and nothing that
    /// was launched outlives it.
    pub(crate) fn launch(&self) -> io::Result<Option<LaunchRecord>> {
        match read_json(&self.launch_file()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            read => read,
        }
    }

    /// Reads who the shim is, if one has begun.
    pub(crate) fn shim(&self) -> io::Result<Option<ShimRecord>> {
        read_json(&self.shim_file())
    }

    /// Reads who the program is, if it was recorded.
    pub(crate) fn program(&self) -> io::Result<Option<ProgramRecord>> {
        read_json(&self.program_file())
    }

    /// Reads how it ended, if it has.
    pub(crate) fn exit(&self) -> io::Result<Option<Exit>> {
        Ok(read_json::<ExitRecord>(&self.exit_file())?.map(|record| record.exit))
    }

    /// Records how it ended, unless that is already recorded (P6); returns what the record says.
    pub(crate) fn record_exit(&self, exit: &Exit) -> io::Result<Exit> {
        let record = serde_json::to_vec(&ExitRecord { v: 1, exit: exit.clone() })?;
        if write_once(&self.exit_file(), &record)? {
            return Ok(exit.clone());
        }
        self.exit()?.ok_or_else(|| io::Error::other("the exit record vanished"))
    }
}

/// Opens a file to append to, for its owner's eyes only.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Replaces a file as a whole: a reader sees the old or the new, also after a power cut.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_beside(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    sync_parent(path)
}

/// Replaces a file as a whole, but does not wait for the disk: a power cut may leave it torn. For what is of no use once
/// the machine, and every process with it, has gone down.
pub(crate) fn write_soon(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, _) = make_beside(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Writes a file that must not exist yet, as a whole; returns whether it was this call that wrote it.
fn write_once(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let temporary = write_beside(path, bytes)?;
    // A hard link, unlike a rename, refuses to replace.
    let linked = fs::hard_link(&temporary, path);
    drop(fs::remove_file(&temporary));
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let (temporary, file) = make_beside(path, bytes)?;
    file.sync_all().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(temporary)
}

fn make_beside(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".{name}.{}.{number}.tmp", std::process::id()));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok((temporary, file))
}

pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Reads a JSON file; a missing one is `None`, a torn one an error.
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
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Takes a lock that lasts as long as the returned file, if nobody has it.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock, waiting for it; only for locks whose holders are known to be quick.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    file.lock()?;
    Ok(file)
}

/// Takes a lock, waiting until a deadline. The kernel has no such wait, hence the short naps.
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

/// Makes a word that no other launch has.
pub(crate) fn fresh_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_first_exit_record_stands() {
        let directory = tempfile::tempdir().unwrap();
        let dir = RunDir(directory.path().to_owned());
        assert_eq!(dir.record_exit(&Exit::Code(1)).unwrap(), Exit::Code(1));
        assert_eq!(dir.record_exit(&Exit::Lost).unwrap(), Exit::Code(1));
        assert_eq!(dir.exit().unwrap(), Some(Exit::Code(1)));
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1);
    }
}
