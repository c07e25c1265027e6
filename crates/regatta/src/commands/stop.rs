//! The command `stop`, which stops running work: of a task, an attempt, an agent, a mission, a
//! hook, or all missions.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{Call, call, input};
use regatta_core::schedule;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::show::parse_data;
use crate::output::{CommandError, CommandResult};

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
    let reply: CallReply<serde_json::Value> = client.call_as(&Call::Stop(input::StopInput {
        id: args.id.clone(),
        drain: args.drain,
        again: args.again,
    }))?;
    let verb = match (args.drain, args.again) {
        (true, _) => "draining",
        (_, true) => "restarted",
        _ => "stopped",
    };
    let task_ids = |all: &[serde_json::Value]| -> Vec<String> {
        let ids = all
            .iter()
            .filter_map(|value| value.as_str())
            .filter(|s| s.starts_with('T'));
        ids.map(str::to_owned).collect()
    };
    let (text, next) = match (&args.id, reply.data.as_array()) {
        (Some(id), Some(all)) if !task_ids(all).is_empty() => {
            let tasks = task_ids(all).join(" ");
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
        (Some(id), _)
            if reply
                .data
                .as_str()
                .is_some_and(|firing| firing.starts_with('F')) =>
        {
            (
                format!("{verb} {id}: the hook's command has ended"),
                vec!["regatta hook log".into()],
            )
        }
        (Some(id), _)
            if reply.data.get("status").and_then(|status| status.as_str()) == Some("completed") =>
        {
            (
                format!("{verb} the commands that ran after {id} landed"),
                vec![format!("regatta show {id}")],
            )
        }
        // The answer is a task if a task or an attempt was named, and a list of missions otherwise.
        (Some(id), _) if reply.data.get("id").is_some() => {
            let stopped: TaskView = parse_data(reply.data.clone())?;
            (
                format!("{verb} {id}; its work is kept"),
                schedule::resume_command(&stopped.task)
                    .into_iter()
                    .collect(),
            )
        }
        (Some(id), _) => (
            format!("{verb} {id}; all work is kept"),
            resume_mission_commands(&reply.data),
        ),
        (None, missions) => {
            let names: Vec<&str> = missions
                .into_iter()
                .flatten()
                .filter_map(|mission| mission.as_str())
                .collect();
            let note = still_running_note(&client, &names)?;
            let description = match names[..] {
                [] => {
                    return app.output.print_answer(
                        "stop",
                        &reply.data,
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
                    names.join(" ")
                ),
                resume_mission_commands(&reply.data),
            )
        }
    };
    app.output
        .print_answer("stop", &reply.data, &next, |_| format!("{text}\n"))
}

/// Returns for each stopped mission the command that continues the mission.
fn resume_mission_commands(missions: &serde_json::Value) -> Vec<String> {
    missions
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|mission| mission.as_str())
        .map(|id| format!("regatta run --resume {id}"))
        .collect()
}

/// Returns a line about attempts that still run after every mission was stopped, because their
/// tasks belong to no mission. Returns an empty text if there are no such attempts.
fn still_running_note(client: &Client, stopped: &[&str]) -> Result<String, CommandError> {
    let status: CallReply<regatta_api::view::StatusView> =
        client.call(call::Status(input::ProjectFilter { project: None }))?;
    let is_running = |task: &&TaskView| {
        let is_of_stopped_mission = task
            .task
            .mission
            .is_some_and(|id| stopped.contains(&id.to_string().as_str()));
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
