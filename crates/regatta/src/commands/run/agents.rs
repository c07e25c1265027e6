//! Chooses the agents that do the work of a run, and checks whether they can start.

use regatta_api::input::{PlannedTask, RuntimeName};
use regatta_api::team::TeamView;
use regatta_api::view::AgentView;
use regatta_api::{Problem, call, input, team as wire};
use regatta_core::agent::{Role, Runtime};
use regatta_core::ids::AgentName;
use regatta_core::refusal::Refusal;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::run::RunArgs;
use crate::commands::run::work::RunWork;
use crate::output::{CommandError, CommandResult, command_error, first_line, usage_error};
use crate::settings::value_of;
use crate::{output, settings};

/// The maximum time to wait for the launch of a team, in milliseconds.
const LAUNCH_TIMEOUT_MS: u64 = 120_000;

/// Returns the agents of a run: the team's workers, the agents that the options name, the agents in
/// the settings, or all agents that Regatta starts. In the last case scripted agents take part only
/// if there are no others, because they are left over from a rehearsal. Registers the agent
/// `scripted` if the options name it and it does not exist.
pub(crate) fn choose_agents(
    client: &Client,
    args: &RunArgs,
    settings: &[settings::ResolvedSetting],
) -> Result<Vec<AgentName>, CommandError> {
    if let Some(team) = &args.team {
        let reply: CallReply<TeamView> =
            client.call(call::TeamShow(wire::TeamNameInput { team: team.clone() }))?;
        return Ok(reply.data.desired.workers());
    }
    let known: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let mut names = args.agents.clone();
    if names.is_empty() {
        for name in value_of(settings, "run.agents")
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            names.push(AgentName::new(name).map_err(|error| {
                usage_error(
                    error.to_string(),
                    "set agents under [run] in regatta.toml to names, such as [\"claude-1\"]",
                )
            })?);
        }
    }
    if names.is_empty() {
        let started: Vec<&AgentView> = known
            .data
            .iter()
            .filter(|agent| !matches!(agent.agent.runtime, Runtime::Outside))
            .collect();
        let is_scripted = |agent: &&AgentView| matches!(agent.agent.runtime, Runtime::Scripted);
        let only_scripted = started.iter().all(is_scripted);
        names = started
            .into_iter()
            .filter(|agent| only_scripted || !is_scripted(agent))
            .map(|agent| agent.agent.name.clone())
            .collect();
    }
    if names.is_empty() {
        return Err(command_error(
            "no_provider",
            "there is no agent that could do the work",
            "see which agent programs are installed, and how to install one: regatta provider\n\
             or watch scripted agents that need no program: regatta demo\n\
             or run a plan whose tasks have scripts: regatta run PLAN --agents scripted",
        ));
    }
    for name in &names {
        if name.as_str() == "scripted" && !known.data.iter().any(|agent| agent.agent.name == *name)
        {
            let request = input::AgentAdd {
                name: name.clone(),
                runtime: RuntimeName::Scripted,
                command: vec![],
                role: Role::Worker,
                provider: None,
                description: "follows each task's script".into(),
                max_tasks: 3,
                profile: Default::default(),
                anyway: false,
            };
            let _added: CallReply<AgentView> = client.call(call::AgentAdd(request))?;
        }
    }
    Ok(names)
}

/// Launches the team of `--team` if it does not run. A member that fails to start is reported, and
/// the others do the work.
pub(crate) fn launch_team(app: &CommandContext, client: &Client, args: &RunArgs) -> CommandResult {
    let Some(team) = &args.team else {
        return Ok(());
    };
    let known: CallReply<TeamView> =
        client.call(call::TeamShow(wire::TeamNameInput { team: team.clone() }))?;
    if known.data.up {
        return Ok(());
    }
    app.output.print_note(&format!("launching the team {team}"));
    let start = wire::StartTeam {
        team: team.clone(),
        left_out: vec![],
        wait_ms: LAUNCH_TIMEOUT_MS,
    };
    let reply: CallReply<TeamView> = client.call(call::TeamLaunch(start))?;
    app.output.print_note(&format!(
        "{team}: {}",
        output::first_line(&reply.data.summary.headline)
    ));
    Ok(())
}

/// Fails if an agent that the options or the plan name does not exist. The daemon makes the same
/// check when the mission starts.
pub(crate) fn check_agents(client: &Client, args: &RunArgs, work: &RunWork) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let exists = |name: &AgentName| {
        name.as_str() == "scripted" || known.data.iter().any(|agent| agent.agent.name == *name)
    };
    let named = args.agents.iter().chain(
        work.tasks
            .iter()
            .filter_map(|planned| planned.task.assign.as_ref()),
    );
    match named.into_iter().find(|name| !exists(name)) {
        Some(name) => Err(Problem::from(&Refusal::NoSuchAgent {
            agent: name.clone(),
        })
        .into()),
        None => Ok(()),
    }
}

/// Fails if a task without a script would go to a scripted agent, which needs one. The daemon makes
/// the same check, but only after the person has confirmed the plan.
pub(crate) fn check_start(client: &Client, agents: &[AgentName], work: &RunWork) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    let runtime_of = |name: &AgentName| {
        known
            .data
            .iter()
            .find(|agent| agent.agent.name == *name)
            .map(|agent| &agent.agent.runtime)
    };
    let is_scripted = |name: &AgentName| matches!(runtime_of(name), Some(Runtime::Scripted));
    let lacks_script = |planned: &&PlannedTask| {
        planned.task.script.is_none()
            && match &planned.task.assign {
                Some(name) => is_scripted(name),
                None => !agents.is_empty() && agents.iter().all(is_scripted),
            }
    };
    let lacking: Vec<&PlannedTask> = work.tasks.iter().filter(lacks_script).collect();
    let Some(first) = lacking.first() else {
        return Ok(());
    };
    let subject = first_line(&first.task.subject);
    let what = match lacking.len() {
        1 => format!(
            "no agent can do this: \"{subject}\" has no script, and its agents are scripted agents, \
            which repeat a script"
        ),
        many => {
            format!(
                "no agent can do this: {many} tasks have no script, and their agents are \
                scripted agents, which repeat a script; the first task is \"{subject}\""
            )
        }
    };
    let is_plain = |path: &String| !path.contains(['*', '?', '[', '"', '\\']);
    let file = first
        .task
        .files
        .iter()
        .map(ToString::to_string)
        .find(is_plain);
    let file = file.as_deref().unwrap_or("notes.md");
    let script = format!("script = [{{ write = {{ path = \"{file}\", text = \"Hello\\n\" }} }}]");
    let hint = format!(
        "install an agent's program (regatta provider lists them), then: regatta agent add NAME \
         --preset PRESET\n\
         or, to rehearse, give each task a script, as in {script}"
    );
    Err(command_error("no_provider", what, hint))
}

/// Warns about agents that cannot start. If no agent can start, the daemon refuses the run;
/// otherwise the other agents do the work.
pub(crate) fn warn_of_agents(
    app: &CommandContext,
    client: &Client,
    agents: &[AgentName],
) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(call::AgentList(input::EmptyInput {}))?;
    // An agent with labels runs on runners (other machines). The daemon does not know which
    // programs are installed there, so skip such an agent.
    let is_local = |view: &&AgentView| {
        agents.contains(&view.agent.name) && view.agent.profile.labels.is_empty()
    };
    for view in known.data.iter().filter(is_local) {
        let name = &view.agent.name;
        let details = client.show_agent(name)?;
        if let Some(problem) = details.problems.first() {
            let hint = problem.hint.replace('\n', "\n  ");
            app.output.print_note(&format!(
                "warning: {name} cannot start: {}\n  {hint}",
                problem.what
            ));
        }
    }
    Ok(())
}
