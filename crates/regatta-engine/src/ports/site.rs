//! The interface to the machine on which an attempt works: the daemon's own machine, or the machine
//! of a runner (a process that executes attempts for the daemon). The same code does the work on
//! both kinds of machine, but a runner receives the calls over the network.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::attempt::{Attempt, CheckEvidence, SetupFault};
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::scope_escape::ScopeFinding;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

use crate::ports::agents::{
    AgentError, DriverVerdict, Exit, ProcessState, ProgramLaunch, SessionSink, StartOutcome,
};
use crate::ports::git::{Authorship, Capture, GitError, Workspace};
use crate::worker_result::ParsedResult;

/// The records of an attempt, its task and its project that a machine needs to work on the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSpec {
    pub attempt: Attempt,
    /// The task, with the file patterns that this attempt may change. For a fix-up (an attempt that
    /// repairs finished work), the task names only the conflicting paths.
    pub task: Task,
    pub project: Project,
}

/// The contents of the files in which an attempt reported on its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The attempt's result, or the reason why its result file could not be read. `None` if there
    /// is no result file.
    pub result: Option<Result<ParsedResult, String>>,
    /// The directory in which the agent says that it worked, if that directory is not its
    /// workspace.
    #[serde(rename = "elsewhere")]
    pub other_dir: Option<String>,
    /// Work outside the task's file patterns that the attempt reported as necessary or done.
    pub escapes: Vec<ScopeFinding>,
}

/// The reason why an operation in an attempt's workspace failed and, if known, what is at fault,
/// such as the task or the agent's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteError {
    pub reason: String,
    pub fault: Option<SetupFault>,
}

impl From<String> for SiteError {
    fn from(reason: String) -> SiteError {
        SiteError {
            reason,
            fault: None,
        }
    }
}

impl From<SiteError> for String {
    fn from(error: SiteError) -> String {
        error.reason
    }
}

impl From<GitError> for SiteError {
    fn from(error: GitError) -> SiteError {
        // After one of these errors it does not help to repeat the operation. A person must change
        // the repository, or the task must produce something else.
        let is_setup = matches!(
            error.code,
            "unstorable"
                | "unreadable"
                | "unencodable"
                | "path_too_long"
                | "submodule_missing"
                | "too_many_submodules"
                | "submodule_commit_missing"
                | "submodule_edited"
                | "grafted"
                | "unsafe_repository"
                | "not_a_repository"
                | "no_such_branch"
                | "unborn_branch"
                | "git_missing"
                | "bad_sparse"
                | "too_much_to_copy"
        );
        SiteError {
            reason: format!("{} {}", error.message, error.hint),
            fault: is_setup.then_some(SetupFault::Task),
        }
    }
}

/// A machine on which attempts work. Every call can be repeated, and repeating a call leads to the
/// same state.
pub trait Site: Send + Sync {
    /// Returns the numbers in `ports` on which a program of the machine already listens.
    fn ports_in_use(&self, ports: &[u16]) -> Result<Vec<u16>, String>;
    /// Prepares the attempt's workspace: checks the files out, copies the project's untracked files
    /// and runs the setup commands.
    fn make_ready(
        &self,
        spec: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<Workspace, SiteError>;
    /// Writes `briefing` (the background for the agent) into the attempt's workspace, unless it is
    /// `None`. Returns whether the workspace has a briefing afterwards.
    fn write_briefing(&self, spec: &AttemptSpec, briefing: Option<&str>) -> Result<bool, String>;
    /// Returns the state of the attempt's program: not started, running or ended.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Starts the attempt's program. A second call for the same attempt starts nothing.
    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError>;
    /// Passes the events of the attempt's program to `sink` until the program has ended. Returns
    /// `None` when `sink` no longer wants to continue.
    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError>;
    /// Notifies the [`Site::attend`] call that runs for the attempt, so that it asks its `sink` for
    /// new input at once.
    fn refresh_input(&self, attempt: AttemptId);
    /// Stops all processes of the attempt. Returns only when no process is left, and says how the
    /// attempt's program ended.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// Reads the files in which the attempt's agent reported on its work.
    fn read_report(&self, spec: &AttemptSpec) -> Result<WorkerReport, String>;
    /// Stores the files of the attempt's workspace as a commit in the daemon's vault, Regatta's own
    /// repository of the project.
    fn capture(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError>;
    /// Runs the checks in the workspace until one fails. Returns the results of the checks that
    /// ran.
    fn run_checks(&self, spec: &AttemptSpec) -> Result<Vec<CheckEvidence>, String>;
    /// Runs the task's ratchet (a command that must accept work that passed its checks) at most
    /// once. Returns the reason if the ratchet rejects the work, otherwise `None`.
    fn run_ratchet(&self, spec: &AttemptSpec) -> Result<Option<String>, String>;
    /// Removes the attempt's workspace, after proving that everything in the workspace is stored
    /// elsewhere.
    fn remove_workspace(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<(), String>;
    /// Returns the attempt's working directory, or `None` when the attempt works on another
    /// machine.
    fn working_dir(&self, spec: &AttemptSpec) -> Option<PathBuf>;
}
