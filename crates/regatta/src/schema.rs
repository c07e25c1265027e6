//! Returns the JSON Schemas of API calls and their answers, of plan files and of settings files.

use regatta_agents::script::STEP_EXAMPLES;
use regatta_core::agent_protocol::FailureClass;
use serde_json::{Value, json};

use crate::plan::fields::{EFFORTS, ISSUE_TYPES};

/// Returns the names of all schemas.
pub(crate) fn schema_names() -> Vec<String> {
    regatta_api::schema::all_kinds()
        .into_iter()
        .chain(["plan".into(), "config".into()])
        .collect()
}

/// Returns the schema with this name, such as `task.add` or `plan`, if there is one.
pub(crate) fn schema_by_name(kind: &str) -> Option<Value> {
    match kind {
        "plan" => Some(plan_schema()),
        "config" => Some(config_schema()),
        other => regatta_api::schema::schema_of(other),
    }
}

fn string_or_list() -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
}

/// Returns the schemas of the steps that a scripted agent can follow, by the step's name.
fn step_schemas() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "number" }));
    let (integer, boolean) = (
        json!({ "type": "integer", "minimum": 0 }),
        json!({ "type": "boolean" }),
    );
    let table = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let or_text = |long: Value| json!({ "anyOf": [text, long] });
    let texts = json!({ "type": "array", "items": text });
    let pause = json!({ "type": ["number", "string"], "description": "Seconds, or 500ms, 2s, 1m" });
    let path_and_text = table(json!({ "path": text, "text": text }), &["path", "text"]);
    let kinds = json!({ "enum": [
        "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
    ] });
    let classes: Vec<Value> = FailureClass::ALL.iter().map(|class| json!(class)).collect();
    let mut steps = json!({
        "say": text,
        "think": text,
        "plan": texts,
        "tool": table(json!({ "title": text, "kind": kinds }), &["title"]),
        "call": table(json!({ "tool": text, "input": {}, "fails": { "type": "boolean" } }), &["tool"]),
        "write": path_and_text,
        "append": path_and_text,
        "replace": table(json!({ "path": text, "from": text, "to": text }), &["path", "from", "to"]),
        "remove": or_text(table(json!({ "path": text }), &["path"])),
        "run": text,
        "ask": table(json!({ "question": text, "choices": texts, "default": text }), &["question"]),
        "permission": or_text(table(
            json!({ "what": text, "default": { "enum": ["allow", "deny"] }, "kind": kinds, "path": text }),
            &["what"],
        )),
        "sleep": pause,
        "usage": table(
            json!({
                "input": integer, "output": integer, "cached": integer, "cost": number, "used": integer, "size": integer,
            }),
            &[],
        ),
        "flood": table(json!({ "bytes": integer }), &["bytes"]),
        "hang": boolean,
        "end_turn": boolean,
        "rate_limit": table(json!({ "reset_in": pause }), &[]),
        "fail": or_text(table(
            json!({ "class": { "enum": classes }, "reason": text, "reset_in": pause }),
            &["class", "reason"],
        )),
        "crash": boolean,
    });
    for (name, example) in STEP_EXAMPLES {
        steps[name]["examples"] = json!([format!("{{ {example} }}")]);
    }
    steps
}

/// Returns the schema of a plan file, which is the same for TOML and JSON.
fn plan_schema() -> Value {
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
        "properties": step_schemas(),
        "additionalProperties": false
    });
    let task = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string" },
            "subject": { "type": "string", "maxLength": 300 },
            "description": { "type": "string" },
            "issue_type": { "enum": ISSUE_TYPES.map(|(name, _)| name) },
            "files": string_or_list(),
            "validation": {
                "type": "object",
                "properties": {
                    "tests": string_or_list(),
                    "lint": string_or_list(),
                    "files_exist": string_or_list(),
                    "content_check": { "anyOf": [check, { "type": "array", "items": check }] }
                },
                "additionalProperties": false
            },
            "blocked_by": string_or_list(),
            "priority": { "type": "integer", "minimum": 0, "maximum": 9 },
            "expects": { "enum": ["changes", "report"] },
            "effort": { "enum": EFFORTS },
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
        "properties": { "title": { "type": "string" }, "commits": { "enum": ["task", "wave"] }, "task": { "type": "array", "items": task, "minItems": 1 } },
        "required": ["task"],
        "additionalProperties": false
    })
}

/// Returns the schema of a table that has only these fields.
fn table(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Returns a field's schema with an example, which `docs/settings.md` shows.
fn with_example(schema: &Value, example: impl Into<Value>) -> Value {
    let mut schema = schema.clone();
    schema["examples"] = json!([example.into()]);
    schema
}

/// Returns the schema of the settings files `regatta.toml` and `config.toml`. The schemas of
/// project settings come from the API's schema. The settings that only this program reads are
/// added.
fn config_schema() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let texts = json!({ "type": "array", "items": text });
    let flag = json!({ "type": "boolean" });
    let mut schema = regatta_api::schema::settings_schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("config");
    schema["description"] = json!("regatta.toml in a repository, or config.toml of a user.");
    let own_tables = [
        (
            "project",
            json!({ "name": with_example(&text, "shop"), "trunk": with_example(&text, "main") }),
        ),
        (
            "validation",
            json!({
                "commands": with_example(&texts, json!(["cargo test"])),
                "timeout": with_example(&text, "20m"),
            }),
        ),
        (
            "daemon",
            json!({
                "listen": with_example(&text, "0.0.0.0:7777"),
                "tls_cert": with_example(&text, "/etc/regatta/cert.pem"),
                "tls_key": with_example(&text, "/etc/regatta/key.pem"),
                "hosts": with_example(&texts, json!(["regatta.example.com"])),
                "insecure_listen": with_example(&flag, true),
                "max_attempts": with_example(&number, 4),
            }),
        ),
    ];
    for (name, properties) in own_tables {
        schema["properties"][name] = table(properties);
    }
    let dollars =
        json!({ "type": "number", "minimum": 0, "description": "US dollars for a million tokens" });
    let model = json!({ "type": "string", "description": "A model's name; * stands for anything" });
    let mut price = table(json!({
        "model": with_example(&model, "my-model-*"),
        "input": with_example(&dollars, 3.0),
        "output": with_example(&dollars, 15.0),
        "cached_input": with_example(&dollars, 0.5),
        "cache_write": with_example(&dollars, 3.75),
    }));
    price["required"] = json!(["model", "input", "output"]);
    schema["properties"]["price"] = json!({ "type": "array", "items": price });
    let agent = table(json!({
        "command": with_example(&text, "goose acp"),
        "preset": with_example(&text, "claude"),
        "default": with_example(&flag, true),
    }));
    schema["properties"]["agents"] = json!({ "type": "object", "additionalProperties": agent });
    schema["properties"]["bridges"] = bridges_schema(&text, &texts);
    schema
}

/// Returns the schema of the section `[bridges]`, which only the user's own `config.toml` may have.
fn bridges_schema(text: &Value, texts: &Value) -> Value {
    let follow_ups = json!({ "enum": ["mention", "last", "last_active", "all", "never"] });
    let deliver = json!({ "enum": ["review", "land", "pull"] });
    let context = json!({ "enum": ["none", "thread"] });
    let refusals = json!({ "enum": ["silent", "reply"] });
    let services =
        json!({ "type": "array", "items": { "enum": ["slack", "github", "linear", "telegram"] } });
    let hours = json!({ "type": "integer", "minimum": 1 });
    let addresses = json!({ "type": "object", "additionalProperties": text });
    let map = table(json!({
        "slack": with_example(text, "C0123"),
        "github": with_example(text, "ann/shop"),
        "linear": with_example(text, "ENG"),
        "telegram": with_example(text, "-1001234"),
        "project": with_example(text, "shop"),
        "directory": with_example(text, "web"),
        "prompt": with_example(text, "Answer in German."),
        "deliver": with_example(&deliver, "land"),
        "follow_ups": with_example(&follow_ups, "all"),
        "context": with_example(&context, "thread"),
    }));
    let webhook = table(json!({
        "url": with_example(text, "https://example.com/events"),
        "secret": with_example(text, "EVENTS_SECRET"),
        "events": with_example(texts, json!(["task."])),
    }));
    table(json!({
        "services": with_example(&services, json!(["slack"])),
        "allow": with_example(texts, json!(["slack:U123", "slack:team"])),
        "bots": with_example(texts, json!(["renovate"])),
        "follow_ups": with_example(&follow_ups, "last"),
        "refusals": with_example(&refusals, "reply"),
        "context": with_example(&context, "thread"),
        "deliver": with_example(&deliver, "pull"),
        "idle_hours": with_example(&hours, 8),
        "project": with_example(text, "shop"),
        "dashboard": with_example(text, "https://regatta.example.com"),
        "map": { "type": "array", "items": map },
        "url": with_example(&addresses, json!({ "slack": "https://slack-gov.com/api" })),
        "clock": with_example(&json!({ "type": "number" }), 10.0),
        "webhook": { "type": "array", "items": webhook },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema has exactly the tables that the program reads from a settings file.
    #[test]
    fn the_schema_of_settings_has_every_table_and_no_other() {
        let schema = config_schema();
        let known: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let file = toml::Value::try_from(crate::settings::SettingsFile::default()).unwrap();
        let read: Vec<&String> = file.as_table().unwrap().keys().collect();
        let mut all: Vec<&String> = read.iter().chain(&known).copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(
            (all.len(), known.len()),
            (read.len(), read.len()),
            "{read:?} and {known:?}"
        );
        assert_eq!(schema["additionalProperties"], false);
    }

    /// Returns the fields that a settings table may have. Serde lists them in the error about an
    /// unknown field.
    fn fields_read<T: serde::de::DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("no_such_field = 1")
            .map(drop)
            .unwrap_err();
        let (_, listed) = error.message().split_once(", expected ").unwrap();
        let mut fields: Vec<String> = listed
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        fields.sort_unstable();
        fields
    }

    /// The part of the schema that is written by hand has exactly the fields that the program reads,
    /// so that a new field must be documented.
    #[test]
    fn the_schema_of_settings_has_every_field_that_is_read() {
        use crate::settings::{DaemonSection, ProjectSection, SettingsFile, ValidationSection};
        use regatta_bridges::config::{AgentEntry, BridgesConfig, ChannelMapping, WebhookConfig};
        let schema = config_schema();
        let tables = [
            ("", fields_read::<SettingsFile>()),
            ("/properties/project", fields_read::<ProjectSection>()),
            ("/properties/validation", fields_read::<ValidationSection>()),
            ("/properties/daemon", fields_read::<DaemonSection>()),
            (
                "/properties/price/items",
                fields_read::<regatta_engine::prices::ModelPrice>(),
            ),
            (
                "/properties/agents/additionalProperties",
                fields_read::<AgentEntry>(),
            ),
            ("/properties/bridges", fields_read::<BridgesConfig>()),
            (
                "/properties/bridges/properties/map/items",
                fields_read::<ChannelMapping>(),
            ),
            (
                "/properties/bridges/properties/webhook/items",
                fields_read::<WebhookConfig>(),
            ),
        ];
        for (path, read) in tables {
            let table = schema.pointer(path).unwrap();
            assert_eq!(property_names(table), read, "{path}");
            assert_eq!(table["additionalProperties"], false, "{path}");
        }
    }

    use regatta_agents::script::STEP_NAMES;

    use crate::plan;

    /// Returns a value that the schema allows, with or without optional fields.
    fn sample(schema: &Value, all: bool) -> Value {
        if let Some(word) = schema["enum"].get(0).or(schema.get("const")) {
            return word.clone();
        }
        let kind = schema["type"].as_str().or(schema["type"][0].as_str());
        match kind {
            Some("string") => json!("a"),
            Some("integer" | "number") => json!(3),
            Some("boolean") => json!(true),
            Some("array") => json!([sample(&schema["items"], all)]),
            Some("object") => {
                let required: Vec<&str> = schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                let fields = schema["properties"].as_object().unwrap().iter();
                fields
                    .filter(|(name, _)| all || required.contains(&name.as_str()))
                    .map(|(name, field)| (name.clone(), sample(field, all)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            _ => json!(null),
        }
    }

    /// Every form of every step that the schema allows can be read, and no required field can be
    /// omitted.
    #[test]
    fn the_schema_describes_every_step_as_the_scripted_agent_reads_it() {
        let read = |name: &str, value: &Value| {
            regatta_agents::script::parse_script(&json!([{ name: value }]).to_string())
        };
        for (name, schema) in step_schemas().as_object().unwrap() {
            let forms = schema["anyOf"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![schema.clone()]);
            for form in &forms {
                assert!(
                    form.get("type").or(form.get("const")).is_some(),
                    "{name} has an empty schema"
                );
                for all in [true, false] {
                    let value = sample(form, all);
                    assert!(
                        read(name, &value).is_ok(),
                        "{name} = {value}: {:?}",
                        read(name, &value)
                    );
                }
                for field in form["required"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    let mut value = sample(form, true);
                    value.as_object_mut().unwrap().remove(field);
                    assert!(
                        read(name, &value).is_err(),
                        "{name} without {field} is read"
                    );
                }
                if form["type"] == "object" {
                    let mut value = sample(form, true);
                    value["unheard_of"] = json!(1);
                    assert!(read(name, &value).is_err(), "{name} takes any field");
                }
            }
        }
    }

    /// The examples of the steps can be read unchanged, and the documentation contains each of
    /// them.
    #[test]
    fn the_examples_of_the_steps_can_be_read() {
        let docs = include_str!("../../../docs/plans.md");
        let names: Vec<&str> = STEP_EXAMPLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, STEP_NAMES);
        for (name, example) in STEP_EXAMPLES {
            let plan =
                format!("[[task]]\nsubject = \"x\"\nfiles = \"f\"\nscript = [{{ {example} }}]");
            assert!(
                plan::parse_plan(&plan, false, "example").is_ok(),
                "{example}"
            );
            assert!(
                docs.contains(&format!("| `{name}` | `{{ {example} }}`")),
                "docs/plans.md lacks {name}: {example}"
            );
        }
    }

    fn property_names(schema: &Value) -> Vec<&str> {
        let mut names: Vec<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }

    fn sorted<const N: usize>(mut items: [&'static str; N]) -> Vec<&'static str> {
        items.sort_unstable();
        items.to_vec()
    }

    /// The schema names exactly the fields that the parser reads.
    #[test]
    fn the_schema_of_a_plan_has_the_fields_that_are_read() {
        let schema = plan_schema();
        let task = &schema["properties"]["task"]["items"];
        assert_eq!(property_names(&schema), sorted(plan::PLAN_FIELDS));
        assert_eq!(property_names(task), sorted(plan::TASK_FIELDS));
        assert_eq!(
            property_names(&task["properties"]["validation"]),
            sorted(plan::fields::VALIDATION_FIELDS)
        );
        assert_eq!(
            property_names(&task["properties"]["script"]["items"]),
            sorted(STEP_NAMES)
        );
        // Every field accepts a value of the schema's type and rejects a value of another type.
        for name in plan::TASK_FIELDS {
            let kind = &task["properties"][name];
            let good = match (kind["enum"][0].as_str(), kind["type"].as_str(), name) {
                (Some(word), _, _) => json!(word),
                (_, Some("integer"), _) => json!(3),
                (_, Some("object"), _) => json!({ "tests": "true" }),
                (_, _, "script") => json!([{ "say": "hi" }]),
                (_, Some("array"), _) => json!(["x"]),
                (_, _, "blocked_by") => json!("other"),
                _ => json!("x"),
            };
            let read = |value: Value| {
                let mut item = json!({ "subject": "x", "id": "a" });
                item[name] = value;
                plan::parse_plan(
                    &json!([item, { "subject": "y", "id": "other" }]).to_string(),
                    true,
                    "p",
                )
            };
            assert!(
                read(good.clone()).is_ok(),
                "{name} = {good}: {:?}",
                read(good.clone())
            );
            assert!(read(json!(true)).is_err(), "{name} is never true or false");
        }
    }

    /// The examples of the documentation are valid plans.
    #[test]
    fn the_examples_of_the_documentation_can_be_read() {
        let text = include_str!("../../../docs/plans.md");
        let mut examples = 0;
        for block in text.split("```").skip(1).step_by(2) {
            let Some((kind, body)) = block.split_once('\n') else {
                continue;
            };
            match kind {
                "toml" if body.contains("[[task]]") => {
                    drop(plan::parse_plan(body, false, "docs").unwrap())
                }
                "json" if body.contains("\"task\"") => {
                    drop(plan::parse_plan(body, true, "docs").unwrap())
                }
                "json" if body.contains("\"wave\"") => {
                    let file = tempfile::NamedTempFile::new().unwrap();
                    std::fs::write(file.path(), body).unwrap();
                    let flow = plan::quest_wave::RatchetTemplate {
                        command: vec!["ol".into()],
                        quest: None,
                    };
                    plan::quest_wave::read_wave_file(
                        file.path(),
                        std::path::Path::new("/nowhere"),
                        &flow,
                    )
                    .unwrap();
                }
                "jsonl" => {
                    let source = plan::diagnostic::SourceText::new("docs", body);
                    assert!(plan::beads::read_issues(&source).is_ok(), "{body}");
                }
                _ => continue,
            }
            examples += 1;
        }
        assert!(examples >= 4, "{examples} examples");
    }
}
