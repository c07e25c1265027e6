//! Views of cost: the amount that was spent since a day, the things on which it was spent, the
//! results that were achieved, and the time when today's limit will be reached.

use regatta_core::budget::format_dollars;
use regatta_core::plural;
use serde::{Deserialize, Serialize};

use crate::cost_tables::{CapForecast, CostGrouping, CostSum, PriceState};

/// The amounts that were spent since a day, in total and broken down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostView {
    /// The number of days before today whose cost is included. A day begins at midnight UTC.
    pub days: u32,
    /// The time when the first of the requested days began, in milliseconds since 1970.
    pub since_wall: u64,
    pub tables: Vec<CostTable>,
    pub total: CostSum,
    /// Today's limit in millionths of a dollar; empty if there is no limit, or if more days than
    /// today are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The time when today's limit is expected to be reached; empty without a limit, or if the rate
    /// of spending is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<CapForecast>,
    pub came: SpendResultsView,
}

/// A table that breaks down the total cost by one property, such as the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostTable {
    pub by: CostGrouping,
    pub rows: Vec<CostRow>,
}

/// One row of a cost table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostRow {
    /// The name of the provider, agent, model or mission, or a text such as `no mission`.
    pub name: String,
    /// An addition to `name`: a mission's title, or an agent's provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    #[serde(flatten)]
    pub sum: CostSum,
}

/// The results that were achieved with the money that was spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpendResultsView {
    /// The total cost of the tasks whose work landed in the requested days. Includes the cost of
    /// these tasks before the first requested day.
    pub landed: CostSum,
    /// The average cost of a landed task in millionths of a dollar; empty if the price of one of
    /// the tasks is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<u64>,
    /// The cost, in the requested days, of failed attempts and of tasks that failed or were
    /// dropped.
    pub wasted: CostSum,
    /// The number of failed attempts. `dropped_tasks` is the number of failed or dropped tasks.
    pub failed_attempts: usize,
    pub dropped_tasks: usize,
    /// The number of lines that landed, with the number of tokens per line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LandedLinesView>,
}

/// The number of lines that landed work added or removed, and the number of tokens that each line
/// cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandedLinesView {
    /// The number of landed tasks whose lines were counted. Only the latest tasks are counted.
    pub tasks: usize,
    pub lines: u64,
    pub tokens_each: u64,
}

/// Returns a cost as a short text. If the price is unknown, the text says so instead of showing
/// zero. `tokens` formats a number of tokens.
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

/// Returns a text that says when today's limit will be reached. `clock` formats a time for the
/// reader's time zone.
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
    /// Returns sentences for people that describe the results. `tokens` formats a number of tokens.
    pub fn sentences(&self, tokens: impl Fn(u64) -> String + Copy) -> Vec<String> {
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
                    " · {} tokens for each of {}{sample}",
                    tokens(landed_lines.tokens_each),
                    plural::count(landed_lines.lines, "line")
                )
            });
            sentences.push(format!(
                "landed {} · {each}{}",
                plural::count(self.landed.tasks, "task"),
                lines.unwrap_or_default()
            ));
        }
        if self.failed_attempts + self.dropped_tasks > 0 {
            let parts = [
                (self.failed_attempts > 0)
                    .then(|| plural::count(self.failed_attempts, "failed attempt")),
                (self.dropped_tasks > 0).then(|| {
                    format!(
                        "{} dropped or failed",
                        plural::count(self.dropped_tasks, "task")
                    )
                }),
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
