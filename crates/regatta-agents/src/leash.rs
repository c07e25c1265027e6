//! A program's leash: it goes on only as long as a runner hears of its daemon.
//!
//! The runner notes each time on the machine's boot clock, which no change of the date moves and which goes on while the
//! machine sleeps. The shim looks at it by itself, so that a runner that was killed, or frozen, holds nothing up.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::rundir::Leash;
use crate::tree::Tree;

/// How long a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// And all of it to be gone, before it is tried again.
const PATIENCE: Duration = Duration::from_secs(3);

/// Notes that the daemon was heard of just now.
pub fn note(file: &Path) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, now_ms().to_string())?;
    fs::rename(&beside, file)
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Whether what the file says is too old. One that is not there, or cannot be read, says nothing: its age counts from
/// when it was first missed.
fn is_over(leash: &Leash, missed: &mut Option<u64>, now: u64) -> bool {
    let noted = fs::read_to_string(&leash.file).ok().and_then(|it| it.trim().parse::<u64>().ok());
    let since = match noted {
        Some(noted) => {
            *missed = None;
            noted
        }
        None => *missed.get_or_insert(now),
    };
    now.saturating_sub(since) > leash.ms
}

/// Watches the leash for as long as the shim lives, and ends the tree when it is over.
pub(crate) fn hold(leash: &Leash, tree: &Tree) {
    let round = Duration::from_millis((leash.ms / 8).clamp(50, 2_000));
    let mut missed = None;
    loop {
        std::thread::sleep(round);
        if is_over(leash, &mut missed, now_ms()) {
            // What does not end now is tried again.
            drop(tree.end(GRACE, Instant::now() + GRACE + PATIENCE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l5_a_leash_is_over_when_nothing_was_noted_for_too_long() {
        let dir = tempfile::tempdir().unwrap();
        let leash = Leash { file: dir.path().join("leash"), ms: 1_000 };
        let (now, mut missed) = (now_ms(), None);
        assert!(!is_over(&leash, &mut missed, now), "it may not be written yet");
        assert!(is_over(&leash, &mut missed, now + 1_001), "but not for ever");
        note(&leash.file).unwrap();
        let noted: u64 = fs::read_to_string(&leash.file).unwrap().parse().unwrap();
        assert!(!is_over(&leash, &mut missed, noted + 1_000) && missed.is_none());
        assert!(is_over(&leash, &mut missed, noted + 1_001));
        // A torn note is none.
        fs::write(&leash.file, "x").unwrap();
        assert!(!is_over(&leash, &mut missed, noted + 9_000));
        assert!(is_over(&leash, &mut missed, noted + 10_001));
    }
}
