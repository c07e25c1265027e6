//! How bridges start: the sign-in of agents from the settings, daemons that lack the variables, and
//! invalid settings.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::bridge_world::{BridgeWorld, SlackTransport, slack_variables};
use crate::bridges::SlackFixture;
use crate::chaos::kill_daemon;
use crate::world::{TEST_TIMEOUT, wait_until};

fn inbox_items(quay: &BridgeWorld) -> Vec<Value> {
    quay.world.run_json(&["inbox"]).as_array().unwrap().clone()
}

/// Returns the inbox subject of one bridge or setting; empty if it has no inbox item.
fn inbox_subject(quay: &BridgeWorld, id: &str) -> String {
    let all = inbox_items(quay);
    let found = all
        .iter()
        .find(|item| item["id"] == id)
        .map(|item| item["subject"].as_str().unwrap().to_owned());
    found.unwrap_or_default()
}

fn listed_bridge(quay: &BridgeWorld, name: &str) -> Value {
    let all = quay.world.run_json(&["bridge", "list"]);
    all.as_array()
        .unwrap()
        .iter()
        .find(|bridge| bridge["name"] == name)
        .cloned()
        .unwrap_or_default()
}

fn profile_settings(quay: &BridgeWorld, agent: &str) -> Value {
    let shown = quay.world.run_json(&["agent", "show", agent]);
    shown["profile"].clone()
}

/// Inserts a line at the top of a section of the user's settings.
fn insert_setting(quay: &BridgeWorld, section: &str, line: &str) {
    let file = quay.file_path(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let head = format!("[{section}]\n");
    assert!(text.contains(&head), "{text}");
    std::fs::write(&file, text.replacen(&head, &format!("{head}{line}\n"), 1)).unwrap();
}

/// An agent from the settings or from `AGENTS_JSON` gets the same key and sign-in files as an agent
/// that was added with `agent add`. `doctor` reports an agent without a sign-in.
#[test]
fn an_agent_gets_the_same_sign_in_from_settings_variables_and_commands() {
    let space = SlackFixture::new();
    let quay = space.start_world(vec![]);
    let bin = quay.file_path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for program in ["claude-agent-acp", "codex-acp"] {
        std::fs::write(bin.join(program), "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(bin.join(program), std::fs::Permissions::from_mode(0o755))
            .unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let keys = [
        ("ANTHROPIC_API_KEY", "sk-ant-1"),
        ("OPENAI_API_KEY", "sk-2"),
        ("PATH", &path),
    ];
    let keys = keys.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables = || {
        [
            space.variables_of_both_apps(SlackTransport::Socket),
            keys.to_vec(),
        ]
        .concat()
    };
    insert_setting(&quay, "agents.claude", "preset = \"claude\"");
    insert_setting(&quay, "agents.codex", "command = \"codex-acp --flag\"");
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(variables());
    let mut add = quay
        .world
        .command(&["agent", "add", "by-hand", "--preset", "claude"]);
    assert!(add.envs(keys.clone()).status().unwrap().success());
    let by_hand = profile_settings(&quay, "by-hand");
    assert_eq!(by_hand["keys"][0]["name"], "ANTHROPIC_API_KEY", "{by_hand}");
    assert_eq!(
        profile_settings(&quay, "claude"),
        by_hand,
        "from the settings"
    );
    let codex = profile_settings(&quay, "codex");
    assert_eq!(
        codex["keys"][0]["name"], "OPENAI_API_KEY",
        "a known program with arguments: {codex}"
    );
    // The same from the variable, with no agents in the settings.
    let file = quay.file_path(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[text.find("[bridges]").unwrap()..]).unwrap();
    quay.world.run_ok(&["down"]);
    let agents =
        json!({ "second": { "command": "claude-agent-acp", "default": true } }).to_string();
    quay.start_daemon_with([variables(), vec![("AGENTS_JSON".into(), agents)]].concat());
    assert_eq!(
        profile_settings(&quay, "second"),
        by_hand,
        "from AGENTS_JSON"
    );
    // `doctor` reports an agent without keys and sign-in files.
    let doctor = |quay: &BridgeWorld| {
        let mut command = quay.world.command(&["doctor"]);
        String::from_utf8(command.envs(keys.clone()).output().unwrap().stdout).unwrap()
    };
    assert!(
        !doctor(&quay).contains("is not signed in"),
        "{}",
        doctor(&quay)
    );
    let api = crate::http::ApiClient::for_data_dir(&quay.world.data_dir);
    let bare = json!({ "name": "bare", "runtime": "acp", "command": ["claude-agent-acp"], "max_tasks": 1,
        "profile": { "preset": "claude" } });
    api.call_ok("agent.add", bare);
    assert!(
        doctor(&quay).contains("bare: claude-agent-acp is not signed in"),
        "{}",
        doctor(&quay)
    );
}

/// After a crash any command starts a daemon, with the environment of its shell. A bridge whose
/// credentials come from a file goes on. A bridge whose credentials were only in the environment
/// has an inbox item until a person starts it again or gives it up.
#[test]
fn a_daemon_without_the_variables_keeps_or_reports_its_bridges() {
    let space = SlackFixture::new();
    let files: Vec<(String, String)> =
        slack_variables(&space.codex, "__CODEX", SlackTransport::Socket);
    let quay = space.start_world(vec![]);
    let mut variables = slack_variables(&space.claude, "", SlackTransport::Socket);
    for (nth, (name, value)) in files.iter().enumerate() {
        let path = quay.file_path(name);
        std::fs::write(&path, value).unwrap();
        // `_FILE` may stand before or after the agent's suffix.
        let variable = match name.split_once("__").filter(|_| nth == 0) {
            Some((variable, agent)) => format!("{variable}_FILE__{agent}"),
            None => format!("{name}_FILE"),
        };
        variables.push((variable, path.display().to_string()));
    }
    for name in ["claude", "codex"] {
        quay.add_agent(name, 1, &json!([{ "say": format!("{name} is here") }]));
    }
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(variables.clone());
    quay.world.run_ok(&["bridge", "test"]);
    kill_daemon(&quay.world);
    quay.world.run_ok(&["status"]);
    let root = space
        .slack
        .post_as_person("ann", "dev", "@codex look", None);
    space.wait_for_message(&space.codex, &root, "codex is here");
    let subject = inbox_subject(&quay, "bridge:slack:claude");
    assert!(
        subject.contains("SLACK_BOT_TOKEN") && subject.contains("environment"),
        "{subject}: {:?}",
        inbox_items(&quay)
    );
    assert!(
        listed_bridge(&quay, "slack:claude")["off"]
            .as_str()
            .unwrap_or_default()
            .contains("environment")
    );
    assert!(
        quay.world
            .run(&["doctor"])
            .stdout
            .contains("SLACK_BOT_TOKEN")
    );
    assert_eq!(inbox_subject(&quay, "bridge:slack:codex"), "");
    // `up` finds the daemon running and names the bridge that is now off.
    let up = quay.world.run_ok(&["up"]);
    assert!(
        up.contains("already up")
            && up.contains("bridge slack:claude is off")
            && !up.contains("slack:codex"),
        "{up}"
    );
    let stored = std::fs::read_to_string(quay.world.data_dir.join("bridges/sources.json")).unwrap();
    assert!(
        !stored.contains(&space.claude.bot_token) && !stored.contains(&space.codex.bot_token),
        "{stored}"
    );
    // The item survives another start and disappears once the variables are back.
    kill_daemon(&quay.world);
    quay.world.run_ok(&["status"]);
    assert_ne!(inbox_subject(&quay, "bridge:slack:claude"), "");
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(variables);
    assert!(
        wait_until(TEST_TIMEOUT, || inbox_items(&quay).is_empty()),
        "{:?}",
        inbox_items(&quay)
    );
    // An empty variable means that the bridge is not wanted.
    quay.world.run_ok(&["down"]);
    quay.start_daemon_with(vec![("SLACK_BOT_TOKEN".into(), String::new())]);
    assert!(inbox_items(&quay).is_empty(), "{:?}", inbox_items(&quay));
    assert_eq!(listed_bridge(&quay, "slack:claude"), Value::Null);
}

/// An invalid setting turns off the bridges that depend on it, and the daemon still runs.
#[test]
fn an_invalid_setting_turns_off_its_bridges_and_not_the_daemon() {
    let space = SlackFixture::new();
    let quay = space.start_world(space.variables_of_both_apps(SlackTransport::Socket));
    for name in ["claude", "codex"] {
        quay.add_agent(name, 1, &json!([{ "say": "hm" }]));
    }
    let up = |extra: &[(&str, &str)]| {
        quay.world.run_ok(&["down"]);
        let extra = extra
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        quay.start_daemon_with(
            space
                .variables_of_both_apps(SlackTransport::Socket)
                .into_iter()
                .chain(extra)
                .collect(),
        );
    };
    up(&[("ENABLED_SERVICES", "slakc")]);
    let subject = inbox_subject(&quay, "bridge:setting:ENABLED_SERVICES");
    assert!(
        subject.contains("slakc"),
        "{subject}: {:?}",
        inbox_items(&quay)
    );
    assert!(quay.world.run(&["doctor"]).stdout.contains("slakc"));
    insert_setting(&quay, "bridges", "follow_ups = \"sometimes\"");
    up(&[]);
    let subject = inbox_subject(&quay, "bridge:setting:bridges");
    assert!(
        subject.contains("sometimes"),
        "{subject}: {:?}",
        inbox_items(&quay)
    );
    assert!(
        listed_bridge(&quay, "slack:claude")["off"]
            .as_str()
            .unwrap_or_default()
            .contains("sometimes")
    );
    let file = quay.file_path(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("\"sometimes\"", "\"last_active\"");
    std::fs::write(&file, &text).unwrap();
    up(&[]);
    assert!(
        wait_until(TEST_TIMEOUT, || inbox_items(&quay).is_empty()),
        "{:?}",
        inbox_items(&quay)
    );
    quay.world.run_ok(&["bridge", "test"]);
    std::fs::write(&file, &text[text.find("[bridges]").unwrap()..]).unwrap();
    up(&[(
        "AGENTS_JSON",
        "{\"claude\": {\"comand\": \"x\"}, \"codex\": {\"command\": \"scripted\"}}",
    )]);
    let subject = inbox_subject(&quay, "bridge:setting:AGENTS_JSON");
    assert!(
        subject.contains("comand"),
        "{subject}: {:?}",
        inbox_items(&quay)
    );
    assert!(
        listed_bridge(&quay, "slack:codex")["off"].is_null(),
        "codex is on"
    );
    assert_eq!(
        listed_bridge(&quay, "slack:claude"),
        Value::Null,
        "there is no default agent"
    );
    // The default agent's variables may carry its suffix.
    let agents = "{\"claude\": {\"command\": \"scripted\", \"default\": true}}";
    quay.world.run_ok(&["down"]);
    let variables = slack_variables(&space.claude, "__CLAUDE", SlackTransport::Socket);
    quay.start_daemon_with([variables, vec![("AGENTS_JSON".into(), agents.into())]].concat());
    assert!(
        wait_until(TEST_TIMEOUT, || inbox_items(&quay).is_empty()),
        "{:?}",
        inbox_items(&quay)
    );
    quay.world.run_ok(&["bridge", "test", "claude"]);
}
