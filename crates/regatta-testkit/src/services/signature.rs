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
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Converts days into a date. Years are counted from March, so that leap days come last (the
    // algorithm "civil from days").
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (
        day_of_year - (153 * shifted + 2) / 5 + 1,
        if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        },
    );
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
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
