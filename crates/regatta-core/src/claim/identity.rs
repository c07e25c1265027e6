//! Identity claims: an attempt holds its task, its workspace and its agent's name without a
//! request, while the attempt runs and while its work lands.
//!
//! If somebody else claims one of these objects by hand, the attempt cannot start. While an attempt
//! or a landing is under way, nobody else can claim its objects by hand. Identity claims are not
//! stored. Regatta derives these claims from the running attempts and landings, so the claims are
//! always correct.
//!
//! Identity claims exclude only others. An agent that claimed a task by hand may start the task. A
//! lead agent may claim a task that its worker then starts. All attempts of one agent share the
//! agent's name.
//!
//! [`check_agent_and_project`] checks claims that are made by hand. A claim in the name of an
//! unknown agent, or on an unknown project, would exclude nobody, so it is refused.

use std::sync::Arc;

use crate::attempt::Attempt;
use crate::board::Board;
use crate::bus;
use crate::command::Actor;
use crate::ids::{AgentName, Now, ProjectName, TaskId};
use crate::landing::{self, Landing};
use crate::pattern::{PathPattern, Uri};
use crate::refusal::{ClaimHolder, Refusal};
use crate::task::Task;

use super::{ClaimMode, ClaimOwner, WantedUris, holders_conflicting_with};

/// The party that wants to claim URIs. The party determines which holders of overlapping claims
/// conflict.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Party<'a> {
    /// No party in particular: every holder of an overlapping claim conflicts.
    Anybody,
    /// A person or agent that claims URIs by hand (not through an attempt), in the name of this
    /// owner.
    ByHand(&'a ClaimOwner),
    /// An attempt of this agent that is about to start, or the landing of this agent's work.
    Work(&'a AgentName),
    /// An attempt that is about to start and whose agent is not known yet.
    AnyWork,
}

/// Returns the URIs that nobody else may hold when an attempt at `task` starts: the URIs of the
/// task (also under its alias), of its workspace, and of the agent's name.
pub(crate) fn uris_of_start(task: &Task, agent: &AgentName) -> Vec<Uri> {
    let mut uris = uris_of_task(task);
    uris.push(Uri::for_agent(agent));
    uris
}

/// Returns the URIs of a task and of its workspace. If the task also has an id in another tracker,
/// includes the URI with that id (`task://shop/bd-12`), because others may claim the task under it.
pub(crate) fn uris_of_task(task: &Task) -> Vec<Uri> {
    let alias = task
        .alias
        .as_ref()
        .filter(|alias| !alias.contains(['*', '?', '%']));
    let alias = alias.and_then(|alias| Uri::new(&format!("task://{}/{alias}", task.project)).ok());
    let by_id = [
        Uri::for_task(&task.project, task.id),
        Uri::for_workspace(&task.project, task.id),
    ];
    by_id.into_iter().chain(alias).collect()
}

/// Returns the URIs that an attempt holds without a stored claim as long as it runs.
pub(crate) fn held_by_attempt(attempt: &Attempt) -> Vec<Uri> {
    let workspace =
        (!attempt.no_workspace).then(|| Uri::for_workspace(&attempt.project, attempt.task));
    let always = [
        Uri::for_task(&attempt.project, attempt.task),
        Uri::for_agent(&attempt.agent),
    ];
    always.into_iter().chain(workspace).collect()
}

/// Returns the URIs that a landing holds until it ends, although no claim on them is stored. The URI
/// of the agent is left out, because the agent no longer runs. The landing of commits from a remote holds
/// nothing, because it belongs to no task's work.
pub(crate) fn held_by_landing(board: &Board, landing: &Landing) -> Vec<Uri> {
    if landing::merged_remote(board, landing).is_some() {
        return vec![];
    }
    vec![
        Uri::for_task(&landing.project, landing.task),
        Uri::for_workspace(&landing.project, landing.task),
    ]
}

/// Returns all URIs that attempts and landings hold without a stored claim, with their owners.
pub fn held_by_work(board: &Board) -> impl Iterator<Item = (ClaimOwner, Vec<Uri>)> {
    let attempts = board
        .attempts
        .values()
        .map(|attempt| (ClaimOwner::Attempt(attempt.id), held_by_attempt(attempt)));
    let landings = board.landings.values().map(|landing| {
        let uris = held_by_landing(board, landing);
        (ClaimOwner::Landing(landing.id), uris)
    });
    attempts.chain(landings)
}

/// Returns the attempts and landings that hold a URI which overlaps `uri` and that do not belong to
/// `party`, each with the overlapping URI.
pub(super) fn uses_by_others(board: &Board, uri: &Uri, party: Party) -> Vec<(ClaimOwner, Uri)> {
    // Work that is about to start needs no check here: the state of its task already excludes a
    // second attempt, and attempts of one agent may share its name.
    if matches!(party, Party::Work(_) | Party::AnyWork) || !uri.is_identity() {
        return vec![];
    }
    let is_others = |owner: &ClaimOwner| match party {
        Party::ByHand(asker) => !is_one_party(board, uri, asker, owner),
        _ => true,
    };
    if uri.is_pattern() {
        let overlapping = |(owner, uris): (ClaimOwner, Vec<Uri>)| {
            let theirs = uris.into_iter().find(|theirs| theirs.overlaps(uri))?;
            Some((owner, theirs))
        };
        return held_by_work(board)
            .filter_map(overlapping)
            .filter(|(owner, _)| is_others(owner))
            .collect();
    }
    let attempts = board
        .attempts
        .values()
        .filter(|attempt| does_attempt_hold(attempt, uri))
        .map(|attempt| ClaimOwner::Attempt(attempt.id));
    let landings = board
        .landings
        .values()
        .filter(|landing| does_landing_hold(board, landing, uri))
        .map(|landing| ClaimOwner::Landing(landing.id));
    attempts
        .chain(landings)
        .filter(is_others)
        .map(|owner| (owner, uri.clone()))
        .collect()
}

/// Describes a running attempt or landing in a few words, such as `claude-1 works on T3`, for
/// somebody who waits for its end.
pub(super) fn describe(board: &Board, owner: &ClaimOwner) -> String {
    let attempt = |attempt: &Arc<Attempt>| format!("{} works on {}", attempt.agent, attempt.task);
    let landing = |landing: &Arc<Landing>| format!("{} is landing", landing.task);
    match owner {
        ClaimOwner::Attempt(id) => board.attempts.get(id).map(attempt).unwrap_or_default(),
        ClaimOwner::Landing(id) => board.landings.get(id).map(landing).unwrap_or_default(),
        ClaimOwner::Agent(_) => String::new(),
    }
}

/// Returns whether an attempt holds `uri` without a stored claim while it runs.
fn does_attempt_hold(attempt: &Attempt, uri: &Uri) -> bool {
    match uri.agent() {
        Some(agent) => attempt.agent.as_str() == agent,
        None => {
            uri.names_task(&attempt.project, attempt.task)
                && !(attempt.no_workspace && uri.is_workspace())
        }
    }
}

/// Returns whether a landing holds `uri` without a stored claim until it ends.
fn does_landing_hold(board: &Board, landing: &Landing, uri: &Uri) -> bool {
    uri.names_task(&landing.project, landing.task)
        && landing::merged_remote(board, landing).is_none()
}

/// Returns the URIs of the tasks that `uris` names by an alias, so that a claim on the alias also
/// covers the task itself.
pub(super) fn tasks_by_alias(board: &Board, uris: &[Uri]) -> Vec<Uri> {
    let mut found = Vec::new();
    for uri in uris {
        let Some((project, name)) = uri
            .as_str()
            .strip_prefix("task://")
            .and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if name.parse::<TaskId>().is_ok() || uri.is_pattern() {
            continue;
        }
        let is_named = |task: &&Arc<Task>| {
            task.alias.as_deref() == Some(name) && task.project.as_str() == project
        };
        let tasks = board
            .tasks
            .values()
            .filter(is_named)
            .map(|task| Uri::for_task(&task.project, task.id));
        found.extend(tasks.filter(|task| !uris.contains(task)));
    }
    found
}

/// Returns the holders whose claims or waiting requests prevent attempts of `agent` from using the
/// agent's name.
pub(crate) fn name_holders(board: &Board, agent: &AgentName, now: Now) -> Vec<ClaimHolder> {
    let uris = [Uri::for_agent(agent)];
    holders_conflicting_with(
        board,
        WantedUris {
            uris: &uris,
            mode: ClaimMode::Exclusive,
            own_wait: None,
            party: Party::Work(agent),
        },
        now,
    )
}

/// Returns the holders whose claims or waiting requests prevent `task` from starting. Claims on its
/// files and on its agent's name are not considered.
pub(crate) fn task_holders(
    board: &Board,
    task: &Task,
    agent: Option<&AgentName>,
    now: Now,
) -> Vec<ClaimHolder> {
    let uris = uris_of_task(task);
    let party = agent.map_or(Party::AnyWork, Party::Work);
    holders_conflicting_with(
        board,
        WantedUris {
            uris: &uris,
            mode: ClaimMode::Exclusive,
            own_wait: None,
            party,
        },
        now,
    )
}

/// Returns whether `holder`, which claimed `theirs` by hand or waits for it, is the agent of the
/// work `party` or that agent's lead. Such a claim on a task, a workspace or an agent's name does
/// not prevent the work from starting. A claim on files is never "own".
pub(crate) fn is_own(board: &Board, party: Party, theirs: &Uri, holder: &ClaimOwner) -> bool {
    let Party::Work(agent) = party else {
        return false;
    };
    theirs.is_identity()
        && agent_of(board, holder).is_some_and(|by_hand| may_claim_for(theirs, by_hand, agent))
}

/// Returns whether the owner of a claim by hand on `uri` and the owner of running work belong
/// together, so that they do not exclude each other.
fn is_one_party(board: &Board, uri: &Uri, by_hand: &ClaimOwner, work: &ClaimOwner) -> bool {
    match (agent_of(board, by_hand), agent_of(board, work)) {
        (Some(by_hand), Some(work)) => may_claim_for(uri, by_hand, work),
        _ => false,
    }
}

/// Returns whether the agent `by_hand` may claim something that the agent `work` holds: both are
/// the same agent, or `work` is a worker of `by_hand`. An agent's name may be claimed only by that
/// agent.
fn may_claim_for(uri: &Uri, by_hand: &AgentName, work: &AgentName) -> bool {
    if uri.agent().is_some() {
        by_hand == work
    } else {
        bus::is_same_or_below(work, by_hand)
    }
}

/// Returns the agent itself, or the agent of the attempt or landing that owns a claim.
fn agent_of<'a>(board: &'a Board, owner: &'a ClaimOwner) -> Option<&'a AgentName> {
    match owner {
        ClaimOwner::Agent(name) => Some(name),
        ClaimOwner::Attempt(id) => board.attempts.get(id).map(|attempt| &attempt.agent),
        ClaimOwner::Landing(id) => board.landings.get(id).map(|landing| &landing.agent),
    }
}

/// Refuses a claim by hand that would exclude nobody, because Regatta does not know its agent or
/// its project.
///
/// Known agents are the registered agents, the person or agent who asks, every name that belongs to
/// one of these (`ada/worker-1`), and a project's own identity (`shop-dev`).
pub fn check_agent_and_project(
    board: &Board,
    agent: &AgentName,
    uris: &[Uri],
    by: &Actor,
) -> Result<(), Refusal> {
    let is_registered = board.agents.contains_key(agent)
        || board
            .agents
            .keys()
            .any(|known| bus::is_same_or_below(agent, known));
    let is_caller = match by {
        Actor::Person(name) => {
            AgentName::new(name).is_ok_and(|person| bus::is_same_or_below(agent, &person))
        }
        Actor::Agent(name) => bus::is_same_or_below(agent, name),
        Actor::Regatta => true,
    };
    let is_project_identity = agent
        .as_str()
        .strip_suffix("-dev")
        .is_some_and(|name| has_project(board, name));
    if !(is_registered || is_caller || is_project_identity) {
        return Err(Refusal::NoSuchAgent {
            agent: agent.clone(),
        });
    }
    for uri in uris {
        let Some(project) = uri.project() else {
            continue;
        };
        if !has_project(board, project) {
            return match ProjectName::new(project) {
                Ok(project) => Err(Refusal::NoSuchProject { project }),
                Err(_) => Err(Refusal::invalid(
                    format!("there is no project that matches {uri}"),
                    "see the projects: regatta project list",
                )),
            };
        }
    }
    Ok(())
}

/// Returns whether there is a project called `name` or, if `name` contains wildcards, a project
/// that matches it.
fn has_project(board: &Board, name: &str) -> bool {
    let Ok(pattern) = PathPattern::new(name) else {
        return false;
    };
    board
        .projects
        .keys()
        .any(|project| pattern.matches(project.as_str()))
}
