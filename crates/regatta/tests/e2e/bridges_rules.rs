//! What an older bridge got wrong, each as a test of the real daemon: secrets, tokens, sessions, complaints.

use std::os::unix::fs::PermissionsExt;

use regatta_testkit::services::github::GitHub;
use serde_json::{Value, json};

use crate::bridges::{FASTER, Workspace};
use crate::quay::{By, Letter, Quay, Told, runtime, slack_variables};
use crate::world::{LONG, until};

/// What a mention of an agent is told to its app as.
fn mention(space: &Workspace, agent: &str) -> String {
    space.say(&format!("@{agent} look"), None);
    let told = space.slack.envelopes(agent);
    told.iter().rev().find(|it| it.payload["event"]["type"] == "app_mention").unwrap().payload.to_string()
}

fn listed(quay: &Quay, name: &str) -> Value {
    let all = quay.world.json(&["bridge", "list"]);
    let found = all.as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("{name} is not listed: {all}"))
}

/// A route without a secret takes nothing, and everybody who could mend it is told. The older bridge took everything.
#[test]
fn an_absent_secret_is_503_and_the_list_and_doctor_say_so() {
    let runtime = runtime();
    let github = runtime.block_on(GitHub::start());
    let app = github.app("claude-bot");
    github.repo("acme/shop", &["claude-bot"]);
    let told =
        Told { agents: &["claude"], allow: vec![], urls: vec![("github", github.base_url())], clock: FASTER, more: "" };
    let one_line = app.private_key.replace('\n', "\\n");
    let quay = Quay::new(
        &told,
        vec![("GITHUB_APP_ID".to_owned(), app.id.to_string()), ("GITHUB_PRIVATE_KEY".to_owned(), one_line)],
    );
    let body = json!({ "zen": "Anything added dilutes everything else." }).to_string();
    for secret in [&*app.webhook_secret, "", "undefined"] {
        assert_eq!(quay.send(&Letter::github("/webhooks/github", secret, "ping", &body)), Some(503), "{secret:?}");
    }
    assert_eq!(quay.send(&Letter::new("/webhooks/github", vec![], body)), Some(503));
    let said = listed(&quay, "github:claude")["warning"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("GITHUB_WEBHOOK_SECRET") && said.contains("503"), "{said}");
    let doctor = quay.world.run(&["doctor"]).out;
    assert!(doctor.contains("GITHUB_WEBHOOK_SECRET is not set"), "{doctor}");
}

/// Each route knows its own agent's secret and no other.
#[test]
fn another_agents_secret_opens_no_route() {
    let space = Workspace::new();
    let quay = space.quay(space.both(By::Requests));
    for name in ["claude", "codex"] {
        quay.agent(name, 1, &json!([{ "say": "hm" }]));
    }
    let (for_claude, for_codex) = (mention(&space, "claude"), mention(&space, "codex"));
    let (first, second) = (&space.claude.signing_secret, &space.codex.signing_secret);
    assert_eq!(quay.send(&Letter::slack("/webhooks/slack", second, &for_claude, 0)), Some(401));
    assert_eq!(quay.send(&Letter::slack("/webhooks/slack/codex", first, &for_codex, 0)), Some(401));
    // The default agent has no second route, and nobody is at a third.
    assert_eq!(quay.send(&Letter::slack("/webhooks/slack/claude", first, &for_claude, 0)), Some(404));
    assert!(quay.conversations().is_empty());
    assert_eq!(quay.events("delivery.taken"), 0);
    assert_eq!(quay.send(&Letter::slack("/webhooks/slack/codex", second, &for_codex, 0)), Some(200));
    let all = quay.conversations();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["agent"], "codex");
}

/// An agent that lacks a token is off, says which, and is never somebody else there.
#[test]
fn a_missing_token_for_the_second_agent_never_borrows_the_firsts() {
    let space = Workspace::new();
    let mut variables = space.both(By::Socket);
    variables.retain(|it| it.0 != "SLACK_BOT_TOKEN__CODEX");
    let quay = space.quay(variables);
    for name in ["claude", "codex"] {
        quay.agent(name, 1, &json!([{ "say": format!("{name} is here") }]));
    }
    let why = listed(&quay, "slack:codex")["off"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("SLACK_BOT_TOKEN__CODEX is not set"), "{why}");
    let doctor = quay.world.run(&["doctor"]).out;
    assert!(doctor.contains("SLACK_BOT_TOKEN__CODEX is not set"), "{doctor}");
    let ran = quay.world.run(&["bridge", "test"]);
    assert!(ran.code != 0 && ran.err.contains("slack:codex"), "{ran:?}");

    let asked = space.slack.say("ann", "dev", "@codex look", None);
    let root = space.slack.say("ann", "dev", "@claude look", None);
    space.hears(&space.claude, &root, "claude is here");
    assert!(space.slack.thread("dev", &asked).is_empty() && space.slack.reactions("dev", &asked).is_empty());
    assert!(quay.conversations().iter().all(|it| it["agent"] == "claude"));
    let by: Vec<String> = space.slack.calls().into_iter().map(|it| it.by).collect();
    assert!(by.iter().all(|it| it == "claude"), "{by:?}");
}

/// A conversation whose bridge is not there now is kept whole while others work, and goes on when it is back: same
/// task, same branch, same session. The older bridge wrote down only what it had loaded.
#[test]
fn conversations_of_a_bridge_that_is_not_loaded_now_survive() {
    let space = Workspace::new();
    let quay = space.quay(space.both(By::Socket));
    let turn = |n: usize| {
        [
            json!({ "append": { "path": "a.txt", "text": format!("turn {n}\n") } }),
            json!({ "say": format!("turn {n} is done") }),
            json!({ "end_turn": true }),
        ]
    };
    quay.agent("claude", 1, &json!([turn(1), turn(2)].concat()));
    quay.agent("codex", 1, &json!([turn(1), turn(2)].concat()));
    let of = |agent: &str| {
        let all = quay.conversations();
        let id = all.iter().find(|it| it["agent"] == agent).map(|it| it["id"].as_str().unwrap().to_owned());
        quay.world.json(&["bridge", "show", &id.unwrap_or_else(|| panic!("{agent} is in no conversation: {all:?}"))])
    };
    let theirs = space.slack.say("ann", "dev", "@codex begin", None);
    space.hears(&space.codex, &theirs, "turn 1 is done");
    let before = of("codex");

    quay.world.ok(&["down"]);
    quay.up(&["__CODEX"]);
    let mine = space.slack.say("ann", "dev", "@claude begin", None);
    space.hears(&space.claude, &mine, "turn 1 is done");
    space.slack.say("ann", "dev", "go on", Some(&mine));
    space.hears(&space.claude, &mine, "turn 2 is done");
    assert_eq!(of("codex")["turns"], before["turns"], "what is not loaded was changed");

    quay.world.ok(&["down"]);
    quay.up(&[]);
    space.slack.say("ann", "dev", "go on", Some(&theirs));
    space.hears(&space.codex, &theirs, "turn 2 is done");
    let after = of("codex");
    assert_eq!(after["id"], before["id"]);
    assert_eq!(after["task"], before["task"], "another task");
    assert_eq!(after["turn_count"], 2);
    assert_eq!(after["turns"][0]["work"]["branch"], after["turns"][1]["work"]["branch"], "another branch");
    let diff = quay.world.json(&["diff", after["task"].as_str().unwrap()]).to_string();
    assert!(diff.contains("turn 1") && diff.contains("turn 2"), "the first turn's work is gone: {diff}");
    space.slack.assert_well_behaved();
}

/// What an agent's program complains about on its error output is kept with everything else that it said.
#[test]
fn what_an_agent_writes_to_stderr_is_kept() {
    let space = Workspace::new();
    let quay = space.quay(slack_variables(&space.claude, "", By::Socket));
    let program = quay.world.root.join("home/program");
    std::fs::write(&program, "#!/bin/sh\necho 'the licence has run out' >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = program.display().to_string();
    quay.world.ok(&["agent", "add", "claude", "--runtime", "acp", "--confine", "off", "--command", &command]);
    space.slack.say("ann", "dev", "@claude begin", None);
    let kept = || quay.world.run(&["logs", "T1", "--raw"]).out.contains("the licence has run out");
    assert!(until(LONG, kept), "{}", quay.world.run(&["logs", "T1", "--raw"]).out);
}
