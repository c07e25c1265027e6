//! Decides whether the value after a secret's name is really a secret.
//!
//! A type, a variable, a call or a placeholder is not a secret. The syntax around the value decides
//! how strict the check is, because in code a bare word is usually a variable.

use super::{Notation, SecretKind, SecretName, starts_with_word};

/// The line, the secret's name and the syntax around a value. They decide whether the value is a
/// secret.
pub(super) struct ValueContext<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) name: &'a SecretName,
    pub(super) kind: SecretKind,
    pub(super) notation: Notation,
    pub(super) is_quoted: bool,
}

impl ValueContext<'_> {
    /// Returns whether this value is a secret that has to be removed.
    pub(super) fn is_secret(&self, value: &[u8]) -> bool {
        if value.len() < 3 || is_placeholder(value) {
            return false;
        }
        let has_byte = |matches: fn(&u8) -> bool| value.iter().any(matches);
        let (has_letters, has_digits) = (
            has_byte(u8::is_ascii_alphabetic),
            has_byte(u8::is_ascii_digit),
        );
        let is_number = has_digits
            && value
                .iter()
                .all(|byte| byte.is_ascii_digit() || b"._,-".contains(byte));
        let is_chosen = self.kind == SecretKind::Chosen;
        if is_number {
            return if is_chosen {
                value.len() >= 4
            } else {
                value.len() >= 16
            };
        }
        if has_byte(|byte| *byte == b' ') {
            // A value with spaces is a secret only if its name is `passphrase`. Otherwise the value
            // is a sentence about the secret.
            return self.is_quoted
                && is_chosen
                && starts_with_word(last_word(self.name.text(self.bytes)), "passphrase");
        }
        if !self.is_quoted && (is_expression(value, self.bytes, self.name) || is_type_name(value)) {
            return false;
        }
        let has_symbols = value
            .iter()
            .any(|byte| byte.is_ascii_punctuation() && !b"_-.:/".contains(byte))
            || !value.is_ascii();
        let is_mixed = (has_letters && has_digits) || has_symbols;
        match (self.kind, self.is_quoted) {
            (SecretKind::Chosen, true) => is_mixed || value.len() >= 4 && !is_type_name(value),
            (SecretKind::Chosen, false) => {
                (is_mixed && value.len() >= 4) || (value.len() >= 4 && self.is_plain_setting())
            }
            (SecretKind::Generated, true) => {
                (is_mixed && value.len() >= 6 && !is_identifier_with_number(value))
                    || value.len() >= 16 && !is_identifier(value)
            }
            (SecretKind::Generated, false) => {
                let min_length =
                    if self.notation == Notation::Equals || self.notation == Notation::Space {
                        6
                    } else {
                        8
                    };
                (is_mixed && value.len() >= min_length && !is_identifier_with_number(value))
                    || (value.len() >= 8 && self.is_plain_setting() && !is_identifier(value))
                    || (value.len() >= 20 && !is_identifier(value))
            }
        }
    }

    /// Returns whether an unquoted word after the secret's name is a literal value, as in an
    /// environment variable, a query, a connection string or a flag. In code, an unquoted word is
    /// usually a variable.
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
        // A quote before the name shows that the name is an HTTP header's name, as in `-H
        // 'password: …'`.
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

/// Returns whether a value only stands for a secret, such as `<password>`, or names the place where
/// the secret is stored.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
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

/// Returns whether a value is so long and so mixed that it must be a secret, even if it begins like
/// a placeholder.
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

/// Returns whether an unquoted value is an expression in code and not a secret: a call, a path, a
/// variable with the secret's own name, or a number with a unit.
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

/// Returns whether a text consists only of letters, underscores and hyphens, like a name in a
/// program.
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
