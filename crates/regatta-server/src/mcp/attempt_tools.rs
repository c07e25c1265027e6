//! The tools of an attempt.
//!
//! Each tool is a verb; the attempt's task, id and agent come from its token. A model pays for
//! every tool that it is shown and for every word that it reads. So `tools/list` has only the tools
//! that an agent of its role uses, and answers are short. The other tools of [`UNLISTED_TOOLS`] are
//! available to every attempt that calls them by name.

use std::sync::Arc;

use regatta_api::Problem;
use regatta_core::ids::AttemptId;
use serde_json::{Value, json};

use super::tools::{ToolReply, call_verb, tool_json};
use crate::ServerState;
use crate::tokens::Principal;
use crate::verbs::RequestContext;

/// Default wait of a tool. Most clients give a tool one minute.
const DEFAULT_WAIT_S: u64 = 45;
/// Maximum wait that a model can ask for.
const MAX_WAIT_S: u64 = 600;

fn text_schema(help: &str) -> Value {
    json!({ "type": "string", "description": help })
}

fn list_schema(help: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": help })
}

fn wait_schema(help: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "description": help })
}

fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The purpose of an attempt, as far as its tools depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toolset {
    /// A worker on a task.
    Worker,
    /// An agent with the role lead on a task of its own.
    LeadOnTask,
    /// The lead of a mission, in a turn. Its work ends with `mission_finish`, not with `finish`.
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

/// Tools that `tools/list` leaves out: few agents need them, or another tool gives the same.
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

/// Tools that only make sense on a task whose work lands.
const TASK_ONLY_TOOLS: [&str; 3] = ["finish", "give_up", "report_scope_escape"];

/// Returns the tools that `tools/list` shows.
pub(super) fn list(set: Toolset) -> Vec<Value> {
    let is_shown = |name: &str| match set {
        Toolset::Worker => !UNLISTED_TOOLS.contains(&name),
        // A lead works on tasks of others: it adopts, cancels, retries and lands them.
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

/// Returns all tools that an attempt may call.
fn all_tools(lead: bool) -> Vec<Value> {
    let none = || object_schema(json!({}), &[]);
    let seconds = format!("Number of seconds to wait; {DEFAULT_WAIT_S} if omitted");
    let mut tools = vec![
        tool_json(
            "join",
            "Show your name, your task and the other agents at work",
            none(),
            true,
        ),
        tool_json(
            "my_task",
            "Show your task: what to do, which files you may change, which checks must pass, the \
             other agents at work, and \
             the latest landings",
            none(),
            true,
        ),
        tool_json("briefing", "Show the same as my_task", none(), true),
        tool_json(
            "progress",
            "Report in a sentence what you are doing; people and other agents see it",
            object_schema(
                json!({ "text": text_schema("At most 4000 bytes") }),
                &["text"],
            ),
            false,
        ),
        tool_json(
            "finish",
            "Report that you are done, then end your turn. Regatta checks the work and lands it",
            object_schema(
                json!({
                    "detail": text_schema("What you did, in a few sentences; or the whole answer, \
                        plan or report that was asked for"),
                    "not_needed": { "type": "boolean", "description": "No change is needed; say \
                        why in detail" },
                    "learnings": list_schema("Facts about the project that help later tasks"),
                }),
                &["detail"],
            ),
            false,
        ),
        tool_json(
            "give_up",
            "Report that the task cannot be done, and why. This ends your work on it",
            object_schema(
                json!({ "reason": text_schema("Why, for the next agent or person") }),
                &["reason"],
            ),
            false,
        ),
        tool_json(
            "ask",
            "Ask a person, and wait for the answer. The question stays open until somebody \
             answers. Call again with the \
             id to continue waiting, or with assume to continue without an answer",
            object_schema(
                json!({
                    "question": text_schema("What you need to know; say what you would do without \
                        an answer"),
                    "choices": list_schema("The possible answers; omit for a free answer"),
                    "id": text_schema("An earlier question or request (Q7), to continue waiting \
                        for its answer"),
                    "assume": text_schema("Your assumption, to continue without waiting. Your \
                        work may wait for the answer before it lands"),
                    "wait_seconds": wait_schema(&seconds),
                }),
                &[],
            ),
            false,
        ),
        tool_json(
            "request_approval",
            "Ask whether you may do something, and wait for the answer. Name the exact command, \
             files or addresses: a \
             request that does not show its object is denied",
            object_schema(
                json!({
                    "title": text_schema("What you want to do, in one line"),
                    "kind": { "enum": ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"] },
                    "command": text_schema("The exact command line, if it is one"),
                    "paths": list_schema("The files it touches"),
                    "urls": list_schema("The addresses it fetches"),
                    "wait_seconds": wait_schema(&seconds),
                }),
                &["title"],
            ),
            false,
        ),
        tool_json(
            "why",
            "Explain why a task of your project waits; your own if omitted",
            object_schema(json!({ "task": text_schema("T7") }), &[]),
            true,
        ),
        tool_json(
            "siblings",
            "List the other attempts in this project now, with their files",
            none(),
            true,
        ),
        tool_json(
            "report_scope_escape",
            "Report a change that is needed outside your file manifest, instead of making it: \
             changes there do not land. \
             A person can make a task of the report",
            object_schema(
                json!({
                    "files": list_schema("The files that need the change"),
                    "reason": text_schema("The change that is needed, and why"),
                }),
                &["files", "reason"],
            ),
            false,
        ),
        tool_json(
            "claim_acquire",
            "Claim files of your project (file://PROJECT/PATH) or a port (port://HOST/3000), so \
             that nobody else uses \
             them. Your manifest is claimed already",
            object_schema(
                json!({
                    "uris": list_schema("URIs to claim, all or none"),
                    "shared": { "type": "boolean", "description": "Let others share it" },
                    "ttl_seconds": { "type": "integer", "minimum": 1, "maximum": 1800, "description": "Lifetime without renewal; 300 if \
                        omitted" },
                    "wait_seconds": wait_schema("Number of seconds to wait if it is held; 0 if \
                        omitted"),
                    "memo": text_schema("The purpose"),
                }),
                &["uris"],
            ),
            false,
        ),
        tool_json(
            "claim_renew",
            "Renew a claim of yours",
            held_claim_schema(),
            false,
        ),
        tool_json(
            "claim_release",
            "Release a claim of yours",
            held_claim_schema(),
            false,
        ),
        tool_json(
            "msg_send",
            "Post a message. The channel is your project's if omitted; @name in the text mentions \
             an agent, and @name as \
             the channel sends it to that agent only",
            object_schema(
                json!({
                    "text": text_schema("The text"),
                    "channel": text_schema("The channel"),
                    "labels": list_schema("Such as coord:interface"),
                    "reply_to": text_schema("The message to reply to: B12"),
                    "attach": list_schema("Files of your workspace, at most 10 of 4 MiB each"),
                }),
                &["text"],
            ),
            false,
        ),
        tool_json(
            "msg_read",
            "Read your unread messages of a channel: your project's if omitted, or your own \
             mailbox, @YOUR-NAME. Or read \
             a thread, search messages, or read an attachment",
            object_schema(
                json!({
                    "channel": text_schema("The channel"),
                    "thread": text_schema("A message of the thread to read: B12"),
                    "search": text_schema("Words that must all be in the text"),
                    "attachment_of": text_schema("A message with the attachment to read: B12"),
                    "nth": { "type": "integer", "minimum": 0, "description": "Position of the \
                        attachment; the first is 0" },
                }),
                &[],
            ),
            false,
        ),
        tool_json(
            "msg_wait",
            "Wait for the next message of a channel",
            object_schema(
                json!({
                    "channel": text_schema("The channel; your project's if omitted"),
                    "label": text_schema("Only messages with this label"),
                    "from": text_schema("Only messages from this sender"),
                    "mention": text_schema("Only messages that mention this agent"),
                    "reply_to": text_schema("Only replies to this message: B12"),
                    "after": text_schema("Start after this message, instead of with new messages"),
                    "wait_seconds": wait_schema(&seconds),
                }),
                &[],
            ),
            true,
        ),
        tool_json(
            "task_add",
            if lead {
                LEAD_ADD_TASK_HELP
            } else {
                WORKER_ADD_TASK_HELP
            },
            add_task_schema(lead),
            false,
        ),
        task_action_schema(lead),
    ];
    if lead {
        tools.extend(lead_tools());
    }
    tools
}

const WORKER_ADD_TASK_HELP: &str = "Propose a task for work that you found and should not do \
    yourself. It goes to the backlog, for a person to decide";
const LEAD_ADD_TASK_HELP: &str =
    "Add a task to the project: name its goal, its files, its checks, and the tasks it depends on";

fn held_claim_schema() -> Value {
    object_schema(
        json!({ "claim": text_schema("C7"), "token": { "type": "integer", "description": "The token that claim_acquire returned" } }),
        &["claim", "token"],
    )
}

fn add_task_schema(lead: bool) -> Value {
    let mut fields = json!({
        "subject": text_schema("One line"),
        "description": text_schema("Everything that an agent needs who does not know your work"),
        "issue_type": { "enum": ["feature", "bug", "task", "docs", "chore", "ci"] },
        "files": list_schema("The files it may change, as patterns: src/**"),
        "blocked_by": list_schema("Tasks that must land first: T7"),
        "priority": { "type": "integer", "minimum": 0, "maximum": 9, "description": "0 is the highest" },
        "expects": { "enum": ["changes", "report"] },
    });
    if lead {
        fields["tests"] = list_schema("Commands that must exit with 0");
        fields["assign"] = text_schema("The agent to assign it to");
        fields["how"] =
            json!({ "enum": ["direct", "queue", "offer"], "description": "The way to assign it" });
    }
    object_schema(fields, &["subject"])
}

/// Actions of a worker on tasks, and the additional actions of a lead.
const WORKER_TASK_ACTIONS: [&str; 4] = ["claim", "release", "accept", "reject"];
const LEAD_TASK_ACTIONS: [&str; 4] = ["adopt", "cancel", "retry", "land"];

fn task_action_schema(lead: bool) -> Value {
    let mut actions = WORKER_TASK_ACTIONS.to_vec();
    let mut help =
        "Take an unassigned task for yourself, return a task you have not begun, or answer an \
        offer"
            .to_owned();
    if lead {
        actions.extend(LEAD_TASK_ACTIONS);
        help += "; adopt a task into your mission; cancel a task, retry it, or land its work";
    }
    let fields = json!({ "task": text_schema("T7"), "action": { "enum": actions }, "reason": text_schema("Why") });
    tool_json(
        "task_action",
        &help,
        object_schema(fields, &["task", "action"]),
        false,
    )
}

fn lead_tools() -> Vec<Value> {
    let task = || text_schema("T7");
    vec![
        tool_json(
            "task_list",
            "List the open tasks of your project",
            object_schema(
                json!({ "all": { "type": "boolean", "description": "Also ended tasks" } }),
                &[],
            ),
            true,
        ),
        tool_json(
            "task_assign",
            "Assign a task to an agent, or offer it",
            object_schema(
                json!({ "task": task(), "agent": text_schema("The agent; omit it to unassign the \
                    task"), "how": { "enum": ["direct", "queue", "offer"] } }),
                &["task"],
            ),
            false,
        ),
        tool_json(
            "tell",
            "Send a message to the agent that works on a task of your mission, or to the next one \
            that will",
            object_schema(
                json!({ "task": task(), "text": text_schema("The text") }),
                &["task", "text"],
            ),
            false,
        ),
        tool_json(
            "mission",
            "Show the state of your mission",
            object_schema(json!({}), &[]),
            true,
        ),
        tool_json(
            "queue",
            "Show the landing queue of your project",
            object_schema(json!({}), &[]),
            true,
        ),
        tool_json(
            "leads",
            "List the missions of your project, with their leads and states",
            object_schema(json!({}), &[]),
            true,
        ),
        tool_json(
            "inbox",
            "List the requests in your project that wait for an answer",
            object_schema(json!({}), &[]),
            true,
        ),
        tool_json(
            "answer",
            "Answer a question of a worker of yours",
            object_schema(
                json!({ "id": text_schema("The question: Q7"), "text": text_schema("The answer") }),
                &["id", "text"],
            ),
            false,
        ),
        tool_json(
            "mission_finish",
            "Finish your mission with a report of its results and of everything left undone; then \
            end your turn",
            object_schema(
                json!({ "report": text_schema("For the person who requested the mission") }),
                &["report"],
            ),
            false,
        ),
    ]
}

/// The calling attempt, from its token.
struct AttemptIdentity {
    id: AttemptId,
    task: String,
    agent: String,
    fencing_token: u64,
}

/// Calls a tool of an attempt. Returns `None` if there is no such tool.
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

/// Checks that the arguments have known names and that no required one is missing. The verb checks
/// the types.
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

/// Returns an object of the given fields among `fields`.
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
                    "there is no such action",
                    "see the tool's description",
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
                    "you lead no mission",
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
                format!("{name} is listed but not implemented"),
                "please report this",
            ));
        }
    };
    let data = call_verb(shared, context, verb, &input).await?;
    Ok(shorten_output(name, data))
}

/// Returns the verb and input of `msg_read`: for an attachment, a thread, a search, or unread
/// messages.
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

/// Returns the verb and input of `ask` and `request_approval`: a new request, or an earlier one to
/// continue waiting for.
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
                    "ask needs a question, or the id of an earlier one",
                    "give question",
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

/// Returns the part of an answer that a model needs.
fn shorten_output(name: &str, data: Value) -> ToolReply {
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

/// Returns a briefing whose task has only the fields that its agent needs.
fn shorten_briefing(mut data: Value) -> Value {
    let fields = [
        "id",
        "subject",
        "description",
        "issue_type",
        "files",
        "validation",
        "blocked_by",
        "expects",
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
                 continue waiting, or with id \
                 {id} and assume to continue without an answer."
            )
        }
    };
    ToolReply {
        data,
        summary: Some(summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_names(set: Toolset) -> Vec<String> {
        list(set)
            .iter()
            .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
            .collect()
    }

    #[test]
    fn each_toolset_lists_the_tools_of_its_prompt_and_few_others() {
        for (name, purpose) in regatta_engine::WORKER_TOOLS {
            assert!(
                tool_names(Toolset::Worker).contains(&name.to_owned()),
                "{name}: {purpose}"
            );
        }
        for (name, purpose) in regatta_engine::LEAD_TOOLS {
            assert!(
                tool_names(Toolset::MissionLead).contains(&name.to_owned()),
                "{name}: {purpose}"
            );
        }
        assert_eq!(
            tool_names(Toolset::Worker).len(),
            regatta_engine::WORKER_TOOLS.len()
        );
        assert_eq!(tool_names(Toolset::MissionLead).len(), 18);
        let worker = tool_names(Toolset::Worker);
        assert!(
            worker
                .iter()
                .all(|name| tool_names(Toolset::LeadOnTask).contains(name)),
            "{worker:?}"
        );
        for name in TASK_ONLY_TOOLS {
            assert!(
                !tool_names(Toolset::MissionLead).contains(&name.to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn tools_that_are_not_listed_are_still_served() {
        let served = all_tools(false);
        for name in UNLISTED_TOOLS {
            assert!(served.iter().any(|tool| tool["name"] == name), "{name}");
        }
    }

    #[test]
    fn every_tool_has_a_schema_and_a_short_description() {
        for tool in all_tools(true) {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(
                tool["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 10 && text.len() < 250),
                "{tool}"
            );
        }
    }

    #[test]
    fn invalid_arguments_of_a_tool_are_refused() {
        let tools = list(Toolset::Worker);
        let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert!(check_arguments(tool("progress"), &json!({ "text": "x" })).is_ok());
        assert_eq!(
            check_arguments(tool("progress"), &json!({}))
                .unwrap_err()
                .code,
            "bad_input"
        );
        assert_eq!(
            check_arguments(tool("progress"), &json!({ "text": "x", "task": "T9" }))
                .unwrap_err()
                .code,
            "bad_input"
        );
        assert_eq!(
            check_arguments(tool("my_task"), &json!({ "x": 1 }))
                .unwrap_err()
                .hint,
            "it has no arguments"
        );
    }
}
