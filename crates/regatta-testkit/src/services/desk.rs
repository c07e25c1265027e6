//! What every double keeps: its world under one lock, the calls, the violations, the faults, and who waits.

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

/// How a call is made to fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing is done, and this is answered.
    Status(u16),
    /// Nothing is done; wait so many seconds (as the service says it), and is held to it.
    RetryAfter(f64),
    /// Nothing is done, and the connection closes without an answer.
    DropBeforeAnswer,
    /// The thing is done, and the connection closes without an answer: whoever repeats it blindly does it twice.
    DropAfterDoing,
    /// The answer takes so long. The thing is done after the wait.
    Delay(Duration),
}

/// One call of the API.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it arrived, since the double began.
    pub at: Duration,
    /// When it was answered, or dropped.
    pub done: Duration,
    /// Which operation, by the service's own name for it.
    pub operation: String,
    /// Whose credentials it had: an app's name, or empty.
    pub by: String,
    pub input: Value,
    pub status: u16,
    pub answer: Value,
    /// The service's name for what was wrong.
    pub error: Option<String>,
    pub fault: Option<Fault>,
}

/// What a violation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A rate limit was exceeded.
    Limit,
    /// It was called again before the time that a refusal had named, and could have known it.
    TooSoon,
    /// An acknowledgement, an answer or a first sign came late.
    Late,
    /// No, wrong or expired credentials.
    Auth,
    /// No such operation, object or field.
    Unknown,
    /// A field is missing or has the wrong form.
    Field,
    /// Text or lists beyond their limit.
    TooLong,
    /// What belongs to somebody else.
    Foreign,
    /// Markup that the service cannot read.
    Markup,
    /// It does not fit the state: stopped twice, reacted twice, not in the channel.
    State,
}

/// What the real service would have punished.
#[derive(Clone, Debug)]
pub struct Violation {
    pub at: Duration,
    pub by: String,
    pub wrong: Wrong,
    pub what: String,
}

/// An answer on its way.
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

/// How a service words what all services have.
pub trait World: Send + 'static {
    /// The answer to whoever must wait.
    #[doc(hidden)]
    fn limited(operation: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value);
}

pub(crate) fn limited<W: World>(operation: &str, seconds: f64) -> Answer {
    let (status, headers, body) = W::limited(operation, seconds);
    Answer { status, headers, body, error: Some("ratelimited".into()) }
}

/// The records of a double, beside its world.
pub(crate) struct Ledger {
    pub(crate) scale: Scale,
    pub(crate) limiter: Limiter,
    started: Instant,
    calls: Vec<Call>,
    violations: Vec<Violation>,
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// For identifiers.
    counter: u64,
}

impl Ledger {
    /// Writes a violation down.
    pub(crate) fn wrong(&mut self, by: &str, wrong: Wrong, what: impl Into<String>) {
        let at = self.started.elapsed();
        self.violations.push(Violation { at, by: by.to_owned(), wrong, what: what.into() });
    }

    /// Counts a call against these limits; a refusal is a violation.
    pub(crate) fn take(&mut self, by: &str, operation: &str, rules: &[Rule]) -> Result<(), Refused> {
        let taken = self.limiter.take(rules, self.scale, Instant::now());
        if let Err(refused) = &taken {
            let wrong = if refused.too_soon { Wrong::TooSoon } else { Wrong::Limit };
            self.wrong(by, wrong, format!("{operation}: the limit \"{}\" was reached", refused.key));
        }
        taken
    }

    /// A number that was never given before.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What is true at one moment: the service's world, and its records.
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

    /// Every call so far.
    pub fn calls(&self) -> &[Call] {
        &self.ledger.calls
    }

    /// The calls of one operation that were answered well.
    pub fn done<'b>(&'b self, operation: &'b str) -> impl Iterator<Item = &'b Call> {
        self.calls().iter().filter(move |it| it.operation == operation && it.error.is_none() && it.status < 300)
    }

    /// Every violation so far.
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
    /// Opens the door; whoever comes is handed to `handler`.
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

    /// Changes something that nobody waits for: what is on its way.
    pub(crate) fn change_quietly<T>(&self, act: impl FnOnce(&mut W, &mut Ledger) -> T) -> T {
        let mut state = self.lock();
        let State { world, ledger } = &mut *state;
        act(world, ledger)
    }

    /// Told of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Ends everything that this double started.
    pub(crate) fn shut(&self) {
        self.door.shut();
    }

    /// Looks at what is true now.
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

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.door.address())
    }

    /// When it began: what `at` counts from.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Runs limits, waits and deadlines faster.
    pub fn limits(&self, scale: Scale) {
        self.change(|_, ledger| ledger.scale = scale);
    }

    /// Makes the next `n` calls of this operation fail so. Faults of one operation queue up.
    pub fn fail_next(&self, operation: &str, n: usize, fault: Fault) {
        self.change(|_, ledger| {
            let queue = ledger.faults.entry(operation.to_owned()).or_default();
            queue.extend(std::iter::repeat_n(fault, n));
        });
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().ledger.calls.clone()
    }

    /// The calls of one operation.
    pub fn calls_of(&self, operation: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|it| it.operation == operation);
        calls
    }

    /// What the real service would have punished.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().ledger.violations.clone()
    }

    /// Panics if there was any violation.
    #[track_caller]
    pub fn assert_well_behaved(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "the client broke the service's rules:\n{violations:#?}");
    }

    /// Refuses connections and cuts those there are.
    pub async fn go_away(&self) {
        self.door.go_away().await;
        self.changed.send_modify(|it| *it += 1);
    }

    /// Listens again, on the same port.
    pub async fn come_back(&self) {
        self.door.come_back().await;
    }

    /// Waits until this holds. Panics with what was seen when it does not within that time.
    pub async fn wait_for(&self, mut holds: impl FnMut(&View<'_, W>) -> bool, within: Duration) {
        self.find(|view| holds(view).then_some(()), within).await;
    }

    /// Waits until there is something to find. Panics with what was seen when there is nothing within that time.
    pub async fn find<T>(&self, mut look: impl FnMut(&View<'_, W>) -> Option<T>, within: Duration) -> T {
        let mut changes = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        loop {
            changes.borrow_and_update();
            if let Some(found) = self.view(&mut look) {
                return found;
            }
            let more = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(matches!(more, Ok(Ok(()))), "it did not come to be within {within:?}:\n{}", self.story());
        }
    }

    /// The last calls and all violations, for a person to read.
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

    /// Performs a call of the API: the fault that was ordered for it, else the act; and writes it down.
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
                    // Whoever was ordered to wait is held to it, whatever else the operation counts.
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

/// The limit of whoever was ordered to wait.
fn held(operation: &str, by: &str) -> String {
    format!("the ordered wait for {operation} of {by}")
}
