//! Follows a mission until it ends, for `regatta run` and its relatives.
//!
//! On a terminal a table is redrawn in place. Elsewhere each milestone is one line. Ctrl-C detaches
//! and leaves the agents at work; a second Ctrl-C offers to stop them.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{EventView, InboxView, MissionView, TaskView};
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::task::Status;

use crate::client::{Client, Got, Seen};
use crate::interrupt::Interrupts;
use crate::out::{self, Failed, Out, failed, line, span, table};
use crate::words::App;

/// The reason why following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing more happens without a person.
    Settled,
    TimedOut,
    /// A person pressed Ctrl-C; the agents keep working.
    Detached,
    /// A person is needed, and the caller wanted to know.
    Needed,
}

/// Whether following ends early because a person is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Never; follow until the mission has settled.
    Settled,
    /// As soon as a person is needed.
    Needed,
    /// When nothing goes on without a person.
    OnlyNeeded,
}

/// The largest number of rows in the live table.
const MOST_ROWS: usize = 12;
/// How long after the first Ctrl-C a second one counts.
const SECOND: Duration = Duration::from_secs(2);
/// Without a terminal, the longest silence before a line with the counts is printed.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How long to wait for another daemon after the daemon went away.
const REPLACED: Duration = Duration::from_secs(10);

/// Follows a mission from a revision on. With `events`, each event of the mission is printed as a
/// line of JSON.
pub(crate) fn follow(
    app: &App,
    client: &Client,
    first: Got<MissionView>,
    after: u64,
    events: bool,
) -> Result<Ending, Failed> {
    Ok(watch(app, client, first, after, (events, Until::Settled))?.0)
}

/// Follows a mission until a person is needed. Also returns the last revision that was shown, from
/// which the next call continues.
pub(crate) fn until_needed(
    app: &App,
    client: &Client,
    first: Got<MissionView>,
    after: u64,
    ends: Until,
) -> Result<(Ending, u64), Failed> {
    watch(app, client, first, after, (false, ends))
}

fn watch(
    app: &App,
    client: &Client,
    first: Got<MissionView>,
    after: u64,
    (events, ends): (bool, Until),
) -> Result<(Ending, u64), Failed> {
    let id = first.data.mission.id;
    let mut watch = Watch {
        interrupts: Interrupts::listen()?,
        client,
        id,
        events,
        ends,
        needed: false,
        screen: Screen::new(&app.out),
        until: app.timeout().map(|it| Instant::now() + it),
        seen: after,
        last_look: Instant::now(),
        last_word: Instant::now(),
        dirty: true,
        settled_at: first.data.settled.then_some(first.revision),
        mission: first.data,
    };
    let ending = loop {
        match watch.listen() {
            Ok(Some(ending)) => break Ok(ending),
            // The stream ended before the mission did, so look for another daemon.
            Ok(None) => watch.find_again()?,
            Err(Failed::Problem(it)) if it.code == "unreachable" => watch.find_again()?,
            Err(Failed::Code(130)) => break Ok(Ending::Detached),
            Err(error) => break Err(error),
        }
    };
    watch.screen.clear();
    if let Ok(Ending::Detached) = ending {
        detached(app, client, id, &mut watch.interrupts)?;
    }
    Ok((ending?, watch.seen))
}

/// Prints how to watch and how to stop. A second Ctrl-C asks whether to stop.
fn detached(app: &App, client: &Client, id: MissionId, interrupts: &mut Interrupts) -> Result<(), Failed> {
    interrupts.forget();
    app.out.note(&format!(
        "detached; the agents keep working · watch them: regatta run --resume {id} · stop them: regatta stop {id}"
    ));
    let ask = app.may_ask_now();
    if !ask && !app.global.no_input {
        return Ok(()); // there is nobody to press it again
    }
    if ask {
        app.out.note("Ctrl-C again asks whether to stop them");
    }
    if !interrupts.within(SECOND) {
        return Ok(());
    }
    let stop = |drain: bool| -> Result<(), Failed> {
        let _stopped: Got<serde_json::Value> =
            client.call(&Call::Stop(input::Stop { id: Some(id.to_string()), drain, again: false }))?;
        let how = if drain { "draining: nothing new starts" } else { "stopped; all work is kept" };
        app.out.note(&format!("{how} · go on: regatta run --resume {id}"));
        Ok(())
    };
    if !ask {
        return stop(true);
    }
    let answer = interrupts.ask(&format!("stop {id} now? its work is kept [y/N]"));
    match answer.as_deref().map(|it| it.trim().to_ascii_lowercase()).as_deref() {
        Some("y" | "yes") => stop(false),
        _ => {
            app.out.note("the agents keep working");
            Ok(())
        }
    }
}

struct Watch<'a> {
    interrupts: Interrupts,
    client: &'a Client,
    id: MissionId,
    events: bool,
    ends: Until,
    /// Whether a person is needed and following ends because of that.
    needed: bool,
    screen: Screen<'a>,
    until: Option<Instant>,
    seen: u64,
    last_look: Instant,
    /// When the last line was printed without a terminal.
    last_word: Instant,
    dirty: bool,
    /// The revision at which the mission settled. Events up to it are shown before following ends.
    settled_at: Option<u64>,
    mission: MissionView,
}

impl Watch<'_> {
    /// Reads events until following ends. Returns `None` if the stream ended first.
    fn listen(&mut self) -> Result<Option<Ending>, Failed> {
        self.screen.draw(&self.mission);
        let (client, after) = (self.client, self.seen);
        let mut ending = None;
        if self.settled_at.is_some_and(|it| self.seen >= it) {
            return Ok(Some(Ending::Settled));
        }
        client.events(after, true, |seen| {
            match seen {
                Seen::Event(event) => self.event(&event)?,
                Seen::Quiet => self.quiet(),
            }
            let pace = Duration::from_millis(if self.screen.live { 250 } else { 50 });
            if self.settled_at.is_none() && self.dirty && self.last_look.elapsed() > pace {
                self.look()?;
            }
            if self.settled_at.is_some_and(|it| self.seen >= it) {
                ending = Some(Ending::Settled);
            } else if self.needed {
                ending = Some(Ending::Needed);
            } else if self.until.is_some_and(|it| Instant::now() > it) {
                ending = Some(Ending::TimedOut);
            }
            // A Ctrl-C before the stream was open has reached no other handler.
            if self.interrupts.pending() {
                return Err(Failed::Code(130));
            }
            Ok(ending.is_none())
        })?;
        Ok(ending)
    }

    fn look(&mut self) -> Result<(), Failed> {
        (self.dirty, self.last_look) = (false, Instant::now());
        let got: Got<MissionView> = self.client.call_aside(Call::MissionShow(input::Id { id: self.id.to_string() }))?;
        self.mission = got.data;
        self.settled_at = self.mission.settled.then_some(got.revision);
        if self.ends != Until::Settled {
            let asks: Vec<InboxView> = self.client.call_aside(Call::InboxList(input::Scope { project: None }))?.data;
            self.needed = needs_person(&self.mission, &asks, self.ends);
        }
        self.screen.draw(&self.mission);
        Ok(())
    }

    fn event(&mut self, event: &EventView) -> Result<(), Failed> {
        (self.dirty, self.seen) = (true, event.revision);
        let ours = event.subject == self.id.to_string() || {
            let task = about(event);
            self.mission.tasks.iter().any(|it| Some(it.task.id) == task)
        };
        if !ours {
            return Ok(());
        }
        if event.kind == "task.started"
            && let (Some(task), Ok(time)) = (about(event), event.time.parse::<jiff::Timestamp>())
        {
            self.screen.began.insert(task, u64::try_from(time.as_millisecond()).unwrap_or(0));
        }
        if self.events {
            let text =
                serde_json::to_string(event).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
            self.screen.out.print(&format!("{text}\n"))?;
        } else if let Some(text) = milestone(event) {
            self.screen.milestone(&text);
            self.last_word = Instant::now();
        }
        Ok(())
    }

    fn quiet(&mut self) {
        self.dirty |= self.last_look.elapsed() > Duration::from_secs(2);
        if self.screen.live {
            self.screen.draw(&self.mission); // the elapsed times have changed
        } else if self.last_word.elapsed() > HEARTBEAT {
            self.last_word = Instant::now();
            let now = jiff::Timestamp::now().to_string();
            let time = now.get(11..19).unwrap_or_default();
            self.screen.out.note(&format!("{time} {} {}", self.id, standing(&self.mission)));
        }
    }

    /// Waits for another daemon to replace the one that went away. Does not start one, because a
    /// person may have stopped the daemon on purpose.
    fn find_again(&self) -> Result<(), Failed> {
        let patience = Instant::now() + REPLACED;
        while Instant::now() < patience {
            if self.client.is_up() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(failed(
            "unreachable",
            format!("the daemon went down while {} was under way", self.id),
            format!("all work is kept; go on: regatta run --resume {}", self.id),
        ))
    }
}

/// Returns whether a task waits for a person or, with [`Until::OnlyNeeded`], whether every open
/// task does.
fn needs_person(mission: &MissionView, asks: &[InboxView], ends: Until) -> bool {
    let stands = |it: &TaskView| asks.iter().any(|ask| ask.stands() && ask.task == Some(it.task.id));
    let asked = |it: &TaskView| stands(it) || it.word == "review";
    let over = |it: &TaskView| it.task.status.is_terminal();
    let open = |id: &TaskId| mission.tasks.iter().any(|it| it.task.id == *id && !over(it));
    let held_up = |it: &TaskView| it.task.status.is_waiting() && it.task.blocked_by.iter().any(open);
    let rests = |it: &TaskView| asked(it) || over(it) || held_up(it);
    mission.tasks.iter().any(asked) && (ends == Until::Needed || mission.tasks.iter().all(rests))
}

/// Returns the number of tasks per state, in one line.
fn standing(mission: &MissionView) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for it in &mission.tasks {
        match counts.iter_mut().find(|count| count.0 == it.word) {
            Some(count) => count.1 += 1,
            None => counts.push((&it.word, 1)),
        }
    }
    counts.iter().map(|(word, many)| format!("{many} {word}")).collect::<Vec<_>>().join(", ")
}

/// Waits until a task has landed or has left the queue. Returns `None` if the time ran out.
pub(crate) fn until_landed(
    client: &Client,
    id: TaskId,
    after: u64,
    timeout: Option<Duration>,
) -> Result<Option<TaskView>, Failed> {
    let began = Instant::now();
    let mut found = None;
    client.events(after.saturating_sub(1), true, |_| {
        let task: TaskView = client.call_aside(Call::Show(input::Id { id: id.to_string() }))?.data;
        let held = task.waits.first().is_some_and(|it| it.kind == regatta_core::schedule::WaitKind::Policy);
        // A task that a person took over is checked before it is queued.
        let is_checked = task.task.status == regatta_core::task::Status::Validating;
        if (task.word != "landing" && !is_checked) || held {
            found = Some(task);
            return Ok(false);
        }
        Ok(timeout.is_none_or(|it| began.elapsed() < it))
    })?;
    Ok(found)
}

/// Returns the task of an event: its subject, or the task in its data.
fn about(event: &EventView) -> Option<TaskId> {
    let named = || event.data.get("task")?.as_str()?.parse().ok();
    event.subject.parse().ok().or_else(named)
}

/// Returns the line for an event that is worth one.
pub(crate) fn milestone(event: &EventView) -> Option<String> {
    let text = |name: &str| event.data.get(name).and_then(|it| it.as_str()).unwrap_or_default().to_owned();
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
            let finding = part("finding").and_then(|it| it.as_str()).unwrap_or_default();
            let attempt = part("attempt").and_then(|it| it.as_str()).unwrap_or_default();
            match part("found").and_then(|it| it.as_str()) {
                Some("said") => format!("needs files outside its manifest: {finding} (regatta scope)"),
                _ => format!("{finding}; left out of its work but kept: regatta diff {attempt}"),
            }
        }
        "approval.asked" => return asked(event),
        "task.warned" => format!("warning: {}", text("text")),
        "mission.serialised" => format!("no longer shares files: {}", text("reason")),
        "landing.held" => format!("waits: {}", text("reason")),
        _ => return None,
    };
    let time = event.time.get(11..19).unwrap_or(&event.time);
    Some(format!("{time} {} {}", event.subject, line(&what)))
}

/// Returns the line for a question or a permission request, with the command that answers it.
fn asked(event: &EventView) -> Option<String> {
    let approval = event.data.get("approval")?;
    let (task, ask) = (approval.get("task")?.as_str()?, approval.get("ask")?);
    let text = |it: &serde_json::Value, name: &str| it.get(name).and_then(|it| it.as_str()).map(line);
    let (time, id) = (event.time.get(11..19).unwrap_or(&event.time), &event.subject);
    let choices = ask.get("choices").and_then(|it| it.as_array()).map_or(&[][..], |it| &it[..]);
    let named = (1..).zip(choices).filter_map(|(nth, it)| Some(format!("  {nth} {}", line(it.as_str()?))));
    let named: String = named.collect();
    let (what, way) = match text(ask, "text") {
        Some(question) if named.is_empty() => (question, "regatta inbox -i".to_owned()),
        Some(question) => (question + &named, format!("regatta answer {id} 1")),
        None => {
            let tool = ask.get("tool")?;
            (text(tool, "command").or_else(|| text(tool, "title"))?, format!("regatta allow {id}"))
        }
    };
    Some(format!("{time} {task} needs you: {id} {what} · {way}"))
}

struct Screen<'a> {
    live: bool,
    drawn: usize,
    out: &'a Out,
    /// The start times of the attempts that started while we watched, by task.
    began: BTreeMap<TaskId, u64>,
}

impl Screen<'_> {
    fn new(out: &Out) -> Screen<'_> {
        Screen { live: out::watched() && !out.json && out.quiet == 0, drawn: 0, out, began: BTreeMap::new() }
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            let _gone = write!(std::io::stderr(), "\r\x1b[{}A\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }

    fn milestone(&mut self, text: &str) {
        if self.live && text.contains(" started by ") {
            return; // the table shows it
        }
        self.clear();
        self.out.note(text);
    }

    fn draw(&mut self, mission: &MissionView) {
        if !self.live {
            return;
        }
        let urgency = |it: &TaskView| match it.word.as_str() {
            _ if it.asks.is_some() => 0,
            "needs you" => 0,
            "working" => 1,
            "landing" | "review" => 2,
            "waiting" => 3,
            _ => 4,
        };
        let mut tasks: Vec<&TaskView> = mission.tasks.iter().collect();
        tasks.sort_by_key(|it| urgency(it));
        let room = out::window_height().map_or(MOST_ROWS, |it| it.saturating_sub(4).clamp(1, MOST_ROWS));
        let rows: Vec<Vec<String>> = tasks.iter().take(room).map(|it| self.row(it)).collect();
        let mut text = table(&rows);
        if tasks.len() > room {
            text += &format!("and {} more: {}\n", tasks.len() - room, standing(mission));
        }
        // A single write, so that the screen never shows an empty table.
        let up = if self.drawn > 0 { format!("\r\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        self.drawn = text.lines().count();
        let _gone = write!(std::io::stderr(), "{up}{text}");
    }

    /// Returns the cells of a task: id, state, subject, agent, elapsed time, tokens, current
    /// activity.
    fn row(&self, it: &TaskView) -> Vec<String> {
        let task = &it.task;
        let agent = task.agent.as_ref().or(task.assignee.as_ref()).map_or("-".into(), ToString::to_string);
        let running = matches!(task.status, Status::InProgress | Status::Validating);
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let began = self.began.get(&task.id).copied().unwrap_or(task.updated_wall);
        let worked = task.spent.wall_ms + if running { now.saturating_sub(began) } else { 0 };
        let elapsed = if worked > 0 { span(worked) } else { "-".into() };
        let tokens = match task.spent.usage.tokens() {
            0 => "-".into(),
            many => tokens(many),
        };
        let doing = match (it.word.as_str(), it.waits.first()) {
            ("working", _) if task.status == Status::Validating => "validating".into(),
            ("working", _) if it.asks.is_some() => line(it.live.as_deref().unwrap_or_default()),
            ("working", _) => line(&task.progress),
            (_, Some(reason)) => line(&reason.text),
            (_, None) => task
                .landed
                .as_ref()
                .map_or_else(|| line(task.reason.as_deref().unwrap_or_default()), |it| it.as_str()[..10].to_owned()),
        };
        let state = self.out.state(if it.asks.is_some() { "needs you" } else { &it.word });
        vec![task.id.to_string(), state, line(&task.subject), agent, elapsed, tokens, doing]
    }
}

/// Formats a number of tokens: `812`, `12.4k`, `3.1M`.
pub(crate) fn tokens(many: u64) -> String {
    match many {
        0..1_000 => many.to_string(),
        1_000..1_000_000 => format!("{}.{}k", many / 1_000, many % 1_000 / 100),
        _ => format!("{}.{}M", many / 1_000_000, many % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens_are_short() {
        assert_eq!([0, 999, 1_000, 12_449, 3_160_000].map(super::tokens), ["0", "999", "1.0k", "12.4k", "3.1M"]);
    }
}
