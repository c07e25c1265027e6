//! Finds changed paths that are not plain files, such as links and submodules. The module
//! `landing::guard` of `regatta_core` decides which of these changes may land.

use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_engine::ports::git::GitError;

use crate::git_command::path_to_text;
use crate::object_store::{GITLINK, ObjectStore};
use crate::tree_diff::{TreeDiff, TreeFile};

const SYMLINK: u32 = 0o120_000;
/// The maximum number of bytes of a symbolic link's target that are stored with submitted work. No
/// file system follows a longer target.
const MAX_TARGET_BYTES: usize = 4096;

/// Returns whether a check of the change `whole` also covers one of its intermediate commits,
/// `step`. For every path that `step` changes, `whole` must also change this path, and `step` must
/// leave a plain file there or the same entry as `whole`.
pub(crate) fn is_covered_by(whole: &TreeDiff, step: &TreeDiff) -> bool {
    let is_shown = |path: &Vec<u8>, after: &Option<TreeFile>| match (whole.files.get(path), after) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some((_, end)), Some(file)) => match file_kind(file) {
            FileKind::Plain => true,
            FileKind::Executable => end
                .as_ref()
                .is_some_and(|end| file_kind(end) == FileKind::Executable),
            _ => end.as_ref() == Some(file),
        },
    };
    step.git_directories.is_empty()
        && step
            .files
            .iter()
            .all(|(path, (_, after))| is_shown(path, after))
}

fn file_kind(file: &TreeFile) -> FileKind {
    match file.0 {
        SYMLINK => FileKind::Symlink,
        GITLINK => FileKind::Submodule,
        mode if mode & 0o111 != 0 => FileKind::Executable,
        _ => FileKind::Plain,
    }
}

/// Lists those changed paths of a difference between two git trees that are not plain files, sorted
/// by path.
pub(crate) fn special_files(
    odb: &mut ObjectStore,
    difference: &TreeDiff,
) -> Result<Vec<SpecialFile>, GitError> {
    let mut special = Vec::new();
    for (path, (old, new)) in &difference.files {
        let (before, after) = (old.as_ref().map(file_kind), new.as_ref().map(file_kind));
        let is_plain = |kind: &FileKind| *kind == FileKind::Plain;
        let is_edited_executable = before == Some(FileKind::Executable) && after == before;
        if is_edited_executable || (before.iter().all(is_plain) && after.iter().all(is_plain)) {
            continue;
        }
        let target = match new.as_ref().or(old.as_ref()) {
            Some((GITLINK, id)) => Some(id.to_string()),
            Some((SYMLINK, id)) => {
                let mut target = odb.blob(id)?;
                target.truncate(MAX_TARGET_BYTES);
                Some(path_to_text(&target))
            }
            _ => None,
        };
        special.push(SpecialFile {
            path: path_to_text(path),
            before,
            after,
            target,
            unpublished: false,
        });
    }
    for (path, existed) in &difference.git_directories {
        let before = existed.then_some(FileKind::GitDirectory);
        let after = Some(FileKind::GitDirectory);
        special.push(SpecialFile {
            path: path_to_text(path),
            before,
            after,
            target: None,
            unpublished: false,
        });
    }
    special.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(special)
}
