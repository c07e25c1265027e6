//! Reads SQLite's write-ahead log directly as a file, to find out whether it belongs to the store
//! and is complete.
//!
//! SQLite treats a log that is missing, damaged or from another store like an empty log, so stored
//! changes could get lost unnoticed. The log's format is documented and does not change: a header
//! of 32 bytes, then frames, each with 24 bytes and one page. Every frame has the two salts
//! (identifying numbers) of the header, and a checksum over everything before it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::store_files;

/// The state of the write-ahead log beside a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogState {
    /// There is no log file, or the log file is empty.
    Absent,
    /// The log file has no valid header.
    InvalidHeader,
    /// The log has a valid header. `salt` is the header's first salt, which rises by one each time
    /// the log starts again. `is_broken` means that complete transactions follow a damaged frame,
    /// so stored changes are lost.
    Present { salt: u32, is_broken: bool },
}

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Examines the write-ahead log of the store at `path`.
pub(crate) fn inspect_log(path: &Path) -> io::Result<LogState> {
    let file = match File::open(store_files::with_suffix(path, "-wal")) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(LogState::Absent),
        Err(cause) => return Err(cause),
    };
    let mut log = BufReader::with_capacity(64 * 1024, file);
    let header = match read_header(&mut log)? {
        Header::Absent => return Ok(LogState::Absent),
        Header::Invalid => return Ok(LogState::InvalidHeader),
        Header::Valid(header) => header,
    };
    let page = read_u32(&header, 8) as usize;
    let mut sum = Checksum::new(&header);
    sum.add(&header[..24]);
    let salts = &header[16..24];
    skip_whole_frames(&mut log, page, salts, &mut sum)?;
    // Count the transactions that end after a damaged frame (a page with its header). One such end
    // may be the last frame of a transaction that a power cut left unfinished. But if there are
    // two, at least one of these transactions had been made durable.
    let is_broken = count_commits(&mut log, page, salts)? >= 2;
    Ok(LogState::Present {
        salt: read_u32(&header, 16),
        is_broken,
    })
}

/// Returns the first salt of the write-ahead log of the store at `path`. Returns `None` if there is
/// no log with a valid header.
pub(crate) fn read_first_salt(path: &Path) -> io::Result<Option<u32>> {
    match File::open(store_files::with_suffix(path, "-wal")) {
        Ok(mut file) => match read_header(&mut file)? {
            Header::Valid(header) => Ok(Some(read_u32(&header, 16))),
            Header::Absent | Header::Invalid => Ok(None),
        },
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

enum Header {
    Absent,
    Invalid,
    Valid([u8; HEADER_BYTES]),
}

/// Reads the header of a write-ahead log and checks it.
fn read_header(log: &mut impl Read) -> io::Result<Header> {
    let mut header = [0; HEADER_BYTES];
    match read_until_full(log, &mut header)? {
        0 => return Ok(Header::Absent),
        HEADER_BYTES => {}
        _ => return Ok(Header::Invalid),
    }
    let mut sum = Checksum::new(&header);
    sum.add(&header[..24]);
    let is_header = read_u32(&header, 0) & !1 == 0x377f_0682
        && sum.sums == (read_u32(&header, 24), read_u32(&header, 28))
        && (512..=65_536).contains(&read_u32(&header, 8));
    Ok(if is_header {
        Header::Valid(header)
    } else {
        Header::Invalid
    })
}

/// Skips the valid frames of this write-ahead log (each frame is a header and one page). Stops
/// right after the first frame that is incomplete or does not belong to this log.
fn skip_whole_frames(
    log: &mut impl Read,
    page: usize,
    salts: &[u8],
    sum: &mut Checksum,
) -> io::Result<()> {
    let mut frame = vec![0; FRAME_HEADER_BYTES + page];
    while read_until_full(log, &mut frame)? == frame.len() {
        sum.add(&frame[..8]);
        sum.add(&frame[FRAME_HEADER_BYTES..]);
        if &frame[8..16] != salts || sum.sums != (read_u32(&frame, 16), read_u32(&frame, 20)) {
            return Ok(());
        }
    }
    Ok(())
}

/// Counts the transactions in this write-ahead log from the current position to the end of the
/// file. The last frame (a header and one page) of each transaction is marked, so these frames are
/// counted.
fn count_commits(log: &mut (impl Read + Seek), page: usize, salts: &[u8]) -> io::Result<usize> {
    let mut commits = 0;
    let mut head = [0; FRAME_HEADER_BYTES];
    while read_until_full(log, &mut head)? == head.len() {
        commits += usize::from(&head[8..16] == salts && read_u32(&head, 4) != 0);
        log.seek(SeekFrom::Current(page as i64))?;
    }
    Ok(commits)
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes.
fn read_until_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes([
        bytes[offset],
        bytes[offset + 1],
        bytes[offset + 2],
        bytes[offset + 3],
    ])
}

/// Computes SQLite's checksum of the log, which continues from frame to frame over pairs of 32-bit
/// numbers.
struct Checksum {
    is_big_endian: bool,
    sums: (u32, u32),
}

impl Checksum {
    fn new(header: &[u8]) -> Checksum {
        Checksum {
            is_big_endian: read_u32(header, 0) & 1 == 1,
            sums: (0, 0),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let number_at = |offset: usize| {
                if self.is_big_endian {
                    read_u32(pair, offset)
                } else {
                    read_u32(pair, offset).swap_bytes()
                }
            };
            self.sums.0 = self
                .sums
                .0
                .wrapping_add(number_at(0))
                .wrapping_add(self.sums.1);
            self.sums.1 = self
                .sums
                .1
                .wrapping_add(number_at(4))
                .wrapping_add(self.sums.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn state_of_a_log_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let log = store_files::with_suffix(&path, "-wal");
        let db = Connection::open(&path).unwrap();
        assert_eq!(inspect_log(&path).unwrap(), LogState::Absent);
        db.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (x)")
            .unwrap();
        for nth in 0..5 {
            db.execute("INSERT INTO t VALUES (?1)", [nth]).unwrap();
        }
        let LogState::Present {
            salt,
            is_broken: false,
        } = inspect_log(&path).unwrap()
        else {
            panic!("the log should be whole")
        };
        let complete = std::fs::read(&log).unwrap();
        let page = read_u32(&complete, 8) as usize;
        let frame = |nth: usize| HEADER_BYTES + nth * (FRAME_HEADER_BYTES + page);
        let frames = (complete.len() - HEADER_BYTES) / (FRAME_HEADER_BYTES + page);
        let present = |is_broken| LogState::Present { salt, is_broken };
        let spoiled = |offset: usize| {
            let mut bytes = complete.clone();
            bytes[offset] ^= 0x55;
            bytes
        };
        for (case, bytes, state) in [
            ("empty", vec![], LogState::Absent),
            ("short", complete[..20].to_vec(), LogState::InvalidHeader),
            ("a bad header", spoiled(9), LogState::InvalidHeader),
            ("a bad salt", spoiled(17), LogState::InvalidHeader),
            ("text", b"some log".repeat(99), LogState::InvalidHeader),
            (
                "only a header",
                complete[..HEADER_BYTES].to_vec(),
                present(false),
            ),
            (
                "cut inside a frame",
                complete[..complete.len() - 7].to_vec(),
                present(false),
            ),
            (
                "cut between frames",
                complete[..frame(frames - 1)].to_vec(),
                present(false),
            ),
            (
                "the last frame is bad",
                spoiled(complete.len() - 3),
                present(false),
            ),
            (
                "the last but one is bad",
                spoiled(frame(frames - 1) - 3),
                present(false),
            ),
            (
                "a frame in the middle is bad",
                spoiled(frame(frames - 3) - 3),
                present(true),
            ),
        ] {
            std::fs::write(&log, bytes).unwrap();
            assert_eq!(inspect_log(&path).unwrap(), state, "{case}");
        }
        std::fs::write(&log, &complete).unwrap();

        // When the log was copied into the store, it restarts over the old frames, and its salt
        // rises by one.
        db.execute_batch("PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES (9)")
            .unwrap();
        assert_eq!(
            inspect_log(&path).unwrap(),
            LogState::Present {
                salt: salt.wrapping_add(1),
                is_broken: false
            }
        );
    }
}
