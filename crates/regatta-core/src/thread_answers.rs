//! Lets agents answer questions in message threads, and triage messages that are not commands. To
//! triage a message means to decide whether it is answered, becomes a task, or goes to a lead.
//!
//! Each answer and each triage is a task of the project's own agent, such as `shop-dev`. Such a
//! task produces text and changes no files, and does not count against the limits of the machine or
//! of leads, so a question never waits for a mission.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{self, Role};
use crate::agent_texts::{self, TaskText};
use crate::attempt::{self, Attempt, ResumePoint, WorkResult};
use crate::board::{Board, Draft};
use crate::bus::{self, Message, PostMessage};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ChannelName, Label, MessageId, Now, ProjectName, TaskId};
use crate::lead;
use crate::project::Project;
use crate::refusal::Refusal;
use crate::task::{self, AddTask, AssignMode, EditTask, Purpose, Task, TaskStatus};

/// A message thread that began with a question, with the information that is needed to answer
/// further questions in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuestionThread {
    /// The message with which the thread began.
    pub root: MessageId,
    /// Messages of the thread. A reply to one of them continues the thread.
    pub messages: Vec<MessageId>,
    /// The task that answers the latest message of the thread. The task for the next message waits
    /// for it.
    pub task: TaskId,
    /// Effort with which the model should think about each answer.
    pub effort: QuestionEffort,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's session in which the next answer continues, so that the agent knows the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumePoint>,
    /// Set if the question is answered once and replies do not continue the thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// The effort with which the model should think about a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QuestionEffort {
    #[default]
    Low,
    Medium,
    High,
}

impl QuestionEffort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            QuestionEffort::Low => "low",
            QuestionEffort::Medium => "medium",
            QuestionEffort::High => "high",
        }
    }
}

facts! {
    /// A thread with a question began or changed; `thread` is its whole record.
    MessageThread { project: ProjectName, thread: QuestionThread }
}

/// Maximum number of threads that are remembered for each project. A reply in an older thread is
/// treated as a new message.
pub(crate) const MAX_THREADS: usize = 100;
/// Maximum number of messages that are remembered for each thread.
const MAX_THREAD_MESSAGES: usize = 200;

/// A question that a person asked in a channel, with the effort and model for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuestionRequest<'a> {
    pub(crate) text: &'a str,
    pub(crate) effort: QuestionEffort,
    pub(crate) model: Option<String>,
    pub(crate) takes_one_answer: bool,
}

/// Adds a task that answers a person's question, and remembers the thread that begins with it.
pub(crate) fn add_question(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    question: QuestionRequest<'_>,
    now: Now,
) -> Result<(), Refusal> {
    let agent = answering_agent(draft, project, now)?;
    let text = agent_texts::first_answer_task(message, question.text);
    let purpose = Purpose::Answer {
        channel: message.channel.clone(),
        root: message.id,
    };
    let request = AddTask {
        effort: Some(question.effort.name().into()),
        model: question.model.clone(),
        ..AddTask::new_report(project.name.clone(), text)
    };
    let task = add_assigned_task(draft, request, purpose, None, agent, now)?;
    let thread = QuestionThread {
        root: message.id,
        messages: vec![message.id],
        task,
        effort: question.effort,
        model: question.model,
        resume: None,
        closed: question.takes_one_answer,
    };
    draft.record(Event::MessageThread(MessageThread {
        project: project.name.clone(),
        thread,
    }));
    Ok(())
}

/// Returns the question thread that a message continues, because it replies to one of the thread's
/// messages.
pub(crate) fn thread_of<'a>(project: &'a Project, message: &Message) -> Option<&'a QuestionThread> {
    let reply_to = message.reply_to?;
    project
        .router_state
        .threads
        .iter()
        .find(|thread| !thread.closed && thread.messages.contains(&reply_to))
}

/// Adds a task that answers the next message in a question thread. The task waits for the answer to
/// the previous message.
pub(crate) fn follow_up(
    draft: &mut Draft,
    project: &Project,
    thread: &QuestionThread,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    let agent = answering_agent(draft, project, now)?;
    let text = agent_texts::next_answer_task(thread.root, message);
    let purpose = Purpose::Answer {
        channel: message.channel.clone(),
        root: thread.root,
    };
    // If the task for the previous answer failed and needs a person, the next task does not wait
    // for it.
    let is_open = |task: &&Arc<Task>| task.status != TaskStatus::NeedsHuman;
    let before = draft
        .board()
        .tasks
        .get(&thread.task)
        .filter(is_open)
        .map(|task| task.id);
    let request = AddTask {
        effort: Some(thread.effort.name().into()),
        model: thread.model.clone(),
        blocked_by: before.into_iter().collect(),
        ..AddTask::new_report(project.name.clone(), text)
    };
    let resume = thread.resume.clone().filter(|_| before.is_none());
    let task = add_assigned_task(draft, request, purpose, resume, agent, now)?;
    let mut thread = QuestionThread {
        task,
        resume: None,
        ..thread.clone()
    };
    add_message(&mut thread.messages, message.id);
    draft.record(Event::MessageThread(MessageThread {
        project: project.name.clone(),
        thread,
    }));
    Ok(())
}

/// Adds a message to a thread's list. If the list is then too long, removes the second message,
/// because the first message identifies the thread.
fn add_message(messages: &mut Vec<MessageId>, id: MessageId) {
    messages.push(id);
    if messages.len() > MAX_THREAD_MESSAGES {
        messages.remove(1); // the root stays
    }
}

/// Adds a task in which an agent decides whether a message that is not a command is answered,
/// becomes a task, or goes to a lead.
pub(crate) fn add_triage(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    let agent = answering_agent(draft, project, now)?;
    let text = agent_texts::triage_task(message);
    let purpose = Purpose::Triage {
        channel: message.channel.clone(),
        message: message.id,
    };
    let request = AddTask {
        effort: Some(QuestionEffort::Low.name().into()),
        ..AddTask::new_report(project.name.clone(), text)
    };
    add_assigned_task(draft, request, purpose, None, agent, now).map(|_| ())
}

/// Adds a task with this purpose and assigns it to the agent, which continues the session
/// `resume` if one is given.
fn add_assigned_task(
    draft: &mut Draft,
    request: AddTask,
    purpose: Purpose,
    resume: Option<ResumePoint>,
    agent: AgentName,
    now: Now,
) -> Result<TaskId, Refusal> {
    let task = task::add(draft, request, None, now)?;
    task::set_purpose(draft, task, purpose, resume)?;
    task::assign(draft, task, Some(agent), AssignMode::Queue, now)?;
    Ok(task)
}

/// Returns the project's own agent, such as `shop-dev`, which answers messages with the program of
/// an agent from the settings. Creates it if necessary.
fn answering_agent(draft: &mut Draft, project: &Project, now: Now) -> Result<AgentName, Refusal> {
    let name = lead::base_name(&project.name)?;
    let board = draft.board();
    // If a person added an agent with this name, that agent is used as it is.
    if board
        .agents
        .get(&name)
        .is_some_and(|agent| agent.derived_from.is_none())
    {
        return Ok(name);
    }
    let source = lead::choose_lead(board, project, project.settings.router.agent.clone())?;
    agent::derive(
        draft,
        &source,
        name.clone(),
        Role::Worker,
        project.settings.router.max_answers.clamp(1, 20),
        now,
    )?;
    Ok(name)
}

/// Returns the text with which an agent answered a message, or `None` if it ended without one.
fn answer_text(task: &Task, result: Option<&WorkResult>) -> Option<String> {
    let detail = result
        .map(|result| result.detail.as_str())
        .filter(|detail| !detail.trim().is_empty());
    let answer = detail.or(task.output.as_deref()).unwrap_or_default().trim();
    (!answer.is_empty()).then(|| answer.chars().take(bus::MAX_TEXT_BYTES / 4).collect())
}

/// The problem that is reported when a task that should answer a person ends without an answer.
const NO_ANSWER: &str = "it finished without an answer";

/// Handles the result of a task that answers a question: posts the answer in the thread that began
/// with `root`. The inner `Err` is the reason why the result cannot be used.
pub(crate) fn finish_answer(
    draft: &mut Draft,
    task: &Task,
    (channel, root): (&ChannelName, MessageId),
    (attempt, result): (&Attempt, Option<&WorkResult>),
    now: Now,
) -> Result<Result<(), String>, Refusal> {
    let Some(answer) = answer_text(task, result) else {
        return Ok(Err(NO_ANSWER.into()));
    };
    let posted = post_answer(draft, &attempt.agent, channel, root, answer, now)?;
    let Some(mut thread) = find_thread(draft.board(), &task.project, root).cloned() else {
        return Ok(Ok(()));
    };
    add_message(&mut thread.messages, posted);
    let resume = attempt
        .session
        .session_id
        .is_some()
        .then(|| attempt::resume_point(attempt, true));
    thread.resume = resume.clone().filter(|_| thread.task == task.id);
    // Tasks for the next messages of the thread may already wait. Let these tasks continue this
    // session.
    for next in next_turns(draft.board(), task) {
        task::set_purpose(draft, next.id, task.purpose.clone(), resume.clone())?;
    }
    draft.record(Event::MessageThread(MessageThread {
        project: task.project.clone(),
        thread,
    }));
    Ok(Ok(()))
}

/// Handles the result of a task that triages a message: carries out the decision. The inner `Err`
/// is the reason why the result cannot be used.
pub(crate) fn finish_triage(
    draft: &mut Draft,
    task: &Task,
    (channel, message): (&ChannelName, MessageId),
    (attempt, result): (&Attempt, Option<&WorkResult>),
    now: Now,
) -> Result<Result<(), String>, Refusal> {
    let Some(answer) = answer_text(task, result) else {
        return Ok(Err(NO_ANSWER.into()));
    };
    let triaged = TriagedMessage { channel, message };
    let outcome = apply_triage(draft, task, &attempt.agent, triaged, &answer, now);
    // If the decision cannot be carried out, the reason is posted as the answer, because the
    // agent's attempt has ended.
    if let Err(refusal) = outcome {
        let text = format!("{}. {}", refusal.message(), refusal.hint());
        post_answer(draft, &attempt.agent, channel, message, text, now)?;
    }
    Ok(Ok(()))
}

/// An agent's decision about a message that is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TriageDecision<'a> {
    Answer(&'a str),
    Task(&'a str),
    Lead(&'a str),
    Nothing,
}

/// Parses an agent's decision about a message. Text in an unknown form counts as an answer, because
/// a person will read it.
fn parse_triage(answer: &str) -> TriageDecision<'_> {
    let lower = answer.to_ascii_lowercase();
    let after = |word: &str| {
        let rest = lower.strip_prefix(word)?.trim_start().strip_prefix(':')?;
        Some(answer[answer.len() - rest.len()..].trim()).filter(|s| !s.is_empty())
    };
    if let Some(text) = after("answer") {
        TriageDecision::Answer(text)
    } else if let Some(text) = after("task") {
        TriageDecision::Task(text)
    } else if let Some(text) = after("lead").or_else(|| after("mission")) {
        TriageDecision::Lead(text)
    } else if matches!(
        lower.trim_end_matches('.'),
        "nothing" | "nothing:" | "ignore"
    ) {
        TriageDecision::Nothing
    } else {
        TriageDecision::Answer(answer)
    }
}

/// The message about which an agent decides, and its channel.
struct TriagedMessage<'a> {
    channel: &'a ChannelName,
    message: MessageId,
}

/// Carries out an agent's decision about a message: posts an answer, adds a task to the backlog, or
/// requests a mission with a lead.
fn apply_triage(
    draft: &mut Draft,
    task: &Task,
    by: &AgentName,
    triaged: TriagedMessage<'_>,
    answer: &str,
    now: Now,
) -> Result<(), Refusal> {
    let TriagedMessage { channel, message } = triaged;
    match parse_triage(answer) {
        TriageDecision::Nothing => Ok(()),
        TriageDecision::Answer(text) => {
            post_answer(draft, by, channel, message, text.to_owned(), now).map(|_| ())
        }
        TriageDecision::Task(text) => {
            let id = add_backlog_task(draft, &task.project, text, now)?;
            let text = format!(
                "{id} is in the backlog: {}. regatta edit {id} --ready --files … makes it ready",
                task::one_line(text, 200)
            );
            post_answer(draft, by, channel, message, text, now).map(|_| ())
        }
        TriageDecision::Lead(goal) => {
            let request = lead::LeadRequest {
                project: task.project.clone(),
                goal: goal.to_owned(),
                subject: lead::LeadSubject::Goal,
                agent: None,
                message: Some(message),
                channel: Some(channel.clone()),
            };
            lead::request_mission(draft, request, now).map(|_| ())
        }
    }
}

/// Adds a task to the backlog, where it waits until a person makes it ready. The first line of
/// `text` becomes its subject.
pub(crate) fn add_backlog_task(
    draft: &mut Draft,
    project: &ProjectName,
    text: &str,
    now: Now,
) -> Result<TaskId, Refusal> {
    let (subject, rest) = text.trim().split_once('\n').unwrap_or((text, ""));
    let text = TaskText {
        subject: subject.to_owned(),
        description: rest.trim().to_owned(),
    };
    let request = AddTask {
        issue_type: task::IssueType::Task,
        expects: task::Expects::Changes,
        backlog: true,
        ..AddTask::new_report(project.clone(), text)
    };
    task::add(draft, request, None, now)
}

/// Posts an agent's answer as a reply to a message.
fn post_answer(
    draft: &mut Draft,
    by: &AgentName,
    channel: &ChannelName,
    reply_to: MessageId,
    text: String,
    now: Now,
) -> Result<MessageId, Refusal> {
    let labels = vec![Label::new("answer").expect("our own labels are well formed")];
    let post = PostMessage {
        channel: channel.clone(),
        text,
        labels,
        reply_to: Some(reply_to),
    };
    bus::post(draft, post, Actor::Agent(by.clone()), now)
}

/// Returns the question thread that began with the message `root`, if it is still remembered.
fn find_thread<'a>(
    board: &'a Board,
    project: &ProjectName,
    root: MessageId,
) -> Option<&'a QuestionThread> {
    board
        .projects
        .get(project)?
        .router_state
        .threads
        .iter()
        .find(|thread| thread.root == root)
}

/// Returns the tasks that answer later messages of the same thread and wait for this task.
fn next_turns(board: &Board, task: &Task) -> Vec<Arc<Task>> {
    let Purpose::Answer { root, .. } = &task.purpose else {
        return vec![];
    };
    let is_same_thread = |task: &&Arc<Task>| matches!(&task.purpose, Purpose::Answer { root: other, .. } if other == root);
    let waiting = board
        .dependents_of(task.id)
        .into_iter()
        .filter_map(|id| board.tasks.get(&id));
    waiting.filter(is_same_thread).cloned().collect()
}

/// Lets the tasks that answer later messages of a thread start, although this task ended without an
/// answer.
pub(crate) fn skip_turn(draft: &mut Draft, task: &Task) -> Result<(), Refusal> {
    for next in next_turns(draft.board(), task)
        .iter()
        .filter(|task| task.status.is_waiting())
    {
        let blocked_by = next
            .blocked_by
            .iter()
            .copied()
            .filter(|id| *id != task.id)
            .collect();
        task::edit(
            draft,
            next.id,
            EditTask {
                blocked_by: Some(blocked_by),
                ..EditTask::default()
            },
        )?;
    }
    Ok(())
}

/// Handles the failure of a task that answers a question or triages a message: posts the failure in
/// the thread, with the next step for the person who asked.
pub(crate) fn on_task_lost(
    draft: &mut Draft,
    task: &Task,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let Some((channel, reply_to)) = task.purpose.message() else {
        return Ok(());
    };
    skip_turn(draft, task)?;
    let next_step = if draft
        .board()
        .tasks
        .get(&task.id)
        .is_some_and(|task| task.status == TaskStatus::NeedsHuman)
    {
        format!("regatta retry {}", task.id)
    } else {
        "ask again".into()
    };
    let text = format!(
        "{} gave no answer: {reason}. Next: regatta why {0}, {next_step}",
        task.id
    );
    let labels = vec![Label::new("answer:failed").expect("our own labels are well formed")];
    bus::post_as_regatta(
        draft,
        channel.clone(),
        text.chars().take(2_000).collect(),
        (labels, Some(reply_to)),
        now,
    )
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triage_is_read_by_its_first_word_and_other_text_is_an_answer() {
        for (answer, verdict) in [
            ("answer: yes", TriageDecision::Answer("yes")),
            (
                "Task: Fix the typo\nin README",
                TriageDecision::Task("Fix the typo\nin README"),
            ),
            (
                "LEAD : rework the login",
                TriageDecision::Lead("rework the login"),
            ),
            ("mission: x", TriageDecision::Lead("x")),
            ("nothing", TriageDecision::Nothing),
            ("Nothing.", TriageDecision::Nothing),
            (
                "nothing is wrong with it",
                TriageDecision::Answer("nothing is wrong with it"),
            ),
            ("task:", TriageDecision::Answer("task:")),
            ("tasks are fun", TriageDecision::Answer("tasks are fun")),
            ("Ünïcode: well", TriageDecision::Answer("Ünïcode: well")),
        ] {
            assert_eq!(parse_triage(answer), verdict, "{answer}");
        }
    }
}
