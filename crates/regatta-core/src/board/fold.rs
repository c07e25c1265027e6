//! Applies each event to the board. Replaying the log through this code restores the board (D4).

use std::sync::Arc;

use crate::agent_protocol::{AgentEvent, RequestContent, Usage};
use crate::approval::Approval;
use crate::attempt::{self, Attempt, AttemptPhase, TurnEnd};
use crate::budget::Spend;
use crate::bus::ReadCursor;
use crate::claim::Claim;
use crate::conversation::{Conversation, DeliveryRecord};
use crate::event::{Event, Recorded};
use crate::hook::{self, Firing, Hook};
use crate::idempotency::StoredAnswer;
use crate::ids::{
    AgentName, ApprovalId, AttemptId, CommitId, HookId, MissionId, Now, RunnerName, TaskId,
};
use crate::inbox::InboxItem;
use crate::launch::{LaunchEntry, TeamLaunch};
use crate::lead::Lead;
use crate::mission::Mission;
use crate::project::Project;
use crate::provider_outage::ProviderOutage;
use crate::runner::Runner;
use crate::task::{Task, TaskStatus};
use crate::team::Team;

use super::{Board, Deadline, Row, RowKey, Rows};

impl Board {
    /// Applies an event of the log, when the log is replayed (D4).
    pub fn fold(&mut self, recorded: &Recorded) {
        self.fold_into(recorded, &mut Rows::new());
    }

    /// Like [`Board::fold`], and collects the rows that change.
    pub fn fold_into(&mut self, recorded: &Recorded, rows: &mut Rows) {
        // a restored store's log skips numbers once, so that no token repeats
        self.revision = recorded.revision - 1;
        self.apply(&recorded.event, recorded.now, rows);
    }

    /// Applies an event that was just decided. An event is a fact, so applying it cannot fail.
    pub(super) fn apply(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        self.revision += 1;
        self.fleet_ms = now.fleet_ms;
        match event {
            Event::FleetResumed(_) | Event::EventUnreadable(_) => {}
            Event::FleetLimited(fleet_limited) => self.limits = *fleet_limited.limits(),
            Event::RequestAnswered(request_answered) => {
                let answer = StoredAnswer {
                    key: request_answered.key().clone(),
                    command_fingerprint: *request_answered.command(),
                    outcome: request_answered.outcome().clone(),
                    revision: self.revision,
                    deadline_fleet_ms: *request_answered.until_at(),
                };
                self.put_answer(Arc::new(answer), rows);
            }
            Event::RequestForgotten(request_forgotten) => {
                if let Some(old) = self.answers.remove(request_forgotten.key()) {
                    self.timers
                        .remove(&(old.deadline_fleet_ms, Deadline::Answer(old.key.clone())));
                    rows.insert(RowKey::Answer(request_forgotten.key().clone()), None);
                }
            }
            Event::ProjectAdded(project_added) => {
                self.put_project(project_added.project().clone(), rows)
            }
            Event::ProjectChanged(project_changed) => {
                self.put_project(project_changed.project().clone(), rows)
            }
            Event::ProjectRemoved(project_removed) => {
                self.projects.remove(project_removed.project());
                rows.insert(RowKey::Project(project_removed.project().clone()), None);
            }
            Event::ProjectRadar(project_radar) => {
                if let Some(project) = self.projects.get(project_radar.project()) {
                    let project = Project {
                        collision_forecast: project_radar.radar().clone(),
                        ..Project::clone(project)
                    };
                    self.put_project(Arc::new(project), rows);
                }
            }
            Event::AgentRegistered(agent_registered) => {
                let agent = agent_registered.agent().clone();
                self.agents.insert(agent.name.clone(), agent.clone());
                rows.insert(RowKey::Agent(agent.name.clone()), Some(Row::Agent(agent)));
            }
            Event::AgentRemoved(agent_removed) => {
                self.agents.remove(agent_removed.agent());
                rows.insert(RowKey::Agent(agent_removed.agent().clone()), None);
            }
            Event::ClaimGranted(claim_granted) => {
                self.counters.claim = self.counters.claim.max(claim_granted.claim().id.0);
                if let Some(wait) = claim_granted.wait() {
                    self.drop_wait(*wait, rows);
                }
                self.put_claim(Arc::new(claim_granted.claim().clone()), rows);
            }
            Event::ClaimRenewed(claim_renewed) => {
                if let Some(claim) = self.claims.get(claim_renewed.claim()) {
                    let claim = Claim {
                        expires_fleet_ms: *claim_renewed.expires_at(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimTransferred(claim_transferred) => {
                if let Some(claim) = self.claims.get(claim_transferred.claim()) {
                    let claim = Claim {
                        owner: claim_transferred.to().clone(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimReleased(claim_released) => {
                self.drop_claim(*claim_released.claim());
                rows.insert(RowKey::Claim(*claim_released.claim()), None);
            }
            Event::ClaimQueued(claim_queued) => {
                self.counters.wait = claim_queued.wait().id.0;
                self.put_wait(Arc::new(claim_queued.wait().clone()), rows);
            }
            Event::ClaimWaitEnded(claim_wait_ended) => {
                self.drop_wait(*claim_wait_ended.wait(), rows)
            }
            Event::MissionStarted(mission_started) => {
                self.counters.mission = mission_started.mission().id.0;
                self.put_mission(mission_started.mission().clone(), rows);
            }
            Event::MissionChanged(mission_changed) => {
                self.change_mission(*mission_changed.mission(), rows, |mission| {
                    mission.state = *mission_changed.state()
                });
            }
            Event::MissionLed(mission_led) => {
                self.change_mission(*mission_led.mission(), rows, |mission| {
                    mission.lead = Some(Lead::clone(mission_led.lead()));
                    mission.state = mission_led.state().unwrap_or(mission.state);
                    if let Some(agents) = mission_led.agents() {
                        mission.agents = agents.clone();
                    }
                })
            }
            Event::MissionWeighed(mission_weighed) => {
                self.change_mission(*mission_weighed.mission(), rows, |mission| {
                    mission.blocking_gates = mission_weighed.held().clone()
                });
            }
            Event::MissionSerialised(mission_serialised) => {
                self.change_mission(*mission_serialised.mission(), rows, |mission| {
                    mission.isolate = false;
                    mission.serialised_reason = Some(mission_serialised.reason().clone());
                })
            }
            Event::MissionEnded(mission_ended) => {
                if let Some(mission) = self.remove_mission(*mission_ended.mission()) {
                    let mission = Arc::new(Mission {
                        result: mission_ended.end().clone(),
                        ..Mission::clone(&mission)
                    });
                    rows.insert(
                        RowKey::Mission(mission.id),
                        Some(Row::Mission(mission, false)),
                    );
                }
            }
            Event::TaskAdded(task_added) => {
                self.counters.task = task_added.task().id.0;
                self.put_task(task_added.task().clone(), rows);
            }
            Event::TaskEdited(task_edited) => {
                let edited = task_edited.task();
                self.change_task(edited.id, now, rows, |task| *task = Task::clone(edited));
            }
            Event::TaskAssigned(task_assigned) => {
                self.change_task(*task_assigned.task(), now, rows, |task| {
                    task.status = *task_assigned.status();
                    task.assignee = task_assigned.to().clone();
                    task.offer_until_fleet_ms = None;
                })
            }
            Event::TaskOffered(task_offered) => {
                self.change_task(*task_offered.task(), now, rows, |task| {
                    task.status = TaskStatus::Offered;
                    task.assignee = Some(task_offered.to().clone());
                    task.offer_until_fleet_ms = Some(*task_offered.until_at());
                })
            }
            Event::TaskStarted(task_started) => {
                self.change_task(*task_started.task(), now, rows, |task| {
                    task.status = TaskStatus::InProgress;
                    task.attempt = Some(*task_started.attempt());
                    task.agent = Some(task_started.agent().clone());
                    task.offer_until_fleet_ms = None;
                    task.progress = String::new();
                    // The attempt has the notes and the resume data now.
                    (task.notes, task.resume, task.not_before_fleet_ms) = (vec![], None, None);
                })
            }
            Event::TaskProgressed(task_progressed) => {
                self.change_task(*task_progressed.task(), now, rows, |task| {
                    task.progress = task_progressed.text().clone()
                })
            }
            Event::TaskValidating(task_validating) => {
                self.change_attempt(*task_validating.attempt(), rows, |attempt| {
                    attempt.phase = AttemptPhase::Validating
                });
                self.change_task(*task_validating.task(), now, rows, |task| {
                    task.status = TaskStatus::Validating;
                    task.output = task_validating.output().clone();
                });
            }
            Event::TaskSubmitted(task_submitted) => {
                self.change_task(*task_submitted.task(), now, rows, |task| {
                    task.status = TaskStatus::Landing;
                    task.landing = Some(*task_submitted.landing());
                    task.submission = Some(task_submitted.submission().clone());
                    (task.reason, task.needed_decision, task.fixup) = (None, None, None);
                })
            }
            Event::TaskReturned(task_returned) => {
                self.change_task(*task_returned.task(), now, rows, |task| {
                    task.status = *task_returned.status();
                    task.reason = Some(task_returned.reason().clone());
                    task.failures += u32::from(*task_returned.counts());
                    task.needed_decision = None;
                    task.landing = None;
                    task.resting = task_returned
                        .again()
                        .as_ref()
                        .is_some_and(|next_attempt| next_attempt.resting);
                    if let Some(again) = task_returned.again() {
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
                })
            }
            Event::TaskDue(task_due) => self.change_task(*task_due.task(), now, rows, |task| {
                (task.not_before_fleet_ms, task.resting) = (None, false);
            }),
            Event::TaskNoted(task_noted) => {
                self.change_task(*task_noted.task(), now, rows, |task| {
                    task.notes.push(task_noted.text().clone())
                })
            }
            Event::TaskWarned(task_warned) => {
                self.change_task(*task_warned.task(), now, rows, |task| {
                    task.warnings.push(task_warned.text().clone())
                });
            }
            Event::TaskEscaped(task_escaped) => {
                self.change_task(*task_escaped.task(), now, rows, |task| {
                    task.escapes.push(task_escaped.escape().clone())
                });
            }
            Event::AttemptReported(attempt_reported) => {
                self.change_attempt(*attempt_reported.attempt(), rows, |attempt| {
                    attempt.result = Some(attempt_reported.result().clone())
                });
            }
            Event::TaskInReview(task_in_review) => {
                self.change_task(*task_in_review.task(), now, rows, |task| {
                    task.status = TaskStatus::InReview;
                    task.submission = Some(task_in_review.submission().clone());
                    task.reason = Some(task_in_review.reason().clone());
                    task.fixup = None;
                })
            }
            Event::TaskNeedsHuman(task_needs_human) => {
                self.change_task(*task_needs_human.task(), now, rows, |task| {
                    task.status = TaskStatus::NeedsHuman;
                    task.reason = Some(task_needs_human.reason().clone());
                    task.needed_decision = Some(*task_needs_human.kind());
                    task.landing = None;
                    if let Some(fixup) = task_needs_human.fixup() {
                        task.record_fixup(fixup);
                    }
                })
            }
            Event::TaskCompleted(task_completed) => {
                self.record_landed(
                    *task_completed.task(),
                    task_completed.landed().as_ref(),
                    rows,
                );
                let mission = self
                    .tasks
                    .get(task_completed.task())
                    .and_then(|task| self.missions.get(&task.mission?));
                let shared = task_completed.landed().is_some()
                    && mission.is_some_and(|mission| mission.wave_commits);
                self.change_task(*task_completed.task(), now, rows, |task| {
                    task.shares_commit = shared;
                    task.status = TaskStatus::Completed;
                    task.landed = task_completed.landed().clone();
                    (task.reason, task.needed_decision) = (None, None);
                });
            }
            Event::TaskFailed(task_failed) => {
                self.change_task(*task_failed.task(), now, rows, |task| {
                    task.status = TaskStatus::Failed;
                    task.reason = Some(task_failed.reason().clone());
                    // The team decides what to do about a failed session of a member.
                    task.awaits_decision = task.session_of.is_none();
                })
            }
            Event::TaskCancelled(task_cancelled) => {
                self.change_task(*task_cancelled.task(), now, rows, |task| {
                    task.status = TaskStatus::Cancelled;
                    task.reason = Some(task_cancelled.reason().clone());
                })
            }
            Event::AttemptStarted(attempt_started) => {
                self.counters.attempt = attempt_started.attempt().id.0;
                self.put_attempt(attempt_started.attempt().clone(), rows);
                if attempt_started.attempt().supervised {
                    let one = Spend {
                        attempts: 1,
                        ..Spend::default()
                    };
                    self.add_spend(
                        attempt_started.attempt().id,
                        crate::budget::day_of(now),
                        &one,
                        now,
                        rows,
                    );
                }
            }
            Event::AttemptRenewed(attempt_renewed) => {
                self.change_attempt(*attempt_renewed.attempt(), rows, |attempt| {
                    attempt.expires_fleet_ms = Some(*attempt_renewed.expires_at())
                })
            }
            Event::AttemptStopping(attempt_stopping) => {
                self.change_attempt(*attempt_stopping.attempt(), rows, |attempt| {
                    attempt.stopping = Some(*attempt_stopping.cause())
                });
                self.record_cause(
                    *attempt_stopping.attempt(),
                    *attempt_stopping.cause(),
                    now,
                    rows,
                );
            }
            Event::AttemptEnded(attempt_ended) => {
                // Approvals of an ended attempt are closed, except open questions that outlive it.
                for id in self.approvals_of(*attempt_ended.attempt()) {
                    self.change_approval(id, rows, |approval| {
                        approval.closed = !(approval.is_kept_for_task && approval.is_open())
                    });
                }
                self.return_unread_notes(
                    *attempt_ended.attempt(),
                    *attempt_ended.cause(),
                    now,
                    rows,
                );
                let task = self
                    .attempts
                    .get(attempt_ended.attempt())
                    .map(|attempt| attempt.task);
                self.change_attempt(*attempt_ended.attempt(), rows, |attempt| {
                    attempt.end = Some(attempt::AttemptEnd {
                        cause: *attempt_ended.cause(),
                        detail: attempt_ended.detail().clone(),
                        unix_ms: now.unix_ms,
                    });
                });
                if let Some(task) = task
                    .and_then(|id| self.tasks.get(&id))
                    .filter(|task| task.attempt == Some(*attempt_ended.attempt()))
                {
                    let cause = self
                        .attempts
                        .get(attempt_ended.attempt())
                        .and_then(|attempt| attempt.stopping)
                        .unwrap_or(*attempt_ended.cause());
                    self.change_task(task.id, now, rows, |task| {
                        (task.attempt, task.last_cause) = (None, Some(cause));
                    });
                }
            }
            Event::AttemptSaid(attempt_said) => {
                let (n, said) = (*attempt_said.n(), attempt_said.said().clone());
                self.change_attempt(*attempt_said.attempt(), rows, |attempt| {
                    apply_agent_event(attempt, n, said)
                });
            }
            Event::AttemptLaunched(attempt_launched) => {
                // The time to open a session starts here, because making the workspace was
                // Regatta's own work.
                let ready_by = now.fleet_ms + self.limits.startup_ms;
                self.change_attempt(*attempt_launched.attempt(), rows, |attempt| {
                    attempt.sandbox = attempt_launched.sandbox().clone();
                    attempt.session_deadline_fleet_ms =
                        attempt.accepts_follow_ups.then_some(ready_by);
                });
            }
            Event::AttemptPorted(attempt_ported) => {
                self.change_attempt(*attempt_ported.attempt(), rows, |attempt| {
                    attempt.ports = attempt_ported.ports().clone()
                });
            }
            Event::AttemptExtended(attempt_extended) => {
                self.change_attempt(*attempt_extended.attempt(), rows, |attempt| {
                    attempt.deadline_fleet_ms = Some(*attempt_extended.until_at())
                });
            }
            Event::AttemptClocked(attempt_clocked) => {
                self.change_attempt(*attempt_clocked.attempt(), rows, |attempt| {
                    attempt.budget_check_fleet_ms = *attempt_clocked.wall_at()
                });
            }
            Event::AttemptNoted(attempt_noted) => {
                self.change_attempt(*attempt_noted.attempt(), rows, |attempt| {
                    attempt.output = attempt_noted.output().clone()
                });
            }
            Event::AttemptClosing(attempt_closing) => {
                self.change_attempt(*attempt_closing.attempt(), rows, |attempt| {
                    attempt.session.closing = true
                });
            }
            Event::AttemptRotating(attempt_rotating) => {
                self.change_attempt(*attempt_rotating.attempt(), rows, |attempt| {
                    crate::session_rotation::insert_summary_request(&mut attempt.session)
                });
            }
            Event::AttemptTold(attempt_told) => {
                self.change_attempt(*attempt_told.attempt(), rows, |attempt| {
                    attempt.session.follow_ups.push(attempt_told.text().clone())
                });
            }
            Event::AttemptHeld(attempt_held) => {
                self.change_attempt(*attempt_held.attempt(), rows, |attempt| {
                    attempt.session.hold_reason = Some(attempt_held.reason().clone());
                    attempt.session.cancels += u32::from(attempt.session.in_turn);
                })
            }
            Event::AttemptQuiet(attempt_quiet) => {
                self.change_attempt(*attempt_quiet.attempt(), rows, |attempt| {
                    attempt.quiet_since_unix_ms = *attempt_quiet.since_wall();
                    attempt.snoozed = attempt
                        .snoozed
                        .filter(|_| attempt_quiet.since_wall().is_some());
                })
            }
            Event::AttemptLetGo(attempt_let_go) => {
                self.change_attempt(*attempt_let_go.attempt(), rows, |attempt| {
                    attempt.session.hold_reason = None
                });
            }
            Event::ApprovalAsked(approval_asked) => {
                self.counters.approval = approval_asked.approval().id.0;
                self.put_approval(approval_asked.approval().clone(), rows);
            }
            Event::ApprovalDecided(approval_decided) => {
                self.change_approval(*approval_decided.approval(), rows, |approval| {
                    approval.decision = Some(approval_decided.decision().clone());
                })
            }
            Event::ApprovalKept(approval_kept) => {
                self.change_approval(*approval_kept.approval(), rows, |approval| {
                    approval.is_kept_for_task = true;
                    approval.assumed = approval_kept.assumed().clone().or(approval.assumed.take());
                    // The assumed answer can be chosen like any other answer.
                    if let (
                        RequestContent::Question {
                            choices,
                            schema: None,
                            ..
                        },
                        Some(assumed),
                    ) = (&mut approval.request.content, &approval.assumed)
                        && !choices.contains(assumed)
                    {
                        choices.push(assumed.clone());
                    }
                })
            }
            Event::ApprovalHeard(approval_heard) => {
                let attempt = self
                    .approvals
                    .get(approval_heard.approval())
                    .map(|approval| approval.attempt);
                let is_over = attempt.is_none_or(|attempt| !self.attempts.contains_key(&attempt));
                self.change_approval(*approval_heard.approval(), rows, |approval| {
                    approval.is_answer_read = true;
                    approval.closed |= is_over;
                });
            }
            Event::ApprovalEscalated(approval_escalated) => {
                self.change_approval(*approval_escalated.approval(), rows, |approval| {
                    approval.escalated = true
                });
            }
            Event::ApprovalWithdrawn(approval_withdrawn) => {
                self.change_approval(*approval_withdrawn.approval(), rows, |approval| {
                    approval.closed = true
                });
            }
            Event::InboxSnoozed(inbox_snoozed) => {
                self.snooze_item(inbox_snoozed.item(), *inbox_snoozed.snooze(), now, rows)
            }
            Event::InboxDismissed(inbox_dismissed) => {
                self.change_failed(*inbox_dismissed.task(), rows, |task| {
                    (task.awaits_decision, task.snoozed) = (false, None);
                })
            }
            Event::PolicyAdded(policy_added) => {
                let rule = Arc::new(policy_added.rule().clone());
                self.counters.rule = self.counters.rule.max(rule.id.0);
                self.rules.insert(rule.id, rule.clone());
                rows.insert(RowKey::Rule(rule.id), Some(Row::Rule(rule)));
            }
            Event::PolicyRemoved(policy_removed) => {
                self.rules.remove(policy_removed.rule());
                rows.insert(RowKey::Rule(*policy_removed.rule()), None);
            }
            Event::BudgetSet(budget_set) => {
                self.put_budget(Arc::new(budget_set.budget().clone()), rows)
            }
            Event::BudgetRemoved(budget_removed) => {
                self.remove_budget(budget_removed.scope());
                rows.insert(RowKey::Budget(budget_removed.scope().clone()), None);
            }
            Event::BudgetWarned(budget_warned) => {
                self.change_budget(budget_warned.scope(), rows, |budget| {
                    budget.warned = Some((budget_warned.whose().clone(), *budget_warned.day()));
                    budget.warned_unix_ms = Some(now.unix_ms);
                })
            }
            Event::BudgetSpent(budget_spent) => self.add_spend(
                *budget_spent.attempt(),
                *budget_spent.day(),
                budget_spent.spend(),
                now,
                rows,
            ),
            Event::ProviderParked(provider_parked) => {
                self.put_parked(Arc::new(provider_parked.parked().clone()), rows);
            }
            Event::ProviderFreed(provider_freed) => {
                let before = self.parked.get(provider_freed.name()).cloned();
                self.remove_parked(provider_freed.name());
                let kept = before
                    .zip(*provider_freed.remembered())
                    .map(|(before, times)| {
                        Arc::new(ProviderOutage {
                            deadline_fleet_ms: None,
                            has_resumed: true,
                            times,
                            snoozed: None,
                            ..ProviderOutage::clone(&before)
                        })
                    });
                if let Some(kept) = &kept {
                    self.parked
                        .insert(provider_freed.name().clone(), kept.clone());
                }
                rows.insert(
                    RowKey::Parked(provider_freed.name().clone()),
                    kept.map(Row::Parked),
                );
            }
            Event::RunnerRegistered(runner_registered) => {
                self.put_runner(Arc::new(runner_registered.runner().clone()), rows)
            }
            Event::RunnerRenewed(runner_renewed) => {
                self.change_runner(runner_renewed.runner(), rows, |runner| {
                    (runner.expires_fleet_ms, runner.last_seen_unix_ms) =
                        (Some(*runner_renewed.expires_at()), now.unix_ms);
                })
            }
            Event::RunnerChanged(runner_changed) => {
                self.change_runner(runner_changed.runner(), rows, |runner| {
                    runner.state = *runner_changed.state();
                    runner.expires_fleet_ms =
                        runner.expires_fleet_ms.filter(|_| runner.is_present());
                })
            }
            Event::RunnerRemoved(runner_removed) => {
                self.remove_runner(runner_removed.runner());
                rows.insert(RowKey::Runner(runner_removed.runner().clone()), None);
            }
            Event::TeamCreated(team_created) => self.put_team(team_created.team().clone(), rows),
            Event::TeamChanged(team_changed) => self.put_team(team_changed.team().clone(), rows),
            Event::LaunchBegun(launch_begun) => {
                self.counters.launch = self.counters.launch.max(launch_begun.launch().id.0);
                self.put_launch(TeamLaunch::clone(launch_begun.launch()), now, rows);
            }
            Event::LaunchMember(launch_member) => {
                if let Some(launch) = self.launches.get(launch_member.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    let entry = LaunchEntry::clone(launch_member.entry());
                    match launch
                        .members
                        .iter_mut()
                        .find(|known| known.name == entry.name)
                    {
                        Some(known) => *known = entry,
                        None => {
                            if !launch.expected_members.contains(&entry.name) {
                                launch.expected_members.push(entry.name.clone());
                            }
                            launch.members.push(entry);
                            let roster = &launch.expected_members;
                            launch.members.sort_by_key(|entry| {
                                roster.iter().position(|name| *name == entry.name)
                            });
                        }
                    }
                    launch.reconciled_unix_ms = launch
                        .reconciled_unix_ms
                        .filter(|_| !launch_member.entry().state.is_pending());
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LaunchChanged(launch_changed) => {
                if let Some(launch) = self.launches.get(launch_changed.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    launch.stopping = launch_changed.stopping().clone();
                    launch.reconciled_unix_ms = *launch_changed.reconciled_wall();
                    launch.superseded = *launch_changed.superseded();
                    launch.announced = launch_changed.told().clone().or(launch.announced);
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LandingQueued(_)
            | Event::LandingBegun(_)
            | Event::LandingValidated(_)
            | Event::LandingRed(_)
            | Event::LandingSuspected(_)
            | Event::LandingSquashed(_)
            | Event::LandingDeferred(_)
            | Event::LandingReturned(_)
            | Event::LandingApproved(_)
            | Event::LandingAsked(_)
            | Event::LandingMoving(_)
            | Event::LandingHeld(_)
            | Event::LandingLanded(_)
            | Event::LandingEnded(_)
            | Event::QueueOvertaken(_)
            | Event::QueueHeld(_)
            | Event::QueueReleased(_)
            | Event::TrunkCompared(_)
            | Event::TrunkAccepted(_)
            | Event::QueueUnpushed(_)
            | Event::QueuePushed(_) => self.apply_landing(event, now, rows),
            Event::MessagePosted(message_posted) => {
                self.counters.message = message_posted.message().id.0;
                rows.insert(
                    RowKey::Message(message_posted.message().id),
                    Some(Row::Message(Arc::new(message_posted.message().clone()))),
                );
            }
            Event::MessageQueued(message_queued) => {
                self.change_project(message_queued.project(), rows, |project| {
                    project
                        .router_state
                        .waiting
                        .push(message_queued.message().clone())
                });
            }
            Event::MessageHandled(message_handled) => {
                self.change_project(message_handled.project(), rows, |project| {
                    project.router_state.last_handled = project
                        .router_state
                        .last_handled
                        .max(*message_handled.message());
                    project
                        .router_state
                        .waiting
                        .retain(|waits| waits.id != *message_handled.message());
                });
                let routes = |hook: &&Arc<Hook>| hook.is_router_of(message_handled.project());
                if let Some(id) = self.hooks.values().find(routes).map(|hook| hook.id) {
                    self.change_hook(id, rows, |hook| {
                        (hook.fired_count, hook.fired_unix_ms) =
                            (hook.fired_count + 1, Some(now.unix_ms));
                    });
                }
            }
            Event::MessageThread(message_thread) => {
                self.change_project(message_thread.project(), rows, |project| {
                    let threads = &mut project.router_state.threads;
                    threads.retain(|known| known.root != message_thread.thread().root);
                    threads.push(message_thread.thread().clone());
                    let over = threads
                        .len()
                        .saturating_sub(crate::thread_answers::MAX_THREADS);
                    threads.drain(..over);
                })
            }
            Event::ConversationChanged(conversation_changed) => {
                self.counters.conversation = self
                    .counters
                    .conversation
                    .max(conversation_changed.conversation().id.0);
                self.put_conversation(conversation_changed.conversation().clone(), rows);
            }
            Event::ConversationExpired(_) | Event::ConversationPushing(_) => {}
            Event::DeliveryTaken(delivery_taken) => {
                self.put_delivery(delivery_taken.delivery(), rows)
            }
            Event::DeliveryForgotten(delivery_forgotten) => {
                if let Some(at) = self.deliveries.remove(delivery_forgotten.delivery()) {
                    self.timers.remove(&(
                        at,
                        Deadline::Delivery(delivery_forgotten.delivery().clone()),
                    ));
                }
                rows.insert(
                    RowKey::Delivery(delivery_forgotten.delivery().clone()),
                    None,
                );
            }
            Event::HookAdded(hook_added) => {
                self.counters.hook = hook_added.hook().id.0;
                self.put_hook(hook_added.hook().clone(), rows);
            }
            Event::HookChanged(hook_changed) => {
                self.change_hook(*hook_changed.hook(), rows, |hook| {
                    hook.paused = hook_changed.paused().clone();
                    if hook.paused.is_none() {
                        hook.recent_firings.clear(); // a resumed hook starts with an empty window
                    }
                })
            }
            Event::HookRemoved(hook_removed) => {
                self.hooks.remove(hook_removed.hook());
                rows.insert(RowKey::Hook(*hook_removed.hook()), None);
            }
            Event::HookFired(hook_fired) => {
                let firing = hook_fired.firing().clone();
                self.counters.firing = firing.id.0;
                self.change_hook(firing.hook, rows, |hook| {
                    (hook.fired_count, hook.fired_unix_ms) =
                        (hook.fired_count + 1, Some(now.unix_ms));
                    hook.recent_firings
                        .retain(|at| *at + hook::FIRING_WINDOW_MS > now.fleet_ms);
                    hook.recent_firings.push(*hook_fired.at());
                    hook.forget_waiting(&firing.cause);
                });
                self.firings.insert(firing.id, firing.clone());
                rows.insert(RowKey::Firing(firing.id), Some(Row::Firing(firing)));
            }
            Event::HookSkipped(hook_skipped) => {
                self.change_hook(*hook_skipped.hook(), rows, |hook| {
                    hook.skipped_count += 1;
                    hook.last_skip =
                        Some((hook_skipped.cause().clone(), hook_skipped.why().clone()));
                    hook.forget_waiting(hook_skipped.cause());
                })
            }
            Event::HookQueued(hook_queued) => self.change_hook(*hook_queued.hook(), rows, |hook| {
                hook.waiting.push(hook_queued.waiting().clone())
            }),
            Event::HookEnded(hook_ended) => {
                if let Some(firing) = self.firings.remove(hook_ended.firing()) {
                    let firing = Firing {
                        ended: Some(hook_ended.ended().clone()),
                        ended_unix_ms: Some(now.unix_ms),
                        output: hook_ended.output().clone(),
                        sandbox_description: hook_ended.shut_in().clone(),
                        ..Firing::clone(&firing)
                    };
                    rows.insert(
                        RowKey::Firing(firing.id),
                        Some(Row::Firing(Arc::new(firing))),
                    );
                }
            }
            Event::MessageRead(message_read) => {
                self.cursors.insert(
                    (message_read.agent().clone(), message_read.channel().clone()),
                    *message_read.read(),
                );
                let cursor = ReadCursor {
                    agent: message_read.agent().clone(),
                    channel: message_read.channel().clone(),
                    read: *message_read.read(),
                };
                rows.insert(
                    RowKey::Cursor(cursor.agent.clone(), cursor.channel.clone()),
                    Some(Row::Cursor(cursor)),
                );
            }
        }
    }
}

/// Updates the attempt with an event that its program sent.
fn apply_agent_event(attempt: &mut Attempt, n: u64, said: AgentEvent) {
    let talk = &mut attempt.session;
    talk.last_record = n;
    match said {
        AgentEvent::Started { session, model } => {
            talk.session_id = session.or(talk.session_id.take());
            talk.model = model.or(talk.model.take());
        }
        AgentEvent::TurnStarted { n } => {
            talk.turns = talk.turns.max(n + 1);
            (talk.in_turn, talk.last_turn_end) = (true, None);
        }
        AgentEvent::Plan { entries } => talk.plan = entries,
        AgentEvent::Usage { session, usage } => {
            match talk
                .usage_by_session
                .iter_mut()
                .find(|usage_by_session| usage_by_session.0 == session)
            {
                Some(known) => known.1 = known.1.componentwise_max(&usage),
                None => talk.usage_by_session.push((session, usage)),
            }
        }
        AgentEvent::Context { used, size } => talk.context = Some((used, size)),
        AgentEvent::Limited {
            deadline_unix_ms: until_wall,
            detail,
        } => talk.provider_limit = Some((until_wall, detail)),
        AgentEvent::TurnEnded {
            stop,
            class,
            detail,
        } => {
            (talk.in_turn, talk.last_turn_end) = (
                false,
                Some(TurnEnd {
                    stop,
                    class,
                    detail,
                }),
            );
        }
        AgentEvent::RequestMade(_)
        | AgentEvent::RequestWithdrawn { .. }
        | AgentEvent::Message { .. }
        | AgentEvent::Thought { .. }
        | AgentEvent::Tool(_)
        | AgentEvent::Notice { .. } => {}
    }
}

impl Board {
    /// Gives prompts that people sent and that the agent did not read to the next attempt.
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
        let talk = &attempt.session;
        let same_session = self
            .tasks
            .get(&attempt.task)
            .and_then(|task| task.resume.as_ref())
            .is_some_and(|resume_point| resume_point.session.is_some());
        // A cancelled task needs its prompts no more.
        if cause == attempt::AttemptCause::Cancelled {
            return;
        }
        // An attempt that came to its regular end has read the notes that it began with.
        let heard = matches!(
            cause,
            attempt::AttemptCause::Rested
                | attempt::AttemptCause::Reported
                | attempt::AttemptCause::Submitted
        );
        let mut words = if heard || (talk.turns > 0 && same_session) {
            vec![]
        } else {
            attempt.notes.clone()
        };
        let said = usize::try_from(talk.turns.saturating_sub(1))
            .unwrap_or(usize::MAX)
            .min(talk.follow_ups.len());
        words.extend(
            talk.follow_ups[said..]
                .iter()
                .filter(|follow_up| !crate::session_rotation::is_summary_request(follow_up))
                .cloned(),
        );
        if !words.is_empty() {
            self.change_task(attempt.task, now, rows, |task| {
                words.append(&mut task.notes);
                task.notes = words;
            });
        }
    }

    /// Records on a task how its last attempt ended.
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

    /// Records on a mission the last landing of its tasks.
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

    fn change_mission(
        &mut self,
        id: MissionId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Mission),
    ) {
        if let Some(mission) = self.missions.get(&id) {
            let mut mission = Mission::clone(mission);
            change(&mut mission);
            self.put_mission(Arc::new(mission), rows);
        }
    }

    pub(super) fn put_mission(&mut self, mission: Arc<Mission>, rows: &mut Rows) {
        self.remove_mission(mission.id);
        if let Some(at) = mission
            .lead
            .as_ref()
            .and_then(|lead| lead.next_timer_fleet_ms())
        {
            self.timers.insert((at, Deadline::Mission(mission.id)));
        }
        self.missions.insert(mission.id, mission.clone());
        rows.insert(
            RowKey::Mission(mission.id),
            Some(Row::Mission(mission, true)),
        );
    }

    fn remove_mission(&mut self, id: MissionId) -> Option<Arc<Mission>> {
        let old = self.missions.remove(&id)?;
        if let Some(at) = old
            .lead
            .as_ref()
            .and_then(|lead| lead.next_timer_fleet_ms())
        {
            self.timers.remove(&(at, Deadline::Mission(id)));
        }
        Some(old)
    }

    fn approvals_of(&self, attempt: AttemptId) -> Vec<ApprovalId> {
        self.approvals
            .values()
            .filter(|approval| approval.attempt == attempt)
            .map(|approval| approval.id)
            .collect()
    }

    pub(super) fn change_approval(
        &mut self,
        id: ApprovalId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Approval),
    ) {
        if let Some(approval) = self.approvals.get(&id) {
            let mut approval = Approval::clone(approval);
            change(&mut approval);
            self.put_approval(Arc::new(approval), rows);
        }
    }

    pub(super) fn put_approval(&mut self, approval: Arc<Approval>, rows: &mut Rows) {
        if let Some(old) = self.approvals.get(&approval.id).cloned() {
            if let Some(at) = old.escalate_fleet_ms {
                self.timers.remove(&(at, Deadline::Approval(approval.id)));
            }
            if let Some(snooze) = old.snoozed {
                self.timers.remove(&(
                    snooze.deadline_fleet_ms,
                    Deadline::Snooze(InboxItem::Approval(approval.id)),
                ));
            }
        }
        if let (Some(snooze), true) = (approval.snoozed, approval.is_open()) {
            self.timers.insert((
                snooze.deadline_fleet_ms,
                Deadline::Snooze(InboxItem::Approval(approval.id)),
            ));
        }
        if let (Some(at), true, false) = (
            approval.escalate_fleet_ms,
            approval.is_open(),
            approval.escalated,
        ) {
            self.timers.insert((at, Deadline::Approval(approval.id)));
        }
        if approval.closed {
            self.approvals.remove(&approval.id);
        } else {
            self.approvals.insert(approval.id, approval.clone());
        }
        rows.insert(RowKey::Approval(approval.id), Some(Row::Approval(approval)));
    }

    pub(super) fn put_runner(&mut self, runner: Arc<Runner>, rows: &mut Rows) {
        self.remove_runner(&runner.name);
        if let Some(at) = runner.expires_fleet_ms {
            self.timers
                .insert((at, Deadline::Runner(runner.name.clone())));
        }
        self.runners.insert(runner.name.clone(), runner.clone());
        rows.insert(
            RowKey::Runner(runner.name.clone()),
            Some(Row::Runner(runner)),
        );
    }

    fn change_runner(
        &mut self,
        name: &RunnerName,
        rows: &mut Rows,
        change: impl FnOnce(&mut Runner),
    ) {
        if let Some(runner) = self.runners.get(name) {
            let mut runner = Runner::clone(runner);
            change(&mut runner);
            self.put_runner(Arc::new(runner), rows);
        }
    }

    fn remove_runner(&mut self, name: &RunnerName) {
        if let Some(at) = self
            .runners
            .remove(name)
            .and_then(|runner| runner.expires_fleet_ms)
        {
            self.timers.remove(&(at, Deadline::Runner(name.clone())));
        }
    }

    pub(super) fn put_conversation(&mut self, conversation: Arc<Conversation>, rows: &mut Rows) {
        if let Some(at) = self
            .conversations
            .remove(&conversation.id)
            .and_then(|conversation| conversation.idle_deadline_fleet_ms)
        {
            self.timers
                .remove(&(at, Deadline::Conversation(conversation.id)));
        }
        if !conversation.closed {
            if let Some(at) = conversation.idle_deadline_fleet_ms {
                self.timers
                    .insert((at, Deadline::Conversation(conversation.id)));
            }
            self.conversations
                .insert(conversation.id, conversation.clone());
        }
        rows.insert(
            RowKey::Conversation(conversation.id),
            Some(Row::Conversation(conversation)),
        );
    }

    pub(super) fn put_delivery(&mut self, delivery: &DeliveryRecord, rows: &mut Rows) {
        self.deliveries
            .insert(delivery.key.clone(), delivery.deadline_fleet_ms);
        self.timers.insert((
            delivery.deadline_fleet_ms,
            Deadline::Delivery(delivery.key.clone()),
        ));
        rows.insert(
            RowKey::Delivery(delivery.key.clone()),
            Some(Row::Delivery(delivery.clone())),
        );
    }

    fn put_hook(&mut self, hook: Arc<Hook>, rows: &mut Rows) {
        self.hooks.insert(hook.id, hook.clone());
        rows.insert(RowKey::Hook(hook.id), Some(Row::Hook(hook)));
    }

    fn change_hook(&mut self, id: HookId, rows: &mut Rows, change: impl FnOnce(&mut Hook)) {
        if let Some(hook) = self.hooks.get(&id) {
            let mut hook = Hook::clone(hook);
            change(&mut hook);
            self.put_hook(Arc::new(hook), rows);
        }
    }

    fn put_team(&mut self, team: Arc<Team>, rows: &mut Rows) {
        self.teams.insert(team.name.clone(), team.clone());
        rows.insert(RowKey::Team(team.name.clone()), Some(Row::Team(team)));
    }

    fn put_launch(&mut self, launch: TeamLaunch, now: Now, rows: &mut Rows) {
        let launch = Arc::new(TeamLaunch {
            revision: self.revision,
            updated_unix_ms: now.unix_ms,
            ..launch
        });
        if launch.superseded {
            self.launches.remove(&launch.id);
        } else {
            self.launches.insert(launch.id, launch.clone());
        }
        rows.insert(RowKey::Launch(launch.id), Some(Row::Launch(launch)));
    }

    /// Adds an attempt's usage to the attempt, its task, its mission and the day.
    fn add_spend(&mut self, id: AttemptId, day: u64, spend: &Spend, now: Now, rows: &mut Rows) {
        let Some(attempt) = self.attempts.get(&id).cloned() else {
            return;
        };
        if spend.usage != Usage::default() {
            self.change_attempt(id, rows, |attempt| {
                attempt.used = attempt.used.plus(&spend.usage)
            });
        }
        self.change_task(attempt.task, now, rows, |task| {
            task.spent = task.spent.plus(spend)
        });
        if let Some(mission) = attempt.mission {
            self.change_mission(mission, rows, |mission| {
                mission.spent = mission.spent.plus(spend)
            });
        }
        for agent in [None, Some(attempt.agent.clone())] {
            self.add_day_spend(day, agent, spend, rows);
        }
    }

    fn add_day_spend(
        &mut self,
        day: u64,
        agent: Option<AgentName>,
        spend: &Spend,
        rows: &mut Rows,
    ) {
        let key = (day, agent);
        let sum = self
            .ledger
            .get(&key)
            .copied()
            .unwrap_or_default()
            .plus(spend);
        self.ledger.insert(key.clone(), sum);
        let row = crate::budget::DaySpend {
            day,
            agent: key.1.clone(),
            spend: sum,
        };
        rows.insert(RowKey::Day(day, key.1), Some(Row::Day(row)));
    }
}
