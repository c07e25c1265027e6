//! Forgets work that somebody dropped, thirty days after that (Q3). Everything else that was captured is kept for good.

use std::time::Duration;

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::project::Project;
use regatta_core::task::Status;

use crate::Engine;
use crate::ports::git::{DroppedProof, Repo};
use crate::ports::store::TaskFilter;

/// How long what was dropped is kept.
pub const DROPPED_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// For how long nobody must have written an object that no ref leads to before it is garbage. What is tried just now is on
/// no ref yet.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3_600);
/// How many tasks are read at once.
const PAGE: usize = 1_000;

impl Engine {
    /// Lets go of what was dropped long enough ago, and says of how many attempts that was. What cannot be found out now is
    /// kept. `today_unix_ms` is the date by which ages are judged ([`crate::retention_date`]). For a thread: it reads the
    /// store and runs git.
    pub fn forget_dropped(&self, today_unix_ms: u64) -> Result<usize, String> {
        let board = self.board();
        let mut forgotten = 0;
        for project in board.projects.values() {
            let repo = Repo::of(project);
            let git = &self.shared.git;
            let mut here = 0;
            for attempt in git.kept_attempts(&repo).map_err(|it| it.to_string())? {
                if let Some(proof) = self.prove_dropped(&board, attempt, today_unix_ms)? {
                    git.forget_dropped(&proof, &repo).map_err(|it| it.to_string())?;
                    here += 1;
                }
            }
            if here > 0 {
                git.collect_garbage(&repo, &self.landed_commits(project)?, UNUSED).map_err(|it| it.to_string())?;
            }
            forgotten += here;
        }
        Ok(forgotten)
    }

    /// What ever landed in a project.
    fn landed_commits(&self, project: &Project) -> Result<Vec<CommitId>, String> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let filter = TaskFilter {
                project: Some(project.name.clone()),
                statuses: vec![Status::Completed],
                after,
                limit: PAGE,
                ..TaskFilter::default()
            };
            let tasks = self.history().tasks(&filter).map_err(|it| it.to_string())?;
            after = tasks.iter().map(|it| it.id).max();
            let full = tasks.len() == PAGE;
            found.extend(tasks.into_iter().filter_map(|it| it.landed));
            if !full {
                return Ok(found);
            }
        }
    }

    /// Proves that an attempt's work was dropped and that its time is up: it has ended, nobody goes on with it, and its task
    /// was cancelled, which is final, thirty days ago.
    fn prove_dropped(&self, board: &Board, id: AttemptId, today_unix_ms: u64) -> Result<Option<DroppedProof>, String> {
        let lives = board.attempts.values().any(|it| it.id == id || it.workspace() == id)
            || board.tasks.values().any(|it| it.resume.as_ref().is_some_and(|it| it.workspace == id))
            || board.tasks.values().any(|it| it.submission.as_ref().is_some_and(|it| it.attempt == id));
        if lives {
            return Ok(None);
        }
        let history = self.history();
        let Some(attempt) = history.attempt(id).map_err(|it| it.to_string())? else { return Ok(None) };
        let Some(task) = history.task(attempt.task).map_err(|it| it.to_string())? else { return Ok(None) };
        let over = attempt.ended.is_some() && task.status == Status::Cancelled;
        let age = today_unix_ms.saturating_sub(task.updated_wall);
        Ok((over && u128::from(age) >= DROPPED_KEPT.as_millis()).then(|| DroppedProof::mint(id)))
    }
}
