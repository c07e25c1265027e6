//! Converts paths to URIs and back, and gives each URI one spelling. Special characters are written
//! as percent escapes, such as `%2A`.
//!
//! In a URI an unescaped `*` or `?` is a wildcard, an unescaped `/` separates segments, and `%`
//! always starts an escape of one byte. [`escape`] converts a path, and [`canonical`] converts text
//! that somebody wrote. Both escape only the characters that must be escaped, so two URIs name the
//! same thing only if their texts are equal.

use std::borrow::Cow;

/// One character of a path after decoding, or one byte that is not part of valid UTF-8.
///
/// The number is the character's code point. For a byte that is not UTF-8, the number is above all
/// code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol(u32);

impl Symbol {
    pub(super) fn from_char(character: char) -> Symbol {
        Symbol(character as u32)
    }

    fn from_stray_byte(byte: u8) -> Symbol {
        Symbol(char::MAX as u32 + 1 + u32::from(byte))
    }
}

/// Returns whether a character must be written as an escape to stand for itself. Without the
/// escape, the character has a special meaning or is refused.
fn must_be_escaped(character: char) -> bool {
    matches!(character, '%' | '*' | '?' | '/' | '\\') || character.is_control()
}

/// Converts a path pattern to the path of a URI. `*`, `?` and `/` keep their meaning as wildcards
/// and separators.
pub(super) fn escape(pattern: &str) -> Cow<'_, str> {
    let needs_escape =
        |character: char| must_be_escaped(character) && !matches!(character, '*' | '?' | '/');
    if !pattern.contains(needs_escape) {
        return Cow::Borrowed(pattern);
    }
    let mut escaped = String::with_capacity(pattern.len() + 8);
    for character in pattern.chars() {
        if needs_escape(character) {
            push_escaped(&mut escaped, character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Converts the path of a URI back to a path pattern, or returns `None` if no path pattern can
/// express it.
pub(super) fn unescape(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut pattern = String::with_capacity(path.len());
    for part in parts(path) {
        match part? {
            EscapePart::Raw(character) => pattern.push(character),
            EscapePart::Escaped(character) if !matches!(character, '*' | '?' | '/') => {
                pattern.push(character)
            }
            EscapePart::Escaped(_) | EscapePart::StrayByte(_) => return None,
        }
    }
    Some(Cow::Owned(pattern))
}

/// Rewrites an escaped path so that only the characters that need it are escaped. Returns `None` if
/// an escape is malformed.
pub(super) fn canonical(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut spelling = String::with_capacity(path.len());
    for part in parts(path) {
        match part? {
            EscapePart::Raw(character) => spelling.push(character),
            EscapePart::Escaped(character) if must_be_escaped(character) => {
                push_escaped(&mut spelling, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            EscapePart::Escaped(character) => spelling.push(character),
            EscapePart::StrayByte(byte) => push_escaped(&mut spelling, &[byte]),
        }
    }
    Some(Cow::Owned(spelling))
}

/// Decodes an escaped path. Each symbol comes with the first character of its written form. This
/// character is `%` for an escape, so an escaped `*` is not taken for a wildcard.
pub(super) fn symbols(path: &str) -> impl Iterator<Item = (char, Symbol)> + '_ {
    parts(path).flatten().map(|part| match part {
        EscapePart::Raw(character) => (character, Symbol::from_char(character)),
        EscapePart::Escaped(character) => ('%', Symbol::from_char(character)),
        EscapePart::StrayByte(byte) => ('%', Symbol::from_stray_byte(byte)),
    })
}

/// Returns the length in bytes that an escaped path has after decoding.
pub(super) fn unescaped_len(path: &str) -> usize {
    path.len() - 2 * path.matches('%').count()
}

/// One decoded character or byte of an escaped path, and whether it was escaped.
enum EscapePart {
    Raw(char),
    Escaped(char),
    StrayByte(u8),
}

/// Decodes an escaped path part by part. A malformed escape yields `None` and ends the sequence.
fn parts(path: &str) -> impl Iterator<Item = Option<EscapePart>> + '_ {
    let mut rest = path;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        if first != '%' {
            rest = &rest[first.len_utf8()..];
            return Some(Some(EscapePart::Raw(first)));
        }
        let Some(byte) = escaped_byte(rest) else {
            rest = "";
            return Some(None);
        };
        // A character outside ASCII is written as two to four escapes, one for each of its bytes.
        // Try to read a character from one to four bytes.
        let mut bytes = [byte, 0, 0, 0];
        for len in 1..=4 {
            if let Ok(text) = std::str::from_utf8(&bytes[..len])
                && let Some(character) = text.chars().next()
            {
                rest = &rest[3 * len..];
                return Some(Some(EscapePart::Escaped(character)));
            }
            match rest.get(3 * len..).and_then(escaped_byte) {
                Some(next) if len < 4 => bytes[len] = next,
                _ => break,
            }
        }
        rest = &rest[3..];
        Some(Some(EscapePart::StrayByte(byte)))
    })
}

/// Decodes the escape with which `text` begins, or returns `None` if it is malformed.
fn escaped_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix('%')?.get(..2)?;
    // Checked here because `from_str_radix` would also accept a sign, such as `+F`.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// Appends each of `bytes` to `text` as an escape such as `%2A`.
fn push_escaped(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        text.push('%');
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_escaped_only_where_they_must_be() {
        for (pattern, escaped) in [
            ("src/a.rs", "src/a.rs"),
            ("web/50% off/index.html", "web/50%25 off/index.html"),
            ("%61.txt", "%2561.txt"),
            ("%25", "%2525"),
            ("a*/?/**", "a*/?/**"),
            ("ä \"x\" #&+", "ä \"x\" #&+"),
            ("a\\b\n", "a%5Cb%0A"),
        ] {
            assert_eq!(escape(pattern), escaped, "{pattern:?}");
            assert_eq!(unescape(escaped).as_deref(), Some(pattern), "{escaped:?}");
        }
    }

    #[test]
    fn each_path_has_one_canonical_spelling() {
        for (path, spelling) in [
            ("%61.txt", Some("a.txt")),
            ("%2561.txt", Some("%2561.txt")),
            ("a%20b", Some("a b")),
            ("%C3%A4", Some("ä")),
            ("%c3%a4%2f", Some("ä%2F")),
            ("%2a%3f%25%5c%0a%7f", Some("%2A%3F%25%5C%0A%7F")),
            ("%C2%85", Some("%C2%85")), // a control character
            ("%FF%C3", Some("%FF%C3")),
            ("%E2%82%41", Some("%E2%82A")),
            ("%F0%9F%9A%A3x", Some("🚣x")),
            ("100%", None),
            ("% off", None),
            ("%zz", None),
            ("%+1", None),
            ("%ä", None),
            ("%4", None),
        ] {
            assert_eq!(canonical(path).as_deref(), spelling, "{path:?}");
        }
    }

    #[test]
    fn paths_that_no_pattern_escapes_to_are_not_unescaped() {
        for path in ["%2A", "a%3F", "%2F", "%FF", "100%"] {
            assert_eq!(unescape(path), None, "{path:?}");
        }
    }

    proptest! {
        /// D9: an escaped path is canonical, and unescaping gives the path back.
        #[test]
        fn d9_escaping_is_undone_by_unescaping(pattern in any::<String>()) {
            let escaped = escape(&pattern);
            prop_assert!(canonical(&escaped).as_deref() == Some(&*escaped));
            prop_assert!(unescape(&escaped).as_deref() == Some(&*pattern));
            prop_assert_eq!(unescaped_len(&escaped), pattern.len());
        }

        #[test]
        fn d9_the_canonical_spelling_is_stable(path in "([a%/*?é]|%[0-9a-fA-F]{2}|%[CE][0-9]%[89AB][0-9A-F]){0,12}") {
            if let Some(spelling) = canonical(&path) {
                let meaning = |text: &str| symbols(text).map(|pair| pair.1).collect::<Vec<_>>();
                prop_assert!(canonical(&spelling).as_deref() == Some(&*spelling));
                prop_assert_eq!(meaning(&path), meaning(&spelling));
            }
        }
    }
}
