//! Reading plan files: `[[task]]` tables in TOML, or the same in JSON. A plan is read whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_api::input::{PlannedTask, TaskAddFlat};
use regatta_core::ids::AgentName;
use regatta_core::pattern::PathPattern;
use regatta_core::task::{ContentCheck, Expects, IssueType, Validation};
use serde::Deserialize;

use crate::out::{Failed, usage};

/// A plan that was read.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) title: String,
    pub(crate) tasks: Vec<PlannedTask>,
    /// What each task is called in the plan.
    pub(crate) names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    #[serde(default)]
    title: Option<String>,
    #[serde(default, alias = "tasks")]
    task: Vec<PlanTask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTask {
    #[serde(default)]
    id: Option<String>,
    #[serde(alias = "title")]
    subject: String,
    #[serde(default)]
    description: String,
    #[serde(default, alias = "type")]
    issue_type: IssueType,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    validation: PlanValidation,
    #[serde(default)]
    blocked_by: Vec<String>,
    #[serde(default = "regatta_core::task::default_priority")]
    priority: u8,
    #[serde(default)]
    expects: Expects,
    #[serde(default)]
    effort: Option<String>,
    #[serde(default)]
    agent: Option<AgentName>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    script: Option<serde_json::Value>,
    #[serde(default)]
    ratchet: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlanValidation {
    tests: OneOrMany,
    lint: OneOrMany,
    files_exist: OneOrMany,
    content_check: Checks,
}

/// A command or several: people write both.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
    #[default]
    None,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Checks {
    One(ContentCheck),
    Many(Vec<ContentCheck>),
    #[default]
    None,
}

impl From<OneOrMany> for Vec<String> {
    fn from(it: OneOrMany) -> Vec<String> {
        match it {
            OneOrMany::One(it) => vec![it],
            OneOrMany::Many(it) => it,
            OneOrMany::None => vec![],
        }
    }
}

/// Reads a plan file.
pub(crate) fn read(path: &Path) -> Result<Plan, Failed> {
    let standard_input = path == Path::new("-");
    let text = if standard_input { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.map_err(|it| {
        usage(format!("the plan {} cannot be read: {it}", path.display()), "name a plan file in TOML or JSON")
    })?;
    let json = path.extension().is_some_and(|it| it == "json") || (standard_input && looks_like_json(&text));
    parse(&text, json, &path.display().to_string())
}

/// Whether a text with no name is JSON: a list of tasks begins with `[{`, and TOML's `[[task]]` does not.
fn looks_like_json(text: &str) -> bool {
    match text.trim_start().strip_prefix('[') {
        Some(rest) => rest.trim_start().starts_with(['{', ']']),
        None => text.trim_start().starts_with('{'),
    }
}

/// Reads a plan from its text; `name` is what errors call it.
pub(crate) fn parse(text: &str, json: bool, name: &str) -> Result<Plan, Failed> {
    let bad = |what: String| usage(format!("{name}: {what}"), "mend the plan; nothing was created");
    let file: PlanFile = if json {
        let bare = text.trim_start().starts_with('[');
        let read = if bare {
            serde_json::from_str(text).map(|task| PlanFile { title: None, task })
        } else {
            serde_json::from_str(text)
        };
        read.map_err(|it| bad(it.to_string()))?
    } else {
        toml::from_str(text).map_err(|it| bad(it.to_string().trim_end().to_owned()))?
    };
    if file.task.is_empty() {
        return Err(bad("it has no [[task]]".into()));
    }
    let names: Vec<String> =
        (1..).zip(&file.task).map(|(nth, it)| it.id.clone().unwrap_or_else(|| nth.to_string())).collect();
    let mut places = BTreeMap::new();
    for (place, id) in names.iter().enumerate() {
        if places.insert(id.clone(), place).is_some() {
            return Err(bad(format!("two tasks are called {id:?}")));
        }
    }
    let mut tasks = Vec::new();
    for (id, task) in names.iter().zip(file.task) {
        let wrong = |what: String| bad(format!("task {id:?} ({:?}): {what}", task.subject));
        let mut after = Vec::new();
        for blocker in &task.blocked_by {
            let place = places
                .get(blocker)
                .ok_or_else(|| wrong(format!("it is blocked by {blocker:?}, which is not in the plan")))?;
            after.push(*place);
        }
        let files = expand(&task.files).map_err(&wrong)?;
        if let Some(script) = &task.script {
            regatta_agents::script::parse(&script.to_string())
                .map_err(|it| wrong(format!("its script cannot be followed: {it}")))?;
        }
        let content_check = match task.validation.content_check {
            Checks::One(it) => vec![it],
            Checks::Many(it) => it,
            Checks::None => vec![],
        };
        tasks.push(PlannedTask {
            after,
            task: TaskAddFlat {
                subject: task.subject,
                description: task.description,
                issue_type: task.issue_type,
                files,
                validation: Validation {
                    tests: task.validation.tests.into(),
                    lint: task.validation.lint.into(),
                    files_exist: task.validation.files_exist.into(),
                    content_check,
                },
                priority: task.priority,
                expects: task.expects,
                effort: task.effort,
                provider: task.provider,
                script: task.script,
                ratchet: task.ratchet,
                alias: Some(id.clone()),
                assign: task.agent,
            },
        });
    }
    let depends_on: Vec<Vec<usize>> = tasks.iter().map(|it| it.after.clone()).collect();
    if let Err(cycle) = regatta_core::graph::layers(tasks.len(), &depends_on, |_, _| false) {
        let named: Vec<&str> = cycle.iter().map(|it| names[*it].as_str()).collect();
        return Err(bad(format!("these tasks wait for each other for ever: {}", named.join(" → "))));
    }
    let title = file
        .title
        .unwrap_or_else(|| Path::new(name).file_stem().map_or("plan".into(), |it| it.to_string_lossy().into_owned()));
    Ok(Plan { title, tasks, names })
}

/// Expands a manifest.
pub(crate) fn expand(files: &[String]) -> Result<Vec<PathPattern>, String> {
    let mut found = Vec::new();
    for file in files {
        found.extend(PathPattern::expand(file).map_err(|it| it.to_string())?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match parse(text, false, "p.toml") {
            Err(Failed::Problem(it)) => it.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plan_names_its_blockers_and_its_checks() {
        let plan = parse(
            r#"
            [[task]]
            id = "a"
            subject = "first"
            files = ["src/{x,y}.rs"]
            validation = { tests = "make test", content_check = { file = "src/x.rs", pattern = "fn" } }
            script = [{ write = { path = "src/x.rs", text = "fn" } }]
            [[task]]
            subject = "second"
            blocked_by = ["a"]
            "#,
            false,
            "p.toml",
        )
        .unwrap();
        assert_eq!(plan.names, ["a", "2"]);
        assert_eq!(plan.tasks[1].after, [0]);
        assert_eq!(plan.tasks[0].task.files.len(), 2);
        assert_eq!(plan.tasks[0].task.validation.tests, ["make test"]);
    }

    #[test]
    fn bad_plans_say_where_and_why() {
        for (text, expected) in [
            ("", "no [[task]]"),
            ("[[task]]\nsubjct = 'x'", "unknown field `subjct`"),
            ("[[task]]\nsubject = 'x'\nid = 'a'\n[[task]]\nsubject = 'y'\nid = 'a'", "two tasks are called \"a\""),
            ("[[task]]\nsubject = 'x'\nblocked_by = ['b']", "not in the plan"),
            (
                "[[task]]\nid = 'a'\nsubject = 'x'\nblocked_by = ['b']\n[[task]]\nid = 'b'\nsubject = 'y'\nblocked_by = ['a']",
                "a → b → a",
            ),
            ("[[task]]\nsubject = 'x'\nfiles = ['/etc/passwd']", "absolute"),
            ("[[task]]\nsubject = 'x'\nfiles = ['../x']", ".. segment"),
            ("[[task]]\nsubject = 'x'\nissue_type = 'epic'", "unknown variant `epic`"),
            ("[[task]]\nsubject = 'x'\nscript = [{ fly = 'high' }]", "script cannot be followed"),
            ("[[task]\nsubject = 'x'", "line 1"),
        ] {
            assert!(error(text).contains(expected), "{text}: {}", error(text));
        }
    }
}
