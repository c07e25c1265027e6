//! Pushes what landed where the project says. It is tried again until the remote has it, with a pause that grows, and
//! the board knows why it waits. A remote that has what is not here is the queue's: see `landing::join` in core.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::{Ask, Pushed};
use regatta_core::effect::EffectKey;
use regatta_core::ids::{BranchName, CommitId, ConversationId, ProjectName};
use regatta_core::landing::join::Diverged;

use crate::ports::git::{GitError, Push, Repo};
use crate::{Engine, failpoint};

use super::super::{LOOK_UP, report};

/// How long after a failed push it is tried again, at first and at most.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);

/// Which push of each project is the latest: it brings along what those before it were to push.
#[derive(Default)]
pub(crate) struct Pushes(Mutex<BTreeMap<ProjectName, EffectKey>>);

impl Pushes {
    fn note(&self, project: &ProjectName, key: EffectKey) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = latest.entry(project.clone()).or_insert(key);
        *known = key.max(*known);
    }

    fn is_latest(&self, project: &ProjectName, key: EffectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(project) == Some(&key)
    }
}

/// Pushes a commit of the trunk, unless a later push does it.
pub(crate) fn push_trunk(engine: &Engine, key: EffectKey, project: &ProjectName, commit: &CommitId) {
    failpoint::at("push.begin");
    let pushes = &engine.shared.pushes;
    pushes.note(project, key);
    let mut pause = AGAIN;
    let done = loop {
        let board = engine.board();
        let wanted = board.projects.get(project).and_then(|it| Some((it, it.settings.landing.push.clone()?)));
        let Some((it, remote)) = wanted.filter(|_| pushes.is_latest(project, key)) else {
            break Command::ReportPerformed;
        };
        match try_once(engine, &Repo::of(it), &remote, commit).unwrap_or_else(|error| Err(in_full(&error))) {
            Ok(command) => break command,
            Err(reason) => {
                let (project, commit) = (project.clone(), commit.clone());
                let command = Command::ReportPushed { project, remote, commit, trouble: Some(reason) };
                if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
                    tracing::warn!("that a push failed could not be written down: {failure:?}");
                }
            }
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && pushes.is_latest(project, key) {
            if engine.is_stopping() {
                return; // the effect stays, and the next start goes on with it
            }
            std::thread::sleep(LOOK_UP);
        }
        pause = (pause * 2).min(AGAIN_AT_MOST);
    };
    failpoint::at("push.pushed");
    report(engine, key, done);
}

/// Pushes the branch of a conversation. What cannot be pushed is said in its thread; the next turn tries again.
pub(crate) fn push_branch(engine: &Engine, key: EffectKey, id: ConversationId, commit: &CommitId) {
    let board = engine.board();
    let wanted = board.conversations.get(&id).and_then(|it| {
        let work = it.turns.iter().rev().find_map(|it| it.work.as_ref()).filter(|it| it.commit == *commit)?;
        Some((board.projects.get(&it.project)?, BranchName::new(&work.branch).ok()?))
    });
    let Some((project, branch)) = wanted else { return report(engine, key, Command::ReportPerformed) };
    let remote = project.settings.landing.push.clone().unwrap_or_else(|| "origin".into());
    let trouble = match engine.shared.git.push_branch(&Repo::of(project), &remote, &branch, commit) {
        Ok(Push::Pushed) => None,
        Ok(Push::NonFastForward) => Some("the remote takes no force-push of this branch".to_owned()),
        Ok(Push::Failed(reason)) => Some(reason),
        Err(error) => Some(in_full(&error)),
    };
    let pushed = Pushed { commit: commit.clone(), trouble };
    report(engine, key, Command::Converse(Box::new(Ask::Push { conversation: id, pushed })));
}

/// `Ok(Ok(_))` is what is to be said when nothing is left to do; the other two are why it is tried again.
fn try_once(
    engine: &Engine,
    repo: &Repo,
    remote: &str,
    commit: &CommitId,
) -> Result<Result<Command, String>, GitError> {
    let git = &engine.shared.git;
    let project = repo.project.clone();
    // Somebody took it off the trunk, or it stands elsewhere there by now: what it became is pushed by who brought it
    // there. What is not on the trunk is nobody's to push.
    if !git.holds(repo, commit)? {
        return Ok(Ok(Command::ReportPerformed));
    }
    let found = match git.push(repo, remote, commit)? {
        Push::Pushed => {
            let (remote, commit) = (remote.to_owned(), commit.clone());
            Ok(Command::ReportPushed { project, remote, commit, trouble: None })
        }
        Push::NonFastForward => {
            let found = git.upstream(repo, remote)?;
            let found = Diverged { remote: remote.to_owned(), tip: found.tip, changed: found.changed };
            Ok(Command::ReportDiverged { project, commit: commit.clone(), found })
        }
        Push::Failed(reason) => Err(reason),
    };
    Ok(found)
}

fn in_full(error: &GitError) -> String {
    format!("{error} {}", error.hint)
}
