//! Starts missions with a lead (an agent that gives tasks to workers): handles the request, chooses
//! the agent, queues the mission while too many leads are at work, and makes the agents of the lead
//! and its workers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Role};
use crate::agent_texts::TaskText;
use crate::board::{Board, Draft};
use crate::budget::Spend;
use crate::ids::{AgentName, ChannelName, MessageId, MissionId, Now, ProjectName, TaskId};
use crate::mission::{self, LandedWork, Mission, MissionState, StartMode};
use crate::name_generator::{self, NameLength};
use crate::project::{Millis, Project};
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, Purpose};
use crate::{bus, claim};

use super::{
    Lead, LeadSubject, check_free_task, lose_lead, notify_siblings, open_children,
    post_to_requester, record_lead, remove_idle_agents,
};

/// A person's request for a mission with a lead; see [`request_mission`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeadRequest {
    pub project: ProjectName,
    pub goal: String,
    #[serde(default)]
    #[serde(rename = "about")]
    pub subject: LeadSubject,
    /// Registered agent that should lead; `None` means the agent in the project's settings.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// Message in which the mission was requested, if any. Announcements are replies to it.
    #[serde(default)]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub channel: Option<ChannelName>,
}

/// Maximum length of a mission's goal: 64 KiB.
const MAX_GOAL_BYTES: usize = 64 * 1024;

/// Adds a mission with a lead. The mission starts at once if fewer leads than permitted are at work
/// in the project; otherwise it waits in a queue.
pub fn request_mission(
    draft: &mut Draft,
    request: LeadRequest,
    now: Now,
) -> Result<MissionId, Refusal> {
    let board = draft.board();
    let Some(project) = board.projects.get(&request.project).cloned() else {
        return Err(Refusal::NoSuchProject {
            project: request.project,
        });
    };
    let goal = request.goal.trim();
    if goal.is_empty() || goal.len() > MAX_GOAL_BYTES {
        return Err(Refusal::invalid(
            "the mission's goal is empty or longer than 64 KiB",
            "describe the goal in a few sentences; put the rest into a file of the repository",
        ));
    }
    if let LeadSubject::Task(id) = request.subject {
        check_free_task(board, id, &request.project)?;
    }
    let agent = choose_lead(board, &project, request.agent)?;
    let channel = request
        .channel
        .unwrap_or_else(|| bus::channel_of(&project.name));
    let id = MissionId(board.counters.mission + 1);
    let lead = Lead {
        agent,
        name: None,
        task: None,
        channel,
        message: request.message,
        subject: request.subject,
        news: vec![],
        dropped_news_count: 0,
        has_urgent_news: false,
        children: 0,
        report: None,
        checkpoint_fleet_ms: None,
        last_summary: String::new(),
        deadline_fleet_ms: None,
        lost_reason: None,
    };
    let mission = Mission {
        id,
        project: request.project.clone(),
        title: task::one_line(goal, 120),
        agents: vec![],
        max_workers: project.settings.leads.max_workers,
        mode: StartMode::Flow,
        isolate: false,
        serialised_reason: None,
        wave_commits: false,
        serial: vec![],
        state: MissionState::Queued,
        goal: Some(goal.to_owned()),
        lead: Some(lead),
        result: None,
        landed: LandedWork::default(),
        blocking_gates: vec![],
        spent: Spend::default(),
        created_unix_ms: now.unix_ms,
    };
    mission::begin(draft, mission);
    start_queued_missions(draft, &request.project, now)?;
    if let Some(position) = queue_position(draft.board(), id) {
        let (active_count, max_leads) = (
            led_missions(draft.board(), &request.project).count(),
            project.settings.leads.max_leads,
        );
        let text = format!(
            "{id} waits for a lead: it is number {position} in the queue, and {active_count} of \
             {max_leads} leads are at work. It starts automatically when one ends."
        );
        post_to_requester(draft, id, "spawn-ack", text, now)?;
    }
    Ok(id)
}

/// Returns the missions of a project whose lead is at work now.
pub fn led_missions<'a>(
    board: &'a Board,
    project: &ProjectName,
) -> impl Iterator<Item = &'a Arc<Mission>> {
    let has_lead = |mission: &&Arc<Mission>| {
        mission
            .lead
            .as_ref()
            .is_some_and(|lead| lead.acting_name().is_some())
    };
    board
        .missions
        .values()
        .filter(move |mission| mission.project == *project)
        .filter(has_lead)
}

/// Returns a mission's position in its project's queue of missions that wait for a lead, counted
/// from 1. Returns `None` if the mission does not wait for a lead.
pub fn queue_position(board: &Board, id: MissionId) -> Option<usize> {
    let project = &board.missions.get(&id)?.project;
    queued_missions(board, project)
        .position(|mission| mission.id == id)
        .map(|index| index + 1)
}

/// Returns the missions of a project that wait for a lead, the next to start first.
fn queued_missions<'a>(
    board: &'a Board,
    project: &ProjectName,
) -> impl Iterator<Item = &'a Arc<Mission>> {
    board
        .missions
        .values()
        .filter(move |mission| mission.project == *project && mission.state == MissionState::Queued)
}

/// Chooses the agent whose program will lead a mission: the requested agent, or else the agent in
/// the project's settings. Without either, chooses the only agent with the role of a lead, or the
/// only agent that there is.
pub(crate) fn choose_lead(
    board: &Board,
    project: &Project,
    requested: Option<AgentName>,
) -> Result<AgentName, Refusal> {
    let settings = &project.settings;
    let preferred = requested.or_else(|| settings.leads.agent.clone());
    let first = || {
        settings
            .run
            .agents
            .as_ref()?
            .first()
            .and_then(|agent| AgentName::new(agent).ok())
    };
    if let Some(name) = preferred.or_else(first) {
        let found = agent::find(board, &name)?;
        return match found.derived_from {
            None => Ok(name),
            Some(_) => Err(Refusal::invalid(
                format!("{name} cannot lead, because it was made for one mission and ends with it"),
                "name an agent that a person added; see all: regatta agent list",
            )),
        };
    }
    let mut candidates: Vec<&AgentName> = board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_none())
        .map(|agent| &agent.name)
        .collect();
    let is_lead_agent = |agent: &&&AgentName| {
        board
            .agents
            .get(**agent)
            .is_some_and(|agent| agent.role == Role::Lead)
    };
    if candidates.iter().filter(is_lead_agent).count() == 1 {
        candidates.retain(|agent| is_lead_agent(&agent));
    }
    match candidates.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Refusal::invalid(
            "the mission cannot start, because there is no agent that could lead it",
            "add one: regatta agent add NAME --preset claude, and name it in regatta.toml: \
            [leads] agent = \"NAME\"",
        )),
        _ => Err(Refusal::invalid(
            "several agents could lead, and the settings do not say which one",
            "name one in regatta.toml: [leads] agent = \"NAME\"",
        )),
    }
}

/// Starts the project's missions that wait for a lead, in order, until the permitted number of
/// leads is at work.
pub(crate) fn start_queued_missions(
    draft: &mut Draft,
    project: &ProjectName,
    now: Now,
) -> Result<(), Refusal> {
    loop {
        let board = draft.board();
        let Some(max_leads) = board
            .projects
            .get(project)
            .map(|project| project.settings.leads.max_leads)
        else {
            return Ok(());
        };
        if led_missions(board, project).count() >= max_leads as usize {
            return Ok(());
        }
        let Some(next) = queued_missions(board, project).next().cloned() else {
            return Ok(());
        };
        // A mission that can no longer start is marked as without a lead, so that it does not block
        // the missions behind it.
        if let Err(refusal) = start_lead(draft, &next, now) {
            lose_lead(draft, &next, &refusal.message(), now)?;
        }
    }
}

/// Makes the agents of a mission's lead and workers, and adds the task that stands for leading. All
/// checks that can refuse come before the first recorded event.
fn start_lead(draft: &mut Draft, mission: &Mission, now: Now) -> Result<(), Refusal> {
    let board = draft.board();
    let Some(lead) = mission.lead.clone() else {
        return Ok(());
    };
    let Some(project) = board.projects.get(&mission.project).cloned() else {
        return Ok(());
    };
    let settings = &project.settings.leads;
    agent::find(board, &lead.agent)?;
    let mut worker_sources = settings.workers.clone();
    worker_sources.retain(|agent| {
        board
            .agents
            .get(agent)
            .is_some_and(|agent| agent.derived_from.is_none())
    });
    if worker_sources.is_empty() {
        worker_sources.push(lead.agent.clone());
    }
    let base = base_name(&mission.project)?;
    let name = name_generator::unused_name(
        board,
        &format!("{base}/lead-"),
        NameLength::Two,
        mission.id.0,
    )?;
    let count = settings.max_workers as usize;
    let workers = name_generator::unused_names(
        board,
        &format!("{name}/worker-"),
        NameLength::One,
        mission.id.0,
        count,
    )?;

    agent::derive(draft, &lead.agent, name.clone(), Role::Lead, 1, now)?;
    for (index, worker) in workers.iter().enumerate() {
        agent::derive(
            draft,
            &worker_sources[index % worker_sources.len()],
            worker.clone(),
            Role::Worker,
            1,
            now,
        )?;
    }
    claim::claim_agent_name(
        draft,
        &name,
        format!("leads {}: {}", mission.id, mission.title),
        now,
    );
    let goal = mission.goal.clone().unwrap_or_default();
    let text = TaskText {
        subject: format!("Lead {}: {}", mission.id, mission.title),
        description: goal,
    };
    let request = AddTask::new_report(mission.project.clone(), text);
    let task = task::add(draft, request, Some((mission.id, Default::default())), now)?;
    task::set_purpose(draft, task, Purpose::Lead, None)?;
    task::assign(draft, task, Some(name.clone()), AssignMode::Queue, now)?;
    if let LeadSubject::Task(id) = lead.subject
        && check_free_task(draft.board(), id, &mission.project).is_ok()
    {
        task::adopt(
            draft,
            id,
            (mission.id, Default::default()),
            &mission.project,
        )?;
    }
    let deadline_after = |millis: Millis| {
        Some(millis.ms())
            .filter(|ms| *ms > 0)
            .map(|ms| now.fleet_ms + ms)
    };
    let lead = Lead {
        name: Some(name.clone()),
        task: Some(task),
        lost_reason: None,
        checkpoint_fleet_ms: deadline_after(settings.checkpoint_interval),
        deadline_fleet_ms: deadline_after(settings.timeout),
        ..lead
    };
    record_lead(
        draft,
        mission.id,
        lead,
        Some(workers),
        Some(MissionState::Active),
    );
    // After a handover, tasks that were assigned to workers of the former lead and have not started
    // become available to the new workers.
    for child in open_children(draft.board(), mission.id) {
        unassign_orphaned_task(draft, child.id, now)?;
    }
    remove_idle_agents(draft);
    let text = format!("{name} leads {}: {}", mission.id, mission.title);
    post_to_requester(draft, mission.id, "spawn-ack", text.clone(), now)?;
    notify_siblings(draft, &mission.project, mission.id, &text);
    Ok(())
}

/// Removes the assignment of a waiting task whose worker no longer works for the task's mission.
/// Otherwise no agent would ever take the task.
pub(crate) fn unassign_orphaned_task(
    draft: &mut Draft,
    id: TaskId,
    now: Now,
) -> Result<(), Refusal> {
    let board = draft.board();
    let Some(task) = board
        .tasks
        .get(&id)
        .filter(|task| task.status.is_waiting() && task.is_polled())
    else {
        return Ok(());
    };
    let (Some(name), Some(mission)) = (
        &task.assignee,
        task.mission.and_then(|id| board.missions.get(&id)),
    ) else {
        return Ok(());
    };
    let has_lead = mission.lead.is_some() && mission.state == MissionState::Active;
    let is_derived = board
        .agents
        .get(name)
        .is_none_or(|agent| agent.derived_from.is_some());
    let is_team_member = board
        .launches
        .values()
        .any(|launch| launch.members.iter().any(|entry| entry.agent == *name));
    if has_lead && is_derived && !is_team_member && !mission.agents.contains(name) {
        task::assign(draft, id, None, AssignMode::Direct, now)?;
    }
    Ok(())
}

/// Returns the name with which the names of a project's leads begin, such as `shop-dev` in
/// `shop-dev/lead-amber-reef`.
pub fn base_name(project: &ProjectName) -> Result<AgentName, Refusal> {
    AgentName::new(&format!("{project}-dev")).map_err(|error| {
        Refusal::invalid(
            error.to_string(),
            "use a shorter project name, because the names of leads begin with the project's name",
        )
    })
}
