//! Merges three trees whose sides changed different files, without a git process.
//!
//! It handles only the unambiguous cases: for every name, at most one side differs from the base,
//! or both made the same edit. A directory that differs on both sides is merged recursively.
//! Everything else is left to git with its search for renames: content that both edited, a file
//! that one side edited and the other moved away, the same name created twice, and a file that is
//! gone on both sides, which may have been moved to two places. The result is therefore exactly
//! what git would have made; `tests/git/weave.rs` compares the two.

use std::collections::BTreeMap;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::odb::{DIRECTORY, Entry, Odb};

/// The three versions of one name.
#[derive(Default)]
struct Name {
    base: Option<Entry>,
    ours: Option<Entry>,
    theirs: Option<Entry>,
}

/// The merged version of a name.
enum Woven {
    Gone,
    Is(Entry),
    /// A directory that is merged from both sides.
    Dir(Vec<u8>, Vec<Woven>),
    /// Git must decide.
    Open,
}

/// Returns the tree with both sides' changes; all arguments are trees. Returns nothing where git
/// must decide, and then nothing was written.
pub(crate) fn weave(
    odb: &mut Odb,
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
    match directory(odb, Some(base), ours, theirs)? {
        Some(names) => write(odb, names).map(|it| Some(it.0)),
        None => Ok(None),
    }
}

/// Merges a directory that differs on both sides. Returns nothing where git must decide.
fn directory(
    odb: &mut Odb,
    base: Option<&CommitId>,
    ours: &CommitId,
    theirs: &CommitId,
) -> Result<Option<Vec<Woven>>, GitError> {
    let mut names: BTreeMap<Vec<u8>, Name> = BTreeMap::new();
    let mut sides = odb.trees([Some(ours), Some(theirs), base].into_iter().flatten())?.into_iter();
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
    let mut woven = Vec::with_capacity(names.len());
    for name in names.into_values() {
        match merge(odb, name)? {
            Woven::Open => return Ok(None),
            it => woven.push(it),
        }
    }
    Ok(Some(woven))
}

/// Merges the three versions of one name.
fn merge(odb: &mut Odb, name: Name) -> Result<Woven, GitError> {
    let Name { base, ours, theirs } = name;
    let take = |side: Option<Entry>| side.map_or(Woven::Gone, Woven::Is);
    if theirs == base {
        return Ok(take(ours));
    }
    if ours == base {
        return Ok(take(theirs));
    }
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return Ok(Woven::Open) };
    let is_dir = |it: &Entry| it.mode == DIRECTORY;
    if is_dir(&ours) && is_dir(&theirs) && base.as_ref().is_none_or(is_dir) {
        // Even equal directories are merged, because a file that is gone from both may have been
        // moved to two places.
        let woven = directory(odb, base.as_ref().map(|it| &it.id), &ours.id, &theirs.id)?;
        return Ok(woven.map_or(Woven::Open, |it| Woven::Dir(ours.name, it)));
    }
    // Both sides made the same edit of a file that existed before.
    let same = ours == theirs && !is_dir(&ours) && base.is_some_and(|it| !is_dir(&it));
    Ok(if same { Woven::Is(ours) } else { Woven::Open })
}

/// Writes a directory. Returns its tree and the number of names in it.
fn write(odb: &mut Odb, names: Vec<Woven>) -> Result<(CommitId, usize), GitError> {
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        match name {
            Woven::Gone | Woven::Open => {}
            Woven::Is(entry) => entries.push(entry),
            Woven::Dir(name, inner) => match write(odb, inner)? {
                (_, 0) => {} // git stores no empty directories
                (id, _) => entries.push(Entry { mode: DIRECTORY, name, id }),
            },
        }
    }
    let left = entries.len();
    Ok((odb.write_tree(entries)?, left))
}
