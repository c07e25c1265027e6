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
use crate::ids::{
    AgentName, ApprovalId, AttemptId, CommitId, HookId, MissionId, Now, RunnerName, TaskId,
};
use crate::inbox::InboxItem;
use crate::launch::{LaunchEntry, TeamLaunch};
use crate::lead::Lead;
use crate::limits::StoredAnswer;
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
            Event::FleetLimited(it) => self.limits = *it.limits(),
            Event::RequestAnswered(it) => {
                let answer = StoredAnswer {
                    key: it.key().clone(),
                    command_fingerprint: *it.command(),
                    outcome: it.outcome().clone(),
                    revision: self.revision,
                    deadline_fleet_ms: *it.until_at(),
                };
                self.put_answer(Arc::new(answer), rows);
            }
            Event::RequestForgotten(it) => {
                if let Some(old) = self.answers.remove(it.key()) {
                    self.timers
                        .remove(&(old.deadline_fleet_ms, Deadline::Answer(old.key.clone())));
                    rows.insert(RowKey::Answer(it.key().clone()), None);
                }
            }
            Event::ProjectAdded(it) => self.put_project(it.project().clone(), rows),
            Event::ProjectChanged(it) => self.put_project(it.project().clone(), rows),
            Event::ProjectRemoved(it) => {
                self.projects.remove(it.project());
                rows.insert(RowKey::Project(it.project().clone()), None);
            }
            Event::ProjectRadar(it) => {
                if let Some(project) = self.projects.get(it.project()) {
                    let project = Project {
                        collision_forecast: it.radar().clone(),
                        ..Project::clone(project)
                    };
                    self.put_project(Arc::new(project), rows);
                }
            }
            Event::AgentRegistered(it) => {
                let agent = it.agent().clone();
                self.agents.insert(agent.name.clone(), agent.clone());
                rows.insert(RowKey::Agent(agent.name.clone()), Some(Row::Agent(agent)));
            }
            Event::AgentRemoved(it) => {
                self.agents.remove(it.agent());
                rows.insert(RowKey::Agent(it.agent().clone()), None);
            }
            Event::ClaimGranted(it) => {
                self.counters.claim = self.counters.claim.max(it.claim().id.0);
                if let Some(wait) = it.wait() {
                    self.drop_wait(*wait, rows);
                }
                self.put_claim(Arc::new(it.claim().clone()), rows);
            }
            Event::ClaimRenewed(it) => {
                if let Some(claim) = self.claims.get(it.claim()) {
                    let claim = Claim {
                        expires_fleet_ms: *it.expires_at(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimTransferred(it) => {
                if let Some(claim) = self.claims.get(it.claim()) {
                    let claim = Claim {
                        owner: it.to().clone(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimReleased(it) => {
                self.drop_claim(*it.claim());
                rows.insert(RowKey::Claim(*it.claim()), None);
            }
            Event::ClaimQueued(it) => {
                self.counters.wait = it.wait().id.0;
                self.put_wait(Arc::new(it.wait().clone()), rows);
            }
            Event::ClaimWaitEnded(it) => self.drop_wait(*it.wait(), rows),
            Event::MissionStarted(it) => {
                self.counters.mission = it.mission().id.0;
                self.put_mission(it.mission().clone(), rows);
            }
            Event::MissionChanged(it) => {
                self.change_mission(*it.mission(), rows, |mission| mission.state = *it.state());
            }
            Event::MissionLed(it) => self.change_mission(*it.mission(), rows, |mission| {
                mission.lead = Some(Lead::clone(it.lead()));
                mission.state = it.state().unwrap_or(mission.state);
                if let Some(agents) = it.agents() {
                    mission.agents = agents.clone();
                }
            }),
            Event::MissionWeighed(it) => {
                self.change_mission(*it.mission(), rows, |mission| {
                    mission.blocking_gates = it.held().clone()
                });
            }
            Event::MissionSerialised(it) => self.change_mission(*it.mission(), rows, |mission| {
                mission.isolate = false;
                mission.serialised_reason = Some(it.reason().clone());
            }),
            Event::MissionEnded(it) => {
                if let Some(mission) = self.remove_mission(*it.mission()) {
                    let mission = Arc::new(Mission {
                        result: it.end().clone(),
                        ..Mission::clone(&mission)
                    });
                    rows.insert(
                        RowKey::Mission(mission.id),
                        Some(Row::Mission(mission, false)),
                    );
                }
            }
            Event::TaskAdded(it) => {
                self.counters.task = it.task().id.0;
                self.put_task(it.task().clone(), rows);
            }
            Event::TaskEdited(it) => {
                let edited = it.task();
                self.change_task(edited.id, now, rows, |task| *task = Task::clone(edited));
            }
            Event::TaskAssigned(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = *it.status();
                task.assignee = it.to().clone();
                task.offer_until_fleet_ms = None;
            }),
            Event::TaskOffered(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::Offered;
                task.assignee = Some(it.to().clone());
                task.offer_until_fleet_ms = Some(*it.until_at());
            }),
            Event::TaskStarted(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::InProgress;
                task.attempt = Some(*it.attempt());
                task.agent = Some(it.agent().clone());
                task.offer_until_fleet_ms = None;
                task.progress = String::new();
                // The attempt has the notes and the resume data now.
                (task.notes, task.resume, task.not_before_fleet_ms) = (vec![], None, None);
            }),
            Event::TaskProgressed(it) => self.change_task(*it.task(), now, rows, |task| {
                task.progress = it.text().clone()
            }),
            Event::TaskValidating(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.phase = AttemptPhase::Validating
                });
                self.change_task(*it.task(), now, rows, |task| {
                    task.status = TaskStatus::Validating;
                    task.output = it.output().clone();
                });
            }
            Event::TaskSubmitted(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::Landing;
                task.landing = Some(*it.landing());
                task.submission = Some(it.submission().clone());
                (task.reason, task.needed_decision, task.fixup) = (None, None, None);
            }),
            Event::TaskReturned(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = *it.status();
                task.reason = Some(it.reason().clone());
                task.failures += u32::from(*it.counts());
                task.needed_decision = None;
                task.landing = None;
                task.resting = it.again().as_ref().is_some_and(|it| it.resting);
                if let Some(again) = it.again() {
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
            Event::TaskDue(it) => self.change_task(*it.task(), now, rows, |task| {
                (task.not_before_fleet_ms, task.resting) = (None, false);
            }),
            Event::TaskNoted(it) => self.change_task(*it.task(), now, rows, |task| {
                task.notes.push(it.text().clone())
            }),
            Event::TaskWarned(it) => {
                self.change_task(*it.task(), now, rows, |task| {
                    task.warnings.push(it.text().clone())
                });
            }
            Event::TaskEscaped(it) => {
                self.change_task(*it.task(), now, rows, |task| {
                    task.escapes.push(it.escape().clone())
                });
            }
            Event::AttemptReported(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.result = Some(it.result().clone())
                });
            }
            Event::TaskInReview(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::InReview;
                task.submission = Some(it.submission().clone());
                task.reason = Some(it.reason().clone());
                task.fixup = None;
            }),
            Event::TaskNeedsHuman(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::NeedsHuman;
                task.reason = Some(it.reason().clone());
                task.needed_decision = Some(*it.kind());
                task.landing = None;
                if let Some(fixup) = it.fixup() {
                    task.record_fixup(fixup);
                }
            }),
            Event::TaskCompleted(it) => {
                self.record_landed(*it.task(), it.landed().as_ref(), rows);
                let mission = self
                    .tasks
                    .get(it.task())
                    .and_then(|it| self.missions.get(&it.mission?));
                let shared = it.landed().is_some() && mission.is_some_and(|it| it.wave_commits);
                self.change_task(*it.task(), now, rows, |task| {
                    task.shares_commit = shared;
                    task.status = TaskStatus::Completed;
                    task.landed = it.landed().clone();
                    (task.reason, task.needed_decision) = (None, None);
                });
            }
            Event::TaskFailed(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::Failed;
                task.reason = Some(it.reason().clone());
                // The team decides what to do about a failed session of a member.
                task.awaits_decision = task.session_of.is_none();
            }),
            Event::TaskCancelled(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = TaskStatus::Cancelled;
                task.reason = Some(it.reason().clone());
            }),
            Event::AttemptStarted(it) => {
                self.counters.attempt = it.attempt().id.0;
                self.put_attempt(it.attempt().clone(), rows);
                if it.attempt().supervised {
                    let one = Spend {
                        attempts: 1,
                        ..Spend::default()
                    };
                    self.add_spend(it.attempt().id, crate::budget::day_of(now), &one, now, rows);
                }
            }
            Event::AttemptRenewed(it) => self.change_attempt(*it.attempt(), rows, |attempt| {
                attempt.expires_fleet_ms = Some(*it.expires_at())
            }),
            Event::AttemptStopping(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.stopping = Some(*it.cause())
                });
                self.record_cause(*it.attempt(), *it.cause(), now, rows);
            }
            Event::AttemptEnded(it) => {
                // Approvals of an ended attempt are closed, except open questions that outlive it.
                for id in self.approvals_of(*it.attempt()) {
                    self.change_approval(id, rows, |approval| {
                        approval.closed = !(approval.is_kept_for_task && approval.is_open())
                    });
                }
                self.return_unread_notes(*it.attempt(), *it.cause(), now, rows);
                let task = self.attempts.get(it.attempt()).map(|attempt| attempt.task);
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.end = Some(attempt::AttemptEnd {
                        cause: *it.cause(),
                        detail: it.detail().clone(),
                        unix_ms: now.unix_ms,
                    });
                });
                if let Some(task) = task
                    .and_then(|id| self.tasks.get(&id))
                    .filter(|task| task.attempt == Some(*it.attempt()))
                {
                    let cause = self
                        .attempts
                        .get(it.attempt())
                        .and_then(|it| it.stopping)
                        .unwrap_or(*it.cause());
                    self.change_task(task.id, now, rows, |task| {
                        (task.attempt, task.last_cause) = (None, Some(cause));
                    });
                }
            }
            Event::AttemptSaid(it) => {
                let (n, said) = (*it.n(), it.said().clone());
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    apply_agent_event(attempt, n, said)
                });
            }
            Event::AttemptLaunched(it) => {
                // The time to open a session starts here, because making the workspace was
                // Regatta's own work.
                let ready_by = now.fleet_ms + self.limits.startup_ms;
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.sandbox = it.sandbox().clone();
                    attempt.session_deadline_fleet_ms =
                        attempt.accepts_follow_ups.then_some(ready_by);
                });
            }
            Event::AttemptPorted(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.ports = it.ports().clone()
                });
            }
            Event::AttemptExtended(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.deadline_fleet_ms = Some(*it.until_at())
                });
            }
            Event::AttemptClocked(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.budget_check_fleet_ms = *it.wall_at()
                });
            }
            Event::AttemptNoted(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.output = it.output().clone()
                });
            }
            Event::AttemptClosing(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.session.closing = true
                });
            }
            Event::AttemptRotating(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    crate::session_rotation::insert_summary_request(&mut attempt.session)
                });
            }
            Event::AttemptTold(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.session.follow_ups.push(it.text().clone())
                });
            }
            Event::AttemptHeld(it) => self.change_attempt(*it.attempt(), rows, |attempt| {
                attempt.session.hold_reason = Some(it.reason().clone());
                attempt.session.cancels += u32::from(attempt.session.in_turn);
            }),
            Event::AttemptQuiet(it) => self.change_attempt(*it.attempt(), rows, |attempt| {
                attempt.quiet_since_unix_ms = *it.since_wall();
                attempt.snoozed = attempt.snoozed.filter(|_| it.since_wall().is_some());
            }),
            Event::AttemptLetGo(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.session.hold_reason = None
                });
            }
            Event::ApprovalAsked(it) => {
                self.counters.approval = it.approval().id.0;
                self.put_approval(it.approval().clone(), rows);
            }
            Event::ApprovalDecided(it) => self.change_approval(*it.approval(), rows, |approval| {
                approval.decision = Some(it.decision().clone());
            }),
            Event::ApprovalKept(it) => self.change_approval(*it.approval(), rows, |approval| {
                approval.is_kept_for_task = true;
                approval.assumed = it.assumed().clone().or(approval.assumed.take());
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
            }),
            Event::ApprovalHeard(it) => {
                let attempt = self
                    .approvals
                    .get(it.approval())
                    .map(|approval| approval.attempt);
                let is_over = attempt.is_none_or(|attempt| !self.attempts.contains_key(&attempt));
                self.change_approval(*it.approval(), rows, |approval| {
                    approval.is_answer_read = true;
                    approval.closed |= is_over;
                });
            }
            Event::ApprovalEscalated(it) => {
                self.change_approval(*it.approval(), rows, |approval| approval.escalated = true);
            }
            Event::ApprovalWithdrawn(it) => {
                self.change_approval(*it.approval(), rows, |approval| approval.closed = true);
            }
            Event::InboxSnoozed(it) => self.snooze_item(it.item(), *it.snooze(), now, rows),
            Event::InboxDismissed(it) => self.change_failed(*it.task(), rows, |task| {
                (task.awaits_decision, task.snoozed) = (false, None);
            }),
            Event::PolicyAdded(it) => {
                let rule = Arc::new(it.rule().clone());
                self.counters.rule = self.counters.rule.max(rule.id.0);
                self.rules.insert(rule.id, rule.clone());
                rows.insert(RowKey::Rule(rule.id), Some(Row::Rule(rule)));
            }
            Event::PolicyRemoved(it) => {
                self.rules.remove(it.rule());
                rows.insert(RowKey::Rule(*it.rule()), None);
            }
            Event::BudgetSet(it) => self.put_budget(Arc::new(it.budget().clone()), rows),
            Event::BudgetRemoved(it) => {
                self.remove_budget(it.scope());
                rows.insert(RowKey::Budget(it.scope().clone()), None);
            }
            Event::BudgetWarned(it) => self.change_budget(it.scope(), rows, |budget| {
                budget.warned = Some((it.whose().clone(), *it.day()));
                budget.warned_unix_ms = Some(now.unix_ms);
            }),
            Event::BudgetSpent(it) => {
                self.add_spend(*it.attempt(), *it.day(), it.spend(), now, rows)
            }
            Event::ProviderParked(it) => {
                self.put_parked(Arc::new(it.parked().clone()), rows);
            }
            Event::ProviderFreed(it) => {
                let before = self.parked.get(it.name()).cloned();
                self.remove_parked(it.name());
                let kept = before.zip(*it.remembered()).map(|(before, times)| {
                    Arc::new(ProviderOutage {
                        deadline_fleet_ms: None,
                        has_resumed: true,
                        times,
                        snoozed: None,
                        ..ProviderOutage::clone(&before)
                    })
                });
                if let Some(kept) = &kept {
                    self.parked.insert(it.name().clone(), kept.clone());
                }
                rows.insert(RowKey::Parked(it.name().clone()), kept.map(Row::Parked));
            }
            Event::RunnerRegistered(it) => self.put_runner(Arc::new(it.runner().clone()), rows),
            Event::RunnerRenewed(it) => self.change_runner(it.runner(), rows, |runner| {
                (runner.expires_fleet_ms, runner.last_seen_unix_ms) =
                    (Some(*it.expires_at()), now.unix_ms);
            }),
            Event::RunnerChanged(it) => self.change_runner(it.runner(), rows, |runner| {
                runner.state = *it.state();
                runner.expires_fleet_ms = runner.expires_fleet_ms.filter(|_| runner.is_present());
            }),
            Event::RunnerRemoved(it) => {
                self.remove_runner(it.runner());
                rows.insert(RowKey::Runner(it.runner().clone()), None);
            }
            Event::TeamCreated(it) => self.put_team(it.team().clone(), rows),
            Event::TeamChanged(it) => self.put_team(it.team().clone(), rows),
            Event::LaunchBegun(it) => {
                self.counters.launch = self.counters.launch.max(it.launch().id.0);
                self.put_launch(TeamLaunch::clone(it.launch()), now, rows);
            }
            Event::LaunchMember(it) => {
                if let Some(launch) = self.launches.get(it.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    let entry = LaunchEntry::clone(it.entry());
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
                        .filter(|_| !it.entry().state.is_pending());
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LaunchChanged(it) => {
                if let Some(launch) = self.launches.get(it.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    launch.stopping = it.stopping().clone();
                    launch.reconciled_unix_ms = *it.reconciled_wall();
                    launch.superseded = *it.superseded();
                    launch.announced = it.told().clone().or(launch.announced);
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
            Event::MessagePosted(it) => {
                self.counters.message = it.message().id.0;
                rows.insert(
                    RowKey::Message(it.message().id),
                    Some(Row::Message(Arc::new(it.message().clone()))),
                );
            }
            Event::MessageQueued(it) => {
                self.change_project(it.project(), rows, |project| {
                    project.router_state.waiting.push(it.message().clone())
                });
            }
            Event::MessageHandled(it) => {
                self.change_project(it.project(), rows, |project| {
                    project.router_state.last_handled =
                        project.router_state.last_handled.max(*it.message());
                    project
                        .router_state
                        .waiting
                        .retain(|waits| waits.id != *it.message());
                });
                let routes = |hook: &&Arc<Hook>| hook.is_router_of(it.project());
                if let Some(id) = self.hooks.values().find(routes).map(|hook| hook.id) {
                    self.change_hook(id, rows, |hook| {
                        (hook.fired_count, hook.fired_unix_ms) =
                            (hook.fired_count + 1, Some(now.unix_ms));
                    });
                }
            }
            Event::MessageThread(it) => self.change_project(it.project(), rows, |project| {
                let threads = &mut project.router_state.threads;
                threads.retain(|known| known.root != it.thread().root);
                threads.push(it.thread().clone());
                let over = threads
                    .len()
                    .saturating_sub(crate::thread_answers::MAX_THREADS);
                threads.drain(..over);
            }),
            Event::ConversationChanged(it) => {
                self.counters.conversation = self.counters.conversation.max(it.conversation().id.0);
                self.put_conversation(it.conversation().clone(), rows);
            }
            Event::ConversationExpired(_) | Event::ConversationPushing(_) => {}
            Event::DeliveryTaken(it) => self.put_delivery(it.delivery(), rows),
            Event::DeliveryForgotten(it) => {
                if let Some(at) = self.deliveries.remove(it.delivery()) {
                    self.timers
                        .remove(&(at, Deadline::Delivery(it.delivery().clone())));
                }
                rows.insert(RowKey::Delivery(it.delivery().clone()), None);
            }
            Event::HookAdded(it) => {
                self.counters.hook = it.hook().id.0;
                self.put_hook(it.hook().clone(), rows);
            }
            Event::HookChanged(it) => self.change_hook(*it.hook(), rows, |hook| {
                hook.paused = it.paused().clone();
                if hook.paused.is_none() {
                    hook.recent_firings.clear(); // a resumed hook starts with an empty window
                }
            }),
            Event::HookRemoved(it) => {
                self.hooks.remove(it.hook());
                rows.insert(RowKey::Hook(*it.hook()), None);
            }
            Event::HookFired(it) => {
                let firing = it.firing().clone();
                self.counters.firing = firing.id.0;
                self.change_hook(firing.hook, rows, |hook| {
                    (hook.fired_count, hook.fired_unix_ms) =
                        (hook.fired_count + 1, Some(now.unix_ms));
                    hook.recent_firings
                        .retain(|at| *at + hook::FIRING_WINDOW_MS > now.fleet_ms);
                    hook.recent_firings.push(*it.at());
                    hook.forget_waiting(&firing.cause);
                });
                self.firings.insert(firing.id, firing.clone());
                rows.insert(RowKey::Firing(firing.id), Some(Row::Firing(firing)));
            }
            Event::HookSkipped(it) => self.change_hook(*it.hook(), rows, |hook| {
                hook.skipped_count += 1;
                hook.last_skip = Some((it.cause().clone(), it.why().clone()));
                hook.forget_waiting(it.cause());
            }),
            Event::HookQueued(it) => self.change_hook(*it.hook(), rows, |hook| {
                hook.waiting.push(it.waiting().clone())
            }),
            Event::HookEnded(it) => {
                if let Some(firing) = self.firings.remove(it.firing()) {
                    let firing = Firing {
                        ended: Some(it.ended().clone()),
                        ended_unix_ms: Some(now.unix_ms),
                        output: it.output().clone(),
                        sandbox_description: it.shut_in().clone(),
                        ..Firing::clone(&firing)
                    };
                    rows.insert(
                        RowKey::Firing(firing.id),
                        Some(Row::Firing(Arc::new(firing))),
                    );
                }
            }
            Event::MessageRead(it) => {
                self.cursors
                    .insert((it.agent().clone(), it.channel().clone()), *it.read());
                let cursor = ReadCursor {
                    agent: it.agent().clone(),
                    channel: it.channel().clone(),
                    read: *it.read(),
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
            match talk.usage_by_session.iter_mut().find(|it| it.0 == session) {
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
            .and_then(|it| it.resume.as_ref())
            .is_some_and(|it| it.session.is_some());
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
                .filter(|it| !crate::session_rotation::is_summary_request(it))
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
            .and_then(|it| self.tasks.get(&it.task))
            .filter(|it| it.attempt == Some(id));
        if let Some(task) = task.map(|it| it.id) {
            self.change_task(task, now, rows, |task| task.last_cause = Some(cause));
        }
    }

    /// Records on a mission the last landing of its tasks.
    fn record_landed(&mut self, id: TaskId, commit: Option<&CommitId>, rows: &mut Rows) {
        let (Some(task), Some(commit)) = (self.tasks.get(&id).cloned(), commit) else {
            return;
        };
        let Some(mission) = task.mission else { return };
        let changed = task.submission.as_ref().map_or(&[][..], |it| &it.changed);
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
            .and_then(|it| it.next_timer_fleet_ms())
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
        if let Some(at) = old.lead.as_ref().and_then(|it| it.next_timer_fleet_ms()) {
            self.timers.remove(&(at, Deadline::Mission(id)));
        }
        Some(old)
    }

    fn approvals_of(&self, attempt: AttemptId) -> Vec<ApprovalId> {
        self.approvals
            .values()
            .filter(|it| it.attempt == attempt)
            .map(|it| it.id)
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
            if let Some(it) = old.snoozed {
                self.timers.remove(&(
                    it.deadline_fleet_ms,
                    Deadline::Snooze(InboxItem::Approval(approval.id)),
                ));
            }
        }
        if let (Some(it), true) = (approval.snoozed, approval.is_open()) {
            self.timers.insert((
                it.deadline_fleet_ms,
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
        if let Some(at) = self.runners.remove(name).and_then(|it| it.expires_fleet_ms) {
            self.timers.remove(&(at, Deadline::Runner(name.clone())));
        }
    }

    pub(super) fn put_conversation(&mut self, conversation: Arc<Conversation>, rows: &mut Rows) {
        if let Some(at) = self
            .conversations
            .remove(&conversation.id)
            .and_then(|it| it.idle_deadline_fleet_ms)
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
            self.change_attempt(id, rows, |it| it.used = it.used.plus(&spend.usage));
        }
        self.change_task(attempt.task, now, rows, |it| {
            it.spent = it.spent.plus(spend)
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
