//! The texts for agents that a commit stores: the subjects and descriptions of tasks that Regatta
//! adds itself, notes for the next attempt, and prompts for a running session.
//!
//! An event or a row contains each of these texts, and folding the events again must give the same
//! board, so the texts are made while a request is decided and not when the agent gets them. The
//! rest of a prompt is composed at the start of an attempt, in `regatta-engine/src/brief`.

pub(crate) mod conversation; // the turns of a conversation

use crate::agent_protocol::{RequestAnswer, RequestContent};
use crate::approval::Approval;
use crate::attempt::{self, Attempt};
use crate::bus::Message;
use crate::ids::{AgentName, CommitId, MessageId, MissionId, TaskId};
use crate::landing::DroppedSides;
use crate::scope_escape::ScopeEscape;
use crate::task::{Submission, Task};

/// The subject and the description of a task that Regatta adds itself.
pub(crate) struct TaskText {
    pub(crate) subject: String,
    pub(crate) description: String,
}

/// The last prompt of a session that will be replaced: it requests a summary for the next session.
pub const SUMMARY_PROMPT: &str = "Your context is nearly full, so the work goes on in a fresh \
session that knows nothing of this one. Do not continue the work now. Write what the next session \
must know: what is done, what is left, what you decided and why, and what to watch out for.";

/// Prompt that Regatta sends when a paused task is resumed, if the pause had cancelled the agent's
/// turn.
pub(crate) const CONTINUE_PROMPT: &str = "Go on with the task from where you were.";

/// Returns the text of a task that finds the files of `explored`.
pub(crate) fn explore_task(explored: &Task) -> TaskText {
    let subject = format!("Find the files of {}: {}", explored.id, explored.subject);
    let description = format!(
        "Read the repository and find out which files this task will create or change. Change \
         nothing yourself.\n\
         The `detail` of your result is a JSON array of paths or patterns, relative to the top of \
         the repository: [\"src/a.rs\", \"tests/**\"]. Name few files, but every file that the \
         task needs.\n\n# The task\n{}\n\n{}",
        explored.subject, explored.description
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task in which an agent reviews the work of `author`.
pub(crate) fn review_task(
    reviewed: &Task,
    submission: &Submission,
    author: &AgentName,
) -> TaskText {
    let id = reviewed.id;
    let subject = format!("Review {id}: {}", reviewed.subject);
    let description = format!(
        "Look at what {author} did for {id} and say whether it may land. Change nothing yourself.\n\
         `git diff {} {}` shows the change; `git show {}:PATH` shows a file with the change.\n\
         The `detail` of your result is \"approve\", or \"revise: \" and what to change and \
         why.\n\n\
         # What was asked\n{}\n\n{}",
        submission.base,
        submission.commit,
        submission.commit,
        reviewed.subject,
        reviewed.description
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task that answers the question with which a thread begins.
pub(crate) fn first_answer_task(message: &Message, question: &str) -> TaskText {
    let subject = format!("Answer {}: {question}", message.id);
    let description = format!(
        "Answer this question about the project. Read the repository as far as it helps; change \
         nothing.\n\
         The `detail` of your result is your answer, and is posted in the thread: keep it short \
         and to the point.\n\n\
         # The question of {}\n{question}",
        message.sender
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task that answers the next message of the thread that `root` began.
pub(crate) fn next_answer_task(root: MessageId, message: &Message) -> TaskText {
    let subject = format!("Answer {}: {}", message.id, message.text);
    let description = format!(
        "Answer the next message of the thread that {root} began. Change nothing in the repository. \
         The `detail` of your result is your answer, and is posted in the thread.\n\n# {} \
         wrote\n{}",
        message.sender, message.text
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task that decides what follows from a message that is not a command.
pub(crate) fn triage_task(message: &Message) -> TaskText {
    let subject = format!("Triage {}: {}", message.id, message.text);
    let description = format!(
        "Somebody wrote this message in the project's channel. Decide what should follow from it; \
         change nothing. The `detail` of your result is one of these:\n\
         - `answer: ` and the answer, if a few sentences are enough\n\
         - `task: ` and one line that says what to do, then more lines if needed, if it is one \
         small piece of work\n\
         - `lead: ` and the goal, if it takes several pieces of work that somebody must plan\n\
         - `nothing`, if the message asks for nothing\n\n# {} wrote\n{}",
        message.sender, message.text
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of the task for files that a lead changed itself.
pub(crate) fn lead_edits_task(
    attempt: &Attempt,
    mission: MissionId,
    commit: &CommitId,
    names: &str,
) -> TaskText {
    let subject = format!("Edits by the lead {}: {names}", attempt.agent);
    let description = format!(
        "{} changed {names} itself while it led {mission}. The change is commit {commit}.",
        attempt.agent
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the note for a lead about files that it changed itself, which became the task `id`.
pub(crate) fn lead_edits_news(id: TaskId, names: &str, outcome: &str) -> String {
    format!(
        "You changed {names} yourself. That work is {id} now and {outcome}; give work to your \
        workers instead"
    )
}

/// Returns the text of the task that stands for bringing in a remote's commits.
pub(crate) fn remote_sync_task(remote: &str, trunk: &str) -> TaskText {
    let subject = format!("Bring in the commits of {remote}/{trunk}");
    let description = format!(
        "Somebody pushed to {remote}/{trunk}. Work that landed here and is not there yet is \
         replayed on top of it, validated, and pushed."
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task that checks the changes that were left out when `task` landed.
pub(crate) fn dropped_changes_task(task: TaskId, dropped: &DroppedSides) -> TaskText {
    let names: Vec<&str> = dropped.paths.iter().map(String::as_str).collect();
    let description = format!(
        "{task} landed although it conflicted with the trunk, and only one side of {} was taken. The \
         other side is kept as {} ({}): `git show {}` shows what it would change. Bring back \
         whatever is still needed.",
        names.join(", "),
        dropped.commit,
        dropped.reference,
        dropped.commit
    );
    let subject = format!(
        "Check the changes that {task} dropped in {}",
        attempt::first_few(&names)
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the message for agents that work on files which a landing changed.
pub(crate) fn landed_change(task: TaskId, commit: &CommitId, paths: &[&str]) -> String {
    format!(
        "{task} has landed as {commit} and changed {}, which you work on. Your work will be \
         merged with this change when you are done. Run `git show {commit}` to see the change, and \
         keep your work consistent with it.",
        attempt::first_few(paths)
    )
}

/// Returns the text of the task that reverts the landed work of `done`.
pub(crate) fn undo_task(done: &Task, commit: &CommitId) -> TaskText {
    let id = done.id;
    let subject = format!("Undo {id}: {}", done.subject);
    let description = format!("Reverts commit {commit}, with which {id} landed.");
    TaskText {
        subject,
        description,
    }
}

/// Returns the text of a task for a change that `origin` needed outside its files.
pub(crate) fn scope_escape_task(origin: &Task, escape: &ScopeEscape) -> TaskText {
    let mut subject = format!(
        "Follow up {}: {}",
        origin.id,
        escape.finding.lines().next().unwrap_or_default()
    );
    subject = subject
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let description = format!(
        "{}\n\nFound by {} while working on {} \"{}\", and left out of that work.",
        escape.finding, escape.worker, origin.id, origin.subject
    );
    TaskText {
        subject,
        description,
    }
}

/// Returns the prompt with which the session of a team's member gets a message.
pub(crate) fn mailbox_prompt(message: &Message) -> String {
    format!(
        "Message {} from {} in {}:\n\n{}",
        message.id, message.sender, message.channel, message.text
    )
}

/// Returns a text for the agent with its question, its assumption and the answer.
pub(crate) fn answer_to_question(asked: &Approval, answer: &RequestAnswer) -> String {
    let question = match &asked.request.content {
        RequestContent::Question { text, .. } => text.trim(),
        RequestContent::Permission { tool, .. } => tool.title.as_str(),
    };
    let answer = match answer {
        RequestAnswer::Text { text } => format!("The answer: {}", text.trim()),
        RequestAnswer::Deny {
            reason: Some(reason),
        } => format!("Nobody will answer it, because: {}", reason.trim()),
        RequestAnswer::Allow | RequestAnswer::Deny { reason: None } | RequestAnswer::Cancelled => {
            "Nobody will answer it. Decide yourself.".to_owned()
        }
    };
    let assumed = asked.assumed.as_ref().map_or(String::new(), |text| {
        format!("\nYou had assumed: {}", text.trim())
    });
    format!("You asked ({}): {question}{assumed}\n{answer}", asked.id)
}

/// Returns the prompt with the reason why a person denied a request.
pub(crate) fn denial_reason(request: &str, reason: &str) -> String {
    format!("You asked to do this: {request}\n{reason}")
}

/// Returns the note for a fresh session, with the summary of the session before it.
pub(crate) fn summary_note(summary: Option<&str>) -> String {
    match summary {
        Some(summary) => {
            format!("The session before this one was full. It left this summary:\n\n{summary}")
        }
        None => "The session before this one was full and left no summary: look at the state of \
                 the workspace."
            .to_owned(),
    }
}
