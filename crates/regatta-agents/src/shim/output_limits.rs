//! The limits on a program's output: the length of lines, the rate, and the total amount.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Limits how much of one attempt's input and output is written to the disk and held in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShimLimits {
    /// The length in bytes at which a line is cut. A remark in the journal tells how many bytes are
    /// missing.
    pub line_bytes: usize,
    /// The average number of bytes per second by which the journal may grow. Above this rate, the
    /// supervisor process reads the program's output more slowly, so that the program has to wait.
    pub bytes_per_second: u64,
    /// The number of bytes that may be added to the journal in a burst, before the limit
    /// `bytes_per_second` applies.
    pub burst_bytes: u64,
    /// The size in bytes of the whole journal. Lines beyond this size are counted but not stored.
    pub journal_bytes: u64,
    /// The number of bytes that the journal stores of the output of one tool call. A remark in the
    /// journal tells how many bytes are missing.
    pub call_bytes: usize,
    /// The approximate size in bytes of one file (segment) of the journal.
    pub segment_bytes: u64,
    /// The number of bytes of input that may be queued until the program reads them.
    pub input_bytes: usize,
}

impl Default for ShimLimits {
    fn default() -> ShimLimits {
        ShimLimits {
            line_bytes: 4 << 20,
            bytes_per_second: 16 << 20,
            burst_bytes: 64 << 20,
            journal_bytes: 512 << 20,
            call_bytes: 1 << 20,
            segment_bytes: 16 << 20,
            input_bytes: 8 << 20,
        }
    }
}

/// The number of bytes that must be allowed again before the pipes are read again. Smaller portions
/// would only cause more wake-ups.
const MIN_ROOM_BYTES: u64 = 256 << 10;

/// The number of bytes by which the buffer for a long line grows at a time.
const LINE_GROWTH_BYTES: usize = 256 << 10;

/// Limits the rate of reading: a budget of bytes that is refilled at a steady rate up to a maximum.
pub(super) struct TokenBucket {
    level: i128,
    rate: u64,
    burst: u64,
    updated_at: Instant,
}

impl TokenBucket {
    pub(super) fn new(limits: &ShimLimits, now: Instant) -> TokenBucket {
        TokenBucket {
            level: limits.burst_bytes.into(),
            rate: limits.bytes_per_second.max(1),
            burst: limits.burst_bytes.max(MIN_ROOM_BYTES),
            updated_at: now,
        }
    }

    pub(super) fn consume(&mut self, bytes: u64) {
        self.level -= i128::from(bytes);
    }

    /// Returns the time to wait until more of the program's output may be read, or `None` if more
    /// may be read now.
    pub(super) fn time_to_wait(&mut self, now: Instant) -> Option<Duration> {
        let filled = now.saturating_duration_since(self.updated_at).as_nanos()
            * u128::from(self.rate)
            / 1_000_000_000;
        // Move the start of the measured time only after at least one whole byte was added, so that
        // fractions of a byte are not lost.
        if filled > 0 {
            self.updated_at = now;
            self.level = (self.level + filled.cast_signed()).min(self.burst.into());
        }
        let missing = i128::from(MIN_ROOM_BYTES) - self.level;
        // Once the budget is used up, wait until `MIN_ROOM_BYTES` are available again, instead of
        // only a few bytes.
        (self.level <= 0).then(|| {
            let nanos = missing.unsigned_abs() * 1_000_000_000 / u128::from(self.rate);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }
}

/// Assembles lines from pieces of output and cuts long lines.
#[derive(Default)]
pub(crate) struct LineSplitter {
    partial: Vec<u8>,
    cut_bytes: u64,
}

impl LineSplitter {
    /// Processes a piece of output. Calls `line` for each complete line, with the number of bytes
    /// that were cut from that line.
    pub(crate) fn push_piece<E>(
        &mut self,
        piece: &[u8],
        max_bytes: usize,
        mut line: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(whole)
                    if self.partial.is_empty()
                        && self.cut_bytes == 0
                        && whole.len() <= max_bytes =>
                {
                    line(whole, 0)?
                }
                Some(end) => {
                    self.push(end, max_bytes);
                    self.flush(&mut line)?;
                }
                None => self.push(part, max_bytes),
            }
        }
        Ok(())
    }

    fn push(&mut self, part: &[u8], max_bytes: usize) {
        let room = max_bytes.saturating_sub(self.partial.len()).min(part.len());
        // Grow the buffer of a long line in fixed steps instead of doubling it. Each agent has its
        // own supervisor process, so the memory of a supervisor process must stay small.
        if self.partial.len() + room > self.partial.capacity().max(LINE_GROWTH_BYTES) {
            self.partial.reserve_exact(room.max(LINE_GROWTH_BYTES));
        }
        self.partial.extend_from_slice(&part[..room]);
        self.cut_bytes += (part.len() - room) as u64;
    }

    fn flush<E>(&mut self, mut line: impl FnMut(&[u8], u64) -> Result<(), E>) -> Result<(), E> {
        // Free the buffer after each line, because the next line is usually short again.
        let (part, cut) = (
            std::mem::take(&mut self.partial),
            std::mem::take(&mut self.cut_bytes),
        );
        line(&part, cut)
    }

    /// Calls `line` for the last line if it has no newline.
    pub(super) fn finish<E>(
        &mut self,
        line: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.partial.is_empty() && self.cut_bytes == 0 {
            Ok(())
        } else {
            self.flush(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]], max_bytes: usize) -> Vec<(String, u64)> {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        let mut note = |line: &[u8], cut| -> Result<(), ()> {
            found.push((String::from_utf8(line.to_vec()).unwrap(), cut));
            Ok(())
        };
        for piece in pieces {
            lines.push_piece(piece, max_bytes, &mut note).unwrap();
        }
        lines.finish(&mut note).unwrap();
        found
    }

    #[test]
    fn lines_are_the_same_for_any_division_into_pieces() {
        let text = b"one\n\nthree and more\nfour";
        let whole = split(&[text], 5);
        let expected = [("one", 0), ("", 0), ("three", 9), ("four", 0)];
        assert_eq!(whole, expected.map(|(line, cut)| (line.to_owned(), cut)));
        for size in 1..text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(split(&pieces, 5), whole, "in pieces of {size}");
        }
        assert_eq!(
            split(&[b"a\n"], 5).len(),
            1,
            "there is no empty line after the last newline"
        );
    }

    #[test]
    fn p8_a_bucket_passes_its_burst_and_then_its_rate() {
        let limits = ShimLimits {
            bytes_per_second: 1 << 20,
            burst_bytes: 4 << 20,
            ..ShimLimits::default()
        };
        let mut now = Instant::now();
        let (mut bucket, begun, mut passed) = (TokenBucket::new(&limits, now), now, 0_u64);
        while now < begun + Duration::from_secs(100) {
            match bucket.time_to_wait(now) {
                Some(wait) => now += wait,
                None => {
                    bucket.consume(1 << 16);
                    passed += 1 << 16;
                    now += Duration::from_micros(10);
                }
            }
        }
        let fair = (4 << 20) + 100 * (1 << 20);
        assert!(
            passed.abs_diff(fair) < fair / 50,
            "{passed} bytes passed, {fair} were allowed"
        );
    }
}
