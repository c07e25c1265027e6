//! Working trees for agents and for validation, each with a disposable `.git` of its own.
//!
//! Such a `.git` is made here and then belongs to whoever works in the tree. Where a workspace started, and what
//! its index was, is kept in the vault; nothing an agent can write is ever read back as truth.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_engine::ports::git::{GitError, ReachabilityProof, Repo, Workspace};

use crate::places::Key;
use crate::vault::{base_ref, object_format};
use crate::{GitAdapter, disk, words};

/// A working tree to be made.
pub(crate) struct Tree<'a> {
    pub(crate) vault: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) commit: &'a CommitId,
    /// Where our own index of it goes.
    pub(crate) index: &'a Path,
}

impl GitAdapter {
    pub(crate) fn prepare_workspace(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
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
            let base = self.refresh(repo)?;
            // Made under another name, with its base recorded before it gets its own: what has the name is whole.
            let new = disk::hidden(&path, ".new");
            disk::remove(&new)?;
            let index = self.places.base_index(&repo.project, attempt);
            disk::remove(&index)?;
            // The trunk's name means something there too, so that `git diff main` works.
            let names = BTreeSet::from([branch, &repo.trunk]);
            let refs = names.iter().map(|it| format!("update refs/heads/{it} {base}\n")).collect();
            self.fill(&Tree { vault: &vault, dir: &new, commit: &base, index: &index }, branch.as_str(), refs)?;
            self.verify_isolation(&new)?;
            // A file that a power cut emptied would look like the agent's own work.
            disk::sync_everything(&new)?;
            self.update_refs(&vault, format!("update {} {base}\n", base_ref(attempt)))?;
            disk::rename(&new, &path)?;
            Ok(Workspace { path, branch: branch.clone(), base, objects: Some(vault.join("objects")) })
        })
    }

    /// Moves away what has a workspace's name but no base in the vault. It is not ours to destroy (Q5).
    fn set_aside(&self, path: &Path) -> Result<(), GitError> {
        if !disk::occupied(path) {
            return Ok(());
        }
        let free =
            (1..).map(|number: u32| disk::hidden(path, &format!(".aside-{number}"))).find(|it| !disk::occupied(it));
        free.map_or(Ok(()), |aside| disk::rename(path, &aside))
    }

    /// Makes the directory with the commit's files and a `.git` in which git commands work.
    ///
    /// The checkout is done through the vault, so that our index knows the files' times.
    pub(crate) fn fill(&self, tree: &Tree<'_>, branch: &str, refs: String) -> Result<(), GitError> {
        let Tree { vault, dir, commit, index } = *tree;
        disk::make_dirs(dir)?;
        self.git
            .ours_in(dir, "create the workspace's git directory")
            .unhurried()
            .args(["init", "--quiet", "--template=", object_format(commit)])
            .arg(format!("--initial-branch={branch}"))
            .arg("--end-of-options")
            .arg(dir)
            .done()?;
        let git_dir = dir.join(".git");
        disk::make_dirs(&git_dir.join("info"))?;
        disk::make_dirs(&git_dir.join("objects").join("info"))?;
        let mut alternates = vault.join("objects").as_os_str().as_bytes().to_vec();
        alternates.push(b'\n');
        disk::write_unhurried(&git_dir.join("objects").join("info").join("alternates"), &alternates)?;
        disk::write_unhurried(&git_dir.join("info").join("exclude"), b".regatta/\n")?;
        disk::append(&git_dir.join("config"), CONFIG.as_bytes())?;
        let shallow = vault.join("shallow");
        if shallow.exists() {
            fs::copy(&shallow, git_dir.join("shallow")).map_err(|cause| words::io("copy", &shallow, &cause))?;
        }
        self.git
            .ours(&git_dir, "start the workspace's branch")
            .unhurried()
            .args(["update-ref", "--no-deref", "--stdin"])
            .input(refs.into())
            .done()?;
        self.git
            .ours(vault, "check out the files")
            .unhurried()
            .work_tree(dir)
            .index(index)
            .args(["read-tree", "--reset", "-u", commit.as_str()])
            .done()?;
        disk::copy_index(index, &git_dir.join("index")).map_err(|cause| words::io("copy", index, &cause))
    }

    /// Checks that git, started in the workspace, finds the workspace and nothing above it.
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

    pub(crate) fn destroy_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError> {
        let attempt = proof.attempt();
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let path = self.places.workspace(&repo.project, attempt);
            let (gone, new) = (disk::hidden(&path, ".gone"), disk::hidden(&path, ".new"));
            disk::remove(&gone)?;
            if disk::occupied(&path) {
                // Once it has lost its name it is no workspace any more, however long its removal takes.
                disk::rename(&path, &gone)?;
            }
            disk::remove(&gone)?;
            disk::remove(&new)?;
            disk::remove(&self.places.base_index(&repo.project, attempt))?;
            let vault = self.places.vault(&repo.project);
            if vault.is_dir() && self.find(&vault, &base_ref(attempt))?.is_some() {
                self.update_refs(&vault, format!("delete {}\n", base_ref(attempt)))?;
            }
            Ok(())
        })
    }
}

/// What an agent's own `git commit` needs; the agent may change it.
const CONFIG: &str = "[user]\n\tname = Regatta agent\n\temail = agent@regatta.invalid\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = false\n";
