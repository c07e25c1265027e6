//! Tests of sessions: each event of a program reaches the board once, messages of people reach the
//! program, and a restart in the middle changes nothing.

use std::time::Duration;

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, PermissionOption, PermissionOptionKind, RequestAnswer,
    RequestContent, StopReason, ToolCall, ToolKind, Usage,
};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::AttemptCause;
use regatta_core::budget;
use regatta_core::command::Command;
use regatta_core::ids::{ApprovalId, AttemptId, TaskId};
use regatta_core::intervention::TellOutcome;
use regatta_core::policy;
use regatta_core::schedule::{WaitKind, wait_reasons};
use regatta_core::task::TaskStatus;
use regatta_core::{agent, command::CommandOutcome};
use regatta_engine::Engine;
use regatta_engine::ports::agents::Exit;
use regatta_testkit::crash_points::EngineLife;
use regatta_testkit::fake_agents::FakeProgram;

use crate::support::*;

const FIRST_ATTEMPT: AttemptId = AttemptId(1);

fn usage_event(output: u64) -> AgentEvent {
    AgentEvent::Usage {
        session: Some("s1".into()),
        usage: Usage {
            output,
            ..Usage::default()
        },
    }
}

fn turn_ended_event(stop: StopReason, class: Option<FailureClass>) -> AgentEvent {
    AgentEvent::TurnEnded {
        stop,
        class,
        detail: String::new(),
    }
}

fn open_session(program: &FakeProgram) {
    program.emit(AgentEvent::Started {
        session: Some("s1".into()),
        model: Some("m".into()),
    });
    program.emit(AgentEvent::TurnStarted { n: 0 });
}

fn request_permission(program: &FakeProgram, id: &str, path: &str) -> Result<RequestAnswer, Exit> {
    let tool = ToolCall {
        kind: ToolKind::Execute,
        command: Some("npm install zod".into()),
        paths: vec![path.into()],
        ..ToolCall::default()
    };
    let options = vec![PermissionOption {
        id: "no".into(),
        name: "No".into(),
        kind: PermissionOptionKind::RejectOnce,
    }];
    program.emit(AgentEvent::RequestMade(AgentRequest {
        id: id.into(),
        content: RequestContent::Permission { tool, options },
    }));
    let input =
        program.wait_for_input(|input| input.answers.iter().any(|(request, _)| request == id))?;
    let mut answers = input.answers.into_iter();
    let (_, answer) = answers
        .find(|(request, _)| request == id)
        .expect("the answer is there");
    Ok(answer)
}

/// Starts a mission of one task whose agent's runtime has sessions.
fn launch_one(engine: &Engine) {
    submit(engine, add_project());
    let Command::RegisterAgent(ann) = register("ann") else {
        unreachable!("the helper registers an agent")
    };
    let runtime = agent::Runtime::Acp {
        argv: vec!["talks".into()],
    };
    submit(
        engine,
        Command::RegisterAgent(agent::RegisterAgent {
            runtime,
            provider: Some("acme".into()),
            ..ann
        }),
    );
    submit(engine, mission(&["ann"], vec![planned("a", "a", &[])]));
}

/// Use is charged once and a question is asked once, although a restart reads the events again
/// (J9). The answer and the follow-up prompt reach the program, which ends when no input is left,
/// and its work lands.
#[test]
fn a_session_continues_over_a_restart_without_double_charges() {
    let world = World::new(|program| {
        open_session(program);
        program.emit(usage_event(10));
        program.emit(usage_event(25));
        let answer = match request_permission(program, "7", "/etc/hosts") {
            Ok(answer) => answer,
            Err(exit) => return exit,
        };
        program.append("a", &format!("{answer:?}\n"));
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        // A message that came while the program worked is the next prompt.
        let Ok(input) = program.wait_for_input(|input| input.prompts.len() == 2) else {
            return Exit::Signal(15);
        };
        program.emit(AgentEvent::TurnStarted { n: 1 });
        program.append("a", &format!("{}\n", input.prompts[1]));
        program.emit(usage_event(40));
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        match program.wait_for_input(|input| input.should_close_input) {
            Ok(_) => Exit::Code(0),
            Err(exit) => exit,
        }
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    wait_until(&engine, "the agent asks for permission", |board| {
        board.approvals.len() == 1
    });
    let reply = submit(
        &engine,
        Command::Tell {
            task: TaskId(1),
            text: "and mind the gap".into(),
        },
    );
    assert_eq!(
        reply.outcome,
        CommandOutcome::Tell(TellOutcome::RunningSession(FIRST_ATTEMPT))
    );
    engine.shutdown();

    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let board = wait_until(&engine, "the program is watched again", |_| {
        life.call_count("agents.attend") > 0
    });
    let approval = board.approvals[&ApprovalId(1)].clone();
    assert_eq!(
        (
            board.approvals.len(),
            approval.is_open(),
            approval.subject().as_str()
        ),
        (1, true, "npm install zod")
    );
    submit(
        &engine,
        Command::Decide {
            approval: ApprovalId(1),
            answer: RequestAnswer::Allow,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );
    wait_until_done(&engine, &life, &world);
    let task = engine.history().task(TaskId(1)).unwrap().unwrap();
    assert_eq!(
        (task.status, task.spent.usage.output, task.spent.turns),
        (TaskStatus::Completed, 40, 2)
    );
    assert_eq!(
        world.git.trunk(std::path::Path::new(REPO))["a"],
        "Allow\nand mind the gap\n"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// A policy rule answers a request without a person and is named in the decision. A denial names
/// the rule to the agent.
#[test]
fn a_policy_rule_answers_the_requests_that_it_covers() {
    let world = World::new(|program| {
        open_session(program);
        for (nth, path) in ["src/a.rs", "/etc/hosts"].iter().enumerate() {
            match request_permission(program, &nth.to_string(), path) {
                Ok(RequestAnswer::Allow) => program.append("a", "yes\n"),
                Ok(RequestAnswer::Deny { reason }) => {
                    program.append("a", &format!("no: {}\n", reason.unwrap_or_default()))
                }
                Ok(other) => program.append("a", &format!("{other:?}\n")),
                Err(exit) => return exit,
            }
        }
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        program
            .wait_for_input(|input| input.should_close_input)
            .err()
            .unwrap_or(Exit::Code(0))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let subject = policy::RuleSubject {
        path: Some("/etc/*".into()),
        ..Default::default()
    };
    submit(
        &engine,
        Command::AddRule {
            scope: policy::RuleScope::All,
            effect: policy::RuleEffect::Deny,
            subject,
        },
    );
    launch_one(&engine);
    wait_until_done(&engine, &life, &world);
    let file = world.git.trunk(std::path::Path::new(REPO))["a"].clone();
    assert_eq!(
        file,
        "yes\nno: Regatta's policy forbids it (R1: deny path /etc/* for everybody)\n"
    );
    engine.shutdown();
}

/// A rate limit parks the provider until the reset and costs no attempt. The work continues in the
/// same workspace and the same session.
#[test]
fn a_rate_limit_parks_the_provider_and_the_work_continues_in_its_workspace() {
    let world = World::new(|program| {
        open_session(program);
        if program.run_number() == 1 {
            program.append("a", "half\n");
            program.emit(AgentEvent::Limited {
                deadline_unix_ms: None,
                detail: "5-hour limit".into(),
            });
            program.emit(turn_ended_event(
                StopReason::Error,
                Some(FailureClass::RateLimit),
            ));
            return program.end_with_error(FailureClass::RateLimit);
        }
        program.append(
            "a",
            &format!(
                "rest of {}\n",
                program.launch().resume.clone().unwrap_or_default()
            ),
        );
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        program
            .wait_for_input(|input| input.should_close_input)
            .err()
            .unwrap_or(Exit::Code(0))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    let board = wait_until(&engine, "the provider is parked", |board| {
        board.parked.contains_key("acme") && board.attempts.is_empty()
    });
    let task = board.tasks[&TaskId(1)].clone();
    assert_eq!((task.failures, task.status), (0, TaskStatus::Unassigned));
    let reasons = wait_reasons(&board, &task, engine.now());
    assert!(
        reasons.iter().any(
            |reason| reason.kind == WaitKind::RateLimit && reason.text.contains("5-hour limit")
        ),
        "{reasons:?}"
    );
    assert_eq!(world.agents.program_counts()["T1"], 1);
    world.clock.advance(Duration::from_secs(61));
    submit(&engine, post("a request makes the writer check the clock"));
    wait_until_done(&engine, &life, &world);
    assert_eq!(
        world.git.trunk(std::path::Path::new(REPO))["a"],
        "half\nrest of s1\n"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// At an attempt's own limit its program is stopped and the cause is recorded. At the day's limit
/// only the turn ends, so that the session can continue, and nothing starts until the budget has
/// room again.
#[test]
fn a_used_up_budget_stops_the_attempts_that_it_covers() {
    for (scope, cause) in [
        (budget::BudgetScope::Attempt, AttemptCause::OverBudget),
        (budget::BudgetScope::Day, AttemptCause::Parked),
    ] {
        let world = World::new(|program| {
            open_session(program);
            if program.run_number() == 2 {
                program.append("a", "done\n");
                program.emit(turn_ended_event(StopReason::EndTurn, None));
                return program
                    .wait_for_input(|input| input.should_close_input)
                    .err()
                    .unwrap_or(Exit::Code(0));
            }
            program.emit(usage_event(85));
            // any other event is recorded at once, after the pending use
            program.emit(AgentEvent::Plan { entries: vec![] });
            program.emit(usage_event(120));
            program.emit(AgentEvent::Plan { entries: vec![] });
            program.hang_until_stopped()
        });
        let life = EngineLife::new();
        let engine = world.start_in(&life).unwrap();
        let ceiling = budget::Ceiling {
            tokens: Some(100),
            ..Default::default()
        };
        submit(
            &engine,
            Command::SetBudget {
                scope: scope.clone(),
                ceiling,
            },
        );
        launch_one(&engine);
        let board = wait_until(&engine, "the attempt is stopped", |board| {
            !board.tasks.is_empty() && board.counters.attempt == 1 && board.attempts.is_empty()
        });
        let attempt = engine.history().attempt(FIRST_ATTEMPT).unwrap().unwrap();
        assert_eq!(attempt.end.unwrap().cause, cause);
        assert!(board.budgets[&scope].warned.is_some(), "no warning at 80 %");
        let reasons = wait_reasons(&board, &board.tasks[&TaskId(1)], engine.now());
        assert!(
            reasons.iter().any(|reason| reason.kind == WaitKind::Budget),
            "{reasons:?}"
        );
        if scope == budget::BudgetScope::Day {
            submit(
                &engine,
                Command::SetBudget {
                    scope,
                    ceiling: budget::Ceiling::default(),
                },
            );
            wait_until_done(&engine, &life, &world);
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
        open_session(program);
        let Ok(_) = program.wait_for_input(|input| input.should_hold_prompts && input.cancels == 1)
        else {
            return Exit::Signal(15);
        };
        program.emit(turn_ended_event(
            StopReason::Cancelled,
            Some(FailureClass::Cancelled),
        ));
        let Ok(input) =
            program.wait_for_input(|input| !input.should_hold_prompts && input.prompts.len() == 2)
        else {
            return Exit::Signal(15);
        };
        program.emit(AgentEvent::TurnStarted { n: 1 });
        program.append("a", &format!("{}\n", input.prompts[1]));
        program.hang_until_stopped()
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    wait_until(&engine, "the turn has started", |board| {
        board
            .attempts
            .values()
            .any(|attempt| attempt.session.in_turn)
    });
    submit(
        &engine,
        Command::PauseTask {
            task: TaskId(1),
            reason: "look first".into(),
        },
    );
    let board = wait_until(&engine, "the turn has ended", |board| {
        board
            .attempts
            .values()
            .any(|attempt| !attempt.session.in_turn)
    });
    assert!(
        !board.attempts[&FIRST_ATTEMPT].session.closing,
        "a held session is not closed"
    );
    submit(&engine, Command::ResumeTask { task: TaskId(1) });
    wait_until(&engine, "the second turn has started", |board| {
        board
            .attempts
            .values()
            .any(|attempt| attempt.session.turns == 2)
    });
    world.clock.advance(Duration::from_secs(3_601));
    submit(&engine, post("a request makes the writer check the clock"));
    wait_until(&engine, "the attempt has ended at its timeout", |board| {
        board
            .attempts
            .values()
            .all(|attempt| attempt.id != FIRST_ATTEMPT)
    });
    assert_eq!(
        engine
            .history()
            .attempt(FIRST_ATTEMPT)
            .unwrap()
            .unwrap()
            .end
            .unwrap()
            .cause,
        AttemptCause::TimedOut
    );
    engine.stop_attempts("enough").unwrap();
    engine.shutdown();
}

/// A session whose context is nearly full and that still has prompts summarises itself. A fresh
/// session continues in the same workspace with the summary and the remaining prompts, and that
/// costs no attempt.
#[test]
fn a_nearly_full_session_is_replaced_by_one_with_its_summary() {
    let world = World::new(|program| {
        if program.attempt() == FIRST_ATTEMPT {
            open_session(program);
            program.append("a", "half\n");
            let has_two_prompts =
                |input: &regatta_engine::ports::agents::SessionInput| input.prompts.len() == 2;
            if let Err(exit) = program.wait_for_input(has_two_prompts) {
                return exit;
            }
            program.emit(AgentEvent::Context {
                used: 900,
                size: 1000,
            });
            program.emit(turn_ended_event(StopReason::EndTurn, None));
            // The request for a summary is sent before the messages of people.
            let summary_requested = program.wait_for_input(|input| {
                input.prompts.len() == 3
                    && input.prompts[1] == regatta_core::agent_texts::SUMMARY_PROMPT
            });
            if let Err(exit) = summary_requested {
                return exit;
            }
            program.emit(AgentEvent::TurnStarted { n: 1 });
            program.emit(AgentEvent::Message {
                text: "half is done, ".into(),
            });
            program.emit(AgentEvent::Message {
                text: "the rest is left".into(),
            });
            program.emit(turn_ended_event(StopReason::EndTurn, None));
            return program
                .wait_for_input(|input| input.should_close_input)
                .err()
                .unwrap_or(Exit::Signal(15));
        }
        open_session(program);
        program.append(
            "a",
            &format!(
                "{}\n",
                program
                    .launch()
                    .prompt
                    .lines()
                    .filter(|line| line.contains("is done") || line.contains("mind"))
                    .collect::<Vec<_>>()
                    .join("|")
            ),
        );
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        program
            .wait_for_input(|input| input.should_close_input)
            .err()
            .unwrap_or(Exit::Code(0))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    wait_until(&engine, "the turn has started", |board| {
        board
            .attempts
            .values()
            .any(|attempt| attempt.session.in_turn)
    });
    submit(
        &engine,
        Command::Tell {
            task: TaskId(1),
            text: "and mind the gap".into(),
        },
    );
    wait_until_done(&engine, &life, &world);
    let task = engine.history().task(TaskId(1)).unwrap().unwrap();
    assert_eq!((task.status, task.failures), (TaskStatus::Completed, 0));
    let first = engine.history().attempt(FIRST_ATTEMPT).unwrap().unwrap();
    assert_eq!(
        first.end.map(|end| end.cause),
        Some(AttemptCause::ContextFull)
    );
    let second = engine.history().attempt(AttemptId(2)).unwrap().unwrap();
    assert_eq!(
        (second.workspace(), second.resumed_session()),
        (FIRST_ATTEMPT, None)
    );
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
        open_session(program);
        program.emit(usage_event(30));
        program.append("a", "done\n");
        program.report_usage(
            "s1",
            Usage {
                output: 70,
                ..Usage::default()
            },
        );
        program.report_usage(
            "s2",
            Usage {
                output: 5,
                ..Usage::default()
            },
        );
        // A report below the recorded use, or of nothing, charges nothing.
        program.report_usage(
            "s1",
            Usage {
                output: 20,
                ..Usage::default()
            },
        );
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        program
            .wait_for_input(|input| input.should_close_input)
            .err()
            .unwrap_or(Exit::Code(0))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch_one(&engine);
    wait_until_done(&engine, &life, &world);
    let attempt = engine.history().attempt(FIRST_ATTEMPT).unwrap().unwrap();
    assert_eq!(attempt.used.tokens(), 75);
    let day = budget::day_of(engine.now());
    assert_eq!(
        budget::spent_on(&engine.board(), day, None).usage.tokens(),
        75
    );
    engine.shutdown();
}

/// No event happens at midnight. The dispatcher itself notices that the new day has a budget.
#[test]
fn work_parked_by_the_days_budget_continues_on_the_next_day() {
    let world = World::new(|program| {
        open_session(program);
        if program.run_number() == 1 {
            program.emit(usage_event(120));
            program.emit(AgentEvent::Plan { entries: vec![] });
            return program.hang_until_stopped();
        }
        program.append("a", "done\n");
        program.emit(turn_ended_event(StopReason::EndTurn, None));
        program
            .wait_for_input(|input| input.should_close_input)
            .err()
            .unwrap_or(Exit::Code(0))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let ceiling = budget::Ceiling {
        tokens: Some(100),
        ..Default::default()
    };
    submit(
        &engine,
        Command::SetBudget {
            scope: budget::BudgetScope::Day,
            ceiling,
        },
    );
    launch_one(&engine);
    let board = wait_until(&engine, "the attempt is parked", |board| {
        board.counters.attempt == 1 && board.attempts.is_empty()
    });
    let reasons = wait_reasons(&board, &board.tasks[&TaskId(1)], engine.now());
    assert!(
        reasons.iter().any(|reason| reason.kind == WaitKind::Budget),
        "{reasons:?}"
    );
    world.clock.advance(Duration::from_secs(24 * 60 * 60));
    wait_until_done(&engine, &life, &world);
    assert_eq!(world.git.trunk(std::path::Path::new(REPO))["a"], "done\n");
    engine.shutdown();
}
