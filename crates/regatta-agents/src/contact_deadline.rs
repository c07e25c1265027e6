//! Ends an agent's program on a runner (a machine that works for the daemon) when the runner has
//! not reached its daemon for too long (L5).
//!
//! By then the daemon may have given the task to another agent. The runner writes the time of each
//! contact to a file, by the machine's boot clock. Changes of the date do not move that clock, and
//! the clock also counts while the machine sleeps. The program's supervisor process, the shim,
//! reads the file itself, so the deadline also works when the runner was killed or is frozen.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::process_tree::ProcessTree;
use crate::run_dir::ContactDeadline;

/// The time between asking a program to end and killing the program, after the deadline for the
/// contact with the daemon has passed.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// The time to wait for killed processes to disappear before they are killed again.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Writes the current time to `file` as the last contact with the daemon.
pub fn record_contact(file: &Path) -> io::Result<()> {
    let temporary = file.with_extension("new");
    fs::write(&temporary, boot_clock_ms().to_string())?;
    fs::rename(&temporary, file)
}

fn boot_clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Returns whether the last contact is longer ago than the deadline allows. If the contact file is
/// missing or unreadable, the time counts from the first call that could not read the file;
/// `missing_since` holds the time of that call.
fn is_deadline_passed(
    deadline: &ContactDeadline,
    missing_since: &mut Option<u64>,
    now_ms: u64,
) -> bool {
    let last_contact = fs::read_to_string(&deadline.file)
        .ok()
        .and_then(|s| s.trim().parse::<u64>().ok());
    let reference_ms = match last_contact {
        Some(last_contact) => {
            *missing_since = None;
            last_contact
        }
        None => *missing_since.get_or_insert(now_ms),
    };
    now_ms.saturating_sub(reference_ms) > deadline.timeout_ms
}

/// Watches the contact file for as long as the supervisor process lives, and ends the process tree
/// when the deadline has passed.
pub(crate) fn enforce_deadline(deadline: &ContactDeadline, tree: &ProcessTree) {
    let poll_interval = Duration::from_millis((deadline.timeout_ms / 8).clamp(50, 2_000));
    let mut missing_since = None;
    loop {
        std::thread::sleep(poll_interval);
        if is_deadline_passed(deadline, &mut missing_since, boot_clock_ms()) {
            // Ignore an error: the next round of the loop tries to end the remaining processes
            // again.
            drop(tree.end(GRACE_PERIOD, Instant::now() + GRACE_PERIOD + KILL_TIMEOUT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l5_the_deadline_passes_when_no_contact_was_recorded_for_too_long() {
        let dir = tempfile::tempdir().unwrap();
        let deadline = ContactDeadline {
            file: dir.path().join("contact"),
            timeout_ms: 1_000,
        };
        let (now_ms, mut missing_since) = (boot_clock_ms(), None);
        assert!(
            !is_deadline_passed(&deadline, &mut missing_since, now_ms),
            "the file may not be written yet"
        );
        assert!(
            is_deadline_passed(&deadline, &mut missing_since, now_ms + 1_001),
            "a missing file does not extend the deadline for ever"
        );
        record_contact(&deadline.file).unwrap();
        let last_contact: u64 = fs::read_to_string(&deadline.file).unwrap().parse().unwrap();
        assert!(
            !is_deadline_passed(&deadline, &mut missing_since, last_contact + 1_000)
                && missing_since.is_none()
        );
        assert!(is_deadline_passed(
            &deadline,
            &mut missing_since,
            last_contact + 1_001
        ));
        // A torn file counts as a missing one.
        fs::write(&deadline.file, "x").unwrap();
        assert!(!is_deadline_passed(
            &deadline,
            &mut missing_since,
            last_contact + 9_000
        ));
        assert!(is_deadline_passed(
            &deadline,
            &mut missing_since,
            last_contact + 10_001
        ));
    }
}
