//! Everything this crate says to people.

use std::fmt::Display;
use std::path::Path;

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::AgentError;

/// Says that a file of ours could not be read or written.
pub(crate) fn file(doing: &str, path: &Path, error: impl Display) -> AgentError {
    AgentError {
        what: format!("Could not {doing} {}: {error}.", path.display()),
        hint: "Check that the data directory is writable and has room.".to_owned(),
    }
}

/// Says that a program is not on this machine.
pub(crate) fn not_installed(preset: &str, program: &str, install: &str) -> AgentError {
    AgentError {
        what: format!("The program `{program}` of {preset} is not installed."),
        hint: format!("Install it: {install}"),
    }
}

/// Says that a program of no preset is not on this machine.
pub(crate) fn missing_program(program: &str) -> AgentError {
    AgentError {
        what: format!("The program `{program}` was not found on the daemon's PATH."),
        hint: "Install it, or give its full path in the agent's command.".to_owned(),
    }
}

/// Says that a provider has no such program.
pub(crate) fn unknown_backend(provider: &str, backend: &str, known: &[&str]) -> AgentError {
    let hint = match known {
        [] => format!("No program of {provider} is known: see regatta provider."),
        known => format!("One of: {}.", known.join(", ")),
    };
    AgentError { what: format!("{backend} is no program of {provider} that is known here."), hint }
}

/// Says that no program of a provider is known.
pub(crate) fn unknown_provider(provider: &str) -> AgentError {
    AgentError {
        what: format!("No program of {provider} is known here."),
        hint: "See those that are: regatta provider.".to_owned(),
    }
}

/// Says that the supervisor itself could not be spawned.
pub(crate) fn shim_not_spawned(exe: &Path, error: impl Display) -> AgentError {
    AgentError {
        what: format!("Could not start the supervisor {} shim: {error}.", exe.display()),
        hint: "Check that the regatta program is still where the daemon was started from, then start again.".to_owned(),
    }
}

/// Says that the supervisor came up but told nothing.
pub(crate) fn shim_silent(log: &Path, how: &str) -> AgentError {
    AgentError {
        what: format!("The supervisor {how} before it reported that the program runs."),
        hint: format!("Read {}; starting again is safe, nothing runs twice.", log.display()),
    }
}

/// Says that a command cannot be kept under this name.
pub(crate) fn bad_name(name: &str) -> AgentError {
    AgentError {
        what: format!("A command that runs once cannot be called {name:?}."),
        hint: "Use at most 200 letters, digits, dashes, underscores and dots.".to_owned(),
    }
}

/// Says that there is nothing to wait for.
pub(crate) fn never_started(attempt: AttemptId) -> AgentError {
    AgentError {
        what: format!("Nothing was started for attempt {attempt}."),
        hint: "Start it first; a start that was cut short may be repeated.".to_owned(),
    }
}

/// Says that a shim will never say something to its program.
pub(crate) fn not_said(why: &str) -> AgentError {
    AgentError {
        what: format!("The supervisor refused to say a line to the program: {why}."),
        hint: "This is a fault of the driver; please report it with the attempt's transcript.".to_owned(),
    }
}

/// Says which processes would not end.
pub(crate) fn still_alive(pids: &[u32]) -> AgentError {
    let pids: Vec<String> = pids.iter().take(20).map(u32::to_string).collect();
    AgentError {
        what: format!("These processes did not end in time: {}.", pids.join(", ")),
        hint: "They may be stuck in the kernel (a dead network mount?); stop again once they are free.".to_owned(),
    }
}

/// Says that someone else is ending the same attempt and has not finished.
pub(crate) fn busy(path: &Path) -> AgentError {
    AgentError {
        what: format!("Another process holds {} and does not let go.", path.display()),
        hint: "Is a second daemon running on the same data directory?".to_owned(),
    }
}

/// Says that the kernel refused something that supervision needs.
pub(crate) fn kernel(doing: &str, error: impl Display) -> AgentError {
    AgentError {
        what: format!("The system would not {doing}: {error}."),
        hint: "Regatta needs Linux 5.4 or later with /proc mounted and pidfds allowed.".to_owned(),
    }
}

/// Why nothing runs when the launch names no program.
pub(crate) const NO_PROGRAM: &str = "The launch names no program; give the agent a command.";

/// Why nothing runs when the attempt was stopped before its start.
pub(crate) const STOPPED_FIRST: &str = "It was stopped before it was started.";

/// Why nothing runs when its directory is missing.
pub(crate) fn no_directory(dir: &Path) -> String {
    format!("The directory {} does not exist; was its workspace removed?", dir.display())
}

/// Why nothing runs when its program is nowhere on PATH.
pub(crate) fn not_on_path(program: &str, path: &str) -> String {
    format!("The program `{program}` was not found on PATH ({path}); install it, or give its full path.")
}

/// Why nothing runs when a program named by its path is not there.
pub(crate) fn not_there(program: &Path) -> String {
    format!("The program {} does not exist; check the agent's command.", program.display())
}

/// Why nothing runs when the kernel refused the program.
pub(crate) fn not_executable(program: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "make it executable",
        std::io::ErrorKind::ArgumentListTooLong => "leave {prompt} out of its arguments and let it read standard input",
        std::io::ErrorKind::NotFound => "the interpreter in its first line is missing",
        _ => "try it by hand",
    };
    format!("The program {} could not be started: {error}; {advice}.", program.display())
}

/// Says that a check could not be shut in as it should, so it was not run.
pub(crate) fn check_not_confined(why: &str) -> AgentError {
    AgentError {
        what: format!("A command of the project's could not be shut in: {why}"),
        hint: "See what this machine can do: regatta doctor. Or let commands run as you do: sandbox = \"off\" under [run] in regatta.toml.".to_owned(),
    }
}

pub(crate) fn no_cwd(agent: &regatta_core::ids::AgentName, asked: &str) -> AgentError {
    AgentError {
        what: format!("{agent} is to begin in `{asked}`, which is no directory of its workspace"),
        hint: "Land one of that name, or change the cwd of the agent.".to_owned(),
    }
}

pub(crate) fn not_ours(agent: &regatta_core::ids::AgentName) -> AgentError {
    AgentError {
        what: format!("{agent} has no program of ours to start"),
        hint: format!("It polls by itself; or give it one: regatta agent add {agent} --preset NAME."),
    }
}

/// Says that a copy is refused of what is no copy.
pub(crate) fn runs_here(attempt: AttemptId) -> AgentError {
    AgentError {
        what: format!("The program of {attempt} was started on this machine, so its journal is no copy."),
        hint: "Read it as it is: nothing of it comes from another machine.".to_owned(),
    }
}

/// Says that a check was ended because nobody hears any more what it says.
pub(crate) fn resting() -> AgentError {
    AgentError {
        what: "The check was ended: the daemon that wanted it is ending.".to_owned(),
        hint: "It is run again when the daemon is up: regatta up.".to_owned(),
    }
}

/// Says that a program runs on another machine.
pub(crate) fn runs_elsewhere(attempt: AttemptId) -> AgentError {
    AgentError {
        what: format!("The program of {attempt} runs on another machine."),
        hint: "Stop it there; a new attempt may run here.".to_owned(),
    }
}

/// Says that something between two records is missing.
pub(crate) fn gap(attempt: AttemptId, expected: u64, found: u64) -> AgentError {
    AgentError {
        what: format!("The copy of {attempt}'s journal goes on at {expected}, not at {found}."),
        hint: format!("Send the records from {expected} on."),
    }
}

/// Says that no shim keeps lines that long.
pub(crate) fn record_too_long(attempt: AttemptId, n: u64) -> AgentError {
    AgentError {
        what: format!("Record {n} of {attempt} is longer than any that a journal holds."),
        hint: "Run the same version of Regatta on both machines.".to_owned(),
    }
}

/// Says that a copy has its full size.
pub(crate) fn copy_full(attempt: AttemptId) -> AgentError {
    AgentError {
        what: format!("The copy of {attempt}'s journal has the full size of one."),
        hint: "Read the rest on the machine where the program runs.".to_owned(),
    }
}

/// Says that a heading tells nothing about this attempt.
pub(crate) fn no_heading(attempt: AttemptId) -> AgentError {
    AgentError {
        what: format!("This is not the heading of {attempt}'s journal."),
        hint: "Run the same version of Regatta on both machines.".to_owned(),
    }
}
