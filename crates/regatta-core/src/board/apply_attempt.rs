//! Changes the board when an event about an attempt is recorded.

use crate::agent_protocol::AgentEvent;
use crate::approval::ApprovalChange;
use crate::attempt::{self, Attempt, TurnEnd};
use crate::budget::Spend;
use crate::event::Event;
use crate::ids::{AttemptId, Now};

use super::{Board, Rows};

impl Board {
    /// Applies an event if it is about an attempt. Events of other kinds change nothing here.
    pub(super) fn apply_attempt(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        match event {
            Event::AttemptReported(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.result = Some(event.result().clone())
                });
            }
            Event::AttemptStarted(event) => {
                self.counters.attempt = event.attempt().id.0;
                self.put_attempt(event.attempt().clone(), rows);
                self.set_last_failed(&event.attempt().agent, None, rows);
                if event.attempt().supervised {
                    let spend = Spend {
                        attempts: 1,
                        ..Spend::default()
                    };
                    self.add_spend(
                        event.attempt().id,
                        crate::budget::day_of(now),
                        &spend,
                        now,
                        rows,
                    );
                }
            }
            Event::AttemptRenewed(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.expires_fleet_ms = Some(*event.expires_at())
                })
            }
            Event::AttemptStopping(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.stopping = Some(*event.cause())
                });
                self.record_cause(*event.attempt(), *event.cause(), now, rows);
            }
            Event::AttemptEnded(event) => {
                // The end of an attempt closes its permission requests and questions, except open
                // questions that now belong to the task.
                for id in self.approvals_of(*event.attempt()) {
                    self.change_approval(id, rows, |approval| {
                        approval.change_state(ApprovalChange::EndAttempt);
                    });
                }
                self.return_unread_notes(*event.attempt(), *event.cause(), now, rows);
                let task = self
                    .attempts
                    .get(event.attempt())
                    .map(|attempt| attempt.task);
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.end = Some(attempt::AttemptEnd {
                        cause: *event.cause(),
                        detail: event.detail().clone(),
                        unix_ms: now.unix_ms,
                    });
                });
                if let Some(task) = task
                    .and_then(|id| self.tasks.get(&id))
                    .filter(|task| task.attempt == Some(*event.attempt()))
                {
                    let cause = self
                        .attempts
                        .get(event.attempt())
                        .and_then(|attempt| attempt.stopping)
                        .unwrap_or(*event.cause());
                    self.change_task(task.id, now, rows, |task| {
                        (task.attempt, task.last_cause) = (None, Some(cause));
                    });
                }
            }
            Event::AttemptSaid(event) => {
                let (record, agent_event) = (*event.n(), event.said().clone());
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    apply_agent_event(attempt, record, agent_event)
                });
            }
            Event::AttemptLaunched(event) => {
                // The time limit for opening a session starts only now, because preparing the
                // workspace was Regatta's work and not the program's.
                let ready_by = now.fleet_ms + self.limits.startup_ms;
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.sandbox = event.sandbox().clone();
                    attempt.session_deadline_fleet_ms =
                        attempt.accepts_follow_ups.then_some(ready_by);
                });
            }
            Event::AttemptPorted(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.ports = event.ports().clone()
                });
            }
            Event::AttemptExtended(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.deadline_fleet_ms = Some(*event.until_at())
                });
            }
            Event::AttemptClocked(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.budget_check_fleet_ms = *event.wall_at()
                });
            }
            Event::AttemptNoted(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.output = event.output().clone()
                });
            }
            Event::AttemptClosing(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.session.closing = true
                });
            }
            Event::AttemptRotating(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    crate::session_rotation::insert_summary_request(&mut attempt.session)
                });
            }
            Event::AttemptTold(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.session.follow_ups.push(event.text().clone())
                });
            }
            Event::AttemptHeld(event) => self.change_attempt(*event.attempt(), rows, |attempt| {
                attempt.session.hold_reason = Some(event.reason().clone());
                attempt.session.cancels += u32::from(attempt.session.in_turn);
            }),
            Event::AttemptQuiet(event) => self.change_attempt(*event.attempt(), rows, |attempt| {
                attempt.quiet_since_unix_ms = *event.since_wall();
                attempt.snoozed = attempt.snoozed.filter(|_| event.since_wall().is_some());
            }),
            Event::AttemptLetGo(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.session.hold_reason = None
                });
            }
            _ => {}
        }
    }

    /// Puts the unread notes and prompts of an attempt back on its task, so that the next attempt
    /// gets them.
    fn return_unread_notes(
        &mut self,
        id: AttemptId,
        cause: attempt::AttemptCause,
        now: Now,
        rows: &mut Rows,
    ) {
        let Some(attempt) = self.attempts.get(&id).cloned() else {
            return;
        };
        let session = &attempt.session;
        let same_session = self
            .tasks
            .get(&attempt.task)
            .and_then(|task| task.resume.as_ref())
            .is_some_and(|resume| resume.session.is_some());
        // A cancelled task gets no further attempt, so nobody needs its notes.
        if cause == attempt::AttemptCause::Cancelled {
            return;
        }
        // An attempt that ended for one of these causes had at least one turn, so its agent read
        // the notes in the first prompt.
        let has_read_notes = matches!(
            cause,
            attempt::AttemptCause::Rested
                | attempt::AttemptCause::Reported
                | attempt::AttemptCause::Submitted
        );
        let mut unread = if has_read_notes || (session.turns > 0 && same_session) {
            vec![]
        } else {
            attempt.notes.clone()
        };
        let sent = usize::try_from(session.turns.saturating_sub(1))
            .unwrap_or(usize::MAX)
            .min(session.follow_ups.len());
        unread.extend(
            session.follow_ups[sent..]
                .iter()
                .filter(|follow_up| !crate::session_rotation::is_summary_request(follow_up))
                .cloned(),
        );
        if !unread.is_empty() {
            self.change_task(attempt.task, now, rows, |task| {
                unread.append(&mut task.notes);
                task.notes = unread;
            });
        }
    }

    /// Stores the cause of the end of attempt `id` on its task, if `id` is still the current
    /// attempt of the task.
    fn record_cause(
        &mut self,
        id: AttemptId,
        cause: attempt::AttemptCause,
        now: Now,
        rows: &mut Rows,
    ) {
        let task = self
            .attempts
            .get(&id)
            .and_then(|attempt| self.tasks.get(&attempt.task))
            .filter(|task| task.attempt == Some(id));
        if let Some(task) = task.map(|task| task.id) {
            self.change_task(task, now, rows, |task| task.last_cause = Some(cause));
        }
    }
}

/// Updates an attempt with an event that its program reported; `n` is the event's position in the
/// program's journal (its recorded output).
fn apply_agent_event(attempt: &mut Attempt, n: u64, event: AgentEvent) {
    let session = &mut attempt.session;
    session.last_record = n;
    match event {
        AgentEvent::Started {
            session: session_id,
            model,
        } => {
            session.session_id = session_id.or(session.session_id.take());
            session.model = model.or(session.model.take());
        }
        AgentEvent::TurnStarted { n } => {
            session.turns = session.turns.max(n + 1);
            (session.in_turn, session.last_turn_end) = (true, None);
        }
        AgentEvent::Plan { entries } => session.plan = entries,
        AgentEvent::Usage {
            session: session_id,
            usage,
        } => {
            let known = session
                .usage_by_session
                .iter_mut()
                .find(|(id, _)| *id == session_id);
            match known {
                Some((_, known)) => *known = known.componentwise_max(&usage),
                None => session.usage_by_session.push((session_id, usage)),
            }
        }
        AgentEvent::Context { used, size } => session.context = Some((used, size)),
        AgentEvent::Limited {
            deadline_unix_ms,
            detail,
        } => session.provider_limit = Some((deadline_unix_ms, detail)),
        AgentEvent::TurnEnded {
            stop,
            class,
            detail,
        } => {
            session.in_turn = false;
            session.last_turn_end = Some(TurnEnd {
                stop,
                class,
                detail,
            });
        }
        AgentEvent::RequestMade(_)
        | AgentEvent::RequestWithdrawn { .. }
        | AgentEvent::Message { .. }
        | AgentEvent::Thought { .. }
        | AgentEvent::Tool(_)
        | AgentEvent::Notice { .. } => {}
    }
}
