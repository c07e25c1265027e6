//! Implements the API verbs for scope escapes, standing rules and results of checks. A scope escape
//! is a change outside the files that a task may change. A standing rule is a rule of a project for
//! all its work.
//!
//! A scope escape is stored with its task, so listing escapes reads the tasks.

use regatta_api::view::{CheckResultView, EscapeView, RuleMatchView, RuleView};
use regatta_core::pattern::PathPattern;
use regatta_core::project::RuleAction;
use regatta_core::project_rules::{self, ChangedFile, RuleMatch};

use regatta_core::task;

use super::*;

impl VerbHandler<'_> {
    pub(super) async fn attempt_checks(
        &self,
        input: input::AttemptChecksInput,
        page: &PageRequest,
    ) -> PageReply<Vec<CheckResultView>> {
        let attempt = input.attempt;
        if self
            .read_history(move |history| history.attempt(attempt))
            .await?
            .is_none()
        {
            return Err(Problem::new(
                404,
                "no_such_attempt",
                format!("there is no attempt {attempt}"),
                "see the attempts: regatta status",
            ));
        }
        let engine = self.engine().clone();
        let results = run_blocking(move || engine.check_evidence(attempt)).await?;
        let results = results.map_err(|results| {
            Problem::new(
                500,
                "io",
                results,
                "check the daemon's data directory: regatta doctor",
            )
        })?;
        let views = page.select(
            results,
            |check_evidence| check_evidence.check.clone(),
            |check_evidence| CheckResultView {
                check: check_evidence.check,
                passed: check_evidence.passed,
                how: check_evidence.outcome,
                output: check_evidence.output,
                ms: check_evidence.duration_ms,
            },
        )?;
        reply(self.board().revision, views)
    }

    pub(super) async fn scope_report(&self, input: input::ScopeReport) -> Reply<Vec<EscapeView>> {
        let input::ScopeReport {
            task,
            attempt,
            token,
            finding,
            suggested_files,
        } = input;
        let finding = regatta_core::scope_escape::ScopeFinding {
            finding,
            suggested_files,
        };
        let (revision, _) = self
            .run(Command::ReportEscape {
                task,
                attempt,
                token,
                finding,
            })
            .await?;
        let task = self.task_view(task).await?.task;
        reply(revision, EscapeView::list(std::slice::from_ref(&task)))
    }

    pub(super) async fn scope_list(
        &self,
        input: input::ProjectFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<EscapeView>> {
        self.require_project(input.project.as_ref())?;
        let filter = TaskFilter {
            project: input.project,
            ..TaskFilter::default()
        };
        let tasks = self
            .read_history(move |history| history.tasks(&filter))
            .await?;
        let escapes = page.select(
            EscapeView::positions(&tasks),
            |(task, nth)| regatta_core::scope_escape::escape_name(task.id, *nth),
            |(task, nth)| EscapeView::new(task, nth, &tasks),
        )?;
        reply(self.board().revision, escapes)
    }

    pub(super) async fn scope_follow(&self, input: input::IdInput) -> Reply<TaskView> {
        let id = input.id.as_str();
        let Some((task, nth)) = regatta_core::scope_escape::parse_escape_name(id) else {
            return Err(Problem::new(
                400,
                "usage",
                format!(
                    "{id:?} is not the id of a scope escape (a change outside its task's files)"
                ),
                "give an id such as T3.1; see all of them: regatta scope",
            ));
        };
        let found = self.read_history(move |history| history.task(task)).await?;
        let origin = found
            .ok_or_else(|| Problem::from(&regatta_core::refusal::Refusal::NoSuchTask { task }))?;
        let add = regatta_core::scope_escape::follow_up(&origin, nth)
            .map_err(|refusal| Problem::from(&refusal))?;
        let filter = TaskFilter {
            project: Some(origin.project.clone()),
            ..TaskFilter::default()
        };
        let alias = add.alias.clone();
        let known = self
            .read_history(move |history| history.tasks(&filter))
            .await?;
        if let Some(known) = known.iter().find(|task| task.alias == alias) {
            let what = format!("{id} already has a follow-up task, {}", known.id);
            return Err(Problem::new(
                409,
                "already_exists",
                what,
                format!("see the follow-up task: regatta show {}", known.id),
            ));
        }
        match self
            .run(Command::AddTask {
                task: add,
                assign: None,
                how: task::AssignMode::Direct,
            })
            .await?
        {
            (revision, CommandOutcome::Task(id)) => reply(revision, self.task_view(id).await?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn rule_list(
        &self,
        input: input::ProjectFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<RuleView>> {
        self.require_project(input.project.as_ref())?;
        let board = self.board();
        let projects = fleet::selected_projects(&board, input.project.as_ref());
        let rules = projects.iter().flat_map(|project| {
            project
                .settings
                .rule
                .iter()
                .map(move |rule| (project, rule))
        });
        let views = page.select(
            rules,
            |(_, rule)| rule.name.to_string(),
            |(project, rule)| RuleView {
                project: project.name.clone(),
                rule: rule.clone(),
            },
        )?;
        reply(board.revision, views)
    }

    pub(super) async fn rule_test(&self, input: input::RuleTest) -> Reply<Vec<RuleMatchView>> {
        let (project, issue_type, files) = match input.task {
            Some(id) => {
                let found = self.task_view(id).await?.task;
                (found.project, found.issue_type, found.files)
            }
            None => (
                self.resolve_project(input.project)?,
                input.issue_type,
                input.files,
            ),
        };
        let board = self.board();
        let rules = board
            .projects
            .get(&project)
            .map(|project| project.settings.rule.clone())
            .unwrap_or_default();
        let view = |before: &str, rule_match: &RuleMatch<'_>| RuleMatchView {
            before: before.into(),
            action: rule_match.rule.action,
            words: rule_match.sentence(),
        };
        // Before a task starts there are no changes. So a rule that looks for a text in changes can
        // only warn at that time.
        let view_at_start =
            |rule_match: &RuleMatch<'_>| match (rule_match.rule.action, &rule_match.rule.pattern) {
                (RuleAction::Block, Some(_)) => RuleMatchView {
                    action: RuleAction::Warn,
                    ..view("start", rule_match)
                },
                _ => view("start", rule_match),
            };
        let mut matches: Vec<RuleMatchView> =
            project_rules::rules_at_start(&rules, issue_type, &files)
                .iter()
                .map(view_at_start)
                .collect();
        if let Some(line) = input.line {
            let added_lines = [line];
            // If the caller names no file, test the line as if it had been added to any file.
            let paths = if files.is_empty() {
                vec!["any file"]
            } else {
                files.iter().map(PathPattern::as_str).collect()
            };
            let changed: Vec<ChangedFile<'_>> = paths
                .into_iter()
                .map(|path| ChangedFile {
                    path,
                    added: &added_lines,
                })
                .collect();
            matches.extend(
                project_rules::rules_at_landing(&rules, issue_type, &changed)
                    .iter()
                    .map(|rule_match| view("landing", rule_match)),
            );
        }
        reply(board.revision, matches)
    }
}
