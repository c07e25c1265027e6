//! Finds secret values that are written on the lines after their names.

use super::value_check::is_placeholder;
use super::{
    MAX_VALUE_BYTES, Notation, SECRET_WORDS, SecretName, is_key_name, value_range, whole_value,
};

/// The form in which the lines after a secret's name contain the secret's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultilineForm {
    /// The following indented lines are the value, as after YAML's `password: |`.
    Block,
    /// The value is a quoted text of several lines and ends with the closing triple quotes.
    Quotes,
    /// The next line has the value of the variable that this line names. An example of this line is
    /// `- name: DB_PASSWORD`.
    Variable,
}

/// The quotes that begin and end a text of several lines.
pub(crate) const TRIPLE_QUOTES: [&str; 2] = ["\"\"\"", "'''"];

/// Returns the form in which the lines after `line` contain a secret, or `None` if `line` does not
/// announce a secret.
pub(crate) fn multiline_form(line: &str) -> Option<MultilineForm> {
    let text = line.trim();
    let last = *text.as_bytes().last()?;
    if b"|>-+\"'".contains(&last) {
        let ends = ["|-", ">-", "|+", "|", ">"]
            .into_iter()
            .chain(TRIPLE_QUOTES)
            .find(|end| text.ends_with(end));
        if let Some(end) = ends {
            let head = text[..text.len() - end.len()].trim_end().as_bytes();
            let separator = *head.last()?;
            let is_secret =
                b":=".contains(&separator) && ends_in_secret_name(&head[..head.len() - 1]);
            let kind = if end.len() == 3 {
                MultilineForm::Quotes
            } else {
                MultilineForm::Block
            };
            return (is_secret && (kind == MultilineForm::Quotes || separator == b':'))
                .then_some(kind);
        }
    }
    let name = text.strip_prefix("- ").unwrap_or(text);
    let name = name
        .strip_prefix("name:")
        .or_else(|| name.strip_prefix("\"name\":"))?;
    let name = name.trim().trim_end_matches(',').trim_matches(['"', '\'']);
    ends_in_secret_name(name.as_bytes()).then_some(MultilineForm::Variable)
}

/// Returns the start and end of the value in a line `value: …` that follows a line with a
/// variable's name.
pub(crate) fn variable_value(line: &str) -> Option<(usize, usize)> {
    let trimmed = line.trim_start();
    let start = line.len() - trimmed.len();
    let key = ["value:", "\"value\":", "- value:"]
        .into_iter()
        .find(|key| trimmed.starts_with(key))?;
    let from = start + key.len();
    let gap = line[from..].len() - line[from..].trim_start().len();
    let bytes = line.as_bytes();
    let (start, end, _) = value_range(bytes, from + gap, Notation::Colon);
    let found = &bytes[start..end];
    let is_secret = found.len() >= 3 && !is_placeholder(found);
    is_secret.then(|| (start, whole_value(bytes, end, from + gap + MAX_VALUE_BYTES)))
}

/// Returns whether a text ends in the name of a secret, quoted or not.
fn ends_in_secret_name(text: &[u8]) -> bool {
    let quotes = text
        .iter()
        .rev()
        .take_while(|byte| b"\"' ".contains(byte))
        .count();
    let text = &text[..text.len() - quotes];
    let lengths = SECRET_WORDS.iter().map(|(word, _)| word.len()).chain([3]);
    lengths
        .filter_map(|length| text.len().checked_sub(length))
        .any(|at| {
            let word = &text[at..];
            let Some(name) = SecretName::ending_at(text, at, text.len()) else {
                return false;
            };
            let is_word = SECRET_WORDS
                .iter()
                .any(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()));
            let is_short = word.len() <= 4 || word.eq_ignore_ascii_case(b"cookie");
            let is_key = word.eq_ignore_ascii_case(b"key") && is_key_name(text, at);
            is_key || (is_word && (!is_short || name.is_word_start(text, at)))
        })
}
