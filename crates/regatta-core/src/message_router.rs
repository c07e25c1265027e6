//! The router reads the messages in a project's channel and carries out requests in them, such as
//! `!mission Add rate limits`. It does not use a model.
//!
//! Messages are handled one by one, in order, and each message once; a repeated delivery is
//! ignored. While somebody holds the claim `respond://<project>-dev`, because they want to answer
//! themselves, messages wait until that claim ends.
//!
//! Not here: the missions that messages request ([`crate::lead`]), and answers to questions and
//! plain messages ([`crate::thread_answers`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::bus::{self, Message};
use crate::claim;
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{Label, MessageId, Now, ProjectName, TaskId};
use crate::lead::{self, LeadRequest, LeadSubject};
use crate::pattern::Uri;
use crate::plural;
use crate::project::{Project, TriagePolicy};
use crate::refusal::Refusal;
use crate::thread_answers::{self, QuestionEffort, QuestionRequest, QuestionThread};

/// The memory of a project's router: handled and waiting messages, and threads with questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RouterState {
    /// The newest message that was handled. All earlier messages were handled, too, except the
    /// messages in `waiting`.
    #[serde(rename = "handled")]
    pub last_handled: MessageId,
    /// Messages that wait because somebody else holds the claim to answer the project's messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Message>,
    /// Message threads that began with a question and in which people can ask further questions,
    /// the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<QuestionThread>,
}

impl RouterState {
    pub(crate) fn is_default(&self) -> bool {
        *self == RouterState::default()
    }
}

facts! {
    /// A message was queued, because somebody else holds the claim to answer the project's
    /// messages.
    MessageQueued { project: ProjectName, message: Message }
    /// The router handled a message; `what` is the kind of request that it found, such as
    /// `mission`.
    MessageHandled { project: ProjectName, message: MessageId, what: String }
}

/// Maximum number of messages that wait in a project. Further messages are dropped, and their
/// senders get a reply.
const MAX_WAITING: usize = 500;
/// Maximum number of leads (agents that lead a mission) that one message can start.
const MAX_LEADS_PER_MESSAGE: u32 = 10;

/// Labels with which agents and tools mark the messages that they send each other. A message with
/// one of these labels is never a request.
const COORDINATION_LABELS: [&str; 16] = [
    "answer",
    "answer:failed",
    "claim",
    "done",
    "escalation",
    "feedback",
    "handoff",
    "hook",
    "merge",
    "mission:cancelled",
    "mission:done",
    "mission:lost",
    "release",
    "review",
    "spawn-ack",
    "status",
];

/// The meaning of a message in a project's channel: a command to the router, a question, or plain
/// text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouterCommand<'a> {
    /// `!dev [n] [task or words]`: start one or more leads for a task, a goal, or the waiting
    /// tasks.
    Dev {
        count: u32,
        task: Option<TaskId>,
        words: &'a str,
    },
    /// `!mission words`: give this goal to a lead.
    Mission(&'a str),
    /// `!leads [n]`: list the leads, or start leads until there are `n`.
    Leads(Option<u32>),
    /// `!task words`: put a task into the backlog.
    Task(&'a str),
    Question(QuestionRequest<'a>),
    Help,
    /// An unknown or incomplete command. Contains the explanation for the reply.
    Unclear(String),
    PlainText(&'a str),
}

/// Finds the request in a message. Upper case and additional spaces are accepted, unknown commands
/// are not. `base` is the name under which the project can be addressed, such as `shop-dev`.
pub(crate) fn parse<'a>(text: &'a str, base: &str) -> RouterCommand<'a> {
    let text = without_address(text.trim(), base);
    let lower = text.to_ascii_lowercase();
    if lower.strip_prefix("q:").is_some() {
        return parse_question(text[2..].trim(), QuestionEffort::Low, None, "q:");
    }
    let Some(rest) = text.strip_prefix('!') else {
        return RouterCommand::PlainText(text);
    };
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(rest.len());
    let (name, mut words) = rest.split_at(end);
    let command = name.to_ascii_lowercase();
    let mut model = None;
    if let Some(inner) = words.strip_prefix('(') {
        let Some((name, after)) = inner.split_once(')') else {
            return RouterCommand::Unclear(format!(
                "the bracket after `!{command}` is not closed: write `!q(opus) …`"
            ));
        };
        (model, words) = (Some(name.trim().to_owned()), after);
    }
    // A colon or comma after the command is ignored, so `!dev: fix it` means `!dev fix it`.
    let words = words.trim_start_matches([':', ',']).trim();
    if let Some(model) = &model
        && (model.is_empty()
            || model.len() > 100
            || model.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        return RouterCommand::Unclear("a model's name is one word: write `!q(opus) …`".into());
    }
    if model.is_some() && !matches!(command.as_str(), "q" | "qq" | "bigq" | "oneshot") {
        return RouterCommand::Unclear(format!("`!{command}` takes no model: only questions do"));
    }
    match command.as_str() {
        "dev" => parse_dev(words),
        "mission" if words.is_empty() => RouterCommand::Unclear(
            "name the goal of the mission: `!mission Add rate limits`".into(),
        ),
        "mission" => RouterCommand::Mission(words),
        "leads" if words.is_empty() => RouterCommand::Leads(None),
        "leads" => match words.parse::<u32>() {
            Ok(count) if (1..=MAX_LEADS_PER_MESSAGE).contains(&count) => {
                RouterCommand::Leads(Some(count))
            }
            _ => RouterCommand::Unclear(format!(
                "`!leads` takes a number from 1 to {MAX_LEADS_PER_MESSAGE}, or nothing to list \
                the leads"
            )),
        },
        "task" | "bead" if words.is_empty() => {
            RouterCommand::Unclear("describe the task: `!task Fix the typo in README`".into())
        }
        "task" | "bead" => RouterCommand::Task(words),
        "q" => parse_question(words, QuestionEffort::Low, model, "!q"),
        "qq" => parse_question(words, QuestionEffort::Medium, model, "!qq"),
        "bigq" => parse_question(words, QuestionEffort::High, model, "!bigq"),
        "oneshot" => match parse_question(words, QuestionEffort::Medium, model, "!oneshot") {
            RouterCommand::Question(question) => RouterCommand::Question(QuestionRequest {
                takes_one_answer: true,
                ..question
            }),
            other => other,
        },
        "help" => RouterCommand::Help,
        // `!nohooks` and similar words switch off hooks and are not commands of the router. `!`
        // alone and `!!!` are not commands either.
        "" | "nohooks" | "nochanhooks" | "noathooks" => RouterCommand::PlainText(text),
        other => {
            let other: String = other.chars().take(40).collect();
            RouterCommand::Unclear(format!("`!{other}` is not a command"))
        }
    }
}

/// Removes the address `@shop-dev` at the start of a message, where `base` is `shop-dev`.
fn without_address<'a>(text: &'a str, base: &str) -> &'a str {
    let rest = text
        .strip_prefix('@')
        .and_then(|text| text.strip_prefix(base));
    match rest {
        Some(rest) if rest.starts_with(|c: char| c.is_whitespace() || c == ':' || c == ',') => {
            rest.trim_start_matches([':', ',']).trim()
        }
        _ => text,
    }
}

/// Returns the question in `text`, or, if `text` is empty, an explanation that shows how to write a
/// question with `command`.
fn parse_question<'a>(
    text: &'a str,
    effort: QuestionEffort,
    model: Option<String>,
    command: &str,
) -> RouterCommand<'a> {
    match text {
        "" => RouterCommand::Unclear(format!(
            "add the question: `{command} Where is the login checked?`"
        )),
        text => RouterCommand::Question(QuestionRequest {
            text,
            effort,
            model,
            takes_one_answer: false,
        }),
    }
}

/// Parses the arguments of `!dev`: an optional number of leads, followed by a task's id, a goal, or
/// nothing.
fn parse_dev(words: &str) -> RouterCommand<'_> {
    let (first, after) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let (count, words) = match first.parse::<u32>() {
        Ok(count) if (1..=MAX_LEADS_PER_MESSAGE).contains(&count) => (count, after.trim()),
        Ok(_) => {
            return RouterCommand::Unclear(format!(
                "`!dev` starts 1 to {MAX_LEADS_PER_MESSAGE} leads"
            ));
        }
        Err(_) => (1, words),
    };
    let is_single_word = words.split_whitespace().count() == 1;
    let task = words
        .parse::<TaskId>()
        .ok()
        .filter(|_| is_single_word && words.starts_with(['T', 't']));
    match task {
        Some(_) if count > 1 => RouterCommand::Unclear("a task can have only one lead".into()),
        Some(_) => RouterCommand::Dev {
            count,
            task,
            words: "",
        },
        None => RouterCommand::Dev {
            count,
            task: None,
            words,
        },
    }
}

const HELP_TEXT: &str = "Commands: `!mission GOAL` gives a goal to a lead. `!dev` starts a lead \
    for the waiting tasks, `!dev T7` for one task, `!dev TEXT` for a goal, and `!dev 2` starts two \
    leads. `!leads` lists the leads, `!leads 3` brings their number to three. `!task TEXT` puts a \
    task into the backlog. `!q`, `!qq` and `!bigq QUESTION` answer here with low, medium or high \
    effort, `!q(MODEL)` with that model; reply to continue, or use `!oneshot` for a single answer. \
    Any other message is answered, made a task, or handed to a lead.";

/// Handles a new message, or queues it while somebody else holds the claim to answer the project's
/// messages. Ignores messages that cannot be requests and repeated deliveries.
pub(crate) fn on_message(
    draft: &mut Draft,
    project: &ProjectName,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    let Some(project_record) = draft.board().projects.get(project).cloned() else {
        return Ok(());
    };
    if message.id <= project_record.router_state.last_handled
        || project_record
            .router_state
            .waiting
            .iter()
            .any(|waiting| waiting.id == message.id)
    {
        return Ok(());
    }
    if !may_request(&project_record, message) {
        return Ok(());
    }
    if !project_record.router_state.waiting.is_empty() || !is_free(draft, project, now) {
        if project_record.router_state.waiting.len() >= MAX_WAITING {
            let text = format!(
                "{MAX_WAITING} messages are already waiting, so this one was dropped. Send it \
                again later."
            );
            return reply(draft, message, text, now);
        }
        draft.record(Event::MessageQueued(MessageQueued {
            project: project.clone(),
            message: message.clone(),
        }));
        return Ok(());
    }
    handle(draft, &project_record, message, now)
}

/// Handles the waiting messages of a project in order, as long as nobody else holds the claim to
/// answer the project's messages.
pub(crate) fn handle_waiting(
    draft: &mut Draft,
    project: &ProjectName,
    now: Now,
) -> Result<(), Refusal> {
    loop {
        let Some(project_record) = draft.board().projects.get(project).cloned() else {
            return Ok(());
        };
        let Some(next) = project_record.router_state.waiting.first().cloned() else {
            return Ok(());
        };
        if !is_free(draft, project, now) {
            return Ok(());
        }
        handle(draft, &project_record, &next, now)?;
    }
}

/// Returns the projects whose waiting messages can be handled now, because the claim to answer
/// these projects' messages was on one of the given URIs and has ended.
pub(crate) fn projects_freed(board: &Board, uris: &[Uri]) -> Vec<ProjectName> {
    let is_waiting = |project: &&Arc<Project>| {
        !project.router_state.waiting.is_empty()
            && answer_claim_uri(&project.name).is_some_and(|uri| uris.contains(&uri))
    };
    board
        .projects
        .values()
        .filter(is_waiting)
        .map(|project| project.name.clone())
        .collect()
}

/// Returns the URI that a person or agent claims to answer a project's messages instead of the
/// router.
fn answer_claim_uri(project: &ProjectName) -> Option<Uri> {
    Uri::new(&format!("respond://{project}-dev")).ok()
}

/// Returns whether nobody holds the claim to answer the project's messages, so that the router may
/// answer.
fn is_free(draft: &Draft, project: &ProjectName, now: Now) -> bool {
    let uri = answer_claim_uri(project);
    uri.is_none_or(|uri| {
        claim::conflicting_holders(draft, &[uri], claim::ClaimMode::Exclusive, None, now).is_empty()
    })
}

/// Returns whether a message can be a request: its sender may make requests, and it is not marked
/// as a message between agents.
fn may_request(project: &Project, message: &Message) -> bool {
    let has_permission = match &message.sender {
        Actor::Person(_) => true,
        Actor::Agent(name) => project.settings.router.from.contains(name),
        Actor::Regatta => false,
    };
    let is_coordination = |label: &Label| {
        label.as_str().starts_with("coord:") || COORDINATION_LABELS.contains(&label.as_str())
    };
    has_permission && !message.labels.iter().any(is_coordination)
}

/// Carries out the request in a message to the router and replies in the message's thread. If the
/// request is refused, the reason is the reply.
fn handle(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    now: Now,
) -> Result<(), Refusal> {
    let base = lead::base_name(&project.name)?;
    let command = parse(&message.text, base.as_str());
    let thread = thread_answers::thread_of(project, message).cloned();
    let kind = request_kind(&command, thread.is_some(), project.settings.router.triage);
    draft.record(Event::MessageHandled(MessageHandled {
        project: project.name.clone(),
        message: message.id,
        what: kind.to_owned(),
    }));
    let outcome = match command {
        RouterCommand::PlainText(_) if thread.is_some() => match thread {
            Some(thread) => thread_answers::follow_up(draft, project, &thread, message, now),
            None => Ok(()),
        },
        RouterCommand::PlainText(text) => match project.settings.router.triage {
            TriagePolicy::Off => Ok(()),
            TriagePolicy::Agent => thread_answers::add_triage(draft, project, message, now),
            TriagePolicy::Task => thread_answers::add_backlog_task(draft, &project.name, text, now)
                .and_then(|id| reply(draft, message, format!("{id} is in the backlog"), now)),
        },
        RouterCommand::Question(question) => {
            thread_answers::add_question(draft, project, message, question, now)
        }
        RouterCommand::Mission(goal) => {
            request_mission(draft, project, message, LeadSubject::Goal, goal, now)
        }
        RouterCommand::Dev { task: Some(id), .. } => match crate::task::find(draft.board(), id) {
            Ok(task) => request_mission(
                draft,
                project,
                message,
                LeadSubject::Task(id),
                &format!("{id}: {}", task.subject),
                now,
            ),
            Err(refusal) => Err(refusal),
        },
        RouterCommand::Dev { count, words, .. } => {
            request_missions(draft, project, message, count, words, now)
        }
        RouterCommand::Leads(None) => reply(
            draft,
            message,
            list_leads(draft.board(), &project.name),
            now,
        ),
        RouterCommand::Leads(Some(count)) => {
            let lead_count = lead::led_missions(draft.board(), &project.name).count() as u32;
            match count.saturating_sub(lead_count) {
                0 => reply(
                    draft,
                    message,
                    list_leads(draft.board(), &project.name),
                    now,
                ),
                more => request_missions(draft, project, message, more, "", now),
            }
        }
        RouterCommand::Task(words) => {
            thread_answers::add_backlog_task(draft, &project.name, words, now).and_then(|id| {
                let text = format!(
                    "{id} is in the backlog. regatta edit {id} --ready --files … makes it ready"
                );
                reply(draft, message, text, now)
            })
        }
        RouterCommand::Help => reply(draft, message, HELP_TEXT.to_owned(), now),
        RouterCommand::Unclear(why) => reply(
            draft,
            message,
            format!("{why}. `!help` lists the commands."),
            now,
        ),
    };
    match outcome {
        Ok(()) => Ok(()),
        // The refused request must not fail the command that posted the message, so the refusal
        // becomes a reply.
        Err(refusal) => reply(
            draft,
            message,
            format!("{}. {}", refusal.message(), refusal.hint()),
            now,
        ),
    }
}

/// Returns the kind of request that a message contains, as one word. The word is recorded with the
/// handled message.
fn request_kind(
    command: &RouterCommand<'_>,
    in_thread: bool,
    triage: TriagePolicy,
) -> &'static str {
    match command {
        RouterCommand::PlainText(_) if in_thread => "follow_up",
        RouterCommand::PlainText(_) if triage == TriagePolicy::Off => "nothing",
        RouterCommand::PlainText(_) => "triage",
        RouterCommand::Dev { .. } => "dev",
        RouterCommand::Mission(_) => "mission",
        RouterCommand::Leads(_) => "leads",
        RouterCommand::Task(_) => "task",
        RouterCommand::Question(_) => "question",
        RouterCommand::Help => "help",
        RouterCommand::Unclear(_) => "unclear",
    }
}

const BACKLOG_GOAL: &str = "Work through the waiting tasks of the project: take tasks that are \
    ready and that nobody has (task_action claim), the most important first, have them done, and \
    report the results.";

/// Requests `count` missions, each with a lead. The goal of each is `words`, or, if `words` is
/// empty, to work through the project's waiting tasks.
fn request_missions(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    count: u32,
    words: &str,
    now: Now,
) -> Result<(), Refusal> {
    let (subject, goal) = if words.is_empty() {
        (LeadSubject::Backlog, BACKLOG_GOAL)
    } else {
        (LeadSubject::Goal, words)
    };
    for _ in 0..count {
        request_mission(draft, project, message, subject, goal, now)?;
    }
    Ok(())
}

/// Requests a mission with a lead. Its announcements will be replies to `message`.
fn request_mission(
    draft: &mut Draft,
    project: &Project,
    message: &Message,
    subject: LeadSubject,
    goal: &str,
    now: Now,
) -> Result<(), Refusal> {
    let request = LeadRequest {
        project: project.name.clone(),
        goal: goal.to_owned(),
        subject,
        agent: None,
        message: Some(message.id),
        channel: Some(message.channel.clone()),
    };
    lead::request_mission(draft, request, now).map(|_| ())
}

/// Describes a project's leads and their missions in the text of a reply to `!leads`.
fn list_leads(board: &Board, project: &ProjectName) -> String {
    let lines: Vec<String> = lead::siblings(board, project, None)
        .iter()
        .map(|sibling| {
            format!(
                "{} leads {}: {} ({} open)",
                sibling.lead,
                sibling.mission,
                sibling.title,
                plural::count(sibling.tasks.len(), "task")
            )
        })
        .collect();
    let max_leads = board
        .projects
        .get(project)
        .map_or(0, |project| project.settings.leads.max_leads);
    match lines.as_slice() {
        [] => format!("No leads are at work; the maximum is {max_leads}."),
        lines => format!(
            "{} of {max_leads} leads are at work.\n{}",
            lines.len(),
            lines.join("\n")
        ),
    }
}

/// Posts a reply from Regatta to a message, in the message's channel.
fn reply(draft: &mut Draft, message: &Message, text: String, now: Now) -> Result<(), Refusal> {
    let labels = vec![Label::new("answer").expect("our own labels are well formed")];
    let text: String = text.chars().take(bus::MAX_TEXT_BYTES / 4).collect();
    bus::post_as_regatta(
        draft,
        message.channel.clone(),
        text,
        (labels, Some(message.id)),
        now,
    )
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        match parse(text, "shop-dev") {
            RouterCommand::Dev { count, task, words } => {
                format!(
                    "dev {count} {} {words:?}",
                    task.map_or_else(|| "-".into(), |id| id.to_string())
                )
            }
            RouterCommand::Mission(goal) => format!("mission {goal:?}"),
            RouterCommand::Leads(count) => format!("leads {count:?}"),
            RouterCommand::Task(words) => format!("task {words:?}"),
            RouterCommand::Question(question) => format!(
                "{} {} {:?}{}",
                question.effort.name(),
                question.model.as_deref().unwrap_or("-"),
                question.text,
                if question.takes_one_answer {
                    " once"
                } else {
                    ""
                }
            ),
            RouterCommand::Help => "help".into(),
            RouterCommand::Unclear(_) => "unclear".into(),
            RouterCommand::PlainText(text) => format!("plain {text:?}"),
        }
    }

    #[test]
    fn commands_are_read_in_any_case_and_spacing() {
        for (text, meant) in [
            ("!dev", r#"dev 1 - """#),
            ("!DEV  fix the typo", r#"dev 1 - "fix the typo""#),
            ("! dev: fix it", r#"dev 1 - "fix it""#),
            ("!dev 2", r#"dev 2 - """#),
            ("!dev 2 fix both", r#"dev 2 - "fix both""#),
            ("!dev T7", r#"dev 1 T7 """#),
            ("!dev t7", r#"dev 1 T7 """#),
            ("!dev T7 and more", r#"dev 1 - "T7 and more""#),
            ("!dev 2 T7", "unclear"),
            ("!dev 0", "unclear"),
            ("!dev 99", "unclear"),
            ("!mission Add\nlimits", r#"mission "Add\nlimits""#),
            ("!mission", "unclear"),
            ("!Leads 3", "leads Some(3)"),
            ("!leads", "leads None"),
            ("!leads many", "unclear"),
            ("!task do it", r#"task "do it""#),
            ("!bead do it", r#"task "do it""#),
            ("!task", "unclear"),
            ("!q why?", r#"low - "why?""#),
            ("!qq why?", r#"medium - "why?""#),
            ("!BigQ why?", r#"high - "why?""#),
            ("!q(opus) why?", r#"low opus "why?""#),
            ("!q ( opus ) why?", r#"low - "( opus ) why?""#),
            ("!q() why?", "unclear"),
            ("!q(two words) why?", "unclear"),
            ("!q(opus why?", "unclear"),
            ("!dev(opus) x", "unclear"),
            ("!oneshot why?", r#"medium - "why?" once"#),
            ("q: why?", r#"low - "why?""#),
            ("Q:why?", r#"low - "why?""#),
            ("!q", "unclear"),
            ("!help", "help"),
            ("!wat", "unclear"),
            ("@shop-dev !q why?", r#"low - "why?""#),
            ("@shop-dev: hello", r#"plain "hello""#),
            (
                "@shop-dev/lead-x hello",
                r#"plain "@shop-dev/lead-x hello""#,
            ),
            ("hello !dev", r#"plain "hello !dev""#),
            ("!!!", r#"plain "!!!""#),
            ("!nohooks hello", r#"plain "!nohooks hello""#),
            ("!dévéloppe", "unclear"),
        ] {
            assert_eq!(plain(text), meant, "{text}");
        }
    }
}
