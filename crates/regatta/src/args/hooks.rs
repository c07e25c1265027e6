//! The arguments of `message`, `hook` and `name`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, ChannelName, FiringId, HookId, Label, MessageId};
use regatta_core::pattern::Uri;

use super::*;

/// Parses a channel's name; `#dev` and `dev` are the same channel.
fn parse_channel(text: &str) -> Result<ChannelName, regatta_core::ids::BadName> {
    ChannelName::new(text.strip_prefix('#').unwrap_or(text))
}

/// Parses a time: a date, or a duration before now. Returns Unix milliseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    if let Ok(ago) = duration_ms(text) {
        return Ok(now.saturating_sub(ago));
    }
    let date = text
        .parse::<jiff::Timestamp>()
        .ok()
        .map(|time| time.as_millisecond());
    date.and_then(|date| u64::try_from(date).ok())
        .ok_or_else(|| {
            "write a duration before now (10m, 2h, 1d) or a date (2026-07-28T10:00:00Z)".to_owned()
        })
}

#[derive(Debug, Args)]
pub(crate) struct MessageFilterArgs {
    /// Only messages of this channel
    #[arg(value_parser = parse_channel)]
    pub(crate) channel: Option<ChannelName>,
    /// Only messages with this label
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<Label>,
    /// Only messages of this sender: an agent, person:NAME or regatta:
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// Only messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Only replies to this message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) reply_to: Option<MessageId>,
    /// Only messages in the thread of this message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) thread: Option<MessageId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MsgCommand {
    /// Post a message; the channel @NAME is the mailbox of one agent
    Send {
        /// Channel to post to, or @NAME for one agent
        #[arg(value_parser = parse_channel)]
        channel: ChannelName,
        /// Text of the message
        text: String,
        /// Label of the message; may be repeated
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// Agent to act as (default: you)
        #[arg(
            long = "as",
            value_name = "NAME",
            env = "REGATTA_AGENT",
            hide_env = true
        )]
        agent: Option<AgentName>,
        /// Reply to this message, in its thread
        #[arg(long, value_name = "MESSAGE")]
        reply_to: Option<MessageId>,
        /// Attach a file of at most 4 MiB; may be repeated up to 10 times
        #[arg(short = 'a', long = "attach", value_name = "FILE")]
        attach: Vec<PathBuf>,
    },
    /// List messages, oldest first
    History {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// Only messages that contain these words; put a phrase in "quotes"
        #[arg(short = 's', long, value_name = "TEXT")]
        search: Option<String>,
        /// Only messages since this time: 10m (ago), or a date
        #[arg(long, value_name = "WHEN", value_parser = parse_time)]
        since: Option<u64>,
        /// Only messages until this time: 10m (ago), or a date
        #[arg(long, value_name = "WHEN", value_parser = parse_time)]
        until: Option<u64>,
        /// Only messages after this one, oldest first
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
        /// Only messages before this one
        #[arg(long, value_name = "MESSAGE")]
        before: Option<MessageId>,
        /// Maximum number of messages
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Wait for a message; --timeout limits the wait (exit code 124)
    Wait {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// Accept any message after this one, not only a new one
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print messages as they arrive, until interrupted
    Watch {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// Start after this message instead of with the next new one
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print an agent's unread messages and mark them as read
    Read {
        /// Channel to read
        #[arg(value_parser = parse_channel)]
        channel: ChannelName,
        /// Agent to act as
        #[arg(
            long = "as",
            value_name = "NAME",
            env = "REGATTA_AGENT",
            hide_env = true
        )]
        agent: AgentName,
        /// Do not mark the messages as read
        #[arg(long)]
        keep_unread: bool,
    },
    /// Count an agent's unread messages by channel
    Inbox {
        /// Agent whose messages to count
        #[arg(value_name = "AGENT", env = "REGATTA_AGENT", hide_env = true)]
        agent: AgentName,
    },
    /// Print or save an attachment of a message
    Attachment {
        /// Message with the attachment, such as B7
        message: MessageId,
        /// Index of the attachment; the first is 0
        #[arg(default_value_t = 0)]
        nth: usize,
        /// Write the attachment to this file
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Add a hook: when it fires, under which conditions, and after -- the command to run
    Add(Box<HookAddArgs>),
    /// List hooks
    List,
    /// Check whether a message would fire a hook, and why not
    Test {
        /// Hook to test, such as H2
        id: HookId,
        /// Test with a message that exists
        #[arg(
            long,
            value_name = "MESSAGE",
            conflicts_with = "text",
            required_unless_present = "text"
        )]
        message: Option<MessageId>,
        /// Test with this text, without posting it
        #[arg(long)]
        text: Option<String>,
        /// Channel of the tested text
        #[arg(long, value_parser = parse_channel)]
        channel: Option<ChannelName>,
        /// Label of the tested text; may be repeated
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// Agent that would post the text (default: you)
        #[arg(long, value_name = "NAME")]
        from: Option<AgentName>,
    },
    /// Pause a hook
    Pause {
        /// Hook to pause, such as H2
        id: HookId,
        /// Reason to show to others
        #[arg(long, value_name = "REASON", default_value = "")]
        because: String,
    },
    /// Resume a paused hook
    Resume {
        /// Hook to resume, such as H2
        id: HookId,
    },
    /// Remove a hook
    Rm {
        /// Hook to remove, such as H2
        id: HookId,
    },
    /// List the firings of hooks: time, cause, outcome and output
    Log {
        /// Only firings of this hook
        id: Option<HookId>,
        /// Only firings before this one
        #[arg(long, value_name = "FIRING")]
        before: Option<FiringId>,
        /// Maximum number of firings
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HookAddArgs {
    /// Fire on messages of this channel
    #[arg(long, value_parser = parse_channel)]
    pub(crate) channel: Option<ChannelName>,
    /// Fire on messages with this label
    #[arg(short = 'L', long)]
    pub(crate) label: Option<Label>,
    /// Fire on messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Fire on messages that start with this text
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Fire on events of this kind, such as task.completed
    #[arg(long, value_name = "KIND", conflicts_with_all = ["channel", "label", "mention", "prefix", "on_free"])]
    pub(crate) event: Option<String>,
    /// Fire when the last claim on this URI ends
    #[arg(long, value_name = "URI", conflicts_with_all = ["channel", "label", "mention", "prefix"])]
    pub(crate) on_free: Option<Uri>,
    /// Claim this URI while the command runs; do not fire if it is already claimed
    #[arg(long, value_name = "URI")]
    pub(crate) claim: Option<Uri>,
    /// Release that claim after this time at the latest
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, requires = "claim")]
    pub(crate) ttl: Option<u64>,
    /// Do not fire again within this time
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    pub(crate) cooldown: Option<u64>,
    /// Order among matching hooks, 0 to 9; lower runs first
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u8>,
    /// Fire only if the message has this label
    #[arg(long, value_name = "LABEL")]
    pub(crate) require_label: Option<Label>,
    /// Agent to act as; messages of that agent do not fire the hook
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Directory in which the command runs (default: the current one)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Time limit of the command
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10m")]
    pub(crate) max_time: u64,
    /// Sandbox level of the command: strict, workspace or off
    #[arg(long, value_name = "LEVEL", default_value = "off", value_parser = parse_sandbox_level)]
    pub(crate) sandbox: regatta_core::agent::SandboxLevel,
    /// Pass the messages to the built-in router instead of running a command
    #[arg(long, conflicts_with = "command")]
    pub(crate) route: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required_unless_present = "route")]
    pub(crate) command: Vec<String>,
}

fn parse_sandbox_level(text: &str) -> Result<regatta_core::agent::SandboxLevel, String> {
    use regatta_core::agent::SandboxLevel;
    match text {
        "strict" => Ok(SandboxLevel::Strict),
        "workspace" => Ok(SandboxLevel::Workspace),
        "off" => Ok(SandboxLevel::Off),
        _ => Err("write strict, workspace or off".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Number of names
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: Option<u16>,
    /// Text at the start of each name, such as shop-dev/
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}
