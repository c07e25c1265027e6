//! Merges three git trees (the base and two sides) without starting a git process, if the two sides
//! changed different files.
//!
//! This module handles only merges with one possible result: for every name, at most one side
//! differs from the base, or both sides made the same edit. A directory that differs on both sides
//! is merged recursively. So the result is always exactly the result of git.
//! `tests/git/tree_merge.rs` compares the results.
//!
//! Git must handle all other cases, because git also searches for renames:
//! - a file that both sides edited differently
//! - a file that one side edited and the other side moved
//! - a name that both sides created
//! - a file that both sides removed or moved

use std::collections::BTreeMap;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::object_store::{DIRECTORY, ObjectStore, TreeEntry};

/// The versions of one entry of a directory: in the base of a merge and on both sides. `None` where
/// the entry does not exist.
#[derive(Default)]
struct ThreeWayEntry {
    base: Option<TreeEntry>,
    ours: Option<TreeEntry>,
    theirs: Option<TreeEntry>,
}

/// The result of merging one entry of a directory.
enum MergedEntry {
    Removed,
    Existing(TreeEntry),
    /// A directory that must be merged from both sides: its name and its merged entries.
    Dir(Vec<u8>, Vec<MergedEntry>),
    /// This module cannot merge the entry, so git must do the whole merge.
    Undecided,
}

/// Merges the trees with the ids `base`, `ours` and `theirs`. Returns the id of the merged tree, or
/// `None` if git must do the merge. In this case nothing was written.
pub(crate) fn merge_by_entry(
    odb: &mut ObjectStore,
    base: &CommitId,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<Option<CommitId>, GitError> {
    if theirs == base {
        return Ok(Some(ours.clone()));
    }
    if ours == base {
        return Ok(Some(theirs.clone()));
    }
    match merge_directory(odb, Some(base), ours, theirs)? {
        Some(names) => write_directory(odb, names).map(|(tree, _)| Some(tree)),
        None => Ok(None),
    }
}

/// Merges a directory that differs on both sides. Returns `None` if git must do the merge.
fn merge_directory(
    odb: &mut ObjectStore,
    base: Option<&CommitId>,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<Option<Vec<MergedEntry>>, GitError> {
    let mut names: BTreeMap<Vec<u8>, ThreeWayEntry> = BTreeMap::new();
    let mut sides = odb
        .trees([Some(ours), Some(theirs), base].into_iter().flatten())?
        .into_iter();
    for entry in sides.next().unwrap_or_default() {
        let name = names.entry(entry.name.clone()).or_default();
        name.ours = Some(entry);
    }
    for entry in sides.next().unwrap_or_default() {
        let name = names.entry(entry.name.clone()).or_default();
        name.theirs = Some(entry);
    }
    for entry in sides.next().unwrap_or_default() {
        let name = names.entry(entry.name.clone()).or_default();
        name.base = Some(entry);
    }
    let mut merged_names = Vec::with_capacity(names.len());
    for name in names.into_values() {
        match merge_entry(odb, name)? {
            MergedEntry::Undecided => return Ok(None),
            merged => merged_names.push(merged),
        }
    }
    Ok(Some(merged_names))
}

/// Merges one entry of a directory from its versions in the base and on both sides.
fn merge_entry(odb: &mut ObjectStore, name: ThreeWayEntry) -> Result<MergedEntry, GitError> {
    let ThreeWayEntry { base, ours, theirs } = name;
    let entry_of =
        |side: Option<TreeEntry>| side.map_or(MergedEntry::Removed, MergedEntry::Existing);
    if theirs == base {
        return Ok(entry_of(ours));
    }
    if ours == base {
        return Ok(entry_of(theirs));
    }
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return Ok(MergedEntry::Undecided);
    };
    let is_dir = |entry: &TreeEntry| entry.mode == DIRECTORY;
    if is_dir(&ours) && is_dir(&theirs) && base.as_ref().is_none_or(is_dir) {
        // A directory that both sides changed in the same way must also be merged entry by entry.
        // If both sides removed a file from it, each side may have moved the file to a different
        // place, and git must merge such a case.
        let merged = merge_directory(
            odb,
            base.as_ref().map(|entry| &entry.id),
            &ours.id,
            &theirs.id,
        )?;
        return Ok(merged.map_or(MergedEntry::Undecided, |names| {
            MergedEntry::Dir(ours.name, names)
        }));
    }
    // Check whether both sides of the merge made the same edit to a file that exists in the base.
    let is_same_edit =
        ours == theirs && !is_dir(&ours) && base.is_some_and(|entry| !is_dir(&entry));
    Ok(if is_same_edit {
        MergedEntry::Existing(ours)
    } else {
        MergedEntry::Undecided
    })
}

/// Writes a merged directory as a git tree. Returns the id of the tree, and the number of entries
/// in it.
fn write_directory(
    odb: &mut ObjectStore,
    names: Vec<MergedEntry>,
) -> Result<(CommitId, usize), GitError> {
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        match name {
            MergedEntry::Removed | MergedEntry::Undecided => {}
            MergedEntry::Existing(entry) => entries.push(entry),
            MergedEntry::Dir(name, inner) => match write_directory(odb, inner)? {
                (_, 0) => {} // git stores no empty directories
                (id, _) => entries.push(TreeEntry {
                    mode: DIRECTORY,
                    name,
                    id,
                }),
            },
        }
    }
    let count = entries.len();
    Ok((odb.write_tree(entries)?, count))
}
