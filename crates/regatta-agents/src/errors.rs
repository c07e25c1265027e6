//! The error messages of this crate.
//!
//! Each function returns an error with a message and a hint. Callers print the hint after the
//! message, separated by a space, so both are whole sentences.

use std::fmt::Display;
use std::path::Path;

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::AgentError;

/// Returns the error for a file in Regatta's own data directory that could not be read or written.
/// `doing` is the verb, such as "read".
pub(crate) fn file_error(doing: &str, path: &Path, error: impl Display) -> AgentError {
    AgentError {
        message: format!("Could not {doing} {}: {error}.", path.display()),
        hint: "Check that the data directory is writable and has room.".to_owned(),
    }
}

/// Returns the error for a known program (a preset) that is not installed on this machine.
/// `install` is the command that installs it.
pub(crate) fn not_installed(preset: &str, program: &str, install: &str) -> AgentError {
    AgentError {
        message: format!("The program `{program}` of {preset} is not installed."),
        hint: format!("Install it: {install}"),
    }
}

/// Returns the error for an agent's own command whose program is not on this machine.
pub(crate) fn program_not_found(program: &str) -> AgentError {
    AgentError {
        message: format!("The program `{program}` was not found on the daemon's PATH."),
        hint: "Install it, or give its full path in the agent's command.".to_owned(),
    }
}

/// Returns the error for a requested program (`backend`) that is not among the provider's programs
/// `known`.
pub(crate) fn unknown_backend(provider: &str, backend: &str, known: &[&str]) -> AgentError {
    let hint = match known {
        [] => {
            format!("Regatta knows no program of {provider}; list the providers: regatta provider.")
        }
        known => format!("Use one of: {}.", known.join(", ")),
    };
    AgentError {
        message: format!("Regatta knows no program `{backend}` of {provider}."),
        hint,
    }
}

/// Returns the error for a provider, such as `anthropic`, for which Regatta knows no program.
pub(crate) fn unknown_provider(provider: &str) -> AgentError {
    AgentError {
        message: format!("Regatta knows no program of {provider}."),
        hint: "List the providers: regatta provider.".to_owned(),
    }
}

/// Returns the error for a shim (the supervisor process of a program) that could not be started.
pub(crate) fn shim_not_spawned(exe: &Path, error: impl Display) -> AgentError {
    AgentError {
        message: format!(
            "Could not start the supervisor {} shim: {error}.",
            exe.display()
        ),
        hint: "Check that the regatta program is still at the path from which the daemon was \
               started, then start again."
            .to_owned(),
    }
}

/// Returns the error for a supervisor process that ended or hung before it reported that its
/// program runs.
pub(crate) fn shim_silent(log: &Path, how: &str) -> AgentError {
    AgentError {
        message: format!("The supervisor {how} before it reported that the program runs."),
        hint: format!(
            "Read the supervisor's log {}. Starting again is safe, because nothing runs twice.",
            log.display()
        ),
    }
}

/// Returns the error for a one-time command whose name is invalid. The name becomes a directory's
/// name.
pub(crate) fn invalid_command_name(name: &str) -> AgentError {
    AgentError {
        message: format!("{name:?} is not a valid name for a command that runs only once."),
        hint: "Use at most 200 letters, digits, dashes, underscores and dots.".to_owned(),
    }
}

/// Returns the error for waiting for the end of an attempt whose program was never started.
pub(crate) fn never_started(attempt: AttemptId) -> AgentError {
    AgentError {
        message: format!("The program of attempt {attempt} was never started, so it cannot end."),
        hint: "Start the attempt's program first. An interrupted start can be repeated.".to_owned(),
    }
}

/// Returns the error for an input line that the supervisor process refused to pass to its program.
pub(crate) fn input_refused(why: &str) -> AgentError {
    AgentError {
        message: format!("The supervisor refused to send a line to the program: {why}."),
        hint: "This is a bug in Regatta's driver for this program. Report it with the attempt's \
            transcript: regatta logs ATTEMPT."
            .to_owned(),
    }
}

/// Returns the error that lists the ids of processes that did not end although they were killed.
pub(crate) fn still_alive(pids: &[u32]) -> AgentError {
    let pids: Vec<String> = pids.iter().take(20).map(u32::to_string).collect();
    AgentError {
        message: format!("These processes did not end in time: {}.", pids.join(", ")),
        hint:
            "The processes may be stuck in the kernel, for example on a dead network mount. Stop \
            the program again once they are free."
                .to_owned(),
    }
}

/// Returns the error for a lock file that another process has locked for too long.
pub(crate) fn lock_not_released(path: &Path) -> AgentError {
    AgentError {
        message: format!(
            "Another process has locked {} and does not release it.",
            path.display()
        ),
        hint: "Check that only one daemon runs on this data directory, then try again.".to_owned(),
    }
}

/// Returns the error for a failed system call without which Regatta cannot supervise programs.
pub(crate) fn kernel_error(doing: &str, error: impl Display) -> AgentError {
    AgentError {
        message: format!("The system refused to {doing}: {error}."),
        hint: "Regatta needs Linux 5.4 or later with /proc mounted and pidfds allowed.".to_owned(),
    }
}

/// The reason why an attempt without a configured program does not start.
pub(crate) const NO_PROGRAM: &str =
    "The agent's command names no program; give the agent a command.";

/// The reason why an attempt does not start if somebody stopped it first.
pub(crate) const STOPPED_FIRST: &str = "The attempt was stopped before its program started.";

/// Returns the reason why a program was not started: its working directory does not exist.
pub(crate) fn directory_does_not_exist(dir: &Path) -> String {
    format!(
        "The directory {} does not exist; was its workspace removed?",
        dir.display()
    )
}

/// Returns the reason why a program was not started: no directory of PATH contains the program.
pub(crate) fn not_on_path(program: &str, path: &str) -> String {
    format!(
        "The program `{program}` was not found on PATH ({path}); install it, or give its full path."
    )
}

/// Returns the reason why a program was not started: the program's path does not exist.
pub(crate) fn program_does_not_exist(program: &Path) -> String {
    format!(
        "The program {} does not exist; check the agent's command.",
        program.display()
    )
}

/// Returns the reason why a program was not started: the kernel refused to execute the program.
/// Adds advice for the kind of error.
pub(crate) fn not_executable(program: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "make it executable",
        std::io::ErrorKind::ArgumentListTooLong => {
            "leave {prompt} out of its arguments and let it read standard input"
        }
        std::io::ErrorKind::NotFound => "the interpreter in its first line is missing",
        _ => "start it by hand to see the reason",
    };
    format!(
        "The program {} could not be started: {error}; {advice}.",
        program.display()
    )
}

/// Returns the error for a check (a command such as a test) that was not run because its sandbox
/// could not be set up.
pub(crate) fn check_not_sandboxed(why: &str) -> AgentError {
    AgentError {
        message: format!("A command of the project could not be sandboxed: {why}"),
        hint: "See what this machine can do: regatta doctor. Or let commands run as you do: \
            sandbox = \"off\" under [run] in regatta.toml."
            .to_owned(),
    }
}

/// Returns the error for an agent that is configured to start in a directory which its workspace
/// does not contain.
pub(crate) fn invalid_start_dir(agent: &regatta_core::ids::AgentName, asked: &str) -> AgentError {
    AgentError {
        message: format!(
            "{agent} is configured to start in `{asked}`, which is not a directory of its \
            workspace."
        ),
        hint: "Land a commit that adds the directory, or change the agent's cwd.".to_owned(),
    }
}

/// Returns the error for starting an outside agent: an agent that runs by itself, so that Regatta
/// has no program to start for it.
pub(crate) fn agent_has_no_program(agent: &regatta_core::ids::AgentName) -> AgentError {
    AgentError {
        message: format!("{agent} has no program that Regatta starts."),
        hint: format!(
            "The agent asks for tasks by itself. To let Regatta start a program for it: regatta \
            agent add {agent} --preset NAME."
        ),
    }
}

/// Returns the error for adding records of another machine to the journal of a program that runs on
/// this machine.
pub(crate) fn runs_here(attempt: AttemptId) -> AgentError {
    AgentError {
        message: format!(
            "The program of {attempt} was started on this machine, so its journal is not a copy."
        ),
        hint: "Read the journal directly; none of its records comes from another machine."
            .to_owned(),
    }
}

/// Returns the error for a check (a command such as a test) that was ended because the daemon is
/// shutting down.
pub(crate) fn shutting_down() -> AgentError {
    AgentError {
        message: "The check was ended because its daemon is shutting down.".to_owned(),
        hint: "The check runs again when the daemon is up: regatta up.".to_owned(),
    }
}

/// Returns the error for stopping or starting, on this machine, a program that runs on another
/// machine.
pub(crate) fn runs_elsewhere(attempt: AttemptId) -> AgentError {
    AgentError {
        message: format!("The program of {attempt} runs on another machine."),
        hint: "Stop the program on that machine; a new attempt may run here.".to_owned(),
    }
}

/// Returns the error for records that do not continue the copy of another machine's journal: record
/// `expected` was next, but `found` was sent.
pub(crate) fn missing_records(attempt: AttemptId, expected: u64, found: u64) -> AgentError {
    AgentError {
        message: format!(
            "The copy of {attempt}'s journal continues at record {expected}, but record {found} \
            was sent."
        ),
        hint: format!("Send the records from {expected} on."),
    }
}

/// Returns the error for a sent journal record that is longer than any supervisor process writes.
pub(crate) fn record_too_long(attempt: AttemptId, n: u64) -> AgentError {
    AgentError {
        message: format!("Record {n} of {attempt} is longer than a journal allows."),
        hint: "Run the same version of Regatta on both machines.".to_owned(),
    }
}

/// Returns the error for the copy of another machine's journal that has reached its size limit.
pub(crate) fn copy_full(attempt: AttemptId) -> AgentError {
    AgentError {
        message: format!("The copy of {attempt}'s journal has reached its size limit."),
        hint: "Read the rest on the machine where the program runs.".to_owned(),
    }
}

/// Returns the error for a heading (the facts about an attempt that precede its copied journal)
/// that is unreadable or belongs to another attempt.
pub(crate) fn invalid_heading(attempt: AttemptId) -> AgentError {
    AgentError {
        message: format!(
            "The heading that was sent for {attempt}'s journal is unreadable or belongs to \
            another attempt."
        ),
        hint: "Run the same version of Regatta on both machines.".to_owned(),
    }
}
