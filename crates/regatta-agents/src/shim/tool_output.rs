//! Prevents the same output of a tool call from being stored in the journal many times.
//!
//! Some programs send the whole output of a running command again with every line that the command
//! prints. In the Agent Client Protocol the content of a `tool_call_update` replaces the previous
//! content, and Codex sends the whole diff of a turn after every edit. A command with n lines of
//! output would leave n² lines in the journal.
//!
//! If a text continues the previous text, only the new part is stored, and the field
//! [`CONTINUES_FIELD`] lists the text. The driver reads that field and puts the parts together, so
//! nothing is lost. A text that replaces the previous text is stored whole. The number of bytes
//! that are stored for all updates of one call is limited. If bytes are missing, the shim
//! (supervisor process) writes their number into the journal as a mark.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use crate::journal::JournalMark;

/// The field, in `_meta.regatta` of an update, that lists those texts of which only the
/// continuation is stored. Each entry is a JSON pointer into the update.
pub(crate) const CONTINUES_FIELD: &str = "continues";

/// The length in bytes below which a text is always stored whole, because the remark that the text
/// continues an earlier text would take more room.
const MIN_TEXT_BYTES: usize = 128;

/// The number of running tool calls whose output is remembered. When more calls run, the outputs of
/// all calls are forgotten, and the next update of each call is stored whole.
const MAX_OPEN_CALLS: usize = 256;

/// The length at which the name of a tool call is cut in a journal mark (a remark of the supervisor
/// process).
const MAX_NAME_CHARS: usize = 100;

/// The number of bytes at the beginning of a line that are compared to find out whether it repeats
/// the previous line. Only lines that were cut because they were too long are compared, and each of
/// them is longer than this.
const HEAD_BYTES: usize = 4 * 1024;

/// Remembers for each tool call of a program how much of its output the journal already has.
#[derive(Default)]
pub(super) struct ToolOutput {
    calls: BTreeMap<String, StoredCall>,
    cut_line: Option<CutLine>,
}

#[derive(Default)]
struct StoredCall {
    /// The length and hash of each text in the last update of this tool call. The key is the text's
    /// JSON pointer.
    texts: BTreeMap<String, TextFingerprint>,
    stored_bytes: usize,
    left_out_updates: u64,
    left_out_bytes: u64,
}

/// The last line that was cut because it was too long, and the number of times that the program
/// repeated the line. A cut line is no longer valid JSON.
struct CutLine {
    head: TextFingerprint,
    repeated_lines: u64,
    repeated_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct TextFingerprint {
    bytes: usize,
    hash: u64,
}

impl TextFingerprint {
    fn new(text: &str) -> TextFingerprint {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        TextFingerprint {
            bytes: text.len(),
            hash: hasher.finish(),
        }
    }

    fn is_prefix_of(self, text: &str) -> bool {
        text.get(..self.bytes)
            .is_some_and(|start| TextFingerprint::new(start) == self)
    }
}

/// A line to store in the journal, and the marks (remarks of the supervisor process) to write after
/// the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredLine {
    pub(super) line: String,
    pub(super) marks: Vec<JournalMark>,
}

impl ToolOutput {
    /// Returns a shortened line to store in place of `line` if the line is an update of a tool
    /// call. Returns `None` for other lines, which are stored unchanged.
    pub(super) fn shorten_update(
        &mut self,
        line: &str,
        max_call_bytes: usize,
    ) -> Option<StoredLine> {
        if !line.contains("tool_call") && !line.contains("turn/diff/updated") {
            return None;
        }
        let mut message: Value = serde_json::from_str(line).ok()?;
        let (key, update) = replacing_update(&mut message)?;
        let has_ended = matches!(update["status"].as_str(), Some("completed" | "failed"));
        let call = self.calls.entry(key.clone()).or_default();
        let mut shortener = TextShortener {
            call,
            continues: Vec::new(),
            left_out: 0,
            max_call_bytes,
        };
        for (name, value) in update.as_object_mut()? {
            // Do not shorten the input of the tool call, because a person decides on a permission
            // by the input and the driver must see all of it.
            if name != "rawInput" && name != "_meta" {
                shortener.visit(&format!("/{name}"), value);
            }
        }
        let (continues, left_out) = (shortener.continues, shortener.left_out);
        if left_out > 0 {
            call.left_out_updates += 1;
            call.left_out_bytes += left_out;
        }
        let is_changed = left_out > 0 || !continues.is_empty();
        if !continues.is_empty() {
            let fields = update.as_object_mut()?;
            let meta = fields.entry("_meta").or_insert(Value::Null);
            if !meta.is_object() {
                *meta = Value::Object(Map::new());
            }
            meta["regatta"] = json!({ CONTINUES_FIELD: continues });
        }
        let line = if is_changed {
            message.to_string()
        } else {
            line.to_owned()
        };
        let ended_call = if has_ended {
            self.calls.remove(&key)
        } else {
            None
        };
        let mut marks: Vec<JournalMark> = ended_call
            .and_then(|call| call.mark(&key))
            .into_iter()
            .collect();
        if self.calls.len() > MAX_OPEN_CALLS {
            marks.extend(self.end_calls());
        }
        Some(StoredLine { line, marks })
    }

    /// Checks whether a line, which was cut because it was too long, repeats the previous cut line.
    /// A repeated line is only counted and not stored.
    pub(super) fn check_repeated(&mut self, line: &str, bytes: u64) -> RepeatCheck {
        let mut end = HEAD_BYTES.min(line.len());
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let head = TextFingerprint::new(&line[..end]);
        match &mut self.cut_line {
            Some(cut) if cut.head == head => {
                cut.repeated_lines += 1;
                cut.repeated_bytes += bytes;
                RepeatCheck {
                    is_stored: false,
                    mark: None,
                }
            }
            cut => {
                let before = cut.replace(CutLine {
                    head,
                    repeated_lines: 0,
                    repeated_bytes: 0,
                });
                RepeatCheck {
                    is_stored: true,
                    mark: before.and_then(CutLine::mark),
                }
            }
        }
    }

    /// Returns the journal marks (remarks of the supervisor process) about missing output for all
    /// tool calls that have not ended.
    pub(super) fn finish(&mut self) -> Vec<JournalMark> {
        let mut marks = self.end_calls();
        marks.extend(self.cut_line.take().and_then(CutLine::mark));
        marks
    }

    fn end_calls(&mut self) -> Vec<JournalMark> {
        let calls = std::mem::take(&mut self.calls);
        calls
            .into_iter()
            .filter_map(|(key, call)| call.mark(&key))
            .collect()
    }
}

/// The decision whether the journal stores a line that was cut because it was too long, and a mark
/// (a remark for the journal) to write before that line.
pub(super) struct RepeatCheck {
    pub(super) is_stored: bool,
    pub(super) mark: Option<JournalMark>,
}

impl StoredCall {
    fn mark(self, key: &str) -> Option<JournalMark> {
        let (updates, bytes) = (self.left_out_updates, self.left_out_bytes);
        (bytes > 0).then(|| JournalMark::LeftOut {
            call: key.chars().take(MAX_NAME_CHARS).collect(),
            updates,
            bytes,
        })
    }
}

impl CutLine {
    fn mark(self) -> Option<JournalMark> {
        let (lines, bytes) = (self.repeated_lines, self.repeated_bytes);
        (lines > 0).then_some(JournalMark::Dropped { lines, bytes })
    }
}

/// Returns the part of a message that reports the current state of a tool call or diff, with the
/// key under which later messages replace it.
fn replacing_update(message: &mut Value) -> Option<(String, &mut Value)> {
    let method = message["method"].as_str()?.to_owned();
    match method.as_str() {
        "session/update" => {
            let update = message.get_mut("params")?.get_mut("update")?;
            let is_call = update["sessionUpdate"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("tool_call"));
            let key = update["toolCallId"]
                .as_str()
                .filter(|_| is_call)?
                .to_owned();
            Some((key, update))
        }
        "turn/diff/updated" => {
            let update = message.get_mut("params")?;
            let key = update["turnId"].as_str()?.to_owned();
            Some((format!("the diff of {key}"), update))
        }
        _ => None,
    }
}

struct TextShortener<'a> {
    call: &'a mut StoredCall,
    continues: Vec<String>,
    left_out: u64,
    max_call_bytes: usize,
}

impl TextShortener<'_> {
    /// Shortens every text inside `value`: removes the part that the journal already has, and the
    /// part beyond the limit for one tool call.
    fn visit(&mut self, pointer: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.shorten(pointer, text),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.visit(&format!("{pointer}/{index}"), item);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.visit(&format!("{pointer}/{name}"), field);
                }
            }
            _ => {}
        }
    }

    fn shorten(&mut self, pointer: &str, text: &mut String) {
        let known = self.call.texts.get(pointer).copied();
        if text.len() < MIN_TEXT_BYTES && known.is_none() {
            return;
        }
        self.call
            .texts
            .insert(pointer.to_owned(), TextFingerprint::new(text));
        if let Some(known) = known.filter(|known| known.bytes > 0 && known.is_prefix_of(text)) {
            text.drain(..known.bytes);
            self.continues.push(pointer.to_owned());
        }
        let mut room = self
            .max_call_bytes
            .saturating_sub(self.call.stored_bytes)
            .min(text.len());
        while !text.is_char_boundary(room) {
            room -= 1;
        }
        self.left_out += (text.len() - room) as u64;
        text.truncate(room);
        self.call.stored_bytes += room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn update(text: &str, status: Option<&str>) -> String {
        let mut update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "t1",
            "content": [{ "type": "content", "content": { "type": "text", "text": text } }],
            "rawOutput": { "output": text },
        });
        if let Some(status) = status {
            update["status"] = json!(status);
        }
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } })
            .to_string()
    }

    /// Joins the texts of stored lines, as a driver does.
    fn join_texts(lines: &[String]) -> String {
        let mut whole = String::new();
        for line in lines {
            let message: Value = serde_json::from_str(line).unwrap();
            let update = &message["params"]["update"];
            let pointer = "/content/0/content/text";
            let continues = update["_meta"]["regatta"][CONTINUES_FIELD]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if !continues.iter().any(|known| known == pointer) {
                whole.clear();
            }
            whole.push_str(
                update
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            );
        }
        whole
    }

    #[test]
    fn growing_output_is_stored_once() {
        let (mut calls, mut text, mut lines) = (ToolOutput::default(), String::new(), Vec::new());
        for n in 0..300 {
            text += &format!("test number {n} of auth::login … ok, and ä\n");
            lines.push(
                calls
                    .shorten_update(&update(&text, None), MAX)
                    .unwrap()
                    .line,
            );
        }
        lines.push(
            calls
                .shorten_update(&update(&text, Some("completed")), MAX)
                .unwrap()
                .line,
        );
        assert_eq!(
            join_texts(&lines),
            text,
            "the stored lines give the whole output"
        );
        let stored: usize = lines.iter().map(String::len).sum();
        assert!(
            stored < 12 * text.len(),
            "{stored} bytes for an output of {}",
            text.len()
        );
        assert_eq!(calls.finish(), [], "nothing was left out");
    }

    #[test]
    fn replaced_output_is_stored_whole() {
        let mut calls = ToolOutput::default();
        let lines = ["a", "ab", "xb"].map(|text| {
            let text = text.repeat(MIN_TEXT_BYTES);
            calls
                .shorten_update(&update(&text, None), MAX)
                .unwrap()
                .line
        });
        assert_eq!(join_texts(&lines), "xb".repeat(MIN_TEXT_BYTES));
    }

    #[test]
    fn output_of_a_call_is_limited_and_a_mark_counts_the_rest() {
        let mut calls = ToolOutput::default();
        // The whole bar is printed each time, so no text continues the previous text.
        let bar = |n: usize| format!("{n:04} {}", "=".repeat(995));
        let mut stored = 0;
        for n in 0..100 {
            stored += calls
                .shorten_update(&update(&bar(n), None), 20_000)
                .unwrap()
                .line
                .len();
        }
        assert!(stored < 20_000 + 100 * 300, "{stored}");
        let last = calls
            .shorten_update(&update(&bar(100), Some("failed")), 20_000)
            .unwrap();
        let left_out = 101 * 2 * 1_000 - 20_000;
        assert_eq!(
            last.marks,
            [JournalMark::LeftOut {
                call: "t1".into(),
                updates: 91,
                bytes: left_out
            }]
        );
        assert_eq!(calls.finish(), [], "the call has ended");
        calls
            .shorten_update(&update(&bar(1).repeat(30), None), 20_000)
            .unwrap();
        assert!(
            matches!(
                &calls.finish()[..],
                [JournalMark::LeftOut { updates: 1, .. }]
            ),
            "a call that never ends gets a mark too"
        );
    }

    #[test]
    fn other_lines_and_inputs_are_not_changed() {
        let mut calls = ToolOutput::default();
        let long = "tool_call ".repeat(1_000);
        for line in [
            long.clone(),
            json!({ "method": "session/update", "params": { "update": {
                "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": long } } } })
            .to_string(),
            json!({ "type": "item", "text": long }).to_string(),
        ] {
            assert_eq!(calls.shorten_update(&line, 10), None, "{line}");
        }
        let input = json!({ "method": "session/update", "params": { "update": {
            "sessionUpdate": "tool_call", "toolCallId": "t2", "rawInput": { "command": long } } } })
        .to_string();
        assert_eq!(calls.shorten_update(&input, 10).unwrap().line, input);
    }

    #[test]
    fn repeated_diff_is_stored_once() {
        let mut calls = ToolOutput::default();
        let diff = |edits: usize| {
            let diff = "+ a line of a file\n".repeat(edits * 100);
            json!({ "method": "turn/diff/updated", "params": { "turnId": "u1", "diff": diff } })
                .to_string()
        };
        let stored: usize = (1..50)
            .map(|n| calls.shorten_update(&diff(n), MAX).unwrap().line.len())
            .sum();
        assert!(stored < 2 * diff(50).len(), "{stored}");
    }

    #[test]
    fn repeated_line_that_was_cut_is_stored_once() {
        let mut calls = ToolOutput::default();
        let line = "x".repeat(10_000);
        assert!(calls.check_repeated(&line, 1).is_stored);
        for _ in 0..3 {
            let repeated = calls.check_repeated(&line, 20_000);
            assert!(!repeated.is_stored && repeated.mark.is_none());
        }
        let other = calls.check_repeated("another line", 1);
        assert!(other.is_stored);
        assert_eq!(
            other.mark,
            Some(JournalMark::Dropped {
                lines: 3,
                bytes: 60_000
            })
        );
    }
}
