//! A landing: merged onto the trunk's tip, validated as that exact tree, and the trunk moved to it.

use std::sync::Arc;

use regatta_core::command::Command;
use regatta_core::effect::EffectKey;
use regatta_core::ids::LandingId;
use regatta_core::landing::{self, Landing, Moved, Tried};
use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::ports::git::{Move, Repo, Trial, TrunkPermit};
use crate::{Engine, contract};

use super::{authorship, report};

/// Landings are tried one after the other, so one slot does.
const SLOT: u32 = 0;

fn landing_scene(engine: &Engine, id: LandingId) -> Option<(Arc<Landing>, Task, Arc<Project>, Repo)> {
    let board = engine.board();
    let landing = board.landings.get(&id)?.clone();
    let task = Task::clone(board.tasks.get(&landing.task)?);
    let project = board.projects.get(&landing.project)?.clone();
    let repo = Repo::of(&project);
    Some((landing, task, project, repo))
}

pub(super) fn try_landing(engine: &Engine, key: EffectKey, id: LandingId) {
    let Some((landing, task, project, repo)) = landing_scene(engine, id) else {
        return report(engine, key, Command::ReportPerformed);
    };
    let found = match try_merge(engine, &landing, &task, &project, &repo) {
        Ok(found) => found,
        Err(reason) => Tried::Held { reason },
    };
    if let Err(error) = engine.shared.git.unstage(&repo, SLOT) {
        tracing::warn!(landing = %id, "its staging directory is left behind: {error}");
    }
    report(engine, key, Command::ReportTried { landing: id, found });
}

fn try_merge(engine: &Engine, landing: &Landing, task: &Task, project: &Project, repo: &Repo) -> Result<Tried, String> {
    let git = &engine.shared.git;
    let tip = git.tip(repo).map_err(|it| it.to_string())?;
    let authorship = authorship(task, landing.agent.as_str(), landing.queued_wall);
    let style = project.settings.landing.style;
    let trial = git.trial_merge(repo, &tip, &landing.submission.commit, &authorship, style);
    let new = match trial.map_err(|it| it.to_string())? {
        Trial::Conflict(paths) => return Ok(Tried::Conflict { paths }),
        Trial::Empty => return Ok(Tried::AlreadyThere { tip }),
        Trial::Clean(new) => new,
    };
    let staging = git.stage(repo, SLOT, &new).map_err(|it| it.to_string())?;
    match contract::broken(&*engine.shared.agents, task, project, &staging).map_err(|it| it.to_string())? {
        None => Ok(Tried::Passed { old: tip, new }),
        Some(reason) => Ok(Tried::Red { reason }),
    }
}

pub(super) fn move_trunk(engine: &Engine, key: EffectKey, id: LandingId, fence: u64) {
    let Some((landing, _, _, repo)) = landing_scene(engine, id) else {
        return report(engine, key, Command::ReportPerformed);
    };
    // The fence is checked against the board at the last moment before the ref moves.
    let (old, new) = match landing.state.clone() {
        landing::State::Moving { old, new, fence: live } if live == fence => (old, new),
        _ => return report(engine, key, Command::ReportPerformed),
    };
    let permit = TrunkPermit::mint(landing.project.clone(), id, fence);
    let found = match engine.shared.git.move_trunk(&permit, &repo, &old, &new) {
        Ok(Move::Moved) => Moved::Moved,
        Ok(Move::Elsewhere(_)) => Moved::Elsewhere,
        Ok(Move::Dirty(paths)) => Moved::Dirty { paths },
        Err(error) => Moved::Held { reason: error.to_string() },
    };
    report(engine, key, Command::ReportMoved { landing: id, fence, found });
}
