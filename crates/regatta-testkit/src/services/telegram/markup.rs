//! Parses the markup of messages (HTML or Markdown) by Telegram's rules.

const TAGS: [&str; 15] = [
    "b",
    "strong",
    "i",
    "em",
    "u",
    "ins",
    "s",
    "strike",
    "del",
    "span",
    "tg-spoiler",
    "a",
    "code",
    "pre",
    "blockquote",
];

/// Returns the text without its markup, or Telegram's error.
pub(crate) fn plain_text(text: &str, mode: Option<&str>) -> Result<String, String> {
    match mode.map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok(text.to_owned()),
        Some("html") => html_to_plain(text),
        Some("markdownv2") => markdown_to_plain(text),
        Some("markdown") => Ok(text.replace(['*', '_', '`'], "")),
        Some(_) => Err("unsupported parse_mode".into()),
    }
}

fn html_to_plain(text: &str) -> Result<String, String> {
    let mut shown = String::new();
    let mut open: Vec<String> = vec![];
    let mut rest = text;
    while let Some(at) = rest.find(['<', '&']) {
        shown.push_str(&rest[..at]);
        let offset = text.len() - rest.len() + at;
        rest = &rest[at..];
        if rest.starts_with('&') {
            let end = rest.find(';').filter(|rest| *rest <= 10);
            let (name, after) = end.map_or(("", rest), |end| (&rest[1..end], &rest[end + 1..]));
            let number = |digits: &str, base| {
                u32::from_str_radix(digits, base)
                    .ok()
                    .and_then(char::from_u32)
            };
            let found = match name {
                "lt" => Some('<'),
                "gt" => Some('>'),
                "amp" => Some('&'),
                "quot" => Some('"'),
                _ => match (name.strip_prefix("#x"), name.strip_prefix('#')) {
                    (Some(digits), _) => number(digits, 16),
                    (_, Some(digits)) => number(digits, 10),
                    _ => None,
                },
            };
            // An unknown HTML entity (such as `&foo;`) stays in the text as it is.
            shown.push(found.unwrap_or('&'));
            rest = if found.is_some() { after } else { &rest[1..] };
            continue;
        }
        let end = rest
            .find('>')
            .ok_or_else(|| format!("Unclosed start tag at byte offset {offset}"))?;
        let inner = &rest[1..end];
        rest = &rest[end + 1..];
        if let Some(name) = inner.strip_prefix('/') {
            let expected = open
                .pop()
                .ok_or_else(|| format!("Unexpected end tag at byte offset {offset}"))?;
            if expected != name.trim() {
                return Err(format!(
                    "Unmatched end tag at byte offset {offset}, expected \"</{expected}>\", \
                    found \"</{name}>\""
                ));
            }
            continue;
        }
        let name = inner
            .split([' ', '\n'])
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if !TAGS.contains(&name.as_str()) {
            return Err(format!(
                "Unsupported start tag \"{name}\" at byte offset {offset}"
            ));
        }
        open.push(name);
    }
    shown.push_str(rest);
    match open.pop() {
        Some(name) => Err(format!(
            "Can't find end tag corresponding to start tag \"{name}\""
        )),
        None => Ok(shown),
    }
}

fn markdown_to_plain(text: &str) -> Result<String, String> {
    let mut shown = String::new();
    let mut open: Vec<&str> = vec![];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let fence = if rest.starts_with("```") { "```" } else { "`" };
        if c == '`' {
            let after = &rest[fence.len()..];
            let end = find_unescaped(after, fence)
                .ok_or("Can't find end of the entity starting at a code mark")?;
            let code = after[..end].replace("\\`", "`").replace("\\\\", "\\");
            // The first line of a code block may be the name of the programming language.
            let cut = if fence.len() == 3 {
                code.find('\n').map_or(0, |code| code + 1)
            } else {
                0
            };
            shown.push_str(&code[cut..]);
            rest = &after[end + fence.len()..];
            continue;
        }
        let at_start = shown.is_empty() || shown.ends_with('\n');
        let toggled = ["||", "__", "*", "_", "~"]
            .into_iter()
            .find(|mark| rest.starts_with(mark));
        if let Some(mark) = toggled {
            match open.iter().rposition(|open| *open == mark) {
                Some(at) => drop(open.remove(at)),
                None => open.push(mark),
            }
            rest = &rest[mark.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                shown.extend(rest.chars().next());
                rest = rest
                    .get(rest.chars().next().map_or(0, char::len_utf8)..)
                    .unwrap_or_default();
            }
            '[' => open.push("]"),
            ']' if open.last() == Some(&"]") => {
                open.pop();
                if rest.starts_with('(') {
                    let end = find_unescaped(rest, ")").ok_or("Can't find end of a URL")?;
                    rest = &rest[end + 1..];
                }
            }
            '>' if at_start => {}
            '!' if rest.starts_with('[') => {}
            c if ">#+-=|{}.!()]".contains(c) => {
                return Err(format!(
                    "Character '{c}' is reserved and must be escaped with the preceding '\\'"
                ));
            }
            other => shown.push(other),
        }
    }
    match open.pop() {
        Some(mark) => Err(format!(
            "Can't find end of the entity starting at \"{mark}\""
        )),
        None => Ok(shown),
    }
}

/// Returns the first position of `needle` that has no backslash before it.
fn find_unescaped(text: &str, needle: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find(needle).map(|offset| from + offset) {
        let slashes = text[..found]
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'\\')
            .count();
        if slashes % 2 == 0 {
            return Some(found);
        }
        from = found + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_removed_or_refused() {
        let good = [
            (
                "html",
                "<b>Done</b>: 1 &lt; 2 &amp; <a href=\"x\">link</a> AT&T",
                "Done: 1 < 2 & link AT&T",
            ),
            (
                "html",
                "<pre><code class=\"language-rust\">a</code></pre>",
                "a",
            ),
            (
                "MarkdownV2",
                "*Done*\\. `a.b()` _x_ [link](http://a.b) ||s||",
                "Done. a.b() x link s",
            ),
            (
                "MarkdownV2",
                "```rust\nlet a = 1;\n```\n>quote\\!",
                "let a = 1;\n\nquote!",
            ),
        ];
        for (mode, text, shown) in good {
            assert_eq!(plain_text(text, Some(mode)).as_deref(), Ok(shown), "{text}");
        }
        let bad = [
            ("html", "<div>x</div>", "Unsupported start tag"),
            ("html", "<b>x", "Can't find end tag"),
            ("html", "<b><i>x</b></i>", "Unmatched end tag"),
            ("html", "1 < 2", "Unclosed start tag"),
            ("MarkdownV2", "Done.", "'.' is reserved"),
            ("MarkdownV2", "a - b", "'-' is reserved"),
            ("MarkdownV2", "*bold", "Can't find end"),
            ("MarkdownV2", "`code", "Can't find end"),
            ("rtf", "x", "unsupported"),
        ];
        for (mode, text, words) in bad {
            assert!(
                plain_text(text, Some(mode)).unwrap_err().contains(words),
                "{text}"
            );
        }
    }
}
