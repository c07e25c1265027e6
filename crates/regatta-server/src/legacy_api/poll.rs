//! The poll of older clients: a task if there is one, otherwise other news, otherwise nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use regatta_api::Problem;
use regatta_core::agent::Role;
use regatta_core::board::{Board, ReadyFor};
use regatta_core::command::CommandOutcome;
use regatta_core::ids::{AgentName, AttemptId, RequestKey};
use regatta_core::project::Millis;
use regatta_core::schedule::{self, PollRequest};
use regatta_engine::ports::store::MessageFilter;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LegacyAnswer, LegacyResult, calling_agent, data_of};
use crate::authenticated::Authenticated;
use crate::event_fanout::WaitingPoller;
use crate::event_stream::rfc3339;
use crate::tokens::may_act;
use crate::verbs::{self, RequestContext};
use crate::{ServerState, request_limits};

/// Maximum wait of a poll.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Maximum number of finished tasks or mentions in one answer.
const MAX_REPORTED: usize = 50;

#[derive(Default, Deserialize)]
pub(crate) struct PollParams {
    /// Time to wait for a trigger: `30s`.
    #[serde(default)]
    wait: Option<String>,
    /// Date (RFC 3339) after which finished tasks are reported to a lead.
    #[serde(default)]
    since: Option<String>,
    /// The runner's slot that the poll is for. A poll whose answer was lost gets the same answer
    /// again while that slot's attempt is running.
    #[serde(default)]
    slot: Option<String>,
    /// `false` to get tasks that only report without a workspace.
    #[serde(default)]
    workspace: Option<bool>,
}

/// The caller of a poll, and its parameters.
struct Poller<'a> {
    shared: &'a Arc<ServerState>,
    agent: AgentName,
    context: RequestContext,
    needs_workspace: bool,
    /// The date after which finished tasks are reported, if the agent is a lead.
    finished_after_unix_ms: Option<u64>,
}

/// Takes the next task, or returns another trigger, or none.
pub(crate) async fn poll(
    State(shared): State<Arc<ServerState>>,
    request_limits::QueryParams(asked): request_limits::QueryParams<PollParams>,
    authenticated: Authenticated,
) -> LegacyResult {
    let bad = |what: String, hint: &str| Problem::new(400, "bad_input", what, hint);
    let wait = asked
        .wait
        .as_deref()
        .map(Millis::parse)
        .transpose()
        .map_err(|wait| bad(wait, "write it as 30s"))?;
    let wait = Duration::from_millis(wait.map_or(0, Millis::ms)).min(MAX_WAIT);
    let since = asked
        .since
        .as_deref()
        .map(str::parse::<jiff::Timestamp>)
        .transpose();
    let since = since.map_err(|error| {
        bad(
            format!("since is not a date: {error}"),
            "write it as 2026-11-15T20:00:00Z",
        )
    })?;
    let since = since.map(|time| u64::try_from(time.as_millisecond()).unwrap_or(0));
    let mut context = authenticated.request_context()?;
    let agent = calling_agent(&authenticated)?;
    if let (Some(slot), None) = (&asked.slot, &context.idempotency_key) {
        context.idempotency_key = Some(grant_key(
            &shared.engine.board(),
            &agent,
            &context.principal.label(),
            slot,
        )?);
    }
    let workspace = asked.workspace.unwrap_or(true);
    let poller = Poller {
        shared: &shared,
        agent,
        context,
        needs_workspace: workspace,
        finished_after_unix_ms: since,
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

/// Returns the idempotency key of a slot's next grant, derived from the board alone. It changes
/// when the granted attempt is no longer running. Two simultaneous polls, or polls before and after
/// a restart, get the same key.
fn grant_key(
    board: &Board,
    agent: &AgentName,
    runner: &str,
    slot: &str,
) -> Result<RequestKey, Problem> {
    let bad = |_| {
        Problem::new(
            400,
            "bad_input",
            "a slot is 1 to 20 letters and digits",
            "number them: slot=0",
        )
    };
    if slot.is_empty() || slot.len() > 20 || !slot.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return Err(bad(()));
    }
    // No token can have such a name, so no other caller has these keys.
    let beginning = format!("*slot/{agent}/{runner}/{slot}/");
    let first = RequestKey::new(&beginning).map_err(|_| bad(()))?;
    let given = board
        .answers
        .range(first..)
        .take_while(|answer| answer.0.as_str().starts_with(&beginning));
    let last = given.filter_map(|(key, stored_answer)| match &stored_answer.outcome {
        CommandOutcome::Polled(Some(grant)) => Some((grant.attempt, key)),
        _ => None,
    });
    let key = match last.max() {
        Some((attempt, key))
            if board
                .attempts
                .get(&attempt)
                .is_some_and(|attempt| may_act(attempt)) =>
        {
            return Ok(key.clone());
        }
        Some((attempt, _)) => format!("{beginning}{attempt}"),
        None => format!("{beginning}{}", AttemptId(0)),
    };
    RequestKey::new(&key).map_err(|_| bad(()))
}

impl Poller<'_> {
    async fn wait_for_trigger(&self, until: Instant) -> Result<Option<Value>, Problem> {
        let (fanout, engine) = (&self.shared.event_fanout, &self.shared.engine);
        let poll = PollRequest::new(self.agent.clone());
        let mut waiting = WaitingPoller {
            changes: fanout.watch_board(),
            engine,
            poll,
            deadline: until,
        };
        let mut leave = None;
        loop {
            waiting.changes.mark_unchanged();
            let seen = engine.board();
            let task = self.next_task().await;
            leave
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
            let news = |board: &Board| {
                board.counters.message > seen.counters.message
                    || !self.finished_since(board).is_empty()
            };
            match fanout.wait_for_poll_permit(&mut waiting, news).await {
                Some(got) => leave = got,
                None => return Ok(self.budget_reason()),
            }
        }
    }

    /// Returns a task for this agent, with the attempt's own token.
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
        let granted = data_of(&granted)?;
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
        let lead = board
            .agents
            .get(&self.agent)
            .is_some_and(|agent| agent.role == Role::Lead);
        match self.finished_after_unix_ms.filter(|_| lead) {
            Some(since) => self.shared.event_fanout.finished_after(since),
            None => vec![],
        }
    }

    /// Returns the finished tasks, for a lead that says since when.
    async fn finished_tasks(&self) -> Result<Option<Value>, Problem> {
        let finished = self.finished_since(&self.shared.engine.board());
        if finished.is_empty() {
            return Ok(None);
        }
        let (count, history) = (finished.len(), self.shared.engine.history().clone());
        let tasks = verbs::run_blocking(move || {
            let read = |finished_task: &crate::event_fanout::FinishedTask| {
                Some((
                    history.task(finished_task.task).ok()??,
                    finished_task.ended_unix_ms,
                ))
            };
            finished
                .iter()
                .rev()
                .take(MAX_REPORTED)
                .filter_map(read)
                .collect::<Vec<_>>()
        });
        let draw = |(task, wall): &(regatta_core::task::Task, u64)| {
            json!({
                "id": task.id, "task": task.subject, "status": task.status, "agentId": task.agent,
                "output": task.output, "failureReason": task.reason, "finishedAt": rfc3339(*wall),
            })
        };
        let tasks: Vec<Value> = tasks.await?.iter().rev().map(draw).collect();
        Ok(Some(
            json!({ "type": "tasks_finished", "count": count, "tasks": tasks }),
        ))
    }

    /// Returns messages that mention the agent and that it has not read.
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
        let read = |channel| {
            board
                .cursors
                .get(&(self.agent.clone(), channel))
                .copied()
                .unwrap_or_default()
        };
        let unread: Vec<Value> = found
            .iter()
            .filter(|message| message.id > read(message.channel.clone()) && message.sender.to_string() != self.agent.as_str())
            .map(|message| json!({ "id": message.id, "channel": message.channel, "from": message.sender, "text": message.text }))
            .collect();
        let trigger = || json!({ "type": "unread_mentions", "mentionsCount": unread.len(), "mentions": unread });
        Ok((!unread.is_empty()).then(trigger))
    }

    /// Returns the reason if an exhausted budget holds back a waiting task.
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
    let line = ReadyFor::Offered(agent.clone());
    board.ready_for(&line).map(|id| id.to_string()).collect()
}
