//! Retries: the cost of each end of an attempt, the wait before the next one, and the end of
//! retrying.

use regatta_core::agent_protocol::FailureClass;
use regatta_core::attempt::{AttemptCause, ProgramExit, WorkVerdict};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::TaskId;
use regatta_core::limits::MachineLimits;
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::task::{DEFAULT_MAX_FAILURES, TaskStatus};

use crate::world::{HOUR_MS, World, agent, exit_report, passed_verdict};

/// Ends an attempt in one way.
type EndAttempt = fn(&mut World, &PollGrant);

/// The task's state after its attempts ended in the same way again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedOutcome {
    /// It costs no attempt, so the task is retried without an end.
    Continues,
    /// The work failed its checks, so the task fails.
    Fails,
    /// A person must decide.
    NeedsPerson(WaitKind),
}

fn failed_exit(class: FailureClass) -> ProgramExit {
    ProgramExit::Failed {
        reason: "no idea".into(),
        class: Some(class),
    }
}

fn report_verdict(world: &mut World, grant: &PollGrant, verdict: WorkVerdict) {
    world.report(exit_report(grant, ProgramExit::Done { output: None }));
    assert_eq!(world.report_verdict(grant, verdict), None);
}

/// Reports that the process that was being stopped has ended.
fn report_process_gone(world: &mut World, grant: &PollGrant) {
    world.report(exit_report(grant, ProgramExit::Lost));
}

fn end_cases() -> Vec<(AttemptCause, bool, ExpectedOutcome, EndAttempt)> {
    let runner = ExpectedOutcome::NeedsPerson(WaitKind::Runner);
    vec![
        (
            AttemptCause::Invalid,
            false,
            ExpectedOutcome::Fails,
            |world, grant| {
                report_verdict(
                    world,
                    grant,
                    WorkVerdict::Failed {
                        reason: "no idea".into(),
                    },
                );
            },
        ),
        (
            AttemptCause::NothingChanged,
            false,
            ExpectedOutcome::NeedsPerson(WaitKind::Review),
            |world, grant| {
                report_verdict(world, grant, passed_verdict(&[]));
            },
        ),
        (
            AttemptCause::ScopeEscape,
            false,
            ExpectedOutcome::NeedsPerson(WaitKind::Policy),
            |world, grant| {
                report_verdict(world, grant, passed_verdict(&["elsewhere"]));
            },
        ),
        (AttemptCause::Environment, true, runner, |world, grant| {
            report_verdict(
                world,
                grant,
                WorkVerdict::Unknown {
                    reason: "no idea".into(),
                },
            );
        }),
        (AttemptCause::Environment, true, runner, |world, grant| {
            world.report(exit_report(
                grant,
                ProgramExit::NotRun {
                    reason: "no idea".into(),
                    fault: None,
                },
            ));
        }),
        (AttemptCause::Crashed, true, runner, |world, grant| {
            world.report(exit_report(grant, failed_exit(FailureClass::Crashed)));
        }),
        (AttemptCause::TimedOut, true, runner, |world, grant| {
            world.report(exit_report(grant, failed_exit(FailureClass::Timeout)));
        }),
        (AttemptCause::TimedOut, true, runner, |world, grant| {
            let until = world.board.attempts[&grant.attempt]
                .deadline_fleet_ms
                .unwrap();
            world.advance_without_tick(until - world.now.fleet_ms);
            world.report(Report::Tick);
            report_process_gone(world, grant);
        }),
        (AttemptCause::Hung, true, runner, |world, grant| {
            let since_ms = Some(world.board.limits.silence_ms);
            world.report(Report::Silent {
                attempt: grant.attempt,
                token: grant.token,
                since_ms,
            });
            report_process_gone(world, grant);
        }),
        // The first retry is immediate, because nothing suggests that it will happen again.
        (
            AttemptCause::Lost,
            false,
            ExpectedOutcome::Continues,
            |world, grant| {
                world.report(exit_report(grant, ProgramExit::Lost));
            },
        ),
        (
            AttemptCause::Overloaded,
            true,
            ExpectedOutcome::Continues,
            |world, grant| {
                world.report(exit_report(grant, failed_exit(FailureClass::Overloaded)));
            },
        ),
        (
            AttemptCause::NoNetwork,
            true,
            ExpectedOutcome::Continues,
            |world, grant| {
                world.report(exit_report(grant, failed_exit(FailureClass::NoNetwork)));
            },
        ),
        (
            AttemptCause::Parked,
            false,
            ExpectedOutcome::Continues,
            |world, grant| {
                world.report(exit_report(grant, failed_exit(FailureClass::RateLimit)));
            },
        ),
    ]
}

/// J6: a task without attempts left needs a person, with the evidence. If its own checks failed, it
/// has failed. Limits and lost runners cost no attempt, and the wait after a broken-off attempt
/// doubles.
#[test]
fn j6_the_cause_of_an_end_decides_its_cost_and_the_next_step() {
    for (line, (cause, pauses, then, ends)) in end_cases().into_iter().enumerate() {
        let mut world = World::with_agents(&[("ada", 1)]);
        let limits = MachineLimits {
            retry_delay_ms: 1_000,
            max_retry_delay_ms: HOUR_MS,
            ..MachineLimits::default()
        };
        world.ask("ann", Command::SetLimits { limits });
        let task = world.add_task("words", &["src/**"]);
        let mut last = 0;
        for count in 1..=DEFAULT_MAX_FAILURES + 2 {
            let Some(grant) = next_attempt(&mut world) else {
                panic!("{line}, {cause:?}: nothing to take, {count}")
            };
            assert_eq!(grant.task, task);
            ends(&mut world, &grant);
            assert!(
                !world.board.attempts.contains_key(&grant.attempt),
                "{line}: the attempt has not ended"
            );
            let ended = world.find_stored(task).unwrap();
            assert_eq!(ended.last_cause, Some(cause), "{line}");
            if count == 1 && pauses {
                last = ended
                    .not_before_fleet_ms
                    .expect("the retry has a wait")
                    .saturating_sub(world.now.fleet_ms);
                assert_eq!(last, 1_000, "{line}, {cause:?}");
            } else if count == 2 && pauses {
                let next = ended
                    .not_before_fleet_ms
                    .expect("the retry has a wait")
                    .saturating_sub(world.now.fleet_ms);
                assert_eq!(next, 2 * last, "{line}, {cause:?}: the wait did not double");
            } else if count == 1 {
                assert_eq!(ended.not_before_fleet_ms, None, "{line}, {cause:?}");
            }
            if then != ExpectedOutcome::Continues && count == DEFAULT_MAX_FAILURES {
                break;
            }
            assert!(
                ended.status.is_waiting(),
                "{line}, {cause:?}: {}",
                ended.status
            );
            assert_eq!(
                ended.failures,
                if then == ExpectedOutcome::Continues {
                    0
                } else {
                    count
                },
                "{line}, {cause:?}"
            );
        }
        check_end(&world, task, then, &format!("{line}, {cause:?}"));
    }
}

/// Takes the next attempt as soon as it is due.
fn next_attempt(world: &mut World) -> Option<PollGrant> {
    for _ in 0..20 {
        if let Some(grant) = world.poll_supervised("ada") {
            return Some(grant);
        }
        let due = world.board.next_deadline(world.now)?;
        world.advance(due.saturating_sub(world.now.fleet_ms));
    }
    None
}

fn check_end(world: &World, task: TaskId, then: ExpectedOutcome, line: &str) {
    let ended = world.stored_task(task);
    match then {
        ExpectedOutcome::Continues => {
            return assert!(ended.status.is_waiting(), "{line}: {}", ended.status);
        }
        ExpectedOutcome::Fails => assert_eq!(ended.status, TaskStatus::Failed, "{line}"),
        ExpectedOutcome::NeedsPerson(kind) => {
            assert_eq!(
                (ended.status, ended.needed_decision),
                (TaskStatus::NeedsHuman, Some(kind)),
                "{line}"
            );
            assert_eq!(
                world.wait_kinds(task),
                [kind],
                "{line}: the wait reason does not say so"
            );
        }
    }
    assert!(
        ended
            .reason
            .as_deref()
            .unwrap()
            .starts_with("3 attempts failed; the last one: "),
        "{line}: {ended:?}"
    );
}

/// A person can always try again.
#[test]
fn a_person_can_retry_a_task_without_attempts_left() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    for _ in 0..DEFAULT_MAX_FAILURES {
        let grant = next_attempt(&mut world).unwrap();
        world.report(exit_report(&grant, failed_exit(FailureClass::Crashed)));
    }
    assert_eq!(world.status(task), TaskStatus::NeedsHuman);
    assert_eq!(world.poll_supervised("ada"), None);
    world.ask("ann", Command::RetryTask { task, failed: None });
    let grant = world
        .poll_supervised("ada")
        .expect("the retry starts at once");
    assert_eq!(grant.task, task);
}

/// A failed task stays failed. Its retry is a new task, whose attempt gets the reason of the
/// failure.
#[test]
fn the_retry_of_a_failed_task_gets_the_reason_of_the_failure() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("part", &["a.rs"]);
    let grant = world.take_task("ada");
    let (task, attempt, token) = (grant.task, grant.attempt, grant.token);
    world.ask(
        "ada",
        Command::GiveUp {
            task,
            attempt,
            token,
            reason: Some("the moon is missing".into()),
        },
    );
    let failed = Some(Box::new(world.stored_task(task)));
    let CommandOutcome::Task(again) = world.ask("ann", Command::RetryTask { task, failed }) else {
        panic!()
    };
    assert_ne!(again, task);
    let grant = world.take_task("ada");
    let notes = &world.board.attempts[&grant.attempt].notes;
    assert!(
        notes[0].contains("T1, which failed: the moon is missing"),
        "{notes:?}"
    );
}

/// A set-up fault costs no attempt. A fault of the agent parks the agent, and a fault of the
/// repository needs a person.
#[test]
fn a_fault_of_the_setup_costs_no_attempt() {
    use regatta_core::attempt::SetupFault;
    for fault in [SetupFault::Agent, SetupFault::Task] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised_task("ada");
        let reason = "The program `x` is not installed. Install it: npm i x".to_owned();
        world.report(exit_report(
            &grant,
            ProgramExit::NotRun {
                reason,
                fault: Some(fault),
            },
        ));
        let found = world.task(task);
        assert_eq!((found.failures, found.attempt), (0, None), "{fault:?}");
        assert_eq!(
            world.poll_supervised("ada"),
            None,
            "{fault:?}: the task was retried by itself"
        );
        match fault {
            SetupFault::Agent => {
                assert!(world.board.parked.contains_key("agent:ada"));
                world.ask(
                    "ann",
                    Command::ResumeAgent {
                        agent: agent("ada"),
                    },
                );
            }
            SetupFault::Task => {
                assert_eq!(world.status(task), TaskStatus::NeedsHuman);
                world.ask("ann", Command::RetryTask { task, failed: None });
            }
        }
        assert!(
            world.poll_supervised("ada").is_some(),
            "{fault:?}: the task did not go on after a person acted"
        );
    }
}

/// An agent that finished with `not_needed` keeps that status when its program's result file says
/// "done", but not when the file says that a person must help.
#[test]
fn a_result_file_keeps_the_agents_not_needed_unless_it_is_blocked() {
    use regatta_core::attempt::{ResultStatus, WorkFindings, WorkResult};
    for (status, kept) in [
        (ResultStatus::Done, ResultStatus::NotNeeded),
        (ResultStatus::Blocked, ResultStatus::Blocked),
    ] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised_task("ada");
        let PollGrant { attempt, token, .. } = grant;
        let output = Some("it is there already".into());
        world.ask(
            "ada",
            Command::Finish {
                task,
                attempt,
                token,
                output,
                not_needed: true,
                learnings: vec![],
            },
        );
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        let result = Some(WorkResult {
            status,
            detail: "Followed 1 step.".into(),
            ..WorkResult::default()
        });
        let findings = WorkFindings {
            result,
            ..WorkFindings::default()
        };
        world.report(Report::WorkVerdict {
            attempt,
            token,
            verdict: passed_verdict(&[]),
            findings,
        });
        let result = world.stored_attempt(attempt).result.unwrap();
        assert_eq!(result.status, kept, "{result:?}");
        assert_eq!(
            world.stored_task(task).status == TaskStatus::Completed,
            kept == ResultStatus::NotNeeded,
            "{result:?}"
        );
    }
}

/// An agent can report that no change is needed. The task is then completed, or a person is asked,
/// by the project's policy.
#[test]
fn a_task_can_be_completed_without_a_change_if_the_agent_says_so() {
    use regatta_core::attempt::{ResultStatus, WorkFindings, WorkResult};
    use regatta_core::project::NotNeededPolicy;
    for (by_tool, policy) in [
        (true, NotNeededPolicy::Done),
        (false, NotNeededPolicy::Done),
        (false, NotNeededPolicy::Ask),
    ] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let mut request = world.project("shop", &["cargo test"]);
        request.settings.run.not_needed = policy;
        world.ask("ann", Command::AddProject(request));
        let task = world.add_task("one", &["a"]);
        let grant = world.take_supervised_task("ada");
        let PollGrant { attempt, token, .. } = grant;
        if by_tool {
            let output = Some("it is there already".into());
            world.ask(
                "ada",
                Command::Finish {
                    task,
                    attempt,
                    token,
                    output,
                    not_needed: true,
                    learnings: vec![],
                },
            );
        }
        world.report(exit_report(&grant, ProgramExit::Done { output: None }));
        let result = WorkResult {
            status: ResultStatus::NotNeeded,
            detail: "it is there".into(),
            ..WorkResult::default()
        };
        let findings = WorkFindings {
            result: (!by_tool).then_some(result),
            ..WorkFindings::default()
        };
        world.report(Report::WorkVerdict {
            attempt,
            token,
            verdict: passed_verdict(&[]),
            findings,
        });
        match policy {
            NotNeededPolicy::Done => {
                assert_eq!(world.stored_task(task).status, TaskStatus::Completed)
            }
            NotNeededPolicy::Ask => assert_eq!(
                (world.status(task), world.task(task).failures),
                (TaskStatus::NeedsHuman, 0)
            ),
        }
    }
    // Without that status, an empty change counts as a failed attempt.
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("one", &["a"]);
    let grant = world.take_supervised_task("ada");
    world.report(exit_report(&grant, ProgramExit::Done { output: None }));
    world.report_verdict(&grant, passed_verdict(&[]));
    assert_eq!(world.task(task).failures, 1);
}
