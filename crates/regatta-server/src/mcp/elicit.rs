//! Elicitation: a question of an attempt goes to the person at its client, where there is one and the client can show it.
//!
//! The question is in the inbox as any other; the client is asked besides, and whoever answers first has answered. In the
//! current revision nothing is held open for that: the call is answered with what is wanted, and the client makes it
//! again with what its user said. Which question it was about comes back with it and is believed only where it is the
//! attempt's own.
//!
//! Only questions, and only of attempts that somebody else runs. What a client says of its user comes with the attempt's
//! own token, so it may be the agent's own word: that is good enough for a question, which is the agent's to make use of,
//! and never for a permission. Nobody permits himself what he was not permitted. At a program that Regatta started
//! nobody sits, so it is not asked at all.

use std::sync::Arc;

use regatta_api::Problem;
use regatta_core::approval::Reach;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::ApprovalId;
use regatta_core::session::{Answer, Want};
use regatta_engine::Failure;
use serde_json::{Value, json};

use super::{BAD_PARAMS, Fault, tools};
use crate::Shared;
use crate::calls::{self, Guest};
use crate::tokens::Visitor;

/// The tool that asks a person something. What asks for a permission goes to the inbox alone.
const ASKING: &str = "ask";
/// What the one request in an answer of ours is called.
const WANTED: &str = "answer";

/// Carries out a call that asks, if its client can be asked; `None` when it is to be carried out as any other.
pub(super) async fn call(shared: &Arc<Shared>, guest: &Guest, params: &Value) -> Result<Option<Value>, Fault> {
    let name = params["name"].as_str().unwrap_or_default();
    if name != ASKING || !somebody_sits_there(shared, &guest.visitor) || !shows_forms(params) {
        return Ok(None);
    }
    let arguments = params.get("arguments").filter(|it| it.is_object()).cloned().unwrap_or_else(|| json!({}));
    match params["requestState"].as_str() {
        // An earlier question that is waited for was shown when it was asked.
        None if arguments.get("id").is_some_and(|it| !it.is_null()) => Ok(None),
        None => ask(shared, guest, &arguments).await.map(Some),
        Some(id) => hear(shared, guest, id, params, &arguments).await.map(Some),
    }
}

fn somebody_sits_there(shared: &Shared, visitor: &Visitor) -> bool {
    let Visitor::Attempt { id, .. } = visitor else { return false };
    shared.engine.board().attempts.get(id).is_some_and(|it| !it.supervised)
}

/// Whether the client said that it shows its user forms: an empty object says so, too.
fn shows_forms(params: &Value) -> bool {
    let said = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
    said.as_object().is_some_and(|it| it.is_empty() || it.contains_key("form"))
}

/// Puts the question, and answers with what is wanted of the client's user.
async fn ask(shared: &Arc<Shared>, guest: &Guest, arguments: &Value) -> Result<Value, Fault> {
    let mut at_once = arguments.clone();
    at_once["wait_seconds"] = json!(0);
    let asked = tools::call(shared, guest.clone(), ASKING, Some(&at_once)).await?;
    let open = &asked["structuredContent"];
    let (id, settled) = (open["id"].as_str(), open["answered"] == true || open["withdrawn"] == true);
    let Some(id) = id.filter(|_| !settled && asked["isError"] != true) else { return Ok(asked) };
    let wanted = form(arguments);
    Ok(json!({
        "resultType": "input_required",
        "inputRequests": { WANTED: { "method": "elicitation/create", "params": wanted } },
        "requestState": id,
    }))
}

/// What the client shows its user.
fn form(arguments: &Value) -> Value {
    let choices: Vec<&str> = arguments["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = match choices.is_empty() {
        true => json!({ "type": "string", "title": "Answer" }),
        false => json!({ "type": "string", "title": "Answer", "enum": choices }),
    };
    let schema = json!({ "type": "object", "properties": { WANTED: field }, "required": [WANTED] });
    let message = arguments["question"].as_str().unwrap_or_default();
    json!({ "mode": "form", "message": message, "requestedSchema": schema })
}

/// Takes what the client's user said; then the call goes on as one that waits for an answer.
async fn hear(
    shared: &Arc<Shared>,
    guest: &Guest,
    id: &str,
    params: &Value,
    arguments: &Value,
) -> Result<Value, Fault> {
    let heard = &params["inputResponses"][WANTED];
    let said = (heard["action"] == "accept").then(|| &heard["content"][WANTED]);
    let mut wait = arguments.get("wait_seconds").cloned().unwrap_or(Value::Null);
    if let Some(said) = said {
        decide(shared, guest, id, said).await?;
        wait = json!(0);
    }
    // Who declined has answered nothing: it stays in the inbox.
    let mut again = json!({ "id": id });
    if !wait.is_null() {
        again["wait_seconds"] = wait;
    }
    tools::call(shared, guest.clone(), ASKING, Some(&again)).await
}

async fn decide(shared: &Arc<Shared>, guest: &Guest, id: &str, said: &Value) -> Result<(), Fault> {
    let Visitor::Attempt { id: attempt, agent, .. } = &guest.visitor else { return Ok(()) };
    let board = shared.engine.board();
    let found = id.parse::<ApprovalId>().ok().and_then(|it| board.approvals.get(&it).cloned());
    let Some(found) = found.filter(|it| it.attempt == *attempt) else {
        return Err(Fault::new(BAD_PARAMS, "the requestState is none of yours"));
    };
    let answer = match (&found.ask.want, said) {
        (Want::Question { .. }, Value::String(text)) => Answer::Text { text: text.clone() },
        (Want::Permission { .. }, _) => {
            let hint = "it waits in the inbox: regatta allow, regatta deny";
            return Err(Fault::new(
                BAD_PARAMS,
                format!("{id} is not answered with the token that asks for it; {hint}"),
            ));
        }
        _ => return Err(Fault::new(BAD_PARAMS, "the answer is not of the kind that was asked for")),
    };
    calls::wrote_beside(shared, &guest.visitor, guest.origin, ("inbox.answer", id));
    // Not the agent, which cannot answer itself, and no operator either: the person who runs it.
    let by = Actor::Person(format!("user-of-{agent}"));
    let command = Command::Decide { approval: found.id, answer, reach: Reach::Once, also: vec![] };
    match shared.engine.ask(Request { by, key: None, command }).await {
        // Somebody was quicker: that answer counts, and is what the call gives.
        Ok(_) | Err(Failure::Refused { refusal: regatta_core::refusal::Refusal::AlreadyAnswered { .. }, .. }) => Ok(()),
        Err(Failure::Refused { refusal, .. }) => Err(Problem::from(&refusal).into()),
        Err(other) => Err(Problem::new(503, "stopping", other.to_string(), "make the call again").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_only_for_what_it_can_show() {
        let params = |it: Value| json!({ "_meta": { "io.modelcontextprotocol/clientCapabilities": it } });
        assert!(shows_forms(&params(json!({ "elicitation": {} }))));
        assert!(shows_forms(&params(json!({ "elicitation": { "form": {}, "url": {} } }))));
        for cannot in [json!({}), json!({ "elicitation": { "url": {} } }), json!({ "elicitation": null }), json!(null)]
        {
            assert!(!shows_forms(&params(cannot.clone())), "{cannot}");
        }
    }

    #[test]
    fn what_is_shown_is_what_is_asked() {
        let question = form(&json!({ "question": "Blue or red?", "choices": ["blue", "red"] }));
        assert_eq!(question["message"], "Blue or red?");
        assert_eq!(question["requestedSchema"]["properties"]["answer"]["enum"], json!(["blue", "red"]));
        let open = form(&json!({ "question": "Which port?" }));
        assert_eq!(open["requestedSchema"]["properties"]["answer"], json!({ "type": "string", "title": "Answer" }));
    }
}
