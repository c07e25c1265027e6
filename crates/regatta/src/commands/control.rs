//! The commands `tell`, `pause`, `resume` and `retry`, which control single tasks.

use clap::Args;
use regatta_api::view::{ResumeAnswer, TaskView};
use regatta_api::{call, input};
use regatta_core::ids::TaskId;
use regatta_core::schedule::WaitKind;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "pause",
        &["regatta pause T7 --because 'wait for the new API'"],
    ),
    ("resume", &["regatta resume T7", "regatta resume claude-1"]),
    ("retry", &["regatta retry T7"]),
    ("tell", &["regatta tell T7 'use the helper in src/text.rs'"]),
];

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// Task to pause, an attempt at it, or the agent that works on it, such as T7, A5 or claude-1
    pub(crate) id: String,
    /// Reason, shown to other people and agents
    #[arg(long, value_name = "REASON", default_value = "")]
    pub(crate) because: String,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Tasks, missions or agents to resume, such as T7, M3 or claude-1
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// Task to try again, such as T7
    pub(crate) id: TaskId,
}

#[derive(Debug, Args)]
pub(crate) struct TellArgs {
    /// Receiver of the message: a task, an attempt at it, or the agent that works on it, such as
    /// T7, A5 or claude-1
    pub(crate) id: String,
    /// Message to the agent
    #[arg(required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
}

/// Runs `regatta tell`.
pub(crate) fn tell(app: &CommandContext, id: &str, words: &[String]) -> CommandResult {
    let request = input::IdWithText {
        id: id.to_owned(),
        text: words.join(" "),
    };
    let reply = app.call(call::Tell(request))?;
    let (task, attempt) = (reply.data.task, reply.data.attempt);
    app.output.print_answer(
        "tell",
        &reply.data,
        &attempt
            .map(|attempt| format!("regatta logs -f {attempt}"))
            .into_iter()
            .collect::<Vec<_>>(),
        |_| match attempt {
            Some(attempt) => format!("{attempt} receives the message when its turn has ended\n"),
            None => format!(
                "no running attempt of {task} can receive a message; the next attempt \
                will receive it\n"
            ),
        },
    )
}

/// Runs `regatta pause`.
pub(crate) fn pause(app: &CommandContext, args: &PauseArgs) -> CommandResult {
    let reply: CallReply<TaskView> = app.call(call::Pause(input::IdWithText {
        id: args.id.clone(),
        text: args.because.clone(),
    }))?;
    let task = reply.data.task.id;
    let why = if args.because.is_empty() {
        String::new()
    } else {
        format!(": {}", first_line(&args.because))
    };
    app.output.print_answer(
        "pause",
        &reply.data,
        &[format!("regatta resume {task}")],
        |_| format!("{task} is paused{why}\n"),
    )
}

/// Runs `regatta resume`.
pub(crate) fn resume(app: &CommandContext, ids: &[String]) -> CommandResult {
    let client = app.client()?;
    let mut resumed: Vec<ResumeAnswer> = Vec::new();
    for id in ids {
        let reply = client.call(call::Resume(input::IdInput { id: id.clone() }))?;
        resumed.push(reply.data);
    }
    let text = |_: &crate::output::Output| {
        let lines = ids.iter().zip(&resumed);
        lines
            .map(|(id, answer)| format!("{id} is resumed{}\n", still_stopped_text(answer)))
            .collect::<String>()
    };
    match (ids, &resumed[..]) {
        ([id], [only]) => app.output.print_answer(
            "resume",
            only,
            &[format!("regatta why {id}"), "regatta status".into()],
            text,
        ),
        _ => app
            .output
            .print_answer("resume", &resumed, &["regatta status".into()], text),
    }
}

/// Returns the end of a sentence about a resumed task that still waits because its mission is
/// stopped. Returns an empty text if the answer is about something else.
fn still_stopped_text(answer: &ResumeAnswer) -> String {
    let ResumeAnswer::Task(task) = answer else {
        return String::new();
    };
    match task.waits.first() {
        Some(reason) if reason.kind == WaitKind::Paused => {
            format!(", but {}", first_line(&reason.text))
        }
        _ => String::new(),
    }
}

/// Runs `regatta retry`.
pub(crate) fn retry(app: &CommandContext, task: TaskId) -> CommandResult {
    let reply: CallReply<TaskView> = app.call(call::Retry(input::IdInput {
        id: task.to_string(),
    }))?;
    let retried = reply.data.task.id;
    // A task without a mission does not start by itself, so suggest the command that starts it.
    let next = if reply.data.task.mission.is_some() {
        format!("regatta why {retried}")
    } else {
        "regatta run --yes".into()
    };
    app.output.print_answer("retry", &reply.data, &[next], |_| {
        if retried == task {
            format!("{task} will be tried again\n")
        } else {
            let needs_start =
                reply.data.task.mission.is_none() && reply.data.task.assignee.is_none();
            let how_to_start = format!(
                ", and starts after regatta run --yes or regatta assign {retried} \
                NAME"
            );
            format!(
                "{task} stays as it is, because it has ended; the new task {retried} asks for the \
                same work{}\n",
                if needs_start { &how_to_start } else { "" }
            )
        }
    })
}
