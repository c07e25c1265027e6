//! The command `replay`, which shows the history of a mission (a goal with its tasks), and its
//! state at an earlier time.

use std::io::BufRead;

use clap::Args;
use regatta_api::view::ReplayView;
use regatta_api::{call, input};
use regatta_core::ids::MissionId;

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, Output, first_line, format_table, format_time_to_second,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "replay",
    &["regatta replay M3", "regatta replay M3 --at 412"],
)];

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Mission to show, such as M3
    pub(crate) mission: MissionId,
    /// Revision (number of an event) at which to show the mission (default: show its history and
    /// its present state)
    #[arg(long, value_name = "REVISION", conflicts_with = "step")]
    pub(crate) at: Option<u64>,
    /// Show the state of the mission after each of its events, one event after the other
    #[arg(long)]
    pub(crate) step: bool,
}

/// Runs `regatta replay`.
pub(crate) fn replay(app: &CommandContext, args: &ReplayArgs) -> CommandResult {
    let client = app.client()?;
    let read_at = |at| read_replay(&client, args.mission, at);
    if args.step {
        return step_through(app, &client, args.mission);
    }
    let replay = read_at(args.at)?;
    let next = match (args.at, replay.marks.get(replay.marks.len() / 2)) {
        (None, Some(mark)) => {
            vec![
                format!("regatta replay {} --at {}", args.mission, mark.revision),
                format!("regatta replay {} --step", args.mission),
            ]
        }
        (Some(at), _) => match replay
            .marks
            .iter()
            .find(|replay_mark| replay_mark.revision > at)
        {
            Some(mark) => vec![format!(
                "regatta replay {} --at {}",
                args.mission, mark.revision
            )],
            None => vec![format!("regatta show {}", args.mission)],
        },
        _ => vec![],
    };
    app.output
        .print_answer("mission.replay", &replay, &next, |out| match args.at {
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
    let reply: CallReply<ReplayView> = client.call(call::MissionReplay(input::MissionReplay {
        id: id.to_string(),
        at,
    }))?;
    Ok(reply.data)
}

/// Shows a mission at each of its events. In a terminal, Enter continues, `b` goes back and `q`
/// quits.
fn step_through(app: &CommandContext, client: &Client, id: MissionId) -> CommandResult {
    let history = read_replay(client, id, None)?;
    let can_ask = app.can_ask_now();
    let (mut nth, mut line) = (0, String::new());
    while let Some(mark) = history.marks.get(nth) {
        let past = read_replay(client, id, Some(mark.revision))?;
        if app.output.is_json {
            app.output
                .print_answer("mission.replay", &past, &[], |_| String::new())?;
        } else {
            let head = format!(
                "{} of {}   {}\n",
                nth + 1,
                history.marks.len(),
                first_line(&mark.text)
            );
            app.output
                .print(&format!("{head}{}\n", draw_replay(&app.output, &past)))?;
        }
        nth += 1;
        if !can_ask || nth == history.marks.len() {
            continue;
        }
        app.output.print_note("Enter: next, b: back, q: quit");
        line.clear();
        let read = std::io::stdin().lock().read_line(&mut line);
        match (read, line.trim()) {
            (Ok(0) | Err(_), _) | (_, "q") => return Ok(()),
            (_, "b") => nth = nth.saturating_sub(2),
            _ => {}
        }
    }
    Ok(())
}

/// Draws a mission and its tasks as they were at one revision.
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
            out.format_state(row.at, &row.word),
            first_line(&row.subject),
            agent,
            first_line(&row.text),
        ]
    };
    text += &format_table(&replay.tasks.iter().map(row).collect::<Vec<_>>());
    if !replay.queue.is_empty() {
        let landings: Vec<String> = replay
            .queue
            .iter()
            .map(|landing| format!("{} {}", landing.task, landing.state))
            .collect();
        text += &format!("queue  {}\n", landings.join(" · "));
    }
    text
}
