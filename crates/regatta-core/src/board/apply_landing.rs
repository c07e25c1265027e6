//! Changes the board when an event of the landing queue is recorded.

use std::sync::Arc;

use crate::event::Event;
use crate::ids::{CommitId, LandingId, Now, ProjectName};
use crate::landing::{
    FailedTrial, HoldCount, Landing, LandingChange, LandingEnd, LandingState, MAX_FAULTS,
    QueueRecord,
};
use crate::project::Project;

use super::{Board, Row, RowKey, Rows};

impl Board {
    /// Applies an event if it is about the landing queue. Events of other kinds change nothing
    /// here.
    pub(super) fn apply_landing(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        match event {
            Event::LandingQueued(event) => {
                self.counters.landing = event.landing().id.0;
                self.put_landing(event.landing().clone(), rows);
            }
            Event::LandingBegun(event) => {
                let ahead = event.ahead().clone().unwrap_or_default();
                for id in ahead.iter().chain([event.landing()]) {
                    self.change_landing(*id, rows, |landing| {
                        (landing.held, landing.retry_fleet_ms) = (None, None);
                        landing.deferred_behind.clear();
                    });
                }
                self.change_landing(*event.landing(), rows, |landing| {
                    let unverified = event.unverified().clone().unwrap_or_default();
                    landing.change_state(LandingChange::Begin { ahead, unverified });
                    landing.tries += 1;
                });
            }
            Event::LandingValidated(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    let carries = event.carries().clone().unwrap_or_default();
                    landing.change_state(LandingChange::Pass {
                        old: event.old().clone(),
                        new: event.new().clone(),
                        carries,
                    });
                    (landing.failed_trial, landing.faults) = (None, 0);
                })
            }
            Event::LandingRed(event) => self.change_landing(*event.landing(), rows, |landing| {
                let tried = landing.state.clone();
                landing.change_state(LandingChange::Fail);
                let LandingState::Trying { ahead, .. } = tried else {
                    return;
                };
                let settled = event.settled().clone().unwrap_or_default();
                landing.failed_trial = Some(FailedTrial {
                    ahead,
                    reason: event.reason().clone(),
                    output: event.output().clone(),
                    settled,
                });
            }),
            Event::LandingSuspected(event) => {
                let is_first = self
                    .landings
                    .get(event.landing())
                    .is_some_and(|landing| landing.faults == 0);
                self.record_landing_end(*event.landing(), is_first.then_some(true), rows);
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.faults += 1;
                    // A landing with fewer than `MAX_FAULTS` faults is tried again, so its failed
                    // trial (a test merge) is forgotten. Otherwise the failed trial is kept until
                    // the landings that were tested together with this landing have landed.
                    let red = landing
                        .failed_trial
                        .take()
                        .filter(|_| landing.faults >= MAX_FAULTS);
                    discard_trial(landing);
                    (landing.failed_trial, landing.deferred_behind) = (red, event.behind().clone());
                });
                self.detach_from_trials(*event.landing(), None, rows);
            }
            Event::LandingSquashed(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.change_state(LandingChange::Squash);
                    landing.is_squashed = true;
                });
                self.detach_from_trials(*event.landing(), None, rows);
            }
            Event::LandingDeferred(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    discard_trial(landing);
                    landing.hold_count = None; // the landing waits for other landings now
                    landing.deferred_behind = event.behind().clone();
                });
                self.detach_from_trials(*event.landing(), None, rows);
            }
            Event::LandingReturned(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.change_state(LandingChange::Return);
                })
            }
            Event::LandingApproved(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.approved = Some(event.by().clone())
                });
            }
            Event::LandingAsked(event) => self.change_landing(*event.landing(), rows, |landing| {
                landing.first = *event.first();
                if event.under().is_some() {
                    landing.lent_claim = event.under().clone();
                }
                (landing.held, landing.retry_fleet_ms) = (None, None);
            }),
            Event::LandingMoving(event) => self.change_landing(*event.landing(), rows, |landing| {
                landing.change_state(LandingChange::Move {
                    fence: *event.fence(),
                });
            }),
            Event::LandingHeld(event) => {
                self.change_landing(*event.landing(), rows, |landing| {
                    discard_trial(landing);
                    let before = landing.hold_count.take();
                    landing.hold_count = Some(HoldCount {
                        reason: event.reason().clone(),
                        times: before.as_ref().map_or(0, |hold| hold.times) + 1,
                        since_unix_ms: before.map_or(now.unix_ms, |hold| hold.since_unix_ms),
                    });
                    landing.held = Some(event.reason().clone());
                    landing.retry_fleet_ms = *event.retry_at();
                });
                self.detach_from_trials(*event.landing(), None, rows);
            }
            Event::LandingLanded(event) => {
                self.record_landing_end(*event.landing(), Some(false), rows);
                let tip = event.tip().as_ref().unwrap_or(event.commit());
                if let Some(settled) = event.settled() {
                    self.change_task(*event.task(), now, rows, |task| {
                        task.record_conflicts(settled);
                        task.settled_conflicts.clone_from(settled);
                    });
                }
                if let Some(landing) = self.landings.get(event.landing()).cloned() {
                    self.change_record(&landing.project, rows, |record| {
                        record.tip = Some(tip.clone());
                        if let Some(undone) = landing.submission.undoes {
                            record.record_undone(undone, landing.task);
                        }
                    });
                }
                self.detach_from_trials(*event.landing(), Some(tip), rows);
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.end = Some(LandingEnd::Landed {
                        commit: event.commit().clone(),
                        unix_ms: now.unix_ms,
                    });
                });
            }
            Event::LandingEnded(event) => {
                // If the landing had a fault, it was counted as failed at its first fault. Do not
                // count it again.
                let is_counted = self
                    .landings
                    .get(event.landing())
                    .is_some_and(|landing| landing.faults > 0);
                self.record_landing_end(
                    *event.landing(),
                    event.fault().filter(|_| !is_counted),
                    rows,
                );
                self.detach_from_trials(*event.landing(), None, rows);
                self.change_landing(*event.landing(), rows, |landing| {
                    landing.end = Some(LandingEnd::Removed {
                        reason: event.reason().clone(),
                        unix_ms: now.unix_ms,
                    });
                });
            }
            Event::QueueOvertaken(event) => {
                for id in self
                    .queue_of(event.project())
                    .map(|landing| landing.id)
                    .collect::<Vec<_>>()
                {
                    self.change_landing(id, rows, discard_trial);
                }
            }
            Event::QueueHeld(event) => {
                self.change_record(event.project(), rows, |record| {
                    record.held = Some(event.hold().clone())
                });
            }
            Event::QueueReleased(event) => {
                self.change_record(event.project(), rows, |record| record.held = None)
            }
            Event::QueueUnpushed(event) => {
                self.change_record(event.project(), rows, |record| {
                    record.unpushed = Some(event.unpushed().clone())
                });
            }
            Event::TrunkCompared(event) => {
                self.change_record(event.project(), rows, |record| {
                    record.trunk_difference = event.differs().clone()
                });
            }
            // An event without a tip clears the project's tip (the commit to which Regatta expects
            // the trunk to point). The next landing then sets the tip to a commit that the trunk
            // contains.
            Event::TrunkAccepted(event) => self.change_record(event.project(), rows, |record| {
                record.accepted.extend(
                    record
                        .trunk_difference
                        .take()
                        .into_iter()
                        .flat_map(|difference| difference.missing),
                );
                record.tip = event.tip().clone();
            }),
            Event::QueuePushed(event) => {
                self.change_record(event.project(), rows, |record| record.unpushed = None)
            }
            _ => {}
        }
    }

    /// Updates the project's other landings after `gone` left the queue. A trial is a test merge of
    /// a landing on top of the trunk and of the landings ahead of it. If `gone` landed as the
    /// commit `landed`, trials that included `gone` stay valid, because `gone` is now part of the
    /// trunk. If `gone` did not land, those trials are discarded.
    fn detach_from_trials(&mut self, gone: LandingId, landed: Option<&CommitId>, rows: &mut Rows) {
        let Some(project) = self
            .landings
            .get(&gone)
            .map(|landing| landing.project.clone())
        else {
            return;
        };
        let others: Vec<_> = self
            .queue_of(&project)
            .filter(|landing| landing.id != gone)
            .cloned()
            .collect();
        for before in others {
            let mut after = Landing::clone(&before);
            detach(&mut after, gone, landed);
            if after != *before {
                self.put_landing(Arc::new(after), rows);
            }
        }
    }

    /// Records whether a landing failed, unless `failed` is `None`. The landing queue chooses the
    /// size of later batches by the number of recent landings that failed.
    fn record_landing_end(&mut self, id: LandingId, failed: Option<bool>, rows: &mut Rows) {
        let Some(landing) = self.landings.get(&id) else {
            return;
        };
        if let Some(failed) = failed {
            let project = landing.project.clone();
            self.change_record(&project, rows, |record| record.record_outcome(failed));
        }
    }

    /// Changes the landing queue's part of a project. No index of tasks depends on this part, so
    /// tasks are not indexed again.
    fn change_record(
        &mut self,
        name: &ProjectName,
        rows: &mut Rows,
        change: impl FnOnce(&mut QueueRecord),
    ) {
        self.change_project(name, rows, |project| change(&mut project.queue));
    }

    /// Changes a part of a project on which no index of tasks depends, so the project's tasks need
    /// not be indexed again.
    pub(super) fn change_project(
        &mut self,
        name: &ProjectName,
        rows: &mut Rows,
        change: impl FnOnce(&mut Project),
    ) {
        if let Some(project) = self.projects.get(name) {
            let mut project = Project::clone(project);
            change(&mut project);
            let project = Arc::new(project);
            self.projects.insert(project.name.clone(), project.clone());
            rows.insert(
                RowKey::Project(project.name.clone()),
                Some(Row::Project(project)),
            );
        }
    }
}

/// Discards the results of a landing's trials (test merges). If the trunk is already being moved to
/// this landing's commit, that move continues.
fn discard_trial(landing: &mut Landing) {
    landing.failed_trial = None;
    landing.change_state(LandingChange::Discard);
}

/// Removes the landing `gone` from the trials (test merges) of `landing`. See
/// [`Board::detach_from_trials`].
fn detach(landing: &mut Landing, gone: LandingId, landed: Option<&CommitId>) {
    landing.deferred_behind.retain(|id| *id != gone);
    if let Some(failed_trial) = &mut landing.failed_trial {
        match (failed_trial.ahead.contains(&gone), landed) {
            (true, Some(_)) => failed_trial.ahead.retain(|id| *id != gone),
            (false, None) => {}
            _ => landing.failed_trial = None,
        }
    }
    landing.change_state(match landed {
        Some(commit) => LandingChange::OtherLanded {
            landing: gone,
            commit: commit.clone(),
        },
        None => LandingChange::OtherLeft { landing: gone },
    });
}
