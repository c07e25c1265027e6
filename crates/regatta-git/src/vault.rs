//! The vault: Regatta's own bare repository of a project.
//!
//! It holds what was fetched from the user's trunk (`refs/regatta/trunk`), where each workspace started
//! (`refs/regatta/base/<attempt>`) and everything ever captured (`refs/regatta/keep/…`). Its objects are its own:
//! whatever the user's repository drops, forgets or rewrites, nothing here goes away.

use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, GitError, Repo};

use crate::places::Key;
use crate::{GitAdapter, disk, words};

/// The trunk as last seen in the user's repository. A copy: moving it moves nothing of the user's.
pub(crate) const SEEN: &str = "refs/regatta/trunk";

pub(crate) fn base_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/base/{attempt}")
}

pub(crate) fn keep_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/keep/{attempt}")
}

/// The ref that keeps what the trunk was before it was rewritten, or brought onto a remote's.
pub(crate) fn kept_trunk(old: &CommitId) -> String {
    format!("refs/regatta/keep/trunk-{old}")
}

/// How far back a trunk's last tip is looked for before git is asked.
const NEAR: usize = 16;

/// The object format that ids of this length belong to.
pub(crate) fn object_format(id: &CommitId) -> &'static str {
    if id.as_str().len() == 64 { "--object-format=sha256" } else { "--object-format=sha1" }
}

impl GitAdapter {
    /// Finds the project's vault, or makes it.
    pub(crate) fn vault(&self, repo: &Repo) -> Result<PathBuf, GitError> {
        self.locks.holding(Key::Vault(repo.project.clone()), || self.vault_held(repo))
    }

    fn vault_held(&self, repo: &Repo) -> Result<PathBuf, GitError> {
        let vault = self.places.vault(&repo.project);
        if vault.is_dir() {
            return Ok(vault);
        }
        let user = self.discover_at(&repo.path)?;
        let tip = self.trunk_tip(&user, repo)?;
        self.make_vault(repo, &tip, |new| self.fetch_trunk(new, &user.common, repo))
    }

    /// Makes the project's vault, whose objects are named like `tip`, and has it filled before it is there.
    pub(crate) fn make_vault(
        &self,
        repo: &Repo,
        tip: &CommitId,
        fill: impl FnOnce(&Path) -> Result<(), GitError>,
    ) -> Result<PathBuf, GitError> {
        let vault = self.places.vault(&repo.project);
        // Made aside and renamed, so that a crash leaves no half of one; nobody has worked in what it left.
        let new = self.places.unborn_vault(&repo.project);
        disk::remove(&new)?;
        disk::make_dirs(&new)?;
        let (config, text) = self.git.global_config();
        if !config.exists() {
            disk::write(config, text.as_bytes())?;
        }
        self.git
            .ours_in(&new, "create the vault")
            .args(["init", "--quiet", "--bare", "--template="])
            .arg(object_format(tip))
            .done()?;
        // A landing's commit is fetched by its id: it is on no ref until it has landed.
        disk::append(&new.join("config"), b"[uploadpack]\n\tallowAnySHA1InWant = true\n")?;
        disk::make_dirs(&new.join("info"))?;
        disk::write(&new.join("info").join("exclude"), b".regatta/\n")?;
        disk::make_dirs(&new.join("regatta"))?;
        fill(&new)?;
        disk::sync_objects(&new)?;
        disk::rename(&new, &vault)?;
        Ok(vault)
    }

    /// Brings the vault up to the user's trunk and gives its tip.
    pub(crate) fn refresh(&self, repo: &Repo) -> Result<CommitId, GitError> {
        self.locks.holding(Key::Vault(repo.project.clone()), || {
            let vault = self.vault_held(repo)?;
            let user = self.discover_at(&repo.path)?;
            let tip = self.trunk_tip(&user, repo)?;
            let before = self.find(&vault, SEEN)?;
            if before.as_ref() == Some(&tip) {
                return Ok(tip);
            }
            // What landed was made here: whoever starts next need not wait until it is fetched back.
            // Unless a fetch was ended by a power cut: it may have left a commit without its files, since git unpacks a
            // few objects one by one and commits come first.
            let begun = self.places.fetching(&vault);
            if !begun.exists() && self.find(&vault, &format!("{tip}^{{commit}}"))?.is_some() {
                let keep = self.keep_if_dropped(&vault, before.as_ref(), &tip)?;
                self.update_refs(&vault, format!("{keep}update {SEEN} {tip}\n"))?;
                return Ok(tip);
            }
            disk::write(&begun, b"")?;
            disk::sync_dir(begun.parent().unwrap_or(&vault))?;
            self.fetch_trunk(&vault, &user.common, repo)?;
            disk::sync_objects(&vault)?;
            disk::remove(&begun)?;
            // The trunk may have moved on meanwhile: what was fetched is what counts.
            let tip = self.find(&vault, SEEN)?.ok_or_else(|| words::no_such_branch(&repo.trunk, &user.top))?;
            let keep = self.keep_if_dropped(&vault, before.as_ref(), &tip)?;
            if !keep.is_empty() {
                self.update_refs(&vault, keep)?;
            }
            Ok(tip)
        })
    }

    /// The order that keeps what the trunk was, if somebody rewrote it: what landed stays, whatever the user's trunk lets
    /// go of (Q3).
    fn keep_if_dropped(&self, vault: &Path, before: Option<&CommitId>, tip: &CommitId) -> Result<String, GitError> {
        let Some(before) = before else { return Ok(String::new()) };
        // What landed stands on what was there: a few steps back, and no process.
        let near = self.with_odb(vault, |odb| {
            let mut at = tip.clone();
            for _ in 0..NEAR {
                match odb.commit(&at)?.parents.first() {
                    Some(parent) if parent == before => return Ok(true),
                    Some(parent) => at = parent.clone(),
                    None => return Ok(false),
                }
            }
            Ok(false)
        })?;
        if near || self.contains(vault, tip, before)? {
            return Ok(String::new());
        }
        Ok(format!("update {} {before}\n", kept_trunk(before)))
    }

    fn fetch_trunk(&self, vault: &Path, user: &Path, repo: &Repo) -> Result<(), GitError> {
        self.git
            .ours(vault, "fetch the trunk into the vault")
            .args(FETCH)
            .arg(user)
            .arg(format!("+refs/heads/{}:{SEEN}", repo.trunk))
            .done()
            .map(drop)
            .map_err(|error| {
                let grafts = [user.join("info/grafts"), user.join(".git/info/grafts")];
                if grafts.iter().any(|file| file.exists()) { words::grafted(user, &error) } else { error }
            })
    }

    /// Makes sure that the vault has `commit`, looking for it on the user's trunk if need be.
    pub(crate) fn vault_with(&self, repo: &Repo, commit: &CommitId) -> Result<PathBuf, GitError> {
        let vault = self.vault(repo)?;
        let has = || self.find(&vault, &format!("{commit}^{{commit}}")).map(|it| it.is_some());
        if !has()? {
            self.refresh(repo)?;
            if !has()? {
                return Err(words::no_such_commit(commit));
            }
        }
        Ok(vault)
    }

    /// The object that `name` names in the vault, if any. The name is one of ours: a ref in full or an id.
    pub(crate) fn find(&self, vault: &Path, name: &str) -> Result<Option<CommitId>, GitError> {
        self.with_odb(vault, |odb| odb.find(name))
    }

    /// The tree of a commit.
    pub(crate) fn tree_of(&self, vault: &Path, commit: &CommitId) -> Result<CommitId, GitError> {
        self.with_odb(vault, |odb| odb.commit(commit)).map(|it| it.tree)
    }

    /// Makes a commit that only the arguments determine, and waits until it is on disk.
    pub(crate) fn commit_tree(
        &self,
        vault: &Path,
        tree: &CommitId,
        parents: &[&CommitId],
        by: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.with_odb(vault, |odb| {
            let commit = odb.write_commit(tree, parents, by)?;
            odb.adopt()?;
            Ok(commit)
        })
    }

    /// Changes refs of the vault in one transaction, and waits until their names are on disk.
    pub(crate) fn update_refs(&self, vault: &Path, changes: String) -> Result<(), GitError> {
        self.git.ours(vault, "update the vault's refs").args(["update-ref", "--stdin"]).input(changes.into()).done()?;
        for folder in ["base", "keep", "dropped"] {
            let folder = vault.join("refs").join("regatta").join(folder);
            if folder.is_dir() {
                disk::sync_dir(&folder)?;
            }
        }
        Ok(())
    }
}

/// A fetch that brings objects and does nothing else.
pub(crate) const FETCH: [&str; 8] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    // A shallow clone of the user's gives a vault that is shallow at the same commits.
    "--update-shallow",
    "--end-of-options",
];
