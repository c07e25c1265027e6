//! What may be typed of tasks, claims and messages.

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, AttemptId, ChannelName, ClaimId, Label, MessageId, TaskId};
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

#[derive(Debug, Subcommand)]
pub(crate) enum MsgWord {
    /// Post a message
    Send {
        #[arg(value_parser = channel)]
        channel: ChannelName,
        text: String,
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// In whose name; yours if not given
        #[arg(long = "as", value_name = "NAME", env = "REGATTA_AGENT", hide_env = true)]
        agent: Option<AgentName>,
        /// Answer this message
        #[arg(long, value_name = "MESSAGE")]
        reply_to: Option<MessageId>,
    },
    /// List messages, oldest first
    History {
        #[arg(value_parser = channel)]
        channel: ChannelName,
        #[arg(short = 'L', long, value_name = "LABEL")]
        label: Option<Label>,
        /// Only this sender's
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// Only messages after this one
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Wait for a message
    Wait {
        #[arg(value_parser = channel)]
        channel: ChannelName,
        #[arg(short = 'L', long, value_name = "LABEL")]
        label: Option<Label>,
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// Only messages that mention this agent
        #[arg(long, value_name = "NAME")]
        mention: Option<AgentName>,
        /// Count messages after this one, not only new ones
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print an agent's unread messages and mark them read
    Read {
        #[arg(value_parser = channel)]
        channel: ChannelName,
        #[arg(long = "as", value_name = "NAME", env = "REGATTA_AGENT", hide_env = true)]
        agent: AgentName,
        /// Leave them unread
        #[arg(long)]
        keep_unread: bool,
    },
}

/// Reads a channel's name; `#dev` and `dev` are the same.
fn channel(text: &str) -> Result<ChannelName, regatta_core::ids::BadName> {
    ChannelName::new(text.strip_prefix('#').unwrap_or(text))
}
