//! The bridge registry: the list of agents, the chat services to which each of them is connected,
//! and the credentials of each connection.
//!
//! The registry is read from `[agents.NAME]` and `[bridges]` of the user's settings, or from the
//! environment variables of an older bridge program (`AGENTS_JSON`, `SLACK_BOT_TOKEN`,
//! `SLACK_BOT_TOKEN__CODEX`, …). A credential gives an agent its own identity at a service.
//! Therefore an agent never uses another agent's credential. A bridge is the connection of one
//! agent to one service. If the agent lacks a credential for the service, the bridge does not run,
//! and the reported reason names the missing variable.

mod read; // from the settings and the environment

use std::collections::BTreeMap;
use std::fmt;

use regatta_core::conversation::{ChangeDestination, FollowUps, Service};
use regatta_core::ids::{AgentName, ProjectName};
use serde::{Deserialize, Serialize};

pub use read::{
    BridgeSettings, BridgeVariables, DEFAULT_COMMAND, SETTING_VARIABLES, SettingFault,
    VariableOrigin, is_bridge_variable, read_registry,
};

/// The settings of one agent: a section `[agents.NAME]` in the user's settings file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentEntry {
    /// The command line that starts the agent's program. The program must speak ACP, the Agent
    /// Client Protocol.
    pub command: Option<String>,
    /// Name of a program that Regatta knows how to start, such as `claude`. This setting replaces
    /// `command`.
    pub preset: Option<String>,
    /// True for the default agent. Environment variables without an agent's suffix, such as
    /// `SLACK_BOT_TOKEN`, belong to this agent.
    pub default: bool,
}

/// The section `[bridges]` of the user's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BridgesConfig {
    /// Names of the chat services that may be used, such as `slack`. If empty, all services may be
    /// used.
    pub services: Vec<String>,
    /// People who may ask an agent for work, such as `slack:U123` or `github:octocat`. The entry
    /// `github:write` stands for everybody with write access, and `slack:team` or `linear:team` for
    /// all members.
    pub allow: Vec<String>,
    /// Bots that may ask an agent for work, named by their id or name in the service.
    pub bots: Vec<String>,
    pub follow_ups: FollowUps,
    pub refusals: RefusalPolicy,
    pub context: ContextPolicy,
    pub deliver: ChangeDestination,
    /// Number of hours without a message after which the workspace of a conversation is removed.
    pub idle_hours: u64,
    /// Project of the work that comes from channels and repositories without an entry in `map`.
    pub project: Option<ProjectName>,
    /// Address at which the readers of posts can open Regatta's web page. Posts link to this
    /// address.
    pub dashboard: Option<String>,
    pub map: Vec<ChannelMapping>,
    /// API address for each service that is not reached at its usual address, such as `slack =
    /// "https://slack-gov.com/api"`.
    pub url: BTreeMap<String, String>,
    /// Factor by which the rate limits and intervals of the services run faster than real time. The
    /// factor is 1, except in tests with imitated services.
    pub clock: f64,
    /// Receivers to which Regatta sends its own events as signed webhooks.
    pub webhook: Vec<WebhookConfig>,
}

impl Default for BridgesConfig {
    fn default() -> BridgesConfig {
        BridgesConfig {
            services: vec![],
            allow: vec!["github:write".into()],
            bots: vec![],
            follow_ups: FollowUps::default(),
            refusals: RefusalPolicy::default(),
            context: ContextPolicy::default(),
            deliver: ChangeDestination::default(),
            idle_hours: 24,
            project: None,
            dashboard: None,
            map: vec![],
            url: BTreeMap::new(),
            clock: 1.0,
            webhook: vec![],
        }
    }
}

/// Regatta's reply to a person who is not allowed to ask for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalPolicy {
    #[default]
    Silent,
    /// Regatta answers with one polite line in the thread.
    Reply,
}

/// The part of a thread that an agent receives together with a message from the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextPolicy {
    #[default]
    None,
    /// In addition to the message for the agent, the agent receives the earlier visible messages of
    /// the thread.
    Thread,
}

/// An entry `[[bridges.map]]`: a channel or repository of a service, and the project and rules for
/// work that is requested there. The entry applies to all agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelMapping {
    /// Id of the Slack channel that the entry is for, such as `C0123`.
    pub slack: Option<String>,
    /// The GitHub repository that the entry is for, as `owner/repository`.
    pub github: Option<String>,
    /// Key of the Linear team that the entry is for, such as `ENG`.
    pub linear: Option<String>,
    /// Id of the Telegram chat that the entry is for.
    pub telegram: Option<String>,
    pub project: Option<ProjectName>,
    /// Directory of the project. The requests from this channel are about this directory, and the
    /// agent's instructions name it.
    pub directory: Option<String>,
    /// Instructions that the agent receives at the start of each conversation in the channel.
    pub prompt: Option<String>,
    pub deliver: Option<ChangeDestination>,
    pub follow_ups: Option<FollowUps>,
    pub context: Option<ContextPolicy>,
}

impl ChannelMapping {
    fn channel_of(&self, service: Service) -> Option<&str> {
        match service {
            Service::Slack => self.slack.as_deref(),
            Service::Github => self.github.as_deref(),
            Service::Linear => self.linear.as_deref(),
            Service::Telegram => self.telegram.as_deref(),
        }
    }
}

/// An entry `[[bridges.webhook]]`: an address that receives Regatta's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    pub url: String,
    /// Name of the environment variable that contains the secret with which the events are signed.
    pub secret: String,
    /// Prefixes of the kinds of events to send, such as `task.` or `landing.landed`. If empty, all
    /// events are sent.
    pub events: Vec<String>,
}

/// A receiver of Regatta's events, with the secret that signs these events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookReceiver {
    pub url: String,
    pub events: Vec<String>,
    /// Name of the environment variable that contains the receiver's signing secret.
    pub variable: String,
    pub secret: Option<Secret>,
    /// The reason why the variable with the secret could not be read, or `None` if reading it
    /// succeeded.
    pub read_error: Option<String>,
}

impl WebhookReceiver {
    /// Returns the reason why no events can be sent to the receiver, or `None` if its settings are
    /// valid. The text does not contain the secret.
    pub fn problem(&self) -> Option<String> {
        let name = &self.variable;
        match (&self.read_error, &self.secret) {
            (Some(why), _) => Some(format!("{name} cannot be read: {why}")),
            (None, None) if name.is_empty() => Some("no variable is given for its secret".into()),
            (None, None) => Some(format!("{name} is not set")),
            (None, Some(secret)) => crate::outgoing_webhook::signing_key(secret)
                .err()
                .map(|why| format!("{name} {why}")),
        }
    }

    /// Returns the host and port of the receiver's address, for logs. The other parts of the
    /// address may be secret.
    pub fn host(&self) -> &str {
        let rest = self
            .url
            .split_once("://")
            .map_or(self.url.as_str(), |(_, rest)| rest);
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        host.rsplit('@').next().unwrap_or_default()
    }
}

/// A secret text, such as a token. Its debug output does not show the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The credentials with which one agent acts in one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Slack {
        bot_token: Secret,
        /// App-level token for Socket Mode, in which Slack sends events through a WebSocket.
        app_token: Option<Secret>,
        /// Secret that verifies events which Slack sends over HTTP.
        signing_secret: Option<Secret>,
    },
    Github {
        app_id: String,
        private_key: Secret,
        webhook_secret: Option<Secret>,
    },
    Linear {
        access_token: Secret,
        agent_id: String,
        webhook_secret: Option<Secret>,
    },
    Telegram {
        bot_token: Secret,
    },
}

impl Credentials {
    fn secrets(&self) -> Vec<&Secret> {
        match self {
            Credentials::Slack {
                bot_token,
                app_token,
                signing_secret,
            } => [Some(bot_token), app_token.as_ref(), signing_secret.as_ref()]
                .into_iter()
                .flatten()
                .collect(),
            Credentials::Github {
                private_key,
                webhook_secret,
                ..
            } => [Some(private_key), webhook_secret.as_ref()]
                .into_iter()
                .flatten()
                .collect(),
            Credentials::Linear {
                access_token,
                webhook_secret,
                ..
            } => [Some(access_token), webhook_secret.as_ref()]
                .into_iter()
                .flatten()
                .collect(),
            Credentials::Telegram { bot_token } => vec![bot_token],
        }
    }

    /// Returns `text` with these credentials replaced by `…`. The replacement is needed because a
    /// service's error text may repeat the credential that the caller sent.
    pub fn redact(&self, text: &str) -> String {
        let secrets = self.secrets();
        let known = secrets
            .iter()
            .map(|secret| secret.reveal())
            .filter(|secret| !secret.is_empty());
        known.fold(text.to_owned(), |redacted, secret| {
            redacted.replace(secret, "…")
        })
    }
}

/// A configured bridge: the connection of one agent to one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeInstance {
    pub agent: AgentName,
    pub service: Service,
    /// Path on the daemon's web server at which the service delivers events. `None` if the bridge
    /// fetches or streams the events.
    pub route: Option<String>,
    pub credentials: Credentials,
    /// A text that names a missing setting and the consequence. The bridge runs without this
    /// setting.
    pub warning: Option<String>,
}

/// A configured bridge (the connection of one agent to one service) that does not run, with the
/// reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DisabledBridge {
    pub agent: AgentName,
    pub service: Service,
    pub why: String,
    /// True if the reason is also in [`BridgeRegistry::faults`], so that it is not reported twice.
    #[serde(skip)]
    pub is_reported: bool,
}

/// The configuration of all bridges: the agents, the bridges that can run, and the bridges that
/// cannot run.
#[derive(Clone, Debug, Default)]
pub struct BridgeRegistry {
    /// The agents in the order of the configuration. The default agent has `default` set.
    pub agents: Vec<(AgentName, AgentEntry)>,
    pub instances: Vec<BridgeInstance>,
    pub disabled: Vec<DisabledBridge>,
    /// The configured receivers of Regatta's events, one for each entry `[[bridges.webhook]]`.
    pub receivers: Vec<WebhookReceiver>,
    pub config: BridgesConfig,
    /// Settings that have no effect because of an error in them.
    pub faults: Vec<SettingFault>,
    /// Names of the environment variables whose values are used, each with the origin of its value.
    pub used_variables: BTreeMap<String, VariableOrigin>,
}

/// The rules for conversations in one channel or repository. Defaults are already filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRules {
    pub project: ProjectName,
    pub prompt: Option<String>,
    pub deliver: ChangeDestination,
    pub follow_ups: FollowUps,
    pub context: ContextPolicy,
    pub idle_ms: u64,
}

impl BridgeRegistry {
    /// Returns the rules for a channel or repository. The rules are the same for all agents.
    /// `projects` are the known projects.
    pub fn channel_rules(
        &self,
        service: Service,
        channel: &str,
        projects: &[ProjectName],
    ) -> Result<ChannelRules, String> {
        let config = &self.config;
        let mapping = config
            .map
            .iter()
            .find(|mapping| mapping.channel_of(service) == Some(channel))
            .cloned()
            .unwrap_or_default();
        let mapped_project = mapping.project.clone().or_else(|| config.project.clone());
        let project = match (mapped_project, projects) {
            (Some(project), _) if projects.contains(&project) => project,
            (Some(project), _) => {
                return Err(format!(
                    "the mapping names {project}, and there is no such project"
                ));
            }
            (None, [only]) => only.clone(),
            (None, []) => {
                return Err("there is no project yet; run regatta init in a repository".into());
            }
            (None, _) => {
                let names: Vec<&str> = projects.iter().map(ProjectName::as_str).collect();
                return Err(format!(
                    "{service} {channel} is mapped to no project; add [[bridges.map]] with \
                     {service} = \"{channel}\" and project = one of {}",
                    names.join(", ")
                ));
            }
        };
        let directory_note = mapping
            .directory
            .map(|directory| format!("The work here is about the directory `{directory}`."));
        let prompt_parts: Vec<String> = directory_note.into_iter().chain(mapping.prompt).collect();
        Ok(ChannelRules {
            project,
            prompt: (!prompt_parts.is_empty()).then(|| prompt_parts.join("\n\n")),
            deliver: mapping.deliver.unwrap_or(config.deliver),
            follow_ups: mapping.follow_ups.unwrap_or(config.follow_ups),
            context: mapping.context.unwrap_or(config.context),
            idle_ms: config.idle_hours.clamp(1, 24 * 365) * 3_600_000,
        })
    }

    /// Returns the address of a service's API.
    pub fn service_url(&self, service: Service) -> String {
        let default_url = match service {
            Service::Slack => "https://slack.com/api",
            Service::Github => "https://api.github.com",
            Service::Linear => "https://api.linear.app/graphql",
            Service::Telegram => "https://api.telegram.org",
        };
        let url = self
            .config
            .url
            .get(service.name())
            .map_or(default_url, String::as_str);
        url.trim_end_matches('/').to_owned()
    }
}

/// The facts that a service reports about a person or bot who asks an agent for work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Id of the person at the service. The setting `allow` can list a person by this id or by
    /// `name`.
    pub id: String,
    pub name: String,
    /// True if the person is a full member of the Slack or Linear workspace in which the agent's
    /// app is installed.
    pub is_in_team: bool,
    /// True if the person has write access to the GitHub repository.
    pub can_write: bool,
    pub is_bot: bool,
    /// True if a lookup at the service failed, so that the other facts may be incomplete. In this
    /// case the person is looked up again before a refusal.
    pub is_uncertain: bool,
}

/// Returns whether the settings allow a person or bot to ask agents for work.
pub fn may_ask(config: &BridgesConfig, service: Service, requester: &Requester) -> bool {
    let is_listed = |entry: &str, word: &str| entry == format!("{service}:{word}");
    if requester.is_bot {
        let is_listed_bot = |s: &String| {
            is_listed(s, &requester.id) || is_listed(s, &requester.name) || *s == requester.id
        };
        return config.bots.iter().any(is_listed_bot);
    }
    config.allow.iter().any(|entry| {
        (!requester.id.is_empty() && is_listed(entry, &requester.id))
            // In Slack and Linear anybody can choose any display name, so only ids count there. In
            // GitHub and Telegram the name is a unique login, so it counts too.
            || (!requester.name.is_empty() && matches!(service, Service::Github | Service::Telegram) && is_listed(entry, &requester.name))
            || (requester.is_in_team && is_listed(entry, "team"))
            || (requester.can_write && is_listed(entry, "write"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_follows_from_the_allow_list() {
        let config = |allow: &[&str], bots: &[&str]| BridgesConfig {
            allow: allow.iter().map(|allow| (*allow).to_owned()).collect(),
            bots: bots.iter().map(|bot| (*bot).to_owned()).collect(),
            ..BridgesConfig::default()
        };
        let ann = Requester {
            id: "U1".into(),
            name: "ann".into(),
            is_in_team: true,
            ..Requester::default()
        };
        let eve = Requester {
            id: "U9".into(),
            name: "U1".into(),
            ..Requester::default()
        };
        let bot = Requester {
            is_bot: true,
            ..ann.clone()
        };
        let writer = Requester {
            id: "octo".into(),
            can_write: true,
            ..Requester::default()
        };
        for (allow, service, requester, expected) in [
            (&["slack:U1"][..], Service::Slack, &ann, true),
            (&["slack:U1"], Service::Linear, &ann, false),
            (&["slack:U1"], Service::Slack, &eve, false), // anybody can choose a display name
            (&["slack:team"], Service::Slack, &ann, true),
            (&["slack:team"], Service::Slack, &eve, false),
            (&["slack:U1", "slack:team"], Service::Slack, &bot, false),
            (&["github:write"], Service::Github, &writer, true),
            (&["github:write"], Service::Github, &ann, false),
            (&[], Service::Github, &writer, false),
        ] {
            assert_eq!(
                may_ask(&config(allow, &[]), service, requester),
                expected,
                "{allow:?} {requester:?}"
            );
        }
        assert!(may_ask(&config(&[], &["slack:U1"]), Service::Slack, &bot));
        assert!(!format!("{:?}", Secret::new("xoxb-1")).contains("xoxb"));
    }

    #[test]
    fn mapping_applies_to_every_agent() {
        let shop = ProjectName::new("shop").unwrap();
        let docs = ProjectName::new("docs").unwrap();
        let map = ChannelMapping {
            slack: Some("C1".into()),
            project: Some(docs.clone()),
            directory: Some("web".into()),
            prompt: Some("Be brief.".into()),
            deliver: Some(ChangeDestination::Pull),
            ..ChannelMapping::default()
        };
        let registry = BridgeRegistry {
            config: BridgesConfig {
                map: vec![map],
                ..BridgesConfig::default()
            },
            ..BridgeRegistry::default()
        };
        let both = [docs.clone(), shop.clone()];
        let rules = registry.channel_rules(Service::Slack, "C1", &both).unwrap();
        assert_eq!(
            (rules.project, rules.deliver),
            (docs.clone(), ChangeDestination::Pull)
        );
        assert!(rules.prompt.unwrap().contains("`web`"));
        assert!(
            registry
                .channel_rules(Service::Slack, "C2", &both)
                .unwrap_err()
                .contains("[[bridges.map]]")
        );
        assert_eq!(
            registry
                .channel_rules(Service::Slack, "C2", std::slice::from_ref(&shop))
                .unwrap()
                .project,
            shop
        );
        assert!(
            registry
                .channel_rules(Service::Slack, "C1", &[shop])
                .unwrap_err()
                .contains("docs")
        );
    }

    /// A webhook whose secret is missing, unreadable or unusable reports the reason, but not the
    /// secret.
    #[test]
    fn webhook_without_a_usable_secret_has_a_reason() {
        let receiver =
            |variable: &str, secret: Option<&str>, unreadable: Option<&str>| WebhookReceiver {
                url: "https://me:pass@hooks.example.com:8443/x?y".into(),
                events: vec![],
                variable: variable.into(),
                secret: secret.map(Secret::new),
                read_error: unreadable.map(str::to_owned),
            };
        for (webhook_receiver, expected) in [
            (
                receiver("", None, None),
                Some("no variable is given for its secret"),
            ),
            (receiver("HOOK", None, None), Some("HOOK is not set")),
            (
                receiver("HOOK", None, Some("no such file")),
                Some("HOOK cannot be read: no such file"),
            ),
            (
                receiver("HOOK", Some("whsec_!"), None),
                Some("HOOK begins with whsec_, and what follows is not base64"),
            ),
            (receiver("HOOK", Some("sixteen characters"), None), None),
        ] {
            assert_eq!(webhook_receiver.problem().as_deref(), expected);
            assert_eq!(webhook_receiver.host(), "hooks.example.com:8443");
        }
    }
}
