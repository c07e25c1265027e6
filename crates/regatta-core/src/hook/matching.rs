//! Decides whether a hook fires, and gives the reason if the hook does not fire. Real events and
//! `regatta hook test` use the same function, so they give the same answer. Not here: starting the
//! command.

use crate::board::Board;
use crate::bus::{self, Message};
use crate::claim;
use crate::command::Actor;
use crate::event::Event;
use crate::ids::Now;
use crate::pattern::Uri;

use super::{
    FIRING_WINDOW_MS, FiringCause, Hook, HookAction, HookTrigger, MAX_CHAIN_LENGTH,
    MAX_FIRINGS_PER_WINDOW,
};

/// Something that may trigger a hook: a message, an event, or a claim that became free.
#[derive(Clone, Debug)]
pub enum HookInput<'a> {
    Message(&'a Message),
    Event {
        event: &'a Event,
        by: &'a Actor,
        depth: u32,
    },
    Free {
        uri: Uri,
        by: &'a Actor,
        depth: u32,
    },
}

impl HookInput<'_> {
    /// Returns a description of the message, event or freed claim, which is recorded when the hook
    /// fires.
    pub fn cause(&self) -> FiringCause {
        match self {
            HookInput::Message(message) => FiringCause::Message {
                message: message.id,
                channel: message.channel.clone(),
                sender: message.sender.clone(),
            },
            HookInput::Event { event, .. } => FiringCause::Event {
                kind: event.kind().to_owned(),
                subject: event.subject(),
            },
            HookInput::Free { uri, .. } => FiringCause::Free { uri: uri.clone() },
        }
    }

    /// Returns the number of hooks in the chain that led to this input (each hook caused the next
    /// one); 0 if no hook was involved.
    pub fn depth(&self) -> u32 {
        match self {
            HookInput::Message(message) => message.depth,
            HookInput::Event { depth, .. } | HookInput::Free { depth, .. } => *depth,
        }
    }

    /// Returns the person, agent or service that caused the message, event or freed claim.
    fn by(&self) -> &Actor {
        match self {
            HookInput::Message(message) => &message.sender,
            HookInput::Event { by, .. } | HookInput::Free { by, .. } => by,
        }
    }
}

/// Says whether a hook fires for an input (a message, an event or a freed claim). `why` explains
/// this in words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookMatch {
    Fires,
    /// The message, event or freed claim does not match the trigger of the hook.
    NotTriggered {
        why: String,
    },
    /// The hook is triggered, but one of its conditions does not hold.
    ConditionFailed {
        why: String,
    },
    /// The hook is triggered, but somebody holds the URI that the hook claims. The hook fires when
    /// the URI is free.
    WaitsForClaim {
        why: String,
    },
    /// The hook must be paused, because hooks trigger each other or because this hook fires too
    /// often.
    MustPause {
        why: String,
    },
}

/// Decides whether a hook fires for an input, which is a message, an event or a freed claim.
pub fn evaluate(board: &Board, hook: &Hook, input: &HookInput<'_>, now: Now) -> HookMatch {
    if let Some(why) = trigger_mismatch(hook, input) {
        return HookMatch::NotTriggered { why };
    }
    // A hook that calls the router (the part of Regatta that runs commands from messages) needs no
    // further checks. The router does nothing that could trigger this hook again, and it makes its
    // own claim.
    if hook.action == HookAction::Route {
        return match &hook.paused {
            Some(reason) => HookMatch::ConditionFailed {
                why: format!("it is paused: {reason}"),
            },
            None => HookMatch::Fires,
        };
    }
    if let Some(why) = failed_condition(hook, input, now) {
        return HookMatch::ConditionFailed { why };
    }
    if input.depth() >= MAX_CHAIN_LENGTH {
        return HookMatch::MustPause {
            why: format!("{MAX_CHAIN_LENGTH} hooks triggered each other in a chain"),
        };
    }
    if let Some(holder) = claim_holder(board, hook, now) {
        return HookMatch::WaitsForClaim { why: holder };
    }
    if let Some(waiting) = hook.waiting.first() {
        return HookMatch::WaitsForClaim {
            why: format!("an earlier trigger waits: {}", waiting.cause),
        };
    }
    if hook
        .recent_firings
        .iter()
        .filter(|fired_fleet_ms| **fired_fleet_ms + FIRING_WINDOW_MS > now.fleet_ms)
        .count()
        >= MAX_FIRINGS_PER_WINDOW
    {
        return HookMatch::MustPause {
            why: format!("it fired {MAX_FIRINGS_PER_WINDOW} times within a minute"),
        };
    }
    HookMatch::Fires
}

/// Returns why an input does not trigger a hook, or `None` if the input triggers the hook.
fn trigger_mismatch(hook: &Hook, input: &HookInput<'_>) -> Option<String> {
    if let HookInput::Message(message) = input {
        if let Some(why) = message_mismatch(&hook.trigger, message) {
            return Some(why);
        }
        if message.sender == Actor::Regatta {
            return Some("messages from Regatta fire no hook".into());
        }
        let on_mention = matches!(
            hook.trigger,
            HookTrigger::Message {
                mention: Some(_),
                ..
            }
        );
        if let Some(word) = opt_out_word(&message.text, on_mention) {
            return Some(format!("the message contains {word}"));
        }
    }
    // No hook reacts to its own actions. Other actions of Regatta may fire a hook on events, unlike
    // messages of Regatta.
    hook.is_own(input.by())
        .then(|| format!("actions of {} itself do not fire the hook", hook.identity()))
}

/// Returns why a message does not trigger a hook, or `None` if the message triggers the hook.
fn message_mismatch(trigger: &HookTrigger, message: &Message) -> Option<String> {
    let (channel, label, mention, prefix) = match trigger {
        HookTrigger::Message {
            channel,
            label,
            mention,
            prefix,
        } => (
            channel.as_ref(),
            label.as_ref(),
            mention.as_ref(),
            prefix.as_ref(),
        ),
        HookTrigger::Event { kind } if kind == "message.posted" => (None, None, None, None),
        HookTrigger::Event { .. } | HookTrigger::Free { .. } => {
            return Some("no message fires this hook".into());
        }
    };
    match channel {
        Some(wanted) if *wanted != message.channel => {
            return Some(format!(
                "the hook waits for messages in {wanted}, but the message is in {}",
                message.channel
            ));
        }
        None if bus::addressee(&message.channel).is_some() => {
            return Some("a message in an agent's mailbox fires only hooks on that mailbox".into());
        }
        _ => {}
    }
    if let Some(wanted) = label.filter(|label| !message.labels.contains(label)) {
        return Some(format!("the message has no label {wanted}"));
    }
    if let Some(wanted) = mention.filter(|agent| !message.mentions.contains(agent)) {
        return Some(format!("the message does not mention @{wanted}"));
    }
    let wanted = prefix.filter(|prefix| !starts_with_prefix(&message.text, prefix))?;
    Some(format!("the message does not begin with {wanted}"))
}

/// Returns whether a text begins with `prefix`, ignoring case and leading spaces.
fn starts_with_prefix(text: &str, prefix: &str) -> bool {
    let (mut text, prefix) = (
        text.trim_start().chars().flat_map(char::to_lowercase),
        prefix.trim_start(),
    );
    prefix
        .chars()
        .flat_map(char::to_lowercase)
        .all(|c| text.next() == Some(c))
}

/// Returns the word in a message that forbids hooks to fire for this message, if there is such a
/// word: `!nohooks` for all hooks, `!nochanhooks` for hooks on channels, `!noathooks` for hooks on
/// mentions.
fn opt_out_word(text: &str, on_mention: bool) -> Option<&'static str> {
    let mut words = text
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';', ':', '?', ')']));
    let kind = if on_mention {
        "!noathooks"
    } else {
        "!nochanhooks"
    };
    words.find_map(|word| {
        ["!nohooks", kind]
            .into_iter()
            .find(|opt_out| word.eq_ignore_ascii_case(opt_out))
    })
}

/// Returns a sentence about the condition that keeps a triggered hook from firing, or `None` if
/// every condition holds.
fn failed_condition(hook: &Hook, input: &HookInput<'_>, now: Now) -> Option<String> {
    if let Some(reason) = &hook.paused {
        return Some(format!("it is paused: {reason}"));
    }
    if let (Some(label), HookInput::Message(message)) = (&hook.when.require_label, input)
        && !message.labels.contains(label)
    {
        return Some(format!(
            "the message has no label {label}, which is required"
        ));
    }
    if let (Some(cooldown), Some(last)) = (hook.when.cooldown_ms, hook.recent_firings.last())
        && last + cooldown > now.fleet_ms
    {
        let remaining = crate::refusal::seconds(last + cooldown - now.fleet_ms);
        return Some(format!(
            "it fired recently, and its cooldown lasts another {remaining}"
        ));
    }
    None
}

/// Returns a sentence about who holds the URI that the hook claims, or `None` if the URI is free or
/// the hook claims nothing.
pub(super) fn claim_holder(board: &Board, hook: &Hook, now: Now) -> Option<String> {
    let uri = hook.when.claim.as_ref()?;
    let holders = claim::conflicting_holders_on_board(
        board,
        std::slice::from_ref(uri),
        claim::ClaimMode::Exclusive,
        None,
        now,
    );
    let holder = holders.first()?;
    Some(format!("{} is held by {}", holder.uri, holder.owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_in_any_case_and_after_spaces() {
        for (text, prefix, yes) in [
            ("!dev now", "!dev", true),
            ("  !DEV", "!dev", true),
            ("!de", "!dev", false),
            ("Über uns", "üBER", true),
            ("x !dev", "!dev", false),
        ] {
            assert_eq!(starts_with_prefix(text, prefix), yes, "{text:?} {prefix:?}");
        }
    }

    #[test]
    fn a_message_can_silence_hooks_of_either_kind() {
        for (text, on_mention, word) in [
            ("hello !nohooks", false, Some("!nohooks")),
            ("hello !NoHooks.", true, Some("!nohooks")),
            ("!nochanhooks hello", false, Some("!nochanhooks")),
            ("!nochanhooks hello", true, None),
            ("!noathooks @bob", true, Some("!noathooks")),
            ("!noathooks @bob", false, None),
            ("!nohooksatall", false, None),
            ("nohooks", false, None),
        ] {
            assert_eq!(
                opt_out_word(text, on_mention),
                word,
                "{text:?} {on_mention}"
            );
        }
    }
}
