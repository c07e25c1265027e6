//! Cost: the spending since a day, by provider, mission, agent or model, its results, and a
//! forecast of when a cap is reached at the present rate.
//!
//! The log is the record: each `budget.spent` event names an attempt and an amount. A [`Book`]
//! collects these events, [`table`] sums them up, and nothing is stored a second time. A missing
//! price never counts as zero, so tokens without a price are counted separately.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::attempt::Cause;
use crate::budget::Spend;
use crate::event::{Event, Recorded};
use crate::ids::{AgentName, AttemptId, MissionId, Now, TaskId};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The key by which spending is grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum By {
    #[default]
    Provider,
    Mission,
    Agent,
    Model,
}

impl By {
    pub const ALL: [By; 4] = [By::Provider, By::Mission, By::Agent, By::Model];

    /// Returns the key's name, as people type it.
    pub fn name(self) -> &'static str {
        match self {
            By::Provider => "provider",
            By::Mission => "mission",
            By::Agent => "agent",
            By::Model => "model",
        }
    }
}

/// The spending in the log since the beginning of a day.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Spending of each attempt, by day.
    spends: BTreeMap<(u64, AttemptId), Spend>,
    /// Money of the newest day, by minute and provider.
    minutes: BTreeMap<(u64, String), u64>,
    /// Money of the last hours: the minute, the attempt, and the amount.
    recent: VecDeque<(u64, AttemptId, u64)>,
    /// The last time at which each task ended.
    ended: BTreeMap<TaskId, u64>,
}

impl Book {
    /// Adds an event. `provider` is the provider that is paid, for an event of spending.
    pub fn fold(&mut self, recorded: &Recorded, provider: Option<String>) {
        let wall = recorded.now.wall;
        match &recorded.event {
            Event::BudgetSpent(it) => {
                let sum = self.spends.entry((*it.day(), *it.attempt())).or_default();
                *sum = sum.plus(it.spend());
                if let Some(micro) = it.spend().usage.micro_usd.filter(|it| *it > 0) {
                    self.paid(wall, *it.attempt(), micro, provider.unwrap_or_else(|| "not known".into()));
                }
            }
            Event::TaskCompleted(it) => _ = self.ended.insert(*it.task(), wall),
            Event::TaskFailed(it) => _ = self.ended.insert(*it.task(), wall),
            Event::TaskCancelled(it) => _ = self.ended.insert(*it.task(), wall),
            _ => {}
        }
    }

    fn paid(&mut self, wall: u64, attempt: AttemptId, micro: u64, provider: String) {
        let minute = wall - wall % MINUTE;
        let day = wall / DAY;
        if self.minutes.last_key_value().is_some_and(|it| it.0.0 / DAY != day) {
            self.minutes.clear();
        }
        *self.minutes.entry((minute, provider)).or_default() += micro;
        match self.recent.back_mut().filter(|it| it.0 == minute && it.1 == attempt) {
            Some(last) => last.2 += micro,
            None => self.recent.push_back((minute, attempt, micro)),
        }
        while self.recent.front().is_some_and(|it| it.0 + 2 * HOUR < minute) {
            self.recent.pop_front();
        }
    }

    /// Removes everything before a day.
    pub fn forget_before(&mut self, day: u64) {
        self.spends = self.spends.split_off(&(day, AttemptId(0)));
        self.ended.retain(|_, wall| *wall / DAY >= day);
    }

    /// Returns the spending of each attempt since the start of a day.
    pub fn since(&self, day: u64) -> BTreeMap<AttemptId, Spend> {
        let mut found: BTreeMap<AttemptId, Spend> = BTreeMap::new();
        for ((_, attempt), spend) in self.spends.range((day, AttemptId(0))..) {
            let sum = found.entry(*attempt).or_default();
            *sum = sum.plus(spend);
        }
        found
    }

    /// Returns the tasks that ended since the start of a day, with their times, the latest last.
    pub fn ended_since(&self, day: u64) -> Vec<(u64, TaskId)> {
        let mut found: Vec<(u64, TaskId)> =
            self.ended.iter().filter(|it| it.1 / DAY >= day).map(|it| (*it.1, *it.0)).collect();
        found.sort_unstable();
        found
    }

    /// Returns the cumulative cost of a day, for each minute in which money was spent.
    pub fn line(&self, day: u64) -> Vec<(u64, u64)> {
        let mut line: Vec<(u64, u64)> = Vec::new();
        for (minute, _, micro) in self.minutes_of(day) {
            match line.last_mut() {
                None => line.extend([(minute, 0), (minute, micro)]), // the line starts at zero
                Some(last) if last.0 == minute => last.1 += micro,
                Some(last) => {
                    let sum = last.1 + micro;
                    line.push((minute, sum));
                }
            }
        }
        line
    }

    /// Returns the same line split by provider, the most expensive first. Each provider has a sum
    /// for every point of the line.
    pub fn bands(&self, day: u64) -> Vec<Band> {
        let mut bands: BTreeMap<&str, Vec<u64>> = self.minutes_of(day).map(|it| (it.1, vec![0])).collect();
        let mut last = None;
        for (minute, name, micro) in self.minutes_of(day) {
            if last.replace(minute) != Some(minute) {
                bands.values_mut().for_each(|it| it.extend(it.last().copied()));
            }
            if let Some(sum) = bands.get_mut(name).and_then(|it| it.last_mut()) {
                *sum += micro;
            }
        }
        let band = |(name, micro_usd): (&str, _)| Band { name: name.to_owned(), micro_usd };
        let mut bands: Vec<Band> = bands.into_iter().map(band).collect();
        bands.sort_by_key(|it| std::cmp::Reverse(it.micro_usd.last().copied()));
        bands
    }

    fn minutes_of(&self, day: u64) -> impl Iterator<Item = (u64, &str, u64)> {
        self.minutes.iter().filter(move |it| it.0.0 / DAY == day).map(|it| (it.0.0, &*it.0.1, *it.1))
    }

    /// Returns the pace of the last hour, or of the part of it since the first spending. Less than
    /// a minute gives no pace.
    pub fn pace(&self, now: Now) -> Pace {
        let since = now.wall.saturating_sub(HOUR);
        let recent = || self.recent.iter().filter(|it| it.0 >= since && it.0 <= now.wall);
        // Rounded to the minute, so that the result does not change while nothing happens.
        let first = recent().map(|it| it.0).next().unwrap_or(now.wall);
        let over_ms = (now.wall - now.wall % MINUTE).saturating_sub(first);
        let mut micro: BTreeMap<AttemptId, u64> = BTreeMap::new();
        for (_, attempt, more) in recent() {
            *micro.entry(*attempt).or_default() += more;
        }
        Pace { micro, over_ms }
    }
}

/// A provider's part of a day's line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Band {
    pub name: String,
    /// Cumulative millionths of a dollar, for each point of the line.
    pub micro_usd: Vec<u64>,
}

/// Recent spending by attempt, and the time it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    micro: BTreeMap<AttemptId, u64>,
    over_ms: u64,
}

impl Pace {
    fn of(&self, attempt: AttemptId) -> u64 {
        self.micro.get(&attempt).copied().unwrap_or(0)
    }

    /// Returns millionths of a dollar per hour.
    fn rate(&self, micro: u64) -> Option<u64> {
        if self.over_ms < MINUTE || micro == 0 {
            return None;
        }
        let rate = u128::from(micro) * u128::from(HOUR) / u128::from(self.over_ms);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the rate of all attempts together.
    pub fn all(&self) -> Option<u64> {
        self.rate(self.micro.values().sum())
    }
}

/// The spending of an attempt, with the keys by which it can be grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub attempt: AttemptId,
    pub task: TaskId,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    pub provider: String,
    /// The model that answered, if its program reported it.
    pub model: Option<String>,
    pub spend: Spend,
    /// The work came to nothing.
    pub lost: bool,
}

/// A sum of spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CostSum"))]
pub struct Sum {
    /// Number of tasks that the spending belongs to.
    pub tasks: usize,
    pub spent: Spend,
    /// Tokens without a reported price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
    /// Millionths of a dollar per hour, at the pace of the last hour; absent if no money was spent
    /// in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(it: &u64) -> bool {
    *it == 0
}

/// The knowledge about a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// Nothing was used.
    Nothing,
    /// Tokens were used, and nobody reported their cost.
    Unknown,
    /// A known amount, and the number of tokens without a price.
    Known { micro_usd: u64, unpriced: u64 },
}

impl Sum {
    /// Returns the cost, as far as it is known.
    pub fn price(&self) -> Price {
        match self.spent.usage.micro_usd {
            Some(micro_usd) => Price::Known { micro_usd, unpriced: self.unpriced },
            None if self.spent.usage.tokens() == 0 => Price::Nothing,
            None => Price::Unknown,
        }
    }

    /// Returns the percentage of input that came from a cache; `None` if no cache was reported.
    pub fn cached(&self) -> Option<u64> {
        let usage = &self.spent.usage;
        let read = usage.input + usage.cached_input + usage.cache_write;
        (usage.cached_input + usage.cache_write > 0).then(|| usage.cached_input * 100 / read)
    }
}

/// One line of a table: a name and a sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// A provider, an agent, a model or a mission's number; absent if there is none.
    pub name: Option<String>,
    #[serde(flatten)]
    pub sum: Sum,
}

/// Adds up entries.
pub fn sum<'a>(entries: impl Iterator<Item = &'a Entry>, pace: &Pace) -> Sum {
    let (mut sum, mut tasks, mut recent) = (Sum::default(), BTreeSet::new(), 0);
    for it in entries {
        tasks.insert(it.task);
        sum.spent = sum.spent.plus(&it.spend);
        if it.spend.usage.micro_usd.is_none() {
            sum.unpriced += it.spend.usage.tokens();
        }
        recent += pace.of(it.attempt);
    }
    Sum { tasks: tasks.len(), rate: pace.rate(recent), ..sum }
}

/// Adds up entries by one key, the most expensive first, then by tokens.
pub fn table(entries: &[Entry], by: By, pace: &Pace) -> Vec<Row> {
    let mut groups: BTreeMap<Option<String>, Vec<&Entry>> = BTreeMap::new();
    for it in entries {
        let name = match by {
            By::Provider => Some(it.provider.clone()),
            By::Mission => it.mission.map(|it| it.to_string()),
            By::Agent => Some(it.agent.to_string()),
            By::Model => it.model.clone(),
        };
        groups.entry(name).or_default().push(it);
    }
    let row = |(name, of): (Option<String>, Vec<&Entry>)| Row { name, sum: sum(of.into_iter(), pace) };
    let mut rows: Vec<Row> = groups.into_iter().map(row).collect();
    let weight = |it: &Row| (it.sum.spent.usage.micro_usd, it.sum.spent.usage.tokens());
    rows.sort_by_key(|it| std::cmp::Reverse(weight(it)));
    rows
}

/// A forecast of when a day's cap is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "when")]
pub enum Forecast {
    /// The cap is reached.
    Reached,
    /// The approximate time at this rate.
    At { wall: u64 },
    /// Not before the end of the day (UTC) at this rate.
    NotToday,
}

/// Returns when a day's cap is reached; `None` without a rate.
pub fn forecast(spent: u64, cap: u64, rate: Option<u64>, now: Now) -> Option<Forecast> {
    if spent >= cap {
        return Some(Forecast::Reached);
    }
    let rate = u128::from(rate.filter(|it| *it > 0)?);
    let left = u128::from(cap - spent) * u128::from(HOUR) / rate;
    let minute = now.wall - now.wall % MINUTE;
    let day_ends = (now.wall / DAY + 1) * DAY;
    let wall = u64::try_from(left).ok().and_then(|it| minute.checked_add(it)).filter(|it| *it < day_ends);
    Some(wall.map_or(Forecast::NotToday, |it| Forecast::At { wall: it.div_ceil(MINUTE) * MINUTE }))
}

/// Returns whether an attempt's work came to nothing, judged by its cause of end. Work that went on
/// later did not.
pub fn is_lost(cause: Cause) -> bool {
    match cause {
        Cause::Submitted | Cause::Reported | Cause::Rested | Cause::Parked | Cause::ContextFull => false,
        Cause::GaveUp
        | Cause::Crashed
        | Cause::Invalid
        | Cause::Rejected
        | Cause::Blocked
        | Cause::NothingChanged
        | Cause::ScopeEscape
        | Cause::Lost
        | Cause::Stopped
        | Cause::Cancelled
        | Cause::Environment
        | Cause::TimedOut
        | Cause::Hung
        | Cause::OverBudget
        | Cause::Overloaded
        | Cause::Refused
        | Cause::Auth
        | Cause::BadConfig => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Usage;

    fn spend(input: u64, micro_usd: Option<u64>) -> Spend {
        Spend { usage: Usage { input, micro_usd, ..Usage::default() }, ..Spend::default() }
    }

    fn entry(attempt: u64, agent: &str, spend: Spend) -> Entry {
        Entry {
            attempt: AttemptId(attempt),
            task: TaskId(attempt.div_ceil(2)),
            mission: (attempt < 3).then_some(MissionId(1)),
            agent: AgentName::new(agent).unwrap(),
            provider: agent.split('-').next().unwrap().to_owned(),
            model: None,
            spend,
            lost: false,
        }
    }

    fn at(wall: u64) -> Now {
        Now { at: wall, wall }
    }

    #[test]
    fn rows_are_grouped_as_asked_and_unknown_prices_are_summed_separately() {
        let entries = [
            entry(1, "claude-1", spend(100, Some(5))),
            entry(2, "claude-2", spend(50, None)),
            entry(3, "codex-1", spend(900, None)),
        ];
        let none = Pace::default();
        let rows = |by| table(&entries, by, &none);
        let names = |by| rows(by).into_iter().map(|it| it.name.unwrap_or_else(|| "-".into())).collect::<Vec<_>>();
        assert_eq!(names(By::Provider), ["claude", "codex"], "the most expensive row is not first");
        assert_eq!(
            names(By::Agent),
            ["claude-1", "codex-1", "claude-2"],
            "rows without a price are not ordered by tokens"
        );
        assert_eq!(names(By::Mission), ["M1", "-"]);
        assert_eq!(names(By::Model), ["-"]);
        let claude = &rows(By::Provider)[0].sum;
        assert_eq!((claude.tasks, claude.unpriced), (1, 50), "two attempts on one task count as one task");
        assert_eq!(claude.price(), Price::Known { micro_usd: 5, unpriced: 50 });
        assert_eq!(rows(By::Provider)[1].sum.price(), Price::Unknown);
        assert_eq!(Sum::default().price(), Price::Nothing);
        assert_eq!(sum(entries.iter(), &none).tasks, 2);
    }

    #[test]
    fn the_share_of_cached_input_is_known_only_if_there_was_a_cache() {
        let cached = |input, cached_input, cache_write| {
            let usage = Usage { input, cached_input, cache_write, ..Usage::default() };
            Sum { spent: Spend { usage, ..Spend::default() }, ..Sum::default() }.cached()
        };
        assert_eq!(cached(100, 0, 0), None);
        assert_eq!(cached(100, 0, 100), Some(0));
        assert_eq!(cached(20, 71, 9), Some(71));
    }

    #[test]
    fn the_pace_is_the_spending_rate_of_the_last_hour() {
        let mut book = Book::default();
        let one = AttemptId(1);
        assert_eq!(book.pace(at(10 * HOUR)).all(), None, "nothing was spent");
        book.paid(10 * HOUR + 30_000, one, 100, "acme".into());
        assert_eq!(book.pace(at(10 * HOUR + 40_000)).all(), None, "there is a pace within the first minute");
        assert_eq!(book.pace(at(10 * HOUR + 6 * MINUTE)).all(), Some(1_000));
        assert_eq!(
            book.pace(at(10 * HOUR + 6 * MINUTE)),
            book.pace(at(10 * HOUR + 6 * MINUTE + 59_000)),
            "the pace changes within a minute"
        );
        book.paid(10 * HOUR + 30 * MINUTE, AttemptId(2), 300, "acme".into());
        let pace = book.pace(at(10 * HOUR + 40 * MINUTE));
        assert_eq!(
            (pace.all(), pace.rate(pace.of(one))),
            (Some(600), Some(150)),
            "an attempt's rate is not its share of the whole"
        );
        assert_eq!(book.pace(at(11 * HOUR + 20 * MINUTE)).all(), Some(360), "spending of more than an hour ago counts");
        assert_eq!(book.pace(at(13 * HOUR)).all(), None, "an old pace still counts");
        // A clock that is set back gives no pace from the time before.
        assert_eq!(book.pace(at(9 * HOUR)).all(), None);
    }

    #[test]
    fn the_pace_of_an_attempt_is_its_own_spending_of_the_last_hour() {
        let (mut book, [one, other]) = (Book::default(), [AttemptId(1), AttemptId(2)]);
        // In one minute, turn by turn.
        for (attempt, micro) in [(one, 10), (other, 300), (one, 90)] {
            book.paid(10 * HOUR, attempt, micro, "acme".into());
        }
        let pace = book.pace(at(10 * HOUR + 30 * MINUTE));
        assert_eq!((pace.of(one), pace.of(other), pace.all()), (100, 300, Some(800)));
        // Spending that is nearly an hour old counts, even if others spent money since.
        book.paid(10 * HOUR + 50 * MINUTE, one, 100, "acme".into());
        assert_eq!(book.pace(at(10 * HOUR + 50 * MINUTE)).all(), Some(600));
        // A clock that is set back ignores spending that lies in its future.
        assert_eq!(book.pace(at(10 * HOUR + 40 * MINUTE)).all(), Some(600));
        assert_eq!(book.pace(at(10 * HOUR + 24 * MINUTE)).all(), Some(1_000));
    }

    /// Work that goes on in another attempt is not lost. All other causes count as lost.
    #[test]
    fn work_that_continues_in_another_attempt_is_not_lost() {
        let kept = [Cause::Submitted, Cause::Reported, Cause::Rested, Cause::Parked, Cause::ContextFull];
        assert!(kept.into_iter().all(|it| !is_lost(it)));
        assert!([Cause::Crashed, Cause::Rejected, Cause::Stopped, Cause::OverBudget].into_iter().all(is_lost));
    }

    #[test]
    fn the_spending_line_has_one_step_per_minute_and_restarts_each_day() {
        let mut book = Book::default();
        for (wall, micro) in [(DAY + 5, 10), (DAY + 9, 5), (DAY + 2 * MINUTE, 7)] {
            book.paid(wall, AttemptId(1), micro, "acme".into());
        }
        assert_eq!(book.line(1), [(DAY, 0), (DAY, 15), (DAY + 2 * MINUTE, 22)]);
        assert_eq!(book.line(2), []);
        book.paid(2 * DAY, AttemptId(1), 3, "acme".into());
        assert_eq!((book.line(1), book.line(2)), (vec![], vec![(2 * DAY, 0), (2 * DAY, 3)]));
    }

    #[test]
    fn the_spending_line_is_split_into_bands_by_provider() {
        let mut book = Book::default();
        for (wall, provider, micro) in [
            (DAY + 5, "claude", 10),
            (DAY + 9, "codex", 25),
            (DAY + 2 * MINUTE, "claude", 7),
            (DAY + 4 * MINUTE, "claude", 30),
            (DAY + 4 * MINUTE, "acme", 1),
        ] {
            book.paid(wall, AttemptId(1), micro, provider.into());
        }
        let bands = book.bands(1);
        let seen: Vec<(&str, &[u64])> = bands.iter().map(|it| (&*it.name, &*it.micro_usd)).collect();
        let wanted: [(&str, &[u64]); 3] =
            [("claude", &[0, 10, 17, 47]), ("codex", &[0, 25, 25, 25]), ("acme", &[0, 0, 0, 1])];
        assert_eq!(seen, wanted, "the most expensive band is not first");
        for (nth, (_, sum)) in book.line(1).into_iter().enumerate() {
            assert_eq!(
                bands.iter().map(|it| it.micro_usd[nth]).sum::<u64>(),
                sum,
                "the bands do not add up to the line"
            );
        }
        assert_eq!(book.bands(2), []);
    }

    #[test]
    fn the_forecast_says_when_the_current_rate_reaches_the_cap() {
        let now = at(DAY + 20 * HOUR + 30_000);
        let cases = [
            (4, 4, None, Some(Forecast::Reached)),
            (5, 4, Some(1), Some(Forecast::Reached)),
            (1, 4, None, None),
            (1, 4, Some(0), None),
            (1, 4, Some(2), Some(Forecast::At { wall: DAY + 21 * HOUR + 30 * MINUTE })),
            (1, 4, Some(1), Some(Forecast::At { wall: DAY + 23 * HOUR })),
            // Eight and a half minutes are rounded up, so that the forecast is never too early.
            (3, 4, Some(7), Some(Forecast::At { wall: DAY + 20 * HOUR + 9 * MINUTE })),
            (0, 4, Some(1), Some(Forecast::NotToday)),
            (0, u64::MAX, Some(1), Some(Forecast::NotToday)),
        ];
        for (spent, cap, rate, said) in cases {
            assert_eq!(forecast(spent, cap, rate, now), said, "{spent} of {cap} at {rate:?}");
        }
    }
}
