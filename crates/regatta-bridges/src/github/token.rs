//! Creates the token with which a GitHub App authenticates: a JWT, signed with the app's private
//! key (RS256), that is valid for some minutes.

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::config::Secret;

/// Duration by which the start of a token's validity is dated back, because GitHub's clock may be
/// behind. (GitHub accepts tokens that are valid for at most ten minutes.)
const BACKDATE_S: u64 = 60;
const LIFETIME_S: u64 = 9 * 60;

/// The private key of a GitHub App.
pub(crate) struct AppKey(RsaKeyPair);

impl AppKey {
    /// Parses a private key in PEM format: PKCS#1, as GitHub issues it, or PKCS#8.
    pub(crate) fn from_pem(pem: &Secret) -> Result<AppKey, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.reveal().trim().as_bytes()).map_err(|_| {
            "the private key is not in PEM format, which begins with -----BEGIN RSA PRIVATE KEY-----"
                .to_owned()
        })?;
        let key_pair = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => {
                return Err(
                    "the private key is not RSA; download one from the app's settings".into(),
                );
            }
        };
        key_pair.map(AppKey).map_err(|error| {
            format!(
                "the private key cannot be used ({error}); download one from the app's settings"
            )
        })
    }

    /// Returns a signed token for an app, and the time (in seconds since 1970) until which the
    /// token may be used.
    pub(crate) fn sign_token(&self, app_id: &str, now_s: u64) -> Result<(String, u64), String> {
        let expires_at_s = now_s + LIFETIME_S;
        let head = encode_part(&json!({"alg": "RS256", "typ": "JWT"}));
        let claims = encode_part(
            &json!({"iss": app_id, "iat": now_s.saturating_sub(BACKDATE_S), "exp": expires_at_s}),
        );
        let message = format!("{head}.{claims}");
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                message.as_bytes(),
                &mut signature,
            )
            .map_err(|_| "the private key cannot sign".to_owned())?;
        Ok((
            format!("{message}.{}", BASE64URL_NOPAD.encode(&signature)),
            expires_at_s - BACKDATE_S,
        ))
    }
}

fn encode_part(value: &Value) -> String {
    BASE64URL_NOPAD.encode(value.to_string().as_bytes())
}

/// Converts a date such as `2026-11-16T03:04:05Z` to seconds since 1970. Returns `None` if the date
/// has a different form.
pub(crate) fn parse_date(date: &str) -> Option<u64> {
    let number = |from: usize, to: usize| date.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !date.ends_with('Z')
    {
        return None;
    }
    // In this computation a year begins in March, so that the leap day is the last day of the year.
    let (years, months) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Formats a time (seconds since 1970) as a date for GitHub, such as `2026-11-16T03:04:05Z`.
pub(crate) fn format_date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let years =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * years + years / 4 - years / 100);
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let (year, month) = if months < 10 {
        (era * 400 + years, months + 3)
    } else {
        (era * 400 + years + 1, months - 9)
    };
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed_and_formatted() {
        for (date, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2016-07-11T22:14:10Z", 1_468_275_250),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(parse_date(date), Some(seconds), "{date}");
            assert_eq!(format_date(seconds), date);
        }
        assert_eq!(parse_date("2016-07-11T22:14:10.123Z"), Some(1_468_275_250));
        for bad in [
            "",
            "soon",
            "2016-13-01T00:00:00Z",
            "2016-07-11T22:14:10+02:00",
            "éééé-éé-ééTéé",
        ] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_that_is_not_an_rsa_key_is_refused() {
        for (pem, expected) in [
            ("", "PEM"),
            ("hello", "PEM"),
            (EMPTY_KEY, "cannot be used"),
            (EC_KEY, "not RSA"),
        ] {
            let error = AppKey::from_pem(&Secret::new(pem))
                .err()
                .expect("it is not a key");
            assert!(
                error.contains(expected) && !error.contains("AQAB"),
                "{error}"
            );
        }
    }

    const EMPTY_KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nAQAB\n-----END RSA PRIVATE KEY-----";
    const EC_KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nAQAB\n-----END EC PRIVATE KEY-----";
}
