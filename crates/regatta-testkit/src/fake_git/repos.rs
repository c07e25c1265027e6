//! The commits, trunks and merges of the fake git.

use super::*;

impl FakeRepos {
    /// Creates a commit. The same input gives the same commit id, as the engine requires of git.
    pub(super) fn commit(
        &mut self,
        parent: Option<CommitId>,
        files: FakeTree,
        message: &str,
        seconds: u64,
    ) -> CommitId {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &parent, &files, message, seconds).hash(&mut hasher);
            hasher.finish()
        };
        let id = CommitId::new(&format!(
            "{:016x}{:016x}{:08x}",
            hash(1),
            hash(2),
            hash(3) as u32
        ))
        .unwrap();
        self.commits.insert(
            id.clone(),
            Commit {
                parent,
                merged_parent: None,
                message: message.to_owned(),
                files,
            },
        );
        id
    }

    /// Saves a commit as work of an attempt, unless it is already the newest saved commit.
    pub(super) fn keep(&mut self, attempt: AttemptId, commit: &CommitId) {
        let kept = self.keep_refs.entry(attempt).or_default();
        if kept.last() != Some(commit) {
            kept.push(commit.clone());
        }
    }

    pub(super) fn find_commit(&self, commit: &CommitId) -> Result<Commit, GitError> {
        self.commits
            .get(commit)
            .cloned()
            .ok_or_else(|| git_error("no_such_commit", &format!("there is no commit {commit}")))
    }

    /// Returns whether `old` is `new` or one of its ancestors.
    pub(super) fn is_ancestor(&self, old: &CommitId, new: &CommitId) -> bool {
        let mut pending = vec![new.clone()];
        while let Some(id) = pending.pop() {
            if id == *old {
                return true;
            }
            pending.extend(
                self.commits
                    .get(&id)
                    .into_iter()
                    .flat_map(|commit| [&commit.parent, &commit.merged_parent])
                    .flatten()
                    .cloned(),
            );
        }
        false
    }

    /// Returns `commit` if the history of `tip` contains it, or else the commit in that history that
    /// replaced `commit` in a rebase of the trunk.
    pub(super) fn current_form_of(&self, tip: &CommitId, commit: &CommitId) -> Option<CommitId> {
        let mut form = commit;
        while !self.is_ancestor(form, tip) {
            form = self.rebased.get(form)?;
        }
        Some(form.clone())
    }

    /// Merges one change onto `tip`, and creates the resulting commit.
    pub(super) fn trial_merge(
        &mut self,
        tip: &CommitId,
        AuthoredChange { commit, authorship }: &AuthoredChange,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        let ours = self.files_of(tip);
        let merged = match self.merge_onto(tip, commit)? {
            Err(paths) => return Ok(TrialMerge::Conflict(paths)),
            Ok(merged) if merged == ours => return Ok(TrialMerge::Empty),
            Ok(merged) => merged,
        };
        let new = self.commit(
            Some(tip.clone()),
            merged,
            &authorship.message,
            authorship.unix_seconds,
        );
        if style == CommitStyle::Merge
            && let Some(made) = self.commits.get_mut(&new)
        {
            made.merged_parent = Some(commit.clone());
        }
        Ok(TrialMerge::Clean(new))
    }

    /// Returns the untracked files of the user's checkout that the project's setting
    /// `workspace.copy` names and that `commit` does not have.
    pub(super) fn files_to_copy(&self, repo: &ProjectRepo, commit: &CommitId) -> FakeTree {
        let tracked = self.files_of(commit);
        let patterns = &repo.workspace.copy;
        let untracked = self.untracked_files.get(&repo.path);
        untracked
            .into_iter()
            .flatten()
            .filter(|(path, _)| patterns.iter().any(|pattern| pattern.matches(path)))
            .filter(|(path, _)| !tracked.contains_key(*path))
            .map(|(path, content)| (path.clone(), content.clone()))
            .collect()
    }

    /// Merges the changes of a commit onto the commit `tip`. The common base of the merge is the
    /// commit's parent. The inner `Err` lists the conflicting paths.
    pub(super) fn merge_onto(
        &self,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<Result<FakeTree, Vec<String>>, GitError> {
        let Commit {
            parent: Some(base),
            files: theirs,
            ..
        } = self.find_commit(commit)?
        else {
            return Err(git_error(
                "no_such_commit",
                &format!("commit {commit} has no parent to merge from"),
            ));
        };
        Ok(merge_trees(
            &self.files_of(&base),
            &self.files_of(tip),
            &theirs,
        ))
    }

    pub(super) fn files_of(&self, commit: &CommitId) -> FakeTree {
        self.commits
            .get(commit)
            .map(|commit| commit.files.clone())
            .unwrap_or_default()
    }

    pub(super) fn trunk(&self, repo: &ProjectRepo) -> Result<&Trunk, GitError> {
        self.trunks.get(&repo.path).ok_or_else(|| {
            git_error(
                "not_a_repository",
                &format!("there is no repository at {}", repo.path.display()),
            )
        })
    }

    pub(super) fn workspace(&self, attempt: AttemptId) -> Result<&FakeWorkspace, GitError> {
        self.workspaces
            .get(&attempt)
            .ok_or_else(|| git_error("no_workspace", &format!("{attempt} has no workspace")))
    }

    /// Returns the files of a workspace that would be lost with the workspace, because no saved
    /// work, trunk or base commit has their content.
    pub(super) fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        let Some(workspace) = self.workspaces.get(&attempt) else {
            return Ok(vec![]);
        };
        let mut kept_trees: Vec<FakeTree> = self
            .keep_refs
            .get(&attempt)
            .into_iter()
            .flatten()
            .map(|id| self.files_of(id))
            .collect();
        kept_trees.push(self.files_of(&self.trunk(repo)?.tip));
        kept_trees.push(self.files_of(&workspace.base));
        let is_lost = |(path, content): &(&String, &String)| {
            !kept_trees
                .iter()
                .any(|tree| tree.get(*path) == Some(content))
        };
        Ok(workspace
            .files
            .iter()
            .filter(is_lost)
            .map(|(path, _)| path.clone())
            .collect())
    }

    /// Checks a move of a trunk, and records every rule of landing that the move breaks.
    pub(super) fn check_trunk_move(
        &mut self,
        permit: &TrunkPermit,
        old: &CommitId,
        new: &CommitId,
    ) {
        let mut faults = Vec::new();
        if !self.ever_staged.contains(new) {
            faults.push(format!("Q1: {new} was never staged"));
        }
        for command in &self.required_checks {
            if !self.passed_checks.contains(&(new.clone(), command.clone())) {
                faults.push(format!("Q1: `{command}` did not pass on {new}"));
            }
        }
        if !self.is_ancestor(old, new) {
            faults.push(format!("Q2: {new} does not follow {old}"));
        }
        if self.trunk_moves.iter().any(|trunk_move| {
            trunk_move.project == *permit.project() && trunk_move.fencing_token >= permit.fence()
        }) {
            faults.push(format!(
                "L6: fence {} is not newer than the last one",
                permit.fence()
            ));
        }
        if self
            .trunk_moves
            .iter()
            .any(|trunk_move| trunk_move.landing == permit.landing())
        {
            faults.push(format!("Q7: {} moved the trunk before", permit.landing()));
        }
        self.violations.extend(
            faults
                .into_iter()
                .map(|fault| format!("{}: {fault}", permit.landing())),
        );
    }
}

/// Returns the paths whose content differs between two trees, sorted.
pub(super) fn changed_paths(before: &FakeTree, after: &FakeTree) -> Vec<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect()
}

/// Returns the number and size of files that were copied.
pub(super) fn copied_files(files: &FakeTree) -> CopiedFiles {
    CopiedFiles {
        files: files.len() as u64,
        bytes: files.values().map(|content| content.len() as u64).sum(),
        skipped: vec![],
    }
}

/// Returns the kind of a conflict from the content of the path in the common base, on the trunk and
/// in the change.
pub(super) fn conflict_kind(
    base: Option<&String>,
    ours: Option<&String>,
    theirs: Option<&String>,
) -> ConflictKind {
    match (base, ours, theirs) {
        (_, None, _) => ConflictKind::DeletedOnTrunk,
        (_, _, None) => ConflictKind::DeletedByTask,
        (None, Some(_), Some(_)) => ConflictKind::Added,
        (Some(_), Some(_), Some(_)) => ConflictKind::Content,
    }
}

/// Merges two trees with a common base, file by file. `Err` lists the files that both sides changed
/// differently.
pub(super) fn merge_trees(
    base: &FakeTree,
    ours: &FakeTree,
    theirs: &FakeTree,
) -> Result<FakeTree, Vec<String>> {
    let mut merged = FakeTree::new();
    let mut conflicts = Vec::new();
    let paths: BTreeSet<&String> = base
        .keys()
        .chain(ours.keys())
        .chain(theirs.keys())
        .collect();
    for path in paths {
        let (old, our, their) = (base.get(path), ours.get(path), theirs.get(path));
        let content = if our == their || their == old {
            our
        } else if our == old {
            their
        } else {
            conflicts.push(path.clone());
            continue;
        };
        if let Some(content) = content {
            merged.insert(path.clone(), content.clone());
        }
    }
    if conflicts.is_empty() {
        Ok(merged)
    } else {
        Err(conflicts)
    }
}
