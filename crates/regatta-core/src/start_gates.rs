//! Start gates are six conditions that are checked before an attempt at a task starts. Each gate
//! passes, warns or blocks, with a reason. A gate that blocks is shown as a reason why the task
//! waits. The results are stored with the attempt, except for gates that passed without a reason.
//!
//! Facts that must be observed, such as the state of the trunk or the free memory, are in
//! [`StartFacts`], which the engine passes in. Results that block a mission are kept in the board
//! (the state of all live work), so that `regatta why` can report them.

use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptCause, first_few};
use crate::board::Board;
use crate::ids::{CommitId, Now, RunnerName, TaskId};
use crate::mission::{self, Mission};
use crate::plural;
use crate::schedule::{self, WaitKind};
use crate::task::{Task, TaskStatus};

/// One of the six conditions that are checked before an attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StartGate {
    /// The trunk can be read, and has all commits of the remote branch that it follows.
    BaseSync,
    /// The task names the files that it may change, and the checks that its work must pass.
    FileManifest,
    /// All tasks on which this task depends are completed.
    DependencyGraph,
    /// Warns if the task's previous attempt was stopped because its program was silent for too
    /// long.
    MisalignmentBreaker,
    /// The machine and the mission have room for one more attempt, and it is the turn of the task's
    /// wave (tasks that run at the same time).
    WaveCap,
    /// The trunk, from which the work starts, still contains the earlier work that the task builds
    /// on.
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

    /// Returns the name of the start gate for people.
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

/// The decision of a start gate about an attempt: start, start with a warning, or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    #[default]
    Pass,
    Warn,
    Block,
}

/// The result of checking one start gate, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateResult {
    pub gate: StartGate,
    #[serde(rename = "says")]
    pub verdict: GateVerdict,
    /// If the gate blocks, the kind of reason that is shown for the waiting task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Files that the task may change and that were changed by the previous wave (tasks that run at
    /// the same time). The task's agent should look at these files first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Tasks that the result is about; empty means all tasks of the mission.
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

    /// Returns whether this gate result is about the task `task`.
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

/// Observations of the engine from just before a start, which the gates check. An observation that
/// could not be made is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartFacts {
    /// Free memory in mebibytes.
    pub memory_mb: Option<u64>,
    /// Free disk space in mebibytes where workspaces are created.
    pub disk_mb: Option<u64>,
    /// State of the trunk of the mission's project.
    pub base: Option<TrunkState>,
    /// Runner on which the attempt would run; `None` for the daemon's own machine.
    #[serde(default)]
    pub runner: Option<RunnerName>,
}

impl StartFacts {
    /// Returns the facts for an attempt on a runner's machine, or on the daemon's machine if
    /// `runner` is `None`. The memory and disk space were observed on the daemon's machine, so
    /// they say nothing about a runner's machine.
    pub fn at_place(self, runner: Option<&RunnerName>) -> StartFacts {
        match runner {
            None => self,
            Some(name) => StartFacts {
                memory_mb: None,
                disk_mb: None,
                base: self.base,
                runner: Some(name.clone()),
            },
        }
    }
}

/// The state of a project's trunk (main branch), as the engine found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkState {
    /// The trunk could not be read.
    Broken { reason: String },
    #[serde(rename = "there")]
    Present {
        tip: CommitId,
        /// The remote branch that the trunk follows, such as `origin/main`; `None` if the trunk
        /// follows no branch.
        upstream: Option<String>,
        /// Number of commits of `upstream` that the trunk does not have.
        behind: u32,
        /// Landed commits that the trunk no longer contains. They belong to the mission, or to
        /// tasks on which the mission's tasks depend.
        lost: Vec<LostLanding>,
    },
}

/// A landed commit that the trunk no longer contains, for example because somebody reset the
/// branch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LostLanding {
    pub task: TaskId,
    pub commit: CommitId,
}

/// Time after the start of an attempt in which the attempt is assumed not to use its memory and
/// disk space yet. During this time, space for it is reserved in addition to the space for a new
/// attempt.
const RAMP_UP_MS: u64 = 30_000;

/// Checks all six start gates (conditions for starting an attempt) for a task and returns their
/// results.
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

/// Removes the results that need not be stored: gates that passed without a reason and, for an
/// attempt without a workspace, the gates about the trunk and the task's files.
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

/// Returns the results of all six start gates (conditions for starting an attempt) from the stored
/// results. A gate without a stored result passed.
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

/// Returns the results of the start gates that block a whole mission or some of its tasks, as far
/// as they depend on observed facts.
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

/// Returns a warning if the trunk lacks commits of the remote branch that it follows.
pub fn base_warning(upstream: Option<&str>, behind: u32) -> Option<String> {
    let upstream = upstream.filter(|_| behind > 0)?;
    let commits = plural::count(behind, "commit");
    Some(format!(
        "the trunk is {commits} behind {upstream}: bring it up to date before more is built on it"
    ))
}

/// Checks the gate about the trunk: blocks if the trunk cannot be read, and warns if the trunk
/// lacks commits of the remote branch.
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

/// Checks the gate about the task's list of files and its checks: blocks if a required list or
/// check is missing, and warns if the task names no files.
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

/// Checks the gate about dependencies: blocks unless all tasks on which this task depends are
/// completed.
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

/// Checks the gate about silent programs: warns if the task's previous attempt was stopped because
/// its program was silent for too long. The stop itself is in [`crate::intervention`].
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

/// Checks the gate about room and waves: blocks unless the machine and the mission have room for
/// one more attempt, and it is the turn of the task's wave (tasks that run at the same time).
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
    // The room of a runner was checked when it asked for work.
    if facts.runner.is_none()
        && let Some(full) = schedule::machine_full_reason(board)
    {
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

/// Returns a blocking result if the machine has too little free memory or disk space for one more
/// attempt.
fn machine_block(board: &Board, facts: &StartFacts, now: Now) -> Option<GateResult> {
    let limits = board.limits;
    if facts.disk_mb.is_none() && facts.memory_mb.is_none() {
        // Nothing was measured, so nothing shows that space is missing, and the attempt is not
        // blocked.
        return None;
    }
    let young_count = board
        .attempts
        .values()
        .filter(|attempt| {
            attempt.runner == facts.runner && attempt.started_fleet_ms + RAMP_UP_MS > now.fleet_ms
        })
        .count() as u64;
    let free_if_short =
        |free: Option<u64>, need: u64| free.filter(|free| need > 0 && free / need <= young_count);
    let block = |kind, resource: &str, free: u64, need: u64| {
        let others = if young_count > 0 {
            format!(
                ", and {} {} just started",
                plural::count(young_count, "attempt"),
                plural::choose(young_count, "has", "have")
            )
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

/// Returns the result of the gate about the trunk's history if the trunk no longer contains landed
/// commits of the mission. This result blocks a mission that runs in waves (tasks that run at the
/// same time), and is a warning for other missions.
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

/// Returns one blocking result for each landed commit that the trunk no longer contains and that
/// unfinished tasks of the mission depend on. The result names these tasks. Returns nothing for a
/// mission that runs in waves.
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

/// Builds the blocking result for a task that depends on landed work that the trunk no longer
/// contains.
fn lost_blocker_block(lost: &LostLanding) -> GateResult {
    let commit = &lost.commit.as_str()[..10];
    let reason = format!(
        "the trunk no longer contains {commit} of {}, which it needs: bring it back (git merge \
         {commit}), or go on without it: regatta queue accept",
        lost.task
    );
    GateResult::block(StartGate::BaseAncestry, WaitKind::Gate, reason)
}

/// Returns the landed commits that the trunk no longer contains, as the engine found them in
/// `facts`.
fn lost_landings(facts: &StartFacts) -> &[LostLanding] {
    match &facts.base {
        Some(TrunkState::Present { lost, .. }) => lost,
        _ => &[],
    }
}

/// Checks the gate about earlier work: blocks or warns if the trunk no longer contains work that
/// the task builds on. If it does, lists the task's files that the previous wave (tasks that run at
/// the same time) changed, as a warning.
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
        "the previous wave changed {}: read the present version",
        first_few(&names)
    );
    GateResult {
        files,
        ..GateResult::warn(StartGate::BaseAncestry, reason)
    }
}
