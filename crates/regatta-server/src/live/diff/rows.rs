//! Renders the lines of one file of a diff as rows of HTML tables.
//!
//! Each removed line is paired with the added line that replaces it, and the differences between
//! the two are marked. The rows are divided into parts, one table each, and only the wanted parts
//! are rendered, because a browser cannot show a very long file at once. All text of the patch is
//! escaped (S12).

use std::fmt::Write as _;

use super::file_diff::FileDiff;
use super::highlight::{LineState, Syntax, Token, syntax_for_path};
use super::line_html::{Mark, changed_range, line_html};
use crate::live::sanitize;

/// Number of rows in one part. A part is one HTML table.
pub(super) const ROWS_PER_PART: usize = 50;

/// Maximum number of changed lines of one file that the page shows.
const MAX_FILE_LINES: usize = 20_000;

/// A line of one version of the file, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberedLine<'a> {
    number: usize,
    text: &'a str,
}

/// A row of the diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row<'a> {
    /// The beginning of a hunk (a group of changes that are close to each other), and the lines
    /// before it that the diff leaves out.
    Hunk {
        text: &'a str,
        gap: Gap,
    },
    /// An unchanged line.
    Same {
        old: usize,
        line: NumberedLine<'a>,
    },
    /// Changed lines: the old one, the new one, or in the split view both.
    Changed {
        old: Option<NumberedLine<'a>>,
        new: Option<NumberedLine<'a>>,
        /// The line with which the only line of this row is compared.
        counterpart: Option<&'a str>,
    },
    Note(&'a str),
}

/// Lines of the file that the diff leaves out, by their new numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: usize,
    /// The last line of the gap, or 0 if the gap is empty.
    pub(super) to: usize,
    /// The number that added to a new line number gives the old one.
    pub(super) shift: isize,
}

impl Gap {
    fn new(from: usize, to: usize, shift: isize) -> Gap {
        let to = if to < from { 0 } else { to };
        Gap { from, to, shift }
    }
}

/// The rows of one file's diff.
pub(super) struct DiffRows<'a> {
    rows: Vec<Row<'a>>,
    syntax: Option<&'static Syntax>,
    is_split: bool,
    cut_lines: usize,
    /// The lines after the last hunk.
    tail_from: usize,
    tail_shift: isize,
}

impl<'a> DiffRows<'a> {
    pub(super) fn new(file: &'a FileDiff, is_split: bool) -> DiffRows<'a> {
        let shown = &file.lines[..file.lines.len().min(MAX_FILE_LINES)];
        let mut rows = Vec::with_capacity(shown.len());
        let (mut old, mut new, mut at) = (1_usize, 1_usize, 0);
        while let Some((sign, text)) = shown.get(at) {
            match sign {
                '@' => {
                    let starts = hunk_line_numbers(text);
                    let gap =
                        Gap::new(new, starts.1.saturating_sub(1), signed_difference(old, new));
                    rows.push(Row::Hunk { text, gap });
                    (old, new) = starts;
                    at += 1;
                }
                '+' | '-' => {
                    let length = shown[at..]
                        .iter()
                        .take_while(|(sign, _)| matches!(sign, '+' | '-'))
                        .count();
                    let block = ChangeBlock::new(&shown[at..at + length], old, new);
                    block.push_rows(&mut rows, is_split);
                    (old, new) = (old + block.removed.len(), new + block.added.len());
                    at += length;
                }
                ' ' => {
                    let line = NumberedLine { number: new, text };
                    rows.push(Row::Same { old, line });
                    (old, new, at) = (old + 1, new + 1, at + 1);
                }
                _ => {
                    rows.push(Row::Note(text));
                    at += 1;
                }
            }
        }
        DiffRows {
            rows,
            syntax: syntax_for_path(&file.path),
            is_split,
            cut_lines: file.lines.len() - shown.len(),
            tail_from: new,
            tail_shift: signed_difference(old, new),
        }
    }

    /// Returns the number of rows, without the row of the lines after the last hunk.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn part_count(&self) -> usize {
        self.rows.len().div_ceil(ROWS_PER_PART)
    }

    /// Renders a part as an HTML table. `file_lines` is the number of lines of the new file, if the
    /// lines after the last hunk can be shown.
    pub(super) fn render_part(&self, part: usize, file_lines: Option<usize>) -> String {
        let from = part * ROWS_PER_PART;
        let to = self.rows.len().min(from + ROWS_PER_PART);
        if from >= to {
            return String::new();
        }
        let mut html = String::from(table_head(self.is_split));
        let mut states = SideStates::default();
        // The syntax of a line depends on the lines before it, so scan from the hunk's beginning.
        let scanned_from = self.rows[..=from]
            .iter()
            .rposition(|row| matches!(row, Row::Hunk { .. }))
            .unwrap_or(0);
        for (at, row) in self.rows.iter().enumerate().take(to).skip(scanned_from) {
            if matches!(row, Row::Hunk { .. }) {
                states = self.states_of_hunk(at);
            }
            html.push_str(&self.render_row(row, &mut states, at >= from));
        }
        if to == self.rows.len() {
            html.push_str(&self.render_end(file_lines));
        }
        html.push_str("</table>");
        html
    }

    /// Guesses the states of the syntax at the beginning of a hunk.
    fn states_of_hunk(&self, at: usize) -> SideStates {
        let Some(syntax) = self.syntax else {
            return SideStates::default();
        };
        let rows = || {
            self.rows[at + 1..]
                .iter()
                .take_while(|row| !matches!(row, Row::Hunk { .. }))
        };
        let old = rows().filter_map(|row| match row {
            Row::Same { line, .. } => Some(line.text),
            Row::Changed { old, .. } => old.map(|line| line.text),
            _ => None,
        });
        let new = rows().filter_map(|row| match row {
            Row::Same { line, .. } => Some(line.text),
            Row::Changed { new, .. } => new.map(|line| line.text),
            _ => None,
        });
        SideStates {
            old: syntax.state_before(old),
            new: syntax.state_before(new),
        }
    }

    /// Renders a row. If the row is not wanted, only updates the states of the syntax.
    fn render_row(&self, row: &Row<'_>, states: &mut SideStates, is_wanted: bool) -> String {
        let mut tokens_of = |text: &str, is_old: bool| {
            let state = if is_old {
                &mut states.old
            } else {
                &mut states.new
            };
            self.syntax
                .map(|syntax| syntax.tokens(sanitize::truncate(text).0, state))
                .unwrap_or_default()
        };
        match row {
            // A new file is one group of added lines, which needs no heading.
            Row::Hunk { gap, .. } if gap.to == 0 && gap.from == 1 => String::new(),
            Row::Hunk { text, gap } if is_wanted => self.render_hunk(text, *gap),
            Row::Note(text) if is_wanted => {
                format!(
                    "<tr class=\"hunk\"><td colspan=\"{}\">{}</td></tr>",
                    self.column_count(),
                    sanitize::escape(text)
                )
            }
            Row::Hunk { .. } | Row::Note(_) => String::new(),
            Row::Same { old, line } => {
                let tokens = tokens_of(line.text, false);
                states.old = states.new;
                if !is_wanted {
                    return String::new();
                }
                same_row_html(*old, *line, &tokens, self.is_split)
            }
            Row::Changed {
                old,
                new,
                counterpart,
            } => {
                let mut side = |line: Option<NumberedLine<'_>>, is_old: bool| {
                    let line = line?;
                    let tokens = tokens_of(line.text, is_old);
                    let other = match (old, new) {
                        (Some(old), Some(new)) => Some(if is_old { new.text } else { old.text }),
                        _ => *counterpart,
                    };
                    is_wanted.then(|| ChangedSide::new(line, &tokens, other, is_old))
                };
                let (old, new) = (side(*old, true), side(*new, false));
                if is_wanted {
                    changed_row_html(old.as_ref(), new.as_ref(), self.is_split)
                } else {
                    String::new()
                }
            }
        }
    }

    fn column_count(&self) -> usize {
        if self.is_split { 4 } else { 3 }
    }

    fn render_hunk(&self, text: &str, gap: Gap) -> String {
        let buttons = match gap.to {
            0 => String::new(),
            to => gap_buttons(gap.from, to),
        };
        let html = format!(
            "<td class=\"grow\" colspan=\"{}\">{buttons}</td><td colspan=\"{}\">{}</td></tr>",
            if self.is_split { 1 } else { 2 },
            if self.is_split { 3 } else { 1 },
            sanitize::escape(text)
        );
        gap_row_html(gap, "hunk", &html)
    }

    /// Renders what follows the last row: the lines after the last hunk, or the number of rows that
    /// are not shown.
    fn render_end(&self, file_lines: Option<usize>) -> String {
        if self.cut_lines > 0 {
            return format!(
                "<tr class=\"hunk\"><td colspan=\"{}\">{} more lines: see regatta diff</td></tr>",
                self.column_count(),
                self.cut_lines
            );
        }
        let Some(last) = file_lines.filter(|last| *last >= self.tail_from) else {
            return String::new();
        };
        let gap = Gap::new(self.tail_from, last, self.tail_shift);
        let count = last + 1 - self.tail_from;
        let html = format!(
            "<td class=\"grow\" colspan=\"{}\">{}</td><td colspan=\"{}\"><span data-count>{count}</span> more {} to the \
             end of the file</td></tr>",
            if self.is_split { 1 } else { 2 },
            grow_button("down", "↓", "Show the lines below"),
            if self.is_split { 3 } else { 1 },
            if count == 1 { "line" } else { "lines" },
        );
        gap_row_html(gap, "hunk tail", &html)
    }
}

/// The states of the syntax in the old and in the new version of the file.
#[derive(Clone, Copy, Default)]
struct SideStates {
    old: LineState,
    new: LineState,
}

/// Lines that were removed, with the added lines that replace them.
struct ChangeBlock<'a> {
    removed: Vec<NumberedLine<'a>>,
    added: Vec<NumberedLine<'a>>,
}

impl<'a> ChangeBlock<'a> {
    fn new(lines: &'a [(char, String)], old: usize, new: usize) -> ChangeBlock<'a> {
        let side = |wanted: char, first: usize| {
            lines
                .iter()
                .filter(|(sign, _)| *sign == wanted)
                .enumerate()
                .map(|(nth, (_, text))| NumberedLine {
                    number: first + nth,
                    text,
                })
                .collect()
        };
        ChangeBlock {
            removed: side('-', old),
            added: side('+', new),
        }
    }

    fn push_rows(&self, rows: &mut Vec<Row<'a>>, is_split: bool) {
        let (removed, added) = (&self.removed, &self.added);
        if is_split {
            let count = removed.len().max(added.len());
            rows.extend((0..count).map(|nth| Row::Changed {
                old: removed.get(nth).copied(),
                new: added.get(nth).copied(),
                counterpart: None,
            }));
            return;
        }
        rows.extend(removed.iter().enumerate().map(|(nth, line)| Row::Changed {
            old: Some(*line),
            new: None,
            counterpart: added.get(nth).map(|line| line.text),
        }));
        rows.extend(added.iter().enumerate().map(|(nth, line)| Row::Changed {
            old: None,
            new: Some(*line),
            counterpart: removed.get(nth).map(|line| line.text),
        }));
    }
}

/// One side of a changed row, as HTML.
struct ChangedSide {
    number: usize,
    html: String,
}

impl ChangedSide {
    fn new(
        line: NumberedLine<'_>,
        tokens: &[Token],
        other: Option<&str>,
        is_old: bool,
    ) -> ChangedSide {
        let mark = other.and_then(|other| changed_range(line.text, other));
        let tag = if is_old { "del" } else { "ins" };
        ChangedSide {
            number: line.number,
            html: line_html(line.text, tokens, mark.map(|range| Mark { range, tag })),
        }
    }
}

/// Renders unchanged lines that the diff leaves out. `first` is the new number of the first line.
pub(super) fn render_context(
    lines: &[&str],
    first: usize,
    shift: isize,
    style: ContextStyle<'_>,
) -> String {
    let syntax = syntax_for_path(style.path);
    let mut state = syntax.map_or(LineState::Code, |syntax| {
        syntax.state_before(lines.iter().copied())
    });
    let mut html = String::from(table_head(style.is_split));
    for (nth, text) in lines.iter().enumerate() {
        let tokens = syntax
            .map(|syntax| syntax.tokens(sanitize::truncate(text).0, &mut state))
            .unwrap_or_default();
        let number = first + nth;
        let old = number.saturating_add_signed(shift);
        let line = NumberedLine { number, text };
        html.push_str(&same_row_html(old, line, &tokens, style.is_split));
    }
    html.push_str("</table>");
    html
}

/// How lines that the diff leaves out are rendered.
#[derive(Clone, Copy)]
pub(super) struct ContextStyle<'a> {
    pub(super) path: &'a str,
    pub(super) is_split: bool,
}

/// The columns have fixed widths, so that they are the same in all tables.
fn table_head(is_split: bool) -> &'static str {
    if is_split {
        "<table class=\"diff split\"><colgroup><col class=\"n\"><col><col class=\"n\"><col>\
         </colgroup>"
    } else {
        "<table class=\"diff\"><colgroup><col class=\"n\"><col class=\"n\"><col></colgroup>"
    }
}

fn same_row_html(old: usize, line: NumberedLine<'_>, tokens: &[Token], is_split: bool) -> String {
    let (new, text) = (line.number, line_html(line.text, tokens, None));
    let second = if is_split {
        format!("<td class=\"l\">{text}</td>")
    } else {
        String::new()
    };
    format!(
        "<tr data-old=\"{old}\" data-new=\"{new}\"><td class=\"n\">{old}</td>{second}\
         <td class=\"n\">{new}</td><td class=\"l\">{text}</td></tr>"
    )
}

fn changed_row_html(
    old: Option<&ChangedSide>,
    new: Option<&ChangedSide>,
    is_split: bool,
) -> String {
    let mut html = String::from("<tr");
    if !is_split {
        html.push_str(if old.is_some() {
            " class=\"d\""
        } else {
            " class=\"i\""
        });
    }
    for (name, side) in [("old", old), ("new", new)] {
        if let Some(side) = side {
            let _a_string_takes_all = write!(html, " data-{name}=\"{}\"", side.number);
        }
    }
    html.push('>');
    let number = |side: Option<&ChangedSide>| {
        side.map_or_else(
            || "<td class=\"n\"></td>".to_owned(),
            |side| format!("<td class=\"n\">{}</td>", side.number),
        )
    };
    if is_split {
        for (side, class) in [(old, "d"), (new, "i")] {
            html.push_str(&number(side));
            match side {
                Some(side) => {
                    let _a_string_takes_all =
                        write!(html, "<td class=\"l {class}\">{}</td>", side.html);
                }
                None => html.push_str("<td class=\"l none\"></td>"),
            }
        }
    } else {
        let text = old.or(new).map_or("", |side| side.html.as_str());
        html.push_str(&number(old));
        html.push_str(&number(new));
        let _a_string_takes_all = write!(html, "<td class=\"l\">{text}</td>");
    }
    html.push_str("</tr>");
    html
}

/// Number of lines that one press of a button adds above or below a hunk.
const LINES_PER_PRESS: usize = 20;

fn gap_buttons(from: usize, to: usize) -> String {
    if to - from < LINES_PER_PRESS {
        return grow_button("all", "↕", "Show the lines between");
    }
    let up = grow_button("up", "↑", "Show the lines above");
    if from == 1 {
        return up;
    }
    grow_button("down", "↓", "Show the lines below the previous group") + &up
}

fn grow_button(direction: &str, sign: &str, label: &str) -> String {
    format!(
        "<button type=\"button\" data-grow=\"{direction}\" title=\"{label}\" \
         aria-label=\"{label}\">{sign}</button>"
    )
}

fn gap_row_html(gap: Gap, class: &str, cells: &str) -> String {
    format!(
        "<tr class=\"{class}\" data-from=\"{}\" data-to=\"{}\" data-shift=\"{}\">{cells}",
        gap.from, gap.to, gap.shift
    )
}

fn signed_difference(old: usize, new: usize) -> isize {
    isize::try_from(old).unwrap_or(0) - isize::try_from(new).unwrap_or(0)
}

/// Returns the first line numbers of the old and the new file in a hunk header such as `@@ -41,7
/// +41,9 @@`.
fn hunk_line_numbers(hunk: &str) -> (usize, usize) {
    let number = |sign: char| {
        let from = hunk.find(sign).map(|n| &hunk[n + 1..]).unwrap_or_default();
        from.split([',', ' '])
            .next()
            .and_then(|from| from.parse().ok())
            .unwrap_or(1)
    };
    (number('-'), number('+'))
}
