//! Directories in which what is about to land is validated.

use std::path::PathBuf;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Repo};

use crate::places::Key;
use crate::workspace::Tree;
use crate::{GitAdapter, disk};

impl GitAdapter {
    pub(crate) fn stage_commit(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.locks.holding(Key::Slot(repo.project.clone(), slot), || {
            let vault = self.vault_with(repo, commit)?;
            let path = self.places.staging(&repo.project, slot);
            disk::remove(&path)?;
            let index = self.places.scratch(&repo.project);
            let tree = Tree { vault: &vault, dir: &path, commit, index: index.path() };
            self.fill(&tree, "regatta", format!("update HEAD {commit}\n"))?;
            self.verify_isolation(&path)?;
            Ok(path)
        })
    }

    pub(crate) fn remove_stage(&self, repo: &Repo, slot: u32) -> Result<(), GitError> {
        self.locks
            .holding(Key::Slot(repo.project.clone(), slot), || disk::remove(&self.places.staging(&repo.project, slot)))
    }
}
