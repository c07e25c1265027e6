//! Rate limits: how many calls may be sent to a service, as sliding windows and token buckets.
//!
//! A bridge keeps to the limits by itself, so that no service has to refuse a call. The service
//! continues to count when this process restarts, so every call is also written to a [`CallLog`]
//! beside the store.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::intake::unix_time_ms;

/// A limit that a call counts against.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimit {
    /// Name of the counter: a method, or a method in one channel.
    pub key: String,
    pub kind: RateLimitKind,
    /// Number of units that one call takes.
    pub cost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateLimitKind {
    /// At most `most` units in any interval of length `span`.
    Window { max_units: u32, interval: Duration },
    /// One unit per `every`, with bursts of up to `burst` units.
    Bucket {
        burst: f64,
        refill_interval: Duration,
    },
}

/// Factor on all intervals. A service counts when calls arrive, which is not exactly when they were
/// sent.
const CLOCK_MARGIN: f64 = 1.02;

impl RateLimit {
    pub fn window(key: impl Into<String>, most: u32, span: Duration) -> RateLimit {
        RateLimit {
            key: key.into(),
            kind: RateLimitKind::Window {
                max_units: most,
                interval: span,
            },
            cost: 1,
        }
    }

    pub fn bucket(key: impl Into<String>, burst: f64, every: Duration) -> RateLimit {
        RateLimit {
            key: key.into(),
            kind: RateLimitKind::Bucket {
                burst,
                refill_interval: every,
            },
            cost: 1,
        }
    }

    /// Returns the same limit for a call that takes `cost` units.
    pub fn with_cost(self, cost: u32) -> RateLimit {
        RateLimit { cost, ..self }
    }

    /// Returns the same limit for a service whose clock runs `times` times faster.
    pub fn faster(self, times: f64) -> RateLimit {
        let kind = match self.kind {
            RateLimitKind::Window {
                max_units: most,
                interval: span,
            } => RateLimitKind::Window {
                max_units: most,
                interval: span.div_f64(times),
            },
            RateLimitKind::Bucket {
                burst,
                refill_interval: every,
            } => RateLimitKind::Bucket {
                burst,
                refill_interval: every.div_f64(times),
            },
        };
        RateLimit { kind, ..self }
    }
}

#[derive(Clone, Debug, Default)]
struct LimitUsage {
    /// Latest possible arrival times of the calls in the window. For a bucket, only the calls of an
    /// earlier run.
    arrivals: VecDeque<Instant>,
    /// Send times of calls that may not have arrived yet.
    in_flight: VecDeque<Instant>,
    /// Times until which a call may still arrive although its sender is gone or no longer waits for
    /// the answer.
    may_arrive_until: Vec<Instant>,
    /// Number of tokens in the bucket at the last arrival, and the time of that arrival.
    tokens: Option<(f64, Instant)>,
    /// The service refused a call: no call is sent before this time.
    blocked_until: Option<Instant>,
}

/// Time after which a call counts as arrived, so that a call that was cut off does not block others
/// forever.
const MAX_FLIGHT_TIME: Duration = Duration::from_secs(60);
/// Time that a call can still be on its way after its sender was killed or stopped waiting for the
/// answer. By then the bytes are in the buffers of the network and of the service, so the delay is
/// short.
pub const MAX_LATE_ARRIVAL: Duration = Duration::from_secs(3);
/// Wait time when only the end of a running call can make room.
const IN_FLIGHT_RETRY_DELAY: Duration = Duration::from_millis(20);

impl LimitUsage {
    /// Returns the time until `cost` more units may be sent. The share `keep` of the limit stays
    /// free for others. A service counts when calls arrive, so each call under way counts as if it
    /// arrived now.
    fn time_to_wait(
        &mut self,
        kind: RateLimitKind,
        cost: u32,
        keep: f64,
        now: Instant,
    ) -> Duration {
        while self
            .in_flight
            .front()
            .is_some_and(|instant| now.saturating_duration_since(*instant) >= MAX_FLIGHT_TIME)
        {
            self.in_flight.pop_front();
            self.record_arrival(kind, now);
        }
        self.may_arrive_until.sort_unstable();
        let over = self
            .may_arrive_until
            .iter()
            .take_while(|until| **until <= now)
            .count();
        for until in self.may_arrive_until.drain(..over).collect::<Vec<_>>() {
            self.record_arrival(kind, until);
        }
        let under_way = self.in_flight.len() + self.may_arrive_until.len();
        let shut = self.blocked_until.map_or(Duration::ZERO, |instant| {
            instant.saturating_duration_since(now)
        });
        let full = match kind {
            RateLimitKind::Window {
                max_units: most,
                interval: span,
            } => {
                let span = span.mul_f64(CLOCK_MARGIN);
                while self
                    .arrivals
                    .front()
                    .is_some_and(|instant| now.saturating_duration_since(*instant) >= span)
                {
                    self.arrivals.pop_front();
                }
                let most = ((f64::from(most) * (1.0 - keep)).floor() as usize).max(1);
                let cost = (cost as usize).min(most);
                let over = (self.arrivals.len() + under_way + cost).saturating_sub(most);
                match over.checked_sub(1).map(|over| self.arrivals.get(over)) {
                    None => Duration::ZERO,
                    Some(Some(frees)) => (*frees + span).saturating_duration_since(now),
                    Some(None) => IN_FLIGHT_RETRY_DELAY,
                }
            }
            RateLimitKind::Bucket {
                burst,
                refill_interval: every,
            } => {
                let holds = self.tokens_left(burst, every, now) - under_way as f64;
                let wanted = (f64::from(cost) + burst * keep.min(0.9)).min(burst.max(1.0));
                if holds >= wanted {
                    Duration::ZERO
                } else {
                    refill_time_with_margin(every).mul_f64(wanted - holds)
                }
            }
        };
        let wait = shut.max(full);
        if wait.is_zero() {
            wait
        } else {
            wait.max(Duration::from_millis(1))
        }
    }

    /// Returns the number of tokens in a bucket, not counting the calls under way.
    fn tokens_left(&mut self, burst: f64, every: Duration, now: Instant) -> f64 {
        let every = refill_time_with_margin(every);
        let before = std::mem::take(&mut self.arrivals);
        let (tokens, at) = *self
            .tokens
            .get_or_insert_with(|| tokens_after_calls(&before, burst, every, now));
        (tokens + now.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64()).min(burst)
    }

    /// Counts a unit of an earlier run that arrived, or will arrive, by `at`.
    fn count_earlier_call(&mut self, at: Option<Instant>, now: Instant) {
        match at {
            Some(at) if at > now => self.may_arrive_until.push(at),
            at => self.arrivals.extend(at),
        }
    }

    /// Counts a unit that arrived no later than `at`.
    fn record_arrival(&mut self, kind: RateLimitKind, at: Instant) {
        match kind {
            RateLimitKind::Window { .. } => {
                let after = self
                    .arrivals
                    .iter()
                    .rposition(|earlier| *earlier <= at)
                    .map_or(0, |nth| nth + 1);
                self.arrivals.insert(after, at);
            }
            RateLimitKind::Bucket {
                burst,
                refill_interval: every,
            } => {
                let since = self.tokens.map_or(at, |(_, since)| since.max(at));
                self.tokens = Some((self.tokens_left(burst, every, since) - 1.0, since));
            }
        }
    }
}

/// Returns the time in which a bucket gains one token, with the margin for clock differences.
fn refill_time_with_margin(every: Duration) -> Duration {
    every.mul_f64(CLOCK_MARGIN).max(Duration::from_micros(1))
}

/// Returns the number of tokens in a bucket after the calls `sent`, and the time of the last one.
fn tokens_after_calls(
    sent: &VecDeque<Instant>,
    burst: f64,
    every: Duration,
    now: Instant,
) -> (f64, Instant) {
    let first = (burst, sent.front().copied().unwrap_or(now));
    sent.iter().fold(first, |(tokens, at), sent| {
        let gained = sent.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64();
        ((tokens + gained).min(burst) - 1.0, *sent)
    })
}

/// The longest interval that any limit counts over.
const MAX_LIMIT_INTERVAL: Duration = Duration::from_secs(3_600);
/// Number of lines after which the journal is rewritten without the old ones.
const MAX_LOG_LINES: usize = 20_000;

/// A file of all calls sent, calls arrived and refusals, one line each, for the next run. A killed
/// process loses no line. After a power failure some may be missing, because nothing is
/// synchronised to disk; then the service refuses a call once more.
#[derive(Debug)]
struct CallLog {
    path: PathBuf,
    file: File,
    lines: usize,
}

/// The kind of a journal line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEvent {
    /// A unit was taken, and its call is sent at once.
    Sent,
    /// The oldest unit under way arrived no later than this time. A later run needs the times of
    /// arrival, because the service counts those: counted from its send time, a unit that was long
    /// on its way would be forgotten too early.
    Arrived,
    /// The service refused calls until this time.
    Refused,
}

impl CallEvent {
    fn as_str(self) -> &'static str {
        match self {
            CallEvent::Sent => "sent",
            CallEvent::Arrived => "came",
            CallEvent::Refused => "no",
        }
    }

    fn parse(word: &str) -> Option<CallEvent> {
        [CallEvent::Sent, CallEvent::Arrived, CallEvent::Refused]
            .into_iter()
            .find(|note| note.as_str() == word)
    }
}

/// A line of the journal.
#[derive(Debug)]
struct CallRecord {
    event: CallEvent,
    key: String,
    at_unix_ms: u64,
}

impl CallLog {
    /// Opens the journal and drops the lines that no longer count. Returns the others, oldest
    /// first.
    fn open(path: &Path, now_unix_ms: u64) -> io::Result<(CallLog, Vec<CallRecord>)> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let from = now_unix_ms.saturating_sub(to_ms(MAX_LIMIT_INTERVAL));
        let read = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (word, at, key) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let note = CallEvent::parse(word)?;
            (at >= from).then(|| CallRecord {
                event: note,
                key: key.to_owned(),
                at_unix_ms: at,
            })
        };
        let kept: Vec<CallRecord> = text.lines().filter_map(read).collect();
        let lines: String = kept
            .iter()
            .map(|noted| format_line(noted.event, noted.at_unix_ms, &noted.key))
            .collect();
        let fresh = path.with_extension("new");
        fs::write(&fresh, lines)?;
        fs::rename(&fresh, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok((
            CallLog {
                path: path.to_owned(),
                file,
                lines: kept.len(),
            },
            kept,
        ))
    }

    fn append(&mut self, limits: &[RateLimit], note: CallEvent, at_unix_ms: u64) -> io::Result<()> {
        let mut lines = String::new();
        for limit in limits {
            for _ in 0..if note == CallEvent::Refused {
                1
            } else {
                limit.cost
            } {
                lines += &format_line(note, at_unix_ms, &limit.key);
                self.lines += 1;
            }
        }
        self.file.write_all(lines.as_bytes())?;
        if self.lines > MAX_LOG_LINES {
            *self = CallLog::open(&self.path, at_unix_ms)?.0;
            self.lines = 0; // the next rewrite is as far away, however many lines still count
        }
        Ok(())
    }
}

fn format_line(note: CallEvent, at_unix_ms: u64, key: &str) -> String {
    format!("{} {at_unix_ms} {key}\n", note.as_str())
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

/// The state of every limit that was used.
#[derive(Debug, Default)]
pub struct CallLimiter {
    usage_by_key: HashMap<String, LimitUsage>,
    log: Option<CallLog>,
    /// The same moment on both clocks, so that a change of the machine's date changes no time in
    /// the journal.
    anchor: Option<(Instant, u64)>,
}

impl CallLimiter {
    /// Opens the limits with the journal at `path`, so that the calls of an earlier run count.
    pub fn open(path: &Path, now: Instant) -> io::Result<CallLimiter> {
        CallLimiter::open_at(path, now, unix_time_ms())
    }

    /// Like [`CallLimiter::open`], at a given wall-clock time.
    fn open_at(path: &Path, now: Instant, now_unix_ms: u64) -> io::Result<CallLimiter> {
        let (journal, kept) = CallLog::open(path, now_unix_ms)?;
        let mut buckets = CallLimiter {
            usage_by_key: HashMap::new(),
            log: Some(journal),
            anchor: Some((now, now_unix_ms)),
        };
        // A time before the machine was started is too old to matter.
        let instant = |at: u64| match at.checked_sub(now_unix_ms) {
            Some(ahead) => Some(now + Duration::from_millis(ahead)),
            None => now.checked_sub(Duration::from_millis(now_unix_ms - at)),
        };
        let mut under_way: HashMap<String, VecDeque<u64>> = HashMap::new();
        for CallRecord {
            event: note,
            key,
            at_unix_ms,
        } in kept
        {
            match note {
                CallEvent::Refused => {
                    buckets.usage_by_key.entry(key).or_default().blocked_until = instant(at_unix_ms)
                }
                CallEvent::Sent => under_way.entry(key).or_default().push_back(at_unix_ms),
                CallEvent::Arrived => {
                    under_way.get_mut(&key).and_then(VecDeque::pop_front);
                    buckets
                        .usage_by_key
                        .entry(key)
                        .or_default()
                        .count_earlier_call(instant(at_unix_ms), now);
                }
            }
        }
        // These calls had not arrived when the earlier run ended. They may arrive even after this
        // start.
        let latest = now_unix_ms + to_ms(MAX_LATE_ARRIVAL);
        for (key, sent) in under_way {
            let state = buckets.usage_by_key.entry(key).or_default();
            for at in sent {
                state.count_earlier_call(instant(latest.min(at + to_ms(MAX_FLIGHT_TIME))), now);
            }
        }
        for state in buckets.usage_by_key.values_mut() {
            state.arrivals.make_contiguous().sort_unstable();
        }
        Ok(buckets)
    }

    fn log_event(&mut self, limits: &[RateLimit], note: CallEvent, at: Instant) {
        let Some(journal) = &mut self.log else { return };
        let (then, then_unix_ms) = *self
            .anchor
            .get_or_insert_with(|| (Instant::now(), unix_time_ms()));
        let at_unix_ms = match at.checked_duration_since(then) {
            Some(later) => then_unix_ms + to_ms(later),
            None => then_unix_ms.saturating_sub(to_ms(then.saturating_duration_since(at))),
        };
        if let Err(error) = journal.append(limits, note, at_unix_ms) {
            tracing::warn!(%error, "could not write a call to the send journal");
        }
    }

    /// Takes the units of one call from every limit. If one of them has no room, takes nothing and
    /// returns the time to wait. The share `keep` of each limit stays free for more urgent calls.
    pub fn try_acquire(
        &mut self,
        limits: &[RateLimit],
        keep: f64,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut longest = Duration::ZERO;
        for limit in limits {
            let state = self.usage_by_key.entry(limit.key.clone()).or_default();
            longest = longest.max(state.time_to_wait(limit.kind, limit.cost, keep, now));
        }
        if !longest.is_zero() {
            return Err(longest);
        }
        for limit in limits {
            let state = self.usage_by_key.entry(limit.key.clone()).or_default();
            (0..limit.cost).for_each(|_| state.in_flight.push_back(now));
        }
        self.log_event(limits, CallEvent::Sent, now);
        if self.usage_by_key.len() > 10_000 {
            self.remove_unused(now);
        }
        Ok(())
    }

    /// Records that a call was answered, and therefore arrived by now.
    pub fn on_answered(&mut self, limits: &[RateLimit], now: Instant) {
        self.end_calls(limits, |state, kind| state.record_arrival(kind, now));
        self.log_event(limits, CallEvent::Arrived, now);
    }

    /// Records that a call ended without an answer. It may never arrive, or it may still be on its
    /// way.
    pub fn on_unanswered(&mut self, limits: &[RateLimit], now: Instant) {
        let until = now + MAX_LATE_ARRIVAL;
        self.end_calls(limits, |state, _| state.may_arrive_until.push(until));
        self.log_event(limits, CallEvent::Arrived, until);
    }

    fn end_calls(&mut self, limits: &[RateLimit], count: impl Fn(&mut LimitUsage, RateLimitKind)) {
        for limit in limits {
            let Some(state) = self.usage_by_key.get_mut(&limit.key) else {
                continue;
            };
            for _ in 0..limit.cost {
                // A call that took too long was already counted.
                if state.in_flight.pop_front().is_some() {
                    count(state, limit.kind);
                }
            }
        }
    }

    /// Records that the service refused a call: no call is sent against these limits before
    /// `until`.
    pub fn block_until(&mut self, limits: &[RateLimit], until: Instant) {
        for limit in limits {
            let state = self.usage_by_key.entry(limit.key.clone()).or_default();
            state.blocked_until = Some(
                state
                    .blocked_until
                    .map_or(until, |instant| instant.max(until)),
            );
        }
        self.log_event(limits, CallEvent::Refused, until);
    }

    /// Removes the limits that were not used for an hour.
    fn remove_unused(&mut self, now: Instant) {
        let old = Duration::from_secs(3_600);
        let fresh = |at: Instant| now.saturating_duration_since(at) < old;
        self.usage_by_key.retain(|_, limit_usage| {
            limit_usage
                .blocked_until
                .is_some_and(|instant| instant > now)
                || !limit_usage.may_arrive_until.is_empty()
                || limit_usage
                    .arrivals
                    .back()
                    .or(limit_usage.in_flight.back())
                    .is_some_and(|instant| fresh(*instant))
                || limit_usage.tokens.is_some_and(|token| fresh(token.1))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes the units of a call that arrives as soon as it is sent.
    fn acquire_and_arrive(
        buckets: &mut CallLimiter,
        limits: &[RateLimit],
        keep: f64,
        now: Instant,
    ) -> Result<(), Duration> {
        let came = buckets.try_acquire(limits, keep, now);
        if came.is_ok() {
            buckets.on_answered(limits, now);
        }
        came
    }

    #[test]
    fn limit_allows_a_burst_then_its_rate_and_waits_after_a_refusal() {
        let (mut buckets, start) = (CallLimiter::default(), Instant::now());
        let limits = [
            RateLimit::bucket("post:C1", 2.0, SECOND),
            RateLimit::window("post", 100, 60 * SECOND),
        ];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(
            acquire_and_arrive(&mut buckets, &limits, 0.0, at(0)),
            Ok(())
        );
        assert_eq!(
            acquire_and_arrive(&mut buckets, &limits, 0.0, at(0)),
            Ok(())
        );
        let wait = acquire_and_arrive(&mut buckets, &limits, 0.0, at(0)).unwrap_err();
        assert!((1_000..=1_030).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(
            acquire_and_arrive(&mut buckets, &limits, 0.0, at(1_030)),
            Ok(())
        );
        // Another channel is not delayed.
        assert_eq!(
            acquire_and_arrive(
                &mut buckets,
                &[RateLimit::bucket("post:C2", 1.0, SECOND)],
                0.0,
                at(1_030)
            ),
            Ok(())
        );
        buckets.block_until(&limits[..1], at(31_000));
        assert!(
            acquire_and_arrive(&mut buckets, &limits, 0.0, at(20_000)).unwrap_err() >= 10 * SECOND
        );
        assert_eq!(
            acquire_and_arrive(&mut buckets, &limits, 0.0, at(32_500)),
            Ok(())
        );
    }

    /// The interval has the window's length and may start at any time.
    #[test]
    fn no_interval_has_more_calls_than_its_limit() {
        let (mut buckets, start) = (CallLimiter::default(), Instant::now());
        let limit = [RateLimit::window("x", 50, 60 * SECOND)];
        let mut sent: Vec<u64> = Vec::new();
        for ms in (0..300_000).step_by(7) {
            if acquire_and_arrive(
                &mut buckets,
                &limit,
                if ms % 3 == 0 { 0.5 } else { 0.0 },
                start + Duration::from_millis(ms),
            )
            .is_ok()
            {
                sent.push(ms);
            }
        }
        for (at, ms) in sent.iter().enumerate() {
            let within = sent[at..]
                .iter()
                .take_while(|sent| **sent < ms + 60_000)
                .count();
            assert!(within <= 50, "{within} from {ms}");
        }
        assert!(
            sent.len() >= 240,
            "{}: the limit is not reached",
            sent.len()
        );
    }

    /// A call under way may arrive together with the next one. It counts from its arrival, and
    /// until then as if it arrived now.
    #[test]
    fn call_under_way_counts_as_if_it_arrived_now() {
        let (mut buckets, start) = (CallLimiter::default(), Instant::now());
        let limit = [RateLimit::bucket("post:C1", 2.0, SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(
            [0, 0, 1_030].map(|ms| buckets.try_acquire(&limit, 0.0, at(ms)).is_ok()),
            [true, true, false]
        );
        buckets.on_answered(&limit, at(1_800));
        buckets.on_answered(&limit, at(1_800));
        assert!(buckets.try_acquire(&limit, 0.0, at(2_100)).is_err());
        assert_eq!(buckets.try_acquire(&limit, 0.0, at(2_830)), Ok(()));
        let window = [RateLimit::window("x", 2, 10 * SECOND)];
        assert_eq!(
            [0, 0].map(|ms| buckets.try_acquire(&window, 0.0, at(ms)).is_ok()),
            [true; 2]
        );
        buckets.on_answered(&window, at(9_000));
        let wait = buckets.try_acquire(&window, 0.0, at(15_000)).unwrap_err();
        assert!((4_199..=4_201).contains(&wait.as_millis()), "{wait:?}");
        // A call that was cut off does not block others forever.
        assert_eq!(buckets.try_acquire(&window, 0.0, at(71_000)), Ok(()));
    }

    /// The service continues to count when this process restarts, so this process must not forget
    /// its calls.
    #[test]
    fn counts_and_refusals_are_kept_across_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slack-claude");
        let limits = [
            RateLimit::window("all calls", 3, 60 * SECOND),
            RateLimit::bucket("post:C1", 2.0, 30 * SECOND),
        ];
        let now = Instant::now();
        let mut first = CallLimiter::open(&path, now).unwrap();
        assert_eq!(
            [0; 2].map(|_| acquire_and_arrive(&mut first, &limits, 0.0, now).is_ok()),
            [true; 2]
        );
        first.block_until(&[RateLimit::window("shut", 9, SECOND)], now + 40 * SECOND);
        drop(first);
        let now = Instant::now();
        let mut again = CallLimiter::open(&path, now).unwrap();
        let wait = acquire_and_arrive(&mut again, &limits[1..], 0.0, now).unwrap_err();
        assert!(wait > 20 * SECOND, "the bucket was reset: {wait:?}");
        let shut = acquire_and_arrive(
            &mut again,
            &[RateLimit::window("shut", 9, SECOND)],
            0.0,
            now,
        )
        .unwrap_err();
        assert!(shut > 30 * SECOND, "the refusal was forgotten: {shut:?}");
        assert_eq!(
            acquire_and_arrive(&mut again, &limits[..1], 0.0, now),
            Ok(())
        );
        assert!(
            acquire_and_arrive(&mut again, &limits[..1], 0.0, now).is_err(),
            "the window was reset"
        );
        // Lines that no longer count are removed.
        drop(again);
        let old = format!(
            "{}sent 1000 old\nrubbish\n",
            std::fs::read_to_string(&path).unwrap()
        );
        std::fs::write(&path, old).unwrap();
        CallLimiter::open(&path, now).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            (text.lines().count(), text.contains("old")),
            (11, false),
            "{text}"
        );
    }

    /// A service counts arrivals. The arriving calls stay within the limits despite delays of
    /// calls, stalls of the machine and kills of this process, because each call is counted until
    /// its arrival is certain.
    #[test]
    fn random_delays_stalls_and_kills_exceed_no_limit_at_the_service() {
        let mut dice = 20_261_118_u64;
        let mut roll = move |most: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most.max(1)
        };
        let mut used = [0; 2];
        for round in 0..200 {
            let directory = tempfile::tempdir().unwrap();
            let (path, start) = (directory.path().join("slack-claude"), Instant::now());
            let at = |ms: u64| start + Duration::from_millis(ms);
            let window = RateLimit::window("update", 5, SECOND);
            let bucket = RateLimit::bucket("post:C1", 2.0, SECOND / 4);
            let mut buckets = CallLimiter::open_at(&path, start, 1_000_000).unwrap();
            // Calls under way, with the time of arrival, the time of the answer, and the limit that
            // the call uses.
            let mut flights: Vec<(u64, u64, bool)> = Vec::new();
            let (mut arrivals, mut now) = ([Vec::new(), Vec::new()], 0_u64);
            while now < 20_000 {
                // Most steps are short, and sometimes the machine stalls.
                now += if roll(40) == 0 {
                    300 + roll(900)
                } else {
                    1 + roll(15)
                };
                if roll(300) == 0 {
                    // The process is killed. Calls under way may still arrive for a while, and
                    // their answers are lost.
                    for (arrives, _, is_post) in flights.drain(..) {
                        if arrives <= now || roll(2) == 0 {
                            arrivals[usize::from(is_post)].push(arrives.min(now + 2_900));
                        }
                    }
                    now += 20 + roll(1_500);
                    buckets = CallLimiter::open_at(&path, at(now), 1_000_000 + now).unwrap();
                }
                flights.retain(|(arrives, back, is_post)| {
                    if *back <= now {
                        arrivals[usize::from(*is_post)].push(*arrives);
                        buckets.on_answered(
                            std::slice::from_ref(if *is_post { &bucket } else { &window }),
                            at(now),
                        );
                    }
                    *back > now
                });
                let is_post = roll(2) == 0;
                let limit = std::slice::from_ref(if is_post { &bucket } else { &window });
                if flights.len() < 16 && buckets.try_acquire(limit, 0.0, at(now)).is_ok() {
                    let longest = if roll(5) == 0 { 800 } else { 20 };
                    let arrives = now + roll(longest);
                    flights.push((arrives, arrives + roll(200), is_post));
                }
            }
            let [updates, posts] = &mut arrivals;
            updates.sort_unstable();
            posts.sort_unstable();
            for (nth, ms) in updates.iter().enumerate() {
                let within = updates[nth..]
                    .iter()
                    .take_while(|later| **later < ms + 1_000)
                    .count();
                assert!(
                    within <= 5,
                    "round {round}: {within} updates within a second from {ms}"
                );
            }
            let (mut tokens, mut since) = (2.0_f64, 0_u64);
            for ms in posts.iter() {
                tokens = (tokens + (ms - since) as f64 / 250.0).min(2.0) - 1.0;
                assert!(
                    tokens >= -0.001,
                    "round {round}: a post at {ms} finds {tokens} tokens"
                );
                since = *ms;
            }
            used = [used[0] + updates.len(), used[1] + posts.len()];
        }
        assert!(
            used.iter().all(|calls| *calls > 200 * 20),
            "the limits are not reached: {used:?}"
        );
    }

    /// A call that takes several units leaves fewer for the others.
    #[test]
    fn call_uses_as_many_units_as_it_costs() {
        let (mut buckets, now) = (CallLimiter::default(), Instant::now());
        let write = [RateLimit::window("points", 12, 60 * SECOND).with_cost(5)];
        let read = [RateLimit::window("points", 12, 60 * SECOND)];
        assert_eq!(
            [0; 3].map(|_| acquire_and_arrive(&mut buckets, &write, 0.0, now).is_ok()),
            [true, true, false]
        );
        assert_eq!(
            [0; 3].map(|_| acquire_and_arrive(&mut buckets, &read, 0.0, now).is_ok()),
            [true, true, false]
        );
        assert_eq!(
            acquire_and_arrive(&mut buckets, &write, 0.0, now + 62 * SECOND),
            Ok(())
        );
    }

    #[test]
    fn calls_that_can_wait_leave_room_for_urgent_calls() {
        let (mut buckets, now) = (CallLimiter::default(), Instant::now());
        let limit = [RateLimit::window("x", 10, 60 * SECOND)];
        let taken = (0..20)
            .filter(|_| acquire_and_arrive(&mut buckets, &limit, 0.5, now).is_ok())
            .count();
        assert_eq!(taken, 5);
        let taken = (0..20)
            .filter(|_| acquire_and_arrive(&mut buckets, &limit, 0.0, now).is_ok())
            .count();
        assert_eq!(taken, 5);
    }
}
