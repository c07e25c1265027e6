//! Teams: a lead and its members, as a person asked for them. This module has the desired state
//! only.
//!
//! The launch ([`crate::launch`]) has the resolved state, and the attempts are the live state. None
//! of the three is inferred from the absence of another: a team that was never launched has no
//! launch, and a launch that lost its lanes reports that.

mod checks; // checks of a team before it is recorded

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{SandboxLevel, SecretVariable};
use crate::board::{Board, Draft};
use crate::command::CommandOutcome;
use crate::event::{Event, facts};
use crate::ids::{AgentName, LaunchId, MemberName, Now, ProjectName, TeamName};

use crate::lane::{self, LaneSettings, PlannedMember};
use crate::launch::{self, TeamLaunch};
use crate::provider_name;
use crate::refusal::Refusal;
use crate::unknown_fields::UnknownFields;

pub(crate) use checks::roster_refusal;
use checks::{check, check_spelling};

/// The separation of a member from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberIsolation {
    /// The member works in a workspace of its own, as all agents do.
    #[default]
    Worktree,
}

/// A member of a team with its desired settings. An omitted setting is the lead's or the provider's
/// default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamMember {
    pub name: MemberName,
    /// Purpose of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Instructions for its way of working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<MemberIsolation>,
    /// Provider, such as anthropic, codex, gemini or opencode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Preset of the program that drives it. On the primary lane it is the lead's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Fast mode. On the primary lane it is the lead's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// Directory of its workspace in which it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Name of its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Maximum number of simultaneous tasks; 1 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Steps of a scripted member, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TeamMember {
    /// The names of a member's fields.
    pub const FIELDS: &[&str] = &[
        "name",
        "role",
        "workflow",
        "isolation",
        "provider",
        "backend",
        "model",
        "effort",
        "fast_mode",
        "cwd",
        "environment",
        "max_tasks",
        "script",
    ];

    /// Returns a member with this name and no other setting.
    pub fn named(name: MemberName) -> TeamMember {
        TeamMember {
            name,
            role: None,
            workflow: None,
            isolation: None,
            provider: None,
            backend: None,
            model: None,
            effort: None,
            fast_mode: None,
            cwd: None,
            environment: None,
            max_tasks: None,
            script: None,
            extra: UnknownFields::new(),
        }
    }
}

/// A named environment: variables, keys, arguments and access rights of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamEnvironment {
    /// Plain variables, which must not be secret.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secrets, by their source.
    #[serde(default)]
    pub keys: Vec<SecretVariable>,
    /// More arguments for the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// The program's own permission mode, where it offers several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Sandbox level; if omitted, the strongest that this machine supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "confine")]
    pub sandbox: Option<SandboxLevel>,
    /// Hosts that it may reach; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// More paths that it may read, absolute or under `~`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// More paths that it may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TeamEnvironment {
    /// The names of an environment's fields.
    pub const FIELDS: &[&str] = &[
        "env", "keys", "args", "mode", "confine", "egress", "read", "write",
    ];
}

/// A team with its desired settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Team {
    pub name: TeamName,
    pub project: ProjectName,
    pub lead: TeamMember,
    #[serde(default)]
    pub members: Vec<TeamMember>,
    #[serde(default)]
    pub environments: BTreeMap<String, TeamEnvironment>,
    /// Its latest launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// The team is launched again as soon as it has stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "again")]
    pub relaunch_after_stop: bool,
    /// Time of its deletion. A deleted team can be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "deleted_wall")]
    pub deleted_unix_ms: Option<u64>,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl Team {
    /// Returns all members, the lead first.
    pub fn roster(&self) -> impl Iterator<Item = &TeamMember> {
        std::iter::once(&self.lead).chain(&self.members)
    }

    /// Returns the member with this name.
    pub fn member(&self, name: &MemberName) -> Option<&TeamMember> {
        self.roster().find(|member| member.name == *name)
    }

    /// Returns a member's provider, or the lead's if the member names none, by the provider's own
    /// name.
    pub fn provider<'a>(&'a self, member: &'a TeamMember) -> &'a str {
        let written = member
            .provider
            .as_deref()
            .or(self.lead.provider.as_deref())
            .unwrap_or_default();
        provider_name::canonical(written)
    }

    /// Returns the lead and the members as the planner needs them.
    pub fn planned_members(&self) -> (PlannedMember, Vec<PlannedMember>) {
        let planned = |member: &TeamMember| PlannedMember {
            name: member.name.clone(),
            provider: self.provider(member).to_owned(),
        };
        (
            planned(&self.lead),
            self.members.iter().map(planned).collect(),
        )
    }

    /// Returns the agents that take tasks: all members except the lead. A lead without members
    /// takes tasks itself.
    pub fn workers(&self) -> Vec<AgentName> {
        let all = if self.members.is_empty() {
            std::slice::from_ref(&self.lead)
        } else {
            &self.members
        };
        all.iter().map(|member| self.agent(&member.name)).collect()
    }

    /// Returns the agent name of a member.
    pub fn agent(&self, name: &MemberName) -> AgentName {
        AgentName::new(&format!("{}/{name}", self.name)).expect("two checked names make an agent's")
    }
}

facts! {
    TeamCreated { team: Arc<Team> }
    /// The desired settings or the latest launch changed.
    TeamChanged { team: Arc<Team> }
}

/// A team to add with [`create`]; also the content of `team.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateTeam {
    pub name: TeamName,
    pub project: ProjectName,
    pub lead: TeamMember,
    #[serde(default)]
    pub members: Vec<TeamMember>,
    #[serde(default)]
    pub environments: BTreeMap<String, TeamEnvironment>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Changes to a team; see [`edit`]. Each given field replaces the old one as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EditTeam {
    pub lead: Option<TeamMember>,
    pub members: Option<Vec<TeamMember>>,
    pub environments: Option<BTreeMap<String, TeamEnvironment>>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A backup of a team in a file: its settings and its latest launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamBackup {
    pub team: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<TeamLaunch>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// The commands about teams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
#[allow(
    clippy::large_enum_variant,
    reason = "few are under way at once, and none is kept"
)]
pub enum TeamCommand {
    Create(CreateTeam),
    Edit {
        team: TeamName,
        edit: EditTeam,
    },
    Delete {
        team: TeamName,
    },
    Undelete {
        team: TeamName,
    },
    Restore {
        backup: TeamBackup,
    },
    Launch {
        team: TeamName,
        /// Members to leave out of this launch.
        left_out: Vec<MemberName>,
    },
    /// Stops a team if it runs, and launches it again with its current settings.
    Relaunch {
        team: TeamName,
    },
    Stop {
        team: TeamName,
        reason: String,
    },
    /// Retries the lane of a member that did not come up or is down.
    Retry {
        team: TeamName,
        member: MemberName,
    },
}

/// Carries out a command about teams.
pub(crate) fn run(
    draft: &mut Draft,
    request: TeamCommand,
    now: Now,
) -> Result<CommandOutcome, Refusal> {
    match request {
        TeamCommand::Create(request) => {
            return Ok(CommandOutcome::Team(create(draft, request, now)?));
        }
        TeamCommand::Edit {
            team,
            edit: request,
        } => edit(draft, &team, request, now)?,
        TeamCommand::Delete { team } => delete(draft, &team, now)?,
        TeamCommand::Undelete { team } => undelete(draft, &team, now)?,
        TeamCommand::Restore { backup } => {
            return Ok(CommandOutcome::Team(restore(draft, backup, now)?));
        }
        TeamCommand::Launch { team, left_out } => {
            return Ok(CommandOutcome::Launched(Some(launch::begin(
                draft, &team, &left_out, now,
            )?)));
        }
        TeamCommand::Relaunch { team } => {
            return Ok(CommandOutcome::Launched(launch::relaunch(
                draft, &team, now,
            )?));
        }
        TeamCommand::Stop { team, reason } => launch::stop(draft, &team, &reason)?,
        TeamCommand::Retry { team, member } => launch::retry(draft, &team, &member, now)?,
    }
    Ok(CommandOutcome::Done)
}

/// Adds a team. An equal existing team is left unchanged.
pub fn create(draft: &mut Draft, request: CreateTeam, now: Now) -> Result<TeamName, Refusal> {
    let team = Team {
        name: request.name,
        project: request.project,
        lead: request.lead,
        members: request.members,
        environments: request.environments,
        launch: None,
        relaunch_after_stop: false,
        deleted_unix_ms: None,
        created_unix_ms: now.unix_ms,
        updated_unix_ms: now.unix_ms,
        extra: request.extra,
    };
    check_spelling(draft.board(), &team)?;
    check(draft.board(), &team)?;
    let name = team.name.clone();
    if let Some(existing) = draft.board().teams.get(&name) {
        if existing.deleted_unix_ms.is_some() {
            return Err(Refusal::invalid(
                format!("team {name} was deleted, and its name is reserved for it"),
                format!("bring it back, or choose another name: regatta team undelete {name}"),
            ));
        }
        let same = has_same_settings(existing, &team);
        return if same {
            Ok(name)
        } else {
            Err(Refusal::AlreadyExists {
                what: format!("team {name}"),
            })
        };
    }
    draft.record(Event::TeamCreated(TeamCreated { team: team.into() }));
    Ok(name)
}

/// Returns whether two teams have the same desired settings.
fn has_same_settings(left: &Team, right: &Team) -> bool {
    (
        &left.project,
        &left.lead,
        &left.members,
        &left.environments,
        &left.extra,
    ) == (
        &right.project,
        &right.lead,
        &right.members,
        &right.environments,
        &right.extra,
    )
}

/// Changes a team's settings. Changes to the roster of a mixed team that runs are refused, because
/// the launch has fixed the owners of its lanes.
pub fn edit(
    draft: &mut Draft,
    name: &TeamName,
    request: EditTeam,
    now: Now,
) -> Result<(), Refusal> {
    let existing = find(draft.board(), name)?;
    let mut team = Team::clone(&existing);
    team.lead = request.lead.unwrap_or(team.lead);
    team.members = request.members.unwrap_or(team.members);
    team.environments = request.environments.unwrap_or(team.environments);
    team.extra.extend(request.extra);
    check_spelling(draft.board(), &team)?;
    check(draft.board(), &team)?;
    if launch::is_up(draft.board(), &existing)
        && (is_mixed(draft.board(), &existing) || is_mixed(draft.board(), &team))
    {
        let changes = roster_changes(&existing, &team);
        if !changes.is_empty() {
            return Err(Refusal::TeamRuns {
                team: name.clone(),
                cannot: changes.join(", "),
            });
        }
    }
    if !has_same_settings(&existing, &team) {
        team.updated_unix_ms = now.unix_ms;
        draft.record(Event::TeamChanged(TeamChanged { team: team.into() }));
    }
    Ok(())
}

/// The part of a member's settings that matters while it runs.
#[derive(PartialEq)]
struct MemberRun {
    settings: TeamMember,
    provider: String,
    environment: Option<TeamEnvironment>,
}

/// Returns the changes that affect the members that run or their settings. A changed role or
/// workflow does not count.
fn roster_changes(before: &Team, after: &Team) -> Vec<String> {
    let run_of = |team: &Team, member: &TeamMember| {
        let settings = TeamMember {
            role: None,
            workflow: None,
            extra: UnknownFields::new(),
            ..member.clone()
        };
        MemberRun {
            settings,
            provider: team.provider(member).to_owned(),
            environment: member
                .environment
                .as_ref()
                .and_then(|environment| team.environments.get(environment))
                .cloned(),
        }
    };
    let mut found = Vec::new();
    for member in after.roster() {
        match before.member(&member.name) {
            None => found.push(format!("add {}", member.name)),
            Some(old) => {
                let (old, new) = (run_of(before, old), run_of(after, member));
                if old.provider != new.provider {
                    found.push(format!(
                        "move {} from {} to {}",
                        member.name, old.provider, new.provider
                    ));
                } else if old != new {
                    found.push(format!("change how {} runs", member.name));
                }
            }
        }
    }
    let removed = before
        .roster()
        .filter(|member| after.member(&member.name).is_none());
    found.extend(removed.map(|member| format!("remove {}", member.name)));
    if found.is_empty() && before.lead.name != after.lead.name {
        found.push(format!("let {} lead", after.lead.name));
    }
    found
}

/// Returns whether a team has secondary lanes, by its plan or its latest launch.
fn is_mixed(board: &Board, team: &Team) -> bool {
    let (lead, members) = team.planned_members();
    let planned = lane::plan(&lead, &members, &lane_policy(board, team))
        .is_ok_and(|plan| plan.mix == lane::TeamMix::Mixed);
    planned || launch::latest_launch(board, team).is_some_and(|launch| launch.is_mixed())
}

/// Marks a team as deleted. It can be restored unchanged.
pub fn delete(draft: &mut Draft, name: &TeamName, now: Now) -> Result<(), Refusal> {
    let existing = find(draft.board(), name)?;
    if launch::is_up(draft.board(), &existing) {
        return Err(Refusal::TeamRuns {
            team: name.clone(),
            cannot: "delete it".into(),
        });
    }
    let team = Team {
        deleted_unix_ms: Some(now.unix_ms),
        updated_unix_ms: now.unix_ms,
        ..Team::clone(&existing)
    };
    draft.record(Event::TeamChanged(TeamChanged { team: team.into() }));
    Ok(())
}

/// Restores a deleted team without launching it.
pub fn undelete(draft: &mut Draft, name: &TeamName, now: Now) -> Result<(), Refusal> {
    let Some(existing) = draft.board().teams.get(name).cloned() else {
        return Err(Refusal::NoSuchTeam { team: name.clone() });
    };
    if existing.deleted_unix_ms.is_some() {
        let team = Team {
            deleted_unix_ms: None,
            updated_unix_ms: now.unix_ms,
            ..Team::clone(&existing)
        };
        draft.record(Event::TeamChanged(TeamChanged { team: team.into() }));
    }
    Ok(())
}

/// Restores a team from a backup file: the settings of the file, and the more complete of the two
/// launch records.
pub fn restore(draft: &mut Draft, backup: TeamBackup, now: Now) -> Result<TeamName, Refusal> {
    let TeamBackup { team, launch, .. } = backup;
    check(draft.board(), &team)?;
    let existing = draft.board().teams.get(&team.name).cloned();
    if let Some(existing) = &existing
        && launch::is_up(draft.board(), existing)
    {
        return Err(Refusal::TeamRuns {
            team: team.name.clone(),
            cannot: "put an older one in its place".into(),
        });
    }
    let name = team.name.clone();
    let last_launch = existing.as_ref().and_then(|team| team.launch);
    let team = Team {
        launch: last_launch,
        relaunch_after_stop: false,
        updated_unix_ms: now.unix_ms,
        ..team
    };
    draft.record(match existing {
        None => Event::TeamCreated(TeamCreated { team: team.into() }),
        Some(_) => Event::TeamChanged(TeamChanged { team: team.into() }),
    });
    if let Some(record) = launch {
        launch::restore(draft, &name, record, now)?;
    }
    Ok(name)
}

/// Records a team's latest launch, and if it is launched again after a stop.
pub(crate) fn set_launch(draft: &mut Draft, name: &TeamName, launch: LaunchId, again: bool) {
    if let Some(team) = draft.board().teams.get(name) {
        let team = Team {
            launch: Some(launch),
            relaunch_after_stop: again,
            ..Team::clone(team)
        };
        draft.record(Event::TeamChanged(TeamChanged { team: team.into() }));
    }
}

/// Returns the team with this name, unless it was deleted.
pub fn find(board: &Board, name: &TeamName) -> Result<Arc<Team>, Refusal> {
    let existing = board
        .teams
        .get(name)
        .filter(|team| team.deleted_unix_ms.is_none());
    existing
        .cloned()
        .ok_or_else(|| Refusal::NoSuchTeam { team: name.clone() })
}

/// Returns the launched members of a running team that can take a mission's tasks.
pub fn workers(
    board: &Board,
    name: &TeamName,
    project: &ProjectName,
) -> Result<Vec<AgentName>, Refusal> {
    let team = find(board, name)?;
    if team.project != *project {
        return Err(Refusal::invalid(
            format!("{name} is a team of {}, and not of {project}", team.project),
            "name a team of this project: regatta team list",
        ));
    }
    let up: Vec<AgentName> = team
        .workers()
        .into_iter()
        .filter(|agent| board.agents.contains_key(agent))
        .collect();
    if up.is_empty() || !launch::is_up(board, &team) {
        return Err(Refusal::invalid(
            format!("team {name} is not up, or none of its members takes tasks"),
            format!("launch it: regatta team launch {name}"),
        ));
    }
    Ok(up)
}

/// Returns the lane policy of a team's project.
pub fn lane_policy(board: &Board, team: &Team) -> LaneSettings {
    board
        .projects
        .get(&team.project)
        .map(|project| project.settings.lanes.clone())
        .unwrap_or_default()
}
