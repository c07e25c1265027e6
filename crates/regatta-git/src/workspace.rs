//! Creates the working trees of agents, each with its own disposable `.git` directory.
//!
//! This module creates the `.git` directory, and from then on the agent may change it. Regatta
//! trusts nothing that an agent can write, so it also stores the base commit and the first index of
//! a workspace outside the workspace.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::pattern::PathPattern;
use regatta_engine::ports::git::{
    CopiedFiles, GitError, ProjectRepo, ReachabilityProof, Workspace, WorkspaceGit,
};

use crate::gitdir::{self, HeadTarget, SparseDirs};
use crate::layout::LockKey;
use crate::vault::base_ref;
use crate::{GitAdapter, disk, errors};

/// The properties of a working tree that is to be created.
pub(crate) struct NewTree<'a> {
    pub(crate) vault: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) commit: &'a CommitId,
    /// The path of Regatta's own git index for the working tree, which the agent cannot write.
    pub(crate) index: &'a Path,
    /// The directories to check out. `None` means all directories.
    pub(crate) sparse: Option<&'a SparseDirs>,
}

impl WorkspaceGit for GitAdapter {
    fn workspace_path(&self, repo: &ProjectRepo, attempt: AttemptId) -> PathBuf {
        self.layout.workspace(&repo.project, attempt)
    }

    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError> {
        self.make_workspace(repo, attempt, branch, || self.refresh_trunk(repo))
    }

    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError> {
        if repo.workspace.copy.is_empty() {
            return Ok(CopiedFiles::default());
        }
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let vault = self.vault(repo)?;
                let workspace = self.layout.workspace(&repo.project, attempt);
                let base = self
                    .find_object(&vault, &base_ref(attempt))?
                    .filter(|_| disk::is_real_dir(&workspace));
                let Some(base) = base else {
                    return Err(errors::no_workspace(attempt, &workspace));
                };
                let Some((mut source, items, mut copied)) =
                    self.files_to_copy(repo, &vault, &base)?
                else {
                    return Ok(CopiedFiles::default());
                };
                let paths = items.iter().map(|item| item.path().to_vec());
                self.add_foreign_paths(repo, attempt, paths, manifest)?;
                self.exclude_foreign_paths(repo, attempt, &workspace)?;
                source.copy_all(&items, &workspace, &mut copied)?;
                Ok(copied)
            })
    }

    fn is_ready(&self, repo: &ProjectRepo, attempt: AttemptId) -> bool {
        self.layout.ready_marker(&repo.project, attempt).exists()
    }

    fn mark_ready(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let tree = self.layout.workspace(&repo.project, attempt);
                let vault = self.vault(repo)?;
                let new_files = self.new_files(repo, attempt, &vault)?;
                self.add_foreign_paths(repo, attempt, new_files.into_iter(), manifest)?;
                self.exclude_foreign_paths(repo, attempt, &tree)?;
                disk::sync_file_system(&tree)?;
                let marker = self.layout.ready_marker(&repo.project, attempt);
                disk::write_synced(&marker, b"")?;
                marker.parent().map_or(Ok(()), disk::sync_dir)
            })
    }

    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError> {
        let attempt = proof.attempt();
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let path = self.layout.workspace(&repo.project, attempt);
                let [removed_dir, new_dir, copy_part] =
                    [".gone", ".new", ".copy"].map(|suffix| disk::hidden_sibling(&path, suffix));
                disk::remove_tree(&removed_dir)?;
                let vault = self.layout.vault(&repo.project);
                let base = if vault.is_dir() {
                    self.find_object(&vault, &base_ref(attempt))?
                } else {
                    None
                };
                if disk::is_occupied(&path) {
                    // Rename the directory first, so that it no longer counts as a workspace while
                    // it is being removed.
                    disk::rename_synced(&path, &removed_dir)?;
                    if let Some(base) = &base {
                        // A directory that is kept for reuse only saves time later, so a failure
                        // here must not prevent the removal of the workspace.
                        let _pooled = self.pool_workspace(repo, attempt, &removed_dir, base);
                    }
                }
                for leftover in [removed_dir, new_dir, copy_part] {
                    disk::remove_tree(&leftover)?;
                }
                self.delete_workspace_records(repo, attempt)?;
                self.discard_measurement(repo);
                if base.is_some() {
                    self.update_refs(&vault, format!("delete {}\n", base_ref(attempt)))?;
                    self.delete_fixup_ref(&vault, attempt)?;
                }
                Ok(())
            })
    }
}

impl GitAdapter {
    /// Creates a workspace. If the workspace already exists, returns it unchanged. `base` returns
    /// the commit from which a new workspace starts.
    pub(crate) fn make_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        base: impl Fn() -> Result<CommitId, GitError>,
    ) -> Result<Workspace, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let vault = self.vault(repo)?;
                let path = self.layout.workspace(&repo.project, attempt);
                if disk::is_real_dir(&path)
                    && let Some(base) = self.find_object(&vault, &base_ref(attempt))?
                {
                    return Ok(Workspace {
                        path,
                        branch: branch.clone(),
                        base,
                        objects: Some(vault.join("objects")),
                    });
                }
                self.move_aside(&path)?;
                let sparse = SparseDirs::parse(&repo.workspace.sparse)?;
                let base = base()?;
                // The workspace is created under another name, and its base commit is recorded
                // before the workspace gets its final name. So a directory with the final name is
                // always complete.
                let temporary = disk::hidden_sibling(&path, ".new");
                let index = self.layout.base_index(&repo.project, attempt);
                self.delete_workspace_records(repo, attempt)?;
                disk::remove_tree(&temporary)?;
                disk::make_dirs(&self.layout.workspaces(&repo.project))?;
                let tree = NewTree {
                    vault: &vault,
                    dir: &temporary,
                    commit: &base,
                    index: &index,
                    sparse: sparse.as_ref(),
                };
                let head = HeadTarget::Branch {
                    name: branch,
                    trunk: &repo.trunk,
                };
                let is_pooled = self.take_pooled(repo, sparse.as_ref(), &temporary, &index)?;
                // If a reused directory of an earlier workspace cannot be updated to the base
                // commit, the workspace is created from nothing.
                if !(is_pooled && self.fill_tree(&tree, &head).is_ok()) {
                    disk::remove_tree(&temporary)?;
                    disk::remove_tree(&index)?;
                    self.fill_tree(&tree, &head)?;
                }
                self.verify_isolation(&temporary)?;
                self.check_out_submodules(repo, &tree)?;
                // Wait until all files are on the disk. Otherwise a power cut could leave a file
                // empty, which would look like a change by the agent.
                disk::sync_file_system(&temporary)?;
                self.update_refs(&vault, format!("update {} {base}\n", base_ref(attempt)))?;
                disk::rename_synced(&temporary, &path)?;
                self.discard_measurement(repo);
                Ok(Workspace {
                    path,
                    branch: branch.clone(),
                    base,
                    objects: Some(vault.join("objects")),
                })
            })
    }

    /// Renames a directory that has the name of a workspace, but for which the vault (Regatta's own
    /// repository) has no base commit. The directory is not deleted, because it may contain work.
    fn move_aside(&self, path: &Path) -> Result<(), GitError> {
        if !disk::is_occupied(path) {
            return Ok(());
        }
        let unused = (1..)
            .map(|number: u32| disk::hidden_sibling(path, &format!(".aside-{number}")))
            .find(|path| !disk::is_occupied(path));
        unused.map_or(Ok(()), |unused_path| {
            disk::rename_synced(path, &unused_path)
        })
    }

    /// Writes the commit's files and a working `.git` into the directory. If the directory already
    /// contains files, and the index describes these files, only the differences are written.
    pub(crate) fn fill_tree(
        &self,
        tree: &NewTree<'_>,
        head: &HeadTarget<'_>,
    ) -> Result<(), GitError> {
        let NewTree {
            vault,
            dir,
            commit,
            index,
            sparse,
        } = *tree;
        let git_dir = dir.join(".git");
        gitdir::make_git_dir(&git_dir, vault, commit, head, sparse)?;
        self.check_out(dir, &git_dir, index, commit)?;
        disk::copy_index(index, &git_dir.join("index"))
            .map_err(|cause| errors::io_error("copy the git index", index, &cause))
    }

    /// Writes the files that differ from the commit, and records their times in Regatta's own
    /// index.
    ///
    /// Must be called only with a git directory that was just created, because an agent may have
    /// written into any other git directory.
    pub(crate) fn check_out(
        &self,
        dir: &Path,
        git_dir: &Path,
        index: &Path,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        self.git
            .in_vault(git_dir, "check out the files")
            .without_sync()
            .work_tree(dir)
            .index(index)
            .args(["read-tree", "--reset", "-u", commit.as_str()])
            .run_expecting_success()
            .map(drop)
    }

    /// Deletes the refs and files about a workspace that does not exist any more.
    fn delete_workspace_records(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        let (project, layout) = (&repo.project, &self.layout);
        let foreign = layout.foreign_list(project, attempt);
        for record in [
            layout.ready_marker(project, attempt),
            foreign.with_extension("foreign-new"),
            foreign,
        ] {
            disk::remove_tree(&record)?;
        }
        disk::remove_tree(&layout.base_index(project, attempt))
    }

    /// Checks that git, when started in the workspace, uses the workspace's own `.git` and not that
    /// of a repository above it.
    pub(crate) fn verify_isolation(&self, dir: &Path) -> Result<(), GitError> {
        let output = self
            .git
            .in_dir(dir, "check that the workspace uses its own git directory")
            .args([
                "rev-parse",
                "--path-format=absolute",
                "--show-toplevel",
                "--git-dir",
                "--git-common-dir",
            ]);
        let output = output.run_expecting_success()?.stdout;
        let real_dir = fs::canonicalize(dir)
            .map_err(|cause| errors::io_error("find the directory", dir, &cause))?;
        let git_dir = real_dir.join(".git");
        let expected = [real_dir.as_path(), &git_dir, &git_dir]
            .map(|path| path.as_os_str().as_bytes())
            .join(&b'\n');
        if output.trim_ascii_end() == expected {
            Ok(())
        } else {
            Err(errors::isolation_failed(dir))
        }
    }
}
