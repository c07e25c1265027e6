//! Checks the work of an attempt: captures its files in a commit, compares them with the task's
//! file patterns, and runs the checks. Then runs the ratchet (a command that must accept the work),
//! and reports a verdict with all findings.
//!
//! `regatta_core::attempt` decides the consequences of a verdict.

use regatta_core::attempt::{ResultStatus, SetupFault, WorkFindings, WorkResult, WorkVerdict};
use regatta_core::command::Report;
use regatta_core::effect::EffectKey;
use regatta_core::ids::AttemptId;
use regatta_core::isolation_breach::IsolationBreach;
use regatta_core::landing::guard::{self, FileKind, SpecialFile};
use regatta_core::project::{EscapePolicy, RuleAction};
use regatta_core::project_rules::{self, ChangedFile};
use regatta_core::schedule::WaitKind;
use regatta_core::scope_escape;
use regatta_core::task::{Expects, Purpose};

use crate::artifacts::CheckEvidence;
use crate::ports::git::{Capture, CommitRange, ProjectRepo};
use crate::ports::site::{SiteError, WorkerReport};
use crate::validation::test_names;
use crate::worker_result::ParsedResult;
use crate::{Engine, artifacts, project_learnings, validation};

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
        let mut findings = WorkFindings::default();
        let verdict = validate_work(engine, &context, &mut findings)
            .unwrap_or_else(|reason| WorkVerdict::Unknown { reason });
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

/// Checks an attempt's work and returns the verdict. `Err` says why the work could not be checked.
fn validate_work(
    engine: &Engine,
    context: &AttemptContext,
    findings: &mut WorkFindings,
) -> Result<WorkVerdict, String> {
    let AttemptContext {
        attempt,
        task,
        project,
        ..
    } = context;
    let (site, spec) = (engine.site_of(context), context.spec());
    // The files are captured before any check runs in the workspace, so the verdict is about the
    // agent's work and not about files that a check wrote.
    let authorship = authorship(task, attempt.agent.as_str(), attempt.started_unix_ms);
    let capture = match site.capture(&spec, &authorship) {
        Ok(capture) => capture,
        // The cause is in the task or the repository. Another attempt would fail in the same way,
        // so a person must change something first.
        Err(SiteError {
            reason,
            fault: Some(SetupFault::Task),
        }) => {
            return Ok(WorkVerdict::NeedsPerson {
                kind: WaitKind::Policy,
                reason,
            });
        }
        Err(error) => return Err(error.reason),
    };
    crate::failpoint::hit("submit.captured");
    let status = apply_report(engine, context, site.read_report(&spec)?, findings);

    let (mut inside_manifest, outside_manifest) =
        scope_escape::split_by_manifest(task, &project.settings.run, &capture.changed);
    // Files that only carry messages to Regatta, such as the result file, are not part of the work,
    // unless the task lists the files that it may change.
    inside_manifest
        .retain(|path| !task.files.is_empty() || !artifacts::is_protocol_path(project, path));
    findings.outside_manifest = outside_manifest
        .into_iter()
        .filter(|path| !artifacts::is_protocol_path(project, path))
        .collect();
    match status {
        Some((ResultStatus::Blocked, detail)) => {
            let reason = format!("it says it is blocked: {}", detail_or_placeholder(&detail));
            return Ok(WorkVerdict::NeedsPerson {
                kind: WaitKind::Question,
                reason,
            });
        }
        Some((ResultStatus::Failed, detail)) => {
            return Ok(WorkVerdict::Failed {
                reason: format!("it says it failed: {}", detail_or_placeholder(&detail)),
            });
        }
        Some((ResultStatus::Done | ResultStatus::NotNeeded, _)) | None => {}
    }
    if !task.purpose.has_contract() {
        // A task of this kind, such as a task that answers a question, has no manifest (the files
        // that it may change). So no change counts as outside the manifest.
        findings.outside_manifest.clear();
    }
    if !findings.outside_manifest.is_empty()
        && project.settings.run.on_scope_escape == EscapePolicy::Block
    {
        let reason = format!(
            "it changed files outside its manifest: {}",
            findings.outside_manifest.join(", ")
        );
        return Ok(WorkVerdict::NeedsPerson {
            kind: WaitKind::Policy,
            reason,
        });
    }
    match &task.purpose {
        Purpose::Work { .. } | Purpose::Session(_) | Purpose::MergeRemote { .. } => {
            validate_changes(engine, context, capture, inside_manifest, findings)
        }
        Purpose::Converse { .. } => validate_turn(engine, context, capture, findings),
        Purpose::Lead => lead_edits(engine, context, capture, findings),
        Purpose::Explore { .. }
        | Purpose::Review { .. }
        | Purpose::Answer { .. }
        | Purpose::Triage { .. }
        | Purpose::Plan { .. } => {
            warn_of_changes(context, &inside_manifest, findings);
            let Capture { base, .. } = capture;
            Ok(WorkVerdict::Passed {
                commit: base.clone(),
                base,
                changed: vec![],
            })
        }
    }
}

/// Warns people of files that an attempt changed although it was only meant to read files. The
/// changes are stored but do not land.
fn warn_of_changes(context: &AttemptContext, changed: &[String], findings: &mut WorkFindings) {
    if changed.is_empty() {
        return;
    }
    let files: Vec<&str> = changed.iter().take(5).map(String::as_str).collect();
    findings.warnings.push(format!(
        "{} was meant only to read files, but changed {}; these changes do not land",
        context.attempt.id,
        files.join(", ")
    ));
}

/// Checks an attempt's changes to files, which land if they pass.
fn validate_changes(
    engine: &Engine,
    context: &AttemptContext,
    capture: Capture,
    inside_manifest: Vec<String>,
    findings: &mut WorkFindings,
) -> Result<WorkVerdict, String> {
    let AttemptContext {
        attempt,
        task,
        repo,
        ..
    } = context;
    let (site, spec) = (engine.site_of(context), context.spec());
    let authorship = authorship(task, attempt.agent.as_str(), attempt.started_unix_ms);
    let part = if inside_manifest.len() == capture.changed.len() {
        capture
    } else {
        let (git, workspace) = (&engine.shared.git, attempt.workspace());
        git.restrict(repo, workspace, &capture, &inside_manifest, &authorship)
            .map_err(|error| error.to_string())?
    };
    if let Some(reason) = leftover_conflict_markers(engine, context, &part)? {
        return Ok(WorkVerdict::Failed { reason });
    }
    let part = engine
        .shared
        .git
        .squash_fixup(repo, attempt.workspace(), part, &authorship)
        .map_err(|error| error.to_string())?;
    let Capture {
        commit,
        base,
        changed,
    } = part.clone();
    let passed = WorkVerdict::Passed {
        commit,
        base,
        changed,
    };
    if part.changed.is_empty() {
        if reports_not_needed(engine, context, findings) {
            return validate_not_needed(engine, context, passed);
        }
        let is_undone = task.expects() == Expects::Changes
            && task.fixup.is_none()
            && findings.outside_manifest.is_empty();
        return if is_undone {
            validate_unchanged(engine, context)
        } else {
            Ok(passed)
        };
    }
    findings.special = special_files(engine, repo, &part)?;
    if let Some(reason) = guard::never_lands_reason(&part.changed, &findings.special) {
        return Ok(WorkVerdict::Failed { reason });
    }
    if let Some(reason) = misnamed_test(engine, context, &part)? {
        return Ok(WorkVerdict::Failed { reason });
    }
    if let Some(reason) = violated_rule(engine, context, &part, findings)? {
        return Ok(WorkVerdict::NeedsPerson {
            kind: WaitKind::Policy,
            reason,
        });
    }
    // Files that were changed outside the task's file patterns are left out of the work but still
    // lie in the workspace, where a check could depend on them. In that case the checks run on the
    // commit in another directory.
    let held_back = &findings.outside_manifest;
    let staged = if held_back.is_empty() {
        None
    } else {
        Some(StagedCommit::new(engine, context, &part.commit)?)
    };
    let mut evidence = match &staged {
        None => site.run_checks(&spec)?,
        Some(staged) => staged.run_checks()?,
    };
    for check in &mut evidence {
        check.output = (engine.shared.settings.redactor.0)(&check.output);
    }
    artifacts::write_evidence(engine, attempt.id, &evidence);
    if let Some(verdict) = unrunnable_verdict(context, &evidence) {
        return Ok(verdict);
    }
    if let Some(mut reason) = validation::failure_reason(&evidence) {
        if !held_back.is_empty() {
            let names = held_back
                .iter()
                .take(5)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let more = held_back.len().checked_sub(5).filter(|more| *more > 0);
            let more = more.map_or(String::new(), |more| format!(" and {more} more"));
            // Append the note to the same line, because screens show only the first line of a
            // reason.
            reason += &format!(
                "; the checks ran without {names}{more}, held back because outside its manifest"
            );
        }
        return Ok(WorkVerdict::Failed { reason });
    }
    let refusal = match &staged {
        None => site.run_ratchet(&spec)?,
        Some(staged) => staged.run_ratchet()?,
    };
    Ok(match refusal {
        None => passed,
        Some(reason) => WorkVerdict::Rejected { reason },
    })
}

/// Returns a verdict with the files that a lead (an agent that plans tasks for others) changed
/// itself. A new task is made for these changes, and the landing queue checks them.
fn lead_edits(
    engine: &Engine,
    context: &AttemptContext,
    capture: Capture,
    findings: &mut WorkFindings,
) -> Result<WorkVerdict, String> {
    let part = without_protocol(engine, context, capture)?;
    if !part.changed.is_empty() {
        findings.special = special_files(engine, &context.repo, &part)?;
    }
    let Capture {
        commit,
        base,
        changed,
    } = part;
    Ok(WorkVerdict::Passed {
        commit,
        base,
        changed,
    })
}

/// Returns a captured commit of an attempt's work without the files that only carry messages to
/// Regatta, such as the result file.
fn without_protocol(
    engine: &Engine,
    context: &AttemptContext,
    capture: Capture,
) -> Result<Capture, String> {
    let AttemptContext {
        attempt,
        task,
        project,
        repo,
    } = context;
    let authorship = authorship(task, attempt.agent.as_str(), attempt.started_unix_ms);
    let kept_paths: Vec<String> = capture
        .changed
        .iter()
        .filter(|path| !artifacts::is_protocol_path(project, path))
        .cloned()
        .collect();
    let part = if kept_paths.len() == capture.changed.len() {
        capture
    } else {
        let (git, workspace) = (&engine.shared.git, attempt.workspace());
        git.restrict(repo, workspace, &capture, &kept_paths, &authorship)
            .map_err(|error| error.to_string())?
    };
    engine
        .shared
        .git
        .squash_fixup(repo, attempt.workspace(), part, &authorship)
        .map_err(|error| error.to_string())
}

/// Checks the changes of one turn of a conversation. All changes are kept. The verdict reports
/// failing checks, but failing checks do not make the turn fail.
fn validate_turn(
    engine: &Engine,
    context: &AttemptContext,
    capture: Capture,
    findings: &mut WorkFindings,
) -> Result<WorkVerdict, String> {
    let attempt = &context.attempt;
    let part = without_protocol(engine, context, capture)?;
    if !part.changed.is_empty() {
        findings.special = special_files(engine, &context.repo, &part)?;
        let mut evidence = engine.site_of(context).run_checks(&context.spec())?;
        for check in &mut evidence {
            check.output = (engine.shared.settings.redactor.0)(&check.output);
        }
        artifacts::write_evidence(engine, attempt.id, &evidence);
        findings.checks = match (evidence.len(), validation::failure_reason(&evidence)) {
            (0, None) => None,
            (1, None) => Some("its check passes".into()),
            (count, None) => Some(format!("all {count} checks pass")),
            (_, Some(reason)) => Some(format!(
                "a check fails: {}",
                reason.lines().next().unwrap_or_default()
            )),
        };
    }
    let Capture {
        commit,
        base,
        changed,
    } = part;
    Ok(WorkVerdict::Passed {
        commit,
        base,
        changed,
    })
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

/// Returns whether the agent reported, in its result or with a tool, that the task needs no change.
fn reports_not_needed(engine: &Engine, context: &AttemptContext, findings: &WorkFindings) -> bool {
    let board = engine.board();
    let tool_result = board
        .attempts
        .get(&context.attempt.id)
        .and_then(|attempt| attempt.result.as_ref());
    let with_tool = tool_result.is_some_and(|result| result.status == ResultStatus::NotNeeded);
    match findings.result.as_ref().map(|result| result.status) {
        // After the agent reported "not needed" with a tool, its program may still write a result
        // that says "done". The tool's report counts.
        None | Some(ResultStatus::Done) => with_tool,
        Some(status) => status == ResultStatus::NotNeeded,
    }
}

/// Returns the verdict if a check could not run because this machine lacks a command, otherwise
/// `None`. A person must act, because another attempt would end in the same way.
fn unrunnable_verdict(context: &AttemptContext, evidence: &[CheckEvidence]) -> Option<WorkVerdict> {
    let reason = validation::unrunnable_check(evidence)?;
    Some(WorkVerdict::NeedsPerson {
        kind: WaitKind::Review,
        reason: format!("{reason}; then regatta retry {}", context.task.id),
    })
}

/// Runs the checks in the workspace of an attempt that changed nothing, and stores their output.
fn check_unchanged_workspace(
    engine: &Engine,
    context: &AttemptContext,
) -> Result<Vec<CheckEvidence>, String> {
    let mut evidence = engine.site_of(context).run_checks(&context.spec())?;
    for check in &mut evidence {
        check.output = (engine.shared.settings.redactor.0)(&check.output);
    }
    artifacts::write_evidence(engine, context.attempt.id, &evidence);
    Ok(evidence)
}

/// Gives the verdict on an attempt that reported "done" but changed nothing. If the checks fail,
/// the agent gets their output. If they pass, a person must decide, because another attempt would
/// end the same way: either the work exists already, or no check can detect that it is missing.
fn validate_unchanged(engine: &Engine, context: &AttemptContext) -> Result<WorkVerdict, String> {
    let evidence = check_unchanged_workspace(engine, context)?;
    if let Some(verdict) = unrunnable_verdict(context, &evidence) {
        return Ok(verdict);
    }
    if let Some(reason) = validation::failure_reason(&evidence) {
        return Ok(WorkVerdict::Failed {
            reason: format!("it said it was done, and nothing had changed: {reason}"),
        });
    }
    let id = context.task.id;
    let checks = if evidence.is_empty() {
        "no check can tell whether the work exists"
    } else {
        "its checks pass without a change"
    };
    let reason = format!(
        "it said it was done, and nothing had changed; {checks}. If the work is there already: \
         regatta task cancel {id}; if \
         not: regatta retry {id}"
    );
    Ok(WorkVerdict::NeedsPerson {
        kind: WaitKind::Review,
        reason,
    })
}

/// Gives the verdict on an attempt that reported "not needed". If no check could confirm that
/// report, a person must decide.
fn validate_not_needed(
    engine: &Engine,
    context: &AttemptContext,
    passed: WorkVerdict,
) -> Result<WorkVerdict, String> {
    let evidence = check_unchanged_workspace(engine, context)?;
    if let Some(verdict) = unrunnable_verdict(context, &evidence) {
        return Ok(verdict);
    }
    if let Some(reason) = validation::failure_reason(&evidence) {
        return Ok(WorkVerdict::Failed {
            reason: format!("it says that nothing has to be changed, but {reason}"),
        });
    }
    if evidence.is_empty() {
        let id = context.task.id;
        let reason = format!(
            "it says that nothing has to be changed, and no check can confirm it. If you agree: \
             regatta task cancel \
             {id}; if not: regatta retry {id}"
        );
        return Ok(WorkVerdict::NeedsPerson {
            kind: WaitKind::Review,
            reason,
        });
    }
    Ok(passed)
}

/// Returns a reason if a file that a fix-up (an attempt that repairs finished work) should have
/// repaired still has git's conflict markers, otherwise `None`.
fn leftover_conflict_markers(
    engine: &Engine,
    context: &AttemptContext,
    part: &Capture,
) -> Result<Option<String>, String> {
    for path in context.task.fixup.iter().flat_map(|fixup| &fixup.paths) {
        let file = engine
            .shared
            .git
            .file_at(&context.repo, &part.commit, path)
            .map_err(|error| error.to_string())?;
        let has_line_with = |marker: &[u8]| {
            file.as_ref().is_some_and(|file| {
                file.split(|byte| *byte == b'\n')
                    .any(|line| line.starts_with(marker))
            })
        };
        if has_line_with(b"<<<<<<< ") && has_line_with(b">>>>>>> ") {
            return Ok(Some(format!("{path} still has conflict markers")));
        }
    }
    Ok(None)
}

/// Adds the agent's result, and everything that the agent reported during its work, to `findings`.
/// Returns the status and the explanation from the agent's result file, or `None` without a result
/// file.
fn apply_report(
    engine: &Engine,
    context: &AttemptContext,
    report: WorkerReport,
    findings: &mut WorkFindings,
) -> Option<(ResultStatus, String)> {
    let redact = |text: &str| (engine.shared.settings.redactor.0)(text);
    let (mut status, mut reports_no_workspace) = (None, false);
    match report.result {
        // An agent that has Regatta's tools reports its result with the tool `finish` and writes no
        // file.
        None => {
            let board = engine.board();
            findings.result = board
                .attempts
                .get(&context.attempt.id)
                .and_then(|attempt| attempt.result.clone());
        }
        Some(Err(why)) => findings
            .warnings
            .push(format!("its result could not be read: {why}")),
        Some(Ok(ParsedResult {
            result,
            findings: reported_findings,
            is_workspace_empty,
        })) => {
            reports_no_workspace = is_workspace_empty;
            status = Some((result.status, redact(&result.detail)));
            findings.reported.extend(reported_findings);
            findings.result = Some(WorkResult {
                detail: redact(&result.detail),
                learnings: result
                    .learnings
                    .iter()
                    .map(|learning| redact(learning))
                    .collect(),
                ..result
            });
        }
    }
    let no_workspace = reports_no_workspace.then_some(IsolationBreach::NoWorkspace);
    let breach = report
        .other_dir
        .map(|path| IsolationBreach::OtherDirectory { path })
        .or(no_workspace);
    if let Some(breach) = breach {
        isolation::report_breach(engine, context, breach);
    }
    findings.reported.extend(report.escapes);
    for finding in &mut findings.reported {
        finding.finding = redact(&finding.finding);
    }
    status
}

/// Returns `detail`, an agent's explanation of its result, or a placeholder if the explanation is
/// empty.
fn detail_or_placeholder(detail: &str) -> &str {
    if detail.trim().is_empty() {
        "it does not say why"
    } else {
        detail.trim()
    }
}

/// Returns a reason if a new test file has a name that the test tools of its language do not find,
/// otherwise `None`.
fn misnamed_test(
    engine: &Engine,
    context: &AttemptContext,
    part: &Capture,
) -> Result<Option<String>, String> {
    if !context.project.settings.run.test_names {
        return Ok(None);
    }
    // A file whose existence cannot be determined counts as existing, because the error is not the
    // agent's fault.
    let exists = |path: &str| {
        engine
            .shared
            .git
            .file_at(&context.repo, &part.commit, path)
            .map_or(true, |content| content.is_some())
    };
    let suspects: Vec<(&String, String)> = part
        .changed
        .iter()
        .filter_map(|path| test_names::naming_problem(path, exists).map(|problem| (path, problem)))
        .collect();
    if suspects.is_empty() {
        return Ok(None);
    }
    // Only the names of new files are checked, so find out which of these files are new. The lines
    // that they add are not needed.
    let changes = engine
        .shared
        .git
        .changed_files(&context.repo, part, false)
        .map_err(|error| error.to_string())?;
    let is_new = |path: &String| {
        changes
            .iter()
            .any(|change| change.is_new && change.path == *path)
    };
    let misnamed = suspects.into_iter().find(|(path, _)| is_new(path));
    Ok(misnamed.map(|(_, problem)| problem))
}

/// Compares a change with the project's standing rules (such as "no `panic!`"). Returns the reason
/// if a rule blocks the change, and adds the rules' warnings to `findings`.
fn violated_rule(
    engine: &Engine,
    context: &AttemptContext,
    part: &Capture,
    findings: &mut WorkFindings,
) -> Result<Option<String>, String> {
    let rules = &context.project.settings.rule;
    if rules.is_empty() {
        return Ok(None);
    }
    let needs_lines = project_rules::has_text_rule(rules);
    let changes = engine
        .shared
        .git
        .changed_files(&context.repo, part, needs_lines)
        .map_err(|error| error.to_string())?;
    let changed: Vec<_> = changes
        .iter()
        .map(|change| ChangedFile {
            path: &change.path,
            added: &change.added_lines,
        })
        .collect();
    let matches = project_rules::rules_at_landing(rules, context.task.issue_type, &changed);
    let redact = |text: String| (engine.shared.settings.redactor.0)(&text);
    for rule_match in matches
        .iter()
        .filter(|rule_match| rule_match.rule.action == RuleAction::Warn)
    {
        findings.warnings.push(redact(rule_match.sentence()));
    }
    let block = matches
        .iter()
        .find(|rule_match| rule_match.rule.action == RuleAction::Block);
    Ok(block.map(|rule_match| {
        redact(format!(
            "a standing rule blocks it, {}",
            rule_match.sentence()
        ))
    }))
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
