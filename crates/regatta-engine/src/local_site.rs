//! Runs attempts on this machine: implements [`Site`] (the machine on which an attempt works) with
//! the git and the programs of this machine. Both the daemon and a runner on another machine use
//! this implementation for their own attempts.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regatta_core::agent::SandboxLevel;
use regatta_core::attempt::{CheckEvidence, WorkResult};
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;

use crate::ports::agents::{
    AgentError, Agents, CheckCommand, DriverVerdict, Exit, ProcessState, ProgramLaunch,
    SessionSink, StartOutcome,
};
use crate::ports::git::{
    Authorship, Capture, GitError, ProjectRepo, ReachabilityProof, RunnerGit, SiteGit, Workspace,
};
use crate::ports::site::{AttemptSpec, Site, SiteError, WorkerReport};
use crate::running_commands::{CommandEntry, CommandOwner, RunningCommands};
use crate::validation::CheckDir;
use crate::worker_result::{self, MAX_RESULT_BYTES, ParsedResult};
use crate::{Engine, artifacts, brief, failpoint, validation};

/// The time that a command has to end. After this time the stop is reported as failed, and the
/// caller tries to stop the command again.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A function that returns whether the commands of an attempt (setup commands and checks) should go
/// on running.
type IsWanted = Arc<dyn Fn(AttemptId) -> bool + Send + Sync>;

/// The site (a machine on which attempts work) that is this machine itself, the daemon's or a
/// runner's.
#[derive(Clone)]
pub struct LocalSite {
    git: Arc<dyn SiteGit>,
    agents: Arc<dyn Agents>,
    commands: Arc<RunningCommands>,
    is_wanted: IsWanted,
    /// Returns the repository that a project has on this machine.
    repo_of: Arc<dyn Fn(&Project) -> ProjectRepo + Send + Sync>,
}

impl LocalSite {
    /// Creates the site (a machine on which attempts work) for the daemon. There, a project's
    /// repository is the user's own repository.
    pub(crate) fn new(engine: &Engine) -> LocalSite {
        let (git, agents) = (engine.shared.git.clone(), engine.shared.agents.clone());
        let (commands, engine) = (engine.shared.commands.clone(), engine.clone());
        let is_wanted = Arc::new(move |attempt| engine.can_start() && !engine.is_ending(attempt));
        LocalSite {
            git,
            agents,
            commands,
            is_wanted,
            repo_of: Arc::new(ProjectRepo::from_project),
        }
    }

    /// Creates the site (a machine on which attempts work) for a runner. There, a project's
    /// repository is a mirror that the runner fetched.
    pub fn for_runner(git: Arc<dyn RunnerGit>, agents: Arc<dyn Agents>) -> LocalSite {
        let mirrors = git.clone();
        LocalSite {
            git,
            agents,
            commands: Arc::default(),
            is_wanted: Arc::new(|_| true),
            repo_of: Arc::new(move |project| ProjectRepo {
                path: mirrors.mirror_path(&project.name),
                ..ProjectRepo::from_project(project)
            }),
        }
    }

    /// Returns the attempts for which a setup command or a check runs on this machine now.
    pub fn attempts_with_commands(&self) -> Vec<AttemptId> {
        self.commands.attempts_with_commands()
    }

    /// Returns the repository that a project has on this machine.
    pub fn repo_of(&self, project: &Project) -> ProjectRepo {
        (self.repo_of)(project)
    }

    /// Creates the attempt's workspace if it does not exist, and returns it. The workspace of a
    /// fix-up (an attempt that repairs finished work) contains the work that needs repair.
    pub(crate) fn prepare(&self, spec: &AttemptSpec) -> Result<Workspace, GitError> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = spec;
        let (repo, workspace_id, branch) =
            (self.repo_of(project), attempt.workspace(), task.branch());
        match &task.fixup {
            None => self.git.prepare_workspace(&repo, workspace_id, &branch),
            Some(fixup) => {
                let authorship = crate::perform::authorship(
                    task,
                    attempt.agent.as_str(),
                    attempt.started_unix_ms,
                );
                self.git
                    .prepare_fixup(&repo, workspace_id, &branch, fixup, &authorship)
            }
        }
    }

    /// Returns the directory, sandbox and environment in which the checks of an attempt's work run.
    fn check_dir<'a>(
        &self,
        spec: &AttemptSpec,
        dir: &'a Path,
        level: Option<SandboxLevel>,
    ) -> CheckDir<'a> {
        let sandbox = validation::check_sandbox(&*self.git, &self.repo_of(&spec.project), level);
        let env = validation::port_variables(&spec.attempt.ports);
        CheckDir {
            dir,
            sandbox,
            env,
            is_wanted: None,
            entry: None,
        }
    }

    /// Records that commands run for an attempt. The record ends when the returned entry is
    /// dropped.
    fn register_commands(&self, spec: &AttemptSpec) -> CommandEntry<'_> {
        self.commands
            .register(CommandOwner::Attempt(spec.attempt.id), "its checks")
    }

    fn workspace_dir(&self, spec: &AttemptSpec) -> PathBuf {
        self.git
            .workspace_path(&self.repo_of(&spec.project), spec.attempt.workspace())
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

    /// Creates the attempt's workspace if it does not exist, copies the project's untracked files
    /// into it, and runs the setup commands. Copies and runs nothing if an earlier attempt already
    /// prepared the workspace. After a crash, a setup command that has finished is not run again,
    /// because each command leaves a record under its own name.
    fn make_ready(
        &self,
        spec: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<Workspace, SiteError> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = spec;
        let (git, workspace_id, repo) = (&self.git, attempt.workspace(), self.repo_of(project));
        let workspace = self.prepare(spec)?;
        let settings = &project.settings.workspace;
        if (settings.copy.is_empty() && settings.setup.is_empty())
            || git.is_ready(&repo, workspace_id)
        {
            return Ok(workspace);
        }
        let copied = git.copy_untracked(&repo, workspace_id, &task.files)?;
        if !copied.skipped.is_empty() {
            let names: Vec<&str> = copied.skipped.iter().map(String::as_str).collect();
            tracing::warn!(attempt = %attempt.id, "did not copy some paths of the setting \
                `[workspace] copy` into the workspace of {}, so its agent works without these \
                files (git repositories, and links out of the checkout, are never copied): {}",
                attempt.id, names.join(", "));
        }
        let entry = self.register_commands(spec);
        let is_wanted = || entry.is_wanted() && (self.is_wanted)(attempt.id);
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
                once_name: Some(format!("setup-{workspace_id}-{nth}")),
                sandbox: validation::check_sandbox(&*self.git, &repo, project.settings.run.sandbox),
            };
            let result = validation::run_check(&*self.agents, &check, Some(&is_wanted))
                .map_err(validation::describe_agent_error)?;
            if !result.passed() {
                return Err(format!(
                    "the setup command `{command}` {}",
                    validation::describe_result(&result)
                )
                .into());
            }
        }
        git.mark_ready(&repo, workspace_id, &task.files)?;
        Ok(workspace)
    }

    fn write_briefing(&self, spec: &AttemptSpec, briefing: Option<&str>) -> Result<bool, String> {
        let dir = self.workspace_dir(spec);
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
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        self.agents.attend(attempt, sink)
    }

    fn refresh_input(&self, attempt: AttemptId) {
        self.agents.refresh_input(attempt);
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let owner = CommandOwner::Attempt(attempt);
        self.commands.request_end(owner);
        let exit = self.agents.stop(attempt, grace)?;
        // Also end commands that an earlier daemon process started, because no thread of this
        // process waits for them.
        self.agents.end_commands(attempt)?;
        let still_running = self.commands.wait_until_none(owner, COMMAND_END_TIMEOUT);
        if still_running.is_empty() {
            return Ok(exit);
        }
        Err(AgentError {
            message: format!(
                "could not stop everything of {attempt}; it still runs: {}.",
                still_running.join(", ")
            ),
            hint: format!("See what runs: regatta why {attempt}."),
        })
    }

    fn read_report(&self, spec: &AttemptSpec) -> Result<WorkerReport, String> {
        let AttemptSpec {
            attempt,
            task,
            project,
        } = spec;
        let dir = self.workspace_dir(spec);
        let results = dir.join(project.settings.run.results.trim_matches('/'));
        let names = [
            artifacts::result_file_name(task),
            format!("{}.json", task.id),
        ];
        let candidates = std::iter::once(self.agents.result_file(attempt.id))
            .chain(names.iter().map(|name| results.join(name)));
        let result = candidates.into_iter().find_map(|path| read_result(&path));
        let other_dir = result
            .as_ref()
            .and_then(|result| result.as_ref().ok())
            .and_then(|parsed| reported_other_dir(&parsed.result, &dir));
        let mut escapes = Vec::new();
        for escape_file in [
            dir.join(project.settings.run.escapes_file_path()),
            results.join("scope-escapes.jsonl"),
        ] {
            let is_plain_file = escape_file
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= 1 << 20);
            if is_plain_file && let Ok(text) = std::fs::read_to_string(&escape_file) {
                escapes.extend(worker_result::parse_escapes(&text));
            }
        }
        Ok(WorkerReport {
            result,
            other_dir,
            escapes,
        })
    }

    fn capture(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError> {
        // After a crash the workspace may be missing. A workspace that is created now has no
        // changes, so the commit of the attempt's work is empty.
        self.prepare(spec)?;
        let repo = self.repo_of(&spec.project);
        Ok(self
            .git
            .capture(&repo, spec.attempt.workspace(), authorship)?)
    }

    fn run_checks(&self, spec: &AttemptSpec) -> Result<Vec<CheckEvidence>, String> {
        let dir = self.workspace_dir(spec);
        let entry = self.register_commands(spec);
        let is_wanted = || entry.is_wanted() && (self.is_wanted)(spec.attempt.id);
        let check_dir = self.check_dir(spec, &dir, spec.project.settings.run.sandbox);
        let check_dir = CheckDir {
            is_wanted: Some(&is_wanted),
            entry: Some(&entry),
            ..check_dir
        };
        validation::run_checks(&*self.agents, &spec.task, &spec.project, &check_dir)
            .map_err(validation::describe_agent_error)
    }

    fn run_ratchet(&self, spec: &AttemptSpec) -> Result<Option<String>, String> {
        let (task_and_project, dir) = ((&spec.task, &spec.project), self.workspace_dir(spec));
        // A ratchet (a command that must accept finished work, such as a count of warnings) may
        // report to a service outside, so it runs without a sandbox unless its settings say
        // otherwise.
        let level = spec
            .project
            .settings
            .run
            .ratchet_sandbox
            .unwrap_or(SandboxLevel::Off);
        let entry = self.register_commands(spec);
        let is_wanted = || entry.is_wanted() && (self.is_wanted)(spec.attempt.id);
        let check_dir = self.check_dir(spec, &dir, Some(level));
        let check_dir = CheckDir {
            is_wanted: Some(&is_wanted),
            entry: Some(&entry),
            ..check_dir
        };
        validation::ratchet_refusal(&*self.agents, task_and_project, spec.attempt.id, &check_dir)
            .map_err(validation::describe_agent_error)
    }

    fn remove_workspace(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<(), String> {
        let (git, repo, id) = (&self.git, self.repo_of(&spec.project), spec.attempt.id);
        let uncaptured = git
            .uncaptured_paths(&repo, id)
            .map_err(|error| error.to_string())?;
        if !uncaptured.is_empty() {
            git.capture(&repo, id, authorship)
                .map_err(|error| error.to_string())?;
            let remaining = git
                .uncaptured_paths(&repo, id)
                .map_err(|error| error.to_string())?;
            if !remaining.is_empty() {
                return Err(format!(
                    "removing the workspace would lose {}",
                    remaining.join(", ")
                ));
            }
        }
        failpoint::hit("remove.kept");
        git.remove_workspace(&ReachabilityProof::mint(id), &repo)
            .map_err(|error| error.to_string())?;
        failpoint::hit("remove.removed");
        Ok(())
    }

    fn working_dir(&self, spec: &AttemptSpec) -> Option<PathBuf> {
        Some(self.workspace_dir(spec))
    }
}

/// Returns whether no program on this machine listens on the port, on any address.
fn is_free(port: u16) -> bool {
    // On a machine without IPv6 the IPv6 address cannot be bound. Only the error "address in use"
    // shows that another program uses the port.
    let is_unused = |listener: std::io::Result<TcpListener>| match listener {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    };
    is_unused(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        && is_unused(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))
}

/// Reads the result file of an attempt. Returns `None` if there is no such file.
fn read_result(path: &Path) -> Option<Result<ParsedResult, String>> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_RESULT_BYTES as u64 {
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

/// Returns the directory that a result names as the place of the work, if that directory is not the
/// workspace.
fn reported_other_dir(result: &WorkResult, dir: &Path) -> Option<String> {
    let reported_dir = Path::new(result.worktree_path.as_ref()?);
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    (real(reported_dir) != real(dir)).then(|| reported_dir.display().to_string())
}
