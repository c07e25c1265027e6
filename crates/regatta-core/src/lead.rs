//! Leads: a mission with a goal has a lead with a name of its own, and workers named under the
//! lead.
//!
//! A lead's turns are attempts at one task of its mission. Between two turns nothing runs: the lead
//! rests until an event concerns it, and its next turn begins with the events since the last one.
//! Nothing exists only in a model's memory, so another turn, session or agent can continue from the
//! board.

mod edits; // edits that a lead made itself

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Role};
use crate::approval;
use crate::attempt::{self, Attempt, AttemptCause, resume_point};
use crate::board::{Board, Draft};
use crate::budget::Spend;
use crate::bus::{self, Message};
use crate::claim::{self, ClaimOwner};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{
    AgentName, AttemptId, ChannelName, Label, MessageId, MissionId, Now, ProjectName, TaskId,
};
use crate::intervention;
use crate::mission::{self, LandedWork, Mission, MissionState, StartMode};
use crate::name_generator::{self, NameLength};
use crate::project::Project;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, NextAttempt, Task, TaskDuty, TaskStatus};

pub(crate) use edits::adopt_edits;

/// The lead of a mission, or the agent that is to lead it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lead {
    /// The agent whose program leads.
    pub agent: AgentName,
    /// The lead's own name, once it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<AgentName>,
    /// The task whose attempts are its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The channel of the request, which also gets the announcements about the mission.
    pub channel: ChannelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    #[serde(default)]
    #[serde(rename = "about")]
    pub subject: LeadSubject,
    /// Events since its last turn, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
    /// Number of older events that were dropped.
    #[serde(default)]
    #[serde(rename = "left_out")]
    pub dropped_news_count: u32,
    /// One of the events cannot wait for the next turn.
    #[serde(default)]
    #[serde(rename = "stirred")]
    pub has_urgent_news: bool,
    /// Number of tasks that it has added to its mission.
    #[serde(default)]
    pub children: u32,
    /// The lead's final report; with it the mission ends after this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Time of the mission's next summary on the fleet clock. `said` is the last summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "checkpoint_at")]
    pub checkpoint_fleet_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(rename = "said")]
    pub last_summary: String,
    /// The lead's deadline on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    /// Reason why the mission has lost its lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "lost")]
    pub lost_reason: Option<String>,
}

impl Lead {
    /// Returns the lead's name while it leads.
    pub fn acting_name(&self) -> Option<&AgentName> {
        self.name.as_ref().filter(|_| self.lost_reason.is_none())
    }

    /// Returns the time of its next timer on the fleet clock.
    pub(crate) fn next_timer_fleet_ms(&self) -> Option<u64> {
        self.acting_name()?;
        [self.checkpoint_fleet_ms, self.deadline_fleet_ms]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The object of a lead's mission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeadSubject {
    /// A goal in words.
    #[default]
    Goal,
    /// The waiting tasks of the project.
    Backlog,
    /// One existing task.
    Task(TaskId),
}

facts! {
    /// A mission's lead, its workers, or the lead's pending events changed.
    MissionLed { mission: MissionId, lead: Arc<Lead>, agents: Option<Vec<AgentName>>, state: Option<MissionState> }
}

/// A request for a mission with a lead; see [`ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeadRequest {
    pub project: ProjectName,
    pub goal: String,
    #[serde(default)]
    #[serde(rename = "about")]
    pub subject: LeadSubject,
    /// The agent whose program leads; by default the project's setting.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// The message that requests the mission.
    #[serde(default)]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub channel: Option<ChannelName>,
}

/// Maximum number of pending events that are kept for a lead.
const MAX_NEWS: usize = 60;
/// Maximum length of a goal in bytes.
const MAX_GOAL_BYTES: usize = 64 * 1024;

/// Requests a mission with a lead. It starts at once if the project may have another lead, and is
/// queued otherwise.
pub fn request_mission(
    draft: &mut Draft,
    ask: LeadRequest,
    now: Now,
) -> Result<MissionId, Refusal> {
    let board = draft.board();
    let Some(project) = board.projects.get(&ask.project).cloned() else {
        return Err(Refusal::NoSuchProject {
            project: ask.project,
        });
    };
    let goal = ask.goal.trim();
    if goal.is_empty() || goal.len() > MAX_GOAL_BYTES {
        return Err(Refusal::invalid(
            "a mission's goal has 1 byte to 64 KiB",
            "describe the goal in a few sentences; put the rest into a file of the repository",
        ));
    }
    if let LeadSubject::Task(id) = ask.subject {
        check_free_task(board, id, &ask.project)?;
    }
    let agent = choose_lead(board, &project, ask.agent)?;
    let channel = ask
        .channel
        .unwrap_or_else(|| bus::channel_of(&project.name));
    let id = MissionId(board.counters.mission + 1);
    let lead = Lead {
        agent,
        name: None,
        task: None,
        channel,
        message: ask.message,
        subject: ask.subject,
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
        project: ask.project.clone(),
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
    start_queued_missions(draft, &ask.project, now)?;
    if let Some(place) = queue_position(draft.board(), id) {
        let (busy, most) = (
            led_missions(draft.board(), &ask.project).count(),
            project.settings.leads.max_leads,
        );
        let text = format!(
            "{id} waits for a lead: it is number {place} in the queue, and {busy} of {most} leads \
             are at work. It starts \
             automatically when one ends."
        );
        post_to_requester(draft, id, "spawn-ack", text, now)?;
    }
    Ok(id)
}

/// Returns the missions of a project that have a lead now.
pub fn led_missions<'a>(
    board: &'a Board,
    project: &ProjectName,
) -> impl Iterator<Item = &'a Arc<Mission>> {
    let led = |mission: &&Arc<Mission>| {
        mission
            .lead
            .as_ref()
            .is_some_and(|lead| lead.acting_name().is_some())
    };
    board
        .missions
        .values()
        .filter(move |mission| mission.project == *project)
        .filter(led)
}

/// Returns a mission's position in the queue for a lead, from 1, or `None` if it is not queued.
pub fn queue_position(board: &Board, id: MissionId) -> Option<usize> {
    let project = &board.missions.get(&id)?.project;
    queued_missions(board, project)
        .position(|mission| mission.id == id)
        .map(|queued_mission| queued_mission + 1)
}

/// Returns the queued missions of a project, in order.
fn queued_missions<'a>(
    board: &'a Board,
    project: &ProjectName,
) -> impl Iterator<Item = &'a Arc<Mission>> {
    board
        .missions
        .values()
        .filter(move |mission| mission.project == *project && mission.state == MissionState::Queued)
}

/// Returns the agent whose program leads: the requested one, the one in the project's settings, or
/// the only one.
pub(crate) fn choose_lead(
    board: &Board,
    project: &Project,
    asked: Option<AgentName>,
) -> Result<AgentName, Refusal> {
    let settings = &project.settings;
    let named = asked.or_else(|| settings.leads.agent.clone());
    let first = || {
        settings
            .run
            .agents
            .as_ref()?
            .first()
            .and_then(|agent| AgentName::new(agent).ok())
    };
    if let Some(name) = named.or_else(first) {
        let found = agent::find(board, &name)?;
        return match found.derived_from {
            None => Ok(name),
            Some(_) => Err(Refusal::invalid(
                format!("{name} was named for one mission and ends with it"),
                "name an agent that was added by a person: regatta agents",
            )),
        };
    }
    let mut own: Vec<&AgentName> = board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_none())
        .map(|agent| &agent.name)
        .collect();
    let leads = |agent: &&&AgentName| {
        board
            .agents
            .get(**agent)
            .is_some_and(|agent| agent.role == Role::Lead)
    };
    if own.iter().filter(leads).count() == 1 {
        own.retain(|agent| leads(&agent));
    }
    match own.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Refusal::invalid(
            "there is no agent that could lead",
            "add one: regatta agent add NAME --preset claude, and name it in regatta.toml: \
            [leads] agent = \"NAME\"",
        )),
        _ => Err(Refusal::invalid(
            "several agents could lead, and the settings name none",
            "name one in regatta.toml: [leads] agent = \"NAME\"",
        )),
    }
}

/// Starts queued missions, in order, while the project may have another lead.
pub(crate) fn start_queued_missions(
    draft: &mut Draft,
    project: &ProjectName,
    now: Now,
) -> Result<(), Refusal> {
    loop {
        let board = draft.board();
        let Some(most) = board
            .projects
            .get(project)
            .map(|project| project.settings.leads.max_leads)
        else {
            return Ok(());
        };
        if led_missions(board, project).count() >= most as usize {
            return Ok(());
        }
        let Some(next) = queued_missions(board, project).next().cloned() else {
            return Ok(());
        };
        // A mission that cannot start any more must not block the missions behind it.
        if let Err(refusal) = start_lead(draft, &next, now) {
            lose_lead(draft, &next, &refusal.message(), now)?;
        }
    }
}

/// Starts a mission's lead and workers. All checks that can refuse come before the first record.
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
    let mut sorts = settings.workers.clone();
    sorts.retain(|agent| {
        board
            .agents
            .get(agent)
            .is_some_and(|agent| agent.derived_from.is_none())
    });
    if sorts.is_empty() {
        sorts.push(lead.agent.clone());
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
    for (nth, worker) in workers.iter().enumerate() {
        agent::derive(
            draft,
            &sorts[nth % sorts.len()],
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
    let add = AddTask::new_report(
        mission.project.clone(),
        &format!("Lead {}: {}", mission.id, mission.title),
        goal,
    );
    let task = task::add(draft, add, Some((mission.id, Default::default())), now)?;
    task::set_duty(draft, task, TaskDuty::Lead, None)?;
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
    let span = |millis: crate::project::Millis| {
        Some(millis.ms())
            .filter(|n| *n > 0)
            .map(|n| now.fleet_ms + n)
    };
    let lead = Lead {
        name: Some(name.clone()),
        task: Some(task),
        lost_reason: None,
        checkpoint_fleet_ms: span(settings.checkpoint_interval),
        deadline_fleet_ms: span(settings.timeout),
        ..lead
    };
    record_lead(
        draft,
        mission.id,
        lead,
        Some(workers),
        Some(MissionState::Active),
    );
    // Tasks of former workers that have not started become available to the new ones.
    for child in open_children(draft.board(), mission.id) {
        unassign_orphaned_task(draft, child.id, now)?;
    }
    remove_idle_agents(draft);
    let text = format!("{name} leads {}: {}", mission.id, mission.title);
    post_to_requester(draft, mission.id, "spawn-ack", text.clone(), now)?;
    notify_siblings(draft, &mission.project, mission.id, &text);
    Ok(())
}

/// Unassigns a waiting task whose worker no longer works for its mission, because nobody would ever
/// take it.
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
    let led = mission.lead.is_some() && mission.state == MissionState::Active;
    let named = board
        .agents
        .get(name)
        .is_none_or(|agent| agent.derived_from.is_some());
    let member = board.launches.values().any(|team_launch| {
        team_launch
            .members
            .iter()
            .any(|launch| launch.agent == *name)
    });
    if led && named && !member && !mission.agents.contains(name) {
        task::assign(draft, id, None, AssignMode::Direct, now)?;
    }
    Ok(())
}

/// Returns the name under which a project's leads and answers run, such as `shop-dev`.
pub fn base_name(project: &ProjectName) -> Result<AgentName, Refusal> {
    AgentName::new(&format!("{project}-dev"))
        .map_err(|error| Refusal::invalid(error.to_string(), "give the project a shorter name"))
}

/// Checks that a task waits in this project and belongs to no mission.
fn check_free_task(board: &Board, id: TaskId, project: &ProjectName) -> Result<(), Refusal> {
    let task = task::find(board, id)?;
    if task.project != *project {
        return Err(Refusal::NoSuchTask { task: id });
    }
    match task.mission {
        Some(other) => Err(Refusal::InUse {
            what: id.to_string(),
            by: other.to_string(),
        }),
        None if !task.status.is_waiting() => Err(Refusal::InUse {
            what: id.to_string(),
            by: task.status.to_string(),
        }),
        None => Ok(()),
    }
}

/// Records a change of a mission's lead.
fn record_lead(
    draft: &mut Draft,
    mission: MissionId,
    lead: Lead,
    agents: Option<Vec<AgentName>>,
    state: Option<MissionState>,
) {
    draft.record(Event::MissionLed(MissionLed {
        mission,
        lead: lead.into(),
        agents,
        state,
    }));
}

/// Returns a mission with its lead, if it has one.
fn lead_of(board: &Board, id: MissionId) -> Option<(Arc<Mission>, Lead)> {
    let mission = board.missions.get(&id)?;
    Some((mission.clone(), mission.lead.clone()?))
}

/// Returns the mission that an agent leads or works for.
pub fn mission_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a Arc<Mission>> {
    // Only a name with a `/` can be a lead's or a worker's.
    if !agent.as_str().contains('/') {
        return None;
    }
    let under = |lead: &AgentName| {
        agent == lead
            || agent
                .as_str()
                .strip_prefix(lead.as_str())
                .is_some_and(|agent| agent.starts_with('/'))
    };
    board.missions.values().find(|mission| {
        mission
            .lead
            .as_ref()
            .and_then(|lead| lead.name.as_ref())
            .is_some_and(under)
    })
}

/// Returns the label of all messages of a lead and its workers.
pub fn label_of(lead: &AgentName) -> Option<Label> {
    Label::new(&format!("lead:{lead}")).ok()
}

/// Adds a new task to a lead's mission, within the limits of the mission.
pub fn add_child(
    draft: &mut Draft,
    id: MissionId,
    add: AddTask,
    now: Now,
) -> Result<TaskId, Refusal> {
    count_child(draft, id)?;
    task::add(draft, add, Some((id, Default::default())), now)
}

/// Adds a waiting task of the project to a lead's mission.
pub fn adopt_child(draft: &mut Draft, id: MissionId, task: TaskId) -> Result<(), Refusal> {
    let project = draft
        .board()
        .missions
        .get(&id)
        .ok_or(Refusal::NoSuchMission { mission: id })?
        .project
        .clone();
    check_free_task(draft.board(), task, &project)?;
    count_child(draft, id)?;
    task::adopt(draft, task, (id, Default::default()), &project)
}

/// Counts one more task of a lead's mission, or refuses it.
fn count_child(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft
        .board()
        .missions
        .get(&id)
        .cloned()
        .ok_or(Refusal::NoSuchMission { mission: id })?;
    let Some(lead) = mission.lead.clone() else {
        return Ok(());
    };
    if lead.report.is_some() {
        return Err(Refusal::invalid(
            format!("{id} is reported as finished"),
            "end your turn; use a new mission for the rest",
        ));
    }
    let settings = draft
        .board()
        .projects
        .get(&mission.project)
        .map(|project| project.settings.leads.max_children);
    let most = settings.unwrap_or(u32::MAX);
    if lead.children >= most {
        return Err(Refusal::invalid(
            format!("{id} has had {} of at most {most} tasks", lead.children),
            "put the rest into the existing tasks or into your report; the limit is [leads] \
            max_children",
        ));
    }
    record_lead(
        draft,
        id,
        Lead {
            children: lead.children + 1,
            ..lead
        },
        None,
        None,
    );
    Ok(())
}

/// Returns a mission's open tasks, without the lead's own task.
fn open_children(board: &Board, id: MissionId) -> Vec<Arc<Task>> {
    let tasks = board
        .open_tasks_of(id)
        .filter_map(|(_, id)| board.tasks.get(&id));
    tasks.filter(|task| task.is_polled()).cloned().collect()
}

/// Records a lead's final report. The mission ends with the turn.
pub fn finish(
    draft: &mut Draft,
    (task, attempt, token): (TaskId, AttemptId, u64),
    report: String,
) -> Result<(), Refusal> {
    let live = attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
    let of = task::find(draft.board(), task)?;
    let found = live
        .mission
        .filter(|_| of.duty == Some(TaskDuty::Lead))
        .and_then(|id| lead_of(draft.board(), id));
    let Some((mission, lead)) = found else {
        return Err(Refusal::invalid(
            format!("{task} leads no mission"),
            "use finish instead",
        ));
    };
    if report.trim().is_empty() || report.len() > 64 * 1024 {
        return Err(Refusal::invalid(
            "a report has 1 byte to 64 KiB",
            "describe in a few sentences the results and the open points",
        ));
    }
    let open = open_children(draft.board(), mission.id);
    if !open.is_empty() {
        let names: Vec<String> = open.iter().map(|task| task.id.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(Refusal::invalid(
            format!(
                "{} is not done: {} are open",
                mission.id,
                attempt::first_few(&names)
            ),
            "end your turn and you are woken when they have ended; or cancel them first",
        ));
    }
    record_lead(
        draft,
        mission.id,
        Lead {
            report: Some(report),
            ..lead
        },
        None,
        None,
    );
    Ok(())
}

/// Applies the end of a lead's turn: its mission is done, or the lead rests until an event concerns
/// it.
pub(crate) fn on_turn_finished(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    (said, adopted): (&str, Option<TaskId>),
) -> Result<(), Refusal> {
    let found = task.mission.and_then(|id| lead_of(draft.board(), id));
    let Some((mission, lead)) = found.filter(|found| found.1.task == Some(task.id)) else {
        attempt::end(draft, attempt.id, AttemptCause::Reported, "");
        return task::complete(draft, task.id, None);
    };
    let open = open_children(draft.board(), mission.id);
    let asks = approval::open_question(draft.board(), task.id).map(|asked| asked.id);
    if open.is_empty() && (lead.report.is_some() || (!lead.has_urgent_news && asks.is_none())) {
        let words = if said.trim().is_empty() {
            "Its lead gave no report."
        } else {
            said.trim()
        };
        let report = lead.report.clone().unwrap_or_else(|| words.to_owned());
        record_lead(
            draft,
            mission.id,
            Lead {
                report: Some(report),
                ..lead
            },
            None,
            None,
        );
        attempt::end(draft, attempt.id, AttemptCause::Reported, "");
        return task::complete(draft, task.id, None);
    }
    // After edits of its own the lead starts in a fresh workspace, so that the same change is not
    // taken twice.
    let resume = adopted.is_none().then(|| resume_point(attempt, true));
    let again = NextAttempt {
        resume,
        resting: true,
        ..NextAttempt::default()
    };
    let reason = match asks {
        Some(asks) if open.is_empty() => {
            format!("its turn is over, and it waits for the answer to {asks}")
        }
        _ => format!("its turn is over, and {} of its tasks are open", open.len()),
    };
    task::retry_after(draft, task.id, AttemptCause::Rested, &reason, again)?;
    attempt::end(draft, attempt.id, AttemptCause::Rested, &reason);
    if lead.has_urgent_news {
        wake(draft, mission.id);
    }
    Ok(())
}

/// Starts a resting lead's next turn, with a note about the events since its last turn.
fn wake(draft: &mut Draft, id: MissionId) {
    let Some((_, lead)) = lead_of(draft.board(), id) else {
        return;
    };
    let Some(task) = lead
        .task
        .and_then(|id| draft.board().tasks.get(&id))
        .cloned()
    else {
        return;
    };
    if !task.resting || lead.acting_name().is_none() {
        return;
    }
    if !lead.news.is_empty() {
        let mut text = String::from("What happened since your last turn:\n");
        if lead.dropped_news_count > 0 {
            text += &format!(
                "- {} older events are left out; `mission` shows the current state\n",
                lead.dropped_news_count
            );
        }
        for line in &lead.news {
            text += &format!("- {line}\n");
        }
        intervention::leave_note(draft, task.id, text);
    }
    record_lead(
        draft,
        id,
        Lead {
            news: vec![],
            dropped_news_count: 0,
            has_urgent_news: false,
            ..lead
        },
        None,
        None,
    );
    task::clear_delay(draft, task.id);
}

/// Adds an event for a mission's lead. With `wakes` the lead gets a turn now.
pub(crate) fn add_news(draft: &mut Draft, id: MissionId, text: &str, wakes: bool) {
    let Some((_, mut lead)) =
        lead_of(draft.board(), id).filter(|pair| pair.1.acting_name().is_some())
    else {
        return;
    };
    let line = task::one_line(text, 400);
    if lead.news.last() != Some(&line) {
        lead.news.push(line);
    }
    if lead.news.len() > MAX_NEWS {
        lead.news.remove(0);
        lead.dropped_news_count += 1;
    }
    lead.has_urgent_news |= wakes;
    record_lead(draft, id, lead, None, None);
    if wakes {
        wake(draft, id);
    }
}

/// Notifies the lead of a task's mission about the task.
pub(crate) fn notify_lead(draft: &mut Draft, task: &Task, what: &str) {
    if let (Some(mission), true) = (task.mission, task.is_polled()) {
        add_news(
            draft,
            mission,
            &format!("{} \"{}\" {what}", task.id, task.subject),
            true,
        );
    }
}

/// Notifies the leads that a posted message concerns.
pub(crate) fn on_message_posted(draft: &mut Draft, message: &Message) {
    let coordinates = |label: &str| message.labels.iter().any(|item| item.as_str() == label);
    let (merged, conflict) = (coordinates("coord:merge"), coordinates("coord:conflict"));
    let mailbox = message
        .channel
        .as_str()
        .strip_prefix('@')
        .and_then(|channel| AgentName::new(channel).ok());
    if !merged && !conflict && message.mentions.is_empty() && mailbox.is_none() {
        return;
    }
    let live: Vec<(MissionId, AgentName, ProjectName)> = draft
        .board()
        .missions
        .values()
        .filter_map(|mission| {
            Some((
                mission.id,
                mission.lead.as_ref()?.acting_name()?.clone(),
                mission.project.clone(),
            ))
        })
        .collect();
    for (mission, name, project) in live {
        if message.sender == Actor::Agent(name.clone()) {
            continue;
        }
        let called = message.mentions.contains(&name) || mailbox.as_ref() == Some(&name);
        let near = message.channel == bus::channel_of(&project);
        if called {
            let text = format!(
                "{} wrote to you ({}): {}",
                message.sender, message.id, message.text
            );
            add_news(draft, mission, &text, true);
        } else if near && (merged || conflict) {
            let label = if merged {
                "coord:merge"
            } else {
                "coord:conflict"
            };
            add_news(draft, mission, &format!("{label}: {}", message.text), false);
        }
    }
}

/// Notifies the lead of a mission about an open request of one of its attempts.
pub(crate) fn on_approval_asked(draft: &mut Draft, approval: crate::ids::ApprovalId) {
    let Some(item) = draft.board().approvals.get(&approval).cloned() else {
        return;
    };
    let Some(attempt) = draft.board().attempts.get(&item.attempt).cloned() else {
        return;
    };
    let Some(mission) = attempt
        .mission
        .filter(|_| !attempt.takes_no_slot && item.is_open())
    else {
        return;
    };
    let text = format!(
        "{} asks {approval} for {}: {}",
        attempt.agent,
        attempt.task,
        item.subject()
    );
    add_news(draft, mission, &text, true);
}

/// Adds an event for the other leads of a project, without waking them.
fn notify_siblings(draft: &mut Draft, project: &ProjectName, but: MissionId, text: &str) {
    let others: Vec<MissionId> = led_missions(draft.board(), project)
        .map(|mission| mission.id)
        .filter(|id| *id != but)
        .collect();
    for id in others {
        add_news(draft, id, text, false);
    }
}

/// Posts a message in the channel where the mission was requested.
fn post_to_requester(
    draft: &mut Draft,
    id: MissionId,
    label: &str,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        return Ok(());
    };
    post_about_mission(draft, &mission, &lead, label, text, now)
}

/// Returns the labels by which a mission's messages are found: its id, and its lead.
pub(crate) fn mission_labels(mission: &Mission) -> Vec<Label> {
    let lead = mission
        .lead
        .as_ref()
        .and_then(|lead| lead.name.as_ref())
        .and_then(label_of);
    Label::new(&mission.id.to_string())
        .ok()
        .into_iter()
        .chain(lead)
        .collect()
}

/// Posts a message about a mission, with its labels, as a reply to the request.
fn post_about_mission(
    draft: &mut Draft,
    mission: &Mission,
    lead: &Lead,
    label: &str,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let own = [
        Label::new(label).ok(),
        Label::new(&mission.id.to_string()).ok(),
        lead.name.as_ref().and_then(label_of),
    ];
    let labels = own.into_iter().flatten().collect();
    // The text may have an agent's own words of any length. The length limit must not stop the
    // record of the event.
    let text: String = text
        .trim_end()
        .chars()
        .take(bus::MAX_TEXT_BYTES / 4)
        .collect();
    bus::post_as_regatta(
        draft,
        lead.channel.clone(),
        text,
        (labels, lead.message),
        now,
    )
    .map(|_| ())
}

/// Runs a lead's timers: posts a due summary, and ends the lead at its deadline.
pub(crate) fn on_timer(draft: &mut Draft, id: MissionId, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) =
        lead_of(draft.board(), id).filter(|pair| pair.1.acting_name().is_some())
    else {
        return Ok(());
    };
    if lead.deadline_fleet_ms.is_some_and(|at| at <= now.fleet_ms) {
        return lose_lead(draft, &mission, "its time is up ([leads] timeout)", now);
    }
    if lead
        .checkpoint_fleet_ms
        .is_some_and(|at| at <= now.fleet_ms)
    {
        let every = draft
            .board()
            .projects
            .get(&mission.project)
            .map_or(0, |project| project.settings.leads.checkpoint_interval.ms());
        let said = summary(draft.board(), &mission);
        let news = said != lead.last_summary;
        let checkpoint_at = Some(every).filter(|n| *n > 0).map(|n| now.fleet_ms + n);
        record_lead(
            draft,
            id,
            Lead {
                checkpoint_fleet_ms: checkpoint_at,
                last_summary: said.clone(),
                ..lead
            },
            None,
            None,
        );
        if news {
            post_to_requester(draft, id, "feedback", said, now)?;
        }
    }
    Ok(())
}

/// Returns a mission's state in a sentence, from the board alone.
pub fn summary(board: &Board, mission: &Mission) -> String {
    let open = open_children(board, mission.id);
    let count = |what: fn(TaskStatus) -> bool| open.iter().filter(|task| what(task.status)).count();
    let children = mission.lead.as_ref().map_or(0, |lead| lead.children) as usize;
    let parts = [
        (children.saturating_sub(open.len()), "ended"),
        (count(|task_status| task_status.is_running()), "working"),
        (
            count(|task_status| task_status == TaskStatus::Landing),
            "landing",
        ),
        (
            count(|task_status| task_status.is_waiting() || task_status == TaskStatus::Backlog),
            "waiting",
        ),
        (
            count(|task_status| {
                matches!(task_status, TaskStatus::NeedsHuman | TaskStatus::InReview)
            }),
            "for a person",
        ),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|part| part.0 > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let parts = if parts.is_empty() {
        "no task yet".to_owned()
    } else {
        parts.join(", ")
    };
    format!("{} \"{}\": {parts}", mission.id, mission.title)
}

/// Marks a mission as without a lead. Its workers stop and their work is kept until somebody takes
/// over.
fn lose_lead(draft: &mut Draft, mission: &Mission, reason: &str, now: Now) -> Result<(), Refusal> {
    let Some((_, lead)) = lead_of(draft.board(), mission.id) else {
        return Ok(());
    };
    if lead.lost_reason.is_some() {
        return Ok(());
    }
    let task = lead.task;
    record_lead(
        draft,
        mission.id,
        Lead {
            lost_reason: Some(reason.to_owned()),
            ..lead.clone()
        },
        None,
        Some(MissionState::Draining),
    );
    if let Some(task) = task.filter(|id| draft.board().tasks.contains_key(id)) {
        task::cancel(draft, task, reason)?;
    }
    for child in open_children(draft.board(), mission.id) {
        attempt::stop_task(
            draft,
            child.id,
            &format!("nobody leads {} any more", mission.id),
        )?;
    }
    let who = lead
        .name
        .as_ref()
        .map_or_else(|| "nobody".to_owned(), ToString::to_string);
    let text = format!(
        "{} is without a lead ({who}): {reason}. Its work is kept. Next: regatta mission handover \
         {0}, or regatta \
         mission cancel {0}",
        mission.id
    );
    post_to_requester(draft, mission.id, "mission:lost", text, now)?;
    release_lead(draft, mission, &lead, now)
}

/// Releases the name of a lead that has ended, and starts the next queued mission.
fn release_lead(
    draft: &mut Draft,
    mission: &Mission,
    lead: &Lead,
    now: Now,
) -> Result<(), Refusal> {
    if let Some(name) = &lead.name {
        claim::release_all(draft, &ClaimOwner::Agent(name.clone()));
        notify_siblings(
            draft,
            &mission.project,
            mission.id,
            &format!("{name} no longer leads {}", mission.id),
        );
    }
    remove_idle_agents(draft);
    start_queued_missions(draft, &mission.project, now)
}

/// Gives a mission's lead up, if the ended task was the lead's own.
pub(crate) fn on_task_lost(
    draft: &mut Draft,
    task: &Task,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let found = task.mission.and_then(|id| lead_of(draft.board(), id));
    match found.filter(|found| task.duty == Some(TaskDuty::Lead) && found.1.task == Some(task.id)) {
        Some((mission, _)) => lose_lead(draft, &mission, reason, now),
        None => Ok(()),
    }
}

/// Gives a mission another lead, at once if the project may have one more, and otherwise from the
/// queue. Workers finish their current tasks.
pub fn hand_over(
    draft: &mut Draft,
    id: MissionId,
    to: Option<AgentName>,
    now: Now,
) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        if draft.board().missions.contains_key(&id) {
            let what = format!("{id} has no lead, because it runs a plan");
            return Err(Refusal::invalid(what, "see it: regatta mission show"));
        }
        return Err(Refusal::NoSuchMission { mission: id });
    };
    let Some(project) = draft.board().projects.get(&mission.project).cloned() else {
        return Ok(());
    };
    let agent = match to {
        Some(to) => choose_lead(draft.board(), &project, Some(to))?,
        None => lead.agent.clone(),
    };
    agent::find(draft.board(), &agent)?;
    if mission.state == MissionState::Queued {
        record_lead(draft, id, Lead { agent, ..lead }, None, None);
        return start_queued_missions(draft, &mission.project, now);
    }
    let old = lead.clone();
    let next = Lead {
        agent,
        name: None,
        task: None,
        lost_reason: None,
        report: None,
        has_urgent_news: false,
        deadline_fleet_ms: None,
        ..lead
    };
    record_lead(draft, id, next, None, Some(MissionState::Queued));
    if let Some(task) = old.task.filter(|id| draft.board().tasks.contains_key(id)) {
        task::cancel(draft, task, "its mission was handed over")?;
    }
    release_lead(draft, &mission, &old, now)
}

/// Announces the result of an ended mission, and starts the next queued one.
pub(crate) fn on_mission_ended(
    draft: &mut Draft,
    before: &Mission,
    end: Option<&mission::MissionEnd>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(lead) = before.lead.clone() else {
        return Ok(());
    };
    let (how, label, report) = match end {
        Some(end) if end.how == mission::MissionEndKind::Cancelled => {
            ("was cancelled", "mission:cancelled", end.report.as_str())
        }
        Some(end) => ("is done", "mission:done", end.report.as_str()),
        None => ("is over", "mission:done", ""),
    };
    let text = format!(
        "{} \"{}\" {how}.{} {report}",
        before.id,
        before.title,
        describe_cost(&before.spent)
    );
    post_about_mission(draft, before, &lead, label, text, now)?;
    release_lead(draft, before, &lead, now)
}

/// Returns a sentence about a mission's attempts, tokens and, if known, cost.
fn describe_cost(spent: &Spend) -> String {
    let money = spent.usage.micro_usd.map_or(String::new(), |micro_usd| {
        format!(", ${:.2}", micro_usd as f64 / 1e6)
    });
    let attempts = if spent.attempts == 1 {
        "1 attempt".to_owned()
    } else {
        format!("{} attempts", spent.attempts)
    };
    format!(
        " It took {attempts} and {} tokens{money}.",
        spent.usage.tokens()
    )
}

/// Removes the agents that were named for ended missions, once nothing of theirs runs.
pub(crate) fn remove_idle_agents(draft: &mut Draft) {
    let board = draft.board();
    let needed = |name: &AgentName| {
        board.missions.values().any(|mission| {
            mission.agents.contains(name)
                || mission
                    .lead
                    .as_ref()
                    .is_some_and(|lead| lead.acting_name() == Some(name))
        }) || board.running_by_agent.contains_key(name)
            || board
                .tasks
                .values()
                .any(|task| task.assignee.as_ref() == Some(name))
    };
    let named = board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_some() && agent.name.as_str().contains('/'));
    let gone: Vec<AgentName> = named
        .map(|agent| agent.name.clone())
        .filter(|agent| !needed(agent))
        .collect();
    for name in gone {
        agent::remove_derived(draft, &name);
    }
}

/// Facts about another lead of the same project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiblingLead {
    pub lead: AgentName,
    pub mission: MissionId,
    pub title: String,
    /// The open tasks that it or its workers have.
    pub tasks: Vec<TaskId>,
    /// The trunk's commit with the last landed work of its mission.
    pub landed: Option<crate::ids::CommitId>,
}

/// Returns the other leads of a project.
pub fn siblings(board: &Board, project: &ProjectName, but: Option<MissionId>) -> Vec<SiblingLead> {
    led_missions(board, project)
        .filter(|mission| Some(mission.id) != but)
        .filter_map(|mission| {
            Some(SiblingLead {
                lead: mission.lead.as_ref()?.acting_name()?.clone(),
                mission: mission.id,
                title: mission.title.clone(),
                tasks: open_children(board, mission.id)
                    .iter()
                    .map(|task| task.id)
                    .collect(),
                landed: mission.landed.last.clone(),
            })
        })
        .collect()
}
