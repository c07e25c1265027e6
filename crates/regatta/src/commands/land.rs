//! The command `land`, which puts finished work into the landing queue, and prints its position
//! there.

use clap::Args;
use regatta_api::view::{LandingView, QueueView, TaskView};
use regatta_api::{call, input};
use regatta_core::display::DisplayState;
use regatta_core::ids::{ClaimId, TaskId};
use regatta_core::scope_escape;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, first_line, short_duration};
use crate::run_progress;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("land", &["regatta land T7 --wait"])];

#[derive(Debug, Args)]
pub(crate) struct LandArgs {
    /// Task whose finished work to land
    #[arg(required_unless_present = "now")]
    pub(crate) id: Option<TaskId>,
    /// Workspace to land now, ahead of the queue, named by its task, attempt or path; give your
    /// claim on the trunk with --claim; the command waits for the result
    #[arg(long, value_name = "WORKSPACE", requires = "claim", requires = "token", conflicts_with_all = ["id", "first"])]
    pub(crate) now: Option<String>,
    /// Your claim on workspace://PROJECT/default (the trunk), such as C7
    #[arg(long, requires = "now")]
    pub(crate) claim: Option<ClaimId>,
    /// Token of the claim in --claim, as regatta claim acquire printed it
    #[arg(long, requires = "now", value_name = "N")]
    pub(crate) token: Option<u64>,
    /// Wait until the task has landed or has left the queue
    #[arg(long)]
    pub(crate) wait: bool,
    /// Put the task at the front of the queue, behind work that is already being tested
    #[arg(long)]
    pub(crate) first: bool,
}

/// Runs `regatta land`.
pub(crate) fn land(app: &CommandContext, args: LandArgs) -> CommandResult {
    if let Some(workspace) = args.now {
        return land_now(app, workspace, args.claim, args.token);
    }
    let Some(id) = args.id else {
        // This line is never reached, because the parser requires a task or `--now`.
        return Err(CommandError::Exit(2));
    };
    let client = app.client()?;
    let reply: CallReply<TaskView> = client.call(call::Land(input::LandInput {
        id: id.to_string(),
        first: args.first,
        claim: None,
        token: None,
    }))?;
    let last = if args.wait {
        run_progress::wait_until_landed(&client, id, reply.revision, app.timeout())?
    } else {
        Some(reply.data)
    };
    print_landing_state(app, "land", last, args.wait)
}

/// Runs `regatta land --now`: lands a workspace and waits for the result. The caller must already
/// hold the claim (the exclusive right) on the trunk.
fn land_now(
    app: &CommandContext,
    workspace: String,
    claim: Option<ClaimId>,
    token: Option<u64>,
) -> CommandResult {
    let client = app.client()?;
    // Make a path absolute, because the daemon has another working directory.
    let directory = std::path::Path::new(&workspace)
        .canonicalize()
        .ok()
        .filter(|path| path.is_dir());
    let id = directory.map_or(workspace, |path| path.to_string_lossy().into_owned());
    let reply: CallReply<TaskView> = client.call(call::Land(input::LandInput {
        id,
        first: true,
        claim,
        token,
    }))?;
    let last = run_progress::wait_until_landed(
        &client,
        reply.data.task.id,
        reply.revision,
        app.timeout(),
    )?;
    print_landing_state(app, "land", last, true)
}

/// Prints how far the landing of a task is. If `task` is `None`, the time of `--timeout` has
/// passed. The exit code tells scripts whether the task has landed.
pub(crate) fn print_landing_state(
    app: &CommandContext,
    kind: &str,
    task: Option<TaskView>,
    waited: bool,
) -> CommandResult {
    let Some(task) = task else {
        return Err(CommandError::Exit(124));
    };
    let id = task.task.id;
    let project = Some(task.task.project.clone());
    let queues: CallReply<Vec<QueueView>> =
        app.call(call::Queue(input::ProjectFilter { project }))?;
    let next = match (task.at, waited) {
        (DisplayState::Landed, _) if task.task.landed.is_some() => {
            vec![format!("regatta undo {id}"), "regatta status".to_owned()]
        }
        (DisplayState::Landing, false) => vec![
            "regatta queue".to_owned(),
            format!("regatta land {id} --wait"),
        ],
        (DisplayState::Review, _) => {
            vec![format!("regatta diff {id}"), format!("regatta land {id}")]
        }
        _ => vec![format!("regatta why {id}")],
    };
    app.output
        .print_answer(kind, &task, &next, |out| match &task.task.landed {
            Some(commit)
                if task
                    .task
                    .submission
                    .as_ref()
                    .is_some_and(|work| work.undoes.is_some()) =>
            {
                let undone = task.task.submission.as_ref().and_then(|work| work.undoes);
                let undone = undone.map_or(String::new(), |undone| undone.to_string());
                let short = &commit.as_str()[..10];
                format!(
                    "reverted {undone}: {id} landed the revert as {short} · regatta undo {id} \
                restores {undone}\n"
                )
            }
            Some(commit) => {
                let trunk = queues
                    .data
                    .first()
                    .map_or("the trunk", |queue| queue.trunk.as_str());
                let short = &commit.as_str()[..10];
                let attempt = task.task.submission.as_ref().map(|work| work.attempt);
                let note = attempt
                    .and_then(|attempt| scope_escape::files_left_out_note(&task.task, attempt));
                let note = note.map_or(String::new(), |note| format!("{}\n", first_line(&note)));
                format!(
                    "landed {id} as {short} on {trunk} · to add a revert: regatta undo \
                {id}\n{note}"
                )
            }
            None => {
                let queued = queues
                    .data
                    .iter()
                    .find_map(|queue| queue_position_text(queue, id));
                let reason = || match task.waits.first() {
                    Some(wait_reason) => first_line(&wait_reason.text),
                    None => first_line(task.task.reason.as_deref().unwrap_or_default()),
                };
                queued.unwrap_or_else(|| {
                    let state = out.format_state(task.at, &task.word);
                    format!("{id} {state}  {}\n", reason())
                })
            }
        })?;
    match task.at {
        DisplayState::Landed => Ok(()),
        DisplayState::Landing if !waited => Ok(()),
        DisplayState::Needs | DisplayState::Review | DisplayState::Landing => {
            Err(CommandError::Exit(3))
        }
        _ if !waited => Ok(()),
        _ => Err(CommandError::Exit(1)),
    }
}

/// Describes a task's place in the queue: its position, the landing before it, and the estimated
/// time until it lands.
fn queue_position_text(queue: &QueueView, id: TaskId) -> Option<String> {
    let index = queue.queue.iter().position(|landing| landing.task == id)?;
    let landing = &queue.queue[index];
    let ahead = index.checked_sub(1).map(|index| &queue.queue[index]);
    let ahead = ahead.map_or(String::new(), |landing| {
        format!(", after {} ({})", landing.task, landing.state)
    });
    let detail = if landing.detail.is_empty() {
        String::new()
    } else {
        format!(" · {}", first_line(&landing.detail))
    };
    let time_left =
        time_left_text(queue, landing).map_or(String::new(), |text| format!(" · {text}"));
    Some(format!(
        "{} {id} at {} of {}{ahead}{detail}{time_left}\n",
        landing.state,
        index + 1,
        queue.queue.len()
    ))
}

/// Estimates how long a landing still takes, from the usual duration of landings in this queue.
/// Returns `None` if the usual duration is unknown, or if this landing already took longer.
pub(crate) fn time_left_text(queue: &QueueView, landing: &LandingView) -> Option<String> {
    let usual = queue
        .usual_ms
        .filter(|_| queue.held.is_none() && landing.at != DisplayState::Needs)?;
    let due = landing.queued_wall + usual;
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    (due > now).then(|| format!("lands in about {}", short_duration((due - now).max(1_000))))
}
