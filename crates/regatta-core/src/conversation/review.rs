//! Requests for reviews in a thread: finds the pull request or the work that a message asks to
//! review, and writes the reply if there is nothing to review.

use serde::{Deserialize, Serialize};

use super::{Conversation, ThreadMessage};

/// A pull request that Regatta did not open, with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PullRequest {
    pub number: u64,
    /// The title, author, commits and diff, as the service shows them. Emptied when the review is
    /// over.
    pub text: String,
}

/// The pull request that a message asks to review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewTarget {
    /// The pull request with this number.
    Number(u64),
    /// The pull request to which the thread belongs.
    ThisThread,
}

/// Words that do not name the object of a review, such as "please".
const FILLER_WORDS: [&str; 16] = [
    "please", "now", "again", "the", "a", "my", "pull", "request", "pr", "this", "that", "it",
    "of", "here", "for", "me",
];

/// Returns whether a message asks for a review.
pub fn asks_for_review(text: &str) -> bool {
    words(text).any(|word| matches!(&*word, "review" | "reviews"))
}

/// Returns the first number in the text that directly follows a `#`.
pub fn first_number(text: &str) -> Option<u64> {
    text.split('#').skip(1).find_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

/// Returns the pull request to review if a message names one (`review PR #42`), or asks for a
/// review and nothing else (`review it`). Returns `None` for other messages, such as "review the
/// login page", because such a message already describes the object of the review.
pub fn review_target(text: &str) -> Option<ReviewTarget> {
    let mut rest = words(text).skip_while(|word| !matches!(&**word, "review" | "reviews"));
    rest.next()?;
    let rest: Vec<String> = rest.collect();
    // The words "pr" and "pull" name the object of the review only if they follow "review"
    // directly, or with nothing but other filler words between. Later in the message they are
    // ordinary words.
    let object = rest
        .iter()
        .take_while(|word| FILLER_WORDS.contains(&word.as_str()));
    let names_pull = object
        .into_iter()
        .any(|word| matches!(word.as_str(), "pr" | "pull"));
    if names_pull {
        return Some(first_number(text).map_or(ReviewTarget::ThisThread, ReviewTarget::Number));
    }
    let names_something = |word: &str| {
        let is_number = word
            .trim_start_matches("pr")
            .chars()
            .all(|c| c.is_ascii_digit());
        !FILLER_WORDS.contains(&word) && !is_number
    };
    if rest.iter().any(|word| names_something(word)) {
        return None;
    }
    Some(first_number(text).map_or(ReviewTarget::ThisThread, ReviewTarget::Number))
}

/// Returns the words of a text in lower case, without mentions and punctuation.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let parts = text
        .split_whitespace()
        .filter(|part| !part.starts_with('@'));
    let parts = parts.flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
    parts.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Returns the reply to a message that only asks for a review, if there is nothing to review.
/// Returns `None` if there is something to review.
pub(super) fn nothing_to_review(
    conversation: &Conversation,
    message: &ThreadMessage,
    has_work: bool,
) -> Option<String> {
    if has_work || message.pull.is_some() || message.context.is_some() {
        return None;
    }
    match review_target(&message.text)? {
        ReviewTarget::Number(number) => Some(format!(
            "I cannot read a pull request #{number} from here, so nothing was reviewed. Ask on the \
             pull request itself, or name one that an agent here has opened."
        )),
        // Reply like this only to the first message of a conversation, because in a later message
        // "it" can mean something that was mentioned before.
        ReviewTarget::ThisThread if conversation.turn_count == 0 => Some(
            "There is nothing here to review. Say what to look at, as in `review PR #42`.".into(),
        ),
        ReviewTarget::ThisThread => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_request_names_a_number_or_the_thread() {
        for (text, expected) in [
            ("review this PR", Some(ReviewTarget::ThisThread)),
            ("review it, please", Some(ReviewTarget::ThisThread)),
            ("can you review this?", Some(ReviewTarget::ThisThread)),
            ("@claude-bot review", Some(ReviewTarget::ThisThread)),
            ("review PR #42", Some(ReviewTarget::Number(42))),
            (
                "please review pull request #7 again",
                Some(ReviewTarget::Number(7)),
            ),
            ("review #9", Some(ReviewTarget::Number(9))),
            ("review the login page", None),
            ("review this: fn main() {}", None),
            (
                "review PR #42 and check for security issues",
                Some(ReviewTarget::Number(42)),
            ),
            (
                "review this PR and check for security issues",
                Some(ReviewTarget::ThisThread),
            ),
            ("review the fix for #12", None),
            ("fix the bug", None),
            ("the reviewer was wrong", None),
        ] {
            assert_eq!(review_target(text), expected, "{text}");
        }
        assert!(asks_for_review("Review the tests") && !asks_for_review("preview it"));
    }
}
