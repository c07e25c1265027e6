//! Idempotent requests: the stored answers to requests that carry a key.
//!
//! A client that repeats a request with the same key gets the stored answer, and nothing happens
//! twice (J9). The comparison of a repeated request with the stored one is in [`crate::command`].

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::command::CommandOutcome;
use crate::event::{Event, facts};
use crate::ids::{Now, RequestKey};

/// The answer to a request with a key, so that repeating the request does nothing again (J9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    pub key: RequestKey,
    /// A fingerprint of the command. The same key with another command is a mistake.
    #[serde(rename = "command")]
    pub command_fingerprint: u64,
    pub outcome: CommandOutcome,
    /// The revision of the first answer.
    pub revision: u64,
    /// The time at which the answer may be forgotten, on the fleet clock.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
}

facts! {
    RequestAnswered { key: RequestKey, command: u64, outcome: CommandOutcome, until_at: u64 }
    RequestForgotten { key: RequestKey }
}

/// The time for which an answer is kept: a day.
pub const ANSWER_RETENTION_MS: u64 = 24 * 3_600_000;

/// Stores the answer to the request with this key.
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

/// Removes an answer whose time has passed.
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
