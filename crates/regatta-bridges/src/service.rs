//! The port of a service: the events that its inbound side delivers, and the posts that its
//! outbound side shows.
//!
//! A service is one folder with `inbound` (parses events), `outbound` (shows posts) and `api`
//! (calls). Everything else is the same for all services: permissions, deduplication of deliveries,
//! order and pace of posts.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::conversation::review::PullRequest;
use regatta_core::ids::ApprovalId;
use regatta_core::session::ToolStatus;

use crate::bucket::Limit;
use crate::desk::Desk;
use crate::registry::Standing;

pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A parsed event from a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "few exist at once, and most are messages")]
pub enum Incoming {
    Said(Said),
    /// A person pressed a button, or wrote what stands for one.
    Chosen {
        delivery: String,
        approval: ApprovalId,
        choice: String,
        by: Standing,
    },
    /// A person pressed a stop button, or stopped the turn by the service's own means.
    Stop {
        delivery: String,
        key: String,
        by: Standing,
    },
    /// A message was deleted.
    Deleted {
        key: String,
        source: String,
        /// The author, if known. The service allowed the deletion, so no permission is checked.
        by: Standing,
    },
    /// A person asks to retry the landing of a conversation's work.
    Rerun {
        delivery: String,
        key: String,
        by: Standing,
    },
}

impl Incoming {
    /// Returns the person who caused the event.
    pub fn by(&self) -> &Standing {
        match self {
            Incoming::Said(it) => &it.by,
            Incoming::Chosen { by, .. }
            | Incoming::Stop { by, .. }
            | Incoming::Deleted { by, .. }
            | Incoming::Rerun { by, .. } => by,
        }
    }
}

/// A message of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The service's id of the message; the same for each delivery of it.
    pub delivery: String,
    /// The channel or repository, as mappings name it.
    pub channel: String,
    pub thread: String,
    /// The key of the conversation: the thread and the agent's name.
    pub key: String,
    pub place: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub by: Standing,
    /// The text without the mention of the agent.
    pub text: String,
    pub source: String,
    pub called: bool,
    /// Set if the message is addressed to another agent or to a person.
    pub calls_another: bool,
    /// The visible thread, if the settings ask for it.
    pub context: Option<String>,
    /// The names of attached files.
    pub attachments: Vec<String>,
    /// The pull request to review, if the message asks for a review.
    pub pull: Option<PullRequest>,
}

/// The result of a request to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The request is not authentic or not acceptable at present.
    Refused { status: u16, why: &'static str },
    /// A text that the service expects as the response.
    Answer(String),
    /// The events in the request; empty if they do not matter.
    Events(Vec<Incoming>),
}

/// The inbound side of a service.
pub trait Inbound: Send + Sync + 'static {
    /// Runs as long as the bridge does: a socket, a long poll, or a search for missed deliveries.
    fn run<'a>(&'a self, desk: &'a Desk) -> Fut<'a, ()>;
    /// Handles a request to its route. `body` is the raw body, because the signature covers it.
    fn receive<'a>(&'a self, desk: &'a Desk, headers: &'a HeaderMap, body: &'a [u8]) -> Fut<'a, Received>;
    /// Returns the maximum size of a request to its route, in bytes.
    fn largest(&self) -> usize {
        5 * 1024 * 1024
    }
}

/// The reason why a post could not be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The service asks to wait for this long.
    Later(Duration),
    /// The post may or may not exist. It is looked up before it is sent again.
    Unknown(String),
    /// The service will never accept the post.
    Never(String),
    /// The credentials do not work. No post goes out until a person has fixed them.
    Locked(String),
}

impl Trouble {
    /// Returns whether a later attempt may succeed.
    pub fn passes(&self) -> bool {
        matches!(self, Trouble::Later(_) | Trouble::Unknown(_))
    }
}

/// A post to be shown in one call.
#[derive(Clone, Debug)]
pub struct Shot {
    pub place: BTreeMap<String, String>,
    /// Our own id of the post, the same whenever it is sent. With it a service without idempotency
    /// keys is searched for the post.
    pub mark: String,
    /// Set if the post may already exist although no call confirmed it.
    pub begun: bool,
    /// The name of the existing post; empty if it is new.
    pub shown_as: Option<String>,
    pub stage: u32,
    pub sight: Sight,
}

/// The content of a post.
#[derive(Clone, Debug, PartialEq)]
pub enum Sight {
    /// A sign that a message was seen.
    Seen {
        source: String,
    },
    Card(Card),
    /// A pull request from the branch `head` onto `base`.
    Pull {
        title: String,
        body: String,
        head: String,
        base: String,
    },
}

/// A message in CommonMark, with its plan, buttons and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    pub tone: Tone,
    pub text: String,
    pub plan: Vec<(String, ToolStatus)>,
    /// The present activity of the agent, in one line.
    pub doing: Option<String>,
    pub buttons: Vec<Button>,
    pub links: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Note,
    Waiting,
    Working,
    Done,
    Failed,
    Stopped,
    Question,
    Answered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Button {
    pub label: String,
    /// The value that the service returns when it is pressed: `allow:Q7`, `stop:V3`.
    pub value: String,
    pub danger: bool,
}

/// The outbound side of a service.
pub trait Outbound: Send + Sync + 'static {
    /// Returns the limits that one call for this post counts against.
    fn limits(&self, shot: &Shot) -> Vec<Limit>;
    /// Returns the minimum time between two edits that only show progress.
    fn pace(&self) -> Duration;
    /// Returns the time of silence after which a working turn shows a sign of life, if the service
    /// needs one.
    fn heartbeat(&self) -> Option<Duration> {
        None
    }
    /// Splits a card into pieces that the service accepts; the buttons are on the last piece.
    fn pieces(&self, card: &Card) -> Vec<Card>;
    /// Shows the post, and returns the name of the post at the service.
    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>>;
}
