//! Rules about the source itself: absences that must hold, and what must be said somewhere.
//!
//! A rule reads the files as text, with comments and `#[cfg(test)]` modules taken out where it is
//! about the program. Each rule's way of looking is tried on a planted offender, so that a rule
//! that sees nothing is seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file, by its path from the workspace's top.
struct Source {
    path: String,
    text: String,
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the workspace")
        .to_owned()
}

fn collect_rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let skip =
            name.to_string_lossy().starts_with('.') || name == "target" || name == "node_modules";
        if path.is_dir() && !skip {
            collect_rust_files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Every Rust file below one of these directories.
fn rust_sources(under: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for dir in under {
        collect_rust_files(&workspace_root().join(dir), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|name| name == "rs"));
    paths.sort();
    let found: Vec<Source> = paths
        .into_iter()
        .map(|path| Source {
            path: path
                .strip_prefix(workspace_root())
                .expect("it was found there")
                .to_string_lossy()
                .into_owned(),
            text: fs::read_to_string(&path).expect("sources are UTF-8"),
        })
        .collect();
    assert!(
        !found.is_empty(),
        "nothing is left under {under:?}: mend this test's paths"
    );
    found
}

/// The members' names: `regatta-core`, …
fn crate_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(workspace_root().join("crates"))
        .expect("the members are in crates/")
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The program's own lines with their numbers: no comments, no `#[cfg(test)]` items.
fn program_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    // depth in a test item, and whether its braces have opened
    let mut skipped: Option<(usize, bool)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line);
        if skipped.is_none() && line.trim_start().starts_with("#[cfg(test)]") {
            skipped = Some((0, false));
            continue;
        }
        if let Some((mut depth, mut opened)) = skipped {
            for c in line.chars() {
                match c {
                    '{' => (depth, opened) = (depth + 1, true),
                    '}' => depth = depth.saturating_sub(1),
                    ';' if !opened => opened = true,
                    _ => {}
                }
            }
            skipped = if opened && depth == 0 {
                None
            } else {
                Some((depth, opened))
            };
            continue;
        }
        if !line.trim().is_empty() {
            lines.push((number, line.to_owned()));
        }
    }
    lines
}

/// The line up to `//`, unless that is inside a string (as in a URI).
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let bytes = line.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' if at == 0 || bytes[at - 1] != b'\\' => quoted = !quoted,
            b'/' if !quoted && bytes.get(at + 1) == Some(&b'/') => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Returns whether the line contains `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_name(line[..at].chars().next_back()) && !is_name(line[at + word.len()..].chars().next())
    })
}

/// Where lines offend, as `path:line: text`.
fn offenders(sources: &[Source], offends: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in program_lines(&source.text) {
            if offends(&source.path, &line) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn require_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

fn planted_source(path: &str, text: &str) -> Vec<Source> {
    vec![Source {
        path: path.into(),
        text: text.into(),
    }]
}

#[test]
fn comments_and_test_modules_are_left_out_of_program_lines() {
    let text = "use a; // std::fs\nlet x = \"http://y\"; call();\n#[cfg(test)]\nmod tests {\n  fn \
        f() { g() }\n}\nfn end() {}\n#[cfg(test)]\nuse b;\nfn last() {}";
    let lines: Vec<String> = program_lines(text)
        .into_iter()
        .map(|program_line| program_line.1)
        .collect();
    assert_eq!(
        lines,
        [
            "use a; ",
            "let x = \"http://y\"; call();",
            "fn end() {}",
            "fn last() {}"
        ]
    );
    assert!(
        has_word("use rand::x", "rand")
            && !has_word("operand", "rand")
            && !has_word("stranded", "rand")
    );
}

// Core.

fn is_impure(line: &str) -> bool {
    let paths = [
        "std::time::Instant",
        "std::time::SystemTime",
        "SystemTime::",
        "Instant::",
        "UNIX_EPOCH",
    ];
    let modules = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net",
        "std::thread",
        "std::io",
        "std::os",
    ];
    let words = [
        "async",
        "await",
        "rand",
        "getrandom",
        "RandomState",
        "HashMap",
        "HashSet",
        "tokio",
        "Mutex",
    ];
    let macros = [
        "println!",
        "eprintln!",
        "print!",
        "eprint!",
        "include_str!",
        "include_bytes!",
        "env!",
    ];
    paths
        .iter()
        .chain(&modules)
        .chain(&macros)
        .any(|path| line.contains(path))
        || words.iter().any(|word| has_word(line, word))
        || (line.contains("std::{")
            && ["fs", "env", "process", "net", "thread", "io"]
                .iter()
                .any(|s| has_word(line, s)))
}

/// A `HashMap` counts as randomness: its order differs from run to run.
#[test]
fn core_has_no_async_clock_randomness_files_processes_or_network() {
    require_none(
        &offenders(&rust_sources(&["crates/regatta-core/src"]), |_, line| {
            is_impure(line)
        }),
        "core is pure",
    );
    for bad in [
        "use std::{fs, fmt};",
        "let x = std::time::Instant::now();",
        "async fn f() {}",
        "rand::random()",
    ] {
        assert!(is_impure(bad), "{bad}");
    }
    assert!(!is_impure("/// ") && !is_impure("let stranded = task.operand;"));
}

/// Returns whether a line of core holds state outside the values that functions pass on: statics,
/// cells, atomics, locks and thread-locals.
fn holds_hidden_state(line: &str) -> bool {
    let words = [
        "static",
        "thread_local",
        "Cell",
        "RefCell",
        "UnsafeCell",
        "OnceCell",
        "OnceLock",
        "LazyCell",
        "LazyLock",
        "Lazy",
        "RwLock",
        "Condvar",
    ];
    let line = line.replace("'static", "");
    let is_atomic = |at: usize| {
        let rest = &line[at + "Atomic".len()..];
        rest.starts_with(|c: char| c.is_ascii_uppercase())
    };
    words.iter().any(|word| has_word(&line, word))
        || line.contains("sync::atomic")
        || line.contains("sync::Once")
        || line.match_indices("Atomic").any(|(at, _)| is_atomic(at))
}

#[test]
fn core_has_no_statics_cells_atomics_locks_or_thread_locals() {
    let core = rust_sources(&["crates/regatta-core/src"]);
    require_none(
        &offenders(&core, |_, line| holds_hidden_state(line)),
        "core keeps no state of its own; callers pass it in",
    );
    for bad in [
        "static COUNT: u64 = 0;",
        "pub(crate) static NAMES: [&'static str; 1] = [\"a\"];",
        "thread_local! {",
        "use std::cell::{Cell, RefCell};",
        "last: std::cell::OnceCell<u64>,",
        "use std::sync::atomic::Ordering;",
        "count: AtomicU64,",
        "rows: RwLock<u64>,",
        "let names = LazyLock::new(|| 1);",
        "first: std::sync::Once,",
    ] {
        assert!(holds_hidden_state(bad), "{bad}");
    }
    assert!(!holds_hidden_state("fn name(self) -> &'static str {"));
    assert!(!holds_hidden_state("/// An Atomic change of a FolderCell"));
}

// The status of a task.

/// Returns whether a line is an arm of a match, or part of a `matches!`, on a task's status.
fn matches_a_status(path: &str, line: &str) -> bool {
    let is_arm = |at: usize| {
        let before = line[..at].trim_end();
        let before = before.strip_suffix("task::").unwrap_or(before).trim_end();
        let name = &line[at + "TaskStatus::".len()..];
        let name_end = name
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(name.len());
        let after = name[name_end..].trim_start_matches([')', ' ']);
        let is_alternative = |text: &str, next: &str| text.contains(next) && !text.contains("||");
        let is_compared = before.trim_end_matches("Some(").trim_end();
        let is_compared = is_compared.ends_with("==") || is_compared.ends_with("!=");
        let is_compared_before = after.starts_with("==") || after.starts_with("!=");
        is_compared
            || is_compared_before
            || after.starts_with("=>")
            || after.starts_with("| ")
            || name[name_end..].starts_with(" if ")
            || (before.ends_with('|') && is_alternative(before, "|") && !before.contains("filter("))
    };
    !path.starts_with("crates/regatta-core/")
        && (line.contains("TaskStatus::*")
            || (line.contains("matches!") && line.contains("TaskStatus::"))
            || line.match_indices("TaskStatus::").any(|(at, _)| is_arm(at)))
}

/// Other crates ask core: `display::task_display`, `display::possible_actions`, or a predicate of
/// `TaskStatus`, such as `has_failed`. They may name statuses only in a filter of a query.
#[test]
fn only_core_matches_on_the_status_of_a_task() {
    require_none(
        &offenders(&program_sources(), matches_a_status),
        "what a status means is decided in core",
    );
    for bad in [
        "        TaskStatus::Completed => {}",
        "        | TaskStatus::Landing => \"in_progress\",",
        "        TaskStatus::Failed | TaskStatus::Cancelled",
        "    Some(task::TaskStatus::Failed | task::TaskStatus::Cancelled) => {",
        "        TaskStatus::Completed if task.landed.is_some() => {",
        "    let open = !matches!(task.status, TaskStatus::Landing);",
        "    use TaskStatus::*;",
        "    _ if task.status == TaskStatus::Validating => \"validating\".into(),",
        "    task.status == TaskStatus::Landing && is_own",
        "    .find(|task| task.status != TaskStatus::Failed)",
        "    if board.ended_status(id) == Some(task::TaskStatus::Completed) {",
        "    if TaskStatus::Backlog == task.status {",
    ] {
        let planted = planted_source("crates/regatta-server/src/live/actions.rs", bad);
        assert_eq!(offenders(&planted, matches_a_status).len(), 1, "{bad}");
        let core = planted_source("crates/regatta-core/src/task.rs", bad);
        assert!(offenders(&core, matches_a_status).is_empty());
    }
    for good in [
        "    (true, false) => task::TaskStatus::ALL",
        "    statuses: vec![TaskStatus::Completed, TaskStatus::Failed],",
    ] {
        let planted = planted_source("crates/regatta-server/src/live/actions.rs", good);
        assert!(offenders(&planted, matches_a_status).is_empty(), "{good}");
    }
}

// The store.

/// The columns that a condition of SQL may name: keys, the columns of indexes, and the parameters
/// of queries that are put together. A condition on anything else would be a rule of core, written
/// where nobody tests it.
const CONDITION_COLUMNS: [&str; 32] = [
    "agent",
    "attempt",
    "channel",
    "day",
    "epoch",
    "expires",
    "hook",
    "id",
    "key",
    "kind",
    "label",
    "live",
    "message",
    "mission",
    "name",
    "nth",
    "number",
    "parent",
    "project",
    "request",
    "revision",
    "root",
    "scope",
    "sender",
    "status",
    "task",
    "team",
    "value",
    "{id_column}",
    "{id}",
    "{key}",
    "{order}",
];

/// The functions that a condition may call: migrations look for the rows that they change.
const CONDITION_FUNCTIONS: [&str; 1] = ["instr"];

/// Returns the texts between quotation marks, without the line breaks that a backslash hides.
fn string_literals(text: &str) -> Vec<String> {
    let lines: Vec<String> = program_lines(text).into_iter().map(|line| line.1).collect();
    let text = lines.join("\n");
    let (mut literals, mut rest) = (Vec::new(), text.as_str());
    while let Some(start) = rest.find('"') {
        let is_char = rest[..start].ends_with('\'') || rest[..start].ends_with("'\\");
        rest = &rest[start + 1..];
        if is_char {
            continue;
        }
        let (mut literal, mut is_escaped, mut end) = (String::new(), false, rest.len());
        for (at, c) in rest.char_indices() {
            match c {
                '"' if !is_escaped => {
                    end = at + 1;
                    break;
                }
                '\\' if !is_escaped => is_escaped = true,
                '\n' if is_escaped => is_escaped = false,
                c => {
                    literal.push(c);
                    is_escaped = false;
                }
            }
        }
        literals.push(literal);
        rest = &rest[end..];
    }
    literals
}

/// Returns the columns and functions on the left side of each comparison in the conditions of an
/// SQL text.
fn condition_operands(sql: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in sql.chars() {
        match c {
            '=' | '<' | '>' | '!' | '(' | ')' | ',' | ';' => spaced.extend([' ', c, ' ']),
            c => spaced.push(c),
        }
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    // A fragment of a condition, such as `live = 1`, has no keyword before it.
    let mut is_condition = words.get(1).is_some_and(|word| *word == "=");
    let mut operands = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match *word {
            "WHERE" | "AND" | "OR" | "ON" | "HAVING" | "WHEN" => is_condition = true,
            "SELECT" | "SET" | "VALUES" | "LIMIT" | "BY" | "CREATE" | ";" => is_condition = false,
            _ => {}
        }
        let is_comparison = matches!(
            *word,
            "=" | "<" | ">" | "!" | "IS" | "IN" | "LIKE" | "GLOB" | "MATCH" | "BETWEEN"
        );
        let Some(before) = at.checked_sub(1).map(|before| words[before]) else {
            continue;
        };
        let is_second_sign = ["=", "<", ">", "!"].contains(&before);
        if !is_condition || !is_comparison || is_second_sign {
            continue;
        }
        let operand = match before {
            ")" => {
                let mut depth = 0;
                let open = words[..at].iter().rposition(|word| {
                    depth += i32::from(*word == ")") - i32::from(*word == "(");
                    depth == 0
                });
                open.and_then(|open| open.checked_sub(1))
                    .map_or(")", |name| words[name])
            }
            "NOT" => words.get(at.wrapping_sub(2)).copied().unwrap_or("NOT"),
            column => column,
        };
        operands.push(operand.rsplit('.').next().unwrap_or(operand).to_owned());
    }
    operands
}

/// Returns whether a text is SQL, and not a message.
fn is_sql(text: &str) -> bool {
    let keywords = [
        "SELECT ",
        "WHERE ",
        "DELETE FROM",
        "UPDATE ",
        " AND ",
        "INDEX ",
    ];
    keywords.iter().any(|keyword| text.contains(keyword)) || text.starts_with("live = ")
}

fn forbidden_operands(source: &Source) -> Vec<String> {
    string_literals(&source.text)
        .iter()
        .filter(|text| is_sql(text))
        .flat_map(|text| condition_operands(text))
        .filter(|operand| {
            let operand = operand.as_str();
            !CONDITION_COLUMNS.contains(&operand) && !CONDITION_FUNCTIONS.contains(&operand)
        })
        .map(|operand| format!("{}: {operand}", source.path))
        .collect()
}

#[test]
fn sql_contains_no_rule() {
    let store = rust_sources(&["crates/regatta-store/src"]);
    let found: Vec<String> = store.iter().flat_map(forbidden_operands).collect();
    require_none(
        &found,
        "a condition of SQL names only keys and indexed columns",
    );
    let all: Vec<String> = store
        .iter()
        .flat_map(|source| string_literals(&source.text))
        .filter(|text| is_sql(text))
        .flat_map(|text| condition_operands(&text))
        .collect();
    assert!(
        all.len() > 60,
        "the test found only {} conditions",
        all.len()
    );
    for bad in [
        r#"let sql = "SELECT id FROM tasks WHERE priority < 2";"#,
        r#"let sql = "SELECT id FROM tasks WHERE live = 1 AND json_extract(body, '$.tries') > 3";"#,
        r#"let sql = "DELETE FROM tasks WHERE id = ?1 \
            AND updated <= ?2";"#,
        r#"sql += " AND body LIKE '%failed%'";"#,
        r#"let sql = "UPDATE tasks SET live = 0 WHERE retries != 0";"#,
    ] {
        let planted = &planted_source("crates/regatta-store/src/history.rs", bad)[0];
        assert_eq!(forbidden_operands(planted).len(), 1, "{bad}");
    }
}

/// The names in one table of a manifest, such as `[dependencies]`.
fn table_keys(manifest: &str, name: &str) -> BTreeMap<String, String> {
    let mut inside = false;
    let mut entries = BTreeMap::new();
    for line in manifest
        .lines()
        .map(|manifest| manifest.split(" #").next().unwrap_or(manifest).trim())
    {
        if line.starts_with('[') {
            inside = line == format!("[{name}]");
            // `[dependencies.x]` is the same, written longer.
            if let Some(own) = line.strip_prefix(&format!("[{name}.")) {
                entries.insert(
                    own.trim_end_matches(']').to_owned(),
                    "a table of its own".into(),
                );
            }
        } else if let Some((key, value)) = line
            .split_once('=')
            .filter(|_| inside && !line.starts_with('#'))
        {
            let (key, tail) = key.trim().split_once('.').unwrap_or((key.trim(), ""));
            entries.insert(key.to_owned(), format!("{tail}={}", value.trim()));
        }
    }
    entries
}

fn read_manifest(member: &str) -> String {
    let dir = if member == "xtask" {
        workspace_root().join("xtask")
    } else {
        workspace_root().join("crates").join(member)
    };
    fs::read_to_string(dir.join("Cargo.toml")).expect("every member has a manifest")
}

/// Dependencies of core behind a feature that is off by default. Each of them is a decision.
const OPTIONAL_CORE_DEPENDENCIES: [&str; 1] = ["schemars"];

#[test]
fn core_depends_on_three_crates() {
    let manifest = read_manifest("regatta-core");
    let (optional, always): (Vec<_>, Vec<_>) = table_keys(&manifest, "dependencies")
        .into_iter()
        .partition(|table_key| table_key.1.contains("optional = true"));
    assert_eq!(
        always.into_iter().map(|alway| alway.0).collect::<Vec<_>>(),
        ["imbl", "serde", "thiserror"]
    );
    assert_eq!(
        optional
            .into_iter()
            .map(|optional| optional.0)
            .collect::<Vec<_>>(),
        OPTIONAL_CORE_DEPENDENCIES
    );
    assert!(
        !table_keys(&manifest, "features").contains_key("default"),
        "core has no feature that is on by itself"
    );
}

/// The crates of this workspace on which each crate may depend.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 11] = [
    ("regatta-core", &[]),
    ("regatta-api", &["regatta-core"]),
    ("regatta-engine", &["regatta-core"]),
    ("regatta-store", &["regatta-core", "regatta-engine"]),
    ("regatta-git", &["regatta-core", "regatta-engine"]),
    ("regatta-agents", &["regatta-core", "regatta-engine"]),
    (
        "regatta-bridges",
        &["regatta-core", "regatta-api", "regatta-engine"],
    ),
    (
        "regatta-server",
        &["regatta-core", "regatta-api", "regatta-engine"],
    ),
    (
        "regatta-testkit",
        &["regatta-core", "regatta-api", "regatta-engine"],
    ),
    (
        "regatta",
        &[
            "regatta-core",
            "regatta-api",
            "regatta-engine",
            "regatta-store",
            "regatta-git",
            "regatta-agents",
            "regatta-server",
            "regatta-bridges",
        ],
    ),
    (
        "xtask",
        &[
            "regatta-core",
            "regatta-api",
            "regatta-engine",
            "regatta-store",
            "regatta-git",
            "regatta-agents",
            "regatta-server", // what its doors take under load is measured
            "regatta-testkit",
        ],
    ),
];

#[test]
fn crates_depend_only_on_the_crates_that_the_table_allows() {
    let rules: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.into_iter().collect();
    for member in crate_names().iter().map(String::as_str).chain(["xtask"]) {
        let Some(rule) = rules.get(member) else {
            panic!("{member} is not in the table of allowed dependencies")
        };
        let manifest = read_manifest(member);
        let all = table_keys(&manifest, "dependencies")
            .into_keys()
            .chain(table_keys(&manifest, "build-dependencies").into_keys());
        for s in all.filter(|s| s.starts_with("regatta")) {
            assert!(
                rule.contains(&s.as_str()),
                "{member} may not depend on {s}; it may on {rule:?}"
            );
        }
    }
}

#[test]
fn a_dependency_has_one_version_named_once() {
    for member in crate_names().iter().map(String::as_str).chain(["xtask"]) {
        let manifest = read_manifest(member);
        for name in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (key, value) in table_keys(&manifest, name) {
                let shared = value == "workspace=true"
                    || (value.starts_with("={") && value.contains("workspace = true"));
                assert!(
                    shared && !value.contains("version"),
                    "{member}: {key} names a version of its own ({value})"
                );
            }
        }
        assert!(
            !manifest.contains("[target."),
            "{member}: this test does not read [target.…] tables yet"
        );
    }
    let planted = table_keys(
        "[dependencies]\na.workspace = true\nb = \"1\"\nc = { workspace = true, features = [] \
        }\n[dev-dependencies]\nd = \"2\"",
        "dependencies",
    );
    assert_eq!(planted["a"], "workspace=true");
    assert_eq!(planted["b"], "=\"1\"");
    assert_eq!(planted.len(), 3);
}

// One place each.

/// Returns whether a profile gives the program's own package settings of its own. Cargo then keeps
/// the symbols of the program, although the profile says `strip = true`.
fn keeps_symbols(manifest: &str, profile: &str) -> bool {
    table_keys(manifest, &format!("profile.{profile}.package")).contains_key("regatta")
}

#[test]
fn the_profiles_of_releases_strip_the_program() {
    let manifest = read_document("Cargo.toml");
    assert_eq!(table_keys(&manifest, "profile.release")["strip"], "=true");
    for profile in ["release", "dist"] {
        assert!(
            !keeps_symbols(&manifest, profile),
            "the profile {profile} names the package regatta, so cargo does not strip the program"
        );
    }
    for planted in [
        "[profile.release.package]\nregatta.opt-level = \"z\"\n",
        "[profile.release.package.regatta]\nopt-level = \"z\"\n",
    ] {
        assert!(keeps_symbols(planted, "release"), "{planted}");
    }
}

fn commits_to_store(path: &str, line: &str) -> bool {
    path != "crates/regatta-engine/src/writer.rs"
        && (line.contains("store.commit(") || line.contains("Store::commit("))
}

/// The testkit's suite and the store's own example and tests commit too: they are not the program.
#[test]
fn only_the_writer_commits() {
    let program: Vec<Source> = program_sources();
    require_none(
        &offenders(&program, commits_to_store),
        "only writer.rs commits",
    );
    let writer: Vec<Source> = program
        .into_iter()
        .filter(|source| source.path.ends_with("engine/src/writer.rs"))
        .collect();
    assert_eq!(
        offenders(&writer, |_, line| line.contains("store.commit(")).len(),
        1,
        "and it does so in one place"
    );
    assert_eq!(
        offenders(
            &planted_source("crates/x/src/a.rs", "fn f() { self.store.commit(batch) }"),
            commits_to_store
        )
        .len(),
        1
    );
}

/// The sources of the program: `src` of each crate but the testkit, without modules of tests.
fn program_sources() -> Vec<Source> {
    let dirs: Vec<String> = crate_names()
        .into_iter()
        .filter(|crate_name| crate_name != "regatta-testkit")
        .map(|crate_name| format!("crates/{crate_name}/src"))
        .collect();
    let mut sources = rust_sources(&dirs.iter().map(String::as_str).collect::<Vec<_>>());
    sources.retain(|source| !source.path.ends_with("tests.rs"));
    sources
}

/// A state machine: the file with its table of changes, the fields that only this file assigns, and
/// the type of the state in literals of records.
const STATE_MACHINES: [(&str, &[&str], &str); 5] = [
    (
        "crates/regatta-core/src/task/status.rs",
        &["task.status"],
        "status: TaskStatus::",
    ),
    (
        "crates/regatta-core/src/landing/state.rs",
        &["landing.state"],
        "state: LandingState::",
    ),
    (
        "crates/regatta-core/src/launch/state.rs",
        &["entry.state"],
        "state: MemberState::",
    ),
    (
        "crates/regatta-core/src/conversation/turn_state.rs",
        &["turn.state", "].state"],
        "state: TurnState::",
    ),
    (
        "crates/regatta-core/src/approval/state.rs",
        &[
            "approval.closed",
            "approval.decision",
            "approval.is_kept_for_task",
        ],
        "decision: Some(",
    ),
];

/// The lines that create a record in its first state. Events about the assignment of a task also
/// name the task's new status.
const FIRST_STATES: [&str; 5] = [
    "status: TaskStatus::Unassigned,",
    "status: TaskStatus::Pending,",
    "state: LandingState::Queued,",
    "state: MemberState::Queued,",
    "state: TurnState::Queued,",
];

fn assigns(line: &str, field: &str) -> bool {
    let tuple_start = line.find(&format!("({field}, "));
    let in_tuple = tuple_start.is_some_and(|at| line[at..].contains(") = "));
    in_tuple
        || [" = ", " |= "]
            .iter()
            .any(|sign| line.contains(&format!("{field}{sign}")))
        || line.contains(&format!("&mut {field}"))
}

fn writes_a_state(path: &str, line: &str) -> bool {
    let is_first = FIRST_STATES.contains(&line.trim());
    STATE_MACHINES.iter().any(|(file, fields, literal)| {
        path.starts_with("crates/regatta-core/src/")
            && path != *file
            && (fields.iter().any(|field| assigns(line, field))
                || (line.trim().starts_with(literal) && !is_first))
    })
}

#[test]
fn only_a_state_machine_writes_its_state() {
    let core = rust_sources(&["crates/regatta-core/src"]);
    require_none(
        &offenders(&core, writes_a_state),
        "a state changes only in the file with the table of its changes",
    );
    for bad in [
        "landing.state = LandingState::Queued;",
        "task.status = TaskStatus::Completed;",
        "self.change_task(id, now, rows, |task| task.status = *event.status());",
        "status: TaskStatus::Completed,",
        "state: MemberState::Stopped,",
        "conversation.turns[index].state = TurnState::Working;",
        "(turn.state, turn.reason) = (TurnState::Done, None);",
        "std::mem::replace(&mut landing.state, LandingState::Queued)",
        "approval.closed |= is_over;",
    ] {
        let planted = planted_source("crates/regatta-core/src/board/fold.rs", bad);
        assert_eq!(offenders(&planted, writes_a_state).len(), 1, "{bad}");
    }
    for (file, ..) in STATE_MACHINES {
        assert!(core.iter().any(|source| source.path == file), "{file}");
    }
}

/// The largest number of methods in one part of the interface to git.
const MAX_PORT_METHODS: usize = 12;

/// Returns the traits of a source, each with its number of methods and of default bodies.
fn trait_sizes(text: &str) -> Vec<(String, usize, usize)> {
    let mut traits: Vec<(String, usize, usize)> = Vec::new();
    let (mut in_trait, mut in_head) = (false, false);
    for (_, line) in program_lines(text) {
        if let Some(name) = line.strip_prefix("pub trait ") {
            traits.push((name.to_owned(), 0, 0));
            in_trait = !line.trim_end().ends_with("{}");
        } else if line.starts_with('}') {
            in_trait = false;
        }
        let Some((_, methods, bodies)) = traits.last_mut().filter(|_| in_trait) else {
            continue;
        };
        if line.starts_with("    fn ") {
            *methods += 1;
            in_head = true;
        }
        let line = line.trim_end();
        if in_head && (line.ends_with('{') || line.ends_with("{}")) {
            *bodies += 1;
        }
        in_head &= !line.ends_with(';') && !line.ends_with('{') && !line.ends_with("{}");
    }
    traits
}

#[test]
fn the_interface_to_git_has_small_parts_without_default_bodies() {
    let mut sources = rust_sources(&["crates/regatta-engine/src/ports/git"]);
    sources.retain(|source| !source.path.ends_with("types.rs"));
    let mut all = 0;
    for source in &sources {
        for (name, methods, bodies) in trait_sizes(&source.text) {
            assert!(methods <= MAX_PORT_METHODS, "{name} has {methods} methods");
            assert_eq!(bodies, 0, "{name} has default bodies");
            all += methods;
        }
    }
    assert!(all > 50, "the test found only {all} methods");
    let planted =
        "pub trait Big: Send {\n    fn a(&self);\n    fn b(\n        &self,\n    ) {\n    }\n}\n";
    assert_eq!(trait_sizes(planted), [("Big: Send {".to_owned(), 2, 1)]);
}

/// Writing a ref of the user's repository: `update-ref` there, or a push, a fetch or a merge into a
/// branch. The vault's own refs and a workspace's disposable ones are updated elsewhere, each by
/// `--stdin` in a git directory of Regatta's, and never under a name that is made from the trunk's.
fn moves_a_trunk(path: &str, line: &str) -> bool {
    let words = [
        "\"update-ref\"",
        "\"branch\"",
        "\"push\"",
        "\"reset\"",
        "\"merge\"",
        "\"rebase\"",
        "\"checkout\"",
        "\"switch\"",
    ];
    let ours = path.ends_with("git/src/vault.rs") || path.ends_with("git/src/workspace.rs");
    // A remote's branch is not the trunk here; it follows what was landed. A runner hands keep-refs
    // over to its server.
    let pushes = path.ends_with("git/src/remote_trunk.rs")
        && (line.trim() == "\"push\"," || line.contains("{commit}:refs/heads/"))
        || path.ends_with("git/src/runner_mirror.rs") && line.trim() == "\"push\",";
    path != "crates/regatta-git/src/land.rs"
        && !pushes
        && ((line.contains("refs/heads/")
            && line.contains("trunk")
            && line.contains(":refs/heads/"))
            || words
                .iter()
                .any(|word| line.contains(word) && !(ours && line.contains("--stdin"))))
}

#[test]
fn only_land_moves_a_trunk() {
    let git = rust_sources(&["crates/regatta-git/src"]);
    require_none(
        &offenders(&git, moves_a_trunk),
        "only land.rs moves a trunk",
    );
    let elsewhere = offenders(&git, |path, line| {
        let reads = path.ends_with("user_repo.rs")
            || path.ends_with("trunk_facts.rs")
            || (path.ends_with("remote_trunk.rs") && line.contains("let name = format!"))
            || (path.ends_with("vault.rs") && line.contains("+refs/heads/"))
            || (path.ends_with("remote_trunk.rs")
                && line.contains("+refs/heads/{}:{tracking_ref}"));
        let pushes = path.ends_with("remote_trunk.rs") && line.contains("{commit}:refs/heads/");
        // The vault shows the trunk to runners, whose mirrors have it: copies, never the user's.
        let copies = (path.ends_with("git/src/serve.rs")
            || path.ends_with("git/src/runner_mirror.rs"))
            && line.trim() == "format!(\"refs/heads/{}\", repo.trunk)";
        line.contains("refs/heads/")
            && line.contains("trunk")
            && !path.ends_with("land.rs")
            && !reads
            && !pushes
            && !copies
    });
    require_none(
        &elsewhere,
        "only land.rs writes, and user_repo.rs, trunk_facts.rs, a push, the fetches and copies of it read, \
        the trunk's ref",
    );
    let permits = offenders(&program_sources(), |path, line| {
        line.contains("TrunkPermit::mint")
            && !path.ends_with("engine/src/perform/landings.rs")
            && !path.ends_with("ports/git.rs")
    });
    require_none(&permits, "only the engine mints a permit");
    let bad = "self.git.theirs(repo).args([\"update-ref\", name, new])";
    assert_eq!(
        offenders(
            &planted_source("crates/regatta-git/src/merge.rs", bad),
            moves_a_trunk
        )
        .len(),
        1
    );
}

fn starts_git(path: &str, line: &str) -> bool {
    let runs = path == "crates/regatta-git/src/git_command.rs";
    let spawns = line.contains("Command::new(");
    (spawns && path.starts_with("crates/regatta-git/") && !runs)
        || (spawns && line.contains("\"git\""))
        || (!path.starts_with("crates/regatta-git/") && line.contains("arg(\"git\")"))
}

/// The files that may start programs: git, the shim and what starts it, the daemon, the process that
/// becomes a sandboxed program and the one that probes the sandbox, a person's command for a secret,
/// the version of an agent's program, the `gc` pool, the editor and the pager of a person, a shell in
/// a workspace, and the repository's own advice on a wave.
const FILES_THAT_MAY_SPAWN: [&str; 16] = [
    "crates/regatta-git/src/git_command.rs",
    "crates/regatta-agents/src/shim.rs",
    "crates/regatta-agents/src/adapter.rs",
    "crates/regatta-agents/src/scripted.rs",
    "crates/regatta-agents/src/sandbox/init_process.rs",
    "crates/regatta-agents/src/sandbox/namespaces.rs",
    "crates/regatta-agents/src/sandbox/probe.rs",
    "crates/regatta-agents/src/secrets.rs",
    "crates/regatta-agents/src/program_discovery.rs",
    "crates/regatta-agents/src/gc_program_worker.rs",
    "crates/regatta/src/client.rs",
    "crates/regatta/src/pager.rs",
    "crates/regatta/src/commands/diff.rs",
    "crates/regatta/src/commands/run/from_prompt.rs",
    "crates/regatta/src/commands/run/from_wave.rs",
    "crates/regatta/src/commands/takeover.rs",
];

#[test]
fn one_module_starts_git() {
    let program = program_sources();
    require_none(
        &offenders(&program, starts_git),
        "only git/src/git_command.rs starts git",
    );
    let strangers = offenders(&program, |path, line| {
        line.contains("Command::new(") && !FILES_THAT_MAY_SPAWN.contains(&path)
    });
    require_none(
        &strangers,
        "a new place that starts programs needs a reason here",
    );
    assert_eq!(
        offenders(
            &planted_source("crates/regatta-git/src/merge.rs", "Command::new(git)"),
            starts_git
        )
        .len(),
        1
    );
    assert_eq!(
        offenders(
            &planted_source("crates/regatta/src/x.rs", "Command::new(\"git\")"),
            starts_git
        )
        .len(),
        1
    );
}

#[test]
fn only_composition_names_adapters() {
    let named = offenders(
        &rust_sources(&["crates/regatta/src", "crates/regatta-server/src"]),
        |path, line| {
            let adapters = ["SqliteStore", "GitAdapter", "AgentsAdapter"];
            path != "crates/regatta/src/composition.rs"
                && adapters.iter().any(|adapter| has_word(line, adapter))
        },
    );
    require_none(&named, "only composition.rs names adapters");
}

// Every file.

/// The length over which a file is split. The format with short lines makes a file about 40 % longer
/// than the one that the first limit of 800 lines was made for. Scenarios of tests are lists, so they
/// may be longer.
fn max_lines(path: &str) -> usize {
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    if is_test { 1_300 } else { 1_000 }
}

#[test]
fn files_stay_short() {
    let length = |source: &Source| source.text.lines().count();
    let too_long: Vec<String> = rust_sources(&["crates", "xtask"])
        .iter()
        .filter(|source| length(source) > max_lines(&source.path))
        .map(|source| format!("{} ({} lines)", source.path, length(source)))
        .collect();
    require_none(&too_long, "split long files by noun");
    assert!(max_lines("crates/x/src/a.rs") < max_lines("crates/x/tests/x/a.rs"));
}

#[test]
fn nothing_is_left_for_later() {
    let marks: [String; 4] = ["todo", "unimplemented", "dbg"]
        .map(|s| format!("{s}!("))
        .into_iter()
        .chain([format!("#[{}", "ignore")])
        .collect::<Vec<_>>()
        .try_into()
        .expect("four");
    let mut found = Vec::new();
    for source in rust_sources(&["crates", "xtask"]) {
        for (number, line) in (1..)
            .zip(source.text.lines())
            .filter(|pair| marks.iter().any(|mark| pair.1.contains(mark.as_str())))
        {
            found.push(format!("{}:{number}: {}", source.path, line.trim()));
        }
    }
    require_none(&found, "no placeholder and no ignored test");
}

// Documents.

fn read_document(name: &str) -> String {
    fs::read_to_string(workspace_root().join(name)).unwrap_or_else(|_| panic!("{name} is missing"))
}

/// Returns the texts between backticks on one line, outside of fenced blocks.
fn quoted_words(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// Returns whether a quoted word is meant as a path in this repository.
fn is_path(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let known = ["crates/", "xtask/", "docs/", ".ci/"]
        .iter()
        .any(|s| word.starts_with(s));
    plain && (known || word.ends_with(".rs") || word.ends_with(".md"))
}

#[test]
fn every_path_that_a_document_names_exists() {
    let mut paths = Vec::new();
    collect_rust_files(&workspace_root(), &mut paths);
    let names: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            Some(
                path.strip_prefix(workspace_root())
                    .ok()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .collect();
    for document_name in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let words: Vec<String> = quoted_words(&read_document(document_name))
            .into_iter()
            .filter(|quoted_word| is_path(quoted_word))
            .collect();
        for word in &words {
            // A bare `land.rs` may be anywhere; a path is from the top.
            let exists = workspace_root().join(word).exists()
                || (!word.contains('/')
                    && names.iter().any(|name| name.ends_with(&format!("/{word}"))));
            assert!(exists, "{document_name} names {word}, which does not exist");
        }
        assert!(
            document_name != "ARCHITECTURE.md" || words.len() > 10,
            "ARCHITECTURE.md names {} paths only",
            words.len()
        );
    }
    assert!(
        is_path("crates/x/src/a.rs")
            && is_path("land.rs")
            && !is_path("workspace://<project>/default")
            && !is_path("a/b")
    );
}

#[test]
fn the_readme_has_two_commands_and_they_are_run() {
    let (readme, script) = (read_document("README.md"), read_document(".ci/run"));
    for command in [
        "cargo run --release -- demo",
        "cargo test --workspace --locked",
    ] {
        assert!(
            readme.contains(command),
            "README.md does not say `{command}`"
        );
    }
    assert!(
        script.contains("cargo test --workspace --locked"),
        ".ci/run does not run the README's tests"
    );
    // A step that installs a tool comes after the tests, so that nothing installed helps them.
    let position = |start: &str| script.lines().position(|line| line.starts_with(start));
    let tests = position("step \"tests\" cargo test").expect("the tests are a step");
    let first_install = position("step_with ").expect("some steps need a tool");
    assert!(
        first_install > tests,
        ".ci/run installs something before the README's tests"
    );
}

#[test]
fn documents_are_there_and_the_toolchain_is_the_machine_s() {
    let changes = read_document("CHANGELOG.md");
    assert!(changes.contains("## "), "CHANGELOG.md has no section");
    assert!(
        read_document("ARCHITECTURE.md").lines().count() < 250,
        "ARCHITECTURE.md is kept under 250 lines"
    );
    for name in ["rust-toolchain", "rust-toolchain.toml"] {
        assert!(
            !workspace_root().join(name).exists(),
            "{name} would make a fresh machine download a toolchain"
        );
    }
}
