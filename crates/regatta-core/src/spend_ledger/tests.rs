use super::*;

fn at_wall(wall: u64) -> Now {
    Now {
        fleet_ms: wall,
        unix_ms: wall,
    }
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
            .spend_rate(at_wall(10 * HOUR_MS + 14 * MINUTE_MS))
            .total_hourly_rate(),
        None,
        "there is a rate within the first quarter of an hour"
    );
    assert_eq!(
        ledger
            .spend_rate(at_wall(10 * HOUR_MS + 20 * MINUTE_MS))
            .total_hourly_rate(),
        Some(300)
    );
    assert_eq!(
        ledger.spend_rate(at_wall(10 * HOUR_MS + 20 * MINUTE_MS)),
        ledger.spend_rate(at_wall(10 * HOUR_MS + 20 * MINUTE_MS + 59_000)),
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
