//! The landing queue: who lands next, in which train, and what came of the last ones.

use std::collections::BTreeMap;

use regatta_core::board::Board;
use regatta_core::ids::{AgentName, CommitId, LandingId, Now, ProjectName, TaskId};
use regatta_core::landing::track::{self, Batch, Ride};
use regatta_core::landing::{self, End, Landing};
use regatta_core::project::Project;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

/// How many others are named.
const NAMED: usize = 3;

/// One landing in the queue, or on its way out of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandingView {
    pub landing: LandingId,
    pub task: TaskId,
    pub subject: String,
    pub agent: AgentName,
    /// Its place, counting from 1; none when it is out.
    pub position: Option<usize>,
    /// What the train is at that it rides in: moving the trunk, waiting for the trunk, testing, searching for what made
    /// it fail; or queued, held, landed, out.
    pub state: String,
    pub detail: String,
    pub commit: Option<CommitId>,
    pub files: Vec<String>,
    pub queued_wall: u64,
    pub branch: String,
    /// In how many files its task's work conflicted with what had landed.
    pub conflicts: usize,
    /// How many of those were settled by the ownership of the files.
    #[serde(default)]
    pub settled: usize,
    /// The task that took it back after it had landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back_by: Option<TaskId>,
    /// How many times it was sent back to be mended.
    pub fixups: u32,
}

impl LandingView {
    /// Draws a landing that ended.
    pub fn ended(landing: &Landing, task: Option<&Task>) -> LandingView {
        let (state, detail, commit) = match &landing.end {
            Some(End::Landed { commit, .. }) => ("landed", String::new(), Some(commit.clone())),
            Some(End::Out { reason, .. }) => ("out", reason.clone(), None),
            None => ("queued", String::new(), None),
        };
        LandingView::drawn(landing, task, (state, detail), commit)
    }

    fn drawn(
        landing: &Landing,
        task: Option<&Task>,
        (state, detail): (&str, String),
        commit: Option<CommitId>,
    ) -> LandingView {
        LandingView {
            landing: landing.id,
            task: landing.task,
            subject: task.map(|it| it.subject.clone()).unwrap_or_default(),
            agent: landing.agent.clone(),
            position: None,
            state: state.into(),
            detail,
            commit,
            files: landing.submission.changed.clone(),
            queued_wall: landing.queued_wall,
            branch: landing.branch.to_string(),
            conflicts: task.map_or(0, |it| it.conflicts.len()),
            settled: task.map_or(0, |task| task.settled_conflicts.len()),
            taken_back_by: None,
            fixups: task.map_or(0, |it| it.fixups),
        }
    }
}

/// Landings that are tried together, one on top of the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchView {
    pub ride: Ride,
    /// The same in words.
    pub state: String,
    /// Who is in it, in order.
    pub cars: Vec<LandingId>,
    /// The task on whose work it stands; nothing where that is the trunk, or where it is not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<TaskId>,
    /// Why it failed: the track is parted at its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A project's landing queue, and what came of the last ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueView {
    pub project: ProjectName,
    pub trunk: String,
    /// Who stopped it, and why.
    pub held: Option<landing::Hold>,
    /// What has landed and could not be pushed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<landing::join::Unpushed>,
    /// How the trunk differs from the board, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk_differs: Option<String>,
    /// How many merged trees are validated at once: as the project says, else what fits the machine.
    #[serde(default)]
    pub slots: u32,
    /// How long one that landed of late took, from when it was queued; the one in the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_ms: Option<u64>,
    /// In the order of the trunk to be; who stands aside comes last.
    pub queue: Vec<LandingView>,
    /// The same as trains, from the trunk on.
    #[serde(default)]
    pub batches: Vec<BatchView>,
    pub recent: Vec<LandingView>,
}

impl QueueView {
    /// Draws a project's queue as it stands, with those that ended, and how long one takes as a rule.
    pub fn of(
        board: &Board,
        project: &Project,
        now: Now,
        (recent, usual_ms): (Vec<LandingView>, Option<u64>),
    ) -> QueueView {
        let (queue, batches) = line(board, &project.name, now);
        let undone = &project.queue.undone;
        let recent = recent
            .into_iter()
            .map(|view| LandingView { taken_back_by: undone.get(&view.task).copied(), ..view })
            .collect();
        QueueView {
            project: project.name.clone(),
            trunk: project.trunk.to_string(),
            held: project.queue.held.clone(),
            unpushed: project.queue.unpushed.clone(),
            trunk_differs: landing::trunk_check::told(project),
            slots: landing::plan::slots(project, board.limits.landing_slots),
            usual_ms,
            queue,
            batches,
            recent,
        }
    }

    /// The line as it stood on a board.
    pub fn line(board: &Board, project: &ProjectName, now: Now) -> Vec<LandingView> {
        line(board, project, now).0
    }
}

fn line(board: &Board, project: &ProjectName, now: Now) -> (Vec<LandingView>, Vec<BatchView>) {
    let task_of = |id: &LandingId| board.landings.get(id).map(|it| it.task);
    let (mut queue, mut batches): (Vec<LandingView>, Vec<BatchView>) = (Vec::new(), Vec::new());
    for batch in track::of(board, project, now) {
        for id in &batch.cars {
            let Some(landing) = board.landings.get(id) else { continue };
            let detail = detail(board, landing, &batch, queue.last());
            let task = board.tasks.get(&landing.task).map(|it| &**it);
            let mut view = LandingView::drawn(landing, task, (word(batch.ride), detail), None);
            view.position = Some(queue.len() + 1);
            queue.push(view);
        }
        let on = batch.on.as_ref().and_then(task_of);
        let (ride, state) = (batch.ride, word(batch.ride).to_owned());
        batches.push(BatchView { ride, state, cars: batch.cars, on, failed: batch.failed });
    }
    (queue, batches)
}

fn word(ride: Ride) -> &'static str {
    match ride {
        Ride::Moving => "moving the trunk",
        Ride::Passed => "waiting for the trunk",
        Ride::Testing => "testing",
        Ride::Searching => "searching",
        Ride::Queued | Ride::Behind => "queued",
        Ride::Held => "held",
    }
}

/// What more there is to say of a landing: with whom it is tried, and on whose work; what it waits for.
fn detail(board: &Board, landing: &Landing, batch: &Batch, before: Option<&LandingView>) -> String {
    let names = |ids: &mut dyn Iterator<Item = LandingId>| -> String {
        let named: Vec<String> = ids.filter_map(|it| board.landings.get(&it)).map(|it| it.task.to_string()).collect();
        match named.get(..NAMED) {
            Some(first) if named.len() > NAMED => format!("{} and {} more", first.join(", "), named.len() - NAMED),
            _ => named.join(", "),
        }
    };
    let mut others = batch.cars.iter().copied().filter(|it| *it != landing.id);
    match batch.ride {
        Ride::Held => landing.held.clone().unwrap_or_default(),
        Ride::Moving | Ride::Passed | Ride::Testing => {
            let with = names(&mut others);
            let on = batch.on.map(|it| names(&mut [it].into_iter())).unwrap_or_default();
            let parts = [("with", with), ("on top of", on)];
            parts
                .iter()
                .filter(|it| !it.1.is_empty())
                .map(|it| format!("{} {}", it.0, it.1))
                .collect::<Vec<_>>()
                .join(", ")
        }
        Ride::Searching => {
            let all = names(&mut batch.cars.iter().copied());
            let reason = batch.failed.as_deref().and_then(|it| it.lines().next()).unwrap_or_default();
            let at =
                if batch.cars.len() > 1 { format!("one of {all} breaks its train") } else { "its train failed".into() };
            // Once is enough.
            let first = batch.cars.first() == Some(&landing.id);
            if reason.is_empty() || !first { at } else { format!("{at}: {reason}") }
        }
        Ride::Behind => {
            let names = names(&mut landing.behind.iter().copied());
            if landing.faults > 0 {
                format!("failed a check once merged; tried again after {names}")
            } else {
                format!("conflicts with {names}, and lands after")
            }
        }
        Ride::Queued => before.map_or(String::new(), |it| format!("after {}", it.task)),
    }
}

/// What everything in the queues is at.
pub fn landing_states(board: &Board, now: Now) -> BTreeMap<LandingId, &'static str> {
    let tracks = board.projects.keys().flat_map(|it| track::of(board, it, now));
    tracks.flat_map(|it| it.cars.into_iter().map(move |car| (car, word(it.ride)))).collect()
}
