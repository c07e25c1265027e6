//! Conversion between Slack's text format and CommonMark.

/// Returns a message as plain text: entities decoded, links written out, our own mention removed.
pub(crate) fn plain_text(text: &str, own: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        found.push_str(&rest[..at]);
        let inner = &rest[at + 1..];
        let Some(end) = inner.find('>') else {
            found.push_str(&rest[at..]);
            rest = "";
            break;
        };
        found.push_str(&plain_token(&inner[..end], own));
        rest = &inner[end + 1..];
    }
    found.push_str(rest);
    let decoded = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    decoded.trim().to_owned()
}

/// Converts one `<…>` token of Slack's format.
fn plain_token(text: &str, own: &str) -> String {
    let (what, label) = text
        .split_once('|')
        .map_or((text, None), |text| (text.0, Some(text.1)));
    match (what.chars().next(), label) {
        (Some('@'), _) if &what[1..] == own => String::new(),
        (Some('@'), label) => format!("@{}", label.unwrap_or(&what[1..])),
        (Some('#'), label) => format!("#{}", label.unwrap_or(&what[1..])),
        (Some('!'), label) => format!("@{}", label.unwrap_or(&what[1..])),
        (_, Some(label)) if label != what => format!("{label} ({what})"),
        _ => what.to_owned(),
    }
}

/// Returns the ids of the people that a text mentions.
pub(crate) fn mentioned_ids(text: &str) -> Vec<String> {
    let found = text.split("<@").skip(1).filter_map(|text| {
        let end = text.find(['>', '|'])?;
        Some(text[..end].to_owned())
    });
    found.collect()
}

/// Changes an agent's text so that it mentions nobody: an agent must not notify a whole channel.
pub(crate) fn without_mentions(text: &str) -> String {
    let mut found = text.to_owned();
    for (loud, quiet) in [
        ("<!", "<\u{200b}!"),
        ("<@", "<\u{200b}@"),
        ("<#", "<\u{200b}#"),
    ] {
        found = found.replace(loud, quiet);
    }
    for word in ["@channel", "@here", "@everyone"] {
        found = found.replace(word, &word.replace('@', "@\u{200b}"));
    }
    found
}

/// Returns a single line for places that show no blocks, such as notifications and watches.
pub(crate) fn notification_text(text: &str) -> String {
    let line: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(300)
        .collect();
    without_mentions(&line)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_people_see_it() {
        for (text, seen) in [
            (
                "<@UME> fix the <http://x.y/z|login> bug",
                "fix the login (http://x.y/z) bug",
            ),
            ("<@UME>", ""),
            ("<@U2> and <@U3|bob>", "@U2 and @bob"),
            ("see <https://a.b>", "see https://a.b"),
            ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
            ("&amp;lt;", "&lt;"),
            ("<#C1|dev> <!here> <!subteam^S1|@ops>", "#dev @here @@ops"),
            ("broken <@UME", "broken <@UME"),
        ] {
            assert_eq!(plain_text(text, "UME"), seen, "{text}");
        }
        assert_eq!(mentioned_ids("<@U1> x <@U2|bob> <@U3"), ["U1", "U2"]);
    }

    #[test]
    fn quiet_disables_mentions_in_an_agents_text() {
        for text in ["<!channel> hi", "@here", "ping <@U1>", "@everyone"] {
            let said = without_mentions(text);
            assert!(
                !said.contains("<!") && !said.contains("<@") && !said.contains("@here"),
                "{said}"
            );
            assert!(
                !notification_text(text).contains('<'),
                "{}",
                notification_text(text)
            );
        }
    }
}
