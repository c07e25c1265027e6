//! Leads: a mission with a goal has a lead with a name of its own, and workers named under the
//! lead.
//!
//! A lead's turns are attempts at one task of its mission. Between two turns nothing runs: the lead
//! rests until an event concerns it, and its next turn begins with the events since the last one.
//! Nothing exists only in a model's memory, so another turn, session or agent can continue from the
//! board.

mod edits; // edits that a lead made itself
mod end; // the end of a lead, and the handover of its mission
mod news; // events for a lead, and posts about its mission
mod start; // the request for a mission, and the start of its lead

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval;
use crate::attempt::{self, Attempt, AttemptCause, resume_point};
use crate::board::{Board, Draft};
use crate::display::{self, DisplayState};
use crate::event::{Event, facts};
use crate::ids::{
    AgentName, AttemptId, ChannelName, CommitId, Label, MessageId, MissionId, Now, ProjectName,
    TaskId,
};
use crate::mission::{Mission, MissionState};
use crate::refusal::Refusal;
use crate::task::{self, AddTask, NextAttempt, Task, TaskDuty};

pub(crate) use edits::adopt_edits;

pub(crate) use news::{
    add_news, mission_labels, notify_lead, on_approval_asked, on_message_posted,
};
use news::{notify_siblings, post_about_mission, post_to_requester, wake};

pub use start::{LeadRequest, base_name, led_missions, queue_position, request_mission};
pub(crate) use start::{choose_lead, start_queued_missions, unassign_orphaned_task};

pub use end::hand_over;
use end::lose_lead;
pub(crate) use end::{on_mission_ended, on_task_lost, remove_idle_agents};

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
    /// Time of the mission's next summary on the fleet clock.
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
    let max_children = draft
        .board()
        .projects
        .get(&mission.project)
        .map_or(u32::MAX, |project| project.settings.leads.max_children);
    if lead.children >= max_children {
        return Err(Refusal::invalid(
            format!(
                "{id} has had {} of at most {max_children} tasks",
                lead.children
            ),
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
    let attempt_record = attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
    let duty = task::find(draft.board(), task)?.duty.clone();
    let found = attempt_record
        .mission
        .filter(|_| duty == Some(TaskDuty::Lead))
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
    (last_text, adopted): (&str, Option<TaskId>),
) -> Result<(), Refusal> {
    let found = task.mission.and_then(|id| lead_of(draft.board(), id));
    let Some((mission, lead)) = found.filter(|(_, lead)| lead.task == Some(task.id)) else {
        attempt::end(draft, attempt.id, AttemptCause::Reported, "");
        return task::complete(draft, task.id, None);
    };
    let open = open_children(draft.board(), mission.id);
    let open_question = approval::open_question(draft.board(), task.id).map(|approval| approval.id);
    if open.is_empty()
        && (lead.report.is_some() || (!lead.has_urgent_news && open_question.is_none()))
    {
        let last_text = last_text.trim();
        let report = match &lead.report {
            Some(report) => report.clone(),
            None if last_text.is_empty() => "Its lead gave no report.".to_owned(),
            None => last_text.to_owned(),
        };
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
    let next_attempt = NextAttempt {
        resume,
        resting: true,
        ..NextAttempt::default()
    };
    let reason = match open_question {
        Some(open_question) if open.is_empty() => {
            format!("its turn is over, and it waits for the answer to {open_question}")
        }
        _ => format!("its turn is over, and {} of its tasks are open", open.len()),
    };
    task::retry_after(draft, task.id, AttemptCause::Rested, &reason, next_attempt)?;
    attempt::end(draft, attempt.id, AttemptCause::Rested, &reason);
    if lead.has_urgent_news {
        wake(draft, mission.id);
    }
    Ok(())
}

/// Runs a lead's timers: posts a due summary, and ends the lead at its deadline.
pub(crate) fn on_timer(draft: &mut Draft, id: MissionId, now: Now) -> Result<(), Refusal> {
    let Some((mission, lead)) =
        lead_of(draft.board(), id).filter(|(_, lead)| lead.acting_name().is_some())
    else {
        return Ok(());
    };
    if lead
        .deadline_fleet_ms
        .is_some_and(|deadline| deadline <= now.fleet_ms)
    {
        return lose_lead(draft, &mission, "its time is up ([leads] timeout)", now);
    }
    if lead
        .checkpoint_fleet_ms
        .is_some_and(|deadline| deadline <= now.fleet_ms)
    {
        let interval_ms = draft
            .board()
            .projects
            .get(&mission.project)
            .map_or(0, |project| project.settings.leads.checkpoint_interval.ms());
        let new_summary = summary(draft.board(), &mission);
        let is_changed = new_summary != lead.last_summary;
        let checkpoint_fleet_ms = Some(interval_ms)
            .filter(|interval_ms| *interval_ms > 0)
            .map(|interval_ms| now.fleet_ms + interval_ms);
        record_lead(
            draft,
            id,
            Lead {
                checkpoint_fleet_ms,
                last_summary: new_summary.clone(),
                ..lead
            },
            None,
            None,
        );
        if is_changed {
            post_to_requester(draft, id, "feedback", new_summary, now)?;
        }
    }
    Ok(())
}

/// Returns a mission's state in a sentence, from the board alone.
pub fn summary(board: &Board, mission: &Mission) -> String {
    let open = open_children(board, mission.id);
    let count = |states: &[DisplayState]| {
        open.iter()
            .filter(|task| states.contains(&display::task_display(board, task, None).state))
            .count()
    };
    let children = mission.lead.as_ref().map_or(0, |lead| lead.children) as usize;
    let parts = [
        (children.saturating_sub(open.len()), "ended"),
        (count(&[DisplayState::Working]), "working"),
        (count(&[DisplayState::Landing]), "landing"),
        (count(&[DisplayState::Waiting]), "waiting"),
        (count(&[DisplayState::Backlog]), "in the backlog"),
        (
            count(&[DisplayState::Needs, DisplayState::Review]),
            "for a person",
        ),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, status)| format!("{count} {status}"))
        .collect();
    let parts = if parts.is_empty() {
        "no task yet".to_owned()
    } else {
        parts.join(", ")
    };
    format!("{} \"{}\": {parts}", mission.id, mission.title)
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
    pub landed: Option<CommitId>,
}

/// Returns the other leads of a project.
pub fn siblings(
    board: &Board,
    project: &ProjectName,
    except: Option<MissionId>,
) -> Vec<SiblingLead> {
    led_missions(board, project)
        .filter(|mission| Some(mission.id) != except)
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
