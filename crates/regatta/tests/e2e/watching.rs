//! Following a run on a terminal, in a pipe and as a stream, leaving it, and stopping it.
//!
//! Checked with planted faults: a table that is not drawn, a second Ctrl-C without a question, a
//! first Ctrl-C that stops the mission, events of other missions in the stream, and a follower that
//! ends with its daemon.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::{LONG, World, until};

/// A command on its own terminal, and the terminal's output.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// `script` runs the command in a pseudo-terminal. Bytes that are written to it are typed.
    fn open(world: &World, line: &str) -> Terminal {
        let mut command = Command::new("script");
        world.clean(&mut command);
        let binary = env!("CARGO_BIN_EXE_regatta");
        command.args(["-qec", &format!("stty cols 120; {binary} {line}"), "/dev/null"]).current_dir(&world.repo);
        command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let copy = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(many @ 1..) = screen.read(&mut bytes) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..many]));
            }
        });
        Terminal { child, keys, shown }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    #[track_caller]
    fn waits_for(&self, text: &str) {
        assert!(until(LONG, || self.shown().contains(text)), "{text:?} never came: {}", self.shown());
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn ends(mut self) -> (i32, String) {
        let mut status = None;
        until(LONG, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let code = status.unwrap_or_else(|| panic!("the command did not end: {}", self.shown())).code().unwrap_or(-1);
        (code, self.shown())
    }
}

const SLOW: &str = "[[task]]\nsubject = \"Wait for it\"\nfiles = [\"b.txt\"]\n\
    script = [{ usage = { input = 1200, output = 34 } }, { sleep = \"60s\" }, { write = { path = \"b.txt\", text = \"b\\n\" } }]\n";

const QUICK: &str = "[[task]]\nid = \"b\"\nsubject = \"Quick b\"\nfiles = [\"b.txt\"]\n\
    script = [{ usage = { input = 1200, output = 34, cost = 0.5 } }, { write = { path = \"b.txt\", text = \"b\\n\" } }]\n";

/// On a terminal `run` redraws a table and ends with a summary.
#[test]
fn a_terminal_gets_a_live_table_and_a_summary() {
    let world = World::set_up();
    let plan = world.plan(&QUICK.replace("{ write", "{ sleep = \"700ms\" }, { write"));
    let terminal = Terminal::open(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.waits_for("working");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("\x1b[J"), "the table is redrawn in place: {shown}");
    let row = shown.lines().find(|it| it.contains("working") && it.contains("1.2k"));
    assert!(row.is_some_and(|it| it.contains("scripted")), "task, state, agent, elapsed, tokens: {shown}");
    assert!(shown.contains("1 of 1 landed") && shown.contains("took "), "{shown}");
    assert!(shown.contains("1.2k tokens · $0.50"), "{shown}");
}

/// The first Ctrl-C detaches and prints how to watch and to stop. The second one asks, and a yes
/// stops the mission.
#[test]
fn a_second_interrupt_asks_whether_to_stop() {
    let world = World::set_up();
    let plan = world.plan(SLOW);
    let mut terminal = Terminal::open(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.waits_for("working");
    terminal.types("\x03");
    terminal.waits_for("watch them: regatta run --resume M1 · stop them: regatta stop M1");
    terminal.waits_for("Ctrl-C again");
    terminal.types("\x03");
    terminal.waits_for("stop M1 now? its work is kept [y/N]");
    assert_eq!(world.json(&["show", "T1"])["word"], "working", "nothing may stop before the answer");
    terminal.types("y\n");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(shown.contains("stopped; all work is kept · go on: regatta run --resume M1"), "{shown}");
    assert!(until(LONG, || world.json(&["show", "T1"])["word"] == "waiting"));

    // The run is watched and left again. A no lets the mission go on.
    let mut terminal = Terminal::open(&world, "run --resume M1");
    terminal.waits_for("working");
    terminal.types("\x03");
    terminal.waits_for("Ctrl-C again");
    terminal.types("\x03");
    terminal.waits_for("[y/N]");
    terminal.types("\n");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert_eq!(world.json(&["show", "T1"])["word"], "working", "{shown}");
    world.ok(&["stop", "M1"]);
}

/// A single Ctrl-C detaches without a question, and the mission goes on.
#[test]
fn a_single_interrupt_detaches_without_a_question() {
    let world = World::set_up();
    let plan = world.plan(SLOW);
    let mut terminal = Terminal::open(&world, &format!("run {plan} --agents scripted --yes"));
    terminal.waits_for("working");
    terminal.types("\x03");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(shown.contains("detached; the agents keep working") && !shown.contains("[y/N]"), "{shown}");
    assert_eq!(world.json(&["show", "T1"])["word"], "working");
    world.ok(&["stop", "--now"]);
}

/// The stream has every event of the mission and no others, and ends with one answer and its
/// summary.
#[test]
fn a_run_with_events_streams_the_events_of_its_mission_as_json() {
    let world = World::set_up();
    world.ok(&["task", "add", "Other", "--files", "o"]);
    let plan = world.plan(&QUICK.replace("{ write", "{ sleep = \"2s\" }, { write"));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--json", "--events"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Other tasks change in the meantime and must not appear.
    assert!(until(LONG, || world.run(&["task", "list", "--status", "in_progress"]).out.contains("T2")));
    world.ok(&["task", "add", "Another", "--files", "p"]);
    world.ok(&["task", "cancel", "T1"]);
    let ran = crate::world::finish(child, LONG).unwrap();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let lines: Vec<Value> = ran.out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let (answer, events) = lines.split_last().unwrap();
    let kinds: Vec<&str> = events.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    for kind in ["mission.started", "task.added", "task.started", "task.completed"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let ours = |it: &Value| it["subject"] != "T1" && it["subject"] != "T3";
    assert!(events.iter().all(ours), "events of other tasks are in the stream: {events:?}");
    assert!(events.windows(2).all(|it| it[0]["revision"].as_u64() < it[1]["revision"].as_u64()));
    let summary = &answer["data"]["summary"];
    assert_eq!((&summary["tasks"], &summary["landed"], &summary["escalated"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!((&summary["tokens"], &summary["micro_usd"]), (&json!(1234), &json!(500_000)), "{summary}");
    assert!(summary["work_ms"].as_u64().is_some() && summary["wall_ms"].as_u64() > Some(0), "{summary}");
    assert_eq!(world.run(&["run", &plan, "--events"]).code, 2, "`--events` needs `--json`");
}

/// The daemon is replaced during a run. The follower continues to the end.
#[test]
fn a_follower_continues_after_a_restart_of_the_daemon() {
    let world = World::set_up();
    let plan = world.plan(&QUICK.replace("{ write", "{ sleep = \"3s\" }, { write"));
    let mut command = world.command(&["run", &plan, "--agents", "scripted", "--wait"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(until(LONG, || world.run(&["task", "list", "--status", "in_progress"]).out.contains("T1")));
    world.ok(&["up", "--restart"]);
    let ran = crate::world::finish(child, LONG).unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("1 of 1 landed"), "{ran:?}");
}
