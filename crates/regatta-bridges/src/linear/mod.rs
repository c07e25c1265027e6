//! Linear: agent sessions, received as signed webhooks and shown as activities.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

use crate::service::Trouble;

/// Returns an error in words for people.
fn words(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Later(pause) => format!("Linear asks to wait {} s", pause.as_secs().max(1)),
        Trouble::Unknown(why) | Trouble::Never(why) | Trouble::Locked(why) => why.clone(),
    }
}
