//! Repairs the records of teams' launches after a restart: chooses between two records of the same
//! team, and compares a record with the sessions that really run.
//!
//! A team can have a second record from a restored backup file or from a version without lanes (a
//! lane is the group with which a member is started). A record with lanes is preferred to a newer
//! one without. A missing lane is never guessed from tasks, agents or processes.
//!
//! Only the attempts show which sessions run (T7). If a team's record or an entry is missing, it is
//! rebuilt from the running sessions, so that people can see and stop them.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::attempt::Attempt;
use crate::board::Draft;
use crate::ids::{LaunchId, Now, TeamName};
use crate::lane::{LaneKind, LaneSettings};
use crate::team::{self, Team};

use super::coordinator::{mark_down, record_reconciled, supersede_record};
use super::evidence::{begin_from_evidence, fill_roster, record_session};
use super::{
    LaunchPhase, MemberCauseKind, MemberState, TeamLaunch, has_session, latest_launch,
    live_attempts,
};

/// One of the two launch records of a team that [`preferred_side`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSide {
    Left,
    Right,
}

/// Measures how complete the record of a launch is, as a tuple to be compared: its lanes (start
/// groups) first, then its providers, then its list of members. The record's age does not count.
fn completeness(launch: &TeamLaunch) -> (bool, usize, usize, usize) {
    let lanes = launch
        .members
        .iter()
        .filter(|entry| entry.lane.is_some())
        .count();
    let is_complete = !launch.lanes.is_empty() && lanes == launch.members.len();
    let identities = launch
        .members
        .iter()
        .filter(|entry| !entry.effective.provider.is_empty())
        .count();
    (
        is_complete,
        lanes,
        identities,
        launch.expected_members.len(),
    )
}

/// Returns which of two records of a team's launch to use: the more complete record, or the newer
/// record if both are equally complete.
pub fn preferred_side(left: &TeamLaunch, right: &TeamLaunch) -> RecordSide {
    let by_age = || {
        left.updated_unix_ms
            .cmp(&right.updated_unix_ms)
            .then(left.revision.cmp(&right.revision))
    };
    match completeness(left)
        .cmp(&completeness(right))
        .then_with(by_age)
    {
        Ordering::Less => RecordSide::Right,
        Ordering::Equal | Ordering::Greater => RecordSide::Left,
    }
}

/// Describes how much of its members' lanes (start groups) the record of a launch contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneKnowledge {
    /// The record has the lane (start group) of every member.
    Known,
    /// The record has no lanes (start groups), but all members can start with the lead, so no other
    /// lane was needed.
    OnlyPrimary,
    /// The record lacks lanes (start groups) or members, and cannot be trusted. The text is the
    /// reason, for people.
    Missing(String),
}

impl LaneKnowledge {
    /// Returns whether the record lacks lanes (start groups) that it must have had.
    pub fn has_missing_lanes(&self) -> bool {
        matches!(self, LaneKnowledge::Missing(_))
    }
}

/// Determines whether a launch's record has all lanes (start groups), needs none besides the
/// lead's, or lacks some.
pub fn lane_knowledge(team: &Team, launch: &TeamLaunch, policy: &LaneSettings) -> LaneKnowledge {
    let without_lane: Vec<_> = launch
        .members
        .iter()
        .filter(|entry| entry.lane.is_none())
        .collect();
    let missing: Vec<_> = launch
        .expected_members
        .iter()
        .filter(|member| launch.entry(member).is_none())
        .collect();
    if without_lane.is_empty() && missing.is_empty() && !launch.members.is_empty() {
        return LaneKnowledge::Known;
    }
    // Find a member that must have had a lane (start group) of its own. `desired` follows from the
    // team's settings, `recorded` from the providers and lanes in the record.
    let desired = launch
        .expected_members
        .iter()
        .filter_map(|member| team.member(member))
        .find(|member| {
            let is_pure = team
                .roster()
                .all(|other| team.provider(other) == team.provider(&team.lead));
            !is_pure && !policy.is_primary(team.provider(member))
        });
    let recorded = launch.members.iter().find(|entry| {
        let providers = [&entry.effective.provider, &entry.requested.provider];
        entry.is_on_secondary_lane()
            || providers
                .into_iter()
                .any(|provider| !provider.is_empty() && !policy.is_primary(provider))
    });
    let has_only_provider = |provider: &str| {
        launch
            .members
            .iter()
            .all(|entry| entry.effective.provider == provider)
    };
    let recorded = recorded.filter(|entry| {
        entry.is_on_secondary_lane() || !has_only_provider(&entry.effective.provider)
    });
    match (
        desired.map(|member| &member.name),
        recorded.map(|entry| &entry.name),
    ) {
        (None, None) if missing.is_empty() => LaneKnowledge::OnlyPrimary,
        (None, None) => LaneKnowledge::Missing(format!(
            "its record has no entry for {}",
            missing.first().map_or("anybody", |member| member.as_str())
        )),
        (Some(name), _) | (None, Some(name)) => LaneKnowledge::Missing(format!(
            "its record has no lanes, and {name} needs a lane of its own"
        )),
    }
}

/// Compares the launch records of all teams with the sessions that really run, after a restart of
/// the daemon. A member whose session is gone is recorded as down; other members are not affected.
pub(crate) fn reconcile_all(draft: &mut Draft, now: Now) {
    let teams: Vec<Arc<Team>> = draft.board().teams.values().cloned().collect();
    for team in teams {
        choose_record(draft, &team);
        record_sessions(draft, &team.name, now);
    }
    let launches: Vec<LaunchId> = draft.board().launches.keys().copied().collect();
    for id in launches {
        reconcile(draft, id, now);
    }
}

/// Makes the most complete launch record of a team its latest launch, and marks the team's other
/// records as replaced.
fn choose_record(draft: &mut Draft, team: &Team) {
    let records: Vec<Arc<TeamLaunch>> = draft
        .board()
        .launches
        .values()
        .filter(|launch| launch.team == team.name)
        .cloned()
        .collect();
    let best = records
        .iter()
        .reduce(|best, other| match preferred_side(best, other) {
            RecordSide::Left => best,
            RecordSide::Right => other,
        });
    let Some(best) = best else { return };
    for other in records.iter().filter(|other| other.id != best.id) {
        supersede_record(draft, other);
    }
    if team.launch != Some(best.id) {
        team::set_launch(draft, &team.name, best.id, team.relaunch_after_stop);
    }
}

/// Records each running session of a team in the team's launch record. Creates the record if there
/// is none.
fn record_sessions(draft: &mut Draft, name: &TeamName, now: Now) {
    let Some(team) = draft.board().teams.get(name).cloned() else {
        return;
    };
    let sessions: Vec<Arc<Attempt>> = live_attempts(draft.board(), &team)
        .filter(|attempt| attempt.session_of.is_some())
        .cloned()
        .collect();
    let newest = sessions
        .iter()
        .filter_map(|session| session.session_of.as_ref())
        .map(|standing| standing.launch)
        .max();
    let known = latest_launch(draft.board(), &team).map(|launch| launch.id);
    if let (None, Some(newest)) = (known, newest) {
        begin_from_evidence(draft, &team, newest, now);
    }
    let Some(id) = known.or(newest) else { return };
    for session in sessions {
        record_session(draft, &team, id, &session, now);
    }
    fill_roster(draft, &team, id, now);
}

/// Compares the record of one launch with the sessions that really run, and records members without
/// a session as down. If the record lacks lanes (start groups), this includes members that may not
/// have started yet.
pub(crate) fn reconcile(draft: &mut Draft, id: LaunchId, now: Now) {
    let Some(launch) = draft.board().launches.get(&id).cloned() else {
        return;
    };
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else {
        return;
    };
    let missing_lanes =
        match lane_knowledge(&team, &launch, &team::lane_policy(draft.board(), &team)) {
            LaneKnowledge::Missing(reason) => Some(format!("{reason}: relaunch the team")),
            LaneKnowledge::Known | LaneKnowledge::OnlyPrimary => None,
        };
    for entry in &launch.members {
        let has_session_now = has_session(draft.board(), entry);
        let is_expected_up = entry.state == MemberState::Alive
            || entry.state.is_pending() && entry.state != MemberState::Queued;
        let may_be_secondary = entry
            .lane
            .as_ref()
            .is_none_or(|lane| lane.kind == LaneKind::Secondary);
        match &missing_lanes {
            Some(reason)
                if !has_session_now && may_be_secondary && entry.state != MemberState::Stopped =>
            {
                mark_down(
                    draft,
                    id,
                    entry.clone(),
                    MemberCauseKind::LaneUnknown,
                    reason,
                    now,
                );
            }
            _ if is_expected_up && !has_session_now => {
                let text = "its session was gone after a restart";
                mark_down(draft, id, entry.clone(), MemberCauseKind::Lost, text, now);
            }
            _ => {}
        }
    }
    let is_over = draft
        .board()
        .launches
        .get(&id)
        .is_some_and(|launch| launch.phase() != LaunchPhase::Active);
    if is_over {
        record_reconciled(draft, id, now);
    }
}
