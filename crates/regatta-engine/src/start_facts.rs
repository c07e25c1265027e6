//! Collects the facts that decide whether a task may start (the start gates): the state of the
//! trunk, and the free memory and disk space.
//!
//! Collecting takes some milliseconds, and a task's start must not wait for that each time. The
//! dispatcher (the thread that starts attempts) therefore uses facts that are at most [`MAX_AGE`]
//! old, and collects facts older than [`REFRESH_AFTER`] again after it has requested work for all
//! agents.
//!
//! The rules of the start gates are in `regatta_core::start_gates`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::ids::{CommitId, MissionId, ProjectName, TaskId};
use regatta_core::landing::trunk_check::{self, TrunkCommit};
use regatta_core::mission::Mission;
use regatta_core::project::Project;
use regatta_core::start_gates::{LostLanding, StartFacts, TrunkState};
use regatta_core::task::{Task, TaskStatus};

use crate::Engine;
use crate::perform::{compare_trunk_with, workspaces};
use crate::ports::git::{GitError, ProjectRepo};
use crate::ports::store::{StoreError, TaskFilter};

/// The age from which the start facts of a mission (such as the free disk space) are collected
/// again. This happens after the dispatcher (the thread that starts attempts) has requested work
/// for all agents.
pub(crate) const REFRESH_AFTER: Duration = Duration::from_secs(2);
/// The age from which the start facts of a mission are too old to be used. Older facts are
/// collected again before they are used.
const MAX_AGE: Duration = Duration::from_secs(30);

/// The number of tasks that one query to the store reads.
const PAGE_SIZE: usize = 1_000;

/// The last collected facts of each mission (a goal with its tasks), with the time at which they
/// were collected.
#[derive(Default)]
pub(crate) struct StartFactsCache {
    by_mission: BTreeMap<MissionId, (Instant, StartFacts)>,
    ancestry: BTreeMap<MissionId, Ancestry>,
}

/// The landed commits that the trunk must contain before the tasks of a mission (a goal with its
/// tasks) may start, and the commits that were missing at the last check.
#[derive(Default)]
struct Ancestry {
    /// The state of the mission (a goal with its tasks) for which `landings` was read: its last
    /// landed commit, and the tasks that block its open tasks.
    read_for: (Option<CommitId>, BTreeSet<TaskId>),
    landings: Vec<MissionLanding>,
    /// The state for which `lost` (the missing landings) was computed: the trunk's newest commit,
    /// and the number of commits that people had accepted as lost.
    computed_for: Option<(CommitId, usize)>,
    lost: Vec<LostLanding>,
}

/// A completed task, with the commit on the trunk that contains its work.
struct MissionLanding {
    task: TaskId,
    commit: CommitId,
    /// The commit that the task submitted. On the trunk its work may be in a shared commit of
    /// several tasks (a wave).
    submitted: Option<CommitId>,
}

impl StartFactsCache {
    /// Returns the facts that decide whether the tasks of a mission (a goal with its tasks) may
    /// start. Collects these facts first if there are none, if they are too old, or if a task of
    /// the mission has landed since they were collected.
    pub(crate) fn facts(
        &mut self,
        engine: &Engine,
        board: &Board,
        mission: MissionId,
    ) -> StartFacts {
        match self.by_mission.get(&mission) {
            // Facts from before the newest task landed are not used, because its landing may have
            // made tasks ready that build on it.
            Some((collected_at, facts))
                if collected_at.elapsed() < MAX_AGE && !self.has_landed(board, mission) =>
            {
                facts.clone()
            }
            _ => self.collect_facts(engine, board, mission),
        }
    }

    /// Collects the start facts of each mission (a goal with its tasks) again if they are older
    /// than [`REFRESH_AFTER`]. Returns whether the state of a trunk changed.
    pub(crate) fn refresh(&mut self, engine: &Engine, board: &Board) -> bool {
        self.by_mission
            .retain(|id, _| board.missions.contains_key(id));
        self.ancestry
            .retain(|id, _| board.missions.contains_key(id));
        let old: Vec<(MissionId, StartFacts)> = self
            .by_mission
            .iter()
            .filter(|(_, (collected_at, _))| collected_at.elapsed() >= REFRESH_AFTER)
            .map(|(id, (_, facts))| (*id, facts.clone()))
            .collect();
        let mut changed = false;
        for (id, before) in old {
            let now = self.collect_facts(engine, board, id);
            // Only changes of the trunk count, because free memory and disk space change all the
            // time. A task that waits for memory or disk space is checked again anyway.
            changed |= now.base != before.base;
        }
        changed
    }

    fn collect_facts(&mut self, engine: &Engine, board: &Board, id: MissionId) -> StartFacts {
        let facts = StartFacts {
            runner: None,
            memory_mb: engine.shared.agents.free_memory_mb(),
            disk_mb: available_disk_mb(engine, board, id),
            base: self.trunk_state(engine, board, id),
        };
        self.by_mission.insert(id, (Instant::now(), facts.clone()));
        facts
    }

    /// Returns whether a task of the mission (a goal with its tasks) has landed on the trunk since
    /// the list of the mission's landed commits was read.
    fn has_landed(&self, board: &Board, id: MissionId) -> bool {
        let last = board
            .missions
            .get(&id)
            .and_then(|mission| mission.landed.last.as_ref());
        let known = self
            .ancestry
            .get(&id)
            .and_then(|ancestry| ancestry.read_for.0.as_ref());
        last != known
    }

    fn trunk_state(&mut self, engine: &Engine, board: &Board, id: MissionId) -> Option<TrunkState> {
        let mission = board.missions.get(&id)?;
        let project = board.projects.get(&mission.project)?;
        let repo = ProjectRepo::from_project(project);
        let ancestry = self.ancestry.entry(id).or_default();
        let mut read_state = || -> Result<TrunkState, GitError> {
            // The landings must be read before the trunk's newest commit. In the other order, a
            // task that lands between the two reads would seem to be missing from the trunk.
            ancestry.read_landings(engine, board, mission);
            let trunk = engine.shared.git.trunk_facts(&repo)?;
            ancestry.find_missing(engine, project, (&repo, &trunk.tip))?;
            let lost = ancestry.lost.clone();
            Ok(TrunkState::Present {
                tip: trunk.tip,
                upstream: trunk.upstream,
                behind: trunk.commits_behind,
                lost,
            })
        };
        Some(read_state().unwrap_or_else(|error| TrunkState::Broken {
            reason: format!("{}: {}", error.message, error.hint),
        }))
    }
}

impl Ancestry {
    /// Reads again the landed commits of the mission (a goal with its tasks) and of the tasks that
    /// block its open tasks. Does nothing if nothing has changed since they were last read.
    fn read_landings(&mut self, engine: &Engine, board: &Board, mission: &Mission) {
        let open = board
            .open_tasks_of(mission.id)
            .filter_map(|(_, id)| board.tasks.get(&id));
        let blockers: BTreeSet<TaskId> = open
            .flat_map(|task| task.blocked_by.iter().copied())
            .collect();
        let current = (mission.landed.last.clone(), blockers);
        if self.read_for == current {
            return;
        }
        match mission_landings(engine, board, mission, &current.1) {
            Ok(landings) => {
                (self.landings, self.read_for, self.computed_for) = (landings, current, None)
            }
            // Keep the landed commits that were read before. The next check reads them again.
            Err(error) => {
                tracing::warn!(mission = %mission.id, "could not read which tasks of mission {} \
                    have landed, trying again at the next check: {error}", mission.id)
            }
        }
    }

    /// Finds the landed commits that are missing from the trunk's history up to `tip`. Leaves out
    /// commits that a person undid, rewrote or accepted as lost.
    fn find_missing(
        &mut self,
        engine: &Engine,
        project: &Project,
        (repo, tip): (&ProjectRepo, &CommitId),
    ) -> Result<(), GitError> {
        let current = (tip.clone(), project.queue.accepted.len());
        if self.computed_for.as_ref() == Some(&current) {
            return Ok(());
        }
        let commits: Vec<CommitId> = self
            .landings
            .iter()
            .map(|landing| landing.commit.clone())
            .collect();
        let missing = engine.shared.git.missing_commits(repo, tip, &commits)?;
        let mut lost: Vec<&MissionLanding> = self
            .landings
            .iter()
            .filter(|landing| missing.contains(&landing.commit))
            .collect();
        if !lost.is_empty() {
            let undone = undone_commits(engine, &repo.project);
            lost.retain(|landing| {
                !undone.contains(&landing.commit)
                    && !landing
                        .submitted
                        .as_ref()
                        .is_some_and(|submitted| undone.contains(submitted))
            });
        }
        if !lost.is_empty() {
            let commits: Vec<CommitId> =
                lost.iter().map(|landing| landing.commit.clone()).collect();
            match compare_trunk_with(engine, project, &commits) {
                Ok(differences) => {
                    let lost_commits: Vec<&TrunkCommit> =
                        trunk_check::lost_commits(project, &differences).collect();
                    lost.retain(|landing| {
                        lost_commits.iter().any(|commit| landing.is_commit(commit))
                    });
                }
                // The missing commits count as lost, because it is unknown whether the trunk has
                // rewritten versions of these commits. Tasks that depend on the missing commits
                // wait.
                Err(error) => {
                    tracing::warn!(project = %project.name, "could not search the trunk of \
                        project {} for rewritten versions of commits that it no longer contains, \
                        so the tasks that depend on these commits wait: {error}", project.name)
                }
            }
        }
        self.lost = lost
            .iter()
            .map(|landing| LostLanding {
                task: landing.task,
                commit: landing.commit.clone(),
            })
            .collect();
        self.computed_for = Some(current);
        Ok(())
    }
}

impl MissionLanding {
    /// Returns whether a commit of a trunk contains the work of this landing. A commit of a whole
    /// wave (tasks that ran at the same time) contains the work of several landings.
    fn is_commit(&self, commit: &TrunkCommit) -> bool {
        commit.commit == self.commit && commit.task.is_none_or(|task| task == self.task)
    }
}

/// Reads the commits on the trunk that contain the work of a mission's completed tasks. A mission
/// is a goal with its tasks. Also reads the commits for the tasks in `blockers` that belong to
/// other missions of the same project.
fn mission_landings(
    engine: &Engine,
    board: &Board,
    mission: &Mission,
    blockers: &BTreeSet<TaskId>,
) -> Result<Vec<MissionLanding>, StoreError> {
    let mut tasks = Vec::new();
    if mission.landed.last.is_some() {
        let filter = TaskFilter {
            mission: Some(mission.id),
            ..TaskFilter::default()
        };
        tasks = completed_tasks(engine, filter)?;
    }
    let known: BTreeSet<TaskId> = tasks.iter().map(|task| task.id).collect();
    for blocker in blockers
        .difference(&known)
        .filter(|id| board.is_completed(**id))
    {
        tasks.extend(
            engine
                .history()
                .task(*blocker)?
                .filter(|task| task.project == mission.project),
        );
    }
    let to_landing = |task: Task| {
        let submitted = task.submission.map(|submission| submission.commit);
        Some(MissionLanding {
            task: task.id,
            commit: task.landed?,
            submitted,
        })
    };
    Ok(tasks.into_iter().filter_map(to_landing).collect())
}

/// Returns the commits that people undid. Reading them takes time, so the caller reads them only
/// when a landing is missing from the trunk.
fn undone_commits(engine: &Engine, project: &ProjectName) -> BTreeSet<CommitId> {
    let filter = TaskFilter {
        project: Some(project.clone()),
        ..TaskFilter::default()
    };
    let tasks = completed_tasks(engine, filter).unwrap_or_else(|error| {
        tracing::warn!(%project, "could not read which landings of project {project} people undid, \
            so an undone landing counts as missing from the trunk: {error}");
        vec![]
    });
    let reverts = tasks
        .into_iter()
        .filter_map(|task| task.submission)
        .filter(|submission| submission.reverts);
    reverts.map(|submission| submission.commit).collect()
}

/// Reads all completed tasks that match `filter`.
fn completed_tasks(engine: &Engine, filter: TaskFilter) -> Result<Vec<Task>, StoreError> {
    let mut tasks: Vec<Task> = Vec::new();
    loop {
        let after = tasks.last().map(|task| task.id);
        let page_filter = TaskFilter {
            statuses: vec![TaskStatus::Completed],
            after,
            limit: PAGE_SIZE,
            ..filter.clone()
        };
        let page = engine.history().tasks(&page_filter)?;
        let is_full = page.len() == PAGE_SIZE;
        tasks.extend(page);
        if !is_full {
            return Ok(tasks);
        }
    }
}

/// Returns the free disk space in MB, or the space that the project's own disk limit still allows,
/// if that is less.
fn available_disk_mb(engine: &Engine, board: &Board, id: MissionId) -> Option<u64> {
    let free = engine.shared.git.free_disk_mb();
    let project = board
        .missions
        .get(&id)
        .and_then(|mission| board.projects.get(&mission.project));
    let limit = project.and_then(|project| {
        workspaces::remaining_space_mb(&*engine.shared.git, project).unwrap_or_else(|error| {
            tracing::warn!(project = %project.name, "could not measure the disk space of project \
                {}'s workspaces, so its disk limit is ignored until the next check: {error}",
                project.name);
            None
        })
    });
    free.into_iter().chain(limit).min()
}
