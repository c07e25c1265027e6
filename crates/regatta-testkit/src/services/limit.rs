//! Rate limits: sliding windows and buckets, on a clock that can run faster.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How many times faster than in the real service time runs in a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor for rate limits, `Retry-After` and waits between redeliveries.
    pub limits: f64,
    /// The factor for the client's deadlines: acknowledgements, first activities, the lifetime of a
    /// token.
    pub deadlines: f64,
}

impl Scale {
    /// The speed of the real service.
    pub const REAL: Scale = Scale { limits: 1.0, deadlines: 1.0 };

    /// Returns a scale in which limits and waits run faster, and deadlines of the client stay real.
    pub fn faster(times: f64) -> Scale {
        Scale { limits: times, deadlines: 1.0 }
    }

    /// Makes deadlines run faster too.
    pub fn deadlines(self, times: f64) -> Scale {
        Scale { deadlines: times, ..self }
    }

    pub(crate) fn limit(self, real: Duration) -> Duration {
        real.div_f64(self.limits)
    }

    pub(crate) fn deadline(self, real: Duration) -> Duration {
        real.div_f64(self.deadlines)
    }

    /// Returns the seconds for a `Retry-After` header: whole seconds as in the real services,
    /// fractions if scaled.
    pub(crate) fn seconds(self, wait: Duration) -> f64 {
        let exact = wait.as_secs_f64();
        if self.limits == 1.0 { exact.ceil().max(1.0) } else { (exact * 1000.0).ceil().max(1.0) / 1000.0 }
    }
}

/// Formats seconds for a header: `3`, or `0.250` if the clock is scaled.
pub(crate) fn in_words(seconds: f64) -> String {
    if seconds.fract() == 0.0 { format!("{seconds:.0}") } else { format!("{seconds:.3}") }
}

/// A limit that a call counts against.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// What is limited, and for which client: `chat.update of A1`.
    pub(crate) key: String,
    pub(crate) cost: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// At most `most` points within any period of this length.
    Window { most: u32, per: Duration },
    /// One call per interval, and up to `burst` calls at once after a pause.
    Bucket { every: Duration, burst: u32 },
}

impl Rule {
    pub(crate) fn window(key: impl Into<String>, most: u32, per: Duration) -> Rule {
        Rule { key: key.into(), cost: 1, kind: Kind::Window { most, per } }
    }

    pub(crate) fn bucket(key: impl Into<String>, every: Duration, burst: u32) -> Rule {
        Rule { key: key.into(), cost: 1, kind: Kind::Bucket { every, burst } }
    }

    pub(crate) fn costing(self, cost: u32) -> Rule {
        Rule { cost, ..self }
    }
}

/// A refused call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refused {
    pub(crate) key: String,
    /// The seconds to wait, as the service reports them.
    pub(crate) seconds: f64,
    /// Whether the call came before the time that an earlier refusal had named.
    pub(crate) too_soon: bool,
}

/// A call within this time after a refusal was already on its way, so it is not a violation.
const CROSSED: Duration = Duration::from_millis(100);

/// The usage of all limits.
#[derive(Default)]
pub(crate) struct Limiter {
    windows: BTreeMap<String, VecDeque<(Instant, u32)>>,
    /// When each bucket will be full again.
    buckets: BTreeMap<String, Instant>,
    /// For each refused key the end of its wait, and the time of the first refusal.
    told: BTreeMap<String, (Instant, Instant)>,
}

impl Limiter {
    /// Counts a call against all rules, or against none if one of them refuses it.
    pub(crate) fn take(&mut self, rules: &[Rule], scale: Scale, now: Instant) -> Result<(), Refused> {
        let mut refused: Option<Refused> = None;
        for rule in rules {
            let own = self.wait(rule, scale, now);
            let named = self.told.get(&rule.key).copied();
            let told = named.map(|it| it.0.saturating_duration_since(now)).unwrap_or_default();
            let crossed = named.is_none_or(|it| now.saturating_duration_since(it.1) < CROSSED);
            if own.is_zero() && told.is_zero() {
                self.told.remove(&rule.key);
                continue;
            }
            if !own.is_zero() {
                // Only the limit itself sets the end of the wait. An early call does not postpone
                // it.
                let until = now + Duration::from_secs_f64(scale.seconds(own));
                let named = self.told.entry(rule.key.clone()).or_insert((until, now));
                named.0 = named.0.max(until);
            }
            let seconds = scale.seconds(own.max(told));
            if refused.as_ref().is_none_or(|it| it.seconds < seconds) {
                refused = Some(Refused { key: rule.key.clone(), seconds, too_soon: !told.is_zero() && !crossed });
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        for rule in rules {
            match rule.kind {
                Kind::Window { .. } => self.windows.entry(rule.key.clone()).or_default().push_back((now, rule.cost)),
                Kind::Bucket { every, .. } => {
                    let full = self.buckets.entry(rule.key.clone()).or_insert(now);
                    *full = (*full).max(now) + scale.limit(every) * rule.cost;
                }
            }
        }
        Ok(())
    }

    /// Returns the used points of a window at its last call.
    pub(crate) fn used(&self, key: &str) -> u32 {
        self.windows.get(key).map_or(0, |it| it.iter().map(|it| it.1).sum())
    }

    /// Makes calls with this key wait, although no limit is used up.
    pub(crate) fn tell(&mut self, key: &str, until: Instant) {
        self.told.insert(key.to_owned(), (until, Instant::now()));
    }

    fn wait(&mut self, rule: &Rule, scale: Scale, now: Instant) -> Duration {
        match rule.kind {
            Kind::Window { most, per } => {
                let per = scale.limit(per);
                let used = self.windows.entry(rule.key.clone()).or_default();
                while used.front().is_some_and(|it| it.0 + per <= now) {
                    used.pop_front();
                }
                let mut over = (used.iter().map(|it| it.1).sum::<u32>() + rule.cost).saturating_sub(most);
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
            Kind::Bucket { every, burst } => {
                let every = scale.limit(every);
                let ahead = self.buckets.get(&rule.key).map(|it| it.saturating_duration_since(now)).unwrap_or_default();
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
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let rules = [Rule::window("x", 3, 60 * SECOND)];
        for at in [0, 10, 20] {
            assert_eq!(limiter.take(&rules, Scale::REAL, start + at * SECOND), Ok(()));
        }
        let refused = limiter.take(&rules, Scale::REAL, start + 30 * SECOND).unwrap_err();
        assert_eq!((refused.seconds, refused.too_soon), (30.0, false));
        let refused = limiter.take(&rules, Scale::REAL, start + 59 * SECOND).unwrap_err();
        assert_eq!((refused.seconds, refused.too_soon), (1.0, true), "the refusal had named a time");
        assert_eq!(limiter.take(&rules, Scale::REAL, start + 60 * SECOND), Ok(()));
        assert!(limiter.take(&rules, Scale::REAL, start + 61 * SECOND).is_err(), "three of the four calls still count");
    }

    /// A client that calls without pause waits no longer than the first refusal announced.
    #[test]
    fn calling_too_soon_does_not_postpone_the_end() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let rules = [Rule::bucket("x", SECOND, 1)];
        let scale = Scale::faster(10.0);
        assert!(limiter.take(&rules, scale, start).is_ok());
        for at in 1..1000 {
            assert!(limiter.take(&rules, scale, start + at * SECOND / 10_000).is_err(), "{at}");
        }
        assert!(limiter.take(&rules, scale, start + SECOND / 10 + SECOND / 500).is_ok());
    }

    #[test]
    fn a_bucket_allows_its_burst_and_then_its_rate() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let rules = [Rule::bucket("x", SECOND, 3)];
        let ok = (0..5).filter(|_| limiter.take(&rules, Scale::REAL, start).is_ok()).count();
        assert_eq!(ok, 3);
        assert!(limiter.take(&rules, Scale::REAL, start + SECOND).is_ok());
        assert!(limiter.take(&rules, Scale::REAL, start + SECOND).is_err());
        assert!(limiter.take(&rules, Scale::REAL, start + 3 * SECOND).is_ok());
    }

    #[test]
    fn call_sent_while_a_refusal_was_in_flight_is_no_violation() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let rules = [Rule::window("x", 1, 60 * SECOND)];
        assert!(limiter.take(&rules, Scale::REAL, start).is_ok());
        let too_soon = |after: u32| start + SECOND + Duration::from_millis(after.into());
        let mut ask = |after| limiter.take(&rules, Scale::REAL, too_soon(after)).unwrap_err().too_soon;
        assert_eq!([ask(0), ask(50), ask(200)], [false, false, true]);
    }

    #[test]
    fn a_call_refused_by_one_limit_does_not_count_for_others() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let both = [Rule::window("few", 1, SECOND), Rule::window("many", 2, SECOND)];
        assert!(limiter.take(&both, Scale::REAL, now).is_ok());
        assert!(limiter.take(&both, Scale::REAL, now).is_err());
        assert!(limiter.take(&both[1..], Scale::REAL, now).is_ok(), "the refused call was not counted");
    }

    #[test]
    fn a_scaled_clock_scales_the_wait() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let rules = [Rule::window("x", 1, 60 * SECOND)];
        let scale = Scale::faster(60.0);
        assert!(limiter.take(&rules, scale, start).is_ok());
        let refused = limiter.take(&rules, scale, start + SECOND / 4).unwrap_err();
        assert_eq!(refused.seconds, 0.75);
        assert_eq!((in_words(refused.seconds), in_words(3.0)), ("0.750".into(), "3".into()));
        assert!(limiter.take(&rules, scale, start + SECOND).is_ok());
    }
}
