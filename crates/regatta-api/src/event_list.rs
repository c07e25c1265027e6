//! The page's list of events: sentences for people about what happened.

use regatta_core::display::DisplayState;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::TaskId;
use serde::{Deserialize, Serialize};

/// Kinds of events that only keep Regatta's own records. The list leaves them out unless a person
/// asks for them.
const HOUSEKEEPING_KINDS: [&str; 19] = [
    "approval.heard",
    "approval.kept",
    "attempt.clocked",
    "attempt.closing",
    "attempt.launched",
    "attempt.noted",
    "attempt.ported",
    "attempt.renewed",
    "attempt.reported",
    "attempt.said",
    "attempt.started",
    "budget.spent",
    "fleet.resumed",
    "landing.landed",
    "landing.queued",
    "message.handled",
    "message.queued",
    "message.read",
    "runner.renewed",
];
/// Maximum length of a text of an agent in a sentence, in characters.
const MAX_TEXT_CHARS: usize = 160;
/// Number of characters of an abbreviated commit id.
const SHORT_COMMIT_CHARS: usize = 10;

/// A window of the page's list of events, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventWindow {
    /// The number of the newest event.
    pub revision: u64,
    pub rows: Vec<EventRow>,
    /// The number before which the next window begins; empty if the log has no older events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<u64>,
}

/// A row of the page's list of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventRow {
    pub revision: u64,
    pub wall: u64,
    pub kind: String,
    /// The id or name of the object that the event is about.
    pub about: String,
    pub by: String,
    /// What happened, as a sentence.
    pub text: String,
    /// The state into which the event brings its task, for a sign and a colour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DisplayState>,
    /// The task that the event is about, with its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
}

/// The query of the page's list of events, as it stands in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventListQuery {
    /// Kinds of events, separated by commas, such as `task.completed,claim.*`.
    pub kind: String,
    /// The id or name of the object that the events are about. A task's id also selects the events
    /// about the task's attempts, questions and landings.
    pub about: String,
    /// Part of the actor that caused the event.
    pub by: String,
    /// Words that all occur in the row.
    pub text: String,
    /// Unix time in milliseconds before which the events happened.
    pub until: Option<u64>,
    /// The number of an event before which the window begins.
    pub before: Option<u64>,
    /// Include the events that only keep Regatta's own records.
    pub housekeeping: bool,
    pub limit: Option<usize>,
}

impl EventListQuery {
    /// Returns whether the query selects events of this kind.
    pub fn matches_kind(&self, kind: &str) -> bool {
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(prefix) => kind.starts_with(prefix),
            None => kind == pattern,
        };
        let mut patterns = self.kind.split(',').map(str::trim);
        if self.kind.trim().is_empty() {
            return self.housekeeping || !is_housekeeping(kind);
        }
        patterns.any(|pattern| !pattern.is_empty() && matches(pattern))
    }

    /// Returns whether the query selects a row. The row's kind was checked before.
    pub fn matches_row(&self, row: &EventRow) -> bool {
        let is_about = || {
            row.about == self.about || row.task.is_some_and(|task| task.to_string() == self.about)
        };
        let text = || {
            let texts = [&row.kind, &row.about, &row.by, &row.text, &row.subject];
            texts.map(|text| text.to_lowercase()).join(" ")
        };
        let has_words = || {
            let text = text();
            let mut words = self.text.split_whitespace();
            words.all(|word| text.contains(&word.to_lowercase()))
        };
        // Regatta tells the agents about each landing. The landing itself is in the list already.
        let is_notice = row.kind == "message.posted" && row.by == "regatta";
        let is_asked = self.housekeeping || !self.kind.trim().is_empty();
        (is_asked || !is_notice)
            && (self.about.is_empty() || is_about())
            && (self.by.is_empty() || row.by.contains(&self.by))
            && (self.text.is_empty() || has_words())
    }
}

fn is_housekeeping(kind: &str) -> bool {
    let is_record = ["request.", "delivery.", "claim."];
    HOUSEKEEPING_KINDS.contains(&kind) || is_record.iter().any(|prefix| kind.starts_with(prefix))
}

/// Shortens a text of an agent or a person to one line.
fn one_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default().trim();
    if line.chars().count() <= MAX_TEXT_CHARS {
        return line.to_owned();
    }
    let start: String = line.chars().take(MAX_TEXT_CHARS - 1).collect();
    start + "…"
}

fn with_reason(sentence: String, reason: &str) -> String {
    if reason.trim().is_empty() {
        return sentence;
    }
    format!("{sentence}: {}", one_line(reason))
}

/// Returns the state into which an event brings its task, if the event changes the task's state.
pub fn event_state(event: &Event) -> Option<DisplayState> {
    Some(match event {
        Event::TaskStarted(_) | Event::TaskValidating(_) => DisplayState::Working,
        Event::TaskNeedsHuman(_) | Event::ApprovalAsked(_) => DisplayState::Needs,
        Event::TaskInReview(_) => DisplayState::Review,
        Event::TaskSubmitted(_) | Event::LandingMoving(_) => DisplayState::Landing,
        Event::TaskCompleted(_) | Event::LandingLanded(_) => DisplayState::Landed,
        Event::TaskFailed(_) | Event::TaskCancelled(_) | Event::LandingRed(_) => {
            DisplayState::Failed
        }
        Event::TaskAdded(_) | Event::TaskReturned(_) | Event::LandingHeld(_) => {
            DisplayState::Waiting
        }
        _ => return None,
    })
}

/// Returns the task that an event names.
pub fn event_task(event: &Event) -> Option<TaskId> {
    match event {
        Event::AttemptStarted(event) => Some(event.attempt().task),
        Event::ApprovalAsked(event) => Some(event.approval().task),
        Event::LandingQueued(event) => Some(event.landing().task),
        Event::LandingLanded(event) => Some(*event.task()),
        Event::LandingEnded(event) => Some(*event.task()),
        other => other.subject().parse().ok(),
    }
}

/// Describes an event as a sentence. Kinds without a sentence of their own are described by their
/// name and their object.
pub fn event_text(recorded: &Recorded) -> String {
    let subject = recorded.event.subject();
    match &recorded.event {
        Event::ProjectAdded(_) => format!("project {subject} was added"),
        Event::ProjectChanged(_) => format!("the settings of project {subject} changed"),
        Event::AgentRegistered(_) => format!("agent {subject} registered"),
        Event::AgentRemoved(_) => format!("agent {subject} was removed"),
        Event::ClaimGranted(event) => {
            let claim = event.claim();
            let uris: Vec<String> = claim.uris.iter().map(ToString::to_string).collect();
            format!("{} holds {}", claim.owner, one_line(&uris.join(", ")))
        }
        Event::ClaimReleased(_) => format!("claim {subject} was released"),
        Event::ClaimTransferred(event) => format!("claim {subject} went to {}", event.to()),
        Event::ClaimQueued(_) => format!("claim request {subject} waits for another claim"),
        Event::ClaimWaitEnded(_) => format!("claim request {subject} no longer waits"),
        Event::MissionStarted(event) => {
            with_reason(format!("mission {subject} began"), &event.mission().title)
        }
        Event::MissionEnded(_) => format!("mission {subject} ended"),
        Event::TaskAdded(_) => format!("{subject} was added"),
        Event::TaskEdited(_) => format!("{subject} was edited"),
        Event::TaskAssigned(event) => match event.to() {
            Some(agent) => format!("{subject} was assigned to {agent}"),
            None => format!("{subject} is no longer assigned"),
        },
        Event::TaskOffered(event) => format!("{subject} was offered to {}", event.to()),
        Event::TaskStarted(event) => format!("{} started {subject}", event.agent()),
        Event::TaskProgressed(event) => {
            with_reason(format!("{subject} made progress"), event.text())
        }
        Event::TaskValidating(_) => format!("{subject} is being checked"),
        Event::TaskSubmitted(event) => {
            format!("{subject} entered the merge queue as {}", event.landing())
        }
        Event::TaskReturned(event) => with_reason(format!("{subject} came back"), event.reason()),
        Event::TaskInReview(event) => {
            with_reason(format!("{subject} waits for a review"), event.reason())
        }
        Event::TaskNeedsHuman(event) => {
            with_reason(format!("{subject} needs a person"), event.reason())
        }
        Event::TaskCompleted(event) => match event.landed() {
            Some(commit) => format!("{subject} landed as {}", short_commit(&commit.to_string())),
            None => format!("{subject} is done"),
        },
        Event::TaskFailed(event) => with_reason(format!("{subject} failed"), event.reason()),
        Event::TaskCancelled(event) => {
            with_reason(format!("{subject} was cancelled"), event.reason())
        }
        Event::TaskNoted(event) => with_reason(format!("{subject} got a note"), event.text()),
        Event::TaskWarned(event) => with_reason(format!("{subject} has a warning"), event.text()),
        Event::TaskEscaped(_) => format!("{subject} changed files outside its manifest"),
        Event::TaskDue(_) => format!("{subject} may start again"),
        Event::AttemptStarted(event) => {
            format!("{} began attempt {subject}", event.attempt().agent)
        }
        Event::AttemptLaunched(_) => format!("the program of {subject} runs"),
        Event::AttemptStopping(event) => {
            with_reason(format!("{subject} is being stopped"), event.detail())
        }
        Event::AttemptEnded(event) => with_reason(format!("{subject} ended"), event.detail()),
        Event::AttemptReported(_) => format!("{subject} reported its work"),
        Event::AttemptTold(event) => with_reason(format!("{subject} got a message"), event.text()),
        Event::AttemptHeld(_) => format!("{subject} was paused"),
        Event::AttemptLetGo(_) => format!("{subject} continues"),
        Event::AttemptQuiet(_) => format!("{subject} has been silent for long"),
        Event::AttemptClosing(_) => format!("{subject} may end"),
        Event::ApprovalAsked(event) => {
            let approval = event.approval();
            format!("{subject} asks: {}", one_line(&approval.subject()))
        }
        Event::ApprovalDecided(event) => {
            let by = event.decision().by.to_string();
            format!("{subject} was answered by {}", by.trim_end_matches(':'))
        }
        Event::ApprovalWithdrawn(_) => format!("{subject} is no longer asked"),
        Event::ApprovalEscalated(_) => format!("{subject} waits for a person"),
        Event::InboxDismissed(_) => format!("{subject} was dismissed from the inbox"),
        Event::InboxSnoozed(_) => format!("{subject} was hidden for a while"),
        Event::PolicyAdded(_) => format!("rule {subject} was added"),
        Event::PolicyRemoved(_) => format!("rule {subject} was removed"),
        Event::BudgetSet(_) => format!("the budget {subject} was set"),
        Event::BudgetRemoved(_) => format!("the budget {subject} was removed"),
        Event::BudgetWarned(event) => one_line(event.text()),
        Event::ProviderParked(event) => with_reason(
            format!("{} gets no work", event.parked().name),
            &event.parked().reason,
        ),
        Event::ProviderFreed(_) => format!("{subject} gets work again"),
        Event::RunnerRegistered(_) => format!("runner {subject} joined"),
        Event::RunnerRemoved(_) => format!("runner {subject} was removed"),
        Event::LaunchBegun(_) => format!("launch {subject} of a team began"),
        Event::LandingQueued(event) => {
            let task = event.landing().task;
            format!("{task} was queued as landing {subject}")
        }
        Event::LandingBegun(_) => format!("the checks of {subject} began"),
        Event::LandingValidated(_) => format!("the checks of {subject} passed"),
        Event::LandingRed(event) => {
            with_reason(format!("the checks of {subject} failed"), event.reason())
        }
        Event::LandingReturned(event) => {
            with_reason(format!("{subject} went back"), event.reason())
        }
        Event::LandingApproved(event) => format!("{} approved {subject}", event.by()),
        Event::LandingMoving(_) => format!("{subject} is moving the trunk"),
        Event::LandingHeld(event) => with_reason(format!("{subject} is held"), event.reason()),
        Event::LandingLanded(event) => {
            let commit = short_commit(&event.commit().to_string());
            format!("{} landed as {commit}", event.task())
        }
        Event::LandingEnded(event) => with_reason(
            format!("{} left the merge queue", event.task()),
            event.reason(),
        ),
        Event::QueueHeld(_) => format!("the merge queue of {subject} was held"),
        Event::QueueReleased(_) => format!("the merge queue of {subject} continues"),
        Event::MessagePosted(event) => {
            let message = event.message();
            let sender = message.sender.to_string();
            let sender = sender.trim_end_matches(':');
            with_reason(
                format!("{sender} wrote to {}", message.channel),
                &message.text,
            )
        }
        other => {
            let (object, change) = other.kind().split_once('.').unwrap_or(("", other.kind()));
            format!("{object} {subject}: {}", change.replace('_', " "))
        }
    }
}

fn short_commit(commit: &str) -> String {
    commit.chars().take(SHORT_COMMIT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use regatta_core::command::Actor;
    use regatta_core::ids::Now;
    use serde_json::json;

    use super::*;

    fn recorded(kind: &str, data: &serde_json::Value) -> Recorded {
        let text = format!(r#"{{"kind":"{kind}","data":{data}}}"#);
        Recorded {
            revision: 7,
            now: Now {
                fleet_ms: 0,
                unix_ms: 1,
            },
            by: Actor::Regatta,
            event: serde_json::from_str(&text).expect(kind),
        }
    }

    #[test]
    fn events_are_described_as_sentences_of_one_short_line() {
        let commit = "9be21d7000000000000000000000000000000000";
        let long = "y".repeat(500);
        for (kind, data, text, state) in [
            (
                "task.completed",
                json!({ "task": "T3", "landed": commit }),
                "T3 landed as 9be21d7000",
                Some(DisplayState::Landed),
            ),
            (
                "task.failed",
                json!({ "task": "T3", "reason": "\n it broke\nbadly" }),
                "T3 failed: it broke",
                Some(DisplayState::Failed),
            ),
            (
                "task.started",
                json!({ "task": "T3", "attempt": "A4", "agent": "ada" }),
                "ada started T3",
                Some(DisplayState::Working),
            ),
            (
                "provider.freed",
                json!({ "name": "acme" }),
                "acme gets work again",
                None,
            ),
            (
                "task.cancelled",
                json!({ "task": "T3", "reason": "" }),
                "T3 was cancelled",
                Some(DisplayState::Failed),
            ),
            (
                "delivery.forgotten",
                json!({ "delivery": "k1" }),
                "delivery k1: forgotten",
                None,
            ),
        ] {
            let recorded = recorded(kind, &data);
            assert_eq!(event_text(&recorded), text, "{kind}");
            assert_eq!(event_state(&recorded.event), state, "{kind}");
        }
        let failed = recorded("task.failed", &json!({ "task": "T3", "reason": long }));
        let text = event_text(&failed);
        assert_eq!(text.chars().count(), "T3 failed: ".len() + MAX_TEXT_CHARS);
        assert_eq!(event_task(&failed.event), Some(TaskId(3)));
    }

    #[test]
    fn a_query_selects_rows_and_leaves_out_housekeeping() {
        let row = EventRow {
            revision: 7,
            wall: 1,
            kind: "task.failed".into(),
            about: "T3".into(),
            by: "person:ann".into(),
            text: "T3 failed: it broke".into(),
            at: None,
            task: Some(TaskId(3)),
            subject: "Add Login".into(),
        };
        let query = |fields: serde_json::Value| -> EventListQuery {
            serde_json::from_value(fields).expect("a query")
        };
        for (fields, matches) in [
            (json!({}), true),
            (json!({ "kind": "task.*" }), true),
            (json!({ "kind": "claim.*,task.failed" }), true),
            (json!({ "kind": "task" }), false),
            (json!({ "about": "T3" }), true),
            (json!({ "about": "T33" }), false),
            (json!({ "by": "ann" }), true),
            (json!({ "text": "LOGIN broke" }), true),
            (json!({ "text": "login works" }), false),
        ] {
            let query = query(fields.clone());
            let found = query.matches_kind(&row.kind) && query.matches_row(&row);
            assert_eq!(found, matches, "{fields}");
        }
        let notice = EventRow {
            kind: "message.posted".into(),
            by: "regatta".into(),
            ..row
        };
        assert!(!query(json!({})).matches_row(&notice));
        assert!(query(json!({ "kind": "message.*" })).matches_row(&notice));
        assert!(!query(json!({})).matches_kind("claim.granted"));
        assert!(!query(json!({})).matches_kind("request.answered"));
        assert!(query(json!({ "housekeeping": true })).matches_kind("request.answered"));
        assert!(query(json!({ "kind": "request.*" })).matches_kind("request.answered"));
    }
}
