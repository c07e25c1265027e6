//! The commands `replay` and `compare`: the history of a mission, and the figures of several
//! missions.

use std::io::BufRead;

use regatta_api::view::{FiguresView, ReplayView};
use regatta_api::{Call, input};
use regatta_core::ids::MissionId;
use regatta_core::life::Doing;

use crate::args::Replay;
use crate::client::{Client, Got};
use crate::follow::tokens;
use crate::out::{Failed, Out, Said, exact, line, table, usage};

use super::App;
use super::see::hour;

/// Runs `regatta replay`.
pub(super) fn replay(app: &App, ask: &Replay) -> Said {
    let client = app.client()?;
    let look = |at| read(&client, ask.mission, at);
    if ask.step {
        return step(app, &client, ask.mission);
    }
    let it = look(ask.at)?;
    let next = match (ask.at, it.marks.get(it.marks.len() / 2)) {
        (None, Some(mark)) => {
            vec![
                format!("regatta replay {} --at {}", ask.mission, mark.revision),
                format!("regatta replay {} --step", ask.mission),
            ]
        }
        (Some(at), _) => match it.marks.iter().find(|it| it.revision > at) {
            Some(mark) => vec![format!("regatta replay {} --at {}", ask.mission, mark.revision)],
            None => vec![format!("regatta show {}", ask.mission)],
        },
        _ => vec![],
    };
    app.out.answer("mission.replay", &it, &next, |out| match ask.at {
        Some(_) => draw(out, &it),
        None => {
            let row =
                |mark: &regatta_api::view::MarkView| vec![mark.revision.to_string(), hour(mark.wall), line(&mark.text)];
            let marks: Vec<Vec<String>> = it.marks.iter().map(row).collect();
            format!(
                "{} \"{}\"   revisions {} to {}\n{}\n{}",
                it.mission,
                line(&it.title),
                it.first,
                it.last,
                table(&marks),
                draw(out, &it)
            )
        }
    })
}

fn read(client: &Client, id: MissionId, at: Option<u64>) -> Result<ReplayView, Failed> {
    let got: Got<ReplayView> = client.call(&Call::MissionReplay(input::MissionReplay { id: id.to_string(), at }))?;
    Ok(got.data)
}

/// Shows a mission at each of its events. In a terminal, Enter continues, `b` goes back and `q`
/// quits.
fn step(app: &App, client: &Client, id: MissionId) -> Said {
    let whole = read(client, id, None)?;
    let asks = app.may_ask_now();
    let (mut at, mut line_in) = (0, String::new());
    while let Some(mark) = whole.marks.get(at) {
        let then = read(client, id, Some(mark.revision))?;
        if app.out.json {
            app.out.answer("mission.replay", &then, &[], |_| String::new())?;
        } else {
            let head = format!("{} of {}   {}\n", at + 1, whole.marks.len(), line(&mark.text));
            app.out.print(&format!("{head}{}\n", draw(&app.out, &then)))?;
        }
        at += 1;
        if !asks || at == whole.marks.len() {
            continue;
        }
        app.out.note("Enter: next, b: back, q: quit");
        line_in.clear();
        let read = std::io::stdin().lock().read_line(&mut line_in);
        match (read, line_in.trim()) {
            (Ok(0) | Err(_), _) | (_, "q") => return Ok(()),
            (_, "b") => at = at.saturating_sub(2),
            _ => {}
        }
    }
    Ok(())
}

/// Draws a mission at one revision.
fn draw(out: &Out, it: &ReplayView) -> String {
    let mut text = format!("at {} {}  {}\n", it.at, hour(it.wall), line(&it.event));
    let row = |row: &regatta_api::page::RowView| {
        let agent = row.agent.as_ref().map_or_else(|| "-".into(), ToString::to_string);
        vec![format!("  {}", row.id), out.state(&row.word), line(&row.subject), agent, line(&row.text)]
    };
    text += &table(&it.tasks.iter().map(row).collect::<Vec<_>>());
    if !it.queue.is_empty() {
        let cars: Vec<String> = it.queue.iter().map(|it| format!("{} {}", it.task, it.state)).collect();
        text += &format!("queue  {}\n", cars.join(" · "));
    }
    text
}

/// Runs `regatta compare`.
pub(super) fn compare(app: &App, ids: &[MissionId]) -> Said {
    if let [only] = ids {
        let hint = format!("add another mission: regatta compare {only} M2");
        return Err(usage("compare needs at least two missions", hint));
    }
    let got: Got<Vec<FiguresView>> = app.call(&Call::MissionCompare(input::MissionCompare { ids: ids.to_vec() }))?;
    let all = got.data;
    let next: Vec<String> = ids.iter().take(2).map(|it| format!("regatta replay {it}")).collect();
    app.out.answer("mission.compare", &all, &next, |_| side_by_side(&all))
}

/// Draws a table with a column per mission and a row per figure.
fn side_by_side(all: &[FiguresView]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&FiguresView) -> String| {
        rows.push(std::iter::once(name.to_owned()).chain(all.iter().map(of)).collect());
    };
    row("", &|it| format!("{} {}", it.mission, line(&it.title)));
    row("state", &|it| if it.running { "running".into() } else { "ended".into() });
    row("landed", &|it| format!("{} of {}", it.landed, it.tasks));
    row("failed", &|it| it.failed.to_string());
    row("time", &|it| exact(it.wall_ms));
    row("work", &|it| exact(it.work_ms));
    row("agents", &|it| it.agents.to_string());
    row("retries", &|it| it.retries.to_string());
    row("fix-ups", &|it| it.fixups.to_string());
    row("conflicts", &|it| it.conflicts.to_string());
    row("tokens", &|it| tokens(it.spent.usage.tokens()));
    // An unknown cost is not shown as zero.
    row("cost", &|it| match it.spent.usage.micro_usd {
        Some(micro) => format!("${:.2}", micro as f64 / 1e6),
        None => "no price reported".into(),
    });
    let mut kinds: Vec<Doing> = all.iter().flat_map(|it| it.time.iter().map(|it| it.doing)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let name = format!("  {}", super::see::doing(kind));
        row(&name, &|it| it.time.iter().find(|sum| sum.doing == kind).map_or("-".into(), |it| exact(it.ms)));
    }
    table(&rows)
}
