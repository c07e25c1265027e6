//! Tests of the way from a task to the trunk, through every port.

use std::path::Path;
use std::time::Duration;

use regatta_core::attempt::AttemptCause;
use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::event::Event;
use regatta_core::ids::{LandingId, TaskId};
use regatta_core::landing::guard::{FileKind, SpecialFile};
use regatta_core::task::TaskStatus;
use regatta_engine::ports::agents::Exit;
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

fn trunk_commits(world: &World) -> Vec<(String, String)> {
    world.git.trunk(Path::new(REPO)).into_iter().collect()
}

fn trunk_file(world: &World, file: &str) -> String {
    world
        .git
        .trunk(Path::new(REPO))
        .get(file)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn one_task_goes_from_the_plan_to_the_trunk() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);

    assert_eq!(
        trunk_commits(&world),
        [
            ("README".into(), "shop\n".into()),
            ("a".into(), "T1\n".into())
        ]
    );
    assert_eq!(
        world.git.commit_messages(Path::new(REPO)),
        ["first", "Change a"]
    );
    let task = engine.history().task(tasks[0]).unwrap().unwrap();
    assert_eq!(
        (task.status, task.landed.as_ref()),
        (TaskStatus::Completed, Some(&world.git.trunk_moves()[0].new))
    );
    let attempts = engine.history().attempts_of(tasks[0]).unwrap();
    assert_eq!(
        attempts
            .iter()
            .map(|attempt| attempt.end.as_ref().unwrap().cause)
            .collect::<Vec<_>>(),
        [AttemptCause::Submitted]
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// J5, and L1 on files: a task that depends on another one or shares its files starts from a trunk
/// that contains the other's work.
#[test]
fn j5_dependencies_and_overlapping_manifests_keep_their_order() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    // The first and the second task share a file, the third depends on the first, and the fourth on
    // all of them.
    let plan = vec![
        planned("log", "log", &[]),
        planned("log", "lo?", &[]),
        planned("c", "c", &[0]),
        planned("log", "**", &[0, 1, 2]),
    ];
    launch(&engine, &["ann", "bob", "cid"], plan);
    wait_until_done(&engine, &life, &world);

    assert_eq!(
        (trunk_file(&world, "log"), trunk_file(&world, "c")),
        ("T1\nT2\nT4\n".into(), "T3\n".into())
    );
    let mut completed = Vec::new();
    for event in engine.history().events(0, usize::MAX).unwrap() {
        match &event.event {
            Event::TaskCompleted(completed_event) => completed.push(*completed_event.task()),
            Event::TaskStarted(started_event) if *started_event.task() == TaskId(3) => {
                assert!(completed.contains(&TaskId(1)))
            }
            Event::TaskStarted(started_event) if *started_event.task() == TaskId(4) => {
                assert_eq!(completed.len(), 3)
            }
            _ => {}
        }
    }
    // Two tasks that are ready together may land in one move, but each has its own commit.
    let mut log = world.git.commit_messages(Path::new(REPO));
    log.sort();
    assert_eq!(
        log,
        [
            "Change c",
            "Change log",
            "Change log",
            "Change log",
            "first"
        ]
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn a_conflict_is_fixed_up_on_the_new_trunk_and_lands() {
    let world = World::new(|program| {
        if program.run_number() == 1 {
            program
                .git()
                .commit_as_person(Path::new(REPO), "a", "a person's\n");
        }
        append_own_name(program)
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);

    assert_eq!(trunk_file(&world, "a"), "a person's\nT1\n");
    assert_eq!(
        (
            world.agents.program_counts()["T1"],
            world.git.trunk_moves().len()
        ),
        (2, 1)
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// Q1: a tree that fails after the merge does not land, although the branch passed by itself.
#[test]
fn q1_a_merge_that_fails_its_checks_does_not_land() {
    let world = World::new(|program| {
        if program.run_number() == 1 {
            program
                .git()
                .commit_as_person(Path::new(REPO), "limit", "1\n");
        }
        program.write(
            "a",
            if program.read("limit").is_empty() {
                "too much\n"
            } else {
                "little\n"
            },
        );
        Exit::Code(0)
    });
    world.agents.check_content_with(|_, files| {
        let is_over_limit =
            files.contains_key("limit") && files.get("a").is_some_and(|file| file == "too much\n");
        if is_over_limit {
            Err("over the limit".into())
        } else {
            Ok(())
        }
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);

    assert_eq!(trunk_file(&world, "a"), "little\n");
    let landings = engine.history().landings(&shop_name(), 9).unwrap();
    assert!(
        format!("{:?}", landings[1].end).contains("over the limit"),
        "{:?}",
        landings[1].end
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn a_program_that_fails_three_times_needs_a_person_and_releases_everything() {
    let (world, life) = (World::new(|_| Exit::Code(3)), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    let reason = wait_until_given_up(&engine, &life, &world, tasks[0]);
    assert!(reason.contains("exited with 3"), "{reason}");
    assert_eq!(world.agents.program_counts()["T1"], 3);
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn changes_outside_the_manifest_are_found_from_the_diff() {
    let world = World::new(|program| {
        program.write(
            if program.run_number() == 1 {
                "elsewhere"
            } else {
                "a"
            },
            "new\n",
        );
        Exit::Code(0)
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);

    let attempts = engine.history().attempts_of(tasks[0]).unwrap();
    let causes: Vec<_> = attempts
        .iter()
        .map(|attempt| attempt.end.as_ref().unwrap().cause)
        .collect();
    assert_eq!(
        causes,
        [AttemptCause::NothingChanged, AttemptCause::Submitted]
    );
    // Q5, Q6: work that did not land is kept.
    assert_eq!(
        world.git.captures_of(attempts[0].id)[0]["elsewhere"],
        "new\n"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn a_dirty_checkout_holds_the_landing_until_it_is_clean() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    world.git.set_dirty(Path::new(REPO), &["README"]);
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    let board = wait_until(&engine, "the landing is held", |board| {
        board
            .landings
            .values()
            .any(|landing| landing.held.is_some())
    });
    assert!(
        board.landings[&LandingId(1)]
            .held
            .as_ref()
            .unwrap()
            .contains("README")
    );
    assert_eq!(world.git.trunk_moves(), []);

    world.git.set_dirty(Path::new(REPO), &[]);
    submit(
        &engine,
        Command::Land {
            task: tasks[0],
            first: false,
        },
    );
    wait_until_done(&engine, &life, &world);
    assert_eq!(trunk_file(&world, "a"), "T1\n");
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// Q2: a trunk that moved after the trial is not overwritten. The merge is made again.
#[test]
fn q2_a_trunk_that_moved_during_a_landing_is_merged_again() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let trunk_move = life.hold_next("git.move_trunk");
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    trunk_move.wait_until_reached();
    world
        .git
        .commit_as_person(Path::new(REPO), "b", "a person's\n");
    trunk_move.release();
    wait_until_done(&engine, &life, &world);

    assert_eq!(
        (trunk_file(&world, "a"), trunk_file(&world, "b")),
        ("T1\n".into(), "a person's\n".into())
    );
    assert_eq!(
        (world.git.trunk_moves().len(), life.call_count("git.stage")),
        (1, 2)
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// L6: a move whose claim expired in the meantime may happen, because the ref decides that, but its
/// report has no effect.
#[test]
fn l6_the_report_of_a_move_with_an_expired_fence_has_no_effect() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let trunk_move = life.hold_next("git.move_trunk");
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    trunk_move.wait_until_reached();
    let trial = life.hold_next("git.tip");
    world.clock.advance(Duration::from_secs(121));
    submit(&engine, post("a request makes the writer check the clock"));
    let board = wait_until(&engine, "the landing is tried again", |board| {
        board.landings.values().all(|landing| landing.tries == 2)
    });
    assert!(
        board.claims.values().all(|claim| claim.ttl_ms.is_none()),
        "the trunk is still claimed"
    );
    trial.wait_until_reached();

    // The old move succeeds before the new trial begins, so its report is stale.
    life.wait_until(
        "only the old move and the new trial are in the outbox",
        || world.outbox() == 2,
    );
    trunk_move.release();
    life.wait_until("the old move is completed", || world.outbox() == 1);
    assert_eq!(world.git.trunk_moves().len(), 1);
    assert!(
        !engine.board().landings.is_empty(),
        "L6: the report under a stale fence landed the task"
    );
    trial.release();
    wait_until_done(&engine, &life, &world);

    assert_eq!(
        (trunk_file(&world, "a"), world.git.trunk_moves().len()),
        ("T1\n".into(), 1)
    );
    let landed = engine
        .history()
        .events(0, usize::MAX)
        .unwrap()
        .into_iter()
        .filter(|event| matches!(event.event, Event::LandingLanded(_)));
    assert_eq!(landed.count(), 1, "Q7");
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// L6: a stale report also has no effect when the landing is moving the trunk again under a newer
/// fence.
#[test]
fn l6_a_report_under_a_stale_fence_does_not_count_for_a_newer_one() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let old_move = life.hold_next("git.move_trunk");
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    old_move.wait_until_reached();
    let new_move = life.hold_next("git.move_trunk");
    world.clock.advance(Duration::from_secs(121));
    submit(&engine, post("a request makes the writer check the clock"));
    new_move.wait_until_reached();

    life.wait_until("only the two moves are in the outbox", || {
        world.outbox() == 2
    });
    old_move.release();
    life.wait_until("the old move is completed", || world.outbox() == 1);
    assert_eq!(world.git.trunk_moves().len(), 1);
    assert!(
        !engine.board().landings.is_empty(),
        "L6: the report under a stale fence landed the task"
    );
    new_move.release();
    wait_until_done(&engine, &life, &world);
    assert_eq!(
        (trunk_file(&world, "a"), world.git.trunk_moves().len()),
        ("T1\n".into(), 1),
        "Q7"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// A port that fails once costs one try and nothing else.
#[test]
fn a_failing_port_is_tried_again() {
    for call in [
        "git.trial_merge",
        "git.stage",
        "git.move_trunk",
        "agents.check",
        "git.tip",
        "git.capture",
        "git.prepare",
    ] {
        let (world, life) = (World::new(append_own_name), EngineLife::new());
        life.fail_next(call, "the disk is full");
        let engine = world.start_in(&life).unwrap();
        launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
        let is_landed_or_held = |board: &regatta_core::board::Board| {
            board.tasks.is_empty()
                || board
                    .landings
                    .values()
                    .any(|landing| landing.held.is_some())
        };
        wait_until(
            &engine,
            "the task has landed or waits for its retry",
            is_landed_or_held,
        );
        world.clock.advance(Duration::from_secs(10));
        submit(&engine, post("tick"));
        wait_until_done(&engine, &life, &world);
        assert_eq!(trunk_file(&world, "a"), "T1\n", "{call}");
        assert_clean(&engine, &world);
        engine.shutdown();
    }
}

/// J2: an attempt whose program cannot be watched is not replaced while that program may still run.
#[test]
fn j2_a_program_that_cannot_be_watched_is_ended_before_the_next_one_starts() {
    let world = World::new(|program| {
        if program.run_number() == 1 {
            program.hang_until_stopped()
        } else {
            append_own_name(program)
        }
    });
    let life = EngineLife::new();
    life.fail_next("agents.attend", "the run directory cannot be read");
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until_done(&engine, &life, &world);
    assert_eq!(world.agents.program_counts()["T1"], 2);
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// An outside agent's attempt may end while its workspace is being made or captured. No workspace
/// is left behind, and its files are kept (Q5).
#[test]
fn q5_a_workspace_does_not_outlive_an_attempt_that_ended_during_its_preparation() {
    for has_finished in [false, true] {
        let (world, life) = (World::new(append_own_name), EngineLife::new());
        let engine = world.start_in(&life).unwrap();
        submit(&engine, add_project());
        submit(&engine, register_outside("ann"));
        submit(&engine, add_task("a"));
        let mut preparation = (!has_finished).then(|| life.hold_next("git.prepare"));
        let (attempt, token) = polled(&submit(&engine, poll_for("ann")));
        if has_finished {
            life.wait_until("the workspace is prepared", || world.outbox() == 0);
            world.git.edit_workspace(attempt, |files| {
                _ = files.insert("a".into(), "by hand\n".into())
            });
            preparation = Some(life.hold_next("git.prepare"));
            submit(
                &engine,
                Command::Finish {
                    task: TaskId(1),
                    attempt,
                    token,
                    output: None,
                    not_needed: false,
                    learnings: vec![],
                },
            );
        }
        let preparation = preparation.unwrap();
        preparation.wait_until_reached();
        submit(
            &engine,
            Command::CancelTask {
                task: TaskId(1),
                reason: "never mind".into(),
            },
        );
        life.wait_until("the sweep of old workspaces has run", || {
            world.outbox() == 1
        });
        preparation.release();
        life.wait_until("every effect is performed", || world.outbox() == 0);
        assert_eq!(
            world
                .git
                .captures_of(attempt)
                .iter()
                .any(|files| files.contains_key("a")),
            has_finished
        );
        assert_clean(&engine, &world);
        engine.shutdown();
    }
}

/// Q1: the checks are those of the current trunk, not those of the branch or of the project's
/// registration.
#[test]
fn q1_the_checks_are_the_trunks_own() {
    let mut world = World::new(|program| {
        // The branch tries to remove the checks that its work fails.
        program.write("regatta.toml", "nothing");
        program.write("a", "bad\n");
        Exit::Code(0)
    });
    world.settings.parse_checks = Some(|text| {
        let commands = if text.starts_with("strict") {
            vec!["strict".to_owned()]
        } else {
            vec![]
        };
        Ok(regatta_engine::CheckSettings {
            commands: Some(commands),
            timeout_ms: None,
        })
    });
    world
        .git
        .commit_as_person(Path::new(REPO), "regatta.toml", "strict");
    world.agents.check_content_with(|command, files| {
        let is_bad = command == "strict" && files.get("a").is_some_and(|file| file == "bad\n");
        if is_bad {
            Err("strict says no".into())
        } else {
            Ok(())
        }
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "**", &[])]);
    let in_review = || {
        engine
            .board()
            .tasks
            .get(&tasks[0])
            .is_some_and(|task| task.status == TaskStatus::InReview)
    };
    life.wait_until("the task is in review", in_review);
    // A person approves the new file, but the trunk's own checks still decide.
    submit(
        &engine,
        Command::Land {
            task: tasks[0],
            first: false,
        },
    );
    life.wait_until("the landing has ended", || {
        engine
            .history()
            .landings(&shop_name(), 9)
            .unwrap()
            .iter()
            .any(|landing| landing.end.is_some())
    });
    let landings = engine.history().landings(&shop_name(), 9).unwrap();
    assert!(
        format!("{:?}", landings.last().unwrap().end).contains("strict says no"),
        "{landings:?}"
    );
    assert_eq!(trunk_file(&world, "a"), "");
    engine.shutdown();
}

/// Q13: git determines the kind of a file, and no manifest lets a guarded kind land without
/// approval.
#[test]
fn q13_a_new_executable_waits_for_a_persons_approval() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let after = Some(FileKind::Executable);
    world.git.set_special(SpecialFile {
        path: "a".into(),
        before: None,
        after,
        target: None,
        unpublished: false,
    });
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    let is_in_review = |board: &Board| board.tasks[&tasks[0]].status == TaskStatus::InReview;
    let board = wait_until(&engine, "the task waits for a person", is_in_review);
    let reason = board.tasks[&tasks[0]].reason.clone().unwrap_or_default();
    assert!(reason.contains("a (a new executable file)"), "{reason}");
    assert!(world.git.trunk_moves().is_empty());
    submit(
        &engine,
        Command::Land {
            task: tasks[0],
            first: false,
        },
    );
    wait_until_done(&engine, &life, &world);
    assert_eq!(trunk_file(&world, "a"), "T1\n");
    engine.shutdown();
}

/// Q13: a change that may never land goes back to its worker, and the queue refuses it as well.
#[test]
fn q13_a_link_out_of_the_tree_never_lands() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let target = Some("/etc".to_owned());
    let after = Some(FileKind::Symlink);
    world.git.set_special(SpecialFile {
        path: "a".into(),
        before: None,
        after,
        target,
        unpublished: false,
    });
    let engine = world.start_in(&life).unwrap();
    let (_, tasks) = launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    wait_until(&engine, "the task has failed", |board| {
        board.ended_status(tasks[0]) == Some(TaskStatus::Failed)
    });
    let attempts = engine.history().attempts_of(tasks[0]).unwrap();
    assert!(
        attempts.iter().all(|attempt| attempt
            .end
            .as_ref()
            .is_some_and(|end| end.cause == AttemptCause::Invalid)),
        "{attempts:?}"
    );
    assert!(world.git.trunk_moves().is_empty());
    engine.shutdown();
}
