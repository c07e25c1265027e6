//! Changes to things that the inbox shows: snoozed items, failed tasks, budgets, and agents or
//! bridges that cannot work. Each change also updates the stored rows and the timers.

use std::sync::Arc;

use crate::bridge_health::Bridge;
use crate::budget::{Budget, BudgetScope};
use crate::ids::{AgentName, Now, TaskId};
use crate::inbox::{InboxItem, Snooze};
use crate::provider_outage::ProviderOutage;
use crate::task::{Task, TaskStatus};

use super::{Board, Deadline, Row, RowKey, Rows};

impl Board {
    /// Hides an inbox item until a time, or shows it again if `snooze` is `None`.
    pub(super) fn snooze_item(
        &mut self,
        item: &InboxItem,
        snooze: Option<Snooze>,
        now: Now,
        rows: &mut Rows,
    ) {
        match item {
            InboxItem::Approval(id) => {
                self.change_approval(*id, rows, |approval| approval.snoozed = snooze)
            }
            InboxItem::Task(id) if self.failed.contains_key(id) => {
                self.change_failed(*id, rows, |task| task.snoozed = snooze);
            }
            InboxItem::Task(id) => {
                // A snooze must not count as a change of the task, because the inbox shows how long
                // the task has been waiting since its last change.
                let since = self
                    .tasks
                    .get(id)
                    .map_or(now.unix_ms, |task| task.updated_unix_ms);
                let unchanged = Now {
                    unix_ms: since,
                    ..now
                };
                self.change_task(*id, unchanged, rows, |task| task.snoozed = snooze);
            }
            InboxItem::Attempt(id) => {
                self.change_attempt(*id, rows, |attempt| attempt.snoozed = snooze)
            }
            InboxItem::Budget(scope) => {
                self.change_budget(scope, rows, |budget| budget.snoozed = snooze)
            }
            InboxItem::Agent(name) => self.snooze_parked(&format!("agent:{name}"), snooze, rows),
            InboxItem::Bridge(bridge) => self.snooze_parked(&bridge.parked_name(), snooze, rows),
            InboxItem::Request(_) => {} // permission requests of programs cannot be snoozed
        }
    }

    fn snooze_parked(&mut self, name: &str, snooze: Option<Snooze>, rows: &mut Rows) {
        if let Some(parked) = self.parked.get(name) {
            let parked = ProviderOutage {
                snoozed: snooze,
                ..ProviderOutage::clone(parked)
            };
            self.put_parked(Arc::new(parked), rows);
        }
    }

    pub(super) fn index_snooze(
        &mut self,
        snooze: Option<Snooze>,
        item: impl FnOnce() -> InboxItem,
    ) {
        if let Some(snooze) = snooze {
            self.timers
                .insert((snooze.deadline_fleet_ms, Deadline::Snooze(item())));
        }
    }

    pub(super) fn unindex_snooze(
        &mut self,
        snooze: Option<Snooze>,
        item: impl FnOnce() -> InboxItem,
    ) {
        if let Some(snooze) = snooze {
            self.timers
                .remove(&(snooze.deadline_fleet_ms, Deadline::Snooze(item())));
        }
    }

    /// Adds a task to the failed tasks if it has failed and nobody has retried or dismissed it yet,
    /// and otherwise removes the task from the failed tasks.
    pub(super) fn put_failed(&mut self, task: &Arc<Task>) {
        if let Some(old) = self.failed.remove(&task.id) {
            self.unindex_snooze(old.snoozed, || InboxItem::Task(old.id));
        }
        if task.status == TaskStatus::Failed && task.awaits_decision {
            self.index_snooze(task.snoozed, || InboxItem::Task(task.id));
            self.failed.insert(task.id, task.clone());
        }
    }

    pub(super) fn change_failed(
        &mut self,
        id: TaskId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Task),
    ) {
        if let Some(task) = self.failed.get(&id) {
            let mut task = Task::clone(task);
            change(&mut task);
            let task = Arc::new(task);
            self.put_failed(&task);
            rows.insert(RowKey::Task(id), Some(Row::Task(task)));
        }
    }

    pub(super) fn put_budget(&mut self, budget: Arc<Budget>, rows: &mut Rows) {
        self.remove_budget(&budget.scope);
        self.index_snooze(budget.snoozed, || InboxItem::Budget(budget.scope.clone()));
        self.budgets.insert(budget.scope.clone(), budget.clone());
        rows.insert(
            RowKey::Budget(budget.scope.clone()),
            Some(Row::Budget(budget)),
        );
    }

    pub(super) fn remove_budget(&mut self, scope: &BudgetScope) {
        if let Some(old) = self.budgets.remove(scope) {
            self.unindex_snooze(old.snoozed, || InboxItem::Budget(scope.clone()));
        }
    }

    pub(super) fn change_budget(
        &mut self,
        scope: &BudgetScope,
        rows: &mut Rows,
        change: impl FnOnce(&mut Budget),
    ) {
        if let Some(budget) = self.budgets.get(scope) {
            let mut budget = Budget::clone(budget);
            change(&mut budget);
            self.put_budget(Arc::new(budget), rows);
        }
    }

    pub(super) fn put_parked(&mut self, parked: Arc<ProviderOutage>, rows: &mut Rows) {
        self.remove_parked(&parked.name);
        if let Some(at) = parked.deadline_fleet_ms {
            self.timers
                .insert((at, Deadline::Provider(parked.name.clone())));
        }
        if let Some(item) = item_of_parked(&parked.name) {
            self.index_snooze(parked.snoozed, || item);
        }
        self.parked.insert(parked.name.clone(), parked.clone());
        rows.insert(
            RowKey::Parked(parked.name.clone()),
            Some(Row::Parked(parked)),
        );
    }

    pub(super) fn remove_parked(&mut self, name: &str) {
        let Some(old) = self.parked.remove(name) else {
            return;
        };
        if let Some(at) = old.deadline_fleet_ms {
            self.timers
                .remove(&(at, Deadline::Provider(name.to_owned())));
        }
        if let Some(item) = item_of_parked(name) {
            self.unindex_snooze(old.snoozed, || item);
        }
    }
}

/// Returns the inbox item for a name in [`Board::parked`], or `None` if the name is neither an
/// agent's nor a bridge's.
fn item_of_parked(parked: &str) -> Option<InboxItem> {
    let agent = || {
        AgentName::new(parked.strip_prefix("agent:")?)
            .ok()
            .map(InboxItem::Agent)
    };
    agent().or_else(|| Bridge::from_parked_name(parked).map(InboxItem::Bridge))
}
