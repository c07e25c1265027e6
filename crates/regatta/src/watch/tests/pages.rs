//! Tests of the lists and pages.

use regatta_api::live_view::TaskRowView;
use regatta_core::display::DisplayState;
use regatta_core::ids::ProjectName;
use serde_json::{Value, json};

use crate::watch::model::{ScreenModel, ScreenRequest};
use crate::watch::on_live_message;
use crate::watch::tests::keys::press_keys;
use crate::watch::tests::{
    NOW_UNIX_MS, frame, head, item, lane, queue_value, row, sample_model, screen_text,
};

/// The cost page shows the text of `regatta cost`. Only this page subscribes to the topic.
#[test]
fn the_cost_page_shows_the_text_of_the_command() {
    let mut model = sample_model();
    assert!(!model.topics().contains("cost"));
    press_keys(&mut model, "gc");
    assert!(model.topics().ends_with(",cost"), "{}", model.topics());
    let usage = json!({ "input": 900, "cached_input": 100, "cache_write": 0, "output": 50, "micro_usd": 2_840_000 });
    let spent = json!({ "usage": usage, "turns": 1, "attempts": 1, "wall_ms": 5 });
    let sum = json!({ "tasks": 3, "spent": spent, "rate": 1_100_000 });
    let mut row = sum.clone();
    row["name"] = json!("claude");
    let table = |by: &str| json!({ "by": by, "rows": [row] });
    let nothing = json!({ "tasks": 0, "spent": {} });
    let came = json!({ "landed": sum, "each": 950_000, "wasted": nothing, "failed_attempts": 0, "dropped_tasks": 0 });
    let cost = json!({
        "days": 0, "since_wall": NOW_UNIX_MS, "tables": [table("provider"), table("agent")], "total": sum, "cap": 20_000_000,
        "forecast": { "when": "reached" }, "came": came, "budgets": [],
    });
    on_live_message(&mut model, "", &frame(8_841, &[("cost", "cost", cost)]));
    let screen = screen_text(&model, 100, 24);
    for text in [
        "provider",
        "$2.84 of $20.00 cap",
        "$1.10/h · the cap is reached",
        "landed 3 tasks · $0.95 each",
        "agent ",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    press_keys(&mut model, "jjjjjjjjjjjjjjjj");
    assert!(
        screen_text(&model, 100, 8).contains("agent "),
        "{}",
        screen_text(&model, 100, 8)
    );
}

/// The queue of the person's own project comes first, then queues that are not empty.
#[test]
fn the_own_project_s_queue_comes_first() {
    let mut model = sample_model();
    let queue = |name: &str, cars: Value| {
        let mut train = queue_value();
        (train["project"], train["queue"]) = (json!(name), cars);
        train
    };
    let quiet = queue("aardvark", json!([]));
    let own = queue("zebra", json!([]));
    on_live_message(
        &mut model,
        "",
        &frame(
            8_841,
            &[
                ("queue", "train/aardvark", quiet),
                ("queue", "train/zebra", own),
            ],
        ),
    );
    let order = |model: &ScreenModel| -> Vec<String> {
        model
            .visible_queues()
            .iter()
            .map(|train| train.queue.project.to_string())
            .collect()
    };
    assert_eq!(order(&model), ["shop", "aardvark", "zebra"]);
    model.own_project = ProjectName::new("zebra").ok();
    assert_eq!(order(&model), ["zebra", "shop", "aardvark"]);
    let brief: Vec<String> = model
        .queues_in_brief()
        .iter()
        .map(|train| train.queue.project.to_string())
        .collect();
    assert_eq!(
        brief,
        ["zebra", "shop"],
        "an empty queue of another project is left out"
    );
}

/// Tasks, requests and the name of the person's own project come before those of other projects.
#[test]
fn the_own_project_s_tasks_and_requests_come_first() {
    let mut model = sample_model();
    let mut task = row(90, "own task", "working", "working", "");
    task["project"] = json!("zebra");
    let mut request = item("Q90", "T90", "own request", "own");
    request["project"] = json!("zebra");
    let parts = [("tasks", "task/T90", task), ("inbox", "item/Q90", request)];
    on_live_message(&mut model, "", &frame(8_841, &parts));
    let first = |model: &ScreenModel| {
        let is_working = |row: &&&TaskRowView| row.at == DisplayState::Working;
        let rows = model.visible_rows();
        let task = rows.iter().find(is_working).unwrap().id.0;
        (task, model.groups()[0].items[0].item.id.clone())
    };
    model.own_project = ProjectName::new("shop").ok();
    assert_eq!(first(&model), (24, "Q7".to_owned()));
    model.own_project = ProjectName::new("zebra").ok();
    assert_eq!(first(&model), (90, "Q90".to_owned()));
}

/// The age and the agent of a card are visible at 80 columns, also if the card stands for many
/// requests of agents with long names that wait long.
#[test]
fn a_card_s_age_and_agent_fit_into_80_columns() {
    let mut model = sample_model();
    let mut parts = Vec::new();
    for nth in 100..133 {
        let mut request = item(&format!("Q{nth}"), "T1234", "cargo publish", "publish");
        request["agent"] = json!(format!("gemini-{nth}"));
        request["escalated"] = json!(true);
        parts.push((format!("item/Q{nth}"), request));
    }
    let parts: Vec<(&str, &str, Value)> = parts
        .iter()
        .map(|(key, value)| ("inbox", key.as_str(), value.clone()))
        .collect();
    on_live_message(&mut model, "", &frame(8_841, &parts));
    let screen = screen_text(&model, 80, 24);
    let card = screen.lines().find(|line| line.contains("Q100 × 33"));
    let card = card.unwrap_or_else(|| panic!("{screen}"));
    let inbox = card.split('│').nth(1).unwrap();
    assert!(
        inbox.contains("gemini-100 +32") && inbox.ends_with(" 2m"),
        "{inbox:?}\n{screen}"
    );
}

/// Where there is room, the cards that are not selected have their reasons and answers too, and
/// short lists leave their room to long ones.
#[test]
fn cards_use_the_free_room() {
    let model = sample_model();
    let screen = screen_text(&model, 160, 50);
    let count = |text: &str| screen.matches(text).count();
    assert_eq!(
        (
            count("network, not in the allow list"),
            count("Allow once  Deny")
        ),
        (2, 2),
        "{screen}"
    );
    assert_eq!(
        count("1 Allow once"),
        0,
        "digits need a selection:\n{screen}"
    );
    let small = screen_text(&model, 80, 14);
    assert!(!small.contains("Allow once"), "{small}");
    let title = screen.lines().position(|line| line.contains(" 4 tasks "));
    assert!(title.unwrap() < 20, "the tasks move up:\n{screen}");
}

/// A failure that a person has handled is not urgent, and the title also counts tasks that are not
/// listed.
#[test]
fn a_dropped_failure_is_last_and_the_title_counts_all_tasks() {
    let mut model = sample_model();
    let failed = |id: u64| row(id, "broken", "failed", "failed", "no");
    let mut decided = failed(5);
    decided["rank"] = json!(DisplayState::Landed.rank());
    let asks = json!({
        "id": "T30", "kind": "failed", "task": "T30", "project": "shop", "agent": null, "subject": "broken", "why": "no",
        "choices": [], "since_wall": NOW_UNIX_MS, "escalated": false, "group": "T30", "actions": [],
    });
    let parts = [
        ("tasks", "task/T5", decided),
        ("tasks", "task/T30", failed(30)),
        ("inbox", "item/T30", asks),
    ];
    on_live_message(&mut model, "", &frame(8_841, &parts));
    let ids: Vec<u64> = model.visible_rows().iter().map(|row| row.id.0).collect();
    assert_eq!((ids.first(), ids.last()), (Some(&30), Some(&5)), "{ids:?}");
    assert!(
        screen_text(&model, 120, 40).contains(" 6 tasks "),
        "{}",
        screen_text(&model, 120, 40)
    );
    let mut whole = head();
    whole["tasks"] = json!(601);
    on_live_message(&mut model, "", &frame(8_842, &[("head", "head", whole)]));
    assert!(
        screen_text(&model, 120, 40).contains(" 6 of 601 tasks "),
        "{}",
        screen_text(&model, 120, 40)
    );
    model.filter = "nowhere".into();
    assert!(
        screen_text(&model, 120, 40).contains("no listed task matches the filter"),
        "older tasks may match"
    );
}

/// Landings of one batch are drawn as a group, and a failed batch is marked.
#[test]
fn landings_of_a_batch_are_drawn_together() {
    let mut value = queue_value();
    let car = |nth: usize, state: &str| {
        let mut car = queue_value()["queue"][0].clone();
        (car["landing"], car["task"]) = (json!(format!("L{nth}")), json!(format!("T{nth}")));
        (car["state"], car["position"]) = (json!(state), json!(nth));
        car
    };
    value["queue"] = json!([
        car(1, "testing"),
        car(2, "testing"),
        car(3, "testing"),
        car(4, "searching"),
        car(5, "queued")
    ]);
    let batch = |ride: &str, cars: Value| json!({ "ride": ride, "state": ride, "at": "working", "cars": cars });
    let mut failed = batch("searching", json!(["L4"]));
    failed["failed"] = json!("make test");
    value["batches"] = json!([
        batch("testing", json!(["L1", "L2", "L3"])),
        failed,
        batch("queued", json!(["L5"]))
    ]);
    let mut model = sample_model();
    on_live_message(
        &mut model,
        "",
        &frame(8_841, &[("queue", "train/shop", value)]),
    );
    press_keys(&mut model, "gq");
    let screen = screen_text(&model, 80, 24);
    for text in [
        "┌ 1 T1   testing",
        "│ 2 T2   testing",
        "└ 3 T3   testing",
        "✕ 4 T4   searching",
        "  5 T5   queued",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    model.is_unicode = false;
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("/ 1 T1") && screen.contains("x 4 T4") && screen.is_ascii(),
        "{screen}"
    );
}

/// Files are a tree with their holders. A file that two tasks need stands out.
#[test]
fn files_are_a_tree_with_their_holders() {
    let mut model = sample_model();
    assert_eq!(
        press_keys(&mut model, "gf"),
        [ScreenRequest::SubscribeTopics]
    );
    assert!(model.topics().ends_with(",files"), "{}", model.topics());
    let held = json!({ "owner": "attempt:A3", "task": "T24", "agent": "claude-2", "since_wall": NOW_UNIX_MS, "until": "while T24 is worked on", "memo": "" });
    let share =
        json!({ "holder": "claude-2", "task": "T24", "spots": 1, "until_wall": NOW_UNIX_MS });
    let spot = json!({ "path": "src/api/login.rs", "held": [held], "wanted": ["T25"], "hot": 2, "clash": ["T24", "T25"] });
    let folder = json!({ "path": "src/api", "depth": 0, "spots": 1, "held": [share], "wanted": 1, "hot": 2, "clashes": 1, "clash": ["T24", "T25"], "own": [spot] });
    let collision = json!({ "one": "T22", "other": null, "paths": ["src/limit.rs"], "since_wall": NOW_UNIX_MS });
    let radar = json!({ "collisions": [collision], "warned": 1, "proved": 0, "lapsed": 0 });
    let view = json!({ "project": "shop", "folders": [folder], "text": "1 held · 1 wanted", "radar": radar });
    on_live_message(
        &mut model,
        "",
        &frame(8_841, &[("files", "files/shop", view)]),
    );
    let screen = screen_text(&model, 120, 24);
    let until = format!(
        "T24 claude-2 until {}",
        crate::output::format_time_to_second(NOW_UNIX_MS)
    );
    let expected = [
        "shop  1 held · 1 wanted",
        "✕ T22 and the trunk will collide in src/limit.rs",
        "src/api/ ",
        "T24 and T25 meet",
        "2 today",
        &until,
        "  src/api/login.rs",
        "T24 claude-2 while T24 is worked on, wanted by T25",
    ];
    for text in expected {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    let small = screen_text(&model, 80, 24);
    assert!(
        small
            .lines()
            .all(|line| crate::output::display_width(line) <= 80)
            && small.contains("src/api/login.rs"),
        "{small}"
    );
}

/// Events are shown newest first and are read incrementally. Events and setup are read when their
/// page is opened.
#[test]
fn events_and_setup_are_read_when_their_page_is_opened() {
    let mut model = sample_model();
    assert_eq!(
        press_keys(&mut model, "ge"),
        [ScreenRequest::SubscribeTopics, ScreenRequest::ReadEvents]
    );
    assert_eq!(
        model.events.read_after(model.seq),
        8_440,
        "old events are not read"
    );
    let event = |revision: u64, kind: &str| -> regatta_api::view::EventView {
        let event = json!({ "revision": revision, "time": "2026-11-16T14:02:03Z", "kind": kind, "subject": "T24", "by": "claude-2", "data": { "text": "a\u{1b}[2Jb" } });
        serde_json::from_value(event).unwrap()
    };
    model.events.append(Ok((
        8_839,
        vec![
            event(8_838, "task.started"),
            event(8_839, "request.answered"),
        ],
    )));
    model
        .events
        .append(Ok((8_840, vec![event(8_840, "task.landed")])));
    model
        .events
        .append(Ok((8_839, vec![event(8_838, "task.started")])));
    assert_eq!(model.events.read_after(model.seq), 8_840);
    let screen = screen_text(&model, 80, 24);
    let lines: Vec<&str> = screen
        .lines()
        .filter(|line| line.contains(" T24 "))
        .collect();
    assert!(
        lines.len() == 2 && lines[0].contains("8840") && lines[0].contains("task.landed"),
        "{screen}"
    );
    model.events.append(Err("the daemon is away".into()));
    assert!(screen_text(&model, 80, 24).contains("the daemon is away"));

    assert_eq!(
        press_keys(&mut model, "gs"),
        [ScreenRequest::SubscribeTopics, ScreenRequest::ReadSetup]
    );
    assert!(screen_text(&model, 80, 24).contains("checking the setup"));
    let checks = json!([{ "id": "git", "level": "ok", "text": "git 2.47" }, { "id": "disk", "level": "bad", "text": "full", "fix": "make room" }]);
    let provider = json!({ "preset": "claude", "provider": "anthropic", "program": "/bin/claude", "version": "2.3", "signed_in": "yes", "fix": null });
    let doctor =
        serde_json::from_value(json!({ "checks": checks, "providers": [provider] })).unwrap();
    model.setup.info = Some(crate::watch::list_pages::SetupInfo {
        doctor,
        lists: vec![("Policy", "no rules\n".into())],
    });
    let screen = screen_text(&model, 80, 24);
    let at = |text: &str| {
        screen
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {screen}"))
    };
    assert!(
        at("✕ error  disk  full · make room") < at("✓ ok     git"),
        "worst first: {screen}"
    );
    assert!(
        at("1 of 1 known programs are installed") < at("claude  anthropic  2.3")
            && at("no rules") > 0
    );
}

/// Lanes are sorted by urgency, then by name with numbers in numeric order.
#[test]
fn lanes_sort_by_urgency_and_natural_order() {
    let mut model = ScreenModel::new(true, true);
    let names = [
        ("agent-10", "working"),
        ("agent-9", "working"),
        ("agent-2", "working"),
        ("agent-11", "needs"),
    ];
    for (name, at) in names {
        on_live_message(
            &mut model,
            "",
            &frame(
                1,
                &[("lanes", &format!("lane/{name}"), lane(name, at, "T1", ""))],
            ),
        );
    }
    let shown: Vec<&str> = model
        .visible_lanes()
        .iter()
        .map(|agent_lane| agent_lane.agent.as_str())
        .collect();
    assert_eq!(shown, ["agent-11", "agent-2", "agent-9", "agent-10"]);
}
