//! Reads type, files and checks of a task from a spec file.
//!
//! A spec is prose for the agent or person who does the work. Only its front matter and its plain
//! sections are read. A value there that cannot be understood is ignored and reported in
//! [`Spec::left_out`].
//!
//! ```text
//! ---
//! issue_type: feature
//! files: [src/auth.rs, tests/auth.rs]
//! tests: cargo test auth
//! ---
//! ## Files
//! - `src/auth.rs`
//! ## Validation
//! - tests: `cargo test auth`
//! ```

use regatta_core::pattern::PathPattern;
use regatta_core::task::{IssueType, Validation};

use super::fields::TYPES;

/// The values that were found in a spec.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) issue_type: Option<IssueType>,
    pub(crate) files: Vec<PathPattern>,
    pub(crate) validation: Validation,
    /// Messages about values that could not be understood.
    pub(crate) left_out: Vec<String>,
}

/// The subject of the lines that follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Nothing,
    Type,
    Files,
    Tests,
    Lint,
    Exist,
    /// A section of checks, each with its kind: `tests: make test`.
    Checks,
}

/// Reads a spec file's text.
pub(crate) fn read(text: &str) -> Spec {
    let mut spec = Spec::default();
    let mut about = About::Nothing;
    let mut lines = text.lines().map(str::trim).peekable();
    let mut front = lines.next_if_eq(&"---").is_some();
    let mut fenced = false;
    for line in lines {
        if front {
            front = line != "---";
            match (line.strip_prefix("- "), line.split_once(':')) {
                (Some(item), _) => spec.note(about, item),
                (None, Some((key, value))) => {
                    about = named(key);
                    spec.note_list(about, value);
                }
                _ => {}
            }
            if !front {
                about = About::Nothing;
            }
            continue;
        }
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let command = matches!(about, About::Tests | About::Checks);
            spec.note(if command { About::Tests } else { about }, line);
        } else if let Some(heading) = line.strip_prefix('#') {
            about = section(heading.trim_start_matches('#'));
        } else if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
            spec.bullet(about, item);
        } else if let Some(("type" | "issue type" | "issue_type", word)) =
            line.replace("**", "").to_lowercase().split_once(':').map(|(key, word)| (key.trim(), word))
        {
            spec.note(About::Type, word);
        }
    }
    spec.files.sort();
    spec.files.dedup();
    spec
}

/// Maps a key of the front matter to its subject.
fn named(key: &str) -> About {
    match key.trim().to_lowercase().replace([' ', '-'], "_").as_str() {
        "type" | "issue_type" => About::Type,
        "files" | "file_manifest" | "manifest" => About::Files,
        "tests" | "test" => About::Tests,
        "lint" => About::Lint,
        "files_exist" => About::Exist,
        _ => About::Nothing,
    }
}

/// Maps a heading of the prose to its subject.
fn section(heading: &str) -> About {
    match named(heading.trim().trim_end_matches(':')) {
        About::Nothing if heading.trim().eq_ignore_ascii_case("validation") => About::Checks,
        About::Type => About::Nothing, // a section about types is prose
        other => other,
    }
}

/// Returns the text in backticks, or the whole text if it has none.
fn bare(text: &str) -> &str {
    let text = text.trim().trim_matches(['"', '\'']);
    match text.split('`').nth(1) {
        Some(quoted) if !quoted.is_empty() => quoted,
        _ => text,
    }
}

impl Spec {
    fn bullet(&mut self, about: About, item: &str) {
        match about {
            About::Checks => match item.split_once(':') {
                Some((key, value)) if named(&key.replace('`', "")) != About::Nothing => {
                    self.note(named(&key.replace('`', "")), value);
                }
                // A sentence about how to check is not a command; only text in backticks is.
                _ if item.contains('`') => self.note(About::Tests, item),
                _ => {}
            },
            // Such as: src/auth.rs: the new middleware
            About::Files if !item.contains('`') => {
                self.note(about, item.split([' ', '\t']).next().unwrap_or_default().trim_end_matches([':', ',']));
            }
            About::Tests if !item.contains('`') => {}
            _ => self.note(about, item),
        }
    }

    fn note_list(&mut self, about: About, value: &str) {
        let value = value.trim();
        let paths = matches!(about, About::Files | About::Exist);
        match value.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(list) => list.split(',').for_each(|it| self.note(about, it)),
            None if paths && !value.contains('{') => value.split(',').for_each(|it| self.note(about, it)),
            None => self.note(about, value),
        }
    }

    fn note(&mut self, about: About, value: &str) {
        let value = bare(value);
        if value.is_empty() {
            return;
        }
        match about {
            About::Nothing | About::Checks => {}
            About::Type => match TYPES.iter().find(|it| it.0 == value.to_lowercase()) {
                Some(it) => self.issue_type = Some(it.1),
                None => self.left_out.push(format!("{value:?} is not a valid issue type")),
            },
            About::Files => match PathPattern::expand(value) {
                Ok(it) => self.files.extend(it),
                Err(error) => self.left_out.push(error.to_string()),
            },
            About::Exist => match PathPattern::new(value) {
                Ok(_) => self.validation.files_exist.push(value.to_owned()),
                Err(error) => self.left_out.push(error.to_string()),
            },
            About::Tests => self.validation.tests.push(value.to_owned()),
            About::Lint => self.validation.lint.push(value.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(spec: &Spec) -> Vec<&str> {
        spec.files.iter().map(PathPattern::as_str).collect()
    }

    #[test]
    fn front_matter_sets_type_files_and_checks() {
        let spec = read(
            "---\nissue_type: feature\nfiles: [src/a.rs, 'src/b.rs']\nvalidation:\n  tests: cargo test a\n  files_exist:\n    - src/a.rs\n---\n# A\nfiles: prose\n",
        );
        assert_eq!((spec.issue_type, files(&spec)), (Some(IssueType::Feature), vec!["src/a.rs", "src/b.rs"]));
        assert_eq!(spec.validation.tests, ["cargo test a"]);
        assert_eq!(spec.validation.files_exist, ["src/a.rs"]);
        assert_eq!(spec.left_out, [] as [String; 0]);
    }

    #[test]
    fn plain_sections_set_files_and_checks_but_prose_does_not() {
        let spec = read(
            "# Auth\n**Type:** Bug\n\n## Files\n- `src/a.rs`: the middleware\n- tests/a.rs the tests\n- ../../etc/passwd\n\n\
             ## Validation\n- tests: `make test`\n- files_exist: src/a.rs\n- look at it by hand\n- run `make lint`\n\n## Notes\n- src/c.rs\n",
        );
        assert_eq!((spec.issue_type, files(&spec)), (Some(IssueType::Bug), vec!["src/a.rs", "tests/a.rs"]));
        assert_eq!(spec.validation.tests, ["make test", "make lint"]);
        assert_eq!(spec.validation.files_exist, ["src/a.rs"]);
        assert_eq!(spec.left_out.len(), 1, "a path outside of the repository is reported: {spec:?}");
        assert_eq!(read("## Tests\n```sh\nmake check\n```\n").validation.tests, ["make check"]);
        assert_eq!(read("no spec at all"), Spec::default());
    }
}
