//! File names with percent signs: they survive claims, work, a kill, a backup and a restore, and
//! are never confused with each other (D9). Also rows that cannot be read (D11).

use serde_json::Value;

use crate::world::{LONG, World, kill, text, until};

/// Returns the claimed files, sorted.
fn claimed(world: &World) -> Vec<String> {
    let claims = world.json(&["claim", "list"]);
    let uris = claims["held"].as_array().unwrap().iter().flat_map(|claim| claim["uris"].as_array().unwrap());
    let mut files: Vec<String> =
        uris.filter_map(Value::as_str).filter(|uri| uri.starts_with("file:")).map(str::to_owned).collect();
    files.sort();
    files
}

#[test]
fn d9_a_manifest_with_percent_signs_survives_a_kill_a_backup_and_a_restore() {
    let world = World::set_up();
    let files = ["web/50% off/index.html", "%61.txt", "a.txt"];
    let task = |file: &str| {
        format!(
            "[[task]]\nid = \"{}\"\nsubject = \"Write {file}\"\nfiles = [\"{file}\"]\n\
             script = [{{ write = {{ path = \"{file}\", text = \"x\\n\" }} }}, {{ hang = true }}]\n",
            file.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-").trim_matches('-')
        )
    };
    let plan = world.plan(&files.map(task).concat());
    world.ok(&["plan", "check", &plan]);
    world.ok(&["run", &plan, "--agents", "scripted"]);
    let project = world.json(&["project", "list"])[0]["name"].as_str().unwrap().to_owned();
    let mut expected =
        ["%2561.txt", "a.txt", "web/50%25 off/index.html"].map(|file| format!("file://{project}/{file}")).to_vec();
    expected.sort();
    assert!(until(LONG, || claimed(&world) == expected), "{:?}", claimed(&world));

    kill(u32::try_from(world.card().unwrap()["pid"].as_u64().unwrap()).unwrap());
    assert!(until(LONG, || world.run(&["up"]).code == 0), "{:?}", world.run(&["up"]));
    assert_eq!(claimed(&world), expected, "the claims changed");
    let recorded = world.events();
    assert!(recorded.iter().any(|event| event["kind"] == "claim.granted"));
    assert!(!recorded.iter().any(|event| event["kind"] == "event.unreadable"));
    world.ok(&["replay", "M1"]);
    let copy = world.root.join("copy.db");
    world.ok(&["backup", text(&copy)]);
    world.ok(&["down", "--timeout", "120s"]);
    world.ok(&["restore", text(&copy)]);
    world.ok(&["up"]);
    let doctor = world.run(&["doctor"]);
    assert!(doctor.out.contains("store") && doctor.out.contains("intact"), "{doctor:?}");
    assert!(world.events().len() >= recorded.len());
}

/// D11: a row that cannot be read stops nothing, and `status`, `doctor`, `events` and `restore`
/// name it.
#[test]
fn d11_an_unreadable_row_is_reported_and_stops_nothing() {
    let world = World::set_up();
    for uri in ["file://shop/kept", "file://shop/lost"] {
        world.ok(&["claim", "acquire", uri, "--as", "ann", "--ttl", "1h"]);
    }
    world.ok(&["down"]);
    let store = rusqlite::Connection::open(world.data.join("regatta.db")).unwrap();
    let spoilt = store.execute("UPDATE claims SET body = 'x' WHERE body LIKE '%lost%'", []).unwrap();
    let events = store.execute("UPDATE events SET body = '{}' WHERE body LIKE '%lost%'", []).unwrap();
    assert_eq!((spoilt, events), (1, 1));
    drop(store);

    world.ok(&["up"]);
    assert!(claimed(&world).iter().any(|uri| uri.ends_with("/kept")));
    assert!(!claimed(&world).iter().any(|uri| uri.ends_with("/lost")));
    let status = world.ok(&["status"]);
    assert!(status.contains("! row ") && status.contains("of table claims in the store is unreadable"), "{status}");
    assert_eq!(world.json(&["status"])["unreadable"][0]["table"], "claims");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("of its table claims cannot be read"), "{doctor:?}");
    let recorded = world.events();
    assert_eq!(recorded.iter().filter(|event| event["kind"] == "event.unreadable").count(), 1);
    assert!(recorded.last().unwrap()["kind"] != "event.unreadable", "events after the unreadable one are shown");
    let copy = world.root.join("copy.db");
    world.ok(&["backup", text(&copy)]);
    world.ok(&["down"]);
    let restored = world.ok(&["restore", text(&copy)]);
    assert!(restored.contains("of table claims") && restored.contains("of table events"), "{restored}");
    world.ok(&["claim", "acquire", "file://shop/lost", "--as", "ann"]);
}
