//! Implements everything that the doubles (imitations) of all services have in common:
//! - the state of the imitated service, under one lock
//! - the recorded calls, and violations of the service's rules
//! - faults that a test ordered
//! - waiting for a change

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

/// The way in which an API call fails when a test orders it with [`ServiceDouble::fail_next`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceFault {
    /// The double does not perform the API call, and answers with this HTTP status.
    Status(u16),
    /// The double does not perform the API call, and answers with the service's error for "wait
    /// this many seconds". If the client calls again earlier, that is a violation.
    RetryAfter(f64),
    /// The double does not perform the API call, and closes the connection without an answer.
    DropBeforeAnswer,
    /// The double performs the API call and closes the connection without an answer. If the client
    /// simply repeats the call, the double performs it twice.
    DropAfterCall,
    /// The double (the imitated service) waits this long before it performs and answers the API
    /// call.
    Delay(Duration),
}

/// One API call that the double received.
#[derive(Clone, Debug)]
pub struct ServiceCall {
    /// The time when the API call arrived, counted from the start of the double.
    pub arrived: Duration,
    /// The time when the API call was answered or its connection was closed, counted from the start
    /// of the double.
    pub answered: Duration,
    /// The API operation, under the name that the imitated service gives it.
    pub operation: String,
    /// The app to which the credentials of the API call belong; empty if the call has no valid
    /// credentials.
    pub app: String,
    pub input: Value,
    pub status: u16,
    pub answer: Value,
    /// The name that the service gives to the error with which the API call failed. `None` if the
    /// call succeeded.
    pub error: Option<String>,
    pub fault: Option<ServiceFault>,
}

/// The kind of rule of the imitated service that a client violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// The client exceeded a rate limit.
    RateLimit,
    /// The client called the API again before the end of the wait that an earlier answer had
    /// demanded.
    TooSoon,
    /// The client acknowledged an event, answered a request or became active too late.
    Late,
    /// The credentials of the API call are missing, wrong or expired.
    Auth,
    /// The API call names an operation, object or field that does not exist.
    Unknown,
    /// A field of the API call is missing or has the wrong format.
    BadField,
    /// A text or a list in the API call is longer than the service allows.
    TooLong,
    /// The client wanted to change an object that belongs to somebody else.
    NotOwned,
    /// A text has markup that the imitated service cannot parse.
    BadMarkup,
    /// The API call is not allowed in the present state, for example because the client stops
    /// something twice or its app is not in the channel.
    WrongState,
}

/// A violation: an action of a client that the real service would reject or punish.
#[derive(Clone, Debug)]
pub struct Violation {
    pub noticed: Duration,
    pub app: String,
    pub kind: ViolationKind,
    pub description: String,
}

/// The double's answer to an API call, before it is sent.
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

/// The state of one imitated service. Through this trait a double gets the answers that have a
/// different format in each service.
pub trait ServiceState: Send + 'static {
    /// Returns the answer with which the imitated service makes a client wait this many seconds.
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

/// The records that a double keeps in addition to the state of the service that it imitates.
pub(crate) struct CallRecords {
    pub(crate) scale: TimeScale,
    pub(crate) limiter: RateTracker,
    started: Instant,
    calls: Vec<ServiceCall>,
    violations: Vec<Violation>,
    faults: BTreeMap<String, VecDeque<ServiceFault>>,
    /// The last number from which an identifier was made.
    counter: u64,
}

impl CallRecords {
    /// Records that a client violated a rule of the imitated service.
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

    /// Counts an API call against the rate limits `rules`. If a limit is exceeded, refuses the call
    /// and records a violation.
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

    /// Returns a new number from which an identifier can be made.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The state of a double (an imitated service) at one moment: the service's state and the recorded
/// calls.
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

    /// Returns all API calls so far, oldest first.
    pub fn calls(&self) -> &[ServiceCall] {
        &self.records.calls
    }

    /// Returns the successful calls of one API operation.
    pub fn answered<'b>(&'b self, operation: &'b str) -> impl Iterator<Item = &'b ServiceCall> {
        self.calls().iter().filter(move |service_call| {
            service_call.operation == operation
                && service_call.error.is_none()
                && service_call.status < 300
        })
    }

    /// Returns all violations of the imitated service's rules so far.
    pub fn violations(&self) -> &[Violation] {
        &self.records.violations
    }
}

struct DoubleState<W> {
    service: W,
    records: CallRecords,
}

/// The part of a double (an imitated service) that is the same for all services.
pub struct ServiceDouble<W> {
    state: Mutex<DoubleState<W>>,
    changed: watch::Sender<u64>,
    listener: DoubleListener,
    started: Instant,
}

impl<W: ServiceState> ServiceDouble<W> {
    /// Starts a double (an imitated service) that passes each request to `handler`.
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

    /// Changes the state without waking tests that wait for a change.
    pub(crate) fn update_silently<T>(&self, act: impl FnOnce(&mut W, &mut CallRecords) -> T) -> T {
        let mut state = self.lock();
        let DoubleState {
            service: world,
            records: ledger,
        } = &mut *state;
        act(world, ledger)
    }

    /// Returns a receiver that is notified of every change of the double's state.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Closes the listener and all connections of the double (the imitated service).
    pub(crate) fn shut_down(&self) {
        self.listener.shut_down();
    }

    /// Calls a function that reads the present state, and returns its result.
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

    /// Returns the URL of the double (the imitated service): `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.listener.address())
    }

    /// Returns the time when the double (the imitated service) was started. The times of calls and
    /// violations are measured from this time.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Makes rate limits, waits and deadlines run faster than in the real service.
    pub fn set_time_scale(&self, scale: TimeScale) {
        self.update(|_, ledger| ledger.scale = scale);
    }

    /// Makes the next `n` calls of an API operation fail. If earlier calls of this function ordered
    /// other failures, those failures come first.
    pub fn fail_next(&self, operation: &str, n: usize, fault: ServiceFault) {
        self.update(|_, ledger| {
            let queue = ledger.faults.entry(operation.to_owned()).or_default();
            queue.extend(std::iter::repeat_n(fault, n));
        });
    }

    /// Returns all API calls so far, oldest first.
    pub fn calls(&self) -> Vec<ServiceCall> {
        self.lock().records.calls.clone()
    }

    /// Returns all calls of one API operation, oldest first.
    pub fn calls_of(&self, operation: &str) -> Vec<ServiceCall> {
        let mut calls = self.calls();
        calls.retain(|service_call| service_call.operation == operation);
        calls
    }

    /// Returns all violations of the imitated service's rules so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().records.violations.clone()
    }

    /// Panics if a client ever violated a rule of the imitated service.
    #[track_caller]
    pub fn assert_well_behaved(&self) {
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "the client broke the service's rules:\n{violations:#?}"
        );
    }

    /// Closes all connections and refuses new ones.
    pub async fn go_offline(&self) {
        self.listener.go_offline().await;
        self.changed.send_modify(|changed| *changed += 1);
    }

    /// Accepts connections again on the same port, after [`ServiceDouble::go_offline`].
    pub async fn go_online(&self) {
        self.listener.go_online().await;
    }

    /// Waits until the function `holds` returns true. If it does not return true in time, panics
    /// and prints the last calls.
    pub async fn wait_for(
        &self,
        mut holds: impl FnMut(&DoubleView<'_, W>) -> bool,
        within: Duration,
    ) {
        self.wait_for_some(|view| holds(view).then_some(()), within)
            .await;
    }

    /// Waits until `look` returns a value, and returns that value. If `look` returns none in time,
    /// panics and prints the last calls.
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

    /// Returns the last calls and all violations as a text for people.
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

    /// Performs an API call and records the call. If a test ordered a fault for the operation,
    /// makes the call fail with that fault.
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
                    // If a test told the client to wait, refuse calls before the end of the wait,
                    // even if no rate limit is used up.
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

/// Returns the key under which the double stores a wait that a test ordered for a client.
fn wait_key(operation: &str, caller: &str) -> String {
    format!("the ordered wait for {operation} of {caller}")
}
