//! The interface between the common code and one service: the events that a service's inbound side
//! delivers, and the posts that its outbound side shows.
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

/// An event from a service, parsed into a form that is the same for all services.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "few exist at once, and most are messages"
)]
pub enum IncomingEvent {
    Message(IncomingMessage),
    /// A person pressed a button of a post, or wrote a text that stands for the button.
    ButtonPressed {
        delivery: String,
        approval: ApprovalId,
        choice: String,
        requester: Requester,
    },
    /// A person stopped the agent's turn, with a stop button or in the service's own way.
    StopRequested {
        delivery: String,
        key: String,
        requester: Requester,
    },
    /// A person deleted a message in the service.
    MessageDeleted {
        key: String,
        source: String,
        /// The message's author, if known. The service has already allowed the deletion, so Regatta
        /// does not check permissions.
        requester: Requester,
    },
    /// A person asked to retry the landing of a conversation's work.
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

/// A message that a person wrote in a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncomingMessage {
    /// The service's id of the message. It is the same if the service delivers the message again.
    pub delivery: String,
    /// The channel or repository, in the form that `[[bridges.map]]` uses.
    pub channel: String,
    pub thread: String,
    /// Key of the conversation to which the message belongs. It is made from the thread and the
    /// agent's name.
    pub key: String,
    pub address: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub author: Requester,
    /// The text of the message, without the mention of the agent.
    pub text: String,
    pub source: String,
    pub mentions_agent: bool,
    /// Set if the message mentions or answers another agent or person, and not this agent.
    pub addresses_another: bool,
    /// The visible text of the thread before the message, if the settings ask for it.
    pub context: Option<String>,
    /// The names of the files that are attached to the message.
    pub attachments: Vec<String>,
    /// The pull request to review, if the message asks for a review.
    pub pull: Option<PullRequest>,
}

/// The result of handling a webhook request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// The request is not authentic, or cannot be accepted at present. The service gets this status
    /// and reason.
    Refused { status: u16, why: &'static str },
    /// A text that the service expects as the response, for example to verify the address.
    Answer(String),
    /// The events that the request contains; empty if the bridge ignores them.
    Events(Vec<IncomingEvent>),
}

/// The receiving side of a bridge: gets events from one service.
pub trait Inbound: Send + Sync + 'static {
    /// Runs as long as the bridge: serves a WebSocket, polls, or searches for missed deliveries,
    /// depending on the service.
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()>;
    /// Handles a webhook request of the service. `body` is the raw body, because the signature
    /// covers its bytes.
    fn receive<'a>(
        &'a self,
        intake: &'a Intake,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> ServiceFuture<'a, ReceiveOutcome>;
    /// Returns the maximum size of a webhook request of this service, in bytes.
    fn max_request_bytes(&self) -> usize {
        5 * 1024 * 1024
    }
}

/// The reason why a call to a service failed, such as showing a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// The service asks to wait for this long before the next call.
    RetryAfter(Duration),
    /// The result of the call is unknown, so the post may exist. It is looked up before it is sent
    /// again.
    OutcomeUnknown(String),
    /// The service will never accept the post, for this reason.
    Rejected(String),
    /// The service rejects the credentials. No post is sent until a person has fixed them.
    Unauthorized(String),
}

impl ServiceError {
    /// Returns whether the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            ServiceError::RetryAfter(_) | ServiceError::OutcomeUnknown(_)
        )
    }
}

/// A request to create or edit one message of a post. A long post is split into several messages.
#[derive(Clone, Debug)]
pub struct SendRequest {
    pub address: BTreeMap<String, String>,
    /// Regatta's own id of the post, the same each time it is sent. In a service without
    /// idempotency keys, the post is searched by this id.
    pub post_mark: String,
    /// Set if the post may already exist in the service although no call confirmed it.
    pub may_exist: bool,
    /// The service's name of the existing post; `None` if the post is new.
    pub existing_name: Option<String>,
    pub stage: u32,
    pub content: SendContent,
}

/// The thing to create or show in the service.
#[derive(Clone, Debug, PartialEq)]
pub enum SendContent {
    /// A reaction (emoji) on a message, which shows that the agent has seen it.
    Reaction {
        source: String,
    },
    Card(PostCard),
    /// A pull request to open from the branch `head` onto `base`.
    PullRequest {
        title: String,
        body: String,
        head: String,
        base: String,
    },
}

/// A message of an agent in CommonMark, with its plan, buttons and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PostCard {
    pub tone: CardTone,
    pub text: String,
    pub plan: Vec<(String, ToolStatus)>,
    /// One line that says what the agent is doing at present.
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
    /// The value that the service sends back when a person presses the button, such as `allow:Q7`
    /// or `stop:V3`.
    pub value: String,
    pub is_dangerous: bool,
}

/// The posting side of a bridge: shows an agent's posts in one service.
pub trait Outbound: Send + Sync + 'static {
    /// Returns the rate limits that one call for this post counts against.
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit>;
    /// Returns the minimum time between two edits of a post that only show progress.
    fn min_edit_interval(&self) -> Duration;
    /// Returns the time without any post after which a working turn must show something, so that
    /// the service does not consider it dead; `None` if the service has no such rule.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }
    /// Splits a card (the content of a post) into several that the service accepts. The buttons are
    /// on the last one.
    fn split_card(&self, card: &PostCard) -> Vec<PostCard>;
    /// Creates or edits the post in the service. Returns the service's name of the post.
    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>>;
}
