//! Changes of snoozed items, failed tasks, budgets and parked names, and of their rows.

use std::sync::Arc;

use crate::bridge::Bridge;
use crate::budget::{Budget, Scope};
use crate::ids::{AgentName, Now, TaskId};
use crate::inbox::{Item, Snooze};
use crate::provider::Parked;
use crate::task::{Status, Task};

use super::{Board, Due, Row, RowKey, Rows};

impl Board {
    /// Snoozes an item until a time, or ends its snooze.
    pub(super) fn put_off(&mut self, item: &Item, snooze: Option<Snooze>, now: Now, rows: &mut Rows) {
        match item {
            Item::Approval(id) => self.change_approval(*id, rows, |approval| approval.snoozed = snooze),
            Item::Task(id) if self.failed.contains_key(id) => {
                self.change_failed(*id, rows, |task| task.snoozed = snooze);
            }
            Item::Task(id) => {
                // Snoozing does not count as a change of the task, so the time since which it waits
                // stays.
                let since = self.tasks.get(id).map_or(now.wall, |it| it.updated_wall);
                self.change_task(*id, Now { wall: since, ..now }, rows, |task| task.snoozed = snooze);
            }
            Item::Attempt(id) => self.change_attempt(*id, rows, |attempt| attempt.snoozed = snooze),
            Item::Budget(scope) => self.change_budget(scope, rows, |budget| budget.snoozed = snooze),
            Item::Agent(name) => self.put_off_parked(&format!("agent:{name}"), snooze, rows),
            Item::Bridge(it) => self.put_off_parked(&it.lane(), snooze, rows),
            Item::Request(_) => {} // permission requests of programs cannot be snoozed
        }
    }

    fn put_off_parked(&mut self, name: &str, snooze: Option<Snooze>, rows: &mut Rows) {
        if let Some(parked) = self.parked.get(name) {
            let parked = Parked { snoozed: snooze, ..Parked::clone(parked) };
            self.put_parked(Arc::new(parked), rows);
        }
    }

    pub(super) fn index_snooze(&mut self, snooze: Option<Snooze>, item: impl FnOnce() -> Item) {
        if let Some(it) = snooze {
            self.due.insert((it.until_at, Due::Snooze(item())));
        }
    }

    pub(super) fn unindex_snooze(&mut self, snooze: Option<Snooze>, item: impl FnOnce() -> Item) {
        if let Some(it) = snooze {
            self.due.remove(&(it.until_at, Due::Snooze(item())));
        }
    }

    /// Keeps an ended task in `failed` while it is failed and unanswered, and removes it otherwise.
    pub(super) fn put_failed(&mut self, task: &Arc<Task>) {
        if let Some(old) = self.failed.remove(&task.id) {
            self.unindex_snooze(old.snoozed, || Item::Task(old.id));
        }
        if task.status == Status::Failed && task.unanswered {
            self.index_snooze(task.snoozed, || Item::Task(task.id));
            self.failed.insert(task.id, task.clone());
        }
    }

    pub(super) fn change_failed(&mut self, id: TaskId, rows: &mut Rows, change: impl FnOnce(&mut Task)) {
        if let Some(task) = self.failed.get(&id) {
            let mut task = Task::clone(task);
            change(&mut task);
            let task = Arc::new(task);
            self.put_failed(&task);
            rows.insert(RowKey::Task(id), Some(Row::Task(task)));
        }
    }

    pub(super) fn put_budget(&mut self, budget: Arc<Budget>, rows: &mut Rows) {
        self.take_budget(&budget.scope);
        self.index_snooze(budget.snoozed, || Item::Budget(budget.scope.clone()));
        self.budgets.insert(budget.scope.clone(), budget.clone());
        rows.insert(RowKey::Budget(budget.scope.clone()), Some(Row::Budget(budget)));
    }

    pub(super) fn take_budget(&mut self, scope: &Scope) {
        if let Some(old) = self.budgets.remove(scope) {
            self.unindex_snooze(old.snoozed, || Item::Budget(scope.clone()));
        }
    }

    pub(super) fn change_budget(&mut self, scope: &Scope, rows: &mut Rows, change: impl FnOnce(&mut Budget)) {
        if let Some(budget) = self.budgets.get(scope) {
            let mut budget = Budget::clone(budget);
            change(&mut budget);
            self.put_budget(Arc::new(budget), rows);
        }
    }

    pub(super) fn put_parked(&mut self, parked: Arc<Parked>, rows: &mut Rows) {
        self.free_provider(&parked.name);
        if let Some(at) = parked.until_at {
            self.due.insert((at, Due::Provider(parked.name.clone())));
        }
        if let Some(item) = item(&parked.name) {
            self.index_snooze(parked.snoozed, || item);
        }
        self.parked.insert(parked.name.clone(), parked.clone());
        rows.insert(RowKey::Parked(parked.name.clone()), Some(Row::Parked(parked)));
    }

    pub(super) fn free_provider(&mut self, name: &str) {
        let Some(old) = self.parked.remove(name) else { return };
        if let Some(at) = old.until_at {
            self.due.remove(&(at, Due::Provider(name.to_owned())));
        }
        if let Some(item) = item(name) {
            self.unindex_snooze(old.snoozed, || item);
        }
    }
}

/// Returns the inbox item of a parked name, if the name is that of an agent or a bridge.
fn item(parked: &str) -> Option<Item> {
    let agent = || AgentName::new(parked.strip_prefix("agent:")?).ok().map(Item::Agent);
    agent().or_else(|| Bridge::of_lane(parked).map(Item::Bridge))
}
