//! What is seen of a member's session, and what that says of the member. Nothing here asks who else is in the team.

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

/// What a member is at now, from what lives, what it said and how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Live {
    /// It has no session and should have none.
    Absent,
    /// It should have a session, and there is none.
    Dead,
    /// Its session is being made.
    Coming,
    /// It waits for words.
    Idle,
    /// It is in a turn of its session, or works on a task.
    Working,
    /// It asked for something and waits for the answer.
    Waiting,
    /// It is in a turn and has said nothing for too long.
    Hung,
    /// It is being ended.
    Ending,
}

/// Tells what a member is at; `silent_ms` is how long ago its program last said something, where that is known.
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
    // Asked in its session, or at one of its tasks: it is the member who waits.
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
    /// As people read it.
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

/// What the member is at whose session a task is; nothing for any other task. Who waits for words does not work, though
/// its standing task is in progress as long as it lives.
pub fn at(board: &Board, task: &Task, silent_ms: Option<u64>) -> Option<Live> {
    let attempt = board.attempts.get(&task.attempt?)?;
    let standing = attempt.standing.as_ref()?;
    let entry = current(board, standing.launch, &standing.member)?;
    let asks = board.approvals.values().any(|it| it.is_awaited() && it.attempt == attempt.id);
    Some(match live(board, &entry, silent_ms) {
        // What it works on beside its session, or waits for there, is another task's.
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

/// Takes what an event says of a member's session.
pub(crate) fn seen(draft: &mut Draft, id: AttemptId, event: &Event, now: Now) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return };
    let Some(entry) = entry_of(draft.board(), &attempt) else { return };
    let launch = attempt.standing.as_ref().map(|it| it.launch).unwrap_or_default();
    let mut entry = match event {
        Event::AttemptLaunched(it) => {
            let shut_in = it.sandbox().as_deref().map_or("not shut in".to_owned(), |it| format!("shut in by {it}"));
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

/// From starting to what comes next; whoever is up stays so.
fn move_on(entry: Entry, to: State) -> Entry {
    Entry { state: if entry.state == State::Starting { to } else { entry.state }, ..entry }
}

fn heard(entry: Entry, said: &Said, now: Now) -> Entry {
    match said {
        Said::Started { session, model } => {
            let named = session.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
            let with = model.as_deref().map(|it| format!(" with {it}")).unwrap_or_default();
            let mut entry = note(entry, Sign::Protocol, format!("its session{named} is open{with}"), now);
            entry.got.model = model.clone().or(entry.got.model);
            move_on(entry, State::PendingBootstrap)
        }
        // It has answered: only that shows that its model is there.
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

/// Takes the end of a member's session: it is this member's alone (T3).
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
        // It goes on in a fresh session that is told what the old one left.
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

/// The words for an end: an attempt that was stopped ended in the words of who stopped it.
fn said(board: &Board, attempt: &Attempt, cause: attempt::Cause, detail: &str) -> String {
    let stopping = attempt.standing.as_ref().and_then(|it| board.launches.get(&it.launch)?.stopping.clone());
    match (cause, stopping) {
        (attempt::Cause::Stopped, Some(reason)) => reason,
        (attempt::Cause::Stopped, None) => "it was stopped by hand".to_owned(),
        (attempt::Cause::Cancelled, _) => "its standing task was cancelled".to_owned(),
        (attempt::Cause::Hung, _) if detail == "stopped" => "it said nothing for too long".to_owned(),
        (attempt::Cause::TimedOut, _) if detail == "stopped" => "it did not come up in time".to_owned(),
        _ => detail.to_owned(),
    }
}

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

/// The entry whose session an attempt is; nothing when the member has another by now.
fn entry_of(board: &Board, attempt: &Attempt) -> Option<Entry> {
    let standing = attempt.standing.as_ref()?;
    current(board, standing.launch, &standing.member).filter(|it| it.attempt == Some(attempt.id))
}

fn close_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    match draft.board().tasks.contains_key(&id) {
        true => task::cancel(draft, id, reason),
        false => Ok(()),
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
