//! The command `cost`, which prints the spending since a given day, the work that landed for this
//! money, and the time at which the daily budget will be reached.

use clap::{Args, ValueEnum};
use regatta_api::cost_tables::{CostGrouping, CostSum};
use regatta_api::view::{CostRow, CostView, forecast_text, price_text};
use regatta_api::{call, input};
use regatta_core::budget::format_dollars;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandResult, first_line, format_table_for, format_time_to_minute, window_width,
};
use crate::run_progress::format_tokens;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "cost",
    &["regatta cost", "regatta cost --by mission --since 7d"],
)];

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Grouping of the costs: one row per provider, mission, agent or model
    #[arg(long, value_enum, default_value_t = CostByArg::Provider)]
    pub(crate) by: CostByArg,
    /// First day to count: today, yesterday, 7d (days ago), 2w or a date such as 2026-07-01
    #[arg(long, value_name = "WHEN", value_parser = parse_days_since)]
    pub(crate) since: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostByArg {
    Provider,
    Mission,
    Agent,
    Model,
}

/// Parses the value of `--since`, a day in UTC, and returns the number of days between that day and
/// today.
pub(crate) fn parse_days_since(text: &str) -> Result<u32, String> {
    days_between(
        text,
        jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date(),
    )
}

fn days_between(text: &str, today: jiff::civil::Date) -> Result<u32, String> {
    let parse_count = |text: &str, days: u32| {
        text.parse::<u32>()
            .ok()
            .and_then(|number| number.checked_mul(days))
            .filter(|number| *number < 36_500)
    };
    let found = match text {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => match (text.strip_suffix('d'), text.strip_suffix('w')) {
            (Some(days), _) => parse_count(days, 1),
            (_, Some(weeks)) => parse_count(weeks, 7),
            _ => {
                let since = text.parse::<jiff::civil::Date>().ok();
                since.and_then(|date| u32::try_from(date.until(today).ok()?.get_days()).ok())
            }
        },
    };
    found.ok_or_else(|| {
        "write today, yesterday, 7d, 2w or a date in the past, such as 2026-07-01".into()
    })
}

/// Runs `regatta cost`.
pub(crate) fn cost(app: &CommandContext, args: &CostArgs) -> CommandResult {
    let client = app.client()?;
    let grouping = match args.by {
        CostByArg::Provider => CostGrouping::Provider,
        CostByArg::Mission => CostGrouping::Mission,
        CostByArg::Agent => CostGrouping::Agent,
        CostByArg::Model => CostGrouping::Model,
    };
    let request = input::CostQuery {
        days: args.since.unwrap_or(0),
        by: Some(grouping),
    };
    let reply: CallReply<CostView> = client.call(call::Cost(request))?;
    let cost = &reply.data;
    let next = match cost.cap {
        Some(_) => "regatta budget list",
        None => "regatta budget set day --usd 20",
    };
    app.output.print_answer("cost", cost, &[next.into()], |_| {
        draw_cost(cost, window_width(), format_time_to_minute)
    })
}

/// Draws the tables of `regatta cost` for a window of this width. `clock` formats Unix milliseconds
/// as a time of day in this machine's time zone.
pub(crate) fn draw_cost(
    cost: &CostView,
    window: Option<usize>,
    clock: impl Fn(u64) -> String,
) -> String {
    let day = i64::try_from(cost.since_wall)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let day = day.map_or_else(
        || "?".into(),
        |time| time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string(),
    );
    let since = if cost.days == 0 {
        "today".to_owned()
    } else {
        format!("since {day}")
    };
    let mut text = String::new();
    for (nth, table) in cost.tables.iter().enumerate() {
        let mut rows = vec![header_row(table.by.name())];
        rows.extend(
            table
                .rows
                .iter()
                .map(|cost| cost_row(&group_name(cost), &cost.sum)),
        );
        if nth == 0 {
            rows.push(total_row(cost, &since, &clock));
        }
        text += &format_table_for(&align_right(rows, 1..5), window);
        if nth == 0 {
            cost.came
                .sentences(format_tokens)
                .iter()
                .for_each(|sentence| text += &format!("{sentence}\n"));
        }
        text += if nth + 1 < cost.tables.len() {
            "\n"
        } else {
            ""
        };
    }
    text
}

fn header_row(grouping: &str) -> Vec<String> {
    [
        grouping, "tasks", "in tok", "out tok", "cache", "cost", "rate",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn group_name(cost: &CostRow) -> String {
    match cost.about.as_str() {
        "" => first_line(&cost.name),
        about => format!("{} {}", first_line(&cost.name), first_line(about)),
    }
}

/// Returns the cells of one row: name, tasks, input and output tokens, cached share, cost, and cost
/// per hour.
fn cost_row(name: &str, sum: &CostSum) -> Vec<String> {
    let usage = &sum.spent.usage;
    // Many programs report tokens only at the end of a turn (a prompt and its answer), and some
    // programs never do. A sum of zero tokens is therefore unknown, and printed as `-`.
    let token_text = |many: u64| {
        if usage.tokens() == 0 {
            "-".to_owned()
        } else {
            format_tokens(many)
        }
    };
    vec![
        name.to_owned(),
        sum.tasks.to_string(),
        token_text(usage.input + usage.cached_input + usage.cache_write),
        token_text(usage.output),
        sum.cached_percent()
            .map_or_else(|| "n/a".into(), |percent| format!("{percent} %")),
        price_text(sum, format_tokens),
        sum.hourly_rate.map_or_else(
            || "-".into(),
            |hourly_rate| format!("{}/h", format_dollars(hourly_rate)),
        ),
    ]
}

/// Returns the last row: the totals, the daily budget next to the cost, and when the budget will be
/// reached.
fn total_row(cost_view: &CostView, since: &str, clock: impl Fn(u64) -> String) -> Vec<String> {
    let mut row = cost_row(&format!("total {since}"), &cost_view.total);
    if let (Some(cap), Some(cost)) = (cost_view.cap, row.get_mut(5)) {
        let known = CostSum {
            unpriced: 0,
            ..cost_view.total
        };
        let unpriced = cost
            .strip_prefix(&price_text(&known, format_tokens))
            .unwrap_or_default()
            .to_owned();
        *cost = format!(
            "{} of {} cap{unpriced}",
            price_text(&known, format_tokens),
            format_dollars(cap)
        );
    }
    if let (Some(forecast), Some(rate)) = (&cost_view.forecast, row.get_mut(6)) {
        let forecast_line = forecast_text(forecast, clock);
        *rate = if cost_view.total.hourly_rate.is_some() {
            format!("{rate} · {forecast_line}")
        } else {
            forecast_line
        };
    }
    row
}

/// Pads the cells of these columns on the left, so that numbers are aligned to the right.
fn align_right(mut rows: Vec<Vec<String>>, columns: std::ops::Range<usize>) -> Vec<Vec<String>> {
    for at in columns {
        let width = rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|row| row.chars().count())
            .max()
            .unwrap_or(0);
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            *cell = format!("{cell:>width$}");
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use regatta_api::cost_tables::CapForecast;
    use regatta_api::view::{CostTable, SpendResultsView};

    use super::*;

    fn sum(
        tasks: usize,
        (input, cached, output): (u64, u64, u64),
        micro_usd: Option<u64>,
        rate: Option<u64>,
    ) -> CostSum {
        let mut cost_sum = CostSum {
            tasks,
            hourly_rate: rate,
            ..CostSum::default()
        };
        let usage = &mut cost_sum.spent.usage;
        (
            usage.input,
            usage.cached_input,
            usage.output,
            usage.micro_usd,
        ) = (input, cached, output, micro_usd);
        cost_sum
    }

    #[test]
    fn unreported_tokens_are_shown_as_unknown() {
        let row = cost_row("opencode-2", &sum(2, (0, 0, 0), Some(220_000), None));
        assert_eq!(row[1..4], ["2", "-", "-"]);
        assert_eq!(
            cost_row("a", &sum(1, (1_000, 0, 0), None, None))[2..4],
            ["1.0k", "0"]
        );
    }

    #[test]
    fn the_total_is_compared_with_the_cap() {
        let row = |name: &str, sum| CostRow {
            name: name.into(),
            about: String::new(),
            sum,
        };
        let claude = sum(
            14,
            (1_200_000, 2_900_000, 212_000),
            Some(2_840_000),
            Some(1_100_000),
        );
        let codex = sum(9, (1_900_000, 0, 140_000), None, None);
        let mut both = sum(
            20,
            (3_100_000, 2_900_000, 352_000),
            Some(2_840_000),
            Some(1_100_000),
        );
        both.unpriced = 2_040_000;
        let mut view = CostView {
            days: 0,
            since_wall: 0,
            tables: vec![CostTable {
                by: CostGrouping::Provider,
                rows: vec![row("claude", claude), row("codex", codex)],
            }],
            total: both,
            cap: Some(20_000_000),
            forecast: Some(CapForecast::ReachedAt { unix_ms: 0 }),
            came: SpendResultsView {
                landed: sum(3, (1, 0, 0), Some(600_000), None),
                each: Some(200_000),
                ..SpendResultsView::default()
            },
        };
        let clock = |_| "21:40".to_owned();
        assert_eq!(
            draw_cost(&view, None, clock),
            "\
provider     tasks  in tok  out tok  cache  cost                                     rate
claude          14    4.1M   212.0k   70 %  $2.84                                    $1.10/h
codex            9    1.9M   140.0k    n/a  no price reported                        -
total today     20    6.0M   352.0k   48 %  $2.84 of $20.00 cap + 2.0M tok unpriced  $1.10/h · cap reached about 21:40 at this rate
landed 3 tasks · $0.20 each
"
        );
        (view.days, view.cap, view.forecast) = (1, None, None);
        let text = draw_cost(&view, Some(100), clock);
        assert!(text.contains("total since 1970-01-01"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn since_accepts_names_durations_and_past_dates() {
        let today = jiff::civil::date(2026, 3, 2);
        for (text, days) in [
            ("today", 0),
            ("yesterday", 1),
            ("7d", 7),
            ("2w", 14),
            ("2026-03-02", 0),
            ("2026-02-27", 3),
        ] {
            assert_eq!(days_between(text, today), Ok(days), "{text}");
        }
        for bad in [
            "",
            "d",
            "-1d",
            "2026-03-03",
            "7",
            "tomorrow",
            "99999999d",
            "2026-13-01",
        ] {
            assert!(days_between(bad, today).is_err(), "{bad}");
        }
    }
}
