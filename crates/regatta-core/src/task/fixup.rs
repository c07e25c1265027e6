//! Fix-ups: finished work that does not merge, or fails its checks after the merge, goes back to an
//! agent, which fixes it together with the work that landed since. The submitted work is kept, and
//! only the conflicts need work.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{CommitId, TaskId};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;

use super::{NextAttempt, Task, TaskReturned, TaskStatus, find, needs_human_to_fix, next_status};

/// Maximum number of fix-ups of a task before its work needs a person.
pub const MAX_FIXUPS: u32 = 3;

/// The way in which the two sides of a merge conflict at a path.
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
    /// The path has different types: a file, a symlink or a submodule.
    Type,
    /// At least one side renamed the path.
    Renamed,
}

impl ConflictKind {
    /// Returns a short description of the conflict. Conflicts of lines are the usual kind and have
    /// none.
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

/// A path at which a merge conflicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conflict {
    pub path: String,
    pub kind: ConflictKind,
}

/// A conflicting path for which one side's version was taken, by the ownership of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettledPath {
    pub path: String,
    /// True if the trunk's version was taken, false if the task's.
    pub is_trunks: bool,
}

/// The fix that finished work needs before it can land.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fixup {
    /// The submitted commit.
    pub commit: CommitId,
    /// Conflicting paths; empty if the work merges and then fails its checks.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Output of the checks of the merged tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Kinds of the conflicts, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Conflicting paths that were resolved by ownership before the checks failed. The workspace
    /// has the chosen versions, without conflict markers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledPath>,
}

impl Fixup {
    /// Returns a fix-up of work that merges without conflicts.
    pub fn new(commit: CommitId) -> Fixup {
        Fixup {
            commit,
            paths: vec![],
            output: None,
            conflicts: vec![],
            settled: vec![],
        }
    }

    /// Returns the kind of decision that a person faces if the fix-ups do not succeed.
    fn kind(&self) -> WaitKind {
        if self.paths.is_empty() {
            WaitKind::Review
        } else {
            WaitKind::Conflict
        }
    }
}

impl Task {
    /// Records a fix-up and its conflicting paths.
    pub(crate) fn record_fixup(&mut self, fixup: &Fixup) {
        self.record_conflicts(&fixup.paths);
        self.fixup = Some(fixup.clone());
    }

    /// Records conflicting paths, each once.
    pub(crate) fn record_conflicts(&mut self, paths: &[String]) {
        self.conflicts.extend(paths.iter().cloned());
        self.conflicts.sort_unstable();
        self.conflicts.dedup();
    }

    /// Returns the patterns of the files that the next attempt may change: only the conflicting
    /// files, if there are any. If ownership resolved the conflicts before the checks failed, any
    /// of the task's own files may be at fault, so it may change those, too.
    pub fn manifest(&self) -> Vec<PathPattern> {
        let paths = self.fixup.iter().flat_map(|fixup| &fixup.paths);
        let mut literal: Vec<PathPattern> = paths
            .filter_map(|path| PathPattern::new(path).ok())
            .collect();
        // If one side has a directory at the path, its files belong to the conflict.
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

/// Sends finished work back for a fix-up, or to a person after [`MAX_FIXUPS`] of them.
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
