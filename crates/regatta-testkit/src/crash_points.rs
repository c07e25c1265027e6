//! Lets a test "crash" an engine at any point. A life of the engine is the time from its start to
//! its end, whether it ends with a crash or not. Each call that the engine makes to git, agents or
//! the store through a fake counts as two steps: one before the call takes effect, and one after.
//!
//! A test can count the steps, make a call fail, hold a call, and end the life at any step. After
//! the end all calls of that life fail at once and have no effect. To the fakes this looks as if
//! the engine had been killed with `kill -9`, but the test can still join the threads of the ended
//! engine. The fakes and the store keep their state for the next life.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use regatta_engine::ports::store::{LoadedState, Store, StoreBatch, StoreError, StoreHistory};

/// The time that a test waits for something that normally takes milliseconds, before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// One life of the engine: the time from its start to its simulated crash or end. Clones refer to
/// the same life.
#[derive(Clone, Default)]
pub struct EngineLife {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// True if this life of the engine has ended. A call holds the read lock while it takes effect,
    /// so that nothing takes effect after the end.
    is_over: RwLock<bool>,
}

#[derive(Default)]
struct State {
    trace: Vec<String>,
    ends_at_step: Option<usize>,
    is_over: bool,
    faults: Vec<(&'static str, String)>,
    gates: Vec<Gate>,
}

struct Gate {
    call: &'static str,
    is_reached: bool,
    is_released: bool,
}

/// A call of the engine that a test holds, so that the call does not take effect yet. Dropping this
/// value lets the call continue.
#[must_use]
pub struct HeldCall {
    life: EngineLife,
    gate: usize,
}

impl EngineLife {
    /// Returns a life of the engine that ends only when a test calls [`EngineLife::end`].
    pub fn new() -> EngineLife {
        EngineLife::default()
    }

    /// Returns a life of the engine that ends by itself at this step (beginning or end of a call),
    /// counting from 1.
    pub fn until_step(step: usize) -> EngineLife {
        let life = EngineLife::default();
        life.lock().ends_at_step = Some(step);
        life
    }

    /// Ends this life of the engine. After this function has returned, no further call of the
    /// engine takes effect.
    pub fn end(&self) {
        *self
            .inner
            .is_over
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.lock().is_over = true;
        self.inner.changed.notify_all();
    }

    /// Returns whether this life of the engine has ended.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Returns the number of steps (beginnings and ends of calls) that the engine has made so far.
    pub fn step_count(&self) -> usize {
        self.lock().trace.len()
    }

    /// Returns all steps so far. A step is written as the name of the call, followed by `>` for the
    /// step before the call takes effect or `<` for the step after that.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// Returns how often the engine has made the call with this name.
    pub fn call_count(&self, call: &str) -> usize {
        let before = format!("{call} >");
        self.lock()
            .trace
            .iter()
            .filter(|trace| **trace == before)
            .count()
    }

    /// Makes the engine's next call with this name fail without taking effect.
    pub fn fail_next(&self, call: &'static str, reason: &str) {
        self.lock().faults.push((call, reason.to_owned()));
    }

    /// Holds the engine's next call with this name before the call takes effect.
    pub fn hold_next(&self, call: &'static str) -> HeldCall {
        let mut state = self.lock();
        state.gates.push(Gate {
            call,
            is_reached: false,
            is_released: false,
        });
        HeldCall {
            life: self.clone(),
            gate: state.gates.len() - 1,
        }
    }

    /// Waits until `holds` returns true. Calls `holds` again after every step of the engine. Panics
    /// if it does not return true within [`TEST_TIMEOUT`].
    pub fn wait_until(&self, description: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let steps_before = self.step_count();
            if holds() {
                return;
            }
            let mut state = self.lock();
            while state.trace.len() == steps_before && !state.is_over {
                state = self.wait(state, deadline, description);
            }
            if state.is_over {
                drop(state);
                assert!(holds(), "the life ended before {description}");
                return;
            }
        }
    }

    /// Performs a call of the engine with its two steps (before and after the call takes effect).
    /// `Err` has the reason why the engine gets no answer: its life (the time until its simulated
    /// crash) ended, or a test made the call fail.
    pub fn call<T>(&self, call: &'static str, effect: impl FnOnce() -> T) -> Result<T, String> {
        self.before_effect(call)?;
        let result = self.run_effect(effect)?;
        self.after_effect(call)?;
        Ok(result)
    }

    /// Records the step of the engine before a call takes effect. Waits if a test holds the call,
    /// and returns an error if a test wants the call to fail.
    pub(crate) fn before_effect(&self, call: &'static str) -> Result<(), String> {
        self.take_step(call, '>')?;
        let mut state = self.lock();
        if let Some(nth) = state.faults.iter().position(|fault| fault.0 == call) {
            return Err(state.faults.remove(nth).1);
        }
        if let Some(gate) = state
            .gates
            .iter()
            .position(|gate| gate.call == call && !gate.is_reached)
        {
            state.gates[gate].is_reached = true;
            self.inner.changed.notify_all();
            while !state.gates[gate].is_released && !state.is_over {
                state = self.wait(
                    state,
                    Instant::now() + TEST_TIMEOUT * 2,
                    "a held call is released",
                );
            }
        }
        if state.is_over {
            Err(LIFE_IS_OVER.into())
        } else {
            Ok(())
        }
    }

    /// Lets a call of the engine take effect, unless this life of the engine has ended.
    pub(crate) fn run_effect<T>(&self, effect: impl FnOnce() -> T) -> Result<T, String> {
        let over = self
            .inner
            .is_over
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *over {
            Err(LIFE_IS_OVER.into())
        } else {
            Ok(effect())
        }
    }

    /// Records the step of the engine after a call has taken effect.
    pub(crate) fn after_effect(&self, call: &'static str) -> Result<(), String> {
        self.take_step(call, '<')
    }

    fn take_step(&self, call: &str, side: char) -> Result<(), String> {
        let ends = {
            let mut state = self.lock();
            if state.is_over {
                return Err(LIFE_IS_OVER.into());
            }
            state.trace.push(format!("{call} {side}"));
            self.inner.changed.notify_all();
            state.ends_at_step == Some(state.trace.len())
        };
        if ends {
            self.end();
            return Err(LIFE_IS_OVER.into());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
        description: &str,
    ) -> MutexGuard<'a, State> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        assert!(
            !remaining.is_zero(),
            "timeout while waiting until {description}; the last steps: {:?}",
            last_steps(&state.trace)
        );
        self.inner
            .changed
            .wait_timeout(state, remaining)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

const LIFE_IS_OVER: &str = "this life of the engine is over";

fn last_steps(trace: &[String]) -> &[String] {
    &trace[trace.len().saturating_sub(12)..]
}

impl HeldCall {
    /// Waits until the engine has made the call that the test holds.
    pub fn wait_until_reached(&self) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut state = self.life.lock();
        while !state.gates[self.gate].is_reached {
            state = self.life.wait(state, deadline, "the held call arrives");
        }
    }

    /// Lets the held call continue.
    pub fn release(self) {}
}

impl Drop for HeldCall {
    fn drop(&mut self) {
        let mut state = self.life.lock();
        (
            state.gates[self.gate].is_reached,
            state.gates[self.gate].is_released,
        ) = (true, true);
        self.life.inner.changed.notify_all();
    }
}

/// A store that belongs to one life of the engine, the time until its end or simulated crash. The
/// calls of the store are named `store.load`, `store.commit`, `store.check` and `store.backup`.
pub struct StoreInLife {
    life: EngineLife,
    store: Box<dyn Store>,
}

impl StoreInLife {
    /// Wraps a store so that each call of the store counts as steps of `life`, the time until the
    /// engine's end or simulated crash.
    pub fn new(life: &EngineLife, store: impl Store + 'static) -> StoreInLife {
        StoreInLife {
            life: life.clone(),
            store: Box::new(store),
        }
    }

    fn call<T>(
        &mut self,
        call: &'static str,
        effect: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let StoreInLife { life, store } = self;
        life.call(call, || effect(&mut **store))
            .unwrap_or_else(|what| {
                Err(StoreError {
                    code: "io",
                    message: what,
                    hint: "see the test".into(),
                })
            })
    }
}

impl Store for StoreInLife {
    fn load(&mut self) -> Result<LoadedState, StoreError> {
        self.call("store.load", |store| store.load())
    }
    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        self.call("store.commit", |store| store.commit(batch))
    }
    fn revision(&mut self) -> Result<u64, StoreError> {
        self.call("store.revision", |store| store.revision())
    }
    fn has_deferred_rows(&self) -> bool {
        self.store.has_deferred_rows()
    }
    fn flush_idle(&mut self) -> Result<(), StoreError> {
        self.call("store.rest", |store| store.flush_idle())
    }
    fn check(&mut self) -> Result<(), StoreError> {
        self.call("store.check", |store| store.check())
    }
    fn backup(&mut self, target: &Path) -> Result<(), StoreError> {
        self.call("store.backup", |store| store.backup(target))
    }
    fn history(&self) -> Arc<dyn StoreHistory> {
        self.store.history()
    }
}
