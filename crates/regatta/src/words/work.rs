//! Work: `run`, `land`, `stop`.

use std::io::Write;

use regatta_api::Call;
use regatta_api::input::{self, RuntimeName};
use regatta_api::view::{AgentView, MissionView, TaskView};
use regatta_core::agent::{Role, Runtime};
use regatta_core::ids::{AgentName, MissionId, TaskId};
use regatta_core::mission;

use crate::args::{Mode, Run, Stop};
use crate::client::{Client, Got};
use crate::follow::{self, Ending};
use crate::out::{self, Failed, Said, failed, line, table, usage};
use crate::plan::{self, Plan};
use crate::settings::{self, value};

use super::App;

pub(super) fn run(app: &App, ask: &Run) -> Said {
    if let Some(mission) = &ask.resume {
        return resume(app, ask, mission);
    }
    let plan = ask.plan.as_deref().map(plan::read).transpose()?;
    if let (Some(plan), true) = (&plan, ask.plan_only) {
        return show_plan(app, plan, ask.mode);
    }
    let client = app.client()?;
    let Some(project) = app.project(&client)? else {
        // Say what is wrong with the place before saying that it is not set up.
        let git = crate::wire::git(&app.data_dir()?);
        regatta_engine::ports::git::Git::inspect(&git, &app.here()?).map_err(|it| failed(it.code, it.what, it.hint))?;
        return Err(failed("no_project", "this repository is not under management yet", "set it up: regatta init"));
    };
    let settings = settings::all(&app.here()?)?;
    let agents = choose_agents(&client, ask, &settings)?;
    let max_workers = match ask.max_workers {
        Some(it) => it,
        None => value(&settings, "run.max_workers")
            .parse()
            .map_err(|_| failed("bad_config", "run.max_workers is not a number", "mend it in regatta.toml"))?,
    };
    let (title, tasks, adopt) = match plan {
        Some(plan) => {
            preview(app, &plan, ask.mode, &agents);
            (plan.title, plan.tasks, vec![])
        }
        None => {
            let filter =
                input::TaskList { project: Some(project.clone()), mission: None, status: vec![], all: false, limit: 0 };
            let open: Got<Vec<TaskView>> = client.call(&Call::TaskList(filter))?;
            let free: Vec<TaskId> = open
                .data
                .iter()
                .filter(|it| it.task.mission.is_none() && it.task.status.is_waiting())
                .map(|it| it.task.id)
                .collect();
            if free.is_empty() {
                return Err(usage(
                    "there is no plan, and no task on the board waits",
                    "name a plan, or add a task: regatta add SUBJECT --files src/**",
                ));
            }
            let named: Vec<String> = free.iter().take(20).map(ToString::to_string).collect();
            let more = if free.len() > named.len() { " …" } else { "" };
            let which = format!("{} that nobody started yet: {}{more}", counted(free.len()), named.join(" "));
            if !ask.plan_only && !app.global.yes && !app.may_ask() {
                return Err(usage(
                    format!("no plan was named; this would start {which}"),
                    "say that this is meant: regatta run --yes; or name a plan: regatta run PLAN.toml",
                ));
            }
            app.out.note(&format!("no plan: {which}"));
            ("tasks on the board".into(), vec![], free)
        }
    };
    if ask.plan_only {
        return Ok(());
    }
    warn_if_dirty(app);
    if app.may_ask() && !confirmed()? {
        return app
            .out
            .answer("run", &serde_json::json!({ "started": false }), &[], |_| "nothing was started\n".into());
    }
    let mode = match ask.mode {
        Mode::Flow => mission::Mode::Flow,
        Mode::Waves => mission::Mode::Waves,
    };
    let start =
        input::MissionStart { project: Some(project), title, agents, max_workers, mode, isolate: false, tasks, adopt };
    let got: Got<MissionView> = client.call(&Call::MissionStart(start))?;
    started(app, &client, got, ask.wait)
}

/// A mission is under way: follow it, or say how.
fn started(app: &App, client: &Client, got: Got<MissionView>, wait: bool) -> Said {
    let id = got.data.mission.id;
    if !wait && !out::watched() {
        return app
            .out
            .answer("run", &got.data, &["regatta status".into()], |out| super::see::draw_mission(out, &got.data));
    }
    let ending = follow::follow(&app.out, client, id, got.revision, app.timeout())?;
    finish(app, client, id, ending)
}

fn resume(app: &App, ask: &Run, mission: &str) -> Said {
    let client = app.client()?;
    let id: MissionId = if mission.is_empty() {
        let status: Got<regatta_api::view::StatusView> =
            client.call(&Call::Status(input::Scope { project: app.project(&client)? }))?;
        *status.data.missions.last().ok_or_else(|| {
            failed("no_such_mission", "no mission is left to go on with", "start one: regatta run PLAN.toml")
        })?
    } else {
        mission.parse().map_err(|it: regatta_core::ids::BadName| usage(it.to_string(), "name a mission: M3"))?
    };
    let _done: Got<String> = client.call(&Call::Resume(input::Id { id: id.to_string() }))?;
    let got: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: id.to_string() }))?;
    started(app, &client, got, ask.wait)
}

/// The agents that were named, or those of the settings, or all whose program we start.
fn choose_agents(client: &Client, ask: &Run, settings: &[settings::Setting]) -> Result<Vec<AgentName>, Failed> {
    let known: Got<Vec<AgentView>> = client.call(&Call::AgentList(input::Nothing {}))?;
    let mut wanted = ask.agents.clone();
    if wanted.is_empty() {
        for name in value(settings, "run.agents").split(',').map(str::trim).filter(|it| !it.is_empty()) {
            wanted.push(AgentName::new(name).map_err(|it| usage(it.to_string(), "mend run.agents"))?);
        }
    }
    if wanted.is_empty() {
        wanted = known
            .data
            .iter()
            .filter(|it| !matches!(it.agent.runtime, Runtime::Outside))
            .map(|it| it.agent.name.clone())
            .collect();
    }
    if wanted.is_empty() {
        return Err(failed(
            "no_provider",
            "there is no agent to do the work",
            "add one: regatta agent add NAME --runtime command --command '…'; or rehearse: --agents scripted",
        ));
    }
    for name in &wanted {
        if name.as_str() == "scripted" && !known.data.iter().any(|it| it.agent.name == *name) {
            let add = input::AgentAdd {
                name: name.clone(),
                runtime: RuntimeName::Scripted,
                command: vec![],
                role: Role::Worker,
                provider: None,
                description: "follows each task's script".into(),
                max_tasks: 3,
                profile: Default::default(),
            };
            let _added: Got<AgentView> = client.call(&Call::AgentAdd(add))?;
        }
    }
    Ok(wanted)
}

/// A dirty checkout stops every landing, so say it before the work starts and not after.
fn warn_if_dirty(app: &App) {
    let Ok((here, data_dir)) = app.here().and_then(|it| Ok((it, app.data_dir()?))) else { return };
    let facts = regatta_engine::ports::git::Git::inspect(&crate::wire::git(&data_dir), &here);
    if let Ok(facts) = facts
        && !facts.dirty.is_empty()
    {
        let files = facts.dirty.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        app.out.note(&format!(
            "warning: the checkout has changes in {files}; landing waits until you commit or stash them"
        ));
    }
}

fn confirmed() -> Result<bool, Failed> {
    let mut stderr = std::io::stderr();
    let _gone = write!(stderr, "start it? [Y/n] ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|it| failed("io", it.to_string(), "say --yes"))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn show_plan(app: &App, plan: &Plan, mode: Mode) -> Said {
    app.out.answer("plan", &plan.tasks, &[], |_| draw_plan(plan, mode, &[]))
}

fn preview(app: &App, plan: &Plan, mode: Mode, agents: &[AgentName]) {
    app.out.note(draw_plan(plan, mode, agents).trim_end());
}

/// The plan as it will be worked off, with who is in whose way: the ownership table.
fn draw_plan(plan: &Plan, mode: Mode, agents: &[AgentName]) -> String {
    let depends_on: Vec<Vec<usize>> = plan.tasks.iter().map(|it| it.after.clone()).collect();
    let collide = |a: usize, b: usize| {
        plan.tasks[a].task.files.iter().any(|x| plan.tasks[b].task.files.iter().any(|y| x.overlaps(y)))
    };
    let layers = regatta_core::graph::layers(plan.tasks.len(), &depends_on, collide)
        .unwrap_or_else(|_| vec![0; plan.tasks.len()]);
    let waves = layers.iter().max().map_or(0, |it| it + 1);
    let names: Vec<String> = agents.iter().map(ToString::to_string).collect();
    let with = if names.is_empty() { String::new() } else { format!(" · agents {}", names.join(" ")) };
    let pace = match (mode, waves) {
        (Mode::Flow, _) => "each starts when it is ready".to_owned(),
        (Mode::Waves, 1) => "1 wave".into(),
        (Mode::Waves, _) => format!("{waves} waves with a barrier"),
    };
    let mut text = format!("plan \"{}\"  {} · {pace}{with}\n", line(&plan.title), counted(plan.tasks.len()));
    let mut order: Vec<usize> = (0..plan.tasks.len()).collect();
    order.sort_by_key(|it| (layers[*it], *it));
    let rows: Vec<Vec<String>> = order
        .iter()
        .map(|at| {
            let it = &plan.tasks[*at];
            let files: Vec<String> = it.task.files.iter().map(ToString::to_string).collect();
            let needs: Vec<String> = it.after.iter().map(|on| plan.names[*on].clone()).collect();
            let needs = if needs.is_empty() { String::new() } else { format!("needs {}", needs.join(" ")) };
            let name = match mode {
                Mode::Flow => vec![format!("  {}", plan.names[*at])],
                Mode::Waves => vec![format!("  wave {}", layers[*at] + 1), plan.names[*at].clone()],
            };
            [name, vec![line(&it.task.subject), files.join(" "), needs]].concat()
        })
        .collect();
    text += &table(&rows);
    for a in 0..plan.tasks.len() {
        for b in a + 1..plan.tasks.len() {
            if collide(a, b) && !reaches(&depends_on, b, a) && !reaches(&depends_on, a, b) {
                text += &format!(
                    "conflict  {} and {} want the same files: {} runs after {}\n",
                    plan.names[a], plan.names[b], plan.names[b], plan.names[a]
                );
            }
        }
    }
    text
}

/// How many tasks, in words.
pub(super) fn counted(tasks: usize) -> String {
    if tasks == 1 { "1 task".into() } else { format!("{tasks} tasks") }
}

fn reaches(depends_on: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut open = vec![from];
    let mut seen = vec![false; depends_on.len()];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) {
            open.extend(&depends_on[at]);
        }
    }
    false
}

/// Says how a mission ended, with the exit code that tells it.
pub(super) fn finish(app: &App, client: &Client, id: MissionId, ending: Ending) -> Said {
    let got: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: id.to_string() }))?;
    let count = |words: &[&str]| got.data.tasks.iter().filter(|it| words.contains(&it.word.as_str())).count();
    let (landed, dead, people) =
        (count(&["landed", "done"]), count(&["failed", "cancelled"]), count(&["needs you"]) + got.data.outlook.held);
    let all = got.data.tasks.len();
    app.out.answer("run", &got.data, &["regatta queue".into(), "regatta status".into()], |out| {
        let mut text = table(&super::task::rows(out, &got.data.tasks));
        let waiting = match all.saturating_sub(landed + dead + people) {
            0 => String::new(),
            waiting => format!(", {waiting} waiting"),
        };
        text += &format!("{id}: {landed} of {all} landed, {dead} failed, {people} need you{waiting}\n");
        text
    })?;
    match ending {
        Ending::TimedOut => Err(Failed::Code(124)),
        Ending::Detached => Err(Failed::Code(130)),
        Ending::Settled if landed == all => Ok(()),
        Ending::Settled if people > 0 => Err(Failed::Code(3)),
        Ending::Settled if landed > 0 => Err(Failed::Code(8)),
        Ending::Settled => Err(Failed::Code(1)),
    }
}

pub(super) fn land(app: &App, id: TaskId, wait: bool) -> Said {
    let client = app.client()?;
    let got: Got<TaskView> = client.call(&Call::Land(input::Id { id: id.to_string() }))?;
    let last = if wait { follow::until_landed(&client, id, got.revision, app.timeout())? } else { Some(got.data) };
    let Some(task) = last else { return Err(Failed::Code(124)) };
    app.out.answer("land", &task, &["regatta queue".into()], |out| match &task.task.landed {
        Some(commit) => format!("landed {id} as {}\n", &commit.as_str()[..10]),
        None => {
            let reason =
                task.waits.first().map_or_else(|| task.task.reason.clone().unwrap_or_default(), |it| it.text.clone());
            format!("{id} {}  {}\n", out.state(&task.word), line(&reason))
        }
    })?;
    match task.word.as_str() {
        "landed" | "done" | "landing" if !wait || task.task.landed.is_some() || task.word == "done" => Ok(()),
        "needs you" | "landing" => Err(Failed::Code(3)),
        _ if !wait => Ok(()),
        _ => Err(Failed::Code(1)),
    }
}

pub(super) fn stop(app: &App, ask: Stop) -> Said {
    let client = app.client()?;
    let got: Got<serde_json::Value> = client.call(&Call::Stop(input::Stop { id: ask.id.clone(), drain: ask.drain }))?;
    let verb = if ask.drain { "draining" } else { "stopped" };
    let (said, next) = match (&ask.id, got.data.as_array()) {
        (Some(id), _) if id.starts_with(['T', 't', 'A', 'a']) => {
            let task = got.data.get("id").and_then(|it| it.as_str()).unwrap_or(id);
            (format!("{verb} {id}; its work is kept"), format!("regatta edit {task} --ready"))
        }
        (Some(id), _) => (format!("{verb} {id}; all work is kept"), "regatta run --resume".into()),
        (None, missions) => {
            let names: Vec<&str> = missions.into_iter().flatten().filter_map(|it| it.as_str()).collect();
            let left = left_alone(&client, &names)?;
            match names.is_empty() {
                true => (format!("no mission runs{left}"), "regatta status".into()),
                false => (
                    format!("{verb} {}, every mission there is; all work is kept{left}", names.join(" ")),
                    "regatta run --resume".into(),
                ),
            }
        }
    };
    app.out.answer("stop", &got.data, &[next], |_| format!("{said}\n"))
}

/// Who still works although every mission was stopped: agents that took their task by themselves.
fn left_alone(client: &Client, stopped: &[&str]) -> Result<String, Failed> {
    let status: Got<regatta_api::view::StatusView> = client.call(&Call::Status(input::Scope { project: None }))?;
    let at_work = |it: &&TaskView| {
        let of_a_mission = it.task.mission.is_some_and(|it| stopped.contains(&it.to_string().as_str()));
        it.word == "working" && !of_a_mission
    };
    let left: Vec<&TaskView> = status.data.tasks.iter().filter(at_work).collect();
    let Some(first) = left.first() else { return Ok(String::new()) };
    let named: Vec<String> = left
        .iter()
        .take(10)
        .map(|it| format!("{} ({})", it.task.id, it.task.agent.as_ref().map_or("-", |it| it.as_str())))
        .collect();
    let more = if left.len() > named.len() { " …" } else { "" };
    Ok(format!(
        "\nleft at work, because no mission started it: {}{more}; stop one by its id: regatta stop {}",
        named.join(" "),
        first.task.id
    ))
}
