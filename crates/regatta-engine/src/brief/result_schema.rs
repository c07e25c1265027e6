//! Writes the part of a prompt that says how to end the work and how to report its result.
//!
//! The way in which Regatta runs an agent decides how the work ends: an agent with Regatta's tools
//! calls `finish`, any other program writes a result file and exits. In both cases the text of a
//! result is called `detail`. If five or more workers of a mission write result files, the prompt
//! does not show the format but names a schema file in the workspace.

use std::io;
use std::path::Path;

use regatta_core::task::{Expects, Purpose, Task};

use crate::perform::AttemptContext;
use crate::{Engine, artifacts};

/// The smallest number of open tasks in a mission (a goal with its tasks) for which a prompt names
/// the schema file instead of showing the result format.
const MIN_WORKERS_FOR_SCHEMA: usize = 5;

const SCHEMA_PATH: &str = ".regatta/result.schema.json";

/// Returns the rules for ending an attempt, one per line.
pub(super) fn ending_rules(task: &Task, has_tools: bool, is_schema_shared: bool) -> String {
    let detail = match &task.purpose {
        // No rule is needed here, because the part of the prompt for a lead (the agent that splits
        // a mission into tasks) already says how the mission ends.
        Purpose::Lead => {
            return if has_tools {
                String::new()
            } else {
                "- To end your turn, exit with code 0.\n".to_owned()
            };
        }
        Purpose::Plan { .. } => "the plan",
        Purpose::Answer { .. } | Purpose::Converse { .. } | Purpose::Triage { .. } => "your answer",
        Purpose::Work { .. }
        | Purpose::Explore { .. }
        | Purpose::Review { .. }
        | Purpose::Session(_)
        | Purpose::MergeRemote { .. } => match task.expects() {
            Expects::Report => "your whole report",
            Expects::Changes => "what you did, in a few sentences",
        },
    };
    let is_change = task.expects() == Expects::Changes;
    if has_tools {
        let mut text = format!(
            "- When you are done, call `finish`, then end your turn. Its `detail` is {detail}."
        );
        if is_change {
            text += " Set `not_needed` if nothing has to be changed. Put facts that help later \
                tasks into `learnings`.";
        }
        text += "\n- If a person must decide something, call `ask`. If the task cannot be done, \
            call `give_up`.\n";
        return text;
    }
    let format = match (is_change, is_schema_shared) {
        (true, false) => RESULT_FORMAT,
        (true, true) => SCHEMA_REFERENCE,
        (false, _) => ANSWER_FORMAT,
    };
    format!(
        "- When you are done, write a JSON object to the file that the environment variable \
         REGATTA_RESULT names, and exit \
         with code 0: {format}\n\
         - `detail` is {detail}.\n\
         - `status` is \"done\"; or \"not_needed\" if nothing has to be changed; \"blocked\" if \
         you need a person; \"failed\" if \
         the task cannot be done.\n"
    )
}

/// The result format of tasks that only answer in text: an answer, a plan or a report.
const ANSWER_FORMAT: &str = "{\"status\": \"done\", \"detail\": \"…\"}";

/// The complete result format, as a prompt shows it.
pub(super) const RESULT_FORMAT: &str = "{\"type\": \"completion\", \"issue_id\": \"…\", \
    \"status\": \"done\", \
    \"detail\": \"…\", \"artifacts\": [], \"learnings\": [\"a fact that helps later tasks\"], \
    \"scope_escapes\": [{\"finding\": \"…\", \"suggested_files\": [\"…\"]}]}";

/// A short hint for prompts: the two fields that every result needs, and the path of the file with
/// the complete format.
pub(super) const SCHEMA_REFERENCE: &str =
    "{\"status\": \"done\", \"detail\": \"…\"}; .regatta/result.schema.json has all fields";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "result",
  "description": "What a worker leaves in the file that REGATTA_RESULT names.",
  "type": "object",
  "properties": {
    "type": { "type": "string", "description": "completion" },
    "issue_id": { "type": "string", "description": "the task's number" },
    "status": { "enum": ["done", "not_needed", "blocked", "failed"] },
    "detail": { "type": "string", "description": "what was done, or what is missing; the whole report if the task asks for a report" },
    "artifacts": { "type": "array", "items": { "type": "string" }, "description": "files worth a look" },
    "learnings": { "type": "array", "items": { "type": "string" }, "description": "facts that help later tasks" },
    "scope_escapes": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "finding": { "type": "string" },
          "suggested_files": { "type": "array", "items": { "type": "string" } }
        },
        "required": ["finding"]
      },
      "description": "work that belongs outside the file manifest"
    },
    "worktree_path": { "type": "string", "description": "the directory in which the work was done; without this field, the workspace" }
  },
  "required": ["status", "detail"]
}
"#;

/// Returns whether the mission (a goal with its tasks) of the attempt has so many open tasks that
/// the prompt names the schema file instead of repeating the format.
pub(super) fn should_share_schema(engine: &Engine, context: &AttemptContext) -> bool {
    let board = engine.board();
    context.task.mission.is_some_and(|mission| {
        board
            .open_tasks_of(mission)
            .take(MIN_WORKERS_FOR_SCHEMA)
            .count()
            == MIN_WORKERS_FOR_SCHEMA
    })
}

/// Writes the schema file (the complete result format) into the directory `.regatta` of a
/// workspace, which must exist.
pub(super) fn write_schema(workspace: &Path) -> io::Result<()> {
    artifacts::write_atomically(&workspace.join(SCHEMA_PATH), SCHEMA.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_result;

    /// Every field that the short format and the schema name is read.
    #[test]
    fn every_field_of_the_result_format_and_schema_is_read() {
        let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
        let format: serde_json::Value = serde_json::from_str(RESULT_FORMAT).unwrap();
        let is_in_schema = |field: &str| schema["properties"].get(field).is_some();
        assert!(
            format
                .as_object()
                .unwrap()
                .keys()
                .all(|field| is_in_schema(field)),
            "{format}"
        );
        assert!(SCHEMA_REFERENCE.contains(SCHEMA_PATH));
        let parsed = worker_result::parse_result(RESULT_FORMAT.as_bytes()).unwrap();
        assert_eq!(
            (parsed.findings.len(), parsed.result.learnings.len()),
            (1, 1)
        );
        for status in schema["properties"]["status"]["enum"].as_array().unwrap() {
            assert!(
                worker_result::parse_result(
                    serde_json::json!({ "status": status })
                        .to_string()
                        .as_bytes()
                )
                .is_ok()
            );
        }
    }
}
