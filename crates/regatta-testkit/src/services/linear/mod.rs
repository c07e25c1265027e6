//! Linear: agents in a workspace, their sessions and activities by GraphQL, and signed webhooks.
//!
//! ```text
//! let linear = Linear::start().await;
//! let claude = linear.app("claude");                    // App: app_user_id, access_token, webhook_secret
//! linear.webhook("claude", "http://127.0.0.1:…/webhooks/linear");
//! linear.person("ann");
//! linear.issue("ENG-1", "Login fails", "Since Monday.");
//!
//! let session = linear.delegate("ann", "ENG-1", "claude");             // assigned: AgentSessionEvent created
//! let session = linear.mention("ann", "ENG-1", "claude", "fix it");    // mentioned in a comment: created
//! linear.prompt("ann", &session, "and the tests?");                    // prompted
//! linear.stop("ann", &session);                                        // prompted, with the signal `stop`
//!
//! linear.session(&session)        // Session: status, plan, external_urls, unresponsive, visible(), done()
//! linear.activities(&session)     // everything, ephemeral ones too
//! linear.deliveries("claude"), linear.old_timestamps(true), linear.requests_per_hour(10)
//! ```
//!
//! And everything that all doubles have (see [`super`]); an operation's name is its root field:
//! `agentActivityCreate`. The endpoint is `base_url() + "/graphql"`.
//!
//! What it holds clients to: the app's token as `Bearer`; documents with fields that the types have; the forms of
//! activities (an id is a UUID, and twice the same id is one activity); own sessions only; a webhook's answer within
//! 5 s ([`ANSWER`]), else sent again after a minute, an hour and six ([`RETRIES`]) with the same `Linear-Delivery`;
//! the first sign within 10 s of a `created` that was taken ([`FIRST_SIGN`]); a session that is being worked on shows
//! something every 30 minutes ([`STALE`]). A retry has a fresh `webhookTimestamp`, as the official verifier would
//! refuse an older one; `old_timestamps(true)` keeps the first. A refusal is HTTP 400 with the code `RATELIMITED` and
//! the time of the reset in `x-ratelimit-requests-reset`, in milliseconds.

mod graphql;
mod hooks;
mod resolve;
mod show;
mod world;

use std::ops::Deref;
use std::sync::Arc;

pub use hooks::{ANSWER, FIRST_SIGN, RETRIES, STALE};
pub use resolve::REQUESTS_PER_HOUR;
pub use world::{Activity, App, Delivery, Session, World};

use super::desk::Desk;
use super::sign;
use world::{AppState, Comment, Issue};

/// The double. It ends, with all its connections, when it is dropped.
pub struct Linear {
    desk: Arc<Desk<World>>,
}

impl Deref for Linear {
    type Target = Desk<World>;

    fn deref(&self) -> &Desk<World> {
        &self.desk
    }
}

impl Drop for Linear {
    fn drop(&mut self) {
        self.desk.shut();
    }
}

impl Linear {
    /// Starts on a free port of loopback.
    pub async fn start() -> Linear {
        let world = World {
            organization: sign::uuid("organization"),
            apps: vec![],
            people: vec![],
            issues: vec![],
            comments: vec![],
            sessions: vec![],
            requests_per_hour: REQUESTS_PER_HOUR,
            old_timestamps: false,
        };
        let desk = Desk::open(world, resolve::handle).await;
        tokio::spawn(hooks::deliver(Arc::downgrade(&desk)));
        Linear { desk }
    }

    /// Installs an agent.
    pub fn app(&self, name: &str) -> App {
        let app = App {
            name: name.to_owned(),
            app_user_id: sign::uuid(&format!("agent {name}")),
            oauth_client_id: sign::token(&format!("client {name}"), 32),
            access_token: format!("lin_oauth_{}", sign::token(&format!("token {name}"), 40)),
            webhook_secret: format!("lin_wh_{}", sign::token(&format!("secret {name}"), 32)),
        };
        self.change(|world, _| world.apps.push(AppState { app: app.clone(), webhook: None, deliveries: vec![] }));
        app
    }

    /// Where an agent's webhooks go from now on. Those made before have not been sent.
    pub fn webhook(&self, app: &str, url: &str) {
        self.change(|world, _| {
            let app = world.apps.iter_mut().find(|it| it.app.name == app).expect("there is such an agent");
            app.webhook = Some(url.to_owned());
        });
    }

    /// How many requests an app may make in an hour.
    pub fn requests_per_hour(&self, most: u32) {
        self.change(|world, _| world.requests_per_hour = most);
    }

    /// Whether a webhook that is sent again keeps its first time.
    pub fn old_timestamps(&self, keep: bool) {
        self.change(|world, _| world.old_timestamps = keep);
    }

    /// Adds a person. Returns the id.
    pub fn person(&self, name: &str) -> String {
        let id = sign::uuid(&format!("person {name}"));
        self.change(|world, _| world.people.push((id.clone(), name.to_owned())));
        id
    }

    /// Adds an issue. Returns the id.
    pub fn issue(&self, identifier: &str, title: &str, description: &str) -> String {
        let id = sign::uuid(&format!("issue {identifier}"));
        let (identifier, title, description) = (identifier.to_owned(), title.to_owned(), description.to_owned());
        let issue = Issue { id: id.clone(), identifier, title, description, delegate: None };
        self.change(|world, _| world.issues.push(issue));
        id
    }

    /// A person gives an issue to an agent. Returns the session's id.
    pub fn delegate(&self, person: &str, issue: &str, app: &str) -> String {
        self.change(|world, ledger| {
            let agent = world.apps.iter().find(|it| it.app.name == app).expect("there is such an agent");
            let agent = agent.app.app_user_id.clone();
            let creator = world.people.iter().find(|it| it.1 == person).map(|it| it.0.clone());
            let place = world.issues.iter_mut().find(|it| it.identifier == issue || it.id == issue);
            let place = place.expect("there is such an issue");
            place.delegate = Some(agent);
            let issue = place.id.clone();
            let session = world.start(ledger, app, Some(issue), None, creator);
            world.tell(ledger, &session, "created", None);
            session
        })
    }

    /// A person mentions an agent in a comment. Returns the session's id.
    pub fn mention(&self, person: &str, issue: &str, app: &str, text: &str) -> String {
        self.change(|world, ledger| {
            let user = world.people.iter().find(|it| it.1 == person).expect("there is such a person").0.clone();
            let issue = world.issue(issue).expect("there is such an issue").id.clone();
            let id = sign::uuid(&format!("comment {}", ledger.next()));
            let body = format!("@{app} {text}");
            world.comments.push(Comment { id: id.clone(), issue: issue.clone(), user: user.clone(), body });
            let session = world.start(ledger, app, Some(issue), Some(id), Some(user));
            world.tell(ledger, &session, "created", None);
            session
        })
    }

    /// A person says something in a session.
    pub fn prompt(&self, person: &str, session: &str, text: &str) {
        self.change(|world, ledger| world.prompt(ledger, session, person, text, None));
    }

    /// A person presses stop.
    pub fn stop(&self, person: &str, session: &str) {
        self.change(|world, ledger| world.prompt(ledger, session, person, "Stop", Some("stop")));
    }

    /// A session as it is now.
    pub fn session(&self, id: &str) -> Session {
        self.view(|view| view.session(id).cloned()).expect("there is such a session")
    }

    /// Everything that was done in a session.
    pub fn activities(&self, session: &str) -> Vec<Activity> {
        self.view(|view| view.activities(session).to_vec())
    }

    /// The webhooks of an agent.
    pub fn deliveries(&self, app: &str) -> Vec<Delivery> {
        self.view(|view| view.deliveries(app).to_vec())
    }
}
