//! Handles timers that expired.

use super::*;

/// Handles every timer that has expired.
pub(super) fn tick(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    for due in draft.board().due(now) {
        match due {
            Due::Claim(id) => claim::expire(draft, id, now),
            Due::Wait(id) => claim::expire_wait(draft, id, now),
            Due::Offer(id) => task::expire_offer(draft, id, now),
            Due::Attempt(id) => attempt::expire(draft, id, now)?,
            Due::Landing(id) => landing::retry(draft, id, now)?,
            Due::Answer(key) => fleet::forget(draft, &key, now),
            Due::Time(id) => steer::time_out(draft, id, now)?,
            Due::Task(id) => task::due(draft, id),
            Due::Approval(id) => approval::escalate(draft, id, now),
            Due::Snooze(item) => inbox::wake(draft, item, now),
            Due::Provider(name) => provider::expire(draft, &name, now),
            Due::Mission(id) => lead::tick(draft, id, now)?,
            Due::Conversation(id) => conversation::tick(draft, id, now)?,
            Due::Delivery(key) => conversation::forget(draft, &key, now),
            Due::Runner(name) => runner::expire(draft, &name, now)?,
        }
    }
    Ok(())
}
