//! Who is in the queue, in which order, and what goes on next.

use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::claim::{self, Owner};
use crate::event::Event;
use crate::ids::{AgentName, LandingId, Now, ProjectName};
use crate::pattern::Uri;
use crate::project::QueueMode;
use crate::refusal::Refusal;
use crate::task::{self, Status, Submission, Task};

use super::join;
use super::people::needs_person;
use super::plan::{self, Known, Pace};
use super::wave::{self, Waves};
use super::{Begun, Ended, Landing, Moving, Queued, State};

/// Queues finished work and hands the attempt's claims to its landing; or keeps it for a person to look at.
pub(crate) fn submit(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    submission: Submission,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    if let Some(reason) = needs_person(draft.board(), task, &submission.changed) {
        task::review(draft, task.id, submission, reason)?;
        super::review::begin(draft, task.id, &attempt.agent, now)?;
        return Ok(None);
    }
    let id = enter(draft, task, attempt.agent.clone(), submission, now)?;
    claim::transfer_all(draft, &Owner::Attempt(attempt.id), &Owner::Landing(id));
    Ok(Some(id))
}

/// Puts work at the end of its queue.
pub(super) fn enter(
    draft: &mut Draft,
    task: &Task,
    agent: AgentName,
    submission: Submission,
    now: Now,
) -> Result<LandingId, Refusal> {
    let landing = fresh(draft, task, agent, submission, now);
    enter_as(draft, landing)
}

/// Whose work it is when it is nobody else's.
pub(super) fn regatta() -> AgentName {
    AgentName::new("regatta").expect("a plain word is a name")
}

/// A landing of this task's work that nobody has looked at yet.
pub(super) fn fresh(draft: &Draft, task: &Task, agent: AgentName, submission: Submission, now: Now) -> Landing {
    Landing {
        id: LandingId(draft.board().counters.landing + 1),
        project: task.project.clone(),
        task: task.id,
        mission: task.mission,
        agent,
        branch: task.branch(),
        reverts: submission.reverts,
        submission,
        priority: task.priority,
        state: State::Queued,
        held: None,
        hindered: None,
        retry_at: None,
        tries: 0,
        queued_wall: now.wall,
        end: None,
        first: false,
        approved: None,
        red: None,
        behind: vec![],
        under: None,
    }
}

/// Puts a landing into its queue as it is.
pub(super) fn enter_as(draft: &mut Draft, landing: Landing) -> Result<LandingId, Refusal> {
    let id = landing.id;
    task::submit(draft, landing.task, id, landing.submission.clone())?;
    draft.record(Event::LandingQueued(Queued { landing: landing.into() }));
    Ok(id)
}

/// Who may be tried, in the order of the trunk to be (Q10): first those that trials are about, as they stand there;
/// then the others by priority, age and number, none before what it depends on. Who is held, or waits for somebody
/// to be gone or to come, stands aside (Q9); who belongs into one commit stands together.
pub(super) fn order(board: &Board, project: &ProjectName, now: Now) -> Vec<LandingId> {
    if let Some(alone) = join::turn(board, project, now) {
        return vec![alone];
    }
    let mut order: Vec<LandingId> = Vec::new();
    for landing in board.queue_of(project) {
        let train = match (&landing.state, &landing.red) {
            (State::Trying { void: false, .. } | State::Validated { .. } | State::Moving { .. }, _) => landing.train(),
            (_, Some(red)) => red.ahead.iter().copied().chain([landing.id]).collect(),
            _ => continue,
        };
        if train.len() > order.len() {
            order = train;
        }
    }
    let mut waves = Waves::new(board);
    let mut rest: Vec<&Landing> = board
        .queue_of(project)
        .map(|it| &**it)
        .filter(|it| !order.contains(&it.id))
        .filter(|it| it.retry_at.is_none_or(|at| at <= now.at))
        .filter(|it| !it.behind.iter().any(|other| board.landings.contains_key(other)))
        .filter(|it| waves.lets(it))
        .collect();
    // What it depends on has usually landed before it began; only an edit can put both into the queue.
    loop {
        let mate = wave::mate(board, order.last(), &rest).filter(|it| !depends(board, rest[*it], &order));
        let ready = mate.or_else(|| rest.iter().position(|it| !depends(board, it, &order)));
        let Some(ready) = ready else { return order };
        order.push(rest.remove(ready).id);
    }
}

/// Whether something it depends on is still open and not before it in the queue.
fn depends(board: &Board, landing: &Landing, before: &[LandingId]) -> bool {
    let Some(task) = board.tasks.get(&landing.task) else { return false };
    task.blocked_by
        .iter()
        .filter_map(|it| board.tasks.get(it))
        .any(|blocker| blocker.status == Status::Landing && blocker.landing.is_none_or(|it| !before.contains(&it)))
}

/// Lets a project's queue go on: the longest prefix that passed takes the trunk, and free slots are used.
pub(crate) fn advance(draft: &mut Draft, project: &ProjectName, now: Now) {
    let Some(it) = draft.board().projects.get(project).cloned() else { return };
    if it.queue.held.is_some() {
        return;
    }
    if let Some(alone) = join::turn(draft.board(), project, now)
        && !join::make_room(draft, project, alone)
    {
        return;
    }
    take_trunk(draft, project, now);
    let board = draft.board();
    let order = order(board, project, now);
    let known = look(board, project, &order);
    let landing = &it.settings.landing;
    let pace = match landing.mode {
        QueueMode::Serial if board.queue_of(project).any(|it| is_under_way(board, &order, it)) => return,
        QueueMode::Serial => Pace { slots: 1, batch: 1 },
        QueueMode::Speculative => Pace {
            slots: plan::slots(&it, board.limits.landing_slots) as usize,
            batch: landing.batch.map_or_else(
                || plan::batch_for(it.queue.recent.count_ones(), it.queue.seen),
                |it| it.clamp(1, 64) as usize,
            ),
        },
    };
    let searches = known.red.is_some_and(|it| it > known.green);
    let next = plan::next(&known, pace);
    let next = if searches { next } else { wave::whole(board, &order, next) };
    for length in next {
        begin(draft, &order, length);
    }
}

/// Whether something goes on for it. One that passed and may not land without the rest of its wave waits for them.
fn is_under_way(board: &Board, order: &[LandingId], landing: &Landing) -> bool {
    match landing.state {
        State::Queued => false,
        State::Validated { .. } => !wave::is_cut(board, order, &landing.train()),
        State::Trying { .. } | State::Moving { .. } => true,
    }
}

/// Begins the trial of a prefix, unless its last landing is still in one that no longer counts.
fn begin(draft: &mut Draft, order: &[LandingId], length: usize) {
    let Some((last, ahead)) = order[..length].split_last() else { return };
    if draft.board().landings.get(last).is_some_and(|it| it.state == State::Queued) {
        draft.record(Event::LandingBegun(Begun { landing: *last, ahead: Some(ahead.to_vec()) }));
    }
}

/// What is known of the prefixes of this order.
fn look(board: &Board, project: &ProjectName, order: &[LandingId]) -> Known {
    let mut known = Known { queue: order.len(), ..Known::default() };
    let length = |train: &[LandingId]| order.starts_with(train).then_some(train.len());
    for landing in board.queue_of(project) {
        let train = landing.train();
        match (&landing.state, length(&train)) {
            (State::Trying { void: false, .. }, Some(length)) => known.busy.push(length),
            (State::Trying { .. }, _) => known.lost += 1,
            (State::Validated { .. } | State::Moving { .. }, Some(length)) => known.green = known.green.max(length),
            _ => {}
        }
        if let Some(red) = &landing.red {
            let train: Vec<_> = red.ahead.iter().copied().chain([landing.id]).collect();
            if let Some(length) = length(&train) {
                known.red = Some(known.red.map_or(length, |it| it.min(length)));
            }
        }
    }
    known
}

/// Takes the trunk for the longest prefix that passed, unless somebody holds it; then the claim's end calls again.
fn take_trunk(draft: &mut Draft, project: &ProjectName, now: Now) {
    let board = draft.board();
    if board.queue_of(project).any(|it| matches!(it.state, State::Moving { .. })) {
        return;
    }
    let passed = board.queue_of(project).filter(|it| matches!(it.state, State::Validated { .. }));
    let order = order(board, project, now);
    let alone = join::turn(board, project, now);
    let passed: Vec<_> = passed
        .filter(|it| !wave::is_cut(board, &order, &it.train()) && alone.is_none_or(|alone| alone == it.id))
        .cloned()
        .collect();
    // Whoever holds the trunk by hand may lend it to one landing, and then it is the one that moves.
    let lent = board.queue_of(project).find_map(|it| {
        let under = it.under.clone().filter(|it| claim::lends_trunk(board, it, project).is_ok())?;
        Some((it.id, under.token))
    });
    if let Some((lent, fence)) = lent {
        let carries = passed.iter().filter(|it| it.train().contains(&lent)).min_by_key(|it| it.train().len());
        if let Some(landing) = carries.map(|it| it.id) {
            draft.record(Event::LandingMoving(Moving { landing, fence }));
        }
        return;
    }
    let Some(id) = passed.iter().max_by_key(|it| it.train().len()).map(|it| it.id) else { return };
    if let Ok(fence) = claim::take_trunk(draft, id, Uri::of_trunk(project), now) {
        draft.record(Event::LandingMoving(Moving { landing: id, fence }));
    }
}

/// Tries a held landing again when its time has come.
pub(crate) fn retry(draft: &mut Draft, id: LandingId, now: Now) {
    let Some(landing) = draft.board().landings.get(&id).cloned() else { return };
    if landing.state == State::Queued && landing.retry_at.is_some_and(|at| at <= now.at) {
        advance(draft, &landing.project, now);
    }
}

/// Takes a task's landing out of the queue because somebody said so; refused while the trunk is being moved for it.
pub(crate) fn withdraw(draft: &mut Draft, id: LandingId, reason: &str) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else { return Ok(()) };
    let board = draft.board();
    let moves = |it: &Landing| matches!(it.state, State::Moving { .. }) && it.train().contains(&id);
    if board.queue_of(&landing.project).any(|it| moves(it)) {
        return Err(Refusal::InUse {
            what: landing.task.to_string(),
            by: "the move of the trunk, which is under way".into(),
        });
    }
    draft.record(Event::LandingEnded(Ended {
        landing: id,
        task: landing.task,
        reason: reason.to_owned(),
        retry: false,
        fault: None,
    }));
    claim::release_all(draft, &Owner::Landing(id));
    Ok(())
}
