//! Validates a merged tree in a staging directory. The checks are those that the trunk names, never
//! those of the branch, and a tree that has passed is not checked again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regatta_core::agent::SandboxLevel;
use regatta_core::ids::{CommitId, ProjectName};
use regatta_core::landing::speculation;
use regatta_core::project::Project;
use regatta_core::task::{Task, Validation};

use crate::artifacts::CheckEvidence;
use crate::perform::AttemptContext;
use crate::ports::agents::CheckCommand;
use crate::ports::git::ProjectRepo;
use crate::running_commands::CommandOwner;
use crate::validation::{CheckDir, FailedCheck};
use crate::{Engine, validation};

use super::TrialBatch;
use super::cancel::TrialWatch;

/// The largest number of passed trees that are remembered.
const MAX_PASSED_TREES: usize = 512;

/// The staging directories in use, and the trees that have passed.
///
/// Results are kept in memory only. They can be computed again, so a restart costs only time and
/// the store need not hold them. Only passed trees are remembered: a failed tree is validated
/// again, because its reason can change.
#[derive(Default)]
pub(crate) struct ValidationSlots {
    in_use: Mutex<BTreeSet<(ProjectName, u32)>>,
    /// The number of slots that each project had when its surplus staging directories were last
    /// removed.
    last_cleaned: Mutex<BTreeMap<ProjectName, u32>>,
    passed: Mutex<VecDeque<PassedTree>>,
}

/// A tree and the checks it passed, regardless of the commit that has the tree. The rest of the
/// environment is this daemon's own and ends with it.
#[derive(PartialEq, Eq)]
struct PassedTree {
    project: ProjectName,
    tree: CommitId,
    checks: Validation,
    commands: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A staging directory that nobody else uses until it is dropped.
struct Slot<'a> {
    slots: &'a ValidationSlots,
    project: ProjectName,
    number: u32,
}

impl ValidationSlots {
    /// Reserves the first free slot of a project.
    fn reserve_slot(&self, project: &ProjectName) -> Slot<'_> {
        let mut taken = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |n: &u32| !taken.contains(&(project.clone(), *n));
        let number = (0..).find(free).unwrap_or(u32::MAX);
        taken.insert((project.clone(), number));
        Slot {
            slots: self,
            project: project.clone(),
            number,
        }
    }

    /// Returns whether surplus staging directories of a project may exist, and none of them is in
    /// use.
    fn needs_cleanup(&self, project: &ProjectName, slots: u32) -> bool {
        let known = self
            .last_cleaned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(project)
            == Some(&slots);
        let taken = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        !known
            && !taken
                .iter()
                .any(|(taken, number)| taken == project && *number >= slots)
    }

    fn has_passed(&self, key: &PassedTree) -> bool {
        self.passed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(key)
    }

    fn record_passed(&self, key: PassedTree) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.push_front(key);
        passed.truncate(MAX_PASSED_TREES);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut taken = self
            .slots
            .in_use
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.remove(&(self.project.clone(), self.number));
    }
}

/// Validates `new` with the checks of the trunk that it is based on and the contracts of all its
/// tasks. Returns the first check that failed. `Err` says why the checks could not be run.
pub(super) fn first_failed_check(
    engine: &Engine,
    train: &TrialBatch,
    tasks: &[&Task],
    new: &CommitId,
    watch: &TrialWatch<'_>,
) -> Result<Option<FailedCheck>, String> {
    let project = &train.project_with_trunk_checks;
    let task = merge_validations(tasks).ok_or("the trial has no landings")?;
    let key = PassedTree {
        project: project.name.clone(),
        tree: engine
            .shared
            .git
            .tree_of(&train.repo, new)
            .map_err(|error| error.to_string())?,
        checks: task.validation.clone(),
        commands: project.validation.clone(),
        environment: validation::task_env(&task, project),
    };
    let bench = &engine.shared.validation_slots;
    if bench.has_passed(&key) {
        return Ok(None);
    }
    remove_surplus_slots(engine, train);
    let slot = bench.reserve_slot(&project.name);
    let staging = engine
        .shared
        .git
        .stage(&train.repo, slot.number, new)
        .map_err(|error| error.to_string())?;
    crate::failpoint::hit("trial.staged");
    let wanted = || watch.is_still_relevant();
    let found = match prepare_slot(
        engine,
        &train.repo,
        (&task, project),
        (slot.number, new),
        (&staging, &wanted),
    )? {
        Some(broken) => Some(broken),
        None => {
            let shut_in = validation::check_sandbox(
                &*engine.shared.git,
                &train.repo,
                project.settings.run.sandbox,
            );
            let newest = tasks.last().map_or(task.id, |task| task.id);
            let entry = engine
                .shared
                .commands
                .register(CommandOwner::Trial(newest), "its checks");
            let place = CheckDir {
                dir: &staging,
                sandbox: shut_in,
                env: vec![],
                is_wanted: Some(&wanted),
                entry: Some(&entry),
            };
            let found =
                validation::first_failed_check(&*engine.shared.agents, &task, project, &place);
            found.map_err(validation::describe_agent_error)?
        }
    };
    drop(slot);
    if found.is_none() {
        bench.record_passed(key);
    }
    Ok(found)
}

/// An attempt's commit in a staging directory that contains exactly that commit, without files that
/// are held back.
pub(in crate::perform) struct StagedCommit<'a> {
    engine: &'a Engine,
    scene: &'a AttemptContext,
    commit: CommitId,
    slot: Slot<'a>,
    dir: PathBuf,
}

impl<'a> StagedCommit<'a> {
    /// Checks the attempt's commit out into a free slot's directory.
    pub(in crate::perform) fn new(
        engine: &'a Engine,
        scene: &'a AttemptContext,
        commit: &CommitId,
    ) -> Result<StagedCommit<'a>, String> {
        // A ratchet that an earlier daemon started may run in a directory that is about to get
        // another commit.
        let ratchet = validation::ratchet_name(scene.attempt.id);
        engine
            .shared
            .agents
            .abort_command(&ratchet)
            .map_err(validation::describe_agent_error)?;
        let slot = engine
            .shared
            .validation_slots
            .reserve_slot(&scene.project.name);
        let dir = engine
            .shared
            .git
            .stage(&scene.repo, slot.number, commit)
            .map_err(|error| error.to_string())?;
        Ok(StagedCommit {
            engine,
            scene,
            commit: commit.clone(),
            slot,
            dir,
        })
    }

    /// Runs the checks on the commit, up to the first one that fails.
    pub(in crate::perform) fn run_checks(&self) -> Result<Vec<CheckEvidence>, String> {
        let AttemptContext {
            task,
            project,
            repo,
            ..
        } = self.scene;
        let (slot, level) = (
            (self.slot.number, &self.commit),
            project.settings.run.sandbox,
        );
        self.run_in_dir(level, |place, wanted| {
            if let Some(broken) = prepare_slot(
                self.engine,
                repo,
                (task, project),
                slot,
                (&self.dir, wanted),
            )? {
                let output = String::new();
                return Ok(vec![CheckEvidence {
                    check: "setup".into(),
                    passed: false,
                    outcome: broken.reason,
                    output,
                    duration_ms: 0,
                }]);
            }
            validation::run_checks(&*self.engine.shared.agents, task, project, place)
                .map_err(validation::describe_agent_error)
        })
    }

    /// Runs the task's ratchet on the commit, once. Returns the reason if the ratchet refused it.
    pub(in crate::perform) fn run_ratchet(&self) -> Result<Option<String>, String> {
        let AttemptContext {
            attempt,
            task,
            project,
            ..
        } = self.scene;
        let level = project
            .settings
            .run
            .ratchet_sandbox
            .unwrap_or(SandboxLevel::Off);
        self.run_in_dir(Some(level), |place, _| {
            validation::ratchet_refusal(
                &*self.engine.shared.agents,
                (task, project),
                attempt.id,
                place,
            )
            .map_err(validation::describe_agent_error)
        })
    }

    /// Calls `run` with the directory and a predicate that says whether its result is still wanted.
    fn run_in_dir<T>(
        &self,
        level: Option<SandboxLevel>,
        run: impl FnOnce(&CheckDir<'_>, &dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let (engine, AttemptContext { attempt, repo, .. }) = (self.engine, self.scene);
        let entry = engine
            .shared
            .commands
            .register(CommandOwner::Attempt(attempt.id), "its checks");
        let wanted = || entry.is_wanted() && engine.can_start() && !engine.is_ending(attempt.id);
        let shut_in = validation::check_sandbox(&*engine.shared.git, repo, level);
        let env = validation::port_variables(&attempt.ports);
        run(
            &CheckDir {
                dir: &self.dir,
                sandbox: shut_in,
                env,
                is_wanted: Some(&wanted),
                entry: Some(&entry),
            },
            &wanted,
        )
    }
}

/// Removes the staging directories of slots that the project no longer has.
fn remove_surplus_slots(engine: &Engine, train: &TrialBatch) {
    let (bench, name) = (&engine.shared.validation_slots, &train.project.name);
    let slots = speculation::slots(&train.project, engine.board().limits.landing_slots);
    if !bench.needs_cleanup(name, slots) {
        return;
    }
    match engine.shared.git.unstage(&train.repo, slots) {
        Ok(()) => {
            bench
                .last_cleaned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.clone(), slots);
        }
        // These directories only take disk space. The next trial tries again.
        Err(error) => {
            tracing::warn!(project = %name, "could not remove surplus staging directories: {error}")
        }
    }
}

/// Prepares a staging directory as a workspace is prepared: copies the project's untracked files
/// and runs its setup commands. The next staging removes everything again, so this is done each
/// time. Returns the setup command that failed, if one did.
fn prepare_slot(
    engine: &Engine,
    repo: &ProjectRepo,
    (task, project): (&Task, &Project),
    (slot, commit): (u32, &CommitId),
    (dir, wanted): (&Path, &dyn Fn() -> bool),
) -> Result<Option<FailedCheck>, String> {
    let settings = &project.settings.workspace;
    if !settings.copy.is_empty() {
        engine
            .shared
            .git
            .prepare_staging(repo, slot, commit)
            .map_err(|error| format!("{error} {}", error.hint))?;
    }
    for command in &settings.setup {
        let check = CheckCommand {
            command: command.clone(),
            dir: dir.to_owned(),
            env: validation::task_env(task, project),
            timeout: Duration::from_millis(settings.setup_timeout.ms()),
            once_name: None,
            sandbox: validation::check_sandbox(
                &*engine.shared.git,
                repo,
                project.settings.run.sandbox,
            ),
        };
        let result = validation::run_check(&*engine.shared.agents, &check, Some(wanted))
            .map_err(validation::describe_agent_error)?;
        if !result.passed() {
            let how = format!(
                "the setup command `{command}` {}",
                validation::describe_end_with_hint(&result)
            );
            return Ok(Some(FailedCheck::from_output(&how, &result.output)));
        }
    }
    Ok(None)
}

/// Reads the checks that the trunk names at `tip`. A branch that changes the checks is validated by
/// the old ones.
///
/// Where a person has edited `regatta.toml` in the checkout, the project already has the checks of
/// the saved file, and those count.
pub(super) fn read_trunk_checks(
    engine: &Engine,
    train: &mut TrialBatch,
    tip: &CommitId,
) -> Result<(), String> {
    let (Some(read), Some(file)) = (
        engine.shared.settings.parse_checks,
        engine
            .shared
            .git
            .file_at(&train.repo, tip, "regatta.toml")
            .map_err(|error| error.to_string())?,
    ) else {
        return Ok(());
    };
    if engine
        .shared
        .git
        .is_edited(&train.repo, "regatta.toml", &file)
        .map_err(|error| error.to_string())?
    {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&file);
    let checks =
        read(&text).map_err(|s| format!("the trunk's regatta.toml cannot be read: {s}"))?;
    if let Some(commands) = checks.commands {
        train.project_with_trunk_checks.validation = commands;
    }
    if let Some(timeout) = checks.timeout_ms {
        train.project_with_trunk_checks.validation_timeout_ms = timeout;
    }
    Ok(())
}

/// Returns an id of the checks of a task. The same checks have the same id on every machine and in
/// every version.
pub(super) fn validation_id(project: &Project, task: &Task) -> String {
    let asked = serde_json::to_string(&(&project.validation, &task.validation)).unwrap_or_default();
    // FNV-1a: the hash needs no resistance against attacks, it only has to stay the same.
    let hash = asked.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Returns the last task with the contracts of all tasks.
fn merge_validations(tasks: &[&Task]) -> Option<Task> {
    let mut all = Task::clone(tasks.last()?);
    all.validation = Validation::default();
    for validation in tasks.iter().map(|task| &task.validation) {
        append_missing(&mut all.validation.files_exist, &validation.files_exist);
        append_missing(&mut all.validation.content_check, &validation.content_check);
        append_missing(&mut all.validation.lint, &validation.lint);
        append_missing(&mut all.validation.tests, &validation.tests);
    }
    Some(all)
}

/// Appends the elements of `more` that `all` does not contain.
fn append_missing<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for value in more {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
}
