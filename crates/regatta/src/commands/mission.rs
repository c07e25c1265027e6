//! The command `mission`, which starts missions with a lead (an agent that breaks a goal into
//! tasks) and controls them.

use clap::Subcommand;
use regatta_api::view::{MissionLineView, MissionView};
use regatta_api::{call, input};
use regatta_core::budget::format_dollars;
use regatta_core::display;
use regatta_core::ids::{AgentName, MessageId, TaskId};
use regatta_core::mission::MissionEndKind;
use regatta_core::plural;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, Output, first_line, format_table, sanitize, usage_error,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "mission start",
        &["regatta mission start 'Add rate limiting to the API' --agent claude-1"],
    ),
    ("mission list", &["regatta mission list"]),
    ("mission show", &["regatta mission show M3"]),
    ("mission pause", &["regatta mission pause M3"]),
    ("mission resume", &["regatta mission resume M3"]),
    (
        "mission cancel",
        &["regatta mission cancel M3 --because 'replaced by M4'"],
    ),
    (
        "mission handover",
        &["regatta mission handover M3 --to codex-1"],
    ),
    ("mission adopt", &["regatta mission adopt T7 --mission M3"]),
    (
        "mission finish",
        &["regatta mission finish 'rate limiting landed; docs are still open'"],
    ),
    ("mission route", &["regatta mission route B7"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum MissionCommand {
    /// Start a mission: a lead breaks the goal into tasks and reports at the end
    Start {
        /// Goal of the mission, in words
        #[arg(required_unless_present = "task")]
        goal: Option<String>,
        /// Agent that leads (default: `agent` of the section `[leads]` in regatta.toml)
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Existing task, such as T7, for which to start the mission
        #[arg(long, value_name = "TASK")]
        task: Option<TaskId>,
    },
    /// List missions with their leads, and missions that wait for a lead
    List,
    /// Show a mission: goal, lead, tasks, budget, progress, result
    Show {
        /// Mission to show, such as M3
        id: String,
    },
    /// Pause a mission: running work continues, and no further task starts
    Pause {
        /// Mission to pause, such as M3
        id: String,
    },
    /// Resume a paused mission
    Resume {
        /// Mission to resume, such as M3
        id: String,
    },
    /// Cancel a mission: its agents' programs stop, and their work is kept
    Cancel {
        /// Mission to cancel, such as M3
        id: String,
        /// Reason, which is sent to the person who started the mission
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Replace the lead (planning agent) of a mission
    Handover {
        /// Mission whose lead to replace, such as M3
        id: String,
        /// Agent that leads the mission from now on (default: the same agent)
        #[arg(long, value_name = "NAME")]
        to: Option<AgentName>,
    },
    /// Add a task that belongs to no mission to your mission (for agents that lead a mission)
    Adopt {
        /// Task to adopt, such as T7
        task: TaskId,
        /// Mission to which to add the task (default: the mission that you lead)
        #[arg(long, value_name = "MISSION")]
        mission: Option<String>,
    },
    /// Finish your mission with a report (for agents that lead a mission)
    Finish {
        /// Report about the achieved and the missing results of the mission
        report: String,
    },
    /// Let the router (the part of Regatta that carries out requests in messages) handle a message
    /// that it missed; if it has handled the message already, nothing happens
    Route {
        /// Message to handle, such as B7
        message: MessageId,
    },
}

impl MissionCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, MissionCommand::List | MissionCommand::Show { .. })
    }
}

/// Runs `regatta mission`.
pub(crate) fn mission(app: &CommandContext, command: MissionCommand) -> CommandResult {
    match command {
        MissionCommand::Start { goal, agent, task } => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let goal = goal
                .or_else(|| task.map(|id| format!("Work on {id}")))
                .unwrap_or_default();
            let reply: CallReply<MissionView> =
                client.call(call::MissionAsk(input::MissionAsk {
                    project,
                    goal,
                    agent,
                    task,
                }))?;
            let mission = &reply.data.mission;
            let next = [
                format!("regatta mission show {}", mission.id),
                format!("regatta msg watch {}", mission.project),
            ];
            app.output
                .print_answer("mission.start", &reply.data, &next, |_| {
                    match mission.lead.as_ref().and_then(|lead| lead.name.as_ref()) {
                        Some(name) => format!("{} is led by {name}\n", mission.id),
                        None => format!(
                            "{} waits for a lead, because the maximum number of leads is working\n",
                            mission.id
                        ),
                    }
                })
        }
        MissionCommand::List => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let reply: CallReply<Vec<MissionLineView>> =
                client.call(call::MissionList(input::ProjectFilter { project }))?;
            let none = ["regatta mission start 'Add login with rate limits'".to_owned()];
            let next: &[String] = if reply.data.is_empty() { &none } else { &[] };
            app.output
                .print_answer("mission.list", &reply.data, next, |_| {
                    draw_missions(&reply.data)
                })
        }
        MissionCommand::Show { id } => {
            let reply: CallReply<MissionView> =
                app.call(call::MissionShow(input::IdInput { id }))?;
            print_mission(app, &reply.data)
        }
        MissionCommand::Pause { id } => {
            app.call(call::Stop(input::StopInput {
                id: Some(id.clone()),
                drain: true,
                again: false,
            }))?;
            let next = [format!("regatta mission resume {id}")];
            app.output.print_answer(
                "mission.pause",
                &serde_json::json!({ "mission": id }),
                &next,
                |_| format!("{id} is paused: running attempts continue, nothing new starts\n"),
            )
        }
        MissionCommand::Resume { id } => {
            app.call(call::Resume(input::IdInput { id: id.clone() }))?;
            let next = [format!("regatta mission show {id}")];
            app.output.print_answer(
                "mission.resume",
                &serde_json::json!({ "mission": id }),
                &next,
                |_| format!("{id} is resumed\n"),
            )
        }
        MissionCommand::Cancel { id, because } => {
            let request = input::IdWithText {
                id: id.clone(),
                text: because,
            };
            let reply: CallReply<MissionView> = app.call(call::MissionCancel(request))?;
            app.output
                .print_answer("mission.cancel", &reply.data, &[], |_| {
                    format!("{} is cancelled; its work is kept\n", reply.data.mission.id)
                })
        }
        MissionCommand::Handover { id, to } => {
            let reply: CallReply<MissionView> =
                app.call(call::MissionHandover(input::MissionHandover { id, to }))?;
            let mission = &reply.data.mission;
            let next = [format!("regatta mission show {}", mission.id)];
            app.output
                .print_answer("mission.handover", &reply.data, &next, |_| {
                    match mission.lead.as_ref().and_then(|lead| lead.name.as_ref()) {
                        Some(name) => format!("{} is now led by {name}\n", mission.id),
                        None => format!("{} waits for its next lead\n", mission.id),
                    }
                })
        }
        MissionCommand::Adopt { task, mission } => {
            let _task = app.call(call::MissionAdopt(input::MissionAdopt { task, mission }))?;
            app.output.print_answer(
                "mission.adopt",
                &serde_json::json!({ "task": task }),
                &[],
                |_| format!("{task} now belongs to the mission\n"),
            )
        }
        MissionCommand::Finish { report } => {
            let (task, attempt, token) = (
                attempt_variable("REGATTA_TASK")?,
                attempt_variable("REGATTA_ATTEMPT")?,
                attempt_variable("REGATTA_ATTEMPT_TOKEN")?,
            );
            let _done = app.call(call::MissionFinish(input::MissionFinish {
                task,
                attempt,
                token,
                report,
            }))?;
            app.output.print_answer(
                "mission.finish",
                &serde_json::json!({ "task": task }),
                &[],
                |_| "the mission will end when your turn ends\n".into(),
            )
        }
        MissionCommand::Route { message } => {
            let project = app.global.project.clone();
            let _done = app.call(call::Route(input::RouteInput { message, project }))?;
            app.output.print_answer(
                "mission.route",
                &serde_json::json!({ "message": message }),
                &[],
                |_| format!("{message} is routed\n"),
            )
        }
    }
}

/// Reads an environment variable that Regatta sets for an agent's program, such as the id of the
/// attempt (the run of an agent on a task).
fn attempt_variable<T: std::str::FromStr>(name: &str) -> Result<T, CommandError> {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| {
            usage_error(
                format!(
                    "only the program of a lead (an agent that leads a mission) can run this \
                     command, because the variable {name} is not set here"
                ),
                "to end a mission as a person: regatta mission cancel M3",
            )
        })
}

fn draw_missions(missions: &[MissionLineView]) -> String {
    if missions.is_empty() {
        return "no open missions\n".into();
    }
    let mut rows = vec![
        ["MISSION", "STATE", "LEAD", "SUMMARY"]
            .map(String::from)
            .to_vec(),
    ];
    for mission_line in missions {
        let lead = mission_line
            .lead
            .as_ref()
            .map_or("-".to_owned(), ToString::to_string);
        rows.push(vec![
            mission_line.id.to_string(),
            display::mission_text(
                mission_line.state,
                mission_line.lost.is_some(),
                mission_line.place,
            ),
            lead,
            first_line(&mission_line.summary),
        ]);
    }
    format_table(&rows)
}

fn print_mission(app: &CommandContext, view: &MissionView) -> CommandResult {
    let mission = &view.mission;
    let next = match (
        &mission.result,
        mission
            .lead
            .as_ref()
            .and_then(|lead| lead.lost_reason.as_ref()),
    ) {
        (None, Some(_)) => {
            vec![
                format!("regatta mission handover {}", mission.id),
                format!("regatta mission cancel {}", mission.id),
            ]
        }
        (None, None) => vec![format!("regatta msg history {}", mission.project)],
        (Some(_), _) => vec![],
    };
    app.output.print_answer("mission.show", view, &next, |out| {
        draw_mission_details(out, view)
    })
}

/// Draws a mission with its goal, lead, spending and tasks.
fn draw_mission_details(out: &Output, view: &MissionView) -> String {
    let mission = &view.mission;
    let mut text = format!("{}  {}\n", mission.id, first_line(&mission.title));
    if let Some(goal) = mission
        .goal
        .as_ref()
        .filter(|goal| goal.trim() != mission.title)
    {
        text += &format!("{}\n", sanitize(goal.trim()));
    }
    match (&mission.lead, &mission.result) {
        (_, Some(end)) => {
            let outcome = if end.how == MissionEndKind::Done {
                "done"
            } else {
                "cancelled"
            };
            text += &format!("{outcome}  {}\n", sanitize(&end.report));
        }
        (Some(lead), None) => {
            let lead_text = match (&lead.lost_reason, &lead.name) {
                (Some(why), _) => {
                    format!("none, because the last one was lost: {}", first_line(why))
                }
                (None, Some(name)) => name.to_string(),
                (None, None) => "none yet, the mission is queued".into(),
            };
            text += &format!("lead    {lead_text}\n");
        }
        (None, None) => {
            text += &format!(
                "agents  {}\n",
                mission
                    .agents
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            )
        }
    }
    let money = mission
        .spent
        .usage
        .micro_usd
        .map_or(String::new(), |micro_usd| {
            format!(", {}", format_dollars(micro_usd))
        });
    text += &format!(
        "spent   {}, {}{money}\n",
        plural::count(mission.spent.attempts, "attempt"),
        plural::count(mission.spent.usage.tokens(), "token")
    );
    text + &format_table(&crate::commands::task::task_rows(out, &view.tasks))
}
