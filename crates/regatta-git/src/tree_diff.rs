//! Computes the difference between two git trees. Reads only the directories that differ.

use std::collections::BTreeMap;

use regatta_core::ids::CommitId;
use regatta_core::landing::guard;
use regatta_engine::ports::git::GitError;

use crate::git_command::path_to_text;
use crate::object_store::{DIRECTORY, GITLINK, ObjectStore, TreeEntry};

/// A file in a tree: its mode, and the id of its content.
pub(crate) type TreeFile = (u32, CommitId);

/// The difference between an old and a new git tree.
#[derive(Debug, Default)]
pub(crate) struct TreeDiff {
    /// The changed files by path, each with its version in the old and in the new tree. `None`
    /// means that the file does not exist in that tree.
    pub(crate) files: BTreeMap<Vec<u8>, (Option<TreeFile>, Option<TreeFile>)>,
    /// The ids of all objects of the new tree that are not at the same path in the old tree.
    pub(crate) objects: Vec<CommitId>,
    /// The changed directories that git would treat as a repository. The flag is true if git would
    /// also treat the directory in the old tree as a repository.
    pub(crate) git_directories: Vec<(Vec<u8>, bool)>,
}

/// Returns whether git, on any file system, would treat a directory with these entries as a git
/// repository.
///
/// Git treats a directory as a repository if it contains `HEAD` together with `objects` and `refs`,
/// or `HEAD` together with a file `commondir` that names the place of the other two. Git follows
/// links and also accepts an executable file in place of a directory, so this function compares
/// only the names of the entries.
fn is_git_directory<'a>(entries: impl Iterator<Item = &'a TreeEntry>) -> bool {
    let (mut head, mut objects, mut refs, mut common) = (false, false, false, false);
    for entry in entries {
        let name = guard::fold_name(&path_to_text(&entry.name));
        match name.as_str() {
            "head" => head |= entry.mode != DIRECTORY && entry.mode != GITLINK,
            "objects" => objects = true,
            "refs" => refs = true,
            "commondir" => common = true,
            _ => {}
        }
    }
    head && (common || (objects && refs))
}

impl TreeDiff {
    /// Compares two trees. If `old` is `None`, everything in `new` counts as added.
    pub(crate) fn between(
        odb: &mut ObjectStore,
        old: Option<&CommitId>,
        new: &CommitId,
    ) -> Result<TreeDiff, GitError> {
        let mut diff = TreeDiff::default();
        if old != Some(new) {
            diff.compare_trees(odb, b"", old, Some(new))?;
        }
        Ok(diff)
    }

    fn compare_trees(
        &mut self,
        odb: &mut ObjectStore,
        prefix: &[u8],
        old: Option<&CommitId>,
        new: Option<&CommitId>,
    ) -> Result<(), GitError> {
        self.objects.extend(new.cloned());
        let mut sides: BTreeMap<Vec<u8>, (Option<TreeEntry>, Option<TreeEntry>)> = BTreeMap::new();
        for entry in old.map(|id| odb.tree(id)).transpose()?.unwrap_or_default() {
            let side = sides.entry(entry.name.clone()).or_default();
            side.0 = Some(entry);
        }
        for entry in new.map(|id| odb.tree(id)).transpose()?.unwrap_or_default() {
            let side = sides.entry(entry.name.clone()).or_default();
            side.1 = Some(entry);
        }
        if is_git_directory(sides.values().filter_map(|(_, new)| new.as_ref())) {
            let existed = is_git_directory(sides.values().filter_map(|(old, _)| old.as_ref()));
            let path = prefix.strip_suffix(b"/").unwrap_or(prefix);
            self.git_directories.push((path.to_vec(), existed));
        }
        for (name, (before, after)) in sides {
            if let (Some(before), Some(after)) = (&before, &after)
                && (before.mode, &before.id) == (after.mode, &after.id)
            {
                continue;
            }
            let path = [prefix, &name].concat();
            let is_dir = |entry: &&TreeEntry| entry.mode == DIRECTORY;
            let (old_dir, new_dir) = (
                before.as_ref().filter(is_dir),
                after.as_ref().filter(is_dir),
            );
            if old_dir.is_some() || new_dir.is_some() {
                let inner = [path.as_slice(), b"/"].concat();
                self.compare_trees(
                    odb,
                    &inner,
                    old_dir.map(|entry| &entry.id),
                    new_dir.map(|entry| &entry.id),
                )?;
            }
            let file = |entry: Option<TreeEntry>| {
                entry
                    .filter(|entry| entry.mode != DIRECTORY)
                    .map(|entry| (entry.mode, entry.id))
            };
            let (before, after) = (file(before), file(after));
            if let Some((mode, id)) = &after
                && *mode != GITLINK
                && before.as_ref().is_none_or(|(_, old_id)| old_id != id)
            {
                self.objects.push(id.clone());
            }
            if before.is_some() || after.is_some() {
                self.files.insert(path, (before, after));
            }
        }
        Ok(())
    }
}
