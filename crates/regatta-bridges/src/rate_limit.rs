//! Limits the number of calls that a bridge (the connection of an agent to a chat service) sends to
//! the service, with sliding windows and token buckets.
//!
//! A bridge keeps to the service's limits by itself, so that the service does not have to refuse
//! calls. Every call is also written to a file, the [`CallLog`], because the service also counts
//! the calls from before a restart of the daemon.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::intake::unix_time_ms;

/// A rate limit of a service. Each call to which the limit applies uses up some of
/// the limit's units.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateLimit {
    /// Name of the counter that is limited: a method of the service's API, or a method in one
    /// channel.
    pub(crate) key: String,
    pub(crate) kind: RateLimitKind,
    /// Number of the limit's units that one call uses.
    pub(crate) cost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RateLimitKind {
    /// A sliding window: at most `max_units` units in any period of length `interval`.
    Window { max_units: u32, interval: Duration },
    /// A token bucket: one unit per `refill_interval` on average, with bursts of up to `burst`
    /// units.
    Bucket {
        burst: f64,
        refill_interval: Duration,
    },
}

/// Factor by which all intervals are lengthened. A service counts a call when it arrives, so two
/// calls may arrive closer to each other than they were sent.
const CLOCK_MARGIN: f64 = 1.02;

impl RateLimit {
    pub(crate) fn window(key: impl Into<String>, max_units: u32, interval: Duration) -> RateLimit {
        RateLimit {
            key: key.into(),
            kind: RateLimitKind::Window {
                max_units,
                interval,
            },
            cost: 1,
        }
    }

    pub(crate) fn bucket(
        key: impl Into<String>,
        burst: f64,
        refill_interval: Duration,
    ) -> RateLimit {
        RateLimit {
            key: key.into(),
            kind: RateLimitKind::Bucket {
                burst,
                refill_interval,
            },
            cost: 1,
        }
    }

    /// Returns this limit for a call that uses `cost` units.
    pub(crate) fn with_cost(self, cost: u32) -> RateLimit {
        RateLimit { cost, ..self }
    }

    /// Returns this limit for a service whose clock runs faster by `factor`.
    pub(crate) fn faster(self, factor: f64) -> RateLimit {
        let kind = match self.kind {
            RateLimitKind::Window {
                max_units,
                interval,
            } => RateLimitKind::Window {
                max_units,
                interval: interval.div_f64(factor),
            },
            RateLimitKind::Bucket {
                burst,
                refill_interval,
            } => RateLimitKind::Bucket {
                burst,
                refill_interval: refill_interval.div_f64(factor),
            },
        };
        RateLimit { kind, ..self }
    }
}

#[derive(Clone, Debug, Default)]
struct LimitUsage {
    /// The latest possible arrival time of each call that still counts. For a token bucket, this
    /// list contains only calls from before a restart.
    arrivals: VecDeque<Instant>,
    /// The send times of calls that the service has not answered yet.
    in_flight: VecDeque<Instant>,
    /// Times until which a call may still arrive at the service. Each time belongs to a call whose
    /// sender ended or stopped waiting before an answer arrived.
    may_arrive_until: Vec<Instant>,
    /// For a token bucket: the number of tokens after the last arrival of a call, and the time of
    /// this arrival.
    tokens: Option<(f64, Instant)>,
    /// Time before which no call is sent, because the service refused a call.
    blocked_until: Option<Instant>,
}

/// Time after which an unanswered call counts as arrived, so that a lost call does not block other
/// calls forever.
const MAX_FLIGHT_TIME: Duration = Duration::from_secs(60);
/// The longest time after which a call can still arrive at the service if its sender was killed or
/// stopped waiting. This time is short, because the bytes of the call are already in the buffers of
/// the network or of the service.
pub(crate) const MAX_LATE_ARRIVAL: Duration = Duration::from_secs(3);
/// Time to wait if the next call can be sent only after a running call has ended.
const IN_FLIGHT_RETRY_DELAY: Duration = Duration::from_millis(20);

impl LimitUsage {
    /// Returns the time until a call that uses `cost` units may be sent, or zero if the call may be
    /// sent now. The share `reserved_share` of the limit stays free for more urgent calls. The
    /// service counts a call when it arrives, so each unanswered call counts as if it arrived now.
    fn time_to_wait(
        &mut self,
        kind: RateLimitKind,
        cost: u32,
        reserved_share: f64,
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
        let expired = self
            .may_arrive_until
            .iter()
            .take_while(|deadline| **deadline <= now)
            .count();
        for deadline in self.may_arrive_until.drain(..expired).collect::<Vec<_>>() {
            self.record_arrival(kind, deadline);
        }
        let calls_under_way = self.in_flight.len() + self.may_arrive_until.len();
        let blocked_for = self.blocked_until.map_or(Duration::ZERO, |instant| {
            instant.saturating_duration_since(now)
        });
        let time_until_room = match kind {
            RateLimitKind::Window {
                max_units,
                interval,
            } => {
                let interval = interval.mul_f64(CLOCK_MARGIN);
                while self
                    .arrivals
                    .front()
                    .is_some_and(|instant| now.saturating_duration_since(*instant) >= interval)
                {
                    self.arrivals.pop_front();
                }
                let max_units =
                    ((f64::from(max_units) * (1.0 - reserved_share)).floor() as usize).max(1);
                let cost = (cost as usize).min(max_units);
                let expired =
                    (self.arrivals.len() + calls_under_way + cost).saturating_sub(max_units);
                match expired
                    .checked_sub(1)
                    .map(|expired| self.arrivals.get(expired))
                {
                    None => Duration::ZERO,
                    Some(Some(arrived_at)) => {
                        (*arrived_at + interval).saturating_duration_since(now)
                    }
                    Some(None) => IN_FLIGHT_RETRY_DELAY,
                }
            }
            RateLimitKind::Bucket {
                burst,
                refill_interval,
            } => {
                let tokens = self.tokens_left(burst, refill_interval, now) - calls_under_way as f64;
                let needed =
                    (f64::from(cost) + burst * reserved_share.min(0.9)).min(burst.max(1.0));
                if tokens >= needed {
                    Duration::ZERO
                } else {
                    refill_time_with_margin(refill_interval).mul_f64(needed - tokens)
                }
            }
        };
        let wait = blocked_for.max(time_until_room);
        if wait.is_zero() {
            wait
        } else {
            wait.max(Duration::from_millis(1))
        }
    }

    /// Returns the number of tokens that are in a bucket now. Unanswered calls are not subtracted.
    fn tokens_left(&mut self, burst: f64, refill_interval: Duration, now: Instant) -> f64 {
        let refill_interval = refill_time_with_margin(refill_interval);
        let earlier_calls = std::mem::take(&mut self.arrivals);
        let (tokens, counted_at) = *self
            .tokens
            .get_or_insert_with(|| tokens_after_calls(&earlier_calls, burst, refill_interval, now));
        (tokens
            + now.saturating_duration_since(counted_at).as_secs_f64()
                / refill_interval.as_secs_f64())
        .min(burst)
    }

    /// Counts a unit that a call used before a restart of the daemon. `arrival` is the latest time
    /// at which this call can have arrived at the service.
    fn count_earlier_call(&mut self, arrival: Option<Instant>, now: Instant) {
        match arrival {
            Some(arrival) if arrival > now => self.may_arrive_until.push(arrival),
            arrival => self.arrivals.extend(arrival),
        }
    }

    /// Counts a unit that was used by a call which arrived no later than `arrival`.
    fn record_arrival(&mut self, kind: RateLimitKind, arrival: Instant) {
        match kind {
            RateLimitKind::Window { .. } => {
                let position = self
                    .arrivals
                    .iter()
                    .rposition(|earlier| *earlier <= arrival)
                    .map_or(0, |index| index + 1);
                self.arrivals.insert(position, arrival);
            }
            RateLimitKind::Bucket {
                burst,
                refill_interval,
            } => {
                let counted_at = self
                    .tokens
                    .map_or(arrival, |(_, counted_at)| counted_at.max(arrival));
                self.tokens = Some((
                    self.tokens_left(burst, refill_interval, counted_at) - 1.0,
                    counted_at,
                ));
            }
        }
    }
}

/// Returns the time in which a bucket gains one token, lengthened by [`CLOCK_MARGIN`].
fn refill_time_with_margin(refill_interval: Duration) -> Duration {
    refill_interval
        .mul_f64(CLOCK_MARGIN)
        .max(Duration::from_micros(1))
}

/// Computes the state of a token bucket from the times of all calls (`sent`). Returns the number of
/// tokens after the last call, and the time of the last call.
fn tokens_after_calls(
    sent: &VecDeque<Instant>,
    burst: f64,
    refill_interval: Duration,
    now: Instant,
) -> (f64, Instant) {
    let first = (burst, sent.front().copied().unwrap_or(now));
    sent.iter().fold(first, |(tokens, counted_at), sent| {
        let gained = sent.saturating_duration_since(counted_at).as_secs_f64()
            / refill_interval.as_secs_f64();
        ((tokens + gained).min(burst) - 1.0, *sent)
    })
}

/// The longest interval of any limit. Calls that are older than this interval no longer count.
const MAX_LIMIT_INTERVAL: Duration = Duration::from_secs(3_600);
/// Number of lines at which the file of a [`CallLog`] is written anew, without the lines that are
/// too old to count.
const MAX_LOG_LINES: usize = 20_000;

/// A file with one line for each call that was sent, each arrival of a call and each refusal.
/// Because of this file, earlier calls still count after a restart. If the daemon is killed, no
/// line is lost. A power failure may lose some lines, because the file is not synced to the disk.
/// Then the service may have to refuse a call.
#[derive(Debug)]
struct CallLog {
    path: PathBuf,
    file: File,
    lines: usize,
}

/// The kind of a line in a [`CallLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEvent {
    /// A call was within the rate limit, so it was sent immediately and counts against the limit.
    Sent,
    /// The oldest unanswered call arrived no later than the time in the line. The line is needed
    /// after a restart, because a call counts from its arrival, which may be long after the call
    /// was sent.
    Arrived,
    /// The service refused a call, and accepts no further calls before the time in the line.
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

    fn parse(text: &str) -> Option<CallEvent> {
        [CallEvent::Sent, CallEvent::Arrived, CallEvent::Refused]
            .into_iter()
            .find(|event| event.as_str() == text)
    }
}

/// A parsed line of a [`CallLog`].
#[derive(Debug)]
struct CallRecord {
    event: CallEvent,
    key: String,
    at_unix_ms: u64,
}

impl CallLog {
    /// Opens the file in which a bridge records its calls to the service. Removes the lines that
    /// are too old to count, and returns the remaining lines, oldest first.
    fn open(path: &Path, now_unix_ms: u64) -> io::Result<(CallLog, Vec<CallRecord>)> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let oldest_unix_ms = now_unix_ms.saturating_sub(to_ms(MAX_LIMIT_INTERVAL));
        let parse_line = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (event_name, at_unix_ms, key) =
                (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let event = CallEvent::parse(event_name)?;
            (at_unix_ms >= oldest_unix_ms).then(|| CallRecord {
                event,
                key: key.to_owned(),
                at_unix_ms,
            })
        };
        let records: Vec<CallRecord> = text.lines().filter_map(parse_line).collect();
        let lines: String = records
            .iter()
            .map(|record| format_line(record.event, record.at_unix_ms, &record.key))
            .collect();
        let temporary = path.with_extension("new");
        fs::write(&temporary, lines)?;
        fs::rename(&temporary, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok((
            CallLog {
                path: path.to_owned(),
                file,
                lines: records.len(),
            },
            records,
        ))
    }

    fn append(
        &mut self,
        limits: &[RateLimit],
        event: CallEvent,
        at_unix_ms: u64,
    ) -> io::Result<()> {
        let mut lines = String::new();
        for limit in limits {
            for _ in 0..if event == CallEvent::Refused {
                1
            } else {
                limit.cost
            } {
                lines += &format_line(event, at_unix_ms, &limit.key);
                self.lines += 1;
            }
        }
        self.file.write_all(lines.as_bytes())?;
        if self.lines > MAX_LOG_LINES {
            *self = CallLog::open(&self.path, at_unix_ms)?.0;
            self.lines = 0; // do not rewrite soon again, even if many lines still count
        }
        Ok(())
    }
}

fn format_line(event: CallEvent, at_unix_ms: u64, key: &str) -> String {
    format!("{} {at_unix_ms} {key}\n", event.as_str())
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

/// Decides when a bridge may send a call to its service. Contains the current usage of each rate
/// limit.
#[derive(Debug, Default)]
pub(crate) struct CallLimiter {
    usage_by_key: HashMap<String, LimitUsage>,
    log: Option<CallLog>,
    /// One moment, as the time of the monotonic clock and of the wall clock. The times in the file
    /// are computed from this moment, so that a change of the machine's date does not affect them.
    anchor: Option<(Instant, u64)>,
}

impl CallLimiter {
    /// Creates the limiter. Reads earlier calls from the file at `path`, so that calls from before
    /// a restart also count.
    pub(crate) fn open(path: &Path, now: Instant) -> io::Result<CallLimiter> {
        CallLimiter::open_at(path, now, unix_time_ms())
    }

    /// Like [`CallLimiter::open`], but with a given wall-clock time, for tests.
    fn open_at(path: &Path, now: Instant, now_unix_ms: u64) -> io::Result<CallLimiter> {
        let (log, records) = CallLog::open(path, now_unix_ms)?;
        let mut limiter = CallLimiter {
            usage_by_key: HashMap::new(),
            log: Some(log),
            anchor: Some((now, now_unix_ms)),
        };
        // An `Instant` cannot represent a time before the start of the machine. Such a call is too
        // old to count, so it is left out.
        let instant = |unix_ms: u64| match unix_ms.checked_sub(now_unix_ms) {
            Some(later_ms) => Some(now + Duration::from_millis(later_ms)),
            None => now.checked_sub(Duration::from_millis(now_unix_ms - unix_ms)),
        };
        let mut calls_under_way: HashMap<String, VecDeque<u64>> = HashMap::new();
        for CallRecord {
            event,
            key,
            at_unix_ms,
        } in records
        {
            match event {
                CallEvent::Refused => {
                    limiter.usage_by_key.entry(key).or_default().blocked_until = instant(at_unix_ms)
                }
                CallEvent::Sent => calls_under_way
                    .entry(key)
                    .or_default()
                    .push_back(at_unix_ms),
                CallEvent::Arrived => {
                    calls_under_way.get_mut(&key).and_then(VecDeque::pop_front);
                    limiter
                        .usage_by_key
                        .entry(key)
                        .or_default()
                        .count_earlier_call(instant(at_unix_ms), now);
                }
            }
        }
        // The file contains no arrival for these calls, so some of them may still arrive at the
        // service after this start.
        let latest = now_unix_ms + to_ms(MAX_LATE_ARRIVAL);
        for (key, sent) in calls_under_way {
            let usage = limiter.usage_by_key.entry(key).or_default();
            for unix_ms in sent {
                usage
                    .count_earlier_call(instant(latest.min(unix_ms + to_ms(MAX_FLIGHT_TIME))), now);
            }
        }
        for usage in limiter.usage_by_key.values_mut() {
            usage.arrivals.make_contiguous().sort_unstable();
        }
        Ok(limiter)
    }

    fn log_event(&mut self, limits: &[RateLimit], event: CallEvent, at: Instant) {
        let Some(log) = &mut self.log else { return };
        let (anchor, anchor_unix_ms) = *self
            .anchor
            .get_or_insert_with(|| (Instant::now(), unix_time_ms()));
        let at_unix_ms = match at.checked_duration_since(anchor) {
            Some(later) => anchor_unix_ms + to_ms(later),
            None => anchor_unix_ms.saturating_sub(to_ms(anchor.saturating_duration_since(at))),
        };
        if let Err(error) = log.append(limits, event, at_unix_ms) {
            tracing::warn!(%error, "could not write a call to the file of recent calls, so after a restart this call does not count against the service's rate limits");
        }
    }

    /// Takes the units of one call from every limit. If one limit does not allow the call now,
    /// takes no units and returns the time to wait. The share `reserved_share` of each limit stays
    /// free for more urgent calls.
    pub(crate) fn try_acquire(
        &mut self,
        limits: &[RateLimit],
        reserved_share: f64,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut longest_wait = Duration::ZERO;
        for limit in limits {
            let usage = self.usage_by_key.entry(limit.key.clone()).or_default();
            longest_wait =
                longest_wait.max(usage.time_to_wait(limit.kind, limit.cost, reserved_share, now));
        }
        if !longest_wait.is_zero() {
            return Err(longest_wait);
        }
        for limit in limits {
            let usage = self.usage_by_key.entry(limit.key.clone()).or_default();
            (0..limit.cost).for_each(|_| usage.in_flight.push_back(now));
        }
        self.log_event(limits, CallEvent::Sent, now);
        if self.usage_by_key.len() > 10_000 {
            self.remove_unused(now);
        }
        Ok(())
    }

    /// Records that the service answered a call, which means that the call has arrived.
    pub(crate) fn on_answered(&mut self, limits: &[RateLimit], now: Instant) {
        self.end_calls(limits, |usage, kind| usage.record_arrival(kind, now));
        self.log_event(limits, CallEvent::Arrived, now);
    }

    /// Records that a call ended without an answer, for example because of a timeout. Such a call
    /// may be lost, or may still arrive at the service.
    pub(crate) fn on_unanswered(&mut self, limits: &[RateLimit], now: Instant) {
        let latest_arrival = now + MAX_LATE_ARRIVAL;
        self.end_calls(limits, |usage, _| {
            usage.may_arrive_until.push(latest_arrival)
        });
        self.log_event(limits, CallEvent::Arrived, latest_arrival);
    }

    fn end_calls(&mut self, limits: &[RateLimit], count: impl Fn(&mut LimitUsage, RateLimitKind)) {
        for limit in limits {
            let Some(usage) = self.usage_by_key.get_mut(&limit.key) else {
                continue;
            };
            for _ in 0..limit.cost {
                // A call that took very long is no longer in the list, because it already counts as
                // arrived.
                if usage.in_flight.pop_front().is_some() {
                    count(usage, limit.kind);
                }
            }
        }
    }

    /// Records that the service refused a call. Until the time `until`, calls that fall under one
    /// of these limits are not sent.
    pub(crate) fn block_until(&mut self, limits: &[RateLimit], until: Instant) {
        for limit in limits {
            let usage = self.usage_by_key.entry(limit.key.clone()).or_default();
            usage.blocked_until = Some(
                usage
                    .blocked_until
                    .map_or(until, |instant| instant.max(until)),
            );
        }
        self.log_event(limits, CallEvent::Refused, until);
    }

    /// Removes the usage of limits that no call used within the last hour.
    fn remove_unused(&mut self, now: Instant) {
        let max_age = Duration::from_secs(3_600);
        let is_recent = |time: Instant| now.saturating_duration_since(time) < max_age;
        self.usage_by_key.retain(|_, usage| {
            usage.blocked_until.is_some_and(|instant| instant > now)
                || !usage.may_arrive_until.is_empty()
                || usage
                    .arrivals
                    .back()
                    .or(usage.in_flight.back())
                    .is_some_and(|instant| is_recent(*instant))
                || usage
                    .tokens
                    .is_some_and(|(_, counted_at)| is_recent(counted_at))
        });
    }
}

#[cfg(test)]
mod tests;
