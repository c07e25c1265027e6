//! Runners on other machines: the attempts they get, and what happens to them when a runner is lost
//! or leaves.

use regatta_core::agent::{Profile, Register};
use regatta_core::attempt::Cause;
use regatta_core::command::{Command, Outcome};
use regatta_core::gates::Facts;
use regatta_core::ids::{RunnerName, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::runner::{self, FENCE_MS, LOST_MS, State};
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::session::{Class, Said};
use regatta_core::task::Status;

use crate::world::{World, registers};

fn name(text: &str) -> RunnerName {
    RunnerName::new(text).unwrap()
}

fn asks(text: &str, max_tasks: u32) -> runner::Register {
    let (labels, agents) = (vec![], vec![]);
    runner::Register {
        name: name(text),
        identity: format!("{text}-1"),
        token: "t".into(),
        labels,
        agents,
        max_tasks,
        version: "1".into(),
    }
}

fn up(world: &mut World, ask: runner::Register) -> u64 {
    match world.ask("regatta", Command::RegisterRunner(ask)) {
        Outcome::Runner { session } => session,
        other => panic!("{other:?}"),
    }
}

fn poll_at(world: &mut World, agent: &str, runner: &str) -> Option<Grant> {
    world.poll_with(agent, Facts { runner: Some(name(runner)), ..Facts::default() })
}

/// J4: a runner gets at most `max_tasks` attempts, and they do not count against the limit of the
/// daemon's machine.
#[test]
fn j4_a_runner_gets_at_most_its_max_tasks() {
    let mut world = World::with(&[("ada", 9)]);
    world.ask(
        "ann",
        Command::SetLimits { limits: regatta_core::fleet::Limits { max_attempts: 1, ..world.board.limits } },
    );
    let tasks: Vec<TaskId> = (0..5).map(|nth| world.add_task("work", &[&format!("f{nth}")])).collect();
    up(&mut world, asks("box", 2));
    assert!(poll_at(&mut world, "ada", "box").is_some() && poll_at(&mut world, "ada", "box").is_some());
    assert_eq!(poll_at(&mut world, "ada", "box"), None, "the runner got more than two attempts");
    assert!(world.poll_supervised("ada").is_some(), "the daemon's machine has room for one");
    assert_eq!(world.poll_supervised("ada"), None);
    let on = |id: TaskId| world.board.attempts[&world.task(id).attempt.unwrap()].runner.clone();
    assert_eq!([on(tasks[0]), on(tasks[1]), on(tasks[2])], [Some(name("box")), Some(name("box")), None]);
}

/// L5: the attempts of a lost runner end when its programs must have ended, and count as no
/// failure.
#[test]
fn l5_a_lost_runner_gives_its_work_back_after_the_fence() {
    const { assert!(FENCE_MS < LOST_MS) };
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let session = up(&mut world, asks("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.advance(LOST_MS - 1);
    world.ask("regatta", Command::BeatRunner { runner: name("box"), session });
    world.advance(LOST_MS - 1);
    assert!(world.board.attempts.contains_key(&grant.attempt), "the runner was lost although it sent a heartbeat");
    world.advance(1);
    assert_eq!(world.board.runners[&name("box")].state, State::Lost);
    assert_eq!((world.status(task), world.task(task).failures), (Status::Unassigned, 0));
    assert!(world.board.claims.is_empty(), "L11: the attempt still holds claims");
    // A runner that was suspended gets a refusal for its old session.
    let late = world.refused("regatta", Command::BeatRunner { runner: name("box"), session });
    assert_eq!(late, Refusal::StaleRunner { runner: name("box") });
    let again = world.take_supervised("ada");
    assert_eq!((again.task, world.board.attempts[&again.attempt].runner.clone()), (task, None));
}

#[test]
fn a_restart_of_the_daemon_restarts_the_heartbeat_timeout_of_runners() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("work", &["src/a.rs"]);
    let session = up(&mut world, asks("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.advance(LOST_MS - 1);
    world.restart();
    world.advance(LOST_MS - 1);
    assert!(world.board.attempts.contains_key(&grant.attempt));
    world.ask("regatta", Command::BeatRunner { runner: name("box"), session });
}

#[test]
fn a_runners_name_can_be_reused_by_the_same_installation_only() {
    let mut world = World::with(&[("ada", 1)]);
    world.add_task("work", &["src/a.rs"]);
    let first = up(&mut world, asks("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    let stranger = runner::Register { identity: "other".into(), ..asks("box", 1) };
    let refused = world.refused("regatta", Command::RegisterRunner(stranger.clone()));
    assert_eq!(refused, Refusal::InUse { what: "runner box".into(), by: "another machine".into() });
    // The same installation registers again and keeps its attempts. Its previous process's session
    // is refused.
    let second = up(&mut world, asks("box", 1));
    assert!(world.board.attempts.contains_key(&grant.attempt));
    world.refused("regatta", Command::BeatRunner { runner: name("box"), session: first });
    world.ask("regatta", Command::LeaveRunner { runner: name("box"), session: second });
    // The attempts of a runner that leaves are ended.
    assert!(world.board.attempts.is_empty());
    up(&mut world, stranger);
}

/// J10: a draining runner gets nothing new, and its running attempts go on.
#[test]
fn j10_a_draining_runner_takes_nothing_new() {
    let mut world = World::with(&[("ada", 2)]);
    let (_, second) = (world.add_task("one", &["a"]), world.add_task("two", &["b"]));
    up(&mut world, asks("box", 2));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    world.ask("ann", Command::DrainRunner { runner: name("box"), reason: "an update".into() });
    assert_eq!(poll_at(&mut world, "ada", "box"), None);
    assert!(world.board.attempts.contains_key(&grant.attempt));
    assert_eq!(world.status(second), Status::Unassigned);
    let there = world.refused("ann", Command::RemoveRunner { runner: name("box") });
    assert!(matches!(there, Refusal::InUse { .. }), "{there:?}");
}

#[test]
fn an_agent_with_labels_runs_only_on_runners_that_have_them() {
    let mut world = World::with(&[]);
    let profile = Profile { labels: vec!["gpu".into()], ..Profile::default() };
    world.ask("ann", Command::RegisterAgent(Register { profile, ..registers("ada", 3) }));
    let task = world.add_for(crate::world::work("train", &["model"]), Some("ada"), regatta_core::task::How::Queue);
    assert_eq!(world.poll_supervised("ada"), None, "the daemon's own machine has no labels");
    assert!(world.reasons(task).contains(&WaitKind::Runner));
    up(&mut world, asks("box", 1));
    assert_eq!(poll_at(&mut world, "ada", "box"), None);
    up(&mut world, runner::Register { labels: vec!["linux".into(), "gpu".into()], ..asks("big", 1) });
    assert!(poll_at(&mut world, "ada", "big").is_some());
}

/// Unfinished work goes on at the runner that has its workspace, as long as the runner exists.
#[test]
fn unfinished_work_goes_on_at_its_runner() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    up(&mut world, asks("box", 1));
    let grant = poll_at(&mut world, "ada", "box").unwrap();
    let said = Said::Started { session: Some("s1".into()), model: None };
    world.ask("regatta", Command::ReportSaid { attempt: grant.attempt, token: grant.token, n: 1, said });
    let how = regatta_core::attempt::Exited::Failed { reason: "529".into(), class: Some(Class::Overloaded) };
    world.ask("regatta", Command::ReportExited { attempt: grant.attempt, token: grant.token, how });
    world.advance(24 * 3_600_000 / 48);
    world.ask("regatta", Command::RegisterRunner(asks("box", 1)));
    let resume = world.task(task).resume.clone().unwrap();
    assert_eq!((resume.runner.clone(), resume.session.as_deref()), (Some(name("box")), Some("s1")));
    assert_eq!(world.poll_supervised("ada"), None, "the workspace is on another machine");
    assert!(world.reasons(task).contains(&WaitKind::Runner));
    let on = poll_at(&mut world, "ada", "box").unwrap();
    assert_eq!(world.board.attempts[&on.attempt].resumed_session(), Some("s1"));
    // When the runner is lost, its workspaces are lost, too.
    world.advance(LOST_MS);
    let ended = world.stored_attempt(on.attempt).ended.unwrap();
    assert_eq!(ended.cause, Cause::Lost);
    let anew = world.take_supervised("ada");
    assert_eq!(world.board.attempts[&anew.attempt].resumes, None);
}

#[test]
fn an_invalid_runner_is_refused() {
    let mut world = World::with(&[]);
    for ask in [
        asks("box", 0),
        asks("box", 65),
        runner::Register { identity: String::new(), ..asks("box", 1) },
        runner::Register { labels: vec!["a b".into()], ..asks("box", 1) },
    ] {
        let refused = world.refused("ann", Command::RegisterRunner(ask.clone()));
        assert!(matches!(refused, Refusal::Invalid { .. }), "{ask:?}: {refused:?}");
    }
    let missing = world.refused("ann", Command::DrainRunner { runner: name("none"), reason: String::new() });
    assert_eq!(missing, Refusal::NoSuchRunner { runner: name("none") });
}

/// An agent that needs labels is away when the last runner with them is lost or has left, and back
/// when another registers. An agent without labels is never away.
#[test]
fn an_agent_is_away_while_no_runner_has_its_labels() {
    let mut world = World::with(&[("ada", 1)]);
    let labels = Profile { labels: vec!["gpu".into()], ..Profile::default() };
    world.ask("ann", Command::RegisterAgent(Register { profile: labels, ..registers("eve", 1) }));
    let away = |world: &World, name: &str| {
        let agent = world.board.agents.values().find(|it| it.name.as_str() == name).unwrap();
        runner::away(&world.board, agent)
    };
    assert_eq!(away(&world, "eve"), None, "an agent that never had a runner is not away");
    let with = |text: &str| runner::Register { labels: vec!["gpu".into()], ..asks(text, 1) };
    up(&mut world, with("box"));
    assert_eq!(away(&world, "eve"), None);
    world.advance(LOST_MS);
    assert_eq!(world.board.runners[&name("box")].state, State::Lost);
    assert_eq!(away(&world, "eve").as_deref(), Some("its runner box was lost"));
    assert_eq!(away(&world, "ada"), None, "an agent without labels runs on the daemon's machine, too");
    let session = up(&mut world, with("den"));
    assert_eq!(away(&world, "eve"), None);
    world.ask("regatta", Command::LeaveRunner { runner: name("den"), session });
    assert_eq!(away(&world, "eve").as_deref(), Some("its runner den has left"));
    up(&mut world, with("box"));
    assert_eq!(away(&world, "eve"), None);
}
