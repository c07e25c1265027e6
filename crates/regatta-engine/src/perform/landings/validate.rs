//! Validates a merged tree in a staging directory. The checks are those that the trunk names, never
//! those of the branch, and a tree that has passed is not checked again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regatta_core::agent::Level;
use regatta_core::ids::{CommitId, ProjectName};
use regatta_core::landing::plan;
use regatta_core::project::Project;
use regatta_core::task::{Task, Validation};

use crate::contract::{Broken, Place};
use crate::keep::Evidence;
use crate::perform::Scene;
use crate::ports::agents::Check;
use crate::ports::git::Repo;
use crate::running_commands::CommandOwner;
use crate::{Engine, contract};

use super::Train;
use super::watch::Watch;

/// The largest number of passed trees that are remembered.
const REMEMBERED: usize = 512;

/// The staging directories in use, and the trees that have passed.
///
/// Results are kept in memory only. They can be computed again, so a restart costs only time and
/// the store need not hold them. Only passed trees are remembered: a failed tree is validated
/// again, because its reason can change.
#[derive(Default)]
pub(crate) struct Bench {
    taken: Mutex<BTreeSet<(ProjectName, u32)>>,
    /// The number of slots that each project had when its surplus staging directories were last
    /// removed.
    tidied: Mutex<BTreeMap<ProjectName, u32>>,
    passed: Mutex<VecDeque<Key>>,
}

/// A tree and the checks it passed, regardless of the commit that has the tree. The rest of the
/// environment is this daemon's own and ends with it.
#[derive(PartialEq, Eq)]
struct Key {
    project: ProjectName,
    tree: CommitId,
    checks: Validation,
    commands: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A staging directory that nobody else uses until it is dropped.
struct Slot<'a> {
    bench: &'a Bench,
    project: ProjectName,
    number: u32,
}

impl Bench {
    /// Reserves the first free slot of a project.
    fn slot(&self, project: &ProjectName) -> Slot<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |it: &u32| !taken.contains(&(project.clone(), *it));
        let number = (0..).find(free).unwrap_or(u32::MAX);
        taken.insert((project.clone(), number));
        Slot { bench: self, project: project.clone(), number }
    }

    /// Returns whether surplus staging directories of a project may exist, and none of them is in
    /// use.
    fn is_untidy(&self, project: &ProjectName, slots: u32) -> bool {
        let known = self.tidied.lock().unwrap_or_else(PoisonError::into_inner).get(project) == Some(&slots);
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        !known && !taken.iter().any(|(it, number)| it == project && *number >= slots)
    }

    fn knows(&self, key: &Key) -> bool {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn remember(&self, key: Key) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.push_front(key);
        passed.truncate(REMEMBERED);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut taken = self.bench.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&(self.project.clone(), self.number));
    }
}

/// Validates `new` with the checks of the trunk that it is based on and the contracts of all its
/// tasks. Returns the first check that failed. `Err` says why the checks could not be run.
pub(super) fn broken(
    engine: &Engine,
    train: &Train,
    tasks: &[&Task],
    new: &CommitId,
    watch: &Watch<'_>,
) -> Result<Option<Broken>, String> {
    let project = &train.checked;
    let task = together(tasks).ok_or("the trial has no landings")?;
    let key = Key {
        project: project.name.clone(),
        tree: engine.shared.git.tree(&train.repo, new).map_err(|it| it.to_string())?,
        checks: task.validation.clone(),
        commands: project.validation.clone(),
        environment: contract::environment(&task, project),
    };
    let bench = &engine.shared.bench;
    if bench.knows(&key) {
        return Ok(None);
    }
    tidy(engine, train);
    let slot = bench.slot(&project.name);
    let staging = engine.shared.git.stage(&train.repo, slot.number, new).map_err(|it| it.to_string())?;
    crate::failpoint::at("trial.staged");
    let wanted = || watch.counts();
    let found = match furnish(engine, &train.repo, (&task, project), (slot.number, new), (&staging, &wanted))? {
        Some(broken) => Some(broken),
        None => {
            let shut_in = contract::shut_in(&*engine.shared.git, &train.repo, project.settings.run.sandbox);
            let newest = tasks.last().map_or(task.id, |task| task.id);
            let entry = engine.shared.commands.enter(CommandOwner::Trial(newest), "its checks");
            let place = Place { dir: &staging, shut_in, env: vec![], wanted: Some(&wanted), entry: Some(&entry) };
            let found = contract::broken(&*engine.shared.agents, &task, project, &place);
            found.map_err(contract::in_full)?
        }
    };
    drop(slot);
    if found.is_none() {
        bench.remember(key);
    }
    Ok(found)
}

/// An attempt's commit in a staging directory that contains exactly that commit, without files that
/// are held back.
pub(in crate::perform) struct Alone<'a> {
    engine: &'a Engine,
    scene: &'a Scene,
    commit: CommitId,
    slot: Slot<'a>,
    dir: PathBuf,
}

impl<'a> Alone<'a> {
    /// Checks the attempt's commit out into a free slot's directory.
    pub(in crate::perform) fn new(
        engine: &'a Engine,
        scene: &'a Scene,
        commit: &CommitId,
    ) -> Result<Alone<'a>, String> {
        // A ratchet that an earlier daemon started may run in a directory that is about to get
        // another commit.
        let ratchet = contract::ratchet_name(scene.attempt.id);
        engine.shared.agents.break_off_command(&ratchet).map_err(contract::in_full)?;
        let slot = engine.shared.bench.slot(&scene.project.name);
        let dir = engine.shared.git.stage(&scene.repo, slot.number, commit).map_err(|error| error.to_string())?;
        Ok(Alone { engine, scene, commit: commit.clone(), slot, dir })
    }

    /// Runs the checks on the commit, up to the first one that fails.
    pub(in crate::perform) fn examine(&self) -> Result<Vec<Evidence>, String> {
        let Scene { task, project, repo, .. } = self.scene;
        let (slot, level) = ((self.slot.number, &self.commit), project.settings.run.sandbox);
        self.within(level, |place, wanted| {
            if let Some(broken) = furnish(self.engine, repo, (task, project), slot, (&self.dir, wanted))? {
                let output = String::new();
                return Ok(vec![Evidence { check: "setup".into(), passed: false, how: broken.reason, output, ms: 0 }]);
            }
            contract::examine(&*self.engine.shared.agents, task, project, place).map_err(contract::in_full)
        })
    }

    /// Runs the task's ratchet on the commit, once. Returns the reason if the ratchet refused it.
    pub(in crate::perform) fn ratchet(&self) -> Result<Option<String>, String> {
        let Scene { attempt, task, project, .. } = self.scene;
        let level = project.settings.run.ratchet_sandbox.unwrap_or(Level::Off);
        self.within(Some(level), |place, _| {
            contract::refused_by_ratchet(&*self.engine.shared.agents, (task, project), attempt.id, place)
                .map_err(contract::in_full)
        })
    }

    /// Calls `run` with the directory and a predicate that says whether its result is still wanted.
    fn within<T>(
        &self,
        level: Option<Level>,
        run: impl FnOnce(&Place<'_>, &dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let (engine, Scene { attempt, repo, .. }) = (self.engine, self.scene);
        let entry = engine.shared.commands.enter(CommandOwner::Attempt(attempt.id), "its checks");
        let wanted = || entry.is_wanted() && engine.may_start() && !engine.is_ending(attempt.id);
        let shut_in = contract::shut_in(&*engine.shared.git, repo, level);
        let env = contract::port_variables(&attempt.ports);
        run(&Place { dir: &self.dir, shut_in, env, wanted: Some(&wanted), entry: Some(&entry) }, &wanted)
    }
}

/// Removes the staging directories of slots that the project no longer has.
fn tidy(engine: &Engine, train: &Train) {
    let (bench, name) = (&engine.shared.bench, &train.project.name);
    let slots = plan::slots(&train.project, engine.board().limits.landing_slots);
    if !bench.is_untidy(name, slots) {
        return;
    }
    match engine.shared.git.unstage(&train.repo, slots) {
        Ok(()) => {
            bench.tidied.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), slots);
        }
        // These directories only take disk space. The next trial tries again.
        Err(error) => tracing::warn!(project = %name, "could not remove surplus staging directories: {error}"),
    }
}

/// Prepares a staging directory as a workspace is prepared: copies the project's untracked files
/// and runs its setup commands. The next staging removes everything again, so this is done each
/// time. Returns the setup command that failed, if one did.
fn furnish(
    engine: &Engine,
    repo: &Repo,
    (task, project): (&Task, &Project),
    (slot, commit): (u32, &CommitId),
    (dir, wanted): (&Path, &dyn Fn() -> bool),
) -> Result<Option<Broken>, String> {
    let settings = &project.settings.workspace;
    if !settings.copy.is_empty() {
        engine.shared.git.furnish(repo, slot, commit).map_err(|it| format!("{it} {}", it.hint))?;
    }
    for command in &settings.setup {
        let check = Check {
            command: command.clone(),
            dir: dir.to_owned(),
            env: contract::environment(task, project),
            timeout: Duration::from_millis(settings.setup_timeout.ms()),
            once: None,
            shut_in: contract::shut_in(&*engine.shared.git, repo, project.settings.run.sandbox),
        };
        let result = contract::run(&*engine.shared.agents, &check, Some(wanted)).map_err(contract::in_full)?;
        if !result.passed() {
            let how = format!("the setup command `{command}` {}", contract::ending_in_full(&result));
            return Ok(Some(Broken::new(&how, &result.output)));
        }
    }
    Ok(None)
}

/// Reads the checks that the trunk names at `tip`. A branch that changes the checks is validated by
/// the old ones.
///
/// Where a person has edited `regatta.toml` in the checkout, the project already has the checks of
/// the saved file, and those count.
pub(super) fn read_checks(engine: &Engine, train: &mut Train, tip: &CommitId) -> Result<(), String> {
    let (Some(read), Some(file)) = (
        engine.shared.settings.read_checks,
        engine.shared.git.file_at(&train.repo, tip, "regatta.toml").map_err(|it| it.to_string())?,
    ) else {
        return Ok(());
    };
    if engine.shared.git.is_edited(&train.repo, "regatta.toml", &file).map_err(|it| it.to_string())? {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&file);
    let checks = read(&text).map_err(|it| format!("the trunk's regatta.toml cannot be read: {it}"))?;
    if let Some(commands) = checks.commands {
        train.checked.validation = commands;
    }
    if let Some(timeout) = checks.timeout_ms {
        train.checked.validation_timeout_ms = timeout;
    }
    Ok(())
}

/// Returns an id of the checks of a task. The same checks have the same id on every machine and in
/// every version.
pub(super) fn id(project: &Project, task: &Task) -> String {
    let asked = serde_json::to_string(&(&project.validation, &task.validation)).unwrap_or_default();
    // FNV-1a: the hash needs no resistance against attacks, it only has to stay the same.
    let hash = asked
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Returns the last task with the contracts of all tasks.
fn together(tasks: &[&Task]) -> Option<Task> {
    let mut all = Task::clone(tasks.last()?);
    all.validation = Validation::default();
    for it in tasks.iter().map(|it| &it.validation) {
        extend(&mut all.validation.files_exist, &it.files_exist);
        extend(&mut all.validation.content_check, &it.content_check);
        extend(&mut all.validation.lint, &it.lint);
        extend(&mut all.validation.tests, &it.tests);
    }
    Some(all)
}

/// Appends the elements of `more` that `all` does not contain.
fn extend<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for it in more {
        if !all.contains(it) {
            all.push(it.clone());
        }
    }
}
