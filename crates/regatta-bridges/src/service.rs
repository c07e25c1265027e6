//! The interface between the common code and the code for one chat service. The service's inbound
//! code delivers events, and its outbound code shows posts.
//!
//! The code for each service is in one folder with the modules `inbound` (parses events),
//! `outbound` (shows posts) and `api` (calls the service). Everything else is the same for all
//! services: permissions, recognising repeated deliveries, and the order and rate of posts.

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

pub(crate) type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An event from a service, parsed into a form that is the same for all services.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "few exist at once, and most are messages"
)]
pub(crate) enum IncomingEvent {
    Message(IncomingMessage),
    /// A person pressed a button of a post, or wrote a text command that means the same as the
    /// button.
    ButtonPressed {
        delivery: String,
        approval: ApprovalId,
        choice: String,
        requester: Requester,
    },
    /// A person stopped the agent's turn, with a stop button or with the service's own function for
    /// stopping an agent.
    StopRequested {
        delivery: String,
        key: String,
        requester: Requester,
    },
    /// A person deleted a message in the service.
    MessageDeleted {
        key: String,
        source: String,
        /// The author of the deleted message, if known. Regatta does not check the author's
        /// permissions, because the service has already allowed the deletion.
        requester: Requester,
    },
    /// A person requested another attempt to merge a conversation's work into the trunk.
    RetryRequested {
        delivery: String,
        key: String,
        requester: Requester,
    },
}

impl IncomingEvent {
    /// Returns the event of a pressed button of a conversation, or `None` if there is no such
    /// button.
    pub(crate) fn from_button(
        choice: &str,
        delivery: String,
        key: String,
        requester: Requester,
    ) -> Option<IncomingEvent> {
        match choice {
            "stop" => Some(IncomingEvent::StopRequested {
                delivery,
                key,
                requester,
            }),
            "land" => Some(IncomingEvent::RetryRequested {
                delivery,
                key,
                requester,
            }),
            _ => None,
        }
    }

    /// Returns the person who caused the event.
    pub(crate) fn requester(&self) -> &Requester {
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
pub(crate) struct IncomingMessage {
    /// The service's id of the message. If the service delivers the message again, the id is the
    /// same.
    pub(crate) delivery: String,
    /// The channel or repository of the message, in the form that the setting `[[bridges.map]]`
    /// uses.
    pub(crate) channel: String,
    pub(crate) thread: String,
    /// Key of the conversation to which the message belongs. The key contains the thread and the
    /// agent's name.
    pub(crate) key: String,
    pub(crate) address: BTreeMap<String, String>,
    pub(crate) title: String,
    pub(crate) url: Option<String>,
    pub(crate) author: Requester,
    /// The text of the message, without the mention of the agent.
    pub(crate) text: String,
    pub(crate) source: String,
    pub(crate) mentions_agent: bool,
    /// True if the message mentions or answers another agent or person, and not this agent.
    pub(crate) addresses_another: bool,
    /// The visible text of the thread before the message. Present only if the setting `context`
    /// requests this text.
    pub(crate) context: Option<String>,
    /// The names of the files that are attached to the message.
    pub(crate) attachments: Vec<String>,
    /// The pull request to review, if the message asks for a review.
    pub(crate) pull: Option<PullRequest>,
}

/// The result of handling a webhook request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveOutcome {
    /// The webhook request is not authentic, or cannot be accepted now. The service gets this HTTP
    /// status and reason.
    Refused { status: u16, why: &'static str },
    /// A text that the service expects as the response, for example when it verifies the address of
    /// the webhook.
    Answer(String),
    /// The events that the webhook request contains. Empty if the bridge ignores events of this
    /// kind.
    Events(Vec<IncomingEvent>),
}

impl ReceiveOutcome {
    pub(crate) const fn refused(status: u16, why: &'static str) -> ReceiveOutcome {
        ReceiveOutcome::Refused { status, why }
    }
}

/// Returns a header of a webhook request, or an empty text if the request does not have it.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// The receiving side of a bridge: gets events from one service.
pub(crate) trait Inbound: Send + Sync + 'static {
    /// Runs as long as the bridge runs. Depending on the service, serves a WebSocket, polls the
    /// service, or searches for missed deliveries.
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()>;
    /// Handles a webhook request of the service. `body` must be the raw body, because the signature
    /// is computed from its bytes.
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

/// The reason why a call to a service (for example to show a post) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceError {
    /// The service requests this waiting time before the next call.
    RetryAfter(Duration),
    /// Nobody knows whether the call succeeded, so the post may exist. The service is searched for
    /// the post before the post is sent again.
    OutcomeUnknown(String),
    /// The service will never accept the post, for this reason.
    Rejected(String),
    /// The service rejects the bridge's credentials. Posts cannot be sent until a person has fixed
    /// the credentials.
    Unauthorized(String),
}

impl ServiceError {
    /// Returns whether the same call may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(
            self,
            ServiceError::RetryAfter(_) | ServiceError::OutcomeUnknown(_)
        )
    }

    /// Returns the error as a sentence for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            ServiceError::RetryAfter(pause) => {
                format!("the service asks to wait {} s", pause.as_secs().max(1))
            }
            ServiceError::OutcomeUnknown(why)
            | ServiceError::Rejected(why)
            | ServiceError::Unauthorized(why) => why.clone(),
        }
    }
}

/// The pause before the next try to reach a service, which doubles with each failure in a row.
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    const MAX: Duration = Duration::from_secs(60);

    pub(crate) fn new(first: Duration) -> Backoff {
        Backoff { first, next: first }
    }

    /// Notes that the service could be reached.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits after a failure, at least as long as the service asked to wait. After a rejected
    /// credential, only a person can help, so the pause is the longest one.
    pub(crate) async fn wait_after(&mut self, error: &ServiceError) {
        let pause = match error {
            ServiceError::RetryAfter(pause) => self.next.max(*pause),
            ServiceError::Unauthorized(_) => Backoff::MAX,
            ServiceError::OutcomeUnknown(_) | ServiceError::Rejected(_) => self.next,
        };
        tokio::time::sleep(pause).await;
        self.next = (pause * 2).min(Backoff::MAX);
    }
}

/// A request to create or edit one message of a post. A long post is split into several messages.
#[derive(Clone, Debug)]
pub(crate) struct SendRequest {
    pub(crate) address: BTreeMap<String, String>,
    /// Regatta's own id of the post. The id is the same each time the post is sent. In a service
    /// without idempotency keys, Regatta uses this id to search for the post.
    pub(crate) post_mark: String,
    /// True if the post may already exist in the service although no call confirmed this.
    pub(crate) may_exist: bool,
    /// The name under which the service knows the existing post, or `None` for a new post.
    pub(crate) existing_name: Option<String>,
    pub(crate) content: SendContent,
}

/// The content of a [`SendRequest`]: what the bridge creates or updates in the service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SendContent {
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

/// The content of an agent's post in a chat service: a text in CommonMark, the agent's plan,
/// buttons and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PostCard {
    pub(crate) tone: CardTone,
    pub(crate) text: String,
    pub(crate) plan: Vec<(String, ToolStatus)>,
    /// One line that describes what the agent is doing now.
    pub(crate) activity: Option<String>,
    pub(crate) buttons: Vec<CardButton>,
    pub(crate) links: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CardTone {
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
pub(crate) struct CardButton {
    pub(crate) label: String,
    /// The value that the service sends back when a person presses the button, such as `allow:Q7`
    /// or `stop:V3`.
    pub(crate) value: String,
    pub(crate) is_dangerous: bool,
}

/// The posting side of a bridge: shows an agent's posts in one service.
pub(crate) trait Outbound: Send + Sync + 'static {
    /// Returns the rate limits of the service that apply to a call for this post.
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit>;
    /// Returns the minimum time between two edits of the same post that only show progress.
    fn min_edit_interval(&self) -> Duration;
    /// Returns the maximum time between two posts of an agent that works. After a longer silence,
    /// the service would treat the agent as dead. Returns `None` if the service has no such rule.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }
    /// Splits a card (the content of a post) into cards that are short enough for the service. The
    /// last card has the buttons.
    fn split_card(&self, card: &PostCard) -> Vec<PostCard>;
    /// Creates or edits the post in the service. Returns the name under which the service knows the
    /// post.
    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>>;
}
