//! Reads wave files, as `ol hero hunt` writes them.
//!
//! A wave file lists entries that can be worked on now (`wave`), entries that are blocked
//! (`blocked`) and completed ones (`completed`). Only the entries of `wave` become tasks. The
//! commands in `words/` create the tasks.

use std::path::Path;

use regatta_api::input::{PlannedTask, TaskAddFlat};
use regatta_core::pattern::PathPattern;

use crate::out::Failed;

use super::fault::Source;
use super::fields::{Fields, Reader, Work};
use super::tree::{self, Node, Value};
use super::{Plan, load, spec};

/// The command that runs when the work of an entry has passed its checks, unless another command is
/// given.
pub(crate) const RATCHET: &str = "ol hero ratchet {id} --quest {quest}";

/// How the completion of a task is reported back to the other program.
pub(crate) struct Backflow {
    /// The program and its arguments. `{id}` and `{quest}` are placeholders.
    pub(crate) command: Vec<String>,
    pub(crate) quest: Option<String>,
}

/// A wave file that was read without mistakes.
#[derive(Debug)]
pub(crate) struct Wave {
    pub(crate) plan: Plan,
    /// Entries that belong to a later wave, with their blockers.
    pub(crate) later: Vec<Later>,
    pub(crate) completed: usize,
    /// Remarks about entries, such as a spec that could not be read.
    pub(crate) notes: Vec<String>,
}

/// A blocked entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Later {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) blocked_by: Vec<String>,
}

/// An entry, before its spec is read.
struct Found {
    id: String,
    at: usize,
    title: String,
    spec_path: Option<String>,
    order: i64,
    blocked_by: Vec<(String, usize)>,
    work: Work,
}

impl Backflow {
    /// Returns the command for one entry. The id is appended if the command has no `{id}`.
    fn of(&self, id: &str) -> Vec<String> {
        let quest = match &self.quest {
            Some(it) => it.as_str(),
            None => id.rsplit_once('.').map_or(id, |it| it.0),
        };
        let fill = |it: &String| it.replace("{id}", id).replace("{quest}", quest);
        let mut argv: Vec<String> = self.command.iter().map(fill).collect();
        if !self.command.iter().any(|it| it.contains("{id}")) {
            argv.extend([id, "--quest", quest].map(str::to_owned));
        }
        argv
    }
}

/// Reads a wave file. `top` is the root of the repository; paths of specs are relative to it.
pub(crate) fn read(path: &Path, top: &Path, backflow: &Backflow) -> Result<Wave, Failed> {
    let (source, _) = load(path)?;
    understand(&source, top, backflow).map_err(|it| source.refuse(&it))
}

fn understand(source: &Source, top: &Path, backflow: &Backflow) -> Result<Wave, Vec<super::Fault>> {
    let tree = tree::json(source).map_err(|it| vec![it])?;
    let mut reader = Reader::new(source);
    let example = "{ \"wave\": [ … ], \"blocked\": [], \"completed\": [] }";
    let Some(mut fields) = reader.table("wave file", tree, example) else { return Err(reader.faults) };
    let mut list = |reader: &mut Reader<'_>, name: &str| -> Vec<Node> {
        match fields.take(&[name]).map(|it| it.node) {
            Some(Node { value: Value::List(items), .. }) => items,
            Some(other) => {
                let what = format!("`{name}` must be a list, not {}", other.kind());
                reader.wrong(other.at, what, format!("write \"{name}\": []"));
                vec![]
            }
            None => vec![],
        }
    };
    let (wave, blocked, completed) =
        (list(&mut reader, "wave"), list(&mut reader, "blocked"), list(&mut reader, "completed"));
    let mut found: Vec<Found> = wave.into_iter().filter_map(|it| entry(&mut reader, it)).collect();
    let later: Vec<Found> = blocked.into_iter().filter_map(|it| entry(&mut reader, it)).collect();
    let done: Vec<Found> = completed.into_iter().filter_map(|it| entry(&mut reader, it)).collect();
    let mut seen = std::collections::BTreeSet::new();
    for it in found.iter().chain(&later).chain(&done) {
        if !seen.insert(it.id.as_str()) {
            reader.wrong(it.at, format!("{:?} appears twice", it.id), "keep one of the two entries");
        }
    }
    // A lower priority value comes first. Entries of equal priority keep the order of the file.
    found.sort_by_key(|it| it.order);
    let after = order(&mut reader, &found, &later, &done);
    if found.is_empty() && reader.faults.is_empty() {
        let what = match (later.len(), done.len()) {
            (0, 0) => "there is no entry in `wave`",
            (0, _) => "there is no entry in `wave`; all entries are completed",
            _ => "there is no entry in `wave`; all remaining entries are blocked",
        };
        reader.wrong(0, what, "create the next wave: ol hero hunt");
    }
    if !reader.faults.is_empty() {
        reader.faults.sort_by_key(|it| (it.line, it.column));
        return Err(reader.faults);
    }
    let mut notes = Vec::new();
    let names: Vec<String> = found.iter().map(|it| it.id.clone()).collect();
    let tasks: Vec<PlannedTask> = found
        .into_iter()
        .zip(after)
        .map(|(it, after)| PlannedTask { task: task(it, top, backflow, &mut notes), after })
        .collect();
    let title = match tasks.len() {
        1 => names[0].clone(),
        _ => format!("wave of {}", backflow.quest.clone().unwrap_or_else(|| quest_of(&names))),
    };
    let later = later
        .into_iter()
        .map(|it| Later { id: it.id, title: it.title, blocked_by: it.blocked_by.into_iter().map(|it| it.0).collect() })
        .collect();
    Ok(Wave {
        plan: Plan { title, commits: None, tasks, names, warnings: vec![] },
        later,
        completed: done.len(),
        notes,
    })
}

/// Returns the quest, or the quests, that the ids belong to.
fn quest_of(ids: &[String]) -> String {
    let mut quests: Vec<&str> = ids.iter().map(|it| it.rsplit_once('.').map_or(it.as_str(), |it| it.0)).collect();
    quests.sort_unstable();
    quests.dedup();
    quests.join(" ")
}

/// Reads one entry. Unknown fields are ignored, because they belong to the other program.
fn entry(reader: &mut Reader<'_>, node: Node) -> Option<Found> {
    let example = "{ \"id\": \"ol-527.1\", \"title\": \"…\" }";
    let mut fields: Fields = reader.table("entry", node, example)?;
    let at = fields.at;
    let need = |reader: &mut Reader<'_>, fields: &mut Fields, name: &str| match fields.take(&[name]) {
        Some(it) => reader.subject(name, it.node),
        None => {
            reader.wrong(at, format!("missing field `{name}`"), format!("write {example}"));
            None
        }
    };
    let (id, title) = (need(reader, &mut fields, "id"), need(reader, &mut fields, "title"));
    let spec_path = fields.take(&["spec_path"]).and_then(|it| {
        let at = it.node.at;
        let path = reader.text("spec_path", it.node)?;
        match PathPattern::new(&path) {
            Ok(_) => Some(path),
            Err(error) => {
                reader.wrong(at, error.to_string(), "write the path relative to the root of the repository");
                None
            }
        }
    });
    let priority = fields.take(&["priority"]);
    let order = match priority.map(|it| it.node) {
        Some(Node { value: Value::Whole(it @ 0..), .. }) => it,
        Some(other) => {
            let what = format!("`priority` must be a whole number, not {}", other.kind());
            reader.wrong(other.at, what, "write 0 for the highest priority");
            0
        }
        None => i64::from(regatta_core::task::default_priority()),
    };
    let blocked_by = fields.take(&["blocked_by"]).map(|it| reader.texts("blocked_by", it.node)).unwrap_or_default();
    let work = reader.work(&mut fields);
    let (id, title) = (id?, title?);
    if id.chars().count() + title.chars().count() > 290 {
        reader.wrong(at, "its id and title together have more than 290 characters", "shorten the title");
    }
    Some(Found { id, at, title, spec_path, order, blocked_by, work })
}

/// Returns for each entry of the wave the places of its blockers.
///
/// A completed blocker is ignored. A blocker that is itself blocked is a mistake, because it gets
/// no task in this wave.
fn order(reader: &mut Reader<'_>, found: &[Found], later: &[Found], done: &[Found]) -> Vec<Vec<usize>> {
    let place = |list: &[Found], id: &str| list.iter().position(|it| it.id == id);
    let mut after: Vec<Vec<usize>> = Vec::new();
    for it in found {
        let mut on = Vec::new();
        for (blocker, at) in &it.blocked_by {
            match place(found, blocker) {
                Some(_) if *blocker == it.id => {
                    reader.wrong(*at, format!("{blocker:?} is blocked by itself"), "remove it from blocked_by");
                }
                Some(other) => on.push(other),
                None if place(done, blocker).is_some() => {}
                None if place(later, blocker).is_some() => {
                    let what = format!("{:?} is blocked by {blocker:?}, which is itself blocked", it.id);
                    reader.wrong(*at, what, "move it to `blocked`");
                }
                None => {
                    let what = format!("{:?} is blocked by {blocker:?}, which is not in the file", it.id);
                    reader.wrong(*at, what, "add it to `wave`, `blocked` or `completed`, or remove it from blocked_by");
                }
            }
        }
        after.push(on);
    }
    // Check the whole graph, so that a cycle among the blocked entries is reported too.
    let all: Vec<&Found> = found.iter().chain(later).collect();
    let edges: Vec<Vec<usize>> = all
        .iter()
        .map(|it| {
            let on = it.blocked_by.iter().filter(|on| on.0 != it.id);
            on.filter_map(|on| all.iter().position(|it| it.id == on.0)).collect()
        })
        .collect();
    if let Err(cycle) = regatta_core::graph::layers(all.len(), &edges, |_, _| false) {
        let named: Vec<&str> = cycle.iter().map(|it| all[*it].id.as_str()).collect();
        let what = format!("these entries wait for each other forever: {}", named.join(" → "));
        reader.wrong(all[cycle[0]].at, what, "remove one of them from a blocked_by");
    }
    after
}

/// Returns the task of an entry. The entry's own fields take precedence over those of its spec.
fn task(it: Found, top: &Path, backflow: &Backflow, notes: &mut Vec<String>) -> TaskAddFlat {
    let mut description = format!("Bead {}\n", it.id);
    let mut spec = spec::Spec::default();
    if let Some(path) = &it.spec_path {
        description += &format!("Spec: {path}\n");
        match std::fs::read_to_string(top.join(path)) {
            Ok(text) => spec = spec::read(&text),
            Err(error) => notes.push(format!("{}: could not read its spec {path}: {error}", it.id)),
        }
        notes.extend(spec.left_out.iter().map(|what| format!("{}: ignored part of its spec {path}: {what}", it.id)));
    }
    description += &format!("Priority: {}\n", it.order);
    if let Some(path) = &it.spec_path {
        description += &format!("\nThe full requirements are in {path}: read it first.\n");
    }
    let work = it.work;
    TaskAddFlat {
        subject: format!("[{}] {}", it.id, it.title),
        description,
        issue_type: work.issue_type.or(spec.issue_type).unwrap_or_default(),
        files: work.files.filter(|it| !it.is_empty()).unwrap_or(spec.files),
        validation: work.validation.filter(|it| !it.is_empty()).unwrap_or(spec.validation),
        priority: u8::try_from(it.order.min(9)).unwrap_or(9),
        expects: work.expects.unwrap_or_default(),
        effort: work.effort,
        provider: work.provider,
        script: work.script,
        ratchet: Some(backflow.of(&it.id)),
        alias: Some(it.id),
        assign: work.agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave file with all three lists.
    const WAVE: &str = r#"{
        "wave": [
            {"id": "ol-527.2", "title": "Fix rate limiting", "spec_path": "specs/2.md", "priority": 2, "seen": 3},
            {"id": "ol-527.1", "title": "Add auth middleware", "spec_path": "specs/1.md", "priority": 1,
             "issue_type": "bug", "files": ["src/auth.rs"]}],
        "blocked": [{"id": "ol-527.3", "title": "Integration tests", "blocked_by": ["ol-527.1", "ol-527.2"]}],
        "completed": [{"id": "ol-527.0", "title": "Project setup"}]}"#;

    fn backflow(command: &str, quest: Option<&str>) -> Backflow {
        Backflow { command: command.split(' ').map(str::to_owned).collect(), quest: quest.map(str::to_owned) }
    }

    fn parse(text: &str, top: &Path) -> Result<Wave, Vec<String>> {
        let source = Source::new("w.json", text);
        let read = understand(&source, top, &backflow(RATCHET, None));
        read.map_err(|it| it.iter().map(|it| source.told(it)).collect())
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
        let wave = parse(WAVE, top.path()).unwrap();
        let tasks: Vec<&TaskAddFlat> = wave.plan.tasks.iter().map(|it| &it.task).collect();
        let subjects: Vec<&str> = tasks.iter().map(|it| it.subject.as_str()).collect();
        assert_eq!(subjects, ["[ol-527.1] Add auth middleware", "[ol-527.2] Fix rate limiting"]);
        assert!(tasks[0].description.contains("Spec: specs/1.md\n"), "{}", tasks[0].description);
        // The entry's own fields win; the spec fills in the rest.
        assert_eq!(tasks[0].issue_type, regatta_core::task::IssueType::Bug);
        assert_eq!(tasks[0].files[0].as_str(), "src/auth.rs");
        assert_eq!(tasks[0].validation.tests, ["make test"]);
        assert_eq!(tasks[0].ratchet.as_ref().unwrap().join(" "), "ol hero ratchet ol-527.1 --quest ol-527");
        assert_eq!((tasks[1].files.len(), tasks[1].priority), (0, 2));
        assert!(wave.notes[0].contains("could not read its spec specs/2.md"), "{:?}", wave.notes);
        assert_eq!((wave.later[0].id.as_str(), wave.completed), ("ol-527.3", 1));
        assert_eq!(wave.plan.title, "wave of ol-527");
    }

    #[test]
    fn backflow_command_gets_the_id_at_the_placeholder_or_at_its_end() {
        assert_eq!(backflow("ol x", None).of("q-1.2").join(" "), "ol x q-1.2 --quest q-1");
        assert_eq!(backflow("sh r.sh {quest} {id}", Some("Q")).of("q.1").join(" "), "sh r.sh Q q.1");
        assert_eq!(backflow(RATCHET, None).of("plain").join(" "), "ol hero ratchet plain --quest plain");
    }

    #[test]
    fn invalid_waves_are_refused_with_the_place_of_the_mistake() {
        let top = Path::new("/nowhere");
        for (text, told) in [
            ("[]", "w.json:1:1: `wave file` must be a table, not a list"),
            ("{", "w.json:1:1: this is not JSON"),
            ("{}", "w.json:1:1: there is no entry in `wave`; create the next wave"),
            (r#"{"wave":[],"completed":[{"id":"a","title":"b"}]}"#, "all entries are completed"),
            (r#"{"wave":{}}"#, "w.json:1:9: `wave` must be a list, not a table"),
            (r#"{"wave":[{"title":"b"}]}"#, "w.json:1:10: missing field `id`"),
            (r#"{"wave":[{"id":"a"}]}"#, "w.json:1:10: missing field `title`"),
            (
                r#"{"wave":[{"id":"a","title":"b","priority":"x"}]}"#,
                "w.json:1:43: `priority` must be a whole number, not a string",
            ),
            (r#"{"wave":[{"id":"a","title":"b","spec_path":"/etc/passwd"}]}"#, "absolute"),
            (r#"{"wave":[{"id":"a","title":"b","files":["../x"]}]}"#, ".. segment"),
            (r#"{"wave":[{"id":"a","title":"b","issue_type":"epic"}]}"#, "\"epic\" is not a valid issue_type"),
            (r#"{"wave":[{"id":"a","title":"b"},{"id":"a","title":"c"}]}"#, "w.json:1:33: \"a\" appears twice"),
            (r#"{"wave":[{"id":"a","title":"b","blocked_by":["z"]}]}"#, "which is not in the file"),
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
            assert!(found.iter().any(|it| it.contains(told)), "{text}: {told} in {found:?}");
        }
    }
}
