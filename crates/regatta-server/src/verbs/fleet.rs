//! Implements the API verbs that show or set up the fleet (everything that the daemon manages):
//! status, graph, limits, projects and agents.
//!
//! Before such a call is answered, settings files that were just saved are applied, so that the
//! answer agrees with them.

use regatta_api::live_view::MissionProgress;
use regatta_api::view::{AgentProblem, GraphView, SettingsFileFault, UnreadableRowView};
use regatta_core::reference::Reference;
use regatta_core::refusal::Refusal;
use regatta_engine::ports::agents::LaunchProblem as SetupProblem;
use regatta_engine::ports::store::UnreadableRow;

use super::*;
use crate::fleet_summary;
use crate::live::{self, GraphScope};

fn unreadable_view(row: &UnreadableRow) -> UnreadableRowView {
    UnreadableRowView {
        table: row.table.to_owned(),
        id: row.id.clone(),
        why: row.reason.clone(),
    }
}

impl VerbHandler<'_> {
    /// Checks that the project exists, if the caller names one. Without this check, the
    /// answer for an unknown project would look like the answer for a project without any content.
    pub(super) fn require_project(&self, named: Option<&ProjectName>) -> Result<(), Problem> {
        named.map_or(Ok(()), |project| {
            self.resolve_project(Some(project.clone())).map(|_| ())
        })
    }

    pub(super) async fn status(&self, input: input::ProjectFilter) -> Reply<StatusView> {
        self.require_project(input.project.as_ref())?;
        let config_faults = apply_settings(self.shared).await?;
        let board = self.board();
        let now = self.engine().now();
        let is_selected = |project: &ProjectName| {
            input
                .project
                .as_ref()
                .is_none_or(|selected| selected == project)
        };
        let tasks: Vec<TaskView> = board
            .tasks
            .values()
            .filter(|task| is_selected(&task.project))
            .map(|task| self.task_view_with_liveness(&board, task))
            .collect();
        let (shared, of, project) = (self.shared.clone(), board.clone(), input.project.clone());
        let read = move || fleet_summary::read(&shared, &of, project.as_ref(), now);
        let summary = run_blocking(read).await?.map_err(problem_from_store)?;
        let view = StatusView {
            working: summary.working,
            waiting: summary.waiting,
            landing: summary.landing,
            needs_you: summary.needs_you,
            completed: summary.completed,
            failed: summary.failed,
            missions: summary.missions.iter().map(|mission| mission.id).collect(),
            progress: summary.missions.iter().map(MissionProgress::from).collect(),
            summary,
            projects: self
                .project_views(&board, selected_projects(&board, input.project.as_ref()))
                .await?,
            agents: AgentView::list(&board, now),
            url: format!("http://{}/", self.shared.address),
            tasks,
            unreadable: self
                .engine()
                .unreadable_rows()
                .iter()
                .map(unreadable_view)
                .collect(),
            config_faults,
        };
        reply(board.revision, view)
    }

    pub(super) async fn graph(&self, input: input::GraphInput) -> Reply<GraphView> {
        self.require_project(input.project.as_ref())?;
        let scope = match input.id.as_deref() {
            None => GraphScope::All,
            Some(id) => match self.resolve_reference(id, &resolve_id::GRAPH)? {
                Reference::Mission(mission) => GraphScope::Mission(mission),
                other => GraphScope::Task(self.task_of_reference(&other, "graph").await?),
            },
        };
        let shared = self.shared.clone();
        let built = run_blocking(move || live::build_graph(&shared, scope, input.project.as_ref()))
            .await?
            .map_err(problem_from_store)?;
        match (built, scope) {
            ((revision, Some(view)), _) => reply(revision, view),
            ((_, None), GraphScope::Task(task)) => {
                Err(Problem::from(&Refusal::NoSuchTask { task }))
            }
            ((_, None), GraphScope::Mission(mission)) => {
                Err(Problem::from(&Refusal::NoSuchMission { mission }))
            }
            ((revision, None), GraphScope::All) => {
                reply(revision, GraphView::new("all tasks".into(), &[], None))
            }
        }
    }

    pub(super) async fn limits_show(&self, _: input::EmptyInput) -> Reply<MachineLimits> {
        let board = self.board();
        reply(board.revision, board.limits)
    }

    pub(super) async fn limits_set(&self, input: input::LimitsSet) -> Reply<Done> {
        let current = self.board().limits;
        let limits = MachineLimits {
            max_attempts: input.max_attempts.unwrap_or(current.max_attempts),
            attempt_timeout_ms: input
                .attempt_timeout_ms
                .unwrap_or(current.attempt_timeout_ms),
            lead_timeout_ms: input.lead_timeout_ms.unwrap_or(current.lead_timeout_ms),
            startup_ms: input.startup_ms.unwrap_or(current.startup_ms),
            silence_ms: input.silence_ms.unwrap_or(current.silence_ms),
            escalate_ms: input.escalate_ms.unwrap_or(current.escalate_ms),
            retry_delay_ms: input.retry_ms.unwrap_or(current.retry_delay_ms),
            max_retry_delay_ms: input.retry_most_ms.unwrap_or(current.max_retry_delay_ms),
            shutdown_ms: input.shutdown_ms.unwrap_or(current.shutdown_ms),
            attempt_memory_mb: input.attempt_memory_mb.unwrap_or(current.attempt_memory_mb),
            attempt_disk_mb: input.attempt_disk_mb.unwrap_or(current.attempt_disk_mb),
            landing_slots: current.landing_slots,
        };
        self.run_and_confirm(Command::SetLimits { limits }).await
    }

    pub(super) async fn project_views(
        &self,
        board: &Arc<Board>,
        projects: Vec<Arc<project::Project>>,
    ) -> Result<Vec<ProjectView>, Problem> {
        let (board, git) = (board.clone(), self.engine().git());
        run_blocking(move || {
            projects
                .iter()
                .map(|project| ProjectView {
                    name: project.name.clone(),
                    path: project.location.clone(),
                    trunk: project.trunk.to_string(),
                    tip: git.tip(&ProjectRepo::from_project(project)).ok(),
                    validation: project.validation.clone(),
                    open_tasks: board
                        .tasks
                        .values()
                        .filter(|task| task.project == project.name)
                        .count(),
                    queue: board.queue_of(&project.name).count(),
                    radar: project.collision_forecast.clone(),
                    held: project.queue.held.clone(),
                    unpushed: project.queue.unpushed.clone(),
                    trunk_differs: regatta_core::landing::trunk_check::difference_sentence(project),
                })
                .collect()
        })
        .await
    }

    pub(super) async fn project_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<ProjectView>> {
        let board = self.board();
        let mut projects = selected_projects(&board, None);
        natural_sort::sort(&mut projects, |project| project.name.as_str());
        let key = |project: &Arc<project::Project>| project.name.to_string();
        let projects = page.select(projects, key, |project| project)?;
        let views = self.project_views(&board, projects.list().clone()).await?;
        reply(board.revision, projects.map(|_| views))
    }

    pub(super) async fn project_add(&self, input: input::ProjectAdd) -> Reply<ProjectView> {
        let (git, path) = (self.engine().git(), std::path::PathBuf::from(&input.path));
        let facts = run_blocking(move || git.inspect(&path))
            .await?
            .map_err(problem_from_git)?;
        if facts.is_unborn {
            return Err(Problem::new(
                422,
                "unborn_branch",
                "the repository has no commit yet, so there is nothing to start from",
                "make the first commit: git commit --allow-empty -m start",
            ));
        }
        let Some(trunk) = input.trunk.or(facts.branch) else {
            return Err(Problem::new(
                422,
                "no_branch",
                "the trunk is unknown, because HEAD is detached or its branch has a name that a \
                 trunk cannot have",
                "switch to the trunk, or name it: regatta init --trunk main",
            ));
        };
        let Some(location) = facts.top.to_str().map(str::to_owned) else {
            return Err(Problem::new(
                400,
                "bad_path",
                "the path of the repository is not valid UTF-8, so Regatta cannot store it",
                "move the repository to a path that is valid UTF-8",
            ));
        };
        let known = self
            .board()
            .projects
            .values()
            .find(|project| project.location == location)
            .map(|project| project.name.clone());
        let name = match input.name.or(known) {
            Some(name) => name,
            None => self.unused_project_name(&facts.top),
        };
        let (git, repo) = (
            self.engine().git(),
            ProjectRepo {
                project: name.clone(),
                path: facts.top,
                trunk: trunk.clone(),
                should_update_checkout: false,
                workspace: Default::default(),
            },
        );
        run_blocking(move || git.tip(&repo))
            .await?
            .map_err(problem_from_git)?;
        let add = project::AddProject {
            name: name.clone(),
            location,
            trunk,
            validation: input.validation,
            validation_timeout_ms: input.validation_timeout_ms.unwrap_or(CHECK_TIMEOUT_MS),
            settings: input.settings,
        };
        let (revision, _) = self.run(Command::AddProject(add)).await?;
        let board = self.board();
        let views = self
            .project_views(&board, selected_projects(&board, Some(&name)))
            .await?;
        let view = views
            .into_iter()
            .next()
            .ok_or_else(|| removed_meanwhile("project"))?;
        reply(revision, view)
    }

    /// Makes a project name from a directory's name. If another project already has that name, adds
    /// a number.
    pub(super) fn unused_project_name(&self, top: &std::path::Path) -> ProjectName {
        let folder = top
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let base_name: String = folder
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .take(50)
            .collect();
        let base_name = base_name.trim_start_matches(['-', '_', '.']);
        let base_name = if base_name.is_empty() {
            "project"
        } else {
            base_name
        };
        let board = self.board();
        let mut candidates = std::iter::once(base_name.to_owned())
            .chain((2..).map(|number| format!("{base_name}-{number}")));
        candidates
            .find_map(|name| {
                ProjectName::new(&name)
                    .ok()
                    .filter(|project| !board.projects.contains_key(project))
            })
            .expect("numbers never run out")
    }

    pub(super) async fn agent_add(&self, input: input::AgentAdd) -> Reply<AgentView> {
        let runtime = match input.runtime {
            RuntimeName::Scripted => Runtime::Scripted,
            RuntimeName::Outside => Runtime::Outside,
            RuntimeName::Command => Runtime::Command {
                argv: input.command,
            },
            RuntimeName::Acp => Runtime::Acp {
                argv: input.command,
            },
            RuntimeName::Claude => Runtime::Claude {
                argv: input.command,
            },
            RuntimeName::Codex => Runtime::Codex {
                argv: input.command,
                app_server: false,
            },
            RuntimeName::CodexServer => Runtime::Codex {
                argv: input.command,
                app_server: true,
            },
        };
        // An agent with labels runs on runners (other machines), where the daemon cannot check
        // whether the agent's program is installed. Skip the check for such an agent.
        if !input.anyway && input.profile.labels.is_empty() {
            let (agents, runtime, profile) = (
                self.engine().agents().clone(),
                runtime.clone(),
                input.profile.clone(),
            );
            let found = run_blocking(move || agents.launch_problems(&runtime, &profile)).await?;
            if let Some((_, error)) = found
                .into_iter()
                .find(|(problem, _)| *problem == SetupProblem::ProgramMissing)
            {
                let hint = start_checks::hint_for(&input.name, &error);
                let hint = format!("{hint}\nOr register it all the same, with --anyway");
                return Err(Problem::new(422, "no_provider", error.message, hint));
            }
        }
        let register = agent::RegisterAgent {
            name: input.name.clone(),
            runtime,
            role: input.role,
            provider: input.provider,
            profile: input.profile,
            description: input.description,
            max_tasks: input.max_tasks,
        };
        let (revision, _) = self.run(Command::RegisterAgent(register)).await?;
        let board = self.board();
        let agent = board.agents.get(&input.name);
        let agent = agent.ok_or_else(|| removed_meanwhile("agent"))?;
        reply(revision, self.agent_view(&board, agent).await?)
    }

    /// Builds the view of an agent, with the problems that keep the daemon from starting its
    /// program.
    pub(super) async fn agent_view(
        &self,
        board: &Board,
        agent: &agent::Agent,
    ) -> Result<AgentView, Problem> {
        let mut view = AgentView::new(board, agent, self.engine().now());
        let agents = self.engine().agents().clone();
        let (runtime, profile) = (agent.runtime.clone(), agent.profile.clone());
        let found = run_blocking(move || agents.launch_problems(&runtime, &profile)).await?;
        let problem = |error| AgentProblem {
            hint: start_checks::hint_for(&agent.name, &error),
            what: error.message,
        };
        view.problems = found.into_iter().map(|(_, error)| problem(error)).collect();
        Ok(view)
    }

    pub(super) async fn agent_close(&self, input: input::AgentClose) -> Reply<AgentView> {
        let reason = if input.reason.trim().is_empty() {
            "it left".to_owned()
        } else {
            input.reason
        };
        let (revision, _) = self
            .run(Command::LeaveAgent {
                agent: input.name.clone(),
                reason,
            })
            .await?;
        let board = self.board();
        let agent = board.agents.get(&input.name);
        let agent = agent.ok_or_else(|| removed_meanwhile("agent"))?;
        reply(revision, AgentView::new(&board, agent, self.engine().now()))
    }

    pub(super) async fn agent_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<Vec<AgentView>> {
        let board = self.board();
        let names = sorted_agent_names(&board);
        let names = page.select(names, |name| name.to_string(), |name| name)?;
        let agents = names.map(|names| self.agent_views(&board, names));
        reply(board.revision, agents)
    }

    /// Builds the views of some agents, with the time at which each agent's program last wrote
    /// something.
    pub(super) fn agent_views<'a>(
        &self,
        board: &Board,
        names: impl IntoIterator<Item = &'a AgentName>,
    ) -> Vec<AgentView> {
        let (now, agents) = (self.engine().now(), self.engine().agents());
        let mut last_output: std::collections::BTreeMap<&AgentName, u64> = Default::default();
        for attempt in board.attempts.values().filter(|attempt| attempt.supervised) {
            if let Some(wall) = agents.last_record_unix_ms(attempt.id) {
                let last = last_output.entry(&attempt.agent).or_default();
                *last = wall.max(*last);
            }
        }
        let view = |agent: AgentView| AgentView {
            heard_wall: last_output.get(&agent.agent.name).copied(),
            ..agent
        };
        let views = AgentView::list_of(board, names, now);
        views.into_iter().map(view).collect()
    }
}

/// Returns the names of all agents in natural order.
pub(super) fn sorted_agent_names(board: &Board) -> Vec<&AgentName> {
    let mut names: Vec<&AgentName> = board.agents.keys().collect();
    natural_sort::sort(&mut names, |name| name.as_str());
    names
}

/// Returns the project with the name `only`, or all projects.
pub(super) fn selected_projects(
    board: &Board,
    only: Option<&ProjectName>,
) -> Vec<Arc<project::Project>> {
    let projects = board.projects.values();
    projects
        .filter(|project| only.is_none_or(|only| *only == project.name))
        .cloned()
        .collect()
}

/// Returns the error for this case: a thing was changed as the caller wanted, but somebody else
/// removed the thing before the answer was built.
pub(super) fn removed_meanwhile(kind: &str) -> Problem {
    Problem::new(
        409,
        "removed_meanwhile",
        format!("the {kind} was changed as you asked, but then somebody removed the {kind}"),
        "see who removed it: regatta audit",
    )
}

/// Applies settings files that were changed. Returns the files that cannot be applied.
pub(super) async fn apply_settings(
    shared: &ServerState,
) -> Result<Vec<SettingsFileFault>, Problem> {
    let config = shared.apply_config.clone();
    run_blocking(move || config()).await
}
