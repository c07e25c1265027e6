//! Compares the trunk with the board (Q12).
//!
//! The queue remembers the trunk's tip after each landing. After every move and at every start, the
//! engine lists the commits in which that tip and the trunk differ, and reports them here. Two
//! differences matter to people:
//!
//! - The trunk no longer contains a commit that landed: somebody reset or rewrote the branch.
//! - The trunk contains a landing's commit although the board has the task as open.
//!
//! A difference is announced once. It stays on the board until the trunk agrees again or a person
//! accepts it, even if more work lands in the meantime. The queue continues. The base-ancestry gate
//! uses the same comparison, so an accepted difference also lets tasks start that build on the lost
//! work.

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{CommitId, LandingId, Now, ProjectName, TaskId};
use crate::project::Project;
use crate::refusal::Refusal;

use super::trial_result::announce;
use super::{TrunkAccepted, TrunkCompared};

/// Maximum number of commits of each kind that a message lists.
pub const MAX_LISTED_COMMITS: usize = 20;

/// A commit of the trunk, with the values of its trailers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrunkCommit {
    pub commit: CommitId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<LandingId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub subject: String,
}

/// The commits in which the trunk and the board's record of it differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkSeen {
    /// The commits that the trunk was compared with: [`recorded`] as it was then.
    pub recorded: Vec<CommitId>,
    /// Commits that lead to a recorded one and that the trunk does not contain.
    pub missing: Vec<TrunkCommit>,
    /// Commits of the trunk since the newest one that all recorded commits contain.
    pub added: Vec<TrunkCommit>,
}

/// A difference between the trunk and the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrunkDifference {
    /// Landed commits that the trunk no longer contains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<TrunkCommit>,
    /// Commits of the trunk that belong to open tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<TrunkCommit>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// Returns the commits that the trunk should contain: its last recorded tip, and the commits found
/// missing before.
pub fn recorded(project: &Project) -> Vec<CommitId> {
    let missing = project
        .queue
        .trunk_difference
        .iter()
        .flat_map(|difference| &difference.missing);
    project
        .queue
        .tip
        .iter()
        .chain(missing.map(|missing| &missing.commit))
        .cloned()
        .collect()
}

/// Applies the report of a comparison. If a landing happened since the comparison, the report is
/// ignored, because the next comparison follows.
pub fn on_compared(
    draft: &mut Draft,
    name: &ProjectName,
    seen: &TrunkSeen,
    now: Now,
) -> Result<(), Refusal> {
    let Some(project) = draft.board().projects.get(name).cloned() else {
        return Err(Refusal::NoSuchProject {
            project: name.clone(),
        });
    };
    // The gate compares with more commits than these: all landed commits of its mission.
    if recorded(&project)
        .iter()
        .any(|commit| !seen.recorded.contains(commit))
    {
        return Ok(());
    }
    let before = project.queue.trunk_difference.as_ref();
    let since_unix_ms = before.map_or(now.unix_ms, |before| before.since_unix_ms);
    let found = difference(draft.board(), &project, seen, since_unix_ms);
    if found.as_ref() == before {
        return Ok(());
    }
    if let Some(found) = &found {
        announce(
            draft,
            name,
            "coord:trunk",
            describe_difference(&project, found),
            now,
        )?;
    }
    draft.record(Event::TrunkCompared(TrunkCompared {
        project: name.clone(),
        differs: found,
    }));
    Ok(())
}

/// Accepts the trunk as it is, at `tip`. Its difference from the board is forgotten, and no task
/// waits for the lost work.
pub fn accept(
    draft: &mut Draft,
    name: &ProjectName,
    tip: Option<CommitId>,
    by: String,
) -> Result<(), Refusal> {
    let Some(project) = draft.board().projects.get(name) else {
        return Err(Refusal::NoSuchProject {
            project: name.clone(),
        });
    };
    if project.queue.trunk_difference.is_some() {
        draft.record(Event::TrunkAccepted(TrunkAccepted {
            project: name.clone(),
            by,
            tip,
        }));
    }
    Ok(())
}

/// Returns the commits that the trunk lost: the trunk contains them neither as themselves nor
/// rewritten, and no person accepted the loss.
pub fn lost_commits<'a>(
    project: &'a Project,
    seen: &'a TrunkSeen,
) -> impl Iterator<Item = &'a TrunkCommit> {
    let is_on_trunk = |missing: &TrunkCommit| {
        seen.added
            .iter()
            .any(|added| is_same_change(added, missing))
    };
    let is_accepted = |missing: &TrunkCommit| {
        let mut accepted = project.queue.accepted.iter();
        accepted
            .any(|accepted| accepted.commit == missing.commit || is_same_change(accepted, missing))
    };
    seen.missing
        .iter()
        .filter(move |missing| !is_on_trunk(missing) && !is_accepted(missing))
}

/// Returns whether two commits are the same change, before and after somebody rewrote the trunk. A
/// rebase, an amend and a cherry-pick keep the trailers. A commit without trailers is recognised by
/// its subject.
fn is_same_change(left: &TrunkCommit, right: &TrunkCommit) -> bool {
    if left.landing.is_none() && right.landing.is_none() {
        return left.subject == right.subject;
    }
    left.landing == right.landing && left.task == right.task
}

/// Returns the difference between the trunk and the board, or `None` if they agree.
fn difference(
    board: &Board,
    project: &Project,
    seen: &TrunkSeen,
    since_unix_ms: u64,
) -> Option<TrunkDifference> {
    let missing = lost_commits(project, seen).filter(|commit| commit.landing.is_some());
    let unrecorded = seen
        .added
        .iter()
        .filter(|commit| is_unrecorded(board, commit));
    let found = TrunkDifference {
        // The list is not shortened, because a person who accepts the trunk accepts every commit.
        missing: missing.cloned().collect(),
        unrecorded: unrecorded.take(MAX_LISTED_COMMITS).cloned().collect(),
        since_unix_ms,
    };
    (!found.missing.is_empty() || !found.unrecorded.is_empty()).then_some(found)
}

/// Returns whether a commit of the trunk belongs to an open task that is not on its way through the
/// queue.
///
/// The next trial of a queued landing finds its work on the trunk and records it. Trailers alone
/// are no proof, because another fleet that lands on the same remote counts its landings and tasks
/// from one, too.
fn is_unrecorded(board: &Board, commit: &TrunkCommit) -> bool {
    let (Some(landing), Some(task)) = (commit.landing, commit.task) else {
        return false;
    };
    let Some(task) = board.tasks.get(&task) else {
        return false;
    };
    let is_ours =
        landing.0 <= board.counters.landing && task.subject.trim() == commit.subject.trim();
    is_ours
        && !task.status.is_terminal()
        && !board.landings.contains_key(&landing)
        && task.landing.is_none()
}

/// Returns a sentence about the difference of a project's trunk from the board, if there is one.
pub fn difference_sentence(project: &Project) -> Option<String> {
    project
        .queue
        .trunk_difference
        .as_ref()
        .map(|found| describe_difference(project, found))
}

/// Returns a sentence that describes the difference and what a person can do about it.
fn describe_difference(project: &Project, found: &TrunkDifference) -> String {
    let trunk = &project.trunk;
    let list = |commits: &[TrunkCommit]| {
        let name = |commit: &TrunkCommit| match commit.task {
            Some(task) => format!("{} ({task})", short_id(&commit.commit)),
            None => short_id(&commit.commit).to_owned(),
        };
        let listed = commits
            .iter()
            .take(MAX_LISTED_COMMITS)
            .map(name)
            .collect::<Vec<_>>()
            .join(", ");
        match commits.len().saturating_sub(MAX_LISTED_COMMITS) {
            0 => listed,
            more => format!("{listed} and {more} more"),
        }
    };
    let mut sentences = Vec::new();
    if let [newest, ..] = found.missing.as_slice() {
        sentences.push(format!(
            "{trunk} no longer contains work that landed: {}. Bring it back (git merge {}), or \
            accept it: regatta queue accept",
            list(&found.missing),
            short_id(&newest.commit)
        ));
    }
    if let [first, ..] = found.unrecorded.as_slice() {
        let task = first.task.map(|task| task.to_string()).unwrap_or_default();
        sentences.push(format!(
            "{trunk} contains work of tasks that are open: {}. Record it with regatta land {task}",
            list(&found.unrecorded)
        ));
    }
    sentences.join("; ")
}

/// Returns the first ten characters of a commit id.
fn short_id(commit: &CommitId) -> &str {
    &commit.as_str()[..10]
}
