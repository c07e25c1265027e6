//! Renders the lines of one file of a diff as rows of HTML tables.
//!
//! Each removed line is paired with the added line that replaces it, and the differences between
//! the two are marked. All text of the patch is escaped (S12).

use std::fmt::Write as _;

use super::file_diff::{FileDiff, without_spaces};
use crate::live::sanitize;

/// Number of rows in one HTML table. A browser lays out a whole table at once.
const ROWS_PER_TABLE: usize = 100;

/// Maximum number of changed lines of one file that the page shows.
const MAX_FILE_LINES: usize = 20_000;

/// Length of lines, in characters, above which they are not compared word by word.
const MAX_COMPARED_CHARS: usize = 1_000;

/// The display options of a diff on the page.
#[derive(Clone, Copy, Default)]
pub(super) struct DiffStyle {
    /// Show the old and the new version side by side.
    pub(super) split: bool,
    /// Ignore changes in whitespace.
    pub(super) ignore_spaces: bool,
}

/// Renders a file's lines as HTML table rows.
pub(super) fn render_rows(
    file: &FileDiff,
    DiffStyle {
        split,
        ignore_spaces: spaces,
    }: DiffStyle,
) -> String {
    let simplified = spaces.then(|| without_spaces(file));
    let file = simplified.as_ref().unwrap_or(file);
    let mut html = String::new();
    let (mut old_line, mut new_line, mut at) = (0_usize, 0_usize, 0);
    while at < file.lines.len().min(MAX_FILE_LINES) {
        let (sign, text) = &file.lines[at];
        match sign {
            '@' => {
                (old_line, new_line) = hunk_line_numbers(text);
                let _a_string_takes_all = write!(
                    html,
                    "<tr class=\"hunk\"><td colspan=\"4\">{}</td></tr>",
                    sanitize::escape(text)
                );
                at += 1;
            }
            '+' | '-' => {
                let end = at
                    + file.lines[at..]
                        .iter()
                        .take_while(|(sign, _)| matches!(sign, '+' | '-'))
                        .count();
                render_change(
                    &mut html,
                    &file.lines[at..end],
                    (&mut old_line, &mut new_line),
                    split,
                );
                at = end;
            }
            ' ' => {
                let text = line_html(text);
                let _a_string_takes_all = if split {
                    write!(
                        html,
                        "<tr><td>{old_line}</td><td>{text}</td><td>{new_line}</td><td>{text}</td></tr>"
                    )
                } else {
                    write!(
                        html,
                        "<tr><td>{old_line}</td><td>{new_line}</td><td></td><td>{text}</td></tr>"
                    )
                };
                (old_line, new_line, at) = (old_line + 1, new_line + 1, at + 1);
            }
            _ => {
                let text = sanitize::escape(text);
                let _a_string_takes_all = write!(
                    html,
                    "<tr class=\"hunk\"><td colspan=\"4\">{text}</td></tr>"
                );
                at += 1;
            }
        }
    }
    if file.lines.len() > MAX_FILE_LINES {
        let cut_lines = file.lines.len() - MAX_FILE_LINES;
        let _a_string_takes_all = write!(
            html,
            "<tr class=\"hunk\"><td colspan=\"4\">{cut_lines} more lines: see regatta diff</td></tr>"
        );
    }
    wrap_in_tables(&html, split)
}

/// Puts rows into HTML tables of a hundred rows each. A browser lays out a table only when the
/// table becomes visible. The columns have fixed widths, so that they are the same in all tables.
/// The rows are separated at `</tr>`, because the escaped text of a row cannot contain this tag.
pub(super) fn wrap_in_tables(rows: &str, split: bool) -> String {
    let head = if split {
        "<div class=\"part\"><table class=\"diff split\"><colgroup><col class=\"n\"><col><col \
        class=\"n\"><col></colgroup>"
    } else {
        "<div class=\"part\"><table class=\"diff\"><colgroup><col class=\"n\"><col \
        class=\"n\"><col class=\"s\"><col></colgroup>"
    };
    let ends: Vec<usize> = rows
        .match_indices("</tr>")
        .map(|(position, end_tag)| position + end_tag.len())
        .collect();
    let mut out =
        String::with_capacity(rows.len() + (ends.len() / ROWS_PER_TABLE + 1) * (head.len() + 20));
    let mut from = 0;
    for piece in ends.chunks(ROWS_PER_TABLE) {
        let to = piece.last().copied().unwrap_or(from);
        out.push_str(head);
        out.push_str(&rows[from..to]);
        out.push_str("</table></div>");
        from = to;
    }
    out
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

fn line_html(text: &str) -> String {
    let (shown, left) = sanitize::truncate(text);
    let mut out = sanitize::escape(shown);
    if left > 0 {
        let _a_string_takes_all =
            write!(out, "<span class=\"ctl\"> … {left} more characters</span>");
    }
    out
}

/// Renders a block of removed lines with the added lines that replace them. Differences between
/// paired lines are marked.
fn render_change(
    out: &mut String,
    lines: &[(char, String)],
    line_numbers: (&mut usize, &mut usize),
    split: bool,
) {
    let removed: Vec<&str> = lines
        .iter()
        .filter(|(sign, _)| *sign == '-')
        .map(|(_, text)| text.as_str())
        .collect();
    let added: Vec<&str> = lines
        .iter()
        .filter(|(sign, _)| *sign == '+')
        .map(|(_, text)| text.as_str())
        .collect();
    let pair = |nth: usize| Some((*removed.get(nth)?, *added.get(nth)?));
    let old_html = |nth: usize| {
        pair(nth).map_or_else(
            || line_html(removed[nth]),
            |(a, b)| mark_difference(a, b, "del"),
        )
    };
    let new_html = |nth: usize| {
        pair(nth).map_or_else(
            || line_html(added[nth]),
            |(a, b)| mark_difference(b, a, "ins"),
        )
    };
    if split {
        for nth in 0..removed.len().max(added.len()) {
            out.push_str("<tr>");
            if nth < removed.len() {
                let _a_string_takes_all = write!(
                    out,
                    "<td>{}</td><td class=\"d\">{}</td>",
                    *line_numbers.0 + nth,
                    old_html(nth)
                );
            } else {
                out.push_str("<td></td><td></td>");
            }
            if nth < added.len() {
                let _a_string_takes_all = write!(
                    out,
                    "<td>{}</td><td class=\"i\">{}</td>",
                    *line_numbers.1 + nth,
                    new_html(nth)
                );
            } else {
                out.push_str("<td></td><td></td>");
            }
            out.push_str("</tr>");
        }
    } else {
        for nth in 0..removed.len() {
            let number = *line_numbers.0 + nth;
            let _a_string_takes_all = write!(
                out,
                "<tr class=\"d\"><td>{number}</td><td></td><td>-</td><td>{}</td></tr>",
                old_html(nth)
            );
        }
        for nth in 0..added.len() {
            let number = *line_numbers.1 + nth;
            let _a_string_takes_all = write!(
                out,
                "<tr class=\"i\"><td></td><td>{number}</td><td>+</td><td>{}</td></tr>",
                new_html(nth)
            );
        }
    }
    *line_numbers.0 += removed.len();
    *line_numbers.1 += added.len();
}

/// Renders `text` as HTML. Marks the part that differs from `other`, which is everything between
/// the common beginning and the common end of the two lines.
pub(super) fn mark_difference(text: &str, other: &str, tag: &str) -> String {
    if text.len() > MAX_COMPARED_CHARS || other.len() > MAX_COMPARED_CHARS {
        return line_html(text);
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (split_words(text), split_words(other));
    let head = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let tail = a[head..]
        .iter()
        .rev()
        .zip(b[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (from, to) = (head, a.len() - tail);
    // If the two lines have nothing in common, mark nothing.
    if from == to || (head == 0 && tail == 0) {
        return line_html(text);
    }
    let part = |words: &[&str]| sanitize::escape(&words.concat());
    format!(
        "{}<{tag}>{}</{tag}>{}",
        part(&a[..from]),
        part(&a[from..to]),
        part(&a[to..])
    )
}

/// Splits a text into words, and single characters between the words.
pub(super) fn split_words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    let is_word_char = |c: char| c.is_alphanumeric() || c == '_';
    let mut last = None;
    for (position, c) in text.char_indices() {
        if last.is_some_and(|last| !(is_word_char(last) && is_word_char(c))) {
            found.push(&text[from..position]);
            from = position;
        }
        last = Some(c);
    }
    if from < text.len() {
        found.push(&text[from..]);
    }
    found
}
