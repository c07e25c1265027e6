//! Following a run on a terminal, in a pipe and as a stream, leaving it, and stopping it.
//!
//! Checked with planted faults: a table that is not drawn, a second Ctrl-C without a question, a
//! first Ctrl-C that stops the mission, events of other missions in the stream, and a follower that
//! ends with its daemon.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A command on its own terminal, and the terminal's output.
struct PseudoTerminal {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
}

impl PseudoTerminal {
    /// `script` runs the command in a pseudo-terminal. Bytes that are written to it are typed.
    fn start(world: &World, line: &str) -> PseudoTerminal {
        let mut command = Command::new("script");
        world.clean_environment(&mut command);
        let binary = env!("CARGO_BIN_EXE_regatta");
        command
            .args([
                "-qec",
                &format!("stty cols 120; {binary} {line}"),
                "/dev/null",
            ])
            .current_dir(&world.repo);
        command
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = Arc::new(Mutex::new(String::new()));
        let copy = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(many @ 1..) = screen.read(&mut bytes) {
                copy.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..many]));
            }
        });
        PseudoTerminal {
            child,
            input,
            output,
        }
    }

    fn output_text(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    #[track_caller]
    fn wait_for_text(&self, text: &str) {
        assert!(
            wait_until(TEST_TIMEOUT, || self.output_text().contains(text)),
            "{text:?} never came: {}",
            self.output_text()
        );
    }

    fn type_keys(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    fn wait_for_end(mut self) -> (i32, String) {
        let mut status = None;
        wait_until(TEST_TIMEOUT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let code = status
            .unwrap_or_else(|| panic!("the command did not end: {}", self.output_text()))
            .code()
            .unwrap_or(-1);
        (code, self.output_text())
    }
}

const SLOW_PLAN: &str = "[[task]]\nsubject = \"Wait for it\"\nfiles = [\"b.txt\"]\n\
    script = [{ usage = { input = 1200, output = 34 } }, { sleep = \"60s\" }, { write = { path = \
    \"b.txt\", text = \"b\\n\" } }]\n";

const QUICK_PLAN: &str = "[[task]]\nid = \"b\"\nsubject = \"Quick b\"\nfiles = [\"b.txt\"]\n\
    script = [{ usage = { input = 1200, output = 34, cost = 0.5 } }, { write = { path = \"b.txt\", \
    text = \"b\\n\" } }]\n";

/// On a terminal `run` redraws a table and ends with a summary.
#[test]
fn a_terminal_gets_a_live_table_and_a_summary() {
    let world = World::with_project();
    let plan = world.write_plan(&QUICK_PLAN.replace("{ write", "{ sleep = \"700ms\" }, { write"));
    let terminal = PseudoTerminal::start(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.wait_for_text("working");
    let (code, shown) = terminal.wait_for_end();
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("\x1b[J"),
        "the table is redrawn in place: {shown}"
    );
    let row = shown
        .lines()
        .find(|shown| shown.contains("working") && shown.contains("1.2k"));
    assert!(
        row.is_some_and(|row| row.contains("scripted")),
        "task, state, agent, elapsed, tokens: {shown}"
    );
    assert!(
        shown.contains("1 of 1 landed") && shown.contains("took "),
        "{shown}"
    );
    assert!(shown.contains("1.2k tokens · $0.50"), "{shown}");
}

/// The first Ctrl-C detaches and prints how to watch and to stop. The second one asks, and a yes
/// stops the mission.
#[test]
fn a_second_interrupt_asks_whether_to_stop() {
    let world = World::with_project();
    let plan = world.write_plan(SLOW_PLAN);
    let mut terminal =
        PseudoTerminal::start(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.wait_for_text("working");
    terminal.type_keys("\x03");
    terminal.wait_for_text("run --resume M1 · stop them: ");
    terminal.wait_for_text("stop M1");
    terminal.wait_for_text("Ctrl-C again");
    terminal.type_keys("\x03");
    terminal.wait_for_text("stop M1 now? its work is kept [y/N]");
    assert_eq!(
        world.run_json(&["show", "T1"])["word"],
        "working",
        "nothing may stop before the answer"
    );
    terminal.type_keys("y\n");
    let (code, shown) = terminal.wait_for_end();
    assert_eq!(code, 130, "{shown}");
    assert!(
        shown.contains("stopped; all work is kept · go on: ") && shown.contains("run --resume M1"),
        "{shown}"
    );
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["word"]
        == "waiting"));

    // The run is watched and left again. A no lets the mission go on.
    let mut terminal = PseudoTerminal::start(&world, "run --resume M1");
    terminal.wait_for_text("working");
    terminal.type_keys("\x03");
    terminal.wait_for_text("Ctrl-C again");
    terminal.type_keys("\x03");
    terminal.wait_for_text("[y/N]");
    terminal.type_keys("\n");
    let (code, shown) = terminal.wait_for_end();
    assert_eq!(code, 130, "{shown}");
    assert_eq!(
        world.run_json(&["show", "T1"])["word"],
        "working",
        "{shown}"
    );
    world.run_ok(&["stop", "M1"]);
}

/// A single Ctrl-C detaches without a question, and the mission goes on.
#[test]
fn a_single_interrupt_detaches_without_a_question() {
    let world = World::with_project();
    let plan = world.write_plan(SLOW_PLAN);
    let mut terminal =
        PseudoTerminal::start(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.wait_for_text("working");
    terminal.type_keys("\x03");
    let (code, shown) = terminal.wait_for_end();
    assert_eq!(code, 130, "{shown}");
    assert!(
        shown.contains("detached; the agents keep working") && !shown.contains("[y/N]"),
        "{shown}"
    );
    assert_eq!(world.run_json(&["show", "T1"])["word"], "working");
    world.run_ok(&["stop", "--now"]);
}

/// The stream has every event of the mission and no others, and ends with one answer and its
/// summary.
#[test]
fn a_run_with_events_streams_the_events_of_its_mission_as_json() {
    let world = World::with_project();
    world.run_ok(&["task", "add", "Other", "--files", "o"]);
    let plan = world.write_plan(&QUICK_PLAN.replace("{ write", "{ sleep = \"2s\" }, { write"));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--json", "--events"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Other tasks change in the meantime and must not appear.
    assert!(wait_until(TEST_TIMEOUT, || world
        .run(&["task", "list", "--status", "in_progress"])
        .stdout
        .contains("T2")));
    world.run_ok(&["task", "add", "Another", "--files", "p"]);
    world.run_ok(&["task", "cancel", "T1"]);
    let output = crate::world::wait_for_child(child, TEST_TIMEOUT).unwrap();
    assert_eq!(
        (output.exit_code, output.stderr.as_str()),
        (0, ""),
        "{output:?}"
    );
    let lines: Vec<Value> = output
        .stdout
        .lines()
        .map(|stdout| serde_json::from_str(stdout).unwrap())
        .collect();
    let (answer, events) = lines.split_last().unwrap();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    for kind in [
        "mission.started",
        "task.added",
        "task.started",
        "task.completed",
    ] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let is_of_watched_task = |event: &Value| event["subject"] != "T1" && event["subject"] != "T3";
    assert!(
        events.iter().all(is_of_watched_task),
        "events of other tasks are in the stream: {events:?}"
    );
    assert!(
        events
            .windows(2)
            .all(|events| events[0]["revision"].as_u64() < events[1]["revision"].as_u64())
    );
    let summary = &answer["data"]["summary"];
    assert_eq!(
        (&summary["tasks"], &summary["landed"], &summary["escalated"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(
        (&summary["tokens"], &summary["micro_usd"]),
        (&json!(1234), &json!(500_000)),
        "{summary}"
    );
    assert!(
        summary["work_ms"].as_u64().is_some() && summary["wall_ms"].as_u64() > Some(0),
        "{summary}"
    );
    assert_eq!(
        world.run(&["run", &plan, "--events"]).exit_code,
        2,
        "`--events` needs `--json`"
    );
}

/// The daemon is replaced during a run. The follower continues to the end.
#[test]
fn a_follower_continues_after_a_restart_of_the_daemon() {
    let world = World::with_project();
    let plan = world.write_plan(&QUICK_PLAN.replace("{ write", "{ sleep = \"3s\" }, { write"));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--wait"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_until(TEST_TIMEOUT, || world
        .run(&["task", "list", "--status", "in_progress"])
        .stdout
        .contains("T1")));
    world.run_ok(&["up", "--restart"]);
    let output = crate::world::wait_for_child(child, TEST_TIMEOUT).unwrap();
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(output.stdout.contains("1 of 1 landed"), "{output:?}");
}
