//! The books of `agent test`: where each trial works, so that nothing of it is ever left behind (P12).
//!
//! A trial runs in a directory for temporary files, beside the data directory and without a daemon. Its book is a file in
//! the data directory that names the place and is locked by the process that runs the trial. When the lock is free the
//! process has ended, however it ended; then the next trial, the next start of the daemon or `doctor` removes the place.
//! The program itself ends before that: its shim holds it on a leash that the process must go on writing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::daemon;
use crate::out::{Failed, failed};
use crate::wire;

/// For how long a program goes on when the process that tests it has vanished.
pub(crate) const LEASH: Duration = Duration::from_secs(10);

/// How often the leash is written.
const LEASH_INTERVAL: Duration = Duration::from_millis(500);

/// A place for one trial, until it is dropped.
pub(crate) struct Trial {
    place: PathBuf,
    book: PathBuf,
    /// Held until the place is gone.
    _lock: File,
    /// Dropped to end the thread that writes the leash.
    _leash: mpsc::Sender<()>,
}

impl Trial {
    /// Makes a place and writes its book first, so that no place is without one.
    pub(crate) fn begin(data_dir: &Path) -> Result<Trial, Failed> {
        let broken = |error: io::Error| failed("io", format!("no place for the test: {error}"), "see TMPDIR");
        let books = books(data_dir);
        fs::create_dir_all(&books).map_err(broken)?;
        let mark = daemon::random_hex(16).map_err(broken)?;
        let place = std::env::temp_dir().join(format!("regatta-test-{mark}"));
        let book = books.join(format!("{mark}.book"));
        let mut lock = File::options().create_new(true).write(true).mode(0o600).open(&book).map_err(broken)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| broken(error.into()))?;
        lock.write_all(place.as_os_str().as_encoded_bytes()).and_then(|()| lock.sync_all()).map_err(broken)?;
        make_private(&place).map_err(broken)?;
        let (leash, ends) = mpsc::channel();
        let file = place.join("leash");
        wire::note_leash(&file).map_err(broken)?;
        std::thread::spawn(move || {
            while ends.recv_timeout(LEASH_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(error) = wire::note_leash(&file) {
                    tracing::warn!("could not write the leash of the test: {error}");
                }
            }
        });
        Ok(Trial { place, book, _lock: lock, _leash: leash })
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn leash(&self) -> PathBuf {
        self.place.join("leash")
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.place, &self.book) {
            tracing::warn!("could not remove {}: {error}", self.place.display());
        }
    }
}

fn make_private(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir)
}

fn books(data_dir: &Path) -> PathBuf {
    data_dir.join("trials")
}

/// Removes the place first: a book without a place is harmless, a place without a book is lost.
fn remove(place: &Path, book: &Path) -> io::Result<()> {
    for removed in [fs::remove_dir_all(place), fs::remove_file(book)] {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Ends and removes what trials left whose process is gone; returns how many.
pub(crate) fn sweep(data_dir: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(books(data_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut swept = 0;
    for entry in entries {
        let book = entry?.path();
        let Ok(lock) = File::open(&book) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue; // its process is at work
        }
        let place = PathBuf::from(fs::read_to_string(&book)?);
        // Only a place of ours: a torn book names none.
        let is_ours = place.file_name().is_some_and(|name| name.to_string_lossy().starts_with("regatta-test-"));
        if is_ours && place.is_absolute() {
            wire::end_shims_in(&place.join("data")).map_err(io::Error::other)?;
            remove(&place, &book)?;
        } else {
            fs::remove_file(&book)?;
        }
        swept += 1;
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P12: a trial leaves nothing; what a vanished process left goes with the next sweep, and a live one's stays.
    #[test]
    fn p12_the_books_of_trials_are_cleared() {
        let data = tempfile::tempdir().unwrap();
        let live = Trial::begin(data.path()).unwrap();
        let place = live.place().to_owned();
        assert_eq!(sweep(data.path()).unwrap(), 0, "it is at work");
        assert!(place.is_dir());
        drop(live);
        assert!(!place.exists());

        let left = std::env::temp_dir().join(format!("regatta-test-{}", daemon::random_hex(16).unwrap()));
        fs::create_dir(&left).unwrap();
        fs::write(books(data.path()).join("left.book"), left.to_str().unwrap()).unwrap();
        fs::write(books(data.path()).join("torn.book"), "").unwrap();
        let foreign = data.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(books(data.path()).join("foreign.book"), foreign.to_str().unwrap()).unwrap();
        assert_eq!(sweep(data.path()).unwrap(), 3);
        assert!(!left.exists() && foreign.is_dir());
        assert_eq!(fs::read_dir(books(data.path())).unwrap().count(), 0);
    }
}
