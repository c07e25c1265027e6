use super::super::transcript_entries::{EntryHead, new_entry};
use super::*;

fn tool(progress: EntryProgress, text: &str) -> Entry {
    Entry {
        head: EntryHead {
            kind: EntryKind::Tool(ToolKind::Execute),
            progress,
            title: "cargo test".into(),
            began_unix_ms: 1_000,
            ended_unix_ms: 39_000,
            exit_code: Some(101),
        },
        text: text.into(),
    }
}

/// S12: text of a program never becomes markup, in any kind of entry.
#[test]
fn s12_text_of_a_hostile_program_is_escaped() {
    let bad = "<script>alert(1)</script>\u{1b}]0;x\u{7}\u{202e}<a href=\"javascript:alert(1)\">x</a> [x](javascript:alert(1))";
    let kinds = [
        EntryKind::Message,
        EntryKind::Thought,
        EntryKind::Tool(ToolKind::Execute),
        EntryKind::Turn,
        EntryKind::Request,
        EntryKind::Plan,
        EntryKind::Note,
        EntryKind::Stderr,
        EntryKind::Problem,
    ];
    for kind in kinds {
        for text in [bad.to_owned(), bad.replace('\u{1b}', "")] {
            let entry = new_entry(kind, bad, &text, 7);
            let html = format!("{}{}", entry_html(&entry, true), entry_html(&entry, false));
            for forbidden in ["<script", "<a ", "\u{1b}", "\u{202e}", "href=\""] {
                assert!(!html.contains(forbidden), "{kind:?} {forbidden}: {html}");
            }
        }
    }
}

#[test]
fn call_is_closed_when_it_succeeded_and_open_when_it_runs_or_failed() {
    for (progress, is_open) in [
        (EntryProgress::Running, true),
        (EntryProgress::Failed, true),
        (EntryProgress::Done, false),
        (EntryProgress::Unfinished, false),
    ] {
        let entry = tool(progress, "one\ntwo\n");
        assert_eq!(is_open_at_first(&entry), is_open, "{progress:?}");
        let html = entry_html(&entry, is_open);
        assert_eq!(html.contains(" open><summary"), is_open, "{html}");
        assert_eq!(html.contains("data-n=\"2\">two"), is_open, "{html}");
        assert!(
            html.contains("2 lines") && html.contains("exit 101"),
            "{html}"
        );
        let has_duration = matches!(progress, EntryProgress::Done | EntryProgress::Failed);
        assert_eq!(html.contains("<span>38 s</span>"), has_duration, "{html}");
    }
}

#[test]
fn middle_of_a_long_output_is_folded_and_can_be_read() {
    let text: String = (1..=5_000).map(|n| format!("line {n}\n")).collect();
    let html = body_html(&tool(EntryProgress::Failed, &text));
    assert_eq!(
        html.matches("class=\"ln\"").count(),
        FIRST_LINES + LAST_LINES
    );
    assert!(
        html.contains("data-from=\"21\" data-to=\"4920\">show 4,900 more lines<"),
        "{html}"
    );
    let lines = lines_html(&text, 21, 30);
    assert_eq!(lines.matches("class=\"ln\"").count(), 10);
    assert!(
        lines.starts_with("<span class=\"ln\" data-n=\"21\">line 21\n"),
        "{lines}"
    );
    // A colour that was set before the shown lines continues.
    let coloured = format!("\u{1b}[31m{text}");
    assert!(lines_html(&coloured, 30, 30).contains("<span class=\"f1\">line 30"));
}

#[test]
fn command_that_is_too_long_for_its_row_is_in_the_body() {
    let mut entry = tool(EntryProgress::Done, "");
    assert!(!body_html(&entry).contains("class=\"command\""));
    entry.head.title = "cat <<EOF\n<b>two</b>\nEOF".into();
    let html = entry_html(&entry, false);
    assert!(
        html.contains("<details") && html.contains("cat &lt;&lt;EOF …<"),
        "{html}"
    );
    let body = body_html(&entry);
    assert!(
        body.starts_with("<div class=\"command\">cat &lt;&lt;EOF\n&lt;b&gt;two"),
        "{body}"
    );
}

#[test]
fn long_texts_are_cut_with_a_note() {
    let html = body_html(&tool(EntryProgress::Done, &"x".repeat(10_000_000)));
    assert!(
        html.len() < 2 * sanitize::MAX_LINE_CHARS && html.contains("more characters"),
        "{}",
        html.len()
    );
    let question = new_entry(EntryKind::Request, "asks", &"line\n".repeat(1_000_000), 1);
    assert!(entry_html(&question, true).len() < 2 * MAX_TEXT_CHARS);
}

#[test]
fn durations_and_counts_are_readable() {
    for (ms, expected) in [
        (20, "&lt;0.1 s"),
        (450, "0.4 s"),
        (9_900, "9.9 s"),
        (38_000, "38 s"),
        (125_000, "2 min 5 s"),
        (3_840_000, "1 h 4 min"),
    ] {
        assert_eq!(duration_text(ms), expected);
    }
    assert_eq!(
        [7, 1_234, 1_234_567].map(grouped),
        ["7", "1,234", "1,234,567"]
    );
}
