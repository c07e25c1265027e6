//! Views of budgets, and of the amounts that were spent.

use std::collections::BTreeMap;

use regatta_core::board::Board;
use regatta_core::budget;
use regatta_core::ids::{AgentName, Now};
use serde::{Deserialize, Serialize};

/// A budget, and the amount that was spent. `spent` is empty if the budget applies to each task or
/// attempt separately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    pub scope: budget::BudgetScope,
    pub ceiling: budget::Ceiling,
    pub spent: Option<budget::Spend>,
}

/// All budgets, and the amounts that were spent today and on some days before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetsView {
    pub budgets: Vec<BudgetView>,
    pub today: budget::Spend,
    /// The amount that each agent has spent since the first requested day.
    pub by_agent: Vec<(AgentName, budget::Spend)>,
    /// The amount that all agents together have spent since the first requested day.
    #[serde(default)]
    pub spent: budget::Spend,
}

impl BudgetsView {
    /// Builds the view of all budgets, with the amounts that were spent today and on `days` days
    /// before today. A day begins at midnight UTC.
    pub fn new(board: &Board, now: Now, days: u32) -> BudgetsView {
        let day = budget::day_of(now);
        let first = day.saturating_sub(u64::from(days));
        let mut by_agent: BTreeMap<AgentName, budget::Spend> = Default::default();
        let mut all = budget::Spend::default();
        for ((_, agent), spend) in board
            .ledger
            .range((first, None)..)
            .filter(|((spent_day, _), _)| *spent_day <= day)
        {
            match agent {
                Some(agent) => {
                    let sum = by_agent.entry(agent.clone()).or_default();
                    *sum = sum.plus(spend);
                }
                None => all = all.plus(spend),
            }
        }
        let spent = |scope: &budget::BudgetScope| match scope {
            budget::BudgetScope::Attempt | budget::BudgetScope::EachTask => None,
            budget::BudgetScope::Task(id) => board.tasks.get(id).map(|task| task.spent),
            budget::BudgetScope::Mission(id) => board.missions.get(id).map(|mission| mission.spent),
            budget::BudgetScope::Agent(agent) => Some(budget::spent_on(board, day, Some(agent))),
            budget::BudgetScope::Day => Some(budget::spent_on(board, day, None)),
        };
        let budgets = board.budgets.values();
        BudgetsView {
            budgets: budgets
                .map(|budget| BudgetView {
                    scope: budget.scope.clone(),
                    ceiling: budget.ceiling,
                    spent: spent(&budget.scope),
                })
                .collect(),
            today: budget::spent_on(board, day, None),
            by_agent: by_agent.into_iter().collect(),
            spent: all,
        }
    }
}
