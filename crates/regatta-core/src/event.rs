//! Events: the facts that became true. Replaying the log of events gives the board (D4).
//!
//! The fields of a payload are private, and only the file of its noun builds it. For example, only
//! `task::start` can make a `task::Started`. So for each kind of event one place in the code
//! decides when it happens.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    agent, approval, attempt, budget, bus, claim, collision_forecast, conversation, hook, inbox,
    intervention, isolation_breach, landing, launch, lead, limits, mission, policy, project,
    provider_outage, router, runner, scope_escape, session_rotation, task, team, thread_answers,
};

/// Declares event payloads with private fields and public getters.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($field: $type),* }
        #[allow(clippy::new_ret_no_self, reason = "a getter is called as its field is")]
        impl $name { $(pub fn $field(&self) -> &$type { &self.$field })* }
    )*};
}
pub(crate) use facts;

macro_rules! events {
    ($($variant:ident($type:ty) $kind:literal $subject:expr;)*) => {
        /// A fact that became true.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "kind", content = "data")]
        pub enum Event { $(#[serde(rename = $kind)] $variant($type),)* }

        /// The kind of an event, while an event is read.
        #[derive(Clone, Copy, Deserialize)]
        enum Kind { $(#[serde(rename = $kind)] $variant,)* }

        impl Kind {
            /// Reads the payload that belongs to this kind.
            fn payload<'de, A: MapAccess<'de>>(self, map: &mut A) -> Result<Event, A::Error> {
                match self { $(Kind::$variant => map.next_value().map(Event::$variant),)* }
            }
        }

        impl Event {
            /// Returns the stable name of the event's kind, such as `claim.granted`.
            pub fn kind(&self) -> &'static str {
                match self { $(Event::$variant(_) => $kind,)* }
            }
            /// Returns the id or name of the thing that the event is about, as a person would type
            /// it.
            pub fn subject(&self) -> String {
                match self { $(Event::$variant(payload) => { let subject: fn(&$type) -> String = $subject; subject(payload) })* }
            }
            /// All kinds of events.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];
        }
    };
}

events! {
    FleetResumed(limits::FleetResumed) "fleet.resumed" |_| "fleet".into();
    FleetLimited(limits::FleetLimited) "fleet.limited" |_| "fleet".into();
    RequestAnswered(limits::RequestAnswered) "request.answered" |request_answered| request_answered.key().to_string();
    RequestForgotten(limits::RequestForgotten) "request.forgotten" |request_forgotten| request_forgotten.key().to_string();
    EventUnreadable(limits::EventUnreadable) "event.unreadable" |_| "store".into();
    ProjectAdded(project::ProjectAdded) "project.added" |project_added| project_added.project().name.to_string();
    ProjectChanged(project::ProjectChanged) "project.changed" |project_changed| project_changed.project().name.to_string();
    ProjectRemoved(project::ProjectRemoved) "project.removed" |project_removed| project_removed.project().to_string();
    ProjectRadar(collision_forecast::ProjectRadar) "project.radar" |project_radar| project_radar.project().to_string();
    AgentRegistered(agent::AgentRegistered) "agent.registered" |agent_registered| agent_registered.agent().name.to_string();
    AgentRemoved(agent::AgentRemoved) "agent.removed" |agent_removed| agent_removed.agent().to_string();
    ClaimGranted(claim::ClaimGranted) "claim.granted" |claim_granted| claim_granted.claim().id.to_string();
    ClaimRenewed(claim::ClaimRenewed) "claim.renewed" |claim_renewed| claim_renewed.claim().to_string();
    ClaimTransferred(claim::ClaimTransferred) "claim.transferred" |claim_transferred| claim_transferred.claim().to_string();
    ClaimReleased(claim::ClaimReleased) "claim.released" |claim_released| claim_released.claim().to_string();
    ClaimQueued(claim::ClaimQueued) "claim.queued" |claim_queued| claim_queued.wait().id.to_string();
    ClaimWaitEnded(claim::ClaimWaitEnded) "claim.wait_ended" |claim_wait_ended| claim_wait_ended.wait().to_string();
    MissionStarted(mission::MissionStarted) "mission.started" |mission_started| mission_started.mission().id.to_string();
    MissionChanged(mission::MissionChanged) "mission.changed" |mission_changed| mission_changed.mission().to_string();
    MissionWeighed(mission::MissionWeighed) "mission.weighed" |mission_weighed| mission_weighed.mission().to_string();
    MissionSerialised(isolation_breach::MissionSerialised) "mission.serialised" |mission_serialised| mission_serialised.mission().to_string();
    MissionLed(lead::MissionLed) "mission.led" |mission_led| mission_led.mission().to_string();
    MissionEnded(mission::MissionEnded) "mission.ended" |mission_ended| mission_ended.mission().to_string();
    TaskAdded(task::TaskAdded) "task.added" |task_added| task_added.task().id.to_string();
    TaskEdited(task::TaskEdited) "task.edited" |task_edited| task_edited.task().id.to_string();
    TaskAssigned(task::TaskAssigned) "task.assigned" |task_assigned| task_assigned.task().to_string();
    TaskOffered(task::TaskOffered) "task.offered" |task_offered| task_offered.task().to_string();
    TaskStarted(task::TaskStarted) "task.started" |task_started| task_started.task().to_string();
    TaskProgressed(task::TaskProgressed) "task.progressed" |task_progressed| task_progressed.task().to_string();
    TaskValidating(task::TaskValidating) "task.validating" |task_validating| task_validating.task().to_string();
    TaskSubmitted(task::TaskSubmitted) "task.submitted" |task_submitted| task_submitted.task().to_string();
    TaskReturned(task::TaskReturned) "task.returned" |task_returned| task_returned.task().to_string();
    TaskInReview(task::TaskInReview) "task.in_review" |task_in_review| task_in_review.task().to_string();
    TaskNeedsHuman(task::TaskNeedsHuman) "task.needs_human" |task_needs_human| task_needs_human.task().to_string();
    TaskCompleted(task::TaskCompleted) "task.completed" |task_completed| task_completed.task().to_string();
    TaskFailed(task::TaskFailed) "task.failed" |task_failed| task_failed.task().to_string();
    TaskCancelled(task::TaskCancelled) "task.cancelled" |task_cancelled| task_cancelled.task().to_string();
    AttemptStarted(attempt::AttemptStarted) "attempt.started" |attempt_started| attempt_started.attempt().id.to_string();
    AttemptRenewed(attempt::AttemptRenewed) "attempt.renewed" |attempt_renewed| attempt_renewed.attempt().to_string();
    AttemptStopping(attempt::AttemptStopping) "attempt.stopping" |attempt_stopping| attempt_stopping.attempt().to_string();
    AttemptEnded(attempt::AttemptEnded) "attempt.ended" |attempt_ended| attempt_ended.attempt().to_string();
    AttemptSaid(attempt::AttemptSaid) "attempt.said" |attempt_said| attempt_said.attempt().to_string();
    AttemptPorted(attempt::AttemptPorted) "attempt.ported" |attempt_ported| attempt_ported.attempt().to_string();
    AttemptLaunched(attempt::AttemptLaunched) "attempt.launched" |attempt_launched| attempt_launched.attempt().to_string();
    AttemptNoted(attempt::AttemptNoted) "attempt.noted" |attempt_noted| attempt_noted.attempt().to_string();
    AttemptClosing(attempt::AttemptClosing) "attempt.closing" |attempt_closing| attempt_closing.attempt().to_string();
    AttemptRotating(session_rotation::AttemptRotating) "attempt.rotating" |attempt_rotating| attempt_rotating.attempt().to_string();
    AttemptTold(intervention::AttemptTold) "attempt.told" |attempt_told| attempt_told.attempt().to_string();
    AttemptHeld(intervention::AttemptHeld) "attempt.held" |attempt_held| attempt_held.attempt().to_string();
    AttemptLetGo(intervention::AttemptLetGo) "attempt.let_go" |attempt_let_go| attempt_let_go.attempt().to_string();
    AttemptExtended(intervention::AttemptExtended) "attempt.extended" |attempt_extended| attempt_extended.attempt().to_string();
    AttemptQuiet(intervention::AttemptQuiet) "attempt.quiet" |attempt_quiet| attempt_quiet.attempt().to_string();
    TaskNoted(intervention::TaskNoted) "task.noted" |task_noted| task_noted.task().to_string();
    TaskWarned(task::TaskWarned) "task.warned" |task_warned| task_warned.task().to_string();
    TaskEscaped(scope_escape::TaskEscaped) "task.escaped" |task_escaped| task_escaped.task().to_string();
    AttemptReported(attempt::AttemptReported) "attempt.reported" |attempt_reported| attempt_reported.attempt().to_string();
    TaskDue(task::TaskDue) "task.due" |task_due| task_due.task().to_string();
    ApprovalAsked(approval::ApprovalAsked) "approval.asked" |approval_asked| approval_asked.approval().id.to_string();
    ApprovalDecided(approval::ApprovalDecided) "approval.decided" |approval_decided| approval_decided.approval().to_string();
    ApprovalEscalated(approval::ApprovalEscalated) "approval.escalated" |approval_escalated| approval_escalated.approval().to_string();
    ApprovalKept(approval::ApprovalKept) "approval.kept" |approval_kept| approval_kept.approval().to_string();
    ApprovalHeard(approval::ApprovalHeard) "approval.heard" |approval_heard| approval_heard.approval().to_string();
    ApprovalWithdrawn(approval::ApprovalWithdrawn) "approval.withdrawn" |approval_withdrawn| approval_withdrawn.approval().to_string();
    InboxDismissed(inbox::InboxDismissed) "inbox.dismissed" |inbox_dismissed| inbox_dismissed.task().to_string();
    InboxSnoozed(inbox::InboxSnoozed) "inbox.snoozed" |inbox_snoozed| inbox_snoozed.item().to_string();
    PolicyAdded(policy::PolicyAdded) "policy.added" |policy_added| policy_added.rule().id.to_string();
    PolicyRemoved(policy::PolicyRemoved) "policy.removed" |policy_removed| policy_removed.rule().to_string();
    BudgetSet(budget::BudgetSet) "budget.set" |budget_set| budget_set.budget().scope.to_string();
    BudgetRemoved(budget::BudgetRemoved) "budget.removed" |budget_removed| budget_removed.scope().to_string();
    BudgetSpent(budget::BudgetSpent) "budget.spent" |budget_spent| budget_spent.attempt().to_string();
    AttemptClocked(budget::AttemptClocked) "attempt.clocked" |attempt_clocked| attempt_clocked.attempt().to_string();
    BudgetWarned(budget::BudgetWarned) "budget.warned" |budget_warned| budget_warned.scope().to_string();
    ProviderParked(provider_outage::ProviderParked) "provider.parked" |provider_parked| provider_parked.parked().name.clone();
    ProviderFreed(provider_outage::ProviderFreed) "provider.freed" |provider_freed| provider_freed.name().clone();
    RunnerRegistered(runner::RunnerRegistered) "runner.registered" |runner_registered| runner_registered.runner().name.to_string();
    RunnerRenewed(runner::RunnerRenewed) "runner.renewed" |runner_renewed| runner_renewed.runner().to_string();
    RunnerChanged(runner::RunnerChanged) "runner.changed" |runner_changed| runner_changed.runner().to_string();
    RunnerRemoved(runner::RunnerRemoved) "runner.removed" |runner_removed| runner_removed.runner().to_string();
    TeamCreated(team::TeamCreated) "team.created" |team_created| team_created.team().name.to_string();
    TeamChanged(team::TeamChanged) "team.changed" |team_changed| team_changed.team().name.to_string();
    LaunchBegun(launch::LaunchBegun) "launch.begun" |launch_begun| launch_begun.launch().id.to_string();
    LaunchMember(launch::LaunchMember) "launch.member" |launch_member| launch_member.launch().to_string();
    LaunchChanged(launch::LaunchChanged) "launch.changed" |launch_changed| launch_changed.launch().to_string();
    LandingQueued(landing::LandingQueued) "landing.queued" |landing_queued| landing_queued.landing().id.to_string();
    LandingBegun(landing::LandingBegun) "landing.begun" |landing_begun| landing_begun.landing().to_string();
    LandingValidated(landing::LandingValidated) "landing.validated" |landing_validated| landing_validated.landing().to_string();
    LandingRed(landing::LandingRed) "landing.red" |landing_red| landing_red.landing().to_string();
    LandingSuspected(landing::LandingSuspected) "landing.suspected" |landing_suspected| landing_suspected.landing().to_string();
    LandingSquashed(landing::LandingSquashed) "landing.squashed" |landing_squashed| landing_squashed.landing().to_string();
    LandingDeferred(landing::LandingDeferred) "landing.deferred" |landing_deferred| landing_deferred.landing().to_string();
    LandingReturned(landing::LandingReturned) "landing.returned" |landing_returned| landing_returned.landing().to_string();
    LandingApproved(landing::LandingApproved) "landing.approved" |landing_approved| landing_approved.landing().to_string();
    LandingAsked(landing::LandingAsked) "landing.asked" |landing_asked| landing_asked.landing().to_string();
    LandingMoving(landing::LandingMoving) "landing.moving" |landing_moving| landing_moving.landing().to_string();
    LandingHeld(landing::LandingHeld) "landing.held" |landing_held| landing_held.landing().to_string();
    LandingLanded(landing::LandingLanded) "landing.landed" |landing_landed| landing_landed.landing().to_string();
    LandingEnded(landing::LandingEnded) "landing.ended" |landing_ended| landing_ended.landing().to_string();
    QueueOvertaken(landing::QueueOvertaken) "queue.overtaken" |queue_overtaken| queue_overtaken.project().to_string();
    QueueHeld(landing::QueueHeld) "queue.held" |queue_held| queue_held.project().to_string();
    QueueReleased(landing::QueueReleased) "queue.released" |queue_released| queue_released.project().to_string();
    TrunkCompared(landing::TrunkCompared) "trunk.compared" |trunk_compared| trunk_compared.project().to_string();
    TrunkAccepted(landing::TrunkAccepted) "trunk.accepted" |trunk_accepted| trunk_accepted.project().to_string();
    QueueUnpushed(landing::QueueUnpushed) "queue.unpushed" |queue_unpushed| queue_unpushed.project().to_string();
    QueuePushed(landing::QueuePushed) "queue.pushed" |queue_pushed| queue_pushed.project().to_string();
    MessagePosted(bus::MessagePosted) "message.posted" |message_posted| message_posted.message().id.to_string();
    MessageQueued(router::MessageQueued) "message.queued" |message_queued| message_queued.message().id.to_string();
    MessageHandled(router::MessageHandled) "message.handled" |message_handled| message_handled.message().to_string();
    MessageThread(thread_answers::MessageThread) "message.thread" |message_thread| message_thread.thread().root.to_string();
    MessageRead(bus::MessageRead) "message.read" |message_read| message_read.agent().to_string();
    HookAdded(hook::HookAdded) "hook.added" |hook_added| hook_added.hook().id.to_string();
    HookChanged(hook::HookChanged) "hook.changed" |hook_changed| hook_changed.hook().to_string();
    HookRemoved(hook::HookRemoved) "hook.removed" |hook_removed| hook_removed.hook().to_string();
    HookFired(hook::HookFired) "hook.fired" |hook_fired| hook_fired.firing().hook.to_string();
    HookSkipped(hook::HookSkipped) "hook.skipped" |hook_skipped| hook_skipped.hook().to_string();
    HookQueued(hook::HookQueued) "hook.queued" |hook_queued| hook_queued.hook().to_string();
    HookEnded(hook::HookEnded) "hook.ended" |hook_ended| hook_ended.firing().to_string();
    ConversationChanged(conversation::ConversationChanged) "conversation.changed" |conversation_changed| conversation_changed.conversation().id.to_string();
    ConversationExpired(conversation::ConversationExpired) "conversation.expired" |conversation_expired| conversation_expired.conversation().to_string();
    ConversationPushing(conversation::ConversationPushing) "conversation.pushing" |conversation_pushing| conversation_pushing.conversation().to_string();
    DeliveryTaken(conversation::DeliveryTaken) "delivery.taken" |delivery_taken| delivery_taken.delivery().key.clone();
    DeliveryForgotten(conversation::DeliveryForgotten) "delivery.forgotten" |delivery_forgotten| delivery_forgotten.delivery().clone();
}

/// Reads `{"kind": …, "data": …}`, with the kind first, as it is written.
///
/// The derived reader also accepts the data first. For that it keeps the data in a buffer and needs
/// a second copy of the code that reads every payload. That copy was half of the store's machine
/// code.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EventVisitor;

        impl<'de> Visitor<'de> for EventVisitor {
            type Value = Event;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event with its kind first")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let (mut kind, mut event) = (None, None);
                while let Some(field) = map.next_key::<Field>()? {
                    match field {
                        Field::Kind if kind.is_some() => {
                            return Err(A::Error::duplicate_field("kind"));
                        }
                        Field::Kind => kind = Some(map.next_value::<Kind>()?),
                        Field::Data if event.is_some() => {
                            return Err(A::Error::duplicate_field("data"));
                        }
                        Field::Data => {
                            let kind = kind.ok_or_else(|| {
                                A::Error::custom("the kind must come before the data")
                            })?;
                            event = Some(kind.payload(&mut map)?);
                        }
                        Field::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let missing = if kind.is_none() { "kind" } else { "data" };
                event.ok_or_else(|| A::Error::missing_field(missing))
            }
        }

        from.deserialize_struct("Event", &["kind", "data"], EventVisitor)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Field {
    Kind,
    Data,
    #[serde(other)]
    Other,
}

/// An event with its position in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The position. One counter for the whole fleet, without gaps except where a backup was
    /// restored.
    pub revision: u64,
    /// The fleet clock and the date when it was decided.
    pub now: crate::ids::Now,
    /// The actor whose command caused the event.
    pub by: crate::command::Actor,
    /// The fact.
    pub event: Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_only_if_its_kind_comes_first() {
        let read =
            |text: &str| serde_json::from_str::<Event>(text).map_err(|error| error.to_string());
        let text = r#"{"kind":"team.created","data":{"team":{}}}"#;
        assert!(
            read(text).unwrap_err().contains("missing field"),
            "the payload was not read as the kind's payload"
        );
        let freed = r#"{"kind":"provider.freed","data":{"name":"acme","remembered":null}}"#;
        let event = read(freed).unwrap();
        assert_eq!(
            (event.kind(), event.subject().as_str()),
            ("provider.freed", "acme")
        );
        assert_eq!(serde_json::to_string(&event).unwrap(), freed);
        assert_eq!(
            read(r#"{"kind":"provider.freed","later":[1],"data":{"name":"acme"}}"#).unwrap(),
            event
        );
        for (text, problem) in [
            (
                r#"{"data":{"name":"acme"},"kind":"provider.freed"}"#,
                "the kind must come before the data",
            ),
            (
                r#"{"kind":"provider.freed","kind":"provider.freed"}"#,
                "duplicate field `kind`",
            ),
            (
                r#"{"kind":"provider.freed","data":{"name":"a"},"data":{"name":"b"}}"#,
                "duplicate field `data`",
            ),
            (
                r#"{"kind":"from.the.future","data":{}}"#,
                "unknown variant `from.the.future`",
            ),
            (r#"{"kind":"provider.freed"}"#, "missing field `data`"),
            (r#"{}"#, "missing field `kind`"),
            ("7", "an event with its kind first"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    /// Events are moved several times on their way into the log, and the newest events are kept for
    /// subscribers. Large values in an event are therefore shared, not copied.
    #[test]
    fn an_event_has_at_most_272_bytes() {
        let size = size_of::<Event>();
        assert!(
            size <= 272,
            "an event has {size} bytes: put its large fields into an Arc"
        );
    }
}
