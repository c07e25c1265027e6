//! Renders a transcript (the recorded output of an agent's program) as HTML. The page loads a
//! transcript piece by piece, so that a browser never has to hold all of it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::live_view::TranscriptPieceView;
use regatta_core::agent_protocol::{AgentEvent, ToolCall, ToolStatus};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{JournalStream, TranscriptLine};
use serde::Deserialize;

use super::sanitize;
use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Maximum number of transcript records in one piece (the part of a transcript that one request
/// returns).
const RECORDS_PER_PIECE: usize = 500;
/// Maximum size of the HTML of one piece of a transcript, in bytes. A piece that reaches this size
/// ends after the current row.
const MAX_PIECE_BYTES: usize = 512 * 1024;
/// Maximum length of the text that the page shows of one transcript record, in characters.
const MAX_TEXT_CHARS: usize = 20_000;

#[derive(Deserialize)]
pub(super) struct LogParams {
    /// The number of the transcript record with which the returned part of the transcript begins.
    #[serde(default)]
    from: u64,
    /// Show the lines that the agent's program wrote, instead of the events that were parsed from
    /// them.
    #[serde(default)]
    raw: bool,
}

/// Handles `GET /api/v1/page/log/A5?from=0`: returns one piece of a transcript, and the number of
/// the record at which the next piece starts.
pub(super) async fn log_piece(
    State(shared): State<Arc<ServerState>>,
    Path(attempt): Path<String>,
    request_limits::QueryParams(params): request_limits::QueryParams<LogParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let bad = |_| {
        Problem::new(
            400,
            "bad_id",
            "the address does not contain an attempt's id",
            "see a task's attempts: regatta show T1",
        )
    };
    let attempt: AttemptId = attempt.parse().map_err(bad)?;
    let (agents, from) = (shared.engine.agents().clone(), params.from);
    let piece = verbs::run_blocking(move || {
        let lines = agents
            .transcript(attempt, from, RECORDS_PER_PIECE)
            .map_err(|error| Problem::new(500, "io", error.message, error.hint))?;
        Ok::<_, Problem>(render_piece(&lines, from, params.raw))
    });
    Ok(axum::Json(piece.await??).into_response())
}

/// Renders transcript lines as HTML until the HTML reaches [`MAX_PIECE_BYTES`]. Also returns the
/// number of the next record to render, which is `from` if there are no lines.
fn render_piece(lines: &[TranscriptLine], from: u64, raw: bool) -> TranscriptPieceView {
    let mut rows = LogRows::default();
    let mut next = from;
    for line in lines {
        if rows.size_bytes > MAX_PIECE_BYTES {
            break;
        }
        next = line.record.position + 1;
        let wall = line.record.written_unix_ms;
        if raw {
            rows.push(row_html(wall, "", &text_html(&line.record.line)));
        } else if line.events.is_empty() {
            // Show error output and remarks as they are, because no driver (the parser for one kind
            // of program) parses them.
            if matches!(line.record.stream, JournalStream::Err | JournalStream::Mark) {
                rows.push(row_html(wall, "aside", &text_html(&line.record.line)));
            }
        } else {
            line.events
                .iter()
                .for_each(|event| rows.push_record(wall, event));
        }
    }
    // A piece (a part of a transcript) may end early because of its size. So only a piece without
    // lines shows that the transcript has ended.
    TranscriptPieceView {
        html: rows.html.concat(),
        next,
        more: !lines.is_empty(),
    }
}

/// The HTML rows of one piece of a transcript. A tool call has one row, which is replaced when the
/// call is updated.
#[derive(Default)]
struct LogRows {
    html: Vec<String>,
    size_bytes: usize,
    /// For each tool call, by its id: the index of its row, and the time of its start.
    calls: HashMap<String, (usize, u64)>,
}

impl LogRows {
    fn push(&mut self, html: String) {
        self.size_bytes += html.len();
        self.html.push(html);
    }

    fn push_record(&mut self, wall: u64, event: &AgentEvent) {
        match event {
            AgentEvent::Tool(tool) => match self.calls.get(&tool.id) {
                Some((place, began)) => {
                    let html = call_html(*began, tool);
                    self.size_bytes = self.size_bytes - self.html[*place].len() + html.len();
                    self.html[*place] = html;
                }
                None => {
                    self.calls.insert(tool.id.clone(), (self.html.len(), wall));
                    self.push(call_html(wall, tool));
                }
            },
            // A new turn (the work on one prompt) begins. Forget the tool calls of the previous
            // turn, because a program may use the same ids again.
            AgentEvent::TurnStarted { n } => {
                self.calls.clear();
                self.push(format!(
                    "<div class=\"say note\" data-turn=\"{n}\" data-wall=\"{wall}\">turn {}</div>",
                    n + 1
                ));
            }
            _ => self
                .record_html(wall, event)
                .into_iter()
                .for_each(|html| self.push(html)),
        }
    }

    fn record_html(&self, wall: u64, event: &AgentEvent) -> Option<String> {
        Some(match event {
            AgentEvent::Started { model, .. } => {
                // Name the model, because a program reports its session again when another model
                // takes over.
                let text = model
                    .as_deref()
                    .map_or("session opened".to_owned(), |model| {
                        format!("session with {model}")
                    });
                row_html(wall, "note", &sanitize::escape(&text))
            }
            AgentEvent::Message { text } => row_html(wall, "", &text_html(text)),
            AgentEvent::Thought { text } => row_html(wall, "thought", &text_html(text)),
            AgentEvent::Plan { entries } => {
                let lines: Vec<String> = entries
                    .iter()
                    .map(|plan| format!("· {}", plan.text))
                    .collect();
                row_html(wall, "note", &text_html(&lines.join("\n")))
            }
            AgentEvent::RequestMade(agent_request) => {
                let what = match &agent_request.content {
                    regatta_core::agent_protocol::RequestContent::Permission { tool, .. } => {
                        format!("asks for permission: {}", tool.describe())
                    }
                    regatta_core::agent_protocol::RequestContent::Question { text, .. } => {
                        format!("asks: {text}")
                    }
                };
                row_html(wall, "asks", &text_html(&what))
            }
            AgentEvent::TurnEnded { detail, .. } if !detail.is_empty() => {
                row_html(wall, "note", &text_html(detail))
            }
            AgentEvent::Limited { detail, .. } => row_html(
                wall,
                "asks",
                &text_html(&format!("the provider's limit: {detail}")),
            ),
            AgentEvent::Notice { text } => row_html(wall, "aside", &text_html(text)),
            AgentEvent::Tool(_)
            | AgentEvent::TurnStarted { .. }
            | AgentEvent::RequestWithdrawn { .. }
            | AgentEvent::Usage { .. }
            | AgentEvent::Context { .. }
            | AgentEvent::TurnEnded { .. } => return None,
        })
    }
}

/// Renders a text as HTML, and cuts it if it is too long.
fn text_html(text: &str) -> String {
    let (shown, left) = match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((position, _)) => (&text[..position], text[position..].chars().count()),
        None => (text, 0),
    };
    let mut html = String::new();
    for (nth, line) in shown.split('\n').enumerate() {
        let (line, cut) = sanitize::truncate(line);
        if nth > 0 {
            html.push('\n');
        }
        html.push_str(&sanitize::terminal_html(line));
        if cut > 0 {
            let _a_string_takes_all =
                write!(html, "<span class=\"ctl\"> … {cut} more characters</span>");
        }
    }
    if left > 0 {
        let _a_string_takes_all = write!(
            html,
            "\n<span class=\"ctl\">… {left} more characters</span>"
        );
    }
    html
}

fn row_html(wall: u64, class: &str, html: &str) -> String {
    format!("<div class=\"say {class}\" data-wall=\"{wall}\">{html}</div>")
}

/// Renders a tool call as an HTML group that a person can collapse. The group is open while the
/// call runs and after the call has failed. When the call is updated, the page finds the group to
/// replace by its attribute `data-tool`.
fn call_html(began: u64, tool: &ToolCall) -> String {
    let (mark, open) = match tool.status {
        ToolStatus::Failed => (" <b class=\"bad\">failed</b>", " open"),
        ToolStatus::InProgress => (" …", " open"),
        ToolStatus::Completed => (" <b class=\"good\">ok</b>", ""),
        ToolStatus::Pending => ("", ""),
    };
    let title = tool.describe();
    let title = sanitize::escape(sanitize::truncate(title.lines().next().unwrap_or_default()).0);
    // The id of a tool call comes from the agent's program and may be any text, so the page gets a
    // hash of the id. The page only compares ids.
    let mut hasher = DefaultHasher::new();
    tool.id.hash(&mut hasher);
    let id = format!("{:016x}", hasher.finish());
    let about = format!("class=\"say tool\" data-tool=\"{id}\" data-wall=\"{began}\"");
    match tool
        .output
        .as_deref()
        .filter(|output| !output.is_empty())
        .map(text_html)
    {
        Some(body) => format!(
            "<details {about}{open}><summary>{title}{mark}</summary><pre>{body}</pre></details>"
        ),
        None => format!("<div {about}>{title}{mark}</div>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_engine::ports::agents::JournalRecord;

    /// S12: text of a program never becomes markup, in any field.
    #[test]
    fn s12_text_of_a_hostile_program_is_escaped() {
        let bad =
            "<script>alert(1)</script>\u{1b}]0;x\u{7}\u{202e}<a href=\"javascript:alert(1)\">x</a>";
        let tool: ToolCall = serde_json::from_value(serde_json::json!({
            "id": bad, "title": bad, "kind": "execute", "status": "failed", "command": bad, "output": bad
        }))
        .unwrap();
        let all = [
            AgentEvent::Message { text: bad.into() },
            AgentEvent::Thought { text: bad.into() },
            AgentEvent::Notice { text: bad.into() },
            AgentEvent::Started {
                session: None,
                model: Some(bad.into()),
            },
            AgentEvent::Limited {
                deadline_unix_ms: None,
                detail: bad.into(),
            },
            AgentEvent::Tool(tool),
        ];
        let mut rows = LogRows::default();
        all.iter().for_each(|event| rows.push_record(7, event));
        let out = rows.html.concat();
        for s in ["<script", "<a ", "\u{1b}", "\u{202e}", "href=\""] {
            assert!(!out.contains(s), "{s}: {out}");
        }
        assert!(out.contains("data-wall=\"7\" open><summary>"), "{out}");
    }

    fn update(position: u64, output: &str, status: ToolStatus) -> TranscriptLine {
        let tool = ToolCall {
            id: "t1".into(),
            title: "cargo test".into(),
            output: Some(output.to_owned()),
            status,
            ..ToolCall::default()
        };
        let record = JournalRecord {
            position,
            written_unix_ms: position,
            stream: JournalStream::Out,
            line: String::new(),
        };
        TranscriptLine {
            record,
            events: vec![AgentEvent::Tool(tool)],
        }
    }

    #[test]
    fn updates_of_a_tool_call_are_one_group() {
        let mut lines = vec![
            update(1, "a", ToolStatus::InProgress),
            update(2, "a\nb", ToolStatus::InProgress),
        ];
        lines.push(update(3, "a\nb\nc", ToolStatus::Completed));
        let piece = render_piece(&lines, 1, false);
        let html = piece.html;
        assert_eq!(html.matches("<details").count(), 1, "{html}");
        assert!(
            html.contains("<pre>a\nb\nc</pre>") && html.contains("data-wall=\"1\""),
            "{html}"
        );
        assert_eq!(piece.next, 4);
        // The same id in another turn is a different call.
        let turn = TranscriptLine {
            events: vec![AgentEvent::TurnStarted { n: 1 }],
            ..update(4, "", ToolStatus::Pending)
        };
        let lines = [lines, vec![turn, update(5, "x", ToolStatus::Failed)]].concat();
        let piece = render_piece(&lines, 1, false);
        assert_eq!(piece.html.matches("<details").count(), 2, "{piece:?}");
    }

    #[test]
    fn piece_of_a_log_is_limited_and_the_next_piece_continues() {
        let long_line = |n: u64| {
            let line = update(n, "", ToolStatus::Pending);
            TranscriptLine {
                events: vec![AgentEvent::Notice {
                    text: "wide words\n".repeat(5_000),
                }],
                ..line
            }
        };
        let lines: Vec<TranscriptLine> = (1..=400).map(long_line).collect();
        let piece = render_piece(&lines, 1, false);
        assert!(piece.html.len() < 2 * MAX_PIECE_BYTES);
        let next = piece.next;
        assert!(next > 1 && next < 400, "{next}");
        assert_eq!(
            (piece.more, render_piece(&[], 401, false).more),
            (true, false)
        );
    }

    #[test]
    fn long_texts_are_cut_with_a_note() {
        let html = text_html(&"x".repeat(10_000_000));
        assert!(
            html.len() < 2 * sanitize::MAX_LINE_CHARS && html.contains("more characters"),
            "{}",
            html.len()
        );
        let html = text_html(&"line\n".repeat(1_000_000));
        assert!(
            html.len() < 2 * MAX_TEXT_CHARS && html.contains("more characters"),
            "{}",
            html.len()
        );
    }
}
