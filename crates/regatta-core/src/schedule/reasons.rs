//! Explains to people why a task waits, for example in `regatta why`.
//!
//! [`wait_reasons`] checks the same conditions as [`super::poll`] (which gives tasks to agents) in
//! the same order, and describes the conditions that fail. Every waiting task therefore has a
//! reason (W1).

use crate::board::{Board, Draft};
use crate::display::{self, DisplayState, ProgramActivity};
use crate::ids::{AgentName, Now};
use crate::landing::{Landing, LandingState, wave_commit};
use crate::pattern::Uri;
use crate::provider_outage::{self, ProviderOutage};
use crate::refusal::{ClaimHolder, seconds};
use crate::task::{Task, TaskStatus};
use crate::{
    agent, approval, attempt, budget, claim, collision_forecast, launch, manifest, mission,
    project_rules, runner,
};

use super::{
    WaitKind, WaitReason, machine_full_reason, missing_contract_part, mission_full_reason,
    port_shortage, starts_by_assignment, wave_closed_reason,
};

/// Returns all reasons why a task waits. The list is empty only for a task that is being worked on
/// or has ended (W1).
pub fn wait_reasons(board: &Board, task: &Task, now: Now) -> Vec<WaitReason> {
    let mut reasons = Vec::new();
    let mut add = |kind, text: String| reasons.push(WaitReason { kind, text });
    let asked = approval::question_blocking_work(board, task);
    match task.status {
        TaskStatus::InProgress
        | TaskStatus::Validating
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => {
            return reasons;
        }
        TaskStatus::Backlog => add(
            WaitKind::Policy,
            format!("it is in the backlog: regatta edit {} --ready", task.id),
        ),
        TaskStatus::InReview if asked.is_some() => {
            let Some(asked) = asked else { return reasons };
            let assumed = asked
                .assumed
                .as_ref()
                .map_or(String::new(), |text| format!("; it assumed: {text}"));
            let text = format!(
                "its work waits for the answer to {} ({}){assumed}",
                asked.id,
                asked.subject()
            );
            add(WaitKind::Question, format!("{text}. regatta inbox"));
        }
        TaskStatus::InReview => {
            let reason = task
                .reason
                .clone()
                .unwrap_or_else(|| "somebody must review it".into());
            add(
                WaitKind::Review,
                format!("{reason}, then regatta land {}", task.id),
            );
        }
        TaskStatus::NeedsHuman => {
            let kind = task.needed_decision.unwrap_or(WaitKind::Review);
            add(
                kind,
                task.reason
                    .clone()
                    .unwrap_or_else(|| "it needs a person".into()),
            );
        }
        TaskStatus::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) => reasons.push(landing_reason(board, landing, now)),
            None => add(
                WaitKind::Queue,
                "it is on its way into the landing queue".into(),
            ),
        },
        TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending => {
            if task.resting && task.is_conversation() {
                add(
                    WaitKind::Question,
                    "its turn is over; it continues when somebody writes in its thread".into(),
                );
            } else if task.resting {
                add(
                    WaitKind::Lead,
                    "its turn is over; it continues when an event concerns its mission".into(),
                );
            }
            if let Some(reason) = &task.paused {
                add(
                    WaitKind::Paused,
                    format!("it is paused: {reason}{}", resume_hint(task)),
                );
            }
            if let Some(attempt) = task.attempt {
                add(
                    WaitKind::Runner,
                    format!("its last attempt {attempt} is still being stopped"),
                );
            }
            for blocker in &task.blocked_by {
                match (board.tasks.get(blocker), board.ended_status(*blocker)) {
                    (Some(open), _) => add(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker} \"{}\", which {}",
                            shorten_subject(&open.subject),
                            describe_blocker(board, open, now)
                        ),
                    ),
                    (None, Some(TaskStatus::Completed)) => {}
                    (None, Some(status)) => add(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker}, which {}: remove this blocker, or cancel the task",
                            status.phrase()
                        ),
                    ),
                    (None, None) => {}
                }
            }
            if let Some(not_before_fleet_ms) = task.not_before_fleet_ms {
                let wait = seconds(not_before_fleet_ms.saturating_sub(now.fleet_ms));
                add(
                    WaitKind::Backoff,
                    format!("its last attempt was interrupted; the next starts in {wait}"),
                );
            }
            if let Some(gate) = missing_contract_part(board, task) {
                add(WaitKind::Gate, gate);
            }
            if let Some(rule) = project_rules::blocking_rule(board, task) {
                add(WaitKind::Policy, rule);
            }
            let uris = manifest::claims_of_task(board, task);
            let mode = manifest::claim_mode(board, task);
            let mut holders =
                claim::conflicting_holders(&Draft::new(board, now), &uris, mode, None, now);
            holders.extend(claim::task_holders(
                board,
                task,
                task.assignee.as_ref(),
                now,
            ));
            for holder in holders.iter().take(5) {
                add(WaitKind::Claim, describe_holder(board, holder));
            }
            if let Some(collision) = collision_forecast::reason_to_wait(board, task) {
                add(WaitKind::Conflict, collision);
            }
            if let Some(shortage) = port_shortage(&Draft::new(board, now), &task.project, now) {
                add(
                    WaitKind::Claim,
                    format!("it needs ports: {}", shortage.message()),
                );
            }
            if let Some(agent_name) = report_agent_waits(board, task, now, &mut add) {
                let text = if reasons.is_empty() {
                    format!("{agent_name} is about to start on it")
                } else {
                    format!(
                        "{agent_name} has a free slot and starts on it when the reasons above are \
                         gone"
                    )
                };
                reasons.push(WaitReason {
                    kind: WaitKind::Runner,
                    text,
                });
            }
        }
    }
    reasons
}

/// Returns the command that lets a stopped task continue. A pause of the task itself ends before
/// the stop of its mission. Returns `None` if the task is not paused and belongs to no mission.
pub fn resume_command(task: &Task) -> Option<String> {
    if task.paused.is_some() {
        return Some(format!("regatta resume {}", task.id));
    }
    task.mission
        .map(|mission| format!("regatta run --resume {mission}"))
}

/// Returns the end of a sentence about a stopped task, with the command that continues the task.
fn resume_hint(task: &Task) -> String {
    resume_command(task).map_or(String::new(), |command| format!("; to continue: {command}"))
}

/// Explains why a task's finished work in the landing queue is not on the trunk yet.
fn landing_reason(board: &Board, landing: &Landing, now: Now) -> WaitReason {
    let reason = |kind, text: String| WaitReason { kind, text };
    if let Some(held) = &landing.held {
        return reason(WaitKind::Policy, held.clone());
    }
    if matches!(landing.state, LandingState::Moving { .. }) {
        return reason(WaitKind::Queue, "it is moving the trunk".into());
    }
    let queue_hold = board
        .projects
        .get(&landing.project)
        .and_then(|project| project.queue.held.as_ref());
    if let Some(hold) = queue_hold {
        let text = format!(
            "{} holds the queue: {}. regatta queue release",
            hold.by, hold.reason
        );
        return reason(WaitKind::Policy, text);
    }
    match &landing.state {
        LandingState::Validated { .. } => {
            return reason(WaitKind::Claim, trunk_holder(board, landing, now));
        }
        LandingState::Trying { ahead, .. } if ahead.is_empty() => {
            return reason(WaitKind::Queue, "it is being merged and validated".into());
        }
        LandingState::Trying { ahead, .. } => {
            let text = format!(
                "it is being merged and validated on top of {} more",
                ahead.len()
            );
            return reason(WaitKind::Queue, text);
        }
        LandingState::Queued | LandingState::Moving { .. } => {}
    }
    if !landing.deferred_behind.is_empty() {
        let kind = if landing.faults > 0 {
            WaitKind::Queue
        } else {
            WaitKind::Conflict
        };
        return reason(kind, display::deferral_text(board, landing));
    }
    let awaited = wave_commit::wave_of(board, landing)
        .map(|wave| wave_commit::awaited_tasks(board, wave))
        .unwrap_or_default();
    if !awaited.is_empty() {
        let names: Vec<String> = awaited.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = format!(
            "its wave lands as one commit, with {}",
            attempt::first_few(&names)
        );
        return reason(WaitKind::Wave, text);
    }
    let number = queue_number(board, landing);
    reason(
        WaitKind::Queue,
        format!("it is number {number} in the landing queue"),
    )
}

/// The maximum length of another task's subject in a wait reason, in characters.
const MAX_QUOTED_SUBJECT_CHARS: usize = 40;

/// Shortens the subject of another task in a wait reason, so that the state of that task, which
/// follows the subject, stays visible.
fn shorten_subject(subject: &str) -> String {
    if subject.chars().count() <= MAX_QUOTED_SUBJECT_CHARS {
        return subject.to_owned();
    }
    let start: String = subject.chars().take(MAX_QUOTED_SUBJECT_CHARS - 1).collect();
    format!("{}…", start.trim_end())
}

/// Describes the state of a task on which another task depends, as the end of the sentence "needs
/// T1, which …". The description does not name the tasks on which the described task itself
/// depends, because people see these when they look at that task.
fn describe_blocker(board: &Board, task: &Task, now: Now) -> String {
    let needs_you = DisplayState::Needs.label();
    let phrase = || task.status.phrase().to_owned();
    match display::task_display(board, task).state {
        DisplayState::Needs => match display::blocking_request(board, task) {
            Some(open) => format!("{needs_you} ({})", open.id),
            None => needs_you.into(),
        },
        DisplayState::Working => {
            let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
            let activity = attempt.map(|attempt| display::program_activity(board, attempt));
            match activity {
                Some(ProgramActivity::Stopping) => "is being stopped".into(),
                Some(ProgramActivity::Checking) => "is being checked".into(),
                _ => phrase(),
            }
        }
        DisplayState::Review => format!("{}, and {needs_you}", phrase()),
        DisplayState::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) if landing.held.is_some() => format!("{}, and {needs_you}", phrase()),
            Some(landing) if matches!(landing.state, LandingState::Queued) => {
                format!(
                    "is number {} in the landing queue",
                    queue_number(board, landing)
                )
            }
            _ => phrase(),
        },
        DisplayState::Waiting => {
            let agent = task
                .agent
                .as_ref()
                .or(task.assignee.as_ref())
                .and_then(|agent| board.agents.get(agent));
            let parked = agent.and_then(|agent| provider_outage::find_parked(board, agent));
            match (&task.paused, parked) {
                (Some(reason), _) => format!("is paused: {reason}"),
                (None, Some(parked)) => {
                    format!("waits because {}", provider_outage::describe(parked, now))
                }
                (None, None) => phrase(),
            }
        }
        _ => phrase(),
    }
}

/// Returns the position of a landing in its project's queue, counting from 1.
fn queue_number(board: &Board, landing: &Landing) -> usize {
    let queue = board.queue_of(&landing.project);
    queue.take_while(|queued| queued.id != landing.id).count() + 1
}

/// Describes who holds the claim on the trunk for which finished work waits.
fn trunk_holder(board: &Board, landing: &Landing, now: Now) -> String {
    let uri = Uri::for_trunk(&landing.project);
    let draft = Draft::new(board, now);
    match claim::conflicting_holders(
        &draft,
        std::slice::from_ref(&uri),
        claim::ClaimMode::Exclusive,
        None,
        now,
    )
    .first()
    {
        Some(holder) => describe_holder(board, holder),
        None => "it is about to move the trunk".into(),
    }
}

/// Describes who holds the claim on a URI (such as a file) and for how long.
fn describe_holder(board: &Board, holder: &ClaimHolder) -> String {
    let ends = holder.ends_in_ms.map_or(String::new(), |ms| {
        format!(" for {} more unless renewed", seconds(ms))
    });
    format!(
        "{} is held by {}{ends}",
        holder.uri,
        describe_owner(board, &holder.owner)
    )
}

/// Names the owner of a claim for people: an agent, or a task with its state.
fn describe_owner(board: &Board, owner: &claim::ClaimOwner) -> String {
    match owner {
        claim::ClaimOwner::Agent(name) => name.to_string(),
        claim::ClaimOwner::Attempt(id) => match board.attempts.get(id) {
            Some(attempt) => format!("{} for {}", attempt.agent, attempt.task),
            None => id.to_string(),
        },
        claim::ClaimOwner::Landing(id) => match board.landings.get(id) {
            Some(landing) => format!("{}, which is landing", landing.task),
            None => id.to_string(),
        },
    }
}

/// Finds the reasons why the agents that could start a task do not start it, and passes each reason
/// to `add`. Returns an agent that has room for the task, if there is one.
fn report_agent_waits(
    board: &Board,
    task: &Task,
    now: Now,
    add: &mut impl FnMut(WaitKind, String),
) -> Option<String> {
    let candidates: Vec<&AgentName> = match (
        &task.assignee,
        task.mission.and_then(|id| board.missions.get(&id)),
    ) {
        (Some(name), _) => vec![name],
        (None, Some(mission)) => mission.agents.iter().collect(),
        (None, None) => vec![],
    };
    // Collect the agents that wait for a person because of a problem, so that those with the same
    // problem are listed in one sentence.
    let outage_of = |name: &&AgentName| {
        board
            .agents
            .get(*name)
            .and_then(|agent| provider_outage::find_parked(board, agent))
    };
    let mut waiting_for_person: Vec<&ProviderOutage> = candidates
        .iter()
        .filter_map(outage_of)
        .filter(|parked| parked.deadline_fleet_ms.is_none())
        .collect();
    for agent in candidates
        .iter()
        .filter_map(|agent| board.agents.get(*agent))
    {
        if let Some(reason) = &agent.offline {
            add(
                WaitKind::Runner,
                format!(
                    "{} is offline until it registers again: {reason}",
                    agent.name
                ),
            );
        }
        match provider_outage::find_parked(board, agent) {
            Some(parked) if parked.deadline_fleet_ms.is_some() => {
                add(WaitKind::RateLimit, provider_outage::describe(parked, now))
            }
            Some(parked) => {
                let is_alike = |other: &&ProviderOutage| {
                    (other.class, &other.reason) == (parked.class, &parked.reason)
                };
                let (alike_outages, others): (Vec<_>, Vec<_>) =
                    waiting_for_person.into_iter().partition(is_alike);
                waiting_for_person = others;
                match alike_outages.len() {
                    0 => {}
                    1 => add(WaitKind::Provider, provider_outage::describe(parked, now)),
                    _ => add(
                        WaitKind::Provider,
                        provider_outage::describe_all(&alike_outages),
                    ),
                }
            }
            None => {}
        }
        if let Some(holder) = claim::name_holders(board, &agent.name, now).first() {
            add(WaitKind::Claim, describe_holder(board, holder));
        }
        if let Some(text) = budget::blocking_budget(board, task, &agent.name, now) {
            add(WaitKind::Budget, text);
        }
        if let Some(text) = runner::no_runner_reason(board, agent) {
            add(WaitKind::Runner, text);
        }
    }
    if let Some(name) = task
        .resume
        .as_ref()
        .and_then(|resume| resume.runner.as_ref())
        && board
            .runners
            .get(name)
            .is_some_and(|runner| runner.is_present())
    {
        add(
            WaitKind::Runner,
            format!("its unfinished work is on runner {name}, so it waits for a free slot there"),
        );
    }
    if let Some(limit) = machine_full_reason(board).filter(|_| !task.is_light()) {
        add(WaitKind::Machine, limit);
    }
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    if let Some(mission) = mission {
        match mission.state {
            mission::MissionState::Active => {}
            mission::MissionState::Queued => add(
                WaitKind::Lead,
                format!("{} waits for a free lead", mission.id),
            ),
            // The task itself is paused, too. That pause ends first and is reported as a reason of
            // its own, so the command that continues the task is not repeated here.
            mission::MissionState::Draining if task.paused.is_some() => {
                add(WaitKind::Paused, format!("{} is stopped", mission.id))
            }
            mission::MissionState::Draining => add(
                WaitKind::Paused,
                format!("{} is stopped{}", mission.id, resume_hint(task)),
            ),
        }
        if let Some(reason) = wave_closed_reason(board, mission, task) {
            add(WaitKind::Wave, reason);
        }
        if let Some(limit) = mission_full_reason(board, mission).filter(|_| task.is_polled()) {
            add(WaitKind::Slot, limit);
        }
        for result in mission
            .blocking_gates
            .iter()
            .filter(|result| result.concerns(task.id))
        {
            add(result.kind.unwrap_or(WaitKind::Gate), result.reason.clone());
        }
    }
    let slot_use = |name: &AgentName| {
        let capacity = board
            .agents
            .get(name)
            .map(|agent| agent::capacity(board, agent))?;
        Some((
            capacity.available == 0,
            format!("{name} {}/{}", capacity.current, capacity.max),
        ))
    };
    match (&task.assignee, mission) {
        (Some(name), _) => match slot_use(name) {
            Some((true, text)) => add(WaitKind::Slot, format!("its agent is at capacity: {text}")),
            _ if mission.is_some()
                || !task.purpose.has_contract()
                || starts_by_assignment(board, task) =>
            {
                return Some(name.to_string());
            }
            _ if let Some(team) = launch::team_of(board, name) => add(
                WaitKind::Lane,
                format!("{name} is a member of team {team}, and works while the team is up"),
            ),
            _ if task.status == TaskStatus::Offered => add(
                WaitKind::Offer,
                format!("it is offered to {name}, which has not answered"),
            ),
            _ => add(
                WaitKind::Runner,
                format!("{name} has not asked for it yet: regatta task poll --as {name}"),
            ),
        },
        (None, Some(mission)) => {
            let full_agents: Vec<String> = mission
                .agents
                .iter()
                .filter_map(&slot_use)
                .filter(|(is_full, _)| *is_full)
                .map(|(_, text)| text)
                .collect();
            if full_agents.len() == mission.agents.len() {
                add(
                    WaitKind::Slot,
                    format!("its agents are at capacity: {}", full_agents.join(", ")),
                );
            } else {
                return Some("an agent".into());
            }
        }
        (None, None) => add(
            WaitKind::Runner,
            format!(
                "no mission or agent has it: regatta run, or regatta assign {} NAME",
                task.id
            ),
        ),
    }
    None
}
