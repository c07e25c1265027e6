//! File names with percent signs: they survive claims, work, a kill, a backup and a restore, and
//! are never confused with each other (D9). Also rows that cannot be read (D11).

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, kill_process, path_text, wait_until};

/// Returns the claimed files, sorted.
fn claimed_files(world: &World) -> Vec<String> {
    let claims = world.run_json(&["claim", "list"]);
    let uris = claims["held"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|claim| claim["uris"].as_array().unwrap());
    let mut files: Vec<String> = uris
        .filter_map(Value::as_str)
        .filter(|uri| uri.starts_with("file:"))
        .map(str::to_owned)
        .collect();
    files.sort();
    files
}

#[test]
fn d9_a_manifest_with_percent_signs_survives_a_kill_a_backup_and_a_restore() {
    let world = World::with_project();
    let files = ["web/50% off/index.html", "%61.txt", "a.txt"];
    let task = |file: &str| {
        format!(
            "[[task]]\nid = \"{}\"\nsubject = \"Write {file}\"\nfiles = [\"{file}\"]\n\
             script = [{{ write = {{ path = \"{file}\", text = \"x\\n\" }} }}, {{ hang = true }}]\n",
            file.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
                .trim_matches('-')
        )
    };
    let plan = world.write_plan(&files.map(task).concat());
    world.run_ok(&["plan", "check", &plan]);
    world.run_ok(&["run", &plan, "--agents", "scripted"]);
    let project = world.run_json(&["project", "list"])[0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut expected = ["%2561.txt", "a.txt", "web/50%25 off/index.html"]
        .map(|file| format!("file://{project}/{file}"))
        .to_vec();
    expected.sort();
    assert!(
        wait_until(TEST_TIMEOUT, || claimed_files(&world) == expected),
        "{:?}",
        claimed_files(&world)
    );

    kill_process(u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap());
    assert!(
        wait_until(TEST_TIMEOUT, || world.run(&["up"]).exit_code == 0),
        "{:?}",
        world.run(&["up"])
    );
    assert_eq!(claimed_files(&world), expected, "the claims changed");
    let recorded = world.events();
    assert!(
        recorded
            .iter()
            .any(|event| event["kind"] == "claim.granted")
    );
    assert!(
        !recorded
            .iter()
            .any(|event| event["kind"] == "event.unreadable")
    );
    world.run_ok(&["replay", "M1"]);
    let copy = world.root.join("copy.db");
    world.run_ok(&["backup", path_text(&copy)]);
    world.run_ok(&["down", "--timeout", "120s"]);
    world.run_ok(&["restore", path_text(&copy)]);
    world.run_ok(&["up"]);
    let doctor = world.run(&["doctor"]);
    assert!(
        doctor.stdout.contains("store") && doctor.stdout.contains("intact"),
        "{doctor:?}"
    );
    assert!(world.events().len() >= recorded.len());
}

/// D11: a row that cannot be read stops nothing, and `status`, `doctor`, `events` and `restore`
/// name it.
#[test]
fn d11_an_unreadable_row_is_reported_and_stops_nothing() {
    let world = World::with_project();
    for uri in ["file://shop/kept", "file://shop/lost"] {
        world.run_ok(&["claim", "acquire", uri, "--as", "ann", "--ttl", "1h"]);
    }
    world.run_ok(&["down"]);
    let store = rusqlite::Connection::open(world.data_dir.join("regatta.db")).unwrap();
    let spoilt = store
        .execute("UPDATE claims SET body = 'x' WHERE body LIKE '%lost%'", [])
        .unwrap();
    let events = store
        .execute("UPDATE events SET body = '{}' WHERE body LIKE '%lost%'", [])
        .unwrap();
    assert_eq!((spoilt, events), (1, 1));
    drop(store);

    world.run_ok(&["up"]);
    assert!(
        claimed_files(&world)
            .iter()
            .any(|uri| uri.ends_with("/kept"))
    );
    assert!(
        !claimed_files(&world)
            .iter()
            .any(|uri| uri.ends_with("/lost"))
    );
    let status = world.run_ok(&["status"]);
    assert!(
        status.contains("! row ") && status.contains("of table claims in the store is unreadable"),
        "{status}"
    );
    assert_eq!(
        world.run_json(&["status"])["unreadable"][0]["table"],
        "claims"
    );
    let doctor = world.run(&["doctor"]);
    assert!(
        doctor.exit_code == 1 && doctor.stdout.contains("of its table claims cannot be read"),
        "{doctor:?}"
    );
    let recorded = world.events();
    assert_eq!(
        recorded
            .iter()
            .filter(|event| event["kind"] == "event.unreadable")
            .count(),
        1
    );
    assert!(
        recorded.last().unwrap()["kind"] != "event.unreadable",
        "events after the unreadable one are shown"
    );
    let copy = world.root.join("copy.db");
    world.run_ok(&["backup", path_text(&copy)]);
    world.run_ok(&["down"]);
    let restored = world.run_ok(&["restore", path_text(&copy)]);
    assert!(
        restored.contains("of table claims") && restored.contains("of table events"),
        "{restored}"
    );
    world.run_ok(&["claim", "acquire", "file://shop/lost", "--as", "ann"]);
}
