//! Elicitation (an MCP feature): a question of an attempt is also shown to the person who uses the
//! attempt's MCP client, if the client supports that.
//!
//! The question is in the inbox like every other question, and the first answer counts. No call is
//! kept open while the person thinks: the server answers the call with a request for input, and the
//! client repeats the call with the person's answer. The repeated call contains the question's id,
//! which is accepted only for a question of the same attempt.
//!
//! Only questions are shown in this way, and only for attempts whose program Regatta did not start.
//! The client sends the person's answer with the attempt's own token, so the agent itself could
//! have made up the answer. For a question this does no harm, because only the agent uses the
//! answer, but a permission must never be granted in this way. A program that Regatta started has
//! no person at its client.

use std::sync::Arc;

use regatta_api::Problem;
use regatta_core::agent_protocol::{RequestAnswer, RequestContent};
use regatta_core::approval::AnswerScope;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::ApprovalId;
use regatta_engine::CommandFailure;
use serde_json::{Value, json};

use super::{INVALID_PARAMS, JsonRpcFault, tools};
use crate::ServerState;
use crate::tokens::Principal;
use crate::verbs::{self, RequestContext};

/// The tool with which an agent asks a question that the client can show. Requests for permission
/// are shown only in the inbox.
const ASK_TOOL: &str = "ask";
/// The key under which the server sends the question to the client, and under which the client
/// sends the person's answer back.
const INPUT_REQUEST: &str = "answer";

/// Handles a call of the tool `ask` if the client can show the question to its user. Returns `None`
/// if the call must be handled like any other tool call.
pub(super) async fn handle_ask_call(
    shared: &Arc<ServerState>,
    context: &RequestContext,
    params: &Value,
) -> Result<Option<Value>, JsonRpcFault> {
    let name = params["name"].as_str().unwrap_or_default();
    if name != ASK_TOOL
        || !has_interactive_user(shared, &context.principal)
        || !supports_forms(params)
    {
        return Ok(None);
    }
    let arguments = params
        .get("arguments")
        .filter(|arguments| arguments.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}));
    match params["requestState"].as_str() {
        // A call with an `id` waits for the answer to an earlier question, which the client has
        // already shown. Do not show it again.
        None if arguments.get("id").is_some_and(|id| !id.is_null()) => Ok(None),
        None => ask_question(shared, context, &arguments).await.map(Some),
        Some(id) => on_user_answer(shared, context, id, params, &arguments)
            .await
            .map(Some),
    }
}

fn has_interactive_user(shared: &ServerState, principal: &Principal) -> bool {
    let Principal::Attempt { id, .. } = principal else {
        return false;
    };
    shared
        .engine
        .board()
        .attempts
        .get(id)
        .is_some_and(|attempt| !attempt.supervised)
}

/// Returns whether the client has announced that it can show forms. An empty object counts as such
/// an announcement.
fn supports_forms(params: &Value) -> bool {
    let capability = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
    capability
        .as_object()
        .is_some_and(|object| object.is_empty() || object.contains_key("form"))
}

/// Puts the question into the inbox, and returns a request for input that makes the client show the
/// question to its user.
async fn ask_question(
    shared: &Arc<ServerState>,
    context: &RequestContext,
    arguments: &Value,
) -> Result<Value, JsonRpcFault> {
    let mut at_once = arguments.clone();
    at_once["wait_seconds"] = json!(0);
    let reply = tools::call(shared, context.clone(), ASK_TOOL, Some(&at_once)).await?;
    let open = &reply["structuredContent"];
    let (id, is_settled) = (
        open["id"].as_str(),
        open["answered"] == true || open["withdrawn"] == true,
    );
    let Some(id) = id.filter(|_| !is_settled && reply["isError"] != true) else {
        return Ok(reply);
    };
    let form = question_form(arguments);
    Ok(json!({
        "resultType": "input_required",
        "inputRequests": { INPUT_REQUEST: { "method": "elicitation/create", "params": form } },
        "requestState": id,
    }))
}

/// Returns the form in which the client shows an agent's question to its user.
fn question_form(arguments: &Value) -> Value {
    let choices: Vec<&str> = arguments["choices"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut field = json!({ "type": "string", "title": "Answer" });
    if !choices.is_empty() {
        field["enum"] = json!(choices);
    }
    let schema = json!({ "type": "object", "properties": { INPUT_REQUEST: field }, "required": [INPUT_REQUEST] });
    let message = arguments["question"].as_str().unwrap_or_default();
    json!({ "mode": "form", "message": message, "requestedSchema": schema })
}

/// Handles the answer of the client's user to a question. After that, the call continues like a
/// call that waits for the answer.
async fn on_user_answer(
    shared: &Arc<ServerState>,
    context: &RequestContext,
    id: &str,
    params: &Value,
    arguments: &Value,
) -> Result<Value, JsonRpcFault> {
    let response = &params["inputResponses"][INPUT_REQUEST];
    let answer = (response["action"] == "accept").then(|| &response["content"][INPUT_REQUEST]);
    let mut wait = arguments
        .get("wait_seconds")
        .cloned()
        .unwrap_or(Value::Null);
    if let Some(answer) = answer {
        answer_request(shared, context, id, answer).await?;
        wait = json!(0);
    }
    // If the client's user declined to answer, the question stays open in the inbox, and the call
    // waits for an answer from there.
    let mut next_arguments = json!({ "id": id });
    if !wait.is_null() {
        next_arguments["wait_seconds"] = wait;
    }
    tools::call(shared, context.clone(), ASK_TOOL, Some(&next_arguments)).await
}

async fn answer_request(
    shared: &Arc<ServerState>,
    context: &RequestContext,
    id: &str,
    given_answer: &Value,
) -> Result<(), JsonRpcFault> {
    let Principal::Attempt {
        id: attempt, agent, ..
    } = &context.principal
    else {
        return Ok(());
    };
    let board = shared.engine.board();
    let approval = id
        .parse::<ApprovalId>()
        .ok()
        .and_then(|id| board.approvals.get(&id).cloned());
    let Some(approval) = approval.filter(|approval| approval.attempt == *attempt) else {
        return Err(JsonRpcFault::new(
            INVALID_PARAMS,
            "the requestState does not belong to this attempt",
        ));
    };
    let answer = match (&approval.request.content, given_answer) {
        (RequestContent::Question { .. }, Value::String(text)) => {
            RequestAnswer::Text { text: text.clone() }
        }
        (RequestContent::Permission { .. }, _) => {
            let hint = "the request waits in the inbox: regatta allow, regatta deny";
            return Err(JsonRpcFault::new(
                INVALID_PARAMS,
                format!(
                    "{id} cannot be answered with the access token of the attempt that made \
                     the request; {hint}"
                ),
            ));
        }
        _ => {
            return Err(JsonRpcFault::new(
                INVALID_PARAMS,
                "the answer has the wrong type",
            ));
        }
    };
    verbs::audit_other_write(
        shared,
        &context.principal,
        context.origin,
        "inbox.answer",
        id,
    );
    // Record the answer in the name of the person who runs the agent, because the agent cannot
    // answer its own question. This person need not be an operator of Regatta.
    let by = Actor::Person(format!("user-of-{agent}"));
    let command = Command::Decide {
        approval: approval.id,
        answer,
        scope: AnswerScope::Once,
        also: vec![],
    };
    match shared
        .engine
        .submit_async(Request {
            by,
            key: None,
            command,
        })
        .await
    {
        // Another answer came first, for example from a person at the inbox. The first answer
        // counts, so the call returns that answer.
        Ok(_)
        | Err(CommandFailure::Refused {
            refusal: regatta_core::refusal::Refusal::AlreadyAnswered { .. },
            ..
        }) => Ok(()),
        Err(CommandFailure::Refused { refusal, .. }) => Err(Problem::from(&refusal).into()),
        Err(other) => {
            Err(Problem::new(503, "stopping", other.to_string(), "repeat the tool call").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_sent_only_to_a_client_that_can_show_forms() {
        let params = |value: Value| json!({ "_meta": { "io.modelcontextprotocol/clientCapabilities": value } });
        assert!(supports_forms(&params(json!({ "elicitation": {} }))));
        assert!(supports_forms(&params(
            json!({ "elicitation": { "form": {}, "url": {} } })
        )));
        for cannot in [
            json!({}),
            json!({ "elicitation": { "url": {} } }),
            json!({ "elicitation": null }),
            json!(null),
        ] {
            assert!(!supports_forms(&params(cannot.clone())), "{cannot}");
        }
    }

    #[test]
    fn form_shows_the_question_and_its_choices() {
        let question =
            question_form(&json!({ "question": "Blue or red?", "choices": ["blue", "red"] }));
        assert_eq!(question["message"], "Blue or red?");
        assert_eq!(
            question["requestedSchema"]["properties"]["answer"]["enum"],
            json!(["blue", "red"])
        );
        let open = question_form(&json!({ "question": "Which port?" }));
        assert_eq!(
            open["requestedSchema"]["properties"]["answer"],
            json!({ "type": "string", "title": "Answer" })
        );
    }
}
