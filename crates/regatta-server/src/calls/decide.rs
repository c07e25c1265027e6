//! Verbs of decisions and control: the inbox, policy, budgets; messages, pauses and retries.

use regatta_api::view::LineView;
use regatta_core::approval::Approval;
use regatta_core::cost::By;
use regatta_core::ids::ApprovalId;
use regatta_core::reference::Reference;
use regatta_core::refusal::Refusal;
use regatta_core::steer::Heard;

use super::*;
use crate::spent::{Ground, MOST_MEASURED};

impl Caller<'_> {
    pub(super) async fn tell(&self, ask: input::Said) -> Json {
        let task = self.task_at_work(&ask.id, &refer::TELL)?;
        match self.ask(Command::Tell { task, text: ask.text }).await? {
            (revision, Outcome::Told(heard)) => {
                let attempt = if let Heard::Now(id) = heard { Some(id) } else { None };
                answer(revision, &serde_json::json!({ "task": task, "attempt": attempt }))
            }
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn pause(&self, ask: input::Said) -> Json {
        let task = self.task_at_work(&ask.id, &refer::PAUSE)?;
        let reason = if ask.text.is_empty() { "paused by a person".to_owned() } else { ask.text };
        self.task(task, Command::PauseTask { task, reason }).await
    }

    /// Resumes a mission, a task or an agent.
    pub(super) async fn resume(&self, id: &str) -> Json {
        match self.refer(id, &refer::RESUME)? {
            Reference::Mission(mission) => self.done(Command::ResumeMission { mission }).await,
            // A parked provider is resumed by its own name.
            Reference::Agent(agent) if self.is_agent_or_parked(&agent) => {
                let (revision, _) = self.ask(Command::ResumeAgent { agent: agent.clone() }).await?;
                let board = self.board();
                let view = board.agents.get(&agent).map(|agent| AgentView::of(&board, agent, self.engine().now()));
                answer(revision, &view)
            }
            _ => {
                let task = self.task_at_work(id, &refer::RESUME)?;
                self.task(task, Command::ResumeTask { task }).await
            }
        }
    }

    fn is_agent_or_parked(&self, name: &AgentName) -> bool {
        let board = self.board();
        board.agents.contains_key(name) || board.parked.contains_key(name.as_str())
    }

    pub(super) async fn retry(&self, id: &str) -> Json {
        let task: TaskId = parse(id)?;
        let failed = match self.board().settled(task) {
            Some(task::Status::Failed | task::Status::Cancelled) => {
                let found = self.read(move |history| history.task(task)).await?;
                Some(Box::new(found.ok_or_else(|| Problem::from(&Refusal::NoSuchTask { task }))?))
            }
            Some(status) => return Err(Problem::from(&Refusal::Finished { task, status })),
            None => None,
        };
        match self.ask(Command::RetryTask { task, failed }).await? {
            (revision, Outcome::Task(id)) => answer(revision, &self.task_view(id).await?),
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn transcript(&self, ask: input::Transcript) -> Json {
        let (agents, limit) = (self.engine().agents().clone(), ask.limit.clamp(1, 1_000));
        let lines = blocking(move || agents.transcript(ask.attempt, ask.from, limit)).await?;
        let lines = lines.map_err(|it| Problem::new(500, "io", it.what, it.hint))?;
        let views: Vec<LineView> = lines
            .into_iter()
            .map(|it| LineView {
                n: it.record.n,
                at_wall: it.record.at,
                stream: serde_json::to_value(it.record.stream)
                    .ok()
                    .and_then(|it| it.as_str().map(str::to_owned))
                    .unwrap_or_default(),
                line: it.record.line,
                said: it.said,
            })
            .collect();
        answer(self.board().revision, &views)
    }

    pub(super) fn inbox(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let board = self.board();
        answer(board.revision, &InboxView::all(&board, ask.project.as_ref(), self.engine().now()))
    }

    /// Returns all inbox items, including hidden ones.
    fn items(&self) -> Vec<InboxView> {
        InboxView::all(&self.board(), None, self.engine().now())
    }

    pub(super) async fn decide(&self, ask: input::Decide) -> Json {
        let approval: ApprovalId = ask.id;
        let also = if ask.alike { self.alike(approval) } else { vec![] };
        let command = Command::Decide { approval, answer: ask.answer, reach: ask.reach, also };
        let (revision, answered) = match self.ask(command).await {
            Ok((revision, Outcome::Decided(answered))) => (revision, answered),
            // An older version stored this outcome for the request's key.
            Ok((revision, Outcome::Done)) => (revision, vec![approval]),
            Ok(other) => return Err(unexpected(&other.1)),
            Err(late) if late.code == "already_answered" => return Err(self.answered_before(approval, late).await),
            Err(problem) => return Err(problem),
        };
        // Each answer that reaches further than this request added a rule.
        let mut rules: Vec<String> = Vec::new();
        let mut decided = None;
        for id in &answered {
            let found = self.approval(*id).await?;
            let decision = found.as_ref().and_then(|found| found.decision.as_ref());
            if let Some(rule) = decision.and_then(|decision| decision.rule.clone())
                && !rules.contains(&rule)
            {
                rules.push(rule);
            }
            if *id == approval {
                decided = found;
            }
        }
        let rule = decided.as_ref().and_then(|it| it.decision.as_ref()).and_then(|it| it.rule.clone());
        answer(
            revision,
            &serde_json::json!({
                "id": approval,
                "task": decided.as_ref().map(|it| it.task),
                "agent": decided.as_ref().map(|it| it.agent.clone()),
                "subject": decided.as_ref().map(|it| it.subject()),
                "rule": rule,
                "rules": rules,
                "answered": answered.len(),
                "left": self.items().iter().filter(|it| it.is_awake()).count(),
            }),
        )
    }

    /// Returns a request. The board drops it with its task, because an answer may let the task
    /// land.
    pub(super) async fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, Problem> {
        match self.board().approvals.get(&id) {
            Some(found) => Ok(Some(Approval::clone(found))),
            None => self.read(move |history| history.approval(id)).await,
        }
    }

    /// Returns a refusal that names who answered a request before. If the attempt has ended since,
    /// only the store knows.
    async fn answered_before(&self, id: ApprovalId, late: Problem) -> Problem {
        if self.board().approvals.contains_key(&id) {
            return late;
        }
        let found = self.read(move |history| history.approval(id)).await;
        match found.ok().flatten().and_then(|it| it.decision) {
            Some(it) => {
                let by = it.by.who().to_owned();
                Problem::from(&Refusal::AlreadyAnswered { approval: id, by })
            }
            None => late,
        }
    }

    /// Returns the other open requests that are identical to a request.
    fn alike(&self, id: ApprovalId) -> Vec<ApprovalId> {
        let all = self.items();
        let Some(group) = all.iter().find(|it| it.id == id.to_string()).map(InboxView::group) else { return vec![] };
        let others = all.iter().filter(|it| it.group() == group).filter_map(|it| it.id.parse().ok());
        others.filter(|it| *it != id).collect()
    }

    pub(super) async fn snooze(&self, ask: input::Snooze) -> Json {
        let id = ask.id.to_string();
        let (revision, _) = self.ask(Command::Snooze { item: ask.id, ms: ask.ms }).await?;
        answer(revision, &self.items().into_iter().find(|it| it.id == id))
    }

    pub(super) async fn policy_add(&self, ask: input::PolicyAdd) -> Json {
        match self.ask(Command::AddRule { scope: ask.scope, effect: ask.effect, matter: ask.matter }).await? {
            (revision, Outcome::Rule(id)) => answer(revision, &self.board().rules.get(&id)),
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn cost(&self, ask: &input::Cost) -> Json {
        let (shared, board, now) = (self.shared.clone(), self.board(), self.engine().now());
        let (days, by) = (ask.days, ask.by.map_or_else(|| By::ALL.to_vec(), |it| vec![it]));
        let revision = board.revision;
        let view = blocking(move || {
            let (history, git) = (&**shared.engine.history(), &**shared.engine.git());
            let ground = Ground { board: &board, now, history, git, measured: MOST_MEASURED };
            shared.spent.cost(&ground, days, &by)
        });
        answer(revision, &view.await?.map_err(unread)?)
    }

    pub(super) async fn budget_set(&self, ask: input::BudgetSet) -> Json {
        let (revision, _) = self.ask(Command::SetBudget { scope: ask.scope, ceiling: ask.ceiling }).await?;
        answer(revision, &BudgetsView::of(&self.board(), self.engine().now(), 0))
    }
}
