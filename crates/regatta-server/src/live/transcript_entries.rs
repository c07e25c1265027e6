//! Groups the events of a transcript into entries, which are the rows of the page's log.
//!
//! All updates of a tool call are one entry, and so are the parts of a message that a program sends
//! piece by piece. The command `regatta logs` prints the same calls in the same order.

use regatta_core::agent_protocol::{AgentEvent, RequestContent, ToolCall, ToolKind, ToolStatus};
use regatta_engine::ports::agents::{CompleteTranscriptLine, JournalStream, OutputChange};
use serde::{Deserialize, Serialize};

/// The length at which a joined text ends, and the next part begins a new entry. The page renders a
/// message as a whole.
const MAX_JOINED_BYTES: usize = 32 * 1024;

/// Maximum length of an entry's title, in characters.
const MAX_TITLE_CHARS: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EntryKind {
    Message,
    Thought,
    Tool(ToolKind),
    Turn,
    /// A permission request or a question.
    Request,
    Plan,
    Note,
    /// Lines that the program wrote to its standard error.
    Stderr,
    /// A failed turn, or a limit of the provider.
    Problem,
}

/// The progress of a tool call or a request. A request that nobody has answered yet is `Running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EntryProgress {
    Running,
    Done,
    Failed,
    /// The turn ended before the tool call or the answer.
    Unfinished,
}

/// The facts about an entry, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryHead {
    pub(super) kind: EntryKind,
    pub(super) progress: EntryProgress,
    pub(super) title: String,
    pub(super) began_unix_ms: u64,
    pub(super) ended_unix_ms: u64,
    pub(super) exit_code: Option<i64>,
}

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) head: EntryHead,
    /// The output of a tool call, the text of a message and so on, as the program sent it.
    pub(super) text: String,
}

impl Entry {
    pub(super) fn is_running(&self) -> bool {
        self.head.progress == EntryProgress::Running
    }

    pub(super) fn is_failed(&self) -> bool {
        self.head.progress == EntryProgress::Failed
    }

    pub(super) fn apply_output(&mut self, change: &OutputChange) {
        if change.replaces {
            self.text.clear();
        }
        self.text.push_str(&change.text);
        self.head.exit_code = change.exit_code.or(self.head.exit_code);
    }

    /// Updates the entry of a tool call.
    pub(super) fn apply_call(&mut self, tool: &ToolCall, at_unix_ms: u64) {
        let title = title_text(tool);
        if !title.is_empty() {
            self.head.title = title;
        }
        self.head.kind = EntryKind::Tool(tool.kind);
        self.head.ended_unix_ms = at_unix_ms;
        self.head.progress = match tool.status {
            ToolStatus::Pending | ToolStatus::InProgress => EntryProgress::Running,
            ToolStatus::Completed => EntryProgress::Done,
            ToolStatus::Failed => EntryProgress::Failed,
        };
    }
}

fn title_text(tool: &ToolCall) -> String {
    let title = tool.describe();
    let title = if title.is_empty() { &tool.id } else { &title };
    cut(title)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TITLE_CHARS).collect()
}

/// A change of the entries, in the order of the transcript.
#[derive(Debug, PartialEq)]
pub(super) enum EntryChange<'a> {
    /// Adds the text to the last entry if it has the same kind and can be continued. Otherwise adds
    /// an entry.
    Text {
        kind: EntryKind,
        text: &'a str,
    },
    Add(Entry),
    Call(&'a ToolCall),
    Output(&'a OutputChange),
    /// The oldest request without an answer was answered or withdrawn.
    Answer,
    /// A turn ended. The program may use the ids of its calls again, and calls that run have ended.
    EndTurn,
}

/// Returns whether two parts of text can be one entry.
pub(super) fn can_continue(entry: &Entry, kind: EntryKind) -> bool {
    entry.head.kind == kind && entry.text.len() < MAX_JOINED_BYTES
}

/// Creates an entry that is complete.
pub(super) fn new_entry(kind: EntryKind, title: &str, text: &str, at_unix_ms: u64) -> Entry {
    let progress = match kind {
        EntryKind::Problem => EntryProgress::Failed,
        EntryKind::Request => EntryProgress::Running,
        _ => EntryProgress::Done,
    };
    Entry {
        head: EntryHead {
            kind,
            progress,
            title: cut(title),
            began_unix_ms: at_unix_ms,
            ended_unix_ms: at_unix_ms,
            exit_code: None,
        },
        text: text.to_owned(),
    }
}

/// Returns how a line of the transcript changes the entries.
pub(super) fn changes(complete: &CompleteTranscriptLine) -> Vec<EntryChange<'_>> {
    let (record, events) = (&complete.line.record, &complete.line.events);
    let mut changes = Vec::new();
    if events.is_empty() {
        // No driver (the parser for one kind of program) parses these lines.
        match record.stream {
            JournalStream::Err => changes.push(EntryChange::Text {
                kind: EntryKind::Stderr,
                text: &record.line,
            }),
            JournalStream::Mark => changes.push(EntryChange::Add(new_entry(
                EntryKind::Note,
                &record.line,
                "",
                record.written_unix_ms,
            ))),
            _ => {}
        }
    }
    if record.stream == JournalStream::In && is_answer(&record.line) {
        changes.push(EntryChange::Answer);
    }
    for event in events {
        push_event(&mut changes, event, complete);
    }
    changes.extend(complete.outputs.iter().map(EntryChange::Output));
    changes
}

/// Returns whether a line that was sent to the program answers a request of the program.
fn is_answer(line: &str) -> bool {
    // A prompt may be long, and only a line with one of these words can be an answer.
    if !line.contains("\"result\"") && !line.contains("control_response") {
        return false;
    }
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|message| {
        let is_rpc_answer = message.get("method").is_none() && message.get("result").is_some();
        is_rpc_answer || message["type"] == "control_response"
    })
}

fn push_event<'a>(
    changes: &mut Vec<EntryChange<'a>>,
    event: &'a AgentEvent,
    complete: &'a CompleteTranscriptLine,
) {
    let record = &complete.line.record;
    let add = |kind: EntryKind, title: &str, text: &str| {
        EntryChange::Add(new_entry(kind, title, text, record.written_unix_ms))
    };
    let change = match event {
        // Name the model, because a program reports its session again when another model takes
        // over.
        AgentEvent::Started { model, .. } => {
            let title = model
                .as_deref()
                .map_or("session opened".to_owned(), |model| {
                    format!("session with {model}")
                });
            add(EntryKind::Note, &title, "")
        }
        AgentEvent::TurnStarted { n } => {
            changes.push(EntryChange::EndTurn);
            add(EntryKind::Turn, &format!("turn {}", n + 1), "")
        }
        AgentEvent::Message { text } => EntryChange::Text {
            kind: EntryKind::Message,
            text,
        },
        AgentEvent::Thought { text } => EntryChange::Text {
            kind: EntryKind::Thought,
            text,
        },
        AgentEvent::Tool(tool) => EntryChange::Call(tool),
        AgentEvent::Plan { entries } => {
            let lines: Vec<String> = entries
                .iter()
                .map(|entry| {
                    let sign = match entry.status {
                        ToolStatus::Completed => "☑",
                        ToolStatus::InProgress => "▶",
                        ToolStatus::Failed => "✕",
                        ToolStatus::Pending => "☐",
                    };
                    format!("{sign} {}", entry.text)
                })
                .collect();
            add(EntryKind::Plan, "plan", &lines.join("\n"))
        }
        AgentEvent::RequestMade(request) => match &request.content {
            RequestContent::Permission { tool, .. } => {
                add(EntryKind::Request, "permission", &tool.describe())
            }
            RequestContent::Question { text, choices, .. } => {
                let choices: Vec<String> = choices
                    .iter()
                    .map(|choice| format!("\n· {choice}"))
                    .collect();
                add(
                    EntryKind::Request,
                    "question",
                    &format!("{text}{}", choices.concat()),
                )
            }
        },
        AgentEvent::TurnEnded { class, detail, .. } => {
            changes.push(EntryChange::EndTurn);
            let Some(class) = class else { return };
            add(EntryKind::Problem, &format!("turn failed: {class}"), detail)
        }
        AgentEvent::Limited { detail, .. } => {
            add(EntryKind::Problem, "limit of the provider", detail)
        }
        AgentEvent::Notice { text } if record.stream == JournalStream::Err => EntryChange::Text {
            kind: EntryKind::Stderr,
            text,
        },
        AgentEvent::Notice { text } => add(EntryKind::Note, text, ""),
        AgentEvent::RequestWithdrawn { .. } => EntryChange::Answer,
        AgentEvent::Usage { .. } | AgentEvent::Context { .. } => return,
    };
    changes.push(change);
}
