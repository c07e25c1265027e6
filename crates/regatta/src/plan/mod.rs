//! Reads plans, the files that list tasks: `[[task]]` tables in TOML, or the same structure in
//! JSON.
//!
//! A plan is accepted completely or not at all. Each mistake is reported with file, line, column
//! and the fix, and all mistakes of a file are reported together. This module only reads; the
//! daemon creates the tasks.

pub(crate) mod beads; // issue files of the tracker "beads"
pub(crate) mod diagnostic; // mistakes in files, with position and fix
pub(crate) mod fields; // reads and checks the fields of a parsed file
pub(crate) mod quest_wave; // wave files of `ol hero hunt`
pub(crate) mod spanned_value; // parses TOML and JSON into a tree with positions
pub(crate) mod spec; // reads type, files and checks of a task from a spec file

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use regatta_api::input::{PlannedTask, PlannedTaskFields};
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitGrouping;
use regatta_core::schedule::lacks_manifest;
use regatta_core::spelling::nearest;
use serde::Serialize;

use crate::output::{CommandError, usage_error};

use diagnostic::{Diagnostic, SourceText};
use fields::{FieldReader, TableFields};
use spanned_value::{PlanValue, SpannedValue};

/// A plan that was read without mistakes.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) title: String,
    /// The work that becomes one commit: a task, or a wave (a layer of tasks); `None` if the plan
    /// does not set it.
    pub(crate) commits: Option<CommitGrouping>,
    pub(crate) tasks: Vec<PlannedTask>,
    /// The id of each task in the plan, or its number (from 1) if the plan gives it no id.
    pub(crate) names: Vec<String>,
    /// Warnings about valid tasks that no agent would get, such as tasks without files.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The result of `plan check`: the number of tasks, all mistakes, and warnings.
#[derive(Debug, Serialize)]
pub(crate) struct PlanCheck {
    pub(crate) file: String,
    pub(crate) tasks: usize,
    pub(crate) problems: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The fields at the top of a plan file, in the order in which a person would write them.
pub(crate) const PLAN_FIELDS: [&str; 3] = ["title", "commits", "task"];
/// The fields of one task in a plan file, in the order in which a person would write them.
pub(crate) const TASK_FIELDS: [&str; 14] = [
    "id",
    "subject",
    "description",
    "issue_type",
    "files",
    "validation",
    "blocked_by",
    "priority",
    "expects",
    "effort",
    "agent",
    "provider",
    "script",
    "ratchet",
];

/// The maximum size of a plan in bytes, because the daemon accepts no larger request.
const MAX_PLAN_BYTES: u64 = 4 * 1024 * 1024;
/// The maximum number of tasks in one plan.
const MAX_TASKS: usize = 10_000;
const MAX_ID_CHARS: usize = 100;

/// Reads a plan file. If the file has mistakes, returns an error that lists all mistakes.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, CommandError> {
    let (source, json) = load_source(path)?;
    parse_source(&source, json).map_err(|diagnostics| source.error_for(&diagnostics))
}

/// Reads a plan from its text. Error messages call the text `name`, as if it were a file.
pub(crate) fn parse_plan(text: &str, json: bool, name: &str) -> Result<Plan, CommandError> {
    let source = SourceText::new(name, text);
    parse_source(&source, json).map_err(|diagnostics| source.error_for(&diagnostics))
}

/// Reads a plan file for `plan check`, and returns the file's text and the result of the check.
pub(crate) fn check_plan(path: &Path) -> Result<(SourceText, PlanCheck), CommandError> {
    let (source, json) = match load_text(path)? {
        Ok(pair) => pair,
        Err((name, fault)) => {
            let checked = PlanCheck {
                file: name.clone(),
                tasks: 0,
                problems: vec![fault],
                warnings: vec![],
            };
            return Ok((SourceText::new(name, ""), checked));
        }
    };
    let (tasks, problems, warnings) = match parse_source(&source, json) {
        Ok(plan) => (plan.tasks.len(), vec![], plan.warnings),
        Err(problems) => (0, problems, vec![]),
    };
    let file = source.name.clone();
    Ok((
        source,
        PlanCheck {
            file,
            tasks,
            problems,
            warnings,
        },
    ))
}

/// Reads a file or standard input, and returns its text and whether the text is JSON.
pub(crate) fn load_source(path: &Path) -> Result<(SourceText, bool), CommandError> {
    load_text(path)?.map_err(|(name, fault)| SourceText::new(name, "").error_for(&[fault]))
}

type LoadResult = Result<(SourceText, bool), (String, Diagnostic)>;

/// Returns the plan file in the same directory whose name is most like the name of a missing file.
fn similar_plan(path: &Path) -> Option<PathBuf> {
    let missing = path.file_name()?.to_str()?;
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names
        .filter(|name| name.ends_with(".toml") || name.ends_with(".json"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest(missing, &names).map(|name| path.with_file_name(name))
}

fn load_text(path: &Path) -> Result<LoadResult, CommandError> {
    let standard_input = path == Path::new("-");
    let name = if standard_input {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let unreadable = |error: std::io::Error| {
        let similar = if error.kind() == std::io::ErrorKind::NotFound {
            similar_plan(path)
        } else {
            None
        };
        let hint = similar.map_or_else(
            || "give the path of a plan file in TOML or JSON".to_owned(),
            |similar| format!("did you mean {}?", similar.display()),
        );
        usage_error(format!("could not read the plan {name}: {error}"), hint)
    };
    let mut bytes = Vec::new();
    let read = if standard_input {
        std::io::stdin()
            .take(MAX_PLAN_BYTES + 1)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_PLAN_BYTES + 1).read_to_end(&mut bytes))
    };
    read.map_err(unreadable)?;
    let file_diagnostic = Diagnostic {
        line: 1,
        column: 1,
        what: String::new(),
        fix: String::new(),
    };
    if bytes.len() as u64 > MAX_PLAN_BYTES {
        let what = format!(
            "the file has more than {} MiB",
            MAX_PLAN_BYTES / 1024 / 1024
        );
        let fix = "split it into several plans, and put long texts into files".into();
        return Ok(Err((
            name,
            Diagnostic {
                what,
                fix,
                ..file_diagnostic
            },
        )));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
            let fault = SourceText::new("", before).diagnostic(
                good,
                "this is not UTF-8",
                "save the file as UTF-8 text",
            );
            return Ok(Err((name, fault)));
        }
    };
    // Some editors begin a file with a byte order mark. Remove it, because it is not part of the
    // text.
    let text = text
        .strip_prefix('\u{feff}')
        .map_or_else(|| text.clone(), str::to_owned);
    let known = path.extension().is_some_and(|name| name == "json");
    let json =
        known || (path.extension().is_none_or(|name| name != "toml") && looks_like_json(&text));
    Ok(Ok((SourceText::new(name, text), json)))
}

/// Returns true if a text is probably JSON. Used if the file name does not tell the format. JSON
/// begins with `{`, or with `[{` for a list of tasks; TOML begins otherwise, for example with
/// `[[task]]`.
fn looks_like_json(text: &str) -> bool {
    match text.trim_start().strip_prefix('[') {
        Some(rest) => rest.trim_start().starts_with(['{', ']']),
        None => text.trim_start().starts_with('{'),
    }
}

/// A task as it is written in the plan file, with the byte offsets that later checks need for their
/// messages.
struct ParsedTask {
    offset: usize,
    id: Option<(String, usize)>,
    blocked_by: Vec<(String, usize)>,
    task: Option<PlannedTaskFields>,
}

/// Parses a plan. If the text has mistakes, returns all mistakes in the order of the text.
fn parse_source(source: &SourceText, json: bool) -> Result<Plan, Vec<Diagnostic>> {
    let tree = if json {
        spanned_value::parse_json(source)
    } else {
        spanned_value::parse_toml(source)
    }
    .map_err(|diagnostic| vec![diagnostic])?;
    let mut reader = FieldReader::new(source);
    let (PlanHeader { title, commits }, nodes) = read_header(&mut reader, tree, json);
    let read: Vec<ParsedTask> = nodes
        .into_iter()
        .filter_map(|spanned_value| read_task(&mut reader, spanned_value))
        .collect();
    let names: Vec<String> = (1..)
        .zip(&read)
        .map(|(nth, parsed_task)| {
            parsed_task
                .id
                .clone()
                .map_or_else(|| nth.to_string(), |id| id.0)
        })
        .collect();
    let after = resolve_blockers(&mut reader, &read, &names);
    if !reader.diagnostics.is_empty() {
        reader
            .diagnostics
            .sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        return Err(reader.diagnostics);
    }
    let stem = || {
        Path::new(&source.name)
            .file_stem()
            .map_or("plan".into(), |name| name.to_string_lossy().into_owned())
    };
    let warnings = read
        .iter()
        .filter_map(|parsed_task| start_warning(source, parsed_task))
        .collect();
    let tasks = read
        .into_iter()
        .zip(&names)
        .zip(after)
        .filter_map(|((parsed_task, name), after)| {
            Some(PlannedTask {
                task: PlannedTaskFields {
                    alias: Some(name.clone()),
                    ..parsed_task.task?
                },
                after,
            })
        })
        .collect();
    Ok(Plan {
        title: title.unwrap_or_else(stem),
        commits,
        tasks,
        names,
        warnings,
    })
}

/// The fields of a plan other than its tasks.
#[derive(Default)]
struct PlanHeader {
    title: Option<String>,
    commits: Option<CommitGrouping>,
}

/// Reads the fields of the plan itself, and returns them with the unread values of its tasks.
fn read_header(
    reader: &mut FieldReader<'_>,
    tree: SpannedValue,
    json: bool,
) -> (PlanHeader, Vec<SpannedValue>) {
    let (title, list) = match tree.value {
        PlanValue::List(_) => (PlanHeader::default(), Some(tree)),
        _ => {
            let Some(mut fields) = reader.table("plan", tree, "{ \"task\": [ … ] }") else {
                return (PlanHeader::default(), vec![]);
            };
            let title = fields
                .remove(&["title"])
                .and_then(|table| reader.subject("title", table.node));
            let known = [
                ("task", CommitGrouping::Task),
                ("wave", CommitGrouping::Wave),
            ];
            let commits = fields
                .remove(&["commits"])
                .and_then(|table| reader.choice("commits", table.node, &known));
            let list = fields.remove(&["task", "tasks"]).map(|table| table.node);
            reader.report_unknown(fields, "plan", &PLAN_FIELDS);
            (PlanHeader { title, commits }, list)
        }
    };
    let nodes = match list {
        Some(SpannedValue {
            value: PlanValue::List(nodes),
            ..
        }) => nodes,
        Some(other) => {
            let example = if json {
                "[{ \"subject\": … }]"
            } else {
                "each task under its own [[task]]"
            };
            let what = format!("`task` must be a list of tasks, not {}", other.kind_name());
            reader.report(other.start, what, format!("write {example}"));
            return (title, vec![]);
        }
        None => vec![],
    };
    if nodes.is_empty() && reader.diagnostics.is_empty() {
        let fix = if json {
            "write { \"task\": [{ \"subject\": \"…\" }] }"
        } else {
            "write [[task]] and subject = \"…\""
        };
        reader.report(0, "the plan has no [[task]]", fix);
    }
    if nodes.len() > MAX_TASKS {
        reader.report(
            nodes[MAX_TASKS].start,
            format!("a plan has at most {MAX_TASKS} tasks"),
            "split it into several plans",
        );
    }
    (title, nodes)
}

/// Reads one task. [`resolve_blockers`] checks the task's id and blockers later, because this check
/// needs all tasks.
fn read_task(reader: &mut FieldReader<'_>, node: SpannedValue) -> Option<ParsedTask> {
    let mut fields: TableFields = reader.table("task", node, "{ subject = \"…\" }")?;
    let offset = fields.offset;
    let id = fields.remove(&["id"]).and_then(|table| {
        let id_offset = table.node.start;
        let id = reader.text("id", table.node)?;
        if id.chars().count() > MAX_ID_CHARS || id.contains(['\n', '\r', '\0']) {
            reader.report(
                id_offset,
                "`id` is one line of at most 100 characters",
                "give the task a short id",
            );
            return None;
        }
        Some((id, id_offset))
    });
    let subject = match fields.remove(&["subject", "title"]) {
        Some(table) => reader.subject("subject", table.node),
        // Do not report a missing subject, because the field that looks like a mistyped `subject`
        // is reported as unknown.
        None if fields.has_similar("subject", &TASK_FIELDS) => None,
        None => {
            let name = id
                .as_ref()
                .map_or("this task".to_owned(), |(id, _)| format!("task {id:?}"));
            reader.report(
                offset,
                format!("missing field `subject` in {name}"),
                "describe the work in one line",
            );
            None
        }
    };
    let description = fields
        .remove(&["description"])
        .map(|table| reader.description(table.node))
        .unwrap_or_default();
    let blocked_by = fields
        .remove(&["blocked_by"])
        .map(|table| reader.texts("blocked_by", table.node))
        .unwrap_or_default();
    let work = reader.work(&mut fields);
    reader.report_unknown(fields, "task", &TASK_FIELDS);
    let task = subject.map(|subject| PlannedTaskFields {
        subject,
        description,
        issue_type: work.issue_type.unwrap_or_default(),
        files: work.files.unwrap_or_default(),
        validation: work.validation.unwrap_or_default(),
        priority: work
            .priority
            .unwrap_or_else(regatta_core::task::default_priority),
        expects: work.expects.unwrap_or_default(),
        effort: work.effort,
        provider: work.provider,
        script: work.script,
        ratchet: work.ratchet,
        alias: None,
        assign: work.agent,
    });
    Some(ParsedTask {
        offset,
        id,
        blocked_by,
        task,
    })
}

/// Returns for each task the indexes of its blockers (the tasks that must land first). Reports
/// duplicate ids, unknown blockers, and tasks that wait for each other.
fn resolve_blockers(
    reader: &mut FieldReader<'_>,
    tasks: &[ParsedTask],
    names: &[String],
) -> Vec<Vec<usize>> {
    let mut index_by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let Some(first) = index_by_name.insert(name, index) else {
            continue;
        };
        let offset = tasks[index]
            .id
            .as_ref()
            .or(tasks[first].id.as_ref())
            .map_or(tasks[index].offset, |(_, offset)| *offset);
        let line = reader.source.diagnostic(tasks[first].offset, "", "").line;
        reader.report(
            offset,
            format!("two tasks are called {name:?}; the other is at line {line}"),
            "give each task its own id",
        );
    }
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut after: Vec<Vec<usize>> = vec![vec![]; tasks.len()];
    let mut edge_offsets: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (index, parsed_task) in tasks.iter().enumerate() {
        for (blocker, offset) in &parsed_task.blocked_by {
            match index_by_name.get(blocker.as_str()) {
                Some(blocker_index) if *blocker_index == index => {
                    let fix = "remove it from blocked_by";
                    reader.report(
                        *offset,
                        format!("task {blocker:?} is blocked by itself"),
                        fix,
                    );
                }
                Some(blocker_index) => {
                    edge_offsets
                        .entry((index, *blocker_index))
                        .or_insert(*offset);
                    after[index].push(*blocker_index);
                }
                None => {
                    let fix = match nearest(blocker, &known) {
                        Some(near) => format!("write {near:?}, or add a task with that id"),
                        None => "add a task with that id, or remove it".into(),
                    };
                    let short_name: String = blocker.chars().take(60).collect();
                    let what = format!(
                        "task {:?} is blocked by {short_name:?}, which is not in the plan",
                        names[index]
                    );
                    reader.report(*offset, what, fix);
                }
            }
        }
        after[index].sort_unstable();
        after[index].dedup();
    }
    if let Err(cycle) = regatta_core::graph::layers(tasks.len(), &after, |_, _| false) {
        let cycle_names: Vec<&str> = cycle.iter().map(|index| names[*index].as_str()).collect();
        let offset = cycle
            .windows(2)
            .find_map(|edge| edge_offsets.get(&(edge[0], edge[1])))
            .copied()
            .unwrap_or(0);
        let what = format!(
            "these tasks wait for each other forever: {}",
            cycle_names.join(" → ")
        );
        reader.report(offset, what, "remove one of them from a blocked_by");
    }
    after
}

/// Returns a warning for a valid task that lists no files, because no agent would get such a task.
fn start_warning(source: &SourceText, read: &ParsedTask) -> Option<Diagnostic> {
    let task = read.task.as_ref()?;
    lacks_manifest(task.issue_type, task.expects, &task.files).then(|| {
        let what = format!(
            "{:?} names no files, so it will not be given to an agent",
            task.subject
        );
        source.diagnostic(
            read.offset,
            what,
            "add files = [\"…\"]; issue_type = \"docs\" or expects = \"report\" needs none",
        )
    })
}

/// Parses file patterns, such as `src/{a,b}.rs`, and expands their braces.
pub(crate) fn expand_patterns(files: &[String]) -> Result<Vec<PathPattern>, String> {
    let mut found = Vec::new();
    for file in files {
        found.extend(PathPattern::expand(file).map_err(|error| error.to_string())?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
