//! Tests of the parser and of the rows of a diff.

use super::file_diff::without_spaces;
use super::rows::{mark_difference, split_words, wrap_in_tables};
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
    let html = render_rows(
        &parse_patch(patch)[0],
        DiffStyle {
            split: false,
            ignore_spaces: true,
        },
    );
    assert!(
        html.contains("<tr><td>1</td><td>2</td><td></td><td>    fn a() {</td></tr>"),
        "{html}"
    );
    assert!(
        html.contains("<td>4</td><td>5</td><td></td><td>end</td>"),
        "lines keep their numbers: {html}"
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
