//! Gathers the facts about the work of an attempt: captures its files in a commit, compares them
//! with the task's file patterns, and runs the checks. Then runs the ratchet (a command that must
//! accept the work), and reports a verdict with all findings.
//!
//! `regatta_core::attempt` decides which fact is needed next, which verdict the facts give, and the
//! consequences of the verdict.

use regatta_core::attempt::{
    CheckEvidence, CheckPlace, CheckedWork, NextCheck, ResultStatus, RuleViolation, WorkFindings,
    WorkResult, WorkVerdict, next_check, uncaptured_verdict,
};
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::isolation_breach::IsolationBreach;
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::project_rules::{self, ChangedFile};
use regatta_core::scope_escape;

use crate::ports::git::{Capture, CommitRange, ProjectRepo};
use crate::ports::site::{SiteError, WorkerReport};
use crate::validation::test_names;
use crate::worker_result::ParsedResult;
use crate::{Engine, artifacts, project_learnings};

use super::attempts::{complete_for_ended_attempt, end_program_and_commands, has_ended};
use super::landings::StagedCommit;
use super::{
    AttemptContext, attempt_context, authorship, isolation, report_effect, wait_out_shutdown,
};

/// Performs `Effect::Validate`: checks an attempt's work and reports the verdict.
pub(super) fn validate(engine: &Engine, key: EffectKey, id: AttemptId) {
    let Ok(loaded) = attempt_context(engine, id) else {
        return;
    };
    let Some(context) = loaded else {
        return complete_for_ended_attempt(engine, key, id);
    };
    crate::failpoint::hit("submit.begin");
    let (mut findings, verdict) = loop {
        let (verdict, findings) = validate_work(engine, &context);
        if !matches!(verdict, WorkVerdict::Unknown { .. })
            || engine.can_start()
            || engine.is_ending(id)
        {
            break (findings, verdict);
        }
        // A shutdown interrupted the checks. If the daemon ends, its next start repeats the checks.
        // If the daemon goes on after all, the checks are repeated now.
        if !wait_out_shutdown(engine, id) {
            return;
        }
    };
    // A stopping daemon cannot reach a runner (a process on another machine), so there is no
    // verdict. The effect stays stored, and the next start of the daemon repeats the check.
    if engine.is_stopping() && matches!(verdict, WorkVerdict::Unknown { .. }) {
        return;
    }
    crate::failpoint::hit("submit.judged");
    // The attempt is being stopped, and a command that an earlier daemon process started for it may
    // still run, so that command is stopped first.
    if engine.is_ending(id)
        && !has_ended(engine, id)
        && !end_program_and_commands(engine, &*engine.site_of(&context), id)
    {
        return;
    }
    if has_ended(engine, id) {
        return complete_for_ended_attempt(engine, key, id);
    }
    write_findings(engine, &context, &mut findings);
    report_effect(
        engine,
        key,
        Report::WorkVerdict {
            attempt: id,
            token: context.attempt.token,
            verdict,
            findings,
        },
    );
    crate::failpoint::hit("submit.recorded");
}

/// Returns the agent's own description of its work from its result, without secrets. Returns `None`
/// if the agent left no readable result.
pub(super) fn worker_detail(engine: &Engine, context: &AttemptContext) -> Option<String> {
    let report = engine.site_of(context).read_report(&context.spec()).ok()?;
    let detail = report.result?.ok()?.result.detail;
    Some(engine.redact(&detail)).filter(|detail| !detail.trim().is_empty())
}

/// Checks an attempt's work and returns the verdict, with everything else that was found.
fn validate_work(engine: &Engine, context: &AttemptContext) -> (WorkVerdict, WorkFindings) {
    let mut checked = match capture_work(engine, context) {
        Ok(checked) => checked,
        Err(SiteError { reason, fault }) => {
            return (uncaptured_verdict(fault, reason), WorkFindings::default());
        }
    };
    let verdict = gather_facts(engine, context, &mut checked)
        .unwrap_or_else(|reason| WorkVerdict::Unknown { reason });
    (verdict, checked.findings(&context.task, &context.project))
}

/// Captures the files of an attempt's workspace in a commit, and reads what the agent reported. This
/// happens before any check runs in the workspace, so the verdict is about the agent's work and not
/// about files that a check wrote.
fn capture_work(engine: &Engine, context: &AttemptContext) -> Result<CheckedWork, SiteError> {
    let AttemptContext { attempt, task, .. } = context;
    let authorship = authorship(task, attempt.agent.as_str(), attempt.started_unix_ms);
    let (site, spec) = (engine.site_of(context), context.spec());
    let mut checked = CheckedWork::new(attempt.id, site.capture(&spec, &authorship)?);
    crate::failpoint::hit("submit.captured");
    read_report(engine, context, site.read_report(&spec)?, &mut checked);
    Ok(checked)
}

/// Gathers the facts that the verdict on an attempt's work needs, until they give a verdict. `Err`
/// says why a fact could not be gathered.
fn gather_facts(
    engine: &Engine,
    context: &AttemptContext,
    checked: &mut CheckedWork,
) -> Result<WorkVerdict, String> {
    let AttemptContext {
        attempt,
        task,
        project,
        repo,
    } = context;
    let (site, spec, git) = (engine.site_of(context), context.spec(), &engine.shared.git);
    let authorship = authorship(task, attempt.agent.as_str(), attempt.started_unix_ms);
    // A directory with only the commit, if the checks must not run in the workspace. The ratchet
    // runs where the checks ran.
    let mut staged: Option<StagedCommit> = None;
    loop {
        match next_check(task, project, checked) {
            NextCheck::KeepFiles(paths) => {
                let capture = &checked.capture;
                checked.kept = Some(if paths.len() == capture.changed.len() {
                    capture.clone()
                } else {
                    git.restrict(repo, attempt.workspace(), capture, &paths, &authorship)
                        .map_err(|error| error.to_string())?
                });
            }
            NextCheck::ConflictMarkers(kept) => {
                checked.conflicted = Some(conflicted_paths(engine, context, &kept.commit)?);
            }
            NextCheck::JoinFixup(kept) => {
                let work = git
                    .squash_fixup(repo, attempt.workspace(), kept.clone(), &authorship)
                    .map_err(|error| error.to_string())?;
                checked.work = Some(work);
            }
            NextCheck::SpecialFiles(work) => {
                checked.special = Some(special_files(engine, repo, work)?);
            }
            NextCheck::TestNames(work) => {
                checked.misnamed_tests = Some(misnamed_tests(engine, context, work)?);
            }
            NextCheck::Rules(work) => {
                checked.rule_violations = Some(rule_violations(engine, context, work)?);
            }
            NextCheck::Checks(place) => {
                if let CheckPlace::Commit(commit) = place {
                    staged = Some(StagedCommit::new(engine, context, commit)?);
                }
                let evidence = match &staged {
                    None => site.run_checks(&spec)?,
                    Some(staged) => staged.run_checks()?,
                };
                checked.evidence = Some(store_evidence(engine, attempt.id, evidence));
            }
            NextCheck::Ratchet => {
                let refusal = match &staged {
                    None => site.run_ratchet(&spec)?,
                    Some(staged) => staged.run_ratchet()?,
                };
                checked.ratchet = Some(refusal.map_or(Ok(()), Err));
            }
            NextCheck::Verdict(verdict) => return Ok(verdict),
        }
    }
}

/// Removes secrets from the output of the checks, stores the output for people, and returns it.
fn store_evidence(
    engine: &Engine,
    id: AttemptId,
    mut evidence: Vec<CheckEvidence>,
) -> Vec<CheckEvidence> {
    for check in &mut evidence {
        check.output = engine.redact(&check.output);
    }
    artifacts::write_evidence(engine, id, &evidence);
    evidence
}

/// Lists the changed paths that are not plain files, for example symbolic links.
fn special_files(
    engine: &Engine,
    repo: &ProjectRepo,
    part: &Capture,
) -> Result<Vec<SpecialFile>, String> {
    let git = &engine.shared.git;
    let range = CommitRange {
        base: &part.base,
        commit: &part.commit,
    };
    let mut special = git
        .special_files(repo, range)
        .map_err(|error| error.to_string())?;
    if special
        .iter()
        .any(|file| file.after == Some(FileKind::Submodule))
    {
        let unpublished = git.unpublished_submodules(repo, range);
        let unpublished = unpublished.map_err(|error| error.to_string())?;
        for file in special
            .iter_mut()
            .filter(|file| file.after == Some(FileKind::Submodule))
        {
            file.unpublished = unpublished.contains(&file.path);
        }
    }
    Ok(special)
}

/// Returns the paths that a fix-up (an attempt that repairs finished work) should have repaired but
/// that still have git's conflict markers in the commit.
fn conflicted_paths(
    engine: &Engine,
    context: &AttemptContext,
    commit: &CommitId,
) -> Result<Vec<String>, String> {
    let mut conflicted = Vec::new();
    for path in context.task.fixup.iter().flat_map(|fixup| &fixup.paths) {
        let file = engine
            .shared
            .git
            .file_at(&context.repo, commit, path)
            .map_err(|error| error.to_string())?;
        let has_line_with = |marker: &[u8]| {
            file.as_ref().is_some_and(|file| {
                file.split(|byte| *byte == b'\n')
                    .any(|line| line.starts_with(marker))
            })
        };
        if has_line_with(b"<<<<<<< ") && has_line_with(b">>>>>>> ") {
            conflicted.push(path.clone());
        }
    }
    Ok(conflicted)
}

/// Adds the agent's result, and everything that the agent reported during its work, to `checked`,
/// without secrets. An agent that has Regatta's tools reports its result with the tool `finish` and
/// writes no file.
fn read_report(
    engine: &Engine,
    context: &AttemptContext,
    report: WorkerReport,
    checked: &mut CheckedWork,
) {
    let board = engine.board();
    checked.recorded_result = board
        .attempts
        .get(&context.attempt.id)
        .and_then(|attempt| attempt.result.clone());
    let mut reports_no_workspace = false;
    checked.result_file = report.result.map(|parsed| {
        let ParsedResult {
            result,
            findings,
            is_workspace_empty,
        } = parsed?;
        reports_no_workspace = is_workspace_empty;
        checked.reported.extend(findings);
        Ok(WorkResult {
            detail: engine.redact(&result.detail),
            learnings: result
                .learnings
                .iter()
                .map(|learning| engine.redact(learning))
                .collect(),
            ..result
        })
    });
    let no_workspace = reports_no_workspace.then_some(IsolationBreach::NoWorkspace);
    let breach = report
        .other_dir
        .map(|path| IsolationBreach::OtherDirectory { path })
        .or(no_workspace);
    if let Some(breach) = breach {
        isolation::report_breach(engine, context, breach);
    }
    checked.reported.extend(report.escapes);
    for finding in &mut checked.reported {
        finding.finding = engine.redact(&finding.finding);
    }
}

/// Returns a sentence for each new test file with a name that the test tools of its language do not
/// find.
fn misnamed_tests(
    engine: &Engine,
    context: &AttemptContext,
    work: &Capture,
) -> Result<Vec<String>, String> {
    // A file whose existence cannot be determined counts as existing, because the error is not the
    // agent's fault.
    let exists = |path: &str| {
        engine
            .shared
            .git
            .file_at(&context.repo, &work.commit, path)
            .map_or(true, |content| content.is_some())
    };
    let suspects: Vec<(&String, String)> = work
        .changed
        .iter()
        .filter_map(|path| test_names::naming_problem(path, exists).map(|problem| (path, problem)))
        .collect();
    if suspects.is_empty() {
        return Ok(vec![]);
    }
    // Only the names of new files are checked, so find out which of these files are new. The lines
    // that they add are not needed.
    let changes = engine
        .shared
        .git
        .changed_files(&context.repo, work, false)
        .map_err(|error| error.to_string())?;
    let is_new = |path: &String| {
        changes
            .iter()
            .any(|change| change.is_new && change.path == *path)
    };
    Ok(suspects
        .into_iter()
        .filter(|(path, _)| is_new(path))
        .map(|(_, problem)| problem)
        .collect())
}

/// Returns the project's standing rules (such as "no `panic!`") that a change violates.
fn rule_violations(
    engine: &Engine,
    context: &AttemptContext,
    work: &Capture,
) -> Result<Vec<RuleViolation>, String> {
    let rules = &context.project.settings.rule;
    let needs_lines = project_rules::has_text_rule(rules);
    let changes = engine
        .shared
        .git
        .changed_files(&context.repo, work, needs_lines)
        .map_err(|error| error.to_string())?;
    let changed: Vec<_> = changes
        .iter()
        .map(|change| ChangedFile {
            path: &change.path,
            added: &change.added_lines,
        })
        .collect();
    let matches = project_rules::rules_at_landing(rules, context.task.issue_type, &changed);
    Ok(matches
        .iter()
        .map(|rule_match| RuleViolation {
            action: rule_match.rule.action,
            sentence: engine.redact(&rule_match.sentence()),
        })
        .collect())
}

/// Writes the result, the reported facts and the changes outside the file patterns to files for
/// people. Writing the files again does no harm.
fn write_findings(engine: &Engine, context: &AttemptContext, findings: &mut WorkFindings) {
    let AttemptContext {
        attempt,
        task,
        project,
        ..
    } = context;
    if let Some(result) = &mut findings.result {
        result.copy_path = artifacts::write_result(engine, task, project, result);
        if result.status == ResultStatus::Done {
            project_learnings::store_learnings(engine, project, task, &result.learnings);
        }
    }
    let now = engine.now().unix_ms;
    let reporter = (task, attempt.id, attempt.agent.as_str());
    if !findings.outside_manifest.is_empty() {
        let finding = "the attempt changed files outside its manifest".to_owned();
        let finding = scope_escape::ScopeFinding {
            finding,
            suggested_files: findings.outside_manifest.clone(),
        };
        artifacts::append_escape(engine, project, reporter, &finding, now);
    }
    for finding in &findings.reported {
        artifacts::append_escape(engine, project, reporter, finding, now);
    }
}
