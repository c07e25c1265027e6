//! Prepares the log of an agent's program for `regatta watch`. Text from programs is made safe for
//! the terminal here.

use regatta_api::view::JournalRecordView;
use regatta_core::agent_protocol::{AgentEvent, RequestContent, ShownCalls, ToolStatus};
use regatta_core::ids::AttemptId;

use crate::output::{sanitize_cell, wrap};

/// The maximum number of log lines that the page of a task keeps in memory.
const MAX_LINES: usize = 5_000;
/// The maximum number of characters of one log line that the page of a task shows.
const MAX_LINE_CHARS: usize = 1_000;

/// The log of an attempt's program, as far as it was read, and the person's position in it.
#[derive(Debug)]
pub(super) struct LogPane {
    pub(super) attempt: Option<AttemptId>,
    pub(super) lines: Vec<String>,
    /// The number of the next record to read from the attempt's journal (the record of the
    /// program's input and output).
    pub(super) next_record: u64,
    /// True if the end of the log stays visible when new lines arrive.
    pub(super) is_following: bool,
    /// The number of lines that are hidden below the visible lines; 0 while the view follows the
    /// end of the log.
    pub(super) lines_below: usize,
    /// True if lines are shown exactly as the program wrote them (raw); false if they are shown as
    /// readable text.
    pub(super) is_raw: bool,
    pub(super) problem: Option<String>,
    pub(super) shown_calls: ShownCalls,
}

impl Default for LogPane {
    fn default() -> LogPane {
        let calls = ShownCalls::default();
        LogPane {
            attempt: None,
            lines: vec![],
            next_record: 0,
            is_following: true,
            lines_below: 0,
            is_raw: false,
            problem: None,
            shown_calls: calls,
        }
    }
}

impl LogPane {
    pub(super) fn for_attempt(attempt: AttemptId) -> LogPane {
        LogPane {
            attempt: Some(attempt),
            ..LogPane::default()
        }
    }

    /// Returns an empty log of the same attempt, switched between raw and readable, so that it is
    /// read again from its beginning.
    pub(super) fn toggled_raw(&self) -> LogPane {
        LogPane {
            attempt: self.attempt,
            is_raw: !self.is_raw,
            ..LogPane::default()
        }
    }

    /// Appends records of the journal (the record of the program's input and output) to the log, as
    /// lines.
    pub(super) fn append(&mut self, piece: &[JournalRecordView]) {
        for journal_record in piece {
            self.next_record = self.next_record.max(journal_record.n + 1);
            for text in if self.is_raw {
                vec![journal_record.line.clone()]
            } else {
                self.format_record(journal_record)
            } {
                let before = self.lines.len();
                self.lines.extend(text.split('\n').map(cut_line));
                if !self.is_following {
                    self.lines_below += self.lines.len() - before;
                }
            }
        }
        let over = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..over);
        self.lines_below = self.lines_below.min(self.lines.len());
    }

    fn format_record(&mut self, journal_record: &JournalRecordView) -> Vec<String> {
        if journal_record.said.is_empty() {
            // The record has no known events. Show it if it is an error output or a note of the
            // supervisor, because these are meant for people.
            return if matches!(journal_record.stream.as_str(), "err" | "mark") {
                vec![journal_record.line.clone()]
            } else {
                vec![]
            };
        }
        let mut lines = Vec::new();
        for said in &journal_record.said {
            match said {
                AgentEvent::Tool(tool) if !self.shown_calls.should_show(tool) => continue,
                AgentEvent::TurnStarted { .. } => self.shown_calls.begin_turn(),
                _ => {}
            }
            lines.extend(format_event(said));
        }
        lines
    }

    /// Scrolls by `delta` lines: up if negative, otherwise down. After scrolling to the end, the
    /// view follows the log again.
    pub(super) fn scroll(&mut self, delta: isize) {
        self.lines_below = self
            .lines_below
            .saturating_add_signed(-delta)
            .min(self.lines.len().saturating_sub(1));
        self.is_following = self.lines_below == 0;
    }

    /// Returns the visible log lines, at most `height`.
    pub(super) fn view(&self, height: usize) -> &[String] {
        let end = self.lines.len() - self.lines_below.min(self.lines.len());
        &self.lines[end.saturating_sub(height)..end]
    }

    /// Returns the rows to draw in a window of this size. Long lines are wrapped; if rows do not
    /// fit, the first ones are left out.
    pub(super) fn rows(&self, width: usize, height: usize) -> Vec<String> {
        let rows = self
            .view(height)
            .iter()
            .flat_map(|line| wrap(line, width, usize::MAX));
        let rows: Vec<String> = rows.collect();
        let hidden = rows.len().saturating_sub(height);
        rows.into_iter().skip(hidden).collect()
    }
}

/// Returns a line of program output, safe for the terminal and cut to [`MAX_LINE_CHARS`]
/// characters.
pub(super) fn cut_line(line: &str) -> String {
    let short: String = line.chars().take(MAX_LINE_CHARS).collect();
    let omitted = line.chars().skip(MAX_LINE_CHARS).count();
    let short = sanitize_cell(&short);
    if omitted == 0 {
        short
    } else {
        format!("{short} … {omitted} more characters")
    }
}

fn format_event(event: &AgentEvent) -> Option<String> {
    Some(match event {
        AgentEvent::Started { model, .. } => match model {
            Some(model) => format!("· session opened ({model})"),
            None => "· session opened".into(),
        },
        AgentEvent::TurnStarted { n } if *n > 0 => format!("· turn {}", n + 1),
        AgentEvent::Message { text } | AgentEvent::Notice { text } => text.trim_end().to_owned(),
        AgentEvent::Thought { text } => format!("  {}", text.trim()),
        AgentEvent::Tool(tool) => {
            let sign = match tool.status {
                ToolStatus::Pending | ToolStatus::InProgress => "▸",
                ToolStatus::Completed => "✓",
                ToolStatus::Failed => "✕",
            };
            let what = tool.describe();
            format!("{sign} {}", what.lines().next().unwrap_or_default())
        }
        AgentEvent::RequestMade(request) => match &request.content {
            RequestContent::Permission { tool, .. } => format!("? permission: {}", tool.describe()),
            RequestContent::Question { text, .. } => format!("? {text}"),
        },
        AgentEvent::Limited { detail, .. } => format!("! provider limit reached: {detail}"),
        AgentEvent::TurnEnded { detail, .. } if !detail.is_empty() => format!("· {detail}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::agent_protocol::ToolCall;

    fn line(n: u64, text: &str) -> JournalRecordView {
        let said = vec![AgentEvent::Message { text: text.into() }];
        JournalRecordView {
            n,
            at_wall: 0,
            stream: "out".into(),
            line: text.into(),
            said,
        }
    }

    /// S12: program output never brings control characters, direction changes or endless lines to
    /// the terminal.
    #[test]
    fn a_hostile_log_is_inert_s12() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let bad = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}gnp.exe\u{9b}31m\r\u{8}zero\u{200b}width";
        log.append(&[
            line(1, bad),
            line(2, &"x".repeat(10_000_000)),
            line(3, "a\nb\nc"),
        ]);
        assert_eq!((log.lines.len(), log.next_record), (5, 4));
        for text in &log.lines {
            let odd = |c: char| {
                c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            };
            assert!(!text.chars().any(odd), "{text:?}");
            assert!(
                text.chars().count() <= MAX_LINE_CHARS + 40,
                "{}",
                text.chars().count()
            );
        }
        assert!(log.lines[1].ends_with("more characters"));
        // A flood of lines is limited.
        let many = "line\n".repeat(20_000);
        log.append(&[line(4, &many)]);
        assert_eq!(log.lines.len(), MAX_LINES);
    }

    /// A command with many updates takes one line at its start and one at its end.
    #[test]
    fn updates_of_a_running_call_are_shown_once() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let update = |n: u64, status: ToolStatus| {
            let tool = ToolCall {
                id: "t1".into(),
                title: "cargo test".into(),
                status,
                ..ToolCall::default()
            };
            JournalRecordView {
                said: vec![AgentEvent::Tool(tool)],
                ..line(n, "")
            }
        };
        log.append(&[
            update(1, ToolStatus::InProgress),
            update(2, ToolStatus::InProgress),
        ]);
        log.append(&[
            update(3, ToolStatus::InProgress),
            update(4, ToolStatus::Completed),
        ]);
        assert_eq!(log.lines, ["▸ cargo test", "✓ cargo test"]);
    }

    /// The view stays in place after scrolling up, and follows again at the end.
    #[test]
    fn a_log_follows_until_somebody_scrolls_up() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let lines: Vec<JournalRecordView> =
            (0..50).map(|n| line(n, &format!("line {n}"))).collect();
        log.append(&lines);
        assert_eq!(log.view(2), ["line 48", "line 49"]);
        log.scroll(-10);
        let before = log.view(2).to_vec();
        log.append(&[line(50, "line 50"), line(51, "line 51")]);
        assert_eq!(log.view(2), before, "the view stays in place");
        log.scroll(100);
        assert!(log.is_following);
        assert_eq!(log.view(1), ["line 51"]);
        assert_eq!(LogPane::default().view(5), [] as [String; 0]);
    }

    /// A long line is wrapped, and the end of the log is visible.
    #[test]
    fn a_long_line_takes_several_rows() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        log.append(&[line(1, "first"), line(2, "one two three four")]);
        assert_eq!(log.rows(9, 9), ["first", "one two", "three", "four"]);
        assert_eq!(log.rows(9, 2), ["three", "four"]);
        assert_eq!(log.rows(80, 9), ["first", "one two three four"]);
    }

    /// The raw log shows every line as the program wrote it, from the beginning.
    #[test]
    fn a_raw_log_shows_lines_as_written() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let json = JournalRecordView {
            line: "{\"type\":\"message\"}".into(),
            ..line(1, "hello")
        };
        let mute = JournalRecordView {
            said: vec![],
            ..line(2, "{\"type\":\"ping\"}")
        };
        log.append(&[json.clone(), mute.clone()]);
        assert_eq!(log.lines, ["hello"]);
        let mut log = log.toggled_raw();
        assert_eq!((log.attempt, log.next_record), (Some(AttemptId(1)), 0));
        log.append(&[json, mute]);
        assert_eq!(log.lines, ["{\"type\":\"message\"}", "{\"type\":\"ping\"}"]);
        assert!(!log.toggled_raw().is_raw);
    }
}
