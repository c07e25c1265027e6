//! Follows a mission until it ends and shows its progress, for `regatta run` and similar commands.
//!
//! On a terminal, a table of the tasks is redrawn in place. Without a terminal, each important
//! event is printed as a line. Ctrl-C ends the display and leaves the agents at work; a second
//! Ctrl-C offers to stop them.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use regatta_api::call;
use regatta_api::input;
use regatta_api::view::{EventView, InboxView, MissionView, TaskView};
use regatta_core::display::{self, DisplayState};
use regatta_core::ids::{MissionId, TaskId};

use crate::client::{CallReply, Client, EventStreamItem};
use crate::commands::CommandContext;
use crate::commands::task::activity_cell;
use crate::interrupt::Interrupts;
use crate::output::{
    self, CommandError, Output, command_error, first_line, format_table, internal_error,
    short_duration,
};

/// The reason why following a mission ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowEnd {
    /// All tasks have ended, or nothing more happens without a person.
    Settled,
    TimedOut,
    /// A person pressed Ctrl-C; the agents keep working.
    Detached,
    /// A person is needed, and the caller asked with [`FollowUntil`] to stop following in that
    /// case.
    PersonNeeded,
}

/// The condition under which following a mission ends early because a person is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUntil {
    /// Follow the mission until nothing more happens in it without a person.
    Settled,
    /// Follow the mission until any of its tasks needs a person.
    PersonNeeded,
    /// Follow the mission until every open task needs a person, or waits for a task that needs a
    /// person.
    OnlyPersonNeeded,
}

/// The maximum number of tasks in the table that a terminal shows while a mission runs.
const MAX_ROWS: usize = 12;
/// The time after a Ctrl-C in which a second Ctrl-C makes the command ask whether to stop the
/// agents.
const SECOND_INTERRUPT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time without output after which a line with the number of tasks per state is printed, if the
/// output is not a terminal.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum time to wait for another daemon after the connection to the daemon was lost.
const DAEMON_REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Follows a mission to its end, from the events after the revision `after` on. With `events`,
/// prints each event of the mission as a line of JSON.
pub(crate) fn follow(
    app: &CommandContext,
    client: &Client,
    first: CallReply<MissionView>,
    after: u64,
    events: bool,
) -> Result<FollowEnd, CommandError> {
    Ok(follow_from(app, client, first, after, events, FollowUntil::Settled)?.0)
}

/// Follows a mission until it ends or, depending on `until`, a person is needed. Also returns the
/// last revision that was shown, so that the next call can continue after it.
pub(crate) fn follow_until_needed(
    app: &CommandContext,
    client: &Client,
    first: CallReply<MissionView>,
    after: u64,
    until: FollowUntil,
) -> Result<(FollowEnd, u64), CommandError> {
    follow_from(app, client, first, after, false, until)
}

fn follow_from(
    app: &CommandContext,
    client: &Client,
    first: CallReply<MissionView>,
    after: u64,
    prints_events: bool,
    until: FollowUntil,
) -> Result<(FollowEnd, u64), CommandError> {
    let id = first.data.mission.id;
    let mut follower = Follower {
        interrupts: Interrupts::install()?,
        client,
        id,
        prints_events,
        ends_when: until,
        is_person_needed: false,
        table: LiveTable::new(&app.output),
        deadline: app.timeout().map(|duration| Instant::now() + duration),
        last_revision: after,
        last_refresh: Instant::now(),
        last_line: Instant::now(),
        is_dirty: true,
        settled_revision: first.data.settled.then_some(first.revision),
        mission: first.data,
    };
    let ending = loop {
        match follower.read_stream() {
            Ok(Some(ending)) => break Ok(ending),
            // The daemon closed the stream before the mission ended, so wait for another daemon.
            Ok(None) => follower.wait_for_new_daemon()?,
            Err(CommandError::Problem(problem)) if problem.code == "unreachable" => {
                follower.wait_for_new_daemon()?
            }
            Err(CommandError::Exit(130)) => break Ok(FollowEnd::Detached),
            Err(error) => break Err(error),
        }
    };
    follower.table.clear();
    if let Ok(FollowEnd::Detached) = ending {
        on_detached(app, client, id, &mut follower.interrupts)?;
    }
    Ok((ending?, follower.last_revision))
}

/// After the first Ctrl-C, prints how to watch the agents and how to stop them. If a second Ctrl-C
/// follows, asks whether to stop the agents.
fn on_detached(
    app: &CommandContext,
    client: &Client,
    id: MissionId,
    interrupts: &mut Interrupts,
) -> Result<(), CommandError> {
    interrupts.discard_pending();
    app.output.print_note(&format!(
        "detached; the agents keep working · watch them: regatta run --resume {id} · stop them: \
        regatta stop {id}"
    ));
    let can_ask = app.can_ask_now();
    if !can_ask && !app.global.no_input {
        return Ok(()); // there is nobody to press it again
    }
    if can_ask {
        app.output
            .print_note("Ctrl-C again asks whether to stop them");
    }
    if !interrupts.wait_within(SECOND_INTERRUPT_TIMEOUT) {
        return Ok(());
    }
    let stop = |drain: bool| -> Result<(), CommandError> {
        client.call(call::Stop(input::StopInput {
            id: Some(id.to_string()),
            drain,
            again: false,
        }))?;
        let result = if drain {
            "draining: nothing new starts"
        } else {
            "stopped; all work is kept"
        };
        app.output
            .print_note(&format!("{result} · go on: regatta run --resume {id}"));
        Ok(())
    };
    if !can_ask {
        return stop(true);
    }
    let answer = interrupts.ask_person(&format!("stop {id} now? its work is kept [y/N]"));
    match answer
        .as_deref()
        .map(|answer| answer.trim().to_ascii_lowercase())
        .as_deref()
    {
        Some("y" | "yes") => stop(false),
        _ => {
            app.output.print_note("the agents keep working");
            Ok(())
        }
    }
}

struct Follower<'a> {
    interrupts: Interrupts,
    client: &'a Client,
    id: MissionId,
    prints_events: bool,
    ends_when: FollowUntil,
    /// True if a person is needed, so that following the mission ends (see `ends_when`).
    is_person_needed: bool,
    table: LiveTable<'a>,
    deadline: Option<Instant>,
    last_revision: u64,
    last_refresh: Instant,
    /// The time at which the last line was printed. Used only if the output is not a terminal.
    last_line: Instant,
    is_dirty: bool,
    /// The revision (number of an event) after which nothing more happens without a person; `None`
    /// while work continues. Events up to this revision are shown before following ends.
    settled_revision: Option<u64>,
    mission: MissionView,
}

impl Follower<'_> {
    /// Reads and shows events until there is a reason to stop following the mission, and returns
    /// the reason. Returns `None` if the stream of events ended first.
    fn read_stream(&mut self) -> Result<Option<FollowEnd>, CommandError> {
        self.table.draw(&self.mission);
        let (client, after) = (self.client, self.last_revision);
        let mut ending = None;
        if self
            .settled_revision
            .is_some_and(|settled_revision| self.last_revision >= settled_revision)
        {
            return Ok(Some(FollowEnd::Settled));
        }
        client.stream_events(after, true, |item| {
            match item {
                EventStreamItem::Event(event) => self.on_event(&event)?,
                EventStreamItem::Idle => self.on_idle(),
            }
            let refresh_interval = Duration::from_millis(if self.table.is_live { 250 } else { 50 });
            if self.settled_revision.is_none()
                && self.is_dirty
                && self.last_refresh.elapsed() > refresh_interval
            {
                self.refresh()?;
            }
            if self
                .settled_revision
                .is_some_and(|settled_revision| self.last_revision >= settled_revision)
            {
                ending = Some(FollowEnd::Settled);
            } else if self.is_person_needed {
                ending = Some(FollowEnd::PersonNeeded);
            } else if self
                .deadline
                .is_some_and(|instant| Instant::now() > instant)
            {
                ending = Some(FollowEnd::TimedOut);
            }
            // The handler of the stream does not see a Ctrl-C that came before the stream was open,
            // so check for Ctrl-C here too.
            if self.interrupts.is_pending() {
                return Err(CommandError::Exit(130));
            }
            Ok(ending.is_none())
        })?;
        Ok(ending)
    }

    fn refresh(&mut self) -> Result<(), CommandError> {
        (self.is_dirty, self.last_refresh) = (false, Instant::now());
        let reply: CallReply<MissionView> =
            self.client.call(call::MissionShow(input::IdInput {
                id: self.id.to_string(),
            }))?;
        self.mission = reply.data;
        self.settled_revision = self.mission.settled.then_some(reply.revision);
        if self.ends_when != FollowUntil::Settled {
            let inbox_items: Vec<InboxView> = self
                .client
                .call(call::InboxList(input::ProjectFilter { project: None }))?
                .data;
            self.is_person_needed = needs_person(&self.mission, &inbox_items, self.ends_when);
        }
        self.table.draw(&self.mission);
        Ok(())
    }

    fn on_event(&mut self, event: &EventView) -> Result<(), CommandError> {
        (self.is_dirty, self.last_revision) = (true, event.revision);
        let is_ours = event.subject == self.id.to_string() || {
            let task = task_of_event(event);
            self.mission
                .tasks
                .iter()
                .any(|task_view| Some(task_view.task.id) == task)
        };
        if !is_ours {
            return Ok(());
        }
        if event.kind == "task.started"
            && let (Some(task), Ok(time)) =
                (task_of_event(event), event.time.parse::<jiff::Timestamp>())
        {
            self.table
                .attempt_starts_unix_ms
                .insert(task, u64::try_from(time.as_millisecond()).unwrap_or(0));
        }
        if self.prints_events {
            let text = serde_json::to_string(event).map_err(|error| {
                internal_error(format!(
                    "could not encode event {} as JSON: {error}",
                    event.revision
                ))
            })?;
            self.table.out.print(&format!("{text}\n"))?;
        } else if let Some(text) = milestone_line(event) {
            self.table.print_milestone(&text);
            self.last_line = Instant::now();
        }
        Ok(())
    }

    fn on_idle(&mut self) {
        self.is_dirty |= self.last_refresh.elapsed() > Duration::from_secs(2);
        if self.table.is_live {
            self.table.draw(&self.mission); // the elapsed times have changed
        } else if self.last_line.elapsed() > HEARTBEAT_INTERVAL {
            self.last_line = Instant::now();
            let now = jiff::Timestamp::now().to_string();
            let time = now.get(11..19).unwrap_or_default();
            self.table.out.print_note(&format!(
                "{time} {} {}",
                self.id,
                state_counts(&self.mission)
            ));
        }
    }

    /// Waits until a daemon runs again. Does not start a daemon, because a person may have stopped
    /// the daemon on purpose.
    fn wait_for_new_daemon(&self) -> Result<(), CommandError> {
        let deadline = Instant::now() + DAEMON_REPLACEMENT_TIMEOUT;
        while Instant::now() < deadline {
            if self.client.is_up() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(command_error(
            "unreachable",
            format!(
                "the daemon ended while the mission {id} was running",
                id = self.id
            ),
            format!(
                "all work is kept; continue the mission: regatta run --resume {id}",
                id = self.id
            ),
        ))
    }
}

/// Returns true if any task needs a person. With [`FollowUntil::OnlyPersonNeeded`], every open task
/// must also need a person or wait for another open task.
fn needs_person(mission: &MissionView, inbox: &[InboxView], until: FollowUntil) -> bool {
    let has_question = |task: &TaskView| {
        inbox
            .iter()
            .any(|item| item.is_blocking() && item.task == Some(task.task.id))
    };
    let needs_answer = |task: &TaskView| has_question(task) || task.at == DisplayState::Review;
    let is_over = |task: &TaskView| task.task.status.is_terminal();
    let is_open = |id: &TaskId| {
        mission
            .tasks
            .iter()
            .any(|task| task.task.id == *id && !is_over(task))
    };
    let is_blocked =
        |task: &TaskView| task.task.status.is_waiting() && task.task.blocked_by.iter().any(is_open);
    let is_idle = |task: &TaskView| needs_answer(task) || is_over(task) || is_blocked(task);
    mission.tasks.iter().any(needs_answer)
        && (until == FollowUntil::PersonNeeded || mission.tasks.iter().all(is_idle))
}

/// Returns the number of tasks per state in one line, the most urgent state first, such as
/// `2 working, 1 landed`.
fn state_counts(mission: &MissionView) -> String {
    let shown = mission.tasks.iter().map(|task| (task.at, &task.word));
    display::count_each(shown)
        .into_iter()
        .map(|((_, word), number)| format!("{number} {word}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Waits until a task has landed, has left the landing queue or is held. Returns `None` if
/// `timeout` has passed.
pub(crate) fn wait_until_landed(
    client: &Client,
    id: TaskId,
    after: u64,
    timeout: Option<Duration>,
) -> Result<Option<TaskView>, CommandError> {
    let start = Instant::now();
    let mut result = None;
    client.stream_events(after.saturating_sub(1), true, |_| {
        let task = client.show_task(id)?;
        let is_held = task.waits.first().is_some_and(|wait_reason| {
            wait_reason.kind == regatta_core::schedule::WaitKind::Policy
        });
        // Work that a person did in a taken-over task is checked before it enters the queue, so
        // wait for the end of the checks too.
        let is_checked = task.task.status.is_being_checked();
        if (task.at != DisplayState::Landing && !is_checked) || is_held {
            result = Some(task);
            return Ok(false);
        }
        Ok(timeout.is_none_or(|duration| start.elapsed() < duration))
    })?;
    Ok(result)
}

/// Returns the task that an event is about: its subject, or the field `task` in its data or in the
/// request that the event is about.
fn task_of_event(event: &EventView) -> Option<TaskId> {
    let task_in = |data: &serde_json::Value| data.get("task")?.as_str()?.parse().ok();
    let named = task_in(&event.data).or_else(|| task_in(event.data.get("approval")?));
    event.subject.parse().ok().or(named)
}

/// Returns the line to print for an important event, or `None` for any other event.
pub(crate) fn milestone_line(event: &EventView) -> Option<String> {
    let text = |name: &str| {
        event
            .data
            .get(name)
            .and_then(|data| data.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let what = match event.kind.as_str() {
        "task.started" => format!("started by {}", text("agent")),
        "task.completed" if !text("landed").is_empty() => {
            format!("landed {}", &text("landed")[..10.min(text("landed").len())])
        }
        "task.completed" => "done".into(),
        "task.failed" => format!("failed: {}", text("reason")),
        "task.cancelled" => format!("cancelled: {}", text("reason")),
        "task.returned" => format!("will be tried again: {}", text("reason")),
        "task.needs_human" => format!("needs you: {}", text("reason")),
        "task.escaped" => {
            let part = |name: &str| event.data.get("escape").and_then(|escape| escape.get(name));
            let finding = part("finding")
                .and_then(|value| value.as_str())
                .unwrap_or_default();
            let attempt = part("attempt")
                .and_then(|value| value.as_str())
                .unwrap_or_default();
            match part("found").and_then(|value| value.as_str()) {
                Some("said") => {
                    format!("needs files outside its manifest: {finding} (regatta scope)")
                }
                _ => format!("{finding}; left out of its work but kept: regatta diff {attempt}"),
            }
        }
        "approval.asked" => return request_line(event),
        "task.warned" => format!("warning: {}", text("text")),
        "mission.serialised" => format!(
            "tasks that share files now run one after the other: {}",
            text("reason")
        ),
        "landing.held" => format!("waits: {}", text("reason")),
        _ => return None,
    };
    let time = event.time.get(11..19).unwrap_or(&event.time);
    Some(format!("{time} {} {}", event.subject, first_line(&what)))
}

/// Returns the line to print for a question or a permission request, with the command that answers
/// it.
fn request_line(event: &EventView) -> Option<String> {
    let approval = event.data.get("approval")?;
    let (task, ask) = (approval.get("task")?.as_str()?, approval.get("ask")?);
    let text = |value: &serde_json::Value, name: &str| {
        value
            .get(name)
            .and_then(|value| value.as_str())
            .map(first_line)
    };
    let (time, id) = (
        event.time.get(11..19).unwrap_or(&event.time),
        &event.subject,
    );
    let choices = ask
        .get("choices")
        .and_then(|ask| ask.as_array())
        .map_or(&[][..], |ask| &ask[..]);
    let named = (1..)
        .zip(choices)
        .filter_map(|(nth, value)| Some(format!("  {nth} {}", first_line(value.as_str()?))));
    let named: String = named.collect();
    let (what, way) = match text(ask, "text") {
        Some(question) if named.is_empty() => (question, "regatta inbox -i".to_owned()),
        Some(question) => (question + &named, format!("regatta answer {id} 1")),
        None => {
            let tool = ask.get("tool")?;
            (
                text(tool, "command").or_else(|| text(tool, "title"))?,
                format!("regatta allow {id}"),
            )
        }
    };
    Some(format!("{time} {task} needs you: {id} {what} · {way}"))
}

struct LiveTable<'a> {
    is_live: bool,
    drawn_lines: usize,
    out: &'a Output,
    /// The start time of each task's current attempt (run of an agent), for attempts that started
    /// while this command followed the mission.
    attempt_starts_unix_ms: BTreeMap<TaskId, u64>,
}

impl LiveTable<'_> {
    fn new(out: &Output) -> LiveTable<'_> {
        LiveTable {
            is_live: output::is_stdout_watched() && !out.is_json && out.quiet_level == 0,
            drawn_lines: 0,
            out,
            attempt_starts_unix_ms: BTreeMap::new(),
        }
    }

    fn clear(&mut self) {
        if self.drawn_lines > 0 {
            let _gone = write!(std::io::stderr(), "\r\x1b[{}A\x1b[J", self.drawn_lines);
            self.drawn_lines = 0;
        }
    }

    fn print_milestone(&mut self, text: &str) {
        if self.is_live && text.contains(" started by ") {
            return; // the table shows it
        }
        self.clear();
        self.out.print_note(text);
    }

    fn draw(&mut self, mission: &MissionView) {
        if !self.is_live {
            return;
        }
        let mut tasks: Vec<&TaskView> = mission.tasks.iter().collect();
        tasks.sort_by_key(|task| task.rank);
        let room =
            output::window_height().map_or(MAX_ROWS, |n| n.saturating_sub(4).clamp(1, MAX_ROWS));
        let rows: Vec<Vec<String>> = tasks
            .iter()
            .take(room)
            .map(|task| self.task_row(task))
            .collect();
        let mut text = format_table(&rows);
        if tasks.len() > room {
            text += &format!(
                "and {} more: {}\n",
                tasks.len() - room,
                state_counts(mission)
            );
        }
        // Write everything at once, so that the terminal never shows an empty table.
        let up = if self.drawn_lines > 0 {
            format!("\r\x1b[{}A\x1b[J", self.drawn_lines)
        } else {
            String::new()
        };
        self.drawn_lines = text.lines().count();
        let _gone = write!(std::io::stderr(), "{up}{text}");
    }

    /// Returns the cells of a task's row: id, state, subject, agent, elapsed time, tokens, current
    /// activity.
    fn task_row(&self, item: &TaskView) -> Vec<String> {
        let task = &item.task;
        let agent = task
            .agent
            .as_ref()
            .or(task.assignee.as_ref())
            .map_or("-".into(), ToString::to_string);
        let running = task.status.is_running();
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let began = self
            .attempt_starts_unix_ms
            .get(&task.id)
            .copied()
            .unwrap_or(task.updated_unix_ms);
        let worked = task.spent.wall_ms
            + if running {
                now.saturating_sub(began)
            } else {
                0
            };
        let elapsed = if worked > 0 {
            short_duration(worked)
        } else {
            "-".into()
        };
        let tokens = match task.spent.usage.tokens() {
            0 => "-".into(),
            many => format_tokens(many),
        };
        let state = self.out.format_state(item.at, &item.word);
        vec![
            task.id.to_string(),
            state,
            first_line(&task.subject),
            agent,
            elapsed,
            tokens,
            activity_cell(item),
        ]
    }
}

/// Formats a number of tokens: `812`, `12.4k`, `3.1M`.
pub(crate) fn format_tokens(many: u64) -> String {
    match many {
        0..1_000 => many.to_string(),
        1_000..1_000_000 => format!("{}.{}k", many / 1_000, many % 1_000 / 100),
        _ => format!("{}.{}M", many / 1_000_000, many % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question belongs to the task of the request, so that `run` prints it with its command.
    #[test]
    fn a_question_is_an_event_of_its_task() {
        let ask = serde_json::json!({ "text": "Which?", "choices": ["a", "b"] });
        let event = EventView {
            revision: 1,
            time: "2026-11-19T12:00:00Z".into(),
            kind: "approval.asked".into(),
            subject: "Q1".into(),
            by: "claude-1".into(),
            data: serde_json::json!({ "approval": { "task": "T8", "ask": ask } }),
        };
        assert_eq!(task_of_event(&event), Some(TaskId(8)));
        assert_eq!(
            milestone_line(&event).as_deref(),
            Some("12:00:00 T8 needs you: Q1 Which?  1 a  2 b · regatta answer Q1 1")
        );
    }

    #[test]
    fn tokens_are_short() {
        assert_eq!(
            [0, 999, 1_000, 12_449, 3_160_000].map(super::format_tokens),
            ["0", "999", "1.0k", "12.4k", "3.1M"]
        );
    }
}
