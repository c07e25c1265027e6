//! Rate limits: how many calls may be sent to a service, as sliding windows and token buckets.
//!
//! A bridge keeps to the limits by itself, so that no service has to refuse a call. The service
//! continues to count when this process restarts, so every call is also written to a [`Journal`]
//! beside the store.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::desk::wall;

/// A limit that a call counts against.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Name of the counter: a method, or a method in one channel.
    pub key: String,
    pub kind: Kind,
    /// Number of units that one call takes.
    pub cost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// At most `most` units in any interval of length `span`.
    Window { most: u32, span: Duration },
    /// One unit per `every`, with bursts of up to `burst` units.
    Bucket { burst: f64, every: Duration },
}

/// Factor on all intervals. A service counts when calls arrive, which is not exactly when they were
/// sent.
const MARGIN: f64 = 1.02;

impl Limit {
    pub fn window(key: impl Into<String>, most: u32, span: Duration) -> Limit {
        Limit { key: key.into(), kind: Kind::Window { most, span }, cost: 1 }
    }

    pub fn bucket(key: impl Into<String>, burst: f64, every: Duration) -> Limit {
        Limit { key: key.into(), kind: Kind::Bucket { burst, every }, cost: 1 }
    }

    /// Returns the same limit for a call that takes `cost` units.
    pub fn costing(self, cost: u32) -> Limit {
        Limit { cost, ..self }
    }

    /// Returns the same limit for a service whose clock runs `times` times faster.
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
    /// Latest possible arrival times of the calls in the window. For a bucket, only the calls of an
    /// earlier run.
    sent: VecDeque<Instant>,
    /// Send times of calls that may not have arrived yet.
    flying: VecDeque<Instant>,
    /// Times until which a call may still arrive although its sender is gone or no longer waits for
    /// the answer.
    strays: Vec<Instant>,
    /// Number of tokens in the bucket at the last arrival, and the time of that arrival.
    tokens: Option<(f64, Instant)>,
    /// The service refused a call: no call is sent before this time.
    shut_until: Option<Instant>,
}

/// Time after which a call counts as arrived, so that a call that was cut off does not block others
/// forever.
const LONGEST_FLIGHT: Duration = Duration::from_secs(60);
/// Time that a call can still be on its way after its sender was killed or stopped waiting for the
/// answer. By then the bytes are in the buffers of the network and of the service, so the delay is
/// short.
pub const MAX_STRAY_DELAY: Duration = Duration::from_secs(3);
/// Wait time when only the end of a running call can make room.
const SOON: Duration = Duration::from_millis(20);

impl State {
    /// Returns the time until `cost` more units may be sent. The share `keep` of the limit stays
    /// free for others. A service counts when calls arrive, so each call under way counts as if it
    /// arrived now.
    fn wait(&mut self, kind: Kind, cost: u32, keep: f64, now: Instant) -> Duration {
        while self.flying.front().is_some_and(|it| now.saturating_duration_since(*it) >= LONGEST_FLIGHT) {
            self.flying.pop_front();
            self.land(kind, now);
        }
        self.strays.sort_unstable();
        let over = self.strays.iter().take_while(|until| **until <= now).count();
        for until in self.strays.drain(..over).collect::<Vec<_>>() {
            self.land(kind, until);
        }
        let under_way = self.flying.len() + self.strays.len();
        let shut = self.shut_until.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        let full = match kind {
            Kind::Window { most, span } => {
                let span = span.mul_f64(MARGIN);
                while self.sent.front().is_some_and(|it| now.saturating_duration_since(*it) >= span) {
                    self.sent.pop_front();
                }
                let most = ((f64::from(most) * (1.0 - keep)).floor() as usize).max(1);
                let cost = (cost as usize).min(most);
                let over = (self.sent.len() + under_way + cost).saturating_sub(most);
                match over.checked_sub(1).map(|it| self.sent.get(it)) {
                    None => Duration::ZERO,
                    Some(Some(frees)) => (*frees + span).saturating_duration_since(now),
                    Some(None) => SOON,
                }
            }
            Kind::Bucket { burst, every } => {
                let holds = self.holds(burst, every, now) - under_way as f64;
                let wanted = (f64::from(cost) + burst * keep.min(0.9)).min(burst.max(1.0));
                if holds >= wanted { Duration::ZERO } else { in_full(every).mul_f64(wanted - holds) }
            }
        };
        let wait = shut.max(full);
        if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) }
    }

    /// Returns the number of tokens in a bucket, not counting the calls under way.
    fn holds(&mut self, burst: f64, every: Duration, now: Instant) -> f64 {
        let every = in_full(every);
        let before = std::mem::take(&mut self.sent);
        let (tokens, at) = *self.tokens.get_or_insert_with(|| left(&before, burst, every, now));
        (tokens + now.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64()).min(burst)
    }

    /// Counts a unit of an earlier run that arrived, or will arrive, by `at`.
    fn count(&mut self, at: Option<Instant>, now: Instant) {
        match at {
            Some(at) if at > now => self.strays.push(at),
            at => self.sent.extend(at),
        }
    }

    /// Counts a unit that arrived no later than `at`.
    fn land(&mut self, kind: Kind, at: Instant) {
        match kind {
            Kind::Window { .. } => {
                let after = self.sent.iter().rposition(|earlier| *earlier <= at).map_or(0, |nth| nth + 1);
                self.sent.insert(after, at);
            }
            Kind::Bucket { burst, every } => {
                let since = self.tokens.map_or(at, |(_, since)| since.max(at));
                self.tokens = Some((self.holds(burst, every, since) - 1.0, since));
            }
        }
    }
}

/// Returns the time in which a bucket gains one token, with the margin for clock differences.
fn in_full(every: Duration) -> Duration {
    every.mul_f64(MARGIN).max(Duration::from_micros(1))
}

/// Returns the number of tokens in a bucket after the calls `sent`, and the time of the last one.
fn left(sent: &VecDeque<Instant>, burst: f64, every: Duration, now: Instant) -> (f64, Instant) {
    let first = (burst, sent.front().copied().unwrap_or(now));
    sent.iter().fold(first, |(tokens, at), sent| {
        let gained = sent.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64();
        ((tokens + gained).min(burst) - 1.0, *sent)
    })
}

/// The longest interval that any limit counts over.
const COUNTED: Duration = Duration::from_secs(3_600);
/// Number of lines after which the journal is rewritten without the old ones.
const MOST_LINES: usize = 20_000;

/// A file of all calls sent, calls arrived and refusals, one line each, for the next run. A killed
/// process loses no line. After a power failure some may be missing, because nothing is
/// synchronised to disk; then the service refuses a call once more.
#[derive(Debug)]
struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
}

/// The kind of a journal line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// A unit was taken, and its call is sent at once.
    Sent,
    /// The oldest unit under way arrived no later than this time. A later run needs the times of
    /// arrival, because the service counts those: counted from its send time, a unit that was long
    /// on its way would be forgotten too early.
    Arrived,
    /// The service refused calls until this time.
    Refused,
}

impl Note {
    fn word(self) -> &'static str {
        match self {
            Note::Sent => "sent",
            Note::Arrived => "came",
            Note::Refused => "no",
        }
    }

    fn from_word(word: &str) -> Option<Note> {
        [Note::Sent, Note::Arrived, Note::Refused].into_iter().find(|note| note.word() == word)
    }
}

/// A line of the journal.
#[derive(Debug)]
struct Noted {
    note: Note,
    key: String,
    at_unix_ms: u64,
}

impl Journal {
    /// Opens the journal and drops the lines that no longer count. Returns the others, oldest first.
    fn open(path: &Path, now_unix_ms: u64) -> io::Result<(Journal, Vec<Noted>)> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let from = now_unix_ms.saturating_sub(ms(COUNTED));
        let read = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (word, at, key) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let note = Note::from_word(word)?;
            (at >= from).then(|| Noted { note, key: key.to_owned(), at_unix_ms: at })
        };
        let kept: Vec<Noted> = text.lines().filter_map(read).collect();
        let lines: String = kept.iter().map(|noted| line(noted.note, noted.at_unix_ms, &noted.key)).collect();
        let fresh = path.with_extension("new");
        fs::write(&fresh, lines)?;
        fs::rename(&fresh, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok((Journal { path: path.to_owned(), file, lines: kept.len() }, kept))
    }

    fn note(&mut self, limits: &[Limit], note: Note, at_unix_ms: u64) -> io::Result<()> {
        let mut lines = String::new();
        for limit in limits {
            for _ in 0..if note == Note::Refused { 1 } else { limit.cost } {
                lines += &line(note, at_unix_ms, &limit.key);
                self.lines += 1;
            }
        }
        self.file.write_all(lines.as_bytes())?;
        if self.lines > MOST_LINES {
            *self = Journal::open(&self.path, at_unix_ms)?.0;
            self.lines = 0; // the next rewrite is as far away, however many lines still count
        }
        Ok(())
    }
}

fn line(note: Note, at_unix_ms: u64, key: &str) -> String {
    format!("{} {at_unix_ms} {key}\n", note.word())
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

/// The state of every limit that was used.
#[derive(Debug, Default)]
pub struct Buckets {
    known: HashMap<String, State>,
    journal: Option<Journal>,
    /// The same moment on both clocks, so that a change of the machine's date changes no time in
    /// the journal.
    anchor: Option<(Instant, u64)>,
}

impl Buckets {
    /// Opens the limits with the journal at `path`, so that the calls of an earlier run count.
    pub fn kept_in(path: &Path, now: Instant) -> io::Result<Buckets> {
        Buckets::kept_at(path, now, wall())
    }

    /// Like [`Buckets::kept_in`], at a given wall-clock time.
    fn kept_at(path: &Path, now: Instant, now_unix_ms: u64) -> io::Result<Buckets> {
        let (journal, kept) = Journal::open(path, now_unix_ms)?;
        let mut buckets = Buckets { known: HashMap::new(), journal: Some(journal), anchor: Some((now, now_unix_ms)) };
        // A time before the machine was started is too old to matter.
        let instant = |at: u64| match at.checked_sub(now_unix_ms) {
            Some(ahead) => Some(now + Duration::from_millis(ahead)),
            None => now.checked_sub(Duration::from_millis(now_unix_ms - at)),
        };
        let mut under_way: HashMap<String, VecDeque<u64>> = HashMap::new();
        for Noted { note, key, at_unix_ms } in kept {
            match note {
                Note::Refused => buckets.known.entry(key).or_default().shut_until = instant(at_unix_ms),
                Note::Sent => under_way.entry(key).or_default().push_back(at_unix_ms),
                Note::Arrived => {
                    under_way.get_mut(&key).and_then(VecDeque::pop_front);
                    buckets.known.entry(key).or_default().count(instant(at_unix_ms), now);
                }
            }
        }
        // These calls had not arrived when the earlier run ended. They may arrive even after this
        // start.
        let latest = now_unix_ms + ms(MAX_STRAY_DELAY);
        for (key, sent) in under_way {
            let state = buckets.known.entry(key).or_default();
            for at in sent {
                state.count(instant(latest.min(at + ms(LONGEST_FLIGHT))), now);
            }
        }
        for state in buckets.known.values_mut() {
            state.sent.make_contiguous().sort_unstable();
        }
        Ok(buckets)
    }

    fn note(&mut self, limits: &[Limit], note: Note, at: Instant) {
        let Some(journal) = &mut self.journal else { return };
        let (then, then_unix_ms) = *self.anchor.get_or_insert_with(|| (Instant::now(), wall()));
        let at_unix_ms = match at.checked_duration_since(then) {
            Some(later) => then_unix_ms + ms(later),
            None => then_unix_ms.saturating_sub(ms(then.saturating_duration_since(at))),
        };
        if let Err(error) = journal.note(limits, note, at_unix_ms) {
            tracing::warn!(%error, "could not write a call to the send journal");
        }
    }

    /// Takes the units of one call from every limit. If one of them has no room, takes nothing and
    /// returns the time to wait. The share `keep` of each limit stays free for more urgent calls.
    pub fn take(&mut self, limits: &[Limit], keep: f64, now: Instant) -> Result<(), Duration> {
        let mut longest = Duration::ZERO;
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            longest = longest.max(state.wait(limit.kind, limit.cost, keep, now));
        }
        if !longest.is_zero() {
            return Err(longest);
        }
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            (0..limit.cost).for_each(|_| state.flying.push_back(now));
        }
        self.note(limits, Note::Sent, now);
        if self.known.len() > 10_000 {
            self.tidy(now);
        }
        Ok(())
    }

    /// Records that a call was answered, and therefore arrived by now.
    pub fn arrived(&mut self, limits: &[Limit], now: Instant) {
        self.end_flight(limits, |state, kind| state.land(kind, now));
        self.note(limits, Note::Arrived, now);
    }

    /// Records that a call ended without an answer. It may never arrive, or it may still be on its way.
    pub fn lost(&mut self, limits: &[Limit], now: Instant) {
        let until = now + MAX_STRAY_DELAY;
        self.end_flight(limits, |state, _| state.strays.push(until));
        self.note(limits, Note::Arrived, until);
    }

    fn end_flight(&mut self, limits: &[Limit], count: impl Fn(&mut State, Kind)) {
        for limit in limits {
            let Some(state) = self.known.get_mut(&limit.key) else { continue };
            for _ in 0..limit.cost {
                // A call that took too long was already counted.
                if state.flying.pop_front().is_some() {
                    count(state, limit.kind);
                }
            }
        }
    }

    /// Records that the service refused a call: no call is sent against these limits before
    /// `until`.
    pub fn shut(&mut self, limits: &[Limit], until: Instant) {
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            state.shut_until = Some(state.shut_until.map_or(until, |it| it.max(until)));
        }
        self.note(limits, Note::Refused, until);
    }

    /// Removes the limits that were not used for an hour.
    fn tidy(&mut self, now: Instant) {
        let old = Duration::from_secs(3_600);
        let fresh = |at: Instant| now.saturating_duration_since(at) < old;
        self.known.retain(|_, it| {
            it.shut_until.is_some_and(|it| it > now)
                || !it.strays.is_empty()
                || it.sent.back().or(it.flying.back()).is_some_and(|it| fresh(*it))
                || it.tokens.is_some_and(|it| fresh(it.1))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes the units of a call that arrives as soon as it is sent.
    fn goes(buckets: &mut Buckets, limits: &[Limit], keep: f64, now: Instant) -> Result<(), Duration> {
        let came = buckets.take(limits, keep, now);
        if came.is_ok() {
            buckets.arrived(limits, now);
        }
        came
    }

    #[test]
    fn limit_allows_a_burst_then_its_rate_and_waits_after_a_refusal() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limits = [Limit::bucket("post:C1", 2.0, SECOND), Limit::window("post", 100, 60 * SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(0)), Ok(()));
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(0)), Ok(()));
        let wait = goes(&mut buckets, &limits, 0.0, at(0)).unwrap_err();
        assert!((1_000..=1_030).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(1_030)), Ok(()));
        // Another channel is not delayed.
        assert_eq!(goes(&mut buckets, &[Limit::bucket("post:C2", 1.0, SECOND)], 0.0, at(1_030)), Ok(()));
        buckets.shut(&limits[..1], at(31_000));
        assert!(goes(&mut buckets, &limits, 0.0, at(20_000)).unwrap_err() >= 10 * SECOND);
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(32_500)), Ok(()));
    }

    /// The interval has the window's length and may start at any time.
    #[test]
    fn no_interval_has_more_calls_than_its_limit() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limit = [Limit::window("x", 50, 60 * SECOND)];
        let mut sent: Vec<u64> = Vec::new();
        for ms in (0..300_000).step_by(7) {
            if goes(&mut buckets, &limit, if ms % 3 == 0 { 0.5 } else { 0.0 }, start + Duration::from_millis(ms))
                .is_ok()
            {
                sent.push(ms);
            }
        }
        for (at, ms) in sent.iter().enumerate() {
            let within = sent[at..].iter().take_while(|it| **it < ms + 60_000).count();
            assert!(within <= 50, "{within} from {ms}");
        }
        assert!(sent.len() >= 240, "{}: the limit is not reached", sent.len());
    }

    /// A call under way may arrive together with the next one. It counts from its arrival, and
    /// until then as if it arrived now.
    #[test]
    fn call_under_way_counts_as_if_it_arrived_now() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limit = [Limit::bucket("post:C1", 2.0, SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!([0, 0, 1_030].map(|ms| buckets.take(&limit, 0.0, at(ms)).is_ok()), [true, true, false]);
        buckets.arrived(&limit, at(1_800));
        buckets.arrived(&limit, at(1_800));
        assert!(buckets.take(&limit, 0.0, at(2_100)).is_err());
        assert_eq!(buckets.take(&limit, 0.0, at(2_830)), Ok(()));
        let window = [Limit::window("x", 2, 10 * SECOND)];
        assert_eq!([0, 0].map(|ms| buckets.take(&window, 0.0, at(ms)).is_ok()), [true; 2]);
        buckets.arrived(&window, at(9_000));
        let wait = buckets.take(&window, 0.0, at(15_000)).unwrap_err();
        assert!((4_199..=4_201).contains(&wait.as_millis()), "{wait:?}");
        // A call that was cut off does not block others forever.
        assert_eq!(buckets.take(&window, 0.0, at(71_000)), Ok(()));
    }

    /// The service continues to count when this process restarts, so this process must not forget
    /// its calls.
    #[test]
    fn counts_and_refusals_are_kept_across_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slack-claude");
        let limits = [Limit::window("all calls", 3, 60 * SECOND), Limit::bucket("post:C1", 2.0, 30 * SECOND)];
        let now = Instant::now();
        let mut first = Buckets::kept_in(&path, now).unwrap();
        assert_eq!([0; 2].map(|_| goes(&mut first, &limits, 0.0, now).is_ok()), [true; 2]);
        first.shut(&[Limit::window("shut", 9, SECOND)], now + 40 * SECOND);
        drop(first);
        let now = Instant::now();
        let mut again = Buckets::kept_in(&path, now).unwrap();
        let wait = goes(&mut again, &limits[1..], 0.0, now).unwrap_err();
        assert!(wait > 20 * SECOND, "the bucket was reset: {wait:?}");
        let shut = goes(&mut again, &[Limit::window("shut", 9, SECOND)], 0.0, now).unwrap_err();
        assert!(shut > 30 * SECOND, "the refusal was forgotten: {shut:?}");
        assert_eq!(goes(&mut again, &limits[..1], 0.0, now), Ok(()));
        assert!(goes(&mut again, &limits[..1], 0.0, now).is_err(), "the window was reset");
        // Lines that no longer count are removed.
        drop(again);
        let old = format!("{}sent 1000 old\nrubbish\n", std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, old).unwrap();
        Buckets::kept_in(&path, now).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), text.contains("old")), (11, false), "{text}");
    }

    /// A service counts arrivals. The arriving calls stay within the limits despite delays of
    /// calls, stalls of the machine and kills of this process, because each call is counted until
    /// its arrival is certain.
    #[test]
    fn random_delays_stalls_and_kills_exceed_no_limit_at_the_service() {
        let mut dice = 20_261_118_u64;
        let mut roll = move |most: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most.max(1)
        };
        let mut used = [0; 2];
        for round in 0..200 {
            let directory = tempfile::tempdir().unwrap();
            let (path, start) = (directory.path().join("slack-claude"), Instant::now());
            let at = |ms: u64| start + Duration::from_millis(ms);
            let window = Limit::window("update", 5, SECOND);
            let bucket = Limit::bucket("post:C1", 2.0, SECOND / 4);
            let mut buckets = Buckets::kept_at(&path, start, 1_000_000).unwrap();
            // Calls under way, with the time of arrival, the time of the answer, and the limit that
            // the call uses.
            let mut flights: Vec<(u64, u64, bool)> = Vec::new();
            let (mut arrivals, mut now) = ([Vec::new(), Vec::new()], 0_u64);
            while now < 20_000 {
                // Most steps are short, and sometimes the machine stalls.
                now += if roll(40) == 0 { 300 + roll(900) } else { 1 + roll(15) };
                if roll(300) == 0 {
                    // The process is killed. Calls under way may still arrive for a while, and
                    // their answers are lost.
                    for (arrives, _, is_post) in flights.drain(..) {
                        if arrives <= now || roll(2) == 0 {
                            arrivals[usize::from(is_post)].push(arrives.min(now + 2_900));
                        }
                    }
                    now += 20 + roll(1_500);
                    buckets = Buckets::kept_at(&path, at(now), 1_000_000 + now).unwrap();
                }
                flights.retain(|(arrives, back, is_post)| {
                    if *back <= now {
                        arrivals[usize::from(*is_post)].push(*arrives);
                        buckets.arrived(std::slice::from_ref(if *is_post { &bucket } else { &window }), at(now));
                    }
                    *back > now
                });
                let is_post = roll(2) == 0;
                let limit = std::slice::from_ref(if is_post { &bucket } else { &window });
                if flights.len() < 16 && buckets.take(limit, 0.0, at(now)).is_ok() {
                    let longest = if roll(5) == 0 { 800 } else { 20 };
                    let arrives = now + roll(longest);
                    flights.push((arrives, arrives + roll(200), is_post));
                }
            }
            let [updates, posts] = &mut arrivals;
            updates.sort_unstable();
            posts.sort_unstable();
            for (nth, ms) in updates.iter().enumerate() {
                let within = updates[nth..].iter().take_while(|later| **later < ms + 1_000).count();
                assert!(within <= 5, "round {round}: {within} updates within a second from {ms}");
            }
            let (mut tokens, mut since) = (2.0_f64, 0_u64);
            for ms in posts.iter() {
                tokens = (tokens + (ms - since) as f64 / 250.0).min(2.0) - 1.0;
                assert!(tokens >= -0.001, "round {round}: a post at {ms} finds {tokens} tokens");
                since = *ms;
            }
            used = [used[0] + updates.len(), used[1] + posts.len()];
        }
        assert!(used.iter().all(|calls| *calls > 200 * 20), "the limits are not reached: {used:?}");
    }

    /// A call that takes several units leaves fewer for the others.
    #[test]
    fn call_uses_as_many_units_as_it_costs() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        let write = [Limit::window("points", 12, 60 * SECOND).costing(5)];
        let read = [Limit::window("points", 12, 60 * SECOND)];
        assert_eq!([0; 3].map(|_| goes(&mut buckets, &write, 0.0, now).is_ok()), [true, true, false]);
        assert_eq!([0; 3].map(|_| goes(&mut buckets, &read, 0.0, now).is_ok()), [true, true, false]);
        assert_eq!(goes(&mut buckets, &write, 0.0, now + 62 * SECOND), Ok(()));
    }

    #[test]
    fn calls_that_can_wait_leave_room_for_urgent_calls() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        let limit = [Limit::window("x", 10, 60 * SECOND)];
        let taken = (0..20).filter(|_| goes(&mut buckets, &limit, 0.5, now).is_ok()).count();
        assert_eq!(taken, 5);
        let taken = (0..20).filter(|_| goes(&mut buckets, &limit, 0.0, now).is_ok()).count();
        assert_eq!(taken, 5);
    }
}
