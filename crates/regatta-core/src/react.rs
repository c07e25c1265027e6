//! Adds the consequences of each event. Read this file to learn which event has which consequences.
//!
//! The consequences of an event are stored in the same transaction as the event, so that no other
//! request can come in between. For example, a released claim is granted to the first waiter in the
//! same transaction.
//!
//! This module only calls the modules that handle the events. The rules are in those modules.

use std::collections::BTreeSet;

use crate::attempt::{self, WorkFindings, WorkVerdict};
use crate::board::{Board, Draft};
use crate::claim::{self, ClaimOwner};
use crate::effect::Effect;
use crate::event::Event;
use crate::ids::{LandingId, Now, TaskId};
use crate::refusal::Refusal;
use crate::task::{Task, TaskStatus};
use crate::{
    approval, budget, bus, conversation, hook, landing, launch, lead, message_router, mission,
    policy, thread_answers,
};

/// Decides the consequences of `event` and returns the effects (work such as starting a process)
/// that the engine must perform. `before` is the board (the state of all live work) before the
/// command; claims, attempts and tasks that the command ended are still in it.
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
        Event::ClaimReleased(claim_released) => {
            // A claim that is not in `before` (the state before the command) was granted and
            // released by the same command, so nobody can wait for it.
            if let Some(ended) = before.claims.get(claim_released.claim()).cloned() {
                claim::serve_waiters(draft, &ended.uris, now);
                if ended.uris.iter().any(claim::is_trunk) {
                    on_trunk_released(draft, now)?;
                }
                if let (ClaimOwner::Landing(id), Some(_), claim::ClaimEndCause::Expired) =
                    (&ended.owner, ended.ttl_ms, claim_released.cause())
                {
                    landing::on_fence_expired(draft, *id, ended.token, now)?;
                }
                if matches!(ended.owner, ClaimOwner::Agent(_))
                    && ended.latest_end_fleet_ms.is_some()
                {
                    landing::on_lent_fence_expired(draft, ended.token, now)?;
                }
                for project in message_router::projects_freed(draft.board(), &ended.uris) {
                    message_router::handle_waiting(draft, &project, now)?;
                }
            }
        }
        Event::ClaimWaitEnded(claim_wait_ended) => {
            if let Some(ended) = before.waits.get(claim_wait_ended.wait()).cloned() {
                claim::serve_waiters(draft, &ended.uris, now);
                // Finished work may have waited for the claim on the trunk behind the request that
                // ended. Let the landing queues continue, because this work may now be able to
                // land.
                if ended.uris.iter().any(claim::is_trunk) {
                    on_trunk_released(draft, now)?;
                }
                if *claim_wait_ended.cause() == claim::ClaimWaitEnd::TimedOut {
                    landing::on_wait_timeout(draft, &ended, now)?;
                }
            }
        }
        Event::AttemptStarted(attempt_started) => {
            let attempt = attempt_started.attempt();
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
        Event::AttemptStopping(attempt_stopping) => effects.push(Effect::StopAttempt {
            attempt: *attempt_stopping.attempt(),
        }),
        Event::AttemptLaunched(attempt_launched) => {
            launch::on_session_event(draft, *attempt_launched.attempt(), event, now)
        }
        Event::AttemptSaid(attempt_said) => {
            launch::on_session_event(draft, *attempt_said.attempt(), event, now)
        }
        Event::ApprovalAsked(approval_asked) => {
            launch::on_session_event(draft, approval_asked.approval().attempt, event, now);
            lead::on_approval_asked(draft, approval_asked.approval().id);
            conversation::on_approval_asked(draft, approval_asked.approval().id, now);
        }
        Event::ApprovalKept(approval_kept) => {
            if let Some(attempt) = draft
                .board()
                .approvals
                .get(approval_kept.approval())
                .map(|approval| approval.attempt)
            {
                launch::on_session_event(draft, attempt, event, now);
            }
        }
        Event::ApprovalWithdrawn(approval_withdrawn) => {
            if let Some(attempt) = before
                .approvals
                .get(approval_withdrawn.approval())
                .map(|approval| approval.attempt)
            {
                launch::on_session_event(draft, attempt, event, now);
            }
            conversation::on_approval_decided(
                draft,
                *approval_withdrawn.approval(),
                format!("no longer needed: {}", approval_withdrawn.reason()),
                now,
            );
        }
        Event::LaunchBegun(launch_begun) => {
            let has_unresolved_member = launch_begun
                .launch()
                .members
                .iter()
                .any(|entry| entry.state == launch::MemberState::Queued && !entry.prepared);
            if has_unresolved_member {
                effects.push(Effect::ResolveTeam {
                    launch: launch_begun.launch().id,
                });
            }
        }
        Event::LaunchMember(launch_member) => {
            // When a member is retried, its program must be checked again before it is started.
            if launch_member.entry().state == launch::MemberState::Queued
                && !launch_member.entry().prepared
            {
                effects.push(Effect::ResolveTeam {
                    launch: *launch_member.launch(),
                });
            }
            launch::advance(draft, *launch_member.launch(), now);
            launch::announce(draft, *launch_member.launch(), now)?;
        }
        Event::LaunchChanged(launch_changed) => {
            launch::advance(draft, *launch_changed.launch(), now);
            launch::relaunch_if_requested(draft, *launch_changed.launch(), now)?;
            launch::announce(draft, *launch_changed.launch(), now)?;
        }
        Event::FleetResumed(_) => launch::recovery::reconcile_all(draft, now),
        Event::MessagePosted(message_posted) => {
            lead::on_message_posted(draft, message_posted.message());
            bus::deliver_to_members(draft, message_posted.message());
            conversation::on_bus_message(draft, message_posted.message(), now);
        }
        Event::AttemptEnded(attempt_ended) => {
            if let Some(ended) = before.attempts.get(attempt_ended.attempt()) {
                claim::serve_waiters(draft, &claim::held_by_attempt(ended), now);
            }
            // If the attempt was the session of a team member, update that member in its launch.
            if let Some(ended) = before.attempts.get(attempt_ended.attempt()) {
                launch::on_session_ended(
                    draft,
                    ended,
                    *attempt_ended.cause(),
                    attempt_ended.detail(),
                    now,
                )?;
            }
            let stopping: Vec<_> = draft
                .board()
                .launches
                .values()
                .filter(|launch| launch.stopping.is_some())
                .map(|launch| launch.id)
                .collect();
            for launch in stopping {
                launch::advance(draft, launch, now);
            }
            // An attempt that is not in `before` (the state before the command) was begun and ended
            // by the same command, so it has no workspace to remove.
            if let Some(ended) = before.attempts.get(attempt_ended.attempt()) {
                let resume = draft
                    .board()
                    .tasks
                    .get(&ended.task)
                    .and_then(|task| task.resume.as_ref());
                if !ended.no_workspace
                    && resume.is_none_or(|resume| resume.workspace != ended.workspace())
                {
                    effects.push(Effect::RemoveWorkspace {
                        attempt: ended.workspace(),
                    });
                }
                if draft
                    .board()
                    .agents
                    .get(&ended.agent)
                    .is_some_and(|agent| agent.derived_from.is_some())
                {
                    lead::remove_idle_agents(draft);
                }
            }
        }
        Event::AttemptRotating(attempt_rotating) => effects.push(Effect::Nudge {
            attempt: *attempt_rotating.attempt(),
        }),
        Event::AttemptTold(attempt_told) => effects.push(Effect::Nudge {
            attempt: *attempt_told.attempt(),
        }),
        Event::AttemptHeld(attempt_held) => effects.push(Effect::Nudge {
            attempt: *attempt_held.attempt(),
        }),
        Event::AttemptLetGo(attempt_let_go) => effects.push(Effect::Nudge {
            attempt: *attempt_let_go.attempt(),
        }),
        Event::ApprovalDecided(approval_decided) => {
            let attempt = draft
                .board()
                .approvals
                .get(approval_decided.approval())
                .map(|approval| approval.attempt);
            effects.extend(attempt.map(|attempt| Effect::Nudge { attempt }));
            if let Some(attempt) = attempt {
                launch::on_session_event(draft, attempt, event, now);
            }
            let how = format!(
                "{} by {}",
                approval_decided.decision().answer.phrase(),
                approval_decided.decision().by
            );
            conversation::on_approval_decided(draft, *approval_decided.approval(), how, now);
        }
        Event::TaskReturned(task_returned) => {
            lead::unassign_orphaned_task(draft, *task_returned.task(), now)?;
            conversation::on_task_returned(draft, *task_returned.task(), now)?;
        }
        Event::TaskValidating(task_validating) => match draft
            .board()
            .attempts
            .get(task_validating.attempt())
            .filter(|attempt| attempt.no_workspace)
            .cloned()
        {
            None => effects.push(Effect::Validate {
                attempt: *task_validating.attempt(),
            }),
            // An attempt without a workspace has only its report and no files to check, so its
            // result is decided at once.
            Some(bare) => {
                attempt::apply_verdict(
                    draft,
                    bare.id,
                    bare.token,
                    WorkVerdict::NoWorkspace,
                    WorkFindings::default(),
                    now,
                )?;
            }
        },
        Event::LandingQueued(landing_queued) => {
            landing::advance(draft, &landing_queued.landing().project.clone(), now)?
        }
        Event::LandingAsked(landing_asked) => {
            if let Some(project) = draft
                .board()
                .landings
                .get(landing_asked.landing())
                .map(|landing| landing.project.clone())
            {
                landing::advance(draft, &project, now)?;
            }
        }
        Event::QueueReleased(queue_released) => {
            landing::advance(draft, queue_released.project(), now)?
        }
        Event::LandingBegun(landing_begun) => effects.push(Effect::TryLanding {
            landing: *landing_begun.landing(),
        }),
        Event::LandingMoving(landing_moving) => effects.push(Effect::MoveTrunk {
            landing: *landing_moving.landing(),
            fence: *landing_moving.fence(),
        }),
        Event::LandingLanded(landing_landed) => {
            on_landing_over(draft, before, *landing_landed.task(), now);
            effects.extend(effects_after_landing(draft.board(), before, landing_landed));
            advance_queue_of(draft, before, *landing_landed.landing(), now)?;
        }
        Event::LandingEnded(landing_ended) => {
            on_landing_over(draft, before, *landing_ended.task(), now);
            advance_queue_of(draft, before, *landing_ended.landing(), now)?;
            if let Some(landing) = before
                .landings
                .get(landing_ended.landing())
                .filter(|_| *landing_ended.fault() == Some(true))
            {
                conversation::on_landing_failed(
                    draft,
                    landing,
                    landing_ended.reason(),
                    *landing_ended.retry(),
                    now,
                );
            }
        }
        Event::TaskCompleted(task_completed) => {
            effects.extend(on_task_ended(draft, before, *task_completed.task(), now));
            let what = if task_completed.landed().is_some() {
                "has landed"
            } else {
                "is done"
            };
            notify_lead(draft, before, *task_completed.task(), what);
            if let Some(task) = before.tasks.get(task_completed.task()).cloned() {
                conversation::on_task_settled(draft, &task, task_completed.landed().as_ref(), now)?;
            }
        }
        Event::TaskFailed(task_failed) => {
            effects.extend(on_task_ended(draft, before, *task_failed.task(), now));
            notify_lead(
                draft,
                before,
                *task_failed.task(),
                &format!("failed: {}", task_failed.reason()),
            );
            if let Some(task) = before.tasks.get(task_failed.task()).cloned() {
                on_task_lost(draft, &task, task_failed.reason(), now)?;
            }
        }
        Event::TaskCancelled(task_cancelled) => {
            effects.extend(on_task_ended(draft, before, *task_cancelled.task(), now));
            notify_lead(
                draft,
                before,
                *task_cancelled.task(),
                &format!("was cancelled: {}", task_cancelled.reason()),
            );
            if let Some(task) = before.tasks.get(task_cancelled.task()).cloned() {
                lead::on_task_lost(draft, &task, task_cancelled.reason(), now)?;
                conversation::on_task_settled(draft, &task, None, now)?;
                landing::remote_sync::on_sync_task_dropped(draft, &task);
                thread_answers::skip_turn(draft, &task)?;
            }
        }
        Event::TaskNeedsHuman(task_needs_human) => {
            notify_lead(
                draft,
                before,
                *task_needs_human.task(),
                &format!("needs a person: {}", task_needs_human.reason()),
            );
            if let Some(task) = draft
                .board()
                .tasks
                .get(task_needs_human.task())
                .filter(|task| task.status == TaskStatus::NeedsHuman)
                .cloned()
            {
                on_task_lost(draft, &task, task_needs_human.reason(), now)?;
            }
        }
        Event::TaskInReview(task_in_review) => notify_lead(
            draft,
            before,
            *task_in_review.task(),
            &format!("is in review: {}", task_in_review.reason()),
        ),
        Event::ProjectChanged(project_changed) => {
            lead::start_queued_missions(draft, &project_changed.project().name.clone(), now)?
        }
        Event::MissionEnded(mission_ended) => {
            if let Some(mission) = before.missions.get(mission_ended.mission()) {
                lead::on_mission_ended(draft, mission, mission_ended.end().as_ref(), now)?;
            }
            policy::end_scope(draft, &policy::RuleScope::Mission(*mission_ended.mission()));
            budget::end_scope(
                draft,
                budget::BudgetScope::Mission(*mission_ended.mission()),
            );
        }
        Event::ConversationExpired(conversation_expired) => {
            effects.extend(
                conversation_expired
                    .workspace()
                    .map(|attempt| Effect::RemoveWorkspace { attempt }),
            );
        }
        Event::ConversationPushing(conversation_pushing) => {
            effects.push(Effect::PushBranch {
                conversation: *conversation_pushing.conversation(),
                commit: conversation_pushing.commit().clone(),
            });
        }
        Event::HookFired(hook_fired) => effects.push(Effect::RunHook {
            firing: hook_fired.firing().id,
        }),
        // These events have no consequences here.
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
    // Hooks are checked after the waiters for claims, because a claim that was granted to the next
    // waiter was never free.
    hook::on_event(draft, before, event, now);
    Ok(effects)
}

/// Returns whether this event may be the last event for which a wave (tasks whose work lands as one
/// commit) has waited. Events of the landing queue do not count, because the queue advances after
/// these events anyway.
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

/// Advances all landing queues with work that passed its checks, because a claim on a trunk has
/// ended.
fn on_trunk_released(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    let ready: BTreeSet<_> = draft
        .board()
        .landings
        .values()
        .filter(|landing| matches!(landing.state, landing::LandingState::Validated { .. }))
        .map(|landing| landing.project.clone())
        .collect();
    for project in ready {
        landing::advance(draft, &project, now)?;
    }
    Ok(())
}

/// Returns the effects (work for the engine) that must follow after work has landed. Depending on
/// the project's settings, these are commands, the release command, and a push of the trunk.
fn effects_after_landing(
    board: &Board,
    before: &Board,
    landing_landed: &landing::LandingLanded,
) -> Vec<Effect> {
    let landed = before.landings.get(landing_landed.landing());
    let Some(project) = landed.and_then(|landing| board.projects.get(&landing.project)) else {
        return vec![];
    };
    // A landing that only brought in a remote's commits runs no commands and no release, because
    // that work did not originate here.
    let merges_remote =
        landed.is_some_and(|landing| landing::merged_remote(before, landing).is_some());
    let (name, settings) = (project.name.clone(), &project.settings.landing);
    let mut effects = Vec::new();
    if !merges_remote && (!settings.after.is_empty() || settings.release.is_some()) {
        let (task, commit) = (*landing_landed.task(), landing_landed.commit().clone());
        effects.push(Effect::AfterLanding {
            project: name.clone(),
            task,
            commit,
        });
    }
    if settings.push.is_some() {
        effects.push(Effect::PushTrunk {
            project: name,
            commit: landing_landed.commit().clone(),
        });
    }
    effects
}

/// Grants the claims that a task held to requests that have waited for these claims. Called because
/// the task's work has landed or left the queue.
fn on_landing_over(draft: &mut Draft, before: &Board, task: TaskId, now: Now) {
    let found = before
        .tasks
        .get(&task)
        .or_else(|| draft.board().tasks.get(&task))
        .cloned();
    if let Some(task) = found {
        claim::serve_waiters(draft, &claim::uris_of_task(&task), now);
    }
}

/// Advances the landing queue from which landing `id` was removed, so that the finished work behind
/// it continues.
fn advance_queue_of(
    draft: &mut Draft,
    before: &Board,
    id: LandingId,
    now: Now,
) -> Result<(), Refusal> {
    let Some(ended) = before.landings.get(&id) else {
        return Ok(());
    };
    landing::advance(draft, &ended.project, now)
}

/// Removes the permission rules, open requests and budget of a task that has ended, and ends its
/// mission if that was the mission's last task. Returns the effect (work for the engine) that
/// removes the task's kept workspace, if the task has a kept workspace.
fn on_task_ended(draft: &mut Draft, before: &Board, id: TaskId, now: Now) -> Option<Effect> {
    policy::end_scope(draft, &policy::RuleScope::Task(id));
    approval::on_task_ended(draft, id, "its task is over");
    budget::end_scope(draft, budget::BudgetScope::Task(id));
    end_mission_of(draft, before, id, now);
    let workspace = before.tasks.get(&id)?.resume.as_ref()?.workspace;
    let is_used = draft
        .board()
        .attempts
        .values()
        .any(|attempt| attempt.workspace() == workspace);
    if is_used {
        return None;
    }
    Some(Effect::RemoveWorkspace { attempt: workspace })
}

/// Tells the lead of a task's mission that the task has ended or changed.
fn notify_lead(draft: &mut Draft, before: &Board, id: TaskId, what: &str) {
    if let Some(task) = before.tasks.get(&id).cloned() {
        lead::notify_lead(draft, &task, what);
    }
}

/// Notifies the threads, conversations and mission that wait for a task's report or answer, because
/// the task will give none.
fn on_task_lost(draft: &mut Draft, task: &Task, reason: &str, now: Now) -> Result<(), Refusal> {
    thread_answers::on_task_lost(draft, task, reason, now)?;
    conversation::on_task_lost(draft, task, reason, now)?;
    lead::on_task_lost(draft, task, reason, now)
}

/// Ends the mission of a task, if the mission has no unfinished task left.
fn end_mission_of(draft: &mut Draft, before: &Board, id: TaskId, now: Now) {
    if let Some(mission) = before.tasks.get(&id).and_then(|task| task.mission) {
        mission::end_if_done(draft, mission, now);
    }
}
