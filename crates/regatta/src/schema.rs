//! JSON Schema of what this program reads and prints: the API's, and plan and settings files.

use serde_json::{Value, json};

/// Every kind there is.
pub(crate) fn kinds() -> Vec<String> {
    regatta_api::schema::kinds().into_iter().chain(["plan".into(), "config".into()]).collect()
}

/// The schema called `kind`.
pub(crate) fn of(kind: &str) -> Option<Value> {
    match kind {
        "plan" => Some(plan()),
        "config" => Some(config()),
        other => regatta_api::schema::of(other).map(Into::into),
    }
}

fn one_or_many() -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
}

/// A plan file, in TOML or JSON.
fn plan() -> Value {
    let path_and_text = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "text": { "type": "string" } },
        "required": ["path", "text"]
    });
    let check = json!({
        "type": "object",
        "properties": { "file": { "type": "string" }, "pattern": { "type": "string" } },
        "required": ["file", "pattern"],
        "additionalProperties": false
    });
    let step = json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "say": { "type": "string" },
            "write": path_and_text,
            "append": path_and_text,
            "replace": {
                "type": "object",
                "properties": { "path": { "type": "string" }, "from": { "type": "string" }, "to": { "type": "string" } },
                "required": ["path", "from", "to"]
            },
            "remove": {},
            "run": { "type": "string" },
            "ask": {},
            "permission": {},
            "sleep": { "type": ["number", "string"] },
            "usage": { "type": "object" },
            "flood": { "type": "object" },
            "hang": { "type": "boolean" },
            "fail": { "type": "string" }
        },
        "additionalProperties": false
    });
    let task = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string" },
            "subject": { "type": "string", "maxLength": 300 },
            "description": { "type": "string" },
            "issue_type": { "enum": ["feature", "bug", "task", "docs", "chore", "ci"] },
            "files": { "type": "array", "items": { "type": "string" } },
            "validation": {
                "type": "object",
                "properties": {
                    "tests": one_or_many(),
                    "lint": one_or_many(),
                    "files_exist": one_or_many(),
                    "content_check": { "anyOf": [check, { "type": "array", "items": check }] }
                },
                "additionalProperties": false
            },
            "blocked_by": { "type": "array", "items": { "type": "string" } },
            "priority": { "type": "integer", "minimum": 0, "maximum": 9 },
            "expects": { "enum": ["changes", "report"] },
            "effort": { "type": "string" },
            "agent": { "type": "string" },
            "provider": { "type": "string" },
            "script": { "type": "array", "items": step },
            "ratchet": { "type": "array", "items": { "type": "string" }, "minItems": 1 }
        },
        "required": ["subject"],
        "additionalProperties": false
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plan",
        "type": "object",
        "properties": { "title": { "type": "string" }, "task": { "type": "array", "items": task, "minItems": 1 } },
        "required": ["task"],
        "additionalProperties": false
    })
}

/// `regatta.toml` and `config.toml`: what is said of a project is the board's own shape, the rest is ours.
fn config() -> Value {
    let table =
        |properties: Value| json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let strings = json!({ "type": "array", "items": { "type": "string" } });
    let mut schema = Value::from(regatta_api::schema::settings());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("config");
    schema["description"] = json!("regatta.toml in a repository, or config.toml of a user.");
    let ours = [
        ("project", json!({ "name": { "type": "string" }, "trunk": { "type": "string" } })),
        ("validation", json!({ "commands": strings, "timeout": { "type": "string" } })),
        ("daemon", json!({ "listen": { "type": "string" }, "max_attempts": { "type": "integer" } })),
    ];
    for (name, properties) in ours {
        schema["properties"][name] = table(properties);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program reads is what the schema describes: every table of a settings file, and no other.
    #[test]
    fn the_schema_of_settings_has_every_table_and_no_other() {
        let schema = config();
        let known: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let file = toml::Value::try_from(crate::settings::File::default()).unwrap();
        let read: Vec<&String> = file.as_table().unwrap().keys().collect();
        let mut all: Vec<&String> = read.iter().chain(&known).copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), known.len()), (read.len(), read.len()), "{read:?} and {known:?}");
        assert_eq!(schema["additionalProperties"], false);
    }
}
