//! Scenario tests of the core's rules.
//! [`world`] is the shared helper: a board, a virtual clock, a store and an outbox. After every
//! command it checks every law of [`laws`], so each test checks all invariants on its way. The
//! modules below test one area each; `golden` compares whole scenarios with stored transcripts, and
//! `random` runs random command sequences.

#![allow(clippy::unwrap_used, reason = "a test whose setup fails has failed")]

mod laws;
mod world;

mod answers;
mod assignments;
mod budgets;
mod claims;
mod conversation_requests;
mod conversation_text;
mod conversations;
mod costs;
mod dangers;
mod gates;
mod guarded;
mod hooks;
mod identity;
mod inboxes;
mod isolation;
mod joins;
mod judging;
mod landings;
mod lanes;
mod leads;
mod lines;
mod lives;
mod manifests;
mod maps;
mod missions;
mod planning;
mod plans;
mod ports;
mod queue_model;
mod radar;
mod retries;
mod reviews;
mod runners;
mod sessions;
mod speculation;
mod talk;
mod tasks;
mod team_damage;
mod team_storms;
mod teams;
mod trunk_checks;
mod unanswered;
mod verify;
mod waves;

mod golden;
mod random;
