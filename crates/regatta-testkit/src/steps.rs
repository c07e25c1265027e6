//! One life of the engine, as its ports see it. Every call has two steps, one before and one after
//! its effect.
//!
//! A test can count the steps, make a call fail, hold a call, and end the life at any step. After
//! the end all calls of that life fail at once and have no effect. To the world this looks like
//! `kill -9`, but the test can still join the threads of the ended engine. The fakes and the store
//! go on for the next life.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use regatta_engine::ports::store::{Batch, History, Loaded, Store, StoreError};

/// How long a test waits for something that should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One life of the engine. Clones refer to the same life.
#[derive(Clone, Default)]
pub struct Life {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// Locked for reading while a call has its effect, so that no effect happens after the end.
    over: RwLock<bool>,
}

#[derive(Default)]
struct State {
    trace: Vec<String>,
    dies_at: Option<usize>,
    over: bool,
    faults: Vec<(&'static str, String)>,
    gates: Vec<Gate>,
}

struct Gate {
    call: &'static str,
    reached: bool,
    released: bool,
}

/// A call that is held before its effect.
#[must_use]
pub struct Held {
    life: Life,
    gate: usize,
}

impl Life {
    /// Returns a life without an end.
    pub fn new() -> Life {
        Life::default()
    }

    /// Returns a life that ends at this step, counting from 1.
    pub fn until_step(step: usize) -> Life {
        let life = Life::default();
        life.lock().dies_at = Some(step);
        life
    }

    /// Ends the life. After this returns, no call of the life has an effect.
    pub fn end(&self) {
        *self.inner.over.write().unwrap_or_else(PoisonError::into_inner) = true;
        self.lock().over = true;
        self.inner.changed.notify_all();
    }

    /// Returns whether the life has ended.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> usize {
        self.lock().trace.len()
    }

    /// Returns all steps: the name of the call, with `>` before its effect or `<` after it.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// Returns how often a call was made.
    pub fn calls(&self, call: &str) -> usize {
        let before = format!("{call} >");
        self.lock().trace.iter().filter(|it| **it == before).count()
    }

    /// Makes the next call of this name fail without an effect.
    pub fn fail_next(&self, call: &'static str, why: &str) {
        self.lock().faults.push((call, why.to_owned()));
    }

    /// Holds the next call of this name before its effect.
    pub fn hold_next(&self, call: &'static str) -> Held {
        let mut state = self.lock();
        state.gates.push(Gate { call, reached: false, released: false });
        Held { life: self.clone(), gate: state.gates.len() - 1 }
    }

    /// Waits until `holds` returns true, and checks it after every step. Panics when that takes too
    /// long.
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.steps();
            if holds() {
                return;
            }
            let mut state = self.lock();
            while state.trace.len() == seen && !state.over {
                state = self.wait(state, deadline, what);
            }
            if state.over {
                drop(state);
                assert!(holds(), "the life ended before {what}");
                return;
            }
        }
    }

    /// Performs a call with its two steps. `Err` is the reason why the caller gets no answer.
    pub fn call<T>(&self, call: &'static str, effect: impl FnOnce() -> T) -> Result<T, String> {
        self.before(call)?;
        let done = self.effect(effect)?;
        self.after(call)?;
        Ok(done)
    }

    /// Takes the step before a call's effect.
    pub(crate) fn before(&self, call: &'static str) -> Result<(), String> {
        self.step(call, '>')?;
        let mut state = self.lock();
        if let Some(nth) = state.faults.iter().position(|it| it.0 == call) {
            return Err(state.faults.remove(nth).1);
        }
        if let Some(gate) = state.gates.iter().position(|it| it.call == call && !it.reached) {
            state.gates[gate].reached = true;
            self.inner.changed.notify_all();
            while !state.gates[gate].released && !state.over {
                state = self.wait(state, Instant::now() + PATIENCE * 2, "a held call is released");
            }
        }
        if state.over { Err(OVER.into()) } else { Ok(()) }
    }

    /// Runs an effect, unless the life has ended.
    pub(crate) fn effect<T>(&self, effect: impl FnOnce() -> T) -> Result<T, String> {
        let over = self.inner.over.read().unwrap_or_else(PoisonError::into_inner);
        if *over { Err(OVER.into()) } else { Ok(effect()) }
    }

    /// Takes the step after a call's effect.
    pub(crate) fn after(&self, call: &'static str) -> Result<(), String> {
        self.step(call, '<')
    }

    fn step(&self, call: &str, side: char) -> Result<(), String> {
        let ends = {
            let mut state = self.lock();
            if state.over {
                return Err(OVER.into());
            }
            state.trace.push(format!("{call} {side}"));
            self.inner.changed.notify_all();
            state.dies_at == Some(state.trace.len())
        };
        if ends {
            self.end();
            return Err(OVER.into());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Instant, what: &str) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "timeout while waiting until {what}; the last steps: {:?}", last(&state.trace));
        self.inner.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

const OVER: &str = "this life of the engine is over";

fn last(trace: &[String]) -> &[String] {
    &trace[trace.len().saturating_sub(12)..]
}

impl Held {
    /// Waits until the call has arrived.
    pub fn reached(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.life.lock();
        while !state.gates[self.gate].reached {
            state = self.life.wait(state, deadline, "the held call arrives");
        }
    }

    /// Lets the call go on.
    pub fn release(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.life.lock();
        (state.gates[self.gate].reached, state.gates[self.gate].released) = (true, true);
        self.life.inner.changed.notify_all();
    }
}

/// A store in one life of the engine. Its calls are `store.load`, `store.commit`, `store.check` and
/// `store.backup`.
pub struct LivingStore {
    life: Life,
    store: Box<dyn Store>,
}

impl LivingStore {
    /// Wraps a store so that its calls belong to a life.
    pub fn new(life: &Life, store: impl Store + 'static) -> LivingStore {
        LivingStore { life: life.clone(), store: Box::new(store) }
    }

    fn call<T>(
        &mut self,
        call: &'static str,
        effect: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let LivingStore { life, store } = self;
        life.call(call, || effect(&mut **store))
            .unwrap_or_else(|what| Err(StoreError { code: "io", what, hint: "see the test".into() }))
    }
}

impl Store for LivingStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.call("store.load", |store| store.load())
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.call("store.commit", |store| store.commit(batch))
    }
    fn revision(&mut self) -> Result<u64, StoreError> {
        self.call("store.revision", |store| store.revision())
    }
    fn is_behind(&self) -> bool {
        self.store.is_behind()
    }
    fn rest(&mut self) -> Result<(), StoreError> {
        self.call("store.rest", |store| store.rest())
    }
    fn check(&mut self) -> Result<(), StoreError> {
        self.call("store.check", |store| store.check())
    }
    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        self.call("store.backup", |store| store.backup(to))
    }
    fn history(&self) -> Arc<dyn History> {
        self.store.history()
    }
}
