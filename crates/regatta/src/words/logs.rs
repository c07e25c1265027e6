//! The command `logs`: prints the transcript of an attempt, or its unprocessed journal.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::TaskView;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::reference::{self, Kind, Reference, Unclear};
use regatta_core::session::{Said as Spoken, ShownCalls, Tool, ToolStatus, Want};
use regatta_engine::ports::agents::{Agents, Line, Stream};

use crate::client::{Client, Got, Seen};
use crate::out::{Failed, Out, Said, failed, plain, usage};

use super::App;
use super::see::got_revision;

/// Returns the attempt that `id` names. For a task, that is the task's last attempt.
pub(super) fn attempt_of(client: &Client, id: &str) -> Result<AttemptId, Failed> {
    const KINDS: &[Kind] = &[Kind::Attempt, Kind::Task];
    let found = reference::readings(id, KINDS, KINDS)
        .map_err(|error| usage(error.to_string(), "write the id of an attempt (A5) or of its task (T21)"))?;
    match &found[..] {
        [Reference::Attempt(attempt)] => Ok(*attempt),
        [Reference::Task(task)] => last_attempt(client, *task),
        // The id is a number without a letter. Attempts outnumber tasks, so usually only one of the
        // two exists.
        _ => {
            let shown = |id: String| client.call_aside::<serde_json::Value>(Call::Show(input::Id { id })).is_ok();
            let exists = |reading: &Reference| match reading {
                Reference::Attempt(attempt) => shown(attempt.to_string()),
                Reference::Task(task) => shown(task.to_string()),
                _ => false,
            };
            match reference::choose(found.clone(), exists) {
                Ok(Reference::Attempt(attempt)) | Err(Unclear::Missing(Reference::Attempt(attempt))) => Ok(attempt),
                Ok(Reference::Task(task)) => last_attempt(client, task),
                _ => {
                    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
                    Err(usage(
                        format!("{id} can mean {}", names.join(" or ")),
                        format!("add the letter: regatta logs A{id}, or regatta logs T{id}"),
                    ))
                }
            }
        }
    }
}

/// Returns a task's last attempt.
fn last_attempt(client: &Client, task: TaskId) -> Result<AttemptId, Failed> {
    let got: Got<TaskView> = client.call(&Call::Show(input::Id { id: task.to_string() }))?;
    let last = got.data.attempts.last().map(|attempt| attempt.id);
    last.ok_or_else(|| {
        failed("no_such_attempt", format!("{task} has no attempt yet"), format!("see why: regatta why {task}"))
    })
}

/// Runs `regatta logs`.
pub(super) fn logs(app: &App, id: &str, follow: bool, raw: bool) -> Said {
    let client = app.client()?;
    let attempt = attempt_of(&client, id)?;
    let show = || -> Result<Attempt, Failed> {
        Ok(client.call_aside(Call::Show(input::Id { id: attempt.to_string() }))?.data)
    };
    let first = show()?;
    let agents = crate::wire::agents(&client.place().dir)?;
    let mut at = 1;
    let mut pen = Pen { raw, verbose: app.global.verbose > 0, ..Pen::default() };
    // The journal is printed in parts, because it may be long and the reader may stop early.
    let mut copy = |at: &mut u64| -> Said {
        loop {
            let lines = agents.transcript(attempt, *at, 500).map_err(|it| failed("io", it.what, it.hint))?;
            let Some(last) = lines.last() else { return Ok(()) };
            *at = last.record.n + 1;
            let text: String = lines.iter().map(|it| pen.draw(&app.out, attempt, it)).collect();
            app.out.print(&text)?;
        }
    };
    copy(&mut at)?;
    if !follow || first.ended.is_some() {
        return app.out.print(if pen.open { "\n" } else { "" });
    }
    client.events(got_revision(&client)?, true, |seen| {
        copy(&mut at)?;
        match seen {
            Seen::Event(event) => Ok(!(event.kind == "attempt.ended" && event.subject == attempt.to_string())),
            Seen::Quiet => Ok(show()?.ended.is_none()),
        }
    })?;
    copy(&mut at)?;
    app.out.print(if pen.open { "\n" } else { "" })
}

/// Formats a transcript line by line. It remembers whether the last line is complete and which tool
/// calls were shown.
#[derive(Default)]
struct Pen {
    raw: bool,
    verbose: bool,
    /// True if the last printed text did not end with a newline.
    open: bool,
    calls: ShownCalls,
}

impl Pen {
    fn draw(&mut self, out: &Out, attempt: AttemptId, line: &Line) -> String {
        let record = &line.record;
        if out.json {
            let mut data = serde_json::json!({
                "attempt": attempt, "n": record.n, "at": record.at, "stream": record.stream, "said": line.said,
            });
            if self.raw || line.said.is_empty() {
                data["line"] = serde_json::Value::String(record.line.clone());
            }
            return format!("{data}\n");
        }
        if self.raw {
            let sign = match record.stream {
                Stream::In | Stream::InEnd => "<",
                Stream::Out => ">",
                Stream::Err => "!",
                Stream::Mark => "#",
            };
            return format!("{sign} {}\n", plain(&record.line));
        }
        let mut text = String::new();
        if record.stream == Stream::Mark {
            text += &self.whole(&plain(&record.line));
        }
        for said in &line.said {
            text += &self.said(out, said);
        }
        text
    }

    /// Returns a text on a line of its own.
    fn whole(&mut self, line: &str) -> String {
        let begin = if std::mem::take(&mut self.open) { "\n" } else { "" };
        format!("{begin}{line}\n")
    }

    fn said(&mut self, out: &Out, said: &Spoken) -> String {
        match said {
            Spoken::Message { text } => {
                self.open = !text.ends_with('\n') && !text.is_empty();
                plain(text)
            }
            Spoken::Thought { text } if self.verbose => self.whole(&out.paint(&plain(text.trim()), "2")),
            Spoken::Tool(tool) => self.tool(out, tool),
            Spoken::Asked(ask) => {
                let what = match &ask.want {
                    Want::Permission { tool, .. } => tool.describe(),
                    Want::Question { text, .. } => text.clone(),
                };
                self.whole(&format!("? {}", plain(&what)))
            }
            Spoken::TurnStarted { n } => {
                self.calls.begin_turn();
                if *n > 0 { self.whole(&format!("· turn {}", n + 1)) } else { String::new() }
            }
            Spoken::Limited { detail, .. } => self.whole(&format!("! rate limit: {}", plain(detail))),
            Spoken::TurnEnded { class: Some(class), detail, .. } => {
                self.whole(&format!("! {class}: {}", plain(detail.trim())))
            }
            Spoken::Notice { text } => self.whole(&plain(text.trim_end())),
            _ => String::new(),
        }
    }

    fn tool(&mut self, out: &Out, tool: &Tool) -> String {
        if !self.calls.is_news(tool) {
            return String::new();
        }
        let (sign, plain_sign) = match tool.status {
            ToolStatus::Pending | ToolStatus::InProgress => ("●", "*"),
            ToolStatus::Completed => ("✓", "+"),
            ToolStatus::Failed => ("✕", "x"),
        };
        let what = tool.describe();
        let what = if what.is_empty() { tool.id.clone() } else { what };
        self.whole(&format!("{} {}", if out.unicode { sign } else { plain_sign }, plain(&what)))
    }
}
