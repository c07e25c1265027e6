//! How much may be sent where, so that no service has to say no: sliding windows and token buckets.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A limit that something sent counts against.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What is counted together: a method, or a method in one channel.
    pub key: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// At most so many within any stretch of this length.
    Window { most: u32, span: Duration },
    /// One each `every`, with bursts.
    Bucket { burst: f64, every: Duration },
}

/// A service counts when things arrive, which is not quite when they were sent.
const MARGIN: f64 = 1.02;

impl Limit {
    pub fn window(key: impl Into<String>, most: u32, span: Duration) -> Limit {
        Limit { key: key.into(), kind: Kind::Window { most, span } }
    }

    pub fn bucket(key: impl Into<String>, burst: f64, every: Duration) -> Limit {
        Limit { key: key.into(), kind: Kind::Bucket { burst, every } }
    }

    /// The same on a clock that runs so many times faster.
    pub fn scaled(self, times: f64) -> Limit {
        let kind = match self.kind {
            Kind::Window { most, span } => Kind::Window { most, span: span.div_f64(times) },
            Kind::Bucket { burst, every } => Kind::Bucket { burst, every: every.div_f64(times) },
        };
        Limit { kind, ..self }
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    /// When things were sent within a window.
    sent: VecDeque<Instant>,
    /// What a bucket holds, and as of when.
    tokens: Option<(f64, Instant)>,
    /// The service said no: nothing before this.
    shut_until: Option<Instant>,
}

impl State {
    /// How long until one more may go; `keep` leaves that share of the limit to others.
    fn wait(&mut self, kind: Kind, keep: f64, now: Instant) -> Duration {
        let shut = self.shut_until.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        let full = match kind {
            Kind::Window { most, span } => {
                let span = span.mul_f64(MARGIN);
                while self.sent.front().is_some_and(|it| now.saturating_duration_since(*it) >= span) {
                    self.sent.pop_front();
                }
                let most = ((f64::from(most) * (1.0 - keep)).floor() as usize).max(1);
                let over = (self.sent.len() + 1).saturating_sub(most);
                let frees = over.checked_sub(1).and_then(|it| self.sent.get(it));
                frees.map_or(Duration::ZERO, |it| (*it + span).saturating_duration_since(now))
            }
            Kind::Bucket { burst, every } => {
                let every = every.mul_f64(MARGIN).max(Duration::from_micros(1));
                let (tokens, at) = self.tokens.unwrap_or((burst, now));
                let gained = now.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64();
                let tokens = (tokens + gained).min(burst);
                self.tokens = Some((tokens, now));
                let wanted = 1.0 + burst * keep.min(0.9);
                let wanted = wanted.min(burst.max(1.0));
                if tokens >= wanted { Duration::ZERO } else { every.mul_f64(wanted - tokens) }
            }
        };
        let wait = shut.max(full);
        if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) }
    }
}

/// The state of every limit that was met.
#[derive(Debug, Default)]
pub struct Buckets {
    known: HashMap<String, State>,
}

impl Buckets {
    /// Takes one of each; or says how long until that can be done, and takes nothing. `keep` is the share of each limit
    /// that is left to what is more urgent.
    pub fn take(&mut self, limits: &[Limit], keep: f64, now: Instant) -> Result<(), Duration> {
        let mut longest = Duration::ZERO;
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            longest = longest.max(state.wait(limit.kind, keep, now));
        }
        if !longest.is_zero() {
            return Err(longest);
        }
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            match limit.kind {
                Kind::Window { .. } => state.sent.push_back(now),
                Kind::Bucket { .. } => state.tokens = state.tokens.map(|(tokens, at)| (tokens - 1.0, at)),
            }
        }
        if self.known.len() > 10_000 {
            self.tidy(now);
        }
        Ok(())
    }

    /// A call has ended: it arrived at some time until now, so what a bucket gains counts from now.
    pub fn arrived(&mut self, limits: &[Limit], now: Instant) {
        for limit in limits {
            let tokens = self.known.get_mut(&limit.key).and_then(|it| it.tokens.as_mut());
            if let Some((_, at)) = tokens {
                *at = now.max(*at);
            }
        }
    }

    /// The service said no: nothing counts against these until then.
    pub fn shut(&mut self, limits: &[Limit], until: Instant) {
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            state.shut_until = Some(state.shut_until.map_or(until, |it| it.max(until)));
        }
    }

    /// Forgets what nobody has met for long.
    fn tidy(&mut self, now: Instant) {
        let old = Duration::from_secs(3_600);
        let fresh = |at: Instant| now.saturating_duration_since(at) < old;
        self.known.retain(|_, it| {
            it.shut_until.is_some_and(|it| it > now)
                || it.sent.back().is_some_and(|it| fresh(*it))
                || it.tokens.is_some_and(|it| fresh(it.1))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_then_the_pace_and_a_no_is_obeyed() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limits = [Limit::bucket("post:C1", 2.0, SECOND), Limit::window("post", 100, 60 * SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(buckets.take(&limits, 0.0, at(0)), Ok(()));
        assert_eq!(buckets.take(&limits, 0.0, at(0)), Ok(()));
        let wait = buckets.take(&limits, 0.0, at(0)).unwrap_err();
        assert!((1_000..=1_030).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(buckets.take(&limits, 0.0, at(1_030)), Ok(()));
        // Another channel is not held up.
        assert_eq!(buckets.take(&[Limit::bucket("post:C2", 1.0, SECOND)], 0.0, at(1_030)), Ok(()));
        buckets.shut(&limits[..1], at(31_000));
        assert!(buckets.take(&limits, 0.0, at(20_000)).unwrap_err() >= 10 * SECOND);
        assert_eq!(buckets.take(&limits, 0.0, at(32_500)), Ok(()));
    }

    /// However it is asked, no stretch of the window's length holds more than the limit.
    #[test]
    fn no_window_ever_holds_more_than_its_limit() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limit = [Limit::window("x", 50, 60 * SECOND)];
        let mut sent: Vec<u64> = Vec::new();
        for ms in (0..300_000).step_by(7) {
            if buckets.take(&limit, if ms % 3 == 0 { 0.5 } else { 0.0 }, start + Duration::from_millis(ms)).is_ok() {
                sent.push(ms);
            }
        }
        for (at, ms) in sent.iter().enumerate() {
            let within = sent[at..].iter().take_while(|it| **it < ms + 60_000).count();
            assert!(within <= 50, "{within} from {ms}");
        }
        assert!(sent.len() >= 240, "{}: the limit is not used", sent.len());
    }

    /// Three that were long on their way came together just now: the next one waits from then on.
    #[test]
    fn what_was_long_on_its_way_counts_from_its_arrival() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limit = [Limit::bucket("post:C1", 2.0, SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!([0, 0, 1_030].map(|ms| buckets.take(&limit, 0.0, at(ms)).is_ok()), [true; 3]);
        buckets.arrived(&limit, at(1_800));
        assert!(buckets.take(&limit, 0.0, at(2_100)).is_err());
        assert_eq!(buckets.take(&limit, 0.0, at(2_830)), Ok(()));
    }

    #[test]
    fn what_can_wait_leaves_room_for_what_cannot() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        let limit = [Limit::window("x", 10, 60 * SECOND)];
        let taken = (0..20).filter(|_| buckets.take(&limit, 0.5, now).is_ok()).count();
        assert_eq!(taken, 5);
        let taken = (0..20).filter(|_| buckets.take(&limit, 0.0, now).is_ok()).count();
        assert_eq!(taken, 5);
    }
}
