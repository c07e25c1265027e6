//! Collects facts about a project that help later tasks ("learnings"): the files that the setting
//! `[knowledge] paths` names, and the facts that finished tasks reported.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use regatta_core::project::Project;
use regatta_core::task::Task;

use crate::perform::AttemptContext;
use crate::{Engine, artifacts};

/// One fact about the project, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learning {
    /// The path of the file that contains the fact, or the id of the task that reported it.
    pub(crate) source: String,
    pub(crate) text: String,
}

/// The largest number of the project's files from which facts for later tasks are read. The same
/// limit applies to the facts that tasks reported.
const MAX_FILES: usize = 300;
/// The largest size in bytes of one of the project's files from which facts for later tasks are
/// read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Returns all known facts: the contents of the project's files as they are in the user's checkout,
/// then the facts that tasks reported.
pub(crate) fn all_learnings(engine: &Engine, context: &AttemptContext) -> Vec<Learning> {
    let mut learnings = Vec::new();
    for path in &context.project.settings.knowledge.paths {
        let is_plain = Path::new(path)
            .components()
            .all(|component| matches!(component, std::path::Component::Normal(_)));
        if is_plain {
            collect_files(
                &context.repo.path,
                &context.repo.path.join(path),
                &mut learnings,
            );
        }
    }
    learnings.extend(reported_learnings(engine, &context.project));
    learnings
}

/// One line of the file that stores the facts that tasks reported.
#[derive(serde::Serialize, serde::Deserialize)]
struct ReportedLearning {
    task: String,
    learning: String,
}

/// Returns the path of the file that stores the facts reported in a project, or `None` without a
/// data directory.
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

/// Returns the facts that finished tasks of the project reported, newest first.
fn reported_learnings(engine: &Engine, project: &Project) -> Vec<Learning> {
    let Some(text) =
        learnings_file(engine, project).and_then(|path| std::fs::read_to_string(path).ok())
    else {
        return vec![];
    };
    let parse_line = |line: &str| serde_json::from_str::<ReportedLearning>(line).ok();
    let newest = text.lines().rev().filter_map(parse_line).take(MAX_FILES);
    newest
        .map(|learning| Learning {
            source: format!("reported by {}", learning.task),
            text: learning.learning,
        })
        .collect()
}

/// Stores the facts that a task reported, so that the briefings of later tasks can mention them. A
/// fact that is already stored is not stored again.
pub(crate) fn store_learnings(
    engine: &Engine,
    project: &Project,
    task: &Task,
    learnings: &[String],
) {
    let Some(file) = learnings_file(engine, project) else {
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
        let written = line
            .map_err(std::io::Error::other)
            .and_then(|line| artifacts::append_once(&file, &line));
        if let Err(error) = written {
            tracing::warn!(task = %task.id, "could not store a fact that task {} reported for \
                later tasks, so their briefings lack this fact: {error}", task.id);
        }
    }
}

/// Adds the text files at and below `path` to `learnings`, sorted by name. Does not follow symbolic
/// links.
fn collect_files(top: &Path, path: &Path, learnings: &mut Vec<Learning>) {
    let Ok(metadata) = path.symlink_metadata() else {
        return;
    };
    if metadata.is_dir() {
        let Ok(entries) = path.read_dir() else { return };
        let mut entries: Vec<PathBuf> = entries
            .filter_map(|result| result.ok().map(|entry| entry.path()))
            .collect();
        entries.sort();
        for entry in entries {
            if learnings.len() >= MAX_FILES {
                return;
            }
            collect_files(top, &entry, learnings);
        }
        return;
    }
    let is_text = path.extension().is_some_and(|file_extension| {
        ["md", "txt", "json", "jsonl", "toml"]
            .iter()
            .any(|extension| file_extension == *extension)
    });
    if metadata.is_file()
        && is_text
        && metadata.len() <= MAX_FILE_BYTES
        && let Ok(text) = std::fs::read_to_string(path)
    {
        let source = path.strip_prefix(top).unwrap_or(path).display().to_string();
        learnings.push(Learning { source, text });
    }
}

/// Returns at most `limit` facts, beginning with the facts that share most words with `about`.
/// Leaves out facts that share no word with `about`.
pub(crate) fn best_matches(learnings: &[Learning], about: &str, limit: usize) -> Vec<Learning> {
    let wanted_words = significant_words(about);
    let mut scored: Vec<(usize, &Learning)> = learnings
        .iter()
        .map(|learning| {
            let learning_words =
                significant_words(&format!("{} {}", learning.source, learning.text));
            (wanted_words.intersection(&learning_words).count(), learning)
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    // The sort is stable, so that facts with equal scores keep their order and the same input
    // always gives the same briefing.
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored
        .into_iter()
        .take(limit)
        .map(|(_, learning)| learning.clone())
        .collect()
}

/// Returns the words of a text that say something about its topic, in lower case.
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
        let learning = |source: &str, text: &str| Learning {
            source: source.into(),
            text: text.into(),
        };
        let learnings = [
            learning("a.md", "tokens expire after an hour"),
            learning("b.md", "login uses tokens and sessions"),
            learning("c.md", "the colour of the button"),
            learning(
                "d.md",
                "sessions of the login page, with tokens that expire",
            ),
        ];
        let names = |about: &str, limit| {
            best_matches(&learnings, about, limit)
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
