//! A hash that is the same on every machine and in every version: FNV-1a with 64 bits.
//!
//! The store and commit messages contain results of this function, so the algorithm must never
//! change. Collisions are easy to make, so nothing that protects something may depend on it.

/// Returns the FNV-1a hash of some bytes.
pub fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of the algorithm's authors.
    #[test]
    fn hashes_equal_the_published_values() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(stable_hash(text.bytes()), hash, "{text:?}");
        }
    }
}
