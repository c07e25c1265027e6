//! Full-text search in messages. Every store uses this definition of a word, so that all stores
//! find the same messages (J12).
//!
//! A word is several letters or digits in a row, converted to lower case and cut after 64
//! characters. In scripts without spaces (Han, Hiragana, Katakana) each character is a word. All
//! other characters only separate words.

use std::collections::BTreeSet;

/// Maximum number of characters of a word. Further characters are cut off.
const MAX_WORD_CHARS: usize = 64;
/// Maximum number of words in a search query. Further words are ignored.
const MAX_QUERY_WORDS: usize = 32;

/// Splits a text into its words, in order and in lower case.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut length = 0;
    for c in text.chars() {
        let is_single = is_word_by_itself(c);
        if (is_single || !c.is_alphanumeric()) && !word.is_empty() {
            found.push(std::mem::take(&mut word));
            length = 0;
        }
        if is_single {
            found.push(c.to_string());
        } else if c.is_alphanumeric() {
            length += 1;
            if length <= MAX_WORD_CHARS {
                word.extend(c.to_lowercase());
            }
        }
    }
    if !word.is_empty() {
        found.push(word);
    }
    found
}

/// Returns whether a character belongs to a script without spaces (Han, Hiragana or Katakana), so
/// that it counts as a word.
fn is_word_by_itself(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
        && c.is_alphanumeric()
}

/// A search query. A text matches if it contains all words of the query, and the words of each
/// quoted phrase directly after each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuery {
    parts: Vec<Vec<String>>,
}

impl SearchQuery {
    /// Parses a search query such as `merge "of main"`. Returns `None` if it contains no word.
    pub fn new(text: &str) -> Option<SearchQuery> {
        let mut parts = Vec::new();
        let mut remaining = MAX_QUERY_WORDS;
        for (index, part) in text.split('"').enumerate() {
            let mut found = words(part);
            found.truncate(remaining);
            remaining -= found.len();
            if index % 2 == 0 {
                parts.extend(found.into_iter().map(|found| vec![found]));
            } else if !found.is_empty() {
                parts.push(found);
            }
        }
        (!parts.is_empty()).then_some(SearchQuery { parts })
    }

    /// Returns the different words of the query, including those in phrases.
    pub fn words(&self) -> BTreeSet<&str> {
        self.parts.iter().flatten().map(String::as_str).collect()
    }

    /// Returns whether the query has quoted phrases of several words. In that case, a text that
    /// contains all words does not necessarily match.
    pub fn has_phrases(&self) -> bool {
        self.parts.iter().any(|parts| parts.len() > 1)
    }

    /// Returns whether a text contains all words and phrases of the query.
    pub fn matches(&self, text: &str) -> bool {
        let text = words(text);
        self.parts
            .iter()
            .all(|part| text.windows(part.len()).any(|text| text == part.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j12_a_word_is_a_run_of_letters_and_digits_in_lower_case() {
        for (text, expected) in [
            (
                "Merge src/api/mod.rs, T21!",
                &["merge", "src", "api", "mod", "rs", "t21"][..],
            ),
            ("ÜMLAUT straße Ωμέγα", &["ümlaut", "straße", "ωμέγα"]),
            ("snake_case camelCase", &["snake", "case", "camelcase"]),
            ("東京 2025年 カナ", &["東", "京", "2025", "年", "カ", "ナ"]),
            ("", &[]),
            (" -- \0 🚣 ", &[]),
            ("a\u{0}b", &["a", "b"]),
        ] {
            assert_eq!(words(text), expected, "{text:?}");
        }
        let long = "x".repeat(100);
        assert_eq!(words(&format!("{long} y")), ["x".repeat(64).as_str(), "y"]);
        assert!(
            SearchQuery::new(&long).unwrap().matches(&"X".repeat(64)),
            "the query and the text are not cut at the same length"
        );
    }

    #[test]
    fn a_query_matches_all_its_words_and_phrases() {
        let matches = |query: &str, text: &str| SearchQuery::new(query).unwrap().matches(text);
        assert!(matches("merge main", "Main was merged: MERGE of main"));
        assert!(!matches("merge main", "merged into main"));
        assert!(
            matches("\"of main\"", "the tip of Main!") && !matches("\"of main\"", "of the main")
        );
        assert!(
            matches("tip \"of main", "the tip of main"),
            "an open quote ends with the text"
        );
        assert!(matches("日本", "今日本日") && !matches("\"日本\"", "日 x 本"));
        assert_eq!(SearchQuery::new("  \"\" ... "), None);
        assert!(
            !SearchQuery::new("a b").unwrap().has_phrases()
                && SearchQuery::new("\"a b\"").unwrap().has_phrases()
        );
        assert_eq!(
            SearchQuery::new("b a b")
                .unwrap()
                .words()
                .into_iter()
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }
}
