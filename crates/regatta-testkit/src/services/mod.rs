//! Doubles of the services that bridges talk to, on loopback and faithful to their documented wire.
//!
//! Each is started inside a tokio runtime, has a `base_url()`, is given its people and places, and is then used from
//! both sides: a bridge calls its API and takes its events, a test speaks as a person and looks at what people see.
//! Every double has in common ([`Desk`] carries it):
//!
//! - `calls()`: every call of the API with its arrival, its answer and what was wrong with it;
//! - `violations()`: what the real service would have punished, or what breaks its documented contract;
//! - `fail_next(operation, n, fault)`: the next `n` calls of this operation fail so ([`Fault`]);
//! - `go_away()` and `come_back()`: the port refuses, connections are cut; and back on the same port;
//! - `limits(scale)`: limits and waits run that many times faster ([`Scale`]);
//! - `wait_for(|view| …, within)`: returns when the condition holds, woken by every change; panics with the log when
//!   the time is up.
//!
//! Deliberately absent: TLS, permissions that no bridge asks for, and every method that is not listed in the module
//! of its service: an unknown one is answered as the service would and is a violation.

mod desk; // what every double keeps: calls, violations, faults, the clock
mod door; // the listener and its connections
mod letter; // requests that a service makes: webhooks
mod limit; // how often is too often
mod sign; // digests, identifiers, instants

pub mod github;
pub mod linear;
pub mod slack;
pub mod telegram;

pub use desk::{Call, Desk, Fault, View, Violation, Wrong};
pub use limit::Scale;
