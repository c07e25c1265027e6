//! End-to-end tests with the real binary, real git and real processes. Each test has its own data
//! directory and home, and leaves no process running.
//!
//! `world` starts commands and ends daemons, `http` is a client that can misbehave, and `golden`
//! compares output for people with stored files. The head of each module says what it tests. Ids
//! such as Q4 are defined in `docs/invariants.md`.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod assignments;
mod downs;
mod failpoints;
mod golden;
mod guarded;
mod http;
mod world;

mod acceptance;
mod agent_tests;
mod agents;
mod audit;
mod bad_input;
mod bridge_start;
mod bridges;
mod bridges_again;
mod bridges_load;
mod bridges_requests;
mod bridges_rules;
mod bridges_seed;
mod bridges_webhooks;
mod bus;
mod change_sets;
mod chaos;
mod claims;
mod coming_together;
mod commands;
mod config_files;
mod demo;
mod disks;
mod doors;
mod environment;
mod examples;
mod failures;
mod figures;
mod fixups;
mod hooks;
mod inboxes;
mod isolations;
mod kills;
mod leads;
mod lines;
mod lists;
mod lookback;
mod looks;
mod lost_work;
mod messages;
mod newcomers;
mod nexts;
mod outside;
mod pages;
mod percents;
mod plans;
mod prompts;
mod quay;
mod races;
mod reference;
mod remotes;
mod restarts;
mod results;
mod routes;
mod runners;
mod runs;
mod scopes;
mod secrets;
mod seed;
mod sign_off;
mod stops;
mod streams;
mod submodules;
mod task_logs;
mod team_storms;
mod teams;
mod terminal;
mod tools;
mod watching;
