//! Tests of reading the configuration of bridges.

use super::*;

fn registry_from_env(vars: &[(&str, &str)]) -> BridgeRegistry {
    let vars: BTreeMap<String, String> = vars
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    read_registry(
        BridgeSettings::new(&[], BridgesConfig::default()),
        &|name: &str| Ok(vars.get(name).cloned()),
    )
}

fn fault_texts(registry: &BridgeRegistry) -> String {
    registry
        .faults
        .iter()
        .map(|fault| fault.message.clone())
        .collect::<Vec<_>>()
        .join("; ")
}

fn instance_names(registry: &BridgeRegistry) -> Vec<String> {
    registry
        .instances
        .iter()
        .map(|pair| format!("{}:{}", pair.service, pair.agent))
        .collect()
}

const TWO_AGENTS: (&str, &str) = (
    "AGENTS_JSON",
    r#"{"my-claude": {"command": "claude-agent-acp"}, "codex": {"command": "codex-acp"}}"#,
);

#[test]
fn without_settings_there_is_one_agent_called_default_and_no_bridge() {
    let registry = registry_from_env(&[]);
    assert_eq!(registry.agents[0].0.as_str(), "default");
    assert_eq!(
        registry.agents[0].1.command.as_deref(),
        Some(DEFAULT_COMMAND)
    );
    assert!(registry.instances.is_empty() && registry.disabled.is_empty());
    let registry = registry_from_env(&[
        ("ACP_AGENT_COMMAND", "my-agent --acp"),
        ("TELEGRAM_BOT_TOKEN", "1:x"),
    ]);
    assert_eq!(
        registry.agents[0].1.command.as_deref(),
        Some("my-agent --acp")
    );
    assert_eq!(instance_names(&registry), ["telegram:default"]);
}

#[test]
fn first_agent_is_the_default_and_two_defaults_are_an_error() {
    let registry = registry_from_env(&[TWO_AGENTS, ("TELEGRAM_BOT_TOKEN", "1:x")]);
    assert_eq!(instance_names(&registry), ["telegram:my-claude"]);
    let both =
        r#"{"a": {"command": "x", "default": true}, "b": {"command": "y", "default": true}}"#;
    let registry = registry_from_env(&[
        ("AGENTS_JSON", both),
        ("TELEGRAM_BOT_TOKEN", "1:x"),
        ("TELEGRAM_BOT_TOKEN__B", "2:y"),
    ]);
    assert!(
        fault_texts(&registry).contains("a and b"),
        "{}",
        fault_texts(&registry)
    );
    assert_eq!(
        instance_names(&registry),
        ["telegram:b"],
        "only the variable with a suffix belongs to an agent"
    );
    for bad in [
        "",
        "{}",
        "[]",
        "{\"a\": {}}",
        "{\"a\": {\"comand\": \"x\"}}",
        "{\"../a\": {\"command\": \"x\"}}",
    ] {
        let registry = registry_from_env(&[("AGENTS_JSON", bad), ("TELEGRAM_BOT_TOKEN", "1:x")]);
        assert_eq!(registry.faults.is_empty(), bad.is_empty(), "{bad}");
        assert_eq!(
            instance_names(&registry).is_empty(),
            !bad.is_empty(),
            "{bad}"
        );
    }
    let registry = registry_from_env(&[("AGENTS_JSON", r#"{"a": {"comand": "x"}}"#)]);
    assert_eq!(registry.faults[0].hint, "write \"command\"");
    let twins = r#"{"my-a": {"command": "x"}, "my_a": {"command": "y"}}"#;
    assert!(fault_texts(&registry_from_env(&[("AGENTS_JSON", twins)])).contains("MY_A"));
}

/// An invalid entry disables only the bridges that depend on the entry. A bridge is a pair of an
/// agent and a service.
#[test]
fn invalid_entry_disables_only_its_own_pair() {
    let one = r#"{"a": {"comand": "x"}, "b": {"command": "y"}}"#;
    let vars = [
        ("TELEGRAM_BOT_TOKEN__A", "1:x"),
        ("TELEGRAM_BOT_TOKEN__B", "2:y"),
        ("TELEGRAM_BOT_TOKEN", "3:z"),
    ];
    let registry = registry_from_env(&[&[("AGENTS_JSON", one)], &vars[..]].concat());
    assert_eq!(
        instance_names(&registry),
        ["telegram:b"],
        "b does not get the token of the default agent"
    );
    let Credentials::Telegram { bot_token } = &registry.instances[0].credentials else {
        panic!()
    };
    assert_eq!(bot_token.reveal(), "2:y");
    assert!(
        registry.disabled[0].why.contains("comand") && registry.disabled[0].is_reported,
        "{:?}",
        registry.disabled
    );
    // A section that cannot be parsed disables every bridge, because the permitted people are
    // unknown.
    let settings = BridgeSettings {
        agents: vec![],
        config: Err("unknown variant `x`".into()),
    };
    let registry = read_registry(settings, &|name: &str| {
        Ok((name == "TELEGRAM_BOT_TOKEN").then(|| "1:x".to_owned()))
    });
    assert!(instance_names(&registry).is_empty() && registry.config.allow.is_empty());
    assert!(
        registry.disabled[0].why.contains("unknown variant"),
        "{:?}",
        registry.disabled
    );
    assert_eq!(registry.faults.len(), 1);
}

#[test]
fn variables_of_the_default_agent_can_have_its_suffix() {
    let registry = registry_from_env(&[TWO_AGENTS, ("TELEGRAM_BOT_TOKEN__MY_CLAUDE", "1:x")]);
    assert_eq!(instance_names(&registry), ["telegram:my-claude"]);
    let registry = registry_from_env(&[
        TWO_AGENTS,
        ("TELEGRAM_BOT_TOKEN__MY_CLAUDE", "1:x"),
        ("TELEGRAM_BOT_TOKEN", "2:y"),
    ]);
    let Credentials::Telegram { bot_token } = &registry.instances[0].credentials else {
        panic!()
    };
    assert_eq!(
        bot_token.reveal(),
        "1:x",
        "the variable with the suffix has priority"
    );
}

/// Variables with their present values and their values from an earlier daemon.
#[derive(Default)]
struct TestVariables {
    now: BTreeMap<&'static str, &'static str>,
    before: BTreeMap<&'static str, Result<&'static str, &'static str>>,
}

impl BridgeVariables for TestVariables {
    fn current(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.now.get(name).map(|value| (*value).to_owned()))
    }
    fn stored_value(&self, name: &str) -> Result<Option<String>, String> {
        let found = self
            .before
            .get(name)
            .map(|value| value.map(str::to_owned).map_err(str::to_owned));
        found.transpose()
    }
    fn is_set_to_empty(&self, name: &str) -> bool {
        self.now.get(name) == Some(&"")
    }
}

#[test]
fn pair_without_variables_uses_the_remembered_sources() {
    let settings = || BridgeSettings::new(&[], BridgesConfig::default());
    let before = BTreeMap::from([
        ("SLACK_BOT_TOKEN", Ok("b")),
        ("SLACK_APP_TOKEN", Err("the file is gone")),
    ]);
    let registry = read_registry(
        settings(),
        &TestVariables {
            before: before.clone(),
            ..TestVariables::default()
        },
    );
    assert_eq!(
        registry
            .disabled
            .iter()
            .map(|off| off.why.as_str())
            .collect::<Vec<_>>(),
        ["the file is gone"]
    );
    assert_eq!(
        registry.used_variables.get("SLACK_APP_TOKEN"),
        Some(&VariableOrigin::Remembered),
        "the variable stays remembered"
    );
    // The environment has some variables of the bridge, so the remembered values of the other
    // variables are no longer used.
    let now = BTreeMap::from([("SLACK_BOT_TOKEN", "c"), ("SLACK_SIGNING_SECRET", "s")]);
    let registry = read_registry(
        settings(),
        &TestVariables {
            now,
            before: before.clone(),
        },
    );
    assert_eq!(instance_names(&registry), ["slack:default"]);
    assert_eq!(registry.used_variables.get("SLACK_APP_TOKEN"), None);
    // A variable that is set and empty means that the user does not want the bridge.
    let registry = read_registry(
        settings(),
        &TestVariables {
            now: BTreeMap::from([("SLACK_BOT_TOKEN", "")]),
            before,
        },
    );
    assert!(
        instance_names(&registry).is_empty()
            && registry.disabled.is_empty()
            && registry.used_variables.is_empty(),
        "{:?}",
        registry.disabled
    );
}

#[test]
fn bridge_variables_are_recognised_by_name() {
    for name in [
        "SLACK_BOT_TOKEN",
        "SLACK_BOT_TOKEN_FILE__CODEX",
        "GITHUB_APP_ID__A",
        "ACP_AGENT_COMMAND",
    ] {
        assert!(is_bridge_variable(name), "{name}");
    }
    assert!(!is_bridge_variable("GITHUB_TOKEN") && !is_bridge_variable("PATH"));
}

/// An unreadable variable disables its own bridge with a reason, and the other bridges stay
/// enabled.
#[test]
fn unreadable_credential_disables_only_its_own_pair() {
    let registry = read_registry(
        BridgeSettings::new(&[], BridgesConfig::default()),
        &|name: &str| match name {
            "SLACK_BOT_TOKEN" => Err("the file gives nothing".into()),
            "TELEGRAM_BOT_TOKEN" => Ok(Some("1:x".into())),
            _ => Ok(None),
        },
    );
    assert_eq!(instance_names(&registry), ["telegram:default"]);
    let off: Vec<String> = registry
        .disabled
        .iter()
        .map(|pair| format!("{}: {}", pair.service, pair.why))
        .collect();
    assert_eq!(
        off,
        ["slack: SLACK_BOT_TOKEN cannot be read: the file gives nothing"]
    );
}

/// A service may return the token that it was sent. Texts for people do not contain the token.
#[test]
fn secrets_are_removed_from_texts_of_a_service() {
    let registry =
        registry_from_env(&[("SLACK_BOT_TOKEN", "xoxb-1"), ("SLACK_APP_TOKEN", "xapp-2")]);
    let redacted = registry.instances[0]
        .credentials
        .redact("xoxb-1 is no token, nor is xapp-2; look at SLACK_BOT_TOKEN");
    assert_eq!(redacted, "… is no token, nor is …; look at SLACK_BOT_TOKEN");
}

/// Guards against a fault of an older bridge, in which an agent without a token answered under
/// another agent's name.
#[test]
fn second_agent_without_a_token_does_not_use_the_first_agents_token() {
    let all = [
        TWO_AGENTS,
        ("SLACK_BOT_TOKEN", "xoxb-1"),
        ("SLACK_APP_TOKEN", "xapp-1"),
        ("SLACK_APP_TOKEN__CODEX", "xapp-2"),
        ("LINEAR_ACCESS_TOKEN", "t"),
        ("LINEAR_AGENT_ID", "i"),
        ("LINEAR_WEBHOOK_SECRET", "s"),
        ("LINEAR_AGENT_ID__CODEX", "i2"),
    ];
    let registry = registry_from_env(&all);
    assert_eq!(
        instance_names(&registry),
        ["slack:my-claude", "linear:my-claude"]
    );
    let off: Vec<&str> = registry
        .disabled
        .iter()
        .map(|disabled_bridge| disabled_bridge.why.as_str())
        .collect();
    assert!(
        off[0].starts_with("SLACK_BOT_TOKEN__CODEX is not set"),
        "{off:?}"
    );
    assert!(
        off[1].starts_with("LINEAR_ACCESS_TOKEN__CODEX is not set"),
        "{off:?}"
    );
    // The suffix of a name with a hyphen has an underscore.
    let swapped = r#"{"codex": {"command": "y"}, "my-claude": {"command": "x"}}"#;
    let registry = registry_from_env(&[
        ("AGENTS_JSON", swapped),
        ("TELEGRAM_BOT_TOKEN__MY_CLAUDE", "2:y"),
    ]);
    assert_eq!(instance_names(&registry), ["telegram:my-claude"]);
}

/// Guards against a fault of an older bridge, in which a route without a secret accepted every
/// request.
#[test]
fn missing_webhook_secret_is_a_warning_and_the_route_stays() {
    let registry = registry_from_env(&[("GITHUB_APP_ID", "1"), ("GITHUB_PRIVATE_KEY", "a\\nb")]);
    let Credentials::Github {
        private_key,
        webhook_secret,
        ..
    } = &registry.instances[0].credentials
    else {
        panic!()
    };
    assert_eq!((private_key.reveal(), webhook_secret), ("a\nb", &None));
    assert!(
        registry.instances[0]
            .warning
            .as_ref()
            .unwrap()
            .contains("503")
    );
    assert_eq!(
        registry.instances[0].route.as_deref(),
        Some("/webhooks/github")
    );
}

#[test]
fn services_can_be_limited_and_an_unknown_name_is_a_fault() {
    let vars = [
        ("TELEGRAM_BOT_TOKEN", "1:x"),
        ("SLACK_BOT_TOKEN", "b"),
        ("SLACK_APP_TOKEN", "a"),
    ];
    let limited = [&vars[..], &[("ENABLED_SERVICES", "slack, ")]].concat();
    assert_eq!(
        instance_names(&registry_from_env(&limited)),
        ["slack:default"]
    );
    let wrong = [&vars[..], &[("ENABLED_SERVICES", "slakc")]].concat();
    let registry = registry_from_env(&wrong);
    assert!(
        fault_texts(&registry).contains("slakc") && instance_names(&registry).is_empty(),
        "an unknown name enables no service"
    );
    let partly = [&vars[..], &[("ENABLED_SERVICES", "slakc,telegram")]].concat();
    assert_eq!(
        instance_names(&registry_from_env(&partly)),
        ["telegram:default"]
    );
}
