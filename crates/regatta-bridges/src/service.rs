//! The port of a service: what its inbound side hands in, and what its outbound side is asked to show.
//!
//! A service is one folder with `inbound` (what came in, understood), `outbound` (what people see) and `api` (its
//! calls). Everything else is the same for all: who may ask, what is taken once, what is shown when, how fast.

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

/// Something that came in, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "few are under way at once, and most are what somebody said")]
pub enum Incoming {
    Said(Said),
    /// A button, or what stands for one.
    Chosen {
        delivery: String,
        approval: ApprovalId,
        choice: String,
        by: Standing,
    },
    /// A stop button, or the service's own way to say so.
    Stop {
        delivery: String,
        key: String,
        by: Standing,
    },
    /// A message was deleted.
    Deleted {
        key: String,
        source: String,
        /// The service let them delete it, so nothing more is asked of them.
        by: Standing,
    },
    /// Somebody wants the landing of a conversation's work tried again.
    Rerun {
        delivery: String,
        key: String,
        by: Standing,
    },
}

impl Incoming {
    /// Whose doing it is.
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

/// Somebody said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The service's own id of it: the same however often it is delivered.
    pub delivery: String,
    /// What mappings name: a channel, a repository.
    pub channel: String,
    pub thread: String,
    /// With the agent's name in it.
    pub key: String,
    pub place: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub by: Standing,
    /// Without the mention of the agent.
    pub text: String,
    pub source: String,
    pub called: bool,
    /// It is addressed to another agent or to a person.
    pub calls_another: bool,
    /// The visible thread, if it was asked for.
    pub context: Option<String>,
    /// The names of attached files.
    pub attachments: Vec<String>,
    /// The pull request that a review is asked for.
    pub pull: Option<PullRequest>,
}

/// What becomes of a request to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is not what it says it is, or not in time.
    Refused { status: u16, why: &'static str },
    /// Something the service wants back at once.
    Answer(String),
    /// What came in; nothing when it is of no interest.
    Events(Vec<Incoming>),
}

/// How a service takes things in.
pub trait Inbound: Send + Sync + 'static {
    /// Runs as long as the bridge does: a socket, a long poll, a look for what was missed.
    fn run<'a>(&'a self, desk: &'a Desk) -> Fut<'a, ()>;
    /// Takes a request to its route: the raw body, before anything has looked at it.
    fn receive<'a>(&'a self, desk: &'a Desk, headers: &'a HeaderMap, body: &'a [u8]) -> Fut<'a, Received>;
    /// The most bytes that a request to its route may have.
    fn largest(&self) -> usize {
        5 * 1024 * 1024
    }
}

/// Why something could not be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The service says: not before.
    Later(Duration),
    /// It may or may not be there: it is looked for before it is sent again.
    Unknown(String),
    /// It will never be taken.
    Never(String),
    /// The credentials do not work: nothing goes until somebody has mended them.
    Locked(String),
}

impl Trouble {
    /// Whether asking again in a while may help.
    pub fn passes(&self) -> bool {
        matches!(self, Trouble::Later(_) | Trouble::Unknown(_))
    }
}

/// One thing to be shown, in one call.
#[derive(Clone, Debug)]
pub struct Shot {
    pub place: BTreeMap<String, String>,
    /// Ours, and the same whenever this is sent: by it a service that cannot tell is asked whether it is there.
    pub mark: String,
    /// It may be there already, though nobody said so.
    pub begun: bool,
    /// What it is there as; nothing when it is new.
    pub shown_as: Option<String>,
    pub stage: u32,
    pub sight: Sight,
}

/// What people see.
#[derive(Clone, Debug, PartialEq)]
pub enum Sight {
    /// A sign that a message was seen; `over` when its turn has ended.
    Seen {
        source: String,
    },
    Card(Card),
    /// A pull request from this branch to that.
    Pull {
        title: String,
        body: String,
        head: String,
        base: String,
    },
}

/// A message in CommonMark, with what goes with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    pub tone: Tone,
    pub text: String,
    pub plan: Vec<(String, ToolStatus)>,
    /// What it does at the moment, in a line.
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
    /// What comes back: `allow:Q7`, `stop:V3`.
    pub value: String,
    pub danger: bool,
}

/// How a service shows things.
pub trait Outbound: Send + Sync + 'static {
    /// The limits that one call for this counts against.
    fn limits(&self, shot: &Shot) -> Vec<Limit>;
    /// How long at least between two edits that only show how far something is.
    fn pace(&self) -> Duration;
    /// After how long of silence a turn that works says so again, where the service wants that.
    fn heartbeat(&self) -> Option<Duration> {
        None
    }
    /// A card in pieces that the service takes; the buttons are on the last.
    fn pieces(&self, card: &Card) -> Vec<Card>;
    /// Shows it, and says what it is there as.
    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>>;
}
