//! Keeps the language of `docs/style.md`: words, names and comments that the guide avoids do not
//! come back.
//!
//! Each rule is tried on a planted offence, so that a rule that finds nothing is noticed. What a
//! word list cannot judge is read in review.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The longest line of the changelog, in characters.
const MAX_CHANGELOG_COLUMNS: usize = 120;

/// Phrases that use a clause as a noun, or that name a document outside the repository.
const PHRASES: [&str; 10] = [
    "for who ",
    "to who ",
    "by who ",
    "whoever",
    "nobody who",
    "in vain",
    "stands in line",
    "the seed's",
    "seed document",
    "§",
];

/// Constants that have a plain replacement: `MAX_…`, `…_TIMEOUT`, `…_DELAY`, `…_INTERVAL`.
const CONSTANTS: [&str; 8] = [
    "MOST", "LONGEST", "LARGEST", "PATIENCE", "AGAIN", "SOON", "NAP", "MOMENT",
];

/// Names that no file and no module may have, because they do not say what is inside.
const MODULES: [&str; 26] = [
    "desk", "doors", "door", "radar", "lots", "herald", "leash", "hands", "here", "there", "weave",
    "weigh", "keep", "past", "words", "word", "seed", "attend", "look", "shut_in", "confine",
    "calls", "behind", "once", "shapes", "quay",
];

/// First words of documentation that end in "s" and are no verbs in the third person.
const NO_VERBS: [&str; 12] = [
    "This",
    "Its",
    "Always",
    "Whereas",
    "Unless",
    "Was",
    "Us",
    "Less",
    "Plus",
    "As",
    "Is",
    "Otherwise",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Collects the files below a directory with one of these endings, without build results.
fn files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_built = ["target", "node_modules", "page", "dist", "book"].contains(&name.as_str());
        if path.is_dir() && !is_built && !name.starts_with('.') {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// A file by its path from the top of the repository.
struct Source {
    path: String,
    text: String,
}

fn read(top: &[&str], endings: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for dir in top {
        files(&root().join(dir), endings, &mut paths);
    }
    paths.sort();
    assert!(
        !paths.is_empty(),
        "no file in {top:?}: correct the paths of this test"
    );
    let source = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned(),
    };
    paths.into_iter().map(source).collect()
}

fn rust_sources() -> Vec<Source> {
    read(&["crates", "xtask"], &[".rs"])
}

fn planted(path: &str, text: &str) -> Source {
    Source {
        path: path.into(),
        text: text.into(),
    }
}

/// Fails with one line for each offence.
#[track_caller]
fn assert_none(offences: &[String], rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

/// Returns `path:line: text` for each line that offends.
fn offending_lines(sources: &[Source], offends: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in (1..).zip(source.text.lines()) {
            if offends(line) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

fn has_phrase(line: &str) -> bool {
    let line = line.to_lowercase();
    PHRASES.iter().any(|phrase| line.contains(phrase))
}

/// Returns the comments and literals of a source file, with the code blanked out. Other files are
/// text as a whole.
fn text_of(source: &Source) -> Source {
    let path = source.path.clone();
    if !path.ends_with(".rs") {
        return Source {
            path,
            text: source.text.clone(),
        };
    }
    let code = code_of(&source.text);
    let keep = |(c, code): (char, char)| if c == '\n' || code == ' ' { c } else { ' ' };
    Source {
        path,
        text: source.text.chars().zip(code.chars()).map(keep).collect(),
    }
}

/// This test, the tool that counts the phrases and the guide name what they forbid.
fn may_name_phrases(path: &str) -> bool {
    [
        "xtask/tests/language.rs",
        "xtask/src/prose.rs",
        "docs/style.md",
    ]
    .contains(&path)
}

#[test]
fn no_text_uses_the_phrases_that_the_guide_forbids() {
    let mut sources = rust_sources();
    sources.extend(read(
        &["docs", "web/src", "web/browser", "examples"],
        &[".md", ".ts", ".tsx", ".mjs"],
    ));
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ] {
        sources.push(planted(
            name,
            &fs::read_to_string(root().join(name)).unwrap(),
        ));
    }
    sources.retain(|source| !may_name_phrases(&source.path));
    let texts: Vec<Source> = sources.iter().map(text_of).collect();
    assert_none(
        &offending_lines(&texts, has_phrase),
        "write who does what; see docs/style.md",
    );
    assert!(has_phrase("/// Like it, for who needs no copy.") && has_phrase("// Whoever asks."));
    assert!(!has_phrase("/// Returns the agent who asked."));
}

/// Returns a source file with its comments, strings and character literals blanked out. Lines stay
/// where they are.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_len(rest, code.chars().next_back());
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        code.extend(
            rest[..skipped]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' }),
        );
        rest = &rest[skipped..];
    }
    code
}

/// Returns the length of the comment or literal with which `text` starts, or 0.
fn skipped_len(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with('"') {
        return quoted_len(text, '"');
    }
    if let Some(after) = text.strip_prefix('\'') {
        // A lifetime such as `'a` has no closing quote after one character.
        let is_literal = after.starts_with('\\') || text.chars().nth(2) == Some('\'');
        return if is_literal {
            quoted_len(text, '\'')
        } else {
            0
        };
    }
    let is_word_inside = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let hashes = text.strip_prefix('r').map_or("", |after| {
        &after[..after.len() - after.trim_start_matches('#').len()]
    });
    if is_word_inside || !text.starts_with(&format!("r{hashes}\"")) {
        return 0;
    }
    let start = hashes.len() + 2;
    let end = format!("\"{hashes}");
    text[start..]
        .find(&end)
        .map_or(text.len(), |position| start + position + end.len())
}

/// Returns the length of a literal in quotes, with backslash escapes.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (position, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return position + 1,
            _ => {}
        }
    }
    text.len()
}

fn identifiers(line: &str) -> Vec<&str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect()
}

/// Returns the sources with [`code_of`] applied.
fn rust_code() -> Vec<Source> {
    let blank = |source: Source| Source {
        text: code_of(&source.text),
        path: source.path,
    };
    rust_sources().into_iter().map(blank).collect()
}

fn names_a_variable_it(line: &str) -> bool {
    identifiers(line).contains(&"it")
}

#[test]
fn comments_and_literals_are_blanked_out() {
    let text = "let x = \"it\"; // it\nlet c = 'i'; f::<'a>(r#\"it \"it\" \"#, '\\'', it);";
    let code = code_of(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(
        identifiers(&code)
            .iter()
            .filter(|word| **word == "it")
            .count(),
        1,
        "{code}"
    );
    assert!(
        code.contains("let x =") && code.contains("f::<'a>("),
        "{code}"
    );
}

#[test]
fn no_variable_is_named_it() {
    let found = offending_lines(&rust_code(), names_a_variable_it);
    assert_none(&found, "name a variable after its value");
    assert!(names_a_variable_it("let it = task;"));
    assert!(!names_a_variable_it("let item = limit;"));
}

/// Returns whether a line defines a constant with a name such as `MOST_FILES` or `PATIENCE`.
fn defines_an_old_constant(line: &str) -> bool {
    let words = identifiers(line);
    let Some(position) = words
        .iter()
        .position(|word| ["const", "static"].contains(word))
    else {
        return false;
    };
    let name = words.get(position + 1).copied().unwrap_or_default();
    name.split('_').any(|part| CONSTANTS.contains(&part))
}

#[test]
fn constants_have_plain_names() {
    let found = offending_lines(&rust_code(), defines_an_old_constant);
    assert_none(&found, "write MAX_…, …_TIMEOUT, …_DELAY or …_INTERVAL");
    assert!(defines_an_old_constant("const FILES_MOST: usize = 3;"));
    assert!(defines_an_old_constant(
        "    const SHIM_PATIENCE: Duration = x;"
    ));
    assert!(!defines_an_old_constant("const MAX_FILES: usize = 3;"));
}

/// Returns the file and directory names of a path, without endings.
fn names_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .map(|part| part.split('.').next().unwrap_or_default())
}

#[test]
fn files_are_named_after_their_content() {
    let has_old_name = |path: &str| names_of(path).any(|name| MODULES.contains(&name));
    let mut found: Vec<String> = rust_sources()
        .into_iter()
        .map(|source| source.path)
        .collect();
    found.extend(
        read(&["web/src"], &[".ts", ".tsx"])
            .into_iter()
            .map(|source| source.path),
    );
    found.retain(|path| has_old_name(path));
    assert_none(
        &found,
        "name a file after the thing that a newcomer would search for",
    );
    assert!(has_old_name("crates/x/src/desk.rs") && has_old_name("crates/x/src/doors/many.rs"));
    assert!(!has_old_name("crates/x/src/help_desk.rs"));
}

#[test]
fn lines_of_the_changelog_are_short() {
    let is_long = |line: &str| line.chars().count() > MAX_CHANGELOG_COLUMNS;
    let changelog = planted(
        "CHANGELOG.md",
        &fs::read_to_string(root().join("CHANGELOG.md")).unwrap(),
    );
    for heading in ["# Changelog", "## [Unreleased]", "## [0.1.0]"] {
        assert!(
            changelog.text.contains(heading),
            "CHANGELOG.md has no heading {heading:?}"
        );
    }
    assert_none(
        &offending_lines(&[changelog], is_long),
        "one fact per line of the changelog",
    );
    assert!(is_long(&"x".repeat(121)) && !is_long(&"x".repeat(120)));
}

/// Returns the name of the public type that a line declares at the top level of its module.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type ", "union "]
        .iter()
        .find_map(|keyword| rest.strip_prefix(keyword))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// Returns each public type that is declared more than once, with the places.
fn duplicated_types(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources {
        for name in source.text.lines().filter_map(public_type) {
            places.entry(name).or_default().push(&source.path);
        }
    }
    places.retain(|_, paths| paths.len() > 1);
    places
        .iter()
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect()
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut sources = rust_sources();
    sources.retain(|source| source.path.contains("/src/"));
    assert_none(
        &duplicated_types(&sources),
        "qualify a type's name with its domain",
    );
    let offence = [
        planted("a.rs", "pub struct State {"),
        planted("b.rs", "pub enum State {"),
    ];
    assert_eq!(duplicated_types(&offence), ["State: a.rs, b.rs"]);
    assert!(duplicated_types(&[planted("a.rs", "pub struct State {\nstruct State;")]).is_empty());
}

/// Returns whether a word is the id of an invariant, such as `Q4`, with which a case of a suite
/// starts.
fn is_invariant(word: &str) -> bool {
    let number = word.get(1..).unwrap_or_default();
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the first word of a text if it is no verb in the third person, such as "Returns".
fn no_verb(text: &str) -> Option<&str> {
    let word = text
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    if text.starts_with("Like [") || is_invariant(word) {
        return None;
    }
    let is_capitalised = word.chars().next().is_some_and(char::is_uppercase);
    let is_verb = is_capitalised && word.ends_with('s') && !NO_VERBS.contains(&word);
    (!is_verb).then_some(word)
}

/// Returns the public functions whose documentation starts with something other than a verb.
fn functions_without_verb(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut first: Option<&str> = None;
    for (number, line) in (1..).zip(source.text.lines()) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            first = first.or(Some(text.trim()));
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        let is_function = [
            "pub fn ",
            "pub const fn ",
            "pub async fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
        ]
        .iter()
        .any(|start| line.starts_with(start));
        if let Some(word) = first.filter(|_| is_function).and_then(no_verb) {
            found.push(format!("{}:{number}: {word:?} before {line}", source.path));
        }
        first = None;
    }
    found
}

#[test]
fn documentation_of_functions_starts_with_a_verb() {
    let mut sources = rust_sources();
    sources.retain(|source| source.path.contains("/src/"));
    let found: Vec<String> = sources.iter().flat_map(functions_without_verb).collect();
    assert_none(
        &found,
        "start with \"Returns\", \"Adds\" or another verb in the third person",
    );
    let offence = "/// Who is in the way.\n#[must_use]\npub fn holders() {}\n";
    assert_eq!(functions_without_verb(&planted("a.rs", offence)).len(), 1);
    let plain = "/// Returns the holders.\npub fn holders() {}\n";
    assert!(functions_without_verb(&planted("a.rs", plain)).is_empty());
}

/// Returns the file names in a text that look like files of this repository.
fn named_files(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let words = text
        .split(|c: char| !is_name(c))
        .map(|word| word.trim_end_matches('.'));
    let ours = ["crates/", "xtask/", "docs/", "web/src/"];
    let has_ending = |word: &str| {
        [".rs", ".md", ".ts", ".tsx"]
            .iter()
            .any(|end| word.ends_with(end))
    };
    words
        .filter(|word| ours.iter().any(|start| word.starts_with(start)) && has_ending(word))
        .collect()
}

#[test]
fn comments_name_files_that_exist() {
    let mut missing = Vec::new();
    for source in rust_sources() {
        for (number, line) in (1..).zip(source.text.lines()) {
            let Some(comment) = line.trim().strip_prefix("//") else {
                continue;
            };
            for name in named_files(comment) {
                if !root().join(name).exists() {
                    missing.push(format!("{}:{number}: {name}", source.path));
                }
            }
        }
    }
    missing.retain(|place| !place.starts_with("xtask/tests/"));
    assert_none(&missing, "a comment names a file that does not exist");
    assert_eq!(
        named_files("see `docs/style.md` and src/a.rs."),
        ["docs/style.md"]
    );
}
