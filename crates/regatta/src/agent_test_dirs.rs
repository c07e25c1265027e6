//! Directories of agent tests (`regatta agent test`), and their removal after a crash (invariant
//! P12).
//!
//! An agent test runs without a daemon, in a temporary directory outside of the data directory. A
//! record in the data directory holds the path of that directory, and the process that runs the
//! test holds a lock on the record. A free lock means that the process has ended, perhaps in a
//! crash. The next test, the next start of the daemon or `regatta doctor --clean` then removes the
//! directory. The agent's program does not run on until then, because its shim (the process that
//! supervises the program) stops the program when the testing process no longer writes the contact
//! file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::composition;
use crate::daemon;
use crate::output::{CommandError, command_error};

/// The time after which an agent's program is stopped if the process that tests the program has
/// disappeared.
pub(crate) const CONTACT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which the testing process writes the contact file. The file shows the shim (the
/// process that supervises the agent's program) that the test still runs.
const CONTACT_INTERVAL: Duration = Duration::from_millis(500);

/// The temporary directory of one test of an agent's program (`regatta agent test`). Dropping this
/// value removes the directory.
pub(crate) struct AgentTestDir {
    path: PathBuf,
    record_path: PathBuf,
    /// The lock on the test's record file. As long as the lock is held, other processes know that
    /// the test still runs.
    _lock: File,
    /// The sending end of a channel to the thread that writes the contact file. Dropping this end
    /// makes the thread exit.
    _contact_thread: mpsc::Sender<()>,
}

impl AgentTestDir {
    /// Creates the directory of a test. Writes the record first, so that every directory has a
    /// record by which a later process finds the directory after a crash.
    pub(crate) fn create(data_dir: &Path) -> Result<AgentTestDir, CommandError> {
        let broken = |error: io::Error| {
            command_error(
                "io",
                format!("could not create a temporary directory for the agent test: {error}"),
                "check that TMPDIR names a directory you can write",
            )
        };
        let records = records_dir(data_dir);
        fs::create_dir_all(&records).map_err(broken)?;
        let mark = daemon::random_hex(16).map_err(broken)?;
        let dir = std::env::temp_dir().join(format!("regatta-test-{mark}"));
        let record_path = records.join(format!("{mark}.book"));
        let mut lock = File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&record_path)
            .map_err(broken)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| broken(error.into()))?;
        lock.write_all(dir.as_os_str().as_encoded_bytes())
            .and_then(|()| lock.sync_all())
            .map_err(broken)?;
        make_private(&dir).map_err(broken)?;
        let (contact_thread, contact_end) = mpsc::channel();
        let file = dir.join("leash");
        composition::write_contact_file(&file).map_err(broken)?;
        std::thread::spawn(move || {
            while contact_end.recv_timeout(CONTACT_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                if let Err(error) = composition::write_contact_file(&file) {
                    tracing::warn!(
                        "could not write the contact file, which shows that the agent test still \
                         runs; the tested program is stopped {} s after the last successful write: \
                         {error}",
                        CONTACT_TIMEOUT.as_secs()
                    );
                }
            }
        });
        Ok(AgentTestDir {
            path: dir,
            record_path,
            _lock: lock,
            _contact_thread: contact_thread,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn contact_file(&self) -> PathBuf {
        self.path.join("leash")
    }
}

impl Drop for AgentTestDir {
    fn drop(&mut self) {
        if let Err(error) = remove_with_record(&self.path, &self.record_path) {
            tracing::warn!(
                "could not remove the directory {} of the agent test; remove it with regatta \
                 doctor --clean: {error}",
                self.path.display()
            );
        }
    }
}

fn make_private(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir)
}

fn records_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("trials")
}

/// Removes the directory of an agent test, and then the record file that contains the directory's
/// path. The order matters if the process crashes between the two steps: a record without a
/// directory is harmless, but nobody would ever find a directory without a record.
fn remove_with_record(dir: &Path, record: &Path) -> io::Result<()> {
    for result in [fs::remove_dir_all(dir), fs::remove_file(record)] {
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// An agent test whose testing process has ended without removing the directory of the test.
pub(crate) struct AbandonedTest {
    record_path: PathBuf,
    /// The directory of the test, or `None` if a crash interrupted the writing of the record.
    dir: Option<PathBuf>,
    /// The lock on the record, so that only one process removes the directory.
    _lock: File,
}

impl AbandonedTest {
    /// Stops the program of the test, and removes its directory and its record.
    fn remove(&self) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return fs::remove_file(&self.record_path);
        };
        composition::end_shims_in(&dir.join("data")).map_err(io::Error::other)?;
        remove_with_record(dir, &self.record_path)
    }
}

/// Returns the agent tests whose testing process has ended, and changes nothing.
pub(crate) fn find_abandoned(data_dir: &Path) -> io::Result<Vec<AbandonedTest>> {
    let entries = match fs::read_dir(records_dir(data_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut abandoned = Vec::new();
    for entry in entries {
        let record = entry?.path();
        let Ok(lock) = File::open(&record) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue; // the test is still running
        }
        let dir = PathBuf::from(fs::read_to_string(&record)?);
        // Remove the directory only if its name shows that an agent test created it. If a crash
        // interrupted the writing of the record, the record contains no path or only the beginning
        // of the path, which may be the path of another directory.
        let is_ours = dir
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("regatta-test-"));
        abandoned.push(AbandonedTest {
            record_path: record,
            dir: (is_ours && dir.is_absolute()).then_some(dir),
            _lock: lock,
        });
    }
    Ok(abandoned)
}

/// Stops the agents' programs and removes the directories of agent tests whose testing process has
/// ended. Returns the number of these tests.
pub(crate) fn sweep_abandoned(data_dir: &Path) -> io::Result<usize> {
    let abandoned = find_abandoned(data_dir)?;
    abandoned.iter().try_for_each(AbandonedTest::remove)?;
    Ok(abandoned.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P12: an agent test leaves nothing behind. If its process has ended, its directory is
    /// removed; the directory of a running test stays.
    #[test]
    fn p12_directories_of_ended_agent_tests_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let live = AgentTestDir::create(data.path()).unwrap();
        let place = live.path().to_owned();
        assert_eq!(
            sweep_abandoned(data.path()).unwrap(),
            0,
            "the test is running"
        );
        assert!(place.is_dir());
        drop(live);
        assert!(!place.exists());

        let left =
            std::env::temp_dir().join(format!("regatta-test-{}", daemon::random_hex(16).unwrap()));
        fs::create_dir(&left).unwrap();
        fs::write(
            records_dir(data.path()).join("left.book"),
            left.to_str().unwrap(),
        )
        .unwrap();
        fs::write(records_dir(data.path()).join("torn.book"), "").unwrap();
        let foreign = data.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(
            records_dir(data.path()).join("foreign.book"),
            foreign.to_str().unwrap(),
        )
        .unwrap();
        assert_eq!(find_abandoned(data.path()).unwrap().len(), 3);
        assert!(left.is_dir(), "finding removes nothing");
        assert_eq!(sweep_abandoned(data.path()).unwrap(), 3);
        assert!(!left.exists() && foreign.is_dir());
        assert_eq!(fs::read_dir(records_dir(data.path())).unwrap().count(), 0);
    }
}
