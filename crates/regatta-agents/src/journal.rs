//! The journal of one attempt: every line of the program's input and output, in the order in which
//! the shim saw them.
//!
//! The journal lies in the run directory in segments such as `journal-0000000001.jsonl`, named by
//! the number of their first record. A record is one line of JSON whose last field is a checksum of
//! the bytes before it. A power cut may leave a torn line, a hole of zeros or a block of another
//! file at the end. A reader therefore accepts only whole lines with a matching checksum and the
//! next number, and stops for good at the first other line (D8).
//!
//! Readers see a record at once, and it outlives the shim. It is synced to the disk at most a
//! second later, when a segment is full, and before the exit is recorded. A power cut ends the
//! program too and may lose the last second; nothing else loses records (P2).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::driver::{Record, Stream};
use crate::rundir::{sync_parent, write_beside};

/// The number of bytes that are written at once. A longer line is written in pieces, so that it is
/// in memory only once.
const PIECE: usize = 16 * 1024;

/// The field at the end of a record: the checksum in eight hexadecimal digits.
const SUM: &[u8] = b",\"sum\":\"";
const SUM_LENGTH: usize = SUM.len() + 8 + 2;

/// The maximum length of an encoded line. It has room for the longest line of a shim with every
/// byte escaped.
pub(crate) const LONGEST: usize = 64 * 1024 * 1024;

/// A remark of the shim itself, as the line of a [`Stream::Mark`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mark")]
pub(crate) enum Mark {
    /// The previous line was too long, and this many bytes of it are missing.
    Cut { stream: Stream, bytes: u64 },
    /// The journal has reached its limit. From here on, lines of the program are counted and not
    /// kept.
    Full { bytes: u64 },
    /// The number of lines and bytes that were not kept.
    Dropped { lines: u64, bytes: u64 },
    /// The number of bytes of a tool call's output, and of updates with them, that exceeded the
    /// limit for one call.
    LeftOut { call: String, updates: u64, bytes: u64 },
    /// The number of lines that were accepted for the program's input but not sent before the input
    /// was closed.
    Unsaid { lines: u64 },
    /// The proxy refused the program a connection to this host and port. `times` counts the
    /// refusals.
    Refused { to: String, why: String, times: u64 },
    /// The program's egress routes do not work, for this reason.
    Shut { why: String },
}

impl Mark {
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a mark is plain data")
    }

    /// Returns the sentence for a person that explains a mark.
    pub(crate) fn explain(line: &str) -> Option<String> {
        Some(match serde_json::from_str(line).ok()? {
            Mark::Cut { bytes, .. } => format!("[{bytes} more bytes of this line were cut]"),
            Mark::Full { bytes } => {
                format!("[the limit of {bytes} bytes per attempt is reached: the following lines are dropped]")
            }
            Mark::Dropped { lines, bytes } => format!("[{lines} lines, {bytes} bytes, were dropped]"),
            Mark::LeftOut { call, updates: 1, bytes } => {
                format!("[{bytes} bytes of the output of {call} were left out]")
            }
            Mark::LeftOut { call, updates, bytes } => {
                format!("[{bytes} bytes of the output of {call}, in {updates} updates, were left out]")
            }
            Mark::Unsaid { lines } => format!("[the program closed its input before {lines} lines were sent]"),
            Mark::Refused { to, why, times: 1 } => format!("[{to} was refused: {why}]"),
            Mark::Refused { to, why, times } => format!("[{to} was refused {times} times: {why}]"),
            Mark::Shut { why } => format!("[the program's network access does not work: {why}]"),
        })
    }
}

fn segment_name(first: u64) -> String {
    format!("journal-{first:010}.jsonl")
}

/// Returns the segments in a directory with the numbers of their first records. If a segment exists
/// both plain and compressed, the plain file is returned.
fn segments(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let first = name.to_str().and_then(|it| it.strip_prefix("journal-")).and_then(|it| {
            let number = it.strip_suffix(".jsonl").or_else(|| it.strip_suffix(".jsonl.gz"))?;
            number.parse().ok()
        });
        found.extend(first.map(|it| (it, dir.join(&name))));
    }
    // The plain file of a segment sorts first. The compressed one may be incomplete.
    found.sort();
    found.dedup_by_key(|it| it.0);
    Ok(found)
}

/// Returns the time of the last write to a journal in Unix milliseconds, or `None` if there is no
/// journal.
pub(crate) fn written(dir: &Path) -> Option<u64> {
    let (_, last) = segments(dir).ok()?.pop()?;
    let since = fs::metadata(last).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Returns the number of the last record of a journal, or 0 if there is none.
pub(crate) fn last(dir: &Path) -> io::Result<u64> {
    let Some((first, _)) = segments(dir)?.pop() else { return Ok(0) };
    let mut reader = Reader { next: first, ..Reader::new(dir) };
    while reader.read()?.is_some() {}
    Ok(reader.next - 1)
}

/// Returns whether a line fits into a journal when it is encoded.
pub(crate) fn fits(line: &str) -> bool {
    const AROUND: usize = 256;
    let encoded = |it: u8| if it < 0x20 { 6 } else { 1 + usize::from(matches!(it, b'"' | b'\\')) };
    line.len() < LONGEST && line.bytes().map(encoded).sum::<usize>() + AROUND < LONGEST
}

/// A journal that was opened for appending.
pub(crate) struct Resumed {
    pub(crate) writer: Writer,
    /// The number of bytes in the journal.
    pub(crate) kept: u64,
    /// Set if a torn end was removed.
    pub(crate) mended: bool,
}

/// The writer of a journal. An attempt's journal has only one writer: its shim, or the process that
/// keeps the copy.
pub(crate) struct Writer {
    dir: PathBuf,
    file: Option<File>,
    /// The number of the file's first record.
    first: u64,
    /// Encoded bytes that are not yet in the file.
    buffer: Vec<u8>,
    /// The number of bytes that are certainly in the file.
    length: u64,
    /// The length at which a new segment is started.
    rotate_at: u64,
    next: u64,
    unsynced: bool,
    /// Set while the segment's name is not synced to the disk.
    unnamed: bool,
    /// A function that decides whether to retry when the disk refuses a write, usually because it
    /// is full. It also waits.
    again: Box<dyn FnMut(&io::Error) -> bool + Send>,
}

impl Writer {
    pub(crate) fn new(dir: PathBuf, rotate_at: u64, again: impl FnMut(&io::Error) -> bool + Send + 'static) -> Writer {
        let again = Box::new(again);
        Writer {
            dir,
            file: None,
            first: 0,
            buffer: Vec::new(),
            length: 0,
            rotate_at,
            next: 1,
            unsynced: false,
            unnamed: false,
            again,
        }
    }

    /// Opens a journal to continue it, or begins one. Everything that no reader would reach is
    /// removed first: a torn end and whatever follows it.
    pub(crate) fn resume(dir: PathBuf, rotate_at: u64) -> io::Result<Resumed> {
        let mut writer = Writer::new(dir, rotate_at, |_| false);
        let (mut kept, mut mended) = (0, false);
        let mut found = segments(&writer.dir)?.into_iter();
        for (first, path) in found.by_ref() {
            if first != writer.next {
                mended = true;
                fs::remove_file(path)?;
                break;
            }
            let (mut segment, mut whole) = (Segment::open(first, &path)?, 0);
            while let Found::Line(range) = segment.line()? {
                let length = range.len() as u64 + 1;
                if decode(&segment.buffer[range], writer.next).is_none() {
                    break;
                }
                (writer.next, whole) = (writer.next + 1, whole + length);
            }
            kept += whole;
            writer.file = None;
            if path.extension().is_some_and(|it| it == "gz") {
                continue; // compressed segments are written as a whole
            }
            let file = OpenOptions::new().append(true).open(&path)?;
            let torn = file.metadata()?.len() > whole;
            if torn {
                file.set_len(whole)?;
            }
            (writer.file, writer.first, writer.length) = (Some(file), first, whole);
            (writer.unsynced, writer.unnamed) = (true, true);
            if torn {
                mended = true;
                break;
            }
        }
        // Files are removed from the end, so that a crash leaves a valid journal.
        for (_, path) in found.rev() {
            fs::remove_file(path)?;
        }
        Ok(Resumed { writer, kept, mended })
    }

    /// Returns whether the journal still ends where this writer left it.
    pub(crate) fn is_current(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let there = fs::metadata(self.dir.join(segment_name(self.first)));
        let (Ok(ours), Ok(there)) = (file.metadata(), there) else { return false };
        (ours.dev(), ours.ino(), self.length) == (there.dev(), there.ino(), there.len()) && self.buffer.is_empty()
    }

    /// Returns the number of the last record, or 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Appends a record and returns its length. The record is in the file after [`Writer::flush`]
    /// at the latest.
    pub(crate) fn append(&mut self, at: u64, stream: Stream, line: &str) -> io::Result<u64> {
        if self.file.is_none() || self.length + self.buffer.len() as u64 >= self.rotate_at {
            self.rotate()?;
        }
        let before = self.length + self.buffer.len() as u64;
        let mut sum = Hasher::new();
        let stream = serde_json::to_string(&stream)?;
        self.put(format!("{{\"n\":{},\"at\":{at},\"stream\":{stream},\"line\":\"", self.next).as_bytes(), &mut sum)?;
        let mut rest = line.as_bytes();
        while let Some(at) = rest.iter().position(|it| *it < 0x20 || matches!(it, b'"' | b'\\')) {
            self.put(&rest[..at], &mut sum)?;
            match rest[at] {
                b'"' => self.put(b"\\\"", &mut sum)?,
                b'\\' => self.put(b"\\\\", &mut sum)?,
                b'\t' => self.put(b"\\t", &mut sum)?,
                b'\r' => self.put(b"\\r", &mut sum)?,
                b'\n' => self.put(b"\\n", &mut sum)?,
                other => self.put(format!("\\u{other:04x}").as_bytes(), &mut sum)?,
            }
            rest = &rest[at + 1..];
        }
        self.put(rest, &mut sum)?;
        self.put(b"\"", &mut sum)?;
        let sum = format!(",\"sum\":\"{:08x}\"}}\n", sum.finalize());
        self.put(sum.as_bytes(), &mut Hasher::new())?;
        self.next += 1;
        Ok(self.length + self.buffer.len() as u64 - before)
    }

    fn put(&mut self, mut bytes: &[u8], sum: &mut Hasher) -> io::Result<()> {
        sum.update(bytes);
        while !bytes.is_empty() {
            if self.buffer.len() >= PIECE {
                self.flush()?;
            }
            self.buffer.reserve_exact(PIECE.saturating_sub(self.buffer.len()));
            let room = bytes.len().min(PIECE - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
        }
        Ok(())
    }

    /// Writes all buffered bytes to the file, where readers see them.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        while let Err(error) = file.write_all(&self.buffer) {
            // A partial write is removed first, or its bytes would be in the file twice.
            if !(self.again)(&error) || file.set_len(self.length).is_err() {
                return Err(error);
            }
        }
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        self.unsynced = true;
        Ok(())
    }

    /// Writes all buffered bytes and syncs the file to the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(file) = &self.file
            && self.unsynced
        {
            file.sync_data()?;
            // The directory is synced here and not when the file is created, because the program's
            // first byte waits for the creation.
            if std::mem::take(&mut self.unnamed) {
                File::open(&self.dir)?.sync_all()?;
            }
            self.unsynced = false;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let path = self.dir.join(segment_name(self.next));
        let file = loop {
            let made = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path);
            match made {
                Ok(file) => break file,
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists && (self.again)(&error) => {}
                Err(error) => return Err(error),
            }
        };
        (self.file, self.first, self.length, self.unnamed) = (Some(file), self.next, 0, true);
        Ok(())
    }
}

/// A reader of a journal from any record on. It can follow a journal that grows.
pub(crate) struct Reader {
    dir: PathBuf,
    next: u64,
    /// The number of the first record to return. Earlier records are skipped.
    from: u64,
    segment: Option<Segment>,
    torn: bool,
}

struct Segment {
    /// The number of the segment's first record.
    first: u64,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that were consumed.
    taken: usize,
    /// The number of bytes that were searched for a newline.
    looked: usize,
}

impl Reader {
    /// Creates a reader that starts at the first record.
    pub(crate) fn new(dir: &Path) -> Reader {
        Reader { dir: dir.to_owned(), next: 1, from: 1, segment: None, torn: false }
    }

    /// Creates a reader that starts at record number `from`.
    pub(crate) fn at(dir: &Path, from: u64) -> io::Result<Reader> {
        let next = segments(dir)?.iter().map(|it| it.0).filter(|it| *it <= from.max(1)).max().unwrap_or(1);
        Ok(Reader { next, from, ..Reader::new(dir) })
    }

    /// Returns the next record, or `None` if there is none yet.
    pub(crate) fn read(&mut self) -> io::Result<Option<Record>> {
        while !self.torn {
            let Some(segment) = &mut self.segment else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            match segment.line()? {
                Found::Line(range) => match decode(&segment.buffer[range], self.next) {
                    Some(record) => {
                        self.next += 1;
                        if record.n >= self.from {
                            return Ok(Some(record));
                        }
                    }
                    None => self.torn = true,
                },
                Found::TooLong => self.torn = true,
                Found::Part => return Ok(None),
                Found::End => {
                    if !self.open_next()? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Opens the segment that begins with the next record, if there is one. If the old segment has
    /// grown since, its new lines are the next records, so no segment begins there and none is
    /// skipped.
    fn open_next(&mut self) -> io::Result<bool> {
        // The segment that begins with the next record may be this one while it is empty.
        if self.segment.as_ref().is_some_and(|it| it.first == self.next) {
            return Ok(false);
        }
        let plain = self.dir.join(segment_name(self.next));
        for path in [&plain, &plain.with_extension("jsonl.gz")] {
            match Segment::open(self.next, path) {
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

enum Found {
    Line(std::ops::Range<usize>),
    /// An incomplete line.
    Part,
    /// Nothing after the last line.
    End,
    TooLong,
}

impl Segment {
    fn open(first: u64, path: &Path) -> io::Result<Segment> {
        let file = File::open(path)?;
        let packed = path.extension().is_some_and(|it| it == "gz");
        let source: Box<dyn Read + Send> =
            if packed { Box::new(GzDecoder::new(io::BufReader::new(file))) } else { Box::new(file) };
        Ok(Segment { first, source, buffer: Vec::new(), taken: 0, looked: 0 })
    }

    fn line(&mut self) -> io::Result<Found> {
        loop {
            if let Some(at) = self.buffer[self.looked..].iter().position(|it| *it == b'\n') {
                let (start, end) = (self.taken, self.looked + at);
                (self.taken, self.looked) = (end + 1, end + 1);
                return Ok(Found::Line(start..end));
            }
            self.buffer.drain(..self.taken);
            (self.taken, self.looked) = (0, self.buffer.len());
            if self.buffer.len() > LONGEST {
                return Ok(Found::TooLong);
            }
            if self.buffer.is_empty() && self.buffer.capacity() > 4 * PIECE {
                self.buffer = Vec::new(); // the memory of one long line is returned
            }
            let read = (&mut self.source).take(PIECE as u64).read_to_end(&mut self.buffer)?;
            if read == 0 {
                return Ok(if self.buffer.is_empty() { Found::End } else { Found::Part });
            }
        }
    }
}

/// Decodes one line of a journal. Returns `None` if the line is torn or has another number than
/// `n`.
fn decode(line: &[u8], n: u64) -> Option<Record> {
    let (body, sum) = line.split_at_checked(line.len().checked_sub(SUM_LENGTH)?)?;
    let sum = sum.strip_prefix(SUM)?.strip_suffix(b"\"}")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if crc32fast::hash(body) != sum {
        return None;
    }
    let record: Record = serde_json::from_slice(line).ok()?;
    (record.n == n).then_some(record)
}

/// Returns the end of the program's output as text of at most `bytes` bytes.
pub(crate) fn tail(dir: &Path, bytes: usize) -> io::Result<String> {
    // The last segment may have just begun, so reading starts one segment earlier.
    let first = segments(dir)?.iter().rev().nth(1).map_or(1, |it| it.0);
    let mut reader = Reader { next: first, ..Reader::new(dir) };
    let mut text = String::new();
    while let Some(record) = reader.read()? {
        if matches!(record.stream, Stream::Out | Stream::Err) {
            text += &record.line;
            text.push('\n');
            // The text is cut only when it is twice too long, so that many short lines cost little.
            if text.len() > 2 * bytes.max(PIECE) {
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

/// Compresses a journal that nobody writes any more. Returns whether there was anything to do.
/// After a crash the journal is still readable and can be compressed again.
pub(crate) fn compress(dir: &Path) -> io::Result<bool> {
    let mut done = false;
    for (_, path) in segments(dir)? {
        if path.extension().is_some_and(|it| it == "gz") {
            continue;
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::copy(&mut File::open(&path)?, &mut encoder)?;
        let packed = path.with_extension("jsonl.gz");
        let temporary = write_beside(&packed, &encoder.finish()?)?;
        // The modification time is kept, because it tells when the last record was written.
        File::options().append(true).open(&temporary)?.set_modified(fs::metadata(&path)?.modified()?)?;
        fs::rename(&temporary, &packed)?;
        sync_parent(&packed)?;
        fs::remove_file(&path)?;
        done = true;
    }
    Ok(done)
}

/// Removes a journal. Returns whether there was one.
pub(crate) fn remove(dir: &Path) -> io::Result<bool> {
    let found = segments(dir)?;
    // Files are removed from the end, so that a crash leaves a valid journal.
    for first in found.iter().rev().map(|it| it.0) {
        for name in [segment_name(first), segment_name(first) + ".gz"] {
            match fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(!found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = 1024;

    fn writer(dir: &Path) -> Writer {
        Writer::new(dir.to_owned(), SMALL, |_| false)
    }

    fn all(dir: &Path) -> Vec<Record> {
        let mut reader = Reader::new(dir);
        std::iter::from_fn(|| reader.read().unwrap()).collect()
    }

    fn lines() -> Vec<String> {
        let mut lines: Vec<String> =
            (0..100).map(|it| format!("line {it} of \"many\" with \\ and \t and ä🦀")).collect();
        lines.extend(["".to_owned(), "\u{1}\u{1f}\u{7f}\r\n".to_owned(), "x\"".repeat(3 * PIECE)]);
        lines.extend((0..100).map(|it| it.to_string()));
        lines
    }

    fn written(dir: &Path) -> Vec<String> {
        write(dir, lines())
    }

    fn write(dir: &Path, lines: Vec<String>) -> Vec<String> {
        let mut writer = writer(dir);
        for (at, line) in (1..).zip(&lines) {
            let stream = if at % 3 == 0 { Stream::Err } else { Stream::Out };
            writer.append(at, stream, line).unwrap();
        }
        writer.sync().unwrap();
        lines
    }

    #[test]
    fn written_records_are_read_back_across_segments_and_from_any_record() {
        let directory = tempfile::tempdir().unwrap();
        let lines = written(directory.path());
        assert!(segments(directory.path()).unwrap().len() > 5);
        let read = all(directory.path());
        assert_eq!(read.iter().map(|it| it.line.as_str()).collect::<Vec<_>>(), lines);
        assert!((1..).zip(&read).all(|(n, it)| it.n == n && it.at == n && (it.stream == Stream::Err) == (n % 3 == 0)));
        for from in [0, 1, 50, 103, 150, read.len() as u64, read.len() as u64 + 1] {
            let mut reader = Reader::at(directory.path(), from).unwrap();
            let rest: Vec<Record> = std::iter::from_fn(|| reader.read().unwrap()).collect();
            assert_eq!(rest, read[(from.max(1) as usize - 1).min(read.len())..], "from {from}");
        }
    }

    #[test]
    fn reader_follows_a_writer_into_new_segments() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, mut reader) = (writer(directory.path()), Reader::new(directory.path()));
        for (n, line) in (1..).zip(lines()) {
            assert_eq!(reader.read().unwrap(), None);
            writer.append(n, Stream::Out, &line).unwrap();
            writer.flush().unwrap();
            assert_eq!(reader.read().unwrap().map(|it| (it.n, it.line)), Some((n, line)));
        }
    }

    /// Damages the last segment in every possible way. A reader must return a prefix of the written
    /// lines.
    #[test]
    fn d8_a_damaged_end_is_never_read_as_records() {
        let directory = tempfile::tempdir().unwrap();
        let lines = write(directory.path(), (0..18).map(|it| format!("line \"{it}\"")).collect());
        let (first, path) = segments(directory.path()).unwrap().pop().unwrap();
        let whole = fs::read(&path).unwrap();
        let other = fs::read(directory.path().join(segment_name(1))).unwrap();
        let mut torn: Vec<Vec<u8>> = (0..whole.len()).map(|it| whole[..it].to_vec()).collect();
        // The end is filled with zeros, replaced by a block of an older file, or has a flipped bit.
        for at in 0..whole.len() {
            let mut zeros = whole.clone();
            zeros[at..].fill(0);
            let mut old = whole[..at].to_vec();
            old.extend(other.iter().cycle().skip(at).take(whole.len() - at));
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            torn.extend([zeros, old, flipped]);
        }
        for bytes in torn {
            fs::write(&path, &bytes).unwrap();
            let read: Vec<String> = all(directory.path()).into_iter().map(|it| it.line).collect();
            assert!(read.len() as u64 >= first - 1 && read.len() < lines.len() + usize::from(bytes == whole));
            assert_eq!(read, lines[..read.len()]);
        }
    }

    #[test]
    fn p9_a_disk_that_refuses_writes_for_a_while_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        // A missing directory also refuses writes.
        let dir = directory.path().join("later");
        let (made, mut asked) = (dir.clone(), 0);
        let mut writer = Writer::new(dir.clone(), SMALL, move |_| {
            asked += 1;
            if asked == 3 {
                fs::create_dir(&made).unwrap();
            }
            true
        });
        writer.append(1, Stream::Out, "kept").unwrap();
        writer.flush().unwrap();
        assert_eq!(all(&dir).len(), 1);
    }

    #[test]
    fn tail_is_the_end_of_the_printed_output() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(tail(directory.path(), 100).unwrap(), "");
        let mut writer = writer(directory.path());
        writer.append(1, Stream::Out, &"ä".repeat(3000)).unwrap();
        writer.append(1, Stream::Mark, "not printed").unwrap();
        writer.append(1, Stream::Err, "the end").unwrap();
        writer.sync().unwrap();
        assert_eq!(tail(directory.path(), 8).unwrap(), "the end\n");
        assert_eq!(tail(directory.path(), 14).unwrap(), "ää\nthe end\n", "a character is never cut");
        assert_eq!(tail(directory.path(), 1 << 20).unwrap().len(), 6000 + 1 + 8);
    }

    #[test]
    fn compressed_journal_reads_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let lines = written(dir);
        let before: u64 = segments(dir).unwrap().iter().map(|it| it.1.metadata().unwrap().len()).sum();
        // A crash during compression leaves both files, and the compressed one is incomplete.
        fs::write(dir.join(segment_name(1) + ".gz"), "half").unwrap();
        assert_eq!(all(dir).len(), lines.len());
        assert!(compress(dir).unwrap());
        assert!(!compress(dir).unwrap(), "the journal is compressed already");
        let after: u64 = segments(dir).unwrap().iter().map(|it| it.1.metadata().unwrap().len()).sum();
        assert!(after < before / 2, "{before} became {after}");
        assert_eq!(all(dir).into_iter().map(|it| it.line).collect::<Vec<_>>(), lines);
        let mut late = Reader::at(dir, 150).unwrap();
        assert_eq!(late.read().unwrap().unwrap().n, 150);
        assert!(tail(dir, 100).unwrap().ends_with("98\n99\n"));
        assert!(remove(dir).unwrap());
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    }
}
