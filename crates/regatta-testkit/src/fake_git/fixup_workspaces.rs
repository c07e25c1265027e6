//! Creates workspaces for fix-ups (attempts that resolve a conflict). The conflicting change is
//! merged onto the trunk as far as possible, and files with conflicts get conflict markers.

use super::*;

/// The workspace of an attempt in the fake git.
#[derive(Clone, Debug)]
pub(super) struct FakeWorkspace {
    pub(super) branch: BranchName,
    pub(super) base: CommitId,
    pub(super) files: FakeTree,
    /// Files that already existed before the attempt, so that they are not its work.
    pub(super) foreign_files: FakeTree,
    pub(super) is_ready: bool,
}

/// Creates the workspace for a fix-up (an attempt that resolves a conflict), or returns the
/// existing one.
pub(super) fn prepare(
    repos: &mut FakeRepos,
    (repo, attempt): (&ProjectRepo, AttemptId),
    branch: &BranchName,
    fixup: &Fixup,
    authorship: &Authorship,
) -> Result<Workspace, GitError> {
    let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
    if let Some(workspace) = repos.workspaces.get(&attempt) {
        return Ok(Workspace {
            path,
            branch: workspace.branch.clone(),
            base: workspace.base.clone(),
            objects: None,
        });
    }
    let tip = repos.trunk(repo)?.tip.clone();
    let files = fixup_tree(repos, &tip, fixup)?;
    let base = repos.commit(
        Some(tip),
        files.clone(),
        &authorship.message,
        authorship.unix_seconds,
    );
    repos.fixup_bases.insert(attempt, base.clone());
    let workspace = FakeWorkspace {
        branch: branch.clone(),
        base: base.clone(),
        files,
        foreign_files: FakeTree::new(),
        is_ready: false,
    };
    repos.workspaces.insert(attempt, workspace);
    Ok(Workspace {
        path,
        branch: branch.clone(),
        base,
        objects: None,
    })
}

/// Returns the files of the workspace of a fix-up (an attempt that resolves a conflict): the
/// conflicting change merged onto the commit `tip`, with conflict markers.
fn fixup_tree(repos: &FakeRepos, tip: &CommitId, fixup: &Fixup) -> Result<FakeTree, GitError> {
    let change = &fixup.commit;
    let (ours, theirs) = (repos.files_of(tip), repos.files_of(change));
    let start = repos
        .find_commit(change)?
        .parent
        .map(|id| repos.files_of(&id))
        .unwrap_or_default();
    let conflicts = repos.merge_onto(tip, change)?.err().unwrap_or_default();
    let without_conflicts = |files: &FakeTree| -> FakeTree {
        files
            .iter()
            .filter(|(path, _)| !conflicts.contains(path))
            .map(|(path, content)| (path.clone(), content.clone()))
            .collect()
    };
    let mut files = merge_trees(
        &without_conflicts(&start),
        &without_conflicts(&ours),
        &without_conflicts(&theirs),
    )
    .unwrap();
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
    Ok(files)
}

/// Accepts a commit as the base of a fix-up's workspace on another machine, if [`prepare`] would
/// make exactly that commit from a commit of the trunk.
pub(super) fn recognise(
    repos: &mut FakeRepos,
    (repo, attempt): (&ProjectRepo, AttemptId),
    base: &CommitId,
    fixup: &Fixup,
) -> Result<bool, GitError> {
    let tip = repos.trunk(repo)?.tip.clone();
    let Commit { parent, files, .. } = repos.find_commit(base)?;
    let Some(onto) = parent.filter(|onto| repos.is_ancestor(onto, &tip)) else {
        return Ok(false);
    };
    if fixup_tree(repos, &onto, fixup)? != files {
        return Ok(false);
    }
    repos.fixup_bases.insert(attempt, base.clone());
    Ok(true)
}

/// Joins the saved work of a fix-up (an attempt that resolves a conflict) and the conflicting
/// change into one commit on top of the trunk.
pub(super) fn squash(
    repos: &mut FakeRepos,
    attempt: AttemptId,
    capture: Capture,
    authorship: &Authorship,
) -> Result<Capture, GitError> {
    if repos.fixup_bases.get(&attempt) != Some(&capture.base) {
        return Ok(capture);
    }
    let tip = repos.find_commit(&capture.base)?.parent.unwrap();
    let (before, after) = (repos.files_of(&tip), repos.files_of(&capture.commit));
    let changed = changed_paths(&before, &after);
    let commit = repos.commit(
        Some(tip.clone()),
        after,
        &authorship.message,
        authorship.unix_seconds,
    );
    repos.keep(attempt, &commit);
    Ok(Capture {
        commit,
        base: tip,
        changed,
    })
}
