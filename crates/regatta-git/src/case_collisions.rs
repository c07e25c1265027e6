//! Finds file names that differ only in upper and lower case. A git tree can contain both names.
//! But on a file system that ignores case (`core.ignorecase` in git's configuration) both names
//! mean the same file. At a checkout, one file would then overwrite the other.

use std::fs;
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::git_command::path_to_text;
use crate::object_store::{DIRECTORY, ObjectStore};
use crate::tree_diff::TreeDiff;
use crate::user_repo::UserRepo;
use crate::{GitAdapter, errors};

impl UserRepo {
    /// Returns whether two names that differ only in case would be the same file in the user's
    /// checkout.
    pub(crate) fn confuses_case(&self) -> bool {
        self.folds_case && !self.is_bare
    }
}

impl GitAdapter {
    /// Returns whether the repository at `top` treats names that differ only in case as equal.
    /// `common` is the git directory that its working trees share.
    pub(crate) fn repo_folds_case(&self, top: &Path, common: &Path) -> Result<bool, GitError> {
        // On a case-sensitive file system the configuration file does not contain the setting
        // `ignorecase`, so git need not be started to read the setting.
        let config = fs::read(common.join("config")).unwrap_or_default();
        if !path_to_text(&config)
            .to_ascii_lowercase()
            .contains("ignorecase")
        {
            return Ok(false);
        }
        let call = self
            .git
            .in_checkout(top, "read the git setting core.ignorecase");
        let output = call
            .args(["config", "--type=bool", "--get", "core.ignorecase"])
            .run()?;
        Ok(path_to_text(&output.stdout).trim() == "true")
    }
}

/// Returns an error if the commit `new` adds a file name that the user's file system would confuse
/// with another name. Names that already exist in `old` are not checked.
pub(crate) fn refuse_case_collisions(
    odb: &mut ObjectStore,
    old: &CommitId,
    new: &CommitId,
) -> Result<(), GitError> {
    let (old, new) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
    let difference = TreeDiff::between(odb, Some(&old), &new)?;
    for (path, _) in difference
        .files
        .iter()
        .filter(|(_, (before, after))| before.is_none() && after.is_some())
    {
        if let Some(other) = case_collision(odb, &new, path)? {
            return Err(errors::case_collision(
                &path_to_text(path),
                &path_to_text(&other),
            ));
        }
    }
    Ok(())
}

/// Finds a name in the tree that differs only in case from a component of `path`. Returns the path
/// up to this name, or `None` if the tree has no such name.
fn case_collision(
    odb: &mut ObjectStore,
    tree: &CommitId,
    path: &[u8],
) -> Result<Option<Vec<u8>>, GitError> {
    let (mut tree, mut start) = (tree.clone(), 0);
    loop {
        let end = path[start..]
            .iter()
            .position(|byte| *byte == b'/')
            .map_or(path.len(), |length| start + length);
        let name = &path[start..end];
        let folded = path_to_text(name).to_lowercase();
        let entries = odb.tree(&tree)?;
        if let Some(other) = entries
            .iter()
            .find(|entry| entry.name != name && path_to_text(&entry.name).to_lowercase() == folded)
        {
            return Ok(Some([&path[..start], &other.name].concat()));
        }
        match entries
            .into_iter()
            .find(|entry| entry.name == name && entry.mode == DIRECTORY)
        {
            Some(inner) if end < path.len() => (tree, start) = (inner.id, end + 1),
            _ => return Ok(None),
        }
    }
}
