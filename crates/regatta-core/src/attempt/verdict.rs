//! The verdict on an attempt's work. The engine captures and checks the work, and this module
//! decides how the task goes on: the work lands, is reported, goes to a person, or goes back for
//! another attempt.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::ids::{AttemptId, CommitId, LandingId, Now};
use crate::landing::guard::{self, SpecialFile};
use crate::landing::review;
use crate::manifest_discovery;
use crate::project::NotNeededPolicy;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope_escape::{self, EscapeSource, ScopeFinding};
use crate::task::{self, Expects, NextAttempt, Submission, TaskDuty};
use crate::{approval, conversation, lead, thread_answers};

use super::{
    Attempt, AttemptCause, AttemptPhase, AttemptReported, FinishReport, end, first_few,
    requeue_after_failure, require_attempt, resume_point,
};

/// The status that a worker reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    #[default]
    Done,
    /// A person must help before the work can go on.
    Blocked,
    Failed,
    /// Nothing has to be changed, because the task is already done.
    NotNeeded,
}

/// The short result that a worker leaves. Long texts are in its transcript.
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
    /// The directory in which the worker says it worked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree_path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnings: Vec<String>,
    /// The path of the copy for people, on the daemon's machine.
    #[serde(rename = "kept_at")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_path: Option<String>,
}

/// Observations made while an attempt's work was checked, independent of the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WorkFindings {
    pub result: Option<WorkResult>,
    /// Changed files outside the manifest.
    #[serde(rename = "outside")]
    pub outside_manifest: Vec<String>,
    /// Findings outside the manifest that the worker reported.
    #[serde(rename = "said")]
    pub reported: Vec<ScopeFinding>,
    /// Warnings for a person.
    pub warnings: Vec<String>,
    /// One line about the checks of a conversation's turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<String>,
    /// Changed paths of the submitted work that are not plain files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// The outcome of capturing and checking an attempt's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkVerdict {
    /// The contract holds on this captured commit. Changes outside the manifest were left out of
    /// it.
    Passed {
        commit: CommitId,
        base: CommitId,
        changed: Vec<String>,
    },
    /// The attempt had no workspace, so nothing was captured and only its report counts.
    #[serde(rename = "bare")]
    NoWorkspace,
    /// The contract does not hold.
    Failed { reason: String },
    /// The contract holds, but the ratchet refused the work. The task fails for good.
    Rejected { reason: String },
    /// Only a person can decide how the task goes on.
    NeedsPerson { kind: WaitKind, reason: String },
    /// Regatta could not check the work.
    Unknown { reason: String },
}

/// Applies the verdict. Work that passed goes to the landing queue with its claims; other work goes
/// back for another attempt or to a person.
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
    let (cause, reason) = match verdict {
        // Changes of an exploring attempt stay in its capture, because the attempt only had to
        // look.
        WorkVerdict::Passed { .. } if task.explores.is_some() => {
            let result = recorded_result(draft, id);
            match manifest_discovery::finish(draft, &task, result.as_ref()) {
                Ok(()) => {
                    end(draft, id, AttemptCause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (AttemptCause::Invalid, reason),
            }
        }
        WorkVerdict::Passed {
            commit,
            base,
            changed,
        } if task.duty == Some(TaskDuty::Lead) => {
            let detail = recorded_result(draft, id).map(|result| result.detail);
            let answer = detail
                .filter(|detail| !detail.trim().is_empty())
                .or_else(|| task.output.clone())
                .unwrap_or_default();
            let work = Submission {
                attempt: id,
                commit,
                base,
                changed,
                reverts: false,
                undoes: None,
                merges_remote: None,
                special,
            };
            let adopted = lead::adopt_edits(draft, &task, &attempt, work, now)?;
            lead::on_turn_finished(draft, &task, &attempt, (&answer, adopted))?;
            return Ok(None);
        }
        WorkVerdict::Passed {
            commit,
            base,
            changed,
        } if task.is_conversation() => {
            let detail = recorded_result(draft, id).map(|result| result.detail);
            let last_message = attempt
                .session
                .last_turn_end
                .as_ref()
                .map(|turn_end| turn_end.detail.clone());
            let answer = detail
                .into_iter()
                .chain(task.output.clone())
                .chain(last_message)
                .find(|text| !text.trim().is_empty());
            let work = Submission {
                attempt: id,
                commit,
                base,
                changed,
                reverts: false,
                undoes: None,
                merges_remote: None,
                special,
            };
            let result = conversation::TurnResult {
                answer: answer.unwrap_or_default(),
                work: Some(work),
                checks,
            };
            return conversation::on_turn_finished(draft, &task, &attempt, result, now);
        }
        WorkVerdict::Passed { .. } if !task.is_polled() => {
            let result = recorded_result(draft, id);
            match thread_answers::finish(draft, &task, (&attempt, result.as_ref()), now)? {
                Ok(()) => {
                    end(draft, id, AttemptCause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (AttemptCause::Invalid, reason),
            }
        }
        WorkVerdict::Passed { .. } if task.reviews.is_some() => {
            let result = recorded_result(draft, id);
            match review::finish(draft, &task, (&attempt.agent, result.as_ref()), now)? {
                Ok(()) => {
                    end(draft, id, AttemptCause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (AttemptCause::Invalid, reason),
            }
        }
        WorkVerdict::Passed {
            commit,
            base,
            changed,
        } if !changed.is_empty() => {
            let run = draft
                .board()
                .projects
                .get(&task.project)
                .map(|project| project.settings.run.clone())
                .unwrap_or_default();
            let (_, outside) = scope_escape::split_by_manifest(&task, &run, &changed);
            if let Some(reason) = guard::never_lands_reason(&changed, &special) {
                (AttemptCause::Invalid, reason)
            } else if outside.is_empty() {
                let submission = Submission {
                    attempt: id,
                    commit,
                    base,
                    changed,
                    reverts: false,
                    undoes: None,
                    merges_remote: None,
                    special,
                };
                let landing = crate::landing::submit(draft, &task, &attempt, submission, now)?;
                end(draft, id, AttemptCause::Submitted, "");
                return Ok(landing);
            } else {
                let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
                (
                    AttemptCause::ScopeEscape,
                    format!(
                        "the attempt changed files outside its manifest: {}",
                        first_few(&outside)
                    ),
                )
            }
        }
        WorkVerdict::Passed { .. } | WorkVerdict::NoWorkspace
            if task.expects == Expects::Report =>
        {
            let has_content = |result: &WorkResult| {
                !result.detail.trim().is_empty() || !result.artifacts.is_empty()
            };
            let result = recorded_result(draft, id);
            let has_output = task
                .output
                .as_ref()
                .is_some_and(|output| !output.trim().is_empty());
            if has_output || result.as_ref().is_some_and(has_content) {
                approval::warn_unanswered(draft, task.id);
                end(draft, id, AttemptCause::Reported, "");
                task::complete(draft, task.id, None)?;
                return Ok(None);
            }
            (
                AttemptCause::NothingChanged,
                "the agent said it was done, but left no report".into(),
            )
        }
        WorkVerdict::Passed { .. } if !held_back.is_empty() => {
            let outside: Vec<&str> = held_back.iter().map(String::as_str).collect();
            let names = first_few(&outside);
            (
                AttemptCause::NothingChanged,
                format!("the attempt changed only files outside its manifest: {names}"),
            )
        }
        WorkVerdict::Passed { .. } if not_needed_reason(draft, id).is_some() => {
            let why = not_needed_reason(draft, id).unwrap_or_default();
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
            return Ok(None);
        }
        WorkVerdict::Passed { .. } | WorkVerdict::NoWorkspace => (
            AttemptCause::NothingChanged,
            "the agent said it was done, but nothing had changed".into(),
        ),
        WorkVerdict::Failed { reason } => (AttemptCause::Invalid, reason),
        WorkVerdict::Rejected { reason } => {
            end(draft, id, AttemptCause::Rejected, &reason);
            task::fail(draft, task.id, &reason)?;
            return Ok(None);
        }
        WorkVerdict::NeedsPerson { kind, reason } => {
            let cause = if held_back.is_empty() {
                AttemptCause::Blocked
            } else {
                AttemptCause::ScopeEscape
            };
            task::needs_human(draft, task.id, kind, &reason)?;
            end(draft, id, cause, &reason);
            return Ok(None);
        }
        WorkVerdict::Unknown { reason } => (AttemptCause::Environment, reason),
    };
    // Work that fails its checks goes back to the worker unchanged, with its session if it has one.
    let resume = (cause == AttemptCause::Invalid).then(|| resume_point(&attempt, true));
    if cause == AttemptCause::Environment {
        requeue_after_failure(draft, task.id, cause, &reason)?;
    } else {
        let again = NextAttempt {
            counts_as_failure: true,
            resume,
            ..NextAttempt::default()
        };
        task::retry_after(draft, task.id, cause, &reason, again)?;
    }
    end(draft, id, cause, &reason);
    Ok(None)
}

/// Returns the result that an attempt left, as it is recorded now.
fn recorded_result(draft: &Draft, id: AttemptId) -> Option<WorkResult> {
    let attempt = draft.board().attempts.get(&id)?;
    attempt.result.clone()
}

/// The largest number of learnings in one result.
const MAX_LEARNINGS: usize = 20;
/// The largest size of a learning, in bytes.
const MAX_LEARNING_BYTES: usize = 4_000;

/// Refuses learnings that are too many or too long.
pub(super) fn check_learnings(learnings: &[String]) -> Result<(), Refusal> {
    if learnings.len() > MAX_LEARNINGS
        || learnings.iter().any(|text| text.len() > MAX_LEARNING_BYTES)
    {
        return Err(Refusal::invalid(
            format!(
                "a result is limited to {MAX_LEARNINGS} learnings of {MAX_LEARNING_BYTES} bytes \
                each"
            ),
            "keep only the learnings that help the next task most",
        ));
    }
    Ok(())
}

/// Stores a report of the `finish` tool as the attempt's result.
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

/// Returns the reason that an attempt gave for changing nothing, if it reported so.
fn not_needed_reason(draft: &Draft, id: AttemptId) -> Option<String> {
    let result = draft.board().attempts.get(&id)?.result.as_ref()?;
    let reason = if result.detail.trim().is_empty() {
        "no reason was given"
    } else {
        result.detail.trim()
    };
    (result.status == ResultStatus::NotNeeded).then(|| reason.to_owned())
}

/// Keeps the agent's report that nothing has to be changed, if its program then left a result that
/// says only "done". Every other status of the result is more specific and wins.
fn keep_not_needed_status(draft: &Draft, id: AttemptId, result: WorkResult) -> WorkResult {
    match not_needed_reason(draft, id) {
        Some(reason) if result.status == ResultStatus::Done => WorkResult {
            status: ResultStatus::NotNeeded,
            detail: reason,
            ..result
        },
        _ => result,
    }
}

/// Records the findings: the result, the scope escapes and the warnings.
fn record_findings(draft: &mut Draft, attempt: &Attempt, findings: WorkFindings, now: Now) {
    let WorkFindings {
        result,
        outside_manifest: outside,
        reported,
        warnings,
        checks: _,
        special: _,
    } = findings;
    if let Some(result) = result {
        let result = keep_not_needed_status(draft, attempt.id, result);
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
