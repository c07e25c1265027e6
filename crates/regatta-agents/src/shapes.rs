//! Recognises keys and tokens by their shape, whoever issued them.

use crate::named_secrets;

/// Returns every pair of bytes with which one of the shapes below may begin.
pub(crate) fn begins() -> impl Iterator<Item = [u8; 2]> {
    const OTHERS: &[[u8; 2]] = &[*b"--", *b"Be", *b"be", *b"BE", *b"Au", *b"au", *b"AU", *b"ey", *b":A"];
    let makers = MAKERS.iter().map(|Maker(prefix, ..)| [prefix.as_bytes()[0], prefix.as_bytes()[1]]);
    makers.chain(OTHERS.iter().copied()).chain(named_secrets::BEGINS.iter().copied())
}

/// The position of a text that looks like a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Set if the secret continues on the following lines.
    pub(crate) goes_on: bool,
}

/// A maker's prefix, the minimum number of characters after it, their kind, and whether one must be
/// a digit.
struct Maker(&'static str, usize, fn(u8) -> bool, bool);

const MAKERS: &[Maker] = &[
    Maker("sk-ant-", 8, is_word, false),
    Maker("sk-proj-", 8, is_word, false),
    // Style sheets have classes with this prefix, but they are short or have no digits.
    Maker("sk-", 12, is_word, true),
    Maker("sk_live_", 12, is_word, false),
    Maker("sk_test_", 12, is_word, false),
    Maker("rk_live_", 12, is_word, false),
    Maker("rk_test_", 12, is_word, false),
    Maker("whsec_", 16, is_base64, false),
    Maker("ghp_", 16, is_alphanumeric, false),
    Maker("gho_", 16, is_alphanumeric, false),
    Maker("ghu_", 16, is_alphanumeric, false),
    Maker("ghs_", 16, is_alphanumeric, false),
    Maker("ghr_", 16, is_alphanumeric, false),
    Maker("github_pat_", 16, is_word, false),
    Maker("xoxa-", 10, is_word, false),
    Maker("xoxb-", 10, is_word, false),
    Maker("xoxc-", 10, is_word, true),
    Maker("xoxd-", 10, is_token, true),
    Maker("xoxe-", 10, is_word, false),
    Maker("xoxe.", 10, is_dotted, true),
    Maker("xoxo-", 10, is_word, true),
    Maker("xoxp-", 10, is_word, false),
    Maker("xoxr-", 10, is_word, false),
    Maker("xoxs-", 10, is_word, false),
    Maker("xapp-", 16, is_word, true),
    Maker("xai-", 24, is_word, true),
    Maker("xkeysib-", 24, is_word, true),
    Maker("AKIA", 16, is_upper, false),
    Maker("ASIA", 16, is_upper, false),
    Maker("ABIA", 16, is_upper, true),
    Maker("ACCA", 16, is_upper, true),
    Maker("AIza", 30, is_word, false),
    Maker("AKCp", 30, is_alphanumeric, true),
    Maker("ATATT3x", 30, is_token, false),
    Maker("ATBB", 24, is_alphanumeric, true),
    Maker("AGE-SECRET-KEY-1", 40, is_upper, false),
    Maker("GOCSPX-", 20, is_word, false),
    Maker("ya29.", 20, is_word, true),
    Maker("glpat-", 16, is_word, false),
    Maker("gldt-", 16, is_word, true),
    Maker("glrt-", 16, is_word, true),
    Maker("glcbt-", 16, is_word, true),
    Maker("glptt-", 16, is_word, true),
    Maker("glft-", 16, is_word, true),
    Maker("glsoat-", 16, is_word, true),
    Maker("glsa_", 24, is_word, true),
    Maker("glc_", 24, is_base64, true),
    Maker("npm_", 30, is_alphanumeric, false),
    Maker("nfp_", 30, is_alphanumeric, true),
    Maker("ntn_", 30, is_alphanumeric, true),
    Maker("secret_", 40, is_alphanumeric, true),
    Maker("NRAK-", 20, is_upper, true),
    Maker("lin_api_", 16, is_alphanumeric, false),
    Maker("lin_oauth_", 16, is_alphanumeric, false),
    Maker("hf_", 24, is_alphanumeric, false),
    Maker("hvs.", 20, is_word, true),
    Maker("hvb.", 20, is_word, true),
    Maker("hvr.", 20, is_word, true),
    Maker("gsk_", 24, is_alphanumeric, true),
    Maker("dop_v1_", 32, is_alphanumeric, false),
    Maker("doo_v1_", 32, is_alphanumeric, false),
    Maker("dor_v1_", 32, is_alphanumeric, false),
    Maker("dckr_pat_", 20, is_word, false),
    Maker("dapi", 32, is_hexadecimal, true),
    Maker("dp.pt.", 30, is_alphanumeric, true),
    Maker("dp.st.", 30, is_dotted, true),
    Maker("dp.sa.", 30, is_alphanumeric, true),
    Maker("SG.", 40, is_dotted, true),
    Maker("SK", 32, is_hexadecimal, true),
    Maker("key-", 32, is_hexadecimal, true),
    Maker("pypi-", 30, is_word, true),
    Maker("rubygems_", 40, is_hexadecimal, false),
    Maker("HRKU-", 30, is_word, true),
    Maker("shpat_", 24, is_alphanumeric, true),
    Maker("shpss_", 24, is_alphanumeric, true),
    Maker("shpca_", 24, is_alphanumeric, true),
    Maker("shppa_", 24, is_alphanumeric, true),
    Maker("sq0atp-", 20, is_word, true),
    Maker("sq0csp-", 30, is_word, true),
    Maker("EAAA", 40, is_word, true),
    Maker("figd_", 30, is_word, true),
    Maker("PMAK-", 40, is_word, true),
    Maker("pscale_tkn_", 30, is_dotted, true),
    Maker("pscale_pw_", 30, is_dotted, true),
    Maker("sbp_", 40, is_hexadecimal, true),
    Maker("pplx-", 30, is_alphanumeric, true),
    Maker("r8_", 30, is_alphanumeric, true),
    Maker("sntrys_", 30, is_base64, true),
    Maker("sntryu_", 40, is_hexadecimal, true),
    Maker("bkua_", 30, is_alphanumeric, true),
    Maker("CCIPAT_", 30, is_word, true),
    Maker("pul-", 40, is_hexadecimal, true),
    Maker("tskey-", 20, is_word, true),
    Maker("LTAI", 16, is_alphanumeric, true),
    Maker("rnd_", 24, is_alphanumeric, true),
    Maker("fm2_", 40, is_base64, true),
    Maker("fo1_", 30, is_word, true),
];

/// For each pair of bytes, whether a maker's prefix begins with it.
static MAY_BE_MAKER: [[bool; 256]; 256] = {
    let mut table = [[false; 256]; 256];
    let mut nth = 0;
    while nth < MAKERS.len() {
        let prefix = MAKERS[nth].0.as_bytes();
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
/// Returns whether a bearer token may contain this byte.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// Returns the text at this position that looks like a secret, if there is one.
pub(crate) fn find_at(bytes: &[u8], at: usize) -> Option<Shape> {
    let text = bytes.get(at..)?;
    let shape = |(skip, length)| Shape { start: at + skip, end: at + skip + length, goes_on: false };
    // A few bytes exclude nearly every text that is not a key.
    match text {
        [b'-', b'-', b'-', ..] => {
            private_key(text).map(|(length, goes_on)| Shape { start: at, end: at + length, goes_on })
        }
        [b'A' | b'a', b'U' | b'u', b'T' | b't', ..] | [b'B' | b'b', b'E' | b'e', b'A' | b'a', ..] => {
            authorization(text).map(shape)
        }
        [b'e', b'y', b'J', ..] => json_web_token(bytes, at).map(shape),
        [b':', b'A', ..] => telegram(bytes, at).map(shape),
        _ => maker(bytes, at).map(shape),
    }
    .or_else(|| named_secrets::find_at(bytes, at))
}

/// Returns how many bytes at the start of `text` are of this kind.
fn run(text: &[u8], is: fn(u8) -> bool) -> usize {
    text.iter().take_while(|it| is(**it)).count()
}

/// Returns the key of a known maker that begins at this position.
fn maker(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let text = &bytes[at..];
    let (first, second) = (*text.first()?, *text.get(1)?);
    if !MAY_BE_MAKER[usize::from(first)][usize::from(second)] {
        return None;
    }
    let alike = |maker: &&Maker| maker.0.as_bytes()[0] == first && maker.0.as_bytes()[1] == second;
    MAKERS.iter().filter(alike).find_map(|Maker(prefix, least, is, digit)| {
        let behind = text.strip_prefix(prefix.as_bytes())?;
        let length = run(behind, *is);
        let fits = length >= *least && (!digit || behind[..length].iter().any(u8::is_ascii_digit));
        (fits && begins_a_word(bytes, at)).then_some((0, prefix.len() + length))
    })
}

/// Returns the token of a Telegram bot: a number, a colon and 35 characters that begin with `AA`.
fn telegram(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let digits = bytes[..at].iter().rev().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    let length = run(&bytes[at + 1..], is_word);
    let fits = (8..=10).contains(&digits) && (33..=40).contains(&length);
    (fits && !bytes[..at - digits].last().is_some_and(u8::is_ascii_alphanumeric)).then_some((1, length))
}

/// Returns a JSON web token: three words of base64, of which the first two are JSON objects.
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

/// Returns the token of `Authorization: Bearer …`, or of `Bearer …` anywhere if the token does not
/// look like a word.
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
    const SCHEMES: [&str; 7] = ["bearer", "basic", "token", "apikey", "digest", "negotiate", "key"];
    let scheme = SCHEMES.into_iter().find(|it| starts(&text[at..], it));
    match scheme {
        Some(scheme) if header || scheme == "bearer" => at += scheme.len(),
        // The value without a scheme.
        _ if header => {
            let length = run(&text[at..], is_token);
            let odd = length >= 16 && text[at..at + length].iter().any(u8::is_ascii_digit);
            return odd.then_some((at, length));
        }
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

/// Returns the length of an armoured private key, and whether it ends on a later line.
fn private_key(text: &[u8]) -> Option<(usize, bool)> {
    let behind = text.strip_prefix(b"-----BEGIN ")?;
    let label = run(behind, |it| is_upper(it) || it == b' ');
    let armour = |text: &[u8], label: &[u8]| {
        (label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK")) && text.starts_with(b"-----")
    };
    if !armour(&behind[label..], &behind[..label]) {
        return None;
    }
    let head = b"-----BEGIN ".len() + label + 5;
    // The body with the escaped line ends of a string and the dashes of its headers, and then its
    // end if it is on this line.
    let body = run(&text[head..], |it| it.is_ascii_alphanumeric() || b"+/=\\: ,\t-".contains(&it));
    let Some(end) = text[head..head + body].windows(9).position(|it| it == b"-----END ") else {
        return Some((head + body, true));
    };
    let end = head + end + b"-----END ".len();
    let label = run(&text[end..], |it| is_upper(it) || it == b' ');
    let whole = armour(&text[end + label..], &text[end..end + label]);
    Some((if whole { end + label + 5 } else { end }, false))
}

/// Returns whether a line may be part of a private key that began on an earlier line.
pub(crate) fn is_key_body(line: &str) -> bool {
    let line = line.trim();
    let base64 = |word: &str| word.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/=".contains(&it));
    // A number or a mark may precede it, as `cat -n` and `diff` print.
    let mut words = line.split_ascii_whitespace().rev();
    line.starts_with("Proc-Type:")
        || line.starts_with("DEK-Info:")
        || (words.next().is_none_or(base64) && words.next().is_none_or(|it| it.len() <= 8) && words.next().is_none())
}

/// Returns whether the text before this position does not make it the middle of a word.
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

/// Returns whether an odd number of backslashes precedes this position.
pub(crate) fn is_escaped(bytes: &[u8], at: usize) -> bool {
    bytes[..at].iter().rev().take_while(|it| **it == b'\\').count() % 2 == 1
}
