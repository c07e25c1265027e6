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
        what: "The agent's network is limited to listed hosts, and no mechanism here can engage that: namespaces and Landlock know addresses and ports, not names.".to_owned(),
        hint: "Set its network to true or false; with false, only programs that need no provider over the network can work.".to_owned(),
    }
}

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
