//! The list of the users' commands that run now: checks, setup commands, commands after a landing,
//! and the commands of hooks (rules that react to events).
//!
//! These commands are stopped together with their owner (P11). The commands `stop`, `cancel`,
//! `drop`, `retry` and `down` of the command line end all their processes. An attempt keeps its
//! place on the machine and its claims (leases on files) until these processes are gone. The thread
//! that runs a command adds the command to this list and calls [`CommandEntry::is_wanted`] while
//! the command runs. The thread that stops the owner waits until the command has left the list.
//!
//! Nothing of this list survives a restart. A command that outlives the daemon has a stored record,
//! with which the next start waits for the command or stops it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, FiringId, TaskId};

/// The attempt, the task, or the firing of a hook (a rule that reacts to events) on whose behalf a
/// command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOwner {
    /// The setup commands and checks of an attempt.
    Attempt(AttemptId),
    /// The commands after the landing of this task, and its release command.
    Landed(TaskId),
    /// The command of a hook (a rule that reacts to an event) that fired.
    Firing(FiringId),
    /// The checks that the landing queue runs on a merged tree, in which the work of this task was
    /// merged last. The queue stops these checks itself.
    Trial(TaskId),
}

impl fmt::Display for CommandOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandOwner::Attempt(attempt) => attempt.fmt(f),
            CommandOwner::Landed(task) | CommandOwner::Trial(task) => task.fmt(f),
            CommandOwner::Firing(firing) => firing.fmt(f),
        }
    }
}

/// All users' commands that run on this machine.
#[derive(Default)]
pub struct RunningCommands {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_id: u64,
    running: Vec<RunningCommand>,
    /// The attempts that are being stopped, so that no further command may start for them.
    stopped: BTreeSet<AttemptId>,
}

struct RunningCommand {
    id: u64,
    owner: CommandOwner,
    command: String,
    must_end: bool,
}

/// An entry in the list of running commands. It stands for one command of an owner, or for several
/// that run one after the other. Dropping the entry removes it from the list.
pub(crate) struct CommandEntry<'a> {
    commands: &'a RunningCommands,
    id: u64,
    owner: CommandOwner,
}

impl RunningCommands {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a command runs for `owner`. The record ends when the returned entry is dropped.
    pub(crate) fn register(&self, owner: CommandOwner, command: &str) -> CommandEntry<'_> {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.running.push(RunningCommand {
            id,
            owner,
            command: command.to_owned(),
            must_end: false,
        });
        CommandEntry {
            commands: self,
            id,
            owner,
        }
    }

    /// Requests that all commands of `owner` end. If `owner` is an attempt, no further command may
    /// start for it. Returns whether a command was running.
    pub(crate) fn request_end(&self, owner: CommandOwner) -> bool {
        let mut state = self.lock();
        if let CommandOwner::Attempt(attempt) = owner {
            state.stopped.insert(attempt);
        }
        let mut any_ran = false;
        for running in &mut state.running {
            if running.owner == owner {
                running.must_end = true;
                any_ran = true;
            }
        }
        any_ran
    }

    /// Waits until no command of `owner` runs, at most for `timeout`. Returns the commands that
    /// still run.
    pub(crate) fn wait_until_none(&self, owner: CommandOwner, timeout: Duration) -> Vec<String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            let still_running: Vec<String> = commands_of(&state, |candidate| candidate == owner);
            let now = Instant::now();
            if still_running.is_empty() || now >= deadline {
                return still_running;
            }
            let waited = self.changed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns a description of each command that runs for `owner`.
    pub(crate) fn describe_commands_of(&self, owner: CommandOwner) -> Vec<String> {
        commands_of(&self.lock(), |candidate| candidate == owner)
    }

    /// Returns the description of every running command with its owner. Leaves out the checks of
    /// the landing queue, because they end with the engine.
    pub(crate) fn all_with_owners(&self) -> Vec<(CommandOwner, String)> {
        let state = self.lock();
        let commands = state
            .running
            .iter()
            .filter(|running| !matches!(running.owner, CommandOwner::Trial(_)));
        commands
            .map(|running| (running.owner, running.command.clone()))
            .collect()
    }

    /// Returns the attempts for which a command runs on this machine.
    pub fn attempts_with_commands(&self) -> Vec<AttemptId> {
        let state = self.lock();
        let attempts = state
            .running
            .iter()
            .filter_map(|running| match running.owner {
                CommandOwner::Attempt(attempt) => Some(attempt),
                CommandOwner::Landed(_) | CommandOwner::Firing(_) | CommandOwner::Trial(_) => None,
            });
        attempts.collect()
    }
}

fn commands_of(state: &State, has_owner: impl Fn(CommandOwner) -> bool) -> Vec<String> {
    let commands = state
        .running
        .iter()
        .filter(|running| has_owner(running.owner));
    commands.map(|running| running.command.clone()).collect()
}

impl CommandEntry<'_> {
    /// Changes the description of the entry to the command that starts now.
    pub(crate) fn show_command(&self, command: &str) {
        let mut state = self.commands.lock();
        if let Some(running) = state
            .running
            .iter_mut()
            .find(|running| running.id == self.id)
        {
            command.clone_into(&mut running.command);
        }
    }

    /// Returns whether the command should go on running. Returns `false` once somebody has
    /// requested that the command end.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.commands.lock();
        let stopped = matches!(self.owner, CommandOwner::Attempt(attempt) if state.stopped.contains(&attempt));
        !stopped
            && state
                .running
                .iter()
                .any(|running| running.id == self.id && !running.must_end)
    }
}

impl Drop for CommandEntry<'_> {
    fn drop(&mut self) {
        self.commands
            .lock()
            .running
            .retain(|running| running.id != self.id);
        self.commands.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_a_command_that_must_end_is_waited_for() {
        let table = RunningCommands::default();
        let (owner, other_owner) = (
            CommandOwner::Attempt(AttemptId(1)),
            CommandOwner::Attempt(AttemptId(2)),
        );
        let entry = table.register(owner, "check `make test`");
        let other_entry = table.register(other_owner, "check `make test`");
        assert!(entry.is_wanted() && other_entry.is_wanted());
        assert!(table.request_end(owner));
        assert!(
            !entry.is_wanted() && other_entry.is_wanted(),
            "commands of another attempt were ended"
        );
        assert_eq!(
            table.wait_until_none(owner, Duration::ZERO),
            ["check `make test`"],
            "the running command is not listed"
        );
        entry.show_command("ratchet `ol gate`");
        assert_eq!(table.describe_commands_of(owner), ["ratchet `ol gate`"]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| table.wait_until_none(owner, Duration::from_secs(300)));
            drop(entry);
            assert!(waiter.join().unwrap().is_empty());
        });
        assert!(
            !table.register(owner, "check `make lint`").is_wanted(),
            "a further command may begin for the stopped attempt"
        );
    }

    #[test]
    fn commands_after_a_later_landing_of_the_same_task_may_run() {
        let (table, owner) = (RunningCommands::default(), CommandOwner::Landed(TaskId(5)));
        assert!(
            !table.request_end(owner),
            "a command was ended although none ran"
        );
        let first = table.register(owner, "`deploy`");
        assert!(table.request_end(owner) && !first.is_wanted());
        assert!(table.register(owner, "`deploy`").is_wanted());
    }
}
