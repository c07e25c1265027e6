//! Compresses the journals (recorded input and output) of ended attempts after a while, and later
//! removes them and the records of one-time commands.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::AgentError;

use crate::adapter::AgentsAdapter;
use crate::run_dir::{RunDir, try_lock};
use crate::{errors, journal, journal_copy};

/// The attempts whose journals one call of [`AgentsAdapter::prune`] compressed or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedJournals {
    pub compressed: Vec<AttemptId>,
    pub removed: Vec<AttemptId>,
}

impl AgentsAdapter {
    /// Compresses the journals of attempts that ended at least `compress_after` before `now`, and
    /// removes the journals and files of attempts that ended at least `remove_after` before `now`.
    ///
    /// The small records of an attempt's start and end stay, because these records ensure that the
    /// attempt's program is never started twice. An attempt that has not ended is not changed. For
    /// a program that runs on another machine the time of the last copied record counts, and later
    /// records can still be added.
    pub fn prune(
        &self,
        remove_after: Duration,
        compress_after: Duration,
        now: SystemTime,
    ) -> Result<PrunedJournals, AgentError> {
        let mut pruned = PrunedJournals::default();
        let root = self.attempts_path();
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(pruned),
            Err(error) => {
                return Err(errors::file_error(
                    "list the attempts' run directories in",
                    &root,
                    error,
                ));
            }
        };
        for entry in entries {
            let entry = entry.map_err(|error| {
                errors::file_error("list the attempts' run directories in", &root, error)
            })?;
            let Some(attempt) = entry.file_name().to_str().and_then(|s| s.parse().ok()) else {
                continue;
            };
            let dir = RunDir(entry.path());
            let action = prune_attempt(&dir, remove_after, compress_after, now);
            match action.map_err(|error| {
                errors::file_error("compress or remove the journal in", &dir.0, error)
            })? {
                PruneAction::Nothing => {}
                PruneAction::Compressed => pruned.compressed.push(attempt),
                PruneAction::Removed => pruned.removed.push(attempt),
            }
        }
        // Discard the saved reading positions, because the journals' files have changed.
        self.cursors().clear();
        Ok(pruned)
    }

    /// Removes the records of one-time commands that ended at least `remove_after` before `now`,
    /// and returns their number.
    ///
    /// A record is needed only until the daemon has processed the command's result. The caller is a
    /// daemon that has been up for a while and has therefore processed the results of old commands.
    /// A command that has not ended is not changed.
    pub fn prune_commands(
        &self,
        remove_after: Duration,
        now: SystemTime,
    ) -> Result<usize, AgentError> {
        let root = self.commands_path();
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => {
                return Err(errors::file_error(
                    "list the records of one-time commands in",
                    &root,
                    error,
                ));
            }
        };
        let mut removed = 0;
        for entry in entries {
            let dir = RunDir(
                entry
                    .map_err(|error| {
                        errors::file_error("list the records of one-time commands in", &root, error)
                    })?
                    .path(),
            );
            let is_removed = prune_command(&dir, remove_after, now).map_err(|error| {
                errors::file_error(
                    "remove the old record of a one-time command in",
                    &dir.0,
                    error,
                )
            })?;
            removed += usize::from(is_removed);
        }
        Ok(removed)
    }
}

fn prune_command(dir: &RunDir, remove_after: Duration, now: SystemTime) -> io::Result<bool> {
    let ended = match fs::metadata(dir.exit_file()) {
        Ok(metadata) => metadata.modified()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if now.duration_since(ended).unwrap_or_default() < remove_after {
        return Ok(false);
    }
    let Some(_lock) = try_lock(&dir.shim_lock())? else {
        return Ok(false);
    };
    fs::remove_dir_all(&dir.0)?;
    Ok(true)
}

enum PruneAction {
    Nothing,
    Compressed,
    Removed,
}

fn prune_attempt(
    dir: &RunDir,
    remove_after: Duration,
    compress_after: Duration,
    now: SystemTime,
) -> io::Result<PruneAction> {
    let ended = match fs::metadata(dir.exit_file()) {
        Ok(metadata) => metadata.modified()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match journal_copy::last_record_time(dir) {
                Some(written_at) => written_at,
                None => return Ok(PruneAction::Nothing),
            }
        }
        Err(error) => return Err(error),
    };
    // Use an age of zero if the recorded end is in the future, because the clock may have been set
    // back.
    let age = now.duration_since(ended).unwrap_or_default();
    if age < remove_after.min(compress_after) {
        return Ok(PruneAction::Nothing);
    }
    // Skip the attempt for now if its lock is held, because a supervisor process keeps the lock for
    // a moment after it has written its last record.
    let Some(_lock) = try_lock(&dir.shim_lock())? else {
        return Ok(PruneAction::Nothing);
    };
    if age >= remove_after {
        let had_journal = journal::remove(&dir.0)?;
        for name in ["home", "tmp"] {
            match fs::remove_dir_all(dir.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        return Ok(if had_journal {
            PruneAction::Removed
        } else {
            PruneAction::Nothing
        });
    }
    Ok(if journal::compress(&dir.0)? {
        PruneAction::Compressed
    } else {
        PruneAction::Nothing
    })
}
