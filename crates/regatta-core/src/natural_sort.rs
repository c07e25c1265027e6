//! Sorts names in natural order, in which `agent-2` comes before `agent-10`. All lists of names
//! that people see are sorted like this.

use std::cmp::Ordering;

/// Compares texts in natural order: several digits in a row are compared as one number, everything
/// else character by character. Texts that differ only in leading zeros, such as `a01` and `a1`,
/// are then compared as plain texts, so only identical texts are `Equal`.
pub fn compare(a: &str, b: &str) -> Ordering {
    parts(a).cmp(parts(b)).then_with(|| a.cmp(b))
}

/// Sorts items in natural order of the names that `name` returns.
pub fn sort<T>(items: &mut [T], name: impl Fn(&T) -> &str) {
    items.sort_by(|a, b| compare(name(a), name(b)));
}

/// Splits a text into parts whose tuples compare in natural order. A character gives itself. A
/// number gives `'0'`, the count of its digits without leading zeros, and these digits, so a number
/// with more digits is larger.
fn parts(mut text: &str) -> impl Iterator<Item = (char, usize, &str)> {
    std::iter::from_fn(move || {
        let first = text.chars().next()?;
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (part, rest) = text.split_at(if digits > 0 { digits } else { first.len_utf8() });
        text = rest;
        let number = part.trim_start_matches('0');
        Some(if digits > 0 {
            ('0', number.len(), number)
        } else {
            (first, 0, "")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let cases = [
            ("agent-2", "agent-10"),
            ("agent-9", "agent-10"),
            ("T9", "T10"),
            ("agent", "agent-1"),
            ("", "a"),
            ("2", "10"),
            ("a2b10", "a10b2"),
            ("a2b2", "a2b10"),
            ("a2", "b1"),
            ("a-b", "a1"),
            ("a1", "ab"),
            ("a01", "a1"),
            ("a01", "a2"),
            ("a1", "a02"),
            ("a0", "a1"),
            ("a", "a0"),
            ("v1.2", "v1.10"),
            ("harbour/worker-3", "harbour/worker-20"),
            ("x18446744073709551615", "x18446744073709551616"),
            ("x99999999999999999999", "x100000000000000000000"),
            ("é2", "é10"),
            ("a٣", "a٤"),
        ];
        for (first, second) in cases {
            assert_eq!(
                compare(first, second),
                Ordering::Less,
                "{first:?} {second:?}"
            );
            assert_eq!(
                compare(second, first),
                Ordering::Greater,
                "{second:?} {first:?}"
            );
            assert_eq!(compare(first, first), Ordering::Equal, "{first:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        /// The order is total, and only identical texts are equal.
        #[test]
        fn the_order_of_names_is_total(items in proptest::collection::vec("[ab0-2/-]{0,5}|\\PC{0,3}", 3)) {
            let (a, b, c) = (items[0].as_str(), items[1].as_str(), items[2].as_str());
            prop_assert_eq!(compare(a, b), compare(b, a).reverse());
            prop_assert_eq!(compare(a, b) == Ordering::Equal, a == b);
            if compare(a, b).is_le() && compare(b, c).is_le() {
                prop_assert!(compare(a, c).is_le(), "{:?} {:?} {:?}", a, b, c);
            }
        }
    }
}
