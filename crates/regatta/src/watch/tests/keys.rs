//! Tests of the keyboard.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use crate::watch::model::{
    Dialog, ListFocus, PAGES, ScreenModel, ScreenPage, ScreenRequest, TaskPane,
};
use crate::watch::tests::{NOW_UNIX_MS, action, frame, item, sample_model, screen_text};
use crate::watch::{keys, on_live_message};

pub(super) fn press_keys(model: &mut ScreenModel, keys: &str) -> Vec<ScreenRequest> {
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

/// Keys of the page for what the terminal does not have: the palette, tabs of a task, neighbours in a
/// list, marks of viewed files, and comments on several lines.
const KEYS_OF_THE_PAGE_ALONE: [&str; 8] = ["Ctrl-K", "1-5", "v", "[", "]", "x", "J", "K"];

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
    let table = |text: &str, name: &str| -> Vec<String> {
        let from = text.find(&format!("const {name}: ")).unwrap();
        text[from..]
            .lines()
            .skip(1)
            .take_while(|text| *text != "];")
            .map(|line| line.trim().to_owned())
            .collect()
    };
    let quoted = |line: &str| -> Vec<String> {
        line.split('\'')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    // The bar of a phone is no page of a terminal.
    let pages = table(&read("navigation.ts"), "PAGES")
        .iter()
        .filter(|line| line.starts_with("{ key:") && !line.contains("level: 'phone'"))
        .map(|line| {
            let page = quoted(line);
            (page[0].chars().next().unwrap(), page[2].clone())
        })
        .collect();
    let keys = table(&read("palette.tsx"), "HELP")
        .iter()
        .filter(|line| line.starts_with("['"))
        .flat_map(|line| {
            let keys = quoted(line)[0].replace(" …", "").replace('–', "-");
            keys.split(' ').map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    (pages, keys)
}

/// The terminal has every key of the web page except the ones for what a terminal does not have.
#[test]
fn the_terminal_has_the_page_s_keys() {
    let (mut pages, wanted) = web_page_keys();
    pages.sort_unstable();
    let mut own_pages = PAGES.map(|(key, _, name)| (key, name.to_owned()));
    own_pages.sort_unstable();
    assert_eq!(own_pages.to_vec(), pages);
    assert!(wanted.len() > 25, "{wanted:?}");
    let known: Vec<&str> = keys::KEY_HELP
        .iter()
        .flat_map(|pair| pair.0.split(' '))
        .collect();
    for key in wanted
        .iter()
        .filter(|key| !KEYS_OF_THE_PAGE_ALONE.contains(&key.as_str()))
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
    model.diff = crate::watch::diff::DiffPane::from_patch(id, patch, model.diff_options);
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
        Some("T22"),
        "most urgent first: T23 needs a person, T22 is landing"
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
    model.diff = crate::watch::diff::DiffPane::from_patch(
        "T24".parse().unwrap(),
        "diff --git a/x b/x\n@@ -1 +1 @@\n+\u{1b}[31mred\n-old\n",
        crate::watch::diff::DiffViewOptions::default(),
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
