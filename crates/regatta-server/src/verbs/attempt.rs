//! Implements the API verbs that a running attempt (one run of an agent on a task) calls: requests
//! to people, and information about its task and other attempts.

use std::sync::atomic::{AtomicU64, Ordering};

use regatta_api::view::{AttemptRequestView, BriefingView, SiblingAttemptView, TaskBriefView};
use regatta_core::agent_protocol::{
    AgentRequest, PermissionOption, PermissionOptionKind, RequestContent, ToolCall, ToolKind,
    ToolStatus,
};
use regatta_core::attempt::Attempt;
use regatta_core::ids::ApprovalId;
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;

use super::*;

/// Number of recently landed changes that an attempt's briefing (the information for its agent)
/// lists.
const MAX_RECENT_LANDINGS: usize = 10;

/// Counter that makes the ids of requests to people unique even within the same millisecond.
static REQUEST_COUNTER: AtomicU64 = AtomicU64::new(0);

/// Returns the other running attempts in the project of an attempt, with their tasks.
fn siblings_of<'a>(
    board: &'a Board,
    attempt: &'a Attempt,
) -> impl Iterator<Item = (&'a Attempt, &'a Task)> {
    let others = board
        .attempts
        .values()
        .filter(|other| other.project == attempt.project && other.id != attempt.id);
    others.filter_map(|other| Some((&**other, &**board.tasks.get(&other.task)?)))
}

fn sibling_view((attempt, task): (&Attempt, &Task)) -> SiblingAttemptView {
    SiblingAttemptView {
        agent: attempt.agent.clone(),
        attempt: attempt.id,
        task: task.id,
        subject: task.subject.clone(),
        files: task.files.clone(),
        progress: task.progress.clone(),
    }
}

impl VerbHandler<'_> {
    fn require_live_attempt(&self, id: AttemptId) -> Result<Arc<Attempt>, Problem> {
        self.board().attempts.get(&id).cloned().ok_or_else(|| {
            Problem::new(
                404,
                "no_such_attempt",
                format!("the attempt {id} is not running"),
                "see the running attempts: regatta status",
            )
        })
    }

    /// Puts an attempt's question or permission request into the inbox, and waits for the answer as
    /// long as the caller wants.
    pub(super) async fn attempt_ask(&self, input: input::AttemptAsk) -> Reply<AttemptRequestView> {
        let id = match &self.idempotency_key {
            Some(key) => format!("tool-{key}"),
            None => format!(
                "tool-{}-{}",
                self.engine().now().unix_ms,
                REQUEST_COUNTER.fetch_add(1, Ordering::Relaxed)
            ),
        };
        let content = match input.permission {
            Some(requested_action) => {
                let option = |id: &str, kind| PermissionOption {
                    id: id.into(),
                    name: id.into(),
                    kind,
                };
                let mut tool = ToolCall {
                    id: id.clone(),
                    title: requested_action.title,
                    kind: requested_action.kind,
                    status: ToolStatus::Pending,
                    command: requested_action.command,
                    paths: requested_action.paths,
                    urls: requested_action.urls,
                    ..ToolCall::default()
                };
                // If the request for permission names no command, file or address, a person can
                // judge it only by its title. So the title is shown in place of them.
                if tool.kind == ToolKind::Other && tool.object().is_none() {
                    tool.arguments =
                        Some(tool.title.clone()).filter(|title| !title.trim().is_empty());
                }
                let options = vec![
                    option("allow", PermissionOptionKind::AllowOnce),
                    option("deny", PermissionOptionKind::RejectOnce),
                ];
                RequestContent::Permission { tool, options }
            }
            None => RequestContent::Question {
                text: input.question,
                choices: input.choices,
                schema: None,
            },
        };
        let command = Command::Ask {
            task: input.task,
            attempt: input.attempt,
            token: input.token,
            request: AgentRequest { id, content },
        };
        match self.run(command).await? {
            (_, CommandOutcome::Approval(id)) => {
                let wait_ms = self
                    .continue_without_answer(input.attempt, id, input.assume, input.wait_ms)
                    .await?;
                self.wait_for_answer(input.attempt, id, wait_ms).await
            }
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn attempt_answer(
        &self,
        input: input::AttemptAnswer,
    ) -> Reply<AttemptRequestView> {
        let wait_ms = self
            .continue_without_answer(input.attempt, input.id, input.assume, input.wait_ms)
            .await?;
        self.wait_for_answer(input.attempt, input.id, wait_ms).await
    }

    /// If the caller states an assumption, records that the agent continues with that assumption
    /// instead of an answer. Returns the time for which the caller still has to wait: 0 with an
    /// assumption, `wait_ms` without.
    async fn continue_without_answer(
        &self,
        attempt: AttemptId,
        id: ApprovalId,
        assume: Option<String>,
        wait_ms: u64,
    ) -> Result<u64, Problem> {
        let Some(assumed) = assume else {
            return Ok(wait_ms);
        };
        let live = self.require_live_attempt(attempt)?;
        let command = Command::ContinueWithoutAnswer {
            task: live.task,
            attempt,
            token: live.token,
            approval: id,
            assumed,
        };
        // This command has no idempotency key, because the call's key was already used for the
        // question itself.
        match self
            .engine()
            .submit_async(Request {
                by: self.actor.clone(),
                key: None,
                command,
            })
            .await
        {
            Ok(_) => Ok(0),
            Err(CommandFailure::Refused {
                refusal: Refusal::AlreadyAnswered { .. },
                ..
            }) => Ok(0),
            Err(CommandFailure::Refused { refusal, .. }) => Err(Problem::from(&refusal)),
            Err(other) => Err(Problem::new(
                503,
                "stopping",
                other.to_string(),
                "repeat the call when the daemon runs again",
            )),
        }
    }

    async fn wait_for_answer(
        &self,
        attempt: AttemptId,
        id: ApprovalId,
        wait_ms: u64,
    ) -> Reply<AttemptRequestView> {
        let deadline = deadline(wait_ms);
        let mut board_changes = self.shared.event_fanout.watch_board();
        loop {
            board_changes.mark_unchanged();
            let board = self.board();
            let live = board.attempts.get(&attempt);
            // An attempt may also wait for the answer to a question of an earlier attempt at the
            // same task.
            let is_own = |approval: &regatta_core::approval::Approval| {
                approval.attempt == attempt
                    || (approval.is_question()
                        && live.is_some_and(|live| live.task == approval.task))
            };
            let approval = board.approvals.get(&id).filter(|approval| is_own(approval));
            let Some(approval) = approval else {
                return Err(Problem::new(
                    404,
                    "no_such_request",
                    format!("{attempt} has no request {id}"),
                    "ask a question first, and use the id in its answer",
                ));
            };
            let decision = approval.decision.as_ref();
            let view = AttemptRequestView {
                id,
                answered: decision.is_some(),
                answer: decision.map(|decision| decision.answer.clone()),
                by: decision.map(|decision| decision.by.to_string()),
                withdrawn: approval.closed,
                assumed: approval.assumed.clone(),
                is_told: live.is_some_and(|live| live.accepts_follow_ups) && approval.is_question(),
            };
            if view.answered && approval.is_question() && !approval.is_answer_read {
                let command = Command::MarkAnswerRead {
                    attempt,
                    approval: id,
                };
                // If recording fails, the only consequence is that the agent gets the answer a
                // second time. So the call succeeds anyway.
                if let Err(error) = self
                    .engine()
                    .submit_async(Request {
                        by: self.actor.clone(),
                        key: None,
                        command,
                    })
                    .await
                {
                    tracing::warn!(
                        "could not record that attempt {attempt} has read the answer to its request {id}; the agent gets the answer a second time: {error}"
                    );
                }
            }
            if view.answered
                || view.withdrawn
                || tokio::time::timeout_at(deadline, board_changes.changed())
                    .await
                    .is_err()
            {
                return reply(board.revision, view);
            }
        }
    }

    pub(super) async fn siblings(
        &self,
        input: input::AttemptIdInput,
        page: &PageRequest,
    ) -> PageReply<Vec<SiblingAttemptView>> {
        let attempt = self.require_live_attempt(input.attempt)?;
        let board = self.board();
        let siblings = page.select(
            siblings_of(&board, &attempt),
            |(sibling, _)| sibling.id.to_string(),
            sibling_view,
        )?;
        reply(board.revision, siblings)
    }

    /// Returns the briefing of an attempt, which is everything that its agent should know before it
    /// begins: the task, the mission, the other attempts, and the latest landings.
    pub(super) async fn briefing(&self, input: input::AttemptIdInput) -> Reply<BriefingView> {
        let id = input.attempt;
        let attempt = self.require_live_attempt(id)?;
        let (board, now) = (self.board(), self.engine().now());
        let task = self.task_view(attempt.task).await?;
        let project = attempt.project.clone();
        let landed_tasks = self
            .read_history(move |history| {
                let landings = history.landings(&project, MAX_RECENT_LANDINGS)?;
                let landed = landings
                    .into_iter()
                    .filter(|landing| matches!(landing.end, Some(LandingEnd::Landed { .. })));
                landed
                    .map(|landing| Ok((history.task(landing.task)?, landing)))
                    .collect::<Result<Vec<_>, _>>()
            })
            .await?;
        let brief_view = |task: &TaskView| TaskBriefView {
            task: task.task.id,
            subject: task.task.subject.clone(),
            word: task.word.clone(),
            agent: task.task.agent.clone(),
            files: task.task.files.clone(),
        };
        let mission_tasks = board
            .tasks
            .values()
            .filter(|task| attempt.mission.is_some() && task.mission == attempt.mission);
        let view = BriefingView {
            attempt: id,
            agent: attempt.agent.clone(),
            project: attempt.project.clone(),
            trunk: board
                .projects
                .get(&attempt.project)
                .map(|project| project.trunk.to_string())
                .unwrap_or_default(),
            checks: board
                .projects
                .get(&attempt.project)
                .map(|project| project.validation.clone())
                .unwrap_or_default(),
            mission: attempt
                .mission
                .and_then(|id| board.missions.get(&id))
                .map(|mission| mission.title.clone()),
            open: mission_tasks
                .map(|task| brief_view(&TaskView::new(&board, task, now)))
                .collect(),
            siblings: siblings_of(&board, &attempt).map(sibling_view).collect(),
            landed: landed_tasks
                .iter()
                .map(|(task, landing)| LandingView::from_ended(landing, task.as_ref()))
                .collect(),
            notes: attempt
                .notes
                .iter()
                .chain(&attempt.session.follow_ups)
                .cloned()
                .collect(),
            task,
        };
        reply(board.revision, view)
    }
}
