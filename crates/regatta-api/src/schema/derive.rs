//! Generates the schemas from the Rust types, for the test that writes `schemas.json`.
//!
//! The shipped program does not contain this module: the generated code is large, and the schemas
//! change only when the types do.

use std::collections::BTreeMap;

use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::verb::{AnswerData, Call, VERBS};
use crate::{live_view, view};

/// Returns the schemas of data that no verb returns: the entries of streams, and the topics of the
/// page. Each schema comes with the name of its kind.
fn stream_schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("event", schema_for!(view::EventView)),
        ("live.head", schema_for!(live_view::FleetSummaryView)),
        ("live.inbox", schema_for!(live_view::InboxItemView)),
        ("live.lanes", schema_for!(live_view::AgentLaneView)),
        ("live.bars", schema_for!(live_view::LaneBarsView)),
        ("live.shares", schema_for!(live_view::StateSharesView)),
        ("live.queue", schema_for!(live_view::QueuePage)),
        ("live.spend", schema_for!(live_view::TodaySpendView)),
        ("live.tasks", schema_for!(live_view::TaskRowView)),
        ("live.graph", schema_for!(view::GraphView)),
        ("live.task", schema_for!(live_view::TaskPage)),
        ("live.files", schema_for!(live_view::ProjectFilesView)),
        ("live.teams", schema_for!(live_view::TeamPage)),
    ]
}

/// Returns the content of `schemas.json`, with each definition and each kind on a line of its own.
pub fn schemas_file() -> String {
    let mut shared = Definitions::default();
    let inputs = VERBS
        .iter()
        .filter_map(|verb| Some((verb.name.to_owned(), Call::input_schema(verb.name)?)));
    let answers = VERBS
        .iter()
        .filter_map(|verb| Some((verb.name, AnswerData::schema(verb.name)?)))
        .chain(stream_schemas())
        .map(|(name, schema)| (format!("{name}:data"), schema));
    let settings = (
        SETTINGS_KIND.to_owned(),
        schema_for!(regatta_core::project::ProjectSettings),
    );
    let kinds: Map<String, Value> = inputs
        .chain(answers)
        .chain([settings])
        .map(|(kind, schema)| (kind, shared.take_definitions(schema.into())))
        .collect();
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
    /// The definitions as they were generated, by unique name. Used to find out whether two
    /// definitions with the same name are equal.
    derived: BTreeMap<String, Value>,
    /// The definitions by unique name, in which references also use the unique names.
    definitions: Map<String, Value>,
}

impl Definitions {
    /// Returns a unique name for a definition: its own name, or its name with a number if another
    /// definition already has that name.
    fn unused_name_for(&mut self, name: &str, definition: &Value) -> String {
        let mut names =
            std::iter::once(name.to_owned()).chain((2..).map(|nth| format!("{name}{nth}")));
        let is_free = |name: &String| {
            self.derived
                .get(name)
                .is_none_or(|known| known == definition)
        };
        let name = names.find(is_free).expect("numbers never run out");
        self.derived
            .entry(name.clone())
            .or_insert_with(|| definition.clone());
        name
    }

    /// Moves the definitions in a schema into this collection, and returns the rest of the schema.
    fn take_definitions(&mut self, mut schema: Value) -> Value {
        let definitions = schema
            .as_object_mut()
            .and_then(|fields| fields.remove("$defs"));
        let Some(Value::Object(definitions)) = definitions else {
            return schema;
        };
        let names: BTreeMap<String, String> = definitions
            .iter()
            .map(|(name, definition)| (name.clone(), self.unused_name_for(name, definition)))
            .collect();
        for (name, definition) in definitions {
            self.definitions
                .entry(names[&name].clone())
                .or_insert_with(|| rename_references(definition, &names));
        }
        rename_references(schema, &names)
    }
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
