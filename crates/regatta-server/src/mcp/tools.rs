//! The tools of a caller, and their calls.
//!
//! An attempt has few tools with good descriptions (`worker.rs`), whose task and fencing token are
//! filled in. A person or a runner has all verbs that the token allows, unchanged. Both end in the
//! same function as a call over HTTP, with the same checks.

use std::sync::Arc;

use regatta_api::verb::Verb;
use regatta_api::{Problem, VERBS};
use serde_json::{Value, json};

use super::{BAD_PARAMS, Fault, worker};
use crate::Shared;
use crate::calls::{self, Guest};
use crate::tokens::Visitor;

/// Returns a problem as sentences for a model. Some messages already end with a full stop, because
/// older clients match them.
fn in_sentences(problem: &Problem) -> String {
    format!("{}: {}. {}", problem.code, problem.message.trim_end_matches('.'), problem.hint)
}

/// Returns the instructions for all tools of a caller.
pub(super) fn instructions(visitor: &Visitor) -> &'static str {
    match visitor {
        Visitor::Attempt { leads_mission: true, .. } => {
            "You lead a mission. Give every piece of work to a worker with task_add: name the goal, the files and the \
             checks. Then end your turn; you are woken when something happens. When no task is open any more, call \
             mission_finish."
        }
        Visitor::Attempt { .. } => {
            "You work on one task of a team; my_task shows it. Change only the files of its manifest, and use \
             report_scope_escape if others need a change. When you are done, call finish and end your turn. Regatta checks \
             your work and lands it."
        }
        Visitor::Owner | Visitor::Named { .. } | Visitor::Firing { .. } => {
            "Regatta runs a team of coding agents on git repositories. These tools are its verbs: look with status, \
             show and why; add tasks with task_add; see what needs a person with inbox_list."
        }
    }
}

/// Returns the tools of a caller.
pub(super) fn list(visitor: &Visitor) -> Vec<Value> {
    match visitor {
        Visitor::Attempt { lead, leads_mission, .. } => worker::list(worker::Toolset::new(*lead, *leads_mission)),
        Visitor::Owner | Visitor::Named { .. } | Visitor::Firing { .. } => {
            VERBS.iter().filter(|it| visitor.scope().may(it)).filter_map(tool_of).collect()
        }
    }
}

/// Verbs that are never tools, whichever token a model has: only people should call them.
const BY_HAND: [&str; 7] = ["down", "backup", "open", "token.add", "token.list", "token.rm", "limits.set"];

fn tool_of(verb: &Verb) -> Option<Value> {
    if BY_HAND.contains(&verb.name) {
        return None;
    }
    let schema = regatta_api::schema::of(verb.name)?;
    Some(tool(&verb.name.replace('.', "_"), verb.help, schema, verb.needs == regatta_api::verb::Needs::View))
}

/// Returns a tool in the format of the list.
pub(super) fn tool(name: &str, help: &str, mut schema: Value, reads: bool) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
        // A client may require these fields, even if there are no arguments.
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

/// Calls a tool. An error of the tool is part of its result, because the model must see it.
pub(super) async fn call(
    shared: &Arc<Shared>,
    guest: Guest,
    name: &str,
    arguments: Option<&Value>,
) -> Result<Value, Fault> {
    let none = json!({});
    let arguments = match arguments {
        None | Some(Value::Null) => &none,
        Some(it @ Value::Object(_)) => it,
        Some(_) => return Err(Fault::new(BAD_PARAMS, "the arguments of a tool must be an object")),
    };
    let unknown = || Fault::new(BAD_PARAMS, format!("there is no tool {}", name.chars().take(60).collect::<String>()));
    let done = match &guest.visitor {
        Visitor::Attempt { .. } => worker::call(shared, guest, name, arguments).await.ok_or_else(unknown)?,
        Visitor::Owner | Visitor::Named { .. } | Visitor::Firing { .. } => {
            let verb = VERBS.iter().find(|it| it.name.replace('.', "_") == name && !BY_HAND.contains(&it.name));
            let verb = verb.ok_or_else(unknown)?;
            carry_out(shared, guest, verb.name, arguments).await.map(|data| Done { data, said: None })
        }
    };
    Ok(match done {
        Ok(done) => result(&done),
        Err(problem) => json!({
            "isError": true,
            "content": [{ "type": "text", "text": in_sentences(&problem) }],
            "structuredContent": { "error": problem },
        }),
    })
}

/// The result of a tool.
pub(super) struct Done {
    pub(super) data: Value,
    /// A sentence for the model instead of the data, if a sentence is enough.
    pub(super) said: Option<String>,
}

/// Builds the answer. Some clients show only the text to their model, so the text has the data
/// unless a sentence is enough.
fn result(done: &Done) -> Value {
    let text = done.said.clone().unwrap_or_else(|| done.data.to_string());
    let structured = match &done.data {
        it @ Value::Object(_) => it.clone(),
        it => json!({ "data": it }),
    };
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": structured, "isError": false })
}

/// Calls a verb, and returns its data.
pub(super) async fn carry_out(shared: &Arc<Shared>, guest: Guest, verb: &str, input: &Value) -> Result<Value, Problem> {
    let answer = calls::perform(shared, guest, verb, input.to_string().as_bytes()).await?;
    let answer: Value = serde_json::from_slice(&answer)
        .map_err(|it| Problem::new(500, "bug", format!("an answer could not be parsed: {it}"), "please report this"))?;
    Ok(answer["data"].clone())
}
