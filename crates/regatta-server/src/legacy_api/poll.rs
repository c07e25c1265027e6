//! Answers polls of older clients. A poll returns the next task for an agent, or else news such as
//! finished tasks and mentions, or else nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use regatta_api::Problem;
use regatta_core::agent::Role;
use regatta_core::attempt_scope::is_token_valid;
use regatta_core::board::{Board, ReadyFor};
use regatta_core::command::CommandOutcome;
use regatta_core::ids::{AgentName, AttemptId, RequestKey};
use regatta_core::project::Millis;
use regatta_core::schedule::{self, PollRequest};
use regatta_engine::ports::store::MessageFilter;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LegacyAnswer, LegacyResult, calling_agent};
use crate::authenticated::Authenticated;
use crate::event_fanout::WaitingPoller;
use crate::event_stream::rfc3339;
use crate::verbs::{self, RequestContext};
use crate::{ServerState, request_limits};

/// Maximum time that a poll waits for a task or news.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Maximum number of finished tasks, or of messages, in the answer to one poll.
const MAX_REPORTED: usize = 50;

#[derive(Default, Deserialize)]
pub(crate) struct PollParams {
    /// Time to wait for a task or news, such as `30s`.
    #[serde(default)]
    wait: Option<String>,
    /// A date in the format RFC 3339. If the agent is a lead (an agent that leads other agents),
    /// the answer lists the tasks that finished after this date.
    #[serde(default)]
    since: Option<String>,
    /// A number that the client gives to one of its parallel polls. If an answer was lost, the
    /// client can repeat the poll with the same number. It gets the same task again, as long as the
    /// attempt at that task is running.
    #[serde(default)]
    slot: Option<String>,
    /// True if the agent needs a workspace for its task. With `false`, a task that changes no files
    /// is given without a workspace.
    #[serde(default)]
    workspace: Option<bool>,
}

/// One poll (an agent's request for a task or news): the calling agent and the parameters.
struct Poller<'a> {
    shared: &'a Arc<ServerState>,
    agent: AgentName,
    context: RequestContext,
    needs_workspace: bool,
    /// The time since which finished tasks are reported, if the agent is a lead (an agent that
    /// leads other agents); `None` otherwise.
    finished_after_unix_ms: Option<u64>,
}

/// Handles `GET /api/poll`: assigns the next task to the agent, or returns news such as unread
/// mentions. Waits if there is neither.
pub(crate) async fn poll(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(params): request_limits::QueryParams<PollParams>,
    authenticated: Authenticated,
) -> LegacyResult {
    let refuse = |what: String, hint: &str| Problem::new(400, "bad_input", what, hint);
    let wait = params
        .wait
        .as_deref()
        .map(Millis::parse)
        .transpose()
        .map_err(|wait| {
            refuse(
                wait,
                "give the parameter wait as a duration, such as wait=30s",
            )
        })?;
    let wait = Duration::from_millis(wait.map_or(0, Millis::ms)).min(MAX_WAIT);
    let finished_after_unix_ms = params
        .since
        .as_deref()
        .map(str::parse::<jiff::Timestamp>)
        .transpose();
    let finished_after_unix_ms = finished_after_unix_ms.map_err(|error| {
        refuse(
            format!("the parameter since is not a date: {error}"),
            "write the date as 2026-11-15T20:00:00Z",
        )
    })?;
    let finished_after_unix_ms =
        finished_after_unix_ms.map(|time| u64::try_from(time.as_millisecond()).unwrap_or(0));
    let mut context = authenticated.request_context()?;
    let agent = calling_agent(&authenticated)?;
    if let (Some(slot), None) = (&params.slot, &context.idempotency_key) {
        context.idempotency_key = Some(grant_key(
            &shared.engine.board(),
            &agent,
            &context.principal.label(),
            slot,
        )?);
    }
    let needs_workspace = params.workspace.unwrap_or(true);
    let poller = Poller {
        shared: &shared,
        agent,
        context,
        needs_workspace,
        finished_after_unix_ms,
    };
    let trigger = poller.wait_for_trigger(Instant::now() + wait).await?;
    let board = shared.engine.board();
    let capacity = board
        .agents
        .get(&poller.agent)
        .map(|agent| regatta_core::agent::capacity(&board, agent));
    let date = rfc3339(shared.engine.now().unix_ms);
    Ok(LegacyAnswer(
        StatusCode::OK,
        json!({ "trigger": trigger, "capacity": capacity, "date": date }),
    ))
}

/// Returns the idempotency key for assigning the next task to a slot (one of the client's parallel
/// polls). The key is computed only from the daemon's present state. So two simultaneous polls for
/// one slot, or polls before and after a restart, get the same key and thus the same task. The key
/// changes when the attempt that was assigned to the slot has ended.
fn grant_key(
    board: &Board,
    agent: &AgentName,
    runner: &str,
    slot: &str,
) -> Result<RequestKey, Problem> {
    let refuse = |_| {
        Problem::new(
            400,
            "bad_input",
            "the parameter slot does not have 1 to 20 letters and digits",
            "number the agent's parallel polls: slot=0, slot=1",
        )
    };
    if slot.is_empty() || slot.len() > 20 || !slot.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return Err(refuse(()));
    }
    // If a request has another access token, its idempotency key begins with the token's name,
    // which cannot begin with a star. So no other caller can have the same key.
    let beginning = format!("*slot/{agent}/{runner}/{slot}/");
    let first = RequestKey::new(&beginning).map_err(|_| refuse(()))?;
    let answers = board
        .answers
        .range(first..)
        .take_while(|(key, _)| key.as_str().starts_with(&beginning));
    let grants = answers.filter_map(|(key, stored_answer)| match &stored_answer.outcome {
        CommandOutcome::Polled(Some(grant)) => Some((grant.attempt, key)),
        _ => None,
    });
    let key = match grants.max() {
        Some((attempt, key))
            if board
                .attempts
                .get(&attempt)
                .is_some_and(|attempt| is_token_valid(attempt)) =>
        {
            return Ok(key.clone());
        }
        Some((attempt, _)) => format!("{beginning}{attempt}"),
        None => format!("{beginning}{}", AttemptId(0)),
    };
    RequestKey::new(&key).map_err(|_| refuse(()))
}

impl Poller<'_> {
    async fn wait_for_trigger(&self, deadline: Instant) -> Result<Option<Value>, Problem> {
        let (fanout, engine) = (&self.shared.event_fanout, &self.shared.engine);
        let poll = PollRequest::new(self.agent.clone());
        let mut waiting = WaitingPoller {
            changes: fanout.watch_board(),
            engine,
            poll,
            deadline,
        };
        let mut permit = None;
        loop {
            waiting.changes.mark_unchanged();
            let board_before = engine.board();
            let task = self.next_task().await;
            permit
                .take()
                .into_iter()
                .for_each(crate::event_fanout::PollPermit::mark_used);
            if let Some(trigger) = task? {
                return Ok(Some(trigger));
            }
            if let Some(trigger) = self.finished_tasks().await? {
                return Ok(Some(trigger));
            }
            if let Some(trigger) = self.unread_mentions().await? {
                return Ok(Some(trigger));
            }
            let has_news = |board: &Board| {
                board.counters.message > board_before.counters.message
                    || !self.finished_since(board).is_empty()
            };
            match fanout.wait_for_poll_permit(&mut waiting, has_news).await {
                Some(next_permit) => permit = next_permit,
                None => return Ok(self.budget_reason()),
            }
        }
    }

    /// Assigns the next task to the agent. Returns the task with the access token of its attempt,
    /// or `None` if no task is ready.
    async fn next_task(&self) -> Result<Option<Value>, Problem> {
        let offered = tasks_offered_to(&self.shared.engine.board(), &self.agent);
        let input = json!({ "agent": self.agent, "workspace": self.needs_workspace }).to_string();
        let granted = verbs::handle(
            self.shared,
            self.context.clone(),
            "task.poll",
            input.as_bytes(),
        )
        .await?;
        let granted = granted.data_to_value()?;
        Ok(granted.is_object().then(|| {
            let offered = granted["task"]["id"]
                .as_str()
                .is_some_and(|granted| offered.iter().any(|id| id == granted));
            json!({
                "type": if offered { "task_offered" } else { "task_assigned" },
                "taskId": granted["task"]["id"],
                "task": granted["task"],
                "attempt": granted["attempt"],
                "token": granted["bearer"],
                "workspace": granted["workspace"],
            })
        }))
    }

    fn finished_since(&self, board: &Board) -> Vec<crate::event_fanout::FinishedTask> {
        let is_lead = board
            .agents
            .get(&self.agent)
            .is_some_and(|agent| agent.role == Role::Lead);
        match self.finished_after_unix_ms.filter(|_| is_lead) {
            Some(since) => self.shared.event_fanout.finished_after(since),
            None => vec![],
        }
    }

    /// Returns the tasks that finished after the time in the request, if the agent is a lead (an
    /// agent that leads other agents).
    async fn finished_tasks(&self) -> Result<Option<Value>, Problem> {
        let finished = self.finished_since(&self.shared.engine.board());
        if finished.is_empty() {
            return Ok(None);
        }
        let (count, history) = (finished.len(), self.shared.engine.history().clone());
        let tasks = verbs::run_blocking(move || {
            let with_task = |finished_task: &crate::event_fanout::FinishedTask| {
                Some((
                    history.task(finished_task.task).ok()??,
                    finished_task.ended_unix_ms,
                ))
            };
            finished
                .iter()
                .rev()
                .take(MAX_REPORTED)
                .filter_map(with_task)
                .collect::<Vec<_>>()
        });
        let to_json = |(task, wall): &(regatta_core::task::Task, u64)| {
            json!({
                "id": task.id, "task": task.subject, "status": task.status, "agentId": task.agent,
                "output": task.output, "failureReason": task.reason, "finishedAt": rfc3339(*wall),
            })
        };
        let tasks: Vec<Value> = tasks.await?.iter().rev().map(to_json).collect();
        Ok(Some(
            json!({ "type": "tasks_finished", "count": count, "tasks": tasks }),
        ))
    }

    /// Returns the messages that mention the agent and that it has not read.
    async fn unread_mentions(&self) -> Result<Option<Value>, Problem> {
        let filter = MessageFilter {
            mention: Some(self.agent.clone()),
            limit: MAX_REPORTED,
            ..MessageFilter::default()
        };
        let history = self.shared.engine.history().clone();
        let found = verbs::run_blocking(move || history.messages(&filter))
            .await?
            .map_err(verbs::problem_from_store)?;
        let board = self.shared.engine.board();
        let last_read = |channel| {
            board
                .cursors
                .get(&(self.agent.clone(), channel))
                .copied()
                .unwrap_or_default()
        };
        let unread: Vec<Value> = found
            .iter()
            .filter(|message| message.id > last_read(message.channel.clone()) && message.sender.to_string() != self.agent.as_str())
            .map(|message| json!({ "id": message.id, "channel": message.channel, "from": message.sender, "text": message.text }))
            .collect();
        let trigger = || json!({ "type": "unread_mentions", "mentionsCount": unread.len(), "mentions": unread });
        Ok((!unread.is_empty()).then(trigger))
    }

    /// Returns an explanation if a task waits because a budget is used up, and `None` otherwise.
    fn budget_reason(&self) -> Option<Value> {
        let (task, reason) = schedule::kept_by_budget(
            &self.shared.engine.board(),
            &self.agent,
            self.shared.engine.now(),
        )?;
        Some(json!({ "type": "budget_refused", "taskId": task, "reason": reason }))
    }
}

fn tasks_offered_to(board: &Board, agent: &AgentName) -> Vec<String> {
    let offers = ReadyFor::Offered(agent.clone());
    board.ready_for(&offers).map(|id| id.to_string()).collect()
}
