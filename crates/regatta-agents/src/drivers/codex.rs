//! The driver for `codex exec`: one process per prompt, which prints a stream of JSON lines.
//!
//! The program never asks a question and accepts no second prompt; a session with several turns
//! needs the app-server (see [`super::codex_server`]). The usage that the program reports is the
//! total of the thread (Codex's word for a session), including earlier processes if the thread was
//! resumed. The reported input tokens include cached input.

use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, PlanEntry, StopReason, ToolCall, ToolKind, ToolStatus, Usage,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::Value;

use super::DriverSetup;
use super::common::{ConversationProgress, TextTail, UsageTotal, unreadable_line_notice};
use super::error_class::{ProgramFailure, shorten};
use super::tool_call_object::{cut_to_limit, read_input};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

/// The number of characters that are kept of a tool's output.
pub(super) const MAX_TOOL_OUTPUT_CHARS: usize = 4000;

pub(super) struct CodexExecDriver {
    has_sent_prompt: bool,
    is_thread_open: bool,
    is_turn_running: bool,
    last_turn_failure: Option<Option<ProgramFailure>>,
    /// The text of the program's last `error` event. Not every such error ends the turn.
    last_error: Option<String>,
    usage_total: UsageTotal,
    answer: TextTail,
    errors: TextTail,
    is_input_closed: bool,
}

impl CodexExecDriver {
    pub(super) fn new(setup: &DriverSetup) -> CodexExecDriver {
        CodexExecDriver {
            has_sent_prompt: false,
            is_thread_open: false,
            is_turn_running: false,
            last_turn_failure: None,
            last_error: None,
            usage_total: UsageTotal::from_usage(setup.used),
            answer: TextTail::for_answer(),
            errors: TextTail::default(),
            is_input_closed: false,
        }
    }

    fn on_output(&mut self, line: &str, at_unix_ms: u64) -> Vec<AgentEvent> {
        let Ok(event @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            self.errors.add_line(line);
            return vec![unreadable_line_notice(line)];
        };
        match event["type"].as_str().unwrap_or_default() {
            "thread.started" => {
                let session = event["thread_id"].as_str().map(str::to_owned);
                self.is_thread_open = true;
                self.usage_total.session.clone_from(&session);
                vec![AgentEvent::Started {
                    session,
                    model: None,
                }]
            }
            "turn.started" => {
                self.is_turn_running = true;
                vec![AgentEvent::TurnStarted { n: 0 }]
            }
            "item.started" | "item.updated" | "item.completed" => {
                let done = event["type"] == "item.completed";
                self.on_item(&event["item"], done)
            }
            "turn.completed" => {
                self.is_turn_running = false;
                self.last_turn_failure = Some(None);
                let mut events: Vec<AgentEvent> = self
                    .usage_total
                    .raise_to(read_usage(&event["usage"], &SNAKE_CASE_NAMES))
                    .into_iter()
                    .collect();
                let detail = self.answer.text().to_owned();
                events.push(AgentEvent::TurnEnded {
                    stop: StopReason::EndTurn,
                    class: None,
                    detail,
                });
                events
            }
            "turn.failed" => {
                self.is_turn_running = false;
                let message = event["error"]["message"]
                    .as_str()
                    .unwrap_or("The turn failed.");
                let failure = ProgramFailure::classify(message, None, &event["error"], at_unix_ms);
                let events = failure.turn_end_events();
                self.last_turn_failure = Some(Some(failure));
                events
            }
            // Remember the error without ending the turn, because the program reports a mere
            // reconnection as an error too.
            "error" => {
                let text = event["message"].as_str().unwrap_or_default().to_owned();
                self.last_error = Some(text.clone());
                vec![AgentEvent::Notice { text }]
            }
            _ => vec![],
        }
    }

    fn on_item(&mut self, item: &Value, done: bool) -> Vec<AgentEvent> {
        let text = || item["text"].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "agent_message" if done => {
                self.answer.clear();
                self.answer.add(&text());
                vec![AgentEvent::Message { text: text() }]
            }
            "reasoning" if done => vec![AgentEvent::Thought { text: text() }],
            "todo_list" => {
                let entries =
                    item["items"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|item| PlanEntry {
                            text: item["text"].as_str().unwrap_or_default().to_owned(),
                            status: if item["completed"] == true {
                                ToolStatus::Completed
                            } else {
                                ToolStatus::Pending
                            },
                        });
                vec![AgentEvent::Plan {
                    entries: entries.collect(),
                }]
            }
            "error" if done => {
                vec![AgentEvent::Notice {
                    text: item["message"].as_str().unwrap_or_default().to_owned(),
                }]
            }
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" => {
                vec![AgentEvent::Tool(read_tool_call(item, "aggregated_output"))]
            }
            _ => vec![],
        }
    }
}

/// The JSON field names of the token counts, which differ between `codex exec` and the app-server.
pub(super) struct UsageFieldNames {
    input: &'static str,
    cached_input: &'static str,
    cache_write: &'static str,
    output: &'static str,
}

const SNAKE_CASE_NAMES: UsageFieldNames = UsageFieldNames {
    input: "input_tokens",
    cached_input: "cached_input_tokens",
    cache_write: "cache_write_input_tokens",
    output: "output_tokens",
};

pub(super) const CAMEL_CASE_NAMES: UsageFieldNames = UsageFieldNames {
    input: "inputTokens",
    cached_input: "cachedInputTokens",
    cache_write: "cacheWriteInputTokens",
    output: "outputTokens",
};

/// Reads the token counts. Codex includes cached and cache-written tokens in its input tokens; the
/// returned counts contain each token once.
pub(super) fn read_usage(usage: &Value, names: &UsageFieldNames) -> Usage {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let cached_input = count(names.cached_input);
    let cache_write = count(names.cache_write);
    let input = count(names.input)
        .saturating_sub(cached_input)
        .saturating_sub(cache_write);
    Usage {
        input,
        cached_input,
        cache_write,
        output: count(names.output),
        micro_usd: None,
    }
}

/// Removes the shell that Codex puts around a command, such as `bash -lc '…'`, so that permission
/// rules match the command itself. A command that is not clearly a single quoted script stays
/// unchanged.
pub(super) fn unwrap_shell(command: &str) -> &str {
    let shells = [
        "/bin/bash -lc ",
        "/usr/bin/bash -lc ",
        "bash -lc ",
        "/bin/sh -c ",
        "/bin/zsh -lc ",
        "/usr/bin/zsh -lc ",
    ];
    let script = shells
        .iter()
        .find_map(|shell| command.strip_prefix(shell))
        .unwrap_or(command);
    match script
        .strip_prefix('\'')
        .and_then(|script| script.strip_suffix('\''))
    {
        Some(inner) if !inner.contains('\'') => inner,
        _ if script
            .chars()
            .all(|c| c.is_alphanumeric() || "-_./".contains(c)) =>
        {
            script
        }
        _ => command,
    }
}

/// Builds a tool call from an item that `codex exec` or the app-server reports.
pub(super) fn read_tool_call(item: &Value, output: &str) -> ToolCall {
    let text_of = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let kind = text_of("type");
    let status = match item["status"].as_str().unwrap_or_default() {
        "completed" => ToolStatus::Completed,
        "failed" | "declined" => ToolStatus::Failed,
        _ => ToolStatus::InProgress,
    };
    let changes = item["changes"].as_array().into_iter().flatten();
    let paths: Vec<String> = changes
        .filter_map(|change| change["path"].as_str())
        .map(str::to_owned)
        .collect();
    let mut tool = ToolCall {
        id: text_of("id"),
        status,
        paths,
        ..ToolCall::default()
    };
    match kind.as_str() {
        "command_execution" | "commandExecution" => {
            let command = unwrap_shell(item["command"].as_str().unwrap_or_default());
            tool.kind = ToolKind::Execute;
            (tool.command, tool.is_cut) = cut_to_limit(command);
            tool.title = shorten(command, 500);
            tool.output = item[output]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(|text| shorten(text, MAX_TOOL_OUTPUT_CHARS));
        }
        "file_change" | "fileChange" => {
            tool.kind = ToolKind::Edit;
            tool.title = shorten(&format!("change {}", tool.paths.join(", ")), 500);
        }
        "mcp_tool_call" | "mcpToolCall" => {
            tool.title = format!("{}: {}", text_of("server"), text_of("tool"));
            read_input(&mut tool, &item["arguments"]);
        }
        "web_search" | "webSearch" => {
            tool.kind = ToolKind::Fetch;
            tool.title = shorten(&format!("search: {}", text_of("query")), 500);
        }
        other => tool.title = other.to_owned(),
    }
    tool
}

impl Driver for CodexExecDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => {
                self.has_sent_prompt = true;
                vec![]
            }
            JournalStream::InEnd => {
                self.is_input_closed = true;
                vec![]
            }
            JournalStream::Out => self.on_output(&record.line, record.written_unix_ms),
            JournalStream::Err | JournalStream::Mark => self.errors.on_error_or_mark(record),
        }
    }

    fn next_input(&self, desired: &SessionInput) -> Option<InputAction> {
        if self.is_input_closed {
            return None;
        }
        match desired.prompts.first() {
            _ if self.has_sent_prompt => Some(InputAction::Close),
            Some(prompt) if !desired.should_hold_prompts => Some(InputAction::Line(prompt.clone())),
            _ if desired.should_close_input => Some(InputAction::Close),
            _ => None,
        }
    }

    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let progress = ConversationProgress {
            start_failure: None,
            is_session_open: self.is_thread_open,
            running_turn: self.is_turn_running.then_some(false),
            last_turn_failure: self.last_turn_failure.as_ref().map(Option::as_ref),
            is_input_closed: self.is_input_closed,
            answer: &self.answer,
            errors: &self.errors,
            usage_total: &self.usage_total,
        };
        let mut assessment = progress.assess_exit(exit);
        // If the program ended in the middle of a turn, the last error that it reported is the most
        // likely reason.
        if let (Some(FailureClass::Crashed), Some(message), Exit::Code(_)) =
            (assessment.class, &self.last_error, exit)
        {
            let failure = ProgramFailure::classify(message, None, &Value::Null, 0);
            assessment.class = Some(failure.class);
            assessment.detail = format!("{} {}", assessment.detail, failure.detail);
        }
        assessment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::test_harness::{DriverHarness, setup};
    use regatta_core::agent::Runtime;
    use serde_json::json;

    fn started_codex() -> DriverHarness {
        let mut harness = DriverHarness::new(setup(Runtime::Codex {
            argv: vec!["codex".to_owned()],
            app_server: false,
        }));
        harness.update_input(|input| input.prompts = vec!["Do it.\nAll of it.".to_owned()]);
        assert_eq!(
            harness.send_inputs(),
            vec![
                InputAction::Line("Do it.\nAll of it.".to_owned()),
                InputAction::Close
            ]
        );
        harness.output(json!({ "type": "thread.started", "thread_id": "t-1" }));
        harness.output(json!({ "type": "turn.started" }));
        harness
    }

    #[test]
    fn run_is_translated_and_usage_is_counted_once() {
        let mut harness = started_codex();
        let command = |status: &str| json!({ "id": "i1", "type": "command_execution", "command": "ls", "aggregated_output": "a\n", "status": status });
        harness.output(json!({ "type": "item.started", "item": command("in_progress") }));
        harness.output(json!({ "type": "item.completed", "item": command("completed") }));
        harness
            .output(json!({ "type": "item.completed", "item": { "id": "i2", "type": "file_change", "status": "completed",
            "changes": [{ "path": "/workspace/a", "kind": "add" }] } }));
        harness.output(json!({ "type": "error", "message": "Reconnecting... 1/5" }));
        harness
            .output(json!({ "type": "item.completed", "item": { "id": "i3", "type": "agent_message", "text": "Done." } }));
        harness.output(json!({ "type": "turn.completed", "usage":
            { "input_tokens": 2400, "cached_input_tokens": 2000, "cache_write_input_tokens": 0, "output_tokens": 30 } }));
        let usage = Usage {
            input: 400,
            cached_input: 2000,
            cache_write: 0,
            output: 30,
            micro_usd: None,
        };
        assert!(harness.events.contains(&AgentEvent::Usage {
            session: Some("t-1".to_owned()),
            usage
        }));
        let assessment = harness.assess_exit(&Exit::Code(0));
        assert_eq!(
            (assessment.class, assessment.detail.as_str()),
            (None, "Done.")
        );
        let tools = harness
            .events
            .iter()
            .filter(|event| matches!(event, AgentEvent::Tool(_)))
            .count();
        assert_eq!(tools, 3);
        harness.check_replay();
    }

    #[test]
    fn shell_around_a_command_is_removed_only_if_it_is_unambiguous() {
        for (command, plain) in [
            ("/bin/bash -lc 'cargo test && ls'", "cargo test && ls"),
            ("/bin/bash -lc ls", "ls"),
            ("ls -l", "ls -l"),
            ("/bin/bash -lc 'a' 'b'", "/bin/bash -lc 'a' 'b'"),
            ("/bin/bash -lc \"echo it's\"", "/bin/bash -lc \"echo it's\""),
            (
                "/bin/bash -lc 'a' ; rm -rf '/'",
                "/bin/bash -lc 'a' ; rm -rf '/'",
            ),
        ] {
            assert_eq!(unwrap_shell(command), plain);
        }
    }

    #[test]
    fn failed_turn_and_early_end_have_their_class() {
        let mut failed = started_codex();
        failed.output(
            json!({ "type": "turn.failed", "error": { "message": "exceeded retry limit, \
            last status: 529" } }),
        );
        assert_eq!(
            failed.assess_exit(&Exit::Code(1)).class,
            Some(FailureClass::Overloaded)
        );
        failed.check_replay();
        let mut early = started_codex();
        early.output(json!({ "type": "error", "message": "unexpected status 401 Unauthorized" }));
        assert_eq!(
            early.assess_exit(&Exit::Code(1)).class,
            Some(FailureClass::Auth)
        );
        assert_eq!(
            early.assess_exit(&Exit::Signal(9)).class,
            Some(FailureClass::Crashed)
        );
        early.check_replay();
    }
}
