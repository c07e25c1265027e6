//! Computes the cost of agents per day, from usage in the event log. The results are kept in memory
//! and updated with each request.
//!
//! The first request reads the event log from the first revision of the requested day; later
//! requests read only newer events. Ended attempts and tasks no longer change, so they are read
//! once. Git is asked only once for the number of lines of a change. When a new day begins, the
//! days that nobody requested on the previous day are removed from memory. They are read again if
//! somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use regatta_api::cost_tables::{self, CapForecast, CostEntry, CostGrouping, CostSum, ProviderBand};
use regatta_api::view::{CostRow, CostTable, CostView, LandedLinesView, SpendResultsView};
use regatta_core::attempt::Attempt;
use regatta_core::board::Board;
use regatta_core::budget::{self, Spend};
use regatta_core::event::Event;
use regatta_core::ids::{AgentName, AttemptId, CommitId, MissionId, Now, ProjectName, TaskId};
use regatta_core::spend_ledger::{SpendLedger, SpendRate};
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::git::{CommitGit, CommitRange, ProjectRepo};
use regatta_engine::ports::store::{StoreError, StoreHistory, first_message_since};

use regatta_core::display::provider_or_runtime;

const DAY_MS: u64 = 24 * 3_600_000;
/// Maximum number of landed changes whose lines are counted. If there are more, only the latest
/// changes are counted.
pub(crate) const MAX_MEASURED_CHANGES: usize = 200;

/// The daemon's state, clock, store and git, from which [`CostIndex`] computes the costs.
pub(crate) struct CostInput<'a> {
    pub(crate) board: &'a Board,
    pub(crate) now: Now,
    pub(crate) history: &'a dyn StoreHistory,
    pub(crate) git: Arc<dyn CommitGit>,
    /// Maximum number of landed changes whose lines git counts for one request, because counting is
    /// slow.
    pub(crate) max_measured: usize,
}

/// The costs that were computed from the event log, kept in memory.
#[derive(Default)]
pub(crate) struct CostIndex {
    indexed: Mutex<IndexedCosts>,
}

#[derive(Default)]
struct IndexedCosts {
    /// The first day (in days since 1970) whose events were read; `None` before the first request.
    first_day: Option<u64>,
    /// The day (since 1970) of the last request. `max_days_back` is the largest number of past days
    /// that a request of that day asked for.
    today: u64,
    max_days_back: u64,
    /// Revision of the last event that was read from the event log.
    read_revision: u64,
    ledger: SpendLedger,
    /// The facts about attempts that have ended, which no longer change.
    ended_attempts: BTreeMap<AttemptId, CostDimensions>,
    /// Tasks that have ended, with the time of the end.
    ended_tasks: BTreeMap<TaskId, (u64, EndedTask)>,
    /// Number of changed lines of each landed commit.
    lines_by_commit: BTreeMap<CommitId, u64>,
}

/// The facts about an attempt by which costs are grouped, such as its agent and mission.
#[derive(Clone)]
struct CostDimensions {
    task: TaskId,
    mission: Option<MissionId>,
    agent: AgentName,
    model: Option<String>,
    is_lost: bool,
}

impl CostDimensions {
    fn from_attempt(attempt: &Attempt) -> CostDimensions {
        CostDimensions {
            task: attempt.task,
            mission: attempt.mission,
            agent: attempt.agent.clone(),
            model: attempt.session.model.clone(),
            is_lost: attempt
                .end
                .as_ref()
                .is_some_and(|attempt_end| attempt_end.cause.loses_work()),
        }
    }

    /// Returns the provider that is paid for the attempt's usage. If the agent was removed, returns
    /// the agent's name instead.
    fn provider(&self, board: &Board) -> String {
        board.agents.get(&self.agent).map_or_else(
            || self.agent.to_string(),
            |agent| provider_or_runtime(agent),
        )
    }
}

/// Returns the facts by which an attempt's cost is grouped, such as its agent and mission. Returns
/// `None` if the store does not have the attempt. Keeps the facts about an ended attempt in
/// `ended`.
fn dimensions_of(
    input: &CostInput<'_>,
    ended: &mut BTreeMap<AttemptId, CostDimensions>,
    attempt: AttemptId,
) -> Result<Option<CostDimensions>, StoreError> {
    if let Some(dimensions) = ended.get(&attempt) {
        return Ok(Some(dimensions.clone()));
    }
    if let Some(live) = input.board.attempts.get(&attempt) {
        return Ok(Some(CostDimensions::from_attempt(live)));
    }
    let Some(found) = input.history.attempt(attempt)? else {
        return Ok(None);
    };
    let dimensions = CostDimensions::from_attempt(&found);
    if found.end.is_some() {
        ended.insert(attempt, dimensions.clone());
    }
    Ok(Some(dimensions))
}

/// The facts about an ended task that the cost view needs.
#[derive(Clone)]
struct EndedTask {
    project: ProjectName,
    status: TaskStatus,
    spent: Spend,
    /// The trunk's commits before and after the task's work landed; `None` if the work did not
    /// land.
    landed: Option<(CommitId, CommitId)>,
}

impl EndedTask {
    fn is_dropped(&self) -> bool {
        self.status.is_unsuccessful()
    }

    fn from_task(task: &Task) -> EndedTask {
        let work = task.submission.as_ref().filter(|_| task.landed.is_some());
        EndedTask {
            project: task.project.clone(),
            status: task.status,
            spent: task.spent,
            landed: work.map(|submission| (submission.base.clone(), submission.commit.clone())),
        }
    }
}

/// Today's cost minute by minute, the daily budget, and the time at which the budget will be used
/// up.
pub(crate) struct TodaySpend {
    pub(crate) spent_by_minute: Vec<(u64, u64)>,
    pub(crate) bands: Vec<ProviderBand>,
    pub(crate) cap: Option<u64>,
    pub(crate) forecast: Option<CapForecast>,
}

impl CostIndex {
    /// Returns the costs of today and of the `days` days before, summed up by each of `groupings`.
    pub(crate) fn cost_view(
        &self,
        input: &CostInput<'_>,
        days: u32,
        groupings: &[CostGrouping],
    ) -> Result<CostView, StoreError> {
        let mut index = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let day = budget::day_of(input.now).saturating_sub(u64::from(days));
        index.read_events(input, day)?;
        let rate = index.ledger.spend_rate(input.now);
        let finished = index.ended_since(input, day)?;
        let mut entries = index.cost_entries(input, day)?;
        let dropped: BTreeSet<TaskId> = finished
            .iter()
            .filter(|(_, ended_task)| ended_task.is_dropped())
            .map(|(id, _)| *id)
            .collect();
        entries
            .iter_mut()
            .for_each(|cost| cost.is_lost |= dropped.contains(&cost.task));
        let table = |grouping: &CostGrouping| CostTable {
            by: *grouping,
            rows: cost_rows(input.board, input.history, &entries, *grouping, &rate),
        };
        let cap = day_ceiling(input.board).filter(|_| days == 0);
        let total = cost_tables::sum(entries.iter(), &rate);
        Ok(CostView {
            days,
            since_wall: day * DAY_MS,
            tables: groupings.iter().map(table).collect(),
            cap,
            forecast: ceiling_forecast(&total, cap, input.now),
            total,
            came: index.spend_results(input, &finished, &entries, &dropped),
        })
    }

    /// Returns the number of changed lines of each task whose work landed today, as far as the lines
    /// have been counted.
    pub(crate) fn changed_lines_today(
        &self,
        input: &CostInput<'_>,
    ) -> Result<BTreeMap<TaskId, u64>, StoreError> {
        let mut index = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let day = budget::day_of(input.now);
        index.read_events(input, day)?;
        let finished = index.ended_since(input, day)?;
        let _tokens_per_line = index.landed_lines(input, &finished);
        let lines = finished.iter().filter_map(|(id, ended_task)| {
            let (_, commit) = ended_task.landed.as_ref()?;
            Some((*id, *index.lines_by_commit.get(commit)?))
        });
        Ok(lines.collect())
    }

    /// Returns today's cost minute by minute, and when the daily budget will be used up at this
    /// rate.
    pub(crate) fn today_spend(&self, input: &CostInput<'_>) -> Result<TodaySpend, StoreError> {
        let mut index = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let (day, cap) = (budget::day_of(input.now), day_ceiling(input.board));
        index.read_events(input, day)?;
        let mut total = CostSum {
            spent: budget::spent_on(input.board, day, None),
            ..CostSum::default()
        };
        total.hourly_rate = index.ledger.spend_rate(input.now).total_hourly_rate();
        let (spent_by_minute, bands) = (
            cost_tables::cumulative_cost(&index.ledger, day),
            cost_tables::provider_bands(&index.ledger, day),
        );
        Ok(TodaySpend {
            spent_by_minute,
            bands,
            cap,
            forecast: ceiling_forecast(&total, cap, input.now),
        })
    }
}

fn day_ceiling(board: &Board) -> Option<u64> {
    board
        .budgets
        .get(&budget::BudgetScope::Day)
        .and_then(|budget| budget.ceiling.micro_usd)
}

fn ceiling_forecast(total: &CostSum, cap: Option<u64>, now: Now) -> Option<CapForecast> {
    cost_tables::forecast(total.spent.usage.micro_usd?, cap?, total.hourly_rate, now)
}

impl IndexedCosts {
    /// Reads the new events of the event log. If the events of `day` were not read before, reads
    /// the log again from the beginning of that day.
    fn read_events(&mut self, input: &CostInput<'_>, day: u64) -> Result<(), StoreError> {
        let (history, until) = (input.history, input.board.revision);
        self.note_requested_day(budget::day_of(input.now), day);
        if self.first_day.is_none_or(|first_day| day < first_day) {
            let date_of = |revision: u64| {
                let found = history.events(revision.saturating_sub(1), 1)?;
                Ok::<_, StoreError>(
                    found
                        .first()
                        .map(|event| (event.revision, event.now.unix_ms)),
                )
            };
            let first = first_message_since(day * DAY_MS, until, date_of)?;
            (self.first_day, self.read_revision, self.ledger) =
                (Some(day), first.saturating_sub(1), SpendLedger::default());
        }
        while self.read_revision < until {
            let page = history.events(self.read_revision, 500)?;
            if page.is_empty() {
                break;
            }
            for recorded in &page {
                let dimensions = match &recorded.event {
                    Event::BudgetSpent(budget_spent) => {
                        dimensions_of(input, &mut self.ended_attempts, *budget_spent.attempt())?
                    }
                    _ => None,
                };
                self.ledger.fold(
                    recorded,
                    dimensions.map(|dimensions| dimensions.provider(input.board)),
                );
                self.read_revision = recorded.revision;
            }
        }
        Ok(())
    }

    /// Records that a request asked for the costs since `day`. At the first request of a new day,
    /// removes the days that nobody requested on the previous day.
    fn note_requested_day(&mut self, today: u64, day: u64) {
        if today > self.today {
            let first_kept = today.saturating_sub(self.max_days_back);
            if self
                .first_day
                .is_some_and(|first_day| first_day < first_kept)
            {
                self.forget_before(first_kept);
            }
            (self.today, self.max_days_back) = (today, 0);
        }
        self.max_days_back = self.max_days_back.max(today.saturating_sub(day));
    }

    fn forget_before(&mut self, day: u64) {
        self.first_day = Some(day);
        self.ledger.forget_before(day);
        let (spends, ends) = (self.ledger.spend_since(day), self.ledger.ended_since(day));
        self.ended_attempts.retain(|id, _| spends.contains_key(id));
        let ends: BTreeSet<TaskId> = ends.into_iter().map(|(_, task)| task).collect();
        self.ended_tasks.retain(|id, _| ends.contains(id));
        let landed: BTreeSet<&CommitId> = self
            .ended_tasks
            .values()
            .filter_map(|(_, ended_task)| ended_task.landed.as_ref())
            .map(|(_, commit)| commit)
            .collect();
        self.lines_by_commit.retain(|id, _| landed.contains(id));
    }

    /// Returns the usage of each attempt since `day`, with all the facts by which it can be
    /// grouped.
    fn cost_entries(
        &mut self,
        input: &CostInput<'_>,
        day: u64,
    ) -> Result<Vec<CostEntry>, StoreError> {
        let mut entries = Vec::new();
        for (attempt, spend) in self.ledger.spend_since(day) {
            let Some(dimensions) = dimensions_of(input, &mut self.ended_attempts, attempt)? else {
                continue;
            };
            entries.push(CostEntry {
                attempt,
                task: dimensions.task,
                mission: dimensions.mission,
                provider: dimensions.provider(input.board),
                agent: dimensions.agent,
                model: dimensions.model,
                spend,
                is_lost: dimensions.is_lost,
            });
        }
        Ok(entries)
    }

    /// Returns the tasks that ended on or after `day` and were not started again.
    fn ended_since(
        &mut self,
        input: &CostInput<'_>,
        day: u64,
    ) -> Result<Vec<(TaskId, EndedTask)>, StoreError> {
        let mut found = Vec::new();
        for (wall, id) in self.ledger.ended_since(day) {
            if input
                .board
                .tasks
                .get(&id)
                .is_some_and(|task| !task.status.is_terminal())
            {
                continue;
            }
            if let Some((_, ended_task)) = self
                .ended_tasks
                .get(&id)
                .filter(|(ended_at, _)| *ended_at == wall)
            {
                found.push((id, ended_task.clone()));
                continue;
            }
            let Some(task) = input.history.task(id)? else {
                continue;
            };
            let ended_task = EndedTask::from_task(&task);
            self.ended_tasks.insert(id, (wall, ended_task.clone()));
            found.push((id, ended_task));
        }
        Ok(found)
    }

    fn spend_results(
        &mut self,
        input: &CostInput<'_>,
        finished: &[(TaskId, EndedTask)],
        entries: &[CostEntry],
        dropped: &BTreeSet<TaskId>,
    ) -> SpendResultsView {
        let mut landed = CostSum::default();
        for (_, ended_task) in finished
            .iter()
            .filter(|(_, ended_task)| ended_task.landed.is_some())
        {
            landed.tasks += 1;
            landed.spent = landed.spent.plus(&ended_task.spent);
            if ended_task.spent.usage.micro_usd.is_none() {
                landed.unpriced += ended_task.spent.usage.tokens();
            }
        }
        let each = landed
            .spent
            .usage
            .micro_usd
            .filter(|_| landed.unpriced == 0 && landed.tasks > 0);
        let lost: Vec<&CostEntry> = entries.iter().filter(|cost| cost.is_lost).collect();
        SpendResultsView {
            each: each.map(|each| each / landed.tasks as u64),
            landed,
            wasted: cost_tables::sum(lost.iter().copied(), &SpendRate::default()),
            failed_attempts: lost
                .iter()
                .filter(|cost| !dropped.contains(&cost.task))
                .count(),
            dropped_tasks: finished
                .iter()
                .filter(|(_, ended_task)| ended_task.is_dropped() && !ended_task.spent.is_nothing())
                .count(),
            lines: self.landed_lines(input, finished),
        }
    }

    /// Returns the number of changed lines in the latest landed work, and how many tokens one such
    /// line cost. Work whose lines could not be counted is left out.
    fn landed_lines(
        &mut self,
        input: &CostInput<'_>,
        finished: &[(TaskId, EndedTask)],
    ) -> Option<LandedLinesView> {
        let (mut tasks, mut lines, mut tokens, mut measured) = (0, 0, 0, 0);
        for (_, ended_task) in finished
            .iter()
            .rev()
            .filter(|(_, ended_task)| ended_task.landed.is_some())
            .take(MAX_MEASURED_CHANGES)
        {
            let Some((base, commit)) = &ended_task.landed else {
                continue;
            };
            let known = match self.lines_by_commit.get(commit) {
                Some(known) => Some(*known),
                None if measured >= input.max_measured => None,
                None => {
                    measured += 1;
                    let repo = input
                        .board
                        .projects
                        .get(&ended_task.project)
                        .map(|project| ProjectRepo::from_project(project));
                    match repo.map(|repo| input.git.diff(&repo, CommitRange { base, commit })) {
                        Some(Ok(patch)) => Some(
                            *self
                                .lines_by_commit
                                .entry(commit.clone())
                                .or_insert(regatta_api::patch::changed_lines(&patch)),
                        ),
                        // A change whose lines could not be counted is left out of this answer. The
                        // next request tries again.
                        Some(Err(error)) => {
                            tracing::debug!(%commit, "could not count the changed lines of commit {commit}; the next request for costs tries again: \
                                {error}");
                            None
                        }
                        None => None,
                    }
                }
            };
            if let Some(changed) = known.filter(|known| *known > 0) {
                (tasks, lines, tokens) = (
                    tasks + 1,
                    lines + changed,
                    tokens + ended_task.spent.usage.tokens(),
                );
            }
        }
        (lines > 0 && tokens > 0).then(|| LandedLinesView {
            tasks,
            lines,
            tokens_each: tokens.div_ceil(lines),
        })
    }
}

fn cost_rows(
    board: &Board,
    history: &dyn StoreHistory,
    entries: &[CostEntry],
    grouping: CostGrouping,
    rate: &SpendRate,
) -> Vec<CostRow> {
    let row = |cost_group: cost_tables::CostGroup| {
        let name = cost_group.name.as_deref();
        let description = match grouping {
            CostGrouping::Mission => name
                .and_then(|name| name.parse().ok())
                .and_then(|id| mission_title(board, history, id)),
            CostGrouping::Agent => name
                .and_then(|name| board.agents.get(&AgentName::new(name).ok()?))
                .map(|agent| provider_or_runtime(agent)),
            CostGrouping::Provider | CostGrouping::Model => None,
        };
        let unnamed = match grouping {
            CostGrouping::Mission => "no mission",
            CostGrouping::Model => "unknown model",
            CostGrouping::Provider | CostGrouping::Agent => "",
        };
        let name = cost_group.name.unwrap_or_else(|| unnamed.to_owned());
        CostRow {
            name,
            about: description.unwrap_or_default(),
            sum: cost_group.sum,
        }
    };
    cost_tables::group_costs(entries, grouping, rate)
        .into_iter()
        .map(row)
        .collect()
}

fn mission_title(board: &Board, history: &dyn StoreHistory, id: MissionId) -> Option<String> {
    let live = board.missions.get(&id).map(|mission| mission.title.clone());
    live.or_else(|| {
        history
            .mission(id)
            .ok()
            .flatten()
            .map(|(mission, _)| mission.title)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::command::Actor;
    use regatta_core::event::Recorded;
    use serde_json::json;

    /// Adds a day on which an attempt spent something and a task was cancelled.
    fn add_day(index: &mut IndexedCosts, day: u64) {
        let now = Now {
            fleet_ms: 0,
            unix_ms: day * DAY_MS,
        };
        let spent = json!({ "attempt": format!("A{day}"), "day": day, "spend": Spend::default() });
        let ended = json!({ "task": format!("T{day}"), "reason": "enough" });
        for (kind, data) in [("budget.spent", spent), ("task.cancelled", ended)] {
            let text = format!(r#"{{"kind":"{kind}","data":{data}}}"#);
            let event: Event = serde_json::from_str(&text).unwrap();
            index.ledger.fold(
                &Recorded {
                    revision: day,
                    now,
                    by: Actor::Regatta,
                    event,
                },
                None,
            );
        }
        let agent = AgentName::new("ada").unwrap();
        let dimensions = CostDimensions {
            task: TaskId(day),
            mission: None,
            agent,
            model: None,
            is_lost: false,
        };
        index.ended_attempts.insert(AttemptId(day), dimensions);
        let commit = CommitId::new(&format!("{day:040x}")).unwrap();
        let project = ProjectName::new("shop").unwrap();
        let landed = Some((commit.clone(), commit.clone()));
        let ended_task = EndedTask {
            project,
            status: TaskStatus::Cancelled,
            spent: Spend::default(),
            landed,
        };
        index
            .ended_tasks
            .insert(TaskId(day), (now.unix_ms, ended_task));
        index.lines_by_commit.insert(commit, 7);
    }

    /// The size of the index depends on the requested days, not on the age of the daemon.
    #[test]
    fn days_that_are_no_longer_requested_are_dropped_when_a_day_begins() {
        let mut index = IndexedCosts::default();
        let size = |index: &IndexedCosts| {
            let ledger_sizes = (
                index.ledger.spend_since(0).len(),
                index.ledger.ended_since(0).len(),
            );
            assert_eq!(
                ledger_sizes,
                (index.ended_attempts.len(), index.ended_tasks.len())
            );
            (
                index.first_day,
                index.ended_attempts.len(),
                index.ended_tasks.len(),
                index.lines_by_commit.len(),
            )
        };
        for today in 100..110 {
            index.note_requested_day(today, today - 2);
            index.first_day = index.first_day.or(Some(today - 2));
            add_day(&mut index, today);
        }
        assert_eq!(
            size(&index),
            (Some(107), 3, 3, 3),
            "today and the two days before are kept, as requested yesterday"
        );
        index.note_requested_day(109, 109);
        assert_eq!(size(&index).0, Some(107), "nothing is dropped within a day");
        index.note_requested_day(110, 110);
        assert_eq!(size(&index), (Some(108), 2, 2, 2));
        index.note_requested_day(111, 111);
        assert_eq!(
            size(&index),
            (Some(111), 0, 0, 0),
            "only one day was requested yesterday"
        );
        // No day is dropped when the clock is set back.
        add_day(&mut index, 111);
        index.note_requested_day(110, 110);
        assert_eq!(size(&index), (Some(111), 1, 1, 1));
    }
}
