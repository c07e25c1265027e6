//! Checks a merged tree in a staging directory, a separate checkout for checks. The checks always
//! come from the trunk, and never from the work that is merged. A tree that has passed is not
//! checked again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regatta_core::agent::SandboxLevel;
use regatta_core::attempt::CheckEvidence;
use regatta_core::ids::{CommitId, ProjectName};
use regatta_core::landing::speculation;
use regatta_core::project::Project;
use regatta_core::stable_hash::stable_hash;
use regatta_core::task::{Task, Validation};

use crate::perform::AttemptContext;
use crate::ports::agents::CheckCommand;
use crate::ports::git::ProjectRepo;
use crate::running_commands::CommandOwner;
use crate::validation::{CheckDir, FailedCheck};
use crate::{Engine, validation};

use super::TrialBatch;
use super::cancel::TrialWatch;

/// The largest number of file trees that are remembered as passed. A remembered tree is not checked
/// again.
const MAX_PASSED_TREES: usize = 512;

/// The staging directories (in which merged work is checked) that are in use, and the file trees
/// that have passed their checks.
///
/// The results are kept in memory only, because they can be computed again after a restart. Only
/// passed trees are remembered. A failed tree is checked again, because the reason of the failure
/// can change.
#[derive(Default)]
pub(crate) struct ValidationSlots {
    in_use: Mutex<BTreeSet<(ProjectName, u32)>>,
    /// For each project, the allowed number of staging directories (separate checkouts for checks)
    /// at the time when surplus directories were last removed. If the allowed number has changed
    /// since, there may be surplus directories again.
    last_cleaned: Mutex<BTreeMap<ProjectName, u32>>,
    passed: Mutex<VecDeque<PassedTree>>,
}

/// A tree of files that has passed its checks, with the checks and the settings under which the
/// tree passed. The commit is not stored, because several commits can have the same tree.
/// Everything else that could change the result stays the same for as long as this daemon runs.
#[derive(PartialEq, Eq)]
struct PassedTree {
    project: ProjectName,
    tree: CommitId,
    checks: Validation,
    commands: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A numbered staging directory (a separate checkout for checks) that is reserved until this value
/// is dropped.
struct Slot<'a> {
    slots: &'a ValidationSlots,
    project: ProjectName,
    number: u32,
}

impl ValidationSlots {
    /// Reserves the free staging directory (a separate checkout for checks) with the lowest number.
    fn reserve_slot(&self, project: &ProjectName) -> Slot<'_> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |number: &u32| !in_use.contains(&(project.clone(), *number));
        let number = (0..).find(free).unwrap_or(u32::MAX);
        in_use.insert((project.clone(), number));
        Slot {
            slots: self,
            project: project.clone(),
            number,
        }
    }

    /// Returns whether to remove surplus staging directories (in which merged work is checked) now.
    /// `slots` is the number of directories that the project may keep. Returns `false` if the
    /// surplus directories were already removed for this number, or if one of them is in use.
    fn needs_cleanup(&self, project: &ProjectName, slots: u32) -> bool {
        let last_cleaned = self
            .last_cleaned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last_cleaned.get(project) == Some(&slots) {
            return false;
        }
        drop(last_cleaned);
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        !in_use
            .iter()
            .any(|(used_project, number)| used_project == project && *number >= slots)
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
        let mut in_use = self
            .slots
            .in_use
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        in_use.remove(&(self.project.clone(), self.number));
    }
}

/// Checks the merged tree of `new` with the checks that the trunk names and the requirements of all
/// `tasks`. Returns the first check that failed, or `None` if all passed. `Err` says why the checks
/// could not be run.
pub(super) fn first_failed_check(
    engine: &Engine,
    batch: &TrialBatch,
    tasks: &[&Task],
    new: &CommitId,
    watch: &TrialWatch<'_>,
) -> Result<Option<FailedCheck>, String> {
    let project = &batch.project_with_trunk_checks;
    let task = merge_validations(tasks).ok_or("the trial has no landings")?;
    let key = PassedTree {
        project: project.name.clone(),
        tree: engine
            .shared
            .git
            .tree_of(&batch.repo, new)
            .map_err(|error| error.to_string())?,
        checks: task.validation.clone(),
        commands: project.validation.clone(),
        environment: validation::task_env(&task, project),
    };
    let validation_slots = &engine.shared.validation_slots;
    if validation_slots.has_passed(&key) {
        return Ok(None);
    }
    remove_surplus_slots(engine, batch);
    let slot = validation_slots.reserve_slot(&project.name);
    let staging = engine
        .shared
        .git
        .stage(&batch.repo, slot.number, new)
        .map_err(|error| error.to_string())?;
    crate::failpoint::hit("trial.staged");
    let is_wanted = || watch.is_still_relevant();
    let failed = match prepare_slot(
        engine,
        &batch.repo,
        (&task, project),
        (slot.number, new),
        (&staging, &is_wanted),
    )? {
        Some(failed_setup) => Some(failed_setup),
        None => {
            let sandbox = validation::check_sandbox(
                &*engine.shared.git,
                &batch.repo,
                project.settings.run.sandbox,
            );
            let newest = tasks.last().map_or(task.id, |task| task.id);
            let entry = engine
                .shared
                .commands
                .register(CommandOwner::Trial(newest), "its checks");
            let check_dir = CheckDir {
                dir: &staging,
                sandbox,
                env: vec![],
                is_wanted: Some(&is_wanted),
                entry: Some(&entry),
            };
            let failed =
                validation::first_failed_check(&*engine.shared.agents, &task, project, &check_dir);
            failed.map_err(validation::describe_agent_error)?
        }
    };
    drop(slot);
    if failed.is_none() {
        validation_slots.record_passed(key);
    }
    Ok(failed)
}

/// A staging directory (a separate checkout for checks) with exactly the commit of an attempt.
/// Unlike the attempt's workspace, it lacks the changes outside the task's file patterns.
pub(in crate::perform) struct StagedCommit<'a> {
    engine: &'a Engine,
    context: &'a AttemptContext,
    commit: CommitId,
    slot: Slot<'a>,
    dir: PathBuf,
}

impl<'a> StagedCommit<'a> {
    /// Checks the attempt's commit out into a free staging directory (a separate checkout for
    /// checks).
    pub(in crate::perform) fn new(
        engine: &'a Engine,
        context: &'a AttemptContext,
        commit: &CommitId,
    ) -> Result<StagedCommit<'a>, String> {
        // An earlier daemon process may have left a ratchet (a command that must accept the work)
        // running in a staging directory. Stop the ratchet, because another commit may be checked
        // out into that directory.
        let ratchet = validation::ratchet_name(context.attempt.id);
        engine
            .shared
            .agents
            .abort_command(&ratchet)
            .map_err(validation::describe_agent_error)?;
        let slot = engine
            .shared
            .validation_slots
            .reserve_slot(&context.project.name);
        let dir = engine
            .shared
            .git
            .stage(&context.repo, slot.number, commit)
            .map_err(|error| error.to_string())?;
        Ok(StagedCommit {
            engine,
            context,
            commit: commit.clone(),
            slot,
            dir,
        })
    }

    /// Runs the checks on the commit until one fails. Returns the results of the checks that ran.
    pub(in crate::perform) fn run_checks(&self) -> Result<Vec<CheckEvidence>, String> {
        let AttemptContext {
            task,
            project,
            repo,
            ..
        } = self.context;
        let (slot_and_commit, level) = (
            (self.slot.number, &self.commit),
            project.settings.run.sandbox,
        );
        self.run_in_dir(level, |check_dir, is_wanted| {
            if let Some(failed_setup) = prepare_slot(
                self.engine,
                repo,
                (task, project),
                slot_and_commit,
                (&self.dir, is_wanted),
            )? {
                let output = String::new();
                return Ok(vec![CheckEvidence {
                    check: "setup".into(),
                    passed: false,
                    outcome: failed_setup.reason,
                    output,
                    missing_command: None,
                    duration_ms: 0,
                }]);
            }
            validation::run_checks(&*self.engine.shared.agents, task, project, check_dir)
                .map_err(validation::describe_agent_error)
        })
    }

    /// Runs the task's ratchet (a command that must accept work that passed its checks) on the
    /// commit, at most once. Returns the reason if the ratchet rejects the work, otherwise `None`.
    pub(in crate::perform) fn run_ratchet(&self) -> Result<Option<String>, String> {
        let AttemptContext {
            attempt,
            task,
            project,
            ..
        } = self.context;
        let level = project
            .settings
            .run
            .ratchet_sandbox
            .unwrap_or(SandboxLevel::Off);
        self.run_in_dir(Some(level), |check_dir, _| {
            validation::ratchet_refusal(
                &*self.engine.shared.agents,
                (task, project),
                attempt.id,
                check_dir,
            )
            .map_err(validation::describe_agent_error)
        })
    }

    /// Calls `run` with the directory in which the commit is checked out, and with a function that
    /// returns whether the result is still wanted.
    fn run_in_dir<T>(
        &self,
        level: Option<SandboxLevel>,
        run: impl FnOnce(&CheckDir<'_>, &dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let (engine, AttemptContext { attempt, repo, .. }) = (self.engine, self.context);
        let entry = engine
            .shared
            .commands
            .register(CommandOwner::Attempt(attempt.id), "its checks");
        let is_wanted = || entry.is_wanted() && engine.can_start() && !engine.is_ending(attempt.id);
        let sandbox = validation::check_sandbox(&*engine.shared.git, repo, level);
        let env = validation::port_variables(&attempt.ports);
        run(
            &CheckDir {
                dir: &self.dir,
                sandbox,
                env,
                is_wanted: Some(&is_wanted),
                entry: Some(&entry),
            },
            &is_wanted,
        )
    }
}

/// Removes surplus staging directories (in which merged work is checked): the project needs only as
/// many as it may run trial merges at once.
fn remove_surplus_slots(engine: &Engine, batch: &TrialBatch) {
    let (validation_slots, name) = (&engine.shared.validation_slots, &batch.project.name);
    let slots = speculation::slots(&batch.project, engine.board().limits.landing_slots);
    if !validation_slots.needs_cleanup(name, slots) {
        return;
    }
    match engine.shared.git.unstage(&batch.repo, slots) {
        Ok(()) => {
            validation_slots
                .last_cleaned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.clone(), slots);
        }
        // Surplus staging directories (checkouts for checks) only take disk space, so the next
        // trial tries again to remove them.
        Err(error) => {
            tracing::warn!(project = %name, "could not remove the unused staging directories (for \
                checks of merged work) of project {name}, trying again at the next trial merge: \
                {error}")
        }
    }
}

/// Prepares a staging directory (a separate checkout for checks) in the same way as a workspace:
/// copies the project's untracked files and runs its setup commands. Checking out the next commit
/// removes everything again, so the directory is prepared each time. Returns the setup command that
/// failed, or `None`.
fn prepare_slot(
    engine: &Engine,
    repo: &ProjectRepo,
    (task, project): (&Task, &Project),
    (slot, commit): (u32, &CommitId),
    (dir, is_wanted): (&Path, &dyn Fn() -> bool),
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
        let result = validation::run_check(&*engine.shared.agents, &check, Some(is_wanted))
            .map_err(validation::describe_agent_error)?;
        if !result.passed() {
            let outcome = format!(
                "the setup command `{command}` {}",
                validation::describe_end_with_hint(&result)
            );
            return Ok(Some(FailedCheck::from_output(&outcome, &result.output)));
        }
    }
    Ok(None)
}

/// Reads the checks from the `regatta.toml` of the trunk at `tip`. Work that changes the checks is
/// therefore checked by the old checks.
///
/// If a person has edited `regatta.toml` in the checkout, the edited file counts instead, and
/// `project` already has the checks of the edited file.
pub(super) fn read_trunk_checks(
    engine: &Engine,
    batch: &mut TrialBatch,
    tip: &CommitId,
) -> Result<(), String> {
    let (Some(parse), Some(file)) = (
        engine.shared.settings.parse_checks,
        engine
            .shared
            .git
            .file_at(&batch.repo, tip, "regatta.toml")
            .map_err(|error| error.to_string())?,
    ) else {
        return Ok(());
    };
    if engine
        .shared
        .git
        .is_edited(&batch.repo, "regatta.toml", &file)
        .map_err(|error| error.to_string())?
    {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&file);
    let checks = parse(&text)
        .map_err(|error| format!("the trunk's regatta.toml cannot be read: {error}"))?;
    if let Some(commands) = checks.commands {
        batch.project_with_trunk_checks.validation = commands;
    }
    if let Some(timeout) = checks.timeout_ms {
        batch.project_with_trunk_checks.validation_timeout_ms = timeout;
    }
    Ok(())
}

/// Returns an id of the checks of a task: a hash that is the same for the same checks on every
/// machine and in every version of Regatta.
pub(super) fn validation_id(project: &Project, task: &Task) -> String {
    let checks =
        serde_json::to_string(&(&project.validation, &task.validation)).unwrap_or_default();
    // A simple hash is enough, because nobody gains anything from two lists of checks with the same
    // hash.
    format!("{:016x}", stable_hash(checks.bytes()))
}

/// Returns a copy of the last task, and gives it the requirements of all `tasks`. Returns `None` if
/// there are no tasks.
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

/// Appends the elements of `more` that `all` does not contain yet.
fn append_missing<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for value in more {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
}
