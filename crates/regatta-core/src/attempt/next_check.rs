//! Decides which fact about an attempt's work is needed next, and which verdict the known facts
//! give.
//!
//! The engine asks [`next_check`] what to find out, stores the answer in [`CheckedWork`], and asks
//! again until the answer is a verdict. A check that an earlier fact makes superfluous therefore
//! never runs. The consequences of a verdict are in [`apply_verdict`](super::apply_verdict).

use crate::ids::CommitId;
use crate::landing::guard;
use crate::project::{EscapePolicy, Project, RuleAction};
use crate::schedule::WaitKind;
use crate::task::{Expects, Task};

use super::checked_work::{Capture, CheckedWork};
use super::evidence::{failed_check_reason, unrunnable_check_reason};
use super::verdict::{ResultStatus, WorkResult, WorkVerdict};
use super::work_kind::WorkKind;
use super::{SetupFault, first_few};

/// The next fact that must be gathered about an attempt's work, or the verdict on the work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum NextCheck<'a> {
    /// Make a commit of only these changed files, for [`CheckedWork::kept`].
    KeepFiles(Vec<String>),
    /// Look for git's conflict markers in the files that a fix-up had to repair, for
    /// [`CheckedWork::conflicted`].
    ConflictMarkers(&'a Capture),
    /// Join the commit with the work that a fix-up repaired, for [`CheckedWork::work`].
    JoinFixup(&'a Capture),
    /// List the changed paths that are not plain files, for [`CheckedWork::special`].
    SpecialFiles(&'a Capture),
    /// Look for misnamed test files, for [`CheckedWork::misnamed_tests`].
    TestNames(&'a Capture),
    /// Compare the work with the project's standing rules, for [`CheckedWork::rule_violations`].
    Rules(&'a Capture),
    /// Run the checks, for [`CheckedWork::evidence`].
    Checks(CheckPlace<'a>),
    /// Run the ratchet where the checks ran, for [`CheckedWork::ratchet`].
    Ratchet,
    Verdict(WorkVerdict),
}

/// The directory in which the checks of an attempt's work run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckPlace<'a> {
    Workspace,
    /// A directory with only the files of this commit, because the workspace still has files that
    /// are not part of the work and on which a check could depend.
    Commit(&'a CommitId),
}

/// Returns the verdict on work that could not be captured. If the cause is in the task or the
/// repository, another attempt would fail in the same way, so a person must change something first.
pub fn uncaptured_verdict(fault: Option<SetupFault>, reason: String) -> WorkVerdict {
    match fault {
        Some(SetupFault::Task) => WorkVerdict::NeedsPerson {
            kind: WaitKind::Policy,
            reason,
        },
        Some(SetupFault::Agent) | None => WorkVerdict::Unknown { reason },
    }
}

/// Returns the fact about an attempt's work that must be gathered next, or the verdict if the known
/// facts decide.
pub fn next_check<'a>(task: &Task, project: &Project, checked: &'a CheckedWork) -> NextCheck<'a> {
    if let Some(verdict) = early_verdict(task, project, checked) {
        return NextCheck::Verdict(verdict);
    }
    match WorkKind::from_purpose(&task.purpose) {
        WorkKind::Changes => next_check_of_changes(task, project, checked),
        kind @ (WorkKind::LeadTurn | WorkKind::ConversationTurn) => {
            next_check_of_turn(project, checked, kind)
        }
        WorkKind::Report | WorkKind::Answer(_) => NextCheck::Verdict(WorkVerdict::Passed {
            commit: checked.capture.base.clone(),
            base: checked.capture.base.clone(),
            changed: vec![],
        }),
    }
}

/// Returns the verdict if the agent's own result, or the project's rule about files outside a
/// manifest, decides before any check.
pub(super) fn early_verdict(
    task: &Task,
    project: &Project,
    checked: &CheckedWork,
) -> Option<WorkVerdict> {
    if let Some(result) = checked.final_result() {
        match result.status {
            ResultStatus::Blocked => {
                return Some(WorkVerdict::NeedsPerson {
                    kind: WaitKind::Question,
                    reason: format!("it says it is blocked: {}", detail_or_placeholder(result)),
                });
            }
            ResultStatus::Failed => {
                return Some(WorkVerdict::Failed {
                    reason: format!("it says it failed: {}", detail_or_placeholder(result)),
                });
            }
            ResultStatus::Done | ResultStatus::NotNeeded => {}
        }
    }
    let outside = checked.outside_manifest(task, project);
    let is_blocked = project.settings.run.on_scope_escape == EscapePolicy::Block;
    (is_blocked && !outside.is_empty()).then(|| WorkVerdict::NeedsPerson {
        kind: WaitKind::Policy,
        reason: format!(
            "it changed files outside its manifest: {}",
            outside.join(", ")
        ),
    })
}

/// Returns the next check of changed files, which land if they pass.
fn next_check_of_changes<'a>(
    task: &Task,
    project: &Project,
    checked: &'a CheckedWork,
) -> NextCheck<'a> {
    let Some(kept) = &checked.kept else {
        return NextCheck::KeepFiles(checked.inside_manifest(task, project));
    };
    if task
        .fixup
        .as_ref()
        .is_some_and(|fixup| !fixup.paths.is_empty())
    {
        let Some(conflicted) = &checked.conflicted else {
            return NextCheck::ConflictMarkers(kept);
        };
        if let Some(path) = conflicted.first() {
            return failed(format!("{path} still has conflict markers"));
        }
    }
    let Some(work) = &checked.work else {
        return NextCheck::JoinFixup(kept);
    };
    if work.changed.is_empty() {
        return next_check_of_unchanged(task, project, checked, work);
    }
    let Some(special) = &checked.special else {
        return NextCheck::SpecialFiles(work);
    };
    if let Some(reason) = guard::never_lands_reason(&work.changed, special) {
        return failed(reason);
    }
    if project.settings.run.test_names {
        let Some(problems) = &checked.misnamed_tests else {
            return NextCheck::TestNames(work);
        };
        if let Some(problem) = problems.first() {
            return failed(problem.clone());
        }
    }
    if !project.settings.rule.is_empty() {
        let Some(violations) = &checked.rule_violations else {
            return NextCheck::Rules(work);
        };
        if let Some(rule) = violations
            .iter()
            .find(|violation| violation.action == RuleAction::Block)
        {
            let reason = format!("a standing rule blocks it, {}", rule.sentence);
            return needs_person(WaitKind::Policy, reason);
        }
    }
    let held_back = checked.outside_manifest(task, project);
    let Some(evidence) = &checked.evidence else {
        return NextCheck::Checks(if held_back.is_empty() {
            CheckPlace::Workspace
        } else {
            CheckPlace::Commit(&work.commit)
        });
    };
    if let Some(reason) = unrunnable_check_reason(evidence) {
        return unrunnable(task, &reason);
    }
    if let Some(mut reason) = failed_check_reason(evidence) {
        if !held_back.is_empty() {
            let names: Vec<&str> = held_back.iter().map(String::as_str).collect();
            // The note is on the same line, because screens show only the first line of a reason.
            reason += &format!(
                "; the checks ran without {}, held back because outside its manifest",
                first_few(&names)
            );
        }
        return failed(reason);
    }
    if task.ratchet.is_some() {
        match &checked.ratchet {
            None => return NextCheck::Ratchet,
            Some(Ok(())) => {}
            Some(Err(reason)) => {
                return NextCheck::Verdict(WorkVerdict::Rejected {
                    reason: reason.clone(),
                });
            }
        }
    }
    passed(work)
}

/// Returns the next check of an attempt that changed nothing. If the attempt should have changed
/// something, or says that no change is needed, the project's checks must show which is true.
fn next_check_of_unchanged<'a>(
    task: &Task,
    project: &Project,
    checked: &'a CheckedWork,
    work: &Capture,
) -> NextCheck<'a> {
    let says_not_needed = checked.says_not_needed();
    let is_undone = task.expects() == Expects::Changes
        && task.fixup.is_none()
        && checked.outside_manifest(task, project).is_empty();
    if !says_not_needed && !is_undone {
        return passed(work);
    }
    let Some(evidence) = &checked.evidence else {
        return NextCheck::Checks(CheckPlace::Workspace);
    };
    if let Some(reason) = unrunnable_check_reason(evidence) {
        return unrunnable(task, &reason);
    }
    let failure = failed_check_reason(evidence);
    let id = task.id;
    if says_not_needed {
        return match failure {
            Some(reason) => failed(format!(
                "it says that nothing has to be changed, but {reason}"
            )),
            None if evidence.is_empty() => needs_person(
                WaitKind::Review,
                format!(
                    "it says that nothing has to be changed, and no check can confirm it. If you \
                     agree: regatta task cancel {id}; if not: regatta retry {id}"
                ),
            ),
            None => passed(work),
        };
    }
    if let Some(reason) = failure {
        return failed(format!(
            "it said it was done, and nothing had changed: {reason}"
        ));
    }
    // Another attempt would end in the same way: either the work exists already, or no check can
    // detect that it is missing. So a person must decide.
    let checks = if evidence.is_empty() {
        "no check can tell whether the work exists"
    } else {
        "its checks pass without a change"
    };
    needs_person(
        WaitKind::Review,
        format!(
            "it said it was done, and nothing had changed; {checks}. If the work is there already: \
             regatta task cancel {id}; if not: regatta retry {id}"
        ),
    )
}

/// Returns the next check of a turn of a lead or a conversation. All changes are kept. Failing
/// checks of a conversation are reported, but they do not make the turn fail.
fn next_check_of_turn<'a>(
    project: &Project,
    checked: &'a CheckedWork,
    kind: WorkKind<'_>,
) -> NextCheck<'a> {
    let Some(kept) = &checked.kept else {
        let run = &project.settings.run;
        let paths = checked.capture.changed.iter();
        return NextCheck::KeepFiles(
            paths
                .filter(|path| !run.is_protocol_path(path))
                .cloned()
                .collect(),
        );
    };
    let Some(work) = &checked.work else {
        return NextCheck::JoinFixup(kept);
    };
    if !work.changed.is_empty() {
        if checked.special.is_none() {
            return NextCheck::SpecialFiles(work);
        }
        if kind == WorkKind::ConversationTurn && checked.evidence.is_none() {
            return NextCheck::Checks(CheckPlace::Workspace);
        }
    }
    passed(work)
}

fn passed(work: &Capture) -> NextCheck<'static> {
    let Capture {
        commit,
        base,
        changed,
    } = work.clone();
    NextCheck::Verdict(WorkVerdict::Passed {
        commit,
        base,
        changed,
    })
}

fn failed(reason: String) -> NextCheck<'static> {
    NextCheck::Verdict(WorkVerdict::Failed { reason })
}

fn needs_person(kind: WaitKind, reason: String) -> NextCheck<'static> {
    NextCheck::Verdict(WorkVerdict::NeedsPerson { kind, reason })
}

/// Returns the verdict after a check that this machine cannot run. A person must act, because
/// another attempt would end in the same way.
fn unrunnable(task: &Task, reason: &str) -> NextCheck<'static> {
    needs_person(
        WaitKind::Review,
        format!("{reason}; then regatta retry {}", task.id),
    )
}

/// Returns an agent's explanation of its result, or a placeholder if there is none.
fn detail_or_placeholder(result: &WorkResult) -> &str {
    let detail = result.detail.trim();
    if detail.is_empty() {
        "it does not say why"
    } else {
        detail
    }
}
