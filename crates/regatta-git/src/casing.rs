//! Names that differ by their case alone: two files in a tree, and one where the user's file system keeps no case apart
//! (git says so by `core.ignorecase`). Checked out there, one would overwrite the other.

use std::fs;
use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::difference::Difference;
use crate::inspect::UserRepo;
use crate::odb::{DIRECTORY, Odb};
use crate::run::text_of;
use crate::{GitAdapter, words};

impl UserRepo {
    /// Whether two names that differ by case alone would be one file in its checkout.
    pub(crate) fn mixes_names(&self) -> bool {
        self.folds_case && !self.bare
    }
}

impl GitAdapter {
    /// Whether the repository at `top`, whose shared part is `common`, takes names that differ by case for the same.
    pub(crate) fn folds_case(&self, top: &Path, common: &Path) -> Result<bool, GitError> {
        // Where case counts, which is nearly everywhere here, nothing is said about it and no process is needed.
        let config = fs::read(common.join("config")).unwrap_or_default();
        if !text_of(&config).to_ascii_lowercase().contains("ignorecase") {
            return Ok(false);
        }
        let asked = self.git.users(top, "read core.ignorecase");
        let said = asked.args(["config", "--type=bool", "--get", "core.ignorecase"]).run()?;
        Ok(text_of(&said.stdout).trim() == "true")
    }
}

/// Refuses a commit that brings a name which the user's file system would take for another's. What was so before is the
/// user's own affair.
pub(crate) fn refuse_same_names(odb: &mut Odb, old: &CommitId, new: &CommitId) -> Result<(), GitError> {
    let (old, new) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
    let difference = Difference::between(odb, Some(&old), &new)?;
    for (path, _) in difference.files.iter().filter(|(_, (before, after))| before.is_none() && after.is_some()) {
        if let Some(other) = same_name(odb, &new, path)? {
            return Err(words::same_names(&text_of(path), &text_of(&other)));
        }
    }
    Ok(())
}

/// The beginning of another path of the tree that differs from this one's by case alone.
fn same_name(odb: &mut Odb, tree: &CommitId, path: &[u8]) -> Result<Option<Vec<u8>>, GitError> {
    let (mut tree, mut begin) = (tree.clone(), 0);
    loop {
        let end = path[begin..].iter().position(|it| *it == b'/').map_or(path.len(), |it| begin + it);
        let name = &path[begin..end];
        let folded = text_of(name).to_lowercase();
        let entries = odb.tree(&tree)?;
        if let Some(other) = entries.iter().find(|it| it.name != name && text_of(&it.name).to_lowercase() == folded) {
            return Ok(Some([&path[..begin], &other.name].concat()));
        }
        match entries.into_iter().find(|it| it.name == name && it.mode == DIRECTORY) {
            Some(inner) if end < path.len() => (tree, begin) = (inner.id, end + 1),
            _ => return Ok(None),
        }
    }
}
