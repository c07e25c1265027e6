//! The vault: Regatta's own bare repository of a project.
//!
//! It holds the trunk as fetched from the user (`refs/regatta/trunk`), the bases of the workspaces
//! (`refs/regatta/base/<attempt>`) and everything that was ever captured (`refs/regatta/keep/…`).
//! It has its own copies of all objects, so nothing in it is lost when the user's repository drops
//! or rewrites commits.

use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, GitError, ProjectRepo};

use crate::layout::LockKey;
use crate::{GitAdapter, disk, errors};

/// The trunk as last seen in the user's repository. It is a copy, so moving it does not affect the
/// user.
pub(crate) const TRUNK_REF: &str = "refs/regatta/trunk";

pub(crate) fn base_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/base/{attempt}")
}

pub(crate) fn keep_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/keep/{attempt}")
}

/// Returns the ref that keeps the old trunk after it was rewritten or rebased onto a remote's.
pub(crate) fn kept_trunk_ref(old: &CommitId) -> String {
    format!("refs/regatta/keep/trunk-{old}")
}

/// The largest number of commits that are searched for a trunk's last tip before git is called.
const MAX_NEAR_COMMITS: usize = 16;

/// Returns git's option for the object format with ids of this length.
pub(crate) fn object_format(id: &CommitId) -> &'static str {
    if id.as_str().len() == 64 {
        "--object-format=sha256"
    } else {
        "--object-format=sha1"
    }
}

impl GitAdapter {
    /// Returns the project's vault, and creates it if there is none.
    pub(crate) fn vault(&self, repo: &ProjectRepo) -> Result<PathBuf, GitError> {
        self.locks
            .with_lock(LockKey::Vault(repo.project.clone()), || {
                self.vault_under_lock(repo)
            })
    }

    fn vault_under_lock(&self, repo: &ProjectRepo) -> Result<PathBuf, GitError> {
        let vault = self.layout.vault(&repo.project);
        if vault.is_dir() {
            return Ok(vault);
        }
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        self.make_vault(repo, &tip, |temporary| {
            self.fetch_trunk(temporary, &user.common_dir, repo)
        })
    }

    /// Creates the project's vault with the object format of `tip`. `fill` fills it before it gets
    /// its final name.
    pub(crate) fn make_vault(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        fill: impl FnOnce(&Path) -> Result<(), GitError>,
    ) -> Result<PathBuf, GitError> {
        let vault = self.layout.vault(&repo.project);
        // Created under another name and renamed, so that a crash leaves no partial vault. A
        // leftover of a crash was never used.
        let temporary = self.layout.vault_in_creation(&repo.project);
        disk::remove_tree(&temporary)?;
        disk::make_dirs(&temporary)?;
        let (config, text) = self.git.global_config();
        if !config.exists() {
            disk::write_synced(config, text.as_bytes())?;
        }
        self.git
            .in_dir(&temporary, "create the vault")
            .args(["init", "--quiet", "--bare", "--template="])
            .arg(object_format(tip))
            .run_expecting_success()?;
        // A landing's commit is fetched by its id, because no ref has it until it has landed.
        disk::append(
            &temporary.join("config"),
            b"[uploadpack]\n\tallowAnySHA1InWant = true\n",
        )?;
        disk::make_dirs(&temporary.join("info"))?;
        disk::write_synced(&temporary.join("info").join("exclude"), b".regatta/\n")?;
        disk::make_dirs(&temporary.join("regatta"))?;
        fill(&temporary)?;
        disk::sync_objects(&temporary)?;
        disk::rename_synced(&temporary, &vault)?;
        Ok(vault)
    }

    /// Updates the vault to the user's trunk and returns its tip.
    pub(crate) fn refresh_trunk(&self, repo: &ProjectRepo) -> Result<CommitId, GitError> {
        self.locks
            .with_lock(LockKey::Vault(repo.project.clone()), || {
                let vault = self.vault_under_lock(repo)?;
                let user = self.discover_at(&repo.path)?;
                let tip = self.trunk_tip(&user, repo)?;
                let before = self.find_object(&vault, TRUNK_REF)?;
                if before.as_ref() == Some(&tip) {
                    return Ok(tip);
                }
                // Landed commits were made in this vault, so they need not be fetched back. The
                // exception is a fetch that a power cut interrupted: it may have left a commit
                // without its files, because git unpacks a few objects one by one and commits come
                // first.
                let marker = self.layout.fetch_marker(&vault);
                if !marker.exists()
                    && self
                        .find_object(&vault, &format!("{tip}^{{commit}}"))?
                        .is_some()
                {
                    let keep = self.keep_rewritten_trunk(&vault, before.as_ref(), &tip)?;
                    self.update_refs(&vault, format!("{keep}update {TRUNK_REF} {tip}\n"))?;
                    return Ok(tip);
                }
                disk::write_synced(&marker, b"")?;
                disk::sync_dir(marker.parent().unwrap_or(&vault))?;
                self.fetch_trunk(&vault, &user.common_dir, repo)?;
                disk::sync_objects(&vault)?;
                disk::remove_tree(&marker)?;
                // The trunk may have moved since, so the fetched commit counts.
                let tip = self
                    .find_object(&vault, TRUNK_REF)?
                    .ok_or_else(|| errors::no_such_branch(&repo.trunk, &user.top))?;
                let keep = self.keep_rewritten_trunk(&vault, before.as_ref(), &tip)?;
                if !keep.is_empty() {
                    self.update_refs(&vault, keep)?;
                }
                Ok(tip)
            })
    }

    /// Returns the ref update that keeps the old trunk if somebody rewrote it, because landed
    /// commits are kept even if the user's trunk drops them (Q3).
    fn keep_rewritten_trunk(
        &self,
        vault: &Path,
        before: Option<&CommitId>,
        tip: &CommitId,
    ) -> Result<String, GitError> {
        let Some(before) = before else {
            return Ok(String::new());
        };
        // The new trunk is usually a few commits ahead of the old one, which is found without a
        // process.
        let is_near = self.with_object_store(vault, |odb| {
            let mut commit = tip.clone();
            for _ in 0..MAX_NEAR_COMMITS {
                match odb.commit(&commit)?.parents.first() {
                    Some(parent) if parent == before => return Ok(true),
                    Some(parent) => commit = parent.clone(),
                    None => return Ok(false),
                }
            }
            Ok(false)
        })?;
        if is_near || self.history_contains(vault, tip, before)? {
            return Ok(String::new());
        }
        Ok(format!("update {} {before}\n", kept_trunk_ref(before)))
    }

    fn fetch_trunk(&self, vault: &Path, user: &Path, repo: &ProjectRepo) -> Result<(), GitError> {
        self.git
            .in_vault(vault, "fetch the trunk into the vault")
            .args(FETCH_OPTIONS)
            .arg(user)
            .arg(format!("+refs/heads/{}:{TRUNK_REF}", repo.trunk))
            .run_expecting_success()
            .map(drop)
            .map_err(|error| {
                let grafts = [user.join("info/grafts"), user.join(".git/info/grafts")];
                if grafts.iter().any(|file| file.exists()) {
                    errors::grafted(user, &error)
                } else {
                    error
                }
            })
    }

    /// Returns the vault with `commit` in it, after looking for the commit on the user's trunk if
    /// necessary.
    pub(crate) fn vault_with(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<PathBuf, GitError> {
        let vault = self.vault(repo)?;
        let exists = || {
            self.find_object(&vault, &format!("{commit}^{{commit}}"))
                .map(|id| id.is_some())
        };
        if !exists()? {
            self.refresh_trunk(repo)?;
            if !exists()? {
                return Err(errors::no_such_commit(commit));
            }
        }
        Ok(vault)
    }

    /// Returns the object with this name in the vault, if any. The name is a full ref or an id that
    /// this crate made.
    pub(crate) fn find_object(
        &self,
        vault: &Path,
        name: &str,
    ) -> Result<Option<CommitId>, GitError> {
        self.with_object_store(vault, |odb| odb.find_object(name))
    }

    /// Returns the tree of a commit.
    pub(crate) fn tree_of_commit(
        &self,
        vault: &Path,
        commit: &CommitId,
    ) -> Result<CommitId, GitError> {
        self.with_object_store(vault, |odb| odb.commit(commit))
            .map(|commit| commit.tree)
    }

    /// Makes a commit that depends only on the arguments, and waits until it is on disk.
    pub(crate) fn commit_tree(
        &self,
        vault: &Path,
        tree: &CommitId,
        parents: &[&CommitId],
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.with_object_store(vault, |odb| {
            let commit = odb.write_commit(tree, parents, authorship)?;
            odb.adopt()?;
            Ok(commit)
        })
    }

    /// Changes refs of the vault in one transaction, and waits until their names are on disk.
    pub(crate) fn update_refs(&self, vault: &Path, changes: String) -> Result<(), GitError> {
        self.git
            .in_vault(vault, "update the vault's refs")
            .args(["update-ref", "--stdin"])
            .input(changes.into())
            .run_expecting_success()?;
        for folder in ["base", "keep", "dropped"] {
            let folder = vault.join("refs").join("regatta").join(folder);
            if folder.is_dir() {
                disk::sync_dir(&folder)?;
            }
        }
        Ok(())
    }
}

/// The options of a fetch that brings objects and nothing else.
pub(crate) const FETCH_OPTIONS: [&str; 8] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    // A vault of a shallow clone is shallow at the same commits.
    "--update-shallow",
    "--end-of-options",
];
