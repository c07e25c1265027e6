//! Runners on other machines: the attempts they get, and what happens to them when a runner is lost
//! or leaves.

use regatta_core::agent::{Profile, RegisterAgent};
use regatta_core::agent_protocol::{AgentEvent, FailureClass};
use regatta_core::attempt::AttemptCause;
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::ids::{RunnerName, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::runner::{self, LOST_TIMEOUT_MS, RunnerState, SELF_FENCE_TIMEOUT_MS};
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::start_gates::StartFacts;
use regatta_core::task::TaskStatus;

use crate::world::{World, registration};

fn runner_name(text: &str) -> RunnerName {
    RunnerName::new(text).unwrap()
}

fn runner_registration(text: &str, max_tasks: u32) -> runner::RegisterRunner {
    let (labels, agents) = (vec![], vec![]);
    runner::RegisterRunner {
        name: runner_name(text),
        identity: format!("{text}-1"),
        token: "t".into(),
        labels,
        agents,
        max_tasks,
        version: "1".into(),
    }
}

fn register_runner(world: &mut World, ask: runner::RegisterRunner) -> u64 {
    match world.ask("regatta", Command::RegisterRunner(ask)) {
        CommandOutcome::Runner { session } => session,
        other => panic!("{other:?}"),
    }
}

fn poll_at(world: &mut World, agent: &str, runner: &str) -> Option<PollGrant> {
    world.poll_with(
        agent,
        StartFacts {
            runner: Some(runner_name(runner)),
            ..StartFacts::default()
        },
    )
}

/// J4: a runner gets at most `max_tasks` attempts, and they do not count against the limit of the
/// daemon's machine.
#[test]
fn j4_a_runner_gets_at_most_its_max_tasks() {
    let mut world = World::with_agents(&[("ada", 9)]);
    world.ask(
        "ann",
        Command::SetLimits {
            limits: regatta_core::limits::MachineLimits {
                max_attempts: 1,
                ..world.board.limits
            },
        },
    );
    let tasks: Vec<TaskId> = (0..5)
        .map(|nth| world.add_task("work", &[&format!("f{nth}")]))
        .collect();
    register_runner(&mut world, runner_registration("box", 2));
    assert!(
        poll_at(&mut world, "ada", "box").is_some() && poll_at(&mut world, "ada", "box").is_some()
    );
    assert_eq!(
        poll_at(&mut world, "ada", "box"),
        None,
        "the runner got more than two attempts"
    );
    assert!(
        world.poll_supervised("ada").is_some(),
        "the daemon's machine has room for one"
    );
    assert_eq!(world.poll_supervised("ada"), None);
    let on = |id: TaskId| {
        world.board.attempts[&world.task(id).attempt.unwrap()]
            .runner
            .clone()
    };
    assert_eq!(
        [on(tasks[0]), on(tasks[1]), on(tasks[2])],
        [Some(runner_name("box")), Some(runner_name("box")), None]
    );
}

/// L5: the attempts of a lost runner end when its programs must have ended, and count as no
/// failure.
#[test]
fn l5_a_lost_runner_gives_its_work_back_after_the_fence() {
    const { assert!(SELF_FENCE_TIMEOUT_MS < LOST_TIMEOUT_MS) };
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let session = register_runner(&mut world, runner_registration("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.advance(LOST_TIMEOUT_MS - 1);
    world.ask(
        "regatta",
        Command::BeatRunner {
            runner: runner_name("box"),
            session,
        },
    );
    world.advance(LOST_TIMEOUT_MS - 1);
    assert!(
        world.board.attempts.contains_key(&grant.attempt),
        "the runner was lost although it sent a heartbeat"
    );
    world.advance(1);
    assert_eq!(
        world.board.runners[&runner_name("box")].state,
        RunnerState::Lost
    );
    assert_eq!(
        (world.status(task), world.task(task).failures),
        (TaskStatus::Unassigned, 0)
    );
    assert!(
        world.board.claims.is_empty(),
        "L11: the attempt still holds claims"
    );
    // A runner that was suspended gets a refusal for its old session.
    let late = world.ask_refused(
        "regatta",
        Command::BeatRunner {
            runner: runner_name("box"),
            session,
        },
    );
    assert_eq!(
        late,
        Refusal::StaleRunner {
            runner: runner_name("box")
        }
    );
    let again = world.take_supervised_task("ada");
    assert_eq!(
        (
            again.task,
            world.board.attempts[&again.attempt].runner.clone()
        ),
        (task, None)
    );
}

#[test]
fn a_restart_of_the_daemon_restarts_the_heartbeat_timeout_of_runners() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("work", &["src/a.rs"]);
    let session = register_runner(&mut world, runner_registration("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.advance(LOST_TIMEOUT_MS - 1);
    world.restart();
    world.advance(LOST_TIMEOUT_MS - 1);
    assert!(world.board.attempts.contains_key(&grant.attempt));
    world.ask(
        "regatta",
        Command::BeatRunner {
            runner: runner_name("box"),
            session,
        },
    );
}

#[test]
fn a_runners_name_can_be_reused_by_the_same_installation_only() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.add_task("work", &["src/a.rs"]);
    let first = register_runner(&mut world, runner_registration("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    let stranger = runner::RegisterRunner {
        identity: "other".into(),
        ..runner_registration("box", 1)
    };
    let refused = world.ask_refused("regatta", Command::RegisterRunner(stranger.clone()));
    assert_eq!(
        refused,
        Refusal::InUse {
            what: "runner box".into(),
            by: "another machine".into()
        }
    );
    // The same installation registers again and keeps its attempts. Its previous process's session
    // is refused.
    let second = register_runner(&mut world, runner_registration("box", 1));
    assert!(world.board.attempts.contains_key(&grant.attempt));
    world.ask_refused(
        "regatta",
        Command::BeatRunner {
            runner: runner_name("box"),
            session: first,
        },
    );
    world.ask(
        "regatta",
        Command::LeaveRunner {
            runner: runner_name("box"),
            session: second,
        },
    );
    // The attempts of a runner that leaves are ended.
    assert!(world.board.attempts.is_empty());
    register_runner(&mut world, stranger);
}

/// J10: a draining runner gets nothing new, and its running attempts go on.
#[test]
fn j10_a_draining_runner_takes_nothing_new() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let (_, second) = (world.add_task("one", &["a"]), world.add_task("two", &["b"]));
    register_runner(&mut world, runner_registration("box", 2));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.ask(
        "ann",
        Command::DrainRunner {
            runner: runner_name("box"),
            reason: "an update".into(),
        },
    );
    assert_eq!(poll_at(&mut world, "ada", "box"), None);
    assert!(world.board.attempts.contains_key(&grant.attempt));
    assert_eq!(world.status(second), TaskStatus::Unassigned);
    let there = world.ask_refused(
        "ann",
        Command::RemoveRunner {
            runner: runner_name("box"),
        },
    );
    assert!(matches!(there, Refusal::InUse { .. }), "{there:?}");
}

#[test]
fn an_agent_with_labels_runs_only_on_runners_that_have_them() {
    let mut world = World::with_agents(&[]);
    let profile = Profile {
        labels: vec!["gpu".into()],
        ..Profile::default()
    };
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            profile,
            ..registration("ada", 3)
        }),
    );
    let task = world.add_for(
        crate::world::task_to_add("train", &["model"]),
        Some("ada"),
        regatta_core::task::AssignMode::Queue,
    );
    assert_eq!(
        world.poll_supervised("ada"),
        None,
        "the daemon's own machine has no labels"
    );
    assert!(world.wait_kinds(task).contains(&WaitKind::Runner));
    register_runner(&mut world, runner_registration("box", 1));
    assert_eq!(poll_at(&mut world, "ada", "box"), None);
    register_runner(
        &mut world,
        runner::RegisterRunner {
            labels: vec!["linux".into(), "gpu".into()],
            ..runner_registration("big", 1)
        },
    );
    assert!(poll_at(&mut world, "ada", "big").is_some());
}

/// Unfinished work goes on at the runner that has its workspace, as long as the runner exists.
#[test]
fn unfinished_work_goes_on_at_its_runner() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    register_runner(&mut world, runner_registration("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    let event = AgentEvent::Started {
        session: Some("s1".into()),
        model: None,
    };
    world.report(Report::AgentEvent {
        attempt: grant.attempt,
        token: grant.token,
        n: 1,
        event,
    });
    let how = regatta_core::attempt::ProgramExit::Failed {
        reason: "529".into(),
        class: Some(FailureClass::Overloaded),
    };
    world.report(Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: how,
    });
    world.advance(24 * 3_600_000 / 48);
    world.ask(
        "regatta",
        Command::RegisterRunner(runner_registration("box", 1)),
    );
    let resume = world.task(task).resume.clone().unwrap();
    assert_eq!(
        (resume.runner.clone(), resume.session.as_deref()),
        (Some(runner_name("box")), Some("s1"))
    );
    assert_eq!(
        world.poll_supervised("ada"),
        None,
        "the workspace is on another machine"
    );
    assert!(world.wait_kinds(task).contains(&WaitKind::Runner));
    let on = poll_at(&mut world, "ada", "box").unwrap();
    assert_eq!(
        world.board.attempts[&on.attempt].resumed_session(),
        Some("s1")
    );
    // When the runner is lost, its workspaces are lost, too.
    world.advance(LOST_TIMEOUT_MS);
    let ended = world.stored_attempt(on.attempt).end.unwrap();
    assert_eq!(ended.cause, AttemptCause::Lost);
    let anew = world.take_supervised_task("ada");
    assert_eq!(world.board.attempts[&anew.attempt].resumes, None);
}

#[test]
fn an_invalid_runner_is_refused() {
    let mut world = World::with_agents(&[]);
    for ask in [
        runner_registration("box", 0),
        runner_registration("box", 65),
        runner::RegisterRunner {
            identity: String::new(),
            ..runner_registration("box", 1)
        },
        runner::RegisterRunner {
            labels: vec!["a b".into()],
            ..runner_registration("box", 1)
        },
    ] {
        let refused = world.ask_refused("ann", Command::RegisterRunner(ask.clone()));
        assert!(
            matches!(refused, Refusal::Invalid { .. }),
            "{ask:?}: {refused:?}"
        );
    }
    let missing = world.ask_refused(
        "ann",
        Command::DrainRunner {
            runner: runner_name("none"),
            reason: String::new(),
        },
    );
    assert_eq!(
        missing,
        Refusal::NoSuchRunner {
            runner: runner_name("none")
        }
    );
}

/// An agent that needs labels is away when the last runner with them is lost or has left, and back
/// when another registers. An agent without labels is never away.
#[test]
fn an_agent_is_away_while_no_runner_has_its_labels() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let labels = Profile {
        labels: vec!["gpu".into()],
        ..Profile::default()
    };
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            profile: labels,
            ..registration("eve", 1)
        }),
    );
    let away = |world: &World, name: &str| {
        let agent = world
            .board
            .agents
            .values()
            .find(|agent| agent.name.as_str() == name)
            .unwrap();
        runner::runner_away_reason(&world.board, agent)
    };
    assert_eq!(
        away(&world, "eve"),
        None,
        "an agent that never had a runner is not away"
    );
    let with = |text: &str| runner::RegisterRunner {
        labels: vec!["gpu".into()],
        ..runner_registration(text, 1)
    };
    register_runner(&mut world, with("box"));
    assert_eq!(away(&world, "eve"), None);
    world.advance(LOST_TIMEOUT_MS);
    assert_eq!(
        world.board.runners[&runner_name("box")].state,
        RunnerState::Lost
    );
    assert_eq!(
        away(&world, "eve").as_deref(),
        Some("its runner box was lost")
    );
    assert_eq!(
        away(&world, "ada"),
        None,
        "an agent without labels runs on the daemon's machine, too"
    );
    let session = register_runner(&mut world, with("den"));
    assert_eq!(away(&world, "eve"), None);
    world.ask(
        "regatta",
        Command::LeaveRunner {
            runner: runner_name("den"),
            session,
        },
    );
    assert_eq!(
        away(&world, "eve").as_deref(),
        Some("its runner den has left")
    );
    register_runner(&mut world, with("box"));
    assert_eq!(away(&world, "eve"), None);
}
