//! Acts on deadlines that have passed: for example, leases and snoozes end, and delayed tasks may
//! start again.

use super::*;

/// Acts on every deadline that has passed, with the function for its kind.
pub(super) fn on_timers(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    for due in draft.board().expired_timers(now) {
        match due {
            Deadline::Claim(id) => claim::expire(draft, id, now),
            Deadline::Wait(id) => claim::expire_wait(draft, id, now),
            Deadline::Offer(id) => task::expire_offer(draft, id, now),
            Deadline::Attempt(id) => attempt::expire(draft, id, now)?,
            Deadline::Landing(id) => landing::retry(draft, id, now)?,
            Deadline::Answer(key) => idempotency::forget_answer(draft, &key, now),
            Deadline::AttemptTimer(id) => intervention::time_out(draft, id, now)?,
            Deadline::Task(id) => task::clear_delay(draft, id),
            Deadline::Approval(id) => approval::escalate(draft, id, now),
            Deadline::Snooze(item) => inbox::end_snooze(draft, item, now),
            Deadline::Provider(name) => provider_outage::expire(draft, &name, now),
            Deadline::Mission(id) => lead::on_timer(draft, id, now)?,
            Deadline::Conversation(id) => conversation::on_timer(draft, id, now)?,
            Deadline::Delivery(key) => conversation::forget_delivery(draft, &key, now),
            Deadline::Runner(name) => runner::expire(draft, &name, now)?,
        }
    }
    Ok(())
}
