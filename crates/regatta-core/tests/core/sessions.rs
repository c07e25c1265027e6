//! Sessions of programs: rate limits, turns, timeouts, budgets, and the messages that people send
//! to them.

use regatta_core::agent::{Register, Runtime};
use regatta_core::approval;
use regatta_core::attempt::{Attempt, Cause, Exited};
use regatta_core::budget::{Ceiling, Scope};
use regatta_core::command::{Command, Outcome, PlannedTask};
use regatta_core::ids::TaskId;
use regatta_core::life::{self, Doing};
use regatta_core::mission::{Mode, Start};
use regatta_core::schedule::{Grant, WaitKind, wait_reasons};
use regatta_core::session::{Ask, Class, Said, Stop, Usage, Want};
use regatta_core::steer::Heard;
use regatta_core::task::{Add, How, Status, Task};

use crate::world::{World, agent, exits, registers, shop, work};

/// Returns a world with an ACP agent of the provider `acme` and a task for it.
fn world() -> World {
    let mut world = World::with(&[]);
    let runtime = Runtime::Acp { argv: vec!["talks".into()] };
    let register = Register { runtime, provider: Some("acme".into()), ..registers("ada", 1) };
    world.ask("ann", Command::RegisterAgent(register));
    world.add_for(work("a", &["a"]), Some("ada"), How::Queue);
    world
}

/// Reports the next output of a program.
fn says(world: &mut World, grant: &Grant, said: Said) {
    let n = world.board.attempts[&grant.attempt].talk.heard + 1;
    world.ask("regatta", Command::ReportSaid { attempt: grant.attempt, token: grant.token, n, said });
}

fn opens(world: &mut World) -> Grant {
    let grant = world.take_supervised("ada");
    says(world, &grant, Said::Started { session: Some("s1".into()), model: None });
    says(world, &grant, Said::TurnStarted { n: 0 });
    grant
}

fn ended(stop: Stop, class: Option<Class>) -> Said {
    Said::TurnEnded { stop, class, detail: String::new() }
}

/// Runs into a rate limit that has no end time. Returns how many minutes the provider is parked.
fn limited(world: &mut World) -> u64 {
    let grant = opens(world);
    says(world, &grant, Said::Limited { until_wall: None, detail: "too many requests".into() });
    says(world, &grant, ended(Stop::Error, Some(Class::RateLimit)));
    let how = Exited::Failed { reason: "429".into(), class: Some(Class::RateLimit) };
    world.ask("regatta", exits(&grant, how));
    let until = world.board.parked["acme"].until_at.expect("the provider is parked until a time");
    assert_eq!(world.poll_supervised("ada"), None, "an attempt starts while its provider is parked");
    (until - world.now.at) / 60_000
}

/// The wait after a limit without an end time doubles each time until a turn succeeds, also across
/// restarts.
#[test]
fn a_rate_limit_without_an_end_time_backs_off() {
    let mut world = world();
    let mut waits = vec![];
    for _ in 0..7 {
        waits.push(limited(&mut world));
        world.restart();
        world.advance(waits.last().unwrap() * 60_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    // A turn that ends well.
    let grant = opens(&mut world);
    says(&mut world, &grant, ended(Stop::EndTurn, None));
    assert!(world.board.parked.is_empty(), "the back-off is not reset");
    world.ask("regatta", exits(&grant, Exited::Lost));
    world.advance(60 * 60_000);
    assert_eq!(limited(&mut world), 1);
}

/// A person who resumes the agent resets the back-off, too.
#[test]
fn resuming_an_agent_resets_its_back_off() {
    let mut world = world();
    assert_eq!(limited(&mut world), 1);
    world.advance(60_000);
    assert_eq!(limited(&mut world), 2);
    world.ask("ann", Command::ResumeAgent { agent: crate::world::agent("ada") });
    assert_eq!(limited(&mut world), 1);
}

/// The last turn of a budget of turns may end. The turn after it is stopped.
#[test]
fn a_budget_of_turns_lets_the_last_turn_end() {
    for (scope, cause) in [(Scope::Attempt, Cause::OverBudget), (Scope::Day, Cause::Parked)] {
        let mut world = world();
        let ceiling = Ceiling { turns: Some(2), ..Ceiling::default() };
        world.ask("ann", Command::SetBudget { scope, ceiling });
        let grant = opens(&mut world);
        for words in ["and then", "and then again"] {
            world.ask("ann", Command::Tell { task: grant.task, text: words.into() });
        }
        says(&mut world, &grant, ended(Stop::EndTurn, None));
        says(&mut world, &grant, Said::TurnStarted { n: 1 });
        let usage = Usage { output: 5, ..Usage::default() };
        says(&mut world, &grant, Said::Usage { session: Some("s1".into()), usage });
        assert_eq!(world.board.attempts[&grant.attempt].stopping, None, "the last turn of the budget was stopped");
        says(&mut world, &grant, ended(Stop::EndTurn, None));
        says(&mut world, &grant, Said::TurnStarted { n: 2 });
        assert_eq!(world.board.attempts[&grant.attempt].stopping, Some(cause));
        world.ask("regatta", exits(&grant, Exited::Lost));
        assert!(world.reasons(grant.task).contains(&WaitKind::Budget));
    }
}

/// A mission with a budget: at 80 % an item is in the inbox, at 100 % its running attempt is parked
/// and nothing more starts, and a higher ceiling lets its work go on.
#[test]
fn a_mission_has_a_budget_from_its_start() {
    let mut world = world();
    let ceiling = |micro_usd| Ceiling { micro_usd: Some(micro_usd), ..Ceiling::default() };
    let mission = Start {
        project: shop(),
        title: "login".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 5,
        mode: Mode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: ceiling(5_000_000),
    };
    let other = world.ready("ada").unwrap();
    world.ask("ann", Command::CancelTask { task: other, reason: "not now".into() });
    let tasks = ["b", "c"].map(|it| PlannedTask { task: work(it, &[it]), after: vec![], assign: None }).to_vec();
    let Outcome::Mission { mission, tasks } = world.ask("ann", Command::StartMission { mission, tasks, adopt: vec![] })
    else {
        panic!("the mission did not start")
    };
    let scope = Scope::Mission(mission);
    assert_eq!(
        world.board.budgets[&scope].ceiling,
        ceiling(5_000_000),
        "the budget is not set in the commit that starts the mission"
    );
    let grant = opens(&mut world);
    let used = |money| Usage { micro_usd: Some(money), ..Usage::default() };
    let items = |world: &World| -> Vec<String> {
        regatta_core::inbox::open(&world.board, world.now).iter().map(|it| it.item.to_string()).collect()
    };
    says(&mut world, &grant, Said::Usage { session: Some("s1".into()), usage: used(3_900_000) });
    assert!(items(&world).is_empty());
    says(&mut world, &grant, Said::Usage { session: Some("s1".into()), usage: used(4_100_000) });
    assert_eq!(items(&world), [format!("budget:{mission}")], "the inbox has no item at 80 %");
    says(&mut world, &grant, Said::Usage { session: Some("s1".into()), usage: used(5_000_000) });
    assert_eq!(world.board.attempts[&grant.attempt].stopping, Some(Cause::Parked));
    world.ask("regatta", exits(&grant, Exited::Lost));
    assert_eq!(world.poll_supervised("ada"), None, "a task of the mission started without a budget");
    assert!(tasks.iter().all(|it| world.reasons(*it).contains(&WaitKind::Budget)));
    world.ask("ann", Command::SetBudget { scope, ceiling: ceiling(9_000_000) });
    assert!(world.poll_supervised("ada").is_some());
}

/// The wait reason of a blocked task says what its blocker is doing or waiting for.
#[test]
fn a_wait_reason_describes_the_state_of_the_blocker() {
    let says_of = |world: &World| -> String {
        let task = world.board.tasks.values().find(|it| it.subject == "after").cloned().unwrap();
        let reasons = wait_reasons(&world.board, &task, world.now);
        let text = reasons.into_iter().find(|it| it.kind == WaitKind::Dep).map(|it| it.text).unwrap_or_default();
        text.split("which ").nth(1).unwrap_or_default().to_owned()
    };
    let begun = || {
        let mut world = world();
        let first = world.ready("ada").unwrap();
        let after = Add { blocked_by: vec![first], ..work("after", &["z"]) };
        world.add_for(after, None, How::Queue);
        assert_eq!(says_of(&world), "is waiting");
        world
    };
    let mut world = begun();
    let grant = opens(&mut world);
    assert_eq!(says_of(&world), "is working");
    let want = Want::Question { text: "Which?".into(), choices: vec![], schema: None };
    says(&mut world, &grant, Said::Asked(Ask { id: "1".into(), want }));
    assert_eq!(says_of(&world), "waits for you (Q1)");
    // An attempt that is being stopped waits for nothing, even if its question is still open.
    let open = |world: &World| approval::open_of(&world.board, &world.board.attempts[&grant.attempt]).map(|it| it.id);
    let doing = |world: &World| life::doing(&world.board, &world.board.tasks[&grant.task], world.now).0;
    assert_eq!((open(&world).is_some(), doing(&world)), (true, Doing::Waiting(WaitKind::Question)));
    let stopping = Attempt { stopping: Some(Cause::Stopped), ..Attempt::clone(&world.board.attempts[&grant.attempt]) };
    world.board.attempts.insert(grant.attempt, stopping.into());
    assert_eq!((open(&world), doing(&world)), (None, Doing::Working));
    assert_eq!(says_of(&world), "is being stopped");

    let mut world = begun();
    let grant = opens(&mut world);
    says(&mut world, &grant, ended(Stop::EndTurn, None));
    world.ask("regatta", exits(&grant, Exited::Done { output: None }));
    assert_eq!(says_of(&world), "is being checked");
    let set = |world: &mut World, status: Status| {
        let task = Task { status, attempt: None, ..Task::clone(&world.board.tasks[&grant.task]) };
        world.board.tasks.insert(grant.task, task.into());
    };
    for (status, wanted) in [
        (Status::InReview, "is in review, and waits for you"),
        (Status::NeedsHuman, "needs you"),
        (Status::Landing, "is landing"),
        (Status::Failed, "has failed"),
    ] {
        set(&mut world, status);
        assert_eq!(says_of(&world), wanted);
    }

    let mut world = begun();
    limited(&mut world);
    assert!(says_of(&world).starts_with("waits because acme is rate-limited for "), "{}", says_of(&world));
    let mut freed = begun();
    limited(&mut freed);
    freed.ask("ann", Command::ResumeAgent { agent: crate::world::agent("acme") });
    assert!(
        !says_of(&freed).contains("rate-limited"),
        "resuming a provider by its name did not end the limit: {}",
        says_of(&freed)
    );
    world.ask("ann", Command::PauseTask { task: TaskId(1), reason: "later".into() });
    assert_eq!(says_of(&world), "is paused: later");

    let mut world = World::with(&[("ada", 2)]);
    world.add_for(work("first", &["a"]), Some("ada"), How::Queue);
    let after = Add { blocked_by: vec![TaskId(1)], ..work("after", &["z"]) };
    world.add_for(after, None, How::Queue);
    let grant = world.poll("ada").unwrap();
    world.ask("ann", Command::HoldQueue { project: shop(), reason: "a demo".into() });
    world.submit(&grant);
    assert_eq!(says_of(&world), "is number 1 in the landing queue");
}

/// A message that no agent received is in the brief of the next attempt, once. A message that was
/// received is not.
#[test]
fn a_message_that_no_agent_received_goes_to_the_next_attempt() {
    let mut world = world();
    let tell = |world: &mut World, task, text: &str| match world.ask("ann", Command::Tell { task, text: text.into() }) {
        Outcome::Told(heard) => heard,
        other => panic!("{other:?}"),
    };
    let task = world.ready("ada").unwrap();
    assert_eq!(tell(&mut world, task, "before it began"), Heard::Next);
    let grant = opens(&mut world);
    assert_eq!(world.board.attempts[&grant.attempt].notes, ["before it began"]);
    assert!(world.task(task).notes.is_empty(), "the notes were not passed to the attempt");
    for text in ["heard", "unheard"] {
        assert_eq!(tell(&mut world, task, text), Heard::Now(grant.attempt));
    }
    says(&mut world, &grant, ended(Stop::EndTurn, None));
    says(&mut world, &grant, Said::TurnStarted { n: 1 });
    // The next attempt continues the same session, which has received the first message.
    world.ask("regatta", exits(&grant, Exited::Lost));
    assert_eq!(world.task(task).notes, ["unheard"]);
    world.advance(60 * 60_000);
    let again = world.take_supervised("ada");
    assert_eq!(world.board.attempts[&again.attempt].notes, ["unheard"]);
    // This attempt never opened a session, so its notes are given to the next one.
    world.ask("regatta", exits(&again, Exited::NotRun { reason: "no such program".into(), fault: None }));
    assert_eq!(world.task(task).notes, ["unheard"]);
}

/// The time in which an attempt waits for a person does not count against its timeout. Its working
/// time does.
#[test]
fn waiting_for_a_person_does_not_count_against_the_timeout() {
    let mut world = world();
    let grant = opens(&mut world);
    let timeout = world.board.limits.attempt_timeout_ms;
    let want = Want::Question { text: "which one?".into(), choices: vec![], schema: None };
    says(&mut world, &grant, Said::Asked(Ask { id: "q1".into(), want }));
    world.advance(3 * timeout);
    let attempt = world.board.attempts[&grant.attempt].clone();
    assert_eq!(attempt.stopping, None, "the attempt was stopped while it waited for a person");
    assert!(attempt.until_at.unwrap() > world.now.at);
    assert!(world.count("attempt.extended") >= 2);
    says(&mut world, &grant, Said::Withdrew { ask: "q1".into() });
    world.advance(timeout);
    assert_eq!(world.board.attempts[&grant.attempt].stopping, Some(Cause::TimedOut));
    assert_ne!(world.status(grant.task), Status::InProgress);
}

/// A task that was parked by the day's budget goes on when a new day begins.
#[test]
fn work_parked_by_a_days_budget_continues_on_the_next_day() {
    let mut world = world();
    world.ask(
        "ann",
        Command::SetBudget { scope: Scope::Day, ceiling: Ceiling { tokens: Some(100), ..Ceiling::default() } },
    );
    let grant = opens(&mut world);
    let usage = Usage { output: 120, ..Usage::default() };
    says(&mut world, &grant, Said::Usage { session: Some("s1".into()), usage });
    assert_eq!(world.board.attempts[&grant.attempt].stopping, Some(Cause::Parked));
    world.ask("regatta", exits(&grant, Exited::Lost));
    assert_eq!(world.poll_supervised("ada"), None);
    world.advance(86_400_000);
    let again = world.take_supervised("ada");
    assert_eq!((again.task, world.board.attempts[&again.attempt].workspace()), (grant.task, grant.attempt));
}
