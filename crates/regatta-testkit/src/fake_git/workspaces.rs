//! Implements for the fake git the parts of the git interface about workspaces, fix-ups and stored
//! work.

use super::*;

impl WorkspaceGit for FakeGit {
    fn workspace_path(&self, _: &ProjectRepo, attempt: AttemptId) -> PathBuf {
        PathBuf::from(format!("/nowhere/workspaces/{attempt}"))
    }

    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare", |repos| {
            let tip = repos.trunk(repo)?.tip.clone();
            let files = repos.files_of(&tip);
            let workspace = repos
                .workspaces
                .entry(attempt)
                .or_insert_with(|| FakeWorkspace {
                    branch: branch.clone(),
                    base: tip,
                    files,
                    foreign_files: FakeTree::new(),
                    is_ready: false,
                });
            let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
            Ok(Workspace {
                path,
                branch: workspace.branch.clone(),
                base: workspace.base.clone(),
                objects: None,
            })
        })
    }

    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError> {
        self.call("git.bring", |repos| {
            let base = repos.workspace(attempt)?.base.clone();
            let found = repos.files_to_copy(repo, &base);
            let workspace = repos
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", &format!("{attempt} has no workspace")))?;
            let copied = copied_files(&found);
            for (path, content) in found {
                let in_manifest = manifest.iter().any(|pattern| pattern.matches(&path));
                let target = if in_manifest {
                    &mut workspace.files
                } else {
                    &mut workspace.foreign_files
                };
                target.entry(path).or_insert(content);
            }
            Ok(copied)
        })
    }

    fn is_ready(&self, _: &ProjectRepo, attempt: AttemptId) -> bool {
        self.lock()
            .workspaces
            .get(&attempt)
            .is_some_and(|workspace| workspace.is_ready)
    }

    fn mark_ready(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.call("git.settle", |repos| {
            let tracked = repos.files_of(&repos.workspace(attempt)?.base);
            let workspace = repos
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", &format!("{attempt} has no workspace")))?;
            let is_foreign = |path: &String| {
                !tracked.contains_key(path) && !manifest.iter().any(|pattern| pattern.matches(path))
            };
            let (foreign, files) = std::mem::take(&mut workspace.files)
                .into_iter()
                .partition(|(path, _)| is_foreign(path));
            workspace.files = files;
            workspace.foreign_files.extend::<FakeTree>(foreign);
            workspace.is_ready = true;
            Ok(())
        })
    }

    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError> {
        self.call("git.remove_workspace", |repos| {
            let lost = repos.uncaptured_paths(repo, proof.attempt())?;
            if !lost.is_empty() {
                repos.violations.push(format!(
                    "Q5: the workspace of {} was removed with {lost:?} in it",
                    proof.attempt()
                ));
            }
            if repos.workspaces.remove(&proof.attempt()).is_some()
                && repos.pool_size < repo.workspace.pool
            {
                repos.pool_size += 1;
            }
            Ok(())
        })
    }
}

impl FixupGit for FakeGit {
    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare_fixup", |repos| {
            fixup_workspaces::prepare(repos, (repo, attempt), branch, fixup, authorship)
        })
    }

    fn recognise_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        self.call("git.recognise_fixup", |repos| {
            fixup_workspaces::recognise(repos, (repo, attempt), base, fixup)
        })
    }

    fn squash_fixup(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.as_change", |repos| {
            fixup_workspaces::squash(repos, attempt, capture, authorship)
        })
    }
}

impl StorageGit for FakeGit {
    fn kept_attempts(&self, _: &ProjectRepo) -> Result<Vec<AttemptId>, GitError> {
        self.call("git.kept_attempts", |repos| {
            Ok(repos.keep_refs.keys().copied().collect())
        })
    }

    fn forget_dropped(&self, proof: &DroppedProof, _: &ProjectRepo) -> Result<(), GitError> {
        self.call("git.forget_dropped", |repos| {
            repos.keep_refs.remove(&proof.attempt());
            Ok(())
        })
    }

    fn collect_garbage(
        &self,
        _: &ProjectRepo,
        _: &[CommitId],
        _: Duration,
    ) -> Result<(), GitError> {
        self.call("git.collect_garbage", |_| Ok(()))
    }

    /// Returns `None`, because this fake has no files.
    fn objects_dir(&self, _: &ProjectRepo) -> Option<PathBuf> {
        None
    }

    /// Does nothing, because this fake starts no processes.
    fn stop_helpers(&self) {}
}

impl DiskGit for FakeGit {
    /// Returns `None`, because this fake has no disk.
    fn free_disk_mb(&self) -> Option<u64> {
        None
    }

    fn disk_use(&self, _: &ProjectRepo) -> Result<DiskUse, GitError> {
        self.call("git.disk_use", |repos| {
            let size = |files: &FakeTree| {
                files
                    .values()
                    .map(|content| content.len() as u64)
                    .sum::<u64>()
            };
            let live_bytes = repos
                .workspaces
                .values()
                .map(|workspace| size(&workspace.files) + size(&workspace.foreign_files))
                .sum();
            Ok(DiskUse {
                live_bytes,
                pooled_bytes: u64::from(repos.pool_size),
            })
        })
    }

    fn shrink_pool(&self, _: &ProjectRepo, max_workspaces: u64) -> Result<(), GitError> {
        self.call("git.shrink_pool", |repos| {
            repos.pool_size = repos
                .pool_size
                .min(u32::try_from(max_workspaces).unwrap_or(u32::MAX));
            Ok(())
        })
    }
}

impl CollisionGit for FakeGit {
    fn collisions(
        &self,
        _: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        self.call("git.collisions", |repos| {
            collisions::collisions_between(repos, attempts, tip)
        })
    }
}
