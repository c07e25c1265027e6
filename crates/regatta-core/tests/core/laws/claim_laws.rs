//! The rules of exclusion, written a second time: files, ports and trunks exclude everybody. A
//! task, a workspace and an agent's name exclude every other party.

use regatta_core::board::Board;
use regatta_core::claim::{Claim, Mode, Owner, Wait};
use regatta_core::ids::AgentName;
use regatta_core::pattern::Uri;
use regatta_core::task::Task;

use super::{mode_of, needs};

/// One side of a possible conflict.
pub(super) struct Side {
    uris: Vec<Uri>,
    mode: Mode,
    agent: Option<AgentName>,
    /// Whether running work holds the URIs implicitly, rather than through a claim.
    is_work: bool,
}

impl Side {
    pub(super) fn unknown(uris: &[Uri], mode: Mode) -> Side {
        Side { uris: uris.to_vec(), mode, agent: None, is_work: false }
    }

    pub(super) fn by_hand(board: &Board, owner: &Owner, uris: &[Uri], mode: Mode) -> Side {
        Side { uris: uris.to_vec(), mode, agent: agent_of(board, owner), is_work: false }
    }

    pub(super) fn of_wait(board: &Board, wait: &Wait) -> Side {
        Side::by_hand(board, &wait.owner, &wait.uris, wait.mode)
    }

    pub(super) fn of_claim(board: &Board, claim: &Claim) -> Side {
        Side::by_hand(board, &claim.owner, &claim.uris, claim.mode)
    }

    fn work(uris: Vec<String>, agent: &AgentName) -> Side {
        let uris = uris.iter().map(|text| Uri::new(text).unwrap()).collect();
        Side { uris, mode: Mode::Exclusive, agent: Some(agent.clone()), is_work: true }
    }
}

/// Returns the URIs that running work holds implicitly: its task, its workspace if it has one, and
/// its agent's name while it is an attempt.
fn work(board: &Board) -> Vec<(Owner, Side)> {
    let mut all = Vec::new();
    for attempt in board.attempts.values() {
        let (project, task) = (&attempt.project, attempt.task);
        let mut uris = vec![format!("task://{project}/{task}"), format!("agent://{}", attempt.agent)];
        if !attempt.bare {
            uris.push(format!("workspace://{project}/{task}"));
        }
        all.push((Owner::Attempt(attempt.id), Side::work(uris, &attempt.agent)));
    }
    for landing in board.landings.values().filter(|landing| landing.submission.joins.is_none()) {
        let (project, task) = (&landing.project, landing.task);
        let uris = vec![format!("task://{project}/{task}"), format!("workspace://{project}/{task}")];
        all.push((Owner::Landing(landing.id), Side::work(uris, &landing.agent)));
    }
    all
}

fn agent_of(board: &Board, owner: &Owner) -> Option<AgentName> {
    match owner {
        Owner::Agent(name) => Some(name.clone()),
        Owner::Attempt(id) => board.attempts.get(id).map(|attempt| attempt.agent.clone()),
        Owner::Landing(id) => board.landings.get(id).map(|landing| landing.agent.clone()),
    }
}

/// Returns whether the two sides cannot be held at the same time.
pub(super) fn conflict(a: &Side, b: &Side) -> bool {
    let excludes = |x: &Uri| a.uris.iter().any(|y| y.overlaps(x)) && !is_one_party(x, a, b);
    (a.mode == Mode::Exclusive || b.mode == Mode::Exclusive) && b.uris.iter().any(excludes)
}

fn is_one_party(uri: &Uri, a: &Side, b: &Side) -> bool {
    let scheme = uri.as_str().split("://").next().unwrap_or_default();
    let (Some(one), Some(other)) = (&a.agent, &b.agent) else { return false };
    let below = |work: &AgentName, hand: &AgentName| {
        work == hand || work.as_str().strip_prefix(hand.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    match (scheme, a.is_work, b.is_work) {
        (_, false, false) => false,
        ("agent", _, _) => one == other,
        ("task" | "workspace", true, false) => below(one, other),
        ("task" | "workspace", false, true) => below(other, one),
        _ => false,
    }
}

/// L1: no two claims overlap unless both are shared, and no claim overlaps the implicit URIs of
/// another party's work.
pub(super) fn check_exclusion(board: &Board) {
    let work = work(board);
    for (id, a) in &board.claims {
        let side = Side::of_claim(board, a);
        for b in board.claims.values().filter(|claim| claim.id > *id) {
            assert!(!conflict(&side, &Side::of_claim(board, b)), "L1: {} and {} overlap", a.id, b.id);
        }
        for (owner, theirs) in &work {
            assert!(!conflict(&side, theirs), "L1: {} overlaps what {owner} holds", a.id);
        }
    }
}

/// Returns the owners that block a side: holders, waits before `line`, and running work. Running
/// work does not block work; the task's own state decides that.
pub(super) fn blockers(board: &Board, side: &Side, line: Option<&Wait>) -> Vec<Owner> {
    let held = board.claims.values().filter(|claim| conflict(side, &Side::of_claim(board, claim)));
    let waiting = board.waits.values().filter(|wait| line.is_none_or(|mine| wait.id < mine.id));
    let waiting = waiting.filter(|wait| conflict(side, &Side::of_wait(board, wait)));
    let work = if side.is_work { vec![] } else { work(board) };
    let work = work.into_iter().filter(|(_, theirs)| conflict(side, theirs)).map(|(owner, _)| owner);
    held.map(|claim| claim.owner.clone()).chain(waiting.map(|wait| wait.owner.clone())).chain(work).collect()
}

/// Returns whether no claim keeps an agent from starting a task.
pub(super) fn can_start(board: &Board, task: &Task, agent: &AgentName) -> bool {
    let files = Side { is_work: true, ..Side::unknown(&needs(board, task), mode_of(board, task)) };
    let names = ["task", "workspace"].map(|scheme| format!("{scheme}://{}/{}", task.project, task.id));
    let names = names.into_iter().chain([format!("agent://{agent}")]).collect();
    blockers(board, &files, None).is_empty() && blockers(board, &Side::work(names, agent), None).is_empty()
}
