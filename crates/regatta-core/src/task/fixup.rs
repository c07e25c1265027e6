//! Fix-ups: finished work that does not merge, or fails once it is merged, goes back to be mended where it meets what
//! landed since. The work itself is kept; only what conflicts is to be settled.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{CommitId, TaskId};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;

use super::{Again, Returned, Status, Task, find, needs_human, next_status};

/// How many fix-ups a task gets before its work is handed to a person.
pub const MOST_FIXUPS: u32 = 3;

/// What is to be mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fixup {
    /// The work as it was submitted.
    pub commit: CommitId,
    /// The paths that conflict. None do when it merges and then fails.
    #[serde(default)]
    pub paths: Vec<String>,
    /// What the checks of the merged tree printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl Fixup {
    fn kind(&self) -> WaitKind {
        if self.paths.is_empty() { WaitKind::Review } else { WaitKind::Conflict }
    }
}

impl Task {
    /// What its next attempt may touch: the conflicting files alone, where there are any.
    pub fn manifest(&self) -> Vec<PathPattern> {
        let paths = self.fixup.iter().flat_map(|it| &it.paths);
        let literal: Vec<PathPattern> = paths.filter_map(|it| PathPattern::new(it).ok()).collect();
        if literal.is_empty() { self.files.clone() } else { literal }
    }
}

/// Sends finished work back to be mended, or hands it to a person when that was tried often enough.
pub(crate) fn mend(draft: &mut Draft, id: TaskId, reason: &str, again: Again) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    let kind = again.fixup.as_ref().map_or(WaitKind::Conflict, Fixup::kind);
    if task.fixups >= MOST_FIXUPS {
        return needs_human(draft, id, kind, &format!("{MOST_FIXUPS} fix-ups did not settle it: {reason}"));
    }
    let status = if task.assignee.is_some() { Status::Pending } else { Status::Unassigned };
    next_status(id, task.status, status)?;
    let again = Some(Again { counts: false, ..again });
    draft.record(Event::TaskReturned(Returned { task: id, status, reason: reason.to_owned(), counts: false, again }));
    Ok(())
}
