//! The log of an attempt's program. Text from programs is made safe to draw here.

use regatta_api::view::LineView;
use regatta_core::ids::AttemptId;
use regatta_core::session::{Said, ShownCalls, ToolStatus, Want};

use crate::out::{inert, wrapped};

/// The largest number of log lines that are kept. [`LONGEST`] is the largest number of characters
/// per line.
const MOST_LINES: usize = 5_000;
const LONGEST: usize = 1_000;

/// The part of a program's log that was read so far.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) attempt: Option<AttemptId>,
    pub(super) lines: Vec<String>,
    /// The number of the next journal record to read.
    pub(super) next: u64,
    /// Whether the view follows the end of the log.
    pub(super) follow: bool,
    /// The number of lines below the view, if it does not follow.
    pub(super) up: usize,
    /// Whether lines are shown as the program wrote them.
    pub(super) raw: bool,
    pub(super) problem: Option<String>,
    pub(super) calls: ShownCalls,
}

impl Default for Log {
    fn default() -> Log {
        let calls = ShownCalls::default();
        Log { attempt: None, lines: vec![], next: 0, follow: true, up: 0, raw: false, problem: None, calls }
    }
}

impl Log {
    pub(super) fn of(attempt: AttemptId) -> Log {
        Log { attempt: Some(attempt), ..Log::default() }
    }

    /// Returns the same log from its beginning, switched between raw and readable.
    pub(super) fn other_way(&self) -> Log {
        Log { attempt: self.attempt, raw: !self.raw, ..Log::default() }
    }

    /// Appends records of the journal.
    pub(super) fn take(&mut self, piece: &[LineView]) {
        for it in piece {
            self.next = self.next.max(it.n + 1);
            for text in if self.raw { vec![it.line.clone()] } else { self.said(it) } {
                let before = self.lines.len();
                self.lines.extend(text.split('\n').map(cut));
                if !self.follow {
                    self.up += self.lines.len() - before;
                }
            }
        }
        let over = self.lines.len().saturating_sub(MOST_LINES);
        self.lines.drain(..over);
        self.up = self.up.min(self.lines.len());
    }

    fn said(&mut self, it: &LineView) -> Vec<String> {
        if it.said.is_empty() {
            // Output that no driver understood is shown, because it is meant for people.
            return if matches!(it.stream.as_str(), "err" | "mark") { vec![it.line.clone()] } else { vec![] };
        }
        let mut lines = Vec::new();
        for said in &it.said {
            match said {
                Said::Tool(tool) if !self.calls.is_news(tool) => continue,
                Said::TurnStarted { .. } => self.calls.begin_turn(),
                _ => {}
            }
            lines.extend(one(said));
        }
        lines
    }

    /// Scrolls up (negative) or down. Following resumes at the end.
    pub(super) fn scroll(&mut self, by: isize) {
        self.up = self.up.saturating_add_signed(-by).min(self.lines.len().saturating_sub(1));
        self.follow = self.up == 0;
    }

    /// Returns the visible lines.
    pub(super) fn view(&self, height: usize) -> &[String] {
        let end = self.lines.len() - self.up.min(self.lines.len());
        &self.lines[end.saturating_sub(height)..end]
    }

    /// Returns the rows of a window. Long lines are wrapped, and the last line is always visible.
    pub(super) fn rows(&self, width: usize, height: usize) -> Vec<String> {
        let rows = self.view(height).iter().flat_map(|it| wrapped(it, width, usize::MAX));
        let rows: Vec<String> = rows.collect();
        let over = rows.len().saturating_sub(height);
        rows.into_iter().skip(over).collect()
    }
}

/// Returns one line, made safe and shortened for drawing.
pub(super) fn cut(line: &str) -> String {
    let short: String = line.chars().take(LONGEST).collect();
    let left = line.chars().skip(LONGEST).count();
    let short = inert(&short);
    if left == 0 { short } else { format!("{short} … {left} more characters") }
}

fn one(said: &Said) -> Option<String> {
    Some(match said {
        Said::Started { model, .. } => match model {
            Some(model) => format!("· session opened ({model})"),
            None => "· session opened".into(),
        },
        Said::TurnStarted { n } if *n > 0 => format!("· turn {}", n + 1),
        Said::Message { text } | Said::Notice { text } => text.trim_end().to_owned(),
        Said::Thought { text } => format!("  {}", text.trim()),
        Said::Tool(tool) => {
            let sign = match tool.status {
                ToolStatus::Pending | ToolStatus::InProgress => "▸",
                ToolStatus::Completed => "✓",
                ToolStatus::Failed => "✕",
            };
            let what = tool.describe();
            format!("{sign} {}", what.lines().next().unwrap_or_default())
        }
        Said::Asked(ask) => match &ask.want {
            Want::Permission { tool, .. } => format!("? permission: {}", tool.describe()),
            Want::Question { text, .. } => format!("? {text}"),
        },
        Said::Limited { detail, .. } => format!("! provider limit reached: {detail}"),
        Said::TurnEnded { detail, .. } if !detail.is_empty() => format!("· {detail}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::session::Tool;

    fn line(n: u64, text: &str) -> LineView {
        let said = vec![Said::Message { text: text.into() }];
        LineView { n, at_wall: 0, stream: "out".into(), line: text.into(), said }
    }

    /// S12: program output never brings control characters, direction changes or endless lines to
    /// the terminal.
    #[test]
    fn a_hostile_log_is_inert_s12() {
        let mut log = Log::of(AttemptId(1));
        let bad = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}gnp.exe\u{9b}31m\r\u{8}zero\u{200b}width";
        log.take(&[line(1, bad), line(2, &"x".repeat(10_000_000)), line(3, "a\nb\nc")]);
        assert_eq!((log.lines.len(), log.next), (5, 4));
        for text in &log.lines {
            let odd = |it: char| it.is_control() || matches!(it, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
            assert!(!text.chars().any(odd), "{text:?}");
            assert!(text.chars().count() <= LONGEST + 40, "{}", text.chars().count());
        }
        assert!(log.lines[1].ends_with("more characters"));
        // A flood of lines is limited.
        let many = "line\n".repeat(20_000);
        log.take(&[line(4, &many)]);
        assert_eq!(log.lines.len(), MOST_LINES);
    }

    /// A command with many updates takes one line at its start and one at its end.
    #[test]
    fn updates_of_a_running_call_are_shown_once() {
        let mut log = Log::of(AttemptId(1));
        let update = |n: u64, status: ToolStatus| {
            let tool = Tool { id: "t1".into(), title: "cargo test".into(), status, ..Tool::default() };
            LineView { said: vec![Said::Tool(tool)], ..line(n, "") }
        };
        log.take(&[update(1, ToolStatus::InProgress), update(2, ToolStatus::InProgress)]);
        log.take(&[update(3, ToolStatus::InProgress), update(4, ToolStatus::Completed)]);
        assert_eq!(log.lines, ["▸ cargo test", "✓ cargo test"]);
    }

    /// The view stays in place after scrolling up, and follows again at the end.
    #[test]
    fn a_log_follows_until_somebody_scrolls_up() {
        let mut log = Log::of(AttemptId(1));
        let lines: Vec<LineView> = (0..50).map(|it| line(it, &format!("line {it}"))).collect();
        log.take(&lines);
        assert_eq!(log.view(2), ["line 48", "line 49"]);
        log.scroll(-10);
        let before = log.view(2).to_vec();
        log.take(&[line(50, "line 50"), line(51, "line 51")]);
        assert_eq!(log.view(2), before, "the view stays in place");
        log.scroll(100);
        assert!(log.follow);
        assert_eq!(log.view(1), ["line 51"]);
        assert_eq!(Log::default().view(5), [] as [String; 0]);
    }

    /// A long line is wrapped, and the end of the log is visible.
    #[test]
    fn a_long_line_takes_several_rows() {
        let mut log = Log::of(AttemptId(1));
        log.take(&[line(1, "first"), line(2, "one two three four")]);
        assert_eq!(log.rows(9, 9), ["first", "one two", "three", "four"]);
        assert_eq!(log.rows(9, 2), ["three", "four"]);
        assert_eq!(log.rows(80, 9), ["first", "one two three four"]);
    }

    /// The raw log shows every line as the program wrote it, from the beginning.
    #[test]
    fn a_raw_log_shows_lines_as_written() {
        let mut log = Log::of(AttemptId(1));
        let json = LineView { line: "{\"type\":\"message\"}".into(), ..line(1, "hello") };
        let mute = LineView { said: vec![], ..line(2, "{\"type\":\"ping\"}") };
        log.take(&[json.clone(), mute.clone()]);
        assert_eq!(log.lines, ["hello"]);
        let mut log = log.other_way();
        assert_eq!((log.attempt, log.next), (Some(AttemptId(1)), 0));
        log.take(&[json, mute]);
        assert_eq!(log.lines, ["{\"type\":\"message\"}", "{\"type\":\"ping\"}"]);
        assert!(!log.other_way().raw);
    }
}
