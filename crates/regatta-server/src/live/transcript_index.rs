//! Stores the entries of a transcript so that any of them can be read by its number.
//!
//! Building the index reads the journal once from its beginning. Afterwards a request reads only
//! the entries that it shows. Ended entries are in a file without a name, which the system deletes
//! with the daemon; memory holds only their places in that file. Entries that can still change are in
//! memory.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use regatta_engine::ports::agents::CompleteTranscriptLine;
use serde::Serialize;

use super::sanitize::strip_terminal_sequences;
use super::transcript_entries::{
    Entry, EntryChange, EntryKind, EntryProgress, can_continue, changes, new_entry,
};

/// Maximum number of entries that stay in memory because they can still change. If there are more,
/// the oldest is stored, and it is read again when it changes.
const MAX_OPEN_ENTRIES: usize = 64;

/// Maximum number of tool calls of one turn whose ids are remembered.
const MAX_CALLS: usize = 100_000;

/// Maximum length of the text of one entry, in bytes. A longer text is cut in the middle of the
/// journal's limits only if a program's journal was written with other limits.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// Where an entry is stored, and when it changed.
#[derive(Clone, Copy, Debug)]
struct StoredEntry {
    offset: u64,
    head_bytes: u32,
    text_bytes: u32,
    /// The version of the index in which the entry changed last.
    version: u64,
}

/// The entries of one transcript.
pub(super) struct TranscriptIndex {
    file: Arc<File>,
    file_bytes: u64,
    entries: Vec<StoredEntry>,
    /// The entries that can still change, by number. A newer version than the stored one.
    open: BTreeMap<usize, Entry>,
    /// The entries of the current turn's tool calls, by a hash of the call's id.
    calls: HashMap<u64, usize>,
    failures: Vec<u64>,
    /// Grows with each change of an entry.
    version: u64,
    /// The number of the next journal record to read.
    pub(super) next_record: u64,
}

impl TranscriptIndex {
    /// Creates an empty index. Its file is in `dir` and has no name.
    pub(super) fn new(dir: &Path) -> io::Result<TranscriptIndex> {
        let file = rustix::fs::open(
            dir,
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        );
        let file = match file {
            Ok(file) => File::from(file),
            // Some filesystems have no unnamed files.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => named_file(dir)?,
            Err(error) => return Err(error.into()),
        };
        Ok(TranscriptIndex {
            file: Arc::new(file),
            file_bytes: 0,
            entries: Vec::new(),
            open: BTreeMap::new(),
            calls: HashMap::new(),
            failures: Vec::new(),
            version: 0,
            next_record: 1,
        })
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the numbers of the failed entries, in order.
    pub(super) fn failures(&self) -> &[u64] {
        &self.failures
    }

    /// Returns the version in which an entry changed last.
    pub(super) fn version_of(&self, number: usize) -> u64 {
        self.entries.get(number).map_or(0, |stored| stored.version)
    }

    /// Reads an entry. Returns `None` if there is no entry with this number.
    pub(super) fn entry(&self, number: usize) -> io::Result<Option<Entry>> {
        if let Some(entry) = self.open.get(&number) {
            return Ok(Some(entry.clone()));
        }
        let Some(stored) = self.entries.get(number) else {
            return Ok(None);
        };
        let mut head = vec![0; stored.head_bytes as usize];
        self.file.read_exact_at(&mut head, stored.offset)?;
        let text = read_text(&self.file, stored)?;
        Ok(Some(Entry {
            head: serde_json::from_slice(&head)?,
            text,
        }))
    }

    /// Adds a line of the transcript.
    pub(super) fn push_line(&mut self, line: &CompleteTranscriptLine) -> io::Result<()> {
        let at_unix_ms = line.line.record.written_unix_ms;
        self.next_record = line.line.record.position + 1;
        for change in changes(line) {
            self.apply(change, at_unix_ms)?;
        }
        Ok(())
    }

    fn apply(&mut self, change: EntryChange<'_>, at_unix_ms: u64) -> io::Result<()> {
        match change {
            EntryChange::Add(entry) => self.add(entry),
            EntryChange::Text { kind, text } => {
                let last = self.entries.len().wrapping_sub(1);
                // A program that sends its error output line by line sends no newlines.
                let separator = if kind == EntryKind::Stderr { "\n" } else { "" };
                match self.open.get_mut(&last) {
                    Some(entry) if can_continue(entry, kind) => {
                        entry.text.push_str(separator);
                        entry.text.push_str(text);
                        entry.head.ended_unix_ms = at_unix_ms;
                        self.mark_changed(last);
                        Ok(())
                    }
                    _ => self.add(new_entry(kind, "", text, at_unix_ms)),
                }
            }
            EntryChange::Call(tool) => {
                let id = hash_id(&tool.id);
                let Some(number) = self.calls.get(&id).copied() else {
                    let mut entry = new_entry(EntryKind::Tool(tool.kind), "", "", at_unix_ms);
                    entry.apply_call(tool, at_unix_ms);
                    if self.calls.len() < MAX_CALLS {
                        self.calls.insert(id, self.entries.len());
                    }
                    return self.add(entry);
                };
                self.reopen(number)?;
                if let Some(entry) = self.open.get_mut(&number) {
                    entry.apply_call(tool, at_unix_ms);
                }
                self.mark_changed(number);
                self.store_ended(false)
            }
            EntryChange::Output(change) => {
                let Some(number) = self.calls.get(&hash_id(&change.call)).copied() else {
                    return Ok(());
                };
                self.reopen(number)?;
                if let Some(entry) = self.open.get_mut(&number)
                    && entry.text.len() + change.text.len() < MAX_TEXT_BYTES
                {
                    entry.apply_output(change);
                }
                self.mark_changed(number);
                self.store_ended(false)
            }
            EntryChange::Answer => {
                let oldest = self.running().find(|number| {
                    let entry = self.open.get(number);
                    entry.is_some_and(|entry| entry.head.kind == EntryKind::Request)
                });
                if let Some(number) = oldest
                    && let Some(entry) = self.open.get_mut(&number)
                {
                    entry.head.progress = EntryProgress::Done;
                    self.mark_changed(number);
                }
                self.store_ended(false)
            }
            EntryChange::EndTurn => {
                self.calls.clear();
                let running: Vec<usize> = self.running().collect();
                for number in running {
                    if let Some(entry) = self.open.get_mut(&number) {
                        entry.head.progress = EntryProgress::Unfinished;
                        self.mark_changed(number);
                    }
                }
                self.store_ended(true)
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        self.open
            .iter()
            .filter(|(_, entry)| entry.is_running())
            .map(|(number, _)| *number)
    }

    fn add(&mut self, entry: Entry) -> io::Result<()> {
        let number = self.entries.len();
        self.entries.push(StoredEntry {
            offset: 0,
            head_bytes: 0,
            text_bytes: 0,
            version: 0,
        });
        self.open.insert(number, entry);
        self.mark_changed(number);
        self.store_ended(false)
    }

    fn mark_changed(&mut self, number: usize) {
        self.version += 1;
        self.entries[number].version = self.version;
        let is_failed = self.open.get(&number).is_some_and(Entry::is_failed);
        let known = self.failures.binary_search(&(number as u64));
        match known {
            Err(place) if is_failed => self.failures.insert(place, number as u64),
            Ok(place) if !is_failed => drop(self.failures.remove(place)),
            _ => {}
        }
    }

    /// Reads a stored entry into memory, because it changes.
    fn reopen(&mut self, number: usize) -> io::Result<()> {
        if !self.open.contains_key(&number)
            && let Some(entry) = self.entry(number)?
        {
            self.open.insert(number, entry);
        }
        Ok(())
    }

    /// Moves entries that probably change no more from memory into the file: all but the running
    /// calls and the last entry, whose text may continue. `all` includes the last entry.
    fn store_ended(&mut self, all: bool) -> io::Result<()> {
        let last = self.entries.len().saturating_sub(1);
        let mut ended: Vec<usize> = self
            .open
            .iter()
            .filter(|(number, entry)| !entry.is_running() && (all || **number != last))
            .map(|(number, _)| *number)
            .collect();
        if self.open.len() > MAX_OPEN_ENTRIES {
            ended.extend(self.running().next());
        }
        for number in ended {
            let Some(entry) = self.open.remove(&number) else {
                continue;
            };
            let head = to_json(&entry.head)?;
            self.file.write_all_at(&head, self.file_bytes)?;
            self.file
                .write_all_at(entry.text.as_bytes(), self.file_bytes + head.len() as u64)?;
            let stored = &mut self.entries[number];
            let too_long = |_| io::Error::other("an entry of a transcript is too long");
            *stored = StoredEntry {
                offset: self.file_bytes,
                head_bytes: u32::try_from(head.len()).map_err(too_long)?,
                text_bytes: u32::try_from(entry.text.len()).map_err(too_long)?,
                version: stored.version,
            };
            self.file_bytes += head.len() as u64 + entry.text.len() as u64;
        }
        Ok(())
    }

    /// Returns the entries as they are now, for a search that takes long.
    pub(super) fn snapshot(&self) -> IndexSnapshot {
        IndexSnapshot {
            file: self.file.clone(),
            entries: self.entries.clone(),
            open: self.open.clone(),
        }
    }
}

/// Creates a file and deletes its name.
fn named_file(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!(".transcript-index-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn hash_id(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn to_json(head: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.write_all(&serde_json::to_vec(head)?)?;
    Ok(bytes)
}

fn read_text(file: &File, stored: &StoredEntry) -> io::Result<String> {
    let mut text = vec![0; stored.text_bytes as usize];
    file.read_exact_at(&mut text, stored.offset + u64::from(stored.head_bytes))?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// The entries of a transcript at one moment.
pub(super) struct IndexSnapshot {
    file: Arc<File>,
    entries: Vec<StoredEntry>,
    open: BTreeMap<usize, Entry>,
}

/// A line of a transcript in which a search found its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SearchHit {
    pub(super) entry: usize,
    /// The line of the entry's text, counted from 1. `None` is the entry's title.
    pub(super) line: Option<usize>,
}

impl IndexSnapshot {
    /// Returns the lines that contain `query`, at most `limit` of them, and the number of all such
    /// lines. Upper and lower case of ASCII letters are the same.
    pub(super) fn search(&self, query: &str, limit: usize) -> io::Result<(Vec<SearchHit>, usize)> {
        let query = query.to_ascii_lowercase();
        let (mut hits, mut total) = (Vec::new(), 0);
        let mut found = |hit: SearchHit| {
            total += 1;
            if hits.len() < limit {
                hits.push(hit);
            }
        };
        for (number, stored) in self.entries.iter().enumerate() {
            let (title, text) = match self.open.get(&number) {
                Some(entry) => (entry.head.title.clone(), entry.text.clone()),
                None => {
                    let mut head = vec![0; stored.head_bytes as usize];
                    self.file.read_exact_at(&mut head, stored.offset)?;
                    let head: super::transcript_entries::EntryHead = serde_json::from_slice(&head)?;
                    (head.title, read_text(&self.file, stored)?)
                }
            };
            if title.to_ascii_lowercase().contains(&query) {
                found(SearchHit {
                    entry: number,
                    line: None,
                });
            }
            let mut text = if text.contains('\u{1b}') {
                strip_terminal_sequences(&text)
            } else {
                text
            };
            text.make_ascii_lowercase();
            if !text.contains(&query) {
                continue;
            }
            for (index, line) in text.split('\n').enumerate() {
                if line.contains(&query) {
                    found(SearchHit {
                        entry: number,
                        line: Some(index + 1),
                    });
                }
            }
        }
        Ok((hits, total))
    }
}

#[cfg(test)]
mod tests;
