//! A team is a lead agent and its members, which are started and stopped together. This module
//! contains only the settings that a person requested.
//!
//! The settings with which a team was really started are in its launch ([`crate::launch`]), and the
//! programs that run now are in its attempts. Settings, launch and attempts are never guessed from
//! each other: a team that was never launched has no launch, and an incomplete launch record is
//! reported as incomplete.

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

/// The way in which the work of a member is separated from the work of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberIsolation {
    /// The member works in its own workspace, as all agents do.
    #[default]
    Worktree,
}

/// The settings of a team's member or lead, as a person wrote them. An omitted setting is the
/// lead's or the provider's default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamMember {
    pub name: MemberName,
    /// Purpose of the member, such as "reviews database changes".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Instructions for how the member should work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<MemberIsolation>,
    /// Provider, such as anthropic, codex, gemini or opencode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Program that the member runs, as the name of a preset. A member of the lead's provider that
    /// is started with the lead always uses the lead's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Set to use the model's fast mode. A member that is started with the lead always uses the
    /// lead's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// Directory, within the member's workspace, in which its program starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Name of the member's environment in the team's `environments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Maximum number of tasks on which the member works at the same time; 1 if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Steps of the member as JSON, if it is scripted (without a model).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TeamMember {
    /// Names of all fields that a member can have, to find misspelt names.
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

    /// Returns a member with this name whose other settings are omitted.
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

/// Settings with which members' programs are started: variables, keys, arguments and access rights.
/// Members refer to these settings by a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamEnvironment {
    /// Environment variables with their values, which must not be secret.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secret environment variables. For each variable, Regatta stores the place from which the
    /// value is read, but not the value.
    #[serde(default)]
    pub keys: Vec<SecretVariable>,
    /// Additional command-line arguments for the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// The program's own permission mode, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Sandbox in which the program runs; if omitted, the strongest that this machine supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "confine")]
    pub sandbox: Option<SandboxLevel>,
    /// Hosts that the program may connect to; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// Additional paths that the program may read, absolute or beginning with `~`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Additional paths that the program may write, absolute or beginning with `~`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TeamEnvironment {
    /// Names of all fields that an environment can have, to find misspelt names.
    pub const FIELDS: &[&str] = &[
        "env", "keys", "args", "mode", "confine", "egress", "read", "write",
    ];
}

/// A team with the settings that a person asked for.
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
    /// The latest launch of the team; `None` if it was never launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// Set if the team is being stopped and must be launched again when it has stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "again")]
    pub relaunch_after_stop: bool,
    /// Date at which the team was deleted; `None` normally. A deleted team can be restored.
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
    /// Returns the lead and all members, the lead first.
    pub fn roster(&self) -> impl Iterator<Item = &TeamMember> {
        std::iter::once(&self.lead).chain(&self.members)
    }

    /// Returns the lead or member with this name, or `None` if there is none.
    pub fn member(&self, name: &MemberName) -> Option<&TeamMember> {
        self.roster().find(|member| member.name == *name)
    }

    /// Returns a member's provider by its own name. A member that names none has the lead's
    /// provider.
    pub fn provider<'a>(&'a self, member: &'a TeamMember) -> &'a str {
        let written = member
            .provider
            .as_deref()
            .or(self.lead.provider.as_deref())
            .unwrap_or_default();
        provider_name::canonical(written)
    }

    /// Returns the names and providers of the lead and of the members, from which lanes (groups for
    /// the start) are planned.
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

    /// Returns the names of the agents that work on tasks: all members except the lead, or the lead
    /// alone if there are no others.
    pub fn workers(&self) -> Vec<AgentName> {
        let all = if self.members.is_empty() {
            std::slice::from_ref(&self.lead)
        } else {
            &self.members
        };
        all.iter().map(|member| self.agent(&member.name)).collect()
    }

    /// Returns the agent name of a member: `TEAM/MEMBER`.
    pub fn agent(&self, name: &MemberName) -> AgentName {
        AgentName::new(&format!("{}/{name}", self.name)).expect("two checked names make an agent's")
    }
}

facts! {
    TeamCreated { team: Arc<Team> }
    /// The team's settings, its latest launch or its deletion changed; `team` is the whole team
    /// after the change.
    TeamChanged { team: Arc<Team> }
}

/// A request to add a team; see [`create`]. The file `team.toml` has the same content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateTeam {
    /// The name of the team.
    pub name: TeamName,
    /// The project on which the team works.
    pub project: ProjectName,
    /// The settings of the lead.
    pub lead: TeamMember,
    /// The settings of the other members.
    #[serde(default)]
    pub members: Vec<TeamMember>,
    /// Named variables, keys, arguments and sandboxes to which members refer.
    #[serde(default)]
    pub environments: BTreeMap<String, TeamEnvironment>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A request to change a team's settings; see [`edit`]. A given field replaces the old field as a
/// whole, and an omitted field is not changed.
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

/// The content of a team's backup file: its settings and the record of its latest launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamBackup {
    pub team: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<TeamLaunch>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A person's command about a team, such as launching or stopping it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
#[allow(
    clippy::large_enum_variant,
    reason = "few commands exist at once, and none is stored"
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
        /// Members that must not be started in this launch.
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
    /// Starts a member again that failed to start or no longer runs.
    Retry {
        team: TeamName,
        member: MemberName,
    },
}

/// Carries out a person's command about a team, such as launching or stopping it.
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

/// Adds a team. If a team of this name exists with the same settings, nothing changes; with other
/// settings, the request is refused.
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
                format!("team {name} was deleted, and its name is reserved in case it is restored"),
                format!(
                    "choose another name, or restore the deleted team: regatta team undelete \
                    {name}"
                ),
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

/// Returns whether two versions of a team have the same settings. Their names, dates and launches
/// are not compared.
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

/// Changes a team's settings. Some changes are refused while the team runs, if it has members on
/// lanes (start groups) of their own, which are started separately from the lead. These are changes
/// that affect which members run or the settings with which they run.
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

/// The settings of a member that matter while it runs, for comparing two versions of them.
#[derive(PartialEq)]
struct MemberRun {
    settings: TeamMember,
    provider: String,
    environment: Option<TeamEnvironment>,
}

/// Describes the changes between two versions of a team that affect which members run or the
/// settings with which they run. A changed role or workflow does not count.
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

/// Returns whether some members of a team are started on lanes (start groups) of their own and not
/// with the lead, according to the team's settings or its latest launch.
fn is_mixed(board: &Board, team: &Team) -> bool {
    let (lead, members) = team.planned_members();
    let planned = lane::plan(&lead, &members, &lane_policy(board, team))
        .is_ok_and(|plan| plan.mix == lane::TeamMix::Mixed);
    planned || launch::latest_launch(board, team).is_some_and(|launch| launch.is_mixed())
}

/// Marks a team that does not run as deleted. The team can be restored unchanged.
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

/// Restores a team from a backup file. The team gets the settings in the file. If the file and the
/// existing team both have a launch record, the more complete record is used.
pub fn restore(draft: &mut Draft, backup: TeamBackup, now: Now) -> Result<TeamName, Refusal> {
    let TeamBackup { team, launch, .. } = backup;
    check(draft.board(), &team)?;
    let existing = draft.board().teams.get(&team.name).cloned();
    if let Some(existing) = &existing
        && launch::is_up(draft.board(), existing)
    {
        return Err(Refusal::TeamRuns {
            team: team.name.clone(),
            cannot: "restore it from a backup file".into(),
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

/// Records a team's latest launch, and with `again` that the team must be launched again after its
/// stop.
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

/// Returns the team with this name, or a refusal if there is none or it was deleted.
pub fn find(board: &Board, name: &TeamName) -> Result<Arc<Team>, Refusal> {
    let existing = board
        .teams
        .get(name)
        .filter(|team| team.deleted_unix_ms.is_none());
    existing
        .cloned()
        .ok_or_else(|| Refusal::NoSuchTeam { team: name.clone() })
}

/// Returns the agents of a running team that can work on a mission's tasks, or a refusal if the
/// team does not run or belongs to another project.
pub fn workers(
    board: &Board,
    name: &TeamName,
    project: &ProjectName,
) -> Result<Vec<AgentName>, Refusal> {
    let team = find(board, name)?;
    if team.project != *project {
        return Err(Refusal::invalid(
            format!(
                "team {name} belongs to project {}, not to {project}",
                team.project
            ),
            "name a team of this project; see all teams: regatta team list",
        ));
    }
    let up: Vec<AgentName> = team
        .workers()
        .into_iter()
        .filter(|agent| board.agents.contains_key(agent))
        .collect();
    if up.is_empty() || !launch::is_up(board, &team) {
        return Err(Refusal::invalid(
            format!("team {name} does not run, or none of its members works on tasks"),
            format!("launch the team: regatta team launch {name}"),
        ));
    }
    Ok(up)
}

/// Returns the settings of a team's project about lanes (how members are grouped when a team
/// starts).
pub fn lane_policy(board: &Board, team: &Team) -> LaneSettings {
    board
        .projects
        .get(&team.project)
        .map(|project| project.settings.lanes.clone())
        .unwrap_or_default()
}
