//! A project is a git repository that Regatta manages. Its finished work is merged into one branch,
//! the trunk.
//!
//! The types of a project's settings are in `project/settings.rs`. Not here: reading the settings
//! file `regatta.toml` and accessing the repository, which other crates do.

mod duration; // durations as people write them
mod settings; // the settings of regatta.toml

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::collision_forecast::CollisionForecast;
use crate::event::{Event, facts};
use crate::hook;
use crate::ids::{BranchName, Now, ProjectName};
use crate::landing::QueueRecord;
use crate::message_router::RouterState;
use crate::refusal::Refusal;

pub use duration::Millis;
pub use settings::{
    CheckoutPolicy, CommitGrouping, CommitStyle, ConflictPolicy, DerivedFile, EscapePolicy,
    KnowledgeSettings, LandConfirmation, LandingSettings, LeadSettings, NotNeededPolicy,
    NotifySettings, ProjectSettings, QueueMode, ReviewPolicy, RouterSettings, RuleAction,
    RunSettings, StandingRule, TriagePolicy, UnansweredPolicy, VerifyMode, WorkspaceSettings,
};

/// A git repository that Regatta manages, with its settings and the state of its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    pub name: ProjectName,
    /// Path of the repository, as the engine passed it in. This crate never opens the path and only
    /// compares it with other locations.
    pub location: String,
    pub trunk: BranchName,
    /// Commands that must succeed on finished work before it is merged into the trunk.
    pub validation: Vec<String>,
    /// Maximum duration of each command of `validation`.
    pub validation_timeout_ms: u64,
    #[serde(default, skip_serializing_if = "ProjectSettings::is_default")]
    pub settings: ProjectSettings,
    /// State of the project's landing queue: the finished work that waits to be merged into the
    /// trunk.
    #[serde(default, skip_serializing_if = "QueueRecord::is_default")]
    pub queue: QueueRecord,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    /// Pairs of unfinished work that would conflict when merged, as found by the last scan.
    #[serde(default, skip_serializing_if = "CollisionForecast::is_default")]
    #[serde(rename = "radar")]
    pub collision_forecast: CollisionForecast,
    /// State of the project's router, which reads requests such as `!mission` in messages.
    #[serde(default, skip_serializing_if = "RouterState::is_default")]
    #[serde(rename = "intake")]
    pub router_state: RouterState,
}

facts! {
    ProjectAdded { project: Arc<Project> }
    ProjectChanged { project: Arc<Project> }
    ProjectRemoved { project: ProjectName }
}

/// A request to add a project or to update its settings; see [`add`] and [`change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddProject {
    pub name: ProjectName,
    pub location: String,
    pub trunk: BranchName,
    pub validation: Vec<String>,
    pub validation_timeout_ms: u64,
    #[serde(default, skip_serializing_if = "ProjectSettings::is_default")]
    pub settings: ProjectSettings,
}

/// A request to remove a project; see [`remove`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveProject {
    pub name: ProjectName,
}

/// Checks that the numbers in a project's settings are in their permitted ranges.
fn check(settings: &ProjectSettings) -> Result<(), Refusal> {
    let within = |name: &str, value: u32, max: u32| {
        if (1..=max).contains(&value) {
            return Ok(());
        }
        Err(Refusal::invalid(
            format!("{name} must be 1 to {max}, not {value}"),
            "set a number in that range in regatta.toml",
        ))
    };
    within("leads.max_leads", settings.leads.max_leads, 100)?;
    within("leads.max_workers", settings.leads.max_workers, 64)?;
    within("leads.max_children", settings.leads.max_children, 1_000)?;
    within("router.max_answers", settings.router.max_answers, 20)
}

/// Adds a project, or updates the settings of a project that was added before. The repository must
/// not belong to another project.
pub fn add(draft: &mut Draft, request: AddProject, now: Now) -> Result<ProjectName, Refusal> {
    if let Some(other) = draft
        .board()
        .projects
        .values()
        .find(|project| project.location == request.location && project.name != request.name)
    {
        return Err(Refusal::InUse {
            what: format!("the repository {}", request.location),
            by: format!("project {}", other.name),
        });
    }
    check(&request.settings)?;
    let known = draft.board().projects.get(&request.name).cloned();
    let project = Project {
        name: request.name,
        location: request.location,
        trunk: request.trunk,
        validation: request
            .validation
            .into_iter()
            .filter(|validation| !validation.trim().is_empty())
            .collect(),
        validation_timeout_ms: request.validation_timeout_ms.clamp(1_000, 24 * 3_600_000),
        settings: request.settings,
        queue: known
            .as_ref()
            .map(|project| project.queue.clone())
            .unwrap_or_default(),
        created_unix_ms: known
            .as_ref()
            .map_or(now.unix_ms, |project| project.created_unix_ms),
        collision_forecast: known
            .as_ref()
            .map_or_else(CollisionForecast::default, |project| {
                project.collision_forecast.clone()
            }),
        router_state: known
            .as_ref()
            .map_or_else(RouterState::default, |project| project.router_state.clone()),
    };
    let name = project.name.clone();
    match known {
        Some(known) if *known == project => {}
        Some(known) if known.location != project.location => {
            return Err(Refusal::AlreadyExists {
                what: format!("project {name} ({})", known.location),
            });
        }
        Some(_) => draft.record(Event::ProjectChanged(ProjectChanged {
            project: project.into(),
        })),
        None => draft.record(Event::ProjectAdded(ProjectAdded {
            project: project.into(),
        })),
    }
    Ok(name)
}

/// Updates the settings of a known project, or refuses if there is no project with this name.
pub fn change(draft: &mut Draft, request: AddProject, now: Now) -> Result<ProjectName, Refusal> {
    if !draft.board().projects.contains_key(&request.name) {
        return Err(Refusal::NoSuchProject {
            project: request.name,
        });
    }
    add(draft, request, now)
}

/// Removes a project from Regatta, with its hooks. Refuses if it has an unfinished task, mission,
/// landing, team or conversation. The repository and the records of ended work stay.
pub fn remove(draft: &mut Draft, name: &ProjectName) -> Result<(), Refusal> {
    let board = draft.board();
    if !board.projects.contains_key(name) {
        return Err(Refusal::NoSuchProject {
            project: name.clone(),
        });
    }
    let task = || {
        board
            .tasks
            .values()
            .find(|task| task.project == *name)
            .map(|task| task.id.to_string())
    };
    let mission = || {
        board
            .missions
            .values()
            .find(|mission| mission.project == *name)
            .map(|mission| mission.id.to_string())
    };
    let landing = || {
        board
            .landings
            .values()
            .find(|landing| landing.project == *name)
            .map(|landing| landing.id.to_string())
    };
    let team = || {
        let mut teams = board
            .teams
            .values()
            .filter(|team| team.project == *name && team.deleted_unix_ms.is_none());
        teams.next().map(|team| format!("team {}", team.name))
    };
    let conversation = || {
        board
            .conversations
            .values()
            .find(|conversation| conversation.project == *name)
            .map(|conversation| conversation.id.to_string())
    };
    let open_item = task()
        .or_else(mission)
        .or_else(landing)
        .or_else(team)
        .or_else(conversation);
    if let Some(by) = open_item {
        return Err(Refusal::InUse {
            what: format!("project {name}"),
            by,
        });
    }
    let project_hooks = board
        .hooks
        .values()
        .filter(|hook| hook.project.as_ref() == Some(name));
    let hooks: Vec<_> = project_hooks.map(|hook| hook.id).collect();
    let failed: Vec<_> = board
        .failed
        .values()
        .filter(|task| task.project == *name)
        .map(|task| task.id)
        .collect();
    for id in hooks {
        hook::remove(draft, id)?;
    }
    for id in failed {
        crate::inbox::dismiss(draft, id)?;
    }
    draft.record(Event::ProjectRemoved(ProjectRemoved {
        project: name.clone(),
    }));
    Ok(())
}
