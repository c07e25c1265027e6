//! Prints the output of commands.
//!
//! Answers go to standard output, everything else to standard error. With `--json` an answer is one
//! JSON object. Errors state what happened, why, and the command to type next. This module also
//! lays out tables and makes text from other programs safe for a terminal; the commands decide what
//! to print.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use regatta_api::Problem;
pub(crate) use regatta_api::view::short_duration;
use regatta_core::display::{ColourRole, DisplayState};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::own_program;

/// The output settings of one command: text or JSON, the amount of output, colours and symbols.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) quiet_level: u8,
    pub(crate) has_colour: bool,
    pub(crate) has_hints: bool,
    pub(crate) is_unicode: bool,
    /// The command line of the pager for long answers; `None` prints without a pager.
    pub(crate) pager: Option<String>,
    /// The word that starts this program, if a person reads the output and the shell does not find
    /// the program as `regatta`.
    pub(crate) program: Option<&'static str>,
}

/// The error with which a command of the command line ends.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// An error to print: a code, a message and a hint.
    Problem(Box<Problem>),
    /// Only an exit code, because the command has already printed everything.
    Exit(u8),
}

impl CommandError {
    /// Returns the error's message without its hint.
    pub(crate) fn message(&self) -> String {
        match self {
            CommandError::Problem(problem) => problem.message.clone(),
            CommandError::Exit(code) => format!("ended with exit code {code}"),
        }
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> CommandError {
        CommandError::Problem(Box::new(problem))
    }
}

/// Returns an error that this program itself (and not the daemon) found: its code, message and
/// hint.
pub(crate) fn command_error(
    code: &str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> CommandError {
    Problem::new(500, code, message, hint).into()
}

/// Returns an error that only a bug in Regatta can cause.
pub(crate) fn internal_error(message: impl Into<String>) -> CommandError {
    let hint = "report this with the command you typed and the output of regatta version";
    command_error("bug", message, hint)
}

/// Returns the error that an async runtime could not be started.
pub(crate) fn runtime_error(error: std::io::Error) -> CommandError {
    command_error(
        "io",
        format!("could not start the async runtime: {error}"),
        "close other programs and try again",
    )
}

/// Returns the path of this program.
pub(crate) fn own_executable() -> Result<std::path::PathBuf, CommandError> {
    std::env::current_exe().map_err(|error| {
        command_error(
            "io",
            format!("could not find the path of this program: {error}"),
            "call regatta by its full path",
        )
    })
}

/// Returns an error about wrong arguments of the command, which ends with exit code 2.
pub(crate) fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> CommandError {
    Problem::new(400, "usage", message, hint).into()
}

pub(crate) type CommandResult = Result<(), CommandError>;

impl Output {
    /// Prints the answer of a command: `data` as JSON with `--json`, otherwise the text that `text`
    /// returns. `next` lists the commands that a person may want next.
    pub(crate) fn print_answer<T: Serialize>(
        &self,
        kind: &str,
        data: &T,
        next: &[String],
        text: impl FnOnce(&Output) -> String,
    ) -> CommandResult {
        let json = if self.is_json {
            Some(serde_json::value::to_raw_value(data))
        } else {
            None
        };
        self.print_answer_text(kind, json, next, Box::new(text))
    }

    /// Does the work of [`Output::print_answer`]. This function is not generic, so that it is
    /// compiled only once.
    fn print_answer_text(
        &self,
        kind: &str,
        json: Option<serde_json::Result<Box<RawValue>>>,
        next: &[String],
        text: Box<dyn FnOnce(&Output) -> String + '_>,
    ) -> CommandResult {
        if let Some(data) = json {
            #[derive(Serialize)]
            struct Envelope<'a> {
                v: u32,
                kind: &'a str,
                data: &'a RawValue,
                #[serde(skip_serializing_if = "<[String]>::is_empty")]
                next: &'a [String],
            }
            let line = data
                .and_then(|data| {
                    serde_json::to_string(&Envelope {
                        v: 1,
                        kind,
                        data: &data,
                        next,
                    })
                })
                .map_err(|error| {
                    internal_error(format!("could not encode the answer as JSON: {error}"))
                })?;
            return self.print(&format!("{line}\n"));
        }
        if self.quiet_level >= 2 {
            return Ok(());
        }
        let text = self.fold_to_ascii(text(self));
        if !self
            .pager
            .as_ref()
            .is_some_and(|pager| crate::pager::show_in_pager(pager, &text))
        {
            self.print(&text)?;
        }
        if self.has_hints && self.quiet_level == 0 && !next.is_empty() {
            let next: Vec<String> = next.iter().map(|line| self.command(line)).collect();
            self.print_line_to_stderr(format!("next: {}", next.join(" · ")));
        }
        Ok(())
    }

    /// Returns the same settings with a pager, if the output is a terminal and a pager is
    /// available.
    pub(crate) fn with_pager(&self) -> Output {
        let may_page = is_stdout_watched() && !self.is_json && self.quiet_level < 2;
        let pager = if may_page {
            crate::pager::choose_pager(|name| std::env::var_os(name), crate::pager::is_installed)
        } else {
            None
        };
        Output {
            pager,
            ..self.clone()
        }
    }

    /// Writes to standard output. If the reader has closed the pipe, the command ends without an
    /// error.
    pub(crate) fn print(&self, text: &str) -> CommandResult {
        let mut stdout = std::io::stdout().lock();
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Err(CommandError::Exit(0))
            }
            Err(error) => Err(command_error(
                "io",
                format!("could not print the answer: {error}"),
                "check the file or disk to which standard output goes",
            )),
        }
    }

    /// Prints a remark on standard error, in addition to the answer. Prints nothing with `--quiet`
    /// or `--json`.
    pub(crate) fn print_note(&self, text: &str) {
        if self.quiet_level == 0 && !self.is_json {
            self.print_line_to_stderr(self.command(text));
        }
    }

    fn print_line_to_stderr(&self, line: String) {
        // If standard error is closed, the line is lost, which does no harm.
        let _gone = writeln!(std::io::stderr(), "{}", self.fold_to_ascii(line));
    }

    /// Returns a message with its `regatta` commands as they work in this shell.
    pub(crate) fn command(&self, text: &str) -> String {
        match self.program {
            Some(word) => own_program::name_program(text, word),
            None => text.to_owned(),
        }
    }

    /// Replaces the symbols that Regatta prints by ASCII, if the locale is not Unicode.
    fn fold_to_ascii(&self, text: String) -> String {
        if self.is_unicode || text.is_ascii() {
            return text;
        }
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '·' => plain.push('|'),
                '→' => plain.push_str("->"),
                '…' => plain.push_str("..."),
                '✓' => plain.push('+'),
                '✕' => plain.push('x'),
                other => plain.push(other),
            }
        }
        plain
    }

    /// Prints the error of a command and returns its exit code.
    pub(crate) fn finish(&self, result: CommandResult) -> ExitCode {
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(CommandError::Exit(code)) => ExitCode::from(code),
            Err(CommandError::Problem(problem)) => {
                let code = problem.exit_code();
                let text = if self.is_json {
                    json_error(&problem)
                } else {
                    self.fold_to_ascii(self.format_error(&problem))
                };
                if self.is_json || self.quiet_level < 2 {
                    let _gone = write!(std::io::stderr(), "{text}");
                }
                ExitCode::from(code)
            }
        }
    }

    fn format_error(&self, problem: &Problem) -> String {
        let mut text = format!("{} {}\n", self.paint("error:", "31;1"), problem.message);
        if !problem.hint.is_empty() {
            // A hint can have several lines; align them below the first one.
            let hint = self.command(&problem.hint);
            let hint = hint.lines().collect::<Vec<_>>().join("\n       ");
            text += &format!("  {} {hint}\n", self.paint("hint", "36"));
        }
        text
    }

    /// Wraps a word in the codes of a terminal style, such as `1` for bold, if colours are enabled.
    pub(crate) fn paint(&self, word: &str, style: &str) -> String {
        if self.has_colour {
            format!("\x1b[{style}m{word}\x1b[0m")
        } else {
            word.to_owned()
        }
    }

    /// Formats a state with its glyph and colour. The text `label` may be more specific than the
    /// name of the state.
    pub(crate) fn format_state(&self, state: DisplayState, label: &str) -> String {
        self.paint(
            &format!("{} {label}", self.state_glyph(state)),
            state_colour(state),
        )
    }

    /// Returns the symbol for a state, such as `✓`.
    pub(crate) fn state_glyph(&self, state: DisplayState) -> &'static str {
        state_glyph(state, self.is_unicode)
    }
}

/// Returns the symbol for a state, for a terminal with or without Unicode.
pub(crate) fn state_glyph(state: DisplayState, is_unicode: bool) -> &'static str {
    if is_unicode {
        state.glyph()
    } else {
        state.ascii_glyph()
    }
}

/// Returns the terminal's code for the colour of a state.
pub(crate) fn state_colour(state: DisplayState) -> &'static str {
    match state.colour() {
        ColourRole::Bad => "31",
        ColourRole::Attention => "35;1",
        ColourRole::Waiting => "33",
        ColourRole::Checking => "36",
        ColourRole::Active => "34",
        ColourRole::Good => "32",
        ColourRole::Quiet => "2",
    }
}

/// Formats an error as the JSON object that `--json` prints on standard error.
pub(crate) fn json_error(problem: &Problem) -> String {
    #[derive(Serialize)]
    struct Envelope<'a> {
        v: u32,
        error: Body<'a>,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        code: &'a str,
        message: &'a str,
        hint: &'a str,
        retryable: bool,
        #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
        about: Option<&'a str>,
    }
    let body = Body {
        code: &problem.code,
        message: &problem.message,
        hint: &problem.hint,
        retryable: problem.retryable,
        about: problem.about.as_deref(),
    };
    serde_json::to_string(&Envelope { v: 1, error: body })
        .map(|line| line + "\n")
        .unwrap_or_default()
}

/// Returns true if an agent runs this program. In that case the program prints no hints, questions
/// or progress displays.
pub(crate) fn is_in_agent() -> bool {
    [
        "REGATTA_AGENT",
        "CLAUDECODE",
        "CODEX_SANDBOX",
        "GEMINI_CLI",
        "OPENCODE",
    ]
    .iter()
    .any(|variable| std::env::var_os(variable).is_some())
}

/// Returns true if a person probably watches standard output, because it is a terminal and no agent
/// runs this program.
pub(crate) fn is_stdout_watched() -> bool {
    std::io::stdout().is_terminal()
        && !is_in_agent()
        && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Returns true if a person probably reads the output or the errors, because one of them goes to a
/// terminal and no agent runs this program.
pub(crate) fn is_person_reading() -> bool {
    is_stdout_watched() || (std::io::stderr().is_terminal() && !is_in_agent())
}

/// Formats a table with one line per row. Columns are as wide as their content, or are cut to fit
/// the terminal's window.
pub(crate) fn format_table(rows: &[Vec<String>]) -> String {
    format_table_for(rows, window_width())
}

/// The minimum width to which a column is cut.
const MIN_CUT_WIDTH: usize = 12;

/// The maximum width of a column if the output is a file or a pipe. A longer cell is printed
/// completely and shifts only its own row.
const MAX_COLUMN_WIDTH: usize = 60;

/// Formats a table for a window of the given width; without a window nothing is cut.
pub(crate) fn format_table_for(rows: &[Vec<String>], window: Option<usize>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let max_width_of = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| display_width(cell));
        cells
            .filter(|cell| window.is_some() || *cell <= MAX_COLUMN_WIDTH)
            .max()
            .unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(max_width_of).collect();
    if let (Some(window), Some(last)) = (window, columns.checked_sub(1)) {
        let room = window.saturating_sub(2 * last);
        let excess = |widths: &[usize]| widths.iter().sum::<usize>().saturating_sub(room);
        // Cut the last column first, because it usually has the longest text. If the table is still
        // too wide, cut the widest columns, and finally the last column again.
        widths[last] -= excess(&widths).min(widths[last].saturating_sub(MIN_CUT_WIDTH));
        while let Some(column) = (0..last)
            .filter(|column| widths[*column] > MIN_CUT_WIDTH)
            .max_by_key(|column| widths[*column])
            && excess(&widths) > 0
        {
            widths[column] -= 1;
        }
        widths[last] -= excess(&widths).min(widths[last]);
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let cell = if window.is_some() {
                cut_to_width(cell, widths[column])
            } else {
                cell.clone()
            };
            line += &cell;
            line += &" ".repeat(
                (widths[column] + 2)
                    .saturating_sub(display_width(&cell))
                    .max(2),
            );
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Formats a table whose last column is wrapped and not cut, because people came to read it.
pub(crate) fn format_wrapped_table(rows: &[Vec<String>], window: Option<usize>) -> String {
    let Some(window) = window else {
        return format_table_for(rows, None);
    };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let Some(last) = columns.checked_sub(1) else {
        return String::new();
    };
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| display_width(cell)).max().unwrap_or(0)
    };
    let indent: usize = (0..last).map(|column| width_of(column) + 2).sum();
    let room = window.saturating_sub(indent);
    if room < MIN_CUT_WIDTH {
        return format_table_for(rows, Some(window));
    }
    let mut text = String::new();
    for row in rows {
        let lines = row
            .get(last)
            .map(|cell| wrap(cell, room, MAX_WRAPPED_LINES));
        let lines = lines.unwrap_or_default();
        let mut head = String::new();
        for (column, cell) in row.iter().take(last).enumerate() {
            head += &pad_or_cut(cell, width_of(column) + 2);
        }
        let first = lines.first().map_or("", String::as_str);
        text += &format!("{}\n", format!("{head}{first}").trim_end());
        for line in lines.iter().skip(1) {
            text += &format!("{}{line}\n", " ".repeat(indent));
        }
    }
    text
}

/// The maximum number of lines of one cell in [`format_wrapped_table`].
const MAX_WRAPPED_LINES: usize = 8;

/// Returns the width of the terminal's window in columns, if standard output is a terminal.
pub(crate) fn window_width() -> Option<usize> {
    if !is_stdout_watched() {
        return None; // lines for files and programs are not cut
    }
    std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .or_else(|| {
            let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
            (size.ws_col > 0).then_some(usize::from(size.ws_col))
        })
}

/// Returns the height of the terminal's window in lines, if standard output is a terminal.
pub(crate) fn window_height() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_row > 0).then_some(usize::from(size.ws_row))
}

/// Returns the number of columns that a text takes in a terminal, without its colour codes.
pub(crate) fn display_width(cell: &str) -> usize {
    let mut width = 0;
    let mut escaped = false;
    for c in cell.chars() {
        match (escaped, c) {
            (false, '\x1b') => escaped = true,
            (true, 'm') => escaped = false,
            (true, _) => {}
            (false, _) => width += char_width(c),
        }
    }
    width
}

/// Returns the number of columns that a character takes in a terminal: 0, 1 or 2.
fn char_width(c: char) -> usize {
    if c.is_ascii() {
        1
    } else {
        ratatui::text::Span::raw(c.to_string()).width()
    }
}

/// Returns the beginning of a text that fits into `room` columns.
pub(crate) fn prefix_of_width(text: &str, room: usize) -> String {
    let mut width = 0;
    let fits = |c: &char| {
        width += char_width(*c);
        width <= room
    };
    text.chars().take_while(fits).collect()
}

/// Returns true if a text fits into `room` columns, without measuring all of a long text.
fn fits_width(text: &str, room: usize) -> bool {
    prefix_of_width(text, room).len() == text.len()
}

/// Breaks a text into lines of at most `room` columns, between words where possible. After
/// `max_lines` lines the rest is replaced by an ellipsis.
pub(crate) fn wrap(text: &str, room: usize, max_lines: usize) -> Vec<String> {
    let room = room.max(1);
    let (mut lines, mut last) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        let free = room.saturating_sub(display_width(&last));
        if !last.is_empty() && !fits_width(word.trim_end(), free) {
            lines.push(std::mem::take(&mut last));
        }
        // Break a word that is longer than a line. If not even one character fits, print one
        // character anyway and let the terminal break the line.
        let mut word = word;
        while lines.len() <= max_lines && !fits_width(word.trim_end(), room) {
            let part = prefix_of_width(word, room);
            let Some(rest) = word.get(part.len()..).filter(|_| !part.is_empty()) else {
                break;
            };
            lines.push(part);
            word = rest;
        }
        if lines.len() > max_lines {
            break;
        }
        last.push_str(word);
    }
    lines.push(last);
    if lines.len() > max_lines {
        lines.truncate(max_lines);
        if let Some(last) = lines.last_mut() {
            *last = prefix_of_width(last.trim_end(), room - 1) + "…";
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Returns a text with exactly `room` columns: cut with an ellipsis, or padded with spaces.
pub(crate) fn pad_or_cut(text: &str, room: usize) -> String {
    let text = cut_to_width(text, room);
    let padding = room.saturating_sub(display_width(&text));
    text + &" ".repeat(padding)
}

/// Cuts a cell to `room` columns, with an ellipsis if something was left out.
pub(crate) fn cut_to_width(cell: &str, room: usize) -> String {
    if cell.contains('\x1b') || fits_width(cell, room) {
        return cell.to_owned(); // only states have colour codes, and they are short
    }
    match room {
        0 => String::new(),
        _ => prefix_of_width(cell, room - 1) + "…",
    }
}

/// Formats a duration precisely: `41s`, `2m 03s`, `1h 05m`.
pub(crate) fn format_exact_duration(ms: u64) -> String {
    match ms / 1_000 {
        n @ 0..60 => format!("{n}s"),
        n @ 60..3_600 => format!("{}m {:02}s", n / 60, n % 60),
        n @ 3_600..172_800 => format!("{}h {:02}m", n / 3_600, n / 60 % 60),
        n => format!("{}d {:02}h", n / 86_400, n / 3_600 % 24),
    }
}

/// Formats the time since `wall_ms` (Unix milliseconds): `12s`, `4m`, `3h`, `2d`.
pub(crate) fn format_age(wall_ms: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |duration| duration.as_millis() as u64);
    short_duration(now.saturating_sub(wall_ms))
}

/// Makes text from agents or other programs safe to print. Replaces control characters, invisible
/// characters and characters that change the writing direction.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c != '\n' && is_unsafe_char(c) {
                ' '
            } else {
                c
            }
        })
        .collect()
}

/// Like [`sanitize`], for text that is drawn in one line: also replaces tabs and line ends.
pub(crate) fn sanitize_cell(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '\r')
        .map(|c| if is_unsafe_char(c) { ' ' } else { c })
        .collect()
}

/// Returns true if a character could control the terminal, or make a text look different from its
/// real content.
fn is_unsafe_char(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the first line of a text, safe to print.
pub(crate) fn first_line(text: &str) -> String {
    sanitize(text.lines().next().unwrap_or_default())
}

/// Formats the time of day in this machine's time zone, to the second.
pub(crate) fn format_time_to_second(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let zone = jiff::tz::TimeZone::system();
    time.map_or_else(
        || "?".into(),
        |time| time.to_zoned(zone).strftime("%H:%M:%S").to_string(),
    )
}

/// Formats the time of day in this machine's time zone, to the minute.
pub(crate) fn format_time_to_minute(unix_ms: u64) -> String {
    format_time_to_second(unix_ms).chars().take(5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_and_colours_take_no_width() {
        let rows = vec![
            vec!["T1".into(), "\x1b[31mred\x1b[0m".into(), "x".into()],
            vec!["T100".into(), "longer".into(), "y".into()],
        ];
        let text = format_table(&rows);
        assert_eq!(text.lines().count(), 2);
        assert_eq!(
            text.lines().map(display_width).collect::<Vec<_>>(),
            [15, 15]
        );
        assert_eq!(sanitize("a\x1b[2Jb\u{7}"), "a [2Jb ");
        assert_eq!(
            sanitize("ab\u{202e}cd\u{200b}\ne"),
            "ab cd \ne",
            "the writing direction cannot be changed"
        );
    }

    /// A very wide cell is printed completely and does not shift the other rows.
    #[test]
    fn a_wide_cell_shifts_only_its_own_row() {
        let wide = "x".repeat(300);
        let rows = [
            ["T1", "short", "idle"],
            ["T2", wide.as_str(), "busy"],
            ["T3", "longer", "idle"],
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.map(String::from).to_vec())
            .collect();
        let expected = format!("T1  short   idle\nT2  {wide}  busy\nT3  longer  idle\n");
        assert_eq!(format_table_for(&rows, None), expected);
        assert!(
            format_table_for(&rows, Some(80))
                .lines()
                .all(|line| display_width(line) <= 80)
        );
    }

    /// Characters that take two columns are counted as two and are never split.
    #[test]
    fn wide_characters_keep_columns_aligned() {
        let rows = vec![
            vec!["T1".into(), "日本語".into(), "x".into()],
            vec!["T2".into(), "abcdef".into(), "y".into()],
        ];
        assert_eq!(format_table(&rows), "T1  日本語  x\nT2  abcdef  y\n");
        assert_eq!((display_width("日本語"), display_width("e\u{301}")), (6, 1));
        assert_eq!(
            [
                pad_or_cut("日本語", 4),
                pad_or_cut("日本語", 8),
                pad_or_cut("ab", 2)
            ],
            ["日… ", "日本語  ", "ab"]
        );
        assert_eq!(prefix_of_width("日本語", 3), "日");
    }

    #[test]
    fn long_texts_wrap_between_words_and_end_with_an_ellipsis() {
        assert_eq!(wrap("one two three", 8, 9), ["one two", "three"]);
        assert_eq!(wrap("one two three", 8, 1), ["one two…"]);
        assert_eq!(wrap("abcdefgh ij", 3, 9), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("日本語", 4, 9), ["日本", "語"]);
        assert_eq!(wrap("", 4, 9), [""]);
        assert_eq!(
            wrap("日本", 1, 9),
            ["日本"],
            "a character that does not fit is left to the terminal"
        );
    }

    #[test]
    fn the_last_column_of_a_wrapped_table_is_whole() {
        let rows = [
            vec![
                "now".to_owned(),
                "review".into(),
                "commit or stash them".into(),
            ],
            vec!["try".to_owned(), "retry".into(), "again".into()],
        ];
        assert_eq!(
            format_wrapped_table(&rows, Some(26)),
            "now  review  commit or\n             stash them\ntry  retry   again\n"
        );
        assert_eq!(
            format_wrapped_table(&rows, None),
            "now  review  commit or stash them\ntry  retry   again\n"
        );
        assert_eq!(format_wrapped_table(&[], Some(80)), "");
    }

    #[test]
    fn exact_durations_have_two_units() {
        let spans = [0, 59_999, 123_000, 3_900_000, 180_000_000].map(format_exact_duration);
        assert_eq!(spans, ["0s", "59s", "2m 03s", "1h 05m", "2d 02h"]);
    }

    #[test]
    fn a_narrow_window_cuts_the_last_column_first_and_never_wraps() {
        let row = |subject: &str, doing: &str| {
            vec!["T1".into(), subject.into(), "-".into(), doing.into()]
        };
        let long = "a subject that is very much longer than the window";
        for window in [0, 1, 10, 30, 40, 60] {
            for line in
                format_table_for(&[row(long, "short"), row("x", long)], Some(window)).lines()
            {
                assert!(display_width(line) <= window.max(23), "{window}: {line}");
            }
        }
        assert_eq!(
            format_table_for(&[row("short", long)], Some(40)),
            "T1  short  -  a subject that is very mu…\n"
        );
        assert_eq!(
            format_table_for(&[row("short", "x")], Some(40)),
            "T1  short  -  x\n"
        );
    }
}
