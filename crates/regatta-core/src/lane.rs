//! Lanes: who launches and owns a member's runtime. The team's primary lane, or a member's own secondary lane.
//!
//! [`plan`] asks one question of each member: which owner may launch it? The answer is policy, and policy is data
//! ([`Lanes`], `[lanes]` of `regatta.toml`). Models, effort and the like are no part of the question: members that
//! differ in them still share a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::MemberName;
use crate::provider_name;

/// The most members a team has beside its lead.
pub const MOST_MEMBERS: usize = 100;

/// Which lane it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The team's own: the lead, and who may be launched beside it.
    Primary,
    /// A member's own.
    Secondary,
}

impl Kind {
    /// Its name, as the API says it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Primary => "primary",
            Kind::Secondary => "secondary",
        }
    }
}

/// Which teams a provider may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Leads {
    /// Any team.
    Any,
    /// Only a team of nothing but its own.
    #[default]
    Pure,
}

/// What a runtime's own store belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each lane has its own.
    #[default]
    Lane,
    /// A team has one, so one lane of a team may use it.
    Team,
}

/// What the policy says of one provider. In `regatta.toml` a lane's name alone will do: `goose = "secondary"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(from = "Written"))]
pub struct Rule {
    /// Where its members go.
    pub lane: Kind,
    /// Which teams it may lead.
    pub leads: Leads,
    /// What its runtime's store belongs to.
    pub store: Scope,
}

impl Rule {
    /// The rule of a provider that the primary lane can launch.
    pub const PRIMARY: Rule = Rule { lane: Kind::Primary, leads: Leads::Any, store: Scope::Lane };
    /// The rule of a provider that needs an owner of its own.
    pub const SECONDARY: Rule = Rule { lane: Kind::Secondary, leads: Leads::Pure, store: Scope::Lane };
}

/// A rule as it may be written.
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
    /// Reads a word or a table. An untagged enum would not say which field is wrong.
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

/// `[lanes]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Lanes {
    /// Where each provider's members go, beyond what is built in.
    pub policy: BTreeMap<String, Rule>,
    /// How many side lanes attach at once.
    pub concurrency: u32,
    /// To which other providers a member may be moved whose own takes no work when the team is launched.
    pub failover: BTreeMap<String, Vec<String>>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { policy: BTreeMap::new(), concurrency: 8, failover: BTreeMap::new() }
    }
}

impl Lanes {
    /// What holds for a provider. One that nobody named has a lane of its own: nothing shows that the primary lane
    /// could launch it.
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

    /// Returns the providers that members of `provider` may be moved to, by their own names.
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

    /// Whether the primary lane may launch a provider's members, whoever leads.
    pub fn is_primary(&self, provider: &str) -> bool {
        self.rule(provider).lane == Kind::Primary
    }
}

/// One of a team, as far as the plan asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub name: MemberName,
    pub provider: String,
}

/// What kind of team it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// All on the primary lane.
    Primary,
    /// One provider that needs an owner of its own, and nobody else: it owns the primary lane.
    Pure,
    /// Some have lanes of their own.
    Mixed,
}

/// Who launches some of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lane {
    /// `primary`, or `opencode:tom`.
    pub id: String,
    pub kind: Kind,
    /// The provider that owns it.
    pub owner: String,
    /// Whom it launches: exactly one, when it is secondary.
    pub members: Vec<MemberName>,
}

/// The name of the primary lane.
pub const PRIMARY: &str = "primary";

/// The name of a member's own lane.
pub fn secondary_id(provider: &str, name: &MemberName) -> String {
    format!("{provider}:{name}")
}

/// Which lanes a team has: the primary first, then each member's own in the order of the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub mix: Mix,
    pub lanes: Vec<Lane>,
}

impl Plan {
    /// The lane of a member.
    pub fn lane_of(&self, name: &MemberName) -> Option<&Lane> {
        self.lanes.iter().find(|it| it.members.contains(name))
    }

    /// Who starts with the primary lane, the lead first: all that its launcher is ever told of.
    pub fn bootstrap(&self) -> &[MemberName] {
        self.lanes.first().map_or(&[], |it| &it.members)
    }
}

/// What keeps a roster from being a team, and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// Two of one name.
    SameName(MemberName),
    TooMany(usize),
    NoProvider(MemberName),
    /// This lead can lead only its own kind.
    CannotLead {
        lead: MemberName,
        provider: String,
        other: MemberName,
        others: String,
    },
    /// Several lanes of a runtime that has one store for a team.
    OneStore {
        provider: String,
        members: Vec<MemberName>,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::SameName(name) => write!(f, "two of the team are called {name}"),
            Objection::TooMany(count) => write!(f, "a team has at most {MOST_MEMBERS} members, not {count}"),
            Objection::NoProvider(name) => write!(f, "nobody says which provider {name} is of"),
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
    /// What to change.
    pub fn hint(&self) -> String {
        match self {
            Objection::SameName(name) => format!("give one {name} another name; the lead's counts, too"),
            Objection::TooMany(_) => "make two teams".to_owned(),
            Objection::NoProvider(name) => format!("name it at {name} or at the lead: provider = \"codex\""),
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

/// Plans a team's lanes, or says everything that is to be changed first.
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
    // Nothing but a provider that needs its own owner: that owner is the team's, and shares its lane with nobody else.
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

/// The plan in words, one sentence for each of the team, the lead first.
pub fn explain(lead: &Seat, members: &[Seat], plan: &Plan) -> Vec<String> {
    let first = format!("lead {} owns the primary lane ({})", lead.name, lead.provider);
    let rest = members.iter().map(|it| match plan.lane_of(&it.name) {
        Some(lane) if lane.kind == Kind::Secondary => format!("member {} goes to secondary lane {}", it.name, lane.id),
        _ => format!("member {} stays on the primary lane ({})", it.name, it.provider),
    });
    std::iter::once(first).chain(rest).collect()
}
