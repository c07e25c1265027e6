//! Builds the page of a project's landing queue: the queue, and the work that left it without being
//! merged.

use std::collections::BTreeSet;

use regatta_api::live_view::{OutOfQueueView, QueuePage};
use regatta_api::view::{LandingView, QueueView};
use regatta_core::display;
use regatta_core::ids::TaskId;
use regatta_core::project::Project;
use regatta_engine::ports::store::StoreError;

use super::topics::TopicContext;
use super::{actions, task_row, texts};

impl TopicContext<'_> {
    /// Returns the page of each project's landing queue.
    pub(super) fn queues(&self) -> Result<Vec<QueuePage>, StoreError> {
        self.board
            .projects
            .values()
            .map(|project| self.queue_page(project))
            .collect()
    }

    fn queue_page(&self, project: &Project) -> Result<QueuePage, StoreError> {
        let board = self.board;
        let (recent, median_ms) = self.ended_landings(project)?;
        let queued = || board.queue_of(&project.name);
        let landing_actions = queued().filter_map(|landing| {
            Some((
                landing.id,
                actions::task_actions(board, board.tasks.get(&landing.task)?, Some(landing)),
            ))
        });
        let expected = queued()
            .filter_map(|landing| Some((landing.id, landing.queued_unix_ms + median_ms?)))
            .collect();
        let lines_by_task = self
            .shared
            .cost_index
            .changed_lines_today(&self.cost_input())?;
        let lines = recent.iter().filter_map(|landing| {
            landing.commit.as_ref()?;
            Some((landing.landing, *lines_by_task.get(&landing.task)?))
        });
        Ok(QueuePage {
            tip: recent.iter().find_map(|landing| landing.commit.clone()),
            text: texts::queue_text(queued().count(), median_ms),
            actions: actions::queue_actions(&project.name, project.queue.held.is_some()),
            each: landing_actions.collect(),
            expected,
            lines: lines.collect(),
            out: self.out_of_queue(project, &recent),
            queue: QueueView::new(board, project, self.now, recent, median_ms),
        })
    }

    /// Returns the work that left the queue without being merged, if its task is still open and not
    /// queued again.
    fn out_of_queue(&self, project: &Project, recent: &[LandingView]) -> Vec<OutOfQueueView> {
        let board = self.board;
        let mut seen: BTreeSet<TaskId> = board
            .queue_of(&project.name)
            .map(|landing| landing.task)
            .collect();
        let mut out = Vec::new();
        for landing in recent {
            let is_latest = seen.insert(landing.task);
            let Some(task) = board.tasks.get(&landing.task) else {
                continue;
            };
            if !is_latest || landing.commit.is_some() {
                continue;
            }
            let shown = display::task_display(board, task);
            let activity = task_row(board, task, self.now).text;
            out.push(OutOfQueueView {
                at: shown.state,
                word: shown.label.into(),
                next: texts::next_step_text(shown.state, &landing.agent, &activity),
                actions: actions::task_actions(board, task, None),
                landing: landing.clone(),
            });
        }
        out
    }
}
