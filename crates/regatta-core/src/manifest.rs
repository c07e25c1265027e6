//! Manifests: what a task may touch, what it holds while it works, and who owns what in a plan.
//!
//! A task holds its manifest, the files that follow from it (a lock file follows from what it locks), and every
//! package it touches whose tasks run one after the other. What it may *change* is the manifest and what follows
//! from it, no more: a package is held, not opened.

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

/// The manifest and everything that follows from it. Nothing for a task that names no files: it may touch anything.
pub fn reach(run: &Run, files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = files.to_vec();
    if all.is_empty() {
        return all;
    }
    // What follows may be what something else follows from.
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

/// What a task's attempt holds while it works, and its landing after it.
pub fn claims(board: &Board, task: &Task) -> Vec<Uri> {
    let serial = task.mission.and_then(|it| board.missions.get(&it)).map_or(&[][..], |it| &it.serial);
    let Some(project) = board.projects.get(&task.project) else { return task.file_claims() };
    if serial.is_empty() && project.settings.run.derived.is_empty() {
        return task.file_claims();
    }
    holds(&project.settings.run, serial, &task.files).iter().map(|it| Uri::of_file(&task.project, it)).collect()
}

/// Whether others of its mission may hold the same meanwhile: with `isolate` the landing queue merges.
pub fn mode(board: &Board, task: &Task) -> claim::Mode {
    match task.mission.and_then(|it| board.missions.get(&it)) {
        Some(mission) if mission.isolate => claim::Mode::Shared,
        _ => claim::Mode::Exclusive,
    }
}

fn holds(run: &Run, serial: &[PathPattern], files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = reach(run, files);
    for package in serial.iter().filter(|it| files.iter().any(|has| has.overlaps(it))) {
        if !all.contains(package) {
            all.push(package.clone());
        }
    }
    all
}

/// The most test files a package may have before its tasks run one after the other.
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

/// Modules that Rust's integration tests share, as `NAME.rs` or `NAME/mod.rs` beside them.
const SHARED_MODULES: [&str; 6] = ["common", "support", "util", "utils", "helper", "helpers"];

/// The packages of a tree whose tasks run one after the other, as patterns of what is theirs: those whose tests share
/// a helper, and those with more than five test files. `set` adds (`PATH`) and removes (`!PATH`).
///
/// A package of Go is one directory; anywhere else a helper serves what is below it, too. The top directory's package
/// is its own files, never the whole tree.
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
    // A name that no manifest could have cannot collide either.
    let mut found: BTreeSet<PathPattern> =
        serial.iter().filter_map(|(folder, deep)| PathPattern::new(&below(folder, *deep)).ok()).collect();
    for it in with {
        let folder = it.trim_end_matches('/');
        found.insert(PathPattern::new(&if folder.contains(['*', '?']) { folder.into() } else { below(folder, true) })?);
    }
    Ok(found.into_iter().collect())
}

fn below(folder: &str, deep: bool) -> String {
    match (folder, deep) {
        ("" | ".", _) => "*".into(),
        (folder, true) => format!("{folder}/**"),
        (folder, false) => format!("{folder}/*"),
    }
}

/// The directory whose tests share this file, if it is such a one.
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

/// A task of a plan, as far as who owns what is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub files: Vec<PathPattern>,
    /// Indexes of the parts it comes after.
    pub after: Vec<usize>,
}

/// The rules a plan is laid out by.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub run: &'a Run,
    pub serial: &'a [PathPattern],
    pub isolate: bool,
}

/// Why a task owns a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// Its manifest says so.
    Manifest,
    /// It follows from its manifest.
    Derived,
    /// Its package's tasks run one after the other.
    Serial,
}

/// One line of the ownership map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owned {
    pub pattern: PathPattern,
    pub because: Because,
    /// Who holds something that this pattern overlaps, by place in the plan.
    pub owners: Vec<usize>,
    /// The sub-waves into which its owners go, in the order of `owners`; from 0.
    pub subs: Vec<u32>,
}

impl Owned {
    /// Whether more than one wants it at a time.
    pub fn conflict(&self) -> bool {
        self.owners.len() > 1
    }
}

/// Who owns what in one wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wave {
    pub owned: Vec<Owned>,
    /// Who was moved to a later sub-wave, and to which (from 0).
    pub moved: Vec<(usize, u32)>,
}

/// Who owns what, wave by wave, and when each has its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ownership {
    pub steps: Vec<Step>,
    pub waves: Vec<Wave>,
}

impl Ownership {
    /// How many patterns are wanted by several tasks of one wave.
    pub fn conflicts(&self) -> usize {
        self.waves.iter().flat_map(|it| &it.owned).filter(|it| it.conflict()).count()
    }
}

/// Lays a plan out: who owns what, and which of those that collide goes into which sub-wave. With `isolate` nobody is
/// moved. `Err` names a cycle, by index, in order.
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
            // A task holds a package so that its tasks run in turn. It may not change all files of the package.
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

/// When each part has its turn.
fn steps(parts: &[Part], rules: Rules) -> Result<Vec<Step>, Vec<usize>> {
    let depends_on: Vec<Vec<usize>> = parts.iter().map(|it| it.after.clone()).collect();
    if rules.isolate {
        return graph::steps(&depends_on, |_| vec![]);
    }
    // One project's files: its name only has to be the same for all.
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

/// The steps of a mission's tasks. Only waves are split: in flow a task's claims keep it from another's files.
pub(crate) fn mission_steps(parts: &[Part], rules: Rules, mode: Mode) -> Result<Vec<Step>, Vec<usize>> {
    steps(parts, Rules { isolate: rules.isolate || mode == Mode::Flow, ..rules })
}
