//! A runner is a process, usually on another machine, that runs agents' programs for the daemon.
//! The daemon's own built-in runner is not listed here.
//!
//! A runner counts as up as long as it sends heartbeats. When the heartbeats stop, the daemon waits
//! for [`LOST_TIMEOUT_MS`] before it gives the runner's tasks to others. By then the runner's
//! programs must have ended, because a runner stops them when it gets no answer from the daemon for
//! [`SELF_FENCE_TIMEOUT_MS`], which is shorter.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, MAX_TASKS};
use crate::attempt::{self, AttemptCause};
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now, RunnerName};
use crate::refusal::Refusal;
use crate::task::{self, NextAttempt};

/// Interval at which a runner sends heartbeats to the daemon.
pub const HEARTBEAT_INTERVAL_MS: u64 = 15_000;
/// Time without an answer from the daemon after which a runner stops the agents' programs that it
/// runs.
pub const SELF_FENCE_TIMEOUT_MS: u64 = 45_000;
/// Time without a heartbeat after which the daemon counts a runner as lost and gives its tasks to
/// others.
pub const LOST_TIMEOUT_MS: u64 = 60_000;

/// The state of a runner as the daemon sees it, which decides whether the runner gets work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    Up,
    /// The runner takes no new attempts, and signs off when its running attempts have ended.
    Draining,
    /// The runner has signed off, and runs nothing.
    Offline,
    /// The runner has sent no heartbeat for too long, so its attempts were given up.
    Lost,
}

/// A process, usually on another machine, that runs agents' programs for the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runner {
    pub name: RunnerName,
    /// Identity of the runner's installation, which distinguishes the runner from a runner with the
    /// same name on another machine.
    pub identity: String,
    /// The access token with which the runner registered. Its requests with another token are
    /// refused.
    #[serde(default)]
    pub token: String,
    /// Words for what the machine offers, such as `gpu`. An agent with labels runs only on a runner
    /// that has all of them.
    pub labels: Vec<String>,
    /// Agents whose programs the runner may run; empty means all.
    pub agents: Vec<AgentName>,
    /// Maximum number of attempts that the runner runs at the same time.
    pub max_tasks: u32,
    /// Version of the runner's Regatta program.
    pub version: String,
    pub state: RunnerState,
    /// Number of the runner's latest registration. Requests of an older process with the same name
    /// are refused.
    pub session: u64,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the runner
    /// counts as lost unless another heartbeat arrives.
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    #[serde(rename = "seen_wall")]
    pub last_seen_unix_ms: u64,
}

impl Runner {
    /// Returns whether the runner may run this agent's program: the agent is permitted, and the
    /// runner has all labels that the agent needs.
    pub fn can_run(&self, agent: &Agent) -> bool {
        (self.agents.is_empty() || self.agents.contains(&agent.name))
            && agent
                .profile
                .labels
                .iter()
                .all(|label| self.labels.contains(label))
    }

    /// Returns whether the runner is connected or draining, so that its programs may be running.
    pub fn is_present(&self) -> bool {
        matches!(self.state, RunnerState::Up | RunnerState::Draining)
    }
}

facts! {
    RunnerRegistered { runner: Runner }
    RunnerRenewed { runner: RunnerName, expires_at: u64 }
    RunnerChanged { runner: RunnerName, state: RunnerState, reason: String }
    RunnerRemoved { runner: RunnerName }
}

/// A runner's request to take part; see [`register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterRunner {
    /// The name of the runner.
    pub name: RunnerName,
    /// A text that distinguishes this installation from another one with the same name.
    pub identity: String,
    /// The access token of the request. The server sets it and ignores a value that the runner
    /// sent.
    #[serde(default)]
    pub token: String,
    /// Words for what the machine offers, such as `gpu`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The agents whose programs the runner may run. If empty, all.
    #[serde(default)]
    pub agents: Vec<AgentName>,
    /// The number of attempts that the runner runs at the same time.
    pub max_tasks: u32,
    /// The version of the runner's program.
    #[serde(default)]
    pub version: String,
}

/// Registers a new runner, or a known runner that connects again. Returns the session number that
/// further requests of the runner must contain.
pub fn register(draft: &mut Draft, request: RegisterRunner, now: Now) -> Result<u64, Refusal> {
    if !(1..=MAX_TASKS).contains(&request.max_tasks) {
        return Err(Refusal::invalid(
            format!(
                "a runner can take 1 to {MAX_TASKS} tasks at once, not {}",
                request.max_tasks
            ),
            "give a number in that range: --max-tasks 4",
        ));
    }
    if request.identity.is_empty() || request.identity.len() > 100 || request.version.len() > 100 {
        return Err(Refusal::invalid(
            "the runner's identity must have 1 to 100 characters, and its version at most 100",
            "start the runner with the command regatta runner, which sets both",
        ));
    }
    let is_invalid = |label: &&String| {
        label.is_empty()
            || label.len() > 64
            || !label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    if let Some(label) = request.labels.iter().find(is_invalid) {
        return Err(Refusal::invalid(
            format!("{label:?} is not a valid label for a runner"),
            "use up to 64 letters, digits and - _ . : for each label",
        ));
    }
    let known = draft.board().runners.get(&request.name).cloned();
    if let Some(known) = &known
        && (known.identity != request.identity || known.token != request.token)
        && known.is_present()
    {
        return Err(Refusal::InUse {
            what: format!("runner {}", request.name),
            by: "another machine".into(),
        });
    }
    // If another machine now has this runner name, that machine does not have the workspaces of the
    // old one, so the attempts of the old machine are lost.
    if known
        .as_ref()
        .is_some_and(|runner| runner.identity != request.identity)
    {
        lose_attempts(
            draft,
            &request.name,
            "its runner was replaced by another machine",
        )?;
    }
    let session = draft.next_revision();
    let runner = Runner {
        name: request.name,
        identity: request.identity,
        token: request.token,
        labels: request.labels,
        agents: request.agents,
        max_tasks: request.max_tasks,
        version: request.version,
        state: RunnerState::Up,
        session,
        expires_fleet_ms: Some(now.fleet_ms + LOST_TIMEOUT_MS),
        since_unix_ms: now.unix_ms,
        last_seen_unix_ms: now.unix_ms,
    };
    draft.record(Event::RunnerRegistered(RunnerRegistered { runner }));
    Ok(session)
}

/// Returns the runner, or a refusal if `session` is not its latest registration or it is not
/// connected.
pub fn require_session(
    board: &Board,
    name: &RunnerName,
    session: u64,
) -> Result<Arc<Runner>, Refusal> {
    let runner = find(board, name)?;
    if runner.session != session || !runner.is_present() {
        return Err(Refusal::StaleRunner {
            runner: name.clone(),
        });
    }
    Ok(runner)
}

/// Records a runner's heartbeat, so that it does not count as lost for another [`LOST_TIMEOUT_MS`].
pub fn heartbeat(
    draft: &mut Draft,
    name: &RunnerName,
    session: u64,
    now: Now,
) -> Result<(), Refusal> {
    require_session(draft.board(), name, session)?;
    draft.record(Event::RunnerRenewed(RunnerRenewed {
        runner: name.clone(),
        expires_at: now.fleet_ms + LOST_TIMEOUT_MS,
    }));
    Ok(())
}

/// Drains a runner: it gets no new attempts. Its running attempts continue, and it stays connected.
pub fn drain(draft: &mut Draft, name: &RunnerName, reason: &str) -> Result<(), Refusal> {
    match find(draft.board(), name)?.state {
        RunnerState::Up => record_state(draft, name, RunnerState::Draining, reason),
        RunnerState::Draining | RunnerState::Offline | RunnerState::Lost => {}
    }
    Ok(())
}

/// Signs a runner off because it is leaving. Attempts that were still assigned to it are given up
/// as lost.
pub fn sign_off(draft: &mut Draft, name: &RunnerName, session: u64) -> Result<(), Refusal> {
    require_session(draft.board(), name, session)?;
    lose_attempts(draft, name, "its runner has left")?;
    record_state(draft, name, RunnerState::Offline, "it signed off");
    Ok(())
}

/// Removes a runner that is not connected from the list. Unfinished work on its machine is given
/// up.
pub fn remove(draft: &mut Draft, name: &RunnerName) -> Result<(), Refusal> {
    if find(draft.board(), name)?.is_present() {
        return Err(Refusal::InUse {
            what: format!("runner {name}"),
            by: "its own process, which is up".into(),
        });
    }
    draft.record(Event::RunnerRemoved(RunnerRemoved {
        runner: name.clone(),
    }));
    Ok(())
}

/// Marks a runner as lost if it has sent no heartbeat for too long. The runner's tasks wait for
/// another runner, and the lost attempts do not count as failures of the tasks.
pub(crate) fn expire(draft: &mut Draft, name: &RunnerName, now: Now) -> Result<(), Refusal> {
    let is_expired = draft.board().runners.get(name).is_some_and(|runner| {
        runner
            .expires_fleet_ms
            .is_some_and(|deadline| deadline <= now.fleet_ms)
    });
    if is_expired {
        lose_attempts(draft, name, &format!("its runner {name} was lost"))?;
        record_state(draft, name, RunnerState::Lost, "its heartbeats stopped");
    }
    Ok(())
}

/// Gives each connected runner the full time to send its next heartbeat, after a restart of the
/// daemon.
pub(crate) fn renew_leases(draft: &mut Draft, now: Now) {
    let present: Vec<RunnerName> = draft
        .board()
        .runners
        .values()
        .filter(|runner| runner.is_present())
        .map(|runner| runner.name.clone())
        .collect();
    for runner in present {
        draft.record(Event::RunnerRenewed(RunnerRenewed {
            runner,
            expires_at: now.fleet_ms + LOST_TIMEOUT_MS,
        }));
    }
}

fn record_state(draft: &mut Draft, name: &RunnerName, state: RunnerState, reason: &str) {
    draft.record(Event::RunnerChanged(RunnerChanged {
        runner: name.clone(),
        state,
        reason: reason.to_owned(),
    }));
}

/// Ends all attempts of a runner as lost, and lets their tasks be tried again.
fn lose_attempts(draft: &mut Draft, name: &RunnerName, reason: &str) -> Result<(), Refusal> {
    let lost: Vec<_> = draft
        .board()
        .attempts
        .values()
        .filter(|attempt| attempt.runner.as_ref() == Some(name))
        .cloned()
        .collect();
    for attempt in lost {
        // If an attempt was already being stopped, its task was made available for another try when
        // the stop began, so only the other attempts' tasks are made available here.
        if attempt.stopping.is_none() {
            task::retry_after(
                draft,
                attempt.task,
                AttemptCause::Lost,
                reason,
                NextAttempt::default(),
            )?;
        }
        attempt::end(draft, attempt.id, AttemptCause::Lost, reason);
    }
    Ok(())
}

/// Returns the runner (process for agents' programs) with this name, or a refusal if there is none.
pub fn find(board: &Board, name: &RunnerName) -> Result<Arc<Runner>, Refusal> {
    board
        .runners
        .get(name)
        .cloned()
        .ok_or_else(|| Refusal::NoSuchRunner {
            runner: name.clone(),
        })
}

/// Returns the number of attempts that run on the runner with this name.
pub fn running_attempts(board: &Board, name: &RunnerName) -> u32 {
    board
        .attempts
        .values()
        .filter(|attempt| attempt.runner.as_ref() == Some(name))
        .count() as u32
}

/// Returns the reason why a runner takes no more attempts of this agent, or `None` if it takes
/// more. For `runner`, `None` means the daemon's built-in runner.
pub(crate) fn full_reason(
    board: &Board,
    runner: Option<&RunnerName>,
    agent: &Agent,
) -> Option<String> {
    let Some(name) = runner else {
        return crate::schedule::machine_full_reason(board).or_else(|| {
            agent.needs_runner().then(|| {
                format!(
                    "{} runs only on a runner with {}",
                    agent.name,
                    agent.profile.labels.join(", ")
                )
            })
        });
    };
    let Some(runner) = board.runners.get(name) else {
        return Some(format!("there is no runner {name}"));
    };
    if runner.state != RunnerState::Up {
        return Some(format!("the runner {name} takes no new attempts"));
    }
    if !runner.can_run(agent) {
        return Some(format!("the runner {name} does not run {}", agent.name));
    }
    let running = running_attempts(board, name);
    (running >= runner.max_tasks).then(|| {
        format!(
            "the runner {name} runs {running} of at most {}",
            runner.max_tasks
        )
    })
}

/// Returns a sentence if an agent needs labels and no connected runner has them; otherwise `None`.
pub fn no_runner_reason(board: &Board, agent: &Agent) -> Option<String> {
    if !agent.needs_runner()
        || board
            .runners
            .values()
            .any(|runner| runner.state == RunnerState::Up && runner.can_run(agent))
    {
        return None;
    }
    Some(format!(
        "{} needs a runner with the labels {}, and none is up: regatta runner --labels {}",
        agent.name,
        agent.profile.labels.join(", "),
        agent.profile.labels.join(",")
    ))
}

/// Returns a sentence if an agent needs a runner and all runners that could run it were lost or
/// have left; otherwise `None`. The result changes as soon as such a runner registers again.
pub fn runner_away_reason(board: &Board, agent: &Agent) -> Option<String> {
    if !agent.needs_runner() {
        return None;
    }
    let runners = || {
        board
            .runners
            .values()
            .filter(|runner| runner.can_run(agent))
    };
    if runners().any(|runner| runner.is_present()) {
        return None;
    }
    let last_runner = runners().max_by_key(|runner| (runner.last_seen_unix_ms, runner.session))?;
    let fate = if last_runner.state == RunnerState::Lost {
        "was lost"
    } else {
        "has left"
    };
    Some(format!("its runner {} {fate}", last_runner.name))
}
