//! Reads the requests of `codex app-server` that a person or a rule must answer (approvals,
//! permissions, questions and forms), and formats the answers.

use regatta_core::agent_protocol::{
    PermissionOption, PermissionOptionKind, RequestAnswer, RequestContent, ToolCall, ToolKind,
};
use serde_json::{Value, json};

use crate::drivers::acp::fill_form;
use crate::drivers::codex::unwrap_shell;
use crate::drivers::common::{choose_option, question_form};
use crate::drivers::tool_call_object::{cut_to_limit, push_unique};

/// The kind of a request from the program, with the data from which the driver formats the answer.
#[derive(Clone, Debug)]
pub(super) enum AnswerFormat {
    Approval(Vec<PermissionOption>),
    /// A request for more permissions, with the permissions as the program sent them. An answer
    /// that allows the permissions repeats them.
    Permissions(Value),
    /// Questions to a person: the questions as the program sent them, and the JSON schema of the
    /// form for the answers.
    Questions(Value, Value),
    /// A form that an MCP server sent, with the form's JSON schema.
    Form(Value),
}

fn permission_options(list: &[(&str, PermissionOptionKind)]) -> Vec<PermissionOption> {
    list.iter()
        .map(|(id, kind)| PermissionOption {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            kind: *kind,
        })
        .collect()
}

/// Reads a request to run a command or to change files. The program announced the tool call `call`
/// before, and only that tool call names the changed files.
pub(super) fn read_approval(
    params: &Value,
    kind: ToolKind,
    call: Option<&ToolCall>,
) -> (AnswerFormat, RequestContent) {
    let text_of = |name: &str| params[name].as_str().map(str::to_owned);
    let mut tool = ToolCall {
        id: text_of("itemId").unwrap_or_default(),
        kind,
        ..ToolCall::default()
    };
    let announced = call.and_then(|call| call.command.clone());
    let command = params["command"]
        .as_str()
        .map(|line| unwrap_shell(line).to_owned())
        .or(announced);
    if let Some(command) = command.filter(|_| kind == ToolKind::Execute) {
        (tool.command, tool.is_cut) = cut_to_limit(&command);
    }
    // A request that names a host comes from a command that is already running and wants to reach
    // that host. Show such a request as network access, because each host causes its own request.
    let network = &params["networkApprovalContext"];
    if let Some(host) = network["host"].as_str() {
        tool.kind = ToolKind::Fetch;
        tool.urls.push(format!(
            "{}://{host}",
            network["protocol"].as_str().unwrap_or("https")
        ));
    }
    if kind == ToolKind::Edit {
        tool.paths = call.map(|call| call.paths.clone()).unwrap_or_default();
    }
    if let Some(root) = params["grantRoot"].as_str() {
        push_unique(&mut tool.paths, root);
    }
    let reason =
        text_of("reason").or_else(|| (kind == ToolKind::Edit).then(|| "change files".to_owned()));
    tool.title = reason
        .or_else(|| tool.command.clone())
        .unwrap_or_else(|| "run a command".to_owned());
    let options = permission_options(&[
        ("accept", PermissionOptionKind::AllowOnce),
        ("acceptForSession", PermissionOptionKind::AllowAlways),
        ("decline", PermissionOptionKind::RejectOnce),
    ]);
    (
        AnswerFormat::Approval(options.clone()),
        RequestContent::Permission { tool, options },
    )
}

/// Reads a request for more permissions. A person sees the permissions as the program sent them.
pub(super) fn read_permissions(params: &Value) -> (AnswerFormat, RequestContent) {
    let reason = params["reason"].as_str().unwrap_or("more permissions");
    let id = params["itemId"].as_str().unwrap_or_default().to_owned();
    let mut tool = ToolCall {
        id,
        title: reason.to_owned(),
        kind: ToolKind::SwitchMode,
        ..ToolCall::default()
    };
    let permissions = &params["permissions"];
    if permissions.is_object() {
        (tool.arguments, tool.is_cut) = cut_to_limit(&permissions.to_string());
    }
    for path in ["read", "write"]
        .iter()
        .flat_map(|access| permissions["fileSystem"][*access].as_array())
        .flatten()
    {
        push_unique(&mut tool.paths, path.as_str().unwrap_or_default());
    }
    let options = permission_options(&[
        ("grant", PermissionOptionKind::AllowOnce),
        ("decline", PermissionOptionKind::RejectOnce),
    ]);
    (
        AnswerFormat::Permissions(permissions.clone()),
        RequestContent::Permission { tool, options },
    )
}

/// Combines the program's questions into one form. The name of a field is the question's id.
pub(super) fn read_questions(list: &Value) -> (AnswerFormat, RequestContent) {
    let (form, content) = question_form(list, |_, question| {
        question["id"].as_str().unwrap_or_default().to_owned()
    });
    (AnswerFormat::Questions(list.clone(), form), content)
}

/// Reads a question that an MCP server asks through Codex.
pub(super) fn read_form(params: &Value) -> (AnswerFormat, RequestContent) {
    let server = params["serverName"].as_str().unwrap_or("an MCP server");
    let message = params["message"].as_str().unwrap_or_default();
    let url = params["url"]
        .as_str()
        .map_or_else(String::new, |url| format!("\n{url}"));
    let schema = params["requestedSchema"].clone();
    let form = schema.is_object().then(|| schema.to_string());
    let text = format!("{server}: {message}{url}");
    (
        AnswerFormat::Form(schema),
        RequestContent::Question {
            text,
            choices: vec![],
            schema: form,
        },
    )
}

/// Encodes the answer to a request that the agent's program sent, in the protocol's JSON.
pub(super) fn format_answer(format: &AnswerFormat, answer: &RequestAnswer) -> Value {
    match format {
        AnswerFormat::Approval(options) => match choose_option(options, answer) {
            Some(option) => json!({ "decision": option.id }),
            None => json!({ "decision": "cancel" }),
        },
        AnswerFormat::Permissions(permissions) => match answer {
            RequestAnswer::Allow | RequestAnswer::Text { .. } => {
                json!({ "permissions": permissions, "scope": "turn" })
            }
            RequestAnswer::Deny { .. } | RequestAnswer::Cancelled => json!({ "permissions": {} }),
        },
        AnswerFormat::Questions(questions, form) => {
            let text = match answer {
                RequestAnswer::Text { text } => text.as_str(),
                RequestAnswer::Deny {
                    reason: Some(reason),
                } => reason.as_str(),
                _ => "",
            };
            let form = fill_form(form, text);
            let mut answers = serde_json::Map::new();
            for id in questions
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|question| question["id"].as_str())
            {
                let answers_to_question: Vec<&str> = form[id]
                    .as_str()
                    .into_iter()
                    .filter(|answer| !answer.is_empty())
                    .collect();
                answers.insert(id.to_owned(), json!({ "answers": answers_to_question }));
            }
            json!({ "answers": answers })
        }
        AnswerFormat::Form(schema) => match answer {
            RequestAnswer::Text { text } => {
                json!({ "action": "accept", "content": fill_form(schema, text) })
            }
            RequestAnswer::Allow => json!({ "action": "accept", "content": {} }),
            RequestAnswer::Deny { .. } => json!({ "action": "decline" }),
            RequestAnswer::Cancelled => json!({ "action": "cancel" }),
        },
    }
}
