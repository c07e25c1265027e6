//! The catalog of the MCP tools for attempts: their names, descriptions and input schemas.
//!
//! The descriptions are short, because every word costs tokens of the model. The parent module
//! chooses the tools for each role and runs the calls.

use serde_json::{Value, json};

use crate::mcp::tools::tool_json;

/// Default time in seconds for tools that wait for something, such as an answer. The time is less
/// than a minute, because most MCP clients give up a tool call after one minute.
pub(super) const DEFAULT_WAIT_S: u64 = 45;

/// Maximum time in seconds that a model can tell a tool to wait.
pub(super) const MAX_WAIT_S: u64 = 600;

fn text_schema(help: &str) -> Value {
    json!({ "type": "string", "description": help })
}

fn list_schema(help: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": help })
}

fn wait_schema(help: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "description": help })
}

fn choice_schema(choices: &[&str], help: &str) -> Value {
    json!({ "enum": choices, "description": help })
}

/// Returns the schema of the way in which a lead assigns a task to an agent.
fn assign_mode_schema() -> Value {
    choice_schema(
        &["direct", "queue", "offer"],
        "Assign it now, when the agent is free, or if the agent accepts; direct if omitted",
    )
}

fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Returns all tools that an attempt may call. With `lead`, includes the tools that only a lead (an
/// agent that leads other agents) may call.
pub(super) fn all_tools(lead: bool) -> Vec<Value> {
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
             other agents at work, and the latest landings",
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
             answers. Call again with the id to continue waiting, or with assume to continue \
             without an answer",
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
             files or addresses: a request that does not show its object is denied",
            object_schema(
                json!({
                    "title": text_schema("What you want to do, in one line"),
                    "kind": choice_schema(
                        &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"],
                        "The kind of action; other if omitted",
                    ),
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
             changes there do not land. A person can make a task of the report",
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
             that nobody else uses them. Your manifest is claimed already",
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
             an agent, and @name as the channel sends the message to that agent only",
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
             mailbox, @YOUR-NAME. Or read a thread, search messages, or read an attachment",
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
        "description": text_schema("Everything that an agent without knowledge of your work must know"),
        "issue_type": choice_schema(&["feature", "bug", "task", "docs", "chore", "ci"], "The kind of work; task if omitted"),
        "files": list_schema("The files it may change, as patterns: src/**"),
        "blocked_by": list_schema("Tasks that must land first: T7"),
        "priority": { "type": "integer", "minimum": 0, "maximum": 9, "description": "0 is the highest" },
        "expects": choice_schema(&["changes", "report"], "Changed files, or a report; changes if omitted"),
    });
    if lead {
        fields["tests"] = list_schema("Commands that must exit with 0");
        fields["assign"] = text_schema("The agent to assign it to");
        fields["how"] = assign_mode_schema();
    }
    object_schema(fields, &["subject"])
}

/// The actions of the tool `task_action` that every agent can use. `LEAD_TASK_ACTIONS` lists the
/// additional actions of a lead (an agent that leads other agents).
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
    let fields = json!({ "task": text_schema("T7"), "action": choice_schema(&actions, "What to do with the task"), "reason": text_schema("Why") });
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
                    task"), "how": assign_mode_schema() }),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference page shows these descriptions, and they are all that a model knows of a field.
    #[test]
    fn every_field_of_every_tool_has_a_description() {
        let mut field_count = 0;
        for tool in all_tools(false).iter().chain(&all_tools(true)) {
            let properties = tool["inputSchema"]["properties"].as_object().unwrap();
            for (field, schema) in properties {
                field_count += 1;
                let description = schema["description"].as_str().unwrap_or_default();
                assert!(!description.is_empty(), "{}: {field}", tool["name"]);
            }
        }
        assert!(field_count > 50, "{field_count}");
    }
}
