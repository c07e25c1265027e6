//! Sends notices (messages about things that need a person) through the command or the desktop that
//! `[notify]` in `regatta.toml` configures.
//!
//! A notice is only a hint: the inbox lists everything that needs a person, whether or not a notice
//! was sent. During quiet hours nothing is sent; at the end of the quiet hours, one notice sums up
//! the open items. Equal notices within a minute are sent once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regatta_api::view::InboxView;
use regatta_core::agent_protocol::{FailureClass, RequestContent};
use regatta_core::board::Board;
use regatta_core::command::Actor;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{Now, ProjectName, TaskId};
use regatta_core::inbox::InboxItem;
use regatta_core::plural;
use regatta_core::project::NotifySettings;
use regatta_engine::Engine;
use regatta_engine::ports::agents::CheckCommand;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;

/// If equal notices follow each other within this time, only the first notice is sent.
const DUPLICATE_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum time that the command that sends a notice may run.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which to check whether quiet hours (hours without notices) have ended.
const QUIET_HOURS_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The content of a notice (a message to a person, such as a desktop notification). The command
/// that sends the notice gets this content as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Notification {
    project: ProjectName,
    /// The kind of notice: permission, question, escalated, review, needs_you, failed, landing,
    /// stuck, budget, credential, settings, back or quiet.
    kind: &'static str,
    title: String,
    body: String,
    /// The `regatta` command with which the person reacts to the notice.
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    /// The number of inbox items that the notice is about.
    count: usize,
}

/// Returns the notice for an event about one task or request, or `None` if the event needs no
/// person.
fn from_event(event: &Event, board: &Board) -> Option<Notification> {
    let of_task = |id: &TaskId| {
        board
            .tasks
            .get(id)
            .map(|task| (task.project.clone(), task.subject.clone()))
    };
    let about = |kind, id: &TaskId, reason: &str, action: String| {
        let (project, subject) = of_task(id)?;
        let body = format!("{subject}: {}", reason.lines().next().unwrap_or_default());
        Some(Notification {
            project,
            kind,
            title: format!("{id} - {}", kind_label(kind)),
            body,
            action,
            task: Some(*id),
            count: 1,
        })
    };
    match event {
        // Send a notice only if the request is still open, because a request that a policy rule has
        // already answered needs no person.
        Event::ApprovalAsked(approval_asked)
            if board
                .approvals
                .get(&approval_asked.approval().id)
                .is_some_and(|approval| approval.is_open()) =>
        {
            let approval = approval_asked.approval();
            let (kind, action) = match approval.request.content {
                RequestContent::Permission { .. } => {
                    ("permission", format!("regatta allow {}", approval.id))
                }
                RequestContent::Question { .. } => {
                    ("question", format!("regatta answer {} …", approval.id))
                }
            };
            Some(Notification {
                project: approval.project.clone(),
                kind,
                title: format!(
                    "{} {} - {}",
                    approval.task,
                    approval.agent,
                    kind_label(kind)
                ),
                body: approval.subject(),
                action,
                task: Some(approval.task),
                count: 1,
            })
        }
        Event::TaskNeedsHuman(task_needs_human) => about(
            "needs_you",
            task_needs_human.task(),
            task_needs_human.reason(),
            format!("regatta why {}", task_needs_human.task()),
        ),
        Event::TaskFailed(task_failed) => {
            let task = board.failed.get(task_failed.task())?;
            let body = format!(
                "{}: {}",
                task.subject,
                task_failed.reason().lines().next().unwrap_or_default()
            );
            Some(Notification {
                project: task.project.clone(),
                kind: "failed",
                title: format!("{} - failed", task.id),
                body,
                action: format!("regatta why {}", task.id),
                task: Some(task.id),
                count: 1,
            })
        }
        Event::AttemptQuiet(attempt_quiet) if attempt_quiet.since_wall().is_some() => {
            let attempt = board.attempts.get(attempt_quiet.attempt())?;
            let reason = format!(
                "{} ({}) has shown no activity for a long time",
                attempt.id, attempt.agent
            );
            about(
                "stuck",
                &attempt.task,
                &reason,
                format!("regatta logs {}", attempt.id),
            )
        }
        Event::LandingHeld(landing_held) => {
            // Send this notice only when the landing is held for the first time, because a held
            // landing is tried and held again and again.
            let landing = board.landings.get(landing_held.landing())?;
            let is_first_hold = landing
                .hold_count
                .as_ref()
                .is_some_and(|hold_count| hold_count.times == 1);
            if !is_first_hold {
                return None;
            }
            about(
                "landing",
                &landing.task,
                landing_held.reason(),
                format!("regatta land {}", landing.task),
            )
        }
        Event::TaskInReview(task_in_review) => about(
            "review",
            task_in_review.task(),
            task_in_review.reason(),
            format!("regatta diff {}", task_in_review.task()),
        ),
        Event::ApprovalEscalated(approval_escalated) => {
            // Send nothing for a snoozed (hidden) request, because the person who hid it knows
            // about it.
            let approval = board
                .approvals
                .get(approval_escalated.approval())
                .filter(|approval| approval.snoozed.is_none())?;
            let body = format!("waiting for a long time: {}", approval.subject());
            let (title, action) = (
                format!(
                    "{} {} - still waiting for an answer",
                    approval.task, approval.agent
                ),
                format!("regatta show {}", approval.task),
            );
            let (project, task) = (approval.project.clone(), Some(approval.task));
            Some(Notification {
                project,
                kind: "escalated",
                title,
                body,
                action,
                task,
                count: 1,
            })
        }
        _ => None,
    }
}

/// Returns the notices for an inbox item that was hidden for a while and is shown again. Returns no
/// notice if the item was answered or solved in the meantime.
fn for_ended_snooze(item: &InboxItem, board: &Board, now: Now) -> Vec<Notification> {
    let Some(inbox) = InboxView::list(board, None, now)
        .into_iter()
        .find(|inbox| inbox.id == item.to_string())
    else {
        return vec![]; // the item was settled in the meantime
    };
    let title = format!("{} - {} is back", inbox.id, inbox.kind);
    let action = inbox.ways.first().map_or_else(
        || "regatta inbox".to_owned(),
        |inbox_choice| inbox_choice.line.clone(),
    );
    match inbox.project {
        Some(project) => {
            let body = inbox.subject.lines().next().unwrap_or_default().to_owned();
            vec![Notification {
                project,
                kind: "back",
                title,
                body,
                action,
                task: inbox.task,
                count: 1,
            }]
        }
        None => for_every_project(board, "back", title, &inbox.subject, action),
    }
}

/// Returns the notices for an event. An event that concerns all projects, such as an agent that is
/// parked (gets no work), gives one notice per project.
fn for_recorded(recorded: &Recorded, board: &Board, now: Now) -> Vec<Notification> {
    let event = &recorded.event;
    let (kind, title, body, action) = match event {
        Event::InboxSnoozed(inbox_snoozed)
            if inbox_snoozed.snooze().is_none() && recorded.by == Actor::Regatta =>
        {
            return for_ended_snooze(inbox_snoozed.item(), board, now);
        }
        Event::BudgetWarned(budget_warned) => (
            "budget",
            format!("{} - budget", budget_warned.scope()),
            budget_warned.text().clone(),
            "regatta budget list".to_owned(),
        ),
        Event::ProviderParked(provider_parked)
            if provider_parked.parked().deadline_fleet_ms.is_none() =>
        {
            let provider_outage = provider_parked.parked();
            if let Some(bridge) = provider_outage.name.strip_prefix("bridge:") {
                let title = format!("{bridge} - sign-in refused");
                return for_every_project(
                    board,
                    "credential",
                    title,
                    &provider_outage.reason,
                    "regatta bridge test".into(),
                );
            }
            let agent = provider_outage
                .name
                .strip_prefix("agent:")
                .unwrap_or(&provider_outage.name);
            let kind = if provider_outage.class == FailureClass::Auth {
                "credential"
            } else {
                "settings"
            };
            (
                kind,
                format!("{agent} - cannot work"),
                provider_outage.reason.clone(),
                format!("regatta resume {agent}"),
            )
        }
        _ => return from_event(event, board).into_iter().collect(),
    };
    for_every_project(board, kind, title, &body, action)
}

/// Returns one notice (a message to a person outside of Regatta) per project, all with the same
/// content.
fn for_every_project(
    board: &Board,
    kind: &'static str,
    title: String,
    body: &str,
    action: String,
) -> Vec<Notification> {
    let body = body.lines().next().unwrap_or_default().to_owned();
    let notice = |project: &ProjectName| Notification {
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

fn kind_label(kind: &str) -> &str {
    if kind == "needs_you" {
        "needs you"
    } else {
        kind
    }
}

/// The hours of the day in which no notices (messages to people) are sent, as minutes since
/// midnight. The end may be smaller than the start, if the hours span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuietHours {
    start_minute: u32,
    end_minute: u32,
}

impl QuietHours {
    /// Parses a range such as `22:00-07:00`.
    pub(crate) fn parse(text: &str) -> Option<QuietHours> {
        let minute = |text: &str| {
            let (hours, minutes) = text.trim().split_once(':')?;
            let two = |s: &str| s.parse::<u32>().ok().filter(|_| (1..=2).contains(&s.len()));
            let (hours, minutes) = (two(hours)?, two(minutes)?);
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minute(from)?, minute(to)?);
        (from != to).then_some(QuietHours {
            start_minute: from,
            end_minute: to,
        })
    }

    fn contains(self, minute: u32) -> bool {
        if self.start_minute < self.end_minute {
            (self.start_minute..self.end_minute).contains(&minute)
        } else {
            minute >= self.start_minute || minute < self.end_minute
        }
    }
}

/// Returns the current minute of the day in the machine's time zone.
fn current_minute() -> u32 {
    let now = jiff::Zoned::now();
    u32::try_from(i32::from(now.hour()) * 60 + i32::from(now.minute())).unwrap_or(0)
}

/// Decides which notices (messages to people outside of Regatta) are sent now. Remembers the
/// notices of the last minute, and the projects whose notices were held back in quiet hours.
#[derive(Default)]
struct NotificationFilter {
    /// The time at which each notice was last sent, by project and text.
    last_sent: BTreeMap<(ProjectName, String), std::time::Instant>,
    /// The projects with notices that were held back in quiet hours.
    held_projects: BTreeSet<ProjectName>,
}

impl NotificationFilter {
    /// Returns the notice if it should be sent now. A notice is not sent in quiet hours, or if an
    /// equal notice was sent in the last minute.
    fn admit(
        &mut self,
        notice: Notification,
        quiet: bool,
        now: std::time::Instant,
    ) -> Option<Notification> {
        if quiet {
            self.held_projects.insert(notice.project);
            return None;
        }
        self.last_sent
            .retain(|_, instant| now.duration_since(*instant) < DUPLICATE_INTERVAL);
        match self.last_sent.entry((
            notice.project.clone(),
            format!("{} {}", notice.kind, notice.body),
        )) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(now);
                Some(notice)
            }
        }
    }

    /// Returns one notice about all open inbox items of a project, after quiet hours have ended.
    /// Returns `None` if no notice was held back, or if no inbox item is still open.
    fn summary_after_quiet_hours(
        &mut self,
        project: &ProjectName,
        board: &Board,
        now: Now,
    ) -> Option<Notification> {
        if !self.held_projects.remove(project) {
            return None;
        }
        let items = InboxView::list(board, Some(project), now)
            .into_iter()
            .filter(InboxView::is_shown);
        let items: Vec<String> = items
            .map(|inbox| format!("{} {}", inbox.id, inbox.subject))
            .collect();
        let first = items.first()?.clone();
        let more = if items.len() > 1 {
            format!(" and {} more", items.len() - 1)
        } else {
            String::new()
        };
        Some(Notification {
            project: project.clone(),
            kind: "quiet",
            title: format!("{project} - {} open after the quiet hours", items.len()),
            body: format!("{first}{more}"),
            action: "regatta inbox".into(),
            task: None,
            count: items.len(),
        })
    }
}

/// Sends notices for all projects until the daemon ends.
pub(crate) async fn send_notifications(engine: Engine) {
    let (mut events, mut filter) = (engine.subscribe_events(), NotificationFilter::default());
    // A previous daemon may have held notices back, so assume held-back notices for every project
    // that is in quiet hours now.
    let board = engine.board();
    for project in board.projects.keys() {
        let quiet = notify_settings(&board, project)
            .and_then(|notify_settings| notify_settings.quiet)
            .as_deref()
            .and_then(QuietHours::parse);
        if quiet.is_some_and(|quiet_hours| quiet_hours.contains(current_minute())) {
            filter.held_projects.insert(project.clone());
        }
    }
    let mut interval = tokio::time::interval(QUIET_HOURS_CHECK_INTERVAL);
    loop {
        tokio::select! {
            batch = events.recv() => match batch {
                Ok(batch) => {
                    let board = engine.board();
                    for notice in batch.iter().flat_map(|event| for_recorded(event, &board, engine.now())) {
                        let Some(notify) = notify_settings(&board, &notice.project) else { continue };
                        let quiet = notify.quiet.as_deref().and_then(QuietHours::parse);
                        let quiet = quiet.is_some_and(|quiet_hours| quiet_hours.contains(current_minute()));
                        if let Some(notice) = filter.admit(notice, quiet, std::time::Instant::now()) {
                            run_commands(&engine, &notify, notice);
                        }
                    }
                }
                // The notices of the skipped events are lost, but the inbox lists everything that
                // needs a person.
                Err(RecvError::Lagged(skipped)) => tracing::warn!(
                    "sent no notices for {}, because the events came too fast; to see everything \
                     that needs a person, run regatta inbox",
                    plural::count(skipped, "event")
                ),
                Err(RecvError::Closed) => return,
            },
            _ = interval.tick() => {
                let board = engine.board();
                let held: Vec<ProjectName> = filter.held_projects.iter().cloned().collect();
                for project in held {
                    let Some(notify) = notify_settings(&board, &project) else { continue };
                    let quiet = notify.quiet.as_deref().and_then(QuietHours::parse);
                    if quiet.is_some_and(|quiet_hours| quiet_hours.contains(current_minute())) {
                        continue;
                    }
                    if let Some(notice) = filter.summary_after_quiet_hours(&project, &board, engine.now()) {
                        run_commands(&engine, &notify, notice);
                    }
                }
            }
        }
    }
}

fn notify_settings(board: &Board, project: &ProjectName) -> Option<NotifySettings> {
    let notify = &board.projects.get(project)?.settings.notify;
    (notify.command.is_some() || notify.desktop).then(|| notify.clone())
}

/// Starts the commands that send a notice, in the background.
fn run_commands(engine: &Engine, notify: &NotifySettings, mut notice: Notification) {
    (notice.title, notice.body) = (engine.redact(&notice.title), engine.redact(&notice.body));
    let agents = engine.agents().clone();
    let lines: Vec<String> = notify
        .command
        .iter()
        .cloned()
        .chain(notify.desktop.then(|| desktop_command(&notice)))
        .collect();
    let Ok(json) = serde_json::to_string(&notice) else {
        return;
    };
    tokio::task::spawn_blocking(move || {
        for command in lines {
            let mut env = vec![
                ("REGATTA_NOTICE".to_owned(), json.clone()),
                ("REGATTA_NOTICE_TITLE".to_owned(), notice.title.clone()),
                ("REGATTA_NOTICE_BODY".to_owned(), notice.body.clone()),
            ];
            // Pass the variables by which the command reaches the desktop of the user who started
            // the daemon.
            let variables = [
                "DBUS_SESSION_BUS_ADDRESS",
                "DISPLAY",
                "WAYLAND_DISPLAY",
                "XDG_RUNTIME_DIR",
            ];
            env.extend(
                variables
                    .iter()
                    .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))),
            );
            let dir = std::env::temp_dir();
            let check = CheckCommand {
                command,
                dir,
                env,
                timeout: SEND_TIMEOUT,
                once_name: None,
                sandbox: None,
            };
            match agents.run_check(&check) {
                Ok(check_result) if check_result.passed() => {}
                Ok(check_result) => tracing::warn!(
                    "could not send the notice \"{title}\" with the command `{command}`; a person \
                     sees \
                     the notice only in the inbox: {error}",
                    title = notice.title,
                    command = check.command,
                    error = check_result.output.trim_end()
                ),
                Err(error) => tracing::warn!(
                    "could not send the notice \"{title}\" with the command `{command}`; a person \
                     sees \
                     the notice only in the inbox: {error}",
                    title = notice.title,
                    command = check.command,
                    error = error.message
                ),
            }
        }
    });
}

/// Returns the command that shows a notice on the desktop. The texts are passed as environment
/// variables, so that text from an agent never becomes part of a command (invariant S7).
fn desktop_command(_notice: &Notification) -> String {
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
        let night = QuietHours::parse("22:00-07:00").unwrap();
        let at = |hour: u32, minute: u32| hour * 60 + minute;
        for (minute, quiet) in [
            (at(21, 59), false),
            (at(22, 0), true),
            (at(0, 0), true),
            (at(6, 59), true),
            (at(7, 0), false),
        ] {
            assert_eq!(night.contains(minute), quiet, "{minute}");
        }
        let noon = QuietHours::parse("12:00-13:30").unwrap();
        assert!(
            noon.contains(at(12, 0))
                && noon.contains(at(13, 29))
                && !noon.contains(at(13, 30))
                && !noon.contains(at(11, 59))
        );
        for bad in [
            "",
            "22:00",
            "22-07",
            "24:00-07:00",
            "22:60-07:00",
            "07:00-07:00",
            "a:b-c:d",
            "22:00-07:00-08:00",
        ] {
            assert_eq!(QuietHours::parse(bad), None, "{bad}");
        }
    }

    fn notification(body: &str) -> Notification {
        Notification {
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
        let (mut filter, now) = (NotificationFilter::default(), std::time::Instant::now());
        assert!(
            filter
                .admit(notification("npm install"), false, now)
                .is_some()
        );
        assert!(
            filter
                .admit(
                    notification("npm install"),
                    false,
                    now + Duration::from_secs(59)
                )
                .is_none()
        );
        assert!(
            filter
                .admit(notification("cargo test"), false, now)
                .is_some()
        );
        assert!(
            filter
                .admit(
                    notification("npm install"),
                    false,
                    now + Duration::from_secs(61)
                )
                .is_some()
        );
        assert!(filter.admit(notification("make all"), true, now).is_none());
        let shop = ProjectName::new("shop").unwrap();
        assert!(filter.held_projects.contains(&shop));
        // Everything was settled in the meantime, so nothing is sent.
        assert_eq!(
            filter.summary_after_quiet_hours(&shop, &Board::default(), Now::default()),
            None
        );
        assert!(filter.held_projects.is_empty());
    }

    /// After quiet hours one notice sums up the project's open items, without snoozed ones and
    /// those of other projects.
    #[test]
    fn one_notice_after_quiet_hours_sums_up_open_items() {
        let task = |id: u64, project: &str, snoozed: bool| {
            let mut value = serde_json::json!({
                "id": format!("T{id}"), "project": project, "subject": format!("Task {id}"), "description": "",
                "issue_type": "chore", "files": [], "blocked_by": [], "priority": 2, "expects": "report", "wave": 0,
                "validation": { "files_exist": [], "content_check": [], "lint": [], "tests": [] }, "failures": 0,
                "status": "needs_human", "progress": "", "created_wall": 1, "updated_wall": 1,
            });
            if snoozed {
                value["snoozed"] = serde_json::json!({ "until_at": 99, "until_wall": 99 });
            }
            Row::Task(serde_json::from_value(value).unwrap())
        };
        let summary_of = |rows: Vec<Row>| {
            let (shop, mut filter) = (
                ProjectName::new("shop").unwrap(),
                NotificationFilter::default(),
            );
            filter.held_projects.insert(shop.clone());
            let summary = filter.summary_after_quiet_hours(
                &shop,
                &Board::from_rows(rows.clone()),
                Now::default(),
            );
            assert_eq!(
                filter.summary_after_quiet_hours(&shop, &Board::from_rows(rows), Now::default()),
                None,
                "the notice is sent once"
            );
            summary.map(|notification| (notification.title, notification.body, notification.count))
        };
        let waited = |count: usize| format!("shop - {count} open after the quiet hours");
        let one = vec![
            task(1, "shop", false),
            task(2, "shop", true),
            task(3, "other", false),
        ];
        assert_eq!(
            summary_of(one.clone()),
            Some((waited(1), "T1 Task 1".into(), 1))
        );
        let three = [one, vec![task(4, "shop", false), task(5, "shop", false)]].concat();
        assert_eq!(
            summary_of(three),
            Some((waited(3), "T1 Task 1 and 2 more".into(), 3))
        );
        assert_eq!(
            summary_of(vec![task(2, "shop", true), task(3, "other", false)]),
            None
        );
    }

    /// S7: text from an agent never becomes part of a command.
    #[test]
    fn s7_text_from_an_agent_is_not_part_of_the_command() {
        let line = desktop_command(&notification("$(touch /tmp/owned) \"; rm -rf /"));
        assert!(
            !line.contains("owned") && !line.contains("rm -rf"),
            "{line}"
        );
    }
}
