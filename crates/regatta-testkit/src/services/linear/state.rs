//! The state of the double: a Linear workspace with issues, comments, agents, and sessions between
//! people and agents.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::double;
use super::super::signature;

/// The data that an agent's app must know about itself to use Linear.
#[derive(Clone, Debug)]
pub struct LinearApp {
    pub name: String,
    /// The id of the agent's user in Linear, for the setting `LINEAR_AGENT_ID`.
    pub app_user_id: String,
    pub oauth_client_id: String,
    /// The app's access token, sent as `Authorization: Bearer`.
    pub access_token: String,
    pub webhook_secret: String,
}

pub(crate) struct LinearAppState {
    pub(crate) app: LinearApp,
    pub(crate) webhook: Option<String>,
    pub(crate) deliveries: Vec<LinearDelivery>,
}

/// A webhook, sent or waiting to be sent.
#[derive(Clone, Debug)]
pub struct LinearDelivery {
    /// The delivery id, which stays the same when the webhook is sent again.
    pub id: String,
    pub payload: Value,
    /// The number of times that the webhook was sent.
    pub attempts: u32,
    /// The HTTP status of the last answer: `None` before the first answer, 0 if there was no
    /// answer.
    pub status: Option<u16>,
    pub(crate) session: String,
    pub(crate) not_before: Option<Instant>,
    pub(crate) is_in_flight: bool,
}

impl LinearDelivery {
    /// Returns whether the receiver accepted the webhook.
    pub fn is_accepted(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// An activity in a session: something that the agent or a person wrote or did.
#[derive(Clone, Debug)]
pub struct SessionActivity {
    pub id: String,
    /// The kind of activity: `thought`, `action`, `elicitation`, `response`, `error`, or a person's
    /// `prompt`.
    pub kind: String,
    pub content: Value,
    pub is_ephemeral: bool,
    pub signal: Option<String>,
    pub signal_metadata: Value,
    /// The id of the person or agent that created the activity.
    pub user: String,
    /// The time when the activity was created, counted from the start of the double (the imitation
    /// of Linear).
    pub created: Duration,
}

impl SessionActivity {
    /// Returns the text of the activity. If the activity is an action, returns the name of the
    /// action.
    pub fn body(&self) -> &str {
        self.content["body"]
            .as_str()
            .or_else(|| self.content["action"].as_str())
            .unwrap_or_default()
    }
}

/// A session: the conversation of an agent with people about an issue.
#[derive(Clone, Debug)]
pub struct LinearSession {
    pub id: String,
    /// The name of the agent to which the session belongs.
    pub app: String,
    pub issue: Option<String>,
    pub comment: Option<String>,
    pub creator: Option<String>,
    /// All activities, including temporary ones that people no longer see.
    pub activities: Vec<SessionActivity>,
    pub plan: Value,
    /// Links that the agent attached to the session: label and URL.
    pub external_urls: Vec<(String, String)>,
    pub summary: Option<String>,
    /// The status of the session: `pending`, `active`, `awaitingInput`, `complete`, `error`,
    /// `stale` or `stopping`.
    pub status: String,
    /// True if the agent sent no activity within ten seconds after the session began.
    pub is_unresponsive: bool,
    /// The time when the session began, counted from the start of the double (the imitation of
    /// Linear).
    pub created: Duration,
    /// The time when the agent's first activity is due. `stale_at` is the time when the session
    /// becomes stale if there is no activity.
    pub(crate) first_activity_due: Option<Instant>,
    pub(crate) stale_at: Option<Instant>,
}

impl LinearSession {
    /// Returns the activities that people see, which are all activities except temporary ones that
    /// are over.
    pub fn visible_activities(&self) -> impl Iterator<Item = &SessionActivity> {
        let last = self.activities.len();
        self.activities
            .iter()
            .enumerate()
            .filter(move |activity| !activity.1.is_ephemeral || activity.0 + 1 == last)
            .map(|activity| activity.1)
    }

    /// Returns the activities of the agent.
    pub fn agent_activities(&self) -> impl Iterator<Item = &SessionActivity> {
        self.activities
            .iter()
            .filter(|session_activity| session_activity.kind != "prompt")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LinearIssue {
    pub(crate) id: String,
    pub(crate) identifier: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) delegate: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct LinearComment {
    pub(crate) id: String,
    pub(crate) issue: String,
    pub(crate) user: String,
    pub(crate) body: String,
}

/// The state of the imitated Linear: the parts that agents use.
pub struct LinearState {
    pub(crate) organization: String,
    pub(crate) apps: Vec<LinearAppState>,
    /// The ids and names of people.
    pub(crate) people: Vec<(String, String)>,
    pub(crate) issues: Vec<LinearIssue>,
    pub(crate) comments: Vec<LinearComment>,
    pub(crate) sessions: Vec<LinearSession>,
    pub(crate) max_requests_per_hour: u32,
    /// True if a webhook that is sent again has the same timestamp as when it was sent first.
    pub(crate) keeps_retry_timestamps: bool,
}

impl double::ServiceState for LinearState {
    fn rate_limit_answer(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        let reset = (signature::unix_time() + Duration::from_secs_f64(seconds)).as_millis();
        let headers = vec![
            ("x-ratelimit-requests-remaining", "0".to_owned()),
            ("x-ratelimit-requests-reset", reset.to_string()),
        ];
        let body = json!({"errors": [{
            "message": "Rate limit exceeded",
            "extensions": {"type": "ratelimited", "code": "RATELIMITED", "statusCode": 400, "userError": true,
                "userPresentableMessage": "Rate limit exceeded. Please try again later."},
        }]});
        (400, headers, body)
    }
}

impl LinearState {
    /// Returns a session, if it exists.
    pub fn session(&self, id: &str) -> Option<&LinearSession> {
        self.sessions
            .iter()
            .find(|linear_session| linear_session.id == id)
    }

    /// Returns all activities of a session.
    pub fn activities(&self, session: &str) -> &[SessionActivity] {
        self.session(session)
            .map(|linear_session| linear_session.activities.as_slice())
            .unwrap_or_default()
    }

    /// Returns all webhooks for an agent, those that were sent and those that still wait.
    pub fn deliveries(&self, app: &str) -> &[LinearDelivery] {
        self.apps
            .iter()
            .find(|linear_app_state| linear_app_state.app.name == app)
            .map(|linear_app_state| linear_app_state.deliveries.as_slice())
            .unwrap_or_default()
    }

    pub(crate) fn session_mut(&mut self, id: &str) -> Option<&mut LinearSession> {
        self.sessions
            .iter_mut()
            .find(|linear_session| linear_session.id == id)
    }

    pub(crate) fn issue(&self, name: &str) -> Option<&LinearIssue> {
        self.issues
            .iter()
            .find(|linear_issue| linear_issue.id == name || linear_issue.identifier == name)
    }
}
