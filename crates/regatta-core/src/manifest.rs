//! A manifest is the list of files that a task may change, as patterns. This module computes which
//! claims (leases on files) a task needs, and which tasks of a plan own which files.
//!
//! While a task is worked on, it holds claims on its manifest, on derived files, and on serial
//! packages. A derived file, such as a lock file, is generated from files of the manifest. A serial
//! package is a package whose tasks must run one after the other; a task claims it if the manifest
//! contains some of its files. The task may *change* only its manifest and the derived files, not
//! the rest of a serial package.

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

/// Returns the patterns in `files`, and the patterns of all files that are generated from them.
/// Empty if `files` is empty, because then a task may change anything.
pub fn with_derived_files(run: &RunSettings, files: &[PathPattern]) -> Vec<PathPattern> {
    let mut all = files.to_vec();
    if all.is_empty() {
        return all;
    }
    // Repeat until nothing is added, because files may be derived from other derived files.
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

/// Returns the URIs that are claimed for a task from the start of its attempt until its work has
/// landed.
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

/// Returns whether a task's claims on files are exclusive or shared. Claims are shared in a mission
/// with the setting `isolate`, whose tasks may change the same files at the same time and are
/// merged later.
pub fn claim_mode(board: &Board, task: &Task) -> claim::ClaimMode {
    match task.mission.and_then(|id| board.missions.get(&id)) {
        Some(mission) if mission.isolate => claim::ClaimMode::Shared,
        _ => claim::ClaimMode::Exclusive,
    }
}

/// Returns the patterns that a task must claim if it may change `files`: these files, the files
/// that are generated from them, and the serial packages to which some of these files belong. The
/// tasks of a serial package run one after the other.
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

/// Maximum number of test files in a package whose tasks may run at the same time. In a package
/// with more test files, the tasks run one after the other.
const MAX_PARALLEL_TEST_FILES: usize = 5;

/// Names of files with helpers that all tests of a directory share.
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

/// Names of modules that the integration tests of a Rust crate share, as `tests/NAME.rs` or
/// `tests/NAME/mod.rs`.
const SHARED_MODULES: [&str; 6] = ["common", "support", "util", "utils", "helper", "helpers"];

/// Returns the packages (directories) of a project whose tasks must run one after the other, as
/// patterns of their files. These are packages whose tests share a helper file, and packages with
/// more than five test files. Entries of `settings` add (`PATH`) or remove (`!PATH`) packages.
///
/// In Go a package is one directory without its subdirectories. In other languages a package
/// includes the subdirectories. The package of the project's top directory has only the files
/// directly in it.
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
    // A directory whose name cannot be written as a pattern is left out, because no task can name
    // its files.
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

/// Returns the pattern of a package's files. With `is_deep`, the files in all directories below are
/// included.
fn package_pattern(folder: &str, is_deep: bool) -> String {
    if matches!(folder, "" | ".") {
        "*".into()
    } else if is_deep {
        format!("{folder}/**")
    } else {
        format!("{folder}/*")
    }
}

/// Returns the directory whose tests use the file `name` in `folder`, if the file is a test helper
/// by its name.
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

/// Returns whether a file is a test, by the usual file names of its language.
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

/// A task of a plan with the facts that determine which files it owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnershipTask {
    pub files: Vec<PathPattern>,
    /// Indices, in the plan, of the tasks on which this task depends.
    pub after: Vec<usize>,
}

/// Settings that affect which tasks of a plan own which files.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipRules<'a> {
    pub run: &'a RunSettings,
    pub serial: &'a [PathPattern],
    pub isolate: bool,
}

/// The reason why a task of a plan owns a pattern of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OwnershipReason {
    /// The pattern is in the task's manifest (the files that it may change).
    Manifest,
    /// The pattern's files are generated from files that the task may change.
    Derived,
    /// The task touches this package, and the tasks of this package must run one after the other.
    Serial,
}

/// A pattern of files, with its owners among the tasks of one wave (tasks that run at the same
/// time).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnedPattern {
    pub pattern: PathPattern,
    #[serde(rename = "because")]
    pub reason: OwnershipReason,
    /// Indices, in the plan, of the tasks whose files overlap this pattern. More than one owner is
    /// a conflict.
    pub owners: Vec<usize>,
    /// For each owner, in the order of `owners`, the number of its part of the wave (sub-wave),
    /// from 0. The parts of a wave run one after the other.
    #[serde(rename = "subs")]
    pub sub_waves: Vec<u32>,
}

impl OwnedPattern {
    /// Returns whether several tasks of the wave (tasks that run at the same time) need files of
    /// this pattern.
    pub fn is_conflict(&self) -> bool {
        self.owners.len() > 1
    }
}

/// The owners of files among the tasks of one wave (tasks that can run at the same time).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveOwnership {
    pub owned: Vec<OwnedPattern>,
    /// Tasks that were moved to a later part of their wave (sub-wave), because an earlier task
    /// needs the same files. Each entry has the task's index in the plan and the number of that
    /// part.
    pub moved: Vec<(usize, u32)>,
}

/// The owners of files for each wave of a plan, and the step of each task. A wave is a group of
/// tasks that can run at the same time. A step is a wave and the number of a part of that wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanOwnership {
    pub steps: Vec<PlanStep>,
    pub waves: Vec<WaveOwnership>,
}

impl PlanOwnership {
    /// Returns the number of patterns that several tasks of the same wave (tasks that run at the
    /// same time) need.
    pub fn conflict_count(&self) -> usize {
        self.waves
            .iter()
            .flat_map(|wave| &wave.owned)
            .filter(|owned| owned.is_conflict())
            .count()
    }
}

/// Computes which tasks of a plan own which files. Tasks of a wave (tasks that can run at the same
/// time) that need the same files are put into different parts of the wave, unless `isolate` lets
/// them run at the same time. `Err` has the indices of tasks that depend on each other in a cycle.
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
            // For a serial package (a directory whose tasks must run one after the other), all
            // tasks that claim the package count as owners. For other patterns, only tasks that may
            // change the files count.
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

/// Returns the step of each task of a plan: its wave (tasks that can run at the same time) and the
/// part of that wave. `Err` has the indices of tasks that depend on each other in a cycle.
fn steps(parts: &[OwnershipTask], rules: OwnershipRules) -> Result<Vec<PlanStep>, Vec<usize>> {
    let depends_on: Vec<Vec<usize>> = parts.iter().map(|part| part.after.clone()).collect();
    if rules.isolate {
        return graph::steps(&depends_on, |_| vec![]);
    }
    // File URIs must name a project. All files here belong to the same project, so any name works.
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

/// Returns the step of each task of a mission: its wave (tasks that can run at the same time) and
/// the part of that wave. A wave is split into parts only in wave mode, so that tasks of one part
/// need different files. In flow mode this is not needed, because a task waits until the claims on
/// its files are free.
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
