//! Is this tree green? Its checks are the trunk's own, never the branch's; what passed once is not run again.

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

/// How many results are remembered.
const REMEMBERED: usize = 512;

/// Where trees are validated: which slots are taken, and what passed there.
///
/// What passed is remembered in memory only: it can be found out again, so a restart costs time and nothing else, and
/// a store need not carry it. Only what is green is remembered: a red tree is tried once more, and its reason changes.
#[derive(Default)]
pub(crate) struct Bench {
    taken: Mutex<BTreeSet<(ProjectName, u32)>>,
    /// How many slots each project had when the directories of those it no longer has were removed.
    tidied: Mutex<BTreeMap<ProjectName, u32>>,
    passed: Mutex<VecDeque<Key>>,
}

/// A tree and what it was checked with, whoever made the commit. The rest of the environment is this daemon's own, and
/// ends with it.
#[derive(PartialEq, Eq)]
struct Key {
    project: ProjectName,
    tree: CommitId,
    checks: Validation,
    commands: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A staging directory that is ours until it is dropped.
struct Slot<'a> {
    bench: &'a Bench,
    project: ProjectName,
    number: u32,
}

impl Bench {
    fn slot(&self, project: &ProjectName) -> Slot<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |it: &u32| !taken.contains(&(project.clone(), *it));
        let number = (0..).find(free).unwrap_or(u32::MAX);
        taken.insert((project.clone(), number));
        Slot { bench: self, project: project.clone(), number }
    }

    /// Whether directories of slots that a project no longer has may be there, and none of them is in use.
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

/// Validates `new` against the checks of the trunk it stands on and the contracts of those in it.
/// Returns the check that does not hold, if one does not. `Err` is why that could not be found out.
pub(super) fn broken(
    engine: &Engine,
    train: &Train,
    tasks: &[&Task],
    new: &CommitId,
    watch: &Watch<'_>,
) -> Result<Option<Broken>, String> {
    let project = &train.checked;
    let task = together(tasks).ok_or("nobody is in this trial")?;
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

/// An attempt's commit alone, in a slot's directory that holds exactly that commit and nothing that is held back.
pub(in crate::perform) struct Alone<'a> {
    engine: &'a Engine,
    scene: &'a Scene,
    commit: CommitId,
    slot: Slot<'a>,
    dir: PathBuf,
}

impl<'a> Alone<'a> {
    pub(in crate::perform) fn new(
        engine: &'a Engine,
        scene: &'a Scene,
        commit: &CommitId,
    ) -> Result<Alone<'a>, String> {
        // A ratchet that an earlier daemon started may run in a directory that is about to have another commit in it.
        let ratchet = contract::ratchet_name(scene.attempt.id);
        engine.shared.agents.break_off_command(&ratchet).map_err(contract::in_full)?;
        let slot = engine.shared.bench.slot(&scene.project.name);
        let dir = engine.shared.git.stage(&scene.repo, slot.number, commit).map_err(|error| error.to_string())?;
        Ok(Alone { engine, scene, commit: commit.clone(), slot, dir })
    }

    /// Checks the commit, up to the first check that fails.
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

    /// Lets the task's ratchet measure the commit, once; says why it refused.
    pub(in crate::perform) fn ratchet(&self) -> Result<Option<String>, String> {
        let Scene { attempt, task, project, .. } = self.scene;
        let level = project.settings.run.ratchet_sandbox.unwrap_or(Level::Off);
        self.within(Some(level), |place, _| {
            contract::refused_by_ratchet(&*self.engine.shared.agents, (task, project), attempt.id, place)
                .map_err(contract::in_full)
        })
    }

    /// Runs commands for the attempt in the directory, for as long as they are wanted.
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

/// Removes the directories of slots that the project no longer has.
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
        // They only take room; the next trial tries again.
        Err(error) => tracing::warn!(project = %name, "old directories for validation are left: {error}"),
    }
}

/// Makes a slot's directory as ready as a workspace is: with the files the project brings along and what its setup
/// commands make. Nothing of it outlives the next staging, so it is done each time. Returns the command that does not
/// take this tree, if one does not.
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

/// Reads the checks that the trunk names at `tip`: a branch that changes them is checked by the old ones.
///
/// Where a person has edited the file in the checkout, the project already has the checks of the saved file, and those
/// count.
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

/// A name for what a task's work was validated with: the same checks have the same one, on every machine and for good.
pub(super) fn id(project: &Project, task: &Task) -> String {
    let asked = serde_json::to_string(&(&project.validation, &task.validation)).unwrap_or_default();
    // FNV-1a: it need not withstand anybody, only stay the same.
    let hash = asked
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// The last task, with what all of them ask.
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

fn extend<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for it in more {
        if !all.contains(it) {
            all.push(it.clone());
        }
    }
}
