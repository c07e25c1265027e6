//! Writes the part of a prompt that asks an agent for a fix-up: to repair finished work that
//! conflicts with the trunk, or whose checks fail after the merge. This part names the work to do
//! now, the conflicting paths, the failed check and the tasks that landed in the meantime.

use regatta_core::task::{Conflict, ConflictKind, Fixup, SettledPath, Task};

use crate::Engine;
use crate::perform::{AttemptContext, landed_since};

/// The largest number of landed tasks that the prompt of a fix-up (an attempt that repairs finished
/// work) names.
const MAX_LANDED_NAMED: usize = 12;
/// The largest number of files that the prompt of a fix-up (an attempt that repairs finished work)
/// names for each task.
const MAX_FILES_NAMED: usize = 8;

/// Returns the part of the prompt that explains the fix-up (the repair of finished work), or `None`
/// when the attempt is not a fix-up.
pub(super) fn section(engine: &Engine, context: &AttemptContext) -> Option<String> {
    let fixup = context.task.fixup.as_ref()?;
    let submission = context
        .task
        .submission
        .as_ref()
        .filter(|submission| submission.commit == fixup.commit);
    let base = submission.map_or(&fixup.commit, |submission| &submission.base);
    let since = landed_since(engine, &context.repo, base).unwrap_or_else(|error| {
        tracing::warn!(task = %context.task.id, "could not find the tasks that landed since the \
            work on task {} began, so the prompt for the agent that repairs this work does not \
            name those tasks: {error}",
            context.task.id);
        vec![]
    });
    let mut text = match (fixup.settled.is_empty(), fixup.paths.is_empty()) {
        (false, _) => describe_ownership_merge(fixup),
        (true, false) => describe_marked_conflict(fixup),
        (true, true) => "## FIX-UP\nThe work of this task is done. Your working directory has it, \
                         merged with everything that \
                         landed in the meantime, and the merged tree fails its checks. Make the \
                         checks pass, and keep the \
                         purpose of both sides. Do not do the task again.\n\n"
            .to_owned(),
    };
    if let Some(output) = &fixup.output {
        text += &format!(
            "What failed in the merged tree:\n```\n{}\n```\n\n",
            output.trim_end()
        );
    }
    text += &describe_tasks(fixup, &context.task, &since);
    Some(text)
}

/// Describes the conflicts that git left as conflict marks in the files of the working directory.
fn describe_marked_conflict(fixup: &Fixup) -> String {
    let mut text =
        "## FIX-UP\nThe work of this task is done, but it conflicts with work that landed in the \
                    meantime. Your working \
                    directory has both, merged except for the paths below. Resolve each path so \
                    that the purpose of both \
                    sides holds, and leave no conflict marks. Do not do the task again, and change \
                    nothing else.\n"
            .to_owned();
    for path in &fixup.paths {
        let kind = fixup
            .conflicts
            .iter()
            .find(|conflict| conflict.path == *path);
        text += &format!(
            "- {path}: {}\n",
            describe_path(kind, &fixup.commit.to_string())
        );
    }
    text + "\n"
        + &format!(
            "`git show HEAD~1:PATH` prints the trunk's version of a path, `git show {}:PATH` this \
            task's version.\n\n",
            fixup.commit
        )
}

/// Describes how a conflicting path looks in the working directory, and which decision the agent
/// must make about it.
fn describe_path(conflict: Option<&Conflict>, commit: &str) -> String {
    let marks = "the trunk's lines are between `<<<<<<<` and `=======`, this task's between \
        `=======` and `>>>>>>>`";
    match conflict.map(|conflict| conflict.kind) {
        None | Some(ConflictKind::Content) => marks.to_owned(),
        Some(ConflictKind::Added) => format!("added on both sides; {marks}"),
        Some(ConflictKind::Binary) => {
            "a binary file, changed on both sides; the trunk's version is there, so keep it or \
            put another in its place"
                .to_owned()
        }
        Some(ConflictKind::DeletedOnTrunk) => {
            "the trunk deleted it and this task changed it; this task's version is there, so \
             either delete it and bring \
             its change to where the code went, or keep it"
                .to_owned()
        }
        Some(ConflictKind::DeletedByTask) => {
            "this task deleted it and the trunk changed it; the trunk's version is there, so \
             either delete it and bring \
             the trunk's change to where the code went, or keep it"
                .to_owned()
        }
        Some(ConflictKind::FileAndDirectory) => format!(
            "a file on one side and a directory on the other; the directory is there. See which \
             side has the file with \
             `git cat-file -t HEAD~1:PATH` and `git cat-file -t {commit}:PATH`, and decide where \
             both contents belong"
        ),
        Some(ConflictKind::Type) => {
            "a file on one side, a link or a submodule on the other; the trunk's version is there"
                .to_owned()
        }
        Some(ConflictKind::Renamed) => {
            "renamed on one side; look for it under its other name, and keep both sides' changes \
            in one place"
                .to_owned()
        }
    }
}

/// Describes conflicts in which Regatta took the version of the task that owns the file, so that
/// the files are merged but the checks failed.
fn describe_ownership_merge(fixup: &Fixup) -> String {
    let mut text =
        "## FIX-UP\nThe work of this task is done. It conflicted with work that landed in the \
                    meantime. In each \
                    conflicting file, Regatta took the version of the task that owns the file. The \
                    merged tree fails its \
                    checks; your working directory has it. Make the checks pass by changing only \
                    this task's own files \
                    and the files below, and keep the purpose of both sides. Do not do the task \
                    again.\n"
            .to_owned();
    for SettledPath { path, is_trunks } in &fixup.settled {
        let (taken, other) = if *is_trunks {
            ("the trunk's", "this task's")
        } else {
            ("this task's", "the trunk's")
        };
        text += &format!("- {path}: {taken} version was taken, {other} was dropped\n");
    }
    text + "\n"
        + &format!(
            "`git show HEAD~1:PATH` prints the trunk's version of a path, `git show {}:PATH` this \
            task's version.\n\n",
            fixup.commit
        )
}

/// Lists the tasks on both sides of the conflict: the agent's own task, then the tasks that landed
/// in the meantime (`since`). Tasks that changed the same files come first.
fn describe_tasks(fixup: &Fixup, task: &Task, since: &[Task]) -> String {
    let changed = |other: &Task| {
        other
            .submission
            .as_ref()
            .map(|submission| submission.changed.clone())
            .unwrap_or_default()
    };
    let is_affected = |path: &String| {
        if fixup.paths.is_empty() {
            return task.files.iter().any(|pattern| pattern.matches(path));
        }
        fixup
            .paths
            .iter()
            .any(|own| own == path || path.starts_with(&format!("{own}/")))
    };
    let (same_files, other_files): (Vec<&Task>, Vec<&Task>) = since
        .iter()
        .rev()
        .partition(|task| changed(task).iter().any(is_affected));
    let agent_suffix = |other: &Task| {
        other
            .agent
            .as_ref()
            .map(|agent| format!(" ({agent})"))
            .unwrap_or_default()
    };
    let manifest_of = |other: &Task| {
        let manifest: Vec<String> = other.files.iter().map(ToString::to_string).collect();
        if manifest.is_empty() {
            "no files of its own".to_owned()
        } else {
            manifest.join(", ")
        }
    };
    let mut text = format!(
        "## BOTH SIDES\nThis task's side: {} {}{}, which owns {}\n",
        task.id,
        super::prompt_subject(task),
        agent_suffix(task),
        manifest_of(task)
    );
    if same_files.is_empty() {
        text += "The trunk's side: none of the tasks that landed in the meantime changed these \
                 files\n";
    } else {
        text += "The trunk's side, newest first:\n";
    }
    for other in same_files.iter().take(MAX_LANDED_NAMED) {
        let commit = other
            .landed
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        text += &format!(
            "- {} {}{}, which owns {}: `git show {commit}`\n",
            other.id,
            super::prompt_subject(other),
            agent_suffix(other),
            manifest_of(other)
        );
    }
    if !other_files.is_empty() {
        text += "Other tasks that landed since:\n";
    }
    for other in other_files.iter().take(MAX_LANDED_NAMED) {
        let files = changed(other);
        let named = files
            .iter()
            .take(MAX_FILES_NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        let more = files.len().saturating_sub(MAX_FILES_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        text += &format!(
            "- {} {}: {named}{more}\n",
            other.id,
            super::prompt_subject(other)
        );
    }
    text += &format!(
        "`git log --stat {}..HEAD~1` shows every commit since.\n\n",
        fixup.commit
    );
    text
}

#[cfg(test)]
mod tests {
    use regatta_core::ids::CommitId;

    use super::*;

    fn fixup() -> Fixup {
        Fixup::new(CommitId::new(&"a".repeat(40)).expect("a valid id"))
    }

    #[test]
    fn the_brief_describes_every_kind_of_conflict() {
        let kinds = [
            (ConflictKind::Content, "between `<<<<<<<`"),
            (ConflictKind::Added, "added on both sides"),
            (ConflictKind::Binary, "a binary file"),
            (ConflictKind::DeletedOnTrunk, "the trunk deleted it"),
            (ConflictKind::DeletedByTask, "this task deleted it"),
            (ConflictKind::FileAndDirectory, "a directory on the other"),
            (ConflictKind::Type, "a link or a submodule"),
            (ConflictKind::Renamed, "renamed on one side"),
        ];
        for (kind, words) in kinds {
            let conflicts = vec![Conflict {
                path: "notes".into(),
                kind,
            }];
            let text = describe_marked_conflict(&Fixup {
                paths: vec!["notes".into()],
                conflicts,
                ..fixup()
            });
            assert!(
                text.starts_with("## FIX-UP\n") && text.contains(words),
                "{text}"
            );
            assert!(
                text.contains("- notes: ") && text.contains("`git show HEAD~1:PATH`"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_brief_of_a_conflict_resolved_by_ownership_names_the_version_taken() {
        let taken = vec![SettledPath {
            path: "a.txt".into(),
            is_trunks: true,
        }];
        let text = describe_ownership_merge(&Fixup {
            paths: vec!["a.txt".into()],
            settled: taken,
            ..fixup()
        });
        assert!(
            text.contains("- a.txt: the trunk's version was taken, this task's was dropped"),
            "{text}"
        );
        assert!(!text.contains("<<<<<<<"), "{text}");
    }
}
