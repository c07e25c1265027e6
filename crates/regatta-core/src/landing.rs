//! Landing: one branch's way through the queue onto the trunk, one at a time per project.
//!
//! A landing is tried (merged onto the tip and validated as that exact tree), then moves the trunk under the
//! claim `workspace://<project>/default`, whose token is its fence. Whoever else holds that claim stops the
//! queue. A trunk that moved meanwhile sends the landing back to be tried again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, first_few};
use crate::board::{Board, Draft};
use crate::bus::{self, Post};
use crate::claim::{self, Owner};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, BranchName, ChannelName, CommitId, Label, LandingId, MissionId, Now, ProjectName, TaskId};
use crate::manifest;
use crate::pattern::Uri;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::task::{self, Status, Submission, Task};

/// Where a landing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    Queued,
    /// Being merged and validated.
    Trying,
    /// Its merge passed on the tip `old`; it waits for the trunk.
    Validated {
        old: CommitId,
        new: CommitId,
    },
    /// The trunk is being moved under `fence`.
    Moving {
        old: CommitId,
        new: CommitId,
        fence: u64,
    },
}

/// A branch on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Landing {
    pub id: LandingId,
    pub project: ProjectName,
    pub task: TaskId,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    pub branch: BranchName,
    pub submission: Submission,
    pub priority: u8,
    #[serde(flatten)]
    pub state: State,
    /// Why it waits though it is first, until `retry_at` on the fleet clock.
    pub held: Option<String>,
    pub retry_at: Option<u64>,
    /// How often it was tried.
    pub tries: u32,
    pub queued_wall: u64,
    pub end: Option<End>,
}

/// A landing's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum End {
    Landed {
        commit: CommitId,
        wall: u64,
    },
    /// It conflicts, failed its validation, or was withdrawn.
    Out {
        reason: String,
        wall: u64,
    },
}

facts! {
    Queued { landing: Landing }
    Begun { landing: LandingId }
    Validated { landing: LandingId, old: CommitId, new: CommitId }
    Moving { landing: LandingId, fence: u64 }
    /// It goes back to the front of the queue and is tried again at `retry_at`.
    Held { landing: LandingId, reason: String, retry_at: u64 }
    Landed { landing: LandingId, task: TaskId, old: CommitId, commit: CommitId }
    Ended { landing: LandingId, task: TaskId, reason: String, retry: bool }
}

/// Queues finished work, and hands the attempt's claims to its landing.
pub(crate) fn submit(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    submission: Submission,
    now: Now,
) -> Result<LandingId, Refusal> {
    let id = queue(draft, task, attempt.agent.clone(), submission, now)?;
    claim::transfer_all(draft, &Owner::Attempt(attempt.id), &Owner::Landing(id));
    Ok(id)
}

fn queue(
    draft: &mut Draft,
    task: &Task,
    agent: AgentName,
    submission: Submission,
    now: Now,
) -> Result<LandingId, Refusal> {
    let id = LandingId(draft.board().counters.landing + 1);
    let landing = Landing {
        id,
        project: task.project.clone(),
        task: task.id,
        mission: task.mission,
        agent,
        branch: task.branch(),
        submission: submission.clone(),
        priority: task.priority,
        state: State::Queued,
        held: None,
        retry_at: None,
        tries: 0,
        queued_wall: now.wall,
        end: None,
    };
    task::submit(draft, task.id, id, submission)?;
    draft.record(Event::LandingQueued(Queued { landing }));
    Ok(id)
}

/// What [`land`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    pub landing: LandingId,
    pub task: TaskId,
    /// Its place in the queue, counting from 1.
    pub position: usize,
}

/// Lands a task's finished work: queues it if it is out of the queue, and tries it now if it is held.
pub fn land(draft: &mut Draft, id: TaskId, now: Now) -> Result<Place, Refusal> {
    let task = task::find(draft.board(), id)?;
    if let Some(landing) = task.landing.and_then(|it| draft.board().landings.get(&it).cloned()) {
        let alone = draft.board().queue_of(&landing.project).all(|it| it.state == State::Queued);
        if landing.held.is_some() && alone {
            begin(draft, landing.id);
        }
        return Ok(place(draft.board(), &landing));
    }
    let Some(submission) =
        task.submission.clone().filter(|_| matches!(task.status, Status::NeedsHuman | Status::InReview))
    else {
        return Err(Refusal::NothingToLand { task: id, status: task.status });
    };
    let agent = task.agent.clone().unwrap_or_else(|| AgentName::new("regatta").expect("a plain word is a name"));
    // Its files were free while a person thought about it, so they must be had again.
    let landing = LandingId(draft.board().counters.landing + 1);
    let (uris, mode) = (manifest::claims(draft.board(), &task), manifest::mode(draft.board(), &task));
    let holders = claim::in_the_way(draft, &uris, mode, None, now);
    if !holders.is_empty() {
        return Err(Refusal::ClaimHeld { holders });
    }
    let queued = queue(draft, &task, agent, submission, now)?;
    debug_assert_eq!(landing, queued);
    claim::acquire_for_landing(draft, queued, uris, mode, now);
    let landing = draft.board().landings.get(&queued).cloned().ok_or(Refusal::NoSuchLanding { landing: queued })?;
    Ok(place(draft.board(), &landing))
}

fn place(board: &Board, landing: &Landing) -> Place {
    let ahead = board.queue_of(&landing.project).take_while(|it| it.id != landing.id).count();
    Place { landing: landing.id, task: landing.task, position: ahead + 1 }
}

/// Begins the next landing of a project, if none is on its way. One that is held does not stop those behind
/// it (Q9): what is in its way is usually not in theirs.
pub(crate) fn begin_next(draft: &mut Draft, project: &ProjectName, now: Now) {
    if draft.board().queue_of(project).any(|it| it.state != State::Queued) {
        return;
    }
    let next = draft.board().queue_of(project).find(|it| it.retry_at.is_none_or(|at| at <= now.at)).map(|it| it.id);
    if let Some(next) = next {
        begin(draft, next);
    }
}

fn begin(draft: &mut Draft, id: LandingId) {
    draft.record(Event::LandingBegun(Begun { landing: id }));
}

/// Tries a held landing again when its time has come.
pub fn retry(draft: &mut Draft, id: LandingId, now: Now) {
    let Some(landing) = draft.board().landings.get(&id).cloned() else { return };
    if landing.state == State::Queued && landing.retry_at.is_some_and(|at| at <= now.at) {
        begin_next(draft, &landing.project, now);
    }
}

/// What merging and validating found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// The merge passed as exactly the tree of `new`, a child of the tip `old`.
    Passed {
        old: CommitId,
        new: CommitId,
    },
    /// The trunk's tip already contains it.
    AlreadyThere {
        tip: CommitId,
    },
    Conflict {
        paths: Vec<String>,
    },
    /// The merge failed its validation.
    Red {
        reason: String,
    },
    /// The shell could not find out; it is tried again.
    Held {
        reason: String,
    },
}

/// Takes the report of a trial.
pub fn tried(draft: &mut Draft, id: LandingId, found: Tried, now: Now) -> Result<(), Refusal> {
    let landing = find(draft.board(), id)?;
    if landing.state != State::Trying {
        return Err(Refusal::StaleLanding { landing: id });
    }
    match found {
        Tried::Passed { old, new } => {
            draft.record(Event::LandingValidated(Validated { landing: id, old, new }));
            take_trunk(draft, id, now)
        }
        Tried::AlreadyThere { tip } => landed(draft, &landing, tip.clone(), tip, now),
        Tried::Conflict { paths } => {
            let names: Vec<&str> = paths.iter().map(String::as_str).collect();
            out(
                draft,
                &landing,
                WaitKind::Conflict,
                &format!("it conflicts with what landed since in {}", first_few(&names)),
                now,
            )
        }
        Tried::Red { reason } => {
            out(draft, &landing, WaitKind::Review, &format!("merged with what landed since, it fails: {reason}"), now)
        }
        Tried::Held { reason } => hold(draft, &landing, reason, now),
    }
}

/// Takes the trunk for a validated landing, unless somebody holds it; then the claim's end calls again.
pub(crate) fn take_trunk(draft: &mut Draft, id: LandingId, now: Now) -> Result<(), Refusal> {
    let landing = find(draft.board(), id)?;
    let State::Validated { .. } = landing.state else { return Ok(()) };
    if let Ok(fence) = claim::take_trunk(draft, id, Uri::of_trunk(&landing.project), now) {
        draft.record(Event::LandingMoving(Moving { landing: id, fence }));
    }
    Ok(())
}

/// What moving the trunk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Moved {
    Moved,
    /// Somebody else moved the trunk: the trial no longer holds.
    Elsewhere,
    /// The user's checkout of the trunk has changes in these files.
    Dirty {
        paths: Vec<String>,
    },
    Held {
        reason: String,
    },
}

/// Takes the report of a move. Only the fence's holder may speak (L6).
pub fn moved(draft: &mut Draft, id: LandingId, fence: u64, found: Moved, now: Now) -> Result<(), Refusal> {
    let landing = find(draft.board(), id)?;
    let State::Moving { old, new, fence: live } = landing.state.clone() else {
        return Err(Refusal::StaleLanding { landing: id });
    };
    if live != fence {
        return Err(Refusal::StaleLanding { landing: id });
    }
    match found {
        Moved::Moved => landed(draft, &landing, old, new, now),
        Moved::Elsewhere => {
            hold_until(draft, &landing, "the trunk was moved by somebody else; merging again".into(), now.at, now)
        }
        Moved::Dirty { paths } => {
            let names: Vec<&str> = paths.iter().map(String::as_str).collect();
            let reason = format!(
                "the checkout of {} has changes in {}: commit or stash them, then regatta land {}",
                draft.board().projects.get(&landing.project).map_or("the trunk".into(), |it| it.trunk.to_string()),
                first_few(&names),
                landing.task
            );
            hold(draft, &landing, reason, now)
        }
        Moved::Held { reason } => hold(draft, &landing, reason, now),
    }
}

fn landed(draft: &mut Draft, landing: &Landing, old: CommitId, commit: CommitId, now: Now) -> Result<(), Refusal> {
    draft.record(Event::LandingLanded(Landed { landing: landing.id, task: landing.task, old, commit: commit.clone() }));
    claim::release_all(draft, &Owner::Landing(landing.id));
    let subject = task::find(draft.board(), landing.task)?.subject.clone();
    task::complete(draft, landing.task, Some(commit.clone()))?;
    let files: Vec<&str> = landing.submission.changed.iter().map(String::as_str).collect();
    let text = format!(
        "Merged {} ({}): {subject} [{}] as {}",
        landing.branch,
        landing.task,
        first_few(&files),
        &commit.as_str()[..10]
    );
    announce(draft, &landing.project, "coord:merge", text, now)
}

fn announce(draft: &mut Draft, project: &ProjectName, label: &str, text: String, now: Now) -> Result<(), Refusal> {
    let channel = ChannelName::new(project.as_str()).expect("a project's name is a channel's name");
    let labels = vec![Label::new(label).expect("our own labels are well formed")];
    bus::post(draft, Post { channel, text, labels, reply_to: None }, Actor::Regatta, now).map(|_| ())
}

/// How long a held landing waits before it is tried again.
const HOLD_MS: u64 = 5_000;

fn hold(draft: &mut Draft, landing: &Landing, reason: String, now: Now) -> Result<(), Refusal> {
    let patience = HOLD_MS << landing.tries.saturating_sub(1).min(4);
    hold_until(draft, landing, reason, now.at + patience, now)
}

fn hold_until(draft: &mut Draft, landing: &Landing, reason: String, retry_at: u64, now: Now) -> Result<(), Refusal> {
    draft.record(Event::LandingHeld(Held { landing: landing.id, reason, retry_at }));
    release_trunk(draft, landing.id);
    begin_next(draft, &landing.project, now);
    Ok(())
}

/// Gives the trunk's claim back while the landing keeps its files.
fn release_trunk(draft: &mut Draft, id: LandingId) {
    claim::release_leased(draft, &Owner::Landing(id));
}

/// Takes a landing out of the queue: its task comes back for another attempt on the new trunk, while there
/// are any left, and then needs a person. What was captured stays kept either way (Q6).
fn out(draft: &mut Draft, landing: &Landing, kind: WaitKind, reason: &str, now: Now) -> Result<(), Refusal> {
    let task = task::find(draft.board(), landing.task)?;
    let retry = task.failures + 1 < task::MOST_FAILURES;
    draft.record(Event::LandingEnded(Ended {
        landing: landing.id,
        task: landing.task,
        reason: reason.to_owned(),
        retry,
    }));
    claim::release_all(draft, &Owner::Landing(landing.id));
    if retry {
        task::try_again(draft, landing.task, reason, true)?
    } else {
        task::needs_human(draft, landing.task, kind, reason)?
    }
    announce(draft, &landing.project, "coord:conflict", format!("{} is out of the queue: {reason}", landing.task), now)
}

/// Takes a cancelled task's landing out of the queue; refused while the trunk is being moved for it.
pub(crate) fn withdraw(draft: &mut Draft, id: LandingId, reason: &str) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else { return Ok(()) };
    if let State::Moving { .. } = landing.state {
        return Err(Refusal::InUse {
            what: landing.task.to_string(),
            by: "the move of the trunk, which is under way".into(),
        });
    }
    draft.record(Event::LandingEnded(Ended {
        landing: id,
        task: landing.task,
        reason: reason.to_owned(),
        retry: false,
    }));
    claim::release_all(draft, &Owner::Landing(id));
    Ok(())
}

/// Gives up a move whose fence fell: the claim expired before the report came.
pub(crate) fn fence_fell(draft: &mut Draft, id: LandingId, token: u64, now: Now) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else { return Ok(()) };
    match landing.state {
        State::Moving { fence, .. } if fence == token => {
            hold_until(draft, &landing, "moving the trunk took too long; trying again".into(), now.at, now)
        }
        _ => Ok(()),
    }
}

/// The landing of that number, while it is on its way.
pub fn find(board: &Board, id: LandingId) -> Result<Arc<Landing>, Refusal> {
    board.landings.get(&id).cloned().ok_or(Refusal::NoSuchLanding { landing: id })
}
