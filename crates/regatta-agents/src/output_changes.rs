//! Reads the complete output of tool calls from the records of a journal.
//!
//! The drivers keep only the beginning of a tool's output, because they live as long as their
//! program. A reader of the whole transcript gets the output from here instead, record by record,
//! and puts the parts together. This module keeps no output itself.

use std::collections::HashMap;

use regatta_engine::ports::agents::{JournalRecord, JournalStream, OutputChange};
use serde_json::Value;

use crate::shim::tool_output::CONTINUES_FIELD;

/// The number of tool calls whose short blocks are remembered.
const MAX_CALLS: usize = 1_000;

/// The length in bytes up to which a block of output is remembered, to recognise a repetition. The
/// journal stores such a short block again with every update.
const SHORT_BLOCK_BYTES: usize = 256;

/// Finds the changes of tools' outputs in the records of one journal, in order.
#[derive(Default)]
pub(crate) struct OutputReader {
    /// For each tool call: its blocks of output. A long block is `None`.
    blocks: HashMap<String, Vec<Option<String>>>,
}

impl OutputReader {
    /// Returns how a record changes the outputs of tool calls.
    pub(crate) fn read(&mut self, record: &JournalRecord) -> Vec<OutputChange> {
        // Most records are not about tool calls, and parsing a line costs more than this search.
        let line = record.line.as_str();
        let is_relevant = record.stream == JournalStream::Out
            && (line.contains("tool_call")
                || line.contains("tool_result")
                || line.contains("command_execution")
                || line.contains("commandExecution"));
        if !is_relevant {
            return vec![];
        }
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return vec![];
        };
        if message["method"] == "session/update" {
            return self
                .read_acp_update(&message["params"]["update"])
                .into_iter()
                .collect();
        }
        match message["type"].as_str() {
            Some("user") => read_claude_results(&message["message"]["content"]),
            Some("item.completed" | "item.updated") => {
                read_codex_item(&message["item"], "aggregated_output", "exit_code")
                    .into_iter()
                    .collect()
            }
            _ if message["method"] == "item/completed" => {
                read_codex_item(&message["params"]["item"], "aggregatedOutput", "exitCode")
                    .into_iter()
                    .collect()
            }
            _ => vec![],
        }
    }

    fn read_acp_update(&mut self, update: &Value) -> Option<OutputChange> {
        let is_call = update["sessionUpdate"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("tool_call"));
        let call = update["toolCallId"].as_str().filter(|_| is_call)?;
        let pointers = update["_meta"]["regatta"][CONTINUES_FIELD].as_array();
        let continues = |block: usize, field: &str| {
            let pointer = format!("/content/{block}/{field}");
            pointers
                .into_iter()
                .flatten()
                .any(|known| *known == pointer)
        };
        let texts: Vec<OutputBlock> = update["content"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter_map(|(index, block)| {
                if let Some(text) = block["content"]["text"].as_str() {
                    let is_part = continues(index, "content/text");
                    return Some(OutputBlock {
                        text: text.to_owned(),
                        is_part,
                    });
                }
                // A repeated change of a file is stored without its text.
                let is_part = continues(index, "oldText") || continues(index, "newText");
                let text = if is_part {
                    String::new()
                } else {
                    file_change_text(block)?
                };
                Some(OutputBlock { text, is_part })
            })
            .collect();
        let exit_code = acp_exit_code(update);
        if texts.is_empty() && exit_code.is_none() {
            return None;
        }
        if self.blocks.len() > MAX_CALLS {
            self.blocks.clear();
        }
        let known = self.blocks.entry(call.to_owned()).or_default();
        let replaces = !texts.is_empty() && !texts.iter().any(|block| block.is_part);
        let mut text = String::new();
        for (nth, block) in texts.iter().enumerate() {
            let before = known.get(nth).and_then(Option::as_deref);
            let is_repeated = !replaces && !block.is_part && before == Some(block.text.as_str());
            if is_repeated {
                continue;
            }
            if nth > 0 && (replaces || nth >= known.len()) {
                text.push('\n');
            }
            text.push_str(&block.text);
        }
        if !texts.is_empty() {
            *known = texts
                .into_iter()
                .map(|block| {
                    let is_short = block.text.len() <= SHORT_BLOCK_BYTES && !block.is_part;
                    is_short.then_some(block.text)
                })
                .collect();
        }
        Some(OutputChange {
            call: call.to_owned(),
            replaces,
            text,
            exit_code,
        })
    }
}

/// A block of a tool's output in one update.
struct OutputBlock {
    text: String,
    /// True if the text follows the text of the same block in an earlier update.
    is_part: bool,
}

/// The number of unchanged lines that are shown before and after a change of a file.
const CONTEXT_LINES: usize = 2;

/// Returns the number of equal pairs at the beginning.
fn count_same<T: PartialEq>(pairs: impl Iterator<Item = (T, T)>) -> usize {
    pairs.take_while(|(old, new)| old == new).count()
}

/// Returns a change of a file as lines with `+` and `-`, with the colours of a terminal. Returns
/// `None` if the block is no change of a file.
fn file_change_text(block: &Value) -> Option<String> {
    let new = block["newText"]
        .as_str()
        .filter(|_| block["type"] == "diff")?;
    let old = block["oldText"].as_str().unwrap_or_default();
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = count_same(old.iter().zip(&new));
    let after = count_same(old[before..].iter().rev().zip(new[before..].iter().rev()));
    let (removed, added) = (
        &old[before..old.len() - after],
        &new[before..new.len() - after],
    );
    let path = block["path"].as_str().unwrap_or_default();
    let mut lines = vec![format!(
        "\u{1b}[1m{path}\u{1b}[0m +{} −{}",
        added.len(),
        removed.len()
    )];
    let context =
        |text: &[&str]| -> Vec<String> { text.iter().map(|line| format!("  {line}")).collect() };
    lines.extend(context(&new[before.saturating_sub(CONTEXT_LINES)..before]));
    lines.extend(
        removed
            .iter()
            .map(|line| format!("\u{1b}[31m- {line}\u{1b}[0m")),
    );
    lines.extend(
        added
            .iter()
            .map(|line| format!("\u{1b}[32m+ {line}\u{1b}[0m")),
    );
    let rest = &new[new.len() - after..];
    lines.extend(context(&rest[..rest.len().min(CONTEXT_LINES)]));
    Some(lines.join("\n"))
}

/// Returns the exit code of a command, at the places where programs report it.
fn acp_exit_code(update: &Value) -> Option<i64> {
    let raw = &update["rawOutput"];
    [
        &raw["exit_code"],
        &raw["exitCode"],
        &raw["metadata"]["exit"],
        &update["_meta"]["terminal_exit"]["exit_code"],
    ]
    .into_iter()
    .find_map(Value::as_i64)
}

fn read_claude_results(content: &Value) -> Vec<OutputChange> {
    let results = content
        .as_array()
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == "tool_result");
    results
        .filter_map(|result| {
            let text: String = match &result["content"] {
                Value::String(text) => text.clone(),
                Value::Array(blocks) => blocks
                    .iter()
                    .filter_map(|block| block["text"].as_str())
                    .collect(),
                _ => String::new(),
            };
            // Claude Code reports the exit code of a failed command in the first line.
            let exit_code = text
                .strip_prefix("Exit code ")
                .and_then(|rest| rest.lines().next()?.trim().parse().ok());
            Some(OutputChange {
                call: result["tool_use_id"].as_str()?.to_owned(),
                replaces: true,
                text,
                exit_code,
            })
        })
        .collect()
}

fn read_codex_item(item: &Value, output: &str, exit_code: &str) -> Option<OutputChange> {
    Some(OutputChange {
        call: item["id"].as_str()?.to_owned(),
        replaces: true,
        text: item[output].as_str()?.to_owned(),
        exit_code: item[exit_code].as_i64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(message: &Value) -> JournalRecord {
        JournalRecord {
            position: 1,
            written_unix_ms: 1,
            stream: JournalStream::Out,
            line: message.to_string(),
        }
    }

    fn update(texts: &[&str], continues: &[usize]) -> Value {
        let content: Vec<Value> = texts
            .iter()
            .map(|text| json!({ "type": "content", "content": { "type": "text", "text": text } }))
            .collect();
        let continues: Vec<String> = continues
            .iter()
            .map(|block| format!("/content/{block}/content/text"))
            .collect();
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "update": {
            "sessionUpdate": "tool_call_update", "toolCallId": "t1", "content": content,
            "_meta": { "regatta": { CONTINUES_FIELD: continues } },
        }}})
    }

    fn joined(updates: &[Value]) -> String {
        let (mut reader, mut whole) = (OutputReader::default(), String::new());
        for update in updates {
            for change in reader.read(&record(update)) {
                if change.replaces {
                    whole.clear();
                }
                whole.push_str(&change.text);
            }
        }
        whole
    }

    /// P2: a reader of the journal gets every byte of the output.
    #[test]
    fn p2_output_that_was_stored_in_parts_is_complete() {
        let long = "a long line of output\n".repeat(20);
        assert_eq!(
            joined(&[
                update(&["short"], &[]),
                update(&[&long], &[]),
                update(&["more\n"], &[0]),
                update(&["end"], &[0]),
            ]),
            format!("{long}more\nend")
        );
        // A short block is stored again with each update, and a new block is appended.
        assert_eq!(
            joined(&[
                update(&["$ make", &long], &[]),
                update(&["$ make", "more"], &[1]),
                update(&["$ make", "", "third"], &[1]),
            ]),
            format!("$ make\n{long}more\nthird")
        );
        // Without a continuation, the update replaces the output.
        assert_eq!(
            joined(&[update(&[&long], &[]), update(&["10 %"], &[])]),
            "10 %"
        );
    }

    #[test]
    fn change_of_a_file_is_shown_as_lines() {
        let change = |old: Option<&str>, new: &str, continues: &[&str]| {
            record(&json!({ "method": "session/update", "params": { "update": {
                "sessionUpdate": "tool_call_update", "toolCallId": "e",
                "content": [{ "type": "diff", "path": "a.rs", "oldText": old, "newText": new }],
                "_meta": { "regatta": { CONTINUES_FIELD: continues } },
            }}}))
        };
        let mut reader = OutputReader::default();
        let old = "one\ntwo\nthree\nfour\nfive\nsix\n";
        let shown = reader
            .read(&change(Some(old), &old.replace("four", "4\n4½"), &[]))
            .pop()
            .unwrap();
        assert!(shown.replaces);
        let plain = shown.text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        let plain = plain.replace("\u{1b}[31m", "").replace("\u{1b}[32m", "");
        assert_eq!(
            plain,
            "a.rs +2 −1\n  two\n  three\n- four\n+ 4\n+ 4½\n  five\n  six"
        );
        let repeated = reader
            .read(&change(
                Some(""),
                "",
                &["/content/0/oldText", "/content/0/newText"],
            ))
            .pop()
            .unwrap();
        assert_eq!((repeated.replaces, repeated.text.as_str()), (false, ""));
        let created = reader.read(&change(None, "x\n", &[])).pop().unwrap();
        assert!(created.text.contains("+1 −0") && created.text.ends_with("+ x\u{1b}[0m"));
    }

    #[test]
    fn exit_codes_of_all_protocols_are_read() {
        let mut reader = OutputReader::default();
        let mut read = |message: Value| reader.read(&record(&message)).pop().unwrap();
        let claude = read(json!({ "type": "user", "message": { "content": [
            { "type": "tool_result", "tool_use_id": "u", "content": "Exit code 101\nerror: x" } ] } }));
        assert_eq!((claude.exit_code, claude.call.as_str()), (Some(101), "u"));
        let codex = read(json!({ "type": "item.completed", "item": {
            "type": "command_execution", "id": "i", "aggregated_output": "x", "exit_code": 2 } }));
        assert_eq!((codex.exit_code, codex.text.as_str()), (Some(2), "x"));
        let acp = read(json!({ "method": "session/update", "params": { "update": {
            "sessionUpdate": "tool_call_update", "toolCallId": "t", "rawOutput": { "exit_code": 1 } } } }));
        assert_eq!(
            (acp.exit_code, acp.replaces, acp.text.as_str()),
            (Some(1), false, "")
        );
    }
}
