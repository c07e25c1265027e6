//! Starts the bridges of the daemon, which connect agents to Slack, GitHub, Linear and Telegram.
//!
//! This module reads the bridges from the settings and the environment, registers their agents, and
//! reports broken bridges to the engine, so that the inbox shows them. The crate regatta-bridges
//! runs the bridges.

use regatta_agents::program_discovery::MachineFacts;
use regatta_agents::{presets, profile_credentials};
use regatta_bridges::config::{self, AgentEntry, BridgeRegistry, DisabledBridge};
use regatta_core::agent::{Agent, Profile, RegisterAgent, Role, Runtime};
use regatta_core::bridge_health;
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::Service;
use regatta_core::ids::AgentName;
use regatta_engine::{BridgeReportSender, Engine};

use crate::bridge_environment::BridgeEnvironment;
use crate::output::{CommandError, command_error};
use crate::settings;

/// The description of agents that this module registered. Only agents with this description are
/// updated; all others belong to a person.
const BRIDGE_AGENT_DESCRIPTION: &str = "talks to people in outside services";

/// Registers the agents of bridges whose settings say how to start them. Returns the agents that
/// cannot be started.
///
/// An agent whose settings name neither a command nor a preset (a known program) stays unchanged.
async fn register_agents(engine: &Engine, registry: &BridgeRegistry) -> Vec<(AgentName, String)> {
    let mut failures = Vec::new();
    for (name, entry) in &registry.agents {
        let is_wanted = registry
            .instances
            .iter()
            .any(|instance| instance.agent == *name);
        if !is_wanted || (entry.command.is_none() && entry.preset.is_none()) {
            continue;
        }
        let known = engine.board().agents.get(name).cloned();
        let ask = match agent_registration(
            name,
            entry,
            known.as_deref(),
            &MachineFacts::this_machine(),
        ) {
            Ok(Some(ask)) => ask,
            Ok(None) => continue,
            Err(why) => {
                failures.push((name.clone(), why));
                continue;
            }
        };
        let request = Request {
            by: Actor::Regatta,
            key: None,
            command: Command::RegisterAgent(ask),
        };
        if let Err(error) = engine.submit_async(request).await {
            failures.push((
                name.clone(),
                format!("could not register the agent {name}: {error}"),
            ));
        }
    }
    failures
}

/// Returns the request that registers an agent of the settings, or `None` if the agent needs no
/// change. The error says why the settings are not enough.
fn agent_registration(
    name: &AgentName,
    entry: &AgentEntry,
    known: Option<&Agent>,
    machine: &MachineFacts,
) -> Result<Option<RegisterAgent>, String> {
    let argv: Vec<String> = entry
        .command
        .as_deref()
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    // If the command is only the name of a known program, use the preset (the known settings) of
    // that program.
    let program_name = entry.preset.as_deref().or(if let [only] = argv.as_slice() {
        Some(only.as_str())
    } else {
        None
    });
    let preset = program_name
        .and_then(presets::find_preset)
        .map(|(preset, _)| preset);
    let sign_in_preset = preset.or_else(|| {
        argv.first()
            .and_then(|program| presets::preset_of_program(program))
    });
    let runtime = match preset {
        _ if entry.command.as_deref() == Some("scripted") => Runtime::Scripted,
        Some(preset) => preset.runtime(None),
        None if !argv.is_empty() => Runtime::Acp { argv },
        None => {
            return Err(format!(
                "[agents.{name}] has neither a command nor a known preset"
            ));
        }
    };
    // If an agent has the same program but another description, a person added that agent, so do
    // not change it here.
    let existing = known
        .filter(|agent| agent.description == BRIDGE_AGENT_DESCRIPTION && agent.runtime == runtime);
    if existing.is_none() && known.is_some_and(|agent| agent.runtime == runtime) {
        return Ok(None);
    }
    let mut profile = existing.map_or_else(Profile::default, |agent| agent.profile.clone());
    profile.preset = preset.map(|preset| preset.name.to_owned());
    if let Some(preset) = sign_in_preset {
        profile_credentials::add_sign_in(&mut profile, preset, machine);
    }
    if existing.is_some_and(|agent| agent.profile == profile || agent.offline.is_some()) {
        return Ok(None);
    }
    Ok(Some(RegisterAgent {
        name: name.clone(),
        runtime,
        role: Role::Worker,
        provider: sign_in_preset
            .map(|preset| preset.provider.to_owned())
            .filter(|provider| !provider.is_empty()),
        profile,
        description: BRIDGE_AGENT_DESCRIPTION.into(),
        max_tasks: existing.map_or(5, |agent| agent.max_tasks),
    }))
}

/// Reports the working bridges, and the problems of the other bridges, to the engine, so that the
/// inbox shows the problems to a person.
async fn report_bridges(
    engine: &Engine,
    reports: &BridgeReportSender,
    registry: &BridgeRegistry,
) -> Result<(), CommandError> {
    let health = |service, agent: &AgentName, broken| bridge_health::BridgeHealth {
        bridge: bridge_health::Bridge::AgentService {
            service,
            agent: agent.clone(),
        },
        problem: broken,
    };
    let on = registry.instances.iter().map(|bridge_instance| {
        health(
            bridge_instance.service,
            &bridge_instance.agent,
            bridge_instance.warning.clone(),
        )
    });
    let off = registry.disabled.iter().filter(|off| !off.is_reported);
    let off = off.map(|off| health(off.service, &off.agent, Some(off.why.clone())));
    let faults = registry
        .faults
        .iter()
        .map(|fault| bridge_health::BridgeHealth {
            bridge: bridge_health::Bridge::Setting {
                setting: fault.setting.clone(),
            },
            problem: Some(format!("{}; {}", fault.message, fault.hint)),
        });
    let webhooks = registry
        .receivers
        .iter()
        .map(|webhook_receiver| bridge_health::BridgeHealth {
            bridge: bridge_health::Bridge::Webhook {
                webhook: webhook_receiver.host().to_owned(),
            },
            problem: webhook_receiver.problem(),
        });
    let all: Vec<bridge_health::BridgeHealth> =
        on.chain(off).chain(webhooks).chain(faults).collect();
    if all.is_empty()
        && bridge_health::broken_bridges(&engine.board())
            .next()
            .is_none()
    {
        return Ok(());
    }
    let store_error = |command_failure: regatta_engine::CommandFailure| {
        command_error(
            "io",
            format!("could not store the state of the bridges: {command_failure}"),
            "see what is wrong: regatta doctor",
        )
    };
    reports
        .report_all(all)
        .await
        .map(|_| ())
        .map_err(store_error)
}

/// The running bridges (connections of agents to services such as Slack). The server lists and
/// pauses the bridges, and serves their webhooks.
pub(crate) struct RunningBridges(regatta_bridges::Bridges);

impl RunningBridges {
    /// Starts every bridge that can be started and reports the others. Returns `None` if no bridge
    /// is configured.
    pub(crate) async fn start(
        engine: &Engine,
        reports: &BridgeReportSender,
        dir: &std::path::Path,
    ) -> Result<Option<RunningBridges>, CommandError> {
        let environment = BridgeEnvironment::read(dir);
        let mut registry = config::read_registry(settings::load_bridges(), &environment);
        for fault in &registry.faults {
            tracing::warn!(
                "ignored the invalid bridge setting {setting}: {problem}; {hint}",
                setting = fault.setting,
                problem = fault.message,
                hint = fault.hint
            );
        }
        if let Err(error) = environment.store_used_sources(&registry) {
            tracing::warn!(
                "could not store the sources of the bridges' environment variables; bridges may \
                 stay off after the daemon is restarted from another shell: {error}"
            );
        }
        for (agent, why) in register_agents(engine, &registry).await {
            let of_agent = |instance: &config::BridgeInstance| instance.agent == agent;
            let (off, on) = registry.instances.into_iter().partition(of_agent);
            registry.instances = on;
            let off: Vec<config::BridgeInstance> = off;
            registry
                .disabled
                .extend(off.into_iter().map(|instance| DisabledBridge {
                    agent: instance.agent,
                    service: instance.service,
                    why: why.clone(),
                    is_reported: false,
                }));
        }
        report_bridges(engine, reports, &registry).await?;
        if registry.instances.is_empty()
            && registry.disabled.is_empty()
            && registry.receivers.is_empty()
        {
            return Ok(None);
        }
        let bad = |what: String| {
            command_error(
                "bad_config",
                what,
                "correct the settings of the bridges; docs/bridges.md explains them",
            )
        };
        let mut bridges =
            regatta_bridges::Bridges::start(engine.clone(), reports.clone(), registry, Some(dir))
                .map_err(bad)?;
        bridges.send_webhooks(dir).map_err(bad)?;
        Ok(Some(RunningBridges(bridges)))
    }
}

impl regatta_server::BridgeControl for RunningBridges {
    fn list(&self) -> Vec<regatta_api::view::BridgeView> {
        self.0.list()
    }

    fn pause(&self, agent: &AgentName, service: Option<Service>, paused: bool) -> usize {
        self.0.set_paused(agent, service, paused)
    }

    fn router(&self) -> axum::Router {
        self.0.router()
    }
}
