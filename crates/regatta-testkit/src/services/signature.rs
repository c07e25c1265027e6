//! Makes signatures, identifiers and dates in the formats of the imitated services.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Returns the HMAC-SHA256 signature of the joined pieces, in hexadecimal.
pub(crate) fn hmac_hex(secret: &str, pieces: &[&[u8]]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    for piece in pieces {
        mac.update(piece);
    }
    HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// Returns an identifier that looks random but is the same for the same seed.
pub(crate) fn fake_token(seed: &str, length: usize) -> String {
    let digest = Sha256::digest(seed.as_bytes());
    HEXLOWER.encode(&digest).chars().take(length).collect()
}

/// Returns the same identifier as [`fake_token`], but in capital letters like Slack's identifiers.
pub(crate) fn fake_capitals(seed: &str, length: usize) -> String {
    fake_token(seed, length).to_uppercase()
}

/// Returns a UUID (version 4) that is the same for the same seed.
pub(crate) fn fake_uuid(seed: &str) -> String {
    let s = fake_token(seed, 32);
    format!(
        "{}-{}-4{}-a{}-{}",
        &s[..8],
        &s[8..12],
        &s[13..16],
        &s[17..20],
        &s[20..32]
    )
}

/// Returns whether a text has the format of a UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// Returns the present time since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Formats a time since 1970 as `2026-11-16T02:40:00.000Z`.
pub(crate) fn iso_time(since: Duration) -> String {
    let date = jiff::Timestamp::UNIX_EPOCH + since;
    format!("{date:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_githubs_documented_example() {
        let digest = hmac_hex("It's a Secret to Everybody", &[b"Hello, ", b"World!"]);
        assert_eq!(
            digest,
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        assert_eq!(
            iso_time(Duration::from_secs(951_782_400)),
            "2000-02-29T00:00:00.000Z"
        );
        assert_eq!(
            iso_time(Duration::from_millis(1_763_251_199_042)),
            "2025-11-15T23:59:59.042Z"
        );
        assert!(is_uuid(&fake_uuid("x")) && !is_uuid("x"));
    }
}
