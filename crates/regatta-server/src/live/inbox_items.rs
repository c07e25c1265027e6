//! Builds the inbox items of the web page: each item with its group, its buttons, and the size of
//! the change that waits for a review.
//!
//! `regatta_core::inbox` decides which items exist and which items share a cause.

use regatta_api::input::RuntimeName;
use regatta_api::live_view::{ChangeSummary, InboxItemView, LandConfirmation, PageAction};
use regatta_api::view::{InboxChoice, InboxView};
use regatta_core::agent::{Agent, Runtime};
use regatta_core::agent_protocol::RequestContent;
use regatta_core::board::Board;
use regatta_core::ids::Now;
use regatta_core::inbox::{CauseClass, InboxKind};
use regatta_core::landing;
use regatta_core::shell_quote::quote;
use regatta_core::task::Task;
use regatta_engine::ports::git::{CommitGit, ProjectRepo};
use serde_json::{Value, json};

use super::actions::{ActionBuilder, new_button, with_landed_change};
use super::change_sizes::ChangeSizes;

/// Builds the inbox of the web page from one board, which is the daemon's state in memory.
pub(super) struct InboxBuilder<'a> {
    pub(super) board: &'a Board,
    pub(super) now: Now,
    pub(super) git: &'a dyn CommitGit,
    pub(super) sizes: &'a ChangeSizes,
}

impl InboxBuilder<'_> {
    /// Returns the inbox items that are not hidden (snoozed) at present, the longest waiting first.
    pub(super) fn items(&self) -> Vec<InboxItemView> {
        let mut counted = 0;
        InboxView::list(self.board, None, self.now)
            .into_iter()
            .filter(InboxView::is_shown)
            .map(|inbox| {
                let change = self.change(&inbox, &mut counted);
                // The size of the change is shown on its own, so the subject is only the task's.
                let subject = match self.task(&inbox) {
                    Some(task) if change.is_some() => task.subject.clone(),
                    _ => inbox.subject.clone(),
                };
                InboxItemView {
                    actions: self.actions(&inbox),
                    group: inbox.group_key(),
                    change,
                    item: InboxView { subject, ..inbox },
                }
            })
            .collect()
    }

    fn task(&self, inbox: &InboxView) -> Option<&Task> {
        let id = inbox.task?;
        let found = self.board.tasks.get(&id);
        found
            .or_else(|| self.board.failed.get(&id))
            .map(|task| &**task)
    }

    fn actions(&self, inbox: &InboxView) -> Vec<PageAction> {
        let mut actions = inbox_actions(inbox);
        if let Some(task) = self.task(inbox) {
            for action in &mut actions {
                if action.verb != "land" {
                    continue;
                }
                *action = with_landed_change(self.board, task, action.clone());
                // The work in the queue was let through before, so nobody has to read it again.
                if let (InboxKind::Landing, Some(lands)) = (inbox.kind, &mut action.lands)
                    && lands.confirm == LandConfirmation::Unread
                {
                    lands.confirm = LandConfirmation::Never;
                }
            }
        }
        if let Some(change_model) = self.model_action(inbox) {
            for action in &mut actions {
                action.first = false;
            }
            actions.insert(0, change_model);
        }
        actions
    }

    /// Returns the button that gives an agent another model, for an agent whose model its program
    /// does not offer. Regatta tries the agent again when its settings change.
    fn model_action(&self, inbox: &InboxView) -> Option<PageAction> {
        let cause = inbox.cause.as_ref()?;
        let agent = self.board.agents.get(inbox.agent.as_ref()?)?;
        // The settings of a derived agent are those of its base.
        if cause.class != CauseClass::Model || agent.derived_from.is_some() {
            return None;
        }
        let button = new_button(
            "Choose a model…",
            "agent.add",
            registration(agent),
            format!("regatta agent add {} … --model …", agent.name),
        );
        Some(button.with_text_at("/profile/model").default_choice())
    }

    /// Returns the size of the change that waits for a review; `None` for other items.
    fn change(&self, inbox: &InboxView, counted: &mut usize) -> Option<ChangeSummary> {
        let task = self
            .task(inbox)
            .filter(|_| inbox.kind == InboxKind::Review)?;
        let work = task.submission.as_ref()?;
        let repo = ProjectRepo::from_project(self.board.projects.get(&task.project)?);
        let lines = self.sizes.count(self.git, &repo, work, counted);
        Some(ChangeSummary {
            head: work.commit.clone(),
            files: work.changed.len(),
            added: lines.map(|lines| lines.added),
            removed: lines.map(|lines| lines.removed),
            guarded: landing::guarded_parts(self.board, task, work),
        })
    }
}

/// Returns the input of the verb `agent.add` that registers an agent again with its present
/// settings.
fn registration(agent: &Agent) -> Value {
    json!({
        "name": agent.name,
        "runtime": runtime_name(&agent.runtime),
        "command": agent.runtime.argv().unwrap_or_default(),
        "role": agent.role,
        "provider": agent.provider,
        "description": agent.description,
        "max_tasks": agent.max_tasks,
        "profile": agent.profile,
        "anyway": true,
    })
}

fn runtime_name(runtime: &Runtime) -> RuntimeName {
    match runtime {
        Runtime::Scripted => RuntimeName::Scripted,
        Runtime::Command { .. } => RuntimeName::Command,
        Runtime::Acp { .. } => RuntimeName::Acp,
        Runtime::Claude { .. } => RuntimeName::Claude,
        Runtime::Codex {
            app_server: false, ..
        } => RuntimeName::Codex,
        Runtime::Codex {
            app_server: true, ..
        } => RuntimeName::CodexServer,
        Runtime::Outside => RuntimeName::Outside,
    }
}

/// Returns the buttons of an inbox item.
fn inbox_actions(inbox: &InboxView) -> Vec<PageAction> {
    let id = &inbox.id;
    let hour = json!({ "id": id, "ms": 3_600_000 });
    let later = new_button(
        "Later: in 1 h",
        "inbox.snooze",
        hour,
        format!("regatta inbox snooze {id} 1h"),
    )
    .with_key('z');
    let mut all = answer_actions(inbox);
    // An item of the kind `request` asks for access for an unknown machine or person. Such an item
    // cannot be postponed, because no work waits for the answer.
    if inbox.kind != InboxKind::Request {
        all.push(later);
    }
    all
}

fn answer_actions(inbox: &InboxView) -> Vec<PageAction> {
    let id = &inbox.id;
    let answer = |say: Value, reach: &str| json!({ "id": id, "answer": say, "reach": reach });
    match inbox
        .ask
        .as_ref()
        .map(|agent_request| &agent_request.content)
    {
        Some(RequestContent::Permission { .. }) => {
            let allow = |label: &str, reach: &str| {
                let flag = if reach == "once" {
                    String::new()
                } else {
                    format!(" --for {reach}")
                };
                new_button(
                    label,
                    "inbox.answer",
                    answer(json!({ "say": "allow" }), reach),
                    format!("regatta allow {id}{flag}"),
                )
            };
            vec![
                allow("Allow once", "once").default_choice(),
                allow("Allow for this task", "task"),
                new_button(
                    "Deny",
                    "inbox.answer",
                    answer(json!({ "say": "deny", "words": null }), "once"),
                    format!("regatta deny {id}"),
                ),
                allow("Always allow", "always").irreversible(),
            ]
        }
        Some(RequestContent::Question {
            choices, schema, ..
        }) => {
            let say = |text: &str| answer(json!({ "say": "text", "text": text }), "once");
            let choice = |nth: usize, text: &String| {
                let cli = format!("regatta answer {id} {}", quote(text));
                let button = new_button(text, "inbox.answer", say(text), cli);
                if nth == 0 {
                    button.default_choice()
                } else {
                    button
                }
            };
            let mut all: Vec<PageAction> = choices
                .iter()
                .enumerate()
                .map(|(nth, text)| choice(nth, text))
                .collect();
            let form = schema
                .as_deref()
                .and_then(|schema| serde_json::from_str(schema).ok())
                .filter(|form: &serde_json::Value| form.is_object() && choices.is_empty());
            match form {
                Some(form) => {
                    let fill = new_button(
                        "Fill in…",
                        "inbox.answer",
                        say(""),
                        format!("regatta answer {id} '{{…}}'"),
                    );
                    all.push(PageAction {
                        form: Some(form),
                        ..fill.with_text_at("/answer/text").default_choice()
                    });
                    let decline = answer(json!({ "say": "deny", "words": null }), "once");
                    all.push(new_button(
                        "Decline",
                        "inbox.answer",
                        decline,
                        format!("regatta deny {id}"),
                    ));
                }
                None => {
                    let reply = new_button(
                        "Reply…",
                        "inbox.answer",
                        say(""),
                        format!("regatta answer {id} …"),
                    );
                    all.push(reply.with_text_at("/answer/text"));
                }
            }
            all
        }
        None => decision_actions(inbox),
    }
}

/// Returns the buttons of an inbox item that is not an agent's request, such as finished work to
/// review. Each button calls a different API verb. Before a person lands a change or stops a quiet
/// agent, the first button shows the change or the log.
fn decision_actions(inbox: &InboxView) -> Vec<PageAction> {
    let look = match (inbox.kind, inbox.task) {
        (InboxKind::Review, Some(task)) => Some(PageAction {
            to: Some(format!("/t/{task}?tab=change")),
            ..new_button(
                "Open the change",
                "diff",
                json!({ "id": task }),
                format!("regatta diff {task}"),
            )
        }),
        (InboxKind::Stuck, Some(task)) => Some(PageAction {
            to: Some(format!("/t/{task}?tab=log")),
            ..new_button(
                "Open the log",
                "show",
                json!({ "id": task }),
                format!("regatta logs {task}"),
            )
        }),
        _ => None,
    };
    let choices = inbox.ways.iter().map(|choice| choice_button(inbox, choice));
    let mut actions: Vec<PageAction> = look.into_iter().chain(choices).collect();
    if let Some(first) = actions.first_mut() {
        first.first = true;
    }
    actions
}

fn choice_button(inbox: &InboxView, choice: &InboxChoice) -> PageAction {
    let mut letters = choice.choice.chars();
    let label: String = match (inbox.kind, choice.choice.as_str()) {
        (InboxKind::Review, "revise") => "Send back".to_owned(),
        (InboxKind::Stuck, "wait") => "Wait 15 min".to_owned(),
        _ => letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect(),
    };
    let label = if choice.words.is_some() {
        label + "…"
    } else {
        label
    };
    let button = new_button(
        &label,
        &choice.verb,
        choice.input.clone(),
        choice.line.clone(),
    );
    PageAction {
        grave: choice.grave,
        words: choice.words.clone(),
        ..button
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page gets the commit that Land would land, and the project's setting for the question.
    #[test]
    fn land_names_its_commit_and_when_the_page_asks() {
        use regatta_core::command::{Actor, Command, Request, decide};
        use regatta_core::task::Submission;
        let add_project = json!({
            "name": "shop", "location": "/shop", "trunk": "main", "validation": ["true"],
            "validation_timeout_ms": 60_000, "settings": { "landing": { "confirm": "always" } },
        });
        let add_task = json!({ "project": "shop", "subject": "work" });
        let commands = [
            Command::AddProject(serde_json::from_value(add_project).unwrap()),
            Command::AddTask {
                task: serde_json::from_value(add_task).unwrap(),
                assign: None,
                how: Default::default(),
            },
        ];
        let board = commands
            .into_iter()
            .fold(Board::default(), |board, command| {
                let request = Request {
                    by: Actor::Regatta,
                    key: None,
                    command,
                };
                decide(&board, request, Default::default()).unwrap().board
            });
        let commit = |digit: &str| serde_json::from_value(json!(digit.repeat(40))).unwrap();
        let mut task = Task::clone(board.tasks.values().next().unwrap());
        let land = new_button(
            "Land",
            "land",
            json!({ "id": "T1" }),
            "regatta land T1".into(),
        );
        assert_eq!(with_landed_change(&board, &task, land.clone()).lands, None);
        task.submission = Some(Submission {
            attempt: "A1".parse().unwrap(),
            commit: commit("a"),
            base: commit("b"),
            changed: vec![],
            reverts: false,
            undoes: None,
            special: vec![],
        });
        let lands = with_landed_change(&board, &task, land).lands.unwrap();
        assert_eq!(
            (lands.task, lands.head.to_string(), lands.confirm),
            (task.id, "a".repeat(40), LandConfirmation::Always)
        );
    }

    /// Every button of an item calls an existing verb with an input that it accepts. The first
    /// button of a review opens the change, so that no first key lands unread work.
    #[test]
    fn the_first_button_of_a_review_opens_the_change_and_every_button_is_valid() {
        let tool = json!({ "id": "1", "title": "x", "kind": "execute", "status": "pending" });
        let permission = json!({ "want": "permission", "tool": tool, "options": [] });
        let question =
            json!({ "want": "question", "text": "keep?", "choices": ["keep", "410 Gone"] });
        let item_with = |want: &Value| {
            let mut ask = want.clone();
            ask["id"] = json!("1");
            InboxView {
                id: "Q7".into(),
                kind: InboxKind::Permission,
                task: "T3".parse().ok(),
                project: regatta_core::ids::ProjectName::new("shop").ok(),
                agent: None,
                subject: String::new(),
                why: String::new(),
                choices: vec![],
                ways: vec![],
                since_wall: 0,
                escalated: false,
                snoozed_until_wall: None,
                ask: Some(serde_json::from_value(ask).unwrap()),
                cause: None,
            }
        };
        let (item, question) = (item_with(&permission), item_with(&question));
        let inbox_choice = |choice: &str, verb: &str, input: Value| {
            let (choice, verb, line) = (
                choice.to_owned(),
                verb.to_owned(),
                format!("regatta {verb} T3"),
            );
            InboxChoice {
                choice,
                verb,
                input,
                words: None,
                line,
                grave: false,
            }
        };
        let revise = inbox_choice("revise", "revise", json!({ "id": "T3", "text": "" }));
        let revise = InboxChoice {
            words: Some("/text".into()),
            ..revise
        };
        let drop = InboxChoice {
            grave: true,
            ..inbox_choice("drop", "drop", json!({ "id": "T3" }))
        };
        let ways = vec![
            inbox_choice("land", "land", json!({ "id": "T3" })),
            revise,
            drop,
        ];
        let review = InboxView {
            kind: InboxKind::Review,
            ask: None,
            ways,
            ..item.clone()
        };
        let buttons = inbox_actions(&review);
        let labels: Vec<&str> = buttons.iter().map(|action| action.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "Open the change",
                "Land",
                "Send back…",
                "Drop",
                "Later: in 1 h"
            ]
        );
        let flags: Vec<_> = buttons
            .iter()
            .map(|action| (action.first, action.grave, action.to.is_some()))
            .collect();
        assert_eq!(
            flags[..4],
            [
                (true, false, true),
                (false, false, false),
                (false, false, false),
                (false, true, false)
            ]
        );
        let stuck = InboxView {
            kind: InboxKind::Stuck,
            ..review.clone()
        };
        assert_eq!(inbox_actions(&stuck)[0].label, "Open the log");
        let mut checked = 0;
        for mut action in [&item, &question, &review, &stuck]
            .into_iter()
            .flat_map(inbox_actions)
        {
            if let Some(pointer) = &action.words {
                *action
                    .input
                    .pointer_mut(pointer)
                    .expect("the text has a place") = json!("some words");
            }
            let input = serde_json::to_vec(&action.input).unwrap();
            let call = regatta_api::Call::parse(&action.verb, &input);
            assert!(call.is_ok(), "{}: {:?}", action.label, call.err());
            assert!(action.cli.starts_with("regatta "), "{}", action.cli);
            checked += 1;
        }
        assert!(checked >= 17, "{checked}");
    }
}
