//! Decides how a task continues after its finished work was checked: the work enters the landing
//! queue, counts as a report, goes to a person, or goes back for another attempt. The engine saves
//! and checks the work before this decision.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{AttemptId, CommitId, LandingId, Now};
use crate::landing::guard::SpecialFile;
use crate::landing::review;
use crate::manifest_discovery;
use crate::project::NotNeededPolicy;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope_escape::{self, EscapeSource, ScopeFinding};
use crate::task::{self, Expects, NextAttempt, Submission, Task};
use crate::{approval, conversation, lead, thread_answers};

use super::checked_work::{effective_result, not_needed_reason};
use super::work_kind::{AnswerKind, WorkKind};
use super::{
    Attempt, AttemptCause, AttemptPhase, AttemptReported, FinishReport, end, first_few,
    requeue_after_failure, require_attempt, resume_point,
};

/// The status that a worker reports for its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    #[default]
    Done,
    /// The worker cannot continue until a person helps.
    Blocked,
    Failed,
    /// The worker found that the task is already done and needs no change.
    NotNeeded,
}

/// The short result that a worker reports at the end. The whole conversation is in the transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WorkResult {
    #[serde(rename = "type")]
    pub kind: String,
    pub issue_id: String,
    pub status: ResultStatus,
    pub detail: String,
    pub artifacts: Vec<String>,
    /// The directory in which the worker worked, according to its report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree_path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnings: Vec<String>,
    /// The path, on the daemon's machine, of a copy of this result that people can open.
    #[serde(rename = "kept_at")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_path: Option<String>,
}

/// Everything that was found while an attempt's work was checked, besides the verdict itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WorkFindings {
    pub result: Option<WorkResult>,
    /// Files that the attempt changed outside its manifest (the file patterns that its task may
    /// change).
    #[serde(rename = "outside")]
    pub outside_manifest: Vec<String>,
    /// Problems that the worker reported instead of fixing them, because they are in files that its
    /// task may not change.
    #[serde(rename = "said")]
    pub reported: Vec<ScopeFinding>,
    /// Warnings for the person who looks at the task.
    pub warnings: Vec<String>,
    /// One line with the results of the checks, if the work is a turn of a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<String>,
    /// Changed paths of the work that are not plain files, such as links or submodules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// The outcome of saving and checking an attempt's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkVerdict {
    /// The work passed all checks. `commit` is the saved work without changes to files that the
    /// task may not change; `base` is the commit from which the work started.
    Passed {
        commit: CommitId,
        base: CommitId,
        changed: Vec<String>,
    },
    /// The attempt had no workspace, so no work was saved and only its report counts.
    #[serde(rename = "bare")]
    NoWorkspace,
    /// The work failed a check.
    Failed { reason: String },
    /// The work passed its checks, but the task's ratchet (a command with the final say) refused
    /// it. The task fails and is not tried again.
    Rejected { reason: String },
    /// A person must decide how the task continues; `kind` is the kind of decision, and `reason`
    /// says why the decision is needed.
    NeedsPerson { kind: WaitKind, reason: String },
    /// Regatta could not check the work. The reason has nothing to do with the work itself.
    Unknown { reason: String },
}

/// Work that passed its checks, with the findings from which [`judge_passed_work`] decides how its
/// task continues.
struct PassedWork {
    submission: Submission,
    /// Changed files that are not part of the work, because they are outside the task's manifest
    /// (the file patterns that it may change).
    held_back: Vec<String>,
    /// One line with the results of the checks of this work. Present only if the work is a turn of
    /// a conversation.
    checks: Option<String>,
}

/// The way in which a task continues after the verdict on its attempt's work.
enum Continuation {
    /// The attempt has ended, and everything that follows from the verdict is recorded. Contains
    /// the landing, if the work entered the landing queue.
    Settled(Option<LandingId>),
    /// The work does not count, so the task goes back for another attempt. Contains the cause, and
    /// the reason for people.
    TryAgain(AttemptCause, String),
}

/// Applies the verdict on an attempt's work. Work that passed enters the landing queue and keeps
/// its claims on files. Other work goes back for another attempt or to a person. Returns the
/// landing, if there is one.
pub fn apply_verdict(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    verdict: WorkVerdict,
    findings: WorkFindings,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    if attempt.phase != AttemptPhase::Validating {
        return Err(Refusal::StaleAttempt {
            task: attempt.task,
            attempt: id,
            live: None,
        });
    }
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped while the work was checked");
        return Ok(None);
    }
    let held_back = findings.outside_manifest.clone();
    let checks = findings.checks.clone();
    let special = findings.special.clone();
    record_findings(draft, &attempt, findings, now);
    let task = task::find(draft.board(), attempt.task)?;
    let next = match verdict {
        WorkVerdict::Passed {
            commit,
            base,
            changed,
        } => {
            let submission = Submission {
                attempt: id,
                commit,
                base,
                changed,
                reverts: false,
                undoes: None,
                special,
            };
            let work = PassedWork {
                submission,
                held_back,
                checks,
            };
            judge_passed_work(draft, &task, &attempt, work, now)?
        }
        WorkVerdict::NoWorkspace => match task.expects() {
            Expects::Report => judge_report(draft, &task, id)?,
            Expects::Changes => nothing_changed(),
        },
        WorkVerdict::Failed { reason } => Continuation::TryAgain(AttemptCause::Invalid, reason),
        WorkVerdict::Rejected { reason } => {
            end(draft, id, AttemptCause::Rejected, &reason);
            task::fail(draft, task.id, &reason)?;
            Continuation::Settled(None)
        }
        WorkVerdict::NeedsPerson { kind, reason } => {
            let cause = if held_back.is_empty() {
                AttemptCause::Blocked
            } else {
                AttemptCause::ScopeEscape
            };
            task::needs_human(draft, task.id, kind, &reason)?;
            end(draft, id, cause, &reason);
            Continuation::Settled(None)
        }
        WorkVerdict::Unknown { reason } => {
            Continuation::TryAgain(AttemptCause::Environment, reason)
        }
    };
    match next {
        Continuation::Settled(landing) => Ok(landing),
        Continuation::TryAgain(cause, reason) => {
            try_again(draft, &attempt, cause, &reason)?;
            Ok(None)
        }
    }
}

/// Decides how a task continues after its work passed its checks. The purpose of the task decides
/// what counts as its result.
fn judge_passed_work(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    work: PassedWork,
    now: Now,
) -> Result<Continuation, Refusal> {
    let result = recorded_result(draft, attempt.id);
    let result = result.as_ref();
    match WorkKind::from_purpose(&task.purpose) {
        WorkKind::Changes if !work.submission.changed.is_empty() => {
            submit_changes(draft, task, attempt, work.submission, now)
        }
        WorkKind::Changes => match task.expects() {
            Expects::Report => judge_report(draft, task, attempt.id),
            Expects::Changes => judge_unchanged(draft, task, attempt.id, &work.held_back),
        },
        WorkKind::Report => judge_report(draft, task, attempt.id),
        // Changes that the attempt made are saved but never land.
        WorkKind::Answer(answer) => {
            let outcome = finish_answer(draft, task, answer, (attempt, result), now)?;
            judge_answer(draft, task, attempt.id, outcome)
        }
        WorkKind::LeadTurn => {
            let detail = result.map(|result| result.detail.clone());
            let answer = detail
                .filter(|detail| !detail.trim().is_empty())
                .or_else(|| task.output.clone())
                .unwrap_or_default();
            let adopted = lead::adopt_edits(draft, task, attempt, work.submission, now)?;
            lead::on_turn_finished(draft, task, attempt, (&answer, adopted))?;
            Ok(Continuation::Settled(None))
        }
        WorkKind::ConversationTurn => {
            let last_message = attempt
                .session
                .last_turn_end
                .as_ref()
                .map(|turn_end| turn_end.detail.clone());
            let answer = result
                .map(|result| result.detail.clone())
                .into_iter()
                .chain(task.output.clone())
                .chain(last_message)
                .find(|text| !text.trim().is_empty());
            let result = conversation::TurnResult {
                answer: answer.unwrap_or_default(),
                work: Some(work.submission),
                checks: work.checks,
            };
            conversation::on_turn_finished(draft, task, attempt, result, now)
                .map(Continuation::Settled)
        }
    }
}

/// Hands the result of an attempt to the code that asked for it. The inner error says why the answer
/// cannot be used.
fn finish_answer(
    draft: &mut Draft,
    task: &Task,
    answer: AnswerKind<'_>,
    (attempt, result): (&Attempt, Option<&WorkResult>),
    now: Now,
) -> Result<Result<(), String>, Refusal> {
    match answer {
        AnswerKind::Manifest { explored } => {
            Ok(manifest_discovery::finish(draft, task, explored, result))
        }
        AnswerKind::Review { reviewed, commit } => {
            let by = (&attempt.agent, result);
            review::finish(draft, task, (reviewed, commit), by, now)
        }
        AnswerKind::Thread { channel, root } => {
            thread_answers::finish_answer(draft, task, (channel, root), (attempt, result), now)
        }
        AnswerKind::Triage { channel, message } => {
            thread_answers::finish_triage(draft, task, (channel, message), (attempt, result), now)
        }
    }
}

/// Submits changed files to the landing queue, unless a file is outside the task's manifest.
fn submit_changes(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    submission: Submission,
    now: Now,
) -> Result<Continuation, Refusal> {
    let run = draft
        .board()
        .projects
        .get(&task.project)
        .map(|project| project.settings.run.clone())
        .unwrap_or_default();
    let (_, outside) = scope_escape::split_by_manifest(task, &run, &submission.changed);
    if !outside.is_empty() {
        let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
        let reason = format!(
            "the attempt changed files outside its manifest: {}",
            first_few(&outside)
        );
        return Ok(Continuation::TryAgain(AttemptCause::ScopeEscape, reason));
    }
    let landing = crate::landing::submit(draft, task, attempt, submission, now)?;
    end(draft, attempt.id, AttemptCause::Submitted, "");
    Ok(Continuation::Settled(landing))
}

/// Completes a task whose result is an answer, such as a review. If `outcome` is an error, the
/// answer cannot be used and the task is tried again.
fn judge_answer(
    draft: &mut Draft,
    task: &Task,
    id: AttemptId,
    outcome: Result<(), String>,
) -> Result<Continuation, Refusal> {
    match outcome {
        Ok(()) => {
            end(draft, id, AttemptCause::Reported, "");
            task::complete(draft, task.id, None)?;
            Ok(Continuation::Settled(None))
        }
        Err(reason) => Ok(Continuation::TryAgain(AttemptCause::Invalid, reason)),
    }
}

/// Completes a task whose result is a report. If the agent left no report, the task is tried again.
fn judge_report(draft: &mut Draft, task: &Task, id: AttemptId) -> Result<Continuation, Refusal> {
    let has_content =
        |result: &WorkResult| !result.detail.trim().is_empty() || !result.artifacts.is_empty();
    let has_output = task
        .output
        .as_ref()
        .is_some_and(|output| !output.trim().is_empty());
    if has_output || recorded_result(draft, id).as_ref().is_some_and(has_content) {
        approval::warn_unanswered(draft, task.id);
        end(draft, id, AttemptCause::Reported, "");
        task::complete(draft, task.id, None)?;
        return Ok(Continuation::Settled(None));
    }
    Ok(Continuation::TryAgain(
        AttemptCause::NothingChanged,
        "the agent said it was done, but left no report".into(),
    ))
}

/// Decides how a task continues whose work should have changed files but changed none.
fn judge_unchanged(
    draft: &mut Draft,
    task: &Task,
    id: AttemptId,
    held_back: &[String],
) -> Result<Continuation, Refusal> {
    if !held_back.is_empty() {
        let outside: Vec<&str> = held_back.iter().map(String::as_str).collect();
        let names = first_few(&outside);
        return Ok(Continuation::TryAgain(
            AttemptCause::NothingChanged,
            format!("the attempt changed only files outside its manifest: {names}"),
        ));
    }
    let result = recorded_result(draft, id);
    let Some(why) = result.as_ref().and_then(not_needed_reason) else {
        return Ok(nothing_changed());
    };
    let policy = draft
        .board()
        .projects
        .get(&task.project)
        .map(|project| project.settings.run.not_needed);
    match policy.unwrap_or_default() {
        NotNeededPolicy::Done => {
            approval::warn_unanswered(draft, task.id);
            end(
                draft,
                id,
                AttemptCause::Reported,
                "nothing had to be changed",
            );
            task::complete(draft, task.id, None)?;
        }
        NotNeededPolicy::Ask => {
            let reason = format!(
                "the agent says that nothing has to be changed: {why}. If you agree: \
                 regatta task cancel {0}; if not: regatta retry {0}",
                task.id
            );
            task::needs_human(draft, task.id, WaitKind::Review, &reason)?;
            end(draft, id, AttemptCause::Reported, &reason);
        }
    }
    Ok(Continuation::Settled(None))
}

fn nothing_changed() -> Continuation {
    Continuation::TryAgain(
        AttemptCause::NothingChanged,
        "the agent said it was done, but nothing had changed".into(),
    )
}

/// Ends an attempt whose work does not count, and gives its task back for another attempt.
fn try_again(
    draft: &mut Draft,
    attempt: &Attempt,
    cause: AttemptCause,
    reason: &str,
) -> Result<(), Refusal> {
    if cause == AttemptCause::Environment {
        requeue_after_failure(draft, attempt.task, cause, reason)?;
    } else {
        // If the work failed its checks, the next attempt continues in the same workspace and, if
        // the program has a session, in the same session.
        let resume = (cause == AttemptCause::Invalid).then(|| resume_point(attempt, true));
        let again = NextAttempt {
            counts_as_failure: true,
            resume,
            ..NextAttempt::default()
        };
        task::retry_after(draft, attempt.task, cause, reason, again)?;
    }
    end(draft, attempt.id, cause, reason);
    Ok(())
}

/// Returns the result that an attempt has reported, including a result that was recorded in this
/// draft.
fn recorded_result(draft: &Draft, id: AttemptId) -> Option<WorkResult> {
    let attempt = draft.board().attempts.get(&id)?;
    attempt.result.clone()
}

/// Maximum number of learnings (facts for later tasks) in one result.
const MAX_LEARNINGS: usize = 20;
/// Maximum size of one learning (a fact for later tasks), in bytes.
const MAX_LEARNING_BYTES: usize = 4_000;

/// Refuses a report with too many or too long learnings.
pub(super) fn check_learnings(learnings: &[String]) -> Result<(), Refusal> {
    if learnings.len() > MAX_LEARNINGS
        || learnings.iter().any(|text| text.len() > MAX_LEARNING_BYTES)
    {
        return Err(Refusal::invalid(
            format!(
                "a result may have at most {MAX_LEARNINGS} learnings of {MAX_LEARNING_BYTES} bytes \
                each"
            ),
            "keep only the learnings that help the next task most",
        ));
    }
    Ok(())
}

/// Stores the agent's `finish` report as the attempt's result.
pub(super) fn record_result(draft: &mut Draft, id: AttemptId, report: &FinishReport) {
    let status = if report.not_needed {
        ResultStatus::NotNeeded
    } else {
        ResultStatus::Done
    };
    let result = WorkResult {
        kind: "completion".into(),
        status,
        detail: report.output.clone().unwrap_or_default(),
        learnings: report.learnings.clone(),
        ..WorkResult::default()
    };
    draft.record(Event::AttemptReported(AttemptReported {
        attempt: id,
        result,
    }));
}

/// Records what the check of an attempt's work found: the worker's result, changes to files that
/// the task may not change, and warnings.
fn record_findings(draft: &mut Draft, attempt: &Attempt, findings: WorkFindings, now: Now) {
    let WorkFindings {
        result,
        outside_manifest: outside,
        reported,
        warnings,
        checks: _,
        special: _,
    } = findings;
    if let Some(last) = result {
        let recorded = recorded_result(draft, attempt.id);
        let result = effective_result(recorded.as_ref(), last);
        draft.record(Event::AttemptReported(AttemptReported {
            attempt: attempt.id,
            result,
        }));
    }
    if !outside.is_empty() {
        let names: Vec<&str> = outside.iter().map(String::as_str).collect();
        let finding = format!(
            "the attempt changed files outside its manifest: {}",
            first_few(&names)
        );
        scope_escape::record_escape(
            draft,
            attempt,
            EscapeSource::Diff,
            ScopeFinding {
                finding,
                suggested_files: outside,
            },
            now,
        );
    }
    for finding in reported {
        scope_escape::record_escape(draft, attempt, EscapeSource::Reported, finding, now);
    }
    for text in warnings {
        task::warn(draft, attempt.task, text);
    }
}
