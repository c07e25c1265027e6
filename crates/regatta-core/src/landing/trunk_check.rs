//! Compares the commits on the trunk with Regatta's own records of landed work (Q12).
//!
//! The queue's record has the newest commit that the trunk had after the last landing. After every
//! move of the trunk and at every start of the daemon, the engine compares the actual trunk with
//! this recorded commit, and reports here the commits in which the two differ. Two differences
//! matter to people:
//!
//! - The trunk no longer contains a commit that landed: somebody reset or rewrote the branch.
//! - The trunk contains the commit of a task that Regatta's records show as unfinished.
//!
//! A difference is announced once. It stays recorded until the trunk agrees again or a person
//! accepts it, even if more work lands in the meantime. The queue continues meanwhile. Before a
//! task starts, Regatta checks with the same comparison that the work on which the task builds is
//! on the trunk. So after a person has accepted a difference, tasks that build on the lost work can
//! start.

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{CommitId, LandingId, Now, ProjectName, TaskId};
use crate::project::Project;
use crate::refusal::Refusal;

use super::trial_result::announce;
use super::{TrunkAccepted, TrunkCompared};

/// Maximum number of unrecorded commits that a recorded difference keeps. Also the maximum number
/// of commits of each kind (missing or unrecorded) that a message about the difference lists.
const MAX_LISTED_COMMITS: usize = 20;

/// A commit of the trunk, with the ids of the landing and task that its message names, if any.
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

/// The report of a comparison: the commits in which the trunk differs from Regatta's records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkSeen {
    /// Commits that the trunk was expected to contain: the result of [`recorded`] when the
    /// comparison began.
    pub recorded: Vec<CommitId>,
    /// Recorded commits and their ancestors that the trunk does not contain.
    pub missing: Vec<TrunkCommit>,
    /// Commits of the trunk that are newer than the last ancestor that the trunk and all recorded
    /// commits have in common.
    pub added: Vec<TrunkCommit>,
}

/// A difference between the trunk and Regatta's records that a person should know about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrunkDifference {
    /// Landed commits that the trunk no longer contains, for example after a reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<TrunkCommit>,
    /// Commits on the trunk that belong to tasks that are unfinished in Regatta's records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<TrunkCommit>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// Returns the commits that the trunk should contain. These are the newest commit of the trunk
/// after the last landing, and the commits that the last comparison of the trunk with Regatta's
/// records found missing.
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

/// Handles the report of a comparison: records and announces a new difference, or that the
/// difference is gone. If more work landed since the comparison, the report is ignored, because
/// another comparison follows.
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
    // Ignore an old report that does not cover all commits which the trunk should now contain. A
    // report may cover more commits, because the check before a task starts also compares all
    // landed commits of the task's mission.
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

/// Accepts the trunk as it is, with the newest commit `tip`. Regatta forgets the difference, and no
/// task waits any longer for the lost work.
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

/// Returns the recorded commits that the trunk has lost. A missing commit does not count as lost if
/// the trunk contains a rewritten version of it, or if a person accepted the loss.
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
/// commit's message has lines that name its landing and task. Rewriting with git keeps these lines,
/// so they are compared. If neither commit has such lines, the subjects are compared.
fn is_same_change(left: &TrunkCommit, right: &TrunkCommit) -> bool {
    if left.landing.is_none() && right.landing.is_none() {
        return left.subject == right.subject;
    }
    left.landing == right.landing && left.task == right.task
}

/// Computes the difference between the trunk and Regatta's records from a report, or `None` if they
/// agree.
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
        // This list must be complete, because a person who accepts the trunk as it is accepts the
        // loss of every listed commit.
        missing: missing.cloned().collect(),
        unrecorded: unrecorded.take(MAX_LISTED_COMMITS).cloned().collect(),
        since_unix_ms,
    };
    (!found.missing.is_empty() || !found.unrecorded.is_empty()).then_some(found)
}

/// Returns whether a commit of the trunk belongs to an unfinished task that is not in the landing
/// queue.
///
/// Queued tasks do not count, because the next trial merge finds their work on the trunk and
/// records it. The ids in the commit's message alone are no proof, because another Regatta
/// installation that lands on the same remote also numbers its landings and tasks from one. So the
/// subject must match, too.
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

/// Returns a sentence for people about the recorded difference between a project's trunk and
/// Regatta's records, if there is one.
pub fn difference_sentence(project: &Project) -> Option<String> {
    project
        .queue
        .trunk_difference
        .as_ref()
        .map(|found| describe_difference(project, found))
}

/// Describes a difference between the trunk and Regatta's records, with the commands that resolve
/// the difference.
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
