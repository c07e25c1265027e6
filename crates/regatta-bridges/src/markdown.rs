//! Parses the Markdown of agents and people: CommonMark with the extensions of GitHub.

use pulldown_cmark::{OffsetIter, Options, Parser};

/// Returns the parts of a Markdown text as a sequence of events, each with its range in the text.
pub(crate) fn events(text: &str) -> OffsetIter<'_> {
    let extensions =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, extensions).into_offset_iter()
}
