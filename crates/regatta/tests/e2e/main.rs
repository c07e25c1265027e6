//! End-to-end tests with the real binary, real git and real processes. Each test has its own data
//! directory and home, and leaves no process running.
//!
//! `world` starts commands and ends daemons, `http` is a client that can misbehave, and `golden`
//! compares output for people with stored files. The head of each module says what it tests. Ids
//! such as Q4 are defined in `docs/invariants.md`.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod assignments;
mod stopped_daemon;
mod failpoints;
mod golden;
mod guarded_paths;
mod http;
mod world;

mod acceptance;
mod agent_tests;
mod agents;
mod audit;
mod bad_input;
mod bridge_start;
mod bridges;
mod bridges_redelivery;
mod bridges_load;
mod bridges_requests;
mod bridges_rules;
mod bridges_conversations;
mod bridges_webhooks;
mod bus;
mod change_sets;
mod chaos;
mod claims;
mod landing_settings;
mod commands;
mod config_files;
mod demo;
mod disks;
mod auth;
mod environment;
mod examples;
mod failures;
mod metrics;
mod fixups;
mod hooks;
mod inboxes;
mod isolation;
mod kills;
mod leads;
mod script_output;
mod lists;
mod history;
mod terminal_output;
mod lost_work;
mod messages;
mod first_hour;
mod next_hints;
mod external_agent;
mod pages;
mod percent_names;
mod plans;
mod prompts;
mod bridge_world;
mod races;
mod remotes;
mod restarts;
mod results;
mod routes;
mod runners;
mod runs;
mod scopes;
mod secrets;
mod legacy_api;
mod team_acceptance;
mod stops;
mod streams;
mod submodules;
mod task_logs;
mod random_teams;
mod teams;
mod terminal;
mod tools;
mod watching;
