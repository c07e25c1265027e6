//! Parses the command line: words, `--name value` and `--flag`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};

const FLAGS: [&str; 8] = [
    "build",
    "check",
    "json",
    "threads",
    "write",
    "install-only",
    "restart",
    "both",
];
const OPTIONS: [&str; 20] = [
    "repository",
    "minutes",
    "validation-ms",
    "steps",
    "callers",
    "rounds",
    "store",
    "side",
    "ops",
    "agents",
    "seed",
    "plant",
    "samples",
    "binary",
    "runs",
    "programs",
    "scenarios",
    "layer",
    "only",
    "under",
];

/// The parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) words: Vec<String>,
    options: BTreeMap<String, String>,
}

impl Args {
    pub(crate) fn parse(typed: impl Iterator<Item = String>) -> anyhow::Result<Args> {
        let mut args = Args::default();
        let mut typed = typed.peekable();
        while let Some(word) = typed.next() {
            let Some(name) = word.strip_prefix("--") else {
                args.words.push(word);
                continue;
            };
            let value = if FLAGS.contains(&name) {
                String::new()
            } else if OPTIONS.contains(&name) || name == "dir" {
                typed
                    .next()
                    .with_context(|| format!("--{name} needs a value"))?
            } else {
                bail!("unknown option --{name}");
            };
            args.options.insert(name.to_owned(), value);
        }
        Ok(args)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str, usual: T) -> anyhow::Result<T> {
        match self.text(name) {
            Some(text) => text
                .replace('_', "")
                .parse()
                .ok()
                .with_context(|| format!("--{name} {text:?} is not a number")),
            None => Ok(usual),
        }
    }

    /// Creates a temporary directory for stores, next to the build directory unless `--dir` is
    /// given.
    pub(crate) fn scratch_dir(&self) -> anyhow::Result<tempfile::TempDir> {
        let parent = self
            .text("dir")
            .map_or_else(crate::report::reports_dir, PathBuf::from);
        std::fs::create_dir_all(&parent)?;
        Ok(tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(parent)?)
    }
}
