//! Changes the board when an event is recorded. Replaying all events of the log with this code
//! restores the board (D4).

use std::sync::Arc;

use crate::agent_protocol::RequestContent;
use crate::approval::ApprovalChange;
use crate::bus::ReadCursor;
use crate::claim::Claim;
use crate::event::{Event, Recorded};
use crate::hook::{self, Firing, Hook};
use crate::idempotency::StoredAnswer;
use crate::ids::Now;
use crate::launch::{LaunchEntry, TeamLaunch};
use crate::lead::Lead;
use crate::mission::Mission;
use crate::project::Project;
use crate::provider_outage::ProviderOutage;

use super::{Board, Deadline, Row, RowKey, Rows};

impl Board {
    /// Applies one event of the log while the log is replayed (D4).
    pub fn fold(&mut self, recorded: &Recorded) {
        self.fold_into(recorded, &mut Rows::new());
    }

    /// Like [`Board::fold`], but also puts the changed rows, which the store must write, into
    /// `rows`.
    pub fn fold_into(&mut self, recorded: &Recorded, rows: &mut Rows) {
        // Take the revision from the log and do not count on. After a restore from a backup, the
        // log skips some numbers, so that no token (an event number) is used twice.
        self.revision = recorded.revision - 1;
        self.apply(&recorded.event, recorded.now, rows);
    }

    /// Applies a new event. Nothing can fail here, because all checks were made before the event
    /// was recorded.
    pub(super) fn apply(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        self.revision += 1;
        self.fleet_ms = now.fleet_ms;
        match event {
            Event::FleetResumed(_) | Event::EventUnreadable(_) => {}
            Event::FleetLimited(event) => self.limits = *event.limits(),
            Event::RequestAnswered(event) => {
                let answer = StoredAnswer {
                    key: event.key().clone(),
                    command_fingerprint: *event.command(),
                    fingerprint_form: *event.form(),
                    outcome: event.outcome().clone(),
                    revision: self.revision,
                    deadline_fleet_ms: *event.until_at(),
                };
                self.put_answer(Arc::new(answer), rows);
            }
            Event::RequestForgotten(event) => {
                if let Some(old) = self.answers.remove(event.key()) {
                    self.timers
                        .remove(&(old.deadline_fleet_ms, Deadline::Answer(old.key.clone())));
                    rows.insert(RowKey::Answer(event.key().clone()), None);
                }
            }
            Event::ProjectAdded(event) => self.put_project(event.project().clone(), rows),
            Event::ProjectChanged(event) => self.put_project(event.project().clone(), rows),
            Event::ProjectRemoved(event) => {
                self.projects.remove(event.project());
                rows.insert(RowKey::Project(event.project().clone()), None);
            }
            Event::ProjectRadar(event) => {
                if let Some(project) = self.projects.get(event.project()) {
                    let project = Project {
                        collision_forecast: event.radar().clone(),
                        ..Project::clone(project)
                    };
                    self.put_project(Arc::new(project), rows);
                }
            }
            Event::AgentRegistered(event) => {
                let agent = event.agent().clone();
                self.agents.insert(agent.name.clone(), agent.clone());
                rows.insert(RowKey::Agent(agent.name.clone()), Some(Row::Agent(agent)));
            }
            Event::AgentRemoved(event) => {
                self.agents.remove(event.agent());
                rows.insert(RowKey::Agent(event.agent().clone()), None);
            }
            Event::ClaimGranted(event) => {
                self.counters.claim = self.counters.claim.max(event.claim().id.0);
                if let Some(wait) = event.wait() {
                    self.drop_wait(*wait, rows);
                }
                self.put_claim(Arc::new(event.claim().clone()), rows);
            }
            Event::ClaimRenewed(event) => {
                if let Some(claim) = self.claims.get(event.claim()) {
                    let claim = Claim {
                        expires_fleet_ms: *event.expires_at(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimTransferred(event) => {
                if let Some(claim) = self.claims.get(event.claim()) {
                    let claim = Claim {
                        owner: event.to().clone(),
                        ..Claim::clone(claim)
                    };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimReleased(event) => {
                self.drop_claim(*event.claim());
                rows.insert(RowKey::Claim(*event.claim()), None);
            }
            Event::ClaimQueued(event) => {
                self.counters.wait = event.wait().id.0;
                self.put_wait(Arc::new(event.wait().clone()), rows);
            }
            Event::ClaimWaitEnded(event) => self.drop_wait(*event.wait(), rows),
            Event::MissionStarted(event) => {
                self.counters.mission = event.mission().id.0;
                self.put_mission(event.mission().clone(), rows);
            }
            Event::MissionChanged(event) => {
                self.change_mission(*event.mission(), rows, |mission| {
                    mission.state = *event.state()
                });
            }
            Event::MissionLed(event) => self.change_mission(*event.mission(), rows, |mission| {
                mission.lead = Some(Lead::clone(event.lead()));
                mission.state = event.state().unwrap_or(mission.state);
                if let Some(agents) = event.agents() {
                    mission.agents = agents.clone();
                }
            }),
            Event::MissionWeighed(event) => {
                self.change_mission(*event.mission(), rows, |mission| {
                    mission.blocking_gates = event.held().clone()
                });
            }
            Event::MissionSerialised(event) => {
                self.change_mission(*event.mission(), rows, |mission| {
                    mission.isolate = false;
                    mission.serialised_reason = Some(event.reason().clone());
                })
            }
            Event::MissionEnded(event) => {
                if let Some(mission) = self.remove_mission(*event.mission()) {
                    let mission = Arc::new(Mission {
                        result: event.end().clone(),
                        ..Mission::clone(&mission)
                    });
                    rows.insert(
                        RowKey::Mission(mission.id),
                        Some(Row::Mission(mission, false)),
                    );
                }
            }
            Event::ApprovalAsked(event) => {
                self.counters.approval = event.approval().id.0;
                self.put_approval(event.approval().clone(), rows);
            }
            Event::ApprovalDecided(event) => {
                self.change_approval(*event.approval(), rows, |approval| {
                    approval.answer(event.decision().clone());
                })
            }
            Event::ApprovalKept(event) => {
                self.change_approval(*event.approval(), rows, |approval| {
                    approval.change_state(ApprovalChange::Keep);
                    approval.assumed = event.assumed().clone().or(approval.assumed.take());
                    // Adds the agent's assumption to the suggested answers, so that a person can
                    // confirm it by choosing it.
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
            Event::ApprovalHeard(event) => {
                let attempt = self
                    .approvals
                    .get(event.approval())
                    .map(|approval| approval.attempt);
                let is_over = attempt.is_none_or(|attempt| !self.attempts.contains_key(&attempt));
                self.change_approval(*event.approval(), rows, |approval| {
                    approval.is_answer_read = true;
                    approval.change_state(ApprovalChange::Read {
                        is_attempt_over: is_over,
                    });
                });
            }
            Event::ApprovalEscalated(event) => {
                self.change_approval(*event.approval(), rows, |approval| {
                    approval.escalated = true
                });
            }
            Event::ApprovalWithdrawn(event) => {
                self.change_approval(*event.approval(), rows, |approval| {
                    approval.change_state(ApprovalChange::Withdraw);
                });
            }
            Event::InboxSnoozed(event) => {
                self.snooze_item(event.item(), *event.snooze(), now, rows)
            }
            Event::InboxDismissed(event) => self.change_failed(*event.task(), rows, |task| {
                (task.awaits_decision, task.snoozed) = (false, None);
            }),
            Event::PolicyAdded(event) => {
                let rule = Arc::new(event.rule().clone());
                self.counters.rule = self.counters.rule.max(rule.id.0);
                self.rules.insert(rule.id, rule.clone());
                rows.insert(RowKey::Rule(rule.id), Some(Row::Rule(rule)));
            }
            Event::PolicyRemoved(event) => {
                self.rules.remove(event.rule());
                rows.insert(RowKey::Rule(*event.rule()), None);
            }
            Event::BudgetSet(event) => self.put_budget(Arc::new(event.budget().clone()), rows),
            Event::BudgetRemoved(event) => {
                self.remove_budget(event.scope());
                rows.insert(RowKey::Budget(event.scope().clone()), None);
            }
            Event::BudgetWarned(event) => self.change_budget(event.scope(), rows, |budget| {
                budget.warned = Some((event.whose().clone(), *event.day()));
                budget.warned_unix_ms = Some(now.unix_ms);
            }),
            Event::BudgetSpent(event) => {
                self.add_spend(*event.attempt(), *event.day(), event.spend(), now, rows)
            }
            Event::ProviderParked(event) => {
                self.put_parked(Arc::new(event.parked().clone()), rows);
            }
            Event::ProviderFreed(event) => {
                let before = self.parked.get(event.name()).cloned();
                self.remove_parked(event.name());
                let kept = before.zip(*event.remembered()).map(|(before, times)| {
                    Arc::new(ProviderOutage {
                        deadline_fleet_ms: None,
                        has_resumed: true,
                        times,
                        snoozed: None,
                        ..ProviderOutage::clone(&before)
                    })
                });
                if let Some(kept) = &kept {
                    self.parked.insert(event.name().clone(), kept.clone());
                }
                rows.insert(RowKey::Parked(event.name().clone()), kept.map(Row::Parked));
            }
            Event::RunnerRegistered(event) => {
                self.put_runner(Arc::new(event.runner().clone()), rows)
            }
            Event::RunnerRenewed(event) => self.change_runner(event.runner(), rows, |runner| {
                (runner.expires_fleet_ms, runner.last_seen_unix_ms) =
                    (Some(*event.expires_at()), now.unix_ms);
            }),
            Event::RunnerChanged(event) => self.change_runner(event.runner(), rows, |runner| {
                runner.state = *event.state();
                runner.expires_fleet_ms = runner.expires_fleet_ms.filter(|_| runner.is_present());
            }),
            Event::RunnerRemoved(event) => {
                self.remove_runner(event.runner());
                rows.insert(RowKey::Runner(event.runner().clone()), None);
            }
            Event::TeamCreated(event) => self.put_team(event.team().clone(), rows),
            Event::TeamChanged(event) => self.put_team(event.team().clone(), rows),
            Event::LaunchBegun(event) => {
                self.counters.launch = self.counters.launch.max(event.launch().id.0);
                self.put_launch(TeamLaunch::clone(event.launch()), now, rows);
            }
            Event::LaunchMember(event) => {
                if let Some(launch) = self.launches.get(event.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    let entry = LaunchEntry::clone(event.entry());
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
                        .filter(|_| !event.entry().state.is_pending());
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LaunchChanged(event) => {
                if let Some(launch) = self.launches.get(event.launch()) {
                    let mut launch = TeamLaunch::clone(launch);
                    launch.stopping = event.stopping().clone();
                    launch.reconciled_unix_ms = *event.reconciled_wall();
                    launch.superseded = *event.superseded();
                    launch.announced = event.told().clone().or(launch.announced);
                    self.put_launch(launch, now, rows);
                }
            }
            Event::TaskAdded(_)
            | Event::TaskEdited(_)
            | Event::TaskAssigned(_)
            | Event::TaskOffered(_)
            | Event::TaskStarted(_)
            | Event::TaskProgressed(_)
            | Event::TaskValidating(_)
            | Event::TaskSubmitted(_)
            | Event::TaskReturned(_)
            | Event::TaskDue(_)
            | Event::TaskNoted(_)
            | Event::TaskWarned(_)
            | Event::TaskEscaped(_)
            | Event::TaskInReview(_)
            | Event::TaskNeedsHuman(_)
            | Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::TaskCancelled(_) => self.apply_task(event, now, rows),
            Event::AttemptReported(_)
            | Event::AttemptStarted(_)
            | Event::AttemptRenewed(_)
            | Event::AttemptStopping(_)
            | Event::AttemptEnded(_)
            | Event::AttemptSaid(_)
            | Event::AttemptLaunched(_)
            | Event::AttemptPorted(_)
            | Event::AttemptExtended(_)
            | Event::AttemptClocked(_)
            | Event::AttemptNoted(_)
            | Event::AttemptClosing(_)
            | Event::AttemptRotating(_)
            | Event::AttemptTold(_)
            | Event::AttemptHeld(_)
            | Event::AttemptQuiet(_)
            | Event::AttemptLetGo(_) => self.apply_attempt(event, now, rows),
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
            Event::MessagePosted(event) => {
                self.counters.message = event.message().id.0;
                rows.insert(
                    RowKey::Message(event.message().id),
                    Some(Row::Message(Arc::new(event.message().clone()))),
                );
            }
            Event::MessageQueued(event) => {
                self.change_project(event.project(), rows, |project| {
                    project.router_state.waiting.push(event.message().clone())
                });
            }
            Event::MessageHandled(event) => {
                self.change_project(event.project(), rows, |project| {
                    project.router_state.last_handled =
                        project.router_state.last_handled.max(*event.message());
                    project
                        .router_state
                        .waiting
                        .retain(|waits| waits.id != *event.message());
                });
                let routes = |hook: &&Arc<Hook>| hook.is_router_of(event.project());
                if let Some(id) = self.hooks.values().find(routes).map(|hook| hook.id) {
                    self.change_hook(id, rows, |hook| {
                        (hook.fired_count, hook.fired_unix_ms) =
                            (hook.fired_count + 1, Some(now.unix_ms));
                    });
                }
            }
            Event::MessageThread(event) => self.change_project(event.project(), rows, |project| {
                let threads = &mut project.router_state.threads;
                threads.retain(|known| known.root != event.thread().root);
                threads.push(event.thread().clone());
                let over = threads
                    .len()
                    .saturating_sub(crate::thread_answers::MAX_THREADS);
                threads.drain(..over);
            }),
            Event::ConversationChanged(event) => {
                self.counters.conversation =
                    self.counters.conversation.max(event.conversation().id.0);
                self.put_conversation(event.conversation().clone(), rows);
            }
            Event::ConversationExpired(_) | Event::ConversationPushing(_) => {}
            Event::DeliveryTaken(event) => self.put_delivery(event.delivery(), rows),
            Event::DeliveryForgotten(event) => {
                if let Some(at) = self.deliveries.remove(event.delivery()) {
                    self.timers
                        .remove(&(at, Deadline::Delivery(event.delivery().clone())));
                }
                rows.insert(RowKey::Delivery(event.delivery().clone()), None);
            }
            Event::HookAdded(event) => {
                self.counters.hook = event.hook().id.0;
                self.put_hook(event.hook().clone(), rows);
            }
            Event::HookChanged(event) => {
                self.change_hook(*event.hook(), rows, |hook| {
                    hook.paused = event.paused().clone();
                    if hook.paused.is_none() {
                        hook.recent_firings.clear(); // a resumed hook starts with an empty window
                    }
                })
            }
            Event::HookRemoved(event) => {
                self.hooks.remove(event.hook());
                rows.insert(RowKey::Hook(*event.hook()), None);
            }
            Event::HookFired(event) => {
                let firing = event.firing().clone();
                self.counters.firing = firing.id.0;
                self.change_hook(firing.hook, rows, |hook| {
                    (hook.fired_count, hook.fired_unix_ms) =
                        (hook.fired_count + 1, Some(now.unix_ms));
                    hook.recent_firings
                        .retain(|at| *at + hook::FIRING_WINDOW_MS > now.fleet_ms);
                    hook.recent_firings.push(*event.at());
                    hook.forget_waiting(&firing.cause);
                });
                self.firings.insert(firing.id, firing.clone());
                rows.insert(RowKey::Firing(firing.id), Some(Row::Firing(firing)));
            }
            Event::HookSkipped(event) => self.change_hook(*event.hook(), rows, |hook| {
                hook.skipped_count += 1;
                hook.last_skip = Some((event.cause().clone(), event.why().clone()));
                hook.forget_waiting(event.cause());
            }),
            Event::HookQueued(event) => self.change_hook(*event.hook(), rows, |hook| {
                hook.waiting.push(event.waiting().clone())
            }),
            Event::HookEnded(event) => {
                if let Some(firing) = self.firings.remove(event.firing()) {
                    let firing = Firing {
                        ended: Some(event.ended().clone()),
                        ended_unix_ms: Some(now.unix_ms),
                        output: event.output().clone(),
                        sandbox_description: event.shut_in().clone(),
                        ..Firing::clone(&firing)
                    };
                    rows.insert(
                        RowKey::Firing(firing.id),
                        Some(Row::Firing(Arc::new(firing))),
                    );
                }
            }
            Event::MessageRead(event) => {
                self.cursors.insert(
                    (event.agent().clone(), event.channel().clone()),
                    *event.read(),
                );
                let cursor = ReadCursor {
                    agent: event.agent().clone(),
                    channel: event.channel().clone(),
                    read: *event.read(),
                };
                rows.insert(
                    RowKey::Cursor(cursor.agent.clone(), cursor.channel.clone()),
                    Some(Row::Cursor(cursor)),
                );
            }
        }
    }
}
