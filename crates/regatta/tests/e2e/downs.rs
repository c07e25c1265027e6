//! `regatta down` lasts until somebody starts the daemon again: looking does not.

use serde_json::json;

use crate::world::{LONG, World, until};

/// Words that only look.
const LOOKS: [&[&str]; 12] = [
    &["status"],
    &["inbox"],
    &["show", "T1"],
    &["why", "T1"],
    &["queue"],
    &["cost"],
    &["logs", "T1"],
    &["events"],
    &["agent", "list"],
    &["task", "list"],
    &["claim", "list"],
    &["mission", "list"],
];

#[test]
fn looking_does_not_undo_a_down() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    let hangs = json!([{ "hang": true }]).to_string();
    world.ok(&["add", "Hang", "--files", "a.txt", "--script", &hangs, "--assign", "bot"]);
    assert!(until(LONG, || !world.programs().is_empty()), "{}", world.ok(&["why", "T1"]));
    world.ok(&["down"]);
    for word in LOOKS {
        let refused = world.refused(word, 1);
        assert_eq!(refused["code"], "down", "{word:?}: {refused}");
        assert!(refused["hint"].as_str().unwrap().contains("regatta up"), "{word:?}: {refused}");
    }
    assert!(world.processes().is_empty(), "nothing was started: {:?}", world.processes());

    let doctor = world.ok(&["doctor"]);
    assert!(doctor.contains("not running") && doctor.contains("whole"), "{doctor}");
    assert!(world.processes().is_empty(), "doctor starts nothing: {:?}", world.processes());

    world.ok(&["up"]);
    assert!(until(LONG, || !world.programs().is_empty()), "{}", world.ok(&["why", "T1"]));
    world.ok(&["stop", "T1"]);
    // What changes something starts the daemon, as ever.
    world.ok(&["down"]);
    world.ok(&["add", "Later", "--files", "b.txt"]);
    assert_eq!(world.json(&["show", "T2"])["status"], "unassigned");
}

/// Where the file that notes a `down` cannot be written, as on a full disk, the daemon stops all the same.
#[test]
fn down_stops_where_it_cannot_be_noted() {
    let world = World::set_up();
    std::fs::create_dir(world.data.join("stopped")).unwrap();
    for what in ["down; all work is kept", "the daemon was not running"] {
        let ran = world.run(&["down"]);
        assert!(ran.code == 0 && ran.out.contains(what), "{ran:?}");
        assert!(ran.err.contains("could not note"), "{ran:?}");
        assert!(world.processes().is_empty(), "{:?}", world.left());
    }
    // Nor does it keep a daemon from starting.
    world.ok(&["up"]);
    world.ok(&["status"]);
}

/// Somebody who looks while the daemon ends does not start another.
#[test]
fn a_look_during_a_down_starts_nothing() {
    let world = World::set_up();
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            loop {
                let ran = world.run(&["status", "--json"]);
                if ran.code != 0 {
                    return ran;
                }
            }
        });
        world.ok(&["down"]);
        let last = looks.join().unwrap();
        assert!(last.err.contains("\"code\":\"down\""), "{last:?}");
    });
    assert!(world.processes().is_empty(), "{:?}", world.processes());
}

/// `doctor` makes nothing, and does not call well what it warns of.
#[test]
fn doctor_makes_nothing_and_counts_its_warnings() {
    let world = World::with_repo();
    let nowhere = world.root.join("not/there/yet");
    let output = world.command(&["doctor"]).env("REGATTA_DATA_DIR", &nowhere).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("created at the first start") && said.contains("none yet"), "{said}");
    assert!(!world.root.join("not").exists(), "it was made: {said}");
    let has_warnings = said.lines().any(|line| line.starts_with('!'));
    assert_eq!(said.contains("no problems"), !has_warnings && output.status.success(), "{said}");

    world.write("README.md", "changed\n");
    world.git(&["add", "-A"]);
    let said = world.run(&["doctor"]).out;
    assert!(said.lines().any(|line| line.starts_with("! repo")), "{said}");
    assert!(!said.contains("no problems") && said.contains("warning"), "{said}");
}
