//! Events: records of all changes of the board (Regatta's stored state). Replaying the log of all
//! events restores the board (D4).
//!
//! The fields of an event's data are private, so only the module of the event's subject can create
//! the event: for example, only the module `task` can create a `TaskStarted`. For each kind of
//! event there is therefore one place in the code that decides when it happens.
//!
//! Not here: how an event changes the board (see [`board`](crate::board)), and which further events
//! follow from it (see [`react`](mod@crate::react)).

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    agent, approval, attempt, budget, bus, claim, collision_forecast, conversation, hook,
    idempotency, inbox, intervention, isolation_breach, landing, launch, lead, limits,
    message_router, mission, policy, project, provider_outage, runner, scope_escape,
    session_rotation, task, team, thread_answers,
};

/// Declares the data types of events, with private fields and public getters.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_attribute:meta])* $field:ident : $type:ty),* $(,)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$field_attribute])* $field: $type),* }
        #[allow(clippy::new_ret_no_self, reason = "a getter has the name of its field")]
        impl $name { $(pub fn $field(&self) -> &$type { &self.$field })* }
    )*};
}
pub(crate) use facts;

macro_rules! events {
    ($($variant:ident($type:ty) $kind:literal $subject:expr;)*) => {
        /// A recorded change of the board (Regatta's stored state), with the data of the change.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "kind", content = "data")]
        pub enum Event { $(#[serde(rename = $kind)] $variant($type),)* }

        /// The kind of an event, used while a stored event is read.
        #[derive(Clone, Copy, Deserialize)]
        enum Kind { $(#[serde(rename = $kind)] $variant,)* }

        impl Kind {
            /// Reads the data of a stored event of this kind.
            fn payload<'de, A: MapAccess<'de>>(self, map: &mut A) -> Result<Event, A::Error> {
                match self { $(Kind::$variant => map.next_value().map(Event::$variant),)* }
            }
        }

        impl Event {
            /// Returns the name of the event's kind, such as `claim.granted`. These names never
            /// change.
            pub fn kind(&self) -> &'static str {
                match self { $(Event::$variant(_) => $kind,)* }
            }
            /// Returns the id or name of the object that the event is about, as a person would type
            /// it.
            pub fn subject(&self) -> String {
                match self { $(Event::$variant(payload) => { let subject: fn(&$type) -> String = $subject; subject(payload) })* }
            }
            /// The names of all kinds of events.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];
        }
    };
}

events! {
    FleetResumed(limits::FleetResumed) "fleet.resumed" |_| "fleet".into();
    FleetLimited(limits::FleetLimited) "fleet.limited" |_| "fleet".into();
    RequestAnswered(idempotency::RequestAnswered) "request.answered" |event| event.key().to_string();
    RequestForgotten(idempotency::RequestForgotten) "request.forgotten" |event| event.key().to_string();
    EventUnreadable(limits::EventUnreadable) "event.unreadable" |_| "store".into();
    ProjectAdded(project::ProjectAdded) "project.added" |event| event.project().name.to_string();
    ProjectChanged(project::ProjectChanged) "project.changed" |event| event.project().name.to_string();
    ProjectRemoved(project::ProjectRemoved) "project.removed" |event| event.project().to_string();
    ProjectRadar(collision_forecast::ProjectRadar) "project.radar" |event| event.project().to_string();
    AgentRegistered(agent::AgentRegistered) "agent.registered" |event| event.agent().name.to_string();
    AgentRemoved(agent::AgentRemoved) "agent.removed" |event| event.agent().to_string();
    ClaimGranted(claim::ClaimGranted) "claim.granted" |event| event.claim().id.to_string();
    ClaimRenewed(claim::ClaimRenewed) "claim.renewed" |event| event.claim().to_string();
    ClaimTransferred(claim::ClaimTransferred) "claim.transferred" |event| event.claim().to_string();
    ClaimReleased(claim::ClaimReleased) "claim.released" |event| event.claim().to_string();
    ClaimQueued(claim::ClaimQueued) "claim.queued" |event| event.wait().id.to_string();
    ClaimWaitEnded(claim::ClaimWaitEnded) "claim.wait_ended" |event| event.wait().to_string();
    MissionStarted(mission::MissionStarted) "mission.started" |event| event.mission().id.to_string();
    MissionChanged(mission::MissionChanged) "mission.changed" |event| event.mission().to_string();
    MissionWeighed(mission::MissionWeighed) "mission.weighed" |event| event.mission().to_string();
    MissionSerialised(isolation_breach::MissionSerialised) "mission.serialised" |event| event.mission().to_string();
    MissionLed(lead::MissionLed) "mission.led" |event| event.mission().to_string();
    MissionEnded(mission::MissionEnded) "mission.ended" |event| event.mission().to_string();
    TaskAdded(task::TaskAdded) "task.added" |event| event.task().id.to_string();
    TaskEdited(task::TaskEdited) "task.edited" |event| event.task().id.to_string();
    TaskAssigned(task::TaskAssigned) "task.assigned" |event| event.task().to_string();
    TaskOffered(task::TaskOffered) "task.offered" |event| event.task().to_string();
    TaskStarted(task::TaskStarted) "task.started" |event| event.task().to_string();
    TaskProgressed(task::TaskProgressed) "task.progressed" |event| event.task().to_string();
    TaskValidating(task::TaskValidating) "task.validating" |event| event.task().to_string();
    TaskSubmitted(task::TaskSubmitted) "task.submitted" |event| event.task().to_string();
    TaskReturned(task::TaskReturned) "task.returned" |event| event.task().to_string();
    TaskInReview(task::TaskInReview) "task.in_review" |event| event.task().to_string();
    TaskNeedsHuman(task::TaskNeedsHuman) "task.needs_human" |event| event.task().to_string();
    TaskCompleted(task::TaskCompleted) "task.completed" |event| event.task().to_string();
    TaskFailed(task::TaskFailed) "task.failed" |event| event.task().to_string();
    TaskCancelled(task::TaskCancelled) "task.cancelled" |event| event.task().to_string();
    AttemptStarted(attempt::AttemptStarted) "attempt.started" |event| event.attempt().id.to_string();
    AttemptRenewed(attempt::AttemptRenewed) "attempt.renewed" |event| event.attempt().to_string();
    AttemptStopping(attempt::AttemptStopping) "attempt.stopping" |event| event.attempt().to_string();
    AttemptEnded(attempt::AttemptEnded) "attempt.ended" |event| event.attempt().to_string();
    AttemptSaid(attempt::AttemptSaid) "attempt.said" |event| event.attempt().to_string();
    AttemptPorted(attempt::AttemptPorted) "attempt.ported" |event| event.attempt().to_string();
    AttemptLaunched(attempt::AttemptLaunched) "attempt.launched" |event| event.attempt().to_string();
    AttemptNoted(attempt::AttemptNoted) "attempt.noted" |event| event.attempt().to_string();
    AttemptClosing(attempt::AttemptClosing) "attempt.closing" |event| event.attempt().to_string();
    AttemptRotating(session_rotation::AttemptRotating) "attempt.rotating" |event| event.attempt().to_string();
    AttemptTold(intervention::AttemptTold) "attempt.told" |event| event.attempt().to_string();
    AttemptHeld(intervention::AttemptHeld) "attempt.held" |event| event.attempt().to_string();
    AttemptLetGo(intervention::AttemptLetGo) "attempt.let_go" |event| event.attempt().to_string();
    AttemptExtended(intervention::AttemptExtended) "attempt.extended" |event| event.attempt().to_string();
    AttemptQuiet(intervention::AttemptQuiet) "attempt.quiet" |event| event.attempt().to_string();
    TaskNoted(intervention::TaskNoted) "task.noted" |event| event.task().to_string();
    TaskWarned(task::TaskWarned) "task.warned" |event| event.task().to_string();
    TaskEscaped(scope_escape::TaskEscaped) "task.escaped" |event| event.task().to_string();
    AttemptReported(attempt::AttemptReported) "attempt.reported" |event| event.attempt().to_string();
    TaskDue(task::TaskDue) "task.due" |event| event.task().to_string();
    ApprovalAsked(approval::ApprovalAsked) "approval.asked" |event| event.approval().id.to_string();
    ApprovalDecided(approval::ApprovalDecided) "approval.decided" |event| event.approval().to_string();
    ApprovalEscalated(approval::ApprovalEscalated) "approval.escalated" |event| event.approval().to_string();
    ApprovalKept(approval::ApprovalKept) "approval.kept" |event| event.approval().to_string();
    ApprovalHeard(approval::ApprovalHeard) "approval.heard" |event| event.approval().to_string();
    ApprovalWithdrawn(approval::ApprovalWithdrawn) "approval.withdrawn" |event| event.approval().to_string();
    InboxDismissed(inbox::InboxDismissed) "inbox.dismissed" |event| event.task().to_string();
    InboxSnoozed(inbox::InboxSnoozed) "inbox.snoozed" |event| event.item().to_string();
    PolicyAdded(policy::PolicyAdded) "policy.added" |event| event.rule().id.to_string();
    PolicyRemoved(policy::PolicyRemoved) "policy.removed" |event| event.rule().to_string();
    BudgetSet(budget::BudgetSet) "budget.set" |event| event.budget().scope.to_string();
    BudgetRemoved(budget::BudgetRemoved) "budget.removed" |event| event.scope().to_string();
    BudgetSpent(budget::BudgetSpent) "budget.spent" |event| event.attempt().to_string();
    AttemptClocked(budget::AttemptClocked) "attempt.clocked" |event| event.attempt().to_string();
    BudgetWarned(budget::BudgetWarned) "budget.warned" |event| event.scope().to_string();
    ProviderParked(provider_outage::ProviderParked) "provider.parked" |event| event.parked().name.clone();
    ProviderFreed(provider_outage::ProviderFreed) "provider.freed" |event| event.name().clone();
    RunnerRegistered(runner::RunnerRegistered) "runner.registered" |event| event.runner().name.to_string();
    RunnerRenewed(runner::RunnerRenewed) "runner.renewed" |event| event.runner().to_string();
    RunnerChanged(runner::RunnerChanged) "runner.changed" |event| event.runner().to_string();
    RunnerRemoved(runner::RunnerRemoved) "runner.removed" |event| event.runner().to_string();
    TeamCreated(team::TeamCreated) "team.created" |event| event.team().name.to_string();
    TeamChanged(team::TeamChanged) "team.changed" |event| event.team().name.to_string();
    LaunchBegun(launch::LaunchBegun) "launch.begun" |event| event.launch().id.to_string();
    LaunchMember(launch::LaunchMember) "launch.member" |event| event.launch().to_string();
    LaunchChanged(launch::LaunchChanged) "launch.changed" |event| event.launch().to_string();
    LandingQueued(landing::LandingQueued) "landing.queued" |event| event.landing().id.to_string();
    LandingBegun(landing::LandingBegun) "landing.begun" |event| event.landing().to_string();
    LandingValidated(landing::LandingValidated) "landing.validated" |event| event.landing().to_string();
    LandingRed(landing::LandingRed) "landing.red" |event| event.landing().to_string();
    LandingSuspected(landing::LandingSuspected) "landing.suspected" |event| event.landing().to_string();
    LandingSquashed(landing::LandingSquashed) "landing.squashed" |event| event.landing().to_string();
    LandingDeferred(landing::LandingDeferred) "landing.deferred" |event| event.landing().to_string();
    LandingReturned(landing::LandingReturned) "landing.returned" |event| event.landing().to_string();
    LandingApproved(landing::LandingApproved) "landing.approved" |event| event.landing().to_string();
    LandingAsked(landing::LandingAsked) "landing.asked" |event| event.landing().to_string();
    LandingMoving(landing::LandingMoving) "landing.moving" |event| event.landing().to_string();
    LandingHeld(landing::LandingHeld) "landing.held" |event| event.landing().to_string();
    LandingLanded(landing::LandingLanded) "landing.landed" |event| event.landing().to_string();
    LandingEnded(landing::LandingEnded) "landing.ended" |event| event.landing().to_string();
    QueueOvertaken(landing::QueueOvertaken) "queue.overtaken" |event| event.project().to_string();
    QueueHeld(landing::QueueHeld) "queue.held" |event| event.project().to_string();
    QueueReleased(landing::QueueReleased) "queue.released" |event| event.project().to_string();
    TrunkCompared(landing::TrunkCompared) "trunk.compared" |event| event.project().to_string();
    TrunkAccepted(landing::TrunkAccepted) "trunk.accepted" |event| event.project().to_string();
    QueueUnpushed(landing::QueueUnpushed) "queue.unpushed" |event| event.project().to_string();
    QueuePushed(landing::QueuePushed) "queue.pushed" |event| event.project().to_string();
    MessagePosted(bus::MessagePosted) "message.posted" |event| event.message().id.to_string();
    MessageQueued(message_router::MessageQueued) "message.queued" |event| event.message().id.to_string();
    MessageHandled(message_router::MessageHandled) "message.handled" |event| event.message().to_string();
    MessageThread(thread_answers::MessageThread) "message.thread" |event| event.thread().root.to_string();
    MessageRead(bus::MessageRead) "message.read" |event| event.agent().to_string();
    HookAdded(hook::HookAdded) "hook.added" |event| event.hook().id.to_string();
    HookChanged(hook::HookChanged) "hook.changed" |event| event.hook().to_string();
    HookRemoved(hook::HookRemoved) "hook.removed" |event| event.hook().to_string();
    HookFired(hook::HookFired) "hook.fired" |event| event.firing().hook.to_string();
    HookSkipped(hook::HookSkipped) "hook.skipped" |event| event.hook().to_string();
    HookQueued(hook::HookQueued) "hook.queued" |event| event.hook().to_string();
    HookEnded(hook::HookEnded) "hook.ended" |event| event.firing().to_string();
    ConversationChanged(conversation::ConversationChanged) "conversation.changed" |event| event.conversation().id.to_string();
    ConversationExpired(conversation::ConversationExpired) "conversation.expired" |event| event.conversation().to_string();
    ConversationPushing(conversation::ConversationPushing) "conversation.pushing" |event| event.conversation().to_string();
    DeliveryTaken(conversation::DeliveryTaken) "delivery.taken" |event| event.delivery().key.clone();
    DeliveryForgotten(conversation::DeliveryForgotten) "delivery.forgotten" |event| event.delivery().clone();
}

/// Reads a stored event, `{"kind": …, "data": …}`, in which the kind always comes first.
///
/// An implementation derived by serde would also accept the data before the kind. It would
/// therefore buffer the data and contain a second copy of the reading code for each kind of event.
/// These copies were half of the machine code of the store.
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

/// A key of a stored event's JSON object, used while the event is read.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Field {
    Kind,
    Data,
    #[serde(other)]
    Other,
}

/// An event as it is stored in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The event's number in the log. All events of a daemon share one counter. The counter has a
    /// gap only where a backup was restored.
    pub revision: u64,
    /// The time at which the event was decided, in milliseconds of Regatta's own clock (the fleet
    /// clock) and as a date.
    pub now: crate::ids::Now,
    /// The person, agent or service whose command caused the event.
    pub by: crate::command::Actor,
    /// The event itself.
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
