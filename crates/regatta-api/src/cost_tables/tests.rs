use super::*;
use regatta_core::agent_protocol::Usage;

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
        cumulative_cost(&ledger, 1),
        [(DAY_MS, 0), (DAY_MS, 15), (DAY_MS + 2 * MINUTE_MS, 22)]
    );
    assert_eq!(cumulative_cost(&ledger, 2), []);
    ledger.add_payment(2 * DAY_MS, AttemptId(1), 3, "acme".into());
    assert_eq!(
        (cumulative_cost(&ledger, 1), cumulative_cost(&ledger, 2)),
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
    let bands = provider_bands(&ledger, 1);
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
    for (nth, (_, sum)) in cumulative_cost(&ledger, 1).into_iter().enumerate() {
        assert_eq!(
            bands.iter().map(|band| band.micro_usd[nth]).sum::<u64>(),
            sum,
            "the bands do not add up to the line"
        );
    }
    assert_eq!(provider_bands(&ledger, 2), []);
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
