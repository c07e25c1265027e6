//! Changes the board when an event about a task is recorded.

use crate::attempt::AttemptPhase;
use crate::event::Event;
use crate::ids::{CommitId, Now, TaskId};
use crate::task::{Task, TaskStatus};

use super::{Board, Rows};

impl Board {
    /// Applies an event if it is about a task. Events of other kinds change nothing here.
    pub(super) fn apply_task(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        match event {
            Event::TaskAdded(event) => {
                self.counters.task = event.task().id.0;
                self.put_task(event.task().clone(), rows);
            }
            Event::TaskEdited(event) => {
                let edited = event.task();
                self.change_task(edited.id, now, rows, |task| *task = Task::clone(edited));
            }
            Event::TaskAssigned(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(*event.status());
                task.assignee = event.to().clone();
                task.offer_until_fleet_ms = None;
            }),
            Event::TaskOffered(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(TaskStatus::Offered);
                task.assignee = Some(event.to().clone());
                task.offer_until_fleet_ms = Some(*event.until_at());
            }),
            Event::TaskStarted(event) => {
                self.change_task(*event.task(), now, rows, |task| {
                    task.change_status(TaskStatus::InProgress);
                    task.attempt = Some(*event.attempt());
                    task.agent = Some(event.agent().clone());
                    task.offer_until_fleet_ms = None;
                    task.progress = String::new();
                    // The new attempt has taken over the task's notes and its resume point, so the
                    // task no longer needs to store these.
                    (task.notes, task.resume, task.not_before_fleet_ms) = (vec![], None, None);
                })
            }
            Event::TaskProgressed(event) => self.change_task(*event.task(), now, rows, |task| {
                task.progress = event.text().clone()
            }),
            Event::TaskValidating(event) => {
                self.change_attempt(*event.attempt(), rows, |attempt| {
                    attempt.phase = AttemptPhase::Validating
                });
                self.change_task(*event.task(), now, rows, |task| {
                    task.change_status(TaskStatus::Validating);
                    task.output = event.output().clone();
                });
            }
            Event::TaskSubmitted(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(TaskStatus::Landing);
                task.landing = Some(*event.landing());
                task.submission = Some(event.submission().clone());
                (task.reason, task.needed_decision, task.fixup) = (None, None, None);
            }),
            Event::TaskReturned(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(*event.status());
                task.reason = Some(event.reason().clone());
                task.failures += u32::from(*event.counts());
                task.needed_decision = None;
                task.landing = None;
                task.resting = event.again().as_ref().is_some_and(|next| next.resting);
                if let Some(again) = event.again() {
                    task.tries = if again.was_interrupted {
                        task.tries + 1
                    } else {
                        0
                    };
                    task.not_before_fleet_ms = again.not_before_fleet_ms;
                    task.resume = again.resume.clone();
                    task.reviewed = again.reviewed.clone().or(task.reviewed.take());
                    if again.forget_notes {
                        task.notes.clear();
                    }
                    if let Some(fixup) = &again.fixup {
                        task.record_fixup(fixup);
                        task.fixups += 1;
                    }
                }
            }),
            Event::TaskDue(event) => self.change_task(*event.task(), now, rows, |task| {
                (task.not_before_fleet_ms, task.resting) = (None, false);
            }),
            Event::TaskNoted(event) => self.change_task(*event.task(), now, rows, |task| {
                task.notes.push(event.text().clone())
            }),
            Event::TaskWarned(event) => {
                self.change_task(*event.task(), now, rows, |task| {
                    task.warnings.push(event.text().clone())
                });
            }
            Event::TaskEscaped(event) => {
                self.change_task(*event.task(), now, rows, |task| {
                    task.escapes.push(event.escape().clone())
                });
            }
            Event::TaskInReview(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(TaskStatus::InReview);
                task.submission = Some(event.submission().clone());
                task.reason = Some(event.reason().clone());
                task.fixup = None;
            }),
            Event::TaskNeedsHuman(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(TaskStatus::NeedsHuman);
                task.reason = Some(event.reason().clone());
                task.needed_decision = Some(*event.kind());
                task.landing = None;
                if let Some(fixup) = event.fixup() {
                    task.record_fixup(fixup);
                }
            }),
            Event::TaskCompleted(event) => {
                self.record_landed(*event.task(), event.landed().as_ref(), rows);
                let mission = self
                    .tasks
                    .get(event.task())
                    .and_then(|task| self.missions.get(&task.mission?));
                let shared =
                    event.landed().is_some() && mission.is_some_and(|mission| mission.wave_commits);
                self.change_task(*event.task(), now, rows, |task| {
                    task.shares_commit = shared;
                    task.change_status(TaskStatus::Completed);
                    task.landed = event.landed().clone();
                    (task.reason, task.needed_decision) = (None, None);
                });
            }
            Event::TaskFailed(event) => {
                self.record_failed_agent(*event.task(), rows);
                self.change_task(*event.task(), now, rows, |task| {
                    task.change_status(TaskStatus::Failed);
                    task.reason = Some(event.reason().clone());
                    // A failed session of a team member is handled by its team, so it needs no
                    // decision of a person.
                    task.awaits_decision = task.session_of().is_none();
                });
            }
            Event::TaskCancelled(event) => self.change_task(*event.task(), now, rows, |task| {
                task.change_status(TaskStatus::Cancelled);
                task.reason = Some(event.reason().clone());
            }),
            _ => {}
        }
    }

    /// Records for the agent of a task that the agent's last work failed.
    fn record_failed_agent(&mut self, id: TaskId, rows: &mut Rows) {
        let agent = self.tasks.get(&id).and_then(|task| task.agent.clone());
        if let Some(agent) = agent {
            self.set_last_failed(&agent, Some(id), rows);
        }
    }

    /// Stores, on the mission of task `id`, the commit with which this task has just landed.
    fn record_landed(&mut self, id: TaskId, commit: Option<&CommitId>, rows: &mut Rows) {
        let (Some(task), Some(commit)) = (self.tasks.get(&id).cloned(), commit) else {
            return;
        };
        let Some(mission) = task.mission else { return };
        let changed = task
            .submission
            .as_ref()
            .map_or(&[][..], |submission| &submission.changed);
        self.change_mission(mission, rows, |mission| {
            mission
                .landed
                .record(commit.clone(), task.step(), changed, mission.mode);
        });
    }
}
