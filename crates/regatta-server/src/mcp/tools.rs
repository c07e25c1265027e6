//! Lists the MCP tools of a caller, and runs their calls.
//!
//! An attempt, which is one run of an agent on a task, has the few tools in [`attempt_tools`], with
//! good descriptions. The server adds the attempt's task and fencing token to each call. A person
//! or a runner has a tool for each API verb that the caller's access token allows. Every tool call
//! runs the same function, with the same checks, as a call over HTTP.

use std::sync::Arc;

use regatta_api::verb::Verb;
use regatta_api::{Problem, VERBS};
use serde_json::{Value, json};

use super::{INVALID_PARAMS, JsonRpcFault, attempt_tools};
use crate::ServerState;
use crate::tokens::Principal;
use crate::verbs::{self, RequestContext};

/// Returns an error as sentences that a model can read: the message and the hint. Some messages
/// already have a full stop at their end. This full stop cannot be removed, because older clients
/// compare these messages.
fn problem_text(problem: &Problem) -> String {
    format!(
        "{}: {}. {}",
        problem.code,
        problem.message.trim_end_matches('.'),
        problem.hint
    )
}

/// Returns the text that tells a caller's model how to use the tools.
pub(super) fn instructions(principal: &Principal) -> &'static str {
    match principal {
        Principal::Attempt {
            leads_mission: true,
            ..
        } => {
            "You lead a mission. Give every piece of work to a worker with task_add: name the \
             goal, the files and the checks. Then end your turn; you are woken when something \
             happens. When no task is open any more, call mission_finish."
        }
        Principal::Attempt { .. } => {
            "You work on one task of a team; my_task shows it. Change only the files of its \
             manifest, and use report_scope_escape if others need a change. When you are done, \
             call finish and end your turn. Regatta checks your work and lands it."
        }
        Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => {
            "Regatta runs a team of coding agents on git repositories. These tools are its verbs: \
             look with status, show and why; add tasks with task_add; see what needs a person with \
             inbox_list."
        }
    }
}

/// Returns the tools that a caller may use, as `tools/list` shows them.
pub(super) fn list(principal: &Principal) -> Vec<Value> {
    match principal {
        Principal::Attempt {
            is_lead,
            leads_mission,
            ..
        } => attempt_tools::list(attempt_tools::Toolset::new(*is_lead, *leads_mission)),
        Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => VERBS
            .iter()
            .filter(|verb| principal.scope().allows(verb))
            .filter_map(tool_for_verb)
            .collect(),
    }
}

fn tool_for_verb(verb: &Verb) -> Option<Value> {
    if verb.is_for_people {
        return None;
    }
    let schema = regatta_api::schema::schema_of(verb.name)?;
    Some(tool_json(
        &verb.name.replace('.', "_"),
        verb.help,
        schema,
        verb.permission == regatta_api::verb::RequiredPermission::View,
    ))
}

/// Returns the description of a tool in the format of `tools/list`.
pub(super) fn tool_json(name: &str, help: &str, mut schema: Value, reads: bool) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
        // Some clients require the field `properties` in the schema, even if the tool has no
        // arguments.
        schema.entry("properties").or_insert_with(|| json!({}));
        schema.insert("type".into(), json!("object"));
    }
    json!({
        "name": name,
        "description": help,
        "inputSchema": schema,
        "annotations": { "readOnlyHint": reads, "openWorldHint": false },
    })
}

/// Runs a tool. If the tool fails, the error is sent inside a successful answer, because clients
/// show only successful answers to their model.
pub(super) async fn call(
    shared: &Arc<ServerState>,
    context: RequestContext,
    name: &str,
    arguments: Option<&Value>,
) -> Result<Value, JsonRpcFault> {
    let none = json!({});
    let arguments = match arguments {
        None | Some(Value::Null) => &none,
        Some(value @ Value::Object(_)) => value,
        Some(_) => {
            return Err(JsonRpcFault::new(
                INVALID_PARAMS,
                "the arguments of a tool must be an object",
            ));
        }
    };
    let unknown = || {
        JsonRpcFault::new(
            INVALID_PARAMS,
            format!(
                "there is no tool {}",
                name.chars().take(60).collect::<String>()
            ),
        )
    };
    let reply = match &context.principal {
        Principal::Attempt { .. } => attempt_tools::call(shared, context, name, arguments)
            .await
            .ok_or_else(unknown)?,
        Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => {
            let verb = VERBS
                .iter()
                .find(|verb| verb.name.replace('.', "_") == name && !verb.is_for_people);
            let verb = verb.ok_or_else(unknown)?;
            call_verb(shared, context, verb.name, arguments)
                .await
                .map(|data| ToolReply {
                    data,
                    summary: None,
                })
        }
    };
    Ok(match reply {
        Ok(reply) => tool_result(&reply),
        Err(problem) => json!({
            "isError": true,
            "content": [{ "type": "text", "text": problem_text(&problem) }],
            "structuredContent": { "error": problem },
        }),
    })
}

/// The result of a tool call: the data of the API verb's answer, and perhaps a sentence that
/// replaces the data for the model.
pub(super) struct ToolReply {
    pub(super) data: Value,
    /// A sentence that the model gets instead of the data. `None` if the model needs the data.
    pub(super) summary: Option<String>,
}

/// Builds the answer to a tool call. Some clients show their model only the text of an answer, so
/// the text contains the data, unless a sentence is enough.
fn tool_result(reply: &ToolReply) -> Value {
    let text = reply
        .summary
        .clone()
        .unwrap_or_else(|| reply.data.to_string());
    let structured = match &reply.data {
        value @ Value::Object(_) => value.clone(),
        value => json!({ "data": value }),
    };
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": structured, "isError": false })
}

/// Calls a verb (an operation) of the API, and returns the data of the answer.
pub(super) async fn call_verb(
    shared: &Arc<ServerState>,
    context: RequestContext,
    verb: &str,
    input: &Value,
) -> Result<Value, Problem> {
    let answer = verbs::handle(shared, context, verb, input.to_string().as_bytes()).await?;
    answer.data_to_value()
}
