//! Computes the date by which the age of stored things is judged before they are deleted.
//!
//! The machine's date may be wrong: a day ahead after a wrong correction, or years ahead after its
//! battery was empty. Things that are deleted because of a wrong date are lost (L12). The date that
//! this module computes therefore advances only as fast as the machine's boot clock. If the machine
//! was rebooted since the last call, the date advances by at most [`MAX_GAP_MS`]. It may lag behind
//! the real date, so things may be kept longer than promised, but never shorter.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::timer::Clock;

/// The largest step by which the date may advance across a reboot of the machine, in milliseconds.
const MAX_GAP_MS: u64 = 24 * 3_600_000;

/// The values of the clocks at the last reading, which are stored in the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClockReading {
    date_unix_ms: u64,
    boot_clock_ms: u64,
    boot_id: String,
}

/// Returns the date by which ages are judged, in milliseconds since 1970, and stores it in the data
/// directory for the next call.
pub fn retention_date(data_dir: &Path, clock: &dyn Clock) -> io::Result<u64> {
    let file = data_dir.join("retention_date.json");
    let last = match fs::read(&file) {
        // A file that was only partly written counts as missing.
        Ok(bytes) => serde_json::from_slice(&bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned();
    let now = ClockReading {
        date_unix_ms: clock.unix_ms(),
        boot_clock_ms: clock.steady_ms(),
        boot_id,
    };
    let reading = advance(last.as_ref(), now);
    let temporary = file.with_extension("new");
    let mut file_handle = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file_handle.write_all(&serde_json::to_vec(&reading)?)?;
    fs::rename(&temporary, &file)?;
    Ok(reading.date_unix_ms)
}

/// Returns the clock reading to store: `now`, but with its date limited to the latest date that is
/// possible, given the time that can have passed since `last`.
fn advance(last: Option<&ClockReading>, now: ClockReading) -> ClockReading {
    let Some(last) = last else { return now };
    let passed_ms = if last.boot_id == now.boot_id {
        now.boot_clock_ms.saturating_sub(last.boot_clock_ms)
    } else {
        MAX_GAP_MS
    };
    let latest = last.date_unix_ms.saturating_add(passed_ms);
    ClockReading {
        date_unix_ms: now.date_unix_ms.min(latest),
        ..now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3_600_000;

    /// L12: the date advances only by the time that passed, even if the machine's date is changed.
    #[test]
    fn l12_a_change_of_the_machines_date_does_not_move_the_retention_date() {
        let reading = |date: u64, clock: u64, boot: &str| ClockReading {
            date_unix_ms: date,
            boot_clock_ms: clock,
            boot_id: boot.to_owned(),
        };
        let last = reading(1_000 * DAY, 500, "a");
        for (now, expected, why) in [
            (
                reading(1_000 * DAY + 7, 507, "a"),
                1_000 * DAY + 7,
                "time passes",
            ),
            (
                reading(1_400 * DAY, 507, "a"),
                1_000 * DAY + 7,
                "the date is set a year ahead",
            ),
            (
                reading(600 * DAY, 507, "a"),
                600 * DAY,
                "the date is set back",
            ),
            (
                reading(1_000 * DAY + 9, 100, "b"),
                1_000 * DAY + 9,
                "a quick reboot",
            ),
            (
                reading(1_400 * DAY, 100, "b"),
                1_001 * DAY,
                "a reboot with a wrong date",
            ),
        ] {
            assert_eq!(
                advance(Some(&last), now.clone()).date_unix_ms,
                expected,
                "{why}"
            );
        }
        assert_eq!(advance(None, last.clone()), last, "nothing is known yet");
    }

    #[test]
    fn l12_the_date_is_remembered_across_restarts() {
        struct ManualClock(u64, u64);
        impl Clock for ManualClock {
            fn steady_ms(&self) -> u64 {
                self.0
            }
            fn unix_ms(&self) -> u64 {
                self.1
            }
        }
        let dir = std::env::temp_dir().join(format!("regatta-retention-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(
            retention_date(&dir, &ManualClock(10, 100 * DAY)).unwrap(),
            100 * DAY
        );
        assert_eq!(
            retention_date(&dir, &ManualClock(20, 900 * DAY)).unwrap(),
            100 * DAY + 10
        );
        fs::write(dir.join("retention_date.json"), "{").unwrap();
        assert_eq!(
            retention_date(&dir, &ManualClock(30, 100 * DAY)).unwrap(),
            100 * DAY
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
