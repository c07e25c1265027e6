//! Describes launches of teams in words for people. Members that start after the lead, on lanes
//! (start groups) of their own, are said to "attach"; members that start with the lead are
//! "starting" or "joining".

use crate::board::Board;
use crate::display;
use crate::lane;
use crate::team::{self, Team};

use super::recovery::{self, LaneKnowledge};
use super::{LaunchEntry, LaunchOutcome, LaunchPhase, MemberState, TeamLaunch, latest_launch};

/// Describes a team member's state in a few words, with the reason if it does not run.
pub fn describe(entry: &LaunchEntry) -> String {
    let label = display::launch_entry_display(entry).label;
    let is_secondary = entry.is_on_secondary_lane();
    match (entry.state, &entry.cause) {
        (MemberState::Queued, _) if is_secondary && !entry.lead => {
            format!("{label}, once the lead is up")
        }
        (MemberState::PendingPermission, _) => format!("{label}: it asks for a permission"),
        (
            MemberState::FailedToStart | MemberState::Skipped | MemberState::Degraded,
            Some(cause),
        ) => format!("{label}: {}", cause.text),
        _ => label.to_owned(),
    }
}

/// Describes a launch's state in one sentence. `missing_lanes` is the reason why the record is
/// incomplete, if it is.
pub(super) fn headline(launch: &TeamLaunch, missing_lanes: Option<&str>) -> String {
    if let Some(missing_lanes) = missing_lanes {
        return format!("degraded: {missing_lanes}; relaunch the team");
    }
    let up = launch
        .members
        .iter()
        .filter(|entry| entry.state == MemberState::Alive)
        .count();
    let count = format!("{up} of {} alive", launch.members.len());
    if launch.stopping.is_some() {
        return format!("stopping, {count}");
    }
    let name_members = |entries: Vec<&LaunchEntry>, activity: &str| {
        let names: Vec<&str> = entries
            .iter()
            .take(3)
            .map(|entry| entry.name.as_str())
            .collect();
        let more = if entries.len() > 3 {
            format!(" and {} more", entries.len() - 3)
        } else {
            String::new()
        };
        let verb = if entries.len() == 1 { "is" } else { "are" };
        format!("{}{more} {verb} {activity}", names.join(", "))
    };
    let all = |pick: &dyn Fn(&LaunchEntry) -> bool| {
        launch
            .members
            .iter()
            .filter(|entry| pick(entry))
            .collect::<Vec<_>>()
    };
    let mut parts = vec![count];
    let attaching = all(&|entry| entry.state.is_pending() && entry.is_on_secondary_lane());
    let starting = all(&|entry| entry.state.is_pending() && !entry.is_on_secondary_lane());
    let failed = all(&|entry| {
        matches!(
            entry.state,
            MemberState::FailedToStart | MemberState::Degraded
        )
    });
    let skipped = all(&|entry| entry.state == MemberState::Skipped);
    if up == 0
        && launch
            .members
            .iter()
            .any(|entry| entry.state == MemberState::Stopped)
        && launch.phase() != LaunchPhase::Active
    {
        parts = vec!["stopped".to_owned()];
    }
    let label = |state| display::member_entry_display(state).label;
    for (entries, activity) in [
        (starting, label(MemberState::Starting)),
        (attaching, display::ATTACHING),
        (failed, label(MemberState::Degraded)),
        (skipped, label(MemberState::Skipped)),
    ] {
        if !entries.is_empty() {
            parts.push(name_members(entries, activity));
        }
    }
    parts.join("; ")
}

impl LaunchPhase {
    /// Returns the phase's name in the API, such as `active`.
    pub fn name(self) -> &'static str {
        match self {
            LaunchPhase::Active => "active",
            LaunchPhase::Finished => "finished",
            LaunchPhase::Reconciled => "reconciled",
        }
    }
}

impl LaunchOutcome {
    /// Returns the outcome's name in the API, such as `clean_success`.
    pub fn name(self) -> &'static str {
        match self {
            LaunchOutcome::CleanSuccess => "clean_success",
            LaunchOutcome::PartialPending => "partial_pending",
            LaunchOutcome::PartialFailure => "partial_failure",
            LaunchOutcome::PartialSkipped => "partial_skipped",
        }
    }
}

/// Explains in lines for people how the members of a team are or would be started: the requested
/// settings, the planned lanes (start groups), the record in use, and each member's lane, state and
/// evidence.
pub fn explain(board: &Board, team: &Team) -> Vec<String> {
    let policy = team::lane_policy(board, team);
    let (lead, members) = team.planned_members();
    let mut lines = vec![
        format!("team {} of project {}", team.name, team.project),
        "wanted:".to_owned(),
    ];
    for member in team.roster() {
        let setting = |name: &str, value: Option<String>| {
            value
                .map(|value| format!(" {name} {value}"))
                .unwrap_or_default()
        };
        lines.push(format!(
            "  {} {}: provider {}{}{}{}{}{}{}",
            if member.name == team.lead.name {
                "lead"
            } else {
                "member"
            },
            member.name,
            team.provider(member),
            setting("backend", member.backend.clone()),
            setting("model", member.model.clone()),
            setting("effort", member.effort.clone()),
            setting(
                "fast mode",
                member
                    .fast_mode
                    .map(|fast_mode| if fast_mode { "on" } else { "off" }.to_owned())
            ),
            setting("environment", member.environment.clone()),
            setting("cwd", member.cwd.clone()),
        ));
    }
    lines.push("lanes according to the present settings:".to_owned());
    match lane::plan(&lead, &members, &policy) {
        Ok(plan) => lines.extend(
            lane::explain(&lead, &members, &plan)
                .into_iter()
                .map(|s| format!("  {s}")),
        ),
        Err(objections) => {
            lines.extend(
                objections
                    .iter()
                    .map(|problem| format!("  refused: {problem}; {}", problem.hint())),
            );
        }
    }
    let Some(launch) = latest_launch(board, team) else {
        lines.push("never launched".to_owned());
        return lines;
    };
    lines.push(format!(
        "launch {} at revision {}: {} {}",
        launch.id,
        launch.revision,
        launch.phase().name(),
        launch.outcome().name()
    ));
    if let LaneKnowledge::Missing(reason) = recovery::lane_knowledge(team, launch, &policy) {
        lines.push(format!("  degraded: {reason}; relaunch the team"));
    }
    let names: Vec<&str> = launch
        .bootstrap_expected_members
        .iter()
        .map(|member| member.as_str())
        .collect();
    lines.push(format!(
        "  the primary lane starts with {}",
        names.join(", ")
    ));
    for entry in &launch.members {
        let lane = entry
            .lane
            .as_ref()
            .map_or("lane unknown".to_owned(), |lane| {
                format!("lane {} ({})", lane.id, lane.owner)
            });
        lines.push(format!("  {}: {lane}, {}", entry.name, describe(entry)));
        lines.extend(entry.notes.iter().map(|note| format!("    {note}")));
        lines.extend(
            entry
                .evidence
                .iter()
                .map(|evidence| format!("    {}", evidence.text)),
        );
    }
    lines
}
