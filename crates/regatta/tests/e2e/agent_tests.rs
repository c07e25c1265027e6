//! `regatta agent test` leaves nothing behind, however it ends. The leftovers of killed tests,
//! checks and agents are found and removed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::stops::Hanging;
use crate::world::{LONG, Ran, World, alive, finish, kill, text, until};

/// Starts an agent test with a hanging program, and waits until the program runs.
fn begin(world: &World, program: &Hanging) -> Child {
    let name = "sleeper";
    let mut agent = world.command(&["agent", "add", name, "--runtime", "command", "--command", &program.plain()]);
    agent.stdout(Stdio::null());
    assert!(agent.status().unwrap().success());
    let mut test = world.command(&["agent", "test", name]);
    let test = test.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(until(LONG, || program.runs()), "the program never started");
    test
}

/// Returns the directories of agent tests, and the records of these directories.
fn left(world: &World) -> Vec<PathBuf> {
    let places = std::fs::read_dir(world.root.join("tmp")).unwrap().flatten().map(|entry| entry.path());
    let places = places.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("regatta-test-"));
    let books = std::fs::read_dir(world.data.join("trials")).into_iter().flatten().flatten();
    places.chain(books.map(|entry| entry.path())).collect()
}

fn send(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([signal, &child.id().to_string()]);
    assert_eq!(crate::world::run(kill, None).code, 0);
}

/// P12: a signal ends the program and removes its directory before the test command itself ends.
#[test]
fn p12_an_interrupted_agent_test_leaves_nothing() {
    let world = World::set_up();
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let program = Hanging::new();
        let test = begin(&world, &program);
        send(&test, signal);
        let Ran { code: found, err, .. } = finish(test, LONG).unwrap();
        assert_eq!(found, code, "{err}");
        assert!(!program.runs(), "{signal}: the program runs");
        assert_eq!(left(&world), [] as [PathBuf; 0], "{signal}");
        assert!(err.contains("starting sleeper; it has at most 90 s"), "{err}");
    }
}

/// P12: after a kill -9 of the test command its program ends by itself, and the next `doctor`
/// removes its files.
#[test]
fn p12_a_killed_agent_test_ends_its_program() {
    let (world, program) = (World::set_up(), Hanging::new());
    let mut test = begin(&world, &program);
    kill(test.id());
    test.wait().unwrap();
    assert!(!left(&world).is_empty(), "the killed command cannot have cleaned up");
    assert!(until(LONG, || !program.runs()), "the program outlives its test");
    let ran = world.run(&["doctor"]);
    assert!(ran.out.contains("removed the directories of 1 interrupted agent tests"), "{ran:?}");
    assert_eq!(left(&world), [] as [PathBuf; 0]);
}

/// Creates the leftovers of a killed test: its directory and the record of the directory.
fn leave_test(world: &World) {
    let place = world.root.join("tmp/regatta-test-0123456789abcdef");
    std::fs::create_dir(&place).unwrap();
    let books = world.data.join("trials");
    std::fs::create_dir_all(&books).unwrap();
    std::fs::write(books.join("left.book"), text(&place)).unwrap();
}

/// P12: a start of the daemon removes the leftovers of a killed test and of a killed daemon's
/// checks.
#[test]
fn p12_a_start_removes_the_leftovers_of_tests_and_checks() {
    let world = World::set_up();
    world.ok(&["down"]);
    leave_test(&world);
    let check = world.data.join("checks/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(check.join("tmp")).unwrap();
    std::fs::write(check.join("launch.json"), "{}").unwrap();
    world.ok(&["up"]);
    assert!(until(LONG, || left(&world).is_empty()), "{:?}", left(&world));
    assert!(!check.exists(), "the check's directory was not removed");
}

/// P12: an agent test removes the leftovers of an earlier one.
#[test]
fn p12_an_agent_test_removes_the_leftovers_of_an_earlier_one() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    leave_test(&world);
    world.ok(&["agent", "test", "bob"]);
    assert_eq!(left(&world), [] as [PathBuf; 0]);
}

/// Starts a scripted agent that runs a hanging program.
fn run_hanging(world: &World, program: &Hanging) {
    world.ok(&["agent", "add", "robot", "--runtime", "scripted"]);
    let path = world.plan(&format!(
        "[[task]]\nid = \"a\"\nsubject = \"Wait\"\nfiles = [\"a.md\"]\nscript = [{{ run = \"{}\" }}]\n",
        program.command()
    ));
    world.ok(&["run", &path, "--agents", "robot", "--yes"]);
    assert!(until(LONG, || program.runs()), "{}", world.json(&["status"]));
}

/// P12: no daemon can find an agent whose data directory was deleted, so `doctor` ends the agent,
/// whichever data directory `doctor` itself uses.
#[test]
fn p12_doctor_ends_an_agent_whose_data_directory_was_deleted() {
    let (world, other, program) = (World::set_up(), World::set_up(), Hanging::new());
    run_hanging(&other, &program);
    let daemon = other.card().unwrap()["pid"].as_u64().unwrap() as u32;
    kill(daemon);
    assert!(until(LONG, || !alive(daemon)));
    // Deleting the directory can fail while a journal in it still grows.
    assert!(until(LONG, || std::fs::remove_dir_all(&other.data).is_ok()));
    world.run(&["doctor"]);
    assert!(until(LONG, || !program.runs()), "the program outlives its directory");
}

/// P12: after an older backup was restored, the next start ends programs whose attempts the board
/// does not know.
#[test]
fn p12_a_start_ends_a_program_whose_attempt_the_board_does_not_know() {
    let (world, program) = (World::set_up(), Hanging::new());
    let copy = world.root.join("copy.db");
    world.ok(&["backup", text(&copy)]);
    run_hanging(&world, &program);
    world.ok(&["down", "--keep-agents"]);
    assert!(program.runs(), "P1");
    world.ok(&["restore", text(&copy)]);
    world.ok(&["up"]);
    assert!(until(LONG, || !program.runs()), "{}", world.ok(&["status"]));
}

/// P12: `doctor` names agents that run without a daemon, of any data directory, and does not end
/// them.
#[test]
fn p12_doctor_names_agents_that_run_without_a_daemon() {
    let (world, other, program) = (World::set_up(), World::set_up(), Hanging::new());
    run_hanging(&other, &program);
    let watched = world.run(&["doctor"]);
    assert!(!watched.out.contains(other.data.to_str().unwrap()), "this agent has a daemon: {watched:?}");

    let daemon = other.card().unwrap()["pid"].as_u64().unwrap() as u32;
    kill(daemon);
    assert!(until(LONG, || !alive(daemon)));
    let found = world.run(&["doctor"]);
    assert!(found.out.contains(&format!("1 of {} run without a daemon", other.data.display())), "{found:?}");
    assert!(program.runs(), "P1: agents of a stopped daemon must keep running");
    // Restarts only this world's daemon, because other tests run agents on the same machine.
    other.ok(&["up"]);
    other.ok(&["down"]);
    assert!(!program.runs());
}
