//! The commands `mission` and `guide`: missions with a lead, and the guides for agents.

use regatta_api::guide::{self, GUIDES};
use regatta_api::view::{GuideView, MissionLineView, MissionView};
use regatta_api::{Call, input};
use regatta_core::mission::{How, State};

use crate::args::MissionWord;
use crate::client::Got;
use crate::out::{Failed, Out, Said, line, plain, table, usage};

use super::App;

/// Runs `regatta mission`.
pub(super) fn mission(app: &App, word: MissionWord) -> Said {
    match word {
        MissionWord::Start { goal, agent, task } => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let goal = goal.or_else(|| task.map(|it| format!("Work on {it}"))).unwrap_or_default();
            let got: Got<MissionView> =
                client.call(&Call::MissionAsk(input::MissionAsk { project, goal, agent, task }))?;
            let it = &got.data.mission;
            let next = [format!("regatta mission show {}", it.id), format!("regatta msg watch {}", it.project)];
            app.out.answer("mission.start", &got.data, &next, |_| {
                match it.lead.as_ref().and_then(|it| it.name.as_ref()) {
                    Some(name) => format!("{} is led by {name}\n", it.id),
                    None => format!("{} waits for a lead, because the maximum number of leads is working\n", it.id),
                }
            })
        }
        MissionWord::List => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let got: Got<Vec<MissionLineView>> = client.call(&Call::MissionList(input::Scope { project }))?;
            let none = ["regatta mission start 'Add login with rate limits'".to_owned()];
            let next: &[String] = if got.data.is_empty() { &none } else { &[] };
            app.out.answer("mission.list", &got.data, next, |_| draw(&got.data))
        }
        MissionWord::Show { id } => {
            let got: Got<MissionView> = app.call(&Call::MissionShow(input::Id { id }))?;
            show(app, &got.data)
        }
        MissionWord::Pause { id } => {
            let _done: Got<serde_json::Value> =
                app.call(&Call::Stop(input::Stop { id: Some(id.clone()), drain: true, again: false }))?;
            let next = [format!("regatta mission resume {id}")];
            app.out.answer("mission.pause", &serde_json::json!({ "mission": id }), &next, |_| {
                format!("{id} is paused: running attempts continue, nothing new starts\n")
            })
        }
        MissionWord::Resume { id } => {
            let _done: Got<serde_json::Value> = app.call(&Call::Resume(input::Id { id: id.clone() }))?;
            let next = [format!("regatta mission show {id}")];
            app.out.answer("mission.resume", &serde_json::json!({ "mission": id }), &next, |_| {
                format!("{id} is resumed\n")
            })
        }
        MissionWord::Cancel { id, because } => {
            let ask = input::Said { id: id.clone(), text: because };
            let got: Got<MissionView> = app.call(&Call::MissionCancel(ask))?;
            app.out.answer("mission.cancel", &got.data, &[], |_| {
                format!("{} is cancelled; its work is kept\n", got.data.mission.id)
            })
        }
        MissionWord::Handover { id, to } => {
            let got: Got<MissionView> = app.call(&Call::MissionHandover(input::MissionHandover { id, to }))?;
            let it = &got.data.mission;
            let next = [format!("regatta mission show {}", it.id)];
            app.out.answer("mission.handover", &got.data, &next, |_| {
                match it.lead.as_ref().and_then(|it| it.name.as_ref()) {
                    Some(name) => format!("{} is now led by {name}\n", it.id),
                    None => format!("{} waits for its next lead\n", it.id),
                }
            })
        }
        MissionWord::Adopt { task, mission } => {
            let _task: Got<serde_json::Value> = app.call(&Call::MissionAdopt(input::MissionAdopt { task, mission }))?;
            app.out.answer("mission.adopt", &serde_json::json!({ "task": task }), &[], |_| {
                format!("{task} now belongs to the mission\n")
            })
        }
        MissionWord::Finish { report } => {
            let (task, attempt, token) = (own("REGATTA_TASK")?, own("REGATTA_ATTEMPT")?, own("REGATTA_ATTEMPT_TOKEN")?);
            let _done: Got<serde_json::Value> =
                app.call(&Call::MissionFinish(input::MissionFinish { task, attempt, token, report }))?;
            app.out.answer("mission.finish", &serde_json::json!({ "task": task }), &[], |_| {
                "the mission will end when your turn ends\n".into()
            })
        }
        MissionWord::Route { message } => {
            let project = app.global.project.clone();
            let _done: Got<serde_json::Value> = app.call(&Call::Route(input::Route { message, project }))?;
            app.out.answer("mission.route", &serde_json::json!({ "message": message }), &[], |_| {
                format!("{message} is routed\n")
            })
        }
    }
}

/// Reads a variable that Regatta sets for the program of an attempt.
fn own<T: std::str::FromStr>(name: &str) -> Result<T, Failed> {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).ok_or_else(|| {
        usage(
            format!("{name} is not set, because only a lead's program can run this command"),
            "to end a mission as a person: regatta mission cancel M3",
        )
    })
}

fn state(it: &MissionLineView) -> String {
    match (it.state, &it.lost, it.place) {
        (_, Some(_), _) => "without a lead".into(),
        (State::Queued, _, Some(place)) => format!("queued, position {place}"),
        (State::Queued, ..) => "queued".into(),
        (State::Active, ..) => "active".into(),
        (State::Draining, ..) => "paused".into(),
    }
}

fn draw(missions: &[MissionLineView]) -> String {
    if missions.is_empty() {
        return "no open missions\n".into();
    }
    let mut rows = vec![["MISSION", "STATE", "LEAD", "SUMMARY"].map(String::from).to_vec()];
    for it in missions {
        let lead = it.lead.as_ref().map_or("-".to_owned(), ToString::to_string);
        rows.push(vec![it.id.to_string(), state(it), lead, line(&it.summary)]);
    }
    table(&rows)
}

fn show(app: &App, view: &MissionView) -> Said {
    let it = &view.mission;
    let next = match (&it.result, it.lead.as_ref().and_then(|it| it.lost.as_ref())) {
        (None, Some(_)) => {
            vec![format!("regatta mission handover {}", it.id), format!("regatta mission cancel {}", it.id)]
        }
        (None, None) => vec![format!("regatta msg history {}", it.project)],
        (Some(_), _) => vec![],
    };
    app.out.answer("mission.show", view, &next, |out| picture(out, view))
}

/// Draws a mission with its goal, lead, spending and tasks.
fn picture(out: &Out, view: &MissionView) -> String {
    let it = &view.mission;
    let mut text = format!("{}  {}\n", it.id, line(&it.title));
    if let Some(goal) = it.goal.as_ref().filter(|goal| goal.trim() != it.title) {
        text += &format!("{}\n", plain(goal.trim()));
    }
    match (&it.lead, &it.result) {
        (_, Some(end)) => {
            let how = if end.how == How::Done { "done" } else { "cancelled" };
            text += &format!("{how}  {}\n", plain(&end.report));
        }
        (Some(lead), None) => {
            let who = match (&lead.lost, &lead.name) {
                (Some(why), _) => format!("none, because the last one was lost: {}", line(why)),
                (None, Some(name)) => name.to_string(),
                (None, None) => "none yet, the mission is queued".into(),
            };
            text += &format!("lead    {who}\n");
        }
        (None, None) => {
            text += &format!("agents  {}\n", it.agents.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
    }
    let money = it.spent.usage.micro_usd.map_or(String::new(), |it| format!(", ${:.2}", it as f64 / 1e6));
    text += &format!("spent   {} attempts, {} tokens{money}\n", it.spent.attempts, it.spent.usage.tokens());
    text + &table(&super::task_rows(out, &view.tasks))
}

/// Runs `regatta guide`.
pub(super) fn guide(app: &App, name: Option<&str>) -> Said {
    let view = |it: &guide::Guide| GuideView { name: it.name.into(), title: it.title.into(), text: it.text.into() };
    let Some(name) = name else {
        let all: Vec<GuideView> = GUIDES.iter().map(view).collect();
        let next = ["regatta guide start".to_owned()];
        return app.out.answer("guide", &all, &next, |_| {
            table(&all.iter().map(|it| vec![it.name.clone(), it.title.clone()]).collect::<Vec<_>>())
        });
    };
    let names: Vec<&str> = GUIDES.iter().map(|it| it.name).collect();
    let found = guide::find(name)
        .ok_or_else(|| usage(format!("there is no guide {name:?}"), format!("use one of: {}", names.join(", "))))?;
    app.out.answer("guide", &view(found), &[], |_| found.text.to_owned())
}
