//! Watching a mission to its end: a table that is redrawn where somebody watches, one line per milestone where not.

use std::io::Write;
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{EventView, MissionView, TaskView};
use regatta_core::ids::{MissionId, TaskId};

use crate::client::{Client, Got, Seen};
use crate::out::{self, Failed, Out, line, table};

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing more happens by itself.
    Settled,
    TimedOut,
    /// The watcher left; the team goes on.
    Detached,
}

/// The most rows of the live table.
const MOST_ROWS: usize = 12;

/// Follows a mission from a revision on.
pub(crate) fn follow(
    out: &Out,
    client: &Client,
    id: MissionId,
    after: u64,
    timeout: Option<Duration>,
) -> Result<Ending, Failed> {
    let mut screen = Screen { live: out::watched() && !out.json && out.quiet == 0, drawn: 0, out };
    let began = Instant::now();
    let mut ending = Ending::Settled;
    let mut dirty = true;
    let mut last_look = Instant::now();
    let mut seen_up_to = after;
    // The revision at which nothing more was to come: what happened until then is told before we leave.
    let mut settled_at: Option<u64> = None;
    let look = |screen: &mut Screen| -> Result<Option<u64>, Failed> {
        let got: Got<MissionView> = client.call_aside(Call::MissionShow(input::Id { id: id.to_string() }))?;
        screen.draw(&got.data);
        Ok(got.data.settled.then_some(got.revision))
    };
    let followed = client.events(after, true, |seen| {
        match seen {
            Seen::Event(event) => {
                dirty = true;
                seen_up_to = event.revision;
                if let Some(text) = milestone(&event) {
                    screen.milestone(&text);
                }
            }
            Seen::Quiet => dirty |= last_look.elapsed() > Duration::from_secs(2),
        }
        if settled_at.is_none()
            && dirty
            && last_look.elapsed() > Duration::from_millis(if screen.live { 250 } else { 50 })
        {
            dirty = false;
            last_look = Instant::now();
            settled_at = look(&mut screen)?;
        }
        if timeout.is_some_and(|it| began.elapsed() > it) {
            ending = Ending::TimedOut;
            return Ok(false);
        }
        Ok(settled_at.is_none_or(|it| seen_up_to < it))
    });
    screen.clear();
    match followed {
        Ok(()) => Ok(ending),
        Err(Failed::Code(130)) => {
            out.note(&format!("detached; the agents keep working · regatta status · regatta stop {id}"));
            Ok(Ending::Detached)
        }
        Err(error) => Err(error),
    }
}

/// Waits until a task has landed or is out of the queue; `None` when the time ran out.
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
        if task.word != "landing" || held {
            found = Some(task);
            return Ok(false);
        }
        Ok(timeout.is_none_or(|it| began.elapsed() < it))
    })?;
    Ok(found)
}

/// What is worth a line of its own.
fn milestone(event: &EventView) -> Option<String> {
    let text = |name: &str| event.data.get(name).and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    let what = match event.kind.as_str() {
        "task.started" => format!("started by {}", text("agent")),
        "task.completed" if !text("landed").is_empty() => {
            format!("landed {}", &text("landed")[..10.min(text("landed").len())])
        }
        "task.completed" => "done".into(),
        "task.failed" => format!("failed: {}", text("reason")),
        "task.returned" => format!("comes back: {}", text("reason")),
        "task.needs_human" => format!("needs you: {}", text("reason")),
        "landing.held" => format!("waits: {}", text("reason")),
        _ => return None,
    };
    let time = event.time.get(11..19).unwrap_or(&event.time);
    Some(format!("{time} {} {}", event.subject, line(&what)))
}

struct Screen<'a> {
    live: bool,
    drawn: usize,
    out: &'a Out,
}

impl Screen<'_> {
    fn clear(&mut self) {
        if self.drawn > 0 {
            let _gone = write!(std::io::stderr(), "\x1b[{}A\x1b[J", self.drawn);
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
        self.clear();
        let urgency = |it: &TaskView| match it.word.as_str() {
            "needs you" => 0,
            "working" => 1,
            "landing" => 2,
            "waiting" => 3,
            _ => 4,
        };
        let mut tasks: Vec<&TaskView> = mission.tasks.iter().collect();
        tasks.sort_by_key(|it| urgency(it));
        let shown: Vec<TaskView> = tasks.iter().take(MOST_ROWS).map(|it| (*it).clone()).collect();
        let mut text = table(&crate::words::task_rows(self.out, &shown));
        if tasks.len() > MOST_ROWS {
            text += &format!("… and {} more\n", tasks.len() - MOST_ROWS);
        }
        self.drawn = text.lines().count();
        let _gone = write!(std::io::stderr(), "{text}");
    }
}
