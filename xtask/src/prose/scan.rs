//! Reads the Rust files of the workspace as lines of code and comment.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// One line of a source file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SourceLine {
    Blank,
    /// A line with nothing but a comment: its text without the slashes.
    Comment(String),
    Code(String),
}

/// A source file.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// Path from the top of the workspace.
    pub(super) path: String,
    /// Directory below `crates/`, or `xtask`.
    pub(super) crate_name: String,
    pub(super) lines: Vec<SourceLine>,
}

impl SourceFile {
    pub(super) fn parse(path: &str, text: &str) -> SourceFile {
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or_default();
        let crate_name = if first == "crates" {
            parts.next().unwrap_or_default()
        } else {
            first
        };
        let lines = text.lines().map(parse_line).collect();
        SourceFile {
            path: path.to_owned(),
            crate_name: crate_name.to_owned(),
            lines,
        }
    }
}

fn parse_line(line: &str) -> SourceLine {
    let trimmed = line.trim();
    match trimmed.strip_prefix("//") {
        _ if trimmed.is_empty() => SourceLine::Blank,
        Some(comment) => {
            SourceLine::Comment(comment.trim_start_matches(['/', '!']).trim().to_owned())
        }
        None => SourceLine::Code(line.to_owned()),
    }
}

/// Reads every Rust file that belongs to the workspace, in the order of their paths.
pub(super) fn source_files(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut paths = Vec::new();
    for top in ["crates", "xtask"] {
        collect_paths(&root.join(top), &mut paths)?;
    }
    paths.sort();
    paths.iter().map(|path| read_source(root, path)).collect()
}

fn read_source(root: &Path, path: &Path) -> anyhow::Result<SourceFile> {
    let text =
        fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    Ok(SourceFile::parse(&name, &text))
}

fn collect_paths(dir: &Path, found: &mut Vec<std::path::PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" {
            collect_paths(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Counts closures in a line of which a parameter is named `it`.
pub(super) fn closures_named_it(line: &str) -> usize {
    let mut found = 0;
    let mut rest = line;
    while let Some(start) = rest.find('|') {
        let before = rest[..start].trim_end().chars().next_back();
        let after = &rest[start + 1..];
        // A closure stands at the start of an expression; elsewhere `|` is an operator or a
        // pattern.
        let starts_closure =
            before.is_none_or(|c| "(,=:{>&".contains(c)) || rest[..start].ends_with("move ");
        let parameters = after.split('|').next().unwrap_or_default();
        if !starts_closure || !after.contains('|') {
            rest = after;
            continue;
        }
        let is_it = |word: &str| word == "it";
        let names = parameters
            .split(',')
            .map(|parameter| parameter.split(':').next().unwrap_or_default());
        let named = names
            .flat_map(|name| name.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .any(is_it);
        found += usize::from(named);
        rest = &after[parameters.len() + 1..];
    }
    found
}
