//! The `regatta` program: the command line, the daemon, and what ties them to the world.
//!
//! `args` is what may be typed; `out` is how everything is said; `client` talks to the daemon and `daemon`
//! is it; `wire` is the only place that names adapters. The words live in `words/`, one file per group of
//! the help.

mod args; // what may be typed
mod bind; // where the daemon listens
mod bridge_sources; // where the variables of bridges come from
mod bridges; // agents in outside services
mod client; // talking to the daemon
mod command_line; // the command line as a whole, with examples
mod complete; // completion, with the ids that exist
mod daemon; // being it
mod examples; // an example of every command
mod follow; // watching a mission to its end
mod interrupt; // Ctrl-C, when more than one counts
mod machine; // what fits onto it
mod notices; // what interrupts a person
mod out; // how everything is said
mod pager; // long answers, page by page
mod plan; // reading plan files
mod project_files; // regatta.toml, applied when it is saved
mod runner; // working for a daemon elsewhere
mod schema; // JSON Schema of what goes in and comes out
mod secure; // TLS to a daemon elsewhere
mod settings; // flag > environment > regatta.toml > config.toml > default
#[cfg(test)]
mod settings_page; // docs/settings.md is complete
mod trials; // the books of `agent test`
mod watch; // the whole picture in a terminal
mod wire; // the only place that names adapters
mod words; // one file per group of commands

use std::process::ExitCode;

/// Requests are made on one thread and dropped on the writer's: the system's allocator makes both wait for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a stage has one thread, and its arguments are somebody else's command line.
    if std::env::args_os().nth(1).is_some_and(|it| it == "confine") {
        return regatta_agents::confine::main(std::env::args_os().skip(2));
    }
    words::run(std::env::args_os().collect())
}
