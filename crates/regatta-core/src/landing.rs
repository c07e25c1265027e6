//! A landing takes one task's finished branch through a queue and merges it into the trunk (the
//! project's main branch).
//!
//! Before the trunk moves, Regatta runs a trial: it merges a landing and all landings before it in
//! the queue on top of the trunk's newest commit, and runs the checks on the resulting files. The
//! trial's result is stored in the row of its last landing, so it survives a restart of the daemon.
//!
//! The trunk moves to the last commit of the longest trial that is fully verified. A passed trial
//! is fully verified if each of its commits that is marked as validated is the last commit of a
//! passed trial (Q1, Q14). With `verify = "every"`, every commit is marked as validated. With
//! `verify = "tip"`, only the last commit of each batch is.
//!
//! Only the holder of the claim (a lease) `workspace://<project>/default` may move the trunk. The
//! number of this claim, the fence, is passed along with the move. If the claim has expired,
//! Regatta ignores the report of the move. While a move is in progress, only the report of that
//! move changes the landings in it (Q12).

pub mod batches; // the queue as batches, for display
mod fault; // blame for failed trials
pub mod guard; // changes that need a person's approval, and changes that never land
mod operator; // requests of people: land, hold, revise, undo
mod queue; // admission and merge order
pub mod remote_sync; // merging commits that a remote has and the local trunk lacks
pub(crate) mod review; // reviews by another agent
pub mod speculation; // the choice of the prefixes to validate next
mod state; // the states of a landing and their changes
mod trial_result; // reports of trials
mod trial_start; // the start of trial merges, and of moves of the trunk
pub mod trunk_check; // comparison of the trunk with the board
mod trunk_move; // reports of moves of the trunk
pub mod wave_commit; // one commit for all landings of a wave

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::event::facts;
use crate::ids::{
    AgentName, BranchName, ClaimId, CommitId, LandingId, MissionId, Now, ProjectName, TaskId,
};
use crate::refusal::Refusal;
use crate::task::{SettledPath, Submission, Task};

pub(crate) use fault::MAX_FAULTS;
pub use operator::{
    QueuePosition, guarded_parts, hold_queue, land, land_with_lent_claim, person_needed_reason,
    release_queue, revise, undo, undone_refusal,
};
pub(crate) use operator::{
    begin_review, hold_landing, is_free_to_land, on_checkout_changed, resume_landing,
};
pub(crate) use queue::{retry, submit, submit_edits, withdraw};
pub use remote_sync::merged_remote;
pub use state::{LandingChange, LandingState};
pub use trial_result::{TrialOutcome, on_trial_result};
pub(crate) use trial_result::{announce, on_wait_timeout};
pub(crate) use trial_start::advance;
pub use trunk_move::{MoveOutcome, on_move_result};
pub(crate) use trunk_move::{on_fence_expired, on_lent_fence_expired};

/// Returns the median time in milliseconds from queueing to landing, or `None` if nothing has
/// landed. A median, because a single slow landing hardly changes it. `ended` yields ended
/// landings, each with its task.
pub fn median_time_ms<'a>(
    ended: impl Iterator<Item = (&'a Landing, Option<&'a Task>)>,
) -> Option<u64> {
    let mut durations_ms: Vec<u64> = ended
        .filter_map(|(landing, task)| {
            let landed = task.filter(|task| task.landed.is_some())?;
            Some(
                landed
                    .updated_unix_ms
                    .saturating_sub(landing.queued_unix_ms),
            )
        })
        .collect();
    durations_ms.sort_unstable();
    durations_ms.get(durations_ms.len() / 2).copied()
}

/// One of the landings that a trial merged, and the commit that the trial made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarriedLanding {
    pub landing: LandingId,
    pub commit: CommitId,
    /// The rejected versions of conflicting files, if conflicts were resolved in favour of the task
    /// that owns the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedSides>,
    /// Set if the checks ran only on a later commit of the trial merge and not on this landing's
    /// own commit (setting `verify = "tip"`). The message of this landing's commit names the later,
    /// checked commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// Set if the landing changes no file, because the commit below it already has the same
    /// content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_new: Option<NothingNew>,
}

impl CarriedLanding {
    pub fn new(landing: LandingId, commit: CommitId) -> CarriedLanding {
        CarriedLanding {
            landing,
            commit,
            dropped: None,
            unverified: false,
            nothing_new: None,
        }
    }
}

/// Marks a landing that changes nothing on the trunk, so it gets no commit of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NothingNew {
    /// The trunk commit whose message names this landing. There is such a commit if an earlier move
    /// of the trunk succeeded but was not recorded, for example because of a crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed_as: Option<CommitId>,
}

/// The versions of conflicting files that were rejected when a conflict between two tasks was
/// resolved. Git keeps these versions forever (Q6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DroppedSides {
    /// Git ref that points to `commit`, so that git never deletes the rejected versions.
    pub reference: String,
    /// A child commit of the landed commit that has the rejected version of each of `paths`.
    pub commit: CommitId,
    pub paths: Vec<String>,
}

/// The result of a failed trial merge, kept until it is known which of its landings is at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedTrial {
    pub ahead: Vec<LandingId>,
    pub reason: String,
    /// Output of the check that failed; `None` if no check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Conflicts in the failed merge that had been resolved by taking the version of the task that
    /// owns the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledPath>,
}

/// A task's finished branch in the queue of work to be merged into the trunk. Kept as history after
/// its end.
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
    pub state: LandingState,
    /// Reason why the landing is held back; `None` if it is not held back. A held landing is tried
    /// again at the time `retry_at`, or, without `retry_at`, when a person runs `regatta land` or
    /// resumes the task.
    pub held: Option<String>,
    #[serde(rename = "retry_at")]
    pub retry_fleet_ms: Option<u64>,
    /// The latest reason why the landing was held, how often it was held, and since when. This
    /// record stays until the landing lands or leaves the queue, so that a retry does not hide that
    /// the landing needs attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "hindered")]
    pub hold_count: Option<HoldCount>,
    /// Number of trial merges that were run with this landing as the last landing.
    pub tries: u32,
    #[serde(rename = "queued_wall")]
    pub queued_unix_ms: u64,
    pub end: Option<LandingEnd>,
    /// Set if somebody asked to land this work before all other work in the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Set if the landing reverts the submission's commit (undoes earlier work) instead of merging
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// The person or reviewing agent who approved the landing, if an approval was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The result of the latest failed trial merge in which this landing was the last. Kept until
    /// it is known which landing of the trial is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "red")]
    pub failed_trial: Option<FailedTrial>,
    /// Number of trial merges that failed because of this landing since a trial with it last
    /// passed. One failure may be an unreliable check, so only the second failure takes the landing
    /// out of the queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faults: u32,
    /// Set if the branch's commits are combined into a single commit, because one of them fails the
    /// checks by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_squashed: bool,
    /// Landings that must land or leave the queue before this landing is tried again. This landing
    /// conflicts with one of them, or a trial merge failed because of this landing and it lets them
    /// go first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "behind")]
    pub deferred_behind: Vec<LandingId>,
    /// A claim on the trunk that a person holds. The person allows this landing to use the claim to
    /// move the trunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "under")]
    pub lent_claim: Option<LentTrunkClaim>,
}

/// The number of times that a landing was held, with the first time and the latest reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldCount {
    pub reason: String,
    pub times: u32,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// A claim on the trunk that a person acquired with a command. One landing may use the claim to
/// move the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LentTrunkClaim {
    pub claim: ClaimId,
    pub token: u64,
}

impl Landing {
    /// Returns the landing's sort key in the queue. The landing with the lowest key goes first, and
    /// of several landings with the same key the oldest.
    pub(crate) fn rank(&self) -> u8 {
        if self.first {
            0
        } else {
            self.priority.saturating_add(1)
        }
    }

    /// Returns whether the landing is held back now: its retry time has not come, or it has none
    /// and waits for somebody to ask for it.
    pub(crate) fn is_held_now(&self, now: Now) -> bool {
        let is_retry_due = self
            .retry_fleet_ms
            .is_some_and(|retry_fleet_ms| retry_fleet_ms <= now.fleet_ms);
        self.held.is_some() && !is_retry_due
    }

    /// Returns all landings of this landing's trial merge in merge order, with this landing last.
    /// Without a trial, returns this landing alone.
    pub fn trial_landings(&self) -> Vec<LandingId> {
        let ahead = match &self.state {
            LandingState::Queued => vec![],
            LandingState::Trying { ahead, .. } => ahead.clone(),
            LandingState::Validated { carries, .. } | LandingState::Moving { carries, .. } => {
                carries
                    .iter()
                    .map(|carried| carried.landing)
                    .filter(|id| *id != self.id)
                    .collect()
            }
        };
        ahead.into_iter().chain([self.id]).collect()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The end of a landing: on the trunk, or out of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum LandingEnd {
    Landed {
        commit: CommitId,
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
    /// The landing left the queue without reaching the trunk, because it conflicts, failed its
    /// checks, or was withdrawn.
    #[serde(rename = "out")]
    Removed {
        reason: String,
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
}

/// State of a project's landing queue other than the landings themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueRecord {
    /// Set while the queue is stopped by a person or by Regatta.
    pub held: Option<QueueHold>,
    /// Outcomes of the last landings as one bit each, the latest in the lowest bit. A set bit is a
    /// failed landing.
    #[serde(rename = "recent")]
    pub recent_failures: u32,
    /// Number of valid bits in `recent_failures`.
    #[serde(rename = "seen")]
    pub recent_count: u32,
    /// Landed work that could not yet be pushed to the remote, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<remote_sync::Unpushed>,
    /// Newest commit of the trunk after the last landing that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tip: Option<CommitId>,
    /// The difference between the commits on the trunk and Regatta's own records at the last
    /// comparison; `None` if there was none.
    #[serde(rename = "differs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk_difference: Option<trunk_check::TrunkDifference>,
    /// Landed commits that are no longer on the trunk, for example after a reset, and that a person
    /// accepted as lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<trunk_check::TrunkCommit>,
    /// Landed tasks whose work was reverted, each with the task that reverted it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub undone: BTreeMap<TaskId, TaskId>,
}

impl QueueRecord {
    pub(crate) fn is_default(&self) -> bool {
        *self == QueueRecord::default()
    }

    /// Records that the task `by` reverted the work of `task`. If `task` had itself reverted
    /// earlier work, that work is on the trunk again and no longer counts as undone.
    pub(crate) fn record_undone(&mut self, task: TaskId, by: TaskId) {
        self.undone.retain(|_, undoing| *undoing != task);
        self.undone.insert(task, by);
    }

    /// Adds the outcome of a landing to the history from which the number of landings per trial
    /// merge is computed.
    pub(crate) fn record_outcome(&mut self, failed: bool) {
        self.recent_failures = self.recent_failures << 1 | u32::from(failed);
        self.recent_count = (self.recent_count + 1).min(speculation::MAX_REMEMBERED_LANDINGS);
    }
}

/// A stop of a project's queue: by whom, why and since when. No new trial merge and no move of the
/// trunk begins until the hold is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueHold {
    pub by: String,
    pub reason: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

// Event fields that were added in later versions are optional, so that logs of older versions can
// still be read.
facts! {
    LandingQueued { landing: Arc<Landing> }
    LandingBegun { landing: LandingId, ahead: Option<Vec<LandingId>>, unverified: Option<Vec<LandingId>> }
    LandingValidated { landing: LandingId, old: CommitId, new: CommitId, carries: Option<Vec<CarriedLanding>> }
    /// The trial merge whose last landing is `landing` failed. Which of its landings is at fault is
    /// not yet known.
    LandingRed { landing: LandingId, reason: String, output: Option<String>, settled: Option<Vec<SettledPath>> }
    /// The landing was found at fault for a failed trial merge. It is tried again after the
    /// landings in `behind`.
    LandingSuspected { landing: LandingId, behind: Vec<LandingId>, reason: String }
    /// One of the landing's own commits fails the checks by itself, so its commits will be combined
    /// into a single commit.
    LandingSquashed { landing: LandingId, reason: String }
    /// The landing conflicts in `paths` with one of the landings in `behind`, and waits until the
    /// landings in `behind` have left the queue.
    LandingDeferred { landing: LandingId, behind: Vec<LandingId>, paths: Vec<String> }
    /// The trial merge could not show whether the work passes (for example, a machine failed), so
    /// the landing is back in the queue.
    LandingReturned { landing: LandingId, reason: String }
    /// The trunk moved or will move to a commit that no trial merge was based on, so the results of
    /// all trials are void.
    QueueOvertaken { project: ProjectName }
    LandingMoving { landing: LandingId, fence: u64 }
    /// The landing is held back. It is tried again at `retry_at`, or, without `retry_at`, when
    /// somebody asks for it.
    LandingHeld { landing: LandingId, reason: String, retry_at: Option<u64> }
    /// A person, or an agent that is the named reviewer, approved the finished work for landing.
    LandingApproved { landing: LandingId, by: String }
    /// Somebody asked to land the work now, so the landing is no longer held.
    LandingAsked { landing: LandingId, first: bool, under: Option<LentTrunkClaim> }
    /// The landing reached the trunk. `settled` are the conflicting paths that were resolved by
    /// taking the version of the task that owns the file. `tip` is the trunk's tip, given only if
    /// it is not `commit`, because a landing that changes nothing has no commit of its own.
    LandingLanded { landing: LandingId, task: TaskId, old: CommitId, commit: CommitId, tip: Option<CommitId>, settled: Option<Vec<String>> }
    LandingEnded { landing: LandingId, task: TaskId, reason: String, retry: bool, fault: Option<bool> }
    /// The queue was stopped. No new trial merge and no move of the trunk begins until it is
    /// released.
    QueueHeld { project: ProjectName, hold: QueueHold }
    QueueReleased { project: ProjectName }
    /// Landed work could not be pushed to the remote. Regatta will try again.
    QueueUnpushed { project: ProjectName, unpushed: remote_sync::Unpushed }
    /// A push succeeded after an earlier push had failed, so the remote has all landed work again.
    /// The push sent `commit`.
    QueuePushed { project: ProjectName, commit: CommitId }
    /// The result of comparing the trunk with Regatta's records changed. `differs` describes how
    /// the commits on the trunk differ from the records. Without `differs`, they agree again.
    TrunkCompared { project: ProjectName, differs: Option<trunk_check::TrunkDifference> }
    /// A person accepted that the trunk, with the newest commit `tip`, differs from Regatta's
    /// records.
    TrunkAccepted { project: ProjectName, by: String, tip: Option<CommitId> }
}

/// Returns the landing (finished work on its way to the trunk) with this id, or a refusal if it
/// does not exist or has ended.
pub fn find(board: &Board, id: LandingId) -> Result<Arc<Landing>, Refusal> {
    board
        .landings
        .get(&id)
        .cloned()
        .ok_or(Refusal::NoSuchLanding { landing: id })
}
