//! `regatta agent test` leaves nothing behind, however it ends; what others left is found and removed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::stops::Hanging;
use crate::world::{LONG, Ran, World, alive, finish, kill, text, until};

/// Starts a test of an agent whose program hangs, and waits until the program runs.
fn begin(world: &World, program: &Hanging) -> Child {
    let name = "sleeper";
    let mut agent = world.command(&["agent", "add", name, "--runtime", "command", "--command", &program.plain()]);
    agent.stdout(Stdio::null());
    assert!(agent.status().unwrap().success());
    let mut test = world.command(&["agent", "test", name]);
    let test = test.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(until(LONG, || program.runs()), "the program never began");
    test
}

/// The directories of tests, and their books.
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

/// P12: a signal ends the program and removes its directory before the test itself ends, and it says what it waits for.
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

/// P12: even after a kill -9 of the test its program ends by itself, and what is on the disk goes with the next look.
#[test]
fn p12_a_killed_agent_test_ends_its_program() {
    let (world, program) = (World::set_up(), Hanging::new());
    let mut test = begin(&world, &program);
    kill(test.id());
    test.wait().unwrap();
    assert!(!left(&world).is_empty(), "nobody could clear up yet");
    assert!(until(LONG, || !program.runs()), "the program outlives its test");
    let ran = world.run(&["doctor"]);
    assert!(ran.out.contains("removed the directories of 1 interrupted agent tests"), "{ran:?}");
    assert_eq!(left(&world), [] as [PathBuf; 0]);
}

/// Leaves what a test leaves whose process was killed: its directory and its book.
fn leave_test(world: &World) {
    let place = world.root.join("tmp/regatta-test-0123456789abcdef");
    std::fs::create_dir(&place).unwrap();
    let books = world.data.join("trials");
    std::fs::create_dir_all(&books).unwrap();
    std::fs::write(books.join("left.book"), text(&place)).unwrap();
}

/// P12: a start removes what a killed test and the checks of a killed daemon left.
#[test]
fn p12_a_start_removes_what_tests_and_checks_left() {
    let world = World::set_up();
    world.ok(&["down"]);
    leave_test(&world);
    let check = world.data.join("checks/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(check.join("tmp")).unwrap();
    std::fs::write(check.join("launch.json"), "{}").unwrap();
    world.ok(&["up"]);
    assert!(until(LONG, || left(&world).is_empty()), "{:?}", left(&world));
    assert!(!check.exists(), "what a check left stays");
}

/// P12: the next test removes what an earlier one left.
#[test]
fn p12_a_test_removes_what_an_earlier_one_left() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    leave_test(&world);
    world.ok(&["agent", "test", "bob"]);
    assert_eq!(left(&world), [] as [PathBuf; 0]);
}

/// Has a scripted agent run a program that hangs.
fn run_hanging(world: &World, program: &Hanging) {
    world.ok(&["agent", "add", "robot", "--runtime", "scripted"]);
    let path = world.plan(&format!(
        "[[task]]\nid = \"a\"\nsubject = \"Wait\"\nfiles = [\"a.md\"]\nscript = [{{ run = \"{}\" }}]\n",
        program.command()
    ));
    world.ok(&["run", &path, "--agents", "robot", "--yes"]);
    assert!(until(LONG, || program.runs()), "{}", world.json(&["status"]));
}

/// P12: no daemon can find an agent whose data directory was deleted, so `doctor` ends it, whosever it was.
#[test]
fn p12_an_agent_whose_data_directory_was_deleted_is_ended() {
    let (world, other, program) = (World::set_up(), World::set_up(), Hanging::new());
    run_hanging(&other, &program);
    let daemon = other.card().unwrap()["pid"].as_u64().unwrap() as u32;
    kill(daemon);
    assert!(until(LONG, || !alive(daemon)));
    // A journal may grow meanwhile.
    assert!(until(LONG, || std::fs::remove_dir_all(&other.data).is_ok()));
    world.run(&["doctor"]);
    assert!(until(LONG, || !program.runs()), "the program outlives its directory");
}

/// P12: a program whose attempt the board does not know, because an older copy of the store was put back, is ended by the
/// next start.
#[test]
fn p12_a_start_ends_a_program_that_its_board_does_not_know() {
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

/// P12: `doctor` names agents that run without a daemon, of whatever data directory, and ends them when told to.
#[test]
fn p12_doctor_ends_agents_that_nobody_looks_after() {
    let (world, other, program) = (World::set_up(), World::set_up(), Hanging::new());
    run_hanging(&other, &program);
    let watched = world.run(&["doctor"]);
    assert!(!watched.out.contains(other.data.to_str().unwrap()), "it has a daemon: {watched:?}");

    let daemon = other.card().unwrap()["pid"].as_u64().unwrap() as u32;
    kill(daemon);
    assert!(until(LONG, || !alive(daemon)));
    let found = world.run(&["doctor"]);
    assert!(found.out.contains(&format!("1 of {} run without a daemon", other.data.display())), "{found:?}");
    assert!(program.runs(), "P1: a daemon that is down is no reason to end its agents");
    // Of this world alone: other tests run on this machine, too.
    other.ok(&["up"]);
    other.ok(&["down"]);
    assert!(!program.runs());
}
