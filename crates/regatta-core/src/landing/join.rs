//! A remote has commits that are not here. They are brought in as a landing of its own: what landed here and is not there
//! yet is replayed on top of what is there, validated as that exact tree (Q1), and the trunk moves to it by
//! compare-and-swap (Q2). What the trunk was stays under a keep-ref (Q3). Then it can be pushed.
//!
//! It stands on another tip than all others, so it is tried alone, and before them. What does not go together is a
//! person's: the queue is held, with what is to be done, so that the two do not drift further apart.

use serde::{Deserialize, Serialize};

use crate::attempt::first_few;
use crate::board::{Board, Draft};
use crate::claim::{self, Owner};
use crate::command::Actor;
use crate::event::Event;
use crate::failure;
use crate::ids::{AttemptId, CommitId, LandingId, Now, ProjectName};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::task::{self, Expects, Fixup, Status, Submission, Task};

use super::people::let_in;
use super::queue::{enter, fresh, regatta};
use super::report::announce;
use super::{Ended, GoneOn, Hold, Landing, NotPushed, Overtaken, Pushed, State, Stopped};

/// What has landed and is not where `[landing] push` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unpushed {
    pub remote: String,
    /// What was to be pushed last.
    pub commit: CommitId,
    /// Why it was not, the last time it was tried.
    pub reason: String,
    /// Since when it has been so.
    pub since_wall: u64,
}

/// A remote whose trunk has commits that are not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diverged {
    pub remote: String,
    /// Where its trunk is.
    pub tip: CommitId,
    /// What those commits changed.
    pub changed: Vec<String>,
}

/// Takes the report of a push: `None` says that the remote has it all. The same trouble is written down once.
pub fn pushed(
    draft: &mut Draft,
    project: &ProjectName,
    (remote, commit): (String, CommitId),
    trouble: Option<String>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(it) = draft.board().projects.get(project).cloned() else {
        return Err(Refusal::NoSuchProject { project: project.clone() });
    };
    let before = it.queue.unpushed.as_ref();
    match trouble {
        None if before.is_some() => draft.record(Event::QueuePushed(Pushed { project: project.clone(), commit })),
        None => {}
        Some(reason) if before.is_some_and(|it| it.reason == reason && it.commit == commit) => {}
        Some(reason) => {
            let since_wall = before.map_or(now.wall, |it| it.since_wall);
            if before.is_none() {
                let text = format!("{} was not pushed to {remote}, and is tried again: {reason}", short(&commit));
                announce(draft, project, "coord:push", text, now)?;
            }
            let unpushed = Unpushed { remote, commit, reason, since_wall };
            draft.record(Event::QueueUnpushed(NotPushed { project: project.clone(), unpushed }));
        }
    }
    Ok(())
}

fn short(commit: &CommitId) -> &str {
    &commit.as_str()[..10]
}

/// Queues what a remote has, before all others, unless that is under way.
pub fn diverged(
    draft: &mut Draft,
    project: &ProjectName,
    commit: CommitId,
    found: Diverged,
    now: Now,
) -> Result<(), Refusal> {
    let Diverged { remote, tip, changed } = found;
    let open = open(draft.board(), project);
    let queued = open.as_ref().is_some_and(|it| it.landing.is_some());
    let id = match &open {
        Some(task) => task.id,
        None => add(draft, project, &remote, now)?,
    };
    let reason = format!("{remote} has commits that are not here; {id} brings them in");
    pushed(draft, project, (remote.clone(), commit), Some(reason), now)?;
    if queued {
        return Ok(());
    }
    if let Some(task) = open {
        // It was a person's before. The remote may have moved since, so it is looked at again.
        return let_in(draft, &task, true, &Actor::Regatta, now).map(drop);
    }
    let submission = Submission {
        attempt: AttemptId(0),
        base: tip.clone(),
        commit: tip,
        changed,
        reverts: false,
        undoes: None,
        joins: Some(remote),
        special: vec![],
    };
    let task = task::find(draft.board(), id)?;
    let landing = Landing { first: true, ..fresh(draft, &task, regatta(), submission, now) };
    enter(draft, landing, None).map(drop)
}

/// The task that brings in what a remote has, if one is open.
fn open(board: &Board, project: &ProjectName) -> Option<Task> {
    let joins = |it: &&std::sync::Arc<Task>| {
        let ready = matches!(it.status, Status::Landing | Status::NeedsHuman | Status::InReview);
        ready && it.project == *project && is_joining(it)
    };
    board.tasks.values().find(joins).map(|it| Task::clone(it))
}

fn add(draft: &mut Draft, project: &ProjectName, remote: &str, now: Now) -> Result<crate::ids::TaskId, Refusal> {
    let trunk = draft.board().projects.get(project).map(|it| it.trunk.to_string()).unwrap_or_default();
    let subject = format!("Bring in what {remote}/{trunk} has");
    let description = format!(
        "Somebody pushed to {remote}/{trunk}. What landed here and is not there yet is replayed on top of it, validated, and \
         pushed."
    );
    let ask = task::Add {
        priority: 0,
        expects: Expects::Changes,
        ..task::Add::report(project.clone(), &subject, description)
    };
    task::add(draft, ask, None, now)
}

/// The landing that brings in what a remote has, when it is its turn: it goes alone. Who holds the trunk by hand and
/// lends it to another comes first, since it could not move before them.
pub(super) fn turn(board: &Board, project: &ProjectName, now: Now) -> Option<LandingId> {
    let lent = |it: &Landing| it.under.as_ref().is_some_and(|it| claim::lends_trunk(board, it, project).is_ok());
    let joins = board.queue_of(project).find(|it| it.submission.joins.is_some())?;
    let waits = joins.is_put_off(now) || board.queue_of(project).any(|it| lent(it));
    (!waits).then_some(joins.id)
}

/// Makes room for the one that goes alone: what was found out about the others no longer counts, since they will stand
/// on something else. `false` while a move of theirs is under way, which speaks for itself.
pub(super) fn make_room(draft: &mut Draft, project: &ProjectName, alone: LandingId) -> bool {
    let board = draft.board();
    let begins = board.landings.get(&alone).is_some_and(|it| it.state == State::Queued);
    let others = || board.queue_of(project).filter(|it| it.id != alone);
    let counts = |it: &Landing| {
        matches!(it.state, State::Trying { void: false, .. } | State::Validated { .. }) || it.red.is_some()
    };
    let moving = others().any(|it| matches!(it.state, State::Moving { .. }));
    if begins && others().any(|it| counts(it)) {
        draft.record(Event::QueueOvertaken(Overtaken { project: project.clone() }));
    }
    !moving
}

/// Somebody lends the trunk to another: who goes alone stands aside until that has landed.
pub(super) fn stand_aside(draft: &mut Draft, project: &ProjectName) {
    let joins = |it: &Landing| it.submission.joins.is_some() && it.state != State::Queued;
    if draft.board().queue_of(project).any(|it| joins(it)) {
        draft.record(Event::QueueOvertaken(Overtaken { project: project.clone() }));
    }
}

/// What the remote has does not go together with what landed here: a person must look, and nothing lands until then.
pub(super) fn fails(draft: &mut Draft, landing: &Landing, why: &Fixup, now: Now) -> Result<(), Refusal> {
    let (project, task) = (&landing.project, landing.task);
    let remote = landing.submission.joins.as_deref().unwrap_or("origin");
    let trunk = draft.board().projects.get(project).map(|it| it.trunk.to_string()).unwrap_or_default();
    let names: Vec<&str> = why.paths.iter().map(String::as_str).collect();
    let (what, kind) = match &why.output {
        Some(output) => {
            let output = failure::summary(output);
            (format!("what landed here fails together with what {remote}/{trunk} has ({output})"), WaitKind::Review)
        }
        None => {
            let files = first_few(&names);
            (format!("what landed here conflicts with what {remote}/{trunk} has in {files}"), WaitKind::Conflict)
        }
    };
    let reason = format!(
        "{what}: in your checkout of {trunk} run git pull --rebase {remote} {trunk}, mend it there, then regatta land {task}"
    );
    draft.record(Event::LandingEnded(Ended {
        landing: landing.id,
        task,
        reason: reason.clone(),
        retry: false,
        fault: None,
    }));
    claim::release_all(draft, &Owner::Landing(landing.id));
    task::needs_human(draft, task, kind, &reason)?;
    let hold = Hold { by: HOLDER.into(), reason: reason.chars().take(500).collect(), wall: now.wall };
    draft.record(Event::QueueHeld(Stopped { project: project.clone(), hold }));
    announce(draft, project, "coord:push", format!("The queue is held: {reason}"), now)
}

/// Who holds a queue that holds itself.
const HOLDER: &str = "regatta";

/// Whether it is the task that brings in what a remote has.
fn is_joining(task: &Task) -> bool {
    task.submission.as_ref().is_some_and(|it| it.joins.is_some())
}

/// Refuses to hand the task that brings in what a remote has to an agent: there is nothing in it to work on.
pub(crate) fn refuse_work(board: &Board, task: &Task) -> Result<(), Refusal> {
    let Some(remote) = task.submission.as_ref().and_then(|it| it.joins.as_deref()) else { return Ok(()) };
    let trunk = board.projects.get(&task.project).map(|it| it.trunk.to_string()).unwrap_or_default();
    let id = task.id;
    let hint = match board.tasks.contains_key(&id) {
        true => format!(
            "mend it in your checkout of {trunk}: git pull --rebase {remote} {trunk}, then regatta land {id}; or regatta drop \
             {id}, and the next landing tries it again"
        ),
        false => "nothing is to be done: the next landing tries it again".into(),
    };
    Err(Refusal::invalid(format!("{id} brings in what {remote}/{trunk} has, which is no agent's work"), hint))
}

/// The task that brings in what a remote has was dropped: the queue no longer holds itself for it. What is there is still
/// not here, so the next push finds it again.
pub(crate) fn dropped(draft: &mut Draft, task: &Task) {
    let_go(draft, task);
    let queue = draft.board().projects.get(&task.project).map(|it| it.queue.clone());
    if let Some(unpushed) = queue.and_then(|it| it.unpushed).filter(|_| is_joining(task)) {
        let reason = format!(
            "{} has commits that are not here, and {}, which was to bring them in, was dropped; the next landing tries again",
            unpushed.remote, task.id
        );
        let unpushed = Unpushed { reason, ..unpushed };
        draft.record(Event::QueueUnpushed(NotPushed { project: task.project.clone(), unpushed }));
    }
}

/// Somebody says that what the remote has can be brought in now: the queue no longer holds itself for it.
pub(super) fn let_go(draft: &mut Draft, task: &Task) {
    let held = draft.board().projects.get(&task.project).and_then(|it| it.queue.held.as_ref());
    if is_joining(task) && held.is_some_and(|it| it.by == HOLDER) {
        draft.record(Event::QueueReleased(GoneOn { project: task.project.clone() }));
    }
}
