//! The MCP tools that a running attempt can call to report, ask, and coordinate.
//!
//! Each tool calls a verb of the API. The attempt's task, id and agent come from its access token.
//! Every listed tool and every word of an answer costs tokens of the model. So `tools/list` shows
//! only the tools that an agent of this role uses, and answers are short. The tools in
//! [`UNLISTED_TOOLS`] also work for every attempt that calls them by name.

mod catalog; // names, descriptions and schemas
mod output; // short answers

use std::sync::Arc;

use regatta_api::Problem;
use regatta_core::ids::AttemptId;
use serde_json::{Value, json};

use super::tools::{ToolReply, call_verb};
use crate::ServerState;
use crate::tokens::Principal;
use crate::verbs::RequestContext;
use catalog::{DEFAULT_WAIT_S, MAX_WAIT_S, all_tools};
use output::shorten_output;

/// The set of tools that an attempt (one run of an agent) is shown, which depends on its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toolset {
    /// The tools for an agent with the role worker that works on a task.
    Worker,
    /// The tools for an agent with the role lead that itself works on a task.
    LeadOnTask,
    /// The tools for the lead of a mission (the agent that leads the mission). The lead ends its
    /// work with the tool `mission_finish` instead of `finish`.
    MissionLead,
}

impl Toolset {
    pub(super) fn new(is_lead: bool, leads_mission: bool) -> Self {
        match (is_lead, leads_mission) {
            (false, _) => Toolset::Worker,
            (true, false) => Toolset::LeadOnTask,
            (true, true) => Toolset::MissionLead,
        }
    }

    fn is_lead(self) -> bool {
        self != Toolset::Worker
    }
}

/// Tools that `tools/list` does not show, because few agents need them or another tool does the
/// same.
const UNLISTED_TOOLS: [&str; 9] = [
    "join",
    "briefing",
    "siblings",
    "why",
    "claim_acquire",
    "claim_renew",
    "claim_release",
    "msg_wait",
    "task_action",
];

/// Returns the descriptions of the tools that work for every attempt although `tools/list` does not
/// show them to a worker, in the order of their names here.
pub(crate) fn unlisted_tools() -> Vec<Value> {
    let tools = all_tools(false);
    let find = |name: &&str| tools.iter().find(|tool| tool["name"] == **name).cloned();
    UNLISTED_TOOLS.iter().filter_map(find).collect()
}

/// Tools that are useful only for an attempt that works on a task, and not for the lead of a
/// mission.
const TASK_ONLY_TOOLS: [&str; 3] = ["finish", "give_up", "report_scope_escape"];

/// Returns the tools that the MCP method `tools/list` shows to an attempt with this role.
pub(super) fn list(set: Toolset) -> Vec<Value> {
    let is_shown = |name: &str| match set {
        Toolset::Worker => !UNLISTED_TOOLS.contains(&name),
        // A lead (an agent that leads other agents) gets additional tools, with which it can adopt,
        // cancel, retry and land the tasks of other agents.
        Toolset::LeadOnTask => {
            !UNLISTED_TOOLS.contains(&name) || matches!(name, "task_action" | "why")
        }
        Toolset::MissionLead => {
            !TASK_ONLY_TOOLS.contains(&name)
                && (!UNLISTED_TOOLS.contains(&name) || matches!(name, "task_action" | "why"))
        }
    };
    let mut tools = all_tools(set.is_lead());
    tools.retain(|tool| tool["name"].as_str().is_some_and(is_shown));
    tools
}

/// The attempt that calls a tool, with its task and agent. The values come from the access token of
/// the call and are filled into the input of the API verb.
struct AttemptIdentity {
    id: AttemptId,
    task: String,
    agent: String,
    fencing_token: u64,
}

/// Runs a tool for the attempt that called the tool. Returns `None` if there is no tool of this
/// name.
pub(super) async fn call(
    shared: &Arc<ServerState>,
    context: RequestContext,
    name: &str,
    arguments: &Value,
) -> Option<Result<ToolReply, Problem>> {
    let Principal::Attempt {
        id,
        task,
        agent,
        fencing_token,
        is_lead,
        ..
    } = &context.principal
    else {
        return None;
    };
    let tools = all_tools(*is_lead);
    let tool = tools.iter().find(|tool| tool["name"] == name)?;
    if let Err(problem) = check_arguments(tool, arguments) {
        return Some(Err(problem));
    }
    let me = AttemptIdentity {
        id: *id,
        task: task.to_string(),
        agent: agent.to_string(),
        fencing_token: *fencing_token,
    };
    Some(call_tool(shared, context, &me, name, arguments).await)
}

/// Checks that the tool knows every given argument, and that no required argument is missing. The
/// types of the arguments are checked later, by the API operation that the tool calls.
fn check_arguments(tool: &Value, arguments: &Value) -> Result<(), Problem> {
    let (schema, name) = (
        &tool["inputSchema"],
        tool["name"].as_str().unwrap_or_default(),
    );
    let bad = |what: String| {
        let fields: Vec<&str> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field.as_str())
            .collect();
        let hint = if fields.is_empty() {
            "it has no arguments".into()
        } else {
            format!("its arguments: {}", fields.join(", "))
        };
        Problem::new(400, "bad_input", what, hint)
    };
    for field in arguments
        .as_object()
        .into_iter()
        .flatten()
        .map(|(field, _)| field)
    {
        if schema["properties"].get(field).is_none() {
            return Err(bad(format!(
                "{name} has no argument {}",
                field.chars().take(40).collect::<String>()
            )));
        }
    }
    for field in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if arguments.get(field).is_none_or(Value::is_null) {
            return Err(bad(format!("{name} needs the argument {field}")));
        }
    }
    Ok(())
}

fn seconds_field(arguments: &Value, field: &str, otherwise: u64) -> u64 {
    arguments[field]
        .as_u64()
        .unwrap_or(otherwise)
        .min(MAX_WAIT_S)
        * 1_000
}

/// Returns a JSON object with only the arguments that are listed in `fields`.
fn pick_fields(arguments: &Value, fields: &[&str]) -> Value {
    let found = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), arguments.get(*field)?.clone())));
    Value::Object(found.filter(|(_, value)| !value.is_null()).collect())
}

async fn call_tool(
    shared: &Arc<ServerState>,
    context: RequestContext,
    me: &AttemptIdentity,
    name: &str,
    arguments: &Value,
) -> Result<ToolReply, Problem> {
    let board = shared.engine.board();
    let project = board
        .attempts
        .get(&me.id)
        .map(|attempt| attempt.project.to_string())
        .unwrap_or_default();
    let mission = board
        .attempts
        .get(&me.id)
        .and_then(|attempt| attempt.mission);
    drop(board); // a tool may wait for a long time
    let attempt_fields = || json!({ "task": me.task, "attempt": me.id, "token": me.fencing_token });
    let merged = |mut object: Value, fields: Value| {
        for (name, value) in fields.as_object().cloned().unwrap_or_default() {
            object[name] = value;
        }
        object
    };
    let channel = || arguments["channel"].as_str().unwrap_or(&project).to_owned();
    let (verb, input) = match name {
        "join" | "my_task" | "briefing" => ("briefing", json!({ "attempt": me.id })),
        "progress" => (
            "task.progress",
            merged(attempt_fields(), pick_fields(arguments, &["text"])),
        ),
        "finish" => {
            let detail = json!({ "output": arguments["detail"] });
            (
                "task.finish",
                merged(
                    merged(
                        attempt_fields(),
                        pick_fields(arguments, &["not_needed", "learnings"]),
                    ),
                    detail,
                ),
            )
        }
        "give_up" => (
            "task.fail",
            merged(attempt_fields(), pick_fields(arguments, &["reason"])),
        ),
        "ask" | "request_approval" => approval_call(me, name, arguments)?,
        "report_scope_escape" => {
            let found =
                json!({ "finding": arguments["reason"], "suggested_files": arguments["files"] });
            ("scope.report", merged(attempt_fields(), found))
        }
        "why" => (
            "why",
            json!({ "id": arguments["task"].as_str().unwrap_or(&me.task) }),
        ),
        "siblings" => ("siblings", json!({ "attempt": me.id })),
        "claim_acquire" => {
            let mode = if arguments["shared"] == true {
                "shared"
            } else {
                "exclusive"
            };
            let times = json!({
                "agent": me.agent, "mode": mode,
                "ttl_ms": seconds_field(arguments, "ttl_seconds", 300), "wait_ms": seconds_field(arguments, "wait_seconds", 0),
            });
            (
                "claim.acquire",
                merged(pick_fields(arguments, &["uris", "memo"]), times),
            )
        }
        "claim_renew" => ("claim.renew", pick_fields(arguments, &["claim", "token"])),
        "claim_release" => ("claim.release", pick_fields(arguments, &["claim", "token"])),
        "msg_send" => {
            let message = pick_fields(arguments, &["text", "labels", "reply_to", "attach"]);
            ("msg.send", merged(message, json!({ "channel": channel() })))
        }
        "msg_read" => message_read_call(me, arguments, &channel()),
        "msg_wait" => {
            let fields = json!({ "channel": channel(), "timeout_ms": seconds_field(arguments, "wait_seconds", DEFAULT_WAIT_S) });
            (
                "msg.wait",
                merged(
                    pick_fields(
                        arguments,
                        &["label", "from", "mention", "reply_to", "after"],
                    ),
                    fields,
                ),
            )
        }
        "task_add" => {
            let fields = [
                "subject",
                "description",
                "issue_type",
                "files",
                "blocked_by",
                "priority",
                "expects",
                "assign",
                "how",
            ];
            let checks = arguments.get("tests").map_or(
                json!({}),
                |tests| json!({ "validation": { "tests": tests } }),
            );
            ("task.add", merged(pick_fields(arguments, &fields), checks))
        }
        "task_list" => ("task.list", pick_fields(arguments, &["all"])),
        "task_assign" => {
            let to = arguments
                .get("agent")
                .map_or(json!({}), |agent| json!({ "to": agent }));
            (
                "task.assign",
                merged(pick_fields(arguments, &["task", "how"]), to),
            )
        }
        "task_action" => match arguments["action"].as_str() {
            Some("claim") => (
                "task.assign",
                json!({ "task": arguments["task"], "to": me.agent }),
            ),
            Some("release") => ("task.assign", json!({ "task": arguments["task"] })),
            Some("accept") => (
                "task.accept",
                json!({ "task": arguments["task"], "agent": me.agent }),
            ),
            Some("reject") => (
                "task.reject",
                json!({ "task": arguments["task"], "agent": me.agent }),
            ),
            Some("adopt") => ("mission.adopt", json!({ "task": arguments["task"] })),
            Some("cancel") => ("task.cancel", pick_fields(arguments, &["task", "reason"])),
            Some("retry") => ("retry", json!({ "id": arguments["task"] })),
            Some("land") => ("land", json!({ "id": arguments["task"] })),
            _ => {
                return Err(Problem::new(
                    400,
                    "bad_input",
                    "the tool task_action has no action of this name",
                    "see the list of actions in the tool's description",
                ));
            }
        },
        "tell" => (
            "tell",
            json!({ "id": arguments["task"], "text": arguments["text"] }),
        ),
        "mission" => match mission {
            Some(mission) => ("mission.show", json!({ "id": mission })),
            None => {
                return Err(Problem::new(
                    404,
                    "no_mission",
                    "this attempt leads no mission, so it cannot use a tool for leads",
                    "use task_list instead",
                ));
            }
        },
        "queue" => ("queue", json!({})),
        "leads" => ("mission.list", json!({})),
        "inbox" => ("inbox.list", json!({})),
        "answer" => {
            let answer = json!({ "say": "text", "text": arguments["text"] });
            (
                "inbox.answer",
                json!({ "id": arguments["id"], "answer": answer }),
            )
        }
        "mission_finish" => (
            "mission.finish",
            merged(attempt_fields(), pick_fields(arguments, &["report"])),
        ),
        _ => {
            return Err(Problem::new(
                500,
                "bug",
                format!("the MCP tool {name} is listed but not implemented"),
                "this is a bug in Regatta; report it with this message and logs/daemon.log",
            ));
        }
    };
    let data = call_verb(shared, context, verb, &input).await?;
    Ok(shorten_output(name, data))
}

/// Returns the API verb and the input for a call of the tool `msg_read`. Depending on its
/// arguments, the tool reads an attachment, a thread, a search result, or unread messages.
fn message_read_call(
    me: &AttemptIdentity,
    arguments: &Value,
    channel: &str,
) -> (&'static str, Value) {
    let has = |name: &str| arguments.get(name).is_some_and(|value| !value.is_null());
    if has("attachment_of") {
        let nth = arguments["nth"].as_u64().unwrap_or(0);
        return (
            "msg.attachment",
            json!({ "message": arguments["attachment_of"], "nth": nth }),
        );
    }
    match (has("thread"), has("search")) {
        (false, false) => ("msg.read", json!({ "agent": me.agent, "channel": channel })),
        (true, _) => ("msg.history", pick_fields(arguments, &["thread", "search"])),
        (false, true) => (
            "msg.history",
            json!({ "channel": channel, "search": arguments["search"] }),
        ),
    }
}

/// Returns the API verb and the input for a call of the tool `ask` or `request_approval`. Such a
/// call makes a new request, or continues to wait for the answer to an earlier request.
fn approval_call(
    me: &AttemptIdentity,
    name: &str,
    arguments: &Value,
) -> Result<(&'static str, Value), Problem> {
    let wait_ms = seconds_field(arguments, "wait_seconds", DEFAULT_WAIT_S);
    if let Some(id) = arguments["id"].as_str() {
        let mut input = json!({ "attempt": me.id, "id": id, "wait_ms": wait_ms });
        if let Some(assumed) = arguments["assume"].as_str() {
            input["assume"] = json!(assumed);
        }
        return Ok(("attempt.answer", input));
    }
    let mut input =
        json!({ "task": me.task, "attempt": me.id, "token": me.fencing_token, "wait_ms": wait_ms });
    match name {
        "request_approval" => {
            input["permission"] =
                pick_fields(arguments, &["title", "kind", "command", "paths", "urls"])
        }
        _ => {
            if arguments["question"]
                .as_str()
                .is_none_or(|question| question.trim().is_empty())
            {
                return Err(Problem::new(
                    400,
                    "bad_input",
                    "the tool `ask` was called with neither a question nor the id of an earlier question",
                    "give the argument question",
                ));
            }
            input["question"] = arguments["question"].clone();
            if let Some(assumed) = arguments["assume"].as_str() {
                input["assume"] = json!(assumed);
            }
            if let Some(choices) = arguments
                .get("choices")
                .filter(|choices| !choices.is_null())
            {
                input["choices"] = choices.clone();
            }
        }
    }
    Ok(("attempt.ask", input))
}

#[cfg(test)]
mod tests;
