//! Turns: a turn is one message to the agent with the agent's work and answer. A conversation works
//! on at most one turn at a time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt, AttemptCause, ResumePoint, resume_point};
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{CommitId, ConversationId, Now};
use crate::landing::{self, guard};
use crate::plural;
use crate::refusal::Refusal;
use crate::task::{self, NextAttempt, Submission, Task};

use super::message_to_task::begin_next_turn;
use super::post::{self, NoteTone};
use super::review::{self, PullRequest};
use super::{
    Author, ChangeDestination, Conversation, ConversationPushing, TurnEvent, TurnState, find,
    find_by_task, record_change,
};

/// The changes that a turn made in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnWork {
    pub commit: CommitId,
    pub base: CommitId,
    pub branch: String,
    /// The first changed files in the list; `changed_count` is the number of all changed files.
    pub changed: Vec<String>,
    #[serde(rename = "count")]
    pub changed_count: usize,
    /// One line with the results of the checks that ran on the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<String>,
}

/// One message to the agent, with the agent's work and answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationTurn {
    #[serde(rename = "n")]
    pub number: u64,
    pub by: Author,
    /// The text of the message, which is shortened some time after the turn is over.
    pub text: String,
    /// The id that the service gave the message.
    pub source: String,
    /// The place where the answer must be posted, if the place can differ between the messages of
    /// one conversation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(rename = "place")]
    pub address: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    pub state: TurnState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The reason why the turn failed or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<TurnWork>,
    /// The work of another agent that this turn only reviews: a commit, and the commit on which it
    /// is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "looks_at")]
    pub reviewed_work: Option<(CommitId, CommitId)>,
    /// The pull request that this turn only reviews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "reviews")]
    pub reviewed_pull_request: Option<PullRequest>,
    /// The cost of the turn in millionths of a US dollar, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    #[serde(rename = "asked_wall")]
    pub asked_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended_wall")]
    pub ended_unix_ms: Option<u64>,
}

/// Maximum length of an answer that is stored with a conversation, in characters. The transcript
/// has the whole answer.
const MAX_ANSWER_CHARS: usize = 48_000;
/// Length to which the texts of old turns are shortened, in characters.
const MAX_OLD_TEXT_CHARS: usize = 400;
/// Maximum number of changed files that are listed for a turn.
const MAX_LISTED_FILES: usize = 20;

/// Returns the commit that a message asks to review, and the commit on which it is based. The
/// commit is the work of the pull request that the message names, or the work of another agent in
/// the same thread.
pub(super) fn work_to_review(
    board: &Board,
    conversation: &Conversation,
    text: &str,
) -> Option<(CommitId, CommitId)> {
    if !review::asks_for_review(text) {
        return None;
    }
    let number = review::first_number(text);
    let work_of = |other: &Conversation| {
        let submitted = other
            .task
            .and_then(|id| board.tasks.get(&id))
            .and_then(|task| task.submission.clone());
        let last_work = other.turns.iter().rev().find_map(|turn| turn.work.as_ref());
        submitted
            .map(|submission| (submission.commit, submission.base))
            .or(last_work.map(|work| (work.commit.clone(), work.base.clone())))
    };
    let has_pull_in = |other: &Conversation, thread: &str| {
        other
            .pull
            .as_ref()
            .is_some_and(|pull| pull.thread.as_deref() == Some(thread))
    };
    let others = board
        .conversations
        .values()
        .filter(|other| other.id != conversation.id && other.project == conversation.project);
    let is_meant = |other: &&std::sync::Arc<Conversation>| match number {
        Some(number) => other
            .pull
            .as_ref()
            .is_some_and(|pull| pull.number == number),
        None => {
            other.is_in_thread(&conversation.thread) || has_pull_in(other, &conversation.thread)
        }
    };
    others
        .filter(is_meant)
        .max_by_key(|conversation| conversation.addressed_revision)
        .and_then(|conversation| work_of(conversation))
}

/// The result of a turn: the agent's answer, its changes in the repository, and the results of the
/// checks.
pub(crate) struct TurnResult {
    pub(crate) answer: String,
    pub(crate) work: Option<Submission>,
    pub(crate) checks: Option<String>,
}

/// Handles the end of a turn: stores the answer for the thread, and keeps, lands or pushes the
/// agent's changes as the settings ask.
pub(crate) fn on_turn_finished(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    result: TurnResult,
    now: Now,
) -> Result<Option<crate::ids::LandingId>, Refusal> {
    let Some(mut conversation) = find_by_task(draft.board(), task.id) else {
        attempt::end(draft, attempt.id, AttemptCause::Reported, "");
        task::complete(draft, task.id, None)?;
        return Ok(None);
    };
    // Changes made during a review are dropped. Only the changes of the review's own turn are
    // dropped, because a later turn may be asked to fix the problems that the review found.
    let is_review = conversation
        .current_turn()
        .is_some_and(|turn| turn.reviewed_work.is_some() || turn.reviewed_pull_request.is_some());
    let work = result
        .work
        .filter(|work| !work.changed.is_empty() && !is_review);
    // Without a current turn, nobody in the thread asked for this attempt: it resolved a conflict
    // between the conversation's work and other work that has already landed. Its commit then
    // replaces the commit of the latest turn that has work.
    let is_fixup = task.fixup.is_some() && conversation.current_turn().is_none();
    if let Some(work) = work.as_ref().filter(|_| is_fixup)
        && let Some(last_work) = conversation
            .turns
            .iter_mut()
            .rev()
            .find_map(|turn| turn.work.as_mut())
    {
        (last_work.commit, last_work.base) = (work.commit.clone(), work.base.clone());
    }
    if let Some(turn) = conversation
        .turns
        .iter_mut()
        .find(|turn| turn.state == TurnState::Working)
    {
        let answer = result.answer.trim();
        let answer = if answer.is_empty() {
            "Done. The agent gave no further answer."
        } else {
            answer
        };
        turn.answer = Some(stored_answer(answer));
        turn.work = work.as_ref().map(|work| TurnWork {
            commit: work.commit.clone(),
            base: work.base.clone(),
            branch: task.branch().to_string(),
            changed: work
                .changed
                .iter()
                .take(MAX_LISTED_FILES)
                .cloned()
                .collect(),
            changed_count: work.changed.len(),
            checks: result.checks.clone(),
        });
        turn.micro_usd = attempt.used.micro_usd;
        close_turn(turn, TurnEvent::Finish, None, now);
    }
    post::restage_last_turn(&mut conversation);
    let (deliver, id) = (conversation.deliver, conversation.id);
    let has_queued_turns = conversation.queued_count() > 0;
    let never_lands = work
        .as_ref()
        .and_then(|work| guard::never_lands_reason(&work.changed, &work.special));
    if let Some(reason) = &never_lands {
        post::add_note(
            &mut conversation,
            NoteTone::Trouble,
            format!("This work cannot land: {reason}."),
        );
    }
    let may_push = deliver == ChangeDestination::Pull
        && (is_fixup || !has_queued_turns)
        && never_lands.is_none();
    if let Some(work) = work.as_ref().filter(|_| may_push) {
        conversation.pushed = None;
        draft.record(Event::ConversationPushing(ConversationPushing {
            conversation: id,
            commit: work.commit.clone(),
        }));
    }
    record_change(draft, conversation, now);
    let resume = resume_point(attempt, true);
    let landing = match work {
        Some(work) if is_fixup || deliver == ChangeDestination::Land && !has_queued_turns => {
            let landing = landing::submit(draft, task, attempt, work, now)?;
            attempt::end(draft, attempt.id, AttemptCause::Submitted, "");
            landing
        }
        Some(work) => {
            let reason = format!(
                "somebody must write `land` in the thread, or run: regatta land {}",
                task.id
            );
            task::keep_for_review(draft, task.id, work, reason)?;
            task::keep_resume(draft, task.id, resume)?;
            attempt::end(draft, attempt.id, AttemptCause::Reported, "");
            None
        }
        None => {
            let reason =
                "the turn is over; the conversation goes on when somebody writes in the thread";
            let again = NextAttempt {
                resume: Some(resume),
                resting: true,
                ..NextAttempt::default()
            };
            task::retry_after(draft, task.id, AttemptCause::Rested, reason, again)?;
            attempt::end(draft, attempt.id, AttemptCause::Rested, reason);
            None
        }
    };
    begin_next_turn(draft, id, now)?;
    Ok(landing)
}

/// Returns the agent's answer as it is stored with the conversation. A long answer is cut, and a
/// note at its end says so.
fn stored_answer(answer: &str) -> String {
    if answer.chars().count() <= MAX_ANSWER_CHARS {
        return answer.to_owned();
    }
    let kept: String = answer.chars().take(MAX_ANSWER_CHARS).collect();
    format!("{kept}\n\n[The rest is left out here. `regatta logs` has all of it.]")
}

/// Marks a turn as over, and drops texts that are needed only while the turn runs.
pub(super) fn close_turn(
    turn: &mut ConversationTurn,
    event: TurnEvent,
    reason: Option<String>,
    now: Now,
) {
    turn.change_state(event);
    (turn.reason, turn.ended_unix_ms) = (reason, Some(now.unix_ms));
    turn.context = None;
    if let Some(pull) = &mut turn.reviewed_pull_request {
        pull.text.clear();
    }
}

/// Drops a message that its author deleted, unless the agent has already begun to work on it.
pub(super) fn withdraw(
    draft: &mut Draft,
    id: ConversationId,
    source: &str,
    now: Now,
) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    let before = conversation.clone();
    conversation.held.retain(|held| held.source != source);
    let task = conversation
        .task
        .and_then(|task| draft.board().tasks.get(&task))
        .cloned();
    let has_begun = task
        .as_ref()
        .is_some_and(|task| task.attempt.is_some() || task.status.is_running());
    let mut is_task_idle = false;
    for turn in conversation
        .turns
        .iter_mut()
        .filter(|turn| turn.source == source)
    {
        let is_waiting = turn.state == TurnState::Working && !has_begun;
        if turn.state == TurnState::Queued || is_waiting {
            close_turn(
                turn,
                TurnEvent::Stop,
                Some("the message was deleted".into()),
                now,
            );
            is_task_idle |= is_waiting;
        }
    }
    if conversation == before {
        return Ok(());
    }
    post::restage_last_turn(&mut conversation);
    record_change(draft, conversation, now);
    if let Some(task) = task.filter(|task| is_task_idle && task.status.is_waiting()) {
        rest_and_drop_notes(draft, &task, task.resume.clone(), "the message was deleted")?;
    }
    begin_next_turn(draft, id, now)
}

/// Returns a conversation's task to the state between turns, and drops notes that no agent has
/// read.
fn rest_and_drop_notes(
    draft: &mut Draft,
    task: &Task,
    resume: Option<ResumePoint>,
    reason: &str,
) -> Result<(), Refusal> {
    task::requeue(
        draft,
        task.id,
        reason,
        NextAttempt {
            resume,
            resting: true,
            forget_notes: true,
            ..NextAttempt::default()
        },
    )
}

/// Stops the current turn, and drops the messages that wait until this turn ends.
pub(super) fn stop(
    draft: &mut Draft,
    id: ConversationId,
    by: &str,
    now: Now,
) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    let (working, queued) = (
        conversation.current_turn().is_some(),
        conversation.queued_count(),
    );
    let reason = format!("{by} stopped it");
    for turn in conversation
        .turns
        .iter_mut()
        .filter(|turn| matches!(turn.state, TurnState::Working | TurnState::Queued))
    {
        close_turn(turn, TurnEvent::Stop, Some(reason.clone()), now);
    }
    post::restage_last_turn(&mut conversation);
    match (working, queued) {
        (false, 0) => post::add_note(
            &mut conversation,
            NoteTone::Plain,
            "Nothing runs here now.".into(),
        ),
        (_, 0) => {}
        (_, count) => post::add_note(
            &mut conversation,
            NoteTone::Plain,
            format!(
                "{} {} dropped too.",
                plural::count(count, "waiting message"),
                plural::choose(count, "was", "were")
            ),
        ),
    }
    let task = conversation
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned();
    record_change(draft, conversation, now);
    let Some(task) = task.filter(|_| working) else {
        return Ok(());
    };
    let attempt = task
        .attempt
        .and_then(|id| draft.board().attempts.get(&id))
        .cloned();
    let resume = attempt
        .as_ref()
        .map(|attempt| resume_point(attempt, true))
        .or(task.resume.clone());
    if let Some(attempt) = attempt.filter(|_| task.status.is_running()) {
        // The cause is "cancelled" instead of "stopped", because after "stopped" the next attempt
        // would get the same prompts again.
        attempt::stop(draft, attempt.id, AttemptCause::Cancelled, reason.clone());
    }
    if task.status.is_running() || task.status.is_waiting() {
        rest_and_drop_notes(draft, &task, resume, &reason)?;
    }
    Ok(())
}

/// Shortens the texts of old turns that people have seen, and drops the oldest turns beyond
/// [`super::MAX_TURNS`].
pub(super) fn trim_turns(conversation: &mut Conversation) {
    let is_shown = |number: u64, conversation: &Conversation| {
        !conversation
            .posts
            .iter()
            .any(|post| post.is_of_turn(number) && post.is_due())
    };
    let shown_turns: Vec<u64> = conversation
        .turns
        .iter()
        .filter(|turn| turn.ended_unix_ms.is_some())
        .map(|turn| turn.number)
        .collect();
    let shown_turns: Vec<u64> = shown_turns
        .into_iter()
        .filter(|number| is_shown(*number, conversation))
        .collect();
    let last = conversation
        .turns
        .iter()
        .rev()
        .find(|turn| turn.ended_unix_ms.is_some())
        .map(|turn| turn.number);
    for turn in conversation
        .turns
        .iter_mut()
        .filter(|turn| shown_turns.contains(&turn.number) && Some(turn.number) != last)
    {
        shorten(&mut turn.text);
        turn.answer.as_mut().map(shorten);
    }
    while conversation.turns.len() > super::MAX_TURNS
        && conversation
            .turns
            .first()
            .is_some_and(|turn| turn.ended_unix_ms.is_some())
    {
        conversation.turns.remove(0);
    }
}

/// Shortens a text to [`MAX_OLD_TEXT_CHARS`].
fn shorten(text: &mut String) {
    if text.chars().count() > MAX_OLD_TEXT_CHARS {
        *text = text
            .chars()
            .take(MAX_OLD_TEXT_CHARS)
            .chain(std::iter::once('…'))
            .collect();
    }
}
