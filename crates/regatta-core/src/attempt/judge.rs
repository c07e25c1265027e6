//! What becomes of an attempt's work: captured and checked by the shell, judged here.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::Event;
use crate::explore;
use crate::ids::{AttemptId, CommitId, LandingId, Now};
use crate::landing::guard::{self, SpecialFile};
use crate::landing::review;
use crate::project::NotNeeded;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope::{self, Finding, Found};
use crate::task::{self, Again, Duty, Expects, Submission};
use crate::{approval, conversation, lead, question};

use super::{Attempt, Cause, FinishReport, Phase, Reported, broke_off, end, first_few, live, resume_of};

/// How a worker says it fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    #[default]
    Done,
    /// Somebody must help before it can go on.
    Blocked,
    Failed,
    /// Nothing has to be changed: the task is done as it is.
    NotNeeded,
}

/// The thin result a worker leaves; its long words are in its transcript.
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
    /// Where the worker says it worked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree_path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnings: Vec<String>,
    /// Where the copy of it is that people read, on the daemon's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_at: Option<String>,
}

/// What came to light while an attempt's work was judged, whatever the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Findings {
    pub result: Option<WorkResult>,
    /// Changed files outside the manifest.
    pub outside: Vec<String>,
    /// What the worker says it found outside.
    pub said: Vec<Finding>,
    /// What a person should know of it.
    pub warnings: Vec<String>,
    /// What the checks of a conversation's turn said, in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<String>,
    /// Changed paths of what is to land that are more than plain files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// What capturing and checking an attempt's work found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its contract holds on this captured commit, from which what is outside its manifest was left out.
    Passed { commit: CommitId, base: CommitId, changed: Vec<String> },
    /// It had no workspace, so there is nothing to capture: what counts is what it said.
    Bare,
    /// It does not.
    Failed { reason: String },
    /// It does, and its ratchet refused it: the task's last word.
    Rejected { reason: String },
    /// Only a person can say how it goes on.
    NeedsPerson { kind: WaitKind, reason: String },
    /// The shell could not find out.
    Unknown { reason: String },
}

/// Takes the verdict: work that passed goes to the landing queue with its claims, the rest comes back.
pub fn judged(
    draft: &mut Draft,
    (id, token): (AttemptId, u64),
    verdict: Verdict,
    findings: Findings,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    let attempt = live(draft.board(), id, token)?;
    if attempt.phase != Phase::Validating {
        return Err(Refusal::StaleAttempt { task: attempt.task, attempt: id, live: None });
    }
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped while its work was checked");
        return Ok(None);
    }
    let (held_back, checks, special) = (findings.outside.clone(), findings.checks.clone(), findings.special.clone());
    note(draft, &attempt, findings, now);
    let task = task::find(draft.board(), attempt.task)?;
    let (cause, reason) = match verdict {
        // Whatever it changed stays where it is captured: it was only to look.
        Verdict::Passed { .. } if task.explores.is_some() => {
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.clone());
            match explore::finish(draft, &task, result.as_ref()) {
                Ok(()) => {
                    end(draft, id, Cause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (Cause::Invalid, reason),
            }
        }
        Verdict::Passed { commit, base, changed } if task.duty == Some(Duty::Lead) => {
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.as_ref().map(|it| it.detail.clone()));
            let said = result.filter(|it| !it.trim().is_empty()).or_else(|| task.output.clone()).unwrap_or_default();
            let work =
                Submission { attempt: id, commit, base, changed, reverts: false, undoes: None, joins: None, special };
            let adopted = lead::adopt_edits(draft, &task, &attempt, work, now)?;
            lead::turned(draft, &task, &attempt, (&said, adopted))?;
            return Ok(None);
        }
        Verdict::Passed { commit, base, changed } if task.converses() => {
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.as_ref().map(|it| it.detail.clone()));
            let last = attempt.talk.last.as_ref().map(|it| it.detail.clone());
            let said = result.into_iter().chain(task.output.clone()).chain(last).find(|it| !it.trim().is_empty());
            let work =
                Submission { attempt: id, commit, base, changed, reverts: false, undoes: None, joins: None, special };
            let left = conversation::Left { answer: said.unwrap_or_default(), work: Some(work), checks };
            return conversation::turned(draft, &task, &attempt, left, now);
        }
        Verdict::Passed { .. } if !task.is_work() => {
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.clone());
            match question::finish(draft, &task, (&attempt, result.as_ref()), now)? {
                Ok(()) => {
                    end(draft, id, Cause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (Cause::Invalid, reason),
            }
        }
        Verdict::Passed { .. } if task.reviews.is_some() => {
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.clone());
            match review::finish(draft, &task, (&attempt.agent, result.as_ref()), now)? {
                Ok(()) => {
                    end(draft, id, Cause::Reported, "");
                    task::complete(draft, task.id, None)?;
                    return Ok(None);
                }
                Err(reason) => (Cause::Invalid, reason),
            }
        }
        Verdict::Passed { commit, base, changed } if !changed.is_empty() => {
            let run = draft.board().projects.get(&task.project).map(|it| it.settings.run.clone()).unwrap_or_default();
            let (_, outside) = scope::split(&task, &run, &changed);
            if let Some(reason) = guard::never_lands(&changed, &special) {
                (Cause::Invalid, reason)
            } else if outside.is_empty() {
                let submission = Submission {
                    attempt: id,
                    commit,
                    base,
                    changed,
                    reverts: false,
                    undoes: None,
                    joins: None,
                    special,
                };
                let landing = crate::landing::submit(draft, &task, &attempt, submission, now)?;
                end(draft, id, Cause::Submitted, "");
                return Ok(landing);
            } else {
                let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
                (Cause::ScopeEscape, format!("it changed files outside its manifest: {}", first_few(&outside)))
            }
        }
        Verdict::Passed { .. } | Verdict::Bare if task.expects == Expects::Report => {
            let reported = |it: &WorkResult| !it.detail.trim().is_empty() || !it.artifacts.is_empty();
            let result = draft.board().attempts.get(&id).and_then(|it| it.result.clone());
            let said = task.output.as_ref().is_some_and(|it| !it.trim().is_empty());
            if said || result.as_ref().is_some_and(reported) {
                approval::warn_unanswered(draft, task.id);
                end(draft, id, Cause::Reported, "");
                task::complete(draft, task.id, None)?;
                return Ok(None);
            }
            (Cause::NothingChanged, "it said it was done, and left no report".into())
        }
        Verdict::Passed { .. } if !held_back.is_empty() => {
            let outside: Vec<&str> = held_back.iter().map(String::as_str).collect();
            (Cause::NothingChanged, format!("it changed only files outside its manifest: {}", first_few(&outside)))
        }
        Verdict::Passed { .. } if says_not_needed(draft, id).is_some() => {
            let why = says_not_needed(draft, id).unwrap_or_default();
            let run = draft.board().projects.get(&task.project).map(|it| it.settings.run.not_needed);
            match run.unwrap_or_default() {
                NotNeeded::Done => {
                    approval::warn_unanswered(draft, task.id);
                    end(draft, id, Cause::Reported, "nothing had to be changed");
                    task::complete(draft, task.id, None)?;
                }
                NotNeeded::Ask => {
                    let reason = format!(
                        "it says that nothing has to be changed: {why}. If you agree: regatta task cancel {0}; if not: regatta \
                         retry {0}",
                        task.id
                    );
                    task::needs_human(draft, task.id, WaitKind::Review, &reason)?;
                    end(draft, id, Cause::Reported, &reason);
                }
            }
            return Ok(None);
        }
        Verdict::Passed { .. } | Verdict::Bare => {
            (Cause::NothingChanged, "it said it was done, and nothing had changed".into())
        }
        Verdict::Failed { reason } => (Cause::Invalid, reason),
        Verdict::Rejected { reason } => {
            end(draft, id, Cause::Rejected, &reason);
            task::fail(draft, task.id, &reason)?;
            return Ok(None);
        }
        Verdict::NeedsPerson { kind, reason } => {
            let cause = if held_back.is_empty() { Cause::Blocked } else { Cause::ScopeEscape };
            task::needs_human(draft, task.id, kind, &reason)?;
            end(draft, id, cause, &reason);
            return Ok(None);
        }
        Verdict::Unknown { reason } => (Cause::Environment, reason),
    };
    // What does not pass goes back to its worker as it is, with its session where it has one.
    let resume = (cause == Cause::Invalid).then(|| resume_of(&attempt, true));
    match cause {
        Cause::Environment => broke_off(draft, task.id, cause, &reason)?,
        _ => task::try_again_after(draft, task.id, cause, &reason, Again { counts: true, resume, ..Again::default() })?,
    }
    end(draft, id, cause, &reason);
    Ok(None)
}

/// The most learnings that one result may have.
const MAX_LEARNINGS: usize = 20;
/// The longest learning, in bytes.
const MAX_LEARNING_BYTES: usize = 4_000;

/// Refuses learnings that are too many or too long.
pub(super) fn check_learnings(learnings: &[String]) -> Result<(), Refusal> {
    if learnings.len() > MAX_LEARNINGS || learnings.iter().any(|text| text.len() > MAX_LEARNING_BYTES) {
        return Err(Refusal::invalid(
            format!("a result has at most {MAX_LEARNINGS} learnings of {MAX_LEARNING_BYTES} bytes each"),
            "keep the few that help the next task most",
        ));
    }
    Ok(())
}

/// Keeps a report of the `finish` tool as the attempt's result.
pub(super) fn note_result(draft: &mut Draft, id: AttemptId, said: &FinishReport) {
    let status = if said.not_needed { ResultStatus::NotNeeded } else { ResultStatus::Done };
    let result = WorkResult {
        kind: "completion".into(),
        status,
        detail: said.output.clone().unwrap_or_default(),
        learnings: said.learnings.clone(),
        ..WorkResult::default()
    };
    draft.record(Event::AttemptReported(Reported { attempt: id, result }));
}

/// Returns why an attempt says that nothing has to be changed, if it says so.
fn says_not_needed(draft: &Draft, id: AttemptId) -> Option<String> {
    let result = draft.board().attempts.get(&id)?.result.as_ref()?;
    let why = if result.detail.trim().is_empty() { "no reason was given" } else { result.detail.trim() };
    (result.status == ResultStatus::NotNeeded).then(|| why.to_owned())
}

/// Keeps "nothing has to be changed", which the agent said with a tool, if its program then left a result that is only
/// "done". Every other status of the result says more, and counts.
fn with_not_needed(draft: &Draft, id: AttemptId, result: WorkResult) -> WorkResult {
    match says_not_needed(draft, id) {
        Some(why) if result.status == ResultStatus::Done => {
            WorkResult { status: ResultStatus::NotNeeded, detail: why, ..result }
        }
        _ => result,
    }
}

/// Writes down what came to light.
fn note(draft: &mut Draft, attempt: &Attempt, findings: Findings, now: Now) {
    let Findings { result, outside, said, warnings, checks: _, special: _ } = findings;
    if let Some(result) = result {
        let result = with_not_needed(draft, attempt.id, result);
        draft.record(Event::AttemptReported(Reported { attempt: attempt.id, result }));
    }
    if !outside.is_empty() {
        let few: Vec<&str> = outside.iter().map(String::as_str).collect();
        let finding = format!("it changed files outside its manifest: {}", first_few(&few));
        scope::note(draft, attempt, Found::Diff, Finding { finding, suggested_files: outside }, now);
    }
    for finding in said {
        scope::note(draft, attempt, Found::Said, finding, now);
    }
    for text in warnings {
        task::warn(draft, attempt.task, text);
    }
}
