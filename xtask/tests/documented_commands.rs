//! Checks that every command and option that a page of the documentation names exists.
//!
//! The commands come from `docs/reference`, which an end-to-end test compares with the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Options that every command has.
const GLOBAL_OPTIONS: [&str; 13] = [
    "--json",
    "--project",
    "--repo",
    "--quiet",
    "--verbose",
    "--color",
    "--no-input",
    "--yes",
    "--timeout",
    "--server",
    "--no-hint",
    "--help",
    "--version",
];

/// The help text of each command, such as `task add`.
type Helps = BTreeMap<String, String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn helps() -> Helps {
    let mut helps = Helps::new();
    for page in ["commands.md", "plumbing.md"] {
        let text = read(&root().join("docs/reference").join(page));
        for section in text.split("\n## regatta ").skip(1) {
            for part in section.split("\n### regatta ") {
                let (name, help) = part.split_once('\n').expect("a heading has a text");
                helps.insert(name.trim().to_owned(), help.to_owned());
            }
        }
    }
    assert!(
        helps.len() > 100,
        "only {} commands were found",
        helps.len()
    );
    helps
}

/// Adds the pages below a directory, without the reference.
fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("the directory can be read")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("reference") {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Returns the calls of the program on a page: lines of code blocks, and code in backticks.
fn calls(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut calls = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            calls.extend(call(line.trim_start().trim_start_matches("$ ")));
        } else {
            calls.extend(line.split('`').skip(1).step_by(2).filter_map(call));
        }
    }
    calls
}

/// Returns the words after `regatta`, up to a comment, an explanation or another command.
fn call(code: &str) -> Option<String> {
    let mut words = code;
    while let Some((first, rest)) = words.split_once(' ').filter(|(first, _)| {
        first.split_once('=').is_some_and(|(name, _)| {
            name.bytes()
                .all(|byte| b"_ABCDEFGHIJKLMNOPQRSTUVWXYZ".contains(&byte))
        })
    }) {
        let _is_a_variable = first;
        words = rest;
    }
    let mut words = words.strip_prefix("regatta ")?;
    for end in ["  ", " # ", " -- ", " | ", " && "] {
        words = words.split(end).next().unwrap_or_default();
    }
    // Text in quotes is an argument, whatever it contains.
    Some(
        words
            .split(['\'', '"'])
            .step_by(2)
            .collect::<Vec<_>>()
            .join("TEXT"),
    )
}

/// Returns why a call is wrong, or nothing if its command and options exist.
fn fault(helps: &Helps, call: &str) -> Option<String> {
    let mut words = call
        .split_whitespace()
        .map(|word| word.trim_matches([',', '.', ';', ':', ')']));
    let name = words
        .next()
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))?;
    if name == "help" {
        return None;
    }
    if !helps.contains_key(name) {
        return Some(format!("there is no command {name}"));
    }
    let with_subcommand = words
        .next()
        .map(|word| format!("{name} {word}"))
        .unwrap_or_default();
    let has_subcommands = helps.keys().any(|key| key.starts_with(&format!("{name} ")));
    let second = with_subcommand.rsplit(' ').next().unwrap_or_default();
    let is_word = !second.is_empty() && second.bytes().all(|byte| byte.is_ascii_lowercase());
    let help = match helps.get(&with_subcommand) {
        Some(help) => help,
        None if has_subcommands && is_word => {
            return Some(format!("there is no command {with_subcommand}"));
        }
        None => &helps[name],
    };
    let options = call.split_whitespace().filter(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    for option in options {
        let end = |c: char| !(c.is_ascii_lowercase() || c == '-');
        let option = option.split(end).next().unwrap_or_default();
        if !GLOBAL_OPTIONS.contains(&option) && !help.contains(option) {
            return Some(format!("there is no option {option}"));
        }
    }
    None
}

#[test]
fn every_command_and_option_that_a_page_names_exists() {
    let helps = helps();
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "examples/README.md",
    ]
    .map(|name| root().join(name))
    .into();
    add_pages(&root().join("docs"), &mut pages);
    let (mut count, mut faults) = (0, Vec::new());
    for page in &pages {
        for call in calls(&read(page)) {
            count += 1;
            if let Some(fault) = fault(&helps, &call) {
                faults.push(format!("{}: regatta {call}: {fault}", page.display()));
            }
        }
    }
    assert!(count > 300, "only {count} calls were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn wrong_commands_and_options_are_found() {
    let helps = helps();
    let text = "`regatta why T3`\n```\n$ A=b regatta task add 'x --y' --files a  a file\nlog regatta\n```\n";
    assert_eq!(calls(text), ["why T3", "task add TEXT --files a"]);
    for right in [
        "why T3",
        "task add TEXT --files a",
        "--help",
        "queue",
        "runner --labels gpu",
        "help exit-codes",
    ] {
        assert_eq!(fault(&helps, right), None, "{right}");
    }
    for wrong in [
        "frobnicate",
        "task frobnicate",
        "task add TEXT --frobnicate",
        "why T3 --files a",
    ] {
        assert!(fault(&helps, wrong).is_some(), "{wrong}");
    }
}
