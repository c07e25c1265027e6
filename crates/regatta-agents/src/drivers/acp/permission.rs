//! Reads the program's requests that a person or a rule must answer (permissions and questions),
//! and formats the answers.

use regatta_core::agent_protocol::{
    PermissionOption, PermissionOptionKind, RequestAnswer, RequestContent, ToolCall, ToolKind,
    ToolStatus,
};
use serde_json::{Map, Value, json};

use super::Quirks;
use super::turn::{AcpTurn, merge_tool_call};
use crate::drivers::common::choose_option;
use crate::drivers::tool_call_object::{cut_to_limit, urls_in};

/// The kind of a request from the program, with the data from which the driver formats the answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AnswerFormat {
    Permission(Vec<PermissionOption>),
    /// A question to a person, with the JSON schema of the form that the answer fills in.
    Question(Value),
}

/// Reads a request for permission to use a tool. The program may not have announced that tool call
/// before, so the call is added to the turn's calls, or merged with the call that is already known.
pub(super) fn read_permission(
    params: &Value,
    turn: &mut Option<AcpTurn>,
    quirks: Quirks,
) -> Option<(AnswerFormat, RequestContent)> {
    let options = params["options"]
        .as_array()?
        .iter()
        .filter_map(read_option)
        .collect::<Vec<_>>();
    let mut no_calls = Default::default();
    let tools = turn
        .as_mut()
        .map_or(&mut no_calls, |turn| &mut turn.tool_calls);
    let mut tool = merge_tool_call(tools, &params["toolCall"]).unwrap_or_default();
    if tool.object().is_none() {
        read_title(
            &mut tool,
            params["toolCall"]["title"].as_str().unwrap_or_default(),
            quirks,
        );
    }
    if tool.title.is_empty() {
        tool.title = tool.command.clone().unwrap_or_else(|| "a tool".to_owned());
    }
    let tool = ToolCall {
        status: ToolStatus::Pending,
        ..tool
    };
    Some((
        AnswerFormat::Permission(options.clone()),
        RequestContent::Permission { tool, options },
    ))
}

/// Fills in the object of a tool call (its command, URLs or other arguments) from the request's
/// title, for programs that send no separate input. A title that is only the tool's name is
/// ignored. The title is used as a command only for programs that are known to put the whole
/// command there.
fn read_title(tool: &mut ToolCall, title: &str, quirks: Quirks) {
    match tool.kind {
        ToolKind::Execute if quirks.has_command_in_title && !title.trim().is_empty() => {
            (tool.command, tool.is_cut) = cut_to_limit(title);
        }
        ToolKind::Fetch => tool.urls = urls_in(title),
        ToolKind::Search | ToolKind::Think | ToolKind::SwitchMode | ToolKind::Other
            if title.split_whitespace().nth(1).is_some() || title.contains('{') =>
        {
            (tool.arguments, tool.is_cut) = cut_to_limit(title);
        }
        _ => {}
    }
}

fn read_option(option: &Value) -> Option<PermissionOption> {
    let kind = match option["kind"].as_str()? {
        "allow_once" => PermissionOptionKind::AllowOnce,
        "allow_always" => PermissionOptionKind::AllowAlways,
        "reject_once" => PermissionOptionKind::RejectOnce,
        "reject_always" => PermissionOptionKind::RejectAlways,
        // Leave out options of an unknown kind, because Regatta would never choose one.
        _ => return None,
    };
    let id = option["optionId"].as_str()?.to_owned();
    Some(PermissionOption {
        name: option["name"].as_str().unwrap_or(&id).to_owned(),
        id,
        kind,
    })
}

/// Reads a question from the program: a form to fill in, or a web page for the person to open.
pub(super) fn read_question(params: &Value) -> Option<(AnswerFormat, RequestContent)> {
    let message = params["message"].as_str().unwrap_or_default();
    let schema = params["requestedSchema"].clone();
    let text = match params["url"].as_str() {
        Some(url) => format!("{message}\n{url}"),
        None => message.to_owned(),
    };
    let choices = match form_fields(&schema).as_slice() {
        [(_, field)] => field_choices(field),
        _ => vec![],
    };
    let form = schema.is_object().then(|| schema.to_string());
    Some((
        AnswerFormat::Question(schema),
        RequestContent::Question {
            text,
            choices,
            schema: form,
        },
    ))
}

fn form_fields(schema: &Value) -> Vec<(&String, &Value)> {
    schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the values that a form field accepts, or an empty list if the schema does not list them.
fn field_choices(field: &Value) -> Vec<String> {
    let items = if field["items"].is_object() {
        &field["items"]
    } else {
        field
    };
    let plain_values = items["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let option = ["oneOf", "anyOf"]
        .iter()
        .flat_map(|keyword| items[*keyword].as_array().into_iter().flatten());
    plain_values
        .chain(option.filter_map(|option| option["const"].as_str()))
        .map(str::to_owned)
        .collect()
}

/// Builds the protocol's answer to a permission request or a question.
pub(super) fn format_answer(format: &AnswerFormat, answer: &RequestAnswer) -> Value {
    match format {
        AnswerFormat::Permission(options) => match choose_option(options, answer) {
            Some(option) => json!({ "outcome": { "outcome": "selected", "optionId": option.id } }),
            None => json!({ "outcome": { "outcome": "cancelled" } }),
        },
        AnswerFormat::Question(schema) => match answer {
            RequestAnswer::Text { text } => {
                json!({ "action": "accept", "content": fill_form(schema, text) })
            }
            RequestAnswer::Allow => json!({ "action": "accept" }),
            RequestAnswer::Deny { .. } => json!({ "action": "decline" }),
            RequestAnswer::Cancelled => json!({ "action": "cancel" }),
        },
    }
}

/// Fills in a form with the person's answer `text`. If the text is a JSON object, the object is the
/// filled-in form. Otherwise the text goes into the first required field, or into the first field
/// if none is required.
pub(in crate::drivers) fn fill_form(schema: &Value, text: &str) -> Value {
    if let Ok(form @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
        return form;
    }
    let fields = form_fields(schema);
    let required = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let required = required
        .filter_map(|name| fields.iter().find(|field| field.0 == name))
        .collect::<Vec<_>>();
    let mut form = Map::new();
    if let Some((name, field)) = required.first().copied().or(fields.first()) {
        let value = match field["type"].as_str() {
            Some("boolean") => json!(matches!(
                text.trim().to_lowercase().as_str(),
                "yes" | "y" | "true" | "1" | "on"
            )),
            Some("integer") => text
                .trim()
                .parse::<i64>()
                .map_or_else(|_| json!(text), |number| json!(number)),
            Some("number") => text
                .trim()
                .parse::<f64>()
                .map_or_else(|_| json!(text), |number| json!(number)),
            Some("array") => json!([text.trim()]),
            _ => json!(text),
        };
        form.insert((*name).clone(), value);
    }
    Value::Object(form)
}
