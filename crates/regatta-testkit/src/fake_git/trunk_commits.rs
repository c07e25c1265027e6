//! The commits of a trunk along first parents, and their trailers.

use regatta_core::landing::trunk_check::TrunkCommit;

use super::*;

/// Returns the commits between two commits of one line, oldest first, without both ends.
pub(super) fn commits_between(world: &FakeRepos, from: &CommitId, to: &CommitId) -> Vec<CommitId> {
    let parent = |id: &CommitId| {
        world
            .commits
            .get(id)
            .and_then(|commit| commit.parent.clone())
    };
    let line = std::iter::successors(parent(to), parent).take_while(|id| id != from);
    let mut steps: Vec<CommitId> = line.collect();
    steps.reverse();
    steps
}

/// Returns the commits by which the trunk differs from the recorded commits.
pub(super) fn compare_trunk(
    world: &FakeRepos,
    repo: &ProjectRepo,
    recorded: &[CommitId],
) -> Result<TrunkSeen, GitError> {
    let tip = world.trunk(repo)?.tip.clone();
    let line = |from: &[CommitId]| {
        let mut line = Vec::new();
        for from in from {
            let mut at = Some(from.clone());
            while let Some(here) = at.filter(|here| !line.contains(here)) {
                at = world
                    .commits
                    .get(&here)
                    .and_then(|commit| commit.parent.clone());
                line.push(here);
            }
        }
        line
    };
    let (ours, theirs) = (line(recorded), line(std::slice::from_ref(&tip)));
    let describe = |id: &CommitId| {
        let message = world
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
    let missing = ours
        .iter()
        .filter(|id| !theirs.contains(id))
        .map(describe)
        .collect();
    // Commits above the newest commit that all recorded ones lead to were added.
    let lines: Vec<Vec<CommitId>> = recorded
        .iter()
        .map(|from| line(std::slice::from_ref(from)))
        .collect();
    let added = theirs
        .iter()
        .take_while(|id| !lines.iter().all(|line| line.contains(id)))
        .map(describe)
        .collect();
    Ok(TrunkSeen {
        recorded: recorded.to_vec(),
        missing,
        added,
    })
}

/// Returns the newest commit of the trunk whose trailer names this landing.
pub(super) fn landed_as(
    world: &FakeRepos,
    repo: &ProjectRepo,
    landing: LandingId,
) -> Result<Option<CommitId>, GitError> {
    let trailer = format!("Regatta-Landing: {landing}");
    let mut at = Some(world.trunk(repo)?.tip.clone());
    while let Some(here) = at {
        let Some(commit) = world.commits.get(&here) else {
            break;
        };
        if commit.message.lines().any(|line| line == trailer) {
            return Ok(Some(here));
        }
        at = commit.parent.clone();
    }
    Ok(None)
}
