//! Conversations: people talk to an agent in a thread of an outside service, such as Slack. A
//! conversation connects such a thread with one session of one agent, in a workspace of its own.
//!
//! A turn is one message to the agent, with the work and the answer that follow. All turns of a
//! conversation are attempts at one task. Between turns nothing runs: the task keeps its workspace
//! and session until somebody writes again. The output for people is a list of posts. When the
//! content of a post changes, its stage number rises. A bridge (the connection to the service)
//! shows the latest stage of each post, in order, and reports that it is shown. Therefore no
//! outdated content is sent, and a crash neither loses a post nor posts it twice.
//!
//! The service gives each incoming message a delivery key. One transaction of the store records the
//! key and the effects of the message, so a message that the service sends twice has its effects
//! only once (B1).
//!
//! Not here: the services' own protocols, which are in `regatta-bridges`.

mod incoming; // messages in a thread
mod message_to_task; // a message becomes a turn, and the turn a task
mod post; // posts for people
pub mod review; // requests for reviews
mod turn; // one prompt and its outcome
mod turn_state; // the states of a turn and their changes
mod work_landing; // the landing of a conversation's work

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::command::CommandOutcome;
use crate::event::{Event, facts};
use crate::ids::{
    AgentName, ApprovalId, AttemptId, CommitId, ConversationId, MessageId, Now, ProjectName, TaskId,
};
use crate::refusal::Refusal;
use crate::task::{self, TaskStatus};

pub(crate) use incoming::on_bus_message;
use incoming::{accept_held, on_message};
pub use post::{NoteTone, PostContent, ShowOutcome, ThreadPost};
pub(crate) use post::{on_approval_asked, on_approval_decided};
pub use turn::{ConversationTurn, TurnWork};
pub(crate) use turn::{TurnResult, on_turn_finished};
pub use turn_state::{TurnEvent, TurnState};
pub(crate) use work_landing::{on_landing_failed, on_task_lost, on_task_returned, on_task_settled};

/// An outside service in which people can talk to agents.
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
    pub const ALL: [Service; 4] = [
        Service::Slack,
        Service::Github,
        Service::Linear,
        Service::Telegram,
    ];

    /// Returns the service's name, as keys and the API use it.
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

/// A person who writes in an outside service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Author {
    /// The id that the service gave the person.
    pub id: String,
    /// The person's name, as the service shows it.
    pub name: String,
}

/// Decides which agents in a thread get a message that mentions no agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FollowUps {
    /// The agent of the thread gets the message, if the thread has only one agent. Otherwise no
    /// agent gets the message.
    #[default]
    Mention,
    /// Only the agent to which somebody last wrote gets the message.
    #[serde(alias = "last_active")]
    Last,
    /// Every agent in the thread gets the message.
    All,
    /// No agent gets the message.
    Never,
}

/// The destination of the changes that a turn makes in the repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeDestination {
    /// The changes are kept until somebody writes `land` in the thread.
    #[default]
    Review,
    /// The changes enter the landing queue at once.
    Land,
    /// The changes are pushed as a branch, and a pull request is opened for this branch.
    Pull,
}

/// A request from a person who may not ask for work. The request is held until an operator accepts
/// or refuses the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldRequest {
    pub by: Author,
    pub text: String,
    pub source: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

/// The pull request that was opened for a conversation's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationPull {
    pub number: u64,
    pub url: String,
    /// The key of the pull request's own thread. A message there goes to the agent that opened the
    /// pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The branch from which the pull request was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// The end of the last landing of a conversation's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "came")]
pub enum ConversationLandingEnd {
    /// The commit `work` landed, and is on the trunk as `commit`.
    Landed { work: CommitId, commit: CommitId },
    /// The commit `work` did not land. The work may be fixed and tried again.
    Failed { work: CommitId, reason: String },
}

impl ConversationLandingEnd {
    /// Returns the commit that landed or failed to land, as it was before the landing.
    pub fn work(&self) -> &CommitId {
        match self {
            ConversationLandingEnd::Landed { work, .. }
            | ConversationLandingEnd::Failed { work, .. } => work,
        }
    }
}

/// The latest push of a conversation's work to the remote: the pushed commit, and in `failure` the
/// reason if the push failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PushedWork {
    pub commit: CommitId,
    #[serde(rename = "trouble")]
    pub failure: Option<String>,
}

/// A thread of an outside service, connected with one agent's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conversation {
    pub id: ConversationId,
    /// The key of the thread, followed by the agent's name: `slack:T1:C2:17.3:claude`.
    pub key: String,
    pub service: Service,
    pub agent: AgentName,
    pub project: ProjectName,
    /// The key of the thread, without the agent's name. Other agents may have conversations in the
    /// same thread.
    pub thread: String,
    /// The place of the thread in the service, as the service's API needs it, for example the
    /// channel and the thread's id.
    #[serde(rename = "place")]
    pub address: BTreeMap<String, String>,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default)]
    pub deliver: ChangeDestination,
    /// Extra instructions for the agent, from the settings of its channel or repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The task whose attempts are the turns of the conversation. `None` before the first turn, or
    /// when the task is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The latest turns, the newest last. Older turns are dropped, but `turn_count` includes them.
    pub turns: Vec<ConversationTurn>,
    pub turn_count: u64,
    /// The latest posts that people see or will see in the thread, the newest last.
    pub posts: Vec<ThreadPost>,
    pub post_count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<PushedWork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<ConversationPull>,
    /// The end of the last landing of the conversation's work. `None` if no landing has ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing_end: Option<ConversationLandingEnd>,
    /// Messages that this conversation posted in Regatta's own channels. Answers to these messages
    /// are shown in the thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "said")]
    pub bus_messages: Vec<MessageId>,
    /// The number of the event with which somebody last wrote to this agent. Of several agents in a
    /// thread, the agent with the highest number was addressed last.
    #[serde(rename = "addressed")]
    pub addressed_revision: u64,
    pub idle_ms: u64,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the
    /// conversation has been idle for too long. Absent while a turn runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "idle_at")]
    pub idle_deadline_fleet_ms: Option<u64>,
    /// True if the workspace and session were removed because nobody wrote for a long time. The
    /// next message starts with new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// True if the conversation has ended for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
}

impl Conversation {
    /// Returns the turn that the agent is working on, or the turn whose task is about to start.
    pub fn current_turn(&self) -> Option<&ConversationTurn> {
        self.turns
            .iter()
            .find(|turn| turn.state == TurnState::Working)
    }

    /// Returns the number of messages that wait until the current turn ends.
    pub fn queued_count(&self) -> usize {
        self.turns
            .iter()
            .filter(|turn| turn.state == TurnState::Queued)
            .count()
    }

    /// Returns whether the thread belongs to this conversation: it is the conversation's own
    /// thread, or the thread of its pull request at the same service.
    pub fn is_in_thread(&self, thread: &str) -> bool {
        let pull = self.pull.as_ref().and_then(|pull| pull.thread.as_deref());
        self.thread == thread
            || pull == Some(thread) && thread.split(':').next() == Some(self.service.name())
    }

    /// Returns the posts whose latest content people have not seen yet, oldest first.
    pub fn unshown_posts(&self) -> impl Iterator<Item = &ThreadPost> {
        self.posts.iter().filter(|post| post.is_due())
    }
}

/// A record that a message from a service was handled, so that the message is ignored if the
/// service sends it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// Identifies the delivery: the service, the agent and the service's own id of the message.
    pub key: String,
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
}

facts! {
    /// A conversation began, or something about it changed; `conversation` is its new state.
    ConversationChanged { conversation: Arc<Conversation> }
    /// Nobody wrote for a long time, so the conversation's workspace and session are removed.
    ConversationExpired { conversation: ConversationId, workspace: Option<AttemptId> }
    DeliveryTaken { delivery: DeliveryRecord }
    DeliveryForgotten { delivery: String }
    /// The branch with the conversation's work must be pushed at `commit`.
    ConversationPushing { conversation: ConversationId, commit: CommitId }
}

/// A message that somebody wrote in a thread, as the bridge to the service understood it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMessage {
    pub delivery: String,
    pub service: Service,
    pub agent: AgentName,
    pub project: ProjectName,
    pub key: String,
    pub thread: String,
    #[serde(rename = "place")]
    pub address: BTreeMap<String, String>,
    pub title: String,
    pub url: Option<String>,
    pub author: Author,
    /// True if the author is allowed to ask agents for work.
    #[serde(rename = "may")]
    pub may_ask_for_work: bool,
    /// True if an author who may not ask for work gets a reply that says so.
    #[serde(rename = "refuse_aloud")]
    pub should_reply_to_refused: bool,
    pub text: String,
    /// The id that the service gave the message.
    pub source: String,
    /// True if the message mentions this agent.
    #[serde(rename = "called")]
    pub mentions_agent: bool,
    /// True if the message mentions another agent or a person, and not this agent.
    #[serde(rename = "calls_another")]
    pub addresses_another: bool,
    pub follow_ups: FollowUps,
    pub deliver: ChangeDestination,
    pub prompt: Option<String>,
    /// The earlier messages of the thread, if the agent is to see them.
    pub context: Option<String>,
    /// Names of files that are attached to the message. The agent cannot read their content.
    #[serde(default)]
    pub attachments: Vec<String>,
    /// The pull request to review, if it was not opened by Regatta.
    #[serde(default)]
    pub pull: Option<review::PullRequest>,
    pub idle_ms: u64,
}

/// The result of handling a message from a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "heard")]
pub enum ThreadMessageOutcome {
    /// The same message was handled before, so this delivery was ignored.
    #[serde(rename = "again")]
    Duplicate,
    /// The message was ignored, because it is not for this agent or because too many requests are
    /// waiting for an operator.
    #[serde(rename = "not_for_us")]
    Ignored,
    /// The author may not ask for work, so the request waits until an operator (a person who
    /// decides such requests) accepts it.
    Held {
        conversation: ConversationId,
    },
    Stopped {
        conversation: ConversationId,
    },
    /// The message was handled without a turn: a command such as `land`, or an answer to the
    /// agent's question.
    Commanded {
        conversation: ConversationId,
    },
    /// The message is the prompt of a turn, which begins after `ahead` other turns.
    Prompted {
        conversation: ConversationId,
        turn: u64,
        ahead: usize,
    },
}

/// A request that concerns a conversation: a message in its thread, an action of a person, or a
/// report of the bridge that shows its posts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
#[allow(
    clippy::large_enum_variant,
    reason = "few commands exist at once, and none is stored"
)]
pub enum ConversationCommand {
    #[serde(rename = "hear")]
    HandleMessage(ThreadMessage),
    /// Stops the current turn, and drops the messages that wait until this turn ends.
    Stop {
        conversation: ConversationId,
        by: String,
        delivery: Option<String>,
    },
    /// Drops a message that its author deleted in the service before its turn began.
    Withdraw {
        conversation: ConversationId,
        source: String,
    },
    /// Accepts the held requests of a conversation. A held request comes from a person who may not
    /// ask for work.
    Accept { conversation: ConversationId },
    /// Drops the held requests of a conversation. A held request comes from a person who may not
    /// ask for work.
    Refuse { conversation: ConversationId },
    /// Ends a conversation for good.
    Close { conversation: ConversationId },
    /// A bridge (the connection to a service) is about to create a post in the service. If the
    /// daemon crashes before the post is reported as shown, the bridge checks whether the post
    /// exists before it creates the post again.
    #[serde(rename = "begin")]
    BeginPost {
        conversation: ConversationId,
        post: u64,
    },
}

/// A report about a conversation, from a bridge (the connection to a service) or the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask")]
pub enum ConversationReport {
    /// A bridge (the connection to a service) has shown the latest content of a post, or reports
    /// why the post can never be shown.
    #[serde(rename = "show")]
    Shown {
        conversation: ConversationId,
        post: u64,
        shown: ShowOutcome,
    },
    /// The branch with the conversation's work was pushed, or the push failed.
    #[serde(rename = "push")]
    Pushed {
        conversation: ConversationId,
        pushed: PushedWork,
    },
    /// A pull request for the conversation's work was opened.
    #[serde(rename = "open")]
    PullRequest {
        conversation: ConversationId,
        pull: ConversationPull,
    },
}

/// The time for which Regatta remembers that a message was handled. No service repeats a message
/// after such a long time.
const DELIVERY_RETENTION_MS: u64 = 8 * 24 * 3_600_000;
/// The time between the removal of an idle conversation's workspace and the closing of the
/// conversation: 30 days.
const CLOSE_DELAY_MS: u64 = 30 * 24 * 3_600_000;
/// Maximum number of turns that are kept with a conversation.
pub(crate) const MAX_TURNS: usize = 20;
/// Maximum number of posts that are kept with a conversation.
pub(crate) const MAX_POSTS: usize = 40;
/// Maximum number of messages in one conversation that wait until earlier turns end.
const MAX_QUEUED_PROMPTS: usize = 20;
/// Maximum number of held requests (from people who may not ask for work) in one conversation.
const MAX_HELD_REQUESTS: usize = 5;
/// Maximum number of conversations that consist only of held requests, so that operators (the
/// people who decide these requests) are not flooded.
const MAX_HELD_CONVERSATIONS: usize = 200;
/// Maximum size of a person's message in a thread, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Carries out a command about conversations and returns the answer for the caller.
pub fn run(
    draft: &mut Draft,
    command: ConversationCommand,
    now: Now,
) -> Result<CommandOutcome, Refusal> {
    match command {
        ConversationCommand::HandleMessage(message) => {
            let outcome = on_message(draft, message, now)?;
            return Ok(CommandOutcome::ThreadMessage(outcome));
        }
        ConversationCommand::Stop {
            conversation,
            by,
            delivery,
        } => {
            if let Some(delivery) = delivery
                && !record_delivery(draft, &delivery, now)
            {
                return Ok(CommandOutcome::Done);
            }
            turn::stop(draft, conversation, &by, now)?;
        }
        ConversationCommand::Withdraw {
            conversation,
            source,
        } => turn::withdraw(draft, conversation, &source, now)?,
        ConversationCommand::Accept { conversation } => accept_held(draft, conversation, now)?,
        ConversationCommand::Refuse { conversation } => {
            let mut conversation = find(draft.board(), conversation)?;
            conversation.held.clear();
            record_change(draft, conversation, now);
        }
        ConversationCommand::Close { conversation } => {
            close(draft, conversation, "the conversation was closed", now)?
        }
        ConversationCommand::BeginPost { conversation, post } => {
            post::begin_post(draft, conversation, post, now)?
        }
    }
    Ok(CommandOutcome::Done)
}

/// Applies a report about a conversation.
pub fn on_report(draft: &mut Draft, report: ConversationReport, now: Now) -> Result<(), Refusal> {
    match report {
        ConversationReport::Shown {
            conversation,
            post,
            shown,
        } => post::on_shown(draft, conversation, post, shown, now)?,
        ConversationReport::Pushed {
            conversation,
            pushed,
        } => {
            let mut conversation = find(draft.board(), conversation)?;
            if let Some(failure) = &pushed.failure {
                let text = format!(
                    "The branch could not be pushed: {failure}. The work is kept; see regatta \
                    bridge list"
                );
                post::add_note(&mut conversation, NoteTone::Trouble, text);
            }
            conversation.pushed = Some(pushed);
            post::add_pull_request(&mut conversation);
            record_change(draft, conversation, now);
        }
        ConversationReport::PullRequest { conversation, pull } => {
            let mut conversation = find(draft.board(), conversation)?;
            conversation.pull = Some(pull);
            post::restage_last_turn(&mut conversation);
            record_change(draft, conversation, now);
        }
    }
    Ok(())
}

/// Returns the open conversation with this id, or a refusal if there is none.
pub fn find(board: &Board, id: ConversationId) -> Result<Conversation, Refusal> {
    board
        .conversations
        .get(&id)
        .map(|conversation| Conversation::clone(conversation))
        .ok_or_else(|| {
            Refusal::missing(
                format!("there is no open conversation {id}"),
                "see the open conversations: regatta bridge conversations",
            )
        })
}

/// Returns the open conversation with this key. The key can also be the key of a pull request's
/// thread. In that thread, the agent continues the conversation in which it opened the pull
/// request.
pub fn find_by_key<'a>(board: &'a Board, key: &str) -> Option<&'a Arc<Conversation>> {
    let with_key = board
        .conversations
        .values()
        .find(|conversation| conversation.key == key);
    with_key.or_else(|| {
        let (thread, agent) = key.rsplit_once(':')?;
        board.conversations.values().find(|conversation| {
            conversation.agent.as_str() == agent && conversation.is_in_thread(thread)
        })
    })
}

/// Returns the conversation whose turns are attempts at `task`, if there is one.
fn find_by_task(board: &Board, task: TaskId) -> Option<Conversation> {
    board
        .conversations
        .values()
        .find(|conversation| conversation.task == Some(task))
        .map(|conversation| Conversation::clone(conversation))
}

/// Records a changed conversation. Before that, updates its posts, drops old turns and posts, and
/// sets or clears the deadline after which it counts as idle.
pub(super) fn record_change(draft: &mut Draft, mut conversation: Conversation, now: Now) {
    conversation.updated_unix_ms = now.unix_ms;
    post::restage_queued(&mut conversation);
    turn::trim_turns(&mut conversation);
    post::trim_posts(&mut conversation);
    let has_work = conversation
        .turns
        .iter()
        .any(|turn| matches!(turn.state, TurnState::Working | TurnState::Queued));
    conversation.idle_deadline_fleet_ms = if has_work {
        None
    } else {
        Some(
            conversation
                .idle_deadline_fleet_ms
                .unwrap_or(now.fleet_ms + conversation.idle_ms),
        )
    };
    draft.record(Event::ConversationChanged(ConversationChanged {
        conversation: conversation.into(),
    }));
}

/// Records that a message was handled. Returns `false` if it had been handled before (B1).
fn record_delivery(draft: &mut Draft, key: &str, now: Now) -> bool {
    if draft.board().deliveries.contains_key(key) {
        return false;
    }
    let delivery = DeliveryRecord {
        key: key.to_owned(),
        deadline_fleet_ms: now.fleet_ms + DELIVERY_RETENTION_MS,
    };
    draft.record(Event::DeliveryTaken(DeliveryTaken { delivery }));
    true
}

/// Forgets a handled message when it is so old that the service no longer repeats it.
pub(crate) fn forget_delivery(draft: &mut Draft, key: &str, now: Now) {
    if draft
        .board()
        .deliveries
        .get(key)
        .is_some_and(|delivery| *delivery <= now.fleet_ms)
    {
        draft.record(Event::DeliveryForgotten(DeliveryForgotten {
            delivery: key.to_owned(),
        }));
    }
}

/// Handles a conversation that has been idle for too long: removes its workspace and session, and
/// 30 days later closes it. A conversation that never had a turn is closed at once.
pub(crate) fn on_timer(draft: &mut Draft, id: ConversationId, now: Now) -> Result<(), Refusal> {
    let Ok(mut conversation) = find(draft.board(), id) else {
        return Ok(());
    };
    if conversation
        .idle_deadline_fleet_ms
        .is_none_or(|at| at > now.fleet_ms)
    {
        return Ok(());
    }
    if conversation.expired
        || conversation.task.is_none()
            && conversation.held.is_empty()
            && conversation.turn_count == 0
    {
        return close(draft, id, "nobody wrote for a long time", now);
    }
    let task = conversation
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned();
    let resting_task = task.as_ref().filter(|task| {
        task.resting || matches!(task.status, TaskStatus::InReview | TaskStatus::NeedsHuman)
    });
    let workspace =
        resting_task.and_then(|task| task.resume.as_ref().map(|resume| resume.workspace));
    if let (Some(task), Some(_)) = (resting_task, workspace) {
        task::forget_resume(draft, task.id)?;
    }
    conversation.expired = true;
    conversation.idle_deadline_fleet_ms = Some(now.fleet_ms + CLOSE_DELAY_MS);
    record_change(draft, conversation, now);
    draft.record(Event::ConversationExpired(ConversationExpired {
        conversation: id,
        workspace,
    }));
    Ok(())
}

/// Ends a conversation and cancels its task.
fn close(draft: &mut Draft, id: ConversationId, reason: &str, now: Now) -> Result<(), Refusal> {
    let conversation = find(draft.board(), id)?;
    let task = conversation
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned();
    // The task of finished work is not cancelled, because somebody may still want to land the work.
    // Such a task has its own item in the inbox.
    if let Some(task) =
        task.filter(|task| !matches!(task.status, TaskStatus::InReview | TaskStatus::Landing))
    {
        task::cancel(draft, task.id, reason)?;
    }
    let conversation = find(draft.board(), id)?;
    record_change(
        draft,
        Conversation {
            closed: true,
            ..conversation
        },
        now,
    );
    Ok(())
}

/// Returns an open permission request or question of the conversation's task, if there is one.
pub fn pending_approval(board: &Board, conversation: &Conversation) -> Option<ApprovalId> {
    let task = conversation.task?;
    board
        .approvals
        .values()
        .find(|approval| approval.task == task && approval.is_open())
        .map(|approval| approval.id)
}
