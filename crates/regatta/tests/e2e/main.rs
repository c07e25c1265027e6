//! End-to-end tests with the real binary, real git and real processes. Each test has its own data
//! directory and home, and leaves no process running.
//!
//! `world` starts commands and ends daemons, `http` is a client that can misbehave, and `golden`
//! compares output for people with stored files. The head of each module says what it tests. Ids
//! such as Q4 are defined in `docs/invariants.md`.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that cannot go on fails its test"
)]

mod assignments;
mod failpoints;
mod golden;
mod guarded_paths;
mod http;
mod stopped_daemon;
mod world;

mod acceptance;
mod agent_tests;
mod agents;
mod audit;
mod auth;
mod bad_input;
mod bridge_start;
mod bridge_world;
mod bridges;
mod bridges_conversations;
mod bridges_load;
mod bridges_redelivery;
mod bridges_requests;
mod bridges_rules;
mod bridges_webhooks;
mod bus;
mod change_sets;
mod chaos;
mod claims;
mod commands;
mod config_files;
mod demo;
mod disks;
mod environment;
mod examples;
mod external_agent;
mod failures;
mod first_hour;
mod fixups;
mod history;
mod hooks;
mod inboxes;
mod isolation;
mod kills;
mod landing_settings;
mod leads;
mod legacy_api;
mod list_counts;
mod lists;
mod lost_work;
mod messages;
mod metrics;
mod mission_page;
mod newcomer;
mod next_hints;
mod pages;
mod percent_names;
mod plans;
mod prompts;
mod races;
mod random_teams;
mod reference;
mod remotes;
mod restarts;
mod results;
mod routes;
mod runners;
mod runs;
mod same_counts;
mod scopes;
mod script_output;
mod secrets;
mod stops;
mod streams;
mod submodules;
mod task_logs;
mod team_acceptance;
mod teams;
mod terminal;
mod terminal_output;
mod tools;
mod upgrade_advice;
mod watching;
