//! Verbs of scope escapes, standing rules, and results of checks.

use regatta_api::view::{EscapeView, EvidenceView, MetView, RuleView};
use regatta_core::pattern::PathPattern;
use regatta_core::project::{Project, RuleAction, StandingRule};
use regatta_core::standing::{self, Changed, Met};

use super::*;

impl Caller<'_> {
    pub(super) async fn checks(&self, attempt: AttemptId) -> Json {
        if self.read(move |history| history.attempt(attempt)).await?.is_none() {
            return Err(Problem::new(404, "no_such_attempt", format!("there is no {attempt}"), "see regatta status"));
        }
        let engine = self.engine().clone();
        let found = blocking(move || engine.evidence(attempt)).await?;
        let found = found.map_err(|it| Problem::new(500, "io", it, "check the daemon's data directory"))?;
        let views: Vec<EvidenceView> = found
            .into_iter()
            .map(|it| EvidenceView { check: it.check, passed: it.passed, how: it.how, output: it.output, ms: it.ms })
            .collect();
        answer(self.board().revision, &views)
    }

    pub(super) async fn scope_report(&self, ask: input::ScopeReport) -> Json {
        let input::ScopeReport { task, attempt, token, finding, suggested_files } = ask;
        let finding = regatta_core::scope::Finding { finding, suggested_files };
        let (revision, _) = self.ask(Command::ReportEscape { task, attempt, token, finding }).await?;
        let task = self.task_view(task).await?.task;
        answer(revision, &EscapeView::all(std::slice::from_ref(&task)))
    }

    pub(super) async fn scope_list(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let filter = TaskFilter { project: ask.project, ..TaskFilter::default() };
        let tasks = self.read(move |history| history.tasks(&filter)).await?;
        answer(self.board().revision, &EscapeView::all(&tasks))
    }

    pub(super) async fn scope_follow(&self, id: &str) -> Json {
        let Some((task, nth)) = regatta_core::scope::parse_name(id) else {
            return Err(Problem::new(
                400,
                "usage",
                format!("{id:?} is not the id of a scope escape"),
                "an id is such as T3.1; see them: regatta scope",
            ));
        };
        let found = self.read(move |history| history.task(task)).await?;
        let of = found.ok_or_else(|| Problem::from(&regatta_core::refusal::Refusal::NoSuchTask { task }))?;
        let add = regatta_core::scope::follow_up(&of, nth).map_err(|it| Problem::from(&it))?;
        let filter = TaskFilter { project: Some(of.project.clone()), ..TaskFilter::default() };
        let alias = add.alias.clone();
        let known = self.read(move |history| history.tasks(&filter)).await?;
        if let Some(known) = known.iter().find(|it| it.alias == alias) {
            let words = format!("{id} already has a follow-up task, {}", known.id);
            return Err(Problem::new(409, "already_exists", words, format!("see regatta show {}", known.id)));
        }
        match self.ask(Command::AddTask { task: add, assign: None, how: task::How::Direct }).await? {
            (revision, Outcome::Task(id)) => answer(revision, &self.task_view(id).await?),
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) fn rule_list(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let board = self.board();
        let wanted = |it: &&Arc<Project>| ask.project.as_ref().is_none_or(|name| *name == it.name);
        let view = |it: &Arc<Project>| -> Vec<RuleView> {
            let with = |rule: &StandingRule| RuleView { project: it.name.clone(), rule: rule.clone() };
            it.settings.rule.iter().map(with).collect()
        };
        let views: Vec<RuleView> = board.projects.values().filter(wanted).flat_map(view).collect();
        answer(board.revision, &views)
    }

    pub(super) async fn rule_test(&self, ask: input::RuleTest) -> Json {
        let (project, issue_type, files) = match ask.task {
            Some(id) => {
                let found = self.task_view(id).await?.task;
                (found.project, found.issue_type, found.files)
            }
            None => (self.project(ask.project)?, ask.issue_type, ask.files),
        };
        let board = self.board();
        let rules = board.projects.get(&project).map(|it| it.settings.rule.clone()).unwrap_or_default();
        let view =
            |before: &str, it: &Met<'_>| MetView { before: before.into(), action: it.rule.action, words: it.words() };
        // A rule that looks for text can only warn before a start.
        let told = |it: &Met<'_>| match (it.rule.action, &it.rule.pattern) {
            (RuleAction::Block, Some(_)) => MetView { action: RuleAction::Warn, ..view("start", it) },
            _ => view("start", it),
        };
        let mut met: Vec<MetView> = standing::at_start(&rules, issue_type, &files).iter().map(told).collect();
        if let Some(line) = ask.line {
            let added = [line];
            // If no file is given, the line may be in any file.
            let paths =
                if files.is_empty() { vec!["any file"] } else { files.iter().map(PathPattern::as_str).collect() };
            let changed: Vec<Changed<'_>> = paths.into_iter().map(|path| Changed { path, added: &added }).collect();
            met.extend(standing::at_landing(&rules, issue_type, &changed).iter().map(|it| view("landing", it)));
        }
        answer(board.revision, &met)
    }
}
