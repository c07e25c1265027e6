//! The rules of exclusion, written a second time: files, ports and trunks exclude everybody. A
//! task, a workspace and an agent's name exclude every other party.

use regatta_core::board::Board;
use regatta_core::claim::{Claim, ClaimMode, ClaimOwner, ClaimWait};
use regatta_core::ids::AgentName;
use regatta_core::pattern::Uri;
use regatta_core::task::Task;

use super::{mode_of, needed_uris};

/// One side of a possible conflict.
pub(super) struct ClaimParty {
    uris: Vec<Uri>,
    mode: ClaimMode,
    agent: Option<AgentName>,
    /// Whether running work holds the URIs implicitly, rather than through a claim.
    is_work: bool,
}

impl ClaimParty {
    pub(super) fn anonymous(uris: &[Uri], mode: ClaimMode) -> ClaimParty {
        ClaimParty {
            uris: uris.to_vec(),
            mode,
            agent: None,
            is_work: false,
        }
    }

    pub(super) fn by_hand(
        board: &Board,
        owner: &ClaimOwner,
        uris: &[Uri],
        mode: ClaimMode,
    ) -> ClaimParty {
        ClaimParty {
            uris: uris.to_vec(),
            mode,
            agent: agent_of(board, owner),
            is_work: false,
        }
    }

    pub(super) fn from_wait(board: &Board, wait: &ClaimWait) -> ClaimParty {
        ClaimParty::by_hand(board, &wait.owner, &wait.uris, wait.mode)
    }

    pub(super) fn from_claim(board: &Board, claim: &Claim) -> ClaimParty {
        ClaimParty::by_hand(board, &claim.owner, &claim.uris, claim.mode)
    }

    fn for_work(uris: Vec<String>, agent: &AgentName) -> ClaimParty {
        let uris = uris.iter().map(|text| Uri::new(text).unwrap()).collect();
        ClaimParty {
            uris,
            mode: ClaimMode::Exclusive,
            agent: Some(agent.clone()),
            is_work: true,
        }
    }
}

/// Returns the URIs that running work holds implicitly: its task, its workspace if it has one, and
/// its agent's name while it is an attempt.
fn work_parties(board: &Board) -> Vec<(ClaimOwner, ClaimParty)> {
    let mut all = Vec::new();
    for attempt in board.attempts.values() {
        let (project, task) = (&attempt.project, attempt.task);
        let mut uris = vec![
            format!("task://{project}/{task}"),
            format!("agent://{}", attempt.agent),
        ];
        if !attempt.no_workspace {
            uris.push(format!("workspace://{project}/{task}"));
        }
        all.push((
            ClaimOwner::Attempt(attempt.id),
            ClaimParty::for_work(uris, &attempt.agent),
        ));
    }
    for landing in board
        .landings
        .values()
        .filter(|landing| regatta_core::landing::merged_remote(board, landing).is_none())
    {
        let (project, task) = (&landing.project, landing.task);
        let uris = vec![
            format!("task://{project}/{task}"),
            format!("workspace://{project}/{task}"),
        ];
        all.push((
            ClaimOwner::Landing(landing.id),
            ClaimParty::for_work(uris, &landing.agent),
        ));
    }
    all
}

fn agent_of(board: &Board, owner: &ClaimOwner) -> Option<AgentName> {
    match owner {
        ClaimOwner::Agent(name) => Some(name.clone()),
        ClaimOwner::Attempt(id) => board.attempts.get(id).map(|attempt| attempt.agent.clone()),
        ClaimOwner::Landing(id) => board.landings.get(id).map(|landing| landing.agent.clone()),
    }
}

/// Returns whether the two sides cannot be held at the same time.
pub(super) fn do_conflict(a: &ClaimParty, b: &ClaimParty) -> bool {
    let excludes = |x: &Uri| a.uris.iter().any(|y| y.overlaps(x)) && !is_one_party(x, a, b);
    (a.mode == ClaimMode::Exclusive || b.mode == ClaimMode::Exclusive)
        && b.uris.iter().any(excludes)
}

fn is_one_party(uri: &Uri, a: &ClaimParty, b: &ClaimParty) -> bool {
    let scheme = uri.as_str().split("://").next().unwrap_or_default();
    let (Some(one), Some(other)) = (&a.agent, &b.agent) else {
        return false;
    };
    let below = |work: &AgentName, hand: &AgentName| {
        work == hand
            || work
                .as_str()
                .strip_prefix(hand.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
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
    let work = work_parties(board);
    for (id, a) in &board.claims {
        let side = ClaimParty::from_claim(board, a);
        for b in board.claims.values().filter(|claim| claim.id > *id) {
            assert!(
                !do_conflict(&side, &ClaimParty::from_claim(board, b)),
                "L1: {} and {} overlap",
                a.id,
                b.id
            );
        }
        for (owner, theirs) in &work {
            assert!(
                !do_conflict(&side, theirs),
                "L1: {} overlaps what {owner} holds",
                a.id
            );
        }
    }
}

/// Returns the owners that block a side: holders, waits before `line`, and running work. Running
/// work does not block work; the task's own state decides that.
pub(super) fn blockers(
    board: &Board,
    side: &ClaimParty,
    line: Option<&ClaimWait>,
) -> Vec<ClaimOwner> {
    let held = board
        .claims
        .values()
        .filter(|claim| do_conflict(side, &ClaimParty::from_claim(board, claim)));
    let waiting = board
        .waits
        .values()
        .filter(|wait| line.is_none_or(|mine| wait.id < mine.id));
    let waiting = waiting.filter(|wait| do_conflict(side, &ClaimParty::from_wait(board, wait)));
    let work = if side.is_work {
        vec![]
    } else {
        work_parties(board)
    };
    let work = work
        .into_iter()
        .filter(|(_, theirs)| do_conflict(side, theirs))
        .map(|(owner, _)| owner);
    held.map(|claim| claim.owner.clone())
        .chain(waiting.map(|wait| wait.owner.clone()))
        .chain(work)
        .collect()
}

/// Returns whether no claim keeps an agent from starting a task.
pub(super) fn can_start(board: &Board, task: &Task, agent: &AgentName) -> bool {
    let files = ClaimParty {
        is_work: true,
        ..ClaimParty::anonymous(&needed_uris(board, task), mode_of(board, task))
    };
    let names =
        ["task", "workspace"].map(|scheme| format!("{scheme}://{}/{}", task.project, task.id));
    let names = names
        .into_iter()
        .chain([format!("agent://{agent}")])
        .collect();
    blockers(board, &files, None).is_empty()
        && blockers(board, &ClaimParty::for_work(names, agent), None).is_empty()
}
