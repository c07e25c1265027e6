//! Counts the lines of changes that wait for a review. The counts are cached, because git counts
//! slowly and a commit never changes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regatta_api::patch;
use regatta_core::ids::CommitId;
use regatta_core::task::Submission;
use regatta_engine::ports::git::{CommitGit, CommitRange, ProjectRepo};

/// Maximum number of changes whose lines are counted for one frame (one set of changes for the
/// page). The number is limited because counting is slow; the next frames count the rest.
const MAX_COUNTED_PER_FRAME: usize = 8;
/// Number of changes whose counted lines are kept. More changes than this rarely wait for a review.
const MAX_CACHED_COUNTS: usize = 500;

/// The numbers of added and removed lines of a change.
#[derive(Clone, Copy)]
pub(super) struct LineCounts {
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// The counted lines of changes that wait for a review, by the change's last commit.
#[derive(Default)]
pub(super) struct ChangeSizes {
    counts: Mutex<BTreeMap<CommitId, LineCounts>>,
}

impl ChangeSizes {
    /// Returns the numbers of changed lines, from the cache or from git. Returns `None` if enough
    /// changes were `counted` for this frame, or if git fails.
    pub(super) fn count(
        &self,
        git: &dyn CommitGit,
        repo: &ProjectRepo,
        work: &Submission,
        counted: &mut usize,
    ) -> Option<LineCounts> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = counts.get(&work.commit) {
            return Some(*known);
        }
        if *counted == MAX_COUNTED_PER_FRAME {
            return None;
        }
        *counted += 1;
        let range = CommitRange {
            base: &work.base,
            commit: &work.commit,
        };
        let text = match git.diff(repo, range) {
            Ok(text) => text,
            Err(error) => {
                let commit = &work.commit;
                tracing::debug!(%commit, "could not count the changed lines of commit {commit}: {error}");
                return None;
            }
        };
        let mut lines = LineCounts {
            added: 0,
            removed: 0,
        };
        for file in patch::files_in_patch(&text) {
            lines.added += file.added as u64;
            lines.removed += file.removed as u64;
        }
        if counts.len() >= MAX_CACHED_COUNTS {
            counts.clear();
        }
        counts.insert(work.commit.clone(), lines);
        Some(lines)
    }
}
