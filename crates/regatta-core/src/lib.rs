//! Every rule of Regatta, and nothing that blocks or ticks.
//!
//! A request walks: [`command::decide`] → a verb in its noun's file → [`board::Draft::record`] →
//! [`react`](mod@react) (what follows, in the same draft) → a [`command::Commit`] of events, rows and
//! effects. A noun's file has the same five parts: the struct, the event payloads, the verbs, and who may
//! use them; what the event does to the board is in [`board`], one match for all.
//!
//! Deliberately absent: async, clocks, randomness, files, processes and paths of a disk. Time comes in as
//! [`ids::Now`]; numbers and tokens come from the board's own revision. A test in `xtask` holds this.

pub mod board; // the whole live state, and the only code that changes it
pub mod command;
pub mod conversation; // everything anyone may ask, routed to its verb
pub mod effect; // what the shell must do afterwards
pub mod event; // what became true
pub mod ids; // names and numbers
mod react; // what follows from each event
pub mod reference; // what a typed id can mean
pub mod refusal; // why not, and what to do next

pub mod claim; // where a claim is granted
pub mod pattern; // whether two patterns overlap

pub mod agent; // who can do how much
pub mod approval; // what a person must decide
pub mod attempt; // one run of one agent on one task
pub mod budget; // what may be spent, and what was
pub mod cost; // what it was spent on, and how fast
pub mod explore; // which files a task touches
pub mod failure; // why a check failed, from its output
pub mod gates; // six questions before a start
pub mod graph; // blockers, cycles, waves
pub mod inbox; // what needs a person, put off for a while
pub mod isolation; // when an attempt was not on its own
pub mod life; // what a task was at, and what it waited for, over time
pub mod manifest; // what a task may touch and what it holds
pub mod map; // who is where among a project's files
pub mod planning; // a plan made of words
pub mod policy; // what an agent may do unasked
pub mod provider; // who takes no work for now
pub mod provider_name; // the names people use for providers
pub mod rotate; // a fresh session when one is nearly full
pub mod runner; // processes on other machines that execute attempts
pub mod schedule; // which task an agent gets next, and why one waits
pub mod scope; // what was found outside a manifest
pub mod session; // what an agent's program says, in one vocabulary
pub mod standing; // a project's standing rules
pub mod steer; // a word, a pause, another try
pub mod task; // where a task becomes in_progress

pub mod extra; // fields that a newer version wrote
pub mod lane; // who may launch a member of a team
pub mod launch; // one start of a team, and what became of each
pub mod reconcile; // which record is believed
pub mod team; // a lead and its members, as somebody wants them

pub mod bridge; // an agent at an outside service that does not let it in
pub mod bus; // messages
pub mod fleet; // limits, restarts, answers given before
pub mod hook; // what starts when something happens
pub mod landing; // where a branch is allowed to land
pub mod lead; // who leads a mission, and its turns
pub mod mission; // a goal, its tasks and its agents
pub mod names; // readable names that nobody uses
pub mod order; // the order in which people look for names
pub mod project; // repositories under management
pub mod question; // answers in a thread, and what becomes of plain words
pub mod radar; // work in progress that will collide
pub mod route; // what a message asks for
pub mod search; // what a word is, and which texts have it
pub mod shell; // words of a line for a shell
pub mod spelling; // the known word that was meant
