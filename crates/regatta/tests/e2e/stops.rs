//! Commands from the settings, such as checks and ratchets, end as agents do, by `stop`, `cancel`,
//! `retry` and `down`. None of these reports success too early.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::world::{LONG, World, until};

/// A hanging command whose process can be found among all processes of the machine.
pub(crate) struct Hanging {
    seconds: String,
}

impl Hanging {
    pub(crate) fn new() -> Hanging {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let nth = LAST.fetch_add(1, Ordering::SeqCst);
        Hanging { seconds: format!("{}.{nth}", 40_000_000 + std::process::id()) }
    }

    pub(crate) fn command(&self) -> String {
        format!("exec {}", self.plain())
    }

    /// Returns the command without a shell.
    pub(crate) fn plain(&self) -> String {
        format!("sleep {}", self.seconds)
    }

    pub(crate) fn runs(&self) -> bool {
        let wanted = format!("sleep\0{}\0", self.seconds).into_bytes();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.any(|line| line == wanted)
    }

    #[track_caller]
    fn until_it_runs(&self, world: &World) {
        assert!(until(LONG, || self.runs()), "the command never started: {}", world.json(&["status"]));
    }
}

fn task(extra: &Value) -> Value {
    let mut task = json!({ "id": "a", "subject": "Write a", "files": ["a.md"],
        "script": [{ "write": { "path": "a.md", "text": "x\n" } }] });
    task.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    task
}

/// Starts a plan of one task with an agent with one slot.
fn start(world: &World, task: &Value) {
    world.ok(&["agent", "add", "robot", "--runtime", "scripted", "--max-tasks", "1"]);
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!({ "task": [task] }).to_string()).unwrap();
    world.ok(&["run", path.to_str().unwrap(), "--agents", "robot", "--yes"]);
}

#[track_caller]
fn assert_slot_and_claims_are_free(world: &World) {
    let agent = world.json(&["show", "robot"]);
    assert_eq!(agent["state"], "idle", "{agent}");
    let claims = world.json(&["claim", "list"]);
    assert_eq!(claims["held"], json!([]), "{claims}");
}

/// P3, P4, P10, P11: `why` names the running check, and `stop` succeeds only once the check has
/// ended.
#[test]
fn p11_stop_ends_a_check_that_hangs() {
    let (world, check) = (World::set_up(), Hanging::new());
    start(&world, &task(&json!({ "validation": { "tests": check.command() } })));
    check.until_it_runs(&world);
    let why = world.ok(&["why", "T1"]);
    assert!(why.contains(&format!("check `{}`", check.command())), "{why}");

    world.ok(&["stop", "M1"]);
    assert!(!check.runs(), "P10: stop succeeded while the check runs");
    assert_slot_and_claims_are_free(&world);
    let attempt = &world.json(&["show", "T1"])["attempts"][0];
    assert_eq!(attempt["ended"]["cause"], "stopped", "{attempt}");
}

/// P11: cancelling a task ends its ratchet and frees the slot.
#[test]
fn p11_cancel_ends_a_ratchet_that_hangs() {
    let (world, ratchet) = (World::set_up(), Hanging::new());
    start(&world, &task(&json!({ "ratchet": ["sh", "-c", ratchet.command()] })));
    ratchet.until_it_runs(&world);
    let why = world.ok(&["why", "T1"]);
    assert!(why.contains("ratchet `sh -c"), "{why}");

    world.ok(&["task", "cancel", "T1"]);
    assert!(until(LONG, || !ratchet.runs()));
    assert!(until(LONG, || world.json(&["show", "robot"])["state"] == "idle"));
    assert_slot_and_claims_are_free(&world);
}

/// P11, D2: `stop` also ends a ratchet that outlived a killed daemon.
#[test]
fn p11_stop_ends_a_ratchet_that_outlived_its_daemon() {
    let (world, ratchet) = (World::set_up(), Hanging::new());
    start(&world, &task(&json!({ "ratchet": ["sh", "-c", ratchet.command()] })));
    ratchet.until_it_runs(&world);
    let daemon = world.card().unwrap()["pid"].as_u64().unwrap() as u32;
    crate::world::kill(daemon);
    assert!(until(LONG, || !crate::world::alive(daemon)));
    assert!(ratchet.runs(), "the ratchet ended with the daemon");
    world.ok(&["stop", "T1"]);
    assert!(!ratchet.runs());
    assert_slot_and_claims_are_free(&world);
}

/// P11: `stop` ends a setup command that hangs and pauses its task, and `retry` starts the task
/// again.
#[test]
fn p11_stop_ends_a_setup_command_that_hangs_and_retry_starts_again() {
    let (world, setup) = (World::with_repo(), Hanging::new());
    let gate = "hang.now";
    world.write(
        "regatta.toml",
        &format!(
            "[project]\nname = \"shop\"\n[validation]\ncommands = [\"true\"]\n\
             [workspace]\nsetup = [\"if [ -e {gate} ]; then {}; fi\"]\n",
            setup.command()
        ),
    );
    world.write(gate, "");
    world.ok(&["init", "--yes"]);
    world.commit("Use regatta");
    start(&world, &task(&json!({})));
    setup.until_it_runs(&world);
    let why = world.ok(&["why", "T1"]);
    assert!(why.contains("setup command `if [ -e"), "{why}");

    world.ok(&["stop", "T1"]);
    assert!(!setup.runs());
    assert_slot_and_claims_are_free(&world);
    let waits = world.ok(&["why", "T1"]);
    assert!(waits.contains("it is paused"), "{waits}");

    world.git(&["rm", "-q", gate]);
    world.commit("Let it go on");
    world.ok(&["retry", "T1"]);
    let ended = until(LONG, || world.json(&["show", "T1"])["word"] == "landed");
    assert!(ended, "{}", world.ok(&["why", "T1"]));
}

/// P3, P11: `stop` with the task's id ends an after-landing command, and so does `down`.
#[test]
fn p11_down_ends_an_after_landing_command_that_hangs() {
    let (world, after) = (World::with_repo(), Hanging::new());
    let settings = format!(
        "[project]\nname = \"shop\"\n[validation]\ncommands = [\"true\"]\n[landing]\nafter = [\"{}\"]\n",
        after.command()
    );
    world.write("regatta.toml", &settings);
    world.ok(&["init", "--yes"]);
    world.commit("Use regatta");
    start(&world, &task(&json!({})));
    after.until_it_runs(&world);
    let said = world.ok(&["stop", "T1"]);
    assert!(said.contains("after T1 landed"), "{said}");
    assert!(!after.runs());

    let again = json!({ "id": "b", "subject": "Write b", "files": ["b.md"],
        "script": [{ "write": { "path": "b.md", "text": "x\n" } }] });
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!({ "task": [again] }).to_string()).unwrap();
    world.ok(&["run", path.to_str().unwrap(), "--agents", "robot", "--yes"]);
    after.until_it_runs(&world);
    world.ok(&["down"]);
    assert!(!after.runs(), "P3: a command outlived `down`");
}

/// P4, P10: `stop` with a frozen shim succeeds only once the agent has ended.
#[test]
fn p10_stop_waits_until_the_agent_of_a_frozen_shim_has_ended() {
    let (world, agent) = (World::set_up(), Hanging::new());
    world.ok(&["config", "set", "shutdown_timeout", "1s"]);
    start(&world, &task(&json!({ "script": [{ "run": agent.command() }] })));
    agent.until_it_runs(&world);
    let record = std::fs::read(world.data.join("attempts/A1/shim.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let shim = record["pid"].as_u64().or_else(|| record["identity"]["pid"].as_u64()).unwrap().to_string();
    let mut freeze = std::process::Command::new("kill");
    freeze.args(["-STOP", &shim]);
    assert_eq!(crate::world::run(freeze, None).code, 0);
    world.ok(&["stop", "M1"]);
    assert!(!agent.runs(), "P10: stop succeeded while the agent runs");
    assert_slot_and_claims_are_free(&world);
}

/// P10, P11: `stop` of a mission or a task ends the check that the queue runs for its work. The
/// work stays in the queue and lands when it is resumed.
#[test]
fn p11_stop_ends_a_check_of_the_queue_that_hangs() {
    let (world, check) = (World::with_repo(), Hanging::new());
    let go = world.root.join("go");
    world.write(
        "test.sh",
        &format!("case $PWD in */staging*) [ -e {} ] || {};; esac\n[ ! -e bad ]\n", go.display(), check.command()),
    );
    // The check reads a file outside, which a sandboxed check could not see.
    let settings =
        "[project]\nname = \"shop\"\n[validation]\ncommands = [\"sh ./test.sh\"]\n[run]\nsandbox = \"off\"\n";
    world.write("regatta.toml", settings);
    world.ok(&["init", "--yes"]);
    world.commit("Use regatta");
    for stop in ["M1", "T1"] {
        if stop == "M1" {
            start(&world, &task(&json!({})));
        }
        check.until_it_runs(&world);
        let why = world.ok(&["why", "T1"]);
        assert!(why.contains("check `sh ./test.sh`"), "{why}");
        world.ok(&["stop", stop]);
        assert!(!check.runs(), "P10: stop succeeded while the queue's check runs");
        let why = world.ok(&["why", "T1"]);
        assert!(why.contains("stopped by a person") && why.contains("regatta land T1"), "{why}");
        let begun = || world.events().iter().filter(|event| event["kind"] == "landing.begun").count();
        let before = begun();
        world.ok(&["status"]);
        assert_eq!(begun(), before, "the landing was retried by itself");
        if stop == "M1" {
            world.ok(&["run", "--resume", "M1"]);
        }
    }
    std::fs::write(&go, "").unwrap();
    world.ok(&["resume", "T1"]);
    let landed = until(LONG, || world.json(&["show", "T1"])["word"] == "landed");
    assert!(landed, "{}", world.ok(&["why", "T1"]));
}
