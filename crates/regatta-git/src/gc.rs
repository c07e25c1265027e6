//! Deletes work that was dropped long enough ago, and git objects that no ref reaches.
//!
//! No other code of this crate deletes the refs that keep agents' work. Landed commits are kept
//! even if the user's trunk no longer has them. Only two kinds of objects are therefore deleted:
//! work that was dropped long ago, and trial merges that never landed.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{DroppedProof, GitError, ProjectRepo, StorageGit};

use crate::layout::LockKey;
use crate::vault::{base_ref, keep_ref, kept_trunk_ref};
use crate::{GitAdapter, disk, errors};

impl StorageGit for GitAdapter {
    fn objects_dir(&self, repo: &ProjectRepo) -> Option<PathBuf> {
        let objects = self.layout.vault(&repo.project).join("objects");
        objects.is_dir().then_some(objects)
    }

    fn kept_attempts(&self, repo: &ProjectRepo) -> Result<Vec<AttemptId>, GitError> {
        let mut attempts: Vec<AttemptId> = self
            .keep_refs(repo)?
            .iter()
            .filter_map(|name| attempt_of_ref(name))
            .collect();
        attempts.sort_unstable();
        attempts.dedup();
        Ok(attempts)
    }

    fn forget_dropped(&self, proof: &DroppedProof, repo: &ProjectRepo) -> Result<(), GitError> {
        let attempt = proof.attempt();
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let workspace = self.layout.workspace(&repo.project, attempt);
                if disk::is_occupied(&workspace) {
                    return Err(errors::workspace_in_use(attempt, &workspace));
                }
                let refs = self.keep_refs(repo)?;
                let own_refs = refs
                    .iter()
                    .filter(|name| attempt_of_ref(name) == Some(attempt));
                let mut changes: String = own_refs.map(|name| format!("delete {name}\n")).collect();
                let vault = self.vault(repo)?;
                if self.find_object(&vault, &base_ref(attempt))?.is_some() {
                    changes += &format!("delete {}\n", base_ref(attempt));
                }
                if changes.is_empty() {
                    Ok(())
                } else {
                    self.update_refs(&vault, changes)
                }
            })
    }

    fn collect_garbage(
        &self,
        repo: &ProjectRepo,
        landed: &[CommitId],
        unused_for: Duration,
    ) -> Result<(), GitError> {
        let vault = self.vault(repo)?;
        self.refresh_trunk(repo)?;
        let listed = self
            .git
            .in_vault(&vault, "list the objects that the refs reach")
            .args(["rev-list", "--all"])
            .run_for_line()?;
        let reachable: HashSet<&str> = listed.lines().collect();
        let mut changes = String::new();
        for commit in landed.iter().filter(|id| !reachable.contains(id.as_str())) {
            if self
                .find_object(&vault, &format!("{commit}^{{commit}}"))?
                .is_some()
            {
                changes += &format!("update {} {commit}\n", kept_trunk_ref(commit));
            }
        }
        if !changes.is_empty() {
            self.update_refs(&vault, changes)?;
        }
        let prune = self
            .git
            .in_vault(&vault, "collect the vault's garbage")
            .arg("prune");
        prune
            .arg(format!("--expire={}.seconds.ago", unused_for.as_secs()))
            .run_expecting_success()
            .map(drop)
    }

    fn stop_helpers(&self) {
        self.processes.end_all();
    }
}

impl GitAdapter {
    pub(crate) fn keep_refs(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError> {
        let vault = self.layout.vault(&repo.project);
        if !vault.is_dir() {
            return Ok(Vec::new());
        }
        let listed = self
            .git
            .in_vault(&vault, "list the refs of stored work")
            .args(["for-each-ref", "--format=%(refname)", KEEP_REF_PREFIX]);
        Ok(listed.run_for_line()?.lines().map(str::to_owned).collect())
    }
}

const KEEP_REF_PREFIX: &str = "refs/regatta/keep/";

/// Returns the attempt to which a ref belongs, if the ref protects stored work: `keep/A7` for the
/// newest work of attempt A7, or `keep/A7-…` for an earlier state. Returns `None` for any other
/// ref.
pub(crate) fn attempt_of_ref(reference: &str) -> Option<AttemptId> {
    let name = reference.strip_prefix(KEEP_REF_PREFIX)?;
    let attempt = name.split('-').next()?.parse().ok()?;
    let attempt_ref = keep_ref(attempt);
    (reference == attempt_ref
        || reference
            .strip_prefix(&attempt_ref)
            .is_some_and(|suffix| suffix.starts_with('-')))
    .then_some(attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_ref_belongs_to_the_attempt_in_its_name() {
        let attempt_of = |name: &str| attempt_of_ref(&format!("{KEEP_REF_PREFIX}{name}"));
        assert_eq!(attempt_of("A7"), Some(AttemptId(7)));
        assert_eq!(attempt_of("A7-0123456789ab"), Some(AttemptId(7)));
        for other in ["trunk-0123", "A", "7x", "A7/x", ""] {
            assert_eq!(attempt_of(other), None, "{other}");
        }
        assert_eq!(attempt_of_ref("refs/regatta/base/A7"), None);
    }
}
