//! Finds secrets in URLs and commands: the user part of a URL, the login of a curl command, and the
//! path of an incoming webhook.

use super::value_check::is_placeholder;
use super::{MAX_HOST_BYTES, MAX_VALUE_BYTES, Notation, value_range, whole_value};

/// Returns the position of the password in `scheme://user:password@host`, which may be
/// percent-encoded, or of a user part that is itself a token.
pub(super) fn url_password(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
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
    // Read the part between `://` and the next slash to its end, however long the part is. The
    // slashes of the next URL end the part too, so no byte is read for two URLs.
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
    // A line that was cut before the host contains no `@`. If the part is too long for a host and a
    // port, treat it as a password.
    let is_cut = length == rest.len() && length >= MAX_HOST_BYTES;
    let end = find(end_mark, true)
        .or(is_cut.then_some(length))
        .filter(|_| scheme)?;
    let start = find(colon, false)
        .filter(|start| *start < end)
        .map(|start| start + colon.len());
    let (start, password) = match start {
        Some(start) => (start, &authority[start..end]),
        // If the URL has no password, treat its user part as a token if that part is long and mixes
        // letters and digits.
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

/// Returns the position of the password in `curl -u user:password`.
pub(super) fn curl_password(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
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

/// Returns the position of the secret part in the address of an incoming webhook. The address must
/// stay secret, because everybody who knows it can use it.
pub(super) fn webhook_secret(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
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
