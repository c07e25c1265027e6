//! Budgets: limits on what an attempt, a task, an agent, a mission or a day may cost, and the
//! amounts already spent.
//!
//! Budgets are checked before an attempt starts and whenever its program reports usage. When the
//! budget for a single attempt is used up, the attempt is stopped and its task goes to a person.
//! When a wider budget is used up, its running attempts are stopped in a way that lets them
//! continue later, and no new attempt starts.
//!
//! Not here: sums of cost by provider, mission, agent or model, and forecasts (see
//! `regatta_api::cost_tables`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agent_protocol::Usage;
use crate::attempt::{self, Attempt, AttemptCause};
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, MissionId, Now, TaskId};
use crate::inbox::Snooze;
use crate::mission::Mission;
use crate::refusal::{Refusal, seconds};
use crate::schedule::WaitKind;
use crate::task::{self, Task};

/// The attempts that a budget covers. Written as `attempt`, `task`, `T7`, `agent:NAME`, `M3` or
/// `day`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum BudgetScope {
    /// The budget covers each attempt separately, with the same limit for all attempts.
    Attempt,
    /// The budget covers each task separately, with the same limit for all tasks.
    EachTask,
    Task(TaskId),
    /// The budget covers all attempts of one agent, per day (UTC).
    Agent(AgentName),
    Mission(MissionId),
    /// The budget covers all agents of this daemon together, per day (UTC).
    Day,
}

crate::ids::described!(BudgetScope, "attempt, task, T7, agent:NAME, M3 or day");

impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetScope::Attempt => f.write_str("attempt"),
            BudgetScope::EachTask => f.write_str("task"),
            BudgetScope::Task(id) => write!(f, "{id}"),
            BudgetScope::Agent(agent) => write!(f, "agent:{agent}"),
            BudgetScope::Mission(id) => write!(f, "{id}"),
            BudgetScope::Day => f.write_str("day"),
        }
    }
}

impl From<BudgetScope> for String {
    fn from(budget_scope: BudgetScope) -> String {
        budget_scope.to_string()
    }
}

impl TryFrom<String> for BudgetScope {
    type Error = crate::ids::BadName;
    fn try_from(text: String) -> Result<BudgetScope, crate::ids::BadName> {
        Ok(match text.as_str() {
            "attempt" => BudgetScope::Attempt,
            "task" => BudgetScope::EachTask,
            "day" => BudgetScope::Day,
            other => match (other.strip_prefix("agent:"), other.chars().next()) {
                (Some(name), _) => BudgetScope::Agent(AgentName::new(name)?),
                (None, Some('M' | 'm')) => BudgetScope::Mission(other.parse()?),
                _ => BudgetScope::Task(other.parse()?),
            },
        })
    }
}

/// The limits of a budget. A field that is `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Ceiling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Maximum cost, in millionths of a US dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

/// A budget: its limits, and the last warning that it is nearly used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Budget {
    pub scope: BudgetScope,
    pub ceiling: Ceiling,
    /// The last warning that 80 % of the budget are spent; `None` if there was no warning. The text
    /// is the attempt or task that the warning was about, such as `A5` or `T7`. It is empty if the
    /// budget does not limit each attempt or task separately. The number is the day, in days since
    /// 1970.
    pub warned: Option<(String, u64)>,
    /// The time of the last warning, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "warned_wall")]
    pub warned_unix_ms: Option<u64>,
    /// Set while a person has hidden the warning from the inbox for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
}

/// An amount that was spent: tokens and money, turns, attempts and running time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spend {
    pub usage: Usage,
    pub turns: u64,
    pub attempts: u64,
    pub wall_ms: u64,
}

impl Spend {
    /// Returns whether nothing was spent.
    pub fn is_nothing(&self) -> bool {
        *self == Spend::default()
    }

    /// Returns the sum of this amount and `more`.
    pub fn plus(&self, more: &Spend) -> Spend {
        Spend {
            usage: self.usage.plus(&more.usage),
            turns: self.turns + more.turns,
            attempts: self.attempts + more.attempts,
            wall_ms: self.wall_ms + more.wall_ms,
        }
    }
}

/// The amount that one agent, or all agents together, spent on one day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaySpend {
    /// The day, counted in days since 1970 (UTC).
    pub day: u64,
    pub agent: Option<AgentName>,
    pub spend: Spend,
}

facts! {
    BudgetSet { budget: Budget }
    BudgetRemoved { scope: BudgetScope }
    BudgetSpent { attempt: AttemptId, day: u64, spend: Spend }
    /// At the time `wall_at`, Regatta checks whether the attempt's running time has used up a
    /// budget. The time is in milliseconds of Regatta's own clock (the fleet clock), or `None` if
    /// no budget limits the time.
    AttemptClocked { attempt: AttemptId, wall_at: Option<u64> }
    /// At least 80 % of a budget are spent.
    BudgetWarned { scope: BudgetScope, whose: String, day: u64, text: String }
}

/// Returns the day of a time, in days since 1970 (UTC).
pub fn day_of(now: Now) -> u64 {
    now.unix_ms / 86_400_000
}

/// Sets the limits of a budget. A ceiling without any limit removes the budget.
pub fn set(draft: &mut Draft, scope: BudgetScope, ceiling: Ceiling) -> Result<(), Refusal> {
    match &scope {
        BudgetScope::Task(id) => _ = task::find(draft.board(), *id)?,
        BudgetScope::Agent(name) => _ = crate::agent::find(draft.board(), name)?,
        BudgetScope::Mission(id) if !draft.board().missions.contains_key(id) => {
            return Err(Refusal::NoSuchMission { mission: *id });
        }
        _ => {}
    }
    let current = draft.board().budgets.get(&scope);
    if ceiling == Ceiling::default() {
        if current.is_some() {
            draft.record(Event::BudgetRemoved(BudgetRemoved { scope }));
        }
    } else if current.is_none_or(|budget| budget.ceiling != ceiling) {
        draft.record(Event::BudgetSet(BudgetSet {
            budget: Budget {
                scope,
                ceiling,
                warned: None,
                warned_unix_ms: None,
                snoozed: None,
            },
        }));
    } else {
        return Ok(());
    }
    schedule_all_checks(draft, draft.now());
    Ok(())
}

/// Removes the budget of a task or mission that has ended.
pub(crate) fn end_scope(draft: &mut Draft, scope: BudgetScope) {
    if draft.board().budgets.contains_key(&scope) {
        draft.record(Event::BudgetRemoved(BudgetRemoved { scope }));
    }
}

/// Returns a text about the first limit of which at least `percent` percent are spent, or `None` if
/// there is none.
fn reached_limit(ceiling: &Ceiling, spend: &Spend, percent: u64) -> Option<String> {
    let limit_if_reached = |spent: u64, limit: Option<u64>| {
        limit.filter(|limit| u128::from(spent) * 100 >= u128::from(*limit) * u128::from(percent))
    };
    if let Some(limit) = limit_if_reached(spend.usage.tokens(), ceiling.tokens) {
        return Some(format!("{} of {limit} tokens", spend.usage.tokens()));
    }
    if let Some(limit) = limit_if_reached(spend.usage.micro_usd.unwrap_or(0), ceiling.micro_usd) {
        return Some(format!(
            "{} of {}",
            format_dollars(spend.usage.micro_usd.unwrap_or(0)),
            format_dollars(limit)
        ));
    }
    if let Some(limit) = limit_if_reached(spend.turns, ceiling.turns) {
        return Some(format!("{} of {limit} turns", spend.turns));
    }
    if let Some(limit) = limit_if_reached(spend.attempts, ceiling.attempts) {
        return Some(format!("{} of {limit} attempts", spend.attempts));
    }
    let limit = limit_if_reached(spend.wall_ms, ceiling.wall_ms)?;
    Some(format!("{} of {}", seconds(spend.wall_ms), seconds(limit)))
}

/// Formats an amount of money in dollars for people, rounded to cents.
pub fn format_dollars(micro_usd: u64) -> String {
    let cents = micro_usd.saturating_add(5_000) / 10_000;
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// Returns what was spent on a day: by one agent, or by all agents if `agent` is `None`.
pub fn spent_on(board: &Board, day: u64, agent: Option<&AgentName>) -> Spend {
    board
        .ledger
        .get(&(day, agent.cloned()))
        .copied()
        .unwrap_or_default()
}

/// Returns every scope whose budget would cover an attempt of `agent` at `task`, the narrowest
/// first, with the amount that was spent in each scope. The amount includes the running time of
/// live attempts, which is recorded only when the attempts end.
fn budgets_of_work(
    board: &Board,
    task: &Task,
    agent: &AgentName,
    now: Now,
) -> Vec<(BudgetScope, Spend)> {
    let day = day_of(now);
    let mut found = vec![
        (BudgetScope::EachTask, task.spent),
        (BudgetScope::Task(task.id), task.spent),
    ];
    found.push((
        BudgetScope::Agent(agent.clone()),
        spent_on(board, day, Some(agent)),
    ));
    if let Some(mission) = task.mission.and_then(|id| board.missions.get(&id)) {
        found.push((BudgetScope::Mission(mission.id), mission.spent));
    }
    found.push((BudgetScope::Day, spent_on(board, day, None)));
    for (scope, spend) in &mut found {
        if board
            .budgets
            .get(scope)
            .is_some_and(|budget| budget.ceiling.wall_ms.is_some())
        {
            spend.wall_ms += running_attempts(board, scope, task)
                .map(|attempt| now.fleet_ms.saturating_sub(attempt.started_fleet_ms))
                .sum::<u64>();
        }
    }
    found
}

/// Returns the live attempts whose running time counts towards the budget with the scope `scope`.
fn running_attempts<'a>(
    board: &'a Board,
    scope: &'a BudgetScope,
    task: &'a Task,
) -> impl Iterator<Item = &'a Attempt> {
    board
        .attempts
        .values()
        .map(|attempt| &**attempt)
        .filter(|attempt| attempt.supervised)
        .filter(move |attempt| match scope {
            BudgetScope::Attempt => false,
            BudgetScope::EachTask | BudgetScope::Task(_) => attempt.task == task.id,
            BudgetScope::Agent(name) => attempt.agent == *name,
            BudgetScope::Mission(id) => attempt.mission == Some(*id),
            BudgetScope::Day => true,
        })
}

/// Returns how long an attempt at this task may still run until a budget wider than one attempt is
/// used up; `None` if no such budget limits time.
fn time_left_ms(board: &Board, task: &Task, agent: &AgentName, now: Now) -> Option<u64> {
    let time_left_of = |(scope, spend): (BudgetScope, Spend)| {
        let limit_ms = board.budgets.get(&scope)?.ceiling.wall_ms?;
        // All running attempts of the budget use up its time together, so the remaining time is
        // divided among these attempts.
        let attempt_count = running_attempts(board, &scope, task).count().max(1) as u64;
        Some(limit_ms.saturating_sub(spend.wall_ms) / attempt_count)
    };
    budgets_of_work(board, task, agent, now)
        .into_iter()
        .filter_map(time_left_of)
        .min()
}

/// Sets the time of the next check again for all running attempts, because a new attempt or a
/// changed limit changes the time that is left.
pub(crate) fn schedule_all_checks(draft: &mut Draft, now: Now) {
    let is_time_limited = draft
        .board()
        .budgets
        .values()
        .any(|budget| budget.scope != BudgetScope::Attempt && budget.ceiling.wall_ms.is_some());
    let attempts: Vec<AttemptId> = draft
        .board()
        .attempts
        .values()
        .filter(|attempt| is_time_limited || attempt.budget_check_fleet_ms.is_some())
        .map(|attempt| attempt.id)
        .collect();
    for id in attempts {
        schedule_check(draft, id, now);
    }
}

/// Sets the next time at which Regatta checks whether an attempt's running time has used up a
/// budget.
fn schedule_check(draft: &mut Draft, id: AttemptId, now: Now) {
    let Some(attempt) = draft
        .board()
        .attempts
        .get(&id)
        .filter(|attempt| attempt.supervised)
        .cloned()
    else {
        return;
    };
    let Some(task) = draft.board().tasks.get(&attempt.task).cloned() else {
        return;
    };
    let left_ms = time_left_ms(draft.board(), &task, &attempt.agent, now);
    // Wait at least 100 ms, because several attempts that together near the end of a budget would
    // otherwise cause a check every millisecond.
    let wall_at = left_ms.map(|left_ms| now.fleet_ms + left_ms.max(100));
    if attempt.budget_check_fleet_ms != wall_at {
        draft.record(Event::AttemptClocked(AttemptClocked {
            attempt: id,
            wall_at,
        }));
    }
}

/// Checks whether an attempt's running time has used up a budget, stops the attempt if so, and sets
/// the time of the next check.
pub(crate) fn check_time_left(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    enforce(draft, &attempt, now)?;
    schedule_check(draft, id, now);
    Ok(())
}

/// A budget of which at least 80 % are spent, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearLimit {
    pub scope: BudgetScope,
    /// The attempt or task to which the spending belongs (`A5`, `T7`), if the budget limits each
    /// attempt or task separately.
    pub share_of: Option<String>,
    /// The amount spent and the limit, as a text for people.
    pub text: String,
    /// True if the budget is used up, so that no work that it covers can start.
    pub is_exhausted: bool,
}

/// Returns the budgets of which at least 80 % are spent. A budget that limits each attempt or task
/// separately is listed once, with the first attempt or task that has used up the budget. If none
/// has used it up, the first attempt or task that has spent 80 % is listed.
pub fn near_limits(board: &Board, now: Now) -> Vec<NearLimit> {
    let day = day_of(now);
    let running_ms = |attempt: &Attempt| now.fleet_ms.saturating_sub(attempt.started_fleet_ms);
    let shares = |scope: &BudgetScope| -> Vec<(Option<String>, Spend)> {
        match scope {
            BudgetScope::Attempt => {
                let spend = |attempt: &Attempt| Spend {
                    wall_ms: running_ms(attempt),
                    ..attempt.spent()
                };
                let attempts = board
                    .attempts
                    .values()
                    .filter(|attempt| attempt.supervised && attempt.session_of.is_none());
                attempts
                    .map(|attempt| (Some(attempt.id.to_string()), spend(attempt)))
                    .collect()
            }
            BudgetScope::EachTask => board
                .tasks
                .values()
                .map(|task| (Some(task.id.to_string()), task.spent))
                .collect(),
            BudgetScope::Task(id) => board
                .tasks
                .get(id)
                .map(|task| (None, task.spent))
                .into_iter()
                .collect(),
            BudgetScope::Agent(name) => vec![(None, spent_on(board, day, Some(name)))],
            BudgetScope::Mission(id) => board
                .missions
                .get(id)
                .map(|mission| (None, mission.spent))
                .into_iter()
                .collect(),
            BudgetScope::Day => vec![(None, spent_on(board, day, None))],
        }
    };
    let near_limit_of = |budget: &Budget| {
        let shares_of_scope = shares(&budget.scope);
        let share_at = |percent| {
            shares_of_scope.iter().find_map(|(whose, spend)| {
                Some((whose, reached_limit(&budget.ceiling, spend, percent)?))
            })
        };
        let (is_exhausted, (whose, text)) = match share_at(100) {
            Some(share) => (true, share),
            None => (false, share_at(80)?),
        };
        Some(NearLimit {
            scope: budget.scope.clone(),
            share_of: whose.clone(),
            text,
            is_exhausted,
        })
    };
    board
        .budgets
        .values()
        .filter_map(|budget| near_limit_of(budget))
        .collect()
}

/// Returns a sentence about the budget that prevents this agent from starting a task, or `None` if
/// no budget does.
pub fn blocking_budget(board: &Board, task: &Task, agent: &AgentName, now: Now) -> Option<String> {
    if board.budgets.is_empty() {
        return None;
    }
    budgets_of_work(board, task, agent, now)
        .into_iter()
        .find_map(|(scope, spend)| {
            let budget = board.budgets.get(&scope)?;
            let text = reached_limit(&budget.ceiling, &spend, 100)?;
            Some(format!(
                "the budget of {} is used up: {text}; raise it with regatta budget set {scope} …",
                scope_name(&scope)
            ))
        })
}

/// Returns whether a task cannot start until a person raises a budget. Budgets of a day or an agent
/// are left out, because they start again from zero on the next day.
pub(crate) fn needs_raise(board: &Board, mission: &Mission, task: &Task) -> bool {
    let shares = [
        (BudgetScope::Mission(mission.id), &mission.spent),
        (BudgetScope::Task(task.id), &task.spent),
        (BudgetScope::EachTask, &task.spent),
    ];
    shares.iter().any(|(scope, spend)| {
        let budget = board.budgets.get(scope);
        budget.is_some_and(|budget| reached_limit(&budget.ceiling, spend, 100).is_some())
    })
}

/// Returns a noun phrase for the work that a budget limits, for use in a sentence such as "the
/// budget of … is used up".
pub fn scope_name(scope: &BudgetScope) -> String {
    match scope {
        BudgetScope::Attempt => "an attempt".into(),
        BudgetScope::EachTask => "a task".into(),
        BudgetScope::Day => "the day".into(),
        BudgetScope::Agent(name) => format!("{name} for the day"),
        BudgetScope::Task(_) | BudgetScope::Mission(_) => scope.to_string(),
    }
}

/// Records what an attempt has spent, warns if a budget is nearly used up, and stops the attempt if
/// a budget is used up.
pub(crate) fn charge(
    draft: &mut Draft,
    id: AttemptId,
    spend: Spend,
    now: Now,
) -> Result<(), Refusal> {
    if spend.is_nothing() {
        return Ok(());
    }
    record_spend(draft, id, spend);
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    warn(draft, &attempt, now);
    enforce(draft, &attempt, now)
}

/// Records what an attempt has spent, without checking any budget.
pub(crate) fn record_spend(draft: &mut Draft, id: AttemptId, spend: Spend) {
    let day = day_of(draft.now());
    draft.record(Event::BudgetSpent(BudgetSpent {
        attempt: id,
        day,
        spend,
    }));
}

/// Stops an attempt if a budget is used up. If the attempt's own budget is used up, its task goes
/// to a person. If a wider budget is used up, the task continues later.
fn enforce(draft: &mut Draft, attempt: &Attempt, now: Now) -> Result<(), Refusal> {
    if attempt.stopping.is_some()
        || attempt.end.is_some()
        || attempt.phase != attempt::AttemptPhase::Working
    {
        return Ok(()); // finished work is checked and lands, whatever it cost
    }
    // Do not count the current turn yet, because it began while the budget allowed it.
    let running_turns = u64::from(attempt.session.in_turn);
    let without_running_turn = |spend: Spend| Spend {
        turns: spend.turns.saturating_sub(running_turns),
        ..spend
    };
    let own_limit = draft.board().budgets.get(&BudgetScope::Attempt);
    let own_limit = own_limit.and_then(|budget| {
        reached_limit(&budget.ceiling, &without_running_turn(attempt.spent()), 100)
    });
    if let Some(text) = own_limit {
        let reason = format!("the attempt's budget is used up: {text}");
        attempt::stop(draft, attempt.id, AttemptCause::OverBudget, reason.clone());
        return task::needs_human(draft, attempt.task, WaitKind::Budget, &reason);
    }
    let task = task::find(draft.board(), attempt.task)?;
    let wider_limit = budgets_of_work(draft.board(), &task, &attempt.agent, now)
        .into_iter()
        .find_map(|(scope, spend)| {
            let budget = draft.board().budgets.get(&scope)?;
            // A limit on the number of attempts prevents new attempts, but must not stop the last
            // attempt that the limit allowed.
            let ceiling = Ceiling {
                attempts: None,
                ..budget.ceiling
            };
            reached_limit(&ceiling, &without_running_turn(spend), 100)
                .map(|text| format!("the budget of {} is used up: {text}", scope_name(&scope)))
        });
    match wider_limit {
        Some(reason) => attempt::park(draft, attempt.id, &reason),
        None => Ok(()),
    }
}

/// Records a warning when at least 80 % of a budget are spent, once for each attempt or task and
/// day.
fn warn(draft: &mut Draft, attempt: &Attempt, now: Now) {
    if draft.board().budgets.is_empty() {
        return;
    }
    let Some(task) = draft.board().tasks.get(&attempt.task).cloned() else {
        return;
    };
    let day = day_of(now);
    let mut budgets = budgets_of_work(draft.board(), &task, &attempt.agent, now);
    budgets.push((BudgetScope::Attempt, attempt.spent()));
    for (scope, spend) in budgets {
        let Some(budget) = draft.board().budgets.get(&scope) else {
            continue;
        };
        let whose = match scope {
            BudgetScope::Attempt => attempt.id.to_string(),
            BudgetScope::EachTask => task.id.to_string(),
            _ => String::new(),
        };
        let Some(text) = reached_limit(&budget.ceiling, &spend, 80) else {
            continue;
        };
        if budget.warned.as_ref() != Some(&(whose.clone(), day)) {
            let text = format!(
                "80 % of the budget of {} are gone: {text}",
                scope_name(&scope)
            );
            draft.record(Event::BudgetWarned(BudgetWarned {
                scope,
                whose,
                day,
                text,
            }));
        }
    }
}
