//! Checks the signatures of webhook deliveries. A signature is an HMAC-SHA256 of the raw body. The
//! comparison takes the same time for every input, so that an attacker learns nothing from its
//! duration.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::config::Secret;

/// Returns the signature of the concatenated `parts`, in hex.
pub fn hex_signature(secret: &Secret, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes())
        .expect("HMAC accepts keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// Returns whether `given` is the valid signature of the concatenated `parts`.
pub fn is_valid(secret: &Secret, parts: &[&[u8]], given: &str) -> bool {
    let expected = hex_signature(secret, parts);
    expected
        .as_bytes()
        .ct_eq(given.trim().to_ascii_lowercase().as_bytes())
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_accepts_githubs_test_vector_and_no_variation() {
        let secret = Secret::new("It's a Secret to Everybody");
        let good = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(is_valid(&secret, &[b"Hello, ", b"World!"], good));
        for (body, given) in [
            ("Hello, World", good),
            ("Hello, World!", ""),
            ("Hello, World!", &good[1..]),
        ] {
            assert!(!is_valid(&secret, &[body.as_bytes()], given));
        }
        assert!(!is_valid(
            &Secret::new("another"),
            &[b"Hello, World!"],
            good
        ));
    }
}
