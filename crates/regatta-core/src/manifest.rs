//! Manifests: the files that a task may change, the claims that it holds while it works, and the
//! owners of files in a plan.
//!
//! A task holds its manifest, the files derived from it (such as a lock file), and each package it
//! touches whose tasks must run one after the other. It may *change* only the manifest and the
//! derived files. A package is held but may not be changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::claim;
use crate::graph::{self, Step};
use crate::ids::{BadName, ProjectName};
use crate::mission::Mode;
use crate::pattern::{PathPattern, PatternIndex, Uri};
use crate::project::Run;
use crate::task::Task;

/// Returns the manifest and all files derived from it. Empty for a task without a manifest, which
/// may change anything.
pub fn reach(run: &Run, files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = files.to_vec();
    if all.is_empty() {
        return all;
    }
    // Files may be derived from other derived files.
    let mut left: Vec<_> = run.derived.iter().collect();
    while let Some(at) = left.iter().position(|it| it.from.iter().any(|from| all.iter().any(|has| has.overlaps(from))))
    {
        let made = &left.swap_remove(at).file;
        if !all.contains(made) {
            all.push(made.clone());
        }
    }
    all
}

/// Returns the claims that a task's attempt holds while it works, and its landing after that.
pub fn claims(board: &Board, task: &Task) -> Vec<Uri> {
    let serial = task.mission.and_then(|it| board.missions.get(&it)).map_or(&[][..], |it| &it.serial);
    let Some(project) = board.projects.get(&task.project) else { return task.file_claims() };
    if serial.is_empty() && project.settings.run.derived.is_empty() {
        return task.file_claims();
    }
    holds(&project.settings.run, serial, &task.files).iter().map(|it| Uri::of_file(&task.project, it)).collect()
}

/// Returns the mode of a task's claims. With `isolate` tasks of a mission share files, and the
/// landing queue merges them.
pub fn mode(board: &Board, task: &Task) -> claim::Mode {
    match task.mission.and_then(|it| board.missions.get(&it)) {
        Some(mission) if mission.isolate => claim::Mode::Shared,
        _ => claim::Mode::Exclusive,
    }
}

/// Returns the patterns that a task holds: its reach and the serial packages that it touches.
fn holds(run: &Run, serial: &[PathPattern], files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = reach(run, files);
    for package in serial.iter().filter(|it| files.iter().any(|has| has.overlaps(it))) {
        if !all.contains(package) {
            all.push(package.clone());
        }
    }
    all
}

/// Maximum number of test files of a package whose tasks may run at the same time.
const MOST_TESTS: usize = 5;

/// Files that the tests of one directory share.
const HELPERS: [&str; 28] = [
    "testutil_test.go",
    "testutils_test.go",
    "test_utils_test.go",
    "helper_test.go",
    "helpers_test.go",
    "testhelper_test.go",
    "testhelpers_test.go",
    "test_helpers_test.go",
    "common_test.go",
    "setup_test.go",
    "main_test.go",
    "conftest.py",
    "test_helpers.py",
    "test_utils.py",
    "test-utils.ts",
    "test-utils.tsx",
    "test-utils.js",
    "test-utils.jsx",
    "testUtils.ts",
    "testUtils.tsx",
    "testUtils.js",
    "test-helpers.ts",
    "test-helpers.js",
    "testHelpers.ts",
    "testHelpers.js",
    "spec_helper.rb",
    "rails_helper.rb",
    "test_helper.rb",
];

/// Modules that Rust's integration tests share, as `NAME.rs` or `NAME/mod.rs` in the same
/// directory.
const SHARED_MODULES: [&str; 6] = ["common", "support", "util", "utils", "helper", "helpers"];

/// Returns the packages of a tree whose tasks run one after the other, as patterns of their files:
/// packages whose tests share a helper, and packages with more than five test files. `set` adds
/// (`PATH`) and removes (`!PATH`) packages.
///
/// A package of Go is one directory. In other languages a helper serves all directories below it,
/// too. The top directory's package is its own files, never the whole tree.
pub fn serial_packages<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    set: &[String],
) -> Result<Vec<PathPattern>, BadName> {
    let mut tests: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut serial: BTreeSet<(&str, bool)> = BTreeSet::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let deep = !name.ends_with(".go");
        if let Some(package) = shared_by(folder, name) {
            serial.insert((package, deep));
        } else if is_test(folder, name) {
            *tests.entry((folder, deep)).or_default() += 1;
        }
    }
    serial.extend(tests.into_iter().filter(|it| it.1 > MOST_TESTS).map(|it| it.0));
    let (without, with): (Vec<&String>, Vec<&String>) = set.iter().partition(|it| it.starts_with('!'));
    serial.retain(|(folder, _)| !without.iter().any(|it| it[1..].trim_end_matches('/') == *folder));
    // A name that is not a valid pattern cannot be in a manifest, so it cannot collide.
    let mut found: BTreeSet<PathPattern> =
        serial.iter().filter_map(|(folder, deep)| PathPattern::new(&below(folder, *deep)).ok()).collect();
    for it in with {
        let folder = it.trim_end_matches('/');
        found.insert(PathPattern::new(&if folder.contains(['*', '?']) { folder.into() } else { below(folder, true) })?);
    }
    Ok(found.into_iter().collect())
}

/// Returns the pattern of a package's files.
fn below(folder: &str, deep: bool) -> String {
    match (folder, deep) {
        ("" | ".", _) => "*".into(),
        (folder, true) => format!("{folder}/**"),
        (folder, false) => format!("{folder}/*"),
    }
}

/// Returns the directory whose tests share this file, if the file is a test helper.
fn shared_by<'a>(folder: &'a str, name: &str) -> Option<&'a str> {
    let is_tests = |it: &str| it == "tests" || it.ends_with("/tests");
    if HELPERS.contains(&name) {
        return Some(folder);
    }
    let module = name.strip_suffix(".rs")?;
    if module == "mod" {
        let (above, own) = folder.rsplit_once('/')?;
        return (is_tests(above) && SHARED_MODULES.contains(&own)).then_some(above);
    }
    (is_tests(folder) && SHARED_MODULES.contains(&module)).then_some(folder)
}

/// Returns whether a file is a test, by the conventions of its language.
fn is_test(folder: &str, name: &str) -> bool {
    let Some((stem, kind)) = name.rsplit_once('.') else { return false };
    let in_tests = folder == "tests" || folder.ends_with("/tests");
    match kind {
        "go" => stem.ends_with("_test"),
        "py" => stem.starts_with("test_") || stem.ends_with("_test"),
        "rs" => in_tests || stem == "tests" || stem.ends_with("_test") || stem.ends_with("_tests"),
        "ts" | "tsx" | "js" | "jsx" | "mts" | "cts" | "mjs" | "cjs" => {
            stem.ends_with(".test") || stem.ends_with(".spec") || folder.ends_with("__tests__")
        }
        "rb" => stem.ends_with("_spec") || stem.ends_with("_test"),
        "java" | "kt" | "cs" | "swift" => stem.ends_with("Test") || stem.ends_with("Tests"),
        "bats" => true,
        _ => false,
    }
}

/// A task of a plan, as far as ownership is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub files: Vec<PathPattern>,
    /// Indices of the parts on which it depends.
    pub after: Vec<usize>,
}

/// The rules for the ownership of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub run: &'a Run,
    pub serial: &'a [PathPattern],
    pub isolate: bool,
}

/// The reason why a task owns a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The pattern is in its manifest.
    Manifest,
    /// The pattern is derived from its manifest.
    Derived,
    /// The tasks of the package run one after the other.
    Serial,
}

/// One line of the ownership map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owned {
    pub pattern: PathPattern,
    pub because: Because,
    /// Indices of the tasks that hold something that overlaps this pattern.
    pub owners: Vec<usize>,
    /// Sub-waves of the owners, in the order of `owners`, from 0.
    pub subs: Vec<u32>,
}

impl Owned {
    /// Returns whether several tasks of the wave want the pattern.
    pub fn conflict(&self) -> bool {
        self.owners.len() > 1
    }
}

/// The ownership of one wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wave {
    pub owned: Vec<Owned>,
    /// Tasks that were moved to a later sub-wave, with its number (from 0).
    pub moved: Vec<(usize, u32)>,
}

/// The ownership of a whole plan by wave, with the step of each task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ownership {
    pub steps: Vec<Step>,
    pub waves: Vec<Wave>,
}

impl Ownership {
    /// Returns the number of patterns that several tasks of one wave want.
    pub fn conflicts(&self) -> usize {
        self.waves.iter().flat_map(|it| &it.owned).filter(|it| it.conflict()).count()
    }
}

/// Computes the ownership of a plan, and splits colliding tasks into sub-waves. With `isolate` no
/// task is moved. `Err` has the indices of a cycle, in order.
pub fn ownership(parts: &[Part], rules: Rules) -> Result<Ownership, Vec<usize>> {
    let held: Vec<Vec<PathPattern>> = parts.iter().map(|it| holds(rules.run, rules.serial, &it.files)).collect();
    let steps = steps(parts, rules)?;
    let last = steps.iter().map(|it| it.wave as usize + 1).max().unwrap_or(0);
    let mut waves = Vec::with_capacity(last);
    for number in 0..last {
        let here: Vec<usize> = (0..parts.len()).filter(|it| steps[*it].wave as usize == number).collect();
        let reaches: BTreeMap<usize, Vec<PathPattern>> =
            here.iter().map(|part| (*part, reach(rules.run, &parts[*part].files))).collect();
        let mut patterns: BTreeMap<&PathPattern, Because> = BTreeMap::new();
        for part in &here {
            let reach = &reaches[part];
            for pattern in &held[*part] {
                let because = match pattern {
                    it if parts[*part].files.contains(it) => Because::Manifest,
                    it if reach.contains(it) => Because::Derived,
                    _ => Because::Serial,
                };
                patterns.entry(pattern).and_modify(|it| *it = because.min(*it)).or_insert(because);
            }
        }
        let owned = patterns.into_iter().map(|(pattern, because)| {
            // A task holds a package only so that the package's tasks run in turn. It may not
            // change all of its files.
            let wanted = |part: usize| if because == Because::Serial { &held[part] } else { &reaches[&part] };
            let owners: Vec<usize> =
                here.iter().copied().filter(|part| wanted(*part).iter().any(|has| has.overlaps(pattern))).collect();
            let subs = owners.iter().map(|it| steps[*it].sub).collect();
            Owned { pattern: pattern.clone(), because, owners, subs }
        });
        let moved = here.iter().filter(|it| steps[**it].sub > 0).map(|it| (*it, steps[*it].sub)).collect();
        waves.push(Wave { owned: owned.collect(), moved });
    }
    Ok(Ownership { steps, waves })
}

/// Returns the step of each part.
fn steps(parts: &[Part], rules: Rules) -> Result<Vec<Step>, Vec<usize>> {
    let depends_on: Vec<Vec<usize>> = parts.iter().map(|it| it.after.clone()).collect();
    if rules.isolate {
        return graph::steps(&depends_on, |_| vec![]);
    }
    // All files are of one project, so any name will do.
    let project = ProjectName::new("plan").expect("a plain word is a name");
    let mut index = PatternIndex::default();
    graph::steps(&depends_on, |part| {
        let uris: Vec<Uri> =
            holds(rules.run, rules.serial, &parts[part].files).iter().map(|it| Uri::of_file(&project, it)).collect();
        let others: BTreeSet<usize> =
            uris.iter().flat_map(|it| index.overlapping(it)).map(|it| it.0 as usize).collect();
        index.insert(part as u64, &uris);
        others.into_iter().collect()
    })
}

/// Returns the steps of a mission's tasks. Only waves are split. In flow mode the claims keep tasks
/// from each other's files.
pub(crate) fn mission_steps(parts: &[Part], rules: Rules, mode: Mode) -> Result<Vec<Step>, Vec<usize>> {
    steps(parts, Rules { isolate: rules.isolate || mode == Mode::Flow, ..rules })
}
