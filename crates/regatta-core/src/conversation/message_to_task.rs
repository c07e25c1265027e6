//! The way from a message to a task: a message in a thread becomes a turn of its conversation, and
//! the turn creates the conversation's task or continues it.
//!
//! Not here: whether a message is for an agent at all (see [`incoming`](super::incoming)), and the
//! work and the end of a turn (see [`turn`](super::turn)).

use std::collections::BTreeMap;

use crate::agent_texts::TaskText;
use crate::agent_texts::conversation::{prompt_text, task_description};
use crate::board::Draft;
use crate::ids::{ConversationId, Now};
use crate::intervention;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, NextAttempt, Purpose, Task, TaskStatus};

use super::post;
use super::review::PullRequest;
use super::turn::{ConversationTurn, work_to_review};
use super::{Author, Conversation, TurnEvent, TurnState, find, record_change};

/// A message that becomes the prompt of a turn: the arguments of [`queue_prompt`].
pub(super) struct TurnRequest {
    pub(super) by: Author,
    pub(super) text: String,
    pub(super) source: String,
    pub(super) address: BTreeMap<String, String>,
    pub(super) context: Option<String>,
    pub(super) pull: Option<PullRequest>,
}

/// Adds a turn for a message. The turn begins at once if no other turn is running. Returns the
/// turn's number and the number of turns before it.
pub(super) fn queue_prompt(
    draft: &mut Draft,
    mut conversation: Conversation,
    request: TurnRequest,
    now: Now,
) -> Result<(u64, usize), Refusal> {
    let ahead = conversation.queued_count() + usize::from(conversation.current_turn().is_some());
    conversation.turn_count += 1;
    let number = conversation.turn_count;
    let reviewed_work = work_to_review(draft.board(), &conversation, &request.text);
    let reviewed_pull_request = request.pull.filter(|_| reviewed_work.is_none());
    conversation.turns.push(ConversationTurn {
        number,
        by: request.by,
        text: request.text,
        source: request.source.clone(),
        address: request.address,
        context: request.context,
        state: TurnState::Queued,
        answer: None,
        reason: None,
        work: None,
        reviewed_work,
        reviewed_pull_request,
        micro_usd: None,
        asked_unix_ms: now.unix_ms,
        ended_unix_ms: None,
    });
    post::add_seen(&mut conversation, &request.source);
    if ahead > 0 {
        post::add_queued(&mut conversation, number, ahead);
    }
    let id = conversation.id;
    record_change(draft, conversation, now);
    begin_next_turn(draft, id, now)?;
    Ok((number, ahead))
}

/// Begins the next waiting turn, if no turn is running and nothing else uses the task.
pub(super) fn begin_next_turn(
    draft: &mut Draft,
    id: ConversationId,
    now: Now,
) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    if conversation.current_turn().is_some() {
        return Ok(());
    }
    let Some(index) = conversation
        .turns
        .iter()
        .position(|turn| turn.state == TurnState::Queued)
    else {
        return Ok(());
    };
    let open_task = conversation
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned();
    // While earlier work is landing or a conflict in it is being resolved, the work must not
    // change. The next turn begins afterwards.
    let waits_for_fixup = |task: &Task| task.fixup.is_some() && task.status.is_waiting();
    if open_task.as_ref().is_some_and(|task| {
        task.status == TaskStatus::Landing || task.status.is_running() || waits_for_fixup(task)
    }) {
        return Ok(());
    }
    let has_session = open_task
        .as_ref()
        .and_then(|task| task.resume.as_ref())
        .is_some_and(|resume| resume.session.is_some());
    let prompt = prompt_text(&conversation, index, has_session, open_task.as_deref());
    conversation.turns[index].change_state(TurnEvent::Begin);
    conversation.expired = false;
    let number = conversation.turns[index].number;
    post::add_turn(&mut conversation, number);
    let task = match open_task {
        Some(task) => {
            intervention::leave_note(draft, task.id, prompt);
            match task.status {
                TaskStatus::Pending | TaskStatus::Unassigned | TaskStatus::Offered => {
                    task::clear_delay(draft, task.id)
                }
                _ => {
                    let next = NextAttempt {
                        resume: task.resume.clone(),
                        ..NextAttempt::default()
                    };
                    task::requeue(draft, task.id, "somebody wrote in its thread", next)?;
                }
            }
            task.id
        }
        None => {
            let text = TaskText {
                subject: conversation.turns[index].text.clone(),
                description: task_description(&conversation),
            };
            let new_task = AddTask::new_report(conversation.project.clone(), text);
            let task = task::add(draft, new_task, None, now)?;
            task::set_purpose(draft, task, Purpose::Converse { conversation: id }, None)?;
            intervention::leave_note(draft, task, prompt);
            task::assign(
                draft,
                task,
                Some(conversation.agent.clone()),
                AssignMode::Queue,
                now,
            )?;
            task
        }
    };
    conversation.task = Some(task);
    record_change(draft, conversation, now);
    Ok(())
}
