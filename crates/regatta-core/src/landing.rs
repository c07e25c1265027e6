//! Landing: one branch's way through the queue onto the trunk.
//!
//! A trial merges a landing and all landings before it in the queue onto the trunk's tip, and validates the tree of
//! the last one. A trial's result is kept in the row of its last landing, so a restart knows as much as before.
//!
//! The trunk moves to the longest trial in which every commit that claims a validation has passed its own trial (Q1,
//! Q14). With `verify = "every"` that is every commit; with `verify = "tip"` it is the last commit of each batch. The
//! move needs the claim `workspace://<project>/default`, and the claim's token is its fence. While a move carries a
//! landing, nothing but the report of that move changes the landing (Q12).

pub mod guard; // what a person must see, and what never lands
pub mod join; // a remote has what is not here
mod people; // what people ask of the queue
pub mod plan; // which prefixes are validated next
mod queue; // who is in it, in which order, and what goes on next
mod report; // what merging, validating and moving found
pub(crate) mod review; // an agent looks at what another one did
pub mod track; // who rides in which train
pub mod trunk_check; // does the trunk contain what the board says
mod verdict; // whose fault a failed trial is
pub mod wave; // one commit for all of a wave

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::event::facts;
use crate::ids::{AgentName, BranchName, ClaimId, CommitId, LandingId, MissionId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::task::{SettledPath, Submission, Task};

pub use people::{Place, hold, land, land_under, needs_person, release, revise, taken_back, undo};
pub(crate) use people::{begin_review, go_on, is_free_to_land, look_again, stop};
pub(crate) use queue::{advance, retry, submit, submit_edits, withdraw};
pub use report::{Moved, Tried, moved, tried};
pub(crate) use report::{announce, fence_fell, lent_fence_fell, waited_in_vain};
pub(crate) use verdict::MAX_FAULTS;

/// How long one that landed usually took, from when it was queued: the one in the middle, which a single long one moves
/// nowhere. Each with its task, as it ended.
pub fn usual<'a>(ended: impl Iterator<Item = (&'a Landing, Option<&'a Task>)>) -> Option<u64> {
    let landed = ended.filter_map(|(it, task)| Some((it, task.filter(|it| it.landed.is_some())?)));
    let mut took: Vec<u64> = landed.map(|(it, task)| task.updated_wall.saturating_sub(it.queued_wall)).collect();
    took.sort_unstable();
    took.get(took.len() / 2).copied()
}

/// Where a landing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    Queued,
    /// Being merged and validated, on top of those `ahead` of it.
    Trying {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ahead: Vec<LandingId>,
        /// The tip it stands on, once some of those ahead of it have landed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<CommitId>,
        /// Landings ahead of it whose own tree is not validated (`verify = "tip"`).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unverified: Vec<LandingId>,
        /// Its result no longer counts: somebody in it left the queue, or the trunk moved.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        void: bool,
    },
    /// The merge passed on the tip `old`; it waits for the trunk.
    Validated {
        old: CommitId,
        new: CommitId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<Carried>,
    },
    /// The trunk is being moved under `fence`.
    Moving {
        old: CommitId,
        new: CommitId,
        fence: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<Carried>,
    },
}

/// A landing within a trial, and the commit that it became there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carried {
    pub landing: LandingId,
    pub commit: CommitId,
    /// The versions of conflicting files that were not taken, where ownership decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// Its own tree is not validated, and its commit names the one that is (`verify = "tip"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// It changes nothing, because the tree before it contains the same content already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_new: Option<NothingNew>,
}

impl Carried {
    pub fn new(landing: LandingId, commit: CommitId) -> Carried {
        Carried { landing, commit, dropped: None, unverified: false, nothing_new: None }
    }
}

/// A landing that changes nothing on the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NothingNew {
    /// The commit of the trunk whose trailer names this landing, if there is one: a move that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed_as: Option<CommitId>,
}

/// The sides of conflicts that were not taken. They are kept for good (Q6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// The ref that keeps them.
    pub reference: String,
    /// A child of what landed, with the other version of each path.
    pub commit: CommitId,
    pub paths: Vec<String>,
}

/// A trial that failed, until it is known which of its landings is at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Red {
    pub ahead: Vec<LandingId>,
    pub reason: String,
    /// What the failed check printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The conflicts that were settled by ownership in the tree that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledPath>,
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
    /// Why it waits though it could be tried: until `retry_at` on the fleet clock, or until somebody asks for it.
    pub held: Option<String>,
    pub retry_at: Option<u64>,
    /// What it was held for last, from the first time on, until it has landed or left its place: while it is tried again
    /// it still needs somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hindered: Option<Hindered>,
    /// How often it was tried.
    pub tries: u32,
    pub queued_wall: u64,
    pub end: Option<End>,
    /// Somebody said that it comes before all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// It takes the submission's commit back instead of bringing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// Who said that it may land, when somebody had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The trial that ended in it and failed, while it is not settled whose fault that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red: Option<Red>,
    /// How often a trial failed because of this landing since one with it last passed: a flake fails once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub faults: u32,
    /// Its commits land as one, because one of them fails the checks by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_squashed: bool,
    /// It is tried again when these have landed or left the queue: it conflicts with one of them, or it failed a trial
    /// and lets them go first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<LandingId>,
    /// The claim on the trunk that somebody lends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Under>,
}

/// What a landing was held for, and how often since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hindered {
    pub reason: String,
    pub times: u32,
    pub since_wall: u64,
}

/// A claim on the trunk that is held by hand, under which a landing may move it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Under {
    pub claim: ClaimId,
    pub token: u64,
}

impl Landing {
    /// Its place among others: lower comes first, then the older.
    pub(crate) fn rank(&self) -> u8 {
        if self.first { 0 } else { self.priority.saturating_add(1) }
    }

    /// Whether it is held: until its time comes, or until somebody asks for it.
    pub(crate) fn is_put_off(&self, now: Now) -> bool {
        self.held.is_some() && self.retry_at.is_none_or(|at| at > now.at)
    }

    /// Everybody in the trial that ends in it, in order; itself last.
    pub fn train(&self) -> Vec<LandingId> {
        let ahead = match &self.state {
            State::Queued => vec![],
            State::Trying { ahead, .. } => ahead.clone(),
            State::Validated { carries, .. } | State::Moving { carries, .. } => {
                carries.iter().map(|it| it.landing).filter(|it| *it != self.id).collect()
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

/// What a project's queue remembers beside its landings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Record {
    /// Who stopped the queue, and why.
    pub held: Option<Hold>,
    /// How the last landings ended: one bit each, set if it failed, the latest lowest.
    pub recent: u32,
    /// How many of those bits count.
    pub seen: u32,
    /// What has landed and could not be pushed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<join::Unpushed>,
    /// The trunk's tip after the last landing that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tip: Option<CommitId>,
    /// How the trunk differs from the board, as of the last comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<trunk_check::TrunkDifference>,
    /// Landed commits that the trunk lost and that a person accepted as lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<trunk_check::TrunkCommit>,
    /// Landed tasks whose work was taken back, each with the task that took it back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub undone: BTreeMap<TaskId, TaskId>,
}

impl Record {
    pub(crate) fn is_default(&self) -> bool {
        *self == Record::default()
    }

    /// Notes that `by` took the work of `task` back. If that work had itself taken something back, that is on the trunk
    /// again.
    pub(crate) fn note_undone(&mut self, task: TaskId, by: TaskId) {
        self.undone.retain(|_, undoing| *undoing != task);
        self.undone.insert(task, by);
    }

    pub(crate) fn remember(&mut self, failed: bool) {
        self.recent = self.recent << 1 | u32::from(failed);
        self.seen = (self.seen + 1).min(plan::REMEMBERED);
    }
}

/// A queue that somebody stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hold {
    pub by: String,
    pub reason: String,
    pub wall: u64,
}

// A payload's later fields are optional, so that a log of before them can still be read.
facts! {
    Queued { landing: Arc<Landing> }
    Begun { landing: LandingId, ahead: Option<Vec<LandingId>>, unverified: Option<Vec<LandingId>> }
    Validated { landing: LandingId, old: CommitId, new: CommitId, carries: Option<Vec<Carried>> }
    /// The trial that ends in it failed. Whose fault it was is searched.
    Reddened { landing: LandingId, reason: String, output: Option<String>, settled: Option<Vec<SettledPath>> }
    /// It made a trial fail. It is tried again after the landings in `behind`.
    Suspected { landing: LandingId, behind: Vec<LandingId>, reason: String }
    /// One of its own commits fails the checks by itself, so they land as one.
    Squashed { landing: LandingId, reason: String }
    /// It conflicts with one of those before it, and waits until they are gone.
    Deferred { landing: LandingId, behind: Vec<LandingId>, paths: Vec<String> }
    /// Its trial is over without a verdict; it is in the queue as before.
    Returned { landing: LandingId, reason: String }
    /// The trunk moved, so what was found out about the queue no longer counts.
    Overtaken { project: ProjectName }
    Moving { landing: LandingId, fence: u64 }
    /// It goes back to the front of the queue and is tried again at `retry_at`, or when somebody asks for it.
    Held { landing: LandingId, reason: String, retry_at: Option<u64> }
    /// Somebody who may said that it lands.
    Approved { landing: LandingId, by: String }
    /// Somebody asked for it: it is held no longer.
    Asked { landing: LandingId, first: bool, under: Option<Under> }
    /// `settled` are the paths in which it conflicted, settled by ownership.
    /// `tip` is where the trunk was then, if that is another commit: a landing that changes nothing has none of its own.
    Landed { landing: LandingId, task: TaskId, old: CommitId, commit: CommitId, tip: Option<CommitId>, settled: Option<Vec<String>> }
    Ended { landing: LandingId, task: TaskId, reason: String, retry: bool, fault: Option<bool> }
    /// Nothing more is begun or moved until it is released.
    Stopped { project: ProjectName, hold: Hold }
    GoneOn { project: ProjectName }
    /// What landed could not be pushed; it is tried again.
    NotPushed { project: ProjectName, unpushed: join::Unpushed }
    /// The remote has again all that landed.
    Pushed { project: ProjectName, commit: CommitId }
    /// The trunk differs from the board, or agrees with it again.
    TrunkCompared { project: ProjectName, differs: Option<trunk_check::TrunkDifference> }
    /// A person accepts the trunk as it is, with this tip.
    TrunkAccepted { project: ProjectName, by: String, tip: Option<CommitId> }
}

/// The landing of that number, while it is on its way.
pub fn find(board: &Board, id: LandingId) -> Result<Arc<Landing>, Refusal> {
    board.landings.get(&id).cloned().ok_or(Refusal::NoSuchLanding { landing: id })
}
