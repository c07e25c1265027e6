//! Another try, by how the last one ended: what it costs, how long it waits, and where it ends.

use regatta_core::attempt::{Cause, Exited, Verdict};
use regatta_core::command::{Command, Outcome};
use regatta_core::fleet::Limits;
use regatta_core::ids::TaskId;
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::session::Class;
use regatta_core::task::{MOST_FAILURES, Status};

use crate::world::{HOUR, World, agent, exits, passed};

/// How an attempt is made to end.
type Ends = fn(&mut World, &Grant);

/// What follows when it ended so again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// It costs nothing: it is tried for ever.
    Goes,
    /// Its work was found wanting: it has failed.
    Fails,
    /// Somebody must look.
    Person(WaitKind),
}

fn failed(class: Class) -> Exited {
    Exited::Failed { reason: "no idea".into(), class: Some(class) }
}

fn judged(world: &mut World, grant: &Grant, verdict: Verdict) {
    world.ask("regatta", exits(grant, Exited::Done { output: None }));
    assert_eq!(world.judge(grant, verdict), None);
}

/// The process is gone that was being stopped.
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
        // The first time at once: nothing says that it will happen again.
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

/// J6: a task whose attempts are used up is handed to a person with the evidence, unless its own checks found it wanting:
/// then it has failed. Limits and lost runners cost no attempt, and what broke off waits longer each time.
#[test]
fn j6_what_follows_from_an_end_depends_on_its_cause() {
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
            assert!(!world.board.attempts.contains_key(&grant.attempt), "{line}: it has ended");
            let ended = world.find_stored(task).unwrap();
            assert_eq!(ended.last_cause, Some(cause), "{line}");
            if count == 1 && pauses {
                last = ended.not_before.expect("it is put off").saturating_sub(world.now.at);
                assert_eq!(last, 1_000, "{line}, {cause:?}");
            } else if count == 2 && pauses {
                let next = ended.not_before.expect("it is put off").saturating_sub(world.now.at);
                assert_eq!(next, 2 * last, "{line}, {cause:?}: longer each time");
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

/// The next attempt, as soon as there is one.
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
            assert_eq!(world.reasons(task), [kind], "{line}: and says so");
        }
    }
    assert!(ended.reason.as_deref().unwrap().starts_with("3 attempts failed; the last one: "), "{line}: {ended:?}");
}

/// A person may always try again.
#[test]
fn a_person_may_try_again_what_has_no_attempts_left() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    for _ in 0..MOST_FAILURES {
        let grant = next(&mut world).unwrap();
        world.ask("regatta", exits(&grant, failed(Class::Crashed)));
    }
    assert_eq!(world.status(task), Status::NeedsHuman);
    assert_eq!(world.poll_supervised("ada"), None);
    world.ask("ann", Command::RetryTask { task, failed: None });
    let grant = world.poll_supervised("ada").expect("at once");
    assert_eq!(grant.task, task);
}

/// A task that failed stays failed; who takes it up again is told how it ended.
#[test]
fn what_failed_is_told_to_who_tries_again() {
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

/// A fault of the set-up is told once and costs no attempt: the agent's parks the agent, the repository's needs a person.
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
        assert_eq!(world.poll_supervised("ada"), None, "{fault:?}: nothing is tried again by itself");
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
        assert!(world.poll_supervised("ada").is_some(), "{fault:?}: it goes on when a person says so");
    }
}

/// A program whose result file says "done" after its agent called `finish` with `not_needed` does not take that back; a
/// result that says that a person must help does.
#[test]
fn a_result_file_of_a_finished_program_keeps_what_its_agent_said() {
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

/// An agent may say that nothing has to be changed: the task is done, or a person is asked once.
#[test]
fn a_task_may_be_done_without_a_change() {
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
    // Without that word an empty change is what it was: an attempt for nothing.
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("one", &["a"]);
    let grant = world.take_supervised("ada");
    world.ask("regatta", exits(&grant, Exited::Done { output: None }));
    world.judge(&grant, passed(&[]));
    assert_eq!(world.task(task).failures, 1);
}
