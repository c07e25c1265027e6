//! The prices of models, from which Regatta computes the cost of programs that do not report their
//! cost. The configuration may replace or add prices.

use regatta_core::agent_protocol::Usage;
use serde::{Deserialize, Serialize};

/// The prices for a model, or for several models with similar names, in US dollars for a million
/// tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The model's name, in which `*` stands for any text. The first price in the list whose name
    /// matches applies.
    pub model: String,
    pub input: f64,
    pub output: f64,
    /// The price of input that was read from a cache. `None` means a tenth of `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    /// The price of input that was written to a cache. `None` means the same price as `input`.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl ModelPrice {
    /// Returns whether the price can be used: it names a model, and all its numbers are finite and
    /// not negative.
    pub fn is_valid(&self) -> bool {
        let all = [
            Some(self.input),
            Some(self.output),
            self.cached_input,
            self.cache_write,
        ];
        !self.model.is_empty() && all.into_iter().flatten().all(|x| x.is_finite() && x >= 0.0)
    }
}

/// Returns the prices that providers published in November 2025.
pub fn default_prices() -> Vec<ModelPrice> {
    [
        ("claude-opus-4-5*", 5.0, 25.0, 0.5, 6.25),
        ("claude-opus-*", 15.0, 75.0, 1.5, 18.75),
        ("claude-sonnet-*", 3.0, 15.0, 0.3, 3.75),
        ("claude-haiku-4-5*", 1.0, 5.0, 0.1, 1.25),
        ("gpt-5*-mini*", 0.25, 2.0, 0.025, 0.25),
        ("gpt-5*-nano*", 0.05, 0.4, 0.005, 0.05),
        ("gpt-5*", 1.25, 10.0, 0.125, 1.25),
        ("gemini-2.5-pro*", 1.25, 10.0, 0.31, 1.25),
        ("gemini-2.5-flash-lite*", 0.1, 0.4, 0.025, 0.1),
        ("gemini-2.5-flash*", 0.3, 2.5, 0.075, 0.3),
    ]
    .map(|(model, input, output, cached, write)| ModelPrice {
        model: model.into(),
        input,
        output,
        cached_input: Some(cached),
        cache_write: Some(write),
    })
    .to_vec()
}

/// Returns the cost in millionths of a dollar of using `model`, or `None` when its price is not
/// known.
pub fn cost(prices: &[ModelPrice], model: &str, usage: &Usage) -> Option<u64> {
    // Some programs write the provider before the model's name, or the size of the context window
    // after it. Both are cut off before the name is looked up.
    let model = model.rsplit('/').next().unwrap_or(model);
    let price = prices
        .iter()
        .find(|price| regatta_core::policy::matches_glob(&price.model, model))?;
    let sum = usage.input as f64 * price.input
        + usage.cached_input as f64 * price.cached_input.unwrap_or(price.input / 10.0)
        + usage.cache_write as f64 * price.cache_write.unwrap_or(price.input)
        + usage.output as f64 * price.output;
    Some(sum.round() as u64) // dollars per million tokens equal millionths of a dollar per token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_model_has_a_price_and_an_unknown_one_has_none() {
        let usage = Usage {
            input: 1_000,
            cached_input: 10_000,
            cache_write: 0,
            output: 100,
            micro_usd: None,
        };
        assert_eq!(
            cost(&default_prices(), "claude-sonnet-4-5-20250929", &usage),
            Some(3_000 + 3_000 + 1_500)
        );
        assert_eq!(
            cost(&default_prices(), "anthropic/claude-sonnet-4-5", &usage),
            Some(7_500)
        );
        assert_eq!(
            cost(&default_prices(), "gpt-5-mini", &usage),
            Some(250 + 250 + 200)
        );
        assert_eq!(
            cost(&default_prices(), "somebody-elses-model", &usage),
            None
        );
        assert_eq!(cost(&[], "gpt-5", &usage), None);
    }

    #[test]
    fn the_first_matching_price_counts_and_a_price_is_a_finite_number() {
        let own = ModelPrice {
            model: "gpt-5*".into(),
            input: 1.0,
            output: 2.0,
            cached_input: None,
            cache_write: None,
        };
        let usage = Usage {
            input: 1_000,
            cached_input: 10_000,
            output: 100,
            ..Usage::default()
        };
        assert_eq!(
            cost(
                &[vec![own.clone()], default_prices()].concat(),
                "gpt-5-mini",
                &usage
            ),
            Some(1_000 + 1_000 + 200)
        );
        assert!(own.is_valid() && default_prices().iter().all(ModelPrice::is_valid));
        for (input, output) in [(-1.0, 0.0), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert!(
                !ModelPrice {
                    input,
                    output,
                    ..own.clone()
                }
                .is_valid()
            );
        }
    }
}
