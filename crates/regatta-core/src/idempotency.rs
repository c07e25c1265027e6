//! Lets clients repeat a request safely: stores the answers to requests that carry an idempotency
//! key.
//!
//! A client that repeats a request with the same key gets the stored answer, and the request is not
//! carried out twice (J9). The fingerprint of a request, which is stored with the answer, shows
//! whether a client uses the same key for another request.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::canonical_json::to_canonical_json;
use crate::command::{CommandOutcome, Request};
use crate::event::{Event, facts};
use crate::ids::{Now, RequestKey};
use crate::refusal::Refusal;
use crate::stable_hash::stable_hash;

/// The stored answer to a request with an idempotency key. If a client repeats the request, the
/// client gets this answer again (J9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    pub key: RequestKey,
    /// A hash of the actor and the command. A different hash shows that a client uses the same key
    /// for another command, which is a mistake.
    #[serde(rename = "command")]
    pub command_fingerprint: u64,
    #[serde(
        rename = "form",
        default,
        skip_serializing_if = "FingerprintForm::is_debug_text"
    )]
    pub fingerprint_form: FingerprintForm,
    pub outcome: CommandOutcome,
    /// The number of the last event when the request was first answered.
    pub revision: u64,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), from which the answer
    /// may be forgotten.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
}

impl StoredAnswer {
    /// Returns whether this is the answer to the request with this fingerprint. The fingerprint of
    /// an answer that an earlier version stored cannot be compared, so the client gets that answer.
    pub(crate) fn is_answer_to(&self, fingerprint: u64) -> bool {
        self.fingerprint_form == FingerprintForm::DebugText
            || self.command_fingerprint == fingerprint
    }
}

/// The text of a request whose hash is its fingerprint. A new form needs a new variant here, so
/// that an answer with another form is not taken for the answer to another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FingerprintForm {
    /// The debug output of the command, in answers that version 0.1.0 stored. This text depends on
    /// names in the source code.
    #[default]
    DebugText,
    /// The command as canonical JSON.
    CanonicalJson,
}

impl FingerprintForm {
    fn is_debug_text(&self) -> bool {
        *self == FingerprintForm::DebugText
    }
}

/// Returns a hash of a request and its actor: FNV-1a over the actor and the command as canonical
/// JSON.
pub(crate) fn fingerprint(request: &Request) -> Result<u64, Refusal> {
    let json = to_canonical_json(&request.command).map_err(|error| {
        Refusal::invalid(
            format!("the request cannot be compared with a repetition: {error}"),
            "send the request without an idempotency key",
        )
    })?;
    let text = format!("{} {json}", request.by);
    Ok(stable_hash(text.bytes()))
}

facts! {
    RequestAnswered {
        key: RequestKey,
        command: u64,
        #[serde(default, skip_serializing_if = "FingerprintForm::is_debug_text")]
        form: FingerprintForm,
        outcome: CommandOutcome,
        until_at: u64,
    }
    RequestForgotten { key: RequestKey }
}

/// The time for which the answer to a request is stored: one day.
pub const ANSWER_RETENTION_MS: u64 = 24 * 3_600_000;

/// Stores the answer to a request with an idempotency key. If the client repeats the request, it
/// gets this answer.
pub(crate) fn store_answer(
    draft: &mut Draft,
    key: RequestKey,
    fingerprint: u64,
    outcome: CommandOutcome,
    now: Now,
) {
    draft.record(Event::RequestAnswered(RequestAnswered {
        key,
        command: fingerprint,
        form: FingerprintForm::CanonicalJson,
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
