//! Restores a board from the rows of the store.

use std::sync::Arc;

use crate::ids::TaskId;
use crate::task::{Task, TaskStatus};

use super::{Board, Row, Rows};

/// Builds a board from one stored row after another, so that the store need not hold all rows in
/// memory at once.
#[derive(Debug, Default)]
pub struct BoardLoader {
    board: Board,
    ignored: Rows,
}

impl BoardLoader {
    /// Adds one row. Rows of ended tasks, attempts and other ended objects are skipped.
    pub fn put(&mut self, row: Row) {
        let (board, ignored) = (&mut self.board, &mut self.ignored);
        match row {
            Row::Meta(meta) => {
                board.revision = meta.revision;
                board.fleet_ms = meta.fleet_ms;
                board.counters = meta.counters;
                board.limits = meta.limits;
            }
            Row::Project(project) => _ = board.projects.insert(project.name.clone(), project),
            Row::Agent(agent) => _ = board.agents.insert(agent.name.clone(), agent),
            Row::Mission(mission, true) => board.put_mission(mission, ignored),
            Row::Task(task) if task.status.is_terminal() => {
                board.put_failed(&task);
                self.put_ended(task.id, task.status);
            }
            Row::Task(task) => _ = board.tasks.insert(task.id, task),
            Row::Attempt(attempt) if attempt.end.is_none() => board.put_attempt(attempt, ignored),
            Row::Claim(claim) => board.put_claim(claim, ignored),
            Row::Wait(wait) => board.put_wait(wait, ignored),
            Row::Landing(landing) if landing.end.is_none() => board.put_landing(landing, ignored),
            Row::Cursor(cursor) => {
                _ = board
                    .cursors
                    .insert((cursor.agent, cursor.channel), cursor.read)
            }
            Row::Answer(answer) => board.put_answer(answer, ignored),
            Row::Approval(approval) if !approval.closed => board.put_approval(approval, ignored),
            Row::Rule(rule) => _ = board.rules.insert(rule.id, rule),
            Row::Budget(budget) => board.put_budget(budget, ignored),
            Row::Day(day) => _ = board.ledger.insert((day.day, day.agent), day.spend),
            Row::Runner(runner) => board.put_runner(runner, ignored),
            Row::Hook(hook) => _ = board.hooks.insert(hook.id, hook),
            Row::Firing(firing) if firing.ended.is_none() => {
                _ = board.firings.insert(firing.id, firing)
            }
            Row::Team(team) => _ = board.teams.insert(team.name.clone(), team),
            Row::Conversation(conversation) if !conversation.closed => {
                board.put_conversation(conversation, ignored)
            }
            Row::Delivery(delivery) => board.put_delivery(&delivery, ignored),
            Row::Launch(launch) if !launch.superseded => {
                _ = board.launches.insert(launch.id, launch)
            }
            Row::Parked(outage) => board.put_parked(outage, ignored),
            Row::Mission(..)
            | Row::Attempt(_)
            | Row::Landing(_)
            | Row::Message(_)
            | Row::Approval(_)
            | Row::Firing(_)
            | Row::Conversation(_)
            | Row::Launch(_) => {}
        }
        self.ignored.clear();
    }

    /// Adds an open task. Also frees the memory that is left over from reading the row, because
    /// there may be a hundred thousand tasks.
    pub fn put_task(&mut self, mut task: Task) {
        task.shrink_to_fit();
        if let Some((name, _)) = self.board.projects.get_key_value(&task.project) {
            task.project = name.clone();
        }
        if let Some((name, _)) = task
            .assignee
            .as_ref()
            .and_then(|agent| self.board.agents.get_key_value(agent))
        {
            task.assignee = Some(name.clone());
        }
        self.put(Row::Task(Arc::new(task)));
    }

    /// Records the final status of an ended task. The board needs no other data of such a task.
    pub fn put_ended(&mut self, id: TaskId, status: TaskStatus) {
        if status != TaskStatus::Completed {
            self.board.ended_statuses.insert(id, status);
        }
    }

    /// Returns the finished board. Tasks are indexed only now, because whether a task is ready
    /// depends on other tasks.
    pub fn finish(self) -> Board {
        let mut board = self.board;
        for task in board.tasks.clone().values() {
            board.index_task(task);
        }
        board
    }
}
