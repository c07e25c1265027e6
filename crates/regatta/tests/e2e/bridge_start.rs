//! How bridges come up: agents of the settings with their sign-in, daemons that lack the variables,
//! and settings that cannot be understood.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::bridges::Workspace;
use crate::chaos::kill_daemon;
use crate::quay::{By, Quay, slack_variables};
use crate::world::{LONG, until};

fn inbox(quay: &Quay) -> Vec<Value> {
    quay.world.json(&["inbox"]).as_array().unwrap().clone()
}

/// Returns what the inbox says of one bridge or setting; empty if it says nothing.
fn subject(quay: &Quay, id: &str) -> String {
    let all = inbox(quay);
    let found = all.iter().find(|item| item["id"] == id).map(|item| item["subject"].as_str().unwrap().to_owned());
    found.unwrap_or_default()
}

fn listed(quay: &Quay, name: &str) -> Value {
    let all = quay.world.json(&["bridge", "list"]);
    all.as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
}

fn profile(quay: &Quay, agent: &str) -> Value {
    let shown = quay.world.json(&["agent", "show", agent]);
    shown["profile"].clone()
}

/// Replaces the first line of the user's settings that begins with `key =`, or puts one under `section`.
fn set(quay: &Quay, section: &str, line: &str) {
    let file = quay.file(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let head = format!("[{section}]\n");
    assert!(text.contains(&head), "{text}");
    std::fs::write(&file, text.replacen(&head, &format!("{head}{line}\n"), 1)).unwrap();
}

/// An agent that the settings or `AGENTS_JSON` name gets the key and the sign-in files that `agent add` gives, and
/// `doctor` says so when an agent gets none.
#[test]
fn an_agent_of_a_preset_gets_the_same_sign_in_however_it_is_made() {
    let space = Workspace::new();
    let quay = space.quay(vec![]);
    let bin = quay.file("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for program in ["claude-agent-acp", "codex-acp"] {
        std::fs::write(bin.join(program), "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(bin.join(program), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let keys = [("ANTHROPIC_API_KEY", "sk-ant-1"), ("OPENAI_API_KEY", "sk-2"), ("PATH", &path)];
    let keys = keys.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables = || [space.both(By::Socket), keys.to_vec()].concat();
    set(&quay, "agents.claude", "preset = \"claude\"");
    set(&quay, "agents.codex", "command = \"codex-acp --flag\"");
    quay.world.ok(&["down"]);
    quay.up_with(variables());
    let mut add = quay.world.command(&["agent", "add", "by-hand", "--preset", "claude"]);
    assert!(add.envs(keys.clone()).status().unwrap().success());
    let by_hand = profile(&quay, "by-hand");
    assert_eq!(by_hand["keys"][0]["name"], "ANTHROPIC_API_KEY", "{by_hand}");
    assert_eq!(profile(&quay, "claude"), by_hand, "of the settings");
    let codex = profile(&quay, "codex");
    assert_eq!(codex["keys"][0]["name"], "OPENAI_API_KEY", "a known program with arguments: {codex}");
    // The same from the variable, in a data directory of its own settings.
    let file = quay.file(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[text.find("[bridges]").unwrap()..]).unwrap();
    quay.world.ok(&["down"]);
    let agents = json!({ "second": { "command": "claude-agent-acp", "default": true } }).to_string();
    quay.up_with([variables(), vec![("AGENTS_JSON".into(), agents)]].concat());
    assert_eq!(profile(&quay, "second"), by_hand, "of AGENTS_JSON");
    // An agent without any of it is not green.
    let doctor = |quay: &Quay| {
        let mut command = quay.world.command(&["doctor"]);
        String::from_utf8(command.envs(keys.clone()).output().unwrap().stdout).unwrap()
    };
    assert!(!doctor(&quay).contains("is not signed in"), "{}", doctor(&quay));
    let door = crate::http::Door::of(&quay.world.data);
    let bare = json!({ "name": "bare", "runtime": "acp", "command": ["claude-agent-acp"], "max_tasks": 1,
        "profile": { "preset": "claude" } });
    door.ask("agent.add", bare);
    assert!(doctor(&quay).contains("bare: claude-agent-acp is not signed in"), "{}", doctor(&quay));
}

/// After a crash any command starts a daemon, in whatever shell. A bridge whose credentials come from a file goes on;
/// one whose credentials were only in the environment is in the inbox until it is started again or given up.
#[test]
fn a_daemon_without_the_variables_keeps_or_reports_its_bridges() {
    let space = Workspace::new();
    let files: Vec<(String, String)> = slack_variables(&space.codex, "__CODEX", By::Socket);
    let quay = space.quay(vec![]);
    let mut variables = slack_variables(&space.claude, "", By::Socket);
    for (nth, (name, value)) in files.iter().enumerate() {
        let path = quay.file(name);
        std::fs::write(&path, value).unwrap();
        // The agent's name may stand before or behind the word.
        let variable = match name.split_once("__").filter(|_| nth == 0) {
            Some((variable, agent)) => format!("{variable}_FILE__{agent}"),
            None => format!("{name}_FILE"),
        };
        variables.push((variable, path.display().to_string()));
    }
    for name in ["claude", "codex"] {
        quay.agent(name, 1, &json!([{ "say": format!("{name} is here") }]));
    }
    quay.world.ok(&["down"]);
    quay.up_with(variables.clone());
    quay.world.ok(&["bridge", "test"]);
    kill_daemon(&quay.world);
    quay.world.ok(&["status"]);
    let root = space.slack.say("ann", "dev", "@codex look", None);
    space.hears(&space.codex, &root, "codex is here");
    let why = subject(&quay, "bridge:slack:claude");
    assert!(why.contains("SLACK_BOT_TOKEN") && why.contains("environment"), "{why}: {:?}", inbox(&quay));
    assert!(listed(&quay, "slack:claude")["off"].as_str().unwrap_or_default().contains("environment"));
    assert!(quay.world.run(&["doctor"]).out.contains("SLACK_BOT_TOKEN"));
    assert_eq!(subject(&quay, "bridge:slack:codex"), "");
    // `up` finds the daemon running, and names the bridge that is not on any more.
    let up = quay.world.ok(&["up"]);
    assert!(
        up.contains("already up") && up.contains("bridge slack:claude is off") && !up.contains("slack:codex"),
        "{up}"
    );
    let stored = std::fs::read_to_string(quay.world.data.join("bridges/sources.json")).unwrap();
    assert!(!stored.contains(&space.claude.bot_token) && !stored.contains(&space.codex.bot_token), "{stored}");
    // It stays so over another start, and is over when the variables are back.
    kill_daemon(&quay.world);
    quay.world.ok(&["status"]);
    assert_ne!(subject(&quay, "bridge:slack:claude"), "");
    quay.world.ok(&["down"]);
    quay.up_with(variables);
    assert!(until(LONG, || inbox(&quay).is_empty()), "{:?}", inbox(&quay));
    // A variable that is set to nothing says that the bridge is not wanted.
    quay.world.ok(&["down"]);
    quay.up_with(vec![("SLACK_BOT_TOKEN".into(), String::new())]);
    assert!(inbox(&quay).is_empty(), "{:?}", inbox(&quay));
    assert_eq!(listed(&quay, "slack:claude"), Value::Null);
}

/// A setting that cannot be understood switches off what depends on it, and the daemon runs.
#[test]
fn a_wrong_setting_costs_its_bridges_and_not_the_daemon() {
    let space = Workspace::new();
    let quay = space.quay(space.both(By::Socket));
    for name in ["claude", "codex"] {
        quay.agent(name, 1, &json!([{ "say": "hm" }]));
    }
    let up = |extra: &[(&str, &str)]| {
        quay.world.ok(&["down"]);
        let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        quay.up_with(space.both(By::Socket).into_iter().chain(extra).collect());
    };
    up(&[("ENABLED_SERVICES", "slakc")]);
    let why = subject(&quay, "bridge:setting:ENABLED_SERVICES");
    assert!(why.contains("slakc"), "{why}: {:?}", inbox(&quay));
    assert!(quay.world.run(&["doctor"]).out.contains("slakc"));
    set(&quay, "bridges", "follow_ups = \"sometimes\"");
    up(&[]);
    let why = subject(&quay, "bridge:setting:bridges");
    assert!(why.contains("sometimes"), "{why}: {:?}", inbox(&quay));
    assert!(listed(&quay, "slack:claude")["off"].as_str().unwrap_or_default().contains("sometimes"));
    let file = quay.file(".config/regatta/config.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"sometimes\"", "\"last_active\"");
    std::fs::write(&file, &text).unwrap();
    up(&[]);
    assert!(until(LONG, || inbox(&quay).is_empty()), "{:?}", inbox(&quay));
    quay.world.ok(&["bridge", "test"]);
    std::fs::write(&file, &text[text.find("[bridges]").unwrap()..]).unwrap();
    up(&[("AGENTS_JSON", "{\"claude\": {\"comand\": \"x\"}, \"codex\": {\"command\": \"scripted\"}}")]);
    let why = subject(&quay, "bridge:setting:AGENTS_JSON");
    assert!(why.contains("comand"), "{why}: {:?}", inbox(&quay));
    assert!(listed(&quay, "slack:codex")["off"].is_null(), "codex is on");
    assert_eq!(listed(&quay, "slack:claude"), Value::Null, "nobody is the default");
    // The default agent's variables may have its suffix.
    let agents = "{\"claude\": {\"command\": \"scripted\", \"default\": true}}";
    quay.world.ok(&["down"]);
    let own = slack_variables(&space.claude, "__CLAUDE", By::Socket);
    quay.up_with([own, vec![("AGENTS_JSON".into(), agents.into())]].concat());
    assert!(until(LONG, || inbox(&quay).is_empty()), "{:?}", inbox(&quay));
    quay.world.ok(&["bridge", "test", "claude"]);
}
