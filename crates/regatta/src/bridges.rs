//! Bridges, as the daemon starts them: who is there by the settings and the environment, and what each is on the board.

use regatta_agents::presets;
use regatta_bridges::registry::{self, AgentEntry, Registry};
use regatta_core::agent::{Key, KeySource, Register, Role, Runtime};
use regatta_core::bridge;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::Engine;

use crate::out::{Failed, failed};
use crate::settings;

/// Who is there. Nothing in the settings and no variable: nobody.
pub(crate) fn read() -> Result<Registry, Failed> {
    let (agents, config) = settings::bridges()?;
    registry::read(&agents, config, &variable).map_err(|it| failed("bad_config", it.what, it.hint))
}

/// A variable's value: as it is, from the file that `…_FILE` names, or what the command in `…_COMMAND` prints.
fn variable(name: &str) -> Result<Option<String>, String> {
    let own = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    if let Some(value) = own(name) {
        return Ok(Some(value));
    }
    // `VAR__AGENT_FILE` and `VAR_FILE__AGENT` mean the same.
    let spelt = |ending: &str| {
        let inner = name.split_once("__").map(|(variable, agent)| format!("{variable}{ending}__{agent}"));
        std::iter::once(format!("{name}{ending}")).chain(inner)
    };
    let file = spelt("_FILE").find_map(|it| own(&it)).map(KeySource::File);
    let Some(from) = file.or_else(|| spelt("_COMMAND").find_map(|it| own(&it)).map(KeySource::Command)) else {
        return Ok(None);
    };
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from).unwrap_or_default();
    let key = Key { name: name.to_owned(), from };
    let found = regatta_agents::keys::resolve(&[key], own, &home, regatta_agents::keys::PATIENCE);
    let found = found.map_err(|it| format!("{it} {}", it.hint))?;
    found.warnings.iter().for_each(|it| tracing::warn!("{it}"));
    Ok(found.values.into_iter().next().map(|it| it.1))
}

/// Makes the agents that people are to talk to known, where the settings say how they are started. One that is known
/// already and has no command in the settings is taken as it is.
async fn register(engine: &Engine, registry: &Registry) -> Result<(), Failed> {
    for (name, entry) in &registry.agents {
        let wanted = registry.instances.iter().any(|it| it.agent == *name);
        let known = engine.board().agents.contains_key(name);
        // One that nobody says how to start is taken as a person added it, before or after.
        if !wanted || (entry.command.is_none() && entry.preset.is_none()) {
            continue;
        }
        let ask = made(name, entry)?;
        if known && engine.board().agents.get(name).is_some_and(|it| it.runtime == ask.runtime) {
            continue; // its other settings are a person's
        }
        let request = Request { by: Actor::Regatta, key: None, command: Command::RegisterAgent(ask) };
        let refused = |it: regatta_engine::Failure| failed("bad_config", format!("{name}: {it}"), "mend [agents]");
        engine.ask(request).await.map_err(refused)?;
    }
    Ok(())
}

fn made(name: &AgentName, entry: &AgentEntry) -> Result<Register, Failed> {
    let bad = |what: String| failed("bad_config", what, "see docs/bridges.md");
    let words = entry.command.as_deref().map(|it| it.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let called = entry.preset.clone().or_else(|| match words.as_deref() {
        // A program that is known by name is started as that name says.
        Some([one]) => Some(one.clone()),
        _ => None,
    });
    let preset = called.as_deref().and_then(presets::find).map(|it| it.0);
    let (runtime, provider) = match (words, preset) {
        _ if entry.command.as_deref() == Some("scripted") => (Runtime::Scripted, None),
        (_, Some(preset)) => (preset.runtime(None), Some(preset.provider.to_owned())),
        (Some(argv), None) if !argv.is_empty() => (Runtime::Acp { argv }, None),
        _ => return Err(bad(format!("[agents.{name}] has neither a command nor a preset that is known"))),
    };
    Ok(Register {
        name: name.clone(),
        runtime,
        role: Role::Worker,
        provider,
        profile: preset
            .map(|it| regatta_core::agent::Profile { preset: Some(it.name.into()), ..Default::default() })
            .unwrap_or_default(),
        description: "talks to people in outside services".into(),
        max_tasks: 5,
    })
}

/// Says which bridges there are, and what is wrong with the credentials of some: that is a person's to mend.
async fn report(engine: &Engine, registry: &Registry) -> Result<(), Failed> {
    let standing = |service, agent: &AgentName, broken| bridge::Standing {
        bridge: bridge::Bridge::At { service, agent: agent.clone() },
        broken,
    };
    let on = registry.instances.iter().map(|it| standing(it.service, &it.agent, it.warning.clone()));
    let off = registry.off.iter().map(|it| standing(it.service, &it.agent, Some(it.why.clone())));
    let told = registry.receivers.iter().map(|it| bridge::Standing {
        bridge: bridge::Bridge::Webhook { webhook: it.host().to_owned() },
        broken: it.trouble(),
    });
    let all: Vec<bridge::Standing> = on.chain(off).chain(told).collect();
    if all.is_empty() && bridge::broken(&engine.board()).next().is_none() {
        return Ok(());
    }
    let request = Request { by: Actor::Regatta, key: None, command: Command::ReportBridges { all } };
    let unwritten = |it: regatta_engine::Failure| failed("io", format!("bridges: {it}"), "see regatta doctor");
    engine.ask(request).await.map(|_| ()).map_err(unwritten)
}

/// The bridges, for the doors.
pub(crate) struct Running(regatta_bridges::Bridges);

impl Running {
    /// Starts what is whole; nothing when nobody is wanted anywhere.
    pub(crate) async fn start(engine: &Engine, dir: &std::path::Path) -> Result<Option<Running>, Failed> {
        let registry = read()?;
        report(engine, &registry).await?;
        let talks = !registry.instances.is_empty() || !registry.off.is_empty();
        if !talks && registry.receivers.is_empty() {
            return Ok(None);
        }
        if talks {
            register(engine, &registry).await?;
        }
        let bad = |what: String| failed("bad_config", what, "see docs/bridges.md");
        let mut bridges = regatta_bridges::Bridges::start(engine.clone(), registry, Some(dir)).map_err(bad)?;
        bridges.tell(dir).map_err(bad)?;
        Ok(Some(Running(bridges)))
    }
}

impl regatta_server::Bridges for Running {
    fn list(&self) -> Vec<regatta_api::view::BridgeView> {
        self.0.list()
    }

    fn pause(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize {
        self.0.pause(agent, service, paused)
    }

    fn router(&self) -> axum::Router {
        self.0.router()
    }
}
