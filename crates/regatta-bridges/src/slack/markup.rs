//! Converts between Slack's text format and CommonMark.

/// Returns a message as plain text. Decodes entities, writes out links, and removes the mention of
/// the agent.
pub(crate) fn plain_text(text: &str, own_id: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        plain.push_str(&rest[..start]);
        let inner = &rest[start + 1..];
        let Some(end) = inner.find('>') else {
            plain.push_str(&rest[start..]);
            rest = "";
            break;
        };
        plain.push_str(&plain_token(&inner[..end], own_id));
        rest = &inner[end + 1..];
    }
    plain.push_str(rest);
    let decoded = plain
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    decoded.trim().to_owned()
}

/// Converts one `<…>` token (a link, mention or channel) of Slack's format to plain text.
fn plain_token(text: &str, own_id: &str) -> String {
    let (target, label) = text
        .split_once('|')
        .map_or((text, None), |(target, label)| (target, Some(label)));
    match (target.chars().next(), label) {
        (Some('@'), _) if &target[1..] == own_id => String::new(),
        (Some('@'), label) => format!("@{}", label.unwrap_or(&target[1..])),
        (Some('#'), label) => format!("#{}", label.unwrap_or(&target[1..])),
        (Some('!'), label) => format!("@{}", label.unwrap_or(&target[1..])),
        (_, Some(label)) if label != target => format!("{label} ({target})"),
        _ => target.to_owned(),
    }
}

/// Returns the ids of the people that a text mentions.
pub(crate) fn mentioned_ids(text: &str) -> Vec<String> {
    text.split("<@")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(['>', '|'])?;
            Some(rest[..end].to_owned())
        })
        .collect()
}

/// Changes an agent's text so that it mentions nobody. Otherwise an agent could notify all members
/// of a channel.
pub(crate) fn without_mentions(text: &str) -> String {
    let mut result = text.to_owned();
    for (mention, harmless) in [
        ("<!", "<\u{200b}!"),
        ("<@", "<\u{200b}@"),
        ("<#", "<\u{200b}#"),
    ] {
        result = result.replace(mention, harmless);
    }
    for word in ["@channel", "@here", "@everyone"] {
        result = result.replace(word, &word.replace('@', "@\u{200b}"));
    }
    result
}

/// Returns a text as a single line, for places that show no formatting, such as notifications on
/// phones and watches.
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
        for (text, expected) in [
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
            assert_eq!(plain_text(text, "UME"), expected, "{text}");
        }
        assert_eq!(mentioned_ids("<@U1> x <@U2|bob> <@U3"), ["U1", "U2"]);
    }

    #[test]
    fn quiet_disables_mentions_in_an_agents_text() {
        for text in ["<!channel> hi", "@here", "ping <@U1>", "@everyone"] {
            let quiet = without_mentions(text);
            assert!(
                !quiet.contains("<!") && !quiet.contains("<@") && !quiet.contains("@here"),
                "{quiet}"
            );
            assert!(
                !notification_text(text).contains('<'),
                "{}",
                notification_text(text)
            );
        }
    }
}
