//! Detects that an agent worked outside its own workspace, and limits the damage.
//!
//! A mission with `isolate` lets tasks that use the same files run at the same time, and relies on
//! separate workspaces. When a report shows that the separation failed, the mission continues
//! serially: from then on, a task does not start while another task uses the same files. Of the
//! running attempts that use the same file, at most one continues. If no tasks share files, a
//! warning is enough.

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt, first_few};
use crate::board::{Board, Draft};
use crate::claim::ClaimOwner;
use crate::event::{Event, facts};
use crate::ids::{AttemptId, MissionId, Now};
use crate::landing::announce;
use crate::manifest;
use crate::pattern::{PathPattern, PatternIndex, Uri};
use crate::refusal::Refusal;
use crate::task::{self, Task};

/// Evidence that an attempt did not work only in its own workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IsolationBreach {
    /// These files of the user's own checkout changed while the attempt ran. The path of a
    /// directory ends with a slash.
    Checkout { paths: Vec<String> },
    /// The agent's result names another directory than the attempt's workspace.
    #[serde(rename = "elsewhere")]
    OtherDirectory { path: String },
    /// The agent's result says that it had no workspace.
    NoWorkspace,
}

facts! {
    /// An attempt worked outside its workspace, so from now on the mission's tasks do not use the
    /// same files at the same time.
    MissionSerialised { mission: MissionId, attempt: AttemptId, reason: String }
}

/// Handles a report that an attempt worked outside its workspace: warns, or makes the mission's
/// tasks that use the same files run one after the other. A repeated report changes nothing.
pub fn on_breach(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    sign: IsolationBreach,
    now: Now,
) -> Result<(), Refusal> {
    let attempt = attempt::require_attempt(draft.board(), id, token)?;
    let task = task::find(draft.board(), attempt.task)?;
    let affects_work = match &sign {
        IsolationBreach::Checkout { paths } => {
            is_in_active_manifest(draft.board(), &attempt, paths)
        }
        IsolationBreach::OtherDirectory { .. } | IsolationBreach::NoWorkspace => true,
    };
    let reason = describe(id, &sign, affects_work);
    if task.warnings.contains(&reason) {
        return Ok(());
    }
    task::warn(draft, task.id, reason.clone());
    let mission = attempt
        .mission
        .and_then(|id| draft.board().missions.get(&id))
        .filter(|_| affects_work)
        .cloned();
    let Some(mission) =
        mission.filter(|mission| mission.isolate && has_shared_files(draft.board(), mission.id))
    else {
        return Ok(());
    };
    draft.record(Event::MissionSerialised(MissionSerialised {
        mission: mission.id,
        attempt: id,
        reason: reason.clone(),
    }));
    for other in tasks_to_stop(draft.board(), &attempt) {
        attempt::stop_task(
            draft,
            other,
            &format!("tasks that share its files now run one after the other: {reason}"),
        )?;
    }
    let text = format!(
        "tasks of {} that share files now run one after the other: {reason}",
        mission.id
    );
    announce(draft, &mission.project, "coord:isolation", text, now)
}

/// Describes the evidence that an attempt left its workspace, in a sentence for people.
fn describe(id: AttemptId, sign: &IsolationBreach, affects_work: bool) -> String {
    match sign {
        IsolationBreach::Checkout { paths } => {
            let names: Vec<&str> = paths.iter().map(String::as_str).collect();
            let files = first_few(&names);
            if affects_work {
                format!(
                    "isolation did not hold for {id}: your own checkout changed while it ran, in \
                     {files}; check if you made \
                     these changes, and revert or commit them"
                )
            } else {
                format!(
                    "while {id} ran without a sandbox, your own checkout changed: {files}; check \
                    if you made these changes"
                )
            }
        }
        IsolationBreach::OtherDirectory { path } => format!(
            "isolation did not hold for {id}: its result names {path}, which is not its workspace; \
             look for changes there"
        ),
        IsolationBreach::NoWorkspace => format!(
            "isolation did not hold for {id}: its result says that it had no workspace; look for \
             its changes in your own checkout"
        ),
    }
}

/// Returns whether one of these paths is in the manifest (the files that a task may change) of any
/// task of the same project that is being worked on.
fn is_in_active_manifest(board: &Board, attempt: &Attempt, paths: &[String]) -> bool {
    let attempts = board
        .attempts
        .values()
        .filter(|other| other.project == attempt.project);
    let files: Vec<PathPattern> = attempts
        .filter_map(|attempt| board.tasks.get(&attempt.task))
        .flat_map(|task| task.files.iter().cloned())
        .collect();
    let is_in_manifest = |path: &String| match path
        .strip_suffix('/')
        .map(|path| PathPattern::new(&format!("{path}/**")))
    {
        Some(Ok(subtree)) => files.iter().any(|pattern| pattern.overlaps(&subtree)),
        Some(Err(_)) => false,
        None => files.iter().any(|pattern| pattern.matches(path)),
    };
    paths.iter().any(is_in_manifest)
}

/// Returns whether two unfinished tasks of a mission need the same files.
fn has_shared_files(board: &Board, mission: MissionId) -> bool {
    let mut index = PatternIndex::default();
    board
        .open_tasks_of(mission)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .any(|task| {
            let uris = manifest::claims_of_task(board, task);
            let is_shared = uris
                .iter()
                .any(|uri| index.overlapping(uri).next().is_some());
            index.insert(task.id.0, &uris);
            is_shared
        })
}

/// Returns the tasks of the mission whose attempts must be stopped, because they use the same files
/// as `attempt`, an earlier attempt or work in the landing queue. The task of `attempt` itself is
/// never returned.
fn tasks_to_stop(board: &Board, attempt: &Attempt) -> Vec<crate::ids::TaskId> {
    let mut kept_uris: Vec<Uri> = board
        .claims
        .values()
        .filter(|claim| match &claim.owner {
            ClaimOwner::Landing(id) => board
                .landings
                .get(id)
                .is_some_and(|landing| landing.mission == attempt.mission),
            ClaimOwner::Attempt(id) => *id == attempt.id,
            ClaimOwner::Agent(_) => false,
        })
        .flat_map(|claim| {
            claim
                .uris
                .iter()
                .filter(|uri| uri.as_str().starts_with("file://"))
                .cloned()
        })
        .collect();
    let mut stopped = Vec::new();
    for other in board
        .attempts
        .values()
        .filter(|other| other.mission == attempt.mission && other.id != attempt.id)
    {
        let Some(task): Option<&Task> = board.tasks.get(&other.task).map(|task| &**task) else {
            continue;
        };
        let uris = manifest::claims_of_task(board, task);
        if other.stopping.is_none()
            && uris
                .iter()
                .any(|uri| kept_uris.iter().any(|kept| kept.overlaps(uri)))
        {
            stopped.push(task.id);
        } else {
            kept_uris.extend(uris);
        }
    }
    stopped
}
