//! Shortens the answers of API verbs to the parts that a model needs, because every word costs
//! tokens of the model.

use serde_json::{Value, json};

use super::pick_fields;
use crate::mcp::tools::ToolReply;

/// Shortens the answer of an API verb to the part that is useful to the model that called the tool
/// `name`.
pub(super) fn shorten_output(name: &str, data: Value) -> ToolReply {
    let noted = |data: Value, summary: &str| ToolReply {
        data,
        summary: Some(summary.to_owned()),
    };
    match name {
        "join" => {
            let task = pick_fields(&data["task"], &["id", "subject", "status"]);
            let mut fields = pick_fields(&data, &["attempt", "agent", "project", "siblings"]);
            fields["task"] = task;
            ToolReply {
                data: fields,
                summary: None,
            }
        }
        "report_scope_escape" => noted(
            json!({ "noted": true }),
            "Noted. Do not change those files; a person can make a task of your report.",
        ),
        "my_task" | "briefing" => ToolReply {
            data: shorten_briefing(data),
            summary: None,
        },
        "progress" => noted(json!({ "noted": true }), "Noted."),
        "finish" => noted(
            json!({ "noted": true }),
            "Noted. End your turn now; Regatta checks the work and lands it.",
        ),
        "answer" => noted(json!({ "answered": true }), "Answered."),
        "mission_finish" => noted(
            json!({ "noted": true }),
            "Noted. End your turn now; your mission ends with it.",
        ),
        "give_up" => noted(
            json!({ "noted": true }),
            "Noted. Your work on this task ends here.",
        ),
        "claim_release" => noted(json!({ "released": true }), "Released."),
        "ask" | "request_approval" => answer_output(data),
        "task_add" | "task_assign" | "task_action" => {
            let (id, word) = (data["id"].clone(), data["word"].clone());
            let summary = format!(
                "{} is {}.",
                id.as_str().unwrap_or("It"),
                word.as_str().unwrap_or("noted")
            );
            ToolReply {
                data: pick_fields(&data, &["id", "subject", "status", "word"]),
                summary: Some(summary),
            }
        }
        "task_list" => {
            let fields = [
                "id", "subject", "status", "word", "agent", "assignee", "files", "progress",
                "reason",
            ];
            let tasks = data
                .as_array()
                .into_iter()
                .flatten()
                .map(|task| pick_fields(task, &fields))
                .collect();
            ToolReply {
                data: Value::Array(tasks),
                summary: None,
            }
        }
        "msg_send" => noted(pick_fields(&data, &["id", "channel"]), "Sent."),
        _ => ToolReply {
            data,
            summary: None,
        },
    }
}

/// Returns an attempt's briefing (the information for its agent) with only the fields of the task
/// that the agent needs.
fn shorten_briefing(mut data: Value) -> Value {
    let fields = [
        "id",
        "subject",
        "description",
        "issue_type",
        "files",
        "validation",
        "blocked_by",
        "purpose",
        "mission",
        "progress",
        "reason",
        "notes",
    ];
    data["task"] = pick_fields(&data["task"], &fields);
    data
}

fn answer_output(data: Value) -> ToolReply {
    let id = data["id"].as_str().unwrap_or_default().to_owned();
    let summary = match (data["answered"] == true, data["withdrawn"] == true) {
        (true, _) => match (data["answer"]["say"].as_str(), &data["answer"]) {
            (Some("allow"), _) => "Allowed.".to_owned(),
            (Some("deny"), answer) => match answer["words"].as_str() {
                Some(words) => format!("Denied: {words}"),
                None => "Denied.".to_owned(),
            },
            (Some("text"), answer) => answer["text"].as_str().unwrap_or_default().to_owned(),
            _ => "Nobody will answer it.".to_owned(),
        },
        (false, true) => "Nobody will answer it any more.".to_owned(),
        (false, false) if data["assumed"].is_string() => {
            format!(
                "{id} stays open. You go on with your assumption; your work may wait for the \
                answer before it lands."
            )
        }
        (false, false) => {
            let note = if data["is_told"] == true {
                " You may end your turn; you will get the answer."
            } else {
                ""
            };
            format!(
                "Nobody has answered yet, and {id} stays open.{note} Call ask with id {id} to \
                 continue waiting, or with id {id} and assume to continue without an answer."
            )
        }
    };
    ToolReply {
        data,
        summary: Some(summary),
    }
}
