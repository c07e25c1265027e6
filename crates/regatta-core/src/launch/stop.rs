//! Stops and relaunches teams. A stop first ends the members on lanes (start groups) of their own,
//! and then the lead and the members on its lane. Each of these steps waits for programs to end;
//! see [`wind_down`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{AgentName, LaunchId, Now, TeamName};
use crate::lane::{self, LaneKind};
use crate::refusal::Refusal;
use crate::team::{self, Team};
use crate::{agent, attempt, task};

use super::coordinator::{begin, record_entry, record_reconciled};
use super::plan::PlannedRoster;
use super::{
    LaunchChanged, LaunchEntry, MemberCauseKind, MemberChange, TeamLaunch, has_session,
    is_member_running, is_up, latest_launch, live_attempts,
};

/// Stops a team: first the members on lanes (start groups) of their own, then the lead and the
/// members started with it. The team counts as stopped only when none of its programs runs (P10).
pub fn stop(draft: &mut Draft, name: &TeamName, reason: &str) -> Result<(), Refusal> {
    let team = team::find(draft.board(), name)?;
    if team.relaunch_after_stop {
        team::set_launch(draft, name, team.launch.unwrap_or_default(), false);
    }
    request_stop(draft, &team, reason);
    stop_unrecorded(draft, &team, reason);
    // If no member was running, the stop is complete at once.
    if let Some(launch) = team.launch.filter(|_| !is_up(draft.board(), &team)) {
        let now = draft.now();
        record_reconciled(draft, launch, now);
    }
    Ok(())
}

/// Stops running attempts of members that are not in the team's launch record. Without a record,
/// stops all attempts of the team.
fn stop_unrecorded(draft: &mut Draft, team: &Team, reason: &str) {
    let recorded: Vec<AgentName> = match latest_launch(draft.board(), team) {
        Some(launch) => launch
            .members
            .iter()
            .map(|entry| entry.agent.clone())
            .collect(),
        None => vec![],
    };
    let agents: BTreeSet<AgentName> = live_attempts(draft.board(), team)
        .map(|attempt| attempt.agent.clone())
        .collect();
    for agent in agents.into_iter().filter(|agent| !recorded.contains(agent)) {
        stop_member(draft, &agent, reason);
    }
}

/// Records the request to stop a team in the team's launch, if any part of the team runs.
fn request_stop(draft: &mut Draft, team: &Team, reason: &str) {
    let Some(launch) = latest_launch(draft.board(), team).cloned() else {
        return;
    };
    if is_up(draft.board(), team) && launch.stopping.is_none() {
        draft.record(Event::LaunchChanged(LaunchChanged {
            launch: launch.id,
            stopping: Some(reason.to_owned()),
            reconciled_wall: None,
            superseded: false,
            told: None,
        }));
    }
}

/// Performs the next step of stopping a team. First ends all members on lanes (start groups) of
/// their own, then the lead and the other members. When nothing runs, records the stop as complete.
pub(super) fn wind_down(draft: &mut Draft, launch: &TeamLaunch, now: Now) {
    let reason = launch.stopping.clone().unwrap_or_default();
    for entry in &launch.members {
        // Take the member's agent offline. The agent gets no more work, and a session that has not
        // started yet does not start.
        if draft
            .board()
            .agents
            .get(&entry.agent)
            .is_some_and(|agent| agent.offline.is_none())
        {
            let taken_offline =
                agent::take_offline(draft, &entry.agent, "its team is being stopped", now);
            debug_assert!(taken_offline.is_ok(), "a registered agent can go offline");
        }
        if entry.state.is_pending() && !has_session(draft.board(), entry) {
            let stopped = LaunchEntry {
                ended_unix_ms: Some(now.unix_ms),
                ..entry.clone().changed(MemberChange::Stop)
            };
            record_entry(
                draft,
                launch.id,
                stopped.with_cause(MemberCauseKind::Stopped, reason.clone()),
            );
        }
    }
    let running: Vec<&LaunchEntry> = launch
        .members
        .iter()
        .filter(|entry| is_member_running(draft.board(), entry))
        .collect();
    // A member whose lane (start group) is unknown is not assumed to be on the lead's lane (T4). It
    // therefore stops in the first step, before the lead.
    let is_primary = |entry: &&&LaunchEntry| {
        entry.lead
            || entry
                .lane
                .as_ref()
                .is_some_and(|lane| lane.kind == LaneKind::Primary)
    };
    let secondary: Vec<&LaunchEntry> = running
        .iter()
        .filter(|entry| !is_primary(entry))
        .copied()
        .collect();
    let next_to_stop = if secondary.is_empty() {
        running
    } else {
        secondary
    };
    if next_to_stop.is_empty() {
        draft.record(Event::LaunchChanged(LaunchChanged {
            launch: launch.id,
            stopping: None,
            reconciled_wall: Some(now.unix_ms),
            superseded: false,
            told: None,
        }));
    }
    for entry in next_to_stop {
        stop_member(draft, &entry.agent, &reason);
    }
}

/// Stops a member's session and its work on tasks. The unfinished tasks become available to other
/// agents.
fn stop_member(draft: &mut Draft, agent: &AgentName, reason: &str) {
    let belongs_to_member =
        |attempt: &&Arc<attempt::Attempt>| attempt.agent == *agent && attempt.supervised;
    let running: Vec<_> = draft
        .board()
        .attempts
        .values()
        .filter(belongs_to_member)
        .cloned()
        .collect();
    for attempt in running {
        attempt::stop(
            draft,
            attempt.id,
            attempt::AttemptCause::Stopped,
            reason.to_owned(),
        );
        if attempt.session_of.is_none()
            && attempt.stopping.is_none()
            && draft.board().tasks.contains_key(&attempt.task)
        {
            let returned = task::return_for_retry(draft, attempt.task, reason);
            debug_assert!(returned.is_ok(), "a running task can be returned");
        }
    }
}

/// Launches a team again with its current settings. If the team runs, stops it first and returns
/// `None`; the launch follows when the stop is complete.
pub fn relaunch(draft: &mut Draft, name: &TeamName, now: Now) -> Result<Option<LaunchId>, Refusal> {
    let team = team::find(draft.board(), name)?;
    if !is_up(draft.board(), &team) {
        return begin(draft, name, &[], now).map(Some);
    }
    // Refuse an invalid list of members now, so that the team is not stopped without being launched
    // again.
    let policy = team::lane_policy(draft.board(), &team);
    let roster = PlannedRoster::new(draft.board(), &team, &policy);
    lane::plan(&roster.lead, &roster.members, &policy)
        .map_err(|problems| team::roster_refusal(&problems))?;
    team::set_launch(draft, name, team.launch.unwrap_or_default(), true);
    request_stop(draft, &team, "it is launched again");
    Ok(None)
}

/// Launches a team again after its stop is complete, if a relaunch was requested.
pub(crate) fn relaunch_if_requested(
    draft: &mut Draft,
    id: LaunchId,
    now: Now,
) -> Result<(), Refusal> {
    let Some(launch) = draft.board().launches.get(&id).cloned() else {
        return Ok(());
    };
    let Some(team) = draft.board().teams.get(&launch.team).cloned() else {
        return Ok(());
    };
    if team.relaunch_after_stop && team.launch == Some(id) && !is_up(draft.board(), &team) {
        begin(draft, &launch.team, &[], now)?;
    }
    Ok(())
}
