//! Shows the diff of a task's change on the web page: first the list of files, then the lines of a
//! file as HTML when the page asks for them.
//!
//! Git makes the patch, `file_diff` parses it, and `rows` renders it. This module answers the
//! requests and caches recent patches. Files that the task was not allowed to change come first.

mod file_diff; // the files and lines of a patch
mod rows; // lines as rows of HTML

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::live_view::{DiffFileView, DiffFilesView};
use regatta_core::ids::{CommitId, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use regatta_engine::ports::git::{CommitRange, ProjectRepo};
use serde::Deserialize;

use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits, verbs};
use file_diff::{FileDiff, parse_patch};
use rows::{DiffStyle, render_rows};

/// Maximum number of patches (diffs) in the cache.
const MAX_CACHED_PATCHES: usize = 4;
/// Number of changed lines above which the page shows a file collapsed at first.
const LARGE_FILE_LINES: usize = 2_000;

/// The parsed patch of a task's change, identified by the commits before and after it.
struct CachedPatch {
    task: TaskId,
    ends: (CommitId, CommitId),
    files: Arc<Vec<FileDiff>>,
}

/// The cache of recently requested patches (diffs).
#[derive(Default)]
pub(super) struct PatchCache {
    recent: Mutex<VecDeque<CachedPatch>>,
}

impl PatchCache {
    fn find(&self, task: TaskId, ends: &(CommitId, CommitId)) -> Option<Arc<Vec<FileDiff>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent
            .iter()
            .find(|patch| patch.task == task && patch.ends == *ends)
            .map(|patch| patch.files.clone())
    }

    fn insert(&self, task: TaskId, ends: (CommitId, CommitId), files: Arc<Vec<FileDiff>>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == MAX_CACHED_PATCHES {
            recent.pop_front();
        }
        recent.push_back(CachedPatch { task, ends, files });
    }
}

#[derive(Deserialize)]
pub(super) struct DiffParams {
    #[serde(default)]
    split: bool,
    /// Show only the changes since the work was last sent back to its agent.
    #[serde(default)]
    since_review: bool,
    /// Treat lines that differ only in whitespace as equal.
    #[serde(default)]
    spaces: bool,
}

/// A task's change as a patch (diff), with the commit with which the change is compared.
struct Patch {
    task: Task,
    base: CommitId,
    files: Arc<Vec<FileDiff>>,
}

async fn load_patch(
    shared: &Arc<ServerState>,
    authenticated: &Authenticated,
    id: &str,
    since_review: bool,
) -> Result<Patch, Problem> {
    verbs::require_read_pages(&authenticated.principal)?;
    let bad = |_| {
        Problem::new(
            400,
            "bad_id",
            "the address does not contain a task's id",
            "see the tasks and their ids: regatta status",
        )
    };
    let id: TaskId = id.parse().map_err(bad)?;
    let (board, history) = (shared.engine.board(), shared.engine.history().clone());
    let found = match board.tasks.get(&id) {
        Some(task) => Some((**task).clone()),
        None => verbs::run_blocking(move || history.task(id))
            .await?
            .map_err(verbs::problem_from_store)?,
    };
    let task = found.ok_or_else(|| Problem::from(&Refusal::NoSuchTask { task: id }))?;
    let work = task.submission.clone();
    let work = work.ok_or_else(|| {
        Problem::from(&Refusal::NothingToLand {
            task: id,
            status: task.status,
        })
    })?;
    let base = match (since_review, &task.reviewed) {
        (true, Some(reviewed)) => reviewed.clone(),
        (true, None) => return Err(verbs::never_reviewed(id)),
        (false, _) => work.base.clone(),
    };
    let ends = (base.clone(), work.commit.clone());
    if let Some(files) = shared.live_caches.patches.find(id, &ends) {
        return Ok(Patch { task, base, files });
    }
    let project = board.projects.get(&task.project).cloned();
    let project = project.ok_or_else(|| {
        Problem::from(&Refusal::NoSuchProject {
            project: task.project.clone(),
        })
    })?;
    let (git, repo, from, to) = (
        shared.engine.git(),
        ProjectRepo::from_project(&project),
        base.clone(),
        work.commit.clone(),
    );
    let text = verbs::run_blocking(move || {
        let range = CommitRange {
            base: &from,
            commit: &to,
        };
        git.diff(&repo, range)
    })
    .await?;
    let text = text.map_err(|error| Problem::new(422, error.code, error.message, error.hint))?;
    let mut files = parse_patch(&text);
    if since_review {
        // Between the two compared commits, other tasks may have landed. So keep only the files
        // that belong to this task.
        files.retain(|file_diff| {
            work.changed.contains(&file_diff.path)
                || task
                    .files
                    .iter()
                    .any(|pattern| pattern.matches(&file_diff.path))
        });
    }
    files.sort_by_key(|file_diff| !is_outside_manifest(&task, &file_diff.path));
    let files = Arc::new(files);
    shared.live_caches.patches.insert(id, ends, files.clone());
    Ok(Patch { task, base, files })
}

fn is_outside_manifest(task: &Task, path: &str) -> bool {
    !task.files.is_empty() && !task.files.iter().any(|pattern| pattern.matches(path))
}

/// Handles `GET /api/v1/page/diff/T9`: returns the list of changed files.
pub(super) async fn list_files(
    State(shared): State<Arc<ServerState>>,
    Path(id): Path<String>,
    request_limits::QueryParams(params): request_limits::QueryParams<DiffParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    let patch = load_patch(&shared, &authenticated, &id, params.since_review).await?;
    let summary =
        |file: &FileDiff| file_summary(file, is_outside_manifest(&patch.task, &file.path));
    let answer = DiffFilesView {
        files: patch.files.iter().map(summary).collect(),
        commit: patch
            .task
            .submission
            .as_ref()
            .map(|submission| submission.commit.clone()),
        base: patch.base,
    };
    Ok(axum::Json(answer).into_response())
}

fn file_summary(file_diff: &FileDiff, is_outside: bool) -> DiffFileView {
    let count = |sign: char| {
        file_diff
            .lines
            .iter()
            .filter(|(line_sign, _)| *line_sign == sign)
            .count()
    };
    let (added, removed) = (count('+'), count('-'));
    let generated_names = [
        "package-lock.json",
        "Cargo.lock",
        "yarn.lock",
        "pnpm-lock.yaml",
        "go.sum",
    ];
    let name = file_diff.path.rsplit('/').next().unwrap_or_default();
    let is_collapsed = added + removed > LARGE_FILE_LINES
        || generated_names.contains(&name)
        || name.ends_with(".min.js");
    DiffFileView {
        path: file_diff.path.clone(),
        was: file_diff.renamed_from.clone(),
        note: file_diff.note.clone(),
        added,
        removed,
        outside: is_outside,
        closed: is_collapsed,
    }
}

/// Handles `GET /api/v1/page/diff/T9/0`: returns the lines of one file as HTML.
pub(super) async fn file_rows(
    State(shared): State<Arc<ServerState>>,
    Path((id, nth)): Path<(String, usize)>,
    request_limits::QueryParams(params): request_limits::QueryParams<DiffParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    let files = load_patch(&shared, &authenticated, &id, params.since_review)
        .await?
        .files;
    let style = DiffStyle {
        split: params.split,
        ignore_spaces: params.spaces,
    };
    let html = verbs::run_blocking(move || {
        files
            .get(nth)
            .map(|file_diff| render_rows(file_diff, style))
    })
    .await?;
    let text = html.ok_or_else(|| {
        Problem::new(
            404,
            "no_such_file",
            "the change no longer has a file with this number",
            "load the page again to see the present change",
        )
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

#[cfg(test)]
mod tests;
