//! Finds secrets by the names before them: `password=…`, `"api_key": "…"`, `--token …`,
//! `postgres://u:…@host`.
//!
//! The module `secret_patterns` recognises keys of known services by their shape. Most secrets have
//! no special shape, because a password can be any word; only the name before the password shows
//! that the password is a secret. The caller runs [`find_named_secret`] at every position where
//! such a name may begin. The function looks for a separator and a value after the name and judges
//! the value: a type, a variable, a call or a placeholder is not a secret.
//!
//! Every function reads a bounded number of bytes, so the time to redact a line grows only linearly
//! with its length.

mod multiline; // values on another line than their names
mod urls; // secrets in addresses
mod value_check; // whether a value is a secret

use crate::secret_patterns::SecretMatch;

use self::urls::{curl_password, url_password, webhook_secret};
use self::value_check::ValueContext;

pub(crate) use self::multiline::{MultilineForm, TRIPLE_QUOTES, multiline_form, variable_value};

/// The number of bytes of a value that are read to judge it. A longer secret is still redacted
/// completely; see [`whole_value`].
const MAX_VALUE_BYTES: usize = 4_096;
/// The maximum length of a host and port in a URL: 253 bytes, a colon and five digits, with every
/// byte percent-encoded.
const MAX_HOST_BYTES: usize = 1_024;
/// The maximum number of bytes of a name before its last word, as in
/// `spring.datasource.primary.password`.
const MAX_NAME_PREFIX_BYTES: usize = 120;

/// The first two bytes of everything for which the search has to stop: the last words of secrets'
/// names, URLs, login options and webhook paths. Other positions in a line are skipped.
pub(crate) const FIRST_PAIRS: &[[u8; 2]] = &[
    *b"pa", *b"PA", *b"Pa", *b"pw", *b"PW", *b"Pw", *b"se", *b"SE", *b"Se", *b"to", *b"TO", *b"To",
    *b"ke", *b"KE", *b"Ke", *b"cr", *b"CR", *b"Cr", *b"co", *b"CO", *b"Co", *b"si", *b"SI", *b"Si",
    *b"au", *b"AU", *b"Au", *b"ds", *b"DS", *b":/", *b"3A", *b"3a", *b"-u", *b"--", *b"/s",
];

/// The origin of the value that follows a secret's name. The origin decides how the value is
/// judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKind {
    /// A value that a person chose, such as a password. Such a value may be a plain word.
    Chosen,
    /// A value that a machine generated, such as a token or a key.
    Generated,
}

/// Words that end the name of a secret, such as `password` in `DB_PASSWORD`, with the kind of value
/// that follows.
const SECRET_WORDS: &[(&str, SecretKind)] = &[
    ("password", SecretKind::Chosen),
    ("passwd", SecretKind::Chosen),
    ("passphrase", SecretKind::Chosen),
    ("passcode", SecretKind::Chosen),
    ("passwort", SecretKind::Chosen),
    ("pass", SecretKind::Chosen),
    ("pwd", SecretKind::Chosen),
    ("secret", SecretKind::Generated),
    ("token", SecretKind::Generated),
    ("credentials", SecretKind::Generated),
    ("credential", SecretKind::Generated),
    ("creds", SecretKind::Generated),
    ("cookie", SecretKind::Generated),
    ("sig", SecretKind::Generated),
    ("auth", SecretKind::Generated),
    ("authorization", SecretKind::Generated),
];

/// Words that mark the name of a secret if the word `key` follows, as in `api_key`.
const KEY_PREFIXES: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "account",
    "shared",
    "master",
    "auth",
    "service",
    "storage",
    "subscription",
    "deploy",
    "webhook",
    "app",
    "application",
    "client",
    "admin",
    "ssh",
    "session",
    "hmac",
    "license",
    "consumer",
    "sharedaccess",
    "functions",
    "publishing",
    "crypt",
    "rsa",
    "aes",
    "server",
];

/// Returns the position of a secret whose announcement begins at `at`. The announcement is the last
/// word of a name, the user part of a URL, the login option of a curl command, or the path of a
/// webhook.
pub(crate) fn find_named_secret(bytes: &[u8], at: usize) -> Option<SecretMatch> {
    let secret_match = |(start, end)| SecretMatch {
        start,
        end,
        continues: false,
    };
    match bytes.get(at)? {
        b':' | b'3' => url_password(bytes, at).map(secret_match),
        b'-' => curl_password(bytes, at).map(secret_match),
        b'/' => webhook_secret(bytes, at).map(secret_match),
        _ => secret_after_name(bytes, at).map(secret_match),
    }
}

fn to_lower(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

fn starts_with_word(text: &[u8], word: &str) -> bool {
    text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes())
}

fn secret_after_name(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    // Check the third letter of the word first, because it excludes nearly every other word, such
    // as `path`, `total` and `cost`.
    let third_letter = to_lower(*text.get(2)?);
    let may_be = match to_lower(text[0]) {
        b'p' => third_letter == b's' || third_letter == b'd',
        b's' => third_letter == b'c' || third_letter == b'g',
        b't' => third_letter == b'k',
        b'c' => third_letter == b'e' || third_letter == b'o',
        b'a' => third_letter == b't',
        b'k' => third_letter == b'y',
        _ => third_letter == b'n',
    };
    if !may_be {
        return None;
    }
    let (length, kind) = match to_lower(text[0]) {
        b'k' => (is_key_name(bytes, at).then_some(3)?, SecretKind::Generated),
        b'd' => (
            starts_with_word(text, "dsn").then_some(3)?,
            SecretKind::Generated,
        ),
        _ => {
            let (word, kind) = SECRET_WORDS
                .iter()
                .find(|(word, _)| starts_with_word(text, word))?;
            (word.len(), *kind)
        }
    };
    let name = SecretName::ending_at(bytes, at, at + length)?;
    // Short words must begin a word of the name, because they also occur inside other words, such
    // as compass, author and bypass.
    let is_short = length <= 4 || starts_with_word(text, "cookie");
    if is_short
        && !name.is_word_start(bytes, at)
        && !name.text(bytes).eq_ignore_ascii_case(b"requirepass")
    {
        return None;
    }
    if starts_with_word(text, "authorization")
        || (starts_with_word(text, "auth") && !name.has_separator(bytes))
    {
        return None; // the header has a scheme before its value, which `shapes` handles
    }
    let (start, notation) = value_start(bytes, &name)?;
    let limit = bytes.len().min(start + MAX_VALUE_BYTES);
    let (start, mut end, is_quoted) = value_range(bytes, start, notation);
    if notation == Notation::Colon && !is_quoted && starts_with_word(text, "cookie") {
        // A cookie header has all of its cookies on one line, so its value ends at the end of the
        // line.
        let rest = &bytes[start..bytes.len().min(start + MAX_VALUE_BYTES)];
        end = start
            + rest
                .iter()
                .position(|byte| b"\"'\\<>`".contains(byte))
                .unwrap_or(rest.len());
        let is_cookies = rest[..end - start].contains(&b'=') && end - start >= 8;
        return is_cookies.then(|| (start, whole_value(bytes, end, start + MAX_VALUE_BYTES)));
    }
    let value = bytes.get(start..end)?;
    ValueContext {
        bytes,
        name: &name,
        kind,
        notation,
        is_quoted,
    }
    .is_secret(value)
    .then(|| (start, whole_value(bytes, end, limit)))
}

/// Returns the real end of a value that was judged only up to `limit`, so that a long secret is
/// removed completely. The end is before an ASCII byte or at the end of the text, so it never
/// splits a character.
fn whole_value(bytes: &[u8], end: usize, limit: usize) -> usize {
    if end < limit {
        return end;
    }
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>".contains(byte);
    bytes[end..]
        .iter()
        .position(ends)
        .map_or(bytes.len(), |length| end + length)
}

/// Returns whether the word `key` at position `at` ends the name of a secret, such as `api_key`.
fn is_key_name(bytes: &[u8], at: usize) -> bool {
    if !starts_with_word(&bytes[at..], "key") {
        return false;
    }
    let before = &bytes[at.saturating_sub(24)..at];
    let before = match before.last() {
        Some(b'_' | b'-' | b'.' | b' ') => &before[..before.len() - 1],
        _ => before,
    };
    KEY_PREFIXES.iter().any(|word| {
        before.len() >= word.len()
            && before[before.len() - word.len()..].eq_ignore_ascii_case(word.as_bytes())
            && before.len().checked_sub(word.len() + 1).is_none_or(|last| {
                let (last, first) = (before[last], before[before.len() - word.len()]);
                !last.is_ascii_alphanumeric()
                    || (last.is_ascii_lowercase() && first.is_ascii_uppercase())
            })
    })
}

/// The position of a secret's name, such as `DB_PASSWORD`, in a line, and the position of the
/// name's last word.
struct SecretName {
    start: usize,
    end: usize,
}

impl SecretName {
    /// Returns the secret's name whose last word begins at `at` and ends at `end`, or `None` if the
    /// word continues after `end`.
    fn ending_at(bytes: &[u8], at: usize, end: usize) -> Option<SecretName> {
        let is_part =
            |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte) || byte >= 0x80;
        // Allow digits after the word: `DB_PASSWORD_2` and `password1` are names of passwords,
        // while `token_count` is not.
        let digits = |from: usize| {
            bytes[from..]
                .iter()
                .take(3)
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let mut end = end
            + if bytes.get(end) == Some(&b'_') {
                0
            } else {
                digits(end)
            };
        if bytes.get(end) == Some(&b'_') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
        }
        if bytes
            .get(end)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80)
        {
            return None;
        }
        if bytes.get(end) == Some(&b'-')
            && bytes.get(end + 1).is_some_and(u8::is_ascii_alphanumeric)
        {
            return None;
        }
        let from = at.saturating_sub(MAX_NAME_PREFIX_BYTES);
        let start = at
            - bytes[from..at]
                .iter()
                .rev()
                .take_while(|byte| is_part(**byte))
                .count();
        Some(SecretName { start, end })
    }

    fn text<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.end]
    }

    /// Returns whether a word of the secret's name begins at `at`, as `pass` does in `db_pass` and
    /// `dbPass` but not in `bypass`.
    fn is_word_start(&self, bytes: &[u8], at: usize) -> bool {
        let Some(last) = at.checked_sub(1).filter(|last| *last >= self.start) else {
            return true;
        };
        !bytes[last].is_ascii_alphanumeric()
            || (bytes[last].is_ascii_lowercase() && bytes[at].is_ascii_uppercase())
    }

    /// Returns whether the secret's name is written in capitals, like an environment variable.
    fn is_upper_case(&self, bytes: &[u8]) -> bool {
        let text = self.text(bytes);
        text.iter().any(u8::is_ascii_uppercase) && !text.iter().any(u8::is_ascii_lowercase)
    }

    fn has_separator(&self, bytes: &[u8]) -> bool {
        self.text(bytes).iter().any(|byte| b"_-.".contains(byte))
    }
}

/// The syntax in a line between a secret's name and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// An equals sign without spaces, as in `name=value`.
    Equals,
    /// An assignment with spaces, as in `name = value`, `name := value` or `name => value`.
    Spaced,
    /// A colon, as in `name: value`.
    Colon,
    /// The name and the value are separated only by a space, as in `--name value`, `ENV NAME value`
    /// or `login x password y`.
    Space,
    /// An XML tag, as in `<name>value</name>`.
    Tag,
    /// A percent-encoded separator, as in `name%3Dvalue`.
    Percent,
}

/// Returns the position at which the value after a secret's name begins, and the syntax between the
/// name and the value.
fn value_start(bytes: &[u8], name: &SecretName) -> Option<(usize, Notation)> {
    let mut offset = name.end;
    let skip = |offset: usize, set: &[u8], max_bytes: usize| {
        offset
            + bytes[offset.min(bytes.len())..]
                .iter()
                .take(max_bytes)
                .take_while(|byte| set.contains(byte))
                .count()
    };
    if bytes.get(offset) == Some(&b'>') && name.start > 0 && bytes[name.start - 1] == b'<' {
        return Some((offset + 1, Notation::Tag));
    }
    if bytes[offset..].len() >= 3 && bytes[offset..offset + 3].eq_ignore_ascii_case(b"%3D") {
        return Some((offset + 3, Notation::Percent));
    }
    // Skip the characters that close a percent-encoded quoted name and separate it from its value,
    // as in `%22password%22%3A%22…%22`.
    let rest = &bytes[offset..bytes.len().min(offset + 12)];
    if rest.len() >= 6
        && (rest.starts_with(b"%22") || rest.starts_with(b"%27"))
        && rest[3..6].eq_ignore_ascii_case(b"%3A")
    {
        let gap = if rest[6..].starts_with(b"%20") { 3 } else { 0 };
        return Some((offset + 6 + gap, Notation::Percent));
    }
    // Skip the quotes, brackets and escapes that close the secret's name.
    let closed = skip(offset, b"\"'`\\])}", 6);
    let spaced = skip(closed, b" \t", 40);
    let separator = bytes.get(spaced)?;
    let next = bytes.get(spaced + 1).copied().unwrap_or(b' ');
    match (separator, next) {
        (b'=', b'=' | b'~') | (b':', b':') => None,
        (b'=', b'>') | (b':', b'=') => Some((skip(spaced + 2, b" \t", 40), Notation::Spaced)),
        (b'=', _) => {
            offset = skip(spaced + 1, b" \t", 40);
            let is_tight = spaced == closed && offset == spaced + 1;
            Some((
                offset,
                if is_tight {
                    Notation::Equals
                } else {
                    Notation::Spaced
                },
            ))
        }
        (b':', _) => {
            offset = skip(spaced + 1, b" \t", 40);
            // Skip the type of a declaration, as in `password: &str = "…"`.
            let is_type = |byte: u8| byte.is_ascii_alphanumeric() || b"_&<>:' ?[]|".contains(&byte);
            let rest = &bytes[offset..bytes.len().min(offset + 60)];
            let length = rest.iter().take_while(|byte| is_type(**byte)).count();
            let is_declared =
                length > 1 && rest[length..].starts_with(b"= ") && rest[length - 1] == b' ';
            if is_declared
                && rest
                    .get(length + 2)
                    .is_some_and(|byte| b"\"'`br".contains(byte))
            {
                return Some((offset + length + 2, Notation::Spaced));
            }
            Some((offset, Notation::Colon))
        }
        _ if spaced > name.end && closed == name.end => {
            is_space_separated(bytes, name).then_some((spaced, Notation::Space))
        }
        _ => None,
    }
}

/// Returns whether a mere space may separate the secret's name from its value, as after a
/// command-line flag, in a Dockerfile's `ENV` or in a line of a `.netrc` file.
fn is_space_separated(bytes: &[u8], name: &SecretName) -> bool {
    if bytes[name.start..].starts_with(b"--") {
        return name.start == 0 || !bytes[name.start - 1].is_ascii_alphanumeric();
    }
    let before = &bytes[name.start.saturating_sub(80)..name.start];
    let ends = |word: &str| before.ends_with(word.as_bytes());
    let has = |word: &str| {
        before
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    (name.is_upper_case(bytes) && (ends("ENV ") || ends("ARG ") || ends("setx ")))
        || (has("login ") && (has("machine ") || before.starts_with(b"login ")))
        || ends("requirepass ")
        || (bytes[name.start..].starts_with(b"requirepass") && before.is_empty())
}

/// Returns the real start and end of the value that begins at `start`, without quotes, and whether
/// the value is in quotes.
fn value_range(bytes: &[u8], start: usize, notation: Notation) -> (usize, usize, bool) {
    let limit = bytes.len().min(start + MAX_VALUE_BYTES);
    let text = &bytes[start.min(limit)..limit];
    if notation == Notation::Tag {
        let length = text
            .iter()
            .position(|byte| *byte == b'<')
            .unwrap_or(text.len());
        return (start, start + length, true);
    }
    // Skip the prefix of a string literal, as in b"…", r'…', f"…", @"…".
    let prefix = match text {
        [b'b' | b'r' | b'f' | b'u' | b'@' | b'$', b'"' | b'\'', ..] => 1,
        _ => 0,
    };
    let escapes = text[prefix..]
        .iter()
        .take(8)
        .take_while(|byte| **byte == b'\\')
        .count();
    let quote = text
        .get(prefix + escapes)
        .filter(|byte| b"\"'`".contains(byte));
    if let Some(quote) = quote {
        let open = prefix + escapes + 1;
        let mut at = open;
        while at < text.len() {
            let slashes = text[at..].iter().take_while(|byte| **byte == b'\\').count();
            if text.get(at + slashes) == Some(quote) && slashes <= escapes {
                break;
            }
            at += (slashes + 1).min(text.len() - at);
        }
        if at >= text.len() {
            // No closing quote was found: either the quote closes an earlier text, or the line was
            // cut. The value then ends before the next space or punctuation, or at the end of the
            // line.
            let ends = |byte: u8| byte.is_ascii_whitespace() || b"(),;{}".contains(&byte);
            let length = text[open..]
                .iter()
                .position(|byte| ends(*byte))
                .unwrap_or(text.len() - open);
            return (start + open, start + open + length, false);
        }
        return (start + open, start + at.min(text.len()), true);
    }
    if text.starts_with(b"%22") || text.starts_with(b"%27") {
        let length = text[3..]
            .windows(3)
            .position(|part| part == &text[..3])
            .unwrap_or(text.len() - 3);
        return (start + 3, start + 3 + length, true);
    }
    let ends = |byte: u8| byte.is_ascii_whitespace() || b",;&\"'`<>)}]|\\".contains(&byte);
    let length = text
        .iter()
        .position(|byte| ends(*byte))
        .unwrap_or(text.len());
    let cut = match notation {
        Notation::Percent => text[..length]
            .windows(3)
            .position(|part| part.eq_ignore_ascii_case(b"%26")),
        _ => None,
    };
    (start, start + cut.unwrap_or(length), false)
}
