//! Puts rows of missions, approvals, runners, conversations, hooks, teams, launches and spending
//! into the board, and updates their timers.
//!
//! Each `put_*` method replaces a row. Each `change_*` method changes a copy of the row and puts
//! it. Each `remove_*` method removes a row and its timers.

use std::sync::Arc;

use crate::agent_protocol::Usage;
use crate::approval::Approval;
use crate::budget::Spend;
use crate::conversation::{Conversation, DeliveryRecord};
use crate::hook::Hook;
use crate::ids::{AgentName, ApprovalId, AttemptId, HookId, MissionId, Now, RunnerName};
use crate::inbox::InboxItem;
use crate::launch::TeamLaunch;
use crate::mission::Mission;
use crate::runner::Runner;
use crate::team::Team;

use super::{Board, Deadline, Row, RowKey, Rows};

impl Board {
    pub(super) fn change_mission(
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

    pub(super) fn remove_mission(&mut self, id: MissionId) -> Option<Arc<Mission>> {
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

    /// Returns the permission requests and questions that an attempt has asked.
    pub(super) fn approvals_of(&self, attempt: AttemptId) -> Vec<ApprovalId> {
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

    pub(super) fn change_runner(
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

    pub(super) fn remove_runner(&mut self, name: &RunnerName) {
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

    pub(super) fn put_hook(&mut self, hook: Arc<Hook>, rows: &mut Rows) {
        self.hooks.insert(hook.id, hook.clone());
        rows.insert(RowKey::Hook(hook.id), Some(Row::Hook(hook)));
    }

    pub(super) fn change_hook(
        &mut self,
        id: HookId,
        rows: &mut Rows,
        change: impl FnOnce(&mut Hook),
    ) {
        if let Some(hook) = self.hooks.get(&id) {
            let mut hook = Hook::clone(hook);
            change(&mut hook);
            self.put_hook(Arc::new(hook), rows);
        }
    }

    pub(super) fn put_team(&mut self, team: Arc<Team>, rows: &mut Rows) {
        self.teams.insert(team.name.clone(), team.clone());
        rows.insert(RowKey::Team(team.name.clone()), Some(Row::Team(team)));
    }

    pub(super) fn put_launch(&mut self, launch: TeamLaunch, now: Now, rows: &mut Rows) {
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

    /// Adds an attempt's spending to the totals of the attempt, its task, its mission, its agent's
    /// day and the day.
    pub(super) fn add_spend(
        &mut self,
        id: AttemptId,
        day: u64,
        spend: &Spend,
        now: Now,
        rows: &mut Rows,
    ) {
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

    /// Adds spending to the total of a day: of one agent, or of all agents if `agent` is `None`.
    pub(super) fn add_day_spend(
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
