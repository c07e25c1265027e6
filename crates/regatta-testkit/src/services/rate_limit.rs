//! Imitates the rate limits of the services: sliding windows and token buckets. Time can run faster
//! than in the real service.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The factors by which time runs faster in a double (an imitated service) than in the real
/// service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeScale {
    /// The factor by which rate limits, waits in `Retry-After`, and delays before something is sent
    /// again run faster.
    pub limits: f64,
    /// The factor by which the deadlines of clients run faster: for acknowledgements, for first
    /// activities, and for the lifetime of tokens.
    pub deadlines: f64,
}

impl TimeScale {
    /// The scale in which time runs as fast as in the real service.
    pub const REAL_TIME: TimeScale = TimeScale {
        limits: 1.0,
        deadlines: 1.0,
    };

    /// Returns a scale in which rate limits and waits run faster by the factor `times`. The
    /// deadlines of the client keep their real length.
    pub fn with_faster_limits(times: f64) -> TimeScale {
        TimeScale {
            limits: times,
            deadlines: 1.0,
        }
    }

    /// Returns the same scale, but with deadlines of clients that run faster by the factor `times`.
    pub fn with_faster_deadlines(self, times: f64) -> TimeScale {
        TimeScale {
            deadlines: times,
            ..self
        }
    }

    pub(crate) fn scale_limit(self, real: Duration) -> Duration {
        real.div_f64(self.limits)
    }

    pub(crate) fn scale_deadline(self, real: Duration) -> Duration {
        real.div_f64(self.deadlines)
    }

    /// Returns the number of seconds for a `Retry-After` header: a whole number as in the real
    /// services, or a fraction if time runs faster.
    pub(crate) fn retry_after_seconds(self, wait: Duration) -> f64 {
        let exact = wait.as_secs_f64();
        if self.limits == 1.0 {
            exact.ceil().max(1.0)
        } else {
            (exact * 1000.0).ceil().max(1.0) / 1000.0
        }
    }
}

/// Formats a number of seconds for a header: `3`, or `0.250` if time runs faster than in the real
/// service.
pub(crate) fn header_text(seconds: f64) -> String {
    if seconds.fract() == 0.0 {
        format!("{seconds:.0}")
    } else {
        format!("{seconds:.3}")
    }
}

/// One rate limit against which an API call counts.
#[derive(Clone, Debug)]
pub(crate) struct RateRule {
    /// The operation and the client to which the limit applies. In `chat.update of A1` the operation
    /// is `chat.update` and the client is `A1`.
    pub(crate) key: String,
    pub(crate) cost: u32,
    pub(crate) kind: RateRuleKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RateRuleKind {
    /// The client may use at most `max` points in any period of this length.
    Window { max: u32, period: Duration },
    /// The client may make one call per interval on average and, after a pause, up to `burst` calls
    /// at once.
    Bucket { interval: Duration, burst: u32 },
}

impl RateRule {
    pub(crate) fn window(key: impl Into<String>, max: u32, per: Duration) -> RateRule {
        RateRule {
            key: key.into(),
            cost: 1,
            kind: RateRuleKind::Window { max, period: per },
        }
    }

    pub(crate) fn bucket(key: impl Into<String>, every: Duration, burst: u32) -> RateRule {
        RateRule {
            key: key.into(),
            cost: 1,
            kind: RateRuleKind::Bucket {
                interval: every,
                burst,
            },
        }
    }

    pub(crate) fn with_cost(self, cost: u32) -> RateRule {
        RateRule { cost, ..self }
    }
}

/// An API call that a rate limit refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateRefusal {
    pub(crate) key: String,
    /// The number of seconds that the client must wait, as the answer to the client states it.
    pub(crate) seconds: f64,
    /// True if the client called before the end of the wait that an earlier refusal had demanded.
    pub(crate) is_too_soon: bool,
}

/// The time after a refusal in which another API call is not a violation, because the client may
/// have sent that call before it received the refusal.
const IN_FLIGHT_GRACE: Duration = Duration::from_millis(100);

/// Records how much of each rate limit is used.
#[derive(Default)]
pub(crate) struct RateTracker {
    windows: BTreeMap<String, VecDeque<(Instant, u32)>>,
    /// For each token bucket, the time when it will be full again, so that a whole burst of calls
    /// is allowed.
    buckets: BTreeMap<String, Instant>,
    /// For each refused key (operation and client): the end of the wait, and the time of the first
    /// refusal.
    refusals: BTreeMap<String, (Instant, Instant)>,
}

impl RateTracker {
    /// Counts an API call against all rate limits in `rules`. If one of them refuses the call,
    /// counts the call against none.
    pub(crate) fn count_call(
        &mut self,
        rules: &[RateRule],
        scale: TimeScale,
        now: Instant,
    ) -> Result<(), RateRefusal> {
        let mut refused: Option<RateRefusal> = None;
        for rule in rules {
            let own = self.required_wait(rule, scale, now);
            let named = self.refusals.get(&rule.key).copied();
            let told = named
                .map(|named| named.0.saturating_duration_since(now))
                .unwrap_or_default();
            let crossed =
                named.is_none_or(|named| now.saturating_duration_since(named.1) < IN_FLIGHT_GRACE);
            if own.is_zero() && told.is_zero() {
                self.refusals.remove(&rule.key);
                continue;
            }
            if !own.is_zero() {
                // A call that comes before the end of the wait does not make the wait longer.
                let until = now + Duration::from_secs_f64(scale.retry_after_seconds(own));
                let named = self
                    .refusals
                    .entry(rule.key.clone())
                    .or_insert((until, now));
                named.0 = named.0.max(until);
            }
            let seconds = scale.retry_after_seconds(own.max(told));
            if refused.as_ref().is_none_or(|error| error.seconds < seconds) {
                refused = Some(RateRefusal {
                    key: rule.key.clone(),
                    seconds,
                    is_too_soon: !told.is_zero() && !crossed,
                });
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        for rule in rules {
            match rule.kind {
                RateRuleKind::Window { .. } => self
                    .windows
                    .entry(rule.key.clone())
                    .or_default()
                    .push_back((now, rule.cost)),
                RateRuleKind::Bucket {
                    interval: every, ..
                } => {
                    let full = self.buckets.entry(rule.key.clone()).or_insert(now);
                    *full = (*full).max(now) + scale.scale_limit(every) * rule.cost;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of points that were used in the time window of a rate limit, as of the
    /// last call.
    pub(crate) fn used(&self, key: &str) -> u32 {
        self.windows
            .get(key)
            .map_or(0, |items| items.iter().map(|(_, count)| count).sum())
    }

    /// Makes calls with this key wait until the time `until`, even if no rate limit is used up.
    pub(crate) fn order_wait(&mut self, key: &str, until: Instant) {
        self.refusals
            .insert(key.to_owned(), (until, Instant::now()));
    }

    fn required_wait(&mut self, rule: &RateRule, scale: TimeScale, now: Instant) -> Duration {
        match rule.kind {
            RateRuleKind::Window {
                max: most,
                period: per,
            } => {
                let per = scale.scale_limit(per);
                let used = self.windows.entry(rule.key.clone()).or_default();
                while used.front().is_some_and(|used| used.0 + per <= now) {
                    used.pop_front();
                }
                let mut over =
                    (used.iter().map(|used| used.1).sum::<u32>() + rule.cost).saturating_sub(most);
                let mut wait = Duration::ZERO;
                for (at, cost) in used.iter() {
                    if over == 0 {
                        break;
                    }
                    over = over.saturating_sub(*cost);
                    wait = (*at + per).saturating_duration_since(now);
                }
                wait
            }
            RateRuleKind::Bucket {
                interval: every,
                burst,
            } => {
                let every = scale.scale_limit(every);
                let ahead = self
                    .buckets
                    .get(&rule.key)
                    .map(|instant| instant.saturating_duration_since(now))
                    .unwrap_or_default();
                (ahead + every * rule.cost).saturating_sub(every * burst)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_window_slides_and_a_refused_call_is_not_counted() {
        let (mut limiter, start) = (RateTracker::default(), Instant::now());
        let rules = [RateRule::window("x", 3, 60 * SECOND)];
        for at in [0, 10, 20] {
            assert_eq!(
                limiter.count_call(&rules, TimeScale::REAL_TIME, start + at * SECOND),
                Ok(())
            );
        }
        let refused = limiter
            .count_call(&rules, TimeScale::REAL_TIME, start + 30 * SECOND)
            .unwrap_err();
        assert_eq!((refused.seconds, refused.is_too_soon), (30.0, false));
        let refused = limiter
            .count_call(&rules, TimeScale::REAL_TIME, start + 59 * SECOND)
            .unwrap_err();
        assert_eq!(
            (refused.seconds, refused.is_too_soon),
            (1.0, true),
            "the refusal had named a time"
        );
        assert_eq!(
            limiter.count_call(&rules, TimeScale::REAL_TIME, start + 60 * SECOND),
            Ok(())
        );
        assert!(
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, start + 61 * SECOND)
                .is_err(),
            "three of the four calls still count"
        );
    }

    /// A client that calls without pause waits no longer than the first refusal announced.
    #[test]
    fn calling_too_soon_does_not_postpone_the_end() {
        let (mut limiter, start) = (RateTracker::default(), Instant::now());
        let rules = [RateRule::bucket("x", SECOND, 1)];
        let scale = TimeScale::with_faster_limits(10.0);
        assert!(limiter.count_call(&rules, scale, start).is_ok());
        for at in 1..1000 {
            assert!(
                limiter
                    .count_call(&rules, scale, start + at * SECOND / 10_000)
                    .is_err(),
                "{at}"
            );
        }
        assert!(
            limiter
                .count_call(&rules, scale, start + SECOND / 10 + SECOND / 500)
                .is_ok()
        );
    }

    #[test]
    fn a_bucket_allows_its_burst_and_then_its_rate() {
        let (mut limiter, start) = (RateTracker::default(), Instant::now());
        let rules = [RateRule::bucket("x", SECOND, 3)];
        let ok = (0..5)
            .filter(|_| {
                limiter
                    .count_call(&rules, TimeScale::REAL_TIME, start)
                    .is_ok()
            })
            .count();
        assert_eq!(ok, 3);
        assert!(
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, start + SECOND)
                .is_ok()
        );
        assert!(
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, start + SECOND)
                .is_err()
        );
        assert!(
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, start + 3 * SECOND)
                .is_ok()
        );
    }

    #[test]
    fn call_sent_while_a_refusal_was_in_flight_is_no_violation() {
        let (mut limiter, start) = (RateTracker::default(), Instant::now());
        let rules = [RateRule::window("x", 1, 60 * SECOND)];
        assert!(
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, start)
                .is_ok()
        );
        let too_soon = |after: u32| start + SECOND + Duration::from_millis(after.into());
        let mut ask = |after| {
            limiter
                .count_call(&rules, TimeScale::REAL_TIME, too_soon(after))
                .unwrap_err()
                .is_too_soon
        };
        assert_eq!([ask(0), ask(50), ask(200)], [false, false, true]);
    }

    #[test]
    fn a_call_refused_by_one_limit_does_not_count_for_others() {
        let (mut limiter, now) = (RateTracker::default(), Instant::now());
        let both = [
            RateRule::window("few", 1, SECOND),
            RateRule::window("many", 2, SECOND),
        ];
        assert!(limiter.count_call(&both, TimeScale::REAL_TIME, now).is_ok());
        assert!(
            limiter
                .count_call(&both, TimeScale::REAL_TIME, now)
                .is_err()
        );
        assert!(
            limiter
                .count_call(&both[1..], TimeScale::REAL_TIME, now)
                .is_ok(),
            "the refused call was not counted"
        );
    }

    #[test]
    fn a_scaled_clock_scales_the_wait() {
        let (mut limiter, start) = (RateTracker::default(), Instant::now());
        let rules = [RateRule::window("x", 1, 60 * SECOND)];
        let scale = TimeScale::with_faster_limits(60.0);
        assert!(limiter.count_call(&rules, scale, start).is_ok());
        let refused = limiter
            .count_call(&rules, scale, start + SECOND / 4)
            .unwrap_err();
        assert_eq!(refused.seconds, 0.75);
        assert_eq!(
            (header_text(refused.seconds), header_text(3.0)),
            ("0.750".into(), "3".into())
        );
        assert!(limiter.count_call(&rules, scale, start + SECOND).is_ok());
    }
}
