//! Parses the conflicts that `git merge-tree` prints.
//!
//! For each conflicting path git lists up to three versions by stage (1 is the base, 2 the trunk, 3
//! the change), followed by messages of fixed types. If a file collides with a directory or with an
//! entry of another type, git moves the file to an invented name such as `notes~65b4a72`. People
//! and agents do not know the invented name, so the conflict is reported with the original path.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::task::{Conflict, ConflictKind};

use crate::git_command::path_to_text;

/// The conflicts that a merge found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeConflicts {
    /// The conflicting paths as they are named on the trunk or in the change, sorted and without
    /// duplicates.
    pub(crate) conflicts: Vec<Conflict>,
    /// The file names that git invented to avoid a collision, such as `notes~65b4a72`. The tree
    /// that git wrote contains files with these names.
    pub(crate) invented_names: Vec<String>,
}

impl MergeConflicts {
    pub(crate) fn path_names(&self) -> Vec<String> {
        self.conflicts
            .iter()
            .map(|conflict| conflict.path.clone())
            .collect()
    }
}

#[derive(Clone, Debug, Default)]
struct IndexStages {
    /// The mode and object id of the path in the base, on the trunk and in the change. `None`
    /// stands for a version in which the path does not exist.
    entries: [Option<(String, String)>; 3],
}

/// Parses the output of `git merge-tree --write-tree -z --messages`. `fields` are the fields of the
/// output after the id of the tree.
pub(crate) fn parse_conflicts(fields: &[&[u8]]) -> MergeConflicts {
    let mut stages: BTreeMap<String, IndexStages> = BTreeMap::new();
    // An empty field separates the list of conflicting paths from git's messages.
    let end = fields
        .iter()
        .position(|field| field.is_empty())
        .unwrap_or(fields.len());
    for field in &fields[..end] {
        let text = path_to_text(field);
        let Some((head, path)) = text.split_once('\t') else {
            continue;
        };
        let mut head = head.split(' ');
        let (mode, object) = (
            head.next().unwrap_or_default(),
            head.next().unwrap_or_default(),
        );
        let stage = head
            .next()
            .and_then(|stage| stage.parse::<usize>().ok())
            .filter(|stage| (1..=3).contains(stage));
        let Some(stage) = stage else { continue };
        let known = stages.entry(path.to_owned()).or_default();
        known.entries[stage - 1] = Some((mode.to_owned(), object.to_owned()));
    }
    let messages = parse_messages(&fields[(end + 1).min(fields.len())..]);
    let mut kinds: BTreeMap<String, ConflictKind> = BTreeMap::new();
    let mut invented = BTreeSet::new();
    for (path, stages) in &stages {
        let path_messages: Vec<&MergeMessage> = messages
            .iter()
            .filter(|message| message.paths.contains(path))
            .collect();
        let original = path_messages
            .iter()
            .find_map(|message| original_name(path, &message.paths));
        // Git always reports a file that it moved to an invented name, but older versions of git
        // may not report its original path.
        let original = original.or_else(|| original_of_tilde_name(path, stages));
        if let Some(original) = original {
            invented.insert(path.clone());
            let is_type_conflict = path_messages
                .iter()
                .any(|message| message.kind.contains("distinct"));
            kinds.insert(
                original,
                if is_type_conflict {
                    ConflictKind::Type
                } else {
                    ConflictKind::FileAndDirectory
                },
            );
            continue;
        }
        kinds
            .entry(path.clone())
            .or_insert_with(|| conflict_kind(stages, &path_messages));
    }
    let paths = kinds
        .into_iter()
        .map(|(path, kind)| Conflict { path, kind })
        .collect();
    MergeConflicts {
        conflicts: paths,
        invented_names: invented.into_iter().collect(),
    }
}

struct MergeMessage {
    paths: Vec<String>,
    kind: String,
    text: String,
}

/// Parses the messages of `git merge-tree`. Each message consists of the number of paths, the
/// paths, the type and a text.
fn parse_messages(mut fields: &[&[u8]]) -> Vec<MergeMessage> {
    let mut messages = Vec::new();
    while let Some((count, rest)) = fields.split_first() {
        let Ok(count) = path_to_text(count).parse::<usize>() else {
            break;
        };
        if rest.len() < count + 2 {
            break;
        }
        let paths = rest[..count]
            .iter()
            .map(|path| path_to_text(path))
            .collect();
        messages.push(MergeMessage {
            paths,
            kind: path_to_text(rest[count]),
            text: path_to_text(rest[count + 1]),
        });
        fields = &rest[count + 2..];
    }
    messages
}

/// Returns the original path of a file that git moved to an invented name, such as `notes` for
/// `notes~65b4a72`. Returns `None` if git's message (`message_paths`) does not name both paths.
fn original_name(path: &str, message_paths: &[String]) -> Option<String> {
    let (original, _) = path.rsplit_once('~')?;
    message_paths.iter().find(|name| *name == original).cloned()
}

/// Returns the original path of a file whose name ends with a tilde and an object id, if only one
/// side of the merge has the file. In that case git probably invented the name.
fn original_of_tilde_name(path: &str, stages: &IndexStages) -> Option<String> {
    let (original, suffix) = path.rsplit_once('~')?;
    let is_object =
        matches!(suffix.len(), 40 | 64) && suffix.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sides = stages.entries[1..].iter().flatten().count();
    (is_object && sides == 1).then(|| original.to_owned())
}

/// Returns the kind of a conflict, computed from the versions of the path and git's messages about
/// it.
fn conflict_kind(stages: &IndexStages, messages: &[&MergeMessage]) -> ConflictKind {
    let has_message = |word: &str| messages.iter().any(|message| message.kind.contains(word));
    let is_link = |entry: &(String, String)| entry.0 == "120000" || entry.0 == "160000";
    match &stages.entries {
        _ if has_message("rename") => ConflictKind::Renamed,
        _ if has_message("file/directory") => ConflictKind::FileAndDirectory,
        _ if has_message("distinct") => ConflictKind::Type,
        _ if has_message("binary")
            || messages
                .iter()
                .any(|message| message.text.contains("Cannot merge binary")) =>
        {
            ConflictKind::Binary
        }
        [Some(_), Some(_), None] => ConflictKind::DeletedByTask,
        [Some(_), None, Some(_)] => ConflictKind::DeletedOnTrunk,
        [_, Some(ours), Some(theirs)] if is_link(ours) != is_link(theirs) => ConflictKind::Type,
        [None, Some(_), Some(_)] => ConflictKind::Added,
        [Some(_), Some(_), Some(_)] => ConflictKind::Content,
        _ => ConflictKind::Renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> MergeConflicts {
        let all_fields: Vec<&[u8]> = text.split('|').map(str::as_bytes).collect();
        parse_conflicts(&all_fields)
    }

    #[test]
    fn name_invented_by_git_is_reported_as_the_original_path() {
        let object = "65b4a72ac9b99ec3868ffdb44f7cb2def30ee25b";
        let output = format!(
            "100644 aaaa 3\tnotes~{object}||2|notes~{object}|notes|CONFLICT \
            (file/directory)|directory in the way"
        );
        let conflicts = fields(&output);
        assert_eq!(conflicts.path_names(), ["notes"]);
        assert_eq!(conflicts.conflicts[0].kind, ConflictKind::FileAndDirectory);
        assert_eq!(conflicts.invented_names, [format!("notes~{object}")]);
        // A file whose own name has a tilde is not an invented name.
        let conflicts =
            fields("100644 a 1\tx~1|100644 b 2\tx~1|100644 c 3\tx~1||1|x~1|CONFLICT (contents)|x");
        assert_eq!(
            (conflicts.path_names(), conflicts.invented_names.len()),
            (vec!["x~1".to_owned()], 0)
        );
    }

    #[test]
    fn kind_of_a_conflict_follows_from_stages_and_messages() {
        let cases = [
            (
                "100644 a 1\tx|100644 b 2\tx|100644 c 3\tx||1|x|CONFLICT (contents)|m",
                ConflictKind::Content,
            ),
            (
                "100644 a 1\tx|100644 b 2\tx||1|x|CONFLICT (modify/delete)|m",
                ConflictKind::DeletedByTask,
            ),
            (
                "100644 a 1\tx|100644 c 3\tx||1|x|CONFLICT (modify/delete)|m",
                ConflictKind::DeletedOnTrunk,
            ),
            (
                "100644 b 2\tx|100644 c 3\tx||1|x|CONFLICT (contents)|m",
                ConflictKind::Added,
            ),
            (
                "100644 a 1\tx|100644 b 2\tx|100644 c 3\tx||1|x|CONFLICT (binary)|m",
                ConflictKind::Binary,
            ),
            (
                "100644 a 1\tx|100644 b 2\tx|120000 c 3\tx||1|x|CONFLICT (distinct modes)|m",
                ConflictKind::Type,
            ),
            (
                "100644 a 1\tx|100644 b 2\tx||2|x|y|CONFLICT (rename/delete)|m",
                ConflictKind::Renamed,
            ),
        ];
        for (output, kind) in cases {
            let conflicts = fields(output);
            assert_eq!(
                conflicts.conflicts,
                [Conflict {
                    path: "x".into(),
                    kind
                }],
                "{output}"
            );
        }
        assert_eq!(fields(""), MergeConflicts::default());
    }
}
