//! Tests of the screen without a terminal: three sizes, the keys, and a lost connection.

mod keys;
mod pages;

use regatta_core::display::DisplayState;
use serde_json::{Value, json};

use crate::watch::model::{ConnectionState, PAGES, ScreenModel, ScreenPage};
use crate::watch::tests::keys::press_keys;
use crate::watch::{on_live_message, screen_lines};

const NOW_UNIX_MS: u64 = 1_760_000_000_000;

/// Returns the content of a screen of the given size.
fn screen_text(model: &ScreenModel, width: u16, height: u16) -> String {
    screen_lines(model, width, height)
        .into_iter()
        .map(|line| line + "\n")
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
    let state: DisplayState = serde_json::from_value(json!(at)).expect("a state");
    json!({
        "rank": state.rank(),
        "id": format!("T{id}"), "project": "shop", "mission": "M3", "subject": subject, "word": word, "at": at,
        "agent": "claude-1", "text": text, "since_wall": NOW_UNIX_MS - 60_000 * id, "blocked_by": [], "wave": 1, "priority": 2,
        "micro_usd": 310_000,
    })
}

fn lane(name: &str, at: &str, task: &str, text: &str) -> Value {
    let state: DisplayState = serde_json::from_value(json!(at)).expect("a state");
    json!({
        "word": state.label(),
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
        "summary": {
            "revision": 9, "working": 4, "waiting": 1, "backlog": 0, "blocked_on_person": 1, "review": 0, "landing": 1,
            "needs_you": 2, "running": 3, "slots": 8, "agents": 4, "missions": [{ "id": "M3", "title": "Add login", "open": 4 }],
        },
        "needs_you": 2, "running": 3, "slots": 8, "agents": 4, "size": "few",
        "projects": [{ "name": "shop", "trunk": "main", "path": "/srv/shop" }],
        "missions": [{ "id": "M3", "title": "Add login", "landed": 3, "tasks": 7 }],
        "version": "0.1.0", "composers": [action("Plan", "plan.ask", "regatta run …")],
    })
}

fn queue_value() -> Value {
    let car = json!({
        "landing": "L4", "task": "T22", "subject": "rate limiter", "position": 1, "state": "testing", "at": "working", "detail": "",
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
        let expected = [
            "shop·main",
            "● live",
            "4 working · 1 waiting · 2 need you",
            "Needs you (2)",
            ">Q7 gemini-1 permission T23",
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
        for text in expected {
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
            .filter_map(|line| line.strip_prefix('│')?.split('│').next())
            .map(|line| line.trim().to_owned() + " ")
            .collect();
        assert!(
            whole.contains(long),
            "the selected question is complete:\n{screen}"
        );
        let lane = screen.lines().find(|line| line.contains("▶ a10")).unwrap();
        assert!(
            lane.ends_with(" 30s│") || lane.contains("languages? 30s"),
            "its age is complete: {lane}"
        );
        assert!(width > 80 || lane.contains('…'), "{lane}");
        let task = screen.lines().find(|line| line.contains(" T2 ")).unwrap();
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
