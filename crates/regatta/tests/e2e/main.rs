//! The real binary, real git, real processes: each test has a data directory and a home of its own, and
//! leaves nothing running behind.
//!
//! `world` starts commands and ends daemons; `http` is a client that can misbehave; `golden` compares what
//! people read. Invariants of DESIGN §6 are named where they are checked.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod assignments;
mod downs;
mod failpoints;
mod golden;
mod guarded; // what people read, kept beside the tests
mod http; // a tiny client, for what the CLI would not send
mod world; // a data directory, a home, a repository, and the binary

mod acceptance;
mod agent_tests; // `agent test` and strays: nothing is left behind
mod agents; // programs that talk: asked, told, held, limited, shut in
mod audit; // who asked for what
mod bad_input; // what is typed or found is wrong: a sentence, a next step, an exit code
mod bridge_start; // sign-ins, missing variables and wrong settings of bridges
mod bridges; // agents in Slack and elsewhere
mod bridges_again; // deliveries that come again and again, while the daemon is killed
mod bridges_load; // forged deliveries, many conversations
mod bridges_requests; // long answers, reviews, messages to others
mod bridges_rules; // what an older bridge got wrong
mod bridges_seed; // the seed's conversations, with kills in the middle
mod bridges_webhooks; // what happens, told to a receiver
mod bus; // messages: threads, search, mail, files, cursors
mod change_sets; // random changes that interact, landed and validated again
mod chaos; // kill -9 of a runner and of the daemon, at random
mod claims; // claims bind running work and outsiders alike
mod coming_together; // landing as its settings say
mod commands; // the command line as a whole
mod config_files; // regatta.toml applies when it is saved
mod demo; // the first command of a newcomer
mod disks; // full, read-only, corrupt, far away
mod doors; // who gets in
mod environment; // faults of the repository that no attempt can help
mod examples; // every command of examples/README.md
mod failures; // the first error on every screen, and failed work kept
mod figures; // health, figures, traces
mod fixups; // finished work that conflicts or fails
mod hooks; // what starts when something happens
mod inboxes; // everything that needs a person is answered in one way
mod isolations; // workers that did not work where they should
mod kills; // kill -9, two hundred times
mod leads; // several leads at once, by messages
mod lines; // the lines that scripts rely on
mod lists; // pages, conditions, bounds
mod lookback; // why, replay, compare, plans of words, the inbox put off
mod looks; // colours, widths, words
mod lost_work; // the ways in which others lost work
mod messages; // what happened, why, and what to do next
mod newcomers; // the first hour on a machine without programs
mod nexts; // what is offered next works; work looked at, sent back, taken back
mod outside; // an agent that nobody started polls, works and finishes
mod pages;
mod percents; // percent signs in file names, rows that cannot be read
mod plans; // plan files: checked, refused, imported, exported
mod prompts; // what agents are told
mod quay; // a daemon with bridges, and what services send to it
mod races; // many at once, one winner
mod remotes; // somebody else pushes, too
mod restarts; // an agent is stopped and begins anew
mod results; // what workers leave: results, escapes, failed checks, rules
mod routes; // every address beside the verbs
mod runners; // other machines that work for the daemon
mod runs; // a plan on the user's own repository
mod scopes; // who may do what
mod secrets; // what a run leaves has none
mod seed; // the surface that older clients know
mod sign_off; // the live sign-off list of mixed teams
mod stops; // commands that hang are ended, and a stop is true
mod streams; // events without gaps
mod submodules; // brought along, moved, edited, missing; LFS
mod task_logs; // what commands print, stored and shown once
mod team_storms; // random teams of real processes
mod teams; // mixed teams: lanes, a kill, a stop, a file
mod terminal; // the whole picture in a real terminal
mod tools; // what agents call
mod watching; // following a run, leaving it, stopping it
