//! Runners: processes on other machines that execute attempts. The daemon contains a runner of its
//! own, which is not listed.
//!
//! A runner is up as long as it sends heartbeats. When a runner is lost, its work is given to
//! others only after its programs must have ended: a runner stops its programs if it gets no answer
//! from the daemon for [`SELF_FENCE_TIMEOUT_MS`], and the daemon waits longer than that
//! ([`LOST_TIMEOUT_MS`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{Agent, MAX_TASKS};
use crate::attempt::{self, AttemptCause};
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now, RunnerName};
use crate::refusal::Refusal;
use crate::task::{self, NextAttempt};

/// Interval of a runner's heartbeats.
pub const HEARTBEAT_INTERVAL_MS: u64 = 15_000;
/// Time without an answer from the daemon after which a runner stops its programs.
pub const SELF_FENCE_TIMEOUT_MS: u64 = 45_000;
/// Time without a heartbeat after which a runner is lost.
pub const LOST_TIMEOUT_MS: u64 = 60_000;

/// The state of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    Up,
    /// It takes nothing new, and leaves when its attempts have ended.
    Draining,
    /// It has signed off.
    Offline,
    /// Its heartbeats stopped for too long.
    Lost,
}

/// A process on some machine that executes attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runner {
    pub name: RunnerName,
    /// Identity of its installation, which distinguishes it from another one with the same name.
    pub identity: String,
    /// The access token with which it registered. Requests with another token are refused.
    #[serde(default)]
    pub token: String,
    /// Labels of its features. An agent with labels runs only on a runner that has all of them.
    pub labels: Vec<String>,
    /// Agents whose programs it runs; empty means all.
    pub agents: Vec<AgentName>,
    /// Maximum number of simultaneous attempts.
    pub max_tasks: u32,
    /// Version of its program.
    pub version: String,
    pub state: RunnerState,
    /// Number of its current process. Requests of an older process with the same name are refused.
    pub session: u64,
    /// Time at which it is lost without another heartbeat, on the fleet clock.
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    #[serde(rename = "seen_wall")]
    pub last_seen_unix_ms: u64,
}

impl Runner {
    /// Returns whether it may run this agent's programs.
    pub fn can_run(&self, agent: &Agent) -> bool {
        (self.agents.is_empty() || self.agents.contains(&agent.name))
            && agent
                .profile
                .labels
                .iter()
                .all(|label| self.labels.contains(label))
    }

    /// Returns whether its programs may be running.
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

/// A runner's registration; see [`register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterRunner {
    pub name: RunnerName,
    pub identity: String,
    /// The server sets the access token and ignores a sent value.
    #[serde(default)]
    pub token: String,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default)]
    pub agents: Vec<AgentName>,
    pub max_tasks: u32,
    #[serde(default)]
    pub version: String,
}

/// Registers a runner, or a known runner that comes back. Returns its session number.
pub fn register(draft: &mut Draft, request: RegisterRunner, now: Now) -> Result<u64, Refusal> {
    if !(1..=MAX_TASKS).contains(&request.max_tasks) {
        return Err(Refusal::invalid(
            format!(
                "a runner takes 1 to {MAX_TASKS} tasks at once, not {}",
                request.max_tasks
            ),
            "give a number in that range: --max-tasks 4",
        ));
    }
    if request.identity.is_empty() || request.identity.len() > 100 || request.version.len() > 100 {
        return Err(Refusal::invalid(
            "a runner's identity has 1 to 100 characters, its version at most 100",
            "start it with regatta runner, which sets both",
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
            format!("{label:?} is not a label"),
            "a label has up to 64 letters, digits and - _ . :",
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
    // Another installation does not have the workspaces of the old one.
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

/// Returns the runner, if `session` is its current process.
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

/// Records a heartbeat.
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

/// Drains a runner: it takes nothing new, and leaves when its attempts have ended.
pub fn drain(draft: &mut Draft, name: &RunnerName, reason: &str) -> Result<(), Refusal> {
    match find(draft.board(), name)?.state {
        RunnerState::Up => record_state(draft, name, RunnerState::Draining, reason),
        RunnerState::Draining | RunnerState::Offline | RunnerState::Lost => {}
    }
    Ok(())
}

/// Signs a runner off, after nothing of it runs any more.
pub fn sign_off(draft: &mut Draft, name: &RunnerName, session: u64) -> Result<(), Refusal> {
    require_session(draft.board(), name, session)?;
    lose_attempts(draft, name, "its runner has left")?;
    record_state(draft, name, RunnerState::Offline, "it signed off");
    Ok(())
}

/// Removes a runner that is not up. Unfinished work on its machine is given up.
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

/// Marks a runner as lost if its heartbeats stopped for too long. Its tasks wait for another
/// runner, without counting a failure.
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

/// Renews the lease of each runner that is up, after the daemon was down.
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

/// Ends the attempts of a runner as lost.
fn lose_attempts(draft: &mut Draft, name: &RunnerName, reason: &str) -> Result<(), Refusal> {
    let lost: Vec<_> = draft
        .board()
        .attempts
        .values()
        .filter(|attempt| attempt.runner.as_ref() == Some(name))
        .cloned()
        .collect();
    for attempt in lost {
        // The task of an attempt that is being stopped has already been returned.
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

/// Returns the runner with this name, or a refusal.
pub fn find(board: &Board, name: &RunnerName) -> Result<Arc<Runner>, Refusal> {
    board
        .runners
        .get(name)
        .cloned()
        .ok_or_else(|| Refusal::NoSuchRunner {
            runner: name.clone(),
        })
}

/// Returns the number of a runner's attempts.
pub fn running_attempts(board: &Board, name: &RunnerName) -> u32 {
    board
        .attempts
        .values()
        .filter(|attempt| attempt.runner.as_ref() == Some(name))
        .count() as u32
}

/// Returns the reason why a runner takes no more attempts of this agent, if there is one. `None`
/// stands for the daemon's own runner.
pub(crate) fn full_reason(
    board: &Board,
    runner: Option<&RunnerName>,
    agent: &Agent,
) -> Option<String> {
    let Some(name) = runner else {
        return crate::schedule::machine_full_reason(board).or_else(|| {
            let labels = &agent.profile.labels;
            (!labels.is_empty()).then(|| {
                format!(
                    "{} runs only on a runner with {}",
                    agent.name,
                    labels.join(", ")
                )
            })
        });
    };
    let Some(runner) = board.runners.get(name) else {
        return Some(format!("there is no runner {name}"));
    };
    if runner.state != RunnerState::Up {
        return Some(format!("the runner {name} takes nothing new"));
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

/// Returns the reason why no runner can run an agent, if that is so.
pub fn no_runner_reason(board: &Board, agent: &Agent) -> Option<String> {
    let labels = &agent.profile.labels;
    if labels.is_empty()
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
        labels.join(", "),
        labels.join(",")
    ))
}

/// Returns the reason why an agent that needs a runner has none now, if all its runners were lost
/// or have left. The result is derived from the runners, so the agent is back as soon as one of
/// them registers.
pub fn runner_away_reason(board: &Board, agent: &Agent) -> Option<String> {
    if agent.profile.labels.is_empty() {
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
