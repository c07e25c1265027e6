//! Checks that `docs/troubleshooting.md` has a row for every refusal and every wait reason.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names in the first cells of the tables of a section.
fn rows(page: &str, section: &str) -> BTreeSet<String> {
    let lines = page
        .lines()
        .skip_while(|line| *line != format!("## {section}"))
        .skip(1);
    let rows = lines
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    // Between the backticks of a cell are names.
    rows.flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_wait_reason_has_a_fix() {
    let openapi: serde_json::Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let kinds = openapi["components"]["schemas"]["WaitKind"]["enum"]
        .as_array()
        .unwrap();
    let kinds = kinds
        .iter()
        .map(|kind| kind.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        rows(&read("docs/troubleshooting.md"), "Wait reasons"),
        kinds
    );
}

#[test]
fn every_refusal_has_a_fix() {
    let source = read("crates/regatta-core/src/refusal.rs");
    let codes = source
        .split("fn code(")
        .nth(1)
        .and_then(|rest| rest.split("fn class(").next());
    let codes: BTreeSet<String> = codes
        .expect("the codes come before the classes")
        .lines()
        .filter_map(|line| {
            line.split_once("=> \"")?
                .1
                .split('"')
                .next()
                .map(str::to_owned)
        })
        .collect();
    assert!(codes.len() > 20, "only {codes:?} were found");
    assert_eq!(rows(&read("docs/troubleshooting.md"), "Refusals"), codes);
}

#[test]
fn every_other_code_exists() {
    let mut sources = String::new();
    for name in [
        "regatta",
        "regatta-api",
        "regatta-engine",
        "regatta-git",
        "regatta-server",
    ] {
        add_sources(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../crates")
                .join(name)
                .join("src"),
            &mut sources,
        );
    }
    let codes = rows(&read("docs/troubleshooting.md"), "Other errors");
    let gone: Vec<&String> = codes
        .iter()
        .filter(|code| !sources.contains(&format!("\"{code}\"")))
        .collect();
    assert!(
        codes.len() > 20 && gone.is_empty(),
        "no such codes: {gone:?}"
    );
}

fn add_sources(directory: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}
