//! Cost: the spending since a day, by provider, mission, agent or model, its results, and a
//! forecast of when a cap is reached at the present rate.
//!
//! The log is the record: each `budget.spent` event names an attempt and an amount. A
//! [`SpendLedger`] collects these events, [`group_costs`] sums them up, and nothing is stored a
//! second time. A missing price never counts as zero, so tokens without a price are counted
//! separately.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::attempt::AttemptCause;
use crate::budget::Spend;
use crate::event::{Event, Recorded};
use crate::ids::{AgentName, AttemptId, MissionId, Now, TaskId};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The key by which spending is grouped.
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

    /// Returns the key's name, as people type it.
    pub fn name(self) -> &'static str {
        match self {
            CostGrouping::Provider => "provider",
            CostGrouping::Mission => "mission",
            CostGrouping::Agent => "agent",
            CostGrouping::Model => "model",
        }
    }
}

/// The spending in the log since the beginning of a day.
#[derive(Clone, Debug, Default)]
pub struct SpendLedger {
    /// Spending of each attempt, by day.
    spend_by_day: BTreeMap<(u64, AttemptId), Spend>,
    /// Money of the newest day, by minute and provider.
    minute_costs: BTreeMap<(u64, String), u64>,
    /// Money of the last hours: the minute, the attempt, and the amount.
    recent_costs: VecDeque<(u64, AttemptId, u64)>,
    /// The last time at which each task ended.
    task_ends: BTreeMap<TaskId, u64>,
}

impl SpendLedger {
    /// Adds an event. `provider` is the provider that is paid, for an event of spending.
    pub fn fold(&mut self, recorded: &Recorded, provider: Option<String>) {
        let unix_ms = recorded.now.unix_ms;
        match &recorded.event {
            Event::BudgetSpent(event) => {
                let sum = self
                    .spend_by_day
                    .entry((*event.day(), *event.attempt()))
                    .or_default();
                *sum = sum.plus(event.spend());
                if let Some(micro_usd) = event
                    .spend()
                    .usage
                    .micro_usd
                    .filter(|micro_usd| *micro_usd > 0)
                {
                    self.add_payment(
                        unix_ms,
                        *event.attempt(),
                        micro_usd,
                        provider.unwrap_or_else(|| "not known".into()),
                    );
                }
            }
            Event::TaskCompleted(event) => _ = self.task_ends.insert(*event.task(), unix_ms),
            Event::TaskFailed(event) => _ = self.task_ends.insert(*event.task(), unix_ms),
            Event::TaskCancelled(event) => _ = self.task_ends.insert(*event.task(), unix_ms),
            _ => {}
        }
    }

    /// Adds an amount of money that an attempt spent.
    fn add_payment(&mut self, unix_ms: u64, attempt: AttemptId, micro_usd: u64, provider: String) {
        let minute = unix_ms - unix_ms % MINUTE_MS;
        let day = unix_ms / DAY_MS;
        if self
            .minute_costs
            .last_key_value()
            .is_some_and(|((minute, _), _)| minute / DAY_MS != day)
        {
            self.minute_costs.clear();
        }
        *self.minute_costs.entry((minute, provider)).or_default() += micro_usd;
        match self
            .recent_costs
            .back_mut()
            .filter(|recent| recent.0 == minute && recent.1 == attempt)
        {
            Some(last) => last.2 += micro_usd,
            None => self.recent_costs.push_back((minute, attempt, micro_usd)),
        }
        while self
            .recent_costs
            .front()
            .is_some_and(|(recent, ..)| recent + 2 * HOUR_MS < minute)
        {
            self.recent_costs.pop_front();
        }
    }

    /// Removes everything before a day.
    pub fn forget_before(&mut self, day: u64) {
        self.spend_by_day = self.spend_by_day.split_off(&(day, AttemptId(0)));
        self.task_ends
            .retain(|_, ended_unix_ms| *ended_unix_ms / DAY_MS >= day);
    }

    /// Returns the spending of each attempt since the start of a day.
    pub fn spend_since(&self, day: u64) -> BTreeMap<AttemptId, Spend> {
        let mut found: BTreeMap<AttemptId, Spend> = BTreeMap::new();
        for ((_, attempt), spend) in self.spend_by_day.range((day, AttemptId(0))..) {
            let sum = found.entry(*attempt).or_default();
            *sum = sum.plus(spend);
        }
        found
    }

    /// Returns the tasks that ended since the start of a day, with their times, the latest last.
    pub fn ended_since(&self, day: u64) -> Vec<(u64, TaskId)> {
        let mut found: Vec<(u64, TaskId)> = self
            .task_ends
            .iter()
            .filter(|(_, ended_unix_ms)| **ended_unix_ms / DAY_MS >= day)
            .map(|(task, ended_unix_ms)| (*ended_unix_ms, *task))
            .collect();
        found.sort_unstable();
        found
    }

    /// Returns the cumulative cost of a day, for each minute in which money was spent.
    pub fn cumulative_cost(&self, day: u64) -> Vec<(u64, u64)> {
        let mut line: Vec<(u64, u64)> = Vec::new();
        for (minute, _, micro_usd) in self.minute_costs_of(day) {
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

    /// Returns the same line split by provider, the most expensive first. Each provider has a sum
    /// for every point of the line.
    pub fn provider_bands(&self, day: u64) -> Vec<ProviderBand> {
        let mut bands: BTreeMap<&str, Vec<u64>> = self
            .minute_costs_of(day)
            .map(|(_, provider, _)| (provider, vec![0]))
            .collect();
        let mut last = None;
        for (minute, name, micro) in self.minute_costs_of(day) {
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

    /// Returns the costs of a day as minute, provider and amount.
    fn minute_costs_of(&self, day: u64) -> impl Iterator<Item = (u64, &str, u64)> {
        self.minute_costs
            .iter()
            .filter(move |((minute, _), _)| minute / DAY_MS == day)
            .map(|((minute, provider), micro_usd)| (*minute, &**provider, *micro_usd))
    }

    /// Returns the rate of the last hour, or of the part of it since the first spending. Less than
    /// a minute gives no rate.
    pub fn spend_rate(&self, now: Now) -> SpendRate {
        let since = now.unix_ms.saturating_sub(HOUR_MS);
        let recent = || {
            self.recent_costs
                .iter()
                .filter(|(minute, ..)| (since..=now.unix_ms).contains(minute))
        };
        // Rounded to the minute, so that the result does not change while nothing happens.
        let first = recent()
            .map(|(minute, ..)| *minute)
            .next()
            .unwrap_or(now.unix_ms);
        let period_ms = (now.unix_ms - now.unix_ms % MINUTE_MS).saturating_sub(first);
        let mut by_attempt: BTreeMap<AttemptId, u64> = BTreeMap::new();
        for (_, attempt, micro_usd) in recent() {
            *by_attempt.entry(*attempt).or_default() += micro_usd;
        }
        SpendRate {
            micro_usd: by_attempt,
            period_ms,
        }
    }
}

/// A provider's part of a day's line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderBand {
    pub name: String,
    /// Cumulative millionths of a dollar, for each point of the line.
    pub micro_usd: Vec<u64>,
}

/// Recent spending by attempt, and the time it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendRate {
    micro_usd: BTreeMap<AttemptId, u64>,
    period_ms: u64,
}

impl SpendRate {
    /// Returns the recent spending of one attempt.
    fn micro_usd_of(&self, attempt: AttemptId) -> u64 {
        self.micro_usd.get(&attempt).copied().unwrap_or(0)
    }

    /// Returns millionths of a dollar per hour.
    fn hourly_rate(&self, micro_usd: u64) -> Option<u64> {
        if self.period_ms < MINUTE_MS || micro_usd == 0 {
            return None;
        }
        let rate = u128::from(micro_usd) * u128::from(HOUR_MS) / u128::from(self.period_ms);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the rate of all attempts together.
    pub fn total_hourly_rate(&self) -> Option<u64> {
        self.hourly_rate(self.micro_usd.values().sum())
    }
}

/// The spending of an attempt, with the keys by which it can be grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostEntry {
    pub attempt: AttemptId,
    pub task: TaskId,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    pub provider: String,
    /// The model that answered, if its program reported it.
    pub model: Option<String>,
    pub spend: Spend,
    /// The work came to nothing.
    pub is_lost: bool,
}

/// A sum of spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "CostSum")
)]
pub struct CostSum {
    /// Number of tasks that the spending belongs to.
    pub tasks: usize,
    pub spent: Spend,
    /// Tokens without a reported price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
    /// Millionths of a dollar per hour, at the rate of the last hour; absent if no money was spent
    /// in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "rate")]
    pub hourly_rate: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The knowledge about a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceState {
    /// Nothing was used.
    Nothing,
    /// Tokens were used, and nobody reported their cost.
    Unknown,
    /// A known amount, and the number of tokens without a price.
    Known { micro_usd: u64, unpriced: u64 },
}

impl CostSum {
    /// Returns the cost, as far as it is known.
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

    /// Returns the percentage of input that came from a cache; `None` if no cache was reported.
    pub fn cached_percent(&self) -> Option<u64> {
        let usage = &self.spent.usage;
        let read = usage.input + usage.cached_input + usage.cache_write;
        (usage.cached_input + usage.cache_write > 0).then(|| usage.cached_input * 100 / read)
    }
}

/// One line of a table: a name and a sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostGroup {
    /// A provider, an agent, a model or a mission's number; absent if there is none.
    pub name: Option<String>,
    #[serde(flatten)]
    pub sum: CostSum,
}

/// Adds up entries.
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

/// Adds up entries by one key, the most expensive first, then by tokens.
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

/// A forecast of when a day's cap is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "when")]
pub enum CapForecast {
    /// The cap is reached.
    Reached,
    /// The approximate time at this rate.
    #[serde(rename = "at")]
    ReachedAt {
        #[serde(rename = "wall")]
        unix_ms: u64,
    },
    /// Not before the end of the day (UTC) at this rate.
    NotToday,
}

/// Returns when a day's cap is reached; `None` without a rate.
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

/// Returns whether an attempt's work came to nothing, judged by its cause of end. Work that went on
/// later did not.
pub fn is_lost(cause: AttemptCause) -> bool {
    match cause {
        AttemptCause::Submitted
        | AttemptCause::Reported
        | AttemptCause::Rested
        | AttemptCause::Parked
        | AttemptCause::ContextFull => false,
        AttemptCause::GaveUp
        | AttemptCause::Crashed
        | AttemptCause::Invalid
        | AttemptCause::Rejected
        | AttemptCause::Blocked
        | AttemptCause::NothingChanged
        | AttemptCause::ScopeEscape
        | AttemptCause::Lost
        | AttemptCause::Stopped
        | AttemptCause::Cancelled
        | AttemptCause::Environment
        | AttemptCause::TimedOut
        | AttemptCause::Hung
        | AttemptCause::OverBudget
        | AttemptCause::Overloaded
        | AttemptCause::Refused
        | AttemptCause::Auth
        | AttemptCause::BadConfig => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_protocol::Usage;

    fn spend(input: u64, micro_usd: Option<u64>) -> Spend {
        Spend {
            usage: Usage {
                input,
                micro_usd,
                ..Usage::default()
            },
            ..Spend::default()
        }
    }

    fn entry(attempt: u64, agent: &str, spend: Spend) -> CostEntry {
        CostEntry {
            attempt: AttemptId(attempt),
            task: TaskId(attempt.div_ceil(2)),
            mission: (attempt < 3).then_some(MissionId(1)),
            agent: AgentName::new(agent).unwrap(),
            provider: agent.split('-').next().unwrap().to_owned(),
            model: None,
            spend,
            is_lost: false,
        }
    }

    fn at_wall(wall: u64) -> Now {
        Now {
            fleet_ms: wall,
            unix_ms: wall,
        }
    }

    #[test]
    fn rows_are_grouped_as_asked_and_unknown_prices_are_summed_separately() {
        let entries = [
            entry(1, "claude-1", spend(100, Some(5))),
            entry(2, "claude-2", spend(50, None)),
            entry(3, "codex-1", spend(900, None)),
        ];
        let none = SpendRate::default();
        let rows = |by| group_costs(&entries, by, &none);
        let names = |by| {
            rows(by)
                .into_iter()
                .map(|group| group.name.unwrap_or_else(|| "-".into()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(CostGrouping::Provider),
            ["claude", "codex"],
            "the most expensive row is not first"
        );
        assert_eq!(
            names(CostGrouping::Agent),
            ["claude-1", "codex-1", "claude-2"],
            "rows without a price are not ordered by tokens"
        );
        assert_eq!(names(CostGrouping::Mission), ["M1", "-"]);
        assert_eq!(names(CostGrouping::Model), ["-"]);
        let claude = &rows(CostGrouping::Provider)[0].sum;
        assert_eq!(
            (claude.tasks, claude.unpriced),
            (1, 50),
            "two attempts on one task count as one task"
        );
        assert_eq!(
            claude.price(),
            PriceState::Known {
                micro_usd: 5,
                unpriced: 50
            }
        );
        assert_eq!(
            rows(CostGrouping::Provider)[1].sum.price(),
            PriceState::Unknown
        );
        assert_eq!(CostSum::default().price(), PriceState::Nothing);
        assert_eq!(sum(entries.iter(), &none).tasks, 2);
    }

    #[test]
    fn the_share_of_cached_input_is_known_only_if_there_was_a_cache() {
        let cached = |input, cached_input, cache_write| {
            let usage = Usage {
                input,
                cached_input,
                cache_write,
                ..Usage::default()
            };
            CostSum {
                spent: Spend {
                    usage,
                    ..Spend::default()
                },
                ..CostSum::default()
            }
            .cached_percent()
        };
        assert_eq!(cached(100, 0, 0), None);
        assert_eq!(cached(100, 0, 100), Some(0));
        assert_eq!(cached(20, 71, 9), Some(71));
    }

    #[test]
    fn the_rate_is_the_spending_rate_of_the_last_hour() {
        let mut ledger = SpendLedger::default();
        let one = AttemptId(1);
        assert_eq!(
            ledger.spend_rate(at_wall(10 * HOUR_MS)).total_hourly_rate(),
            None,
            "nothing was spent"
        );
        ledger.add_payment(10 * HOUR_MS + 30_000, one, 100, "acme".into());
        assert_eq!(
            ledger
                .spend_rate(at_wall(10 * HOUR_MS + 40_000))
                .total_hourly_rate(),
            None,
            "there is a rate within the first minute"
        );
        assert_eq!(
            ledger
                .spend_rate(at_wall(10 * HOUR_MS + 6 * MINUTE_MS))
                .total_hourly_rate(),
            Some(1_000)
        );
        assert_eq!(
            ledger.spend_rate(at_wall(10 * HOUR_MS + 6 * MINUTE_MS)),
            ledger.spend_rate(at_wall(10 * HOUR_MS + 6 * MINUTE_MS + 59_000)),
            "the rate changes within a minute"
        );
        ledger.add_payment(
            10 * HOUR_MS + 30 * MINUTE_MS,
            AttemptId(2),
            300,
            "acme".into(),
        );
        let rate = ledger.spend_rate(at_wall(10 * HOUR_MS + 40 * MINUTE_MS));
        assert_eq!(
            (
                rate.total_hourly_rate(),
                rate.hourly_rate(rate.micro_usd_of(one))
            ),
            (Some(600), Some(150)),
            "an attempt's rate is not its share of the whole"
        );
        assert_eq!(
            ledger
                .spend_rate(at_wall(11 * HOUR_MS + 20 * MINUTE_MS))
                .total_hourly_rate(),
            Some(360),
            "spending of more than an hour ago counts"
        );
        assert_eq!(
            ledger.spend_rate(at_wall(13 * HOUR_MS)).total_hourly_rate(),
            None,
            "an old rate still counts"
        );
        // A clock that is set back gives no rate from the time before.
        assert_eq!(
            ledger.spend_rate(at_wall(9 * HOUR_MS)).total_hourly_rate(),
            None
        );
    }

    #[test]
    fn the_rate_of_an_attempt_is_its_own_spending_of_the_last_hour() {
        let (mut ledger, [one, other]) = (SpendLedger::default(), [AttemptId(1), AttemptId(2)]);
        // In one minute, turn by turn.
        for (attempt, micro) in [(one, 10), (other, 300), (one, 90)] {
            ledger.add_payment(10 * HOUR_MS, attempt, micro, "acme".into());
        }
        let rate = ledger.spend_rate(at_wall(10 * HOUR_MS + 30 * MINUTE_MS));
        assert_eq!(
            (
                rate.micro_usd_of(one),
                rate.micro_usd_of(other),
                rate.total_hourly_rate()
            ),
            (100, 300, Some(800))
        );
        // Spending that is nearly an hour old counts, even if others spent money since.
        ledger.add_payment(10 * HOUR_MS + 50 * MINUTE_MS, one, 100, "acme".into());
        assert_eq!(
            ledger
                .spend_rate(at_wall(10 * HOUR_MS + 50 * MINUTE_MS))
                .total_hourly_rate(),
            Some(600)
        );
        // A clock that is set back ignores spending that lies in its future.
        assert_eq!(
            ledger
                .spend_rate(at_wall(10 * HOUR_MS + 40 * MINUTE_MS))
                .total_hourly_rate(),
            Some(600)
        );
        assert_eq!(
            ledger
                .spend_rate(at_wall(10 * HOUR_MS + 24 * MINUTE_MS))
                .total_hourly_rate(),
            Some(1_000)
        );
    }

    /// Work that goes on in another attempt is not lost. All other causes count as lost.
    #[test]
    fn work_that_continues_in_another_attempt_is_not_lost() {
        let kept = [
            AttemptCause::Submitted,
            AttemptCause::Reported,
            AttemptCause::Rested,
            AttemptCause::Parked,
            AttemptCause::ContextFull,
        ];
        assert!(
            kept.into_iter()
                .all(|attempt_cause| !is_lost(attempt_cause))
        );
        assert!(
            [
                AttemptCause::Crashed,
                AttemptCause::Rejected,
                AttemptCause::Stopped,
                AttemptCause::OverBudget
            ]
            .into_iter()
            .all(is_lost)
        );
    }

    #[test]
    fn the_spending_line_has_one_step_per_minute_and_restarts_each_day() {
        let mut ledger = SpendLedger::default();
        for (wall, micro) in [
            (DAY_MS + 5, 10),
            (DAY_MS + 9, 5),
            (DAY_MS + 2 * MINUTE_MS, 7),
        ] {
            ledger.add_payment(wall, AttemptId(1), micro, "acme".into());
        }
        assert_eq!(
            ledger.cumulative_cost(1),
            [(DAY_MS, 0), (DAY_MS, 15), (DAY_MS + 2 * MINUTE_MS, 22)]
        );
        assert_eq!(ledger.cumulative_cost(2), []);
        ledger.add_payment(2 * DAY_MS, AttemptId(1), 3, "acme".into());
        assert_eq!(
            (ledger.cumulative_cost(1), ledger.cumulative_cost(2)),
            (vec![], vec![(2 * DAY_MS, 0), (2 * DAY_MS, 3)])
        );
    }

    #[test]
    fn the_spending_line_is_split_into_bands_by_provider() {
        let mut ledger = SpendLedger::default();
        for (wall, provider, micro) in [
            (DAY_MS + 5, "claude", 10),
            (DAY_MS + 9, "codex", 25),
            (DAY_MS + 2 * MINUTE_MS, "claude", 7),
            (DAY_MS + 4 * MINUTE_MS, "claude", 30),
            (DAY_MS + 4 * MINUTE_MS, "acme", 1),
        ] {
            ledger.add_payment(wall, AttemptId(1), micro, provider.into());
        }
        let bands = ledger.provider_bands(1);
        let actual: Vec<(&str, &[u64])> = bands
            .iter()
            .map(|band| (&*band.name, &*band.micro_usd))
            .collect();
        let expected: [(&str, &[u64]); 3] = [
            ("claude", &[0, 10, 17, 47]),
            ("codex", &[0, 25, 25, 25]),
            ("acme", &[0, 0, 0, 1]),
        ];
        assert_eq!(actual, expected, "the most expensive band is not first");
        for (nth, (_, sum)) in ledger.cumulative_cost(1).into_iter().enumerate() {
            assert_eq!(
                bands.iter().map(|band| band.micro_usd[nth]).sum::<u64>(),
                sum,
                "the bands do not add up to the line"
            );
        }
        assert_eq!(ledger.provider_bands(2), []);
    }

    #[test]
    fn the_forecast_says_when_the_current_rate_reaches_the_cap() {
        let now = at_wall(DAY_MS + 20 * HOUR_MS + 30_000);
        let cases = [
            (4, 4, None, Some(CapForecast::Reached)),
            (5, 4, Some(1), Some(CapForecast::Reached)),
            (1, 4, None, None),
            (1, 4, Some(0), None),
            (
                1,
                4,
                Some(2),
                Some(CapForecast::ReachedAt {
                    unix_ms: DAY_MS + 21 * HOUR_MS + 30 * MINUTE_MS,
                }),
            ),
            (
                1,
                4,
                Some(1),
                Some(CapForecast::ReachedAt {
                    unix_ms: DAY_MS + 23 * HOUR_MS,
                }),
            ),
            // Eight and a half minutes are rounded up, so that the forecast is never too early.
            (
                3,
                4,
                Some(7),
                Some(CapForecast::ReachedAt {
                    unix_ms: DAY_MS + 20 * HOUR_MS + 9 * MINUTE_MS,
                }),
            ),
            (0, 4, Some(1), Some(CapForecast::NotToday)),
            (0, u64::MAX, Some(1), Some(CapForecast::NotToday)),
        ];
        for (spent, cap, rate, expected) in cases {
            assert_eq!(
                forecast(spent, cap, rate, now),
                expected,
                "{spent} of {cap} at {rate:?}"
            );
        }
    }
}
