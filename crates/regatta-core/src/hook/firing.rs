//! Fires hooks: finds the hooks (rules of the user) that an event triggers. Then starts a hook's
//! command, or gives the message to the router (the part of Regatta that runs commands from
//! messages).
//!
//! Not here: the decision whether a hook fires (see [`matching`]).

use crate::board::{Board, Draft};
use crate::bus::{self, Message};
use crate::claim::{self, Acquire, Acquired, ClaimMode, ClaimOwner};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{ChannelName, FiringId, HookId, Label, Now};
use crate::pattern::Uri;
use crate::refusal::Refusal;

use super::{
    Firing, FiringCause, FiringClaim, Hook, HookAction, HookChanged, HookFired, HookInput,
    HookMatch, HookQueued, HookSkipped, HookTrigger, MAX_WAITING, WaitingTrigger, depth_of,
    evaluate, matching,
};

/// Fires the hooks that an event triggers. Events about hooks, or about claims of hooks, trigger no
/// hook.
pub(crate) fn on_event(draft: &mut Draft, before: &Board, event: &Event, now: Now) {
    fire_freed(draft, before, event, now);
    // Most events match no hook, so this check must be cheap.
    let triggered = draft
        .board()
        .hooks
        .values()
        .filter(|hook| hook.trigger.matches_kind(event));
    let mut hooks: Vec<(u8, HookId)> = triggered.map(|hook| (hook.priority, hook.id)).collect();
    if hooks.is_empty() || is_hooks_own(draft.board(), before, event) {
        return;
    }
    let by = draft.actor().clone();
    hooks.sort_unstable();
    for (_, id) in hooks {
        let board = draft.board();
        let Some(hook) = board.hooks.get(&id).cloned() else {
            continue;
        };
        let Some(input) = input_for(board, before, &hook, event, &by, now) else {
            continue;
        };
        match evaluate(board, &hook, &input, now) {
            HookMatch::NotTriggered { .. } => {}
            // Do not record the triggers that a paused hook skips, because people know that the
            // hook is paused.
            HookMatch::ConditionFailed { .. } if hook.paused.is_some() => {}
            HookMatch::ConditionFailed { why } => record_skip(draft, id, input.cause(), why),
            HookMatch::WaitsForClaim { why } => queue_trigger(draft, &hook, &input, why, now),
            HookMatch::MustPause { why } => pause_runaway(draft, &hook, &input, &why, now),
            HookMatch::Fires => fire(draft, &hook, &input, now),
        }
    }
}

/// Adds a trigger to the triggers that wait until the URI that the hook claims is free.
fn queue_trigger(draft: &mut Draft, hook: &Hook, input: &HookInput<'_>, why: String, now: Now) {
    let cause = input.cause();
    if hook.waiting.len() >= MAX_WAITING {
        return record_skip(
            draft,
            hook.id,
            cause,
            format!("{why}, and {MAX_WAITING} other triggers already wait for it"),
        );
    }
    let waiting = WaitingTrigger {
        cause,
        depth: input.depth(),
    };
    draft.record(Event::HookQueued(HookQueued {
        hook: hook.id,
        waiting,
    }));
    // If the URI is free, the new trigger waits only for earlier triggers, so start the oldest one.
    fire_waiting(draft, hook.id, now);
}

/// Fires the hooks that wait for a URI which the event has freed. Each such hook fires for its
/// oldest waiting trigger.
fn fire_freed(draft: &mut Draft, before: &Board, event: &Event, now: Now) {
    let waiting_hooks = draft
        .board()
        .hooks
        .values()
        .filter(|hook| !hook.waiting.is_empty());
    let mut waiting_hooks: Vec<(u8, HookId)> =
        waiting_hooks.map(|hook| (hook.priority, hook.id)).collect();
    if waiting_hooks.is_empty() {
        return;
    }
    let Some(freed) = freed_by(before, event) else {
        return;
    };
    waiting_hooks.sort_unstable();
    for (_, id) in waiting_hooks {
        let claim = draft
            .board()
            .hooks
            .get(&id)
            .and_then(|hook| hook.when.claim.clone());
        if claim.is_some_and(|claim| freed.iter().any(|uri| uri.overlaps(&claim))) {
            fire_waiting(draft, id, now);
        }
    }
}

/// Fires a hook for its oldest waiting trigger, if the URI that the hook claims is free. The next
/// trigger follows when the command has ended.
pub(super) fn fire_waiting(draft: &mut Draft, id: HookId, now: Now) {
    let board = draft.board();
    let Some(hook) = board
        .hooks
        .get(&id)
        .filter(|hook| hook.paused.is_none())
        .cloned()
    else {
        return;
    };
    let Some(next) = hook.waiting.first().cloned() else {
        return;
    };
    if matching::claim_holder(board, &hook, now).is_none() {
        start_command(draft, &hook, next.cause, next.depth, now);
    }
}

/// Converts an event into the input that [`evaluate`] needs to decide whether the hook fires.
/// Returns `None` if the hook does not react to this kind of event.
fn input_for<'a>(
    board: &Board,
    before: &Board,
    hook: &Hook,
    event: &'a Event,
    by: &'a Actor,
    now: Now,
) -> Option<HookInput<'a>> {
    match (&hook.trigger, event) {
        (HookTrigger::Message { .. }, Event::MessagePosted(posted)) => {
            Some(HookInput::Message(posted.message()))
        }
        (HookTrigger::Event { .. }, _) => Some(match event {
            Event::MessagePosted(posted) => HookInput::Message(posted.message()),
            _ => HookInput::Event {
                event,
                by,
                depth: depth_of(board, by),
            },
        }),
        (HookTrigger::Free { uri }, _) => {
            let is_touched = freed_by(before, event)?
                .iter()
                .any(|freed| freed.overlaps(uri));
            let is_free = || {
                claim::conflicting_holders_on_board(
                    board,
                    std::slice::from_ref(uri),
                    ClaimMode::Exclusive,
                    None,
                    now,
                )
                .is_empty()
            };
            (is_touched && is_free()).then(|| HookInput::Free {
                uri: uri.clone(),
                by,
                depth: depth_of(board, by),
            })
        }
        _ => None,
    }
}

/// Returns the URIs that became free because an event ended a claim, an attempt or a landing.
fn freed_by(before: &Board, event: &Event) -> Option<Vec<Uri>> {
    match event {
        Event::ClaimReleased(event) => before
            .claims
            .get(event.claim())
            .map(|claim| claim.uris.clone()),
        Event::AttemptEnded(event) => before
            .attempts
            .get(event.attempt())
            .map(|ended| claim::held_by_attempt(ended)),
        Event::LandingLanded(event) => before
            .landings
            .get(event.landing())
            .map(|ended| claim::held_by_landing(before, ended)),
        Event::LandingEnded(event) => before
            .landings
            .get(event.landing())
            .map(|ended| claim::held_by_landing(before, ended)),
        _ => None,
    }
}

/// Returns whether an event is about a claim that a hook's command holds or held.
fn is_hooks_own(board: &Board, before: &Board, event: &Event) -> bool {
    let id = match event {
        Event::ClaimGranted(event) => event.claim().id,
        Event::ClaimRenewed(event) => *event.claim(),
        Event::ClaimReleased(event) => *event.claim(),
        _ => return false,
    };
    let is_held_by_firing = |board: &Board| {
        board
            .firings
            .values()
            .any(|firing| firing.claim.is_some_and(|held| held.claim == id))
    };
    // When the claim is granted, the run of the hook is not recorded yet, so the claim is
    // recognised by its memo.
    let has_hook_memo = matches!(event, Event::ClaimGranted(granted) if granted.claim().memo.starts_with(CLAIM_MEMO_PREFIX));
    has_hook_memo || is_held_by_firing(board) || is_held_by_firing(before)
}

/// The beginning of the memo of every claim that a hook makes.
const CLAIM_MEMO_PREFIX: &str = "held by the hook ";

/// Records that a hook was triggered but did not fire, and the reason.
fn record_skip(draft: &mut Draft, hook: HookId, cause: FiringCause, why: String) {
    draft.record(Event::HookSkipped(HookSkipped { hook, cause, why }));
}

/// Pauses a hook that triggers itself or fires too often, and announces the pause in a channel that
/// everybody can read.
fn pause_runaway(draft: &mut Draft, hook: &Hook, input: &HookInput<'_>, why: &str, now: Now) {
    let reason = format!("{why}, at {}", input.cause());
    draft.record(Event::HookChanged(HookChanged {
        hook: hook.id,
        paused: Some(reason.clone()),
    }));
    let is_public = |channel: &&ChannelName| bus::addressee(channel).is_none();
    let of_hook = match &hook.trigger {
        HookTrigger::Message { channel, .. } => channel.as_ref(),
        _ => None,
    };
    let of_message = match input {
        HookInput::Message(message) => Some(&message.channel),
        _ => None,
    };
    let of_project = hook
        .project
        .as_ref()
        .and_then(|project| ChannelName::new(project.as_str()).ok());
    let channel = of_hook
        .filter(is_public)
        .or(of_message.filter(is_public))
        .cloned()
        .or(of_project);
    let channel =
        channel.unwrap_or_else(|| ChannelName::new("general").expect("a plain word is a channel"));
    let text = format!(
        "{} is paused: {reason}. Check it, then resume it: regatta hook resume {}",
        hook.id, hook.id
    );
    let labels = vec![Label::new("coord:hook").expect("the label has only plain letters")];
    let post = bus::PostMessage {
        channel,
        text,
        labels,
        reply_to: None,
    };
    bus::post(draft, post, Actor::Regatta, now).expect("a short text with one label is a message");
}

/// Carries out the action of a hook that fires: starts its command, or hands the message to the
/// router (the part of Regatta that runs commands from messages).
fn fire(draft: &mut Draft, hook: &Hook, input: &HookInput<'_>, now: Now) {
    let cause = input.cause();
    match (&hook.action, input) {
        (HookAction::Run { .. }, _) => start_command(draft, hook, cause, input.depth(), now),
        (HookAction::Route, HookInput::Message(message)) => {
            if let Err(refusal) = send_to_router(draft, hook, message, now) {
                record_skip(draft, hook.id, cause, refusal.message());
            }
        }
        (HookAction::Route, _) => {}
    }
}

/// Starts a hook's command. `depth` is the number of hooks in the chain that led to `cause`.
fn start_command(draft: &mut Draft, hook: &Hook, cause: FiringCause, depth: u32, now: Now) {
    let HookAction::Run { argv, cwd } = hook.action.clone() else {
        return;
    };
    let id = FiringId(draft.board().counters.firing + 1);
    let claim = match acquire_claim(draft, hook, id, now) {
        Ok(claim) => claim,
        Err(refusal) => return record_skip(draft, hook.id, cause, refusal.message()),
    };
    let firing = Firing {
        id,
        hook: hook.id,
        project: hook.project.clone(),
        agent: hook.identity(),
        token: draft.next_revision(),
        cause,
        depth: depth + 1,
        argv,
        cwd,
        timeout_ms: hook.timeout_ms,
        sandbox: hook.sandbox,
        claim,
        fired_unix_ms: now.unix_ms,
        ended: None,
        ended_unix_ms: None,
        output: String::new(),
        sandbox_description: None,
    };
    draft.record(Event::HookFired(HookFired {
        firing: firing.into(),
        at: now.fleet_ms,
    }));
}

/// Claims the URI that the hook needs while its command runs, if it needs one.
fn acquire_claim(
    draft: &mut Draft,
    hook: &Hook,
    firing: FiringId,
    now: Now,
) -> Result<Option<FiringClaim>, Refusal> {
    let Some(uri) = &hook.when.claim else {
        return Ok(None);
    };
    let request = Acquire {
        owner: ClaimOwner::Agent(hook.identity()),
        uris: vec![uri.clone()],
        mode: ClaimMode::Exclusive,
        // The claim is released when the command ends. The TTL (the claim's lifetime) matters only
        // if no daemon is running at that time.
        ttl_ms: hook.when.ttl_ms.unwrap_or(hook.timeout_ms + 60_000),
        wait_ms: 0,
        memo: format!("{CLAIM_MEMO_PREFIX}{} while {firing} runs", hook.id),
    };
    match claim::acquire(draft, request, now)? {
        Acquired::Granted { claim, token, .. } => Ok(Some(FiringClaim { claim, token })),
        Acquired::Waiting { .. } => Ok(None), // cannot happen, because `wait_ms` is 0
    }
}

/// Hands a message to the built-in router of the hook's project, which runs the commands in the
/// message.
fn send_to_router(
    draft: &mut Draft,
    hook: &Hook,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    match &hook.project {
        Some(project) => crate::message_router::on_message(draft, project, message, now),
        None => Ok(()),
    }
}
