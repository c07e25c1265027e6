//! Builds the prompts of agents. Every sentence that the engine writes to agents is in this
//! directory.
//!
//! A prompt states the task and the checks that its work must pass. A briefing adds background in
//! five sections. A briefing is a file in the workspace that git ignores, limited in size and
//! without secrets. A short briefing becomes part of the prompt instead, because reading a file
//! costs a turn of the model. A briefing that could not be written to its file also becomes part of
//! the prompt.

mod fixup; // the part of a prompt for a fix-up
mod lead; // the part of a prompt for a lead
mod member; // the prompt of a team's member
mod pitfalls; // common mistakes by language
mod result_schema; // how to end the work, and the format of a result
mod sections; // GOALS, HISTORY, INTEL, TASK, PROTOCOL
mod tools; // the list of Regatta's own tools

use std::fs;
use std::io;
use std::path::Path;

use regatta_core::agent::Role;
use regatta_core::attempt::{Attempt, AttemptCause};
use regatta_core::project::{Project, RuleAction};
use regatta_core::scope_escape::EscapeSource;
use regatta_core::task::{Expects, IssueType, Purpose, Task};
use regatta_core::{agent, check_output, project_rules};

pub use tools::{LEAD_TOOLS, WORKER_TOOLS};

use crate::perform::AttemptContext;
use crate::{Engine, artifacts};

/// The directory in a workspace for Regatta's own files, which are never part of the agent's work.
pub(crate) const REGATTA_DIR: &str = ".regatta";

/// The path of the briefing (the background for the agent), relative to the workspace.
pub(crate) const BRIEFING_PATH: &str = ".regatta/briefing.md";

/// The largest number of files that a prompt names as changed by the previous wave (tasks that ran
/// at the same time).
const MAX_FILES_NAMED: usize = 50;

/// Returns the prompt of an attempt as of now. `is_fresh` is true if the attempt's program is about
/// to be started. In that case also tries to write the briefing to its file in the workspace.
pub(crate) fn attempt_prompt(engine: &Engine, context: &AttemptContext, is_fresh: bool) -> String {
    let redact = |text: &str| (engine.shared.settings.redactor.0)(text);
    if let Some(session) = &context.attempt.session_of {
        return redact(&member::prompt(engine, context, session));
    }
    let board = engine.board();
    let agent = board.agents.get(&context.attempt.agent);
    let has_tools = engine.shared.settings.tool_server.is_some()
        && agent.is_some_and(|agent| agent.runtime.has_tools());
    let is_schema_shared = result_schema::should_share_schema(engine, context);
    let spec = context.spec();
    let ending = result_schema::ending_rules(&context.task, has_tools, is_schema_shared);
    let briefing = sections::briefing(engine, context, &ending);
    let file = redact(&briefing.file_text());
    let is_written = engine.site_of(context).write_briefing(&spec, is_fresh.then_some(file.as_str())).unwrap_or_else(|error| {
        tracing::debug!(attempt = %context.attempt.id, "could not write the briefing (background \
            for the agent) into the workspace of {}, so the prompt contains the briefing \
            instead: {error}",
            context.attempt.id);
        false
    });
    // The file with the result format is written beside the briefing (the background for the
    // agent), so that file is missing when the briefing could not be written.
    let ending = if is_written || !is_schema_shared {
        ending
    } else {
        result_schema::ending_rules(&context.task, has_tools, false)
    };
    let working_dir = engine.site_of(context).working_dir(&spec);
    let evidence = last_failure(engine, &context.task);
    let fixup_section = fixup::section(engine, context);
    let role = agent.map_or(Role::Worker, |agent| agent.role);
    let tools = if has_tools {
        tools::section(
            role,
            context.task.purpose.has_contract() || context.task.is_conversation(),
        )
    } else {
        String::new()
    };
    let lead_section = lead::section(&board, context, has_tools, engine.now());
    let inlined = briefing.inlined_text();
    let is_inlined = !is_written || inlined.len() <= sections::MAX_INLINED_BYTES;
    let parts = PromptParts {
        lead: lead_section.as_deref(),
        briefing: is_inlined.then_some(inlined.as_str()),
        evidence: evidence.as_deref(),
        fixup: fixup_section.as_deref(),
        tools: &tools,
        ending: &ending,
        workspace: working_dir.as_deref(),
    };
    redact(&assemble_prompt(
        &context.task,
        &context.project,
        &context.attempt,
        &parts,
    ))
}

/// Writes the briefing into Regatta's directory of a workspace. An earlier attempt may have left
/// anything at that path, so symbolic links are never followed (S6).
pub(crate) fn write_briefing(workspace: &Path, text: &str) -> io::Result<()> {
    let is_dir = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
    };
    if !is_dir(workspace) {
        return Err(io::Error::other("there is no workspace"));
    }
    let regatta_dir = workspace.join(REGATTA_DIR);
    if !is_dir(&regatta_dir) {
        match fs::remove_file(&regatta_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&regatta_dir)?,
        }
    }
    artifacts::write_atomically(&workspace.join(BRIEFING_PATH), text.as_bytes())?;
    result_schema::write_schema(workspace)?;
    // Also make git ignore Regatta's directory in the agent's workspace.
    let info = workspace.join(".git").join("info");
    if is_dir(&workspace.join(".git")) && (is_dir(&info) || fs::create_dir(&info).is_ok()) {
        let exclude = info.join("exclude");
        let is_plain_file = exclude
            .symlink_metadata()
            .map_or(true, |metadata| metadata.is_file());
        let existing = if is_plain_file {
            fs::read_to_string(&exclude).unwrap_or_default()
        } else {
            String::new()
        };
        let line = format!("/{REGATTA_DIR}/");
        if is_plain_file && !existing.lines().any(|existing| existing == line) {
            artifacts::write_atomically(&exclude, format!("{existing}{line}\n").as_bytes())?;
        }
    }
    Ok(())
}

/// The largest number of files that a prompt lists under LEFT OUT: edits of earlier attempts
/// outside the task's file patterns.
const MAX_LEFT_OUT_FILES: usize = 20;

/// Returns the output of the check that the task's last ended attempt failed, or `None` if that
/// attempt ended for another reason.
fn last_failure(engine: &Engine, task: &Task) -> Option<String> {
    let attempts = engine.history().attempts_of(task.id).ok()?;
    let last = attempts
        .iter()
        .rev()
        .find(|attempt| attempt.end.is_some())?;
    if last.end.as_ref()?.cause != AttemptCause::Invalid {
        return None;
    }
    let evidence = artifacts::read_evidence(engine, last.id).ok()?;
    let failed = evidence.iter().find(|check| !check.passed)?;
    let first_error = check_output::first_error(&failed.output);
    let first_error = first_error.map_or(String::new(), |error| format!("First error: {error}\n"));
    let output = check_output::excerpt(failed.output.trim(), 8 * 1024);
    Some(format!(
        "{}\n{first_error}```\n{output}\n```",
        failed.outcome
    ))
}

/// The parts of a prompt that are not the task's own subject and description.
struct PromptParts<'a> {
    /// The state of the mission, if the attempt belongs to a lead (the agent that splits a mission
    /// into tasks).
    lead: Option<&'a str>,
    /// The sections of the briefing (the background for the agent), if the prompt contains the
    /// sections instead of naming the briefing's file.
    briefing: Option<&'a str>,
    /// The output of the check that the last attempt failed, or `None` if it failed no check.
    evidence: Option<&'a str>,
    /// The explanation of the conflict or failure to repair, if the attempt is a fix-up (an attempt
    /// that repairs finished work).
    fixup: Option<&'a str>,
    /// The list of Regatta's tools that the agent can call, or an empty text if there are no such
    /// tools.
    tools: &'a str,
    /// The rules for ending the attempt, such as how to report the result.
    ending: &'a str,
    /// The attempt's working directory, or `None` if the attempt works on another machine.
    workspace: Option<&'a Path>,
}

/// Returns a task's subject as prompts show it. The subject of a conversation's task is the first
/// message of an outside person, so a neutral phrase replaces it. One reason is that this message
/// does not describe later turns. The other reason is that a prompt may quote such text only
/// between delimiters that mark it as untrusted (S14).
pub(super) fn prompt_subject(task: &Task) -> &str {
    if task.is_conversation() {
        "what people ask for in an outside thread"
    } else {
        &task.subject
    }
}

/// Builds the whole prompt from the task and the other parts.
fn assemble_prompt(
    task: &Task,
    project: &Project,
    attempt: &Attempt,
    parts: &PromptParts<'_>,
) -> String {
    let description = if task.description.trim().is_empty() {
        String::new()
    } else {
        format!("{}\n\n", task.description.trim())
    };
    // A fix-up (an attempt that repairs finished work) is about a task that is already done, so its
    // prompt begins with the repair and not with the task.
    let mut text = match parts.fixup {
        None => format!("# {}: {}\n\n{description}", task.id, prompt_subject(task)),
        Some(fixup_section) => format!("# Fix-up of {}\n\n{fixup_section}", task.id),
    };
    if parts.briefing.is_none() {
        text += &format!(
            "First read {BRIEFING_PATH}: the project's goals, what happened to these files before, \
             and what earlier tasks \
             learned.\n\n"
        );
    }
    text += parts.lead.unwrap_or_default();
    let manifest = task.manifest();
    if !manifest.is_empty() {
        text += "## FILE MANIFEST\nChange only these files. Regatta leaves every other change out \
            of the work. ";
        text += if parts.tools.is_empty() {
            "If another file needs a change, name it under `scope_escapes` in your result.\n"
        } else {
            "If another file needs a change, call `report_scope_escape`.\n"
        };
        for file in &manifest {
            text += &format!("- {file}\n");
        }
        text += "\n";
    }
    let changed: Vec<&String> = attempt.gates.iter().flat_map(|gate| &gate.files).collect();
    if !changed.is_empty() {
        text += "## CHANGED BEFORE YOU\nThe previous wave changed these files of your manifest. \
                 Read them again: the task may describe an \
                 older state.\n";
        for file in changed.iter().take(MAX_FILES_NAMED) {
            text += &format!("- {file}\n");
        }
        if changed.len() > MAX_FILES_NAMED {
            text += &format!("- and {} more\n", changed.len() - MAX_FILES_NAMED);
        }
        text += "\n";
    }
    let contract = if task.purpose.has_contract() {
        describe_validation(task, project)
    } else {
        vec![]
    };
    if !contract.is_empty() {
        text += "## VALIDATION\nRegatta accepts your work if all of this holds. It runs these \
            checks when you are done.\n";
        for line in contract {
            text += &format!("- {line}\n");
        }
        text += "\n";
    }
    if task.is_polled() && parts.fixup.is_none() {
        text += &describe_earlier_attempts(task, attempt, parts.evidence);
    } else if let (true, Some(evidence)) = (task.is_polled(), parts.evidence) {
        text += &format!("## WHAT FAILED IN THE LAST FIX-UP\n{evidence}\n\n");
    }
    if !attempt.notes.is_empty() {
        text += match task.purpose {
            Purpose::Converse { .. } => "## SAID IN THE THREAD\n",
            Purpose::Lead | Purpose::Answer { .. } | Purpose::Triage { .. } => "## NEWS\n",
            Purpose::Work { .. }
            | Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Plan { .. }
            | Purpose::Session(_)
            | Purpose::MergeRemote { .. } => "## SAID BY PEOPLE\n",
        };
        for note in &attempt.notes {
            text += &format!("{}\n\n", note.trim());
        }
    }
    let pitfalls = pitfalls::for_files(&task.files);
    if !pitfalls.is_empty() {
        text += "## KNOWN PITFALLS\n";
        for line in pitfalls {
            text += &format!("- {line}\n");
        }
        text += "\n";
    }
    let warnings = rule_warnings(task, project);
    if !warnings.is_empty() {
        text += "## STANDING RULES\n";
        for line in warnings {
            text += &format!("- {line}\n");
        }
        text += "\n";
    }
    if parts.fixup.is_some() {
        text += &format!(
            "## THE ORIGINAL TASK\nThis is done. Read it to see what the work is for; do not do \
            it again.\n\n{}\n\n{description}",
            prompt_subject(task)
        );
    }
    text += parts.tools;
    text += &work_rules(task, attempt, parts);
    if let Some(briefing) = parts.briefing {
        text += briefing;
    }
    text
}

/// Describes the earlier attempts at the task: their unfinished work, the reason why the last one
/// failed, and their edits that were left out.
fn describe_earlier_attempts(task: &Task, attempt: &Attempt, evidence: Option<&str>) -> String {
    let mut text = String::new();
    match (&attempt.resumes, &task.reason) {
        (Some(resume), reason) => {
            text += "## UNFINISHED WORK\nThis task was begun before, and what was done so far is \
                in your working directory: \
                look at `git status` and `git diff` first, then go on from there.\n";
            if let Some(reason) = reason {
                text += &format!("Why it is not done: {reason}\n");
            }
            if resume.agent != attempt.agent {
                text += &format!("It was begun by {}.\n", resume.agent);
            }
            text += "\n";
        }
        (None, Some(reason)) => {
            text += &format!("## THE LAST ATTEMPT\nIt did not pass: {reason}\n\n")
        }
        (None, None) => {}
    }
    if let Some(evidence) = evidence {
        text += &format!("## WHAT FAILED\n{evidence}\n\n");
    }
    text + &describe_left_out_edits(task)
}

/// Lists the files that earlier attempts changed outside the task's file patterns, and explains
/// that those edits are not part of the work.
fn describe_left_out_edits(task: &Task) -> String {
    let escapes = task
        .escapes
        .iter()
        .filter(|escape| escape.source == EscapeSource::Diff);
    let mut files: Vec<&str> = escapes
        .flat_map(|escape| escape.suggested_files.iter().map(String::as_str))
        .collect();
    files.sort_unstable();
    files.dedup();
    if files.is_empty() {
        return String::new();
    }
    let list = files
        .iter()
        .take(MAX_LEFT_OUT_FILES)
        .map(|file| format!("- {file}\n"))
        .collect::<String>();
    let hidden = files.len().saturating_sub(MAX_LEFT_OUT_FILES);
    let more = if hidden > 0 {
        format!("- and {hidden} more\n")
    } else {
        String::new()
    };
    format!(
        "## LEFT OUT\nAn earlier attempt changed these files, which are outside your file \
         manifest. Those edits are no part \
         of the work: they were left out of it, the checks run without them, and they are kept \
         apart for a person.\n\
         {list}{more}If the work needs them, report it as a scope escape.\n\n"
    )
}

/// Returns one sentence for each standing rule of the project (such as "no `panic!`") that applies
/// to the task.
fn rule_warnings(task: &Task, project: &Project) -> Vec<String> {
    project_rules::rules_at_start(&project.settings.rule, task.issue_type, &task.files)
        .iter()
        .map(
            |rule_match| match (rule_match.rule.action, &rule_match.rule.pattern) {
                (RuleAction::Block, Some(pattern)) => {
                    format!(
                        "{} A line with {pattern:?} keeps the work from landing.",
                        rule_match.sentence()
                    )
                }
                (_, Some(pattern)) => {
                    format!("{} It looks for {pattern:?}.", rule_match.sentence())
                }
                _ => rule_match.sentence(),
            },
        )
        .collect()
}

/// Returns the part of the prompt about the working directory and how to end the attempt.
fn work_rules(task: &Task, attempt: &Attempt, parts: &PromptParts<'_>) -> String {
    let working_dir = parts
        .workspace
        .map_or(String::new(), |path| format!(", {},", path.display()));
    let own_copy = format!(
        "- Your working directory{working_dir} is your own copy of the repository. Work only there. You \
         may commit, but need not: \
         Regatta takes the files as they are on disk.\n"
    );
    let is_work = task.purpose.has_contract()
        && (task.expects() == Expects::Changes || !task.manifest().is_empty());
    let work = if attempt.no_workspace {
        "- You have no copy of the repository. Answer from what is said here.\n".to_owned()
    } else if is_work {
        own_copy
            + "- Do not merge, push or switch branches. Regatta lands your work.\n\
               - Look for existing functions and types before you write new ones, and use their \
               signatures as they are.\n"
    } else if task.is_conversation() {
        own_copy
            + "- Do not merge, push or switch branches. Regatta keeps your changes on a branch of \
                the conversation.\n"
    } else {
        format!(
            "- Your working directory{working_dir} is a copy of the repository to read. Change nothing \
            in it.\n"
        )
    };
    format!("## RULES\n{work}{}", parts.ending)
}

/// Describes the checks that the task's work must pass to be accepted, one line per check, in the
/// order of the checks.
fn describe_validation(task: &Task, project: &Project) -> Vec<String> {
    let validation = &task.validation;
    let exist = validation
        .files_exist
        .iter()
        .map(|file| format!("the file {file} exists"));
    let content = validation
        .content_check
        .iter()
        .map(|check| format!("{} contains {:?}", check.file, check.pattern));
    let commands = validation
        .lint
        .iter()
        .chain(&validation.tests)
        .chain(&project.validation)
        .map(|command| format!("`{command}` exits with 0"));
    exist.chain(content).chain(commands).collect()
}

/// Returns how hard the model should think: the task's setting, otherwise the agent's, otherwise
/// the default for this kind of work. A team member's session uses the agent's setting only.
pub(crate) fn effort(task: &Task, profile: &agent::Profile) -> Option<String> {
    if task.session_of().is_some() {
        return profile.effort.clone(); // a team's member does work of every kind, so no default fits
    }
    let usual = match (task.expects(), task.issue_type) {
        (Expects::Report, _) | (_, IssueType::Docs | IssueType::Chore) => "low",
        (_, IssueType::Feature | IssueType::Bug | IssueType::Task | IssueType::Ci) => "high",
    };
    task.effort
        .clone()
        .or_else(|| profile.effort.clone())
        .or_else(|| Some(usual.to_owned()))
}
