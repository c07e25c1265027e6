//! The command `run`: starts a mission from a plan file, a goal in words, a wave of quests, or the
//! waiting tasks.
//!
//! The command reads and checks everything first, shows a preview, asks a person to confirm, and
//! only then starts the mission. With `--wait`, or in a terminal, it follows the mission to its
//! end.

use std::io::Write;

use regatta_api::input::{self, PlannedTask, RuntimeName};
use regatta_api::team::{self as wire, TeamView};
use regatta_api::view::{AgentView, MissionView, ProjectView, StatusView, TaskView};
use regatta_api::{Call, Problem};
use regatta_core::agent::{Role, Runtime};
use regatta_core::budget::{Ceiling, format_dollars};
use regatta_core::ids::{AgentName, MissionId, ProjectName, TaskId};
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitGrouping;
use regatta_core::refusal::Refusal;
use regatta_core::schedule::lacks_manifest;
use regatta_core::shell_quote::quote;
use regatta_core::{manifest, mission, start_gates};
use regatta_engine::ports::git::Git;

use crate::args::{RunArgs, RunModeArg};
use crate::client::{CallReply, Client};
use crate::output::{self, CommandError, CommandResult, command_error, first_line, usage_error};
use crate::plan;
use crate::run_progress;
use crate::settings::{self, value_of};

use super::CommandContext;
use super::fill;
use super::goal;
use super::preview::{PreviewRules, RunPreview, task_count};
use super::summary;
use super::wave;

/// Time to wait for the launch of a team.
const LAUNCH_TIMEOUT_MS: u64 = 120_000;

/// The tasks of a run, before it starts: new tasks of a plan, or existing tasks of the board.
pub(super) struct RunWork {
    pub(super) title: String,
    pub(super) commits: Option<CommitGrouping>,
    pub(super) tasks: Vec<PlannedTask>,
    pub(super) adopt: Vec<TaskId>,
    pub(super) preview: RunPreview,
    /// Remarks to print before the start.
    pub(super) notes: Vec<String>,
}

/// Runs `regatta run`.
pub(super) fn run(app: &CommandContext, ask: &RunArgs) -> CommandResult {
    if let Some(mission) = &ask.resume {
        return resume_mission(app, ask, mission);
    }
    // Errors in a file are reported before anything starts, including the daemon.
    let words = goal::goal_from_argument(ask.plan.as_deref());
    let named = ask.from.as_ref().or(ask.plan.as_ref());
    let mut file = named
        .cloned()
        .filter(|path| words.is_none() && path != std::path::Path::new("-"));
    let mut given = match (&ask.from_wave, named) {
        (Some(file), _) => Some(wave::read_wave(app, ask, file)?),
        (None, Some(_)) if words.is_some() => None,
        (None, Some(file)) => Some(work_of_plan(ask, plan::read_plan(file)?)),
        (None, None) => None,
    };
    if let Some(words) = &words {
        let made = goal_plan(app, ask, words)?;
        given = Some(work_of_plan(ask, made.plan));
        file = Some(made.file);
    }
    let set = settings::project_settings(&app.working_dir()?)?.run;
    let wave_commits = uses_wave_commits(
        ask,
        given.as_ref().and_then(|run_work| run_work.commits),
        set.commits,
    );
    let mode = match (ask.mode, set.mode) {
        (Some(RunModeArg::Flow), _) if wave_commits => {
            return Err(usage_error(
                "one commit per wave needs waves, but --mode flow has none",
                "omit --mode flow, or add --per-task-commits",
            ));
        }
        (None, _) if wave_commits => mission::StartMode::Waves,
        (Some(RunModeArg::Flow), _) | (None, Some(mission::StartMode::Flow) | None) => {
            mission::StartMode::Flow
        }
        (Some(RunModeArg::Waves), _) | (None, Some(mission::StartMode::Waves)) => {
            mission::StartMode::Waves
        }
    };
    let waves = mode == mission::StartMode::Waves;
    let mut rules = PreviewRules {
        runs_in_waves: waves,
        has_wave_commits: wave_commits,
        is_isolated: ask.isolate,
        run: set,
        serial: vec![],
    };
    if let (Some(work), true) = (&given, ask.plan_only) {
        // --plan-only starts no daemon. It asks the daemon only if one is running.
        if let Some(client) = Client::find(&app.data_dir()?, app.timeout())? {
            check_agents(&client, ask, work)?;
            if let Some(project) = app.project(&client)? {
                rules.serial = serial_packages(app, &client, &project, &rules)?;
                warn_if_behind(app, &client, &project)?;
            }
        }
        work.notes
            .iter()
            .for_each(|note| app.output.print_note(note));
        let next: Vec<String> = file
            .iter()
            .map(|path| run_again_command(ask, path))
            .collect();
        return app.output.print_answer("plan", &work.tasks, &next, |_| {
            work.preview.draw(&rules, &[])
        });
    }
    let client = app.client()?;
    let Some(project) = app.project(&client)? else {
        // If the directory is no usable git repository, that error is more helpful.
        let git = crate::composition::git_adapter(&app.data_dir()?);
        regatta_engine::ports::git::Git::inspect(&git, &app.working_dir()?)
            .map_err(|error| command_error(error.code, error.message, error.hint))?;
        return Err(command_error(
            "no_project",
            "this repository is not under management yet",
            "set it up: regatta init",
        ));
    };
    let settings = settings::resolve_all(&app.working_dir()?)?;
    let agents = choose_agents(&client, ask, &settings)?;
    let max_workers = match ask.max_workers {
        Some(n) => n,
        None => value_of(&settings, "run.max_workers")
            .parse()
            .map_err(|_| {
                command_error(
                    "bad_config",
                    "run.max_workers is not a number",
                    "fix it in regatta.toml",
                )
            })?,
    };
    let open = open_tasks(&client, &project)?;
    let work = match given {
        Some(work) if ask.from_wave.is_some() => check_not_on_board(work, &open.data)?,
        Some(work) => work,
        None => work_of_board(app, ask, &open.data)?,
    };
    rules.serial = serial_packages(app, &client, &project, &rules)?;
    warn_if_behind(app, &client, &project)?;
    warn_of_agents(app, &client, &agents)?;
    let mut start = input::MissionStart {
        project: Some(project),
        title: work.title.clone(),
        agents: if ask.team.is_some() {
            vec![]
        } else {
            agents.clone()
        },
        team: ask.team.clone(),
        budget: Ceiling {
            micro_usd: ask.budget,
            ..Ceiling::default()
        },
        max_workers,
        mode,
        isolate: ask.isolate,
        wave_commits,
        tasks: vec![],
        adopt: vec![],
    };
    if ask.fill_manifests {
        launch_team(app, &client, ask)?;
    }
    let work = if ask.fill_manifests {
        fill::fill_manifests(app, &client, work, &start, ask.events)?
    } else {
        work
    };
    let mut work = work;
    loop {
        check_start(&client, &agents, &work)?;
        app.output
            .print_note(work.preview.draw(&rules, &agents).trim_end());
        ask.budget.iter().for_each(|budget| {
            app.output
                .print_note(&format!("budget    {}", format_dollars(*budget)))
        });
        work.notes
            .iter()
            .for_each(|note| app.output.print_note(note));
        if ask.plan_only {
            return Ok(());
        }
        if words.is_some() {
            let project = start
                .project
                .clone()
                .unwrap_or_else(|| unreachable!("the project was found above"));
            app.output
                .print_note(&goal::estimate_plan(&client, &project, &work.tasks)?);
        }
        warn_if_dirty(app);
        // Only a plan file can be edited here. Tasks on the board are changed with `regatta edit`.
        let editable = file.as_ref().filter(|_| !work.tasks.is_empty());
        match ask_decision(app, editable.is_some())? {
            PlanDecision::Start => break,
            PlanDecision::Edit => {
                if let Some(file) = editable {
                    let title = work.title.clone();
                    work = work_of_plan(
                        ask,
                        plan::Plan {
                            title,
                            ..goal::edit_plan(app, file)?
                        },
                    );
                }
            }
            PlanDecision::Cancel => {
                let next: Vec<String> = file
                    .iter()
                    .map(|path| run_again_command(ask, path))
                    .collect();
                return app.output.print_answer(
                    "run",
                    &serde_json::json!({ "started": false }),
                    &next,
                    |_| "nothing was started\n".into(),
                );
            }
        }
    }
    launch_team(app, &client, ask)?;
    (start.tasks, start.adopt) = (work.tasks, work.adopt);
    let got: CallReply<MissionView> = client.call(&Call::MissionStart(start))?;
    follow_or_report(app, &client, ask, got, open.revision)
}

/// Refuses agents that do not exist, like the daemon at the start of the mission.
fn check_agents(client: &Client, ask: &RunArgs, work: &RunWork) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    let exists = |name: &AgentName| {
        name.as_str() == "scripted" || known.data.iter().any(|agent| agent.agent.name == *name)
    };
    let named = ask.agents.iter().chain(
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

/// Refuses tasks without a script for scripted agents. The daemon would refuse them too, but only
/// after the person has confirmed the plan.
fn check_start(client: &Client, agents: &[AgentName], work: &RunWork) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
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
        1 => format!("\"{subject}\" has no script, but its agent is a scripted agent"),
        many => {
            format!(
                "{many} tasks have no script, but their agents are scripted agents; the first \
                is \"{subject}\""
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
        "to rehearse, give each task a script, as in {script}\n\
         or let an agent do it: regatta provider shows what is installed\n\
         or watch a rehearsal that is complete: regatta demo"
    );
    Err(command_error("no_provider", what, hint))
}

/// Lets an agent turn a goal into a plan. The agent reads this repository, so the repository must
/// be managed already.
fn goal_plan(
    app: &CommandContext,
    ask: &RunArgs,
    words: &str,
) -> Result<goal::GoalPlan, CommandError> {
    let client = app.client()?;
    let project = app.project(&client)?;
    let project = project.ok_or_else(|| {
        command_error(
            "no_project",
            "this repository is not under management yet",
            "set it up: regatta init",
        )
    })?;
    launch_team(app, &client, ask)?;
    let agents = choose_agents(&client, ask, &settings::resolve_all(&app.working_dir()?)?)?;
    goal::make_plan(app, &client, ask, (words, &project), &agents)
}

/// Launches the team of `--team` if it does not run. A member that fails to start is reported, and
/// the others do the work.
fn launch_team(app: &CommandContext, client: &Client, ask: &RunArgs) -> CommandResult {
    let Some(team) = &ask.team else { return Ok(()) };
    let known: CallReply<TeamView> =
        client.call(&Call::TeamShow(wire::TeamNameInput { team: team.clone() }))?;
    if known.data.up {
        return Ok(());
    }
    app.output.print_note(&format!("launching the team {team}"));
    let start = wire::StartTeam {
        team: team.clone(),
        left_out: vec![],
        wait_ms: LAUNCH_TIMEOUT_MS,
    };
    let got: CallReply<TeamView> = client.call(&Call::TeamLaunch(start))?;
    app.output.print_note(&format!(
        "{team}: {}",
        output::first_line(&got.data.summary.headline)
    ));
    Ok(())
}

/// A person's decision about a plan.
enum PlanDecision {
    Start,
    Edit,
    Cancel,
}

/// Asks whether to start the plan. Without a terminal the answer is yes.
fn ask_decision(app: &CommandContext, editable: bool) -> Result<PlanDecision, CommandError> {
    if !app.can_ask() {
        return Ok(PlanDecision::Start);
    }
    if !editable {
        return Ok(if confirm("start it?")? {
            PlanDecision::Start
        } else {
            PlanDecision::Cancel
        });
    }
    let mut stderr = std::io::stderr();
    let _gone = write!(stderr, "start it? [Y] yes  [e] edit the plan  [n] no ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| command_error("io", error.to_string(), "answer in advance with --yes"))?;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "" if read > 0 => PlanDecision::Start,
        "y" | "yes" => PlanDecision::Start,
        "e" | "edit" => PlanDecision::Edit,
        _ => PlanDecision::Cancel,
    })
}

/// Returns the command that starts this plan with the same options.
fn run_again_command(ask: &RunArgs, file: &std::path::Path) -> String {
    let mut line = format!("regatta run {}", quote(&file.display().to_string()));
    if !ask.agents.is_empty() {
        let names: Vec<&str> = ask.agents.iter().map(AgentName::as_str).collect();
        line += &format!(" --agents {}", names.join(","));
    }
    if let Some(team) = &ask.team {
        line += &format!(" --team {team}");
    }
    if let Some(most) = ask.budget {
        line += &format!(" --budget {}", format_dollars(most).trim_start_matches('$'));
    }
    match ask.mode {
        Some(RunModeArg::Flow) => line += " --mode flow",
        Some(RunModeArg::Waves) => line += " --mode waves",
        None => {}
    }
    if let Some(many) = ask.max_workers {
        line += &format!(" --max-workers {many}");
    }
    let flags = [
        (ask.isolate, "isolate"),
        (ask.wave_commits, "wave-commits"),
        (ask.per_task_commits, "per-task-commits"),
    ];
    flags
        .iter()
        .filter(|flag| flag.0)
        .for_each(|flag| line += &format!(" --{}", flag.1));
    line
}

/// Returns true if each wave lands as one commit. Options take precedence over the plan, and the
/// plan over the settings.
fn uses_wave_commits(
    ask: &RunArgs,
    plan: Option<CommitGrouping>,
    set: Option<CommitGrouping>,
) -> bool {
    match (ask.wave_commits, ask.per_task_commits) {
        (true, _) => true,
        (_, true) => false,
        _ => plan.or(set) == Some(CommitGrouping::Wave),
    }
}

/// Returns the work of a plan, with a warning about tasks without files.
pub(super) fn work_of_plan(ask: &RunArgs, plan: plan::Plan) -> RunWork {
    let preview = RunPreview::from_plan(&plan);
    let lacks = |planned_task: &PlannedTask| {
        lacks_manifest(
            planned_task.task.issue_type,
            planned_task.task.expects,
            &planned_task.task.files,
        )
    };
    let lacking: Vec<String> = plan
        .tasks
        .iter()
        .zip(&plan.names)
        .filter(|task| lacks(task.0))
        .map(|task| task.1.clone())
        .collect();
    let notes = missing_files_note(ask, &lacking);
    RunWork {
        title: plan.title,
        commits: plan.commits,
        tasks: plan.tasks,
        adopt: vec![],
        preview,
        notes,
    }
}

/// Returns the project's tasks that have not ended.
pub(super) fn open_tasks(
    client: &Client,
    project: &ProjectName,
) -> Result<CallReply<Vec<TaskView>>, CommandError> {
    let filter = input::TaskList {
        project: Some(project.clone()),
        mission: None,
        status: vec![],
        all: false,
        limit: 0,
    };
    client.call(&Call::TaskList(filter))
}

/// Returns the packages on which only one task works at a time. The daemon finds the same ones; the
/// preview needs them too.
fn serial_packages(
    app: &CommandContext,
    client: &Client,
    project: &ProjectName,
    rules: &PreviewRules,
) -> Result<Vec<PathPattern>, CommandError> {
    let projects: CallReply<Vec<ProjectView>> =
        client.call(&Call::ProjectList(input::EmptyInput {}))?;
    let Some(item) = projects.data.into_iter().find(|data| data.name == *project) else {
        return Ok(vec![]);
    };
    let Some(repo) = super::project_repo(item) else {
        return Ok(vec![]);
    };
    // A repository on another machine cannot be read here, so the preview does without them.
    let Ok(paths) = crate::composition::git_adapter(&app.data_dir()?).paths_at_tip(&repo) else {
        return Ok(vec![]);
    };
    let found =
        manifest::serial_packages(paths.iter().map(String::as_str), &rules.run.serial_packages);
    found.map_err(|error| {
        command_error(
            "bad_config",
            error.to_string(),
            "fix serial_packages under [run] in regatta.toml",
        )
    })
}

/// Warns if the trunk lacks commits of the remote branch that it follows.
fn warn_if_behind(app: &CommandContext, client: &Client, project: &ProjectName) -> CommandResult {
    let projects: CallReply<Vec<ProjectView>> =
        client.call(&Call::ProjectList(input::EmptyInput {}))?;
    let view = projects.data.into_iter().find(|view| view.name == *project);
    let Some(repo) = view.and_then(super::project_repo) else {
        return Ok(());
    };
    // A repository on another machine cannot be read here. The daemon checks it before each task
    // starts.
    let Ok(facts) = crate::composition::git_adapter(&app.data_dir()?).trunk_facts(&repo) else {
        return Ok(());
    };
    if let Some(warning) =
        start_gates::base_warning(facts.upstream.as_deref(), facts.commits_behind)
    {
        app.output.print_note(&format!("warning: {warning}"));
    }
    Ok(())
}

/// Warns about agents that cannot start. The daemon refuses the run if that is all of them;
/// otherwise the others do the work.
fn warn_of_agents(app: &CommandContext, client: &Client, agents: &[AgentName]) -> CommandResult {
    let known: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    // An agent with labels runs on runners, whose programs the daemon cannot see.
    let is_local = |view: &&AgentView| {
        agents.contains(&view.agent.name) && view.agent.profile.labels.is_empty()
    };
    for view in known.data.iter().filter(is_local) {
        let name = &view.agent.name;
        let shown: CallReply<AgentView> = client.call(&Call::Show(input::IdInput {
            id: name.to_string(),
        }))?;
        if let Some(problem) = shown.data.problems.first() {
            let ways = problem.hint.replace('\n', "\n  ");
            app.output.print_note(&format!(
                "warning: {name} cannot start: {}\n  {ways}",
                problem.what
            ));
        }
    }
    Ok(())
}

/// Refuses a wave if one of its beads is already an open task, because the work would be done
/// twice.
fn check_not_on_board(work: RunWork, open: &[TaskView]) -> Result<RunWork, CommandError> {
    let alias = |planned_task: &PlannedTask| planned_task.task.alias.clone();
    let there = work.tasks.iter().find_map(|planned_task| {
        open.iter()
            .find(|open| open.task.alias == alias(planned_task))
    });
    match there {
        Some(task) => Err(command_error(
            "already_exists",
            format!(
                "{} is already on the board as {}",
                task.task.alias.as_deref().unwrap_or_default(),
                task.task.id
            ),
            format!(
                "to see it: regatta show {}; to continue: regatta run --resume; to cancel it: \
                regatta task cancel {}",
                task.task.id, task.task.id
            ),
        )),
        None => Ok(work),
    }
}

/// Returns the waiting tasks of the board that belong to no mission.
fn work_of_board(
    app: &CommandContext,
    ask: &RunArgs,
    open: &[TaskView],
) -> Result<RunWork, CommandError> {
    let free: Vec<&TaskView> = open
        .iter()
        .filter(|task| task.task.mission.is_none() && task.task.status.is_waiting())
        .collect();
    if free.is_empty() {
        return Err(usage_error(
            "no plan was given, and no task waits on the board",
            "name a plan, or add a task: regatta add SUBJECT --files src/**",
        ));
    }
    let named: Vec<String> = free
        .iter()
        .take(20)
        .map(|task| task.task.id.to_string())
        .collect();
    let more = if free.len() > named.len() { " …" } else { "" };
    let which = format!(
        "{} without a mission: {}{more}",
        task_count(free.len()),
        named.join(" ")
    );
    if !ask.plan_only && !app.global.yes && !app.can_ask() {
        return Err(usage_error(
            format!("no plan was given, so this would start {which}"),
            "to start them: regatta run --yes; to run a plan: regatta run PLAN.toml",
        ));
    }
    app.output.print_note(&format!("no plan: {which}"));
    let lacking: Vec<String> = free
        .iter()
        .filter(|task| lacks_manifest(task.task.issue_type, task.task.expects, &task.task.files))
        .map(|task| task.task.id.to_string())
        .collect();
    Ok(RunWork {
        title: "tasks on the board".into(),
        commits: None,
        tasks: vec![],
        adopt: free.iter().map(|task| task.task.id).collect(),
        preview: RunPreview::from_board(&free),
        notes: missing_files_note(ask, &lacking),
    })
}

/// Returns a warning about tasks without files, unless `--fill-manifests` will find the files.
fn missing_files_note(ask: &RunArgs, names: &[String]) -> Vec<String> {
    if names.is_empty() || ask.fill_manifests {
        return vec![];
    }
    vec![format!(
        "warning: {} no files and will not be given to an agent: regatta edit TASK --files …, or \
        --fill-manifests",
        match names {
            [one] => format!("{one} names"),
            many => format!("{} name", many.join(" ")),
        }
    )]
}

/// Follows a mission that has started, or prints its state if there is no terminal and no `--wait`.
fn follow_or_report(
    app: &CommandContext,
    client: &Client,
    ask: &RunArgs,
    got: CallReply<MissionView>,
    after: u64,
) -> CommandResult {
    let id = got.data.mission.id;
    if !ask.wait && !ask.events && !output::is_stdout_watched() {
        return app
            .output
            .print_answer("run", &got.data, &["regatta status".into()], |out| {
                super::see::draw_mission(out, &got.data)
            });
    }
    let ending = run_progress::follow(app, client, got, after, ask.events)?;
    summary::print_ending(app, client, id, ending)
}

/// Runs `regatta run --resume`.
fn resume_mission(app: &CommandContext, ask: &RunArgs, mission: &str) -> CommandResult {
    let client = app.client()?;
    let id: MissionId = if mission.is_empty() {
        let status: CallReply<StatusView> = client.call(&Call::Status(input::ProjectFilter {
            project: app.project(&client)?,
        }))?;
        *status.data.missions.last().ok_or_else(|| {
            command_error(
                "no_such_mission",
                "there is no open mission to resume",
                "start one: regatta run PLAN.toml",
            )
        })?
    } else {
        mission
            .parse()
            .map_err(|error: regatta_core::ids::BadName| {
                usage_error(error.to_string(), "write the id of a mission, such as M3")
            })?
    };
    let resumed: CallReply<String> =
        client.call(&Call::Resume(input::IdInput { id: id.to_string() }))?;
    let got: CallReply<MissionView> =
        client.call(&Call::MissionShow(input::IdInput { id: id.to_string() }))?;
    let after = resumed.revision.min(got.revision);
    follow_or_report(app, &client, ask, got, after)
}

/// Returns the agents of a run: the team's workers, the named agents, those of the settings, or all
/// agents that Regatta starts. Adds the agent `scripted` if it is named and does not exist.
fn choose_agents(
    client: &Client,
    ask: &RunArgs,
    settings: &[settings::ResolvedSetting],
) -> Result<Vec<AgentName>, CommandError> {
    if let Some(team) = &ask.team {
        let got: CallReply<TeamView> =
            client.call(&Call::TeamShow(wire::TeamNameInput { team: team.clone() }))?;
        return Ok(got.data.desired.workers());
    }
    let known: CallReply<Vec<AgentView>> = client.call(&Call::AgentList(input::EmptyInput {}))?;
    let mut wanted = ask.agents.clone();
    if wanted.is_empty() {
        for name in value_of(settings, "run.agents")
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
        {
            wanted.push(AgentName::new(name).map_err(|error| {
                usage_error(error.to_string(), "fix run.agents in regatta.toml")
            })?);
        }
    }
    if wanted.is_empty() {
        wanted = known
            .data
            .iter()
            .filter(|agent| !matches!(agent.agent.runtime, Runtime::Outside))
            .map(|agent| agent.agent.name.clone())
            .collect();
    }
    if wanted.is_empty() {
        return Err(command_error(
            "no_provider",
            "no agent can do the work",
            "see which agent programs are installed, and how to install one: regatta provider\n\
             or watch a rehearsal that needs none: regatta demo\n\
             or rehearse a plan whose tasks have scripts: regatta run PLAN --agents scripted",
        ));
    }
    for name in &wanted {
        if name.as_str() == "scripted" && !known.data.iter().any(|agent| agent.agent.name == *name)
        {
            let add = input::AgentAdd {
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
            let _added: CallReply<AgentView> = client.call(&Call::AgentAdd(add))?;
        }
    }
    Ok(wanted)
}

/// Warns about uncommitted changes in the checkout before the work starts, because they delay
/// landings of these files.
fn warn_if_dirty(app: &CommandContext) {
    let Ok((here, data_dir)) = app
        .working_dir()
        .and_then(|path| Ok((path, app.data_dir()?)))
    else {
        return;
    };
    let facts = regatta_engine::ports::git::Git::inspect(
        &crate::composition::git_adapter(&data_dir),
        &here,
    );
    if let Ok(facts) = facts
        && !facts.dirty_files.is_empty()
    {
        let files = facts
            .dirty_files
            .iter()
            .take(3)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        app.output.print_note(&format!(
            "warning: the checkout has changes in {files}; work on these files lands only after \
            you commit or stash them"
        ));
    }
}

/// Asks a yes-or-no question. An empty line is a yes.
pub(super) fn confirm(question: &str) -> Result<bool, CommandError> {
    let mut stderr = std::io::stderr();
    let _gone = write!(stderr, "{question} [Y/n] ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| command_error("io", error.to_string(), "answer in advance with --yes"))?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "" | "y" | "yes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_unchanged() {
        let words = [
            "",
            "plan.md",
            "my plan.md",
            "it's",
            "$HOME",
            "`id`",
            "a\nb",
            "~",
            "=ls",
            "A=b",
            "-n",
            "Grüße",
            r"\",
        ];
        let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let script = format!(
            "for it in {}; do printf '%s\\0' \"$it\"; done",
            line.join(" ")
        );
        let out = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        let back = String::from_utf8(out.stdout).unwrap();
        assert_eq!(
            back.split_terminator('\0').collect::<Vec<_>>(),
            words,
            "{script}"
        );
    }
}
