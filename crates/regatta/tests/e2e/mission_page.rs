//! The data for the page of a mission and for the list of missions.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::pages::{entity, read_live_stream};
use crate::world::{TEST_TIMEOUT, World, wait_until};

fn start_mission(api: &ApiClient, tasks: &[Value]) {
    let agents = json!(["one"]);
    let given = json!({ "title": "Two files", "agents": agents, "max_workers": 1, "tasks": tasks });
    api.call_ok("mission.start", given);
}

fn task(subject: &str, after: &[usize], script: Value) -> Value {
    json!({ "task": { "subject": subject, "files": [subject], "script": script }, "after": after })
}

fn page_of(api: &ApiClient, id: &str) -> Value {
    entity(&read_live_stream(api, &format!("mission.{id}")).1, id)
}

/// The page of a mission says what landed in which wave with how many lines, who answered what, and
/// who worked on it. An unknown cost is not zero.
#[test]
fn a_mission_page_shows_waves_landings_decisions_and_agents() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "one", "--runtime", "scripted"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let write = |path: &str| json!({ "write": { "path": path, "text": "1\n2\n" } });
    let ask = json!({ "permission": { "what": "npm install", "default": "deny" } });
    let tasks = [
        task("a", &[], json!([write("a")])),
        task("b", &[0], json!([ask, write("b")])),
    ];
    start_mission(&api, &tasks);
    let mut asked = Value::Null;
    assert!(
        wait_until(TEST_TIMEOUT, || {
            asked = world.run_json(&["inbox"])[0]["id"].clone();
            asked.is_string()
        }),
        "{}",
        world.run_ok(&["status"])
    );
    let page = page_of(&api, "M1");
    assert_eq!(page["mission"]["running"], json!(true), "{page}");
    assert_eq!(page["decisions"][0]["at"], "needs", "{page}");
    assert_eq!(page["open"][0]["at"], "needs", "{page}");
    world.run_ok(&["allow", asked.as_str().unwrap()]);
    assert!(
        wait_until(TEST_TIMEOUT, || page_of(&api, "M1")["mission"]["running"]
            == json!(false)),
        "{}",
        page_of(&api, "M1")
    );

    let page = page_of(&api, "M1");
    let mission = &page["mission"];
    assert_eq!(
        (&mission["word"], &mission["text"], &mission["at"]),
        (
            &json!("done"),
            &json!("2 of 2 tasks landed"),
            &json!("landed")
        ),
        "{page}"
    );
    let waves: Vec<_> = page["waves"].as_array().unwrap().clone();
    let landed = json!([{ "at": "landed", "count": 1 }]);
    assert_eq!(waves.len(), 2);
    for (wave, number) in waves.iter().zip(1..) {
        assert_eq!(
            (&wave["wave"], &wave["counts"]),
            (&json!(number), &landed),
            "{page}"
        );
    }
    assert_eq!(page["landings_total"], json!(2));
    assert_eq!(page["landings"][0]["task"], "T2", "the newest is first");
    assert_eq!(
        page["landings"][0]["lines"],
        json!({ "files": 1, "added": 2, "removed": 0 })
    );
    let decision = &page["decisions"][0];
    assert_eq!(
        (&decision["kind"], &decision["answer"], &decision["task"]),
        (&json!("permission"), &json!("allowed"), &json!("T2"))
    );
    assert!(!decision["by"].as_str().unwrap().is_empty(), "{decision}");
    assert_eq!(page["lanes"][0]["agent"], "one");
    assert_eq!(page["lanes"][0]["bars"].as_array().unwrap().len(), 2);
    assert!(!page["asked_by"].as_str().unwrap().is_empty(), "{page}");
    assert!(
        !mission["spend"].as_str().unwrap().contains("$0"),
        "an unknown cost is not zero: {mission}"
    );
    assert_eq!(page["actions"], json!([]));

    let (_, frames) = read_live_stream(&api, "missions,tasks.M1");
    assert_eq!(entity(&frames, "mission/M1"), *mission);
    assert_eq!(entity(&frames, "task/T2")["at"], "landed");
    assert_eq!(
        read_live_stream(&api, "mission.M9").1[0]["p"],
        json!([]),
        "a mission that does not exist has no page"
    );
}

/// The buttons of a mission pause, resume and cancel it, and its state follows.
#[test]
fn the_buttons_of_a_mission_pause_resume_and_cancel_it() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "one", "--runtime", "scripted"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let ask = json!([{ "permission": { "what": "go on", "default": "deny" } }]);
    let tasks = [task("a", &[], ask), task("b", &[0], json!([]))];
    start_mission(&api, &tasks);
    let press = |label: &str, text: Option<&str>| {
        let page = page_of(&api, "M1");
        let action = page["actions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|action| action["label"].as_str().unwrap().starts_with(label))
            .unwrap_or_else(|| panic!("no button {label}: {page}"))
            .clone();
        let mut given = action["input"].clone();
        if let Some(text) = text {
            *given
                .pointer_mut(action["words"].as_str().unwrap())
                .unwrap() = json!(text);
        }
        api.call_ok(action["verb"].as_str().unwrap(), given);
        let page = page_of(&api, "M1");
        (
            page["mission"]["word"].as_str().unwrap().to_owned(),
            page["report"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(press("Pause", None).0, "paused");
    assert_ne!(press("Resume", None).0, "paused");
    assert_eq!(
        press("Cancel", Some("not needed")),
        ("cancelled".into(), "not needed".into())
    );
}
