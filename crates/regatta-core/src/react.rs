//! The consequences of each event. Read this file to learn what causes what.
//!
//! Consequences are decided in the same draft as their cause, so that no newcomer can get in
//! between two commits. For example, a claim that is released goes to the first waiter in the same
//! commit.

use crate::attempt::{self, WorkFindings, WorkVerdict};
use crate::board::{Board, Draft};
use crate::claim::{self, ClaimOwner};
use crate::effect::Effect;
use crate::event::Event;
use crate::ids::Now;
use crate::refusal::Refusal;
use crate::task::{Task, TaskStatus};
use crate::{
    approval, budget, bus, conversation, hook, landing, launch, lead, mission, policy, reconcile,
    router, thread_answers,
};

/// Decides the consequences of `event` and returns the effects that the shell must perform.
/// `before` is the board before the command, which still has the items that ended.
pub(crate) fn react(
    draft: &mut Draft,
    before: &Board,
    event: &Event,
    now: Now,
) -> Result<Vec<Effect>, Refusal> {
    let mut effects = Vec::new();
    if may_complete_wave(event) {
        landing::wave_commit::recheck_wave_commits(draft, now)?;
    }
    match event {
        Event::ClaimReleased(it) => {
            // A claim that one command granted and released was never visible, so nobody waited for
            // it.
            if let Some(ended) = before.claims.get(it.claim()).cloned() {
                claim::serve_waiters(draft, &ended.uris, now);
                if ended.uris.iter().any(claim::is_trunk) {
                    on_trunk_released(draft, now)?;
                }
                if let (ClaimOwner::Landing(id), Some(_), claim::ClaimEndCause::Expired) =
                    (&ended.owner, ended.ttl_ms, it.cause())
                {
                    landing::on_fence_expired(draft, *id, ended.token, now)?;
                }
                if matches!(ended.owner, ClaimOwner::Agent(_))
                    && ended.latest_end_fleet_ms.is_some()
                {
                    landing::on_lent_fence_expired(draft, ended.token, now)?;
                }
                for project in router::projects_freed(draft.board(), &ended.uris) {
                    router::handle_waiting(draft, &project, now)?;
                }
            }
        }
        Event::ClaimWaitEnded(it) => {
            if let Some(ended) = before.waits.get(it.wait()).cloned() {
                claim::serve_waiters(draft, &ended.uris, now);
                // A landing does not overtake a waiter for the trunk, so it may have been queued
                // behind this wait.
                if ended.uris.iter().any(claim::is_trunk) {
                    on_trunk_released(draft, now)?;
                }
                if *it.cause() == claim::ClaimWaitEnd::TimedOut {
                    landing::on_wait_timeout(draft, &ended, now)?;
                }
            }
        }
        Event::AttemptStarted(it) => {
            let attempt = it.attempt();
            if attempt.supervised {
                effects.push(Effect::RunAttempt {
                    attempt: attempt.id,
                });
            } else if !attempt.no_workspace {
                effects.push(Effect::PrepareWorkspace {
                    attempt: attempt.id,
                });
            }
        }
        Event::AttemptStopping(it) => effects.push(Effect::StopAttempt {
            attempt: *it.attempt(),
        }),
        Event::AttemptLaunched(it) => launch::on_session_event(draft, *it.attempt(), event, now),
        Event::AttemptSaid(it) => launch::on_session_event(draft, *it.attempt(), event, now),
        Event::ApprovalAsked(it) => {
            launch::on_session_event(draft, it.approval().attempt, event, now);
            lead::on_approval_asked(draft, it.approval().id);
            conversation::on_approval_asked(draft, it.approval().id, now);
        }
        Event::ApprovalKept(it) => {
            if let Some(attempt) = draft
                .board()
                .approvals
                .get(it.approval())
                .map(|asked| asked.attempt)
            {
                launch::on_session_event(draft, attempt, event, now);
            }
        }
        Event::ApprovalWithdrawn(it) => {
            if let Some(attempt) = before.approvals.get(it.approval()).map(|it| it.attempt) {
                launch::on_session_event(draft, attempt, event, now);
            }
            conversation::on_approval_decided(
                draft,
                *it.approval(),
                format!("no longer needed: {}", it.reason()),
                now,
            );
        }
        Event::LaunchBegun(it) => {
            let asks = it
                .launch()
                .members
                .iter()
                .any(|it| it.state == launch::MemberState::Queued && !it.prepared);
            effects.extend(asks.then_some(Effect::ResolveTeam {
                launch: it.launch().id,
            }));
        }
        Event::LaunchMember(it) => {
            // A lane that is tried again needs its program resolved again.
            if it.entry().state == launch::MemberState::Queued && !it.entry().prepared {
                effects.push(Effect::ResolveTeam {
                    launch: *it.launch(),
                });
            }
            launch::advance(draft, *it.launch(), now);
            launch::announce(draft, *it.launch(), now)?;
        }
        Event::LaunchChanged(it) => {
            launch::advance(draft, *it.launch(), now);
            launch::relaunch_if_requested(draft, *it.launch(), now)?;
            launch::announce(draft, *it.launch(), now)?;
        }
        Event::FleetResumed(_) => reconcile::reconcile_all(draft, now),
        Event::MessagePosted(it) => {
            lead::on_message_posted(draft, it.message());
            bus::deliver_to_members(draft, it.message());
            conversation::on_bus_message(draft, it.message(), now);
        }
        Event::AttemptEnded(it) => {
            if let Some(ended) = before.attempts.get(it.attempt()) {
                claim::serve_waiters(draft, &claim::held_by_attempt(ended), now);
            }
            // The end of a team member's session concerns only that member.
            if let Some(ended) = before.attempts.get(it.attempt()) {
                launch::on_session_ended(draft, ended, (*it.cause(), it.detail()), now)?;
            }
            let stopping = |it: &&std::sync::Arc<launch::TeamLaunch>| it.stopping.is_some();
            let stopping: Vec<_> = draft
                .board()
                .launches
                .values()
                .filter(stopping)
                .map(|it| it.id)
                .collect();
            for launch in stopping {
                launch::advance(draft, launch, now);
            }
            // An attempt that one command began and ended never had a workspace.
            if let Some(ended) = before.attempts.get(it.attempt()) {
                let goes_on = draft
                    .board()
                    .tasks
                    .get(&ended.task)
                    .and_then(|it| it.resume.as_ref());
                if !ended.no_workspace && goes_on.is_none_or(|it| it.workspace != ended.workspace())
                {
                    effects.push(Effect::RemoveWorkspace {
                        attempt: ended.workspace(),
                    });
                }
                if draft
                    .board()
                    .agents
                    .get(&ended.agent)
                    .is_some_and(|it| it.derived_from.is_some())
                {
                    lead::remove_idle_agents(draft);
                }
            }
        }
        Event::AttemptRotating(it) => effects.push(Effect::Nudge {
            attempt: *it.attempt(),
        }),
        Event::AttemptTold(it) => effects.push(Effect::Nudge {
            attempt: *it.attempt(),
        }),
        Event::AttemptHeld(it) => effects.push(Effect::Nudge {
            attempt: *it.attempt(),
        }),
        Event::AttemptLetGo(it) => effects.push(Effect::Nudge {
            attempt: *it.attempt(),
        }),
        Event::ApprovalDecided(it) => {
            let attempt = draft
                .board()
                .approvals
                .get(it.approval())
                .map(|it| it.attempt);
            effects.extend(attempt.map(|attempt| Effect::Nudge { attempt }));
            if let Some(attempt) = attempt {
                launch::on_session_event(draft, attempt, event, now);
            }
            let how = format!("{} by {}", it.decision().answer.phrase(), it.decision().by);
            conversation::on_approval_decided(draft, *it.approval(), how, now);
        }
        Event::TaskReturned(it) => {
            lead::unassign_orphaned_task(draft, *it.task(), now)?;
            conversation::on_task_returned(draft, *it.task(), now)?;
        }
        Event::TaskValidating(it) => match draft
            .board()
            .attempts
            .get(it.attempt())
            .filter(|it| it.no_workspace)
            .cloned()
        {
            None => effects.push(Effect::Validate {
                attempt: *it.attempt(),
            }),
            // An attempt without a workspace has only its report, so it is judged at once.
            Some(bare) => {
                attempt::apply_verdict(
                    draft,
                    (bare.id, bare.token),
                    WorkVerdict::NoWorkspace,
                    WorkFindings::default(),
                    now,
                )?;
            }
        },
        Event::LandingQueued(it) => landing::advance(draft, &it.landing().project.clone(), now)?,
        Event::LandingAsked(it) => {
            if let Some(project) = draft
                .board()
                .landings
                .get(it.landing())
                .map(|it| it.project.clone())
            {
                landing::advance(draft, &project, now)?;
            }
        }
        Event::QueueReleased(it) => landing::advance(draft, it.project(), now)?,
        Event::LandingBegun(it) => effects.push(Effect::TryLanding {
            landing: *it.landing(),
        }),
        Event::LandingMoving(it) => effects.push(Effect::MoveTrunk {
            landing: *it.landing(),
            fence: *it.fence(),
        }),
        Event::LandingLanded(it) => {
            on_landing_over(draft, before, *it.task(), now);
            effects.extend(effects_after_landing(draft.board(), before, it));
            advance_queue_of(draft, before, *it.landing(), now)?;
        }
        Event::LandingEnded(it) => {
            on_landing_over(draft, before, *it.task(), now);
            advance_queue_of(draft, before, *it.landing(), now)?;
            if let Some(landing) = before
                .landings
                .get(it.landing())
                .filter(|_| *it.fault() == Some(true))
            {
                conversation::on_landing_failed(draft, landing, (it.reason(), *it.retry()), now);
            }
        }
        Event::TaskCompleted(it) => {
            effects.extend(on_task_ended(draft, before, *it.task(), now));
            let what = if it.landed().is_some() {
                "has landed"
            } else {
                "is done"
            };
            notify_lead(draft, before, *it.task(), what);
            if let Some(task) = before.tasks.get(it.task()).cloned() {
                conversation::on_task_settled(draft, &task, it.landed().as_ref(), now)?;
            }
        }
        Event::TaskFailed(it) => {
            effects.extend(on_task_ended(draft, before, *it.task(), now));
            notify_lead(
                draft,
                before,
                *it.task(),
                &format!("failed: {}", it.reason()),
            );
            if let Some(task) = before.tasks.get(it.task()).cloned() {
                on_task_lost(draft, &task, it.reason(), now)?;
            }
        }
        Event::TaskCancelled(it) => {
            effects.extend(on_task_ended(draft, before, *it.task(), now));
            notify_lead(
                draft,
                before,
                *it.task(),
                &format!("was cancelled: {}", it.reason()),
            );
            if let Some(task) = before.tasks.get(it.task()).cloned() {
                lead::on_task_lost(draft, &task, it.reason(), now)?;
                conversation::on_task_settled(draft, &task, None, now)?;
                landing::remote_sync::on_sync_task_dropped(draft, &task);
                thread_answers::skip_turn(draft, &task)?;
            }
        }
        Event::TaskNeedsHuman(it) => {
            notify_lead(
                draft,
                before,
                *it.task(),
                &format!("needs a person: {}", it.reason()),
            );
            if let Some(task) = draft
                .board()
                .tasks
                .get(it.task())
                .filter(|it| it.status == TaskStatus::NeedsHuman)
                .cloned()
            {
                on_task_lost(draft, &task, it.reason(), now)?;
            }
        }
        Event::TaskInReview(it) => notify_lead(
            draft,
            before,
            *it.task(),
            &format!("is in review: {}", it.reason()),
        ),
        Event::ProjectChanged(it) => {
            lead::start_queued_missions(draft, &it.project().name.clone(), now)?
        }
        Event::MissionEnded(it) => {
            if let Some(mission) = before.missions.get(it.mission()) {
                lead::on_mission_ended(draft, mission, it.end().as_ref(), now)?;
            }
            policy::end_scope(draft, &policy::RuleScope::Mission(*it.mission()));
            budget::end_scope(draft, budget::BudgetScope::Mission(*it.mission()));
        }
        Event::ConversationExpired(it) => {
            effects.extend(
                it.workspace()
                    .map(|attempt| Effect::RemoveWorkspace { attempt }),
            );
        }
        Event::ConversationPushing(it) => {
            effects.push(Effect::PushBranch {
                conversation: *it.conversation(),
                commit: it.commit().clone(),
            });
        }
        Event::HookFired(it) => effects.push(Effect::RunHook {
            firing: it.firing().id,
        }),
        // Events without consequences. A completed task unblocks its dependants by its status
        // alone.
        Event::TeamCreated(_)
        | Event::TeamChanged(_)
        | Event::FleetLimited(_)
        | Event::EventUnreadable(_)
        | Event::RequestAnswered(_)
        | Event::RequestForgotten(_)
        | Event::ProjectAdded(_)
        | Event::ProjectRemoved(_)
        | Event::ProjectRadar(_)
        | Event::AgentRegistered(_)
        | Event::AgentRemoved(_)
        | Event::ClaimGranted(_)
        | Event::ClaimRenewed(_)
        | Event::ClaimTransferred(_)
        | Event::ClaimQueued(_)
        | Event::MissionStarted(_)
        | Event::MissionLed(_)
        | Event::MessageQueued(_)
        | Event::MessageHandled(_)
        | Event::MessageThread(_)
        | Event::MissionChanged(_)
        | Event::MissionWeighed(_)
        | Event::MissionSerialised(_)
        | Event::TaskAdded(_)
        | Event::TaskEdited(_)
        | Event::TaskAssigned(_)
        | Event::TaskOffered(_)
        | Event::TaskStarted(_)
        | Event::TaskProgressed(_)
        | Event::TaskSubmitted(_)
        | Event::TaskDue(_)
        | Event::TaskWarned(_)
        | Event::TaskEscaped(_)
        | Event::AttemptReported(_)
        | Event::TaskNoted(_)
        | Event::AttemptRenewed(_)
        | Event::AttemptClocked(_)
        | Event::AttemptClosing(_)
        | Event::AttemptNoted(_)
        | Event::AttemptPorted(_)
        | Event::AttemptExtended(_)
        | Event::ApprovalEscalated(_)
        | Event::ApprovalHeard(_)
        | Event::InboxSnoozed(_)
        | Event::InboxDismissed(_)
        | Event::AttemptQuiet(_)
        | Event::PolicyAdded(_)
        | Event::PolicyRemoved(_)
        | Event::BudgetSet(_)
        | Event::BudgetRemoved(_)
        | Event::BudgetSpent(_)
        | Event::BudgetWarned(_)
        | Event::ProviderParked(_)
        | Event::ProviderFreed(_)
        | Event::RunnerRegistered(_)
        | Event::RunnerRenewed(_)
        | Event::RunnerChanged(_)
        | Event::RunnerRemoved(_)
        | Event::LandingValidated(_)
        | Event::LandingRed(_)
        | Event::LandingSuspected(_)
        | Event::LandingSquashed(_)
        | Event::LandingDeferred(_)
        | Event::LandingReturned(_)
        | Event::LandingApproved(_)
        | Event::LandingHeld(_)
        | Event::QueueOvertaken(_)
        | Event::QueueHeld(_)
        | Event::QueueUnpushed(_)
        | Event::QueuePushed(_)
        | Event::TrunkCompared(_)
        | Event::TrunkAccepted(_)
        | Event::MessageRead(_)
        | Event::HookAdded(_)
        | Event::HookChanged(_)
        | Event::HookRemoved(_)
        | Event::HookSkipped(_)
        | Event::HookQueued(_)
        | Event::ConversationChanged(_)
        | Event::DeliveryTaken(_)
        | Event::DeliveryForgotten(_)
        | Event::HookEnded(_) => {}
    }
    // Hooks come after the waiters, because a claim that went to the next waiter was never free.
    hook::on_event(draft, before, event, now);
    Ok(effects)
}

/// Returns whether an event may have completed a wave commit. The queue itself notices new
/// landings.
fn may_complete_wave(event: &Event) -> bool {
    matches!(
        event,
        Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::TaskCancelled(_)
            | Event::TaskReturned(_)
            | Event::TaskEdited(_)
            | Event::AttemptEnded(_)
            | Event::MissionChanged(_)
            | Event::MissionWeighed(_)
    )
}

/// Advances the queues with validated landings, because somebody released a trunk.
fn on_trunk_released(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    let ready: std::collections::BTreeSet<_> = draft
        .board()
        .landings
        .values()
        .filter(|it| matches!(it.state, landing::LandingState::Validated { .. }))
        .map(|it| it.project.clone())
        .collect();
    for project in ready {
        landing::advance(draft, &project, now)?;
    }
    Ok(())
}

/// Returns the effects after a landing: commands, a release and a push, as the project's settings
/// say.
fn effects_after_landing(
    board: &Board,
    before: &Board,
    it: &landing::LandingLanded,
) -> Vec<Effect> {
    let landed = before.landings.get(it.landing());
    let Some(project) = landed.and_then(|it| board.projects.get(&it.project)) else {
        return vec![];
    };
    // Commits from a remote did not land here, so no command or release follows.
    let joined = landed.is_some_and(|it| it.submission.merges_remote.is_some());
    let (name, settings) = (project.name.clone(), &project.settings.landing);
    let mut effects = Vec::new();
    if !joined && (!settings.after.is_empty() || settings.release.is_some()) {
        let (task, commit) = (*it.task(), it.commit().clone());
        effects.push(Effect::AfterLanding {
            project: name.clone(),
            task,
            commit,
        });
    }
    if settings.push.is_some() {
        effects.push(Effect::PushTrunk {
            project: name,
            commit: it.commit().clone(),
        });
    }
    effects
}

/// Serves the waiters for a task's claims, because its landing is over.
fn on_landing_over(draft: &mut Draft, before: &Board, task: crate::ids::TaskId, now: Now) {
    let found = before
        .tasks
        .get(&task)
        .or_else(|| draft.board().tasks.get(&task))
        .cloned();
    if let Some(task) = found {
        claim::serve_waiters(draft, &claim::uris_of_task(&task), now);
    }
}

/// Advances the queue of a landing that has ended.
fn advance_queue_of(
    draft: &mut Draft,
    before: &Board,
    id: crate::ids::LandingId,
    now: Now,
) -> Result<(), Refusal> {
    before
        .landings
        .get(&id)
        .map_or(Ok(()), |ended| landing::advance(draft, &ended.project, now))
}

/// Ends the policies, approvals and budgets of an ended task. Returns the effect that removes the
/// workspace of its unfinished work.
fn on_task_ended(
    draft: &mut Draft,
    before: &Board,
    id: crate::ids::TaskId,
    now: Now,
) -> Option<Effect> {
    policy::end_scope(draft, &policy::RuleScope::Task(id));
    approval::on_task_ended(draft, id, "its task is over");
    budget::end_scope(draft, budget::BudgetScope::Task(id));
    end_mission_of(draft, before, id, now);
    let left = before.tasks.get(&id)?.resume.as_ref()?.workspace;
    let used = draft
        .board()
        .attempts
        .values()
        .any(|it| it.workspace() == left);
    (!used).then_some(Effect::RemoveWorkspace { attempt: left })
}

/// Notifies the lead of a task's mission.
fn notify_lead(draft: &mut Draft, before: &Board, id: crate::ids::TaskId, what: &str) {
    if let Some(task) = before.tasks.get(&id).cloned() {
        lead::notify_lead(draft, &task, what);
    }
}

/// Notifies those who wait for a task's report or answer that it will not come.
fn on_task_lost(draft: &mut Draft, task: &Task, reason: &str, now: Now) -> Result<(), Refusal> {
    thread_answers::on_task_lost(draft, task, reason, now)?;
    conversation::on_task_lost(draft, task, reason, now)?;
    lead::on_task_lost(draft, task, reason, now)
}

/// Ends the mission of a task, if it has no open task left.
fn end_mission_of(draft: &mut Draft, before: &Board, id: crate::ids::TaskId, now: Now) {
    if let Some(mission) = before.tasks.get(&id).and_then(|it| it.mission) {
        mission::end_if_done(draft, mission, now);
    }
}
