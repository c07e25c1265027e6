//! Shows the diff of a task's change on the web page: first the list of files, then the rows of a
//! file as HTML, part by part, when the page asks for them. The page can also ask for unchanged
//! lines that the diff leaves out.
//!
//! Git makes the patch, `file_diff` parses it, `highlight` finds the syntax, and `rows` renders it.
//! This module answers the requests and caches recent patches. Files that the task was not allowed
//! to change come first.

mod file_diff; // the files and lines of a patch
mod highlight; // the syntax of source code
mod line_html; // one line as HTML
mod rows; // lines as rows of HTML

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::live_view::{DiffFileView, DiffFilesView, DiffPartsView};
use regatta_core::ids::{CommitId, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use regatta_engine::ports::git::{CommitRange, ProjectRepo, ReadGit};
use serde::Deserialize;

use super::task_details::sent_comments;
use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits, verbs};
use file_diff::{FileDiff, parse_patch, without_spaces};
use rows::{ContextStyle, DiffRows, render_context};

/// Maximum number of patches (diffs) in the cache.
const MAX_CACHED_PATCHES: usize = 4;
/// Number of changed lines above which the page shows a file collapsed at first.
const LARGE_FILE_LINES: usize = 2_000;
/// Maximum number of parts of a file that one request returns.
const MAX_PARTS: usize = 8;
/// Maximum number of unchanged lines that one request returns.
const MAX_CONTEXT_LINES: usize = 200;

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
    /// The first part of the file that is returned.
    #[serde(default)]
    part: usize,
    /// The number of parts that are returned.
    #[serde(default)]
    count: usize,
    /// The first and the last unchanged line that are returned, by their numbers in the new file.
    #[serde(default)]
    from: usize,
    #[serde(default)]
    to: usize,
    /// The number that added to a new line number gives the old one.
    #[serde(default)]
    shift: isize,
}

/// A task's change as a patch (diff), with the commits before and after the change.
struct Patch {
    task: Task,
    base: CommitId,
    commit: CommitId,
    repo: ProjectRepo,
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
    let project = board.projects.get(&task.project).cloned();
    let project = project.ok_or_else(|| {
        Problem::from(&Refusal::NoSuchProject {
            project: task.project.clone(),
        })
    })?;
    let repo = ProjectRepo::from_project(&project);
    let patch = |files| Patch {
        task: task.clone(),
        base: base.clone(),
        commit: work.commit.clone(),
        repo: repo.clone(),
        files,
    };
    let ends = (base.clone(), work.commit.clone());
    if let Some(files) = shared.live_caches.patches.find(id, &ends) {
        return Ok(patch(files));
    }
    let (git, repo, from, to) = (
        shared.engine.git(),
        repo.clone(),
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
    Ok(patch(files))
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
    let (task, history) = (patch.task.id, shared.engine.history().clone());
    let attempts = verbs::run_blocking(move || history.attempts_of(task))
        .await?
        .map_err(verbs::problem_from_store)?;
    let paths: Vec<&str> = patch.files.iter().map(|file| file.path.as_str()).collect();
    let answer = DiffFilesView {
        comments: sent_comments(&patch.task.notes, &attempts, &paths),
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

/// Handles `GET /api/v1/page/diff/T9/0?part=3`: returns some parts of a file's diff as HTML.
pub(super) async fn file_parts(
    State(shared): State<Arc<ServerState>>,
    Path((id, nth)): Path<(String, usize)>,
    request_limits::QueryParams(params): request_limits::QueryParams<DiffParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    let patch = load_patch(&shared, &authenticated, &id, params.since_review).await?;
    let git = shared.engine.git();
    let answer = verbs::run_blocking(move || {
        let file = patch.files.get(nth).ok_or_else(no_such_file)?;
        let simplified = params.spaces.then(|| without_spaces(file));
        let rows = DiffRows::new(simplified.as_ref().unwrap_or(file), params.split);
        let count = params.count.clamp(1, MAX_PARTS);
        let end = rows.part_count().min(params.part.saturating_add(count));
        // Only the last part has a button for the lines below it.
        let file_lines = if end == rows.part_count() {
            new_file_text(&*git, &patch, &file.path)?.map(|text| text.lines().count())
        } else {
            None
        };
        Ok::<_, Problem>(DiffPartsView {
            rows: rows.len(),
            rows_per_part: rows::ROWS_PER_PART,
            first: params.part,
            html: (params.part..end)
                .map(|part| rows.render_part(part, file_lines))
                .collect(),
        })
    });
    Ok(axum::Json(answer.await??).into_response())
}

/// Handles `GET /api/v1/page/diff/T9/0/lines?from=41&to=60`: returns unchanged lines as HTML.
pub(super) async fn context_lines(
    State(shared): State<Arc<ServerState>>,
    Path((id, nth)): Path<(String, usize)>,
    request_limits::QueryParams(params): request_limits::QueryParams<DiffParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    let patch = load_patch(&shared, &authenticated, &id, params.since_review).await?;
    let git = shared.engine.git();
    let html = verbs::run_blocking(move || {
        let file = patch.files.get(nth).ok_or_else(no_such_file)?;
        let text = new_file_text(&*git, &patch, &file.path)?.unwrap_or_default();
        let first = params.from.max(1);
        let wanted = (params.to + 1).saturating_sub(first).min(MAX_CONTEXT_LINES);
        let lines: Vec<&str> = text.lines().skip(first - 1).take(wanted).collect();
        let style = ContextStyle {
            path: &file.path,
            is_split: params.split,
        };
        Ok::<_, Problem>(render_context(&lines, first, params.shift, style))
    });
    let html = html.await??;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], html).into_response())
}

/// Returns the text of a file after the change, or `None` if the change deleted the file.
fn new_file_text(git: &dyn ReadGit, patch: &Patch, path: &str) -> Result<Option<String>, Problem> {
    let bytes = git
        .file_at(&patch.repo, &patch.commit, path)
        .map_err(|error| Problem::new(422, error.code, error.message, error.hint))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn no_such_file() -> Problem {
    Problem::new(
        404,
        "no_such_file",
        "the change no longer has a file with this number",
        "load the page again to see the present change",
    )
}

#[cfg(test)]
mod tests;
