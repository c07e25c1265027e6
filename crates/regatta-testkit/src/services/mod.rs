//! Doubles of Slack, GitHub, Linear and Telegram: servers that imitate these services in tests.
//! They listen on the loopback address and follow the documented protocols strictly.
//!
//! A double is started inside a tokio runtime and has a `base_url()`. The test adds people and
//! channels or repositories. Then the bridge under test (the part of Regatta that talks to the
//! service) calls the double's API and receives its events. The test acts as a person and checks
//! the messages that people would see. All doubles share these functions ([`ServiceDouble`]
//! implements them):
//!
//! - `calls()`: every API call with its time, its answer and its error;
//! - `violations()`: calls that the real service would reject or punish;
//! - `fail_next(operation, n, fault)`: makes the next `n` calls of an operation fail
//!   ([`ServiceFault`]);
//! - `go_offline()` and `go_online()`: cut all connections and refuse new ones, and listen again on
//!   the same port;
//! - `set_time_scale(scale)`: makes limits and waits run faster ([`TimeScale`]);
//! - `wait_for(|view| …, within)`: waits until a condition holds, and panics with the log if the
//!   time runs out.
//!
//! There is no TLS, and permissions that no bridge needs do not exist. Each service's module lists
//! the methods that it imitates; any other method is answered with the service's error and counts
//! as a violation.

mod double; // the state of a double: calls, violations, faults, the clock
mod listener; // the listener and its connections
mod outgoing_request; // requests that a service sends: webhooks
mod rate_limit; // rate limits
mod signature; // digests, identifiers, dates

pub mod github;
pub mod linear;
pub mod slack;
pub mod telegram;

pub use double::{DoubleView, ServiceCall, ServiceDouble, ServiceFault, Violation, ViolationKind};
pub use rate_limit::TimeScale;
