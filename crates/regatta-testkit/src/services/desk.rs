//! The state that every double has: its world under one lock, the calls, the violations, the
//! ordered faults, and the waiting tests.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use super::door::{Asked, Door, Reply};
use super::limit::{Limiter, Refused, Rule, Scale};

/// The way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Does nothing and answers with this status.
    Status(u16),
    /// Does nothing and answers with the service's error for "wait this many seconds". Earlier
    /// calls are then violations.
    RetryAfter(f64),
    /// Does nothing and closes the connection without an answer.
    DropBeforeAnswer,
    /// Performs the call and closes the connection without an answer. A client that repeats the
    /// call blindly performs it twice.
    DropAfterDoing,
    /// Waits this long before the call is performed and answered.
    Delay(Duration),
}

/// One API call.
#[derive(Clone, Debug)]
pub struct Call {
    /// When the call arrived, since the start of the double.
    pub at: Duration,
    /// When the call was answered or dropped.
    pub done: Duration,
    /// The operation, by the service's own name.
    pub operation: String,
    /// The app whose credentials the call had, or an empty text.
    pub by: String,
    pub input: Value,
    pub status: u16,
    pub answer: Value,
    /// The service's name for the error.
    pub error: Option<String>,
    pub fault: Option<Fault>,
}

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A rate limit was exceeded.
    Limit,
    /// The client called again before the time that a refusal had named, and could have known it.
    TooSoon,
    /// An acknowledgement, an answer or a first activity came too late.
    Late,
    /// Missing, wrong or expired credentials.
    Auth,
    /// The operation, object or field does not exist.
    Unknown,
    /// A field is missing or has the wrong format.
    Field,
    /// A text or a list is longer than its limit.
    TooLong,
    /// The object belongs to somebody else.
    Foreign,
    /// The service cannot parse the markup.
    Markup,
    /// The call does not fit the state: stopped twice, reacted twice, not in the channel.
    State,
}

/// Behaviour that the real service would reject or punish.
#[derive(Clone, Debug)]
pub struct Violation {
    pub at: Duration,
    pub by: String,
    pub wrong: Wrong,
    pub what: String,
}

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Value,
    pub(crate) error: Option<String>,
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Answer {
        Answer { status: 200, headers: vec![], body, error: None }
    }

    pub(crate) fn with(status: u16, body: Value) -> Answer {
        Answer { status, headers: vec![], body, error: None }
    }

    pub(crate) fn error(status: u16, name: &str, body: Value) -> Answer {
        Answer { status, headers: vec![], body, error: Some(name.to_owned()) }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    fn response(&self) -> Response<Full<Bytes>> {
        let body = match &self.body {
            Value::Null => Bytes::new(),
            Value::String(text) => Bytes::from(text.clone()),
            other => Bytes::from(other.to_string()),
        };
        let mut response = Response::builder().status(self.status);
        if !self.headers.iter().any(|it| it.0 == "content-type") {
            response = response.header("content-type", "application/json; charset=utf-8");
        }
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        response.body(Full::new(body)).expect("the doubles write valid headers")
    }
}

/// The parts of common behaviour that each service words in its own way.
pub trait World: Send + 'static {
    /// Returns the answer to a client that must wait.
    #[doc(hidden)]
    fn limited(operation: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value);
}

pub(crate) fn limited<W: World>(operation: &str, seconds: f64) -> Answer {
    let (status, headers, body) = W::limited(operation, seconds);
    Answer { status, headers, body, error: Some("ratelimited".into()) }
}

/// The records of a double, next to its world.
pub(crate) struct Ledger {
    pub(crate) scale: Scale,
    pub(crate) limiter: Limiter,
    started: Instant,
    calls: Vec<Call>,
    violations: Vec<Violation>,
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// The source of identifiers.
    counter: u64,
}

impl Ledger {
    /// Records a violation.
    pub(crate) fn wrong(&mut self, by: &str, wrong: Wrong, what: impl Into<String>) {
        let at = self.started.elapsed();
        self.violations.push(Violation { at, by: by.to_owned(), wrong, what: what.into() });
    }

    /// Counts a call against these limits. A refusal is recorded as a violation.
    pub(crate) fn take(&mut self, by: &str, operation: &str, rules: &[Rule]) -> Result<(), Refused> {
        let taken = self.limiter.take(rules, self.scale, Instant::now());
        if let Err(refused) = &taken {
            let wrong = if refused.too_soon { Wrong::TooSoon } else { Wrong::Limit };
            self.wrong(by, wrong, format!("{operation}: the limit \"{}\" was reached", refused.key));
        }
        taken
    }

    /// Returns a number that was not returned before.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The state at one moment: the service's world and its records.
pub struct View<'a, W> {
    world: &'a W,
    ledger: &'a Ledger,
}

impl<W> Deref for View<'_, W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.world
    }
}

impl<W> View<'_, W> {
    pub(crate) fn scale(&self) -> Scale {
        self.ledger.scale
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> &[Call] {
        &self.ledger.calls
    }

    /// Returns the successful calls of one operation.
    pub fn done<'b>(&'b self, operation: &'b str) -> impl Iterator<Item = &'b Call> {
        self.calls().iter().filter(move |it| it.operation == operation && it.error.is_none() && it.status < 300)
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.ledger.violations
    }
}

struct State<W> {
    world: W,
    ledger: Ledger,
}

/// The part that all doubles share.
pub struct Desk<W> {
    state: Mutex<State<W>>,
    changed: watch::Sender<u64>,
    door: Door,
    started: Instant,
}

impl<W: World> Desk<W> {
    /// Starts the listener. Requests go to `handler`.
    pub(crate) async fn open<F>(world: W, handler: fn(Arc<Desk<W>>, Asked) -> F) -> Arc<Desk<W>>
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        let started = Instant::now();
        let ledger = Ledger {
            scale: Scale::REAL,
            limiter: Limiter::default(),
            started,
            calls: vec![],
            violations: vec![],
            faults: BTreeMap::new(),
            counter: 0,
        };
        let state = Mutex::new(State { world, ledger });
        let door = Door::new().await;
        let desk = Arc::new(Desk { state, changed: watch::Sender::new(0), door, started });
        let theirs = Arc::downgrade(&desk);
        desk.door.set_handler(Arc::new(move |asked| {
            let desk = theirs.upgrade();
            Box::pin(async move {
                match desk {
                    Some(desk) => handler(desk, asked).await,
                    None => Reply::Dropped,
                }
            })
        }));
        desk.door.come_back().await;
        desk
    }

    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut W, &mut Ledger) -> T) -> T {
        let mut state = self.lock();
        let State { world, ledger } = &mut *state;
        let result = act(world, ledger);
        drop(state);
        self.changed.send_modify(|it| *it += 1);
        result
    }

    /// Changes the state without waking waiting tests.
    pub(crate) fn change_quietly<T>(&self, act: impl FnOnce(&mut W, &mut Ledger) -> T) -> T {
        let mut state = self.lock();
        let State { world, ledger } = &mut *state;
        act(world, ledger)
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Ends everything that the double started.
    pub(crate) fn shut(&self) {
        self.door.shut();
    }

    /// Reads the current state.
    pub fn view<T>(&self, look: impl FnOnce(&View<'_, W>) -> T) -> T {
        let state = self.lock();
        look(&View { world: &state.world, ledger: &state.ledger })
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn door(&self) -> &Door {
        &self.door
    }

    /// Returns the URL: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.door.address())
    }

    /// Returns the time from which `at` counts.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Makes limits, waits and deadlines run faster.
    pub fn limits(&self, scale: Scale) {
        self.change(|_, ledger| ledger.scale = scale);
    }

    /// Makes the next `n` calls of an operation fail. Faults of one operation are queued.
    pub fn fail_next(&self, operation: &str, n: usize, fault: Fault) {
        self.change(|_, ledger| {
            let queue = ledger.faults.entry(operation.to_owned()).or_default();
            queue.extend(std::iter::repeat_n(fault, n));
        });
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().ledger.calls.clone()
    }

    /// Returns the calls of one operation.
    pub fn calls_of(&self, operation: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|it| it.operation == operation);
        calls
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().ledger.violations.clone()
    }

    /// Panics if there was any violation.
    #[track_caller]
    pub fn assert_well_behaved(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "the client broke the service's rules:\n{violations:#?}");
    }

    /// Refuses connections and cuts the existing ones.
    pub async fn go_away(&self) {
        self.door.go_away().await;
        self.changed.send_modify(|it| *it += 1);
    }

    /// Listens again on the same port.
    pub async fn come_back(&self) {
        self.door.come_back().await;
    }

    /// Waits until the condition holds. Panics with the log if the time runs out.
    pub async fn wait_for(&self, mut holds: impl FnMut(&View<'_, W>) -> bool, within: Duration) {
        self.find(|view| holds(view).then_some(()), within).await;
    }

    /// Waits until `look` returns a value. Panics with the log if the time runs out.
    pub async fn find<T>(&self, mut look: impl FnMut(&View<'_, W>) -> Option<T>, within: Duration) -> T {
        let mut changes = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        loop {
            changes.borrow_and_update();
            if let Some(found) = self.view(&mut look) {
                return found;
            }
            let more = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(matches!(more, Ok(Ok(()))), "the condition did not hold within {within:?}:\n{}", self.story());
        }
    }

    /// Returns a log of the last calls and all violations, for people.
    pub fn story(&self) -> String {
        let state = self.lock();
        let mut story = String::new();
        let calls = &state.ledger.calls;
        for it in &calls[calls.len().saturating_sub(40)..] {
            let error = it.error.as_deref().unwrap_or("");
            let _ = writeln!(
                story,
                "{:>9.3?} {} {} {} {error} {:?} {}",
                it.at, it.by, it.operation, it.status, it.fault, it.input
            );
        }
        for it in &state.ledger.violations {
            let _ = writeln!(story, "violation at {:.3?} by \"{}\", {:?}: {}", it.at, it.by, it.wrong, it.what);
        }
        story
    }

    /// Performs an API call, or the fault that was ordered for it, and records it.
    pub(crate) async fn call(
        &self,
        operation: &str,
        by: &str,
        input: Value,
        act: impl FnOnce(&mut W, &mut Ledger) -> Answer,
    ) -> Reply {
        let arrived = self.started.elapsed();
        let fault = self.lock().ledger.faults.get_mut(operation).and_then(VecDeque::pop_front);
        if let Some(Fault::Delay(wait)) = fault {
            tokio::time::sleep(wait).await;
        }
        self.change(|world, ledger| {
            let answer = match fault {
                Some(Fault::Status(status)) => Answer::error(status, "ordered", Value::Null),
                Some(Fault::RetryAfter(seconds)) => {
                    let key = held(operation, by);
                    ledger.limiter.tell(&key, Instant::now() + Duration::from_secs_f64(seconds));
                    limited::<W>(operation, seconds)
                }
                Some(Fault::DropBeforeAnswer) => Answer::error(0, "dropped", Value::Null),
                Some(Fault::DropAfterDoing | Fault::Delay(_)) | None => {
                    // After an ordered wait, early calls are refused, whatever the other limits
                    // allow.
                    let held = Rule::window(held(operation, by), u32::MAX, Duration::from_secs(1));
                    match ledger.take(by, operation, &[held]) {
                        Ok(()) => act(world, ledger),
                        Err(refused) => limited::<W>(operation, refused.seconds),
                    }
                }
            };
            let dropped = matches!(fault, Some(Fault::DropBeforeAnswer | Fault::DropAfterDoing));
            let reply = if dropped { Reply::Dropped } else { Reply::Answer(answer.response()) };
            let Answer { status, body, error, .. } = answer;
            let (operation, by) = (operation.to_owned(), by.to_owned());
            let done = ledger.started.elapsed();
            ledger.calls.push(Call { at: arrived, done, operation, by, input, status, answer: body, error, fault });
            reply
        })
    }
}

/// Returns the key of an ordered wait.
fn held(operation: &str, by: &str) -> String {
    format!("the ordered wait for {operation} of {by}")
}
