//! What looks like a key, whoever's it is.

/// Every pair of bytes with which one of the shapes below may begin.
pub(crate) const BEGINS: &[[u8; 2]] = &[
    *b"sk", *b"rk", *b"gh", *b"gi", *b"xo", *b"xa", *b"AK", *b"AS", *b"AI", *b"gl", *b"np", *b"li", *b"hf", *b"gs",
    *b"--", *b"Be", *b"be", *b"BE", *b"Au", *b"au", *b"AU", *b"ey",
];

/// Something that looks like a key, from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether the lines that follow belong to it.
    pub(crate) goes_on: bool,
}

/// A maker's prefix, how many characters of which kind follow it at least, and whether a digit must be among them.
struct Maker(&'static str, usize, fn(u8) -> bool, bool);

const MAKERS: &[Maker] = &[
    Maker("sk-ant-", 8, is_word, false),
    Maker("sk-proj-", 8, is_word, false),
    // Style sheets have classes of this name, but they are short or have no digits.
    Maker("sk-", 12, is_word, true),
    Maker("sk_live_", 12, is_word, false),
    Maker("sk_test_", 12, is_word, false),
    Maker("rk_live_", 12, is_word, false),
    Maker("ghp_", 16, is_alphanumeric, false),
    Maker("gho_", 16, is_alphanumeric, false),
    Maker("ghu_", 16, is_alphanumeric, false),
    Maker("ghs_", 16, is_alphanumeric, false),
    Maker("ghr_", 16, is_alphanumeric, false),
    Maker("github_pat_", 16, is_word, false),
    Maker("xoxa-", 10, is_word, false),
    Maker("xoxb-", 10, is_word, false),
    Maker("xoxe-", 10, is_word, false),
    Maker("xoxo-", 10, is_word, true),
    Maker("xoxp-", 10, is_word, false),
    Maker("xoxr-", 10, is_word, false),
    Maker("xoxs-", 10, is_word, false),
    Maker("xapp-", 16, is_word, true),
    Maker("xai-", 24, is_word, true),
    Maker("AKIA", 16, is_upper, false),
    Maker("ASIA", 16, is_upper, false),
    Maker("AIza", 30, is_word, false),
    Maker("glpat-", 16, is_word, false),
    Maker("npm_", 30, is_alphanumeric, false),
    Maker("lin_api_", 16, is_alphanumeric, false),
    Maker("lin_oauth_", 16, is_alphanumeric, false),
    Maker("hf_", 24, is_alphanumeric, false),
    Maker("gsk_", 24, is_alphanumeric, true),
];

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}
fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}
/// What a bearer token may consist of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// Finds what looks like a key and begins here.
pub(crate) fn find_at(bytes: &[u8], at: usize) -> Option<Shape> {
    let text = bytes.get(at..)?;
    let shape = |(skip, length)| Shape { start: at + skip, end: at + skip + length, goes_on: false };
    // A few bytes tell nearly everything that is no key, which is nearly everything.
    match text {
        [b'-', b'-', b'-', ..] => {
            private_key(text).map(|(length, goes_on)| Shape { start: at, end: at + length, goes_on })
        }
        [b'A' | b'a', b'U' | b'u', b'T' | b't', ..] | [b'B' | b'b', b'E' | b'e', b'A' | b'a', ..] => {
            authorization(text).map(shape)
        }
        [b'e', b'y', b'J', ..] => json_web_token(bytes, at).map(shape),
        [b's' | b'r', b'k', b'-' | b'_', ..]
        | [b'g', b'h', b'p' | b'o' | b'u' | b's' | b'r', ..]
        | [b'g', b'i', b't', b'h', b'u', b'b', b'_', ..]
        | [b'g', b'l', b'p', ..]
        | [b'g', b's', b'k', ..]
        | [b'x', b'o', b'x', ..]
        | [b'x', b'a', b'p' | b'i', ..]
        | [b'A', b'K' | b'S', b'I', ..]
        | [b'A', b'I', b'z', ..]
        | [b'n', b'p', b'm', ..]
        | [b'l', b'i', b'n', b'_', ..]
        | [b'h', b'f', b'_', ..] => maker(bytes, at).map(shape),
        _ => None,
    }
}

fn run(text: &[u8], is: fn(u8) -> bool) -> usize {
    text.iter().take_while(|it| is(**it)).count()
}

fn maker(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    MAKERS.iter().find_map(|Maker(prefix, least, is, digit)| {
        let behind = text.strip_prefix(prefix.as_bytes())?;
        let length = run(behind, *is);
        let fits = length >= *least && (!digit || behind[..length].iter().any(u8::is_ascii_digit));
        (fits && begins_a_word(bytes, at)).then_some((0, prefix.len() + length))
    })
}

/// Three words of base64, of which the first two are JSON objects.
fn json_web_token(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    if !text.starts_with(b"eyJ") || !begins_a_word(bytes, at) {
        return None;
    }
    let head = run(text, is_word);
    let body = text[head..].strip_prefix(b".").filter(|it| it.starts_with(b"eyJ")).map(|it| run(it, is_word))?;
    let seal = text[head + 1 + body..].strip_prefix(b".").map(|it| run(it, is_word))?;
    (head >= 10 && body >= 10 && seal >= 8).then_some((0, head + body + seal + 2))
}

/// The token of `Authorization: Bearer …`, or of `Bearer …` anywhere if it does not look like a word.
fn authorization(text: &[u8]) -> Option<(usize, usize)> {
    let starts =
        |text: &[u8], word: &str| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    let header = starts(text, "authorization");
    let mut at = if header { "authorization".len() } else { 0 };
    if header {
        let gap = run(&text[at..], |it| b"\"'\\:= \t,".contains(&it));
        if gap == 0 || gap > 12 || !text[at..at + gap].iter().any(|it| b":=,".contains(it)) {
            return None;
        }
        at += gap;
    }
    let scheme = ["bearer", "basic", "token"].into_iter().find(|it| starts(&text[at..], it));
    match scheme {
        Some(scheme) if header || scheme == "bearer" => at += scheme.len(),
        _ => return None,
    }
    let gap = run(&text[at..], |it| it == b' ' || it == b'\t');
    if gap == 0 {
        return None;
    }
    at += gap;
    let length = run(&text[at..], is_token);
    let odd = text[at..at + length].iter().any(u8::is_ascii_digit) && length >= 12;
    ((header && length >= 6) || odd).then_some((at, length))
}

/// The length of a private key in its armour, and whether it ends in a later line.
fn private_key(text: &[u8]) -> Option<(usize, bool)> {
    let behind = text.strip_prefix(b"-----BEGIN ")?;
    let label = run(behind, |it| is_upper(it) || it == b' ');
    let armour = |text: &[u8], label: &[u8]| label.ends_with(b"PRIVATE KEY") && text.starts_with(b"-----");
    if !armour(&behind[label..], &behind[..label]) {
        return None;
    }
    let head = b"-----BEGIN ".len() + label + 5;
    // The body, with the line ends that a string has and the dashes of its headers; then its end, if it is here.
    let body = run(&text[head..], |it| it.is_ascii_alphanumeric() || b"+/=\\: ,\t-".contains(&it));
    let Some(end) = text[head..head + body].windows(9).position(|it| it == b"-----END ") else {
        return Some((head + body, true));
    };
    let end = head + end + b"-----END ".len();
    let label = run(&text[end..], |it| is_upper(it) || it == b' ');
    let whole = armour(&text[end + label..], &text[end..end + label]);
    Some((if whole { end + label + 5 } else { end }, false))
}

/// Whether a line may be part of a private key that an earlier line began.
pub(crate) fn is_key_body(line: &str) -> bool {
    let line = line.trim();
    let base64 = |word: &str| word.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/=".contains(&it));
    // A number or a mark may stand before it, as `cat -n` and `diff` print.
    let mut words = line.split_ascii_whitespace().rev();
    line.starts_with("Proc-Type:")
        || line.starts_with("DEK-Info:")
        || (words.next().is_none_or(base64) && words.next().is_none_or(|it| it.len() <= 8) && words.next().is_none())
}

/// Whether nothing stands before this place that would make it the middle of a word.
fn begins_a_word(bytes: &[u8], at: usize) -> bool {
    let Some(last) = at.checked_sub(1) else { return true };
    if !bytes[last].is_ascii_alphanumeric() {
        return true;
    }
    let hex = |from: usize| bytes[from..at].iter().all(u8::is_ascii_hexdigit);
    is_escaped(bytes, last)
        || (at >= 3 && bytes[at - 3] == b'%' && hex(at - 2))
        || (at >= 6 && bytes[at - 5] == b'u' && is_escaped(bytes, at - 5) && hex(at - 4))
}

/// Whether an odd number of backslashes stands before this place.
pub(crate) fn is_escaped(bytes: &[u8], at: usize) -> bool {
    bytes[..at].iter().rev().take_while(|it| **it == b'\\').count() % 2 == 1
}
