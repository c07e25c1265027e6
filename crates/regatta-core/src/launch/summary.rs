//! Computes the summary of a team that every list, page and announcement shows, so that all of them
//! agree (T6).
//!
//! The summary is small for a team of any size, so that no list or page has a reason to compute its
//! own.

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::display;
use crate::ids::{LaunchId, MemberName, ProjectName, TeamName};
use crate::lane::{self, LaneKind, TeamMix};
use crate::team::{self, Team};

use super::recovery::{self, LaneKnowledge};
use super::{
    LaunchOutcome, LaunchPhase, MemberState, describe, latest_launch, live_attempts, messages,
};

/// Maximum size of a team's summary as JSON, even with a hundred failed members.
pub const MAX_SUMMARY_BYTES: usize = 32 * 1024;

/// Maximum length in bytes of a sentence in a team's summary. The "…" at the end of a shortened
/// sentence does not count.
const MAX_SENTENCE_BYTES: usize = 117;

/// The word for a member of a team that was never launched.
const NOT_LAUNCHED: &str = "not launched";

/// One team member in the summary of its team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberSummary {
    pub name: MemberName,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lead: bool,
    /// Kind of the member's lane: started with the lead, or alone after the lead. `None` if this is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneKind>,
    pub provider: String,
    /// State of the member in the latest launch; `None` if the team was never launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<MemberState>,
    /// The word that people see for the member's state.
    pub word: String,
    /// The member's state in words for people, with the reason if it does not run.
    #[serde(rename = "said")]
    pub description: String,
}

/// The state of a team in a few values and one sentence, for lists and pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamSummary {
    pub team: TeamName,
    pub project: ProjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// Revision (event number) of the latest change to the launch record; 0 if the team was never
    /// launched.
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LaunchPhase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<LaunchOutcome>,
    pub mixed: bool,
    pub alive: u32,
    /// Number of members that should run, including the lead.
    pub expected: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Reason why the launch record is incomplete and cannot be trusted; `None` if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The team's state in one sentence.
    #[serde(rename = "said")]
    pub headline: String,
    /// All members, the lead first. The lead is included even if the record has lost its entry.
    pub members: Vec<MemberSummary>,
}

/// Computes the summary of a team from its latest launch, or from its settings if it was never
/// launched.
pub fn summary(board: &Board, team: &Team) -> TeamSummary {
    let policy = team::lane_policy(board, team);
    let launch = latest_launch(board, team);
    let desired_members = || {
        team.roster().map(|member| MemberSummary {
            name: member.name.clone(),
            lead: member.name == team.lead.name,
            lane: None,
            provider: team.provider(member).to_owned(),
            state: None,
            word: NOT_LAUNCHED.to_owned(),
            description: NOT_LAUNCHED.to_owned(),
        })
    };
    let Some(launch) = launch else {
        let (lead, planned_members) = team.planned_members();
        let is_mixed = lane::plan(&lead, &planned_members, &policy)
            .is_ok_and(|plan| plan.mix == TeamMix::Mixed);
        return TeamSummary {
            team: team.name.clone(),
            project: team.project.clone(),
            launch: None,
            revision: 0,
            phase: None,
            outcome: None,
            mixed: is_mixed,
            alive: 0,
            expected: team.roster().count() as u32,
            deleted: team.deleted_unix_ms.is_some(),
            degraded: None,
            headline: match live_attempts(board, team).count() {
                0 => "never launched".to_owned(),
                count => {
                    format!(
                        "degraded: {count} of its attempts run without a record of a launch; stop \
                        the team"
                    )
                }
            },
            members: desired_members().collect(),
        };
    };
    let missing_lanes = match recovery::lane_knowledge(team, launch, &policy) {
        LaneKnowledge::Missing(reason) => Some(reason),
        LaneKnowledge::Known | LaneKnowledge::OnlyPrimary => None,
    };
    let mut members: Vec<MemberSummary> = launch
        .members
        .iter()
        .map(|entry| MemberSummary {
            name: entry.name.clone(),
            lead: entry.lead,
            lane: entry.lane.as_ref().map(|lane| lane.kind),
            provider: entry.effective.provider.clone(),
            state: Some(entry.state),
            word: display::launch_entry_display(entry).label.to_owned(),
            description: plain_line(&describe(entry)),
        })
        .collect();
    // If the record has no entry for the lead, the lead is taken from the team's settings.
    if !members.iter().any(|member| member.lead) {
        members.splice(0..0, desired_members().filter(|member| member.lead));
    }
    // An incomplete launch record does not prove that all members started, so it never counts as a
    // full success.
    let outcome = match launch.outcome() {
        LaunchOutcome::CleanSuccess if missing_lanes.is_some() => LaunchOutcome::PartialPending,
        outcome => outcome,
    };
    TeamSummary {
        team: team.name.clone(),
        project: team.project.clone(),
        launch: Some(launch.id),
        revision: launch.revision,
        phase: Some(launch.phase()),
        outcome: Some(outcome),
        mixed: launch.is_mixed(),
        alive: launch
            .members
            .iter()
            .filter(|entry| entry.state == MemberState::Alive)
            .count() as u32,
        expected: launch.expected_members.len() as u32,
        deleted: team.deleted_unix_ms.is_some(),
        headline: plain_line(&messages::headline(launch, missing_lanes.as_deref())),
        degraded: missing_lanes,
        members,
    }
}

/// Converts a text to one short line without the characters that JSON would escape. The text
/// therefore has the same length in JSON.
fn plain_line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars() {
        let c = match c {
            '"' => '\'',
            '\\' => '/',
            c if c.is_control() => ' ',
            c => c,
        };
        if line.len() + c.len_utf8() > MAX_SENTENCE_BYTES {
            line.push('…');
            break;
        }
        line.push(c);
    }
    line
}
