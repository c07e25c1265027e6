//! The facts about an attempt's finished work that decide the verdict on it, and the findings that
//! they give for people.
//!
//! The engine gathers these facts, one after the other, as [`next_check`](super::next_check()) asks
//! for them.

use crate::ids::{AttemptId, CommitId};
use crate::landing::guard::SpecialFile;
use crate::project::{Project, RuleAction};
use crate::scope_escape::{self, ScopeFinding};
use crate::task::Task;

use super::evidence::{CheckEvidence, failed_check_reason};
use super::first_few;
use super::next_check::early_verdict;
use super::verdict::{ResultStatus, WorkFindings, WorkResult};
use super::work_kind::WorkKind;

/// A commit of the files that an attempt left in its workspace. A ref of the vault (Regatta's own
/// repository) keeps this commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capture {
    /// The commit with the workspace's files, whose parent is `base`.
    pub commit: CommitId,
    /// The commit of the trunk from which the attempt's work started.
    pub base: CommitId,
    /// The sorted paths whose content differs between `commit` and `base`, relative to the top of
    /// the working tree and with `/` as separator.
    pub changed: Vec<String>,
}

/// A standing rule of the project that finished work violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    pub action: RuleAction,
    /// The rule's name, message and location, for people.
    pub sentence: String,
}

/// The facts about an attempt's work that were gathered so far. A fact that no check has gathered
/// yet is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedWork {
    pub attempt: AttemptId,
    /// The commit with all files of the workspace.
    pub capture: Capture,
    /// The result that the attempt reported with a tool before its program ended.
    pub recorded_result: Option<WorkResult>,
    /// The result file of the program, or the reason why that file could not be read. `None` if
    /// there is no result file.
    pub result_file: Option<Result<WorkResult, String>>,
    /// Work outside the task's files that the agent reported.
    pub reported: Vec<ScopeFinding>,
    /// The commit with only those changed files that count as work.
    pub kept: Option<Capture>,
    /// The paths of the fix-up that still have git's conflict markers.
    pub conflicted: Option<Vec<String>>,
    /// The work as it would land: the kept files, joined with the work that a fix-up repaired.
    pub work: Option<Capture>,
    pub special: Option<Vec<SpecialFile>>,
    /// Sentences about new test files whose names the test tools do not find.
    pub misnamed_tests: Option<Vec<String>>,
    pub rule_violations: Option<Vec<RuleViolation>>,
    pub evidence: Option<Vec<CheckEvidence>>,
    /// The ratchet's answer; an error is the reason why the ratchet rejects the work.
    pub ratchet: Option<Result<(), String>>,
}

/// Returns `last`, the final result of the agent's program. If it says only "done" and the agent
/// recorded earlier that no change is needed, the status becomes "not needed". Any other final
/// status is more specific and wins.
pub(super) fn effective_result(recorded: Option<&WorkResult>, last: WorkResult) -> WorkResult {
    match recorded.and_then(not_needed_reason) {
        Some(reason) if last.status == ResultStatus::Done => WorkResult {
            status: ResultStatus::NotNeeded,
            detail: reason.to_owned(),
            ..last
        },
        _ => last,
    }
}

/// Returns why a result says that no change is needed, or `None` if it does not say that.
pub(super) fn not_needed_reason(result: &WorkResult) -> Option<&str> {
    let detail = result.detail.trim();
    let reason = if detail.is_empty() {
        "no reason was given"
    } else {
        detail
    };
    (result.status == ResultStatus::NotNeeded).then_some(reason)
}

impl CheckedWork {
    /// Returns the facts about work that was captured and not checked yet.
    pub fn new(attempt: AttemptId, capture: Capture) -> CheckedWork {
        CheckedWork {
            attempt,
            capture,
            recorded_result: None,
            result_file: None,
            reported: vec![],
            kept: None,
            conflicted: None,
            work: None,
            special: None,
            misnamed_tests: None,
            rule_violations: None,
            evidence: None,
            ratchet: None,
        }
    }

    /// Returns the result from the program's result file, if that file could be read.
    pub(super) fn final_result(&self) -> Option<&WorkResult> {
        self.result_file.as_ref()?.as_ref().ok()
    }

    /// Returns whether the agent reported, in its result file or with a tool, that the task needs no
    /// change.
    pub(super) fn says_not_needed(&self) -> bool {
        let recorded = self.recorded_result.as_ref();
        let result = match self.final_result() {
            Some(last) => Some(effective_result(recorded, last.clone())),
            None => recorded.cloned(),
        };
        result.is_some_and(|result| result.status == ResultStatus::NotNeeded)
    }

    /// Returns the changed files that the task may change. Files that only carry messages to
    /// Regatta, such as the result file, are not part of the work, unless the task lists the files
    /// that it may change.
    pub(super) fn inside_manifest(&self, task: &Task, project: &Project) -> Vec<String> {
        let run = &project.settings.run;
        let (mut inside, _) = scope_escape::split_by_manifest(task, run, &self.capture.changed);
        inside.retain(|path| !task.files.is_empty() || !run.is_protocol_path(path));
        inside
    }

    /// Returns the changed files that the task may not change. A task whose purpose has no manifest
    /// has no such files.
    pub(super) fn outside_manifest(&self, task: &Task, project: &Project) -> Vec<String> {
        if !task.purpose.has_contract() {
            return vec![];
        }
        let run = &project.settings.run;
        let (_, mut outside) = scope_escape::split_by_manifest(task, run, &self.capture.changed);
        outside.retain(|path| !run.is_protocol_path(path));
        outside
    }

    /// Returns everything that the gathered facts say besides the verdict.
    pub fn findings(&self, task: &Task, project: &Project) -> WorkFindings {
        let result = match &self.result_file {
            None => self.recorded_result.clone(),
            Some(result) => result.as_ref().ok().cloned(),
        };
        let kind = WorkKind::from_purpose(&task.purpose);
        let evidence = self.evidence.as_deref();
        WorkFindings {
            result,
            outside_manifest: self.outside_manifest(task, project),
            reported: self.reported.clone(),
            warnings: self.warnings(task, project, kind),
            checks: evidence
                .filter(|_| kind == WorkKind::ConversationTurn)
                .and_then(describe_checks),
            special: self.special.clone().unwrap_or_default(),
        }
    }

    /// Returns the warnings for people about a result that could not be read, about changes of an
    /// attempt that was only meant to read files, and of the project's standing rules.
    fn warnings(&self, task: &Task, project: &Project, kind: WorkKind<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(Err(why)) = &self.result_file {
            warnings.push(format!("its result could not be read: {why}"));
        }
        let only_reads = matches!(kind, WorkKind::Report | WorkKind::Answer(_));
        if only_reads && early_verdict(task, project, self).is_none() {
            let changed = self.inside_manifest(task, project);
            if !changed.is_empty() {
                let files: Vec<&str> = changed.iter().map(String::as_str).collect();
                warnings.push(format!(
                    "{} was meant only to read files, but changed {}; these changes do not land",
                    self.attempt,
                    first_few(&files)
                ));
            }
        }
        let violations = self.rule_violations.iter().flatten();
        warnings.extend(
            violations
                .filter(|violation| violation.action == RuleAction::Warn)
                .map(|violation| violation.sentence.clone()),
        );
        warnings
    }
}

/// Describes the checks of a conversation's turn in one line, or returns `None` if none ran.
fn describe_checks(evidence: &[CheckEvidence]) -> Option<String> {
    match (evidence.len(), failed_check_reason(evidence)) {
        (0, None) => None,
        (1, None) => Some("its check passes".into()),
        (count, None) => Some(format!("all {count} checks pass")),
        (_, Some(reason)) => Some(format!(
            "a check fails: {}",
            reason.lines().next().unwrap_or_default()
        )),
    }
}
