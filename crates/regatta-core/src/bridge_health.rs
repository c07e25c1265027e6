//! Records which bridges (connections to chat services and other outside services) cannot work,
//! because a credential is missing, unreadable or refused by the service, or because a setting
//! cannot be understood.
//!
//! A bridge connects one agent to one outside service, or is a webhook to which Regatta sends
//! events. A broken bridge neither receives nor sends anything until a person has fixed its
//! credential, so it stays in the inbox until then. The stored reason is a text for people and
//! never contains the secret.
//!
//! Not here: the connections themselves, which are in `regatta-bridges`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::command::CommandOutcome;
use crate::conversation::Service;
use crate::ids::{AgentName, BadName, Now};
use crate::provider_outage::{self, ProviderOutage};

/// A connection to an outside service, or a setting that such connections need. Written as
/// `slack:claude`, `webhook:HOST` or `setting:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bridge {
    /// The connection of one agent to one outside service.
    #[serde(rename = "At")]
    AgentService { service: Service, agent: AgentName },
    /// A webhook to which Regatta sends events, named by its host.
    Webhook { webhook: String },
    /// A setting on which bridges depend, named by its environment variable or its key in the
    /// settings file.
    Setting { setting: String },
}

/// The state of a bridge: it works, or its credential or a setting has a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeHealth {
    pub bridge: Bridge,
    /// A text for people that says what is wrong with the credential and how to fix it. `None` if
    /// the credential works.
    #[serde(rename = "broken")]
    pub problem: Option<String>,
}

/// Maximum length of the text about a bridge's problem that the board stores, in characters.
const MAX_REASON_CHARS: usize = 500;

impl Bridge {
    /// Returns the name of this bridge in [`Board::parked`], the list of everything that cannot
    /// work at present.
    pub(crate) fn parked_name(&self) -> String {
        format!("bridge:{self}")
    }

    /// Returns the bridge's agent, or `None` for a webhook or a setting.
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Bridge::AgentService { agent, .. } => Some(agent),
            Bridge::Webhook { .. } | Bridge::Setting { .. } => None,
        }
    }

    /// Returns the bridge for a name in [`Board::parked`], or `None` if the name is not a bridge's.
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
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        if kind == "webhook" && !name.is_empty() {
            return Ok(Bridge::Webhook {
                webhook: name.to_owned(),
            });
        }
        if kind == "setting" && !name.is_empty() {
            return Ok(Bridge::Setting {
                setting: name.to_owned(),
            });
        }
        let known = Service::ALL.into_iter().find(|known| known.name() == kind);
        let service = known.ok_or_else(|| {
            BadName::new("a bridge", text, "write SERVICE:AGENT, as in slack:claude")
        })?;
        Ok(Bridge::AgentService {
            service,
            agent: AgentName::new(name)?,
        })
    }
}

/// Returns every bridge (a connection to an outside service) whose credential does not work, with
/// the problem.
pub fn broken_bridges(board: &Board) -> impl Iterator<Item = (Bridge, &ProviderOutage)> {
    let parked = board
        .parked
        .range("bridge:".to_owned()..)
        .take_while(|(name, _)| name.starts_with("bridge:"));
    parked.filter_map(|(name, outage)| {
        let bridge = Bridge::from_parked_name(name)?;
        Some((bridge, &**outage))
    })
}

/// Returns the problem with one bridge's credential, if there is one.
pub(crate) fn find_broken<'a>(board: &'a Board, bridge: &Bridge) -> Option<&'a ProviderOutage> {
    board
        .parked
        .get(&bridge.parked_name())
        .map(|outage| &**outage)
}

/// Records whether one bridge's credential works.
pub(crate) fn report(draft: &mut Draft, health: BridgeHealth, now: Now) -> CommandOutcome {
    let parked_name = health.bridge.parked_name();
    match health.problem {
        Some(problem) => provider_outage::park_bridge(
            draft,
            parked_name,
            &problem.chars().take(MAX_REASON_CHARS).collect::<String>(),
            now,
        ),
        None => provider_outage::release_bridge(draft, parked_name),
    }
    CommandOutcome::Done
}

/// Records the state of all bridges when the daemon starts.
///
/// Bridges that no longer exist are removed from the inbox. If a service refused a credential
/// earlier, its bridge stays in the inbox until the service accepts the credential, because the
/// start of the daemon does not ask the service. A webhook without a problem leaves the inbox,
/// because its secret is read only at the start. If two webhooks have the same host, a problem of
/// either webhook is recorded.
pub(crate) fn report_all(draft: &mut Draft, all: Vec<BridgeHealth>, now: Now) -> CommandOutcome {
    let mut problems: BTreeMap<Bridge, Option<String>> = BTreeMap::new();
    for health in all {
        let problem = problems.entry(health.bridge).or_default();
        *problem = problem.take().or(health.problem);
    }
    let vanished: Vec<Bridge> = broken_bridges(draft.board())
        .map(|(bridge, _)| bridge)
        .filter(|bridge| !problems.contains_key(bridge))
        .collect();
    for bridge in vanished {
        report(
            draft,
            BridgeHealth {
                bridge,
                problem: None,
            },
            now,
        );
    }
    for (bridge, problem) in problems {
        if problem.is_some() || matches!(bridge, Bridge::Webhook { .. }) {
            report(draft, BridgeHealth { bridge, problem }, now);
        }
    }
    CommandOutcome::Done
}
