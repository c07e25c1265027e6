//! Steering of running work: messages to an agent, pauses, retries, takeovers and timeouts.

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Cause};
use crate::board::Draft;
use crate::budget;
use crate::event::{Event, facts};
use crate::ids::{AttemptId, Now, TaskId};
use crate::refusal::Refusal;
use crate::schedule::Grant;
use crate::session::Stop;
use crate::task::{self, Add, Edit, Pause, Status};
use crate::{inbox, landing};

/// The prompt with which an agent continues after a pause.
const GO_ON: &str = "Go on with the task from where you were.";

facts! {
    /// A follow-up prompt, which is sent when the current turn has ended.
    Told { attempt: AttemptId, text: String }
    /// The attempt's turn is cancelled, and no prompt is sent until it is resumed.
    Held { attempt: AttemptId, reason: String }
    LetGo { attempt: AttemptId }
    /// The attempt has more time, because it waits for a person.
    Extended { attempt: AttemptId, until_at: u64 }
    /// The attempt has been silent since `since_wall`. `None` means that it is active again.
    Quiet { attempt: AttemptId, since_wall: Option<u64> }
    /// A note for the next attempt at the task.
    Noted { task: TaskId, text: String }
}

/// The destination of a message to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// The running session, after the current turn.
    Now(AttemptId),
    /// The brief of the next attempt.
    Next,
}

/// Sends a message to the running attempt of a task, or leaves it for the next one.
pub fn tell(draft: &mut Draft, id: TaskId, text: String) -> Result<Heard, Refusal> {
    if text.trim().is_empty() || text.len() > 64 * 1024 {
        return Err(Refusal::invalid(
            "a message to an agent has 1 byte to 64 KiB",
            "shorten it, or put it into a file and name the file",
        ));
    }
    let task = task::find(draft.board(), id)?;
    if task.status.is_terminal() {
        return Err(Refusal::Finished { task: id, status: task.status });
    }
    let live = task.attempt.and_then(|it| draft.board().attempts.get(&it)).cloned();
    match live.filter(|it| it.takes_words()) {
        Some(attempt) => {
            draft.record(Event::AttemptTold(Told { attempt: attempt.id, text }));
            Ok(Heard::Now(attempt.id))
        }
        None => {
            note(draft, id, text);
            Ok(Heard::Next)
        }
    }
}

/// Sends a follow-up prompt to a running session.
pub(crate) fn say(draft: &mut Draft, attempt: AttemptId, text: String) {
    draft.record(Event::AttemptTold(Told { attempt, text }));
}

/// Leaves a note for the next attempt at a task.
pub(crate) fn note(draft: &mut Draft, task: TaskId, text: String) {
    draft.record(Event::TaskNoted(Noted { task, text }));
}

/// Pauses a task. A session that can wait is held; any other attempt is stopped, and its work is
/// kept.
pub fn pause(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    task::edit(draft, id, Edit { paused: Some(Pause::Because(reason.to_owned())), ..Edit::default() })?;
    let live = task.attempt.and_then(|it| draft.board().attempts.get(&it)).cloned();
    match live {
        Some(attempt) if attempt.takes_words() => {
            if attempt.talk.held.is_none() {
                draft.record(Event::AttemptHeld(Held { attempt: attempt.id, reason: reason.to_owned() }));
            }
            Ok(())
        }
        Some(_) if task.status == Status::InProgress => attempt::stop_task(draft, id, reason),
        _ => Ok(()),
    }
}

/// Resumes a task or its landing.
pub fn resume(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    landing::go_on(draft, id)?;
    if task.paused.is_some() || task.not_before.is_some() {
        task::edit(draft, id, Edit { paused: Some(Pause::No), ..Edit::default() })?;
        task::due(draft, id);
    }
    let held = task.attempt.and_then(|it| draft.board().attempts.get(&it)).filter(|it| it.talk.held.is_some()).cloned();
    if let Some(attempt) = held {
        draft.record(Event::AttemptLetGo(LetGo { attempt: attempt.id }));
        // A cancelled turn does not start again by itself.
        let cut_off = attempt.talk.in_turn || attempt.talk.last.as_ref().is_some_and(|it| it.stop == Stop::Cancelled);
        if cut_off {
            draft.record(Event::AttemptTold(Told { attempt: attempt.id, text: GO_ON.to_owned() }));
        } else if attempt.talk.is_through() {
            attempt::close(draft, attempt.id);
        }
    }
    Ok(())
}

/// Maximum time for which a person may work on a task that they took over.
const TAKEOVER_LEASE_MS: u64 = 7 * 24 * 3_600_000;

/// Starts an attempt for a person at a task that needs one. Its workspace is prepared like that of
/// a fix-up, so it contains the conflict. `regatta land` finishes the attempt.
pub fn take_over(draft: &mut Draft, id: TaskId, now: Now) -> Result<Grant, Refusal> {
    let task = task::find(draft.board(), id)?;
    landing::join::refuse_work(draft.board(), &task)?;
    let undoes = task.submission.as_ref().is_some_and(|work| work.reverts);
    let agent = task.agent.clone().or_else(|| task.assignee.clone());
    let (Status::NeedsHuman, false, Some(agent)) = (task.status, undoes, agent) else {
        return Err(Refusal::Illegal { task: id, from: task.status, to: Status::InProgress });
    };
    task::try_again(draft, id, task.reason.as_deref().unwrap_or("a person took it over"))?;
    task::due(draft, id);
    let by = attempt::Begin {
        agent,
        supervised: false,
        runner: None,
        lease_ms: TAKEOVER_LEASE_MS,
        bare: false,
        by_hand: true,
        gates: vec![],
    };
    let attempt = task::start(draft, id, &by, now)?;
    let token = draft.board().attempts.get(&attempt).map(|attempt| attempt.token);
    let token = token.ok_or(Refusal::NoSuchTask { task: id })?;
    Ok(Grant { attempt, token, task: id, project: task.project.clone() })
}

/// Retries a task that needs a person, is delayed, or failed. A failed task stays failed (J7), so
/// its work is added as a new task. Returns the id of the task that is retried.
pub fn retry(draft: &mut Draft, id: TaskId, failed: Option<&task::Task>, now: Now) -> Result<TaskId, Refusal> {
    if let Some(old) = failed {
        if old.id != id || draft.board().settled(id) != Some(old.status) || old.status == Status::Completed {
            return Err(Refusal::Illegal { task: id, from: old.status, to: Status::Pending });
        }
        landing::join::refuse_work(draft.board(), old)?;
        let again = task::add(
            draft,
            Add {
                project: old.project.clone(),
                subject: old.subject.clone(),
                description: old.description.clone(),
                issue_type: old.issue_type,
                files: old.files.clone(),
                validation: old.validation.clone(),
                blocked_by: old.blocked_by.clone(),
                priority: old.priority,
                expects: old.expects,
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
        // The new task joins the mission, and tasks that waited for the old one wait for the new
        // one.
        if let Some(mission) = old.mission.filter(|it| draft.board().missions.contains_key(it)) {
            task::adopt(draft, again, (mission, old.step()), &old.project)?;
        }
        // A person's assignment of the old task also applies to the new one.
        let agent =
            old.assignee.as_ref().filter(|name| old.mission.is_none() && draft.board().agents.contains_key(*name));
        if let Some(agent) = agent {
            task::assign(draft, again, Some(agent.clone()), task::How::Queue, now)?;
        }
        for dependent in draft.board().dependents_of(old.id) {
            let blocked_by = task::find(draft.board(), dependent)?.blocked_by.clone();
            let blocked_by = blocked_by.into_iter().map(|it| if it == old.id { again } else { it }).collect();
            task::edit(draft, dependent, Edit { blocked_by: Some(blocked_by), ..Edit::default() })?;
        }
        // The new task has no history, so its next attempt gets a note about the old one.
        let how = if old.status == Status::Cancelled { "was cancelled" } else { "failed" };
        let why = old.reason.as_deref().unwrap_or("no reason was given");
        let mut text = format!("This was tried before as {}, which {how}: {why}", old.id);
        if let Some(work) = &old.submission {
            text += &format!("\nThe earlier work is commit {0}: `git show {0}` shows it.", work.commit);
        }
        note(draft, again, text);
        // Only failed tasks are in the inbox.
        if old.status == Status::Failed {
            inbox::dismiss(draft, old.id)?;
        }
        return Ok(again);
    }
    let task = task::find(draft.board(), id)?;
    landing::join::refuse_work(draft.board(), &task)?;
    match task.status {
        Status::NeedsHuman => task::try_again(draft, id, task.reason.as_deref().unwrap_or("tried again"))?,
        status if status.is_waiting() => {}
        Status::InProgress | Status::Validating => attempt::stop_task(draft, id, "tried again from the start")?,
        from => return Err(Refusal::Illegal { task: id, from, to: Status::Pending }),
    }
    // `stop` pauses a task, and a retry ends the pause.
    if task.paused.is_some() {
        task::edit(draft, id, Edit { paused: Some(Pause::No), ..Edit::default() })?;
    }
    task::due(draft, id);
    Ok(id)
}

/// Ends a supervised attempt whose time is up, or whose program did not open a session in time.
pub fn time_out(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return Ok(()) };
    if attempt.stopping.is_some() || attempt.phase != attempt::Phase::Working {
        return Ok(());
    }
    if attempt.wall_at.is_some_and(|at| at <= now.at) {
        budget::tick(draft, id, now)?;
        if draft.board().attempts.get(&id).is_none_or(|it| it.stopping.is_some()) {
            return Ok(());
        }
    }
    // An attempt that waits for a person does not use up its time.
    let waits = draft.board().approvals.values().any(|it| it.attempt == id && it.is_awaited());
    if (attempt.talk.held.is_some() || waits) && attempt.until_at.is_some_and(|at| at <= now.at) {
        let until_at = now.at + draft.board().limits.attempt_timeout_ms;
        draft.record(Event::AttemptExtended(Extended { attempt: id, until_at }));
        return Ok(());
    }
    let started = attempt.talk.session.is_some() || attempt.talk.turns > 0;
    let reason = if attempt.ready_by.is_some_and(|at| at <= now.at) && !started {
        "its program did not open a session in time"
    } else if attempt.until_at.is_some_and(|at| at <= now.at) {
        "its time is up"
    } else {
        return Ok(());
    };
    attempt::stop(draft, id, Cause::TimedOut, reason.to_owned());
    attempt::broke_off(draft, attempt.task, Cause::TimedOut, reason)
}

/// Ends an attempt that was silent for too long. Before that, records that it is silent or active
/// again.
pub fn silent(draft: &mut Draft, id: AttemptId, token: u64, since_ms: Option<u64>) -> Result<(), Refusal> {
    let attempt = attempt::live(draft.board(), id, token)?;
    let waits = draft.board().approvals.values().any(|it| it.attempt == id && it.is_awaited());
    // A team member is silent between two turns.
    let idle = attempt.standing.is_some() && !attempt.talk.in_turn;
    let hung = !idle && since_ms.is_some_and(|it| it >= draft.board().limits.silence_ms);
    if hung
        && attempt.talk.held.is_none()
        && !waits
        && attempt.stopping.is_none()
        && attempt.phase == attempt::Phase::Working
    {
        let reason = format!("nothing was heard of it for {}", crate::refusal::seconds(since_ms.unwrap_or(0)));
        attempt::stop(draft, id, Cause::Hung, reason.clone());
        return attempt::broke_off(draft, attempt.task, Cause::Hung, &reason);
    }
    // After half of that time somebody may want to look.
    let long = since_ms.filter(|it| *it >= draft.board().limits.silence_ms / 2);
    let stands = idle || waits || attempt.talk.held.is_some() || attempt.phase != attempt::Phase::Working;
    let since_wall = long.filter(|_| !stands).map(|it| draft.now().wall.saturating_sub(it));
    if attempt.quiet_wall.is_some() != since_wall.is_some() {
        draft.record(Event::AttemptQuiet(Quiet { attempt: id, since_wall }));
    }
    Ok(())
}
