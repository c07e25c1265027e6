//! Posts: what people are to see of a conversation, each with the stage it has reached and the stage that was shown.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::ids::{ApprovalId, ConversationId, Now};
use crate::refusal::Refusal;

use super::{Conversation, change, find, of_task};

/// How a note is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    Plain,
    Good,
    Trouble,
    /// Somebody may not ask.
    Refusal,
}

/// What a post shows. Its words are made when it is shown, from the board as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum What {
    /// A sign that this message was seen.
    Seen {
        source: String,
    },
    /// A turn: how far it is while it works, its answer when it is over.
    Turn {
        turn: u64,
    },
    /// A turn waits behind others.
    Queued {
        turn: u64,
        ahead: usize,
    },
    /// Something the agent wants to know or may not do alone.
    Ask {
        approval: ApprovalId,
    },
    Note {
        tone: Tone,
        text: String,
    },
    /// A pull request for what was pushed.
    Pull,
}

/// Something that people are to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Post {
    pub n: u64,
    #[serde(flatten)]
    pub what: What,
    /// How often what it shows has changed for good, and the last of these that was shown.
    pub stage: u32,
    pub shown: u32,
    /// It was begun: it may be there though nobody said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The service's own names for it; a long one is in several parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// How an approval was answered, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why it will never be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<String>,
}

impl Post {
    /// Whether somebody must still show it.
    pub fn is_due(&self) -> bool {
        self.shown < self.stage && self.dead.is_none()
    }

    pub(super) fn is_of_turn(&self, n: u64) -> bool {
        matches!(self.what, What::Turn { turn } if turn == n)
    }
}

/// What is seen of a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// This stage of it, under these names.
    As { stage: u32, refs: Vec<String> },
    /// It cannot be shown, ever.
    Never { why: String },
}

fn push(it: &mut Conversation, what: What) {
    it.post_count += 1;
    let post =
        Post { n: it.post_count, what, stage: 1, shown: 0, begun: false, refs: vec![], answer: None, dead: None };
    it.posts.push(post);
}

pub(super) fn seen(it: &mut Conversation, source: &str) {
    push(it, What::Seen { source: source.to_owned() });
}

pub(super) fn queued(it: &mut Conversation, turn: u64, ahead: usize) {
    push(it, What::Queued { turn, ahead });
}

pub(super) fn turn(it: &mut Conversation, turn: u64) {
    push(it, What::Turn { turn });
}

pub(super) fn note(it: &mut Conversation, tone: Tone, text: String) {
    push(it, What::Note { tone, text });
}

/// A pull request is due for what was pushed, once for each branch: when its work has landed, the next has another.
pub(super) fn pull(it: &mut Conversation) {
    let pushed = it.pushed.as_ref().is_some_and(|it| it.trouble.is_none());
    let branch = it.turns.iter().rev().find_map(|it| it.work.as_ref()).map(|it| it.branch.as_str());
    let has = it.pull.as_ref().is_some_and(|it| it.branch.is_none() || it.branch.as_deref() == branch);
    if pushed && !has && !it.posts.iter().any(|it| it.what == What::Pull && it.is_due()) {
        push(it, What::Pull);
    }
}

/// What the last turns show has changed for good.
pub(super) fn restage_last_turn(it: &mut Conversation) {
    let ended: Vec<u64> = it.turns.iter().filter(|it| it.ended_wall.is_some()).map(|it| it.n).collect();
    let last = it.turns.iter().rev().find(|it| it.ended_wall.is_some()).map(|it| it.n);
    for post in &mut it.posts {
        if let What::Turn { turn } = post.what
            && (post.stage == 1 && ended.contains(&turn) || Some(turn) == last)
        {
            post.stage += 1;
        }
    }
}

/// A message that waited in line has had its turn or was dropped: what says that it waits is no longer true.
pub(super) fn restage_queued(it: &mut Conversation) {
    let waits: Vec<u64> =
        it.turns.iter().filter(|turn| turn.state == super::TurnState::Queued).map(|turn| turn.n).collect();
    for post in &mut it.posts {
        if let What::Queued { turn, .. } = post.what
            && post.stage == 1
            && !waits.contains(&turn)
        {
            post.stage = 2;
        }
    }
}

/// An agent asks something: its thread sees it.
pub(crate) fn asked(draft: &mut Draft, approval: ApprovalId, now: Now) {
    let Some(asked) = draft.board().approvals.get(&approval).cloned() else { return };
    let Some(mut it) = of_task(draft.board(), asked.task).filter(|_| asked.is_open()) else { return };
    push(&mut it, What::Ask { approval });
    change(draft, it, now);
}

/// It was answered, or nobody needs to any more: the thread sees that, too.
pub(crate) fn decided(draft: &mut Draft, approval: ApprovalId, how: String, now: Now) {
    let found = draft.board().conversations.values().find(|it| has(it, approval));
    let Some(mut it) = found.map(|it| Conversation::clone(it)) else { return };
    for post in it.posts.iter_mut().filter(|it| it.what == What::Ask { approval } && it.answer.is_none()) {
        post.stage += 1;
        post.answer = Some(how.chars().take(400).collect());
    }
    change(draft, it, now);
}

fn has(it: &Conversation, approval: ApprovalId) -> bool {
    it.posts.iter().any(|it| it.what == What::Ask { approval } && it.answer.is_none())
}

/// Notes that a post is about to be made.
pub(super) fn begin(draft: &mut Draft, id: ConversationId, n: u64, now: Now) -> Result<(), Refusal> {
    let mut it = find(draft.board(), id)?;
    let Some(post) = it.posts.iter_mut().find(|it| it.n == n) else { return Ok(()) };
    if !post.begun {
        post.begun = true;
        change(draft, it, now);
    }
    Ok(())
}

/// Notes what is seen of a post.
pub(super) fn show(draft: &mut Draft, id: ConversationId, n: u64, shown: Shown, now: Now) -> Result<(), Refusal> {
    let Ok(mut it) = find(draft.board(), id) else { return Ok(()) };
    let Some(post) = it.posts.iter_mut().find(|it| it.n == n) else { return Ok(()) };
    match shown {
        Shown::As { stage, refs } => {
            post.shown = post.shown.max(stage.min(post.stage));
            (post.refs, post.begun) = (refs, true);
        }
        Shown::Never { why } => post.dead = Some(why.chars().take(500).collect()),
    }
    change(draft, it, now);
    Ok(())
}

/// Drops the oldest of what was shown.
pub(super) fn trim(it: &mut Conversation) {
    while it.posts.len() > super::MOST_POSTS {
        let working = it.working().map(|it| it.n);
        let old = it.posts.iter().position(|it| {
            let open = matches!(it.what, What::Ask { .. }) && it.answer.is_none();
            !it.is_due() && !open && working.is_none_or(|n| !it.is_of_turn(n))
        });
        match old {
            Some(at) => _ = it.posts.remove(at),
            None => break,
        }
    }
}
