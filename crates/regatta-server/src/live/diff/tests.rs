//! Tests of the parser and of the rows of a diff.

use super::file_diff::without_spaces;
use super::line_html::{changed_range, split_words};
use super::*;
use crate::live::sanitize;

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
    let summary = file_summary(&files[0], true);
    assert_eq!(
        (
            summary.added,
            summary.removed,
            summary.outside,
            summary.closed
        ),
        (2, 1, true, false)
    );
}

/// Renders all parts of a file's diff.
fn render(file: &FileDiff, is_split: bool) -> String {
    let rows = DiffRows::new(file, is_split);
    (0..rows.part_count())
        .map(|part| rows.render_part(part, None))
        .collect()
}

#[test]
fn lines_are_numbered_and_changed_words_are_marked() {
    let file = &parse_patch(PATCH)[0];
    let html = render(file, false);
    let unchanged = "<tr data-old=\"41\" data-new=\"41\"><td class=\"n\">41</td>\
        <td class=\"n\">41</td><td class=\"l\"><span class=\"hk\">let</span> user;</td></tr>";
    assert!(html.contains(unchanged), "{html}");
    assert!(
        html.contains(
            "<tr class=\"d\" data-old=\"42\"><td class=\"n\">42</td><td class=\"n\"></td>"
        ),
        "{html}"
    );
    assert!(
        html.contains("<span class=\"hk\">if</span> <del>user.password == form.password</del> {"),
        "{html}"
    );
    assert!(
        html.contains("<ins><span class=\"hf\">verify</span>(&amp;form.password)</ins> {"),
        "{html}"
    );
    assert!(
        html.contains("<tr data-old=\"43\" data-new=\"44\">"),
        "{html}"
    );
    let split = render(file, true);
    assert!(
        split.contains(
            "<tr data-old=\"42\" data-new=\"42\"><td class=\"n\">42</td><td class=\"l d\">"
        ),
        "{split}"
    );
    assert!(
        split.contains("<td class=\"l none\"></td><td class=\"n\">43</td><td class=\"l i\">"),
        "{split}"
    );
}

/// S12: markup in a diff is shown as text.
#[test]
fn s12_hostile_lines_and_names_in_a_diff_are_escaped() {
    let bad = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1,2 @@ \
        <script>\n-<b>\n+<script>alert('1')</script>\n+\u{202e}\u{1b}[31m\n \"<i>\n";
    for split in [false, true] {
        let html = render(&parse_patch(bad)[0], split);
        let bare = ["<script", "<b>", "<i>", "onerror", "\u{202e}", "\u{1b}"];
        assert!(bare.iter().all(|bare| !html.contains(bare)), "{html}");
    }
    let long = format!(
        "diff --git a/x.rs b/x.rs\n@@ -1 +1 @@\n+{}\n",
        "y".repeat(10_000_000)
    );
    let html = render(&parse_patch(&long)[0], false);
    assert!(
        html.len() < 2 * sanitize::MAX_LINE_CHARS && html.contains("9996000 more characters"),
        "{}",
        html.len()
    );
    let context = render_context(
        &["<script>", "\u{202e}"],
        7,
        -2,
        ContextStyle {
            path: "x.html",
            is_split: false,
        },
    );
    assert!(!context.contains("<script") && !context.contains('\u{202e}'));
    assert!(
        context.contains("data-old=\"5\" data-new=\"7\""),
        "{context}"
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
    let html = render(&simplified, false);
    assert!(
        html.contains("<tr data-old=\"1\" data-new=\"2\">"),
        "{html}"
    );
    assert!(
        html.contains("<tr data-old=\"4\" data-new=\"5\">"),
        "lines keep their numbers: {html}"
    );
}

/// A part has a bounded number of rows however long the file is, and every row is in one part.
#[test]
fn rows_of_a_diff_are_divided_into_parts() {
    let lines: String = (0..10_000).map(|n| format!("+line {n} </tr>\n")).collect();
    let patch = format!("diff --git a/x b/x\n@@ -0,0 +1,10000 @@\n{lines}");
    let files = parse_patch(&patch);
    let rows = DiffRows::new(&files[0], false);
    assert_eq!((rows.len(), rows.part_count()), (10_001, 201));
    let last = rows.render_part(200, None);
    assert_eq!(
        (last.matches("<table").count(), last.matches("<tr").count()),
        (1, 1)
    );
    assert!(last.contains("line 9999 &lt;/tr&gt;") && last.ends_with("</tr></table>"));
    assert_eq!(rows.render_part(3, None).matches("<tr").count(), 50);
    assert_eq!(rows.render_part(201, None), "");
}

/// The syntax of a part does not depend on which parts were rendered before.
#[test]
fn a_part_inside_a_long_comment_is_a_comment() {
    let lines: String = (0..200).map(|n| format!("+ let {n}\n")).collect();
    let patch = format!("diff --git a/x.rs b/x.rs\n@@ -0,0 +1,201 @@\n+/*\n{lines}");
    let files = parse_patch(&patch);
    let html = DiffRows::new(&files[0], false).render_part(1, None);
    assert!(html.contains("<span class=\"hc\"> let 60</span>") && !html.contains("hk"));
}

#[test]
fn lines_that_are_left_out_can_be_shown() {
    let patch = "diff --git a/x b/x\n@@ -41,1 +41,2 @@ fn a\n same\n+new\n@@ -50,1 +51,1 @@\n \
        end\n@@ -90,1 +91,1 @@\n far\n";
    let files = parse_patch(patch);
    let html = DiffRows::new(&files[0], false).render_part(0, Some(95));
    let gaps: Vec<&str> = html
        .split("<tr class=\"hunk")
        .skip(1)
        .map(|row| {
            row.split_once("><td")
                .map_or("", |(attributes, _)| attributes)
        })
        .collect();
    assert_eq!(
        gaps,
        [
            "\" data-from=\"1\" data-to=\"40\" data-shift=\"0\"",
            "\" data-from=\"43\" data-to=\"50\" data-shift=\"-1\"",
            "\" data-from=\"52\" data-to=\"90\" data-shift=\"-1\"",
            " tail\" data-from=\"92\" data-to=\"95\" data-shift=\"-1\"",
        ]
    );
    let directions: Vec<&str> = html
        .split("data-grow=\"")
        .skip(1)
        .filter_map(|button| button.split('"').next())
        .collect();
    assert_eq!(directions, ["up", "all", "down", "up", "down"]);
    assert!(html.contains("<span data-count>4</span> more lines to the end of the file"));
    let complete = DiffRows::new(&files[0], false).render_part(0, Some(91));
    assert!(!complete.contains("tail"), "nothing follows the last group");
}

#[test]
fn lines_are_split_into_words_and_changed_words_are_marked() {
    assert_eq!(
        split_words("if a_b == ü1{"),
        ["if", " ", "a_b", " ", "=", "=", " ", "ü1", "{"]
    );
    assert_eq!(split_words(""), Vec::<&str>::new());
    assert_eq!(changed_range("a b c", "a x c"), Some(2..3));
    assert_eq!(changed_range("ü bc", "ü x"), Some(3..5));
    assert_eq!(changed_range("same", "same"), None);
    assert_eq!(changed_range("abc", "xyz"), None);
    assert_eq!(changed_range("  abc", "  xyz"), None);
}
