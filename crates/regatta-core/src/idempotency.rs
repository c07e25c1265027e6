//! Lets clients repeat a request safely: stores the answers to requests that carry an idempotency
//! key.
//!
//! A client that repeats a request with the same key gets the stored answer, and the request is not
//! carried out twice (J9). [`crate::command`] compares a repeated request with the stored one.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::command::CommandOutcome;
use crate::event::{Event, facts};
use crate::ids::{Now, RequestKey};

/// The stored answer to a request with an idempotency key. If a client repeats the request, the
/// client gets this answer again (J9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    pub key: RequestKey,
    /// A hash of the command. A different hash shows that a client uses the same key for another
    /// command, which is a mistake.
    #[serde(rename = "command")]
    pub command_fingerprint: u64,
    pub outcome: CommandOutcome,
    /// The number of the last event when the request was first answered.
    pub revision: u64,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), from which the answer
    /// may be forgotten.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
}

facts! {
    RequestAnswered { key: RequestKey, command: u64, outcome: CommandOutcome, until_at: u64 }
    RequestForgotten { key: RequestKey }
}

/// The time for which the answer to a request is stored: one day.
pub const ANSWER_RETENTION_MS: u64 = 24 * 3_600_000;

/// Stores the answer to a request with an idempotency key. If the client repeats the request, it
/// gets this answer.
pub(crate) fn store_answer(
    draft: &mut Draft,
    key: RequestKey,
    command: u64,
    outcome: CommandOutcome,
    now: Now,
) {
    draft.record(Event::RequestAnswered(RequestAnswered {
        key,
        command,
        outcome,
        until_at: now.fleet_ms + ANSWER_RETENTION_MS,
    }));
}

/// Removes a stored answer that has been kept long enough.
pub fn forget_answer(draft: &mut Draft, key: &RequestKey, now: Now) {
    let Some(answer) = draft.board().answers.get(key) else {
        return;
    };
    if answer.deadline_fleet_ms <= now.fleet_ms {
        draft.record(Event::RequestForgotten(RequestForgotten {
            key: key.clone(),
        }));
    }
}
