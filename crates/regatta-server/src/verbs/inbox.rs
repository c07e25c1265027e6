//! Implements the API verbs with which people decide and control: the inbox, policy, budgets, cost,
//! messages to agents, pauses and retries.
//!
//! The module `regatta_core::inbox` decides which items are in the inbox.

use regatta_api::cost_tables::CostGrouping;
use regatta_api::view::{CostView, InboxDecisionView, JournalRecordView, ResumeAnswer, TellView};
use regatta_core::approval::Approval;
use regatta_core::ids::ApprovalId;
use regatta_core::intervention::TellOutcome;
use regatta_core::policy::PolicyRule;
use regatta_core::reference::Reference;
use regatta_core::refusal::Refusal;

use super::*;
use crate::cost_index::{CostInput, MAX_MEASURED_CHANGES};

impl VerbHandler<'_> {
    pub(super) async fn tell(&self, input: input::IdWithText) -> Reply<TellView> {
        let task = self.resolve_active_task(&input.id, &resolve_id::TELL)?;
        match self
            .run(Command::Tell {
                task,
                text: input.text,
            })
            .await?
        {
            (revision, CommandOutcome::Tell(outcome)) => {
                let attempt = if let TellOutcome::RunningSession(id) = outcome {
                    Some(id)
                } else {
                    None
                };
                reply(revision, TellView { task, attempt })
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn pause(&self, input: input::IdWithText) -> Reply<TaskView> {
        let task = self.resolve_active_task(&input.id, &resolve_id::PAUSE)?;
        let reason = if input.text.is_empty() {
            "paused by a person".to_owned()
        } else {
            input.text
        };
        self.run_on_task(task, Command::PauseTask { task, reason })
            .await
    }

    /// Resumes the mission, task, agent or provider with this id.
    pub(super) async fn resume(&self, input: input::IdInput) -> Reply<ResumeAnswer> {
        let id = input.id.as_str();
        match self.resolve_reference(id, &resolve_id::RESUME)? {
            Reference::Mission(mission) => {
                let (revision, _) = self.run(Command::ResumeMission { mission }).await?;
                reply(revision, ResumeAnswer::Mission(Done::Done))
            }
            // The id can also be the name of a parked provider, such as `anthropic`. Its agents get
            // no work until a person resumes the provider.
            Reference::Agent(agent) if self.is_agent_or_parked(&agent) => {
                if self.board().agents.contains_key(&agent) {
                    self.require_startable_agent(std::slice::from_ref(&agent))
                        .await?;
                }
                let (revision, _) = self
                    .run(Command::ResumeAgent {
                        agent: agent.clone(),
                    })
                    .await?;
                let board = self.board();
                let view = board
                    .agents
                    .get(&agent)
                    .map(|agent| Box::new(AgentView::new(&board, agent, self.engine().now())));
                reply(revision, ResumeAnswer::Agent(view))
            }
            _ => {
                let task = self.resolve_active_task(id, &resolve_id::RESUME)?;
                let answer = self.run_on_task(task, Command::ResumeTask { task }).await?;
                Ok(answer.map(|task| ResumeAnswer::Task(Box::new(task))))
            }
        }
    }

    fn is_agent_or_parked(&self, name: &AgentName) -> bool {
        let board = self.board();
        board.agents.contains_key(name) || board.parked.contains_key(name.as_str())
    }

    pub(super) async fn retry(&self, input: input::IdInput) -> Reply<TaskView> {
        let task: TaskId = parse_id(&input.id)?;
        let failed_task = match self.board().ended_status(task) {
            Some(status) if status.is_unsuccessful() => {
                let stored = self.read_history(move |history| history.task(task)).await?;
                Some(Box::new(stored.ok_or_else(|| {
                    Problem::from(&Refusal::NoSuchTask { task })
                })?))
            }
            Some(status) => return Err(Problem::from(&Refusal::Finished { task, status })),
            None => None,
        };
        match self
            .run(Command::RetryTask {
                task,
                failed: failed_task,
            })
            .await?
        {
            (revision, CommandOutcome::Task(id)) => reply(revision, self.task_view(id).await?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn attempt_transcript(
        &self,
        input: input::TranscriptQuery,
    ) -> Reply<Vec<JournalRecordView>> {
        let (agents, limit) = (self.engine().agents().clone(), input.limit.clamp(1, 1_000));
        let lines =
            run_blocking(move || agents.transcript(input.attempt, input.from, limit)).await?;
        let lines = lines.map_err(|error| Problem::new(500, "io", error.message, error.hint))?;
        let views: Vec<JournalRecordView> = lines
            .into_iter()
            .map(|transcript_line| JournalRecordView {
                n: transcript_line.record.position,
                at_wall: transcript_line.record.written_unix_ms,
                stream: serde_json::to_value(transcript_line.record.stream)
                    .ok()
                    .and_then(|value| value.as_str().map(str::to_owned))
                    .unwrap_or_default(),
                line: transcript_line.record.line,
                said: transcript_line.events,
            })
            .collect();
        reply(self.board().revision, views)
    }

    pub(super) async fn inbox_list(
        &self,
        input: input::ProjectFilter,
        page: &PageRequest,
    ) -> PageReply<Vec<InboxView>> {
        self.require_project(input.project.as_ref())?;
        let board = self.board();
        let items = InboxView::selected(&board, input.project.as_ref(), self.engine().now());
        let items = page.select(
            items,
            |open_item| open_item.item.to_string(),
            |open_item| InboxView::new(&board, open_item),
        )?;
        reply(board.revision, items)
    }

    /// Returns all inbox items, including those that are hidden for some time.
    fn inbox_items(&self) -> Vec<InboxView> {
        InboxView::list(&self.board(), None, self.engine().now())
    }

    pub(super) async fn inbox_answer(&self, input: input::InboxAnswer) -> Reply<InboxDecisionView> {
        let approval: ApprovalId = input.id;
        let also = if input.alike {
            self.identical_requests(approval)
        } else {
            vec![]
        };
        let command = Command::Decide {
            approval,
            answer: input.answer,
            scope: input.reach,
            also,
        };
        let (revision, answered) = match self.run(command).await {
            Ok((revision, CommandOutcome::Decided(answered))) => (revision, answered),
            // An older version of Regatta stored this outcome for an idempotency key. A repeated
            // request with that key gets the stored outcome.
            Ok((revision, CommandOutcome::Done)) => (revision, vec![approval]),
            Ok(other) => return Err(unexpected_outcome(&other.1)),
            Err(late) if late.code == "already_answered" => {
                return Err(self.already_answered(approval, late).await);
            }
            Err(problem) => return Err(problem),
        };
        // An answer that applies to more than this one request has added a rule to the policy.
        // Report all added rules.
        let mut rules: Vec<String> = Vec::new();
        let mut decided = None;
        for id in &answered {
            let found = self.find_approval(*id).await?;
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
        let rule = decided
            .as_ref()
            .and_then(|approval| approval.decision.as_ref())
            .and_then(|approval_decision| approval_decision.rule.clone());
        reply(
            revision,
            InboxDecisionView {
                id: approval,
                task: decided.as_ref().map(|approval| approval.task),
                agent: decided.as_ref().map(|approval| approval.agent.clone()),
                subject: decided.as_ref().map(|approval| approval.subject()),
                rule,
                rules,
                answered: answered.len(),
                left: self
                    .inbox_items()
                    .iter()
                    .filter(|inbox| inbox.is_shown())
                    .count(),
            },
        )
    }

    /// Returns an agent's request from the board (the daemon's state in memory) or from the store.
    /// The board may have removed the request together with its task, because an answer can be the
    /// last thing that a task needs to land.
    pub(super) async fn find_approval(&self, id: ApprovalId) -> Result<Option<Approval>, Problem> {
        match self.board().approvals.get(&id) {
            Some(found) => Ok(Some(Approval::clone(found))),
            None => self.read_history(move |history| history.approval(id)).await,
        }
    }

    /// Adds to an error the name of the person or agent that answered the request first. If the
    /// attempt that made the request has ended, the name is read from the store.
    async fn already_answered(&self, id: ApprovalId, problem: Problem) -> Problem {
        if self.board().approvals.contains_key(&id) {
            return problem;
        }
        let stored = self.read_history(move |history| history.approval(id)).await;
        match stored.ok().flatten().and_then(|approval| approval.decision) {
            Some(decision) => {
                let by = decision.by.display_name().to_owned();
                Problem::from(&Refusal::AlreadyAnswered { approval: id, by })
            }
            None => problem,
        }
    }

    /// Returns the other open requests that ask for exactly the same thing as the request `id`.
    fn identical_requests(&self, id: ApprovalId) -> Vec<ApprovalId> {
        let items = self.inbox_items();
        let Some(group_key) = items
            .iter()
            .find(|inbox| inbox.id == id.to_string())
            .map(InboxView::group_key)
        else {
            return vec![];
        };
        let others = items
            .iter()
            .filter(|inbox| inbox.group_key() == group_key)
            .filter_map(|inbox| inbox.id.parse().ok());
        others.filter(|other| *other != id).collect()
    }

    pub(super) async fn inbox_snooze(&self, input: input::InboxSnooze) -> Reply<Option<InboxView>> {
        let id = input.id.to_string();
        let (revision, _) = self
            .run(Command::Snooze {
                item: input.id,
                ms: input.ms,
            })
            .await?;
        reply(
            revision,
            self.inbox_items().into_iter().find(|inbox| inbox.id == id),
        )
    }

    pub(super) async fn policy_add(&self, input: input::PolicyAdd) -> Reply<PolicyRule> {
        match self
            .run(Command::AddRule {
                scope: input.scope,
                effect: input.effect,
                subject: input.matter,
            })
            .await?
        {
            (revision, CommandOutcome::Rule(id)) => {
                let board = self.board();
                let rule = board.rules.get(&id);
                let rule = rule.ok_or_else(|| fleet::removed_meanwhile("rule"))?;
                reply(revision, PolicyRule::clone(rule))
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn cost(&self, input: input::CostQuery) -> Reply<CostView> {
        let (shared, board, now) = (self.shared.clone(), self.board(), self.engine().now());
        let (days, by) = (
            input.days,
            input.by.map_or_else(
                || CostGrouping::ALL.to_vec(),
                |cost_grouping| vec![cost_grouping],
            ),
        );
        let revision = board.revision;
        let view = run_blocking(move || {
            let (history, git) = (&**shared.engine.history(), shared.engine.git());
            let cost_input = CostInput {
                board: &board,
                now,
                history,
                git,
                max_measured: MAX_MEASURED_CHANGES,
            };
            shared.cost_index.cost_view(&cost_input, days, &by)
        });
        reply(revision, view.await?.map_err(problem_from_store)?)
    }

    pub(super) async fn budget_set(&self, input: input::BudgetSet) -> Reply<BudgetsView> {
        let (revision, _) = self
            .run(Command::SetBudget {
                scope: input.scope,
                ceiling: input.ceiling,
            })
            .await?;
        reply(
            revision,
            BudgetsView::new(&self.board(), self.engine().now(), 0),
        )
    }
}
