//! A task's diff in the terminal, line by line or side by side, and the comments on it.
//!
//! Text from patches is made safe to draw here.

use regatta_core::ids::TaskId;
use regatta_core::shell::quoted;

use super::pane::cut;

/// The largest number of lines of a diff that are shown.
const MOST_PATCH: usize = 20_000;

/// How a person wants to see a diff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct How {
    /// Show old and new lines side by side.
    pub(super) split: bool,
    /// Ignore differences in white space.
    pub(super) bare: bool,
    /// Show only the changes since the work was last sent back.
    pub(super) since_review: bool,
}

/// The kind of a line of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head,
    Hunk,
    Same,
    Gone,
    Come,
}

/// One line of a diff. `line` is its number in the new file, or in the old file for a removed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// The index of the file.
    file: usize,
    line: Option<usize>,
}

/// The content of one line of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown<'a> {
    One(usize, &'a Row),
    /// A removed and an added line, side by side.
    Two(Option<(usize, &'a Row)>, Option<(usize, &'a Row)>),
    /// A draft comment on the line above.
    Draft(&'a str),
}

impl Shown<'_> {
    pub(super) fn has(&self, row: usize) -> bool {
        match self {
            Shown::One(at, _) => *at == row,
            Shown::Two(left, right) => [left, right].iter().any(|it| it.is_some_and(|it| it.0 == row)),
            Shown::Draft(_) => false,
        }
    }
}

/// A comment on one line, sent when the work is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comment {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) text: String,
}

/// The draft comments on a task's work, until the work is sent back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drafts {
    /// The comment on the whole work.
    pub(super) words: String,
    pub(super) comments: Vec<Comment>,
}

impl Drafts {
    /// Sets the comment on a line, or on the whole work. An empty text deletes the comment.
    pub(super) fn say(&mut self, place: Option<(String, usize)>, text: &str) {
        let text = text.trim();
        let Some((path, line)) = place else {
            text.clone_into(&mut self.words);
            return;
        };
        self.comments.retain(|it| (&it.path, it.line) != (&path, line));
        if !text.is_empty() {
            self.comments.push(Comment { path, line, text: text.to_owned() });
        }
        self.comments.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    }

    pub(super) fn said_of(&self, place: Option<&(String, usize)>) -> &str {
        match place {
            None => &self.words,
            Some((path, line)) => {
                let here = |it: &&Comment| (&it.path, it.line) == (path, *line);
                self.comments.iter().find(here).map_or("", |it| it.text.as_str())
            }
        }
    }

    pub(super) fn many(&self) -> usize {
        self.comments.len() + usize::from(!self.words.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.many() == 0
    }

    /// Returns the text to send: the comment on the whole, then one line per comment.
    pub(super) fn text(&self) -> String {
        let words = Some(self.words.clone()).filter(|it| !it.is_empty());
        let comments = self.comments.iter().map(|it| format!("{}:{}: {}", it.path, it.line, it.text));
        words.into_iter().chain(comments).collect::<Vec<_>>().join("\n")
    }

    /// Returns the command that sends the same comments.
    pub(super) fn cli(&self, task: TaskId) -> String {
        let words = Some(&self.words).filter(|it| !it.is_empty()).map(|it| format!(" -m {}", quoted(it)));
        let comment = |it: &Comment| format!(" --comment {}", quoted(&format!("{}:{}:{}", it.path, it.line, it.text)));
        let comments: String = self.comments.iter().map(comment).collect();
        format!("regatta revise {task}{}{comments}", words.unwrap_or_default())
    }
}

/// The diff of a task's work.
#[derive(Debug, Default)]
pub(super) struct Diff {
    pub(super) task: Option<TaskId>,
    pub(super) rows: Vec<Row>,
    /// The path of each file, with the index of its first row.
    pub(super) files: Vec<(String, usize)>,
    /// The index of the row where the reader is.
    pub(super) at: usize,
    pub(super) problem: Option<String>,
}

impl Diff {
    pub(super) fn of(task: TaskId, patch: &str, how: How) -> Diff {
        let mut diff = Diff { task: Some(task), ..Diff::default() };
        let (mut old, mut new, mut inside) = (0, 0, false);
        let total = patch.lines().count();
        for it in patch.lines().take(MOST_PATCH) {
            if let Some(names) = it.strip_prefix("diff --git ") {
                let name = names.rsplit(" b/").next().unwrap_or(names);
                diff.files.push((cut(name), diff.rows.len()));
                inside = false;
            } else if let Some((from, to)) = begins(it) {
                (old, new, inside) = (from, to, true);
            }
            let (kind, line) = match it.bytes().next() {
                Some(b'@') if inside && begins(it).is_some() => (Kind::Hunk, None),
                Some(b'+') if inside => (Kind::Come, Some(new)),
                Some(b'-') if inside => (Kind::Gone, Some(old)),
                Some(b' ') | None if inside => (Kind::Same, Some(new)),
                _ => (Kind::Head, None),
            };
            (old, new) = match kind {
                Kind::Come => (old, new + 1),
                Kind::Gone => (old + 1, new),
                Kind::Same => (old + 1, new + 1),
                Kind::Head | Kind::Hunk => (old, new),
            };
            let file = diff.files.len().saturating_sub(1);
            diff.rows.push(Row { kind, text: cut(it), file, line });
        }
        if how.bare {
            diff.without_spaces();
        }
        if total > MOST_PATCH {
            let text = format!("… {} more lines: regatta diff {task}", total - MOST_PATCH);
            diff.rows.push(Row { kind: Kind::Head, text, file: 0, line: None });
        }
        diff
    }

    /// Turns pairs of removed and added lines that differ only in white space into unchanged lines.
    fn without_spaces(&mut self) {
        let bare = |it: &Row| it.text.chars().skip(1).filter(|it| !it.is_whitespace()).collect::<String>();
        let mut dropped = vec![false; self.rows.len()];
        for (gone, come) in blocks(&self.rows) {
            let mut from = come.start;
            for one in gone {
                let same = (from..come.end).find(|at| bare(&self.rows[*at]) == bare(&self.rows[one]));
                let Some(same) = same else { continue };
                dropped[one] = true;
                self.rows[same].kind = Kind::Same;
                self.rows[same].text.replace_range(..1, " ");
                from = same + 1;
            }
        }
        let before: Vec<usize> = dropped
            .iter()
            .scan(0, |sum, it| {
                let at = *sum;
                *sum += usize::from(*it);
                Some(at)
            })
            .collect();
        self.files.iter_mut().for_each(|it| it.1 -= before.get(it.1).copied().unwrap_or(0));
        let mut nth = 0;
        self.rows.retain(|_| {
            nth += 1;
            !dropped[nth - 1]
        });
    }

    pub(super) fn scroll(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.rows.len().saturating_sub(1));
    }

    /// Moves to the next file, or with a negative number to the previous one.
    pub(super) fn file(&mut self, by: isize) {
        let mut starts = self.files.iter().map(|it| it.1);
        let found = match by {
            1.. => starts.find(|it| *it > self.at),
            _ => starts.rfind(|it| *it < self.at),
        };
        self.at = found.unwrap_or(self.at);
    }

    /// Returns the line that a comment refers to: the reader's line, else the next changed line,
    /// else the first changed line. Returns `None` if no line changed.
    pub(super) fn place(&self) -> Option<(String, usize)> {
        let here = self.rows.get(self.at).filter(|it| it.line.is_some());
        let changed = |it: &&Row| matches!(it.kind, Kind::Come | Kind::Gone);
        let row = here.or_else(|| self.rows.iter().skip(self.at).find(changed));
        let row = row.or_else(|| self.rows.iter().find(changed))?;
        Some((self.files.get(row.file)?.0.clone(), row.line?))
    }

    /// Returns the row below which a comment is shown. For a replaced line that is the new line.
    fn row_of(&self, it: &Comment) -> Option<usize> {
        let here = |row: &Row| row.line == Some(it.line) && self.files.get(row.file).is_some_and(|f| f.0 == it.path);
        let new = self.rows.iter().position(|row| row.kind != Kind::Gone && here(row));
        new.or_else(|| self.rows.iter().position(here))
    }

    /// Returns the visible lines around the reader's position, with their draft comments.
    pub(super) fn view<'a>(&'a self, drafts: Option<&'a Drafts>, split: bool, height: usize) -> Vec<Shown<'a>> {
        let said: Vec<(usize, &str)> = drafts.map_or_else(Vec::new, |it| {
            it.comments.iter().filter_map(|it| Some((self.row_of(it)?, it.text.as_str()))).collect()
        });
        // This range is larger than the window on each side, but small compared with a long diff.
        let from = self.at.saturating_sub(2 * height);
        let to = (self.at + 3 * height).min(self.rows.len());
        let mut lines = Vec::new();
        for it in if split { self.sides(from, to) } else { self.plain(from, to) } {
            lines.push(it);
            lines.extend(said.iter().filter(|one| it.has(one.0)).map(|one| Shown::Draft(one.1)));
        }
        let at = lines.iter().position(|it| it.has(self.at)).unwrap_or(0);
        let first = at.saturating_sub(height / 3).min(lines.len().saturating_sub(height));
        lines.into_iter().skip(first).take(height).collect()
    }

    fn plain(&self, from: usize, to: usize) -> Vec<Shown<'_>> {
        (from..to).filter_map(|at| Some(Shown::One(at, self.rows.get(at)?))).collect()
    }

    fn sides(&self, from: usize, to: usize) -> Vec<Shown<'_>> {
        let side = |at: usize, end: usize| (at < end).then(|| self.rows.get(at).map(|it| (at, it))).flatten();
        let (mut lines, mut at) = (Vec::new(), from);
        while let Some(row) = self.rows.get(at).filter(|_| at < to) {
            if !matches!(row.kind, Kind::Gone | Kind::Come) {
                lines.push(Shown::One(at, row));
                at += 1;
                continue;
            }
            let middle = at + self.run(at, Kind::Gone);
            let end = middle + self.run(middle, Kind::Come);
            for nth in 0..(middle - at).max(end - middle) {
                lines.push(Shown::Two(side(at + nth, middle), side(middle + nth, end)));
            }
            at = end;
        }
        lines
    }

    fn run(&self, from: usize, kind: Kind) -> usize {
        run(&self.rows, from, kind)
    }
}

/// Returns how many consecutive rows have the given kind.
fn run(rows: &[Row], from: usize, kind: Kind) -> usize {
    rows.iter().skip(from).take_while(|it| it.kind == kind).count()
}

/// Returns the ranges of removed lines with the added lines that replace them.
fn blocks(rows: &[Row]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < rows.len() {
        let middle = at + run(rows, at, Kind::Gone);
        let end = middle + run(rows, middle, Kind::Come);
        if middle > at && end > middle {
            all.push((at..middle, middle..end));
        }
        at = end.max(at + 1);
    }
    all
}

/// Parses the old and the new line number of a hunk header: `@@ -12,3 +14,5 @@`.
fn begins(line: &str) -> Option<(usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let number = |it: &str| it.split([',', ' ']).next()?.parse().ok();
    Some((number(old)?, number(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -9,3 +9,4 @@ fn it\n same\n-old\n+new\n+more\n last\n\
        diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1,2 +0,0 @@\n---gone\n-  two\n";

    fn diff(how: How) -> Diff {
        Diff::of(TaskId(9), PATCH, how)
    }

    fn texts(view: &[Shown<'_>]) -> Vec<String> {
        let side = |it: &Option<(usize, &Row)>| it.map_or("", |it| it.1.text.as_str()).to_owned();
        let text = |it: &Shown<'_>| match it {
            Shown::One(_, row) => row.text.clone(),
            Shown::Two(left, right) => format!("{}|{}", side(left), side(right)),
            Shown::Draft(text) => format!("# {text}"),
        };
        view.iter().map(text).collect()
    }

    #[test]
    fn a_diff_is_navigated_by_line_and_by_file() {
        let mut it = diff(How::default());
        assert_eq!(it.files, [("x".to_owned(), 0), ("y".to_owned(), 9)]);
        it.file(1);
        assert_eq!(it.at, 9);
        it.file(1);
        assert_eq!(it.at, 9, "there is no next file");
        it.file(-1);
        assert_eq!(it.at, 0);
        it.scroll(-5);
        assert_eq!(it.at, 0);
        it.scroll(500);
        assert_eq!(it.at, 14);
        assert_eq!(texts(&it.view(None, false, 3)), ["@@ -1,2 +0,0 @@", "---gone", "-  two"], "the end is in view");
        it.at = 6;
        assert_eq!(texts(&it.view(None, false, 3)), ["-old", "+new", "+more"], "the lines around the reader are in view");
        assert_eq!(texts(&it.view(None, true, 3)), [" same", "-old|+new", "|+more"], "side by side");
        let long = Diff::of(TaskId(9), &"+x\n".repeat(MOST_PATCH + 7), How::default());
        assert!(long.rows.last().is_some_and(|it| it.text.contains("7 more lines")));
        assert_eq!(Diff::default().view(None, true, 5), []);
    }

    /// A comment refers to the reader's line. On a header it refers to the next changed line.
    #[test]
    fn a_comment_refers_to_a_line() {
        let mut it = diff(How::default());
        let at = |it: &mut Diff, row: usize| {
            it.at = row;
            it.place().map(|(path, line)| format!("{path}:{line}"))
        };
        let places =
            [(0, "x:10"), (4, "x:9"), (5, "x:10"), (6, "x:10"), (7, "x:11"), (8, "x:12"), (9, "y:1"), (14, "y:2")];
        for (row, wanted) in places {
            assert_eq!(at(&mut it, row).as_deref(), Some(wanted), "row {row}");
        }
        assert_eq!(Diff::of(TaskId(9), "diff --git a/x b/x\nBinary files differ\n", How::default()).place(), None);

        let mut drafts = Drafts::default();
        drafts.say(Some(("y".into(), 2)), "why?");
        drafts.say(Some(("x".into(), 10)), " it's slow ");
        drafts.say(None, "nearly");
        it.at = 6;
        assert_eq!(texts(&it.view(Some(&drafts), false, 3)), ["-old", "+new", "# it's slow"], "the comment is below the new line");
        assert_eq!(drafts.text(), "nearly\nx:10: it's slow\ny:2: why?");
        let cli = r"regatta revise T9 -m nearly --comment 'x:10:it'\''s slow' --comment 'y:2:why?'";
        assert_eq!(drafts.cli(TaskId(9)), cli);
        assert_eq!(drafts.said_of(Some(&("y".into(), 2))), "why?");
        drafts.say(Some(("y".into(), 2)), " ");
        drafts.say(Some(("x".into(), 10)), "");
        drafts.say(None, "");
        assert!(drafts.is_empty(), "an empty text deletes a comment: {drafts:?}");
    }

    #[test]
    fn white_space_changes_can_be_hidden() {
        let patch = "diff --git a/x b/x\n@@ -1,3 +1,3 @@\n-a\n-b = 1\n-c\n+  a\n+b=1\n+d\ndiff --git a/y b/y\n@@ -1 +1 @@\n-e\n+f\n";
        let mut it = Diff::of(TaskId(9), patch, How { bare: true, ..How::default() });
        let shown: Vec<&str> = it.rows.iter().map(|it| it.text.as_str()).collect();
        let wanted = ["diff --git a/x b/x", "@@ -1,3 +1,3 @@", "-c", "   a", " b=1", "+d"];
        assert_eq!(shown[..6], wanted);
        it.file(1);
        assert_eq!(it.rows[it.at].text, "diff --git a/y b/y", "the positions of files were adjusted");
    }
}
