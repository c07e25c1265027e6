//! Prepares the log of an agent's program for `regatta watch`. Each tool call is one group of lines,
//! as on the web page: a call that succeeded is folded, and a running or failed call shows its
//! output. Text from programs is made safe for the terminal here.

use std::collections::{BTreeMap, VecDeque};

use regatta_api::view::JournalRecordView;
use regatta_core::agent_protocol::{AgentEvent, RequestContent, ToolCall, ToolStatus};
use regatta_core::ids::AttemptId;
use regatta_core::plural;

use crate::output::{sanitize_cell, wrap};

/// The maximum number of log lines that the page of a task keeps in memory.
const MAX_LINES: usize = 5_000;
/// The maximum number of characters of one log line that the page of a task shows.
const MAX_LINE_CHARS: usize = 1_000;
/// The maximum number of lines of one tool call's output that the page of a task keeps.
const MAX_CALL_LINES: usize = 40;

/// One entry of the log: lines of text, or a tool call with its newest state.
#[derive(Debug)]
enum LogEntry {
    Text(Vec<String>),
    Call {
        status: ToolStatus,
        /// The first line of the group, such as `✓ cargo test`.
        head: String,
        output: Vec<String>,
    },
}

impl LogEntry {
    fn call(tool: &ToolCall) -> LogEntry {
        let sign = match tool.status {
            ToolStatus::Pending | ToolStatus::InProgress => "▸",
            ToolStatus::Completed => "✓",
            ToolStatus::Failed => "✕",
        };
        let what = tool.describe();
        let head = cut_line(what.lines().next().unwrap_or_default());
        let output = tool.output.as_deref().unwrap_or_default().trim_end();
        let mut lines: VecDeque<&str> = output.lines().collect();
        let omitted = lines.len().saturating_sub(MAX_CALL_LINES);
        lines.drain(..omitted);
        let mut output: Vec<String> = lines.into_iter().map(cut_line).collect();
        if omitted > 0 {
            output.insert(0, format!("… {} before", plural::count(omitted, "line")));
        }
        LogEntry::Call {
            status: tool.status,
            head: format!("{sign} {head}"),
            output,
        }
    }

    fn line_count(&self, shows_all: bool) -> usize {
        match self {
            LogEntry::Text(lines) => lines.len(),
            LogEntry::Call { output, .. } if self.is_open(shows_all) => output.len() + 1,
            LogEntry::Call { .. } => 1,
        }
    }

    /// Returns true if the output of a call is visible: the call runs or failed, or the person has
    /// opened all groups.
    fn is_open(&self, shows_all: bool) -> bool {
        match self {
            LogEntry::Text(_) => true,
            LogEntry::Call { status, .. } => shows_all || *status != ToolStatus::Completed,
        }
    }

    fn add_lines(&self, shows_all: bool, lines: &mut Vec<String>) {
        match self {
            LogEntry::Text(text) => lines.extend_from_slice(text),
            LogEntry::Call { head, output, .. } if self.is_open(shows_all) => {
                lines.push(head.clone());
                lines.extend(output.iter().map(|line| format!("  {line}")));
            }
            LogEntry::Call { head, output, .. } if output.is_empty() => lines.push(head.clone()),
            LogEntry::Call { head, output, .. } => {
                lines.push(format!("{head} · {}", plural::count(output.len(), "line")));
            }
        }
    }
}

/// The log of an attempt's program, as far as it was read, and the person's position in it.
#[derive(Debug)]
pub(super) struct LogPane {
    pub(super) attempt: Option<AttemptId>,
    /// The lines to show, made from the entries.
    pub(super) lines: Vec<String>,
    entries: VecDeque<LogEntry>,
    /// The number of entries that were dropped from the front.
    dropped_entries: usize,
    /// The number of each tool call's entry in this turn, by the call's id.
    calls: BTreeMap<String, usize>,
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
    /// True if the outputs of all tool calls are shown, also of calls that succeeded.
    pub(super) shows_all_output: bool,
    pub(super) problem: Option<String>,
}

impl Default for LogPane {
    fn default() -> LogPane {
        LogPane {
            attempt: None,
            lines: vec![],
            entries: VecDeque::new(),
            dropped_entries: 0,
            calls: BTreeMap::new(),
            next_record: 0,
            is_following: true,
            lines_below: 0,
            is_raw: false,
            shows_all_output: false,
            problem: None,
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

    /// Shows the outputs of all tool calls, or folds the calls that succeeded again.
    pub(super) fn toggle_all_output(&mut self) {
        self.shows_all_output = !self.shows_all_output;
        self.rebuild_lines();
    }

    /// Appends records of the journal (the record of the program's input and output) to the log.
    pub(super) fn append(&mut self, piece: &[JournalRecordView]) {
        if piece.is_empty() {
            return;
        }
        for journal_record in piece {
            self.next_record = self.next_record.max(journal_record.n + 1);
            if self.is_raw {
                self.push_text(&journal_record.line);
            } else {
                self.append_record(journal_record);
            }
        }
        self.rebuild_lines();
    }

    fn append_record(&mut self, journal_record: &JournalRecordView) {
        // A record without known events is shown if it is an error output or a note of the
        // supervisor, because these are meant for people.
        if journal_record.said.is_empty()
            && matches!(journal_record.stream.as_str(), "err" | "mark")
        {
            self.push_text(&journal_record.line);
        }
        for said in &journal_record.said {
            match said {
                AgentEvent::Tool(tool) => self.put_call(tool),
                AgentEvent::TurnStarted { .. } => {
                    // A program may reuse the ids of calls in each turn.
                    self.calls.clear();
                    self.push_event(said);
                }
                _ => self.push_event(said),
            }
        }
    }

    fn push_event(&mut self, event: &AgentEvent) {
        if let Some(text) = format_event(event) {
            self.push_text(&text);
        }
    }

    fn push_text(&mut self, text: &str) {
        let lines: Vec<String> = text.split('\n').map(cut_line).collect();
        let excess = lines.len().saturating_sub(MAX_LINES);
        let lines = lines.into_iter().skip(excess).collect();
        self.entries.push_back(LogEntry::Text(lines));
        self.drop_old_entries();
    }

    /// Adds a tool call, or replaces the entry of the call by its newest state.
    fn put_call(&mut self, tool: &ToolCall) {
        let known = self.calls.get(&tool.id).copied();
        let known = known.and_then(|number| number.checked_sub(self.dropped_entries));
        if let Some(entry) = known.and_then(|index| self.entries.get_mut(index)) {
            *entry = LogEntry::call(tool);
            return;
        }
        let number = self.dropped_entries + self.entries.len();
        self.calls.insert(tool.id.clone(), number);
        self.entries.push_back(LogEntry::call(tool));
        self.drop_old_entries();
    }

    /// Drops the oldest entries, so that a flood of output takes a limited amount of memory.
    fn drop_old_entries(&mut self) {
        while self.entries.len() > MAX_LINES {
            self.entries.pop_front();
            self.dropped_entries += 1;
        }
    }

    fn rebuild_lines(&mut self) {
        let shows_all = self.shows_all_output;
        // Leave out the first entries if the newest ones alone fill the log.
        let (mut first, mut count) = (self.entries.len(), 0);
        while first > 0 && count < MAX_LINES {
            first -= 1;
            count += self.entries[first].line_count(shows_all);
        }
        self.entries.drain(..first);
        self.dropped_entries += first;
        let before = self.lines.len();
        self.lines.clear();
        for entry in &self.entries {
            entry.add_lines(shows_all, &mut self.lines);
        }
        let over = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..over);
        if !self.is_following {
            self.lines_below += self.lines.len().saturating_sub(before);
        }
        self.lines_below = self.lines_below.min(self.lines.len());
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

    fn call(n: u64, id: &str, status: ToolStatus, output: &str) -> JournalRecordView {
        let tool = ToolCall {
            id: id.into(),
            title: "cargo test".into(),
            status,
            output: Some(output.into()),
            ..ToolCall::default()
        };
        JournalRecordView {
            said: vec![AgentEvent::Tool(tool)],
            ..line(n, "")
        }
    }

    /// A tool call is one group: open while it runs and after it failed, folded after it succeeded.
    #[test]
    fn a_call_is_one_group_that_is_folded_when_it_succeeds() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        log.append(&[
            call(1, "t1", ToolStatus::InProgress, ""),
            call(2, "t1", ToolStatus::InProgress, "running 2 tests\n"),
            line(3, "meanwhile"),
        ]);
        assert_eq!(
            log.lines,
            ["▸ cargo test", "  running 2 tests", "meanwhile"]
        );
        log.append(&[
            call(4, "t1", ToolStatus::Completed, "running 2 tests\nok\n"),
            call(5, "t2", ToolStatus::Failed, "1 failed"),
        ]);
        assert_eq!(
            log.lines,
            [
                "✓ cargo test · 2 lines",
                "meanwhile",
                "✕ cargo test",
                "  1 failed"
            ]
        );
        log.toggle_all_output();
        assert_eq!(
            log.lines[..3],
            ["✓ cargo test", "  running 2 tests", "  ok"]
        );
        log.toggle_all_output();
        assert_eq!(log.lines.len(), 4);
    }

    /// A program may use the id of a call again in its next turn, which is another group.
    #[test]
    fn a_call_id_belongs_to_its_turn() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let turn = JournalRecordView {
            said: vec![AgentEvent::TurnStarted { n: 1 }],
            ..line(2, "")
        };
        log.append(&[
            call(1, "t1", ToolStatus::Completed, ""),
            turn,
            call(3, "t1", ToolStatus::Completed, ""),
        ]);
        assert_eq!(log.lines, ["✓ cargo test", "· turn 2", "✓ cargo test"]);
    }

    /// The output of one call is limited to its end, and many calls drop the oldest entries.
    #[test]
    fn long_outputs_and_many_calls_are_limited() {
        let mut log = LogPane::for_attempt(AttemptId(1));
        let output = (0..100).map(|n| format!("line {n}\n")).collect::<String>();
        log.append(&[call(1, "t1", ToolStatus::Failed, &output)]);
        assert_eq!(log.lines.len(), MAX_CALL_LINES + 2);
        assert_eq!(log.lines[1], "  … 60 lines before");
        assert_eq!(log.lines.last().unwrap(), "  line 99");
        let many: Vec<JournalRecordView> = (0..6_000)
            .map(|n| call(n + 2, &format!("c{n}"), ToolStatus::InProgress, ""))
            .collect();
        log.append(&many);
        assert_eq!(log.lines.len(), MAX_LINES);
        log.append(&[call(7_000, "c5999", ToolStatus::Failed, "no")]);
        assert_eq!(log.lines.last().unwrap(), "  no", "the entry is replaced");
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
