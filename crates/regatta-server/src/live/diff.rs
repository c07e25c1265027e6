//! Diffs, file by file: first the list of files, then the lines of a file as HTML when the page
//! asks for it.
//!
//! Git makes the patch. This module splits it into files and lines, marks the changed words in
//! paired lines, and makes everything harmless. Files outside the manifest come first.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_core::ids::{CommitId, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use regatta_engine::ports::git::ProjectRepo;
use serde::{Deserialize, Serialize};

use super::sanitize;
use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, request_limits, verbs};

/// Number of patches in the cache.
const MAX_CACHED_PATCHES: usize = 4;
/// Number of changed lines above which a file is collapsed at first.
const LARGE_FILE_LINES: usize = 2_000;
/// Number of rows that a browser lays out at once.
const ROWS_PER_TABLE: usize = 100;
/// Maximum number of lines of one file that are sent.
const MAX_FILE_LINES: usize = 20_000;
/// Length above which lines are not compared word by word.
const MAX_COMPARED_CHARS: usize = 1_000;

/// One file of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileDiff {
    path: String,
    /// Its previous name, if it was renamed.
    renamed_from: Option<String>,
    note: String,
    lines: Vec<(char, String)>,
}

/// A task's change, identified by the commits before and after it.
type CachedPatch = (TaskId, (CommitId, CommitId), Arc<Vec<FileDiff>>);

/// Recently used patches.
#[derive(Default)]
pub(super) struct PatchCache {
    recent: Mutex<VecDeque<CachedPatch>>,
}

impl PatchCache {
    fn find(&self, task: TaskId, ends: &(CommitId, CommitId)) -> Option<Arc<Vec<FileDiff>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent
            .iter()
            .find(|(cached_task, cached_ends, _)| *cached_task == task && cached_ends == ends)
            .map(|(_, _, files)| files.clone())
    }

    fn insert(&self, task: TaskId, ends: (CommitId, CommitId), files: Arc<Vec<FileDiff>>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == MAX_CACHED_PATCHES {
            recent.pop_front();
        }
        recent.push_back((task, ends, files));
    }
}

/// A file in the list.
#[derive(Serialize)]
struct FileSummary<'a> {
    path: &'a str,
    was: Option<&'a str>,
    note: &'a str,
    added: usize,
    removed: usize,
    /// Set if the file is outside the task's manifest.
    outside: bool,
    /// Set if the file is collapsed at first, because it is large or generated.
    closed: bool,
}

#[derive(Deserialize)]
pub(super) struct DiffParams {
    #[serde(default)]
    split: bool,
    /// Only what changed since the work was last sent back.
    #[serde(default)]
    since_review: bool,
    /// Treat lines that differ only in whitespace as equal.
    #[serde(default)]
    spaces: bool,
}

/// A change with the commit that it is compared with.
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
    verbs::require_read_all(
        &authenticated.principal,
        "read the pages",
        "use a token with the scope viewer or wider",
    )?;
    let bad = |_| {
        Problem::new(
            400,
            "bad_id",
            "this is not the id of a task",
            "see what there is: regatta status",
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
        shared.engine.git().clone(),
        ProjectRepo::from_project(&project),
        base.clone(),
        work.commit.clone(),
    );
    let text = verbs::run_blocking(move || git.diff(&repo, &from, &to)).await?;
    let text = text.map_err(|error| Problem::new(422, error.code, error.message, error.hint))?;
    let mut files = parse_patch(&text);
    if since_review {
        // The range also has changes that others landed in the meantime, which are not this task's.
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

/// Handles `GET /api/v1/page/diff/T9`: returns the files.
pub(super) async fn list_files(
    State(shared): State<Arc<ServerState>>,
    Path(id): Path<String>,
    request_limits::QueryParams(params): request_limits::QueryParams<DiffParams>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    let patch = load_patch(&shared, &authenticated, &id, params.since_review).await?;
    let summary = |file: &FileDiff| {
        serde_json::to_value(file_summary(
            file,
            is_outside_manifest(&patch.task, &file.path),
        ))
        .unwrap_or_default()
    };
    let all: Vec<serde_json::Value> = patch.files.iter().map(summary).collect();
    let work = patch.task.submission.as_ref();
    let answer = serde_json::json!({ "base": patch.base, "commit": work.map(|submission| &submission.commit), "files": all });
    Ok(axum::Json(answer).into_response())
}

fn file_summary(file_diff: &FileDiff, is_outside: bool) -> FileSummary<'_> {
    let count = |sign: char| file_diff.lines.iter().filter(|line| line.0 == sign).count();
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
    FileSummary {
        path: &file_diff.path,
        was: file_diff.renamed_from.as_deref(),
        note: &file_diff.note,
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
            "the change has no such file",
            "load the page again",
        )
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

/// Parses a patch in git's format.
fn parse_patch(patch: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut is_in_hunk = false;
    for line in patch.split('\n') {
        if let Some(rest) = line.strip_prefix("diff --git ") {
            files.push(FileDiff {
                path: name_in(rest),
                ..FileDiff::default()
            });
            is_in_hunk = false;
            continue;
        }
        let Some(file) = files.last_mut() else {
            continue;
        };
        if line.starts_with("@@") {
            is_in_hunk = true;
            file.lines.push(('@', line.to_owned()));
        } else if is_in_hunk {
            let mut rest = line.chars();
            match rest.next() {
                Some(sign @ ('+' | '-' | ' ')) => file.lines.push((sign, rest.as_str().to_owned())),
                Some('\\') => file.lines.push(('\\', rest.as_str().trim().to_owned())),
                _ => {}
            }
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file.path = plain_name(path);
        } else if let Some(path) = line.strip_prefix("rename from ") {
            file.renamed_from = Some(plain_name(path));
        } else if let Some(path) = line.strip_prefix("rename to ") {
            file.path = plain_name(path);
        } else if line.starts_with("new file") {
            file.note = "new".into();
        } else if line.starts_with("deleted file") {
            file.note = "deleted".into();
        } else if line.starts_with("Binary files") {
            file.note = "binary".into();
        }
    }
    files
}

/// Returns the name from `a/x b/x`. Both names have the same length, unless the file was renamed,
/// which a later line says.
fn name_in(both: &str) -> String {
    let half = both.len() / 2;
    let name = both.get(half..).unwrap_or(both).trim_start();
    plain_name(name.strip_prefix("b/").unwrap_or(name))
}

/// Returns a name without the tab that git appends to names with spaces.
fn plain_name(name: &str) -> String {
    name.trim_end_matches(['\t', '\r'])
        .trim_matches('"')
        .to_owned()
}

/// The display options of a diff.
#[derive(Clone, Copy, Default)]
struct DiffStyle {
    /// Show the old and the new version side by side.
    split: bool,
    /// Ignore changes in whitespace.
    ignore_spaces: bool,
}

/// Renders a file's lines as rows of a table.
fn render_rows(
    file: &FileDiff,
    DiffStyle {
        split,
        ignore_spaces: spaces,
    }: DiffStyle,
) -> String {
    let simplified = spaces.then(|| without_spaces(file));
    let file = simplified.as_ref().unwrap_or(file);
    let mut html = String::new_line();
    let (mut old_line, mut new_line, mut at) = (0_usize, 0_usize, 0);
    while at < file.lines.len().min(MAX_FILE_LINES) {
        let (sign, text) = &file.lines[at];
        match sign {
            '@' => {
                (old_line, new_line) = hunk_line_numbers(text);
                let _a_string_takes_all = write!(
                    html,
                    "<tr class=\"hunk\"><td colspan=\"4\">{}</td></tr>",
                    sanitize::escape(text)
                );
                at += 1;
            }
            '+' | '-' => {
                let end = at
                    + file.lines[at..]
                        .iter()
                        .take_while(|(sign, _)| matches!(sign, '+' | '-'))
                        .count();
                render_change(
                    &mut html,
                    &file.lines[at..end],
                    (&mut old_line, &mut new_line),
                    split,
                );
                at = end;
            }
            ' ' => {
                let text = line_html(text);
                let _a_string_takes_all = if split {
                    write!(
                        html,
                        "<tr><td>{old_line}</td><td>{text}</td><td>{new_line}</td><td>{text}</td></tr>"
                    )
                } else {
                    write!(
                        html,
                        "<tr><td>{old_line}</td><td>{new_line}</td><td></td><td>{text}</td></tr>"
                    )
                };
                (old_line, new_line, at) = (old_line + 1, new_line + 1, at + 1);
            }
            _ => {
                let text = sanitize::escape(text);
                let _a_string_takes_all = write!(
                    html,
                    "<tr class=\"hunk\"><td colspan=\"4\">{text}</td></tr>"
                );
                at += 1;
            }
        }
    }
    if file.lines.len() > MAX_FILE_LINES {
        let left = file.lines.len() - MAX_FILE_LINES;
        let _a_string_takes_all = write!(
            html,
            "<tr class=\"hunk\"><td colspan=\"4\">{left} more lines: see regatta diff</td></tr>"
        );
    }
    wrap_in_tables(&html, split)
}

/// Puts rows into tables of a hundred each, in boxes that a browser does not lay out before they
/// are visible. The columns have fixed widths, so that no row depends on another one. The text of a
/// row cannot contain its end tag.
fn wrap_in_tables(rows: &str, split: bool) -> String {
    let head = if split {
        "<div class=\"part\"><table class=\"diff split\"><colgroup><col class=\"n\"><col><col \
        class=\"n\"><col></colgroup>"
    } else {
        "<div class=\"part\"><table class=\"diff\"><colgroup><col class=\"n\"><col \
        class=\"n\"><col class=\"s\"><col></colgroup>"
    };
    let ends: Vec<usize> = rows
        .match_indices("</tr>")
        .map(|(position, end_tag)| position + end_tag.len())
        .collect();
    let mut out =
        String::with_capacity(rows.len() + (ends.len() / ROWS_PER_TABLE + 1) * (head.len() + 20));
    let mut from = 0;
    for piece in ends.chunks(ROWS_PER_TABLE) {
        let to = piece.last().copied().unwrap_or(from);
        out.push_str(head);
        out.push_str(&rows[from..to]);
        out.push_str("</table></div>");
        from = to;
    }
    out
}

/// Returns a change in which lines that differ only in whitespace are unchanged lines in their new
/// form.
fn without_spaces(file: &FileDiff) -> FileDiff {
    let mut lines = Vec::with_capacity(file.lines.len());
    let mut at = 0;
    while at < file.lines.len() {
        let end = at
            + file.lines[at..]
                .iter()
                .take_while(|(sign, _)| matches!(sign, '+' | '-'))
                .count();
        if end == at {
            lines.push(file.lines[at].clone());
            at += 1;
            continue;
        }
        let lines_with = |sign: char| {
            file.lines[at..end]
                .iter()
                .filter(|(line_sign, _)| *line_sign == sign)
                .map(|(_, text)| text.as_str())
                .collect()
        };
        let (removed, added): (Vec<&str>, Vec<&str>) = (lines_with('-'), lines_with('+'));
        let (mut old, mut new) = (0, 0);
        for (removed_line, added_line) in pairs_equal_but_spaces(&removed, &added) {
            lines.extend(
                removed[old..removed_line]
                    .iter()
                    .map(|text| ('-', (*text).to_owned())),
            );
            lines.extend(
                added[new..added_line]
                    .iter()
                    .map(|text| ('+', (*text).to_owned())),
            );
            lines.push((' ', added[added_line].to_owned()));
            (old, new) = (removed_line + 1, added_line + 1);
        }
        lines.extend(removed[old..].iter().map(|text| ('-', (*text).to_owned())));
        lines.extend(added[new..].iter().map(|text| ('+', (*text).to_owned())));
        at = end;
    }
    FileDiff {
        lines,
        ..file.clone()
    }
}

/// Returns pairs of lines, in order, that are equal except for whitespace: the maximum number of
/// pairs, for blocks of a size that a person would compare.
fn pairs_equal_but_spaces(removed: &[&str], added: &[&str]) -> Vec<(usize, usize)> {
    const MAX_COMPARISONS: usize = 250_000;
    let bare = |s: &&str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (removed_bare, added_bare): (Vec<String>, Vec<String>) = (
        removed.iter().map(bare).collect(),
        added.iter().map(bare).collect(),
    );
    if removed_bare.len() * added_bare.len() > MAX_COMPARISONS {
        return (0..removed_bare.len().min(added_bare.len()))
            .filter(|i| removed_bare[*i] == added_bare[*i])
            .map(|i| (i, i))
            .collect();
    }
    let width = added_bare.len() + 1;
    let mut longest = vec![0_u32; (removed_bare.len() + 1) * width];
    for i in (0..removed_bare.len()).rev() {
        for j in (0..added_bare.len()).rev() {
            longest[i * width + j] = if removed_bare[i] == added_bare[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < removed_bare.len() && j < added_bare.len() {
        if removed_bare[i] == added_bare[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Returns the two line numbers of a hunk header such as `@@ -41,7 +41,9 @@`.
fn hunk_line_numbers(hunk: &str) -> (usize, usize) {
    let number = |sign: char| {
        let from = hunk.find(sign).map(|n| &hunk[n + 1..]).unwrap_or_default();
        from.split([',', ' '])
            .next()
            .and_then(|from| from.parse().ok())
            .unwrap_or(1)
    };
    (number('-'), number('+'))
}

fn line_html(text: &str) -> String {
    let (shown, left) = sanitize::truncate(text);
    let mut out = sanitize::escape(shown);
    if left > 0 {
        let _a_string_takes_all =
            write!(out, "<span class=\"ctl\"> … {left} more characters</span>");
    }
    out
}

/// Renders removed lines and the added lines in their place, with the differences in a pair marked.
fn render_change(
    out: &mut String,
    lines: &[(char, String)],
    line_numbers: (&mut usize, &mut usize),
    split: bool,
) {
    let removed: Vec<&str> = lines
        .iter()
        .filter(|(sign, _)| *sign == '-')
        .map(|(_, text)| text.as_str())
        .collect();
    let added: Vec<&str> = lines
        .iter()
        .filter(|(sign, _)| *sign == '+')
        .map(|(_, text)| text.as_str())
        .collect();
    let pair = |nth: usize| Some((*removed.get(nth)?, *added.get(nth)?));
    let old_html = |nth: usize| {
        pair(nth).map_or_else(
            || line_html(removed[nth]),
            |(a, b)| mark_difference(a, b, "del"),
        )
    };
    let new_html = |nth: usize| {
        pair(nth).map_or_else(
            || line_html(added[nth]),
            |(a, b)| mark_difference(b, a, "ins"),
        )
    };
    if split {
        for nth in 0..removed.len().max(added.len()) {
            out.push_str("<tr>");
            if nth < removed.len() {
                let _a_string_takes_all = write!(
                    out,
                    "<td>{}</td><td class=\"d\">{}</td>",
                    *line_numbers.0 + nth,
                    old_html(nth)
                );
            } else {
                out.push_str("<td></td><td></td>");
            }
            if nth < added.len() {
                let _a_string_takes_all = write!(
                    out,
                    "<td>{}</td><td class=\"i\">{}</td>",
                    *line_numbers.1 + nth,
                    new_html(nth)
                );
            } else {
                out.push_str("<td></td><td></td>");
            }
            out.push_str("</tr>");
        }
    } else {
        for nth in 0..removed.len() {
            let number = *line_numbers.0 + nth;
            let _a_string_takes_all = write!(
                out,
                "<tr class=\"d\"><td>{number}</td><td></td><td>-</td><td>{}</td></tr>",
                old_html(nth)
            );
        }
        for nth in 0..added.len() {
            let number = *line_numbers.1 + nth;
            let _a_string_takes_all = write!(
                out,
                "<tr class=\"i\"><td></td><td>{number}</td><td>+</td><td>{}</td></tr>",
                new_html(nth)
            );
        }
    }
    *line_numbers.0 += removed.len();
    *line_numbers.1 += added.len();
}

/// Renders a line with the part marked that differs from the other line: the part between the
/// common beginning and the common end.
fn mark_difference(text: &str, other: &str, tag: &str) -> String {
    if text.len() > MAX_COMPARED_CHARS || other.len() > MAX_COMPARED_CHARS {
        return line_html(text);
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (split_words(text), split_words(other));
    let head = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let tail = a[head..]
        .iter()
        .rev()
        .zip(b[head..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (from, to) = (head, a.len() - tail);
    // Without a common part, nothing is marked.
    if from == to || (head == 0 && tail == 0) {
        return line_html(text);
    }
    let part = |words: &[&str]| sanitize::escape(&words.concat());
    format!(
        "{}<{tag}>{}</{tag}>{}",
        part(&a[..from]),
        part(&a[from..to]),
        part(&a[to..])
    )
}

/// Splits a text into words and single other characters.
fn split_words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    let is_word_char = |c: char| c.is_alphanumeric() || c == '_';
    let mut last = None;
    for (position, c) in text.char_indices() {
        if last.is_some_and(|last| !(is_word_char(last) && is_word_char(c))) {
            found.push(&text[from..position]);
            from = position;
        }
        last = Some(c);
    }
    if from < text.len() {
        found.push(&text[from..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ \
        b/src/a.rs\n\
        @@ -41,3 +41,4 @@ fn login(\n let user;\n-    if user.password == form.password {\n\
        +    if verify(&form.password) {\n+        more();\n ok\n\
        diff --git a/old name.txt b/new name.txt\nsimilarity index 90%\nrename from old \
        name.txt\nrename to new name.txt\n\
        diff --git a/b.png b/b.png\nnew file mode 100644\nBinary files /dev/null and b/b.png \
        differ\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 \
        @@\n--- a/looks like a header\n\\ No newline at end of file\n";

    #[test]
    fn patch_is_parsed_file_by_file() {
        let files = parse_patch(PATCH);
        let shape: Vec<(&str, &str, usize)> = files
            .iter()
            .map(|file_diff| {
                (
                    file_diff.path.as_str(),
                    file_diff.note.as_str(),
                    file_diff.lines.len(),
                )
            })
            .collect();
        assert_eq!(
            shape,
            [
                ("src/a.rs", "", 6),
                ("new name.txt", "", 0),
                ("b.png", "binary", 0),
                ("gone", "deleted", 3)
            ]
        );
        assert_eq!(files[1].renamed_from.as_deref(), Some("old name.txt"));
        assert_eq!(files[3].lines[1], ('-', "-- a/looks like a header".into()));
        let line = file_summary(&files[0], true);
        assert_eq!(
            (line.added, line.removed, line.outside, line.closed),
            (2, 1, true, false)
        );
    }

    #[test]
    fn lines_are_numbered_and_changed_words_are_marked() {
        let html = render_rows(&parse_patch(PATCH)[0], DiffStyle::default());
        assert!(
            html.contains("<tr><td>41</td><td>41</td><td></td><td>let user;</td></tr>"),
            "{html}"
        );
        assert!(
            html.contains("<tr class=\"d\"><td>42</td><td></td><td>-</td>"),
            "{html}"
        );
        assert!(
            html.contains("if <del>user.password == form.password</del> {"),
            "{html}"
        );
        assert!(
            html.contains("if <ins>verify(&amp;form.password)</ins> {"),
            "{html}"
        );
        assert!(
            html.contains("<td>43</td><td>44</td><td></td><td>ok</td>"),
            "{html}"
        );
        let split = render_rows(
            &parse_patch(PATCH)[0],
            DiffStyle {
                split: true,
                ignore_spaces: false,
            },
        );
        assert!(split.contains("<td>42</td><td class=\"d\">"), "{split}");
        assert!(
            split.contains("<td></td><td></td><td>43</td><td class=\"i\">"),
            "{split}"
        );
    }

    /// S12: markup in a diff is shown as text.
    #[test]
    fn s12_hostile_lines_and_names_in_a_diff_are_escaped() {
        let bad = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@ \
            <script>\n-<b>\n+<script>alert('1')</script>\n+\u{202e}\u{1b}[31m\n";
        for split in [false, true] {
            let html = render_rows(
                &parse_patch(bad)[0],
                DiffStyle {
                    split,
                    ignore_spaces: split,
                },
            );
            let bare = ["<script", "<b>", "onerror", "\u{202e}", "\u{1b}"];
            assert!(bare.iter().all(|bare| !html.contains(bare)), "{html}");
        }
        let long = format!(
            "diff --git a/x b/x\n@@ -1 +1 @@\n+{}\n",
            "y".repeat(10_000_000)
        );
        let html = render_rows(&parse_patch(&long)[0], DiffStyle::default());
        assert!(
            html.len() < 2 * sanitize::MAX_LINE_CHARS && html.contains("9996000 more characters"),
            "{}",
            html.len()
        );
    }

    #[test]
    fn changes_of_white_space_are_hidden_on_request() {
        let patch = "diff --git a/x b/x\n@@ -1,4 +1,5 @@\n-fn a() {\n-b();\n-old();\n+if c \
            {\n+    fn a() {\n+    b();\n+new();\n end\n";
        let simplified = without_spaces(&parse_patch(patch)[0]);
        let shape: String = simplified
            .lines
            .iter()
            .map(|(sign, text)| format!("{sign}{text}\n"))
            .collect();
        assert_eq!(
            shape,
            "@@@ -1,4 +1,5 @@\n+if c {\n     fn a() {\n     b();\n-old();\n+new();\n end\n"
        );
        let drawn = render_rows(
            &parse_patch(patch)[0],
            DiffStyle {
                split: false,
                ignore_spaces: true,
            },
        );
        assert!(
            drawn.contains("<tr><td>1</td><td>2</td><td></td><td>    fn a() {</td></tr>"),
            "{drawn}"
        );
        assert!(
            drawn.contains("<td>4</td><td>5</td><td></td><td>end</td>"),
            "lines keep their numbers: {drawn}"
        );
    }

    #[test]
    fn rows_of_a_diff_are_divided_into_tables() {
        let lines: String = (0..250).map(|n| format!("+line {n} </tr>\n")).collect();
        let html = render_rows(
            &parse_patch(&format!("diff --git a/x b/x\n@@ -0,0 +1,250 @@\n{lines}"))[0],
            DiffStyle::default(),
        );
        assert_eq!(html.matches("<table").count(), 3);
        assert_eq!(
            (html.matches("<tr").count(), html.matches("</tr>").count()),
            (251, 251)
        );
        assert!(
            html.starts_with("<div class=\"part\"><table") && html.ends_with("</tr></table></div>")
        );
        assert!(html.contains("line 249 &lt;/tr&gt;"));
        assert_eq!(wrap_in_tables("", false), "");
    }

    #[test]
    fn lines_are_split_into_words_and_changed_words_are_marked() {
        assert_eq!(
            split_words("if a_b == ü1{"),
            ["if", " ", "a_b", " ", "=", "=", " ", "ü1", "{"]
        );
        assert_eq!(split_words(""), Vec::<&str>::new());
        assert_eq!(mark_difference("a b c", "a x c", "ins"), "a <ins>b</ins> c");
        assert_eq!(mark_difference("same", "same", "ins"), "same");
        assert_eq!(mark_difference("abc", "xyz", "ins"), "abc");
    }
}
