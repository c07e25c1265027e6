//! The surface that clients of the first concurrency plan know: `/api/agents`, `/me`, `/api/poll`, `/api/tasks`.
//!
//! Only a translation: names in camel case, an agent named by the header `X-Agent-ID`, and for the rest the same verbs
//! with the same checks as everywhere else.

mod poll; // what there is to do, and what else happened

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::verb::Verb;
use regatta_core::agent::Role;
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::spelling;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls;
use crate::entered::Entered;
use crate::stream::rfc3339;
use crate::tokens::Visitor;
use crate::{Refused, Shared};

pub(crate) use poll::poll;

type Done = Result<Said, Refused>;

/// An answer: its status and its object.
pub(crate) struct Said(StatusCode, Value);

impl IntoResponse for Said {
    fn into_response(self) -> Response {
        (self.0, [(header::CONTENT_TYPE, "application/json")], self.1.to_string()).into_response()
    }
}

async fn ask(shared: &Arc<Shared>, entered: &Entered, verb: &str, input: &Value) -> Result<Value, Problem> {
    let answer = calls::perform(shared, entered.guest()?, verb, input.to_string().as_bytes()).await;
    data_of(&answer.map_err(in_its_words)?)
}

/// Says in the words of this surface what to do next, where the hint of a refusal names options of the command line.
fn in_its_words(problem: Problem) -> Problem {
    let hint = match problem.code.as_str() {
        "at_capacity" => {
            "send \"offerMode\": true to offer it, \"queue\": true to let it wait, or wait until a task has finished"
        }
        "no_capacity" => "finish one with POST /api/tasks/ID/finish, or register again with a larger maxTasks",
        "no_such_agent" => "register it first: POST /api/agents",
        _ => return problem,
    };
    Problem { hint: hint.into(), ..problem }
}

/// Returns a validation contract with a list wherever plan files also take one value, as in `"tests": "cargo test"`.
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

fn data_of(answer: &[u8]) -> Result<Value, Problem> {
    let answer: Value = serde_json::from_slice(answer)
        .map_err(|it| Problem::new(500, "bug", format!("an answer could not be read: {it}"), "please report this"))?;
    Ok(answer["data"].clone())
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the body cannot be read: {error}");
        let hint = spelling::meant(&what).map_or("send a JSON object".into(), |meant| format!("write {meant}"));
        Problem::new(400, "bad_input", what, hint)
    })
}

/// Who is meant: the attempt's own agent, or the one the header names.
fn agent_of(entered: &Entered) -> Result<AgentName, Problem> {
    if let Visitor::Attempt { agent, .. } = &entered.visitor {
        return Ok(agent.clone());
    }
    let named = entered.header("x-agent-id").unwrap_or_default();
    AgentName::new(named).map_err(|_| {
        Problem::new(400, "no_agent", "it is not clear which agent this is", "name it in the header X-Agent-ID")
    })
}

/// An agent as these clients know it.
fn draw(view: &Value) -> Value {
    let date = |name: &str| view[name].as_u64().map(rfc3339);
    // By what it has to do, but for who is offline: that never flips by count.
    let status = match (view["offline"].is_string(), view["capacity"]["current"] == 0) {
        (true, _) => "offline",
        (false, true) => "idle",
        (false, false) => "busy",
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

/// A registration. Of an agent that is registered already, fields that are left out stay as they are.
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

/// How many tasks an agent may have at once if it does not say: `MAX_CONCURRENT_TASKS` of the daemon, else one.
fn usual_tasks() -> Result<u32, Problem> {
    match std::env::var("MAX_CONCURRENT_TASKS").ok().filter(|it| !it.is_empty()) {
        None => Ok(1),
        Some(text) => text.parse().map_err(|_| {
            let what = format!("MAX_CONCURRENT_TASKS of the daemon is {text:?}, which is no number");
            Problem::new(400, "bad_input", what, "give maxTasks, 1 to 20")
        }),
    }
}

/// Registers an agent that nobody starts here, or brings it up to date.
pub(crate) async fn register(State(shared): State<Arc<Shared>>, entered: Entered, body: axum::body::Bytes) -> Done {
    // Who may not call it does not learn what it takes.
    calls::may_register(&entered.visitor)?;
    let asked: Registration = read(&body)?;
    let is_long = asked.role.as_ref().is_some_and(|role| role.chars().count() > 100);
    if is_long || asked.capabilities.as_ref().is_some_and(|all| all.len() > 100) {
        return Err(Problem::new(
            400,
            "bad_input",
            "a role has at most 100 characters, and an agent at most 100 capabilities",
            "say it shorter",
        )
        .into());
    }
    let known = shared.engine.board().agents.get(&asked.name).cloned();
    let was = known.as_deref();
    let is_lead = asked.is_lead.or_else(|| was.map(|agent| agent.role == Role::Lead)).unwrap_or_default();
    let title = asked.role.or_else(|| was.map(|agent| agent.profile.title.clone())).unwrap_or_default();
    let description = asked.description.or_else(|| was.map(|agent| agent.description.clone())).unwrap_or_default();
    let capabilities =
        asked.capabilities.or_else(|| was.map(|agent| agent.profile.capabilities.clone())).unwrap_or_default();
    let input = json!({
        "name": asked.name,
        "runtime": "outside",
        "role": if is_lead { "lead" } else { "worker" },
        "description": description,
        "max_tasks": asked.max_tasks.map_or_else(usual_tasks, Ok)?,
        "profile": { "title": title, "capabilities": capabilities },
    });
    let answer = calls::register_outside(&shared, entered.guest()?, input.to_string().as_bytes()).await?;
    let view = data_of(&answer)?;
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(Said(status, draw(&view)))
}

pub(crate) async fn agents(State(shared): State<Arc<Shared>>, entered: Entered) -> Done {
    let views = ask(&shared, &entered, "agent.list", &json!({})).await?;
    let agents: Vec<Value> = views.as_array().into_iter().flatten().map(draw).collect();
    Ok(Said(StatusCode::OK, json!({ "agents": agents })))
}

pub(crate) async fn me(State(shared): State<Arc<Shared>>, entered: Entered) -> Done {
    let name = agent_of(&entered)?;
    let view = ask(&shared, &entered, "show", &json!({ "id": name })).await?;
    match view["max_tasks"].is_u64() {
        true => Ok(Said(StatusCode::OK, draw(&view))),
        false => Err(Problem::new(
            404,
            "no_such_agent",
            format!("there is no agent {name}"),
            "register it first: POST /api/agents",
        )
        .into()),
    }
}

/// An agent says goodbye: it is offline, and gets nothing until it registers again. What it works on goes on.
pub(crate) async fn close(State(shared): State<Arc<Shared>>, entered: Entered) -> Done {
    let name = agent_of(&entered)?;
    let view = ask(&shared, &entered, "agent.close", &json!({ "name": name })).await?;
    Ok(Said(StatusCode::OK, draw(&view)))
}

/// An agent says that it is there, and is told how it stands. It is no registration: who said goodbye stays offline.
pub(crate) async fn ping(shared: State<Arc<Shared>>, entered: Entered) -> Done {
    me(shared, entered).await
}

/// A task as these clients write it. What [`add_task`] does not translate goes to `task.add` as it is.
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
    /// Into the agent's line, however full it is.
    #[serde(default)]
    queue: bool,
}

/// Adds a task. One that names an agent is refused while that agent is full, unless it is offered or queued.
pub(crate) async fn add_task(State(shared): State<Arc<Shared>>, entered: Entered, body: axum::body::Bytes) -> Done {
    let asked: NewTask = read(&body)?;
    let (subject, rest) = asked.task.split_once('\n').unwrap_or((&asked.task, ""));
    let description = if asked.description.is_empty() { rest.trim().to_owned() } else { asked.description };
    let mut input = json!({ "subject": subject, "description": description, "files": asked.files });
    if let Some(agent) = asked.agent_id {
        input["assign"] = json!(agent);
        input["how"] = json!(match (asked.offer, asked.queue) {
            (true, _) => "offer",
            (false, true) => "queue",
            (false, false) => "direct",
        });
    }
    let same = [
        ("priority", asked.priority.map(Value::from)),
        ("issue_type", asked.issue_type),
        ("expects", asked.expects),
        ("validation", asked.validation.map(with_lists)),
        ("blocked_by", asked.blocked_by),
        ("effort", asked.effort),
        ("provider", asked.provider),
        ("script", asked.script),
        ("backlog", asked.backlog),
    ];
    for (name, value) in same {
        if let Some(value) = value {
            input[name] = value;
        }
    }
    if let Some(project) = asked.project {
        input["project"] = json!(project);
    }
    let added = ask(&shared, &entered, "task.add", &input).await?;
    Ok(Said(StatusCode::CREATED, json!({ "id": added["id"], "task": added })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Told {
    #[serde(default)]
    progress: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    output: Option<String>,
    #[serde(default, alias = "failure_reason")]
    failure_reason: Option<String>,
}

/// What an attempt says of its work. Its own token names it; an operator speaks for whichever is at work.
pub(crate) async fn tell(
    State(shared): State<Arc<Shared>>,
    Path((id, what)): Path<(String, String)>,
    entered: Entered,
    body: axum::body::Bytes,
) -> Done {
    let task: TaskId =
        id.parse().map_err(|_| Problem::new(404, "no_such_task", "there is no such task", "write T7"))?;
    // Who may not say it does not learn whether somebody works on it.
    calls::may(&entered.visitor, Verb::find("task.finish").expect("it is in the table"))?;
    let told: Told = read(&body)?;
    let live = shared.engine.board().tasks.get(&task).and_then(|it| it.attempt);
    let (attempt, fence) = match &entered.visitor {
        Visitor::Attempt { id, fence, .. } => (*id, *fence),
        _ => {
            let board = shared.engine.board();
            let found = live.and_then(|it| board.attempts.get(&it)).map(|it| (it.id, it.token));
            found.ok_or_else(|| {
                Problem::new(409, "not_running", format!("nobody works on {task}"), "poll for it first: /api/poll")
            })?
        }
    };
    let own = |more: Value| {
        let mut input = json!({ "task": task, "attempt": attempt, "token": fence });
        for (name, value) in more.as_object().cloned().unwrap_or_default() {
            input[name] = value;
        }
        input
    };
    let (verb, input) = match (what.as_str(), told.status.as_deref()) {
        ("progress", _) => ("task.progress", own(json!({ "text": told.progress.unwrap_or_default() }))),
        ("finish", Some("completed") | None) => ("task.finish", own(json!({ "output": told.output }))),
        ("finish", Some("failed")) => {
            let reason = told.failure_reason.filter(|it| !it.is_empty());
            ("task.fail", own(json!({ "reason": reason.unwrap_or_else(|| "Unknown failure".into()) })))
        }
        ("finish", Some(_)) => {
            return Err(Problem::new(400, "bad_input", "a status is completed or failed", "send one of them").into());
        }
        _ => {
            return Err(
                Problem::new(404, "no_such_page", "there is nothing at this address", "progress or finish").into()
            );
        }
    };
    let task = ask(&shared, &entered, verb, &input).await?;
    Ok(Said(StatusCode::OK, json!({ "success": true, "task": task })))
}
