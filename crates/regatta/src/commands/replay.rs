//! The commands `replay` and `compare`: the history of a mission, and the figures of several
//! missions.

use std::io::BufRead;

use regatta_api::view::{MissionFiguresView, ReplayView};
use regatta_api::{Call, input};
use regatta_core::ids::MissionId;
use regatta_core::task_timeline::Activity;

use crate::args::ReplayArgs;
use crate::client::{CallReply, Client};
use crate::output::{
    CommandError, CommandResult, Output, first_line, format_exact_duration, format_table,
    usage_error,
};
use crate::run_progress::format_tokens;

use super::CommandContext;
use super::see::format_time_to_second;

/// Runs `regatta replay`.
pub(super) fn replay(app: &CommandContext, ask: &ReplayArgs) -> CommandResult {
    let client = app.client()?;
    let look = |at| read_replay(&client, ask.mission, at);
    if ask.step {
        return step_through(app, &client, ask.mission);
    }
    let replay = look(ask.at)?;
    let next = match (ask.at, replay.marks.get(replay.marks.len() / 2)) {
        (None, Some(mark)) => {
            vec![
                format!("regatta replay {} --at {}", ask.mission, mark.revision),
                format!("regatta replay {} --step", ask.mission),
            ]
        }
        (Some(at), _) => match replay
            .marks
            .iter()
            .find(|replay_mark| replay_mark.revision > at)
        {
            Some(mark) => vec![format!(
                "regatta replay {} --at {}",
                ask.mission, mark.revision
            )],
            None => vec![format!("regatta show {}", ask.mission)],
        },
        _ => vec![],
    };
    app.output
        .print_answer("mission.replay", &replay, &next, |out| match ask.at {
            Some(_) => draw_replay(out, &replay),
            None => {
                let row = |mark: &regatta_api::view::ReplayMarkView| {
                    vec![
                        mark.revision.to_string(),
                        format_time_to_second(mark.wall),
                        first_line(&mark.text),
                    ]
                };
                let marks: Vec<Vec<String>> = replay.marks.iter().map(row).collect();
                format!(
                    "{} \"{}\"   revisions {} to {}\n{}\n{}",
                    replay.mission,
                    first_line(&replay.title),
                    replay.first,
                    replay.last,
                    format_table(&marks),
                    draw_replay(out, &replay)
                )
            }
        })
}

fn read_replay(
    client: &Client,
    id: MissionId,
    at: Option<u64>,
) -> Result<ReplayView, CommandError> {
    let got: CallReply<ReplayView> = client.call(&Call::MissionReplay(input::MissionReplay {
        id: id.to_string(),
        at,
    }))?;
    Ok(got.data)
}

/// Shows a mission at each of its events. In a terminal, Enter continues, `b` goes back and `q`
/// quits.
fn step_through(app: &CommandContext, client: &Client, id: MissionId) -> CommandResult {
    let whole = read_replay(client, id, None)?;
    let asks = app.can_ask_now();
    let (mut at, mut line_in) = (0, String::new());
    while let Some(mark) = whole.marks.get(at) {
        let then = read_replay(client, id, Some(mark.revision))?;
        if app.output.is_json {
            app.output
                .print_answer("mission.replay", &then, &[], |_| String::new())?;
        } else {
            let head = format!(
                "{} of {}   {}\n",
                at + 1,
                whole.marks.len(),
                first_line(&mark.text)
            );
            app.output
                .print(&format!("{head}{}\n", draw_replay(&app.output, &then)))?;
        }
        at += 1;
        if !asks || at == whole.marks.len() {
            continue;
        }
        app.output.print_note("Enter: next, b: back, q: quit");
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
fn draw_replay(out: &Output, replay: &ReplayView) -> String {
    let mut text = format!(
        "at {} {}  {}\n",
        replay.at,
        format_time_to_second(replay.wall),
        first_line(&replay.event)
    );
    let row = |row: &regatta_api::live_view::TaskRowView| {
        let agent = row
            .agent
            .as_ref()
            .map_or_else(|| "-".into(), ToString::to_string);
        vec![
            format!("  {}", row.id),
            out.format_state(&row.word),
            first_line(&row.subject),
            agent,
            first_line(&row.text),
        ]
    };
    text += &format_table(&replay.tasks.iter().map(row).collect::<Vec<_>>());
    if !replay.queue.is_empty() {
        let cars: Vec<String> = replay
            .queue
            .iter()
            .map(|landing| format!("{} {}", landing.task, landing.state))
            .collect();
        text += &format!("queue  {}\n", cars.join(" · "));
    }
    text
}

/// Runs `regatta compare`.
pub(super) fn compare(app: &CommandContext, ids: &[MissionId]) -> CommandResult {
    if let [only] = ids {
        let hint = format!("add another mission: regatta compare {only} M2");
        return Err(usage_error("compare needs at least two missions", hint));
    }
    let got: CallReply<Vec<MissionFiguresView>> =
        app.call(&Call::MissionCompare(input::MissionCompare {
            ids: ids.to_vec(),
        }))?;
    let all = got.data;
    let next: Vec<String> = ids
        .iter()
        .take(2)
        .map(|id| format!("regatta replay {id}"))
        .collect();
    app.output
        .print_answer("mission.compare", &all, &next, |_| draw_comparison(&all))
}

/// Draws a table with a column per mission and a row per figure.
fn draw_comparison(all: &[MissionFiguresView]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&MissionFiguresView) -> String| {
        rows.push(
            std::iter::once(name.to_owned())
                .chain(all.iter().map(of))
                .collect(),
        );
    };
    row("", &|mission_figures| {
        format!(
            "{} {}",
            mission_figures.mission,
            first_line(&mission_figures.title)
        )
    });
    row("state", &|mission_figures| {
        if mission_figures.running {
            "running".into()
        } else {
            "ended".into()
        }
    });
    row("landed", &|mission_figures| {
        format!("{} of {}", mission_figures.landed, mission_figures.tasks)
    });
    row("failed", &|mission_figures| {
        mission_figures.failed.to_string()
    });
    row("time", &|mission_figures| {
        format_exact_duration(mission_figures.wall_ms)
    });
    row("work", &|mission_figures| {
        format_exact_duration(mission_figures.work_ms)
    });
    row("agents", &|mission_figures| {
        mission_figures.agents.to_string()
    });
    row("retries", &|mission_figures| {
        mission_figures.retries.to_string()
    });
    row("fix-ups", &|mission_figures| {
        mission_figures.fixups.to_string()
    });
    row("conflicts", &|mission_figures| {
        mission_figures.conflicts.to_string()
    });
    row("tokens", &|mission_figures| {
        format_tokens(mission_figures.spent.usage.tokens())
    });
    // An unknown cost is not shown as zero.
    row(
        "cost",
        &|mission_figures| match mission_figures.spent.usage.micro_usd {
            Some(micro) => format!("${:.2}", micro as f64 / 1e6),
            None => "no price reported".into(),
        },
    );
    let mut kinds: Vec<Activity> = all
        .iter()
        .flat_map(|mission_figures| {
            mission_figures
                .time
                .iter()
                .map(|activity_total| activity_total.activity)
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let name = format!("  {}", crate::commands::see::activity_label(kind));
        row(&name, &|mission_figures| {
            mission_figures
                .time
                .iter()
                .find(|sum| sum.activity == kind)
                .map_or("-".into(), |activity_total| {
                    format_exact_duration(activity_total.ms)
                })
        });
    }
    format_table(&rows)
}
