//! Verbs of tasks and missions.

use regatta_core::reference::Reference;

use super::*;
use crate::hub::{Leave, Waiting};

/// Counts a waiting poll while it waits.
struct Waiter<'a>(&'a Shared);

impl Waiter<'_> {
    fn count(shared: &Shared, wait_ms: u64) -> Option<Waiter<'_>> {
        (wait_ms > 0).then(|| {
            shared.meters.pollers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Waiter(shared)
        })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.meters.pollers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Caller<'_> {
    pub(super) async fn task_add(&self, ask: input::TaskAdd) -> Json {
        let project = self.project(ask.project)?;
        let add = task::Add {
            project,
            subject: ask.subject,
            description: ask.description,
            issue_type: ask.issue_type,
            files: ask.files,
            validation: ask.validation,
            blocked_by: ask.blocked_by,
            priority: ask.priority,
            expects: ask.expects,
            effort: ask.effort,
            model: None,
            provider: ask.provider,
            script: ask.script.map(|it| it.to_string()),
            ratchet: ask.ratchet,
            alias: ask.alias,
            backlog: ask.backlog,
        };
        let (assign, how) = (ask.assign, ask.how);
        let command = match self.led_mission() {
            Some(mission) => Command::AddChild { mission, task: add, assign, how },
            None => Command::AddTask { task: add, assign, how },
        };
        match self.ask(command).await? {
            (revision, Outcome::Task(id)) => answer(revision, &self.task_view(id).await?),
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn task_list(&self, ask: input::TaskList) -> Json {
        self.known(ask.project.as_ref())?;
        let mission = ask.mission.as_deref().map(parse::<MissionId>).transpose()?;
        let all = ask.all || ask.status.iter().any(|it| it.is_terminal());
        let statuses = match (ask.status.is_empty(), all) {
            (false, _) => ask.status,
            (true, true) => vec![],
            (true, false) => task::Status::ALL.into_iter().filter(|it| !it.is_terminal()).collect(),
        };
        let filter = TaskFilter { project: ask.project, mission, statuses, after: None, limit: ask.limit };
        let tasks = self.read(move |history| history.tasks(&filter)).await?;
        let (board, _now) = (self.board(), self.engine().now());
        let views: Vec<TaskView> =
            tasks.iter().map(|it| self.seen(&board, board.tasks.get(&it.id).map_or(it, |it| it))).collect();
        answer(board.revision, &views)
    }

    pub(super) async fn task_set(&self, ask: input::TaskSet) -> Json {
        let edit = task::Edit { script: ask.script.map(|it| it.to_string()).or(ask.edit.script), ..ask.edit };
        self.task(ask.task, Command::EditTask { task: ask.task, edit }).await
    }

    pub(super) async fn task_explore(&self, task: TaskId) -> Json {
        match self.ask(Command::Explore { task }).await? {
            (revision, Outcome::Task(id)) => answer(revision, &self.task_view(id).await?),
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn poll(&self, ask: input::TaskPoll) -> Json {
        self.known(ask.project.as_ref())?;
        let deadline = deadline(ask.wait_ms);
        let by = Actor::Agent(ask.agent.clone());
        let poll = Poll {
            agent: ask.agent,
            project: ask.project,
            mission: None,
            task: None,
            lease_ms: ask.lease_ms,
            bare: !ask.workspace,
            by_hand: ask.by_hand,
        };
        let hub = &self.shared.hub;
        let mut waiting = Waiting { bell: hub.work_bell(), engine: self.engine(), poll, until: deadline };
        let _counted = Waiter::count(self.shared, ask.wait_ms);
        let mut leave = None;
        loop {
            waiting.bell.mark_unchanged();
            let asked = self.ask_as(by.clone(), Command::Poll(waiting.poll.clone())).await;
            leave.take().into_iter().for_each(Leave::used);
            match asked? {
                (revision, Outcome::Polled(Some(grant))) => {
                    let workspace = self.workspace_of(grant.attempt).await;
                    let task = self.task_view(grant.task).await?;
                    return answer(
                        revision,
                        &GrantedAttempt {
                            attempt: grant.attempt,
                            token: grant.token,
                            bearer: self.shared.keyring.mint().token(grant.attempt, grant.token),
                            task,
                            workspace,
                        },
                    );
                }
                (revision, _) => match hub.turn(&mut waiting, |_| false).await {
                    None => return answer(revision, &None::<GrantedAttempt>),
                    Some(got) => leave = got,
                },
            }
        }
    }

    /// Returns the workspace of an attempt, and creates it if that has not happened yet.
    pub(super) async fn workspace_of(&self, id: AttemptId) -> Option<String> {
        if self.board().attempts.get(&id).is_some_and(|it| it.bare) {
            return None;
        }
        let engine = self.engine().clone();
        match blocking(move || engine.workspace_of(id)).await.ok()? {
            Ok(path) => path.map(|it| it.to_string_lossy().into_owned()),
            Err(error) => {
                tracing::warn!(attempt = %id, "could not create a workspace: {error}");
                None
            }
        }
    }

    pub(super) async fn mission_start(&self, ask: input::MissionStart) -> Json {
        let (_, mission, _) = self.start_mission(ask).await?;
        self.mission_show(&mission.to_string()).await
    }

    /// Starts a mission. Returns the revision and the ids of the mission and its tasks.
    pub(super) async fn start_mission(
        &self,
        ask: input::MissionStart,
    ) -> Result<(u64, MissionId, Vec<TaskId>), Problem> {
        let project = self.project(ask.project.clone())?;
        self.check_programs(&ask.agents).await?;
        let board = self.board();
        let planned = ask.tasks.iter().map(|it| (&*it.task.subject, it.task.assign.as_ref(), it.task.script.is_some()));
        self.check_scripts(&ask.agents, planned)?;
        // Tasks on the board may be of many kinds, so one that an agent can do is enough.
        let adopted = || ask.adopt.iter().filter_map(|id| board.tasks.get(id));
        if ask.tasks.is_empty() && adopted().all(|it| it.script.is_none()) {
            self.check_scripts(&ask.agents, adopted().map(|it| (&*it.subject, it.assignee.as_ref(), false)))?;
        }
        let serial = self.serial_packages(&project, &ask).await?;
        let tasks = ask
            .tasks
            .into_iter()
            .map(|it| PlannedTask {
                after: it.after,
                assign: it.task.assign,
                task: task::Add {
                    project: project.clone(),
                    subject: it.task.subject,
                    description: it.task.description,
                    issue_type: it.task.issue_type,
                    files: it.task.files,
                    validation: it.task.validation,
                    blocked_by: vec![],
                    priority: it.task.priority,
                    expects: it.task.expects,
                    effort: it.task.effort,
                    model: None,
                    provider: it.task.provider,
                    script: it.task.script.map(|it| it.to_string()),
                    ratchet: it.task.ratchet,
                    alias: it.task.alias,
                    backlog: false,
                },
            })
            .collect();
        let mission = mission::Start {
            project,
            title: ask.title,
            agents: ask.agents,
            team: ask.team,
            max_workers: ask.max_workers,
            mode: ask.mode,
            isolate: ask.isolate,
            wave_commits: ask.wave_commits,
            serial,
            budget: ask.budget,
        };
        match self.ask(Command::StartMission { mission, tasks, adopt: ask.adopt }).await? {
            (revision, Outcome::Mission { mission, tasks }) => Ok((revision, mission, tasks)),
            other => Err(unexpected(&other.1)),
        }
    }

    /// Returns the packages that these tasks touch and in which only one task may work at a time.
    pub(super) async fn serial_packages(
        &self,
        name: &ProjectName,
        ask: &input::MissionStart,
    ) -> Result<Vec<PathPattern>, Problem> {
        let board = self.board();
        let Some(project) = board.projects.get(name) else { return Ok(vec![]) };
        let adopted = ask.adopt.iter().filter_map(|it| board.tasks.get(it)).flat_map(|it| &it.files);
        let files: Vec<PathPattern> = ask.tasks.iter().flat_map(|it| &it.task.files).chain(adopted).cloned().collect();
        let (git, repo) = (self.engine().git().clone(), Repo::of(project));
        let set = project.settings.run.serial_packages.clone();
        let found = blocking(move || {
            let paths = git.paths_at_tip(&repo).map_err(from_git)?;
            manifest::serial_packages(paths.iter().map(String::as_str), &set).map_err(|it| {
                Problem::new(422, "invalid", it.to_string(), "fix serial_packages under [run] in regatta.toml")
            })
        });
        Ok(found.await??.into_iter().filter(|it| files.iter().any(|has| has.overlaps(it))).collect())
    }

    pub(super) async fn mission_show(&self, id: &str) -> Json {
        let id: MissionId = parse(id)?;
        let found = self
            .read(move |history| {
                let filter = TaskFilter { mission: Some(id), ..TaskFilter::default() };
                Ok((history.mission(id)?, history.tasks(&filter)?))
            })
            .await?;
        let (Some((stored, _)), tasks) = found else {
            return Err(Problem::from(&regatta_core::refusal::Refusal::NoSuchMission { mission: id }));
        };
        let (board, _now) = (self.board(), self.engine().now());
        let outlook = schedule::outlook(&board, id);
        let running = board.missions.contains_key(&id);
        let view = MissionView {
            mission: board.missions.get(&id).map_or(stored, |it| (**it).clone()),
            running,
            outlook,
            settled: !running || outlook.is_settled(),
            // A task that ended after the history was read is shown as the history had it.
            tasks: tasks.iter().map(|it| self.seen(&board, board.tasks.get(&it.id).map_or(it, |it| it))).collect(),
        };
        answer(board.revision, &view)
    }

    /// Returns a task's history so far, from the event log.
    async fn life(&self, id: TaskId) -> Result<regatta_core::life::Life, Problem> {
        let (shared, until) = (self.shared.clone(), self.board().revision);
        let told = blocking(move || shared.past.life(&**shared.engine.history(), id, until)).await?;
        Ok(told.map_err(|it| refused(Failure::Store(it)))?.shown(self.engine().now().wall))
    }

    pub(super) async fn why(&self, id: &str) -> Json {
        let found = self.refer(id, &refer::WHY)?;
        if let Reference::Agent(name) = &found {
            let board = self.board();
            let agent = agent::find(&board, name).map_err(|refusal| Problem::from(&refusal))?;
            return answer(board.revision, &AgentWhyView::of(&board, agent, self.engine().now()));
        }
        let about = self.task_about(&found, "why").await?;
        let mut task = self.task_view(about).await?.with_gates(&self.board(), self.engine().now());
        task.life = Some(self.life(task.task.id).await?);
        let clear = WhyView::clear_of(&self.board(), &task, self.engine().now());
        let id = task.task.id;
        let attempts = self.read(move |history| history.attempts_of(id)).await?;
        let past = attempts
            .iter()
            .map(|it| {
                let text = match &it.ended {
                    Some(end) if end.detail.is_empty() => {
                        format!("{}: {}", it.label(), end.cause.words())
                    }
                    Some(end) => format!("{} ended: {}", it.label(), end.detail),
                    None => format!("{} is running", it.label()),
                };
                let failed_check =
                    it.ended.as_ref().is_some_and(|end| end.cause == regatta_core::attempt::Cause::Invalid);
                PastView { attempt: it.id, wall: it.started_wall, text, failed_check }
            })
            .collect();
        let commands = match task.task.attempt {
            Some(attempt) => self.engine().commands_of(attempt),
            None => self.engine().trial_commands_of(task.task.id),
        };
        answer(self.board().revision, &WhyView { task, past, clear, commands })
    }

    /// Returns the path of a task's unfinished work on this machine, if there is any.
    fn workspace_now(&self, task: &task::Task) -> Option<String> {
        let board = self.board();
        let live = task.attempt.and_then(|it| board.attempts.get(&it)).map(|it| it.workspace());
        let of = live.or_else(|| task.resume.as_ref().map(|it| it.workspace))?;
        let path = self.engine().git().workspace_path(&Repo::of(board.projects.get(&task.project)?), of);
        path.is_dir().then(|| path.to_string_lossy().into_owned())
    }

    /// Returns the commit that now stands for a task's landed commit, if it is another one. Only a
    /// rebase onto a remote's trunk causes that, so only projects that push are checked.
    async fn replanted_as(&self, task: &task::Task) -> Result<Option<regatta_core::ids::CommitId>, Problem> {
        let project = self.board().projects.get(&task.project).cloned();
        let pushes = project.filter(|it| it.settings.landing.push.is_some());
        let (Some(project), Some(landed)) = (pushes, task.landed.clone()) else { return Ok(None) };
        let (git, repo, commit) = (self.engine().git().clone(), Repo::of(&project), landed.clone());
        let found = blocking(move || git.stands_as(&repo, &commit)).await?;
        // An unreachable repository does not prevent the task from being shown.
        Ok(found.ok().flatten().filter(|it| *it != landed))
    }

    pub(super) async fn show(&self, id: &str) -> Json {
        let board = self.board();
        match self.refer(id, &refer::SHOW)? {
            Reference::Agent(name) => {
                let agent = agent::find(&board, &name).map_err(|refusal| Problem::from(&refusal))?;
                answer(board.revision, &self.agent_view(&board, agent).await?)
            }
            Reference::Attempt(attempt) => {
                let found = self.read(move |history| history.attempt(attempt)).await?;
                answer(board.revision, &without_token(&found.ok_or_else(|| refer::no_such_attempt(attempt))?))
            }
            Reference::Mission(mission) => self.mission_show(&mission.to_string()).await,
            Reference::Approval(id) => match self.approval(id).await? {
                Some(found) => answer(board.revision, &found),
                None => Err(refer::no_such_request(id)),
            },
            Reference::Task(task) => {
                let mut view = self.task_view(task).await?.with_gates(&board, self.engine().now());
                view.attempts =
                    self.read(move |history| history.attempts_of(task)).await?.iter().map(without_token).collect();
                view.workspace = self.workspace_now(&view.task);
                view.now_as = self.replanted_as(&view.task).await?;
                view.life = Some(self.life(task).await?);
                answer(board.revision, &view)
            }
            other => Err(refer::unfit(&other, "show")),
        }
    }
}
