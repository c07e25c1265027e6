//! Renders a transcript as HTML, a piece at a time, so that no page holds a whole transcript.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_core::ids::AttemptId;
use regatta_core::session::{Said, Tool, ToolStatus};
use regatta_engine::ports::agents::{Line, Stream};
use serde::Deserialize;

use super::markup;
use crate::entered::Entered;
use crate::{Refused, Shared, bounds, calls};

/// Number of records in a piece.
const PIECE: usize = 500;
/// Size of a piece's HTML at which the piece ends after the current row.
const MAX_PIECE_BYTES: usize = 512 * 1024;
/// Maximum length of one record's text, in characters.
const LONGEST_TEXT: usize = 20_000;

#[derive(Deserialize)]
pub(super) struct Asked {
    /// Number of the journal record to start at.
    #[serde(default)]
    from: u64,
    /// Show the raw lines instead of their meaning.
    #[serde(default)]
    raw: bool,
}

/// Handles `GET /api/v1/page/log/A5?from=0`. Returns the next piece, and the start of the piece
/// after it.
pub(super) async fn log(
    State(shared): State<Arc<Shared>>,
    Path(attempt): Path<String>,
    bounds::Asked(asked): bounds::Asked<Asked>,
    entered: Entered,
) -> Result<Response, Refused> {
    calls::sees_all(&entered.visitor, "read the pages", "use a token with the scope viewer or wider")?;
    let bad =
        |_| Problem::new(400, "bad_id", "this is not the id of an attempt", "see a task's attempts: regatta show T1");
    let attempt: AttemptId = attempt.parse().map_err(bad)?;
    let (agents, from) = (shared.engine.agents().clone(), asked.from);
    let drawn = calls::blocking(move || {
        let lines = agents.transcript(attempt, from, PIECE).map_err(|it| Problem::new(500, "io", it.what, it.hint))?;
        Ok::<_, Problem>(piece(&lines, from, asked.raw))
    });
    Ok(axum::Json(drawn.await??).into_response())
}

/// Renders as many lines as fit into a piece.
fn piece(lines: &[Line], from: u64, raw: bool) -> serde_json::Value {
    let mut rows = Rows::default();
    let mut next = from;
    for line in lines {
        if rows.bytes > MAX_PIECE_BYTES {
            break;
        }
        next = line.record.n + 1;
        let wall = line.record.at;
        if raw {
            rows.push(row(wall, "", &text(&line.record.line)));
        } else if line.said.is_empty() {
            // Output that no driver understood is shown as it is.
            if matches!(line.record.stream, Stream::Err | Stream::Mark) {
                rows.push(row(wall, "aside", &text(&line.record.line)));
            }
        } else {
            line.said.iter().for_each(|said| rows.draw(wall, said));
        }
    }
    // A piece that is full by its size has fewer lines, so only an empty piece is the end.
    serde_json::json!({ "html": rows.html.concat(), "next": next, "more": !lines.is_empty() })
}

/// The rows of a piece. A tool call has one row, which each update replaces.
#[derive(Default)]
struct Rows {
    html: Vec<String>,
    bytes: usize,
    /// By the id of a call: its row, and its start.
    calls: HashMap<String, (usize, u64)>,
}

impl Rows {
    fn push(&mut self, html: String) {
        self.bytes += html.len();
        self.html.push(html);
    }

    fn draw(&mut self, wall: u64, said: &Said) {
        match said {
            Said::Tool(tool) => match self.calls.get(&tool.id) {
                Some((place, began)) => {
                    let html = call(*began, tool);
                    self.bytes = self.bytes - self.html[*place].len() + html.len();
                    self.html[*place] = html;
                }
                None => {
                    self.calls.insert(tool.id.clone(), (self.html.len(), wall));
                    self.push(call(wall, tool));
                }
            },
            // A program may number its calls anew in each turn.
            Said::TurnStarted { n } => {
                self.calls.clear();
                self.push(format!(
                    "<div class=\"say note\" data-turn=\"{n}\" data-wall=\"{wall}\">turn {}</div>",
                    n + 1
                ));
            }
            _ => self.html_of(wall, said).into_iter().for_each(|html| self.push(html)),
        }
    }

    fn html_of(&self, wall: u64, said: &Said) -> Option<String> {
        Some(match said {
            Said::Started { model, .. } => {
                // The program reports it again when another model answers.
                let text = model.as_deref().map_or("session opened".to_owned(), |it| format!("session with {it}"));
                row(wall, "note", &markup::text(&text))
            }
            Said::Message { text: it } => row(wall, "", &text(it)),
            Said::Thought { text: it } => row(wall, "thought", &text(it)),
            Said::Plan { entries } => {
                let lines: Vec<String> = entries.iter().map(|it| format!("· {}", it.text)).collect();
                row(wall, "note", &text(&lines.join("\n")))
            }
            Said::Asked(it) => {
                let what = match &it.want {
                    regatta_core::session::Want::Permission { tool, .. } => {
                        format!("asks for permission: {}", tool.describe())
                    }
                    regatta_core::session::Want::Question { text, .. } => format!("asks: {text}"),
                };
                row(wall, "asks", &text(&what))
            }
            Said::TurnEnded { detail, .. } if !detail.is_empty() => row(wall, "note", &text(detail)),
            Said::Limited { detail, .. } => row(wall, "asks", &text(&format!("the provider's limit: {detail}"))),
            Said::Notice { text: it } => row(wall, "aside", &text(it)),
            Said::Tool(_)
            | Said::TurnStarted { .. }
            | Said::Withdrew { .. }
            | Said::Usage { .. }
            | Said::Context { .. }
            | Said::TurnEnded { .. } => return None,
        })
    }
}

/// Renders text of any length.
fn text(it: &str) -> String {
    let (shown, left) = match it.char_indices().nth(LONGEST_TEXT) {
        Some((at, _)) => (&it[..at], it[at..].chars().count()),
        None => (it, 0),
    };
    let mut out = String::new();
    for (nth, line) in shown.split('\n').enumerate() {
        let (line, over) = markup::cut(line);
        if nth > 0 {
            out.push('\n');
        }
        out.push_str(&markup::terminal(line));
        if over > 0 {
            let _a_string_takes_all = write!(out, "<span class=\"ctl\"> … {over} more characters</span>");
        }
    }
    if left > 0 {
        let _a_string_takes_all = write!(out, "\n<span class=\"ctl\">… {left} more characters</span>");
    }
    out
}

fn row(wall: u64, class: &str, html: &str) -> String {
    format!("<div class=\"say {class}\" data-wall=\"{wall}\">{html}</div>")
}

/// Renders a tool call as a group, which is open while the call runs and after it failed. The page
/// finds the group to replace by its `data-tool`.
fn call(began: u64, tool: &Tool) -> String {
    let (mark, open) = match tool.status {
        ToolStatus::Failed => (" <b class=\"bad\">failed</b>", " open"),
        ToolStatus::InProgress => (" …", " open"),
        ToolStatus::Completed => (" <b class=\"good\">ok</b>", ""),
        ToolStatus::Pending => ("", ""),
    };
    let title = tool.describe();
    let title = markup::text(markup::cut(title.lines().next().unwrap_or_default()).0);
    // An id is text of the program, of any length. The page only compares it.
    let mut hasher = DefaultHasher::new();
    tool.id.hash(&mut hasher);
    let id = format!("{:016x}", hasher.finish());
    let about = format!("class=\"say tool\" data-tool=\"{id}\" data-wall=\"{began}\"");
    match tool.output.as_deref().filter(|output| !output.is_empty()).map(text) {
        Some(body) => format!("<details {about}{open}><summary>{title}{mark}</summary><pre>{body}</pre></details>"),
        None => format!("<div {about}>{title}{mark}</div>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_engine::ports::agents::Record;

    /// S12: text of a program never becomes markup, in any field.
    #[test]
    fn s12_text_of_a_hostile_program_is_escaped() {
        let bad = "<script>alert(1)</script>\u{1b}]0;x\u{7}\u{202e}<a href=\"javascript:alert(1)\">x</a>";
        let tool: Tool = serde_json::from_value(serde_json::json!({
            "id": bad, "title": bad, "kind": "execute", "status": "failed", "command": bad, "output": bad
        }))
        .unwrap();
        let all = [
            Said::Message { text: bad.into() },
            Said::Thought { text: bad.into() },
            Said::Notice { text: bad.into() },
            Said::Started { session: None, model: Some(bad.into()) },
            Said::Limited { until_wall: None, detail: bad.into() },
            Said::Tool(tool),
        ];
        let mut rows = Rows::default();
        all.iter().for_each(|said| rows.draw(7, said));
        let out = rows.html.concat();
        for it in ["<script", "<a ", "\u{1b}", "\u{202e}", "href=\""] {
            assert!(!out.contains(it), "{it}: {out}");
        }
        assert!(out.contains("data-wall=\"7\" open><summary>"), "{out}");
    }

    fn update(n: u64, output: &str, status: ToolStatus) -> Line {
        let tool = Tool {
            id: "t1".into(),
            title: "cargo test".into(),
            output: Some(output.to_owned()),
            status,
            ..Tool::default()
        };
        let record = Record { n, at: n, stream: Stream::Out, line: String::new() };
        Line { record, said: vec![Said::Tool(tool)] }
    }

    #[test]
    fn updates_of_a_tool_call_are_one_group() {
        let mut lines = vec![update(1, "a", ToolStatus::InProgress), update(2, "a\nb", ToolStatus::InProgress)];
        lines.push(update(3, "a\nb\nc", ToolStatus::Completed));
        let drawn = piece(&lines, 1, false);
        let html = drawn["html"].as_str().unwrap();
        assert_eq!(html.matches("<details").count(), 1, "{html}");
        assert!(html.contains("<pre>a\nb\nc</pre>") && html.contains("data-wall=\"1\""), "{html}");
        assert_eq!(drawn["next"], 4);
        // The same id in another turn is a different call.
        let turn = Line { said: vec![Said::TurnStarted { n: 1 }], ..update(4, "", ToolStatus::Pending) };
        let lines = [lines, vec![turn, update(5, "x", ToolStatus::Failed)]].concat();
        let drawn = piece(&lines, 1, false);
        assert_eq!(drawn["html"].as_str().unwrap().matches("<details").count(), 2, "{drawn}");
    }

    #[test]
    fn piece_of_a_log_is_limited_and_the_next_piece_continues() {
        let said = |n: u64| {
            let line = update(n, "", ToolStatus::Pending);
            Line { said: vec![Said::Notice { text: "wide words\n".repeat(5_000) }], ..line }
        };
        let lines: Vec<Line> = (1..=400).map(said).collect();
        let drawn = piece(&lines, 1, false);
        assert!(drawn["html"].as_str().unwrap().len() < 2 * MAX_PIECE_BYTES);
        let next = drawn["next"].as_u64().unwrap();
        assert!(next > 1 && next < 400, "{next}");
        assert_eq!((drawn["more"].clone(), piece(&[], 401, false)["more"].clone()), (true.into(), false.into()));
    }

    #[test]
    fn long_texts_are_cut_with_a_note() {
        let made = text(&"x".repeat(10_000_000));
        assert!(made.len() < 2 * markup::LONGEST && made.contains("more characters"), "{}", made.len());
        let made = text(&"line\n".repeat(1_000_000));
        assert!(made.len() < 2 * LONGEST_TEXT && made.contains("more characters"), "{}", made.len());
    }
}
