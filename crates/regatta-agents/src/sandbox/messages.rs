//! The error messages and warnings of the sandbox.

use std::fmt::Display;
use std::path::Path;

use regatta_engine::ports::agents::AgentError;

use super::SandboxMechanism;

/// Returns the error for a path from the agent's `read` or `write` list that does not exist or is
/// not accessible.
pub(super) fn path_not_accessible(path: &Path, error: impl Display) -> AgentError {
    AgentError {
        message: format!(
            "The program cannot be sandboxed because {} is not accessible: {error}.",
            path.display()
        ),
        hint: "Create the path, or remove it from the agent's `read` and `write` lists.".to_owned(),
    }
}

/// Returns the error for a path from the agent's lists that lies under `closed`, a path that no
/// sandboxed agent may access.
pub(super) fn listed_path_is_closed(path: &Path, closed: &Path) -> AgentError {
    AgentError {
        message: format!(
            "The agent's lists contain {}, but {} is closed to every sandboxed agent, because it \
            holds other workspaces, the database or the repository itself.",
            path.display(),
            closed.display()
        ),
        hint: "Remove the path from the list; the agent works in its own workspace.".to_owned(),
    }
}

/// Returns the error for a sandbox level, such as `strict`, that no sandbox mechanism on this
/// machine can provide. `reasons` has a sentence for each mechanism.
pub(super) fn no_mechanism_works(level: &str, reasons: &[String]) -> AgentError {
    AgentError {
        message: format!(
            "This machine cannot sandbox a program at level `{level}`: {}",
            reasons.join(" ")
        ),
        hint: "Install bubblewrap, allow user namespaces, or set `confine = \"off\"` for this \
            agent and accept that it can do everything that you can do."
            .to_owned(),
    }
}

/// Returns the error for a sandbox mechanism that the settings name but that does not work on this
/// machine.
pub(super) fn mechanism_does_not_work(mechanism: SandboxMechanism, why: &str) -> AgentError {
    AgentError {
        message: format!(
            "The sandbox mechanism {mechanism} was requested but does not work on \
            this machine: {why}"
        ),
        hint: "Remove the mechanism from the settings, so that another is chosen, or fix the \
            problem above."
            .to_owned(),
    }
}

/// Returns the error for an agent that may reach only listed hosts when the only sandbox mechanism
/// is Landlock, which cannot restrict hosts.
pub(super) fn landlock_has_no_allow_list() -> AgentError {
    AgentError {
        message: "The agent may reach only listed hosts, which Landlock cannot enforce. A list of \
                  hosts needs a network namespace whose only connection to the outside is the \
                  supervisor process."
            .to_owned(),
        hint: "Install bubblewrap or allow user namespaces. Or remove the hosts from the agent's \
            list and choose whether it has a network."
            .to_owned(),
    }
}

/// Returns the error for an agent that may reach only listed hosts but runs without a sandbox that
/// would enforce the list.
pub(super) fn allow_list_without_sandbox() -> AgentError {
    AgentError {
        message: "The agent may reach only listed hosts, but it has no sandbox that would enforce \
            the list."
            .to_owned(),
        hint: "Set its sandbox to `workspace` or `strict`, or remove the hosts from its list."
            .to_owned(),
    }
}

/// Returns the error for an agent's list of allowed hosts that contains an invalid entry.
pub(super) fn invalid_host(why: &str) -> AgentError {
    AgentError {
        message: format!("The agent's list of hosts cannot be used: {why}."),
        hint: "Add the agent again with valid hosts.".to_owned(),
    }
}

/// The warning that a program without network cannot reach Regatta's tool server either.
pub(super) const TOOLS_NOT_REACHABLE: &str = "Under Landlock a program without network cannot \
    reach Regatta's own tools either; bubblewrap or user namespaces make them reachable.";

/// Returns the error for a file of the sandbox in the run directory that could not be written.
pub(super) fn file_error(doing: &str, path: &Path, error: impl Display) -> AgentError {
    crate::errors::file_error(doing, path, error)
}

/// Returns the error for a sandbox that was set up but failed its checks.
pub(super) fn sandbox_not_set_up(mechanism: SandboxMechanism, why: &str) -> AgentError {
    AgentError {
        message: format!("The sandbox by {mechanism} could not be set up: {why}"),
        hint: "Run `regatta doctor` to see what this machine can do.".to_owned(),
    }
}

/// The warning that the limit of processes has no effect for root.
pub(super) const NO_PROCESS_LIMIT: &str = "The kernel exempts root from the limit of processes, \
    also in namespaces; only a cgroup limits root. Run Regatta as an ordinary user.";
