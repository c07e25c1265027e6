//! Landing: the way of one branch through the queue onto the trunk.
//!
//! A trial merges a landing and all landings before it in the queue onto the trunk's tip, and
//! validates the tree of the last one. A trial's result is kept in the row of its last landing, so
//! a restart knows as much as before.
//!
//! The trunk moves to the longest trial in which every commit that claims a validation has passed
//! its own trial (Q1, Q14). With `verify = "every"` that is every commit; with `verify = "tip"` it
//! is the last commit of each batch. The move needs the claim `workspace://<project>/default`, and
//! the claim's token is its fence. While a move carries a landing, nothing but the report of that
//! move changes the landing (Q12).

pub mod batches; // the queue as batches, for display
mod fault; // blame for failed trials
pub mod guard; // changes that need a person's approval, and changes that never land
mod operator; // requests of people: land, hold, revise, undo
mod queue; // admission, merge order, and progress of the queue
pub mod remote_sync; // merging commits that a remote has and the local trunk lacks
pub(crate) mod review; // reviews by another agent
pub mod speculation; // the choice of the prefixes to validate next
mod trial_result; // reports of trials
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
    QueuePosition, hold_queue, land, land_with_lent_claim, person_needed_reason, release_queue,
    revise, undo, undone_refusal,
};
pub(crate) use operator::{
    begin_review, hold_landing, is_free_to_land, on_checkout_changed, resume_landing,
};
pub(crate) use queue::{advance, retry, submit, submit_edits, withdraw};
pub use trial_result::{TrialOutcome, on_trial_result};
pub(crate) use trial_result::{announce, on_wait_timeout};
pub use trunk_move::{MoveOutcome, on_move_result};
pub(crate) use trunk_move::{on_fence_expired, on_lent_fence_expired};

/// Returns the median time in milliseconds from queueing to landing, or `None` if nothing has
/// landed. The median is used because a single slow landing hardly moves it. `ended` has ended
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

/// The state of a landing's latest trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LandingState {
    Queued,
    /// The landing is merged and validated on top of the landings `ahead` of it.
    Trying {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ahead: Vec<LandingId>,
        /// The trunk's tip on which the trial is based, once some of the landings ahead have
        /// landed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<CommitId>,
        /// Landings ahead of it whose own tree is not validated (`verify = "tip"`).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unverified: Vec<LandingId>,
        /// The result no longer counts, because a landing of the trial left the queue or the trunk
        /// moved.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        void: bool,
    },
    /// The merge onto the tip `old` passed, and the landing waits for the trunk.
    Validated {
        old: CommitId,
        new: CommitId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<CarriedLanding>,
    },
    /// The trunk is being moved under `fence`.
    Moving {
        old: CommitId,
        new: CommitId,
        fence: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<CarriedLanding>,
    },
}

/// A landing within a trial, and the commit that it became there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarriedLanding {
    pub landing: LandingId,
    pub commit: CommitId,
    /// The versions of conflicting files that were not taken, where ownership decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedSides>,
    /// The landing's own tree is not validated. Its commit names the validated one
    /// (`verify = "tip"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// Set if the landing changes nothing, because the tree before it already has the same content.
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

/// A landing that changes nothing on the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NothingNew {
    /// The trunk commit whose trailer names this landing. It exists if a move succeeded and was not
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed_as: Option<CommitId>,
}

/// The sides of conflicts that were not taken. They are kept forever (Q6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DroppedSides {
    /// The ref that keeps the dropped sides.
    pub reference: String,
    /// A child of the landed commit, with the other version of each path.
    pub commit: CommitId,
    pub paths: Vec<String>,
}

/// A trial that failed, until it is known which of its landings is at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedTrial {
    pub ahead: Vec<LandingId>,
    pub reason: String,
    /// Output of the failed check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The conflicts that were settled by ownership in the tree that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledPath>,
}

/// A task's finished branch on its way through the queue.
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
    /// The reason for which the landing is held. It is tried again at `retry_at` (fleet clock), or
    /// without `retry_at` when somebody asks for it.
    pub held: Option<String>,
    #[serde(rename = "retry_at")]
    pub retry_fleet_ms: Option<u64>,
    /// The latest reason for which the landing was held, counted from the first time. It stays
    /// until the landing lands or leaves the queue, so that a retry does not hide that the landing
    /// needs attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "hindered")]
    pub hold_count: Option<HoldCount>,
    /// Number of trials that ended in this landing.
    pub tries: u32,
    #[serde(rename = "queued_wall")]
    pub queued_unix_ms: u64,
    pub end: Option<LandingEnd>,
    /// Somebody moved it before all other landings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// It reverts the submission's commit instead of merging it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// The person or reviewer who approved it, if an approval was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The failed trial that ended in this landing, until it is known which landing is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "red")]
    pub failed_trial: Option<FailedTrial>,
    /// Number of trials that failed because of this landing since the last trial with it that
    /// passed. A flaky check usually fails once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faults: u32,
    /// Its commits are squashed, because one of them fails the checks by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_squashed: bool,
    /// Landings that must land or leave the queue before this one is tried again, because it
    /// conflicts with one of them or because it failed a trial and lets them go first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "behind")]
    pub deferred_behind: Vec<LandingId>,
    /// A manually held claim on the trunk that is lent to this landing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "under")]
    pub lent_claim: Option<LentTrunkClaim>,
}

/// The reason for which a landing was held, with the number of times and the first time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldCount {
    pub reason: String,
    pub times: u32,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// A manually held claim on the trunk, under which a landing may move the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LentTrunkClaim {
    pub claim: ClaimId,
    pub token: u64,
}

impl Landing {
    /// Returns the sort key of the landing within its queue. Lower goes first; age decides ties.
    pub(crate) fn rank(&self) -> u8 {
        if self.first {
            0
        } else {
            self.priority.saturating_add(1)
        }
    }

    /// Returns whether the landing is held now, until `retry_at` or until somebody asks for it.
    pub(crate) fn is_held_now(&self, now: Now) -> bool {
        let is_retry_due = self
            .retry_fleet_ms
            .is_some_and(|retry_fleet_ms| retry_fleet_ms <= now.fleet_ms);
        self.held.is_some() && !is_retry_due
    }

    /// Returns the landings of the trial that ends in this one, in merge order, with this landing
    /// last.
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

/// A landing's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum LandingEnd {
    Landed {
        commit: CommitId,
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
    /// It left the queue because it conflicts, failed its validation, or was withdrawn.
    #[serde(rename = "out")]
    Removed {
        reason: String,
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
}

/// State of a project's queue besides its landings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueRecord {
    /// Set while somebody holds the queue.
    pub held: Option<QueueHold>,
    /// Outcomes of the last landings, one bit each: set if the landing failed, the latest in the
    /// lowest bit.
    #[serde(rename = "recent")]
    pub recent_failures: u32,
    /// Number of valid bits in `recent_failures`.
    #[serde(rename = "seen")]
    pub recent_count: u32,
    /// Landed work that could not be pushed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<remote_sync::Unpushed>,
    /// The trunk's tip after the last landing that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tip: Option<CommitId>,
    /// The difference between the trunk and the board at the last comparison.
    #[serde(rename = "differs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk_difference: Option<trunk_check::TrunkDifference>,
    /// Landed commits that the trunk lost and that a person accepted as lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<trunk_check::TrunkCommit>,
    /// Landed tasks whose work was undone, each with the task that undid it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub undone: BTreeMap<TaskId, TaskId>,
}

impl QueueRecord {
    pub(crate) fn is_default(&self) -> bool {
        *self == QueueRecord::default()
    }

    /// Records that `by` undid the work of `task`. If `task` had itself undone something, that
    /// earlier work is on the trunk again.
    pub(crate) fn record_undone(&mut self, task: TaskId, by: TaskId) {
        self.undone.retain(|_, undoing| *undoing != task);
        self.undone.insert(task, by);
    }

    /// Adds the outcome of a landing to the history that decides the batch size.
    pub(crate) fn record_outcome(&mut self, failed: bool) {
        self.recent_failures = self.recent_failures << 1 | u32::from(failed);
        self.recent_count = (self.recent_count + 1).min(speculation::MAX_REMEMBERED_LANDINGS);
    }
}

/// A hold on a queue: nothing new is begun or moved until somebody releases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueHold {
    pub by: String,
    pub reason: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

// Fields that were added later are optional, so that older logs can still be read.
facts! {
    LandingQueued { landing: Arc<Landing> }
    LandingBegun { landing: LandingId, ahead: Option<Vec<LandingId>>, unverified: Option<Vec<LandingId>> }
    LandingValidated { landing: LandingId, old: CommitId, new: CommitId, carries: Option<Vec<CarriedLanding>> }
    /// The trial that ends in this landing failed. The landing at fault is not yet known.
    LandingRed { landing: LandingId, reason: String, output: Option<String>, settled: Option<Vec<SettledPath>> }
    /// The landing made a trial fail. It is tried again after the landings in `behind`.
    LandingSuspected { landing: LandingId, behind: Vec<LandingId>, reason: String }
    /// One of the landing's own commits fails the checks by itself, so its commits are squashed.
    LandingSquashed { landing: LandingId, reason: String }
    /// The landing conflicts with one of the landings before it, and waits until they have left the
    /// queue.
    LandingDeferred { landing: LandingId, behind: Vec<LandingId>, paths: Vec<String> }
    /// The trial ended without a verdict, and the landing is queued as before.
    LandingReturned { landing: LandingId, reason: String }
    /// The trunk moved, so the results of all trials are void.
    QueueOvertaken { project: ProjectName }
    LandingMoving { landing: LandingId, fence: u64 }
    /// The landing returns to the queue and is tried again at `retry_at`, or when somebody asks for
    /// it.
    LandingHeld { landing: LandingId, reason: String, retry_at: Option<u64> }
    /// Somebody with the right to do so approved the landing.
    LandingApproved { landing: LandingId, by: String }
    /// Somebody asked for the landing, so it is no longer held.
    LandingAsked { landing: LandingId, first: bool, under: Option<LentTrunkClaim> }
    /// `settled` are conflicting paths that were resolved by ownership. `tip` is the trunk's tip,
    /// if that is another commit than `commit`: a landing that changes nothing has no commit of its
    /// own.
    LandingLanded { landing: LandingId, task: TaskId, old: CommitId, commit: CommitId, tip: Option<CommitId>, settled: Option<Vec<String>> }
    LandingEnded { landing: LandingId, task: TaskId, reason: String, retry: bool, fault: Option<bool> }
    /// Somebody holds the queue: nothing is begun or moved until it is released.
    QueueHeld { project: ProjectName, hold: QueueHold }
    QueueReleased { project: ProjectName }
    /// Landed work could not be pushed. The push is tried again.
    QueueUnpushed { project: ProjectName, unpushed: remote_sync::Unpushed }
    /// The remote has all landed work again.
    QueuePushed { project: ProjectName, commit: CommitId }
    /// The trunk differs from the board (`differs`), or agrees with it again.
    TrunkCompared { project: ProjectName, differs: Option<trunk_check::TrunkDifference> }
    /// A person accepted the trunk as it is, at this tip.
    TrunkAccepted { project: ProjectName, by: String, tip: Option<CommitId> }
}

/// Returns the landing with this id, if it has not ended.
pub fn find(board: &Board, id: LandingId) -> Result<Arc<Landing>, Refusal> {
    board
        .landings
        .get(&id)
        .cloned()
        .ok_or(Refusal::NoSuchLanding { landing: id })
}
