//! Converts between Telegram's text format and Markdown.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};
use serde_json::Value;

use super::api::TelegramIdentity;
use crate::markdown;

/// The text of a Telegram message with its mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedMessage {
    /// The text without the mention of the agent's bot. A Telegram command such as `/stop` is
    /// replaced by the same command in the form that Regatta uses in all services.
    pub(crate) text: String,
    pub(crate) mentions_agent: bool,
    /// The people other than the agent's bot whom the message mentions: their user names, or the
    /// numeric ids of people without a user name.
    pub(crate) other_mentions: Vec<String>,
}

/// Parses the text of a message with the help of its entities (Telegram's list of formatted
/// ranges). The positions of entities are counted in UTF-16 units.
pub(crate) fn parse_text(
    text: &str,
    entities: &Value,
    identity: &TelegramIdentity,
) -> ParsedMessage {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut parsed = ParsedMessage::default();
    let mut position = 0;
    let text_between = |start: usize, end: usize| {
        String::from_utf16_lossy(units.get(start..end).unwrap_or_default())
    };
    for entity in entities.as_array().into_iter().flatten() {
        let number = |name: &str| {
            entity[name]
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
        };
        let (Some(start), Some(length)) = (number("offset"), number("length")) else {
            continue;
        };
        let end = start.saturating_add(length).min(units.len());
        if start < position || start >= end {
            continue;
        }
        let word = text_between(start, end);
        let is_own_name =
            |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(&identity.username);
        let replacement = match entity["type"].as_str() {
            Some("mention") if is_own_name(word.trim_start_matches('@')) => {
                parsed.mentions_agent = true;
                String::new()
            }
            Some("mention") => {
                parsed
                    .other_mentions
                    .push(word.trim_start_matches('@').to_owned());
                continue;
            }
            Some("text_mention") if entity["user"]["id"].as_i64() == Some(identity.id) => {
                parsed.mentions_agent = true;
                String::new()
            }
            Some("text_mention") => {
                parsed
                    .other_mentions
                    .extend(entity["user"]["id"].as_i64().map(|id| id.to_string()));
                continue;
            }
            Some("bot_command") if start == 0 => {
                let (name, recipient) = word.split_once('@').unwrap_or((&word, ""));
                match recipient {
                    "" => {}
                    recipient if is_own_name(recipient) => parsed.mentions_agent = true,
                    recipient => parsed.other_mentions.push(recipient.to_owned()),
                }
                thread_command(name)
            }
            _ => continue,
        };
        parsed.text += &text_between(position, start);
        parsed.text += &replacement;
        position = end;
    }
    parsed.text += &text_between(position, units.len());
    parsed.text = parsed.text.trim().to_owned();
    parsed
}

/// Converts the name of a Telegram command to the text command that Regatta uses in all services.
/// The result for `start` and `help` is empty.
fn thread_command(name: &str) -> String {
    match name.trim_start_matches('/') {
        "start" | "help" => String::new(),
        name @ ("stop" | "land") => name.to_owned(),
        name => format!("!{name}"),
    }
}

pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Converts Markdown to Telegram's HTML. The result is well-formed for every text.
pub(crate) fn to_html(text: &str) -> String {
    let mut writer = HtmlWriter {
        text,
        ..HtmlWriter::default()
    };
    for (event, range) in markdown::events(text) {
        writer.write(event, range);
    }
    let html = writer.html.trim();
    // Telegram refuses an empty message. A text that shows nothing, such as the definition of a
    // link, is sent as it is.
    if html.is_empty() {
        escape_html(text.trim())
    } else {
        html.to_owned()
    }
}

/// Writes Markdown as Telegram's HTML, which has no lists, tables, rules or nested quotes.
#[derive(Default)]
struct HtmlWriter<'a> {
    text: &'a str,
    html: String,
    /// Length of `html` after the bullet or number of the last list item. The first block of an
    /// item follows on the same line.
    item_start: Option<usize>,
    /// True if a block (such as a paragraph) has ended and the next block has not begun.
    is_between_blocks: bool,
    is_in_table: bool,
    /// The HTML tags that end the current code block.
    code_end: &'static str,
    quote_depth: usize,
    /// One entry for each link around the current text: true if it is written as a link, false if
    /// only its label is written.
    links: Vec<bool>,
}

impl HtmlWriter<'_> {
    fn write(&mut self, event: Event<'_>, range: Range<usize>) {
        if self.is_in_table && event != Event::End(TagEnd::Table) {
            return;
        }
        match event {
            Event::Start(tag) => self.open(tag, range),
            Event::End(tag) => self.close(tag),
            Event::Text(text) | Event::InlineHtml(text) | Event::Html(text) => {
                self.write_inline(&escape_html(&text), range.start)
            }
            Event::Code(code) => {
                let code = format!("<code>{}</code>", escape_html(&code));
                self.write_inline(&code, range.start);
            }
            Event::SoftBreak | Event::HardBreak => self.html.push('\n'),
            Event::Rule => {
                self.start_block(range.start);
                self.html.push_str("———");
                self.is_between_blocks = true;
            }
            Event::TaskListMarker(is_done) => {
                let sign_length = self.html.strip_suffix("• ").map(str::len);
                self.html.truncate(sign_length.unwrap_or(self.html.len()));
                self.html.push_str(if is_done { "☑ " } else { "☐ " });
                self.item_start = Some(self.html.len());
            }
            // The parser never reports these events, because their extensions are not enabled.
            Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => {}
        }
    }

    fn open(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.start_block(range.start),
            Tag::Heading { .. } => {
                self.start_block(range.start);
                self.html.push_str("<b>");
            }
            Tag::BlockQuote(_) => {
                self.quote_depth += 1;
                if self.quote_depth == 1 {
                    self.start_block(range.start);
                    self.html.push_str("<blockquote>");
                }
            }
            Tag::CodeBlock(kind) => {
                self.break_line(range.start);
                self.html.push_str("<pre>");
                self.code_end = "</pre>";
                if let Some(language) = code_language(&kind) {
                    self.html
                        .push_str(&format!("<code class=\"language-{language}\">"));
                    self.code_end = "</code></pre>";
                }
            }
            Tag::Item => {
                self.start_block(range.start);
                let number = self.text[range].split([' ', '\t', '\n']).next();
                let number = number.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                self.html.push_str(number.unwrap_or("•"));
                self.html.push(' ');
                self.item_start = Some(self.html.len());
            }
            Tag::Table(_) => {
                // A table is readable only in a fixed-width font, so its source becomes a code
                // block.
                self.break_line(range.start);
                let rows = self.text[range].lines();
                let rows: Vec<&str> = rows
                    .map(|row| row.trim_start_matches([' ', '\t', '>']))
                    .collect();
                let rows = escape_html(rows.join("\n").trim_end());
                self.html.push_str(&format!("<pre>{rows}</pre>"));
                self.is_in_table = true;
            }
            Tag::Emphasis => self.write_inline("<i>", range.start),
            Tag::Strong => self.write_inline("<b>", range.start),
            Tag::Strikethrough => self.write_inline("<s>", range.start),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let is_link = !self.links.contains(&true) && is_safe_link(&dest_url);
                let link = format!("<a href=\"{}\">", escape_html(&dest_url));
                self.write_inline(if is_link { &link } else { "" }, range.start);
                self.links.push(is_link);
            }
            _ => {}
        }
    }

    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.html.push_str("</b>"),
            TagEnd::BlockQuote(_) => {
                self.quote_depth -= 1;
                if self.quote_depth == 0 {
                    self.html.truncate(self.html.trim_end().len());
                    self.html.push_str("</blockquote>");
                }
            }
            TagEnd::CodeBlock => {
                self.html.truncate(
                    self.html
                        .strip_suffix('\n')
                        .map_or(self.html.len(), str::len),
                );
                self.html.push_str(self.code_end);
            }
            TagEnd::HtmlBlock => self.html.truncate(self.html.trim_end().len()),
            TagEnd::Item if self.item_start == Some(self.html.len()) => {
                self.html.truncate(self.html.trim_end().len());
            }
            TagEnd::Table => self.is_in_table = false,
            TagEnd::Emphasis => self.html.push_str("</i>"),
            TagEnd::Strong => self.html.push_str("</b>"),
            TagEnd::Strikethrough => self.html.push_str("</s>"),
            TagEnd::Link | TagEnd::Image => {
                let is_link = self.links.pop() == Some(true);
                self.html.push_str(if is_link { "</a>" } else { "" });
            }
            _ => {}
        }
        let is_inline = matches!(
            tag,
            TagEnd::Emphasis
                | TagEnd::Strong
                | TagEnd::Strikethrough
                | TagEnd::Link
                | TagEnd::Image
        );
        self.is_between_blocks |= !is_inline;
    }

    /// Writes a part of a paragraph. Begins a block first if none is open, because in a list
    /// without blank lines the parser reports no start of a paragraph.
    fn write_inline(&mut self, html: &str, start: usize) {
        if self.is_between_blocks {
            self.start_block(start);
        }
        self.html.push_str(html);
    }

    /// Begins a block on a new line, indented as in the source.
    fn start_block(&mut self, start: usize) {
        if !self.break_line(start) {
            return;
        }
        let line = self.text[..start].rsplit('\n').next().unwrap_or_default();
        let indent = match line.rsplit_once('>') {
            Some((_, indent)) => indent.strip_prefix(' ').unwrap_or(indent),
            None => line,
        };
        if indent.trim().is_empty() {
            self.html.push_str(indent);
        }
    }

    /// Begins a new line, after a blank line if the source has one before the position `start`.
    /// Returns false if a block at this position needs no new line.
    fn break_line(&mut self, start: usize) -> bool {
        self.is_between_blocks = false;
        let is_first = self.html.is_empty()
            || self.item_start == Some(self.html.len())
            || self.html.ends_with("<blockquote>");
        if is_first {
            return false;
        }
        let before = &self.text[..start];
        let gap = before.trim_end_matches(['\n', '\r', ' ', '\t', '>']).len();
        let has_blank_line = before[gap..].matches('\n').count() > 1;
        self.html
            .push_str(if has_blank_line { "\n\n" } else { "\n" });
        true
    }
}

/// Returns the language of a code block if Telegram can show it.
fn code_language<'a>(kind: &'a CodeBlockKind<'_>) -> Option<&'a str> {
    let CodeBlockKind::Fenced(info) = kind else {
        return None;
    };
    let is_language_char = |c: char| c.is_ascii_alphanumeric() || "+-_#.".contains(c);
    info.split([' ', '\t'])
        .next()
        .filter(|language| !language.is_empty() && language.chars().all(is_language_char))
}

/// Returns whether an address is that of a web page or a mailbox. Of any other link, only the label
/// is shown.
fn is_safe_link(address: &str) -> bool {
    let lower = address.to_ascii_lowercase();
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn test_identity() -> TelegramIdentity {
        TelegramIdentity {
            id: 7,
            username: "claude_bot".into(),
        }
    }

    fn entity(kind: &str, offset: usize, length: usize) -> Value {
        json!({"type": kind, "offset": offset, "length": length})
    }

    #[test]
    fn mentions_are_read_and_the_bots_own_mention_is_removed() {
        let someone = json!({"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 9}});
        let own_mention =
            json!({"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 7}});
        for (text, entities, expected_text, is_mentioned, expected_mentions) in [
            (
                "@claude_bot fix it",
                json!([entity("mention", 0, 11)]),
                "fix it",
                true,
                vec![],
            ),
            (
                "👀 @Claude_Bot fix",
                json!([entity("mention", 3, 11)]),
                "👀  fix",
                true,
                vec![],
            ),
            (
                "@codex_bot review",
                json!([entity("mention", 0, 10)]),
                "@codex_bot review",
                false,
                vec!["codex_bot"],
            ),
            ("Ann fix", json!([own_mention]), "fix", true, vec![]),
            ("Bob fix", json!([someone]), "Bob fix", false, vec!["9"]),
            (
                "/stop@claude_bot",
                json!([entity("bot_command", 0, 16)]),
                "stop",
                true,
                vec![],
            ),
            (
                "/stop@codex_bot",
                json!([entity("bot_command", 0, 15)]),
                "stop",
                false,
                vec!["codex_bot"],
            ),
            (
                "/start",
                json!([entity("bot_command", 0, 6)]),
                "",
                false,
                vec![],
            ),
            (
                "/mission do it",
                json!([entity("bot_command", 0, 8)]),
                "!mission do it",
                false,
                vec![],
            ),
            (
                "see /tmp",
                json!([entity("bot_command", 4, 4)]),
                "see /tmp",
                false,
                vec![],
            ),
            ("@claude_bot", Value::Null, "@claude_bot", false, vec![]),
            (
                "short",
                json!([entity("mention", 3, 900), entity("mention", 9, 2)]),
                "short",
                false,
                vec!["rt"],
            ),
        ] {
            let parsed = parse_text(text, &entities, &test_identity());
            assert_eq!(
                (parsed.text.as_str(), parsed.mentions_agent),
                (expected_text, is_mentioned),
                "{text}"
            );
            assert_eq!(parsed.other_mentions, expected_mentions, "{text}");
        }
    }

    #[test]
    fn markdown_of_an_agent_becomes_html() {
        for (text, expected) in [
            ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
            (
                "**bold** and *it* and ~~no~~",
                "<b>bold</b> and <i>it</i> and <s>no</s>",
            ),
            (
                "snake_case_name and 2 * 3 * 4",
                "snake_case_name and 2 * 3 * 4",
            ),
            (
                "`a<b` and `` a`b ``",
                "<code>a&lt;b</code> and <code>a`b</code>",
            ),
            ("# Title", "<b>Title</b>"),
            (
                "- one\n  - **two**\n1. three",
                "• one\n  • <b>two</b>\n1. three",
            ),
            (
                "```rust\nlet a = 1 < 2;\n```",
                "<pre><code class=\"language-rust\">let a = 1 &lt; 2;</code></pre>",
            ),
            ("```\n**no**\n```", "<pre>**no**</pre>"),
            ("```\nnever closed", "<pre>never closed</pre>"),
            (
                "[PR #1](https://x.y/1?a=1&b=\"2\")",
                "<a href=\"https://x.y/1?a=1&amp;b=&quot;2&quot;\">PR #1</a>",
            ),
            ("[click](javascript:alert(1))", "click"),
            (
                "[click](JavaScript:x) [me](data:y) [t](tg://user?id=1)",
                "click me t",
            ),
            ("> said\n> twice", "<blockquote>said\ntwice</blockquote>"),
            (
                "| a | b |\n|---|---|\n| 1 | 2 |",
                "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>",
            ),
            ("\\*not\\* and 5\\% \\n", "*not* and 5% \\n"),
            ("**a *b* c**", "<b>a <i>b</i> c</b>"),
            ("unclosed **bold and `code", "unclosed **bold and `code"),
            ("<script>", "&lt;script&gt;"),
            ("&amp; &lt;b&gt; &copy;", "&amp; &lt;b&gt; ©"),
            (
                "<https://x.y/?a=1&b=2>",
                "<a href=\"https://x.y/?a=1&amp;b=2\">https://x.y/?a=1&amp;b=2</a>",
            ),
            (
                "[![logo](https://x.y/l.png)](https://x.y)",
                "<a href=\"https://x.y\">logo</a>",
            ),
            ("> a\n>> b", "<blockquote>a\nb</blockquote>"),
            ("- # a\n  b", "• <b>a</b>\n  b"),
            ("- - a\n  - b\n-", "• • a\n  • b\n•"),
            (
                "- [ ] one\n- [x] two\n\n1) a\n\n   b",
                "☐ one\n☑ two\n\n1) a\n\n   b",
            ),
            ("- ```\n  x\n  ```", "• <pre>x</pre>"),
            ("a\n\n    code", "a\n\n<pre>code</pre>"),
            ("Title\n===\n\n***\n\nb", "<b>Title</b>\n\n———\n\nb"),
            ("[a]: https://x.y", "[a]: https://x.y"),
        ] {
            assert_eq!(to_html(text), expected, "{text}");
        }
    }

    /// Returns the text without its tags, or `None` if the tags do not match.
    fn strip_tags(html: &str) -> Option<String> {
        let (mut shown, mut open, mut rest) = (String::new(), Vec::new(), html);
        while let Some(at) = rest.find('<') {
            shown.push_str(&rest[..at]);
            let end = at + rest[at..].find('>')?;
            let tag = &rest[at + 1..end];
            match tag.strip_prefix('/') {
                Some(name) => (open.pop()? == name).then_some(())?,
                None => open.push(tag.split(' ').next()?),
            }
            rest = &rest[end + 1..];
        }
        shown.push_str(rest);
        open.is_empty().then_some(shown)
    }

    proptest! {
        #[test]
        fn html_of_any_text_is_well_formed(text in r#"[a-c <>&*_~`\[\]()|#>"\\\n:/é-]{0,80}"#) {
            let html = to_html(&text);
            let shown = strip_tags(&html);
            prop_assert!(shown.is_some(), "{html}");
            let units = |s: &str| s.encode_utf16().count();
            let shown = shown.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
            prop_assert!(units(&shown.replace("&amp;", "&")) <= units(&text) + 2, "{html} is \
                longer than {text}");
        }
    }
}
