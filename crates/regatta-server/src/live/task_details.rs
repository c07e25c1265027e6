//! The parts of a task's page that are long and are loaded only when a person opens them: the
//! results of the checks, and what an attempt was told and answered.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::live_view::{AttemptChecksView, AttemptResultView, CheckRunView, SentCommentView};
use regatta_core::attempt::{Attempt, CheckEvidence};
use regatta_core::check_output;
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::task::Task;
use regatta_engine::ports::store::StoreError;

use super::markdown::markdown_html;
use super::sanitize;
use crate::authenticated::Authenticated;
use crate::{ProblemResponse, ServerState, verbs};

/// Maximum number of attempts whose checks the page shows, the newest first.
const MAX_CHECKED_ATTEMPTS: usize = 20;
/// Maximum length of a prompt or an answer that the page shows, in characters.
const MAX_TEXT_CHARS: usize = 100_000;

/// Handles `GET /api/v1/page/task/T9/checks`: returns the results of the checks of each attempt.
pub(super) async fn task_checks(
    State(shared): State<Arc<ServerState>>,
    Path(id): Path<String>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let id: TaskId = id.parse().map_err(|_| {
        bad_id(
            "the address does not contain a task's id",
            "see the tasks and their ids: regatta status",
        )
    })?;
    let engine = shared.engine.clone();
    let answer = verbs::run_blocking(move || {
        let (history, board) = (engine.history(), engine.board());
        let attempts = history.attempts_of(id).map_err(verbs::problem_from_store)?;
        let task = find_task(&engine, id).map_err(verbs::problem_from_store)?;
        let commands = task
            .as_ref()
            .and_then(|task| board.projects.get(&task.project))
            .map(|project| project.validation.clone())
            .unwrap_or_default();
        let planned = task
            .map(|task| planned_checks(&task, &commands))
            .unwrap_or_default();
        let newest = attempts.iter().rev().take(MAX_CHECKED_ATTEMPTS);
        newest
            .map(|attempt| {
                let evidence = engine.check_evidence(attempt.id).map_err(|error| {
                    Problem::new(
                        500,
                        "io",
                        error,
                        "check the daemon's data directory: regatta doctor",
                    )
                })?;
                Ok(attempt_checks(attempt, evidence, &planned))
            })
            .collect::<Result<Vec<AttemptChecksView>, Problem>>()
    });
    Ok(axum::Json(answer.await??).into_response())
}

fn find_task(engine: &regatta_engine::Engine, id: TaskId) -> Result<Option<Task>, StoreError> {
    match engine.board().tasks.get(&id) {
        Some(task) => Ok(Some((**task).clone())),
        None => engine.history().task(id),
    }
}

/// Returns the names of all checks that the work of a task must pass, in the order in which they
/// run.
pub(super) fn planned_checks(task: &Task, project_commands: &[String]) -> Vec<String> {
    let contract = &task.validation;
    let built_in = [
        ("files_exist", contract.files_exist.is_empty()),
        ("content_check", contract.content_check.is_empty()),
    ];
    let built_in = built_in
        .into_iter()
        .filter(|(_, is_empty)| !is_empty)
        .map(|(name, _)| name.to_owned());
    let commands = contract.lint.iter().chain(&contract.tests);
    built_in
        .chain(commands.chain(project_commands).cloned())
        .collect()
}

/// Returns the results of an attempt's checks, and after a failure the checks that did not run.
fn attempt_checks(
    attempt: &Attempt,
    evidence: Vec<CheckEvidence>,
    planned: &[String],
) -> AttemptChecksView {
    let skipped: Vec<String> = match evidence.last() {
        Some(last) if !last.passed => planned
            .iter()
            .filter(|name| evidence.iter().all(|check| check.check != **name))
            .cloned()
            .collect(),
        _ => Vec::new(),
    };
    let not_run = skipped.into_iter().map(|check| CheckRunView {
        check: sanitize::visible(&check),
        passed: None,
        text: "did not run, because an earlier check failed".into(),
        ms: 0,
        first_error: None,
        html: String::new(),
    });
    AttemptChecksView {
        attempt: attempt.id,
        agent: attempt.agent.clone(),
        started_wall: attempt.started_unix_ms,
        checks: evidence.into_iter().map(check_run).chain(not_run).collect(),
    }
}

fn check_run(check: CheckEvidence) -> CheckRunView {
    let named = format!("`{}` ", check.check);
    let text = check.outcome.strip_prefix(&named).unwrap_or(&check.outcome);
    let first_error = if check.passed {
        None
    } else {
        check_output::first_error(&check.output)
    };
    CheckRunView {
        text: sanitize::visible(text),
        first_error: first_error.map(|error| sanitize::visible(&error.to_string())),
        html: output_html(&check.output),
        check: sanitize::visible(&check.check),
        passed: Some(check.passed),
        ms: check.duration_ms,
    }
}

fn output_html(output: &str) -> String {
    if output.trim().is_empty() {
        return String::new();
    }
    let text = sanitize::terminal_html(output);
    format!("<pre tabindex=\"0\">{text}</pre>")
}

/// Handles `GET /api/v1/page/attempt/A5/result`: returns what an attempt was told and answered.
pub(super) async fn attempt_result(
    State(shared): State<Arc<ServerState>>,
    Path(id): Path<String>,
    authenticated: Authenticated,
) -> Result<Response, ProblemResponse> {
    verbs::require_read_pages(&authenticated.principal)?;
    let id: AttemptId = id.parse().map_err(|_| {
        bad_id(
            "the address does not contain an attempt's id",
            "see a task's attempts: regatta show T1",
        )
    })?;
    let engine = shared.engine.clone();
    let answer = verbs::run_blocking(move || {
        let attempt = engine
            .history()
            .attempt(id)
            .map_err(verbs::problem_from_store)?
            .ok_or_else(|| {
                Problem::new(
                    404,
                    "no_such_attempt",
                    format!("there is no attempt {id}"),
                    "see the attempts: regatta status",
                )
            })?;
        let prompt = engine
            .agents()
            .prompt(id)
            .map_err(|error| Problem::new(500, "io", error.message, error.hint))?;
        Ok::<_, Problem>(result_view(&attempt, prompt.as_deref()))
    });
    Ok(axum::Json(answer.await??).into_response())
}

fn bad_id(message: &str, hint: &str) -> Problem {
    Problem::new(400, "bad_id", message, hint)
}

fn result_view(attempt: &Attempt, prompt: Option<&str>) -> AttemptResultView {
    let result = attempt.result.as_ref();
    let texts = [
        result.map(|result| result.detail.as_str()),
        attempt.output.as_deref(),
    ];
    let mut answers: Vec<&str> = Vec::new();
    for text in texts.into_iter().flatten().map(str::trim) {
        if !text.is_empty() && !answers.contains(&text) {
            answers.push(text);
        }
    }
    AttemptResultView {
        attempt: attempt.id,
        prompt_html: prompt.map(long_text_html),
        notes_html: attempt
            .notes
            .iter()
            .map(|text| long_text_html(text))
            .collect(),
        follow_ups_html: attempt
            .session
            .follow_ups
            .iter()
            .map(|text| long_text_html(text))
            .collect(),
        answer_html: answers.into_iter().map(long_text_html).collect(),
        status: result.map(|result| result.status),
        artifacts: visible_all(result.map_or(&[], |result| &result.artifacts)),
        learnings: visible_all(result.map_or(&[], |result| &result.learnings)),
        copy_path: result.and_then(|result| result.copy_path.clone()),
    }
}

fn visible_all(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| sanitize::visible(text)).collect()
}

/// Renders a text as Markdown, and cuts it if it is too long.
fn long_text_html(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        None => markdown_html(text),
        Some((at, _)) => {
            let left = text[at..].chars().count();
            format!(
                "{}<p class=\"ctl\">… {left} more characters</p>",
                markdown_html(&text[..at])
            )
        }
    }
}

/// Returns the comments on lines that people sent to the attempts of a task, with the answers of
/// the attempts. Comments on other files than `paths` are left out.
pub(super) fn sent_comments(
    pending_notes: &[String],
    attempts: &[Attempt],
    paths: &[&str],
) -> Vec<SentCommentView> {
    let mut comments = Vec::new();
    for attempt in attempts {
        let answer = attempt
            .result
            .as_ref()
            .map(|result| result.detail.trim())
            .filter(|detail| !detail.is_empty())
            .or(attempt.output.as_deref());
        for message in attempt.notes.iter().chain(&attempt.session.follow_ups) {
            for mut comment in parse_comments(message, paths) {
                comment.attempt = Some(attempt.id);
                comment.answer = answer.map(str::to_owned);
                comments.push(comment);
            }
        }
    }
    let pending = pending_notes
        .iter()
        .flat_map(|message| parse_comments(message, paths));
    comments.extend(pending);
    comments
}

/// Finds the comments in a message that Revise sent: `src/a.rs:12: text` or `src/a.rs:12-14: text`,
/// each with the lines that follow it, up to an empty line.
fn parse_comments(message: &str, paths: &[&str]) -> Vec<SentCommentView> {
    let mut comments: Vec<SentCommentView> = Vec::new();
    let mut is_open = false;
    for line in message.lines() {
        if let Some(comment) = parse_comment(line, paths) {
            comments.push(comment);
            is_open = true;
        } else if line.is_empty() {
            is_open = false;
        } else if let Some(last) = comments.last_mut().filter(|_| is_open) {
            last.text.push('\n');
            last.text.push_str(line);
        }
    }
    comments
}

fn parse_comment(line: &str, paths: &[&str]) -> Option<SentCommentView> {
    let path = paths.iter().find(|path| {
        line.strip_prefix(**path)
            .is_some_and(|rest| rest.starts_with(':'))
    })?;
    let (place, text) = line[path.len() + 1..].split_once(": ")?;
    let (numbers, is_old) = match place.strip_suffix(" (before)") {
        Some(numbers) => (numbers, true),
        None => (place, false),
    };
    let (from, line) = numbers.split_once('-').unwrap_or((numbers, numbers));
    Some(SentCommentView {
        path: (*path).to_owned(),
        from: from.parse().ok()?,
        line: line.parse().ok()?,
        old: is_old,
        text: text.to_owned(),
        attempt: None,
        answer: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found_in_a_message_with_their_places() {
        let message = "Please be brief.\nsrc/a.rs:12: why?\nsecond line\nsrc/a.rs:3-7: shorter\n\
            src/b.rs:9 (before): keep this\nother.rs:1: not in the change\n\nYour previous work is \
            commit c1.";
        let found = parse_comments(message, &["src/a.rs", "src/b.rs"]);
        let shape: Vec<(&str, usize, usize, bool, &str)> = found
            .iter()
            .map(|comment| {
                let SentCommentView {
                    path,
                    from,
                    line,
                    old,
                    text,
                    ..
                } = comment;
                (path.as_str(), *from, *line, *old, text.as_str())
            })
            .collect();
        assert_eq!(
            shape,
            [
                ("src/a.rs", 12, 12, false, "why?\nsecond line"),
                ("src/a.rs", 3, 7, false, "shorter"),
                (
                    "src/b.rs",
                    9,
                    9,
                    true,
                    "keep this\nother.rs:1: not in the change"
                ),
            ]
        );
    }

    fn evidence(check: &str, passed: bool, output: &str) -> CheckEvidence {
        CheckEvidence {
            check: check.into(),
            passed,
            outcome: format!("`{check}` exited with {}", i32::from(!passed)),
            output: output.into(),
            missing_command: None,
            duration_ms: 1_200,
        }
    }

    /// S12: the output of a check is shown as text.
    #[test]
    fn s12_a_failed_check_shows_its_first_error_and_its_output_as_text() {
        let output = "\u{1b}[31merror\u{1b}[0m: <b> is \u{202e}bad\n --> src/a.rs:3:1\n";
        let failed = check_run(evidence("cargo test", false, output));
        assert_eq!(failed.text, "exited with 1");
        assert!(failed.html.contains("&lt;b&gt;") && failed.html.contains("<span class=\"f1\">"));
        assert!(!failed.html.contains('\u{202e}'));
        let first_error = failed.first_error.unwrap_or_default();
        assert!(
            first_error.contains("<b> is ⟨202E⟩bad (src/a.rs:3:1)"),
            "{first_error}"
        );
        assert_eq!(
            check_run(evidence("true", true, "error: no")).first_error,
            None
        );
    }
}
