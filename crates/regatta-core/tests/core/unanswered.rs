//! Questions that nobody answers in time: they stay open, work does not land unanswered, and the
//! answer reaches the attempt that works on the task by then.

use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, RequestAnswer, RequestContent, StopReason,
};
use regatta_core::approval::AnswerScope;
use regatta_core::attempt::ProgramExit;
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::ApprovalId;
use regatta_core::inbox;
use regatta_core::project::UnansweredPolicy;
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::task::{AssignMode, TaskStatus};

use crate::world::{World, exit_report, finish_command, passed_verdict, registration, task_to_add};

const Q1: ApprovalId = ApprovalId(1);

fn question() -> RequestContent {
    RequestContent::Question {
        text: "Blue or red?".into(),
        choices: vec!["blue".into(), "red".into()],
        schema: None,
    }
}

/// Asks a question with the tool, as `attempt.ask` does.
fn ask_with_tool(world: &mut World, grant: &PollGrant, key: &str) -> ApprovalId {
    let request = AgentRequest {
        id: format!("tool-{key}"),
        content: question(),
    };
    match world.ask(
        "ada",
        Command::Ask {
            task: grant.task,
            attempt: grant.attempt,
            token: grant.token,
            request,
        },
    ) {
        CommandOutcome::Approval(id) => id,
        other => panic!("{other:?}"),
    }
}

fn continue_without_answer(world: &mut World, grant: &PollGrant, assumed: &str) {
    let PollGrant {
        task,
        attempt,
        token,
        ..
    } = *grant;
    world.ask(
        "ada",
        Command::ContinueWithoutAnswer {
            task,
            attempt,
            token,
            approval: Q1,
            assumed: assumed.into(),
        },
    );
}

fn answer_question(world: &mut World, text: &str) {
    let answer = RequestAnswer::Text { text: text.into() };
    world.ask(
        "ann",
        Command::Decide {
            approval: Q1,
            answer,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );
}

fn is_question_open(world: &World) -> bool {
    world
        .board
        .approvals
        .get(&Q1)
        .is_some_and(|asked| asked.is_open())
}

/// Returns an attempt of an agent whose program accepts no messages while it works.
fn world_without_session() -> (World, PollGrant) {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_for(task_to_add("a", &["a"]), Some("ada"), AssignMode::Queue);
    let grant = world.take_supervised_task("ada");
    (world, grant)
}

/// Returns an attempt of an agent whose program accepts messages, in its first turn.
fn world_with_session() -> (World, PollGrant) {
    let mut world = World::with_agents(&[]);
    let runtime = Runtime::Acp {
        argv: vec!["talks".into()],
    };
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            runtime,
            ..registration("ada", 1)
        }),
    );
    world.add_for(task_to_add("a", &["a"]), Some("ada"), AssignMode::Queue);
    let grant = world.take_supervised_task("ada");
    report_event(
        &mut world,
        &grant,
        AgentEvent::Started {
            session: Some("s1".into()),
            model: None,
        },
    );
    report_event(&mut world, &grant, AgentEvent::TurnStarted { n: 0 });
    (world, grant)
}

fn report_event(world: &mut World, grant: &PollGrant, event: AgentEvent) {
    let n = world.board.attempts[&grant.attempt].session.last_record + 1;
    world.report(Report::AgentEvent {
        attempt: grant.attempt,
        token: grant.token,
        n,
        event,
    });
}

fn end_turn(world: &mut World, grant: &PollGrant) {
    report_event(
        world,
        grant,
        AgentEvent::TurnEnded {
            stop: StopReason::EndTurn,
            class: None,
            detail: String::new(),
        },
    );
}

/// The program ends, and its work passes the task's checks.
fn finish_work(world: &mut World, grant: &PollGrant) {
    world.report(exit_report(grant, ProgramExit::Done { output: None }));
    world.report_verdict(grant, passed_verdict(&["a"]));
}

fn set_unanswered_policy(world: &mut World, unanswered: UnansweredPolicy) {
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.landing.unanswered = unanswered;
    world.ask("ann", Command::AddProject(project));
}

/// Work does not land while its question is open, and its wait reason says so.
#[test]
fn finished_work_waits_for_the_answer_to_its_question() {
    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    continue_without_answer(&mut world, &grant, "green");
    finish_work(&mut world, &grant);
    assert_eq!(world.status(grant.task), TaskStatus::InReview);
    assert_eq!(world.wait_kinds(grant.task), [WaitKind::Question]);
    assert!(world.board.landings.is_empty() && is_question_open(&world));
    let items = inbox::open_items(&world.board, world.now);
    let [item] = items.as_slice() else {
        panic!("expected only the question: {items:?}")
    };
    assert!(item.why.contains("green"), "{item:?}");
    world.restart();
    assert!(is_question_open(&world), "a restart closed the question");
    answer_question(&mut world, "Green");
    assert_eq!(
        world.status(grant.task),
        TaskStatus::Landing,
        "the answer equals the assumption, so the work lands"
    );
}

/// An answer that differs from the assumption sends the work back with the answer, and costs no
/// attempt.
#[test]
fn an_answer_that_differs_from_the_assumption_sends_the_work_back() {
    for assumed in [Some("green"), None] {
        let (mut world, grant) = world_without_session();
        ask_with_tool(&mut world, &grant, "1");
        if let Some(assumed) = assumed {
            continue_without_answer(&mut world, &grant, assumed);
        }
        finish_work(&mut world, &grant);
        answer_question(&mut world, "blue");
        let task = world.task(grant.task).clone();
        assert_eq!(
            (task.status, task.failures),
            (TaskStatus::Pending, 0),
            "{assumed:?}"
        );
        let next = world.take_supervised_task("ada");
        let notes = world.board.attempts[&next.attempt].notes.join("\n");
        assert!(
            notes.contains("Blue or red?") && notes.contains("The answer: blue"),
            "{notes}"
        );
    }
}

/// A person who declines to answer lets the work land as it is, and so does a person who lands it
/// by hand.
#[test]
fn a_person_may_let_unanswered_work_land() {
    for by_hand in [false, true] {
        let (mut world, grant) = world_without_session();
        ask_with_tool(&mut world, &grant, "1");
        finish_work(&mut world, &grant);
        world.ask(
            "ann",
            if by_hand {
                Command::Land {
                    task: grant.task,
                    first: false,
                }
            } else {
                Command::Decide {
                    approval: Q1,
                    answer: RequestAnswer::Deny { reason: None },
                    scope: AnswerScope::Once,
                    also: vec![],
                }
            },
        );
        assert_eq!(world.status(grant.task), TaskStatus::Landing);
        assert!(
            world.board.approvals.is_empty(),
            "the question is still open"
        );
    }
}

/// With `unanswered = "land"` work with a stated assumption lands, with a warning. Work without one
/// still waits.
#[test]
fn the_policy_lets_work_with_an_assumption_land() {
    for assumed in [Some("green"), None] {
        let (mut world, grant) = world_without_session();
        set_unanswered_policy(&mut world, UnansweredPolicy::Land);
        ask_with_tool(&mut world, &grant, "1");
        if let Some(assumed) = assumed {
            continue_without_answer(&mut world, &grant, assumed);
        }
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        let landing = world.report_verdict(&grant, passed_verdict(&["a"]));
        match landing {
            Some(landing) => {
                assert!(assumed.is_some());
                let warnings = world.task(grant.task).warnings.join("\n");
                assert!(
                    warnings.contains("nobody answered Q1") && warnings.contains("green"),
                    "{warnings}"
                );
                assert!(
                    is_question_open(&world),
                    "the question is closed before the work has landed"
                );
                world.move_and_land(landing);
                assert!(
                    world.board.approvals.is_empty(),
                    "the question outlives its task"
                );
            }
            None => assert_eq!(
                (assumed, world.status(grant.task)),
                (None, TaskStatus::InReview)
            ),
        }
    }
}

/// An answer that contradicts the assumption takes the work out of the queue.
#[test]
fn a_contradicting_answer_takes_the_work_out_of_the_queue() {
    let (mut world, grant) = world_without_session();
    set_unanswered_policy(&mut world, UnansweredPolicy::Land);
    ask_with_tool(&mut world, &grant, "1");
    continue_without_answer(&mut world, &grant, "green");
    finish_work(&mut world, &grant);
    assert_eq!(world.status(grant.task), TaskStatus::Landing);
    answer_question(&mut world, "blue");
    assert_eq!(world.status(grant.task), TaskStatus::Pending);
}

/// An answer that no agent can take any more is closed with its task. The program of the second
/// attempt accepts no messages, so the answer still waits when the task is cancelled.
#[test]
fn an_unread_answer_ends_with_its_task() {
    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    world.report(exit_report(&grant, ProgramExit::Lost));
    world.advance(3_600_000);
    let second = world.take_supervised_task("ada");
    answer_question(&mut world, "blue");
    assert!(
        world.board.approvals.contains_key(&Q1),
        "the answer needs no delivery"
    );
    world.cancel(second.task);
    world.report(exit_report(&second, ProgramExit::Lost));
    assert!(
        world.board.approvals.is_empty(),
        "the answered question outlives its task"
    );
}

/// A question survives the end of its attempt, and its answer reaches the next attempt.
#[test]
fn a_question_outlives_its_attempt() {
    for how in ["lost", "failed", "stopped"] {
        let (mut world, grant) = world_without_session();
        ask_with_tool(&mut world, &grant, "1");
        if how == "stopped" {
            world.stop(grant.task);
        }
        let exited = match how {
            "failed" => ProgramExit::Failed {
                reason: "x".into(),
                class: None,
            },
            _ => ProgramExit::Lost,
        };
        world.report(exit_report(&grant, exited));
        assert!(is_question_open(&world), "{how}");
        answer_question(&mut world, "blue");
        assert!(world.board.approvals.is_empty(), "{how}");
        world.advance(3_600_000);
        let next = world.take_supervised_task("ada");
        let notes = world.board.attempts[&next.attempt].notes.join("\n");
        assert!(notes.contains("The answer: blue"), "{how}: {notes}");
    }
}

/// When the next attempt asks the same question, it joins the open one and waits for the same
/// answer.
#[test]
fn the_same_question_is_not_asked_twice() {
    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    world.report(exit_report(&grant, ProgramExit::Lost));
    let next = world.take_supervised_task("ada");
    assert_eq!(ask_with_tool(&mut world, &next, "2"), Q1);
    // The program that works now does not accept messages, so its work goes back instead of
    // landing.
    answer_question(&mut world, "blue");
    finish_work(&mut world, &next);
    assert_eq!(world.status(grant.task), TaskStatus::Pending);
    let last = world.take_supervised_task("ada");
    assert!(
        world.board.attempts[&last.attempt]
            .notes
            .join("\n")
            .contains("The answer: blue")
    );
}

/// A question ends when its task is cancelled, before or after its attempt has ended.
#[test]
fn a_question_ends_with_its_task() {
    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    world.report(exit_report(&grant, ProgramExit::Lost));
    world.cancel(grant.task);
    assert!(world.board.approvals.is_empty());
    let answer = RequestAnswer::Text {
        text: "blue".into(),
    };
    world.ask_refused(
        "ann",
        Command::Decide {
            approval: Q1,
            answer,
            scope: AnswerScope::Once,
            also: vec![],
        },
    );

    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    world.cancel(grant.task);
    world.report(exit_report(&grant, ProgramExit::Lost));
    assert!(world.board.approvals.is_empty());
}

/// An agent with an open question can finish only after it states an assumption.
#[test]
fn an_agent_with_an_open_question_finishes_only_after_stating_an_assumption() {
    let (mut world, grant) = world_without_session();
    ask_with_tool(&mut world, &grant, "1");
    let refusal = world.ask_refused("ada", finish_command(&grant));
    assert!(
        refusal
            .message()
            .contains("nobody has answered the question Q1"),
        "{}",
        refusal.message()
    );
    for bad in ["", " ", &"x".repeat(5_000)] {
        let PollGrant {
            task,
            attempt,
            token,
            ..
        } = grant;
        world.ask_refused(
            "ada",
            Command::ContinueWithoutAnswer {
                task,
                attempt,
                token,
                approval: Q1,
                assumed: bad.into(),
            },
        );
    }
    continue_without_answer(&mut world, &grant, "green");
    world.ask("ada", finish_command(&grant));
    let RequestContent::Question { choices, .. } = &world.board.approvals[&Q1].request.content
    else {
        panic!()
    };
    assert_eq!(
        choices,
        &["blue", "red", "green"],
        "the assumption is one of the choices"
    );
}

/// A program that accepts messages may end its turn while it waits. It receives the answer in its
/// next turn.
#[test]
fn an_agent_that_accepts_messages_gets_the_answer_between_its_turns() {
    let (mut world, grant) = world_with_session();
    ask_with_tool(&mut world, &grant, "1");
    end_turn(&mut world, &grant);
    assert!(
        is_question_open(&world) && !world.board.attempts[&grant.attempt].session.closing,
        "the attempt ended while its question was open"
    );
    world.advance(24 * 3_600_000);
    assert!(
        world.board.attempts.contains_key(&grant.attempt),
        "waiting for a person does not use up its time"
    );
    answer_question(&mut world, "blue");
    let talk = &world.board.attempts[&grant.attempt].session;
    assert!(
        talk.follow_ups
            .last()
            .is_some_and(|told| told.contains("The answer: blue")),
        "{talk:?}"
    );
    report_event(&mut world, &grant, AgentEvent::TurnStarted { n: 1 });
    end_turn(&mut world, &grant);
    assert!(world.board.attempts[&grant.attempt].session.closing);
    finish_work(&mut world, &grant);
    assert_eq!(world.status(grant.task), TaskStatus::Landing);
}

/// An answer that the agent did not fetch during its turn is sent to it afterwards. An answer that
/// it fetched is not sent again.
#[test]
fn an_answer_is_sent_to_the_agent_once() {
    for fetched in [true, false] {
        let (mut world, grant) = world_with_session();
        ask_with_tool(&mut world, &grant, "1");
        answer_question(&mut world, "blue");
        if fetched {
            world.ask(
                "ada",
                Command::MarkAnswerRead {
                    attempt: grant.attempt,
                    approval: Q1,
                },
            );
        }
        end_turn(&mut world, &grant);
        assert_eq!(
            world.board.attempts[&grant.attempt]
                .session
                .follow_ups
                .len(),
            usize::from(!fetched)
        );
    }
    // An agent that goes on with an assumption gets the answer at once.
    let (mut world, grant) = world_with_session();
    ask_with_tool(&mut world, &grant, "1");
    continue_without_answer(&mut world, &grant, "green");
    answer_question(&mut world, "blue");
    let talk = &world.board.attempts[&grant.attempt].session;
    assert!(
        talk.follow_ups
            .iter()
            .any(|told| told.contains("You had assumed: green")),
        "{talk:?}"
    );
}

/// A question in a program's own protocol is kept when a person ends its turn, but not when the
/// program withdraws it.
#[test]
fn a_question_of_the_protocol_is_kept_when_its_turn_is_interrupted() {
    for paused in [true, false] {
        let (mut world, grant) = world_with_session();
        report_event(
            &mut world,
            &grant,
            AgentEvent::RequestMade(AgentRequest {
                id: "7".into(),
                content: question(),
            }),
        );
        if paused {
            world.ask(
                "ann",
                Command::PauseTask {
                    task: grant.task,
                    reason: "wait".into(),
                },
            );
        }
        report_event(
            &mut world,
            &grant,
            AgentEvent::RequestWithdrawn {
                request: "7".into(),
            },
        );
        assert_eq!(is_question_open(&world), paused);
    }
}
