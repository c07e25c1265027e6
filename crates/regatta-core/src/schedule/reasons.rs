//! The reasons why a task waits, for people.
//!
//! [`wait_reasons`] checks the same conditions as [`super::poll`] in the same order and describes the
//! ones that fail (W1: every waiting task has a reason).

use crate::board::{Board, Draft};
use crate::ids::{AgentName, Now};
use crate::landing::{LandingState, wave_commit};
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

/// Returns all reasons why a task waits. The list is never empty for a task that neither runs nor
/// has ended (W1).
pub fn wait_reasons(board: &Board, task: &Task, now: Now) -> Vec<WaitReason> {
    let mut reasons = Vec::new();
    let mut say = |kind, text: String| reasons.push(WaitReason { kind, text });
    let asked = approval::question_blocking_work(board, task);
    match task.status {
        TaskStatus::InProgress
        | TaskStatus::Validating
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => {
            return reasons;
        }
        TaskStatus::Backlog => say(
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
            say(WaitKind::Question, format!("{text}. regatta inbox"));
        }
        TaskStatus::InReview => {
            let reason = task
                .reason
                .clone()
                .unwrap_or_else(|| "somebody must review it".into());
            say(
                WaitKind::Review,
                format!("{reason}, then regatta land {}", task.id),
            );
        }
        TaskStatus::NeedsHuman => {
            let kind = task.needed_decision.unwrap_or(WaitKind::Review);
            say(
                kind,
                task.reason
                    .clone()
                    .unwrap_or_else(|| "it needs a person".into()),
            );
        }
        TaskStatus::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) => {
                let ahead = board
                    .queue_of(&landing.project)
                    .take_while(|board| board.id != landing.id)
                    .count();
                let stopped = board
                    .projects
                    .get(&landing.project)
                    .and_then(|project| project.queue.held.as_ref());
                let awaited = wave_commit::wave_of(board, landing)
                    .map(|pair| wave_commit::awaited_tasks(board, pair))
                    .unwrap_or_default();
                match (&landing.held, &landing.state) {
                    (Some(reason), _) => say(WaitKind::Policy, reason.clone()),
                    (None, LandingState::Moving { .. }) => {
                        say(WaitKind::Queue, "it is moving the trunk".into())
                    }
                    (None, _) if stopped.is_some() => {
                        let (by, why) = stopped
                            .map_or(("", ""), |queue_hold| (&queue_hold.by, &queue_hold.reason));
                        say(
                            WaitKind::Policy,
                            format!("{by} holds the queue: {why}. regatta queue release"),
                        );
                    }
                    (None, LandingState::Validated { .. }) => {
                        say(WaitKind::Claim, trunk_holder(board, landing, now))
                    }
                    (None, LandingState::Trying { ahead, .. }) if ahead.is_empty() => {
                        say(WaitKind::Queue, "it is being merged and validated".into())
                    }
                    (None, LandingState::Trying { ahead, .. }) => say(
                        WaitKind::Queue,
                        format!(
                            "it is being merged and validated on top of {} more",
                            ahead.len()
                        ),
                    ),
                    (None, _) if !landing.deferred_behind.is_empty() && landing.faults > 0 => {
                        let names: Vec<String> = landing
                            .deferred_behind
                            .iter()
                            .filter_map(|id| Some(board.landings.get(id)?.task.to_string()))
                            .collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        say(
                            WaitKind::Queue,
                            format!(
                                "it failed a check once merged; it is tried again after {}",
                                attempt::first_few(&names)
                            ),
                        )
                    }
                    (None, _) if !landing.deferred_behind.is_empty() => {
                        let names: Vec<String> = landing
                            .deferred_behind
                            .iter()
                            .filter_map(|id| Some(board.landings.get(id)?.task.to_string()))
                            .collect();
                        let text = match names.as_slice() {
                            [one] => format!("it conflicts with {one}, which lands first"),
                            several => format!(
                                "it conflicts with one of {}, which land first",
                                several.join(", ")
                            ),
                        };
                        say(WaitKind::Conflict, text)
                    }
                    (None, LandingState::Queued) if !awaited.is_empty() => {
                        let names: Vec<String> = awaited.iter().map(ToString::to_string).collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        say(
                            WaitKind::Wave,
                            format!(
                                "its wave lands as one commit, with {}",
                                attempt::first_few(&names)
                            ),
                        )
                    }
                    (None, _) => say(
                        WaitKind::Queue,
                        format!("it is number {} in the landing queue", ahead + 1),
                    ),
                }
            }
            None => say(
                WaitKind::Queue,
                "it is on its way into the landing queue".into(),
            ),
        },
        TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending => {
            if task.resting && task.is_conversation() {
                say(
                    WaitKind::Question,
                    "its turn is over; it continues when somebody writes in its thread".into(),
                );
            } else if task.resting {
                say(
                    WaitKind::Lead,
                    "its turn is over; it continues when an event concerns its mission".into(),
                );
            }
            if let Some(reason) = &task.paused {
                say(WaitKind::Paused, format!("it is paused: {reason}"));
            }
            if let Some(attempt) = task.attempt {
                say(
                    WaitKind::Runner,
                    format!("its last attempt {attempt} is still being stopped"),
                );
            }
            for blocker in &task.blocked_by {
                match (board.tasks.get(blocker), board.ended_status(*blocker)) {
                    (Some(other), _) => say(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker} \"{}\", which {}",
                            other.subject,
                            describe_blocker(board, other, now)
                        ),
                    ),
                    (None, Some(TaskStatus::Completed)) => {}
                    (None, Some(status)) => say(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker}, which {}: take the blocker away, or cancel this",
                            status.phrase()
                        ),
                    ),
                    (None, None) => {}
                }
            }
            if let Some(at) = task.not_before_fleet_ms {
                let wait = seconds(at.saturating_sub(now.fleet_ms));
                say(
                    WaitKind::Backoff,
                    format!("its last attempt was interrupted; the next starts in {wait}"),
                );
            }
            if let Some(gate) = missing_contract_part(board, task) {
                say(WaitKind::Gate, gate);
            }
            if let Some(rule) = project_rules::blocking_rule(board, task) {
                say(WaitKind::Policy, rule);
            }
            let (uris, mode) = (
                manifest::claims_of_task(board, task),
                manifest::claim_mode(board, task),
            );
            let mut holders =
                claim::conflicting_holders(&Draft::new(board, now), &uris, mode, None, now);
            holders.extend(claim::task_holders(
                board,
                task,
                task.assignee.as_ref(),
                now,
            ));
            for holder in holders.iter().take(5) {
                say(WaitKind::Claim, describe_holder(board, holder));
            }
            if let Some(hot) = collision_forecast::reason_to_wait(board, task) {
                say(WaitKind::Conflict, hot);
            }
            if let Some(short) = port_shortage(&Draft::new(board, now), &task.project, now) {
                say(
                    WaitKind::Claim,
                    format!("it needs ports: {}", short.message()),
                );
            }
            if let Some(who) = report_agent_waits(board, task, now, &mut say) {
                let text = if reasons.is_empty() {
                    format!("{who} is about to start on it")
                } else {
                    format!(
                        "{who} has a free slot and starts on it when the reasons above are gone"
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

/// Returns the current state of a blocker as part of a sentence, including the person or agent for
/// which it waits. Its own blockers are left out, because they are shown with that task.
pub(super) fn describe_blocker(board: &Board, task: &Task, now: Now) -> String {
    let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
    match task.status {
        TaskStatus::InProgress | TaskStatus::Validating => match attempt {
            Some(attempt) if attempt.stopping.is_some() => "is being stopped".into(),
            Some(attempt) => match approval::open_request_of(board, attempt) {
                Some(open) => format!("waits for you ({})", open.id),
                None if task.status == TaskStatus::Validating => "is being checked".into(),
                None => task.status.phrase().into(),
            },
            None => task.status.phrase().into(),
        },
        TaskStatus::InReview => "is in review, and waits for you".into(),
        TaskStatus::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) if landing.held.is_some() => "is landing, and waits for you".into(),
            Some(landing) if matches!(landing.state, LandingState::Queued) => {
                let ahead = board
                    .queue_of(&landing.project)
                    .take_while(|board| board.id != landing.id)
                    .count();
                format!("is number {} in the landing queue", ahead + 1)
            }
            _ => task.status.phrase().into(),
        },
        status if status.is_waiting() => {
            let agent = task
                .agent
                .as_ref()
                .or(task.assignee.as_ref())
                .and_then(|agent| board.agents.get(agent));
            let parked = agent.and_then(|agent| {
                provider_outage::find_parked(board, agent)
                    .map(|parked| provider_outage::describe(parked, now))
            });
            match (&task.paused, parked) {
                (Some(reason), _) => format!("is paused: {reason}"),
                (None, Some(parked)) => format!("waits because {parked}"),
                (None, None) => status.phrase().into(),
            }
        }
        status => status.phrase().into(),
    }
}

/// Returns a sentence about the holder of the trunk for which a landing waits.
pub(super) fn trunk_holder(board: &Board, landing: &crate::landing::Landing, now: Now) -> String {
    let uri = crate::pattern::Uri::for_trunk(&landing.project);
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

/// Returns a sentence that names the holder of a URI and the remaining time.
pub(super) fn describe_holder(board: &Board, holder: &ClaimHolder) -> String {
    let ends = holder.ends_in_ms.map_or(String::new(), |ms| {
        format!(" for {} more unless renewed", seconds(ms))
    });
    format!(
        "{} is held by {}{ends}",
        holder.uri,
        describe_owner(board, &holder.owner)
    )
}

pub(super) fn describe_owner(board: &Board, owner: &claim::ClaimOwner) -> String {
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

/// Reports the reasons why the agents of a task do not start it. Returns the agent that has a free
/// slot for it, if there is one.
pub(super) fn report_agent_waits(
    board: &Board,
    task: &Task,
    now: Now,
    say: &mut impl FnMut(WaitKind, String),
) -> Option<String> {
    let candidates: Vec<&AgentName> = match (
        &task.assignee,
        task.mission.and_then(|id| board.missions.get(&id)),
    ) {
        (Some(name), _) => vec![name],
        (None, Some(mission)) => mission.agents.iter().collect(),
        (None, None) => vec![],
    };
    // Agents that wait for a person for the same reason are named together.
    let of = |name: &&AgentName| {
        board
            .agents
            .get(*name)
            .and_then(|agent| provider_outage::find_parked(board, agent))
    };
    let mut stuck: Vec<&ProviderOutage> = candidates
        .iter()
        .filter_map(of)
        .filter(|parked| parked.deadline_fleet_ms.is_none())
        .collect();
    for agent in candidates
        .iter()
        .filter_map(|agent| board.agents.get(*agent))
    {
        if let Some(why) = &agent.offline {
            say(
                WaitKind::Runner,
                format!("{} is offline until it registers again: {why}", agent.name),
            );
        }
        match provider_outage::find_parked(board, agent) {
            Some(parked) if parked.deadline_fleet_ms.is_some() => {
                say(WaitKind::RateLimit, provider_outage::describe(parked, now))
            }
            Some(parked) => {
                let alike = |other: &&ProviderOutage| {
                    (other.class, &other.reason) == (parked.class, &parked.reason)
                };
                let (same, others): (Vec<_>, Vec<_>) = stuck.into_iter().partition(alike);
                stuck = others;
                match same.len() {
                    0 => {}
                    1 => say(WaitKind::Provider, provider_outage::describe(parked, now)),
                    _ => say(WaitKind::Provider, provider_outage::describe_all(&same)),
                }
            }
            None => {}
        }
        if let Some(holder) = claim::name_holders(board, &agent.name, now).first() {
            say(WaitKind::Claim, describe_holder(board, holder));
        }
        if let Some(text) = budget::blocking_budget(board, task, &agent.name, now) {
            say(WaitKind::Budget, text);
        }
        if let Some(text) = runner::no_runner_reason(board, agent) {
            say(WaitKind::Runner, text);
        }
    }
    if let Some(name) = task
        .resume
        .as_ref()
        .and_then(|resume_point| resume_point.runner.as_ref())
        && board
            .runners
            .get(name)
            .is_some_and(|runner| runner.is_present())
    {
        say(
            WaitKind::Runner,
            format!("its unfinished work is on runner {name}, so it waits for a free slot there"),
        );
    }
    if let Some(full) = machine_full_reason(board).filter(|_| !task.is_light()) {
        say(WaitKind::Machine, full);
    }
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    if let Some(mission) = mission {
        if mission.state != mission::MissionState::Active {
            say(
                WaitKind::Paused,
                format!("{} is draining: regatta run --resume", mission.id),
            );
        }
        if let Some(reason) = wave_closed_reason(board, mission, task) {
            say(WaitKind::Wave, reason);
        }
        if let Some(full) = mission_full_reason(board, mission).filter(|_| task.is_polled()) {
            say(WaitKind::Slot, full);
        }
        for gate_result in mission
            .blocking_gates
            .iter()
            .filter(|passage| passage.concerns(task.id))
        {
            say(
                gate_result.kind.unwrap_or(WaitKind::Gate),
                gate_result.reason.clone(),
            );
        }
    }
    let slots = |name: &AgentName| {
        let room = board
            .agents
            .get(name)
            .map(|agent| agent::capacity(board, agent))?;
        Some((
            room.available == 0,
            format!("{name} {}/{}", room.current, room.max),
        ))
    };
    match (&task.assignee, mission) {
        (Some(name), _) => match slots(name) {
            Some((true, text)) => say(WaitKind::Slot, format!("its agent is at capacity: {text}")),
            _ if mission.is_some() || task.duty.is_some() || starts_by_assignment(board, task) => {
                return Some(name.to_string());
            }
            _ if let Some(team) = launch::team_of(board, name) => say(
                WaitKind::Lane,
                format!("{name} is a member of team {team}, and works while the team is up"),
            ),
            _ if task.status == TaskStatus::Offered => say(
                WaitKind::Offer,
                format!("it is offered to {name}, which has not answered"),
            ),
            _ => say(
                WaitKind::Runner,
                format!("{name} has not asked for it yet: regatta task poll --as {name}"),
            ),
        },
        (None, Some(mission)) => {
            let full: Vec<String> = mission
                .agents
                .iter()
                .filter_map(&slots)
                .filter(|agent| agent.0)
                .map(|agent| agent.1)
                .collect();
            if full.len() == mission.agents.len() {
                say(
                    WaitKind::Slot,
                    format!("its agents are at capacity: {}", full.join(", ")),
                );
            } else {
                return Some("an agent".into());
            }
        }
        (None, None) => say(
            WaitKind::Runner,
            format!(
                "no mission or agent has it: regatta run, or regatta assign {} NAME",
                task.id
            ),
        ),
    }
    None
}
