//! Tests of sessions: each event of a program reaches the board once, messages of people reach the
//! program, and a restart in the middle changes nothing.

use std::time::Duration;

use regatta_core::approval::Reach;
use regatta_core::attempt::Cause;
use regatta_core::budget;
use regatta_core::command::Command;
use regatta_core::ids::{ApprovalId, AttemptId, TaskId};
use regatta_core::policy;
use regatta_core::schedule::{WaitKind, wait_reasons};
use regatta_core::session::{Answer, Ask, AskOption, Class, OptionKind, Said, Stop, Tool, ToolKind, Usage, Want};
use regatta_core::steer::Heard;
use regatta_core::task::Status;
use regatta_core::{agent, command::Outcome};
use regatta_engine::Engine;
use regatta_engine::ports::agents::Exit;
use regatta_testkit::fake_agents::Program;
use regatta_testkit::steps::Life;

use crate::support::*;

const FIRST: AttemptId = AttemptId(1);

fn tokens(output: u64) -> Said {
    Said::Usage { session: Some("s1".into()), usage: Usage { output, ..Usage::default() } }
}

fn ended(stop: Stop, class: Option<Class>) -> Said {
    Said::TurnEnded { stop, class, detail: String::new() }
}

fn opens(program: &Program) {
    program.say(Said::Started { session: Some("s1".into()), model: Some("m".into()) });
    program.say(Said::TurnStarted { n: 0 });
}

fn asks(program: &Program, id: &str, path: &str) -> Result<Answer, Exit> {
    let tool = Tool {
        kind: ToolKind::Execute,
        command: Some("npm install zod".into()),
        paths: vec![path.into()],
        ..Tool::default()
    };
    let options = vec![AskOption { id: "no".into(), name: "No".into(), kind: OptionKind::RejectOnce }];
    program.say(Said::Asked(Ask { id: id.into(), want: Want::Permission { tool, options } }));
    let wishes = program.until_wished(|it| it.answers.iter().any(|it| it.0 == id))?;
    Ok(wishes.answers.into_iter().find(|it| it.0 == id).expect("the answer is there").1)
}

/// Starts a mission of one task whose agent's runtime has sessions.
fn launch_one(engine: &Engine) {
    say(engine, add_project());
    let Command::RegisterAgent(ann) = register("ann") else { unreachable!("the helper registers an agent") };
    let runtime = agent::Runtime::Acp { argv: vec!["talks".into()] };
    say(engine, Command::RegisterAgent(agent::Register { runtime, provider: Some("acme".into()), ..ann }));
    say(engine, mission(&["ann"], vec![planned("a", "a", &[])]));
}

/// Use is charged once and a question is asked once, although a restart reads the events again
/// (J9). The answer and the follow-up prompt reach the program, which ends when no input is left,
/// and its work lands.
#[test]
fn a_session_continues_over_a_restart_without_double_charges() {
    let world = World::new(|program| {
        opens(program);
        program.say(tokens(10));
        program.say(tokens(25));
        let answer = match asks(program, "7", "/etc/hosts") {
            Ok(answer) => answer,
            Err(exit) => return exit,
        };
        program.append("a", &format!("{answer:?}\n"));
        program.say(ended(Stop::EndTurn, None));
        // A message that came while the program worked is the next prompt.
        let Ok(wishes) = program.until_wished(|it| it.prompts.len() == 2) else { return Exit::Signal(15) };
        program.say(Said::TurnStarted { n: 1 });
        program.append("a", &format!("{}\n", wishes.prompts[1]));
        program.say(tokens(40));
        program.say(ended(Stop::EndTurn, None));
        match program.until_wished(|it| it.end) {
            Ok(_) => Exit::Code(0),
            Err(exit) => exit,
        }
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    until(&engine, "the agent asks for permission", |board| board.approvals.len() == 1);
    let told = say(&engine, Command::Tell { task: TaskId(1), text: "and mind the gap".into() });
    assert_eq!(told.outcome, Outcome::Told(Heard::Now(FIRST)));
    engine.shutdown();

    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    let board = until(&engine, "the program is watched again", |_| life.calls("agents.attend") > 0);
    let approval = board.approvals[&ApprovalId(1)].clone();
    assert_eq!((board.approvals.len(), approval.is_open(), approval.subject().as_str()), (1, true, "npm install zod"));
    say(&engine, Command::Decide { approval: ApprovalId(1), answer: Answer::Allow, reach: Reach::Once, also: vec![] });
    until_done(&engine, &life, &world);
    let task = engine.history().task(TaskId(1)).unwrap().unwrap();
    assert_eq!((task.status, task.spent.usage.output, task.spent.turns), (Status::Completed, 40, 2));
    assert_eq!(world.git.trunk(std::path::Path::new(REPO))["a"], "Allow\nand mind the gap\n");
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// A policy rule answers a request without a person and is named in the decision. A denial names
/// the rule to the agent.
#[test]
fn a_policy_rule_answers_the_requests_that_it_covers() {
    let world = World::new(|program| {
        opens(program);
        for (nth, path) in ["src/a.rs", "/etc/hosts"].iter().enumerate() {
            match asks(program, &nth.to_string(), path) {
                Ok(Answer::Allow) => program.append("a", "yes\n"),
                Ok(Answer::Deny { words }) => program.append("a", &format!("no: {}\n", words.unwrap_or_default())),
                Ok(other) => program.append("a", &format!("{other:?}\n")),
                Err(exit) => return exit,
            }
        }
        program.say(ended(Stop::EndTurn, None));
        program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0))
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    let matter = policy::Matter { path: Some("/etc/*".into()), ..Default::default() };
    say(&engine, Command::AddRule { scope: policy::Scope::All, effect: policy::Effect::Deny, matter });
    launch_one(&engine);
    until_done(&engine, &life, &world);
    let file = world.git.trunk(std::path::Path::new(REPO))["a"].clone();
    assert_eq!(file, "yes\nno: Regatta's policy forbids it (R1: deny path /etc/* for everybody)\n");
    engine.shutdown();
}

/// A rate limit parks the provider until the reset and costs no attempt. The work continues in the
/// same workspace and the same session.
#[test]
fn a_rate_limit_parks_the_provider_and_the_work_continues_in_its_workspace() {
    let world = World::new(|program| {
        opens(program);
        if program.nth() == 1 {
            program.append("a", "half\n");
            program.say(Said::Limited { until_wall: None, detail: "5-hour limit".into() });
            program.say(ended(Stop::Error, Some(Class::RateLimit)));
            return program.fail(Class::RateLimit);
        }
        program.append("a", &format!("rest of {}\n", program.launch().resume.clone().unwrap_or_default()));
        program.say(ended(Stop::EndTurn, None));
        program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0))
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    let board = until(&engine, "the provider is parked", |board| {
        board.parked.contains_key("acme") && board.attempts.is_empty()
    });
    let task = board.tasks[&TaskId(1)].clone();
    assert_eq!((task.failures, task.status), (0, Status::Unassigned));
    let reasons = wait_reasons(&board, &task, engine.now());
    assert!(reasons.iter().any(|it| it.kind == WaitKind::RateLimit && it.text.contains("5-hour limit")), "{reasons:?}");
    assert_eq!(world.agents.programs()["T1"], 1);
    world.clock.turn(Duration::from_secs(61));
    say(&engine, post("a request makes the writer check the clock"));
    until_done(&engine, &life, &world);
    assert_eq!(world.git.trunk(std::path::Path::new(REPO))["a"], "half\nrest of s1\n");
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// At an attempt's own limit its program is stopped and the cause is recorded. At the day's limit
/// only the turn ends, so that the session can continue, and nothing starts until the budget has
/// room again.
#[test]
fn a_used_up_budget_stops_the_attempts_that_it_covers() {
    for (scope, cause) in [(budget::Scope::Attempt, Cause::OverBudget), (budget::Scope::Day, Cause::Parked)] {
        let world = World::new(|program| {
            opens(program);
            if program.nth() == 2 {
                program.append("a", "done\n");
                program.say(ended(Stop::EndTurn, None));
                return program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0));
            }
            program.say(tokens(85));
            program.say(Said::Plan { entries: vec![] }); // any other event is recorded at once, after the pending use
            program.say(tokens(120));
            program.say(Said::Plan { entries: vec![] });
            program.hang()
        });
        let life = Life::new();
        let engine = world.start_in(&life).unwrap();
        let ceiling = budget::Ceiling { tokens: Some(100), ..Default::default() };
        say(&engine, Command::SetBudget { scope: scope.clone(), ceiling });
        launch_one(&engine);
        let board = until(&engine, "the attempt is stopped", |board| {
            !board.tasks.is_empty() && board.counters.attempt == 1 && board.attempts.is_empty()
        });
        let attempt = engine.history().attempt(FIRST).unwrap().unwrap();
        assert_eq!(attempt.ended.unwrap().cause, cause);
        assert!(board.budgets[&scope].warned.is_some(), "no warning at 80 %");
        let reasons = wait_reasons(&board, &board.tasks[&TaskId(1)], engine.now());
        assert!(reasons.iter().any(|it| it.kind == WaitKind::Budget), "{reasons:?}");
        if scope == budget::Scope::Day {
            say(&engine, Command::SetBudget { scope, ceiling: budget::Ceiling::default() });
            until_done(&engine, &life, &world);
            assert_eq!(world.git.trunk(std::path::Path::new(REPO))["a"], "done\n");
        }
        engine.shutdown();
    }
}

/// A pause holds the session, and resuming sends the agent a prompt. The time limit of a session
/// ends it.
#[test]
fn a_pause_holds_the_session_and_a_timeout_ends_it() {
    let world = World::new(|program| {
        opens(program);
        let Ok(_) = program.until_wished(|it| it.hold && it.cancels == 1) else { return Exit::Signal(15) };
        program.say(ended(Stop::Cancelled, Some(Class::Cancelled)));
        let Ok(wishes) = program.until_wished(|it| !it.hold && it.prompts.len() == 2) else { return Exit::Signal(15) };
        program.say(Said::TurnStarted { n: 1 });
        program.append("a", &format!("{}\n", wishes.prompts[1]));
        program.hang()
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    until(&engine, "the turn has started", |board| board.attempts.values().any(|it| it.talk.in_turn));
    say(&engine, Command::PauseTask { task: TaskId(1), reason: "look first".into() });
    let board = until(&engine, "the turn has ended", |board| board.attempts.values().any(|it| !it.talk.in_turn));
    assert!(!board.attempts[&FIRST].talk.closing, "a held session is not closed");
    say(&engine, Command::ResumeTask { task: TaskId(1) });
    until(&engine, "the second turn has started", |board| board.attempts.values().any(|it| it.talk.turns == 2));
    world.clock.turn(Duration::from_secs(3_601));
    say(&engine, post("a request makes the writer check the clock"));
    until(&engine, "the attempt has ended at its timeout", |board| board.attempts.values().all(|it| it.id != FIRST));
    assert_eq!(engine.history().attempt(FIRST).unwrap().unwrap().ended.unwrap().cause, Cause::TimedOut);
    engine.stop_attempts("enough").unwrap();
    engine.shutdown();
}

/// A session whose context is nearly full and that still has prompts summarises itself. A fresh
/// session continues in the same workspace with the summary and the remaining prompts, and that
/// costs no attempt.
#[test]
fn a_nearly_full_session_is_replaced_by_one_with_its_summary() {
    let world = World::new(|program| {
        if program.attempt() == FIRST {
            opens(program);
            program.append("a", "half\n");
            let told = |wishes: &regatta_engine::ports::agents::Wishes| wishes.prompts.len() == 2;
            if let Err(exit) = program.until_wished(told) {
                return exit;
            }
            program.say(Said::Context { used: 900, size: 1000 });
            program.say(ended(Stop::EndTurn, None));
            // The request for a summary is sent before the messages of people.
            let asked =
                program.until_wished(|it| it.prompts.len() == 3 && it.prompts[1] == regatta_core::rotate::SUM_UP);
            if let Err(exit) = asked {
                return exit;
            }
            program.say(Said::TurnStarted { n: 1 });
            program.say(Said::Message { text: "half is done, ".into() });
            program.say(Said::Message { text: "the rest is left".into() });
            program.say(ended(Stop::EndTurn, None));
            return program.until_wished(|it| it.end).err().unwrap_or(Exit::Signal(15));
        }
        opens(program);
        program.append(
            "a",
            &format!(
                "{}\n",
                program
                    .launch()
                    .prompt
                    .lines()
                    .filter(|it| it.contains("is done") || it.contains("mind"))
                    .collect::<Vec<_>>()
                    .join("|")
            ),
        );
        program.say(ended(Stop::EndTurn, None));
        program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0))
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    until(&engine, "the turn has started", |board| board.attempts.values().any(|it| it.talk.in_turn));
    say(&engine, Command::Tell { task: TaskId(1), text: "and mind the gap".into() });
    until_done(&engine, &life, &world);
    let task = engine.history().task(TaskId(1)).unwrap().unwrap();
    assert_eq!((task.status, task.failures), (Status::Completed, 0));
    let first = engine.history().attempt(FIRST).unwrap().unwrap();
    assert_eq!(first.ended.map(|it| it.cause), Some(Cause::ContextFull));
    let second = engine.history().attempt(AttemptId(2)).unwrap().unwrap();
    assert_eq!((second.workspace(), second.resumed_session()), (FIRST, None));
    assert_eq!(
        world.git.trunk(std::path::Path::new(REPO))["a"],
        "half\nand mind the gap|half is done, the rest is left\n"
    );
    engine.shutdown();
}

/// Use that a program reports at its end is charged as far as it exceeds the recorded use, also
/// when a restart reads it again.
#[test]
fn use_reported_at_the_end_of_a_program_is_charged_once() {
    let world = World::new(|program| {
        opens(program);
        program.say(tokens(30));
        program.append("a", "done\n");
        program.settle("s1", Usage { output: 70, ..Usage::default() });
        program.settle("s2", Usage { output: 5, ..Usage::default() });
        // A report below the recorded use, or of nothing, charges nothing.
        program.settle("s1", Usage { output: 20, ..Usage::default() });
        program.say(ended(Stop::EndTurn, None));
        program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0))
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    until_done(&engine, &life, &world);
    let attempt = engine.history().attempt(FIRST).unwrap().unwrap();
    assert_eq!(attempt.used.tokens(), 75);
    let day = budget::day_of(engine.now());
    assert_eq!(budget::spent_on(&engine.board(), day, None).usage.tokens(), 75);
    engine.shutdown();
}

/// No event happens at midnight. The dispatcher itself notices that the new day has a budget.
#[test]
fn work_parked_by_the_days_budget_continues_on_the_next_day() {
    let world = World::new(|program| {
        opens(program);
        if program.nth() == 1 {
            program.say(tokens(120));
            program.say(Said::Plan { entries: vec![] });
            return program.hang();
        }
        program.append("a", "done\n");
        program.say(ended(Stop::EndTurn, None));
        program.until_wished(|it| it.end).err().unwrap_or(Exit::Code(0))
    });
    let life = Life::new();
    let engine = world.start_in(&life).unwrap();
    let ceiling = budget::Ceiling { tokens: Some(100), ..Default::default() };
    say(&engine, Command::SetBudget { scope: budget::Scope::Day, ceiling });
    launch_one(&engine);
    let board =
        until(&engine, "the attempt is parked", |board| board.counters.attempt == 1 && board.attempts.is_empty());
    let reasons = wait_reasons(&board, &board.tasks[&TaskId(1)], engine.now());
    assert!(reasons.iter().any(|it| it.kind == WaitKind::Budget), "{reasons:?}");
    world.clock.turn(Duration::from_secs(24 * 60 * 60));
    until_done(&engine, &life, &world);
    assert_eq!(world.git.trunk(std::path::Path::new(REPO))["a"], "done\n");
    engine.shutdown();
}
