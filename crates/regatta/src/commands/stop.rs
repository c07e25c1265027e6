//! The command `stop`, which stops running work: of a task, an attempt, an agent, a mission, a
//! hook, or all missions.

use clap::Args;
use regatta_api::view::{StopAnswer, TaskView};
use regatta_api::{call, input};
use regatta_core::ids::MissionId;
use regatta_core::schedule;

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("stop", &["regatta stop T7", "regatta stop M3 --drain"])];

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Task, attempt, agent, mission or run of a hook to stop, such as T7, A5 or M3; omit the id to
    /// stop every mission
    pub(crate) id: Option<String>,
    /// Start the stopped work again at once, in a new attempt (run of an agent)
    #[arg(long, requires = "id", conflicts_with = "drain")]
    pub(crate) again: bool,
    /// Let running work finish, and start nothing new
    #[arg(long, conflicts_with = "now")]
    pub(crate) drain: bool,
    /// End running work at once (the default)
    #[arg(long)]
    pub(crate) now: bool,
}

/// Runs `regatta stop`.
pub(crate) fn stop(app: &CommandContext, args: StopArgs) -> CommandResult {
    let client = app.client()?;
    let answer = client
        .call(call::Stop(input::StopInput {
            id: args.id.clone(),
            drain: args.drain,
            again: args.again,
        }))?
        .data;
    let verb = match (args.drain, args.again) {
        (true, _) => "draining",
        (_, true) => "restarted",
        _ => "stopped",
    };
    let (text, next) = match (&args.id, &answer) {
        (Some(id), StopAnswer::Tasks(tasks)) => {
            let tasks = joined(tasks);
            let next = if args.again {
                "regatta status".into()
            } else {
                format!("regatta resume {tasks}")
            };
            (
                format!("{verb} {id}: {tasks}; all work is kept"),
                vec![next],
            )
        }
        (Some(id), _) if args.again => (
            format!("{verb} {id}; its work is kept"),
            vec!["regatta status".into()],
        ),
        (Some(id), StopAnswer::Firing(_)) => (
            format!("{verb} {id}: the hook's command has ended"),
            vec!["regatta hook log".into()],
        ),
        (Some(id), StopAnswer::Task(stopped)) if stopped.task.status.is_completed() => (
            format!("{verb} the commands that ran after {id} landed"),
            vec![format!("regatta show {id}")],
        ),
        (Some(id), StopAnswer::Task(stopped)) => (
            format!("{verb} {id}; its work is kept"),
            schedule::resume_command(&stopped.task)
                .into_iter()
                .collect(),
        ),
        (Some(id), StopAnswer::Missions(missions)) => (
            format!("{verb} {id}; all work is kept"),
            resume_mission_commands(missions),
        ),
        // Without an id every mission is stopped.
        (None, answer) => {
            let missions: &[MissionId] = match answer {
                StopAnswer::Missions(missions) => missions,
                _ => &[],
            };
            let note = still_running_note(&client, missions)?;
            let description = match missions {
                [] => {
                    return app.output.print_answer(
                        "stop",
                        answer,
                        &["regatta status".into()],
                        |_| format!("no mission is running{note}\n"),
                    );
                }
                [_] => "the only running mission",
                _ => "all running missions",
            };
            (
                format!(
                    "{verb} {}, {description}; all work is kept{note}",
                    joined(missions)
                ),
                resume_mission_commands(missions),
            )
        }
    };
    app.output
        .print_answer("stop", &answer, &next, |_| format!("{text}\n"))
}

/// Returns ids as people type them, separated by spaces.
fn joined(ids: &[impl ToString]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(" ")
}

/// Returns for each stopped mission the command that continues the mission.
fn resume_mission_commands(missions: &[MissionId]) -> Vec<String> {
    missions
        .iter()
        .map(|id| format!("regatta run --resume {id}"))
        .collect()
}

/// Returns a line about attempts that still run after every mission was stopped, because their
/// tasks belong to no mission. Returns an empty text if there are no such attempts.
fn still_running_note(client: &Client, stopped: &[MissionId]) -> Result<String, CommandError> {
    let status: CallReply<regatta_api::view::StatusView> =
        client.call(call::Status(input::ProjectFilter { project: None }))?;
    let is_running = |task: &&TaskView| {
        let is_of_stopped_mission = task.task.mission.is_some_and(|id| stopped.contains(&id));
        task.task.status.is_running() && !is_of_stopped_mission
    };
    let running: Vec<&TaskView> = status.data.tasks.iter().filter(is_running).collect();
    let Some(first) = running.first() else {
        return Ok(String::new());
    };
    let named: Vec<String> = running
        .iter()
        .take(10)
        .map(|task| {
            format!(
                "{} ({})",
                task.task.id,
                task.task.agent.as_ref().map_or("-", |agent| agent.as_str())
            )
        })
        .collect();
    let more = if running.len() > named.len() {
        " …"
    } else {
        ""
    };
    Ok(format!(
        "\nstill running, because they belong to no mission: {}{more}; to stop one: regatta stop \
        {}",
        named.join(" "),
        first.task.id
    ))
}
