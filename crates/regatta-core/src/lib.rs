//! This crate decides everything that Regatta does. It has no IO: it computes events (facts that
//! became true) and effects (work such as starting a process), and other crates store the events
//! and perform the effects.
//!
//! # The way of a request or a report
//!
//! 1. [`command::decide`] copies the board (the state of all live work) into a [`board::Draft`] and
//!    calls the function that handles the [`command::Command`] or the [`command::Report`].
//! 2. That function checks the input and records events in the draft, or returns a
//!    [`refusal::Refusal`]. The draft applies each event to its own board at once.
//! 3. [`react`](mod@react) adds the consequences of each event to the same draft.
//! 4. The result is a [`command::Commit`]: the events, the changed rows, and the
//!    [effects](effect::Effect) that the engine performs after it has stored the commit.
//!
//! # Layout
//!
//! Each noun of the domain has one module. The module has four parts: the data types, the payloads
//! of the noun's events, the functions that handle its commands, and the checks of these commands.
//! The changes that an event makes to the board are in [`board`], in one `match` for all nouns.
//!
//! # Deliberately absent
//!
//! There is no async code, no clock, no randomness, no file, no process, no network and no path on
//! a disk. The caller passes the time in as [`ids::Now`]. Numbers and tokens are derived from the
//! board's revision, which is the number of the last event. A test in `xtask` checks this. The
//! engine, the store and the adapters do the rest.

// The error is here, although this crate would run everywhere, because every other crate depends on
// this one. So a build for another system stops with this sentence and not with errors about missing
// system calls.
#[cfg(not(target_os = "linux"))]
compile_error!(
    "Regatta runs on Linux only. On macOS and Windows, build and run it in a Linux virtual machine, \
     in WSL2 or in a container; docs/platforms.md says how."
);

// How a request is decided.
pub mod board; // all live state, and the only code that changes it
mod canonical_json; // a text that is equal for equal values
pub mod command; // the requests and reports that change the board
pub mod effect; // the work that the engine does after a change is stored
pub mod event; // the facts that became true
pub mod idempotency; // stored answers to repeated requests
pub mod ids; // names and numbers
mod react; // the consequences of each event
pub mod reference; // the meanings of an id that a person typed
pub mod refusal; // reasons for a refusal, and the command to type next

// Claims: leases on files and other things, so that two agents do not change the same thing.
pub mod claim; // grants and waits for claims
pub mod pattern; // overlap of two patterns

// Tasks, the agents that work on them, and the people who help.
pub mod agent; // agents, their limits and their settings
pub mod agent_protocol; // the events of every agent's program, in one vocabulary
pub mod agent_texts; // the texts for agents that a commit stores
pub mod approval; // permission requests and questions for a person
pub mod attempt; // one run of one agent on one task
pub mod attempt_scope; // the rights of an attempt's access token
pub mod budget; // limits on spending, and the amount spent
pub mod check_output; // the reason of a failed check, found in its output
pub mod collision_forecast; // forecast of collisions between running work
pub mod display; // the states and counts that people see
pub mod graph; // blockers, cycles, waves, and their drawing
pub mod inbox; // the list of things that need a person, and its snoozes
pub mod intervention; // prompts, pauses, resumes and retries by a person
pub mod isolation_breach; // breaches of an attempt's isolation
pub mod lead; // the lead of a mission, and its turns
pub mod limits; // limits of the machine, and restarts
pub mod manifest; // the files that a task may change and the claims it needs
pub mod manifest_discovery; // discovery of the files that a task touches
pub mod mission; // a goal, its tasks and its agents
pub mod plan_request; // a plan that an agent makes from a goal
pub mod plural; // counts with their nouns
pub mod policy; // rules for permission requests
pub mod project; // repositories under management
pub mod project_rules; // a project's standing rules
pub mod provider_name; // the names people use for providers
pub mod provider_outage; // providers and agents that get no work for a time
pub mod runner; // processes on other machines that execute attempts
pub mod schedule; // the next task of an agent, and the reason a task waits
pub mod scope_escape; // changes outside a manifest
pub mod session_rotation; // a new session when the model's context is nearly full
pub mod spend_ledger; // the spending in the event log, and its rate
pub mod start_gates; // conditions that are checked before a task starts
pub mod task; // tasks, and the only code that starts one
pub mod task_timeline; // the states and waits of a task over time

// Landing: merging finished work into a project's trunk (main branch).
pub mod landing; // the landing queue and its moves of the trunk

// Teams: a lead agent and its members, which are started and stopped together.
pub mod lane; // groups of team members that are started together
pub mod launch; // one start of a team, with an outcome for each member
pub mod team; // a lead and its members, as a person asked for them
pub mod unknown_fields; // fields that a newer version wrote

// Messages between agents and people, and connections to services such as Slack.
pub mod bridge_health; // broken credentials of bridges
pub mod bus; // messages
pub mod conversation; // threads in outside services, and their turns
pub mod hook; // rules that run a command or the router after a message or event
pub mod message_router; // the commands in a message
pub mod thread_answers; // short answers in a thread, and triage of plain text
pub mod transition; // the error of all state machines

// Helpers for text and names.
pub mod name_generator; // unused readable names
pub mod natural_sort; // natural sort order of names
pub mod search; // the words of a text, and the search for texts by words
pub mod shell_quote; // quoting for a shell
pub mod spelling; // suggestions for a misspelled word
pub mod stable_hash; // a hash that never changes
