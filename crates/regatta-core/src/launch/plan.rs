//! Decides the provider and the settings of each member of a team when a launch begins.

use crate::board::Board;
use crate::ids::MemberName;
use crate::lane::{LaneKind, LanePlan, LaneSettings, PlannedMember};
use crate::team::{Team, TeamMember};

use super::{LaneRef, LaunchEntry, MemberIdentity};

/// Name of the built-in scripted program, which can replace the program of any provider.
const SCRIPTED_BACKEND: &str = "scripted";

/// The lead and members of a team with the providers that they will use in a launch.
pub(super) struct PlannedRoster {
    pub(super) lead: PlannedMember,
    pub(super) members: Vec<PlannedMember>,
    /// Members that use another provider than their settings request, each with an explanation for
    /// people.
    pub(super) moves: Vec<(MemberName, String)>,
}

impl PlannedRoster {
    /// Computes the provider of each member for a launch now. A member whose provider accepts no
    /// work at present gets another provider if the setting `failover` names one.
    pub(super) fn new(board: &Board, team: &Team, policy: &LaneSettings) -> PlannedRoster {
        let parked = |name: &str| board.parked.get(name).filter(|outage| !outage.has_resumed);
        let mut moves = Vec::new();
        let mut apply_failover = |planned: PlannedMember| {
            let Some(outage) = parked(&planned.provider) else {
                return planned;
            };
            let Some(substitute) = policy
                .failover_of(&planned.provider)
                .find(|substitute| parked(substitute).is_none())
            else {
                return planned;
            };
            let note = format!(
                "moved from {} to {substitute}: {}",
                planned.provider, outage.reason
            );
            moves.push((planned.name.clone(), note));
            PlannedMember {
                provider: substitute.to_owned(),
                ..planned
            }
        };
        let (lead, members) = team.planned_members();
        let lead = apply_failover(lead);
        let members = members.into_iter().map(apply_failover).collect();
        PlannedRoster {
            lead,
            members,
            moves,
        }
    }
}

/// Builds a member's entry in the record of a new launch, with the settings that were requested and
/// those that it will really have. A member on the lead's lane (start group) gets some settings of
/// the lead.
pub(super) fn new_entry(
    team: &Team,
    member: &TeamMember,
    planned: &PlannedMember,
    plan: &LanePlan,
) -> LaunchEntry {
    let lead = &team.lead;
    let is_lead = member.name == lead.name;
    let has_lead_provider = team.provider(member) == team.provider(lead);
    let requested = MemberIdentity {
        provider: team.provider(member).to_owned(),
        backend: member.backend.clone(),
        model: member
            .model
            .clone()
            .or_else(|| lead.model.clone().filter(|_| has_lead_provider)),
        effort: member
            .effort
            .clone()
            .or_else(|| lead.effort.clone().filter(|_| has_lead_provider)),
        fast_mode: member.fast_mode,
        cwd: member.cwd.clone(),
    };
    let lane = plan.lane_of(&member.name);
    let mut effective = MemberIdentity {
        provider: planned.provider.clone(),
        ..requested.clone()
    };
    let mut notes = Vec::new();
    if planned.provider != requested.provider {
        // Program, model and effort were chosen for the requested provider and are not valid for
        // another provider.
        (effective.backend, effective.model, effective.effort) = (None, None, None);
    }
    if lane.is_none_or(|lane| lane.kind == LaneKind::Primary) && !is_lead {
        // Members on the lead's lane (start group) use the lead's fast mode. If they have the
        // lead's provider, they also use the lead's backend (program). A member of another provider
        // keeps its own backend, unless the lead uses the scripted program, which works for every
        // provider.
        let is_shared = planned.provider == team.provider(lead)
            || lead.backend.as_deref() == Some(SCRIPTED_BACKEND);
        if is_shared && effective.backend != lead.backend {
            effective.backend = lead.backend.clone();
            notes.push(inherited_note(
                "backend",
                effective
                    .backend
                    .as_deref()
                    .unwrap_or("its provider's usual one"),
            ));
        }
        if effective.fast_mode != lead.fast_mode {
            effective.fast_mode = lead.fast_mode;
            let mode = match effective.fast_mode {
                Some(true) => "on",
                Some(false) => "off",
                None => "its program's own",
            };
            notes.push(inherited_note("fast mode", mode));
        }
    }
    let lane = lane.map(|lane| LaneRef {
        id: lane.id.clone(),
        kind: lane.kind,
        owner: lane.owner.clone(),
    });
    LaunchEntry {
        lane,
        requested,
        effective,
        notes,
        ..LaunchEntry::new(team, &member.name)
    }
}

/// Builds the note for people that a member uses the lead's value of a setting.
fn inherited_note(setting: &str, value: &str) -> String {
    format!("members of the primary lane use the lead's {setting}: {value}")
}
