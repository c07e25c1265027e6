//! The `regatta` program: the command line, the daemon and the runner in one executable.
//!
//! `args` declares the commands, and `words/` implements them, one file per group of commands. Most
//! commands send a request to the daemon through `client` and print the answer through `out`.
//! `daemon` is the process behind `regatta serve`. `wire` builds the adapters (git, agents, the
//! store, chat services); no other module names an adapter type.

mod args; // the arguments of every command
mod bind; // the addresses on which the daemon listens
mod bridge_sources; // the sources of the variables of bridges
mod bridges; // agents in Slack, GitHub, Linear and Telegram
mod client; // requests to the daemon
mod command_line; // parsing, with examples and suggestions
mod complete; // completion for shells, including ids
mod daemon; // the daemon process
mod examples; // the examples in the help
mod follow; // following a mission until it ends
mod interrupt; // Ctrl-C, pressed once or more often
mod machine; // the capacity of this machine
mod notices; // notifications for people
mod out; // printed output and errors
mod pager; // showing long output in a pager
mod plan; // plan files
mod project_files; // applying regatta.toml whenever it is saved
mod runner; // running attempts for a daemon on another machine
mod schema; // JSON Schemas of inputs and answers
mod secure; // TLS to a daemon on another machine
mod settings; // settings: flag > environment > regatta.toml > config.toml > default
#[cfg(test)]
mod settings_page; // the test that docs/settings.md is complete
mod trials; // records of running `agent test` programs
mod watch; // the live view of `regatta watch`
mod wire; // the only module that names adapters
mod words; // one file per group of commands

use std::process::ExitCode;

/// Requests are allocated on one thread and freed on the writer's thread. With the system's
/// allocator both threads wait for a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // This comes first because the sandbox stage must have one thread only, and because its
    // arguments are the command line of another program, which our parser must not see.
    if std::env::args_os().nth(1).is_some_and(|it| it == "confine") {
        return regatta_agents::confine::main(std::env::args_os().skip(2));
    }
    words::run(std::env::args_os().collect())
}
