//! The plan of a launch: the provider and the settings of each member when the launch begins.

use crate::board::Board;
use crate::ids::MemberName;
use crate::lane::{LaneKind, LanePlan, LaneSettings, PlannedMember};
use crate::team::{Team, TeamMember};

use super::{LaneRef, LaunchEntry, MemberIdentity};

/// The backend that stands in for the program of any provider.
const SCRIPTED_BACKEND: &str = "scripted";

/// A team's roster as it is planned at one time.
pub(super) struct PlannedRoster {
    pub(super) lead: PlannedMember,
    pub(super) members: Vec<PlannedMember>,
    /// An explanation for each member that the policy moved to another provider.
    pub(super) moves: Vec<(MemberName, String)>,
}

impl PlannedRoster {
    /// Returns the roster as it is planned now. A member whose provider accepts no work moves to
    /// another provider if the policy names one.
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

/// Returns a member's entry with its requested settings, and with the settings that its lane
/// allows.
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
        // Settings for one provider mean nothing to another.
        (effective.backend, effective.model, effective.effort) = (None, None, None);
    }
    if lane.is_none_or(|lane| lane.kind == LaneKind::Primary) && !is_lead {
        // The primary lane has one owner, whose backend and fast mode hold for its members. A
        // backend is a program of one provider, so a member of another provider keeps its own; only
        // the stand-in fits every provider.
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

/// Returns the note about a setting that a member inherits from the lead.
fn inherited_note(setting: &str, value: &str) -> String {
    format!("{setting} is the lead's on the primary lane: {value}")
}
