//! Landing the work of a conversation: handles a request to land the work, and posts news about the
//! landing in the thread.

use crate::board::Draft;
use crate::command::Actor;
use crate::ids::{CommitId, ConversationId, Now, TaskId};
use crate::landing::{self, Landing};
use crate::refusal::Refusal;
use crate::task::Task;

use super::message_to_task::begin_next_turn;
use super::post::{self, NoteTone};
use super::turn::close_turn;
use super::{
    Author, Conversation, ConversationLandingEnd, TurnEvent, TurnState, find, find_by_task,
    record_change,
};

/// Puts the conversation's finished work into the landing queue, because somebody wrote `land` in
/// the thread.
pub(super) fn land(
    draft: &mut Draft,
    id: ConversationId,
    by: &Author,
    now: Now,
) -> Result<(), Refusal> {
    let conversation = find(draft.board(), id)?;
    let by = Actor::Person(format!("{}:{}", conversation.service, by.name));
    let result = match conversation.task {
        Some(task) => landing::land(draft, task, false, &by, now).map(|_| task),
        None => Err(Refusal::invalid(
            "this conversation has no work to land yet",
            "ask the agent for a change first, then write `land`",
        )),
    };
    let mut conversation = find(draft.board(), id)?;
    match result {
        Ok(task) => post::add_note(
            &mut conversation,
            NoteTone::Plain,
            format!("{task} is on its way into the merge queue."),
        ),
        Err(refusal) => {
            post::add_note(
                &mut conversation,
                NoteTone::Trouble,
                format!("{}. {}", refusal.message(), refusal.hint()),
            );
        }
    }
    record_change(draft, conversation, now);
    Ok(())
}

/// Tells the people in the thread that a turn failed, or that its work did not land and how to try
/// again.
pub(crate) fn on_task_lost(
    draft: &mut Draft,
    task: &Task,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let Some(mut conversation) = find_by_task(draft.board(), task.id) else {
        return Ok(());
    };
    if let Some(turn) = conversation
        .turns
        .iter_mut()
        .find(|turn| turn.state == TurnState::Working)
    {
        close_turn(
            turn,
            TurnEvent::Fail,
            Some(reason.chars().take(2_000).collect()),
            now,
        );
        post::restage_last_turn(&mut conversation);
    } else {
        let text = format!(
            "{} did not land: {reason}. Say `land` to try it again.",
            task.id
        );
        post::add_note(&mut conversation, NoteTone::Trouble, text);
    }
    release_task(draft, conversation, task.id, now)
}

/// Records that a conversation's work could not land. With `is_being_fixed`, an attempt is already
/// fixing the work, and a post in the thread says so.
pub(crate) fn on_landing_failed(
    draft: &mut Draft,
    landing: &Landing,
    reason: &str,
    is_being_fixed: bool,
    now: Now,
) {
    let Some(mut conversation) = find_by_task(draft.board(), landing.task) else {
        return;
    };
    let (work, reason) = (
        landing.submission.commit.clone(),
        reason.chars().take(2_000).collect::<String>(),
    );
    if is_being_fixed {
        let text = format!(
            "{} could not land yet: {reason}. I am fixing that now; then the landing is tried \
            again.",
            landing.task
        );
        post::add_note(&mut conversation, NoteTone::Trouble, text);
    }
    conversation.landing_end = Some(ConversationLandingEnd::Failed { work, reason });
    record_change(draft, conversation, now);
}

/// Handles the end of a conversation's task. If its work landed, `landed` is the commit, and a post
/// in the thread says so. Otherwise the task was cancelled. Begins the next waiting turn.
pub(crate) fn on_task_settled(
    draft: &mut Draft,
    task: &Task,
    landed: Option<&CommitId>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(mut conversation) = find_by_task(draft.board(), task.id) else {
        return Ok(());
    };
    if let Some(commit) = landed {
        let short: String = commit.as_str().chars().take(10).collect();
        post::add_note(
            &mut conversation,
            NoteTone::Good,
            format!("{} has landed as {short}.", task.id),
        );
        let work = task
            .submission
            .as_ref()
            .map(|submission| submission.commit.clone());
        conversation.landing_end = work
            .map(|work| ConversationLandingEnd::Landed {
                work,
                commit: commit.clone(),
            })
            .or(conversation.landing_end);
    }
    release_task(draft, conversation, task.id, now)
}

/// Begins the next waiting turn after the conversation's work came back from the landing queue.
pub(crate) fn on_task_returned(draft: &mut Draft, task: TaskId, now: Now) -> Result<(), Refusal> {
    match find_by_task(draft.board(), task) {
        Some(conversation)
            if conversation.current_turn().is_none() && conversation.queued_count() > 0 =>
        {
            begin_next_turn(draft, conversation.id, now)
        }
        _ => Ok(()),
    }
}

/// Detaches the conversation from its task if the task is over, and begins the next waiting turn.
fn release_task(
    draft: &mut Draft,
    mut conversation: Conversation,
    task: TaskId,
    now: Now,
) -> Result<(), Refusal> {
    if !draft.board().tasks.contains_key(&task) {
        conversation.task = None;
        for turn in conversation
            .turns
            .iter_mut()
            .filter(|turn| turn.state == TurnState::Working)
        {
            close_turn(turn, TurnEvent::Stop, Some("the task is over".into()), now);
        }
    }
    let id = conversation.id;
    record_change(draft, conversation, now);
    begin_next_turn(draft, id, now)
}
