//! Lets a person answer an agent's question that is a form with several fields. The terminal asks
//! for each field, and shows the whole answer before it is sent.

use regatta_api::view::InboxView;
use serde_json::{Map, Number, Value};

use crate::commands::CommandContext;
use crate::output::{CommandError, sanitize};

/// Asks for each field of a form with `ask`. Returns the answer as JSON text, or `None` if the
/// person gave up.
pub(crate) fn fill_form(
    app: &CommandContext,
    inbox: &InboxView,
    schema: &Value,
    ask: &mut dyn FnMut(&str) -> Result<Option<String>, CommandError>,
) -> Result<Option<String>, CommandError> {
    let agent = inbox
        .agent
        .as_ref()
        .map_or("an agent".into(), ToString::to_string);
    app.output.print(&format!(
        "  {agent} asks for these fields; an empty line skips a field\n"
    ))?;
    let mut filled = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|value| value == name.as_str()));
        loop {
            match (ask(&field_prompt(name, field, is_required))?, is_required) {
                (None, true) => {
                    let Some(again) = ask(
                        "this field is required; press Enter to give up, or type anything to try \
                        again: ",
                    )?
                    else {
                        return Ok(None);
                    };
                    drop(again);
                }
                (None, false) => break,
                (Some(text), _) => match parse_field(field, &text) {
                    Ok(value) => {
                        filled.insert(name.clone(), value);
                        break;
                    }
                    Err(why) => app.output.print(&format!("  {why}\n"))?,
                },
            }
        }
    }
    let text = Value::Object(filled).to_string();
    app.output.print(&format!("  {}\n", sanitize(&text)))?;
    let is_confirmed = ask("send it? y or n: ")?
        .is_some_and(|answer| answer.eq_ignore_ascii_case("y") || answer == "yes");
    Ok(is_confirmed.then_some(text))
}

/// Returns the prompt for a field. A star marks a required field.
fn field_prompt(name: &str, field: &Value, is_required: bool) -> String {
    let title = field["title"].as_str().unwrap_or(name);
    let description = field["description"]
        .as_str()
        .map_or(String::new(), |field| format!(" ({field})"));
    let kind = match (field["enum"].as_array(), field["type"].as_str()) {
        (Some(all), _) => all
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" | "),
        (None, Some("boolean")) => "yes | no".into(),
        (None, Some(kind)) => kind.to_owned(),
        (None, None) => "text".into(),
    };
    sanitize(&format!(
        "{title}{description} [{kind}]{}: ",
        if is_required { " *" } else { "" }
    ))
}

/// Converts the typed text to the field's type in the form's JSON Schema. The error tells the
/// person what to write.
fn parse_field(field: &Value, text: &str) -> Result<Value, String> {
    if let Some(all) = field["enum"].as_array() {
        let found = all.iter().find(|value| value.as_str() == Some(text));
        return found
            .cloned()
            .ok_or_else(|| "choose one of the listed values".into());
    }
    match field["type"].as_str() {
        Some("integer") => text
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| "write a whole number".into()),
        Some("number") => {
            let number = text.parse::<f64>().ok().and_then(Number::from_f64);
            number
                .map(Value::Number)
                .ok_or_else(|| "write a number".into())
        }
        Some("boolean") => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(Value::Bool(true)),
            "n" | "no" | "false" => Ok(Value::Bool(false)),
            _ => Err("write yes or no".into()),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn typed_text_is_converted_to_the_type_of_the_field() {
        let cases = [
            (json!({ "type": "integer" }), "7", Ok(json!(7))),
            (
                json!({ "type": "integer" }),
                "seven",
                Err("write a whole number".to_owned()),
            ),
            (json!({ "type": "number" }), "0.5", Ok(json!(0.5))),
            (
                json!({ "type": "number" }),
                "NaN",
                Err("write a number".to_owned()),
            ),
            (json!({ "type": "boolean" }), "yes", Ok(json!(true))),
            (json!({ "type": "boolean" }), "No", Ok(json!(false))),
            (
                json!({ "type": "boolean" }),
                "1",
                Err("write yes or no".to_owned()),
            ),
            (json!({ "type": "string" }), "7", Ok(json!("7"))),
            (
                json!({ "type": "string", "enum": ["a", "b"] }),
                "b",
                Ok(json!("b")),
            ),
            (
                json!({ "type": "string", "enum": ["a", "b"] }),
                "c",
                Err("choose one of the listed values".to_owned()),
            ),
            (json!({}), "words", Ok(json!("words"))),
        ];
        for (field, text, expected) in cases {
            assert_eq!(parse_field(&field, text), expected, "{field} {text}");
        }
    }
}
