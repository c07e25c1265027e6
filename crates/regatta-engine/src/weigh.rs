//! What the world has to say before a start: how the trunk stands, and what room the machine has.
//!
//! Looking takes some milliseconds, and a start must not wait for them each time. So a round of polls uses what was seen
//! a moment ago and looks again afterwards; only what is old is looked at before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::gates::{Base, Facts, LostLanding};
use regatta_core::ids::{CommitId, MissionId, ProjectName, TaskId};
use regatta_core::landing::trunk_check::{self, TrunkCommit};
use regatta_core::mission::Mission;
use regatta_core::project::Project;
use regatta_core::task::{Status, Task};

use crate::Engine;
use crate::perform::{compare_with, workspaces};
use crate::ports::git::{GitError, Repo};
use crate::ports::store::{StoreError, TaskFilter};

/// How old what was seen may be before it is looked at again, after a round of polls.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// How old it may be to be used at all.
const STALE: Duration = Duration::from_secs(30);

/// How many tasks are read from the history at once.
const PAGE: usize = 1_000;

/// What was seen for each mission, and when.
#[derive(Default)]
pub(crate) struct Scales {
    seen: BTreeMap<MissionId, (Instant, Facts)>,
    ancestry: BTreeMap<MissionId, Ancestry>,
}

/// What must be in a mission's trunk, and what of it was missing at the last look.
#[derive(Default)]
struct Ancestry {
    /// The mission's last landing and the blockers of its open tasks when `landings` was read.
    read_at: (Option<CommitId>, BTreeSet<TaskId>),
    landings: Vec<Landing>,
    /// The trunk's tip, and how many lost commits people had accepted, when `lost` was found out.
    seen_at: Option<(CommitId, usize)>,
    lost: Vec<LostLanding>,
}

/// A task's commit on the trunk.
struct Landing {
    task: TaskId,
    commit: CommitId,
    /// The commit that the task handed in, which a shared commit of a wave brought to the trunk.
    submitted: Option<CommitId>,
}

impl Scales {
    /// What is known for a mission; looked at now if nothing is.
    pub(crate) fn facts(&mut self, engine: &Engine, board: &Board, mission: MissionId) -> Facts {
        match self.seen.get(&mission) {
            // What landed since may have made tasks ready that build on all that landed before.
            Some((at, facts)) if at.elapsed() < STALE && !self.has_landed(board, mission) => facts.clone(),
            _ => self.look(engine, board, mission),
        }
    }

    /// Looks again at what is no longer fresh. Returns whether something looks different.
    pub(crate) fn refresh(&mut self, engine: &Engine, board: &Board) -> bool {
        self.seen.retain(|id, _| board.missions.contains_key(id));
        self.ancestry.retain(|id, _| board.missions.contains_key(id));
        let old: Vec<(MissionId, Facts)> = self
            .seen
            .iter()
            .filter(|(_, (at, _))| at.elapsed() >= FRESH)
            .map(|(id, (_, facts))| (*id, facts.clone()))
            .collect();
        let mut changed = false;
        for (id, before) in old {
            let now = self.look(engine, board, id);
            // How much is free changes all the time; where something is held up, it is asked again anyway.
            changed |= now.base != before.base;
        }
        changed
    }

    fn look(&mut self, engine: &Engine, board: &Board, id: MissionId) -> Facts {
        let facts = Facts {
            runner: None,
            memory_mb: engine.shared.agents.free_memory_mb(),
            disk_mb: room(engine, board, id),
            base: self.base(engine, board, id),
        };
        self.seen.insert(id, (Instant::now(), facts.clone()));
        facts
    }

    /// Whether something of the mission landed since its landings were read.
    fn has_landed(&self, board: &Board, id: MissionId) -> bool {
        let last = board.missions.get(&id).and_then(|mission| mission.landed.last.as_ref());
        let known = self.ancestry.get(&id).and_then(|ancestry| ancestry.read_at.0.as_ref());
        last != known
    }

    fn base(&mut self, engine: &Engine, board: &Board, id: MissionId) -> Option<Base> {
        let mission = board.missions.get(&id)?;
        let project = board.projects.get(&mission.project)?;
        let repo = Repo::of(project);
        let ancestry = self.ancestry.entry(id).or_default();
        let mut look = || -> Result<Base, GitError> {
            // The landings are read before the tip, so that one that lands just now is not missed in an older trunk.
            ancestry.read(engine, board, mission);
            let trunk = engine.shared.git.trunk(&repo)?;
            ancestry.look(engine, project, (&repo, &trunk.tip))?;
            let lost = ancestry.lost.clone();
            Ok(Base::There { tip: trunk.tip, upstream: trunk.upstream, behind: trunk.behind, lost })
        };
        Some(look().unwrap_or_else(|error| Base::Broken { reason: format!("{}: {}", error.what, error.hint) }))
    }
}

impl Ancestry {
    /// Reads what landed of the mission and of the blockers of its open tasks, if that may have changed.
    fn read(&mut self, engine: &Engine, board: &Board, mission: &Mission) {
        let open = board.open_tasks_of(mission.id).filter_map(|(_, id)| board.tasks.get(&id));
        let blockers: BTreeSet<TaskId> = open.flat_map(|task| task.blocked_by.iter().copied()).collect();
        let now = (mission.landed.last.clone(), blockers);
        if self.read_at == now {
            return;
        }
        match landings(engine, board, mission, &now.1) {
            Ok(landings) => (self.landings, self.read_at, self.seen_at) = (landings, now, None),
            // The next look reads them again.
            Err(error) => tracing::warn!(mission = %mission.id, "could not read what landed: {error}"),
        }
    }

    /// Finds out which landings the trunk's history up to `tip` lost. What a person undid, rewrote or accepted as lost is
    /// not missed.
    fn look(&mut self, engine: &Engine, project: &Project, (repo, tip): (&Repo, &CommitId)) -> Result<(), GitError> {
        let now = (tip.clone(), project.queue.accepted.len());
        if self.seen_at.as_ref() == Some(&now) {
            return Ok(());
        }
        let commits: Vec<CommitId> = self.landings.iter().map(|landing| landing.commit.clone()).collect();
        let missing = engine.shared.git.missing(repo, tip, &commits)?;
        let mut lost: Vec<&Landing> =
            self.landings.iter().filter(|landing| missing.contains(&landing.commit)).collect();
        if !lost.is_empty() {
            let undone = undone(engine, &repo.project);
            lost.retain(|landing| {
                !undone.contains(&landing.commit) && !landing.submitted.as_ref().is_some_and(|own| undone.contains(own))
            });
        }
        if !lost.is_empty() {
            let commits: Vec<CommitId> = lost.iter().map(|landing| landing.commit.clone()).collect();
            match compare_with(engine, project, &commits) {
                Ok(seen) => {
                    let gone: Vec<&TrunkCommit> = trunk_check::lost(project, &seen).collect();
                    lost.retain(|landing| gone.iter().any(|gone| landing.is(gone)));
                }
                // Whether the trunk has them rewritten is not known, so their dependants wait.
                Err(error) => tracing::warn!(project = %project.name, %error, "could not look for rewritten landings"),
            }
        }
        self.lost =
            lost.iter().map(|landing| LostLanding { task: landing.task, commit: landing.commit.clone() }).collect();
        self.seen_at = Some(now);
        Ok(())
    }
}

impl Landing {
    /// Whether a commit of a trunk is this landing. The commit of a wave is several.
    fn is(&self, commit: &TrunkCommit) -> bool {
        commit.commit == self.commit && commit.task.is_none_or(|task| task == self.task)
    }
}

fn landings(
    engine: &Engine,
    board: &Board,
    mission: &Mission,
    blockers: &BTreeSet<TaskId>,
) -> Result<Vec<Landing>, StoreError> {
    let mut tasks = Vec::new();
    if mission.landed.last.is_some() {
        let filter = TaskFilter { mission: Some(mission.id), ..TaskFilter::default() };
        tasks = completed(engine, filter)?;
    }
    let known: BTreeSet<TaskId> = tasks.iter().map(|task| task.id).collect();
    for blocker in blockers.difference(&known).filter(|id| board.settled(**id) == Some(Status::Completed)) {
        tasks.extend(engine.history().task(*blocker)?.filter(|task| task.project == mission.project));
    }
    let landing = |task: Task| {
        let submitted = task.submission.map(|submission| submission.commit);
        Some(Landing { task: task.id, commit: task.landed?, submitted })
    };
    Ok(tasks.into_iter().filter_map(landing).collect())
}

/// Returns the commits that people took back with an undo. Read only when something is missing.
fn undone(engine: &Engine, project: &ProjectName) -> BTreeSet<CommitId> {
    let filter = TaskFilter { project: Some(project.clone()), ..TaskFilter::default() };
    let tasks = completed(engine, filter).unwrap_or_else(|error| {
        tracing::warn!(%project, "could not read what was undone: {error}");
        vec![]
    });
    let reverts = tasks.into_iter().filter_map(|task| task.submission).filter(|submission| submission.reverts);
    reverts.map(|submission| submission.commit).collect()
}

/// Reads all completed tasks that match.
fn completed(engine: &Engine, filter: TaskFilter) -> Result<Vec<Task>, StoreError> {
    let mut found: Vec<Task> = Vec::new();
    loop {
        let after = found.last().map(|task| task.id);
        let page = TaskFilter { statuses: vec![Status::Completed], after, limit: PAGE, ..filter.clone() };
        let tasks = engine.history().tasks(&page)?;
        let is_full = tasks.len() == PAGE;
        found.extend(tasks);
        if !is_full {
            return Ok(found);
        }
    }
}

/// What the disk has free, or what the project's own bound leaves if that is less.
fn room(engine: &Engine, board: &Board, id: MissionId) -> Option<u64> {
    let free = engine.shared.git.free_disk_mb();
    let project = board.missions.get(&id).and_then(|it| board.projects.get(&it.project));
    let bound = project.and_then(|it| {
        workspaces::room_left_mb(engine, it).unwrap_or_else(|error| {
            tracing::warn!(project = %it.name, "what its workspaces take cannot be found out: {error}");
            None
        })
    });
    free.into_iter().chain(bound).min()
}
