//! Applies each event to the board. Replaying the log through this code restores the board (D4).

use std::sync::Arc;

use crate::approval::Approval;
use crate::attempt::{self, Attempt, Phase, TurnEnd};
use crate::budget::Spend;
use crate::bus::Cursor;
use crate::claim::Claim;
use crate::conversation::{Conversation, Delivery};
use crate::event::{Event, Recorded};
use crate::fleet::Answer;
use crate::hook::{self, Firing, Hook};
use crate::ids::{AgentName, ApprovalId, AttemptId, CommitId, HookId, MissionId, Now, RunnerName, TaskId};
use crate::inbox::Item;
use crate::launch::{Entry, Launch};
use crate::lead::Lead;
use crate::mission::Mission;
use crate::project::Project;
use crate::provider::Parked;
use crate::runner::Runner;
use crate::session::{Said, Usage, Want};
use crate::task::{Status, Task};
use crate::team::Team;

use super::{Board, Due, Row, RowKey, Rows};

impl Board {
    /// Applies an event of the log, when the log is replayed (D4).
    pub fn fold(&mut self, recorded: &Recorded) {
        self.fold_into(recorded, &mut Rows::new());
    }

    /// Like [`Board::fold`], and collects the rows that change.
    pub fn fold_into(&mut self, recorded: &Recorded, rows: &mut Rows) {
        self.revision = recorded.revision - 1; // a restored store's log skips numbers once, so that no token repeats
        self.apply(&recorded.event, recorded.now, rows);
    }

    /// Applies an event that was just decided. An event is a fact, so applying it cannot fail.
    pub(super) fn apply(&mut self, event: &Event, now: Now, rows: &mut Rows) {
        self.revision += 1;
        self.at = now.at;
        match event {
            Event::FleetResumed(_) | Event::Unreadable(_) => {}
            Event::FleetLimited(it) => self.limits = *it.limits(),
            Event::RequestAnswered(it) => {
                let answer = Answer {
                    key: it.key().clone(),
                    command: *it.command(),
                    outcome: it.outcome().clone(),
                    revision: self.revision,
                    until_at: *it.until_at(),
                };
                self.put_answer(Arc::new(answer), rows);
            }
            Event::RequestForgotten(it) => {
                if let Some(old) = self.answers.remove(it.key()) {
                    self.due.remove(&(old.until_at, Due::Answer(old.key.clone())));
                    rows.insert(RowKey::Answer(it.key().clone()), None);
                }
            }
            Event::ProjectAdded(it) => self.put_project(it.project().clone(), rows),
            Event::ProjectChanged(it) => self.put_project(it.project().clone(), rows),
            Event::ProjectRemoved(it) => {
                self.projects.remove(it.project());
                rows.insert(RowKey::Project(it.project().clone()), None);
            }
            Event::RadarChanged(it) => {
                if let Some(project) = self.projects.get(it.project()) {
                    let project = Project { radar: it.radar().clone(), ..Project::clone(project) };
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
                    let claim = Claim { expires_at: *it.expires_at(), ..Claim::clone(claim) };
                    self.put_claim(Arc::new(claim), rows);
                }
            }
            Event::ClaimTransferred(it) => {
                if let Some(claim) = self.claims.get(it.claim()) {
                    let claim = Claim { owner: it.to().clone(), ..Claim::clone(claim) };
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
                self.change_mission(*it.mission(), rows, |mission| mission.held = it.held().clone());
            }
            Event::MissionSerialised(it) => self.change_mission(*it.mission(), rows, |mission| {
                mission.isolate = false;
                mission.serialised = Some(it.reason().clone());
            }),
            Event::MissionEnded(it) => {
                if let Some(mission) = self.take_mission(*it.mission()) {
                    let mission = Arc::new(Mission { result: it.end().clone(), ..Mission::clone(&mission) });
                    rows.insert(RowKey::Mission(mission.id), Some(Row::Mission(mission, false)));
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
                task.offer_until = None;
            }),
            Event::TaskOffered(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::Offered;
                task.assignee = Some(it.to().clone());
                task.offer_until = Some(*it.until_at());
            }),
            Event::TaskStarted(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::InProgress;
                task.attempt = Some(*it.attempt());
                task.agent = Some(it.agent().clone());
                task.offer_until = None;
                task.progress = String::new();
                // The attempt has the notes and the resume data now.
                (task.notes, task.resume, task.not_before) = (vec![], None, None);
            }),
            Event::TaskProgressed(it) => {
                self.change_task(*it.task(), now, rows, |task| task.progress = it.text().clone())
            }
            Event::TaskValidating(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.phase = Phase::Validating);
                self.change_task(*it.task(), now, rows, |task| {
                    task.status = Status::Validating;
                    task.output = it.output().clone();
                });
            }
            Event::TaskSubmitted(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::Landing;
                task.landing = Some(*it.landing());
                task.submission = Some(it.submission().clone());
                (task.reason, task.needs, task.fixup) = (None, None, None);
            }),
            Event::TaskReturned(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = *it.status();
                task.reason = Some(it.reason().clone());
                task.failures += u32::from(*it.counts());
                task.needs = None;
                task.landing = None;
                task.asleep = it.again().as_ref().is_some_and(|it| it.asleep);
                if let Some(again) = it.again() {
                    task.tries = if again.tried { task.tries + 1 } else { 0 };
                    task.not_before = again.not_before;
                    task.resume = again.resume.clone();
                    task.reviewed = again.reviewed.clone().or(task.reviewed.take());
                    if again.forget_notes {
                        task.notes.clear();
                    }
                    if let Some(fixup) = &again.fixup {
                        task.note_fixup(fixup);
                        task.fixups += 1;
                    }
                }
            }),
            Event::TaskDue(it) => self.change_task(*it.task(), now, rows, |task| {
                (task.not_before, task.asleep) = (None, false);
            }),
            Event::TaskNoted(it) => self.change_task(*it.task(), now, rows, |task| task.notes.push(it.text().clone())),
            Event::TaskWarned(it) => {
                self.change_task(*it.task(), now, rows, |task| task.warnings.push(it.text().clone()));
            }
            Event::TaskEscaped(it) => {
                self.change_task(*it.task(), now, rows, |task| task.escapes.push(it.escape().clone()));
            }
            Event::AttemptReported(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.result = Some(it.result().clone()));
            }
            Event::TaskInReview(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::InReview;
                task.submission = Some(it.submission().clone());
                task.reason = Some(it.reason().clone());
                task.fixup = None;
            }),
            Event::TaskNeedsHuman(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::NeedsHuman;
                task.reason = Some(it.reason().clone());
                task.needs = Some(*it.kind());
                task.landing = None;
                if let Some(fixup) = it.fixup() {
                    task.note_fixup(fixup);
                }
            }),
            Event::TaskCompleted(it) => {
                self.note_landed(*it.task(), it.landed().as_ref(), rows);
                let mission = self.tasks.get(it.task()).and_then(|it| self.missions.get(&it.mission?));
                let shared = it.landed().is_some() && mission.is_some_and(|it| it.wave_commits);
                self.change_task(*it.task(), now, rows, |task| {
                    task.shares_commit = shared;
                    task.status = Status::Completed;
                    task.landed = it.landed().clone();
                    (task.reason, task.needs) = (None, None);
                });
            }
            Event::TaskFailed(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::Failed;
                task.reason = Some(it.reason().clone());
                // The team decides what to do about a failed session of a member.
                task.unanswered = task.standing.is_none();
            }),
            Event::TaskCancelled(it) => self.change_task(*it.task(), now, rows, |task| {
                task.status = Status::Cancelled;
                task.reason = Some(it.reason().clone());
            }),
            Event::AttemptStarted(it) => {
                self.counters.attempt = it.attempt().id.0;
                self.put_attempt(it.attempt().clone(), rows);
                if it.attempt().supervised {
                    let one = Spend { attempts: 1, ..Spend::default() };
                    self.spend(it.attempt().id, crate::budget::day_of(now), &one, now, rows);
                }
            }
            Event::AttemptRenewed(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.expires_at = Some(*it.expires_at()))
            }
            Event::AttemptStopping(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.stopping = Some(*it.cause()));
                self.note_cause(*it.attempt(), *it.cause(), now, rows);
            }
            Event::AttemptEnded(it) => {
                // Approvals of an ended attempt are closed, except open questions that outlive it.
                for id in self.approvals_of(*it.attempt()) {
                    self.change_approval(id, rows, |approval| approval.closed = !(approval.kept && approval.is_open()));
                }
                self.give_words_back(*it.attempt(), *it.cause(), now, rows);
                let task = self.attempts.get(it.attempt()).map(|attempt| attempt.task);
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.ended =
                        Some(attempt::End { cause: *it.cause(), detail: it.detail().clone(), wall: now.wall });
                });
                if let Some(task) =
                    task.and_then(|id| self.tasks.get(&id)).filter(|task| task.attempt == Some(*it.attempt()))
                {
                    let cause = self.attempts.get(it.attempt()).and_then(|it| it.stopping).unwrap_or(*it.cause());
                    self.change_task(task.id, now, rows, |task| {
                        (task.attempt, task.last_cause) = (None, Some(cause));
                    });
                }
            }
            Event::AttemptSpoke(it) => {
                let (n, said) = (*it.n(), it.said().clone());
                self.change_attempt(*it.attempt(), rows, |attempt| hear(attempt, n, said));
            }
            Event::AttemptLaunched(it) => {
                // The time to open a session starts here, because making the workspace was Regatta's own work.
                let ready_by = now.at + self.limits.startup_ms;
                self.change_attempt(*it.attempt(), rows, |attempt| {
                    attempt.sandbox = it.sandbox().clone();
                    attempt.ready_by = attempt.talks.then_some(ready_by);
                });
            }
            Event::AttemptPorted(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.ports = it.ports().clone());
            }
            Event::AttemptExtended(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.until_at = Some(*it.until_at()));
            }
            Event::AttemptClocked(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.wall_at = *it.wall_at());
            }
            Event::AttemptNoted(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.output = it.output().clone());
            }
            Event::AttemptClosing(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.talk.closing = true);
            }
            Event::AttemptRotating(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| crate::rotate::apply(&mut attempt.talk));
            }
            Event::AttemptTold(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.talk.tells.push(it.text().clone()));
            }
            Event::AttemptHeld(it) => self.change_attempt(*it.attempt(), rows, |attempt| {
                attempt.talk.held = Some(it.reason().clone());
                attempt.talk.cancels += u32::from(attempt.talk.in_turn);
            }),
            Event::AttemptQuiet(it) => self.change_attempt(*it.attempt(), rows, |attempt| {
                attempt.quiet_wall = *it.since_wall();
                attempt.snoozed = attempt.snoozed.filter(|_| it.since_wall().is_some());
            }),
            Event::AttemptLetGo(it) => {
                self.change_attempt(*it.attempt(), rows, |attempt| attempt.talk.held = None);
            }
            Event::ApprovalAsked(it) => {
                self.counters.approval = it.approval().id.0;
                self.put_approval(it.approval().clone(), rows);
            }
            Event::ApprovalDecided(it) => self.change_approval(*it.approval(), rows, |approval| {
                approval.decision = Some(it.decision().clone());
            }),
            Event::ApprovalKept(it) => self.change_approval(*it.approval(), rows, |approval| {
                approval.kept = true;
                approval.assumed = it.assumed().clone().or(approval.assumed.take());
                // The assumed answer can be chosen like any other answer.
                if let (Want::Question { choices, schema: None, .. }, Some(assumed)) =
                    (&mut approval.ask.want, &approval.assumed)
                    && !choices.contains(assumed)
                {
                    choices.push(assumed.clone());
                }
            }),
            Event::ApprovalHeard(it) => {
                let attempt = self.approvals.get(it.approval()).map(|approval| approval.attempt);
                let is_over = attempt.is_none_or(|attempt| !self.attempts.contains_key(&attempt));
                self.change_approval(*it.approval(), rows, |approval| {
                    approval.heard = true;
                    approval.closed |= is_over;
                });
            }
            Event::ApprovalEscalated(it) => {
                self.change_approval(*it.approval(), rows, |approval| approval.escalated = true);
            }
            Event::ApprovalWithdrawn(it) => {
                self.change_approval(*it.approval(), rows, |approval| approval.closed = true);
            }
            Event::ItemSnoozed(it) => self.put_off(it.item(), *it.snooze(), now, rows),
            Event::ItemDismissed(it) => self.change_failed(*it.task(), rows, |task| {
                (task.unanswered, task.snoozed) = (false, None);
            }),
            Event::RuleAdded(it) => {
                let rule = Arc::new(it.rule().clone());
                self.counters.rule = self.counters.rule.max(rule.id.0);
                self.rules.insert(rule.id, rule.clone());
                rows.insert(RowKey::Rule(rule.id), Some(Row::Rule(rule)));
            }
            Event::RuleRemoved(it) => {
                self.rules.remove(it.rule());
                rows.insert(RowKey::Rule(*it.rule()), None);
            }
            Event::BudgetSet(it) => self.put_budget(Arc::new(it.budget().clone()), rows),
            Event::BudgetRemoved(it) => {
                self.take_budget(it.scope());
                rows.insert(RowKey::Budget(it.scope().clone()), None);
            }
            Event::BudgetWarned(it) => self.change_budget(it.scope(), rows, |budget| {
                budget.warned = Some((it.whose().clone(), *it.day()));
                budget.warned_wall = Some(now.wall);
            }),
            Event::BudgetSpent(it) => self.spend(*it.attempt(), *it.day(), it.spend(), now, rows),
            Event::ProviderParked(it) => {
                self.put_parked(Arc::new(it.parked().clone()), rows);
            }
            Event::ProviderFreed(it) => {
                let before = self.parked.get(it.name()).cloned();
                self.free_provider(it.name());
                let kept = before.zip(*it.remembered()).map(|(before, times)| {
                    Arc::new(Parked { until_at: None, over: true, times, snoozed: None, ..Parked::clone(&before) })
                });
                if let Some(kept) = &kept {
                    self.parked.insert(it.name().clone(), kept.clone());
                }
                rows.insert(RowKey::Parked(it.name().clone()), kept.map(Row::Parked));
            }
            Event::RunnerRegistered(it) => self.put_runner(Arc::new(it.runner().clone()), rows),
            Event::RunnerRenewed(it) => self.change_runner(it.runner(), rows, |runner| {
                (runner.expires_at, runner.seen_wall) = (Some(*it.expires_at()), now.wall);
            }),
            Event::RunnerChanged(it) => self.change_runner(it.runner(), rows, |runner| {
                runner.state = *it.state();
                runner.expires_at = runner.expires_at.filter(|_| runner.is_there());
            }),
            Event::RunnerRemoved(it) => {
                self.take_runner(it.runner());
                rows.insert(RowKey::Runner(it.runner().clone()), None);
            }
            Event::TeamCreated(it) => self.put_team(it.team().clone(), rows),
            Event::TeamChanged(it) => self.put_team(it.team().clone(), rows),
            Event::LaunchBegun(it) => {
                self.counters.launch = self.counters.launch.max(it.launch().id.0);
                self.put_launch(Launch::clone(it.launch()), now, rows);
            }
            Event::LaunchMoved(it) => {
                if let Some(launch) = self.launches.get(it.launch()) {
                    let mut launch = Launch::clone(launch);
                    let entry = Entry::clone(it.entry());
                    match launch.members.iter_mut().find(|known| known.name == entry.name) {
                        Some(known) => *known = entry,
                        None => {
                            if !launch.expected_members.contains(&entry.name) {
                                launch.expected_members.push(entry.name.clone());
                            }
                            launch.members.push(entry);
                            let roster = &launch.expected_members;
                            launch.members.sort_by_key(|entry| roster.iter().position(|name| *name == entry.name));
                        }
                    }
                    launch.reconciled_wall = launch.reconciled_wall.filter(|_| !it.entry().state.is_pending());
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LaunchChanged(it) => {
                if let Some(launch) = self.launches.get(it.launch()) {
                    let mut launch = Launch::clone(launch);
                    launch.stopping = it.stopping().clone();
                    launch.reconciled_wall = *it.reconciled_wall();
                    launch.superseded = *it.superseded();
                    launch.told = it.told().clone().or(launch.told);
                    self.put_launch(launch, now, rows);
                }
            }
            Event::LandingQueued(_)
            | Event::LandingBegun(_)
            | Event::LandingValidated(_)
            | Event::LandingReddened(_)
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
                rows.insert(RowKey::Message(it.message().id), Some(Row::Message(Arc::new(it.message().clone()))));
            }
            Event::MessageQueued(it) => {
                self.change_project(it.project(), rows, |project| project.intake.waiting.push(it.message().clone()));
            }
            Event::MessageHandled(it) => {
                self.change_project(it.project(), rows, |project| {
                    project.intake.handled = project.intake.handled.max(*it.message());
                    project.intake.waiting.retain(|waits| waits.id != *it.message());
                });
                let routes = |hook: &&Arc<Hook>| hook.is_router_of(it.project());
                if let Some(id) = self.hooks.values().find(routes).map(|hook| hook.id) {
                    self.change_hook(id, rows, |hook| {
                        (hook.fired, hook.fired_wall) = (hook.fired + 1, Some(now.wall));
                    });
                }
            }
            Event::ThreadChanged(it) => self.change_project(it.project(), rows, |project| {
                let threads = &mut project.intake.threads;
                threads.retain(|known| known.root != it.thread().root);
                threads.push(it.thread().clone());
                let over = threads.len().saturating_sub(crate::question::MOST_THREADS);
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
                    self.due.remove(&(at, Due::Delivery(it.delivery().clone())));
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
                    hook.recent.clear(); // a resumed hook starts with an empty window
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
                    (hook.fired, hook.fired_wall) = (hook.fired + 1, Some(now.wall));
                    hook.recent.retain(|at| *at + hook::SPAN_MS > now.at);
                    hook.recent.push(*it.at());
                    hook.forget_waiting(&firing.cause);
                });
                self.firings.insert(firing.id, firing.clone());
                rows.insert(RowKey::Firing(firing.id), Some(Row::Firing(firing)));
            }
            Event::HookSkipped(it) => self.change_hook(*it.hook(), rows, |hook| {
                hook.skipped += 1;
                hook.last_skip = Some((it.cause().clone(), it.why().clone()));
                hook.forget_waiting(it.cause());
            }),
            Event::HookQueued(it) => self.change_hook(*it.hook(), rows, |hook| hook.waiting.push(it.waiting().clone())),
            Event::FiringEnded(it) => {
                if let Some(firing) = self.firings.remove(it.firing()) {
                    let firing = Firing {
                        ended: Some(it.ended().clone()),
                        ended_wall: Some(now.wall),
                        output: it.output().clone(),
                        shut_in: it.shut_in().clone(),
                        ..Firing::clone(&firing)
                    };
                    rows.insert(RowKey::Firing(firing.id), Some(Row::Firing(Arc::new(firing))));
                }
            }
            Event::CursorMoved(it) => {
                self.cursors.insert((it.agent().clone(), it.channel().clone()), *it.read());
                let cursor = Cursor { agent: it.agent().clone(), channel: it.channel().clone(), read: *it.read() };
                rows.insert(RowKey::Cursor(cursor.agent.clone(), cursor.channel.clone()), Some(Row::Cursor(cursor)));
            }
        }
    }
}

/// Updates the attempt with an event that its program sent.
fn hear(attempt: &mut Attempt, n: u64, said: Said) {
    let talk = &mut attempt.talk;
    talk.heard = n;
    match said {
        Said::Started { session, model } => {
            talk.session = session.or(talk.session.take());
            talk.model = model.or(talk.model.take());
        }
        Said::TurnStarted { n } => {
            talk.turns = talk.turns.max(n + 1);
            (talk.in_turn, talk.last) = (true, None);
        }
        Said::Plan { entries } => talk.plan = entries,
        Said::Usage { session, usage } => match talk.sessions.iter_mut().find(|it| it.0 == session) {
            Some(known) => known.1 = known.1.most(&usage),
            None => talk.sessions.push((session, usage)),
        },
        Said::Context { used, size } => talk.context = Some((used, size)),
        Said::Limited { until_wall, detail } => talk.limited = Some((until_wall, detail)),
        Said::TurnEnded { stop, class, detail } => {
            (talk.in_turn, talk.last) = (false, Some(TurnEnd { stop, class, detail }));
        }
        Said::Asked(_)
        | Said::Withdrew { .. }
        | Said::Message { .. }
        | Said::Thought { .. }
        | Said::Tool(_)
        | Said::Notice { .. } => {}
    }
}

impl Board {
    /// Gives prompts that people sent and that the agent did not read to the next attempt.
    fn give_words_back(&mut self, id: AttemptId, cause: attempt::Cause, now: Now, rows: &mut Rows) {
        let Some(attempt) = self.attempts.get(&id).cloned() else { return };
        let talk = &attempt.talk;
        let same_session =
            self.tasks.get(&attempt.task).and_then(|it| it.resume.as_ref()).is_some_and(|it| it.session.is_some());
        // A cancelled task needs its prompts no more.
        if cause == attempt::Cause::Cancelled {
            return;
        }
        // An attempt that came to its regular end has read the notes that it began with.
        let heard = matches!(cause, attempt::Cause::Rested | attempt::Cause::Reported | attempt::Cause::Submitted);
        let mut words = if heard || (talk.turns > 0 && same_session) { vec![] } else { attempt.notes.clone() };
        let said = usize::try_from(talk.turns.saturating_sub(1)).unwrap_or(usize::MAX).min(talk.tells.len());
        words.extend(talk.tells[said..].iter().filter(|it| !crate::rotate::is_request(it)).cloned());
        if !words.is_empty() {
            self.change_task(attempt.task, now, rows, |task| {
                words.append(&mut task.notes);
                task.notes = words;
            });
        }
    }

    /// Records on a task how its last attempt ended.
    fn note_cause(&mut self, id: AttemptId, cause: attempt::Cause, now: Now, rows: &mut Rows) {
        let task = self.attempts.get(&id).and_then(|it| self.tasks.get(&it.task)).filter(|it| it.attempt == Some(id));
        if let Some(task) = task.map(|it| it.id) {
            self.change_task(task, now, rows, |task| task.last_cause = Some(cause));
        }
    }

    /// Records on a mission the last landing of its tasks.
    fn note_landed(&mut self, id: TaskId, commit: Option<&CommitId>, rows: &mut Rows) {
        let (Some(task), Some(commit)) = (self.tasks.get(&id).cloned(), commit) else { return };
        let Some(mission) = task.mission else { return };
        let changed = task.submission.as_ref().map_or(&[][..], |it| &it.changed);
        self.change_mission(mission, rows, |mission| {
            mission.landed.note(commit.clone(), task.step(), changed, mission.mode);
        });
    }

    fn change_mission(&mut self, id: MissionId, rows: &mut Rows, change: impl FnOnce(&mut Mission)) {
        if let Some(mission) = self.missions.get(&id) {
            let mut mission = Mission::clone(mission);
            change(&mut mission);
            self.put_mission(Arc::new(mission), rows);
        }
    }

    pub(super) fn put_mission(&mut self, mission: Arc<Mission>, rows: &mut Rows) {
        self.take_mission(mission.id);
        if let Some(at) = mission.lead.as_ref().and_then(|it| it.due_at()) {
            self.due.insert((at, Due::Mission(mission.id)));
        }
        self.missions.insert(mission.id, mission.clone());
        rows.insert(RowKey::Mission(mission.id), Some(Row::Mission(mission, true)));
    }

    fn take_mission(&mut self, id: MissionId) -> Option<Arc<Mission>> {
        let old = self.missions.remove(&id)?;
        if let Some(at) = old.lead.as_ref().and_then(|it| it.due_at()) {
            self.due.remove(&(at, Due::Mission(id)));
        }
        Some(old)
    }

    fn approvals_of(&self, attempt: AttemptId) -> Vec<ApprovalId> {
        self.approvals.values().filter(|it| it.attempt == attempt).map(|it| it.id).collect()
    }

    pub(super) fn change_approval(&mut self, id: ApprovalId, rows: &mut Rows, change: impl FnOnce(&mut Approval)) {
        if let Some(approval) = self.approvals.get(&id) {
            let mut approval = Approval::clone(approval);
            change(&mut approval);
            self.put_approval(Arc::new(approval), rows);
        }
    }

    pub(super) fn put_approval(&mut self, approval: Arc<Approval>, rows: &mut Rows) {
        if let Some(old) = self.approvals.get(&approval.id).cloned() {
            if let Some(at) = old.escalate_at {
                self.due.remove(&(at, Due::Approval(approval.id)));
            }
            if let Some(it) = old.snoozed {
                self.due.remove(&(it.until_at, Due::Snooze(Item::Approval(approval.id))));
            }
        }
        if let (Some(it), true) = (approval.snoozed, approval.is_open()) {
            self.due.insert((it.until_at, Due::Snooze(Item::Approval(approval.id))));
        }
        if let (Some(at), true, false) = (approval.escalate_at, approval.is_open(), approval.escalated) {
            self.due.insert((at, Due::Approval(approval.id)));
        }
        if approval.closed {
            self.approvals.remove(&approval.id);
        } else {
            self.approvals.insert(approval.id, approval.clone());
        }
        rows.insert(RowKey::Approval(approval.id), Some(Row::Approval(approval)));
    }

    pub(super) fn put_runner(&mut self, runner: Arc<Runner>, rows: &mut Rows) {
        self.take_runner(&runner.name);
        if let Some(at) = runner.expires_at {
            self.due.insert((at, Due::Runner(runner.name.clone())));
        }
        self.runners.insert(runner.name.clone(), runner.clone());
        rows.insert(RowKey::Runner(runner.name.clone()), Some(Row::Runner(runner)));
    }

    fn change_runner(&mut self, name: &RunnerName, rows: &mut Rows, change: impl FnOnce(&mut Runner)) {
        if let Some(runner) = self.runners.get(name) {
            let mut runner = Runner::clone(runner);
            change(&mut runner);
            self.put_runner(Arc::new(runner), rows);
        }
    }

    fn take_runner(&mut self, name: &RunnerName) {
        if let Some(at) = self.runners.remove(name).and_then(|it| it.expires_at) {
            self.due.remove(&(at, Due::Runner(name.clone())));
        }
    }

    pub(super) fn put_conversation(&mut self, conversation: Arc<Conversation>, rows: &mut Rows) {
        if let Some(at) = self.conversations.remove(&conversation.id).and_then(|it| it.idle_at) {
            self.due.remove(&(at, Due::Conversation(conversation.id)));
        }
        if !conversation.closed {
            if let Some(at) = conversation.idle_at {
                self.due.insert((at, Due::Conversation(conversation.id)));
            }
            self.conversations.insert(conversation.id, conversation.clone());
        }
        rows.insert(RowKey::Conversation(conversation.id), Some(Row::Conversation(conversation)));
    }

    pub(super) fn put_delivery(&mut self, delivery: &Delivery, rows: &mut Rows) {
        self.deliveries.insert(delivery.key.clone(), delivery.until_at);
        self.due.insert((delivery.until_at, Due::Delivery(delivery.key.clone())));
        rows.insert(RowKey::Delivery(delivery.key.clone()), Some(Row::Delivery(delivery.clone())));
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

    fn put_launch(&mut self, launch: Launch, now: Now, rows: &mut Rows) {
        let launch = Arc::new(Launch { revision: self.revision, updated_wall: now.wall, ..launch });
        if launch.superseded {
            self.launches.remove(&launch.id);
        } else {
            self.launches.insert(launch.id, launch.clone());
        }
        rows.insert(RowKey::Launch(launch.id), Some(Row::Launch(launch)));
    }

    /// Adds an attempt's usage to the attempt, its task, its mission and the day.
    fn spend(&mut self, id: AttemptId, day: u64, spend: &Spend, now: Now, rows: &mut Rows) {
        let Some(attempt) = self.attempts.get(&id).cloned() else { return };
        if spend.usage != Usage::default() {
            self.change_attempt(id, rows, |it| it.used = it.used.plus(&spend.usage));
        }
        self.change_task(attempt.task, now, rows, |it| it.spent = it.spent.plus(spend));
        if let Some(mission) = attempt.mission {
            self.change_mission(mission, rows, |mission| mission.spent = mission.spent.plus(spend));
        }
        for agent in [None, Some(attempt.agent.clone())] {
            self.spend_day(day, agent, spend, rows);
        }
    }

    fn spend_day(&mut self, day: u64, agent: Option<AgentName>, spend: &Spend, rows: &mut Rows) {
        let key = (day, agent);
        let sum = self.ledger.get(&key).copied().unwrap_or_default().plus(spend);
        self.ledger.insert(key.clone(), sum);
        let row = crate::budget::DaySpend { day, agent: key.1.clone(), spend: sum };
        rows.insert(RowKey::Day(day, key.1), Some(Row::Day(row)));
    }
}
