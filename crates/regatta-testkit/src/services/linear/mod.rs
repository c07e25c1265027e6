//! A double (imitation for tests) of Linear: agents in a workspace, their sessions and activities
//! over GraphQL, and signed webhooks.
//!
//! ```text
//! let linear = Linear::start().await;
//! let claude = linear.add_app("claude"); // its id, access token and webhook secret
//! linear.set_webhook_url("claude", "http://127.0.0.1:…/webhooks/linear");
//! linear.add_person("ann");
//! linear.add_issue("ENG-1", "Login fails", "Since Monday.");
//!
//! // Both start a session, with an AgentSessionEvent `created`.
//! let session = linear.delegate("ann", "ENG-1", "claude");
//! let session = linear.mention("ann", "ENG-1", "claude", "fix it");
//! // Both send `prompted`; the second one has the signal `stop`.
//! linear.send_prompt("ann", &session, "and the tests?");
//! linear.press_stop("ann", &session);
//!
//! linear.session(&session); // status, plan, URLs
//! linear.activities(&session); // all activities, also ephemeral ones
//! linear.deliveries("claude"); // webhooks and the answers to them
//! linear.keep_retry_timestamps(true);
//! linear.set_max_requests_per_hour(10);
//! ```
//!
//! The double also has everything in [`super`]. The name of an operation is its root field, such as
//! `agentActivityCreate`. The endpoint is `base_url() + "/graphql"`.
//!
//! Rules that the double checks:
//!
//! - the app's token as `Bearer`, and documents with fields that the types have;
//! - the format of activities: an id is a UUID, and an id that is sent twice is one activity;
//! - an agent uses only its own sessions;
//! - a webhook is answered within 5 s ([`WEBHOOK_TIMEOUT`]); otherwise it is sent again after one
//!   minute, one hour and six hours ([`RETRY_DELAYS`]) with the same `Linear-Delivery`;
//! - the first activity comes within 10 s of a `created` that was accepted
//!   ([`FIRST_ACTIVITY_TIMEOUT`]);
//! - a session in progress shows an activity every 30 minutes ([`STALE_TIMEOUT`]).
//!
//! A retry has a new `webhookTimestamp`, because the official verifier would refuse an older one;
//! `keep_retry_timestamps(true)` keeps the first timestamp. A rate limit is HTTP 400 with the code
//! `RATELIMITED`, and `x-ratelimit-requests-reset` has the time of the reset in milliseconds.

mod graphql;
mod hooks;
mod json;
mod resolve;
mod state;

use std::ops::Deref;
use std::sync::Arc;

pub use hooks::{FIRST_ACTIVITY_TIMEOUT, RETRY_DELAYS, STALE_TIMEOUT, WEBHOOK_TIMEOUT};
pub use resolve::MAX_REQUESTS_PER_HOUR;
pub use state::{LinearApp, LinearDelivery, LinearSession, LinearState, SessionActivity};

use super::double::ServiceDouble;
use super::signature;
use state::{LinearAppState, LinearComment, LinearIssue};

/// The double of Linear. Dropping it closes all its connections.
pub struct Linear {
    double: Arc<ServiceDouble<LinearState>>,
}

impl Deref for Linear {
    type Target = ServiceDouble<LinearState>;

    fn deref(&self) -> &ServiceDouble<LinearState> {
        &self.double
    }
}

impl Drop for Linear {
    fn drop(&mut self) {
        self.double.shut_down();
    }
}

impl Linear {
    /// Starts the double on a free port of the loopback address.
    pub async fn start() -> Linear {
        let world = LinearState {
            organization: signature::fake_uuid("organization"),
            apps: vec![],
            people: vec![],
            issues: vec![],
            comments: vec![],
            sessions: vec![],
            max_requests_per_hour: MAX_REQUESTS_PER_HOUR,
            keeps_retry_timestamps: false,
        };
        let double = ServiceDouble::open(world, resolve::handle_request).await;
        tokio::spawn(hooks::deliver_webhooks(Arc::downgrade(&double)));
        Linear { double }
    }

    /// Installs an agent's app in the workspace, and returns the app's ids and secrets.
    pub fn add_app(&self, name: &str) -> LinearApp {
        let app = LinearApp {
            name: name.to_owned(),
            app_user_id: signature::fake_uuid(&format!("agent {name}")),
            oauth_client_id: signature::fake_token(&format!("client {name}"), 32),
            access_token: format!(
                "lin_oauth_{}",
                signature::fake_token(&format!("token {name}"), 40)
            ),
            webhook_secret: format!(
                "lin_wh_{}",
                signature::fake_token(&format!("secret {name}"), 32)
            ),
        };
        self.update(|world, _| {
            world.apps.push(LinearAppState {
                app: app.clone(),
                webhook: None,
                deliveries: vec![],
            })
        });
        app
    }

    /// Sets the URL to which an agent's webhooks are sent, including webhooks that still wait.
    pub fn set_webhook_url(&self, app: &str, url: &str) {
        self.update(|world, _| {
            let app = world
                .apps
                .iter_mut()
                .find(|linear_app_state| linear_app_state.app.name == app)
                .expect("there is such an agent");
            app.webhook = Some(url.to_owned());
        });
    }

    /// Sets how many requests an app may send per hour.
    pub fn set_max_requests_per_hour(&self, max: u32) {
        self.update(|world, _| world.max_requests_per_hour = max);
    }

    /// Sets whether a webhook that is sent again has the timestamp of the first attempt.
    pub fn keep_retry_timestamps(&self, keep: bool) {
        self.update(|world, _| world.keeps_retry_timestamps = keep);
    }

    /// Adds a person to the imitated service. Returns the person's id.
    pub fn add_person(&self, name: &str) -> String {
        let id = signature::fake_uuid(&format!("person {name}"));
        self.update(|world, _| world.people.push((id.clone(), name.to_owned())));
        id
    }

    /// Adds an issue. Returns the issue's id.
    pub fn add_issue(&self, identifier: &str, title: &str, description: &str) -> String {
        let id = signature::fake_uuid(&format!("issue {identifier}"));
        let (identifier, title, description) = (
            identifier.to_owned(),
            title.to_owned(),
            description.to_owned(),
        );
        let issue = LinearIssue {
            id: id.clone(),
            identifier,
            title,
            description,
            delegate: None,
        };
        self.update(|world, _| world.issues.push(issue));
        id
    }

    /// Assigns an issue to an agent in the name of a person. Starts a session, and returns its id.
    pub fn delegate(&self, person: &str, issue: &str, app: &str) -> String {
        self.update(|world, ledger| {
            let agent = world
                .apps
                .iter()
                .find(|linear_app_state| linear_app_state.app.name == app)
                .expect("there is such an agent");
            let agent = agent.app.app_user_id.clone();
            let creator = world
                .people
                .iter()
                .find(|people| people.1 == person)
                .map(|people| people.0.clone());
            let place = world
                .issues
                .iter_mut()
                .find(|linear_issue| linear_issue.identifier == issue || linear_issue.id == issue);
            let place = place.expect("there is such an issue");
            place.delegate = Some(agent);
            let issue = place.id.clone();
            let session = world.start_session(ledger, app, Some(issue), None, creator);
            world.queue_webhook(ledger, &session, "created", None);
            session
        })
    }

    /// Mentions an agent in a comment of a person. Starts a session, and returns its id.
    pub fn mention(&self, person: &str, issue: &str, app: &str, text: &str) -> String {
        self.update(|world, ledger| {
            let user = world
                .people
                .iter()
                .find(|people| people.1 == person)
                .expect("there is such a person")
                .0
                .clone();
            let issue = world
                .issue(issue)
                .expect("there is such an issue")
                .id
                .clone();
            let id = signature::fake_uuid(&format!("comment {}", ledger.next()));
            let body = format!("@{app} {text}");
            world.comments.push(LinearComment {
                id: id.clone(),
                issue: issue.clone(),
                user: user.clone(),
                body,
            });
            let session = world.start_session(ledger, app, Some(issue), Some(id), Some(user));
            world.queue_webhook(ledger, &session, "created", None);
            session
        })
    }

    /// Adds a person's prompt to a session.
    pub fn send_prompt(&self, person: &str, session: &str, text: &str) {
        self.update(|world, ledger| world.add_prompt(ledger, session, person, text, None));
    }

    /// Presses the stop button of a session in the name of a person.
    pub fn press_stop(&self, person: &str, session: &str) {
        self.update(|world, ledger| {
            world.add_prompt(ledger, session, person, "Stop", Some("stop"))
        });
    }

    /// Returns the current state of a session.
    pub fn session(&self, id: &str) -> LinearSession {
        self.view(|view| view.session(id).cloned())
            .expect("there is such a session")
    }

    /// Returns all activities of a session.
    pub fn activities(&self, session: &str) -> Vec<SessionActivity> {
        self.view(|view| view.activities(session).to_vec())
    }

    /// Returns all webhooks for an agent, those that were sent and those that still wait.
    pub fn deliveries(&self, app: &str) -> Vec<LinearDelivery> {
        self.view(|view| view.deliveries(app).to_vec())
    }
}
