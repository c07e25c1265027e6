//! Checks messages in Slack's Block Kit format as strictly as Slack does. Knows only the parts of
//! the format that bridges (Regatta's connections to services) use.

use serde_json::Value;

/// Returns all errors in these blocks (parts of a message in Slack's Block Kit format), in Slack's
/// words.
pub(crate) fn block_problems(blocks: &Value) -> Vec<String> {
    let Some(blocks) = blocks.as_array() else {
        return vec!["[ERROR] blocks must be an array".into()];
    };
    let mut found = vec![];
    if blocks.len() > 50 {
        found.push(format!(
            "[ERROR] no more than 50 items allowed [json-pointer:/blocks] ({} given)",
            blocks.len()
        ));
    }
    let mut markdown = 0;
    for (at, block) in blocks.iter().enumerate() {
        let mut wrong =
            |what: &str| found.push(format!("[ERROR] {what} [json-pointer:/blocks/{at}]"));
        if block["block_id"]
            .as_str()
            .is_some_and(|block| char_count(block) > 255)
        {
            wrong("block_id must be at most 255 characters");
        }
        match block["type"].as_str() {
            Some("section") => {
                let fields = block["fields"].as_array();
                if block["text"].is_null() && fields.is_none() {
                    wrong("missing required field: text");
                }
                if !block["text"].is_null() {
                    check_text(&block["text"], 3000, &mut wrong);
                }
                if fields.is_some_and(|fields| fields.len() > 10) {
                    wrong("no more than 10 fields allowed");
                }
                for field in fields.into_iter().flatten() {
                    check_text(field, 2000, &mut wrong);
                }
                if let Some(accessory) = block.get("accessory") {
                    check_element(accessory, &mut wrong);
                }
            }
            Some("actions") => {
                let elements = block["elements"]
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                if elements.is_empty() || elements.len() > 25 {
                    wrong("an actions block has 1 to 25 elements");
                }
                for value in elements {
                    check_element(value, &mut wrong);
                }
                let ids: Vec<&str> = elements
                    .iter()
                    .filter_map(|element| element["action_id"].as_str())
                    .collect();
                if (1..ids.len()).any(|at| ids[..at].contains(&ids[at])) {
                    wrong("action_id must be unique within a block");
                }
            }
            Some("context") => {
                let elements = block["elements"]
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                if elements.is_empty() || elements.len() > 10 {
                    wrong("a context block has 1 to 10 elements");
                }
                for value in elements.iter().filter(|element| element["type"] != "image") {
                    check_text(value, 3000, &mut wrong);
                }
            }
            Some("header") => {
                if block["text"]["type"] != "plain_text" {
                    wrong("a header's text is plain_text");
                }
                check_text(&block["text"], 150, &mut wrong);
            }
            Some("markdown") => match block["text"].as_str() {
                Some(text) if !text.is_empty() => markdown += char_count(text),
                _ => wrong("missing required field: text"),
            },
            Some(
                "divider" | "image" | "rich_text" | "table" | "file" | "video" | "task_card"
                | "plan",
            ) => {}
            Some(other) => wrong(&format!("unsupported type: {other}")),
            None => wrong("missing required field: type"),
        }
    }
    if markdown > 12_000 {
        found.push("[ERROR] markdown blocks hold at most 12000 characters together".into());
    }
    found
}

fn check_text(object: &Value, max: usize, wrong: &mut impl FnMut(&str)) {
    if !matches!(object["type"].as_str(), Some("mrkdwn" | "plain_text")) {
        return wrong("a text object is mrkdwn or plain_text");
    }
    match object["text"].as_str().map(char_count) {
        None | Some(0) => wrong("must be more than 0 characters"),
        Some(n) if n > max => wrong(&format!("must be less than {} characters", max + 1)),
        Some(_) => {}
    }
}

fn check_element(element: &Value, wrong: &mut impl FnMut(&str)) {
    if element["type"] == "button" {
        if element["text"]["type"] != "plain_text" {
            wrong("a button's text is plain_text");
        }
        check_text(&element["text"], 75, wrong);
        if element["value"]
            .as_str()
            .is_some_and(|text| char_count(text) > 2000)
        {
            wrong("value must be at most 2000 characters");
        }
        if element
            .get("style")
            .is_some_and(|style| *style != "primary" && *style != "danger")
        {
            wrong("style is primary or danger");
        }
    } else if element["type"].as_str().is_none() {
        wrong("missing required field: type");
    }
    if element["action_id"]
        .as_str()
        .is_some_and(|text| char_count(text) > 255)
    {
        wrong("action_id must be at most 255 characters");
    }
}

/// Returns the number of characters of a text, because Slack measures lengths in characters.
pub(crate) fn char_count(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_are_checked_as_strictly_as_slack_checks_them() {
        let good = json!([
            {"type": "section", "text": {"type": "mrkdwn", "text": "May I?"}},
            {"type": "actions", "elements": [
                {"type": "button", "action_id": "yes", "text": {"type": "plain_text", "text": "Yes"}, "style": "primary"},
            ]},
        ]);
        assert_eq!(block_problems(&good), Vec::<String>::new());
        let bad = [
            json!({"type": "section"}),
            json!([{"type": "section", "text": {"type": "mrkdwn", "text": ""}}]),
            json!([{"type": "section", "text": {"type": "mrkdwn", "text": "x".repeat(3001)}}]),
            json!([{"type": "section", "text": "x"}]),
            json!([{"type": "button"}]),
            json!([{"type": "actions", "elements": []}]),
            json!([{"type": "actions", "elements": [{"type": "button", "text": {"type": "mrkdwn", "text": "x"}}]}]),
            json!([{"type": "markdown", "text": "x".repeat(12_001)}]),
            json!(vec![json!({"type": "divider"}); 51]),
        ];
        for value in bad {
            assert_eq!(block_problems(&value).len(), 1, "{value}");
        }
    }
}
