//! Updates the state of a team member from events of its session. The update of one member never
//! depends on other members (T3).

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{AgentEvent, StopReason};
use crate::attempt::{self, Attempt};
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{AttemptId, Now, TaskId};
use crate::refusal::Refusal;
use crate::task::Task;
use crate::{agent, task};

use super::coordinator::{
    add_evidence, current_entry, failed_entry, record_entry, restart_session,
};
use super::{EvidenceSource, LaunchEntry, MemberCauseKind, MemberChange, MemberState};

/// The current activity of a team member, derived from its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberActivity {
    /// The member has no session and should have none.
    Absent,
    /// The member should have a session but has none.
    Dead,
    /// The member's session is being opened, or has not yet answered its first prompt.
    #[serde(rename = "coming")]
    Starting,
    /// The member runs and waits for a prompt.
    Idle,
    /// The member is answering a prompt in its session, or works on a task.
    Working,
    /// The member asked a person for a permission or an answer and waits.
    Waiting,
    /// The member is answering a prompt, but its program has sent nothing for at least half of the
    /// permitted time.
    Hung,
    /// The member's session is being stopped.
    #[serde(rename = "ending")]
    Stopping,
}

/// Returns what a team member is doing now.
pub fn activity(board: &Board, entry: &LaunchEntry) -> MemberActivity {
    let Some(session) = entry.attempt.and_then(|id| board.attempts.get(&id)) else {
        return if entry.state.is_pending() && entry.state != MemberState::Queued
            || entry.state == MemberState::Alive
        {
            MemberActivity::Dead
        } else {
            MemberActivity::Absent
        };
    };
    if session.stopping.is_some() {
        return MemberActivity::Stopping;
    }
    // The member waits if its session or its work on any task has an open request to a person.
    let is_of_member = |id: AttemptId| {
        board
            .attempts
            .get(&id)
            .is_some_and(|attempt| attempt.agent == entry.agent)
    };
    if board
        .approvals
        .values()
        .any(|approval| approval.is_awaited() && is_of_member(approval.attempt))
    {
        return MemberActivity::Waiting;
    }
    let has_task = board
        .attempts
        .values()
        .any(|attempt| attempt.agent == entry.agent && attempt.session_of.is_none());
    match (session.session.in_turn, entry.state) {
        (true, _) if session.is_hung() => MemberActivity::Hung,
        (true, MemberState::Alive) => MemberActivity::Working,
        (false, MemberState::Alive) if has_task => MemberActivity::Working,
        (false, MemberState::Alive) => MemberActivity::Idle,
        _ => MemberActivity::Starting,
    }
}

impl MemberActivity {
    pub const ALL: [MemberActivity; 8] = [
        MemberActivity::Absent,
        MemberActivity::Dead,
        MemberActivity::Starting,
        MemberActivity::Idle,
        MemberActivity::Working,
        MemberActivity::Waiting,
        MemberActivity::Hung,
        MemberActivity::Stopping,
    ];

    /// Returns the activity as a word for display.
    pub fn label(self) -> &'static str {
        match self {
            MemberActivity::Absent => "absent",
            MemberActivity::Dead => "dead",
            MemberActivity::Starting => "starting",
            MemberActivity::Idle => "idle",
            MemberActivity::Working => "working",
            MemberActivity::Waiting => "needs you",
            MemberActivity::Hung => "hung",
            MemberActivity::Stopping => "stopping",
        }
    }
}

/// Returns the activity of the team member whose session this task keeps open, or `None` for any
/// other task. A task that keeps a session open is in progress as long as the session exists,
/// although the member may be idle.
pub fn activity_of_task(board: &Board, task: &Task) -> Option<MemberActivity> {
    let attempt = board.attempts.get(&task.attempt?)?;
    let session = attempt.session_of.as_ref()?;
    let entry = current_entry(board, session.launch, &session.member)?;
    let has_open_request = board
        .approvals
        .values()
        .any(|approval| approval.is_awaited() && approval.attempt == attempt.id);
    Some(match activity(board, &entry) {
        // `activity` also counts the member's other tasks. Here only the session counts, so work
        // and requests to a person that belong to another task are ignored.
        MemberActivity::Working if !attempt.session.in_turn => MemberActivity::Idle,
        MemberActivity::Waiting if !has_open_request => {
            if attempt.session.in_turn {
                MemberActivity::Working
            } else {
                MemberActivity::Idle
            }
        }
        other => other,
    })
}

/// Updates a team member's entry in the record of its launch after an event of the member's
/// session.
pub(crate) fn on_session_event(draft: &mut Draft, id: AttemptId, event: &Event, now: Now) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return;
    };
    let Some(entry) = entry_of(draft.board(), &attempt) else {
        return;
    };
    let launch = attempt
        .session_of
        .as_ref()
        .map(|session| session.launch)
        .unwrap_or_default();
    let mut entry = match event {
        Event::AttemptLaunched(attempt_launched) => {
            let sandbox = attempt_launched
                .sandbox()
                .as_deref()
                .map_or("without a sandbox".to_owned(), |s| {
                    format!("sandboxed by {s}")
                });
            let entry = add_evidence(
                entry,
                EvidenceSource::Process,
                format!("its program runs, {sandbox}"),
                now,
            );
            entry.changed(MemberChange::Run)
        }
        Event::AttemptSaid(attempt_said) => on_agent_event(entry, attempt_said.said(), now),
        _ => entry,
    };
    let has_open_request = draft
        .board()
        .approvals
        .values()
        .any(|approval| approval.is_awaited() && approval.attempt == id);
    match (has_open_request, entry.state) {
        (true, MemberState::Starting | MemberState::PendingBootstrap) => {
            entry = add_evidence(
                entry,
                EvidenceSource::Permission,
                "it asks a person before it has answered its first prompt".into(),
                now,
            );
            entry = entry.changed(MemberChange::AskPermission);
        }
        (false, MemberState::PendingPermission) => {
            entry = add_evidence(
                entry,
                EvidenceSource::Permission,
                "its request was answered".into(),
                now,
            );
            entry = entry.changed(MemberChange::GetPermission);
        }
        _ => {}
    }
    record_entry(draft, launch, entry);
}

/// Updates a member's entry in the launch after an event that the member's program reported.
fn on_agent_event(entry: LaunchEntry, event: &AgentEvent, now: Now) -> LaunchEntry {
    match event {
        AgentEvent::Started { session, model } => {
            let session_name = session
                .as_deref()
                .map(|session| format!(" {session}"))
                .unwrap_or_default();
            let with_model = model
                .as_deref()
                .map(|model| format!(" with {model}"))
                .unwrap_or_default();
            let mut entry = add_evidence(
                entry,
                EvidenceSource::Protocol,
                format!("its session{session_name} is open{with_model}"),
                now,
            );
            entry.effective.model = model.clone().or(entry.effective.model);
            entry.changed(MemberChange::Run)
        }
        // A member is alive only after a completed turn, because that proves that its model is
        // available.
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            ..
        } if entry.state.is_pending() => {
            let entry = add_evidence(
                entry,
                EvidenceSource::Protocol,
                "it has answered its first prompt".into(),
                now,
            );
            LaunchEntry {
                alive_since_unix_ms: Some(now.unix_ms),
                cause: None,
                ..entry.changed(MemberChange::Answer)
            }
        }
        AgentEvent::TurnEnded {
            class: Some(class),
            detail,
            ..
        } => add_evidence(
            entry,
            EvidenceSource::Protocol,
            format!("its turn ended with {class}: {}", shorten(detail)),
            now,
        ),
        _ => entry,
    }
}

/// Handles the end of a member's session: records why it ended, takes the member's agent offline,
/// or starts a new session if only the model's context was full. Other members are not affected
/// (T3).
pub(crate) fn on_session_ended(
    draft: &mut Draft,
    attempt: &Attempt,
    cause: attempt::AttemptCause,
    detail: &str,
    now: Now,
) -> Result<(), Refusal> {
    let Some(session) = attempt.session_of.clone() else {
        return Ok(());
    };
    let notes = draft
        .board()
        .tasks
        .get(&attempt.task)
        .map(|task| task.notes.clone())
        .unwrap_or_default();
    close_task(
        draft,
        attempt.task,
        &format!("the session of {} has ended", attempt.agent),
    )?;
    let Some(entry) = entry_of(draft.board(), attempt) else {
        return Ok(());
    };
    let was_up = entry.state == MemberState::Alive;
    let stopping = draft
        .board()
        .launches
        .get(&session.launch)
        .is_some_and(|launch| launch.stopping.is_some());
    let text = end_reason(draft.board(), attempt, cause, detail);
    let entry = add_evidence(
        entry,
        EvidenceSource::Process,
        format!("its session {} has ended: {}", attempt.id, shorten(&text)),
        now,
    );
    let entry = LaunchEntry {
        ended_unix_ms: Some(now.unix_ms),
        attempt: None,
        task: None,
        ..entry
    };
    if was_up && !stopping && cause == attempt::AttemptCause::ContextFull {
        // The model's context was full, so the member continues in a new session, which gets the
        // notes of the old session.
        restart_session(
            draft,
            session.launch,
            LaunchEntry {
                ended_unix_ms: None,
                ..entry
            },
            notes,
            now,
        );
        return Ok(());
    }
    let entry = match cause {
        attempt::AttemptCause::Stopped | attempt::AttemptCause::Cancelled => entry
            .changed(MemberChange::Stop)
            .with_cause(MemberCauseKind::Stopped, text),
        _ if stopping => entry
            .changed(MemberChange::Stop)
            .with_cause(MemberCauseKind::Stopped, text),
        _ if was_up => entry
            .changed(MemberChange::Degrade)
            .with_cause(cause_kind(cause), text),
        _ => failed_entry(entry, cause_kind(cause), &text, now),
    };
    if draft.board().agents.contains_key(&entry.agent) {
        agent::take_offline(
            draft,
            &entry.agent.clone(),
            "its team's session has ended",
            now,
        )?;
    }
    record_entry(draft, session.launch, entry);
    Ok(())
}

/// Returns in words why a member's session ended. If the team is being stopped, this is the reason
/// of that stop.
fn end_reason(
    board: &Board,
    attempt: &Attempt,
    cause: attempt::AttemptCause,
    detail: &str,
) -> String {
    let stopping = attempt
        .session_of
        .as_ref()
        .and_then(|session| board.launches.get(&session.launch)?.stopping.clone());
    match (cause, stopping) {
        (attempt::AttemptCause::Stopped, Some(reason)) => reason,
        (attempt::AttemptCause::Stopped, None) => "it was stopped by hand".to_owned(),
        (attempt::AttemptCause::Cancelled, _) => {
            "the task that holds its session open was cancelled".to_owned()
        }
        (attempt::AttemptCause::Hung, _) if detail == "stopped" => {
            "it was silent for too long".to_owned()
        }
        (attempt::AttemptCause::TimedOut, _) if detail == "stopped" => {
            "it did not start in time".to_owned()
        }
        _ => detail.to_owned(),
    }
}

/// Converts the cause for which a team member's session ended into the category that is recorded
/// for the member.
fn cause_kind(cause: attempt::AttemptCause) -> MemberCauseKind {
    use attempt::AttemptCause;
    match cause {
        AttemptCause::Auth => MemberCauseKind::SignIn,
        AttemptCause::BadConfig => MemberCauseKind::Program,
        AttemptCause::Parked
        | AttemptCause::Overloaded
        | AttemptCause::NoNetwork
        | AttemptCause::Refused
        | AttemptCause::OverBudget => MemberCauseKind::Provider,
        AttemptCause::Crashed
        | AttemptCause::GaveUp
        | AttemptCause::Reported
        | AttemptCause::Submitted => MemberCauseKind::Crashed,
        AttemptCause::TimedOut => MemberCauseKind::TimedOut,
        AttemptCause::Hung => MemberCauseKind::Hung,
        AttemptCause::Lost => MemberCauseKind::Lost,
        AttemptCause::Stopped | AttemptCause::Cancelled => MemberCauseKind::Stopped,
        AttemptCause::Environment => MemberCauseKind::Environment,
        AttemptCause::Invalid
        | AttemptCause::Rejected
        | AttemptCause::Blocked
        | AttemptCause::NothingChanged
        | AttemptCause::ScopeEscape
        | AttemptCause::Rested
        | AttemptCause::ContextFull => MemberCauseKind::Other,
    }
}

/// Returns the entry, in the record of its launch, of the member whose session this attempt is.
/// Returns `None` if the member has another session by now.
fn entry_of(board: &Board, attempt: &Attempt) -> Option<LaunchEntry> {
    let session = attempt.session_of.as_ref()?;
    current_entry(board, session.launch, &session.member)
        .filter(|entry| entry.attempt == Some(attempt.id))
}

/// Cancels the task that kept a member's session open, if that task has not ended.
fn close_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    if draft.board().tasks.contains_key(&id) {
        task::cancel(draft, id, reason)?;
    }
    Ok(())
}

/// Shortens a text to its first 300 characters, so that members' entries stay small.
fn shorten(text: &str) -> String {
    text.chars().take(300).collect()
}
