//! An assignment to an agent whose program Regatta runs starts that program, without a mission (ADR
//! 5).

use regatta_core::agent::{RegisterAgent, Runtime};
use regatta_core::command::{Command, CommandOutcome};
use regatta_core::ids::TaskId;
use regatta_core::mission;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{self, PollRequest};
use regatta_core::task::{AssignMode, TaskStatus};

use crate::world::{World, agent, grant_of_poll, poll_of, registration, shop, task_to_add};

/// Returns a mission of one agent that adopts one existing task.
fn mission_adopting(name: &str, task: TaskId) -> Command {
    let mission = mission::StartMission {
        project: shop(),
        title: "Both".into(),
        agents: vec![agent(name)],
        team: None,
        max_workers: 1,
        mode: mission::StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    Command::StartMission {
        mission,
        tasks: vec![],
        adopt: vec![task],
    }
}

/// An assignment starts the agent's program if Regatta runs that program (ADR 5). Other agents
/// poll.
#[test]
fn an_assignment_starts_the_program_of_an_agent_that_regatta_runs() {
    let mut world = World::with_agents(&[("ada", 9)]);
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            runtime: Runtime::Scripted,
            ..registration("bot", 9)
        }),
    );
    let starts = |world: &World, id| schedule::starts_by_assignment(&world.board, world.task(id));
    let cases = [
        ("bot", AssignMode::Queue, true),
        ("bot", AssignMode::Offer, true),
        ("ada", AssignMode::Queue, false),
    ];
    for (nth, (who, how, expected)) in cases.into_iter().enumerate() {
        let id = world.add_for(
            task_to_add("given", &[&format!("src/{nth}.rs")]),
            Some(who),
            how,
        );
        assert_eq!(starts(&world, id), expected, "{who} {how:?}");
    }
    let pooled = world.add(task_to_add("for anybody", &["pool.rs"]));
    assert!(!starts(&world, pooled));
    let reasons = schedule::wait_reasons(&world.board, world.task(pooled), world.now);
    assert!(
        reasons
            .last()
            .unwrap()
            .text
            .contains(&format!("regatta run, or regatta assign {pooled} NAME")),
        "{reasons:?}"
    );
    world.assign(pooled, Some("bot"), AssignMode::Queue);
    assert!(starts(&world, pooled));
    let reasons = schedule::wait_reasons(&world.board, world.task(pooled), world.now);
    assert!(
        reasons
            .iter()
            .all(|wait_reason| !wait_reason.text.contains("task poll")),
        "{reasons:?}"
    );

    // A task of a mission is started by its mission.
    world.ask("ann", mission_adopting("bot", pooled));
    assert!(!starts(&world, pooled));
}

/// A poll in the name of an agent that Regatta runs is refused, because the board would show work
/// that nobody does.
#[test]
fn a_poll_for_an_agent_that_regatta_runs_is_refused() {
    let mut world = World::with_agents(&[]);
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            runtime: Runtime::Scripted,
            ..registration("bot", 1)
        }),
    );
    let task = world.add_for(
        task_to_add("given", &["a.rs"]),
        Some("bot"),
        AssignMode::Queue,
    );
    let refusal = world.ask_refused("bot", Command::Poll(poll_of("bot")));
    assert_eq!(
        refusal,
        Refusal::RunByRegatta {
            agent: agent("bot")
        }
    );
    assert!(refusal.hint().contains("--by-hand"), "{}", refusal.hint());
    assert!(
        schedule::would_grant(&world.board, &poll_of("bot"), world.now),
        "a waiting poll is answered at once"
    );
    assert_eq!(world.status(task), TaskStatus::Pending);
    let by_hand = Command::Poll(PollRequest {
        by_hand: true,
        ..poll_of("bot")
    });
    assert_eq!(grant_of_poll(world.ask("bot", by_hand)).unwrap().task, task);
}

/// A retried task keeps its assignee, unless the assignment came from a mission that has ended.
#[test]
fn a_retry_keeps_the_assignee_that_a_person_chose() {
    let mut world = World::with_agents(&[("ada", 9)]);
    let task = world.add_for(
        task_to_add("given", &["a.rs"]),
        Some("ada"),
        AssignMode::Queue,
    );
    world.cancel(task);
    let old = world.stored_task(task);
    let CommandOutcome::Task(again) = world.ask(
        "ann",
        Command::RetryTask {
            task,
            failed: Some(Box::new(old)),
        },
    ) else {
        panic!()
    };
    assert_eq!(
        (world.task(again).assignee.clone(), world.status(again)),
        (Some(agent("ada")), TaskStatus::Pending)
    );

    let planned = world.add_for(
        task_to_add("planned", &["b.rs"]),
        Some("ada"),
        AssignMode::Queue,
    );
    let mission = world.ask("ann", mission_adopting("ada", planned));
    let CommandOutcome::Mission { mission, .. } = mission else {
        panic!("{mission:?}")
    };
    world.ask(
        "ann",
        Command::CancelMission {
            mission,
            reason: "over".into(),
        },
    );
    let old = world.stored_task(planned);
    let retry = Command::RetryTask {
        task: planned,
        failed: Some(Box::new(old)),
    };
    let CommandOutcome::Task(again) = world.ask("ann", retry) else {
        panic!()
    };
    assert_eq!(
        (world.task(again).assignee.clone(), world.status(again)),
        (None, TaskStatus::Unassigned)
    );
}
