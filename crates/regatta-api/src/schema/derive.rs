//! Generates the schemas from the Rust types, for the test that writes `schemas.json`.
//!
//! The shipped program does not contain this module: the generated code is large, and the schemas
//! change only when the types do.

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Map, Value, json};

use crate::verb::{AnswerData, Call, VERBS};
use crate::{agent_list, event_list, live_view, task_list, view};

/// Returns the schemas of data that no verb returns: the entries of streams, the topics of the
/// page, and its lists of changed files and transcripts. Each schema comes with the name of its kind.
fn stream_schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("event", sent_schema::<view::EventView>()),
        ("live.head", sent_schema::<live_view::FleetSummaryView>()),
        ("live.inbox", sent_schema::<live_view::InboxItemView>()),
        ("live.lanes", sent_schema::<live_view::AgentLaneView>()),
        ("live.bars", sent_schema::<live_view::LaneBarsView>()),
        ("live.shares", sent_schema::<live_view::StateSharesView>()),
        ("live.queue", sent_schema::<live_view::QueuePage>()),
        ("live.spend", sent_schema::<live_view::TodaySpendView>()),
        ("live.cost", sent_schema::<live_view::CostPage>()),
        ("live.tasks", sent_schema::<live_view::TaskRowView>()),
        ("live.mission", sent_schema::<live_view::MissionPage>()),
        ("live.missions", sent_schema::<live_view::MissionRowView>()),
        ("live.graph", sent_schema::<view::GraphView>()),
        ("live.task", sent_schema::<live_view::TaskPage>()),
        ("live.files", sent_schema::<live_view::ProjectFilesView>()),
        ("live.runners", sent_schema::<view::RunnerView>()),
        ("live.teams", sent_schema::<live_view::TeamPage>()),
        (
            "live.conversations",
            sent_schema::<live_view::ConversationPage>(),
        ),
        ("page.tasks", sent_schema::<task_list::TaskWindow>()),
        ("page.agents", sent_schema::<agent_list::AgentWindow>()),
        ("page.events", sent_schema::<event_list::EventWindow>()),
        ("page.diff", sent_schema::<live_view::DiffFilesView>()),
        ("page.log", sent_schema::<live_view::TranscriptWindowView>()),
        (
            "page.log-lines",
            sent_schema::<live_view::TranscriptLinesView>(),
        ),
        (
            "page.log-search",
            sent_schema::<live_view::TranscriptSearchView>(),
        ),
        ("page.diff.file", sent_schema::<live_view::DiffPartsView>()),
        (
            "page.task.checks",
            sent_schema::<Vec<live_view::AttemptChecksView>>(),
        ),
        (
            "page.attempt.result",
            sent_schema::<live_view::AttemptResultView>(),
        ),
    ]
}

/// Returns the schema of a type as the server sends it. In contrast to `schema_for!`, which
/// describes what the server accepts, a field with a default value is required, because the server
/// sends the field. A field that the server can leave out is never `null`.
pub(crate) fn sent_schema<T: JsonSchema>() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    remove_null_from_optional_fields(&mut schema);
    schema.try_into().expect("an object stays a schema")
}

/// Removes `null` from each field that is not required. The server leaves such a field out instead
/// of sending `null`, because every such field has `skip_serializing_if = "Option::is_none"`.
fn remove_null_from_optional_fields(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let required: BTreeSet<String> = fields
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect();
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                for (name, property) in properties {
                    if !required.contains(name) {
                        remove_null(property);
                    }
                }
            }
            fields
                .values_mut()
                .for_each(remove_null_from_optional_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_null_from_optional_fields),
        _ => {}
    }
}

/// Removes `null` from the values that a schema allows: `["string", "null"]` becomes `"string"`,
/// and a choice between a definition and `null` becomes the definition.
fn remove_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            fields["type"] = only.clone();
        }
    }
    if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
        choices.retain(|choice| *choice != json!({ "type": "null" }));
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            fields.remove("anyOf");
            fields.extend(only);
        }
    }
}

/// Returns the content of `schemas.json`, with each definition and each kind on a line of its own.
pub fn schemas_file() -> String {
    let mut shared = Definitions::default();
    let answers = VERBS
        .iter()
        .filter_map(|verb| Some((verb.name, AnswerData::schema(verb.name)?)))
        .chain(stream_schemas())
        .map(|(name, schema)| (format!("{name}:data"), schema));
    let inputs = VERBS
        .iter()
        .filter_map(|verb| Some((verb.name.to_owned(), Call::input_schema(verb.name)?)));
    let settings = (
        SETTINGS_KIND.to_owned(),
        schema_for!(regatta_core::project::ProjectSettings),
    );
    // Answers come before inputs, so that a type that differs between them has its own name in
    // answers and a name with `Input` in inputs.
    let answers = answers.map(|(kind, schema)| (kind, shared.take_definitions(schema.into(), "")));
    let mut kinds: Map<String, Value> = answers.collect();
    let inputs = inputs.chain([settings]);
    kinds.extend(inputs.map(|(kind, schema)| {
        let schema = shared.take_definitions(schema.into(), "Input");
        (kind, schema)
    }));
    format!(
        "{{\n\"definitions\": {},\n\"kinds\": {}\n}}\n",
        one_field_per_line(&shared.definitions),
        one_field_per_line(&kinds)
    )
}

/// Formats an object with one field per line, so that a change of one type changes one line of the
/// file.
fn one_field_per_line(fields: &Map<String, Value>) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}: {value}", json!(name)))
        .collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

/// Collects the definitions to which several schemas refer, each under a unique name.
#[derive(Default)]
struct Definitions {
    /// The definitions as they were generated, by unique name, each with all definitions that it
    /// refers to. Used to find out whether two definitions with the same name are equal.
    derived: BTreeMap<String, Map<String, Value>>,
    /// The definitions by unique name, in which references also use the unique names.
    definitions: Map<String, Value>,
}

impl Definitions {
    /// Returns a unique name for a definition: its own name, or its name with the suffix or a
    /// number if another definition already has that name.
    fn unused_name_for(
        &mut self,
        name: &str,
        suffix: &str,
        definitions: &Map<String, Value>,
    ) -> String {
        let definition = with_references(name, definitions);
        let names = [name.to_owned(), format!("{name}{suffix}")];
        let numbered = (2..).map(|nth| format!("{name}{suffix}{nth}"));
        let is_free = |name: &String| {
            self.derived
                .get(name)
                .is_none_or(|known| *known == definition)
        };
        let name = names
            .into_iter()
            .chain(numbered)
            .find(is_free)
            .expect("numbers never run out");
        self.derived.entry(name.clone()).or_insert(definition);
        name
    }

    /// Moves the definitions in a schema into this collection, and returns the rest of the schema.
    /// `suffix` is added to the name of a definition if the name is in use.
    fn take_definitions(&mut self, mut schema: Value, suffix: &str) -> Value {
        let definitions = schema
            .as_object_mut()
            .and_then(|fields| fields.remove("$defs"));
        let Some(Value::Object(definitions)) = definitions else {
            return schema;
        };
        let names: BTreeMap<String, String> = definitions
            .keys()
            .map(|name| {
                let unique = self.unused_name_for(name, suffix, &definitions);
                (name.clone(), unique)
            })
            .collect();
        for (name, definition) in definitions {
            self.definitions
                .entry(names[&name].clone())
                .or_insert_with(|| rename_references(definition, &names));
        }
        rename_references(schema, &names)
    }
}

/// Returns a definition with all definitions that it refers to, directly or through others.
fn with_references(name: &str, definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        if let Some(definition) = definitions.get(&name)
            && !found.contains_key(&name)
        {
            open.extend(super::referenced_definitions(definition));
            found.insert(name, definition.clone());
        }
    }
    found
}

/// Returns a copy of a schema in which each reference uses the unique name from `names`.
fn rename_references(schema: Value, names: &BTreeMap<String, String>) -> Value {
    super::map_references(schema, &mut |name| {
        format!(
            "{}{}",
            super::DEFINITION_PREFIX,
            names.get(name).map_or(name, String::as_str)
        )
    })
}

use super::SETTINGS_KIND;
