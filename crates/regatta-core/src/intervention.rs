//! Requests of people and timeouts that change running work: messages to an agent, pauses, retries,
//! takeovers and timeouts.
//!
//! Not here: the end of an agent's program (see [`attempt`]), and the rules for changes of a task's
//! status (see [`task`]).

use serde::{Deserialize, Serialize};

use crate::agent_protocol::StopReason;
use crate::agent_texts::CONTINUE_PROMPT;
use crate::attempt::{self, AttemptCause};
use crate::board::Draft;
use crate::budget;
use crate::event::{Event, facts};
use crate::ids::{AttemptId, Now, TaskId};
use crate::refusal::Refusal;
use crate::schedule::PollGrant;
use crate::task::{self, AddTask, EditTask, SetPause, TaskStatus};
use crate::{inbox, landing};

/// Maximum size of a message to an agent, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

facts! {
    /// A person or Regatta wrote a follow-up prompt for the agent. Regatta sends the prompt when
    /// the agent's current turn has ended.
    AttemptTold { attempt: AttemptId, text: String }
    /// The attempt was paused: its turn is cancelled, and no prompt is sent until the attempt is
    /// resumed.
    AttemptHeld { attempt: AttemptId, reason: String }
    AttemptLetGo { attempt: AttemptId }
    /// The attempt's deadline was moved to `until_at`, because the attempt is paused or waits for a
    /// person.
    AttemptExtended { attempt: AttemptId, until_at: u64 }
    /// The attempt's program has written nothing since `since_wall`. `None` means that the program
    /// is active again.
    AttemptQuiet { attempt: AttemptId, since_wall: Option<u64> }
    /// A note was left for the agent that will next work on the task.
    TaskNoted { task: TaskId, text: String }
}

/// The attempt that will receive a message for a task's agent: the running attempt, or the next
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TellOutcome {
    /// The running attempt gets the message when its current turn has ended.
    #[serde(rename = "now")]
    RunningSession(AttemptId),
    /// No attempt can take the message now, so the task's next attempt gets the message in its
    /// first prompt.
    #[serde(rename = "next")]
    NextAttempt,
}

/// Sends a message to the agent that works on a task. If no running agent accepts messages, leaves
/// the message for the task's next attempt.
pub fn send_message(draft: &mut Draft, id: TaskId, text: String) -> Result<TellOutcome, Refusal> {
    if text.trim().is_empty() || text.len() > MAX_MESSAGE_BYTES {
        return Err(Refusal::invalid(
            "a message to an agent must have 1 byte to 64 KiB",
            "write or shorten the message, or put it into a file and send the file's name",
        ));
    }
    let task = task::find(draft.board(), id)?;
    if task.status.is_terminal() {
        return Err(Refusal::Finished {
            task: id,
            status: task.status,
        });
    }
    let attempt = task
        .attempt
        .and_then(|id| draft.board().attempts.get(&id))
        .cloned();
    match attempt.filter(|attempt| attempt.accepts_prompts()) {
        Some(attempt) => {
            draft.record(Event::AttemptTold(AttemptTold {
                attempt: attempt.id,
                text,
            }));
            Ok(TellOutcome::RunningSession(attempt.id))
        }
        None => {
            leave_note(draft, id, text);
            Ok(TellOutcome::NextAttempt)
        }
    }
}

/// Records a follow-up prompt, which the attempt's agent gets when its current turn has ended.
pub(crate) fn send_prompt(draft: &mut Draft, attempt: AttemptId, text: String) {
    draft.record(Event::AttemptTold(AttemptTold { attempt, text }));
}

/// Leaves a note for the agent that will next work on a task.
pub(crate) fn leave_note(draft: &mut Draft, task: TaskId, text: String) {
    draft.record(Event::TaskNoted(TaskNoted { task, text }));
}

/// Pauses a task. If its agent's session accepts follow-up prompts, the session stays open and
/// waits. Any other running attempt is stopped, and its work is kept.
pub fn pause(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    task::edit(
        draft,
        id,
        EditTask {
            paused: Some(SetPause::Pause(reason.to_owned())),
            ..EditTask::default()
        },
    )?;
    let attempt = task
        .attempt
        .and_then(|id| draft.board().attempts.get(&id))
        .cloned();
    match attempt {
        Some(attempt) if attempt.accepts_prompts() => {
            if attempt.session.hold_reason.is_none() {
                draft.record(Event::AttemptHeld(AttemptHeld {
                    attempt: attempt.id,
                    reason: reason.to_owned(),
                }));
            }
            Ok(())
        }
        Some(_) if task.status == TaskStatus::InProgress => attempt::stop_task(draft, id, reason),
        _ => Ok(()),
    }
}

/// Ends the pause or delay of a task, and lets a held landing of its work continue.
pub fn resume(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    landing::resume_landing(draft, id)?;
    if task.paused.is_some() || task.not_before_fleet_ms.is_some() {
        task::edit(
            draft,
            id,
            EditTask {
                paused: Some(SetPause::Resume),
                ..EditTask::default()
            },
        )?;
        task::clear_delay(draft, id);
    }
    let held_attempt = task
        .attempt
        .and_then(|id| draft.board().attempts.get(&id))
        .filter(|attempt| attempt.session.hold_reason.is_some())
        .cloned();
    if let Some(attempt) = held_attempt {
        draft.record(Event::AttemptLetGo(AttemptLetGo {
            attempt: attempt.id,
        }));
        // The pause cancelled the agent's turn, which does not start again by itself, so the agent
        // needs a prompt to continue.
        let was_cancelled = attempt.session.in_turn
            || attempt
                .session
                .last_turn_end
                .as_ref()
                .is_some_and(|turn_end| turn_end.stop == StopReason::Cancelled);
        if was_cancelled {
            draft.record(Event::AttemptTold(AttemptTold {
                attempt: attempt.id,
                text: CONTINUE_PROMPT.to_owned(),
            }));
        } else if attempt.session.is_finished() {
            attempt::close_session(draft, attempt.id);
        }
    }
    Ok(())
}

/// Maximum time for which a person may work on a task that they took over: one week.
const TAKEOVER_LEASE_MS: u64 = 7 * 24 * 3_600_000;

/// Starts an attempt in which a person does the work of a task that needs a person. If the task's
/// earlier work could not be merged, the workspace contains its conflict with the trunk, for the
/// person to resolve. The person finishes the attempt with `regatta land`.
pub fn take_over(draft: &mut Draft, id: TaskId, now: Now) -> Result<PollGrant, Refusal> {
    let task = task::find(draft.board(), id)?;
    landing::remote_sync::refuse_work(draft.board(), &task)?;
    let is_undo = task.submission.as_ref().is_some_and(|work| work.reverts);
    let agent = task.agent.clone().or_else(|| task.assignee.clone());
    let (TaskStatus::NeedsHuman, false, Some(agent)) = (task.status, is_undo, agent) else {
        return Err(Refusal::IllegalTransition {
            task: id,
            from: task.status,
            to: TaskStatus::InProgress,
        });
    };
    task::return_for_retry(
        draft,
        id,
        task.reason.as_deref().unwrap_or("a person took it over"),
    )?;
    task::clear_delay(draft, id);
    let settings = attempt::BeginAttempt {
        agent,
        supervised: false,
        runner: None,
        lease_ms: TAKEOVER_LEASE_MS,
        no_workspace: false,
        by_hand: true,
        gates: vec![],
    };
    let attempt = task::start(draft, id, &settings, now)?;
    let token = draft
        .board()
        .attempts
        .get(&attempt)
        .map(|attempt| attempt.token);
    let token = token.ok_or(Refusal::NoSuchTask { task: id })?;
    Ok(PollGrant {
        attempt,
        token,
        task: id,
        project: task.project.clone(),
    })
}

/// Retries a task that needs a person, is delayed, or failed. A failed task keeps its status (J7),
/// so its work is added again as a new task. Returns the id of the task to be worked on.
pub fn retry(
    draft: &mut Draft,
    id: TaskId,
    failed: Option<&task::Task>,
    now: Now,
) -> Result<TaskId, Refusal> {
    if let Some(old) = failed {
        if old.id != id
            || draft.board().ended_status(id) != Some(old.status)
            || old.status == TaskStatus::Completed
        {
            return Err(Refusal::IllegalTransition {
                task: id,
                from: old.status,
                to: TaskStatus::Pending,
            });
        }
        landing::remote_sync::refuse_work(draft.board(), old)?;
        let again = task::add(
            draft,
            AddTask {
                project: old.project.clone(),
                subject: old.subject.clone(),
                description: old.description.clone(),
                issue_type: old.issue_type,
                files: old.files.clone(),
                validation: old.validation.clone(),
                blocked_by: old.blocked_by.clone(),
                priority: old.priority,
                expects: old.expects(),
                effort: old.effort.clone(),
                model: old.model.clone(),
                provider: old.provider.clone(),
                script: old.script.clone(),
                ratchet: old.ratchet.clone(),
                alias: old.alias.clone(),
                backlog: false,
            },
            None,
            now,
        )?;
        // The new task takes the place of the old one: it joins the old task's mission, and tasks
        // that waited for the old task now wait for the new task.
        if let Some(mission) = old
            .mission
            .filter(|id| draft.board().missions.contains_key(id))
        {
            task::adopt(draft, again, (mission, old.step()), &old.project)?;
        }
        // If the old task was assigned to an agent, the new task is assigned to the same agent.
        // Tasks of a mission are left to the mission's agents.
        let agent = old
            .assignee
            .as_ref()
            .filter(|name| old.mission.is_none() && draft.board().agents.contains_key(*name));
        if let Some(agent) = agent {
            task::assign(
                draft,
                again,
                Some(agent.clone()),
                task::AssignMode::Queue,
                now,
            )?;
        }
        for dependent in draft.board().dependents_of(old.id) {
            let blocked_by = task::find(draft.board(), dependent)?.blocked_by.clone();
            let blocked_by = blocked_by
                .into_iter()
                .map(|id| if id == old.id { again } else { id })
                .collect();
            task::edit(
                draft,
                dependent,
                EditTask {
                    blocked_by: Some(blocked_by),
                    ..EditTask::default()
                },
            )?;
        }
        // The new task has no history, so leave a note that tells its agent how the old task ended.
        let outcome = if old.status == TaskStatus::Cancelled {
            "was cancelled"
        } else {
            "failed"
        };
        let reason = old.reason.as_deref().unwrap_or("no reason was given");
        let mut note = format!(
            "This was tried before as {}, which {outcome}: {reason}",
            old.id
        );
        if let Some(work) = &old.submission {
            note += &format!(
                "\nThe earlier work is commit {0}: `git show {0}` shows it.",
                work.commit
            );
        }
        leave_note(draft, again, note);
        // A cancelled task is not in the inbox, so only a failed task must be removed from it.
        if old.status == TaskStatus::Failed {
            inbox::dismiss(draft, old.id)?;
        }
        return Ok(again);
    }
    let task = task::find(draft.board(), id)?;
    landing::remote_sync::refuse_work(draft.board(), &task)?;
    match task.status {
        TaskStatus::NeedsHuman => {
            task::return_for_retry(draft, id, task.reason.as_deref().unwrap_or("tried again"))?
        }
        status if status.is_waiting() => {}
        TaskStatus::InProgress | TaskStatus::Validating => {
            attempt::stop_task(draft, id, "tried again from the start")?
        }
        from => {
            return Err(Refusal::IllegalTransition {
                task: id,
                from,
                to: TaskStatus::Pending,
            });
        }
    }
    // `regatta stop` also pauses the task, so a retry must end the pause.
    if task.paused.is_some() {
        task::edit(
            draft,
            id,
            EditTask {
                paused: Some(SetPause::Resume),
                ..EditTask::default()
            },
        )?;
    }
    task::clear_delay(draft, id);
    Ok(id)
}

/// Ends an attempt started by Regatta whose time limit has passed, or whose program did not open a
/// session in time.
pub fn time_out(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    if attempt.stopping.is_some() || attempt.phase != attempt::AttemptPhase::Working {
        return Ok(());
    }
    if attempt
        .budget_check_fleet_ms
        .is_some_and(|at| at <= now.fleet_ms)
    {
        budget::check_time_left(draft, id, now)?;
        if draft
            .board()
            .attempts
            .get(&id)
            .is_none_or(|attempt| attempt.stopping.is_some())
        {
            return Ok(());
        }
    }
    // While an attempt is paused or waits for a person's answer, its deadline is extended and the
    // attempt does not end.
    let waits_for_person = draft
        .board()
        .approvals
        .values()
        .any(|approval| approval.attempt == id && approval.is_awaited());
    if (attempt.session.hold_reason.is_some() || waits_for_person)
        && attempt
            .deadline_fleet_ms
            .is_some_and(|at| at <= now.fleet_ms)
    {
        let until_at = now.fleet_ms + draft.board().limits.attempt_timeout_ms;
        draft.record(Event::AttemptExtended(AttemptExtended {
            attempt: id,
            until_at,
        }));
        return Ok(());
    }
    let has_session = attempt.session.session_id.is_some() || attempt.session.turns > 0;
    let reason = if attempt
        .session_deadline_fleet_ms
        .is_some_and(|at| at <= now.fleet_ms)
        && !has_session
    {
        "its program did not open a session in time"
    } else if attempt
        .deadline_fleet_ms
        .is_some_and(|at| at <= now.fleet_ms)
    {
        "its time limit has passed"
    } else {
        return Ok(());
    };
    attempt::stop(draft, id, AttemptCause::TimedOut, reason.to_owned());
    attempt::requeue_after_failure(draft, attempt.task, AttemptCause::TimedOut, reason)
}

/// Handles a report that an attempt's program has written nothing for `since_ms` milliseconds or,
/// if `since_ms` is `None`, that the program is active again. Records the silence for the inbox,
/// and ends the attempt if the silence lasts too long.
pub fn on_silence(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    since_ms: Option<u64>,
) -> Result<(), Refusal> {
    let attempt = attempt::require_attempt(draft.board(), id, token)?;
    let waits_for_person = draft
        .board()
        .approvals
        .values()
        .any(|approval| approval.attempt == id && approval.is_awaited());
    // A team member is silent between two turns, so its silence then does not count as a hang.
    let is_idle = attempt.session_of.is_some() && !attempt.session.in_turn;
    let is_hung =
        !is_idle && since_ms.is_some_and(|since_ms| since_ms >= draft.board().limits.silence_ms);
    if is_hung
        && attempt.session.hold_reason.is_none()
        && !waits_for_person
        && attempt.stopping.is_none()
        && attempt.phase == attempt::AttemptPhase::Working
    {
        let reason = format!(
            "its program wrote nothing for {}",
            crate::refusal::seconds(since_ms.unwrap_or(0))
        );
        attempt::stop(draft, id, AttemptCause::Hung, reason.clone());
        return attempt::requeue_after_failure(draft, attempt.task, AttemptCause::Hung, &reason);
    }
    // After half of the permitted silence, show the attempt in the inbox.
    let long_silence_ms =
        since_ms.filter(|since_ms| *since_ms >= draft.board().limits.silence_ms / 2);
    let may_be_silent = is_idle
        || waits_for_person
        || attempt.session.hold_reason.is_some()
        || attempt.phase != attempt::AttemptPhase::Working;
    let since_unix_ms = long_silence_ms
        .filter(|_| !may_be_silent)
        .map(|silence_ms| draft.now().unix_ms.saturating_sub(silence_ms));
    if attempt.quiet_since_unix_ms.is_some() != since_unix_ms.is_some() {
        draft.record(Event::AttemptQuiet(AttemptQuiet {
            attempt: id,
            since_wall: since_unix_ms,
        }));
    }
    Ok(())
}
