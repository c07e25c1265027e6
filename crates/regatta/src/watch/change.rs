//! A task's change in the terminal: line by line or side by side, with what somebody means to say of it. Text of others
//! is made harmless here.

use regatta_core::ids::TaskId;
use regatta_core::shell::quoted;

use super::pane::cut;

/// How many lines of a change are shown.
const MOST_PATCH: usize = 20_000;

/// How a person wants to see a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct How {
    /// Before and after side by side.
    pub(super) split: bool,
    /// Lines that differ in their spaces alone are the same.
    pub(super) bare: bool,
    /// Only what changed since it was last sent back.
    pub(super) since_review: bool,
}

/// What a line of a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head,
    Hunk,
    Same,
    Gone,
    Come,
}

/// One line of a change, and where it is: the new line, or the old one where it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Which of the files.
    file: usize,
    line: Option<usize>,
}

/// What is in one line of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown<'a> {
    One(usize, &'a Row),
    /// What went and what came, side by side.
    Two(Option<(usize, &'a Row)>, Option<(usize, &'a Row)>),
    /// What somebody means to say of the line above.
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

/// Something to be said of one line when the work is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comment {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) text: String,
}

/// What is to be said when a task's work is sent back: drafts until then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drafts {
    /// Of the whole.
    pub(super) words: String,
    pub(super) comments: Vec<Comment>,
}

impl Drafts {
    /// Says something of a line, or of the whole; no words take it back.
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

    /// What is sent: the words, then a line for each comment.
    pub(super) fn text(&self) -> String {
        let words = Some(self.words.clone()).filter(|it| !it.is_empty());
        let comments = self.comments.iter().map(|it| format!("{}:{}: {}", it.path, it.line, it.text));
        words.into_iter().chain(comments).collect::<Vec<_>>().join("\n")
    }

    /// The same from a shell.
    pub(super) fn cli(&self, task: TaskId) -> String {
        let words = Some(&self.words).filter(|it| !it.is_empty()).map(|it| format!(" -m {}", quoted(it)));
        let comment = |it: &Comment| format!(" --comment {}", quoted(&format!("{}:{}:{}", it.path, it.line, it.text)));
        let comments: String = self.comments.iter().map(comment).collect();
        format!("regatta revise {task}{}{comments}", words.unwrap_or_default())
    }
}

/// What a task's work changes.
#[derive(Debug, Default)]
pub(super) struct Diff {
    pub(super) task: Option<TaskId>,
    pub(super) rows: Vec<Row>,
    /// Each file's path, and where it begins.
    pub(super) files: Vec<(String, usize)>,
    /// The line where the reader is.
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

    /// Lines that differ in their spaces alone stand as they are now.
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

    /// The next file, or the one before.
    pub(super) fn file(&mut self, by: isize) {
        let mut starts = self.files.iter().map(|it| it.1);
        let found = match by {
            1.. => starts.find(|it| *it > self.at),
            _ => starts.rfind(|it| *it < self.at),
        };
        self.at = found.unwrap_or(self.at);
    }

    /// The line that a comment is about: where the reader is, else the first from there on that changed, else the first
    /// that did; nothing where no line changed.
    pub(super) fn place(&self) -> Option<(String, usize)> {
        let here = self.rows.get(self.at).filter(|it| it.line.is_some());
        let changed = |it: &&Row| matches!(it.kind, Kind::Come | Kind::Gone);
        let row = here.or_else(|| self.rows.iter().skip(self.at).find(changed));
        let row = row.or_else(|| self.rows.iter().find(changed))?;
        Some((self.files.get(row.file)?.0.clone(), row.line?))
    }

    /// Where a comment is shown: under its line, and of a line that was replaced the new one is meant.
    fn row_of(&self, it: &Comment) -> Option<usize> {
        let here = |row: &Row| row.line == Some(it.line) && self.files.get(row.file).is_some_and(|f| f.0 == it.path);
        let new = self.rows.iter().position(|row| row.kind != Kind::Gone && here(row));
        new.or_else(|| self.rows.iter().position(here))
    }

    /// The lines in view: the one where the reader is, what is around it, and what is to be said of them.
    pub(super) fn view<'a>(&'a self, drafts: Option<&'a Drafts>, split: bool, height: usize) -> Vec<Shown<'a>> {
        let said: Vec<(usize, &str)> = drafts.map_or_else(Vec::new, |it| {
            it.comments.iter().filter_map(|it| Some((self.row_of(it)?, it.text.as_str()))).collect()
        });
        // A screen and a half on each side is more than is seen, and little of a long change.
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

/// How many lines of one kind follow each other.
fn run(rows: &[Row], from: usize, kind: Kind) -> usize {
    rows.iter().skip(from).take_while(|it| it.kind == kind).count()
}

/// What went and what came in its place, block by block.
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

/// The old and the new line at which a hunk begins: `@@ -12,3 +14,5 @@`.
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
    fn a_change_is_walked_line_by_line_and_file_by_file() {
        let mut it = diff(How::default());
        assert_eq!(it.files, [("x".to_owned(), 0), ("y".to_owned(), 9)]);
        it.file(1);
        assert_eq!(it.at, 9);
        it.file(1);
        assert_eq!(it.at, 9, "there is no next one");
        it.file(-1);
        assert_eq!(it.at, 0);
        it.scroll(-5);
        assert_eq!(it.at, 0);
        it.scroll(500);
        assert_eq!(it.at, 14);
        assert_eq!(texts(&it.view(None, false, 3)), ["@@ -1,2 +0,0 @@", "---gone", "-  two"], "the end is in view");
        it.at = 6;
        assert_eq!(texts(&it.view(None, false, 3)), ["-old", "+new", "+more"], "and what is around the reader");
        assert_eq!(texts(&it.view(None, true, 3)), [" same", "-old|+new", "|+more"], "side by side");
        let long = Diff::of(TaskId(9), &"+x\n".repeat(MOST_PATCH + 7), How::default());
        assert!(long.rows.last().is_some_and(|it| it.text.contains("7 more lines")));
        assert_eq!(Diff::default().view(None, true, 5), []);
    }

    /// A comment is about the line where the reader is, as the page counts it; on a head it is the first that changed.
    #[test]
    fn a_comment_is_about_a_line() {
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
        assert_eq!(texts(&it.view(Some(&drafts), false, 3)), ["-old", "+new", "# it's slow"], "the new line is meant");
        assert_eq!(drafts.text(), "nearly\nx:10: it's slow\ny:2: why?");
        let cli = r"regatta revise T9 -m nearly --comment 'x:10:it'\''s slow' --comment 'y:2:why?'";
        assert_eq!(drafts.cli(TaskId(9)), cli);
        assert_eq!(drafts.said_of(Some(&("y".into(), 2))), "why?");
        drafts.say(Some(("y".into(), 2)), " ");
        drafts.say(Some(("x".into(), 10)), "");
        drafts.say(None, "");
        assert!(drafts.is_empty(), "no words take it back: {drafts:?}");
    }

    #[test]
    fn spaces_alone_are_no_change_where_nobody_wants_to_see_them() {
        let patch = "diff --git a/x b/x\n@@ -1,3 +1,3 @@\n-a\n-b = 1\n-c\n+  a\n+b=1\n+d\ndiff --git a/y b/y\n@@ -1 +1 @@\n-e\n+f\n";
        let mut it = Diff::of(TaskId(9), patch, How { bare: true, ..How::default() });
        let shown: Vec<&str> = it.rows.iter().map(|it| it.text.as_str()).collect();
        let wanted = ["diff --git a/x b/x", "@@ -1,3 +1,3 @@", "-c", "   a", " b=1", "+d"];
        assert_eq!(shown[..6], wanted);
        it.file(1);
        assert_eq!(it.rows[it.at].text, "diff --git a/y b/y", "files are found where they are now");
    }
}
