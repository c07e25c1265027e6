//! Tests of the phase of a launch.

use std::process::{Command, Stdio};

use super::*;
use crate::process::Process;
use crate::run_dir::write_atomic;

/// P3, P10: a launch with an exit record has ended only when its shim is gone, or when the shim
/// hangs for too long.
#[test]
fn p3_a_launch_has_ended_only_when_its_shim_is_gone() {
    let temp_dir = tempfile::tempdir().unwrap();
    let dir = RunDir::create(temp_dir.path().join("A1")).unwrap();
    let mut shim = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let identity = Process::read(shim.id()).unwrap().identity().unwrap();
    write_atomic(&dir.shim_file(), &serde_json::to_vec(&identity).unwrap()).unwrap();
    dir.record_exit(&Exit::Code(0)).unwrap();
    // A shim that hangs is ignored.
    wait_for_shim_exit(&dir, Duration::ZERO).unwrap();
    assert!(matches!(shim.try_wait(), Ok(None)));
    assert!(matches!(
        read_phase(&dir),
        Ok(RunPhase::Ended(Exit::Code(0)))
    ));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_shim_exit(&dir, Duration::from_secs(300)).unwrap());
        drop(shim.stdin.take());
        waiter.join().unwrap();
    });
    let is_shim_gone = Process::read(shim.id()).is_none_or(|process| process.is_zombie);
    shim.wait().unwrap();
    assert!(
        is_shim_gone,
        "the launch was reported as ended while its shim was alive"
    );
}
