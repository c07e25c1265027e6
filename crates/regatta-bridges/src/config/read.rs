//! Builds the bridge registry from the settings file and the environment.
//!
//! If a value is invalid, only the bridges that depend on this value do not start. All other
//! bridges start, and the invalid value is reported as a [`SettingFault`].

use std::collections::BTreeMap;
use std::fmt;

use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_core::spelling;
use serde::Deserialize;

use super::{
    AgentEntry, BridgeInstance, BridgeRegistry, BridgesConfig, Credentials, DisabledBridge, Secret,
    WebhookConfig, WebhookReceiver,
};

/// The sections of the user's settings file that configure bridges. An invalid section is replaced
/// by the error in it.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// The sections `[agents.NAME]` with their names, in the order of the file.
    pub agents: Vec<(String, Result<AgentEntry, String>)>,
    /// The section `[bridges]`, or the error in it.
    pub config: Result<BridgesConfig, String>,
}

impl BridgeSettings {
    pub fn new(agents: &[(String, AgentEntry)], config: BridgesConfig) -> BridgeSettings {
        let agents = agents
            .iter()
            .map(|(name, entry)| (name.clone(), Ok(entry.clone())))
            .collect();
        BridgeSettings {
            agents,
            config: Ok(config),
        }
    }
}

/// Access to the environment variables of the daemon. If an earlier daemon got a value from a file
/// or a command, this source is remembered and can be read again.
pub trait BridgeVariables {
    /// Returns the value of a variable in the current environment: the variable itself, the content
    /// of the file that `…_FILE` names, or the output of the command in `…_COMMAND`.
    fn current(&self, name: &str) -> Result<Option<String>, String>;

    /// Reads the value of a variable from the file or command that an earlier daemon used. Returns
    /// an error if the file or command no longer gives a value.
    fn stored_value(&self, _name: &str) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Returns whether the variable is set to an empty text. In this case no remembered value may
    /// be used.
    fn is_set_to_empty(&self, _name: &str) -> bool {
        false
    }
}

impl<F: Fn(&str) -> Result<Option<String>, String>> BridgeVariables for F {
    fn current(&self, name: &str) -> Result<Option<String>, String> {
        self(name)
    }
}

/// A setting that cannot be used, with the reason and the next step for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFault {
    /// Name of the environment variable or setting that cannot be used.
    pub setting: String,
    pub message: String,
    pub hint: String,
}

/// The source from which the value of an environment variable was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableOrigin {
    /// The environment of the running daemon.
    Environment,
    /// A file or command from which an earlier daemon read the value. The variable is recorded even
    /// if the file or command no longer gives a value.
    Remembered,
}

/// The program of the agent `default`. This agent is used if neither the settings nor `AGENTS_JSON`
/// list agents, and `ACP_AGENT_COMMAND` names no program.
pub const DEFAULT_COMMAND: &str = "claude-agent-acp";

/// The environment variables with the credentials of each service. The flag is true if the bridge
/// cannot run without the variable.
const CREDENTIAL_VARIABLES: &[(Service, &str, bool)] = &[
    (Service::Slack, "SLACK_BOT_TOKEN", true),
    (Service::Slack, "SLACK_APP_TOKEN", false),
    (Service::Slack, "SLACK_SIGNING_SECRET", false),
    (Service::Github, "GITHUB_APP_ID", true),
    (Service::Github, "GITHUB_PRIVATE_KEY", true),
    (Service::Github, "GITHUB_WEBHOOK_SECRET", false),
    (Service::Linear, "LINEAR_ACCESS_TOKEN", true),
    (Service::Linear, "LINEAR_AGENT_ID", true),
    (Service::Linear, "LINEAR_WEBHOOK_SECRET", false),
    (Service::Telegram, "TELEGRAM_BOT_TOKEN", true),
];

/// The environment variables that list the agents and the enabled services.
pub const SETTING_VARIABLES: &[&str] = &["AGENTS_JSON", "ACP_AGENT_COMMAND", "ENABLED_SERVICES"];

/// Returns whether an environment variable of this name configures bridges. The name may end with
/// the suffix of an agent (`__CODEX`) or of a source (`_FILE`, `_COMMAND`).
pub fn is_bridge_variable(name: &str) -> bool {
    let base = name.split_once("__").map_or(name, |(base, _)| base);
    let base = base
        .strip_suffix("_FILE")
        .or_else(|| base.strip_suffix("_COMMAND"))
        .unwrap_or(base);
    // The ending of `ACP_AGENT_COMMAND` belongs to the name of this setting. It does not mean that
    // the value is the output of a command.
    SETTING_VARIABLES.contains(&name)
        || CREDENTIAL_VARIABLES
            .iter()
            .any(|(_, variable, _)| *variable == base)
}

/// Builds the registry: the agents, their bridges with credentials, and the invalid settings.
pub fn read_registry(settings: BridgeSettings, variables: &dyn BridgeVariables) -> BridgeRegistry {
    let mut reader = SettingsReader {
        variables,
        faults: Vec::new(),
        used: BTreeMap::new(),
    };
    let (agents, source) = reader.agents(settings.agents);
    let default = reader.default_agent(&agents, source);
    let (config, config_error) = match settings.config {
        Ok(config) => (config, None),
        Err(why) => {
            reader.add_fault(
                "bridges",
                format!("[bridges] cannot be understood: {why}"),
                "see docs/bridges.md",
            );
            (
                BridgesConfig {
                    allow: vec![],
                    ..BridgesConfig::default()
                },
                Some(why),
            )
        }
    };
    let services = reader.services(&config);
    let receivers = reader.receivers(&config);
    let mut registry = BridgeRegistry {
        config,
        receivers,
        ..BridgeRegistry::default()
    };
    for (name, entry) in agents {
        let Ok(agent) = AgentName::new(&name) else {
            reader.add_fault(
                source,
                format!("{name:?} cannot be an agent's name"),
                "give the agent another name",
            );
            continue;
        };
        let is_default = default.as_deref() == Some(&*name);
        for service in &services {
            let problem = entry
                .as_ref()
                .err()
                .map(|why| format!("{source}: {name}: {why}"));
            let problem = problem.or_else(|| {
                config_error
                    .as_ref()
                    .map(|why| format!("[bridges] cannot be understood: {why}"))
            });
            let disabled = |why, is_reported| DisabledBridge {
                agent: agent.clone(),
                service: *service,
                why,
                is_reported,
            };
            match (reader.instance(&agent, is_default, *service), problem) {
                (Ok(_) | Err(Some(_)), Some(why)) => registry.disabled.push(disabled(why, true)),
                (Ok(instance), None) => registry.instances.push(instance),
                (Err(Some(why)), None) => registry.disabled.push(disabled(why, false)),
                (Err(None), _) => {}
            }
        }
        if let Ok(entry) = entry {
            registry.agents.push((
                agent,
                AgentEntry {
                    default: is_default,
                    ..entry
                },
            ));
        }
    }
    (registry.faults, registry.used_variables) = (reader.faults, reader.used);
    registry
}

/// The configured agents by name, each with its settings or the error in them.
type AgentEntries = Vec<(String, Result<AgentEntry, String>)>;

struct SettingsReader<'a> {
    variables: &'a dyn BridgeVariables,
    faults: Vec<SettingFault>,
    used: BTreeMap<String, VariableOrigin>,
}

impl SettingsReader<'_> {
    fn add_fault(&mut self, setting: &str, message: impl Into<String>, hint: &str) {
        self.faults.push(SettingFault {
            setting: setting.into(),
            message: message.into(),
            hint: hint.into(),
        });
    }

    /// Returns a variable's value from the environment, or else from the source that an earlier
    /// daemon used. Records the variable as used.
    fn variable(&mut self, name: &str) -> Result<Option<String>, String> {
        let found = self.current_variable(name)?;
        if found.is_some() || self.variables.is_set_to_empty(name) {
            return Ok(found);
        }
        self.remembered_variable(name)
    }

    fn current_variable(&mut self, name: &str) -> Result<Option<String>, String> {
        let found = self
            .variables
            .current(name)
            .map(trimmed)
            .map_err(|why| format!("{name} cannot be read: {why}"));
        if !matches!(found, Ok(None)) {
            self.used
                .insert(name.to_owned(), VariableOrigin::Environment);
        }
        found
    }

    fn remembered_variable(&mut self, name: &str) -> Result<Option<String>, String> {
        let found = self.variables.stored_value(name).map(trimmed);
        if !matches!(found, Ok(None)) {
            self.used
                .insert(name.to_owned(), VariableOrigin::Remembered);
        }
        found
    }

    /// Returns the value of an environment variable, like [`SettingsReader::variable`]. On an error,
    /// adds the error to the list of faulty settings and returns `None`.
    fn setting_variable(&mut self, name: &str) -> Option<String> {
        self.variable(name).unwrap_or_else(|why| {
            self.add_fault(name, why, "correct it, then: regatta up --restart");
            None
        })
    }

    /// Returns the configured agents, and the name of the setting that lists them.
    fn agents(&mut self, listed: AgentEntries) -> (AgentEntries, &'static str) {
        let (mut entries, source) = if listed.is_empty() {
            (self.agents_from_variables(), "AGENTS_JSON")
        } else {
            (listed, "agents")
        };
        let mut suffixes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, _) in &entries {
            suffixes
                .entry(variable_suffix(name))
                .or_default()
                .push(name.clone());
        }
        for (suffix, names) in suffixes.into_iter().filter(|(_, names)| names.len() > 1) {
            let why = format!(
                "{} would use the same environment variables, whose names end with __{suffix}",
                names.join(" and ")
            );
            for (_, entry) in entries.iter_mut().filter(|(name, _)| names.contains(name)) {
                *entry = Err(why.clone());
            }
        }
        for (name, entry) in &entries {
            if let Err(why) = entry {
                let default_hint = if source == "AGENTS_JSON" {
                    AGENTS_JSON_HINT
                } else {
                    "see docs/bridges.md"
                };
                let hint = spelling::meant_word(why)
                    .map_or(default_hint.to_owned(), |suggestion| {
                        format!("write \"{suggestion}\"")
                    });
                self.add_fault(source, format!("{source}: {name}: {why}"), &hint);
            }
        }
        (entries, source)
    }

    fn agents_from_variables(&mut self) -> AgentEntries {
        let Some(text) = self.setting_variable("AGENTS_JSON") else {
            if self
                .faults
                .iter()
                .any(|fault| fault.setting == "AGENTS_JSON")
            {
                return vec![];
            }
            let command = self
                .setting_variable("ACP_AGENT_COMMAND")
                .unwrap_or_else(|| DEFAULT_COMMAND.to_owned());
            return vec![(
                "default".into(),
                Ok(AgentEntry {
                    command: Some(command),
                    preset: None,
                    default: true,
                }),
            )];
        };
        let entries = match serde_json::from_str(&text) {
            Ok(OrderedObject(entries)) if entries.is_empty() => Err("it names no agent".to_owned()),
            Ok(OrderedObject(entries)) => Ok(entries),
            Err(error) => Err(error.to_string()),
        };
        let entries = entries.unwrap_or_else(|why| {
            self.add_fault(
                "AGENTS_JSON",
                format!("AGENTS_JSON cannot be understood: {why}"),
                AGENTS_JSON_HINT,
            );
            vec![]
        });
        let entry = |value: serde_json::Value| {
            let entry: AgentEntry =
                serde_json::from_value(value).map_err(|error| error.to_string())?;
            if entry
                .command
                .as_deref()
                .is_none_or(|command| command.trim().is_empty())
            {
                return Err("it has no command".to_owned());
            }
            Ok(entry)
        };
        entries
            .into_iter()
            .map(|(name, value)| (name, entry(value)))
            .collect()
    }

    /// Returns the default agent, to which variables without a suffix belong: the marked one, or
    /// else the first. If no agent is marked and one entry is invalid, no agent is the default,
    /// because the user may have marked the agent of the invalid entry.
    fn default_agent(&mut self, entries: &AgentEntries, source: &str) -> Option<String> {
        let valid_entries = || {
            entries
                .iter()
                .filter_map(|(name, entry)| Some((name, entry.as_ref().ok()?)))
        };
        let marked: Vec<&String> = valid_entries()
            .filter(|(_, entry)| entry.default)
            .map(|(name, _)| name)
            .collect();
        match marked.as_slice() {
            [first] => Some((*first).clone()),
            [] if entries.iter().any(|(_, entry)| entry.is_err()) => None,
            [] => entries.first().map(|(name, _)| name.clone()),
            [first, second, ..] => {
                let message = format!(
                    "{first} and {second} are both marked as the default, so neither of \
                     them is the default agent"
                );
                self.add_fault(source, message, "mark only one of them");
                None
            }
        }
    }

    fn services(&mut self, config: &BridgesConfig) -> Vec<Service> {
        let (names, source) = match self.setting_variable("ENABLED_SERVICES") {
            Some(text) => {
                let names = text
                    .split(',')
                    .map(|name| name.trim().to_ascii_lowercase())
                    .filter(|name| !name.is_empty());
                (names.collect(), "ENABLED_SERVICES")
            }
            None => (config.services.clone(), "bridges.services"),
        };
        if names.is_empty() {
            // If the list of enabled services cannot be read, no service is enabled, because nobody
            // knows which services the list excludes.
            let is_broken = self
                .faults
                .iter()
                .any(|fault| fault.setting == "ENABLED_SERVICES");
            return if is_broken {
                vec![]
            } else {
                Service::ALL.to_vec()
            };
        }
        let mut found = Vec::new();
        for name in &names {
            match Service::ALL
                .into_iter()
                .find(|service| service.name() == name)
            {
                Some(service) if !found.contains(&service) => found.push(service),
                Some(_) => {}
                None => {
                    let message = format!("{source}: there is no service {name:?}");
                    self.add_fault(
                        source,
                        message,
                        "the services are slack, github, linear and telegram",
                    );
                }
            }
        }
        found
    }

    fn receivers(&mut self, config: &BridgesConfig) -> Vec<WebhookReceiver> {
        let mut receivers = Vec::new();
        for WebhookConfig {
            url,
            secret: variable,
            events,
        } in config.webhook.clone()
        {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                self.add_fault(
                    "bridges.webhook",
                    "a [[bridges.webhook]] has no url",
                    "write url = \"https://…\"",
                );
                continue;
            }
            // Keep a receiver whose secret cannot be read, with the error, so that the other
            // receivers still get events.
            let found = if variable.is_empty() {
                Ok(None)
            } else {
                self.variable(&variable)
            };
            let (secret, read_error) = match found {
                Ok(found) => (found.map(Secret), None),
                Err(why) => (None, Some(why)),
            };
            receivers.push(WebhookReceiver {
                url,
                events,
                variable,
                secret,
                read_error,
            });
        }
        receivers
    }

    /// Finds the credentials of one agent for one service: first in the environment, then in the
    /// files and commands that an earlier daemon used. Returns the credentials by variable, and the
    /// names of required variables that are missing.
    fn credentials(
        &mut self,
        agent: &AgentName,
        is_default: bool,
        service: Service,
    ) -> Result<(BTreeMap<&'static str, String>, Vec<String>), String> {
        for origin in [VariableOrigin::Environment, VariableOrigin::Remembered] {
            let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
            for (_, variable, is_needed) in CREDENTIAL_VARIABLES
                .iter()
                .filter(|credential| credential.0 == service)
            {
                let mut value = None;
                for name in own_variable_names(variable, agent, is_default) {
                    if value.is_none() {
                        value = match origin {
                            VariableOrigin::Environment => self.current_variable(&name)?,
                            VariableOrigin::Remembered => self.remembered_variable(&name)?,
                        };
                    }
                }
                match value {
                    Some(value) => _ = found.insert(*variable, value),
                    None if *is_needed => missing.push(own_variable(variable, agent, is_default)),
                    None => {}
                }
            }
            let mut names = CREDENTIAL_VARIABLES
                .iter()
                .filter(|credential| credential.0 == service);
            let is_disabled = names.any(|(_, variable, _)| {
                own_variable_names(variable, agent, is_default)
                    .iter()
                    .any(|name| self.variables.is_set_to_empty(name))
            });
            if !found.is_empty() || is_disabled {
                return Ok((found, missing));
            }
        }
        Ok((BTreeMap::new(), vec![]))
    }

    /// Builds the bridge of one agent to one service. `Err` contains the reason why the bridge does
    /// not run, or `None` if the bridge is not configured. Environment variables of other agents
    /// are never used.
    fn instance(
        &mut self,
        agent: &AgentName,
        is_default: bool,
        service: Service,
    ) -> Result<BridgeInstance, Option<String>> {
        let (mut found, missing) = self.credentials(agent, is_default, service).map_err(Some)?;
        if found.is_empty() {
            return Err(None);
        }
        let name = |variable: &str| own_variable(variable, agent, is_default);
        if !missing.is_empty() {
            return Err(Some(format!(
                "{} is not set, and the credential of another agent is never used",
                missing.join(" and ")
            )));
        }
        let mut take_value = |variable: &str| found.remove(variable).unwrap_or_default();
        let without_route = |variable: &str| {
            format!(
                "{} is not set, so the route for deliveries answers every delivery with status 503",
                name(variable)
            )
        };
        let mut warning = None;
        let credentials = match service {
            Service::Slack => {
                let bot_token = Secret(take_value("SLACK_BOT_TOKEN"));
                let app_token = found.remove("SLACK_APP_TOKEN").map(Secret);
                let signing_secret = found.remove("SLACK_SIGNING_SECRET").map(Secret);
                if app_token.is_none() && signing_secret.is_none() {
                    return Err(Some(format!(
                        "neither {} nor {} (for events over HTTP) is set, so the bridge could \
                         receive no events",
                        name("SLACK_APP_TOKEN"),
                        name("SLACK_SIGNING_SECRET")
                    )));
                }
                Credentials::Slack {
                    bot_token,
                    app_token,
                    signing_secret,
                }
            }
            Service::Github => {
                let app_id = take_value("GITHUB_APP_ID");
                // An environment variable often contains the private key as a single line, in which
                // each line break is written as \n. Restore the line breaks.
                let private_key = Secret(take_value("GITHUB_PRIVATE_KEY").replace("\\n", "\n"));
                let webhook_secret = found.remove("GITHUB_WEBHOOK_SECRET").map(Secret);
                warning = webhook_secret
                    .is_none()
                    .then(|| without_route("GITHUB_WEBHOOK_SECRET"));
                Credentials::Github {
                    app_id,
                    private_key,
                    webhook_secret,
                }
            }
            Service::Linear => {
                let access_token = Secret(take_value("LINEAR_ACCESS_TOKEN"));
                let agent_id = take_value("LINEAR_AGENT_ID");
                let webhook_secret = found.remove("LINEAR_WEBHOOK_SECRET").map(Secret);
                warning = webhook_secret
                    .is_none()
                    .then(|| without_route("LINEAR_WEBHOOK_SECRET"));
                Credentials::Linear {
                    access_token,
                    agent_id,
                    webhook_secret,
                }
            }
            Service::Telegram => Credentials::Telegram {
                bot_token: Secret(take_value("TELEGRAM_BOT_TOKEN")),
            },
        };
        let has_route = match &credentials {
            Credentials::Slack { signing_secret, .. } => signing_secret.is_some(),
            Credentials::Github { .. } | Credentials::Linear { .. } => true,
            Credentials::Telegram { .. } => false,
        };
        let route = has_route.then(|| {
            let base = format!("/webhooks/{service}");
            if is_default {
                base
            } else {
                format!("{base}/{agent}")
            }
        });
        Ok(BridgeInstance {
            agent: agent.clone(),
            service,
            route,
            credentials,
            warning,
        })
    }
}

fn trimmed(value: Option<String>) -> Option<String> {
    value
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

const AGENTS_JSON_HINT: &str = r#"write {"claude": {"command": "claude-agent-acp", "default": true}, "codex": {"command": "codex-acp"}}"#;

/// A JSON object that keeps the order of its entries. The order is needed because the first agent
/// is the default agent if no agent is marked as the default.
struct OrderedObject(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for OrderedObject {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<OrderedObject, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = OrderedObject;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of agents")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<OrderedObject, A::Error> {
                let mut found: Vec<(String, serde_json::Value)> = Vec::new();
                while let Some((name, entry)) = map.next_entry::<String, serde_json::Value>()? {
                    if found.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format!("{name} is listed twice")));
                    }
                    found.push((name, entry));
                }
                Ok(OrderedObject(found))
            }
        }
        from.deserialize_map(Visitor)
    }
}

/// Returns the suffix of an agent's variables, such as `CODEX` in `SLACK_BOT_TOKEN__CODEX`: the
/// name in upper case, with underscores for other characters.
fn variable_suffix(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

/// Returns the name under which a missing variable of an agent is reported. For the default agent,
/// the name has no suffix.
fn own_variable(variable: &str, agent: &AgentName, is_default: bool) -> String {
    if is_default {
        variable.to_owned()
    } else {
        format!("{variable}__{}", variable_suffix(agent.as_str()))
    }
}

/// Returns the names under which an agent's variable is looked up, the most specific name first.
/// Variables of the default agent may have the agent's suffix or no suffix.
fn own_variable_names(variable: &str, agent: &AgentName, is_default: bool) -> Vec<String> {
    let own = format!("{variable}__{}", variable_suffix(agent.as_str()));
    if is_default {
        vec![own, variable.to_owned()]
    } else {
        vec![own]
    }
}

#[cfg(test)]
mod tests;
