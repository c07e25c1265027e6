//! Actions: the buttons of the page, each with its shell command.

use regatta_api::page::{Action, Choice};
use regatta_api::team::LiveView;
use regatta_api::view::{InboxView, Way};
use regatta_core::board::Board;
use regatta_core::conversation::Conversation;
use regatta_core::ids::{AgentName, TeamName};
use regatta_core::landing::Landing;
use regatta_core::launch::Live;
use regatta_core::planning;
use regatta_core::session::Want;
use regatta_core::shell::quoted;
use regatta_core::task::{Status, Task};
use serde_json::{Value, json};

/// Returns a button.
fn act(label: &str, verb: &str, input: Value, cli: String) -> Action {
    Action {
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

impl Do for Action {
    fn first(self) -> Action {
        Action { first: true, ..self }
    }
    fn grave(self) -> Action {
        Action { grave: true, ..self }
    }
    fn key(self, key: char) -> Action {
        Action { key: Some(key), ..self }
    }
    fn words(self, pointer: &str) -> Action {
        Action { words: Some(pointer.into()), ..self }
    }
}

/// Builder methods for buttons.
trait Do {
    fn first(self) -> Action;
    fn grave(self) -> Action;
    fn key(self, key: char) -> Action;
    fn words(self, pointer: &str) -> Action;
}

/// Returns the actions on an inbox item.
pub(super) fn item(it: &InboxView) -> Vec<Action> {
    let id = &it.id;
    let hour = json!({ "id": id, "ms": 3_600_000 });
    let later = act("Later: in 1 h", "inbox.snooze", hour, format!("regatta inbox snooze {id} 1h")).key('z');
    let mut all = answers(it);
    // The request of a stranger is answered or stays. No work waits for it.
    if it.kind != "request" {
        all.push(later);
    }
    all
}

fn answers(it: &InboxView) -> Vec<Action> {
    let id = &it.id;
    let answer = |say: Value, reach: &str| json!({ "id": id, "answer": say, "reach": reach });
    match it.ask.as_ref().map(|it| &it.want) {
        Some(Want::Permission { .. }) => {
            let allow = |label: &str, reach: &str| {
                let cli = if reach == "once" { String::new() } else { format!(" --for {reach}") };
                act(label, "inbox.answer", answer(json!({ "say": "allow" }), reach), format!("regatta allow {id}{cli}"))
            };
            vec![
                allow("Allow once", "once").first(),
                allow("Allow for this task", "task"),
                act(
                    "Deny",
                    "inbox.answer",
                    answer(json!({ "say": "deny", "words": null }), "once"),
                    format!("regatta deny {id}"),
                ),
                allow("Always allow", "always").grave(),
            ]
        }
        Some(Want::Question { choices, schema, .. }) => {
            let say = |text: &str| answer(json!({ "say": "text", "text": text }), "once");
            let choice = |nth: usize, text: &String| {
                let line = format!("regatta answer {id} {}", quoted(text));
                let made = act(text, "inbox.answer", say(text), line);
                if nth == 0 { made.first() } else { made }
            };
            let mut all: Vec<Action> = choices.iter().enumerate().map(|(nth, it)| choice(nth, it)).collect();
            let form = schema.as_deref().and_then(|it| serde_json::from_str(it).ok()).filter(|_| choices.is_empty());
            match form {
                Some(form) => {
                    let fill = act("Fill in…", "inbox.answer", say(""), format!("regatta answer {id} '{{…}}'"));
                    all.push(Action { form: Some(form), ..fill.words("/answer/text").first() });
                    let no = answer(json!({ "say": "deny", "words": null }), "once");
                    all.push(act("Decline", "inbox.answer", no, format!("regatta deny {id}")));
                }
                None => {
                    let reply = act("Reply…", "inbox.answer", say(""), format!("regatta answer {id} …"));
                    all.push(reply.words("/answer/text"));
                }
            }
            all
        }
        None => decisions(it),
    }
}

/// Returns the actions on an item that is not an agent's request. Each choice is a verb of its own.
fn decisions(it: &InboxView) -> Vec<Action> {
    let button = |nth: usize, way: &Way| {
        let mut letters = way.choice.chars();
        let label: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        let label = if way.words.is_some() { label + "…" } else { label };
        let made = act(&label, &way.verb, way.input.clone(), way.line.clone());
        Action { first: nth == 0, grave: way.grave, words: way.words.clone(), ..made }
    };
    it.ways.iter().enumerate().map(|(nth, way)| button(nth, way)).collect()
}

/// Returns the actions on a task in its present state.
pub(super) fn task(it: &Task, landing: Option<&Landing>) -> Vec<Action> {
    let id = it.id;
    let said = || json!({ "id": id, "text": "" });
    let mut all = Vec::new();
    match it.status {
        Status::InReview => {
            all.push(act("Land", "land", json!({ "id": id }), format!("regatta land {id}")).first().key('L'));
            all.push(act("Revise…", "revise", said(), format!("regatta revise {id} …")).words("/text").key('R'));
            all.push(act("Drop", "drop", said(), format!("regatta drop {id}")).grave().key('X'));
        }
        Status::Landing if landing.is_some_and(|it| it.end.is_none()) => {
            let first = json!({ "id": id, "first": true });
            all.push(act("Land first", "land", first, format!("regatta land {id} --first")).key('L'));
            all.push(act("Revise…", "revise", said(), format!("regatta revise {id} …")).words("/text").key('R'));
            all.push(act("Drop", "drop", said(), format!("regatta drop {id}")).grave().key('X'));
        }
        Status::NeedsHuman | Status::Failed | Status::Cancelled => {
            all.push(act("Retry", "retry", json!({ "id": id }), format!("regatta retry {id}")).first().key('L'));
        }
        Status::Completed if it.landed.is_some() => {
            all.push(act("Undo", "undo", json!({ "id": id }), format!("regatta undo {id}")).grave());
        }
        _ => {}
    }
    let open = !matches!(it.status, Status::Completed | Status::Failed | Status::Cancelled);
    if it.attempt.is_some() {
        all.push(act("Tell…", "tell", said(), format!("regatta tell {id} …")).words("/text").key('R'));
    }
    if open && it.paused.is_some() {
        all.push(act("Resume", "resume", json!({ "id": id }), format!("regatta resume {id}")));
    } else if it.attempt.is_some() || it.status.is_waiting() {
        all.push(act("Pause", "pause", said(), format!("regatta pause {id}")));
    }
    if open && !matches!(it.status, Status::InReview | Status::Landing) {
        all.push(
            act("Cancel", "task.cancel", json!({ "task": id }), format!("regatta task cancel {id}")).grave().key('X'),
        );
    }
    all
}

/// Returns the choice of a planner; nothing if there is at most one agent to choose.
pub(crate) fn who_plans(board: &Board, now: Option<&AgentName>) -> Option<Choice> {
    let of: Vec<String> = planning::planners(board).map(ToString::to_string).collect();
    let now = now.map(ToString::to_string).filter(|it| of.contains(it));
    let choice = Choice { label: "Who plans".into(), to: "/planner".into(), flag: "--planner".into(), of, now };
    (choice.of.len() > 1).then_some(choice)
}

/// Returns the actions for a text to the whole team: a plan if an agent can make one, a mission if
/// an agent can lead it, and a task in the backlog.
pub(super) fn composers(board: &Board, leads: bool) -> Vec<Action> {
    let mut all = Vec::new();
    if planning::planners(board).next().is_some() {
        let plan = act("Plan", "plan.ask", json!({ "goal": "" }), "regatta run …".into()).words("/goal");
        all.push(Action { choice: who_plans(board, None), ..plan });
    }
    if leads {
        let ask = act("Ask the lead", "mission.ask", json!({ "goal": "" }), "regatta mission start …".into());
        all.push(ask.words("/goal"));
    }
    let add = act("Add", "task.add", json!({ "subject": "", "backlog": true }), "regatta add … --backlog".into());
    all.push(add.words("/subject"));
    all
}

/// Returns the actions on a queue.
pub(super) fn queue(project: &regatta_core::ids::ProjectName, held: bool) -> Vec<Action> {
    let scope = json!({ "project": project });
    if held {
        return vec![act("Release", "queue.release", scope, "regatta queue release".into()).first()];
    }
    let hold = act("Hold…", "queue.hold", json!({ "project": project, "reason": "" }), "regatta queue hold …".into());
    vec![hold.words("/reason")]
}

/// Returns the actions on a team.
pub(super) fn team(name: &TeamName, up: bool) -> Vec<Action> {
    let of = json!({ "team": name });
    if up {
        return vec![
            act("Relaunch", "team.relaunch", of.clone(), format!("regatta team relaunch {name}")).grave(),
            act("Stop", "team.stop", of, format!("regatta team stop {name}")).grave(),
        ];
    }
    vec![act("Launch", "team.launch", of, format!("regatta team launch {name}")).first()]
}

/// Returns the actions on a member of a team. Only a lane that has died can be retried.
pub(super) fn member(name: &TeamName, it: &LiveView) -> Vec<Action> {
    let retry = || {
        let input = json!({ "team": name, "member": it.name });
        act("Retry", "team.retry", input, format!("regatta team retry {name} {}", it.name))
    };
    if it.live == Live::Dead { vec![retry()] } else { vec![] }
}

/// Returns the actions on a conversation in an outside service.
pub(super) fn conversation(it: &Conversation) -> Vec<Action> {
    let (id, of) = (it.id, json!({ "conversation": it.id }));
    let mut all = Vec::new();
    if !it.held.is_empty() {
        let accept = format!("regatta bridge accept {id}");
        all.push(act("Accept", "conversation.accept", of.clone(), accept).first());
        all.push(act("Refuse", "conversation.refuse", of.clone(), format!("regatta bridge refuse {id}")));
    }
    if it.working().is_some() {
        all.push(act("Stop", "conversation.stop", of.clone(), format!("regatta bridge stop {id}")));
    }
    if !it.closed {
        all.push(act("Close", "conversation.close", of, format!("regatta bridge close {id}")).grave());
    }
    all
}

/// Returns the actions on an agent. A team's session is restarted and stopped with its team.
pub(super) fn agent(name: &regatta_core::ids::AgentName, held: bool, works: Option<bool>) -> Vec<Action> {
    let mut all = Vec::new();
    if held {
        all.push(act("Resume", "resume", json!({ "id": name }), format!("regatta resume {name}")).first());
    }
    if works.is_some() {
        let tell = act("Tell…", "tell", json!({ "id": name, "text": "" }), format!("regatta tell {name} …"));
        all.push(tell.words("/text"));
        all.push(act("Pause", "pause", json!({ "id": name, "text": "" }), format!("regatta pause {name}")));
    }
    if works == Some(false) {
        let again = json!({ "id": name, "again": true });
        all.push(act("Restart", "stop", again, format!("regatta stop {name} --again")).grave());
        all.push(act("Stop", "stop", json!({ "id": name }), format!("regatta stop {name}")).grave());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a board with two agents that can plan, and an outside agent.
    fn planners() -> Board {
        use regatta_core::agent::{Register, Role, Runtime};
        use regatta_core::command::{Actor, Command, Request, decide};
        let runtimes = [("ann", Runtime::Scripted), ("bob", Runtime::Scripted), ("eve", Runtime::Outside)];
        runtimes.into_iter().fold(Board::default(), |board, (name, runtime)| {
            let ask = Register {
                name: AgentName::new(name).unwrap(),
                runtime,
                role: Role::Worker,
                provider: None,
                profile: Default::default(),
                description: String::new(),
                max_tasks: 1,
            };
            let request = Request { by: Actor::Regatta, key: None, command: Command::RegisterAgent(ask) };
            decide(&board, &request, Default::default()).unwrap().board
        })
    }

    /// The planner can be chosen if there are several. Without a choice, the previous planner plans
    /// again.
    #[test]
    fn planner_can_be_chosen_if_there_are_several() {
        let (board, ann, eve) = (planners(), AgentName::new("ann").unwrap(), AgentName::new("eve").unwrap());
        let all = who_plans(&board, Some(&ann)).unwrap();
        assert_eq!((all.of, all.now.as_deref()), (vec!["ann".to_owned(), "bob".into()], Some("ann")));
        assert_eq!(who_plans(&board, Some(&eve)).unwrap().now, None, "an outside agent cannot plan");
        assert_eq!(who_plans(&Board::default(), None), None);
        assert!(composers(&Board::default(), false).iter().all(|it| it.verb != "plan.ask"));
    }

    /// Every button calls an existing verb with an input that it accepts. A button that needs a
    /// text has a place for it.
    #[test]
    fn every_button_calls_a_verb_with_a_valid_input() {
        let tool = json!({ "id": "1", "title": "x", "kind": "execute", "status": "pending" });
        let permission = json!({ "want": "permission", "tool": tool, "options": [] });
        let question = json!({ "want": "question", "text": "keep?", "choices": ["keep", "410 Gone"] });
        let asks = |want: &Value| {
            let mut ask = want.clone();
            ask["id"] = json!("1");
            InboxView {
                id: "Q7".into(),
                kind: "permission".into(),
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
        let (item, question) = (asks(&permission), asks(&question));
        let way = |choice: &str, verb: &str, input: Value| {
            let (choice, verb, line) = (choice.to_owned(), verb.to_owned(), format!("regatta {verb} T3"));
            Way { choice, verb, input, words: None, line, grave: false }
        };
        let revise = way("revise", "revise", json!({ "id": "T3", "text": "" }));
        let revise = Way { words: Some("/text".into()), ..revise };
        let drop = Way { grave: true, ..way("drop", "drop", json!({ "id": "T3" })) };
        let ways = vec![way("land", "land", json!({ "id": "T3" })), revise, drop];
        let review = InboxView { kind: "review".into(), ask: None, ways, ..item.clone() };
        let drawn = super::item(&review);
        let labels: Vec<&str> = drawn.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, ["Land", "Revise…", "Drop", "Later: in 1 h"]);
        assert_eq!(
            drawn.iter().map(|it| (it.first, it.grave)).collect::<Vec<_>>()[..3],
            [(true, false), (false, false), (false, true)]
        );
        let shop = regatta_core::ids::ProjectName::new("shop").unwrap();
        let ann = regatta_core::ids::AgentName::new("ann").unwrap();
        let all =
            [super::item(&item), super::item(&question), super::item(&review), queue(&shop, true), queue(&shop, false)];
        let all = all.into_iter().flatten().chain(agent(&ann, true, Some(false))).chain(composers(&planners(), true));
        let crew = TeamName::new("core").unwrap();
        let dead =
            LiveView { name: "tom".parse().unwrap(), live: Live::Dead, session: None, tasks: vec![], silent_ms: None };
        let teams = [team(&crew, true), team(&crew, false), member(&crew, &dead)];
        let all = all.chain(teams.into_iter().flatten());
        let mut seen = 0;
        for mut it in all {
            if let Some(pointer) = &it.words {
                *it.input.pointer_mut(pointer).expect("the text has a place") = json!("some words");
            }
            if let Some(choice) = &it.choice {
                it.input[choice.to.trim_start_matches('/')] = json!(choice.of[0]);
            }
            let input = serde_json::to_vec(&it.input).unwrap();
            let call = regatta_api::Call::parse(&it.verb, &input);
            assert!(call.is_ok(), "{}: {:?}", it.label, call.err());
            assert!(it.cli.starts_with("regatta "), "{}", it.cli);
            seen += 1;
        }
        assert!(seen >= 17, "{seen}");
    }
}
