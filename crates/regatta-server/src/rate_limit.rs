//! Limits the rate of requests, with one token bucket per caller.
//!
//! A program in an endless loop may send the same request a thousand times a second. This limit
//! keeps such a program from slowing down other callers. Requests with the daemon's own token are
//! not limited, because a program that can read that access token could do more harm in other ways.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use regatta_api::Problem;
use regatta_api::verb::TokenScope;

use crate::tokens::Principal;

/// Returns the number of requests per second that a caller may send on average, and the number that
/// the caller may send at once. The numbers are higher for a runner (another machine that executes
/// attempts), because it sends requests for many agents.
fn limits_for(principal: &Principal) -> (f64, f64) {
    match principal.scope() {
        TokenScope::Runner => (2_000.0, 4_000.0),
        TokenScope::Admin
        | TokenScope::Operator
        | TokenScope::Viewer
        | TokenScope::Attempt
        | TokenScope::Lead => (50.0, 200.0),
    }
}

/// Number of remembered callers above which the limiter forgets callers that have sent no request
/// for some seconds.
const PRUNE_THRESHOLD: usize = 4_096;

/// Limits the rate of requests with one token bucket per caller. A bucket counts how many requests
/// its caller may still send at once.
#[derive(Default)]
pub(crate) struct RequestLimiter {
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    rate: f64,
    capacity: f64,
    available: f64,
    refilled_at: Instant,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let elapsed_s = now
            .saturating_duration_since(self.refilled_at)
            .as_secs_f64();
        (self.available, self.refilled_at) = (
            (self.available + elapsed_s * self.rate).min(self.capacity),
            now,
        );
    }
}

impl RequestLimiter {
    /// Counts a request of a caller. Returns an error if the caller has sent too many requests.
    pub(crate) fn count_request(&self, principal: &Principal, now: Instant) -> Result<(), Problem> {
        if *principal == Principal::Owner {
            return Ok(());
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= PRUNE_THRESHOLD {
            buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.available < bucket.capacity
            });
        }
        let (rate, capacity) = limits_for(principal);
        let bucket = buckets.entry(principal.label()).or_insert(Bucket {
            rate,
            capacity,
            available: capacity,
            refilled_at: now,
        });
        bucket.refill(now);
        if bucket.available < 1.0 {
            return Err(Problem {
                retryable: true,
                ..Problem::new(
                    429,
                    "too_fast",
                    format!(
                        "{} has sent too many requests; its limit is {rate} a second",
                        principal.label()
                    ),
                    "wait a second; instead of asking repeatedly, use a verb that waits, such as msg.wait",
                )
            });
        }
        bucket.available -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rate_limit_applies_only_to_the_caller_that_exceeds_it() {
        let (limiter, start) = (RequestLimiter::default(), Instant::now());
        let named = |name: &str| Principal::Named {
            name: name.into(),
            scope: TokenScope::Operator,
        };
        let is_allowed = |name: &str, at| limiter.count_request(&named(name), at).is_ok();
        assert_eq!((0..1_000).filter(|_| is_allowed("ann", start)).count(), 200);
        assert!(
            is_allowed("bob", start),
            "another caller has its own bucket"
        );
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1_000).filter(|_| is_allowed("ann", later)).count(), 50);
        assert!((0..1_000).all(|_| limiter.count_request(&Principal::Owner, start).is_ok()));
    }

    #[test]
    fn buckets_of_inactive_callers_are_removed() {
        let (limiter, start) = (RequestLimiter::default(), Instant::now());
        for nth in 0..PRUNE_THRESHOLD {
            limiter
                .count_request(
                    &Principal::Named {
                        name: format!("n{nth}"),
                        scope: TokenScope::Viewer,
                    },
                    start,
                )
                .unwrap();
        }
        let later = start + Duration::from_secs(60);
        limiter
            .count_request(
                &Principal::Named {
                    name: "new".into(),
                    scope: TokenScope::Viewer,
                },
                later,
            )
            .unwrap();
        assert_eq!(limiter.buckets.lock().unwrap().len(), 1);
    }
}
