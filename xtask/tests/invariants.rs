//! Checks `docs/invariants.md`: every id that a test names is defined there, every defined id has
//! tests, and every test named there exists and names its id.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The letters that ids begin with.
const ID_LETTERS: &str = "LJWDQPTSB";

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir()
            && path
                .file_name()
                .is_some_and(|name| name != "target" && name != "page")
        {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_id(word: &str) -> bool {
    let number = word.get(1..).unwrap_or_default();
    let is_number =
        (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    word.starts_with(|letter| ID_LETTERS.contains(letter)) && is_number
}

/// Returns the ids in the name and in the documentation of a test.
fn ids_of(name: &str, documentation: &str) -> BTreeSet<String> {
    let parts = name
        .split('_')
        .map(str::to_uppercase)
        .filter(|part| is_id(part));
    let words = documentation
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| is_id(word));
    parts.chain(words.map(str::to_owned)).collect()
}

/// A test function, and the ids that it names.
#[derive(Debug, PartialEq, Eq)]
struct TestFunction {
    name: String,
    ids: BTreeSet<String>,
}

/// Returns the tests of a file.
fn tests_of(text: &str) -> Vec<TestFunction> {
    let mut found = Vec::new();
    let (mut documentation, mut is_test) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            documentation += &format!("{words}\n");
        } else if line.starts_with("#[") {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        } else {
            let name = line.split_once("fn ").map(|(_, rest)| rest);
            let name = name.map(|rest| {
                rest.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
            });
            if let (true, Some(name)) = (is_test, name.and_then(|mut parts| parts.next())) {
                found.push(TestFunction {
                    name: name.to_owned(),
                    ids: ids_of(name, &documentation),
                });
            }
            (documentation, is_test) = (String::new(), false);
        }
    }
    found
}

/// Returns the tests of the workspace, by the path of their file.
fn tests() -> BTreeMap<String, Vec<TestFunction>> {
    let mut paths = Vec::new();
    for dir in ["crates", "xtask"] {
        rust_files(&workspace_root().join(dir), &mut paths);
    }
    let name = |path: &Path| {
        path.strip_prefix(workspace_root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let found = paths
        .iter()
        .map(|path| (name(path), tests_of(&fs::read_to_string(path).unwrap())));
    found
        .filter(|(path, tests)| !tests.is_empty() && path != "xtask/tests/invariants.rs")
        .collect()
}

/// Returns the rows of the page: an id, and the tests named for it with their files.
fn page_rows() -> Vec<(String, Vec<(String, String)>)> {
    let text = fs::read_to_string(workspace_root().join("docs/invariants.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split(" | ")
            .collect();
        let [id, rule, tests] = cells[..] else {
            panic!("a row has three cells: {line}")
        };
        if !is_id(id) {
            return None;
        }
        assert!(
            rule.ends_with('.') && rule.len() < 200,
            "{id}: the rule must be one plain sentence: {rule}"
        );
        let named = tests.split(", ").map(|link| {
            let (name, path) = link
                .split_once("](../")
                .unwrap_or_else(|| panic!("{id}: {link} is not a link"));
            (
                name.trim_start_matches('[').to_owned(),
                path.trim_end_matches(')').to_owned(),
            )
        });
        Some((id.to_owned(), named.collect()))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn every_id_is_defined_once_and_named_by_its_tests() {
    let (tests, page) = (tests(), page_rows());
    let defined: BTreeSet<&String> = page.iter().map(|(id, _)| id).collect();
    assert_eq!(defined.len(), page.len(), "an id is defined twice");
    assert!(page.len() > 80, "the page was not read: {page:?}");
    for (id, named) in &page {
        assert!(!named.is_empty(), "{id} has no test");
        for (name, path) in named {
            let of_file = tests
                .get(path)
                .unwrap_or_else(|| panic!("{id}: {path} has no tests"));
            let test = of_file.iter().find(|test| test.name == *name);
            let test = test.unwrap_or_else(|| panic!("{id}: {path} has no test {name}"));
            assert!(
                test.ids.contains(id),
                "{id}: the test {name} names only {:?}",
                test.ids
            );
        }
    }
}

#[test]
fn every_id_that_a_test_names_is_defined() {
    let defined: BTreeSet<String> = page_rows().into_iter().map(|(id, _)| id).collect();
    for (path, tests) in tests() {
        for TestFunction { name, ids } in tests {
            // In prose, words such as "T1 waits" are ids of tasks. Only ids in front of a test's
            // name are always ids of rules.
            let parts: Vec<String> = name.split('_').map(str::to_uppercase).collect();
            for id in parts.iter().take_while(|part| is_id(part)) {
                assert!(
                    defined.contains(id),
                    "{path}: {name} names {id}, which docs/invariants.md does not define"
                );
                assert!(ids.contains(id));
            }
        }
    }
}

#[test]
fn tests_and_their_ids_are_found() {
    let text = "/// L3 in small, and T1 waits.\n#[test]\nfn p1_j2_a_program_goes_on() {\n}\nfn \
                helper() {}\n\
                #[test]\nfn files_carry_a_policy_s12() {}\n";
    let ids = |ids: &[&str]| {
        ids.iter()
            .map(|id| (*id).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let found = tests_of(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        found[0],
        TestFunction {
            name: "p1_j2_a_program_goes_on".into(),
            ids: ids(&["J2", "L3", "P1", "T1"])
        }
    );
    assert_eq!(found[1].ids, ids(&["S12"]));
    assert!(is_id("Q14") && !is_id("Q") && !is_id("Q141") && !is_id("X1") && !is_id("QA"));
}
