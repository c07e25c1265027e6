//! Suggests the word that was probably meant by a misspelt word, such as a field of a file or a
//! provider's name.

/// Maximum number of characters of a misspelt word that are compared with the known words, to limit
/// the time.
const MAX_COMPARED_CHARS: usize = 64;

/// Returns the known word that is most similar to `word`, or `None` if no known word is similar
/// enough to be suggested.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let (edits, best) = known
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .min()?;
    let length = word.chars().count();
    (edits <= 2.max(length / 3) && edits * 2 <= length).then_some(best)
}

/// Returns the known field that was most likely meant, from the error message of a deserializer
/// about an unknown field or value.
///
/// Such a message lists the known fields: ``unknown field `frob`, expected one of `from`, `to` ``.
pub fn meant_word(message: &str) -> Option<&str> {
    let listed = message
        .split_once("unknown field `")
        .or_else(|| message.split_once("unknown variant `"))?
        .1;
    let mut words = listed.split('`').step_by(2);
    let written = words.next()?;
    nearest(written, &words.collect::<Vec<_>>())
}

/// Returns how many characters must be inserted, removed or replaced to turn one word into the
/// other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, left_char) in left.chars().take(MAX_COMPARED_CHARS).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, right_char) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left_char != *right_char);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_suggested_and_other_words_are_not() {
        let known = ["subject", "files", "blocked_by", "provider"];
        for (word, meant) in [
            ("subjct", Some("subject")),
            ("blockedBy", Some("blocked_by")),
            ("provder", Some("provider")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), meant, "{word}");
        }
        assert_eq!(nearest("subject", &[]), None);
    }

    #[test]
    fn the_suggestion_for_a_field_is_found_from_a_deserializers_message() {
        for (message, field) in [
            (
                "unknown field `revew`, expected one of `mode`, `review`, `slots`",
                Some("review"),
            ),
            (
                "line 3\nunknown field `comand`, expected `command` or `preset`",
                Some("command"),
            ),
            (
                "unknown variant `humn`, expected one of `none`, `human`, `agent`\nin \
                `landing.review`",
                Some("human"),
            ),
            (
                "unknown field `frob`, expected one of `mode`, `review`",
                None,
            ),
            ("invalid type: string", None),
        ] {
            assert_eq!(meant_word(message), field, "{message}");
        }
    }
}
