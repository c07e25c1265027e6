//! A lead is an agent that reaches a mission's goal by giving tasks to workers. Each lead gets a
//! new agent name, and its workers get names below it, such as
//! `shop-dev/lead-amber-reef/worker-frost`.
//!
//! A lead works in turns, which are attempts at one special task of its mission. Between two turns
//! no program runs. An event that concerns the lead starts its next turn, which begins with a list
//! of the events since the previous turn. Nothing exists only in a model's memory, so another
//! session or agent can continue at any time.

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
use crate::task::{self, AddTask, NextAttempt, Purpose, Task};

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

/// The lead of a mission: its name, its pending events and timers. While the mission waits for a
/// lead, only the agent that will lead is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lead {
    /// The registered agent whose program and settings the lead uses.
    pub agent: AgentName,
    /// The agent name that was made for this lead. `None` until the lead has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<AgentName>,
    /// The task that stands for leading the mission. Each attempt at it is one turn of the lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Channel in which the mission was requested. Announcements about the mission are posted
    /// there.
    pub channel: ChannelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    #[serde(default)]
    #[serde(rename = "about")]
    pub subject: LeadSubject,
    /// Descriptions of the events since the lead's last turn, the latest last. The next turn begins
    /// with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
    /// Number of older events that were removed from `news`, because too many were pending.
    #[serde(default)]
    #[serde(rename = "left_out")]
    pub dropped_news_count: u32,
    /// Set if one of the pending events is urgent. An urgent event starts a turn of the lead at
    /// once, or after the current turn.
    #[serde(default)]
    #[serde(rename = "stirred")]
    pub has_urgent_news: bool,
    /// Number of tasks that the lead has added to the mission so far, for the limit `max_children`.
    #[serde(default)]
    pub children: u32,
    /// The lead's final report. Once it is set, the mission ends when the lead's turn ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which Regatta posts
    /// the next summary of the mission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "checkpoint_at")]
    pub checkpoint_fleet_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(rename = "said")]
    pub last_summary: String,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the lead's time
    /// is up and the mission loses its lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    /// Reason why the mission has lost its lead; `None` if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "lost")]
    pub lost_reason: Option<String>,
}

impl Lead {
    /// Returns the name of the agent that leads the mission now, or `None` before the lead has
    /// started and after the mission has lost it.
    pub fn acting_name(&self) -> Option<&AgentName> {
        self.name.as_ref().filter(|_| self.lost_reason.is_none())
    }

    /// Returns the time of the lead's next summary or deadline, whichever is earlier, in
    /// milliseconds of Regatta's own clock (the fleet clock).
    pub(crate) fn next_timer_fleet_ms(&self) -> Option<u64> {
        self.acting_name()?;
        [self.checkpoint_fleet_ms, self.deadline_fleet_ms]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The work for which a mission with a lead was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeadSubject {
    /// A goal in words. The lead makes the tasks.
    #[default]
    Goal,
    /// All waiting tasks of the project.
    Backlog,
    /// One existing task, which becomes part of the mission.
    Task(TaskId),
}

facts! {
    /// A mission's lead or the lead's pending events changed; `lead` is the lead's whole record.
    /// `agents` (the workers) and `state` are set if they changed, too.
    MissionLed { mission: MissionId, lead: Arc<Lead>, agents: Option<Vec<AgentName>>, state: Option<MissionState> }
}

/// Checks that a task of this project has not started and belongs to no mission, so that a mission
/// can take it.
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

/// Records the changed data of a mission's lead, and, if given, the mission's new workers and
/// state.
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

/// Returns a mission and its lead, or `None` for a mission without a lead, such as a mission that
/// runs a plan.
fn lead_of(board: &Board, id: MissionId) -> Option<(Arc<Mission>, Lead)> {
    let mission = board.missions.get(&id)?;
    Some((mission.clone(), mission.lead.clone()?))
}

/// Returns the label (search word) by which the messages about a lead's mission are found:
/// `lead:NAME`.
pub fn label_of(lead: &AgentName) -> Option<Label> {
    Label::new(&format!("lead:{lead}")).ok()
}

/// Adds a task to a mission at the request of the mission's lead. Refuses if the mission already
/// has its maximum number of tasks.
pub fn add_child(
    draft: &mut Draft,
    id: MissionId,
    add: AddTask,
    now: Now,
) -> Result<TaskId, Refusal> {
    count_child(draft, id)?;
    task::add(draft, add, Some((id, Default::default())), now)
}

/// Makes a waiting task of the project part of a mission for its lead, unless the mission already
/// has its maximum number of tasks.
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

/// Counts one more task for a mission's lead. Refuses if the lead has already reported or the
/// maximum number is reached.
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
            format!(
                "no task can be added to mission {id}, because its lead has already reported the \
                mission as finished"
            ),
            "end your turn; a person can request a new mission for the rest",
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
                "no task can be added to mission {id}: it already got {} of at most {max_children} \
                tasks from its lead",
                lead.children
            ),
            "put the rest into the existing tasks or into your report; a person can raise \
            max_children in the section [leads] of regatta.toml",
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

/// Returns a mission's unfinished tasks, without the task that stands for leading the mission.
fn open_children(board: &Board, id: MissionId) -> Vec<Arc<Task>> {
    let tasks = board
        .open_tasks_of(id)
        .filter_map(|(_, id)| board.tasks.get(&id));
    tasks.filter(|task| task.is_polled()).cloned().collect()
}

/// Records a lead's final report. Refuses while tasks of the mission are unfinished. The mission
/// ends when the lead's turn ends.
pub fn finish(
    draft: &mut Draft,
    (task, attempt, token): (TaskId, AttemptId, u64),
    report: String,
) -> Result<(), Refusal> {
    let attempt_record = attempt::require_attempt_of_task(draft.board(), task, attempt, token)?;
    let is_lead = task::find(draft.board(), task)?.purpose == Purpose::Lead;
    let found = attempt_record
        .mission
        .filter(|_| is_lead)
        .and_then(|id| lead_of(draft.board(), id));
    let Some((mission, lead)) = found else {
        return Err(Refusal::invalid(
            format!(
                "task {task} does not lead a mission, so its agent cannot report that a mission is \
                finished"
            ),
            "report your own task with the tool `finish`",
        ));
    };
    if report.trim().is_empty() || report.len() > 64 * 1024 {
        return Err(Refusal::invalid(
            "the report is empty or longer than 64 KiB",
            "describe in a few sentences the results and the open points",
        ));
    }
    let open = open_children(draft.board(), mission.id);
    if !open.is_empty() {
        let names: Vec<String> = open.iter().map(|task| task.id.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(Refusal::invalid(
            format!(
                "mission {} cannot be finished, because some of its tasks are unfinished: {}",
                mission.id,
                attempt::first_few(&names)
            ),
            "end your turn: your next turn starts when these tasks end; or cancel the tasks first",
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

/// Handles the end of a lead's turn. If the mission is done, ends it. Otherwise the lead rests
/// until an event concerns it, and none of its programs runs meanwhile. `adopted` is the task that
/// was made of the files that the lead changed itself, if it changed any.
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
    // If the lead changed files itself, its next turn starts in a fresh workspace, so that the same
    // change is not submitted twice.
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

/// Handles a lead's timer: takes the mission from its lead if the deadline has passed, or else
/// posts the mission's summary if it is due and has changed.
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
        return lose_lead(
            draft,
            &mission,
            "the time limit for leads has passed ([leads] timeout)",
            now,
        );
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

/// Describes a mission's progress in a sentence: how many of its tasks have ended, are being worked
/// on, wait and so on.
pub fn summary(board: &Board, mission: &Mission) -> String {
    let counts = display::mission_state_counts(board, mission.id);
    let count = |states: &[DisplayState]| -> usize {
        states.iter().filter_map(|state| counts.get(state)).sum()
    };
    let open: usize = counts.values().sum();
    let children = mission.lead.as_ref().map_or(0, |lead| lead.children) as usize;
    let parts = [
        (children.saturating_sub(open), "ended"),
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

/// The facts that a lead gets about another lead of the same project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiblingLead {
    pub lead: AgentName,
    pub mission: MissionId,
    pub title: String,
    /// Unfinished tasks of the other lead's mission.
    pub tasks: Vec<TaskId>,
    /// Trunk commit with the latest landed work of the other lead's mission.
    pub landed: Option<CommitId>,
}

/// Returns the leads at work in a project, without the lead of the mission `except`.
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
