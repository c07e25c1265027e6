//! Events: the facts that became true. Replaying the log of events gives the board (D4).
//!
//! The fields of a payload are private, and only the file of its noun builds it. For example, only
//! `task::start` can make a `task::Started`. So for each kind of event one place in the code
//! decides when it happens.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    agent, approval, attempt, budget, bus, claim, conversation, fleet, hook, inbox, isolation, landing, launch, lead,
    mission, policy, project, provider, question, radar, rotate, route, runner, scope, steer, task, team,
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
                match self { $(Event::$variant(it) => { let of: fn(&$type) -> String = $subject; of(it) })* }
            }
            /// All kinds of events.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];
        }
    };
}

events! {
    FleetResumed(fleet::Resumed) "fleet.resumed" |_| "fleet".into();
    FleetLimited(fleet::Limited) "fleet.limited" |_| "fleet".into();
    RequestAnswered(fleet::Answered) "request.answered" |it| it.key().to_string();
    RequestForgotten(fleet::Forgotten) "request.forgotten" |it| it.key().to_string();
    Unreadable(fleet::Unreadable) "event.unreadable" |_| "store".into();
    ProjectAdded(project::Added) "project.added" |it| it.project().name.to_string();
    ProjectChanged(project::Changed) "project.changed" |it| it.project().name.to_string();
    ProjectRemoved(project::Removed) "project.removed" |it| it.project().to_string();
    RadarChanged(radar::Changed) "project.radar" |it| it.project().to_string();
    AgentRegistered(agent::Registered) "agent.registered" |it| it.agent().name.to_string();
    AgentRemoved(agent::Removed) "agent.removed" |it| it.agent().to_string();
    ClaimGranted(claim::Granted) "claim.granted" |it| it.claim().id.to_string();
    ClaimRenewed(claim::Renewed) "claim.renewed" |it| it.claim().to_string();
    ClaimTransferred(claim::Transferred) "claim.transferred" |it| it.claim().to_string();
    ClaimReleased(claim::Released) "claim.released" |it| it.claim().to_string();
    ClaimQueued(claim::Queued) "claim.queued" |it| it.wait().id.to_string();
    ClaimWaitEnded(claim::WaitEnded) "claim.wait_ended" |it| it.wait().to_string();
    MissionStarted(mission::Started) "mission.started" |it| it.mission().id.to_string();
    MissionChanged(mission::Changed) "mission.changed" |it| it.mission().to_string();
    MissionWeighed(mission::Weighed) "mission.weighed" |it| it.mission().to_string();
    MissionSerialised(isolation::Serialised) "mission.serialised" |it| it.mission().to_string();
    MissionLed(lead::Changed) "mission.led" |it| it.mission().to_string();
    MissionEnded(mission::Ended) "mission.ended" |it| it.mission().to_string();
    TaskAdded(task::Added) "task.added" |it| it.task().id.to_string();
    TaskEdited(task::Edited) "task.edited" |it| it.task().id.to_string();
    TaskAssigned(task::Assigned) "task.assigned" |it| it.task().to_string();
    TaskOffered(task::Offered) "task.offered" |it| it.task().to_string();
    TaskStarted(task::Started) "task.started" |it| it.task().to_string();
    TaskProgressed(task::Progressed) "task.progressed" |it| it.task().to_string();
    TaskValidating(task::Validating) "task.validating" |it| it.task().to_string();
    TaskSubmitted(task::Submitted) "task.submitted" |it| it.task().to_string();
    TaskReturned(task::Returned) "task.returned" |it| it.task().to_string();
    TaskInReview(task::InReview) "task.in_review" |it| it.task().to_string();
    TaskNeedsHuman(task::NeedsHuman) "task.needs_human" |it| it.task().to_string();
    TaskCompleted(task::Completed) "task.completed" |it| it.task().to_string();
    TaskFailed(task::Failed) "task.failed" |it| it.task().to_string();
    TaskCancelled(task::Cancelled) "task.cancelled" |it| it.task().to_string();
    AttemptStarted(attempt::Started) "attempt.started" |it| it.attempt().id.to_string();
    AttemptRenewed(attempt::Renewed) "attempt.renewed" |it| it.attempt().to_string();
    AttemptStopping(attempt::Stopping) "attempt.stopping" |it| it.attempt().to_string();
    AttemptEnded(attempt::Ended) "attempt.ended" |it| it.attempt().to_string();
    AttemptSpoke(attempt::Spoke) "attempt.said" |it| it.attempt().to_string();
    AttemptPorted(attempt::Ported) "attempt.ported" |it| it.attempt().to_string();
    AttemptLaunched(attempt::Launched) "attempt.launched" |it| it.attempt().to_string();
    AttemptNoted(attempt::Noted) "attempt.noted" |it| it.attempt().to_string();
    AttemptClosing(attempt::Closing) "attempt.closing" |it| it.attempt().to_string();
    AttemptRotating(rotate::Rotating) "attempt.rotating" |it| it.attempt().to_string();
    AttemptTold(steer::Told) "attempt.told" |it| it.attempt().to_string();
    AttemptHeld(steer::Held) "attempt.held" |it| it.attempt().to_string();
    AttemptLetGo(steer::LetGo) "attempt.let_go" |it| it.attempt().to_string();
    AttemptExtended(steer::Extended) "attempt.extended" |it| it.attempt().to_string();
    AttemptQuiet(steer::Quiet) "attempt.quiet" |it| it.attempt().to_string();
    TaskNoted(steer::Noted) "task.noted" |it| it.task().to_string();
    TaskWarned(task::Warned) "task.warned" |it| it.task().to_string();
    TaskEscaped(scope::Escaped) "task.escaped" |it| it.task().to_string();
    AttemptReported(attempt::Reported) "attempt.reported" |it| it.attempt().to_string();
    TaskDue(task::Due) "task.due" |it| it.task().to_string();
    ApprovalAsked(approval::Asked) "approval.asked" |it| it.approval().id.to_string();
    ApprovalDecided(approval::Decided) "approval.decided" |it| it.approval().to_string();
    ApprovalEscalated(approval::Escalated) "approval.escalated" |it| it.approval().to_string();
    ApprovalKept(approval::Kept) "approval.kept" |it| it.approval().to_string();
    ApprovalHeard(approval::Heard) "approval.heard" |it| it.approval().to_string();
    ApprovalWithdrawn(approval::Withdrawn) "approval.withdrawn" |it| it.approval().to_string();
    ItemDismissed(inbox::Dismissed) "inbox.dismissed" |it| it.task().to_string();
    ItemSnoozed(inbox::Snoozed) "inbox.snoozed" |it| it.item().to_string();
    RuleAdded(policy::Added) "policy.added" |it| it.rule().id.to_string();
    RuleRemoved(policy::Removed) "policy.removed" |it| it.rule().to_string();
    BudgetSet(budget::Set) "budget.set" |it| it.budget().scope.to_string();
    BudgetRemoved(budget::Removed) "budget.removed" |it| it.scope().to_string();
    BudgetSpent(budget::Spent) "budget.spent" |it| it.attempt().to_string();
    AttemptClocked(budget::Clocked) "attempt.clocked" |it| it.attempt().to_string();
    BudgetWarned(budget::Warned) "budget.warned" |it| it.scope().to_string();
    ProviderParked(provider::Stopped) "provider.parked" |it| it.parked().name.clone();
    ProviderFreed(provider::Freed) "provider.freed" |it| it.name().clone();
    RunnerRegistered(runner::Registered) "runner.registered" |it| it.runner().name.to_string();
    RunnerRenewed(runner::Renewed) "runner.renewed" |it| it.runner().to_string();
    RunnerChanged(runner::Changed) "runner.changed" |it| it.runner().to_string();
    RunnerRemoved(runner::Removed) "runner.removed" |it| it.runner().to_string();
    TeamCreated(team::Created) "team.created" |it| it.team().name.to_string();
    TeamChanged(team::Changed) "team.changed" |it| it.team().name.to_string();
    LaunchBegun(launch::Begun) "launch.begun" |it| it.launch().id.to_string();
    LaunchMoved(launch::Moved) "launch.member" |it| it.launch().to_string();
    LaunchChanged(launch::Changed) "launch.changed" |it| it.launch().to_string();
    LandingQueued(landing::Queued) "landing.queued" |it| it.landing().id.to_string();
    LandingBegun(landing::Begun) "landing.begun" |it| it.landing().to_string();
    LandingValidated(landing::Validated) "landing.validated" |it| it.landing().to_string();
    LandingReddened(landing::Reddened) "landing.red" |it| it.landing().to_string();
    LandingSuspected(landing::Suspected) "landing.suspected" |it| it.landing().to_string();
    LandingSquashed(landing::Squashed) "landing.squashed" |it| it.landing().to_string();
    LandingDeferred(landing::Deferred) "landing.deferred" |it| it.landing().to_string();
    LandingReturned(landing::Returned) "landing.returned" |it| it.landing().to_string();
    LandingApproved(landing::Approved) "landing.approved" |it| it.landing().to_string();
    LandingAsked(landing::Asked) "landing.asked" |it| it.landing().to_string();
    LandingMoving(landing::Moving) "landing.moving" |it| it.landing().to_string();
    LandingHeld(landing::Held) "landing.held" |it| it.landing().to_string();
    LandingLanded(landing::Landed) "landing.landed" |it| it.landing().to_string();
    LandingEnded(landing::Ended) "landing.ended" |it| it.landing().to_string();
    QueueOvertaken(landing::Overtaken) "queue.overtaken" |it| it.project().to_string();
    QueueHeld(landing::Stopped) "queue.held" |it| it.project().to_string();
    QueueReleased(landing::GoneOn) "queue.released" |it| it.project().to_string();
    TrunkCompared(landing::TrunkCompared) "trunk.compared" |it| it.project().to_string();
    TrunkAccepted(landing::TrunkAccepted) "trunk.accepted" |it| it.project().to_string();
    QueueUnpushed(landing::NotPushed) "queue.unpushed" |it| it.project().to_string();
    QueuePushed(landing::Pushed) "queue.pushed" |it| it.project().to_string();
    MessagePosted(bus::Posted) "message.posted" |it| it.message().id.to_string();
    MessageQueued(route::Queued) "message.queued" |it| it.message().id.to_string();
    MessageHandled(route::Handled) "message.handled" |it| it.message().to_string();
    ThreadChanged(question::Threaded) "message.thread" |it| it.thread().root.to_string();
    CursorMoved(bus::CursorMoved) "message.read" |it| it.agent().to_string();
    HookAdded(hook::Added) "hook.added" |it| it.hook().id.to_string();
    HookChanged(hook::Changed) "hook.changed" |it| it.hook().to_string();
    HookRemoved(hook::Removed) "hook.removed" |it| it.hook().to_string();
    HookFired(hook::Fired) "hook.fired" |it| it.firing().hook.to_string();
    HookSkipped(hook::Skipped) "hook.skipped" |it| it.hook().to_string();
    HookQueued(hook::Queued) "hook.queued" |it| it.hook().to_string();
    FiringEnded(hook::FiringEnded) "hook.ended" |it| it.firing().to_string();
    ConversationChanged(conversation::Changed) "conversation.changed" |it| it.conversation().id.to_string();
    ConversationExpired(conversation::Expired) "conversation.expired" |it| it.conversation().to_string();
    ConversationPushing(conversation::Pushing) "conversation.pushing" |it| it.conversation().to_string();
    DeliveryTaken(conversation::Taken) "delivery.taken" |it| it.delivery().key.clone();
    DeliveryForgotten(conversation::Forgotten) "delivery.forgotten" |it| it.delivery().clone();
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
                        Field::Kind if kind.is_some() => return Err(A::Error::duplicate_field("kind")),
                        Field::Kind => kind = Some(map.next_value::<Kind>()?),
                        Field::Data if event.is_some() => return Err(A::Error::duplicate_field("data")),
                        Field::Data => {
                            let kind = kind.ok_or_else(|| A::Error::custom("the kind must come before the data"))?;
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
        let read = |text: &str| serde_json::from_str::<Event>(text).map_err(|error| error.to_string());
        let text = r#"{"kind":"team.created","data":{"team":{}}}"#;
        assert!(read(text).unwrap_err().contains("missing field"), "the payload was not read as the kind's payload");
        let freed = r#"{"kind":"provider.freed","data":{"name":"acme","remembered":null}}"#;
        let event = read(freed).unwrap();
        assert_eq!((event.kind(), event.subject().as_str()), ("provider.freed", "acme"));
        assert_eq!(serde_json::to_string(&event).unwrap(), freed);
        assert_eq!(read(r#"{"kind":"provider.freed","later":[1],"data":{"name":"acme"}}"#).unwrap(), event);
        for (text, problem) in [
            (r#"{"data":{"name":"acme"},"kind":"provider.freed"}"#, "the kind must come before the data"),
            (r#"{"kind":"provider.freed","kind":"provider.freed"}"#, "duplicate field `kind`"),
            (r#"{"kind":"provider.freed","data":{"name":"a"},"data":{"name":"b"}}"#, "duplicate field `data`"),
            (r#"{"kind":"from.the.future","data":{}}"#, "unknown variant `from.the.future`"),
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
        assert!(size <= 272, "an event has {size} bytes: put its large fields into an Arc");
    }
}
