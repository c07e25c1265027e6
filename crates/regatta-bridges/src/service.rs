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
use regatta_core::agent_protocol::ToolStatus;
use regatta_core::conversation::review::PullRequest;
use regatta_core::ids::ApprovalId;

use crate::config::Requester;
use crate::intake::Intake;
use crate::rate_limit::RateLimit;

pub type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A parsed event from a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "few exist at once, and most are messages"
)]
pub enum IncomingEvent {
    Message(IncomingMessage),
    /// A person pressed a button, or wrote a text that stands for a button.
    ButtonPressed {
        delivery: String,
        approval: ApprovalId,
        choice: String,
        requester: Requester,
    },
    /// A person pressed a stop button, or stopped the turn by the service's own means.
    StopRequested {
        delivery: String,
        key: String,
        requester: Requester,
    },
    /// A message was deleted.
    MessageDeleted {
        key: String,
        source: String,
        /// The author, if known. The service allowed the deletion, so no permission is checked.
        requester: Requester,
    },
    /// A person asks to retry the landing of a conversation's work.
    RetryRequested {
        delivery: String,
        key: String,
        requester: Requester,
    },
}

impl IncomingEvent {
    /// Returns the person who caused the event.
    pub fn requester(&self) -> &Requester {
        match self {
            IncomingEvent::Message(message) => &message.author,
            IncomingEvent::ButtonPressed { requester, .. }
            | IncomingEvent::StopRequested { requester, .. }
            | IncomingEvent::MessageDeleted { requester, .. }
            | IncomingEvent::RetryRequested { requester, .. } => requester,
        }
    }
}

/// A message of a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncomingMessage {
    /// The service's id of the message; the same for each delivery of it.
    pub delivery: String,
    /// The channel or repository, as mappings name it.
    pub channel: String,
    pub thread: String,
    /// The key of the conversation: the thread and the agent's name.
    pub key: String,
    pub address: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub author: Requester,
    /// The text without the mention of the agent.
    pub text: String,
    pub source: String,
    pub mentions_agent: bool,
    /// Set if the message is addressed to another agent or to a person.
    pub addresses_another: bool,
    /// The visible thread, if the settings ask for it.
    pub context: Option<String>,
    /// The names of attached files.
    pub attachments: Vec<String>,
    /// The pull request to review, if the message asks for a review.
    pub pull: Option<PullRequest>,
}

/// The result of a request to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// The request is not authentic or not acceptable at present.
    Refused { status: u16, why: &'static str },
    /// A text that the service expects as the response.
    Answer(String),
    /// The events in the request; empty if they do not matter.
    Events(Vec<IncomingEvent>),
}

/// The inbound side of a service.
pub trait Inbound: Send + Sync + 'static {
    /// Runs as long as the bridge does: a socket, a long poll, or a search for missed deliveries.
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()>;
    /// Handles a request to its route. `body` is the raw body, because the signature covers it.
    fn receive<'a>(
        &'a self,
        intake: &'a Intake,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> ServiceFuture<'a, ReceiveOutcome>;
    /// Returns the maximum size of a request to its route, in bytes.
    fn max_request_bytes(&self) -> usize {
        5 * 1024 * 1024
    }
}

/// The reason why a post could not be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// The service asks to wait for this long.
    RetryAfter(Duration),
    /// The post may or may not exist. It is looked up before it is sent again.
    OutcomeUnknown(String),
    /// The service will never accept the post.
    Rejected(String),
    /// The credentials do not work. No post goes out until a person has fixed them.
    Unauthorized(String),
}

impl ServiceError {
    /// Returns whether a later attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            ServiceError::RetryAfter(_) | ServiceError::OutcomeUnknown(_)
        )
    }
}

/// A post to be shown in one call.
#[derive(Clone, Debug)]
pub struct SendRequest {
    pub address: BTreeMap<String, String>,
    /// Our own id of the post, the same whenever it is sent. With it a service without idempotency
    /// keys is searched for the post.
    pub post_mark: String,
    /// Set if the post may already exist although no call confirmed it.
    pub may_exist: bool,
    /// The name of the existing post; empty if it is new.
    pub existing_name: Option<String>,
    pub stage: u32,
    pub content: SendContent,
}

/// The content of a post.
#[derive(Clone, Debug, PartialEq)]
pub enum SendContent {
    /// A sign that a message was seen.
    Reaction {
        source: String,
    },
    Card(PostCard),
    /// A pull request from the branch `head` onto `base`.
    PullRequest {
        title: String,
        body: String,
        head: String,
        base: String,
    },
}

/// A message in CommonMark, with its plan, buttons and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PostCard {
    pub tone: CardTone,
    pub text: String,
    pub plan: Vec<(String, ToolStatus)>,
    /// The present activity of the agent, in one line.
    pub activity: Option<String>,
    pub buttons: Vec<CardButton>,
    pub links: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardTone {
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
pub struct CardButton {
    pub label: String,
    /// The value that the service returns when it is pressed: `allow:Q7`, `stop:V3`.
    pub value: String,
    pub is_dangerous: bool,
}

/// The outbound side of a service.
pub trait Outbound: Send + Sync + 'static {
    /// Returns the limits that one call for this post counts against.
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit>;
    /// Returns the minimum time between two edits that only show progress.
    fn min_edit_interval(&self) -> Duration;
    /// Returns the time of silence after which a working turn shows a sign of life, if the service
    /// needs one.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }
    /// Splits a card into pieces that the service accepts; the buttons are on the last piece.
    fn split_card(&self, card: &PostCard) -> Vec<PostCard>;
    /// Shows the post, and returns the name of the post at the service.
    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>>;
}
