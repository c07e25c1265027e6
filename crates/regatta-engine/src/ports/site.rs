//! The machine on which an attempt works: the daemon's own, or a runner's. The work is done by the
//! same code on both; a runner's machine gets the calls over the network.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::attempt::{Attempt, SetupFault};
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::scope_escape::ScopeFinding;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

use crate::artifacts::CheckEvidence;
use crate::ports::agents::{
    AgentError, DriverVerdict, Exit, ProcessState, ProgramLaunch, SessionSink, StartOutcome,
};
use crate::ports::git::{Authorship, Capture, GitError, Workspace};
use crate::worker_result::ParsedResult;

/// The records of an attempt that a site needs to work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSpec {
    pub attempt: Attempt,
    /// The task with the manifest of this attempt; a fix-up's manifest is the conflicting paths.
    pub task: Task,
    pub project: Project,
}

/// The files in which an attempt reported on its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// The attempt's result, or the reason why it could not be read.
    pub result: Option<Result<ParsedResult, String>>,
    /// The directory in which the attempt says it worked, if that is not its workspace.
    #[serde(rename = "elsewhere")]
    pub other_dir: Option<String>,
    /// Work outside its manifest that the attempt reported.
    pub escapes: Vec<ScopeFinding>,
}

/// The reason why an operation in an attempt's workspace failed, and the party at fault, where it
/// is known.
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
        // Repeating the operation does not help: a person must change the repository, or the task
        // must make something else.
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

/// The machine on which an attempt works. Every call can be repeated and then ends in the same
/// state.
pub trait Site: Send + Sync {
    /// Returns those of these ports on which a program of the machine listens.
    fn ports_in_use(&self, ports: &[u16]) -> Result<Vec<u16>, String>;
    /// Makes the attempt's workspace ready: checks it out, copies the project's untracked files and
    /// runs the setup commands.
    fn make_ready(
        &self,
        spec: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<Workspace, SiteError>;
    /// Writes the attempt's briefing into its workspace, if one is given. Returns whether the
    /// workspace has a briefing.
    fn write_briefing(&self, spec: &AttemptSpec, briefing: Option<&str>) -> Result<bool, String>;
    /// Returns the state of the attempt's program.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Starts the attempt's program. A second call starts nothing.
    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError>;
    /// Attends the attempt's program until it has ended, or until `sink` no longer wants to
    /// continue (`None`).
    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError>;
    /// Makes the attendant read its sink's desired input now.
    fn refresh_input(&self, attempt: AttemptId);
    /// Ends the attempt's whole process tree. Returns when the tree is gone.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// Reads the files in which the attempt reported on its work.
    fn read_report(&self, spec: &AttemptSpec) -> Result<WorkerReport, String>;
    /// Captures the files of the attempt's workspace in the daemon's vault.
    fn capture(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError>;
    /// Runs the checks on the workspace, up to the first one that fails.
    fn run_checks(&self, spec: &AttemptSpec) -> Result<Vec<CheckEvidence>, String>;
    /// Runs the task's ratchet once. Returns the reason if the ratchet refused the work.
    fn run_ratchet(&self, spec: &AttemptSpec) -> Result<Option<String>, String>;
    /// Removes the attempt's workspace, once everything in it is proved kept.
    fn remove_workspace(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<(), String>;
    /// Returns the attempt's working directory, or nothing when it is on another machine.
    fn working_dir(&self, spec: &AttemptSpec) -> Option<PathBuf>;
}
