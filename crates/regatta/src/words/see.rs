//! See: `status`, `show`, `why`, `events`, `open`.

use regatta_api::Call;
use regatta_api::input;
use regatta_api::page::OpenView;
use regatta_api::view::{AgentView, EventView, MissionView, StatusView, TaskView, WhyView};
use regatta_core::attempt::Attempt;
use regatta_core::gates::Says;
use regatta_core::task::Status;

use crate::args::Events;
use crate::client::{Got, Seen};
use crate::out::{Failed, Out, Said, ago, failed, line, plain, table};

use super::App;
use super::task::rows;

/// An address for a browser. Behind the `#` is a code that works once.
pub(super) fn open(app: &App) -> Said {
    let got: Got<OpenView> = app.call(&Call::Open(input::Nothing {}))?;
    let mut it = got.data;
    // The daemon knows its own address, not the one by which it is reached from here.
    if let Some(server) = &app.global.server {
        it.url = format!("{}/#{}", server.trim_end_matches('/'), it.code);
    }
    app.out.answer("open", &it, &[], |_| format!("{}\n", it.url))
}

pub(super) fn status(app: &App) -> Said {
    let client = app.client()?;
    let project = app.project(&client)?;
    let got: Got<StatusView> = client.call(&Call::Status(input::Scope { project }))?;
    let it = &got.data;
    let mut next = vec!["regatta events --follow".to_owned()];
    if let Some(task) = it.tasks.iter().find(|it| it.word == "needs you") {
        next.insert(0, format!("regatta why {}", task.task.id));
    }
    app.out.answer("status", it, &next, |out| {
        let tips: Vec<String> = it
            .projects
            .iter()
            .map(|it| format!("{} {}", it.trunk, it.tip.as_ref().map_or("-", |it| &it.as_str()[..10])))
            .collect();
        let failed = if it.failed == 0 { String::new() } else { format!("{} failed · ", it.failed) };
        let mut text = format!(
            "{} working · {} waiting · {} need you · queue {} · {} done · {failed}{}\n",
            it.working,
            it.waiting,
            it.needs_you,
            it.landing,
            it.completed,
            if tips.is_empty() { "no project yet".into() } else { tips.join(" · ") }
        );
        for it in it.projects.iter().flat_map(|it| &it.radar.collisions) {
            let other = it.other.map_or_else(|| "the trunk".to_owned(), |it| it.to_string());
            text += &format!("! {} and {other} will collide in {}\n", it.one, it.paths.join(", "));
        }
        for it in &it.projects {
            if let Some(held) = &it.held {
                text += &format!("! the queue of {} is held by {}: {}\n", it.name, line(&held.by), line(&held.reason));
            }
            text += &super::land::unpushed(it.unpushed.as_ref());
        }
        text += &table(&rows(out, &it.tasks));
        text
    })
}

pub(super) fn show(app: &App, id: &str) -> Said {
    let got: Got<serde_json::Value> = app.call(&Call::Show(input::Id { id: id.into() }))?;
    let data = got.data;
    // What came back says what it is by what it has.
    if data.get("subject").is_some() {
        let task: TaskView = read(data.clone())?;
        app.out.answer("task.show", &task, &[format!("regatta why {}", task.task.id)], |out| draw_task(out, &task))
    } else if data.get("capacity").is_some() {
        let agent: AgentView = read(data.clone())?;
        app.out.answer("agent.show", &agent, &[], |out| super::agents::draw(out, std::slice::from_ref(&agent)))
    } else if data.get("outlook").is_some() {
        let mission: MissionView = read(data.clone())?;
        app.out.answer("mission.show", &mission, &[], |out| draw_mission(out, &mission))
    } else {
        let attempt: Attempt = read(data.clone())?;
        app.out.answer("attempt.show", &attempt, &[format!("regatta logs {}", attempt.id)], |_| draw_attempt(&attempt))
    }
}

fn read<T: serde::de::DeserializeOwned>(data: serde_json::Value) -> Result<T, Failed> {
    serde_json::from_value(data).map_err(|it| {
        failed(
            "bug",
            format!("the daemon's answer cannot be read: {it}"),
            "the daemon may be of another version: regatta up --restart",
        )
    })
}

fn draw_task(out: &Out, view: &TaskView) -> String {
    let it = &view.task;
    let mut facts: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push(vec![name.into(), value]);
        }
    };
    let list = |items: &[String]| items.join(" ");
    fact("state", format!("{} ({})", out.state(&view.word), it.status));
    let heard = view.heard_wall.map_or(String::new(), |it| format!(", last heard {} ago", ago(it)));
    fact("now", view.live.as_deref().map(|it| line(it) + &heard).unwrap_or_default());
    fact("project", it.project.to_string());
    fact("agent", it.agent.as_ref().or(it.assignee.as_ref()).map(ToString::to_string).unwrap_or_default());
    fact("type", format!("{:?}, priority {}", it.issue_type, it.priority).to_lowercase());
    fact("files", list(&it.files.iter().map(ToString::to_string).collect::<Vec<_>>()));
    fact("needs", list(&it.blocked_by.iter().map(ToString::to_string).collect::<Vec<_>>()));
    fact(
        "checks",
        plain(&it.validation.lint.iter().chain(&it.validation.tests).cloned().collect::<Vec<_>>().join(" · ")),
    );
    if !it.spent.usage.is_nothing() {
        fact("spent", super::decide::spent(&it.spent));
    }
    fact("landed", view.now_as.as_ref().or(it.landed.as_ref()).map(ToString::to_string).unwrap_or_default());
    if let (Some(_), Some(first)) = (&view.now_as, &it.landed) {
        fact("first as", format!("{first}, before the trunk was brought onto what its remote had"));
    }
    fact("reason", line(it.reason.as_deref().unwrap_or_default()));
    fact("output", line(it.output.as_deref().unwrap_or_default()));
    let result = view.attempts.iter().rev().find_map(|it| it.result.as_ref());
    fact("result", result.and_then(|it| it.kept_at.as_deref()).map(line).unwrap_or_default());
    for (nth, escape) in it.escapes.iter().enumerate() {
        let name = regatta_core::scope::name_of(it.id, nth);
        fact("outside", format!("{name} {} ({})", line(&escape.finding), line(&escape.suggested_files.join(" "))));
    }
    for warning in &it.warnings {
        fact("warning", line(warning));
    }
    for reason in &view.waits {
        fact("waits", line(&reason.text));
    }
    for attempt in &view.attempts {
        fact("attempt", draw_attempt(attempt).trim_end().to_owned());
    }
    format!(
        "{} \"{}\"\n{}{}",
        it.id,
        line(&it.subject),
        table(&facts),
        if it.description.is_empty() { String::new() } else { format!("\n{}\n", plain(&it.description)) }
    )
}

fn draw_attempt(it: &Attempt) -> String {
    let how = match &it.ended {
        None => format!("{:?}", it.phase).to_lowercase(),
        Some(end) if end.detail.is_empty() => format!("{:?}", end.cause).to_lowercase(),
        Some(end) => format!("{:?}: {}", end.cause, line(&end.detail)).to_lowercase(),
    };
    format!("{} on {} by {}, {} ago: {how}\n", it.id, it.task, it.agent, ago(it.started_wall))
}

/// Draws a mission and its tasks.
pub(crate) fn draw_mission(out: &Out, it: &MissionView) -> String {
    let count = |word: &str| it.tasks.iter().filter(|it| it.word == word).count();
    // What leaves a report lands nothing.
    let ended = match (count("landed"), count("done")) {
        (landed, 0) => format!("{landed} of {} landed", it.tasks.len()),
        (landed, done) => format!("{landed} landed and {done} done of {}", it.tasks.len()),
    };
    let serial = it.mission.serialised.as_ref();
    let serial = serial.map_or(String::new(), |it| format!("no files are shared any longer: {}\n", line(it)));
    format!("{} {}   {ended}\n{serial}{}", it.mission.id, line(&it.mission.title), table(&rows(out, &it.tasks)))
}

pub(super) fn why(app: &App, id: &str) -> Said {
    let got: Got<WhyView> = app.call(&Call::Why(input::Id { id: id.into() }))?;
    let it = &got.data;
    let ways = ways_out(&it.task, !it.past.is_empty());
    let mut next: Vec<String> = ways.iter().map(|it| it.0.clone()).collect();
    next.push(format!("regatta show {}", it.task.task.id));
    app.out.answer("why", it, &next, |out| {
        let mut text =
            format!("{} \"{}\"   {}\n", it.task.task.id, line(&it.task.task.subject), out.state(&it.task.word));
        let mut facts = Vec::new();
        for (nth, reason) in it.task.waits.iter().enumerate() {
            let kind = serde_json::to_value(reason.kind)
                .ok()
                .and_then(|it| it.as_str().map(str::to_owned))
                .unwrap_or_default();
            facts.push(vec![if nth == 0 { "now".into() } else { "and".into() }, kind, line(&reason.text)]);
        }
        // What blocks is among the reasons already.
        for gate in it.task.gates.iter().filter(|it| it.says == Says::Warn) {
            facts.push(vec!["gate".into(), gate.gate.name().into(), line(&gate.reason)]);
        }
        for past in &it.past {
            facts.push(vec!["past".into(), format!("{} ago", ago(past.wall)), line(&past.text)]);
        }
        text += &table(&facts);
        let ways: Vec<Vec<String>> =
            ways.iter().map(|(way, what)| vec!["try".into(), way.clone(), (*what).into()]).collect();
        text += &table(&ways);
        text
    })
}

/// What can be done about a task that ended without its work.
fn ways_out(view: &TaskView, tried: bool) -> Vec<(String, &'static str)> {
    let it = &view.task;
    let mut ways = Vec::new();
    if !matches!(it.status, Status::Failed | Status::Cancelled) {
        return ways;
    }
    if tried {
        ways.push((format!("regatta logs {}", it.id), "what its last attempt said"));
    }
    ways.push((format!("regatta retry {}", it.id), "the same work as a new task, told how this one ended"));
    ways
}

pub(super) fn events(app: &App, ask: &Events) -> Said {
    let client = app.client()?;
    let out = &app.out;
    let after = ask.after.unwrap_or(0);
    client.events(after, ask.follow, |seen| {
        if let Seen::Event(event) = seen {
            if !out.json && event.kind.starts_with("request.") {
                return Ok(true); // bookkeeping, for programs
            }
            let text = if out.json {
                serde_json::to_string(&event).map_err(|it| failed("bug", it.to_string(), "please report this"))? + "\n"
            } else {
                draw_event(&event)
            };
            out.print(&text)?;
        }
        Ok(true)
    })
}

fn draw_event(it: &EventView) -> String {
    let time = it.time.get(11..19).unwrap_or(&it.time);
    let mut data = it.data.to_string();
    if data.len() > 160 {
        data = data.chars().take(159).chain(['…']).collect();
    }
    format!("{:>7} {time} {:<18} {:<10} {}\n", it.revision, it.kind, it.subject, plain(&data))
}

pub(super) fn got_revision(client: &crate::client::Client) -> Result<u64, Failed> {
    let got: Got<serde_json::Value> = client.call(&Call::AgentList(input::Nothing {}))?;
    Ok(got.revision)
}
