//! Questions: short-lived attempts that answer in a thread, and triage of messages that are not
//! commands.
//!
//! Both are tasks of the project's own agent, `shop-dev`, that leave a report and land nothing.
//! They take no slot of the machine and no lead's slot, so a question never waits for a mission.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Role};
use crate::attempt::{self, Attempt, Resume, WorkResult};
use crate::board::{Board, Draft};
use crate::bus::{self, Message, Post};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ChannelName, Label, MessageId, Now, ProjectName, TaskId};
use crate::lead;
use crate::project::Project;
use crate::refusal::Refusal;
use crate::task::{self, Add, Duty, Edit, How, Status, Task};

/// A thread with a question, its answers, and the session with which a follow-up continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thread {
    /// The message that began it.
    pub root: MessageId,
    /// Messages of the thread to which a reply may refer.
    pub messages: Vec<MessageId>,
    /// The task of the last turn, for which the next turn waits.
    pub task: TaskId,
    /// Effort for the answers. `model` is the model that answers.
    pub effort: Effort,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session with which the next turn continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// The thread takes one answer and no follow-ups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// The effort for a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    #[default]
    Low,
    Medium,
    High,
}

impl Effort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }
}

facts! {
    /// A thread began or continued.
    Threaded { project: ProjectName, thread: Thread }
}

/// Maximum number of remembered threads per project. A follow-up to an older thread is a new
/// question.
pub(crate) const MOST_THREADS: usize = 100;
/// Maximum number of remembered messages per thread.
const MOST_MESSAGES: usize = 200;

/// A question with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    pub(crate) text: &'a str,
    pub(crate) effort: Effort,
    pub(crate) model: Option<String>,
    pub(crate) once: bool,
}

/// Adds a task that answers a question in its thread.
pub(crate) fn ask(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    question: Question<'_>,
    now: Now,
) -> Result<(), Refusal> {
    let agent = answerer(draft, project, now)?;
    let asked = format!(
        "Answer this question about the project. Read the repository as far as it helps; change nothing.\n\
         The `detail` of your result is your answer, and is posted in the thread: keep it short and to the point.\n\n\
         # The question of {}\n{}",
        message.sender, question.text
    );
    let duty = Duty::Answer { channel: message.channel.clone(), root: message.id };
    let add = Add {
        effort: Some(question.effort.name().into()),
        model: question.model.clone(),
        ..Add::report(project.name.clone(), &format!("Answer {}: {}", message.id, question.text), asked)
    };
    let task = give(draft, add, duty, None, agent, now)?;
    let thread = Thread {
        root: message.id,
        messages: vec![message.id],
        task,
        effort: question.effort,
        model: question.model,
        resume: None,
        closed: question.once,
    };
    draft.record(Event::ThreadChanged(Threaded { project: project.name.clone(), thread }));
    Ok(())
}

/// Returns the open thread to which a message is a reply, if there is one.
pub(crate) fn thread_of<'a>(project: &'a Project, message: &Message) -> Option<&'a Thread> {
    let to = message.reply_to?;
    project.intake.threads.iter().find(|it| !it.closed && it.messages.contains(&to))
}

/// Adds a task that answers the next message of a thread. It waits for the previous turn.
pub(crate) fn follow_up(
    draft: &mut Draft,
    project: &Project,
    thread: &Thread,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    let agent = answerer(draft, project, now)?;
    let asked = format!(
        "Answer the next message of the thread that {} began. Change nothing in the repository. The `detail` of your \
         result is your answer, and is posted in the thread.\n\n# {} wrote\n{}",
        thread.root, message.sender, message.text
    );
    let duty = Duty::Answer { channel: message.channel.clone(), root: thread.root };
    // The next turn does not wait for a failed one.
    let at_work = |it: &&Arc<Task>| it.status != Status::NeedsHuman;
    let before = draft.board().tasks.get(&thread.task).filter(at_work).map(|it| it.id);
    let add = Add {
        effort: Some(thread.effort.name().into()),
        model: thread.model.clone(),
        blocked_by: before.into_iter().collect(),
        ..Add::report(project.name.clone(), &format!("Answer {}: {}", message.id, message.text), asked)
    };
    let resume = thread.resume.clone().filter(|_| before.is_none());
    let task = give(draft, add, duty, resume, agent, now)?;
    let mut thread = Thread { task, resume: None, ..thread.clone() };
    push(&mut thread.messages, message.id);
    draft.record(Event::ThreadChanged(Threaded { project: project.name.clone(), thread }));
    Ok(())
}

/// Adds a message to a thread's list, and drops the oldest beyond the maximum.
fn push(messages: &mut Vec<MessageId>, id: MessageId) {
    messages.push(id);
    if messages.len() > MOST_MESSAGES {
        messages.remove(1); // the root stays
    }
}

/// Adds a task that decides about a message that is not a command.
pub(crate) fn triage(draft: &mut Draft, project: &Project, message: &Message, now: Now) -> Result<(), Refusal> {
    let agent = answerer(draft, project, now)?;
    let asked = format!(
        "Somebody wrote this message in the project's channel. Decide what should follow from it; change nothing. The \
         `detail` of your result is one of these:\n\
         - `answer: ` and the answer, if a few sentences are enough\n\
         - `task: ` and one line that says what to do, then more lines if needed, if it is one small piece of work\n\
         - `lead: ` and the goal, if it takes several pieces of work that somebody must plan\n\
         - `nothing`, if the message asks for nothing\n\n# {} wrote\n{}",
        message.sender, message.text
    );
    let duty = Duty::Triage { channel: message.channel.clone(), message: message.id };
    let add = Add {
        effort: Some(Effort::Low.name().into()),
        ..Add::report(project.name.clone(), &format!("Triage {}: {}", message.id, message.text), asked)
    };
    give(draft, add, duty, None, agent, now).map(|_| ())
}

/// Adds a task with a duty and assigns it to the agent.
fn give(
    draft: &mut Draft,
    add: Add,
    duty: Duty,
    resume: Option<Resume>,
    agent: AgentName,
    now: Now,
) -> Result<TaskId, Refusal> {
    let task = task::add(draft, add, None, now)?;
    task::set_duty(draft, task, duty, resume)?;
    task::assign(draft, task, Some(agent), How::Queue, now)?;
    Ok(task)
}

/// Returns the project's own agent, `shop-dev`, which runs the program that the settings name.
/// Creates the agent if necessary.
fn answerer(draft: &mut Draft, project: &Project, now: Now) -> Result<AgentName, Refusal> {
    let name = lead::base_name(&project.name)?;
    let board = draft.board();
    // If a person added an agent of that name, that agent answers.
    if board.agents.get(&name).is_some_and(|it| it.of.is_none()) {
        return Ok(name);
    }
    let of = lead::who_leads(board, project, project.settings.router.agent.clone())?;
    agent::derive(draft, &of, name.clone(), (Role::Worker, project.settings.router.max_answers.clamp(1, 20)), now)?;
    Ok(name)
}

/// Applies the result of an answer or a triage. The inner `Err` is the reason why the result cannot
/// be used.
pub(crate) fn finish(
    draft: &mut Draft,
    task: &Task,
    (attempt, result): (&Attempt, Option<&WorkResult>),
    now: Now,
) -> Result<Result<(), String>, Refusal> {
    let detail = result.map(|it| it.detail.as_str()).filter(|it| !it.trim().is_empty());
    let said = detail.or(task.output.as_deref()).unwrap_or_default().trim().to_owned();
    if said.is_empty() {
        return Ok(Err("it finished without an answer".into()));
    }
    let said: String = said.chars().take(bus::LONGEST_TEXT / 4).collect();
    match &task.duty {
        Some(duty @ Duty::Answer { channel, root }) => {
            let posted = answer(draft, &attempt.agent, (channel, *root), said, now)?;
            let thread = thread(draft.board(), &task.project, *root).cloned();
            if let Some(mut thread) = thread {
                push(&mut thread.messages, posted);
                let resume = attempt.talk.session.is_some().then(|| attempt::resume_of(attempt, true));
                thread.resume = resume.clone().filter(|_| thread.task == task.id);
                // The next turn may already be queued.
                for next in next_turns(draft.board(), task) {
                    task::set_duty(draft, next.id, duty.clone(), resume.clone())?;
                }
                draft.record(Event::ThreadChanged(Threaded { project: task.project.clone(), thread }));
            }
        }
        Some(Duty::Triage { channel, message }) => {
            let settled = settle(draft, task, &attempt.agent, (channel, *message), &said, now);
            // A refusal is posted as the answer, because the attempt is over in any case.
            if let Err(refusal) = settled {
                let text = format!("{}. {}", refusal.message(), refusal.hint());
                answer(draft, &attempt.agent, (channel, *message), text, now)?;
            }
        }
        Some(Duty::Lead | Duty::Converse { .. } | Duty::Plan { .. }) | None => {}
    }
    Ok(Ok(()))
}

/// The decision of a triage about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict<'a> {
    Answer(&'a str),
    Task(&'a str),
    Lead(&'a str),
    Nothing,
}

/// Parses a triage's result. Text in an unknown form counts as an answer, because a person will
/// read it.
fn read(said: &str) -> Verdict<'_> {
    let lower = said.to_ascii_lowercase();
    let after = |word: &str| {
        let rest = lower.strip_prefix(word)?.trim_start().strip_prefix(':')?;
        Some(said[said.len() - rest.len()..].trim()).filter(|it| !it.is_empty())
    };
    if let Some(text) = after("answer") {
        Verdict::Answer(text)
    } else if let Some(text) = after("task") {
        Verdict::Task(text)
    } else if let Some(text) = after("lead").or_else(|| after("mission")) {
        Verdict::Lead(text)
    } else if matches!(lower.trim_end_matches('.'), "nothing" | "nothing:" | "ignore") {
        Verdict::Nothing
    } else {
        Verdict::Answer(said)
    }
}

/// Carries out the decision of a triage.
fn settle(
    draft: &mut Draft,
    task: &Task,
    by: &AgentName,
    (channel, message): (&ChannelName, MessageId),
    said: &str,
    now: Now,
) -> Result<(), Refusal> {
    match read(said) {
        Verdict::Nothing => Ok(()),
        Verdict::Answer(text) => answer(draft, by, (channel, message), text.to_owned(), now).map(|_| ()),
        Verdict::Task(text) => {
            let id = backlog(draft, &task.project, text, now)?;
            let text = format!(
                "{id} is in the backlog: {}. regatta edit {id} --ready --files … makes it ready",
                task::one_line(text, 200)
            );
            answer(draft, by, (channel, message), text, now).map(|_| ())
        }
        Verdict::Lead(goal) => {
            let ask = lead::Ask {
                project: task.project.clone(),
                goal: goal.to_owned(),
                about: lead::About::Goal,
                agent: None,
                message: Some(message),
                channel: Some(channel.clone()),
            };
            lead::ask(draft, ask, now).map(|_| ())
        }
    }
}

/// Adds a task to the backlog, so that somebody reviews it before it starts.
pub(crate) fn backlog(draft: &mut Draft, project: &ProjectName, text: &str, now: Now) -> Result<TaskId, Refusal> {
    let (subject, rest) = text.trim().split_once('\n').unwrap_or((text, ""));
    let add = Add {
        issue_type: task::IssueType::Task,
        expects: task::Expects::Changes,
        backlog: true,
        ..Add::report(project.clone(), subject, rest.trim().to_owned())
    };
    task::add(draft, add, None, now)
}

/// Posts an agent's answer as a reply.
fn answer(
    draft: &mut Draft,
    by: &AgentName,
    (channel, to): (&ChannelName, MessageId),
    text: String,
    now: Now,
) -> Result<MessageId, Refusal> {
    let labels = vec![Label::new("answer").expect("our own labels are well formed")];
    let post = Post { channel: channel.clone(), text, labels, reply_to: Some(to) };
    bus::post(draft, post, Actor::Agent(by.clone()), now)
}

/// Returns the remembered thread that began with this message.
fn thread<'a>(board: &'a Board, project: &ProjectName, root: MessageId) -> Option<&'a Thread> {
    board.projects.get(project)?.intake.threads.iter().find(|it| it.root == root)
}

/// Returns the tasks of the same thread that wait for this turn.
fn next_turns(board: &Board, task: &Task) -> Vec<Arc<Task>> {
    let Some(Duty::Answer { root, .. }) = &task.duty else { return vec![] };
    let same = |it: &&Arc<Task>| matches!(&it.duty, Some(Duty::Answer { root: other, .. }) if other == root);
    let waiting = board.dependents_of(task.id).into_iter().filter_map(|it| board.tasks.get(&it));
    waiting.filter(same).cloned().collect()
}

/// Removes a turn without a result from the blockers of the next turns.
pub(crate) fn pass_over(draft: &mut Draft, task: &Task) -> Result<(), Refusal> {
    for next in next_turns(draft.board(), task).iter().filter(|it| it.status.is_waiting()) {
        let blocked_by = next.blocked_by.iter().copied().filter(|it| *it != task.id).collect();
        task::edit(draft, next.id, Edit { blocked_by: Some(blocked_by), ..Edit::default() })?;
    }
    Ok(())
}

/// Announces that an answer or a triage failed, with the next step for the person who asked.
pub(crate) fn lost(draft: &mut Draft, task: &Task, reason: &str, now: Now) -> Result<(), Refusal> {
    let (channel, to) = match &task.duty {
        Some(Duty::Answer { channel, root }) => (channel.clone(), *root),
        Some(Duty::Triage { channel, message }) => (channel.clone(), *message),
        Some(Duty::Lead | Duty::Converse { .. } | Duty::Plan { .. }) | None => return Ok(()),
    };
    pass_over(draft, task)?;
    let again = if draft.board().tasks.get(&task.id).is_some_and(|it| it.status == Status::NeedsHuman) {
        format!("regatta retry {}", task.id)
    } else {
        "ask again".into()
    };
    let text = format!("{} gave no answer: {reason}. Next: regatta why {0}, {again}", task.id);
    let labels = vec![Label::new("answer:failed").expect("our own labels are well formed")];
    bus::say(draft, channel, text.chars().take(2_000).collect(), (labels, Some(to)), now).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triage_is_read_by_its_first_word_and_other_text_is_an_answer() {
        for (said, verdict) in [
            ("answer: yes", Verdict::Answer("yes")),
            ("Task: Fix the typo\nin README", Verdict::Task("Fix the typo\nin README")),
            ("LEAD : rework the login", Verdict::Lead("rework the login")),
            ("mission: x", Verdict::Lead("x")),
            ("nothing", Verdict::Nothing),
            ("Nothing.", Verdict::Nothing),
            ("nothing is wrong with it", Verdict::Answer("nothing is wrong with it")),
            ("task:", Verdict::Answer("task:")),
            ("tasks are fun", Verdict::Answer("tasks are fun")),
            ("Ünïcode: well", Verdict::Answer("Ünïcode: well")),
        ] {
            assert_eq!(read(said), verdict, "{said}");
        }
    }
}
