//! Views of cost: the amount since a day, its breakdown, its results, and when the ceiling is
//! reached.

use regatta_core::budget::format_dollars;
use regatta_core::cost::{CapForecast, CostGrouping, CostSum, PriceState};
use serde::{Deserialize, Serialize};

/// The cost since a day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostView {
    /// Number of days before today that are included; days are in UTC.
    pub days: u32,
    /// The date on which the first of these days began.
    pub since_wall: u64,
    pub tables: Vec<CostTable>,
    pub total: CostSum,
    /// Today's ceiling in millionths of a dollar, if only today is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// When the ceiling is reached, if there is a ceiling and a rate to compute it from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<CapForecast>,
    pub came: SpendResultsView,
}

/// The same sum, broken down by one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostTable {
    pub by: CostGrouping,
    pub rows: Vec<CostRow>,
}

/// A row of a breakdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostRow {
    /// A provider, an agent, a model or a mission, or the word for none.
    pub name: String,
    /// A mission's title, or an agent's provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    #[serde(flatten)]
    pub sum: CostSum,
}

/// The results of the money spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpendResultsView {
    /// The total cost, from beginning to end, of the tasks whose work landed in this time.
    pub landed: CostSum,
    /// Average cost of these tasks in millionths of a dollar, if each of them has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<u64>,
    /// Cost in this time of attempts that failed and of tasks that were dropped or failed.
    pub wasted: CostSum,
    /// Number of those attempts and tasks.
    pub failed_attempts: usize,
    pub dropped_tasks: usize,
    /// Landed lines, with the cost per line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LandedLinesView>,
}

/// Lines that landed work added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandedLinesView {
    /// Number of landed tasks that were counted, starting with the latest.
    pub tasks: usize,
    pub lines: u64,
    pub tokens_each: u64,
}

/// Returns a cost in a few words. An unknown price is not shown as zero.
pub fn price_text(sum: &CostSum, tokens: impl Fn(u64) -> String) -> String {
    match sum.price() {
        PriceState::Nothing => "-".into(),
        PriceState::Unknown => "no price reported".into(),
        PriceState::Known {
            micro_usd,
            unpriced: 0,
        } => format_dollars(micro_usd),
        PriceState::Known {
            micro_usd,
            unpriced,
        } => {
            format!(
                "{} + {} tok unpriced",
                format_dollars(micro_usd),
                tokens(unpriced)
            )
        }
    }
}

/// Returns in words when a ceiling is reached. `clock` formats a date for the reader's own clock.
pub fn forecast_text(cap_forecast: &CapForecast, clock: impl Fn(u64) -> String) -> String {
    match cap_forecast {
        CapForecast::Reached => "the cap is reached".into(),
        CapForecast::ReachedAt { unix_ms: wall } => {
            format!("cap reached about {} at this rate", clock(*wall))
        }
        CapForecast::NotToday => "the cap is not reached today at this rate".into(),
    }
}

impl SpendResultsView {
    /// Returns the results as sentences.
    pub fn sentences(&self, tokens: impl Fn(u64) -> String + Copy) -> Vec<String> {
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut sentences = Vec::new();
        if self.landed.tasks > 0 {
            let each = match self.each {
                Some(each) => format!("{} each", format_dollars(each)),
                None => price_text(&self.landed, tokens),
            };
            let lines = self.lines.map(|landed_lines| {
                let sample = if landed_lines.tasks < self.landed.tasks {
                    format!(" of the last {}", landed_lines.tasks)
                } else {
                    String::new()
                };
                format!(
                    " · {} tokens for each of {} lines{sample}",
                    tokens(landed_lines.tokens_each),
                    landed_lines.lines
                )
            });
            sentences.push(format!(
                "landed {} · {each}{}",
                counted(self.landed.tasks, "task"),
                lines.unwrap_or_default()
            ));
        }
        if self.failed_attempts + self.dropped_tasks > 0 {
            let parts = [
                (self.failed_attempts > 0).then(|| counted(self.failed_attempts, "failed attempt")),
                (self.dropped_tasks > 0)
                    .then(|| format!("{} dropped or failed", counted(self.dropped_tasks, "task"))),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            sentences.push(format!(
                "wasted {} · {}",
                price_text(&self.wasted, tokens),
                parts.join(", ")
            ));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_sum(tasks: usize, input: u64, micro_usd: Option<u64>, unpriced: u64) -> CostSum {
        let mut cost_sum = CostSum {
            tasks,
            unpriced,
            ..CostSum::default()
        };
        (cost_sum.spent.usage.input, cost_sum.spent.usage.micro_usd) = (input, micro_usd);
        cost_sum
    }

    #[test]
    fn prices_and_forecasts_are_described_in_words() {
        let price = |cost_sum: CostSum| price_text(&cost_sum, |n| n.to_string());
        assert_eq!(price(test_sum(0, 0, None, 0)), "-");
        assert_eq!(price(test_sum(1, 9, None, 9)), "no price reported");
        assert_eq!(
            price(test_sum(1, 9, Some(0), 0)),
            "$0.00",
            "a reported price of zero is shown as zero"
        );
        assert_eq!(price(test_sum(1, 9, Some(2_840_000), 0)), "$2.84");
        assert_eq!(
            price(test_sum(1, 9, Some(2_840_000), 7)),
            "$2.84 + 7 tok unpriced"
        );
        let text = |cap_forecast| forecast_text(&cap_forecast, |wall| format!("[{wall}]"));
        assert_eq!(
            text(CapForecast::ReachedAt { unix_ms: 7 }),
            "cap reached about [7] at this rate"
        );
        assert_eq!(text(CapForecast::Reached), "the cap is reached");
    }

    #[test]
    fn landed_and_wasted_cost_is_described_in_words() {
        let plain = |n: u64| n.to_string();
        assert_eq!(
            SpendResultsView::default().sentences(plain),
            Vec::<String>::new()
        );
        let results = SpendResultsView {
            landed: test_sum(2, 400, Some(3_000_000), 0),
            each: Some(1_500_000),
            wasted: test_sum(1, 30, None, 30),
            failed_attempts: 1,
            dropped_tasks: 2,
            lines: Some(LandedLinesView {
                tasks: 1,
                lines: 10,
                tokens_each: 40,
            }),
        };
        assert_eq!(
            results.sentences(plain),
            [
                "landed 2 tasks · $1.50 each · 40 tokens for each of 10 lines of the last 1",
                "wasted no price reported · 1 failed attempt, 2 tasks dropped or failed"
            ]
        );
    }
}
