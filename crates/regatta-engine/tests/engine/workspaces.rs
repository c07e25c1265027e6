//! Tests that workspaces are prepared before work begins in them.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use regatta_core::attempt::AttemptCause;
use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::ids::{AttemptId, BranchName, TaskId};
use regatta_core::pattern::PathPattern;
use regatta_core::project::{ProjectSettings, WorkspaceSettings};
use regatta_core::schedule::WaitKind;
use regatta_engine::ports::agents::Exit;
use regatta_engine::ports::git::ProjectRepo;
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

pub(crate) fn settings() -> ProjectSettings {
    let workspace = WorkspaceSettings {
        copy: vec![PathPattern::new("*.env").unwrap()],
        setup: vec!["fetch".into(), "build".into()],
        ports: 2,
        port_range: (47_310, 47_399),
        ..WorkspaceSettings::default()
    };
    ProjectSettings {
        workspace,
        ..ProjectSettings::default()
    }
}

pub(crate) fn repo() -> ProjectRepo {
    ProjectRepo {
        project: shop_name(),
        path: REPO.into(),
        trunk: BranchName::new("main").unwrap(),
        should_update_checkout: true,
        workspace: WorkspaceSettings::default(),
    }
}

pub(crate) fn ready_project() -> Command {
    match add_project() {
        Command::AddProject(project) => Command::AddProject(regatta_core::project::AddProject {
            settings: settings(),
            ..project
        }),
        command => command,
    }
}

/// The commands that ran, in order.
type CommandLog = Arc<Mutex<Vec<String>>>;

/// Creates a world that records the commands that run. A command called `broken` fails.
fn world() -> (World, CommandLog) {
    let log = CommandLog::default();
    let recorded = log.clone();
    let world = World::new(move |program| {
        let ports: Vec<_> = program
            .launch()
            .env
            .iter()
            .filter(|(name, _)| name.starts_with("REGATTA_PORT_"))
            .collect();
        let foreign: Vec<_> = program
            .git()
            .foreign_files(program.attempt())
            .into_keys()
            .collect();
        recorded.lock().unwrap().push(format!(
            "{} {} ports {foreign:?}",
            program.attempt(),
            ports.len()
        ));
        append_own_name(program)
    });
    let recorded = log.clone();
    world.agents.check_content_with(move |command, _| {
        recorded.lock().unwrap().push(command.to_owned());
        if command == "broken" {
            Err("no compiler\nfor miles\n".into())
        } else {
            Ok(())
        }
    });
    world
        .git
        .put_untracked(Path::new(REPO), "local.env", "SECRET=1");
    (world, log)
}

fn start_mission(engine: &regatta_engine::Engine, project: Command) {
    submit(engine, project);
    let limits = regatta_core::limits::MachineLimits {
        retry_delay_ms: 0,
        ..engine.board().limits
    };
    submit(engine, Command::SetLimits { limits });
    submit(engine, register("bob"));
    submit(engine, mission(&["bob"], vec![planned("a", "a", &[])]));
}

#[test]
fn setup_runs_in_order_before_the_program_and_its_files_do_not_land() {
    let (world, log) = world();
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    start_mission(&engine, ready_project());
    wait_until_done(&engine, &life, &world);
    let first: Vec<String> = log.lock().unwrap().iter().take(3).cloned().collect();
    assert_eq!(first, ["fetch", "build", "A1 2 ports [\"local.env\"]"]);
    assert_eq!(
        world
            .git
            .trunk(Path::new(REPO))
            .into_keys()
            .collect::<Vec<_>>(),
        ["README", "a"]
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

#[test]
fn a_failed_setup_starts_no_program_and_records_the_reason() {
    let (world, log) = world();
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let project = match ready_project() {
        Command::AddProject(mut project) => {
            project.settings.workspace.setup =
                vec!["fetch".into(), "broken".into(), "never".into()];
            Command::AddProject(project)
        }
        command => command,
    };
    start_mission(&engine, project);
    wait_until_given_up(&engine, &life, &world, TaskId(1));
    let ended = engine
        .history()
        .attempt(AttemptId(1))
        .unwrap()
        .unwrap()
        .end
        .unwrap();
    assert_eq!(ended.cause, AttemptCause::Environment);
    assert!(
        ended
            .detail
            .contains("the setup command `broken` exited with 1: no compiler / for miles"),
        "{}",
        ended.detail
    );
    assert!(
        !log.lock()
            .unwrap()
            .iter()
            .any(|entry| entry.contains("ports") || entry == "never"),
        "{log:?}"
    );
    assert!(world.agents.program_counts().is_empty());
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// The staging directory of a landing is prepared like a workspace before its tree is checked.
#[test]
fn setup_runs_before_the_checks_of_a_landing_too() {
    let (world, log) = world();
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    start_mission(&engine, ready_project());
    wait_until_done(&engine, &life, &world);
    let log = log.lock().unwrap().clone();
    let program_index = log
        .iter()
        .position(|entry| entry.starts_with("A1 "))
        .unwrap();
    let after_program: Vec<&str> = log[program_index + 1..]
        .iter()
        .map(String::as_str)
        .collect();
    let setup_index = after_program
        .iter()
        .position(|command| *command == "fetch")
        .expect("setup runs in the landing");
    assert_eq!(
        after_program[setup_index..setup_index + 2],
        ["fetch", "build"],
        "{log:?}"
    );
    assert!(
        !after_program[..setup_index].is_empty()
            && after_program[..setup_index] == after_program[setup_index + 2..],
        "the checks before and after the setup differ: {log:?}"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// A tree whose setup command fails goes back to its worker with the command's output.
#[test]
fn a_landing_whose_setup_fails_goes_back_to_its_worker() {
    let (world, _) = world();
    world
        .agents
        .check_content_with(|command, files| match command {
            "build" if files.contains_key("a") => Err("no compiler\n".into()),
            _ => Ok(()),
        });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    start_mission(&engine, ready_project());
    let reason = wait_until_given_up(&engine, &life, &world, TaskId(1));
    assert!(
        reason.contains("the setup command `build` exited with 1: no compiler"),
        "{reason}"
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// The space limit of a project's workspaces counts as well as the free space of the disk.
#[test]
fn a_project_at_its_disk_limit_starts_nothing_and_has_a_wait_reason() {
    let (world, _) = world();
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let project = match ready_project() {
        Command::AddProject(mut project) => {
            project.settings.workspace.disk_mb = Some(1);
            Command::AddProject(project)
        }
        command => command,
    };
    start_mission(&engine, project);
    let is_held = |board: &Board| {
        board.missions.values().any(|mission| {
            mission
                .blocking_gates
                .iter()
                .any(|gate| gate.kind == Some(WaitKind::Disk))
        })
    };
    wait_until(&engine, "the mission is held because of the disk", is_held);
    assert!(world.agents.program_counts().is_empty());
    let limits = regatta_core::limits::MachineLimits {
        attempt_disk_mb: 0,
        ..engine.board().limits
    };
    submit(&engine, Command::SetLimits { limits });
    wait_until_done(&engine, &life, &world);
    engine.shutdown();
}

#[test]
fn a_port_used_by_another_program_is_not_given_to_an_attempt() {
    let (world, _) = world();
    let taken: Vec<TcpListener> = [47_310, 47_312]
        .into_iter()
        .filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .collect();
    let variables = Arc::new(Mutex::new(Vec::new()));
    let recorded = variables.clone();
    let agents = regatta_testkit::fake_agents::FakeAgents::new(&world.git, move |program| {
        let ports = program
            .launch()
            .env
            .iter()
            .filter(|(name, _)| name.starts_with("REGATTA_PORT_"))
            .cloned();
        recorded.lock().unwrap().extend(ports);
        append_own_name(program);
        Exit::Code(0)
    });
    let world = World { agents, ..world };
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    start_mission(&engine, ready_project());
    wait_until_done(&engine, &life, &world);
    let variables = variables.lock().unwrap().clone();
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["REGATTA_PORT_0", "REGATTA_PORT_1"]);
    for listener in &taken {
        let port = listener.local_addr().unwrap().port().to_string();
        assert!(
            variables.iter().all(|(_, value)| *value != port),
            "{variables:?}"
        );
    }
    assert_clean(&engine, &world);
    engine.shutdown();
}
