//! Builds the actions (buttons) of the web page, each with the equivalent shell command.

use regatta_api::live_view::{ActionChoice, PageAction};
use regatta_api::team::MemberLiveView;
use regatta_api::view::{InboxChoice, InboxView};
use regatta_core::agent_protocol::RequestContent;
use regatta_core::board::Board;
use regatta_core::conversation::Conversation;
use regatta_core::display::{self, TaskAction};
use regatta_core::ids::{AgentName, MissionId, TaskId, TeamName};
use regatta_core::inbox::InboxKind;
use regatta_core::landing::Landing;
use regatta_core::launch::MemberActivity;
use regatta_core::mission::MissionState;
use regatta_core::plan_request;
use regatta_core::shell_quote::quote;
use regatta_core::task::Task;
use serde_json::{Value, json};

/// Returns a button that calls the API verb `verb` with `input`. `cli` is the equivalent shell
/// command.
pub(crate) fn new_button(label: &str, verb: &str, input: Value, cli: String) -> PageAction {
    PageAction {
        label: label.into(),
        verb: verb.into(),
        input,
        cli,
        first: false,
        grave: false,
        key: None,
        words: None,
        form: None,
        choice: None,
    }
}

impl ActionBuilder for PageAction {
    fn default_choice(self) -> PageAction {
        PageAction {
            first: true,
            ..self
        }
    }
    fn irreversible(self) -> PageAction {
        PageAction {
            grave: true,
            ..self
        }
    }
    fn with_key(self, key: char) -> PageAction {
        PageAction {
            key: Some(key),
            ..self
        }
    }
    fn with_text_at(self, pointer: &str) -> PageAction {
        PageAction {
            words: Some(pointer.into()),
            ..self
        }
    }
}

/// Methods that set the options of a button.
trait ActionBuilder {
    fn default_choice(self) -> PageAction;
    fn irreversible(self) -> PageAction;
    fn with_key(self, key: char) -> PageAction;
    fn with_text_at(self, pointer: &str) -> PageAction;
}

/// Returns the buttons of a running mission.
pub(super) fn mission_actions(id: MissionId, state: MissionState) -> Vec<PageAction> {
    let pause = new_button(
        "Pause",
        "stop",
        json!({ "id": id, "drain": true }),
        format!("regatta mission pause {id}"),
    );
    let resume = new_button(
        "Resume",
        "resume",
        json!({ "id": id }),
        format!("regatta mission resume {id}"),
    )
    .default_choice();
    let stop = new_button(
        "Stop all agents",
        "stop",
        json!({ "id": id }),
        format!("regatta stop {id}"),
    )
    .irreversible();
    let cancel = new_button(
        "Cancel mission…",
        "mission.cancel",
        json!({ "id": id, "text": "" }),
        format!("regatta mission cancel {id} --because …"),
    )
    .irreversible()
    .with_text_at("/text");
    match state {
        MissionState::Active => vec![pause, stop, cancel],
        MissionState::Draining => vec![resume, stop, cancel],
        MissionState::Queued => vec![cancel],
    }
}

/// Returns the buttons of an inbox item.
pub(super) fn inbox_actions(inbox: &InboxView) -> Vec<PageAction> {
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
/// review. Each button calls a different API verb.
fn decision_actions(inbox: &InboxView) -> Vec<PageAction> {
    let button = |nth: usize, choice: &InboxChoice| {
        let mut letters = choice.choice.chars();
        let label: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect();
        let label = if choice.words.is_some() {
            label + "…"
        } else {
            label
        };
        let new_action = new_button(
            &label,
            &choice.verb,
            choice.input.clone(),
            choice.line.clone(),
        );
        PageAction {
            first: nth == 0,
            grave: choice.grave,
            words: choice.words.clone(),
            ..new_action
        }
    };
    inbox
        .ways
        .iter()
        .enumerate()
        .map(|(nth, choice)| button(nth, choice))
        .collect()
}

/// Returns the buttons for a task in its present state.
pub(super) fn task_actions(task: &Task, landing: Option<&Landing>) -> Vec<PageAction> {
    display::possible_actions(task, landing)
        .into_iter()
        .map(|action| task_button(task.id, action))
        .collect()
}

/// Returns the button for an action on a task.
fn task_button(id: TaskId, action: TaskAction) -> PageAction {
    let with_id = || json!({ "id": id });
    let with_text = || json!({ "id": id, "text": "" });
    match action {
        TaskAction::Land => new_button("Land", "land", with_id(), format!("regatta land {id}"))
            .default_choice()
            .with_key('L'),
        TaskAction::LandFirst => {
            let first = json!({ "id": id, "first": true });
            let cli = format!("regatta land {id} --first");
            new_button("Land first", "land", first, cli).with_key('L')
        }
        TaskAction::Revise => {
            let cli = format!("regatta revise {id} …");
            new_button("Revise…", "revise", with_text(), cli)
                .with_text_at("/text")
                .with_key('R')
        }
        TaskAction::Drop => new_button("Drop", "drop", with_text(), format!("regatta drop {id}"))
            .irreversible()
            .with_key('X'),
        TaskAction::Retry => new_button("Retry", "retry", with_id(), format!("regatta retry {id}"))
            .default_choice()
            .with_key('L'),
        TaskAction::Undo => {
            new_button("Undo", "undo", with_id(), format!("regatta undo {id}")).irreversible()
        }
        TaskAction::Tell => {
            new_button("Tell…", "tell", with_text(), format!("regatta tell {id} …"))
                .with_text_at("/text")
                .with_key('R')
        }
        TaskAction::Resume => new_button(
            "Resume",
            "resume",
            with_id(),
            format!("regatta resume {id}"),
        ),
        TaskAction::Pause => {
            new_button("Pause", "pause", with_text(), format!("regatta pause {id}"))
        }
        TaskAction::Cancel => {
            let input = json!({ "task": id });
            let cli = format!("regatta task cancel {id}");
            new_button("Cancel", "task.cancel", input, cli)
                .irreversible()
                .with_key('X')
        }
    }
}

/// Returns the menu in which a person chooses the agent that makes a plan. The agent `now` is
/// selected. Returns `None` if there is at most one such agent.
pub(crate) fn planner_choice(board: &Board, now: Option<&AgentName>) -> Option<ActionChoice> {
    let names: Vec<String> = plan_request::planners(board)
        .map(ToString::to_string)
        .collect();
    let now = now
        .map(ToString::to_string)
        .filter(|now| names.contains(now));
    let choice = ActionChoice {
        label: "Who plans".into(),
        to: "/planner".into(),
        flag: "--planner".into(),
        of: names,
        now,
    };
    (choice.of.len() > 1).then_some(choice)
}

/// Returns the buttons below the field in which a person describes new work. The buttons make a
/// plan, start a mission, or add a task to the backlog. The first needs an agent that can plan, and
/// the second needs an agent that can lead missions.
pub(super) fn composers(board: &Board, leads: bool) -> Vec<PageAction> {
    let mut all = Vec::new();
    if plan_request::planners(board).next().is_some() {
        let plan = new_button(
            "Plan",
            "plan.ask",
            json!({ "goal": "" }),
            "regatta run …".into(),
        )
        .with_text_at("/goal");
        all.push(PageAction {
            choice: planner_choice(board, None),
            ..plan
        });
    }
    if leads {
        let ask = new_button(
            "Ask the lead",
            "mission.ask",
            json!({ "goal": "" }),
            "regatta mission start …".into(),
        );
        all.push(ask.with_text_at("/goal"));
    }
    let add = new_button(
        "Add",
        "task.add",
        json!({ "subject": "", "backlog": true }),
        "regatta add … --backlog".into(),
    );
    all.push(add.with_text_at("/subject"));
    all
}

/// Returns the buttons for a project's landing queue.
pub(super) fn queue_actions(
    project: &regatta_core::ids::ProjectName,
    held: bool,
) -> Vec<PageAction> {
    let scope = json!({ "project": project });
    if held {
        return vec![
            new_button(
                "Release",
                "queue.release",
                scope,
                "regatta queue release".into(),
            )
            .default_choice(),
        ];
    }
    let hold = new_button(
        "Hold…",
        "queue.hold",
        json!({ "project": project, "reason": "" }),
        "regatta queue hold …".into(),
    );
    vec![hold.with_text_at("/reason")]
}

/// Returns the buttons for a team.
pub(super) fn team_actions(name: &TeamName, up: bool) -> Vec<PageAction> {
    let input = json!({ "team": name });
    if up {
        return vec![
            new_button(
                "Relaunch",
                "team.relaunch",
                input.clone(),
                format!("regatta team relaunch {name}"),
            )
            .irreversible(),
            new_button(
                "Stop",
                "team.stop",
                input,
                format!("regatta team stop {name}"),
            )
            .irreversible(),
        ];
    }
    vec![
        new_button(
            "Launch",
            "team.launch",
            input,
            format!("regatta team launch {name}"),
        )
        .default_choice(),
    ]
}

/// Returns the buttons for a member of a team. The button that starts the member again is shown
/// only if the member should be running but is not.
pub(super) fn member_actions(name: &TeamName, member_live: &MemberLiveView) -> Vec<PageAction> {
    let retry = || {
        let input = json!({ "team": name, "member": member_live.name });
        new_button(
            "Retry",
            "team.retry",
            input,
            format!("regatta team retry {name} {}", member_live.name),
        )
    };
    if member_live.live == MemberActivity::Dead {
        vec![retry()]
    } else {
        vec![]
    }
}

/// Returns the buttons for a conversation in a chat service.
pub(super) fn conversation_actions(conversation: &Conversation) -> Vec<PageAction> {
    let id = conversation.id;
    let input = json!({ "conversation": id });
    let mut actions = Vec::new();
    if !conversation.held.is_empty() {
        let accept = format!("regatta bridge accept {id}");
        actions.push(
            new_button("Accept", "conversation.accept", input.clone(), accept).default_choice(),
        );
        actions.push(new_button(
            "Refuse",
            "conversation.refuse",
            input.clone(),
            format!("regatta bridge refuse {id}"),
        ));
    }
    if conversation.current_turn().is_some() {
        actions.push(new_button(
            "Stop",
            "conversation.stop",
            input.clone(),
            format!("regatta bridge stop {id}"),
        ));
    }
    if !conversation.closed {
        actions.push(
            new_button(
                "Close",
                "conversation.close",
                input,
                format!("regatta bridge close {id}"),
            )
            .irreversible(),
        );
    }
    actions
}

/// Returns the buttons for an agent. For a member of a team, the buttons to restart and to stop are
/// left out, because the whole team is started and stopped together.
pub(super) fn agent_actions(
    name: &regatta_core::ids::AgentName,
    is_held: bool,
    works: Option<bool>,
) -> Vec<PageAction> {
    let mut actions = Vec::new();
    if is_held {
        actions.push(
            new_button(
                "Resume",
                "resume",
                json!({ "id": name }),
                format!("regatta resume {name}"),
            )
            .default_choice(),
        );
    }
    if works.is_some() {
        let tell = new_button(
            "Tell…",
            "tell",
            json!({ "id": name, "text": "" }),
            format!("regatta tell {name} …"),
        );
        actions.push(tell.with_text_at("/text"));
        actions.push(new_button(
            "Pause",
            "pause",
            json!({ "id": name, "text": "" }),
            format!("regatta pause {name}"),
        ));
    }
    if works == Some(false) {
        let restart_input = json!({ "id": name, "again": true });
        actions.push(
            new_button(
                "Restart",
                "stop",
                restart_input,
                format!("regatta stop {name} --again"),
            )
            .irreversible(),
        );
        actions.push(
            new_button(
                "Stop",
                "stop",
                json!({ "id": name }),
                format!("regatta stop {name}"),
            )
            .irreversible(),
        );
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a board with two agents that can plan, and an outside agent.
    fn board_with_planners() -> Board {
        use regatta_core::agent::{RegisterAgent, Role, Runtime};
        use regatta_core::command::{Actor, Command, Request, decide};
        let runtimes = [
            ("ann", Runtime::Scripted),
            ("bob", Runtime::Scripted),
            ("eve", Runtime::Outside),
        ];
        runtimes
            .into_iter()
            .fold(Board::default(), |board, (name, runtime)| {
                let ask = RegisterAgent {
                    name: AgentName::new(name).unwrap(),
                    runtime,
                    role: Role::Worker,
                    provider: None,
                    profile: Default::default(),
                    description: String::new(),
                    max_tasks: 1,
                };
                let request = Request {
                    by: Actor::Regatta,
                    key: None,
                    command: Command::RegisterAgent(ask),
                };
                decide(&board, request, Default::default()).unwrap().board
            })
    }

    /// The planner can be chosen if there are several. Without a choice, the previous planner plans
    /// again.
    #[test]
    fn planner_can_be_chosen_if_there_are_several() {
        let (board, ann, eve) = (
            board_with_planners(),
            AgentName::new("ann").unwrap(),
            AgentName::new("eve").unwrap(),
        );
        let all = planner_choice(&board, Some(&ann)).unwrap();
        assert_eq!(
            (all.of, all.now.as_deref()),
            (vec!["ann".to_owned(), "bob".into()], Some("ann"))
        );
        assert_eq!(
            planner_choice(&board, Some(&eve)).unwrap().now,
            None,
            "an outside agent cannot plan"
        );
        assert_eq!(planner_choice(&Board::default(), None), None);
        assert!(
            composers(&Board::default(), false)
                .iter()
                .all(|page_action| page_action.verb != "plan.ask")
        );
    }

    /// Every button calls an existing verb with an input that it accepts. A button that needs a
    /// text has a place for it.
    #[test]
    fn every_button_calls_a_verb_with_a_valid_input() {
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
        let buttons = super::inbox_actions(&review);
        let labels: Vec<&str> = buttons.iter().map(|action| action.label.as_str()).collect();
        assert_eq!(labels, ["Land", "Revise…", "Drop", "Later: in 1 h"]);
        assert_eq!(
            buttons
                .iter()
                .map(|action| (action.first, action.grave))
                .collect::<Vec<_>>()[..3],
            [(true, false), (false, false), (false, true)]
        );
        let shop = regatta_core::ids::ProjectName::new("shop").unwrap();
        let ann = regatta_core::ids::AgentName::new("ann").unwrap();
        let all = [
            super::inbox_actions(&item),
            super::inbox_actions(&question),
            super::inbox_actions(&review),
            queue_actions(&shop, true),
            queue_actions(&shop, false),
            mission_actions(MissionId(3), MissionState::Active),
            mission_actions(MissionId(3), MissionState::Draining),
        ];
        let all = all
            .into_iter()
            .flatten()
            .chain(agent_actions(&ann, true, Some(false)))
            .chain(composers(&board_with_planners(), true));
        let team_name = TeamName::new("core").unwrap();
        let dead = MemberLiveView {
            name: "tom".parse().unwrap(),
            live: MemberActivity::Dead,
            session: None,
            tasks: vec![],
            silent_ms: None,
        };
        let teams = [
            team_actions(&team_name, true),
            team_actions(&team_name, false),
            member_actions(&team_name, &dead),
        ];
        let all = all.chain(teams.into_iter().flatten());
        let mut checked = 0;
        for mut action in all {
            if let Some(pointer) = &action.words {
                *action
                    .input
                    .pointer_mut(pointer)
                    .expect("the text has a place") = json!("some words");
            }
            if let Some(choice) = &action.choice {
                action.input[choice.to.trim_start_matches('/')] = json!(choice.of[0]);
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
