//! The command `run`: starts a mission (a run of several tasks) from a plan file, a goal in words,
//! a wave file of the program `ol`, or the tasks that already wait.
//!
//! The command reads and checks everything first, shows a preview, asks a person to confirm, and
//! only then starts the mission. With `--wait`, or in a terminal, it follows the mission to its
//! end.

mod agents;
pub(crate) mod confirm;
mod fill_manifests;
pub(crate) mod from_prompt;
mod from_wave;
pub(crate) mod preview;
pub(crate) mod summary;
mod work;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use regatta_api::view::{MissionView, ProjectView, StatusView};
use regatta_api::{call, input};
use regatta_core::budget::{Ceiling, format_dollars};
use regatta_core::ids::{AgentName, MissionId, ProjectName, TeamName};
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitGrouping;
use regatta_core::{manifest, mission, start_gates};

use crate::client::{CallReply, Client};
use crate::commands::run::agents::{
    check_agents, check_start, choose_agents, launch_team, warn_of_agents,
};
use crate::commands::run::confirm::{PlanDecision, ask_decision, run_again_command};
use crate::commands::run::preview::PreviewRules;
use crate::commands::run::work::{check_not_on_board, open_tasks, work_of_board, work_of_plan};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, command_error, usage_error};
use crate::settings::value_of;
use crate::{output, plan, run_progress, settings};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "run",
    &[
        "regatta run plan.toml --agents claude-1,codex-1 --wait",
        "regatta run plan.toml --plan-only",
    ],
)];

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Plan file (TOML or JSON), - for standard input, or a goal in words that an agent turns into
    /// a plan first; omit the plan to run the tasks that already wait (after a confirmation, or
    /// with --yes)
    #[arg(value_name = "PLAN|GOAL")]
    pub(crate) plan: Option<PathBuf>,
    /// Plan file (TOML or JSON); - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "from_wave", "resume"])]
    pub(crate) from: Option<PathBuf>,
    /// Team whose workers do the tasks; the team is launched if it does not run
    #[arg(long, value_name = "NAME", conflicts_with_all = ["agents", "resume"])]
    pub(crate) team: Option<TeamName>,
    /// Maximum cost in US dollars, such as 2.50; at the limit no more work starts, and an inbox
    /// item tells you
    #[arg(long, value_name = "DOLLARS", value_parser = crate::commands::budget::parse_dollars, conflicts_with = "resume")]
    pub(crate) budget: Option<u64>,
    /// Agent that turns a goal into a plan (default: the first agent of the run)
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<AgentName>,
    /// File with the steps of a scripted planner, for tests
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) planner_script: Option<PathBuf>,
    /// Wave file to run: JSON that the program `ol hero hunt` writes, with tasks of a quest
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(crate) from_wave: Option<PathBuf>,
    /// Name of the quest in the wave file (default: the common prefix of its ids)
    #[arg(long, requires = "from_wave")]
    pub(crate) quest: Option<String>,
    /// Command to run after a task of the wave file has passed its checks; the task is accepted
    /// only if the command succeeds; {id} and {quest} are replaced by the ids of the task and its
    /// quest
    #[arg(long, value_name = "CMD", requires = "from_wave")]
    pub(crate) ratchet: Option<String>,
    /// Wait until no task can continue without a person; the exit code tells the outcome
    #[arg(long)]
    pub(crate) wait: bool,
    /// Order of the tasks: flow starts each task as soon as it is ready (the default unless
    /// regatta.toml changes it), waves starts them layer by layer
    #[arg(long, value_enum)]
    pub(crate) mode: Option<RunModeArg>,
    /// Maximum number of tasks that agents work on at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_workers: Option<u32>,
    /// Run tasks at the same time even if they change the same files; the landing queue merges
    /// their work
    #[arg(long, alias = "worktrees", overrides_with = "no_worktrees")]
    pub(crate) isolate: bool,
    /// Run tasks that change the same files one after the other (the default)
    #[arg(long, alias = "no-isolate", hide = true, overrides_with = "isolate")]
    pub(crate) no_worktrees: bool,
    /// Land each wave (layer of tasks) as one commit when all its tasks have passed; implies --mode
    /// waves
    #[arg(long, overrides_with = "per_task_commits")]
    pub(crate) wave_commits: bool,
    /// Land each task as its own commit (the default unless the plan or regatta.toml changes it)
    #[arg(long, overrides_with = "wave_commits")]
    pub(crate) per_task_commits: bool,
    /// Before the run, let agents find the files of tasks that list no files; without this option
    /// such tasks do not start
    #[arg(long, conflicts_with_all = ["plan_only", "resume"])]
    pub(crate) fill_manifests: bool,
    /// Agents that do the tasks, such as claude-1,codex-1; the agent "scripted" always exists
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Like --wait, and print each event as a line of JSON before the result; needs --json
    #[arg(long, requires = "json")]
    pub(crate) events: bool,
    /// Print the tasks in their order, and start nothing
    #[arg(long)]
    pub(crate) plan_only: bool,
    /// Mission to resume, such as M3 (default: the latest open mission)
    #[arg(long, value_name = "MISSION", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["plan", "from_wave"])]
    pub(crate) resume: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunModeArg {
    Flow,
    Waves,
}

/// Runs `regatta run`.
pub(crate) fn run(app: &CommandContext, args: &RunArgs) -> CommandResult {
    if let Some(mission) = &args.resume {
        return resume_mission(app, args, mission);
    }
    // Read the file first, so that its errors are reported before anything starts, even the daemon.
    let goal = from_prompt::goal_from_argument(args.plan.as_deref());
    let path = args.from.as_ref().or(args.plan.as_ref());
    let mut file = path
        .cloned()
        .filter(|path| goal.is_none() && path != std::path::Path::new("-"));
    let mut planned_work = match (&args.from_wave, path) {
        (Some(file), _) => Some(from_wave::read_wave(app, args, file)?),
        (None, Some(_)) if goal.is_some() => None,
        (None, Some(file)) => Some(work_of_plan(args, plan::read_plan(file)?)),
        (None, None) => None,
    };
    if let Some(goal) = &goal {
        let planned = goal_plan(app, args, goal)?;
        planned_work = Some(work_of_plan(args, planned.plan));
        file = Some(planned.file);
    }
    let run_settings = settings::project_settings(&app.working_dir()?)?.run;
    let wave_commits = uses_wave_commits(
        args,
        planned_work.as_ref().and_then(|run_work| run_work.commits),
        run_settings.commits,
    );
    let mode = match (args.mode, run_settings.mode) {
        (Some(RunModeArg::Flow), _) if wave_commits => {
            return Err(usage_error(
                "each wave would land as one commit, but with --mode flow there are no waves",
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
    let in_waves = mode == mission::StartMode::Waves;
    let mut rules = PreviewRules {
        runs_in_waves: in_waves,
        has_wave_commits: wave_commits,
        is_isolated: args.isolate,
        run: run_settings,
        serial: vec![],
    };
    if let (Some(work), true) = (&planned_work, args.plan_only) {
        // With `--plan-only`, do not start a daemon. If a daemon is already running, check the
        // agents and the trunk too.
        if let Some(client) = Client::find(&app.data_dir()?, app.timeout())? {
            check_agents(&client, args, work)?;
            if let Some(project) = app.project(&client)? {
                rules.serial = serial_packages(app, &client, &project, &rules)?;
                warn_if_behind(app, &client, &project)?;
            }
        }
        for note in &work.notes {
            app.output.print_note(note);
        }
        let next: Vec<String> = file
            .iter()
            .map(|path| run_again_command(args, path))
            .collect();
        return app.output.print_answer("plan", &work.tasks, &next, |_| {
            work.preview.draw(&rules, &[])
        });
    }
    let client = app.client()?;
    let Some(project) = app.project(&client)? else {
        // If the directory is not a usable git repository, report that error first, because it is
        // more helpful than the error that would follow.
        let git = crate::composition::git_adapter(&app.data_dir()?);
        git.inspect(&app.working_dir()?)
            .map_err(|error| command_error(error.code, error.message, error.hint))?;
        return Err(command_error(
            "no_project",
            "this repository is not a project of Regatta yet",
            "make the repository a project: regatta init",
        ));
    };
    let settings = settings::resolve_all(&app.working_dir()?)?;
    let agents = choose_agents(&client, args, &settings)?;
    let max_workers = match args.max_workers {
        Some(count) => count,
        None => value_of(&settings, "run.max_workers")
            .parse()
            .map_err(|_| {
                command_error(
                    "bad_config",
                    "run.max_workers is not a number",
                    "set max_workers under [run] in regatta.toml to a number, such as 5",
                )
            })?,
    };
    let open = open_tasks(&client, &project)?;
    let work = match planned_work {
        Some(work) if args.from_wave.is_some() => check_not_on_board(work, &open.data)?,
        Some(work) => work,
        None => work_of_board(app, args, &open.data)?,
    };
    rules.serial = serial_packages(app, &client, &project, &rules)?;
    warn_if_behind(app, &client, &project)?;
    warn_of_agents(app, &client, &agents)?;
    let mut start = input::MissionStart {
        project: Some(project),
        title: work.title.clone(),
        agents: if args.team.is_some() {
            vec![]
        } else {
            agents.clone()
        },
        team: args.team.clone(),
        budget: Ceiling {
            micro_usd: args.budget,
            ..Ceiling::default()
        },
        max_workers,
        mode,
        isolate: args.isolate,
        wave_commits,
        tasks: vec![],
        adopt: vec![],
    };
    if args.fill_manifests {
        launch_team(app, &client, args)?;
    }
    let mut work = if args.fill_manifests {
        fill_manifests::fill_manifests(app, &client, work, &start, args.events)?
    } else {
        work
    };
    loop {
        check_start(&client, &agents, &work)?;
        app.output
            .print_note(work.preview.draw(&rules, &agents).trim_end());
        if let Some(budget) = args.budget {
            app.output
                .print_note(&format!("budget    {}", format_dollars(budget)));
        }
        for note in &work.notes {
            app.output.print_note(note);
        }
        if args.plan_only {
            return Ok(());
        }
        if goal.is_some() {
            let project = start
                .project
                .clone()
                .unwrap_or_else(|| unreachable!("the project was found above"));
            app.output
                .print_note(&from_prompt::estimate_plan(&client, &project, &work.tasks)?);
        }
        warn_if_dirty(app);
        // Only a plan file can be edited here. Tasks that already exist are changed with `regatta
        // edit`.
        let editable = file.as_ref().filter(|_| !work.tasks.is_empty());
        match ask_decision(app, editable.is_some())? {
            PlanDecision::Start => break,
            PlanDecision::Edit => {
                if let Some(file) = editable {
                    let title = work.title.clone();
                    work = work_of_plan(
                        args,
                        plan::Plan {
                            title,
                            ..from_prompt::edit_plan(app, file)?
                        },
                    );
                }
            }
            PlanDecision::Cancel => {
                let next: Vec<String> = file
                    .iter()
                    .map(|path| run_again_command(args, path))
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
    launch_team(app, &client, args)?;
    (start.tasks, start.adopt) = (work.tasks, work.adopt);
    let reply: CallReply<MissionView> = client.call(call::MissionStart(start))?;
    follow_or_report(app, &client, args, reply, open.revision)
}

/// Lets an agent turn a goal into a plan. The agent reads this repository, so it must already be a
/// project of Regatta.
fn goal_plan(
    app: &CommandContext,
    args: &RunArgs,
    goal: &str,
) -> Result<from_prompt::GoalPlan, CommandError> {
    let client = app.client()?;
    let project = app.project(&client)?;
    let project = project.ok_or_else(|| {
        command_error(
            "no_project",
            "this repository is not a project of Regatta yet",
            "make the repository a project: regatta init",
        )
    })?;
    launch_team(app, &client, args)?;
    let agents = choose_agents(&client, args, &settings::resolve_all(&app.working_dir()?)?)?;
    from_prompt::make_plan(app, &client, args, goal, &project, &agents)
}

/// Returns true if each wave lands as one commit. Options take precedence over the plan, and the
/// plan over the settings.
fn uses_wave_commits(
    args: &RunArgs,
    plan: Option<CommitGrouping>,
    setting: Option<CommitGrouping>,
) -> bool {
    match (args.wave_commits, args.per_task_commits) {
        (true, _) => true,
        (_, true) => false,
        _ => plan.or(setting) == Some(CommitGrouping::Wave),
    }
}

/// Returns patterns for the packages on which only one task works at a time. The daemon computes
/// the same patterns. Here the preview needs them to show the order of the tasks.
fn serial_packages(
    app: &CommandContext,
    client: &Client,
    project: &ProjectName,
    rules: &PreviewRules,
) -> Result<Vec<PathPattern>, CommandError> {
    let projects: CallReply<Vec<ProjectView>> =
        client.call(call::ProjectList(input::EmptyInput {}))?;
    let Some(view) = projects.data.into_iter().find(|data| data.name == *project) else {
        return Ok(vec![]);
    };
    let Some(repo) = crate::commands::project_repo(view) else {
        return Ok(vec![]);
    };
    // A repository on another machine cannot be read here, so the preview shows no serial packages
    // (on which only one task works at a time).
    let Ok(paths) = crate::composition::git_adapter(&app.data_dir()?).paths_at_tip(&repo) else {
        return Ok(vec![]);
    };
    let packages =
        manifest::serial_packages(paths.iter().map(String::as_str), &rules.run.serial_packages);
    packages.map_err(|error| {
        command_error(
            "bad_config",
            error.to_string(),
            "correct serial_packages under [run] in regatta.toml; docs/settings.md explains the \
             setting",
        )
    })
}

/// Warns if the trunk lacks commits of the remote branch that it follows.
fn warn_if_behind(app: &CommandContext, client: &Client, project: &ProjectName) -> CommandResult {
    let projects: CallReply<Vec<ProjectView>> =
        client.call(call::ProjectList(input::EmptyInput {}))?;
    let view = projects.data.into_iter().find(|view| view.name == *project);
    let Some(repo) = view.and_then(crate::commands::project_repo) else {
        return Ok(());
    };
    // A repository on another machine cannot be read here, so skip the warning. The daemon makes
    // the same check before each task starts.
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

/// Follows a started mission to its end. Without a terminal and without `--wait`, only prints its
/// state.
fn follow_or_report(
    app: &CommandContext,
    client: &Client,
    args: &RunArgs,
    reply: CallReply<MissionView>,
    after: u64,
) -> CommandResult {
    let id = reply.data.mission.id;
    if !args.wait && !args.events && !output::is_stdout_watched() {
        return app
            .output
            .print_answer("run", &reply.data, &["regatta status".into()], |out| {
                crate::commands::show::draw_mission(out, &reply.data)
            });
    }
    let ending = run_progress::follow(app, client, reply, after, args.events)?;
    summary::print_ending(app, client, id, ending)
}

/// Runs `regatta run --resume`.
fn resume_mission(app: &CommandContext, args: &RunArgs, mission: &str) -> CommandResult {
    let client = app.client()?;
    let id: MissionId = if mission.is_empty() {
        let status: CallReply<StatusView> = client.call(call::Status(input::ProjectFilter {
            project: app.project(&client)?,
        }))?;
        *status.data.missions.last().ok_or_else(|| {
            command_error(
                "no_such_mission",
                "there is no open mission to resume",
                "start a mission: regatta run PLAN.toml",
            )
        })?
    } else {
        mission
            .parse()
            .map_err(|error: regatta_core::ids::BadName| {
                usage_error(
                    error.to_string(),
                    "give the id of the mission: regatta run --resume M3",
                )
            })?
    };
    let resumed = client.call(call::Resume(input::IdInput { id: id.to_string() }))?;
    let reply: CallReply<MissionView> =
        client.call(call::MissionShow(input::IdInput { id: id.to_string() }))?;
    let after = resumed.revision.min(reply.revision);
    follow_or_report(app, &client, args, reply, after)
}

/// Warns about uncommitted changes in the person's checkout, because agents' work on the same files
/// cannot land before the person commits or stashes the changes.
fn warn_if_dirty(app: &CommandContext) {
    let Ok((dir, data_dir)) = app
        .working_dir()
        .and_then(|path| Ok((path, app.data_dir()?)))
    else {
        return;
    };
    if let Ok(facts) = crate::composition::git_adapter(&data_dir).inspect(&dir)
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
            you commit or stash them: git commit -a, or git stash"
        ));
    }
}
