//! Prepares a task's diff for `regatta watch`, line by line or side by side, with the person's
//! comments on it.
//!
//! Agents write the text of patches, so it is made safe for the terminal here.

use regatta_core::ids::TaskId;
use regatta_core::plural;
use regatta_core::shell_quote::quote;

use super::transcript::cut_line;

/// The maximum number of lines of a diff that are shown.
const MAX_PATCH_LINES: usize = 20_000;

/// The person's choices about how a diff is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiffViewOptions {
    /// Show old and new lines side by side.
    pub(super) is_split: bool,
    /// Ignore differences in white space.
    pub(super) ignores_whitespace: bool,
    /// Show only the changes since the work was last sent back.
    pub(super) is_since_review: bool,
}

/// The kind of a line of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffRowKind {
    Header,
    Hunk,
    Context,
    Removed,
    Added,
}

/// One line of a diff. `line` is its number in the new version of the file, or in the old version
/// for a removed line. Header lines have no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiffRow {
    pub(super) kind: DiffRowKind,
    pub(super) text: String,
    /// The index of the line's file in [`DiffPane::files`].
    file: usize,
    line: Option<usize>,
}

/// The content of one line of the diff pane. Each `usize` is the index of the row in
/// [`DiffPane::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffViewLine<'a> {
    Single(usize, &'a DiffRow),
    /// A line of the old version on the left and a line of the new version on the right. Either
    /// line can be missing.
    Pair(Option<(usize, &'a DiffRow)>, Option<(usize, &'a DiffRow)>),
    /// A draft comment, shown below the line that it is about.
    Draft(&'a str),
}

impl DiffViewLine<'_> {
    pub(super) fn contains_row(&self, row: usize) -> bool {
        match self {
            DiffViewLine::Single(at, _) => *at == row,
            DiffViewLine::Pair(left, right) => [left, right]
                .iter()
                .any(|pair| pair.is_some_and(|pair| pair.0 == row)),
            DiffViewLine::Draft(_) => false,
        }
    }
}

/// A comment on one line of the work, which is sent when the person sends the work back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DraftComment {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) text: String,
}

/// The person's comments on a task's work, kept as a draft until the work is sent back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DraftReview {
    /// The comment on the task's work as a whole.
    pub(super) overall: String,
    pub(super) comments: Vec<DraftComment>,
}

impl DraftReview {
    /// Sets the comment on a line (path and number), or on the whole work if `target` is `None`. An
    /// empty text deletes the comment.
    pub(super) fn set_comment(&mut self, target: Option<(String, usize)>, text: &str) {
        let text = text.trim();
        let Some((path, line)) = target else {
            text.clone_into(&mut self.overall);
            return;
        };
        self.comments
            .retain(|draft_comment| (&draft_comment.path, draft_comment.line) != (&path, line));
        if !text.is_empty() {
            self.comments.push(DraftComment {
                path,
                line,
                text: text.to_owned(),
            });
        }
        self.comments
            .sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    }

    pub(super) fn comment_at(&self, target: Option<&(String, usize)>) -> &str {
        match target {
            None => &self.overall,
            Some((path, line)) => {
                let is_target = |draft_comment: &&DraftComment| {
                    (&draft_comment.path, draft_comment.line) == (path, *line)
                };
                self.comments
                    .iter()
                    .find(is_target)
                    .map_or("", |draft_comment| draft_comment.text.as_str())
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.comments.len() + usize::from(!self.overall.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the text that the agent gets: the comment on the whole work, then each other comment
    /// as a line.
    pub(super) fn message(&self) -> String {
        let overall = Some(self.overall.clone()).filter(|text| !text.is_empty());
        let comments = self.comments.iter().map(|draft_comment| {
            format!(
                "{}:{}: {}",
                draft_comment.path, draft_comment.line, draft_comment.text
            )
        });
        overall
            .into_iter()
            .chain(comments)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the `regatta revise` command that sends the same comments.
    pub(super) fn command(&self, task: TaskId) -> String {
        let message_option = Some(&self.overall)
            .filter(|text| !text.is_empty())
            .map(|text| format!(" -m {}", quote(text)));
        let comment = |draft_comment: &DraftComment| {
            format!(
                " --comment {}",
                quote(&format!(
                    "{}:{}:{}",
                    draft_comment.path, draft_comment.line, draft_comment.text
                ))
            )
        };
        let comments: String = self.comments.iter().map(comment).collect();
        format!(
            "regatta revise {task}{}{comments}",
            message_option.unwrap_or_default()
        )
    }
}

/// The diff of a task's work, and the person's position in it.
#[derive(Debug, Default)]
pub(super) struct DiffPane {
    pub(super) task: Option<TaskId>,
    pub(super) rows: Vec<DiffRow>,
    /// The path of each changed file, with the index of its first row.
    pub(super) files: Vec<(String, usize)>,
    /// The index of the row of the diff that the person has selected.
    pub(super) cursor: usize,
    pub(super) problem: Option<String>,
}

impl DiffPane {
    pub(super) fn from_patch(task: TaskId, patch: &str, how: DiffViewOptions) -> DiffPane {
        let mut diff = DiffPane {
            task: Some(task),
            ..DiffPane::default()
        };
        let (mut old, mut new, mut inside) = (0, 0, false);
        let total = patch.lines().count();
        for s in patch.lines().take(MAX_PATCH_LINES) {
            if let Some(names) = s.strip_prefix("diff --git ") {
                let name = names.rsplit(" b/").next().unwrap_or(names);
                diff.files.push((cut_line(name), diff.rows.len()));
                inside = false;
            } else if let Some((from, to)) = parse_hunk_header(s) {
                (old, new, inside) = (from, to, true);
            }
            let (kind, line) = match s.bytes().next() {
                Some(b'@') if inside && parse_hunk_header(s).is_some() => (DiffRowKind::Hunk, None),
                Some(b'+') if inside => (DiffRowKind::Added, Some(new)),
                Some(b'-') if inside => (DiffRowKind::Removed, Some(old)),
                Some(b' ') | None if inside => (DiffRowKind::Context, Some(new)),
                _ => (DiffRowKind::Header, None),
            };
            (old, new) = match kind {
                DiffRowKind::Added => (old, new + 1),
                DiffRowKind::Removed => (old + 1, new),
                DiffRowKind::Context => (old + 1, new + 1),
                DiffRowKind::Header | DiffRowKind::Hunk => (old, new),
            };
            let file = diff.files.len().saturating_sub(1);
            diff.rows.push(DiffRow {
                kind,
                text: cut_line(s),
                file,
                line,
            });
        }
        if how.ignores_whitespace {
            diff.join_whitespace_changes();
        }
        if total > MAX_PATCH_LINES {
            let text = format!(
                "… {}: regatta diff {task}",
                plural::count(total - MAX_PATCH_LINES, "more line")
            );
            diff.rows.push(DiffRow {
                kind: DiffRowKind::Header,
                text,
                file: 0,
                line: None,
            });
        }
        diff
    }

    /// Turns pairs of removed and added lines that differ only in white space into unchanged lines.
    fn join_whitespace_changes(&mut self) {
        let without_whitespace = |diff: &DiffRow| {
            diff.text
                .chars()
                .skip(1)
                .filter(|c| !c.is_whitespace())
                .collect::<String>()
        };
        let mut dropped = vec![false; self.rows.len()];
        for (removed, added) in replacement_blocks(&self.rows) {
            let mut from = added.start;
            for row in removed {
                let twin = (from..added.end).find(|index| {
                    without_whitespace(&self.rows[*index]) == without_whitespace(&self.rows[row])
                });
                let Some(twin) = twin else { continue };
                dropped[row] = true;
                self.rows[twin].kind = DiffRowKind::Context;
                self.rows[twin].text.replace_range(..1, " ");
                from = twin + 1;
            }
        }
        let before: Vec<usize> = dropped
            .iter()
            .scan(0, |sum, dropped| {
                let index = *sum;
                *sum += usize::from(*dropped);
                Some(index)
            })
            .collect();
        self.files
            .iter_mut()
            .for_each(|file| file.1 -= before.get(file.1).copied().unwrap_or(0));
        let mut nth = 0;
        self.rows.retain(|_| {
            nth += 1;
            !dropped[nth - 1]
        });
    }

    pub(super) fn scroll(&mut self, delta: isize) {
        self.cursor = self
            .cursor
            .saturating_add_signed(delta)
            .min(self.rows.len().saturating_sub(1));
    }

    /// Moves to the next file if `delta` is positive, otherwise to the previous one.
    pub(super) fn move_to_file(&mut self, delta: isize) {
        let mut starts = self.files.iter().map(|file| file.1);
        let found = match delta {
            1.. => starts.find(|start| *start > self.cursor),
            _ => starts.rfind(|start| *start < self.cursor),
        };
        self.cursor = found.unwrap_or(self.cursor);
    }

    /// Returns the path and number of the line that a new comment is about: the person's line,
    /// otherwise the next changed line, otherwise the first changed line. Returns `None` if no line
    /// changed.
    pub(super) fn comment_target(&self) -> Option<(String, usize)> {
        let here = self
            .rows
            .get(self.cursor)
            .filter(|diff| diff.line.is_some());
        let changed =
            |diff: &&DiffRow| matches!(diff.kind, DiffRowKind::Added | DiffRowKind::Removed);
        let row = here.or_else(|| self.rows.iter().skip(self.cursor).find(changed));
        let row = row.or_else(|| self.rows.iter().find(changed))?;
        Some((self.files.get(row.file)?.0.clone(), row.line?))
    }

    /// Returns the index of the row below which a comment is shown. If old and new version have the
    /// line, that is the row of the new version.
    fn row_of_comment(&self, draft_comment: &DraftComment) -> Option<usize> {
        let here = |row: &DiffRow| {
            row.line == Some(draft_comment.line)
                && self
                    .files
                    .get(row.file)
                    .is_some_and(|f| f.0 == draft_comment.path)
        };
        let new = self
            .rows
            .iter()
            .position(|row| row.kind != DiffRowKind::Removed && here(row));
        new.or_else(|| self.rows.iter().position(here))
    }

    /// Returns the `height` visible lines around the person's position, with their draft comments.
    /// With `split`, old and new lines are side by side.
    pub(super) fn view<'a>(
        &'a self,
        drafts: Option<&'a DraftReview>,
        split: bool,
        height: usize,
    ) -> Vec<DiffViewLine<'a>> {
        let comments: Vec<(usize, &str)> = drafts.map_or_else(Vec::new, |draft_review| {
            draft_review
                .comments
                .iter()
                .filter_map(|draft_comment| {
                    Some((
                        self.row_of_comment(draft_comment)?,
                        draft_comment.text.as_str(),
                    ))
                })
                .collect()
        });
        // Prepare only the rows near the person's position. These are more rows than fit into the
        // window, but few compared with a long diff.
        let from = self.cursor.saturating_sub(2 * height);
        let to = (self.cursor + 3 * height).min(self.rows.len());
        let mut lines = Vec::new();
        for diff_view_line in if split {
            self.split_lines(from, to)
        } else {
            self.unified_lines(from, to)
        } {
            lines.push(diff_view_line);
            lines.extend(
                comments
                    .iter()
                    .filter(|comment| diff_view_line.contains_row(comment.0))
                    .map(|comment| DiffViewLine::Draft(comment.1)),
            );
        }
        let cursor_line = lines
            .iter()
            .position(|diff_view_line| diff_view_line.contains_row(self.cursor))
            .unwrap_or(0);
        let first = cursor_line
            .saturating_sub(height / 3)
            .min(lines.len().saturating_sub(height));
        lines.into_iter().skip(first).take(height).collect()
    }

    fn unified_lines(&self, from: usize, to: usize) -> Vec<DiffViewLine<'_>> {
        (from..to)
            .filter_map(|at| Some(DiffViewLine::Single(at, self.rows.get(at)?)))
            .collect()
    }

    fn split_lines(&self, from: usize, to: usize) -> Vec<DiffViewLine<'_>> {
        let side = |at: usize, end: usize| {
            if at >= end {
                return None;
            }
            self.rows.get(at).map(|row| (at, row))
        };
        let (mut lines, mut at) = (Vec::new(), from);
        while let Some(row) = self.rows.get(at).filter(|_| at < to) {
            if !matches!(row.kind, DiffRowKind::Removed | DiffRowKind::Added) {
                lines.push(DiffViewLine::Single(at, row));
                at += 1;
                continue;
            }
            let middle = at + self.run_length(at, DiffRowKind::Removed);
            let end = middle + self.run_length(middle, DiffRowKind::Added);
            for nth in 0..(middle - at).max(end - middle) {
                lines.push(DiffViewLine::Pair(
                    side(at + nth, middle),
                    side(middle + nth, end),
                ));
            }
            at = end;
        }
        lines
    }

    fn run_length(&self, from: usize, kind: DiffRowKind) -> usize {
        run_length(&self.rows, from, kind)
    }
}

/// Returns the number of consecutive rows, starting at `from`, that have this kind.
fn run_length(rows: &[DiffRow], from: usize, kind: DiffRowKind) -> usize {
    rows.iter()
        .skip(from)
        .take_while(|diff| diff.kind == kind)
        .count()
}

/// Returns each block of removed rows with the block of added rows that follows and replaces it.
fn replacement_blocks(rows: &[DiffRow]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < rows.len() {
        let middle = at + run_length(rows, at, DiffRowKind::Removed);
        let end = middle + run_length(rows, middle, DiffRowKind::Added);
        if middle > at && end > middle {
            all.push((at..middle, middle..end));
        }
        at = end.max(at + 1);
    }
    all
}

/// Returns the first old and the first new line number in a hunk header, such as 12 and 14 in `@@
/// -12,3 +14,5 @@`.
fn parse_hunk_header(line: &str) -> Option<(usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let number = |s: &str| s.split([',', ' ']).next()?.parse().ok();
    Some((number(old)?, number(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -9,3 +9,4 @@ fn it\n \
        same\n-old\n+new\n+more\n last\n\
        diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1,2 +0,0 @@\n---gone\n-  two\n";

    fn diff(how: DiffViewOptions) -> DiffPane {
        DiffPane::from_patch(TaskId(9), PATCH, how)
    }

    fn texts(view: &[DiffViewLine<'_>]) -> Vec<String> {
        let side = |pair: &Option<(usize, &DiffRow)>| {
            pair.map_or("", |pair| pair.1.text.as_str()).to_owned()
        };
        let text = |diff_view_line: &DiffViewLine<'_>| match diff_view_line {
            DiffViewLine::Single(_, row) => row.text.clone(),
            DiffViewLine::Pair(left, right) => format!("{}|{}", side(left), side(right)),
            DiffViewLine::Draft(text) => format!("# {text}"),
        };
        view.iter().map(text).collect()
    }

    #[test]
    fn a_diff_is_navigated_by_line_and_by_file() {
        let mut diff_pane = diff(DiffViewOptions::default());
        assert_eq!(diff_pane.files, [("x".to_owned(), 0), ("y".to_owned(), 9)]);
        diff_pane.move_to_file(1);
        assert_eq!(diff_pane.cursor, 9);
        diff_pane.move_to_file(1);
        assert_eq!(diff_pane.cursor, 9, "there is no next file");
        diff_pane.move_to_file(-1);
        assert_eq!(diff_pane.cursor, 0);
        diff_pane.scroll(-5);
        assert_eq!(diff_pane.cursor, 0);
        diff_pane.scroll(500);
        assert_eq!(diff_pane.cursor, 14);
        assert_eq!(
            texts(&diff_pane.view(None, false, 3)),
            ["@@ -1,2 +0,0 @@", "---gone", "-  two"],
            "the end is in view"
        );
        diff_pane.cursor = 6;
        assert_eq!(
            texts(&diff_pane.view(None, false, 3)),
            ["-old", "+new", "+more"],
            "the lines around the reader are in view"
        );
        assert_eq!(
            texts(&diff_pane.view(None, true, 3)),
            [" same", "-old|+new", "|+more"],
            "side by side"
        );
        let long = DiffPane::from_patch(
            TaskId(9),
            &"+x\n".repeat(MAX_PATCH_LINES + 7),
            DiffViewOptions::default(),
        );
        assert!(
            long.rows
                .last()
                .is_some_and(|diff| diff.text.contains("7 more lines"))
        );
        assert_eq!(DiffPane::default().view(None, true, 5), []);
    }

    /// A comment refers to the reader's line. On a header it refers to the next changed line.
    #[test]
    fn a_comment_refers_to_a_line() {
        let mut diff_pane = diff(DiffViewOptions::default());
        let at = |diff_pane: &mut DiffPane, row: usize| {
            diff_pane.cursor = row;
            diff_pane
                .comment_target()
                .map(|(path, line)| format!("{path}:{line}"))
        };
        let places = [
            (0, "x:10"),
            (4, "x:9"),
            (5, "x:10"),
            (6, "x:10"),
            (7, "x:11"),
            (8, "x:12"),
            (9, "y:1"),
            (14, "y:2"),
        ];
        for (row, expected) in places {
            assert_eq!(
                at(&mut diff_pane, row).as_deref(),
                Some(expected),
                "row {row}"
            );
        }
        assert_eq!(
            DiffPane::from_patch(
                TaskId(9),
                "diff --git a/x b/x\nBinary files differ\n",
                DiffViewOptions::default()
            )
            .comment_target(),
            None
        );

        let mut drafts = DraftReview::default();
        drafts.set_comment(Some(("y".into(), 2)), "why?");
        drafts.set_comment(Some(("x".into(), 10)), " it's slow ");
        drafts.set_comment(None, "nearly");
        diff_pane.cursor = 6;
        assert_eq!(
            texts(&diff_pane.view(Some(&drafts), false, 3)),
            ["-old", "+new", "# it's slow"],
            "the comment is below the new line"
        );
        assert_eq!(drafts.message(), "nearly\nx:10: it's slow\ny:2: why?");
        let cli = r"regatta revise T9 -m nearly --comment 'x:10:it'\''s slow' --comment 'y:2:why?'";
        assert_eq!(drafts.command(TaskId(9)), cli);
        assert_eq!(drafts.comment_at(Some(&("y".into(), 2))), "why?");
        drafts.set_comment(Some(("y".into(), 2)), " ");
        drafts.set_comment(Some(("x".into(), 10)), "");
        drafts.set_comment(None, "");
        assert!(
            drafts.is_empty(),
            "an empty text deletes a comment: {drafts:?}"
        );
    }

    #[test]
    fn white_space_changes_can_be_hidden() {
        let patch = "diff --git a/x b/x\n@@ -1,3 +1,3 @@\n-a\n-b = 1\n-c\n+  a\n+b=1\n+d\ndiff \
            --git a/y b/y\n@@ -1 +1 @@\n-e\n+f\n";
        let mut diff_pane = DiffPane::from_patch(
            TaskId(9),
            patch,
            DiffViewOptions {
                ignores_whitespace: true,
                ..DiffViewOptions::default()
            },
        );
        let shown: Vec<&str> = diff_pane
            .rows
            .iter()
            .map(|diff| diff.text.as_str())
            .collect();
        let expected = [
            "diff --git a/x b/x",
            "@@ -1,3 +1,3 @@",
            "-c",
            "   a",
            " b=1",
            "+d",
        ];
        assert_eq!(shown[..6], expected);
        diff_pane.move_to_file(1);
        assert_eq!(
            diff_pane.rows[diff_pane.cursor].text, "diff --git a/y b/y",
            "the positions of files were adjusted"
        );
    }
}
