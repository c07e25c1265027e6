//! Manages the vault. This is Regatta's own bare git repository of a project.
//!
//! The vault contains:
//! - the trunk as it was last fetched from the user's repository (`refs/regatta/trunk`)
//! - the base commits of the workspaces (`refs/regatta/base/<attempt>`)
//! - all stored work of agents (`refs/regatta/keep/…`)
//!
//! The vault has its own copies of all objects, so it loses nothing when commits in the user's
//! repository are removed or rewritten.

use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, GitError, ProjectRepo};

use crate::layout::LockKey;
use crate::{GitAdapter, disk, errors};

/// The ref in the vault (Regatta's own repository) that names the newest fetched commit of the
/// user's trunk. Moving this ref does not move the user's trunk.
pub(crate) const TRUNK_REF: &str = "refs/regatta/trunk";

pub(crate) fn base_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/base/{attempt}")
}

pub(crate) fn keep_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/keep/{attempt}")
}

/// Returns the ref that protects the trunk's old commit after somebody rewrote the trunk, or after
/// Regatta rebased the trunk onto a remote's trunk.
pub(crate) fn kept_trunk_ref(old: &CommitId) -> String {
    format!("refs/regatta/keep/trunk-{old}")
}

/// The number of the new trunk's newest commits among which the old trunk is searched without
/// starting git.
const MAX_NEAR_COMMITS: usize = 16;

/// Returns git's option for creating a repository whose object ids have the same length as `id`.
pub(crate) fn object_format(id: &CommitId) -> &'static str {
    if id.as_str().len() == 64 {
        "--object-format=sha256"
    } else {
        "--object-format=sha1"
    }
}

impl GitAdapter {
    /// Returns the path of the project's vault (Regatta's own repository), and creates the vault if
    /// it does not exist.
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

    /// Creates the project's vault (Regatta's own repository) with the object format of `tip`.
    /// `fill` must write the first objects and refs into the new vault. After that, the vault gets
    /// its final name.
    pub(crate) fn make_vault(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        fill: impl FnOnce(&Path) -> Result<(), GitError>,
    ) -> Result<PathBuf, GitError> {
        let vault = self.layout.vault(&repo.project);
        // The vault is created under another name and then renamed, so that a vault (Regatta's own
        // repository) with the final name is always complete. A directory that a crash left under
        // the other name was never used, so it is removed.
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
        // Allow git in the user's repository to fetch a commit by its id, because no ref of the
        // vault (Regatta's own repository) names the commit of a landing before the trunk moves.
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

    /// Fetches the user's trunk into the vault (Regatta's own repository), and returns the trunk's
    /// newest commit.
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
                // The commits that Regatta landed were created in this vault (Regatta's own
                // repository), so they need not be fetched. But git writes a small number of
                // objects one by one, commits first, so an interrupted fetch may leave a commit
                // without its files. If the marker shows that a power cut interrupted a fetch,
                // everything is fetched again.
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
                // The user's trunk may have moved during the fetch, so return the commit that was
                // fetched and not the one that was read before.
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

    /// Returns a command for `git update-ref` that creates a ref for the trunk's old commit, if
    /// somebody rewrote the trunk. Landed commits must stay stored even if the user's trunk no
    /// longer contains them (invariant Q3). Returns an empty string if nobody rewrote the trunk.
    fn keep_rewritten_trunk(
        &self,
        vault: &Path,
        before: Option<&CommitId>,
        tip: &CommitId,
    ) -> Result<String, GitError> {
        let Some(before) = before else {
            return Ok(String::new());
        };
        // The new trunk is usually only a few commits ahead of the old trunk. Check this case
        // first, because it needs no new git process.
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

    /// Returns the path of the vault (Regatta's own repository) after making sure that it has
    /// `commit`. If necessary, fetches the user's trunk to find the commit there.
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

    /// Returns the id of the object with this name in the vault (Regatta's own repository), or
    /// `None` if there is no such object. `name` must be a full ref name or an object id.
    pub(crate) fn find_object(
        &self,
        vault: &Path,
        name: &str,
    ) -> Result<Option<CommitId>, GitError> {
        self.with_object_store(vault, |odb| odb.find_object(name))
    }

    /// Returns the id of a commit's tree.
    pub(crate) fn tree_of_commit(
        &self,
        vault: &Path,
        commit: &CommitId,
    ) -> Result<CommitId, GitError> {
        self.with_object_store(vault, |odb| odb.commit(commit))
            .map(|commit| commit.tree)
    }

    /// Writes a commit into the vault (Regatta's own repository) and waits until it is on the disk.
    /// The same arguments always give the same commit.
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

    /// Changes several refs of the vault (Regatta's own repository) in one transaction, and waits
    /// until their names are on the disk.
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

/// The arguments of a `git fetch` that transfers objects and changes nothing else.
pub(crate) const FETCH_OPTIONS: [&str; 8] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    // If the user's repository is a shallow clone, the history in the vault (Regatta's own
    // repository) must end at the same commits.
    "--update-shallow",
    "--end-of-options",
];
