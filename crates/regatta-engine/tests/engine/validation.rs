//! Tests of the validation of an attempt's work before it is submitted.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use regatta_core::attempt::AttemptCause;
use regatta_core::command::{Command, PlannedTask};
use regatta_core::ids::TaskId;
use regatta_core::project::EscapePolicy;
use regatta_core::schedule::WaitKind;
use regatta_core::task::{self, TaskStatus};
use regatta_engine::Engine;
use regatta_engine::ports::agents::Exit;
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

fn causes(engine: &Engine, task: TaskId) -> Vec<AttemptCause> {
    let attempts = engine.history().attempts_of(task).unwrap();
    attempts
        .iter()
        .filter_map(|attempt| attempt.end.as_ref().map(|end| end.cause))
        .collect()
}

fn planned_task(task: task::AddTask) -> PlannedTask {
    PlannedTask {
        task,
        after: vec![],
        assign: None,
    }
}

#[test]
fn a_ratchet_decides_after_the_other_checks() {
    for (answer, status, cause) in [
        ("goes on", TaskStatus::Completed, AttemptCause::Submitted),
        ("refuses", TaskStatus::Failed, AttemptCause::Rejected),
    ] {
        let (world, life) = (World::new(append_own_name), EngineLife::new());
        let ratchet_calls = Arc::new(AtomicUsize::new(0));
        let counter = ratchet_calls.clone();
        world
            .agents
            .check_content_with(move |command, files| match command {
                "test" => Ok(()),
                "ol hero 'ratchet it'" => {
                    assert_eq!(files["a"], "T1\n", "the ratchet does not see the work");
                    counter.fetch_add(1, Ordering::SeqCst);
                    if answer == "refuses" {
                        Err("quest is closed".into())
                    } else {
                        Ok(())
                    }
                }
                other => panic!("{other}"),
            });
        let engine = world.start_in(&life).unwrap();
        let ratchet = Some(vec!["ol".into(), "hero".into(), "ratchet it".into()]);
        let (_, tasks) = launch(
            &engine,
            &["ann"],
            vec![planned_task(task::AddTask {
                ratchet,
                ..task_on("a", "a")
            })],
        );
        wait_until_done(&engine, &life, &world);
        let task = engine.history().task(tasks[0]).unwrap().unwrap();
        assert_eq!(
            (task.status, causes(&engine, tasks[0])),
            (status, vec![cause])
        );
        if answer == "refuses" {
            assert!(
                task.reason.as_ref().unwrap().contains("quest is closed"),
                "{:?}",
                task.reason
            );
            assert!(world.git.trunk_moves().is_empty(), "rejected work landed");
        }
        assert_eq!(ratchet_calls.load(Ordering::SeqCst), 1);
        assert_clean(&engine, &world);
        engine.shutdown();
    }
}

fn editing_world(files: &'static [(&'static str, &'static str)]) -> World {
    World::new(move |program| {
        for (file, text) in files {
            program.append(file, text);
        }
        Exit::Code(0)
    })
}

/// Changes outside the manifest are found from the diff, even if the worker does not report them.
/// They stay out of the trunk and are kept in the capture (Q3).
#[test]
fn q3_changes_outside_the_manifest_are_held_back_and_kept() {
    let (world, life) = (
        editing_world(&[("a", "mine"), ("b", "not mine")]),
        EngineLife::new(),
    );
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert_eq!(
        (task.status, causes(&engine, tasks[0])),
        (TaskStatus::Completed, vec![AttemptCause::Submitted])
    );
    assert_eq!(task.escapes.len(), 1);
    assert_eq!(task.escapes[0].suggested_files, ["b"]);
    let trunk = world.git.trunk(Path::new(REPO));
    assert_eq!(
        (trunk.get("a").map(String::as_str), trunk.get("b")),
        (Some("mine"), None)
    );
    let captures = world.git.captures_of(task.submission.unwrap().attempt);
    assert!(
        captures
            .iter()
            .any(|files| files.get("b").map(String::as_str) == Some("not mine")),
        "the held-back change is lost"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// Q1: work that needs a held-back file fails its own checks and does not reach the queue. The
/// reason names the file.
#[test]
fn q1_held_back_files_do_not_count_in_the_checks_of_an_attempt() {
    let (world, life) = (
        editing_world(&[("a", "mine"), ("b", "not mine")]),
        EngineLife::new(),
    );
    world.agents.check_content_with(|_, files| {
        if files.contains_key("b") {
            Ok(())
        } else {
            Err("there is no b".into())
        }
    });
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until(&engine, "the task has failed", |board| {
        board.ended_status(tasks[0]) == Some(TaskStatus::Failed)
    });
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert_eq!(causes(&engine, tasks[0]), vec![AttemptCause::Invalid; 3]);
    let reason = task.reason.unwrap_or_default();
    assert!(
        reason.contains("; the checks ran without b, held back because outside its manifest"),
        "{reason}"
    );
    assert_eq!(
        reason.lines().count(),
        1,
        "screens show one line of a reason: {reason}"
    );
    assert_eq!(
        engine.board().counters.landing,
        0,
        "the work reached the queue"
    );
    engine.shutdown();
}

/// Q1: a ratchet measures exactly the tree that will land, so held-back files are not in it.
#[test]
fn q1_held_back_files_do_not_count_for_a_ratchet() {
    let (world, life) = (
        editing_world(&[("a", "mine"), ("b", "not mine")]),
        EngineLife::new(),
    );
    let ratchet_calls = Arc::new(AtomicUsize::new(0));
    let counter = ratchet_calls.clone();
    world.agents.check_content_with(move |command, files| {
        if command == "measure" {
            counter.fetch_add(1, Ordering::SeqCst);
            assert_eq!(
                files.get("a").map(String::as_str),
                Some("mine"),
                "the ratchet does not see the work"
            );
            return if files.contains_key("b") {
                Err("b counts".into())
            } else {
                Ok(())
            };
        }
        Ok(())
    });
    let engine = world.start_in(&life).unwrap();
    let ratchet = Some(vec!["measure".into()]);
    let (_, tasks) = launch(
        &engine,
        &["ann"],
        vec![planned_task(task::AddTask {
            ratchet,
            ..task_on("a", "a")
        })],
    );
    wait_until_done(&engine, &life, &world);
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert_eq!(
        (task.status, causes(&engine, tasks[0])),
        (TaskStatus::Completed, vec![AttemptCause::Submitted]),
        "{:?}",
        task.reason
    );
    assert_eq!(ratchet_calls.load(Ordering::SeqCst), 1);
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn a_scope_escape_needs_a_person_if_the_project_blocks_escapes() {
    let (world, life) = (
        editing_world(&[("a", "mine"), ("b", "not mine")]),
        EngineLife::new(),
    );
    let engine = world.start_in(&life).unwrap();
    let Command::AddProject(mut project) = add_project() else {
        panic!("the helper adds a project")
    };
    project.settings.run.on_scope_escape = EscapePolicy::Block;
    submit(&engine, Command::AddProject(project));
    submit(&engine, register("ann"));
    submit(&engine, mission(&["ann"], vec![planned("a", "a", &[])]));
    let board = wait_until(&engine, "the task needs a person", |board| {
        board
            .tasks
            .values()
            .any(|task| task.status == TaskStatus::NeedsHuman)
    });
    let task = &board.tasks[&TaskId(1)];
    assert!(
        task.reason
            .as_ref()
            .unwrap()
            .contains("outside its manifest: b"),
        "{:?}",
        task.reason
    );
    assert_eq!(
        (task.needed_decision, task.escapes.len()),
        (Some(WaitKind::Policy), 1)
    );
    assert!(world.git.trunk_moves().is_empty());
    engine.shutdown();
}

/// A worker's "done" does not count when nothing changed, or only files outside its manifest. If
/// the checks pass without a change, a person is asked at once, because another attempt would end
/// the same way.
#[test]
fn work_without_a_change_inside_its_manifest_never_completes() {
    let only_outside = vec![AttemptCause::NothingChanged; 3];
    for (files, expected, expected_causes) in [
        (
            &[][..],
            "nothing had changed; ",
            vec![AttemptCause::Blocked],
        ),
        (&[("b", "x")][..], "only files outside", only_outside),
    ] {
        let (world, life) = (editing_world(files), EngineLife::new());
        let engine = world.start_in(&life).unwrap();
        let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
        let reason = wait_until_given_up(&engine, &life, &world, tasks[0]);
        assert_eq!(causes(&engine, tasks[0]), expected_causes);
        assert!(reason.contains(expected), "{reason}");
        assert_clean(&engine, &world);
        engine.shutdown();
    }
}

/// If the checks fail without a change, the agent gets their output, as after any other failure.
#[test]
fn failing_checks_without_a_change_go_back_to_the_agent() {
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let recorded = prompts.clone();
    let world = World::new(move |program| {
        recorded
            .lock()
            .unwrap()
            .push(program.launch().prompt.clone());
        if program.run_number() == 2 {
            program.write("a", "new\n");
        }
        Exit::Code(0)
    });
    world.agents.check_content_with(|_, files| {
        if files.contains_key("a") {
            Ok(())
        } else {
            Err("a is missing".to_owned())
        }
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);
    assert_eq!(
        causes(&engine, tasks[0]),
        [AttemptCause::Invalid, AttemptCause::Submitted]
    );
    let second = prompts.lock().unwrap()[1].clone();
    assert!(
        second.contains("nothing had changed: ") && second.contains("a is missing"),
        "{second}"
    );
    engine.shutdown();
}

/// The work goes back to the worker three times with the check's output, in the same workspace.
/// Then the task fails with the evidence.
#[test]
fn work_that_keeps_failing_its_checks_fails_with_its_evidence() {
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let recorded = prompts.clone();
    let world = World::new(move |program| {
        recorded.lock().unwrap().push((
            program.launch().workspace.clone(),
            program.launch().prompt.clone(),
        ));
        append_own_name(program)
    });
    world
        .agents
        .check_content_with(|_, files| Err(format!("a has {} lines", files["a"].lines().count())));
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert_eq!(
        (task.status, causes(&engine, tasks[0])),
        (TaskStatus::Failed, vec![AttemptCause::Invalid; 3])
    );
    assert!(
        task.reason.as_ref().unwrap().contains("a has 3 lines"),
        "{:?}",
        task.reason
    );
    let prompts = prompts.lock().unwrap().clone();
    assert!(
        prompts
            .iter()
            .all(|(workspace, _)| *workspace == prompts[0].0),
        "the attempts used several workspaces"
    );
    assert!(
        prompts[1].1.contains("a has 1 lines") && prompts[2].1.contains("a has 2 lines"),
        "{}",
        prompts[1].1
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}
