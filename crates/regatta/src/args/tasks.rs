//! What may be typed of tasks and claims.

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, AttemptId, ClaimId, TaskId};
use regatta_core::pattern::Uri;

use super::*;

#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// The task
    pub(crate) id: TaskId,
    /// The attempt that speaks
    #[arg(long, env = "REGATTA_ATTEMPT", hide_env = true)]
    pub(crate) attempt: AttemptId,
    /// Its token
    #[arg(long, env = "REGATTA_ATTEMPT_TOKEN", hide_env = true)]
    pub(crate) token: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskWord {
    /// Add a task
    Add(Box<TaskAdd>),
    /// List tasks
    List {
        /// Ended ones too
        #[arg(long)]
        all: bool,
        /// Only these: pending,in_progress
        #[arg(long, value_delimiter = ',')]
        status: Vec<String>,
        /// Only this mission's
        #[arg(long)]
        mission: Option<String>,
        /// At most that many
        #[arg(long, default_value_t = 0)]
        limit: usize,
    },
    /// Show one
    Show { id: String },
    /// Change one
    Set(Box<TaskEdit>),
    /// Give one to an agent
    Assign(Assign),
    /// Take an offered task
    Accept {
        id: TaskId,
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Decline an offered task
    Reject {
        id: TaskId,
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Cancel one
    Cancel {
        id: TaskId,
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Take the next ready task
    Poll {
        /// In whose name
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
        /// Wait that long for one
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// How long the attempt may be silent
        #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
        lease: Option<u64>,
        /// Without a workspace, where only a report is asked for
        #[arg(long)]
        no_workspace: bool,
        /// Do the work yourself, in the name of an agent that Regatta runs
        #[arg(long)]
        by_hand: bool,
    },
    /// Say what an attempt is doing
    Progress {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// One line
        text: Option<String>,
    },
    /// Say that an attempt is done
    Finish {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// What came of it
        #[arg(long)]
        output: Option<String>,
        /// Say that nothing has to be changed
        #[arg(long)]
        not_needed: bool,
        /// A fact that helps later tasks of the project; repeat it for more
        #[arg(long = "learned", value_name = "TEXT")]
        learnings: Vec<String>,
    },
    /// Say that an attempt gave up
    Fail {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Why
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Add tasks from a plan file or a JSON list
    Import {
        /// The file; with --beads, lines of JSON such as .beads/issues.jsonl
        file: PathBuf,
        /// Read issues of beads: what changed is updated, what is new is added
        #[arg(long)]
        beads: bool,
    },
    /// Print all tasks as a plan file
    Export {
        /// Ended ones too
        #[arg(long)]
        all: bool,
        /// Write issues of beads
        #[arg(long)]
        beads: bool,
        /// Bring this file of beads up to date instead of printing: fields that are not ours stay as they are
        #[arg(requires = "beads")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClaimWord {
    /// Acquire all of the URIs, or none
    Acquire {
        #[arg(required = true)]
        uris: Vec<Uri>,
        /// In whose name
        #[arg(long = "as", value_name = "NAME", env = "REGATTA_AGENT", hide_env = true)]
        agent: AgentName,
        /// How long it lives without renewal
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "60s")]
        ttl: u64,
        /// Let others share it
        #[arg(long)]
        shared: bool,
        /// Stand in line that long
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// What it is for
        #[arg(short = 'm', long, default_value = "")]
        memo: String,
    },
    /// Prolong one by its TTL
    Renew {
        claim: ClaimId,
        #[arg(long)]
        token: u64,
    },
    /// End one
    Release {
        claim: ClaimId,
        #[arg(long)]
        token: u64,
    },
    /// List who holds what, and who waits
    List,
    /// Say whether URIs are free
    Check {
        #[arg(required = true)]
        uris: Vec<Uri>,
    },
}
