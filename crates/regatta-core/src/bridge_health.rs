//! Bridges whose credential does not work (it is missing, unreadable or refused by the service),
//! and settings of bridges that cannot be understood.
//!
//! A bridge connects one agent to one outside service, or is a webhook that receives events. A
//! broken bridge neither receives nor sends anything until a person has fixed its credential, so it
//! stays in the inbox until then. The stored reason is a text for people and never contains the
//! secret.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::command::CommandOutcome;
use crate::conversation::Service;
use crate::ids::{AgentName, BadName, Now};
use crate::provider_outage::{self, ProviderOutage};

/// A bridge. Written as `slack:claude`, `webhook:HOST`, or `setting:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bridge {
    /// One agent at one outside service.
    #[serde(rename = "At")]
    AgentService { service: Service, agent: AgentName },
    /// A webhook that receives events, by its host.
    Webhook { webhook: String },
    /// Every bridge that depends on a setting, by the name of its variable or its key in the
    /// settings file.
    Setting { setting: String },
}

/// The state of a bridge's credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeHealth {
    pub bridge: Bridge,
    /// The problem with the credential and its remedy, as a text for people. `None` if the
    /// credential works.
    #[serde(rename = "broken")]
    pub problem: Option<String>,
}

/// The largest stored reason, in characters.
const MAX_REASON_CHARS: usize = 500;

impl Bridge {
    /// Returns the name under which the bridge is parked.
    pub(crate) fn parked_name(&self) -> String {
        format!("bridge:{self}")
    }

    /// Returns the agent of the bridge, if it has one.
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Bridge::AgentService { agent, .. } => Some(agent),
            Bridge::Webhook { .. } | Bridge::Setting { .. } => None,
        }
    }

    /// Returns the bridge with this parked name, if the name is that of a bridge.
    pub(crate) fn from_parked_name(name: &str) -> Option<Bridge> {
        name.strip_prefix("bridge:")?.parse().ok()
    }
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bridge::AgentService { service, agent } => write!(f, "{service}:{agent}"),
            Bridge::Webhook { webhook } => write!(f, "webhook:{webhook}"),
            Bridge::Setting { setting } => write!(f, "setting:{setting}"),
        }
    }
}

impl FromStr for Bridge {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Bridge, BadName> {
        let (service, agent) = text.split_once(':').unwrap_or((text, ""));
        if service == "webhook" && !agent.is_empty() {
            return Ok(Bridge::Webhook {
                webhook: agent.to_owned(),
            });
        }
        if service == "setting" && !agent.is_empty() {
            return Ok(Bridge::Setting {
                setting: agent.to_owned(),
            });
        }
        let known = Service::ALL.into_iter().find(|item| item.name() == service);
        let service = known.ok_or_else(|| {
            BadName::new("a bridge", text, "write SERVICE:AGENT, as in slack:claude")
        })?;
        Ok(Bridge::AgentService {
            service,
            agent: AgentName::new(agent)?,
        })
    }
}

/// Returns every bridge whose credential does not work.
pub fn broken_bridges(board: &Board) -> impl Iterator<Item = (Bridge, &ProviderOutage)> {
    let lanes = board
        .parked
        .range("bridge:".to_owned()..)
        .take_while(|parked| parked.0.starts_with("bridge:"));
    lanes.filter_map(|(name, provider_outage)| {
        Some((Bridge::from_parked_name(name)?, &**provider_outage))
    })
}

/// Returns the problem with one bridge's credential, if there is one.
pub(crate) fn find_broken<'a>(board: &'a Board, bridge: &Bridge) -> Option<&'a ProviderOutage> {
    board
        .parked
        .get(&bridge.parked_name())
        .map(|provider_outage| &**provider_outage)
}

/// Records the state of one bridge's credential.
pub(crate) fn report(draft: &mut Draft, standing: BridgeHealth, now: Now) -> CommandOutcome {
    let lane = standing.bridge.parked_name();
    match standing.problem {
        Some(why) => provider_outage::park_bridge(
            draft,
            lane,
            &why.chars().take(MAX_REASON_CHARS).collect::<String>(),
            now,
        ),
        None => provider_outage::release_bridge(draft, lane),
    }
    CommandOutcome::Done
}

/// Records all bridges that exist when a daemon starts. Broken bridges that no longer exist leave
/// the inbox. A bridge whose service refused it earlier stays broken until the service accepts it.
/// Only for webhooks a good state is recorded here, because their secret is read only at the start.
/// If two webhooks have the same host, the broken one counts.
pub(crate) fn report_all(draft: &mut Draft, all: Vec<BridgeHealth>, now: Now) -> CommandOutcome {
    let mut standing: BTreeMap<Bridge, Option<String>> = BTreeMap::new();
    for bridge_health in all {
        let broken = standing.entry(bridge_health.bridge).or_default();
        *broken = broken.take().or(bridge_health.problem);
    }
    let gone: Vec<Bridge> = broken_bridges(draft.board())
        .map(|broken_bridge| broken_bridge.0)
        .filter(|bridge| !standing.contains_key(bridge))
        .collect();
    for bridge in gone {
        report(
            draft,
            BridgeHealth {
                bridge,
                problem: None,
            },
            now,
        );
    }
    for (bridge, broken) in standing {
        if broken.is_some() || matches!(bridge, Bridge::Webhook { .. }) {
            report(
                draft,
                BridgeHealth {
                    bridge,
                    problem: broken,
                },
                now,
            );
        }
    }
    CommandOutcome::Done
}
