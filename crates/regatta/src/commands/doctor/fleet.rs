//! The checks of `regatta doctor` that need the board: the store, the agents and the bridges.

use std::path::Path;

use regatta_agents::program_discovery::{MachineFacts, SignIn};
use regatta_agents::{presets, program_discovery, sign_in};
use regatta_api::live_view::{CheckLevel, DoctorCheck};
use regatta_api::view::{AgentView, BridgeView};
use regatta_api::{call, input};
use regatta_core::agent::{Runtime, SandboxLevel as Confined};

use super::{check_from_error, check_line};
use crate::client::{CallReply, Client};
use crate::output::CommandError;
use crate::{composition, daemon};

/// Checks the database while no daemon runs, and does not start a daemon.
pub(super) fn check_store_offline(dir: &Path) -> Vec<DoctorCheck> {
    let mut checks = vec![check_line(
        "daemon",
        CheckLevel::Ok,
        "not running",
        "regatta up",
    )];
    let store = dir.join(composition::STORE_FILE);
    checks.push(match regatta_store::examine(&store) {
        Ok(()) if store.exists() => check_line(
            "store",
            CheckLevel::Ok,
            "intact; its rows were not checked",
            "",
        ),
        Ok(()) => check_line("store", CheckLevel::Ok, "none yet", ""),
        Err(error) => check_line("store", CheckLevel::Bad, error.message, error.hint),
    });
    checks
}

/// Asks the running daemon about its database, agents and bridges. The second result is true if any
/// agent exists besides scripted agents.
pub(super) fn check_store_and_agents(client: &Client) -> (Vec<DoctorCheck>, bool) {
    let url = daemon::read_daemon_info(client.data_dir()).map_or("up".into(), |daemon_info| {
        format!(
            "{} (pid {}, {})",
            daemon_info.url, daemon_info.pid, daemon_info.version
        )
    });
    let mut checks = vec![check_line("daemon", CheckLevel::Ok, url, "")];
    checks.push(match client.call(call::Check(input::EmptyInput {})) {
        Ok(_) => check_line("store", CheckLevel::Ok, "intact", ""),
        Err(error) => check_from_error("store", &error),
    });
    let agents: Result<CallReply<Vec<AgentView>>, CommandError> =
        client.call(call::AgentList(input::EmptyInput {}));
    let has_agents = agents.as_ref().is_ok_and(|reply| {
        reply
            .data
            .iter()
            .any(|view| !matches!(view.agent.runtime, Runtime::Scripted))
    });
    match agents {
        Err(error) => checks.push(check_from_error("agents", &error)),
        Ok(reply) if reply.data.is_empty() => checks.push(check_line(
            "agents",
            CheckLevel::Warn,
            "none yet",
            "see what is installed: regatta provider",
        )),
        Ok(reply) => {
            checks.extend(reply.data.iter().flat_map(check_agent));
            checks.extend(check_parked(&reply.data));
        }
    }
    match client.call(call::BridgeList(input::EmptyInput {})) {
        Err(error) => checks.push(check_from_error("bridges", &error)),
        Ok(reply) => checks.extend(reply.data.iter().map(check_bridge)),
    }
    // Read the inbox too, because only the inbox lists an invalid setting that belongs to no
    // bridge.
    match client.call(call::InboxList(input::ProjectFilter { project: None })) {
        Err(error) => checks.push(check_from_error("bridges", &error)),
        Ok(reply) => {
            let faults = reply
                .data
                .iter()
                .filter(|item| item.id.starts_with("bridge:setting:"));
            checks.extend(faults.map(|item| {
                check_line(
                    "bridges",
                    CheckLevel::Bad,
                    item.subject.clone(),
                    item.why.clone(),
                )
            }));
        }
    }
    (checks, has_agents)
}

/// Reports whether a bridge is on and connected, without a warning.
pub(super) fn check_bridge(bridge: &BridgeView) -> DoctorCheck {
    let is_healthy =
        bridge.off.is_none() && bridge.warning.is_none() && bridge.health.connected.is_some();
    let level = if is_healthy {
        CheckLevel::Ok
    } else {
        CheckLevel::Warn
    };
    let fix = if is_healthy {
        ""
    } else {
        "fix its settings (docs/bridges.md, .env.example), then: regatta up --restart"
    };
    check_line(
        &format!("bridge {}", bridge.name),
        level,
        crate::commands::bridge::bridge_state(bridge),
        fix,
    )
}

/// Checks that an agent's program is installed and signed in, and warns if it has no sandbox.
pub(super) fn check_agent(agent: &AgentView) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    if let Some(argv) = agent
        .agent
        .runtime
        .argv()
        .filter(|_| agent.parked.is_none())
    {
        checks.push(check_agent_program(
            agent,
            argv.first().map(String::as_str).unwrap_or_default(),
        ));
    }
    if agent.agent.profile.sandbox == Some(Confined::Off) {
        let text = format!(
            "{} has no sandbox, so its program may do everything that you may do",
            agent.agent.name
        );
        checks.push(check_line(
            "sandbox",
            CheckLevel::Warn,
            text,
            "regatta agent add … --confine workspace",
        ));
    }
    checks
}

/// Returns one warning for each reason why agents are parked (get no work until a person acts).
fn check_parked(agents: &[AgentView]) -> Vec<DoctorCheck> {
    let mut causes: Vec<(String, Vec<&str>, &str)> = Vec::new();
    for agent in agents {
        let Some(why) = &agent.parked else { continue };
        let name = agent.agent.name.as_str();
        let cause = why.replace(name, "…");
        match causes.iter_mut().find(|(known, ..)| *known == cause) {
            Some((_, names, _)) => names.push(name),
            None => causes.push((cause, vec![name], why)),
        }
    }
    let line = |(_, names, why): (String, Vec<&str>, &str)| {
        // Cut off the fix at the end of the daemon's text, because the fix has its own column here.
        let what = why.split_once("; fix that").map_or(why, |(what, _)| what);
        let text = if names.len() == 1 {
            what.to_owned()
        } else {
            format!("{} agents: {what}", names.len())
        };
        check_line(
            "agent",
            CheckLevel::Warn,
            text,
            format!("fix that, then: regatta resume {}", names.join(" ")),
        )
    };
    causes.into_iter().map(line).collect()
}

/// Checks that an agent's program is installed and signed in.
fn check_agent_program(agent: &AgentView, program: &str) -> DoctorCheck {
    let preset = agent
        .agent
        .profile
        .preset
        .as_deref()
        .and_then(presets::find_preset)
        .map(|preset| preset.0);
    let machine = MachineFacts::this_machine();
    let found = preset.map(|preset| program_discovery::discover(preset, &machine));
    let available = |profile, preset| sign_in::visible_sign_in(profile, preset, &machine);
    match (&found, is_installed(program)) {
        (_, false) => {
            let fix = preset.map_or_else(
                || {
                    format!(
                        "install it, or remove the agent: regatta agent rm {}",
                        agent.agent.name
                    )
                },
                |preset| preset.install.to_owned(),
            );
            check_line(
                "agent",
                CheckLevel::Bad,
                format!("{}: {program} is not installed", agent.agent.name),
                fix,
            )
        }
        // The agent's program runs in a sandbox and cannot see this user's sign-in, so the user may
        // be signed in although the program is not.
        (Some(found), true)
            if agent.agent.profile.keys.is_empty()
                && available(&agent.agent.profile, found.preset) == SignIn::None =>
        {
            let text = format!("{}: {program} is not signed in", agent.agent.name);
            let add_again = || {
                format!(
                    "add the agent again: regatta agent add {} --preset {}",
                    agent.agent.name, found.preset.name
                )
            };
            check_line(
                "agent",
                CheckLevel::Warn,
                text,
                found.fix.clone().unwrap_or_else(add_again),
            )
        }
        (Some(found), true) => {
            let version = found.version.clone().unwrap_or_default();
            check_line(
                "agent",
                CheckLevel::Ok,
                format!("{}: {program} {version}", agent.agent.name)
                    .trim_end()
                    .to_owned(),
                "",
            )
        }
        (None, true) => check_line(
            "agent",
            CheckLevel::Ok,
            format!("{}: {program}", agent.agent.name),
            "",
        ),
    }
}

fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|path| path.join(program).is_file())
}
