//! Builds the actions (buttons) of the web page, each with the equivalent shell command.

use regatta_api::live_view::{ActionChoice, ChangeToLand, PageAction};
use regatta_api::team::MemberLiveView;
use regatta_core::board::Board;
use regatta_core::conversation::Conversation;
use regatta_core::display::{self, TaskAction};
use regatta_core::ids::{AgentName, MissionId, TaskId, TeamName};
use regatta_core::landing::Landing;
use regatta_core::launch::MemberActivity;
use regatta_core::mission::MissionState;
use regatta_core::plan_request;
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
        to: None,
        lands: None,
        choice: None,
    }
}

/// Adds to a button that lands a task's work the change that it lands, so that the page can ask
/// before an unread change lands.
pub(super) fn with_landed_change(board: &Board, task: &Task, action: PageAction) -> PageAction {
    let project = board.projects.get(&task.project);
    let lands = task.submission.as_ref().map(|work| ChangeToLand {
        task: task.id,
        head: work.commit.clone(),
        confirm: project.map_or_else(Default::default, |project| project.settings.landing.confirm),
    });
    PageAction { lands, ..action }
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
pub(super) trait ActionBuilder {
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

/// Returns the buttons for a task in its present state.
pub(super) fn task_actions(
    board: &Board,
    task: &Task,
    landing: Option<&Landing>,
) -> Vec<PageAction> {
    let button = |action| match (task_button(task.id, action), action) {
        (button, TaskAction::Land) => with_landed_change(board, task, button),
        (button, _) => button,
    };
    display::possible_actions(task, landing)
        .into_iter()
        .map(button)
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
/// only if the member should be running but is not. `has_failed` is true if the member did not start
/// in a launch that is up.
pub(super) fn member_actions(
    name: &TeamName,
    member_live: &MemberLiveView,
    has_failed: bool,
) -> Vec<PageAction> {
    let retry = || {
        let input = json!({ "team": name, "member": member_live.name });
        new_button(
            "Retry",
            "team.retry",
            input,
            format!("regatta team retry {name} {}", member_live.name),
        )
    };
    if has_failed || member_live.live == MemberActivity::Dead {
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
        let shop = regatta_core::ids::ProjectName::new("shop").unwrap();
        let ann = regatta_core::ids::AgentName::new("ann").unwrap();
        let all = [
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
            member_actions(&team_name, &dead, false),
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
        assert!(checked >= 8, "{checked}");
    }
}
