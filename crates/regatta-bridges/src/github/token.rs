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

#[cfg(test)]
mod tests {
    use super::*;

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
