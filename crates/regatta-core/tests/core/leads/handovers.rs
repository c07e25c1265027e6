//! Missions that lose their lead, are handed over, or are cancelled.

use super::*;

#[test]
fn a_mission_that_loses_its_lead_stops_and_can_be_handed_over() {
    let mut world = world_with_lead(1, |_| {});
    world.register("eve", 1);
    post_and_route(&mut world, "ann", "!mission x", None);
    post_and_route(&mut world, "ann", "!mission behind it", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    let lost = lead_name(&world, 1);
    let PollGrant {
        task: own,
        attempt,
        token,
        ..
    } = grant;
    world.ask(
        "ann",
        Command::GiveUp {
            task: own,
            attempt,
            token,
            reason: Some("no idea ".repeat(20_000)),
        },
    );
    assert_eq!(
        world.board.missions[&MissionId(1)].state,
        MissionState::Draining
    );
    assert_eq!(
        world.board.attempts[&work.attempt].stopping,
        Some(AttemptCause::Stopped),
        "the workers of the mission are not stopped"
    );
    assert_eq!(
        world.status(task),
        TaskStatus::Unassigned,
        "the task of the stopped worker does not wait"
    );
    assert_eq!(
        missions_at_work(&world),
        [2],
        "the lost lead still counts against the limit"
    );
    assert!(
        messages_after(&world, MessageId(0))
            .iter()
            .any(|message| has_label(message, "mission:lost") && message.text.contains("no idea"))
    );
    assert!(
        world
            .ask_refused(
                "ann",
                Command::ResumeMission {
                    mission: MissionId(1)
                }
            )
            .hint()
            .contains("handover")
    );
    let exit_report = Report::Exited {
        attempt: work.attempt,
        token: work.token,
        exit: ProgramExit::Lost,
    };
    world.report(exit_report);
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Lost,
    });

    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: Some(agent("eve")),
        },
    );
    assert_eq!(lead::queue_position(&world.board, MissionId(1)), Some(1));
    let grant = begin_turn(&mut world, 2);
    end_attempt(&mut world, &grant, "done");
    assert_eq!(missions_at_work(&world), [1]);
    assert_ne!(lead_name(&world, 1), lost);
    assert_eq!(
        world.board.agents[&lead_name(&world, 1)].derived_from,
        Some(agent("eve"))
    );
    assert!(!world.board.agents.contains_key(&lost));
    let work = take_next_task(&mut world, 1);
    assert_eq!(
        work.task, task,
        "the task does not go on under the new lead"
    );
}

#[test]
fn a_mission_that_is_handed_over_keeps_its_running_workers() {
    let mut world = world_with_lead(2, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    let grant = begin_turn(&mut world, 1);
    add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    let old = world.board.attempts[&work.attempt].agent.clone();
    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: None,
        },
    );
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
    assert_eq!(
        world.board.attempts[&work.attempt].stopping, None,
        "a worker was stopped by the handover"
    );
    assert_eq!(missions_at_work(&world), [1]);
    assert!(world.board.agents.contains_key(&old));
    finish_and_land(&mut world, &work);
    assert!(
        !world.board.agents.contains_key(&old),
        "the old worker is left after its task is done"
    );
}

/// J1, W1: tasks of a worker that no longer works for the mission are unassigned, because nobody
/// would poll for them.
#[test]
fn j1_tasks_of_a_previous_leads_worker_are_unassigned() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    begin_turn(&mut world, 1);
    let (begun, waits) = (
        add_child(&mut world, 1, "one", &["a"]),
        add_child(&mut world, 1, "two", &["b"]),
    );
    let worker = world.board.missions[&MissionId(1)].agents[0].clone();
    for task in [begun, waits] {
        world.ask(
            "ann",
            Command::AssignTask {
                task,
                to: Some(worker.clone()),
                how: AssignMode::Queue,
            },
        );
    }
    let work = world
        .poll_supervised(worker.as_str())
        .expect("the first task starts");
    world.ask(
        "ann",
        Command::HandOverMission {
            mission: MissionId(1),
            to: None,
        },
    );
    assert!(
        !world.board.missions[&MissionId(1)].agents.contains(&worker),
        "the mission still has the old worker"
    );
    assert_eq!(
        world.task(waits).assignee,
        None,
        "a task that has not started keeps the old worker"
    );
    assert_eq!(
        world.status(begun),
        TaskStatus::InProgress,
        "a running task was stopped"
    );
    // The running attempt is lost. Its task is not given to the old worker again.
    let PollGrant { attempt, token, .. } = work;
    world.report(Report::Exited {
        attempt,
        token,
        exit: ProgramExit::Lost,
    });
    assert_eq!(
        (world.status(begun), &world.task(begun).assignee),
        (TaskStatus::Unassigned, &None)
    );
    assert!(
        !world.board.agents.contains_key(&worker),
        "the old worker is still on the board"
    );
    world.advance(HOUR_MS);
    let taken: std::collections::BTreeSet<_> =
        [take_next_task(&mut world, 1), take_next_task(&mut world, 1)]
            .map(|poll_grant| poll_grant.task)
            .into();
    assert_eq!(taken, [begun, waits].into());
}

#[test]
fn a_cancelled_mission_cancels_all_its_tasks() {
    let mut world = world_with_lead(1, |_| {});
    post_and_route(&mut world, "ann", "!mission x", None);
    post_and_route(&mut world, "ann", "!mission y", None);
    let grant = begin_turn(&mut world, 1);
    let task = add_child(&mut world, 1, "one", &["a"]);
    let work = take_next_task(&mut world, 1);
    world.ask(
        "ann",
        Command::CancelMission {
            mission: MissionId(1),
            reason: "not wanted".into(),
        },
    );
    assert_eq!(world.status(task), TaskStatus::Cancelled);
    let messages = messages_after(&world, MessageId(0));
    assert!(
        messages
            .iter()
            .any(|message| has_label(message, "mission:cancelled")),
        "{messages:?}"
    );
    assert!(
        !messages
            .iter()
            .any(|message| has_label(message, "mission:done")),
        "a cancelled mission is not done"
    );
    for attempt in [grant.attempt, work.attempt] {
        assert!(
            world.board.attempts[&attempt].stopping.is_some(),
            "{attempt} is not stopped"
        );
    }
    assert_eq!(missions_at_work(&world), [2]);
    for PollGrant { attempt, token, .. } in [grant, work] {
        world.report(Report::Exited {
            attempt,
            token,
            exit: ProgramExit::Lost,
        });
    }
    let names: Vec<_> = world
        .board
        .agents
        .values()
        .filter(|agent| agent.derived_from.is_some())
        .map(|agent| agent.name.clone())
        .collect();
    assert!(
        names
            .iter()
            .all(|agent| agent.as_str().starts_with(lead_name(&world, 2).as_str())),
        "{names:?}"
    );
    // A waiting mission can be cancelled, too, and the mission behind it moves up.
    post_and_route(&mut world, "ann", "!mission z", None);
    world.ask(
        "ann",
        Command::CancelMission {
            mission: MissionId(3),
            reason: "no".into(),
        },
    );
    assert_eq!(world.board.missions.len(), 1);
}
