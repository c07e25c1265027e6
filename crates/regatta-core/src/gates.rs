//! Gates: six conditions that are checked before a start. Each gate passes, warns or blocks, and
//! gives a reason. The results are stored with the attempt that starts; a gate that passed without
//! a reason is left out. A block is a wait reason of the task.
//!
//! Facts about the world, such as the state of the trunk or the free memory, come in as [`Facts`]
//! with the poll that asks for a start. The board keeps those results that block a whole mission,
//! so that `why` can report them.

use serde::{Deserialize, Serialize};

use crate::attempt::{Cause, first_few};
use crate::board::Board;
use crate::ids::{CommitId, Now, RunnerName, TaskId};
use crate::mission::{self, Mission};
use crate::schedule::{self, WaitKind};
use crate::task::{Status, Task};

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The trunk exists and is not behind its upstream.
    BaseSync,
    /// The task says which files it changes and how it is checked.
    FileManifest,
    /// All blockers of the task are completed.
    DependencyGraph,
    /// The last attempt was not stopped for silence.
    MisalignmentBreaker,
    /// The machine and the mission have room for one more attempt, and the task's wave has begun.
    WaveCap,
    /// The starting point contains everything that landed before.
    BaseAncestry,
}

impl Gate {
    pub const ALL: [Gate; 6] = [
        Gate::BaseSync,
        Gate::FileManifest,
        Gate::DependencyGraph,
        Gate::MisalignmentBreaker,
        Gate::WaveCap,
        Gate::BaseAncestry,
    ];

    /// Returns the gate's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Gate::BaseSync => "base sync",
            Gate::FileManifest => "file manifest",
            Gate::DependencyGraph => "dependency graph",
            Gate::MisalignmentBreaker => "misalignment breaker",
            Gate::WaveCap => "wave cap",
            Gate::BaseAncestry => "base ancestry",
        }
    }
}

/// The result of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Says {
    #[default]
    Pass,
    Warn,
    Block,
}

/// A gate's result with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Passage {
    pub gate: Gate,
    pub says: Says,
    /// The wait reason of a blocked task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The files concerned: those that the wave before changed and that this task's manifest names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The tasks that the gate blocks; all tasks of the mission if none are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
}

impl Passage {
    fn pass(gate: Gate) -> Passage {
        Passage { gate, says: Says::Pass, kind: None, reason: String::new(), files: vec![], tasks: vec![] }
    }

    /// Returns whether the result concerns this task.
    pub(crate) fn concerns(&self, task: TaskId) -> bool {
        self.tasks.is_empty() || self.tasks.contains(&task)
    }

    fn warn(gate: Gate, reason: String) -> Passage {
        Passage { says: Says::Warn, reason, ..Passage::pass(gate) }
    }

    fn block(gate: Gate, kind: WaitKind, reason: String) -> Passage {
        Passage { says: Says::Block, kind: Some(kind), reason, ..Passage::pass(gate) }
    }
}

/// Facts that the engine collected just before it asks for a start. A fact that it could not
/// collect is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Free memory of the machine, in mebibytes.
    pub memory_mb: Option<u64>,
    /// Free space where workspaces are made, in mebibytes.
    pub disk_mb: Option<u64>,
    /// The trunk of the mission that the poll asks for.
    pub base: Option<Base>,
    /// The runner on which the attempt would run; `None` for the daemon's own runner.
    #[serde(default)]
    pub runner: Option<RunnerName>,
}

/// The state of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The trunk cannot be read, for this reason.
    Broken { reason: String },
    There {
        tip: CommitId,
        /// The branch that the trunk follows, if any.
        upstream: Option<String>,
        /// The number of commits of that branch that the trunk lacks.
        behind: u32,
        /// Commits that landed for the mission or for blockers of its tasks, and that are no longer
        /// in the trunk's history.
        lost: Vec<LostLanding>,
    },
}

/// A landed commit that somebody removed from the trunk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LostLanding {
    pub task: TaskId,
    pub commit: CommitId,
}

/// The time that an attempt takes to claim its memory and disk space. A younger attempt counts as
/// still needing all of it.
const YOUNG_MS: u64 = 30_000;

/// Returns the results of all six gates for a task.
pub fn judge(board: &Board, task: &Task, facts: &Facts, now: Now) -> Vec<Passage> {
    let mission = task.mission.and_then(|it| board.missions.get(&it)).map(|it| &**it);
    vec![
        base_sync(facts),
        file_manifest(board, task),
        dependency_graph(board, task),
        misalignment(task),
        wave_cap(board, task, mission, facts, now),
        base_ancestry(task, mission, facts),
    ]
}

/// Returns the results that are worth storing. A gate that is not stored passed without a reason.
/// An attempt without a workspace builds on no trunk and changes no file, so two gates do not
/// concern it.
pub(crate) fn noted(answers: Vec<Passage>, bare: bool) -> Vec<Passage> {
    let concerns = |it: &Passage| !bare || !matches!(it.gate, Gate::BaseSync | Gate::FileManifest);
    answers.into_iter().filter(|it| concerns(it) && (it.says != Says::Pass || !it.reason.is_empty())).collect()
}

/// Restores all six results from the stored ones.
pub fn all(noted: &[Passage]) -> Vec<Passage> {
    let answer = |gate| noted.iter().find(|it| it.gate == gate).cloned().unwrap_or(Passage::pass(gate));
    Gate::ALL.into_iter().map(answer).collect()
}

/// Returns the blocks that the facts impose on a mission, or on some of its tasks.
pub fn against(board: &Board, mission: &Mission, facts: &Facts, now: Now) -> Vec<Passage> {
    let found = [Some(base_sync(facts)), room(board, facts, now), lost(mission, facts)];
    let without_blocker = without_blocker(board, mission, facts);
    found.into_iter().flatten().chain(without_blocker).filter(|passage| passage.says == Says::Block).collect()
}

/// Returns the warning about a trunk that lacks commits of its upstream.
pub fn base_warning(upstream: Option<&str>, behind: u32) -> Option<String> {
    let upstream = upstream.filter(|_| behind > 0)?;
    let commits = if behind == 1 { "1 commit".into() } else { format!("{behind} commits") };
    Some(format!("the trunk is {commits} behind {upstream}: bring it up to date before more is built on it"))
}

fn base_sync(facts: &Facts) -> Passage {
    match &facts.base {
        Some(Base::Broken { reason }) => Passage::block(Gate::BaseSync, WaitKind::Gate, reason.clone()),
        Some(Base::There { upstream, behind, .. }) => match base_warning(upstream.as_deref(), *behind) {
            Some(warning) => Passage::warn(Gate::BaseSync, warning),
            None => Passage::pass(Gate::BaseSync),
        },
        None => Passage { reason: "nobody looked at the trunk".into(), ..Passage::pass(Gate::BaseSync) },
    }
}

fn file_manifest(board: &Board, task: &Task) -> Passage {
    match schedule::gate(board, task) {
        Some(reason) => Passage::block(Gate::FileManifest, WaitKind::Gate, reason),
        None if task.files.is_empty() => {
            let warning = "the task names no files, so it may change any file, also files of other tasks";
            Passage::warn(Gate::FileManifest, warning.into())
        }
        None => Passage::pass(Gate::FileManifest),
    }
}

fn dependency_graph(board: &Board, task: &Task) -> Passage {
    let missing: Vec<String> = task
        .blocked_by
        .iter()
        .filter(|it| board.settled(**it) != Some(Status::Completed))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        return Passage::pass(Gate::DependencyGraph);
    }
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    Passage::block(Gate::DependencyGraph, WaitKind::Dep, format!("it needs {} first", first_few(&names)))
}

/// Warns about a task whose last attempt was silent. The attempt itself was stopped by
/// [`crate::steer::silent`].
fn misalignment(task: &Task) -> Passage {
    match task.last_cause {
        Some(Cause::Hung) => {
            let reason = "the last attempt was stopped because it was silent for too long: see regatta logs";
            Passage::warn(Gate::MisalignmentBreaker, reason.into())
        }
        _ => Passage::pass(Gate::MisalignmentBreaker),
    }
}

fn wave_cap(board: &Board, task: &Task, mission: Option<&Mission>, facts: &Facts, now: Now) -> Passage {
    let block = |kind, reason| Passage::block(Gate::WaveCap, kind, reason);
    if task.is_light() {
        return Passage::pass(Gate::WaveCap);
    }
    if let Some(full) = schedule::machine_full(board) {
        return block(WaitKind::Machine, full);
    }
    if let Some(mission) = mission {
        if let Some(reason) = schedule::not_its_wave(board, mission, task) {
            return block(WaitKind::Wave, reason);
        }
        if let Some(reason) = schedule::mission_full(board, mission) {
            return block(WaitKind::Slot, reason);
        }
    }
    room(board, facts, now).unwrap_or_else(|| Passage::pass(Gate::WaveCap))
}

/// Returns a block if the machine has no room for one more attempt.
fn room(board: &Board, facts: &Facts, now: Now) -> Option<Passage> {
    let limits = board.limits;
    if facts.disk_mb.is_none() && facts.memory_mb.is_none() {
        return None; // no facts were collected, and counting young attempts takes time
    }
    let young = board.attempts.values().filter(|it| it.started_at + YOUNG_MS > now.at).count() as u64;
    let short = |free: Option<u64>, need: u64| free.filter(|free| need > 0 && free / need <= young);
    let say = |kind, what: &str, free: u64, need: u64| {
        let others = if young > 0 { format!(", and {young} attempts have just started") } else { String::new() };
        Passage::block(
            Gate::WaveCap,
            kind,
            format!("only {free} MiB of {what} are free{others}, but each attempt needs {need} MiB"),
        )
    };
    if let Some(free) = short(facts.disk_mb, limits.attempt_disk_mb) {
        return Some(say(WaitKind::Disk, "disk", free, limits.attempt_disk_mb));
    }
    let free = short(facts.memory_mb, limits.attempt_memory_mb)?;
    Some(say(WaitKind::Machine, "memory", free, limits.attempt_memory_mb))
}

/// Returns a block for a mission in waves, or a warning for a mission in flow, about landed commits
/// that the trunk lost.
fn lost(mission: &Mission, facts: &Facts) -> Option<Passage> {
    let lost = lost_landings(facts);
    let first = lost.first()?;
    let more = if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
    let commit = &first.commit.as_str()[..10];
    let reason = format!(
        "the trunk no longer contains {commit} of {}{more}, which {} builds on: bring it back (git merge {commit}), or go on \
         without it: regatta queue accept",
        first.task, mission.id
    );
    Some(match mission.mode {
        mission::Mode::Waves => Passage::block(Gate::BaseAncestry, WaitKind::Gate, reason),
        mission::Mode::Flow => Passage::warn(Gate::BaseAncestry, reason),
    })
}

/// Returns the blocks for tasks of a mission in flow of which a blocker landed and was lost from
/// the trunk.
fn without_blocker(board: &Board, mission: &Mission, facts: &Facts) -> Vec<Passage> {
    if mission.mode == mission::Mode::Waves || lost_landings(facts).is_empty() {
        return vec![];
    }
    let open: Vec<&Task> =
        board.open_tasks_of(mission.id).filter_map(|(_, id)| board.tasks.get(&id)).map(|task| &**task).collect();
    let passage = |lost: &LostLanding| {
        let depends = |task: &&&Task| task.blocked_by.contains(&lost.task);
        let tasks: Vec<TaskId> = open.iter().filter(depends).map(|task| task.id).collect();
        (!tasks.is_empty()).then(|| Passage { tasks, ..lost_blocker(lost) })
    };
    lost_landings(facts).iter().filter_map(passage).collect()
}

fn lost_blocker(lost: &LostLanding) -> Passage {
    let commit = &lost.commit.as_str()[..10];
    let reason = format!(
        "the trunk no longer contains {commit} of {}, which it needs: bring it back (git merge {commit}), or go on without \
         it: regatta queue accept",
        lost.task
    );
    Passage::block(Gate::BaseAncestry, WaitKind::Gate, reason)
}

fn lost_landings(facts: &Facts) -> &[LostLanding] {
    match &facts.base {
        Some(Base::There { lost, .. }) => lost,
        _ => &[],
    }
}

fn base_ancestry(task: &Task, mission: Option<&Mission>, facts: &Facts) -> Passage {
    let Some(mission) = mission else { return Passage::pass(Gate::BaseAncestry) };
    if let Some(lost) = lost_landings(facts).iter().find(|lost| task.blocked_by.contains(&lost.task)) {
        return lost_blocker(lost);
    }
    if let Some(lost) = lost(mission, facts) {
        return lost;
    }
    let files = mission.landed.under(task);
    if files.is_empty() {
        return Passage::pass(Gate::BaseAncestry);
    }
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let reason = format!("the wave before changed {}: read them as they are now", first_few(&names));
    Passage { files, ..Passage::warn(Gate::BaseAncestry, reason) }
}
