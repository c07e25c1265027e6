//! Gates: six conditions that are checked before a start. Each gate passes, warns or blocks, and
//! gives a reason. The results are stored with the attempt that starts; a gate that passed without
//! a reason is left out. A block is a wait reason of the task.
//!
//! Facts about the world, such as the state of the trunk or the free memory, come in as
//! [`StartFacts`] with the poll that asks for a start. The board keeps those results that block a
//! whole mission, so that `regatta why` can report them.

use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptCause, first_few};
use crate::board::Board;
use crate::ids::{CommitId, Now, RunnerName, TaskId};
use crate::mission::{self, Mission};
use crate::schedule::{self, WaitKind};
use crate::task::{Task, TaskStatus};

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StartGate {
    /// The trunk exists and is not behind its upstream.
    BaseSync,
    /// The task names the files that it changes and its checks.
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

impl StartGate {
    pub const ALL: [StartGate; 6] = [
        StartGate::BaseSync,
        StartGate::FileManifest,
        StartGate::DependencyGraph,
        StartGate::MisalignmentBreaker,
        StartGate::WaveCap,
        StartGate::BaseAncestry,
    ];

    /// Returns the gate's name for people.
    pub fn name(self) -> &'static str {
        match self {
            StartGate::BaseSync => "base sync",
            StartGate::FileManifest => "file manifest",
            StartGate::DependencyGraph => "dependency graph",
            StartGate::MisalignmentBreaker => "misalignment breaker",
            StartGate::WaveCap => "wave cap",
            StartGate::BaseAncestry => "base ancestry",
        }
    }
}

/// The result of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    #[default]
    Pass,
    Warn,
    Block,
}

/// A gate's result with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateResult {
    pub gate: StartGate,
    #[serde(rename = "says")]
    pub verdict: GateVerdict,
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

impl GateResult {
    fn pass(gate: StartGate) -> GateResult {
        GateResult {
            gate,
            verdict: GateVerdict::Pass,
            kind: None,
            reason: String::new(),
            files: vec![],
            tasks: vec![],
        }
    }

    /// Returns whether the result concerns this task.
    pub(crate) fn concerns(&self, task: TaskId) -> bool {
        self.tasks.is_empty() || self.tasks.contains(&task)
    }

    fn warn(gate: StartGate, reason: String) -> GateResult {
        GateResult {
            verdict: GateVerdict::Warn,
            reason,
            ..GateResult::pass(gate)
        }
    }

    fn block(gate: StartGate, kind: WaitKind, reason: String) -> GateResult {
        GateResult {
            verdict: GateVerdict::Block,
            kind: Some(kind),
            reason,
            ..GateResult::pass(gate)
        }
    }
}

/// Facts that the engine collected just before it asks for a start. A fact that it could not
/// collect is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartFacts {
    /// Free memory of the machine, in mebibytes.
    pub memory_mb: Option<u64>,
    /// Free space where workspaces are made, in mebibytes.
    pub disk_mb: Option<u64>,
    /// The trunk of the mission that the poll asks for.
    pub base: Option<TrunkState>,
    /// The runner on which the attempt would run; `None` for the daemon's own runner.
    #[serde(default)]
    pub runner: Option<RunnerName>,
}

/// The state of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkState {
    /// The trunk cannot be read, for this reason.
    Broken { reason: String },
    #[serde(rename = "there")]
    Present {
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
const RAMP_UP_MS: u64 = 30_000;

/// Returns the results of all six gates for a task.
pub fn evaluate(board: &Board, task: &Task, facts: &StartFacts, now: Now) -> Vec<GateResult> {
    let mission = task
        .mission
        .and_then(|id| board.missions.get(&id))
        .map(|mission| &**mission);
    vec![
        base_sync(facts),
        file_manifest(board, task),
        dependency_graph(board, task),
        misalignment_breaker(task),
        wave_cap(board, task, mission, facts, now),
        base_ancestry(task, mission, facts),
    ]
}

/// Returns the results that are worth storing. A gate that is not stored passed without a reason.
/// An attempt without a workspace builds on no trunk and changes no file, so two gates do not
/// concern it.
pub(crate) fn notable_results(results: Vec<GateResult>, no_workspace: bool) -> Vec<GateResult> {
    let concerns = |result: &GateResult| {
        !no_workspace || !matches!(result.gate, StartGate::BaseSync | StartGate::FileManifest)
    };
    results
        .into_iter()
        .filter(|result| {
            concerns(result) && (result.verdict != GateVerdict::Pass || !result.reason.is_empty())
        })
        .collect()
}

/// Restores all six results from the stored ones.
pub fn restore_results(stored: &[GateResult]) -> Vec<GateResult> {
    let result_of = |gate| {
        stored
            .iter()
            .find(|result| result.gate == gate)
            .cloned()
            .unwrap_or(GateResult::pass(gate))
    };
    StartGate::ALL.into_iter().map(result_of).collect()
}

/// Returns the blocks that the facts impose on a mission, or on some of its tasks.
pub fn mission_blocks(
    board: &Board,
    mission: &Mission,
    facts: &StartFacts,
    now: Now,
) -> Vec<GateResult> {
    let results = [
        Some(base_sync(facts)),
        machine_block(board, facts, now),
        lost_landings_result(mission, facts),
    ];
    let without_blocker = blocks_for_lost_blockers(board, mission, facts);
    results
        .into_iter()
        .flatten()
        .chain(without_blocker)
        .filter(|result| result.verdict == GateVerdict::Block)
        .collect()
}

/// Returns the warning about a trunk that lacks commits of its upstream.
pub fn base_warning(upstream: Option<&str>, behind: u32) -> Option<String> {
    let upstream = upstream.filter(|_| behind > 0)?;
    let commits = if behind == 1 {
        "1 commit".into()
    } else {
        format!("{behind} commits")
    };
    Some(format!(
        "the trunk is {commits} behind {upstream}: bring it up to date before more is built on it"
    ))
}

/// Checks that the trunk can be read and is not behind its upstream.
fn base_sync(facts: &StartFacts) -> GateResult {
    match &facts.base {
        Some(TrunkState::Broken { reason }) => {
            GateResult::block(StartGate::BaseSync, WaitKind::Gate, reason.clone())
        }
        Some(TrunkState::Present {
            upstream, behind, ..
        }) => match base_warning(upstream.as_deref(), *behind) {
            Some(warning) => GateResult::warn(StartGate::BaseSync, warning),
            None => GateResult::pass(StartGate::BaseSync),
        },
        None => GateResult {
            reason: "nobody looked at the trunk".into(),
            ..GateResult::pass(StartGate::BaseSync)
        },
    }
}

/// Checks that the task names its files and checks.
fn file_manifest(board: &Board, task: &Task) -> GateResult {
    match schedule::missing_contract_part(board, task) {
        Some(reason) => GateResult::block(StartGate::FileManifest, WaitKind::Gate, reason),
        None if task.files.is_empty() => {
            let warning =
                "the task names no files, so it may change any file, also files of other tasks";
            GateResult::warn(StartGate::FileManifest, warning.into())
        }
        None => GateResult::pass(StartGate::FileManifest),
    }
}

/// Checks that all blockers of the task are completed.
fn dependency_graph(board: &Board, task: &Task) -> GateResult {
    let missing: Vec<String> = task
        .blocked_by
        .iter()
        .filter(|id| board.ended_status(**id) != Some(TaskStatus::Completed))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        return GateResult::pass(StartGate::DependencyGraph);
    }
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    GateResult::block(
        StartGate::DependencyGraph,
        WaitKind::Dependency,
        format!("it needs {} first", first_few(&names)),
    )
}

/// Warns about a task whose last attempt was silent. The attempt itself was stopped by
/// [`crate::intervention`].
fn misalignment_breaker(task: &Task) -> GateResult {
    match task.last_cause {
        Some(AttemptCause::Hung) => {
            let reason =
                "the last attempt was stopped because it was silent for too long: see regatta logs";
            GateResult::warn(StartGate::MisalignmentBreaker, reason.into())
        }
        _ => GateResult::pass(StartGate::MisalignmentBreaker),
    }
}

/// Checks that the machine and the mission have room, and that it is the turn of the task's wave.
fn wave_cap(
    board: &Board,
    task: &Task,
    mission: Option<&Mission>,
    facts: &StartFacts,
    now: Now,
) -> GateResult {
    let block = |kind, reason| GateResult::block(StartGate::WaveCap, kind, reason);
    if task.is_light() {
        return GateResult::pass(StartGate::WaveCap);
    }
    if let Some(full) = schedule::machine_full_reason(board) {
        return block(WaitKind::Machine, full);
    }
    if let Some(mission) = mission {
        if let Some(reason) = schedule::wave_closed_reason(board, mission, task) {
            return block(WaitKind::Wave, reason);
        }
        if let Some(reason) = schedule::mission_full_reason(board, mission) {
            return block(WaitKind::Slot, reason);
        }
    }
    machine_block(board, facts, now).unwrap_or_else(|| GateResult::pass(StartGate::WaveCap))
}

/// Returns a block if the machine has no room for one more attempt.
fn machine_block(board: &Board, facts: &StartFacts, now: Now) -> Option<GateResult> {
    let limits = board.limits;
    if facts.disk_mb.is_none() && facts.memory_mb.is_none() {
        // No facts were collected, and counting young attempts takes time.
        return None;
    }
    let young_count = board
        .attempts
        .values()
        .filter(|attempt| attempt.started_fleet_ms + RAMP_UP_MS > now.fleet_ms)
        .count() as u64;
    let free_if_short =
        |free: Option<u64>, need: u64| free.filter(|free| need > 0 && free / need <= young_count);
    let block = |kind, resource: &str, free: u64, need: u64| {
        let others = if young_count > 0 {
            format!(", and {young_count} attempts have just started")
        } else {
            String::new()
        };
        GateResult::block(
            StartGate::WaveCap,
            kind,
            format!(
                "only {free} MiB of {resource} are free{others}, but each attempt needs {need} MiB"
            ),
        )
    };
    if let Some(free) = free_if_short(facts.disk_mb, limits.attempt_disk_mb) {
        return Some(block(WaitKind::Disk, "disk", free, limits.attempt_disk_mb));
    }
    let free = free_if_short(facts.memory_mb, limits.attempt_memory_mb)?;
    Some(block(
        WaitKind::Machine,
        "memory",
        free,
        limits.attempt_memory_mb,
    ))
}

/// Returns a block for a mission in waves, or a warning for a mission in flow, about landed commits
/// that the trunk lost.
fn lost_landings_result(mission: &Mission, facts: &StartFacts) -> Option<GateResult> {
    let lost = lost_landings(facts);
    let first = lost.first()?;
    let more = if lost.len() > 1 {
        format!(" and {} more", lost.len() - 1)
    } else {
        String::new()
    };
    let commit = &first.commit.as_str()[..10];
    let reason = format!(
        "the trunk no longer contains {commit} of {}{more}, which {} builds on: bring it back (git \
         merge {commit}), or go on without it: regatta queue accept",
        first.task, mission.id
    );
    Some(match mission.mode {
        mission::StartMode::Waves => {
            GateResult::block(StartGate::BaseAncestry, WaitKind::Gate, reason)
        }
        mission::StartMode::Flow => GateResult::warn(StartGate::BaseAncestry, reason),
    })
}

/// Returns the blocks for tasks of a mission in flow of which a blocker landed and was lost from
/// the trunk.
fn blocks_for_lost_blockers(
    board: &Board,
    mission: &Mission,
    facts: &StartFacts,
) -> Vec<GateResult> {
    if mission.mode == mission::StartMode::Waves || lost_landings(facts).is_empty() {
        return vec![];
    }
    let open: Vec<&Task> = board
        .open_tasks_of(mission.id)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .map(|task| &**task)
        .collect();
    let block_for = |lost: &LostLanding| {
        let is_dependent = |task: &&&Task| task.blocked_by.contains(&lost.task);
        let tasks: Vec<TaskId> = open
            .iter()
            .filter(is_dependent)
            .map(|task| task.id)
            .collect();
        (!tasks.is_empty()).then(|| GateResult {
            tasks,
            ..lost_blocker_block(lost)
        })
    };
    lost_landings(facts).iter().filter_map(block_for).collect()
}

/// Returns the block for a task of which a blocker landed and was lost from the trunk.
fn lost_blocker_block(lost: &LostLanding) -> GateResult {
    let commit = &lost.commit.as_str()[..10];
    let reason = format!(
        "the trunk no longer contains {commit} of {}, which it needs: bring it back (git merge \
         {commit}), or go on without it: regatta queue accept",
        lost.task
    );
    GateResult::block(StartGate::BaseAncestry, WaitKind::Gate, reason)
}

/// Returns the landed commits that the trunk lost, as far as the facts name them.
fn lost_landings(facts: &StartFacts) -> &[LostLanding] {
    match &facts.base {
        Some(TrunkState::Present { lost, .. }) => lost,
        _ => &[],
    }
}

/// Checks that the trunk contains everything that landed before, and names the files of the task's
/// manifest that the wave before changed.
fn base_ancestry(task: &Task, mission: Option<&Mission>, facts: &StartFacts) -> GateResult {
    let Some(mission) = mission else {
        return GateResult::pass(StartGate::BaseAncestry);
    };
    if let Some(lost) = lost_landings(facts)
        .iter()
        .find(|lost| task.blocked_by.contains(&lost.task))
    {
        return lost_blocker_block(lost);
    }
    if let Some(lost) = lost_landings_result(mission, facts) {
        return lost;
    }
    let files = mission.landed.changed_in_manifest(task);
    if files.is_empty() {
        return GateResult::pass(StartGate::BaseAncestry);
    }
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let reason = format!(
        "the wave before changed {}: read them as they are now",
        first_few(&names)
    );
    GateResult {
        files,
        ..GateResult::warn(StartGate::BaseAncestry, reason)
    }
}
