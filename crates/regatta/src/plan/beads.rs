//! Reads and writes the issues of the tracker "beads": one JSON object per line, in
//! `.beads/issues.jsonl`.
//!
//! When the module writes an issue back, it keeps the fields that Regatta does not know. This
//! module handles the text of the file; `commands/task/beads.rs` decides which issues become tasks.

use std::collections::BTreeMap;

use regatta_core::task::IssueType;

use super::diagnostic::{Diagnostic, SourceText};
use super::fields::{FieldReader, ISSUE_TYPES, TableFields, WorkFields};
use super::spanned_value::{self, PlanValue, SpannedValue};

/// The state of an issue in the file, which decides if agents may work on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BeadState {
    Open,
    /// Nobody should work on the issue now, so its task goes to the backlog.
    Backlog,
    /// Somebody works on the issue outside of Regatta, or the issue is blocked for a reason that
    /// the file does not contain. The text is the reason for which the issue's task is paused.
    Held(String),
    Closed,
}

/// The prefix of the reason when an import pauses a task. By this prefix a later import recognizes
/// the tasks that it may resume.
pub(crate) const HELD_REASON_PREFIX: &str = "in beads: ";

/// One issue of the file, with the fields that Regatta uses.
pub(crate) struct Bead {
    pub(crate) id: String,
    pub(crate) offset: usize,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) state: BeadState,
    pub(crate) issue_type: IssueType,
    pub(crate) priority: u8,
    /// The ids of the issues that must be completed before this issue, each with the byte offset at
    /// which the file names that id.
    pub(crate) blocked_by: Vec<(String, usize)>,
    pub(crate) work: WorkFields,
}

/// The content of an issue file.
pub(crate) struct Beads {
    pub(crate) beads: Vec<Bead>,
    /// The number of lines that are not work: messages, templates and the like.
    pub(crate) skipped_lines: usize,
}

/// The kinds of dependencies in the tracker beads that make an issue wait for another issue.
const BLOCKING_DEPENDENCIES: [&str; 3] = ["blocks", "conditional-blocks", "waits-for"];
/// The kinds of issues in the tracker beads that do not describe work, so that no task is created
/// for them.
const NON_WORK_TYPES: [&str; 10] = [
    "message",
    "merge-request",
    "molecule",
    "gate",
    "agent",
    "role",
    "rig",
    "convoy",
    "event",
    "slot",
];
/// Additional text fields of an issue, which become sections of the task's description under these
/// headings.
const DESCRIPTION_PARTS: [(&str, &str); 3] = [
    ("design", "Design"),
    ("acceptance_criteria", "Acceptance criteria"),
    ("notes", "Notes"),
];
const MAX_TITLE_CHARS: usize = 300;

/// Reads an issue file. If the file has mistakes, returns all mistakes.
pub(crate) fn read_issues(source: &SourceText) -> Result<Beads, Vec<Diagnostic>> {
    let mut reader = FieldReader::new(source);
    let mut found = Beads {
        beads: vec![],
        skipped_lines: 0,
    };
    for (offset, line) in nonblank_lines(&source.text) {
        match parse_line(source, offset, line) {
            Ok(node) => match read_bead(&mut reader, node) {
                Some(Some(bead)) => found.beads.push(bead),
                Some(None) => found.skipped_lines += 1,
                None => {}
            },
            Err(fault) => reader.diagnostics.push(fault),
        }
    }
    check_issues(&mut reader, &found.beads);
    reader
        .diagnostics
        .sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
    if reader.diagnostics.is_empty() {
        Ok(found)
    } else {
        Err(reader.diagnostics)
    }
}

/// Returns the lines that are not blank, each with the byte offset of its beginning.
pub(crate) fn nonblank_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let start = end;
        end += line.len();
        (!line.trim().is_empty()).then_some((start, line.trim_end_matches(['\n', '\r'])))
    })
}

/// Parses one line of the file, which begins at the byte offset `start`. Positions in the result
/// refer to the whole file.
fn parse_line(source: &SourceText, start: usize, line: &str) -> Result<SpannedValue, Diagnostic> {
    let mut node = spanned_value::parse_json(&SourceText::new(source.name.clone(), line)).map_err(
        |diagnostic| {
            let lines_above = source.text[..start].matches('\n').count();
            Diagnostic {
                line: lines_above + diagnostic.line,
                ..diagnostic
            }
        },
    )?;
    node.shift_offsets(start);
    Ok(node)
}

/// Reads one issue. Returns `None` if it has mistakes, and `Some(None)` if it is not work, such as
/// a message.
fn read_bead(reader: &mut FieldReader<'_>, node: SpannedValue) -> Option<Option<Bead>> {
    let example = "{\"id\": \"bd-1\", \"title\": \"…\"}";
    let mut fields: TableFields = reader.table("issue", node, example)?;
    let offset = fields.offset;
    let word = |reader: &mut FieldReader<'_>, fields: &mut TableFields, name: &str| match fields
        .remove(&[name])?
        .node
    {
        SpannedValue {
            value: PlanValue::Null,
            ..
        } => None,
        node => match node.value {
            PlanValue::Text(text) => Some(text),
            _ => {
                reader.report(
                    node.start,
                    format!("`{name}` must be a string, not {}", node.kind_name()),
                    "write a string, or null",
                );
                None
            }
        },
    };
    if word(reader, &mut fields, "_type").is_some_and(|text| text != "issue") {
        return Some(None);
    }
    let id = word(reader, &mut fields, "id").filter(|text| !text.trim().is_empty());
    let title = word(reader, &mut fields, "title").filter(|text| !text.trim().is_empty());
    for (name, there) in [("id", id.is_some()), ("title", title.is_some())] {
        if !there {
            reader.report(
                offset,
                format!("missing field `{name}`"),
                format!("write {example}"),
            );
        }
    }
    let kind = word(reader, &mut fields, "issue_type").unwrap_or_else(|| "task".into());
    let template = matches!(fields.remove(&["is_template"]), Some(table) if matches!(table.node.value, PlanValue::Bool(true)));
    let status = word(reader, &mut fields, "status").unwrap_or_else(|| "open".into());
    let assignee = word(reader, &mut fields, "assignee").unwrap_or_default();
    let priority = match fields.remove(&["priority"]).map(|table| table.node) {
        None
        | Some(SpannedValue {
            value: PlanValue::Null,
            ..
        }) => Some(regatta_core::task::default_priority()),
        Some(node) => reader.priority(node),
    };
    let mut text = word(reader, &mut fields, "description").unwrap_or_default();
    for (name, heading) in DESCRIPTION_PARTS {
        if let Some(part) = word(reader, &mut fields, name).filter(|text| !text.trim().is_empty()) {
            text = append_part(&text, heading, &part);
        }
    }
    let after = fields
        .remove(&["dependencies"])
        .map(|table| read_dependencies(reader, table.node))
        .unwrap_or_default();
    let work = match fields.remove(&["metadata"]).map(|table| table.node) {
        Some(
            node @ SpannedValue {
                value: PlanValue::Table(_),
                ..
            },
        ) => reader
            .table("metadata", node, "{}")
            .map(|mut table_fields| reader.work(&mut table_fields))
            .unwrap_or_default(),
        _ => WorkFields::default(),
    };
    if text.len() > 256 * 1024 {
        reader.report(
            offset,
            "the text of the issue has more than 256 KiB",
            "put the text into a file and refer to the file",
        );
    }
    let (id, title, priority) = (id?, title?, priority?);
    if template || NON_WORK_TYPES.contains(&kind.as_str()) {
        return Some(None);
    }
    let issue_type = ISSUE_TYPES
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(IssueType::Task, |(_, issue_type)| *issue_type);
    let stand = match status.as_str() {
        "closed" | "tombstone" => BeadState::Closed,
        // An epic is completed by its parts, so nobody works on the epic itself.
        _ if kind == "epic" => BeadState::Backlog,
        "open" => BeadState::Open,
        "in_progress" | "hooked" if assignee.is_empty() => {
            BeadState::Held(format!("{HELD_REASON_PREFIX}somebody is working on it"))
        }
        "in_progress" | "hooked" => {
            BeadState::Held(format!("{HELD_REASON_PREFIX}{assignee} is working on it"))
        }
        "blocked" if after.is_empty() => {
            BeadState::Held(format!("{HELD_REASON_PREFIX}it is blocked"))
        }
        "blocked" => BeadState::Open,
        _ => BeadState::Backlog,
    };
    let (title, description) = shorten_title(&title, text);
    Some(Some(Bead {
        id,
        offset,
        title,
        description,
        state: stand,
        issue_type,
        priority,
        blocked_by: after,
        work,
    }))
}

/// Appends a section with this heading to a text.
fn append_part(text: &str, heading: &str, part: &str) -> String {
    let text = text.trim_end();
    let gap = if text.is_empty() { "" } else { "\n\n" };
    format!("{text}{gap}## {heading}\n\n{}", part.trim_end())
}

/// Shortens a title that is too long for a task's subject, and puts the full title at the beginning
/// of the description. Returns title and description.
pub(crate) fn shorten_title(title: &str, description: String) -> (String, String) {
    let line = title.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_TITLE_CHARS {
        return (line, description);
    }
    let cut: String = line
        .chars()
        .take(MAX_TITLE_CHARS - 1)
        .chain(['…'])
        .collect();
    (cut, format!("{line}\n\n{description}"))
}

/// Returns the issues that block an issue, each with its byte offset. Beads writes the kind of a
/// dependency as `type` or `dep_type`; a dependency without a kind blocks.
fn read_dependencies(reader: &mut FieldReader<'_>, node: SpannedValue) -> Vec<(String, usize)> {
    let items = match node.value {
        PlanValue::List(items) => items,
        PlanValue::Null => vec![],
        _ => {
            reader.report(
                node.start,
                format!("`dependencies` must be a list, not {}", node.kind_name()),
                "write []",
            );
            vec![]
        }
    };
    let mut found = Vec::new();
    for item in items {
        let offset = item.start;
        let text =
            |table: Option<spanned_value::TableEntry>| match table.map(|table| table.node.value) {
                Some(PlanValue::Text(s)) => Some(s),
                _ => None,
            };
        let (on, kind) = match item.value {
            PlanValue::Text(id) => (Some(id), None),
            _ => {
                let example = "{\"depends_on_id\": \"bd-1\", \"type\": \"blocks\"}";
                let Some(mut fields) = reader.table("dependencies", item, example) else {
                    continue;
                };
                (
                    text(fields.remove(&["depends_on_id"])),
                    text(fields.remove(&["type", "dep_type"])),
                )
            }
        };
        if kind.is_some_and(|kind| !BLOCKING_DEPENDENCIES.contains(&kind.as_str())) {
            continue;
        }
        match on {
            Some(id) => found.push((id, offset)),
            None => reader.report(
                offset,
                "a dependency has no `depends_on_id`",
                "add the id of the other issue",
            ),
        }
    }
    found
}

/// Reports mistakes that can be found only after all issues were read: duplicate ids, and issues
/// that wait for each other.
fn check_issues(reader: &mut FieldReader<'_>, beads: &[Bead]) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, bead) in beads.iter().enumerate() {
        if let Some(first) = places.insert(&bead.id, index) {
            let line = reader.source.diagnostic(beads[first].offset, "", "").line;
            reader.report(
                bead.offset,
                format!("{:?} appears twice; first at line {line}", bead.id),
                "keep one of the two",
            );
        }
    }
    let mut edges: Vec<Vec<usize>> = vec![vec![]; beads.len()];
    for (index, bead) in beads
        .iter()
        .enumerate()
        .filter(|bead| bead.1.state != BeadState::Closed)
    {
        for (blocker, offset) in &bead.blocked_by {
            match places.get(blocker.as_str()) {
                Some(other) if *other == index => {
                    reader.report(
                        *offset,
                        format!("{blocker:?} depends on itself"),
                        "remove the dependency",
                    );
                }
                Some(other) => edges[index].push(*other),
                None => {} // the other issue may be a task that already exists
            }
        }
    }
    if let Err(cycle) = regatta_core::graph::layers(beads.len(), &edges, |_, _| false) {
        let named: Vec<&str> = cycle
            .iter()
            .map(|index| beads[*index].id.as_str())
            .collect();
        let what = format!(
            "these issues wait for each other forever: {}",
            named.join(" → ")
        );
        reader.report(
            beads[cycle[0]].offset,
            what,
            "remove one of the dependencies",
        );
    }
}

/// The state of a task, as it is written to the issue file.
pub(crate) struct ExportedBead {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) issue_type: IssueType,
    pub(crate) priority: u8,
    pub(crate) status: &'static str,
    /// The reason why the task was closed; `None` if the task is open or was closed without a
    /// reason.
    pub(crate) reason: Option<String>,
    /// True if the task is still paused because somebody worked on the issue in the tracker beads
    /// when the issue was imported. In that case the issue's status stays unchanged.
    pub(crate) is_held: bool,
    pub(crate) blocked_by: Vec<String>,
    pub(crate) created: String,
    pub(crate) updated: String,
    pub(crate) metadata: serde_json::Value,
}

/// Returns the name of an issue type in an issue file.
fn type_name(issue_type: IssueType) -> &'static str {
    ISSUE_TYPES
        .iter()
        .find(|(_, known)| *known == issue_type)
        .map_or("task", |(name, _)| *name)
}

/// Maps the statuses of the tracker beads to the three statuses that differ for Regatta: open,
/// in_progress and closed.
fn status_class(status: &str) -> &'static str {
    match status {
        "in_progress" | "hooked" => "in_progress",
        "closed" | "tombstone" => "closed",
        _ => "open",
    }
}

impl ExportedBead {
    /// Returns the line that adds this task to an issue file.
    pub(crate) fn to_line(&self) -> String {
        let mut fields = vec![
            ("id", self.id.clone().into()),
            ("title", self.title.clone().into()),
            ("description", self.description.clone().into()),
            ("status", self.status.into()),
            ("priority", self.priority.min(4).into()),
            ("issue_type", type_name(self.issue_type).into()),
            ("created_at", self.created.clone().into()),
            ("updated_at", self.updated.clone().into()),
        ];
        if self.status == "closed" {
            fields.push(("closed_at", self.updated.clone().into()));
            fields.extend(
                self.reason
                    .clone()
                    .map(|reason| ("close_reason", reason.into())),
            );
        }
        if !self.blocked_by.is_empty() {
            fields.push((
                "dependencies",
                self.blocked_by
                    .iter()
                    .map(|blocked_by| self.dependency(blocked_by))
                    .collect(),
            ));
        }
        if self
            .metadata
            .as_object()
            .is_some_and(|object| !object.is_empty())
        {
            fields.push(("metadata", self.metadata.clone()));
        }
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value): &(&str, serde_json::Value)| format!("{}:{value}", quoted_key(key)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    fn dependency(&self, on: &str) -> serde_json::Value {
        serde_json::json!({ "issue_id": self.id, "depends_on_id": on, "type": "blocks" })
    }

    /// Returns an existing line of an issue file with the changes of this task. Every other field
    /// stays the same, byte for byte.
    ///
    /// `known` returns true if an id belongs to a task. A dependency on an issue without a task is
    /// never removed.
    pub(crate) fn merge_into_line(&self, line: &str, known: &dyn Fn(&str) -> bool) -> String {
        let source = SourceText::new("line", line);
        let Ok(SpannedValue {
            value: PlanValue::Table(entries),
            ..
        }) = spanned_value::parse_json(&source)
        else {
            return line.to_owned();
        };
        let mut reader = FieldReader::new(&source);
        let node = spanned_value::parse_json(&source).ok();
        let Some(Some(was)) = node
            .and_then(|spanned_value| read_bead(&mut reader, spanned_value))
            .filter(|_| reader.diagnostics.is_empty())
        else {
            return line.to_owned();
        };
        let text = |name: &str| {
            entries
                .iter()
                .find(|table| table.key == name)
                .map(|table| table.node.to_json())
        };
        let mut new: BTreeMap<&str, Option<serde_json::Value>> = BTreeMap::new();
        if was.title != self.title {
            new.insert("title", Some(self.title.clone().into()));
        }
        if was.description != self.description {
            let was_text = text("description")
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default();
            let tail = was
                .description
                .strip_prefix(was_text.trim_end())
                .unwrap_or_default();
            match self
                .description
                .strip_suffix(tail)
                .filter(|_| !tail.is_empty())
            {
                Some(own) => drop(new.insert("description", Some(own.into()))),
                None => {
                    new.insert("description", Some(self.description.clone().into()));
                    new.extend(DESCRIPTION_PARTS.map(|pair| (pair.0, None)));
                }
            }
        }
        if was.issue_type != self.issue_type {
            new.insert("issue_type", Some(type_name(self.issue_type).into()));
        }
        if was.priority != self.priority && was.priority.min(4) != self.priority.min(4) {
            new.insert("priority", Some(self.priority.min(4).into()));
        }
        let status = text("status")
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_else(|| "open".into());
        if status_class(&status) != self.status && !self.is_held {
            new.insert("status", Some(self.status.into()));
            if self.status == "closed" {
                new.insert("closed_at", Some(self.updated.clone().into()));
                new.extend(
                    self.reason
                        .clone()
                        .map(|reason| ("close_reason", Some(reason.into()))),
                );
            }
        }
        let old_blockers: Vec<&str> = was
            .blocked_by
            .iter()
            .map(|blocked_by| blocked_by.0.as_str())
            .collect();
        let removed: Vec<&str> = old_blockers
            .iter()
            .filter(|id| known(id) && !self.blocked_by.iter().any(|on| on == *id))
            .copied()
            .collect();
        let added: Vec<&String> = self
            .blocked_by
            .iter()
            .filter(|blocked_by| !old_blockers.contains(&blocked_by.as_str()))
            .collect();
        if !removed.is_empty() || !added.is_empty() {
            let list = text("dependencies")
                .and_then(|value| value.as_array().cloned())
                .unwrap_or_default();
            let target = |value: &serde_json::Value| {
                value
                    .as_str()
                    .or_else(|| value.get("depends_on_id")?.as_str())
                    .unwrap_or_default()
                    .to_owned()
            };
            let remaining = list
                .into_iter()
                .filter(|entry| !removed.contains(&target(entry).as_str()));
            new.insert(
                "dependencies",
                Some(
                    remaining
                        .chain(added.iter().map(|added| self.dependency(added)))
                        .collect(),
                ),
            );
        }
        for (key, value) in self.metadata.as_object().into_iter().flatten() {
            let mut metadata = text("metadata")
                .filter(serde_json::Value::is_object)
                .unwrap_or_default();
            let files = |value: Option<&serde_json::Value>| match value {
                Some(serde_json::Value::String(s)) => serde_json::json!([s]),
                other => other.cloned().unwrap_or_default(),
            };
            if files(metadata.get(key)) != files(Some(value))
                && !is_same_value(key, &metadata, value)
            {
                metadata[key.as_str()] = value.clone();
                new.insert("metadata", Some(metadata));
            }
        }
        if new.is_empty() {
            return line.to_owned();
        }
        new.insert("updated_at", Some(self.updated.clone().into()));
        let mut fields: Vec<String> = Vec::new();
        for table in &entries {
            match new.remove(table.key.as_str()) {
                Some(Some(value)) => fields.push(format!("{}:{value}", quoted_key(&table.key))),
                Some(None) => {}
                None => fields.push(format!(
                    "{}:{}",
                    quoted_key(&table.key),
                    &line[table.node.start..table.node.end]
                )),
            }
        }
        fields.extend(
            new.into_iter()
                .filter_map(|(key, value)| Some(format!("{}:{}", quoted_key(key), value?))),
        );
        format!("{{{}}}", fields.join(","))
    }
}

/// Returns true if two values of the metadata field `key` mean the same, such as a file pattern
/// with braces and the patterns that it expands to.
fn is_same_value(key: &str, metadata: &serde_json::Value, value: &serde_json::Value) -> bool {
    let source = SourceText::new(
        "",
        serde_json::json!({ key: metadata.get(key) }).to_string(),
    );
    let other_source = SourceText::new("", serde_json::json!({ key: value }).to_string());
    let read = |source: &SourceText| {
        let mut reader = FieldReader::new(source);
        let mut fields = reader.table("metadata", spanned_value::parse_json(source).ok()?, "{}")?;
        let work = reader.work(&mut fields);
        let files = work.files.map(|mut path_patterns| {
            path_patterns.sort();
            path_patterns
        });
        reader
            .diagnostics
            .is_empty()
            .then_some((files, work.validation))
    };
    read(&source).is_some_and(|pair| Some(pair) == read(&other_source))
}

fn quoted_key(key: &str) -> String {
    serde_json::Value::String(key.to_owned()).to_string()
}

#[cfg(test)]
mod tests;
