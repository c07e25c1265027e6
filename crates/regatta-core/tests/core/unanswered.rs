//! Questions that nobody answers in time: they stay open, work does not land unanswered, and the
//! answer reaches the attempt that works on the task by then.

use regatta_core::agent::{Register, Runtime};
use regatta_core::approval::Reach;
use regatta_core::attempt::Exited;
use regatta_core::command::{Command, Outcome};
use regatta_core::ids::ApprovalId;
use regatta_core::inbox;
use regatta_core::project::Unanswered;
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::session::{Answer, Ask, Said, Stop, Want};
use regatta_core::task::{How, Status};

use crate::world::{World, exits, finishes, passed, registers, work};

const Q1: ApprovalId = ApprovalId(1);

fn question() -> Want {
    Want::Question { text: "Blue or red?".into(), choices: vec!["blue".into(), "red".into()], schema: None }
}

/// Asks a question with the tool, as `attempt.ask` does.
fn asks(world: &mut World, grant: &Grant, key: &str) -> ApprovalId {
    let ask = Ask { id: format!("tool-{key}"), want: question() };
    match world.ask("ada", Command::Ask { task: grant.task, attempt: grant.attempt, token: grant.token, ask }) {
        Outcome::Asked(id) => id,
        other => panic!("{other:?}"),
    }
}

fn goes_on(world: &mut World, grant: &Grant, assumed: &str) {
    let Grant { task, attempt, token, .. } = *grant;
    world.ask("ada", Command::GoOn { task, attempt, token, approval: Q1, assumed: assumed.into() });
}

fn answers(world: &mut World, text: &str) {
    let answer = Answer::Text { text: text.into() };
    world.ask("ann", Command::Decide { approval: Q1, answer, reach: Reach::Once, also: vec![] });
}

fn is_open(world: &World) -> bool {
    world.board.approvals.get(&Q1).is_some_and(|asked| asked.is_open())
}

/// Returns an attempt of an agent whose program accepts no messages while it works.
fn plain() -> (World, Grant) {
    let mut world = World::with(&[("ada", 1)]);
    world.add_for(work("a", &["a"]), Some("ada"), How::Queue);
    let grant = world.take_supervised("ada");
    (world, grant)
}

/// Returns an attempt of an agent whose program accepts messages, in its first turn.
fn talking() -> (World, Grant) {
    let mut world = World::with(&[]);
    let runtime = Runtime::Acp { argv: vec!["talks".into()] };
    world.ask("ann", Command::RegisterAgent(Register { runtime, ..registers("ada", 1) }));
    world.add_for(work("a", &["a"]), Some("ada"), How::Queue);
    let grant = world.take_supervised("ada");
    says(&mut world, &grant, Said::Started { session: Some("s1".into()), model: None });
    says(&mut world, &grant, Said::TurnStarted { n: 0 });
    (world, grant)
}

fn says(world: &mut World, grant: &Grant, said: Said) {
    let n = world.board.attempts[&grant.attempt].talk.heard + 1;
    world.ask("regatta", Command::ReportSaid { attempt: grant.attempt, token: grant.token, n, said });
}

fn ends_turn(world: &mut World, grant: &Grant) {
    says(world, grant, Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: String::new() });
}

/// The program ends, and its work passes the task's checks.
fn is_done(world: &mut World, grant: &Grant) {
    world.ask("regatta", exits(grant, Exited::Done { output: None }));
    world.judge(grant, passed(&["a"]));
}

fn lands_with(world: &mut World, unanswered: Unanswered) {
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.landing.unanswered = unanswered;
    world.ask("ann", Command::AddProject(ask));
}

/// Work does not land while its question is open, and its wait reason says so.
#[test]
fn finished_work_waits_for_the_answer_to_its_question() {
    let (mut world, grant) = plain();
    asks(&mut world, &grant, "1");
    goes_on(&mut world, &grant, "green");
    is_done(&mut world, &grant);
    assert_eq!(world.status(grant.task), Status::InReview);
    assert_eq!(world.reasons(grant.task), [WaitKind::Question]);
    assert!(world.board.landings.is_empty() && is_open(&world));
    let items = inbox::open(&world.board, world.now);
    let [item] = items.as_slice() else { panic!("expected only the question: {items:?}") };
    assert!(item.why.contains("green"), "{item:?}");
    world.restart();
    assert!(is_open(&world), "a restart closed the question");
    answers(&mut world, "Green");
    assert_eq!(world.status(grant.task), Status::Landing, "the answer equals the assumption, so the work lands");
}

/// An answer that differs from the assumption sends the work back with the answer, and costs no
/// attempt.
#[test]
fn an_answer_that_differs_from_the_assumption_sends_the_work_back() {
    for assumed in [Some("green"), None] {
        let (mut world, grant) = plain();
        asks(&mut world, &grant, "1");
        if let Some(assumed) = assumed {
            goes_on(&mut world, &grant, assumed);
        }
        is_done(&mut world, &grant);
        answers(&mut world, "blue");
        let task = world.task(grant.task).clone();
        assert_eq!((task.status, task.failures), (Status::Pending, 0), "{assumed:?}");
        let next = world.take_supervised("ada");
        let notes = world.board.attempts[&next.attempt].notes.join("\n");
        assert!(notes.contains("Blue or red?") && notes.contains("The answer: blue"), "{notes}");
    }
}

/// A person who declines to answer lets the work land as it is, and so does a person who lands it
/// by hand.
#[test]
fn a_person_may_let_unanswered_work_land() {
    for by_hand in [false, true] {
        let (mut world, grant) = plain();
        asks(&mut world, &grant, "1");
        is_done(&mut world, &grant);
        world.ask(
            "ann",
            match by_hand {
                true => Command::Land { task: grant.task, first: false },
                false => Command::Decide {
                    approval: Q1,
                    answer: Answer::Deny { words: None },
                    reach: Reach::Once,
                    also: vec![],
                },
            },
        );
        assert_eq!(world.status(grant.task), Status::Landing);
        assert!(world.board.approvals.is_empty(), "the question is still open");
    }
}

/// With `unanswered = "land"` work with a stated assumption lands, with a warning. Work without one
/// still waits.
#[test]
fn the_policy_lets_work_with_an_assumption_land() {
    for assumed in [Some("green"), None] {
        let (mut world, grant) = plain();
        lands_with(&mut world, Unanswered::Land);
        asks(&mut world, &grant, "1");
        if let Some(assumed) = assumed {
            goes_on(&mut world, &grant, assumed);
        }
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        let landing = world.judge(&grant, passed(&["a"]));
        match landing {
            Some(landing) => {
                assert!(assumed.is_some());
                let warnings = world.task(grant.task).warnings.join("\n");
                assert!(warnings.contains("nobody answered Q1") && warnings.contains("green"), "{warnings}");
                assert!(is_open(&world), "the question is closed before the work has landed");
                world.land(landing);
                assert!(world.board.approvals.is_empty(), "the question outlives its task");
            }
            None => assert_eq!((assumed, world.status(grant.task)), (None, Status::InReview)),
        }
    }
}

/// An answer that contradicts the assumption takes the work out of the queue.
#[test]
fn a_contradicting_answer_takes_the_work_out_of_the_queue() {
    let (mut world, grant) = plain();
    lands_with(&mut world, Unanswered::Land);
    asks(&mut world, &grant, "1");
    goes_on(&mut world, &grant, "green");
    is_done(&mut world, &grant);
    assert_eq!(world.status(grant.task), Status::Landing);
    answers(&mut world, "blue");
    assert_eq!(world.status(grant.task), Status::Pending);
}

/// A question survives the end of its attempt, and its answer reaches the next attempt.
#[test]
fn a_question_outlives_its_attempt() {
    for how in ["lost", "failed", "stopped"] {
        let (mut world, grant) = plain();
        asks(&mut world, &grant, "1");
        if how == "stopped" {
            world.stop(grant.task);
        }
        let exited = match how {
            "failed" => Exited::Failed { reason: "x".into(), class: None },
            _ => Exited::Lost,
        };
        world.ask("regatta", exits(&grant, exited));
        assert!(is_open(&world), "{how}");
        answers(&mut world, "blue");
        assert!(world.board.approvals.is_empty(), "{how}");
        world.advance(3_600_000);
        let next = world.take_supervised("ada");
        let notes = world.board.attempts[&next.attempt].notes.join("\n");
        assert!(notes.contains("The answer: blue"), "{how}: {notes}");
    }
}

/// When the next attempt asks the same question, it joins the open one and waits for the same
/// answer.
#[test]
fn the_same_question_is_not_asked_twice() {
    let (mut world, grant) = plain();
    asks(&mut world, &grant, "1");
    world.ask("regatta", exits(&grant, Exited::Lost));
    let next = world.take_supervised("ada");
    assert_eq!(asks(&mut world, &next, "2"), Q1);
    // The program that works now does not accept messages, so its work goes back instead of
    // landing.
    answers(&mut world, "blue");
    is_done(&mut world, &next);
    assert_eq!(world.status(grant.task), Status::Pending);
    let last = world.take_supervised("ada");
    assert!(world.board.attempts[&last.attempt].notes.join("\n").contains("The answer: blue"));
}

/// A question ends when its task is cancelled, before or after its attempt has ended.
#[test]
fn a_question_ends_with_its_task() {
    let (mut world, grant) = plain();
    asks(&mut world, &grant, "1");
    world.ask("regatta", exits(&grant, Exited::Lost));
    world.cancel(grant.task);
    assert!(world.board.approvals.is_empty());
    let answer = Answer::Text { text: "blue".into() };
    world.refused("ann", Command::Decide { approval: Q1, answer, reach: Reach::Once, also: vec![] });

    let (mut world, grant) = plain();
    asks(&mut world, &grant, "1");
    world.cancel(grant.task);
    world.ask("regatta", exits(&grant, Exited::Lost));
    assert!(world.board.approvals.is_empty());
}

/// An agent with an open question can finish only after it states an assumption.
#[test]
fn an_agent_with_an_open_question_finishes_only_after_stating_an_assumption() {
    let (mut world, grant) = plain();
    asks(&mut world, &grant, "1");
    let refusal = world.refused("ada", finishes(&grant));
    assert!(refusal.message().contains("nobody has answered Q1"), "{}", refusal.message());
    for bad in ["", " ", &"x".repeat(5_000)] {
        let Grant { task, attempt, token, .. } = grant;
        world.refused("ada", Command::GoOn { task, attempt, token, approval: Q1, assumed: bad.into() });
    }
    goes_on(&mut world, &grant, "green");
    world.ask("ada", finishes(&grant));
    let Want::Question { choices, .. } = &world.board.approvals[&Q1].ask.want else { panic!() };
    assert_eq!(choices, &["blue", "red", "green"], "the assumption is one of the choices");
}

/// A program that accepts messages may end its turn while it waits. It receives the answer in its
/// next turn.
#[test]
fn an_agent_that_accepts_messages_gets_the_answer_between_its_turns() {
    let (mut world, grant) = talking();
    asks(&mut world, &grant, "1");
    ends_turn(&mut world, &grant);
    assert!(
        is_open(&world) && !world.board.attempts[&grant.attempt].talk.closing,
        "the attempt ended while its question was open"
    );
    world.advance(24 * 3_600_000);
    assert!(world.board.attempts.contains_key(&grant.attempt), "waiting for a person does not use up its time");
    answers(&mut world, "blue");
    let talk = &world.board.attempts[&grant.attempt].talk;
    assert!(talk.tells.last().is_some_and(|told| told.contains("The answer: blue")), "{talk:?}");
    says(&mut world, &grant, Said::TurnStarted { n: 1 });
    ends_turn(&mut world, &grant);
    assert!(world.board.attempts[&grant.attempt].talk.closing);
    is_done(&mut world, &grant);
    assert_eq!(world.status(grant.task), Status::Landing);
}

/// An answer that the agent did not fetch during its turn is sent to it afterwards. An answer that
/// it fetched is not sent again.
#[test]
fn an_answer_is_sent_to_the_agent_once() {
    for fetched in [true, false] {
        let (mut world, grant) = talking();
        asks(&mut world, &grant, "1");
        answers(&mut world, "blue");
        if fetched {
            world.ask("ada", Command::NoteHeard { attempt: grant.attempt, approval: Q1 });
        }
        ends_turn(&mut world, &grant);
        assert_eq!(world.board.attempts[&grant.attempt].talk.tells.len(), usize::from(!fetched));
    }
    // An agent that goes on with an assumption gets the answer at once.
    let (mut world, grant) = talking();
    asks(&mut world, &grant, "1");
    goes_on(&mut world, &grant, "green");
    answers(&mut world, "blue");
    let talk = &world.board.attempts[&grant.attempt].talk;
    assert!(talk.tells.iter().any(|told| told.contains("You had assumed: green")), "{talk:?}");
}

/// A question in a program's own protocol is kept when a person ends its turn, but not when the
/// program withdraws it.
#[test]
fn a_question_of_the_protocol_is_kept_when_its_turn_is_interrupted() {
    for paused in [true, false] {
        let (mut world, grant) = talking();
        says(&mut world, &grant, Said::Asked(Ask { id: "7".into(), want: question() }));
        if paused {
            world.ask("ann", Command::PauseTask { task: grant.task, reason: "wait".into() });
        }
        says(&mut world, &grant, Said::Withdrew { ask: "7".into() });
        assert_eq!(is_open(&world), paused);
    }
}
