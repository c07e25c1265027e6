//! Checks that `docs/openapi.json` describes what every operation accepts and answers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::{Value, json};

/// Returns the schema of each content type of a body or an answer.
fn content_schemas(body: &Value) -> Vec<Option<&Value>> {
    let Some(content) = body["content"].as_object() else {
        return vec![None];
    };
    content
        .values()
        .map(|media| media.get("schema").filter(|schema| **schema != json!({})))
        .collect()
}

/// Returns what is missing in the operations of a document.
fn missing_schemas(document: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            let body = operation.get("requestBody");
            if body.is_some_and(|body| content_schemas(body).contains(&None)) {
                missing.push(format!("{name}: a body without a schema"));
            }
            let answers = operation["responses"].as_object();
            if answers.is_none_or(|answers| !answers.contains_key("200")) {
                missing.push(format!("{name}: no answer 200"));
            }
            for (status, answer) in answers.into_iter().flatten() {
                if content_schemas(answer).contains(&None) {
                    missing.push(format!("{name}: answer {status} without a schema"));
                }
            }
        }
    }
    missing
}

#[test]
fn every_operation_has_a_schema_of_its_body_and_its_answers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(document["paths"].as_object().unwrap().len() > 100);
    let missing = missing_schemas(&document);
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Operations without a schema are found.
#[test]
fn a_missing_schema_is_found() {
    let good = json!({ "content": { "application/json": { "schema": { "type": "string" } } } });
    let bad = json!({ "content": { "text/event-stream": {} } });
    let open = json!({ "content": { "application/json": { "schema": {} } } });
    let document = json!({ "paths": {
        "/good": { "post": { "requestBody": good, "responses": { "200": good } } },
        "/stream": { "get": { "responses": { "200": bad } } },
        "/open": { "get": { "responses": { "200": open } } },
        "/empty": { "get": { "responses": { "200": { "description": "Done" } } } },
        "/silent": { "get": { "responses": {} } },
        "/body": { "post": { "requestBody": bad, "responses": { "200": good } } },
    }});
    let mut missing = missing_schemas(&document);
    missing.sort();
    assert_eq!(
        missing,
        [
            "GET /empty: answer 200 without a schema",
            "GET /open: answer 200 without a schema",
            "GET /silent: no answer 200",
            "GET /stream: answer 200 without a schema",
            "POST /body: a body without a schema",
        ]
    );
}
