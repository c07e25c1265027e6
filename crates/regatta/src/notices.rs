//! Notices: what interrupts a person, when, and by which command. `[notify]` in `regatta.toml` says how.
//!
//! A notice is a hint: what needs somebody stays in the inbox whether or not anybody was told. In quiet hours nothing
//! is sent; when they end, one notice says what waits. What is the same within a minute is sent once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regatta_api::view::InboxView;
use regatta_core::board::Board;
use regatta_core::command::Actor;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{Now, ProjectName, TaskId};
use regatta_core::inbox::Item;
use regatta_core::project::Notify;
use regatta_core::session::{Class, Want};
use regatta_engine::Engine;
use regatta_engine::ports::agents::Check;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;

/// What is the same within this time is sent once.
const SAME: Duration = Duration::from_secs(60);
/// How long a command may take.
const LONGEST: Duration = Duration::from_secs(20);
/// How often quiet hours are looked at.
const ROUND: Duration = Duration::from_secs(15);

/// What a person is told: who, what, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Notice {
    project: ProjectName,
    /// permission, question, escalated, review, needs_you, failed, landing, stuck, budget, credential, back or quiet.
    kind: &'static str,
    title: String,
    body: String,
    /// The line that deals with it.
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    /// How many are the same.
    count: usize,
}

/// What an event is worth telling, if anything.
fn of(event: &Event, board: &Board) -> Option<Notice> {
    let of_task = |id: &TaskId| board.tasks.get(id).map(|it| (it.project.clone(), it.subject.clone()));
    let about = |kind, id: &TaskId, reason: &str, action: String| {
        let (project, subject) = of_task(id)?;
        let body = format!("{subject}: {}", reason.lines().next().unwrap_or_default());
        Some(Notice { project, kind, title: format!("{id} - {}", word(kind)), body, action, task: Some(*id), count: 1 })
    };
    match event {
        // What the policy decided at once is nobody's business.
        Event::ApprovalAsked(it) if board.approvals.get(&it.approval().id).is_some_and(|it| it.is_open()) => {
            let it = it.approval();
            let (kind, action) = match it.ask.want {
                Want::Permission { .. } => ("permission", format!("regatta allow {}", it.id)),
                Want::Question { .. } => ("question", format!("regatta answer {} …", it.id)),
            };
            Some(Notice {
                project: it.project.clone(),
                kind,
                title: format!("{} {} - {}", it.task, it.agent, word(kind)),
                body: it.subject(),
                action,
                task: Some(it.task),
                count: 1,
            })
        }
        Event::TaskNeedsHuman(it) => about("needs_you", it.task(), it.reason(), format!("regatta why {}", it.task())),
        Event::TaskFailed(it) => {
            let task = board.failed.get(it.task())?;
            let body = format!("{}: {}", task.subject, it.reason().lines().next().unwrap_or_default());
            Some(Notice {
                project: task.project.clone(),
                kind: "failed",
                title: format!("{} - failed", task.id),
                body,
                action: format!("regatta why {}", task.id),
                task: Some(task.id),
                count: 1,
            })
        }
        Event::AttemptQuiet(it) if it.since_wall().is_some() => {
            let attempt = board.attempts.get(it.attempt())?;
            let reason = format!("nothing was heard of {} ({}) for long", attempt.id, attempt.agent);
            about("stuck", &attempt.task, &reason, format!("regatta logs {}", attempt.id))
        }
        Event::LandingHeld(it) => {
            // The first time: it is tried again and again.
            let landing = board.landings.get(it.landing())?;
            let first = landing.hindered.as_ref().is_some_and(|it| it.times == 1);
            let about = || about("landing", &landing.task, it.reason(), format!("regatta land {}", landing.task));
            first.then(about).flatten()
        }
        Event::TaskInReview(it) => about("review", it.task(), it.reason(), format!("regatta diff {}", it.task())),
        Event::ApprovalEscalated(it) => {
            // Whoever put it off knows of it.
            let it = board.approvals.get(it.approval()).filter(|it| it.snoozed.is_none())?;
            let body = format!("waits long: {}", it.subject());
            let (title, action) =
                (format!("{} {} - still asks", it.task, it.agent), format!("regatta show {}", it.task));
            let (project, task) = (it.project.clone(), Some(it.task));
            Some(Notice { project, kind: "escalated", title, body, action, task, count: 1 })
        }
        _ => None,
    }
}

/// What was put off is there again by itself: whoever put it off is told.
fn back(item: &Item, board: &Board, now: Now) -> Vec<Notice> {
    let Some(it) = InboxView::all(board, None, now).into_iter().find(|it| it.id == item.to_string()) else {
        return vec![]; // that is over which it was there for
    };
    let title = format!("{} - {} is back", it.id, it.kind);
    let action = it.ways.first().map_or_else(|| "regatta inbox".to_owned(), |it| it.line.clone());
    match it.project {
        Some(project) => {
            let body = it.subject.lines().next().unwrap_or_default().to_owned();
            vec![Notice { project, kind: "back", title, body, action, task: it.task, count: 1 }]
        }
        None => everywhere(board, ("back", title, &it.subject, action)),
    }
}

/// What an event is worth telling: what is the whole fleet's, in every project that wants to be told.
fn all_of(recorded: &Recorded, board: &Board, now: Now) -> Vec<Notice> {
    let event = &recorded.event;
    let (kind, title, body, action) = match event {
        Event::ItemSnoozed(it) if it.snooze().is_none() && recorded.by == Actor::Regatta => {
            return back(it.item(), board, now);
        }
        Event::BudgetWarned(it) => {
            ("budget", format!("{} - budget", it.scope()), it.text().clone(), "regatta budget list".to_owned())
        }
        Event::ProviderParked(it) if it.parked().until_at.is_none() => {
            let it = it.parked();
            if let Some(bridge) = it.name.strip_prefix("bridge:") {
                let title = format!("{bridge} - not let in");
                return everywhere(board, ("credential", title, &it.reason, "regatta bridge test".into()));
            }
            let agent = it.name.strip_prefix("agent:").unwrap_or(&it.name);
            let kind = if it.class == Class::Auth { "credential" } else { "setup" };
            (kind, format!("{agent} - cannot work"), it.reason.clone(), format!("regatta resume {agent}"))
        }
        _ => return of(event, board).into_iter().collect(),
    };
    everywhere(board, (kind, title, &body, action))
}

/// The same notice in every project.
fn everywhere(board: &Board, (kind, title, body, action): (&'static str, String, &str, String)) -> Vec<Notice> {
    let body = body.lines().next().unwrap_or_default().to_owned();
    let notice = |project: &ProjectName| Notice {
        project: project.clone(),
        kind,
        title: title.clone(),
        body: body.clone(),
        action: action.clone(),
        task: None,
        count: 1,
    };
    board.projects.keys().map(notice).collect()
}

fn word(kind: &str) -> &str {
    if kind == "needs_you" { "needs you" } else { kind }
}

/// The hours in which nothing is sent, in minutes of the day; they may go over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet {
    from: u32,
    to: u32,
}

impl Quiet {
    /// Reads `22:00-07:00`.
    pub(crate) fn parse(text: &str) -> Option<Quiet> {
        let minute = |text: &str| {
            let (hours, minutes) = text.trim().split_once(':')?;
            let two = |it: &str| it.parse::<u32>().ok().filter(|_| (1..=2).contains(&it.len()));
            let (hours, minutes) = (two(hours)?, two(minutes)?);
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minute(from)?, minute(to)?);
        (from != to).then_some(Quiet { from, to })
    }

    fn holds(self, minute: u32) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

/// The minute of the day, as this machine's clock shows it.
fn minute_now() -> u32 {
    let now = jiff::Zoned::now();
    u32::try_from(i32::from(now.hour()) * 60 + i32::from(now.minute())).unwrap_or(0)
}

/// What was sent, and what is held.
#[derive(Default)]
struct Desk {
    /// When each text was last sent.
    sent: BTreeMap<(ProjectName, String), std::time::Instant>,
    /// Where quiet hours hold something.
    held: BTreeSet<ProjectName>,
}

impl Desk {
    /// What is sent of a notice now: all of it, or nothing.
    fn take(&mut self, notice: Notice, quiet: bool, now: std::time::Instant) -> Option<Notice> {
        if quiet {
            self.held.insert(notice.project);
            return None;
        }
        self.sent.retain(|_, it| now.duration_since(*it) < SAME);
        match self.sent.entry((notice.project.clone(), format!("{} {}", notice.kind, notice.body))) {
            Entry::Occupied(_) => None,
            Entry::Vacant(it) => {
                it.insert(now);
                Some(notice)
            }
        }
    }

    /// Quiet hours are over: one notice of all that still waits. What was settled meanwhile is no news.
    fn morning(&mut self, project: &ProjectName, board: &Board, now: Now) -> Option<Notice> {
        if !self.held.remove(project) {
            return None;
        }
        let open = InboxView::all(board, Some(project), now).into_iter().filter(InboxView::is_awake);
        let open: Vec<String> = open.map(|it| format!("{} {}", it.id, it.subject)).collect();
        let first = open.first()?.clone();
        let more = if open.len() > 1 { format!(" and {} more", open.len() - 1) } else { String::new() };
        Some(Notice {
            project: project.clone(),
            kind: "quiet",
            title: format!("{project} - {} waited for the end of the quiet hours", open.len()),
            body: format!("{first}{more}"),
            action: "regatta inbox".into(),
            task: None,
            count: open.len(),
        })
    }
}

/// Tells people, as long as the daemon is up.
pub(crate) async fn tell(engine: Engine) {
    let (mut events, mut desk) = (engine.events(), Desk::default());
    // What a daemon before this one held is told when the quiet hours end, too.
    let board = engine.board();
    for project in board.projects.keys() {
        let quiet = settings(&board, project).and_then(|it| it.quiet).as_deref().and_then(Quiet::parse);
        if quiet.is_some_and(|it| it.holds(minute_now())) {
            desk.held.insert(project.clone());
        }
    }
    let mut round = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            batch = events.recv() => match batch {
                Ok(batch) => {
                    let board = engine.board();
                    for notice in batch.iter().flat_map(|it| all_of(it, &board, engine.now())) {
                        let Some(notify) = settings(&board, &notice.project) else { continue };
                        let quiet = notify.quiet.as_deref().and_then(Quiet::parse);
                        let quiet = quiet.is_some_and(|it| it.holds(minute_now()));
                        if let Some(notice) = desk.take(notice, quiet, std::time::Instant::now()) {
                            send(&engine, &notify, notice);
                        }
                    }
                }
                // Too many at once: what needs somebody is in the inbox all the same.
                Err(RecvError::Lagged(many)) => tracing::warn!("{many} events came too fast to tell anybody of them"),
                Err(RecvError::Closed) => return,
            },
            _ = round.tick() => {
                let board = engine.board();
                let held: Vec<ProjectName> = desk.held.iter().cloned().collect();
                for project in held {
                    let Some(notify) = settings(&board, &project) else { continue };
                    let quiet = notify.quiet.as_deref().and_then(Quiet::parse);
                    if quiet.is_some_and(|it| it.holds(minute_now())) {
                        continue;
                    }
                    if let Some(notice) = desk.morning(&project, &board, engine.now()) {
                        send(&engine, &notify, notice);
                    }
                }
            }
        }
    }
}

fn settings(board: &Board, project: &ProjectName) -> Option<Notify> {
    let notify = &board.projects.get(project)?.settings.notify;
    (notify.command.is_some() || notify.desktop).then(|| notify.clone())
}

/// Starts the commands; nobody waits for them.
fn send(engine: &Engine, notify: &Notify, mut notice: Notice) {
    (notice.title, notice.body) = (engine.redact(&notice.title), engine.redact(&notice.body));
    let agents = engine.agents().clone();
    let lines: Vec<String> = notify.command.iter().cloned().chain(notify.desktop.then(|| desktop(&notice))).collect();
    let Ok(json) = serde_json::to_string(&notice) else { return };
    tokio::task::spawn_blocking(move || {
        for command in lines {
            let mut env = vec![
                ("REGATTA_NOTICE".to_owned(), json.clone()),
                ("REGATTA_NOTICE_TITLE".to_owned(), notice.title.clone()),
                ("REGATTA_NOTICE_BODY".to_owned(), notice.body.clone()),
            ];
            // The way to the desktop of whoever started the daemon.
            let way = ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];
            env.extend(way.iter().filter_map(|it| Some(((*it).to_owned(), std::env::var(it).ok()?))));
            let dir = std::env::temp_dir();
            let check = Check { command, dir, env, timeout: LONGEST, once: None, shut_in: None };
            match agents.check(&check) {
                Ok(it) if it.passed() => {}
                Ok(it) => tracing::warn!("the notice \"{}\" could not be sent: {}", notice.title, it.output.trim_end()),
                Err(it) => tracing::warn!("the notice \"{}\" could not be sent: {}", notice.title, it.what),
            }
        }
    });
}

/// The machine's own notice. The words are variables, so that no text of an agent's is ever a part of a command.
fn desktop(_notice: &Notice) -> String {
    if cfg!(target_os = "macos") {
        r#"osascript -e 'display notification (system attribute "REGATTA_NOTICE_BODY") with title (system attribute "REGATTA_NOTICE_TITLE")'"#.into()
    } else {
        r#"notify-send --app-name=regatta -- "$REGATTA_NOTICE_TITLE" "$REGATTA_NOTICE_BODY""#.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::board::Row;

    #[test]
    fn quiet_hours_may_go_over_midnight() {
        let night = Quiet::parse("22:00-07:00").unwrap();
        let at = |hour: u32, minute: u32| hour * 60 + minute;
        for (minute, quiet) in
            [(at(21, 59), false), (at(22, 0), true), (at(0, 0), true), (at(6, 59), true), (at(7, 0), false)]
        {
            assert_eq!(night.holds(minute), quiet, "{minute}");
        }
        let noon = Quiet::parse("12:00-13:30").unwrap();
        assert!(noon.holds(at(12, 0)) && noon.holds(at(13, 29)) && !noon.holds(at(13, 30)) && !noon.holds(at(11, 59)));
        for bad in ["", "22:00", "22-07", "24:00-07:00", "22:60-07:00", "07:00-07:00", "a:b-c:d", "22:00-07:00-08:00"] {
            assert_eq!(Quiet::parse(bad), None, "{bad}");
        }
    }

    fn notice(body: &str) -> Notice {
        Notice {
            project: ProjectName::new("shop").unwrap(),
            kind: "permission",
            title: "T1 bob - permission".into(),
            body: body.into(),
            action: "regatta allow Q1".into(),
            task: None,
            count: 1,
        }
    }

    /// The same within a minute is sent once; in quiet hours nothing is, and it is not forgotten.
    #[test]
    fn the_same_is_sent_once_and_quiet_hours_hold() {
        let (mut desk, now) = (Desk::default(), std::time::Instant::now());
        assert!(desk.take(notice("npm install"), false, now).is_some());
        assert!(desk.take(notice("npm install"), false, now + Duration::from_secs(59)).is_none());
        assert!(desk.take(notice("cargo test"), false, now).is_some());
        assert!(desk.take(notice("npm install"), false, now + Duration::from_secs(61)).is_some());
        assert!(desk.take(notice("make all"), true, now).is_none());
        let shop = ProjectName::new("shop").unwrap();
        assert!(desk.held.contains(&shop));
        // In the morning what was settled meanwhile is no news.
        assert_eq!(desk.morning(&shop, &Board::default(), Now::default()), None);
        assert!(desk.held.is_empty());
    }

    /// In the morning one notice says all that waits: not what is put off, and not what is another project's.
    #[test]
    fn the_morning_tells_what_waits() {
        let task = |id: u64, project: &str, snoozed: bool| {
            let mut it = serde_json::json!({
                "id": format!("T{id}"), "project": project, "subject": format!("Task {id}"), "description": "",
                "issue_type": "chore", "files": [], "blocked_by": [], "priority": 2, "expects": "report", "wave": 0,
                "validation": { "files_exist": [], "content_check": [], "lint": [], "tests": [] }, "failures": 0,
                "status": "needs_human", "progress": "", "created_wall": 1, "updated_wall": 1,
            });
            if snoozed {
                it["snoozed"] = serde_json::json!({ "until_at": 99, "until_wall": 99 });
            }
            Row::Task(serde_json::from_value(it).unwrap())
        };
        let told = |rows: Vec<Row>| {
            let (shop, mut desk) = (ProjectName::new("shop").unwrap(), Desk::default());
            desk.held.insert(shop.clone());
            let told = desk.morning(&shop, &Board::from_rows(rows.clone()), Now::default());
            assert_eq!(desk.morning(&shop, &Board::from_rows(rows), Now::default()), None, "it is told once");
            told.map(|it| (it.title, it.body, it.count))
        };
        let waited = |count: usize| format!("shop - {count} waited for the end of the quiet hours");
        let one = vec![task(1, "shop", false), task(2, "shop", true), task(3, "other", false)];
        assert_eq!(told(one.clone()), Some((waited(1), "T1 Task 1".into(), 1)));
        let three = [one, vec![task(4, "shop", false), task(5, "shop", false)]].concat();
        assert_eq!(told(three), Some((waited(3), "T1 Task 1 and 2 more".into(), 3)));
        assert_eq!(told(vec![task(2, "shop", true), task(3, "other", false)]), None);
    }

    /// S7: no word of an agent's becomes a part of a command.
    #[test]
    fn s7_an_agents_words_are_no_command() {
        let line = desktop(&notice("$(touch /tmp/owned) \"; rm -rf /"));
        assert!(!line.contains("owned") && !line.contains("rm -rf"), "{line}");
    }
}
