//! Lists common mistakes per programming language. An agent's prompt warns of the mistakes that are
//! common in the languages of the agent's files.

use regatta_core::pattern::PathPattern;

/// The largest number of warnings about common mistakes in one prompt.
const MAX_PITFALLS: usize = 8;

/// Returns warnings about the common mistakes in the languages of these files.
pub(crate) fn for_files(files: &[PathPattern]) -> Vec<&'static str> {
    let has_ending = |endings: &[&str]| {
        files.iter().any(|file| {
            let name = file.as_str().rsplit('/').next().unwrap_or_default();
            endings.iter().any(|ending| name.ends_with(ending))
        })
    };
    let mut pitfalls: Vec<&'static str> = Vec::new();
    for (endings, lines) in PITFALLS {
        if has_ending(endings) {
            pitfalls.extend(*lines);
        }
    }
    pitfalls.truncate(MAX_PITFALLS);
    pitfalls
}

/// Endings of file names such as `.rs`, and the common mistakes in files with these endings.
type PitfallRow = (&'static [&'static str], &'static [&'static str]);

const PITFALLS: &[PitfallRow] = &[
    (
        &[".go"],
        &[
            "Go: an unused import or variable does not compile; run `go build ./...` and `go vet \
            ./...` before you report that you are done.",
            "Go: tests of one package share its names; look for a helper before you write another \
            one.",
            "Go: wrap errors with %w where callers compare them, and never drop one silently.",
        ],
    ),
    (
        &[".rs", "Cargo.toml"],
        &[
            "Rust: warnings may be errors here; run the project's clippy and rustfmt before you \
            report that you are done.",
            "Rust: declare a new module where its parent lists modules, or it is never compiled.",
            "Rust: do not widen a public signature to please one caller; look how the others are \
            called.",
        ],
    ),
    (
        &[".py"],
        &[
            "Python: a test that is not named test_* is never collected.",
            "Python: a mutable default argument is shared by all calls.",
            "Python: an import at module level that runs code makes cycles; keep imports free of \
            effects.",
        ],
    ),
    (
        &[".ts", ".tsx", ".mts", ".cts"],
        &[
            "TypeScript: an unawaited promise swallows its error; await it or handle it.",
            "TypeScript: do not silence the checker with any or @ts-ignore; narrow the type.",
            "TypeScript: keep the module style (ESM or CommonJS) of the package you are in.",
        ],
    ),
    (
        &[".js", ".jsx", ".mjs", ".cjs"],
        &[
            "JavaScript: an unawaited promise swallows its error; await it or handle it.",
            "JavaScript: keep the module style (ESM or CommonJS) of the package you are in.",
        ],
    ),
    (
        &[".sh", ".bash"],
        &[
            "Shell: quote every expansion, and test with a path that has a space.",
            "Shell: `set -e` does not reach into conditions or pipes; check what matters yourself.",
            "Shell: keep to what sh knows unless the first line names bash.",
        ],
    ),
    (
        &[".sql"],
        &["SQL: a migration that landed is never edited; add a new one."],
    ),
    (
        &[".yml", ".yaml"],
        &["YAML: quote values such as no, on and 1.10, which are read as something else."],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfalls_are_chosen_by_the_languages_of_the_files() {
        let pitfalls_of = |files: &[&str]| {
            for_files(
                &files
                    .iter()
                    .map(|file| PathPattern::new(file).unwrap())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(pitfalls_of(&["src/**"]).is_empty() && pitfalls_of(&["README.md"]).is_empty());
        assert!(
            pitfalls_of(&["src/*.rs"])
                .iter()
                .all(|line| line.starts_with("Rust"))
        );
        for name in ["at.js", "at.cjs", "src/*.jsx"] {
            let lines = pitfalls_of(&[name]);
            assert!(
                !lines.is_empty() && lines.iter().all(|line| line.starts_with("JavaScript")),
                "{name}: {lines:?}"
            );
        }
        assert!(pitfalls_of(&["a.go", "b.py", "c.ts", "d.sh"]).len() == MAX_PITFALLS);
    }
}
