//! The arguments of `task` and `claim`.

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, AttemptId, ClaimId, TaskId};
use regatta_core::pattern::Uri;

use super::*;

#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// Task of the attempt
    pub(crate) id: TaskId,
    /// Attempt that reports
    #[arg(long, env = "REGATTA_ATTEMPT", hide_env = true)]
    pub(crate) attempt: AttemptId,
    /// Fencing token of the attempt
    #[arg(long, env = "REGATTA_ATTEMPT_TOKEN", hide_env = true)]
    pub(crate) token: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Add a task
    Add(Box<TaskAddArgs>),
    /// List tasks
    List {
        /// Include ended tasks
        #[arg(long)]
        all: bool,
        /// Only tasks with these statuses: pending,in_progress
        #[arg(long, value_delimiter = ',')]
        status: Vec<String>,
        /// Only tasks of this mission
        #[arg(long)]
        mission: Option<String>,
        /// Maximum number of tasks; 0 lists all
        #[arg(long, default_value_t = 0)]
        limit: usize,
    },
    /// Show a task
    Show {
        /// Task to show
        id: String,
    },
    /// Change a task
    Set(Box<TaskEditArgs>),
    /// Assign a task to an agent
    Assign(AssignArgs),
    /// Take an offered task
    Accept {
        /// Task to accept
        id: TaskId,
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Decline an offered task
    Reject {
        /// Task to decline
        id: TaskId,
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Cancel a task
    Cancel {
        /// Task to cancel
        id: TaskId,
        /// Reason to show to others
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Take the next ready task
    Poll {
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
        /// Wait up to this long for a task
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// End the attempt if it reports nothing for this long
        #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
        lease: Option<u64>,
        /// Start without a workspace if the task asks only for a report
        #[arg(long)]
        no_workspace: bool,
        /// Do the work by hand, in the name of an agent that Regatta runs
        #[arg(long)]
        by_hand: bool,
    },
    /// Report what an attempt is doing
    Progress {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// One line of progress
        text: Option<String>,
    },
    /// Finish an attempt
    Finish {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Summary of the result
        #[arg(long)]
        output: Option<String>,
        /// Report that no change is needed
        #[arg(long)]
        not_needed: bool,
        /// Fact that helps later tasks of the project; may be repeated
        #[arg(long = "learned", value_name = "TEXT")]
        learnings: Vec<String>,
    },
    /// Give up an attempt
    Fail {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Why the attempt failed
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Add tasks from a plan file or a JSON list
    Import {
        /// File to read; with --beads, lines of JSON such as .beads/issues.jsonl
        file: PathBuf,
        /// Read beads issues: update changed tasks and add new ones
        #[arg(long)]
        beads: bool,
    },
    /// Print all tasks as a plan file
    Export {
        /// Include ended tasks
        #[arg(long)]
        all: bool,
        /// Write beads issues
        #[arg(long)]
        beads: bool,
        /// Update this beads file instead of printing; fields that Regatta does not know are kept
        #[arg(requires = "beads")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClaimCommand {
    /// Acquire a claim on one or more URIs (all of them or none)
    Acquire {
        /// URIs to claim; file:// and workspace:// accept *, ? and **
        #[arg(required = true)]
        uris: Vec<Uri>,
        /// Agent to act as
        #[arg(
            long = "as",
            value_name = "NAME",
            env = "REGATTA_AGENT",
            hide_env = true
        )]
        agent: AgentName,
        /// Lifetime without renewal
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "60s")]
        ttl: u64,
        /// Allow other shared claims on the same URIs
        #[arg(long)]
        shared: bool,
        /// Wait up to this long if a URI is claimed
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// Note about the purpose of the claim
        #[arg(short = 'm', long, default_value = "")]
        memo: String,
    },
    /// Renew a claim for another TTL
    Renew {
        /// Claim to renew, such as C7
        claim: ClaimId,
        /// Fencing token of the claim
        #[arg(long)]
        token: u64,
    },
    /// Release a claim
    Release {
        /// Claim to release, such as C7
        claim: ClaimId,
        /// Fencing token of the claim
        #[arg(long)]
        token: u64,
    },
    /// List claims with their holders, and waiting requests
    List,
    /// Check whether URIs are free
    Check {
        /// URIs to check
        #[arg(required = true)]
        uris: Vec<Uri>,
    },
}
