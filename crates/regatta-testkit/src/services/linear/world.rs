//! A workspace with issues, comments, agents, and sessions between people and agents.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk;
use super::super::sign;

/// The data that an agent's app needs about itself.
#[derive(Clone, Debug)]
pub struct App {
    pub name: String,
    /// The id of the agent's user: `LINEAR_AGENT_ID`.
    pub app_user_id: String,
    pub oauth_client_id: String,
    /// The access token, sent as `Bearer`.
    pub access_token: String,
    pub webhook_secret: String,
}

pub(crate) struct AppState {
    pub(crate) app: App,
    pub(crate) webhook: Option<String>,
    pub(crate) deliveries: Vec<Delivery>,
}

/// A webhook.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The delivery id, equal in every attempt.
    pub id: String,
    pub payload: Value,
    /// The number of attempts.
    pub attempts: u32,
    /// The last status: `None` before the first answer, 0 if there was no answer.
    pub status: Option<u16>,
    pub(crate) session: String,
    pub(crate) not_before: Option<Instant>,
    pub(crate) under_way: bool,
}

impl Delivery {
    /// Returns whether the receiver accepted the webhook.
    pub fn taken(&self) -> bool {
        self.status.is_some_and(|it| (200..300).contains(&it))
    }
}

/// An activity of a session.
#[derive(Clone, Debug)]
pub struct Activity {
    pub id: String,
    /// `thought`, `action`, `elicitation`, `response`, `error`, or a person's `prompt`.
    pub kind: String,
    pub content: Value,
    pub ephemeral: bool,
    pub signal: Option<String>,
    pub signal_metadata: Value,
    /// The id of the user: a person or the agent.
    pub user: String,
    /// The time since the start of the double.
    pub at: Duration,
}

impl Activity {
    /// Returns the text of the activity, or the action.
    pub fn body(&self) -> &str {
        self.content["body"].as_str().or_else(|| self.content["action"].as_str()).unwrap_or_default()
    }
}

/// A session of an agent.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: String,
    /// The agent's name.
    pub app: String,
    pub issue: Option<String>,
    pub comment: Option<String>,
    pub creator: Option<String>,
    /// All activities, also ephemeral ones that have disappeared.
    pub activities: Vec<Activity>,
    pub plan: Value,
    /// Labels and URLs.
    pub external_urls: Vec<(String, String)>,
    pub summary: Option<String>,
    /// `pending`, `active`, `awaitingInput`, `complete`, `error`, `stale`, `stopping`.
    pub status: String,
    /// Whether the agent sent nothing within ten seconds.
    pub unresponsive: bool,
    /// When the session began, since the start of the double.
    pub made: Duration,
    /// The deadline for the first activity, and the time when the session becomes stale.
    pub(crate) due: Option<Instant>,
    pub(crate) stale: Option<Instant>,
}

impl Session {
    /// Returns the activities that people see, without ephemeral ones.
    pub fn visible(&self) -> impl Iterator<Item = &Activity> {
        let last = self.activities.len();
        self.activities.iter().enumerate().filter(move |it| !it.1.ephemeral || it.0 + 1 == last).map(|it| it.1)
    }

    /// Returns the activities of the agent.
    pub fn done(&self) -> impl Iterator<Item = &Activity> {
        self.activities.iter().filter(|it| it.kind != "prompt")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Issue {
    pub(crate) id: String,
    pub(crate) identifier: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) delegate: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub(crate) id: String,
    pub(crate) issue: String,
    pub(crate) user: String,
    pub(crate) body: String,
}

/// The state of Linear, as far as agents see it.
pub struct World {
    pub(crate) organization: String,
    pub(crate) apps: Vec<AppState>,
    /// The ids and names of people.
    pub(crate) people: Vec<(String, String)>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) comments: Vec<Comment>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) requests_per_hour: u32,
    /// Whether a retry has the timestamp of the first attempt.
    pub(crate) old_timestamps: bool,
}

impl desk::World for World {
    fn limited(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        let reset = (sign::now() + Duration::from_secs_f64(seconds)).as_millis();
        let headers =
            vec![("x-ratelimit-requests-remaining", "0".to_owned()), ("x-ratelimit-requests-reset", reset.to_string())];
        let body = json!({"errors": [{
            "message": "Rate limit exceeded",
            "extensions": {"type": "ratelimited", "code": "RATELIMITED", "statusCode": 400, "userError": true,
                "userPresentableMessage": "Rate limit exceeded. Please try again later."},
        }]});
        (400, headers, body)
    }
}

impl World {
    /// Returns a session.
    pub fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.iter().find(|it| it.id == id)
    }

    /// Returns all activities of a session.
    pub fn activities(&self, session: &str) -> &[Activity] {
        self.session(session).map(|it| it.activities.as_slice()).unwrap_or_default()
    }

    /// Returns the webhooks of an agent.
    pub fn deliveries(&self, app: &str) -> &[Delivery] {
        self.apps.iter().find(|it| it.app.name == app).map(|it| it.deliveries.as_slice()).unwrap_or_default()
    }

    pub(crate) fn session_mut(&mut self, id: &str) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|it| it.id == id)
    }

    pub(crate) fn issue(&self, name: &str) -> Option<&Issue> {
        self.issues.iter().find(|it| it.id == name || it.identifier == name)
    }
}
