//! Tests of reading and writing beads issues.

use super::*;

fn parse(text: &str) -> Result<Beads, Vec<String>> {
    let source = SourceText::new("b.jsonl", text);
    read_issues(&source).map_err(|diagnostics| {
        diagnostics
            .iter()
            .map(|diagnostic| source.format_line(diagnostic))
            .collect()
    })
}

#[test]
fn lines_become_issues_and_statuses_are_mapped() {
    let text = r#"
{"_type":"issue","id":"bd-1","title":"One","status":"open","priority":1,"issue_type":"bug","design":"So.","metadata":{"files":["a"]}}
{"id":"bd-2","title":"Two","status":"in_progress","assignee":"ann","dependencies":[{"issue_id":"bd-2","depends_on_id":"bd-1","type":"blocks"},{"depends_on_id":"bd-5","dep_type":"parent-child"}]}
{"id":"bd-3","title":"Three","status":"closed","description":null,"priority":null}
{"id":"bd-4","title":"Four","status":"deferred"}
{"id":"bd-5","title":"Five","issue_type":"epic"}
{"id":"bd-6","title":"Six","status":"blocked"}
{"id":"bd-7","title":"Mail","issue_type":"message"}
{"_type":"memory","id":"x"}
"#;
    let found = parse(text).unwrap();
    let stands: Vec<&BeadState> = found.beads.iter().map(|bead| &bead.state).collect();
    let held = |s: &str| BeadState::Held(format!("{HELD_REASON_PREFIX}{s}"));
    assert_eq!(
        stands,
        [
            &BeadState::Open,
            &held("ann is working on it"),
            &BeadState::Closed,
            &BeadState::Backlog,
            &BeadState::Backlog,
            &held("it is blocked")
        ]
    );
    assert_eq!(found.skipped_lines, 2);
    assert_eq!(found.beads[0].description, "## Design\n\nSo.");
    assert_eq!(
        (found.beads[0].issue_type, found.beads[0].priority),
        (IssueType::Bug, 1)
    );
    assert_eq!(found.beads[0].work.files.as_ref().unwrap().len(), 1);
    assert_eq!(
        found.beads[1]
            .blocked_by
            .iter()
            .map(|blocked_by| blocked_by.0.as_str())
            .collect::<Vec<_>>(),
        ["bd-1"]
    );
}

#[test]
fn invalid_lines_are_refused_with_their_number() {
    for (text, expected_message) in [
        (
            "{\"id\":\"a\",\"title\":\"b\"}\nnonsense\n",
            "b.jsonl:2:2: this is not JSON",
        ),
        ("\n\n{\"id\":\"a\"}", "b.jsonl:3:1: missing field `title`"),
        ("{\"title\":\"a\"}", "b.jsonl:1:1: missing field `id`"),
        ("[]", "b.jsonl:1:1: `issue` must be a table, not a list"),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"priority\":12}",
            "b.jsonl:1:34: 12 is not a valid priority",
        ),
        (
            "{\"id\":\"a\",\"title\":3}",
            "b.jsonl:1:19: `title` must be a string, not a number",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\"}\n{\"id\":\"a\",\"title\":\"b\"}",
            "b.jsonl:2:1: \"a\" appears twice; first at line 1",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"dependencies\":{}}",
            "b.jsonl:1:38: `dependencies` must be a list, not a table",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"dependencies\":[{}]}",
            "has no `depends_on_id`",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"dependencies\":[\"a\"]}",
            "\"a\" depends on itself",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"dependencies\":[\"c\"]}\n{\"id\":\"c\",\"title\":\"b\",\"dependencies\":[\"a\"]}",
            "forever: a → c → a",
        ),
        (
            "{\"id\":\"a\",\"title\":\"b\",\"metadata\":{\"files\":[\"/x\"]}}",
            "absolute",
        ),
    ] {
        let found = parse(text).err().unwrap_or_default();
        assert!(
            found
                .iter()
                .any(|message| message.contains(expected_message)),
            "{text}: {expected_message} in {found:?}"
        );
    }
}

fn exported(was: &str) -> ExportedBead {
    let bead = parse(was).unwrap().beads.remove(0);
    ExportedBead {
        id: bead.id,
        title: bead.title,
        description: bead.description,
        issue_type: bead.issue_type,
        priority: bead.priority,
        status: "open",
        reason: None,
        is_held: false,
        blocked_by: bead
            .blocked_by
            .into_iter()
            .map(|blocked_by| blocked_by.0)
            .collect(),
        created: "2026-01-01T00:00:00Z".into(),
        updated: "2026-01-02T00:00:00Z".into(),
        metadata: serde_json::json!({}),
    }
}

#[test]
fn unchanged_fields_are_written_back_byte_for_byte() {
    let line = r#"{"zeta": 1.50, "id":"bd-1","title":"One","status":"deferred","notes":"n","x":{"b":1, "a":2},"dependencies":[{"depends_on_id":"old","type":"blocks"}]}"#;
    assert_eq!(
        exported(line).merge_into_line(line, &|_| false),
        line,
        "an equal value in another notation is not a change"
    );
    let closed = ExportedBead {
        status: "closed",
        reason: Some("landed".into()),
        ..exported(line)
    };
    let merged = closed.merge_into_line(line, &|_| false);
    assert!(
        merged.starts_with(
            r#"{"zeta":1.50,"id":"bd-1","title":"One","status":"closed","notes":"n","x":{"b":1, "a":2},"#
        ),
        "{merged}"
    );
    assert!(
        merged.contains(r#""closed_at":"2026-01-02T00:00:00Z""#)
            && merged.contains(r#""close_reason":"landed""#)
    );
    assert!(
        merged.contains("\"old\""),
        "an unknown dependency stays: {merged}"
    );
    let again = ExportedBead {
        status: "closed",
        ..exported(&merged)
    };
    assert_eq!(
        again.merge_into_line(&merged, &|_| false),
        merged,
        "writing it again changes nothing"
    );
    let mut other = exported(line);
    (other.title, other.priority, other.blocked_by) = ("Uno".into(), 0, vec!["bd-2".into()]);
    other.description = format!("more\n\n{}", other.description);
    let merged = other.merge_into_line(line, &|other| other == "old");
    let back = parse(&merged).unwrap().beads.remove(0);
    assert_eq!(
        (
            back.title.as_str(),
            back.priority,
            back.blocked_by[0].0.as_str()
        ),
        ("Uno", 0, "bd-2")
    );
    assert_eq!(
        back.blocked_by.len(),
        1,
        "the dependency that the task no longer has is removed: {merged}"
    );
    assert_eq!(back.description, other.description);
}

#[test]
fn long_title_is_cut_and_kept_whole_in_the_description() {
    let title = "word ".repeat(80);
    let (short, text) = shorten_title(&title, "rest".into());
    assert_eq!(short.chars().count(), 300);
    assert!(text.starts_with(title.trim()) && text.ends_with("rest"));
}
