//! A refusal is the answer to a command that is not allowed. The command changed nothing, and the
//! refusal names the reason.
//!
//! Each kind of refusal has a code for scripts, a class (from which the command line's exit code
//! and the API's HTTP status follow), a message, and a hint with the next step.

use serde::{Deserialize, Serialize};

use crate::claim::ClaimOwner;
use crate::command::Actor;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, ClaimId, LandingId, MissionId, ProjectName, RequestKey,
    RunnerName, TaskId, TeamName,
};
use crate::pattern::Uri;
use crate::task::TaskStatus;

/// The holder of a claim (lease) that conflicts with a requested one, with the claimed URI and the
/// remaining time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimHolder {
    pub claim: Option<ClaimId>,
    pub owner: ClaimOwner,
    pub uri: Uri,
    /// Milliseconds until the claim expires if its holder does not renew it; `None` if it does not
    /// expire.
    pub ends_in_ms: Option<u64>,
    pub memo: String,
}

/// The class of a refusal, from which the command's exit code and the HTTP status follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// The request itself is wrong: exit 2, HTTP 400.
    Usage,
    /// The request names something that does not exist: exit 1, HTTP 404.
    Missing,
    /// The item's present state does not allow the request: exit 1, HTTP 409.
    State,
    /// Somebody else already holds the requested thing or did the requested action, or the
    /// request's token is outdated: exit 5, HTTP 409.
    Conflict,
    /// The item changed since the caller last saw it: exit 5, HTTP 412.
    Changed,
    /// The caller's access token does not allow the request: exit 1, HTTP 403.
    Forbidden,
}

/// The reason why a command was refused and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Refusal {
    Invalid {
        what: String,
        hint: String,
    },
    /// The request names something that does not exist. Used for kinds of things that have no
    /// variant of their own in this enum.
    Missing {
        what: String,
        hint: String,
    },
    /// The access token of an attempt does not allow the request.
    NotYours {
        what: String,
        hint: String,
    },
    /// The caller already has as many things of this kind as it may have.
    TooMany {
        what: String,
        hint: String,
    },
    ClaimHeld {
        holders: Vec<ClaimHolder>,
    },
    Deadlock {
        cycle: Vec<ClaimOwner>,
    },
    ClaimEnded {
        claim: ClaimId,
    },
    StaleClaimToken {
        claim: ClaimId,
    },
    NoSuchProject {
        project: ProjectName,
    },
    NoSuchAgent {
        agent: AgentName,
    },
    NoSuchTask {
        task: TaskId,
    },
    NoSuchRunner {
        runner: RunnerName,
    },
    StaleRunner {
        runner: RunnerName,
    },
    NoSuchMission {
        mission: MissionId,
    },
    NoSuchLanding {
        landing: LandingId,
    },
    NoSuchTeam {
        team: TeamName,
    },
    TeamRuns {
        team: TeamName,
        cannot: String,
    },
    #[serde(rename = "already_there")]
    AlreadyExists {
        what: String,
    },
    InUse {
        what: String,
        by: String,
    },
    AtCapacity {
        agent: AgentName,
        running: u32,
        max: u32,
    },
    RunByRegatta {
        agent: AgentName,
    },
    NoCapacity {
        running: u32,
        max: u32,
    },
    #[serde(rename = "illegal")]
    IllegalTransition {
        task: TaskId,
        from: TaskStatus,
        to: TaskStatus,
    },
    Finished {
        task: TaskId,
        status: TaskStatus,
    },
    StaleAttempt {
        task: TaskId,
        attempt: AttemptId,
        live: Option<AttemptId>,
    },
    Cycle {
        tasks: Vec<TaskId>,
    },
    NotOffered {
        task: TaskId,
        agent: AgentName,
    },
    NothingToLand {
        task: TaskId,
        status: TaskStatus,
    },
    NothingToUndo {
        task: TaskId,
        status: TaskStatus,
    },
    PersonNeeded {
        task: TaskId,
        reason: String,
    },
    StaleLanding {
        landing: LandingId,
    },
    KeyReused {
        key: RequestKey,
    },
    AlreadyAnswered {
        approval: ApprovalId,
        by: String,
    },
    Changed {
        what: String,
        #[serde(rename = "since")]
        seen_revision: u64,
        #[serde(rename = "at")]
        current_revision: u64,
    },
    #[serde(rename = "taken_back")]
    AlreadyUndone {
        task: TaskId,
        by: TaskId,
        has_landed: bool,
    },
}

impl Refusal {
    /// Rewords the refusal for its reader: an agent that polls and is itself at capacity is
    /// addressed as "you".
    pub(crate) fn addressed_to(self, by: &Actor) -> Refusal {
        match self {
            Refusal::AtCapacity {
                agent,
                running,
                max,
            } if *by == Actor::Agent(agent.clone()) => Refusal::NoCapacity { running, max },
            other => other,
        }
    }

    /// Builds the refusal of an invalid request, such as one with a value that is not permitted.
    /// `what` is the message for the caller, and `hint` is the next step.
    pub(crate) fn invalid(what: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal::Invalid {
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// Builds the refusal of a request that names something unknown. `what` is the message for the
    /// caller, and `hint` is the next step. The command exits with 1.
    pub fn missing(what: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal::Missing {
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// Builds the refusal of a request that the access token of an attempt does not allow. `what` is
    /// the message for the caller, and `hint` is the next step.
    pub(crate) fn not_yours(what: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal::NotYours {
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// Returns the refusal's code, which scripts can test and which never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Invalid { .. } => "invalid",
            Refusal::Missing { .. } => "not_found",
            Refusal::NotYours { .. } => "not_yours",
            Refusal::TooMany { .. } => "too_many",
            Refusal::ClaimHeld { .. } => "claim_held",
            Refusal::Deadlock { .. } => "deadlock",
            Refusal::ClaimEnded { .. } => "claim_ended",
            Refusal::StaleClaimToken { .. } => "stale_token",
            Refusal::NoSuchProject { .. } => "no_such_project",
            Refusal::NoSuchAgent { .. } => "no_such_agent",
            Refusal::NoSuchTask { .. } => "no_such_task",
            Refusal::NoSuchRunner { .. } => "no_such_runner",
            Refusal::StaleRunner { .. } => "stale_runner",
            Refusal::NoSuchMission { .. } => "no_such_mission",
            Refusal::NoSuchLanding { .. } => "no_such_landing",
            Refusal::NoSuchTeam { .. } => "no_such_team",
            Refusal::TeamRuns { .. } => "team_runs",
            Refusal::AlreadyExists { .. } => "already_exists",
            Refusal::InUse { .. } => "in_use",
            Refusal::AtCapacity { .. } => "at_capacity",
            Refusal::RunByRegatta { .. } => "run_by_regatta",
            Refusal::NoCapacity { .. } => "no_capacity",
            Refusal::IllegalTransition { .. } => "illegal_transition",
            Refusal::Finished { .. } => "already_finished",
            Refusal::StaleAttempt { .. } => "stale_attempt",
            Refusal::Changed { .. } => "changed",
            Refusal::Cycle { .. } => "cycle",
            Refusal::NotOffered { .. } => "not_offered",
            Refusal::NothingToLand { .. } => "nothing_to_land",
            Refusal::NothingToUndo { .. } => "nothing_to_undo",
            Refusal::AlreadyUndone { .. } => "taken_back",
            Refusal::PersonNeeded { .. } => "person_needed",
            Refusal::StaleLanding { .. } => "stale_landing",
            Refusal::KeyReused { .. } => "key_reused",
            Refusal::AlreadyAnswered { .. } => "already_answered",
        }
    }

    /// Returns the class of the refusal, from which the command's exit code and the HTTP status
    /// follow.
    pub fn class(&self) -> RefusalClass {
        match self {
            Refusal::Invalid { .. } | Refusal::Cycle { .. } => RefusalClass::Usage,
            Refusal::Missing { .. }
            | Refusal::NoSuchProject { .. }
            | Refusal::NoSuchAgent { .. }
            | Refusal::NoSuchTask { .. }
            | Refusal::NoSuchRunner { .. }
            | Refusal::NoSuchMission { .. }
            | Refusal::NoSuchTeam { .. }
            | Refusal::NoSuchLanding { .. } => RefusalClass::Missing,
            Refusal::ClaimHeld { .. }
            | Refusal::Deadlock { .. }
            | Refusal::ClaimEnded { .. }
            | Refusal::StaleClaimToken { .. }
            | Refusal::StaleAttempt { .. }
            | Refusal::StaleRunner { .. }
            | Refusal::StaleLanding { .. }
            | Refusal::KeyReused { .. }
            | Refusal::AlreadyAnswered { .. }
            | Refusal::AlreadyExists { .. }
            | Refusal::TeamRuns { .. }
            | Refusal::TooMany { .. }
            | Refusal::InUse { .. } => RefusalClass::Conflict,
            Refusal::Changed { .. } => RefusalClass::Changed,
            Refusal::NotYours { .. } => RefusalClass::Forbidden,
            Refusal::AtCapacity { .. }
            | Refusal::RunByRegatta { .. }
            | Refusal::NoCapacity { .. }
            | Refusal::IllegalTransition { .. }
            | Refusal::Finished { .. }
            | Refusal::NotOffered { .. }
            | Refusal::NothingToLand { .. }
            | Refusal::NothingToUndo { .. }
            | Refusal::AlreadyUndone { .. }
            | Refusal::PersonNeeded { .. } => RefusalClass::State,
        }
    }

    /// Returns whether the same request may succeed if it is repeated later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Refusal::ClaimHeld { .. }
                | Refusal::AtCapacity { .. }
                | Refusal::NoCapacity { .. }
                | Refusal::Deadlock { .. }
        )
    }

    /// Returns the id of the item that the refusal is about, if there is one.
    pub fn subject_id(&self) -> Option<String> {
        match self {
            Refusal::ClaimHeld { holders } => holders
                .first()
                .and_then(|claim_holder| claim_holder.claim)
                .map(|id| id.to_string()),
            Refusal::ClaimEnded { claim } | Refusal::StaleClaimToken { claim } => {
                Some(claim.to_string())
            }
            Refusal::NoSuchTask { task }
            | Refusal::IllegalTransition { task, .. }
            | Refusal::Finished { task, .. }
            | Refusal::StaleAttempt { task, .. }
            | Refusal::NotOffered { task, .. }
            | Refusal::NothingToLand { task, .. }
            | Refusal::NothingToUndo { task, .. }
            | Refusal::AlreadyUndone { task, .. }
            | Refusal::PersonNeeded { task, .. } => Some(task.to_string()),
            Refusal::AtCapacity { agent, .. }
            | Refusal::NoSuchAgent { agent }
            | Refusal::RunByRegatta { agent } => Some(agent.to_string()),
            _ => None,
        }
    }

    /// Returns the message for the caller: what is refused and why, as one sentence without a
    /// period.
    pub fn message(&self) -> String {
        match self {
            Refusal::Invalid { what, .. }
            | Refusal::Missing { what, .. }
            | Refusal::NotYours { what, .. }
            | Refusal::TooMany { what, .. } => what.clone(),
            Refusal::ClaimHeld { holders } => {
                let Some(first) = holders.first() else {
                    return "the claim is held".into();
                };
                let more = if holders.len() > 1 {
                    format!(" and {} more", holders.len() - 1)
                } else {
                    String::new()
                };
                let memo = if first.memo.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", first.memo)
                };
                match first.ends_in_ms {
                    Some(ms) => format!(
                        "{} is held by {}{memo}, for {} more unless renewed{more}",
                        first.uri,
                        first.owner,
                        seconds(ms)
                    ),
                    None => format!("{} is held by {}{memo}{more}", first.uri, first.owner),
                }
            }
            Refusal::Deadlock { cycle } => {
                let names: Vec<String> = cycle.iter().map(ToString::to_string).collect();
                format!("deadlock: {} wait for each other", names.join(" and "))
            }
            Refusal::ClaimEnded { claim } => {
                format!("{claim} has ended: it was released, or it expired")
            }
            Refusal::StaleClaimToken { claim } => {
                format!("that is not the token of {claim}, so nothing was changed")
            }
            Refusal::NoSuchProject { project } => format!("there is no project {project}"),
            Refusal::NoSuchAgent { agent } => format!("there is no agent {agent}"),
            Refusal::NoSuchTask { task } => format!("there is no task {task}"),
            Refusal::NoSuchRunner { runner } => format!("there is no runner {runner}"),
            Refusal::StaleRunner { runner } => {
                format!("another process now runs as runner {runner}, or the runner was given up")
            }
            Refusal::NoSuchMission { mission } => format!("there is no running mission {mission}"),
            Refusal::NoSuchTeam { team } => format!("there is no team {team}"),
            Refusal::TeamRuns { team, cannot } => {
                format!("team {team} is running, so this cannot be done now: {cannot}")
            }
            Refusal::NoSuchLanding { landing } => {
                format!("there is no landing {landing} in the queue")
            }
            Refusal::AlreadyExists { what } => {
                format!("{what} already exists with different settings")
            }
            Refusal::InUse { what, by } => format!("{what} is in use by {by}"),
            Refusal::AtCapacity {
                agent,
                running,
                max,
            } => {
                format!("Agent \"{agent}\" is at capacity ({running}/{max} tasks)")
            }
            Refusal::RunByRegatta { agent } => {
                format!(
                    "Regatta runs {agent} itself and starts its program for each task it is given"
                )
            }
            Refusal::NoCapacity { running, max } => {
                format!("You have no capacity ({running}/{max} tasks). Complete a task first.")
            }
            Refusal::IllegalTransition { task, from, to } if from.label() == to.label() => {
                format!(
                    "{task} {}, and this request cannot change that",
                    from.phrase()
                )
            }
            Refusal::IllegalTransition { task, from, to } => {
                format!("{task} {}, and cannot become {}", from.phrase(), to.label())
            }
            Refusal::Finished { task, status } => format!("{task} {}", status.already_phrase()),
            Refusal::Changed {
                what,
                seen_revision: since,
                current_revision: at,
            } => {
                format!(
                    "{what} changed at revision {at}; you have seen it only up to revision {since}"
                )
            }
            Refusal::StaleAttempt {
                task,
                attempt,
                live: Some(live),
            } => {
                format!("{attempt} is no longer the current attempt of {task}: {live} is")
            }
            Refusal::StaleAttempt {
                task,
                attempt,
                live: None,
            } => {
                format!(
                    "{attempt} is no longer the current attempt of {task}, or its token is wrong"
                )
            }
            Refusal::Cycle { tasks } => {
                let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
                format!(
                    "these tasks would wait for each other forever: {}",
                    names.join(" → ")
                )
            }
            Refusal::NotOffered { task, agent } => format!("{task} is not offered to {agent}"),
            Refusal::NothingToLand { task, status } => {
                format!(
                    "{task} {} and has no finished work to land",
                    status.phrase()
                )
            }
            Refusal::NothingToUndo { task, status } => {
                format!(
                    "{task} {} and has nothing on the trunk to undo",
                    status.phrase()
                )
            }
            Refusal::AlreadyUndone {
                task,
                by,
                has_landed: true,
            } => format!("{task} landed, and {by} undid it"),
            Refusal::AlreadyUndone {
                task,
                by,
                has_landed: false,
            } => format!("{by} is already undoing {task}"),
            Refusal::PersonNeeded { task, reason } => {
                format!("an agent cannot approve {task}: {reason}")
            }
            Refusal::KeyReused { key } => {
                format!("the request key {key} was used for another request")
            }
            Refusal::AlreadyAnswered { approval, by } => format!("{approval} was answered by {by}"),
            Refusal::StaleLanding { landing } => {
                format!("this report on {landing} is outdated and changes nothing")
            }
        }
    }

    /// Returns the next step for the caller, usually a command to type.
    pub fn hint(&self) -> String {
        match self {
            Refusal::Invalid { hint, .. }
            | Refusal::Missing { hint, .. }
            | Refusal::NotYours { hint, .. }
            | Refusal::TooMany { hint, .. } => hint.clone(),
            Refusal::ClaimHeld { .. } => {
                "wait for it with --wait 30s, or see who holds what: regatta claim list".into()
            }
            Refusal::Deadlock { .. } => {
                "release what you hold first, or ask for everything in one claim".into()
            }
            Refusal::ClaimEnded { .. } => "acquire it again: regatta claim acquire URI".into(),
            Refusal::StaleClaimToken { .. } => {
                "use the token that regatta claim acquire printed; see who holds the claim: \
                 regatta claim list"
                    .into()
            }
            Refusal::NoSuchProject { .. } => {
                "see them with regatta project list, or add this repository: regatta init".into()
            }
            Refusal::NoSuchAgent { agent } => format!(
                "see them: regatta agent list; add it: regatta agent add {agent} --runtime outside \
                 (or --preset NAME, if Regatta runs its program)"
            ),
            Refusal::NoSuchTask { .. } => "see them with regatta task list".into(),
            Refusal::NoSuchRunner { .. } => "see regatta runner list".into(),
            Refusal::StaleRunner { .. } => {
                "register again; regatta runner does so automatically".into()
            }
            Refusal::NoSuchMission { .. } => "see what runs with regatta status".into(),
            Refusal::NoSuchLanding { .. } => "see the queue with regatta queue".into(),
            Refusal::NoSuchTeam { .. } => "see them with regatta team list".into(),
            Refusal::TeamRuns { team, .. } => format!(
                "stop it, edit it, launch it again: regatta team stop {team}, regatta team edit \
                 {team}, regatta team relaunch {team}"
            ),
            Refusal::AlreadyExists { .. } => {
                "choose another name, or change the existing one".into()
            }
            Refusal::InUse { .. } => "wait until that has ended, or stop it: regatta stop".into(),
            Refusal::AtCapacity { .. } => {
                "offer it (--offer), queue it (--queue), or wait until a task has finished".into()
            }
            Refusal::RunByRegatta { agent } => format!(
                "give it a task: regatta assign T5 {agent}; to do one yourself in its name: \
                 regatta task poll --as {agent} --by-hand"
            ),
            Refusal::NoCapacity { .. } => {
                "finish one with regatta task finish, or raise max_tasks".into()
            }
            Refusal::IllegalTransition { task, .. } => {
                format!("see where it is: regatta show {task}")
            }
            Refusal::Finished { task, .. } => format!("see what it did: regatta show {task}"),
            Refusal::Changed { what, .. } => format!("look at it again: regatta show {what}"),
            Refusal::StaleAttempt { .. } => {
                "stop working on it and poll again: regatta task poll".into()
            }
            Refusal::Cycle { .. } => "remove one of these blockers".into(),
            Refusal::NotOffered { task, .. } => format!("see who has it: regatta show {task}"),
            Refusal::NothingToLand { task, .. } => format!("see why: regatta why {task}"),
            Refusal::PersonNeeded { task, .. } => format!("ask a person: regatta land {task}"),
            Refusal::NothingToUndo { task, .. } => format!("see what it did: regatta show {task}"),
            Refusal::AlreadyUndone {
                by,
                has_landed: true,
                ..
            } => format!("to bring it back: regatta undo {by}"),
            Refusal::AlreadyUndone {
                by,
                has_landed: false,
                ..
            } => format!("see how far that is: regatta why {by}"),
            Refusal::KeyReused { .. } => "use a new key for each request".into(),
            Refusal::AlreadyAnswered { .. } => "see what is open: regatta inbox".into(),
            Refusal::StaleLanding { .. } => "see the queue with regatta queue".into(),
        }
    }
}

/// Formats a duration for people: `950 ms`, `12 s`, `3 min`.
pub fn seconds(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min", ms / 60_000),
    }
}
