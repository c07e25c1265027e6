//! `regatta agent test` leaves nothing behind, however it ends. The leftovers of killed tests,
//! checks and agents are found and removed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::stops::HangingCommand;
use crate::world::{
    CommandOutput, TEST_TIMEOUT, World, is_alive, kill_process, path_text, wait_for_child,
    wait_until,
};

/// Starts an agent test with a hanging program, and waits until the program runs.
fn start_agent_test(world: &World, program: &HangingCommand) -> Child {
    let name = "sleeper";
    let mut agent = world.command(&[
        "agent",
        "add",
        name,
        "--runtime",
        "command",
        "--command",
        &program.command_without_shell(),
    ]);
    agent.stdout(Stdio::null());
    assert!(agent.status().unwrap().success());
    let mut test = world.command(&["agent", "test", name]);
    let test = test
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(
        wait_until(TEST_TIMEOUT, || program.is_running()),
        "the program never started"
    );
    test
}

/// Returns the directories of agent tests, and the records of these directories.
fn leftovers(world: &World) -> Vec<PathBuf> {
    let places = std::fs::read_dir(world.root.join("tmp"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let places = places.filter(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("regatta-test-")
    });
    let books = std::fs::read_dir(world.data_dir.join("trials"))
        .into_iter()
        .flatten()
        .flatten();
    places.chain(books.map(|entry| entry.path())).collect()
}

fn send_signal(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([signal, &child.id().to_string()]);
    assert_eq!(crate::world::run_command(kill, None).exit_code, 0);
}

/// P12: a signal ends the program and removes its directory before the test command itself ends.
#[test]
fn p12_an_interrupted_agent_test_leaves_nothing() {
    let world = World::with_project();
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let program = HangingCommand::new();
        let test = start_agent_test(&world, &program);
        send_signal(&test, signal);
        let CommandOutput {
            exit_code: found,
            stderr: err,
            ..
        } = wait_for_child(test, TEST_TIMEOUT).unwrap();
        assert_eq!(found, code, "{err}");
        assert!(!program.is_running(), "{signal}: the program runs");
        assert_eq!(leftovers(&world), [] as [PathBuf; 0], "{signal}");
        assert!(err.contains("starting sleeper; time limit 90 s"), "{err}");
    }
}

/// P12: after a kill -9 of the test command its program ends by itself. `doctor` reports its files,
/// and only `doctor --clean` removes them.
#[test]
fn p12_a_killed_agent_test_ends_its_program() {
    let (world, program) = (World::with_project(), HangingCommand::new());
    let mut test = start_agent_test(&world, &program);
    kill_process(test.id());
    test.wait().unwrap();
    assert!(
        !leftovers(&world).is_empty(),
        "the killed command cannot have cleaned up"
    );
    assert!(
        wait_until(TEST_TIMEOUT, || !program.is_running()),
        "the program outlives its test"
    );
    let before = leftovers(&world);
    let reported = world.run(&["doctor"]).stdout;
    assert!(
        reported.contains(
            "directories of 1 interrupted agent test are left over  regatta doctor --clean"
        ) && !reported.contains("no problems"),
        "{reported}"
    );
    assert_eq!(leftovers(&world), before, "doctor changed something");
    let cleaned = world.run(&["doctor", "--clean"]).stdout;
    assert!(
        cleaned.contains("removed the directories of 1 interrupted agent test\n"),
        "{cleaned}"
    );
    assert_eq!(leftovers(&world), [] as [PathBuf; 0]);
    let again = world.run(&["doctor"]).stdout;
    assert!(!again.contains("interrupted agent test"), "{again}");
}

/// Creates the leftovers of a killed test: its directory and the record of the directory.
fn create_test_leftovers(world: &World) {
    let place = world.root.join("tmp/regatta-test-0123456789abcdef");
    std::fs::create_dir(&place).unwrap();
    let books = world.data_dir.join("trials");
    std::fs::create_dir_all(&books).unwrap();
    std::fs::write(books.join("left.book"), path_text(&place)).unwrap();
}

/// P12: a start of the daemon removes the leftovers of a killed test and of a killed daemon's
/// checks.
#[test]
fn p12_a_start_removes_the_leftovers_of_tests_and_checks() {
    let world = World::with_project();
    world.run_ok(&["down"]);
    create_test_leftovers(&world);
    let check = world
        .data_dir
        .join("checks/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(check.join("tmp")).unwrap();
    std::fs::write(check.join("launch.json"), "{}").unwrap();
    world.run_ok(&["up"]);
    assert!(
        wait_until(TEST_TIMEOUT, || leftovers(&world).is_empty()),
        "{:?}",
        leftovers(&world)
    );
    assert!(!check.exists(), "the check's directory was not removed");
}

/// P12: an agent test removes the leftovers of an earlier one.
#[test]
fn p12_an_agent_test_removes_the_leftovers_of_an_earlier_one() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    create_test_leftovers(&world);
    world.run_ok(&["agent", "test", "bob"]);
    assert_eq!(leftovers(&world), [] as [PathBuf; 0]);
}

/// Starts a scripted agent that runs a hanging program.
fn start_hanging_agent(world: &World, program: &HangingCommand) {
    world.run_ok(&["agent", "add", "robot", "--runtime", "scripted"]);
    let path = world.write_plan(&format!(
        "[[task]]\nid = \"a\"\nsubject = \"Wait\"\nfiles = [\"a.md\"]\nscript = [{{ run = \"{}\" \
        }}]\n",
        program.command()
    ));
    world.run_ok(&["run", &path, "--agents", "robot", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || program.is_running()),
        "{}",
        world.run_json(&["status"])
    );
}

/// P12: no daemon can find an agent whose data directory was deleted. `doctor` reports the agent,
/// and `doctor --clean` ends it, whichever data directory `doctor` itself uses.
#[test]
fn p12_doctor_clean_ends_an_agent_whose_data_directory_was_deleted() {
    let (world, other, program) = (
        World::with_project(),
        World::with_project(),
        HangingCommand::new(),
    );
    start_hanging_agent(&other, &program);
    let daemon = other.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32;
    kill_process(daemon);
    assert!(wait_until(TEST_TIMEOUT, || !is_alive(daemon)));
    // Deleting the directory can fail while a journal in it still grows.
    assert!(wait_until(TEST_TIMEOUT, || std::fs::remove_dir_all(
        &other.data_dir
    )
    .is_ok()));
    let reported = world.run(&["doctor"]).stdout;
    let line = reported
        .lines()
        .find(|line| line.contains(path_text(&other.data_dir)));
    assert!(
        line.is_some_and(|line| line.starts_with("! strays")
            && line.ends_with("still runs  regatta doctor --clean")),
        "{reported}"
    );
    assert!(program.is_running(), "doctor ended the program");
    let cleaned = world.run(&["doctor", "--clean"]).stdout;
    assert!(
        cleaned.lines().any(
            |line| line.contains("ended the shim") && line.contains(path_text(&other.data_dir))
        ),
        "{cleaned}"
    );
    assert!(
        wait_until(TEST_TIMEOUT, || !program.is_running()),
        "the program outlives its directory"
    );
}

/// P12: after an older backup was restored, the next start ends programs whose attempts the board
/// does not know.
#[test]
fn p12_a_start_ends_a_program_whose_attempt_the_board_does_not_know() {
    let (world, program) = (World::with_project(), HangingCommand::new());
    let copy = world.root.join("copy.db");
    world.run_ok(&["backup", path_text(&copy)]);
    start_hanging_agent(&world, &program);
    world.run_ok(&["down", "--keep-agents"]);
    assert!(program.is_running(), "P1");
    world.run_ok(&["restore", path_text(&copy)]);
    world.run_ok(&["up"]);
    assert!(
        wait_until(TEST_TIMEOUT, || !program.is_running()),
        "{}",
        world.run_ok(&["status"])
    );
}

/// P12: `doctor` names agents that run without a daemon, of any data directory, and does not end
/// them.
#[test]
fn p12_doctor_names_agents_that_run_without_a_daemon() {
    let (world, other, program) = (
        World::with_project(),
        World::with_project(),
        HangingCommand::new(),
    );
    start_hanging_agent(&other, &program);
    let watched = world.run(&["doctor"]);
    assert!(
        !watched.stdout.contains(other.data_dir.to_str().unwrap()),
        "this agent has a daemon: {watched:?}"
    );

    let daemon = other.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32;
    kill_process(daemon);
    assert!(wait_until(TEST_TIMEOUT, || !is_alive(daemon)));
    let found = world.run(&["doctor"]);
    assert!(
        found.stdout.contains(&format!(
            "attempts of {} run without a daemon: 1 (pid",
            other.data_dir.display()
        )),
        "{found:?}"
    );
    assert!(
        program.is_running(),
        "P1: agents of a stopped daemon must keep running"
    );
    // Restarts only this world's daemon, because other tests run agents on the same machine.
    other.run_ok(&["up"]);
    other.run_ok(&["down"]);
    assert!(!program.is_running());
}
