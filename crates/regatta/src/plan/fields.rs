//! Reads one field after the other from a tree with positions.
//!
//! The reader notes every mistake with its position and its fix, and goes on, so that a person sees
//! all mistakes of a file at once.

use regatta_core::ids::AgentName;
use regatta_core::pattern::PathPattern;
use regatta_core::spelling::nearest;
use regatta_core::task::{ContentCheck, Expects, IssueType, Validation};

use super::fault::{Fault, Source};
use super::tree::{Entry, Node, Value};

/// The issue types and their names.
pub(crate) const TYPES: [(&str, IssueType); 6] = [
    ("feature", IssueType::Feature),
    ("bug", IssueType::Bug),
    ("task", IssueType::Task),
    ("docs", IssueType::Docs),
    ("chore", IssueType::Chore),
    ("ci", IssueType::Ci),
];

/// How hard a model may be asked to think, in the terms of the known providers.
pub(crate) const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

/// The fields of a validation.
pub(crate) const CHECKS: [&str; 4] = ["tests", "lint", "files_exist", "content_check"];

const LONGEST_SUBJECT: usize = 300;
const LONGEST_DESCRIPTION: usize = 256 * 1024;
const MOST_FILES: usize = 1_000;

/// Collects mistakes while a file is read.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) faults: Vec<Fault>,
}

/// The fields of one table that were not read yet.
pub(crate) struct Fields {
    pub(crate) at: usize,
    entries: Vec<Entry>,
}

impl Fields {
    /// Removes and returns a field that has any of the given names.
    pub(crate) fn take(&mut self, names: &[&str]) -> Option<Entry> {
        let at = names.iter().find_map(|name| self.entries.iter().position(|it| it.key == *name))?;
        Some(self.entries.remove(at))
    }

    /// Returns whether an unread field may be a mistyped `name`.
    pub(crate) fn has_like(&self, name: &str, known: &[&str]) -> bool {
        self.entries.iter().any(|it| nearest(&it.key, known) == Some(name))
    }
}

/// The fields about the work itself that plans, waves and beads share.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) issue_type: Option<IssueType>,
    pub(crate) files: Option<Vec<PathPattern>>,
    pub(crate) validation: Option<Validation>,
    pub(crate) priority: Option<u8>,
    pub(crate) expects: Option<Expects>,
    pub(crate) effort: Option<String>,
    pub(crate) agent: Option<AgentName>,
    pub(crate) provider: Option<String>,
    pub(crate) script: Option<serde_json::Value>,
    /// A command that must succeed after work has passed its checks: program and arguments.
    pub(crate) ratchet: Option<Vec<String>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a Source) -> Reader<'a> {
        Reader { source, faults: Vec::new() }
    }

    /// Adds a mistake.
    pub(crate) fn wrong(&mut self, at: usize, what: impl Into<String>, fix: impl Into<String>) {
        self.faults.push(self.source.fault(at, what, fix));
    }

    fn wrong_type(&mut self, name: &str, node: &Node, wanted: &str, example: &str) {
        self.wrong(
            node.at,
            format!("`{name}` must be {wanted}, not {}", node.kind()),
            format!("write {name} = {example}"),
        );
    }

    /// Returns the fields of a table.
    pub(crate) fn table(&mut self, name: &str, node: Node, example: &str) -> Option<Fields> {
        match node.value {
            Value::Table(entries) => Some(Fields { at: node.at, entries }),
            _ => {
                self.wrong_type(name, &node, "a table", example);
                None
            }
        }
    }

    /// Reports every field that is left as unknown.
    pub(crate) fn unknown(&mut self, left: Fields, of: &str, known: &[&str]) {
        for it in left.entries {
            let shown: String = it.key.chars().take(40).collect();
            let fix = match nearest(&it.key, known) {
                Some(word) if known.contains(&it.key.as_str()) => format!("it means the same as `{word}`; keep one of the two"),
                Some(word) => format!("write `{word}`"),
                None => format!("a {of} has {}", known.join(", ")),
            };
            self.wrong(it.at, format!("unknown field `{}` in a {of}", shown.escape_debug()), fix);
        }
    }

    /// Returns a string that is not empty.
    pub(crate) fn text(&mut self, name: &str, node: Node) -> Option<String> {
        match node.value {
            Value::Text(it) if !it.trim().is_empty() => Some(it),
            Value::Text(_) => {
                self.wrong(node.at, format!("`{name}` is empty"), format!("fill it in, or remove `{name}`"));
                None
            }
            _ => {
                self.wrong_type(name, &node, "a string", "\"…\"");
                None
            }
        }
    }

    /// Returns a string or a list of strings, each with its position.
    pub(crate) fn texts(&mut self, name: &str, node: Node) -> Vec<(String, usize)> {
        let at = node.at;
        match node.value {
            Value::Text(_) => self.text(name, node).map(|it| (it, at)).into_iter().collect(),
            Value::List(items) => {
                let mut found = Vec::new();
                for item in items {
                    let at = item.at;
                    if !matches!(item.value, Value::Text(_)) {
                        let what = format!("`{name}` has {} among its strings", item.kind());
                        self.wrong(at, what, format!("write {name} = [\"…\", \"…\"]"));
                    } else if let Some(it) = self.text(name, item) {
                        found.push((it, at));
                    }
                }
                found
            }
            _ => {
                self.wrong_type(name, &node, "a list of strings", "[\"…\"]");
                vec![]
            }
        }
    }

    /// Returns the value that belongs to one of the known words.
    pub(crate) fn choice<T: Copy>(&mut self, name: &str, node: Node, known: &[(&str, T)]) -> Option<T> {
        let at = node.at;
        let word = self.text(name, node)?;
        if let Some(it) = known.iter().find(|it| it.0 == word) {
            return Some(it.1);
        }
        let words: Vec<&str> = known.iter().map(|it| it.0).collect();
        let guess = nearest(&word, &words).map_or(String::new(), |it| format!("write \"{it}\"; "));
        let shown: String = word.chars().take(40).collect();
        self.wrong(at, format!("{shown:?} is not a valid {name}"), format!("{guess}the values are {}", words.join(", ")));
        None
    }

    /// Returns a subject: one line that is not too long.
    pub(crate) fn subject(&mut self, name: &str, node: Node) -> Option<String> {
        let at = node.at;
        let it = self.text(name, node)?;
        if it.trim().contains(['\n', '\r', '\0']) {
            self.wrong(at, format!("`{name}` is more than one line"), "put the rest into `description`");
            return None;
        }
        if it.chars().count() > LONGEST_SUBJECT {
            let what = format!("`{name}` has {} characters, more than {LONGEST_SUBJECT}", it.chars().count());
            self.wrong(at, what, "put the rest into `description`");
            return None;
        }
        Some(it.trim().to_owned())
    }

    /// Returns a description, which may be empty.
    pub(crate) fn description(&mut self, node: Node) -> String {
        match node.value {
            Value::Text(it) if it.len() <= LONGEST_DESCRIPTION => it,
            Value::Text(_) => {
                self.wrong(node.at, "`description` has more than 256 KiB", "put the text into a file and refer to the file");
                String::new()
            }
            _ => {
                self.wrong_type("description", &node, "a string", "\"…\"");
                String::new()
            }
        }
    }

    /// Returns the patterns of a manifest, with braces expanded.
    pub(crate) fn files(&mut self, name: &str, node: Node) -> Vec<PathPattern> {
        let whole = node.at;
        let mut found = Vec::new();
        for (text, at) in self.texts(name, node) {
            match PathPattern::expand(&text) {
                Ok(it) => found.extend(it),
                Err(error) => self.wrong(at, error.to_string(), path_fix(&text)),
            }
        }
        if found.len() > MOST_FILES {
            let what = format!("`{name}` has {} patterns, more than {MOST_FILES}", found.len());
            self.wrong(whole, what, "use folders, such as src/**");
        }
        found
    }

    /// Returns paths that must exist afterwards. They are not patterns, but they too must be inside
    /// the repository.
    fn paths(&mut self, name: &str, node: Node) -> Vec<String> {
        let mut found = Vec::new();
        for (text, at) in self.texts(name, node) {
            match PathPattern::new(&text) {
                Ok(_) => found.push(text),
                Err(error) => self.wrong(at, error.to_string(), path_fix(&text)),
            }
        }
        found
    }

    fn commands(&mut self, name: &str, node: Node) -> Vec<String> {
        self.texts(name, node).into_iter().map(|it| it.0).collect()
    }

    pub(crate) fn validation(&mut self, node: Node) -> Validation {
        let mut found = Validation::default();
        let Some(mut fields) = self.table("validation", node, "{ tests = \"make test\" }") else { return found };
        if let Some(it) = fields.take(&["tests"]) {
            found.tests = self.commands("tests", it.node);
        }
        if let Some(it) = fields.take(&["lint"]) {
            found.lint = self.commands("lint", it.node);
        }
        if let Some(it) = fields.take(&["files_exist"]) {
            found.files_exist = self.paths("files_exist", it.node);
        }
        if let Some(it) = fields.take(&["content_check"]) {
            let nodes = match it.node.value {
                Value::List(items) => items,
                _ => vec![it.node],
            };
            found.content_check = nodes.into_iter().filter_map(|it| self.content_check(it)).collect();
        }
        self.unknown(fields, "validation", &CHECKS);
        found
    }

    fn content_check(&mut self, node: Node) -> Option<ContentCheck> {
        let example = "{ file = \"src/a.rs\", pattern = \"fn main\" }";
        let mut fields = self.table("content_check", node, example)?;
        let at = fields.at;
        let (file, pattern) = (fields.take(&["file"]), fields.take(&["pattern"]));
        self.unknown(fields, "content_check", &["file", "pattern"]);
        for (name, it) in [("file", &file), ("pattern", &pattern)] {
            if it.is_none() {
                self.wrong(at, format!("missing field `{name}` in a content_check"), format!("write {example}"));
            }
        }
        let file = self.paths("file", file?.node).pop();
        let pattern = self.text("pattern", pattern?.node);
        Some(ContentCheck { file: file?, pattern: pattern? })
    }

    pub(crate) fn priority(&mut self, node: Node) -> Option<u8> {
        match node.value {
            Value::Whole(it @ 0..=9) => Some(it as u8),
            Value::Whole(it) => {
                self.wrong(node.at, format!("{it} is not a valid priority"), "write 0 (first) to 9 (last); the default is 2");
                None
            }
            _ => {
                let what = format!("`priority` must be a whole number, not {}", node.kind());
                self.wrong(node.at, what, "write 0 (first) to 9 (last); the default is 2");
                None
            }
        }
    }

    fn script(&mut self, node: Node) -> Option<serde_json::Value> {
        let Value::List(steps) = &node.value else {
            self.wrong_type("script", &node, "a list of steps", "[{ write = { path = \"a\", text = \"b\" } }]");
            return None;
        };
        for (nth, step) in (1..).zip(steps) {
            let alone = serde_json::Value::Array(vec![step.plain()]).to_string();
            if let Err(error) = regatta_agents::script::parse(&alone) {
                // The step is parsed alone, so the error calls it step 1. Put in its real number.
                let why = error.to_string().replacen("Step 1", &format!("step {nth}"), 1);
                let why = why.trim_end_matches('.');
                self.wrong(
                    step.at,
                    format!("invalid script: {why}"),
                    "list the steps: regatta schema plan",
                );
            }
        }
        Some(node.plain())
    }

    fn ratchet(&mut self, node: Node) -> Option<Vec<String>> {
        let example = "[\"program\", \"argument\"]";
        match &node.value {
            Value::List(items) if items.is_empty() => {
                self.wrong(node.at, "`ratchet` names no program", format!("write ratchet = {example}, or remove it"));
                None
            }
            Value::List(_) => Some(self.commands("ratchet", node)),
            _ => {
                self.wrong_type("ratchet", &node, "a list of a program and its arguments", example);
                None
            }
        }
    }

    /// Reads all fields of a table that are about the work itself.
    pub(crate) fn work(&mut self, fields: &mut Fields) -> Work {
        let mut work = Work::default();
        if let Some(it) = fields.take(&["issue_type", "type"]) {
            work.issue_type = self.choice("issue_type", it.node, &TYPES);
        }
        if let Some(it) = fields.take(&["files"]) {
            work.files = Some(self.files("files", it.node));
        }
        if let Some(it) = fields.take(&["validation"]) {
            work.validation = Some(self.validation(it.node));
        }
        if let Some(it) = fields.take(&["priority"]) {
            work.priority = self.priority(it.node);
        }
        if let Some(it) = fields.take(&["expects"]) {
            let known = [("changes", Expects::Changes), ("report", Expects::Report)];
            work.expects = self.choice("expects", it.node, &known);
        }
        if let Some(it) = fields.take(&["effort"]) {
            work.effort = self.choice("effort", it.node, &EFFORTS.map(|it| (it, it))).map(str::to_owned);
        }
        if let Some(it) = fields.take(&["agent"]) {
            let at = it.node.at;
            if let Some(name) = self.text("agent", it.node) {
                match AgentName::new(&name) {
                    Ok(it) => work.agent = Some(it),
                    Err(error) => self.wrong(at, error.to_string(), "list the agents: regatta agent list"),
                }
            }
        }
        if let Some(it) = fields.take(&["provider"]) {
            work.provider = self.text("provider", it.node);
        }
        if let Some(it) = fields.take(&["script"]) {
            work.script = self.script(it.node);
        }
        if let Some(it) = fields.take(&["ratchet"]) {
            work.ratchet = self.ratchet(it.node);
        }
        work
    }
}

/// Returns advice for an invalid path, with a corrected path if one can be guessed.
fn path_fix(text: &str) -> String {
    let inside = text.trim_start_matches('/').replace('\\', "/");
    let segments: Vec<&str> = inside.split('/').filter(|it| !matches!(*it, "" | "." | "..")).collect();
    let mended = segments.join("/");
    if mended != text && !mended.is_empty() && mended.len() < 80 && PathPattern::expand(&mended).is_ok() {
        return format!("write it relative to the repository's top: {mended:?}");
    }
    "write paths relative to the repository's top, as in \"src/a.rs\" or \"web/**\"".into()
}
