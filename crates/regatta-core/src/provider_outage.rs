//! Parks providers and agents: a parked provider or agent gets no work for a time. The reason can
//! be a used-up limit of the provider, a missing sign-in, or a wrong setting.
//!
//! A task that could not be worked on for such a reason has not failed. A parked provider resumes
//! by itself when its limit ends; a missing sign-in waits for a person.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::agent_protocol::FailureClass;
use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, Now};
use crate::inbox::Snooze;
use crate::refusal::{Refusal, seconds};

/// A record that a provider, an agent or a bridge (a connection to a service such as Slack) gets no
/// work, with the reason and, if known, the time at which it gets work again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderOutage {
    /// Name of the provider, agent or bridge that gets no work: a provider's name, `agent:NAME`, or
    /// `bridge:SERVICE:AGENT`.
    pub name: String,
    pub class: FailureClass,
    pub reason: String,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the provider
    /// gets work again; `None` if a person must act first.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
    /// Number of limits in a row whose end the provider did not report.
    pub times: u32,
    /// Set if the provider gets work again after a limit without a known end, and no work has
    /// succeeded since. The record is kept only so that `times` continues to count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "over")]
    pub has_resumed: bool,
    /// Time for which a person has hidden the inbox item (entry in the list of things that need a
    /// person) about this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
}

facts! {
    ProviderParked { parked: ProviderOutage }
    ProviderFreed { name: String, remembered: Option<u32> }
}

/// Time for which a provider gets no work after its first report of a limit without a known end:
/// one minute. The time doubles with each further limit until some work succeeds, up to
/// [`MAX_DELAY_MS`].
const FIRST_DELAY_MS: u64 = 60_000;
/// Maximum time for which a provider gets no work after a limit without a known end.
const MAX_DELAY_MS: u64 = 30 * 60_000;

/// Returns the name under which a problem of an agent is recorded. A limit is recorded for its
/// provider, because all agents of a provider share the limit; other problems are recorded for the
/// agent.
pub fn parked_name(agent: &Agent, class: FailureClass) -> String {
    match (&agent.provider, class) {
        (Some(provider), FailureClass::RateLimit | FailureClass::Overloaded) => provider.clone(),
        _ => format!("agent:{}", agent.name),
    }
}

/// Returns the record of the problem because of which an agent is parked (gets no work), if there
/// is one. The problem can be one of the agent or of its provider.
pub fn find_parked<'a>(board: &'a Board, agent: &Agent) -> Option<&'a ProviderOutage> {
    let parked = |name: &str| {
        board
            .parked
            .get(name)
            .map(|outage| &**outage)
            .filter(|outage| !outage.has_resumed)
    };
    parked(&format!("agent:{}", agent.name)).or_else(|| agent.provider.as_deref().and_then(parked))
}

/// Describes in a sentence why a provider or agent gets no work, with the remaining time or the
/// command that resumes it.
pub fn describe(parked: &ProviderOutage, now: Now) -> String {
    match parked.deadline_fleet_ms {
        Some(deadline_fleet_ms) => format!(
            "{} is rate-limited for {} more: {}",
            parked.name,
            seconds(deadline_fleet_ms.saturating_sub(now.fleet_ms)),
            parked.reason
        ),
        None => {
            let agent = parked.name.strip_prefix("agent:").unwrap_or(&parked.name);
            format!(
                "{agent} {}: {}; {}, then: regatta resume {agent}",
                describe_class(parked.class),
                short_reason(parked),
                describe_fix(parked.class)
            )
        }
    }
}

/// Describes a problem that a person must fix, as the end of a sentence that begins with the
/// agent's name.
pub(crate) fn describe_class(class: FailureClass) -> &'static str {
    if class == FailureClass::Auth {
        "is not signed in"
    } else {
        "cannot work as it is set up"
    }
}

/// Describes what a person does before the agent gets work again. `regatta provider` prints the
/// command that signs in each program.
fn describe_fix(class: FailureClass) -> &'static str {
    if class == FailureClass::Auth {
        "sign in as regatta provider says"
    } else {
        "fix that"
    }
}

/// Returns the first line of the reason why a provider or agent is parked (gets no work), without a
/// final period.
pub(crate) fn short_reason(parked: &ProviderOutage) -> &str {
    parked
        .reason
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
}

/// Describes in one sentence several agents that wait for a person for the same reason.
pub fn describe_all(parked: &[&ProviderOutage]) -> String {
    let Some(first) = parked.first() else {
        return String::new();
    };
    let names: Vec<&str> = parked
        .iter()
        .map(|parked| parked.name.strip_prefix("agent:").unwrap_or(&parked.name))
        .collect();
    let obstacle = if first.class == FailureClass::Auth {
        "are not signed in"
    } else {
        "cannot work as they are set up"
    };
    let named = if names.len() > 3 {
        format!("{} agents", names.len())
    } else {
        names.join(", ")
    };
    format!(
        "{named} {obstacle}: {}; {}, then: regatta resume {}",
        short_reason(first),
        describe_fix(first.class),
        names.join(" ")
    )
}

/// Parks an agent (gives it no work) because of a problem, or parks all agents of its provider if
/// the provider's limit is used up. `until_unix_ms` is the end of the limit, if the provider
/// reported one.
pub(crate) fn park(
    draft: &mut Draft,
    agent: &Agent,
    class: FailureClass,
    until_unix_ms: Option<u64>,
    reason: &str,
    now: Now,
) {
    let name = parked_name(agent, class);
    let before = draft.board().parked.get(&name).cloned();
    let is_limit = matches!(class, FailureClass::RateLimit | FailureClass::Overloaded);
    let times = before.as_ref().map_or(0, |outage| outage.times)
        + u32::from(is_limit && until_unix_ms.is_none());
    let before = before.filter(|outage| !outage.has_resumed);
    // A problem that a person must fix does not end by itself. A limit that ends by itself must not
    // replace it.
    if is_limit
        && before
            .as_ref()
            .is_some_and(|outage| outage.deadline_fleet_ms.is_none())
    {
        return;
    }
    let deadline_fleet_ms = match (class, until_unix_ms) {
        (FailureClass::RateLimit | FailureClass::Overloaded, Some(unix_ms)) => {
            Some(now.fleet_ms + unix_ms.saturating_sub(now.unix_ms).max(1_000))
        }
        (FailureClass::RateLimit | FailureClass::Overloaded, None) => Some(
            now.fleet_ms + (FIRST_DELAY_MS << times.saturating_sub(1).min(8)).min(MAX_DELAY_MS),
        ),
        _ => None,
    };
    // The provider already gets no work because of a limit, and this report names no end. The
    // report is about the same limit, so nothing changes.
    if let (Some(before), None, true) = (&before, until_unix_ms, is_limit)
        && before.class == class
    {
        return;
    }
    // Several agents of one provider report the same limit. A report is ignored unless it names a
    // later end than the record.
    if let Some(before) = before
        && before.class == class
        && (before.deadline_fleet_ms.is_none() || before.deadline_fleet_ms >= deadline_fleet_ms)
    {
        return;
    }
    let parked = ProviderOutage {
        name,
        class,
        reason: reason.to_owned(),
        deadline_fleet_ms,
        since_unix_ms: now.unix_ms,
        times,
        has_resumed: false,
        snoozed: None,
    };
    draft.record(Event::ProviderParked(ProviderParked { parked }));
}

/// Records that a service (such as Slack) rejects the credential of a bridge, until a person fixes
/// it. A repeated reason is ignored. A new reason replaces the old one but keeps the time at which
/// the problem began.
pub(crate) fn park_bridge(draft: &mut Draft, name: String, reason: &str, now: Now) {
    let before = draft.board().parked.get(&name).cloned();
    if before
        .as_ref()
        .is_some_and(|outage| outage.reason == reason)
    {
        return;
    }
    let parked = ProviderOutage {
        name,
        class: FailureClass::Auth,
        reason: reason.to_owned(),
        deadline_fleet_ms: None,
        since_unix_ms: before
            .as_ref()
            .map_or(now.unix_ms, |outage| outage.since_unix_ms),
        times: 0,
        has_resumed: false,
        snoozed: before.and_then(|outage| outage.snoozed),
    };
    draft.record(Event::ProviderParked(ProviderParked { parked }));
}

/// Removes the record of a bridge (a connection to a service such as Slack) whose credential works
/// again.
pub(crate) fn release_bridge(draft: &mut Draft, name: String) {
    if draft.board().parked.contains_key(&name) {
        draft.record(Event::ProviderFreed(ProviderFreed {
            name,
            remembered: None,
        }));
    }
}

/// Gives the parked provider or agent `name` work again if its limit has ended.
pub fn expire(draft: &mut Draft, name: &str, now: Now) {
    let has_ended = |outage: &&Arc<ProviderOutage>| {
        outage
            .deadline_fleet_ms
            .is_some_and(|deadline| deadline <= now.fleet_ms)
    };
    if let Some(parked) = draft.board().parked.get(name).filter(has_ended) {
        let remembered = Some(parked.times).filter(|times| *times > 0);
        draft.record(Event::ProviderFreed(ProviderFreed {
            name: name.to_owned(),
            remembered,
        }));
    }
}

/// Handles the success of an agent's work. Forgets how often its provider reported limits without a
/// known end, so that the delay after the next such limit is short again.
pub(crate) fn on_work_succeeded(draft: &mut Draft, agent: &AgentName) {
    let Some(agent) = draft.board().agents.get(agent) else {
        return;
    };
    let name = parked_name(agent, FailureClass::RateLimit);
    if draft
        .board()
        .parked
        .get(&name)
        .is_some_and(|outage| outage.has_resumed)
    {
        draft.record(Event::ProviderFreed(ProviderFreed {
            name,
            remembered: None,
        }));
    }
}

/// Forgets that an agent was parked (got no work) because of a problem, because the agent's program
/// is being started again. A recorded problem of the agent's provider is kept.
pub(crate) fn clear_own_outage(draft: &mut Draft, agent: &AgentName) {
    let name = format!("agent:{agent}");
    if draft.board().parked.contains_key(&name) {
        draft.record(Event::ProviderFreed(ProviderFreed {
            name,
            remembered: None,
        }));
    }
}

/// Gives an agent and its provider work again, because a person asked for it. `name` can also be a
/// provider.
pub fn resume(draft: &mut Draft, name: &AgentName) -> Result<(), Refusal> {
    let board = draft.board();
    let is_provider = !board.agents.contains_key(name) && board.parked.contains_key(name.as_str());
    let names = if is_provider {
        [Some(name.to_string()), None]
    } else {
        [
            Some(format!("agent:{name}")),
            crate::agent::find(board, name)?.provider.clone(),
        ]
    };
    for name in names.into_iter().flatten() {
        if draft.board().parked.contains_key(&name) {
            draft.record(Event::ProviderFreed(ProviderFreed {
                name,
                remembered: None,
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_the_same_fault_are_described_together() {
        let parked = |name: &str, class| ProviderOutage {
            name: format!("agent:{name}"),
            class,
            reason: "no model opus-5.".into(),
            deadline_fleet_ms: None,
            since_unix_ms: 0,
            times: 0,
            has_resumed: false,
            snoozed: None,
        };
        let now = Now {
            fleet_ms: 0,
            unix_ms: 0,
        };
        let one = parked("amy", FailureClass::BadConfig);
        assert_eq!(
            describe(&one, now),
            "amy cannot work as it is set up: no model opus-5; fix that, then: regatta resume amy"
        );
        assert_eq!(
            describe(&parked("amy", FailureClass::Auth), now),
            "amy is not signed in: no model opus-5; sign in as regatta provider says, then: regatta \
             resume amy"
        );
        let names = ["amy", "bob", "cid", "dan"];
        let all: Vec<ProviderOutage> = names
            .iter()
            .map(|name| parked(name, FailureClass::BadConfig))
            .collect();
        let all: Vec<&ProviderOutage> = all.iter().collect();
        assert_eq!(
            describe_all(&all[..2]),
            "amy, bob cannot work as they are set up: no model opus-5; fix that, then: regatta \
            resume amy bob"
        );
        assert!(
            describe_all(&all).starts_with("4 agents cannot work as they are set up: no model")
        );
        assert!(describe_all(&all).ends_with("regatta resume amy bob cid dan"));
    }
}
