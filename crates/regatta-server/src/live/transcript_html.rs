//! Renders the entries of a transcript (the recorded output of an agent's program) as HTML.
//!
//! An entry is a row of the log. The body of a closed row is rendered only when a person opens it,
//! and only the first and last lines of a long output are rendered until a person asks for more.

use std::fmt::Write as _;

use regatta_core::agent_protocol::ToolKind;

use super::markdown::markdown_html;
use super::sanitize::{self, TerminalState};
use super::transcript_entries::{Entry, EntryKind, EntryProgress};

/// The number of lines up to which an output is shown as a whole.
const MAX_WHOLE_LINES: usize = 120;
/// The number of lines of a longer output that are shown at its beginning.
const FIRST_LINES: usize = 20;
/// The number of lines of a longer output that are shown at its end.
const LAST_LINES: usize = 80;
/// Maximum number of lines that one request renders.
pub(super) const MAX_LINES_PER_REQUEST: usize = 1_000;
/// Maximum length of the text of a message, question or note that is shown, in characters.
const MAX_TEXT_CHARS: usize = 60_000;
/// Maximum length of an entry's title, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// Returns whether a row is open until a person closes it.
pub(super) fn is_open_at_first(entry: &Entry) -> bool {
    match entry.head.kind {
        EntryKind::Tool(_) => entry.is_running() || entry.is_failed(),
        EntryKind::Thought => false,
        EntryKind::Stderr => entry.text.lines().count() <= FIRST_LINES,
        _ => true,
    }
}

/// Renders a row of the log. The body of a closed row is empty.
pub(super) fn entry_html(entry: &Entry, is_open: bool) -> String {
    let head = &entry.head;
    let time = format!("<time data-at=\"{}\"></time>", head.began_unix_ms);
    match head.kind {
        EntryKind::Tool(kind) => {
            let body = if is_open {
                body_html(entry)
            } else {
                String::new()
            };
            row_html(
                progress_class(head.progress),
                &format!(
                    "{}<b class=\"kind\">{}</b><span class=\"title\">{}</span>",
                    progress_glyph(head.progress),
                    kind_word(kind),
                    title_html(&head.title)
                ),
                &format!("{}{time}", facts_html(entry)),
                &body,
                !entry.text.is_empty() || entry.is_running() || is_title_cut(&head.title),
                is_open,
            )
        }
        EntryKind::Thought | EntryKind::Stderr => {
            let body = if is_open {
                body_html(entry)
            } else {
                String::new()
            };
            let word = if head.kind == EntryKind::Thought {
                "thinking"
            } else {
                "stderr"
            };
            let first = entry.text.lines().find(|line| !line.trim().is_empty());
            row_html(
                "quiet",
                &format!(
                    "<i class=\"mark-none\"></i><b class=\"kind\">{word}</b>\
                     <span class=\"title\">{}</span>",
                    title_html(&sanitize::strip_terminal_sequences(
                        first.unwrap_or_default()
                    ))
                ),
                &format!("{}{time}", lines_fact(entry)),
                &body,
                true,
                is_open,
            )
        }
        EntryKind::Message if entry.text.contains('\u{1b}') => {
            format!("{time}<div class=\"lines\">{}</div>", body_html(entry))
        }
        EntryKind::Message => format!("{time}<div class=\"md\">{}</div>", body_html(entry)),
        EntryKind::Turn => format!("<span>{}</span>{time}", title_html(&head.title)),
        EntryKind::Request => {
            let answer = match head.progress {
                EntryProgress::Running => "waits for an answer",
                EntryProgress::Unfinished => "not answered",
                EntryProgress::Done | EntryProgress::Failed => "answered",
            };
            format!(
                "{time}<b>? {}</b> <span class=\"answer\">{answer}</span>\
                 <div class=\"asked\">{}</div>",
                title_html(&head.title),
                text_html(&entry.text)
            )
        }
        EntryKind::Plan => format!(
            "{time}<b>plan</b><div class=\"asked\">{}</div>",
            text_html(&entry.text)
        ),
        EntryKind::Note => format!("{time}{}", text_html(&head.title)),
        EntryKind::Problem => format!(
            "{time}<b>✕ {}</b><div class=\"asked\">{}</div>",
            title_html(&head.title),
            text_html(&entry.text)
        ),
    }
}

/// Returns the CSS class of a row.
pub(super) fn entry_class(entry: &Entry) -> &'static str {
    match entry.head.kind {
        EntryKind::Tool(_) => "tool",
        EntryKind::Thought => "thought",
        EntryKind::Stderr => "stderr",
        EntryKind::Message => "message",
        EntryKind::Turn => "turn",
        EntryKind::Request if entry.is_running() => "asks",
        EntryKind::Request => "answered",
        EntryKind::Plan => "plan",
        EntryKind::Note => "note",
        EntryKind::Problem => "problem",
    }
}

/// Renders the body of an entry: Markdown for messages and thoughts, numbered lines for output, and
/// above the output a command that is too long for the row.
pub(super) fn body_html(entry: &Entry) -> String {
    match entry.head.kind {
        EntryKind::Tool(_) if is_title_cut(&entry.head.title) => format!(
            "<div class=\"command\">{}</div>{}",
            text_html(&entry.head.title),
            output_html(&entry.text)
        ),
        EntryKind::Message | EntryKind::Thought if !entry.text.contains('\u{1b}') => {
            markdown_html(&entry.text)
        }
        _ => output_html(&entry.text),
    }
}

/// Renders the first and last lines of an output, and a button for the lines between them.
fn output_html(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() {
        return "<p class=\"none\">no output</p>".to_owned();
    }
    let total = text.split('\n').count();
    if total <= MAX_WHOLE_LINES {
        return lines_html(text, 1, total);
    }
    format!(
        "{}{}{}",
        lines_html(text, 1, FIRST_LINES),
        fold_html(FIRST_LINES + 1, total - LAST_LINES),
        lines_html(text, total - LAST_LINES + 1, total)
    )
}

/// Renders the button that shows the lines from `from` to `to`.
pub(super) fn fold_html(from: usize, to: usize) -> String {
    format!(
        "<button type=\"button\" class=\"fold\" data-from=\"{from}\" data-to=\"{to}\">show {} more {}</button>",
        grouped(to + 1 - from),
        if from == to { "line" } else { "lines" }
    )
}

/// Renders the lines from `from` to `to` with their numbers, which are counted from 1. Colours that
/// earlier lines have set continue.
pub(super) fn lines_html(text: &str, from: usize, to: usize) -> String {
    let (mut html, mut state) = (String::new(), TerminalState::default());
    for (index, line) in text.trim_end().split('\n').enumerate() {
        let number = index + 1;
        if number > to {
            break;
        }
        if number < from {
            sanitize::skip_terminal_line(line, &mut state);
            continue;
        }
        let (shown, left) = sanitize::truncate(line);
        let _a_string_takes_all = write!(
            html,
            "<span class=\"ln\" data-n=\"{number}\">{}",
            sanitize::terminal_line_html(shown, &mut state)
        );
        if left > 0 {
            let _a_string_takes_all =
                write!(html, "<span class=\"ctl\"> … {left} more characters</span>");
        }
        html.push_str("\n</span>");
    }
    html
}

fn row_html(
    class: &str,
    what: &str,
    facts: &str,
    body: &str,
    has_body: bool,
    is_open: bool,
) -> String {
    if !has_body {
        return format!(
            "<div class=\"call {class}\"><div class=\"call-head\">{what}<span class=\"call-facts\">{facts}</span></div></div>"
        );
    }
    let open = if is_open { " open" } else { "" };
    format!(
        "<details class=\"call {class}\"{open}><summary class=\"call-head\">{what}\
         <span class=\"call-facts\">{facts}</span></summary><div class=\"body lines\">{body}</div></details>"
    )
}

/// Returns whether a row shows only the beginning of a title.
fn is_title_cut(title: &str) -> bool {
    title.trim_end().contains('\n') || title.chars().nth(MAX_TITLE_CHARS).is_some()
}

fn title_html(title: &str) -> String {
    let first = title.lines().next().unwrap_or_default();
    let shown: String = first.chars().take(MAX_TITLE_CHARS).collect();
    format!(
        "{}{}",
        sanitize::escape(&shown),
        if is_title_cut(title) { " …" } else { "" }
    )
}

fn progress_class(progress: EntryProgress) -> &'static str {
    match progress {
        EntryProgress::Running => "running",
        EntryProgress::Done => "done",
        EntryProgress::Failed => "failed",
        EntryProgress::Unfinished => "unfinished",
    }
}

fn progress_glyph(progress: EntryProgress) -> &'static str {
    match progress {
        EntryProgress::Running => {
            "<i class=\"g\" title=\"running\">▶<span class=\"sr\">running</span></i>"
        }
        EntryProgress::Done => {
            "<i class=\"g\" title=\"succeeded\">✓<span class=\"sr\">succeeded</span></i>"
        }
        EntryProgress::Failed => {
            "<i class=\"g\" title=\"failed\">✕<span class=\"sr\">failed</span></i>"
        }
        EntryProgress::Unfinished => {
            "<i class=\"g\" title=\"the turn ended before this call\">◌<span class=\"sr\">unfinished</span></i>"
        }
    }
}

fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "run",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "mode",
        ToolKind::Other => "tool",
    }
}

fn lines_fact(entry: &Entry) -> String {
    match entry.text.trim_end() {
        "" => String::new(),
        text => match text.split('\n').count() {
            1 => "<span>1 line</span>".to_owned(),
            lines => format!("<span>{} lines</span>", grouped(lines)),
        },
    }
}

/// Renders the number of lines, the exit code and the duration of a tool call.
fn facts_html(entry: &Entry) -> String {
    let head = &entry.head;
    let mut html = lines_fact(entry);
    if let Some(code) = head.exit_code.filter(|code| *code != 0) {
        let _a_string_takes_all = write!(html, "<span class=\"exit\">exit {code}</span>");
    }
    match head.progress {
        EntryProgress::Running => {
            let _a_string_takes_all =
                write!(html, "<span data-since=\"{}\"></span>", head.began_unix_ms);
        }
        EntryProgress::Unfinished => html.push_str("<span>no result</span>"),
        EntryProgress::Done | EntryProgress::Failed => {
            let duration_ms = head.ended_unix_ms.saturating_sub(head.began_unix_ms);
            // Many programs report a call only when it has ended.
            if duration_ms > 0 {
                let _a_string_takes_all =
                    write!(html, "<span>{}</span>", duration_text(duration_ms));
            }
        }
    }
    html
}

fn duration_text(ms: u64) -> String {
    match ms {
        0..100 => "<0.1 s".replace('<', "&lt;"),
        100..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..60_000 => format!("{} s", ms / 1_000),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Renders a text as HTML, and cuts it if it is too long.
fn text_html(text: &str) -> String {
    let (shown, left) = match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((position, _)) => (&text[..position], text[position..].chars().count()),
        None => (text, 0),
    };
    let (mut html, mut state) = (String::new(), TerminalState::default());
    for (nth, line) in shown.split('\n').enumerate() {
        let (line, cut) = sanitize::truncate(line);
        if nth > 0 {
            html.push('\n');
        }
        html.push_str(&sanitize::terminal_line_html(line, &mut state));
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

#[cfg(test)]
mod tests;
