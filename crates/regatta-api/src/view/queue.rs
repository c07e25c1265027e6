//! Views of a project's landing queue (finished work that waits to be merged): its order, its
//! batches, and the latest results.

use regatta_core::board::Board;
use regatta_core::display::{self, DisplayState, ItemDisplay};
use regatta_core::ids::{AgentName, CommitId, LandingId, Now, ProjectName, TaskId};
use regatta_core::landing::batches::{self, LandingProgress};
use regatta_core::landing::{self, Landing, LandingEnd};
use regatta_core::project::Project;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

/// A landing (the merge of one task's work) that is in the queue or has left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LandingView {
    pub landing: LandingId,
    pub task: TaskId,
    pub subject: String,
    pub agent: AgentName,
    /// The position of the landing (the merge of one task's work) in the queue, counting from 1;
    /// empty after the landing has left the queue.
    pub position: Option<usize>,
    /// The state of the batch with which the landing is tested: moving the trunk, waiting for the
    /// trunk, testing, or searching for the landing that made the batch fail. A landing that is in
    /// no batch has one of the states queued, held, landed, out.
    pub state: String,
    /// The state of the landing for programs. `state` is the same state as a word for people.
    pub at: DisplayState,
    pub detail: String,
    pub commit: Option<CommitId>,
    pub files: Vec<String>,
    pub queued_wall: u64,
    pub branch: String,
    /// The number of files in which the task's work conflicted with landed work.
    pub conflicts: usize,
    /// The number of the files in `conflicts` whose conflict was resolved automatically, in favour
    /// of the task that owns the file.
    #[serde(default)]
    pub settled: usize,
    /// The task that reverted this work after the work had landed; empty if the work was not
    /// reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back_by: Option<TaskId>,
    /// The number of times that the work was sent back to be fixed.
    pub fixups: u32,
    /// Time at which the landing left the queue, in Unix milliseconds; empty while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended_wall")]
    pub ended_unix_ms: Option<u64>,
}

impl LandingView {
    /// Builds the view of a landing (the merge of a task's work) that has ended and so has no
    /// position in the queue.
    pub fn from_ended(landing: &Landing, task: Option<&Task>) -> LandingView {
        let (shown, detail, commit) = match &landing.end {
            Some(end @ LandingEnd::Landed { commit, .. }) => {
                let shown = display::ended_landing_display(end);
                (shown, String::new(), Some(commit.clone()))
            }
            Some(end @ LandingEnd::Removed { reason, .. }) => {
                (display::ended_landing_display(end), reason.clone(), None)
            }
            None => (
                display::landing_display(LandingProgress::Queued),
                String::new(),
                None,
            ),
        };
        LandingView::build(landing, task, shown, detail, commit)
    }

    fn build(
        landing: &Landing,
        task: Option<&Task>,
        shown: ItemDisplay,
        detail: String,
        commit: Option<CommitId>,
    ) -> LandingView {
        LandingView {
            landing: landing.id,
            task: landing.task,
            subject: task.map(|task| task.subject.clone()).unwrap_or_default(),
            agent: landing.agent.clone(),
            position: None,
            state: shown.label.into(),
            at: shown.state,
            detail,
            commit,
            files: landing.submission.changed.clone(),
            queued_wall: landing.queued_unix_ms,
            branch: landing.branch.to_string(),
            conflicts: task.map_or(0, |task| task.conflicts.len()),
            settled: task.map_or(0, |task| task.settled_conflicts.len()),
            taken_back_by: None,
            fixups: task.map_or(0, |task| task.fixups),
            ended_unix_ms: landing.end.as_ref().map(|end| match end {
                LandingEnd::Landed { unix_ms, .. } | LandingEnd::Removed { unix_ms, .. } => {
                    *unix_ms
                }
            }),
        }
    }
}

/// A batch: landings (merges of one task's work each) that are merged on top of each other and
/// tested together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchView {
    pub ride: LandingProgress,
    /// The batch's progress in words.
    pub state: String,
    /// The state of the batch for programs. `state` is the same state as a word for people.
    pub at: DisplayState,
    /// The landings (merges of one task's work) in the batch, in merge order.
    pub cars: Vec<LandingId>,
    /// The task whose work is the base of the batch's merge; empty if the base is the trunk, or if
    /// the batch is not being merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<TaskId>,
    /// The reason why the batch failed; empty if it has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A project's landing queue (finished work that waits to be merged), with the latest results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueView {
    pub project: ProjectName,
    pub trunk: String,
    /// The person who stopped the queue, and the reason; empty if the queue is not stopped.
    pub held: Option<landing::QueueHold>,
    /// Landed work that Regatta could not push to the remote repository yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<landing::remote_sync::Unpushed>,
    /// A sentence about a difference between the trunk branch and what Regatta has recorded as
    /// landed; empty if they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk_differs: Option<String>,
    /// The number of merge results that are tested at the same time: the project's setting, or else
    /// the machine's capacity.
    #[serde(default)]
    pub slots: u32,
    /// The median time in milliseconds that the latest landings took from entering the queue to
    /// being merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_ms: Option<u64>,
    /// The queued landings (merges of one task's work) in merge order. Landings that cannot be
    /// merged at present come last.
    pub queue: Vec<LandingView>,
    /// The queued landings as batches, starting with the batch that is merged first.
    #[serde(default)]
    pub batches: Vec<BatchView>,
    pub recent: Vec<LandingView>,
}

impl QueueView {
    /// Builds the view of a project's landing queue from the board (the current state of
    /// everything). `recent` contains the latest ended landings, and `usual_ms` is the median time
    /// to land.
    pub fn new(
        board: &Board,
        project: &Project,
        now: Now,
        recent: Vec<LandingView>,
        usual_ms: Option<u64>,
    ) -> QueueView {
        let (queue, batches) = landings_and_batches(board, &project.name, now);
        let undone = &project.queue.undone;
        let recent = recent
            .into_iter()
            .map(|view| LandingView {
                taken_back_by: undone.get(&view.task).copied(),
                ..view
            })
            .collect();
        QueueView {
            project: project.name.clone(),
            trunk: project.trunk.to_string(),
            held: project.queue.held.clone(),
            unpushed: project.queue.unpushed.clone(),
            trunk_differs: landing::trunk_check::difference_sentence(project),
            slots: landing::speculation::slots(project, board.limits.landing_slots),
            usual_ms,
            queue,
            batches,
            recent,
        }
    }

    /// Returns the landing queue of a project as it is on this board (the state of everything at
    /// one time), which may be a past state.
    pub fn landings(board: &Board, project: &ProjectName, now: Now) -> Vec<LandingView> {
        landings_and_batches(board, project, now).0
    }
}

fn landings_and_batches(
    board: &Board,
    project: &ProjectName,
    now: Now,
) -> (Vec<LandingView>, Vec<BatchView>) {
    let task_of = |id: &LandingId| board.landings.get(id).map(|landing| landing.task);
    let (mut queue, mut batches): (Vec<LandingView>, Vec<BatchView>) = (Vec::new(), Vec::new());
    for batch in batches::batches_of(board, project, now) {
        for id in &batch.landings {
            let Some(landing) = board.landings.get(id) else {
                continue;
            };
            let before = queue.last().map(|view: &LandingView| view.task);
            let detail = display::landing_detail(board, landing, &batch, before);
            let task = board.tasks.get(&landing.task).map(|task| &**task);
            let mut view = LandingView::build(
                landing,
                task,
                display::landing_display(batch.progress),
                detail,
                None,
            );
            view.position = Some(queue.len() + 1);
            queue.push(view);
        }
        let on = batch.stands_on.as_ref().and_then(task_of);
        batches.push(BatchView {
            ride: batch.progress,
            state: display::landing_display(batch.progress).label.to_owned(),
            at: display::landing_display(batch.progress).state,
            cars: batch.landings,
            on,
            failed: batch.failed,
        });
    }
    (queue, batches)
}
