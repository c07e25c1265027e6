//! What a worker leaves as its result. The shape is in the prompt; where five or more share it, it is in a file beside
//! the briefing, and the prompt names that.

use std::io;
use std::path::Path;

use crate::perform::Scene;
use crate::{Engine, keep};

/// From how many workers on the shape is not said to each again.
const MANY: usize = 5;

const FILE: &str = ".regatta/result.schema.json";

/// The shape, in a prompt.
pub(super) const IN_WORDS: &str = "{\"type\": \"completion\", \"issue_id\": \"…\", \"status\": \"done\", \
    \"detail\": \"…\", \"artifacts\": [], \"learnings\": [\"what the next one should know\"], \
    \"scope_escapes\": [{\"finding\": \"…\", \"suggested_files\": [\"…\"]}]}";

/// Where the shape is, in a prompt; enough to go on with for who cannot read it.
pub(super) const BY_PATH: &str =
    "{\"status\": \"done\", \"detail\": \"…\"} and what else .regatta/result.schema.json names";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "result",
  "description": "What a worker leaves in the file that REGATTA_RESULT names.",
  "type": "object",
  "properties": {
    "type": { "type": "string", "description": "completion" },
    "issue_id": { "type": "string", "description": "the task's number" },
    "status": { "enum": ["done", "not_needed", "blocked", "failed"] },
    "detail": { "type": "string", "description": "what was done, or what is missing; a report, where one is asked for" },
    "artifacts": { "type": "array", "items": { "type": "string" }, "description": "files worth a look" },
    "learnings": { "type": "array", "items": { "type": "string" }, "description": "what the next one should know" },
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
    "worktree_path": { "type": "string", "description": "where it was done; the workspace, if it is left out" }
  },
  "required": ["status", "detail"]
}
"#;

/// Whether many work on the same mission, or will.
pub(super) fn is_shared(engine: &Engine, scene: &Scene) -> bool {
    let board = engine.board();
    scene.task.mission.is_some_and(|it| board.open_tasks_of(it).take(MANY).count() == MANY)
}

/// Writes the shape into our own directory of a workspace, which is there and ours.
pub(super) fn write(workspace: &Path) -> io::Result<()> {
    keep::write(&workspace.join(FILE), SCHEMA.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result;

    /// What is named in words and what is named by the schema is what is read.
    #[test]
    fn both_ways_name_what_is_read() {
        let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
        let words: serde_json::Value = serde_json::from_str(IN_WORDS).unwrap();
        let named = |it: &str| schema["properties"].get(it).is_some();
        assert!(words.as_object().unwrap().keys().all(|it| named(it)), "{words}");
        assert!(BY_PATH.contains(FILE));
        let read = result::parse(IN_WORDS.as_bytes()).unwrap();
        assert_eq!((read.findings.len(), read.result.learnings.len()), (1, 1));
        for status in schema["properties"]["status"]["enum"].as_array().unwrap() {
            assert!(result::parse(serde_json::json!({ "status": status }).to_string().as_bytes()).is_ok());
        }
    }
}
