//! All rules of Regatta, as pure code that never blocks.
//!
//! A request takes these steps: [`command::inbox`] calls the verb in the file of its noun. The
//! verb changes a draft of the board through [`board::Draft::record`]. [`react`](mod@react) adds
//! the consequences of each event to the same draft. The result is a [`command::Commit`] of events,
//! rows and effects. The file of a noun has four parts: the struct, the event payloads, the verbs,
//! and the checks of who may use them. The changes that an event makes to the board are in
//! [`board`], in one `match` for all nouns.
//!
//! Left out on purpose: async code, clocks, randomness, files, processes and paths of a disk. Time
//! comes in as [`ids::Now`]; numbers and tokens come from the board's own revision. A test in
//! `xtask` checks this.

pub mod board; // all live state, and the only code that changes it
pub mod command;
pub mod conversation; // threads in outside services, and their turns
pub mod effect; // the work that the engine does after a commit
pub mod event; // the facts that became true
pub mod ids; // names and numbers
mod react; // the consequences of each event
pub mod reference; // the meanings of an id that a person typed
pub mod refusal; // reasons for a refusal, and the command to type next

pub mod claim; // grants and waits for claims
pub mod pattern; // overlap of two patterns

pub mod agent; // agents, their limits and their access
pub mod agent_protocol; // the events of every agent's program, in one vocabulary
pub mod approval; // permission requests and questions for a person
pub mod attempt; // one run of one agent on one task
pub mod budget; // limits on spending, and the amount spent
pub mod cost; // cost by cause, and the rate of spending
pub mod failure; // the reason of a failed check, found in its output
pub mod file_map; // the agents at work among a project's files
pub mod graph; // blockers, cycles, waves
pub mod inbox; // the list of things that need a person, and its snoozes
pub mod intervention; // prompts, pauses, resumes and retries by a person
pub mod isolation_breach; // breaches of an attempt's isolation
pub mod manifest; // the files that a task may change and the claims it needs
pub mod manifest_discovery; // discovery of the files that a task touches
pub mod plan_request; // a plan that an agent makes from a goal
pub mod policy; // rules for permission requests
pub mod project_rules; // a project's standing rules
pub mod provider_name; // the names people use for providers
pub mod provider_outage; // providers and agents that get no work for a time
pub mod runner; // processes on other machines that execute attempts
pub mod schedule; // the next task of an agent, and the reason a task waits
pub mod scope_escape; // changes outside a manifest
pub mod session_rotation; // a fresh session when a session is nearly full
pub mod start_gates; // six conditions before a start
pub mod task;
// the states and waits of a task over time // tasks, and the only code that starts one
pub mod task_timeline;

pub mod lane; // the owner that may launch a member of a team
pub mod launch; // one start of a team, with an outcome for each member
pub mod team;
// fields that a newer version wrote // a lead and its members, as a person asked for them
pub mod unknown_fields;

pub mod bridge_health; // broken credentials of bridges
pub mod bus; // messages
pub mod collision_forecast; // forecast of collisions between running work
pub mod hook; // rules that start a command or an agent
pub mod idempotency; // stored answers to repeated requests
pub mod landing; // the landing queue and its moves of the trunk
pub mod lead; // the lead of a mission, and its turns
pub mod limits; // limits of the machine, and restarts
pub mod mission; // a goal, its tasks and its agents
pub mod name_generator; // unused readable names
pub mod natural_sort; // natural sort order of names
pub mod project; // repositories under management
pub mod router; // the commands in a message
pub mod search; // tokens of a text, and search by them
pub mod shell_quote; // quoting for a shell
pub mod spelling;
pub mod thread_answers; // answers and plain text in a thread // suggestions for a misspelled word
