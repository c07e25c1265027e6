//! Renders one line of a diff as HTML, with its syntax and with the part that changed (S12).

use std::fmt::Write as _;
use std::ops::Range;

use super::highlight::Token;
use crate::live::sanitize;

/// Length of lines, in characters, above which they are not compared word by word.
const MAX_COMPARED_CHARS: usize = 1_000;

/// A part of a line that differs from the other version of the line.
pub(super) struct Mark {
    pub(super) range: Range<usize>,
    pub(super) tag: &'static str,
}

/// Renders a line as HTML, with its syntax and with the marked part.
pub(super) fn line_html(text: &str, tokens: &[Token], mark: Option<Mark>) -> String {
    let (shown, left) = sanitize::truncate(text);
    let mut out = String::with_capacity(shown.len() * 2);
    match mark {
        Some(Mark { range, tag }) if range.end <= shown.len() => {
            push_code(&mut out, shown, 0..range.start, tokens);
            let _a_string_takes_all = write!(out, "<{tag}>");
            push_code(&mut out, shown, range.clone(), tokens);
            let _a_string_takes_all = write!(out, "</{tag}>");
            push_code(&mut out, shown, range.end..shown.len(), tokens);
        }
        _ => push_code(&mut out, shown, 0..shown.len(), tokens),
    }
    if left > 0 {
        let _a_string_takes_all =
            write!(out, "<span class=\"ctl\"> … {left} more characters</span>");
    }
    out
}

/// Appends a part of a line as HTML. Tokens that lie only partly inside `part` are cut.
fn push_code(out: &mut String, line: &str, part: Range<usize>, tokens: &[Token]) {
    let mut at = part.start;
    for token in tokens {
        let (from, to) = (token.range.start.max(at), token.range.end.min(part.end));
        if from >= to {
            continue;
        }
        sanitize::push_escaped(out, &line[at..from]);
        let _a_string_takes_all = write!(out, "<span class=\"{}\">", token.class);
        sanitize::push_escaped(out, &line[from..to]);
        out.push_str("</span>");
        at = to;
    }
    sanitize::push_escaped(out, &line[at..part.end]);
}

/// Returns the part of `text` that differs from `other`, which is everything between the common
/// beginning and the common end of the two lines. Returns `None` if nothing should be marked.
pub(super) fn changed_range(text: &str, other: &str) -> Option<Range<usize>> {
    if text.len() > MAX_COMPARED_CHARS || other.len() > MAX_COMPARED_CHARS {
        return None;
    }
    let (words, other_words): (Vec<&str>, Vec<&str>) = (split_words(text), split_words(other));
    let head = words
        .iter()
        .zip(&other_words)
        .take_while(|(word, other)| word == other)
        .count();
    let tail = words[head..]
        .iter()
        .rev()
        .zip(other_words[head..].iter().rev())
        .take_while(|(word, other)| word == other)
        .count();
    let (from, to) = (head, words.len() - tail);
    // If the two lines have nothing in common but spaces, mark nothing.
    let is_blank = |words: &[&str]| words.iter().all(|word| word.trim().is_empty());
    if from == to || (is_blank(&words[..head]) && is_blank(&words[to..])) {
        return None;
    }
    let length = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let start = length(&words[..from]);
    Some(start..start + length(&words[from..to]))
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
