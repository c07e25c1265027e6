//! Generates TypeScript types from the checked-in JSON Schemas of the API.
//!
//! Each definition becomes an exported type with the same name. The input and the answer of a verb
//! have a title, which is the name of their type. Two maps lead from the name of a verb and of a
//! topic to these types.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, ensure};
use serde_json::{Map, Value};

/// The text with which a reference to a definition begins.
const DEFINITION_PREFIX: &str = "#/$defs/";
/// The start of the kinds of the live stream's topics, such as `live.head:data`.
const TOPIC_PREFIX: &str = "live.";
/// The end of the kinds of answers and topics.
const DATA_SUFFIX: &str = ":data";

const HEADER: &str = "\
// Generated from crates/regatta-api/src/schema/schemas.json by `cargo xtask codegen`. Do not edit.
//
// An optional field of an answer is left out when it has no value; it is never null.
";

/// Returns `web/src/api.ts` for the text of `schemas.json`.
pub(super) fn api_file(schemas: &str) -> anyhow::Result<String> {
    let schemas: Value = serde_json::from_str(schemas).context("schemas.json is no JSON")?;
    let field = |name: &str| {
        let fields = schemas[name].as_object();
        fields.with_context(|| format!("schemas.json has no {name}"))
    };
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for (name, schema) in field("definitions")? {
        types.insert(name.clone(), without_header(schema));
    }
    let mut names = BTreeMap::new();
    for (kind, schema) in field("kinds")? {
        names.insert(kind.as_str(), type_of_kind(kind, schema, &mut types));
    }
    let mut text = HEADER.to_owned();
    for (name, schema) in &types {
        text.push('\n');
        text.push_str(&declaration(name, schema));
    }
    text.push_str(&verb_map(&names)?);
    text.push_str(&topic_map(&names));
    Ok(text)
}

/// Returns the TypeScript type of a kind. If the kind's schema has fields of its own, the schema is
/// added to `types` under its title.
fn type_of_kind(kind: &str, schema: &Value, types: &mut BTreeMap<String, Value>) -> String {
    let title = schema["title"].as_str().filter(|_| is_declared(schema));
    let Some(title) = title else {
        return type_text(schema, 1);
    };
    let schema = without_header(schema);
    let suffix = if kind.ends_with(DATA_SUFFIX) {
        "Data"
    } else {
        "Input"
    };
    let name = [title.to_owned(), format!("{title}{suffix}")]
        .into_iter()
        .chain((2..).map(|nth| format!("{title}{suffix}{nth}")))
        .find(|name| types.get(name).is_none_or(|known| *known == schema))
        .expect("numbers never run out");
    types.insert(name.clone(), schema);
    name
}

/// Returns whether the type of a kind gets a name. Lists and simple values are written in place.
fn is_declared(schema: &Value) -> bool {
    ["properties", "oneOf", "enum"]
        .iter()
        .any(|field| schema.get(field).is_some())
        || schema["type"] == "object"
}

/// Returns a schema without the fields that only the root of a schema has.
fn without_header(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
        fields.remove("title");
    }
    schema
}

/// Returns the exported type of a schema, with the first sentence of its description.
fn declaration(name: &str, schema: &Value) -> String {
    let mut text = String::new();
    if let Some(sentence) = schema["description"].as_str().map(first_sentence) {
        let _ = writeln!(text, "/** {sentence} */");
    }
    let is_interface = schema.get("properties").is_some() && schema.get("oneOf").is_none();
    let body = type_text(schema, 0);
    if is_interface {
        let _ = writeln!(text, "export interface {name} {body}");
    } else {
        let _ = writeln!(text, "export type {name} = {body};");
    }
    text
}

/// Returns the first sentence of a description, on one line.
fn first_sentence(description: &str) -> String {
    let paragraph = description.split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.match_indices(". ").map(|(at, _)| at + 1).find(|end| {
        // "e.g. " and "i.e. " do not end a sentence.
        !line[..*end].ends_with("e.g.") && !line[..*end].ends_with("i.e.")
    });
    line[..end.unwrap_or(line.len())].replace("*/", "* /")
}

/// Returns the TypeScript type of a schema. `depth` is the indentation of the line in which the
/// type begins.
fn type_text(schema: &Value, depth: usize) -> String {
    let Some(fields) = schema.as_object() else {
        return if *schema == Value::Bool(false) {
            "never".into()
        } else {
            "unknown".into()
        };
    };
    if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
        let name = name.strip_prefix(DEFINITION_PREFIX).unwrap_or(name);
        let own = object_text(fields, depth).filter(|_| fields.contains_key("properties"));
        return own.map_or_else(|| name.to_owned(), |own| format!("{name} & {own}"));
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(Value::Array(choices)) = fields.get(choice) {
            let choices = union_text(choices.iter().map(|choice| type_text(choice, depth)));
            let own = object_text(fields, depth).filter(|_| fields.contains_key("properties"));
            return own.map_or_else(|| choices.clone(), |own| format!("{own} & ({choices})"));
        }
    }
    if let Some(value) = fields.get("const") {
        return literal(value);
    }
    if let Some(Value::Array(values)) = fields.get("enum") {
        return union_text(values.iter().map(literal));
    }
    match fields.get("type") {
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            union_text(kinds.map(|kind| simple_text(kind, fields, depth)))
        }
        Some(Value::String(kind)) => simple_text(kind, fields, depth),
        _ => object_text(fields, depth).unwrap_or_else(|| "unknown".into()),
    }
}

fn simple_text(kind: &str, fields: &Map<String, Value>, depth: usize) -> String {
    match kind {
        "string" => "string".into(),
        "integer" | "number" => "number".into(),
        "boolean" => "boolean".into(),
        "null" => "null".into(),
        "array" => array_text(fields, depth),
        "object" => object_text(fields, depth).unwrap_or_else(|| "Record<string, unknown>".into()),
        _ => "unknown".into(),
    }
}

fn array_text(fields: &Map<String, Value>, depth: usize) -> String {
    if let Some(Value::Array(items)) = fields.get("prefixItems") {
        let items: Vec<String> = items.iter().map(|item| type_text(item, depth)).collect();
        return format!("[{}]", items.join(", "));
    }
    let item = fields
        .get("items")
        .map_or("unknown".into(), |item| type_text(item, depth));
    if item.contains(" | ") || item.contains(" & ") {
        format!("({item})[]")
    } else {
        format!("{item}[]")
    }
}

/// Returns the type of an object with its fields, or `None` if the schema names no fields.
fn object_text(fields: &Map<String, Value>, depth: usize) -> Option<String> {
    let others = match fields.get("additionalProperties") {
        None | Some(Value::Bool(false)) => None,
        Some(others) => Some(type_text(others, depth)),
    };
    let Some(Value::Object(properties)) = fields.get("properties") else {
        return others.map(|others| format!("Record<string, {others}>"));
    };
    let required = fields.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let indent = "  ".repeat(depth);
    let mut text = String::from("{\n");
    for (name, schema) in properties {
        let mark = if is_required(name) { "" } else { "?" };
        let field_type = type_text(schema, depth + 1);
        let _ = writeln!(
            text,
            "{indent}  {}{mark}: {field_type};",
            property_name(name)
        );
    }
    if others.is_some() {
        let _ = writeln!(text, "{indent}  [other: string]: unknown;");
    }
    text.push_str(&indent);
    text.push('}');
    Some(text)
}

/// Joins the types of a union, each once.
fn union_text(choices: impl Iterator<Item = String>) -> String {
    let mut unique: Vec<String> = Vec::new();
    for choice in choices {
        if !unique.contains(&choice) {
            unique.push(choice);
        }
    }
    unique.join(" | ")
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        other => other.to_string(),
    }
}

fn property_name(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || next == '_');
    if is_plain {
        name.to_owned()
    } else {
        literal(&Value::String(name.to_owned()))
    }
}

/// Returns the map from the name of each verb to the types of its input and its answer.
fn verb_map(names: &BTreeMap<&str, String>) -> anyhow::Result<String> {
    let mut text = String::from(
        "\n/** The input of each verb, and the data of its answer. */\nexport interface Verbs {\n",
    );
    let mut count = 0;
    for (verb, input) in names
        .iter()
        .filter(|(kind, _)| !kind.ends_with(DATA_SUFFIX))
    {
        // The settings of a project are no verb, so they have no answer.
        if let Some(answer) = names.get(format!("{verb}{DATA_SUFFIX}").as_str()) {
            count += 1;
            let _ = writeln!(text, "  '{verb}': {{ input: {input}; answer: {answer} }};");
        }
    }
    ensure!(count > 0, "schemas.json has no verb");
    text.push_str("}\n");
    Ok(text)
}

/// Returns the map from the name of each topic to the type of its entities.
fn topic_map(names: &BTreeMap<&str, String>) -> String {
    let mut text = String::from(
        "\n/** The entities of each topic of the live stream. */\nexport interface Topics {\n",
    );
    for (kind, entity) in names {
        let topic = kind
            .strip_prefix(TOPIC_PREFIX)
            .and_then(|kind| kind.strip_suffix(DATA_SUFFIX));
        if let Some(topic) = topic {
            let _ = writeln!(text, "  {topic}: {entity};");
        }
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_a_type() {
        let cases = [
            (json!(true), "unknown"),
            (json!({ "type": ["string", "null"] }), "string | null"),
            (
                json!({ "type": "array", "items": { "type": ["string", "null"] } }),
                "(string | null)[]",
            ),
            (
                json!({ "enum": ["a", "it's"], "type": "string" }),
                "'a' | 'it\\'s'",
            ),
            (
                json!({ "prefixItems": [{ "$ref": "#/$defs/A" }, { "type": "integer" }], "type": "array" }),
                "[A, number]",
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
                "Record<string, boolean>",
            ),
            (
                json!({ "type": "object", "properties": { "a-b": {}, "c": true }, "required": ["c"] }),
                "{\n  'a-b'?: unknown;\n  c: unknown;\n}",
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(type_text(&schema, 0), expected, "{schema}");
        }
    }

    #[test]
    fn only_the_first_sentence_is_documentation() {
        assert_eq!(
            first_sentence("One\nline, e.g. this. Two."),
            "One line, e.g. this."
        );
        assert_eq!(first_sentence("No end"), "No end");
    }

    /// An answer with the name of a definition that differs gets a name of its own.
    #[test]
    fn equal_kinds_share_a_type_and_different_kinds_do_not() {
        let file = json!({
            "definitions": { "A": { "type": "object", "properties": { "x": true } } },
            "kinds": {
                "a.list:data": { "type": "array", "title": "Array_of_A", "items": { "$ref": "#/$defs/A" } },
                "a.list": { "type": "object", "title": "A", "properties": { "y": true } },
                "a.show": { "type": "object", "title": "EmptyInput" },
                "a.show:data": { "type": "object", "title": "A", "properties": { "x": true } },
                "live.all:data": { "type": "object", "title": "A", "properties": { "x": true } },
            }
        });
        let text = api_file(&file.to_string()).unwrap();
        assert!(
            text.contains("'a.list': { input: AInput; answer: A[] };"),
            "{text}"
        );
        assert!(
            text.contains("'a.show': { input: EmptyInput; answer: A };"),
            "{text}"
        );
        assert!(text.contains("  all: A;\n"), "{text}");
        assert_eq!(text.matches("export interface A ").count(), 1, "{text}");
    }
}
