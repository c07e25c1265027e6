//! Conversion between Telegram's text format and CommonMark.

use serde_json::Value;

use super::api::TelegramIdentity;

/// A message, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedMessage {
    /// The text without our own mention; a command of Telegram is written as the router expects it.
    pub(crate) text: String,
    pub(crate) mentions_agent: bool,
    /// Other people that are mentioned: user names, or numeric ids of people without a user name.
    pub(crate) other_mentions: Vec<String>,
}

/// Parses a message by its entities, whose positions count UTF-16 units.
pub(crate) fn parse_text(text: &str, entities: &Value, me: &TelegramIdentity) -> ParsedMessage {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut found = ParsedMessage::default();
    let mut at = 0;
    let keep =
        |from: usize, to: usize| String::from_utf16_lossy(units.get(from..to).unwrap_or_default());
    for entity in entities.as_array().into_iter().flatten() {
        let number = |name: &str| {
            entity[name]
                .as_u64()
                .and_then(|entity| usize::try_from(entity).ok())
        };
        let (Some(from), Some(length)) = (number("offset"), number("length")) else {
            continue;
        };
        let to = from.saturating_add(length).min(units.len());
        if from < at || from >= to {
            continue;
        }
        let word = keep(from, to);
        let is_us = |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(&me.username);
        let instead = match entity["type"].as_str() {
            Some("mention") if is_us(word.trim_start_matches('@')) => {
                found.mentions_agent = true;
                String::new()
            }
            Some("mention") => {
                found
                    .other_mentions
                    .push(word.trim_start_matches('@').to_owned());
                continue;
            }
            Some("text_mention") if entity["user"]["id"].as_i64() == Some(me.id) => {
                found.mentions_agent = true;
                String::new()
            }
            Some("text_mention") => {
                found.other_mentions.extend(
                    entity["user"]["id"]
                        .as_i64()
                        .map(|entity| entity.to_string()),
                );
                continue;
            }
            Some("bot_command") if from == 0 => {
                let (name, of) = word.split_once('@').unwrap_or((&word, ""));
                match of {
                    "" => {}
                    of if is_us(of) => found.mentions_agent = true,
                    of => found.other_mentions.push(of.to_owned()),
                }
                thread_command(name)
            }
            _ => continue,
        };
        found.text += &keep(at, from);
        found.text += &instead;
        at = to;
    }
    found.text += &keep(at, units.len());
    found.text = found.text.trim().to_owned();
    found
}

/// Converts a command of Telegram to the word that a thread understands.
fn thread_command(name: &str) -> String {
    match name.trim_start_matches('/') {
        "start" | "help" => String::new(),
        name @ ("stop" | "land") => name.to_owned(),
        name => format!("!{name}"),
    }
}

/// Converts CommonMark to Telegram's HTML, which is well-formed for every text.
pub(crate) fn to_html(text: &str) -> String {
    let mut found: Vec<String> = Vec::new();
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
            let closes = |s: &str| {
                s.trim().len() >= fence.len() && s.trim().chars().all(|c| fence.starts_with(c))
            };
            let mut code = Vec::new();
            for line in lines.by_ref() {
                if closes(line) {
                    break;
                }
                code.push(escape_html(line));
            }
            found.push(code_block_html(&code.join("\n"), &language));
        } else if trimmed.starts_with('|')
            && lines
                .peek()
                .is_some_and(|s| s.trim_start().starts_with("|-"))
        {
            // A table is readable only in a fixed-width font.
            let mut rows = vec![escape_html(trimmed)];
            while let Some(row) = lines.next_if(|s| s.trim_start().starts_with('|')) {
                rows.push(escape_html(row.trim_start()));
            }
            found.push(code_block_html(&rows.join("\n"), ""));
        } else if trimmed.starts_with('>') {
            let bare = |s: &str| inline_html(s.trim_start().trim_start_matches(['>', ' ']), true);
            let mut quote = vec![bare(trimmed)];
            while let Some(next) = lines.next_if(|s| s.trim_start().starts_with('>')) {
                quote.push(bare(next));
            }
            found.push(format!(
                "<blockquote>{}</blockquote>",
                quote.join("\n").trim()
            ));
        } else {
            found.push(line_html(line));
        }
    }
    found.join("\n").trim().to_owned()
}

fn code_block_html(code: &str, language: &str) -> String {
    let named = !language.is_empty()
        && language
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c));
    if named {
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

/// Converts inline marks. Each inner text is converted by itself, so that every tag is closed.
fn inline_html(text: &str, links: bool) -> String {
    let mut found = String::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\\' => rest[1..]
                .chars()
                .next()
                .filter(char::is_ascii_punctuation)
                .map(|c| (escape_html(&c.to_string()), 2)),
            '`' => code_html(rest),
            '*' | '_' | '~' => emphasis_html(rest, before, links),
            '[' if links => link_html(rest),
            _ => None,
        };
        let (shown, length) = taken.unwrap_or_else(|| {
            let length = if first == '`' {
                rest.len() - rest.trim_start_matches('`').len()
            } else {
                first.len_utf8()
            };
            (escape_html(&rest[..length]), length)
        });
        found.push_str(&shown);
        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    found
}

/// Converts code between two equal runs of backticks. Returns the HTML and the length consumed.
fn code_html(rest: &str) -> Option<(String, usize)> {
    let run = rest.len() - rest.trim_start_matches('`').len();
    let mut at = run;
    loop {
        let open = at + rest[at..].find('`')?;
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
        at = open + close;
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
    let by_word = mark.starts_with('_');
    if by_word && before.is_alphanumeric() {
        return None;
    }
    let inner = &rest[mark.len()..];
    let mut from = 0;
    loop {
        let at = from + inner[from..].find(mark)?;
        let (said, after) = (&inner[..at], inner[at + mark.len()..].chars().next());
        let doubled = mark.len() == 1 && after == mark.chars().next();
        let goes_on = by_word && after.is_some_and(char::is_alphanumeric);
        let ends = !said.is_empty() && !said.ends_with(char::is_whitespace) && !goes_on && !doubled;
        if ends {
            return Some((
                format!("<{tag}>{}</{tag}>", inline_html(said, links)),
                mark.len() * 2 + at,
            ));
        }
        from = at + mark.len();
        if mark.len() == 1 && after == mark.chars().next() {
            from += mark.len();
        }
    }
}

/// Converts a link to a web page or mail address. Of any other link only the label is left.
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
    let safe = ["https://", "http://", "mailto:"]
        .iter()
        .any(|s| lower.starts_with(s));
    let shown = inline_html(label, false);
    let shown = if safe && !label.is_empty() {
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
        let us = json!({"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 7}});
        for (text, entities, words, called, others) in [
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
            ("Ann fix", json!([us]), "fix", true, vec![]),
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
            let found = parse_text(text, &entities, &test_identity());
            assert_eq!(
                (found.text.as_str(), found.mentions_agent),
                (words, called),
                "{text}"
            );
            assert_eq!(found.other_mentions, others, "{text}");
        }
    }

    #[test]
    fn markdown_of_an_agent_becomes_html() {
        for (text, shown) in [
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
            assert_eq!(to_html(text), shown, "{text}");
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
