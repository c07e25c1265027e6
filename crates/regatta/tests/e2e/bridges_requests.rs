//! Requests in threads, with the whole daemon: long answers, other people's pull requests, and
//! messages to other people.

use regatta_testkit::services::github::GitHub;
use serde_json::json;

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, SlackTransport, gate_step, github_variables, new_runtime,
    slack_variables,
};
use crate::bridges::{CLOCK_SPEED, SlackFixture};
use crate::world::{TEST_TIMEOUT, wait_until};

/// Returns everything that an app shows in a thread, in order.
fn shown_text(space: &SlackFixture, root: &str) -> String {
    let all = space
        .slack
        .thread("dev", root)
        .into_iter()
        .filter(|slack_message| slack_message.user == space.claude.bot_user);
    let texts =
        all.flat_map(|slack_message| slack_message.blocks.as_array().cloned().unwrap_or_default());
    texts
        .filter_map(|text| text["text"].as_str().map(str::to_owned))
        .collect::<Vec<_>>()
        .join("\n")
}

fn world_with_one_agent(space: &SlackFixture, script: &serde_json::Value) -> BridgeWorld {
    let quay = space.start_world(slack_variables(&space.claude, "", SlackTransport::Socket));
    quay.add_agent("claude", 1, script);
    quay.world.run_ok(&["bridge", "test", "claude"]);
    quay
}

/// An answer that the agent sends as messages instead of a result is shown from the first word to
/// the last.
#[test]
fn a_long_answer_is_shown_completely_and_in_order() {
    let space = SlackFixture::new();
    let lines: Vec<String> = (0..300)
        .map(|n| format!("finding {n:03} is here, with some words"))
        .collect();
    let quay = world_with_one_agent(&space, &json!([{ "say": lines.join("\n\n") }]));
    let root = space.post_message("@claude look", None);
    space.wait_for_message(&space.claude, &root, "finding 299");
    let text = shown_text(&space, &root);
    let places: Vec<Option<usize>> = (0..300)
        .map(|n| text.find(&format!("finding {n:03}")))
        .collect();
    assert!(
        places.iter().all(Option::is_some),
        "findings are missing: {places:?}"
    );
    assert!(places.is_sorted(), "findings are out of order");
    drop(quay);
    space.slack.assert_well_behaved();
}

/// A message to a person does not become a prompt. The notice that a message is queued disappears
/// after the message's turn.
#[test]
fn a_message_to_a_person_starts_no_turn_and_a_queue_notice_disappears() {
    let space = SlackFixture::new();
    let quay = space.start_world(slack_variables(&space.claude, "", SlackTransport::Socket));
    let turns = json!([
        gate_step(&quay.file_path("go")), { "say": "first" }, { "end_turn": true }, { "say": "second" }, { "end_turn": true },
        { "say": "third" }
    ]);
    quay.add_agent("claude", 1, &turns);
    quay.world.run_ok(&["bridge", "test", "claude"]);
    let root = space.post_message("@claude begin", None);
    quay.wait_until_at_gate("go");
    space.post_message("@eve what do you think?", Some(&root));
    space.post_message("go on", Some(&root));
    assert!(
        wait_until(TEST_TIMEOUT, || shown_text(&space, &root)
            .contains("I will get to this next")),
        "{}",
        shown_text(&space, &root)
    );
    quay.open_gate("go");
    space.wait_for_message(&space.claude, &root, "second");
    assert!(
        wait_until(TEST_TIMEOUT, || shown_text(&space, &root)
            .contains("no longer in the queue")),
        "{}",
        shown_text(&space, &root)
    );
    assert!(
        !shown_text(&space, &root).contains("I will get to this next"),
        "{}",
        shown_text(&space, &root)
    );
    assert_eq!(
        quay.only_conversation("claude")["turn_count"],
        2,
        "the message to eve became a prompt"
    );
    space.slack.assert_well_behaved();
}

/// An agent that reviews a person's pull request gets its diff. A review of an unknown number is
/// refused with a message.
#[test]
fn a_reviewer_of_a_persons_pull_request_gets_its_diff() {
    let runtime = new_runtime();
    let github = runtime.block_on(GitHub::start());
    let app = github.add_app("codex-bot");
    github.add_repo("acme/shop", &["codex-bot"]);
    github.add_person("ann", "acme/shop", "write");
    let settings = BridgeWorldSettings {
        agents: &["codex"],
        allowed_people: vec!["github:write".into()],
        urls: vec![("github", github.base_url())],
        clock_speed: CLOCK_SPEED,
        extra_lines: "",
    };
    let quay = BridgeWorld::new(&settings, github_variables(&app, ""));
    quay.add_agent(
        "codex",
        1,
        &json!([{ "append": { "path": "a.txt", "text": "scribble\n" } }, { "say": "Looks fine." }]),
    );
    github.set_webhook_url("codex-bot", &quay.url("/webhooks/github"));
    quay.world.run_ok(&["bridge", "test"]);
    let diff = "diff --git a/login.rs b/login.rs\n+let admin = true;\n";
    let number = github.open_pull(
        "ann",
        "acme/shop",
        ("Login", "Makes it quicker."),
        ("login", "main"),
        diff,
    );
    github.comment("ann", "acme/shop", number, "@codex-bot review this PR");
    let found = |words: &'static str| {
        let wait = github.wait_for_some(
            move |view| {
                view.comments("acme/shop", number)
                    .iter()
                    .find(|github_comment| github_comment.body.contains(words))
                    .cloned()
            },
            TEST_TIMEOUT,
        );
        runtime.block_on(wait)
    };
    found("Looks fine.");
    let turn = quay.only_conversation("codex")["turns"][0].clone();
    assert_eq!(
        (&turn["reviews"]["number"], turn["work"].is_null()),
        (&json!(number), true),
        "{turn}"
    );
    let prompts: Vec<_> = std::fs::read_dir(quay.world.data_dir.join("attempts"))
        .unwrap()
        .collect();
    let read = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("prompt.md")).unwrap_or_default()
    };
    let told = prompts
        .iter()
        .flatten()
        .any(|entry| read(entry).contains("+let admin = true;"));
    assert!(told, "the reviewer did not get the diff");
    github.comment("ann", "acme/shop", number, "@codex-bot review PR #999");
    found("#999");
    assert_eq!(
        quay.only_conversation("codex")["turn_count"],
        1,
        "a review of an unknown number was started"
    );
    github.assert_well_behaved();
}
