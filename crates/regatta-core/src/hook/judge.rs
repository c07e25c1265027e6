//! Whether a hook fires, and if not, why: the same answer for what happens and for who only asks.

use crate::board::Board;
use crate::bus::{self, Message};
use crate::claim;
use crate::command::Actor;
use crate::event::Event;
use crate::ids::Now;
use crate::pattern::Uri;

use super::{Action, Cause, DEEPEST, Hook, MOST_IN_SPAN, SPAN_MS, Trigger};

/// What happened, as a hook sees it.
#[derive(Clone, Debug)]
pub enum Occasion<'a> {
    Message(&'a Message),
    Event { event: &'a Event, by: &'a Actor, depth: u32 },
    Free { uri: Uri, by: &'a Actor, depth: u32 },
}

impl Occasion<'_> {
    /// How it is written down.
    pub fn cause(&self) -> Cause {
        match self {
            Occasion::Message(it) => {
                Cause::Message { message: it.id, channel: it.channel.clone(), sender: it.sender.clone() }
            }
            Occasion::Event { event, .. } => Cause::Event { kind: event.kind().to_owned(), subject: event.subject() },
            Occasion::Free { uri, .. } => Cause::Free { uri: uri.clone() },
        }
    }

    /// How many hooks led to it.
    pub fn depth(&self) -> u32 {
        match self {
            Occasion::Message(it) => it.depth,
            Occasion::Event { depth, .. } | Occasion::Free { depth, .. } => *depth,
        }
    }

    fn by(&self) -> &Actor {
        match self {
            Occasion::Message(it) => &it.sender,
            Occasion::Event { by, .. } | Occasion::Free { by, .. } => by,
        }
    }
}

/// What comes of an occasion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fires,
    /// It is nothing to this hook.
    Unmoved {
        why: String,
    },
    /// It is, but a condition does not hold.
    Held {
        why: String,
    },
    /// The hook's claim is held: it fires when the claim is free.
    Queues {
        why: String,
    },
    /// The hook is paused for it: hooks lead to each other, or it fires too often.
    Cut {
        why: String,
    },
}

/// Says whether a hook fires.
pub fn judge(board: &Board, hook: &Hook, occasion: &Occasion<'_>, now: Now) -> Verdict {
    if let Some(why) = unmoved(hook, occasion) {
        return Verdict::Unmoved { why };
    }
    // The router starts nothing that could lead back here, and its intake holds its own claim.
    if hook.action == Action::Route {
        return match &hook.paused {
            Some(reason) => Verdict::Held { why: format!("it is paused: {reason}") },
            None => Verdict::Fires,
        };
    }
    if let Some(why) = held(hook, occasion, now) {
        return Verdict::Held { why };
    }
    if occasion.depth() >= DEEPEST {
        return Verdict::Cut { why: format!("{DEEPEST} hooks led to each other") };
    }
    if let Some(holder) = claim_holder(board, hook, now) {
        return Verdict::Queues { why: holder };
    }
    if let Some(waiting) = hook.waiting.first() {
        return Verdict::Queues { why: format!("{} waits before it", waiting.cause) };
    }
    if hook.recent.iter().filter(|it| **it + SPAN_MS > now.at).count() >= MOST_IN_SPAN {
        return Verdict::Cut { why: format!("it fired {MOST_IN_SPAN} times within a minute") };
    }
    Verdict::Fires
}

/// Why it is nothing to this hook.
fn unmoved(hook: &Hook, occasion: &Occasion<'_>) -> Option<String> {
    if let Occasion::Message(message) = occasion {
        if let Some(why) = other_message(&hook.trigger, message) {
            return Some(why);
        }
        if message.sender == Actor::Regatta {
            return Some("what Regatta says fires no hook".into());
        }
        let on_mention = matches!(hook.trigger, Trigger::Message { mention: Some(_), .. });
        if let Some(word) = silenced(&message.text, on_mention) {
            return Some(format!("the message says {word}"));
        }
    }
    // What the daemon does by itself is what event hooks are for; what the hook's own agent does is not.
    hook.is_own(occasion.by()).then(|| format!("what {} does itself does not fire it", hook.identity()))
}

/// Why a message is not what is waited for.
fn other_message(trigger: &Trigger, message: &Message) -> Option<String> {
    let (channel, label, mention, prefix) = match trigger {
        Trigger::Message { channel, label, mention, prefix } => {
            (channel.as_ref(), label.as_ref(), mention.as_ref(), prefix.as_ref())
        }
        Trigger::Event { kind } if kind == "message.posted" => (None, None, None, None),
        Trigger::Event { .. } | Trigger::Free { .. } => return Some("it waits for no message".into()),
    };
    match channel {
        Some(want) if *want != message.channel => {
            return Some(format!("it is about {want}, and the message is in {}", message.channel));
        }
        None if bus::addressee(&message.channel).is_some() => {
            return Some("what is sent to one agent fires only a hook on that mailbox".into());
        }
        _ => {}
    }
    if let Some(want) = label.filter(|it| !message.labels.contains(it)) {
        return Some(format!("the message has no label {want}"));
    }
    if let Some(want) = mention.filter(|it| !message.mentions.contains(it)) {
        return Some(format!("the message does not mention @{want}"));
    }
    let want = prefix.filter(|it| !begins(&message.text, it))?;
    Some(format!("the message does not begin with {want}"))
}

/// Whether a text begins so, but for case and the spaces before.
fn begins(text: &str, prefix: &str) -> bool {
    let (mut text, prefix) = (text.trim_start().chars().flat_map(char::to_lowercase), prefix.trim_start());
    prefix.chars().flat_map(char::to_lowercase).all(|it| text.next() == Some(it))
}

/// The word by which a message asks that no hook fires, if it does: `!nohooks` for all, `!nochanhooks` for those on
/// channels, `!noathooks` for those on mentions.
fn silenced(text: &str, on_mention: bool) -> Option<&'static str> {
    let mut words = text.split_whitespace().map(|it| it.trim_end_matches(['.', ',', ';', ':', '?', ')']));
    let kind = if on_mention { "!noathooks" } else { "!nochanhooks" };
    words.find_map(|word| ["!nohooks", kind].into_iter().find(|it| word.eq_ignore_ascii_case(it)))
}

/// Why it does not fire though it was meant.
fn held(hook: &Hook, occasion: &Occasion<'_>, now: Now) -> Option<String> {
    if let Some(reason) = &hook.paused {
        return Some(format!("it is paused: {reason}"));
    }
    if let (Some(want), Occasion::Message(message)) = (&hook.when.require_label, occasion)
        && !message.labels.contains(want)
    {
        return Some(format!("the message has no label {want}, which is required"));
    }
    if let (Some(cooldown), Some(last)) = (hook.when.cooldown_ms, hook.recent.last())
        && last + cooldown > now.at
    {
        let left = crate::refusal::seconds(last + cooldown - now.at);
        return Some(format!("it fired just before and rests for another {left}"));
    }
    None
}

/// Says who holds the claim that the hook needs; nothing if it is free or the hook needs none.
pub(super) fn claim_holder(board: &Board, hook: &Hook, now: Now) -> Option<String> {
    let uri = hook.when.claim.as_ref()?;
    let holders = claim::in_the_way_on(board, std::slice::from_ref(uri), claim::Mode::Exclusive, None, now);
    let holder = holders.first()?;
    Some(format!("{} is held by {}", holder.uri, holder.owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_begins_whatever_its_case_and_the_spaces_before() {
        for (text, prefix, yes) in [
            ("!dev now", "!dev", true),
            ("  !DEV", "!dev", true),
            ("!de", "!dev", false),
            ("Über uns", "üBER", true),
            ("x !dev", "!dev", false),
        ] {
            assert_eq!(begins(text, prefix), yes, "{text:?} {prefix:?}");
        }
    }

    #[test]
    fn a_message_says_which_hooks_it_does_not_want() {
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
            assert_eq!(silenced(text, on_mention), word, "{text:?} {on_mention}");
        }
    }
}
