//! Reads a task's type, files and checks from a spec file (a description of the task in prose).
//!
//! Only the front matter and the sections with known headings are read. A value there that is not
//! valid is ignored and reported in [`TaskSpec::problems`].
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

use super::fields::ISSUE_TYPES;

/// The values that were found in a spec file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskSpec {
    pub(crate) issue_type: Option<IssueType>,
    pub(crate) files: Vec<PathPattern>,
    pub(crate) validation: Validation,
    /// A message for each value that is not valid and was ignored.
    pub(crate) problems: Vec<String>,
}

/// The kind of value that the lines below a key or a heading of a spec file contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpecSection {
    Nothing,
    Type,
    Files,
    Tests,
    Lint,
    FilesExist,
    /// The section `Validation`, whose lines are checks with their kind, such as `tests: make
    /// test`.
    Checks,
}

/// Reads the text of a spec file. Never fails; messages about invalid values are in
/// [`TaskSpec::problems`].
pub(crate) fn parse_spec(text: &str) -> TaskSpec {
    let mut spec = TaskSpec::default();
    let mut about = SpecSection::Nothing;
    let mut lines = text.lines().map(str::trim).peekable();
    let mut front = lines.next_if_eq(&"---").is_some();
    let mut fenced = false;
    for line in lines {
        if front {
            front = line != "---";
            match (line.strip_prefix("- "), line.split_once(':')) {
                (Some(item), _) => spec.add_value(about, item),
                (None, Some((key, value))) => {
                    about = section_of_key(key);
                    spec.add_values(about, value);
                }
                _ => {}
            }
            if !front {
                about = SpecSection::Nothing;
            }
            continue;
        }
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let command = matches!(about, SpecSection::Tests | SpecSection::Checks);
            spec.add_value(if command { SpecSection::Tests } else { about }, line);
        } else if let Some(heading) = line.strip_prefix('#') {
            about = section_of_heading(heading.trim_start_matches('#'));
        } else if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
            spec.read_bullet(about, item);
        } else if let Some(("type" | "issue type" | "issue_type", word)) = line
            .replace("**", "")
            .to_lowercase()
            .split_once(':')
            .map(|(key, word)| (key.trim(), word))
        {
            spec.add_value(SpecSection::Type, word);
        }
    }
    spec.files.sort();
    spec.files.dedup();
    spec
}

/// Returns the kind of value that a key of the front matter contains.
fn section_of_key(key: &str) -> SpecSection {
    match key.trim().to_lowercase().replace([' ', '-'], "_").as_str() {
        "type" | "issue_type" => SpecSection::Type,
        "files" | "file_manifest" | "manifest" => SpecSection::Files,
        "tests" | "test" => SpecSection::Tests,
        "lint" => SpecSection::Lint,
        "files_exist" => SpecSection::FilesExist,
        _ => SpecSection::Nothing,
    }
}

/// Returns the kind of value that the lines below a heading contain.
fn section_of_heading(heading: &str) -> SpecSection {
    match section_of_key(heading.trim().trim_end_matches(':')) {
        SpecSection::Nothing if heading.trim().eq_ignore_ascii_case("validation") => {
            SpecSection::Checks
        }
        SpecSection::Type => SpecSection::Nothing, // a section about types is prose
        other => other,
    }
}

/// Returns the text between backticks, or the whole text if it contains no backticks.
fn strip_backticks(text: &str) -> &str {
    let text = text.trim().trim_matches(['"', '\'']);
    match text.split('`').nth(1) {
        Some(quoted) if !quoted.is_empty() => quoted,
        _ => text,
    }
}

impl TaskSpec {
    fn read_bullet(&mut self, about: SpecSection, item: &str) {
        match about {
            SpecSection::Checks => match item.split_once(':') {
                Some((key, value))
                    if section_of_key(&key.replace('`', "")) != SpecSection::Nothing =>
                {
                    self.add_value(section_of_key(&key.replace('`', "")), value);
                }
                // A line without a kind, such as `tests:`, is a sentence. If it has text in
                // backticks, take that text as a test command.
                _ if item.contains('`') => self.add_value(SpecSection::Tests, item),
                _ => {}
            },
            // A path without backticks ends at the first space, as in `- src/auth.rs: the new
            // middleware`.
            SpecSection::Files if !item.contains('`') => {
                self.add_value(
                    about,
                    item.split([' ', '\t'])
                        .next()
                        .unwrap_or_default()
                        .trim_end_matches([':', ',']),
                );
            }
            SpecSection::Tests if !item.contains('`') => {}
            _ => self.add_value(about, item),
        }
    }

    fn add_values(&mut self, about: SpecSection, value: &str) {
        let value = value.trim();
        let paths = matches!(about, SpecSection::Files | SpecSection::FilesExist);
        match value
            .strip_prefix('[')
            .and_then(|value| value.strip_suffix(']'))
        {
            Some(list) => list.split(',').for_each(|part| self.add_value(about, part)),
            None if paths && !value.contains('{') => value
                .split(',')
                .for_each(|part| self.add_value(about, part)),
            None => self.add_value(about, value),
        }
    }

    fn add_value(&mut self, about: SpecSection, value: &str) {
        let value = strip_backticks(value);
        if value.is_empty() {
            return;
        }
        match about {
            SpecSection::Nothing | SpecSection::Checks => {}
            SpecSection::Type => match ISSUE_TYPES
                .iter()
                .find(|(name, _)| *name == value.to_lowercase())
            {
                Some(pair) => self.issue_type = Some(pair.1),
                None => self
                    .problems
                    .push(format!("{value:?} is not a valid issue type")),
            },
            SpecSection::Files => match PathPattern::expand(value) {
                Ok(path_patterns) => self.files.extend(path_patterns),
                Err(error) => self.problems.push(error.to_string()),
            },
            SpecSection::FilesExist => match PathPattern::new(value) {
                Ok(_) => self.validation.files_exist.push(value.to_owned()),
                Err(error) => self.problems.push(error.to_string()),
            },
            SpecSection::Tests => self.validation.tests.push(value.to_owned()),
            SpecSection::Lint => self.validation.lint.push(value.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(spec: &TaskSpec) -> Vec<&str> {
        spec.files.iter().map(PathPattern::as_str).collect()
    }

    #[test]
    fn front_matter_sets_type_files_and_checks() {
        let spec = parse_spec(
            "---\nissue_type: feature\nfiles: [src/a.rs, 'src/b.rs']\nvalidation:\n  tests: cargo \
            test a\n  files_exist:\n    - src/a.rs\n---\n# A\nfiles: prose\n",
        );
        assert_eq!(
            (spec.issue_type, files(&spec)),
            (Some(IssueType::Feature), vec!["src/a.rs", "src/b.rs"])
        );
        assert_eq!(spec.validation.tests, ["cargo test a"]);
        assert_eq!(spec.validation.files_exist, ["src/a.rs"]);
        assert_eq!(spec.problems, [] as [String; 0]);
    }

    #[test]
    fn plain_sections_set_files_and_checks_but_prose_does_not() {
        let spec = parse_spec(
            "# Auth\n**Type:** Bug\n\n## Files\n- `src/a.rs`: the middleware\n- tests/a.rs the \
             tests\n- ../../etc/passwd\n\n\
             ## Validation\n- tests: `make test`\n- files_exist: src/a.rs\n- look at it by hand\n- \
             run `make lint`\n\n## Notes\n- src/c.rs\n",
        );
        assert_eq!(
            (spec.issue_type, files(&spec)),
            (Some(IssueType::Bug), vec!["src/a.rs", "tests/a.rs"])
        );
        assert_eq!(spec.validation.tests, ["make test", "make lint"]);
        assert_eq!(spec.validation.files_exist, ["src/a.rs"]);
        assert_eq!(
            spec.problems.len(),
            1,
            "a path outside of the repository is reported: {spec:?}"
        );
        assert_eq!(
            parse_spec("## Tests\n```sh\nmake check\n```\n")
                .validation
                .tests,
            ["make check"]
        );
        assert_eq!(parse_spec("no spec at all"), TaskSpec::default());
    }
}
