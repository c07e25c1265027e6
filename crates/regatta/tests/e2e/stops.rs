//! Commands from the settings, such as checks and ratchets, end as agents do, by `stop`, `cancel`,
//! `retry` and `down`. None of these reports success too early.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A hanging command whose process can be found among all processes of the machine.
pub(crate) struct HangingCommand {
    seconds: String,
}

impl HangingCommand {
    pub(crate) fn new() -> HangingCommand {
        static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);
        let nth = LAST_NUMBER.fetch_add(1, Ordering::SeqCst);
        HangingCommand {
            seconds: format!("{}.{nth}", 40_000_000 + std::process::id()),
        }
    }

    pub(crate) fn command(&self) -> String {
        format!("exec {}", self.command_without_shell())
    }

    /// Returns the command without a shell.
    pub(crate) fn command_without_shell(&self) -> String {
        format!("sleep {}", self.seconds)
    }

    pub(crate) fn is_running(&self) -> bool {
        let command_line = format!("sleep\0{}\0", self.seconds).into_bytes();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.any(|line| line == command_line)
    }

    #[track_caller]
    fn wait_until_running(&self, world: &World) {
        assert!(
            wait_until(TEST_TIMEOUT, || self.is_running()),
            "the command never started: {}",
            world.run_json(&["status"])
        );
    }
}

fn task_plan(extra: &Value) -> Value {
    let mut task = json!({ "id": "a", "subject": "Write a", "files": ["a.md"],
        "script": [{ "write": { "path": "a.md", "text": "x\n" } }] });
    task.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    task
}

/// Starts a plan of one task with an agent with one slot.
fn start_task(world: &World, task: &Value) {
    world.run_ok(&[
        "agent",
        "add",
        "robot",
        "--runtime",
        "scripted",
        "--max-tasks",
        "1",
    ]);
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!({ "task": [task] }).to_string()).unwrap();
    world.run_ok(&["run", path.to_str().unwrap(), "--agents", "robot", "--yes"]);
}

#[track_caller]
fn assert_slot_and_claims_are_free(world: &World) {
    let agent = world.run_json(&["show", "robot"]);
    assert_eq!(agent["state"], "idle", "{agent}");
    let claims = world.run_json(&["claim", "list"]);
    assert_eq!(claims["held"], json!([]), "{claims}");
}

/// P3, P4, P10, P11: `why` names the running check, and `stop` succeeds only once the check has
/// ended.
#[test]
fn p11_stop_ends_a_check_that_hangs() {
    let (world, check) = (World::with_project(), HangingCommand::new());
    start_task(
        &world,
        &task_plan(&json!({ "validation": { "tests": check.command() } })),
    );
    check.wait_until_running(&world);
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(
        explanation.contains(&format!("check `{}`", check.command())),
        "{explanation}"
    );

    world.run_ok(&["stop", "M1"]);
    assert!(
        !check.is_running(),
        "P10: stop succeeded while the check runs"
    );
    assert_slot_and_claims_are_free(&world);
    let attempt = &world.run_json(&["show", "T1"])["attempts"][0];
    assert_eq!(attempt["ended"]["cause"], "stopped", "{attempt}");
}

/// P11: cancelling a task ends its ratchet and frees the slot.
#[test]
fn p11_cancel_ends_a_ratchet_that_hangs() {
    let (world, ratchet) = (World::with_project(), HangingCommand::new());
    start_task(
        &world,
        &task_plan(&json!({ "ratchet": ["sh", "-c", ratchet.command()] })),
    );
    ratchet.wait_until_running(&world);
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(explanation.contains("ratchet `sh -c"), "{explanation}");

    world.run_ok(&["task", "cancel", "T1"]);
    assert!(wait_until(TEST_TIMEOUT, || !ratchet.is_running()));
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_json(&["show", "robot"])["state"]
        == "idle"));
    assert_slot_and_claims_are_free(&world);
}

/// P11, D2: `stop` also ends a ratchet that outlived a killed daemon.
#[test]
fn p11_stop_ends_a_ratchet_that_outlived_its_daemon() {
    let (world, ratchet) = (World::with_project(), HangingCommand::new());
    start_task(
        &world,
        &task_plan(&json!({ "ratchet": ["sh", "-c", ratchet.command()] })),
    );
    ratchet.wait_until_running(&world);
    let daemon = world.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32;
    crate::world::kill_process(daemon);
    assert!(wait_until(TEST_TIMEOUT, || !crate::world::is_alive(daemon)));
    assert!(ratchet.is_running(), "the ratchet ended with the daemon");
    world.run_ok(&["stop", "T1"]);
    assert!(!ratchet.is_running());
    assert_slot_and_claims_are_free(&world);
}

/// P11: `stop` ends a setup command that hangs and pauses its task, and `retry` starts the task
/// again.
#[test]
fn p11_stop_ends_a_setup_command_that_hangs_and_retry_starts_again() {
    let (world, setup) = (World::with_repo(), HangingCommand::new());
    let gate = "hang.now";
    world.write_file(
        "regatta.toml",
        &format!(
            "[project]\nname = \"shop\"\n[validation]\ncommands = [\"true\"]\n\
             [workspace]\nsetup = [\"if [ -e {gate} ]; then {}; fi\"]\n",
            setup.command()
        ),
    );
    world.write_file(gate, "");
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    start_task(&world, &task_plan(&json!({})));
    setup.wait_until_running(&world);
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(
        explanation.contains("setup command `if [ -e"),
        "{explanation}"
    );

    world.run_ok(&["stop", "T1"]);
    assert!(!setup.is_running());
    assert_slot_and_claims_are_free(&world);
    let waits = world.run_ok(&["why", "T1"]);
    assert!(waits.contains("it is paused"), "{waits}");

    world.git(&["rm", "-q", gate]);
    world.commit_all("Let it go on");
    world.run_ok(&["retry", "T1"]);
    let ended = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "T1"])["word"] == "landed"
    });
    assert!(ended, "{}", world.run_ok(&["why", "T1"]));
}

/// P3, P11: `stop` with the task's id ends an after-landing command, and so does `down`.
#[test]
fn p11_down_ends_an_after_landing_command_that_hangs() {
    let (world, after) = (World::with_repo(), HangingCommand::new());
    let settings = format!(
        "[project]\nname = \"shop\"\n[validation]\ncommands = [\"true\"]\n[landing]\nafter = \
        [\"{}\"]\n",
        after.command()
    );
    world.write_file("regatta.toml", &settings);
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    start_task(&world, &task_plan(&json!({})));
    after.wait_until_running(&world);
    let output = world.run_ok(&["stop", "T1"]);
    assert!(output.contains("after T1 landed"), "{output}");
    assert!(!after.is_running());

    let again = json!({ "id": "b", "subject": "Write b", "files": ["b.md"],
        "script": [{ "write": { "path": "b.md", "text": "x\n" } }] });
    let path = world.root.join("plan.json");
    std::fs::write(&path, json!({ "task": [again] }).to_string()).unwrap();
    world.run_ok(&["run", path.to_str().unwrap(), "--agents", "robot", "--yes"]);
    after.wait_until_running(&world);
    world.run_ok(&["down"]);
    assert!(!after.is_running(), "P3: a command outlived `down`");
}

/// P4, P10: `stop` with a frozen shim succeeds only once the agent has ended.
#[test]
fn p10_stop_waits_until_the_agent_of_a_frozen_shim_has_ended() {
    let (world, agent) = (World::with_project(), HangingCommand::new());
    world.run_ok(&["config", "set", "shutdown_timeout", "1s"]);
    start_task(
        &world,
        &task_plan(&json!({ "script": [{ "run": agent.command() }] })),
    );
    agent.wait_until_running(&world);
    let record = std::fs::read(world.data_dir.join("attempts/A1/shim.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let shim = record["pid"]
        .as_u64()
        .or_else(|| record["identity"]["pid"].as_u64())
        .unwrap()
        .to_string();
    let mut freeze = std::process::Command::new("kill");
    freeze.args(["-STOP", &shim]);
    assert_eq!(crate::world::run_command(freeze, None).exit_code, 0);
    world.run_ok(&["stop", "M1"]);
    assert!(
        !agent.is_running(),
        "P10: stop succeeded while the agent runs"
    );
    assert_slot_and_claims_are_free(&world);
}

/// P10, P11: `stop` of a mission or a task ends the check that the queue runs for its work. The
/// work stays in the queue and lands when it is resumed.
#[test]
fn p11_stop_ends_a_check_of_the_queue_that_hangs() {
    let (world, check) = (World::with_repo(), HangingCommand::new());
    let go = world.root.join("go");
    world.write_file(
        "test.sh",
        &format!(
            "case $PWD in */staging*) [ -e {} ] || {};; esac\n[ ! -e bad ]\n",
            go.display(),
            check.command()
        ),
    );
    // The check reads a file outside, which a sandboxed check could not see.
    let settings = "[project]\nname = \"shop\"\n[validation]\ncommands = [\"sh \
        ./test.sh\"]\n[run]\nsandbox = \"off\"\n";
    world.write_file("regatta.toml", settings);
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    for stop in ["M1", "T1"] {
        if stop == "M1" {
            start_task(&world, &task_plan(&json!({})));
        }
        check.wait_until_running(&world);
        let explanation = world.run_ok(&["why", "T1"]);
        assert!(
            explanation.contains("check `sh ./test.sh`"),
            "{explanation}"
        );
        world.run_ok(&["stop", stop]);
        assert!(
            !check.is_running(),
            "P10: stop succeeded while the queue's check runs"
        );
        let explanation = world.run_ok(&["why", "T1"]);
        assert!(
            explanation.contains("stopped by a person") && explanation.contains("regatta land T1"),
            "{explanation}"
        );
        let begun = || {
            world
                .events()
                .iter()
                .filter(|event| event["kind"] == "landing.begun")
                .count()
        };
        let before = begun();
        world.run_ok(&["status"]);
        assert_eq!(begun(), before, "the landing was retried by itself");
        if stop == "M1" {
            world.run_ok(&["run", "--resume", "M1"]);
        }
    }
    std::fs::write(&go, "").unwrap();
    world.run_ok(&["resume", "T1"]);
    let landed = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "T1"])["word"] == "landed"
    });
    assert!(landed, "{}", world.run_ok(&["why", "T1"]));
}
