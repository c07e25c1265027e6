//! What a program said, as markup, a piece at a time: no page ever holds a whole log.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_core::ids::AttemptId;
use regatta_core::session::{Said, Tool, ToolStatus};
use serde::Deserialize;

use super::markup;
use crate::entered::Entered;
use crate::{Refused, Shared, bounds, calls};

/// How many records are sent at once.
const PIECE: usize = 500;
/// How long one record's text may be, in characters.
const LONGEST_TEXT: usize = 20_000;

#[derive(Deserialize)]
pub(super) struct Asked {
    /// The place in the journal to begin at.
    #[serde(default)]
    from: u64,
    /// As it was said, without sense made of it.
    #[serde(default)]
    raw: bool,
}

/// `GET /api/v1/page/log/A5?from=0`: the next piece, and where the one after it begins.
pub(super) async fn log(
    State(shared): State<Arc<Shared>>,
    Path(attempt): Path<String>,
    bounds::Asked(asked): bounds::Asked<Asked>,
    entered: Entered,
) -> Result<Response, Refused> {
    calls::sees_all(&entered.visitor, "look at the pages", "use a token with the scope viewer or wider")?;
    let bad = |_| Problem::new(400, "bad_id", "that is no attempt", "see a task's attempts: regatta show T1");
    let attempt: AttemptId = attempt.parse().map_err(bad)?;
    let (agents, from) = (shared.engine.agents().clone(), asked.from);
    let drawn = calls::blocking(move || {
        let lines = agents.transcript(attempt, from, PIECE).map_err(|it| Problem::new(500, "io", it.what, it.hint))?;
        let (mut html, mut next) = (String::new(), from);
        for it in &lines {
            next = it.record.n + 1;
            if asked.raw {
                row(&mut html, it.record.at, "", &text(&it.record.line));
            } else if it.said.is_empty() {
                // What a program printed and no driver made sense of is for people.
                let stream = serde_json::to_value(it.record.stream).unwrap_or_default();
                if matches!(stream.as_str(), Some("err" | "mark")) {
                    row(&mut html, it.record.at, "aside", &text(&it.record.line));
                }
            } else {
                it.said.iter().for_each(|said| draw(&mut html, it.record.at, said));
            }
        }
        Ok::<_, Problem>(serde_json::json!({ "html": html, "next": next, "more": lines.len() == PIECE }))
    });
    Ok(axum::Json(drawn.await??).into_response())
}

/// Text of any length, as markup.
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

fn row(out: &mut String, wall: u64, class: &str, html: &str) {
    let _a_string_takes_all = write!(out, "<div class=\"say {class}\" data-wall=\"{wall}\">{html}</div>");
}

fn draw(out: &mut String, wall: u64, said: &Said) {
    match said {
        Said::Started { model, .. } => {
            // It is said again when another model answers.
            let text = model.as_deref().map_or("session opened".to_owned(), |it| format!("session with {it}"));
            row(out, wall, "note", &markup::text(&text));
        }
        Said::TurnStarted { n } => row(out, wall, "note", &format!("turn {}", n + 1)),
        Said::Message { text: it } => row(out, wall, "", &text(it)),
        Said::Thought { text: it } => row(out, wall, "thought", &text(it)),
        Said::Tool(it) => tool(out, wall, it),
        Said::Plan { entries } => {
            let lines: Vec<String> = entries.iter().map(|it| format!("· {}", it.text)).collect();
            row(out, wall, "note", &text(&lines.join("\n")));
        }
        Said::Asked(it) => {
            let what = match &it.want {
                regatta_core::session::Want::Permission { tool, .. } => {
                    format!("asks: may it {}", tool.describe())
                }
                regatta_core::session::Want::Question { text, .. } => format!("asks: {text}"),
            };
            row(out, wall, "asks", &text(&what));
        }
        Said::TurnEnded { detail, .. } if !detail.is_empty() => row(out, wall, "note", &text(detail)),
        Said::Limited { detail, .. } => row(out, wall, "asks", &text(&format!("the provider's limit: {detail}"))),
        Said::Notice { text: it } => row(out, wall, "aside", &text(it)),
        Said::Withdrew { .. } | Said::Usage { .. } | Said::Context { .. } | Said::TurnEnded { .. } => {}
    }
}

/// A tool call is a group that opens by itself when it runs or failed.
fn tool(out: &mut String, wall: u64, it: &Tool) {
    let (mark, open) = match it.status {
        ToolStatus::Failed => (" <b class=\"bad\">failed</b>", " open"),
        ToolStatus::InProgress => (" …", " open"),
        ToolStatus::Completed => (" <b class=\"good\">ok</b>", ""),
        ToolStatus::Pending => ("", ""),
    };
    let title = it.describe();
    let title = markup::text(markup::cut(title.lines().next().unwrap_or_default()).0);
    let body = it.output.as_deref().filter(|it| !it.is_empty()).map(text);
    let _a_string_takes_all = match body {
        Some(body) => write!(
            out,
            "<details class=\"say tool\" data-wall=\"{wall}\"{open}><summary>{title}{mark}</summary><pre>{body}</pre></details>"
        ),
        None => write!(out, "<div class=\"say tool\" data-wall=\"{wall}\">{title}{mark}</div>"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S12: whatever a program says, in whichever field, no markup comes of it.
    #[test]
    fn a_hostile_program_stays_text_s12() {
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
        let mut out = String::new();
        all.iter().for_each(|it| draw(&mut out, 7, it));
        for it in ["<script", "<a ", "\u{1b}", "\u{202e}", "href=\""] {
            assert!(!out.contains(it), "{it}: {out}");
        }
        assert!(out.contains("<details class=\"say tool\" data-wall=\"7\" open>"), "{out}");
    }

    #[test]
    fn long_texts_are_cut_and_say_so() {
        let made = text(&"x".repeat(10_000_000));
        assert!(made.len() < 2 * markup::LONGEST && made.contains("more characters"), "{}", made.len());
        let made = text(&"line\n".repeat(1_000_000));
        assert!(made.len() < 2 * LONGEST_TEXT && made.contains("more characters"), "{}", made.len());
    }
}
