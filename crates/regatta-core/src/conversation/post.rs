//! Posts: what a conversation shows to people in the thread. A post has a stage number, which rises
//! when its content changes, and the number of the stage that was last shown.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::ids::{ApprovalId, ConversationId, Now};
use crate::refusal::Refusal;

use super::{Conversation, find, find_by_task, record_change};

/// The tone of a note, by which a bridge chooses how to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoteTone {
    Plain,
    Good,
    Trouble,
    /// The note tells people who may not ask for work that they need an operator's permission.
    Refusal,
}

/// The kind of a post's content. The text is not stored here, because the bridge (the connection to
/// the service) makes the text from Regatta's stored state when the bridge shows the post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum PostContent {
    /// A sign, such as a reaction, that the message `source` was seen.
    Seen {
        source: String,
    },
    /// A turn: its progress while the agent works, and then the agent's answer.
    Turn {
        turn: u64,
    },
    /// A notice that a message waits for `ahead` earlier turns.
    Queued {
        turn: u64,
        ahead: usize,
    },
    /// A question or a permission request of the agent, for people to answer.
    Ask {
        approval: ApprovalId,
    },
    Note {
        tone: NoteTone,
        text: String,
    },
    /// The pull request that is opened for the pushed branch.
    Pull,
}

/// One post in the thread of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadPost {
    #[serde(rename = "n")]
    pub number: u64,
    #[serde(flatten)]
    pub content: PostContent,
    /// The number of the present stage (a version of the post's content), from 1. The number rises
    /// when the content changes in a way that people must see.
    pub stage: u32,
    /// The number of the stage (a version of the post's content) that was last shown; 0 if no stage
    /// was shown.
    pub shown: u32,
    /// True if a bridge has begun to create the post. After a crash, such a post may exist although
    /// no bridge has reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The ids that the service gave the post. A long post consists of several messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// The answer to the agent's question or permission request, as text, if this post shows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reason why the post can never be shown. `None` if the post can be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "dead")]
    pub failure: Option<String>,
}

impl ThreadPost {
    /// Returns whether the post's present content was not shown yet and can be shown.
    pub fn is_due(&self) -> bool {
        self.shown < self.stage && self.failure.is_none()
    }

    /// Returns whether this post shows the turn with this number.
    pub(super) fn is_of_turn(&self, number: u64) -> bool {
        matches!(self.content, PostContent::Turn { turn } if turn == number)
    }
}

/// The result when a bridge (the connection to a service) tries to show a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShowOutcome {
    /// The post is visible with the content of this stage; `refs` are the ids that the service gave
    /// the post.
    #[serde(rename = "as")]
    Visible { stage: u32, refs: Vec<String> },
    /// The post can never be shown; `why` is the reason.
    Never { why: String },
}

/// Adds a post to a conversation. The new post has the stage number 1 and was not shown yet.
fn add_post(conversation: &mut Conversation, content: PostContent) {
    conversation.post_count += 1;
    let post = ThreadPost {
        number: conversation.post_count,
        content,
        stage: 1,
        shown: 0,
        begun: false,
        refs: vec![],
        answer: None,
        failure: None,
    };
    conversation.posts.push(post);
}

/// Adds a sign, such as a reaction, that the message `source` was seen.
pub(super) fn add_seen(conversation: &mut Conversation, source: &str) {
    add_post(
        conversation,
        PostContent::Seen {
            source: source.to_owned(),
        },
    );
}

/// Adds a notice to the thread which says that the message of a turn waits for `ahead` earlier
/// turns.
pub(super) fn add_queued(conversation: &mut Conversation, turn: u64, ahead: usize) {
    add_post(conversation, PostContent::Queued { turn, ahead });
}

/// Adds the post of a turn: its progress, and later its answer.
pub(super) fn add_turn(conversation: &mut Conversation, turn: u64) {
    add_post(conversation, PostContent::Turn { turn });
}

/// Adds a short text from Regatta itself to the thread.
pub(super) fn add_note(conversation: &mut Conversation, tone: NoteTone, text: String) {
    add_post(conversation, PostContent::Note { tone, text });
}

/// Adds a post for the pull request of a branch that was pushed. A bridge opens the pull request
/// when it shows the post. Each branch gets one pull request. After a branch has landed, further
/// work has another branch.
pub(super) fn add_pull_request(conversation: &mut Conversation) {
    let is_pushed = conversation
        .pushed
        .as_ref()
        .is_some_and(|is_pushed| is_pushed.failure.is_none());
    let branch = conversation
        .turns
        .iter()
        .rev()
        .find_map(|turn| turn.work.as_ref())
        .map(|work| work.branch.as_str());
    let has_pull_request = conversation
        .pull
        .as_ref()
        .is_some_and(|pull| pull.branch.is_none() || pull.branch.as_deref() == branch);
    if is_pushed
        && !has_pull_request
        && !conversation
            .posts
            .iter()
            .any(|post| post.content == PostContent::Pull && post.is_due())
    {
        add_post(conversation, PostContent::Pull);
    }
}

/// Marks the posts of ended turns as changed, so that bridges (the connections to services) show
/// the answers. The post of the latest ended turn is always marked.
pub(super) fn restage_last_turn(conversation: &mut Conversation) {
    let ended: Vec<u64> = conversation
        .turns
        .iter()
        .filter(|turn| turn.ended_unix_ms.is_some())
        .map(|turn| turn.number)
        .collect();
    let last = conversation
        .turns
        .iter()
        .rev()
        .find(|turn| turn.ended_unix_ms.is_some())
        .map(|turn| turn.number);
    for post in &mut conversation.posts {
        if let PostContent::Turn { turn } = post.content
            && (post.stage == 1 && ended.contains(&turn) || Some(turn) == last)
        {
            post.stage += 1;
        }
    }
}

/// Marks the notice "waits for earlier turns" as changed for each turn that no longer waits, so
/// that a bridge (the connection to the service) updates the notice.
pub(super) fn restage_queued(conversation: &mut Conversation) {
    let queued: Vec<u64> = conversation
        .turns
        .iter()
        .filter(|turn| turn.state == super::TurnState::Queued)
        .map(|turn| turn.number)
        .collect();
    for post in &mut conversation.posts {
        if let PostContent::Queued { turn, .. } = post.content
            && post.stage == 1
            && !queued.contains(&turn)
        {
            post.stage = 2;
        }
    }
}

/// Shows an agent's permission request or question as a post in the conversation in which the agent
/// works.
pub(crate) fn on_approval_asked(draft: &mut Draft, approval: ApprovalId, now: Now) {
    let Some(asked) = draft.board().approvals.get(&approval).cloned() else {
        return;
    };
    let Some(mut conversation) =
        find_by_task(draft.board(), asked.task).filter(|_| asked.is_open())
    else {
        return;
    };
    add_post(&mut conversation, PostContent::Ask { approval });
    record_change(draft, conversation, now);
}

/// Stores the answer in the post that shows the request `approval`, and marks the post as changed,
/// because the request was answered or withdrawn.
pub(crate) fn on_approval_decided(
    draft: &mut Draft,
    approval: ApprovalId,
    answer: String,
    now: Now,
) {
    let found = draft
        .board()
        .conversations
        .values()
        .find(|conversation| has_approval_post(conversation, approval));
    let Some(mut conversation) = found.map(|conversation| Conversation::clone(conversation)) else {
        return;
    };
    for post in conversation
        .posts
        .iter_mut()
        .filter(|post| post.content == PostContent::Ask { approval } && post.answer.is_none())
    {
        post.stage += 1;
        post.answer = Some(answer.chars().take(400).collect());
    }
    record_change(draft, conversation, now);
}

/// Returns whether the conversation has a post that shows the request `approval` as unanswered.
fn has_approval_post(conversation: &Conversation, approval: ApprovalId) -> bool {
    conversation
        .posts
        .iter()
        .any(|post| post.content == PostContent::Ask { approval } && post.answer.is_none())
}

/// Records that a bridge is about to create a post in the service.
pub(super) fn begin_post(
    draft: &mut Draft,
    id: ConversationId,
    number: u64,
    now: Now,
) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    let Some(post) = conversation
        .posts
        .iter_mut()
        .find(|post| post.number == number)
    else {
        return Ok(());
    };
    if !post.begun {
        post.begun = true;
        record_change(draft, conversation, now);
    }
    Ok(())
}

/// Records that a bridge has shown a post, or that the post can never be shown.
pub(super) fn on_shown(
    draft: &mut Draft,
    id: ConversationId,
    number: u64,
    shown: ShowOutcome,
    now: Now,
) -> Result<(), Refusal> {
    let Ok(mut conversation) = find(draft.board(), id) else {
        return Ok(());
    };
    let Some(post) = conversation
        .posts
        .iter_mut()
        .find(|post| post.number == number)
    else {
        return Ok(());
    };
    match shown {
        ShowOutcome::Visible { stage, refs } => {
            post.shown = post.shown.max(stage.min(post.stage));
            (post.refs, post.begun) = (refs, true);
        }
        ShowOutcome::Never { why } => post.failure = Some(why.chars().take(500).collect()),
    }
    record_change(draft, conversation, now);
    Ok(())
}

/// Drops the oldest posts beyond [`super::MAX_POSTS`] that need not be shown any more.
pub(super) fn trim_posts(conversation: &mut Conversation) {
    while conversation.posts.len() > super::MAX_POSTS {
        let current_turn = conversation.current_turn().map(|turn| turn.number);
        let removable = conversation.posts.iter().position(|post| {
            let is_unanswered =
                matches!(post.content, PostContent::Ask { .. }) && post.answer.is_none();
            !post.is_due()
                && !is_unanswered
                && current_turn.is_none_or(|number| !post.is_of_turn(number))
        });
        match removable {
            Some(at) => _ = conversation.posts.remove(at),
            None => break,
        }
    }
}
