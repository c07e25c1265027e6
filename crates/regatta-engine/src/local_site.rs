//! The site on this machine: implements [`Site`] with this process's own ports. The daemon's own
//! attempts use it, and so does a runner on another machine.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regatta_core::agent::SandboxLevel;
use regatta_core::attempt::WorkResult;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;

use crate::artifacts::CheckEvidence;
use crate::ports::agents::{
    AgentError, Agents, CheckCommand, DriverVerdict, Exit, ProcessState, ProgramLaunch,
    SessionSink, StartOutcome,
};
use crate::ports::git::{
    Authorship, Capture, Git, GitError, ProjectRepo, ReachabilityProof, Workspace,
};
use crate::ports::site::{AttemptSpec, Site, SiteError, WorkerReport};
use crate::running_commands::{CommandEntry, CommandOwner, RunningCommands};
use crate::validation::CheckDir;
use crate::worker_result::{self, MAX_RESULT_BYTES, ParsedResult};
use crate::{Engine, artifacts, brief, failpoint, validation};

/// The time that a command has to end before the stop is reported as failed. The caller then stops
/// it again.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A function that returns whether the commands of an attempt are still wanted.
type IsWanted = Arc<dyn Fn(AttemptId) -> bool + Send + Sync>;

/// The machine on which this process runs.
#[derive(Clone)]
pub struct LocalSite {
    git: Arc<dyn Git>,
    agents: Arc<dyn Agents>,
    commands: Arc<RunningCommands>,
    is_wanted: IsWanted,
    /// The function that returns the repository of a project on this machine.
    repo_of: fn(&dyn Git, &Project) -> ProjectRepo,
}

impl LocalSite {
    /// Creates the site of the daemon's machine, where a project is the user's own repository.
    pub(crate) fn new(engine: &Engine) -> LocalSite {
        let (git, agents) = (engine.shared.git.clone(), engine.shared.agents.clone());
        let (commands, engine) = (engine.shared.commands.clone(), engine.clone());
        let is_wanted = Arc::new(move |attempt| engine.can_start() && !engine.is_ending(attempt));
        LocalSite {
            git,
            agents,
            commands,
            is_wanted,
            repo_of: |_, project| ProjectRepo::from_project(project),
        }
    }

    /// Creates the site of a runner's machine, which works on a mirror of the project.
    pub fn for_runner(git: Arc<dyn Git>, agents: Arc<dyn Agents>) -> LocalSite {
        LocalSite {
            git,
            agents,
            commands: Arc::default(),
            is_wanted: Arc::new(|_| true),
            repo_of: |git, project| ProjectRepo {
                path: git.mirror_path(&project.name),
                ..ProjectRepo::from_project(project)
            },
        }
    }

    /// Returns the attempts for which a setup command, a check or a ratchet runs on this machine.
    pub fn attempts_with_commands(&self) -> Vec<AttemptId> {
        self.commands.attempts_with_commands()
    }

    /// Returns the project's repository on this machine.
    pub fn repo_of(&self, project: &Project) -> ProjectRepo {
        (self.repo_of)(&*self.git, project)
    }

    /// Makes the attempt's workspace, or finds it. The workspace of a fix-up contains the work to
    /// be fixed.
    pub(crate) fn prepare(&self, order: &AttemptSpec) -> Result<Workspace, GitError> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = order;
        let (repo, of, branch) = (self.repo_of(project), attempt.workspace(), task.branch());
        match &task.fixup {
            None => self.git.prepare_workspace(&repo, of, &branch),
            Some(fixup) => {
                let authorship = crate::perform::authorship(
                    task,
                    attempt.agent.as_str(),
                    attempt.started_unix_ms,
                );
                self.git
                    .prepare_fixup(&repo, of, &branch, fixup, &authorship)
            }
        }
    }

    /// Returns the directory and the sandbox in which an attempt's work is checked.
    fn check_dir<'a>(
        &self,
        order: &AttemptSpec,
        dir: &'a Path,
        level: Option<SandboxLevel>,
    ) -> CheckDir<'a> {
        let shut_in = validation::check_sandbox(&*self.git, &self.repo_of(&order.project), level);
        let env = validation::port_variables(&order.attempt.ports);
        CheckDir {
            dir,
            sandbox: shut_in,
            env,
            is_wanted: None,
            entry: None,
        }
    }

    /// Records that commands run for an attempt, until the entry is dropped.
    fn register_commands(&self, order: &AttemptSpec) -> CommandEntry<'_> {
        self.commands
            .register(CommandOwner::Attempt(order.attempt.id), "its checks")
    }

    fn workspace_dir(&self, order: &AttemptSpec) -> PathBuf {
        self.git
            .workspace_path(&self.repo_of(&order.project), order.attempt.workspace())
    }
}

impl Site for LocalSite {
    fn ports_in_use(&self, ports: &[u16]) -> Result<Vec<u16>, String> {
        Ok(ports
            .iter()
            .copied()
            .filter(|port| !is_free(*port))
            .collect())
    }

    /// A workspace that another attempt already used is ready. A crash repeats no finished setup
    /// command, because each leaves a record under its own name.
    fn make_ready(
        &self,
        order: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<Workspace, SiteError> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = order;
        let (git, of, repo) = (&self.git, attempt.workspace(), self.repo_of(project));
        let workspace = self.prepare(order)?;
        let settings = &project.settings.workspace;
        if (settings.copy.is_empty() && settings.setup.is_empty()) || git.is_ready(&repo, of) {
            return Ok(workspace);
        }
        let brought = git.copy_untracked(&repo, of, &task.files)?;
        if !brought.skipped.is_empty() {
            let names: Vec<&str> = brought.skipped.iter().map(String::as_str).collect();
            tracing::warn!(attempt = %attempt.id, "did not copy these paths of the checkout into \
                the workspace: {}", names.join(", "));
        }
        let entry = self.register_commands(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(attempt.id);
        for (nth, command) in settings.setup.iter().enumerate() {
            entry.show_command(&format!("setup command `{command}`"));
            let check = CheckCommand {
                command: command.clone(),
                dir: workspace.path.clone(),
                env: validation::task_env(task, project)
                    .into_iter()
                    .chain(ports.iter().cloned())
                    .collect(),
                timeout: Duration::from_millis(settings.setup_timeout.ms()),
                once_name: Some(format!("setup-{of}-{nth}")),
                sandbox: validation::check_sandbox(&*self.git, &repo, project.settings.run.sandbox),
            };
            let result = validation::run_check(&*self.agents, &check, Some(&wanted))
                .map_err(validation::describe_agent_error)?;
            if !result.passed() {
                return Err(format!(
                    "the setup command `{command}` {}",
                    validation::describe_result(&result)
                )
                .into());
            }
        }
        git.mark_ready(&repo, of, &task.files)?;
        Ok(workspace)
    }

    fn write_briefing(&self, order: &AttemptSpec, briefing: Option<&str>) -> Result<bool, String> {
        let dir = self.workspace_dir(order);
        match briefing {
            None => Ok(dir.join(brief::BRIEFING_PATH).is_file()),
            Some(text) => brief::write_briefing(&dir, text)
                .map(|()| true)
                .map_err(|error| error.to_string()),
        }
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        self.agents.state(attempt)
    }

    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError> {
        self.agents.start(launch)
    }

    fn attend(
        &self,
        attempt: AttemptId,
        desk: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        self.agents.attend(attempt, desk)
    }

    fn refresh_input(&self, attempt: AttemptId) {
        self.agents.refresh_input(attempt);
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let owner = CommandOwner::Attempt(attempt);
        self.commands.request_end(owner);
        let exit = self.agents.stop(attempt, grace)?;
        // Also ends commands that an earlier daemon started and for which no thread waits here.
        self.agents.end_commands(attempt)?;
        let left = self.commands.wait_until_none(owner, COMMAND_END_TIMEOUT);
        if left.is_empty() {
            return Ok(exit);
        }
        Err(AgentError {
            message: format!(
                "{attempt} was told to stop, but it still runs: {}.",
                left.join(", ")
            ),
            hint: format!("See what runs: regatta why {attempt}."),
        })
    }

    fn read_report(&self, order: &AttemptSpec) -> Result<WorkerReport, String> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = order;
        let dir = self.workspace_dir(order);
        let results = dir.join(project.settings.run.results.trim_matches('/'));
        let names = [
            artifacts::result_file_name(task),
            format!("{}.json", task.id),
        ];
        let places = std::iter::once(self.agents.result_file(attempt.id))
            .chain(names.iter().map(|name| results.join(name)));
        let result = places.into_iter().find_map(|path| read_result(&path));
        let elsewhere = result
            .as_ref()
            .and_then(|result| result.as_ref().ok())
            .and_then(|parsed_result| reported_other_dir(&parsed_result.result, &dir));
        let mut escapes = Vec::new();
        for place in [
            dir.join(artifacts::escapes_file_path(project)),
            results.join("scope-escapes.jsonl"),
        ] {
            let plain = place
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= 1 << 20);
            if plain && let Ok(text) = std::fs::read_to_string(&place) {
                escapes.extend(worker_result::parse_escapes(&text));
            }
        }
        Ok(WorkerReport {
            result,
            other_dir: elsewhere,
            escapes,
        })
    }

    fn capture(&self, order: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError> {
        // A crash may have left no workspace. A new one then has no changes.
        self.prepare(order)?;
        let repo = self.repo_of(&order.project);
        Ok(self
            .git
            .capture(&repo, order.attempt.workspace(), authorship)?)
    }

    fn run_checks(&self, order: &AttemptSpec) -> Result<Vec<CheckEvidence>, String> {
        let dir = self.workspace_dir(order);
        let entry = self.register_commands(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(order.attempt.id);
        let place = self.check_dir(order, &dir, order.project.settings.run.sandbox);
        let place = CheckDir {
            is_wanted: Some(&wanted),
            entry: Some(&entry),
            ..place
        };
        validation::run_checks(&*self.agents, &order.task, &order.project, &place)
            .map_err(validation::describe_agent_error)
    }

    fn run_ratchet(&self, order: &AttemptSpec) -> Result<Option<String>, String> {
        let (of, dir) = ((&order.task, &order.project), self.workspace_dir(order));
        // A ratchet reports to a service outside, so it runs without a sandbox unless its settings
        // say otherwise.
        let level = order
            .project
            .settings
            .run
            .ratchet_sandbox
            .unwrap_or(SandboxLevel::Off);
        let entry = self.register_commands(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(order.attempt.id);
        let place = self.check_dir(order, &dir, Some(level));
        let place = CheckDir {
            is_wanted: Some(&wanted),
            entry: Some(&entry),
            ..place
        };
        validation::ratchet_refusal(&*self.agents, of, order.attempt.id, &place)
            .map_err(validation::describe_agent_error)
    }

    fn remove_workspace(&self, order: &AttemptSpec, authorship: &Authorship) -> Result<(), String> {
        let (git, repo, id) = (&self.git, self.repo_of(&order.project), order.attempt.id);
        let unkept = git
            .uncaptured_paths(&repo, id)
            .map_err(|error| error.to_string())?;
        if !unkept.is_empty() {
            git.capture(&repo, id, authorship)
                .map_err(|error| error.to_string())?;
            let still = git
                .uncaptured_paths(&repo, id)
                .map_err(|error| error.to_string())?;
            if !still.is_empty() {
                return Err(format!(
                    "removing the workspace would lose {}",
                    still.join(", ")
                ));
            }
        }
        failpoint::hit("remove.kept");
        git.remove_workspace(&ReachabilityProof::mint(id), &repo)
            .map_err(|error| error.to_string())?;
        failpoint::hit("remove.removed");
        Ok(())
    }

    fn working_dir(&self, order: &AttemptSpec) -> Option<PathBuf> {
        Some(self.workspace_dir(order))
    }
}

/// Returns whether nothing listens on the port, on any address of this machine.
fn is_free(port: u16) -> bool {
    // Without IPv6 its address cannot be bound. Only a port in use counts as taken.
    let free = |bound: std::io::Result<TcpListener>| match bound {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    };
    free(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        && free(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))
}

/// Reads a result file. Returns nothing where there is none.
fn read_result(path: &Path) -> Option<Result<ParsedResult, String>> {
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || found.len() > MAX_RESULT_BYTES as u64 {
        return Some(Err(format!(
            "it is not a plain file of at most {MAX_RESULT_BYTES} bytes"
        )));
    }
    Some(
        std::fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| worker_result::parse_result(&bytes)),
    )
}

/// Returns the directory that a worker's result names, if that is not its workspace.
fn reported_other_dir(result: &WorkResult, dir: &Path) -> Option<String> {
    let named = Path::new(result.worktree_path.as_ref()?);
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    (real(named) != real(dir)).then(|| named.display().to_string())
}
