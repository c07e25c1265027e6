//! Tests of the screen without a terminal: three sizes, the keys, and a lost connection.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use regatta_core::ids::ProjectName;
use serde_json::{Value, json};

use super::model::{
    ConnectionState, Dialog, ListFocus, PAGES, ScreenModel, ScreenPage, ScreenRequest, TaskPane,
};
use super::{draw, keys, on_live_message};

const NOW_UNIX_MS: u64 = 1_760_000_000_000;

/// Returns the content of a screen of the given size.
fn screen_text(model: &ScreenModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw::draw_screen(model, frame))
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y: u16| -> String {
        let (mut text, mut x) = (String::new(), 0);
        while x < width {
            let sign = buffer[(x, y)].symbol();
            text.push_str(sign);
            // A character of two columns also occupies the next cell.
            x += u16::try_from(crate::output::display_width(sign).max(1)).unwrap();
        }
        text.trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn press_keys(model: &mut ScreenModel, keys: &str) -> Vec<ScreenRequest> {
    let code = |c: char| match c {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\u{1b}' => KeyCode::Esc,
        '\u{8}' => KeyCode::Backspace,
        c => KeyCode::Char(c),
    };
    keys.chars()
        .flat_map(|c| keys::on_key(model, KeyEvent::new(code(c), KeyModifiers::NONE)))
        .collect()
}

fn action(label: &str, verb: &str, cli: &str) -> Value {
    json!({ "label": label, "verb": verb, "input": { "id": "Q1" }, "cli": cli })
}

fn item(id: &str, task: &str, subject: &str, group: &str) -> Value {
    let mut deny = action("Deny", "inbox.answer", &format!("regatta deny {id}"));
    deny["input"] =
        json!({ "id": id, "answer": { "say": "deny", "words": null }, "reach": "once" });
    let mut allow = action("Allow once", "inbox.answer", &format!("regatta allow {id}"));
    allow["input"] = json!({ "id": id, "answer": { "say": "allow" }, "reach": "once" });
    let mut always = allow.clone();
    (always["label"], always["grave"]) = (json!("Always allow"), json!(true));
    let mut reply = action("Reply…", "inbox.answer", &format!("regatta answer {id} …"));
    reply["input"] = json!({ "id": id, "answer": { "say": "text", "text": "" }, "reach": "once" });
    reply["words"] = json!("/answer/text");
    json!({
        "id": id, "kind": "permission", "task": task, "project": "shop", "agent": "gemini-1", "subject": subject,
        "why": "network, not in the allow list", "choices": ["allow", "deny"], "since_wall": NOW_UNIX_MS - 120_000,
        "escalated": false, "group": group, "actions": [allow, deny, always, reply],
    })
}

fn row(id: u64, subject: &str, word: &str, at: &str, text: &str) -> Value {
    json!({
        "id": format!("T{id}"), "project": "shop", "mission": "M3", "subject": subject, "word": word, "at": at,
        "agent": "claude-1", "text": text, "since_wall": NOW_UNIX_MS - 60_000 * id, "blocked_by": [], "wave": 1, "priority": 2,
        "micro_usd": 310_000,
    })
}

fn lane(name: &str, at: &str, task: &str, text: &str) -> Value {
    json!({
        "agent": name, "provider": "anthropic", "at": at, "text": text, "task": task, "subject": "login form",
        "since_wall": NOW_UNIX_MS - 30_000, "capacity": { "current": 1, "max": 1, "available": 0 }, "wanted": "", "running": "",
        "actions": [],
    })
}

fn frame(seq: u64, parts: &[(&str, &str, Value)]) -> String {
    let parts: Vec<Value> = parts
        .iter()
        .map(|(t, k, v)| json!({ "t": t, "k": k, "v": v }))
        .collect();
    json!({ "seq": seq, "at": NOW_UNIX_MS, "p": parts }).to_string()
}

fn head() -> Value {
    json!({
        "sentence": [{ "text": "4 working", "strong": true }, { "text": "1 waiting" }, { "text": "2 need you", "strong": true }],
        "needs_you": 2, "running": 3, "slots": 8, "agents": 4, "size": "few",
        "projects": [{ "name": "shop", "trunk": "main", "path": "/srv/shop" }],
        "missions": [{ "id": "M3", "title": "Add login", "landed": 3, "tasks": 7 }],
        "version": "0.1.0", "composers": [action("Plan", "plan.ask", "regatta run …")],
    })
}

fn queue_value() -> Value {
    let car = json!({
        "landing": "L4", "task": "T22", "subject": "rate limiter", "position": 1, "state": "testing", "detail": "",
        "agent": "codex-1", "commit": null, "branch": "regatta/T22-rate-limiter", "files": [], "conflicts": 0, "fixups": 0,
        "queued_wall": NOW_UNIX_MS,
    });
    json!({
        "project": "shop", "trunk": "main", "held": null, "slots": 2, "queue": [car], "recent": [],
        "tip": null, "text": "1 in line", "actions": [], "each": [],
    })
}

/// A small fleet: two requests, three agents, four tasks, one landing.
fn sample_model() -> ScreenModel {
    let mut model = ScreenModel::new(true, true);
    model.now_unix_ms = NOW_UNIX_MS;
    let bars = json!({ "agent": "claude-2", "bars": [
        { "from": NOW_UNIX_MS - 600_000, "to": NOW_UNIX_MS - 300_000, "at": "waiting" }, { "from": NOW_UNIX_MS - 300_000, "at": "working" },
    ] });
    let text = frame(
        8_840,
        &[
            ("head", "head", head()),
            (
                "inbox",
                "item/Q7",
                item(
                    "Q7",
                    "T23",
                    "npm install zod@4",
                    "permission npm install zod@4",
                ),
            ),
            (
                "inbox",
                "item/Q8",
                item("Q8", "T24", "cargo publish", "permission cargo publish"),
            ),
            (
                "lanes",
                "lane/gemini-1",
                lane("gemini-1", "needs", "T23", "Q7 npm install zod@4"),
            ),
            (
                "lanes",
                "lane/claude-2",
                lane("claude-2", "working", "T24", "running cargo test"),
            ),
            (
                "lanes",
                "lane/codex-1",
                lane("codex-1", "landing", "T22", "testing"),
            ),
            ("bars", "bars/claude-2", bars),
            (
                "tasks",
                "task/T22",
                row(22, "rate limiter", "landing", "landing", "queue 1 of 2"),
            ),
            (
                "tasks",
                "task/T23",
                row(23, "login form", "working", "needs", "npm install zod@4"),
            ),
            (
                "tasks",
                "task/T24",
                row(
                    24,
                    "login endpoint",
                    "working",
                    "working",
                    "running cargo test",
                ),
            ),
            (
                "tasks",
                "task/T25",
                row(25, "tests", "waiting", "waiting", "needs T23 and T24"),
            ),
            ("queue", "train/shop", queue_value()),
        ],
    );
    on_live_message(
        &mut model,
        "reset",
        r#"{"topics":["head","inbox","lanes","bars","tasks","queue"]}"#,
    );
    on_live_message(&mut model, "", &text);
    assert_eq!(model.queues.len(), 1, "the sample has the daemon's format");
    assert_eq!(
        (
            model.items.len(),
            model.lanes.len(),
            model.task_rows.len(),
            model.lane_bars.len()
        ),
        (2, 3, 4, 1)
    );
    model
}

/// At 80×24, 120×40 and 200×60 everything is visible: summary, inbox, lanes, tasks, queue and keys.
/// The screen of 120×40 is part of the documentation; `UPDATE_GOLDEN=1` writes it again.
#[test]
fn everything_is_visible_at_three_sizes() {
    let mut model = sample_model();
    press_keys(&mut model, "j");
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let screen = screen_text(&model, width, height);
        let wanted = [
            "shop·main",
            "● live",
            "4 working · 1 waiting · 2 need you",
            "Needs you (2)",
            ">Q7 permission T23 gemini-1",
            "npm install zod@4",
            "1 Allow once  2 Deny",
            "3 agents",
            "▶ claude-2",
            "! gemini-1",
            "4 tasks",
            "T24",
            "login endpoint",
            "needs T23 and T24",
            "Landing queue · 1 queued",
            " 1 T22  testing",
            "? help",
        ];
        for text in wanted {
            assert!(
                screen.contains(text),
                "{width}x{height} lacks {text:?}:\n{screen}"
            );
        }
        assert_eq!(screen.lines().count(), usize::from(height));
    }
    let picture = screen_text(&model, 120, 40);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/screens/watch.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &picture).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        known == picture,
        "the picture changed: UPDATE_GOLDEN=1 cargo test -p regatta watch\n{picture}"
    );
}

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
}

/// A failure that a person has handled is not urgent, and the title also counts tasks that are not
/// listed.
#[test]
fn a_dropped_failure_is_last_and_the_title_counts_all_tasks() {
    let mut model = sample_model();
    let failed = |id: u64| row(id, "broken", "failed", "failed", "no");
    let asks = json!({
        "id": "T30", "kind": "failed", "task": "T30", "project": "shop", "agent": null, "subject": "broken", "why": "no",
        "choices": [], "since_wall": NOW_UNIX_MS, "escalated": false, "group": "T30", "actions": [],
    });
    let parts = [
        ("tasks", "task/T5", failed(5)),
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
    let batch = |ride: &str, cars: Value| json!({ "ride": ride, "state": ride, "cars": cars });
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

/// Returns the keys of the web page from its sources: the pages after `g`, and all keys of its
/// help.
fn web_page_keys() -> (Vec<(char, String)>, Vec<String>) {
    let read = |file: &str| {
        std::fs::read_to_string(format!(
            "{}/../../web/src/{file}",
            env!("CARGO_MANIFEST_DIR")
        ))
        .unwrap()
    };
    let quoted = |line: &str| -> Vec<String> {
        line.split('\'')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let table = |text: &str, name: &str| -> Vec<Vec<String>> {
        let from = text.find(&format!("const {name}: [")).unwrap();
        text[from..]
            .lines()
            .skip(1)
            .take_while(|text| *text != "];")
            .map(quoted)
            .collect()
    };
    let pages = table(&read("keys.ts"), "PAGES");
    let pages = pages
        .into_iter()
        .map(|pages| (pages[0].chars().next().unwrap(), pages[2].clone()))
        .collect();
    let help = table(&read("palette.tsx"), "HELP");
    let keys = help.iter().flat_map(|help| {
        help[0]
            .replace("g, then", "g")
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    (pages, keys.collect())
}

/// The terminal has every key of the web page except its command palette, because a terminal has a
/// shell for that.
#[test]
fn the_terminal_has_the_page_s_keys() {
    let (pages, wanted) = web_page_keys();
    assert_eq!(
        PAGES.map(|(key, _, name)| (key, name.to_owned())).to_vec(),
        pages
    );
    assert!(wanted.len() > 25, "{wanted:?}");
    let known: Vec<&str> = keys::KEY_HELP
        .iter()
        .flat_map(|pair| pair.0.split(' '))
        .collect();
    for key in wanted
        .iter()
        .map(|wanted| wanted.replace('–', "-"))
        .filter(|wanted| wanted != "Ctrl-K")
    {
        assert!(
            known.contains(&key.as_str()),
            "the key {key} of the web page is missing: {known:?}"
        );
    }
    let mut model = sample_model();
    press_keys(&mut model, "?");
    let screen = screen_text(&model, 80, 24);
    for (keys, words) in keys::KEY_HELP {
        assert!(
            screen.contains(&format!("{keys:<12} {words}")),
            "the help must fit at 80x24: {words}: {screen}"
        );
    }
    for (key, page, name) in PAGES {
        let mut model = sample_model();
        model.page = page;
        let bar = screen_text(&model, 80, 24)
            .lines()
            .last()
            .unwrap()
            .to_owned();
        assert!(bar.contains("? help") && !bar.contains('…'), "{bar}");
        model.page = ScreenPage::Now;
        press_keys(&mut model, "g");
        let bar = screen_text(&model, 80, 24)
            .lines()
            .last()
            .unwrap()
            .to_owned();
        let short = name.to_lowercase().replace("conversations", "talks");
        assert!(
            bar.contains(&format!("{key} {short}")) && !bar.contains('…'),
            "{bar}"
        );
        press_keys(&mut model, &key.to_string());
        assert_eq!(model.page, page);
        assert!(
            screen_text(&model, 80, 24)
                .lines()
                .next()
                .unwrap()
                .contains(name),
            "{}",
            screen_text(&model, 80, 24)
        );
    }
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
    let wanted = [
        "shop  1 held · 1 wanted",
        "✕ T22 and the trunk will collide in src/limit.rs",
        "src/api/ ",
        "T24 and T25 meet",
        "2 today",
        &until,
        "  src/api/login.rs",
        "T24 claude-2 while T24 is worked on, wanted by T25",
    ];
    for text in wanted {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    let small = screen_text(&model, 80, 24);
    assert!(
        small
            .lines()
            .all(|small| crate::output::display_width(small) <= 80)
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
        .filter(|screen| screen.contains(" T24 "))
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
    model.setup.info = Some(super::list_pages::SetupInfo {
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

/// Comments are drafts below their lines until Revise sends them, as on the web page.
#[test]
fn comments_are_drafts_until_revise_sends_them() {
    let mut model = sample_model();
    let id = "T24".parse().unwrap();
    model.page = ScreenPage::Task(id);
    assert_eq!(
        press_keys(&mut model, "c"),
        [ScreenRequest::ReadDiff],
        "the diff is loaded first"
    );
    let patch =
        "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -41,2 +41,2 @@\n same\n-old\n+new\n";
    model.diff = super::DiffPane::from_patch(id, patch, model.diff_options);
    press_keys(&mut model, "jjjjjj");
    assert!(
        screen_text(&model, 80, 24).contains(">+new"),
        "the line is marked: {}",
        screen_text(&model, 80, 24)
    );
    press_keys(&mut model, "c");
    assert!(
        screen_text(&model, 80, 24).contains("x.rs line 42"),
        "{}",
        screen_text(&model, 80, 24)
    );
    assert_eq!(
        press_keys(&mut model, "q?\u{8}, why\n"),
        [],
        "letters are text here, and nothing is sent"
    );
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("You: q, why (draft, goes with Revise)") && screen.contains("1 draft"),
        "{screen}"
    );
    assert!(
        screen.lines().last().unwrap().ends_with("? help"),
        "{screen}"
    );
    press_keys(&mut model, "u");
    assert!(
        screen_text(&model, 80, 24).contains("-old")
            && screen_text(&model, 80, 24).contains("│+new"),
        "side by side"
    );
    press_keys(&mut model, "u");
    // Without a draft Revise asks for a text; with a draft it is sent at once.
    let mut revise: regatta_api::live_view::PageAction =
        serde_json::from_value(action("Revise…", "revise", "regatta revise T24 …")).unwrap();
    (revise.input, revise.words, revise.key) = (
        json!({ "id": "T24", "text": "" }),
        Some("/text".into()),
        Some('R'),
    );
    let sent = keys::with_drafts(&model, id, revise.clone());
    assert_eq!(
        (sent.input["text"].as_str(), &sent.words),
        (Some("x.rs:42: q, why"), &None)
    );
    assert_eq!(sent.cli, "regatta revise T24 --comment 'x.rs:42:q, why'");
    assert_eq!(
        keys::with_drafts(&model, "T22".parse().unwrap(), revise.clone()),
        revise
    );
    model.remove_sent_drafts(std::slice::from_ref(&revise));
    assert_eq!(model.drafts.len(), 1, "the other action had no draft");
    model.remove_sent_drafts(&[sent]);
    assert!(model.drafts.is_empty());
    // Escape discards the comment that is being typed.
    press_keys(&mut model, "cabc\u{1b}");
    assert!(model.drafts.is_empty());
    assert_eq!(press_keys(&mut model, "i"), []);
    assert!(screen_text(&model, 80, 24).contains("never sent back"));
    assert_eq!(press_keys(&mut model, "s"), [ScreenRequest::ReadDiff]);
    assert_eq!(
        (press_keys(&mut model, "w"), model.pane),
        (vec![ScreenRequest::ReadLog], TaskPane::Log)
    );
}

/// Every window size can be drawn, and an empty fleet shows what to do.
#[test]
fn every_window_size_and_an_empty_fleet_can_be_drawn() {
    let mut model = sample_model();
    let task = ScreenPage::Task("T24".parse().unwrap());
    for page in PAGES.into_iter().map(|row| row.1).chain([task]) {
        model.page = page;
        for (width, height) in [
            (1, 1),
            (2, 3),
            (10, 4),
            (40, 12),
            (80, 24),
            (300, 3),
            (3, 100),
        ] {
            let _drawn = screen_text(&model, width, height);
        }
    }
    let mut empty = ScreenModel::new(false, false);
    on_live_message(&mut empty, "", &frame(1, &[("head", "head", head())]));
    let screen = screen_text(&empty, 80, 24);
    for text in [
        "nothing needs you",
        "no agent yet",
        "no task yet: regatta run",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    assert!(screen.is_ascii(), "an ASCII terminal gets ASCII: {screen}");
}

/// Old data is never shown as current: without a connection the screen shows that, and the time of
/// the data.
#[test]
fn a_lost_connection_is_shown_with_the_time_of_the_data() {
    let mut model = ScreenModel::new(true, true);
    assert!(screen_text(&model, 80, 24).contains("connecting"));
    model.on_disconnected("the daemon cannot be reached".into());
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("reconnecting, data none yet") && screen.contains("regatta up"),
        "{screen}"
    );
    let mut model = sample_model();
    model.on_disconnected("the daemon closed the connection".into());
    let screen = screen_text(&model, 80, 24);
    let from = format!(
        "reconnecting, data from {}",
        crate::output::format_time_to_second(NOW_UNIX_MS)
    );
    assert!(screen.contains(&from), "{screen}");
    assert!(!screen.contains("live"), "{screen}");
    assert!(screen.contains("T24"), "the known data stays: {screen}");
    on_live_message(&mut model, "", &frame(8_841, &[]));
    assert!(screen_text(&model, 80, 24).contains("● live"));
    // During a pause the data is not current either.
    press_keys(&mut model, ".");
    on_live_message(
        &mut model,
        "",
        &frame(8_842, &[("tasks", "task/T24", Value::Null)]),
    );
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("updates paused, data from") && screen.contains("login endpoint"),
        "{screen}"
    );
    press_keys(&mut model, ".");
    assert!(
        !screen_text(&model, 80, 24).contains("login endpoint"),
        "updates of the pause are applied"
    );
}

/// Digits answer the selected request. If there are several and none is selected, digits do
/// nothing.
#[test]
fn digits_answer_the_selected_request_and_no_other_key_decides() {
    let mut model = sample_model();
    assert_eq!(press_keys(&mut model, "1"), [], "nothing is selected");
    assert!(screen_text(&model, 80, 24).contains("select a request first"));
    assert_eq!(
        press_keys(&mut model, "\n\u{1b} yYxX"),
        [],
        "no other key decides"
    );
    press_keys(&mut model, "jj");
    let wishes = press_keys(&mut model, "2");
    let [ScreenRequest::Perform(actions)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!(actions.len(), 1);
    assert_eq!(
        (actions[0].verb.as_str(), &actions[0].input["id"]),
        ("inbox.answer", &json!("Q8"))
    );
    assert_eq!(actions[0].input["answer"]["say"], "deny");
    assert_eq!(press_keys(&mut model, "9"), [], "there is no ninth answer");
    // An action that cannot be undone asks for confirmation.
    assert_eq!(press_keys(&mut model, "3"), []);
    assert!(screen_text(&model, 80, 24).contains("Always allow? This cannot be undone"));
    assert_eq!(press_keys(&mut model, "\u{1b}"), [], "Escape never decides");
    press_keys(&mut model, "3");
    assert!(
        matches!(&press_keys(&mut model, "y")[..], [ScreenRequest::Perform(page_actions)] if page_actions[0].label == "Always allow")
    );
    // A reply in one's own words.
    press_keys(&mut model, "r");
    assert!(screen_text(&model, 80, 24).contains("In your own words"));
    assert_eq!(
        press_keys(&mut model, "\n"),
        [],
        "an empty text is not sent"
    );
    let wishes = press_keys(&mut model, "no!\u{8}, use q\n");
    let [ScreenRequest::Perform(actions)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!(
        actions[0].input["answer"]["text"], "no, use q",
        "letters are text here, not keys"
    );
}

/// Equal requests share one card and are answered together.
#[test]
fn equal_requests_are_answered_together() {
    let mut model = ScreenModel::new(true, true);
    model.now_unix_ms = NOW_UNIX_MS;
    let many: Vec<(String, Value)> = (1..=26)
        .map(|n| {
            (
                format!("item/Q{n}"),
                item(
                    &format!("Q{n}"),
                    "T1",
                    "cargo test",
                    "permission cargo test",
                ),
            )
        })
        .collect();
    let parts: Vec<(&str, &str, Value)> = many
        .iter()
        .map(|(k, v)| ("inbox", k.as_str(), v.clone()))
        .collect();
    on_live_message(&mut model, "", &frame(1, &parts));
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("× 26") && screen.matches("cargo test").count() == 1,
        "{screen}"
    );
    let wishes = press_keys(&mut model, "1");
    assert!(
        matches!(&wishes[..], [ScreenRequest::Perform(page_actions)] if page_actions.len() == 26),
        "the only card is selected"
    );
}

#[test]
fn pages_lists_and_panes_are_navigated_by_key() {
    let mut model = sample_model();
    assert_eq!(
        press_keys(&mut model, "gt"),
        [ScreenRequest::SubscribeTopics]
    );
    assert_eq!(
        (model.page, model.focus),
        (ScreenPage::Tasks, ListFocus::Tasks)
    );
    press_keys(&mut model, "jj");
    assert_eq!(
        model.selected_task.map(|id| id.to_string()).as_deref(),
        Some("T25"),
        "most urgent first: T23 needs a person, T25 waits"
    );
    press_keys(&mut model, "/endpoint\n");
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("1 of 4 tasks") && screen.contains("T24") && !screen.contains("T25"),
        "{screen}"
    );
    press_keys(&mut model, "j");
    assert_eq!(
        press_keys(&mut model, "\n"),
        [ScreenRequest::SubscribeTopics, ScreenRequest::ReadLog]
    );
    assert_eq!(model.page, ScreenPage::Task("T24".parse().unwrap()));
    assert!(model.topics().ends_with(",T24"), "{}", model.topics());
    assert_eq!(press_keys(&mut model, "d"), [ScreenRequest::ReadDiff]);
    assert_eq!(model.pane, TaskPane::Diff);
    model.diff = super::DiffPane::from_patch(
        "T24".parse().unwrap(),
        "diff --git a/x b/x\n@@ -1 +1 @@\n+\u{1b}[31mred\n-old\n",
        super::DiffViewOptions::default(),
    );
    let screen = screen_text(&model, 80, 24);
    assert!(
        screen.contains("+ [31mred") && screen.contains("-old"),
        "{screen}"
    );
    let wide = screen_text(&model, 120, 40);
    assert!(
        wide.contains(" Log ") && wide.contains(" Diff "),
        "side by side where there is room: {wide}"
    );
    assert_eq!(press_keys(&mut model, "L"), [], "it cannot land yet");
    assert!(model.toast.as_ref().is_some_and(|toast| !toast.0));
    press_keys(&mut model, "?");
    assert!(screen_text(&model, 80, 24).contains("never answers anything"));
    press_keys(&mut model, "\u{1b}");
    assert_eq!(
        (press_keys(&mut model, "\u{1b}"), model.page),
        (vec![ScreenRequest::SubscribeTopics], ScreenPage::Now)
    );
    assert_eq!(press_keys(&mut model, "q"), [ScreenRequest::Quit]);
    let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    model.dialog = Some(Dialog::Help);
    assert_eq!(
        keys::on_key(&mut model, stop),
        [ScreenRequest::Quit],
        "Ctrl-C quits everywhere"
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

/// Cut text has an ellipsis, numbers are complete or left out, and wide characters do not shift
/// frames.
#[test]
fn cut_text_always_has_an_ellipsis() {
    let mut model = ScreenModel::new(true, true);
    model.now_unix_ms = NOW_UNIX_MS;
    let long = "Say the usage in one line, or with an example that shows what it prints in each \
        of the languages?";
    let wide =
        "日本語の題名です、とても長い題名ですから切られます、そして続きます、まだ続きます、終わり";
    let lanes: Vec<(String, Value)> = (10..40)
        .map(|n| {
            (
                format!("lane/a{n}"),
                lane(&format!("a{n}"), "working", "T1", long),
            )
        })
        .collect();
    let rows: Vec<(String, Value)> = (1..60)
        .map(|n| {
            (
                format!("task/T{n}"),
                row(
                    n,
                    if n % 2 == 0 { wide } else { long },
                    "waiting",
                    "waiting",
                    wide,
                ),
            )
        })
        .collect();
    let mut parts: Vec<(&str, &str, Value)> = vec![("head", "head", head())];
    parts.extend(lanes.iter().map(|(k, v)| ("lanes", k.as_str(), v.clone())));
    parts.extend(rows.iter().map(|(k, v)| ("tasks", k.as_str(), v.clone())));
    parts.push(("inbox", "item/Q7", item("Q7", "T23", long, "one")));
    parts.push(("inbox", "item/Q8", item("Q8", "T24", long, "two")));
    on_live_message(&mut model, "", &frame(1, &parts));
    press_keys(&mut model, "j");
    for (width, height) in [(80, 24), (200, 50)] {
        let screen = screen_text(&model, width, height);
        for (nth, line) in screen
            .lines()
            .enumerate()
            .skip(2)
            .take(usize::from(height) - 3)
        {
            assert_eq!(
                crate::output::display_width(line),
                usize::from(width),
                "line {nth} of {width}x{height}:\n{screen}"
            );
            assert!(
                line.ends_with(['│', '┐', '┘']),
                "a frame is shifted in line {nth}:\n{screen}"
            );
        }
        let whole: String = screen
            .lines()
            .filter_map(|screen| screen.strip_prefix('│')?.split('│').next())
            .map(|screen| screen.trim().to_owned() + " ")
            .collect();
        assert!(
            whole.contains(long),
            "the selected question is complete:\n{screen}"
        );
        let lane = screen
            .lines()
            .find(|screen| screen.contains("▶ a10"))
            .unwrap();
        assert!(
            lane.ends_with(" 30s│") || lane.contains("languages? 30s"),
            "its age is complete: {lane}"
        );
        assert!(width > 80 || lane.contains('…'), "{lane}");
        let task = screen
            .lines()
            .find(|screen| screen.contains(" T2 "))
            .unwrap();
        assert!(
            task.contains('…') && task.contains(" 2m $0.31"),
            "age and cost are complete: {task}"
        );
        assert!(
            screen.contains("30 agents · ") && screen.contains(" more: j k"),
            "hidden rows are counted:\n{screen}"
        );
    }
    assert!(
        !screen_text(&model, 44, 24).contains("slots"),
        "a number that does not fit is left out"
    );
    assert!(screen_text(&model, 80, 24).contains("slots 3/8"));
}

/// The request of a task's agent is also shown and answered on the task's page.
#[test]
fn a_question_is_answered_on_its_task_s_page() {
    let mut model = sample_model();
    let mut asked = item("Q9", "T24", "Keep v1?", "question Keep v1?");
    asked["ask"] = json!({ "id": "0", "want": "question", "text": "Keep v1?", "choices": ["yes"], "schema": null });
    on_live_message(
        &mut model,
        "",
        &frame(8_841, &[("inbox", "item/Q9", asked)]),
    );
    assert!(
        model.request_of_task("T24".parse().unwrap()).is_some(),
        "{:?}",
        model.items.keys()
    );
    model.page = ScreenPage::Task("T22".parse().unwrap());
    assert_eq!(press_keys(&mut model, "1"), [], "T22 has no request");
    model.page = ScreenPage::Task("T24".parse().unwrap());
    let wishes = press_keys(&mut model, "2");
    let [ScreenRequest::Perform(actions)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!((actions.len(), &actions[0].input["id"]), (1, &json!("Q9")));
    press_keys(&mut model, "r");
    assert!(matches!(model.dialog, Some(Dialog::ActionText { .. })));
}

/// S12: text from agents is shown as characters and never controls the terminal.
#[test]
fn hostile_text_is_shown_inert_s12() {
    let bad = format!(
        "\u{1b}[2J\u{1b}]52;c;AAAA\u{7}\u{202e}evil\u{9b}H{}",
        "x".repeat(1_000_000)
    );
    let mut model = ScreenModel::new(true, true);
    model.now_unix_ms = NOW_UNIX_MS;
    let text = frame(
        1,
        &[
            ("inbox", "item/Q1", item("Q1", "T1", &bad, &bad)),
            ("lanes", "lane/a", lane("a", "working", "T1", &bad)),
            ("tasks", "task/T1", row(1, &bad, &bad, "working", &bad)),
        ],
    );
    on_live_message(&mut model, "", &text);
    for page in [ScreenPage::Now, ScreenPage::Tasks, ScreenPage::Agents] {
        model.page = page;
        let screen = screen_text(&model, 120, 40);
        // Control characters become spaces, so that words are not joined.
        assert!(screen.contains("[2J ]52;c;AAAA  evil H"), "{screen}");
        let odd = |c: char| {
            (c.is_control() && c != '\n')
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        };
        assert!(!screen.chars().any(odd), "{screen:?}");
        assert_eq!(screen.lines().count(), 40);
    }
    // An invalid message is reported.
    on_live_message(&mut model, "", "{\"seq\":");
    assert!(
        model
            .toast
            .as_ref()
            .is_some_and(|toast| toast.1.contains("another version"))
    );
    assert_eq!(model.connection, ConnectionState::Live);
}
