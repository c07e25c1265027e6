//! Removes secrets from a line before the line is written anywhere (S4).
//!
//! The redactor removes two kinds of text. The first kind are the values that the program was
//! given, in every spelling in which a program may print them. The second kind is everything that
//! looks like a secret, such as an API key of a known service or a value with a secret's name. The
//! redactor finds the first kind reliably. The second kind is a safety net for secrets that Regatta
//! never had, such as an API key in a repository.
//!
//! A line is scanned once for the pairs of bytes with which a secret may begin, and only a line
//! with a secret is copied. There are no regular expressions, because the tables of regular
//! expressions would exceed the memory of a shim (supervisor process).

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use data_encoding::{BASE64, BASE64URL, Encoding};
use serde::de::IgnoredAny;

use crate::named_secrets::{self, MultilineForm};
use crate::secret_patterns;

/// The minimum length of a secret in characters. Shorter values are not removed, because they are
/// likely to be ordinary words.
const MIN_SECRET_CHARS: usize = 8;
/// The minimum length in characters at which a single line of a secret with several lines is
/// removed too.
const MIN_LINE_CHARS: usize = 12;
/// The replacement for a JSON line that would no longer be valid JSON after its secrets are
/// removed.
const REDACTED_JSON: &str = r#"{"redacted":"[redacted]"}"#;

/// Removes secrets from lines. The `Debug` output of a redactor shows only the names of the known
/// secrets.
pub struct Redactor {
    /// The text that replaces each known secret.
    replacements: Vec<String>,
    /// The spellings of the known secrets, longest first, each with the index of its replacement.
    spellings: Vec<(Vec<char>, usize)>,
    /// The first two bytes of all spellings of the known secrets.
    secret_pairs: Box<BytePairs>,
    /// The pairs in `secret_pairs`, and the first two bytes of every text that looks like a secret.
    /// The search in a line stops only at these pairs.
    all_pairs: Box<BytePairs>,
    warnings: Vec<String>,
    /// True if the last line was inside a private key, so that the following lines are removed
    /// until the key ends.
    is_inside_key: AtomicBool,
    /// The form in which the next lines contain a secret value that the previous line announced, or
    /// `None` if that line announced no value.
    open_multiline: Mutex<Option<MultilineForm>>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Redactor")
            .field("marks", &self.replacements)
            .finish_non_exhaustive()
    }
}

impl Default for Redactor {
    fn default() -> Redactor {
        Redactor::new(vec![])
    }
}

impl Redactor {
    /// Creates a redactor for known secrets, given as pairs of name and value. A value of fewer
    /// than eight characters is not removed and causes a warning.
    pub fn new(secrets: Vec<(String, String)>) -> Redactor {
        let mut redactor = Redactor {
            replacements: vec![],
            spellings: vec![],
            secret_pairs: Box::default(),
            all_pairs: Box::default(),
            warnings: vec![],
            is_inside_key: AtomicBool::new(false),
            open_multiline: Mutex::new(None),
        };
        for (name, value) in &secrets {
            redactor.add_secret(name, value);
        }
        redactor
            .spellings
            .sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        redactor.spellings.dedup_by(|(a, _), (b, _)| a == b);
        for (spelling, _) in &redactor.spellings {
            redactor.secret_pairs.add_first_pairs(spelling);
        }
        *redactor.all_pairs = *redactor.secret_pairs;
        for pair in secret_patterns::first_pairs() {
            redactor.all_pairs.add(pair[0], pair[1]);
        }
        redactor
    }

    /// Returns sentences about known secrets that cannot be removed. The sentences contain the
    /// names of the secrets and never their values.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn add_secret(&mut self, name: &str, value: &str) {
        let value = value.trim_end_matches(['\r', '\n']);
        if value.chars().count() < MIN_SECRET_CHARS {
            self.warnings.push(format!(
                "The value of {name} is shorter than {MIN_SECRET_CHARS} characters, so it is not \
                removed from the program's output; use a longer value."
            ));
            return;
        }
        let number = self.replacements.len();
        let name: String = name
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || "_-.".contains(*c))
            .collect();
        self.replacements.push(if name.is_empty() {
            "[redacted]".to_owned()
        } else {
            format!("[redacted {name}]")
        });
        self.add_spellings(value, number);
        if value.contains('\n') {
            // Remove the single lines of the value too, because a program that prints the value
            // without escapes prints it line by line.
            for line in value
                .lines()
                .map(str::trim)
                .filter(|line| line.len() >= MIN_LINE_CHARS)
            {
                self.add_spellings(line, number);
            }
        }
    }

    fn add_spellings(&mut self, value: &str, number: usize) {
        self.spellings.push((value.chars().collect(), number));
        for base64 in [BASE64, BASE64URL] {
            // Add the base64 form of the value itself, and the forms that the value has inside a
            // longer encoded text. Three alignments cover all positions of the value in that text.
            let encoded = base64.encode(value.as_bytes());
            self.spellings.push((encoded.chars().collect(), number));
            for ahead in 0..3 {
                self.spellings
                    .push((base64_core(value.as_bytes(), ahead, &base64), number));
            }
        }
    }

    /// Returns the line with its secrets replaced, or the same line if the line has no secrets.
    ///
    /// A line that is JSON stays JSON.
    pub fn redact_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        if self.is_inside_key.load(Ordering::Relaxed) {
            if secret_patterns::is_key_body(line) {
                return Cow::Borrowed("[redacted]");
            }
            self.is_inside_key.store(false, Ordering::Relaxed);
        }
        if let Some(cleaned) = self.redact_multiline(line) {
            return cleaned;
        }
        let bytes = line.as_bytes();
        let mut position = 0;
        while let Some(candidate) = self.all_pairs.find_from(bytes, position) {
            if self.secret_at(bytes, candidate).is_some()
                || secret_patterns::find_secret(bytes, candidate).is_some()
            {
                return Cow::Owned(self.rewrite_line(line));
            }
            position = candidate + 1;
        }
        Cow::Borrowed(line)
    }

    /// Redacts a line with a secret value, or with a part of one, if an earlier line announced the
    /// value. Returns `None` if no earlier line announced a value.
    fn redact_multiline<'a>(&self, line: &'a str) -> Option<Cow<'a, str>> {
        let mut open_form = self
            .open_multiline
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match *open_form {
            Some(MultilineForm::Block) if line.trim().is_empty() => {
                return Some(Cow::Borrowed(line));
            }
            Some(MultilineForm::Block) if line.starts_with([' ', '\t']) => {
                return Some(Cow::Borrowed("  [redacted]"));
            }
            Some(MultilineForm::Quotes) => {
                if named_secrets::TRIPLE_QUOTES
                    .iter()
                    .any(|quotes| line.contains(quotes))
                {
                    *open_form = None;
                }
                return Some(Cow::Borrowed("[redacted]"));
            }
            Some(MultilineForm::Variable) => {
                *open_form = None;
                if let Some((start, end)) = named_secrets::variable_value(line) {
                    return Some(Cow::Owned(format!(
                        "{}[redacted]{}",
                        &line[..start],
                        &line[end..]
                    )));
                }
            }
            _ => {}
        }
        *open_form = named_secrets::multiline_form(line);
        None
    }

    /// Returns the end and the index of the known secret that begins at position `at`.
    fn secret_at(&self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        if !self.secret_pairs.contains_at(bytes, at) {
            return None;
        }
        self.spellings.iter().find_map(|(characters, number)| {
            // Read a percent sign first as the beginning of an encoded character, then as a
            // character of the secret.
            let end = match_end(characters, bytes, at, true)
                .or_else(|| match_end(characters, bytes, at, false))?;
            Some((end, *number))
        })
    }

    #[cold]
    fn rewrite_line(&self, line: &str) -> String {
        let bytes = line.as_bytes();
        // Find the known secrets first in the whole line, because a text that only looks like a
        // secret may end inside a known one.
        let mut found: Vec<(usize, usize, &str)> = vec![];
        let mut offset = 0;
        while let Some(hit) = self.secret_pairs.find_from(bytes, offset) {
            offset = hit + 1;
            if let Some((end, number)) = self.secret_at(bytes, hit) {
                let (start, end) = widen_to_escapes(line, hit, end);
                found.push((
                    start.max(found.last().map_or(0, |(_, end, _)| *end)),
                    end,
                    &self.replacements[number],
                ));
                offset = end;
            }
        }
        let mut all = Vec::with_capacity(found.len() + 1);
        let mut from = 0;
        for known in found.iter().map(Some).chain([None]) {
            let limit = known.map_or(bytes.len(), |known| known.0);
            let mut offset = from;
            while offset < limit {
                if let Some(shape) = secret_patterns::find_secret(&bytes[..limit], offset) {
                    let (start, end) = widen_to_escapes(line, shape.start, shape.end);
                    let (start, end) = (start.max(from), end.min(limit).max(shape.end));
                    all.push((start, end, "[redacted]"));
                    if shape.continues && end == bytes.len() {
                        self.is_inside_key.store(true, Ordering::Relaxed);
                    }
                    (from, offset) = (end, end);
                } else {
                    offset += 1;
                }
            }
            if let Some(known) = known {
                all.push(*known);
                from = known.1;
            }
        }
        let mut cleaned = String::with_capacity(line.len() + 32);
        let mut from = 0;
        for (start, end, mark) in all {
            cleaned.push_str(&line[from..start]);
            cleaned.push_str(mark);
            from = end;
        }
        cleaned.push_str(&line[from..]);
        // Check that the line is still valid JSON, because the redaction may have removed a number,
        // or a value that spans quotes.
        let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
        if line.trim_start().starts_with(['{', '[', '"']) && !is_json(&cleaned) && is_json(line) {
            return REDACTED_JSON.to_owned();
        }
        cleaned
    }
}

/// Removes everything that looks like a secret from a text of any number of lines.
///
/// Regatta applies this function to every text that it writes or sends and that no supervisor
/// process has redacted before. Such texts are prompts, briefings, messages, notices, logs, traces,
/// the audit log, the output of checks, and posts to other services.
pub fn redact_text(text: &str) -> String {
    // Use a new redactor for each text, because a redactor remembers from line to line that it is
    // inside a private key.
    let redactor = Redactor::default();
    text.split('\n')
        .map(|line| redactor.redact_line(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A set of two-byte sequences, stored as 65536 bits.
#[derive(Clone, Copy)]
struct BytePairs([u64; 1024]);

impl Default for BytePairs {
    fn default() -> BytePairs {
        BytePairs([0; 1024])
    }
}

impl BytePairs {
    fn add(&mut self, first: u8, second: u8) {
        let pair = usize::from(first) << 8 | usize::from(second);
        self.0[pair >> 6] |= 1 << (pair & 63);
    }

    fn contains_at(&self, bytes: &[u8], at: usize) -> bool {
        let (Some(first), Some(second)) = (bytes.get(at), bytes.get(at + 1)) else {
            return false;
        };
        let pair = usize::from(*first) << 8 | usize::from(*second);
        self.0[pair >> 6] >> (pair & 63) & 1 != 0
    }

    /// Returns the first position, at or after `at`, of a byte pair that is in this set.
    fn find_from(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let rest = bytes.get(at..)?;
        let hit = rest.windows(2).position(|bytes| {
            let pair = usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
            self.0[pair >> 6] >> (pair & 63) & 1 != 0
        })?;
        Some(at + hit)
    }

    /// Adds the first two bytes of each form in which a program may write the secret `spelling`:
    /// unchanged, with escapes, or percent-encoded.
    fn add_first_pairs(&mut self, spelling: &[char]) {
        let (Some(first), Some(second)) = (spelling.first(), spelling.get(1)) else {
            return;
        };
        let mut buffer = [0; 4];
        let raw = first.encode_utf8(&mut buffer).as_bytes();
        for digit in [
            hex_digit(raw[0] >> 4),
            hex_digit(raw[0] >> 4).to_ascii_uppercase(),
        ] {
            self.add(b'%', digit);
        }
        // Every character may be written as a unicode escape, which begins with these two bytes.
        // Some characters have other escapes too.
        self.add(b'\\', b'u');
        if let Some(letter) = escape_letter(*first) {
            self.add(b'\\', letter);
        }
        if *first == '\\' {
            (0..=255).for_each(|byte| self.add(b'\\', byte));
        }
        if raw.len() > 1 {
            self.add(raw[0], raw[1]);
            return;
        }
        let raw = raw[0];
        let second_raw = second.encode_utf8(&mut buffer).as_bytes()[0];
        let firsts: &[u8] = if *first == ' ' { b" +" } else { &[raw] };
        for first in firsts {
            for second in [
                second_raw,
                b'%',
                b'\\',
                if *second == ' ' { b'+' } else { second_raw },
            ] {
                self.add(*first, second);
            }
        }
    }
}

/// Checks whether the known secret `spelling` begins at `start`. The secret may be unchanged, have
/// JSON escapes (once or nested), or be percent-encoded in whole or in part. Returns the end of the
/// secret.
fn match_end(spelling: &[char], bytes: &[u8], start: usize, decode: bool) -> Option<usize> {
    let mut position = start;
    let mut rest = spelling;
    loop {
        // Match backslashes of the secret with as many or more backslashes of the text, because of
        // nested JSON. Each level of nesting doubles the backslashes and adds one before the next
        // character.
        let expected_backslashes = rest.iter().take_while(|c| **c == '\\').count();
        rest = &rest[expected_backslashes..];
        let mut found_backslashes = 0;
        while let Some(length) = backslash_length(&bytes[position..], decode) {
            position += length;
            found_backslashes += 1;
        }
        if found_backslashes < expected_backslashes {
            return None;
        }
        let Some((next, after_next)) = rest.split_first() else {
            return Some(position);
        };
        position += spelled_length(*next, &bytes[position..], found_backslashes > 0, decode)?;
        rest = after_next;
        if rest.is_empty() {
            return Some(position);
        }
    }
}

/// Returns the number of bytes that a backslash at the beginning of `text` occupies, whether the
/// backslash is plain or encoded. Returns `None` if `text` does not begin with a backslash.
fn backslash_length(text: &[u8], decode: bool) -> Option<usize> {
    match text {
        [b'%', b'5', b'c' | b'C', ..] if decode => Some(3),
        [b'\\', b'u', b'0', b'0', b'5', b'c' | b'C', ..] => Some(6),
        [b'\\', ..] => Some(1),
        _ => None,
    }
}

/// Returns the number of bytes that `character` occupies at the beginning of `text`, whether it is
/// plain, escaped or encoded. Returns `None` if `text` begins with another character.
fn spelled_length(character: char, text: &[u8], escaped: bool, decode: bool) -> Option<usize> {
    let mut buffer = [0; 4];
    let raw = character.encode_utf8(&mut buffer).as_bytes();
    let is_encoded = match character {
        '%' => decode && text.starts_with(b"%25"),
        'u' => escaped && text.starts_with(b"u0075"),
        _ => false,
    };
    if text.starts_with(raw) && !is_encoded {
        return Some(raw.len());
    }
    match text.first()? {
        b'%' => {
            let encoded = text.get(..raw.len() * 3)?;
            let is_match = encoded.chunks(3).zip(raw).all(|(encoded, byte)| {
                encoded[0] == b'%' && hex_equals(&encoded[1..], u32::from(*byte))
            });
            is_match.then_some(encoded.len())
        }
        b'+' if character == ' ' => Some(1),
        b'u' if escaped => {
            let mut units = [0; 2];
            match character.encode_utf16(&mut units) {
                [unit] => hex_equals(text.get(1..5)?, u32::from(*unit)).then_some(5),
                [high, low] => {
                    let is_pair = hex_equals(text.get(1..5)?, u32::from(*high))
                        && hex_equals(text.get(7..11)?, u32::from(*low));
                    (is_pair && text[5..7] == *b"\\u").then_some(11)
                }
                _ => None,
            }
        }
        letter => (escaped && escape_letter(character) == Some(*letter)).then_some(1),
    }
}

fn escape_letter(character: char) -> Option<u8> {
    Some(match character {
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        _ => return None,
    })
}

fn hex_digit(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit & 15)]
}

fn hex_equals(digits: &[u8], expected: u32) -> bool {
    let value = digits.iter().try_fold(0, |sum, byte| {
        Some(sum << 4 | char::from(*byte).to_digit(16)?)
    });
    value == Some(expected)
}

/// Widens a range whose ends lie inside an escape sequence, so that no half of an escape remains in
/// the line.
fn widen_to_escapes(line: &str, start: usize, end: usize) -> (usize, usize) {
    let start = escape_around(line, start).map_or(start, |(escape_start, _)| escape_start);
    let end = escape_around(line, end).map_or(end, |(_, escape_end)| escape_end);
    (start, end)
}

/// Returns the start and end of the escape sequence that begins before position `at` and ends after
/// it.
fn escape_around(line: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = line.as_bytes();
    for back in 1..=5.min(at) {
        let start = at - back;
        if bytes[start] != b'\\' || !secret_patterns::is_escaped(bytes, start + 1) {
            continue;
        }
        let end = match bytes.get(start + 1) {
            Some(b'u')
                if bytes.len() >= start + 6
                    && bytes[start + 2..start + 6]
                        .iter()
                        .all(u8::is_ascii_hexdigit) =>
            {
                start + 6
            }
            Some(_) => line[start + 1..]
                .chars()
                .next()
                .map_or(start + 1, |c| start + 1 + c.len_utf8()),
            None => return None,
        };
        return (end > at).then_some((start, end));
    }
    None
}

/// Returns those base64 characters of a value that do not depend on the text around the value.
/// `ahead` is the number of bytes, modulo 3, that precede the value in the encoded text.
fn base64_core(value: &[u8], ahead: usize, base64: &Encoding) -> Vec<char> {
    let shifted = [&vec![0; ahead][..], value].concat();
    let text = base64.encode(&shifted);
    let first = (ahead * 8).div_ceil(6);
    let last = shifted.len() * 8 / 6;
    text[first..last].chars().collect()
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
