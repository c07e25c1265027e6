//! Rebuilds the record of a team's launch from the sessions that run, if the record or entries of
//! members were lost.
//!
//! A running session shows which member it belongs to and whether the member is alive. The session
//! does not show the member's lane (the group with which the member was started), so the lane stays
//! unknown and is never guessed (T4).

use crate::attempt::Attempt;
use crate::board::Draft;
use crate::event::Event;
use crate::ids::{LaunchId, MemberName, Now};
use crate::team::Team;
use crate::unknown_fields::UnknownFields;

use super::coordinator::{add_evidence, current_entry, record_entry};
use super::{
    EvidenceSource, LaunchBegun, LaunchEntry, MemberCauseKind, MemberChange, MemberIdentity,
    MemberState, TeamLaunch, has_session, member_of,
};

/// Records a launch for a team whose sessions run although it has no record. Each member gets an
/// entry without a lane (start group).
pub(crate) fn begin_from_evidence(draft: &mut Draft, team: &Team, id: LaunchId, now: Now) {
    let members = team
        .roster()
        .map(|member| entry_with_unknown_lane(team, &member.name, now));
    let launch = TeamLaunch {
        id,
        team: team.name.clone(),
        project: team.project.clone(),
        expected_members: team.roster().map(|member| member.name.clone()).collect(),
        bootstrap_expected_members: vec![],
        lanes: vec![],
        members: members.collect(),
        stopping: None,
        reconciled_unix_ms: None,
        announced: None,
        superseded: false,
        revision: draft.next_revision(),
        begun_unix_ms: now.unix_ms,
        updated_unix_ms: now.unix_ms,
        extra: UnknownFields::new(),
    };
    draft.record(Event::LaunchBegun(LaunchBegun {
        launch: launch.into(),
    }));
    crate::team::set_launch(draft, &team.name, id, team.relaunch_after_stop);
}

/// Records a running session in its member's entry of the launch record, unless the entry already
/// has a session. Creates the entry if it is missing.
pub(crate) fn record_session(
    draft: &mut Draft,
    team: &Team,
    id: LaunchId,
    session: &Attempt,
    now: Now,
) {
    let Some(name) = member_of(team, &session.agent) else {
        return;
    };
    let known_entry = current_entry(draft.board(), id, &name);
    if known_entry
        .as_ref()
        .is_some_and(|entry| has_session(draft.board(), entry))
    {
        return;
    }
    let entry = known_entry.unwrap_or_else(|| entry_without_lane(team, &name));
    // The member has answered its first prompt if at least one turn of its session has ended.
    let has_answered =
        session.session.turns > 1 || (session.session.turns == 1 && !session.session.in_turn);
    let state = if has_answered {
        MemberState::Alive
    } else {
        MemberState::PendingBootstrap
    };
    let entry = LaunchEntry {
        state,
        cause: None,
        task: Some(session.task),
        attempt: Some(session.id),
        started_unix_ms: Some(session.started_unix_ms),
        alive_since_unix_ms: has_answered.then_some(now.unix_ms),
        ended_unix_ms: None,
        ..entry
    };
    let text = format!(
        "its session {} runs, although it was missing in the record",
        session.id
    );
    record_entry(
        draft,
        id,
        add_evidence(entry, EvidenceSource::Process, text, now),
    );
}

/// Adds the missing entries to a launch's record, so that it has one for each member that the
/// launch should have (T1).
pub(crate) fn fill_roster(draft: &mut Draft, team: &Team, id: LaunchId, now: Now) {
    let Some(launch) = draft.board().launches.get(&id).cloned() else {
        return;
    };
    for name in launch
        .expected_members
        .iter()
        .filter(|name| launch.entry(name).is_none())
    {
        record_entry(draft, id, entry_with_unknown_lane(team, name, now));
    }
}

/// Builds the launch entry of a member about which nothing is recorded: down, with an unknown lane
/// (start group).
fn entry_with_unknown_lane(team: &Team, name: &MemberName, now: Now) -> LaunchEntry {
    let entry = LaunchEntry {
        ended_unix_ms: Some(now.unix_ms),
        ..entry_without_lane(team, name).changed(MemberChange::Degrade)
    };
    entry.with_cause(
        MemberCauseKind::LaneUnknown,
        "the record of its launch is missing: relaunch the team",
    )
}

/// Builds the launch entry of a member from the team's current settings, without a lane (start
/// group).
fn entry_without_lane(team: &Team, name: &MemberName) -> LaunchEntry {
    let provider = team
        .member(name)
        .map(|member| team.provider(member).to_owned())
        .unwrap_or_default();
    let identity = MemberIdentity {
        provider,
        ..MemberIdentity::default()
    };
    LaunchEntry {
        requested: identity.clone(),
        effective: identity,
        ..LaunchEntry::new(team, name)
    }
}
