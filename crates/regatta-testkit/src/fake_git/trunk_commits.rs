//! Walks through the commits of a trunk, following the first parent of each, and reads the
//! `Regatta-…` lines (trailers) of their messages.

use regatta_core::landing::trunk_check::TrunkCommit;

use super::*;

/// Returns the commits between `from` and `to`, oldest first, without `from` and `to` themselves.
pub(super) fn commits_between(repos: &FakeRepos, from: &CommitId, to: &CommitId) -> Vec<CommitId> {
    let parent = |id: &CommitId| {
        repos
            .commits
            .get(id)
            .and_then(|commit| commit.parent.clone())
    };
    let line = std::iter::successors(parent(to), parent).take_while(|id| id != from);
    let mut steps: Vec<CommitId> = line.collect();
    steps.reverse();
    steps
}

/// Compares the trunk with the recorded commits. Returns the commits that the trunk lacks, and the
/// commits that it has in addition.
pub(super) fn compare_trunk(
    repos: &FakeRepos,
    repo: &ProjectRepo,
    recorded: &[CommitId],
) -> Result<TrunkSeen, GitError> {
    let tip = repos.trunk(repo)?.tip.clone();
    // Returns the given commits and all their first-parent ancestors.
    let history = |commits: &[CommitId]| {
        let mut history = Vec::new();
        for commit in commits {
            let mut next = Some(commit.clone());
            while let Some(id) = next.filter(|id| !history.contains(id)) {
                next = repos
                    .commits
                    .get(&id)
                    .and_then(|commit| commit.parent.clone());
                history.push(id);
            }
        }
        history
    };
    let recorded_history = history(recorded);
    let trunk_history = history(std::slice::from_ref(&tip));
    let describe = |id: &CommitId| {
        let message = repos
            .commits
            .get(id)
            .map(|commit| commit.message.clone())
            .unwrap_or_default();
        let trailer = |name: &str| {
            message
                .lines()
                .find_map(|line| line.strip_prefix(name).map(str::to_owned))
        };
        TrunkCommit {
            commit: id.clone(),
            landing: trailer("Regatta-Landing: ").and_then(|text| text.parse().ok()),
            task: trailer("Regatta-Task: ").and_then(|text| text.parse().ok()),
            subject: message.lines().next().unwrap_or_default().to_owned(),
        }
    };
    let missing = recorded_history
        .iter()
        .filter(|id| !trunk_history.contains(id))
        .map(describe)
        .collect();
    // The recorded commits have some commits of the trunk in common. All commits of the trunk after
    // the newest common one count as added.
    let histories: Vec<Vec<CommitId>> = recorded
        .iter()
        .map(|commit| history(std::slice::from_ref(commit)))
        .collect();
    let is_common = |id: &CommitId| histories.iter().all(|history| history.contains(id));
    let added = trunk_history
        .iter()
        .take_while(|id| !is_common(id))
        .map(describe)
        .collect();
    Ok(TrunkSeen {
        recorded: recorded.to_vec(),
        missing,
        added,
    })
}

/// Returns the newest commit of the trunk whose message names this landing (merge of a task's
/// work).
pub(super) fn find_landing(
    repos: &FakeRepos,
    repo: &ProjectRepo,
    landing: LandingId,
) -> Result<Option<CommitId>, GitError> {
    let trailer = format!("Regatta-Landing: {landing}");
    let mut next = Some(repos.trunk(repo)?.tip.clone());
    while let Some(id) = next {
        let Some(commit) = repos.commits.get(&id) else {
            break;
        };
        if commit.message.lines().any(|line| line == trailer) {
            return Ok(Some(id));
        }
        next = commit.parent.clone();
    }
    Ok(None)
}

/// Returns the subjects and tasks of a commit and its first-parent ancestors, newest first.
pub(super) fn history(repos: &FakeRepos, commit: &CommitId) -> Vec<UnreleasedCommit> {
    let mut found = Vec::new();
    let mut next = repos.commits.get(commit);
    while let Some(commit) = next {
        found.push(UnreleasedCommit {
            subject: commit.message.lines().next().unwrap_or_default().to_owned(),
            task: task_in_trailer(&commit.message),
        });
        next = commit.parent.as_ref().and_then(|id| repos.commits.get(id));
    }
    found
}

fn task_in_trailer(message: &str) -> Option<String> {
    let mut lines = message.lines();
    lines.find_map(|line| line.strip_prefix("Regatta-Task: ").map(str::to_owned))
}

/// Returns the trunk of a remote, and the paths that changed there since both trunks had a common
/// commit.
pub(super) fn fetch_upstream(
    repos: &FakeRepos,
    repo: &ProjectRepo,
    remote: &str,
) -> Result<UpstreamTrunk, GitError> {
    let local = repos.trunk(repo)?.tip.clone();
    let unknown = || {
        git_error(
            "fetch_needed",
            &format!("the remote {remote} has no trunk here"),
        )
    };
    let tip = repos.remotes.get(remote).cloned().ok_or_else(unknown)?;
    repos.find_commit(&tip)?;
    let base = common_base(repos, &local, &tip).ok_or_else(unknown)?;
    let changed = changed_paths(&repos.files_of(&base), &repos.files_of(&tip));
    Ok(UpstreamTrunk { tip, changed })
}

/// Returns the newest first-parent ancestor of `theirs` that is in the history of `ours`.
fn common_base(repos: &FakeRepos, ours: &CommitId, theirs: &CommitId) -> Option<CommitId> {
    let parent = |id: &CommitId| repos.commits.get(id)?.parent.clone();
    std::iter::successors(Some(theirs.clone()), parent).find(|id| repos.is_ancestor(id, ours))
}

/// Replays the commits that only the local trunk has on top of `onto`. Moves no trunk.
pub(super) fn rebase_trunk(
    repos: &mut FakeRepos,
    repo: &ProjectRepo,
    onto: &CommitId,
) -> Result<RebaseResult, GitError> {
    let old = repos.trunk(repo)?.tip.clone();
    if repos.is_ancestor(onto, &old) {
        return Ok(RebaseResult::UpToDate { tip: old });
    }
    let mut local: Vec<CommitId> = Vec::new();
    let mut next = Some(old.clone());
    while let Some(id) = next.filter(|id| !repos.is_ancestor(id, onto)) {
        next = repos.find_commit(&id)?.parent;
        local.push(id);
    }
    let (mut tip, mut replaced, mut tasks) = (onto.clone(), Vec::new(), Vec::new());
    for id in local.into_iter().rev() {
        let commit = repos.find_commit(&id)?;
        let merged = match repos.merge_onto(&tip, &id)? {
            Err(paths) => return Ok(RebaseResult::Conflict { paths }),
            Ok(merged) => merged,
        };
        if merged != repos.files_of(&tip) {
            tip = repos.commit(Some(tip), merged, &commit.message, 0);
        }
        tasks.extend(task_in_trailer(&commit.message));
        replaced.push((id, tip.clone()));
    }
    repos.rebased.extend(replaced);
    Ok(RebaseResult::Rebased {
        old,
        new: tip,
        tasks,
    })
}
