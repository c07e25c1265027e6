//! Projects: git repositories under management, each with a trunk.

mod settings; // what regatta.toml says
mod span; // lengths of time as people write them

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::{BranchName, Now, ProjectName};
use crate::landing::Record;
use crate::radar::Radar;
use crate::refusal::Refusal;
use crate::route::Intake;

pub use settings::{
    Checkout, Commits, Derived, Knowledge, Landing, Leads, NotNeeded, Notify, OnConflict, OnEscape, QueueMode, Review,
    Router, RuleAction, Run, Settings, StandingRule, Style, Triage, Unanswered, Verify, Workspace,
};
pub use span::Span;

/// A repository under management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    pub name: ProjectName,
    /// Where the repository is. Core only compares it; the shell knows what it means.
    pub location: String,
    pub trunk: BranchName,
    /// Commands that must pass on every tree that lands.
    pub validation: Vec<String>,
    /// How long one such command may take, in milliseconds.
    pub validation_timeout_ms: u64,
    #[serde(default, skip_serializing_if = "Settings::is_default")]
    pub settings: Settings,
    /// What its landing queue remembers.
    #[serde(default, skip_serializing_if = "Record::is_default")]
    pub queue: Record,
    pub created_wall: u64,
    /// Work in progress that will collide.
    #[serde(default, skip_serializing_if = "Radar::is_default")]
    pub radar: Radar,
    /// What its router has taken in.
    #[serde(default, skip_serializing_if = "Intake::is_default")]
    pub intake: Intake,
}

facts! {
    Added { project: Arc<Project> }
    Changed { project: Arc<Project> }
}

/// What is asked of [`add`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Add {
    pub name: ProjectName,
    pub location: String,
    pub trunk: BranchName,
    pub validation: Vec<String>,
    pub validation_timeout_ms: u64,
    #[serde(default, skip_serializing_if = "Settings::is_default")]
    pub settings: Settings,
}

/// Whether what is set can be kept to.
fn check(settings: &Settings) -> Result<(), Refusal> {
    let within = |name: &str, it: u32, most: u32| match (1..=most).contains(&it) {
        true => Ok(()),
        false => Err(Refusal::invalid(format!("{name} is 1 to {most}, not {it}"), "give a number in that range")),
    };
    within("leads.max_leads", settings.leads.max_leads, 100)?;
    within("leads.max_workers", settings.leads.max_workers, 64)?;
    within("leads.max_children", settings.leads.max_children, 1_000)?;
    within("router.max_answers", settings.router.max_answers, 20)
}

/// Adds a project, or brings its settings up to date; the same again changes nothing.
pub fn add(draft: &mut Draft, ask: Add, now: Now) -> Result<ProjectName, Refusal> {
    if let Some(other) = draft.board().projects.values().find(|it| it.location == ask.location && it.name != ask.name) {
        return Err(Refusal::InUse {
            what: format!("the repository {}", ask.location),
            by: format!("project {}", other.name),
        });
    }
    check(&ask.settings)?;
    let known = draft.board().projects.get(&ask.name).cloned();
    let project = Project {
        name: ask.name,
        location: ask.location,
        trunk: ask.trunk,
        validation: ask.validation.into_iter().filter(|it| !it.trim().is_empty()).collect(),
        validation_timeout_ms: ask.validation_timeout_ms.clamp(1_000, 24 * 3_600_000),
        settings: ask.settings,
        queue: known.as_ref().map(|it| it.queue.clone()).unwrap_or_default(),
        created_wall: known.as_ref().map_or(now.wall, |it| it.created_wall),
        radar: known.as_ref().map_or_else(Radar::default, |it| it.radar.clone()),
        intake: known.as_ref().map_or_else(Intake::default, |it| it.intake.clone()),
    };
    let name = project.name.clone();
    match known {
        Some(known) if *known == project => {}
        Some(known) if known.location != project.location => {
            return Err(Refusal::AlreadyThere { what: format!("project {name} ({})", known.location) });
        }
        Some(_) => draft.record(Event::ProjectChanged(Changed { project: project.into() })),
        None => draft.record(Event::ProjectAdded(Added { project: project.into() })),
    }
    Ok(name)
}
