//! Ends a runner's program when the runner has not heard from its daemon for too long (L5).
//!
//! By then the daemon may have given the task to another agent. The runner writes the time of each
//! contact to a file, by the machine's boot clock: no change of the date moves that clock, and it
//! counts while the machine sleeps. The shim reads the file itself, so the deadline also holds when
//! the runner was killed or is frozen.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::process_tree::ProcessTree;
use crate::run_dir::ContactDeadline;

/// The time that a program may take to end by itself after the deadline.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// The time that killed processes may take to disappear before they are killed again.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Records that the daemon was in contact just now.
pub fn record_contact(file: &Path) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, boot_clock_ms().to_string())?;
    fs::rename(&beside, file)
}

fn boot_clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Returns whether the last contact is too long ago. When the file is missing or unreadable, the
/// time counts from the first call that found no contact time; `missed` holds that moment.
fn is_deadline_passed(leash: &ContactDeadline, missed: &mut Option<u64>, now: u64) -> bool {
    let noted = fs::read_to_string(&leash.file)
        .ok()
        .and_then(|s| s.trim().parse::<u64>().ok());
    let since = match noted {
        Some(noted) => {
            *missed = None;
            noted
        }
        None => *missed.get_or_insert(now),
    };
    now.saturating_sub(since) > leash.timeout_ms
}

/// Watches the contact file for as long as the shim lives, and ends the process tree when the
/// deadline has passed.
pub(crate) fn enforce_deadline(leash: &ContactDeadline, tree: &ProcessTree) {
    let round = Duration::from_millis((leash.timeout_ms / 8).clamp(50, 2_000));
    let mut missed = None;
    loop {
        std::thread::sleep(round);
        if is_deadline_passed(leash, &mut missed, boot_clock_ms()) {
            // Processes that survive are ended again in the next round.
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
        let leash = ContactDeadline {
            file: dir.path().join("leash"),
            timeout_ms: 1_000,
        };
        let (now, mut missed) = (boot_clock_ms(), None);
        assert!(
            !is_deadline_passed(&leash, &mut missed, now),
            "the file may not be written yet"
        );
        assert!(
            is_deadline_passed(&leash, &mut missed, now + 1_001),
            "a missing file does not extend the deadline for ever"
        );
        record_contact(&leash.file).unwrap();
        let noted: u64 = fs::read_to_string(&leash.file).unwrap().parse().unwrap();
        assert!(!is_deadline_passed(&leash, &mut missed, noted + 1_000) && missed.is_none());
        assert!(is_deadline_passed(&leash, &mut missed, noted + 1_001));
        // A torn file counts as a missing one.
        fs::write(&leash.file, "x").unwrap();
        assert!(!is_deadline_passed(&leash, &mut missed, noted + 9_000));
        assert!(is_deadline_passed(&leash, &mut missed, noted + 10_001));
    }
}
