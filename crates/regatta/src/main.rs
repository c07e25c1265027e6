//! The `regatta` program: the command line, the daemon and the runner in one executable.
//!
//! `args` lists the commands, and `commands/` has one file per command, with its arguments and the
//! function that runs it. Most commands send a request to the daemon through `client` and print the
//! answer through `output`. `daemon` is the process behind `regatta serve`. `composition` builds
//! the adapters (git, agents, the store, chat services); no other module names an adapter type.

mod agent_test_dirs; // records of running `agent test` programs
mod args; // the global options and the list of commands
mod bridge_environment; // the sources of the variables of bridges
mod bridges; // agents in Slack, GitHub, Linear and Telegram
mod client; // requests to the daemon
mod command_line; // parsing, with examples and suggestions
mod commands; // one file per command
mod completion; // completion for shells, including ids
mod composition; // the only module that names adapters
mod daemon; // the daemon process
mod interrupt; // Ctrl-C, pressed once or more often
mod listen_address; // the addresses on which the daemon listens
mod notifications; // notifications for people
mod output; // printed output and errors
mod own_program; // printed commands that work in this shell
mod pager; // showing long output in a pager
mod plan; // plan files
mod project_files; // applying regatta.toml whenever it is saved
mod run_progress; // following a mission until it ends
mod runner; // running attempts for a daemon on another machine
mod schema; // JSON Schemas of inputs and answers
mod server_sent_events; // server-sent events of the daemon
mod settings; // settings: flag > environment > regatta.toml > config.toml > default
#[cfg(test)]
mod settings_page_tests; // the test that docs/settings.md is complete
mod this_machine; // facts about this machine: kernel, memory, simultaneous validations
mod tls_client; // TLS to a daemon on another machine
mod version; // the version, with the commit of a release
mod watch; // the live view of `regatta watch`

use std::process::ExitCode;

/// The memory allocator of the program. Requests are allocated on one thread and freed on another
/// thread, the one that writes to the database. With the system's allocator both threads would wait
/// for a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Start the sandbox stage (the process that restricts itself and then runs an agent's program)
    // before everything else, because it must have only one thread, and because its arguments are
    // the command line of another program, which the parser below must not see.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|name| name == "confine")
    {
        return regatta_agents::sandbox::main(std::env::args_os().skip(2));
    }
    commands::run_command_line(std::env::args_os().collect())
}
