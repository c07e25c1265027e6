//! Returns the JSON Schema of each input and each answer of the API. A kind names such a schema:
//! `task.add` is the input of the verb `task.add`, and `task.list:data` is the data of an answer.
//!
//! The file `schemas.json` holds all schemas. `UPDATE_GOLDEN=1 cargo test -p xtask --test schemas`
//! generates the file from the Rust types, and that test fails while the file and the types differ.
//! The program only reads the file, so that a build does not have to compile the derived schemas of
//! 500 types (ADR 21).

#[cfg(feature = "schema")]
mod derive;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

#[cfg(feature = "schema")]
pub use derive::schemas_file;
#[cfg(feature = "schema")]
pub(crate) use derive::sent_schema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

const SCHEMAS_JSON: &str = include_str!("schema/schemas.json");

/// The kind under which the schema of a project's settings is stored. These settings are only a
/// part of a settings file.
const SETTINGS_KIND: &str = "project.settings";

/// The text with which a schema's reference to a shared definition begins.
const DEFINITION_PREFIX: &str = "#/$defs/";

/// The content of `schemas.json`. Each schema is stored as text, and is parsed only when a caller
/// requests that schema.
#[derive(Deserialize)]
struct SchemaFile<'a> {
    #[serde(borrow)]
    definitions: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow)]
    kinds: BTreeMap<&'a str, &'a RawValue>,
}

fn schemas() -> &'static SchemaFile<'static> {
    static SCHEMAS: OnceLock<SchemaFile<'static>> = OnceLock::new();
    SCHEMAS.get_or_init(|| serde_json::from_str(SCHEMAS_JSON).expect("a test reads the file"))
}

fn parse(text: &RawValue) -> Value {
    serde_json::from_str(text.get()).expect("the text of a value is a value")
}

/// Returns the schema of a kind of input or answer, such as `task.add`, with the definitions to
/// which the schema refers. Returns `None` for an unknown kind.
pub fn schema_of(kind: &str) -> Option<Value> {
    let schemas = schemas();
    let mut schema = parse(schemas.kinds.get(kind)?);
    let (mut needed, mut found) = (referenced_definitions(&schema), Map::new());
    while let Some(name) = needed.pop_first() {
        let Some(definition) = schemas.definitions.get(name.as_str()) else {
            continue;
        };
        let definition = parse(definition);
        needed.extend(
            referenced_definitions(&definition)
                .into_iter()
                .filter(|next| *next != name && !found.contains_key(next)),
        );
        found.insert(name, definition);
    }
    if !found.is_empty() {
        schema["$defs"] = Value::Object(found);
    }
    Some(schema)
}

/// Returns the JSON Schema of a project's settings.
pub fn settings_schema() -> Value {
    schema_of(SETTINGS_KIND).expect("a test looks it up")
}

/// Returns the name of every kind of input and answer for which [`schema_of`] has a schema.
pub fn all_kinds() -> Vec<String> {
    schemas()
        .kinds
        .keys()
        .filter(|kind| **kind != SETTINGS_KIND)
        .map(|kind| (*kind).to_owned())
        .collect()
}

/// Returns the names of all definitions to which a schema refers.
fn referenced_definitions(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                let to = fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|to| to.strip_prefix(DEFINITION_PREFIX));
                found.extend(to.map(str::to_owned));
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    found
}

/// Returns a copy of a schema in which each reference to a definition is replaced by
/// `target(name)`, where `name` is the definition's name.
pub(crate) fn map_references(schema: Value, target: &mut dyn FnMut(&str) -> String) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut mapped = Map::new();
            for (name, value) in fields {
                let definition = value
                    .as_str()
                    .filter(|_| name == "$ref")
                    .and_then(|to| to.strip_prefix(DEFINITION_PREFIX));
                let value = match definition {
                    Some(definition) => Value::String(target(definition)),
                    None => map_references(value, target),
                };
                mapped.insert(name, value);
            }
            Value::Object(mapped)
        }
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| map_references(item, target))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::VERBS;

    #[test]
    fn every_schema_has_the_definitions_that_it_refers_to() {
        for kind in all_kinds() {
            let schema = schema_of(&kind).unwrap();
            let definitions = schema["$defs"].as_object().cloned().unwrap_or_default();
            let names: BTreeSet<String> = definitions.keys().cloned().collect();
            assert_eq!(names, referenced_definitions(&schema), "{kind}");
        }
        for verb in VERBS {
            let answer = format!("{}:data", verb.name);
            assert!(schema_of(verb.name).is_some(), "{} has no input", verb.name);
            assert!(schema_of(&answer).is_some(), "{answer} has no schema");
        }
        assert!(settings_schema()["properties"]["landing"].is_object());
        assert_eq!(schema_of("no.such.kind"), None);
    }

    /// Returns the optional fields in a schema and its definitions that may be `null`.
    fn nullable_optional_fields(schema: &Value, found: &mut Vec<String>) {
        if let Some(properties) = schema["properties"].as_object() {
            let is_required = |name: &String| {
                let required = schema["required"].as_array();
                required.is_some_and(|names| names.iter().any(|required| required == name))
            };
            let null = serde_json::json!({ "type": "null" });
            let allows_null = |field: &Value| {
                let types = field["type"].as_array();
                let choices = field["anyOf"].as_array();
                types.is_some_and(|types| types.contains(&null["type"]))
                    || choices.is_some_and(|choices| choices.contains(&null))
            };
            let nullable = properties
                .iter()
                .filter(|(name, field)| !is_required(name) && allows_null(field));
            found.extend(nullable.map(|(name, _)| name.clone()));
        }
        match schema {
            Value::Object(fields) => fields
                .values()
                .for_each(|field| nullable_optional_fields(field, found)),
            Value::Array(items) => items
                .iter()
                .for_each(|item| nullable_optional_fields(item, found)),
            _ => {}
        }
    }

    /// The schema of an answer describes what the server sends, and the schema of an input what the
    /// server accepts.
    #[test]
    fn an_optional_field_of_an_answer_is_never_null() {
        for kind in all_kinds().iter().filter(|kind| kind.ends_with(":data")) {
            let mut found = Vec::new();
            nullable_optional_fields(&schema_of(kind).unwrap(), &mut found);
            assert!(found.is_empty(), "{kind}: {found:?}");
        }
        let mut found = Vec::new();
        nullable_optional_fields(&schema_of("task.add").unwrap(), &mut found);
        assert!(found.contains(&"provider".to_owned()), "{found:?}");
        let row = schema_of("live.tasks:data").unwrap();
        let required = row["required"].as_array().unwrap();
        assert!(required.contains(&"agent".into()), "sent as null");
        assert!(!required.contains(&"micro_usd".into()), "left out");
    }
}
