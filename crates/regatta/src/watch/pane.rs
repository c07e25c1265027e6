//! What a task's program said. Text of others is made harmless here.

use regatta_api::view::LineView;
use regatta_core::ids::AttemptId;
use regatta_core::session::{Said, ShownCalls, ToolStatus, Want};

use crate::out::{inert, wrapped};

/// How many lines of a log are kept, and how long one may be.
const MOST_LINES: usize = 5_000;
const LONGEST: usize = 1_000;

/// What an attempt's program said, as far as it was read.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) attempt: Option<AttemptId>,
    pub(super) lines: Vec<String>,
    /// The place in the journal to read on from.
    pub(super) next: u64,
    /// The end is in view, and stays so.
    pub(super) follow: bool,
    /// How many lines from the end, while not following.
    pub(super) up: usize,
    /// Each line as the program wrote it.
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

    /// The same log from its beginning, as the program wrote it or as it is meant.
    pub(super) fn other_way(&self) -> Log {
        Log { attempt: self.attempt, raw: !self.raw, ..Log::default() }
    }

    /// Takes in the next piece of the journal.
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
            // What a program printed and no driver made sense of is for people.
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

    /// Scrolls up (negative) or down; at the end it follows again.
    pub(super) fn scroll(&mut self, by: isize) {
        self.up = self.up.saturating_add_signed(-by).min(self.lines.len().saturating_sub(1));
        self.follow = self.up == 0;
    }

    /// The lines in view.
    pub(super) fn view(&self, height: usize) -> &[String] {
        let end = self.lines.len() - self.up.min(self.lines.len());
        &self.lines[end.saturating_sub(height)..end]
    }

    /// The rows of a window: what is said is read to its end, so a long line takes several, and the last is in view.
    pub(super) fn rows(&self, width: usize, height: usize) -> Vec<String> {
        let rows = self.view(height).iter().flat_map(|it| wrapped(it, width, usize::MAX));
        let rows: Vec<String> = rows.collect();
        let over = rows.len().saturating_sub(height);
        rows.into_iter().skip(over).collect()
    }
}

/// One line of any length, harmless, and short enough to draw.
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
            Want::Permission { tool, .. } => format!("? may it {}", tool.describe()),
            Want::Question { text, .. } => format!("? {text}"),
        },
        Said::Limited { detail, .. } => format!("! the provider's limit: {detail}"),
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

    /// S12, in a terminal: whatever a program says, no control, no direction and no endless line reaches the screen.
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
        // A flood is kept within bounds.
        let many = "line\n".repeat(20_000);
        log.take(&[line(4, &many)]);
        assert_eq!(log.lines.len(), MOST_LINES);
    }

    /// A command that prints many lines is one line when it begins and one when it ends.
    #[test]
    fn updates_of_a_call_that_runs_are_shown_once() {
        let mut log = Log::of(AttemptId(1));
        let update = |n: u64, status: ToolStatus| {
            let tool = Tool { id: "t1".into(), title: "cargo test".into(), status, ..Tool::default() };
            LineView { said: vec![Said::Tool(tool)], ..line(n, "") }
        };
        log.take(&[update(1, ToolStatus::InProgress), update(2, ToolStatus::InProgress)]);
        log.take(&[update(3, ToolStatus::InProgress), update(4, ToolStatus::Completed)]);
        assert_eq!(log.lines, ["▸ cargo test", "✓ cargo test"]);
    }

    /// Whoever scrolled up stays where they were while more comes, and the end follows again.
    #[test]
    fn a_log_follows_until_somebody_scrolls_up() {
        let mut log = Log::of(AttemptId(1));
        let lines: Vec<LineView> = (0..50).map(|it| line(it, &format!("line {it}"))).collect();
        log.take(&lines);
        assert_eq!(log.view(2), ["line 48", "line 49"]);
        log.scroll(-10);
        let before = log.view(2).to_vec();
        log.take(&[line(50, "line 50"), line(51, "line 51")]);
        assert_eq!(log.view(2), before, "what was read stays in view");
        log.scroll(100);
        assert!(log.follow);
        assert_eq!(log.view(1), ["line 51"]);
        assert_eq!(Log::default().view(5), [] as [String; 0]);
    }

    /// A long line is read to its end, and the end of the log is what is in view.
    #[test]
    fn a_long_line_takes_several_rows() {
        let mut log = Log::of(AttemptId(1));
        log.take(&[line(1, "first"), line(2, "one two three four")]);
        assert_eq!(log.rows(9, 9), ["first", "one two", "three", "four"]);
        assert_eq!(log.rows(9, 2), ["three", "four"]);
        assert_eq!(log.rows(80, 9), ["first", "one two three four"]);
    }

    /// Raw is what the program wrote, also where no driver made sense of it; it is read from its beginning.
    #[test]
    fn a_raw_log_is_what_was_written() {
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
