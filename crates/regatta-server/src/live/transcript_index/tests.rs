use super::*;
use regatta_core::agent_protocol::{AgentEvent, FailureClass, StopReason, ToolCall, ToolStatus};
use regatta_engine::ports::agents::{JournalRecord, JournalStream, OutputChange, TranscriptLine};

fn line(position: u64, events: Vec<AgentEvent>) -> CompleteTranscriptLine {
    let record = JournalRecord {
        position,
        written_unix_ms: 1_000 * position,
        stream: JournalStream::Out,
        line: String::new(),
    };
    CompleteTranscriptLine {
        line: TranscriptLine { record, events },
        outputs: vec![],
    }
}

fn call(position: u64, id: &str, status: ToolStatus, output: &str) -> CompleteTranscriptLine {
    let tool = ToolCall {
        id: id.into(),
        title: format!("call {id}"),
        status,
        ..ToolCall::default()
    };
    let outputs = vec![OutputChange {
        call: id.into(),
        replaces: false,
        text: output.into(),
        exit_code: None,
    }];
    CompleteTranscriptLine {
        outputs,
        ..line(position, vec![AgentEvent::Tool(tool)])
    }
}

fn message(position: u64, text: &str) -> CompleteTranscriptLine {
    let text = text.to_owned();
    line(position, vec![AgentEvent::Message { text }])
}

fn built(lines: &[CompleteTranscriptLine]) -> (tempfile::TempDir, TranscriptIndex) {
    let dir = tempfile::tempdir().unwrap();
    let mut index = TranscriptIndex::new(dir.path()).unwrap();
    for line in lines {
        index.push_line(line).unwrap();
    }
    (dir, index)
}

fn get(index: &TranscriptIndex, number: usize) -> Entry {
    index.entry(number).unwrap().unwrap()
}

#[test]
fn updates_of_a_tool_call_are_one_entry() {
    use ToolStatus::{Completed, Failed, InProgress};
    let (_dir, mut index) = built(&[
        call(1, "a", InProgress, "one\n"),
        call(2, "b", InProgress, "other\n"),
        message(3, "meanwhile"),
        call(4, "a", InProgress, "two\n"),
        call(5, "a", Completed, "three\n"),
    ]);
    assert_eq!(index.len(), 3);
    let first = get(&index, 0);
    assert_eq!(first.text, "one\ntwo\nthree\n");
    assert_eq!(
        (first.head.began_unix_ms, first.head.ended_unix_ms),
        (1_000, 5_000)
    );
    assert_eq!(get(&index, 1).head.progress, EntryProgress::Running);
    // A stored entry that changes later is read again.
    index.push_line(&call(6, "a", Failed, "late")).unwrap();
    assert_eq!(get(&index, 0).text, "one\ntwo\nthree\nlate");
    assert_eq!(index.failures(), [0]);
}

#[test]
fn turn_ends_its_calls_and_their_ids_can_be_used_again() {
    let ended = AgentEvent::TurnEnded {
        stop: StopReason::Error,
        class: Some(FailureClass::Crashed),
        detail: "why".into(),
    };
    let (_dir, index) = built(&[
        line(1, vec![AgentEvent::TurnStarted { n: 0 }]),
        call(2, "a", ToolStatus::InProgress, "x"),
        line(3, vec![ended]),
        line(4, vec![AgentEvent::TurnStarted { n: 1 }]),
        call(5, "a", ToolStatus::Completed, "y"),
    ]);
    let kinds: Vec<EntryKind> = (0..index.len())
        .map(|number| get(&index, number).head.kind)
        .collect();
    assert_eq!(kinds.len(), 5);
    assert_eq!(
        (kinds[0], kinds[2], kinds[3]),
        (EntryKind::Turn, EntryKind::Problem, EntryKind::Turn)
    );
    assert_eq!(get(&index, 1).head.progress, EntryProgress::Unfinished);
    assert_eq!(
        (get(&index, 1).text, get(&index, 4).text),
        ("x".into(), "y".into())
    );
    assert_eq!(index.failures(), [2]);
}

#[test]
fn request_waits_until_the_program_gets_an_answer() {
    use regatta_core::agent_protocol::{AgentRequest, RequestContent};
    let request = |n: u64| {
        let content = RequestContent::Question {
            text: format!("question {n}"),
            choices: vec![],
            schema: None,
        };
        let id = n.to_string();
        line(
            n,
            vec![AgentEvent::RequestMade(AgentRequest { id, content })],
        )
    };
    let sent = |n: u64, text: &str| {
        let mut sent = line(n, vec![]);
        sent.line.record.stream = JournalStream::In;
        sent.line.record.line = text.to_owned();
        sent
    };
    let (_dir, mut index) = built(&[
        request(1),
        request(2),
        sent(
            3,
            r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#,
        ),
        sent(
            4,
            r#"{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{"result":1}}"#,
        ),
    ]);
    let progress = |index: &TranscriptIndex| [0, 1].map(|number| get(index, number).head.progress);
    assert_eq!(
        progress(&index),
        [EntryProgress::Done, EntryProgress::Running]
    );
    let ended = AgentEvent::TurnEnded {
        stop: StopReason::Cancelled,
        class: None,
        detail: String::new(),
    };
    index.push_line(&line(5, vec![ended])).unwrap();
    assert_eq!(
        progress(&index),
        [EntryProgress::Done, EntryProgress::Unfinished]
    );
}

#[test]
fn parts_of_a_message_are_one_entry_of_limited_length() {
    let part = "word ".repeat(100);
    let lines: Vec<_> = (1..=1_000).map(|n| message(n, &part)).collect();
    let (_dir, index) = built(&lines);
    let lengths: Vec<usize> = (0..index.len())
        .map(|number| get(&index, number).text.len())
        .collect();
    assert_eq!(lengths.iter().sum::<usize>(), 1_000 * part.len());
    assert!(lengths.len() > 10 && lengths.len() < 20, "{lengths:?}");
}

/// Memory does not grow with the text: only the last entry and running calls are in memory.
#[test]
fn ended_entries_are_in_the_file() {
    let lines: Vec<_> = (1..=5_000)
        .map(|n| {
            call(
                n,
                &format!("c{n}"),
                ToolStatus::Completed,
                &"x".repeat(1_000),
            )
        })
        .collect();
    let (dir, index) = built(&lines);
    assert_eq!((index.len(), index.open.len()), (5_000, 1));
    assert!(index.file_bytes > 5_000_000 - 1_000);
    assert_eq!(get(&index, 2_500).head.title, "call c2501");
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the file has no name"
    );
    // Calls that never end do not stay in memory without a limit.
    let lines: Vec<_> = (1..=500)
        .map(|n| call(n, &format!("c{n}"), ToolStatus::InProgress, "x"))
        .collect();
    let (_dir, index) = built(&lines);
    assert!(
        index.open.len() <= MAX_OPEN_ENTRIES + 1,
        "{}",
        index.open.len()
    );
    assert_eq!(get(&index, 0).head.progress, EntryProgress::Running);
}

#[test]
fn only_changed_entries_have_a_new_version() {
    let (_dir, mut index) = built(&[
        call(1, "a", ToolStatus::InProgress, "x"),
        call(2, "b", ToolStatus::Completed, "x"),
    ]);
    let seen = index.version();
    index
        .push_line(&call(3, "a", ToolStatus::Completed, "y"))
        .unwrap();
    assert!(index.version_of(0) > seen && index.version_of(1) <= seen);
}

#[test]
fn search_finds_lines_in_all_entries() {
    let (_dir, index) = built(&[
        message(1, "an Error in prose"),
        call(
            2,
            "a",
            ToolStatus::Completed,
            "ok\n\u{1b}[31mer\u{1b}[0mror: x\nerror error\n",
        ),
        message(3, "all good"),
        call(4, "error", ToolStatus::InProgress, ""),
    ]);
    let (hits, total) = index.snapshot().search("ERROR", 3).unwrap();
    let hit = |entry: usize, line: Option<usize>| SearchHit { entry, line };
    assert_eq!(hits, [hit(0, Some(1)), hit(1, Some(2)), hit(1, Some(3))]);
    assert_eq!(total, 4, "hits beyond the limit are counted");
    assert_eq!(index.snapshot().search("nowhere", 3).unwrap().1, 0);
}
