//! The site on this machine: implements [`Site`] with this process's own ports. The daemon's own
//! attempts use it, and so does a runner on another machine.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regatta_core::agent::Level;
use regatta_core::attempt::WorkResult;
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;

use crate::contract::Place;
use crate::keep::Evidence;
use crate::ports::agents::{AgentError, Agents, Check, Desk, Exit, Launch, ProcessState, Started, Verdict};
use crate::ports::git::{Authorship, Capture, Git, GitError, ReachabilityProof, Repo, Workspace};
use crate::ports::site::{Heard, Order, Site, SiteError};
use crate::result::{self, LONGEST, Read};
use crate::running_commands::{CommandOwner, Entry, RunningCommands};
use crate::{Engine, brief, contract, failpoint, keep};

/// The time that a command has to end before the stop is reported as failed. The caller then stops
/// it again.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// A function that returns whether the commands of an attempt are still wanted.
type IsWanted = Arc<dyn Fn(AttemptId) -> bool + Send + Sync>;

/// The machine on which this process runs.
#[derive(Clone)]
pub struct Here {
    git: Arc<dyn Git>,
    agents: Arc<dyn Agents>,
    commands: Arc<RunningCommands>,
    is_wanted: IsWanted,
    /// The function that returns the repository of a project on this machine.
    repo: fn(&dyn Git, &Project) -> Repo,
}

impl Here {
    /// Creates the site of the daemon's machine, where a project is the user's own repository.
    pub(crate) fn new(engine: &Engine) -> Here {
        let (git, agents) = (engine.shared.git.clone(), engine.shared.agents.clone());
        let (commands, engine) = (engine.shared.commands.clone(), engine.clone());
        let is_wanted = Arc::new(move |attempt| engine.may_start() && !engine.is_ending(attempt));
        Here { git, agents, commands, is_wanted, repo: |_, project| Repo::of(project) }
    }

    /// Creates the site of a runner's machine, which works on a mirror of the project.
    pub fn of_runner(git: Arc<dyn Git>, agents: Arc<dyn Agents>) -> Here {
        Here {
            git,
            agents,
            commands: Arc::default(),
            is_wanted: Arc::new(|_| true),
            repo: |git, project| Repo { path: git.mirror_path(&project.name), ..Repo::of(project) },
        }
    }

    /// Returns the attempts for which a setup command, a check or a ratchet runs on this machine.
    pub fn attempts_with_commands(&self) -> Vec<AttemptId> {
        self.commands.attempts()
    }

    /// Returns the project's repository on this machine.
    pub fn repo(&self, project: &Project) -> Repo {
        (self.repo)(&*self.git, project)
    }

    /// Makes the attempt's workspace, or finds it. The workspace of a fix-up contains the work to
    /// be fixed.
    pub(crate) fn prepare(&self, order: &Order) -> Result<Workspace, GitError> {
        let Order { attempt, task, project } = order;
        let (repo, of, branch) = (self.repo(project), attempt.workspace(), task.branch());
        match &task.fixup {
            None => self.git.prepare(&repo, of, &branch),
            Some(fixup) => {
                let authorship = crate::perform::authorship(task, attempt.agent.as_str(), attempt.started_wall);
                self.git.prepare_fixup(&repo, of, &branch, fixup, &authorship)
            }
        }
    }

    /// Returns the directory and the sandbox in which an attempt's work is checked.
    fn checked_place<'a>(&self, order: &Order, dir: &'a Path, level: Option<Level>) -> Place<'a> {
        let shut_in = contract::shut_in(&*self.git, &self.repo(&order.project), level);
        let env = contract::port_variables(&order.attempt.ports);
        Place { dir, shut_in, env, wanted: None, entry: None }
    }

    /// Records that commands run for an attempt, until the entry is dropped.
    fn enter(&self, order: &Order) -> Entry<'_> {
        self.commands.enter(CommandOwner::Attempt(order.attempt.id), "its checks")
    }

    fn dir(&self, order: &Order) -> PathBuf {
        self.git.workspace_path(&self.repo(&order.project), order.attempt.workspace())
    }
}

impl Site for Here {
    fn taken(&self, ports: &[u16]) -> Result<Vec<u16>, String> {
        Ok(ports.iter().copied().filter(|it| !is_free(*it)).collect())
    }

    /// A workspace that another attempt already used is ready. A crash repeats no finished setup
    /// command, because each leaves a record under its own name.
    fn ready(&self, order: &Order, ports: &[(String, String)]) -> Result<Workspace, SiteError> {
        let Order { attempt, task, project } = order;
        let (git, of, repo) = (&self.git, attempt.workspace(), self.repo(project));
        let workspace = self.prepare(order)?;
        let settings = &project.settings.workspace;
        if (settings.copy.is_empty() && settings.setup.is_empty()) || git.is_settled(&repo, of) {
            return Ok(workspace);
        }
        let brought = git.bring(&repo, of, &task.files)?;
        if !brought.left_out.is_empty() {
            let names: Vec<&str> = brought.left_out.iter().map(String::as_str).collect();
            tracing::warn!(attempt = %attempt.id, "did not copy these paths of the checkout into the workspace: {}", names.join(", "));
        }
        let entry = self.enter(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(attempt.id);
        for (nth, command) in settings.setup.iter().enumerate() {
            entry.begin(&format!("setup command `{command}`"));
            let check = Check {
                command: command.clone(),
                dir: workspace.path.clone(),
                env: contract::environment(task, project).into_iter().chain(ports.iter().cloned()).collect(),
                timeout: Duration::from_millis(settings.setup_timeout.ms()),
                once: Some(format!("setup-{of}-{nth}")),
                shut_in: contract::shut_in(&*self.git, &repo, project.settings.run.sandbox),
            };
            let result = contract::run(&*self.agents, &check, Some(&wanted)).map_err(contract::in_full)?;
            if !result.passed() {
                return Err(format!("the setup command `{command}` {}", contract::verdict(&result)).into());
            }
        }
        git.settle(&repo, of, &task.files)?;
        Ok(workspace)
    }

    fn brief(&self, order: &Order, briefing: Option<&str>) -> Result<bool, String> {
        let dir = self.dir(order);
        match briefing {
            None => Ok(dir.join(brief::BRIEFING).is_file()),
            Some(text) => brief::write(&dir, text).map(|()| true).map_err(|it| it.to_string()),
        }
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        self.agents.state(attempt)
    }

    fn start(&self, launch: &Launch) -> Result<Started, AgentError> {
        self.agents.start(launch)
    }

    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError> {
        self.agents.attend(attempt, desk)
    }

    fn nudge(&self, attempt: AttemptId) {
        self.agents.nudge(attempt);
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let owner = CommandOwner::Attempt(attempt);
        self.commands.tell_to_end(owner);
        let exit = self.agents.stop(attempt, grace)?;
        // Also ends commands that an earlier daemon started and for which no thread waits here.
        self.agents.end_commands(attempt)?;
        let left = self.commands.wait_until_none(owner, COMMAND_PATIENCE);
        if left.is_empty() {
            return Ok(exit);
        }
        Err(AgentError {
            what: format!("{attempt} was told to stop, but it still runs: {}.", left.join(", ")),
            hint: format!("See what runs: regatta why {attempt}."),
        })
    }

    fn hear(&self, order: &Order) -> Result<Heard, String> {
        let Order { attempt, task, project } = order;
        let dir = self.dir(order);
        let results = dir.join(project.settings.run.results.trim_matches('/'));
        let names = [keep::file_name(task), format!("{}.json", task.id)];
        let places =
            std::iter::once(self.agents.result_file(attempt.id)).chain(names.iter().map(|it| results.join(it)));
        let result = places.into_iter().find_map(|it| read(&it));
        let elsewhere =
            result.as_ref().and_then(|it| it.as_ref().ok()).and_then(|it| worked_elsewhere(&it.result, &dir));
        let mut escapes = Vec::new();
        for place in [dir.join(keep::escapes_path(project)), results.join("scope-escapes.jsonl")] {
            let plain = place.symlink_metadata().is_ok_and(|it| it.is_file() && it.len() <= 1 << 20);
            if plain && let Ok(text) = std::fs::read_to_string(&place) {
                escapes.extend(result::parse_escapes(&text));
            }
        }
        Ok(Heard { result, elsewhere, escapes })
    }

    fn capture(&self, order: &Order, authorship: &Authorship) -> Result<Capture, SiteError> {
        // A crash may have left no workspace. A new one then has no changes.
        self.prepare(order)?;
        let repo = self.repo(&order.project);
        Ok(self.git.capture(&repo, order.attempt.workspace(), authorship)?)
    }

    fn examine(&self, order: &Order) -> Result<Vec<Evidence>, String> {
        let dir = self.dir(order);
        let entry = self.enter(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(order.attempt.id);
        let place = self.checked_place(order, &dir, order.project.settings.run.sandbox);
        let place = Place { wanted: Some(&wanted), entry: Some(&entry), ..place };
        contract::examine(&*self.agents, &order.task, &order.project, &place).map_err(contract::in_full)
    }

    fn ratchet(&self, order: &Order) -> Result<Option<String>, String> {
        let (of, dir) = ((&order.task, &order.project), self.dir(order));
        // A ratchet reports to a service outside, so it runs without a sandbox unless its settings
        // say otherwise.
        let level = order.project.settings.run.ratchet_sandbox.unwrap_or(Level::Off);
        let entry = self.enter(order);
        let wanted = || entry.is_wanted() && (self.is_wanted)(order.attempt.id);
        let place = self.checked_place(order, &dir, Some(level));
        let place = Place { wanted: Some(&wanted), entry: Some(&entry), ..place };
        contract::refused_by_ratchet(&*self.agents, of, order.attempt.id, &place).map_err(contract::in_full)
    }

    fn clear(&self, order: &Order, authorship: &Authorship) -> Result<(), String> {
        let (git, repo, id) = (&self.git, self.repo(&order.project), order.attempt.id);
        let unkept = git.unkept(&repo, id).map_err(|it| it.to_string())?;
        if !unkept.is_empty() {
            git.capture(&repo, id, authorship).map_err(|it| it.to_string())?;
            let still = git.unkept(&repo, id).map_err(|it| it.to_string())?;
            if !still.is_empty() {
                return Err(format!("removing the workspace would lose {}", still.join(", ")));
            }
        }
        failpoint::at("remove.kept");
        git.remove_workspace(&ReachabilityProof::mint(id), &repo).map_err(|it| it.to_string())?;
        failpoint::at("remove.removed");
        Ok(())
    }

    fn place(&self, order: &Order) -> Option<PathBuf> {
        Some(self.dir(order))
    }
}

/// Returns whether nothing listens on the port, on any address of this machine.
fn is_free(port: u16) -> bool {
    // Without IPv6 its address cannot be bound. Only a port in use counts as taken.
    let free = |bound: std::io::Result<TcpListener>| match bound {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrInUse,
    };
    free(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))) && free(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))
}

/// Reads a result file. Returns nothing where there is none.
fn read(path: &Path) -> Option<Result<Read, String>> {
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || found.len() > LONGEST as u64 {
        return Some(Err(format!("it is not a plain file of at most {LONGEST} bytes")));
    }
    Some(std::fs::read(path).map_err(|it| it.to_string()).and_then(|it| result::parse(&it)))
}

/// Returns the directory that a worker's result names, if that is not its workspace.
fn worked_elsewhere(result: &WorkResult, dir: &Path) -> Option<String> {
    let named = Path::new(result.worktree_path.as_ref()?);
    let real = |it: &Path| it.canonicalize().unwrap_or_else(|_| it.to_owned());
    (real(named) != real(dir)).then(|| named.display().to_string())
}
