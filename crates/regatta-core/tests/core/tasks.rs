//! Tasks: reports of attempts, blockers, failures, stops, the gate, and limits.

use regatta_core::attempt::{Cause, Exited, Findings, LEASE_MS, Phase, Verdict};
use regatta_core::command::Command;
use regatta_core::effect::Effect;
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::schedule::{Grant, Poll, WaitKind};
use regatta_core::task::{Add, Edit, Expects, IssueType, MOST_FAILURES, Status, Validation};

use crate::world::{HOUR, MINUTE, SECOND, World, commit, exits, files, finishes, passed, polled, polls, work};

/// J3: a report without the current attempt's id and token is refused.
#[test]
fn j3_only_the_current_attempt_can_report() {
    let mut world = World::with(&[("ada", 1), ("bob", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let other = world.add_task("docs", &["docs/**"]);
    let old = world.take("ada");
    world.stop(task);
    let live = world.take("ada");
    assert_eq!(live.task, task);
    let elsewhere = world.take("bob");
    assert_eq!(elsewhere.task, other);
    for wrong in [
        old.clone(),
        Grant { token: old.token, ..live.clone() },
        Grant { token: live.token + 1, ..live.clone() },
        Grant { attempt: AttemptId(99), ..live.clone() },
        Grant { task: other, ..live.clone() },
        Grant { task, ..elsewhere.clone() },
    ] {
        let Grant { task, attempt, token, .. } = wrong;
        let before = world.board.clone();
        assert_eq!(world.refused("ada", finishes(&wrong)).code(), "stale_attempt", "{wrong:?}");
        let progress = Command::Progress { task, attempt, token, text: "reading".into() };
        assert_eq!(world.refused("ada", progress).code(), "stale_attempt", "{wrong:?}");
        let give_up = Command::GiveUp { task, attempt, token, reason: None };
        assert_eq!(world.refused("ada", give_up).code(), "stale_attempt", "{wrong:?}");
        assert!(world.board == before);
    }
    world.finish(&live);
    for verdict in [passed(&["src/a.rs"]), Verdict::Failed { reason: "late".into() }] {
        world.refused(
            "regatta",
            Command::ReportJudged { attempt: old.attempt, token: old.token, verdict, findings: Findings::default() },
        );
    }
    assert_eq!(world.status(task), Status::Validating);
}

/// J3: an attempt that a person stopped can no longer report on its task.
#[test]
fn j3_a_stopped_attempt_can_no_longer_report() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised("ada");
    world.stop(task);
    let Grant { attempt, token, .. } = grant;
    world.refused("ada", Command::GiveUp { task, attempt, token, reason: Some("I was killed".into()) });
    world.refused("ada", finishes(&grant));
    assert_eq!(world.status(task), Status::Unassigned);
    world.ask("regatta", exits(&grant, Exited::Done { output: None }));
    assert_eq!((world.status(task), world.task(task).attempt), (Status::Unassigned, None));
}

/// J5: a task starts only after its blockers have landed.
#[test]
fn j5_a_task_starts_after_its_blockers_have_landed() {
    let mut world = World::with(&[("ada", 2)]);
    let first = world.add_task("words", &["src/a.rs"]);
    let second = world.add(Add { blocked_by: vec![first], ..work("more", &["src/b.rs"]) });
    let grant = world.take("ada");
    assert_eq!(world.poll("ada"), None);
    assert_eq!(world.reasons(second)[0], WaitKind::Dep);
    let landing = world.submit(&grant);
    assert_eq!(world.poll("ada"), None, "the task started although its blocker has not landed");
    world.land(landing);
    assert_eq!(world.take("ada").task, second);
}

/// J5: a blocker that failed or was cancelled blocks until a person removes it.
#[test]
fn j5_a_dead_blocker_blocks_until_a_person_decides() {
    for cancel in [true, false] {
        let mut world = World::with(&[("ada", 1)]);
        let first = world.add_task("words", &["src/a.rs"]);
        let second = world.add(Add { blocked_by: vec![first], ..work("more", &["src/b.rs"]) });
        if cancel {
            world.cancel(first);
        } else {
            let grant = world.take("ada");
            world.give_up(&grant);
        }
        assert_eq!(world.poll("ada"), None);
        assert_eq!(world.reasons(second)[0], WaitKind::Dep);
        world.edit(second, Edit { blocked_by: Some(vec![]), ..Edit::default() });
        assert_eq!(world.take("ada").task, second);
    }
}

#[test]
fn j5_blockers_must_exist_and_form_no_cycle() {
    let mut world = World::with(&[]);
    let a = world.add_task("a", &["a"]);
    let b = world.add(Add { blocked_by: vec![a], ..work("b", &["b"]) });
    let c = world.add(Add { blocked_by: vec![b, b, a], ..work("c", &["c"]) });
    assert_eq!(world.task(c).blocked_by, [a, b]);
    let mut check = |task, blocked_by: Vec<TaskId>, code| {
        let edit = Edit { blocked_by: Some(blocked_by), ..Edit::default() };
        assert_eq!(world.refused("ann", Command::EditTask { task, edit }).code(), code);
    };
    check(a, vec![c], "cycle");
    check(a, vec![a], "cycle");
    check(b, vec![c], "cycle");
    check(a, vec![TaskId(9)], "no_such_task");
    check(a, vec![TaskId(0)], "no_such_task");
    let add = Add { blocked_by: vec![TaskId(4)], ..work("d", &["d"]) };
    let command = Command::AddTask { task: add, assign: None, how: Default::default() };
    assert_eq!(world.refused("ann", command).code(), "no_such_task");
}

/// J7: no command changes a task that has ended.
#[test]
fn j7_no_command_changes_a_task_that_has_ended() {
    for end in [Status::Completed, Status::Failed, Status::Cancelled] {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take("ada");
        match end {
            Status::Completed => world.finish_and_land(&grant),
            Status::Failed => world.give_up(&grant),
            _ => world.cancel(task),
        }
        let Grant { attempt, token, .. } = grant;
        for command in [
            Command::CancelTask { task, reason: "again".into() },
            Command::StopTask { task, reason: "again".into(), pause: false },
            Command::EditTask { task, edit: Edit { priority: Some(1), ..Edit::default() } },
            Command::AssignTask { task, to: None, how: Default::default() },
            Command::Land { task, first: false },
            Command::Finish { task, attempt, token, output: None, not_needed: false, learnings: vec![] },
            Command::GiveUp { task, attempt, token, reason: None },
        ] {
            assert_eq!(world.refused("ann", command).code(), "already_finished", "{end}");
        }
        world.restart();
        assert_eq!(world.status(task), end);
        assert_eq!(world.poll("ada"), None);
    }
}

/// J6: a task gets three attempts. Then it has failed, and its reason is that of the last attempt.
#[test]
fn j6_a_task_fails_after_its_third_failure() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    for failures in 1..MOST_FAILURES {
        let grant = world.take("ada");
        world.fail_once(&grant);
        assert_eq!((world.status(task), world.task(task).failures), (Status::Unassigned, failures));
    }
    let grant = world.take("ada");
    world.fail_once(&grant);
    assert_eq!(world.status(task), Status::Failed);
    assert_eq!(world.stored(task).reason.as_deref(), Some("3 attempts failed; the last one: 1 test failed"));
    assert_eq!(world.count("attempt.ended"), 3);
}

/// J6: each way in which an attempt ends has its own cause. Only some causes count as failures.
#[test]
fn j6_each_end_of_an_attempt_has_its_own_cause() {
    let check = |exit: Option<Exited>, verdict: Option<Verdict>, cause: Cause, failures: u32| {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised("ada");
        world.ask("regatta", exits(&grant, exit.unwrap_or(Exited::Done { output: None })));
        if let Some(verdict) = verdict {
            world.judge(&grant, verdict);
        }
        let ends: Vec<_> = world
            .log
            .iter()
            .filter_map(|it| match &it.event {
                regatta_core::event::Event::AttemptEnded(it) => Some(*it.cause()),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [cause]);
        assert_eq!(world.task(task).failures, failures, "{cause:?}");
    };
    let words = || "because".to_owned();
    check(Some(Exited::Failed { reason: words(), class: None }), None, Cause::Crashed, 1);
    check(Some(Exited::Lost), None, Cause::Lost, 0);
    check(Some(Exited::NotRun { reason: words(), fault: None }), None, Cause::Environment, 1);
    check(None, Some(Verdict::Failed { reason: words() }), Cause::Invalid, 1);
    check(None, Some(Verdict::Unknown { reason: words() }), Cause::Environment, 1);
    check(None, Some(passed(&[])), Cause::NothingChanged, 1);
    check(None, Some(passed(&["src/a.rs", "README.md"])), Cause::ScopeEscape, 1);
    check(None, Some(passed(&["src/a.rs"])), Cause::Submitted, 0);
}

/// A stop does not count as a failure, and does not reset the failures before it.
#[test]
fn a_stop_keeps_the_failures_before_it() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take("ada");
    world.fail_once(&grant);
    for _ in 0..5 {
        world.take("ada");
        world.stop(task);
        assert_eq!((world.status(task), world.task(task).failures), (Status::Unassigned, 1));
    }
    let before = world.board.clone();
    world.stop(task);
    assert!(world.board == before, "stopping a task that does not run changed something");
}

/// A second stop changes nothing, also while the process is still ending.
#[test]
fn a_second_stop_changes_nothing() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised("ada");
    world.stop(task);
    world.stop(task);
    assert_eq!(world.count("attempt.stopping"), 1);
    assert_eq!(world.outbox.values().filter(|it| matches!(it, Effect::StopAttempt { .. })).count(), 1);
    assert!(world.reasons(task).contains(&WaitKind::Runner), "the task does not say what it waits for");
    world.ask("regatta", exits(&grant, Exited::Lost));
    world.take_supervised("ada");
}

/// A task can be cancelled in every status before the trunk is moved for it.
#[test]
fn a_task_can_be_cancelled_in_every_open_status() {
    type Reach = fn(&mut World, TaskId);
    let table: [(Status, Reach); 10] = [
        (Status::Backlog, |world, task| world.edit(task, Edit { backlog: Some(true), ..Edit::default() })),
        (Status::Unassigned, |_, _| {}),
        (Status::Offered, |world, task| world.assign(task, Some("ada"), regatta_core::task::How::Offer)),
        (Status::Pending, |world, task| world.assign(task, Some("ada"), regatta_core::task::How::Queue)),
        (Status::InProgress, |world, _| _ = world.take("ada")),
        (Status::InProgress, |world, _| _ = world.take_supervised("ada")),
        (Status::Validating, |world, _| {
            let grant = world.take("ada");
            world.finish(&grant);
        }),
        (Status::Landing, |world, _| {
            let grant = world.take("ada");
            world.submit(&grant);
        }),
        (Status::NeedsHuman, |world, _| world.conflict_until_a_person_is_needed()),
        (Status::Unassigned, |world, task| {
            world.take_supervised("ada");
            world.stop(task);
        }),
    ];
    for (status, reach) in table {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        reach(&mut world, task);
        assert_eq!(world.status(task), status);
        world.cancel(task);
        assert_eq!(world.status(task), Status::Cancelled, "from {status}");
        let stopping: Vec<_> = world.board.attempts.values().cloned().collect();
        for attempt in stopping {
            // P11: Regatta does not run the program of an outside attempt, but it does run its
            // checks.
            let runs_here = attempt.supervised || attempt.phase == Phase::Validating;
            assert!(runs_here && attempt.stopping.is_some(), "from {status}");
            assert!(
                world.owner_of("file://shop/src/a.rs").is_some(),
                "the files were released while processes may still write"
            );
            let grant = world.grants.last().cloned().unwrap();
            world.ask("regatta", exits(&grant, Exited::Lost));
        }
        assert_eq!(world.owner_of("file://shop/src/a.rs"), None, "from {status}");
        assert!(world.board.landings.is_empty() && world.board.attempts.is_empty());
    }
}

/// J3: only the first of two late reports about a stopped attempt counts. It ends the attempt, and
/// the work does not land.
#[test]
fn j3_a_stop_during_the_checks_ends_with_the_first_report() {
    for exit_first in [true, false] {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised("ada");
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        world.stop(task);
        assert_eq!(world.status(task), Status::Unassigned);
        let exit = exits(&grant, Exited::Lost);
        let verdict = Command::ReportJudged {
            attempt: grant.attempt,
            token: grant.token,
            verdict: passed(&["src/a.rs"]),
            findings: Findings::default(),
        };
        let (first, second) = if exit_first { (exit, verdict) } else { (verdict, exit) };
        world.ask("regatta", first);
        world.refused("regatta", second);
        assert_eq!((world.status(task), world.task(task).attempt), (Status::Unassigned, None));
        assert!(world.board.landings.is_empty(), "the stopped work was queued");
    }
}

/// P11: a retry stops the attempt in any phase, and resumes a task that a person stopped.
#[test]
fn a_retry_is_possible_while_checks_run_and_after_a_stop() {
    for checking in [false, true] {
        let mut world = World::with(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised("ada");
        if checking {
            world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        }
        world.ask("ann", Command::RetryTask { task, failed: None });
        let attempt = world.board.attempts.get(&grant.attempt).unwrap();
        assert_eq!(attempt.stopping, Some(Cause::Stopped), "checking: {checking}");
        assert_eq!((world.status(task), &world.task(task).paused), (Status::Unassigned, &None));
    }
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised("ada");
    world.ask("ann", Command::StopTask { task, reason: "stopped by a person".into(), pause: true });
    world.ask("regatta", exits(&grant, Exited::Lost));
    assert!(world.task(task).paused.is_some() && world.poll_supervised("ada").is_none());
    world.ask("ann", Command::RetryTask { task, failed: None });
    assert_eq!(world.task(task).paused, None);
    assert!(world.poll_supervised("ada").is_some(), "the task is not tried again");
}

/// L5: an outside attempt lives as long as it reports, and its loss does not count as a failure.
#[test]
fn l5_an_outside_attempt_is_lost_when_silent() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take("ada");
    world.advance(LEASE_MS - 1);
    let Grant { attempt, token, .. } = grant;
    world.ask("ada", Command::Progress { task, attempt, token, text: "still here".into() });
    assert_eq!(world.task(task).progress, "still here");
    world.advance(LEASE_MS - 1);
    assert_eq!(world.status(task), Status::InProgress);
    world.advance(1);
    assert_eq!((world.status(task), world.task(task).failures), (Status::Unassigned, 0));
    world.refused("ada", finishes(&grant));
    // A poll can ask for a shorter lease. While the work is checked, the lease does not run.
    let short = polled(world.ask("ada", Command::Poll(Poll { lease_ms: Some(10 * SECOND), ..polls("ada") }))).unwrap();
    world.advance(9 * SECOND);
    world.finish(&short);
    world.advance(HOUR);
    assert_eq!(world.status(task), Status::Validating);
}

/// A supervised attempt has no lease, because its process is watched instead.
#[test]
fn a_supervised_attempt_may_be_silent() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised("ada");
    world.advance(HOUR - 1);
    assert_eq!(world.status(task), Status::InProgress);
    world.ask("ada", finishes(&grant));
    assert_eq!(world.status(task), Status::InProgress, "a supervised attempt ended before its process did");
    world.advance(1);
    assert!(
        world.board.attempts[&grant.attempt].stopping == Some(Cause::TimedOut),
        "the attempt was not stopped at its timeout"
    );
}

/// W1: work without files or checks does not start, and has a wait reason.
#[test]
fn w1_the_gate_holds_work_without_files_or_checks() {
    let tests = || Validation { tests: vec!["cargo test".into()], ..Validation::default() };
    let files = || Validation { files_exist: vec!["src/a.rs".into()], ..Validation::default() };
    let checks = || Validation { tests: vec!["cargo test".into()], ..files() };
    let check = |issue_type, manifest: &[&str], validation: Validation, project: &[&str], expects, open: bool| {
        let mut world = World::with(&[("ada", 1)]);
        world.ask("ann", Command::AddProject(world.project("shop", project)));
        let add = Add { issue_type, validation, expects, ..work("words", manifest) };
        let task = world.add(add);
        assert_eq!(world.ready("ada").is_some(), open, "{issue_type:?} {manifest:?}");
        assert_eq!(world.reasons(task).contains(&WaitKind::Gate), !open);
        assert_eq!(world.poll("ada").is_some(), open);
    };
    use Expects::{Changes, Report};
    for kind in [IssueType::Feature, IssueType::Bug, IssueType::Task] {
        check(kind, &["src/**"], checks(), &[], Changes, true);
        check(kind, &["src/**"], tests(), &[], Changes, false);
        check(kind, &["src/**"], files(), &[], Changes, false);
        check(kind, &["src/**"], Validation::default(), &["make"], Changes, true);
        check(kind, &["src/**"], Validation::default(), &[], Changes, false);
        check(kind, &[], checks(), &["make"], Changes, false);
        check(kind, &[], Validation::default(), &[], Report, true);
    }
    for kind in [IssueType::Docs, IssueType::Chore, IssueType::Ci] {
        check(kind, &[], Validation::default(), &[], Changes, true);
    }
}

/// W1: the gate opens when files or checks are added, to the task or to its project.
#[test]
fn w1_the_gate_opens_when_files_and_checks_are_added() {
    let mut world = World::with(&[("ada", 2)]);
    world.ask("ann", Command::AddProject(world.project("shop", &[])));
    let a = world.add_task("a", &["a"]);
    let b = world.add_task("b", &[]);
    assert_eq!(world.poll("ada"), None);
    world.ask("ann", Command::AddProject(world.project("shop", &["make"])));
    assert_eq!(world.take("ada").task, a);
    world.edit(b, Edit { files: Some(files(&["b"])), ..Edit::default() });
    assert_eq!(world.take("ada").task, b);
}

/// A paused task does not start. A running attempt goes on, and unpausing is enough to start again.
#[test]
fn paused_tasks_do_not_start() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let pause = |why: Option<&str>| Edit {
        paused: Some(why.map_or(regatta_core::task::Pause::No, |it| regatta_core::task::Pause::Because(it.to_owned()))),
        ..Edit::default()
    };
    world.edit(task, pause(Some("the API changes tomorrow")));
    assert_eq!((world.poll("ada"), world.reasons(task)[0]), (None, WaitKind::Paused));
    world.edit(task, pause(None));
    let grant = world.take("ada");
    world.edit(task, pause(Some("hold it")));
    assert_eq!(world.status(task), Status::InProgress);
    world.fail_once(&grant);
    assert_eq!(world.poll("ada"), None, "a paused task was tried again");
}

/// J3: the subject, files and assignee of running work cannot be changed.
#[test]
fn j3_running_work_is_not_edited_or_reassigned() {
    let mut world = World::with(&[("ada", 1), ("bob", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take("ada");
    let check = |world: &mut World| {
        for edit in [
            Edit { subject: Some("other".into()), ..Edit::default() },
            Edit { files: Some(files(&["docs/**"])), ..Edit::default() },
            Edit { backlog: Some(true), ..Edit::default() },
        ] {
            assert_eq!(world.refused("ann", Command::EditTask { task, edit }).code(), "in_use");
        }
        use regatta_core::task::How;
        for (to, how) in [(None, How::Direct), (Some("bob"), How::Queue), (Some("bob"), How::Offer)] {
            world.refused("ann", Command::AssignTask { task, to: to.map(crate::world::agent), how });
        }
        world.edit(task, Edit { priority: Some(1), ..Edit::default() });
    };
    check(&mut world);
    world.finish(&grant);
    check(&mut world);
    let verdict = Verdict::Passed { commit: commit(7), base: commit(1), changed: vec!["src/a.rs".into()] };
    let landing = world.judge(&grant, verdict).unwrap();
    check(&mut world);
    world.land(landing);
    assert_eq!(world.status(task), Status::Completed);
}

/// The texts and numbers of a task have limits.
#[test]
fn a_task_outside_the_limits_is_refused() {
    let mut world = World::with(&[("ada", 1)]);
    let fine = || work("words", &["src/**"]);
    for add in [
        Add { subject: "  ".into(), ..fine() },
        Add { subject: "two\nlines".into(), ..fine() },
        Add { subject: "x".repeat(301), ..fine() },
        Add { description: "x".repeat(256 * 1024 + 1), ..fine() },
        Add { priority: 10, ..fine() },
    ] {
        let command = Command::AddTask { task: add, assign: None, how: Default::default() };
        assert_eq!(world.refused("ann", command).code(), "invalid");
    }
    let unknown = Add { project: regatta_core::ids::ProjectName::new("none").unwrap(), ..fine() };
    let command = Command::AddTask { task: unknown, assign: None, how: Default::default() };
    assert_eq!(world.refused("ann", command).code(), "no_such_project");
    let task = world.add(fine());
    let Grant { attempt, token, .. } = world.take("ada");
    let progress = Command::Progress { task, attempt, token, text: "x".repeat(4_001) };
    assert_eq!(world.refused("ada", progress).code(), "invalid");
    let finish = Command::Finish {
        task,
        attempt,
        token,
        output: Some("x".repeat(64 * 1024 + 1)),
        not_needed: false,
        learnings: vec![],
    };
    assert_eq!(world.refused("ada", finish).code(), "invalid");
    world.advance(MINUTE);
}
