//! Records rebuilt from running sessions, for a team whose record or member entries were lost.
//!
//! A running session proves which member it belongs to and that the member is alive. It does not
//! prove the member's lane, so the lane stays unknown, and no member is put on the primary lane by
//! a guess (T4).

use crate::attempt::Attempt;
use crate::board::Draft;
use crate::event::Event;
use crate::extra::Extra;
use crate::ids::{LaunchId, MemberName, Now};
use crate::team::Team;

use super::coordinate::{current, note, put};
use super::{Begun, Entry, Identity, Launch, Sign, State, Why, has_session, member_of};

/// Records a launch for a team that has none, with an entry without a lane for each member.
pub(crate) fn begin_from_evidence(draft: &mut Draft, team: &Team, id: LaunchId, now: Now) {
    let members = team.roster().map(|member| lost(team, &member.name, now));
    let launch = Launch {
        id,
        team: team.name.clone(),
        project: team.project.clone(),
        expected_members: team.roster().map(|member| member.name.clone()).collect(),
        bootstrap_expected_members: vec![],
        lanes: vec![],
        members: members.collect(),
        stopping: None,
        reconciled_wall: None,
        told: None,
        superseded: false,
        revision: draft.next_revision(),
        begun_wall: now.wall,
        updated_wall: now.wall,
        extra: Extra::new(),
    };
    draft.record(Event::LaunchBegun(Begun { launch: launch.into() }));
    crate::team::point(draft, &team.name, id, team.again);
}

/// Links a running session to its member's entry. A missing entry is created.
pub(crate) fn record_session(draft: &mut Draft, team: &Team, id: LaunchId, session: &Attempt, now: Now) {
    let Some(name) = member_of(team, &session.agent) else { return };
    let known = current(draft.board(), id, &name);
    if known.as_ref().is_some_and(|entry| has_session(draft.board(), entry)) {
        return;
    }
    let entry = known.unwrap_or_else(|| unplaced(team, &name));
    // The member has answered if at least one turn has ended.
    let has_answered = session.talk.turns > 1 || (session.talk.turns == 1 && !session.talk.in_turn);
    let state = if has_answered { State::Alive } else { State::PendingBootstrap };
    let entry = Entry {
        state,
        cause: None,
        task: Some(session.task),
        attempt: Some(session.id),
        started_wall: Some(session.started_wall),
        alive_wall: has_answered.then_some(now.wall),
        ended_wall: None,
        ..entry
    };
    let text = format!("its session {} runs, which the record did not know", session.id);
    put(draft, id, note(entry, Sign::Process, text, now));
}

/// Adds the missing entries of expected members (T1).
pub(crate) fn fill_roster(draft: &mut Draft, team: &Team, id: LaunchId, now: Now) {
    let Some(launch) = draft.board().launches.get(&id).cloned() else { return };
    for name in launch.expected_members.iter().filter(|name| launch.entry(name).is_none()) {
        put(draft, id, lost(team, name, now));
    }
}

/// Returns the entry of a member whose lane is unknown.
fn lost(team: &Team, name: &MemberName, now: Now) -> Entry {
    let entry = Entry { state: State::Degraded, ended_wall: Some(now.wall), ..unplaced(team, name) };
    entry.because(Why::LaneUnknown, "the record of its launch is missing: relaunch the team")
}

/// Returns an entry without a lane.
fn unplaced(team: &Team, name: &MemberName) -> Entry {
    let provider = team.member(name).map(|member| team.provider(member).to_owned()).unwrap_or_default();
    let identity = Identity { provider, ..Identity::default() };
    Entry { asked: identity.clone(), got: identity, ..Entry::new(team, name) }
}
