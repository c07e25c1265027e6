//! Generates the schemas from the Rust types, for the test that writes `schemas.json`.
//!
//! The shipped program does not contain this module: the generated code is large, and the schemas
//! change only when the types do.

use std::collections::BTreeMap;

use regatta_core::attempt::Attempt;
use regatta_core::bus::Message;
use schemars::schema_for;
use serde_json::{Map, Value, json};

use crate::verb::{Call, VERBS};
use crate::{live_view, view};

/// Returns the schema of the data in each kind of answer, with the kind's name, such as
/// `task.list:data`.
fn answer_schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("status", schema_for!(view::StatusView)),
        ("why", schema_for!(view::WhyView)),
        ("agent.why", schema_for!(view::AgentWhyView)),
        ("graph", schema_for!(view::GraphView)),
        ("mission.replay", schema_for!(view::ReplayView)),
        (
            "mission.compare",
            schema_for!(Vec<view::MissionFiguresView>),
        ),
        ("plan.ask", schema_for!(crate::plan::PlanView)),
        ("plan.show", schema_for!(crate::plan::PlanView)),
        ("plan.draw", schema_for!(crate::plan::PlanView)),
        ("task.list", schema_for!(Vec<view::TaskView>)),
        ("task.show", schema_for!(view::TaskView)),
        ("task.add", schema_for!(view::TaskView)),
        ("task.poll", schema_for!(Option<view::GrantedAttempt>)),
        ("attempt.show", schema_for!(Attempt)),
        ("agent.list", schema_for!(Vec<view::AgentView>)),
        ("agent.show", schema_for!(view::AgentView)),
        ("inbox", schema_for!(Vec<view::InboxView>)),
        ("attempt.checks", schema_for!(Vec<view::CheckResultView>)),
        ("scope.list", schema_for!(Vec<view::EscapeView>)),
        ("task.explore", schema_for!(view::TaskView)),
        ("scope.follow", schema_for!(view::TaskView)),
        ("rule.list", schema_for!(Vec<view::RuleView>)),
        ("rule.test", schema_for!(Vec<view::RuleMatchView>)),
        (
            "attempt.transcript",
            schema_for!(Vec<view::JournalRecordView>),
        ),
        (
            "policy.list",
            schema_for!(Vec<regatta_core::policy::PolicyRule>),
        ),
        ("cost", schema_for!(view::CostView)),
        ("budget.list", schema_for!(view::BudgetsView)),
        ("project.list", schema_for!(Vec<view::ProjectView>)),
        ("run", schema_for!(view::MissionView)),
        ("queue", schema_for!(Vec<view::QueueView>)),
        ("claim.acquire", schema_for!(view::GrantedClaim)),
        ("claim.list", schema_for!(view::ClaimsView)),
        ("claim.check", schema_for!(view::ClaimCheckView)),
        ("msg.send", schema_for!(Message)),
        ("msg.history", schema_for!(Vec<Message>)),
        ("msg.inbox", schema_for!(Vec<view::UnreadView>)),
        ("msg.attachment", schema_for!(view::AttachmentView)),
        ("hook.add", schema_for!(view::HookView)),
        ("hook.list", schema_for!(Vec<view::HookView>)),
        ("hook.test", schema_for!(view::HookTestView)),
        ("bridge.list", schema_for!(Vec<view::BridgeView>)),
        (
            "conversation.list",
            schema_for!(Vec<view::ConversationLineView>),
        ),
        (
            "conversation.show",
            schema_for!(regatta_core::conversation::Conversation),
        ),
        ("hook.log", schema_for!(Vec<regatta_core::hook::Firing>)),
        ("attempt.ask", schema_for!(view::AttemptRequestView)),
        ("siblings", schema_for!(Vec<view::SiblingAttemptView>)),
        ("briefing", schema_for!(view::BriefingView)),
        ("open", schema_for!(live_view::SignInView)),
        ("token.add", schema_for!(view::NewTokenView)),
        ("token.list", schema_for!(Vec<view::TokenView>)),
        ("audit", schema_for!(Vec<view::AuditLineView>)),
        (
            "team.list",
            schema_for!(Vec<regatta_core::launch::TeamSummary>),
        ),
        ("team.show", schema_for!(crate::team::TeamView)),
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
    let answers = answer_schemas()
        .into_iter()
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
