//! Finds secrets by their names: `password=…`, `"api_key": "…"`, `--token …`,
//! `postgres://u:…@host`.
//!
//! The module `secret_patterns` recognises keys of known makers by their shape. Most secrets have
//! no shape, because a password can be any word; only the name before it shows that it is one. The
//! caller runs [`find_named_secret`] at every position where such a name may begin. The function
//! looks for a separator and a value after the name, and judges the value: a type, a variable, a
//! call or a placeholder is not a secret.
//!
//! Every function reads a bounded number of bytes, so a line is redacted in linear time.

use crate::secret_patterns::SecretMatch;

/// The number of bytes of a value that are judged. A longer secret is still redacted whole; see
/// [`whole_value`].
const MAX_VALUE_BYTES: usize = 4_096;
/// The maximum length of a host with its port: 253 bytes, a colon and five digits, with every byte
/// percent-encoded.
const MAX_HOST_BYTES: usize = 1_024;
/// The number of bytes that a name may have before its last word, as in
/// `spring.datasource.primary.password`.
const MAX_NAME_PREFIX_BYTES: usize = 120;

/// The pairs of bytes with which the last word of a name, or the `://` of a URL, may begin.
pub(crate) const FIRST_PAIRS: &[[u8; 2]] = &[
    *b"pa", *b"PA", *b"Pa", *b"pw", *b"PW", *b"Pw", *b"se", *b"SE", *b"Se", *b"to", *b"TO", *b"To",
    *b"ke", *b"KE", *b"Ke", *b"cr", *b"CR", *b"Cr", *b"co", *b"CO", *b"Co", *b"si", *b"SI", *b"Si",
    *b"au", *b"AU", *b"Au", *b"ds", *b"DS", *b":/", *b"3A", *b"3a", *b"-u", *b"--", *b"/s",
];

/// The kind of value that a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKind {
    /// A value that a person chose, such as a password. It may be a plain word.
    Chosen,
    /// A value that a machine generated, such as a token or a key.
    Generated,
}

/// The last words of names that secrets have.
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

/// The words before `key` that make a name a secret's name.
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

/// Returns the secret whose name has its last word at this position, or the user part of a URL or
/// the login of a curl command that begins here.
pub(crate) fn find_named_secret(bytes: &[u8], at: usize) -> Option<SecretMatch> {
    let shape = |(start, end)| SecretMatch {
        start,
        end,
        continues: false,
    };
    match bytes.get(at)? {
        b':' | b'3' => url_password(bytes, at).map(shape),
        b'-' => curl_password(bytes, at).map(shape),
        b'/' => webhook_secret(bytes, at).map(shape),
        _ => secret_after_name(bytes, at).map(shape),
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
    // The third letter excludes nearly every other word, such as `secure`, `total`, `path` and
    // `cost`.
    let third = to_lower(*text.get(2)?);
    let may_be = match to_lower(text[0]) {
        b'p' => third == b's' || third == b'd',
        b's' => third == b'c' || third == b'g',
        b't' => third == b'k',
        b'c' => third == b'e' || third == b'o',
        b'a' => third == b't',
        b'k' => third == b'y',
        _ => third == b'n',
    };
    if !may_be {
        return None;
    }
    let (length, strength) = match to_lower(text[0]) {
        b'k' => (is_key_name(bytes, at).then_some(3)?, SecretKind::Generated),
        b'd' => (
            starts_with_word(text, "dsn").then_some(3)?,
            SecretKind::Generated,
        ),
        _ => {
            let (word, strength) = SECRET_WORDS
                .iter()
                .find(|(word, _)| starts_with_word(text, word))?;
            (word.len(), *strength)
        }
    };
    let name = SecretName::ending_at(bytes, at, at + length)?;
    // Short words are also parts of other words, such as compass, author and bypass.
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
    let (start, style) = value_start(bytes, &name)?;
    let limit = bytes.len().min(start + MAX_VALUE_BYTES);
    let (start, mut end, is_quoted) = value_range(bytes, start, style);
    if style == Notation::Colon && !is_quoted && starts_with_word(text, "cookie") {
        // A header has all of its cookies on one line.
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
        kind: strength,
        notation: style,
        is_quoted,
    }
    .is_secret(value)
    .then(|| (start, whole_value(bytes, end, limit)))
}

/// Returns the end of the whole value if the value was cut at `limit`, so that nothing of a long
/// secret is left. The end is before an ASCII byte or at the end of the text, so it never splits a
/// character.
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

/// Returns whether `key` at this position ends the name of a secret key.
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

/// The name of a value.
struct SecretName {
    start: usize,
    end: usize,
}

impl SecretName {
    /// Returns the whole name whose last word ends at `end`, or `None` if the word continues there.
    fn ending_at(bytes: &[u8], at: usize, end: usize) -> Option<SecretName> {
        let is_part =
            |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte) || byte >= 0x80;
        // `DB_PASSWORD_2` and `password1` are names of passwords; `token_count` is not.
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

    /// Returns whether a word of the name begins at `at`, as in `db_pass` and `dbPass` but not in
    /// `bypass`.
    fn is_word_start(&self, bytes: &[u8], at: usize) -> bool {
        let Some(last) = at.checked_sub(1).filter(|last| *last >= self.start) else {
            return true;
        };
        !bytes[last].is_ascii_alphanumeric()
            || (bytes[last].is_ascii_lowercase() && bytes[at].is_ascii_uppercase())
    }

    /// Returns whether the name is written like an environment variable.
    fn is_upper_case(&self, bytes: &[u8]) -> bool {
        let text = self.text(bytes);
        text.iter().any(u8::is_ascii_uppercase) && !text.iter().any(u8::is_ascii_lowercase)
    }

    fn has_separator(&self, bytes: &[u8]) -> bool {
        self.text(bytes).iter().any(|byte| b"_-.".contains(byte))
    }
}

/// The notation that connects a value with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// `name=value`
    Equals,
    /// `name = value`, `name := value`, `name => value`
    Spaced,
    /// `name: value`
    Colon,
    /// `--name value`, `ENV NAME value`, `login x password y`
    Space,
    /// `<name>value</name>`
    Tag,
    /// `name%3Dvalue`
    Percent,
}

/// Returns the start of the value and the notation.
fn value_start(bytes: &[u8], name: &SecretName) -> Option<(usize, Notation)> {
    let mut at = name.end;
    let skip = |at: usize, set: &[u8], most: usize| {
        at + bytes[at.min(bytes.len())..]
            .iter()
            .take(most)
            .take_while(|byte| set.contains(byte))
            .count()
    };
    if bytes.get(at) == Some(&b'>') && name.start > 0 && bytes[name.start - 1] == b'<' {
        return Some((at + 1, Notation::Tag));
    }
    if bytes[at..].len() >= 3 && bytes[at..at + 3].eq_ignore_ascii_case(b"%3D") {
        return Some((at + 3, Notation::Percent));
    }
    // A percent-encoded quoted name: %22password%22%3A%22…%22
    let rest = &bytes[at..bytes.len().min(at + 12)];
    if rest.len() >= 6
        && (rest.starts_with(b"%22") || rest.starts_with(b"%27"))
        && rest[3..6].eq_ignore_ascii_case(b"%3A")
    {
        let gap = if rest[6..].starts_with(b"%20") { 3 } else { 0 };
        return Some((at + 6 + gap, Notation::Percent));
    }
    // The quotes, brackets and escapes that close the name.
    let closed = skip(at, b"\"'`\\])}", 6);
    let spaced = skip(closed, b" \t", 40);
    let separator = bytes.get(spaced)?;
    let next = bytes.get(spaced + 1).copied().unwrap_or(b' ');
    match (separator, next) {
        (b'=', b'=' | b'~') | (b':', b':') => None,
        (b'=', b'>') | (b':', b'=') => Some((skip(spaced + 2, b" \t", 40), Notation::Spaced)),
        (b'=', _) => {
            at = skip(spaced + 1, b" \t", 40);
            let is_tight = spaced == closed && at == spaced + 1;
            Some((
                at,
                if is_tight {
                    Notation::Equals
                } else {
                    Notation::Spaced
                },
            ))
        }
        (b':', _) => {
            at = skip(spaced + 1, b" \t", 40);
            // A declaration with its type: password: &str = "…"
            let is_type = |byte: u8| byte.is_ascii_alphanumeric() || b"_&<>:' ?[]|".contains(&byte);
            let rest = &bytes[at..bytes.len().min(at + 60)];
            let length = rest.iter().take_while(|byte| is_type(**byte)).count();
            let is_declared =
                length > 1 && rest[length..].starts_with(b"= ") && rest[length - 1] == b' ';
            if is_declared
                && rest
                    .get(length + 2)
                    .is_some_and(|byte| b"\"'`br".contains(byte))
            {
                return Some((at + length + 2, Notation::Spaced));
            }
            Some((at, Notation::Colon))
        }
        _ if spaced > name.end && closed == name.end => {
            space_separated(bytes, name).then_some((spaced, Notation::Space))
        }
        _ => None,
    }
}

/// Returns whether only a space separates the name from its value, as for a flag, a Dockerfile's
/// `ENV` or a line of a `.netrc`.
fn space_separated(bytes: &[u8], name: &SecretName) -> bool {
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

/// Returns the start and the end of the value, and whether it is quoted.
fn value_range(bytes: &[u8], start: usize, style: Notation) -> (usize, usize, bool) {
    let limit = bytes.len().min(start + MAX_VALUE_BYTES);
    let text = &bytes[start.min(limit)..limit];
    if style == Notation::Tag {
        let length = text
            .iter()
            .position(|byte| *byte == b'<')
            .unwrap_or(text.len());
        return (start, start + length, true);
    }
    // The prefix of a string literal: b"…", r'…', f"…", @"…".
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
            // The quote has no counterpart, because it closes another text or because the line was
            // cut. A cut value has no code after it.
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
    let cut = match style {
        Notation::Percent => text[..length]
            .windows(3)
            .position(|part| part.eq_ignore_ascii_case(b"%26")),
        _ => None,
    };
    (start, start + cut.unwrap_or(length), false)
}

/// The context in which a value is judged.
struct ValueContext<'a> {
    bytes: &'a [u8],
    name: &'a SecretName,
    kind: SecretKind,
    notation: Notation,
    is_quoted: bool,
}

impl ValueContext<'_> {
    fn is_secret(&self, value: &[u8]) -> bool {
        if value.len() < 3 || is_placeholder(value) {
            return false;
        }
        let has = |is: fn(&u8) -> bool| value.iter().any(is);
        let (letters, digits) = (has(u8::is_ascii_alphabetic), has(u8::is_ascii_digit));
        let only_digits = digits
            && value
                .iter()
                .all(|byte| byte.is_ascii_digit() || b"._,-".contains(byte));
        let is_chosen = self.kind == SecretKind::Chosen;
        if only_digits {
            return if is_chosen {
                value.len() >= 4
            } else {
                value.len() >= 16
            };
        }
        if has(|byte| *byte == b' ') {
            // Of the values with spaces only a passphrase is a secret. Others are sentences about
            // the secret.
            return self.is_quoted
                && is_chosen
                && starts_with_word(last_word(self.name.text(self.bytes)), "passphrase");
        }
        if !self.is_quoted && (is_expression(value, self.bytes, self.name) || is_type_name(value)) {
            return false;
        }
        let symbols = value
            .iter()
            .any(|byte| byte.is_ascii_punctuation() && !b"_-.:/".contains(byte))
            || !value.is_ascii();
        let mixed = (letters && digits) || symbols;
        match (self.kind, self.is_quoted) {
            (SecretKind::Chosen, true) => mixed || value.len() >= 4 && !is_type_name(value),
            (SecretKind::Chosen, false) => {
                (mixed && value.len() >= 4) || (value.len() >= 4 && self.is_plain_setting())
            }
            (SecretKind::Generated, true) => {
                (mixed && value.len() >= 6 && !is_identifier_with_number(value))
                    || value.len() >= 16 && !is_identifier(value)
            }
            (SecretKind::Generated, false) => {
                let least = if self.notation == Notation::Equals || self.notation == Notation::Space
                {
                    6
                } else {
                    8
                };
                (mixed && value.len() >= least && !is_identifier_with_number(value))
                    || (value.len() >= 8 && self.is_plain_setting() && !is_identifier(value))
                    || (value.len() >= 20 && !is_identifier(value))
            }
        }
    }

    /// Returns whether a bare word at this position is a value, as in an environment variable, a
    /// query, a connection string or a flag. In code a bare word is a variable.
    fn is_plain_setting(&self) -> bool {
        let before = self.name.start.checked_sub(1).map(|last| self.bytes[last]);
        let is_query =
            matches!(before, Some(b'?' | b'&' | b';')) && self.notation == Notation::Equals;
        let is_flag = self.bytes[self.name.start..].starts_with(b"--");
        let is_variable = self.name.is_upper_case(self.bytes);
        let is_dotted =
            self.notation == Notation::Equals && self.name.text(self.bytes).contains(&b'.');
        let line_before = &self.bytes[self.name.start.saturating_sub(8)..self.name.start];
        let is_exported = line_before.ends_with(b"export ") && self.notation == Notation::Equals;
        // A header in quotes: -H 'password: …'
        let is_header = self.notation == Notation::Colon && matches!(before, Some(b'\'' | b'"'));
        let is_whole_line = matches!(self.notation, Notation::Equals | Notation::Colon)
            && self.bytes[..self.name.start]
                .iter()
                .all(|byte| byte.is_ascii_whitespace() || *byte == b'-');
        is_query
            || is_exported
            || is_header
            || is_flag
            || is_variable
            || is_dotted
            || self.notation == Notation::Space
            || self.notation == Notation::Tag
            || self.notation == Notation::Percent
            || is_whole_line && self.kind == SecretKind::Chosen
    }
}

fn last_word(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| b"_-.".contains(byte))
        .next()
        .unwrap_or(name)
}

/// Returns whether a value is a placeholder for a secret or names its source.
fn is_placeholder(value: &[u8]) -> bool {
    const BEGINNINGS: &[&str] = &[
        "$",
        "{{",
        "${",
        "<",
        "%(",
        "%s",
        "{",
        "[",
        "env:",
        "env.",
        "file:",
        "vault:",
        "op://",
        "ssm:",
        "arn:",
        "ref:",
        "ref+",
        "secrets.",
        "secret://",
        "process.env",
        "os.environ",
        "os.getenv",
        "env[",
        "env(",
        "std::",
        "config.",
        "settings.",
        "self.",
        "this.",
        "var.",
        "local.",
        "data.",
        "...",
        "…",
        "***",
        "xxx",
        "your",
        "my_",
        "my-",
        "the-",
        "insert",
        "replace",
        "example",
        "dummy",
        "redacted",
        "keychain",
        "projects/",
        "@",
        "!",
        "#",
        "&",
        "*",
        "(",
        "/",
        "~/",
        "./",
    ];
    const WORDS: &[&str] = &[
        "null",
        "none",
        "nil",
        "true",
        "false",
        "undefined",
        "required",
        "optional",
        "string",
        "str",
        "text",
        "bool",
        "boolean",
        "number",
        "integer",
        "int",
        "bytes",
        "object",
        "any",
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "key",
        "value",
        "name",
        "user",
        "username",
        "hidden",
        "unset",
        "missing",
        "empty",
        "default",
        "invalid",
        "expired",
        "yes",
        "no",
        "off",
        "on",
        "auto",
        "bearer",
        "basic",
        "header",
        "cookie",
        "session",
        "prompt",
        "ask",
        "always",
        "never",
        "enabled",
        "disabled",
        "bytea",
        "varchar",
        "char",
        "uuid",
        "base64",
        "redacted]",
    ];
    let text = value;
    let starts = |word: &&str| starts_with_word(text, word);
    let is_word = |word: &&str| text.eq_ignore_ascii_case(word.as_bytes());
    BEGINNINGS
        .iter()
        .any(|word| starts(word) && !is_long_random(text))
        || WORDS.iter().any(is_word)
}

/// Returns whether a value is too long and too mixed to be a placeholder, whatever it begins with.
fn is_long_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let first_is_open = value.first().is_some_and(|byte| b"$<{[%(".contains(byte));
    !first_is_open
        && value.len() >= 16
        && digits >= 3
        && !value.iter().any(|byte| b" :.()".contains(byte))
}

fn is_type_name(value: &[u8]) -> bool {
    matches!(
        value,
        b"String" | b"Secret" | b"Password" | b"SecretString" | b"Option" | b"SecretStr"
    )
}

/// Returns whether a bare value is code: a call, a path, a variable of the same name, or a number
/// with a unit.
fn is_expression(value: &[u8], bytes: &[u8], name: &SecretName) -> bool {
    let own = last_word(name.text(bytes));
    value.contains(&b'(')
        || value.windows(2).any(|pair| pair == b"::")
        || value.eq_ignore_ascii_case(own)
        || value.eq_ignore_ascii_case(name.text(bytes))
        || (value.contains(&b'.') && value.split(|byte| *byte == b'.').all(is_identifier))
        || value.contains(&b'[')
        || value.ends_with(b"!")
        || value.ends_with(b"?") && value.len() < 12
        || is_primitive(value)
}

fn is_primitive(value: &[u8]) -> bool {
    matches!(
        value,
        b"u8"
            | b"u16"
            | b"u32"
            | b"u64"
            | b"u128"
            | b"usize"
            | b"i8"
            | b"i16"
            | b"i32"
            | b"i64"
            | b"i128"
            | b"isize"
            | b"f32"
            | b"f64"
            | b"int8"
            | b"int16"
            | b"int32"
            | b"int64"
            | b"uint8"
            | b"uint32"
            | b"uint64"
            | b"float32"
            | b"float64"
            | b"utf8"
            | b"utf-8"
    )
}

/// Returns whether a text looks like a word in a program: letters, underscores and hyphens, and no
/// digits.
fn is_identifier(text: &[u8]) -> bool {
    !text.is_empty()
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || b"_-".contains(byte))
}

/// Returns whether a text is an identifier with one number, such as `token2`, `sha256`,
/// `OAUTH2_CLIENT` or `T21`.
fn is_identifier_with_number(text: &[u8]) -> bool {
    let plain = text
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
    let runs = text
        .split(|byte| !byte.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .count();
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_word = text.first().is_some_and(u8::is_ascii_alphabetic);
    let has_both =
        text.iter().any(u8::is_ascii_uppercase) && text.iter().any(u8::is_ascii_lowercase);
    plain
        && is_word
        && runs == 1
        && digits <= 3
        && !has_both
        && text.len() <= 24
        && text.len() < 9 + digits * 4
}

/// Returns the password of `scheme://user:password@host`, also percent-encoded, or a user part that
/// is itself a token.
fn url_password(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    let (open, colon, end_mark): (usize, &[u8], &[u8]) = if text.starts_with(b"://") {
        (3, b":", b"@")
    } else if at > 0
        && bytes[at - 1] == b'%'
        && text.len() > 8
        && text[2..8].eq_ignore_ascii_case(b"%2F%2F")
    {
        (8, b"%3A", b"%40")
    } else {
        return None;
    };
    let scheme = bytes[..at]
        .last()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'%');
    // The authority is read to its end, however long it is. The slashes of the next URL end it, so
    // no byte is read for two URLs.
    let rest = &text[open..];
    let stops = |byte: u8| byte.is_ascii_whitespace() || b"\"'<>`\\/?#,(){}|".contains(&byte);
    let is_slash = |at: usize| {
        open == 8 && rest[at..].len() >= 3 && rest[at..at + 3].eq_ignore_ascii_case(b"%2F")
    };
    let length = (0..rest.len())
        .find(|at| stops(rest[*at]) || is_slash(*at))
        .unwrap_or(rest.len());
    let authority = &rest[..length];
    let find = |mark: &[u8], last: bool| {
        let same = |part: &[u8]| part.eq_ignore_ascii_case(mark);
        let mut found = authority.windows(mark.len());
        if last {
            found.rposition(same)
        } else {
            found.position(same)
        }
    };
    // A line that was cut has no host. A part that is too long for a host and a port is then a
    // password.
    let is_cut = length == rest.len() && length >= MAX_HOST_BYTES;
    let end = find(end_mark, true)
        .or(is_cut.then_some(length))
        .filter(|_| scheme)?;
    let start = find(colon, false)
        .filter(|start| *start < end)
        .map(|start| start + colon.len());
    let (start, password) = match start {
        Some(start) => (start, &authority[start..end]),
        // A user part without a password is a token if it is long and mixed.
        None => {
            let user = &authority[..end];
            let digits = user.iter().filter(|byte| byte.is_ascii_digit()).count();
            (0, (user.len() >= 20 && digits >= 2).then_some(user)?)
        }
    };
    let is_known = password.is_empty()
        || password.starts_with(b"$")
        || password.starts_with(b"<")
        || password.starts_with(b"*")
        || password.starts_with(b"[redacted")
        || password.starts_with(b"{");
    (!is_known).then_some((at + open + start, at + open + end))
}

/// Returns the password of `curl -u user:password`.
fn curl_password(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    let flag = ["-u ", "--user ", "--user=", "--proxy-user ", "-u\t"]
        .into_iter()
        .find(|flag| text.starts_with(flag.as_bytes()))?;
    let before = &bytes[at.saturating_sub(200)..at];
    let is_curl = ["curl", "wget", "http"].iter().any(|word| {
        before
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    });
    if !is_curl {
        return None;
    }
    let from = at + flag.len();
    let (start, end, _) = value_range(bytes, from, Notation::Space);
    let colon = bytes[start..end].iter().position(|byte| *byte == b':')?;
    let password = &bytes[start + colon + 1..end];
    let is_secret = password.len() >= 3 && !is_placeholder(password);
    is_secret.then(|| {
        (
            start + colon + 1,
            whole_value(bytes, end, from + MAX_VALUE_BYTES),
        )
    })
}

/// Returns the secret part of an incoming webhook's address, where the address itself is the
/// secret.
fn webhook_secret(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    let before = &bytes[at.saturating_sub(40)..at];
    let path = text
        .strip_prefix(b"/services/")
        .filter(|_| before.ends_with(b"hooks.slack.com"))?;
    let length = path
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'/')
        .count();
    (length >= 20).then_some((at + 10, at + 10 + length))
}

/// The form in which the lines after a line hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultilineForm {
    /// The indented lines are the value, as in YAML's `password: |`.
    Block,
    /// All lines up to the closing quotes are the value.
    Quotes,
    /// The next line has the value of the variable that this line names: `- name: DB_PASSWORD`.
    Variable,
}

/// The quotes around a text of several lines.
pub(crate) const TRIPLE_QUOTES: [&str; 2] = ["\"\"\"", "'''"];

/// Returns the form in which the following lines hold a secret, if they do.
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

/// Returns the value in a line `value: …` that follows a line with a variable's name.
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
