//! Cost as people read it: sums by provider, mission, agent or model, the line of a day's spending,
//! and a forecast of the time at which the day's limit is reached.
//!
//! Everything is computed from a [`SpendLedger`] of regatta-core. A missing price never counts as
//! zero, so tokens without a price are counted separately.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::budget::Spend;
use regatta_core::ids::{AgentName, AttemptId, MissionId, Now, TaskId};
use regatta_core::spend_ledger::{SpendLedger, SpendRate};
use serde::{Deserialize, Serialize};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The property by which spending is grouped in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CostGrouping {
    #[default]
    Provider,
    Mission,
    Agent,
    Model,
}

impl CostGrouping {
    pub const ALL: [CostGrouping; 4] = [
        CostGrouping::Provider,
        CostGrouping::Mission,
        CostGrouping::Agent,
        CostGrouping::Model,
    ];

    /// Returns the grouping's name, as people type it.
    pub fn name(self) -> &'static str {
        match self {
            CostGrouping::Provider => "provider",
            CostGrouping::Mission => "mission",
            CostGrouping::Agent => "agent",
            CostGrouping::Model => "model",
        }
    }
}

/// One provider's part of the total cost line of a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderBand {
    pub name: String,
    /// The provider's total in millionths of a US dollar, for each point of the line.
    pub micro_usd: Vec<u64>,
}

/// Returns the total cost of a day up to each minute in which money was spent, for a line chart.
pub fn cumulative_cost(ledger: &SpendLedger, day: u64) -> Vec<(u64, u64)> {
    let mut line: Vec<(u64, u64)> = Vec::new();
    for (minute, _, micro_usd) in ledger.minute_costs(day) {
        match line.last_mut() {
            None => line.extend([(minute, 0), (minute, micro_usd)]), // the line starts at zero
            Some(last) if last.0 == minute => last.1 += micro_usd,
            Some(last) => {
                let sum = last.1 + micro_usd;
                line.push((minute, sum));
            }
        }
    }
    line
}

/// Returns the line of [`cumulative_cost`] split by provider, the most expensive first. Each
/// provider has a total for every point of the line.
pub fn provider_bands(ledger: &SpendLedger, day: u64) -> Vec<ProviderBand> {
    let mut bands: BTreeMap<&str, Vec<u64>> = ledger
        .minute_costs(day)
        .map(|(_, provider, _)| (provider, vec![0]))
        .collect();
    let mut last = None;
    for (minute, name, micro) in ledger.minute_costs(day) {
        if last.replace(minute) != Some(minute) {
            for sums in bands.values_mut() {
                sums.extend(sums.last().copied());
            }
        }
        if let Some(sum) = bands.get_mut(name).and_then(|sums| sums.last_mut()) {
            *sum += micro;
        }
    }
    let band = |(name, micro_usd): (&str, _)| ProviderBand {
        name: name.to_owned(),
        micro_usd,
    };
    let mut bands: Vec<ProviderBand> = bands.into_iter().map(band).collect();
    bands.sort_by_key(|band| std::cmp::Reverse(band.micro_usd.last().copied()));
    bands
}

/// The spending of one attempt, with everything by which spending can be grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostEntry {
    pub attempt: AttemptId,
    pub task: TaskId,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    pub provider: String,
    /// The model that the attempt used, if its program reported it.
    pub model: Option<String>,
    pub spend: Spend,
    /// True if the attempt's work was lost, for example because the attempt failed.
    pub is_lost: bool,
}

/// The total of some attempts' spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "CostSum")
)]
pub struct CostSum {
    /// Number of tasks on which the attempts worked.
    pub tasks: usize,
    pub spent: Spend,
    /// Number of tokens whose price nobody reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
    /// Rate of the last hour, in millionths of a US dollar per hour. Absent if no money was spent
    /// in the last hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "rate")]
    pub hourly_rate: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The state of knowledge about the cost of some work: nothing was used, the cost is unknown, or
/// the cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceState {
    /// No tokens were used and nothing was paid.
    Nothing,
    /// Tokens were used, and nobody reported their cost.
    Unknown,
    /// The cost is known, except for `unpriced` tokens without a price.
    Known { micro_usd: u64, unpriced: u64 },
}

impl CostSum {
    /// Returns the cost, as far as the cost is known.
    pub fn price(&self) -> PriceState {
        match self.spent.usage.micro_usd {
            Some(micro_usd) => PriceState::Known {
                micro_usd,
                unpriced: self.unpriced,
            },
            None if self.spent.usage.tokens() == 0 => PriceState::Nothing,
            None => PriceState::Unknown,
        }
    }

    /// Returns the percentage of the input that came from a provider's cache; `None` if no cache
    /// was reported.
    pub fn cached_percent(&self) -> Option<u64> {
        let usage = &self.spent.usage;
        let read = usage.input + usage.cached_input + usage.cache_write;
        (usage.cached_input + usage.cache_write > 0).then(|| usage.cached_input * 100 / read)
    }
}

/// One line of a cost table: a name and the total of its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostGroup {
    /// The provider, agent, model or mission number; absent for attempts without such a property.
    pub name: Option<String>,
    #[serde(flatten)]
    pub sum: CostSum,
}

/// Adds up the spending of some attempts.
pub fn sum<'a>(entries: impl Iterator<Item = &'a CostEntry>, rate: &SpendRate) -> CostSum {
    let (mut sum, mut tasks, mut recent_micro_usd) = (CostSum::default(), BTreeSet::new(), 0);
    for cost in entries {
        tasks.insert(cost.task);
        sum.spent = sum.spent.plus(&cost.spend);
        if cost.spend.usage.micro_usd.is_none() {
            sum.unpriced += cost.spend.usage.tokens();
        }
        recent_micro_usd += rate.micro_usd_of(cost.attempt);
    }
    CostSum {
        tasks: tasks.len(),
        hourly_rate: rate.hourly_rate(recent_micro_usd),
        ..sum
    }
}

/// Adds up spending for each provider, mission, agent or model. The most expensive comes first, and
/// equal costs are ordered by tokens.
pub fn group_costs(entries: &[CostEntry], by: CostGrouping, rate: &SpendRate) -> Vec<CostGroup> {
    let mut groups: BTreeMap<Option<String>, Vec<&CostEntry>> = BTreeMap::new();
    for cost in entries {
        let name = match by {
            CostGrouping::Provider => Some(cost.provider.clone()),
            CostGrouping::Mission => cost.mission.map(|id| id.to_string()),
            CostGrouping::Agent => Some(cost.agent.to_string()),
            CostGrouping::Model => cost.model.clone(),
        };
        groups.entry(name).or_default().push(cost);
    }
    let row = |(name, members): (Option<String>, Vec<&CostEntry>)| CostGroup {
        name,
        sum: sum(members.into_iter(), rate),
    };
    let mut rows: Vec<CostGroup> = groups.into_iter().map(row).collect();
    let weight = |group: &CostGroup| {
        (
            group.sum.spent.usage.micro_usd,
            group.sum.spent.usage.tokens(),
        )
    };
    rows.sort_by_key(|group| std::cmp::Reverse(weight(group)));
    rows
}

/// A forecast of the time at which a day's spending limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "when")]
pub enum CapForecast {
    /// The limit is already reached.
    Reached,
    /// The approximate time at which the limit is reached at the present rate.
    #[serde(rename = "at")]
    ReachedAt {
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
    /// The limit is not reached before the end of the day (UTC) at the present rate.
    NotToday,
}

/// Returns a forecast of the time at which a day's spending reaches the limit `cap`; `None` if the
/// limit is not reached yet and the rate is unknown or zero.
pub fn forecast(spent: u64, cap: u64, rate: Option<u64>, now: Now) -> Option<CapForecast> {
    if spent >= cap {
        return Some(CapForecast::Reached);
    }
    let rate = u128::from(rate.filter(|rate| *rate > 0)?);
    let left = u128::from(cap - spent) * u128::from(HOUR_MS) / rate;
    let minute = now.unix_ms - now.unix_ms % MINUTE_MS;
    let day_ends = (now.unix_ms / DAY_MS + 1) * DAY_MS;
    let reached_unix_ms = u64::try_from(left)
        .ok()
        .and_then(|left_ms| minute.checked_add(left_ms))
        .filter(|unix_ms| *unix_ms < day_ends);
    let Some(unix_ms) = reached_unix_ms else {
        return Some(CapForecast::NotToday);
    };
    Some(CapForecast::ReachedAt {
        unix_ms: unix_ms.div_ceil(MINUTE_MS) * MINUTE_MS,
    })
}
