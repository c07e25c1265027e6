//! Tasks: reports of attempts, blockers, failures, stops, the gate, and limits.

use regatta_core::attempt::{
    AttemptCause, AttemptPhase, DEFAULT_LEASE_MS, ProgramExit, WorkFindings, WorkVerdict,
};
use regatta_core::command::{Command, Report};
use regatta_core::effect::Effect;
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::schedule::{PollGrant, PollRequest, WaitKind};
use regatta_core::task::{
    AddTask, DEFAULT_MAX_FAILURES, EditTask, Expects, IssueType, TaskStatus, Validation,
};

use crate::world::{
    HOUR_MS, MINUTE_MS, SECOND_MS, World, commit, exit_report, files, finish_command,
    grant_of_poll, passed_verdict, poll_of, task_to_add,
};

/// J3: a report without the current attempt's id and token is refused.
#[test]
fn j3_only_the_current_attempt_can_report() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let other = world.add_task("docs", &["docs/**"]);
    let old = world.take_task("ada");
    world.stop(task);
    let live = world.take_task("ada");
    assert_eq!(live.task, task);
    let elsewhere = world.take_task("bob");
    assert_eq!(elsewhere.task, other);
    for wrong in [
        old.clone(),
        PollGrant {
            token: old.token,
            ..live.clone()
        },
        PollGrant {
            token: live.token + 1,
            ..live.clone()
        },
        PollGrant {
            attempt: AttemptId(99),
            ..live.clone()
        },
        PollGrant {
            task: other,
            ..live.clone()
        },
        PollGrant {
            task,
            ..elsewhere.clone()
        },
    ] {
        let PollGrant {
            task,
            attempt,
            token,
            ..
        } = wrong;
        let before = world.board.clone();
        assert_eq!(
            world.ask_refused("ada", finish_command(&wrong)).code(),
            "stale_attempt",
            "{wrong:?}"
        );
        let progress = Command::Progress {
            task,
            attempt,
            token,
            text: "reading".into(),
        };
        assert_eq!(
            world.ask_refused("ada", progress).code(),
            "stale_attempt",
            "{wrong:?}"
        );
        let give_up = Command::GiveUp {
            task,
            attempt,
            token,
            reason: None,
        };
        assert_eq!(
            world.ask_refused("ada", give_up).code(),
            "stale_attempt",
            "{wrong:?}"
        );
        assert!(world.board == before);
    }
    world.finish(&live);
    for verdict in [
        passed_verdict(&["src/a.rs"]),
        WorkVerdict::Failed {
            reason: "late".into(),
        },
    ] {
        world.report_refused(Report::WorkVerdict {
            attempt: old.attempt,
            token: old.token,
            verdict,
            findings: WorkFindings::default(),
        });
    }
    assert_eq!(world.status(task), TaskStatus::Validating);
}

/// J3: an attempt that a person stopped can no longer report on its task.
#[test]
fn j3_a_stopped_attempt_can_no_longer_report() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised_task("ada");
    world.stop(task);
    let PollGrant { attempt, token, .. } = grant;
    world.ask_refused(
        "ada",
        Command::GiveUp {
            task,
            attempt,
            token,
            reason: Some("I was killed".into()),
        },
    );
    world.ask_refused("ada", finish_command(&grant));
    assert_eq!(world.status(task), TaskStatus::Unassigned);
    world.report(exit_report(&grant, ProgramExit::Done { output: None }));
    assert_eq!(
        (world.status(task), world.task(task).attempt),
        (TaskStatus::Unassigned, None)
    );
}

/// J5: a task starts only after its blockers have landed.
#[test]
fn j5_a_task_starts_after_its_blockers_have_landed() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let first = world.add_task("words", &["src/a.rs"]);
    let second = world.add(AddTask {
        blocked_by: vec![first],
        ..task_to_add("more", &["src/b.rs"])
    });
    let grant = world.take_task("ada");
    assert_eq!(world.poll("ada"), None);
    assert_eq!(world.wait_kinds(second)[0], WaitKind::Dependency);
    let landing = world.submit(&grant);
    assert_eq!(
        world.poll("ada"),
        None,
        "the task started although its blocker has not landed"
    );
    world.move_and_land(landing);
    assert_eq!(world.take_task("ada").task, second);
}

/// J5: a blocker that failed or was cancelled blocks until a person removes it.
#[test]
fn j5_a_dead_blocker_blocks_until_a_person_decides() {
    for cancel in [true, false] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let first = world.add_task("words", &["src/a.rs"]);
        let second = world.add(AddTask {
            blocked_by: vec![first],
            ..task_to_add("more", &["src/b.rs"])
        });
        if cancel {
            world.cancel(first);
        } else {
            let grant = world.take_task("ada");
            world.give_up(&grant);
        }
        assert_eq!(world.poll("ada"), None);
        assert_eq!(world.wait_kinds(second)[0], WaitKind::Dependency);
        world.edit(
            second,
            EditTask {
                blocked_by: Some(vec![]),
                ..EditTask::default()
            },
        );
        assert_eq!(world.take_task("ada").task, second);
    }
}

#[test]
fn j5_blockers_must_exist_and_form_no_cycle() {
    let mut world = World::with_agents(&[]);
    let a = world.add_task("a", &["a"]);
    let b = world.add(AddTask {
        blocked_by: vec![a],
        ..task_to_add("b", &["b"])
    });
    let c = world.add(AddTask {
        blocked_by: vec![b, b, a],
        ..task_to_add("c", &["c"])
    });
    assert_eq!(world.task(c).blocked_by, [a, b]);
    let mut check = |task, blocked_by: Vec<TaskId>, code| {
        let edit = EditTask {
            blocked_by: Some(blocked_by),
            ..EditTask::default()
        };
        assert_eq!(
            world
                .ask_refused("ann", Command::EditTask { task, edit })
                .code(),
            code
        );
    };
    check(a, vec![c], "cycle");
    check(a, vec![a], "cycle");
    check(b, vec![c], "cycle");
    check(a, vec![TaskId(9)], "no_such_task");
    check(a, vec![TaskId(0)], "no_such_task");
    let add = AddTask {
        blocked_by: vec![TaskId(4)],
        ..task_to_add("d", &["d"])
    };
    let command = Command::AddTask {
        task: add,
        assign: None,
        how: Default::default(),
    };
    assert_eq!(world.ask_refused("ann", command).code(), "no_such_task");
}

/// J7: no command changes a task that has ended.
#[test]
fn j7_no_command_changes_a_task_that_has_ended() {
    for end in [
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_task("ada");
        match end {
            TaskStatus::Completed => world.finish_and_land(&grant),
            TaskStatus::Failed => world.give_up(&grant),
            _ => world.cancel(task),
        }
        let PollGrant { attempt, token, .. } = grant;
        for command in [
            Command::CancelTask {
                task,
                reason: "again".into(),
            },
            Command::StopTask {
                task,
                reason: "again".into(),
                pause: false,
            },
            Command::EditTask {
                task,
                edit: EditTask {
                    priority: Some(1),
                    ..EditTask::default()
                },
            },
            Command::AssignTask {
                task,
                to: None,
                how: Default::default(),
            },
            Command::Land { task, first: false },
            Command::Finish {
                task,
                attempt,
                token,
                output: None,
                not_needed: false,
                learnings: vec![],
            },
            Command::GiveUp {
                task,
                attempt,
                token,
                reason: None,
            },
        ] {
            assert_eq!(
                world.ask_refused("ann", command).code(),
                "already_finished",
                "{end}"
            );
        }
        world.restart();
        assert_eq!(world.status(task), end);
        assert_eq!(world.poll("ada"), None);
    }
}

/// J6: a task gets three attempts. Then it has failed, and its reason is that of the last attempt.
#[test]
fn j6_a_task_fails_after_its_third_failure() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    for failures in 1..DEFAULT_MAX_FAILURES {
        let grant = world.take_task("ada");
        world.fail_once(&grant);
        assert_eq!(
            (world.status(task), world.task(task).failures),
            (TaskStatus::Unassigned, failures)
        );
    }
    let grant = world.take_task("ada");
    world.fail_once(&grant);
    assert_eq!(world.status(task), TaskStatus::Failed);
    assert_eq!(
        world.stored_task(task).reason.as_deref(),
        Some("3 attempts failed; the last one: 1 test failed")
    );
    assert_eq!(world.count("attempt.ended"), 3);
}

/// J6: each way in which an attempt ends has its own cause. Only some causes count as failures.
#[test]
fn j6_each_end_of_an_attempt_has_its_own_cause() {
    let check = |exit: Option<ProgramExit>,
                 verdict: Option<WorkVerdict>,
                 cause: AttemptCause,
                 failures: u32| {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised_task("ada");
        world.report(exit_report(
            &grant,
            exit.unwrap_or(ProgramExit::Done { output: None }),
        ));
        if let Some(verdict) = verdict {
            world.report_verdict(&grant, verdict);
        }
        let ends: Vec<_> = world
            .log
            .iter()
            .filter_map(|event| match &event.event {
                regatta_core::event::Event::AttemptEnded(attempt_ended) => {
                    Some(*attempt_ended.cause())
                }
                _ => None,
            })
            .collect();
        assert_eq!(ends, [cause]);
        assert_eq!(world.task(task).failures, failures, "{cause:?}");
    };
    let reason = || "because".to_owned();
    check(
        Some(ProgramExit::Failed {
            reason: reason(),
            class: None,
        }),
        None,
        AttemptCause::Crashed,
        1,
    );
    check(Some(ProgramExit::Lost), None, AttemptCause::Lost, 0);
    check(
        Some(ProgramExit::NotRun {
            reason: reason(),
            fault: None,
        }),
        None,
        AttemptCause::Environment,
        1,
    );
    check(
        None,
        Some(WorkVerdict::Failed { reason: reason() }),
        AttemptCause::Invalid,
        1,
    );
    check(
        None,
        Some(WorkVerdict::Unknown { reason: reason() }),
        AttemptCause::Environment,
        1,
    );
    check(
        None,
        Some(passed_verdict(&[])),
        AttemptCause::NothingChanged,
        1,
    );
    check(
        None,
        Some(passed_verdict(&["src/a.rs", "README.md"])),
        AttemptCause::ScopeEscape,
        1,
    );
    check(
        None,
        Some(passed_verdict(&["src/a.rs"])),
        AttemptCause::Submitted,
        0,
    );
}

/// A stop does not count as a failure, and does not reset the failures before it.
#[test]
fn a_stop_keeps_the_failures_before_it() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.fail_once(&grant);
    for _ in 0..5 {
        world.take_task("ada");
        world.stop(task);
        assert_eq!(
            (world.status(task), world.task(task).failures),
            (TaskStatus::Unassigned, 1)
        );
    }
    let before = world.board.clone();
    world.stop(task);
    assert!(
        world.board == before,
        "stopping a task that does not run changed something"
    );
}

/// A second stop changes nothing, also while the process is still ending.
#[test]
fn a_second_stop_changes_nothing() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised_task("ada");
    world.stop(task);
    world.stop(task);
    assert_eq!(world.count("attempt.stopping"), 1);
    assert_eq!(
        world
            .outbox
            .values()
            .filter(|effect| matches!(effect, Effect::StopAttempt { .. }))
            .count(),
        1
    );
    assert!(
        world.wait_kinds(task).contains(&WaitKind::Runner),
        "the task does not say what it waits for"
    );
    world.report(exit_report(&grant, ProgramExit::Lost));
    world.take_supervised_task("ada");
}

/// A task can be cancelled in every status before the trunk is moved for it.
#[test]
fn a_task_can_be_cancelled_in_every_open_status() {
    type Reach = fn(&mut World, TaskId);
    let table: [(TaskStatus, Reach); 10] = [
        (TaskStatus::Backlog, |world, task| {
            world.edit(
                task,
                EditTask {
                    backlog: Some(true),
                    ..EditTask::default()
                },
            )
        }),
        (TaskStatus::Unassigned, |_, _| {}),
        (TaskStatus::Offered, |world, task| {
            world.assign(task, Some("ada"), regatta_core::task::AssignMode::Offer)
        }),
        (TaskStatus::Pending, |world, task| {
            world.assign(task, Some("ada"), regatta_core::task::AssignMode::Queue)
        }),
        (TaskStatus::InProgress, |world, _| {
            _ = world.take_task("ada")
        }),
        (TaskStatus::InProgress, |world, _| {
            _ = world.take_supervised_task("ada")
        }),
        (TaskStatus::Validating, |world, _| {
            let grant = world.take_task("ada");
            world.finish(&grant);
        }),
        (TaskStatus::Landing, |world, _| {
            let grant = world.take_task("ada");
            world.submit(&grant);
        }),
        (TaskStatus::NeedsHuman, |world, _| {
            world.conflict_until_a_person_is_needed()
        }),
        (TaskStatus::Unassigned, |world, task| {
            world.take_supervised_task("ada");
            world.stop(task);
        }),
    ];
    for (status, reach) in table {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        reach(&mut world, task);
        assert_eq!(world.status(task), status);
        world.cancel(task);
        assert_eq!(world.status(task), TaskStatus::Cancelled, "from {status}");
        let stopping: Vec<_> = world.board.attempts.values().cloned().collect();
        for attempt in stopping {
            // P11: Regatta does not run the program of an outside attempt, but it does run its
            // checks.
            let runs_here = attempt.supervised || attempt.phase == AttemptPhase::Validating;
            assert!(runs_here && attempt.stopping.is_some(), "from {status}");
            assert!(
                world.owner_of("file://shop/src/a.rs").is_some(),
                "the files were released while processes may still write"
            );
            let grant = world.grants.last().cloned().unwrap();
            world.report(exit_report(&grant, ProgramExit::Lost));
        }
        assert_eq!(
            world.owner_of("file://shop/src/a.rs"),
            None,
            "from {status}"
        );
        assert!(world.board.landings.is_empty() && world.board.attempts.is_empty());
    }
}

/// J3: only the first of two late reports about a stopped attempt counts. It ends the attempt, and
/// the work does not land.
#[test]
fn j3_a_stop_during_the_checks_ends_with_the_first_report() {
    for exit_first in [true, false] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised_task("ada");
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        world.stop(task);
        assert_eq!(world.status(task), TaskStatus::Unassigned);
        let exit = exit_report(&grant, ProgramExit::Lost);
        let verdict = Report::WorkVerdict {
            attempt: grant.attempt,
            token: grant.token,
            verdict: passed_verdict(&["src/a.rs"]),
            findings: WorkFindings::default(),
        };
        let (first, second) = if exit_first {
            (exit, verdict)
        } else {
            (verdict, exit)
        };
        world.report(first);
        world.report_refused(second);
        assert_eq!(
            (world.status(task), world.task(task).attempt),
            (TaskStatus::Unassigned, None)
        );
        assert!(
            world.board.landings.is_empty(),
            "the stopped work was queued"
        );
    }
}

/// P11: a retry stops the attempt in any phase, and resumes a task that a person stopped.
#[test]
fn a_retry_is_possible_while_checks_run_and_after_a_stop() {
    for checking in [false, true] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        let grant = world.take_supervised_task("ada");
        if checking {
            world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        }
        world.ask("ann", Command::RetryTask { task, failed: None });
        let attempt = world.board.attempts.get(&grant.attempt).unwrap();
        assert_eq!(
            attempt.stopping,
            Some(AttemptCause::Stopped),
            "checking: {checking}"
        );
        assert_eq!(
            (world.status(task), &world.task(task).paused),
            (TaskStatus::Unassigned, &None)
        );
    }
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised_task("ada");
    world.ask(
        "ann",
        Command::StopTask {
            task,
            reason: "stopped by a person".into(),
            pause: true,
        },
    );
    world.report(exit_report(&grant, ProgramExit::Lost));
    assert!(world.task(task).paused.is_some() && world.poll_supervised("ada").is_none());
    world.ask("ann", Command::RetryTask { task, failed: None });
    assert_eq!(world.task(task).paused, None);
    assert!(
        world.poll_supervised("ada").is_some(),
        "the task is not tried again"
    );
}

/// L5: an outside attempt lives as long as it reports, and its loss does not count as a failure.
#[test]
fn l5_an_outside_attempt_is_lost_when_silent() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.advance(DEFAULT_LEASE_MS - 1);
    let PollGrant { attempt, token, .. } = grant;
    world.ask(
        "ada",
        Command::Progress {
            task,
            attempt,
            token,
            text: "still here".into(),
        },
    );
    assert_eq!(world.task(task).progress, "still here");
    world.advance(DEFAULT_LEASE_MS - 1);
    assert_eq!(world.status(task), TaskStatus::InProgress);
    world.advance(1);
    assert_eq!(
        (world.status(task), world.task(task).failures),
        (TaskStatus::Unassigned, 0)
    );
    world.ask_refused("ada", finish_command(&grant));
    // A poll can ask for a shorter lease. While the work is checked, the lease does not run.
    let short = grant_of_poll(world.ask(
        "ada",
        Command::Poll(PollRequest {
            lease_ms: Some(10 * SECOND_MS),
            ..poll_of("ada")
        }),
    ))
    .unwrap();
    world.advance(9 * SECOND_MS);
    world.finish(&short);
    world.advance(HOUR_MS);
    assert_eq!(world.status(task), TaskStatus::Validating);
}

/// A supervised attempt has no lease, because its process is watched instead.
#[test]
fn a_supervised_attempt_may_be_silent() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_supervised_task("ada");
    world.advance(HOUR_MS - 1);
    assert_eq!(world.status(task), TaskStatus::InProgress);
    world.ask("ada", finish_command(&grant));
    assert_eq!(
        world.status(task),
        TaskStatus::InProgress,
        "a supervised attempt ended before its process did"
    );
    world.advance(1);
    assert!(
        world.board.attempts[&grant.attempt].stopping == Some(AttemptCause::TimedOut),
        "the attempt was not stopped at its timeout"
    );
}

/// W1: work without files or checks does not start, and has a wait reason.
#[test]
fn w1_the_gate_holds_work_without_files_or_checks() {
    let tests = || Validation {
        tests: vec!["cargo test".into()],
        ..Validation::default()
    };
    let files = || Validation {
        files_exist: vec!["src/a.rs".into()],
        ..Validation::default()
    };
    let checks = || Validation {
        tests: vec!["cargo test".into()],
        ..files()
    };
    let check = |issue_type,
                 manifest: &[&str],
                 validation: Validation,
                 project: &[&str],
                 expects,
                 open: bool| {
        let mut world = World::with_agents(&[("ada", 1)]);
        world.ask("ann", Command::AddProject(world.project("shop", project)));
        let add = AddTask {
            issue_type,
            validation,
            expects,
            ..task_to_add("words", manifest)
        };
        let task = world.add(add);
        assert_eq!(
            world.ready_task("ada").is_some(),
            open,
            "{issue_type:?} {manifest:?}"
        );
        assert_eq!(world.wait_kinds(task).contains(&WaitKind::Gate), !open);
        assert_eq!(world.poll("ada").is_some(), open);
    };
    use Expects::{Changes, Report};
    for kind in [IssueType::Feature, IssueType::Bug, IssueType::Task] {
        check(kind, &["src/**"], checks(), &[], Changes, true);
        check(kind, &["src/**"], tests(), &[], Changes, false);
        check(kind, &["src/**"], files(), &[], Changes, false);
        check(
            kind,
            &["src/**"],
            Validation::default(),
            &["make"],
            Changes,
            true,
        );
        check(
            kind,
            &["src/**"],
            Validation::default(),
            &[],
            Changes,
            false,
        );
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
    let mut world = World::with_agents(&[("ada", 2)]);
    world.ask("ann", Command::AddProject(world.project("shop", &[])));
    let a = world.add_task("a", &["a"]);
    let b = world.add_task("b", &[]);
    assert_eq!(world.poll("ada"), None);
    world.ask("ann", Command::AddProject(world.project("shop", &["make"])));
    assert_eq!(world.take_task("ada").task, a);
    world.edit(
        b,
        EditTask {
            files: Some(files(&["b"])),
            ..EditTask::default()
        },
    );
    assert_eq!(world.take_task("ada").task, b);
}

/// A paused task does not start. A running attempt goes on, and unpausing is enough to start again.
#[test]
fn paused_tasks_do_not_start() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let pause = |why: Option<&str>| EditTask {
        paused: Some(why.map_or(regatta_core::task::SetPause::Resume, |why| {
            regatta_core::task::SetPause::Pause(why.to_owned())
        })),
        ..EditTask::default()
    };
    world.edit(task, pause(Some("the API changes tomorrow")));
    assert_eq!(
        (world.poll("ada"), world.wait_kinds(task)[0]),
        (None, WaitKind::Paused)
    );
    world.edit(task, pause(None));
    let grant = world.take_task("ada");
    world.edit(task, pause(Some("hold it")));
    assert_eq!(world.status(task), TaskStatus::InProgress);
    world.fail_once(&grant);
    assert_eq!(world.poll("ada"), None, "a paused task was tried again");
}

/// J3: the subject, files and assignee of running work cannot be changed.
#[test]
fn j3_running_work_is_not_edited_or_reassigned() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    let check = |world: &mut World| {
        for edit in [
            EditTask {
                subject: Some("other".into()),
                ..EditTask::default()
            },
            EditTask {
                files: Some(files(&["docs/**"])),
                ..EditTask::default()
            },
            EditTask {
                backlog: Some(true),
                ..EditTask::default()
            },
        ] {
            assert_eq!(
                world
                    .ask_refused("ann", Command::EditTask { task, edit })
                    .code(),
                "in_use"
            );
        }
        use regatta_core::task::AssignMode;
        for (to, how) in [
            (None, AssignMode::Direct),
            (Some("bob"), AssignMode::Queue),
            (Some("bob"), AssignMode::Offer),
        ] {
            world.ask_refused(
                "ann",
                Command::AssignTask {
                    task,
                    to: to.map(crate::world::agent),
                    how,
                },
            );
        }
        world.edit(
            task,
            EditTask {
                priority: Some(1),
                ..EditTask::default()
            },
        );
    };
    check(&mut world);
    world.finish(&grant);
    check(&mut world);
    let verdict = WorkVerdict::Passed {
        commit: commit(7),
        base: commit(1),
        changed: vec!["src/a.rs".into()],
    };
    let landing = world.report_verdict(&grant, verdict).unwrap();
    check(&mut world);
    world.move_and_land(landing);
    assert_eq!(world.status(task), TaskStatus::Completed);
}

/// The texts and numbers of a task have limits.
#[test]
fn a_task_outside_the_limits_is_refused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let valid_task = || task_to_add("words", &["src/**"]);
    for add in [
        AddTask {
            subject: "  ".into(),
            ..valid_task()
        },
        AddTask {
            subject: "two\nlines".into(),
            ..valid_task()
        },
        AddTask {
            subject: "x".repeat(301),
            ..valid_task()
        },
        AddTask {
            description: "x".repeat(256 * 1024 + 1),
            ..valid_task()
        },
        AddTask {
            priority: 10,
            ..valid_task()
        },
    ] {
        let command = Command::AddTask {
            task: add,
            assign: None,
            how: Default::default(),
        };
        assert_eq!(world.ask_refused("ann", command).code(), "invalid");
    }
    let unknown = AddTask {
        project: regatta_core::ids::ProjectName::new("none").unwrap(),
        ..valid_task()
    };
    let command = Command::AddTask {
        task: unknown,
        assign: None,
        how: Default::default(),
    };
    assert_eq!(world.ask_refused("ann", command).code(), "no_such_project");
    let task = world.add(valid_task());
    let PollGrant { attempt, token, .. } = world.take_task("ada");
    let progress = Command::Progress {
        task,
        attempt,
        token,
        text: "x".repeat(4_001),
    };
    assert_eq!(world.ask_refused("ada", progress).code(), "invalid");
    let finish = Command::Finish {
        task,
        attempt,
        token,
        output: Some("x".repeat(64 * 1024 + 1)),
        not_needed: false,
        learnings: vec![],
    };
    assert_eq!(world.ask_refused("ada", finish).code(), "invalid");
    world.advance(MINUTE_MS);
}
