//! Recognises keys and tokens of many services by their shape alone, such as a known prefix and a
//! length.

use crate::named_secrets;

/// Returns the first two bytes of every shape of secret that this module recognises. Positions in a
/// line with other bytes are skipped.
pub(crate) fn first_pairs() -> impl Iterator<Item = [u8; 2]> {
    const OTHER_PAIRS: &[[u8; 2]] = &[
        *b"--", *b"Be", *b"be", *b"BE", *b"Au", *b"au", *b"AU", *b"ey", *b":A",
    ];
    let issuers = ISSUER_PREFIXES
        .iter()
        .map(|IssuerPrefix(prefix, ..)| [prefix.as_bytes()[0], prefix.as_bytes()[1]]);
    issuers
        .chain(OTHER_PAIRS.iter().copied())
        .chain(named_secrets::FIRST_PAIRS.iter().copied())
}

/// The position of a text that looks like a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecretMatch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// True if the secret is the beginning of a private key that continues on the following lines.
    pub(crate) continues: bool,
}

/// The shape of the API keys of one service: the prefix, the minimum number of characters after it,
/// the kind of these characters, and whether at least one must be a digit.
struct IssuerPrefix(&'static str, usize, fn(u8) -> bool, bool);

const ISSUER_PREFIXES: &[IssuerPrefix] = &[
    IssuerPrefix("sk-ant-", 8, is_word, false),
    IssuerPrefix("sk-proj-", 8, is_word, false),
    // Require twelve characters and a digit, because style sheets also contain classes with this
    // prefix, but these classes are shorter or have no digit.
    IssuerPrefix("sk-", 12, is_word, true),
    IssuerPrefix("sk_live_", 12, is_word, false),
    IssuerPrefix("sk_test_", 12, is_word, false),
    IssuerPrefix("rk_live_", 12, is_word, false),
    IssuerPrefix("rk_test_", 12, is_word, false),
    IssuerPrefix("whsec_", 16, is_base64, false),
    IssuerPrefix("ghp_", 16, is_alphanumeric, false),
    IssuerPrefix("gho_", 16, is_alphanumeric, false),
    IssuerPrefix("ghu_", 16, is_alphanumeric, false),
    IssuerPrefix("ghs_", 16, is_alphanumeric, false),
    IssuerPrefix("ghr_", 16, is_alphanumeric, false),
    IssuerPrefix("github_pat_", 16, is_word, false),
    IssuerPrefix("xoxa-", 10, is_word, false),
    IssuerPrefix("xoxb-", 10, is_word, false),
    IssuerPrefix("xoxc-", 10, is_word, true),
    IssuerPrefix("xoxd-", 10, is_token, true),
    IssuerPrefix("xoxe-", 10, is_word, false),
    IssuerPrefix("xoxe.", 10, is_dotted, true),
    IssuerPrefix("xoxo-", 10, is_word, true),
    IssuerPrefix("xoxp-", 10, is_word, false),
    IssuerPrefix("xoxr-", 10, is_word, false),
    IssuerPrefix("xoxs-", 10, is_word, false),
    IssuerPrefix("xapp-", 16, is_word, true),
    IssuerPrefix("xai-", 24, is_word, true),
    IssuerPrefix("xkeysib-", 24, is_word, true),
    IssuerPrefix("AKIA", 16, is_upper, false),
    IssuerPrefix("ASIA", 16, is_upper, false),
    IssuerPrefix("ABIA", 16, is_upper, true),
    IssuerPrefix("ACCA", 16, is_upper, true),
    IssuerPrefix("AIza", 30, is_word, false),
    IssuerPrefix("AKCp", 30, is_alphanumeric, true),
    IssuerPrefix("ATATT3x", 30, is_token, false),
    IssuerPrefix("ATBB", 24, is_alphanumeric, true),
    IssuerPrefix("AGE-SECRET-KEY-1", 40, is_upper, false),
    IssuerPrefix("GOCSPX-", 20, is_word, false),
    IssuerPrefix("ya29.", 20, is_word, true),
    IssuerPrefix("glpat-", 16, is_word, false),
    IssuerPrefix("gldt-", 16, is_word, true),
    IssuerPrefix("glrt-", 16, is_word, true),
    IssuerPrefix("glcbt-", 16, is_word, true),
    IssuerPrefix("glptt-", 16, is_word, true),
    IssuerPrefix("glft-", 16, is_word, true),
    IssuerPrefix("glsoat-", 16, is_word, true),
    IssuerPrefix("glsa_", 24, is_word, true),
    IssuerPrefix("glc_", 24, is_base64, true),
    IssuerPrefix("npm_", 30, is_alphanumeric, false),
    IssuerPrefix("nfp_", 30, is_alphanumeric, true),
    IssuerPrefix("ntn_", 30, is_alphanumeric, true),
    IssuerPrefix("secret_", 40, is_alphanumeric, true),
    IssuerPrefix("NRAK-", 20, is_upper, true),
    IssuerPrefix("lin_api_", 16, is_alphanumeric, false),
    IssuerPrefix("lin_oauth_", 16, is_alphanumeric, false),
    IssuerPrefix("hf_", 24, is_alphanumeric, false),
    IssuerPrefix("hvs.", 20, is_word, true),
    IssuerPrefix("hvb.", 20, is_word, true),
    IssuerPrefix("hvr.", 20, is_word, true),
    IssuerPrefix("gsk_", 24, is_alphanumeric, true),
    IssuerPrefix("dop_v1_", 32, is_alphanumeric, false),
    IssuerPrefix("doo_v1_", 32, is_alphanumeric, false),
    IssuerPrefix("dor_v1_", 32, is_alphanumeric, false),
    IssuerPrefix("dckr_pat_", 20, is_word, false),
    IssuerPrefix("dapi", 32, is_hexadecimal, true),
    IssuerPrefix("dp.pt.", 30, is_alphanumeric, true),
    IssuerPrefix("dp.st.", 30, is_dotted, true),
    IssuerPrefix("dp.sa.", 30, is_alphanumeric, true),
    IssuerPrefix("SG.", 40, is_dotted, true),
    IssuerPrefix("SK", 32, is_hexadecimal, true),
    IssuerPrefix("key-", 32, is_hexadecimal, true),
    IssuerPrefix("pypi-", 30, is_word, true),
    IssuerPrefix("rubygems_", 40, is_hexadecimal, false),
    IssuerPrefix("HRKU-", 30, is_word, true),
    IssuerPrefix("shpat_", 24, is_alphanumeric, true),
    IssuerPrefix("shpss_", 24, is_alphanumeric, true),
    IssuerPrefix("shpca_", 24, is_alphanumeric, true),
    IssuerPrefix("shppa_", 24, is_alphanumeric, true),
    IssuerPrefix("sq0atp-", 20, is_word, true),
    IssuerPrefix("sq0csp-", 30, is_word, true),
    IssuerPrefix("EAAA", 40, is_word, true),
    IssuerPrefix("figd_", 30, is_word, true),
    IssuerPrefix("PMAK-", 40, is_word, true),
    IssuerPrefix("pscale_tkn_", 30, is_dotted, true),
    IssuerPrefix("pscale_pw_", 30, is_dotted, true),
    IssuerPrefix("sbp_", 40, is_hexadecimal, true),
    IssuerPrefix("pplx-", 30, is_alphanumeric, true),
    IssuerPrefix("r8_", 30, is_alphanumeric, true),
    IssuerPrefix("sntrys_", 30, is_base64, true),
    IssuerPrefix("sntryu_", 40, is_hexadecimal, true),
    IssuerPrefix("bkua_", 30, is_alphanumeric, true),
    IssuerPrefix("CCIPAT_", 30, is_word, true),
    IssuerPrefix("pul-", 40, is_hexadecimal, true),
    IssuerPrefix("tskey-", 20, is_word, true),
    IssuerPrefix("LTAI", 16, is_alphanumeric, true),
    IssuerPrefix("rnd_", 24, is_alphanumeric, true),
    IssuerPrefix("fm2_", 40, is_base64, true),
    IssuerPrefix("fo1_", 30, is_word, true),
];

/// For each pair of bytes, true if the prefix of the API keys of any known service begins with this
/// pair.
static IS_ISSUER_PAIR: [[bool; 256]; 256] = {
    let mut table = [[false; 256]; 256];
    let mut nth = 0;
    while nth < ISSUER_PREFIXES.len() {
        let prefix = ISSUER_PREFIXES[nth].0.as_bytes();
        table[prefix[0] as usize][prefix[1] as usize] = true;
        nth += 1;
    }
    table
};

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}
fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}
fn is_dotted(byte: u8) -> bool {
    is_word(byte) || byte == b'.'
}
fn is_base64(byte: u8) -> bool {
    is_word(byte) || b"+/=".contains(&byte)
}
fn is_hexadecimal(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}
/// Returns whether an access token in an `Authorization` header may contain this byte.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// Returns the position of the secret that begins at `at`, judged by its shape, or `None` if there
/// is none.
pub(crate) fn find_secret(bytes: &[u8], at: usize) -> Option<SecretMatch> {
    let text = bytes.get(at..)?;
    let secret = |(skip, length)| SecretMatch {
        start: at + skip,
        end: at + skip + length,
        continues: false,
    };
    // Look at the first bytes before any expensive check, because they exclude nearly every text
    // that is not a key.
    match text {
        [b'-', b'-', b'-', ..] => private_key(text).map(|(length, continues)| SecretMatch {
            start: at,
            end: at + length,
            continues,
        }),
        [b'A' | b'a', b'U' | b'u', b'T' | b't', ..]
        | [b'B' | b'b', b'E' | b'e', b'A' | b'a', ..] => authorization_token(text).map(secret),
        [b'e', b'y', b'J', ..] => json_web_token(bytes, at).map(secret),
        [b':', b'A', ..] => telegram_token(bytes, at).map(secret),
        _ => issued_key(bytes, at).map(secret),
    }
    .or_else(|| named_secrets::find_named_secret(bytes, at))
}

/// Returns the number of bytes at the start of `text` that satisfy `is`.
fn run_length(text: &[u8], is: fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| is(**byte)).count()
}

/// Returns the position of an API key that begins at `at` with the prefix of a known service.
fn issued_key(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    let (first, second) = (*text.first()?, *text.get(1)?);
    if !IS_ISSUER_PAIR[usize::from(first)][usize::from(second)] {
        return None;
    }
    let begins_alike = |prefix: &&IssuerPrefix| {
        prefix.0.as_bytes()[0] == first && prefix.0.as_bytes()[1] == second
    };
    ISSUER_PREFIXES.iter().filter(begins_alike).find_map(
        |IssuerPrefix(prefix, min_length, is_allowed, needs_digit)| {
            let after_prefix = text.strip_prefix(prefix.as_bytes())?;
            let length = run_length(after_prefix, *is_allowed);
            let is_long_enough = length >= *min_length
                && (!needs_digit || after_prefix[..length].iter().any(u8::is_ascii_digit));
            (is_long_enough && is_word_start(bytes, at)).then_some((0, prefix.len() + length))
        },
    )
}

/// Returns the position of a Telegram bot's token: a number, a colon and 35 characters that begin
/// with `AA`.
fn telegram_token(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let digits = bytes[..at]
        .iter()
        .rev()
        .take(12)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let length = run_length(&bytes[at + 1..], is_word);
    let fits = (8..=10).contains(&digits) && (33..=40).contains(&length);
    (fits
        && !bytes[..at - digits]
            .last()
            .is_some_and(u8::is_ascii_alphanumeric))
    .then_some((1, length))
}

/// Returns the position of a JSON web token: three base64 texts joined by dots, of which the first
/// two are JSON objects.
fn json_web_token(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    if !text.starts_with(b"eyJ") || !is_word_start(bytes, at) {
        return None;
    }
    let head = run_length(text, is_word);
    let body = text[head..]
        .strip_prefix(b".")
        .filter(|text| text.starts_with(b"eyJ"))
        .map(|text| run_length(text, is_word))?;
    let signature = text[head + 1 + body..]
        .strip_prefix(b".")
        .map(|text| run_length(text, is_word))?;
    (head >= 10 && body >= 10 && signature >= 8).then_some((0, head + body + signature + 2))
}

/// Returns the position of the token in `Authorization: Bearer …`. Elsewhere `Bearer …` counts only
/// if the text after it does not look like a word.
fn authorization_token(text: &[u8]) -> Option<(usize, usize)> {
    let starts_with = |text: &[u8], word: &str| {
        text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    let header = starts_with(text, "authorization");
    let mut at = if header { "authorization".len() } else { 0 };
    if header {
        let gap = run_length(&text[at..], |byte| b"\"'\\:= \t,".contains(&byte));
        if gap == 0 || gap > 12 || !text[at..at + gap].iter().any(|byte| b":=,".contains(byte)) {
            return None;
        }
        at += gap;
    }
    const SCHEMES: [&str; 7] = [
        "bearer",
        "basic",
        "token",
        "apikey",
        "digest",
        "negotiate",
        "key",
    ];
    let scheme = SCHEMES
        .into_iter()
        .find(|scheme| starts_with(&text[at..], scheme));
    match scheme {
        Some(scheme) if header || scheme == "bearer" => at += scheme.len(),
        // Without a known scheme such as `Bearer`, the header's value may be the token itself.
        _ if header => {
            let length = run_length(&text[at..], is_token);
            let is_random = length >= 16 && text[at..at + length].iter().any(u8::is_ascii_digit);
            return is_random.then_some((at, length));
        }
        _ => return None,
    }
    let gap = run_length(&text[at..], |byte| byte == b' ' || byte == b'\t');
    if gap == 0 {
        return None;
    }
    at += gap;
    let length = run_length(&text[at..], is_token);
    let is_random = text[at..at + length].iter().any(u8::is_ascii_digit) && length >= 12;
    ((header && length >= 6) || is_random).then_some((at, length))
}

/// Returns the length of a private key in text form (`-----BEGIN … PRIVATE KEY-----`), and whether
/// the key ends on a later line.
fn private_key(text: &[u8]) -> Option<(usize, bool)> {
    let after_begin = text.strip_prefix(b"-----BEGIN ")?;
    let label = run_length(after_begin, |byte| is_upper(byte) || byte == b' ');
    let is_private_key = |text: &[u8], label: &[u8]| {
        (label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK"))
            && text.starts_with(b"-----")
    };
    if !is_private_key(&after_begin[label..], &after_begin[..label]) {
        return None;
    }
    let head = b"-----BEGIN ".len() + label + 5;
    // Skip the body of the key, which may contain escaped line ends and header lines, and then its
    // end if it is on this line.
    let body = run_length(&text[head..], |byte| {
        byte.is_ascii_alphanumeric() || b"+/=\\: ,\t-".contains(&byte)
    });
    let Some(end) = text[head..head + body]
        .windows(9)
        .position(|text| text == b"-----END ")
    else {
        return Some((head + body, true));
    };
    let end = head + end + b"-----END ".len();
    let label = run_length(&text[end..], |byte| is_upper(byte) || byte == b' ');
    let is_complete = is_private_key(&text[end + label..], &text[end..end + label]);
    Some((if is_complete { end + label + 5 } else { end }, false))
}

/// Returns whether a line may be part of a private key that began on an earlier line.
pub(crate) fn is_key_body(line: &str) -> bool {
    let line = line.trim();
    let base64 = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    };
    // Look at the last word of the line only, because `cat -n` and `diff` print a line number or a
    // sign before the text.
    let mut words = line.split_ascii_whitespace().rev();
    line.starts_with("Proc-Type:")
        || line.starts_with("DEK-Info:")
        || (words.next().is_none_or(base64)
            && words.next().is_none_or(|word| word.len() <= 8)
            && words.next().is_none())
}

/// Returns whether position `at` is not in the middle of a word.
fn is_word_start(bytes: &[u8], at: usize) -> bool {
    let Some(last) = at.checked_sub(1) else {
        return true;
    };
    if !bytes[last].is_ascii_alphanumeric() {
        return true;
    }
    let hex = |from: usize| bytes[from..at].iter().all(u8::is_ascii_hexdigit);
    is_escaped(bytes, last)
        || (at >= 3 && bytes[at - 3] == b'%' && hex(at - 2))
        || (at >= 6 && bytes[at - 5] == b'u' && is_escaped(bytes, at - 5) && hex(at - 4))
}

/// Returns whether the character at position `at` is escaped, that is, preceded by an odd number of
/// backslashes.
pub(crate) fn is_escaped(bytes: &[u8], at: usize) -> bool {
    bytes[..at]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count()
        % 2
        == 1
}
