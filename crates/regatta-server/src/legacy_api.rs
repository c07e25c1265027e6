//! The API for clients of an older program: `/api/agents`, `/me`, `/api/poll`, `/api/tasks`.
//!
//! This module only translates requests and answers: names are in camel case, and the header
//! `X-Agent-ID` names the agent. The verbs of the current API do the work, with all their checks.

mod poll; // the poll

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::verb::{OUTSIDE_AGENT_REGISTRATION, Verb};
use regatta_core::agent::Role;
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::spelling;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authenticated::Authenticated;
use crate::event_stream::rfc3339;
use crate::tokens::Principal;
use crate::verbs;
use crate::{ProblemResponse, ServerState};

pub(crate) use poll::poll;

type LegacyResult = Result<LegacyAnswer, ProblemResponse>;

/// An answer to an older client: its HTTP status and its body.
pub(crate) struct LegacyAnswer(StatusCode, Value);

impl IntoResponse for LegacyAnswer {
    fn into_response(self) -> Response {
        (
            self.0,
            [(header::CONTENT_TYPE, "application/json")],
            self.1.to_string(),
        )
            .into_response()
    }
}

async fn call_verb(
    shared: &Arc<ServerState>,
    authenticated: &Authenticated,
    verb: &str,
    input: &Value,
) -> Result<Value, Problem> {
    let answer = verbs::handle(
        shared,
        authenticated.request_context()?,
        verb,
        input.to_string().as_bytes(),
    )
    .await;
    answer.map_err(legacy_problem)?.data_to_value()
}

/// Replaces a hint that names options of the command line by a hint that names fields of this API.
fn legacy_problem(problem: Problem) -> Problem {
    let hint = match problem.code.as_str() {
        "at_capacity" => {
            "send \"offerMode\": true to offer the task, \"queue\": true to let it wait, or wait until \
            a task has finished"
        }
        "no_capacity" => {
            "finish a task with POST /api/tasks/ID/finish, or register again with a larger maxTasks"
        }
        "no_such_agent" => "register the agent first: POST /api/agents",
        _ => return problem,
    };
    Problem {
        hint: hint.into(),
        ..problem
    }
}

/// Returns the checks of a task in the current format, where each field is a list. Older clients
/// may send a single value, such as `"tests": "cargo test"`.
fn with_lists(mut validation: Value) -> Value {
    for name in ["tests", "lint", "files_exist", "content_check"] {
        if let Some(value) = validation.get_mut(name)
            && (value.is_string() || value.is_object())
        {
            *value = json!([value.take()]);
        }
    }
    validation
}

fn parse_body<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the body cannot be parsed: {error}");
        let hint = spelling::meant_word(&what).map_or("send a JSON object".into(), |meant| {
            format!("write {meant}")
        });
        Problem::new(400, "bad_input", what, hint)
    })
}

/// Returns the agent that sends a request: the agent of the attempt whose token is used, or else
/// the agent in the header `X-Agent-ID`.
fn calling_agent(authenticated: &Authenticated) -> Result<AgentName, Problem> {
    if let Principal::Attempt { agent, .. } = &authenticated.principal {
        return Ok(agent.clone());
    }
    let named = authenticated.header("x-agent-id").unwrap_or_default();
    AgentName::new(named).map_err(|_| {
        Problem::new(
            400,
            "no_agent",
            "the request does not say which agent sends it",
            "send the agent's name in the header X-Agent-ID",
        )
    })
}

/// Converts the view of an agent to the format of older clients.
fn agent_json(view: &Value) -> Value {
    let date = |name: &str| view[name].as_u64().map(rfc3339);
    // Older clients know no parked agents, so a parked agent is idle or busy for them.
    let status = match view["availability"].as_str() {
        Some("parked") if view["capacity"]["current"] == 0 => "idle",
        Some("parked") => "busy",
        Some(availability) => availability,
        None => "offline",
    };
    json!({
        "id": view["name"],
        "name": view["name"],
        "isLead": view["role"] == "lead",
        "role": view["profile"]["title"].as_str().unwrap_or_default(),
        "description": view["description"],
        "capabilities": view["profile"]["capabilities"].as_array().cloned().unwrap_or_default(),
        "status": status,
        "maxTasks": view["max_tasks"],
        "capacity": view["capacity"],
        "createdAt": date("created_wall"),
        "lastUpdatedAt": date("updated_wall"),
    })
}

/// The body of a request that registers an agent. If the agent is already registered, omitted
/// fields keep their values.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Registration {
    name: AgentName,
    #[serde(default, alias = "is_lead")]
    is_lead: Option<bool>,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    capabilities: Option<Vec<String>>,
    #[serde(default, alias = "max_tasks")]
    max_tasks: Option<u32>,
}

/// Returns the limit of simultaneous tasks for an agent that registers without a limit: the
/// daemon's environment variable `MAX_CONCURRENT_TASKS`, or else 1.
fn default_max_tasks() -> Result<u32, Problem> {
    match std::env::var("MAX_CONCURRENT_TASKS")
        .ok()
        .filter(|s| !s.is_empty())
    {
        None => Ok(1),
        Some(text) => text.parse().map_err(|_| {
            let what =
                format!("MAX_CONCURRENT_TASKS of the daemon is {text:?}, which is not a number");
            Problem::new(
                400,
                "bad_input",
                what,
                "send maxTasks, a number from 1 to 20, or correct MAX_CONCURRENT_TASKS",
            )
        }),
    }
}

/// Registers or updates an outside agent, which Regatta does not start itself.
pub(crate) async fn register(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
    body: axum::body::Bytes,
) -> LegacyResult {
    // The permission is checked before the input is parsed, so that callers without it do not learn
    // the format.
    verbs::require_permission(&authenticated.principal, &OUTSIDE_AGENT_REGISTRATION)?;
    let registration: Registration = parse_body(&body)?;
    let is_role_too_long = registration
        .role
        .as_ref()
        .is_some_and(|role| role.chars().count() > 100);
    if is_role_too_long
        || registration
            .capabilities
            .as_ref()
            .is_some_and(|all| all.len() > 100)
    {
        return Err(Problem::new(
            400,
            "bad_input",
            "the agent's role has more than 100 characters, or it has more than 100 capabilities",
            "send a shorter role, or fewer capabilities",
        )
        .into());
    }
    let known = shared
        .engine
        .board()
        .agents
        .get(&registration.name)
        .cloned();
    let previous = known.as_deref();
    let is_lead = registration
        .is_lead
        .or_else(|| previous.map(|agent| agent.role == Role::Lead))
        .unwrap_or_default();
    let title = registration
        .role
        .or_else(|| previous.map(|agent| agent.profile.title.clone()))
        .unwrap_or_default();
    let description = registration
        .description
        .or_else(|| previous.map(|agent| agent.description.clone()))
        .unwrap_or_default();
    let capabilities = registration
        .capabilities
        .or_else(|| previous.map(|agent| agent.profile.capabilities.clone()))
        .unwrap_or_default();
    let input = json!({
        "name": registration.name,
        "runtime": "outside",
        "role": if is_lead { "lead" } else { "worker" },
        "description": description,
        "max_tasks": registration.max_tasks.map_or_else(default_max_tasks, Ok)?,
        "profile": { "title": title, "capabilities": capabilities },
    });
    let answer = verbs::register_outside_agent(
        &shared,
        authenticated.request_context()?,
        input.to_string().as_bytes(),
    )
    .await?;
    let view = answer.data_to_value()?;
    let status = if known.is_some() {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(LegacyAnswer(status, agent_json(&view)))
}

pub(crate) async fn agents(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
) -> LegacyResult {
    let views = call_verb(&shared, &authenticated, "agent.list", &json!({})).await?;
    let agents: Vec<Value> = views
        .as_array()
        .into_iter()
        .flatten()
        .map(agent_json)
        .collect();
    Ok(LegacyAnswer(StatusCode::OK, json!({ "agents": agents })))
}

pub(crate) async fn me(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
) -> LegacyResult {
    let name = calling_agent(&authenticated)?;
    let view = call_verb(&shared, &authenticated, "show", &json!({ "id": name })).await?;
    if view["max_tasks"].is_u64() {
        return Ok(LegacyAnswer(StatusCode::OK, agent_json(&view)));
    }
    let what = format!("there is no agent {name}");
    Err(Problem::new(
        404,
        "no_such_agent",
        what,
        "register the agent first: POST /api/agents",
    )
    .into())
}

/// Sets an agent offline, so that the agent gets no task until it registers again. Work of the
/// agent that is running continues.
pub(crate) async fn close(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
) -> LegacyResult {
    let name = calling_agent(&authenticated)?;
    let view = call_verb(
        &shared,
        &authenticated,
        "agent.close",
        &json!({ "name": name }),
    )
    .await?;
    Ok(LegacyAnswer(StatusCode::OK, agent_json(&view)))
}

/// Answers an agent's ping with the agent's state. A ping does not register the agent, so an agent
/// that was set offline stays offline.
pub(crate) async fn ping(
    shared: State<Arc<ServerState>>,
    authenticated: Authenticated,
) -> LegacyResult {
    me(shared, authenticated).await
}

/// A new task in the format of older clients. Fields that [`add_task`] does not translate are
/// passed to the API verb `task.add` unchanged.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewTask {
    #[serde(alias = "subject")]
    task: String,
    #[serde(default)]
    description: String,
    #[serde(default, alias = "agent_id")]
    agent_id: Option<AgentName>,
    #[serde(default, alias = "issue_type", alias = "type")]
    issue_type: Option<Value>,
    #[serde(default)]
    expects: Option<Value>,
    #[serde(default)]
    validation: Option<Value>,
    #[serde(default, alias = "blocked_by")]
    blocked_by: Option<Value>,
    #[serde(default)]
    effort: Option<Value>,
    #[serde(default)]
    provider: Option<Value>,
    #[serde(default)]
    script: Option<Value>,
    #[serde(default)]
    backlog: Option<Value>,
    #[serde(default)]
    priority: Option<u8>,
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default, alias = "offerMode")]
    offer: bool,
    /// Assign the task to the agent even if the agent already has as many tasks as it can take. The
    /// task then waits.
    #[serde(default)]
    queue: bool,
}

/// Adds a task. A task for an agent that already has as many tasks as it can take is refused,
/// unless the request says to offer or queue the task.
pub(crate) async fn add_task(
    State(shared): State<Arc<ServerState>>,
    authenticated: Authenticated,
    body: axum::body::Bytes,
) -> LegacyResult {
    let new_task: NewTask = parse_body(&body)?;
    let (subject, rest) = new_task
        .task
        .split_once('\n')
        .unwrap_or((&new_task.task, ""));
    let description = if new_task.description.is_empty() {
        rest.trim().to_owned()
    } else {
        new_task.description
    };
    let mut input =
        json!({ "subject": subject, "description": description, "files": new_task.files });
    if let Some(agent) = new_task.agent_id {
        input["assign"] = json!(agent);
        input["how"] = json!(match (new_task.offer, new_task.queue) {
            (true, _) => "offer",
            (false, true) => "queue",
            (false, false) => "direct",
        });
    }
    let optional_fields = [
        ("priority", new_task.priority.map(Value::from)),
        ("issue_type", new_task.issue_type),
        ("expects", new_task.expects),
        ("validation", new_task.validation.map(with_lists)),
        ("blocked_by", new_task.blocked_by),
        ("effort", new_task.effort),
        ("provider", new_task.provider),
        ("script", new_task.script),
        ("backlog", new_task.backlog),
    ];
    for (name, value) in optional_fields {
        if let Some(value) = value {
            input[name] = value;
        }
    }
    if let Some(project) = new_task.project {
        input["project"] = json!(project);
    }
    let added = call_verb(&shared, &authenticated, "task.add", &input).await?;
    Ok(LegacyAnswer(
        StatusCode::CREATED,
        json!({ "id": added["id"], "task": added }),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TaskReport {
    #[serde(default)]
    progress: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    output: Option<String>,
    #[serde(default, alias = "failure_reason")]
    failure_reason: Option<String>,
}

/// Handles the report of an attempt (one run of an agent on a task) about its progress or result.
/// An attempt's own token identifies the attempt. With an operator's token, the report counts for
/// the running attempt of the task.
pub(crate) async fn report_task(
    State(shared): State<Arc<ServerState>>,
    Path((id, what)): Path<(String, String)>,
    authenticated: Authenticated,
    body: axum::body::Bytes,
) -> LegacyResult {
    let task: TaskId = id.parse().map_err(|_| {
        Problem::new(
            404,
            "no_such_task",
            "the address does not contain a task's id",
            "write the id as T7: /api/tasks/T7/finish",
        )
    })?;
    // The permission is checked first, so that callers without it do not learn whether an agent
    // works on the task.
    verbs::require_permission(
        &authenticated.principal,
        Verb::find("task.finish").expect("it is in the table"),
    )?;
    let report: TaskReport = parse_body(&body)?;
    let live = shared
        .engine
        .board()
        .tasks
        .get(&task)
        .and_then(|task| task.attempt);
    let (attempt, fencing_token) = match &authenticated.principal {
        Principal::Attempt {
            id, fencing_token, ..
        } => (*id, *fencing_token),
        _ => {
            let board = shared.engine.board();
            let found = live
                .and_then(|id| board.attempts.get(&id))
                .map(|attempt| (attempt.id, attempt.token));
            found.ok_or_else(|| {
                Problem::new(
                    409,
                    "not_running",
                    format!("no agent works on {task}, so it has no progress or result to report"),
                    "get the task assigned first: GET /api/poll",
                )
            })?
        }
    };
    let with_attempt = |fields: Value| {
        let mut input = json!({ "task": task, "attempt": attempt, "token": fencing_token });
        for (name, value) in fields.as_object().cloned().unwrap_or_default() {
            input[name] = value;
        }
        input
    };
    let (verb, input) = match (what.as_str(), report.status.as_deref()) {
        ("progress", _) => (
            "task.progress",
            with_attempt(json!({ "text": report.progress.unwrap_or_default() })),
        ),
        ("finish", Some("completed") | None) => (
            "task.finish",
            with_attempt(json!({ "output": report.output })),
        ),
        ("finish", Some("failed")) => {
            let reason = report
                .failure_reason
                .filter(|failure_reason| !failure_reason.is_empty());
            (
                "task.fail",
                with_attempt(
                    json!({ "reason": reason.unwrap_or_else(|| "Unknown failure".into()) }),
                ),
            )
        }
        ("finish", Some(_)) => {
            return Err(Problem::new(
                400,
                "bad_input",
                "the status is neither completed nor failed",
                "send \"status\": \"completed\" or \"status\": \"failed\"",
            )
            .into());
        }
        _ => {
            return Err(Problem::new(
                404,
                "no_such_page",
                "the address of a task's report ends with neither progress nor finish",
                "send it to /api/tasks/ID/progress or /api/tasks/ID/finish",
            )
            .into());
        }
    };
    let task = call_verb(&shared, &authenticated, verb, &input).await?;
    Ok(LegacyAnswer(
        StatusCode::OK,
        json!({ "success": true, "task": task }),
    ))
}
