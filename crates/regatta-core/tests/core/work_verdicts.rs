//! Judging of captured work: scope escapes, reports, failed checks, standing rules and missing
//! manifests.

use regatta_core::attempt::{AttemptCause, ResultStatus, WorkFindings, WorkResult, WorkVerdict};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::effect::Effect;
use regatta_core::ids::TaskId;
use regatta_core::project;
use regatta_core::schedule::{PollGrant, PollRequest, WaitKind};
use regatta_core::scope_escape::{self, EscapeSource, ScopeFinding};
use regatta_core::task::{AddTask, Expects, TaskStatus};

use crate::world::*;

fn report_verdict(
    world: &mut World,
    grant: &PollGrant,
    verdict: WorkVerdict,
    findings: WorkFindings,
) -> bool {
    let PollGrant { attempt, token, .. } = *grant;
    match world.report(Report::WorkVerdict {
        attempt,
        token,
        verdict,
        findings,
    }) {
        CommandOutcome::Judged { landing } => landing.is_some(),
        other => panic!("{other:?}"),
    }
}

fn end_cause_of(world: &World, task: TaskId) -> AttemptCause {
    let ends = world.log.iter().filter_map(|event| match &event.event {
        regatta_core::event::Event::AttemptEnded(attempt_ended) => {
            Some((*attempt_ended.attempt(), *attempt_ended.cause()))
        }
        _ => None,
    });
    let of = world.log.iter().filter_map(|event| match &event.event {
        regatta_core::event::Event::TaskStarted(task_started) if *task_started.task() == task => {
            Some(*task_started.attempt())
        }
        _ => None,
    });
    let last = of.max().unwrap();
    let mut ends = ends;
    ends.rfind(|end| end.0 == last).unwrap().1
}

/// Changes outside the manifest are held back and recorded. Changes inside it go on to the queue.
#[test]
fn scope_escapes_are_held_back_and_the_rest_goes_on() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.finish(&grant);
    let said = vec![ScopeFinding {
        finding: "the API is wrong".into(),
        suggested_files: vec!["api/x.rs".into()],
    }];
    let findings = WorkFindings {
        outside_manifest: vec!["README.md".into()],
        reported: said,
        ..WorkFindings::default()
    };
    assert!(report_verdict(
        &mut world,
        &grant,
        passed_verdict(&["src/a.rs"]),
        findings
    ));
    let escapes = world.task(task).escapes.clone();
    assert_eq!(
        escapes
            .iter()
            .map(|scope_escape| scope_escape.source)
            .collect::<Vec<_>>(),
        [EscapeSource::Diff, EscapeSource::Reported]
    );
    assert_eq!(escapes[0].suggested_files, ["README.md"]);
    let note = scope_escape::files_left_out_note(world.task(task), grant.attempt).unwrap();
    assert_eq!(
        note, "left out changes outside its files: README.md; kept in A1: regatta diff A1",
        "only changes from the diff are left out"
    );
    assert_eq!(
        scope_escape::files_left_out_note(world.task(task), regatta_core::ids::AttemptId(2)),
        None,
        "another attempt left nothing out"
    );
    let add = scope_escape::follow_up(world.task(task), 1).unwrap();
    assert_eq!(
        (add.alias.as_deref(), add.files[0].as_str()),
        (Some("T1.2"), "api/x.rs")
    );
    assert!(scope_escape::follow_up(world.task(task), 2).is_err());
    let follow = world.add(add);
    assert_eq!(world.status(follow), TaskStatus::Unassigned);
}

/// Work with changes only outside of the manifest counts as no change. If the project blocks
/// escapes, a person must decide.
#[test]
fn work_only_outside_the_manifest_counts_as_no_change() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.finish(&grant);
    let outside = || WorkFindings {
        outside_manifest: vec!["README.md".into()],
        ..WorkFindings::default()
    };
    assert!(!report_verdict(
        &mut world,
        &grant,
        passed_verdict(&[]),
        outside()
    ));
    assert_eq!(
        (end_cause_of(&world, task), world.task(task).failures),
        (AttemptCause::NothingChanged, 1)
    );
    assert!(
        world
            .task(task)
            .reason
            .as_ref()
            .unwrap()
            .contains("README.md")
    );
    let grant = world.take_task("ada");
    world.finish(&grant);
    let verdict = WorkVerdict::NeedsPerson {
        kind: WaitKind::Policy,
        reason: "it went outside".into(),
    };
    assert!(!report_verdict(&mut world, &grant, verdict, outside()));
    assert_eq!(
        (world.status(task), end_cause_of(&world, task)),
        (TaskStatus::NeedsHuman, AttemptCause::ScopeEscape)
    );
    assert_eq!(world.wait_kinds(task), [WaitKind::Policy]);
}

/// A task with `expects = report` needs a report, but no change.
#[test]
fn a_report_needs_a_text_but_no_change() {
    let says = |detail: &str| WorkFindings {
        result: Some(WorkResult {
            detail: detail.into(),
            status: ResultStatus::Done,
            ..WorkResult::default()
        }),
        ..WorkFindings::default()
    };
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add(AddTask {
        expects: Expects::Report,
        ..task_to_add("what does this do?", &[])
    });
    for (nth, empty) in [WorkFindings::default(), says(" ")].into_iter().enumerate() {
        let grant = world.take_task("ada");
        world.finish(&grant);
        assert!(!report_verdict(
            &mut world,
            &grant,
            passed_verdict(&[]),
            empty
        ));
        assert_eq!(world.task(task).failures, nth as u32 + 1);
    }
    let grant = world.take_task("ada");
    world.finish(&grant);
    assert!(!report_verdict(
        &mut world,
        &grant,
        passed_verdict(&[]),
        says("it sorts")
    ));
    assert_eq!(
        (world.status(task), world.stored_task(task).landed),
        (TaskStatus::Completed, None)
    );
}

/// An attempt without a workspace has no effects, and its report is judged in the commit that
/// finishes it. A task that expects a change gets a workspace even if the poll asked for none.
#[test]
fn a_report_without_a_workspace_is_judged_when_it_finishes() {
    let bare = |world: &mut World| {
        grant_of_poll(world.ask(
            "ada",
            Command::Poll(PollRequest {
                no_workspace: true,
                ..poll_of("ada")
            }),
        ))
        .unwrap()
    };
    let says = |poll_grant: &PollGrant, output: &str| Command::Finish {
        task: poll_grant.task,
        attempt: poll_grant.attempt,
        token: poll_grant.token,
        output: Some(output.into()),
        not_needed: false,
        learnings: vec![],
    };
    let mut world = World::with_agents(&[("ada", 1)]);
    let report = world.add(AddTask {
        expects: Expects::Report,
        ..task_to_add("what does this do?", &[])
    });
    let grant = bare(&mut world);
    world.ask("ada", says(&grant, " "));
    assert_eq!(
        (world.status(report), end_cause_of(&world, report)),
        (TaskStatus::Unassigned, AttemptCause::NothingChanged)
    );
    assert_eq!(
        world.task(report).resume,
        None,
        "there is no workspace to resume"
    );
    let grant = bare(&mut world);
    assert_eq!(
        world.board.attempts[&grant.attempt].gates,
        [],
        "an attempt without a workspace passes no gates"
    );
    world.ask("ada", says(&grant, "it sorts"));
    assert_eq!(
        (world.status(report), world.board.attempts.len()),
        (TaskStatus::Completed, 0)
    );
    assert_eq!(world.outbox.len(), 0, "the attempt had an effect");

    let change = world.add_task("words", &["src/**"]);
    let grant = bare(&mut world);
    assert!(world.outbox.values().any(|effect| *effect
        == Effect::PrepareWorkspace {
            attempt: grant.attempt
        }));
    world.ask("ada", says(&grant, "done"));
    assert_eq!(
        world.status(change),
        TaskStatus::Validating,
        "the work was judged before it was captured"
    );
}

/// Work that fails its checks goes back to the same workspace, up to the project's number of
/// attempts.
#[test]
fn work_that_fails_its_checks_goes_back_to_its_workspace() {
    for attempts in [1, 3, 4] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let mut project = world.project("shop", &["make"]);
        project.settings = project::ProjectSettings {
            run: project::RunSettings {
                attempts,
                ..project::RunSettings::default()
            },
            ..project::ProjectSettings::default()
        };
        world.ask("ann", Command::AddProject(project));
        let task = world.add_task("words", &["src/**"]);
        let mut workspaces = Vec::new();
        for left in (0..attempts).rev() {
            let grant = world.take_task("ada");
            workspaces.push(world.board.attempts[&grant.attempt].workspace());
            world.fail_once(&grant);
            assert_eq!(
                world.status(task),
                if left == 0 {
                    TaskStatus::Failed
                } else {
                    TaskStatus::Unassigned
                }
            );
        }
        workspaces.dedup();
        assert_eq!(workspaces.len(), 1, "the attempts used several workspaces");
        assert!(
            world
                .stored_task(task)
                .reason
                .unwrap()
                .contains("1 test failed")
        );
    }
}

/// W1: a blocking standing rule holds the tasks that match it, with a wait reason. A change of the
/// rule releases them.
#[test]
fn w1_a_standing_rule_holds_matching_tasks() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let rule = |files: &str, action| project::StandingRule {
        name: "frozen".into(),
        message: "the schema is frozen".into(),
        files: vec![regatta_core::pattern::PathPattern::new(files).unwrap()],
        action,
        ..project::StandingRule::default()
    };
    let with = |world: &mut World, rule: project::StandingRule| {
        let mut project = world.project("shop", &["make"]);
        project.settings.rule = vec![rule];
        world.ask("ann", Command::AddProject(project));
    };
    with(&mut world, rule("db/**", project::RuleAction::Block));
    let held_task = world.add_task("a", &["db/schema.sql"]);
    let free = world.add_task("b", &["src/b.rs"]);
    assert_eq!(world.take_task("ada").task, free);
    assert_eq!(
        (world.poll("ada"), world.wait_kinds(held_task)[0]),
        (None, WaitKind::Policy)
    );
    with(&mut world, rule("db/**", project::RuleAction::Warn));
    assert_eq!(world.take_task("ada").task, held_task);
}

/// A task without a manifest gets one from the report of an exploring task. It starts only then.
#[test]
fn a_missing_manifest_is_found_by_an_exploring_task() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let task = world.add_task("words", &[]);
    assert_eq!(
        world.poll("ada"),
        None,
        "the task started without a manifest"
    );
    let CommandOutcome::Task(explorer) = world.ask("ann", Command::Explore { task }) else {
        panic!("exploring adds a task")
    };
    assert_eq!(
        world.ask("ann", Command::Explore { task }),
        CommandOutcome::Task(explorer),
        "exploring twice adds one task"
    );
    let found = |detail: &str| WorkFindings {
        result: Some(WorkResult {
            detail: detail.into(),
            ..WorkResult::default()
        }),
        ..WorkFindings::default()
    };
    let grant = world.take_task("ada");
    assert_eq!(grant.task, explorer);
    world.finish(&grant);
    assert!(!report_verdict(
        &mut world,
        &grant,
        passed_verdict(&[]),
        found("[\"../x\"]")
    ));
    assert_eq!(
        (world.task(explorer).failures, world.task(task).files.len()),
        (1, 0)
    );
    let grant = world.take_task("ada");
    world.finish(&grant);
    assert!(
        !report_verdict(
            &mut world,
            &grant,
            passed_verdict(&["src/a.rs"]),
            found("[\"src/a.rs\"]")
        ),
        "the changes of the exploring task were queued"
    );
    assert_eq!(world.task(task).files[0].as_str(), "src/a.rs");
    assert_eq!(world.take_task("ada").task, task);
}
