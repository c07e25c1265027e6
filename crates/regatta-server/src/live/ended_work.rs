//! Reads ended tasks and landings (merges of tasks' work) for the web page. The results are cached,
//! because they change only when a task or a landing ends.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use regatta_api::view::LandingView;
use regatta_core::budget;
use regatta_core::ids::TaskId;
use regatta_core::landing::{self, LandingEnd};
use regatta_core::task::Task;
use regatta_engine::ports::store::StoreError;

use super::topics::{EndedLandings, EndedLandingsKey, MAX_ENDED_TASKS, TopicContext};

/// Number of ended landings (merged or failed work) that the page shows below a landing queue.
const MAX_ENDED_LANDINGS: usize = 20;
/// Maximum number of landings (merged work of tasks) that are counted for the page's map of changed
/// files.
const MAX_COUNTED_LANDINGS: usize = 1_000;

impl TopicContext<'_> {
    pub(super) fn ended_key(&self, project: &regatta_core::project::Project) -> EndedLandingsKey {
        let landing_ids: Vec<_> = self
            .board
            .queue_of(&project.name)
            .map(|landing| landing.id)
            .collect();
        (
            landing_ids,
            self.shared.event_fanout.finished_after(0).len(),
            self.now.unix_ms / 1_000,
        )
    }

    /// Returns a project's ended landings (merged or failed work) and the median time to land, from
    /// a cache. These values change only when a landing ends, and then the queue or the number of
    /// ended tasks changes too, so both are in the cache's key. The key also contains the present
    /// second, because several changes between two requests may leave the queue and that number the
    /// same.
    pub(super) fn ended_landings(
        &self,
        project: &regatta_core::project::Project,
    ) -> Result<EndedLandings, StoreError> {
        let key = self.ended_key(project);
        let mut cache = self
            .shared
            .live_caches
            .ended_landings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ended)) = cache
            .get(&project.name)
            .filter(|(cached_key, _)| *cached_key == key)
        {
            return Ok(ended.clone());
        }
        let landings = self
            .history
            .landings(&project.name, MAX_ENDED_LANDINGS)?
            .into_iter()
            .filter(|landing| landing.end.is_some());
        let landings_with_tasks = landings
            .map(|landing| Ok((self.history.task(landing.task)?, landing)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        let median_ms = landing::median_time_ms(
            landings_with_tasks
                .iter()
                .map(|(task, landing)| (landing, task.as_ref())),
        );
        let ended = (
            landings_with_tasks
                .iter()
                .map(|(task, landing)| LandingView::from_ended(landing, task.as_ref()))
                .collect(),
            median_ms,
        );
        cache.insert(project.name.clone(), (key, ended.clone()));
        Ok(ended)
    }

    /// Returns an ended task from a cache. `wall` is the time of the task's end. A task that was
    /// started and ended again has a later time, so the outdated entry in the cache is not used.
    pub(super) fn ended_task(
        &self,
        id: TaskId,
        wall: u64,
    ) -> Result<Option<Arc<Task>>, StoreError> {
        let mut cache = self
            .shared
            .live_caches
            .ended_tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, task)) = cache.get(&id).filter(|(ended_at, _)| *ended_at == wall) {
            return Ok(Some(task.clone()));
        }
        let Some(task) = self.history.task(id)?.map(Arc::new) else {
            return Ok(None);
        };
        if cache.len() >= 2 * MAX_ENDED_TASKS {
            cache.clear();
        }
        cache.insert(id, (wall, task.clone()));
        Ok(Some(task))
    }

    /// Returns how many of today's landed changes touched each file. The result comes from a cache
    /// that is renewed when a landing (the merge of a task's work) ends.
    pub(super) fn landed_today(
        &self,
        project: &regatta_core::project::Project,
    ) -> Result<BTreeMap<String, u32>, StoreError> {
        let key = self.ended_key(project);
        let mut cache = self
            .shared
            .live_caches
            .landed_today
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, landed)) = cache
            .get(&project.name)
            .filter(|(cached_key, _)| *cached_key == key)
        {
            return Ok(landed.clone());
        }
        let day = budget::day_of(self.now);
        let mut landed = BTreeMap::new();
        for landing in self.history.landings(&project.name, MAX_COUNTED_LANDINGS)? {
            let Some(LandingEnd::Landed { unix_ms: wall, .. }) = landing.end else {
                continue;
            };
            if wall / 86_400_000 == day {
                landing
                    .submission
                    .changed
                    .into_iter()
                    .for_each(|path| *landed.entry(path).or_default() += 1);
            }
        }
        cache.insert(project.name.clone(), (key, landed.clone()));
        Ok(landed)
    }
}
