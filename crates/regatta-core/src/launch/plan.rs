//! The plan of a launch: the provider and the settings of each member when the launch begins.

use crate::board::Board;
use crate::ids::MemberName;
use crate::lane::{LaneKind, LanePlan, LaneSettings, PlannedMember};
use crate::team::{Team, TeamMember};

use super::{LaneRef, LaunchEntry, MemberIdentity};

/// The backend that stands in for the program of any provider.
const SCRIPTED_BACKEND: &str = "scripted";

/// Returns the lead and the members as they are planned now, with an explanation for each member
/// that the policy moved to another provider because its own accepts no work.
pub(super) fn planned_members(
    board: &Board,
    team: &Team,
    policy: &LaneSettings,
) -> (PlannedMember, Vec<PlannedMember>, Vec<(MemberName, String)>) {
    let parked = |s: &str| {
        board
            .parked
            .get(s)
            .filter(|provider_outage| !provider_outage.has_resumed)
    };
    let mut moved = Vec::new();
    let mut settle = |seat: PlannedMember| {
        let Some(why) = parked(&seat.provider) else {
            return seat;
        };
        let Some(other) = policy
            .failover_of(&seat.provider)
            .find(|other| parked(other).is_none())
        else {
            return seat;
        };
        let said = format!("moved from {} to {other}: {}", seat.provider, why.reason);
        moved.push((seat.name.clone(), said));
        PlannedMember {
            provider: other.to_owned(),
            ..seat
        }
    };
    let (lead, members) = team.planned_members();
    let lead = settle(lead);
    let members = members.into_iter().map(settle).collect();
    (lead, members, moved)
}

/// Returns a member's entry with its requested settings, and with the settings that its lane
/// allows.
pub(super) fn new_entry(
    team: &Team,
    member: &TeamMember,
    seat: &PlannedMember,
    plan: &LanePlan,
) -> LaunchEntry {
    let lead = &team.lead;
    let is_lead = member.name == lead.name;
    let of_lead = team.provider(member) == team.provider(lead);
    let asked = MemberIdentity {
        provider: team.provider(member).to_owned(),
        backend: member.backend.clone(),
        model: member
            .model
            .clone()
            .or_else(|| lead.model.clone().filter(|_| of_lead)),
        effort: member
            .effort
            .clone()
            .or_else(|| lead.effort.clone().filter(|_| of_lead)),
        fast_mode: member.fast_mode,
        cwd: member.cwd.clone(),
    };
    let lane = plan.lane_of(&member.name);
    let mut got = MemberIdentity {
        provider: seat.provider.clone(),
        ..asked.clone()
    };
    let mut notes = Vec::new();
    if seat.provider != asked.provider {
        // Settings for one provider mean nothing to another.
        (got.backend, got.model, got.effort) = (None, None, None);
    }
    if lane.is_none_or(|lane| lane.kind == LaneKind::Primary) && !is_lead {
        // The primary lane has one owner, whose backend and fast mode hold for its members. A
        // backend is a program of one provider, so a member of another provider keeps its own; only
        // the stand-in fits every provider.
        let is_shared = seat.provider == team.provider(lead)
            || lead.backend.as_deref() == Some(SCRIPTED_BACKEND);
        if is_shared && got.backend != lead.backend {
            got.backend = lead.backend.clone();
            notes.push(inherited_note(
                "backend",
                got.backend.as_deref().unwrap_or("its provider's usual one"),
            ));
        }
        if got.fast_mode != lead.fast_mode {
            got.fast_mode = lead.fast_mode;
            let mode = got.fast_mode.map_or(
                "its program's own",
                |is_on| if is_on { "on" } else { "off" },
            );
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
        requested: asked,
        effective: got,
        notes,
        ..LaunchEntry::new(team, &member.name)
    }
}

/// Returns the note about a setting that a member inherits from the lead.
fn inherited_note(setting: &str, value: &str) -> String {
    format!("{setting} is the lead's on the primary lane: {value}")
}
