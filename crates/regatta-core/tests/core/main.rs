//! Scenario tests of the core's rules.
//!
//! [`world`] is the shared helper: a board, a virtual clock, a store and an outbox. After every
//! command it checks every law of [`invariants`], so each test checks all invariants on its way.
//! The modules below test one area each; `golden` compares whole scenarios with stored transcripts,
//! and `random` runs random command sequences.

#![allow(clippy::unwrap_used, reason = "a test whose setup fails has failed")]

mod invariants;
mod world;

mod answers;
mod assignments;
mod budgets;
mod checked_work;
mod claims;
mod collision_forecast;
mod conversation_requests;
mod conversation_text;
mod conversations;
mod costs;
mod dispatch;
mod display;
mod gates;
mod guarded_files;
mod hooks;
mod idempotency;
mod identity;
mod inbox_groups;
mod inboxes;
mod isolation;
mod landings;
mod lanes;
mod leads;
mod manifests;
mod messages;
mod missions;
mod planning;
mod plans;
mod ports;
mod queue_model;
mod random_teams;
mod remote_sync;
mod retries;
mod reviews;
mod runners;
mod scheduling;
mod sessions;
mod speculation;
mod task_timeline;
mod tasks;
mod team_damage;
mod team_hazards;
mod teams;
mod trunk_checks;
mod unanswered;
mod verify;
mod waves;
mod work_verdicts;

mod golden;
mod random;
