//! Puts rows into the board, and updates the board's derived indexes with each row.
//!
//! Each `put_*` method replaces one row: it removes the index entries of the old row, adds the
//! index entries of the new row, and records the changed row for the store. Each `change_*` method
//! changes a copy of the row and puts it. Not here: which row an event changes.
//! [`fold`](super::fold) decides that.

use std::sync::Arc;

use crate::agent::Agent;
use crate::attempt::{Attempt, AttemptPhase};
use crate::claim::{Claim, ClaimMode, ClaimWait};
use crate::idempotency::StoredAnswer;
use crate::ids::{AgentName, AttemptId, ClaimId, LandingId, Now, TaskId, WaitId};
use crate::inbox::InboxItem;
use crate::landing::Landing;
use crate::project::Project;
use crate::task::{Task, TaskStatus};
use crate::{manifest, mission, project_rules, schedule};

use super::{Board, Deadline, ReadyFor, Row, RowKey, Rows};

impl Board {
    /// Adds a task to the indexes of ready tasks, blockers, missions and timers.
    pub(super) fn index_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.insert((*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.tasks_by_mission
                .insert((mission, task.step(), task.id));
        }
        if let Some(list) = self.ready_list_of(task) {
            let is_shared = manifest::claim_mode(self, task) == ClaimMode::Shared;
            let uris = manifest::claims_of_task(self, task);
            self.ready_index.insert(&list, task, &uris, is_shared);
            self.ready_tasks.insert((list, task.priority, task.id));
        }
        if let Some(at) = task.offer_until_fleet_ms {
            self.timers.insert((at, Deadline::Offer(task.id)));
        }
        if let Some(at) = task.not_before_fleet_ms {
            self.timers.insert((at, Deadline::Task(task.id)));
        }
        if let Some(snooze) = task.snoozed {
            self.timers.insert((
                snooze.deadline_fleet_ms,
                Deadline::Snooze(InboxItem::Task(task.id)),
            ));
        }
    }

    /// Removes a task from the indexes that [`Board::index_task`] adds it to.
    pub(super) fn unindex_task(&mut self, task: &Task) {
        for blocker in &task.blocked_by {
            self.dependents.remove(&(*blocker, task.id));
        }
        if let Some(mission) = task.mission {
            self.tasks_by_mission
                .remove(&(mission, task.step(), task.id));
        }
        let list = self.ready_list(task);
        let entry = (list.clone(), task.priority, task.id);
        if self.ready_tasks.remove(&entry).is_some() {
            let uris = manifest::claims_of_task(self, task);
            self.ready_index.remove(&list, task, &uris);
        }
        if let Some(at) = task.offer_until_fleet_ms {
            self.timers.remove(&(at, Deadline::Offer(task.id)));
        }
        if let Some(at) = task.not_before_fleet_ms {
            self.timers.remove(&(at, Deadline::Task(task.id)));
        }
        if let Some(snooze) = task.snoozed {
            self.timers.remove(&(
                snooze.deadline_fleet_ms,
                Deadline::Snooze(InboxItem::Task(task.id)),
            ));
        }
    }

    /// Returns the ready list of a task if nothing in the task itself prevents its start; `None` if
    /// the task is not ready. Claims of others, free capacity and the limits of the task's mission
    /// are checked later, at the start.
    pub(super) fn ready_list_of(&self, task: &Task) -> Option<ReadyFor> {
        let is_ready = task.status.is_waiting()
            && task.session_of().is_none()
            && task.paused.is_none()
            && task.not_before_fleet_ms.is_none()
            && !task.resting
            && task.attempt.is_none()
            && task
                .blocked_by
                .iter()
                .all(|id| self.ended_status(*id) == Some(TaskStatus::Completed))
            && schedule::missing_contract_part(self, task).is_none()
            && project_rules::blocking_rule(self, task).is_none();
        if !is_ready {
            return None;
        }
        Some(self.ready_list(task))
    }

    /// Returns the list to which a task belongs when the task is ready, by its status, assignee and
    /// mission.
    pub(super) fn ready_list(&self, task: &Task) -> ReadyFor {
        let in_waves = |id| {
            self.missions
                .get(&id)
                .is_some_and(|mission| mission.mode == mission::StartMode::Waves)
        };
        match (&task.assignee, task.mission) {
            (Some(agent), _) if task.status == TaskStatus::Offered => {
                ReadyFor::Offered(agent.clone())
            }
            (Some(agent), _) => ReadyFor::Agent(agent.clone()),
            (None, Some(mission)) if in_waves(mission) => ReadyFor::Step(mission, task.step()),
            (None, Some(mission)) => ReadyFor::Mission(mission),
            (None, None) => ReadyFor::Pool(task.project.clone()),
        }
    }

    pub(super) fn put_task(&mut self, task: Arc<Task>, rows: &mut Rows) {
        if let Some(old) = self.tasks.get(&task.id).cloned() {
            self.unindex_task(&old);
        }
        if task.status.is_terminal() {
            self.tasks.remove(&task.id);
            if task.status != TaskStatus::Completed {
                self.ended_statuses.insert(task.id, task.status);
            }
            self.put_failed(&task);
            for dependent in self.dependents_of(task.id) {
                if let Some(dependent) = self.tasks.get(&dependent).cloned() {
                    self.unindex_task(&dependent);
                    self.index_task(&dependent);
                }
            }
        } else {
            self.tasks.insert(task.id, task.clone());
            self.index_task(&task);
        }
        rows.insert(RowKey::Task(task.id), Some(Row::Task(task)));
    }

    pub(super) fn put_attempt(&mut self, attempt: Arc<Attempt>, rows: &mut Rows) {
        if let Some(old) = self.attempts.remove(&attempt.id) {
            if let Some(at) = old.expires_fleet_ms {
                self.timers.remove(&(at, Deadline::Attempt(old.id)));
            }
            for at in [
                old.deadline_fleet_ms,
                old.session_deadline_fleet_ms,
                old.budget_check_fleet_ms,
            ]
            .into_iter()
            .flatten()
            {
                self.timers.remove(&(at, Deadline::AttemptTimer(old.id)));
            }
            self.unindex_snooze(old.snoozed, || InboxItem::Attempt(old.id));
            self.attempts_without_slot -= usize::from(old.takes_no_slot);
            if old.session_of.is_none() {
                let remaining = self.running_by_agent.get(&old.agent).copied().unwrap_or(1) - 1;
                if remaining == 0 {
                    self.running_by_agent.remove(&old.agent)
                } else {
                    self.running_by_agent.insert(old.agent.clone(), remaining)
                };
            }
        }
        if attempt.end.is_none() {
            self.attempts_without_slot += usize::from(attempt.takes_no_slot);
            // Do not count a team member's session, because it does not count towards its agent's
            // limit of tasks.
            if attempt.session_of.is_none() {
                let count = self
                    .running_by_agent
                    .get(&attempt.agent)
                    .copied()
                    .unwrap_or(0)
                    + 1;
                self.running_by_agent.insert(attempt.agent.clone(), count);
            }
            // An outside agent must renew its lease only while it works. After that Regatta checks
            // the work, so the lease must not expire.
            if let (Some(at), AttemptPhase::Working) = (attempt.expires_fleet_ms, attempt.phase) {
                self.timers.insert((at, Deadline::Attempt(attempt.id)));
            }
            if attempt.phase == AttemptPhase::Working && attempt.stopping.is_none() {
                let has_opened = attempt.session.session_id.is_some() || attempt.session.turns > 0;
                let session_deadline_fleet_ms =
                    attempt.session_deadline_fleet_ms.filter(|_| !has_opened);
                for at in [
                    attempt.deadline_fleet_ms,
                    session_deadline_fleet_ms,
                    attempt.budget_check_fleet_ms,
                ]
                .into_iter()
                .flatten()
                {
                    self.timers.insert((at, Deadline::AttemptTimer(attempt.id)));
                }
            }
            self.index_snooze(attempt.snoozed, || InboxItem::Attempt(attempt.id));
            self.attempts.insert(attempt.id, attempt.clone());
        }
        rows.insert(RowKey::Attempt(attempt.id), Some(Row::Attempt(attempt)));
    }

    pub(super) fn put_claim(&mut self, claim: Arc<Claim>, rows: &mut Rows) {
        let old = self.claims.insert(claim.id, claim.clone());
        // Renewing a claim changes only its deadline, so its patterns are indexed again only if
        // they changed.
        if old.as_ref().is_none_or(|old| old.uris != claim.uris) {
            if let Some(old) = &old {
                self.held_patterns.remove(claim.id.0, &old.uris);
            }
            self.held_patterns.insert(claim.id.0, &claim.uris);
        }
        if old.as_ref().is_none_or(|old| old.owner != claim.owner) {
            if let Some(old) = &old {
                self.claims_by_owner.remove(&(old.owner.clone(), claim.id));
            }
            self.claims_by_owner.insert((claim.owner.clone(), claim.id));
        }
        let old_expiry = old.and_then(|claim| claim.expires_fleet_ms);
        if old_expiry != claim.expires_fleet_ms {
            if let Some(at) = old_expiry {
                self.timers.remove(&(at, Deadline::Claim(claim.id)));
            }
            if let Some(at) = claim.expires_fleet_ms {
                self.timers.insert((at, Deadline::Claim(claim.id)));
            }
        }
        rows.insert(RowKey::Claim(claim.id), Some(Row::Claim(claim)));
    }

    pub(super) fn drop_claim(&mut self, id: ClaimId) {
        if let Some(old) = self.claims.remove(&id) {
            self.held_patterns.remove(id.0, &old.uris);
            self.claims_by_owner.remove(&(old.owner.clone(), id));
            if let Some(at) = old.expires_fleet_ms {
                self.timers.remove(&(at, Deadline::Claim(id)));
            }
        }
    }

    pub(super) fn put_wait(&mut self, wait: Arc<ClaimWait>, rows: &mut Rows) {
        self.awaited_patterns.insert(wait.id.0, &wait.uris);
        self.waits_by_owner.insert((wait.owner.clone(), wait.id));
        self.timers
            .insert((wait.deadline_fleet_ms, Deadline::Wait(wait.id)));
        self.waits.insert(wait.id, wait.clone());
        rows.insert(RowKey::Wait(wait.id), Some(Row::Wait(wait)));
    }

    pub(super) fn drop_wait(&mut self, id: WaitId, rows: &mut Rows) {
        if let Some(old) = self.waits.remove(&id) {
            self.awaited_patterns.remove(id.0, &old.uris);
            self.waits_by_owner.remove(&(old.owner.clone(), id));
            self.timers
                .remove(&(old.deadline_fleet_ms, Deadline::Wait(id)));
            rows.insert(RowKey::Wait(id), None);
        }
    }

    pub(super) fn put_landing(&mut self, landing: Arc<Landing>, rows: &mut Rows) {
        if let Some(old) = self.landings.remove(&landing.id) {
            self.landing_queue
                .remove(&(old.project.clone(), old.rank(), old.id));
            if let Some(at) = old.retry_fleet_ms {
                self.timers.remove(&(at, Deadline::Landing(old.id)));
            }
        }
        if landing.end.is_none() {
            self.landing_queue
                .insert((landing.project.clone(), landing.rank(), landing.id));
            if let Some(at) = landing.retry_fleet_ms {
                self.timers.insert((at, Deadline::Landing(landing.id)));
            }
            self.landings.insert(landing.id, landing.clone());
        }
        rows.insert(RowKey::Landing(landing.id), Some(Row::Landing(landing)));
    }

    pub(super) fn put_answer(&mut self, answer: Arc<StoredAnswer>, rows: &mut Rows) {
        self.timers.insert((
            answer.deadline_fleet_ms,
            Deadline::Answer(answer.key.clone()),
        ));
        self.answers.insert(answer.key.clone(), answer.clone());
        rows.insert(
            RowKey::Answer(answer.key.clone()),
            Some(Row::Answer(answer)),
        );
    }

    pub(super) fn put_project(&mut self, project: Arc<Project>, rows: &mut Rows) {
        // The project's settings determine which of its tasks are ready and which claims they need,
        // so all its tasks are indexed again.
        let tasks: Vec<_> = self
            .tasks
            .values()
            .filter(|task| task.project == project.name)
            .cloned()
            .collect();
        tasks.iter().for_each(|task| self.unindex_task(task));
        self.projects.insert(project.name.clone(), project.clone());
        tasks.iter().for_each(|task| self.index_task(task));
        rows.insert(
            RowKey::Project(project.name.clone()),
            Some(Row::Project(project)),
        );
    }

    /// Records the task at which an agent's last attempt failed, or that the agent has started other
    /// work since.
    pub(super) fn set_last_failed(
        &mut self,
        name: &AgentName,
        task: Option<TaskId>,
        rows: &mut Rows,
    ) {
        let known = self.agents.get(name);
        if let Some(agent) = known.filter(|agent| agent.last_failed != task) {
            let agent = Arc::new(Agent {
                last_failed: task,
                ..Agent::clone(agent)
            });
            rows.insert(RowKey::Agent(name.clone()), Some(Row::Agent(agent.clone())));
            self.agents.insert(name.clone(), agent);
        }
    }

    pub(super) fn change_task(
        &mut self,
        id: TaskId,
        now: Now,
        rows: &mut Rows,
        change: impl FnOnce(&mut Task),
    ) {
        if let Some(task) = self.tasks.get(&id) {
            let mut task = Task::clone(task);
            change(&mut task);
            task.updated_unix_ms = now.unix_ms;
            // End the snooze when the task's new status does not need a person, so that a later
            // inbox item of the task is not hidden.
            let can_be_snoozed = matches!(
                task.status,
                TaskStatus::NeedsHuman | TaskStatus::InReview | TaskStatus::Landing
            );
            task.snoozed = task.snoozed.filter(|_| can_be_snoozed);
            if task.status.is_terminal() {
                (task.attempt, task.landing, task.offer_until_fleet_ms) = (None, None, None);
                (task.not_before_fleet_ms, task.resume) = (None, None);
            }
            self.put_task(Arc::new(task), rows);
        }
    }

    pub(super) fn change_landing(
        &mut self,
        id: LandingId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Landing),
    ) {
        if let Some(landing) = self.landings.get(&id) {
            let mut landing = Landing::clone(landing);
            change(&mut landing);
            self.put_landing(Arc::new(landing), rows);
        }
    }

    pub(super) fn change_attempt(
        &mut self,
        id: AttemptId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Attempt),
    ) {
        if let Some(attempt) = self.attempts.get(&id) {
            let mut attempt = Attempt::clone(attempt);
            change(&mut attempt);
            self.put_attempt(Arc::new(attempt), rows);
        }
    }
}
