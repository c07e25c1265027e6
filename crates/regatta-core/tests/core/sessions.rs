//! Sessions of programs: rate limits, turns, timeouts, budgets, and the messages that people send
//! to them.

use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, RequestContent, StopReason, Usage,
};
use regatta_core::approval;
use regatta_core::attempt::{Attempt, AttemptCause, ProgramExit};
use regatta_core::budget::{BudgetScope, Ceiling};
use regatta_core::command::{Command, CommandOutcome, PlannedTask, Report};
use regatta_core::ids::TaskId;
use regatta_core::intervention::TellOutcome;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::schedule::{PollGrant, WaitKind, wait_reasons};
use regatta_core::task::{AddTask, AssignMode, Task, TaskStatus};
use regatta_core::task_timeline::{self, Activity};

use crate::world::{World, agent, exit_report, registration, shop, task_to_add};

/// Returns a world with an ACP agent of the provider `acme` and a task for it.
fn world_with_session_agent() -> World {
    let mut world = World::with_agents(&[]);
    let runtime = Runtime::Acp {
        argv: vec!["talks".into()],
    };
    let register = RegisterAgent {
        runtime,
        provider: Some("acme".into()),
        ..registration("ada", 1)
    };
    world.ask("ann", Command::RegisterAgent(register));
    world.add_for(task_to_add("a", &["a"]), Some("ada"), AssignMode::Queue);
    world
}

/// Reports the next output of a program.
fn report_event(world: &mut World, grant: &PollGrant, event: AgentEvent) {
    let n = world.board.attempts[&grant.attempt].session.last_record + 1;
    world.report(Report::AgentEvent {
        attempt: grant.attempt,
        token: grant.token,
        n,
        event,
    });
}

fn open_session(world: &mut World) -> PollGrant {
    let grant = world.take_supervised_task("ada");
    report_event(
        world,
        &grant,
        AgentEvent::Started {
            session: Some("s1".into()),
            model: None,
        },
    );
    report_event(world, &grant, AgentEvent::TurnStarted { n: 0 });
    grant
}

fn turn_ended(stop: StopReason, class: Option<FailureClass>) -> AgentEvent {
    AgentEvent::TurnEnded {
        stop,
        class,
        detail: String::new(),
    }
}

/// Runs into a rate limit that has no end time. Returns how many minutes the provider is parked.
fn reach_limit(world: &mut World) -> u64 {
    let grant = open_session(world);
    report_event(
        world,
        &grant,
        AgentEvent::Limited {
            deadline_unix_ms: None,
            detail: "too many requests".into(),
        },
    );
    report_event(
        world,
        &grant,
        turn_ended(StopReason::Error, Some(FailureClass::RateLimit)),
    );
    let how = ProgramExit::Failed {
        reason: "429".into(),
        class: Some(FailureClass::RateLimit),
    };
    world.report(exit_report(&grant, how));
    let until = world.board.parked["acme"]
        .deadline_fleet_ms
        .expect("the provider is parked until a time");
    assert_eq!(
        world.poll_supervised("ada"),
        None,
        "an attempt starts while its provider is parked"
    );
    (until - world.now.fleet_ms) / 60_000
}

/// The wait after a limit without an end time doubles each time until a turn succeeds, also across
/// restarts.
#[test]
fn a_rate_limit_without_an_end_time_backs_off() {
    let mut world = world_with_session_agent();
    let mut waits = vec![];
    for _ in 0..7 {
        waits.push(reach_limit(&mut world));
        world.restart();
        world.advance(waits.last().unwrap() * 60_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    // A turn that ends well.
    let grant = open_session(&mut world);
    report_event(&mut world, &grant, turn_ended(StopReason::EndTurn, None));
    assert!(world.board.parked.is_empty(), "the back-off is not reset");
    world.report(exit_report(&grant, ProgramExit::Lost));
    world.advance(60 * 60_000);
    assert_eq!(reach_limit(&mut world), 1);
}

/// A limit ends by itself, and a missing sign-in does not. So an agent without a provider that
/// reports both stays parked until a person resumes it.
#[test]
fn a_limit_does_not_replace_a_problem_that_a_person_must_fix() {
    let mut world = World::with_agents(&[("ada", 2)]);
    for file in ["a", "b"] {
        world.add_for(task_to_add(file, &[file]), Some("ada"), AssignMode::Queue);
    }
    let grants = [(); 2].map(|()| world.take_supervised_task("ada"));
    let classes = [FailureClass::Auth, FailureClass::RateLimit];
    for (grant, class) in grants.iter().zip(classes) {
        let how = ProgramExit::Failed {
            reason: "the service refused the request".into(),
            class: Some(class),
        };
        world.report(exit_report(grant, how));
    }
    let parked = &world.board.parked["agent:ada"];
    assert_eq!(
        (parked.class, parked.deadline_fleet_ms),
        (FailureClass::Auth, None)
    );
}

/// A person who resumes the agent resets the back-off, too.
#[test]
fn resuming_an_agent_resets_its_back_off() {
    let mut world = world_with_session_agent();
    assert_eq!(reach_limit(&mut world), 1);
    world.advance(60_000);
    assert_eq!(reach_limit(&mut world), 2);
    world.ask(
        "ann",
        Command::ResumeAgent {
            agent: crate::world::agent("ada"),
        },
    );
    assert_eq!(reach_limit(&mut world), 1);
}

/// The last turn of a budget of turns may end. The turn after it is stopped.
#[test]
fn a_budget_of_turns_lets_the_last_turn_end() {
    for (scope, cause) in [
        (BudgetScope::Attempt, AttemptCause::OverBudget),
        (BudgetScope::Day, AttemptCause::Parked),
    ] {
        let mut world = world_with_session_agent();
        let ceiling = Ceiling {
            turns: Some(2),
            ..Ceiling::default()
        };
        world.ask("ann", Command::SetBudget { scope, ceiling });
        let grant = open_session(&mut world);
        for words in ["and then", "and then again"] {
            world.ask(
                "ann",
                Command::Tell {
                    task: grant.task,
                    text: words.into(),
                },
            );
        }
        report_event(&mut world, &grant, turn_ended(StopReason::EndTurn, None));
        report_event(&mut world, &grant, AgentEvent::TurnStarted { n: 1 });
        let usage = Usage {
            output: 5,
            ..Usage::default()
        };
        report_event(
            &mut world,
            &grant,
            AgentEvent::Usage {
                session: Some("s1".into()),
                usage,
            },
        );
        assert_eq!(
            world.board.attempts[&grant.attempt].stopping, None,
            "the last turn of the budget was stopped"
        );
        report_event(&mut world, &grant, turn_ended(StopReason::EndTurn, None));
        report_event(&mut world, &grant, AgentEvent::TurnStarted { n: 2 });
        assert_eq!(world.board.attempts[&grant.attempt].stopping, Some(cause));
        world.report(exit_report(&grant, ProgramExit::Lost));
        assert!(world.wait_kinds(grant.task).contains(&WaitKind::Budget));
    }
}

/// A mission with a budget: at 80 % an item is in the inbox, at 100 % its running attempt is parked
/// and nothing more starts, and a higher ceiling lets its work go on.
#[test]
fn a_mission_has_a_budget_from_its_start() {
    let mut world = world_with_session_agent();
    let ceiling = |micro_usd| Ceiling {
        micro_usd: Some(micro_usd),
        ..Ceiling::default()
    };
    let mission = StartMission {
        project: shop(),
        title: "login".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 5,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: ceiling(5_000_000),
    };
    let other = world.ready_task("ada").unwrap();
    world.ask(
        "ann",
        Command::CancelTask {
            task: other,
            reason: "not now".into(),
        },
    );
    let tasks = ["b", "c"]
        .map(|subject| PlannedTask {
            task: task_to_add(subject, &[subject]),
            after: vec![],
            assign: None,
        })
        .to_vec();
    let CommandOutcome::Mission { mission, tasks } = world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    ) else {
        panic!("the mission did not start")
    };
    let scope = BudgetScope::Mission(mission);
    assert_eq!(
        world.board.budgets[&scope].ceiling,
        ceiling(5_000_000),
        "the budget is not set in the commit that starts the mission"
    );
    let grant = open_session(&mut world);
    let used = |money| Usage {
        micro_usd: Some(money),
        ..Usage::default()
    };
    let items = |world: &World| -> Vec<String> {
        regatta_core::inbox::open_items(&world.board, world.now)
            .iter()
            .map(|open_item| open_item.item.to_string())
            .collect()
    };
    report_event(
        &mut world,
        &grant,
        AgentEvent::Usage {
            session: Some("s1".into()),
            usage: used(3_900_000),
        },
    );
    assert!(items(&world).is_empty());
    report_event(
        &mut world,
        &grant,
        AgentEvent::Usage {
            session: Some("s1".into()),
            usage: used(4_100_000),
        },
    );
    assert_eq!(
        items(&world),
        [format!("budget:{mission}")],
        "the inbox has no item at 80 %"
    );
    report_event(
        &mut world,
        &grant,
        AgentEvent::Usage {
            session: Some("s1".into()),
            usage: used(5_000_000),
        },
    );
    assert_eq!(
        world.board.attempts[&grant.attempt].stopping,
        Some(AttemptCause::Parked)
    );
    world.report(exit_report(&grant, ProgramExit::Lost));
    assert_eq!(
        world.poll_supervised("ada"),
        None,
        "a task of the mission started without a budget"
    );
    assert!(
        tasks
            .iter()
            .all(|id| world.wait_kinds(*id).contains(&WaitKind::Budget))
    );
    world.ask(
        "ann",
        Command::SetBudget {
            scope,
            ceiling: ceiling(9_000_000),
        },
    );
    assert!(world.poll_supervised("ada").is_some());
}

/// The wait reason of a blocked task says what its blocker is doing or waiting for.
#[test]
fn a_wait_reason_describes_the_state_of_the_blocker() {
    let says_of = |world: &World| -> String {
        let task = world
            .board
            .tasks
            .values()
            .find(|task| task.subject == "after")
            .cloned()
            .unwrap();
        let reasons = wait_reasons(&world.board, &task, world.now);
        let text = reasons
            .into_iter()
            .find(|wait_reason| wait_reason.kind == WaitKind::Dependency)
            .map(|wait_reason| wait_reason.text)
            .unwrap_or_default();
        text.split("which ").nth(1).unwrap_or_default().to_owned()
    };
    let begun = || {
        let mut world = world_with_session_agent();
        let first = world.ready_task("ada").unwrap();
        let after = AddTask {
            blocked_by: vec![first],
            ..task_to_add("after", &["z"])
        };
        world.add_for(after, None, AssignMode::Queue);
        assert_eq!(says_of(&world), "is waiting");
        world
    };
    let mut world = begun();
    let grant = open_session(&mut world);
    assert_eq!(says_of(&world), "is working");
    let want = RequestContent::Question {
        text: "Which?".into(),
        choices: vec![],
        schema: None,
    };
    report_event(
        &mut world,
        &grant,
        AgentEvent::RequestMade(AgentRequest {
            id: "1".into(),
            content: want,
        }),
    );
    assert_eq!(says_of(&world), "needs you (Q1)");
    // An attempt that is being stopped waits for nothing, even if its question is still open.
    let open = |world: &World| {
        approval::open_request_of(&world.board, &world.board.attempts[&grant.attempt])
            .map(|approval| approval.id)
    };
    let doing = |world: &World| {
        task_timeline::current_activity(&world.board, &world.board.tasks[&grant.task], world.now).0
    };
    assert_eq!(
        (open(&world).is_some(), doing(&world)),
        (true, Activity::Waiting(WaitKind::Question))
    );
    let stopping = Attempt {
        stopping: Some(AttemptCause::Stopped),
        ..Attempt::clone(&world.board.attempts[&grant.attempt])
    };
    world.board.attempts.insert(grant.attempt, stopping.into());
    assert_eq!((open(&world), doing(&world)), (None, Activity::Working));
    assert_eq!(says_of(&world), "is being stopped");

    let mut world = begun();
    let grant = open_session(&mut world);
    report_event(&mut world, &grant, turn_ended(StopReason::EndTurn, None));
    world.report(exit_report(&grant, ProgramExit::Done { output: None }));
    assert_eq!(says_of(&world), "is being checked");
    let set = |world: &mut World, status: TaskStatus| {
        let task = Task {
            status,
            attempt: None,
            ..Task::clone(&world.board.tasks[&grant.task])
        };
        world.board.tasks.insert(grant.task, task.into());
    };
    for (status, wanted) in [
        (TaskStatus::InReview, "is in review, and needs you"),
        (TaskStatus::NeedsHuman, "needs you"),
        (TaskStatus::Landing, "is landing"),
        (TaskStatus::Failed, "has failed"),
    ] {
        set(&mut world, status);
        assert_eq!(says_of(&world), wanted);
    }

    let mut world = begun();
    reach_limit(&mut world);
    assert!(
        says_of(&world).starts_with("waits because acme is rate-limited for "),
        "{}",
        says_of(&world)
    );
    let mut freed = begun();
    reach_limit(&mut freed);
    freed.ask(
        "ann",
        Command::ResumeAgent {
            agent: crate::world::agent("acme"),
        },
    );
    assert!(
        !says_of(&freed).contains("rate-limited"),
        "resuming a provider by its name did not end the limit: {}",
        says_of(&freed)
    );
    world.ask(
        "ann",
        Command::PauseTask {
            task: TaskId(1),
            reason: "later".into(),
        },
    );
    assert_eq!(says_of(&world), "is paused: later");

    let mut world = World::with_agents(&[("ada", 2)]);
    world.add_for(task_to_add("first", &["a"]), Some("ada"), AssignMode::Queue);
    let after = AddTask {
        blocked_by: vec![TaskId(1)],
        ..task_to_add("after", &["z"])
    };
    world.add_for(after, None, AssignMode::Queue);
    let grant = world.poll("ada").unwrap();
    world.ask(
        "ann",
        Command::HoldQueue {
            project: shop(),
            reason: "a demo".into(),
        },
    );
    world.submit(&grant);
    assert_eq!(says_of(&world), "is number 1 in the landing queue");
}

/// A message that no agent received is in the brief of the next attempt, once. A message that was
/// received is not.
#[test]
fn a_message_that_no_agent_received_goes_to_the_next_attempt() {
    let mut world = world_with_session_agent();
    let tell = |world: &mut World, task, text: &str| match world.ask(
        "ann",
        Command::Tell {
            task,
            text: text.into(),
        },
    ) {
        CommandOutcome::Tell(heard) => heard,
        other => panic!("{other:?}"),
    };
    let task = world.ready_task("ada").unwrap();
    assert_eq!(
        tell(&mut world, task, "before it began"),
        TellOutcome::NextAttempt
    );
    let grant = open_session(&mut world);
    assert_eq!(
        world.board.attempts[&grant.attempt].notes,
        ["before it began"]
    );
    assert!(
        world.task(task).notes.is_empty(),
        "the notes were not passed to the attempt"
    );
    for text in ["heard", "unheard"] {
        assert_eq!(
            tell(&mut world, task, text),
            TellOutcome::RunningSession(grant.attempt)
        );
    }
    report_event(&mut world, &grant, turn_ended(StopReason::EndTurn, None));
    report_event(&mut world, &grant, AgentEvent::TurnStarted { n: 1 });
    // The next attempt continues the same session, which has received the first message.
    world.report(exit_report(&grant, ProgramExit::Lost));
    assert_eq!(world.task(task).notes, ["unheard"]);
    world.advance(60 * 60_000);
    let again = world.take_supervised_task("ada");
    assert_eq!(world.board.attempts[&again.attempt].notes, ["unheard"]);
    // This attempt never opened a session, so its notes are given to the next one.
    world.report(exit_report(
        &again,
        ProgramExit::NotRun {
            reason: "no such program".into(),
            fault: None,
        },
    ));
    assert_eq!(world.task(task).notes, ["unheard"]);
}

/// The time in which an attempt waits for a person does not count against its timeout. Its working
/// time does.
#[test]
fn waiting_for_a_person_does_not_count_against_the_timeout() {
    let mut world = world_with_session_agent();
    let grant = open_session(&mut world);
    let timeout = world.board.limits.attempt_timeout_ms;
    let want = RequestContent::Question {
        text: "which one?".into(),
        choices: vec![],
        schema: None,
    };
    report_event(
        &mut world,
        &grant,
        AgentEvent::RequestMade(AgentRequest {
            id: "q1".into(),
            content: want,
        }),
    );
    world.advance(3 * timeout);
    let attempt = world.board.attempts[&grant.attempt].clone();
    assert_eq!(
        attempt.stopping, None,
        "the attempt was stopped while it waited for a person"
    );
    assert!(attempt.deadline_fleet_ms.unwrap() > world.now.fleet_ms);
    assert!(world.count("attempt.extended") >= 2);
    report_event(
        &mut world,
        &grant,
        AgentEvent::RequestWithdrawn {
            request: "q1".into(),
        },
    );
    world.advance(timeout);
    assert_eq!(
        world.board.attempts[&grant.attempt].stopping,
        Some(AttemptCause::TimedOut)
    );
    assert_ne!(world.status(grant.task), TaskStatus::InProgress);
}

/// A task that was parked by the day's budget goes on when a new day begins.
#[test]
fn work_parked_by_a_days_budget_continues_on_the_next_day() {
    let mut world = world_with_session_agent();
    world.ask(
        "ann",
        Command::SetBudget {
            scope: BudgetScope::Day,
            ceiling: Ceiling {
                tokens: Some(100),
                ..Ceiling::default()
            },
        },
    );
    let grant = open_session(&mut world);
    let usage = Usage {
        output: 120,
        ..Usage::default()
    };
    report_event(
        &mut world,
        &grant,
        AgentEvent::Usage {
            session: Some("s1".into()),
            usage,
        },
    );
    assert_eq!(
        world.board.attempts[&grant.attempt].stopping,
        Some(AttemptCause::Parked)
    );
    world.report(exit_report(&grant, ProgramExit::Lost));
    assert_eq!(world.poll_supervised("ada"), None);
    world.advance(86_400_000);
    let again = world.take_supervised_task("ada");
    assert_eq!(
        (again.task, world.board.attempts[&again.attempt].workspace()),
        (grant.task, grant.attempt)
    );
}
