//! Implements the API verbs for plans. An agent turns a goal into a list of tasks, and a person
//! sees how the tasks would run and starts them.
//!
//! An agent makes a plan in a task that returns a report and changes no files. The report is parsed
//! again at each request, so no plan has to be stored.

use regatta_api::live_view::PageAction;
use regatta_api::plan::{self, FileOwnerView, PlanState, PlanView, PlanningFacts};
use regatta_core::agent::Role;
use regatta_core::display::{self, DisplayState};
use regatta_core::manifest::{OwnedPattern, OwnershipReason, OwnershipTask};
use regatta_core::plan_request::{self, title};
use regatta_core::project::{CommitGrouping, Project};
use regatta_core::shell_quote;
use regatta_core::task::TaskStatus;
use serde_json::json;

use super::*;
use crate::live::new_button;

/// Maximum number of completed tasks from which the estimate of a plan's duration and cost is
/// computed.
const MAX_ESTIMATE_SAMPLES: usize = 500;
/// Maximum number of lines in the table of file owners. All conflicts are shown, even if there are
/// more conflicts than this number.
const MAX_OWNERSHIP_LINES: usize = 60;
const DEFAULT_WORKERS: u32 = 5;

/// Returns the facts about a project and its agents that the planning agent gets in its prompt.
fn planning_facts(board: &Board, project: &ProjectName) -> PlanningFacts {
    let checks = board
        .projects
        .get(project)
        .map(|found| found.validation.clone())
        .unwrap_or_default();
    let slots: u32 = plan_request::planners(board)
        .filter_map(|name| board.agents.get(name))
        .filter(|agent| agent.role == Role::Worker)
        .map(|agent| agent.max_tasks)
        .sum();
    PlanningFacts {
        checks,
        workers: slots.min(DEFAULT_WORKERS),
    }
}

impl VerbHandler<'_> {
    pub(super) async fn plan_ask(&self, input: input::PlanAsk) -> Reply<PlanView> {
        let project = self.resolve_project(input.project)?;
        let board = self.board();
        let planner = input
            .planner
            .or_else(|| default_planner(&board, &project))
            .ok_or_else(|| {
                Problem::new(
                    422,
                    "no_provider",
                    "the project has no agent that can make a plan",
                    "add an agent: regatta provider; or regatta agent add",
                )
            })?;
        let planners = std::slice::from_ref(&planner);
        self.require_startable_agent(planners).await?;
        self.require_scripts(
            planners,
            std::iter::once(start_checks::ScriptNeed {
                subject: &title(&input.goal),
                assignee: None,
                has_script: input.script.is_some(),
            }),
        )?;
        let facts = planning_facts(&board, &project);
        let input = plan_request::PlanRequest {
            project,
            brief: plan::planner_brief(input.goal.trim(), &input.wrong, &facts),
            goal: input.goal,
            planner,
            script: input.script.map(|script| script.to_string()),
        };
        let (revision, tasks) = match self.run(Command::AskPlan(input)).await? {
            (revision, CommandOutcome::Mission { tasks, .. }) => (revision, tasks),
            other => return Err(unexpected_outcome(&other.1)),
        };
        let task = *tasks.first().ok_or_else(|| {
            Problem::new(
                500,
                "bug",
                "the mission that was started to make a plan has no task",
                "this is a bug in Regatta; report it with this message and logs/daemon.log",
            )
        })?;
        reply(revision, self.plan_view(task).await?)
    }

    pub(super) async fn plan_show(&self, input: input::PlanShow) -> Reply<PlanView> {
        let view = self.plan_view(input.task).await?;
        reply(self.board().revision, view)
    }

    pub(super) async fn plan_draw(&self, input: input::PlanDraw) -> Reply<PlanView> {
        let project = self.resolve_project(input.project.clone())?;
        let view = self.plan_preview(project, input).await?;
        reply(self.board().revision, view)
    }

    /// Returns the plan that a planning task has made, or the progress of the task if it has not
    /// ended.
    async fn plan_view(&self, id: TaskId) -> Result<PlanView, Problem> {
        let live = self.board().tasks.get(&id).map(|task| (**task).clone());
        let (stored, attempts) = self
            .read_history(move |history| Ok((history.task(id)?, history.attempts_of(id)?)))
            .await?;
        let task = live.or(stored).ok_or_else(|| {
            Problem::from(&regatta_core::refusal::Refusal::NoSuchTask { task: id })
        })?;
        let Some(goal) = task.planning_goal().map(str::to_owned) else {
            let what = format!("{id} is not a planning task");
            return Err(Problem::new(
                422,
                "no_plan",
                what,
                "ask for a plan: regatta run \"what should be done\"",
            ));
        };
        let planner = task.agent.clone().or(task.assignee.clone());
        let planner_name = planner
            .as_ref()
            .map_or("no agent yet".to_owned(), ToString::to_string);
        let title = plan_request::title(&goal);
        let mut view = PlanView {
            goal: goal.clone(),
            ..empty_plan(task.project.clone(), title.clone())
        };
        (view.task, view.planner) = (Some(id), planner.clone());
        let board = self.board();
        let ask_again = |problem: &str| {
            let action_input = json!({ "project": task.project, "goal": goal, "planner": planner, "wrong": problem });
            let cli = format!("regatta run {}", shell_quote::quote(&goal));
            let choice = crate::live::planner_choice(&board, planner.as_ref());
            PageAction {
                choice,
                ..new_button("Ask again", "plan.ask", action_input, cli)
            }
        };
        match display::status_display(&task).state {
            DisplayState::Landed => {}
            DisplayState::Failed | DisplayState::Needs => {
                let why = task
                    .reason
                    .clone()
                    .unwrap_or_else(|| "it gave no reason".into());
                view.state = PlanState::Failed;
                view.text = format!("{planner_name} made no plan: {why}");
                view.actions = vec![ask_again("")];
                return Ok(view);
            }
            DisplayState::Waiting => {
                let wait_reasons = schedule::wait_reasons(&board, &task, self.engine().now());
                let why = wait_reasons
                    .first()
                    .map_or("it waits", |wait_reason| wait_reason.text.as_str());
                view.text = format!("{planner_name} has not started: {why}");
                return Ok(view);
            }
            _ => {
                view.text = match task
                    .progress
                    .lines()
                    .next()
                    .filter(|progress| !progress.is_empty())
                {
                    Some(progress) => format!("{planner_name} is planning: {progress}"),
                    None => format!("{planner_name} is planning"),
                };
                return Ok(view);
            }
        }
        let detail = attempts
            .iter()
            .rev()
            .find_map(|attempt| attempt.result.as_ref())
            .map(|work_result| work_result.detail.clone());
        let answer = detail
            .filter(|detail| !detail.trim().is_empty())
            .or(task.output.clone())
            .unwrap_or_default();
        let parsed = match (self.shared.parse_plan)(&answer) {
            Ok(parsed) if !parsed.tasks.is_empty() => parsed,
            other => {
                let problem = other.err().unwrap_or_else(|| "it has no tasks".into());
                view.state = PlanState::Unusable;
                view.text = format!("{planner_name}'s plan cannot be used: {problem}");
                view.actions = vec![ask_again(&problem)];
                return Ok(view);
            }
        };
        let input = input::PlanDraw {
            project: None,
            title: title.clone(),
            tasks: parsed.tasks,
            agents: vec![],
        };
        let mut preview = self.plan_preview(task.project.clone(), input).await?;
        preview.warnings.extend(parsed.warnings);
        let is_scripted = planner
            .as_ref()
            .and_then(|planner| board.agents.get(planner))
            .is_some_and(|agent| agent.runtime == Runtime::Scripted);
        if is_scripted {
            preview.warnings.push(format!(
                "{planner_name} asks no model: it gives the plan of its script, whatever the goal"
            ));
        }
        preview.actions.push(ask_again(""));
        Ok(PlanView {
            task: Some(id),
            goal,
            planner,
            ..preview
        })
    }

    /// Returns a plan with the order, the waves (groups of tasks that run at the same time) and the
    /// agents with which the plan would run.
    async fn plan_preview(
        &self,
        name: ProjectName,
        input: input::PlanDraw,
    ) -> Result<PlanView, Problem> {
        let board = self.board();
        let project = require_project_on(&board, &name)?;
        let task_count = input.tasks.len();
        if task_count == 0
            || input.tasks.iter().any(|planned_task| {
                planned_task
                    .after
                    .iter()
                    .any(|position| *position >= task_count)
            })
        {
            let what = "the plan has no tasks, or a task depends on a task outside the plan";
            return Err(Problem::new(
                422,
                "bad_plan",
                what,
                "in the list `after` of each task, give positions of other tasks, counted from 0",
            ));
        }
        let agents = if input.agents.is_empty() {
            working_agents(&board, &project)
        } else {
            input.agents
        };
        let run_settings = &project.settings.run;
        let wave_commits = run_settings.commits == Some(CommitGrouping::Wave);
        let mode = if wave_commits {
            mission::StartMode::Waves
        } else {
            run_settings.mode.unwrap_or_default()
        };
        let start = input::MissionStart {
            project: Some(name.clone()),
            title: input.title.clone(),
            agents: agents.clone(),
            max_workers: run_settings.max_workers.unwrap_or(DEFAULT_WORKERS),
            mode,
            isolate: false,
            wave_commits,
            team: None,
            budget: Default::default(),
            tasks: input.tasks,
            adopt: vec![],
        };
        let serial = self.serial_packages(&name, &start).await?;
        let parts: Vec<OwnershipTask> = start
            .tasks
            .iter()
            .map(|planned_task| OwnershipTask {
                files: planned_task.task.files.clone(),
                after: planned_task.after.clone(),
            })
            .collect();
        let rules = manifest::OwnershipRules {
            run: run_settings,
            serial: &serial,
            isolate: false,
        };
        let ownership = manifest::ownership(&parts, rules).map_err(|circle| {
            let positions: Vec<String> = circle
                .iter()
                .map(|position| (position + 1).to_string())
                .collect();
            let what = format!(
                "deadlock: these tasks wait for each other: {}",
                positions.join(" → ")
            );
            Problem::new(
                422,
                "cycle",
                what,
                "remove one of the dependencies because of which these tasks wait for each other",
            )
        })?;
        let waves = ownership.steps.iter().map(|plan_step| match plan_step.sub {
            0 => (plan_step.wave + 1).to_string(),
            sub => format!("{}.{}", plan_step.wave + 1, sub + 1),
        });
        let (waves, conflicts) = (waves.collect(), ownership.conflict_count());
        let mut owned: Vec<FileOwnerView> = ownership
            .waves
            .iter()
            .flat_map(|wave_ownership| &wave_ownership.owned)
            .filter_map(ownership_line)
            .collect();
        owned.sort_by_key(|file_owner| file_owner.others.is_empty());
        owned.truncate(MAX_OWNERSHIP_LINES.max(conflicts));
        let mut warnings: Vec<String> = start
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, planned)| {
                schedule::lacks_manifest(
                    planned.task.issue_type,
                    planned.task.expects,
                    &planned.task.files,
                )
            })
            .map(|(position, _)| {
                format!(
                    "{} names no files and will not be given to an agent",
                    position + 1
                )
            })
            .collect();
        if agents.is_empty() {
            warnings.push("there is no agent to do the work: regatta agent add".into());
        }
        let estimate = self.estimate_text(&name, task_count as u64).await?;
        let action_input = regatta_api::json::to_value(&start).map_err(|error| {
            let what = format!("could not encode the plan's start as JSON: {error}");
            let hint = "this is a bug in Regatta; report it with this message and logs/daemon.log";
            Problem::new(500, "bug", what, hint)
        })?;
        let cli = format!("regatta run {}", shell_quote::quote(&input.title));
        let start_action = PageAction {
            first: true,
            ..new_button("Start", "mission.start", action_input, cli)
        };
        let pace = match mode {
            mission::StartMode::Flow => "each starts when it is ready",
            mission::StartMode::Waves => "with a barrier between waves",
        };
        Ok(PlanView {
            state: PlanState::Ready,
            text: pace.into(),
            tasks: start.tasks,
            waves,
            owned,
            conflicts,
            warnings,
            estimate,
            actions: if agents.is_empty() {
                vec![]
            } else {
                vec![start_action]
            },
            agents,
            ..empty_plan(name, input.title)
        })
    }

    /// Returns an estimate of time and cost in words, from completed tasks of the project.
    async fn estimate_text(&self, project: &ProjectName, tasks: u64) -> Result<String, Problem> {
        let filter = TaskFilter {
            project: Some(project.clone()),
            statuses: vec![TaskStatus::Completed],
            limit: MAX_ESTIMATE_SAMPLES,
            ..TaskFilter::default()
        };
        let completed = self
            .read_history(move |history| history.tasks(&filter))
            .await?;
        let landed = || completed.iter().filter(|task| task.landed.is_some());
        let times = landed()
            .map(|task| task.spent.wall_ms)
            .filter(|ms| *ms > 0)
            .collect();
        let costs = landed()
            .filter_map(|task| task.spent.usage.micro_usd)
            .collect();
        Ok(plan::estimate_text(times, costs, tasks))
    }
}

/// Returns the agent that makes a plan if the caller names none: the first agent of the project
/// that can plan.
fn default_planner(board: &Board, project: &ProjectName) -> Option<AgentName> {
    let can_plan = |agent: &AgentName| {
        board
            .agents
            .get(agent)
            .is_some_and(|agent| plan_request::can_plan(agent))
    };
    let known = board.projects.get(project)?;
    let planners: Vec<AgentName> = working_agents(board, known)
        .into_iter()
        .filter(can_plan)
        .collect();
    let is_available = |agent: &&AgentName| {
        board
            .agents
            .get(*agent)
            .is_some_and(|agent| regatta_core::provider_outage::find_parked(board, agent).is_none())
    };
    planners
        .iter()
        .find(is_available)
        .or(planners.first())
        .cloned()
}

/// Returns a project from `board`, or an error if there is no such project. The project may be
/// missing because its name may come from an earlier board.
fn require_project_on(board: &Board, name: &ProjectName) -> Result<Arc<Project>, Problem> {
    let no_such_project = || {
        Problem::from(&regatta_core::refusal::Refusal::NoSuchProject {
            project: name.clone(),
        })
    };
    board
        .projects
        .get(name)
        .cloned()
        .ok_or_else(no_such_project)
}

fn empty_plan(project: ProjectName, title: String) -> PlanView {
    PlanView {
        project,
        title,
        goal: String::new(),
        task: None,
        planner: None,
        state: PlanState::Planning,
        text: String::new(),
        tasks: vec![],
        waves: vec![],
        owned: vec![],
        conflicts: 0,
        warnings: vec![],
        agents: vec![],
        estimate: String::new(),
        actions: vec![],
    }
}

/// Returns the agents that would work on a plan: those in the project's settings, or else all
/// agents that Regatta starts.
fn working_agents(board: &Board, project: &Project) -> Vec<AgentName> {
    if let Some(named) = project
        .settings
        .run
        .agents
        .as_ref()
        .filter(|agents| !agents.is_empty())
    {
        return named
            .iter()
            .filter_map(|named| AgentName::new(named).ok())
            .filter(|agent| board.agents.contains_key(agent))
            .collect();
    }
    let started_by_regatta = board
        .agents
        .values()
        .filter(|agent| !matches!(agent.runtime, Runtime::Outside));
    started_by_regatta.map(|agent| agent.name.clone()).collect()
}

/// Returns one line of the table that shows which task owns which files. If several tasks of one
/// wave (a group of tasks that run at the same time) want to change the same files, the task that
/// runs first owns them.
fn ownership_line(owned_pattern: &OwnedPattern) -> Option<FileOwnerView> {
    let mut claimants: Vec<(u32, usize)> = owned_pattern
        .sub_waves
        .iter()
        .copied()
        .zip(owned_pattern.owners.iter().copied())
        .collect();
    claimants.sort_unstable();
    let ((_, owner), others) = claimants.split_first()?;
    let why = match owned_pattern.reason {
        OwnershipReason::Manifest => "",
        OwnershipReason::Derived => " (follows from its files)",
        OwnershipReason::Serial => " (one task of a package at a time)",
    };
    let named: Vec<String> = others
        .iter()
        .map(|(_, position)| (position + 1).to_string())
        .collect();
    let text = if named.is_empty() {
        why.trim().to_owned()
    } else {
        format!("{} after {}{why}", named.join(", "), owner + 1)
    };
    Some(FileOwnerView {
        file: owned_pattern.pattern.to_string(),
        owner: *owner,
        others: others.iter().map(|(_, position)| *position).collect(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first task owns a shared file, and the other tasks are listed with the resolution of the
    /// conflict.
    #[test]
    fn shared_file_belongs_to_the_first_task() {
        let part = |file: &str, after: &[usize]| OwnershipTask {
            files: vec![PathPattern::new(file).unwrap()],
            after: after.to_vec(),
        };
        let run = project::RunSettings::default();
        let rules = manifest::OwnershipRules {
            run: &run,
            serial: &[],
            isolate: false,
        };
        let parts = [
            part("src/a.rs", &[]),
            part("src/**", &[]),
            part("doc.md", &[0]),
        ];
        let all: Vec<OwnedPattern> = manifest::ownership(&parts, rules)
            .unwrap()
            .waves
            .into_iter()
            .flat_map(|wave_ownership| wave_ownership.owned)
            .collect();
        let lines: Vec<FileOwnerView> = all.iter().filter_map(ownership_line).collect();
        let shared = lines
            .iter()
            .find(|file_owner| file_owner.file == "src/a.rs")
            .unwrap();
        assert_eq!(
            (shared.owner, &shared.others[..], shared.text.as_str()),
            (0, &[1][..], "2 after 1")
        );
        let free = lines
            .iter()
            .find(|file_owner| file_owner.file == "doc.md")
            .unwrap();
        assert_eq!(
            (free.owner, free.others.len(), free.text.as_str()),
            (2, 0, "")
        );
    }
}
