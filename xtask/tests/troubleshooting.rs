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

/// Returns the codes of the refusals.
fn refusal_codes() -> BTreeSet<String> {
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
    codes
}

#[test]
fn every_refusal_has_a_fix() {
    let page = read("docs/troubleshooting.md");
    assert_eq!(rows(&page, "Refusals"), refusal_codes());
}

/// The functions that make an error with a code, and the number of arguments before the code.
const CONSTRUCTORS: [(&str, usize); 4] = [
    ("command_error(", 0),
    ("git_error(", 0),
    ("store_error(", 0),
    ("Problem::new(", 1),
];

/// Returns the codes that a source file passes to constructors of errors, or writes into the field
/// `code`. A code that is computed stands as a text elsewhere in the program.
fn codes_in(source: &str) -> BTreeSet<String> {
    let program = source.split("#[cfg(test)]\nmod ").next().unwrap_or(source);
    let mut codes = BTreeSet::new();
    for (name, skipped) in CONSTRUCTORS {
        for call in program.split(name).skip(1) {
            let argument = call.splitn(skipped + 2, ',').nth(skipped).unwrap_or("");
            codes.extend(as_code(argument));
        }
    }
    for value in program.split("code: ").skip(1) {
        codes.extend(as_code(value.split([',', '.', '}']).next().unwrap_or("")));
    }
    codes
}

/// Returns the code in an argument that is a text such as `"bad_input"`.
fn as_code(argument: &str) -> Option<String> {
    let code = argument.trim().strip_prefix('"')?.strip_suffix('"')?;
    let is_code = !code.is_empty()
        && code
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_code.then(|| code.to_owned())
}

/// Every code that the program can print has a row, and every row has a code that the program can
/// print.
#[test]
fn every_other_code_has_a_fix_and_exists() {
    let mut codes = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for entry in std::fs::read_dir(crates).unwrap().flatten() {
        if entry.file_name() != "regatta-testkit" {
            add_codes(&entry.path().join("src"), &mut codes);
        }
    }
    let page = read("docs/troubleshooting.md");
    let documented = rows(&page, "Other errors");
    let refusals = refusal_codes();
    let missing: Vec<_> = codes
        .difference(&documented)
        .filter(|code| !refusals.contains(*code))
        .collect();
    let gone: Vec<_> = documented.difference(&codes).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/troubleshooting.md lacks {missing:#?} and must not have {gone:#?}"
    );
}

#[test]
fn codes_are_found_in_every_way_to_write_them() {
    let source = "command_error(\n    \"no_file\",\n    format!(\"{a}, b\"),\n    \"x\",\n)\n\
        Problem::new(404, \"no_verb\", a, b)\n\
        Problem::new(status, error.code, a, b)\n\
        Detail { code: \"bad_row\".into(), what }\n\
        #[cfg(test)]\nmod tests { git_error(\"of_a_test\", a, b) }\n";
    let expected = ["bad_row", "no_file", "no_verb"].map(str::to_owned);
    assert_eq!(codes_in(source), BTreeSet::from(expected));
}

fn add_codes(directory: &Path, codes: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let is_test = path.to_string_lossy().contains("/tests");
        if path.is_dir() && !is_test {
            add_codes(&path, codes);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            codes.extend(codes_in(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}
