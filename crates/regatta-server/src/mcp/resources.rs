//! MCP resources: documents that a client can read by address, such as tasks, missions, finished
//! work and guides. A caller may read the same things as with calls of the API.

use std::sync::Arc;

use regatta_api::guide;
use regatta_core::board::Board;
use serde_json::{Value, json};

use super::{JsonRpcFault, RESOURCE_NOT_FOUND, tools};
use crate::ServerState;
use crate::tokens::Principal;
use crate::verbs::RequestContext;

/// Returns the list of resources (documents that a client can read). The resources that a caller is
/// most likely to need come first.
pub(super) fn list(principal: &Principal, board: &Board) -> Vec<Value> {
    let resource = |uri: String, name: String, title: &str| json!({ "uri": uri, "name": name, "title": title, "mimeType": "application/json" });
    let Principal::Attempt { id, task, .. } = principal else {
        return guide_resources().collect();
    };
    let mission = board.attempts.get(id).and_then(|attempt| attempt.mission);
    let own_task = resource(
        format!("regatta://task/{task}"),
        task.to_string(),
        "Your task",
    );
    let mission = mission.map(|id| {
        resource(
            format!("regatta://mission/{id}"),
            id.to_string(),
            "Your mission",
        )
    });
    std::iter::once(own_task)
        .chain(mission)
        .chain(guide_resources())
        .collect()
}

/// Returns Regatta's guides (short manuals) as resources.
fn guide_resources() -> impl Iterator<Item = Value> {
    let resource = |guide: &guide::Guide| {
        let uri = format!("regatta://guide/{}", guide.name);
        json!({ "uri": uri, "name": guide.name, "title": guide.title, "mimeType": "text/markdown" })
    };
    guide::GUIDES.iter().map(resource)
}

pub(super) fn resource_templates() -> Vec<Value> {
    let template = |what: &str, title: &str| {
        json!({
            "uriTemplate": format!("regatta://{what}/{{id}}"),
            "name": what,
            "title": title,
            "mimeType": "application/json",
        })
    };
    vec![
        template("task", "A task, with its attempts"),
        template("mission", "A mission, with its tasks"),
        template("diff", "The change of a task's finished work"),
    ]
}

pub(super) async fn read(
    shared: &Arc<ServerState>,
    context: RequestContext,
    uri: &str,
) -> Result<Value, JsonRpcFault> {
    let parts = uri
        .strip_prefix("regatta://")
        .and_then(|uri| uri.split_once('/'));
    if let Some(guide) = parts
        .filter(|(kind, _)| *kind == "guide")
        .and_then(|(_, name)| guide::find_guide(name))
    {
        return Ok(
            json!({ "contents": [{ "uri": uri, "mimeType": "text/markdown", "text": guide.text }] }),
        );
    }
    let is_valid = |kind: &str, id: &str| match kind {
        "task" | "diff" => id.starts_with(['T', 't']),
        "mission" => id.starts_with(['M', 'm']),
        _ => false,
    };
    let Some((kind, id)) = parts.filter(|(kind, id)| is_valid(kind, id)) else {
        return Err(JsonRpcFault::new(
            RESOURCE_NOT_FOUND,
            "there is no such resource; see resources/templates/list",
        ));
    };
    let verb = if kind == "diff" { "diff" } else { "show" };
    let data = tools::call_verb(shared, context, verb, &json!({ "id": id })).await?;
    Ok(
        json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": data.to_string() }] }),
    )
}
