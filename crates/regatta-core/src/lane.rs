//! Plans the lanes of a team. A lane is a group of a team's members that are started together under
//! one provider. The primary lane has the lead and all members that can start with it; any other
//! member gets a secondary lane of its own.
//!
//! [`plan`] assigns each member to a lane. The rules per provider are settings ([`LaneSettings`],
//! section `[lanes]` of `regatta.toml`). Models, effort and similar settings do not matter here:
//! members that differ only in them share a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::MemberName;
use crate::provider_name;

/// Maximum number of members of a team, not counting its lead.
const MAX_MEMBERS: usize = 100;

/// The kind of a lane (a group of team members that are started together).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// The main lane (start group) of the team: the lead, and all members that can be started
    /// together with the lead.
    Primary,
    /// A lane (start group) of one member that cannot be started together with the lead. This lane
    /// starts when the lead runs.
    Secondary,
}

impl LaneKind {
    /// Returns the kind's name in the API, `primary` or `secondary`.
    pub fn name(self) -> &'static str {
        match self {
            LaneKind::Primary => "primary",
            LaneKind::Secondary => "secondary",
        }
    }
}

/// The teams that a member of a provider may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeadableTeams {
    /// The provider's members may lead any team, whatever the providers of the other members are.
    Any,
    /// The provider's members may lead only teams in which all members have that same provider.
    #[default]
    Pure,
}

/// The part of a team that shares one store, that is, the data files of a provider's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoreScope {
    /// Each lane (start group) has its own data files of the provider's programs.
    #[default]
    Lane,
    /// The whole team shares the data files of the provider's programs, so only one lane (start
    /// group) may have members of this provider.
    Team,
}

/// The rule for members of one provider. In `regatta.toml` the kind of lane (start group) is
/// enough: `goose = "secondary"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(from = "WrittenLaneRule")
)]
pub struct LaneRule {
    /// Kind of lane (start group) that the provider's members get.
    pub lane: LaneKind,
    /// Teams that a member of this provider may lead.
    pub leads: LeadableTeams,
    /// The part of a team that shares the data files of the provider's programs: each lane (start
    /// group), or the whole team.
    pub store: StoreScope,
}

impl LaneRule {
    /// Rule for a provider whose members start on the team's primary lane (start group) and may
    /// lead any team.
    pub const PRIMARY: LaneRule = LaneRule {
        lane: LaneKind::Primary,
        leads: LeadableTeams::Any,
        store: StoreScope::Lane,
    };
    /// Rule for a provider whose members need lanes (start groups) of their own and may lead only
    /// teams of that provider.
    pub const SECONDARY: LaneRule = LaneRule {
        lane: LaneKind::Secondary,
        leads: LeadableTeams::Pure,
        store: StoreScope::Lane,
    };
}

/// A provider's rule as a person may write it in `regatta.toml`: the kind of lane (start group) as
/// one word, or a table.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(untagged))]
enum WrittenLaneRule {
    Lane(LaneKind),
    Rule(LaneRuleTable),
}

/// A provider's rule that is written as a table, such as `{ lane = "secondary", leads = "any" }`.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct LaneRuleTable {
    #[cfg_attr(feature = "schema", schemars(example = LaneKind::Primary))]
    lane: LaneKind,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(example = LeadableTeams::Pure))]
    leads: Option<LeadableTeams>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(example = StoreScope::Team))]
    store: StoreScope,
}

impl From<WrittenLaneRule> for LaneRule {
    fn from(written: WrittenLaneRule) -> LaneRule {
        let table = match written {
            WrittenLaneRule::Lane(lane) => LaneRuleTable {
                lane,
                leads: None,
                store: StoreScope::Lane,
            },
            WrittenLaneRule::Rule(table) => table,
        };
        let default_leads = if table.lane == LaneKind::Primary {
            LeadableTeams::Any
        } else {
            LeadableTeams::Pure
        };
        LaneRule {
            lane: table.lane,
            leads: table.leads.unwrap_or(default_leads),
            store: table.store,
        }
    }
}

impl<'de> Deserialize<'de> for LaneRule {
    /// Reads a lane rule that is written as a word or a table. This function is written by hand
    /// because the error of a derived untagged enum would not name the field that is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LaneRule, D::Error> {
        struct LaneRuleVisitor;
        impl<'de> Visitor<'de> for LaneRuleVisitor {
            type Value = WrittenLaneRule;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"primary\", \"secondary\" or a table with lane, leads and store")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<WrittenLaneRule, E> {
                LaneKind::deserialize(word.into_deserializer()).map(WrittenLaneRule::Lane)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WrittenLaneRule, A::Error> {
                LaneRuleTable::deserialize(MapAccessDeserializer::new(map))
                    .map(WrittenLaneRule::Rule)
            }
        }
        deserializer
            .deserialize_any(LaneRuleVisitor)
            .map(LaneRule::from)
    }
}

/// Settings of the section `[lanes]` of `regatta.toml`: how members of teams are grouped when a
/// team starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LaneSettings {
    /// Rules by provider name, which take precedence over the built-in rules.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{ "goose": "primary" }])))]
    pub policy: BTreeMap<String, LaneRule>,
    /// Maximum number of members of the same kind of lane (start group) that start at the same
    /// time.
    #[cfg_attr(feature = "schema", schemars(example = 4))]
    pub concurrency: u32,
    /// Replacement providers of each provider, in order of preference. If a member's provider
    /// accepts no work when the team is launched, the member uses the first provider of this list
    /// that accepts work.
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{ "codex": ["anthropic"] }])))]
    pub failover: BTreeMap<String, Vec<String>>,
}

impl Default for LaneSettings {
    fn default() -> LaneSettings {
        LaneSettings {
            policy: BTreeMap::new(),
            concurrency: 8,
            failover: BTreeMap::new(),
        }
    }
}

impl LaneSettings {
    /// Returns the rule for a provider, from the settings or built in. Members of an unknown
    /// provider get lanes (start groups) of their own, because nothing shows that the primary lane
    /// could start them.
    pub fn rule(&self, provider: &str) -> LaneRule {
        if let Some(rule) = self.configured_rule(provider) {
            return *rule;
        }
        match provider_name::canonical(provider) {
            "anthropic" | "codex" | "gemini" | "scripted" => LaneRule::PRIMARY,
            _ => LaneRule::SECONDARY,
        }
    }

    /// Returns whether the settings have a rule for this provider, or this version of Regatta knows
    /// the provider.
    pub fn is_known(&self, provider: &str) -> bool {
        self.configured_rule(provider).is_some() || provider_name::is_known(provider)
    }

    /// Returns the canonical names of the providers that may replace `provider` when a team is
    /// launched, in order of preference.
    pub fn failover_of<'a>(&'a self, provider: &str) -> impl Iterator<Item = &'a str> {
        let exact = self.failover.get(provider);
        let listed = exact.or_else(|| {
            self.failover
                .iter()
                .find(|(name, _)| provider_name::is_same(name, provider))
                .map(|(_, others)| others)
        });
        listed
            .into_iter()
            .flatten()
            .map(|name| provider_name::canonical(name))
    }

    /// Returns the lane rule that the settings have for a provider under any of the provider's
    /// names.
    fn configured_rule(&self, provider: &str) -> Option<&LaneRule> {
        self.policy.get(provider).or_else(|| {
            self.policy
                .iter()
                .find(|(name, _)| provider_name::is_same(name, provider))
                .map(|(_, rule)| rule)
        })
    }

    /// Returns whether members of this provider may start on the primary lane (start group),
    /// whatever the lead's provider is.
    pub fn is_primary(&self, provider: &str) -> bool {
        self.rule(provider).lane == LaneKind::Primary
    }
}

/// A member or lead of a team with the facts from which its lane (start group) is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMember {
    pub name: MemberName,
    pub provider: String,
}

/// The kind of a team, determined by the lanes (start groups) of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TeamMix {
    /// All members are started together with the lead.
    Primary,
    /// All members have the same provider. In a mixed team this provider would need lanes (start
    /// groups) of its own; here it gets the primary lane.
    Pure,
    /// Some members have lanes (start groups) of their own and are started after the lead.
    Mixed,
}

/// A group of team members that are started together, as planned for a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lane {
    /// Name of the lane (start group): `primary`, or provider and member, such as `opencode:tom`.
    pub id: String,
    pub kind: LaneKind,
    /// Provider that starts the lane's members: the lead's provider on the primary lane (start
    /// group), the member's own on a secondary lane.
    pub owner: String,
    /// Members that are started on this lane (start group); a secondary lane has exactly one
    /// member.
    pub members: Vec<MemberName>,
}

/// Name of each team's primary lane (start group), on which the lead and most members are started.
pub const PRIMARY: &str = "primary";

/// Returns the name of the lane (start group) of a single member, such as `opencode:tom`.
fn secondary_id(provider: &str, name: &MemberName) -> String {
    format!("{provider}:{name}")
}

/// All lanes (start groups) of a team: the primary lane first, then the lanes of single members in
/// the order of the team's roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePlan {
    pub mix: TeamMix,
    pub lanes: Vec<Lane>,
}

impl LanePlan {
    /// Returns the lane (start group) on which a member is started, or `None` if the team has no
    /// such member.
    pub fn lane_of(&self, name: &MemberName) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.members.contains(name))
    }

    /// Returns the members that are started on the primary lane (start group), the lead first.
    pub fn bootstrap_members(&self) -> &[MemberName] {
        self.lanes.first().map_or(&[], |lane| &lane.members)
    }
}

/// A problem because of which a team with this roster (list of members) cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterProblem {
    /// Two members of the team have the same name.
    SameName(MemberName),
    TooMany(usize),
    NoProvider(MemberName),
    /// The lead's provider can lead only members of the same provider, and the member `other` has
    /// another provider.
    CannotLead {
        lead: MemberName,
        provider: String,
        other: MemberName,
        others: String,
    },
    /// Members on several lanes (start groups) have this provider, but its programs keep only one
    /// set of data files for a whole team.
    SharedStore {
        provider: String,
        members: Vec<MemberName>,
    },
}

impl fmt::Display for RosterProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RosterProblem::SameName(name) => write!(f, "two members of the team are called {name}"),
            RosterProblem::TooMany(count) => {
                write!(f, "a team has at most {MAX_MEMBERS} members, not {count}")
            }
            RosterProblem::NoProvider(name) => write!(f, "{name} has no provider"),
            RosterProblem::CannotLead {
                lead,
                provider,
                other,
                others,
            } => write!(
                f,
                "{provider} cannot lead a mixed team: {lead} would own the team's primary lane, \
                but the provider of {other} is {others}"
            ),
            RosterProblem::SharedStore { provider, members } => {
                let names: Vec<&str> = members.iter().map(MemberName::as_str).collect();
                write!(
                    f,
                    "{provider} keeps one store for a whole team, so a mixed team has at most one \
                     {provider} member, not {}: {}",
                    names.len(),
                    names.join(", ")
                )
            }
        }
    }
}

impl RosterProblem {
    /// Returns a hint for the person who wrote the team's settings: the change that solves the
    /// problem.
    pub fn hint(&self) -> String {
        match self {
            RosterProblem::SameName(name) => {
                format!("rename one {name}; the lead's name must be different, too")
            }
            RosterProblem::TooMany(_) => "split the members into two teams".to_owned(),
            RosterProblem::NoProvider(name) => {
                format!("set it for {name} or for the lead: provider = \"codex\"")
            }
            RosterProblem::CannotLead { provider, .. } => format!(
                "use another provider for the lead, or {provider} for all members; if your \
                 {provider} can lead a mixed team, allow it: [lanes.policy] {provider} = {{ lane = \
                 \"secondary\", leads = \"any\" }}"
            ),
            RosterProblem::SharedStore { provider, .. } => format!(
                "keep one of these members; if each lane of {provider} can have its own store, \
                 allow it: [lanes.policy] {provider} = {{ lane = \"secondary\", store = \"lane\" }}"
            ),
        }
    }
}

/// Assigns the members of a team to lanes (start groups), or returns all problems of its roster.
pub fn plan(
    lead: &PlannedMember,
    members: &[PlannedMember],
    lanes: &LaneSettings,
) -> Result<LanePlan, Vec<RosterProblem>> {
    let mut problems = Vec::new();
    if members.len() > MAX_MEMBERS {
        problems.push(RosterProblem::TooMany(members.len()));
    }
    let mut names = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for member in std::iter::once(lead).chain(members) {
        if !names.insert(&member.name) && repeated.insert(&member.name) {
            problems.push(RosterProblem::SameName(member.name.clone()));
        }
        if member.provider.trim().is_empty() {
            problems.push(RosterProblem::NoProvider(member.name.clone()));
        }
    }
    let lead_rule = lanes.rule(&lead.provider);
    // If all members have the lead's provider and that provider normally needs lanes (start groups)
    // of its own, all members share the primary lane.
    let is_pure = lead_rule.lane == LaneKind::Secondary
        && members
            .iter()
            .all(|member| member.provider == lead.provider);
    let needs_own_lane = |member: &&PlannedMember| {
        !is_pure && lanes.rule(&member.provider).lane == LaneKind::Secondary
    };
    let has_provider = !lead.provider.trim().is_empty();
    if !is_pure
        && has_provider
        && lead_rule.leads == LeadableTeams::Pure
        && let Some(other) = members
            .iter()
            .find(|member| member.provider != lead.provider)
    {
        problems.push(RosterProblem::CannotLead {
            lead: lead.name.clone(),
            provider: lead.provider.clone(),
            other: other.name.clone(),
            others: other.provider.clone(),
        });
    }
    let mut stores: BTreeMap<&str, Vec<MemberName>> = BTreeMap::new();
    for member in std::iter::once(lead)
        .filter(|_| !is_pure)
        .chain(members.iter().filter(needs_own_lane))
    {
        let rule = lanes.rule(&member.provider);
        if rule.store == StoreScope::Team && rule.lane == LaneKind::Secondary {
            stores
                .entry(&member.provider)
                .or_default()
                .push(member.name.clone());
        }
    }
    for (provider, members) in stores {
        if members.len() < 2 {
            continue;
        }
        problems.push(RosterProblem::SharedStore {
            provider: provider.to_owned(),
            members,
        });
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let on_primary =
        std::iter::once(lead).chain(members.iter().filter(|member| !needs_own_lane(member)));
    let mut planned_lanes = vec![Lane {
        id: PRIMARY.to_owned(),
        kind: LaneKind::Primary,
        owner: lead.provider.clone(),
        members: on_primary.map(|member| member.name.clone()).collect(),
    }];
    planned_lanes.extend(members.iter().filter(needs_own_lane).map(|member| Lane {
        id: secondary_id(&member.provider, &member.name),
        kind: LaneKind::Secondary,
        owner: member.provider.clone(),
        members: vec![member.name.clone()],
    }));
    let mix = if is_pure {
        TeamMix::Pure
    } else if planned_lanes.len() == 1 {
        TeamMix::Primary
    } else {
        TeamMix::Mixed
    };
    Ok(LanePlan {
        mix,
        lanes: planned_lanes,
    })
}

/// Describes a plan of lanes (start groups) for people, with one sentence for each member, the lead
/// first.
pub fn explain(lead: &PlannedMember, members: &[PlannedMember], plan: &LanePlan) -> Vec<String> {
    let lead_sentence = format!(
        "lead {} owns the primary lane ({})",
        lead.name, lead.provider
    );
    let member_sentences = members
        .iter()
        .map(|member| match plan.lane_of(&member.name) {
            Some(lane) if lane.kind == LaneKind::Secondary => {
                format!("member {} goes to secondary lane {}", member.name, lane.id)
            }
            _ => format!(
                "member {} stays on the primary lane ({})",
                member.name, member.provider
            ),
        });
    std::iter::once(lead_sentence)
        .chain(member_sentences)
        .collect()
}
