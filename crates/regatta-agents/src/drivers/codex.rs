//! The driver for Codex's `exec`: one process per prompt, which prints a stream of JSON lines.
//!
//! It never asks and accepts no second prompt; a session with several turns needs the app-server.
//! Its usage is cumulative over the thread, also over a resumed one, and its input includes cached
//! input.

use regatta_core::session::{Class, PlanEntry, Said, Stop, Tool, ToolKind, ToolStatus, Usage};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::Value;

use super::Setup;
use super::common::{Course, Ledger, Tail, unreadable};
use super::input::{read_input, whole_or_cut};
use super::verdict::{Trouble, shorten};
use crate::driver::{Driver, Judgement, Record, Say, Stream};

/// The maximum length of a tool's output that is kept, in characters.
pub(super) const OUTPUT: usize = 4000;

pub(super) struct Codex {
    said: bool,
    open: bool,
    running: bool,
    last: Option<Option<Trouble>>,
    /// The last error that the program reported. Not every error ends the turn.
    trouble: Option<String>,
    books: Ledger,
    words: Tail,
    errors: Tail,
    closed: bool,
}

impl Codex {
    pub(super) fn new(setup: &Setup) -> Codex {
        Codex {
            said: false,
            open: false,
            running: false,
            last: None,
            trouble: None,
            books: Ledger::from(setup.used),
            words: Tail::of_answer(),
            errors: Tail::default(),
            closed: false,
        }
    }

    fn heard(&mut self, line: &str, at: u64) -> Vec<Said> {
        let Ok(event @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            self.errors.add_line(line);
            return vec![unreadable(line)];
        };
        match event["type"].as_str().unwrap_or_default() {
            "thread.started" => {
                let session = event["thread_id"].as_str().map(str::to_owned);
                self.open = true;
                self.books.session.clone_from(&session);
                vec![Said::Started { session, model: None }]
            }
            "turn.started" => {
                self.running = true;
                vec![Said::TurnStarted { n: 0 }]
            }
            "item.started" | "item.updated" | "item.completed" => {
                let done = event["type"] == "item.completed";
                self.item(&event["item"], done)
            }
            "turn.completed" => {
                self.running = false;
                self.last = Some(None);
                let mut said: Vec<Said> = self.books.reach(usage(&event["usage"], &SNAKE)).into_iter().collect();
                let detail = self.words.text().to_owned();
                said.push(Said::TurnEnded { stop: Stop::EndTurn, class: None, detail });
                said
            }
            "turn.failed" => {
                self.running = false;
                let words = event["error"]["message"].as_str().unwrap_or("The turn failed.");
                let trouble = Trouble::read(words, None, &event["error"], at);
                let said = trouble.ends_turn();
                self.last = Some(Some(trouble));
                said
            }
            // A reconnection is reported as an error too, so the error is only remembered.
            "error" => {
                let text = event["message"].as_str().unwrap_or_default().to_owned();
                self.trouble = Some(text.clone());
                vec![Said::Notice { text }]
            }
            _ => vec![],
        }
    }

    fn item(&mut self, item: &Value, done: bool) -> Vec<Said> {
        let text = || item["text"].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "agent_message" if done => {
                self.words.clear();
                self.words.add(&text());
                vec![Said::Message { text: text() }]
            }
            "reasoning" if done => vec![Said::Thought { text: text() }],
            "todo_list" => {
                let entries = item["items"].as_array().into_iter().flatten().map(|it| PlanEntry {
                    text: it["text"].as_str().unwrap_or_default().to_owned(),
                    status: if it["completed"] == true { ToolStatus::Completed } else { ToolStatus::Pending },
                });
                vec![Said::Plan { entries: entries.collect() }]
            }
            "error" if done => {
                vec![Said::Notice { text: item["message"].as_str().unwrap_or_default().to_owned() }]
            }
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" => {
                vec![Said::Tool(tool(item, "aggregated_output"))]
            }
            _ => vec![],
        }
    }
}

/// The field names of the counts, which differ between the two streams.
pub(super) struct Names(&'static str, &'static str, &'static str, &'static str);
const SNAKE: Names = Names("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens");
pub(super) const CAMEL: Names = Names("inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens");

/// Reads the usage. Codex includes cached and cache-written tokens in its input; here each token is
/// counted once.
pub(super) fn usage(of: &Value, names: &Names) -> Usage {
    let count = |name: &str| of[name].as_u64().unwrap_or(0);
    let (all, cached, written) = (count(names.0), count(names.1), count(names.2));
    Usage {
        input: all.saturating_sub(cached).saturating_sub(written),
        cached_input: cached,
        cache_write: written,
        output: count(names.3),
        micro_usd: None,
    }
}

/// Removes the shell that Codex puts around a command, so that rules for commands match. A command
/// that is not clearly a single quoted script stays unchanged.
pub(super) fn unwrapped(command: &str) -> &str {
    let shells =
        ["/bin/bash -lc ", "/usr/bin/bash -lc ", "bash -lc ", "/bin/sh -c ", "/bin/zsh -lc ", "/usr/bin/zsh -lc "];
    let script = shells.iter().find_map(|it| command.strip_prefix(it)).unwrap_or(command);
    match script.strip_prefix('\'').and_then(|it| it.strip_suffix('\'')) {
        Some(inner) if !inner.contains('\'') => inner,
        _ if script.chars().all(|it| it.is_alphanumeric() || "-_./".contains(it)) => script,
        _ => command,
    }
}

/// Builds a tool call from an item of either stream.
pub(super) fn tool(item: &Value, output: &str) -> Tool {
    let word = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let kind = word("type");
    let status = match item["status"].as_str().unwrap_or_default() {
        "completed" => ToolStatus::Completed,
        "failed" | "declined" => ToolStatus::Failed,
        _ => ToolStatus::InProgress,
    };
    let changes = item["changes"].as_array().into_iter().flatten();
    let paths: Vec<String> = changes.filter_map(|it| it["path"].as_str()).map(str::to_owned).collect();
    let mut tool = Tool { id: word("id"), status, paths, ..Tool::default() };
    match kind.as_str() {
        "command_execution" | "commandExecution" => {
            let command = unwrapped(item["command"].as_str().unwrap_or_default());
            tool.kind = ToolKind::Execute;
            (tool.command, tool.is_cut) = whole_or_cut(command);
            tool.title = shorten(command, 500);
            tool.output = item[output].as_str().filter(|it| !it.is_empty()).map(|it| shorten(it, OUTPUT));
        }
        "file_change" | "fileChange" => {
            tool.kind = ToolKind::Edit;
            tool.title = shorten(&format!("change {}", tool.paths.join(", ")), 500);
        }
        "mcp_tool_call" | "mcpToolCall" => {
            tool.title = format!("{}: {}", word("server"), word("tool"));
            read_input(&mut tool, &item["arguments"]);
        }
        "web_search" | "webSearch" => {
            tool.kind = ToolKind::Fetch;
            tool.title = shorten(&format!("search: {}", word("query")), 500);
        }
        other => tool.title = other.to_owned(),
    }
    tool
}

impl Driver for Codex {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => {
                self.said = true;
                vec![]
            }
            Stream::InEnd => {
                self.closed = true;
                vec![]
            }
            Stream::Out => self.heard(&record.line, record.at),
            Stream::Err | Stream::Mark => self.errors.aside(record),
        }
    }

    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.closed {
            return None;
        }
        match wishes.prompts.first() {
            _ if self.said => Some(Say::Close),
            Some(prompt) if !wishes.hold => Some(Say::Line(prompt.clone())),
            _ if wishes.end => Some(Say::Close),
            _ => None,
        }
    }

    fn judge(&self, exit: &Exit) -> Judgement {
        let course = Course {
            failed: None,
            open: self.open,
            turn: self.running.then_some(false),
            last: self.last.as_ref().map(Option::as_ref),
            closed: self.closed,
            words: &self.words,
            errors: &self.errors,
            books: &self.books,
        };
        let mut judged = course.judge(exit);
        // In the middle of a turn the last error is the most likely reason.
        if let (Some(Class::Crashed), Some(words), Exit::Code(_)) = (judged.class, &self.trouble, exit) {
            let trouble = Trouble::read(words, None, &Value::Null, 0);
            judged.class = Some(trouble.class);
            judged.detail = format!("{} {}", judged.detail, trouble.detail);
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::replay::{Stage, setup};
    use regatta_core::agent::Runtime;
    use serde_json::json;

    fn stage() -> Stage {
        let mut stage = Stage::new(setup(Runtime::Codex { argv: vec!["codex".to_owned()], app_server: false }));
        stage.wish(|it| it.prompts = vec!["Do it.\nAll of it.".to_owned()]);
        assert_eq!(stage.say(), vec![Say::Line("Do it.\nAll of it.".to_owned()), Say::Close]);
        stage.out(json!({ "type": "thread.started", "thread_id": "t-1" }));
        stage.out(json!({ "type": "turn.started" }));
        stage
    }

    #[test]
    fn run_is_translated_and_usage_is_counted_once() {
        let mut stage = stage();
        let command = |status: &str| json!({ "id": "i1", "type": "command_execution", "command": "ls", "aggregated_output": "a\n", "status": status });
        stage.out(json!({ "type": "item.started", "item": command("in_progress") }));
        stage.out(json!({ "type": "item.completed", "item": command("completed") }));
        stage
            .out(json!({ "type": "item.completed", "item": { "id": "i2", "type": "file_change", "status": "completed",
            "changes": [{ "path": "/workspace/a", "kind": "add" }] } }));
        stage.out(json!({ "type": "error", "message": "Reconnecting... 1/5" }));
        stage
            .out(json!({ "type": "item.completed", "item": { "id": "i3", "type": "agent_message", "text": "Done." } }));
        stage.out(json!({ "type": "turn.completed", "usage":
            { "input_tokens": 2400, "cached_input_tokens": 2000, "cache_write_input_tokens": 0, "output_tokens": 30 } }));
        let usage = Usage { input: 400, cached_input: 2000, cache_write: 0, output: 30, micro_usd: None };
        assert!(stage.said.contains(&Said::Usage { session: Some("t-1".to_owned()), usage }));
        let judged = stage.judge(&Exit::Code(0));
        assert_eq!((judged.class, judged.detail.as_str()), (None, "Done."));
        let tools = stage.said.iter().filter(|it| matches!(it, Said::Tool(_))).count();
        assert_eq!(tools, 3);
        stage.check_replay();
    }

    #[test]
    fn shell_around_a_command_is_removed_only_if_it_is_unambiguous() {
        for (command, plain) in [
            ("/bin/bash -lc 'cargo test && ls'", "cargo test && ls"),
            ("/bin/bash -lc ls", "ls"),
            ("ls -l", "ls -l"),
            ("/bin/bash -lc 'a' 'b'", "/bin/bash -lc 'a' 'b'"),
            ("/bin/bash -lc \"echo it's\"", "/bin/bash -lc \"echo it's\""),
            ("/bin/bash -lc 'a' ; rm -rf '/'", "/bin/bash -lc 'a' ; rm -rf '/'"),
        ] {
            assert_eq!(unwrapped(command), plain);
        }
    }

    #[test]
    fn failed_turn_and_early_end_have_their_class() {
        let mut failed = stage();
        failed.out(json!({ "type": "turn.failed", "error": { "message": "exceeded retry limit, last status: 529" } }));
        assert_eq!(failed.judge(&Exit::Code(1)).class, Some(Class::Overloaded));
        failed.check_replay();
        let mut early = stage();
        early.out(json!({ "type": "error", "message": "unexpected status 401 Unauthorized" }));
        assert_eq!(early.judge(&Exit::Code(1)).class, Some(Class::Auth));
        assert_eq!(early.judge(&Exit::Signal(9)).class, Some(Class::Crashed));
        early.check_replay();
    }
}
