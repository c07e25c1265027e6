//! The journal of one attempt: every line its program said or was told, in the order in which the shim saw them.
//!
//! It lies in the run directory in segments, `journal-0000000001.jsonl`, each named by the place of its first record.
//! A record is one line of JSON whose last field is a checksum of the bytes before it. A power cut may leave a torn
//! line, a hole of zeros or a block of some other file at the end: a reader takes only whole lines whose sum fits and
//! whose place follows on, and stops for good at the first that is not so (D8).
//!
//! A record is visible to readers at once and outlives the shim; it is synced to the disk at most a second later
//! (by the scribe), when a segment is full, and before the exit is recorded. So a power cut, which ends the
//! program too, may take the last second; nothing else takes anything (P2).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::driver::{Record, Stream};
use crate::rundir::{sync_parent, write_beside};

/// How much is written at once. Lines longer than this are written in pieces, so that they are held only once.
const PIECE: usize = 16 * 1024;

/// What a record ends with: the checksum in eight hexadecimal digits.
const SUM: &[u8] = b",\"sum\":\"";
const SUM_LENGTH: usize = SUM.len() + 8 + 2;

/// No line of a journal is longer: it would be one of the longest that the shim lets pass, all of it escaped.
pub(crate) const LONGEST: usize = 64 * 1024 * 1024;

/// The shim's own words, as the line of a [`Stream::Mark`] record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mark")]
pub(crate) enum Mark {
    /// The line before this was longer than allowed; so many bytes of it are not there.
    Cut { stream: Stream, bytes: u64 },
    /// The journal has its full size; from here lines of the program are counted and not kept.
    Full { bytes: u64 },
    /// So much was not kept since.
    Dropped { lines: u64, bytes: u64 },
    /// This much of a tool call's output, in so many updates, is more than the journal stores of one call.
    LeftOut { call: String, updates: u64, bytes: u64 },
    /// So many lines were accepted for its input when it closed it, and were never said.
    Unsaid { lines: u64 },
    /// It wanted to reach this host and port and was not let; for the so manieth time.
    Refused { to: String, why: String, times: u64 },
    /// Its ways out do not work, and why.
    Shut { why: String },
}

impl Mark {
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a mark is plain data")
    }

    /// Reads a mark and says it to a person.
    pub(crate) fn explain(line: &str) -> Option<String> {
        Some(match serde_json::from_str(line).ok()? {
            Mark::Cut { bytes, .. } => format!("[{bytes} more bytes of this line were cut]"),
            Mark::Full { bytes } => format!("[{bytes} bytes are kept of an attempt: from here on lines are dropped]"),
            Mark::Dropped { lines, bytes } => format!("[{lines} lines, {bytes} bytes, were dropped]"),
            Mark::LeftOut { call, updates: 1, bytes } => {
                format!("[{bytes} bytes of the output of {call} were left out]")
            }
            Mark::LeftOut { call, updates, bytes } => {
                format!("[{bytes} bytes of the output of {call}, in {updates} updates, were left out]")
            }
            Mark::Unsaid { lines } => format!("[it closed its input before {lines} lines were said to it]"),
            Mark::Refused { to, why, times: 1 } => format!("[{to} was refused: {why}]"),
            Mark::Refused { to, why, times } => format!("[{to} was refused {times} times: {why}]"),
            Mark::Shut { why } => format!("[its ways out do not work: {why}]"),
        })
    }
}

fn segment_name(first: u64) -> String {
    format!("journal-{first:010}.jsonl")
}

/// The segments of a directory, by the place of their first records: plain, or else compressed.
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
    // Of two of the same place the plain one sorts first: the other may be half made.
    found.sort();
    found.dedup_by_key(|it| it.0);
    Ok(found)
}

/// When a journal was last written to, as a date in milliseconds; nothing when there is none.
pub(crate) fn written(dir: &Path) -> Option<u64> {
    let (_, last) = segments(dir).ok()?.pop()?;
    let since = fs::metadata(last).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// The place of the last record of a journal, 0 before the first.
pub(crate) fn last(dir: &Path) -> io::Result<u64> {
    let Some((first, _)) = segments(dir)?.pop() else { return Ok(0) };
    let mut reader = Reader { next: first, ..Reader::new(dir) };
    while reader.read()?.is_some() {}
    Ok(reader.next - 1)
}

/// Whether a line is one that a journal can hold: encoded it must not be longer than any.
pub(crate) fn fits(line: &str) -> bool {
    const AROUND: usize = 256;
    let encoded = |it: u8| if it < 0x20 { 6 } else { 1 + usize::from(matches!(it, b'"' | b'\\')) };
    line.len() < LONGEST && line.bytes().map(encoded).sum::<usize>() + AROUND < LONGEST
}

/// A journal that is gone on with.
pub(crate) struct Resumed {
    pub(crate) writer: Writer,
    /// How much it holds.
    pub(crate) kept: u64,
    /// Something was torn, and is gone.
    pub(crate) mended: bool,
}

/// Appends to a journal. There is one for an attempt, ever: the shim's, or whoever keeps a copy.
pub(crate) struct Writer {
    dir: PathBuf,
    file: Option<File>,
    /// The place of the file's first record.
    first: u64,
    /// Encoded and not yet in the file.
    buffer: Vec<u8>,
    /// What the file surely holds.
    length: u64,
    /// The segment gives way to a new one at this length.
    rotate_at: u64,
    next: u64,
    unsynced: bool,
    /// The segment's name is not on the disk yet.
    unnamed: bool,
    /// Asked when the disk refuses (full, mostly): whether to try again. It naps.
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

    /// Goes on where a journal ends, or begins one. What no reader would come to goes first: a torn end, and whatever
    /// stands behind it.
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
                continue; // it was made as a whole
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
        // From the end: what a crash leaves is then still a journal.
        for (_, path) in found.rev() {
            fs::remove_file(path)?;
        }
        Ok(Resumed { writer, kept, mended })
    }

    /// Whether the journal still ends where this left it.
    pub(crate) fn is_current(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let there = fs::metadata(self.dir.join(segment_name(self.first)));
        let (Ok(ours), Ok(there)) = (file.metadata(), there) else { return false };
        (ours.dev(), ours.ino(), self.length) == (there.dev(), there.ino(), there.len()) && self.buffer.is_empty()
    }

    /// The place of the last record, 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Appends a record; returns its length. It is in the file after [`Writer::flush`] at the latest.
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

    /// Puts everything into the file, where readers see it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        while let Err(error) = file.write_all(&self.buffer) {
            // What came through in part goes first, or it would be there twice.
            if !(self.again)(&error) || file.set_len(self.length).is_err() {
                return Err(error);
            }
        }
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        self.unsynced = true;
        Ok(())
    }

    /// Puts everything onto the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(file) = &self.file
            && self.unsynced
        {
            file.sync_data()?;
            // Its name too; not when it is made, since a program's first byte waits for that.
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

/// Reads a journal from a place on, also while it grows.
pub(crate) struct Reader {
    dir: PathBuf,
    next: u64,
    /// Records before this are passed over.
    from: u64,
    segment: Option<Segment>,
    torn: bool,
}

struct Segment {
    /// The place of its first record.
    first: u64,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What of the buffer was taken.
    taken: usize,
    /// How far a newline was looked for.
    looked: usize,
}

impl Reader {
    /// Reads from the first record on.
    pub(crate) fn new(dir: &Path) -> Reader {
        Reader { dir: dir.to_owned(), next: 1, from: 1, segment: None, torn: false }
    }

    /// Reads from the record at place `from` on.
    pub(crate) fn at(dir: &Path, from: u64) -> io::Result<Reader> {
        let next = segments(dir)?.iter().map(|it| it.0).filter(|it| *it <= from.max(1)).max().unwrap_or(1);
        Ok(Reader { next, from, ..Reader::new(dir) })
    }

    /// The next record; `None` when there is none yet, or, of an attempt that has ended, none any more.
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

    /// Goes to the segment that begins with the next record, if there is one. Lines that were put behind the old
    /// one's end since we saw it make that another record, and so are not passed over.
    fn open_next(&mut self) -> io::Result<bool> {
        // One that is empty still is its own successor.
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
    /// The beginning of a line.
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
                self.buffer = Vec::new(); // one long line must not be paid for ever after
            }
            let read = (&mut self.source).take(PIECE as u64).read_to_end(&mut self.buffer)?;
            if read == 0 {
                return Ok(if self.buffer.is_empty() { Found::End } else { Found::Part });
            }
        }
    }
}

/// Reads one line of a journal; `None` when it is torn, or not the record of this place.
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

/// The text of the last records of the program's own streams, at most that many bytes.
pub(crate) fn tail(dir: &Path, bytes: usize) -> io::Result<String> {
    // The last segment may just have begun.
    let first = segments(dir)?.iter().rev().nth(1).map_or(1, |it| it.0);
    let mut reader = Reader { next: first, ..Reader::new(dir) };
    let mut text = String::new();
    while let Some(record) = reader.read()? {
        if matches!(record.stream, Stream::Out | Stream::Err) {
            text += &record.line;
            text.push('\n');
            // Cut only when twice too long, so that many short lines cost little.
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

/// Compresses a journal that nobody writes any more; returns whether there was something to do. A crash in the midst
/// leaves it readable, and to be done again.
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
        // It tells when the last word was.
        File::options().append(true).open(&temporary)?.set_modified(fs::metadata(&path)?.modified()?)?;
        fs::rename(&temporary, &packed)?;
        sync_parent(&packed)?;
        fs::remove_file(&path)?;
        done = true;
    }
    Ok(done)
}

/// Removes a journal; returns whether there was one.
pub(crate) fn remove(dir: &Path) -> io::Result<bool> {
    let found = segments(dir)?;
    // From its end: what is left after a crash is then still a journal.
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
    fn what_goes_in_comes_out_also_over_many_segments_and_from_any_place() {
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
    fn a_reader_follows_a_writer_into_new_segments() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, mut reader) = (writer(directory.path()), Reader::new(directory.path()));
        for (n, line) in (1..).zip(lines()) {
            assert_eq!(reader.read().unwrap(), None);
            writer.append(n, Stream::Out, &line).unwrap();
            writer.flush().unwrap();
            assert_eq!(reader.read().unwrap().map(|it| (it.n, it.line)), Some((n, line)));
        }
    }

    /// Every way to tear the last segment: whatever is left is a beginning of what was written.
    #[test]
    fn d8_a_torn_end_is_never_read_as_truth() {
        let directory = tempfile::tempdir().unwrap();
        let lines = write(directory.path(), (0..18).map(|it| format!("line \"{it}\"")).collect());
        let (first, path) = segments(directory.path()).unwrap().pop().unwrap();
        let whole = fs::read(&path).unwrap();
        let other = fs::read(directory.path().join(segment_name(1))).unwrap();
        let mut torn: Vec<Vec<u8>> = (0..whole.len()).map(|it| whole[..it].to_vec()).collect();
        // A hole of zeros, a block of an older file of the same kind, a flipped bit.
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
    fn p9_a_disk_that_refuses_for_a_while_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        // A directory that is not there yet refuses too.
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
    fn the_tail_is_the_end_of_what_was_printed() {
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
    fn a_compressed_journal_reads_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let lines = written(dir);
        let before: u64 = segments(dir).unwrap().iter().map(|it| it.1.metadata().unwrap().len()).sum();
        // A crash in the midst: both are there, and the packed one is half.
        fs::write(dir.join(segment_name(1) + ".gz"), "half").unwrap();
        assert_eq!(all(dir).len(), lines.len());
        assert!(compress(dir).unwrap());
        assert!(!compress(dir).unwrap(), "it is done");
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
