//! Scenario tests of the core's rules.
//! // [`world`] is the shared helper: a board, a virtual clock, a store and an outbox. After every
//! command it checks every law of [`laws`], so each test checks all invariants on its way. The
//! modules below test one area each; `golden` compares whole scenarios with stored transcripts, and
//! `random` runs random command sequences.

#![allow(clippy::unwrap_used, reason = "a test whose setup fails has failed")]

#[path = "core/laws.rs"]
mod laws;
#[path = "core/world.rs"]
mod world;

#[path = "core/answers.rs"]
mod answers;
#[path = "core/assignments.rs"]
mod assignments;
#[path = "core/budgets.rs"]
mod budgets;
#[path = "core/claims.rs"]
mod claims;
#[path = "core/conversation_requests.rs"]
mod conversation_requests;
#[path = "core/conversation_text.rs"]
mod conversation_text;
#[path = "core/conversations.rs"]
mod conversations;
#[path = "core/costs.rs"]
mod costs;
#[path = "core/dangers.rs"]
mod dangers;
#[path = "core/gates.rs"]
mod gates;
#[path = "core/guarded.rs"]
mod guarded;
#[path = "core/hooks.rs"]
mod hooks;
#[path = "core/identity.rs"]
mod identity;
#[path = "core/inboxes.rs"]
mod inboxes;
#[path = "core/isolation.rs"]
mod isolation;
#[path = "core/joins.rs"]
mod joins;
#[path = "core/judging.rs"]
mod judging;
#[path = "core/landings.rs"]
mod landings;
#[path = "core/lanes.rs"]
mod lanes;
#[path = "core/leads.rs"]
mod leads;
#[path = "core/lines.rs"]
mod lines;
#[path = "core/lives.rs"]
mod lives;
#[path = "core/manifests.rs"]
mod manifests;
#[path = "core/maps.rs"]
mod maps;
#[path = "core/missions.rs"]
mod missions;
#[path = "core/planning.rs"]
mod planning;
#[path = "core/plans.rs"]
mod plans;
#[path = "core/ports.rs"]
mod ports;
#[path = "core/queue_model.rs"]
mod queue_model;
#[path = "core/radar.rs"]
mod radar;
#[path = "core/retries.rs"]
mod retries;
#[path = "core/reviews.rs"]
mod reviews;
#[path = "core/runners.rs"]
mod runners;
#[path = "core/sessions.rs"]
mod sessions;
#[path = "core/speculation.rs"]
mod speculation;
#[path = "core/talk.rs"]
mod talk;
#[path = "core/tasks.rs"]
mod tasks;
#[path = "core/team_damage.rs"]
mod team_damage;
#[path = "core/team_storms.rs"]
mod team_storms;
#[path = "core/teams.rs"]
mod teams;
#[path = "core/trunk_checks.rs"]
mod trunk_checks;
#[path = "core/unanswered.rs"]
mod unanswered;
#[path = "core/verify.rs"]
mod verify;
#[path = "core/waves.rs"]
mod waves;

#[path = "core/golden.rs"]
mod golden;
#[path = "core/random.rs"]
mod random;
