//! How much may be sent where, so that no service has to say no: sliding windows and token buckets.
//!
//! A service counts on though we begin again, so what was sent is written down beside the store: see [`Journal`].

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::desk::wall;

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
    /// When things arrived within a window, at the latest; of a bucket, only what an earlier run sent.
    sent: VecDeque<Instant>,
    /// When things were sent that may not have arrived yet.
    flying: VecDeque<Instant>,
    /// What a bucket held when something last arrived, and when that was.
    tokens: Option<(f64, Instant)>,
    /// The service said no: nothing before this.
    shut_until: Option<Instant>,
}

/// No call is under way for longer: who was cut off in the middle of one holds up nobody for ever.
const LONGEST_FLIGHT: Duration = Duration::from_secs(60);
/// When to look again at what only waits for a call to end.
const SOON: Duration = Duration::from_millis(20);

impl State {
    /// How long until one more may go; `keep` leaves that share of the limit to others. A service counts when things
    /// arrive: what is under way may arrive just now, together with the next.
    fn wait(&mut self, kind: Kind, keep: f64, now: Instant) -> Duration {
        while self.flying.front().is_some_and(|it| now.saturating_duration_since(*it) >= LONGEST_FLIGHT) {
            self.land(kind, now);
        }
        let shut = self.shut_until.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        let full = match kind {
            Kind::Window { most, span } => {
                let span = span.mul_f64(MARGIN);
                while self.sent.front().is_some_and(|it| now.saturating_duration_since(*it) >= span) {
                    self.sent.pop_front();
                }
                let most = ((f64::from(most) * (1.0 - keep)).floor() as usize).max(1);
                let over = (self.sent.len() + self.flying.len() + 1).saturating_sub(most);
                match over.checked_sub(1).map(|it| self.sent.get(it)) {
                    None => Duration::ZERO,
                    Some(Some(frees)) => (*frees + span).saturating_duration_since(now),
                    Some(None) => SOON,
                }
            }
            Kind::Bucket { burst, every } => {
                let holds = self.holds(burst, every, now) - self.flying.len() as f64;
                let wanted = (1.0 + burst * keep.min(0.9)).min(burst.max(1.0));
                if holds >= wanted { Duration::ZERO } else { in_full(every).mul_f64(wanted - holds) }
            }
        };
        let wait = shut.max(full);
        if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) }
    }

    /// What a bucket holds, but for what is under way.
    fn holds(&mut self, burst: f64, every: Duration, now: Instant) -> f64 {
        let every = in_full(every);
        let before = std::mem::take(&mut self.sent);
        let (tokens, at) = *self.tokens.get_or_insert_with(|| left(&before, burst, every, now));
        (tokens + now.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64()).min(burst)
    }

    /// Something has arrived, by now.
    fn land(&mut self, kind: Kind, now: Instant) {
        if self.flying.pop_front().is_none() {
            return;
        }
        match kind {
            Kind::Window { .. } => self.sent.push_back(now),
            Kind::Bucket { burst, every } => self.tokens = Some((self.holds(burst, every, now) - 1.0, now)),
        }
    }
}

/// How long one of a bucket takes, with what the clocks may differ by.
fn in_full(every: Duration) -> Duration {
    every.mul_f64(MARGIN).max(Duration::from_micros(1))
}

/// What a bucket holds after these were sent from it.
fn left(sent: &VecDeque<Instant>, burst: f64, every: Duration, now: Instant) -> (f64, Instant) {
    let first = (burst, sent.front().copied().unwrap_or(now));
    sent.iter().fold(first, |(tokens, at), sent| {
        let gained = sent.saturating_duration_since(at).as_secs_f64() / every.as_secs_f64();
        ((tokens + gained).min(burst) - 1.0, *sent)
    })
}

/// The longest stretch that any limit counts over.
const COUNTED: Duration = Duration::from_secs(3_600);
/// How many lines are written until the old ones go.
const MOST_LINES: usize = 20_000;

/// What was sent and what was refused, a line each, for who starts again. A killed process loses none; after a power
/// failure some may be missing, and then a service says no once more. Nothing is synchronised for that.
#[derive(Debug)]
struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
}

/// A line of it.
#[derive(Debug)]
struct Noted {
    key: String,
    /// When it was sent, or until when the service said no.
    at: u64,
    no: bool,
}

impl Journal {
    /// Opens it, without what no longer counts. Gives what does, oldest first.
    fn open(path: &Path) -> io::Result<(Journal, Vec<Noted>)> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let from = wall().saturating_sub(u64::try_from(COUNTED.as_millis()).unwrap_or(u64::MAX));
        let read = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let (kind, at, key) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            (at >= from).then(|| Noted { key: key.to_owned(), at, no: kind == "no" })
        };
        let kept: Vec<Noted> = text.lines().filter_map(read).collect();
        let lines: String = kept.iter().map(|it| line(it.no, it.at, &it.key)).collect();
        let fresh = path.with_extension("new");
        fs::write(&fresh, lines)?;
        fs::rename(&fresh, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok((Journal { path: path.to_owned(), file, lines: kept.len() }, kept))
    }

    fn note(&mut self, limits: &[Limit], no: bool, at: u64) -> io::Result<()> {
        let lines: String = limits.iter().map(|it| line(no, at, &it.key)).collect();
        self.file.write_all(lines.as_bytes())?;
        self.lines += limits.len();
        if self.lines > MOST_LINES {
            *self = Journal::open(&self.path)?.0;
            self.lines = 0; // however many still count, the next look is as far away
        }
        Ok(())
    }
}

fn line(no: bool, at: u64, key: &str) -> String {
    format!("{} {at} {key}\n", if no { "no" } else { "sent" })
}

/// The state of every limit that was met.
#[derive(Debug, Default)]
pub struct Buckets {
    known: HashMap<String, State>,
    journal: Option<Journal>,
}

impl Buckets {
    /// Those of somebody whose journal is there: what an earlier run sent counts.
    pub fn kept_in(path: &Path, now: Instant) -> io::Result<Buckets> {
        let (journal, kept) = Journal::open(path)?;
        let mut buckets = Buckets { known: HashMap::new(), journal: Some(journal) };
        let today = wall();
        for Noted { key, at, no } in kept {
            let state = buckets.known.entry(key).or_default();
            match no {
                true => state.shut_until = Some(now + Duration::from_millis(at.saturating_sub(today))),
                // What was sent before the machine began to count is older than anything that matters.
                false => state.sent.extend(now.checked_sub(Duration::from_millis(today.saturating_sub(at)))),
            }
        }
        Ok(buckets)
    }

    fn note(&mut self, limits: &[Limit], no: bool, at: u64) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.note(limits, no, at) {
            tracing::warn!("what was sent is not written down: {error}");
        }
    }

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
            self.known.entry(limit.key.clone()).or_default().flying.push_back(now);
        }
        self.note(limits, false, wall());
        if self.known.len() > 10_000 {
            self.tidy(now);
        }
        Ok(())
    }

    /// A call that was taken has ended: it has arrived at some time until now.
    pub fn arrived(&mut self, limits: &[Limit], now: Instant) {
        for limit in limits {
            if let Some(state) = self.known.get_mut(&limit.key) {
                state.land(limit.kind, now);
            }
        }
    }

    /// The service said no: nothing counts against these until then.
    pub fn shut(&mut self, limits: &[Limit], until: Instant) {
        for limit in limits {
            let state = self.known.entry(limit.key.clone()).or_default();
            state.shut_until = Some(state.shut_until.map_or(until, |it| it.max(until)));
        }
        let pause = until.saturating_duration_since(Instant::now());
        self.note(limits, true, wall() + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 2));
    }

    /// Forgets what nobody has met for long.
    fn tidy(&mut self, now: Instant) {
        let old = Duration::from_secs(3_600);
        let fresh = |at: Instant| now.saturating_duration_since(at) < old;
        self.known.retain(|_, it| {
            it.shut_until.is_some_and(|it| it > now)
                || it.sent.back().or(it.flying.back()).is_some_and(|it| fresh(*it))
                || it.tokens.is_some_and(|it| fresh(it.1))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// One that arrives as soon as it is sent.
    fn goes(buckets: &mut Buckets, limits: &[Limit], keep: f64, now: Instant) -> Result<(), Duration> {
        let came = buckets.take(limits, keep, now);
        if came.is_ok() {
            buckets.arrived(limits, now);
        }
        came
    }

    #[test]
    fn a_burst_then_the_pace_and_a_no_is_obeyed() {
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let limits = [Limit::bucket("post:C1", 2.0, SECOND), Limit::window("post", 100, 60 * SECOND)];
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(0)), Ok(()));
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(0)), Ok(()));
        let wait = goes(&mut buckets, &limits, 0.0, at(0)).unwrap_err();
        assert!((1_000..=1_030).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(1_030)), Ok(()));
        // Another channel is not held up.
        assert_eq!(goes(&mut buckets, &[Limit::bucket("post:C2", 1.0, SECOND)], 0.0, at(1_030)), Ok(()));
        buckets.shut(&limits[..1], at(31_000));
        assert!(goes(&mut buckets, &limits, 0.0, at(20_000)).unwrap_err() >= 10 * SECOND);
        assert_eq!(goes(&mut buckets, &limits, 0.0, at(32_500)), Ok(()));
    }

    /// However it is asked, no stretch of the window's length holds more than the limit.
    #[test]
    fn no_window_ever_holds_more_than_its_limit() {
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
        assert!(sent.len() >= 240, "{}: the limit is not used", sent.len());
    }

    /// What was long on its way may come together with the next: each counts from its arrival, and until then as if it
    /// came now.
    #[test]
    fn what_is_on_its_way_counts_as_if_it_came_just_now() {
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
        // Who was cut off holds up nobody for ever.
        assert_eq!(buckets.take(&window, 0.0, at(71_000)), Ok(()));
    }

    /// A service counts on though we begin again: so do we.
    #[test]
    fn who_begins_again_knows_what_was_sent_and_refused_before() {
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
        assert!(wait > 20 * SECOND, "the bucket is full again: {wait:?}");
        let shut = goes(&mut again, &[Limit::window("shut", 9, SECOND)], 0.0, now).unwrap_err();
        assert!(shut > 30 * SECOND, "the no is forgotten: {shut:?}");
        assert_eq!(goes(&mut again, &limits[..1], 0.0, now), Ok(()));
        assert!(goes(&mut again, &limits[..1], 0.0, now).is_err(), "the window is empty again");
        // What no longer counts is not kept.
        drop(again);
        let old = format!("{}sent 1000 old\nrubbish\n", std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, old).unwrap();
        Buckets::kept_in(&path, now).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), text.contains("old")), (6, false), "{text}");
    }

    #[test]
    fn what_can_wait_leaves_room_for_what_cannot() {
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        let limit = [Limit::window("x", 10, 60 * SECOND)];
        let taken = (0..20).filter(|_| goes(&mut buckets, &limit, 0.5, now).is_ok()).count();
        assert_eq!(taken, 5);
        let taken = (0..20).filter(|_| goes(&mut buckets, &limit, 0.0, now).is_ok()).count();
        assert_eq!(taken, 5);
    }
}
