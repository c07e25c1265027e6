//! Builds the OpenAPI 3.1 document that describes the API for programs, and a web page that
//! describes it for people.

use serde_json::{Map, Value, json};

use crate::schema;
use crate::verb::{RequiredPermission, VERBS, Verb};

/// Returns the whole OpenAPI document.
pub fn document() -> Value {
    let mut shared = Map::new();
    let mut paths = Map::new();
    for verb in VERBS {
        paths.insert(
            format!("/api/v1/{}", verb.name),
            json!({ "post": operation(verb, &mut shared) }),
        );
    }
    paths.insert(
        "/api/v1/events".into(),
        json!({ "get": events_operation(&mut shared) }),
    );
    shared.insert("Problem".into(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Regatta",
            "version": "1",
            "summary": "Runs a team of coding agents on one git repository and lands their work",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": shared,
        },
    })
}

fn operation(verb: &Verb, shared: &mut Map<String, Value>) -> Value {
    let input = schema::schema_of(verb.name).expect("a test reads the schema of every input");
    let data = schema::schema_of(&format!("{}:data", verb.name))
        .expect("a test reads the schema of every answer");
    let mut answer = json!({
        "type": "object",
        "properties": {
            "revision": { "type": "integer", "minimum": 0, "description": "The revision (number of \
             the last event) at which the data was read" },
            "data": move_definitions(data, shared),
        },
        "required": ["revision", "data"],
    });
    let mut parameters = Vec::new();
    if verb.returns_list {
        answer["properties"]["next"] = json!({ "type": "string", "description": "Set if there are \
                more entries. Pass this value as after in the next request" });
        parameters.push(json!({
            "name": "limit", "in": "query", "description": "Maximum number of entries",
            "schema": { "type": "integer", "minimum": 1, "maximum": 10_000 },
        }));
        parameters.push(json!({
            "name": "after", "in": "query", "description": "The value of next in the previous \
             page. The answer continues after that page",
            "schema": { "type": "string" },
        }));
    }
    if verb.supports_if_match {
        parameters.push(json!({
            "name": "If-Match", "in": "header",
            "description": "The ETag of an answer. The call is refused with 412 if its target has \
             changed since that answer",
            "schema": { "type": "string", "pattern": "^(\\*|\"[0-9]{1,19}\")$" },
        }));
    }
    let mut operation = json!({
        "operationId": verb.name,
        "summary": verb.help,
        "tags": [verb.name.split('.').next()],
        "x-regatta-needs": permission_text(verb.permission),
        "requestBody": { "content": { "application/json": { "schema": move_definitions(input, shared) } } },
        "responses": {
            "200": {
                "description": "Done",
                "headers": { "ETag": { "description": "The revision of the answer, to be sent as \
                 If-Match", "schema": { "type": "string" } } },
                "content": { "application/json": { "schema": answer } },
            },
            "default": {
                "description": "Refused; nothing was changed",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    if !verb.other_scopes.is_empty() {
        operation["x-regatta-also"] = json!(verb.other_scopes);
    }
    if verb.permission != RequiredPermission::View {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header",
            "description": "A request that is repeated with the same key is carried out once and \
                gets the same answer",
            "schema": { "type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[!-~]+$" },
        }));
    }
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    operation
}

fn permission_text(needs: RequiredPermission) -> &'static str {
    match needs {
        RequiredPermission::View => "viewer",
        RequiredPermission::Operate => "operator",
        RequiredPermission::Admin => "admin",
    }
}

fn events_operation(shared: &mut Map<String, Value>) -> Value {
    let event = schema::schema_of("event:data").expect("a test reads the schema of events");
    let number = json!({ "type": "integer", "minimum": 0 });
    json!({
        "operationId": "events",
        "summary": "Streams the events after a revision, each as soon as it is stored",
        "x-regatta-needs": "viewer",
        "parameters": [
            { "name": "after", "in": "query", "schema": number, "description": "Send only events \
               after this revision" },
            { "name": "follow", "in": "query", "schema": { "type": "boolean", "default": true } },
            { "name": "kind", "in": "query", "schema": { "type": "string" }, "description": "Send \
               only events of these kinds, such as task.*,claim.granted" },
            { "name": "about", "in": "query", "schema": { "type": "string" }, "description": "Send \
               only events about the thing with this id, such as T7" },
            { "name": "by", "in": "query", "schema": { "type": "string" }, "description": "Send \
               only events that this person or agent caused" },
            { "name": "Last-Event-ID", "in": "header", "schema": number, "description": "Continue \
                after this revision" },
        ],
        "responses": {
            "200": {
                "description": "Server-sent events. The schema describes the data of one event",
                "content": { "text/event-stream": { "schema": move_definitions(event, shared) } },
            },
            "default": {
                "description": "Refused",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": { "type": "string", "format": "uri", "description": "The code as a URN" },
            "title": { "type": "string", "description": "The code in words" },
            "detail": { "type": "string", "description": "Same as message" },
            "status": { "type": "integer" },
            "code": { "type": "string", "description": "The stable code that programs test" },
            "message": { "type": "string", "description": "What happened and why" },
            "hint": { "type": "string", "description": "What to do next" },
            "retryable": { "type": "boolean", "description": "Set if the same request may succeed \
                later" },
            "ref": { "type": "string", "description": "The thing that the problem is about" },
        },
        "required": ["type", "title", "status", "detail", "code", "message"],
    })
}

/// Moves the definitions in a schema to `shared`, which holds the definitions of the whole
/// document. Returns the rest of the schema.
fn move_definitions(mut schema: Value, shared: &mut Map<String, Value>) -> Value {
    let mut reference = |name: &str| format!("#/components/schemas/{name}");
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
        if let Some(Value::Object(definitions)) = fields.remove("$defs") {
            for (name, definition) in definitions {
                shared
                    .entry(name)
                    .or_insert_with(|| schema::map_references(definition, &mut reference));
            }
        }
    }
    schema::map_references(schema, &mut reference)
}

/// Returns an HTML page that lists every verb (operation) of the API with its purpose and required
/// permission. The page has no script and loads no other files.
pub fn html_page() -> String {
    let row = |verb: &Verb| {
        let other_scopes: Vec<String> = verb.other_scopes.iter().map(ToString::to_string).collect();
        let other_scopes = if other_scopes.is_empty() {
            String::new()
        } else {
            format!(", {}", other_scopes.join(", "))
        };
        format!(
            "<tr><td><code>{}</code><td>{}<td>{}{other_scopes}\n",
            verb.name,
            verb.help,
            permission_text(verb.permission)
        )
    };
    let rows: String = VERBS.iter().map(row).collect();
    format!(
        "<!doctype html><meta charset=utf-8><title>Regatta</title><style>body{{font:16px/1.5 \
         sans-serif;max-width:60rem;\
         margin:2rem auto;padding:0 1rem}}td,th{{text-align:left;padding:.2rem .8rem .2rem \
         0;vertical-align:top}}</style>\
         <h1>Regatta's verbs</h1><p>Each is called with <code>POST /api/v1/VERB</code>, a JSON \
         object and \
         <code>Authorization: Bearer TOKEN</code>. The complete description: <a \
         href=openapi.json>openapi.json</a>.\
         <table><tr><th>verb<th>what it does<th>who may call it\n{rows}</table>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference resolves, and every verb is in the document (S10). A change shows in the
    /// diff of
    /// `docs/openapi.json`.
    #[test]
    fn s10_the_openapi_document_is_complete_and_checked_in() {
        let document = document();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(object) => {
                    if let Some(to) = object.get("$ref").and_then(Value::as_str) {
                        let place = to.strip_prefix('#').unwrap();
                        assert!(document.pointer(place).is_some(), "{to} refers to nothing");
                    }
                    open.extend(object.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert_eq!(
            document["paths"].as_object().unwrap().len(),
            VERBS.len() + 1
        );
        assert!(VERBS.iter().all(|verb| html_page().contains(verb.name)));
        let mut text = serde_json::to_string_pretty(&document).unwrap();
        text.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let known = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            known == text,
            "the document changed: check the change, then run UPDATE_GOLDEN=1 cargo test -p \
            regatta-api"
        );
    }

    /// The scopes of rules and of budgets are different types with similar names.
    #[test]
    fn scopes_of_rules_and_budgets_have_different_schemas() {
        let document = document();
        let scope_schema = |verb: &str| {
            let schema = &document["paths"][format!("/api/v1/{verb}")]["post"]["requestBody"];
            schema["content"]["application/json"]["schema"]["properties"]["scope"].to_string()
        };
        assert!(scope_schema("policy.add").contains("#/components/schemas/RuleScope"));
        assert!(scope_schema("budget.set").contains("#/components/schemas/BudgetScope"));
    }
}
