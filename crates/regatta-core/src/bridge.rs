//! Bridges whose credential does not work: missing, unreadable, or refused by the service; and settings of bridges
//! that cannot be understood.
//!
//! A bridge is one agent at one outside service, or a webhook that is told what happens. Nobody hears or answers there
//! until a person has mended its credential, so it is in the inbox as long as that lasts. What is kept are words for
//! people, never the secret.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::command::Outcome;
use crate::conversation::Service;
use crate::ids::{AgentName, BadName, Now};
use crate::provider::{self, Parked};

/// A way out. Written as `slack:claude`, `webhook:HOST`, or `setting:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bridge {
    /// One agent at one outside service.
    At { service: Service, agent: AgentName },
    /// Whoever is told what happens, by its host.
    Webhook { webhook: String },
    /// Every bridge that depends on a setting, by the name of its variable or of its place in the settings file.
    Setting { setting: String },
}

/// How a bridge's credential is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub bridge: Bridge,
    /// What is wrong with it, and what to do, in words for people.
    pub broken: Option<String>,
}

/// The longest reason that is kept, in characters.
const LONGEST: usize = 500;

impl Bridge {
    /// The name under which it is parked.
    pub(crate) fn lane(&self) -> String {
        format!("bridge:{self}")
    }

    /// The agent that is there, if one is.
    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Bridge::At { agent, .. } => Some(agent),
            Bridge::Webhook { .. } | Bridge::Setting { .. } => None,
        }
    }

    /// The bridge that is parked under a name, if it is one.
    pub(crate) fn of_lane(name: &str) -> Option<Bridge> {
        name.strip_prefix("bridge:")?.parse().ok()
    }
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bridge::At { service, agent } => write!(f, "{service}:{agent}"),
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
            return Ok(Bridge::Webhook { webhook: agent.to_owned() });
        }
        if service == "setting" && !agent.is_empty() {
            return Ok(Bridge::Setting { setting: agent.to_owned() });
        }
        let known = Service::ALL.into_iter().find(|it| it.name() == service);
        let service = known.ok_or_else(|| BadName::new("a bridge", text, "it is SERVICE:AGENT, as in slack:claude"))?;
        Ok(Bridge::At { service, agent: AgentName::new(agent)? })
    }
}

/// Every bridge whose credential does not work.
pub fn broken(board: &Board) -> impl Iterator<Item = (Bridge, &Parked)> {
    let lanes = board.parked.range("bridge:".to_owned()..).take_while(|it| it.0.starts_with("bridge:"));
    lanes.filter_map(|(name, it)| Some((Bridge::of_lane(name)?, &**it)))
}

/// What is wrong with one bridge's credential, if anything is.
pub(crate) fn find<'a>(board: &'a Board, bridge: &Bridge) -> Option<&'a Parked> {
    board.parked.get(&bridge.lane()).map(|it| &**it)
}

/// Takes down how one bridge's credential is.
pub(crate) fn report(draft: &mut Draft, standing: Standing, now: Now) -> Outcome {
    let lane = standing.bridge.lane();
    match standing.broken {
        Some(why) => provider::lock_out(draft, lane, &why.chars().take(LONGEST).collect::<String>(), now),
        None => provider::let_in(draft, lane),
    }
    Outcome::Done
}

/// Takes down which bridges there are at all, when a daemon starts: what is no longer wanted needs nobody. One that
/// was refused before stays so until its service has taken it; a webhook's secret is only read then. Of two webhooks at
/// one host the one that lacks something counts.
pub(crate) fn report_all(draft: &mut Draft, all: Vec<Standing>, now: Now) -> Outcome {
    let mut standing: BTreeMap<Bridge, Option<String>> = BTreeMap::new();
    for it in all {
        let broken = standing.entry(it.bridge).or_default();
        *broken = broken.take().or(it.broken);
    }
    let gone: Vec<Bridge> = broken(draft.board()).map(|it| it.0).filter(|it| !standing.contains_key(it)).collect();
    for bridge in gone {
        report(draft, Standing { bridge, broken: None }, now);
    }
    for (bridge, broken) in standing {
        if broken.is_some() || matches!(bridge, Bridge::Webhook { .. }) {
            report(draft, Standing { bridge, broken }, now);
        }
    }
    Outcome::Done
}
