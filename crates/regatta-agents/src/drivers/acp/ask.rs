//! The requests of the program that need an answer: permissions and questions.

use regatta_core::session::{Answer, AskOption, OptionKind, Tool, ToolKind, ToolStatus, Want};
use serde_json::{Map, Value, json};

use super::Quirks;
use super::turn::{Turn, merge};
use crate::drivers::common::choose;
use crate::drivers::input::{urls_in, whole_or_cut};

/// The facts that are needed to format an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Permission(Vec<AskOption>),
    /// A question with the schema of its form.
    Question(Value),
}

/// Reads a permission request. Its tool call may be new, so it is merged into the calls of the
/// turn.
pub(super) fn permission(params: &Value, turn: &mut Option<Turn>, quirks: Quirks) -> Option<(What, Want)> {
    let options = params["options"].as_array()?.iter().filter_map(option).collect::<Vec<_>>();
    let mut none = Default::default();
    let tools = turn.as_mut().map_or(&mut none, |it| &mut it.tools);
    let mut tool = merge(tools, &params["toolCall"]).unwrap_or_default();
    if tool.object().is_none() {
        read_title(&mut tool, params["toolCall"]["title"].as_str().unwrap_or_default(), quirks);
    }
    if tool.title.is_empty() {
        tool.title = tool.command.clone().unwrap_or_else(|| "a tool".to_owned());
    }
    let tool = Tool { status: ToolStatus::Pending, ..tool };
    Some((What::Permission(options.clone()), Want::Permission { tool, options }))
}

/// Takes the object of a request from its title, for programs that send no input. A bare name is
/// not an object. Only programs that are known to do so put a whole command into the title.
fn read_title(tool: &mut Tool, title: &str, quirks: Quirks) {
    match tool.kind {
        ToolKind::Execute if quirks.titles_commands && !title.trim().is_empty() => {
            (tool.command, tool.is_cut) = whole_or_cut(title);
        }
        ToolKind::Fetch => tool.urls = urls_in(title),
        ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other
            if title.split_whitespace().nth(1).is_some() || title.contains('{') =>
        {
            (tool.arguments, tool.is_cut) = whole_or_cut(title);
        }
        _ => {}
    }
}

fn option(option: &Value) -> Option<AskOption> {
    let kind = match option["kind"].as_str()? {
        "allow_once" => OptionKind::AllowOnce,
        "allow_always" => OptionKind::AllowAlways,
        "reject_once" => OptionKind::RejectOnce,
        "reject_always" => OptionKind::RejectAlways,
        // An option of an unknown kind is never chosen, so it is left out.
        _ => return None,
    };
    let id = option["optionId"].as_str()?.to_owned();
    Some(AskOption { name: option["name"].as_str().unwrap_or(&id).to_owned(), id, kind })
}

/// Reads a question: a form, or a web page to look at.
pub(super) fn question(params: &Value) -> Option<(What, Want)> {
    let message = params["message"].as_str().unwrap_or_default();
    let schema = params["requestedSchema"].clone();
    let text = match params["url"].as_str() {
        Some(url) => format!("{message}\n{url}"),
        None => message.to_owned(),
    };
    let choices = match fields(&schema).as_slice() {
        [(_, field)] => choices(field),
        _ => vec![],
    };
    let form = schema.is_object().then(|| schema.to_string());
    Some((What::Question(schema), Want::Question { text, choices, schema: form }))
}

fn fields(schema: &Value) -> Vec<(&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten().collect()
}

/// Returns the values that a field accepts, if they are listed.
fn choices(field: &Value) -> Vec<String> {
    let items = if field["items"].is_object() { &field["items"] } else { field };
    let plain = items["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let titled = ["oneOf", "anyOf"].iter().flat_map(|it| items[*it].as_array().into_iter().flatten());
    plain.chain(titled.filter_map(|it| it["const"].as_str())).map(str::to_owned).collect()
}

/// Formats the answer to a request.
pub(super) fn answer(what: &What, answer: &Answer) -> Value {
    match what {
        What::Permission(options) => match choose(options, answer) {
            Some(option) => json!({ "outcome": { "outcome": "selected", "optionId": option.id } }),
            None => json!({ "outcome": { "outcome": "cancelled" } }),
        },
        What::Question(schema) => match answer {
            Answer::Text { text } => json!({ "action": "accept", "content": filled(schema, text) }),
            Answer::Allow => json!({ "action": "accept" }),
            Answer::Deny { .. } => json!({ "action": "decline" }),
            Answer::Cancelled => json!({ "action": "cancel" }),
        },
    }
}

/// Fills in a form. A JSON object is taken as it is. A plain text goes into the first required
/// field, or into the first field if none is required.
pub(in crate::drivers) fn filled(schema: &Value, text: &str) -> Value {
    if let Ok(form @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
        return form;
    }
    let fields = fields(schema);
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let required = required.filter_map(|name| fields.iter().find(|it| it.0 == name)).collect::<Vec<_>>();
    let mut form = Map::new();
    if let Some((name, field)) = required.first().copied().or(fields.first()) {
        let value = match field["type"].as_str() {
            Some("boolean") => json!(matches!(text.trim().to_lowercase().as_str(), "yes" | "y" | "true" | "1" | "on")),
            Some("integer") => text.trim().parse::<i64>().map_or_else(|_| json!(text), |it| json!(it)),
            Some("number") => text.trim().parse::<f64>().map_or_else(|_| json!(text), |it| json!(it)),
            Some("array") => json!([text.trim()]),
            _ => json!(text),
        };
        form.insert((*name).clone(), value);
    }
    Value::Object(form)
}
