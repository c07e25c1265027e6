//! Workspaces of fix-ups: a change is merged as far as possible, with conflict markers in the rest.

use super::*;

/// The workspace of an attempt.
#[derive(Clone, Debug)]
pub(super) struct FakeWorkspace {
    pub(super) branch: BranchName,
    pub(super) base: CommitId,
    pub(super) files: FakeTree,
    /// Files that existed before the attempt and are not its work.
    pub(super) foreign_files: FakeTree,
    pub(super) is_ready: bool,
}

pub(super) fn prepare(
    world: &mut FakeRepos,
    (repo, attempt): (&ProjectRepo, AttemptId),
    branch: &BranchName,
    fixup: &Fixup,
    authorship: &Authorship,
) -> Result<Workspace, GitError> {
    let change = &fixup.commit;
    let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
    if let Some(space) = world.workspaces.get(&attempt) {
        return Ok(Workspace {
            path,
            branch: space.branch.clone(),
            base: space.base.clone(),
            objects: None,
        });
    }
    let tip = world.trunk(repo)?.tip.clone();
    let (ours, theirs) = (world.files_of(&tip), world.files_of(change));
    let start = world
        .find_commit(change)?
        .parent
        .map(|id| world.files_of(&id))
        .unwrap_or_default();
    let conflicts = world.merge_onto(&tip, change)?.err().unwrap_or_default();
    let without = |files: &FakeTree| -> FakeTree {
        files
            .iter()
            .filter(|file| !conflicts.contains(file.0))
            .map(|(path, file)| (path.clone(), file.clone()))
            .collect()
    };
    let mut files = merge_trees(&without(&start), &without(&ours), &without(&theirs)).unwrap();
    for path in conflicts {
        let side = |files: &FakeTree| files.get(&path).cloned().unwrap_or_default();
        if let Some(settled) = fixup.settled.iter().find(|settled| settled.path == path) {
            files.insert(
                path.clone(),
                side(if settled.is_trunks { &ours } else { &theirs }),
            );
            continue;
        }
        let text = format!(
            "<<<<<<< trunk\n{}=======\n{}>>>>>>> change\n",
            side(&ours),
            side(&theirs)
        );
        files.insert(path, text);
    }
    let base = world.commit(
        Some(tip),
        files.clone(),
        &authorship.message,
        authorship.unix_seconds,
    );
    world.fixup_bases.insert(attempt, base.clone());
    let space = FakeWorkspace {
        branch: branch.clone(),
        base: base.clone(),
        files,
        foreign_files: FakeTree::new(),
        is_ready: false,
    };
    world.workspaces.insert(attempt, space);
    Ok(Workspace {
        path,
        branch: branch.clone(),
        base,
        objects: None,
    })
}

pub(super) fn current_commit_of(
    world: &mut FakeRepos,
    attempt: AttemptId,
    capture: Capture,
    authorship: &Authorship,
) -> Result<Capture, GitError> {
    if world.fixup_bases.get(&attempt) != Some(&capture.base) {
        return Ok(capture);
    }
    let tip = world.find_commit(&capture.base)?.parent.unwrap();
    let (before, after) = (world.files_of(&tip), world.files_of(&capture.commit));
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect();
    let commit = world.commit(
        Some(tip.clone()),
        after,
        &authorship.message,
        authorship.unix_seconds,
    );
    let kept = world.keep_refs.entry(attempt).or_default();
    if kept.last() != Some(&commit) {
        kept.push(commit.clone());
    }
    Ok(Capture {
        commit,
        base: tip,
        changed,
    })
}
