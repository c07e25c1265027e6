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
use crate::graph::{self, PlanStep};
use crate::ids::{BadName, ProjectName};
use crate::mission::StartMode;
use crate::pattern::{PathPattern, PatternIndex, Uri};
use crate::project::RunSettings;
use crate::task::Task;

/// Returns the manifest and all files derived from it. Empty for a task without a manifest, which
/// may change anything.
pub fn with_derived_files(run: &RunSettings, files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = files.to_vec();
    if all.is_empty() {
        return all;
    }
    // Files may be derived from other derived files.
    let mut remaining: Vec<_> = run.derived.iter().collect();
    while let Some(index) = remaining.iter().position(|derived_file| {
        derived_file
            .from
            .iter()
            .any(|from| all.iter().any(|has| has.overlaps(from)))
    }) {
        let derived = &remaining.swap_remove(index).file;
        if !all.contains(derived) {
            all.push(derived.clone());
        }
    }
    all
}

/// Returns the claims that a task's attempt holds while it works, and its landing after that.
pub fn claims_of_task(board: &Board, task: &Task) -> Vec<Uri> {
    let serial = task
        .mission
        .and_then(|id| board.missions.get(&id))
        .map_or(&[][..], |mission| &mission.serial);
    let Some(project) = board.projects.get(&task.project) else {
        return task.file_claims();
    };
    if serial.is_empty() && project.settings.run.derived.is_empty() {
        return task.file_claims();
    }
    held_patterns(&project.settings.run, serial, &task.files)
        .iter()
        .map(|pattern| Uri::for_file(&task.project, pattern))
        .collect()
}

/// Returns the mode of a task's claims. With `isolate` tasks of a mission share files, and the
/// landing queue merges them.
pub fn claim_mode(board: &Board, task: &Task) -> claim::ClaimMode {
    match task.mission.and_then(|id| board.missions.get(&id)) {
        Some(mission) if mission.isolate => claim::ClaimMode::Shared,
        _ => claim::ClaimMode::Exclusive,
    }
}

/// Returns the patterns that a task holds: its reach and the serial packages that it touches.
fn held_patterns(
    run: &RunSettings,
    serial: &[PathPattern],
    files: &[PathPattern],
) -> Vec<PathPattern> {
    let mut all = with_derived_files(run, files);
    for package in serial
        .iter()
        .filter(|pattern| files.iter().any(|has| has.overlaps(pattern)))
    {
        if !all.contains(package) {
            all.push(package.clone());
        }
    }
    all
}

/// Maximum number of test files of a package whose tasks may run at the same time.
const MAX_PARALLEL_TEST_FILES: usize = 5;

/// Files that the tests of one directory share.
const TEST_HELPERS: [&str; 28] = [
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
/// packages whose tests share a helper, and packages with more than five test files. `settings`
/// adds (`PATH`) and removes (`!PATH`) packages.
///
/// A package of Go is one directory. In other languages a helper serves all directories below it,
/// too. The top directory's package is its own files, never the whole tree.
pub fn serial_packages<'a>(
    paths: impl IntoIterator<Item = &'a str>,
    settings: &[String],
) -> Result<Vec<PathPattern>, BadName> {
    let mut tests: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut serial: BTreeSet<(&str, bool)> = BTreeSet::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_deep = !name.ends_with(".go");
        if let Some(package) = helper_directory(folder, name) {
            serial.insert((package, is_deep));
        } else if is_test(folder, name) {
            *tests.entry((folder, is_deep)).or_default() += 1;
        }
    }
    serial.extend(
        tests
            .into_iter()
            .filter(|(_, count)| *count > MAX_PARALLEL_TEST_FILES)
            .map(|(package, _)| package),
    );
    let (removed, added): (Vec<&String>, Vec<&String>) = settings
        .iter()
        .partition(|setting| setting.starts_with('!'));
    serial.retain(|(folder, _)| {
        !removed
            .iter()
            .any(|removed| removed[1..].trim_end_matches('/') == *folder)
    });
    // A name that is not a valid pattern cannot be in a manifest, so it cannot collide.
    let mut found: BTreeSet<PathPattern> = serial
        .iter()
        .filter_map(|(folder, is_deep)| PathPattern::new(&package_pattern(folder, *is_deep)).ok())
        .collect();
    for package in added {
        let folder = package.trim_end_matches('/');
        let pattern = if folder.contains(['*', '?']) {
            folder.to_owned()
        } else {
            package_pattern(folder, true)
        };
        found.insert(PathPattern::new(&pattern)?);
    }
    Ok(found.into_iter().collect())
}

/// Returns the pattern of a package's files. A deep package includes all directories below it.
fn package_pattern(folder: &str, is_deep: bool) -> String {
    if matches!(folder, "" | ".") {
        "*".into()
    } else if is_deep {
        format!("{folder}/**")
    } else {
        format!("{folder}/*")
    }
}

/// Returns the directory whose tests share this file, if the file is a test helper.
fn helper_directory<'a>(folder: &'a str, name: &str) -> Option<&'a str> {
    let is_tests = |folder: &str| folder == "tests" || folder.ends_with("/tests");
    if TEST_HELPERS.contains(&name) {
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
    let Some((stem, kind)) = name.rsplit_once('.') else {
        return false;
    };
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
pub struct OwnershipTask {
    pub files: Vec<PathPattern>,
    /// Indices of the parts on which it depends.
    pub after: Vec<usize>,
}

/// The rules for the ownership of a plan.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipRules<'a> {
    pub run: &'a RunSettings,
    pub serial: &'a [PathPattern],
    pub isolate: bool,
}

/// The reason why a task owns a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OwnershipReason {
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
pub struct OwnedPattern {
    pub pattern: PathPattern,
    #[serde(rename = "because")]
    pub reason: OwnershipReason,
    /// Indices of the tasks that hold something that overlaps this pattern.
    pub owners: Vec<usize>,
    /// Sub-waves of the owners, in the order of `owners`, from 0.
    #[serde(rename = "subs")]
    pub sub_waves: Vec<u32>,
}

impl OwnedPattern {
    /// Returns whether several tasks of the wave want the pattern.
    pub fn is_conflict(&self) -> bool {
        self.owners.len() > 1
    }
}

/// The ownership of one wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveOwnership {
    pub owned: Vec<OwnedPattern>,
    /// Tasks that were moved to a later sub-wave, with its number (from 0).
    pub moved: Vec<(usize, u32)>,
}

/// The ownership of a whole plan by wave, with the step of each task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanOwnership {
    pub steps: Vec<PlanStep>,
    pub waves: Vec<WaveOwnership>,
}

impl PlanOwnership {
    /// Returns the number of patterns that several tasks of one wave want.
    pub fn conflict_count(&self) -> usize {
        self.waves
            .iter()
            .flat_map(|wave| &wave.owned)
            .filter(|owned| owned.is_conflict())
            .count()
    }
}

/// Computes the ownership of a plan, and splits colliding tasks into sub-waves. With `isolate` no
/// task is moved. `Err` has the indices of a cycle, in order.
pub fn ownership(
    parts: &[OwnershipTask],
    rules: OwnershipRules,
) -> Result<PlanOwnership, Vec<usize>> {
    let held: Vec<Vec<PathPattern>> = parts
        .iter()
        .map(|part| held_patterns(rules.run, rules.serial, &part.files))
        .collect();
    let steps = steps(parts, rules)?;
    let wave_count = steps
        .iter()
        .map(|step| step.wave as usize + 1)
        .max()
        .unwrap_or(0);
    let mut waves = Vec::with_capacity(wave_count);
    for number in 0..wave_count {
        let parts_of_wave: Vec<usize> = (0..parts.len())
            .filter(|part| steps[*part].wave as usize == number)
            .collect();
        let reaches: BTreeMap<usize, Vec<PathPattern>> = parts_of_wave
            .iter()
            .map(|part| (*part, with_derived_files(rules.run, &parts[*part].files)))
            .collect();
        let mut patterns: BTreeMap<&PathPattern, OwnershipReason> = BTreeMap::new();
        for part in &parts_of_wave {
            let reachable = &reaches[part];
            for pattern in &held[*part] {
                let reason = if parts[*part].files.contains(pattern) {
                    OwnershipReason::Manifest
                } else if reachable.contains(pattern) {
                    OwnershipReason::Derived
                } else {
                    OwnershipReason::Serial
                };
                patterns
                    .entry(pattern)
                    .and_modify(|known_reason| *known_reason = reason.min(*known_reason))
                    .or_insert(reason);
            }
        }
        let owned = patterns.into_iter().map(|(pattern, reason)| {
            // A task holds a package only so that the package's tasks run in turn. It may not
            // change all of its files.
            let patterns_of = |part: usize| {
                if reason == OwnershipReason::Serial {
                    &held[part]
                } else {
                    &reaches[&part]
                }
            };
            let owners: Vec<usize> = parts_of_wave
                .iter()
                .copied()
                .filter(|part| patterns_of(*part).iter().any(|has| has.overlaps(pattern)))
                .collect();
            let sub_waves = owners.iter().map(|owner| steps[*owner].sub).collect();
            OwnedPattern {
                pattern: pattern.clone(),
                reason,
                owners,
                sub_waves,
            }
        });
        let moved = parts_of_wave
            .iter()
            .filter(|part| steps[**part].sub > 0)
            .map(|part| (*part, steps[*part].sub))
            .collect();
        waves.push(WaveOwnership {
            owned: owned.collect(),
            moved,
        });
    }
    Ok(PlanOwnership { steps, waves })
}

/// Returns the step of each part.
fn steps(parts: &[OwnershipTask], rules: OwnershipRules) -> Result<Vec<PlanStep>, Vec<usize>> {
    let depends_on: Vec<Vec<usize>> = parts.iter().map(|part| part.after.clone()).collect();
    if rules.isolate {
        return graph::steps(&depends_on, |_| vec![]);
    }
    // All files are of one project, so any name will do.
    let project = ProjectName::new("plan").expect("a plain word is a name");
    let mut index = PatternIndex::default();
    graph::steps(&depends_on, |part| {
        let uris: Vec<Uri> = held_patterns(rules.run, rules.serial, &parts[part].files)
            .iter()
            .map(|pattern| Uri::for_file(&project, pattern))
            .collect();
        let others: BTreeSet<usize> = uris
            .iter()
            .flat_map(|uri| index.overlapping(uri))
            .map(|(part, _)| part as usize)
            .collect();
        index.insert(part as u64, &uris);
        others.into_iter().collect()
    })
}

/// Returns the steps of a mission's tasks. Only waves are split. In flow mode the claims keep tasks
/// from each other's files.
pub(crate) fn mission_steps(
    parts: &[OwnershipTask],
    rules: OwnershipRules,
    mode: StartMode,
) -> Result<Vec<PlanStep>, Vec<usize>> {
    steps(
        parts,
        OwnershipRules {
            isolate: rules.isolate || mode == StartMode::Flow,
            ..rules
        },
    )
}
