//! Rate limits: one token bucket per caller.
//!
//! A program in an endless loop sends the same request a thousand times a second, and the other
//! callers must not notice. The daemon's own token has no limit, because whoever can read it can do
//! worse.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use regatta_api::Problem;
use regatta_api::verb::Scope;

use crate::tokens::Visitor;

/// Returns the requests per second in the long run, and the size of a burst. A runner calls for
/// many agents.
fn rate(visitor: &Visitor) -> (f64, f64) {
    match visitor.scope() {
        Scope::Runner => (2_000.0, 4_000.0),
        Scope::Admin | Scope::Operator | Scope::Viewer | Scope::Attempt | Scope::Lead => (50.0, 200.0),
    }
}

/// Number of callers above which the buckets of idle callers are removed.
const MANY: usize = 4_096;

/// The buckets of all callers.
#[derive(Default)]
pub(crate) struct Limiter {
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    rate: f64,
    most: f64,
    left: f64,
    seen: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.seen).as_secs_f64();
        (self.left, self.seen) = ((self.left + passed * self.rate).min(self.most), now);
    }
}

impl Limiter {
    /// Counts a request, or refuses it if the bucket is empty.
    pub(crate) fn count(&self, visitor: &Visitor, now: Instant) -> Result<(), Problem> {
        if *visitor == Visitor::Owner {
            return Ok(());
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MANY {
            buckets.retain(|_, it| {
                it.fill(now);
                it.left < it.most
            });
        }
        let (rate, most) = rate(visitor);
        let bucket = buckets.entry(visitor.label()).or_insert(Bucket { rate, most, left: most, seen: now });
        bucket.fill(now);
        if bucket.left < 1.0 {
            return Err(Problem {
                retryable: true,
                ..Problem::new(
                    429,
                    "too_fast",
                    format!("{} sends more than {rate} requests a second", visitor.label()),
                    "wait a moment; to wait for something, use a verb that waits",
                )
            });
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rate_limit_applies_only_to_the_caller_that_exceeds_it() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let named = |name: &str| Visitor::Named { name: name.into(), scope: Scope::Operator };
        let asked = |name: &str, at| limiter.count(&named(name), at).is_ok();
        assert_eq!((0..1_000).filter(|_| asked("ann", start)).count(), 200);
        assert!(asked("bob", start), "another caller has its own bucket");
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1_000).filter(|_| asked("ann", later)).count(), 50);
        assert!((0..1_000).all(|_| limiter.count(&Visitor::Owner, start).is_ok()));
    }

    #[test]
    fn buckets_of_inactive_callers_are_removed() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for nth in 0..MANY {
            limiter.count(&Visitor::Named { name: format!("n{nth}"), scope: Scope::Viewer }, start).unwrap();
        }
        let later = start + Duration::from_secs(60);
        limiter.count(&Visitor::Named { name: "new".into(), scope: Scope::Viewer }, later).unwrap();
        assert_eq!(limiter.buckets.lock().unwrap().len(), 1);
    }
}
