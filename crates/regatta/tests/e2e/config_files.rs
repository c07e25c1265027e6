//! `regatta.toml` applies as soon as it is saved, and errors in it are reported.

use serde_json::json;

use crate::world::{LONG, World, until};

fn plan(world: &World, name: &str) -> String {
    world.plan(&format!(
        "[[task]]\nsubject = \"Add {name}\"\nfiles = [\"{name}\"]\n\
         script = [{{ write = {{ path = \"{name}\", text = \"x\" }} }}]\n"
    ))
}

fn save(world: &World, text: &str) {
    std::fs::write(world.repo.join("regatta.toml"), text).unwrap();
}

fn checks(world: &World) -> serde_json::Value {
    world.json(&["status"])["projects"][0]["validation"].clone()
}

/// Saved checks apply to the next run without another `init`, whether the file is not committed,
/// committed and then edited, or committed unchanged.
#[test]
fn checks_apply_as_soon_as_they_are_saved() {
    let world = World::with_repo();
    world.ok(&["init", "--yes", "--validate", "true"]);
    // Not committed, so the trunk has no such file.
    save(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    let ran = world.run(&["run", &plan(&world, "one"), "--agents", "scripted", "--wait"]);
    assert_ne!(ran.code, 0, "the saved check must fail: {ran:?}");
    assert_eq!(checks(&world), json!(["test -e allowed"]));
    save(&world, "[validation]\ncommands = [\"true\"]\n");
    world.ok(&["run", &plan(&world, "two"), "--agents", "scripted", "--wait"]);
    // Committed, then edited. The edit applies, not the trunk's version.
    world.commit("Use regatta");
    save(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    let ran = world.run(&["run", &plan(&world, "three"), "--agents", "scripted", "--wait"]);
    assert_ne!(ran.code, 0, "the edited check must fail: {ran:?}");
    assert_eq!(checks(&world), json!(["test -e allowed"]));
    // The queue applies the edit, too.
    world.commit("Be strict");
    save(&world, "[validation]\ncommands = [\"true\"]\n");
    world.ok(&["run", &plan(&world, "edited"), "--agents", "scripted", "--wait"]);
    // The daemon finds the edit by itself, without a command.
    save(&world, "[validation]\ncommands = [\"true\"]\n[landing]\nreview = \"human\"\n");
    let changed = || world.events().iter().any(|it| it["data"].to_string().contains("\"human\""));
    assert!(until(LONG, changed), "{:?}", world.events().last());
    let ran = world.run(&["run", &plan(&world, "four"), "--agents", "scripted", "--wait"]);
    assert_eq!(ran.code, 3, "the task waits for a review: {ran:?}");
}

/// Saved settings apply to the next command, not only to `run`. Here they decide which agent leads
/// a mission.
#[test]
fn a_mission_has_the_lead_of_the_settings_just_saved() {
    let world = World::set_up();
    for name in ["boss", "hand"] {
        world.ok(&["agent", "add", name, "--runtime", "command", "--command", "true", "--confine", "off"]);
    }
    for _ in 0..5 {
        save(&world, "[leads]\nagent = \"boss\"\nworkers = [\"hand\"]\n");
        let mission = world.json(&["mission", "start", "Limit all requests"])["id"].as_str().unwrap().to_owned();
        world.ok(&["mission", "cancel", &mission]);
        save(&world, "");
        let ran = world.run(&["mission", "start", "Limit all requests"]);
        assert!(ran.code != 0 && ran.err.contains("several agents could lead"), "{ran:?}");
    }
}

/// The daemon keeps the previous settings and reports the error. Commands that need the file are
/// refused.
#[test]
fn a_broken_settings_file_changes_nothing_and_is_reported() {
    let world = World::with_repo();
    world.ok(&["init", "--yes", "--validate", "true"]);
    let before = checks(&world);
    save(&world, "[validation\ncommands = [\"false\"]\n");
    let status = world.run(&["status"]);
    assert!(status.code == 0 && status.out.contains("! the settings of"), "{status:?}");
    assert!(status.out.contains("regatta.toml"), "{status:?}");
    let faults = world.json(&["status"])["config_faults"].clone();
    assert_eq!(faults.as_array().map(Vec::len), Some(1), "{faults}");
    assert_eq!(checks(&world), before, "the checks changed");
    let refused = world.refused(&["run", &plan(&world, "one"), "--agents", "scripted"], 1);
    assert_eq!(refused["code"], "bad_config", "{refused}");
    let added = world.run(&["add", "One", "--files", "one"]);
    assert!(added.code == 0 && added.err.contains("the settings before it stay in force"), "{added:?}");
    // An unknown key is reported like a syntax error.
    save(&world, "[validation]\ncomands = [\"true\"]\n");
    assert!(world.ok(&["status"]).contains("comands"), "{}", world.ok(&["status"]));
    save(&world, "[validation]\ncommands = [\"true\", \"true\"]\n");
    assert_eq!(checks(&world), json!(["true", "true"]));
    assert!(world.json(&["status"])["config_faults"].is_null());
}

/// A staged edit applies to the queue only once it is committed, because the index is behind the
/// trunk whenever work lands.
#[test]
fn staged_checks_apply_to_the_queue_once_they_are_committed() {
    let world = World::with_repo();
    world.ok(&["init", "--yes"]);
    save(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    world.commit("Use regatta");
    save(&world, "[validation]\ncommands = [\"true\"]\n");
    world.git(&["add", "regatta.toml"]);
    assert_eq!(checks(&world), json!(["true"]), "the saved file applies to attempts");
    let ran = world.run(&["run", &plan(&world, "one"), "--agents", "scripted", "--wait"]);
    assert_ne!(ran.code, 0, "the committed file applies to the queue: {ran:?}");
    world.git(&["commit", "-q", "-m", "Check less"]);
    world.ok(&["run", &plan(&world, "two"), "--agents", "scripted", "--wait"]);
}

/// The settings file of another checked-out branch does not apply to the trunk.
#[test]
fn the_settings_of_another_branch_do_not_apply() {
    let world = World::with_repo();
    world.ok(&["init", "--yes", "--validate", "true"]);
    world.commit("Use regatta");
    let before = checks(&world);
    world.git(&["switch", "-q", "-c", "old"]);
    save(&world, "[validation]\ncommands = [\"false\"]\n");
    assert_eq!(checks(&world), before);
    world.git(&["switch", "-q", "main"]);
    assert_eq!(checks(&world), json!(["false"]), "the uncommitted edit is now in the trunk's checkout");
}
