//! Who is there: the agents of the configuration, and for each service the credentials that are that agent's own.
//!
//! Read from `[agents.NAME]` and `[bridges]` of the user's settings, or from the variables that an older bridge knew
//! (`AGENTS_JSON`, `SLACK_BOT_TOKEN`, `SLACK_BOT_TOKEN__CODEX`, …). A credential is an identity: it never falls back to
//! another agent's. A pair of agent and service that lacks one is off, and says what it lacks.

use std::collections::BTreeMap;
use std::fmt;

use regatta_core::conversation::{Deliver, FollowUps, Service};
use regatta_core::ids::{AgentName, ProjectName};
use serde::{Deserialize, Serialize};

/// What the settings say of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentEntry {
    /// The command line that starts it; it must speak ACP.
    pub command: Option<String>,
    /// Or a program that Regatta knows by name.
    pub preset: Option<String>,
    /// Whether it is the one that variables without a suffix are for.
    pub default: bool,
}

/// `[bridges]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Only these services, if any are named.
    pub services: Vec<String>,
    /// Who may ask for work: `slack:U123`, `github:octocat`, `github:write`, `slack:team`, `linear:team`, …
    pub allow: Vec<String>,
    /// Bots that may, by their id or name in the service.
    pub bots: Vec<String>,
    pub follow_ups: FollowUps,
    pub refusals: Refusals,
    pub context: Context,
    pub deliver: Deliver,
    /// After how many hours an idle conversation gives its workspace back.
    pub idle_hours: u64,
    /// The project of a channel or repository that no mapping names.
    pub project: Option<ProjectName>,
    /// Where people find the dashboard, for links.
    pub dashboard: Option<String>,
    pub map: Vec<Mapping>,
    /// Where the services are, if not at their usual addresses: `slack = "https://slack-gov.com/api"`.
    pub url: BTreeMap<String, String>,
    /// How many times faster than usual the services' clocks run: only for tests against services that are not real.
    pub clock: f64,
    /// Receivers of everything that happens, signed.
    pub webhook: Vec<Webhook>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            services: vec![],
            allow: vec!["github:write".into()],
            bots: vec![],
            follow_ups: FollowUps::default(),
            refusals: Refusals::default(),
            context: Context::default(),
            deliver: Deliver::default(),
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

/// What who may not ask is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusals {
    #[default]
    Silent,
    /// One polite line.
    Reply,
}

/// What an agent is told of a thread beside what was said to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    #[default]
    None,
    /// What people see of the thread.
    Thread,
}

/// `[[bridges.map]]`: a channel or repository and what is worked on there, whichever agent is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mapping {
    /// A Slack channel's id.
    pub slack: Option<String>,
    /// `owner/repository`.
    pub github: Option<String>,
    /// A Linear team's key.
    pub linear: Option<String>,
    /// A Telegram chat's id.
    pub telegram: Option<String>,
    pub project: Option<ProjectName>,
    /// A directory of the project that the work is about.
    pub directory: Option<String>,
    /// Said to the agent with every conversation.
    pub prompt: Option<String>,
    pub deliver: Option<Deliver>,
    pub follow_ups: Option<FollowUps>,
    pub context: Option<Context>,
}

impl Mapping {
    fn of(&self, service: Service) -> Option<&str> {
        match service {
            Service::Slack => self.slack.as_deref(),
            Service::Github => self.github.as_deref(),
            Service::Linear => self.linear.as_deref(),
            Service::Telegram => self.telegram.as_deref(),
        }
    }
}

/// `[[bridges.webhook]]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Webhook {
    pub url: String,
    /// The variable that holds the secret it is signed with.
    pub secret: String,
    /// Only kinds of events that begin so, if any are named: `task.`, `landing.landed`.
    pub events: Vec<String>,
}

/// Somebody who is told what happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub url: String,
    pub events: Vec<String>,
    /// Where its secret is to be found, and the secret; without one it is told nothing.
    pub variable: String,
    pub secret: Option<Secret>,
    /// Why its secret could not be read, if that was tried and failed.
    pub unreadable: Option<String>,
}

impl Receiver {
    /// Why it is told nothing, in words that do not tell the secret.
    pub fn trouble(&self) -> Option<String> {
        let name = &self.variable;
        match (&self.unreadable, &self.secret) {
            (Some(why), _) => Some(format!("{name} cannot be read: {why}")),
            (None, None) if name.is_empty() => Some("no variable is named that has its secret".into()),
            (None, None) => Some(format!("{name} is not set")),
            (None, Some(secret)) => crate::webhook::key_of(secret).err().map(|why| format!("{name} {why}")),
        }
    }

    /// Who it is, without what its address may have that is secret.
    pub fn host(&self) -> &str {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |it| it.1);
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        host.rsplit('@').next().unwrap_or_default()
    }
}

/// A secret. It prints as nothing.
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

/// How an agent reaches a service, in its own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Slack {
        bot_token: Secret,
        /// For Socket Mode.
        app_token: Option<Secret>,
        /// For events over HTTP.
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
            Credentials::Slack { bot_token, app_token, signing_secret } => {
                [Some(bot_token), app_token.as_ref(), signing_secret.as_ref()].into_iter().flatten().collect()
            }
            Credentials::Github { private_key, webhook_secret, .. } => {
                [Some(private_key), webhook_secret.as_ref()].into_iter().flatten().collect()
            }
            Credentials::Linear { access_token, webhook_secret, .. } => {
                [Some(access_token), webhook_secret.as_ref()].into_iter().flatten().collect()
            }
            Credentials::Telegram { bot_token } => vec![bot_token],
        }
    }

    /// Words without any of them, whoever said them: a service may give back what it was sent.
    pub fn kept_out_of(&self, words: &str) -> String {
        let secrets = self.secrets();
        let known = secrets.iter().map(|it| it.reveal()).filter(|it| !it.is_empty());
        known.fold(words.to_owned(), |words, secret| words.replace(secret, "…"))
    }
}

/// One agent at one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub agent: AgentName,
    pub service: Service,
    /// Where its deliveries come in; `None` where it fetches them.
    pub route: Option<String>,
    pub credentials: Credentials,
    /// What it lacks to be whole, though it runs.
    pub warning: Option<String>,
}

/// A pair that is off, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Off {
    pub agent: AgentName,
    pub service: Service,
    pub why: String,
}

/// Agents, instances, and what is off.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// In the order in which they are listed; the default is marked.
    pub agents: Vec<(AgentName, AgentEntry)>,
    pub instances: Vec<Instance>,
    pub off: Vec<Off>,
    /// Who is told what happens.
    pub receivers: Vec<Receiver>,
    pub config: Config,
}

/// What the registry cannot be made of, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub what: String,
    pub hint: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.hint)
    }
}

fn unusable(what: impl Into<String>, hint: &str) -> Unusable {
    Unusable { what: what.into(), hint: hint.into() }
}

/// The successor of the program that an older bridge started when nothing was configured.
pub const USUAL_COMMAND: &str = "claude-agent-acp";

/// The credentials of each service: the variable, and whether the pair is off without it.
const VARIABLES: &[(Service, &str, bool)] = &[
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

/// Reads who is there. `variable` gives a variable's value, whatever it comes from.
pub fn read(
    agents: &[(String, AgentEntry)],
    config: Config,
    variable: &dyn Fn(&str) -> Result<Option<String>, String>,
) -> Result<Registry, Unusable> {
    let ask = |name: &str| {
        let found = variable(name).map_err(|why| unusable(format!("{name} cannot be read: {why}"), "mend it"))?;
        Ok::<_, Unusable>(found.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()))
    };
    let listed = listed(agents, &ask)?;
    let default = default_of(&listed)?;
    let services = services(&config, &ask)?;
    let mut receivers = Vec::new();
    for Webhook { url, secret: variable, events } in config.webhook.clone() {
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(unusable("a [[bridges.webhook]] has no url", "write url = \"https://…\""));
        }
        // One that cannot be read keeps nobody else from being told.
        let (secret, unreadable) = match if variable.is_empty() { Ok(None) } else { ask(&variable) } {
            Ok(found) => (found.map(Secret), None),
            Err(why) => (None, Some(why.what)),
        };
        receivers.push(Receiver { url, events, variable, secret, unreadable });
    }
    let mut found = Registry { config, receivers, ..Registry::default() };
    for (name, entry) in listed {
        let agent = AgentName::new(&name).map_err(|it| unusable(it.to_string(), "give the agent another name"))?;
        let is_default = name == default;
        for service in &services {
            match instance(&agent, is_default, *service, &ask) {
                Ok(it) => found.instances.push(it),
                Err(Some(why)) => found.off.push(Off { agent: agent.clone(), service: *service, why }),
                Err(None) => {}
            }
        }
        found.agents.push((agent, AgentEntry { default: is_default, ..entry }));
    }
    let mut suffixes: BTreeMap<String, &AgentName> = BTreeMap::new();
    for (name, _) in &found.agents {
        if let Some(other) = suffixes.insert(suffix(name), name) {
            return Err(unusable(
                format!("{other} and {name} would have the same variables (…__{})", suffix(name)),
                "rename one of them",
            ));
        }
    }
    Ok(found)
}

fn listed(
    agents: &[(String, AgentEntry)],
    ask: &dyn Fn(&str) -> Result<Option<String>, Unusable>,
) -> Result<Vec<(String, AgentEntry)>, Unusable> {
    if !agents.is_empty() {
        return Ok(agents.to_vec());
    }
    if let Some(text) = ask("AGENTS_JSON")? {
        let bad = |why: String| unusable(format!("AGENTS_JSON cannot be understood: {why}"), SHAPE);
        let Listed(found) = serde_json::from_str(&text).map_err(|it| bad(it.to_string()))?;
        if found.is_empty() {
            return Err(bad("it names no agent".into()));
        }
        if let Some((name, _)) = found.iter().find(|it| it.1.command.as_deref().is_none_or(|it| it.trim().is_empty())) {
            return Err(bad(format!("{name} has no command")));
        }
        return Ok(found);
    }
    let command = ask("ACP_AGENT_COMMAND")?.unwrap_or_else(|| USUAL_COMMAND.to_owned());
    Ok(vec![("default".into(), AgentEntry { command: Some(command), preset: None, default: true })])
}

const SHAPE: &str =
    r#"write {"claude": {"command": "claude-agent-acp", "default": true}, "codex": {"command": "codex-acp"}}"#;

/// A JSON object in the order in which it is written: without a default the first counts.
struct Listed(Vec<(String, AgentEntry)>);

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Listed, D::Error> {
        struct Reader;
        impl<'de> serde::de::Visitor<'de> for Reader {
            type Value = Listed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of agents")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
                let mut found: Vec<(String, AgentEntry)> = Vec::new();
                while let Some((name, entry)) = map.next_entry::<String, AgentEntry>()? {
                    if found.iter().any(|it| it.0 == name) {
                        return Err(serde::de::Error::custom(format!("{name} is there twice")));
                    }
                    found.push((name, entry));
                }
                Ok(Listed(found))
            }
        }
        from.deserialize_map(Reader)
    }
}

fn default_of(listed: &[(String, AgentEntry)]) -> Result<String, Unusable> {
    let marked: Vec<&String> = listed.iter().filter(|it| it.1.default).map(|it| &it.0).collect();
    match marked.as_slice() {
        [] => listed.first().map(|it| it.0.clone()).ok_or_else(|| unusable("no agent is listed", "list one")),
        [one] => Ok((*one).clone()),
        [one, other, ..] => {
            Err(unusable(format!("{one} and {other} are both marked as the default"), "mark only one of them"))
        }
    }
}

fn services(config: &Config, ask: &dyn Fn(&str) -> Result<Option<String>, Unusable>) -> Result<Vec<Service>, Unusable> {
    let named = match ask("ENABLED_SERVICES")? {
        Some(text) => text.split(',').map(|it| it.trim().to_ascii_lowercase()).filter(|it| !it.is_empty()).collect(),
        None => config.services.clone(),
    };
    if named.is_empty() {
        return Ok(Service::ALL.to_vec());
    }
    let known = |name: &String| {
        Service::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
            unusable(format!("there is no service {name:?}"), "they are slack, github, linear and telegram")
        })
    };
    named.iter().map(known).collect()
}

/// What an agent's variables end with: upper case, with an underscore for whatever no variable may have.
pub fn suffix(agent: &AgentName) -> String {
    agent.as_str().chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_uppercase() } else { '_' }).collect()
}

/// The name of an agent's own variable.
pub fn variable_of(variable: &str, agent: &AgentName, is_default: bool) -> String {
    if is_default { variable.to_owned() } else { format!("{variable}__{}", suffix(agent)) }
}

/// One pair: whole, off for a reason, or not wanted at all. It looks at no other agent's variables.
fn instance(
    agent: &AgentName,
    is_default: bool,
    service: Service,
    ask: &dyn Fn(&str) -> Result<Option<String>, Unusable>,
) -> Result<Instance, Option<String>> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    let mut lacks = Vec::new();
    for (_, variable, needed) in VARIABLES.iter().filter(|it| it.0 == service) {
        let own = variable_of(variable, agent, is_default);
        match ask(&own) {
            Ok(Some(value)) => _ = found.insert(variable, value),
            Ok(None) if *needed => lacks.push(own),
            Ok(None) => {}
            // It is wanted, and it is this pair's alone: the others go on.
            Err(it) => return Err(Some(it.what)),
        }
    }
    if found.is_empty() {
        return Err(None); // nobody wants it
    }
    let name = |variable: &str| variable_of(variable, agent, is_default);
    if !lacks.is_empty() {
        return Err(Some(format!("{} is not set, and no other agent's is used for it", lacks.join(" and "))));
    }
    let secret = |found: &mut BTreeMap<&str, String>, variable: &str| found.remove(variable).map(Secret);
    let needed = |found: &mut BTreeMap<&str, String>, variable: &str| found.remove(variable).unwrap_or_default();
    let hook = |it: &Option<Secret>, variable: &str| {
        it.is_none().then(|| format!("{} is not set: its route answers 503 and takes nothing", name(variable)))
    };
    let mut warning = None;
    let credentials = match service {
        Service::Slack => {
            let (app_token, signing_secret) =
                (secret(&mut found, "SLACK_APP_TOKEN"), secret(&mut found, "SLACK_SIGNING_SECRET"));
            if app_token.is_none() && signing_secret.is_none() {
                let why = format!(
                    "{} is not set (nor {} for events over HTTP), so nothing could be heard",
                    name("SLACK_APP_TOKEN"),
                    name("SLACK_SIGNING_SECRET")
                );
                return Err(Some(why));
            }
            let bot_token = Secret(needed(&mut found, "SLACK_BOT_TOKEN"));
            Credentials::Slack { bot_token, app_token, signing_secret }
        }
        Service::Github => {
            let webhook_secret = secret(&mut found, "GITHUB_WEBHOOK_SECRET");
            warning = hook(&webhook_secret, "GITHUB_WEBHOOK_SECRET");
            // A key in one line has its line breaks written out.
            let private_key = Secret(needed(&mut found, "GITHUB_PRIVATE_KEY").replace("\\n", "\n"));
            Credentials::Github { app_id: needed(&mut found, "GITHUB_APP_ID"), private_key, webhook_secret }
        }
        Service::Linear => {
            let webhook_secret = secret(&mut found, "LINEAR_WEBHOOK_SECRET");
            warning = hook(&webhook_secret, "LINEAR_WEBHOOK_SECRET");
            let access_token = Secret(needed(&mut found, "LINEAR_ACCESS_TOKEN"));
            Credentials::Linear { access_token, agent_id: needed(&mut found, "LINEAR_AGENT_ID"), webhook_secret }
        }
        Service::Telegram => Credentials::Telegram { bot_token: Secret(needed(&mut found, "TELEGRAM_BOT_TOKEN")) },
    };
    let takes = match &credentials {
        Credentials::Slack { signing_secret, .. } => signing_secret.is_some(),
        Credentials::Github { .. } | Credentials::Linear { .. } => true,
        Credentials::Telegram { .. } => false,
    };
    let route = takes.then(|| {
        let base = format!("/webhooks/{service}");
        if is_default { base } else { format!("{base}/{agent}") }
    });
    Ok(Instance { agent: agent.clone(), service, route, credentials, warning })
}

/// What holds for a channel or repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub project: ProjectName,
    pub prompt: Option<String>,
    pub deliver: Deliver,
    pub follow_ups: FollowUps,
    pub context: Context,
    pub idle_ms: u64,
}

impl Registry {
    /// What holds for a channel or repository, whichever agent is asked there; `projects` are those there are.
    pub fn rules(&self, service: Service, channel: &str, projects: &[ProjectName]) -> Result<Rules, String> {
        let config = &self.config;
        let mapping = config.map.iter().find(|it| it.of(service) == Some(channel)).cloned().unwrap_or_default();
        let named = mapping.project.clone().or_else(|| config.project.clone());
        let project = match (named, projects) {
            (Some(project), _) if projects.contains(&project) => project,
            (Some(project), _) => return Err(format!("the mapping names {project}, and there is no such project")),
            (None, [only]) => only.clone(),
            (None, []) => return Err("there is no project yet: regatta init in a repository".into()),
            (None, _) => {
                let names: Vec<&str> = projects.iter().map(ProjectName::as_str).collect();
                return Err(format!(
                    "{service} {channel} is mapped to no project; add [[bridges.map]] with {service} = \"{channel}\" and \
                     project = one of {}",
                    names.join(", ")
                ));
            }
        };
        let place = mapping.directory.map(|it| format!("The work here is about the directory `{it}`."));
        let words: Vec<String> = place.into_iter().chain(mapping.prompt).collect();
        Ok(Rules {
            project,
            prompt: (!words.is_empty()).then(|| words.join("\n\n")),
            deliver: mapping.deliver.unwrap_or(config.deliver),
            follow_ups: mapping.follow_ups.unwrap_or(config.follow_ups),
            context: mapping.context.unwrap_or(config.context),
            idle_ms: config.idle_hours.clamp(1, 24 * 365) * 3_600_000,
        })
    }

    /// Where a service is.
    pub fn url(&self, service: Service) -> String {
        let usual = match service {
            Service::Slack => "https://slack.com/api",
            Service::Github => "https://api.github.com",
            Service::Linear => "https://api.linear.app/graphql",
            Service::Telegram => "https://api.telegram.org",
        };
        let given = self.config.url.get(service.name()).map_or(usual, String::as_str);
        given.trim_end_matches('/').to_owned()
    }
}

/// What is known of somebody who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// As the service knows them, and as people do; either may be listed.
    pub id: String,
    pub name: String,
    /// They belong to the team that the agent's app is installed in, and are no guest.
    pub in_team: bool,
    /// They may write to the repository.
    pub may_write: bool,
    pub is_bot: bool,
    /// The service could not be asked about them just now: they are not known to be a stranger.
    pub unsure: bool,
}

/// Whether somebody may ask for work.
pub fn may(config: &Config, service: Service, who: &Standing) -> bool {
    let is = |entry: &str, word: &str| entry == format!("{service}:{word}");
    if who.is_bot {
        let named = |it: &String| is(it, &who.id) || is(it, &who.name) || *it == who.id;
        return config.bots.iter().any(named);
    }
    config.allow.iter().any(|entry| {
        (!who.id.is_empty() && is(entry, &who.id))
            // Display names of Slack and Linear are anybody's to choose; a login is not.
            || (!who.name.is_empty() && matches!(service, Service::Github | Service::Telegram) && is(entry, &who.name))
            || (who.in_team && is(entry, "team"))
            || (who.may_write && is(entry, "write"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_env(vars: &[(&str, &str)]) -> Result<Registry, Unusable> {
        let vars: BTreeMap<String, String> = vars.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
        read(&[], Config::default(), &|name| Ok(vars.get(name).cloned()))
    }

    fn on(it: &Registry) -> Vec<String> {
        it.instances.iter().map(|it| format!("{}:{}", it.service, it.agent)).collect()
    }

    const TWO: (&str, &str) =
        ("AGENTS_JSON", r#"{"my-claude": {"command": "claude-agent-acp"}, "codex": {"command": "codex-acp"}}"#);

    #[test]
    fn nothing_set_is_one_agent_called_default_and_nobody_anywhere() {
        let it = read_env(&[]).unwrap();
        assert_eq!(it.agents[0].0.as_str(), "default");
        assert_eq!(it.agents[0].1.command.as_deref(), Some(USUAL_COMMAND));
        assert!(it.instances.is_empty() && it.off.is_empty());
        let it = read_env(&[("ACP_AGENT_COMMAND", "my-agent --acp"), ("TELEGRAM_BOT_TOKEN", "1:x")]).unwrap();
        assert_eq!(it.agents[0].1.command.as_deref(), Some("my-agent --acp"));
        assert_eq!(on(&it), ["telegram:default"]);
    }

    #[test]
    fn without_a_default_the_first_counts_and_two_are_an_error() {
        let it = read_env(&[TWO, ("TELEGRAM_BOT_TOKEN", "1:x")]).unwrap();
        assert_eq!(on(&it), ["telegram:my-claude"]);
        let both = r#"{"a": {"command": "x", "default": true}, "b": {"command": "y", "default": true}}"#;
        let it = read_env(&[("AGENTS_JSON", both)]).unwrap_err();
        assert!(it.what.contains("a and b"), "{it}");
        for bad in ["", "{}", "[]", "{\"a\": {}}", "{\"a\": {\"comand\": \"x\"}}", "{\"../a\": {\"command\": \"x\"}}"] {
            assert_eq!(read_env(&[("AGENTS_JSON", bad)]).is_err(), !bad.is_empty(), "{bad}");
        }
        let twins = r#"{"my-a": {"command": "x"}, "my_a": {"command": "y"}}"#;
        assert!(read_env(&[("AGENTS_JSON", twins)]).unwrap_err().what.contains("MY_A"));
    }

    /// What cannot be read switches its own pair off, and says which; the others go on.
    #[test]
    fn a_credential_that_cannot_be_read_is_its_pairs_alone() {
        let read = read(&[], Config::default(), &|name| match name {
            "SLACK_BOT_TOKEN" => Err("the file gives nothing".into()),
            "TELEGRAM_BOT_TOKEN" => Ok(Some("1:x".into())),
            _ => Ok(None),
        });
        let it = read.unwrap();
        assert_eq!(on(&it), ["telegram:default"]);
        let off: Vec<String> = it.off.iter().map(|it| format!("{}: {}", it.service, it.why)).collect();
        assert_eq!(off, ["slack: SLACK_BOT_TOKEN cannot be read: the file gives nothing"]);
    }

    /// A service may give back what it was sent: it is not in the words that people see.
    #[test]
    fn words_never_hold_a_secret() {
        let it = read_env(&[("SLACK_BOT_TOKEN", "xoxb-1"), ("SLACK_APP_TOKEN", "xapp-2")]).unwrap();
        let words =
            it.instances[0].credentials.kept_out_of("xoxb-1 is no token, nor is xapp-2; look at SLACK_BOT_TOKEN");
        assert_eq!(words, "… is no token, nor is …; look at SLACK_BOT_TOKEN");
    }

    /// What an older bridge got wrong: an agent without its own token answered under another one's name.
    #[test]
    fn a_missing_token_for_the_second_agent_never_falls_back_to_the_first_ones() {
        let all = [
            TWO,
            ("SLACK_BOT_TOKEN", "xoxb-1"),
            ("SLACK_APP_TOKEN", "xapp-1"),
            ("SLACK_APP_TOKEN__CODEX", "xapp-2"),
            ("LINEAR_ACCESS_TOKEN", "t"),
            ("LINEAR_AGENT_ID", "i"),
            ("LINEAR_WEBHOOK_SECRET", "s"),
            ("LINEAR_AGENT_ID__CODEX", "i2"),
        ];
        let it = read_env(&all).unwrap();
        assert_eq!(on(&it), ["slack:my-claude", "linear:my-claude"]);
        let off: Vec<&str> = it.off.iter().map(|it| it.why.as_str()).collect();
        assert!(off[0].starts_with("SLACK_BOT_TOKEN__CODEX is not set"), "{off:?}");
        assert!(off[1].starts_with("LINEAR_ACCESS_TOKEN__CODEX is not set"), "{off:?}");
        // The suffix of a name with a hyphen has an underscore.
        let swapped = r#"{"codex": {"command": "y"}, "my-claude": {"command": "x"}}"#;
        let it = read_env(&[("AGENTS_JSON", swapped), ("TELEGRAM_BOT_TOKEN__MY_CLAUDE", "2:y")]).unwrap();
        assert_eq!(on(&it), ["telegram:my-claude"]);
    }

    /// What an older bridge got wrong: a route without a secret took everything.
    #[test]
    fn an_absent_secret_is_said_and_the_route_stays() {
        let it = read_env(&[("GITHUB_APP_ID", "1"), ("GITHUB_PRIVATE_KEY", "a\\nb")]).unwrap();
        let Credentials::Github { private_key, webhook_secret, .. } = &it.instances[0].credentials else { panic!() };
        assert_eq!((private_key.reveal(), webhook_secret), ("a\nb", &None));
        assert!(it.instances[0].warning.as_ref().unwrap().contains("503"));
        assert_eq!(it.instances[0].route.as_deref(), Some("/webhooks/github"));
    }

    #[test]
    fn services_can_be_limited_and_a_wrong_name_is_said() {
        let vars = [("TELEGRAM_BOT_TOKEN", "1:x"), ("SLACK_BOT_TOKEN", "b"), ("SLACK_APP_TOKEN", "a")];
        let limited = [&vars[..], &[("ENABLED_SERVICES", "slack, ")]].concat();
        assert_eq!(on(&read_env(&limited).unwrap()), ["slack:default"]);
        let wrong = [&vars[..], &[("ENABLED_SERVICES", "slakc")]].concat();
        assert!(read_env(&wrong).unwrap_err().what.contains("slakc"));
    }

    #[test]
    fn who_may_ask() {
        let config = |allow: &[&str], bots: &[&str]| Config {
            allow: allow.iter().map(|it| (*it).to_owned()).collect(),
            bots: bots.iter().map(|it| (*it).to_owned()).collect(),
            ..Config::default()
        };
        let ann = Standing { id: "U1".into(), name: "ann".into(), in_team: true, ..Standing::default() };
        let eve = Standing { id: "U9".into(), name: "U1".into(), ..Standing::default() };
        let bot = Standing { is_bot: true, ..ann.clone() };
        let writer = Standing { id: "octo".into(), may_write: true, ..Standing::default() };
        for (allow, service, who, may_they) in [
            (&["slack:U1"][..], Service::Slack, &ann, true),
            (&["slack:U1"], Service::Linear, &ann, false),
            (&["slack:U1"], Service::Slack, &eve, false), // a display name is anybody's to choose
            (&["slack:team"], Service::Slack, &ann, true),
            (&["slack:team"], Service::Slack, &eve, false),
            (&["slack:U1", "slack:team"], Service::Slack, &bot, false),
            (&["github:write"], Service::Github, &writer, true),
            (&["github:write"], Service::Github, &ann, false),
            (&[], Service::Github, &writer, false),
        ] {
            assert_eq!(may(&config(allow, &[]), service, who), may_they, "{allow:?} {who:?}");
        }
        assert!(may(&config(&[], &["slack:U1"]), Service::Slack, &bot));
        assert!(!format!("{:?}", Secret::new("xoxb-1")).contains("xoxb"));
    }

    #[test]
    fn a_mapping_holds_whichever_agent_is_asked() {
        let shop = ProjectName::new("shop").unwrap();
        let docs = ProjectName::new("docs").unwrap();
        let map = Mapping {
            slack: Some("C1".into()),
            project: Some(docs.clone()),
            directory: Some("web".into()),
            prompt: Some("Be brief.".into()),
            deliver: Some(Deliver::Pull),
            ..Mapping::default()
        };
        let it = Registry { config: Config { map: vec![map], ..Config::default() }, ..Registry::default() };
        let both = [docs.clone(), shop.clone()];
        let rules = it.rules(Service::Slack, "C1", &both).unwrap();
        assert_eq!((rules.project, rules.deliver), (docs.clone(), Deliver::Pull));
        assert!(rules.prompt.unwrap().contains("`web`"));
        assert!(it.rules(Service::Slack, "C2", &both).unwrap_err().contains("[[bridges.map]]"));
        assert_eq!(it.rules(Service::Slack, "C2", std::slice::from_ref(&shop)).unwrap().project, shop);
        assert!(it.rules(Service::Slack, "C1", &[shop]).unwrap_err().contains("docs"));
    }

    /// A webhook's secret that is missing, unreadable or none is said, and the secret is not.
    #[test]
    fn a_webhook_without_its_secret_says_why() {
        let receiver = |variable: &str, secret: Option<&str>, unreadable: Option<&str>| Receiver {
            url: "https://me:pass@hooks.example.com:8443/x?y".into(),
            events: vec![],
            variable: variable.into(),
            secret: secret.map(Secret::new),
            unreadable: unreadable.map(str::to_owned),
        };
        for (it, wanted) in [
            (receiver("", None, None), Some("no variable is named that has its secret")),
            (receiver("HOOK", None, None), Some("HOOK is not set")),
            (receiver("HOOK", None, Some("no such file")), Some("HOOK cannot be read: no such file")),
            (receiver("HOOK", Some("whsec_!"), None), Some("HOOK begins with whsec_, and what follows is not base64")),
            (receiver("HOOK", Some("sixteen characters"), None), None),
        ] {
            assert_eq!(it.trouble().as_deref(), wanted);
            assert_eq!(it.host(), "hooks.example.com:8443");
        }
    }
}
