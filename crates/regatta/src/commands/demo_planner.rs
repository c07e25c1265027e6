//! The script with which the agents of the demo make a plan, when a person asks for one on the page.
//!
//! The agents of the demo ask no model, so they give the same plan for every goal. The plan has two
//! waves and one conflict, its tasks have scripts, and it can be started any number of times.

use std::path::{Path, PathBuf};

use regatta_core::agent::{Profile, SCRIPT_FILE};
use serde_json::json;

use crate::output::{CommandError, command_error};

/// The plan that the demo's agents give. Each task adds a line to its file, so that the task changes
/// something even if the plan was started before.
const PLAN: &str = r##"
[[task]]
id = "spanish"
subject = "Greet in Spanish"
files = ["words/es.txt", "notes/es.md"]
script = [{ say = "writing the word" }, { write = { path = "words/es.txt", text = "hola\n" } }, { append = { path = "notes/es.md", text = "Spanish: hola\n" } }, { sleep = 2 }, { run = "sh ./test.sh" }]

[[task]]
id = "italian"
subject = "Greet in Italian"
files = ["words/it.txt", "notes/it.md"]
script = [{ write = { path = "words/it.txt", text = "ciao\n" } }, { append = { path = "notes/it.md", text = "Italian: ciao\n" } }, { sleep = 3 }, { run = "sh ./test.sh" }]

[[task]]
id = "list"
subject = "List the new languages"
files = ["notes/languages.md"]
blocked_by = ["spanish", "italian"]
script = [{ append = { path = "notes/languages.md", text = "- Spanish\n- Italian\n" } }, { sleep = 1 }]

[[task]]
id = "thanks"
subject = "Thank the translators"
issue_type = "docs"
files = ["notes/languages.md", "THANKS.md"]
blocked_by = ["spanish"]
script = [{ append = { path = "THANKS.md", text = "Thanks to everybody who sent a word.\n" } }, { sleep = 1 }]
"##;

/// Writes the script into `dir` and returns its path.
pub(super) fn write_script(dir: &Path) -> Result<PathBuf, CommandError> {
    let path = dir.join("planner.json");
    let answer = json!({ "status": "done", "detail": PLAN }).to_string();
    let command = format!(
        "if grep -q 'Make a plan for this goal' \"$REGATTA_PROMPT_FILE\"; then\n  cat > \
         \"$REGATTA_RESULT\" <<'END'\n{answer}\nEND\nelse\n  echo 'The agents of the demo follow \
         scripts, and this task has none.'\n  exit 1\nfi"
    );
    let script = json!([
        { "say": "This agent follows a script, so it gives the same plan for every goal." },
        { "sleep": 1 },
        { "run": "ls words" },
        { "run": command },
    ]);
    std::fs::write(&path, script.to_string()).map_err(|error| {
        command_error(
            "io",
            format!("could not write {}: {error}", path.display()),
            "set TMPDIR to a directory with free space",
        )
    })?;
    Ok(path)
}

/// Returns the profile of an agent of the demo, which follows the script at `path` when its task has
/// no script.
pub(super) fn profile(path: &Path) -> Profile {
    Profile {
        env: vec![(SCRIPT_FILE.to_owned(), path.display().to_string())],
        ..Profile::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_of_the_demo_can_be_used() {
        let plan = crate::plan::parse_plan(PLAN, false, "plan.toml").unwrap();
        assert_eq!(plan.tasks.len(), 4);
        assert!(
            plan.tasks
                .iter()
                .all(|planned| planned.task.script.is_some() && !planned.task.files.is_empty())
        );
    }
}
