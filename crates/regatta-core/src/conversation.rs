//! Conversations: a thread of an outside service, bound to one agent's session in a workspace of its own.
//!
//! The turns of a conversation are attempts at one task. Between two turns nothing runs: the task rests, with its
//! workspace and its session, until somebody writes again. The output for people is a list of posts with stages. A
//! bridge shows the latest stage of each post, in order, and reports it. So an outdated stage is never sent, and a
//! crash neither loses a post nor posts it twice.
//!
//! Each incoming message has a delivery key. The key is recorded in the same commit as the consequences of the
//! message, or not at all (B1).

mod post; // posts for people
pub mod review; // requests for reviews
mod turn; // one prompt and its outcome

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::bus::{self, Message};
use crate::command::{Actor, Outcome};
use crate::event::{Event, facts};
use crate::ids::{AgentName, ApprovalId, AttemptId, CommitId, ConversationId, MessageId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::session::{Answer, Want};
use crate::task::{self, Status};
use crate::{agent, approval, route};

pub use post::{Post, Shown, Tone, What};
pub(crate) use post::{asked, decided};
pub(crate) use turn::{Left, did_not_land, lost, returned, settled, turned};
pub use turn::{Turn, TurnState, Work};

/// An outside service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Slack,
    Github,
    Linear,
    Telegram,
}

impl Service {
    pub const ALL: [Service; 4] = [Service::Slack, Service::Github, Service::Linear, Service::Telegram];

    pub fn name(self) -> &'static str {
        match self {
            Service::Slack => "slack",
            Service::Github => "github",
            Service::Linear => "linear",
            Service::Telegram => "telegram",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A person in an outside service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Author {
    /// The service's id of the person.
    pub id: String,
    /// The name that people see.
    pub name: String,
}

/// The receiver of a message in a thread that mentions no agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FollowUps {
    /// The agent that is alone in the thread. With several agents, the message must mention one.
    #[default]
    Mention,
    /// The agent that was addressed last.
    #[serde(alias = "last_active")]
    Last,
    /// Every agent in the thread.
    All,
    /// No agent.
    Never,
}

/// The destination of a turn's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// The changes are kept until somebody says `land`.
    #[default]
    Review,
    /// The changes go to the landing queue.
    Land,
    /// The branch of the changes is pushed, and a pull request is opened from it.
    Pull,
}

/// A request of a person who may not ask for work, until an operator has decided on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    pub by: Author,
    pub text: String,
    pub source: String,
    pub wall: u64,
}

/// A pull request that shows a conversation's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pull {
    pub number: u64,
    pub url: String,
    /// The thread of the pull request, in the form of thread keys. A message there goes to the agent that opened
    /// the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The branch of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// The outcome of a landing of a conversation's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "came")]
pub enum LandingEnd {
    /// This work is on the trunk, as that commit.
    Landed { work: CommitId, commit: CommitId },
    /// This work did not land, for now.
    Failed { work: CommitId, reason: String },
}

impl LandingEnd {
    /// Returns the work that was landing.
    pub fn work(&self) -> &CommitId {
        match self {
            LandingEnd::Landed { work, .. } | LandingEnd::Failed { work, .. } => work,
        }
    }
}

/// The part of a conversation's work that is on the remote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pushed {
    pub commit: CommitId,
    pub trouble: Option<String>,
}

/// A thread of an outside service, bound to one agent's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conversation {
    pub id: ConversationId,
    /// The key of the thread, followed by the agent's name: `slack:T1:C2:17.3:claude`.
    pub key: String,
    pub service: Service,
    pub agent: AgentName,
    pub project: ProjectName,
    /// The thread. Other agents may be in it too.
    pub thread: String,
    /// The address of the thread for the service's API, in the service's own terms.
    pub place: BTreeMap<String, String>,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default)]
    pub deliver: Deliver,
    /// Instructions for the agent from the settings of its channel or repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The task at which the turns are attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The last turns, the latest last. Of older turns only the number is known.
    pub turns: Vec<Turn>,
    pub turn_count: u64,
    /// Posts that people see or will see, the latest last.
    pub posts: Vec<Post>,
    pub post_count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<Pushed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// The outcome of the last landing of the conversation's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing_end: Option<LandingEnd>,
    /// Messages that this conversation posted on the bus and whose answers belong into the thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<MessageId>,
    /// The revision at which somebody last addressed the conversation.
    pub addressed: u64,
    pub idle_ms: u64,
    /// The time at which the conversation counts as idle, on the fleet clock. Absent while it has work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_at: Option<u64>,
    /// The workspace and the session were removed. The next message starts with new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// The conversation is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    pub created_wall: u64,
    pub updated_wall: u64,
}

impl Conversation {
    /// Returns the turn that is under way, or that waits for its task to start.
    pub fn working(&self) -> Option<&Turn> {
        self.turns.iter().find(|it| it.state == TurnState::Working)
    }

    /// Returns the number of prompts that wait for the turn under way to end.
    pub fn queued(&self) -> usize {
        self.turns.iter().filter(|it| it.state == TurnState::Queued).count()
    }

    /// Returns whether people can talk to the agent in this thread, which is the conversation's own thread or the
    /// thread of its pull request at the same service.
    pub fn is_in(&self, thread: &str) -> bool {
        let pull = self.pull.as_ref().and_then(|it| it.thread.as_deref());
        self.thread == thread || pull == Some(thread) && thread.split(':').next() == Some(self.service.name())
    }

    /// Returns the posts that must still be shown, oldest first.
    pub fn unshown(&self) -> impl Iterator<Item = &Post> {
        self.posts.iter().filter(|it| it.is_due())
    }
}

/// The record of an accepted delivery. The same delivery is never accepted again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The service, the agent and the service's own id of the delivery.
    pub key: String,
    pub until_at: u64,
}

facts! {
    /// A conversation began, went on, or was shown.
    Changed { conversation: Arc<Conversation> }
    /// Nobody wrote for a long time, so the workspace and the session are removed.
    Expired { conversation: ConversationId, workspace: Option<AttemptId> }
    Taken { delivery: Delivery }
    Forgotten { delivery: String }
    /// The branch is to be pushed.
    Pushing { conversation: ConversationId, commit: CommitId }
}

/// A message in a thread, as a service's bridge understood it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hear {
    pub delivery: String,
    pub service: Service,
    pub agent: AgentName,
    pub project: ProjectName,
    pub key: String,
    pub thread: String,
    pub place: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub author: Author,
    /// The author may ask for work.
    pub may: bool,
    /// An author who may not ask for work gets a reply that says so.
    pub refuse_aloud: bool,
    pub text: String,
    /// The service's id of the message.
    pub source: String,
    /// The message mentions this agent.
    pub called: bool,
    /// The message addresses another agent or a person.
    pub calls_another: bool,
    pub follow_ups: FollowUps,
    pub deliver: Deliver,
    pub prompt: Option<String>,
    /// The visible thread, if the agent shall see it.
    pub context: Option<String>,
    /// Names of attached files. The agent does not get their content.
    #[serde(default)]
    pub attachments: Vec<String>,
    /// The pull request that shall be reviewed, if Regatta did not open it.
    #[serde(default)]
    pub pull: Option<review::PullRequest>,
    pub idle_ms: u64,
}

/// The outcome of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "heard")]
pub enum Heard {
    /// The message was handled before.
    Again,
    /// The message is not for this agent, or too many requests are waiting for an operator.
    NotForUs,
    /// An operator must allow the request first.
    Held {
        conversation: ConversationId,
    },
    Stopped {
        conversation: ConversationId,
    },
    /// The message was a command and is carried out.
    Commanded {
        conversation: ConversationId,
    },
    /// A turn begins with the message, after `ahead` other turns.
    Prompted {
        conversation: ConversationId,
        turn: u64,
        ahead: usize,
    },
}

/// A request about conversations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
#[allow(clippy::large_enum_variant, reason = "few are under way at once, and none is kept")]
pub enum Ask {
    Hear(Hear),
    /// Ends the turn under way, and drops the messages that wait behind it.
    Stop {
        conversation: ConversationId,
        by: String,
        delivery: Option<String>,
    },
    /// Drops a message that was deleted before its turn began.
    Withdraw {
        conversation: ConversationId,
        source: String,
    },
    /// Accepts held requests as if their authors were allowed to ask.
    Accept {
        conversation: ConversationId,
    },
    /// Drops held requests.
    Refuse {
        conversation: ConversationId,
    },
    /// Ends a conversation for good.
    Close {
        conversation: ConversationId,
    },
    /// A bridge is about to make a post. After a crash, a post that was begun but not shown is searched for before
    /// it is made.
    Begin {
        conversation: ConversationId,
        post: u64,
    },
    /// A bridge shows a stage of a post, or reports why it never can.
    Show {
        conversation: ConversationId,
        post: u64,
        shown: Shown,
    },
    /// The branch was pushed, or could not be pushed.
    Push {
        conversation: ConversationId,
        pushed: Pushed,
    },
    /// A pull request for the work was opened.
    Open {
        conversation: ConversationId,
        pull: Pull,
    },
}

/// The time for which a delivery is remembered, longer than any service repeats one.
pub const DELIVERY_KEPT_MS: u64 = 8 * 24 * 3_600_000;
/// The time after which an idle conversation is closed.
const CLOSED_AFTER_MS: u64 = 30 * 24 * 3_600_000;
/// The largest number of turns that are kept with a conversation.
pub(crate) const MOST_TURNS: usize = 20;
/// The largest number of posts that are kept with a conversation.
pub(crate) const MOST_POSTS: usize = 40;
/// The largest number of waiting prompts in one conversation.
const MOST_QUEUED: usize = 20;
/// The largest number of held requests of one conversation.
const MOST_HELD: usize = 5;
/// The largest number of conversations that have only held requests.
const MOST_HELD_THREADS: usize = 200;
/// The largest text of a message, in bytes.
pub const LONGEST_TEXT: usize = 64 * 1024;

/// Carries out a request about conversations.
pub fn run(draft: &mut Draft, ask: Ask, now: Now) -> Result<Outcome, Refusal> {
    match ask {
        Ask::Hear(it) => return Ok(Outcome::Heard(hear(draft, it, now)?)),
        Ask::Stop { conversation, by, delivery } => {
            if let Some(delivery) = delivery
                && !take(draft, &delivery, now)
            {
                return Ok(Outcome::Done);
            }
            turn::stop(draft, conversation, &by, now)?;
        }
        Ask::Withdraw { conversation, source } => turn::withdraw(draft, conversation, &source, now)?,
        Ask::Accept { conversation } => accept(draft, conversation, now)?,
        Ask::Refuse { conversation } => {
            let mut it = find(draft.board(), conversation)?;
            it.held.clear();
            change(draft, it, now);
        }
        Ask::Close { conversation } => close(draft, conversation, "the conversation was closed", now)?,
        Ask::Begin { conversation, post } => post::begin(draft, conversation, post, now)?,
        Ask::Show { conversation, post, shown } => post::show(draft, conversation, post, shown, now)?,
        Ask::Push { conversation, pushed } => {
            let mut it = find(draft.board(), conversation)?;
            if let Some(trouble) = &pushed.trouble {
                let text =
                    format!("The branch could not be pushed: {trouble}. The work is kept; see regatta bridge list");
                post::note(&mut it, Tone::Trouble, text);
            }
            it.pushed = Some(pushed);
            post::pull(&mut it);
            change(draft, it, now);
        }
        Ask::Open { conversation, pull } => {
            let mut it = find(draft.board(), conversation)?;
            it.pull = Some(pull);
            post::restage_last_turn(&mut it);
            change(draft, it, now);
        }
    }
    Ok(Outcome::Done)
}

/// Returns the open conversation with that number.
pub fn find(board: &Board, id: ConversationId) -> Result<Conversation, Refusal> {
    board.conversations.get(&id).map(|it| Conversation::clone(it)).ok_or_else(|| {
        Refusal::missing(format!("there is no open conversation {id}"), "see them: regatta bridge conversations")
    })
}

/// Returns the open conversation with this key. On a pull request, an agent continues the conversation that opened
/// it, so a key of the pull request's thread also finds that conversation.
pub fn by_key<'a>(board: &'a Board, key: &str) -> Option<&'a Arc<Conversation>> {
    let own = board.conversations.values().find(|it| it.key == key);
    own.or_else(|| {
        let (thread, agent) = key.rsplit_once(':')?;
        board.conversations.values().find(|it| it.agent.as_str() == agent && it.is_in(thread))
    })
}

/// Returns the conversation whose turns are attempts at `task`.
fn of_task(board: &Board, task: TaskId) -> Option<Conversation> {
    board.conversations.values().find(|it| it.task == Some(task)).map(|it| Conversation::clone(it))
}

/// Records a changed conversation, with its posts and its idle time brought up to date.
pub(super) fn change(draft: &mut Draft, mut it: Conversation, now: Now) {
    it.updated_wall = now.wall;
    post::restage_queued(&mut it);
    turn::trim(&mut it);
    post::trim(&mut it);
    let busy = it.turns.iter().any(|it| matches!(it.state, TurnState::Working | TurnState::Queued));
    it.idle_at = if busy { None } else { Some(it.idle_at.unwrap_or(now.at + it.idle_ms)) };
    draft.record(Event::ConversationChanged(Changed { conversation: it.into() }));
}

/// Records a delivery. Returns `false` if it was recorded before (B1).
fn take(draft: &mut Draft, key: &str, now: Now) -> bool {
    if draft.board().deliveries.contains_key(key) {
        return false;
    }
    let delivery = Delivery { key: key.to_owned(), until_at: now.at + DELIVERY_KEPT_MS };
    draft.record(Event::DeliveryTaken(Taken { delivery }));
    true
}

/// Removes a delivery whose time has passed.
pub(crate) fn forget(draft: &mut Draft, key: &str, now: Now) {
    if draft.board().deliveries.get(key).is_some_and(|it| *it <= now.at) {
        draft.record(Event::DeliveryForgotten(Forgotten { delivery: key.to_owned() }));
    }
}

/// Returns whether a message that mentions no agent is for this agent. The decision is made here, because each of
/// several apps receives every message.
fn follows(board: &Board, ask: &Hear, own: Option<&Conversation>) -> bool {
    let Some(own) = own.filter(|it| it.turn_count > 0) else { return false };
    if ask.calls_another {
        return false;
    }
    let in_thread: Vec<_> =
        board.conversations.values().filter(|it| it.is_in(&ask.thread) && it.turn_count > 0).collect();
    match (ask.follow_ups, in_thread.len()) {
        (FollowUps::Never, _) => false,
        (FollowUps::All, _) | (FollowUps::Mention | FollowUps::Last, 0 | 1) => true,
        (FollowUps::Mention, _) => false,
        (FollowUps::Last, _) => in_thread.iter().all(|it| it.addressed <= own.addressed),
    }
}

/// Handles a message in a thread.
fn hear(draft: &mut Draft, ask: Hear, now: Now) -> Result<Heard, Refusal> {
    let board = draft.board();
    if board.deliveries.contains_key(&ask.delivery) {
        return Ok(Heard::Again);
    }
    let known = by_key(board, &ask.key).map(|it| Conversation::clone(it));
    if !ask.called && !follows(board, &ask, known.as_ref()) {
        return Ok(Heard::NotForUs);
    }
    if !board.projects.contains_key(&ask.project) {
        return Err(Refusal::NoSuchProject { project: ask.project });
    }
    agent::find(board, &ask.agent)?;
    let waiting = |it: &&Arc<Conversation>| !it.held.is_empty() && it.turn_count == 0;
    if !ask.may && known.is_none() && board.conversations.values().filter(waiting).count() >= MOST_HELD_THREADS {
        return Ok(Heard::NotForUs); // protects the operator against a flood of requests
    }
    take(draft, &ask.delivery, now);
    let mut it = known.unwrap_or_else(|| fresh(draft.board(), &ask, now));
    let id = it.id;
    if !ask.may {
        if it.held.len() < MOST_HELD {
            let text = ask.text.chars().take(2_000).collect();
            it.held.push(Held { by: ask.author.clone(), text, source: ask.source.clone(), wall: now.wall });
        }
        let said = it.posts.iter().any(|it| matches!(&it.what, What::Note { tone: Tone::Refusal, .. }));
        if ask.refuse_aloud && !said {
            let text = "Only people on this project's list can ask for work here. An operator has been notified.";
            post::note(&mut it, Tone::Refusal, text.into());
        }
        change(draft, it, now);
        return Ok(Heard::Held { conversation: id });
    }
    (it.deliver, it.prompt, it.idle_ms) = (ask.deliver, ask.prompt.clone(), ask.idle_ms);
    it.place.extend(ask.place.clone());
    it.idle_at = Some(now.at + ask.idle_ms);
    it.addressed = draft.next_revision();
    if ask.text.len() > LONGEST_TEXT {
        let text = "This message is longer than 64 KiB, so it was ignored. Shorten it, or put the text into a file.";
        post::note(&mut it, Tone::Trouble, text.into());
        change(draft, it, now);
        return Ok(Heard::Commanded { conversation: id });
    }
    let mut text = ask.text.trim().to_owned();
    match command(&text) {
        Some(Word::Stop) => {
            change(draft, it, now);
            turn::stop(draft, id, &ask.author.name, now)?;
            return Ok(Heard::Stopped { conversation: id });
        }
        Some(Word::Land) if it.task.is_some() => {
            post::seen(&mut it, &ask.source);
            change(draft, it, now);
            turn::land(draft, id, &ask.author, now)?;
            return Ok(Heard::Commanded { conversation: id });
        }
        Some(Word::Router) => {
            post::seen(&mut it, &ask.source);
            change(draft, it, now);
            tell_router(draft, id, &ask.author, text, now)?;
            return Ok(Heard::Commanded { conversation: id });
        }
        _ => {}
    }
    if let Some((approval, answer)) = answers(draft.board(), &it, &text) {
        post::seen(&mut it, &ask.source);
        let by = Actor::Person(format!("{}:{}", it.service, ask.author.name));
        change(draft, it, now);
        let verdict = approval::Verdict { answer, reach: approval::Reach::Once, by };
        approval::decide(draft, approval, &verdict, now)?;
        return Ok(Heard::Commanded { conversation: id });
    }
    if text.is_empty() && ask.context.is_none() {
        let note = if ask.attachments.is_empty() {
            "Say what is to be done, in the same message."
        } else {
            "I cannot open attachments. Say in words what is to be done."
        };
        post::note(&mut it, Tone::Plain, note.into());
        change(draft, it, now);
        return Ok(Heard::Commanded { conversation: id });
    }
    if !ask.attachments.is_empty() {
        let names = task::one_line(&ask.attachments.join(", "), 300);
        text += &format!("\n\n(Attached to this message, and not readable for you: {names})");
        let note = format!("I cannot open attachments, so I go on without {names}. Paste what matters as text.");
        post::note(&mut it, Tone::Plain, note);
    }
    if it.queued() >= MOST_QUEUED {
        let text = format!("{MOST_QUEUED} messages already wait here, so this one was ignored.");
        post::note(&mut it, Tone::Trouble, text);
        change(draft, it, now);
        return Ok(Heard::Commanded { conversation: id });
    }
    let has_work = turn::looks_at(draft.board(), &it, &text).is_some();
    if let Some(why) = review::nothing_to_review(&it, &ask, has_work) {
        post::note(&mut it, Tone::Trouble, why);
        change(draft, it, now);
        return Ok(Heard::Commanded { conversation: id });
    }
    let (by, source, place, context) = (ask.author, ask.source, ask.place, ask.context);
    let said = turn::Said { by, text, source, place, context, pull: ask.pull };
    let (n, ahead) = turn::queue(draft, it, said, now)?;
    Ok(Heard::Prompted { conversation: id, turn: n, ahead })
}

/// Returns the approval and the answer that a message gives, if its agent waits for an answer. Only certain words
/// allow or deny a permission request; every other text is another prompt.
fn answers(board: &Board, it: &Conversation, text: &str) -> Option<(ApprovalId, Answer)> {
    let id = waits_for(board, it)?;
    let plain = text.trim().trim_end_matches(['.', '!']).to_ascii_lowercase();
    let answer = match &board.approvals.get(&id)?.ask.want {
        Want::Question { .. } if !text.is_empty() => Answer::Text { text: text.to_owned() },
        Want::Permission { .. } => match plain.as_str() {
            "allow" | "yes" | "approve" | "approved" | "ok" => Answer::Allow,
            "deny" | "no" | "reject" => Answer::Deny { words: None },
            _ => return None,
        },
        Want::Question { .. } => return None,
    };
    Some((id, answer))
}

/// Returns a new conversation for a message.
fn fresh(board: &Board, ask: &Hear, now: Now) -> Conversation {
    Conversation {
        id: ConversationId(board.counters.conversation + 1),
        key: ask.key.clone(),
        service: ask.service,
        agent: ask.agent.clone(),
        project: ask.project.clone(),
        thread: ask.thread.clone(),
        place: ask.place.clone(),
        title: task::one_line(&ask.title, 200),
        url: ask.url.clone(),
        deliver: ask.deliver,
        prompt: ask.prompt.clone(),
        task: None,
        turns: vec![],
        turn_count: 0,
        posts: vec![],
        post_count: 0,
        held: vec![],
        pushed: None,
        pull: None,
        landing_end: None,
        said: vec![],
        addressed: 0,
        idle_ms: ask.idle_ms,
        idle_at: None,
        expired: false,
        closed: false,
        created_wall: now.wall,
        updated_wall: now.wall,
    }
}

/// A command in a thread that Regatta itself carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Stop,
    Land,
    Router,
}

/// Returns the command in a message, if it is one.
fn command(text: &str) -> Option<Word> {
    let plain = text.trim().trim_end_matches(['.', '!']).to_ascii_lowercase();
    match plain.as_str() {
        "stop" | "cancel" | "!stop" => Some(Word::Stop),
        "land" | "!land" | "land it" | "merge it" => Some(Word::Land),
        _ => match route::read(text, "") {
            route::Asked::Plain(_) => None,
            _ => Some(Word::Router),
        },
    }
}

/// Passes a command to the router. The router's answer is posted in the thread.
fn tell_router(draft: &mut Draft, id: ConversationId, by: &Author, text: String, now: Now) -> Result<(), Refusal> {
    let mut it = find(draft.board(), id)?;
    let sender = Actor::Person(format!("{}:{}", it.service, by.name));
    let post = bus::Post { channel: bus::channel_of(&it.project), text, labels: vec![], reply_to: None };
    let message = bus::post_made(draft, post, sender, now)?;
    it.said.push(message.id);
    if it.said.len() > 20 {
        it.said.remove(0);
    }
    let project = it.project.clone();
    change(draft, it, now);
    route::intake(draft, &project, &message, now)
}

/// Posts a message of the bus in a thread, if it answers a command from that thread.
pub(crate) fn overheard(draft: &mut Draft, message: &Message, now: Now) {
    if matches!(message.sender, Actor::Person(_)) {
        return;
    }
    let answers = |it: &MessageId| message.reply_to == Some(*it) || message.thread == Some(*it);
    let found = draft.board().conversations.values().find(|it| it.said.iter().any(answers));
    if let Some(found) = found {
        let mut it = Conversation::clone(found);
        let text: String = message.text.chars().take(8_000).collect();
        let text = if message.sender == Actor::Regatta { text } else { format!("{}: {text}", message.sender) };
        post::note(&mut it, Tone::Plain, text);
        change(draft, it, now);
    }
}

/// Accepts the held requests of a conversation.
fn accept(draft: &mut Draft, id: ConversationId, now: Now) -> Result<(), Refusal> {
    let mut it = find(draft.board(), id)?;
    if it.held.is_empty() {
        return Err(Refusal::invalid(format!("{id} has no held requests"), "see held requests: regatta inbox"));
    }
    it.addressed = draft.next_revision();
    for held in std::mem::take(&mut it.held) {
        let (place, context) = (BTreeMap::new(), None);
        let said = turn::Said { by: held.by, text: held.text, source: held.source, place, context, pull: None };
        turn::queue(draft, it, said, now)?;
        it = find(draft.board(), id)?;
    }
    Ok(())
}

/// Removes the workspace and the session of an idle conversation. Much later, closes it.
pub(crate) fn tick(draft: &mut Draft, id: ConversationId, now: Now) -> Result<(), Refusal> {
    let Ok(mut it) = find(draft.board(), id) else { return Ok(()) };
    if it.idle_at.is_none_or(|at| at > now.at) {
        return Ok(());
    }
    if it.expired || it.task.is_none() && it.held.is_empty() && it.turn_count == 0 {
        return close(draft, id, "nobody wrote for a long time", now);
    }
    let open = it.task.and_then(|it| draft.board().tasks.get(&it)).cloned();
    let rests = open.as_ref().filter(|it| it.asleep || matches!(it.status, Status::InReview | Status::NeedsHuman));
    let workspace = rests.and_then(|it| it.resume.as_ref().map(|it| it.workspace));
    if let (Some(task), Some(_)) = (rests, workspace) {
        task::forget_resume(draft, task.id)?;
    }
    (it.expired, it.idle_at) = (true, Some(now.at + CLOSED_AFTER_MS));
    change(draft, it, now);
    draft.record(Event::ConversationExpired(Expired { conversation: id, workspace }));
    Ok(())
}

/// Ends a conversation and cancels its task.
fn close(draft: &mut Draft, id: ConversationId, reason: &str, now: Now) -> Result<(), Refusal> {
    let it = find(draft.board(), id)?;
    let open = it.task.and_then(|it| draft.board().tasks.get(&it)).cloned();
    // Finished work stays, because somebody may still want to land it. It has its own item in the inbox.
    if let Some(task) = open.filter(|it| !matches!(it.status, Status::InReview | Status::Landing)) {
        task::cancel(draft, task.id, reason)?;
    }
    let it = find(draft.board(), id)?;
    change(draft, Conversation { closed: true, ..it }, now);
    Ok(())
}

/// Returns the approval that a conversation's agent waits for, if there is one.
pub fn waits_for(board: &Board, it: &Conversation) -> Option<ApprovalId> {
    let task = it.task?;
    board.approvals.values().find(|it| it.task == task && it.is_open()).map(|it| it.id)
}
