//! The inbox: every kind of item, found from the board alone, and snoozing items for a limited
//! time.

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, RequestAnswer, RequestContent, ToolCall, ToolKind,
    Usage,
};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::ProgramExit;
use regatta_core::board::Board;
use regatta_core::budget::{BudgetScope, Ceiling};
use regatta_core::command::{Command, Report};
use regatta_core::ids::{ApprovalId, Now, TaskId};
use regatta_core::inbox::{self, InboxItem, InboxKind, MAX_SNOOZE_MS, OpenItem, Snooze};
use regatta_core::landing::MoveOutcome;
use regatta_core::project::ReviewPolicy;
use regatta_core::refusal::Refusal;
use regatta_core::task::TaskStatus;

use crate::world::{SECOND_MS, World, agent, exit_report, passed_verdict};

const Q1: InboxItem = InboxItem::Approval(ApprovalId(1));

/// Returns a world in which an agent has asked a question.
fn world_with_question() -> World {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.poll("ada").unwrap();
    let want = RequestContent::Question {
        text: "Which?".into(),
        choices: vec![],
        schema: None,
    };
    let request = AgentRequest {
        id: "1".into(),
        content: want,
    };
    world.ask(
        "ada",
        Command::Ask {
            task,
            attempt: grant.attempt,
            token: grant.token,
            request,
        },
    );
    world
}

fn is_snoozed(world: &World) -> bool {
    world.board.approvals[&ApprovalId(1)].snoozed.is_some()
}

#[test]
fn a_snoozed_item_comes_back_by_itself_and_undecided() {
    let mut world = world_with_question();
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(60 * SECOND_MS),
        },
    );
    assert!(is_snoozed(&world));
    let until = Snooze {
        deadline_fleet_ms: world.now.fleet_ms + 60 * SECOND_MS,
        deadline_unix_ms: world.now.unix_ms + 60 * SECOND_MS,
    };
    assert_eq!(
        world.board.approvals[&ApprovalId(1)].snoozed,
        Some(until),
        "the end is kept as a date and on the fleet clock"
    );
    world.advance(59 * SECOND_MS);
    assert!(is_snoozed(&world), "the snooze ended too early");
    world.advance(SECOND_MS);
    assert!(!is_snoozed(&world), "the snooze did not end");
    assert!(
        world.board.approvals[&ApprovalId(1)].is_open(),
        "the snooze decided the request"
    );
    // A new snooze replaces the old one, whether it is longer, shorter or an end.
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(3_600 * SECOND_MS),
        },
    );
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(2 * SECOND_MS),
        },
    );
    world.advance(2 * SECOND_MS);
    assert!(!is_snoozed(&world));
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(3_600 * SECOND_MS),
        },
    );
    world.restart();
    assert!(is_snoozed(&world), "a restart ended the snooze");
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert!(!is_snoozed(&world));
    let before = world.log.len();
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert_eq!(
        world.log.len(),
        before,
        "ending a snooze twice changed something"
    );
}

#[test]
fn only_open_items_can_be_snoozed_and_only_for_a_limited_time() {
    let mut world = world_with_question();
    for ms in [0, 999, MAX_SNOOZE_MS + 1, u64::MAX] {
        assert!(
            matches!(
                world.ask_refused(
                    "ann",
                    Command::Snooze {
                        item: Q1,
                        ms: Some(ms)
                    }
                ),
                Refusal::Invalid { .. }
            ),
            "{ms}"
        );
    }
    let nothing = InboxItem::Approval(ApprovalId(9));
    world.ask_refused(
        "ann",
        Command::Snooze {
            item: nothing,
            ms: Some(SECOND_MS),
        },
    );
    let task = world.board.tasks.keys().next().copied().unwrap();
    world.ask_refused(
        "ann",
        Command::Snooze {
            item: InboxItem::Task(task),
            ms: Some(SECOND_MS),
        },
    );
    // An answer ends the snooze.
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(60 * SECOND_MS),
        },
    );
    let answer = RequestAnswer::Text {
        text: "this".into(),
    };
    world.ask(
        "ann",
        Command::Decide {
            approval: ApprovalId(1),
            answer,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );
    let late = world.ask_refused(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(SECOND_MS),
        },
    );
    assert!(matches!(late, Refusal::AlreadyAnswered { .. }), "{late:?}");
    world.advance(120 * SECOND_MS);
}

/// A task that needs a person can be snoozed, too. The snooze ends when the task moves on.
#[test]
fn a_snooze_of_a_task_ends_when_the_task_moves_on() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    for _ in 0..3 {
        let grant = world.poll_supervised("ada").unwrap();
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        world.report_verdict(&grant, passed_verdict(&[]));
        world.advance(3_600 * SECOND_MS);
    }
    let Some(item) = world
        .board
        .tasks
        .get(&task)
        .filter(|task| task.status == TaskStatus::NeedsHuman)
        .cloned()
    else {
        panic!(
            "the task does not need a person: {:?}",
            world.board.tasks.get(&task)
        )
    };
    world.ask(
        "ann",
        Command::Snooze {
            item: InboxItem::Task(task),
            ms: Some(60 * SECOND_MS),
        },
    );
    let put_off = world.board.tasks[&task].clone();
    assert!(put_off.snoozed.is_some());
    assert_eq!(
        put_off.updated_unix_ms, item.updated_unix_ms,
        "the snooze changed since when the task needs a person"
    );
    world.ask("ann", Command::RetryTask { task, failed: None });
    assert_eq!(
        world.board.tasks[&task].snoozed, None,
        "the task no longer needs a person"
    );
    world.advance(120 * SECOND_MS);
}

/// Returns the items that are in the inbox now.
fn open_inbox(world: &World) -> Vec<OpenItem> {
    inbox::open_items(&world.board, world.now)
}

fn report_event(
    world: &mut World,
    grant: &regatta_core::schedule::PollGrant,
    n: u64,
    event: AgentEvent,
) {
    let (attempt, token) = (grant.attempt, grant.token);
    world.report(Report::AgentEvent {
        attempt,
        token,
        n,
        event,
    });
}

/// A kind of item, its name, a function that creates the item, and a function that removes it.
type Case = (InboxKind, &'static str, fn(&mut World), fn(&mut World));

fn take_task(world: &mut World) -> regatta_core::schedule::PollGrant {
    world.add_task("work", &["src/a.rs"]);
    world.poll_supervised("ada").unwrap()
}

fn cases() -> Vec<Case> {
    fn silent(world: &mut World, since_ms: Option<u64>) {
        let attempt = world.board.attempts.values().next().unwrap().clone();
        world.report(Report::Silent {
            attempt: attempt.id,
            token: attempt.token,
            since_ms,
        });
    }
    fn permission(world: &mut World) {
        let grant = take_task(world);
        let tool = ToolCall {
            kind: ToolKind::Execute,
            command: Some("npm install zod".into()),
            ..ToolCall::default()
        };
        report_event(
            world,
            &grant,
            1,
            AgentEvent::RequestMade(AgentRequest {
                id: "1".into(),
                content: RequestContent::Permission {
                    tool,
                    options: vec![],
                },
            }),
        );
    }
    fn answer(world: &mut World) {
        let answer = RequestAnswer::Allow;
        world.ask(
            "ann",
            Command::Decide {
                approval: ApprovalId(1),
                answer,
                scope: AnswerScope::Once,
                also: vec![],
            },
        );
    }
    fn question(world: &mut World) {
        let grant = take_task(world);
        let want = RequestContent::Question {
            text: "Which?".into(),
            choices: vec![],
            schema: None,
        };
        report_event(
            world,
            &grant,
            1,
            AgentEvent::RequestMade(AgentRequest {
                id: "1".into(),
                content: want,
            }),
        );
    }
    fn send_answer(world: &mut World) {
        let answer = RequestAnswer::Text {
            text: "this".into(),
        };
        world.ask(
            "ann",
            Command::Decide {
                approval: ApprovalId(1),
                answer,
                scope: AnswerScope::Once,
                also: vec![],
            },
        );
    }
    fn review(world: &mut World) {
        let mut shop = world.project("shop", &["cargo test"]);
        shop.settings.landing.review = ReviewPolicy::Human;
        world.ask("ann", Command::AddProject(shop));
        let grant = take_task(world);
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        world.report_verdict(&grant, passed_verdict(&["src/a.rs"]));
    }
    fn land(world: &mut World) {
        let task = *world.board.tasks.keys().next().unwrap();
        world.ask("ann", Command::Land { task, first: false });
    }
    fn exhaust_attempts(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        for _ in 0..3 {
            let grant = world.poll_supervised("ada").unwrap();
            world.report(exit_report(&grant, ProgramExit::Done { output: None }));
            world.report_verdict(&grant, passed_verdict(&[]));
            world.advance(3_600 * SECOND_MS);
        }
    }
    fn retry(world: &mut World) {
        let task = *world.board.tasks.keys().next().unwrap();
        world.ask("ann", Command::RetryTask { task, failed: None });
    }
    fn block_by_checkout(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        let grant = world.take_task("ada");
        let landing = world.submit(&grant);
        world.pass_trial(landing);
        world.report_move(
            landing,
            MoveOutcome::Dirty {
                paths: vec!["src/a.rs".into()],
            },
        );
    }
    fn clean_checkout(world: &mut World) {
        let landing = *world.board.landings.keys().next().unwrap();
        land(world);
        world.move_and_land(landing);
    }
    fn fail_task(world: &mut World) {
        world.add_task("work", &["src/a.rs"]);
        for _ in 0..3 {
            let grant = world.take_task("ada");
            world.fail_once(&grant);
            world.advance(3_600 * SECOND_MS);
        }
    }
    fn retry_failed(world: &mut World) {
        let task = *world.board.failed.keys().next().unwrap();
        let failed = Some(Box::new(world.stored_task(task)));
        world.ask("ann", Command::RetryTask { task, failed });
    }
    fn dismiss_failed(world: &mut World) {
        let task = *world.board.failed.keys().next().unwrap();
        world.ask("ann", Command::Dismiss { task });
        assert_eq!(
            world.board.ended_status(task),
            Some(TaskStatus::Failed),
            "J7: the task does not stay failed"
        );
        let before = world.log.len();
        world.ask("ann", Command::Dismiss { task });
        assert_eq!(
            world.log.len(),
            before,
            "dismissing twice changed something"
        );
    }
    fn fall_silent(world: &mut World) {
        take_task(world);
        let half = world.board.limits.silence_ms / 2;
        silent(world, Some(half - 1));
        assert!(open_inbox(world).is_empty(), "a short silence is an item");
        silent(world, Some(half));
    }
    fn speak_again(world: &mut World) {
        silent(world, None);
    }
    fn hang(world: &mut World) {
        let most = world.board.limits.silence_ms;
        silent(world, Some(most));
    }
    fn spend_budget(world: &mut World) {
        let ceiling = Ceiling {
            micro_usd: Some(1_000_000),
            ..Ceiling::default()
        };
        world.ask(
            "ann",
            Command::SetBudget {
                scope: BudgetScope::Day,
                ceiling,
            },
        );
        let grant = take_task(world);
        report_event(
            world,
            &grant,
            1,
            AgentEvent::Started {
                session: None,
                model: None,
            },
        );
        let used = |money| Usage {
            micro_usd: Some(money),
            ..Usage::default()
        };
        report_event(
            world,
            &grant,
            2,
            AgentEvent::Usage {
                session: None,
                usage: used(799_999),
            },
        );
        assert!(open_inbox(world).is_empty(), "less than 80 % is an item");
        report_event(
            world,
            &grant,
            3,
            AgentEvent::Usage {
                session: None,
                usage: used(800_000),
            },
        );
    }
    fn raise_budget(world: &mut World) {
        let ceiling = Ceiling {
            micro_usd: Some(2_000_000),
            ..Ceiling::default()
        };
        world.ask(
            "ann",
            Command::SetBudget {
                scope: BudgetScope::Day,
                ceiling,
            },
        );
    }
    fn sign_out(world: &mut World) {
        let grant = take_task(world);
        let how = ProgramExit::Failed {
            reason: "please run login".into(),
            class: Some(FailureClass::Auth),
        };
        world.report(exit_report(&grant, how));
    }
    fn break_configuration(world: &mut World) {
        let grant = take_task(world);
        let how = ProgramExit::Failed {
            reason: "no such model".into(),
            class: Some(FailureClass::BadConfig),
        };
        world.report(exit_report(&grant, how));
    }
    fn repair_agent(world: &mut World) {
        world.ask(
            "ann",
            Command::ResumeAgent {
                agent: crate::world::agent("ada"),
            },
        );
    }
    vec![
        (InboxKind::Permission, "Q1", permission, answer),
        (InboxKind::Question, "Q1", question, send_answer),
        (InboxKind::Review, "T1", review, land),
        (InboxKind::Task, "T1", exhaust_attempts, retry),
        (InboxKind::Landing, "T1", block_by_checkout, clean_checkout),
        (InboxKind::Failed, "T1", fail_task, retry_failed),
        (InboxKind::Failed, "T1", fail_task, dismiss_failed),
        (InboxKind::Stuck, "A1", fall_silent, speak_again),
        (InboxKind::Stuck, "A1", fall_silent, hang),
        (InboxKind::Budget, "budget:day", spend_budget, raise_budget),
        (InboxKind::Credential, "agent:ada", sign_out, repair_agent),
        (
            InboxKind::Settings,
            "agent:ada",
            break_configuration,
            repair_agent,
        ),
    ]
}

/// Each kind of item appears once, under its own name, with agent, subject and reason. It survives
/// a restart, comes back after a snooze, and disappears when its cause is gone.
#[test]
fn each_matter_that_needs_a_person_is_one_inbox_item() {
    for (kind, name, begin, end) in cases() {
        let mut world = World::with_agents(&[("ada", 1)]);
        begin(&mut world);
        let all = open_inbox(&world);
        let [open_item] = &all[..] else {
            panic!("{kind:?}: expected one item, found {all:?}")
        };
        assert_eq!(
            (open_item.kind, open_item.item.to_string().as_str()),
            (kind, name)
        );
        assert_eq!(
            name.parse::<InboxItem>().unwrap(),
            open_item.item,
            "the name is not read as the item"
        );
        assert!(
            !open_item.subject.trim().is_empty() && !open_item.why.trim().is_empty(),
            "{kind:?}: {open_item:?}"
        );
        assert!(
            open_item.agent.is_some() || open_item.kind == InboxKind::Budget,
            "{kind:?}: no agent: {open_item:?}"
        );
        assert!(
            open_item.since_unix_ms > 0 || world.now.unix_ms == 0,
            "{kind:?}: no time"
        );
        world.restart();
        assert_eq!(
            open_inbox(&world),
            all,
            "{kind:?}: a restart changed the inbox"
        );
        world.ask(
            "ann",
            Command::Snooze {
                item: open_item.item.clone(),
                ms: Some(2 * SECOND_MS),
            },
        );
        assert!(
            open_inbox(&world)
                .iter()
                .all(|open_item| open_item.snoozed.is_some()),
            "{kind:?}: the item is not snoozed"
        );
        world.restart();
        assert!(
            open_inbox(&world)
                .iter()
                .all(|open_item| open_item.snoozed.is_some()),
            "{kind:?}: a restart ended the snooze"
        );
        world.advance(2 * SECOND_MS);
        assert_eq!(
            open_inbox(&world),
            all,
            "{kind:?}: the item did not come back unchanged"
        );
        end(&mut world);
        assert_eq!(
            open_inbox(&world),
            [],
            "{kind:?}: the item did not disappear"
        );
        if kind != InboxKind::Budget {
            world.ask_refused(
                "ann",
                Command::Snooze {
                    item: open_item.item.clone(),
                    ms: Some(SECOND_MS),
                },
            );
        }
        world.restart();
        assert_eq!(
            open_inbox(&world),
            [],
            "{kind:?}: the item came back after a restart"
        );
    }
}

/// An agent in a rate limit waits until the limit ends. It needs no person and is not a credential
/// problem.
#[test]
fn a_rate_limit_is_not_in_the_inbox() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let grant = take_task(&mut world);
    world.report(exit_report(
        &grant,
        ProgramExit::Failed {
            reason: "429".into(),
            class: Some(FailureClass::RateLimit),
        },
    ));
    let parked = |world: &World| {
        world
            .board
            .parked
            .get("agent:ada")
            .map(|outage| (outage.deadline_fleet_ms.is_some(), outage.has_resumed))
    };
    assert_eq!(
        parked(&world),
        Some((true, false)),
        "the agent is not parked until a time"
    );
    assert_eq!(open_inbox(&world), []);
    world.advance(60 * SECOND_MS);
    assert!(
        parked(&world).is_none_or(|(_, has_resumed)| has_resumed),
        "the agent is still parked"
    );
    assert_eq!(open_inbox(&world), []);
}

/// An item's name is read in the form in which it is written. Numbers may have a letter in any
/// case.
#[test]
fn the_name_of_an_item_can_be_read_back() {
    for text in [
        "Q7",
        "T9",
        "A5",
        "V3",
        "budget:day",
        "budget:task",
        "budget:M3",
        "budget:agent:ada",
        "agent:a/b",
        "bridge:slack:a/b",
    ] {
        assert_eq!(text.parse::<InboxItem>().unwrap().to_string(), text);
    }
    assert_eq!(
        "q7".parse::<InboxItem>().unwrap(),
        InboxItem::Approval(ApprovalId(7))
    );
    for text in ["", "X1", "budget:", "budget:never", "agent:", "T", "A-1"] {
        assert!(text.parse::<InboxItem>().is_err(), "{text:?}");
    }
}

/// Checks the inbox: every item has its own name that can be read back, and every task that needs a
/// person is in it.
pub(crate) fn check_inbox(board: &Board, now: Now) {
    let all = inbox::open_items(board, now);
    let mut names: Vec<String> = all
        .iter()
        .map(|open_item| open_item.item.to_string())
        .collect();
    assert!(
        all.iter()
            .zip(&names)
            .all(|(open_item, name)| name.parse().ok().as_ref() == Some(&open_item.item)),
        "{names:?}"
    );
    names.sort_unstable();
    let many = names.len();
    names.dedup();
    assert_eq!(names.len(), many, "two items have the same name: {names:?}");
    let there = |id: TaskId| names.binary_search(&id.to_string()).is_ok();
    for task in board.tasks.values() {
        let needs = matches!(task.status, TaskStatus::NeedsHuman | TaskStatus::InReview);
        let asks = regatta_core::approval::question_blocking_work(board, task);
        let is_told = there(task.id)
            || asks.is_some_and(|asked| names.binary_search(&asked.id.to_string()).is_ok());
        assert!(
            !needs || is_told,
            "{} needs a person and is not in the inbox",
            task.id
        );
    }
    for task in board.failed.values() {
        assert_eq!(
            board.ended_status(task.id),
            Some(TaskStatus::Failed),
            "{} is kept as failed and has not failed",
            task.id
        );
    }
}

/// The item that waits longest is first, and snoozed items are last however long they wait.
#[test]
fn snoozed_items_are_last() {
    let mut world = World::with_agents(&[("ada", 3)]);
    for nth in 1..=3 {
        world.add_task("work", &[&format!("src/{nth}.rs")]);
        let grant = world.poll_supervised("ada").unwrap();
        let want = RequestContent::Question {
            text: "Which?".into(),
            choices: vec![],
            schema: None,
        };
        report_event(
            &mut world,
            &grant,
            1,
            AgentEvent::RequestMade(AgentRequest {
                id: "1".into(),
                content: want,
            }),
        );
        world.advance(SECOND_MS);
    }
    let names = |world: &World| {
        open_inbox(world)
            .iter()
            .map(|open_item| open_item.item.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&world), ["Q1", "Q2", "Q3"]);
    world.ask(
        "ann",
        Command::Snooze {
            item: Q1,
            ms: Some(60 * SECOND_MS),
        },
    );
    assert_eq!(names(&world), ["Q2", "Q3", "Q1"]);
}

/// A landing that waits for a person is one item from its first hindrance on. It stays an item
/// while it is tried again, and its reason says so. Its snooze lasts, too.
#[test]
fn a_held_landing_is_one_item_while_it_is_tried_again() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.take_task("ada");
    let landing = world.submit(&grant);
    let dirty = |world: &mut World| {
        world.pass_trial(landing);
        world.report_move(
            landing,
            MoveOutcome::Dirty {
                paths: vec!["src/a.rs".into()],
            },
        );
    };
    let only = |world: &World| {
        let all = open_inbox(world);
        assert_eq!(all.len(), 1, "{all:?}");
        (
            all[0].item.clone(),
            all[0].kind,
            all[0].why.clone(),
            all[0].since_unix_ms,
        )
    };
    world.pass_trial(landing);
    assert!(
        open_inbox(&world).is_empty(),
        "a landing without a hindrance is an item"
    );
    world.report_move(
        landing,
        MoveOutcome::Dirty {
            paths: vec!["src/a.rs".into()],
        },
    );
    let (item, kind, why, since) = only(&world);
    assert_eq!((&item, kind), (&InboxItem::Task(task), InboxKind::Landing));
    for wait in [5, 10, 20] {
        world.advance(wait * SECOND_MS);
        assert_eq!(world.landing_state(landing), "trying");
        let again = format!("it is being tried again; it was held: {why}");
        assert_eq!(only(&world), (item.clone(), kind, again, since));
        dirty(&mut world);
        assert_eq!(only(&world), (item.clone(), kind, why.clone(), since));
    }
    assert_eq!(
        world.board.landings[&landing]
            .hold_count
            .as_ref()
            .map(|hold_count| hold_count.times),
        Some(4)
    );
    world.ask(
        "ann",
        Command::Snooze {
            item: item.clone(),
            ms: Some(3_600 * SECOND_MS),
        },
    );
    world.ask("ann", Command::Land { task, first: false });
    assert!(
        open_inbox(&world)[0].snoozed.is_some(),
        "a new trial ended the snooze"
    );
    // A row of an older version has no record of the hindrance.
    let mut row = serde_json::to_value(&*world.board.landings[&landing]).unwrap();
    row.as_object_mut().unwrap().remove("hindered");
    assert_eq!(
        serde_json::from_value::<regatta_core::landing::Landing>(row)
            .unwrap()
            .hold_count,
        None
    );
    world.move_and_land(landing);
    assert!(open_inbox(&world).is_empty());
}

/// A bridge whose credential is rejected is one item in the inbox until the credential works. The
/// daemon reports at its start which bridges still exist.
#[test]
fn a_bridge_with_a_rejected_credential_needs_a_person() {
    use regatta_core::bridge_health::{Bridge, BridgeHealth};
    let mut world = World::with_agents(&[("ada", 1)]);
    let standing = |name: &str, broken: Option<&str>| BridgeHealth {
        bridge: name.parse::<Bridge>().unwrap(),
        problem: broken.map(str::to_owned),
    };
    let report = |world: &mut World, name: &str, broken: Option<&str>| {
        world.report(Report::Bridge(standing(name, broken)));
    };
    let items = |world: &World| -> Vec<(String, InboxKind)> {
        let mut all: Vec<_> = inbox::open_items(&world.board, world.now)
            .into_iter()
            .map(|open_item| (open_item.item.to_string(), open_item.kind))
            .collect();
        all.sort();
        all
    };
    report(&mut world, "slack:ada", None);
    assert_eq!(
        world.count("provider.freed"),
        0,
        "a working bridge was reported as repaired"
    );
    for why in ["invalid_auth", "invalid_auth", "token_revoked\nand more"] {
        report(&mut world, "slack:ada", Some(why));
    }
    assert_eq!(
        world.count("provider.parked"),
        2,
        "the same reason was recorded twice"
    );
    report(&mut world, "github:eve", Some("no key"));
    let (slack, github) = (
        "bridge:slack:ada".to_owned(),
        "bridge:github:eve".to_owned(),
    );
    assert_eq!(
        items(&world),
        [
            (github, InboxKind::Credential),
            (slack.clone(), InboxKind::Credential)
        ]
    );
    let first = inbox::open_items(&world.board, world.now)
        .into_iter()
        .find(|open_item| open_item.item.to_string() == slack)
        .unwrap();
    assert_eq!(
        (first.subject.as_str(), first.agent),
        (
            "the slack credential of ada does not work: token_revoked",
            Some(agent("ada"))
        )
    );
    // The rejected credential does not keep the agent from working on tasks.
    let task = world.add_task("Work", &["a.rs"]);
    assert_eq!(world.ready_task("ada"), Some(task));
    // A snoozed item stays snoozed when its reason changes, and comes back by itself.
    let item: InboxItem = slack.parse().unwrap();
    assert_eq!(item.to_string(), slack);
    world.ask(
        "ann",
        Command::Snooze {
            item: item.clone(),
            ms: Some(60 * SECOND_MS),
        },
    );
    report(&mut world, "slack:ada", Some("account_inactive"));
    assert!(
        inbox::open_items(&world.board, world.now)
            .iter()
            .any(|open_item| open_item.item == item && open_item.snoozed.is_some())
    );
    world.advance(61 * SECOND_MS);
    assert!(
        inbox::open_items(&world.board, world.now)
            .iter()
            .all(|open_item| open_item.snoozed.is_none())
    );
    assert!(
        world.reloaded().parked.len() == 2,
        "a restart lost a parked bridge"
    );
    // The daemon starts. One bridge is no longer configured, and another keeps its state until its
    // service has answered.
    let all = vec![
        standing("slack:ada", None),
        standing("linear:ada", Some("no token")),
    ];
    world.report(Report::AllBridges { all });
    let names: Vec<String> = items(&world)
        .into_iter()
        .map(|item| item.0)
        .filter(|item| item.starts_with("bridge:"))
        .collect();
    assert_eq!(names, ["bridge:linear:ada".to_owned(), slack]);
    report(&mut world, "slack:ada", None);
    world.report(Report::AllBridges { all: vec![] });
    assert!(items(&world).is_empty(), "{:?}", items(&world));
    world.ask_refused(
        "ann",
        Command::Snooze {
            item,
            ms: Some(SECOND_MS),
        },
    );
    // A webhook without its secret is an item until a daemon starts with the secret.
    let hook = "webhook:hooks.example.com:8443";
    world.report(Report::AllBridges {
        all: vec![standing(hook, Some("HOOK is not set"))],
    });
    assert_eq!(
        items(&world),
        [(format!("bridge:{hook}"), InboxKind::Credential)]
    );
    let open = inbox::open_items(&world.board, world.now);
    assert_eq!(
        open[0].subject,
        "hooks.example.com:8443 receives no events: HOOK is not set"
    );
    assert_eq!(
        (open[0].agent.clone(), open[0].item.to_string().parse()),
        (None, Ok(open[0].item.clone()))
    );
    // Of two webhooks at one host, the one without its secret counts, in either order.
    for all in [
        [Some("TWO is not set"), None],
        [None, Some("TWO is not set")],
    ] {
        world.report(Report::AllBridges {
            all: all.map(|item| standing(hook, item)).to_vec(),
        });
        let subjects: Vec<String> = inbox::open_items(&world.board, world.now)
            .into_iter()
            .map(|open_item| open_item.subject)
            .collect();
        assert_eq!(
            subjects,
            ["hooks.example.com:8443 receives no events: TWO is not set"]
        );
    }
    world.report(Report::AllBridges {
        all: vec![standing(hook, None)],
    });
    assert!(items(&world).is_empty(), "the item did not disappear");
    for wrong in [
        "bridge:webhook:",
        "bridge:",
        "bridge:slack",
        "bridge:slack:",
        "bridge:irc:ada",
    ] {
        assert!(wrong.parse::<InboxItem>().is_err(), "{wrong}");
    }
}
