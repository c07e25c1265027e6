//! Conversations: a thread of an outside service, bound to one agent's session in a workspace of
//! its own.
//!
//! The turns of a conversation are attempts at one task. Between two turns nothing runs: the task
//! rests, with its workspace and its session, until somebody writes again. The output for people is
//! a list of posts with stages. A bridge shows the latest stage of each post, in order, and reports
//! it. Therefore an outdated stage is never sent, and a crash neither loses a post nor posts it
//! twice.
//!
//! Each incoming message has a delivery key. The key is recorded in the same commit as the
//! consequences of the message, or not at all (B1).
//!
//! Not here: the services' own protocols. The bridges are in a crate of their own.

mod incoming; // messages in a thread
mod post; // posts for people
mod prompt; // the texts that an agent gets
pub mod review; // requests for reviews
mod turn; // one prompt and its outcome
mod work_landing; // the landing of its work

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
pub use turn::{ConversationTurn, TurnState, TurnWork};
pub(crate) use turn::{TurnResult, on_turn_finished};
pub(crate) use work_landing::{on_landing_failed, on_task_lost, on_task_returned, on_task_settled};

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
    pub const ALL: [Service; 4] = [
        Service::Slack,
        Service::Github,
        Service::Linear,
        Service::Telegram,
    ];

    /// Returns the name of the service in keys and in the API.
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
pub enum ChangeDestination {
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
pub struct HeldRequest {
    pub by: Author,
    pub text: String,
    pub source: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

/// A pull request that shows a conversation's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationPull {
    pub number: u64,
    pub url: String,
    /// The thread of the pull request, in the form of thread keys. A message there goes to the
    /// agent that opened the pull request.
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
pub enum ConversationLandingEnd {
    /// This work is on the trunk, as that commit.
    Landed { work: CommitId, commit: CommitId },
    /// This work did not land, for now.
    Failed { work: CommitId, reason: String },
}

impl ConversationLandingEnd {
    /// Returns the work that was landing.
    pub fn work(&self) -> &CommitId {
        match self {
            ConversationLandingEnd::Landed { work, .. }
            | ConversationLandingEnd::Failed { work, .. } => work,
        }
    }
}

/// The part of a conversation's work that is on the remote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PushedWork {
    pub commit: CommitId,
    #[serde(rename = "trouble")]
    pub failure: Option<String>,
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
    #[serde(rename = "place")]
    pub address: BTreeMap<String, String>,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default)]
    pub deliver: ChangeDestination,
    /// Instructions for the agent from the settings of its channel or repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The task at which the turns are attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The last turns, the latest last. Of older turns only the number is known.
    pub turns: Vec<ConversationTurn>,
    pub turn_count: u64,
    /// Posts that people see or will see, the latest last.
    pub posts: Vec<ThreadPost>,
    pub post_count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<PushedWork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<ConversationPull>,
    /// The outcome of the last landing of the conversation's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing_end: Option<ConversationLandingEnd>,
    /// Messages that this conversation posted on the bus and whose answers belong into the thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "said")]
    pub bus_messages: Vec<MessageId>,
    /// The revision at which somebody last addressed the conversation.
    #[serde(rename = "addressed")]
    pub addressed_revision: u64,
    pub idle_ms: u64,
    /// The time at which the conversation counts as idle, on the fleet clock. Absent while it has
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "idle_at")]
    pub idle_deadline_fleet_ms: Option<u64>,
    /// The workspace and the session were removed. The next message starts with new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// The conversation is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
}

impl Conversation {
    /// Returns the turn that is under way, or that waits for its task to start.
    pub fn current_turn(&self) -> Option<&ConversationTurn> {
        self.turns
            .iter()
            .find(|turn| turn.state == TurnState::Working)
    }

    /// Returns the number of prompts that wait for the turn under way to end.
    pub fn queued_count(&self) -> usize {
        self.turns
            .iter()
            .filter(|turn| turn.state == TurnState::Queued)
            .count()
    }

    /// Returns whether people can talk to the agent in this thread, which is the conversation's own
    /// thread or the thread of its pull request at the same service.
    pub fn is_in_thread(&self, thread: &str) -> bool {
        let pull = self.pull.as_ref().and_then(|pull| pull.thread.as_deref());
        self.thread == thread
            || pull == Some(thread) && thread.split(':').next() == Some(self.service.name())
    }

    /// Returns the posts that must still be shown, oldest first.
    pub fn unshown_posts(&self) -> impl Iterator<Item = &ThreadPost> {
        self.posts.iter().filter(|post| post.is_due())
    }
}

/// The record of an accepted delivery. The same delivery is never accepted again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// The service, the agent and the service's own id of the delivery.
    pub key: String,
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
}

facts! {
    /// A conversation began, went on, or was shown.
    ConversationChanged { conversation: Arc<Conversation> }
    /// Nobody wrote for a long time, so the workspace and the session are removed.
    ConversationExpired { conversation: ConversationId, workspace: Option<AttemptId> }
    DeliveryTaken { delivery: DeliveryRecord }
    DeliveryForgotten { delivery: String }
    /// The branch is to be pushed.
    ConversationPushing { conversation: ConversationId, commit: CommitId }
}

/// A message in a thread, as a service's bridge understood it.
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
    /// The author may ask for work.
    #[serde(rename = "may")]
    pub may_ask_for_work: bool,
    /// An author who may not ask for work gets a reply that says so.
    #[serde(rename = "refuse_aloud")]
    pub should_reply_to_refused: bool,
    pub text: String,
    /// The service's id of the message.
    pub source: String,
    /// The message mentions this agent.
    #[serde(rename = "called")]
    pub mentions_agent: bool,
    /// The message addresses another agent or a person.
    #[serde(rename = "calls_another")]
    pub addresses_another: bool,
    pub follow_ups: FollowUps,
    pub deliver: ChangeDestination,
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
pub enum ThreadMessageOutcome {
    /// The message was handled before.
    #[serde(rename = "again")]
    Duplicate,
    /// The message is not for this agent, or too many requests are waiting for an operator.
    #[serde(rename = "not_for_us")]
    Ignored,
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
#[allow(
    clippy::large_enum_variant,
    reason = "few are under way at once, and none is kept"
)]
pub enum ConversationCommand {
    #[serde(rename = "hear")]
    HandleMessage(ThreadMessage),
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
    Accept { conversation: ConversationId },
    /// Drops held requests.
    Refuse { conversation: ConversationId },
    /// Ends a conversation for good.
    Close { conversation: ConversationId },
    /// A bridge is about to make a post. After a crash, a post that was begun but not shown is
    /// searched for before it is made.
    #[serde(rename = "begin")]
    BeginPost {
        conversation: ConversationId,
        post: u64,
    },
    /// A bridge shows a stage of a post, or reports why it never can.
    #[serde(rename = "show")]
    ReportShown {
        conversation: ConversationId,
        post: u64,
        shown: ShowOutcome,
    },
    /// The branch was pushed, or could not be pushed.
    #[serde(rename = "push")]
    ReportPush {
        conversation: ConversationId,
        pushed: PushedWork,
    },
    /// A pull request for the work was opened.
    #[serde(rename = "open")]
    ReportPullRequest {
        conversation: ConversationId,
        pull: ConversationPull,
    },
}

/// The time for which a delivery is remembered, longer than any service repeats one.
pub const DELIVERY_RETENTION_MS: u64 = 8 * 24 * 3_600_000;
/// The time after which an idle conversation is closed.
const CLOSE_DELAY_MS: u64 = 30 * 24 * 3_600_000;
/// The largest number of turns that are kept with a conversation.
pub(crate) const MAX_TURNS: usize = 20;
/// The largest number of posts that are kept with a conversation.
pub(crate) const MAX_POSTS: usize = 40;
/// The largest number of waiting prompts in one conversation.
const MAX_QUEUED_PROMPTS: usize = 20;
/// The largest number of held requests of one conversation.
const MAX_HELD_REQUESTS: usize = 5;
/// The largest number of conversations that have only held requests.
const MAX_HELD_CONVERSATIONS: usize = 200;
/// The largest text of a message, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Carries out a request about conversations.
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
        ConversationCommand::ReportShown {
            conversation,
            post,
            shown,
        } => post::on_shown(draft, conversation, post, shown, now)?,
        ConversationCommand::ReportPush {
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
        ConversationCommand::ReportPullRequest { conversation, pull } => {
            let mut conversation = find(draft.board(), conversation)?;
            conversation.pull = Some(pull);
            post::restage_last_turn(&mut conversation);
            record_change(draft, conversation, now);
        }
    }
    Ok(CommandOutcome::Done)
}

/// Returns the open conversation with that number.
pub fn find(board: &Board, id: ConversationId) -> Result<Conversation, Refusal> {
    board
        .conversations
        .get(&id)
        .map(|conversation| Conversation::clone(conversation))
        .ok_or_else(|| {
            Refusal::missing(
                format!("there is no open conversation {id}"),
                "see them: regatta bridge conversations",
            )
        })
}

/// Returns the open conversation with this key. On a pull request, an agent continues the
/// conversation that opened it, so a key of the pull request's thread also finds that conversation.
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

/// Returns the conversation whose turns are attempts at `task`.
fn find_by_task(board: &Board, task: TaskId) -> Option<Conversation> {
    board
        .conversations
        .values()
        .find(|conversation| conversation.task == Some(task))
        .map(|conversation| Conversation::clone(conversation))
}

/// Records a changed conversation, with its posts and its idle time brought up to date.
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

/// Records a delivery. Returns `false` if it was recorded before (B1).
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

/// Removes a delivery whose time has passed.
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

/// Removes the workspace and the session of an idle conversation. Much later, closes it.
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
    // Finished work stays, because somebody may still want to land it. The work has its own item in
    // the inbox.
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

/// Returns the approval that a conversation's agent waits for, if there is one.
pub fn pending_approval(board: &Board, conversation: &Conversation) -> Option<ApprovalId> {
    let task = conversation.task?;
    board
        .approvals
        .values()
        .find(|approval| approval.task == task && approval.is_open())
        .map(|approval| approval.id)
}
