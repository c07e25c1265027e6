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

use super::listener::{DoubleListener, DoubleReply, DoubleRequest};
use super::rate_limit::{RateRefusal, RateRule, RateTracker, TimeScale};

/// The way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceFault {
    /// Does nothing and answers with this status.
    Status(u16),
    /// Does nothing and answers with the service's error for "wait this many seconds". Earlier
    /// calls are then violations.
    RetryAfter(f64),
    /// Does nothing and closes the connection without an answer.
    DropBeforeAnswer,
    /// Performs the call and closes the connection without an answer. A client that repeats the
    /// call blindly performs it twice.
    DropAfterCall,
    /// Waits this long before the call is performed and answered.
    Delay(Duration),
}

/// One API call.
#[derive(Clone, Debug)]
pub struct ServiceCall {
    /// When the call arrived, since the start of the double.
    pub arrived: Duration,
    /// When the call was answered or dropped.
    pub answered: Duration,
    /// The operation, by the service's own name.
    pub operation: String,
    /// The app whose credentials the call had, or an empty text.
    pub app: String,
    pub input: Value,
    pub status: u16,
    pub answer: Value,
    /// The service's name for the error.
    pub error: Option<String>,
    pub fault: Option<ServiceFault>,
}

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// A rate limit was exceeded.
    RateLimit,
    /// The client called again before the time that a refusal had named, and could have known it.
    TooSoon,
    /// An acknowledgement, an answer or a first activity came too late.
    Late,
    /// Missing, wrong or expired credentials.
    Auth,
    /// The operation, object or field does not exist.
    Unknown,
    /// A field is missing or has the wrong format.
    BadField,
    /// A text or a list is longer than its limit.
    TooLong,
    /// The object belongs to somebody else.
    NotOwned,
    /// The service cannot parse the markup.
    BadMarkup,
    /// The call does not fit the state: stopped twice, reacted twice, not in the channel.
    WrongState,
}

/// Behaviour that the real service would reject or punish.
#[derive(Clone, Debug)]
pub struct Violation {
    pub noticed: Duration,
    pub app: String,
    pub kind: ViolationKind,
    pub description: String,
}

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct ServiceAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Value,
    pub(crate) error: Option<String>,
}

impl ServiceAnswer {
    pub(crate) fn ok(body: Value) -> ServiceAnswer {
        ServiceAnswer {
            status: 200,
            headers: vec![],
            body,
            error: None,
        }
    }

    pub(crate) fn with_status(status: u16, body: Value) -> ServiceAnswer {
        ServiceAnswer {
            status,
            headers: vec![],
            body,
            error: None,
        }
    }

    pub(crate) fn error(status: u16, name: &str, body: Value) -> ServiceAnswer {
        ServiceAnswer {
            status,
            headers: vec![],
            body,
            error: Some(name.to_owned()),
        }
    }

    pub(crate) fn with_header(
        mut self,
        name: &'static str,
        value: impl Into<String>,
    ) -> ServiceAnswer {
        self.headers.push((name, value.into()));
        self
    }

    fn to_response(&self) -> Response<Full<Bytes>> {
        let body = match &self.body {
            Value::Null => Bytes::new(),
            Value::String(text) => Bytes::from(text.clone()),
            other => Bytes::from(other.to_string()),
        };
        let mut response = Response::builder().status(self.status);
        if !self.headers.iter().any(|header| header.0 == "content-type") {
            response = response.header("content-type", "application/json; charset=utf-8");
        }
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        response
            .body(Full::new(body))
            .expect("the doubles write valid headers")
    }
}

/// The parts of common behaviour that each service words in its own way.
pub trait ServiceState: Send + 'static {
    /// Returns the answer to a client that must wait.
    #[doc(hidden)]
    fn rate_limit_answer(
        operation: &str,
        seconds: f64,
    ) -> (u16, Vec<(&'static str, String)>, Value);
}

pub(crate) fn rate_limited<W: ServiceState>(operation: &str, seconds: f64) -> ServiceAnswer {
    let (status, headers, body) = W::rate_limit_answer(operation, seconds);
    ServiceAnswer {
        status,
        headers,
        body,
        error: Some("ratelimited".into()),
    }
}

/// The records of a double, next to its world.
pub(crate) struct CallRecords {
    pub(crate) scale: TimeScale,
    pub(crate) limiter: RateTracker,
    started: Instant,
    calls: Vec<ServiceCall>,
    violations: Vec<Violation>,
    faults: BTreeMap<String, VecDeque<ServiceFault>>,
    /// The source of identifiers.
    counter: u64,
}

impl CallRecords {
    /// Records a violation.
    pub(crate) fn add_violation(
        &mut self,
        caller: &str,
        kind: ViolationKind,
        description: impl Into<String>,
    ) {
        let elapsed = self.started.elapsed();
        self.violations.push(Violation {
            noticed: elapsed,
            app: caller.to_owned(),
            kind,
            description: description.into(),
        });
    }

    /// Counts a call against these limits. A refusal is recorded as a violation.
    pub(crate) fn count_call(
        &mut self,
        caller: &str,
        operation: &str,
        rules: &[RateRule],
    ) -> Result<(), RateRefusal> {
        let taken = self.limiter.count_call(rules, self.scale, Instant::now());
        if let Err(refused) = &taken {
            let wrong = if refused.is_too_soon {
                ViolationKind::TooSoon
            } else {
                ViolationKind::RateLimit
            };
            self.add_violation(
                caller,
                wrong,
                format!("{operation}: the limit \"{}\" was reached", refused.key),
            );
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
pub struct DoubleView<'a, W> {
    service: &'a W,
    records: &'a CallRecords,
}

impl<W> Deref for DoubleView<'_, W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.service
    }
}

impl<W> DoubleView<'_, W> {
    pub(crate) fn scale(&self) -> TimeScale {
        self.records.scale
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> &[ServiceCall] {
        &self.records.calls
    }

    /// Returns the successful calls of one operation.
    pub fn answered<'b>(&'b self, operation: &'b str) -> impl Iterator<Item = &'b ServiceCall> {
        self.calls().iter().filter(move |service_call| {
            service_call.operation == operation
                && service_call.error.is_none()
                && service_call.status < 300
        })
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.records.violations
    }
}

struct DoubleState<W> {
    service: W,
    records: CallRecords,
}

/// The part that all doubles share.
pub struct ServiceDouble<W> {
    state: Mutex<DoubleState<W>>,
    changed: watch::Sender<u64>,
    listener: DoubleListener,
    started: Instant,
}

impl<W: ServiceState> ServiceDouble<W> {
    /// Starts the listener. Requests go to `handler`.
    pub(crate) async fn open<F>(
        world: W,
        handler: fn(Arc<ServiceDouble<W>>, DoubleRequest) -> F,
    ) -> Arc<ServiceDouble<W>>
    where
        F: Future<Output = DoubleReply> + Send + 'static,
    {
        let started = Instant::now();
        let ledger = CallRecords {
            scale: TimeScale::REAL_TIME,
            limiter: RateTracker::default(),
            started,
            calls: vec![],
            violations: vec![],
            faults: BTreeMap::new(),
            counter: 0,
        };
        let state = Mutex::new(DoubleState {
            service: world,
            records: ledger,
        });
        let listener = DoubleListener::new().await;
        let double = Arc::new(ServiceDouble {
            state,
            changed: watch::Sender::new(0),
            listener,
            started,
        });
        let weak_double = Arc::downgrade(&double);
        double.listener.set_handler(Arc::new(move |request| {
            let double = weak_double.upgrade();
            Box::pin(async move {
                match double {
                    Some(double) => handler(double, request).await,
                    None => DoubleReply::Dropped,
                }
            })
        }));
        double.listener.go_online().await;
        double
    }

    pub(crate) fn update<T>(&self, act: impl FnOnce(&mut W, &mut CallRecords) -> T) -> T {
        let mut state = self.lock();
        let DoubleState {
            service: world,
            records: ledger,
        } = &mut *state;
        let result = act(world, ledger);
        drop(state);
        self.changed.send_modify(|changed| *changed += 1);
        result
    }

    /// Changes the state without waking waiting tests.
    pub(crate) fn update_silently<T>(&self, act: impl FnOnce(&mut W, &mut CallRecords) -> T) -> T {
        let mut state = self.lock();
        let DoubleState {
            service: world,
            records: ledger,
        } = &mut *state;
        act(world, ledger)
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Ends everything that the double started.
    pub(crate) fn shut_down(&self) {
        self.listener.shut_down();
    }

    /// Reads the current state.
    pub fn view<T>(&self, look: impl FnOnce(&DoubleView<'_, W>) -> T) -> T {
        let state = self.lock();
        look(&DoubleView {
            service: &state.service,
            records: &state.records,
        })
    }

    fn lock(&self) -> MutexGuard<'_, DoubleState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listener(&self) -> &DoubleListener {
        &self.listener
    }

    /// Returns the URL: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.listener.address())
    }

    /// Returns the time from which `at` counts.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Makes limits, waits and deadlines run faster.
    pub fn set_time_scale(&self, scale: TimeScale) {
        self.update(|_, ledger| ledger.scale = scale);
    }

    /// Makes the next `n` calls of an operation fail. Faults of one operation are queued.
    pub fn fail_next(&self, operation: &str, n: usize, fault: ServiceFault) {
        self.update(|_, ledger| {
            let queue = ledger.faults.entry(operation.to_owned()).or_default();
            queue.extend(std::iter::repeat_n(fault, n));
        });
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<ServiceCall> {
        self.lock().records.calls.clone()
    }

    /// Returns the calls of one operation.
    pub fn calls_of(&self, operation: &str) -> Vec<ServiceCall> {
        let mut calls = self.calls();
        calls.retain(|service_call| service_call.operation == operation);
        calls
    }

    /// Returns all violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().records.violations.clone()
    }

    /// Panics if there was any violation.
    #[track_caller]
    pub fn assert_well_behaved(&self) {
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "the client broke the service's rules:\n{violations:#?}"
        );
    }

    /// Refuses connections and cuts the existing ones.
    pub async fn go_offline(&self) {
        self.listener.go_offline().await;
        self.changed.send_modify(|changed| *changed += 1);
    }

    /// Listens again on the same port.
    pub async fn go_online(&self) {
        self.listener.go_online().await;
    }

    /// Waits until the condition holds. Panics with the log if the time runs out.
    pub async fn wait_for(
        &self,
        mut holds: impl FnMut(&DoubleView<'_, W>) -> bool,
        within: Duration,
    ) {
        self.wait_for_some(|view| holds(view).then_some(()), within)
            .await;
    }

    /// Waits until `look` returns a value. Panics with the log if the time runs out.
    pub async fn wait_for_some<T>(
        &self,
        mut look: impl FnMut(&DoubleView<'_, W>) -> Option<T>,
        within: Duration,
    ) -> T {
        let mut changes = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        loop {
            changes.borrow_and_update();
            if let Some(found) = self.view(&mut look) {
                return found;
            }
            let more = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(
                matches!(more, Ok(Ok(()))),
                "the condition did not hold within {within:?}:\n{}",
                self.history_text()
            );
        }
    }

    /// Returns a log of the last calls and all violations, for people.
    pub fn history_text(&self) -> String {
        let state = self.lock();
        let mut story = String::new();
        let calls = &state.records.calls;
        for service_call in &calls[calls.len().saturating_sub(40)..] {
            let error = service_call.error.as_deref().unwrap_or("");
            let _ = writeln!(
                story,
                "{:>9.3?} {} {} {} {error} {:?} {}",
                service_call.arrived,
                service_call.app,
                service_call.operation,
                service_call.status,
                service_call.fault,
                service_call.input
            );
        }
        for violation in &state.records.violations {
            let _ = writeln!(
                story,
                "violation at {:.3?} by \"{}\", {:?}: {}",
                violation.noticed, violation.app, violation.kind, violation.description
            );
        }
        story
    }

    /// Performs an API call, or the fault that was ordered for it, and records it.
    pub(crate) async fn perform_call(
        &self,
        operation: &str,
        caller: &str,
        input: Value,
        act: impl FnOnce(&mut W, &mut CallRecords) -> ServiceAnswer,
    ) -> DoubleReply {
        let arrived = self.started.elapsed();
        let fault = self
            .lock()
            .records
            .faults
            .get_mut(operation)
            .and_then(VecDeque::pop_front);
        if let Some(ServiceFault::Delay(wait)) = fault {
            tokio::time::sleep(wait).await;
        }
        self.update(|world, ledger| {
            let answer = match fault {
                Some(ServiceFault::Status(status)) => {
                    ServiceAnswer::error(status, "ordered", Value::Null)
                }
                Some(ServiceFault::RetryAfter(seconds)) => {
                    let key = wait_key(operation, caller);
                    ledger
                        .limiter
                        .order_wait(&key, Instant::now() + Duration::from_secs_f64(seconds));
                    rate_limited::<W>(operation, seconds)
                }
                Some(ServiceFault::DropBeforeAnswer) => {
                    ServiceAnswer::error(0, "dropped", Value::Null)
                }
                Some(ServiceFault::DropAfterCall | ServiceFault::Delay(_)) | None => {
                    // After an ordered wait, early calls are refused, whatever the other limits
                    // allow.
                    let held = RateRule::window(
                        wait_key(operation, caller),
                        u32::MAX,
                        Duration::from_secs(1),
                    );
                    match ledger.count_call(caller, operation, &[held]) {
                        Ok(()) => act(world, ledger),
                        Err(refused) => rate_limited::<W>(operation, refused.seconds),
                    }
                }
            };
            let dropped = matches!(
                fault,
                Some(ServiceFault::DropBeforeAnswer | ServiceFault::DropAfterCall)
            );
            let reply = if dropped {
                DoubleReply::Dropped
            } else {
                DoubleReply::Answer(answer.to_response())
            };
            let ServiceAnswer {
                status,
                body,
                error,
                ..
            } = answer;
            let (operation, caller) = (operation.to_owned(), caller.to_owned());
            let done = ledger.started.elapsed();
            ledger.calls.push(ServiceCall {
                arrived,
                answered: done,
                operation,
                app: caller,
                input,
                status,
                answer: body,
                error,
                fault,
            });
            reply
        })
    }
}

/// Returns the key of an ordered wait.
fn wait_key(operation: &str, caller: &str) -> String {
    format!("the ordered wait for {operation} of {caller}")
}
