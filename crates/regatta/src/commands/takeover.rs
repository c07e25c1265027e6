//! The command `takeover`, with which a person works in a task's workspace by hand: it starts a
//! shell or another program there.

use std::ffi::OsString;

use clap::Args;
use regatta_api::view::{AgentView, TaskView};
use regatta_api::{call, input};
use regatta_core::display::ProgramActivity;
use regatta_core::ids::TaskId;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, command_error, first_line};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "takeover",
    &["regatta takeover T7", "regatta takeover T7 -- make test"],
)];

#[derive(Debug, Args)]
pub(crate) struct TakeoverArgs {
    /// Task to take over, such as T7
    pub(crate) id: TaskId,
    /// Start the agent's own program in this terminal, and continue the agent's session by hand
    #[arg(long, conflicts_with = "command")]
    pub(crate) session: bool,
    /// Command to start in the workspace instead of a shell
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Runs `regatta takeover`: starts a shell, a given command or the agent's own program in the
/// task's workspace. Pauses an agent that works on the task until the person has finished.
pub(crate) fn takeover(app: &CommandContext, args: &TakeoverArgs) -> CommandResult {
    let task = args.id;
    let client = app.client()?;
    let mut view = client.show_task(task)?;
    // The workspace of a task that needs a person may already be removed. Begin the takeover now,
    // because then the daemon creates the workspace again, with the unresolved conflict.
    if view.task.status.needs_person() {
        let _begun: CallReply<TaskView> = client.call(call::Takeover(input::IdInput {
            id: task.to_string(),
        }))?;
        view = client.show_task(task)?;
    }
    let Some(workspace) = view.workspace.clone() else {
        let hint = format!("see the state of the task: regatta why {task}");
        return Err(command_error(
            "no_workspace",
            format!("{task} has no workspace now, so there is nothing to take over"),
            hint,
        ));
    };
    let is_by_hand = is_taken_over(&view);
    let own_session = if args.session {
        Some(session_command(app, &client, &view)?)
    } else {
        None
    };
    let command = own_session
        .as_ref()
        .map_or(&args.command, |session_command| &session_command.command);
    let has_agent = view.task.attempt.is_some() && !is_by_hand;
    if has_agent {
        pause_agent(&client, &view)?;
    }
    let fixup = view.task.fixup.as_ref().filter(|_| is_by_hand);
    let conflicts = fixup
        .map(|fixup| fixup.paths.join(" "))
        .filter(|paths| !paths.is_empty());
    let conflicts = conflicts.map_or(String::new(), |paths| {
        format!("conflicts in: {}\n", first_line(&paths))
    });
    app.output.print_note(&format!(
        "in {workspace}; exit the program to give the workspace back\n{conflicts}"
    ));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, arguments) = command
        .split_first()
        .map_or((&shell, &[][..]), |(program, rest)| (program, rest));
    let status = std::process::Command::new(program)
        .args(arguments)
        .current_dir(&workspace)
        .env("REGATTA_TASK", task.to_string())
        .envs(
            own_session
                .iter()
                .flat_map(|session_command| session_command.env.iter().cloned()),
        )
        .status();
    if has_agent {
        client.call(call::Resume(input::IdInput {
            id: task.to_string(),
        }))?;
    }
    let status = status.map_err(|error| {
        command_error(
            "io",
            format!(
                "could not start the program {program}: {error}",
                program = program.to_string_lossy()
            ),
            "name another program after --",
        )
    })?;
    let data = serde_json::json!({ "task": task, "workspace": workspace, "exit": status.code() });
    let next = if is_by_hand {
        vec![
            format!("regatta land {task}"),
            format!("regatta takeover {task}"),
            format!("regatta retry {task}"),
        ]
    } else {
        vec![format!("regatta why {task}")]
    };
    app.output.print_answer("takeover", &data, &next, |_| {
        if has_agent {
            format!("{task} is resumed\n")
        } else if is_by_hand {
            format!(
                "{task} is in your hands: regatta land {task} checks and lands it, regatta retry \
                {task} gives it to an agent\n"
            )
        } else {
            String::new()
        }
    })
}

/// The command line and the environment variables with which an agent's program continues its
/// session in a terminal.
struct SessionCommand {
    command: Vec<std::ffi::OsString>,
    env: Vec<(String, std::ffi::OsString)>,
}

/// Returns the command that starts the program that last worked on a task, so that the program
/// continues its last session.
fn session_command(
    app: &CommandContext,
    client: &crate::client::Client,
    view: &TaskView,
) -> Result<SessionCommand, CommandError> {
    let task = view.task.id;
    let hint = format!("work in its workspace with a shell: regatta takeover {task}");
    let last = view
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| Some((attempt, attempt.session.session_id.clone()?)));
    let Some((attempt, session)) = last else {
        return Err(command_error(
            "no_session",
            format!("{task} has no session to continue, because no program has reported a session"),
            hint,
        ));
    };
    let agents: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let agent = agents
        .data
        .iter()
        .map(|agent| &agent.agent)
        .find(|agent| agent.name == attempt.agent);
    let line = agent.and_then(|agent| crate::composition::resume_command(agent, &session));
    let (Some(agent), Some(line)) = (agent, line) else {
        let what = format!(
            "the program of {} cannot continue a session in a terminal",
            attempt.agent
        );
        return Err(command_error("no_session", what, hint));
    };
    let mut env: Vec<(String, std::ffi::OsString)> = agent
        .profile
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.into()))
        .collect();
    // A sandboxed program has its own home directory, in which it keeps its sessions. Give the
    // program the same home directory, so that it finds the session.
    if attempt.sandbox.is_some() {
        env.push((
            "HOME".into(),
            crate::composition::agent_home(&app.data_dir()?, &agent.name).into(),
        ));
    }
    Ok(SessionCommand {
        command: line.into_iter().map(Into::into).collect(),
        env,
    })
}

/// Pauses the agent that works on a task, and waits until the agent's current turn (a prompt and
/// its answer) has ended.
fn pause_agent(client: &crate::client::Client, view: &TaskView) -> CommandResult {
    let task = view.task.id;
    let can_wait = view
        .attempts
        .iter()
        .any(|attempt| Some(attempt.id) == view.task.attempt && attempt.accepts_prompts());
    if !can_wait {
        return Err(command_error(
            "cannot_wait",
            format!("the program that works on {task} cannot be paused"),
            format!("wait until the program has ended, or stop the task: regatta stop {task}"),
        ));
    }
    let request = input::IdWithText {
        id: task.to_string(),
        text: "a person works in its workspace".into(),
    };
    let _paused: CallReply<TaskView> = client.call(call::Pause(request))?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    loop {
        let now = client.show_task(task)?;
        let attempt_view = now
            .attempts
            .iter()
            .find(|attempt| Some(attempt.id) == now.task.attempt);
        match attempt_view {
            Some(attempt) if attempt.session.hold_reason.is_some() && !attempt.session.in_turn => {
                return Ok(());
            }
            Some(_) if std::time::Instant::now() < deadline => {
                std::thread::sleep(std::time::Duration::from_millis(100))
            }
            _ => {
                client.call(call::Resume(input::IdInput {
                    id: task.to_string(),
                }))?;
                let hint = format!("stop it instead: regatta stop {task}");
                return Err(command_error(
                    "cannot_wait",
                    format!(
                        "the agent that works on {task} did not end its current turn within 15 s"
                    ),
                    hint,
                ));
            }
        }
    }
}

/// Returns true if a person has taken the task over.
pub(crate) fn is_taken_over(view: &TaskView) -> bool {
    view.activity == Some(ProgramActivity::TakenOver)
}
