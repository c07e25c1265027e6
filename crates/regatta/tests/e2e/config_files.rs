//! `regatta.toml` applies as soon as it is saved, and errors in it are reported.

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, wait_until};

fn write_plan(world: &World, name: &str) -> String {
    world.write_plan(&format!(
        "[[task]]\nsubject = \"Add {name}\"\nfiles = [\"{name}\"]\n\
         script = [{{ write = {{ path = \"{name}\", text = \"x\" }} }}]\n"
    ))
}

fn save_settings(world: &World, text: &str) {
    std::fs::write(world.repo.join("regatta.toml"), text).unwrap();
}

fn check_commands(world: &World) -> serde_json::Value {
    world.run_json(&["status"])["projects"][0]["validation"].clone()
}

/// Saved checks apply to the next run without another `init`, whether the file is not committed,
/// committed and then edited, or committed unchanged.
#[test]
fn checks_apply_as_soon_as_they_are_saved() {
    let world = World::with_repo();
    world.run_ok(&["init", "--yes", "--validate", "true"]);
    // Not committed, so the trunk has no such file.
    save_settings(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    let output = world.run(&[
        "run",
        &write_plan(&world, "one"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    assert_ne!(output.exit_code, 0, "the saved check must fail: {output:?}");
    assert_eq!(check_commands(&world), json!(["test -e allowed"]));
    save_settings(&world, "[validation]\ncommands = [\"true\"]\n");
    world.run_ok(&[
        "run",
        &write_plan(&world, "two"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    // Committed, then edited. The edit applies, not the trunk's version.
    world.commit_all("Use regatta");
    save_settings(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    let output = world.run(&[
        "run",
        &write_plan(&world, "three"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    assert_ne!(
        output.exit_code, 0,
        "the edited check must fail: {output:?}"
    );
    assert_eq!(check_commands(&world), json!(["test -e allowed"]));
    // The queue applies the edit, too.
    world.commit_all("Be strict");
    save_settings(&world, "[validation]\ncommands = [\"true\"]\n");
    world.run_ok(&[
        "run",
        &write_plan(&world, "edited"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    // The daemon finds the edit by itself, without a command.
    save_settings(
        &world,
        "[validation]\ncommands = [\"true\"]\n[landing]\nreview = \"human\"\n",
    );
    let changed = || {
        world
            .events()
            .iter()
            .any(|event| event["data"].to_string().contains("\"human\""))
    };
    assert!(
        wait_until(TEST_TIMEOUT, changed),
        "{:?}",
        world.events().last()
    );
    let output = world.run(&[
        "run",
        &write_plan(&world, "four"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    assert_eq!(
        output.exit_code, 3,
        "the task waits for a review: {output:?}"
    );
}

/// Saved settings apply to the next command, not only to `run`. Here they decide which agent leads
/// a mission.
#[test]
fn a_mission_has_the_lead_of_the_settings_just_saved() {
    let world = World::with_project();
    for name in ["boss", "hand"] {
        world.run_ok(&[
            "agent",
            "add",
            name,
            "--runtime",
            "command",
            "--command",
            "true",
            "--confine",
            "off",
        ]);
    }
    for _ in 0..5 {
        save_settings(&world, "[leads]\nagent = \"boss\"\nworkers = [\"hand\"]\n");
        let mission = world.run_json(&["mission", "start", "Limit all requests"])["id"]
            .as_str()
            .unwrap()
            .to_owned();
        world.run_ok(&["mission", "cancel", &mission]);
        save_settings(&world, "");
        let output = world.run(&["mission", "start", "Limit all requests"]);
        assert!(
            output.exit_code != 0 && output.stderr.contains("several agents could lead"),
            "{output:?}"
        );
    }
}

/// The daemon keeps the previous settings and reports the error. Commands that need the file are
/// refused.
#[test]
fn a_broken_settings_file_changes_nothing_and_is_reported() {
    let world = World::with_repo();
    world.run_ok(&["init", "--yes", "--validate", "true"]);
    let before = check_commands(&world);
    save_settings(&world, "[validation\ncommands = [\"false\"]\n");
    let status = world.run(&["status"]);
    assert!(
        status.exit_code == 0 && status.stdout.contains("! the new settings of"),
        "{status:?}"
    );
    assert!(status.stdout.contains("regatta.toml"), "{status:?}");
    let faults = world.run_json(&["status"])["config_faults"].clone();
    assert_eq!(faults.as_array().map(Vec::len), Some(1), "{faults}");
    assert_eq!(check_commands(&world), before, "the checks changed");
    let refused = world.run_refused(
        &["run", &write_plan(&world, "one"), "--agents", "scripted"],
        1,
    );
    assert_eq!(refused["code"], "bad_config", "{refused}");
    let added = world.run(&["add", "One", "--files", "one"]);
    assert!(
        added.exit_code == 0 && added.stderr.contains("the previous settings stay in force"),
        "{added:?}"
    );
    // An unknown key is reported like a syntax error.
    save_settings(&world, "[validation]\ncomands = [\"true\"]\n");
    assert!(
        world.run_ok(&["status"]).contains("comands"),
        "{}",
        world.run_ok(&["status"])
    );
    save_settings(&world, "[validation]\ncommands = [\"true\", \"true\"]\n");
    assert_eq!(check_commands(&world), json!(["true", "true"]));
    assert!(world.run_json(&["status"])["config_faults"].is_null());
}

/// A staged edit applies to the queue only once it is committed, because the index is behind the
/// trunk whenever work lands.
#[test]
fn staged_checks_apply_to_the_queue_once_they_are_committed() {
    let world = World::with_repo();
    world.run_ok(&["init", "--yes"]);
    save_settings(&world, "[validation]\ncommands = [\"test -e allowed\"]\n");
    world.commit_all("Use regatta");
    save_settings(&world, "[validation]\ncommands = [\"true\"]\n");
    world.git(&["add", "regatta.toml"]);
    assert_eq!(
        check_commands(&world),
        json!(["true"]),
        "the saved file applies to attempts"
    );
    let output = world.run(&[
        "run",
        &write_plan(&world, "one"),
        "--agents",
        "scripted",
        "--wait",
    ]);
    assert_ne!(
        output.exit_code, 0,
        "the committed file applies to the queue: {output:?}"
    );
    world.git(&["commit", "-q", "-m", "Check less"]);
    world.run_ok(&[
        "run",
        &write_plan(&world, "two"),
        "--agents",
        "scripted",
        "--wait",
    ]);
}

/// The settings file of another checked-out branch does not apply to the trunk.
#[test]
fn the_settings_of_another_branch_do_not_apply() {
    let world = World::with_repo();
    world.run_ok(&["init", "--yes", "--validate", "true"]);
    world.commit_all("Use regatta");
    let before = check_commands(&world);
    world.git(&["switch", "-q", "-c", "old"]);
    save_settings(&world, "[validation]\ncommands = [\"false\"]\n");
    assert_eq!(check_commands(&world), before);
    world.git(&["switch", "-q", "main"]);
    assert_eq!(
        check_commands(&world),
        json!(["false"]),
        "the uncommitted edit is now in the trunk's checkout"
    );
}

/// Settings of the machine in a repository's file, and checks in a person's own file, would never
/// count. Both are refused with the file to which they belong, and are not printed as if they
/// counted.
#[test]
fn settings_in_the_wrong_file_are_refused() {
    let world = World::with_project();
    save_settings(&world, "[daemon]\nlisten = \"127.0.0.1:7999\"\n");
    let refused = world.run_refused(&["config", "show"], 1);
    let own_file = world.root.join("home/.config/regatta/config.toml");
    assert_eq!(
        (refused["code"].as_str(), refused["hint"].as_str()),
        (
            Some("bad_config"),
            Some(format!("move daemon to {}", own_file.display()).as_str())
        ),
        "{refused}"
    );
    let doctor = world.run(&["doctor"]);
    assert!(
        doctor.exit_code == 1
            && doctor
                .stdout
                .contains("[daemon] counts only in your own file"),
        "{doctor:?}"
    );
    save_settings(&world, "[validation]\ncommands = [\"true\"]\n");
    std::fs::create_dir_all(own_file.parent().unwrap()).unwrap();
    std::fs::write(&own_file, "[validation]\ncommands = [\"false\"]\n").unwrap();
    let refused = world.run_refused(&["config", "show"], 1);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("validation.commands counts only in the regatta.toml"),
        "{refused}"
    );
    std::fs::remove_file(&own_file).unwrap();
    let refused = world.run_refused(&["config", "set", "daemon.listen", "127.0.0.1:7999"], 2);
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("[daemon] in ~/.config/regatta/config.toml"),
        "{refused}"
    );
}
