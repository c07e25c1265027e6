//! What an agent is told when it starts. All of the engine's sentences to agents are in this file.

use regatta_core::attempt::Attempt;
use regatta_core::project::Project;
use regatta_core::task::Task;

/// The prompt of an attempt.
pub(crate) fn prompt(task: &Task, project: &Project, attempt: &Attempt) -> String {
    let mut text = format!("# {}: {}\n\n", task.id, task.subject);
    if !task.description.trim().is_empty() {
        text += &format!("{}\n\n", task.description.trim());
    }
    if !task.files.is_empty() {
        text += "## FILE MANIFEST\nChange only these files. A change anywhere else is found from the diff and sends the work back.\n";
        for file in &task.files {
            text += &format!("- {file}\n");
        }
        text += "\n";
    }
    let contract = contract(task, project);
    if !contract.is_empty() {
        text += "## VALIDATION\nYour work counts when all of this holds; it is run for you when you are done.\n";
        for line in contract {
            text += &format!("- {line}\n");
        }
        text += "\n";
    }
    match (&attempt.resumes, &task.reason) {
        (Some(resume), reason) => {
            text += "## UNFINISHED WORK\nThis task was begun before, and what was done so far is in your working directory: \
                look at `git status` and `git diff` first, then go on from there.\n";
            if let Some(reason) = reason {
                text += &format!("It was broken off: {reason}\n");
            }
            if resume.agent != attempt.agent {
                text += &format!("It was begun by {}.\n", resume.agent);
            }
            text += "\n";
        }
        (None, Some(reason)) => text += &format!("## THE LAST ATTEMPT\nIt did not pass: {reason}\n\n"),
        (None, None) => {}
    }
    if !attempt.notes.is_empty() {
        text += "## SAID BY PEOPLE\n";
        for note in &attempt.notes {
            text += &format!("{}\n\n", note.trim());
        }
    }
    text += "## RULES\n\
        - Your working directory is your own copy of the repository. Commit or not as you like; what is on disk counts.\n\
        - Do not merge, push or touch other branches: the work is landed for you.\n\
        - When you are done, exit with code 0. You may leave a summary in the file named by REGATTA_RESULT, as JSON: \
        {\"type\": \"completion\", \"issue_id\": \"…\", \"status\": \"done\", \"detail\": \"…\", \"artifacts\": []}.\n";
    text
}

/// The contract in words, in the order it is checked.
fn contract(task: &Task, project: &Project) -> Vec<String> {
    let it = &task.validation;
    let exist = it.files_exist.iter().map(|file| format!("the file {file} exists"));
    let content = it.content_check.iter().map(|check| format!("{} contains {:?}", check.file, check.pattern));
    let commands =
        it.lint.iter().chain(&it.tests).chain(&project.validation).map(|command| format!("`{command}` exits with 0"));
    exist.chain(content).chain(commands).collect()
}
