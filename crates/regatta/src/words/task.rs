//! The commands `add`, `edit`, `assign` and `task`, which change and list single tasks.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::{GrantedAttempt, TaskView};
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::task::{Edit, Expects, How, IssueType, Pause, Status, Validation};
use serde::Serialize;

use crate::args::{Assign, AttemptArgs, TaskAdd, TaskEdit, TaskWord, Type};
use crate::client::Got;
use crate::out::{Failed, Out, Said, ago, failed, line, table, usage};
use crate::plan;

use super::App;

impl From<Type> for IssueType {
    fn from(it: Type) -> IssueType {
        match it {
            Type::Feature => IssueType::Feature,
            Type::Bug => IssueType::Bug,
            Type::Task => IssueType::Task,
            Type::Docs => IssueType::Docs,
            Type::Chore => IssueType::Chore,
            Type::Ci => IssueType::Ci,
        }
    }
}

fn how(offer: bool, queue: bool) -> How {
    match (offer, queue) {
        (true, _) => How::Offer,
        (_, true) => How::Queue,
        _ => How::Direct,
    }
}

fn manifest(files: &[String]) -> Result<Vec<regatta_core::pattern::PathPattern>, Failed> {
    plan::expand(files).map_err(|it| usage(it, "write files relative to the top of the repository: src/a.rs,web/**"))
}

/// Runs `regatta add`.
pub(super) fn add(app: &App, ask: TaskAdd) -> Said {
    let script: Option<serde_json::Value> = match &ask.script {
        None => None,
        Some(text) => {
            regatta_agents::script::parse(text).map_err(|it| {
                usage(format!("the script is not valid: {it}"), "see the possible steps: regatta schema plan")
            })?;
            serde_json::from_str(text).ok()
        }
    };
    let files = manifest(&ask.files)?;
    let client = app.client()?;
    let add = input::TaskAdd {
        project: app.project(&client)?,
        subject: ask.subject,
        description: ask.description,
        issue_type: ask.issue_type.into(),
        files,
        validation: Validation { tests: ask.validate, files_exist: ask.exists, ..Validation::default() },
        blocked_by: ask.blocked_by,
        priority: ask.priority,
        expects: if ask.report { Expects::Report } else { Expects::Changes },
        effort: None,
        provider: None,
        script,
        ratchet: None,
        alias: None,
        backlog: ask.backlog,
        assign: ask.assign,
        how: how(ask.offer, ask.queue),
    };
    let got: Got<TaskView> = client.call(&Call::TaskAdd(add))?;
    said(app, "task.add", &got.data, "added")
}

/// Prints the new state of a task, and why it waits.
fn said(app: &App, kind: &str, task: &TaskView, verb: &str) -> Said {
    let next = [format!("regatta show {}", task.task.id), format!("regatta why {}", task.task.id)];
    app.out.answer(kind, task, &next, |out| {
        let mut text = format!("{verb} {} \"{}\"  {}\n", task.task.id, line(&task.task.subject), out.state(&task.word));
        if let Some(reason) = task.waits.first() {
            text += &format!("  {}\n", line(&reason.text));
        }
        text
    })
}

/// Runs `regatta edit`.
pub(super) fn edit(app: &App, ask: TaskEdit) -> Said {
    let blocked_by = match ask.blocked_by.as_deref() {
        None => None,
        Some(text) => {
            let ids: Result<Vec<TaskId>, _> =
                text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::parse).collect();
            Some(ids.map_err(|it| usage(it.to_string(), "write blockers as T1,T2"))?)
        }
    };
    let paused = match (ask.pause, ask.ready) {
        (Some(reason), _) => Some(Pause::Because(reason)),
        (None, true) => Some(Pause::No),
        (None, false) => None,
    };
    let edit = Edit {
        subject: ask.subject,
        description: ask.description,
        issue_type: ask.issue_type.map(Into::into),
        files: ask.files.map(|it| manifest(&it)).transpose()?,
        validation: None,
        blocked_by,
        priority: ask.priority,
        script: None,
        paused,
        backlog: None,
    };
    let client = app.client()?;
    let mut edit = edit;
    if ask.ready || ask.validate.is_some() || ask.exists.is_some() {
        let now: Got<TaskView> = client.call(&Call::Show(input::Id { id: ask.id.to_string() }))?;
        edit.backlog = (ask.ready && now.data.task.status == Status::Backlog).then_some(false);
        // Checks without an option keep their old value.
        let old = now.data.task.validation;
        let new = Validation {
            tests: ask.validate.unwrap_or_else(|| old.tests.clone()),
            files_exist: ask.exists.unwrap_or_else(|| old.files_exist.clone()),
            ..old.clone()
        };
        edit.validation = (new != old).then_some(new);
    }
    let got: Got<TaskView> = client.call(&Call::TaskSet(input::TaskSet { task: ask.id, edit, script: None }))?;
    said(app, "task.set", &got.data, "changed")
}

/// Runs `regatta assign`.
pub(super) fn assign(app: &App, ask: Assign) -> Said {
    let verb = if ask.agent.is_some() { "assigned" } else { "unassigned" };
    let got: Got<TaskView> =
        app.call(&Call::TaskAssign(input::TaskAssign { task: ask.id, to: ask.agent, how: how(ask.offer, ask.queue) }))?;
    said(app, "task.assign", &got.data, verb)
}

/// Runs `regatta task`.
pub(super) fn task(app: &App, word: TaskWord) -> Said {
    match word {
        TaskWord::Add(it) => add(app, *it),
        TaskWord::Set(it) => edit(app, *it),
        TaskWord::Assign(it) => assign(app, it),
        TaskWord::Show { id } => super::see::show(app, &id),
        TaskWord::List { all, status, mission, limit } => list(app, all, &status, mission, limit),
        TaskWord::Accept { id, agent } => {
            let got: Got<TaskView> = app.call(&Call::TaskAccept(input::OfferAnswer { task: id, agent }))?;
            said(app, "task.accept", &got.data, "accepted")
        }
        TaskWord::Reject { id, agent } => {
            let got: Got<TaskView> = app.call(&Call::TaskReject(input::OfferAnswer { task: id, agent }))?;
            said(app, "task.reject", &got.data, "declined")
        }
        TaskWord::Cancel { id, reason } => {
            let got: Got<TaskView> = app.call(&Call::TaskCancel(input::TaskCancel { task: id, reason }))?;
            said(app, "task.cancel", &got.data, "cancelled")
        }
        TaskWord::Poll { agent, wait, lease, no_workspace, by_hand } => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let workspace = !no_workspace;
            let ask = input::TaskPoll { agent, project, wait_ms: wait, lease_ms: lease, workspace, by_hand };
            let got: Got<Option<GrantedAttempt>> = client.call(&Call::TaskPoll(ask))?;
            app.out.answer("task.poll", &got.data, &[], |_| match &got.data {
                None => "nothing to do\n".into(),
                Some(it) => {
                    let place = it.workspace.as_deref().map_or(String::new(), |it| format!("\nworkspace {it}"));
                    format!(
                        "{} \"{}\"\nattempt {} token {}{place}\n",
                        it.task.task.id,
                        line(&it.task.task.subject),
                        it.attempt,
                        it.token
                    )
                }
            })
        }
        TaskWord::Progress { attempt: AttemptArgs { id, attempt, token }, text } => {
            let call =
                Call::TaskProgress(input::TaskProgress { task: id, attempt, token, text: text.unwrap_or_default() });
            let got: Got<TaskView> = app.call(&call)?;
            said(app, "task.progress", &got.data, "noted")
        }
        TaskWord::Finish { attempt: AttemptArgs { id, attempt, token }, output, not_needed, learnings } => {
            let finish = input::TaskFinish { task: id, attempt, token, output, not_needed, learnings };
            let got: Got<TaskView> = app.call(&Call::TaskFinish(finish))?;
            said(app, "task.finish", &got.data, "finished")
        }
        TaskWord::Fail { attempt: AttemptArgs { id, attempt, token }, reason } => {
            let got: Got<TaskView> = app.call(&Call::TaskFail(input::TaskFail { task: id, attempt, token, reason }))?;
            said(app, "task.fail", &got.data, "failed")
        }
        TaskWord::Import { file, beads: true } => super::beads::import(app, &file),
        TaskWord::Import { file, beads: false } => import(app, &file),
        TaskWord::Export { all, beads: true, file } => super::beads::export(app, all, file.as_deref()),
        TaskWord::Export { all, .. } => export(app, all),
    }
}

fn list(app: &App, all: bool, status: &[String], mission: Option<String>, limit: usize) -> Said {
    let status: Result<Vec<Status>, Failed> = status
        .iter()
        .map(|text| {
            let found = Status::ALL.into_iter().find(|it| it.name() == text);
            found.ok_or_else(|| {
                usage(
                    format!("{text:?} is not a status"),
                    format!("use one of: {}", Status::ALL.map(Status::name).join(", ")),
                )
            })
        })
        .collect();
    let client = app.client()?;
    let call = Call::TaskList(input::TaskList { project: app.project(&client)?, mission, status: status?, all, limit });
    let got: Got<Vec<TaskView>> = client.call(&call)?;
    let next = if got.data.is_empty() { vec!["regatta add SUBJECT --files src/**".into()] } else { vec![] };
    app.out.answer("task.list", &got.data, &next, |out| {
        if got.data.is_empty() { "no tasks\n".into() } else { table(&rows(out, &got.data)) }
    })
}

/// Returns tasks as rows: id, state, subject, agent, age, and the activity or the first wait
/// reason.
pub(super) fn rows(out: &Out, tasks: &[TaskView]) -> Vec<Vec<String>> {
    tasks
        .iter()
        .map(|it| {
            let agent = it.task.agent.as_ref().or(it.task.assignee.as_ref()).map_or("-".into(), ToString::to_string);
            let doing = match (it.word.as_str(), it.waits.first()) {
                ("working", _) if it.task.status == Status::Validating => "validating".into(),
                ("working", _) => match (it.live.as_deref(), it.heard_wall) {
                    (Some(live @ ("silent" | "hung")), Some(heard)) => format!("{live} for {}", ago(heard)),
                    (Some(live), _) if live != "working" => line(live),
                    _ => line(&it.task.progress),
                },
                (_, Some(reason)) => line(&reason.text),
                (_, None) => it.task.landed.as_ref().map_or_else(
                    || line(it.task.reason.as_deref().unwrap_or_default()),
                    |it| it.as_str()[..10].to_owned(),
                ),
            };
            vec![
                it.task.id.to_string(),
                out.state(if it.asks.is_some() { "needs you" } else { &it.word }),
                line(&it.task.subject),
                agent,
                ago(it.task.updated_wall),
                doing,
            ]
        })
        .collect()
}

/// Adds a plan's tasks to the board without starting them. A task whose name is already on the
/// board stays unchanged, so importing a plan twice changes nothing.
fn import(app: &App, file: &std::path::Path) -> Said {
    let plan = plan::read(file)?;
    let client = app.client()?;
    let project = app.project(&client)?;
    let known: Got<Vec<TaskView>> = client.call(&Call::TaskList(input::TaskList {
        project: project.clone(),
        mission: None,
        status: vec![],
        all: true,
        limit: 0,
    }))?;
    let on_board =
        |alias: &str| known.data.iter().find(|it| it.task.alias.as_deref() == Some(alias)).map(|it| it.task.id);
    let depends_on: Vec<Vec<usize>> = plan.tasks.iter().map(|it| it.after.clone()).collect();
    let layers = regatta_core::graph::layers(plan.tasks.len(), &depends_on, |_, _| false)
        .map_err(|_| failed("bug", "the plan has a cycle", "please report this"))?;
    let mut order: Vec<usize> = (0..plan.tasks.len()).collect();
    order.sort_by_key(|it| (layers[*it], *it));
    let mut ids: Vec<Option<TaskId>> = vec![None; plan.tasks.len()];
    let (mut added, mut there) = (Vec::new(), Vec::new());
    for at in order {
        if let Some(id) = on_board(&plan.names[at]) {
            ids[at] = Some(id);
            there.push(id);
            continue;
        }
        let it = &plan.tasks[at].task;
        let call = Call::TaskAdd(input::TaskAdd {
            project: project.clone(),
            subject: it.subject.clone(),
            description: it.description.clone(),
            issue_type: it.issue_type,
            files: it.files.clone(),
            validation: it.validation.clone(),
            blocked_by: plan.tasks[at].after.iter().filter_map(|on| ids[*on]).collect(),
            priority: it.priority,
            expects: it.expects,
            effort: it.effort.clone(),
            provider: it.provider.clone(),
            script: it.script.clone(),
            ratchet: it.ratchet.clone(),
            alias: it.alias.clone(),
            backlog: false,
            assign: it.assign.clone(),
            how: How::Queue,
        });
        let got: Got<TaskView> = client.call(&call)?;
        ids[at] = Some(got.data.task.id);
        added.push(got.data.task.id);
    }
    let data = serde_json::json!({ "added": added, "there": there });
    app.out.answer("task.import", &data, &["regatta task list".into()], |_| {
        format!("added {}, {} already existed\n", added.len(), there.len())
    })
}

/// A task in the format of a plan file.
#[derive(Serialize)]
struct Exported {
    id: String,
    subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    issue_type: IssueType,
    files: Vec<String>,
    validation: Validation,
    blocked_by: Vec<String>,
    priority: u8,
    expects: Expects,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratchet: Option<Vec<String>>,
}

/// Runs `regatta task export`.
fn export(app: &App, all: bool) -> Said {
    let client = app.client()?;
    let call = Call::TaskList(input::TaskList {
        project: app.project(&client)?,
        mission: None,
        status: vec![],
        all,
        limit: 0,
    });
    let got: Got<Vec<TaskView>> = client.call(&call)?;
    let shown: Vec<TaskId> = got.data.iter().map(|it| it.task.id).collect();
    let name = |id: TaskId| {
        got.data
            .iter()
            .find(|it| it.task.id == id)
            .and_then(|it| it.task.alias.clone())
            .unwrap_or_else(|| id.to_string())
    };
    let tasks: Vec<Exported> = got
        .data
        .iter()
        .map(|it| Exported {
            id: name(it.task.id),
            subject: it.task.subject.clone(),
            description: it.task.description.clone(),
            issue_type: it.task.issue_type,
            files: it.task.files.iter().map(ToString::to_string).collect(),
            validation: it.task.validation.clone(),
            // Blockers that are not exported are left out, because the plan could not refer to
            // them.
            blocked_by: it.task.blocked_by.iter().filter(|it| shown.contains(it)).map(|it| name(*it)).collect(),
            priority: it.task.priority,
            expects: it.task.expects,
            effort: it.task.effort.clone(),
            agent: it.task.assignee.clone(),
            provider: it.task.provider.clone(),
            script: it.task.script.as_deref().and_then(|it| serde_json::from_str(it).ok()),
            ratchet: it.task.ratchet.clone(),
        })
        .collect();
    #[derive(Serialize)]
    struct File {
        task: Vec<Exported>,
    }
    let file = File { task: tasks };
    let text = toml::to_string(&file).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
    app.out.answer("task.export", &file, &[], |_| text)
}
