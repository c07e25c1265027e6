//! Counts in sentences for people: `1 task`, `2 tasks`.

use std::fmt::Display;

/// Returns a number with its noun in the singular or plural, such as `1 task` or `2 tasks`.
pub fn count<N: Copy + PartialEq + From<u8> + Display>(number: N, singular: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {singular}");
    }
    let plural = match singular.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if singular.ends_with(['s', 'x']) => format!("{singular}es"),
        _ => format!("{singular}s"),
    };
    format!("{number} {plural}")
}

/// Returns the form of a verb or pronoun that fits a number, such as `was` for 1 and `were` for
/// others.
pub fn choose<'a, N: Copy + PartialEq + From<u8>>(
    number: N,
    one: &'a str,
    more: &'a str,
) -> &'a str {
    if number == N::from(1) { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_follow_their_number() {
        let cases = [
            (0, "task", "0 tasks"),
            (1, "task", "1 task"),
            (2, "task", "2 tasks"),
            (1, "reply", "1 reply"),
            (3, "reply", "3 replies"),
            (2, "day", "2 days"),
            (2, "box", "2 boxes"),
            (2, "process", "2 processes"),
        ];
        for (number, noun, expected) in cases {
            assert_eq!(count(number, noun), expected);
        }
        assert_eq!(choose(1_usize, "was", "were"), "was");
        assert_eq!(choose(0_usize, "was", "were"), "were");
    }
}
