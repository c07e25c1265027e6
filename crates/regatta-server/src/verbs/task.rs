//! Implements the API verbs for tasks and missions: add, list, edit, poll, start, show and explain.
//!
//! A poll waits until a task is ready for the polling agent. The verbs `why` and `show` combine the
//! board (the daemon's state in memory) with the store, because the board drops a task soon after
//! the task's end.

use regatta_api::view::{ShowAnswer, WhyAnswer};
use regatta_core::reference::Reference;
use regatta_core::schedule::{WaitKind, WaitReason};

use regatta_core::task::{self, Task};

use super::*;
use crate::event_fanout::{PollPermit, WaitingPoller};

/// Counts a poll as waiting for a task until this value is dropped.
struct WaitingPoll<'a>(&'a ServerState);

impl WaitingPoll<'_> {
    fn count(shared: &ServerState, wait_ms: u64) -> Option<WaitingPoll<'_>> {
        (wait_ms > 0).then(|| {
            shared
                .metrics
                .waiting_polls
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            WaitingPoll(shared)
        })
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        self.0
            .metrics
            .waiting_polls
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl VerbHandler<'_> {
    pub(super) async fn task_add(&self, input: input::TaskAdd) -> Reply<TaskView> {
        let project = self.resolve_project(input.project)?;
        let add = task::AddTask {
            project,
            subject: input.subject,
            description: input.description,
            issue_type: input.issue_type,
            files: input.files,
            validation: input.validation,
            blocked_by: input.blocked_by,
            priority: input.priority,
            expects: input.expects,
            effort: input.effort,
            model: None,
            provider: input.provider,
            script: input.script.map(|script| script.to_string()),
            ratchet: input.ratchet,
            alias: input.alias,
            backlog: input.backlog,
        };
        let (assign, how) = (input.assign, input.how);
        let command = match self.led_mission() {
            Some(mission) => Command::AddChild {
                mission,
                task: add,
                assign,
                how,
            },
            None => Command::AddTask {
                task: add,
                assign,
                how,
            },
        };
        match self.run(command).await? {
            (revision, CommandOutcome::Task(id)) => reply(revision, self.task_view(id).await?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn task_list(
        &self,
        input: input::TaskList,
        page: &PageRequest,
    ) -> PageReply<Vec<TaskView>> {
        self.require_project(input.project.as_ref())?;
        let mission = input
            .mission
            .as_deref()
            .map(parse_id::<MissionId>)
            .transpose()?;
        let all = input.all
            || input
                .status
                .iter()
                .any(|task_status| task_status.is_terminal());
        let statuses = match (input.status.is_empty(), all) {
            (false, _) => input.status,
            (true, true) => vec![],
            (true, false) => task::TaskStatus::ALL
                .into_iter()
                .filter(|task_status| !task_status.is_terminal())
                .collect(),
        };
        // A limit in the input counts from the start of the list and not of the page.
        let limit = Some(input.limit).filter(|limit| *limit > 0);
        let key = |task: &&Task| task.id.to_string();
        if !all {
            // The board has every task that has not ended.
            let board = self.board();
            let is_selected = |task: &&Task| {
                input
                    .project
                    .as_ref()
                    .is_none_or(|only| task.project == *only)
                    && mission.is_none_or(|only| task.mission == Some(only))
                    && statuses.contains(&task.status)
            };
            let view = |task: &Task| self.task_view_with_liveness(&board, task);
            let views = match limit {
                Some(limit) => {
                    let tasks = board.tasks.values().map(|task| &**task);
                    page.select(tasks.filter(is_selected).take(limit), key, view)?
                }
                None => {
                    let tasks = board.tasks.range(page.id_range::<TaskId>()?);
                    page.first_of(tasks.map(|(_, task)| &**task).filter(is_selected), view)
                }
            };
            return reply(board.revision, views);
        }
        let filter = TaskFilter {
            project: input.project,
            mission,
            statuses,
            after: match limit {
                Some(_) => None,
                None => page.after_id()?,
            },
            limit: match limit {
                Some(limit) => limit,
                None if page.is_whole() => 0,
                None => page.read_limit(),
            },
        };
        let tasks = self
            .read_history(move |history| history.tasks(&filter))
            .await?;
        let board = self.board();
        let views = page.select(&tasks, key, |task| {
            self.task_view_with_liveness(
                &board,
                board.tasks.get(&task.id).map_or(task, |task| task),
            )
        })?;
        reply(board.revision, views)
    }

    pub(super) async fn task_set(&self, input: input::TaskSet) -> Reply<TaskView> {
        let edit = task::EditTask {
            script: input
                .script
                .map(|script| script.to_string())
                .or(input.edit.script),
            ..input.edit
        };
        self.run_on_task(
            input.task,
            Command::EditTask {
                task: input.task,
                edit,
            },
        )
        .await
    }

    pub(super) async fn task_explore(&self, input: input::IdInput) -> Reply<TaskView> {
        let task: TaskId = parse_id(&input.id)?;
        match self.run(Command::Explore { task }).await? {
            (revision, CommandOutcome::Task(id)) => reply(revision, self.task_view(id).await?),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn task_poll(&self, input: input::TaskPoll) -> Reply<Option<GrantedAttempt>> {
        self.require_project(input.project.as_ref())?;
        let deadline = deadline(input.wait_ms);
        let actor = Actor::Agent(input.agent.clone());
        let poll = PollRequest {
            agent: input.agent,
            project: input.project,
            mission: None,
            task: None,
            lease_ms: input.lease_ms,
            no_workspace: !input.workspace,
            by_hand: input.by_hand,
        };
        let fanout = &self.shared.event_fanout;
        let mut waiting = WaitingPoller {
            changes: fanout.watch_work(),
            engine: self.engine(),
            poll,
            deadline,
        };
        let _counted = WaitingPoll::count(self.shared, input.wait_ms);
        let mut permit = None;
        loop {
            waiting.changes.mark_unchanged();
            let result = self
                .run_as(actor.clone(), Command::Poll(waiting.poll.clone()))
                .await;
            permit.take().into_iter().for_each(PollPermit::mark_used);
            match result? {
                (revision, CommandOutcome::Polled(Some(grant))) => {
                    let workspace = self.workspace_of(grant.attempt).await;
                    let task = self.task_view(grant.task).await?;
                    return reply(
                        revision,
                        Some(GrantedAttempt {
                            attempt: grant.attempt,
                            token: grant.token,
                            bearer: self
                                .shared
                                .tokens
                                .minter()
                                .attempt_token(grant.attempt, grant.token),
                            task,
                            workspace,
                        }),
                    );
                }
                (revision, _) => match fanout.wait_for_poll_permit(&mut waiting, |_| false).await {
                    None => return reply(revision, None),
                    Some(next_permit) => permit = next_permit,
                },
            }
        }
    }

    /// Returns the path of an attempt's workspace, and creates the workspace if necessary. Returns
    /// `None` if the attempt has no workspace on this machine, or if creating it failed.
    pub(super) async fn workspace_of(&self, id: AttemptId) -> Option<String> {
        if self
            .board()
            .attempts
            .get(&id)
            .is_some_and(|attempt| attempt.no_workspace)
        {
            return None;
        }
        let engine = self.engine().clone();
        match run_blocking(move || engine.workspace_of(id)).await.ok()? {
            Ok(path) => path.map(|path| path.to_string_lossy().into_owned()),
            Err(error) => {
                tracing::warn!(attempt = %id, "could not create the workspace of attempt {id}, so the answer to the poll does not contain its path: {error}");
                None
            }
        }
    }

    pub(super) async fn mission_start(&self, input: input::MissionStart) -> Reply<MissionView> {
        let mission = self.start_mission(input).await?;
        self.show_mission(mission).await
    }

    /// Checks that a mission can start, starts the mission, and returns its id.
    async fn start_mission(&self, input: input::MissionStart) -> Result<MissionId, Problem> {
        let project = self.resolve_project(input.project.clone())?;
        self.require_startable_agent(&input.agents).await?;
        let board = self.board();
        let planned = input
            .tasks
            .iter()
            .map(|planned_task| start_checks::ScriptNeed {
                subject: &planned_task.task.subject,
                assignee: planned_task.task.assign.as_ref(),
                has_script: planned_task.task.script.is_some(),
            });
        self.require_scripts(&input.agents, planned)?;
        // The mission can also take over existing tasks. If one of them has a script, a scripted
        // agent can begin with that task, so do not require scripts for the others.
        let adopted = || input.adopt.iter().filter_map(|id| board.tasks.get(id));
        if input.tasks.is_empty() && adopted().all(|task| task.script.is_none()) {
            self.require_scripts(
                &input.agents,
                adopted().map(|task| start_checks::ScriptNeed {
                    subject: &task.subject,
                    assignee: task.assignee.as_ref(),
                    has_script: false,
                }),
            )?;
        }
        let serial = self.serial_packages(&project, &input).await?;
        let tasks = input
            .tasks
            .into_iter()
            .map(|planned_task| PlannedTask {
                after: planned_task.after,
                assign: planned_task.task.assign,
                task: task::AddTask {
                    project: project.clone(),
                    subject: planned_task.task.subject,
                    description: planned_task.task.description,
                    issue_type: planned_task.task.issue_type,
                    files: planned_task.task.files,
                    validation: planned_task.task.validation,
                    blocked_by: vec![],
                    priority: planned_task.task.priority,
                    expects: planned_task.task.expects,
                    effort: planned_task.task.effort,
                    model: None,
                    provider: planned_task.task.provider,
                    script: planned_task.task.script.map(|script| script.to_string()),
                    ratchet: planned_task.task.ratchet,
                    alias: planned_task.task.alias,
                    backlog: false,
                },
            })
            .collect();
        let mission = mission::StartMission {
            project,
            title: input.title,
            agents: input.agents,
            team: input.team,
            max_workers: input.max_workers,
            mode: input.mode,
            isolate: input.isolate,
            wave_commits: input.wave_commits,
            serial,
            budget: input.budget,
        };
        match self
            .run(Command::StartMission {
                mission,
                tasks,
                adopt: input.adopt,
            })
            .await?
        {
            (_, CommandOutcome::Mission { mission, .. }) => Ok(mission),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    /// Returns the serial packages (packages in which only one task may work at a time) in which
    /// the mission's tasks change files.
    pub(super) async fn serial_packages(
        &self,
        name: &ProjectName,
        input: &input::MissionStart,
    ) -> Result<Vec<PathPattern>, Problem> {
        let board = self.board();
        let Some(project) = board.projects.get(name) else {
            return Ok(vec![]);
        };
        let adopted = input
            .adopt
            .iter()
            .filter_map(|id| board.tasks.get(id))
            .flat_map(|task| &task.files);
        let files: Vec<PathPattern> = input
            .tasks
            .iter()
            .flat_map(|planned_task| &planned_task.task.files)
            .chain(adopted)
            .cloned()
            .collect();
        let (git, repo) = (self.engine().git(), ProjectRepo::from_project(project));
        let settings = project.settings.run.serial_packages.clone();
        let found = run_blocking(move || {
            let paths = git.paths_at_tip(&repo).map_err(problem_from_git)?;
            manifest::serial_packages(paths.iter().map(String::as_str), &settings).map_err(
                |error| {
                    Problem::new(
                        422,
                        "invalid",
                        error.to_string(),
                        "correct the patterns of serial_packages under [run] in regatta.toml",
                    )
                },
            )
        });
        Ok(found
            .await??
            .into_iter()
            .filter(|package| files.iter().any(|file| file.overlaps(package)))
            .collect())
    }

    pub(super) async fn mission_show(&self, input: input::IdInput) -> Reply<MissionView> {
        self.show_mission(parse_id(&input.id)?).await
    }

    pub(super) async fn show_mission(&self, id: MissionId) -> Reply<MissionView> {
        let found = self
            .read_history(move |history| {
                let filter = TaskFilter {
                    mission: Some(id),
                    ..TaskFilter::default()
                };
                Ok((history.mission(id)?, history.tasks(&filter)?))
            })
            .await?;
        let (Some((stored, _)), tasks) = found else {
            return Err(Problem::from(
                &regatta_core::refusal::Refusal::NoSuchMission { mission: id },
            ));
        };
        let board = self.board();
        let outlook = schedule::outlook(&board, id);
        let running = board.missions.contains_key(&id);
        let view = MissionView {
            mission: board
                .missions
                .get(&id)
                .map_or(stored, |mission| (**mission).clone()),
            running,
            outlook,
            settled: !running || outlook.is_settled(),
            // The store was read before the board (the daemon's state in memory). So a task that
            // was removed from the board in the meantime is shown as it was in the store.
            tasks: tasks
                .iter()
                .map(|task| {
                    self.task_view_with_liveness(
                        &board,
                        board.tasks.get(&task.id).map_or(task, |task| task),
                    )
                })
                .collect(),
        };
        reply(board.revision, view)
    }

    /// Returns the past waits and activities of a task, read from the event log.
    async fn task_timeline(
        &self,
        id: TaskId,
    ) -> Result<regatta_core::task_timeline::TaskTimeline, Problem> {
        let (shared, until) = (self.shared.clone(), self.board().revision);
        let timeline = run_blocking(move || {
            shared
                .timeline_reader
                .timeline(&**shared.engine.history(), id, until)
        })
        .await?;
        Ok(timeline
            .map_err(|error| problem_from_failure(CommandFailure::Store(error)))?
            .with_totals_until(self.engine().now().unix_ms))
    }

    pub(super) async fn why(&self, input: input::IdInput) -> Reply<WhyAnswer> {
        let found = self.resolve_reference(&input.id, &resolve_id::WHY)?;
        if let Reference::Agent(name) = &found {
            let board = self.board();
            let agent = agent::find(&board, name).map_err(|refusal| Problem::from(&refusal))?;
            let mut why = AgentWhyView::new(&board, agent, self.engine().now());
            // An agent without work cannot take work either if its program cannot be started.
            if agent.profile.labels.is_empty() && why.agent.tasks.is_empty() {
                let problems = self.agent_view(&board, agent).await?.problems;
                let reasons = problems.into_iter().map(|problem| WaitReason {
                    kind: WaitKind::Provider,
                    text: format!("{} {}", problem.what, problem.hint.replace('\n', ". ")),
                });
                why.waits.splice(0..0, reasons);
            }
            return reply(board.revision, WhyAnswer::Agent(Box::new(why)));
        }
        let about = self.task_of_reference(&found, "why").await?;
        let mut task = self
            .task_view(about)
            .await?
            .with_gates(&self.board(), self.engine().now());
        task.life = Some(self.task_timeline(task.task.id).await?);
        let passed_conditions =
            WhyView::passed_conditions(&self.board(), &task, self.engine().now());
        let id = task.task.id;
        let attempts = self
            .read_history(move |history| history.attempts_of(id))
            .await?;
        let past = attempts
            .iter()
            .map(|attempt| {
                let text = match &attempt.end {
                    Some(end) if end.detail.is_empty() => {
                        format!("{}: {}", attempt.label(), end.cause.label())
                    }
                    Some(end) => format!("{} ended: {}", attempt.label(), end.detail),
                    None => format!("{} is running", attempt.label()),
                };
                let failed_check = attempt
                    .end
                    .as_ref()
                    .is_some_and(|end| end.cause == regatta_core::attempt::AttemptCause::Invalid);
                TaskHistoryView {
                    attempt: attempt.id,
                    wall: attempt.started_unix_ms,
                    text,
                    failed_check,
                }
            })
            .collect();
        let commands = match task.task.attempt {
            Some(attempt) => self.engine().commands_of_attempt(attempt),
            None => self.engine().trial_commands_of_task(task.task.id),
        };
        reply(
            self.board().revision,
            WhyAnswer::Task(Box::new(WhyView {
                task,
                past,
                clear: passed_conditions,
                commands,
            })),
        )
    }

    /// Returns the path of the workspace with a task's unfinished work, if it is on this machine.
    fn unfinished_workspace(&self, task: &task::Task) -> Option<String> {
        let board = self.board();
        let live = task
            .attempt
            .and_then(|id| board.attempts.get(&id))
            .map(|attempt| attempt.workspace());
        let workspace_id = live.or_else(|| {
            task.resume
                .as_ref()
                .map(|resume_point| resume_point.workspace)
        })?;
        let project = board.projects.get(&task.project)?;
        let path = self.engine().workspace_path(project, workspace_id);
        path.is_dir().then(|| path.to_string_lossy().into_owned())
    }

    /// Returns the commit that has replaced the commit of a task's landed work, if there is such a
    /// commit. Commits are replaced only when the trunk is rebased onto the trunk of a remote
    /// repository, so only projects that push to a remote are checked.
    async fn rebased_commit(
        &self,
        task: &task::Task,
    ) -> Result<Option<regatta_core::ids::CommitId>, Problem> {
        let project = self.board().projects.get(&task.project).cloned();
        let pushes = project.filter(|project| project.settings.landing.push.is_some());
        let (Some(project), Some(landed)) = (pushes, task.landed.clone()) else {
            return Ok(None);
        };
        let (git, repo, commit) = (
            self.engine().git(),
            ProjectRepo::from_project(&project),
            landed.clone(),
        );
        let found = run_blocking(move || git.current_commit_of(&repo, &commit)).await?;
        // If the repository cannot be read, show the task as if its commit had not been replaced.
        Ok(found.ok().flatten().filter(|id| *id != landed))
    }

    pub(super) async fn show(&self, input: input::IdInput) -> Reply<ShowAnswer> {
        let board = self.board();
        match self.resolve_reference(&input.id, &resolve_id::SHOW)? {
            Reference::Agent(name) => {
                let agent =
                    agent::find(&board, &name).map_err(|refusal| Problem::from(&refusal))?;
                let view = self.agent_view(&board, agent).await?;
                reply(board.revision, ShowAnswer::Agent(Box::new(view)))
            }
            Reference::Attempt(attempt) => {
                let found = self
                    .read_history(move |history| history.attempt(attempt))
                    .await?;
                let found = found.ok_or_else(|| resolve_id::no_such_attempt(attempt))?;
                let view = ShowAnswer::Attempt(Box::new(without_token(&found)));
                reply(board.revision, view)
            }
            Reference::Mission(mission) => {
                let answer = self.show_mission(mission).await?;
                Ok(answer.map(|mission| ShowAnswer::Mission(Box::new(mission))))
            }
            Reference::Approval(id) => match self.find_approval(id).await? {
                Some(found) => reply(board.revision, ShowAnswer::Request(Box::new(found))),
                None => Err(resolve_id::no_such_request(id)),
            },
            Reference::Task(task) => {
                let mut view = self
                    .task_view(task)
                    .await?
                    .with_gates(&board, self.engine().now());
                view.attempts = self
                    .read_history(move |history| history.attempts_of(task))
                    .await?
                    .iter()
                    .map(without_token)
                    .collect();
                view.workspace = self.unfinished_workspace(&view.task);
                view.now_as = self.rebased_commit(&view.task).await?;
                view.life = Some(self.task_timeline(task).await?);
                reply(board.revision, ShowAnswer::Task(Box::new(view)))
            }
            other => Err(resolve_id::unsupported_kind(&other, "show")),
        }
    }
}
