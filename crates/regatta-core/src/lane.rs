//! Lanes: the owners that launch members of a team. A member runs on the team's primary lane or on
//! a secondary lane of its own.
//!
//! [`plan`] decides for each member which owner may launch it. The answer is policy, and policy is
//! data ([`Lanes`], `[lanes]` of `regatta.toml`). Models, effort and similar settings do not matter
//! here: members that differ in them still share a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::MemberName;
use crate::provider_name;

/// Maximum number of members of a team besides its lead.
pub const MOST_MEMBERS: usize = 100;

/// The kind of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The team's lane: the lead, and the members that may be launched with it.
    Primary,
    /// A member's own lane.
    Secondary,
}

impl Kind {
    /// Returns its name in the API.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Primary => "primary",
            Kind::Secondary => "secondary",
        }
    }
}

/// The teams that a provider may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Leads {
    /// Any team.
    Any,
    /// Only teams in which all members have this provider.
    #[default]
    Pure,
}

/// The owner of a runtime's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each lane has its own.
    #[default]
    Lane,
    /// A team has one store, so only one lane of the team may use it.
    Team,
}

/// The policy for one provider. In `regatta.toml` the name of a lane is enough:
/// `goose = "secondary"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(from = "Written"))]
pub struct Rule {
    /// The kind of lane for its members.
    pub lane: Kind,
    /// The teams that it may lead.
    pub leads: Leads,
    /// The owner of its runtime's store.
    pub store: Scope,
}

impl Rule {
    /// The rule of a provider that the primary lane can launch.
    pub const PRIMARY: Rule = Rule { lane: Kind::Primary, leads: Leads::Any, store: Scope::Lane };
    /// The rule of a provider whose members need lanes of their own.
    pub const SECONDARY: Rule = Rule { lane: Kind::Secondary, leads: Leads::Pure, store: Scope::Lane };
}

/// A rule in the form in which a person may write it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(untagged))]
enum Written {
    Lane(Kind),
    Rule(RuleTable),
}

/// A rule that is written as a table.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RuleTable {
    lane: Kind,
    #[serde(default)]
    leads: Option<Leads>,
    #[serde(default)]
    store: Scope,
}

impl From<Written> for Rule {
    fn from(written: Written) -> Rule {
        let table = match written {
            Written::Lane(lane) => RuleTable { lane, leads: None, store: Scope::Lane },
            Written::Rule(table) => table,
        };
        let usual = if table.lane == Kind::Primary { Leads::Any } else { Leads::Pure };
        Rule { lane: table.lane, leads: table.leads.unwrap_or(usual), store: table.store }
    }
}

impl<'de> Deserialize<'de> for Rule {
    /// Reads a word or a table. An untagged enum would not name the wrong field in its error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        struct WordOrTable;
        impl<'de> Visitor<'de> for WordOrTable {
            type Value = Written;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"primary\", \"secondary\" or a table with lane, leads and store")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Written, E> {
                Kind::deserialize(word.into_deserializer()).map(Written::Lane)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                RuleTable::deserialize(MapAccessDeserializer::new(map)).map(Written::Rule)
            }
        }
        deserializer.deserialize_any(WordOrTable).map(Rule::from)
    }
}

/// The section `[lanes]` of `regatta.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Lanes {
    /// Rules per provider, in addition to the built-in ones.
    pub policy: BTreeMap<String, Rule>,
    /// Number of secondary lanes that attach at once.
    pub concurrency: u32,
    /// Other providers to which a member may move if its own provider accepts no work at launch.
    pub failover: BTreeMap<String, Vec<String>>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { policy: BTreeMap::new(), concurrency: 8, failover: BTreeMap::new() }
    }
}

impl Lanes {
    /// Returns the rule for a provider. A provider that is unknown gets a lane of its own, because
    /// nothing shows that the primary lane could launch it.
    pub fn rule(&self, provider: &str) -> Rule {
        if let Some(rule) = self.own_rule(provider) {
            return *rule;
        }
        match provider_name::canonical(provider) {
            "anthropic" | "codex" | "gemini" | "scripted" => Rule::PRIMARY,
            _ => Rule::SECONDARY,
        }
    }

    /// Returns whether the policy names this provider, or this version knows it.
    pub fn is_known(&self, provider: &str) -> bool {
        self.own_rule(provider).is_some() || provider_name::is_known(provider)
    }

    /// Returns the canonical names of the providers to which members of `provider` may move.
    pub fn failover_of<'a>(&'a self, provider: &str) -> impl Iterator<Item = &'a str> {
        let exact = self.failover.get(provider);
        let listed = exact.or_else(|| {
            self.failover.iter().find(|(name, _)| provider_name::is_same(name, provider)).map(|(_, others)| others)
        });
        listed.into_iter().flatten().map(|name| provider_name::canonical(name))
    }

    /// Returns the rule that the policy gives a provider under any of its names.
    fn own_rule(&self, provider: &str) -> Option<&Rule> {
        self.policy.get(provider).or_else(|| {
            self.policy.iter().find(|(name, _)| provider_name::is_same(name, provider)).map(|(_, rule)| rule)
        })
    }

    /// Returns whether the primary lane may launch a provider's members, whichever provider leads.
    pub fn is_primary(&self, provider: &str) -> bool {
        self.rule(provider).lane == Kind::Primary
    }
}

/// A member or lead of a team, as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub name: MemberName,
    pub provider: String,
}

/// The kind of a team, by its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// All members are on the primary lane.
    Primary,
    /// All members have one provider that needs its own owner, so that provider owns the primary
    /// lane.
    Pure,
    /// Some members have lanes of their own.
    Mixed,
}

/// A lane of a team, with the members that it launches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lane {
    /// `primary`, or `opencode:tom`.
    pub id: String,
    pub kind: Kind,
    /// The provider that owns it.
    pub owner: String,
    /// Members that it launches; exactly one on a secondary lane.
    pub members: Vec<MemberName>,
}

/// The name of the primary lane.
pub const PRIMARY: &str = "primary";

/// Returns the name of a member's own lane.
pub fn secondary_id(provider: &str, name: &MemberName) -> String {
    format!("{provider}:{name}")
}

/// The lanes of a team: the primary lane first, then the members' own lanes in the order of the
/// roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub mix: Mix,
    pub lanes: Vec<Lane>,
}

impl Plan {
    /// Returns the lane of a member.
    pub fn lane_of(&self, name: &MemberName) -> Option<&Lane> {
        self.lanes.iter().find(|it| it.members.contains(name))
    }

    /// Returns the members that start with the primary lane, the lead first. Its launcher knows no
    /// others.
    pub fn bootstrap(&self) -> &[MemberName] {
        self.lanes.first().map_or(&[], |it| &it.members)
    }
}

/// A problem that makes a roster invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// Two members have the same name.
    SameName(MemberName),
    TooMany(usize),
    NoProvider(MemberName),
    /// The lead's provider can lead only members of the same provider.
    CannotLead {
        lead: MemberName,
        provider: String,
        other: MemberName,
        others: String,
    },
    /// Several members use a runtime that has one store per team.
    OneStore {
        provider: String,
        members: Vec<MemberName>,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::SameName(name) => write!(f, "two members of the team are called {name}"),
            Objection::TooMany(count) => write!(f, "a team has at most {MOST_MEMBERS} members, not {count}"),
            Objection::NoProvider(name) => write!(f, "{name} has no provider"),
            Objection::CannotLead { lead, provider, other, others } => write!(
                f,
                "{provider} cannot lead a mixed team: {lead} would own the team's primary lane, and {other} is {others}"
            ),
            Objection::OneStore { provider, members } => {
                let names: Vec<&str> = members.iter().map(MemberName::as_str).collect();
                write!(
                    f,
                    "{provider} keeps one store for a whole team, so a mixed team has at most one {provider} member, \
                     not {}: {}",
                    names.len(),
                    names.join(", ")
                )
            }
        }
    }
}

impl Objection {
    /// Returns the change that solves the problem.
    pub fn hint(&self) -> String {
        match self {
            Objection::SameName(name) => format!("rename one {name}; the lead's name counts, too"),
            Objection::TooMany(_) => "make two teams".to_owned(),
            Objection::NoProvider(name) => format!("set it for {name} or for the lead: provider = \"codex\""),
            Objection::CannotLead { provider, .. } => format!(
                "let another provider lead, or make all of them {provider}; if this {provider} can own a mixed team, say so: \
                 [lanes.policy] {provider} = {{ lane = \"secondary\", leads = \"any\" }}"
            ),
            Objection::OneStore { provider, .. } => format!(
                "keep one of them; if its lanes can have a store each, say so: [lanes.policy] {provider} = {{ lane = \
                 \"secondary\", store = \"lane\" }}"
            ),
        }
    }
}

/// Plans a team's lanes, or returns all problems of the roster.
pub fn plan(lead: &Seat, members: &[Seat], lanes: &Lanes) -> Result<Plan, Vec<Objection>> {
    let mut objections = Vec::new();
    if members.len() > MOST_MEMBERS {
        objections.push(Objection::TooMany(members.len()));
    }
    let mut names = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for seat in std::iter::once(lead).chain(members) {
        if !names.insert(&seat.name) && twice.insert(&seat.name) {
            objections.push(Objection::SameName(seat.name.clone()));
        }
        if seat.provider.trim().is_empty() {
            objections.push(Objection::NoProvider(seat.name.clone()));
        }
    }
    let own = lanes.rule(&lead.provider);
    // If all members have one provider that needs its own owner, that owner owns the primary lane
    // alone.
    let pure = own.lane == Kind::Secondary && members.iter().all(|it| it.provider == lead.provider);
    let aside = |it: &&Seat| !pure && lanes.rule(&it.provider).lane == Kind::Secondary;
    let named = !lead.provider.trim().is_empty();
    if let (false, Leads::Pure, true) = (pure, own.leads, named)
        && let Some(other) = members.iter().find(|it| it.provider != lead.provider)
    {
        objections.push(Objection::CannotLead {
            lead: lead.name.clone(),
            provider: lead.provider.clone(),
            other: other.name.clone(),
            others: other.provider.clone(),
        });
    }
    let mut stores: BTreeMap<&str, Vec<MemberName>> = BTreeMap::new();
    for seat in std::iter::once(lead).filter(|_| !pure).chain(members.iter().filter(aside)) {
        let rule = lanes.rule(&seat.provider);
        if rule.store == Scope::Team && rule.lane == Kind::Secondary {
            stores.entry(&seat.provider).or_default().push(seat.name.clone());
        }
    }
    for (provider, members) in stores.into_iter().filter(|it| it.1.len() > 1) {
        objections.push(Objection::OneStore { provider: provider.to_owned(), members });
    }
    if !objections.is_empty() {
        return Err(objections);
    }
    let together = std::iter::once(lead).chain(members.iter().filter(|it| !aside(it)));
    let mut planned = vec![Lane {
        id: PRIMARY.to_owned(),
        kind: Kind::Primary,
        owner: lead.provider.clone(),
        members: together.map(|it| it.name.clone()).collect(),
    }];
    planned.extend(members.iter().filter(aside).map(|it| Lane {
        id: secondary_id(&it.provider, &it.name),
        kind: Kind::Secondary,
        owner: it.provider.clone(),
        members: vec![it.name.clone()],
    }));
    let mix = match (pure, planned.len()) {
        (true, _) => Mix::Pure,
        (false, 1) => Mix::Primary,
        (false, _) => Mix::Mixed,
    };
    Ok(Plan { mix, lanes: planned })
}

/// Returns the plan in words, one sentence for each member, the lead first.
pub fn explain(lead: &Seat, members: &[Seat], plan: &Plan) -> Vec<String> {
    let first = format!("lead {} owns the primary lane ({})", lead.name, lead.provider);
    let rest = members.iter().map(|it| match plan.lane_of(&it.name) {
        Some(lane) if lane.kind == Kind::Secondary => format!("member {} goes to secondary lane {}", it.name, lane.id),
        _ => format!("member {} stays on the primary lane ({})", it.name, it.provider),
    });
    std::iter::once(first).chain(rest).collect()
}
