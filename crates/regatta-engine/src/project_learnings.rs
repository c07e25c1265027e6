//! The learnings of a project: the files of its `[knowledge] paths`, and the facts that finished
//! tasks reported.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::perform::AttemptContext;
use crate::{Engine, artifacts};

/// One fact about the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learning {
    /// The path of the file, or the task that reported it.
    pub(crate) source: String,
    pub(crate) text: String,
}

/// The largest number of files that are read, and the size limit of each.
const MAX_FILES: usize = 300;
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Returns all learnings: the project's files as they are in the user's checkout, then the facts
/// that tasks reported.
pub(crate) fn all_learnings(engine: &Engine, scene: &AttemptContext) -> Vec<Learning> {
    let mut found = Vec::new();
    for path in &scene.project.settings.knowledge.paths {
        let plain = Path::new(path)
            .components()
            .all(|component| matches!(component, std::path::Component::Normal(_)));
        if plain {
            collect_files(&scene.repo.path, &scene.repo.path.join(path), &mut found);
        }
    }
    found.extend(reported_learnings(engine, &scene.project));
    found
}

/// One line of the file of reported facts.
#[derive(serde::Serialize, serde::Deserialize)]
struct ReportedLearning {
    task: String,
    learning: String,
}

/// Returns the file of a project's reported facts, if there is a data directory.
fn learnings_file(engine: &Engine, project: &Project) -> Option<PathBuf> {
    Some(
        engine
            .shared
            .settings
            .data_dir
            .as_ref()?
            .join("learnings")
            .join(format!("{}.jsonl", project.name)),
    )
}

/// Returns the facts that finished tasks reported, newest first.
fn reported_learnings(engine: &Engine, project: &Project) -> Vec<Learning> {
    let Some(text) =
        learnings_file(engine, project).and_then(|path| std::fs::read_to_string(path).ok())
    else {
        return vec![];
    };
    let read = |line: &str| serde_json::from_str::<ReportedLearning>(line).ok();
    let newest = text.lines().rev().filter_map(read).take(MAX_FILES);
    newest
        .map(|reported_learning| Learning {
            source: format!("reported by {}", reported_learning.task),
            text: reported_learning.learning,
        })
        .collect()
}

/// Stores the facts that a task reported, for later tasks. A known fact is not stored again.
pub(crate) fn store_learnings(
    engine: &Engine,
    project: &Project,
    task: &Task,
    learnings: &[String],
) {
    let Some(place) = learnings_file(engine, project) else {
        return;
    };
    for learning in learnings
        .iter()
        .filter(|learning| !learning.trim().is_empty())
        .take(20)
    {
        let learning: String = learning.trim().chars().take(2_000).collect();
        let line = serde_json::to_string(&ReportedLearning {
            task: task.id.to_string(),
            learning,
        });
        let done = line
            .map_err(std::io::Error::other)
            .and_then(|line| artifacts::append_once(&place, &line));
        if let Err(error) = done {
            tracing::warn!(task = %task.id, "could not store a learning of the task: {error}");
        }
    }
}

/// Reads the text files below a path, sorted by name. Does not follow links.
fn collect_files(top: &Path, path: &Path, found: &mut Vec<Learning>) {
    let Ok(kind) = path.symlink_metadata() else {
        return;
    };
    if kind.is_dir() {
        let Ok(entries) = path.read_dir() else { return };
        let mut entries: Vec<PathBuf> = entries
            .filter_map(|result| result.ok().map(|entry| entry.path()))
            .collect();
        entries.sort();
        for entry in entries {
            if found.len() >= MAX_FILES {
                return;
            }
            collect_files(top, &entry, found);
        }
        return;
    }
    let text = path.extension().is_some_and(|name| {
        ["md", "txt", "json", "jsonl", "toml"]
            .iter()
            .any(|known| name == *known)
    });
    if kind.is_file()
        && text
        && kind.len() <= MAX_FILE_BYTES
        && let Ok(text) = std::fs::read_to_string(path)
    {
        let from = path.strip_prefix(top).unwrap_or(path).display().to_string();
        found.push(Learning { source: from, text });
    }
}

/// Returns the learnings that share most words with `about`, at most `most`. Leaves out those that
/// share none.
pub(crate) fn best_matches(learnings: &[Learning], about: &str, most: usize) -> Vec<Learning> {
    let wanted = significant_words(about);
    let mut scored: Vec<(usize, &Learning)> = learnings
        .iter()
        .map(|learning| {
            let theirs = significant_words(&format!("{} {}", learning.source, learning.text));
            (wanted.intersection(&theirs).count(), learning)
        })
        .filter(|learning| learning.0 > 0)
        .collect();
    // The sort is stable, so equal scores keep the order of the files and the same input gives the
    // same briefing.
    scored.sort_by_key(|scored| std::cmp::Reverse(scored.0));
    scored
        .into_iter()
        .take(most)
        .map(|scored| scored.1.clone())
        .collect()
}

/// Returns the significant words of a text in lower case.
fn significant_words(text: &str) -> HashSet<String> {
    const STOP_WORDS: [&str; 22] = [
        "the", "and", "for", "with", "that", "this", "from", "into", "are", "not", "you", "its",
        "was", "has", "have", "all", "but", "can", "src", "when", "must", "should",
    ];
    text.split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|text| text.chars().count() > 2 && !STOP_WORDS.contains(&text.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_matching_learnings_come_first_and_unrelated_ones_are_left_out() {
        let learning = |from: &str, text: &str| Learning {
            source: from.into(),
            text: text.into(),
        };
        let all = [
            learning("a.md", "tokens expire after an hour"),
            learning("b.md", "login uses tokens and sessions"),
            learning("c.md", "the colour of the button"),
            learning(
                "d.md",
                "sessions of the login page, with tokens that expire",
            ),
        ];
        let names = |about: &str, most| {
            best_matches(&all, about, most)
                .into_iter()
                .map(|learning| learning.source)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("Login: expire sessions, refresh tokens", 3),
            ["d.md", "b.md", "a.md"]
        );
        assert_eq!(names("Login: expire sessions, refresh tokens", 1), ["d.md"]);
        assert!(names("the and for", 3).is_empty() && names("database", 3).is_empty());
    }
}
