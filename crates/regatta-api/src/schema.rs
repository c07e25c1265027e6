//! JSON Schema of what goes in and comes out: `task.add` is a verb's input, `task.list:data` an answer's data.

use regatta_core::attempt::Attempt;
use regatta_core::bus::Message;
use schemars::{Schema, schema_for};

use crate::verb::{Call, VERBS};
use crate::{page, view};

/// The schema called `kind`.
pub fn of(kind: &str) -> Option<Schema> {
    match kind.strip_suffix(":data") {
        None => Call::input_schema(kind),
        Some(answer) => answers().into_iter().find(|it| it.0 == answer).map(|it| it.1),
    }
}

/// What a settings file says of a project.
pub fn settings() -> Schema {
    schema_for!(regatta_core::project::Settings)
}

/// Every kind there is.
pub fn kinds() -> Vec<String> {
    let inputs = VERBS.iter().map(|it| it.name.to_owned());
    inputs.chain(answers().into_iter().map(|it| format!("{}:data", it.0))).collect()
}

/// What the `data` of each answer is, by the `kind` it is printed under.
fn answers() -> Vec<(&'static str, Schema)> {
    vec![
        ("status", schema_for!(view::StatusView)),
        ("why", schema_for!(view::WhyView)),
        ("agent.why", schema_for!(view::AgentWhyView)),
        ("graph", schema_for!(view::GraphView)),
        ("mission.replay", schema_for!(view::ReplayView)),
        ("mission.compare", schema_for!(Vec<view::FiguresView>)),
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
        ("attempt.checks", schema_for!(Vec<view::EvidenceView>)),
        ("scope.list", schema_for!(Vec<view::EscapeView>)),
        ("task.explore", schema_for!(view::TaskView)),
        ("scope.follow", schema_for!(view::TaskView)),
        ("rule.list", schema_for!(Vec<view::RuleView>)),
        ("rule.test", schema_for!(Vec<view::MetView>)),
        ("attempt.transcript", schema_for!(Vec<view::LineView>)),
        ("policy.list", schema_for!(Vec<regatta_core::policy::Rule>)),
        ("cost", schema_for!(view::CostView)),
        ("budget.list", schema_for!(view::BudgetsView)),
        ("project.list", schema_for!(Vec<view::ProjectView>)),
        ("run", schema_for!(view::MissionView)),
        ("queue", schema_for!(Vec<view::QueueView>)),
        ("claim.acquire", schema_for!(view::GrantedClaim)),
        ("claim.list", schema_for!(view::ClaimsView)),
        ("claim.check", schema_for!(view::CheckView)),
        ("msg.send", schema_for!(Message)),
        ("msg.history", schema_for!(Vec<Message>)),
        ("msg.inbox", schema_for!(Vec<view::UnreadView>)),
        ("msg.attachment", schema_for!(view::AttachmentView)),
        ("hook.add", schema_for!(view::HookView)),
        ("hook.list", schema_for!(Vec<view::HookView>)),
        ("hook.test", schema_for!(view::HookTestView)),
        ("bridge.list", schema_for!(Vec<view::BridgeView>)),
        ("conversation.list", schema_for!(Vec<view::ConversationLineView>)),
        ("conversation.show", schema_for!(regatta_core::conversation::Conversation)),
        ("hook.log", schema_for!(Vec<regatta_core::hook::Firing>)),
        ("attempt.ask", schema_for!(view::AskedView)),
        ("siblings", schema_for!(Vec<view::SiblingView>)),
        ("briefing", schema_for!(view::BriefingView)),
        ("open", schema_for!(page::OpenView)),
        ("token.add", schema_for!(view::NewToken)),
        ("token.list", schema_for!(Vec<view::TokenView>)),
        ("audit", schema_for!(Vec<view::AuditView>)),
        ("team.list", schema_for!(Vec<regatta_core::launch::Summary>)),
        ("team.show", schema_for!(crate::team::TeamView)),
        ("event", schema_for!(view::EventView)),
        ("live.head", schema_for!(page::HeadView)),
        ("live.inbox", schema_for!(page::ItemView)),
        ("live.lanes", schema_for!(page::LaneView)),
        ("live.bars", schema_for!(page::BarsView)),
        ("live.shares", schema_for!(page::SharesView)),
        ("live.queue", schema_for!(page::TrainView)),
        ("live.spend", schema_for!(page::SpendView)),
        ("live.tasks", schema_for!(page::RowView)),
        ("live.graph", schema_for!(view::GraphView)),
        ("live.task", schema_for!(page::TaskPage)),
        ("live.files", schema_for!(page::FilesView)),
        ("live.teams", schema_for!(page::TeamPage)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people and programs rely on is checked in: a change shows in the diff of `docs/schema.json`.
    /// `UPDATE_GOLDEN=1` writes it anew; within v1 it may only grow.
    #[test]
    fn schemas_are_as_checked_in() {
        let all: serde_json::Map<String, serde_json::Value> =
            kinds().into_iter().map(|kind| (kind.clone(), of(&kind).map(Into::into).unwrap_or_default())).collect();
        let mut text = serde_json::to_string_pretty(&all).unwrap();
        text.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let known = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            known == text,
            "the schemas changed: look at the change, then UPDATE_GOLDEN=1 cargo test -p regatta-api"
        );
    }
}
