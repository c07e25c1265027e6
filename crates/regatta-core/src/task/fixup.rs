//! A fix-up is the repair of finished work that conflicts with the trunk, or fails its checks when
//! merged with it. The work goes back to an agent, which starts from the submitted work merged with
//! the present trunk.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{CommitId, TaskId};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;

use super::{NextAttempt, Task, TaskReturned, TaskStatus, find, needs_human_to_fix, next_status};

/// Maximum number of times that agents try to repair a task's finished work before a person must
/// decide.
pub const MAX_FIXUPS: u32 = 3;

/// The kind of a merge conflict at a path: the way in which the two sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both sides changed the same lines.
    Content,
    /// Both sides changed a file that is not text.
    Binary,
    /// Both sides added the path, with different content.
    Added,
    /// The trunk deleted a file that the task changed.
    DeletedOnTrunk,
    /// The task deleted a file that the trunk changed.
    DeletedByTask,
    /// The path is a file on one side and a directory on the other.
    FileAndDirectory,
    /// The path has different types on the two sides: a file, a symbolic link or a submodule.
    Type,
    /// At least one side renamed the file.
    Renamed,
}

impl ConflictKind {
    /// Returns a short description of the conflict, or `None` for the usual kind, in which both
    /// sides changed the same lines.
    pub fn description(self) -> Option<&'static str> {
        match self {
            ConflictKind::Content => None,
            ConflictKind::Binary => Some("a binary file, changed on both sides"),
            ConflictKind::Added => Some("added on both sides"),
            ConflictKind::DeletedOnTrunk => Some("deleted on the trunk, changed by this task"),
            ConflictKind::DeletedByTask => Some("changed on the trunk, deleted by this task"),
            ConflictKind::FileAndDirectory => Some("a file on one side, a directory on the other"),
            ConflictKind::Type => Some("different types of file on the two sides"),
            ConflictKind::Renamed => Some("renamed on one side"),
        }
    }
}

/// A path at which merging a task's work with the trunk conflicts, with the kind of conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conflict {
    pub path: String,
    pub kind: ConflictKind,
}

/// A conflicting path that was resolved by taking the version of the task that owns the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettledPath {
    pub path: String,
    /// Set if the trunk's version was taken; otherwise the task's version was.
    pub is_trunks: bool,
}

/// The reasons why a task's finished work could not be merged, described for the agent or person
/// that will fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fixup {
    /// The commit with the submitted work.
    pub commit: CommitId,
    /// Conflicting paths; empty if the work was merged without conflicts and then failed its
    /// checks.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Output of the check that failed after the merge; `None` if no check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The conflicts with their kinds, as far as the kinds are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Conflicting paths that were resolved by taking the file owner's version before the checks
    /// failed. The workspace has these versions, without conflict markers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledPath>,
}

impl Fixup {
    /// Returns the description of a fix-up (repair) of the finished work in this commit, still
    /// without conflicts or check output.
    pub fn new(commit: CommitId) -> Fixup {
        Fixup {
            commit,
            paths: vec![],
            output: None,
            conflicts: vec![],
            settled: vec![],
        }
    }

    /// Returns what kind of decision a person must make if agents cannot fix the work: about a
    /// conflict or about a failed check.
    fn kind(&self) -> WaitKind {
        if self.paths.is_empty() {
            WaitKind::Review
        } else {
            WaitKind::Conflict
        }
    }
}

impl Task {
    /// Records the problem that an agent must fix in the task's finished work, and adds its paths
    /// to the task's conflicts.
    pub(crate) fn record_fixup(&mut self, fixup: &Fixup) {
        self.record_conflicts(&fixup.paths);
        self.fixup = Some(fixup.clone());
    }

    /// Adds paths to the task's list of conflicts, each once.
    pub(crate) fn record_conflicts(&mut self, paths: &[String]) {
        self.conflicts.extend(paths.iter().cloned());
        self.conflicts.sort_unstable();
        self.conflicts.dedup();
    }

    /// Returns the patterns of the files that the next attempt may change. These are the task's own
    /// files, or, if the attempt must resolve conflicts, only the conflicting files. If conflicts
    /// were resolved by taking a file owner's version and then a check failed, both are included.
    pub fn manifest(&self) -> Vec<PathPattern> {
        let paths = self.fixup.iter().flat_map(|fixup| &fixup.paths);
        let mut literal: Vec<PathPattern> = paths
            .filter_map(|path| PathPattern::new(path).ok())
            .collect();
        // If one side has a directory at a conflicting path, the files in the directory belong to
        // the conflict, so the agent may change them.
        let conflicts = self.fixup.iter().flat_map(|fixup| &fixup.conflicts);
        let directories =
            conflicts.filter(|conflict| conflict.kind == ConflictKind::FileAndDirectory);
        literal.extend(
            directories
                .filter_map(|conflict| PathPattern::new(&format!("{}/**", conflict.path)).ok()),
        );
        let is_settled = self
            .fixup
            .as_ref()
            .is_some_and(|fixup| !fixup.settled.is_empty());
        if literal.is_empty() || (is_settled && self.files.is_empty()) {
            return self.files.clone();
        }
        if is_settled {
            literal.retain(|pattern| !self.files.contains(pattern));
            literal.splice(0..0, self.files.iter().cloned());
        }
        literal
    }
}

/// Sends finished work that could not be merged back to an agent, or to a person after
/// [`MAX_FIXUPS`] tries.
pub(crate) fn send_to_fixup(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    again: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    let kind = again
        .fixup
        .as_ref()
        .map_or(WaitKind::Conflict, |fixup| fixup.kind());
    if task.fixups >= MAX_FIXUPS {
        let reason = format!("it still fails after {MAX_FIXUPS} fix-ups: {reason}");
        return needs_human_to_fix(draft, id, kind, again.fixup, &reason);
    }
    let status = if task.assignee.is_some() {
        TaskStatus::Pending
    } else {
        TaskStatus::Unassigned
    };
    next_status(id, task.status, status)?;
    let again = Some(NextAttempt {
        counts_as_failure: false,
        ..again
    });
    draft.record(Event::TaskReturned(TaskReturned {
        task: id,
        status,
        reason: reason.to_owned(),
        counts: false,
        again,
    }));
    Ok(())
}
