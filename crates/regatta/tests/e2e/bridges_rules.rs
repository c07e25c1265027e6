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

/// A credential that is missing, unreadable or refused is in the inbox, in the same words at every door, without the
/// secret, until it works; it comes back when it breaks, and goes when nobody wants the bridge any more.
#[test]
fn a_broken_credential_needs_a_person_until_it_works() {
    let space = Workspace::new();
    let wrong = "xoxb-0000-this-is-nobodys-token";
    let mut variables = space.both(By::Socket);
    variables.retain(|it| it.0 != "SLACK_BOT_TOKEN__CODEX");
    variables[0].1 = wrong.to_owned();
    let quay = space.quay(variables.clone());
    let inbox = || quay.world.json(&["inbox"]).as_array().unwrap().clone();
    let ids = || inbox().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let both = || {
        let mut ids = ids();
        ids.sort();
        ids == ["bridge:slack:claude", "bridge:slack:codex"]
    };
    assert!(until(LONG, both), "{:?}", inbox());
    let all = inbox();
    let of = |agent: &str| all.iter().find(|it| it["agent"] == agent).unwrap().clone();
    let (claude, codex) = (of("claude"), of("codex"));
    assert_eq!((&claude["kind"], &claude["choices"]), (&json!("credential"), &json!(["leave"])), "{claude}");
    assert!(claude["subject"].as_str().unwrap().starts_with("slack rejects the credential of claude: "), "{claude}");
    assert!(claude["subject"].as_str().unwrap().contains("invalid_auth"), "{claude}");
    assert!(claude["why"].as_str().unwrap().contains("regatta up --restart"), "{claude}");
    assert!(codex["subject"].as_str().unwrap().contains("SLACK_BOT_TOKEN__CODEX is not set"), "{codex}");
    let door = crate::http::Door::of(&quay.world.data);
    assert_eq!(door.ask("inbox.list", json!({})), Value::Array(all), "the same at every door");
    let text = quay.world.ok(&["inbox"]);
    assert!(text.contains("bridge:slack:claude  credential"), "{text}");
    assert_eq!(quay.world.json(&["status"])["needs_you"], 2);
    // It can be put off, and says the same however often it is tried.
    quay.world.ok(&["answer", "bridge:slack:codex", "leave"]);
    assert_eq!(quay.world.json(&["status"])["needs_you"], 1);
    assert_eq!(quay.events("provider.parked"), 2);
    // Nobody can read the file that is to hold it; the other is mended.
    quay.world.ok(&["down"]);
    let mut mended = space.both(By::Socket);
    mended.retain(|it| it.0 != "SLACK_BOT_TOKEN__CODEX");
    mended.push(("SLACK_BOT_TOKEN__CODEX_FILE".into(), quay.file("no-such-file").display().to_string()));
    quay.up_with(mended);
    assert!(until(LONG, || ids() == ["bridge:slack:codex"]), "{:?}", inbox());
    let codex = inbox()[0].clone();
    assert!(codex["subject"].as_str().unwrap().contains("SLACK_BOT_TOKEN__CODEX cannot be read"), "{codex}");
    quay.world.ok(&["down"]);
    quay.up_with(space.both(By::Socket));
    assert!(until(LONG, || ids().is_empty()), "{:?}", inbox());
    // Broken again, and then not wanted at all.
    quay.world.ok(&["down"]);
    quay.up_with(variables);
    assert!(until(LONG, both), "{:?}", inbox());
    quay.world.ok(&["down"]);
    quay.up_with(["", "__CODEX"].map(|suffix| (format!("SLACK_APP_TOKEN{suffix}"), String::new())).to_vec());
    assert_eq!(ids(), Vec::<String>::new());
    let told = format!("{:?} {}", quay.world.events(), quay.world.ok(&["bridge", "list"]));
    assert!(!told.contains(wrong), "the secret is nowhere");
}

/// An agent that the settings say how to start is made known as the daemon comes up.
#[test]
fn an_agent_of_the_settings_is_there_when_the_daemon_is_up() {
    let space = Workspace::new();
    let quay = space.quay(vec![]);
    let file = quay.file(".config/regatta/config.toml");
    let told = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, told.replacen("[agents.claude]\n", "[agents.claude]\ncommand = \"scripted\"\n", 1)).unwrap();
    quay.world.ok(&["down"]);
    quay.up_with(slack_variables(&space.claude, "", By::Socket));
    let agents = quay.world.json(&["agent", "list"]);
    assert!(agents.as_array().unwrap().iter().any(|it| it["name"] == "claude"), "{agents}");
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
