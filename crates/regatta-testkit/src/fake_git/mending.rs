//! Workspaces of fix-ups: a change is merged as far as possible, with conflict markers in the rest.

use super::*;

/// The workspace of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) branch: BranchName,
    pub(super) base: CommitId,
    pub(super) files: Files,
    /// Files that existed before the attempt and are not its work.
    pub(super) foreign: Files,
    pub(super) settled: bool,
}

pub(super) fn prepare(
    world: &mut World,
    (repo, attempt): (&Repo, AttemptId),
    branch: &BranchName,
    fixup: &Fixup,
    authorship: &Authorship,
) -> Result<Workspace, GitError> {
    let change = &fixup.commit;
    let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
    if let Some(space) = world.spaces.get(&attempt) {
        return Ok(Workspace { path, branch: space.branch.clone(), base: space.base.clone(), objects: None });
    }
    let tip = world.trunk(repo)?.tip.clone();
    let (ours, theirs) = (world.files(&tip), world.files(change));
    let start = world.get(change)?.parent.map(|it| world.files(&it)).unwrap_or_default();
    let conflicts = world.merge_onto(&tip, change)?.err().unwrap_or_default();
    let without = |files: &Files| -> Files {
        files.iter().filter(|it| !conflicts.contains(it.0)).map(|(path, it)| (path.clone(), it.clone())).collect()
    };
    let mut files = merge(&without(&start), &without(&ours), &without(&theirs)).unwrap();
    for path in conflicts {
        let side = |files: &Files| files.get(&path).cloned().unwrap_or_default();
        if let Some(settled) = fixup.settled.iter().find(|settled| settled.path == path) {
            files.insert(path.clone(), side(if settled.is_trunks { &ours } else { &theirs }));
            continue;
        }
        let text = format!("<<<<<<< trunk\n{}=======\n{}>>>>>>> change\n", side(&ours), side(&theirs));
        files.insert(path, text);
    }
    let base = world.commit(Some(tip), files.clone(), &authorship.message, authorship.seconds);
    world.fixups.insert(attempt, base.clone());
    let space = Space { branch: branch.clone(), base: base.clone(), files, foreign: Files::new(), settled: false };
    world.spaces.insert(attempt, space);
    Ok(Workspace { path, branch: branch.clone(), base, objects: None })
}

pub(super) fn as_change(
    world: &mut World,
    attempt: AttemptId,
    capture: Capture,
    authorship: &Authorship,
) -> Result<Capture, GitError> {
    if world.fixups.get(&attempt) != Some(&capture.base) {
        return Ok(capture);
    }
    let tip = world.get(&capture.base)?.parent.unwrap();
    let (before, after) = (world.files(&tip), world.files(&capture.commit));
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = paths.into_iter().filter(|it| before.get(*it) != after.get(*it)).cloned().collect();
    let commit = world.commit(Some(tip.clone()), after, &authorship.message, authorship.seconds);
    let kept = world.kept.entry(attempt).or_default();
    if kept.last() != Some(&commit) {
        kept.push(commit.clone());
    }
    Ok(Capture { commit, base: tip, changed })
}
