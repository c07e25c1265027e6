//! Observations of a member's session, and the member's state that follows from them. This module
//! never looks at other members (T3).

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt};
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{AttemptId, Now, TaskId};
use crate::refusal::Refusal;
use crate::session::{Said, Stop};
use crate::task::Task;
use crate::{agent, task};

use super::coordinate::{current, failed, note, put, reopen};
use super::{Entry, Sign, State, Why};

/// The current activity of a member, derived from its session and the time since its last output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Live {
    /// It has no session and should have none.
    Absent,
    /// It should have a session, and there is none.
    Dead,
    /// Its session is being created.
    Coming,
    /// It waits for a prompt.
    Idle,
    /// It is in a turn of its session, or works on a task.
    Working,
    /// It asked for something and waits for the answer.
    Waiting,
    /// It is in a turn and has been silent for too long.
    Hung,
    /// It is being stopped.
    Ending,
}

/// Returns a member's current activity. `silent_ms` is the time since its program's last output, if
/// known.
pub fn live(board: &Board, entry: &Entry, silent_ms: Option<u64>) -> Live {
    let Some(session) = entry.attempt.and_then(|it| board.attempts.get(&it)) else {
        return if entry.state.is_pending() && entry.state != State::Queued || entry.state == State::Alive {
            Live::Dead
        } else {
            Live::Absent
        };
    };
    if session.stopping.is_some() {
        return Live::Ending;
    }
    // A request in its session or in one of its tasks makes the member wait.
    let its = |id: AttemptId| board.attempts.get(&id).is_some_and(|it| it.agent == entry.agent);
    if board.approvals.values().any(|it| it.is_awaited() && its(it.attempt)) {
        return Live::Waiting;
    }
    let hung = silent_ms.is_some_and(|it| it >= board.limits.silence_ms);
    let at_work = board.attempts.values().any(|it| it.agent == entry.agent && it.standing.is_none());
    match (session.talk.in_turn, entry.state) {
        (true, _) if hung => Live::Hung,
        (true, State::Alive) => Live::Working,
        (false, State::Alive) if at_work => Live::Working,
        (false, State::Alive) => Live::Idle,
        _ => Live::Coming,
    }
}

impl Live {
    /// Returns the word that people see.
    pub fn word(self) -> &'static str {
        match self {
            Live::Absent => "-",
            Live::Dead => "dead",
            Live::Coming => "starting",
            Live::Idle => "idle",
            Live::Working => "working",
            Live::Waiting => "needs you",
            Live::Hung => "hung",
            Live::Ending => "stopping",
        }
    }
}

/// Returns the activity of the member whose session this task is; `None` for any other task. A
/// member that waits for a prompt is idle, although its standing task is in progress as long as the
/// session lives.
pub fn at(board: &Board, task: &Task, silent_ms: Option<u64>) -> Option<Live> {
    let attempt = board.attempts.get(&task.attempt?)?;
    let standing = attempt.standing.as_ref()?;
    let entry = current(board, standing.launch, &standing.member)?;
    let asks = board.approvals.values().any(|it| it.is_awaited() && it.attempt == attempt.id);
    Some(match live(board, &entry, silent_ms) {
        // Work and requests outside the session belong to other tasks.
        Live::Working if !attempt.talk.in_turn => Live::Idle,
        Live::Waiting if !asks => {
            if attempt.talk.in_turn {
                Live::Working
            } else {
                Live::Idle
            }
        }
        other => other,
    })
}

/// Updates a member's entry after an event of its session.
pub(crate) fn seen(draft: &mut Draft, id: AttemptId, event: &Event, now: Now) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return };
    let Some(entry) = entry_of(draft.board(), &attempt) else { return };
    let launch = attempt.standing.as_ref().map(|it| it.launch).unwrap_or_default();
    let mut entry = match event {
        Event::AttemptLaunched(it) => {
            let shut_in =
                it.sandbox().as_deref().map_or("without a sandbox".to_owned(), |it| format!("sandboxed by {it}"));
            let entry = note(entry, Sign::Process, format!("its program runs, {shut_in}"), now);
            move_on(entry, State::PendingBootstrap)
        }
        Event::AttemptSpoke(it) => heard(entry, it.said(), now),
        _ => entry,
    };
    let asks = draft.board().approvals.values().any(|it| it.is_awaited() && it.attempt == id);
    match (asks, entry.state) {
        (true, State::Starting | State::PendingBootstrap) => {
            entry = note(entry, Sign::Permission, "it asks for something before it is up".into(), now);
            entry.state = State::PendingPermission;
        }
        (false, State::PendingPermission) => {
            entry = note(entry, Sign::Permission, "it was answered".into(), now);
            entry.state = State::PendingBootstrap;
        }
        _ => {}
    }
    put(draft, launch, entry);
}

/// Moves a starting member to the state `to`. Other states stay.
fn move_on(entry: Entry, to: State) -> Entry {
    Entry { state: if entry.state == State::Starting { to } else { entry.state }, ..entry }
}

/// Updates a member's entry after an event that its program sent.
fn heard(entry: Entry, said: &Said, now: Now) -> Entry {
    match said {
        Said::Started { session, model } => {
            let named = session.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
            let with = model.as_deref().map(|it| format!(" with {it}")).unwrap_or_default();
            let mut entry = note(entry, Sign::Protocol, format!("its session{named} is open{with}"), now);
            entry.got.model = model.clone().or(entry.got.model);
            move_on(entry, State::PendingBootstrap)
        }
        // Only a completed turn proves that the member's model is available.
        Said::TurnEnded { stop: Stop::EndTurn, class: None, .. } if entry.state.is_pending() => {
            let entry = note(entry, Sign::Protocol, "it has answered its first prompt".into(), now);
            Entry { state: State::Alive, alive_wall: Some(now.wall), cause: None, ..entry }
        }
        Said::TurnEnded { class: Some(class), detail, .. } => {
            note(entry, Sign::Protocol, format!("its turn ended with {class}: {}", short(detail)), now)
        }
        _ => entry,
    }
}

/// Applies the end of a member's session, which concerns only this member (T3).
pub(crate) fn ended(
    draft: &mut Draft,
    attempt: &Attempt,
    (cause, detail): (attempt::Cause, &str),
    now: Now,
) -> Result<(), Refusal> {
    let Some(standing) = attempt.standing.clone() else { return Ok(()) };
    let words = draft.board().tasks.get(&attempt.task).map(|it| it.notes.clone()).unwrap_or_default();
    close_task(draft, attempt.task, &format!("the session of {} has ended", attempt.agent))?;
    let Some(entry) = entry_of(draft.board(), attempt) else { return Ok(()) };
    let was_up = entry.state == State::Alive;
    let stopping = draft.board().launches.get(&standing.launch).is_some_and(|it| it.stopping.is_some());
    let text = said(draft.board(), attempt, cause, detail);
    let entry = note(entry, Sign::Process, format!("its session {} has ended: {}", attempt.id, short(&text)), now);
    let entry = Entry { ended_wall: Some(now.wall), attempt: None, task: None, ..entry };
    if was_up && !stopping && cause == attempt::Cause::ContextFull {
        // The member continues in a fresh session, which gets the notes of the old one.
        reopen(draft, standing.launch, Entry { ended_wall: None, ..entry }, words, now);
        return Ok(());
    }
    let entry = match cause {
        attempt::Cause::Stopped | attempt::Cause::Cancelled => {
            Entry { state: State::Stopped, ..entry }.because(Why::Stopped, text)
        }
        _ if stopping => Entry { state: State::Stopped, ..entry }.because(Why::Stopped, text),
        _ if was_up => Entry { state: State::Degraded, ..entry }.because(why(cause), text),
        _ => failed(entry, why(cause), &text, now),
    };
    if draft.board().agents.contains_key(&entry.agent) {
        agent::leave(draft, &entry.agent.clone(), "its team's session has ended", now)?;
    }
    put(draft, standing.launch, entry);
    Ok(())
}

/// Returns the reason of an end. A stopped attempt gets the reason of the stop.
fn said(board: &Board, attempt: &Attempt, cause: attempt::Cause, detail: &str) -> String {
    let stopping = attempt.standing.as_ref().and_then(|it| board.launches.get(&it.launch)?.stopping.clone());
    match (cause, stopping) {
        (attempt::Cause::Stopped, Some(reason)) => reason,
        (attempt::Cause::Stopped, None) => "it was stopped by hand".to_owned(),
        (attempt::Cause::Cancelled, _) => "its standing task was cancelled".to_owned(),
        (attempt::Cause::Hung, _) if detail == "stopped" => "it was silent for too long".to_owned(),
        (attempt::Cause::TimedOut, _) if detail == "stopped" => "it did not come up in time".to_owned(),
        _ => detail.to_owned(),
    }
}

/// Returns the kind of problem for an attempt's cause.
fn why(cause: attempt::Cause) -> Why {
    use attempt::Cause;
    match cause {
        Cause::Auth => Why::SignIn,
        Cause::BadConfig => Why::Program,
        Cause::Parked | Cause::Overloaded | Cause::Refused | Cause::OverBudget => Why::Provider,
        Cause::Crashed | Cause::GaveUp | Cause::Reported | Cause::Submitted => Why::Crashed,
        Cause::TimedOut => Why::TimedOut,
        Cause::Hung => Why::Hung,
        Cause::Lost => Why::Lost,
        Cause::Stopped | Cause::Cancelled => Why::Stopped,
        Cause::Environment => Why::Environment,
        Cause::Invalid
        | Cause::Rejected
        | Cause::Blocked
        | Cause::NothingChanged
        | Cause::ScopeEscape
        | Cause::Rested
        | Cause::ContextFull => Why::Other,
    }
}

/// Returns the entry of the member whose session this attempt is, unless the member has another
/// session by now.
fn entry_of(board: &Board, attempt: &Attempt) -> Option<Entry> {
    let standing = attempt.standing.as_ref()?;
    current(board, standing.launch, &standing.member).filter(|it| it.attempt == Some(attempt.id))
}

/// Cancels a standing task, if it is still open.
fn close_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    if draft.board().tasks.contains_key(&id) {
        task::cancel(draft, id, reason)?;
    }
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
