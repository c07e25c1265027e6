//! The command `revise`, which sends a task's finished work back to its agent for changes.

use std::str::FromStr;

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::TaskId;

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "revise",
    &["regatta revise T7 'handle the empty list' --comment 'src/a.rs:41:use a token bucket'"],
)];

#[derive(Debug, Args)]
pub(crate) struct ReviseArgs {
    /// Task whose work to send back
    pub(crate) id: TaskId,
    /// Instructions for the agent, in words
    #[arg(value_name = "TEXT", required_unless_present_any = ["message", "comment"])]
    pub(crate) words: Vec<String>,
    /// Paragraph of instructions for the agent; may be repeated
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Vec<String>,
    /// Comment on a line of the finished work, in the form PATH:LINE:TEXT; may be repeated
    #[arg(long, value_name = "PATH:LINE:TEXT")]
    pub(crate) comment: Vec<CommentArg>,
}

/// A person's comment on one line of the finished work, from `--comment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommentArg {
    pub(crate) path: String,
    pub(crate) line: u32,
    pub(crate) text: String,
}

impl FromStr for CommentArg {
    type Err = String;

    /// Parses `PATH:LINE:TEXT`. A path may contain colons, so the first number between two colons
    /// is taken as the line.
    fn from_str(text: &str) -> Result<CommentArg, String> {
        let format_error =
            |what: &str| format!("{what}; write PATH:LINE:TEXT, such as src/a.rs:41:\"shorter\"");
        let colons = text.match_indices(':').map(|(colon, _)| colon);
        for colon in colons {
            let (path, rest) = (&text[..colon], &text[colon + 1..]);
            let Some((line, comment)) = rest.split_once(':') else {
                break;
            };
            let Ok(line) = line.trim().parse::<u32>() else {
                continue;
            };
            let (path, comment) = (path.trim().trim_start_matches("./"), comment.trim());
            return match (path.is_empty(), line, comment.is_empty()) {
                (true, ..) => Err(format_error("the comment's path is missing")),
                (_, 0, _) => Err(format_error(
                    "the comment is on line 0, but lines are counted from 1",
                )),
                (.., true) => Err(format_error("the comment's text is missing")),
                _ => Ok(CommentArg {
                    path: path.into(),
                    line,
                    text: comment.into(),
                }),
            };
        }
        Err(format_error("the comment's line number is missing"))
    }
}

impl std::fmt::Display for CommentArg {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// Runs `regatta revise`.
pub(crate) fn revise(app: &CommandContext, args: &ReviseArgs) -> CommandResult {
    let id = args.id;
    let client = app.client()?;
    warn_of_unchanged_files(app, &client, id, &args.comment)?;
    let reply: CallReply<TaskView> = client.call(call::Revise(input::IdWithText {
        id: id.to_string(),
        text: revise_message(args),
    }))?;
    let (agent, comment_count) = (
        reply
            .data
            .task
            .agent
            .as_ref()
            .or(reply.data.task.assignee.as_ref()),
        args.comment.len(),
    );
    app.output.print_answer(
        "revise",
        &reply.data,
        &[format!("regatta why {id}"), "regatta watch".into()],
        |_| {
            let what = match comment_count {
                0 => "your message".to_owned(),
                1 => "your comment".to_owned(),
                comment_count => format!("your {comment_count} comments"),
            };
            let recipient = agent.map_or(String::new(), |agent| format!(" to {agent}"));
            format!("{id} goes back{recipient} with {what}; its work is kept\n")
        },
    )
}

/// Returns the message that the agent gets: the instructions, then one line per comment. The web
/// page sends the same format.
fn revise_message(args: &ReviseArgs) -> String {
    let text = Some(args.words.join(" ")).filter(|text| !text.is_empty());
    let comments = args.comment.iter().map(ToString::to_string);
    text.into_iter()
        .chain(args.message.iter().cloned())
        .chain(comments)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Prints a note for each comment on a file that the work does not change, because the path may be
/// mistyped.
fn warn_of_unchanged_files(
    app: &CommandContext,
    client: &Client,
    id: TaskId,
    comments: &[CommentArg],
) -> CommandResult {
    if comments.is_empty() {
        return Ok(());
    }
    let task = client.show_task(id)?;
    let Some(work) = &task.task.submission else {
        return Ok(());
    }; // the daemon refuses the request with a reason
    for comment_arg in comments
        .iter()
        .filter(|comment_arg| !work.changed.contains(&comment_arg.path))
    {
        app.output.print_note(&format!(
            "note: {id} does not change {}; the comment is sent anyway",
            first_line(&comment_arg.path)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_needs_a_path_a_line_and_a_text() {
        for (text, expected) in [
            (
                "src/a.rs:41:use a token bucket",
                "src/a.rs:41: use a token bucket",
            ),
            ("src/a.rs:41: use a: b", "src/a.rs:41: use a: b"),
            ("./a.rs:1:x", "a.rs:1: x"),
            ("odd:name.rs:7:x", "odd:name.rs:7: x"),
            ("a.rs:7:see line 8:9", "a.rs:7: see line 8:9"),
        ] {
            assert_eq!(
                text.parse::<CommentArg>()
                    .map(|comment_arg| comment_arg.to_string()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
        for (text, why) in [
            ("just words", "line number is missing"),
            ("a.rs:x:y", "line number is missing"),
            ("a.rs:7", "line number is missing"),
            (":7:x", "path is missing"),
            ("a.rs:0:x", "counted from 1"),
            ("a.rs:7: ", "text is missing"),
        ] {
            let error = text.parse::<CommentArg>().unwrap_err();
            assert!(
                error.contains(why) && error.contains("PATH:LINE:TEXT"),
                "{text}: {error}"
            );
        }
    }
}
