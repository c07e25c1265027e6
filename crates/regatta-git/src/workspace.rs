//! Working trees for agents, each with a disposable `.git` of its own.
//!
//! Such a `.git` is made here and then belongs to the agent. The base and the first index of a
//! workspace are kept in the vault; nothing that an agent can write is ever trusted.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_engine::ports::git::{GitError, ReachabilityProof, Repo, Workspace};

use crate::gitdir::{self, Head, Sparse};
use crate::places::Key;
use crate::vault::base_ref;
use crate::{GitAdapter, disk, words};

/// A working tree to be made.
pub(crate) struct Tree<'a> {
    pub(crate) vault: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) commit: &'a CommitId,
    /// The place of Regatta's own index of it.
    pub(crate) index: &'a Path,
    /// The directories to check out, if not all.
    pub(crate) sparse: Option<&'a Sparse>,
}

impl GitAdapter {
    /// Makes a workspace, or finds it as it is. `base` returns the commit for a new one.
    pub(crate) fn prepare_workspace(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
        base: impl Fn() -> Result<CommitId, GitError>,
    ) -> Result<Workspace, GitError> {
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let vault = self.vault(repo)?;
            let path = self.places.workspace(&repo.project, attempt);
            if disk::is_real_dir(&path)
                && let Some(base) = self.find(&vault, &base_ref(attempt))?
            {
                return Ok(Workspace { path, branch: branch.clone(), base, objects: Some(vault.join("objects")) });
            }
            self.set_aside(&path)?;
            let sparse = Sparse::of(&repo.workspace.sparse)?;
            let base = base()?;
            // The workspace is made under another name, and its base is recorded before the final
            // rename, so that a directory with the final name is complete.
            let new = disk::hidden(&path, ".new");
            let index = self.places.base_index(&repo.project, attempt);
            self.forget(repo, attempt)?;
            disk::remove(&new)?;
            disk::make_dirs(&self.places.workspaces(&repo.project))?;
            let tree = Tree { vault: &vault, dir: &new, commit: &base, index: &index, sparse: sparse.as_ref() };
            let head = Head::Branch { name: branch, trunk: &repo.trunk };
            let warm = self.take_warm(repo, sparse.as_ref(), &new, &index)?;
            // If git cannot update the pooled workspace to the base, a fresh one is made.
            if !(warm && self.fill(&tree, &head).is_ok()) {
                disk::remove(&new)?;
                disk::remove(&index)?;
                self.fill(&tree, &head)?;
            }
            self.verify_isolation(&new)?;
            self.bring_submodules(repo, &tree)?;
            // A file that a power cut emptied would look like the agent's own work.
            disk::sync_everything(&new)?;
            self.update_refs(&vault, format!("update {} {base}\n", base_ref(attempt)))?;
            disk::rename(&new, &path)?;
            self.measure_again(repo);
            Ok(Workspace { path, branch: branch.clone(), base, objects: Some(vault.join("objects")) })
        })
    }

    /// Moves a directory away that has a workspace's name but no base in the vault, because it may
    /// not be destroyed (Q5).
    fn set_aside(&self, path: &Path) -> Result<(), GitError> {
        if !disk::occupied(path) {
            return Ok(());
        }
        let free =
            (1..).map(|number: u32| disk::hidden(path, &format!(".aside-{number}"))).find(|it| !disk::occupied(it));
        free.map_or(Ok(()), |aside| disk::rename(path, &aside))
    }

    /// Fills the directory with the commit's files and a `.git` in which git commands work.
    /// Existing files, with an index that lists them, are only updated.
    pub(crate) fn fill(&self, tree: &Tree<'_>, head: &Head<'_>) -> Result<(), GitError> {
        let Tree { vault, dir, commit, index, sparse } = *tree;
        let git_dir = dir.join(".git");
        gitdir::make(&git_dir, vault, commit, head, sparse)?;
        self.check_out(dir, &git_dir, index, commit)?;
        disk::copy_index(index, &git_dir.join("index")).map_err(|cause| words::io("copy", index, &cause))
    }

    /// Writes the files that differ from the commit, and records their times in Regatta's own
    /// index.
    ///
    /// Use this only for a git directory that was just made, in which nobody else has written yet.
    pub(crate) fn check_out(
        &self,
        dir: &Path,
        git_dir: &Path,
        index: &Path,
        commit: &CommitId,
    ) -> Result<(), GitError> {
        self.git
            .ours(git_dir, "check out the files")
            .unhurried()
            .work_tree(dir)
            .index(index)
            .args(["read-tree", "--reset", "-u", commit.as_str()])
            .done()
            .map(drop)
    }

    /// Removes the records about a workspace that does not exist.
    fn forget(&self, repo: &Repo, attempt: AttemptId) -> Result<(), GitError> {
        let (project, places) = (&repo.project, &self.places);
        let foreign = places.foreign(project, attempt);
        for note in [places.settled(project, attempt), foreign.with_extension("foreign-new"), foreign] {
            disk::remove(&note)?;
        }
        disk::remove(&places.base_index(project, attempt))
    }

    /// Checks that git, started in the workspace, finds the workspace and no repository above it.
    pub(crate) fn verify_isolation(&self, dir: &Path) -> Result<(), GitError> {
        let found = self.git.ours_in(dir, "verify the workspace's isolation").args([
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-dir",
            "--git-common-dir",
        ]);
        let found = found.done()?.stdout;
        let real = fs::canonicalize(dir).map_err(|cause| words::io("find", dir, &cause))?;
        let git_dir = real.join(".git");
        let wanted = [real.as_path(), &git_dir, &git_dir].map(|it| it.as_os_str().as_bytes()).join(&b'\n');
        if found.trim_ascii_end() == wanted { Ok(()) } else { Err(words::isolation_failed(dir)) }
    }

    /// Removes a workspace, or puts it into the pool.
    pub(crate) fn destroy_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError> {
        let attempt = proof.attempt();
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let path = self.places.workspace(&repo.project, attempt);
            let [gone, new, part] = [".gone", ".new", ".copy"].map(|suffix| disk::hidden(&path, suffix));
            disk::remove(&gone)?;
            let vault = self.places.vault(&repo.project);
            let base = if vault.is_dir() { self.find(&vault, &base_ref(attempt))? } else { None };
            if disk::occupied(&path) {
                // Without its name the directory is no workspace any more, however long its removal
                // takes.
                disk::rename(&path, &gone)?;
                if let Some(base) = &base {
                    // Pooling is only an optimisation, so its failure must not prevent the removal.
                    let _warm_or_not = self.park(repo, attempt, &gone, base);
                }
            }
            for rest in [gone, new, part] {
                disk::remove(&rest)?;
            }
            self.forget(repo, attempt)?;
            self.measure_again(repo);
            if base.is_some() {
                self.update_refs(&vault, format!("delete {}\n", base_ref(attempt)))?;
                self.forget_fixup(&vault, attempt)?;
            }
            Ok(())
        })
    }
}
