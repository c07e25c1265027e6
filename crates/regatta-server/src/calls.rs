//! Carrying out the verbs: one arm per row of the table. Each turns its input into a command of the core, or
//! into a look at the board or the history, and draws the answer.

use std::sync::Arc;
use std::time::Duration;

use regatta_api::input::{self, RuntimeName};
use regatta_api::view::{
    AgentView, Answer, CheckView, ClaimView, ClaimsView, GrantedAttempt, GrantedClaim, LandingView, MissionView,
    PastView, ProjectView, QueueView, StatusView, TaskView, WaitView, WhyView, without_token,
};
use regatta_api::{Call, Problem};
use regatta_core::agent::{self, Runtime};
use regatta_core::board::{Board, Draft};
use regatta_core::claim::{self, Acquire, Acquired, Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome, PlannedTask, Request};
use regatta_core::fleet::Limits;
use regatta_core::ids::{AgentName, AttemptId, MessageId, MissionId, ProjectName, RequestKey, TaskId};
use regatta_core::schedule::{self, Poll};
use regatta_core::{bus, mission, project, task};
use regatta_engine::ports::git::{GitError, Repo};
use regatta_engine::ports::store::{History, MessageFilter, StoreError, TaskFilter};
use regatta_engine::{Engine, Failure};
use serde::Serialize;

use crate::{Ended, Shared};

type Json = Result<Vec<u8>, Problem>;

/// The longest a call waits for something to happen.
const LONGEST_WAIT_MS: u64 = 24 * 3_600_000;
/// How long one check may take if the project does not say.
const CHECK_TIMEOUT_MS: u64 = 600_000;

/// Carries out one call for `by`.
pub(crate) async fn carry_out(shared: &Arc<Shared>, call: Call, by: Actor, key: Option<RequestKey>) -> Json {
    let it = Caller { shared, by, key };
    match call {
        Call::Status(ask) => it.status(ask).await,
        Call::Why(ask) => it.why(&ask.id).await,
        Call::Show(ask) => it.show(&ask.id).await,
        Call::ProjectAdd(ask) => it.project_add(ask).await,
        Call::ProjectList(_) => it.project_list().await,
        Call::AgentAdd(ask) => it.agent_add(ask).await,
        Call::AgentList(_) => it.agent_list(),
        Call::AgentRm(ask) => it.done(Command::RemoveAgent { agent: ask.name }).await,
        Call::TaskAdd(ask) => it.task_add(ask).await,
        Call::TaskList(ask) => it.task_list(ask).await,
        Call::TaskSet(ask) => it.task_set(ask).await,
        Call::TaskAssign(ask) => {
            it.task(ask.task, Command::AssignTask { task: ask.task, to: ask.to, how: ask.how }).await
        }
        Call::TaskAccept(ask) => {
            it.task(ask.task, Command::AnswerOffer { task: ask.task, agent: ask.agent, accept: true }).await
        }
        Call::TaskReject(ask) => {
            it.task(ask.task, Command::AnswerOffer { task: ask.task, agent: ask.agent, accept: false }).await
        }
        Call::TaskCancel(ask) => {
            let reason = ask.reason.unwrap_or_else(|| "cancelled by a person".into());
            it.task(ask.task, Command::CancelTask { task: ask.task, reason }).await
        }
        Call::TaskPoll(ask) => it.poll(ask).await,
        Call::TaskProgress(ask) => {
            it.task(
                ask.task,
                Command::Progress { task: ask.task, attempt: ask.attempt, token: ask.token, text: ask.text },
            )
            .await
        }
        Call::TaskFinish(ask) => {
            it.task(
                ask.task,
                Command::Finish { task: ask.task, attempt: ask.attempt, token: ask.token, output: ask.output },
            )
            .await
        }
        Call::TaskFail(ask) => {
            it.task(
                ask.task,
                Command::GiveUp { task: ask.task, attempt: ask.attempt, token: ask.token, reason: ask.reason },
            )
            .await
        }
        Call::MissionStart(ask) => it.mission_start(ask).await,
        Call::MissionShow(ask) => it.mission_show(&ask.id).await,
        Call::Stop(ask) => it.stop(ask).await,
        Call::Resume(ask) => it.done(Command::ResumeMission { mission: parse(&ask.id)? }).await,
        Call::Land(ask) => it.land(parse(&ask.id)?).await,
        Call::Queue(ask) => it.queue(ask).await,
        Call::ClaimAcquire(ask) => it.claim_acquire(ask).await,
        Call::ClaimRenew(ask) => it.claim_renew(ask).await,
        Call::ClaimRelease(ask) => it.done(Command::Release { claim: ask.claim, token: ask.token }).await,
        Call::ClaimList(_) => it.claim_list(),
        Call::ClaimCheck(ask) => it.claim_check(&ask),
        Call::MsgSend(ask) => it.msg_send(ask).await,
        Call::MsgHistory(ask) => it.msg_history(ask).await,
        Call::MsgWait(ask) => it.msg_wait(ask).await,
        Call::MsgRead(ask) => it.msg_read(ask).await,
        Call::Name(_) => {
            let board = it.board();
            answer(board.revision, &crate::names::fresh(&board, it.engine().now().wall))
        }
        Call::LimitsSet(ask) => it.done(Command::SetLimits { limits: Limits { max_attempts: ask.max_attempts } }).await,
        Call::Backup(ask) => it.backup(ask).await,
        Call::Check(_) => {
            it.engine().check().await.map_err(refused)?;
            answer(it.board().revision, &"ok")
        }
        Call::Down(ask) => it.down(ask.keep_agents).await,
    }
}

struct Caller<'a> {
    shared: &'a Arc<Shared>,
    by: Actor,
    key: Option<RequestKey>,
}

impl Caller<'_> {
    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn board(&self) -> Arc<Board> {
        self.engine().board()
    }

    async fn ask(&self, command: Command) -> Result<(u64, Outcome), Problem> {
        self.ask_as(self.by.clone(), command).await
    }

    async fn ask_as(&self, by: Actor, command: Command) -> Result<(u64, Outcome), Problem> {
        let reply = self.engine().ask(Request { by, key: self.key.clone(), command }).await.map_err(refused)?;
        Ok((reply.revision, reply.outcome))
    }

    async fn done(&self, command: Command) -> Json {
        let (revision, _) = self.ask(command).await?;
        answer(revision, &"done")
    }

    /// Asks, and answers with the task as it is afterwards.
    async fn task(&self, id: TaskId, command: Command) -> Json {
        let (revision, _) = self.ask(command).await?;
        answer(revision, &self.task_view(id).await?)
    }

    /// Reads the history without holding up the others.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn History) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let history = self.engine().history().clone();
        blocking(move || read(&*history)).await?.map_err(|it| refused(Failure::Store(it)))
    }

    async fn task_view(&self, id: TaskId) -> Result<TaskView, Problem> {
        let board = self.board();
        if let Some(task) = board.tasks.get(&id) {
            return Ok(TaskView::of(&board, task, self.engine().now()));
        }
        let found = self.read(move |history| history.task(id)).await?;
        let task = found.ok_or_else(|| Problem::from(&regatta_core::refusal::Refusal::NoSuchTask { task: id }))?;
        Ok(TaskView::of(&board, &task, self.engine().now()))
    }

    /// The project that is meant: the named one, or the only one.
    fn project(&self, named: Option<ProjectName>) -> Result<ProjectName, Problem> {
        let board = self.board();
        match named {
            Some(name) if board.projects.contains_key(&name) => Ok(name),
            Some(project) => Err(Problem::from(&regatta_core::refusal::Refusal::NoSuchProject { project })),
            None => match board.projects.len() {
                1 => Ok(board.projects.keys().next().cloned().expect("there is one")),
                0 => Err(Problem::new(
                    422,
                    "no_project",
                    "no repository is under management yet",
                    "add this one: regatta init --yes",
                )),
                _ => Err(Problem::new(
                    400,
                    "which_project",
                    "there are several projects",
                    "run it inside one of them, or name it with --project",
                )),
            },
        }
    }

    /// A project that is named must be there: an empty answer would look like an empty project.
    fn known(&self, named: Option<&ProjectName>) -> Result<(), Problem> {
        named.map_or(Ok(()), |it| self.project(Some(it.clone())).map(|_| ()))
    }

    async fn status(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let board = self.board();
        let now = self.engine().now();
        let wanted = |project: &ProjectName| ask.project.as_ref().is_none_or(|it| it == project);
        let tasks: Vec<TaskView> =
            board.tasks.values().filter(|it| wanted(&it.project)).map(|it| TaskView::of(&board, it, now)).collect();
        let count = |word: &str| tasks.iter().filter(|it| it.word == word).count();
        let (landed, failed) = board.ended_tasks();
        let view = StatusView {
            working: count("working"),
            waiting: count("waiting"),
            landing: count("landing"),
            needs_you: count("needs you"),
            landed,
            failed,
            projects: self.project_views(&board, ask.project.clone()).await?,
            missions: board.missions.keys().copied().collect(),
            agents: board.agents.values().map(|it| AgentView::of(&board, it)).collect(),
            url: format!("http://{}/", self.shared.address),
            tasks,
        };
        answer(board.revision, &view)
    }

    async fn project_views(&self, board: &Arc<Board>, only: Option<ProjectName>) -> Result<Vec<ProjectView>, Problem> {
        let (board, git) = (board.clone(), self.engine().git().clone());
        blocking(move || {
            let projects = board.projects.values().filter(|it| only.as_ref().is_none_or(|only| *only == it.name));
            projects
                .map(|it| ProjectView {
                    name: it.name.clone(),
                    path: it.location.clone(),
                    trunk: it.trunk.to_string(),
                    tip: git.tip(&Repo::of(it)).ok(),
                    validation: it.validation.clone(),
                    open_tasks: board.tasks.values().filter(|task| task.project == it.name).count(),
                    queue: board.queue_of(&it.name).count(),
                })
                .collect()
        })
        .await
    }

    async fn project_list(&self) -> Json {
        let board = self.board();
        answer(board.revision, &self.project_views(&board, None).await?)
    }

    async fn project_add(&self, ask: input::ProjectAdd) -> Json {
        let (git, path) = (self.engine().git().clone(), std::path::PathBuf::from(&ask.path));
        let facts = blocking(move || git.inspect(&path)).await?.map_err(from_git)?;
        if facts.unborn {
            return Err(Problem::new(
                422,
                "unborn_branch",
                "the repository has no commit yet, so there is nothing to start from",
                "make the first commit: git commit --allow-empty -m start",
            ));
        }
        let Some(trunk) = ask.trunk.or(facts.branch) else {
            return Err(Problem::new(
                422,
                "no_branch",
                "HEAD is detached, so it is not clear which branch is the trunk",
                "name it: regatta init --trunk main",
            ));
        };
        let Some(location) = facts.top.to_str().map(str::to_owned) else {
            return Err(Problem::new(
                400,
                "bad_path",
                "the repository's path is not valid UTF-8",
                "move it to a path that is",
            ));
        };
        let known = self.board().projects.values().find(|it| it.location == location).map(|it| it.name.clone());
        let name = match ask.name.or(known) {
            Some(name) => name,
            None => self.free_name(&facts.top),
        };
        let (git, repo) = (
            self.engine().git().clone(),
            Repo { project: name.clone(), path: facts.top, trunk: trunk.clone(), update_checkout: false },
        );
        blocking(move || git.tip(&repo)).await?.map_err(from_git)?;
        let add = project::Add {
            name: name.clone(),
            location,
            trunk,
            validation: ask.validation,
            validation_timeout_ms: ask.validation_timeout_ms.unwrap_or(CHECK_TIMEOUT_MS),
            checkout: ask.checkout,
        };
        let (revision, _) = self.ask(Command::AddProject(add)).await?;
        let views = self.project_views(&self.board(), Some(name)).await?;
        answer(revision, &views.first())
    }

    /// A name after the directory, with a number if another project has it.
    fn free_name(&self, top: &std::path::Path) -> ProjectName {
        let folder = top.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let plain: String = folder
            .chars()
            .map(|it| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '-' })
            .take(50)
            .collect();
        let plain = plain.trim_start_matches(['-', '_', '.']);
        let plain = if plain.is_empty() { "project" } else { plain };
        let board = self.board();
        let mut names = std::iter::once(plain.to_owned()).chain((2..).map(|it| format!("{plain}-{it}")));
        names
            .find_map(|it| ProjectName::new(&it).ok().filter(|it| !board.projects.contains_key(it)))
            .expect("numbers never run out")
    }

    async fn agent_add(&self, ask: input::AgentAdd) -> Json {
        let runtime = match ask.runtime {
            RuntimeName::Scripted => Runtime::Scripted,
            RuntimeName::Outside => Runtime::Outside,
            RuntimeName::Command => Runtime::Command { argv: ask.command },
        };
        let register = agent::Register {
            name: ask.name.clone(),
            runtime,
            role: ask.role,
            provider: ask.provider,
            description: ask.description,
            max_tasks: ask.max_tasks,
        };
        let (revision, _) = self.ask(Command::RegisterAgent(register)).await?;
        let board = self.board();
        answer(revision, &board.agents.get(&ask.name).map(|it| AgentView::of(&board, it)))
    }

    fn agent_list(&self) -> Json {
        let board = self.board();
        let views: Vec<AgentView> = board.agents.values().map(|it| AgentView::of(&board, it)).collect();
        answer(board.revision, &views)
    }

    async fn task_add(&self, ask: input::TaskAdd) -> Json {
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
            provider: ask.provider,
            script: ask.script.map(|it| it.to_string()),
            alias: ask.alias,
            backlog: ask.backlog,
        };
        match self.ask(Command::AddTask { task: add, assign: ask.assign, how: ask.how }).await? {
            (revision, Outcome::Task(id)) => answer(revision, &self.task_view(id).await?),
            other => Err(unexpected(&other.1)),
        }
    }

    async fn task_list(&self, ask: input::TaskList) -> Json {
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
        let (board, now) = (self.board(), self.engine().now());
        let views: Vec<TaskView> =
            tasks.iter().map(|it| TaskView::of(&board, board.tasks.get(&it.id).map_or(it, |it| it), now)).collect();
        answer(board.revision, &views)
    }

    async fn task_set(&self, ask: input::TaskSet) -> Json {
        let edit = task::Edit { script: ask.script.map(|it| it.to_string()).or(ask.edit.script), ..ask.edit };
        self.task(ask.task, Command::EditTask { task: ask.task, edit }).await
    }

    async fn poll(&self, ask: input::TaskPoll) -> Json {
        self.known(ask.project.as_ref())?;
        let deadline = deadline(ask.wait_ms);
        let by = Actor::Agent(ask.agent.clone());
        let mut board = self.engine().watch();
        loop {
            board.mark_unchanged();
            let poll =
                Poll { agent: ask.agent.clone(), project: ask.project.clone(), mission: None, lease_ms: ask.lease_ms };
            match self.ask_as(by.clone(), Command::Poll(poll)).await? {
                (revision, Outcome::Polled(Some(grant))) => {
                    let workspace = self.workspace_of(grant.attempt).await;
                    let task = self.task_view(grant.task).await?;
                    return answer(
                        revision,
                        &GrantedAttempt { attempt: grant.attempt, token: grant.token, task, workspace },
                    );
                }
                (revision, _) => {
                    if tokio::time::timeout_at(deadline, board.changed()).await.is_err() {
                        return answer(revision, &None::<GrantedAttempt>);
                    }
                }
            }
        }
    }

    /// Where an attempt works, made now if the shell has not come to it yet.
    async fn workspace_of(&self, id: AttemptId) -> Option<String> {
        let board = self.board();
        let attempt = board.attempts.get(&id)?;
        let (task, project) = (board.tasks.get(&attempt.task)?, board.projects.get(&attempt.project)?);
        let (git, repo, branch) = (self.engine().git().clone(), Repo::of(project), task.branch());
        let made = blocking(move || git.prepare(&repo, id, &branch)).await.ok()?;
        match made {
            Ok(workspace) => Some(workspace.path.to_string_lossy().into_owned()),
            Err(error) => {
                tracing::warn!(attempt = %id, "no workspace: {error}");
                None
            }
        }
    }

    async fn mission_start(&self, ask: input::MissionStart) -> Json {
        let project = self.project(ask.project)?;
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
                    provider: it.task.provider,
                    script: it.task.script.map(|it| it.to_string()),
                    alias: it.task.alias,
                    backlog: false,
                },
            })
            .collect();
        let mission = mission::Start {
            project,
            title: ask.title,
            agents: ask.agents,
            max_workers: ask.max_workers,
            mode: ask.mode,
        };
        match self.ask(Command::StartMission { mission, tasks, adopt: ask.adopt }).await? {
            (_, Outcome::Mission { mission, .. }) => self.mission_show(&mission.to_string()).await,
            other => Err(unexpected(&other.1)),
        }
    }

    async fn mission_show(&self, id: &str) -> Json {
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
        let (board, now) = (self.board(), self.engine().now());
        let outlook = schedule::outlook(&board, id);
        let running = board.missions.contains_key(&id);
        let view = MissionView {
            mission: board.missions.get(&id).map_or(stored, |it| (**it).clone()),
            running,
            outlook,
            settled: !running || outlook.is_settled(),
            // What ended since the history was read is drawn as the history had it a moment ago.
            tasks: tasks
                .iter()
                .map(|it| TaskView::of(&board, board.tasks.get(&it.id).map_or(it, |it| it), now))
                .collect(),
        };
        answer(board.revision, &view)
    }

    async fn stop(&self, ask: input::Stop) -> Json {
        let reason = || "stopped by a person".to_owned();
        let missions: Vec<MissionId> = match ask.id.as_deref() {
            Some(id) if id.starts_with(['T', 't']) => {
                let task = parse(id)?;
                return self.task(task, Command::StopTask { task, reason: reason() }).await;
            }
            Some(id) if id.starts_with(['A', 'a']) => {
                let attempt: AttemptId = parse(id)?;
                let task = self.board().attempts.get(&attempt).map(|it| it.task);
                let task = task.ok_or_else(|| {
                    Problem::new(
                        404,
                        "no_such_attempt",
                        format!("{attempt} is not running"),
                        "see what runs: regatta status",
                    )
                })?;
                return self.task(task, Command::StopTask { task, reason: reason() }).await;
            }
            Some(id) => vec![parse(id)?],
            None => self.board().missions.keys().copied().collect(),
        };
        let mut revision = self.board().revision;
        for mission in &missions {
            let command = if ask.drain {
                Command::DrainMission { mission: *mission }
            } else {
                Command::StopMission { mission: *mission, reason: reason() }
            };
            // One request, several commands: each has a key of its own.
            let key = self.key.as_ref().and_then(|it| RequestKey::new(&format!("{it}/{mission}")).ok());
            let one = Caller { shared: self.shared, by: self.by.clone(), key };
            revision = one.ask(command).await?.0;
        }
        answer(revision, &missions)
    }

    async fn land(&self, id: TaskId) -> Json {
        if self.board().settled(id) == Some(task::Status::Completed) {
            return answer(self.board().revision, &self.task_view(id).await?); // it has landed: asking again is fine
        }
        self.task(id, Command::Land { task: id }).await
    }

    async fn queue(&self, ask: input::Scope) -> Json {
        self.known(ask.project.as_ref())?;
        let board = self.board();
        let mut views = Vec::new();
        for project in board.projects.values().filter(|it| ask.project.as_ref().is_none_or(|asked| *asked == it.name)) {
            let name = project.name.clone();
            let recent = self
                .read(move |history| {
                    let landings = history.landings(&name, 20)?;
                    landings
                        .into_iter()
                        .filter(|it| it.end.is_some())
                        .map(|it| Ok((history.task(it.task)?, it)))
                        .collect::<Result<Vec<_>, _>>()
                })
                .await?;
            let subject = |id: TaskId| board.tasks.get(&id).map(|it| it.subject.clone()).unwrap_or_default();
            views.push(QueueView {
                project: project.name.clone(),
                trunk: project.trunk.to_string(),
                queue: (1..)
                    .zip(board.queue_of(&project.name))
                    .map(|(at, it)| LandingView::of(it, &subject(it.task), Some(at)))
                    .collect(),
                recent: recent
                    .iter()
                    .map(|(task, it)| LandingView::of(it, task.as_ref().map_or("", |it| it.subject.as_str()), None))
                    .collect(),
            });
        }
        answer(board.revision, &views)
    }

    async fn claim_acquire(&self, ask: input::ClaimAcquire) -> Json {
        let owner = Owner::Agent(ask.agent.clone());
        let acquire =
            Acquire { owner, uris: ask.uris, mode: ask.mode, ttl_ms: ask.ttl_ms, wait_ms: ask.wait_ms, memo: ask.memo };
        let reply = self.engine().acquire(Actor::Agent(ask.agent), self.key.clone(), acquire).await.map_err(refused)?;
        match reply.outcome {
            Outcome::Claim(Acquired::Granted { claim, token, ttl_ms }) => {
                answer(reply.revision, &GrantedClaim { claim, token, ttl_ms })
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn claim_renew(&self, ask: input::ClaimHeld) -> Json {
        match self.ask(Command::Renew { claim: ask.claim, token: ask.token }).await? {
            (revision, Outcome::Renewed { ttl_ms }) => {
                answer(revision, &GrantedClaim { claim: ask.claim, token: ask.token, ttl_ms })
            }
            other => Err(unexpected(&other.1)),
        }
    }

    fn claim_list(&self) -> Json {
        let (board, now) = (self.board(), self.engine().now());
        let view = ClaimsView {
            held: board.claims.values().map(|it| ClaimView::of(it, now)).collect(),
            waiting: board.waits.values().map(|it| WaitView::of(it, now)).collect(),
        };
        answer(board.revision, &view)
    }

    fn claim_check(&self, ask: &input::Uris) -> Json {
        let (board, now) = (self.board(), self.engine().now());
        let holders = claim::in_the_way(&Draft::of(&board, now), &ask.uris, Mode::Exclusive, None, now);
        answer(board.revision, &CheckView { free: holders.is_empty(), holders })
    }

    async fn msg_send(&self, ask: input::MsgSend) -> Json {
        let by = ask.agent.map_or(self.by.clone(), Actor::Agent);
        let post = bus::Post { channel: ask.channel, text: ask.text, labels: ask.labels, reply_to: ask.reply_to };
        match self.ask_as(by, Command::Post(post)).await? {
            (revision, Outcome::Message(id)) => {
                let filter = MessageFilter { after: Some(MessageId(id.0 - 1)), limit: 1, ..MessageFilter::default() };
                let sent = self.read(move |history| history.messages(&filter)).await?;
                answer(revision, &sent.first())
            }
            other => Err(unexpected(&other.1)),
        }
    }

    async fn msg_history(&self, ask: input::MsgHistory) -> Json {
        let filter = MessageFilter {
            channel: Some(ask.channel),
            label: ask.label,
            from: ask.from,
            mention: None,
            after: ask.after,
            limit: ask.limit.clamp(1, 10_000),
        };
        let messages = self.read(move |history| history.messages(&filter)).await?;
        answer(self.board().revision, &messages)
    }

    async fn msg_wait(&self, ask: input::MsgWait) -> Json {
        let mut board = self.engine().watch();
        let after = ask.after.unwrap_or(MessageId(board.borrow_and_update().counters.message));
        let deadline = deadline(ask.timeout_ms);
        let filter = MessageFilter {
            channel: Some(ask.channel),
            label: ask.label,
            from: ask.from,
            mention: ask.mention,
            after: Some(after),
            limit: 1,
        };
        loop {
            let posted = board.borrow_and_update().counters.message;
            if posted > after.0 {
                let filter = filter.clone();
                if let Some(found) = self.read(move |history| history.messages(&filter)).await?.into_iter().next() {
                    return answer(self.board().revision, &found);
                }
            }
            let more = board.wait_for(|it| it.counters.message > posted);
            if tokio::time::timeout_at(deadline, more).await.is_err() {
                return Err(Problem::new(
                    408,
                    "timed_out",
                    "no such message came in time",
                    "give it longer: --timeout 5m",
                ));
            }
        }
    }

    async fn msg_read(&self, ask: input::MsgRead) -> Json {
        let read = self.board().cursors.get(&(ask.agent.clone(), ask.channel.clone())).copied().unwrap_or_default();
        let filter = MessageFilter {
            channel: Some(ask.channel.clone()),
            after: Some(read),
            limit: 1_000,
            ..MessageFilter::default()
        };
        let messages = self.read(move |history| history.messages(&filter)).await?;
        if let (Some(last), false) = (messages.last(), ask.keep_unread) {
            self.ask(Command::MarkRead { agent: ask.agent, channel: ask.channel, read: last.id }).await?;
        }
        answer(self.board().revision, &messages)
    }

    async fn why(&self, id: &str) -> Json {
        let task = self.task_view(parse(id)?).await?;
        let id = task.task.id;
        let attempts = self.read(move |history| history.attempts_of(id)).await?;
        let past = attempts
            .iter()
            .map(|it| {
                let text = match &it.ended {
                    Some(end) if end.detail.is_empty() => {
                        format!("{} by {}: {:?}", it.id, it.agent, end.cause).to_lowercase()
                    }
                    Some(end) => format!("{} by {} ended: {}", it.id, it.agent, end.detail),
                    None => format!("{} by {} is at work", it.id, it.agent),
                };
                PastView { revision: it.token, wall: it.started_wall, text }
            })
            .collect();
        answer(self.board().revision, &WhyView { task, past })
    }

    async fn show(&self, id: &str) -> Json {
        let board = self.board();
        if let Ok(name) = AgentName::new(id)
            && let Some(agent) = board.agents.get(&name)
        {
            return answer(board.revision, &AgentView::of(&board, agent));
        }
        match id.chars().next().map(|it| it.to_ascii_uppercase()) {
            Some('A') => {
                let attempt: AttemptId = parse(id)?;
                let found = self.read(move |history| history.attempt(attempt)).await?;
                let found = found.ok_or_else(|| {
                    Problem::new(
                        404,
                        "no_such_attempt",
                        format!("there is no attempt {attempt}"),
                        "see a task's attempts: regatta show T1",
                    )
                })?;
                answer(board.revision, &without_token(&found))
            }
            Some('M') => self.mission_show(id).await,
            _ => {
                let task: TaskId = parse(id)?;
                let mut view = self.task_view(task).await?;
                view.attempts =
                    self.read(move |history| history.attempts_of(task)).await?.iter().map(without_token).collect();
                answer(board.revision, &view)
            }
        }
    }

    /// Stops the agents first, unless they go on, and the daemon only if none is left (P10).
    async fn down(&self, keep_agents: bool) -> Json {
        if !keep_agents {
            let engine = self.engine().clone();
            let left = blocking(move || engine.stop_attempts("the daemon was told to stop")).await?.map_err(refused)?;
            if left > 0 {
                let what = format!("{left} agents could not be stopped, so the daemon stays up to watch them");
                return Err(Problem::new(500, "still_running", what, "see which: regatta status; then try again: regatta down"));
            }
        }
        let _first_wins = self.shared.down.send(Some(Ended::Down));
        answer(self.board().revision, &std::process::id())
    }

    async fn backup(&self, ask: input::File) -> Json {
        let path = std::path::PathBuf::from(&ask.path);
        if !path.is_absolute() {
            return Err(Problem::new(
                400,
                "bad_path",
                "the file's path is not absolute",
                "give a path that starts with /",
            ));
        }
        let revision = self.engine().backup(path).await.map_err(refused)?;
        answer(revision, &ask.path)
    }
}

fn deadline(wait_ms: u64) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(wait_ms.min(LONGEST_WAIT_MS))
}

fn parse<T: std::str::FromStr<Err = regatta_core::ids::BadName>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|it: regatta_core::ids::BadName| {
        Problem::new(400, "bad_id", it.to_string(), "see what there is: regatta status")
    })
}

fn answer<T: Serialize>(revision: u64, data: &T) -> Json {
    serde_json::to_vec(&Answer { revision, data })
        .map_err(|it| Problem::new(500, "bug", format!("the answer could not be written: {it}"), "please report this"))
}

fn unexpected(outcome: &Outcome) -> Problem {
    // A key that was used for another verb gives that verb's answer.
    Problem::new(
        409,
        "key_reused",
        format!("that Idempotency-Key was used for another request, which gave {outcome:?}"),
        "use a new key for each request",
    )
}

/// A failure of the engine, for the caller.
fn refused(failure: Failure) -> Problem {
    match failure {
        Failure::Refused { refusal, .. } => Problem::from(&refusal),
        Failure::Store(error) => {
            Problem { retryable: error.code == "disk_full", ..Problem::new(507, error.code, error.what, error.hint) }
        }
        Failure::Stopping => Problem::new(503, "stopping", "the daemon is stopping", "start it again: regatta up"),
    }
}

fn from_git(error: GitError) -> Problem {
    Problem::new(422, error.code, error.what, error.hint)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|it| Problem::new(500, "bug", format!("a request broke down: {it}"), "please report this"))
}
