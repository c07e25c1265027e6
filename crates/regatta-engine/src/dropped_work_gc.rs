//! Deletes the stored work of attempts thirty days after a person dropped that work (Q3). Other
//! stored work is never deleted.

use std::time::Duration;

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::project::Project;
use regatta_core::task::TaskStatus;

use crate::Engine;
use crate::ports::git::{DroppedProof, ProjectRepo, StorageGit};
use crate::ports::store::TaskFilter;

/// The time for which work that was dropped from the queue is kept.
pub const DROPPED_WORK_RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The age from which git may delete an object that no ref reaches. Younger objects are kept,
/// because running trial merges use objects that no ref reaches yet.
const MIN_GARBAGE_AGE: Duration = Duration::from_secs(14 * 24 * 3_600);
/// The number of tasks that one query to the store reads.
const PAGE_SIZE: usize = 1_000;

impl Engine {
    /// Deletes the stored work that was dropped long enough ago, and returns the number of attempts
    /// whose work it deleted. Work whose state cannot be determined is kept. `today_unix_ms` is the
    /// date by which ages are judged ([`mod@crate::retention_date`]). The call blocks, because it
    /// reads the store and runs git.
    pub fn forget_dropped(&self, today_unix_ms: u64) -> Result<usize, String> {
        let board = self.board();
        let mut forgotten = 0;
        for project in board.projects.values() {
            let repo = ProjectRepo::from_project(project);
            let git: &dyn StorageGit = &*self.shared.git;
            let mut forgotten_here = 0;
            for attempt in git
                .kept_attempts(&repo)
                .map_err(|error| error.to_string())?
            {
                if let Some(proof) = self.prove_dropped(&board, attempt, today_unix_ms)? {
                    git.forget_dropped(&proof, &repo)
                        .map_err(|error| error.to_string())?;
                    forgotten_here += 1;
                }
            }
            if forgotten_here > 0 {
                git.collect_garbage(&repo, &self.landed_commits(project)?, MIN_GARBAGE_AGE)
                    .map_err(|error| error.to_string())?;
            }
            forgotten += forgotten_here;
        }
        Ok(forgotten)
    }

    /// Returns all commits that ever landed in a project, as the store recorded them.
    fn landed_commits(&self, project: &Project) -> Result<Vec<CommitId>, String> {
        let mut commits = Vec::new();
        let mut after = None;
        loop {
            let filter = TaskFilter {
                project: Some(project.name.clone()),
                statuses: vec![TaskStatus::Completed],
                after,
                limit: PAGE_SIZE,
                ..TaskFilter::default()
            };
            let tasks = self
                .history()
                .tasks(&filter)
                .map_err(|error| error.to_string())?;
            after = tasks.iter().map(|task| task.id).max();
            let is_full = tasks.len() == PAGE_SIZE;
            commits.extend(tasks.into_iter().filter_map(|task| task.landed));
            if !is_full {
                return Ok(commits);
            }
        }
    }

    /// Proves that an attempt's work may be deleted: the attempt has ended, no other attempt
    /// continues it, and its task was cancelled at least thirty days ago. A cancelled task cannot
    /// be resumed. Returns `None` if one of these conditions does not hold.
    fn prove_dropped(
        &self,
        board: &Board,
        id: AttemptId,
        today_unix_ms: u64,
    ) -> Result<Option<DroppedProof>, String> {
        let is_in_use = board
            .attempts
            .values()
            .any(|attempt| attempt.id == id || attempt.workspace() == id)
            || board.tasks.values().any(|task| {
                task.resume
                    .as_ref()
                    .is_some_and(|resume| resume.workspace == id)
            })
            || board.tasks.values().any(|task| {
                task.submission
                    .as_ref()
                    .is_some_and(|submission| submission.attempt == id)
            });
        if is_in_use {
            return Ok(None);
        }
        let history = self.history();
        let Some(attempt) = history.attempt(id).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let Some(task) = history
            .task(attempt.task)
            .map_err(|error| error.to_string())?
        else {
            return Ok(None);
        };
        let was_dropped = attempt.end.is_some() && task.status.is_cancelled();
        let age = today_unix_ms.saturating_sub(task.updated_unix_ms);
        let is_due = was_dropped && u128::from(age) >= DROPPED_WORK_RETENTION.as_millis();
        Ok(is_due.then(|| DroppedProof::mint(id)))
    }
}
