//! The command `logs`, which prints the output of an attempt's program or of its checks.

use clap::Args;
use regatta_api::view::CheckResultView;
use regatta_api::{call, input};
use regatta_core::agent_protocol::{
    AgentEvent as Spoken, RequestContent, ShownCalls, ToolCall, ToolStatus,
};
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::reference::{self, Reference, ReferenceKind, UnclearReference};
use regatta_engine::ports::agents::{Agents, JournalStream, TranscriptLine};

use crate::client::{Client, EventStreamItem};
use crate::commands::events::current_revision;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, Output, command_error, first_line, sanitize, usage_error,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "logs",
    &["regatta logs T7 --follow", "regatta logs T7 --check"],
)];

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Attempt (run of an agent on a task) whose output to print, such as A9, or a task, such as
    /// T7, for its last attempt
    pub(crate) id: String,
    /// Keep printing new output until the attempt ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print each line as it was sent: < to the program, > from the program, ! from its standard
    /// error, # notes of Regatta
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print the output of the checks (such as tests) of the attempt's work instead
    #[arg(long, conflicts_with_all = ["follow", "raw"])]
    pub(crate) check: bool,
}

/// Returns the attempt that `id` names. For a task, that is the task's last attempt.
pub(crate) fn attempt_of(client: &Client, id: &str) -> Result<AttemptId, CommandError> {
    const ACCEPTED_KINDS: &[ReferenceKind] = &[ReferenceKind::Attempt, ReferenceKind::Task];
    let readings = reference::readings(id, ACCEPTED_KINDS, ACCEPTED_KINDS).map_err(|error| {
        usage_error(
            error.to_string(),
            "write the id of an attempt, such as A5, or of its task, such as T21",
        )
    })?;
    match &readings[..] {
        [Reference::Attempt(attempt)] => Ok(*attempt),
        [Reference::Task(task)] => last_attempt(client, *task),
        // The id is a number without a letter, so it may mean an attempt or a task. Often only an
        // attempt or only a task with this number exists; use whichever exists.
        _ => {
            let can_show = |id: String| client.call(call::Show(input::IdInput { id })).is_ok();
            let exists = |reading: &Reference| match reading {
                Reference::Attempt(attempt) => can_show(attempt.to_string()),
                Reference::Task(task) => can_show(task.to_string()),
                _ => false,
            };
            match reference::choose(readings.clone(), exists) {
                Ok(Reference::Attempt(attempt))
                | Err(UnclearReference::Missing(Reference::Attempt(attempt))) => Ok(attempt),
                Ok(Reference::Task(task)) => last_attempt(client, task),
                _ => {
                    let names: Vec<String> = readings.iter().map(ToString::to_string).collect();
                    Err(usage_error(
                        format!(
                            "the number {id} is ambiguous, because it can mean {}",
                            names.join(" or ")
                        ),
                        format!("add the letter: regatta logs A{id}, or regatta logs T{id}"),
                    ))
                }
            }
        }
    }
}

/// Returns a task's last attempt.
fn last_attempt(client: &Client, task: TaskId) -> Result<AttemptId, CommandError> {
    let view = client.show_task(task)?;
    let last = view.attempts.last().map(|attempt| attempt.id);
    last.ok_or_else(|| {
        command_error(
            "no_such_attempt",
            format!("{task} has no attempt yet"),
            format!("see why: regatta why {task}"),
        )
    })
}

/// Runs `regatta logs`.
pub(crate) fn logs(app: &CommandContext, args: &LogsArgs) -> CommandResult {
    if args.check {
        return print_checks(app, &args.id);
    }
    let client = app.client()?;
    let attempt = attempt_of(&client, &args.id)?;
    let show = || client.show_attempt(attempt);
    let attempt_view = show()?;
    let agents = crate::composition::agents_adapter(&client.data_dir().path)?;
    let mut position = 1;
    let mut formatter = TranscriptFormatter {
        is_raw: args.raw,
        is_verbose: app.global.verbose > 0,
        ..TranscriptFormatter::default()
    };
    // Read and print the journal (the record of the program's input and output) in parts, because
    // it may be long and the reader may stop early.
    let mut copy = |position: &mut u64| -> CommandResult {
        loop {
            let lines = agents
                .transcript(attempt, *position, 500)
                .map_err(|error| command_error("io", error.message, error.hint))?;
            let Some(last) = lines.last() else {
                return Ok(());
            };
            *position = last.record.position + 1;
            let text: String = lines
                .iter()
                .map(|transcript_line| formatter.format_line(&app.output, attempt, transcript_line))
                .collect();
            app.output.print(&text)?;
        }
    };
    copy(&mut position)?;
    if !args.follow || attempt_view.end.is_some() {
        return app
            .output
            .print(if formatter.is_line_open { "\n" } else { "" });
    }
    client.stream_events(current_revision(&client)?, true, |item| {
        copy(&mut position)?;
        match item {
            EventStreamItem::Event(event) => {
                Ok(!(event.kind == "attempt.ended" && event.subject == attempt.to_string()))
            }
            EventStreamItem::Idle => Ok(show()?.end.is_none()),
        }
    })?;
    copy(&mut position)?;
    app.output
        .print(if formatter.is_line_open { "\n" } else { "" })
}

/// Formats an attempt's transcript (the readable log of its program) for the terminal, line by
/// line. Remembers if the last printed line is complete and which tool calls were already shown.
#[derive(Default)]
struct TranscriptFormatter {
    is_raw: bool,
    is_verbose: bool,
    /// True if the last printed text did not end with a newline.
    is_line_open: bool,
    shown_calls: ShownCalls,
}

impl TranscriptFormatter {
    fn format_line(&mut self, out: &Output, attempt: AttemptId, line: &TranscriptLine) -> String {
        let record = &line.record;
        if out.is_json {
            let mut data = serde_json::json!({
                "attempt": attempt, "n": record.position, "at": record.written_unix_ms, "stream": record.stream, "said": line.events,
            });
            if self.is_raw || line.events.is_empty() {
                data["line"] = serde_json::Value::String(record.line.clone());
            }
            return format!("{data}\n");
        }
        if self.is_raw {
            let sign = match record.stream {
                JournalStream::In | JournalStream::InEnd => "<",
                JournalStream::Out => ">",
                JournalStream::Err => "!",
                JournalStream::Mark => "#",
            };
            return format!("{sign} {}\n", sanitize(&record.line));
        }
        let mut text = String::new();
        if record.stream == JournalStream::Mark {
            text += &self.on_own_line(&sanitize(&record.line));
        }
        for said in &line.events {
            text += &self.format_event(out, said);
        }
        text
    }

    /// Returns `line` with a newline at its end. Adds a newline before it if the last printed text
    /// did not end with a newline.
    fn on_own_line(&mut self, line: &str) -> String {
        let begin = if std::mem::take(&mut self.is_line_open) {
            "\n"
        } else {
            ""
        };
        format!("{begin}{line}\n")
    }

    fn format_event(&mut self, out: &Output, event: &Spoken) -> String {
        match event {
            Spoken::Message { text } => {
                self.is_line_open = !text.ends_with('\n') && !text.is_empty();
                sanitize(text)
            }
            Spoken::Thought { text } if self.is_verbose => {
                self.on_own_line(&out.paint(&sanitize(text.trim()), "2"))
            }
            Spoken::Tool(tool) => self.format_tool(out, tool),
            Spoken::RequestMade(request) => {
                let what = match &request.content {
                    RequestContent::Permission { tool, .. } => tool.describe(),
                    RequestContent::Question { text, .. } => text.clone(),
                };
                self.on_own_line(&format!("? {}", sanitize(&what)))
            }
            Spoken::TurnStarted { n } => {
                self.shown_calls.begin_turn();
                if *n > 0 {
                    self.on_own_line(&format!("· turn {}", n + 1))
                } else {
                    String::new()
                }
            }
            Spoken::Limited { detail, .. } => {
                self.on_own_line(&format!("! rate limit: {}", sanitize(detail)))
            }
            Spoken::TurnEnded {
                class: Some(class),
                detail,
                ..
            } => self.on_own_line(&format!("! {class}: {}", sanitize(detail.trim()))),
            Spoken::Notice { text } => self.on_own_line(&sanitize(text.trim_end())),
            _ => String::new(),
        }
    }

    fn format_tool(&mut self, out: &Output, tool: &ToolCall) -> String {
        if !self.shown_calls.should_show(tool) {
            return String::new();
        }
        let (sign, plain_sign) = match tool.status {
            ToolStatus::Pending | ToolStatus::InProgress => ("●", "*"),
            ToolStatus::Completed => ("✓", "+"),
            ToolStatus::Failed => ("✕", "x"),
        };
        let what = tool.describe();
        let what = if what.is_empty() {
            tool.id.clone()
        } else {
            what
        };
        self.on_own_line(&format!(
            "{} {}",
            if out.is_unicode { sign } else { plain_sign },
            sanitize(&what)
        ))
    }
}

/// Runs `regatta logs --check`: prints the output of the checks of an attempt's work. For a task,
/// these are the checks of its last checked attempt, and the failed checks of the landing queue if
/// they sent the work back.
fn print_checks(app: &CommandContext, id: &str) -> CommandResult {
    let client = app.client()?;
    let named = attempt_of(&client, id)?;
    let attempt = client.show_attempt(named)?;
    let task = client.show_task(attempt.task)?;
    let names_task = !id.contains(&named.to_string());
    let earlier = task
        .attempts
        .iter()
        .rev()
        .map(|attempt| attempt.id)
        .filter(|_| names_task);
    let mut found: Vec<CheckResultView> = Vec::new();
    for attempt in std::iter::once(named).chain(earlier) {
        found = app
            .call(call::Checks(input::AttemptChecksInput { attempt }))?
            .data;
        if !found.is_empty() {
            break;
        }
    }
    if let Some(output) = task
        .task
        .fixup
        .and_then(|fixup| fixup.output)
        .filter(|_| names_task)
    {
        let (check, how) = (
            "the queue's checks".to_owned(),
            "on the work merged with the current trunk".to_owned(),
        );
        found.push(CheckResultView {
            check,
            passed: false,
            how,
            output,
            ms: 0,
        });
    }
    app.output.print_answer("attempt.checks", &found, &[], |_| {
        if found.is_empty() {
            return format!("no check output of {named} was stored\n");
        }
        found.iter().fold(String::new(), |text, check_result| {
            let word = if check_result.passed {
                "passed"
            } else {
                "failed"
            };
            let seconds = check_result.ms as f64 / 1_000.0;
            let output = sanitize(check_result.output.trim_end());
            let output = if output.is_empty() {
                output
            } else {
                format!("{output}\n")
            };
            text + &format!(
                "{word}  {}  {seconds:.1} s  {}\n{output}",
                first_line(&check_result.check),
                first_line(&check_result.how)
            )
        })
    })
}
