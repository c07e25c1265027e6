//! Retries: the cost of each end of an attempt, the wait before the next one, and the end of
//! retrying.

use regatta_core::attempt::{Cause, Exited, Verdict};
use regatta_core::command::{Command, Outcome};
use regatta_core::fleet::Limits;
use regatta_core::ids::TaskId;
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::session::Class;
use regatta_core::task::{MOST_FAILURES, Status};

use crate::world::{HOUR, World, agent, exits, passed};

/// Ends an attempt in one way.
type Ends = fn(&mut World, &Grant);

/// The task's state after its attempts ended in the same way again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// It costs no attempt, so the task is retried without an end.
    Goes,
    /// The work failed its checks, so the task fails.
    Fails,
    /// A person must decide.
    Person(WaitKind),
}

fn failed(class: Class) -> Exited {
    Exited::Failed { reason: "no idea".into(), class: Some(class) }
}

fn judged(world: &mut World, grant: &Grant, verdict: Verdict) {
    world.ask("regatta", exits(grant, Exited::Done { output: None }));
    assert_eq!(world.judge(grant, verdict), None);
}

/// Reports that the process that was being stopped has ended.
fn gone(world: &mut World, grant: &Grant) {
    world.ask("regatta", exits(grant, Exited::Lost));
}

fn table() -> Vec<(Cause, bool, Then, Ends)> {
    let runner = Then::Person(WaitKind::Runner);
    vec![
        (Cause::Invalid, false, Then::Fails, |world, grant| {
            judged(world, grant, Verdict::Failed { reason: "no idea".into() });
        }),
        (Cause::NothingChanged, false, Then::Person(WaitKind::Review), |world, grant| {
            judged(world, grant, passed(&[]));
        }),
        (Cause::ScopeEscape, false, Then::Person(WaitKind::Policy), |world, grant| {
            judged(world, grant, passed(&["elsewhere"]));
        }),
        (Cause::Environment, true, runner, |world, grant| {
            judged(world, grant, Verdict::Unknown { reason: "no idea".into() });
        }),
        (Cause::Environment, true, runner, |world, grant| {
            world.ask("regatta", exits(grant, Exited::NotRun { reason: "no idea".into(), fault: None }));
        }),
        (Cause::Crashed, true, runner, |world, grant| {
            world.ask("regatta", exits(grant, failed(Class::Crashed)));
        }),
        (Cause::TimedOut, true, runner, |world, grant| {
            world.ask("regatta", exits(grant, failed(Class::Timeout)));
        }),
        (Cause::TimedOut, true, runner, |world, grant| {
            let until = world.board.attempts[&grant.attempt].until_at.unwrap();
            world.pass(until - world.now.at);
            world.ask("regatta", Command::Tick);
            gone(world, grant);
        }),
        (Cause::Hung, true, runner, |world, grant| {
            let since_ms = Some(world.board.limits.silence_ms);
            world.ask("regatta", Command::ReportSilent { attempt: grant.attempt, token: grant.token, since_ms });
            gone(world, grant);
        }),
        // The first retry is immediate, because nothing suggests that it will happen again.
        (Cause::Lost, false, Then::Goes, |world, grant| {
            world.ask("regatta", exits(grant, Exited::Lost));
        }),
        (Cause::Overloaded, true, Then::Goes, |world, grant| {
            world.ask("regatta", exits(grant, failed(Class::Overloaded)));
        }),
        (Cause::Parked, false, Then::Goes, |world, grant| {
            world.ask("regatta", exits(grant, failed(Class::RateLimit)));
        }),
    ]
}

/// J6: a task without attempts left needs a person, with the evidence. If its own checks failed, it
/// has failed. Limits and lost runners cost no attempt, and the wait after a broken-off attempt
/// doubles.
#[test]
fn j6_the_cause_of_an_end_decides_its_cost_and_the_next_step() {
    for (line, (cause, pauses, then, ends)) in table().into_iter().enumerate() {
        let mut world = World::with(&[("ada", 1)]);
        let limits = Limits { retry_ms: 1_000, retry_most_ms: HOUR, ..Limits::default() };
        world.ask("ann", Command::SetLimits { limits });
        let task = world.add_task("words", &["src/**"]);
        let mut last = 0;
        for count in 1..=MOST_FAILURES + 2 {
            let Some(grant) = next(&mut world) else { panic!("{line}, {cause:?}: nothing to take, {count}") };
            assert_eq!(grant.task, task);
            ends(&mut world, &grant);
            assert!(!world.board.attempts.contains_key(&grant.attempt), "{line}: the attempt has not ended");
            let ended = world.find_stored(task).unwrap();
            assert_eq!(ended.last_cause, Some(cause), "{line}");
            if count == 1 && pauses {
                last = ended.not_before.expect("the retry has a wait").saturating_sub(world.now.at);
                assert_eq!(last, 1_000, "{line}, {cause:?}");
            } else if count == 2 && pauses {
                let next = ended.not_before.expect("the retry has a wait").saturating_sub(world.now.at);
                assert_eq!(next, 2 * last, "{line}, {cause:?}: the wait did not double");
            } else if count == 1 {
                assert_eq!(ended.not_before, None, "{line}, {cause:?}");
            }
            if then != Then::Goes && count == MOST_FAILURES {
                break;
            }
            assert!(ended.status.is_waiting(), "{line}, {cause:?}: {}", ended.status);
            assert_eq!(ended.failures, if then == Then::Goes { 0 } else { count }, "{line}, {cause:?}");
        }
        check_end(&world, task, then, &format!("{line}, {cause:?}"));
    }
}

/// Takes the next attempt as soon as it is due.
fn next(world: &mut World) -> Option<Grant> {
    for _ in 0..20 {
        if let Some(grant) = world.poll_supervised("ada") {
            return Some(grant);
        }
        let due = world.board.next_deadline(world.now)?;
        world.advance(due.saturating_sub(world.now.at));
    }
    None
}

fn check_end(world: &World, task: TaskId, then: Then, line: &str) {
    let ended = world.stored(task);
    match then {
        Then::Goes => return assert!(ended.status.is_waiting(), "{line}: {}", ended.status),
        Then::Fails => assert_eq!(ended.status, Status::Failed, "{line}"),
        Then::Person(kind) => {
            assert_eq!((ended.status, ended.needs), (Status::NeedsHuman, Some(kind)), "{line}");
            assert_eq!(world.reasons(task), [kind], "{line}: the wait reason does not say so");
        }
    }
    assert!(ended.reason.as_deref().unwrap().starts_with("3 attempts failed; the last one: "), "{line}: {ended:?}");
}

/// A person can always try again.
#[test]
fn a_person_can_retry_a_task_without_attempts_left() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    for _ in 0..MOST_FAILURES {
        let grant = next(&mut world).unwrap();
        world.ask("regatta", exits(&grant, failed(Class::Crashed)));
    }
    assert_eq!(world.status(task), Status::NeedsHuman);
    assert_eq!(world.poll_supervised("ada"), None);
    world.ask("ann", Command::RetryTask { task, failed: None });
    let grant = world.poll_supervised("ada").expect("the retry starts at once");
    assert_eq!(grant.task, task);
}

/// A failed task stays failed. Its retry is a new task, whose attempt gets the reason of the
/// failure.
#[test]
fn the_retry_of_a_failed_task_gets_the_reason_of_the_failure() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("part", &["a.rs"]);
    let grant = world.take("ada");
    let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
    world.ask("ada", Command::GiveUp { task, attempt, token, reason: Some("the moon is missing".into()) });
    let failed = Some(Box::new(world.stored(task)));
    let Outcome::Task(again) = world.ask("ann", Command::RetryTask { task, failed }) else { panic!() };
    assert_ne!(again, task);
    let grant = world.take("ada");
    let notes = &world.board.attempts[&grant.attempt].notes;
    assert!(notes[0].contains("T1, which failed: the moon is missing"), "{notes:?}");
}

/// A set-up fault costs no attempt. A fault of the agent parks the agent, and a fault of the
/// repository needs a person.
#[test]
fn a_fault_of_the_setup_costs_no_attempt() {
    use regatta_core::attempt::SetupFault;
    for fault in [SetupFault::Agent, SetupFault::Task] {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised("ada");
        let reason = "The program `x` is not installed. Install it: npm i x".to_owned();
        world.ask("regatta", exits(&grant, Exited::NotRun { reason, fault: Some(fault) }));
        let found = world.task(task);
        assert_eq!((found.failures, found.attempt), (0, None), "{fault:?}");
        assert_eq!(world.poll_supervised("ada"), None, "{fault:?}: the task was retried by itself");
        match fault {
            SetupFault::Agent => {
                assert!(world.board.parked.contains_key("agent:ada"));
                world.ask("ann", Command::ResumeAgent { agent: agent("ada") });
            }
            SetupFault::Task => {
                assert_eq!(world.status(task), Status::NeedsHuman);
                world.ask("ann", Command::RetryTask { task, failed: None });
            }
        }
        assert!(world.poll_supervised("ada").is_some(), "{fault:?}: the task did not go on after a person acted");
    }
}

/// An agent that finished with `not_needed` keeps that status when its program's result file says
/// "done", but not when the file says that a person must help.
#[test]
fn a_result_file_keeps_the_agents_not_needed_unless_it_is_blocked() {
    use regatta_core::attempt::{Findings, ResultStatus, WorkResult};
    for (status, kept) in
        [(ResultStatus::Done, ResultStatus::NotNeeded), (ResultStatus::Blocked, ResultStatus::Blocked)]
    {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised("ada");
        let Grant { attempt, token, .. } = grant;
        let output = Some("it is there already".into());
        world.ask("ada", Command::Finish { task, attempt, token, output, not_needed: true, learnings: vec![] });
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        let result = Some(WorkResult { status, detail: "Followed 1 step.".into(), ..WorkResult::default() });
        let findings = Findings { result, ..Findings::default() };
        world.ask("regatta", Command::ReportJudged { attempt, token, verdict: passed(&[]), findings });
        let result = world.stored_attempt(attempt).result.unwrap();
        assert_eq!(result.status, kept, "{result:?}");
        assert_eq!(world.stored(task).status == Status::Completed, kept == ResultStatus::NotNeeded, "{result:?}");
    }
}

/// An agent can report that no change is needed. The task is then completed, or a person is asked,
/// by the project's policy.
#[test]
fn a_task_can_be_completed_without_a_change_if_the_agent_says_so() {
    use regatta_core::attempt::{Findings, ResultStatus, WorkResult};
    use regatta_core::project::NotNeeded;
    for (by_tool, policy) in [(true, NotNeeded::Done), (false, NotNeeded::Done), (false, NotNeeded::Ask)] {
        let mut world = World::with(&[("ada", 1)]);
        let mut ask = world.project("shop", &["cargo test"]);
        ask.settings.run.not_needed = policy;
        world.ask("ann", Command::AddProject(ask));
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised("ada");
        let Grant { attempt, token, .. } = grant;
        if by_tool {
            let output = Some("it is there already".into());
            world.ask("ada", Command::Finish { task, attempt, token, output, not_needed: true, learnings: vec![] });
        }
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        let said =
            WorkResult { status: ResultStatus::NotNeeded, detail: "it is there".into(), ..WorkResult::default() };
        let findings = Findings { result: (!by_tool).then_some(said), ..Findings::default() };
        world.ask("regatta", Command::ReportJudged { attempt, token, verdict: passed(&[]), findings });
        match policy {
            NotNeeded::Done => assert_eq!(world.stored(task).status, Status::Completed),
            NotNeeded::Ask => assert_eq!((world.status(task), world.task(task).failures), (Status::NeedsHuman, 0)),
        }
    }
    // Without that status, an empty change counts as a failed attempt.
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("one", &["a"]);
    let grant = world.take_supervised("ada");
    world.ask("regatta", exits(&grant, Exited::Done { output: None }));
    world.judge(&grant, passed(&[]));
    assert_eq!(world.task(task).failures, 1);
}
