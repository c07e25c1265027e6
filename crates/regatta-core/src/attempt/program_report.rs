//! Handles the reports of an attempt's program while it runs: that it has started, the events of
//! its session, and the agent's report of finished work.

use crate::agent_protocol::{AgentEvent, StopReason};
use crate::board::Draft;
use crate::budget::{self, Spend};
use crate::event::Event;
use crate::ids::{AttemptId, Now};
use crate::refusal::Refusal;
use crate::{approval, provider_outage, session_rotation, task};

use super::{
    Attempt, AttemptClosing, AttemptLaunched, AttemptNoted, AttemptPhase, AttemptSaid,
    require_attempt, verdict,
};

/// Records that an attempt's program has started, and in which sandbox.
pub fn on_launched(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    sandbox: Option<String>,
    warnings: Vec<String>,
) -> Result<(), Refusal> {
    require_attempt(draft.board(), id, token)?;
    draft.record(Event::AttemptLaunched(AttemptLaunched {
        attempt: id,
        sandbox,
        warnings,
    }));
    Ok(())
}

/// A report that an agent makes with the `finish` tool while its program still runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishReport {
    pub output: Option<String>,
    /// True if the agent found that the task needs no change.
    pub not_needed: bool,
    /// Facts that the agent learned and that may help later tasks of the project.
    pub learnings: Vec<String>,
}

impl FinishReport {
    /// Returns whether the report says more than its output text: that no change is needed, or
    /// facts for later tasks. Only such a report is stored as the attempt's result.
    pub(crate) fn is_result(&self) -> bool {
        self.not_needed || !self.learnings.is_empty()
    }
}

/// Stores a `finish` report of an agent whose program is still running.
pub fn record_report(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    report: FinishReport,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    if attempt.stopping.is_some() || attempt.phase != AttemptPhase::Working {
        return Err(Refusal::StaleAttempt {
            task: attempt.task,
            attempt: id,
            live: None,
        });
    }
    task::check_output(report.output.as_deref())?;
    verdict::check_learnings(&report.learnings)?;
    if report.is_result() {
        verdict::record_result(draft, id, &report);
    }
    if attempt.output != report.output {
        draft.record(Event::AttemptNoted(AttemptNoted {
            attempt: id,
            output: report.output,
        }));
    }
    Ok(())
}

/// Records that Regatta will send no further prompt to an attempt's program, so that the program
/// can end.
pub(crate) fn close_session(draft: &mut Draft, id: AttemptId) {
    if draft
        .board()
        .attempts
        .get(&id)
        .is_some_and(|attempt| !attempt.session.closing)
    {
        draft.record(Event::AttemptClosing(AttemptClosing { attempt: id }));
    }
}

/// Handles an event that a supervised attempt's program reported; `record` is the event's position
/// in the program's journal (its recorded output). An event that was already handled changes
/// nothing.
pub fn on_agent_event(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    record: u64,
    event: AgentEvent,
    now: Now,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    // One record of the program's journal (its recorded output) can contain several events. So only
    // the events of earlier records are certainly old, and an event of the last record is applied,
    // because it may be new.
    if record < attempt.session.last_record || !event.changes_state() {
        return Ok(());
    }
    let used = match &event {
        AgentEvent::Usage { session, usage } => Spend {
            usage: usage.since(&attempt.session.usage_of_session(session.as_deref())),
            ..Spend::default()
        },
        AgentEvent::TurnStarted { n } if *n >= attempt.session.turns => Spend {
            turns: 1,
            ..Spend::default()
        },
        _ => Spend::default(),
    };
    let before = Attempt::clone(&attempt);
    draft.record(Event::AttemptSaid(AttemptSaid {
        attempt: id,
        n: record,
        said: event.clone(),
    }));
    match event {
        AgentEvent::RequestMade(request) => {
            approval::on_agent_request(draft, &before, request, now)?
        }
        AgentEvent::RequestWithdrawn { request } => {
            approval::on_program_withdrew(draft, &before, &request)
        }
        AgentEvent::TurnEnded { stop, class, .. } => {
            approval::close_requests(draft, id, "its turn has ended", false);
            if class.is_none() && stop == StopReason::EndTurn && before.accepts_prompts() {
                approval::send_unread_answers(draft, &before);
            }
            if class.is_none() && stop == StopReason::EndTurn {
                provider_outage::on_work_succeeded(draft, &before.agent);
            }
            let attempt = require_attempt(draft.board(), id, token)?;
            if session_rotation::on_turn_ended(draft, &attempt, stop)? {
                return budget::charge(draft, id, used, now);
            }
            let attempt = require_attempt(draft.board(), id, token)?;
            let is_kept_open = attempt.session_of.is_some() && attempt.stopping.is_none();
            let waits_for_prompt = attempt.session.hold_reason.is_some()
                || (stop == StopReason::EndTurn && !attempt.session.is_finished())
                || (stop == StopReason::EndTurn
                    && class.is_none()
                    && approval::awaits_answer(draft.board(), &attempt))
                || (is_kept_open
                    && class.is_none()
                    && matches!(stop, StopReason::EndTurn | StopReason::Cancelled));
            if !waits_for_prompt && attempt.phase == AttemptPhase::Working {
                close_session(draft, id);
            }
        }
        _ => {}
    }
    budget::charge(draft, id, used, now)
}
