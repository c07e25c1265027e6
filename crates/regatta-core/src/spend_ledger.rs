//! The spending that the event log contains, by attempt and day, and the rate of the last hour.
//!
//! Each `budget.spent` event names an attempt and an amount, and a [`SpendLedger`] collects these
//! events. Nothing is stored a second time. The tables, lines and forecasts that people see are
//! made from the ledger in regatta-api.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::budget::Spend;
use crate::event::{Event, Recorded};
use crate::ids::{AttemptId, Now, TaskId};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
/// Time over which money must have been spent before a rate is shown. A rate of a few minutes says
/// nothing about the next hour.
const MIN_RATE_PERIOD_MS: u64 = 15 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The spending that the event log contains since the beginning of a day.
#[derive(Clone, Debug, Default)]
pub struct SpendLedger {
    /// The spending of each attempt, by day (days since 1970).
    spend_by_day: BTreeMap<(u64, AttemptId), Spend>,
    /// Money in millionths of a US dollar, spent on the newest day, by minute and provider.
    minute_costs: BTreeMap<(u64, String), u64>,
    /// Money spent in the last hours: the minute, the attempt, and the amount in millionths of a US
    /// dollar.
    recent_costs: VecDeque<(u64, AttemptId, u64)>,
    /// The time at which each task last ended, in Unix milliseconds.
    task_ends: BTreeMap<TaskId, u64>,
}

impl SpendLedger {
    /// Adds an event of the log. `provider` is the provider that is paid, if the event is about
    /// spending.
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
    pub fn add_payment(
        &mut self,
        unix_ms: u64,
        attempt: AttemptId,
        micro_usd: u64,
        provider: String,
    ) {
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

    /// Removes everything from before a day.
    pub fn forget_before(&mut self, day: u64) {
        self.spend_by_day = self.spend_by_day.split_off(&(day, AttemptId(0)));
        self.task_ends
            .retain(|_, ended_unix_ms| *ended_unix_ms / DAY_MS >= day);
    }

    /// Returns what each attempt has spent since the start of a day.
    pub fn spend_since(&self, day: u64) -> BTreeMap<AttemptId, Spend> {
        let mut found: BTreeMap<AttemptId, Spend> = BTreeMap::new();
        for ((_, attempt), spend) in self.spend_by_day.range((day, AttemptId(0))..) {
            let sum = found.entry(*attempt).or_default();
            *sum = sum.plus(spend);
        }
        found
    }

    /// Returns the tasks that ended since the start of a day, with the times of their ends, the
    /// latest last.
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

    /// Returns what was spent on a day, as minute, provider and amount in millionths of a US dollar.
    pub fn minute_costs(&self, day: u64) -> impl Iterator<Item = (u64, &str, u64)> {
        self.minute_costs
            .iter()
            .filter(move |((minute, _), _)| minute / DAY_MS == day)
            .map(|((minute, provider), micro_usd)| (*minute, &**provider, *micro_usd))
    }

    /// Returns the rate of spending in the last hour, or since the first spending in that hour. The
    /// rate is unknown if that spending was less than a minute ago.
    pub fn spend_rate(&self, now: Now) -> SpendRate {
        let since = now.unix_ms.saturating_sub(HOUR_MS);
        let recent = || {
            self.recent_costs
                .iter()
                .filter(|(minute, ..)| (since..=now.unix_ms).contains(minute))
        };
        // Round down to the minute, so that the rate stays the same for a minute if nothing is
        // spent.
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

/// The recent spending of each attempt, and the length of the time in which the money was spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendRate {
    micro_usd: BTreeMap<AttemptId, u64>,
    period_ms: u64,
}

impl SpendRate {
    /// Returns what one attempt spent recently, in millionths of a US dollar.
    pub fn micro_usd_of(&self, attempt: AttemptId) -> u64 {
        self.micro_usd.get(&attempt).copied().unwrap_or(0)
    }

    /// Returns an amount that was spent recently as a rate, in millionths of a US dollar per hour.
    /// `None` if the time was too short or nothing was spent.
    pub fn hourly_rate(&self, micro_usd: u64) -> Option<u64> {
        if self.period_ms < MIN_RATE_PERIOD_MS || micro_usd == 0 {
            return None;
        }
        let rate = u128::from(micro_usd) * u128::from(HOUR_MS) / u128::from(self.period_ms);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the rate of all attempts together, in millionths of a US dollar per hour.
    pub fn total_hourly_rate(&self) -> Option<u64> {
        self.hourly_rate(self.micro_usd.values().sum())
    }
}
