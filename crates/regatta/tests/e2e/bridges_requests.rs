//! What people ask in threads, with the whole daemon: long answers, other people's pull requests, attachments, and
//! messages that are for somebody else.

use regatta_testkit::services::github::GitHub;
use serde_json::json;

use crate::bridges::{FASTER, Workspace};
use crate::quay::{By, Quay, Told, gate, github_variables, runtime, slack_variables};
use crate::world::{LONG, until};

/// Everything that an app shows in a thread, in its order.
fn shown(space: &Workspace, root: &str) -> String {
    let all = space.slack.thread("dev", root).into_iter().filter(|it| it.user == space.claude.bot_user);
    let texts = all.flat_map(|it| it.blocks.as_array().cloned().unwrap_or_default());
    texts.filter_map(|it| it["text"].as_str().map(str::to_owned)).collect::<Vec<_>>().join("\n")
}

fn only_claude(space: &Workspace, script: &serde_json::Value) -> Quay {
    let quay = space.quay(slack_variables(&space.claude, "", By::Socket));
    quay.agent("claude", 1, script);
    quay.world.ok(&["bridge", "test", "claude"]);
    quay
}

/// An answer that is said, and not left as a result, is shown from its first word to its last.
#[test]
fn a_long_answer_is_shown_whole_and_in_order() {
    let space = Workspace::new();
    let lines: Vec<String> = (0..300).map(|n| format!("finding {n:03} is here, with some words")).collect();
    let quay = only_claude(&space, &json!([{ "say": lines.join("\n\n") }]));
    let root = space.say("@claude look", None);
    space.hears(&space.claude, &root, "finding 299");
    let text = shown(&space, &root);
    let places: Vec<Option<usize>> = (0..300).map(|n| text.find(&format!("finding {n:03}"))).collect();
    assert!(places.iter().all(Option::is_some), "findings are missing: {places:?}");
    assert!(places.is_sorted(), "findings are out of order");
    drop(quay);
    space.slack.assert_well_behaved();
}

/// A message to a person is not a prompt, and the notice that a message waits goes when the message had its turn.
#[test]
fn a_message_to_a_person_is_left_alone_and_the_notice_goes() {
    let space = Workspace::new();
    let quay = space.quay(slack_variables(&space.claude, "", By::Socket));
    let turns = json!([
        gate(&quay.file("go")), { "say": "first" }, { "end_turn": true }, { "say": "second" }, { "end_turn": true },
        { "say": "third" }
    ]);
    quay.agent("claude", 1, &turns);
    quay.world.ok(&["bridge", "test", "claude"]);
    let root = space.say("@claude begin", None);
    quay.until_at("go");
    space.say("@eve what do you think?", Some(&root));
    space.say("go on", Some(&root));
    assert!(until(LONG, || shown(&space, &root).contains("I will get to this next")), "{}", shown(&space, &root));
    quay.open("go");
    space.hears(&space.claude, &root, "second");
    assert!(until(LONG, || shown(&space, &root).contains("no longer in the queue")), "{}", shown(&space, &root));
    assert!(!shown(&space, &root).contains("I will get to this next"), "{}", shown(&space, &root));
    assert_eq!(quay.show("claude")["turn_count"], 2, "what was for eve is a prompt");
    space.slack.assert_well_behaved();
}

/// A review of a pull request that a person opened has its diff; a number that is nobody's is said to be.
#[test]
fn a_persons_pull_request_is_reviewed_by_its_diff() {
    let runtime = runtime();
    let github = runtime.block_on(GitHub::start());
    let app = github.app("codex-bot");
    github.repo("acme/shop", &["codex-bot"]);
    github.person("ann", "acme/shop", "write");
    let told = Told {
        agents: &["codex"],
        allow: vec!["github:write".into()],
        urls: vec![("github", github.base_url())],
        clock: FASTER,
        more: "",
    };
    let quay = Quay::new(&told, github_variables(&app, ""));
    quay.agent("codex", 1, &json!([{ "append": { "path": "a.txt", "text": "scribble\n" } }, { "say": "Looks fine." }]));
    github.webhook("codex-bot", &quay.url("/webhooks/github"));
    quay.world.ok(&["bridge", "test"]);
    let diff = "diff --git a/login.rs b/login.rs\n+let admin = true;\n";
    let number = github.open_pull("ann", "acme/shop", ("Login", "Makes it quicker."), ("login", "main"), diff);
    github.comment("ann", "acme/shop", number, "@codex-bot review this PR");
    let found = |words: &'static str| {
        let wait = github.find(
            move |view| view.comments("acme/shop", number).iter().find(|it| it.body.contains(words)).cloned(),
            LONG,
        );
        runtime.block_on(wait)
    };
    found("Looks fine.");
    let turn = quay.show("codex")["turns"][0].clone();
    assert_eq!((&turn["reviews"]["number"], turn["work"].is_null()), (&json!(number), true), "{turn}");
    let prompts: Vec<_> = std::fs::read_dir(quay.world.data.join("attempts")).unwrap().collect();
    let read = |entry: &std::fs::DirEntry| std::fs::read_to_string(entry.path().join("prompt.md")).unwrap_or_default();
    let told = prompts.iter().flatten().any(|entry| read(entry).contains("+let admin = true;"));
    assert!(told, "the reviewer has not got the diff");
    github.comment("ann", "acme/shop", number, "@codex-bot review PR #999");
    found("#999");
    assert_eq!(quay.show("codex")["turn_count"], 1, "a review of nothing was begun");
    github.assert_well_behaved();
}
