//! A thread pool for effects (outside actions such as starting an agent's program).
//!
//! Effects block: some for a millisecond, some for as long as an agent's program runs. The pool
//! therefore has no upper bound. The pool starts a thread when no thread is idle, and an idle
//! thread ends after [`IDLE_TIMEOUT`]. An effect never waits behind another one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for which an idle thread waits for another job before the thread ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The stack size of a thread. The size is small because one thread waits for each running program,
/// and hundreds of programs may run.
const STACK_BYTES: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A thread pool without an upper bound: a queue of jobs and the threads that run them.
#[derive(Default)]
pub(crate) struct EffectPool {
    state: Mutex<State>,
    job_added: Condvar,
}

#[derive(Default)]
struct State {
    queued: VecDeque<Job>,
    /// The number of threads that wait for a job.
    idle: usize,
    /// The number of jobs that are queued or running.
    unfinished: usize,
    is_ended: bool,
}

impl EffectPool {
    /// Runs a job on an idle thread, or on a new one if none is idle.
    pub(crate) fn spawn(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.unfinished += 1;
        state.queued.push_back(Box::new(job));
        if state.idle >= state.queued.len() {
            drop(state);
            return self.job_added.notify_one();
        }
        drop(state);
        let pool = self.clone();
        let builder = std::thread::Builder::new()
            .name("perform".into())
            .stack_size(STACK_BYTES);
        if let Err(error) = builder.spawn(move || pool.run_jobs()) {
            // The job stays queued, and the next idle thread takes it.
            tracing::error!(
                "could not start a thread for an effect (an outside action such as starting a \
                program), so the effect waits until another thread is idle: {error}"
            );
        }
    }

    /// Returns whether a job is queued or running.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().unfinished > 0
    }

    /// Ends the pool: idle threads end at once, and every other thread ends after its job.
    pub(crate) fn end(&self) {
        self.lock().is_ended = true;
        self.job_added.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_jobs(&self) {
        while let Some(job) = self.next_job() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(
                    "a thread panicked while it performed an effect (an outside action such as \
                    starting a program); the next start of the daemon performs the effect again"
                );
            }
            self.lock().unfinished -= 1;
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queued.pop_front() {
                return Some(job);
            }
            if state.is_ended {
                return None;
            }
            state.idle += 1;
            let (woken, wait) = self
                .job_added
                .wait_timeout(state, IDLE_TIMEOUT)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if wait.timed_out() && state.queued.is_empty() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// A blocked job does not delay other jobs, and idle threads are reused.
    #[test]
    fn a_blocked_job_does_not_delay_others_and_idle_threads_are_reused() {
        let pool = Arc::new(EffectPool::default());
        let (sender, receiver) = channel();
        let (mut gates, mut ends) = (Vec::new(), Vec::new());
        for nth in 0..8 {
            let (gate, opened) = channel::<()>();
            let (end, ended) = channel();
            gates.push(gate);
            ends.push(ended);
            let sender = sender.clone();
            pool.spawn(move || {
                sender.send((nth, std::thread::current().id())).unwrap();
                opened.recv().unwrap();
                end.send(()).unwrap();
            });
        }
        let first: std::collections::HashSet<_> =
            (0..8).map(|_| receiver.recv().unwrap().1).collect();
        assert_eq!(first.len(), 8, "the jobs do not run at the same time");
        assert!(pool.is_busy());
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        ends.iter().for_each(|end| end.recv().unwrap());
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while pool.lock().idle < 8 {
            assert!(
                std::time::Instant::now() < deadline,
                "the threads do not become idle"
            );
            std::thread::yield_now();
        }
        assert!(!pool.is_busy());
        let sender_clone = sender.clone();
        pool.spawn(move || sender_clone.send((9, std::thread::current().id())).unwrap());
        assert!(
            first.contains(&receiver.recv().unwrap().1),
            "the job did not run on an idle thread"
        );
        pool.end();
    }

    #[test]
    fn a_job_that_panics_does_not_affect_other_jobs() {
        let pool = Arc::new(EffectPool::default());
        let (sender, receiver) = channel();
        pool.spawn(|| panic!("planted"));
        pool.spawn(move || sender.send(()).unwrap());
        receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while pool.is_busy() {
            assert!(
                std::time::Instant::now() < deadline,
                "the job that panicked counts as running"
            );
            std::thread::yield_now();
        }
        pool.end();
    }
}
