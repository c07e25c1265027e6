//! Pushes the trunk of a project, and the branches of conversations, to the project's remote.
//!
//! A failed push is tried again with a growing pause until the remote has the commit. The reason of
//! the failure is recorded for people. The landing queue brings in commits that only the remote
//! has: see `landing::remote_sync` in `regatta_core`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::command::Report;
use regatta_core::conversation::{ConversationReport, PushedWork};
use regatta_core::effect::EffectKey;
use regatta_core::ids::{BranchName, CommitId, ConversationId, ProjectName};
use regatta_core::landing::remote_sync::DivergedRemote;

use crate::ports::git::{GitError, ProjectRepo, PushResult};
use crate::{Engine, failpoint};

use super::super::{POLL_INTERVAL, report_effect};

/// The pause after the first failed push. The pause doubles after each further failure, up to
/// [`MAX_RETRY_DELAY`].
const RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// The newest requested push of each project. The newest push includes the commits of all earlier
/// pushes, so the earlier pushes stop.
#[derive(Default)]
pub(crate) struct LatestPushes(Mutex<BTreeMap<ProjectName, EffectKey>>);

impl LatestPushes {
    /// Records that this push is now the newest of the project.
    fn record(&self, project: &ProjectName, key: EffectKey) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let latest_key = latest.entry(project.clone()).or_insert(key);
        *latest_key = key.max(*latest_key);
    }

    fn is_latest(&self, project: &ProjectName, key: EffectKey) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(project)
            == Some(&key)
    }
}

/// Performs `Effect::PushTrunk`: pushes a commit of the trunk to the remote, unless a newer push
/// includes it. Tries until the push succeeds.
pub(crate) fn push_trunk(
    engine: &Engine,
    key: EffectKey,
    project: &ProjectName,
    commit: &CommitId,
) {
    failpoint::hit("push.begin");
    let pushes = &engine.shared.pushes;
    pushes.record(project, key);
    let mut pause = RETRY_DELAY;
    let report = loop {
        let board = engine.board();
        let target = board
            .projects
            .get(project)
            .and_then(|project| Some((project, project.settings.landing.push.clone()?)));
        let Some((target_project, remote)) = target.filter(|_| pushes.is_latest(project, key))
        else {
            break Report::Performed;
        };
        let repo = ProjectRepo::from_project(target_project);
        match push_once(engine, &repo, &remote, commit)
            .unwrap_or_else(|error| Err(describe_git_error(&error)))
        {
            Ok(report) => break report,
            Err(reason) => {
                let report = Report::Pushed {
                    project: project.clone(),
                    remote,
                    commit: commit.clone(),
                    failure: Some(reason),
                };
                if let Err(failure) = engine.report(report) {
                    tracing::warn!(
                        "could not record that pushing the trunk of project {project} failed; the \
                        push is tried again anyway: {failure}"
                    );
                }
            }
        }
        let retry_at = Instant::now() + pause;
        while Instant::now() < retry_at && pushes.is_latest(project, key) {
            if engine.is_stopping() {
                return; // the effect stays stored, and the next start of the daemon continues it
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    };
    failpoint::hit("push.pushed");
    report_effect(engine, key, report);
}

/// Performs `Effect::PushBranch`: pushes the branch of a conversation. If that fails, a message in
/// the conversation's thread says so, and the push is tried again after the next turn.
pub(crate) fn push_branch(engine: &Engine, key: EffectKey, id: ConversationId, commit: &CommitId) {
    let board = engine.board();
    let target = board.conversations.get(&id).and_then(|conversation| {
        let work = conversation
            .turns
            .iter()
            .rev()
            .find_map(|turn| turn.work.as_ref())
            .filter(|work| work.commit == *commit)?;
        Some((
            board.projects.get(&conversation.project)?,
            BranchName::new(&work.branch).ok()?,
        ))
    });
    let Some((project, branch)) = target else {
        return report_effect(engine, key, Report::Performed);
    };
    let remote = project
        .settings
        .landing
        .push
        .clone()
        .unwrap_or_else(|| "origin".into());
    let failure = match engine.shared.git.push_branch(
        &ProjectRepo::from_project(project),
        &remote,
        &branch,
        commit,
    ) {
        Ok(PushResult::Pushed) => None,
        Ok(PushResult::NonFastForward) => {
            Some("the remote rejects a force-push of this branch".to_owned())
        }
        Ok(PushResult::Failed(reason)) => Some(reason),
        Err(error) => Some(describe_git_error(&error)),
    };
    let pushed = PushedWork {
        commit: commit.clone(),
        failure,
    };
    report_effect(
        engine,
        key,
        Report::Conversation(Box::new(ConversationReport::Pushed {
            conversation: id,
            pushed,
        })),
    );
}

/// Tries to push once. Returns the result to report if no further push is needed, or the reason why
/// the push must be tried again.
fn push_once(
    engine: &Engine,
    repo: &ProjectRepo,
    remote: &str,
    commit: &CommitId,
) -> Result<Result<Report, String>, GitError> {
    let git = &engine.shared.git;
    let project = repo.project.clone();
    // The commit is no longer on the trunk, for example because the trunk was rebased. It is not
    // pushed. The landing that replaced it pushes the new commit.
    if !git.contains_exactly(repo, commit)? {
        return Ok(Ok(Report::Performed));
    }
    let report = match git.push(repo, remote, commit)? {
        PushResult::Pushed => {
            let (remote, commit) = (remote.to_owned(), commit.clone());
            Ok(Report::Pushed {
                project,
                remote,
                commit,
                failure: None,
            })
        }
        PushResult::NonFastForward => {
            let upstream = git.fetch_upstream(repo, remote)?;
            Ok(Report::Diverged {
                project,
                commit: commit.clone(),
                found: DivergedRemote {
                    remote: remote.to_owned(),
                    tip: upstream.tip,
                    changed: upstream.changed,
                },
            })
        }
        PushResult::Failed(reason) => Err(reason),
    };
    Ok(report)
}

fn describe_git_error(error: &GitError) -> String {
    format!("{error} {}", error.hint)
}
