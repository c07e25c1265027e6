//! Posts: the output of a conversation for people. Each post has a present stage and the last stage
//! that was shown.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::ids::{ApprovalId, ConversationId, Now};
use crate::refusal::Refusal;

use super::{Conversation, find, find_by_task, record_change};

/// The tone of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoteTone {
    Plain,
    Good,
    Trouble,
    /// The author may not ask for work.
    Refusal,
}

/// The content of a post. Its text is made when it is shown, from the board at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum PostContent {
    /// A sign that this message was seen.
    Seen {
        source: String,
    },
    /// A turn: its progress while it works, and its answer when it is over.
    Turn {
        turn: u64,
    },
    /// A turn that waits behind other turns.
    Queued {
        turn: u64,
        ahead: usize,
    },
    /// A question or a permission request of the agent.
    Ask {
        approval: ApprovalId,
    },
    Note {
        tone: NoteTone,
        text: String,
    },
    /// A pull request for the pushed branch.
    Pull,
}

/// A piece of output for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadPost {
    #[serde(rename = "n")]
    pub number: u64,
    #[serde(flatten)]
    pub content: PostContent,
    /// The present stage. It rises when the content changes for good.
    pub stage: u32,
    /// The last stage that was shown.
    pub shown: u32,
    /// The bridge began to make the post, so the post may exist although nobody reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The service's ids of the post. A long post consists of several parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// The answer to an approval, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reason why the post can never be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "dead")]
    pub failure: Option<String>,
}

impl ThreadPost {
    /// Returns whether a newer stage must still be shown.
    pub fn is_due(&self) -> bool {
        self.shown < self.stage && self.failure.is_none()
    }

    pub(super) fn is_of_turn(&self, n: u64) -> bool {
        matches!(self.content, PostContent::Turn { turn } if turn == n)
    }
}

/// The outcome of showing a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShowOutcome {
    /// This stage is visible under these ids.
    #[serde(rename = "as")]
    Visible { stage: u32, refs: Vec<String> },
    /// The post can never be shown.
    Never { why: String },
}

/// Adds a post at its first stage.
fn add_post(it: &mut Conversation, what: PostContent) {
    it.post_count += 1;
    let post = ThreadPost {
        number: it.post_count,
        content: what,
        stage: 1,
        shown: 0,
        begun: false,
        refs: vec![],
        answer: None,
        failure: None,
    };
    it.posts.push(post);
}

pub(super) fn add_seen(it: &mut Conversation, source: &str) {
    add_post(
        it,
        PostContent::Seen {
            source: source.to_owned(),
        },
    );
}

pub(super) fn add_queued(it: &mut Conversation, turn: u64, ahead: usize) {
    add_post(it, PostContent::Queued { turn, ahead });
}

pub(super) fn add_turn(it: &mut Conversation, turn: u64) {
    add_post(it, PostContent::Turn { turn });
}

pub(super) fn add_note(it: &mut Conversation, tone: NoteTone, text: String) {
    add_post(it, PostContent::Note { tone, text });
}

/// Adds a post for a pull request after a push, once per branch. After a branch has landed, the
/// next work has another branch.
pub(super) fn add_pull_request(it: &mut Conversation) {
    let pushed = it.pushed.as_ref().is_some_and(|it| it.failure.is_none());
    let branch = it
        .turns
        .iter()
        .rev()
        .find_map(|it| it.work.as_ref())
        .map(|it| it.branch.as_str());
    let has = it
        .pull
        .as_ref()
        .is_some_and(|it| it.branch.is_none() || it.branch.as_deref() == branch);
    if pushed
        && !has
        && !it
            .posts
            .iter()
            .any(|it| it.content == PostContent::Pull && it.is_due())
    {
        add_post(it, PostContent::Pull);
    }
}

/// Raises the stage of the posts of turns that ended, and of the last ended turn in any case.
pub(super) fn restage_last_turn(it: &mut Conversation) {
    let ended: Vec<u64> = it
        .turns
        .iter()
        .filter(|it| it.ended_unix_ms.is_some())
        .map(|it| it.number)
        .collect();
    let last = it
        .turns
        .iter()
        .rev()
        .find(|it| it.ended_unix_ms.is_some())
        .map(|it| it.number);
    for post in &mut it.posts {
        if let PostContent::Turn { turn } = post.content
            && (post.stage == 1 && ended.contains(&turn) || Some(turn) == last)
        {
            post.stage += 1;
        }
    }
}

/// Raises the stage of a "waits" post whose message no longer waits.
pub(super) fn restage_queued(it: &mut Conversation) {
    let waits: Vec<u64> = it
        .turns
        .iter()
        .filter(|turn| turn.state == super::TurnState::Queued)
        .map(|turn| turn.number)
        .collect();
    for post in &mut it.posts {
        if let PostContent::Queued { turn, .. } = post.content
            && post.stage == 1
            && !waits.contains(&turn)
        {
            post.stage = 2;
        }
    }
}

/// Posts an agent's request in its thread.
pub(crate) fn on_approval_asked(draft: &mut Draft, approval: ApprovalId, now: Now) {
    let Some(asked) = draft.board().approvals.get(&approval).cloned() else {
        return;
    };
    let Some(mut it) = find_by_task(draft.board(), asked.task).filter(|_| asked.is_open()) else {
        return;
    };
    add_post(&mut it, PostContent::Ask { approval });
    record_change(draft, it, now);
}

/// Posts in the thread that a request was answered or withdrawn.
pub(crate) fn on_approval_decided(draft: &mut Draft, approval: ApprovalId, how: String, now: Now) {
    let found = draft
        .board()
        .conversations
        .values()
        .find(|it| has_approval_post(it, approval));
    let Some(mut it) = found.map(|it| Conversation::clone(it)) else {
        return;
    };
    for post in it
        .posts
        .iter_mut()
        .filter(|it| it.content == PostContent::Ask { approval } && it.answer.is_none())
    {
        post.stage += 1;
        post.answer = Some(how.chars().take(400).collect());
    }
    record_change(draft, it, now);
}

fn has_approval_post(it: &Conversation, approval: ApprovalId) -> bool {
    it.posts
        .iter()
        .any(|it| it.content == PostContent::Ask { approval } && it.answer.is_none())
}

/// Records that a bridge begins to make a post.
pub(super) fn begin_post(
    draft: &mut Draft,
    id: ConversationId,
    n: u64,
    now: Now,
) -> Result<(), Refusal> {
    let mut it = find(draft.board(), id)?;
    let Some(post) = it.posts.iter_mut().find(|it| it.number == n) else {
        return Ok(());
    };
    if !post.begun {
        post.begun = true;
        record_change(draft, it, now);
    }
    Ok(())
}

/// Records the outcome of showing a post.
pub(super) fn on_shown(
    draft: &mut Draft,
    id: ConversationId,
    n: u64,
    shown: ShowOutcome,
    now: Now,
) -> Result<(), Refusal> {
    let Ok(mut it) = find(draft.board(), id) else {
        return Ok(());
    };
    let Some(post) = it.posts.iter_mut().find(|it| it.number == n) else {
        return Ok(());
    };
    match shown {
        ShowOutcome::Visible { stage, refs } => {
            post.shown = post.shown.max(stage.min(post.stage));
            (post.refs, post.begun) = (refs, true);
        }
        ShowOutcome::Never { why } => post.failure = Some(why.chars().take(500).collect()),
    }
    record_change(draft, it, now);
    Ok(())
}

/// Drops the oldest posts that need not be shown any more.
pub(super) fn trim_posts(it: &mut Conversation) {
    while it.posts.len() > super::MAX_POSTS {
        let working = it.current_turn().map(|it| it.number);
        let old = it.posts.iter().position(|it| {
            let open = matches!(it.content, PostContent::Ask { .. }) && it.answer.is_none();
            !it.is_due() && !open && working.is_none_or(|n| !it.is_of_turn(n))
        });
        match old {
            Some(at) => _ = it.posts.remove(at),
            None => break,
        }
    }
}
