//! The machine on which an attempt works: the daemon's own, or a runner's. Both are the same code; only the way there
//! differs.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::attempt::{Attempt, SetupFault};
use regatta_core::ids::AttemptId;
use regatta_core::project::Project;
use regatta_core::scope::Finding;
use regatta_core::task::Task;
use serde::{Deserialize, Serialize};

use crate::keep::Evidence;
use crate::ports::agents::{AgentError, Desk, Exit, Launch, ProcessState, Started, Verdict};
use crate::ports::git::{Authorship, Capture, GitError, Workspace};
use crate::result::Read;

/// One attempt, as whoever works on it must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub attempt: Attempt,
    /// With the manifest of this attempt: a fix-up's is what conflicts.
    pub task: Task,
    pub project: Project,
}

/// What an attempt said of its work, beside the work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Its result, or why that could not be taken.
    pub result: Option<Result<Read, String>>,
    /// It says it worked in this place, which is not its workspace.
    pub elsewhere: Option<String>,
    /// What it wrote down of work outside its manifest.
    pub escapes: Vec<Finding>,
}

/// Why something could not be done in an attempt's workspace, and whose fault that is, where it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteError {
    pub reason: String,
    pub fault: Option<SetupFault>,
}

impl From<String> for SiteError {
    fn from(reason: String) -> SiteError {
        SiteError { reason, fault: None }
    }
}

impl From<SiteError> for String {
    fn from(error: SiteError) -> String {
        error.reason
    }
}

impl From<GitError> for SiteError {
    fn from(error: GitError) -> SiteError {
        // Trying these again changes nothing: somebody must change the repository, or what the task makes.
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
        SiteError { reason: format!("{} {}", error.what, error.hint), fault: is_setup.then_some(SetupFault::Task) }
    }
}

/// The machine on which an attempt works. Every call may be repeated and then ends in the same state.
pub trait Site: Send + Sync {
    /// Which of these ports somebody listens on there.
    fn taken(&self, ports: &[u16]) -> Result<Vec<u16>, String>;
    /// Makes the attempt's workspace ready to be worked in: checked out, with what is brought along, and set up.
    fn ready(&self, order: &Order, ports: &[(String, String)]) -> Result<Workspace, SiteError>;
    /// Writes the attempt's briefing into its workspace, if one is given; whether there is one then.
    fn brief(&self, order: &Order, briefing: Option<&str>) -> Result<bool, String>;
    /// Where the attempt's program is now.
    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError>;
    /// Starts the attempt's program; a second call starts nothing.
    fn start(&self, launch: &Launch) -> Result<Started, AgentError>;
    /// Attends the attempt's program until it has ended, or `desk` no longer wants to go on (`None`).
    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError>;
    /// Makes the attendant look at its desk's wishes now.
    fn nudge(&self, attempt: AttemptId);
    /// Ends the attempt's whole process tree; returns when it is gone.
    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError>;
    /// What the attempt said of its work.
    fn hear(&self, order: &Order) -> Result<Heard, String>;
    /// Keeps what is in the attempt's workspace in the daemon's vault.
    fn capture(&self, order: &Order, authorship: &Authorship) -> Result<Capture, SiteError>;
    /// Checks what is in the workspace, up to the first check that fails.
    fn examine(&self, order: &Order) -> Result<Vec<Evidence>, String>;
    /// Lets the task's ratchet have the last word, once; says why it refused.
    fn ratchet(&self, order: &Order) -> Result<Option<String>, String>;
    /// Removes the attempt's workspace, once everything in it is proved kept.
    fn clear(&self, order: &Order, authorship: &Authorship) -> Result<(), String>;
    /// Where the attempt works, for who wants to go there: nothing when that is another machine.
    fn place(&self, order: &Order) -> Option<PathBuf>;
}
