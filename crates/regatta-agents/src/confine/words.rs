//! What confinement says to people.

use std::fmt::Display;
use std::path::Path;

use regatta_engine::ports::agents::AgentError;

use super::Mechanism;

/// Says that a path that was named cannot be found.
pub(super) fn unreachable(path: &Path, error: impl Display) -> AgentError {
    AgentError {
        what: format!("The program cannot be confined: {} cannot be reached: {error}.", path.display()),
        hint: "Create it, or take it off the agent's `read` and `write` lists.".to_owned(),
    }
}

/// Says that a listed path belongs to what no agent may reach.
pub(super) fn listed_but_closed(path: &Path, closed: &Path) -> AgentError {
    AgentError {
        what: format!(
            "The agent's lists name {}, but {} is closed to every confined agent: other workspaces, the database or the repository itself are there.",
            path.display(),
            closed.display()
        ),
        hint: "Take it off the list; the agent works in its own workspace.".to_owned(),
    }
}

/// Says that nothing on this machine can do what was asked.
pub(super) fn none_works(level: &str, reasons: &[String]) -> AgentError {
    AgentError {
        what: format!("This machine cannot confine a program at level `{level}`: {}", reasons.join(" ")),
        hint: "Install bubblewrap, allow user namespaces, or set `confine = \"off\"` for this agent and accept that it can do whatever you can.".to_owned(),
    }
}

/// Says that the mechanism that was asked for does not work here.
pub(super) fn does_not_work(mechanism: Mechanism, why: &str) -> AgentError {
    AgentError {
        what: format!("Confinement by {mechanism} was asked for and does not work here: {why}"),
        hint: "Take the mechanism out of the settings, so that another is chosen, or mend what is named above."
            .to_owned(),
    }
}

/// Says that an allow-list of hosts cannot be engaged.
pub(super) fn no_allow_list() -> AgentError {
    AgentError {
        what: "The agent may reach only listed hosts, and Landlock cannot engage that: it needs a network namespace, so that nothing leads out but the shim.".to_owned(),
        hint: "Install bubblewrap or allow user namespaces; or take the hosts off the agent's list and choose whether it has a network.".to_owned(),
    }
}

/// Says that a list of hosts means nothing to a program that is not confined.
pub(super) fn list_without_confinement() -> AgentError {
    AgentError {
        what: "The agent may reach only listed hosts, but is not to be confined: nothing would keep it to them."
            .to_owned(),
        hint: "Set its confinement to `workspace` or `strict`, or take the hosts off its list.".to_owned(),
    }
}

/// Says that what is listed is no host.
pub(super) fn no_host(why: &str) -> AgentError {
    AgentError {
        what: format!("The agent's list of hosts cannot be used: {why}."),
        hint: "Add the agent again with hosts that are.".to_owned(),
    }
}

/// Why tools are out of reach.
pub(super) const NO_TOOLS: &str = "Under Landlock a program without network cannot reach Regatta's own tools either; bubblewrap or user namespaces can let them through.";

/// Says that a file of the run directory could not be written.
pub(super) fn file(doing: &str, path: &Path, error: impl Display) -> AgentError {
    crate::words::file(doing, path, error)
}

/// Says that the confinement was tried and did not hold.
pub(super) fn not_engaged(mechanism: Mechanism, why: &str) -> AgentError {
    AgentError {
        what: format!("Confinement by {mechanism} did not engage: {why}"),
        hint: "Run `regatta doctor` to see what this machine can do.".to_owned(),
    }
}

/// Why limits on processes mean nothing to root.
pub(super) const NO_PROCESS_LIMIT: &str = "The kernel exempts root from a limit on processes, also in namespaces; only a cgroup has one. Run Regatta as a user.";
