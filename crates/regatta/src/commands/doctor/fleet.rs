//! The checks of `regatta doctor` that need the board: the store, the agents and the bridges.

use std::path::Path;
use std::sync::Arc;

use regatta_agents::program_discovery::{FoundProgram, MachineFacts, SignIn};
use regatta_agents::{presets, profile_credentials, program_discovery};
use regatta_api::live_view::{CheckLevel, DoctorCheck};
use regatta_api::view::{AgentView, BridgeView, InboxGroup, InboxView, ProjectView};
use regatta_api::{call, input};
use regatta_core::agent::{Agent, Runtime, SandboxLevel as Confined};
use regatta_core::board::Board;
use regatta_core::ids::ProjectName;
use regatta_core::project::Project;
use regatta_core::{plural, provider_outage};

use super::{check_from_error, check_line};
use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, provider, starter_agents};
use crate::output::CommandError;
use crate::{composition, daemon};

/// What the store contains, as far as `doctor` could read it.
#[derive(Default)]
pub(super) struct FleetReport {
    pub(super) checks: Vec<DoctorCheck>,
    /// The projects, or `None` if they could not be read.
    pub(super) projects: Option<Vec<KnownProject>>,
    /// True if any agent exists besides scripted agents.
    pub(super) has_agents: bool,
}

/// A project as the board knows it.
pub(super) struct KnownProject {
    name: ProjectName,
    path: String,
    /// The check commands that are in force.
    pub(super) validation: Vec<String>,
}

/// Checks the database while no daemon runs, and does not start a daemon.
pub(super) fn check_store_offline(dir: &Path) -> FleetReport {
    let daemon = check_line("daemon", CheckLevel::Ok, "not running", "regatta up");
    let store = dir.join(composition::STORE_FILE);
    let board = match regatta_store::examine(&store) {
        Ok(Some(state)) if !state.unreadable_rows.is_empty() => {
            let count = plural::count(state.unreadable_rows.len(), "row");
            let what = format!("{count} of unfinished work cannot be read");
            let fix = "start the daemon, then see the rows: regatta up; regatta status";
            return FleetReport {
                checks: vec![daemon, check_line("store", CheckLevel::Bad, what, fix)],
                ..FleetReport::default()
            };
        }
        Ok(Some(state)) => state.board,
        Ok(None) if store.exists() => {
            let what = "intact; an older version wrote it, so its rows were not read";
            return FleetReport {
                checks: vec![
                    daemon,
                    check_line("store", CheckLevel::Warn, what, "regatta up"),
                ],
                ..FleetReport::default()
            };
        }
        Ok(None) => Board::default(),
        Err(error) => {
            let store = check_line("store", CheckLevel::Bad, error.message, error.hint);
            return FleetReport {
                checks: vec![daemon, store],
                ..FleetReport::default()
            };
        }
    };
    let state = if store.exists() {
        "intact; its history was not read"
    } else {
        "none yet"
    };
    let mut checks = vec![daemon, check_line("store", CheckLevel::Ok, state, "")];
    let agents = || board.agents.values();
    checks.extend(check_agents_exist(
        agents().map(|agent| &agent.runtime),
        provider::find_presets,
    ));
    checks.extend(agents().flat_map(|agent| {
        let is_parked =
            agent.offline.is_some() || provider_outage::find_parked(&board, agent).is_some();
        check_agent(agent, is_parked)
    }));
    let project = |project: &Arc<Project>| KnownProject {
        name: project.name.clone(),
        path: project.location.clone(),
        validation: project.validation.clone(),
    };
    FleetReport {
        checks,
        projects: Some(board.projects.values().map(project).collect()),
        has_agents: agents().any(|agent| !matches!(agent.runtime, Runtime::Scripted)),
    }
}

/// Returns a warning if no agent exists that can work on a task without a script. The fix names the
/// command that adds such an agent.
pub(super) fn check_agents_exist<'a>(
    runtimes: impl Iterator<Item = &'a Runtime>,
    find_presets: impl FnOnce() -> Vec<FoundProgram>,
) -> Option<DoctorCheck> {
    let runtimes: Vec<&Runtime> = runtimes.collect();
    let what = match &runtimes[..] {
        [] => "none yet",
        agents
            if agents
                .iter()
                .all(|agent| matches!(agent, Runtime::Scripted)) =>
        {
            "only scripted agents, which do no task without a script"
        }
        _ => return None,
    };
    let fix = starter_agents::first_command(&find_presets()).unwrap_or_else(|| {
        "see what is installed: regatta provider; then: regatta agent add NAME --preset PRESET"
            .to_owned()
    });
    Some(check_line("agents", CheckLevel::Warn, what, fix))
}

/// Returns the project whose repository contains the current directory.
pub(super) fn project_here<'a>(
    app: &CommandContext,
    projects: &'a [KnownProject],
) -> Result<Option<&'a KnownProject>, CommandError> {
    let places: Vec<_> = projects
        .iter()
        .map(|project| (project.name.clone(), project.path.clone()))
        .collect();
    let name = app.containing_project(&places)?;
    Ok(projects
        .iter()
        .find(|project| Some(&project.name) == name.as_ref()))
}

/// Checks that the repository in the current directory is a project.
pub(super) fn check_project(project: Option<&KnownProject>) -> DoctorCheck {
    match project {
        Some(project) => check_line("project", CheckLevel::Ok, project.name.to_string(), ""),
        None => check_line(
            "project",
            CheckLevel::Warn,
            "this repository is not a project of Regatta yet",
            "regatta init",
        ),
    }
}

/// Asks the running daemon about its database, projects, agents and bridges.
pub(super) fn check_running_daemon(client: &Client) -> FleetReport {
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
    let mut agents_with_limits = Vec::new();
    match agents {
        Err(error) => checks.push(check_from_error("agents", &error)),
        Ok(reply) => {
            let runtimes = reply.data.iter().map(|view| &view.agent.runtime);
            checks.extend(check_agents_exist(runtimes, provider::find_presets));
            checks.extend(reply.data.iter().flat_map(check_agent_view));
            agents_with_limits = reply.data;
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
            checks.extend(check_unable_agents(&reply.data));
            // The inbox has the agents that need a person. The others wait for the end of a limit.
            agents_with_limits.retain(|agent| {
                let id = format!("agent:{}", agent.agent.name);
                !reply.data.iter().any(|item| item.id == id)
            });
            checks.extend(check_parked(&agents_with_limits));
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
    let projects: Result<CallReply<Vec<ProjectView>>, CommandError> =
        client.call(call::ProjectList(input::EmptyInput {}));
    let projects = match projects {
        Err(error) => {
            checks.push(check_from_error("project", &error));
            None
        }
        Ok(reply) => {
            let project = |project: ProjectView| KnownProject {
                name: project.name,
                path: project.path,
                validation: project.validation,
            };
            Some(reply.data.into_iter().map(project).collect())
        }
    };
    FleetReport {
        checks,
        projects,
        has_agents,
    }
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

/// Like [`check_agent`], for an agent as the daemon describes it.
pub(super) fn check_agent_view(view: &AgentView) -> Vec<DoctorCheck> {
    check_agent(&view.agent, view.parked.is_some())
}

/// Checks that an agent's program is installed and signed in, and warns if it has no sandbox. The
/// program of a parked agent, which gets no work until a person acts, is not checked.
fn check_agent(agent: &Agent, is_parked: bool) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    if let Some(argv) = agent.runtime.argv().filter(|_| !is_parked) {
        checks.push(check_agent_program(
            agent,
            argv.first().map(String::as_str).unwrap_or_default(),
        ));
    }
    if agent.profile.sandbox == Some(Confined::Off) {
        let text = format!(
            "{} has no sandbox, so its program may do everything that you may do",
            agent.name
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

/// Returns one warning for each cause for which agents cannot work until a person fixes it, with the
/// fix of all these agents.
fn check_unable_agents(items: &[InboxView]) -> Vec<DoctorCheck> {
    let agents = items.iter().filter(|item| item.id.starts_with("agent:"));
    let line = |group: InboxGroup<'_>| {
        let first = group.first();
        let resume = group.shared_command().or_else(|| {
            let way = first.ways.first();
            way.map(|way| way.line.clone())
        });
        let fix = first.cause.as_ref().map_or("fix that", |cause| &cause.fix);
        let fix = match resume {
            Some(resume) => format!("{fix}: {resume}"),
            None => fix.to_owned(),
        };
        check_line("agent", CheckLevel::Warn, group.headline(), fix)
    };
    InboxGroup::list(agents).into_iter().map(line).collect()
}

/// Returns one warning for each reason why agents are parked (get no work until a person acts).
pub(super) fn check_parked(agents: &[AgentView]) -> Vec<DoctorCheck> {
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
        let (what, fix) = why.rsplit_once("; ").unwrap_or((why, "fix that"));
        let fix = fix.split(", then: ").next().unwrap_or(fix);
        let text = if names.len() == 1 {
            what.to_owned()
        } else {
            format!("{} agents: {what}", names.len())
        };
        check_line(
            "agent",
            CheckLevel::Warn,
            text,
            format!("{fix}, then: regatta resume {}", names.join(" ")),
        )
    };
    causes.into_iter().map(line).collect()
}

/// Checks that an agent's program is installed and signed in.
fn check_agent_program(agent: &Agent, program: &str) -> DoctorCheck {
    let preset = agent
        .profile
        .preset
        .as_deref()
        .and_then(presets::find_preset)
        .map(|preset| preset.0);
    let machine = MachineFacts::this_machine();
    let found = preset.map(|preset| program_discovery::discover(preset, &machine));
    let available =
        |profile, preset| profile_credentials::visible_sign_in(profile, preset, &machine);
    match (&found, is_installed(program)) {
        (_, false) => {
            let fix = preset.map_or_else(
                || {
                    format!(
                        "install it, or remove the agent: regatta agent rm {}",
                        agent.name
                    )
                },
                |preset| preset.install.to_owned(),
            );
            check_line(
                "agent",
                CheckLevel::Bad,
                format!("{}: {program} is not installed", agent.name),
                fix,
            )
        }
        // The agent's program runs in a sandbox and cannot see this user's sign-in, so the user may
        // be signed in although the program is not.
        (Some(found), true)
            if agent.profile.keys.is_empty()
                && available(&agent.profile, found.preset) == SignIn::None =>
        {
            let text = format!("{}: {program} is not signed in", agent.name);
            let add_again = || {
                format!(
                    "add the agent again: regatta agent add {} --preset {}",
                    agent.name, found.preset.name
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
                format!("{}: {program} {version}", agent.name)
                    .trim_end()
                    .to_owned(),
                "",
            )
        }
        (None, true) => check_line(
            "agent",
            CheckLevel::Ok,
            format!("{}: {program}", agent.name),
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
