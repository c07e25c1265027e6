//! Sends notices to people, through the command or the desktop that `[notify]` in `regatta.toml`
//! sets.
//!
//! A notice is only a hint: the inbox lists everything that needs a person, whether or not a notice
//! was sent. During quiet hours nothing is sent; when they end, one notice sums up the open items.
//! Equal notices within a minute are sent once.

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

/// Equal notices within this time are sent once.
const SAME: Duration = Duration::from_secs(60);
/// How long the command that sends a notice may take.
const LONGEST: Duration = Duration::from_secs(20);
/// How often to check whether quiet hours have ended.
const ROUND: Duration = Duration::from_secs(15);

/// The content of a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Notice {
    project: ProjectName,
    /// permission, question, escalated, review, needs_you, failed, landing, stuck, budget, credential, back or quiet.
    kind: &'static str,
    title: String,
    body: String,
    /// The command that deals with the item.
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    /// The number of items that the notice stands for.
    count: usize,
}

/// Returns the notice for an event of one project, if the event deserves one.
fn of(event: &Event, board: &Board) -> Option<Notice> {
    let of_task = |id: &TaskId| board.tasks.get(id).map(|it| (it.project.clone(), it.subject.clone()));
    let about = |kind, id: &TaskId, reason: &str, action: String| {
        let (project, subject) = of_task(id)?;
        let body = format!("{subject}: {}", reason.lines().next().unwrap_or_default());
        Some(Notice { project, kind, title: format!("{id} - {}", word(kind)), body, action, task: Some(*id), count: 1 })
    };
    match event {
        // A request that a policy rule answered at once needs no person.
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
            let reason = format!("{} ({}) has shown no activity for a long time", attempt.id, attempt.agent);
            about("stuck", &attempt.task, &reason, format!("regatta logs {}", attempt.id))
        }
        Event::LandingHeld(it) => {
            // Only the first time, because a held landing is tried again and again.
            let landing = board.landings.get(it.landing())?;
            let first = landing.hindered.as_ref().is_some_and(|it| it.times == 1);
            let about = || about("landing", &landing.task, it.reason(), format!("regatta land {}", landing.task));
            first.then(about).flatten()
        }
        Event::TaskInReview(it) => about("review", it.task(), it.reason(), format!("regatta diff {}", it.task())),
        Event::ApprovalEscalated(it) => {
            // The person who snoozed the request knows about it.
            let it = board.approvals.get(it.approval()).filter(|it| it.snoozed.is_none())?;
            let body = format!("waiting for a long time: {}", it.subject());
            let (title, action) =
                (format!("{} {} - still waiting for an answer", it.task, it.agent), format!("regatta show {}", it.task));
            let (project, task) = (it.project.clone(), Some(it.task));
            Some(Notice { project, kind: "escalated", title, body, action, task, count: 1 })
        }
        _ => None,
    }
}

/// Returns the notices for an item whose snooze has ended, unless the item is settled.
fn back(item: &Item, board: &Board, now: Now) -> Vec<Notice> {
    let Some(it) = InboxView::all(board, None, now).into_iter().find(|it| it.id == item.to_string()) else {
        return vec![]; // the item was settled in the meantime
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

/// Returns the notices for an event. An event about the whole fleet gives one notice per project.
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
                let title = format!("{bridge} - sign-in refused");
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

/// Returns the same notice for every project.
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

/// Quiet hours, in minutes of the day. They may span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet {
    from: u32,
    to: u32,
}

impl Quiet {
    /// Parses a range such as `22:00-07:00`.
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

/// Returns the current minute of the day in the machine's time zone.
fn minute_now() -> u32 {
    let now = jiff::Zoned::now();
    u32::try_from(i32::from(now.hour()) * 60 + i32::from(now.minute())).unwrap_or(0)
}

/// Remembers sent notices, and the projects with notices held back by quiet hours.
#[derive(Default)]
struct Desk {
    /// When each notice was last sent, by project and text.
    sent: BTreeMap<(ProjectName, String), std::time::Instant>,
    /// The projects for which quiet hours held something back.
    held: BTreeSet<ProjectName>,
}

impl Desk {
    /// Returns the notice if it is to be sent now.
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

    /// Returns one notice about all open items after quiet hours. Items that were settled in the
    /// meantime are left out.
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
            title: format!("{project} - {} open after the quiet hours", open.len()),
            body: format!("{first}{more}"),
            action: "regatta inbox".into(),
            task: None,
            count: open.len(),
        })
    }
}

/// Sends notices until the daemon ends.
pub(crate) async fn tell(engine: Engine) {
    let (mut events, mut desk) = (engine.events(), Desk::default());
    // A previous daemon may have held notices back, so assume that every project in quiet hours has
    // some.
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
                // Events were skipped, but the inbox has everything that needs a person.
                Err(RecvError::Lagged(many)) => tracing::warn!("skipped {many} events without sending notices, because they came too fast"),
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

/// Starts the commands of a notice in the background.
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
            // The connection to the desktop of the user who started the daemon.
            let way = ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];
            env.extend(way.iter().filter_map(|it| Some(((*it).to_owned(), std::env::var(it).ok()?))));
            let dir = std::env::temp_dir();
            let check = Check { command, dir, env, timeout: LONGEST, once: None, shut_in: None };
            match agents.check(&check) {
                Ok(it) if it.passed() => {}
                Ok(it) => tracing::warn!("could not send the notice \"{}\": {}", notice.title, it.output.trim_end()),
                Err(it) => tracing::warn!("could not send the notice \"{}\": {}", notice.title, it.what),
            }
        }
    });
}

/// Returns the command for a desktop notice. Texts are passed as variables, so that text from an
/// agent never becomes part of a command (S7).
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
    fn quiet_hours_may_span_midnight() {
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

    /// Equal notices within a minute are sent once. In quiet hours nothing is sent, and the project
    /// is remembered.
    #[test]
    fn equal_notices_are_sent_once_and_quiet_hours_hold_them_back() {
        let (mut desk, now) = (Desk::default(), std::time::Instant::now());
        assert!(desk.take(notice("npm install"), false, now).is_some());
        assert!(desk.take(notice("npm install"), false, now + Duration::from_secs(59)).is_none());
        assert!(desk.take(notice("cargo test"), false, now).is_some());
        assert!(desk.take(notice("npm install"), false, now + Duration::from_secs(61)).is_some());
        assert!(desk.take(notice("make all"), true, now).is_none());
        let shop = ProjectName::new("shop").unwrap();
        assert!(desk.held.contains(&shop));
        // Everything was settled in the meantime, so nothing is sent.
        assert_eq!(desk.morning(&shop, &Board::default(), Now::default()), None);
        assert!(desk.held.is_empty());
    }

    /// After quiet hours one notice sums up the project's open items, without snoozed ones and
    /// those of other projects.
    #[test]
    fn one_notice_after_quiet_hours_sums_up_open_items() {
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
            assert_eq!(desk.morning(&shop, &Board::from_rows(rows), Now::default()), None, "the notice is sent once");
            told.map(|it| (it.title, it.body, it.count))
        };
        let waited = |count: usize| format!("shop - {count} open after the quiet hours");
        let one = vec![task(1, "shop", false), task(2, "shop", true), task(3, "other", false)];
        assert_eq!(told(one.clone()), Some((waited(1), "T1 Task 1".into(), 1)));
        let three = [one, vec![task(4, "shop", false), task(5, "shop", false)]].concat();
        assert_eq!(told(three), Some((waited(3), "T1 Task 1 and 2 more".into(), 3)));
        assert_eq!(told(vec![task(2, "shop", true), task(3, "other", false)]), None);
    }

    /// S7: text from an agent never becomes part of a command.
    #[test]
    fn s7_text_from_an_agent_is_not_part_of_the_command() {
        let line = desktop(&notice("$(touch /tmp/owned) \"; rm -rf /"));
        assert!(!line.contains("owned") && !line.contains("rm -rf"), "{line}");
    }
}
