//! Ends leads: when their time is up, when their mission is handed to another lead, and when their
//! mission ends.

use crate::board::Draft;
use crate::budget::{self, Spend};
use crate::claim::{self, ClaimOwner};
use crate::ids::{AgentName, MissionId, Now};
use crate::mission::{self, Mission, MissionState};
use crate::plural;
use crate::refusal::Refusal;
use crate::task::{self, Purpose, Task};
use crate::{agent, attempt};

use super::{
    Lead, choose_lead, lead_of, notify_siblings, open_children, post_about_mission,
    post_to_requester, record_lead, start_queued_missions,
};

/// Takes a mission from its lead, because the lead's time is up or the lead cannot continue. Stops
/// the workers; their work is kept until a person hands the mission to another lead.
pub(super) fn lose_lead(
    draft: &mut Draft,
    mission: &Mission,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
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
    let lead_name = lead
        .name
        .as_ref()
        .map_or_else(|| "nobody".to_owned(), ToString::to_string);
    let text = format!(
        "{} has lost its lead {lead_name}: {reason}. Its work is kept. Next: regatta mission \
         handover {0}, or regatta mission cancel {0}",
        mission.id
    );
    post_to_requester(draft, mission.id, "mission:lost", text, now)?;
    release_lead(draft, mission, &lead, now)
}

/// Releases the claims and agents of a lead that has ended, tells the other leads, and starts the
/// next mission that waits for a lead.
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

/// Takes a mission from its lead if `task`, which cannot continue, is the task that stands for
/// leading the mission.
pub(crate) fn on_task_lost(
    draft: &mut Draft,
    task: &Task,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let found = task.mission.and_then(|id| lead_of(draft.board(), id));
    let Some((mission, lead)) = found else {
        return Ok(());
    };
    if task.purpose != Purpose::Lead || lead.task != Some(task.id) {
        return Ok(());
    }
    lose_lead(draft, &mission, reason, now)
}

/// Gives a mission another lead. The new lead starts at once if the project may have one more lead
/// at work, and otherwise waits in the queue of missions. Workers finish their current tasks.
pub fn hand_over(
    draft: &mut Draft,
    id: MissionId,
    agent: Option<AgentName>,
    now: Now,
) -> Result<(), Refusal> {
    let Some((mission, lead)) = lead_of(draft.board(), id) else {
        if draft.board().missions.contains_key(&id) {
            let what = format!("{id} has no lead, because it runs a plan");
            return Err(Refusal::invalid(
                what,
                format!("see the mission: regatta mission show {id}"),
            ));
        }
        return Err(Refusal::NoSuchMission { mission: id });
    };
    let Some(project) = draft.board().projects.get(&mission.project).cloned() else {
        return Ok(());
    };
    let agent = match agent {
        Some(agent) => choose_lead(draft.board(), &project, Some(agent))?,
        None => lead.agent.clone(),
    };
    agent::find(draft.board(), &agent)?;
    if mission.state == MissionState::Queued {
        record_lead(draft, id, Lead { agent, ..lead }, None, None);
        return start_queued_missions(draft, &mission.project, now);
    }
    let former_lead = lead.clone();
    let next_lead = Lead {
        agent,
        name: None,
        task: None,
        lost_reason: None,
        report: None,
        has_urgent_news: false,
        deadline_fleet_ms: None,
        ..lead
    };
    record_lead(draft, id, next_lead, None, Some(MissionState::Queued));
    if let Some(task) = former_lead
        .task
        .filter(|id| draft.board().tasks.contains_key(id))
    {
        task::cancel(draft, task, "its mission was handed over")?;
    }
    release_lead(draft, &mission, &former_lead, now)
}

/// Announces the result of a mission that has ended, and starts the next mission that waits for a
/// lead. Does nothing for a mission without a lead.
pub(crate) fn on_mission_ended(
    draft: &mut Draft,
    before: &Mission,
    end: Option<&mission::MissionEnd>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(lead) = before.lead.clone() else {
        return Ok(());
    };
    let (ending, label, report) = match end {
        Some(end) if end.how == mission::MissionEndKind::Cancelled => {
            ("was cancelled", "mission:cancelled", end.report.as_str())
        }
        Some(end) => ("is done", "mission:done", end.report.as_str()),
        None => ("is over", "mission:done", ""),
    };
    let text = format!(
        "{} \"{}\" {ending}.{} {report}",
        before.id,
        before.title,
        describe_cost(&before.spent)
    );
    post_about_mission(draft, before, &lead, label, text, now)?;
    release_lead(draft, before, &lead, now)
}

/// Describes in a sentence how many attempts and tokens a mission used and, if known, what it cost.
fn describe_cost(spent: &Spend) -> String {
    let cost = spent.usage.micro_usd.map_or(String::new(), |micro_usd| {
        format!(", {}", budget::format_dollars(micro_usd))
    });
    format!(
        " It took {} and {}{cost}.",
        plural::count(spent.attempts, "attempt"),
        plural::count(spent.usage.tokens(), "token")
    )
}

/// Removes the agents that were made for leads and workers of missions that have ended, once they
/// have no running attempt or assigned task.
pub(crate) fn remove_idle_agents(draft: &mut Draft) {
    let board = draft.board();
    let is_needed = |name: &AgentName| {
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
    let mission_agents = board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_some() && agent.name.as_str().contains('/'));
    let idle: Vec<AgentName> = mission_agents
        .map(|agent| agent.name.clone())
        .filter(|agent| !is_needed(agent))
        .collect();
    for name in idle {
        agent::remove_derived(draft, &name);
    }
}
