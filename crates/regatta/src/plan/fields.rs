//! Reads the fields of a parsed TOML or JSON file one after the other, and checks their values.
//!
//! The reader records every mistake with its position and its fix, and continues, so that a person
//! sees all mistakes of a file at once.

use regatta_core::ids::AgentName;
use regatta_core::pattern::PathPattern;
use regatta_core::spelling::nearest;
use regatta_core::task::{ContentCheck, Expects, IssueType, Validation};

use super::diagnostic::{Diagnostic, SourceText};
use super::spanned_value::{PlanValue, SpannedValue, TableEntry};

/// The names of the issue types in plans, spec files and issue files.
pub(crate) const ISSUE_TYPES: [(&str, IssueType); 6] = [
    ("feature", IssueType::Feature),
    ("bug", IssueType::Bug),
    ("task", IssueType::Task),
    ("docs", IssueType::Docs),
    ("chore", IssueType::Chore),
    ("ci", IssueType::Ci),
];

/// The values of `effort`: how hard a model is asked to think, in the words of the known providers.
pub(crate) const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

/// The fields of the table `validation` of a task, which lists its checks.
pub(crate) const VALIDATION_FIELDS: [&str; 4] = ["tests", "lint", "files_exist", "content_check"];

const MAX_SUBJECT_CHARS: usize = 300;
const MAX_DESCRIPTION_BYTES: usize = 256 * 1024;
const MAX_FILES: usize = 1_000;

/// Reads values from a parsed plan or issue file, and collects the mistakes in the file.
pub(crate) struct FieldReader<'a> {
    pub(crate) source: &'a SourceText,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The fields of one table that were not read yet. The fields that are left at the end are unknown.
pub(crate) struct TableFields {
    pub(crate) offset: usize,
    entries: Vec<TableEntry>,
}

impl TableFields {
    /// Removes and returns the field that has one of these names. All of the names mean the same
    /// field.
    pub(crate) fn remove(&mut self, names: &[&str]) -> Option<TableEntry> {
        let index = names
            .iter()
            .find_map(|name| self.entries.iter().position(|table| table.key == *name))?;
        Some(self.entries.remove(index))
    }

    /// Returns true if the name of an unread field looks like a mistyped `name`.
    pub(crate) fn has_similar(&self, name: &str, known: &[&str]) -> bool {
        self.entries
            .iter()
            .any(|table| nearest(&table.key, known) == Some(name))
    }
}

/// The fields about the work itself that plans, wave files and issue files share.
#[derive(Default)]
pub(crate) struct WorkFields {
    pub(crate) issue_type: Option<IssueType>,
    pub(crate) files: Option<Vec<PathPattern>>,
    pub(crate) validation: Option<Validation>,
    pub(crate) priority: Option<u8>,
    pub(crate) expects: Option<Expects>,
    pub(crate) effort: Option<String>,
    pub(crate) agent: Option<AgentName>,
    pub(crate) provider: Option<String>,
    pub(crate) script: Option<serde_json::Value>,
    /// A command that must succeed after the work has passed its checks, as program and arguments.
    pub(crate) ratchet: Option<Vec<String>>,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(source: &'a SourceText) -> FieldReader<'a> {
        FieldReader {
            source,
            diagnostics: Vec::new(),
        }
    }

    /// Adds a mistake at a byte offset. `what` describes the mistake, and `fix` the correction.
    pub(crate) fn report(
        &mut self,
        offset: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.diagnostics
            .push(self.source.diagnostic(offset, what, fix));
    }

    fn report_wrong_type(
        &mut self,
        name: &str,
        node: &SpannedValue,
        expected: &str,
        example: &str,
    ) {
        self.report(
            node.start,
            format!("`{name}` must be {expected}, not {}", node.kind_name()),
            format!("write {name} = {example}"),
        );
    }

    /// Returns the fields of a table. If the value is not a table, reports that with `example` and
    /// returns `None`.
    pub(crate) fn table(
        &mut self,
        name: &str,
        node: SpannedValue,
        example: &str,
    ) -> Option<TableFields> {
        match node.value {
            PlanValue::Table(entries) => Some(TableFields {
                offset: node.start,
                entries,
            }),
            _ => {
                self.report_wrong_type(name, &node, "a table", example);
                None
            }
        }
    }

    /// Reports each unread field as an unknown field, and suggests the name in `known` that the
    /// person probably meant.
    pub(crate) fn report_unknown(&mut self, fields: TableFields, kind: &str, known: &[&str]) {
        for table in fields.entries {
            let shown: String = table.key.chars().take(40).collect();
            let fix = match nearest(&table.key, known) {
                Some(word) if known.contains(&table.key.as_str()) => {
                    format!("it means the same as `{word}`; keep one of the two")
                }
                Some(word) => format!("write `{word}`"),
                None => format!("a {kind} has {}", known.join(", ")),
            };
            self.report(
                table.start,
                format!("unknown field `{}` in a {kind}", shown.escape_debug()),
                fix,
            );
        }
    }

    /// Returns the string in `node`. Reports a value that is empty or not a string.
    pub(crate) fn text(&mut self, name: &str, node: SpannedValue) -> Option<String> {
        match node.value {
            PlanValue::Text(s) if !s.trim().is_empty() => Some(s),
            PlanValue::Text(_) => {
                self.report(
                    node.start,
                    format!("`{name}` is empty"),
                    format!("fill it in, or remove `{name}`"),
                );
                None
            }
            _ => {
                self.report_wrong_type(name, &node, "a string", "\"…\"");
                None
            }
        }
    }

    /// Returns the strings in `node`, which is a string or a list of strings, each with its byte
    /// offset.
    pub(crate) fn texts(&mut self, name: &str, node: SpannedValue) -> Vec<(String, usize)> {
        let offset = node.start;
        match node.value {
            PlanValue::Text(_) => self
                .text(name, node)
                .map(|s| (s, offset))
                .into_iter()
                .collect(),
            PlanValue::List(items) => {
                let mut found = Vec::new();
                for item in items {
                    let offset = item.start;
                    if !matches!(item.value, PlanValue::Text(_)) {
                        let what = format!("`{name}` has {} among its strings", item.kind_name());
                        self.report(offset, what, format!("write {name} = [\"…\", \"…\"]"));
                    } else if let Some(s) = self.text(name, item) {
                        found.push((s, offset));
                    }
                }
                found
            }
            _ => {
                self.report_wrong_type(name, &node, "a list of strings", "[\"…\"]");
                vec![]
            }
        }
    }

    /// Returns the value that belongs to the word in `node`. Reports a word that is not in `known`.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        node: SpannedValue,
        known: &[(&str, T)],
    ) -> Option<T> {
        let offset = node.start;
        let word = self.text(name, node)?;
        if let Some(pair) = known.iter().find(|known| known.0 == word) {
            return Some(pair.1);
        }
        let words: Vec<&str> = known.iter().map(|known| known.0).collect();
        let guess = nearest(&word, &words).map_or(String::new(), |s| format!("write \"{s}\"; "));
        let shown: String = word.chars().take(40).collect();
        self.report(
            offset,
            format!("{shown:?} is not a valid {name}"),
            format!("{guess}the values are {}", words.join(", ")),
        );
        None
    }

    /// Returns the subject in `node`. Reports a text that has several lines or is too long.
    pub(crate) fn subject(&mut self, name: &str, node: SpannedValue) -> Option<String> {
        let offset = node.start;
        let s = self.text(name, node)?;
        if s.trim().contains(['\n', '\r', '\0']) {
            self.report(
                offset,
                format!("`{name}` is more than one line"),
                "put the rest into `description`",
            );
            return None;
        }
        if s.chars().count() > MAX_SUBJECT_CHARS {
            let what = format!(
                "`{name}` has {} characters, more than {MAX_SUBJECT_CHARS}",
                s.chars().count()
            );
            self.report(offset, what, "put the rest into `description`");
            return None;
        }
        Some(s.trim().to_owned())
    }

    /// Returns the description in `node`, which may be empty. Reports a text of more than 256 KiB.
    pub(crate) fn description(&mut self, node: SpannedValue) -> String {
        match node.value {
            PlanValue::Text(s) if s.len() <= MAX_DESCRIPTION_BYTES => s,
            PlanValue::Text(_) => {
                self.report(
                    node.start,
                    "`description` has more than 256 KiB",
                    "put the text into a file and refer to the file",
                );
                String::new()
            }
            _ => {
                self.report_wrong_type("description", &node, "a string", "\"…\"");
                String::new()
            }
        }
    }

    /// Returns the file patterns in `node` (the files that a task may change), with braces
    /// expanded.
    pub(crate) fn files(&mut self, name: &str, node: SpannedValue) -> Vec<PathPattern> {
        let whole = node.start;
        let mut found = Vec::new();
        for (text, offset) in self.texts(name, node) {
            match PathPattern::expand(&text) {
                Ok(path_patterns) => found.extend(path_patterns),
                Err(error) => self.report(offset, error.to_string(), path_suggestion(&text)),
            }
        }
        if found.len() > MAX_FILES {
            let what = format!(
                "`{name}` has {} patterns, more than {MAX_FILES}",
                found.len()
            );
            self.report(whole, what, "use folders, such as src/**");
        }
        found
    }

    /// Returns the paths in `node`, which must exist in the finished work. Reports a path that
    /// leads out of the repository.
    fn paths(&mut self, name: &str, node: SpannedValue) -> Vec<String> {
        let mut found = Vec::new();
        for (text, offset) in self.texts(name, node) {
            match PathPattern::new(&text) {
                Ok(_) => found.push(text),
                Err(error) => self.report(offset, error.to_string(), path_suggestion(&text)),
            }
        }
        found
    }

    fn commands(&mut self, name: &str, node: SpannedValue) -> Vec<String> {
        self.texts(name, node)
            .into_iter()
            .map(|text| text.0)
            .collect()
    }

    pub(crate) fn validation(&mut self, node: SpannedValue) -> Validation {
        let mut found = Validation::default();
        let Some(mut fields) = self.table("validation", node, "{ tests = \"make test\" }") else {
            return found;
        };
        if let Some(table) = fields.remove(&["tests"]) {
            found.tests = self.commands("tests", table.node);
        }
        if let Some(table) = fields.remove(&["lint"]) {
            found.lint = self.commands("lint", table.node);
        }
        if let Some(table) = fields.remove(&["files_exist"]) {
            found.files_exist = self.paths("files_exist", table.node);
        }
        if let Some(table) = fields.remove(&["content_check"]) {
            let nodes = match table.node.value {
                PlanValue::List(items) => items,
                _ => vec![table.node],
            };
            found.content_check = nodes
                .into_iter()
                .filter_map(|spanned_value| self.content_check(spanned_value))
                .collect();
        }
        self.report_unknown(fields, "validation", &VALIDATION_FIELDS);
        found
    }

    fn content_check(&mut self, node: SpannedValue) -> Option<ContentCheck> {
        let example = "{ file = \"src/a.rs\", pattern = \"fn main\" }";
        let mut fields = self.table("content_check", node, example)?;
        let offset = fields.offset;
        let (file, pattern) = (fields.remove(&["file"]), fields.remove(&["pattern"]));
        self.report_unknown(fields, "content_check", &["file", "pattern"]);
        for (name, table) in [("file", &file), ("pattern", &pattern)] {
            if table.is_none() {
                self.report(
                    offset,
                    format!("missing field `{name}` in a content_check"),
                    format!("write {example}"),
                );
            }
        }
        let file = self.paths("file", file?.node).pop();
        let pattern = self.text("pattern", pattern?.node);
        Some(ContentCheck {
            file: file?,
            pattern: pattern?,
        })
    }

    pub(crate) fn priority(&mut self, node: SpannedValue) -> Option<u8> {
        match node.value {
            PlanValue::Integer(n @ 0..=9) => Some(n as u8),
            PlanValue::Integer(n) => {
                self.report(
                    node.start,
                    format!("{n} is not a valid priority"),
                    "write 0 (first) to 9 (last); the default is 2",
                );
                None
            }
            _ => {
                let what = format!(
                    "`priority` must be a whole number, not {}",
                    node.kind_name()
                );
                self.report(
                    node.start,
                    what,
                    "write 0 (first) to 9 (last); the default is 2",
                );
                None
            }
        }
    }

    fn script(&mut self, node: SpannedValue) -> Option<serde_json::Value> {
        let PlanValue::List(steps) = &node.value else {
            self.report_wrong_type(
                "script",
                &node,
                "a list of steps",
                "[{ write = { path = \"a\", text = \"b\" } }]",
            );
            return None;
        };
        for (nth, step) in (1..).zip(steps) {
            let alone = serde_json::Value::Array(vec![step.to_json()]).to_string();
            if let Err(error) = regatta_agents::script::parse_script(&alone) {
                // Each step is parsed alone, so the error always names step 1. Replace 1 by the
                // real number of the step.
                let why = error
                    .to_string()
                    .replacen("Step 1", &format!("step {nth}"), 1);
                let why = why.trim_end_matches('.');
                self.report(
                    step.start,
                    format!("invalid script: {why}"),
                    "list the steps: regatta schema plan",
                );
            }
        }
        Some(node.to_json())
    }

    fn ratchet(&mut self, node: SpannedValue) -> Option<Vec<String>> {
        let example = "[\"program\", \"argument\"]";
        match &node.value {
            PlanValue::List(items) if items.is_empty() => {
                self.report(
                    node.start,
                    "`ratchet` names no program",
                    format!("write ratchet = {example}, or remove it"),
                );
                None
            }
            PlanValue::List(_) => Some(self.commands("ratchet", node)),
            _ => {
                self.report_wrong_type(
                    "ratchet",
                    &node,
                    "a list of a program and its arguments",
                    example,
                );
                None
            }
        }
    }

    /// Reads all fields of a table that are about the work itself, such as `files` and
    /// `validation`.
    pub(crate) fn work(&mut self, fields: &mut TableFields) -> WorkFields {
        let mut work = WorkFields::default();
        if let Some(table) = fields.remove(&["issue_type", "type"]) {
            work.issue_type = self.choice("issue_type", table.node, &ISSUE_TYPES);
        }
        if let Some(table) = fields.remove(&["files"]) {
            work.files = Some(self.files("files", table.node));
        }
        if let Some(table) = fields.remove(&["validation"]) {
            work.validation = Some(self.validation(table.node));
        }
        if let Some(table) = fields.remove(&["priority"]) {
            work.priority = self.priority(table.node);
        }
        if let Some(table) = fields.remove(&["expects"]) {
            let known = [("changes", Expects::Changes), ("report", Expects::Report)];
            work.expects = self.choice("expects", table.node, &known);
        }
        if let Some(table) = fields.remove(&["effort"]) {
            work.effort = self
                .choice("effort", table.node, &EFFORTS.map(|s| (s, s)))
                .map(str::to_owned);
        }
        if let Some(table) = fields.remove(&["agent"]) {
            let offset = table.node.start;
            if let Some(name) = self.text("agent", table.node) {
                match AgentName::new(&name) {
                    Ok(agent) => work.agent = Some(agent),
                    Err(error) => self.report(
                        offset,
                        error.to_string(),
                        "list the agents: regatta agent list",
                    ),
                }
            }
        }
        if let Some(table) = fields.remove(&["provider"]) {
            work.provider = self.text("provider", table.node);
        }
        if let Some(table) = fields.remove(&["script"]) {
            work.script = self.script(table.node);
        }
        if let Some(table) = fields.remove(&["ratchet"]) {
            work.ratchet = self.ratchet(table.node);
        }
        work
    }
}

/// Returns the advice for an invalid path or pattern, with a corrected path if it can be guessed.
fn path_suggestion(text: &str) -> String {
    let inside = text.trim_start_matches('/').replace('\\', "/");
    let segments: Vec<&str> = inside
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    let mended = segments.join("/");
    if mended != text
        && !mended.is_empty()
        && mended.len() < 80
        && PathPattern::expand(&mended).is_ok()
    {
        return format!("write it relative to the repository's top: {mended:?}");
    }
    "write paths relative to the repository's top, as in \"src/a.rs\" or \"web/**\"".into()
}
