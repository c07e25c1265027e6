//! The journal of one attempt: every line of the program's input and output, in the order in which
//! the shim (supervisor process) saw them.
//!
//! The journal is stored in the run directory in segments such as `journal-0000000001.jsonl`, named
//! by the number of their first record. A record is one line of JSON whose last field is a checksum
//! of the bytes before it. A power cut may leave a torn line, a hole of zeros or a block of another
//! file at the end. A reader therefore accepts only whole lines with a matching checksum and the
//! next number, and stops for good at the first line that fails these checks (D8).
//!
//! Readers see a record at once, and the record remains when the shim ends. The record is synced to
//! the disk at most a second later, when a segment is full, and before the exit is recorded. A
//! power cut ends the program too and may lose the last second; nothing else loses records (P2).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::driver::{JournalRecord, JournalStream};
use crate::run_dir::{sync_parent, write_temporary};

/// The size of the pieces in which a line is written. A long line is written in pieces so that
/// memory holds it only once.
const WRITE_CHUNK_BYTES: usize = 16 * 1024;

/// The last field of a record, which holds the checksum in eight hexadecimal digits.
const CHECKSUM_FIELD: &[u8] = b",\"sum\":\"";
const CHECKSUM_FIELD_BYTES: usize = CHECKSUM_FIELD.len() + 8 + 2;

/// The maximum length of a record in the file. This length has room for the longest line that a
/// supervisor process keeps, with every byte escaped.
pub(crate) const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// A mark: a remark that the supervisor process itself writes into the journal, as the line of a
/// [`JournalStream::Mark`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mark")]
pub(crate) enum JournalMark {
    /// The previous line of the stream `stream` was too long, and `bytes` bytes of that line are
    /// missing.
    Cut { stream: JournalStream, bytes: u64 },
    /// The journal has reached its limit of `bytes`. Further lines of the program are only counted
    /// and not written.
    Full { bytes: u64 },
    /// The amount of the program's output that was not written after the journal had reached its
    /// limit.
    Dropped { lines: u64, bytes: u64 },
    /// A tool call exceeded the limit for its output. The journal lacks `bytes` bytes of that
    /// output, which came in `updates` messages.
    LeftOut {
        call: String,
        updates: u64,
        bytes: u64,
    },
    /// The number of input lines that were accepted for the program but not sent before its input
    /// was closed.
    #[serde(rename = "unsaid")]
    UnsentInput { lines: u64 },
    /// The proxy refused the program a connection to the host and port `to`. `times` is the number
    /// of refusals, including this one.
    Refused { to: String, why: String, times: u64 },
    /// The program's limited network access does not work, for the reason `why`.
    #[serde(rename = "shut")]
    EgressFailed { why: String },
}

impl JournalMark {
    pub(crate) fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a mark is plain data")
    }

    /// Returns a sentence that explains the mark (a remark of the supervisor process) in `line` to
    /// a person, or `None` if the line holds no known mark.
    pub(crate) fn explain(line: &str) -> Option<String> {
        Some(match serde_json::from_str(line).ok()? {
            JournalMark::Cut { bytes, .. } => format!("[{bytes} more bytes of this line were cut]"),
            JournalMark::Full { bytes } => {
                format!(
                    "[the limit of {bytes} bytes per attempt is reached: the following lines are \
                    dropped]"
                )
            }
            JournalMark::Dropped { lines, bytes } => {
                format!("[{lines} lines, {bytes} bytes, were dropped]")
            }
            JournalMark::LeftOut {
                call,
                updates: 1,
                bytes,
            } => {
                format!("[{bytes} bytes of the output of {call} were left out]")
            }
            JournalMark::LeftOut {
                call,
                updates,
                bytes,
            } => {
                format!(
                    "[{bytes} bytes of the output of {call}, in {updates} updates, were left out]"
                )
            }
            JournalMark::UnsentInput { lines } => {
                format!("[the program closed its input before {lines} lines were sent]")
            }
            JournalMark::Refused { to, why, times: 1 } => {
                format!("[the program's connection to {to} was refused: {why}]")
            }
            JournalMark::Refused { to, why, times } => {
                format!("[the program's connection to {to} was refused {times} times: {why}]")
            }
            JournalMark::EgressFailed { why } => {
                format!("[the program's network access does not work: {why}]")
            }
        })
    }
}

fn segment_name(first: u64) -> String {
    format!("journal-{first:010}.jsonl")
}

/// Returns the files of a journal in order, each with the number of its first record. If a segment
/// exists both plain and compressed, returns the plain file.
fn list_segments(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let mut segments: Vec<(u64, PathBuf)> = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let first = name
            .to_str()
            .and_then(|name| name.strip_prefix("journal-"))
            .and_then(|name| {
                let number = name
                    .strip_suffix(".jsonl")
                    .or_else(|| name.strip_suffix(".jsonl.gz"))?;
                number.parse().ok()
            });
        segments.extend(first.map(|first| (first, dir.join(&name))));
    }
    // A crash may leave both the plain and the compressed file of a segment. Keep the plain file,
    // which sorts first, because the compressed file may be incomplete.
    segments.sort();
    segments.dedup_by_key(|(first, _)| *first);
    Ok(segments)
}

/// Returns when something was last written to a journal, in milliseconds since 1970, or `None` if
/// there is no journal.
pub(crate) fn last_write_unix_ms(dir: &Path) -> Option<u64> {
    let (_, last) = list_segments(dir).ok()?.pop()?;
    let since = fs::metadata(last)
        .ok()?
        .modified()
        .ok()?
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Returns the number of the last record of a journal, or 0 if there is none.
pub(crate) fn last_record_number(dir: &Path) -> io::Result<u64> {
    let Some((first, _)) = list_segments(dir)?.pop() else {
        return Ok(0);
    };
    let mut reader = JournalReader {
        next_record: first,
        ..JournalReader::new(dir)
    };
    while reader.next_record()?.is_some() {}
    Ok(reader.next_record - 1)
}

/// Returns whether a line is short enough for a journal after it is encoded as JSON.
pub(crate) fn fits(line: &str) -> bool {
    const ENVELOPE_BYTES: usize = 256;
    let encoded_bytes = |byte: u8| {
        if byte < 0x20 {
            6
        } else {
            1 + usize::from(matches!(byte, b'"' | b'\\'))
        }
    };
    line.len() < MAX_LINE_BYTES
        && line.bytes().map(encoded_bytes).sum::<usize>() + ENVELOPE_BYTES < MAX_LINE_BYTES
}

/// The result of opening an existing journal for appending.
pub(crate) struct ResumedJournal {
    pub(crate) writer: JournalWriter,
    /// The number of bytes of all records in the journal.
    pub(crate) size_bytes: u64,
    /// True if incomplete or unreadable data at the journal's end was removed.
    pub(crate) was_repaired: bool,
}

/// Appends records to a journal. Each journal has only one writer: the attempt's supervisor
/// process, or for a copied journal the process that stores the copy.
pub(crate) struct JournalWriter {
    dir: PathBuf,
    file: Option<File>,
    /// The number of the first record in the open file.
    first_record: u64,
    /// Encoded journal records that are not written to the file yet.
    buffer: Vec<u8>,
    /// The number of bytes in the open file that were written successfully.
    file_bytes: u64,
    /// The file size in bytes at which the next file (segment) is started.
    max_segment_bytes: u64,
    next_record: u64,
    has_unsynced_records: bool,
    /// True while the directory entry of the new file is not yet synced to the disk.
    has_unsynced_name: bool,
    /// Decides whether to retry after a failed write, usually because the disk is full, and waits
    /// before it returns true.
    should_retry: Box<dyn FnMut(&io::Error) -> bool + Send>,
}

impl JournalWriter {
    pub(crate) fn new(
        dir: PathBuf,
        max_segment_bytes: u64,
        should_retry: impl FnMut(&io::Error) -> bool + Send + 'static,
    ) -> JournalWriter {
        JournalWriter {
            dir,
            file: None,
            first_record: 0,
            buffer: Vec::new(),
            file_bytes: 0,
            max_segment_bytes,
            next_record: 1,
            has_unsynced_records: false,
            has_unsynced_name: false,
            should_retry: Box::new(should_retry),
        }
    }

    /// Opens a journal to continue it, or begins a new journal. First removes everything after the
    /// last valid record, because readers stop at the first invalid record.
    pub(crate) fn resume(dir: PathBuf, max_segment_bytes: u64) -> io::Result<ResumedJournal> {
        let mut writer = JournalWriter::new(dir, max_segment_bytes, |_| false);
        let (mut size_bytes, mut was_repaired) = (0, false);
        let mut segments = list_segments(&writer.dir)?.into_iter();
        for (first, path) in segments.by_ref() {
            if first != writer.next_record {
                was_repaired = true;
                fs::remove_file(path)?;
                break;
            }
            let (mut segment, mut valid_bytes) = (OpenSegment::open(first, &path)?, 0);
            while let NextLine::Whole(range) = segment.next_line()? {
                let length = range.len() as u64 + 1;
                if decode_record(&segment.buffer[range], writer.next_record).is_none() {
                    break;
                }
                (writer.next_record, valid_bytes) = (writer.next_record + 1, valid_bytes + length);
            }
            size_bytes += valid_bytes;
            writer.file = None;
            if path.extension().is_some_and(|name| name == "gz") {
                continue; // compressed segments are written as a whole
            }
            let file = OpenOptions::new().append(true).open(&path)?;
            let is_torn = file.metadata()?.len() > valid_bytes;
            if is_torn {
                file.set_len(valid_bytes)?;
            }
            (writer.file, writer.first_record, writer.file_bytes) =
                (Some(file), first, valid_bytes);
            (writer.has_unsynced_records, writer.has_unsynced_name) = (true, true);
            if is_torn {
                was_repaired = true;
                break;
            }
        }
        // Remove the newest files first, so that after a crash the remaining files are still a
        // valid journal.
        for (_, path) in segments.rev() {
            fs::remove_file(path)?;
        }
        Ok(ResumedJournal {
            writer,
            size_bytes,
            was_repaired,
        })
    }

    /// Returns whether nobody else has changed the journal's last file since this writer wrote to
    /// it.
    pub(crate) fn is_current(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let on_disk = fs::metadata(self.dir.join(segment_name(self.first_record)));
        let (Ok(own), Ok(on_disk)) = (file.metadata(), on_disk) else {
            return false;
        };
        (own.dev(), own.ino(), self.file_bytes) == (on_disk.dev(), on_disk.ino(), on_disk.len())
            && self.buffer.is_empty()
    }

    /// Returns the number of the last record that was appended, or 0 if there is none.
    pub(crate) fn last_record(&self) -> u64 {
        self.next_record - 1
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.has_unsynced_records
    }

    /// Appends a record and returns its length in bytes. The record may stay in memory until
    /// [`JournalWriter::flush`].
    pub(crate) fn append(
        &mut self,
        written_unix_ms: u64,
        stream: JournalStream,
        line: &str,
    ) -> io::Result<u64> {
        if self.file.is_none()
            || self.file_bytes + self.buffer.len() as u64 >= self.max_segment_bytes
        {
            self.rotate()?;
        }
        let before = self.file_bytes + self.buffer.len() as u64;
        let mut hasher = Hasher::new();
        let stream = serde_json::to_string(&stream)?;
        self.push_bytes(
            format!(
                "{{\"n\":{},\"at\":{written_unix_ms},\"stream\":{stream},\"line\":\"",
                self.next_record
            )
            .as_bytes(),
            &mut hasher,
        )?;
        let mut rest = line.as_bytes();
        while let Some(position) = rest
            .iter()
            .position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'))
        {
            self.push_bytes(&rest[..position], &mut hasher)?;
            match rest[position] {
                b'"' => self.push_bytes(b"\\\"", &mut hasher)?,
                b'\\' => self.push_bytes(b"\\\\", &mut hasher)?,
                b'\t' => self.push_bytes(b"\\t", &mut hasher)?,
                b'\r' => self.push_bytes(b"\\r", &mut hasher)?,
                b'\n' => self.push_bytes(b"\\n", &mut hasher)?,
                other => self.push_bytes(format!("\\u{other:04x}").as_bytes(), &mut hasher)?,
            }
            rest = &rest[position + 1..];
        }
        self.push_bytes(rest, &mut hasher)?;
        self.push_bytes(b"\"", &mut hasher)?;
        let checksum = format!(",\"sum\":\"{:08x}\"}}\n", hasher.finalize());
        self.push_bytes(checksum.as_bytes(), &mut Hasher::new())?;
        self.next_record += 1;
        Ok(self.file_bytes + self.buffer.len() as u64 - before)
    }

    fn push_bytes(&mut self, mut bytes: &[u8], sum: &mut Hasher) -> io::Result<()> {
        sum.update(bytes);
        while !bytes.is_empty() {
            if self.buffer.len() >= WRITE_CHUNK_BYTES {
                self.flush()?;
            }
            self.buffer
                .reserve_exact(WRITE_CHUNK_BYTES.saturating_sub(self.buffer.len()));
            let room = bytes.len().min(WRITE_CHUNK_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
        }
        Ok(())
    }

    /// Writes all buffered records to the file, where readers can see them.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.buffer.is_empty() {
            return Ok(());
        }
        while let Err(error) = file.write_all(&self.buffer) {
            // Before a retry, remove the bytes of a partial write, because otherwise those bytes
            // would be in the file twice.
            if !(self.should_retry)(&error) || file.set_len(self.file_bytes).is_err() {
                return Err(error);
            }
        }
        self.file_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.has_unsynced_records = true;
        Ok(())
    }

    /// Writes all buffered records to the file and syncs it to the disk, so that they survive a
    /// power cut.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(file) = &self.file
            && self.has_unsynced_records
        {
            file.sync_data()?;
            // Sync the directory only now and not when the file is created, because the program's
            // first output waits for the creation of the file.
            if std::mem::take(&mut self.has_unsynced_name) {
                File::open(&self.dir)?.sync_all()?;
            }
            self.has_unsynced_records = false;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let path = self.dir.join(segment_name(self.next_record));
        let file = loop {
            let opened = OpenOptions::new()
                .create_new(true)
                .append(true)
                .mode(0o600)
                .open(&path);
            match opened {
                Ok(file) => break file,
                Err(error)
                    if error.kind() != io::ErrorKind::AlreadyExists
                        && (self.should_retry)(&error) => {}
                Err(error) => return Err(error),
            }
        };
        (
            self.file,
            self.first_record,
            self.file_bytes,
            self.has_unsynced_name,
        ) = (Some(file), self.next_record, 0, true);
        Ok(())
    }
}

/// Reads the records of a journal in order, starting at any record. Can follow a journal that
/// grows.
pub(crate) struct JournalReader {
    dir: PathBuf,
    next_record: u64,
    /// The number of the first record to return. Earlier records are skipped.
    first_wanted: u64,
    segment: Option<OpenSegment>,
    is_torn: bool,
}

struct OpenSegment {
    /// The number of the first record in this file.
    first_record: u64,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The number of bytes of `buffer` that were already returned as lines.
    consumed: usize,
    /// The number of bytes of `buffer` that were already searched for a newline.
    searched: usize,
}

impl JournalReader {
    /// Creates a reader that starts at the first record of the journal in `dir`.
    pub(crate) fn new(dir: &Path) -> JournalReader {
        JournalReader {
            dir: dir.to_owned(),
            next_record: 1,
            first_wanted: 1,
            segment: None,
            is_torn: false,
        }
    }

    /// Creates a reader of the journal in `dir` that starts at record number `from`.
    pub(crate) fn from_record(dir: &Path, from: u64) -> io::Result<JournalReader> {
        let first = list_segments(dir)?
            .iter()
            .map(|(first_record, _)| *first_record)
            .filter(|first_record| *first_record <= from.max(1))
            .max()
            .unwrap_or(1);
        Ok(JournalReader {
            next_record: first,
            first_wanted: from,
            ..JournalReader::new(dir)
        })
    }

    /// Creates a reader that starts about `bytes` bytes before the end of the journal in `dir`. The
    /// reader skips the beginning of a file only if the file is not compressed.
    pub(crate) fn near_end(dir: &Path, bytes: u64) -> io::Result<JournalReader> {
        let mut segments = list_segments(dir)?;
        let mut left = bytes;
        while let Some((first, path)) = segments.pop() {
            let length = fs::metadata(&path)?.len();
            if length < left && !segments.is_empty() {
                left -= length;
                continue;
            }
            let is_compressed = path.extension().is_some_and(|name| name == "gz");
            if is_compressed || length <= left {
                return JournalReader::from_record(dir, first);
            }
            let mut file = File::open(&path)?;
            file.seek(io::SeekFrom::Start(length - left))?;
            let mut segment = OpenSegment {
                first_record: first,
                source: Box::new(file),
                buffer: Vec::new(),
                consumed: 0,
                searched: 0,
            };
            // The first line is a part of a record. The number of the next record is in its line.
            segment.next_line()?;
            let NextLine::Whole(range) = segment.next_line()? else {
                return JournalReader::from_record(dir, first);
            };
            let Some(number) = record_number(&segment.buffer[range.clone()]) else {
                return JournalReader::from_record(dir, first);
            };
            (segment.consumed, segment.searched) = (range.start, range.start);
            return Ok(JournalReader {
                next_record: number,
                first_wanted: number,
                segment: Some(segment),
                ..JournalReader::new(dir)
            });
        }
        Ok(JournalReader::new(dir))
    }

    /// Returns the number of the record that [`JournalReader::next_record`] reads next.
    pub(crate) fn position(&self) -> u64 {
        self.next_record.max(self.first_wanted)
    }

    /// Returns the next record, or `None` if the journal has no further record yet.
    pub(crate) fn next_record(&mut self) -> io::Result<Option<JournalRecord>> {
        while !self.is_torn {
            let Some(segment) = &mut self.segment else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            match segment.next_line()? {
                NextLine::Whole(range) => {
                    match decode_record(&segment.buffer[range], self.next_record) {
                        Some(record) => {
                            self.next_record += 1;
                            if record.position >= self.first_wanted {
                                return Ok(Some(record));
                            }
                        }
                        None => self.is_torn = true,
                    }
                }
                NextLine::TooLong => self.is_torn = true,
                NextLine::Incomplete => return Ok(None),
                NextLine::End => {
                    if !self.open_next()? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Opens the file (segment) that begins with the next record, if it exists. If the current file
    /// has grown meanwhile, the next records are in the current file and no file is named after the
    /// next record, so no record is skipped.
    fn open_next(&mut self) -> io::Result<bool> {
        // If no record was read from the open file yet, the open file is itself the file that
        // begins with the next record. There is no other file to open.
        if self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.first_record == self.next_record)
        {
            return Ok(false);
        }
        let plain = self.dir.join(segment_name(self.next_record));
        for path in [&plain, &plain.with_extension("jsonl.gz")] {
            match OpenSegment::open(self.next_record, path) {
                Ok(segment) => {
                    self.segment = Some(segment);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

enum NextLine {
    Whole(std::ops::Range<usize>),
    /// The last line of the file has no newline yet, so it is not completely written.
    Incomplete,
    /// The file has no data after the last complete line.
    End,
    TooLong,
}

impl OpenSegment {
    fn open(first: u64, path: &Path) -> io::Result<OpenSegment> {
        let file = File::open(path)?;
        let is_compressed = path.extension().is_some_and(|name| name == "gz");
        let source: Box<dyn Read + Send> = if is_compressed {
            Box::new(GzDecoder::new(io::BufReader::new(file)))
        } else {
            Box::new(file)
        };
        Ok(OpenSegment {
            first_record: first,
            source,
            buffer: Vec::new(),
            consumed: 0,
            searched: 0,
        })
    }

    fn next_line(&mut self) -> io::Result<NextLine> {
        loop {
            if let Some(newline) = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let (start, end) = (self.consumed, self.searched + newline);
                (self.consumed, self.searched) = (end + 1, end + 1);
                return Ok(NextLine::Whole(start..end));
            }
            self.buffer.drain(..self.consumed);
            (self.consumed, self.searched) = (0, self.buffer.len());
            if self.buffer.len() > MAX_LINE_BYTES {
                return Ok(NextLine::TooLong);
            }
            if self.buffer.is_empty() && self.buffer.capacity() > 4 * WRITE_CHUNK_BYTES {
                self.buffer = Vec::new(); // the memory of one long line is returned
            }
            let read = (&mut self.source)
                .take(WRITE_CHUNK_BYTES as u64)
                .read_to_end(&mut self.buffer)?;
            if read == 0 {
                return Ok(if self.buffer.is_empty() {
                    NextLine::End
                } else {
                    NextLine::Incomplete
                });
            }
        }
    }
}

/// Returns the number at the beginning of a record's line, without a check of the line.
fn record_number(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"n\":")?;
    let end = digits.iter().position(|byte| *byte == b',')?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Decodes one line of a journal. Returns `None` if the checksum of the line is wrong or the number
/// of the record is not `number`.
fn decode_record(line: &[u8], number: u64) -> Option<JournalRecord> {
    let (body, sum) = line.split_at_checked(line.len().checked_sub(CHECKSUM_FIELD_BYTES)?)?;
    let sum = sum.strip_prefix(CHECKSUM_FIELD)?.strip_suffix(b"\"}")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if crc32fast::hash(body) != sum {
        return None;
    }
    let record: JournalRecord = serde_json::from_slice(line).ok()?;
    (record.position == number).then_some(record)
}

/// Returns the end of the program's output, at most `bytes` bytes.
pub(crate) fn output_tail(dir: &Path, bytes: usize) -> io::Result<String> {
    // Start one file before the last journal file, because the last file may have just begun and be
    // nearly empty.
    let first = list_segments(dir)?
        .iter()
        .rev()
        .nth(1)
        .map_or(1, |(first_record, _)| *first_record);
    let mut reader = JournalReader {
        next_record: first,
        ..JournalReader::new(dir)
    };
    let mut text = String::new();
    while let Some(record) = reader.next_record()? {
        if matches!(record.stream, JournalStream::Out | JournalStream::Err) {
            text += &record.line;
            text.push('\n');
            // Cut the text only when it is twice too long, so that many short lines do not cause a
            // copy each.
            if text.len() > 2 * bytes.max(WRITE_CHUNK_BYTES) {
                cut_front(&mut text, bytes);
            }
        }
    }
    cut_front(&mut text, bytes);
    Ok(text)
}

fn cut_front(text: &mut String, bytes: usize) {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.drain(..start);
}

/// Compresses the files of a journal to which no process writes any more. Returns whether there was
/// anything to compress. After a crash in the middle, the journal is still readable and can be
/// compressed again.
pub(crate) fn compress(dir: &Path) -> io::Result<bool> {
    let mut has_compressed = false;
    for (_, path) in list_segments(dir)? {
        if path.extension().is_some_and(|name| name == "gz") {
            continue;
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::copy(&mut File::open(&path)?, &mut encoder)?;
        let compressed = path.with_extension("jsonl.gz");
        let temporary = write_temporary(&compressed, &encoder.finish()?)?;
        // Keep the modification time, because it tells when the last record was written.
        File::options()
            .append(true)
            .open(&temporary)?
            .set_modified(fs::metadata(&path)?.modified()?)?;
        fs::rename(&temporary, &compressed)?;
        sync_parent(&compressed)?;
        fs::remove_file(&path)?;
        has_compressed = true;
    }
    Ok(has_compressed)
}

/// Removes the files of a journal. Returns whether there were any files.
pub(crate) fn remove(dir: &Path) -> io::Result<bool> {
    let segments = list_segments(dir)?;
    // Remove the newest files first, so that after a crash the remaining files are still a valid
    // journal.
    for (first, _) in segments.iter().rev() {
        for name in [segment_name(*first), segment_name(*first) + ".gz"] {
            match fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(!segments.is_empty())
}

#[cfg(test)]
mod tests;
