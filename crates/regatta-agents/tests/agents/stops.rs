//! Tests of ending process trees that resist.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{Agents, Exit, ProcessState};

use crate::support::{A1, World, eventually, list_processes, process_entry, send_signal};

const GRACE_PERIOD: Duration = Duration::from_millis(200);

/// Stops attempt A1 and checks P3 and P4.
fn stop_and_check(world: &World) -> Exit {
    let before = Instant::now();
    let exit = world.adapter.stop(A1, GRACE_PERIOD).unwrap();
    world.assert_nothing_runs();
    assert!(
        before.elapsed() < GRACE_PERIOD + Duration::from_secs(5),
        "{:?}",
        before.elapsed()
    );
    assert_eq!(
        world.adapter.state(A1),
        Ok(ProcessState::Exited(exit.clone()))
    );
    exit
}

#[test]
fn program_that_handles_sigterm_ends_with_its_own_exit_code() {
    let world = World::new();
    world.start("trap 'echo bye; exit 9' TERM; touch up; while :; do sleep 1000 & wait; done");
    world.wait_for("up");
    let before = Instant::now();
    assert_eq!(
        world.adapter.stop(A1, Duration::from_secs(20)).unwrap(),
        Exit::Code(9)
    );
    assert!(
        before.elapsed() < Duration::from_secs(10),
        "the stop does not wait for the whole grace period"
    );
    assert_eq!(world.output(), "bye\n");
    world.assert_nothing_runs();
}

#[test]
fn suspended_program_is_resumed_and_ends_after_sigterm() {
    let world = World::new();
    world.start("trap 'exit 9' TERM; kill -STOP $$; sleep 1000");
    let shim = world.shim_identity();
    eventually("the program is stopped", || {
        list_processes().any(|process| process.parent_pid == shim.pid && process.is_stopped)
    });
    assert_eq!(
        world.adapter.stop(A1, Duration::from_secs(20)).unwrap(),
        Exit::Code(9)
    );
}

#[test]
fn child_started_during_the_grace_period_gets_sigterm_too() {
    let world = World::new();
    world.start("trap 'sleep 1000 & exit 9' TERM; touch up; sleep 1000 & wait");
    world.wait_for("up");
    let before = Instant::now();
    assert_eq!(
        world.adapter.stop(A1, Duration::from_secs(20)).unwrap(),
        Exit::Code(9)
    );
    assert!(
        before.elapsed() < Duration::from_secs(10),
        "the stop does not wait for the whole grace period"
    );
    world.assert_nothing_runs();
}

#[test]
fn p3_p4_a_stop_ends_process_trees_that_resist() {
    let trees = [
        (
            "ignores SIGTERM",
            "trap '' TERM; touch up; while :; do sleep 1000; done",
        ),
        (
            "double fork",
            "( ( trap '' TERM; touch up; while :; do sleep 1000; done ) & ) ; sleep 1000",
        ),
        (
            "its own session",
            "setsid sh -c 'setsid sh -c \"touch up; exec sleep 1000\" & sleep 1000' & wait",
        ),
        (
            "no environment",
            "setsid env -i sh -c 'sleep 1000; : '$TOKEN & touch up; sleep 1000",
        ),
        ("stopped", "sh -c 'touch up; kill -STOP $$'; sleep 1000"),
        (
            "holds the output open",
            "(trap '' TERM HUP; sleep 1000; echo no) & touch up; exec sleep 1000",
        ),
        (
            "many",
            "for i in $(seq 200); do sleep 1000 & done; touch up; wait",
        ),
        (
            "flees from generation to generation and from session to session",
            "trap '' TERM; echo 'setsid sh ./flee & sleep 0.01' > flee; sh ./flee & touch up; \
            sleep 1000",
        ),
        (
            "flees from generation to generation",
            "trap '' TERM; echo 'sh ./flee & sleep 0.01' > flee; sh ./flee & touch up; sleep 1000",
        ),
    ];
    for (name, script) in trees {
        let world = World::new();
        // Every second tree runs without a control group, as on a machine without cgroup2.
        let plain = world.adapter.clone().without_cgroups();
        let adapter = if name.len() % 2 == 0 {
            &plain
        } else {
            &world.adapter
        };
        adapter.start(&world.launch(&["sh", "-c", script])).unwrap();
        world.wait_for("up");
        assert!(!world.living_processes().is_empty());
        let exit = stop_and_check(&world);
        assert!(matches!(exit, Exit::Signal(15 | 9)), "{name}: {exit:?}");
    }
}

/// P3: without a shim, a process that has cleared its environment and lost its parent is found only
/// by its control group.
#[test]
fn p3_a_control_group_finds_every_process_of_a_killed_shim() {
    let world = World::new();
    world.start("(setsid env -i sh -c 'sleep 1000; : '$TOKEN &); touch up; sleep 1000");
    world.wait_for("up");
    eventually("the program is recorded", || {
        world.adapter.containment(A1).unwrap().is_some()
    });
    let level = world.adapter.containment(A1).unwrap().unwrap();
    let shim: serde_json::Value =
        serde_json::from_slice(&fs::read(world.run_dir().join("shim.json")).unwrap()).unwrap();
    send_signal(world.shim_identity().pid, "KILL");
    assert_eq!(world.wait(), Exit::Lost);
    if level == "cgroup" {
        world.assert_nothing_runs();
        let group = shim["cgroup"].as_str().unwrap();
        assert!(
            group.contains("regatta-") && !std::path::Path::new(group).exists(),
            "{group} is left"
        );
    } else {
        // Without a control group only this process escapes. The test must not leave it behind.
        assert_eq!(level, "subreaper");
        for line in world.living_processes() {
            send_signal(line.split(' ').next().unwrap().parse().unwrap(), "KILL");
        }
    }
}

#[test]
fn p3_background_processes_end_with_their_program() {
    let world = World::new();
    let script =
        "setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; touch up; sleep 1000; sleep 1000' & 
        while [ ! -e up ]; do sleep 0.01; done; echo done";
    assert_eq!(world.run(script), Exit::Code(0));
    world.assert_nothing_runs();
    assert_eq!(world.output(), "done\n");
}

#[test]
fn p3_a_killed_shim_is_a_lost_attempt_without_processes() {
    for ask_by in ["wait", "state", "stop"] {
        let world = World::new();
        // Both trees are found without the shim: the first by its mark, the second, without
        // environment, by its marked parent.
        world.start(
            "(setsid sleep 1000 &); sh -c 'env -i sh -c \"sleep 1000; : '$TOKEN'\"; :' & \
            touch up; wait",
        );
        world.wait_for("up");
        send_signal(world.shim_identity().pid, "KILL");
        let exit = match ask_by {
            "wait" => world.wait(),
            "state" => {
                eventually("the shim is gone", || {
                    !matches!(world.adapter.state(A1), Ok(ProcessState::Running(_)))
                });
                world.wait()
            }
            _ => world.adapter.stop(A1, GRACE_PERIOD).unwrap(),
        };
        assert_eq!(exit, Exit::Lost, "{ask_by}");
        world.assert_nothing_runs();
        world.start("echo again > again");
        assert_eq!(world.wait(), Exit::Lost);
        assert_eq!(
            world.file("again"),
            "",
            "a lost attempt must not start again"
        );
    }
}

#[test]
fn p4_a_stop_ends_the_process_tree_of_a_frozen_shim() {
    let world = World::new();
    // Only the shim can find the process, because the process has lost its environment and its
    // parent.
    world.start("(setsid env -i sh -c 'sleep 1000; : '$TOKEN &); touch up; sleep 1000");
    world.wait_for("up");
    send_signal(world.shim_identity().pid, "STOP");
    assert_eq!(stop_and_check(&world), Exit::Lost);
}

#[test]
fn p5_a_process_with_a_reused_pid_is_never_signalled() {
    let world = World::new();
    let mut stranger = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let other_start = process_entry(stranger.id()).unwrap().start_ticks - 1;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let identity = format!(
        r#"{{"pid":{},"start_ticks":{other_start},"boot_id":"{}"}}"#,
        stranger.id(),
        boot.trim()
    );
    fs::create_dir_all(world.run_dir()).unwrap();
    let launch = r#"{"v":1,"mode":"attempt","argv":["x"],"dir":"/","mark":"nobody carries this"}"#;
    for (name, content) in [
        ("launch.json", launch),
        ("shim.json", &identity),
        ("program.json", &identity),
    ] {
        fs::write(world.run_dir().join(name), content).unwrap();
    }
    assert_eq!(world.adapter.stop(A1, GRACE_PERIOD), Ok(Exit::Lost));
    assert_eq!(world.wait(), Exit::Lost);
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "the other process was killed"
    );
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn d8_a_torn_record_of_a_shim_is_a_lost_attempt() {
    let world = World::new();
    fs::create_dir_all(world.run_dir()).unwrap();
    fs::write(world.run_dir().join("shim.json"), "").unwrap();
    fs::write(world.run_dir().join("launch.json"), "{\"v\":1,\"mo").unwrap();
    assert_eq!(world.wait(), Exit::Lost);
    assert_eq!(world.adapter.stop(A1, GRACE_PERIOD), Ok(Exit::Lost));
}

#[test]
fn p7_orphans_that_end_are_reaped_while_the_program_runs() {
    let world = World::new();
    world.start("for i in $(seq 50); do (true &); done; touch up; exec sleep 1000");
    world.wait_for("up");
    let shim = world.shim_identity();
    eventually("no zombie is left", || {
        !list_processes().any(|process| process.parent_pid == shim.pid && process.is_zombie)
    });
    stop_and_check(&world);
    // The shim is a child of this process and must not stay a zombie.
    eventually("the shim is reaped", || {
        process_entry(shim.pid).is_none_or(|process| process.start_ticks != shim.start_ticks)
    });
}

#[test]
fn attempt_stopped_before_its_start_never_starts() {
    let world = World::new();
    let exit = world.adapter.stop(A1, GRACE_PERIOD).unwrap();
    assert!(matches!(&exit, Exit::NotStarted(reason) if reason.contains("stopped before")));
    world.start("echo ran > ran");
    assert_eq!(world.wait(), exit);
    assert_eq!(world.file("ran"), "");
}

#[test]
fn second_stop_with_a_shorter_grace_period_ends_the_program() {
    let world = World::new();
    world.start("trap '' TERM; touch up; while :; do sleep 1000; done");
    world.wait_for("up");
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| world.adapter.stop(A1, Duration::from_secs(600)).unwrap());
        stop_and_check(&world);
        assert_eq!(patient.join().unwrap(), world.wait());
    });
}

/// L5, P3: a runner that was killed or is frozen ends nothing. Its programs end by themselves
/// before their task is given to another agent, but not while the daemon is in contact.
#[test]
fn l5_p3_a_program_ends_when_its_daemon_is_out_of_contact_for_too_long() {
    let mut world = World::new();
    let file = world.data().join("contact");
    let deadline = Duration::from_millis(1_500);
    world.adapter =
        crate::support::adapter(&world.data()).with_contact_deadline(file.clone(), deadline);
    fs::create_dir_all(world.data()).unwrap();
    regatta_agents::contact_deadline::record_contact(&file).unwrap();
    world.start("trap '' TERM; touch up; setsid sleep 1000 & while :; do sleep 0.05; echo; done");
    world.wait_for("up");
    // The contact is recorded for twice as long as the deadline.
    let began = Instant::now();
    while began.elapsed() < 2 * deadline {
        regatta_agents::contact_deadline::record_contact(&file).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(matches!(
        world.adapter.state(A1),
        Ok(ProcessState::Running(_))
    ));
    // From now on no contact is recorded, and nothing else stops the program.
    assert_eq!(world.wait(), Exit::Signal(9));
    world.assert_nothing_runs();
}
