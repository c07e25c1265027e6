//! Checks that `docs/openapi.json` describes what every operation accepts and answers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The places whose data can be any JSON, because another program defines the data.
const FREE_FORM: [&str; 14] = [
    "#AnyValue",
    "#InboxChoice.input",
    "#PageAction.form.*",
    "#PageAction.input.*",
    "#PlannedTaskFields.script",
    "#PlannedTaskFieldsInput.script",
    "#RunnerCallView.ask",
    "GET /api/v1/events: answer 200.data",
    "POST /api/v1/plan.ask: body.script",
    "POST /api/v1/runner.answer: body.gave",
    "POST /api/v1/runner.copy: body.records[]",
    "POST /api/v1/runner.said: body.words",
    "POST /api/v1/task.add: body.script",
    "POST /api/v1/task.set: body.script",
];

/// The keywords that say something about the described data.
const DESCRIBING: [&str; 8] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "oneOf",
    "properties",
];

/// Adds to `found` the places in a schema, and in the schemas inside of it, that describe nothing.
fn find_free_form(schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    // A list or an object is described only if its content is.
    let is_described = match schema["type"].as_str() {
        Some("array") => schema.get("items").is_some() || schema.get("prefixItems").is_some(),
        None | Some("object") => {
            DESCRIBING
                .iter()
                .any(|keyword| schema.get(keyword).is_some())
                || schema["type"].is_array()
        }
        Some(_) => true,
    };
    if !is_described {
        found.insert(place.to_owned());
        return;
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        find_free_form(field, &format!("{place}.{name}"), found);
    }
    if let Some(items) = schema.get("items") {
        find_free_form(items, &format!("{place}[]"), found);
    }
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|more| **more != json!(false))
    {
        find_free_form(values, &format!("{place}.*"), found);
    }
    for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        for (nth, part) in schema[keyword].as_array().into_iter().flatten().enumerate() {
            find_free_form(part, &format!("{place}/{nth}"), found);
        }
    }
}

/// Checks the schema of each content type of a body or an answer.
fn check_content(content: &Value, name: &str, found: &mut BTreeSet<String>) {
    let media = content["content"].as_object();
    if media.is_none_or(|media| media.is_empty()) {
        found.insert(format!("{name} without a schema"));
    }
    for media in media.into_iter().flatten().map(|(_, media)| media) {
        match media.get("schema") {
            Some(schema) => find_free_form(schema, name, found),
            None => _ = found.insert(format!("{name} without a schema")),
        }
    }
}

/// Returns what is missing in the operations of a document.
fn missing_schemas(document: &Value) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            match operation.get("requestBody") {
                Some(body) => check_content(body, &format!("{name}: body"), &mut missing),
                None if method == "get" => {}
                None => _ = missing.insert(format!("{name}: no body")),
            }
            let answers = operation["responses"].as_object();
            if answers.is_none_or(|answers| !answers.contains_key("200")) {
                missing.insert(format!("{name}: no answer 200"));
            }
            for (status, answer) in answers.into_iter().flatten() {
                check_content(answer, &format!("{name}: answer {status}"), &mut missing);
            }
        }
    }
    let shared = document["components"]["schemas"].as_object();
    for (name, schema) in shared.into_iter().flatten() {
        find_free_form(schema, &format!("#{name}"), &mut missing);
    }
    missing
}

#[test]
fn every_operation_has_a_schema_of_its_body_and_its_answers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(document["paths"].as_object().unwrap().len() > 100);
    let free_form: BTreeSet<String> = FREE_FORM.iter().map(ToString::to_string).collect();
    assert_eq!(missing_schemas(&document), free_form);
}

/// Operations without a schema are found, also inside of the envelope of an answer.
#[test]
fn a_missing_schema_is_found() {
    let body = |schema: Value| json!({ "content": { "application/json": { "schema": schema } } });
    let good = body(json!({ "type": "string" }));
    let bad = json!({ "content": { "text/event-stream": {} } });
    let answer = |data: Value| {
        let envelope = json!({ "type": "object", "properties": { "data": data } });
        json!({ "post": { "requestBody": good, "responses": { "200": body(envelope) } } })
    };
    let document = json!({
        "paths": {
            "/good": answer(json!({ "type": "array", "items": { "$ref": "#/Task" } })),
            "/null": answer(json!({ "type": ["string", "null"] })),
            "/stream": { "get": { "responses": { "200": bad } } },
            "/open": { "get": { "responses": { "200": body(json!({})) } } },
            "/none": { "get": { "responses": { "200": { "description": "Done" } } } },
            "/silent": { "get": { "responses": {} } },
            "/body": { "post": { "requestBody": bad, "responses": { "200": good } } },
            "/bodiless": { "post": { "responses": { "200": good } } },
            "/data": answer(json!({})),
            "/true": answer(json!(true)),
            "/object": answer(json!({ "type": "object" })),
            "/map": answer(json!({ "type": "object", "additionalProperties": true })),
            "/list": answer(json!({ "type": "array" })),
            "/entries": answer(json!({ "type": "array", "items": true })),
            "/either": answer(json!({ "anyOf": [{ "type": "string" }, {}] })),
        },
        "components": { "schemas": { "Task": { "type": "object", "properties": { "id": {} } } } },
    });
    let missing: Vec<String> = missing_schemas(&document).into_iter().collect();
    assert_eq!(
        missing,
        [
            "#Task.id",
            "GET /none: answer 200 without a schema",
            "GET /open: answer 200",
            "GET /silent: no answer 200",
            "GET /stream: answer 200 without a schema",
            "POST /bodiless: no body",
            "POST /body: body without a schema",
            "POST /data: answer 200.data",
            "POST /either: answer 200.data/1",
            "POST /entries: answer 200.data[]",
            "POST /list: answer 200.data",
            "POST /map: answer 200.data.*",
            "POST /object: answer 200.data",
            "POST /true: answer 200.data",
        ]
    );
}
