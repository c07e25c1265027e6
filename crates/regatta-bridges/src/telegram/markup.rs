//! Converts between Telegram's text format and CommonMark.

use serde_json::Value;

use super::api::TelegramIdentity;

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

/// Converts CommonMark to Telegram's HTML. The result is well-formed for every text.
pub(crate) fn to_html(text: &str) -> String {
    let mut blocks: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let fence: String = trimmed.chars().take_while(|c| *c == '`').collect();
        let fence = if fence.is_empty() {
            trimmed.chars().take_while(|c| *c == '~').collect()
        } else {
            fence
        };
        if fence.len() >= 3 && !trimmed[fence.len()..].contains('`') {
            let language: String = trimmed[fence.len()..]
                .trim()
                .split(' ')
                .next()
                .unwrap_or_default()
                .into();
            let closes = |line: &str| {
                line.trim().len() >= fence.len()
                    && line.trim().chars().all(|c| fence.starts_with(c))
            };
            let mut code = Vec::new();
            for line in lines.by_ref() {
                if closes(line) {
                    break;
                }
                code.push(escape_html(line));
            }
            blocks.push(code_block_html(&code.join("\n"), &language));
        } else if trimmed.starts_with('|')
            && lines
                .peek()
                .is_some_and(|line| line.trim_start().starts_with("|-"))
        {
            // Convert a table to a code block, because a table is readable only in a fixed-width
            // font.
            let mut rows = vec![escape_html(trimmed)];
            while let Some(row) = lines.next_if(|line| line.trim_start().starts_with('|')) {
                rows.push(escape_html(row.trim_start()));
            }
            blocks.push(code_block_html(&rows.join("\n"), ""));
        } else if trimmed.starts_with('>') {
            let unquoted =
                |line: &str| inline_html(line.trim_start().trim_start_matches(['>', ' ']), true);
            let mut quote = vec![unquoted(trimmed)];
            while let Some(next) = lines.next_if(|line| line.trim_start().starts_with('>')) {
                quote.push(unquoted(next));
            }
            blocks.push(format!(
                "<blockquote>{}</blockquote>",
                quote.join("\n").trim()
            ));
        } else {
            blocks.push(line_html(line));
        }
    }
    blocks.join("\n").trim().to_owned()
}

fn code_block_html(code: &str, language: &str) -> String {
    let has_language = !language.is_empty()
        && language
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c));
    if has_language {
        format!("<pre><code class=\"language-{language}\">{code}</code></pre>")
    } else {
        format!("<pre>{code}</pre>")
    }
}

fn line_html(line: &str) -> String {
    let trimmed = line.trim_start();
    let indent = &line[..line.len() - trimmed.len()];
    let hashes = trimmed.chars().take_while(|c| *c == '#').count();
    if (1..=6).contains(&hashes) && trimmed[hashes..].starts_with(' ') {
        return format!(
            "<b>{}</b>",
            inline_html(trimmed[hashes..].trim().trim_end_matches('#').trim(), true)
        );
    }
    if matches!(trimmed.trim_end(), "---" | "***" | "___") {
        return "———".into();
    }
    for mark in ["- [ ] ", "- [x] ", "- ", "* ", "+ "] {
        if let Some(rest) = trimmed.strip_prefix(mark) {
            let sign = match mark {
                "- [ ] " => "☐",
                "- [x] " => "☑",
                _ => "•",
            };
            return format!("{indent}{sign} {}", inline_html(rest, true));
        }
    }
    format!("{indent}{}", inline_html(trimmed, true))
}

pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Converts the inline formatting of a text to HTML. Nested formatting is converted separately, so
/// that every tag is closed.
fn inline_html(text: &str, links: bool) -> String {
    let mut html = String::new();
    let mut rest = text;
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        let converted = match first {
            '\\' => rest[1..]
                .chars()
                .next()
                .filter(char::is_ascii_punctuation)
                .map(|c| (escape_html(&c.to_string()), 2)),
            '`' => code_html(rest),
            '*' | '_' | '~' => emphasis_html(rest, previous, links),
            '[' if links => link_html(rest),
            _ => None,
        };
        let (shown, length) = converted.unwrap_or_else(|| {
            let length = if first == '`' {
                rest.len() - rest.trim_start_matches('`').len()
            } else {
                first.len_utf8()
            };
            (escape_html(&rest[..length]), length)
        });
        html.push_str(&shown);
        previous = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    html
}

/// Converts inline code between two equally long runs of backticks. Returns the HTML and the length
/// of the converted text in bytes.
fn code_html(rest: &str) -> Option<(String, usize)> {
    let run = rest.len() - rest.trim_start_matches('`').len();
    let mut position = run;
    loop {
        let open = position + rest[position..].find('`')?;
        let close = rest[open..].len() - rest[open..].trim_start_matches('`').len();
        if close == run {
            let mut code = &rest[run..open];
            if code.len() > 2
                && code.starts_with(' ')
                && code.ends_with(' ')
                && !code.trim().is_empty()
            {
                code = &code[1..code.len() - 1];
            }
            let shown = if code.is_empty() {
                String::new()
            } else {
                format!("<code>{}</code>", escape_html(code))
            };
            return Some((shown, open + close));
        }
        position = open + close;
    }
}

fn emphasis_html(rest: &str, before: char, links: bool) -> Option<(String, usize)> {
    let (mark, tag) = ["**", "__", "~~", "*", "_"]
        .into_iter()
        .zip(["b", "b", "s", "i", "i"])
        .find(|(mark, _)| {
            rest.starts_with(mark)
                && rest[mark.len()..]
                    .chars()
                    .next()
                    .is_some_and(|c| !c.is_whitespace())
        })?;
    let is_underscore = mark.starts_with('_');
    if is_underscore && before.is_alphanumeric() {
        return None;
    }
    let inner = &rest[mark.len()..];
    let mut search_start = 0;
    loop {
        let position = search_start + inner[search_start..].find(mark)?;
        let (content, after) = (
            &inner[..position],
            inner[position + mark.len()..].chars().next(),
        );
        let is_doubled = mark.len() == 1 && after == mark.chars().next();
        let continues_word = is_underscore && after.is_some_and(char::is_alphanumeric);
        let is_end = !content.is_empty()
            && !content.ends_with(char::is_whitespace)
            && !continues_word
            && !is_doubled;
        if is_end {
            return Some((
                format!("<{tag}>{}</{tag}>", inline_html(content, links)),
                mark.len() * 2 + position,
            ));
        }
        search_start = position + mark.len();
        if mark.len() == 1 && after == mark.chars().next() {
            search_start += mark.len();
        }
    }
}

/// Converts a link to a web page or a mail address to HTML. Of any other link, only the label
/// remains.
fn link_html(rest: &str) -> Option<(String, usize)> {
    let close = rest.find("](")?;
    let end = close + 2 + rest[close + 2..].find(')')?;
    let (label, target) = (&rest[1..close], rest[close + 2..end].trim());
    let target = target
        .split(' ')
        .next()
        .unwrap_or_default()
        .trim_matches(['<', '>']);
    let lower = target.to_ascii_lowercase();
    let is_safe = ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme));
    let shown = inline_html(label, false);
    let shown = if is_safe && !label.is_empty() {
        format!("<a href=\"{}\">{shown}</a>", escape_html(target))
    } else {
        shown
    };
    Some((shown, end + 1))
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
            ("[click](javascript:alert(1))", "click)"),
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
