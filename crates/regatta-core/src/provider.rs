//! Providers that take no work for now: their limit is used up, or somebody must sign in or mend a setting.
//!
//! What parks costs no attempt. A limit's end wakes it by itself; a missing sign-in waits for a person.

use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now};
use crate::inbox::Snooze;
use crate::refusal::{Refusal, seconds};
use crate::session::Class;

/// A provider, or an agent of none, that takes no new work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parked {
    /// The provider's name, `agent:NAME`, or `bridge:SERVICE:AGENT`.
    pub name: String,
    pub class: Class,
    pub reason: String,
    /// When it goes on by itself, on the fleet clock; never, when a person must act.
    pub until_at: Option<u64>,
    pub since_wall: u64,
    /// How often in a row, for limits that name no end.
    pub times: u32,
    /// It takes work again, but its last limit named no end, and none of its work has gone well since: `times` counts
    /// on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Until when somebody put it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
}

facts! {
    Stopped { parked: Parked }
    Freed { name: String, remembered: Option<u32> }
}

/// How long a limit is waited for that names no end: a minute, then twice as long each time until something has
/// gone well, at most half an hour.
const FIRST_MS: u64 = 60_000;
const LONGEST_MS: u64 = 30 * 60_000;

/// What an agent's work hangs on: its provider's limit is shared, its own settings are not.
pub fn lane_of(agent: &Agent, class: Class) -> String {
    match (&agent.provider, class) {
        (Some(provider), Class::RateLimit | Class::Overloaded) => provider.clone(),
        _ => format!("agent:{}", agent.name),
    }
}

/// What keeps an agent from taking work, if anything does.
pub fn parked<'a>(board: &'a Board, agent: &Agent) -> Option<&'a Parked> {
    let parked = |name: &str| board.parked.get(name).map(|it| &**it).filter(|it| !it.over);
    parked(&format!("agent:{}", agent.name)).or_else(|| agent.provider.as_deref().and_then(parked))
}

/// Why, in words.
pub fn describe(parked: &Parked, now: Now) -> String {
    match parked.until_at {
        Some(at) => format!(
            "{} is rate-limited for {} more: {}",
            parked.name,
            seconds(at.saturating_sub(now.at)),
            parked.reason
        ),
        None => {
            let agent = parked.name.strip_prefix("agent:").unwrap_or(&parked.name);
            format!("{agent} {}: {}; fix that, then: regatta resume {agent}", obstacle(parked.class), why(parked))
        }
    }
}

/// Returns what keeps an agent from work until a person acts.
pub(crate) fn obstacle(class: Class) -> &'static str {
    if class == Class::Auth { "is not signed in" } else { "cannot work as it is set up" }
}

/// Returns the first line of a parked agent's reason, to be followed by other words.
fn why(parked: &Parked) -> &str {
    parked.reason.lines().next().unwrap_or_default().trim_end_matches('.')
}

/// Describes several agents that wait for a person for one and the same reason.
pub fn describe_all(parked: &[&Parked]) -> String {
    let Some(first) = parked.first() else { return String::new() };
    let names: Vec<&str> =
        parked.iter().map(|parked| parked.name.strip_prefix("agent:").unwrap_or(&parked.name)).collect();
    let obstacle = if first.class == Class::Auth { "are not signed in" } else { "cannot work as they are set up" };
    let few = if names.len() > 3 { format!("{} agents", names.len()) } else { names.join(", ") };
    format!("{few} {obstacle}: {}; fix that, then: regatta resume {}", why(first), names.join(" "))
}

/// Parks what an agent's work hangs on.
pub(crate) fn park(draft: &mut Draft, agent: &Agent, class: Class, until_wall: Option<u64>, reason: &str, now: Now) {
    let name = lane_of(agent, class);
    let before = draft.board().parked.get(&name).cloned();
    let limit = matches!(class, Class::RateLimit | Class::Overloaded);
    let times = before.as_ref().map_or(0, |it| it.times) + u32::from(limit && until_wall.is_none());
    let before = before.filter(|it| !it.over);
    let until_at = match (class, until_wall) {
        (Class::RateLimit | Class::Overloaded, Some(wall)) => Some(now.at + wall.saturating_sub(now.wall).max(1_000)),
        (Class::RateLimit | Class::Overloaded, None) => {
            Some(now.at + (FIRST_MS << times.saturating_sub(1).min(8)).min(LONGEST_MS))
        }
        _ => None,
    };
    // Parked already, and no later end is known: it is the same limit.
    if let (Some(before), None, true) = (&before, until_wall, limit)
        && before.class == class
    {
        return;
    }
    // Several agents of one provider run into the same limit: the latest end counts, and is said once.
    if let Some(before) = before
        && before.class == class
        && (before.until_at.is_none() || before.until_at >= until_at)
    {
        return;
    }
    let parked = Parked {
        name,
        class,
        reason: reason.to_owned(),
        until_at,
        since_wall: now.wall,
        times,
        over: false,
        snoozed: None,
    };
    draft.record(Event::ProviderParked(Stopped { parked }));
}

/// Parks what its service does not let in until a person has mended its credential. The same reason is said once; a
/// new one takes its place, and it is as old as the first.
pub(crate) fn lock_out(draft: &mut Draft, name: String, reason: &str, now: Now) {
    let before = draft.board().parked.get(&name).cloned();
    if before.as_ref().is_some_and(|it| it.reason == reason) {
        return;
    }
    let parked = Parked {
        name,
        class: Class::Auth,
        reason: reason.to_owned(),
        until_at: None,
        since_wall: before.as_ref().map_or(now.wall, |it| it.since_wall),
        times: 0,
        over: false,
        snoozed: before.and_then(|it| it.snoozed),
    };
    draft.record(Event::ProviderParked(Stopped { parked }));
}

/// Its credential is taken again.
pub(crate) fn let_in(draft: &mut Draft, name: String) {
    if draft.board().parked.contains_key(&name) {
        draft.record(Event::ProviderFreed(Freed { name, remembered: None }));
    }
}

/// Lets a provider go on whose limit is over.
pub fn expire(draft: &mut Draft, name: &str, now: Now) {
    let over = |it: &&std::sync::Arc<Parked>| it.until_at.is_some_and(|at| at <= now.at);
    if let Some(parked) = draft.board().parked.get(name).filter(over) {
        let remembered = Some(parked.times).filter(|it| *it > 0);
        draft.record(Event::ProviderFreed(Freed { name: name.to_owned(), remembered }));
    }
}

/// Forgets the limits that named no end: the agent's work has gone well since.
pub(crate) fn worked(draft: &mut Draft, agent: &AgentName) {
    let Some(agent) = draft.board().agents.get(agent) else { return };
    let name = lane_of(agent, Class::RateLimit);
    if draft.board().parked.get(&name).is_some_and(|it| it.over) {
        draft.record(Event::ProviderFreed(Freed { name, remembered: None }));
    }
}

/// Forgets what kept one agent, and not its whole provider, from working: it is started anew.
pub(crate) fn forgive(draft: &mut Draft, agent: &AgentName) {
    let name = format!("agent:{agent}");
    if draft.board().parked.contains_key(&name) {
        draft.record(Event::ProviderFreed(Freed { name, remembered: None }));
    }
}

/// Lets an agent, and the provider it hangs on, go on because a person says so.
pub fn resume(draft: &mut Draft, name: &AgentName) -> Result<(), Refusal> {
    let board = draft.board();
    let is_provider = !board.agents.contains_key(name) && board.parked.contains_key(name.as_str());
    let lanes = if is_provider {
        [Some(name.to_string()), None]
    } else {
        [Some(format!("agent:{name}")), crate::agent::find(board, name)?.provider.clone()]
    };
    for lane in lanes.into_iter().flatten() {
        if draft.board().parked.contains_key(&lane) {
            draft.record(Event::ProviderFreed(Freed { name: lane, remembered: None }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_the_same_fault_are_described_together() {
        let parked = |name: &str, class| Parked {
            name: format!("agent:{name}"),
            class,
            reason: "no model opus-5.".into(),
            until_at: None,
            since_wall: 0,
            times: 0,
            over: false,
            snoozed: None,
        };
        let now = Now { at: 0, wall: 0 };
        let one = parked("amy", Class::BadConfig);
        assert_eq!(
            describe(&one, now),
            "amy cannot work as it is set up: no model opus-5; fix that, then: regatta resume amy"
        );
        assert!(describe(&parked("amy", Class::Auth), now).starts_with("amy is not signed in: no model"));
        let names = ["amy", "bob", "cid", "dan"];
        let all: Vec<Parked> = names.iter().map(|name| parked(name, Class::BadConfig)).collect();
        let all: Vec<&Parked> = all.iter().collect();
        assert_eq!(
            describe_all(&all[..2]),
            "amy, bob cannot work as they are set up: no model opus-5; fix that, then: regatta resume amy bob"
        );
        assert!(describe_all(&all).starts_with("4 agents cannot work as they are set up: no model"));
        assert!(describe_all(&all).ends_with("regatta resume amy bob cid dan"));
    }
}
