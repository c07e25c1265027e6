//! The bridge to Linear. A conversation is a Linear agent session: prompts arrive as signed
//! webhooks, and the agent's work is shown as activities.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

use crate::service::ServiceError;

/// Returns an error as a sentence for people.
fn error_text(error: &ServiceError) -> String {
    match error {
        ServiceError::RetryAfter(pause) => {
            format!("Linear asks to wait {} s", pause.as_secs().max(1))
        }
        ServiceError::OutcomeUnknown(why)
        | ServiceError::Rejected(why)
        | ServiceError::Unauthorized(why) => why.clone(),
    }
}
