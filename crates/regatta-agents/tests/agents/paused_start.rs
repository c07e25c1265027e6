//! Tests of programs whose sandbox and shim are set up in parallel.

use std::fs;

use regatta_agents::sandbox::{self, SandboxMechanism};
use regatta_core::agent::{Profile, SandboxLevel};
use regatta_engine::ports::agents::{Agents, Exit, JournalStream, ProgramLaunch};

use crate::support::{A1, World, eventually, fixture, list_processes};

/// Returns a launch of a shell script at a level.
fn sandboxed_launch(world: &World, level: SandboxLevel, script: &str) -> ProgramLaunch {
    let profile = Profile {
        sandbox: Some(level),
        ..Profile::default()
    };
    ProgramLaunch {
        profile,
        ..world.launch(&["sh", "-c", script])
    }
}

/// Returns whether this machine sandboxes programs with namespaces.
fn has_namespaces() -> bool {
    let best = sandbox::detect_mechanisms(fixture().as_ref()).best_mechanism();
    matches!(
        best,
        Some(SandboxMechanism::Bubblewrap | SandboxMechanism::Namespaces)
    )
}

/// Returns the containment of a world's attempt, once it is recorded.
fn containment(world: &World) -> &'static str {
    eventually("the program is recorded", || {
        world.adapter.containment(A1).unwrap().is_some()
    });
    world.adapter.containment(A1).unwrap().unwrap()
}

#[test]
fn p3_every_process_of_a_sandboxed_program_is_in_its_control_group() {
    if !has_namespaces() {
        return;
    }
    // A program without a sandbox shows which containment this machine supports.
    let open = World::new();
    open.adapter
        .start(&sandboxed_launch(
            &open,
            SandboxLevel::Off,
            "exec sleep 1000",
        ))
        .unwrap();
    let expected = if containment(&open) == "cgroup" {
        "cgroup"
    } else {
        "pid_namespace"
    };
    let world = World::new();
    world
        .adapter
        .start(&sandboxed_launch(
            &world,
            SandboxLevel::Workspace,
            "sleep 1000 & touch up; wait",
        ))
        .unwrap();
    world.wait_for("up");
    assert_eq!(containment(&world), expected);
    let shim = world.shim_identity().pid;
    let grouped = |pid: u32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .unwrap()
            .contains("/regatta-")
    };
    let mut below = vec![shim];
    let mut next = 0;
    while let Some(parent) = below.get(next).copied() {
        below.extend(
            list_processes()
                .filter(|process| process.parent_pid == parent)
                .map(|process| process.pid),
        );
        next += 1;
    }
    // The tree has at least the init process, the shell and its child.
    assert!(below.len() > 3, "{below:?}");
    for pid in below {
        assert_eq!(
            grouped(pid),
            expected == "cgroup" && pid != shim,
            "{pid} of {:?}",
            world.living_processes()
        );
    }
    world.adapter.stop(A1, std::time::Duration::ZERO).unwrap();
    world.assert_nothing_runs();
}

#[test]
fn s6_a_program_cannot_find_its_sandbox_settings() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    // Directories that only the system writes are skipped, because they are large and contain
    // nothing of Regatta.
    let script = "for dir in $TMPDIR /tmp; do ls -A $dir | grep regatta-; done; \
                  find / '(' -path /proc -o -path /sys -o -path /usr ')' -prune -o -name \
                  '*confine.json' -print 2>/dev/null; \
                  echo so";
    world
        .adapter
        .start(&sandboxed_launch(&world, SandboxLevel::Strict, script))
        .unwrap();
    assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
    assert_eq!(world.lines(JournalStream::Out), ["so"]);
}

#[test]
fn s11_leftover_check_files_of_another_attempt_do_not_stop_a_start() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    // These are the files that a check of another start would leave if they were named by the
    // process number inside.
    let home = world
        .data()
        .join("homes")
        .join(world.launch(&["true"]).agent.as_str());
    fs::create_dir_all(&home).unwrap();
    for pid in 1..100 {
        fs::write(home.join(format!(".regatta-check-{pid}")), "").unwrap();
    }
    world
        .adapter
        .start(&sandboxed_launch(
            &world,
            SandboxLevel::Workspace,
            "echo so",
        ))
        .unwrap();
    assert_eq!(world.wait(), Exit::Code(0), "{}", world.output());
    assert_eq!(world.lines(JournalStream::Out), ["so"]);
}
