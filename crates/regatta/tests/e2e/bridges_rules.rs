//! Faults of an earlier bridge as tests of the real daemon: secrets, tokens, sessions and error
//! output.

use std::os::unix::fs::PermissionsExt;

use regatta_testkit::services::github::GitHub;
use serde_json::{Value, json};

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, InboundRequest, SlackTransport, new_runtime, slack_variables,
};
use crate::bridges::{CLOCK_SPEED, SlackFixture};
use crate::world::{TEST_TIMEOUT, wait_until};

/// Returns the payload that Slack delivers to an agent's app for a mention.
fn mention_payload(space: &SlackFixture, agent: &str) -> String {
    space.post_message(&format!("@{agent} look"), None);
    let envelopes = space.slack.envelopes(agent);
    envelopes
        .iter()
        .rev()
        .find(|slack_envelope| slack_envelope.payload["event"]["type"] == "app_mention")
        .unwrap()
        .payload
        .to_string()
}

fn listed_bridge(quay: &BridgeWorld, name: &str) -> Value {
    let all = quay.world.run_json(&["bridge", "list"]);
    let found = all
        .as_array()
        .unwrap()
        .iter()
        .find(|bridge| bridge["name"] == name)
        .cloned();
    found.unwrap_or_else(|| panic!("{name} is not listed: {all}"))
}

/// A route without a secret refuses every delivery, and `bridge list` and `doctor` name the missing
/// variable. The earlier bridge accepted everything.
#[test]
fn a_webhook_route_without_a_secret_answers_503_and_is_reported() {
    let runtime = new_runtime();
    let github = runtime.block_on(GitHub::start());
    let app = github.add_app("claude-bot");
    github.add_repo("acme/shop", &["claude-bot"]);
    let settings = BridgeWorldSettings {
        agents: &["claude"],
        allowed_people: vec![],
        urls: vec![("github", github.base_url())],
        clock_speed: CLOCK_SPEED,
        extra_lines: "",
    };
    let one_line = app.private_key.replace('\n', "\\n");
    let quay = BridgeWorld::new(
        &settings,
        vec![
            ("GITHUB_APP_ID".to_owned(), app.id.to_string()),
            ("GITHUB_PRIVATE_KEY".to_owned(), one_line),
        ],
    );
    let body = json!({ "zen": "Anything added dilutes everything else." }).to_string();
    for secret in [&*app.webhook_secret, "", "undefined"] {
        assert_eq!(
            quay.send_request(&InboundRequest::github(
                "/webhooks/github",
                secret,
                "ping",
                &body
            )),
            Some(503),
            "{secret:?}"
        );
    }
    assert_eq!(
        quay.send_request(&InboundRequest::new("/webhooks/github", vec![], body)),
        Some(503)
    );
    let warning = listed_bridge(&quay, "github:claude")["warning"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        warning.contains("GITHUB_WEBHOOK_SECRET") && warning.contains("503"),
        "{warning}"
    );
    let doctor = quay.world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("GITHUB_WEBHOOK_SECRET is not set"),
        "{doctor}"
    );
}

/// Each route accepts the secret of its own agent and no other.
#[test]
fn a_webhook_route_accepts_only_its_own_agents_secret() {
    let space = SlackFixture::new();
    let quay = space.start_world(space.variables_of_both_apps(SlackTransport::Http));
    for name in ["claude", "codex"] {
        quay.add_agent(name, 1, &json!([{ "say": "hm" }]));
    }
    let (for_claude, for_codex) = (
        mention_payload(&space, "claude"),
        mention_payload(&space, "codex"),
    );
    let (first, second) = (&space.claude.signing_secret, &space.codex.signing_secret);
    assert_eq!(
        quay.send_request(&InboundRequest::slack(
            "/webhooks/slack",
            second,
            &for_claude,
            0
        )),
        Some(401)
    );
    assert_eq!(
        quay.send_request(&InboundRequest::slack(
            "/webhooks/slack/codex",
            first,
            &for_codex,
            0
        )),
        Some(401)
    );
    // The default agent has no route with its name.
    assert_eq!(
        quay.send_request(&InboundRequest::slack(
            "/webhooks/slack/claude",
            first,
            &for_claude,
            0
        )),
        Some(404)
    );
    assert!(quay.conversations().is_empty());
    assert_eq!(quay.event_count("delivery.taken"), 0);
    assert_eq!(
        quay.send_request(&InboundRequest::slack(
            "/webhooks/slack/codex",
            second,
            &for_codex,
            0
        )),
        Some(200)
    );
    let all = quay.conversations();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["agent"], "codex");
}

/// A bridge without a token is off and names the missing variable. Its agent never acts through
/// another agent's app.
#[test]
fn an_agent_without_a_token_never_uses_another_agents_token() {
    let space = SlackFixture::new();
    let mut variables = space.variables_of_both_apps(SlackTransport::Socket);
    variables.retain(|variable| variable.0 != "SLACK_BOT_TOKEN__CODEX");
    let quay = space.start_world(variables);
    for name in ["claude", "codex"] {
        quay.add_agent(name, 1, &json!([{ "say": format!("{name} is here") }]));
    }
    let why = listed_bridge(&quay, "slack:codex")["off"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(why.contains("SLACK_BOT_TOKEN__CODEX is not set"), "{why}");
    let doctor = quay.world.run(&["doctor"]).stdout;
    assert!(
        doctor.contains("SLACK_BOT_TOKEN__CODEX is not set"),
        "{doctor}"
    );
    let output = quay.world.run(&["bridge", "test"]);
    assert!(
        output.exit_code != 0 && output.stderr.contains("slack:codex"),
        "{output:?}"
    );

    let asked = space
        .slack
        .post_as_person("ann", "dev", "@codex look", None);
    let root = space
        .slack
        .post_as_person("ann", "dev", "@claude look", None);
    space.wait_for_message(&space.claude, &root, "claude is here");
    assert!(
        space.slack.thread("dev", &asked).is_empty()
            && space.slack.reactions("dev", &asked).is_empty()
    );
    assert!(
        quay.conversations()
            .iter()
            .all(|conversation| conversation["agent"] == "claude")
    );
    let by: Vec<String> = space
        .slack
        .calls()
        .into_iter()
        .map(|service_call| service_call.app)
        .collect();
    assert!(by.iter().all(|by| by == "claude"), "{by:?}");
}

/// A missing, unreadable or rejected credential has an inbox item until it works. The item reads
/// the same through every interface, does not contain the secret, returns when the credential
/// breaks again, and ends when the bridge is no longer wanted.
#[test]
fn a_broken_credential_needs_a_person_until_it_works() {
    let space = SlackFixture::new();
    let wrong = "xoxb-0000-this-is-nobodys-token";
    let mut variables = space.variables_of_both_apps(SlackTransport::Socket);
    variables.retain(|variable| variable.0 != "SLACK_BOT_TOKEN__CODEX");
    variables[0].1 = wrong.to_owned();
    let quay = space.start_world(variables.clone());
    let inbox = || quay.world.run_json(&["inbox"]).as_array().unwrap().clone();
    let ids = || {
        inbox()
            .iter()
            .map(|value| value["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let both = || {
        let mut ids = ids();
        ids.sort();
        ids == ["bridge:slack:claude", "bridge:slack:codex"]
    };
    assert!(wait_until(TEST_TIMEOUT, both), "{:?}", inbox());
    let all = inbox();
    let inbox_item_of = |agent: &str| {
        all.iter()
            .find(|item| item["agent"] == agent)
            .unwrap()
            .clone()
    };
    let (claude, codex) = (inbox_item_of("claude"), inbox_item_of("codex"));
    assert_eq!(
        (&claude["kind"], &claude["choices"]),
        (&json!("credential"), &json!(["leave"])),
        "{claude}"
    );
    assert!(
        claude["subject"]
            .as_str()
            .unwrap()
            .starts_with("the slack credential of claude does not work: "),
        "{claude}"
    );
    assert!(
        claude["subject"].as_str().unwrap().contains("invalid_auth"),
        "{claude}"
    );
    assert!(
        claude["why"]
            .as_str()
            .unwrap()
            .contains("regatta up --restart"),
        "{claude}"
    );
    assert!(
        codex["subject"]
            .as_str()
            .unwrap()
            .contains("SLACK_BOT_TOKEN__CODEX is not set"),
        "{codex}"
    );
    let api = crate::http::ApiClient::for_data_dir(&quay.world.data_dir);
    assert_eq!(
        api.call_ok("inbox.list", json!({})),
        Value::Array(all),
        "the API and the command line show the same"
    );
    let text = quay.world.run_ok(&["inbox"]);
    assert!(text.contains("bridge:slack:claude  credential"), "{text}");
    assert_eq!(quay.world.run_json(&["status"])["needs_you"], 2);
    // The item can be postponed, and repeated attempts add no event.
    quay.world
        .run_ok(&["answer", "bridge:slack:codex", "leave"]);
    assert_eq!(quay.world.run_json(&["status"])["needs_you"], 1);
    assert_eq!(quay.event_count("provider.parked"), 2);
    // One credential file does not exist; the other credential is fixed.
    quay.world.run_ok(&["down"]);
    let mut mended = space.variables_of_both_apps(SlackTransport::Socket);
    mended.retain(|mended| mended.0 != "SLACK_BOT_TOKEN__CODEX");
    mended.push((
        "SLACK_BOT_TOKEN__CODEX_FILE".into(),
        quay.file_path("no-such-file").display().to_string(),
    ));
    quay.start_daemon_with(mended);
    assert!(
        wait_until(TEST_TIMEOUT, || ids() == ["bridge:slack:codex"]),
        "{:?}",
        inbox()
    );
    let codex = inbox()[0].clone();
    assert!(
        codex["subject"]
            .as_str()
            .unwrap()
            .contains("SLACK_BOT_TOKEN__CODEX cannot be read"),
        "{codex}"
    );
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(space.variables_of_both_apps(SlackTransport::Socket));
    assert!(
        wait_until(TEST_TIMEOUT, || ids().is_empty()),
        "{:?}",
        inbox()
    );
    // The credentials break again, and then the bridges are no longer wanted.
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(variables);
    assert!(wait_until(TEST_TIMEOUT, both), "{:?}", inbox());
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(
        ["", "__CODEX"]
            .map(|suffix| (format!("SLACK_APP_TOKEN{suffix}"), String::new()))
            .to_vec(),
    );
    assert_eq!(ids(), Vec::<String>::new());
    let output = format!(
        "{:?} {}",
        quay.world.events(),
        quay.world.run_ok(&["bridge", "list"])
    );
    assert!(!output.contains(wrong), "the secret was written somewhere");
}

/// An agent with a start command in the settings is added when the daemon starts.
#[test]
fn an_agent_of_the_settings_exists_after_the_start() {
    let space = SlackFixture::new();
    let quay = space.start_world(vec![]);
    let file = quay.file_path(".config/regatta/config.toml");
    let content = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        content.replacen(
            "[agents.claude]\n",
            "[agents.claude]\ncommand = \"scripted\"\n",
            1,
        ),
    )
    .unwrap();
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(slack_variables(&space.claude, "", SlackTransport::Socket));
    let agents = quay.world.run_json(&["agent", "list"]);
    assert!(
        agents
            .as_array()
            .unwrap()
            .iter()
            .any(|agent| agent["name"] == "claude"),
        "{agents}"
    );
}

/// A conversation is kept unchanged while its bridge is off and others work. When the bridge is
/// back, it goes on with the same task, branch and session. The earlier bridge stored only the
/// conversations that it had loaded.
#[test]
fn conversations_of_a_bridge_that_is_off_are_kept() {
    let space = SlackFixture::new();
    let quay = space.start_world(space.variables_of_both_apps(SlackTransport::Socket));
    let turn = |n: usize| {
        [
            json!({ "append": { "path": "a.txt", "text": format!("turn {n}\n") } }),
            json!({ "say": format!("turn {n} is done") }),
            json!({ "end_turn": true }),
        ]
    };
    quay.add_agent("claude", 1, &json!([turn(1), turn(2)].concat()));
    quay.add_agent("codex", 1, &json!([turn(1), turn(2)].concat()));
    let conversation_of = |agent: &str| {
        let all = quay.conversations();
        let id = all
            .iter()
            .find(|value| value["agent"] == agent)
            .map(|value| value["id"].as_str().unwrap().to_owned());
        quay.world.run_json(&[
            "bridge",
            "show",
            &id.unwrap_or_else(|| panic!("{agent} is in no conversation: {all:?}")),
        ])
    };
    let theirs = space
        .slack
        .post_as_person("ann", "dev", "@codex begin", None);
    space.wait_for_message(&space.codex, &theirs, "turn 1 is done");
    let before = conversation_of("codex");

    quay.world.run_ok(&["down"]);
    quay.start_daemon_without(&["__CODEX"]);
    let mine = space
        .slack
        .post_as_person("ann", "dev", "@claude begin", None);
    space.wait_for_message(&space.claude, &mine, "turn 1 is done");
    space
        .slack
        .post_as_person("ann", "dev", "go on", Some(&mine));
    space.wait_for_message(&space.claude, &mine, "turn 2 is done");
    assert_eq!(
        conversation_of("codex")["turns"],
        before["turns"],
        "the conversation changed while its bridge was off"
    );

    quay.world.run_ok(&["down"]);
    quay.start_daemon_without(&[]);
    space
        .slack
        .post_as_person("ann", "dev", "go on", Some(&theirs));
    space.wait_for_message(&space.codex, &theirs, "turn 2 is done");
    let after = conversation_of("codex");
    assert_eq!(after["id"], before["id"]);
    assert_eq!(
        after["task"], before["task"],
        "the conversation has another task"
    );
    assert_eq!(after["turn_count"], 2);
    assert_eq!(
        after["turns"][0]["work"]["branch"], after["turns"][1]["work"]["branch"],
        "the second turn has another branch"
    );
    let diff = quay
        .world
        .run_json(&["diff", after["task"].as_str().unwrap()])
        .to_string();
    assert!(
        diff.contains("turn 1") && diff.contains("turn 2"),
        "the first turn's work is gone: {diff}"
    );
    space.slack.assert_well_behaved();
}

/// The standard error of an agent's program is kept in the attempt's log.
#[test]
fn standard_error_of_an_agents_program_is_in_the_log() {
    let space = SlackFixture::new();
    let quay = space.start_world(slack_variables(&space.claude, "", SlackTransport::Socket));
    let program = quay.world.root.join("home/program");
    std::fs::write(
        &program,
        "#!/bin/sh\necho 'the licence has run out' >&2\nexit 3\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = program.display().to_string();
    quay.world.run_ok(&[
        "agent",
        "add",
        "claude",
        "--runtime",
        "acp",
        "--confine",
        "off",
        "--command",
        &command,
    ]);
    space
        .slack
        .post_as_person("ann", "dev", "@claude begin", None);
    let licence_error_is_logged = || {
        quay.world
            .run(&["logs", "T1", "--raw"])
            .stdout
            .contains("the licence has run out")
    };
    assert!(
        wait_until(TEST_TIMEOUT, licence_error_is_logged),
        "{}",
        quay.world.run(&["logs", "T1", "--raw"]).stdout
    );
}
