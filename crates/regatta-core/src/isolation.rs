//! Isolation that did not hold: what an attempt did, or a part of it, went elsewhere than into its workspace.
//!
//! A mission whose tasks may share files (`isolate`) relies on each having a place of its own. When a sign says
//! otherwise, it goes on one after the other: nobody starts beside another who wants the same, and of those at work
//! only the first of each file goes on. Where nobody shares anything, a warning is enough.

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Attempt, first_few};
use crate::board::{Board, Draft};
use crate::claim::Owner;
use crate::event::{Event, facts};
use crate::ids::{AttemptId, MissionId, Now};
use crate::landing::announce;
use crate::manifest;
use crate::pattern::{PathPattern, PatternIndex, Uri};
use crate::refusal::Refusal;
use crate::task::{self, Task};

/// What says that an attempt was not on its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// These files of the user's checkout were written to while it ran. A directory ends with a slash.
    Checkout { paths: Vec<String> },
    /// Its result names another place than its workspace.
    Elsewhere { path: String },
    /// Its result says that it had no workspace.
    NoWorkspace,
}

facts! {
    /// Isolation did not hold, so its tasks no longer share files.
    Serialised { mission: MissionId, attempt: AttemptId, reason: String }
}

/// Takes the report of a sign. The same again changes nothing.
pub fn doubted(draft: &mut Draft, (id, token): (AttemptId, u64), sign: Sign, now: Now) -> Result<(), Refusal> {
    let attempt = attempt::live(draft.board(), id, token)?;
    let task = task::find(draft.board(), attempt.task)?;
    let about_work = match &sign {
        Sign::Checkout { paths } => is_of_a_manifest(draft.board(), &attempt, paths),
        Sign::Elsewhere { .. } | Sign::NoWorkspace => true,
    };
    let reason = words(id, &sign, about_work);
    if task.warnings.contains(&reason) {
        return Ok(());
    }
    task::warn(draft, task.id, reason.clone());
    let mission = attempt.mission.and_then(|it| draft.board().missions.get(&it)).filter(|_| about_work).cloned();
    let Some(mission) = mission.filter(|it| it.isolate && shares_files(draft.board(), it.id)) else { return Ok(()) };
    draft.record(Event::MissionSerialised(Serialised { mission: mission.id, attempt: id, reason: reason.clone() }));
    for other in in_the_way(draft.board(), &attempt) {
        attempt::stop_task(
            draft,
            other,
            &format!("its files are worked on one after the other from now on: {reason}"),
        )?;
    }
    let text = format!("{} goes on one task after the other where files are shared: {reason}", mission.id);
    announce(draft, &mission.project, "coord:isolation", text, now)
}

fn words(id: AttemptId, sign: &Sign, about_work: bool) -> String {
    match sign {
        Sign::Checkout { paths } => {
            let names: Vec<&str> = paths.iter().map(String::as_str).collect();
            let what = first_few(&names);
            match about_work {
                true => format!(
                    "isolation did not hold for {id}: your own checkout was written to while it ran, in {what}; look \
                     whether that was you, and put it back or commit it"
                ),
                false => format!(
                    "while {id} ran, which is not shut in, your own checkout was written to: {what}; look whether that \
                     was you"
                ),
            }
        }
        Sign::Elsewhere { path } => format!(
            "isolation did not hold for {id}: it says it worked in {path}, which is not its workspace: look for changes \
             there"
        ),
        Sign::NoWorkspace => format!(
            "isolation did not hold for {id}: it says it had no workspace: look for its changes in your own checkout"
        ),
    }
}

/// Whether one of these paths is somebody's who is at work in the same project.
fn is_of_a_manifest(board: &Board, attempt: &Attempt, paths: &[String]) -> bool {
    let at_work = board.attempts.values().filter(|it| it.project == attempt.project);
    let files: Vec<PathPattern> =
        at_work.filter_map(|it| board.tasks.get(&it.task)).flat_map(|it| it.files.iter().cloned()).collect();
    let meets = |path: &String| match path.strip_suffix('/').map(|it| PathPattern::new(&format!("{it}/**"))) {
        Some(Ok(all)) => files.iter().any(|it| it.overlaps(&all)),
        Some(Err(_)) => false,
        None => files.iter().any(|it| it.matches(path)),
    };
    paths.iter().any(meets)
}

/// Whether two of a mission's open tasks want the same.
fn shares_files(board: &Board, mission: MissionId) -> bool {
    let mut index = PatternIndex::default();
    board.open_tasks_of(mission).filter_map(|it| board.tasks.get(&it.1)).any(|task| {
        let uris = manifest::claims(board, task);
        let shared = uris.iter().any(|it| index.overlapping(it).next().is_some());
        index.insert(task.id.0, &uris);
        shared
    })
}

/// Whom of its mission's at work the others wait for no longer: all that want something of one who began before, or of
/// work that is landing. The attempt itself has ended and is judged by what it left.
fn in_the_way(board: &Board, of: &Attempt) -> Vec<crate::ids::TaskId> {
    let mut kept: Vec<Uri> = board
        .claims
        .values()
        .filter(|it| match &it.owner {
            Owner::Landing(id) => board.landings.get(id).is_some_and(|it| it.mission == of.mission),
            Owner::Attempt(id) => *id == of.id,
            Owner::Agent(_) => false,
        })
        .flat_map(|it| it.uris.iter().filter(|it| it.as_str().starts_with("file://")).cloned())
        .collect();
    let mut stopped = Vec::new();
    for other in board.attempts.values().filter(|it| it.mission == of.mission && it.id != of.id) {
        let Some(task): Option<&Task> = board.tasks.get(&other.task).map(|it| &**it) else { continue };
        let uris = manifest::claims(board, task);
        if other.stopping.is_none() && uris.iter().any(|it| kept.iter().any(|has| has.overlaps(it))) {
            stopped.push(task.id);
        } else {
            kept.extend(uris);
        }
    }
    stopped
}
