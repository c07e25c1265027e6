//! Reads wave files, which the external program `ol hero hunt` writes.
//!
//! A wave file lists entries that can be worked on now (`wave`), entries that are blocked
//! (`blocked`) and completed ones (`completed`). Only the entries of `wave` become tasks.
//! `commands/run/from_wave.rs` turns them into the tasks of a run.

use std::path::Path;

use regatta_api::input::{PlannedTask, PlannedTaskFields};
use regatta_core::pattern::PathPattern;

use crate::output::CommandError;

use super::diagnostic::SourceText;
use super::fields::{FieldReader, TableFields, WorkFields};
use super::spanned_value::{self, PlanValue, SpannedValue};
use super::{Plan, load_source, spec};

/// The default of the ratchet command, which must succeed after the work of an entry has passed its
/// checks. The option `--ratchet` names another command.
pub(crate) const DEFAULT_RATCHET: &str = "ol hero ratchet {id} --quest {quest}";

/// The ratchet command, which reports the completion of an entry of the wave file to the external
/// program. The work of the entry lands only if the command succeeds.
pub(crate) struct RatchetTemplate {
    /// The program and its arguments. `{id}` and `{quest}` in them are replaced for each entry.
    pub(crate) command: Vec<String>,
    pub(crate) quest: Option<String>,
}

/// A wave file that was read without mistakes.
#[derive(Debug)]
pub(crate) struct QuestWave {
    pub(crate) plan: Plan,
    /// The entries that are blocked. They belong to a later wave, so no task is created for these
    /// entries now.
    pub(crate) later_entries: Vec<LaterEntry>,
    pub(crate) completed: usize,
    /// Remarks for the person, such as about a spec file that could not be read.
    pub(crate) remarks: Vec<String>,
}

/// A blocked entry of a wave file, with the ids of the entries that block it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaterEntry {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) blocked_by: Vec<String>,
}

/// An entry of a wave file, before its spec file is read.
struct WaveEntry {
    id: String,
    offset: usize,
    title: String,
    spec_path: Option<String>,
    order: i64,
    blocked_by: Vec<(String, usize)>,
    work: WorkFields,
}

impl RatchetTemplate {
    /// Returns the ratchet command for one entry. If the command has no `{id}`, the id and the
    /// quest are appended.
    fn command_for(&self, id: &str) -> Vec<String> {
        let quest = match &self.quest {
            Some(s) => s.as_str(),
            None => id.rsplit_once('.').map_or(id, |(quest, _)| quest),
        };
        let fill = |s: &String| s.replace("{id}", id).replace("{quest}", quest);
        let mut argv: Vec<String> = self.command.iter().map(fill).collect();
        if !self.command.iter().any(|command| command.contains("{id}")) {
            argv.extend([id, "--quest", quest].map(str::to_owned));
        }
        argv
    }
}

/// Reads a wave file. `top` is the top directory of the repository, to which the paths of spec
/// files are relative.
pub(crate) fn read_wave_file(
    path: &Path,
    top: &Path,
    backflow: &RatchetTemplate,
) -> Result<QuestWave, CommandError> {
    let (source, _) = load_source(path)?;
    parse_source(&source, top, backflow).map_err(|diagnostics| source.error_for(&diagnostics))
}

fn parse_source(
    source: &SourceText,
    top: &Path,
    backflow: &RatchetTemplate,
) -> Result<QuestWave, Vec<super::Diagnostic>> {
    let tree = spanned_value::parse_json(source).map_err(|diagnostic| vec![diagnostic])?;
    let mut reader = FieldReader::new(source);
    let example = "{ \"wave\": [ … ], \"blocked\": [], \"completed\": [] }";
    let Some(mut fields) = reader.table("wave file", tree, example) else {
        return Err(reader.diagnostics);
    };
    let mut list = |reader: &mut FieldReader<'_>, name: &str| -> Vec<SpannedValue> {
        match fields.remove(&[name]).map(|table| table.node) {
            Some(SpannedValue {
                value: PlanValue::List(items),
                ..
            }) => items,
            Some(other) => {
                let what = format!("`{name}` must be a list, not {}", other.kind_name());
                reader.report(other.start, what, format!("write \"{name}\": []"));
                vec![]
            }
            None => vec![],
        }
    };
    let (wave, blocked, completed) = (
        list(&mut reader, "wave"),
        list(&mut reader, "blocked"),
        list(&mut reader, "completed"),
    );
    let mut current: Vec<WaveEntry> = wave
        .into_iter()
        .filter_map(|spanned_value| read_entry(&mut reader, spanned_value))
        .collect();
    let later: Vec<WaveEntry> = blocked
        .into_iter()
        .filter_map(|spanned_value| read_entry(&mut reader, spanned_value))
        .collect();
    let ended: Vec<WaveEntry> = completed
        .into_iter()
        .filter_map(|spanned_value| read_entry(&mut reader, spanned_value))
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for entry in current.iter().chain(&later).chain(&ended) {
        if !ids.insert(entry.id.as_str()) {
            reader.report(
                entry.offset,
                format!("{:?} appears twice", entry.id),
                "keep one of the two entries",
            );
        }
    }
    // Sort entries by priority, the lowest number first. Entries of equal priority keep the order
    // of the file.
    current.sort_by_key(|entry| entry.order);
    let after = resolve_blockers(&mut reader, &current, &later, &ended);
    if current.is_empty() && reader.diagnostics.is_empty() {
        let what = match (later.len(), ended.len()) {
            (0, 0) => "there is no entry in `wave`",
            (0, _) => "there is no entry in `wave`; all entries are completed",
            _ => "there is no entry in `wave`; all remaining entries are blocked",
        };
        reader.report(0, what, "create the next wave: ol hero hunt");
    }
    if !reader.diagnostics.is_empty() {
        reader
            .diagnostics
            .sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        return Err(reader.diagnostics);
    }
    let mut notes = Vec::new();
    let names: Vec<String> = current.iter().map(|entry| entry.id.clone()).collect();
    let tasks: Vec<PlannedTask> = current
        .into_iter()
        .zip(after)
        .map(|(entry, after)| PlannedTask {
            task: task_of_entry(entry, top, backflow, &mut notes),
            after,
        })
        .collect();
    let title = match tasks.len() {
        1 => names[0].clone(),
        _ => format!(
            "wave of {}",
            backflow.quest.clone().unwrap_or_else(|| quest_of(&names))
        ),
    };
    let later = later
        .into_iter()
        .map(|entry| LaterEntry {
            id: entry.id,
            title: entry.title,
            blocked_by: entry
                .blocked_by
                .into_iter()
                .map(|(blocker, _)| blocker)
                .collect(),
        })
        .collect();
    Ok(QuestWave {
        plan: Plan {
            title,
            commits: None,
            tasks,
            names,
            warnings: vec![],
        },
        later_entries: later,
        completed: ended.len(),
        remarks: notes,
    })
}

/// Returns the names of the quests to which these ids belong, such as `ol-527` for `ol-527.1`.
fn quest_of(ids: &[String]) -> String {
    let mut quests: Vec<&str> = ids
        .iter()
        .map(|id| id.rsplit_once('.').map_or(id.as_str(), |(quest, _)| quest))
        .collect();
    quests.sort_unstable();
    quests.dedup();
    quests.join(" ")
}

/// Reads one entry of a wave file. Unknown fields are ignored, because the external program uses
/// them.
fn read_entry(reader: &mut FieldReader<'_>, node: SpannedValue) -> Option<WaveEntry> {
    let example = "{ \"id\": \"ol-527.1\", \"title\": \"…\" }";
    let mut fields: TableFields = reader.table("entry", node, example)?;
    let offset = fields.offset;
    let need = |reader: &mut FieldReader<'_>, fields: &mut TableFields, name: &str| match fields
        .remove(&[name])
    {
        Some(table) => reader.subject(name, table.node),
        None => {
            reader.report(
                offset,
                format!("missing field `{name}`"),
                format!("write {example}"),
            );
            None
        }
    };
    let (id, title) = (
        need(reader, &mut fields, "id"),
        need(reader, &mut fields, "title"),
    );
    let spec_path = fields.remove(&["spec_path"]).and_then(|table| {
        let offset = table.node.start;
        let path = reader.text("spec_path", table.node)?;
        match PathPattern::new(&path) {
            Ok(_) => Some(path),
            Err(error) => {
                reader.report(
                    offset,
                    error.to_string(),
                    "write the path relative to the root of the repository",
                );
                None
            }
        }
    });
    let priority = fields.remove(&["priority"]);
    let order = match priority.map(|table| table.node) {
        Some(SpannedValue {
            value: PlanValue::Integer(n @ 0..),
            ..
        }) => n,
        Some(other) => {
            let what = format!(
                "`priority` must be a whole number, not {}",
                other.kind_name()
            );
            reader.report(other.start, what, "write 0 for the highest priority");
            0
        }
        None => i64::from(regatta_core::task::default_priority()),
    };
    let blocked_by = fields
        .remove(&["blocked_by"])
        .map(|table| reader.texts("blocked_by", table.node))
        .unwrap_or_default();
    let work = reader.work(&mut fields);
    let (id, title) = (id?, title?);
    if id.chars().count() + title.chars().count() > 290 {
        reader.report(
            offset,
            "its id and title together have more than 290 characters",
            "shorten the title",
        );
    }
    Some(WaveEntry {
        id,
        offset,
        title,
        spec_path,
        order,
        blocked_by,
        work,
    })
}

/// Returns for each entry of the wave the indexes of its blockers.
///
/// A completed blocker is ignored. A blocker that is itself blocked is reported as a mistake,
/// because the blocker gets no task in this wave.
fn resolve_blockers(
    reader: &mut FieldReader<'_>,
    current: &[WaveEntry],
    later: &[WaveEntry],
    completed: &[WaveEntry],
) -> Vec<Vec<usize>> {
    let index_of = |list: &[WaveEntry], id: &str| list.iter().position(|entry| entry.id == id);
    let mut after: Vec<Vec<usize>> = Vec::new();
    for entry in current {
        let mut blockers = Vec::new();
        for (blocker, offset) in &entry.blocked_by {
            match index_of(current, blocker) {
                Some(_) if *blocker == entry.id => {
                    reader.report(
                        *offset,
                        format!("{blocker:?} is blocked by itself"),
                        "remove it from blocked_by",
                    );
                }
                Some(index) => blockers.push(index),
                None if index_of(completed, blocker).is_some() => {}
                None if index_of(later, blocker).is_some() => {
                    let what = format!(
                        "{:?} is blocked by {blocker:?}, which is itself blocked",
                        entry.id
                    );
                    reader.report(*offset, what, "move it to `blocked`");
                }
                None => {
                    let what = format!(
                        "{:?} is blocked by {blocker:?}, which is not in the file",
                        entry.id
                    );
                    reader.report(
                        *offset,
                        what,
                        "add it to `wave`, `blocked` or `completed`, or remove it from blocked_by",
                    );
                }
            }
        }
        after.push(blockers);
    }
    // Look for cycles among all entries, so that a cycle of blocked entries is reported too.
    let all: Vec<&WaveEntry> = current.iter().chain(later).collect();
    let edges: Vec<Vec<usize>> = all
        .iter()
        .map(|entry| {
            let blockers = entry
                .blocked_by
                .iter()
                .filter(|blockers| blockers.0 != entry.id);
            blockers
                .filter_map(|blockers| all.iter().position(|entry| entry.id == blockers.0))
                .collect()
        })
        .collect();
    if let Err(cycle) = regatta_core::graph::layers(all.len(), &edges, |_, _| false) {
        let named: Vec<&str> = cycle.iter().map(|index| all[*index].id.as_str()).collect();
        let what = format!(
            "these entries wait for each other forever: {}",
            named.join(" → ")
        );
        reader.report(
            all[cycle[0]].offset,
            what,
            "remove one of them from a blocked_by",
        );
    }
    after
}

/// Returns the task for an entry. The entry's own fields take precedence over the fields of its
/// spec file (a description in prose). Problems with the spec file are added to `notes`.
fn task_of_entry(
    wave: WaveEntry,
    top: &Path,
    backflow: &RatchetTemplate,
    notes: &mut Vec<String>,
) -> PlannedTaskFields {
    let mut description = format!("Bead {}\n", wave.id);
    let mut spec = spec::TaskSpec::default();
    if let Some(path) = &wave.spec_path {
        description += &format!("Spec: {path}\n");
        match std::fs::read_to_string(top.join(path)) {
            Ok(text) => spec = spec::parse_spec(&text),
            Err(error) => notes.push(format!(
                "{}: could not read its spec {path}: {error}",
                wave.id
            )),
        }
        notes.extend(
            spec.problems
                .iter()
                .map(|what| format!("{}: ignored part of its spec {path}: {what}", wave.id)),
        );
    }
    description += &format!("Priority: {}\n", wave.order);
    if let Some(path) = &wave.spec_path {
        description += &format!("\nThe full requirements are in {path}: read it first.\n");
    }
    let work = wave.work;
    PlannedTaskFields {
        subject: format!("[{}] {}", wave.id, wave.title),
        description,
        issue_type: work.issue_type.or(spec.issue_type).unwrap_or_default(),
        files: work
            .files
            .filter(|path_patterns| !path_patterns.is_empty())
            .unwrap_or(spec.files),
        validation: work
            .validation
            .filter(|validation| !validation.is_empty())
            .unwrap_or(spec.validation),
        priority: u8::try_from(wave.order.min(9)).unwrap_or(9),
        expects: work.expects.unwrap_or_default(),
        effort: work.effort,
        provider: work.provider,
        script: work.script,
        ratchet: Some(backflow.command_for(&wave.id)),
        alias: Some(wave.id),
        assign: work.agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave file with all three lists.
    const WAVE_FILE: &str = r#"{
        "wave": [
            {"id": "ol-527.2", "title": "Fix rate limiting", "spec_path": "specs/2.md", "priority": 2, "seen": 3},
            {"id": "ol-527.1", "title": "Add auth middleware", "spec_path": "specs/1.md", "priority": 1,
             "issue_type": "bug", "files": ["src/auth.rs"]}],
        "blocked": [{"id": "ol-527.3", "title": "Integration tests", "blocked_by": ["ol-527.1", "ol-527.2"]}],
        "completed": [{"id": "ol-527.0", "title": "Project setup"}]}"#;

    fn ratchet_template(command: &str, quest: Option<&str>) -> RatchetTemplate {
        RatchetTemplate {
            command: command.split(' ').map(str::to_owned).collect(),
            quest: quest.map(str::to_owned),
        }
    }

    fn parse(text: &str, top: &Path) -> Result<QuestWave, Vec<String>> {
        let source = SourceText::new("w.json", text);
        let read = parse_source(&source, top, &ratchet_template(DEFAULT_RATCHET, None));
        read.map_err(|diagnostics| {
            diagnostics
                .iter()
                .map(|diagnostic| source.format_line(diagnostic))
                .collect()
        })
    }

    #[test]
    fn wave_becomes_tasks_by_priority_with_their_ratchet() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("specs")).unwrap();
        std::fs::write(
            top.path().join("specs/1.md"),
            "---\nissue_type: feature\nfiles: [src/other.rs]\ntests: make test\n---\n",
        )
        .unwrap();
        let wave = parse(WAVE_FILE, top.path()).unwrap();
        let tasks: Vec<&PlannedTaskFields> = wave
            .plan
            .tasks
            .iter()
            .map(|planned_task| &planned_task.task)
            .collect();
        let subjects: Vec<&str> = tasks
            .iter()
            .map(|planned_task_fields| planned_task_fields.subject.as_str())
            .collect();
        assert_eq!(
            subjects,
            [
                "[ol-527.1] Add auth middleware",
                "[ol-527.2] Fix rate limiting"
            ]
        );
        assert!(
            tasks[0].description.contains("Spec: specs/1.md\n"),
            "{}",
            tasks[0].description
        );
        // The entry's own fields win; the spec fills in the rest.
        assert_eq!(tasks[0].issue_type, regatta_core::task::IssueType::Bug);
        assert_eq!(tasks[0].files[0].as_str(), "src/auth.rs");
        assert_eq!(tasks[0].validation.tests, ["make test"]);
        assert_eq!(
            tasks[0].ratchet.as_ref().unwrap().join(" "),
            "ol hero ratchet ol-527.1 --quest ol-527"
        );
        assert_eq!((tasks[1].files.len(), tasks[1].priority), (0, 2));
        assert!(
            wave.remarks[0].contains("could not read its spec specs/2.md"),
            "{:?}",
            wave.remarks
        );
        assert_eq!(
            (wave.later_entries[0].id.as_str(), wave.completed),
            ("ol-527.3", 1)
        );
        assert_eq!(wave.plan.title, "wave of ol-527");
    }

    #[test]
    fn ratchet_command_gets_the_id_at_the_placeholder_or_at_its_end() {
        assert_eq!(
            ratchet_template("ol x", None)
                .command_for("q-1.2")
                .join(" "),
            "ol x q-1.2 --quest q-1"
        );
        assert_eq!(
            ratchet_template("sh r.sh {quest} {id}", Some("Q"))
                .command_for("q.1")
                .join(" "),
            "sh r.sh Q q.1"
        );
        assert_eq!(
            ratchet_template(DEFAULT_RATCHET, None)
                .command_for("plain")
                .join(" "),
            "ol hero ratchet plain --quest plain"
        );
    }

    #[test]
    fn invalid_waves_are_refused_with_the_place_of_the_mistake() {
        let top = Path::new("/nowhere");
        for (text, expected_message) in [
            ("[]", "w.json:1:1: `wave file` must be a table, not a list"),
            ("{", "w.json:1:1: this is not JSON"),
            (
                "{}",
                "w.json:1:1: there is no entry in `wave`; create the next wave",
            ),
            (
                r#"{"wave":[],"completed":[{"id":"a","title":"b"}]}"#,
                "all entries are completed",
            ),
            (
                r#"{"wave":{}}"#,
                "w.json:1:9: `wave` must be a list, not a table",
            ),
            (
                r#"{"wave":[{"title":"b"}]}"#,
                "w.json:1:10: missing field `id`",
            ),
            (
                r#"{"wave":[{"id":"a"}]}"#,
                "w.json:1:10: missing field `title`",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","priority":"x"}]}"#,
                "w.json:1:43: `priority` must be a whole number, not a string",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","spec_path":"/etc/passwd"}]}"#,
                "absolute",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","files":["../x"]}]}"#,
                ".. segment",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","issue_type":"epic"}]}"#,
                "\"epic\" is not a valid issue_type",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b"},{"id":"a","title":"c"}]}"#,
                "w.json:1:33: \"a\" appears twice",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","blocked_by":["z"]}]}"#,
                "which is not in the file",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b","blocked_by":["c"]}],"blocked":[{"id":"c","title":"d"}]}"#,
                "which is itself blocked; move it to `blocked`",
            ),
            (
                r#"{"wave":[{"id":"a","title":"b"}],"blocked":[{"id":"c","title":"d","blocked_by":["e"]},{"id":"e","title":"f","blocked_by":["c"]}]}"#,
                "forever: c → e → c",
            ),
        ] {
            let found = parse(text, top).expect_err(text);
            assert!(
                found
                    .iter()
                    .any(|message| message.contains(expected_message)),
                "{text}: {expected_message} in {found:?}"
            );
        }
    }
}
