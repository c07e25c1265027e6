//! What may be typed of messages, hooks and names.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_core::ids::{AgentName, ChannelName, FiringId, HookId, Label, MessageId};
use regatta_core::pattern::Uri;

use super::*;

/// Reads a channel's name; `#dev` and `dev` are the same.
fn channel(text: &str) -> Result<ChannelName, regatta_core::ids::BadName> {
    ChannelName::new(text.strip_prefix('#').unwrap_or(text))
}

/// Reads a moment: a date, or how long ago.
fn moment(text: &str) -> Result<u64, String> {
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    if let Ok(ago) = duration_ms(text) {
        return Ok(now.saturating_sub(ago));
    }
    let date = text.parse::<jiff::Timestamp>().ok().map(|it| it.as_millisecond());
    date.and_then(|it| u64::try_from(it).ok())
        .ok_or_else(|| "write how long ago (10m, 2h, 1d) or a date (2026-07-28T10:00:00Z)".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Filter {
    #[arg(value_parser = channel)]
    pub(crate) channel: Option<ChannelName>,
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<Label>,
    /// Only this sender's: an agent, person:NAME or regatta:
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// Only messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Only answers to this message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) reply_to: Option<MessageId>,
    /// Only the thread that this message is in
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) thread: Option<MessageId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MsgWord {
    /// Post a message; @NAME as the channel sends it to one agent alone
    Send {
        #[arg(value_parser = channel)]
        channel: ChannelName,
        text: String,
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// In whose name; yours if not given
        #[arg(long = "as", value_name = "NAME", env = "REGATTA_AGENT", hide_env = true)]
        agent: Option<AgentName>,
        /// Answer this message, in its thread
        #[arg(long, value_name = "MESSAGE")]
        reply_to: Option<MessageId>,
        /// Send a file along: at most 10, of 4 MiB each
        #[arg(short = 'a', long = "attach", value_name = "FILE")]
        attach: Vec<PathBuf>,
    },
    /// List messages, oldest first
    History {
        #[command(flatten)]
        filter: Filter,
        /// Only texts with these words; \"in quotes\", in a row
        #[arg(short = 's', long, value_name = "WORDS")]
        search: Option<String>,
        /// Only since then: 10m ago, or a date
        #[arg(long, value_name = "WHEN", value_parser = moment)]
        since: Option<u64>,
        /// Only until then
        #[arg(long, value_name = "WHEN", value_parser = moment)]
        until: Option<u64>,
        /// Only messages after this one, oldest first
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
        /// Only messages before this one
        #[arg(long, value_name = "MESSAGE")]
        before: Option<MessageId>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Wait for a message; --timeout says how long (exit 124)
    Wait {
        #[command(flatten)]
        filter: Filter,
        /// Count messages after this one, not only new ones
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print messages as they come, until interrupted
    Watch {
        #[command(flatten)]
        filter: Filter,
        /// Begin after this one, not with the next
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
    /// Count what an agent has not read, by channel
    Inbox {
        #[arg(value_name = "AGENT", env = "REGATTA_AGENT", hide_env = true)]
        agent: AgentName,
    },
    /// Print a file that came with a message, or save it
    Attachment {
        message: MessageId,
        /// Which one; the first is 0
        #[arg(default_value_t = 0)]
        nth: usize,
        /// Write it to this file
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HookWord {
    /// Add a hook: what it waits for, what must hold, and behind -- the command
    Add(Box<HookAdd>),
    /// List hooks
    List,
    /// Say whether a message fires a hook, and why not
    Test {
        id: HookId,
        /// A message that is there
        #[arg(long, value_name = "MESSAGE", conflicts_with = "text", required_unless_present = "text")]
        message: Option<MessageId>,
        /// One that is only thought of
        #[arg(long)]
        text: Option<String>,
        /// Where it would be posted
        #[arg(long, value_parser = channel)]
        channel: Option<ChannelName>,
        #[arg(short = 'L', long = "label", value_name = "LABEL")]
        labels: Vec<Label>,
        /// Which agent would post it; you if not given
        #[arg(long, value_name = "NAME")]
        from: Option<AgentName>,
    },
    /// Let a hook rest
    Pause {
        id: HookId,
        /// Why
        #[arg(long, default_value = "")]
        because: String,
    },
    /// Let a hook fire again
    Resume { id: HookId },
    /// Take a hook away
    Rm { id: HookId },
    /// List when hooks fired, why, how it ended and what was printed
    Log {
        id: Option<HookId>,
        /// Only before this one
        #[arg(long, value_name = "FIRING")]
        before: Option<FiringId>,
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HookAdd {
    /// Fire on messages of this channel
    #[arg(long, value_parser = channel)]
    pub(crate) channel: Option<ChannelName>,
    /// Fire on messages with this label
    #[arg(short = 'L', long)]
    pub(crate) label: Option<Label>,
    /// Fire on messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Fire on messages that begin so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Fire on events of this kind, such as task.completed
    #[arg(long, value_name = "KIND", conflicts_with_all = ["channel", "label", "mention", "prefix", "on_free"])]
    pub(crate) event: Option<String>,
    /// Fire when nobody holds this any more
    #[arg(long, value_name = "URI", conflicts_with_all = ["channel", "label", "mention", "prefix"])]
    pub(crate) on_free: Option<Uri>,
    /// Only if this is free; it is held until the command ends
    #[arg(long, value_name = "URI")]
    pub(crate) claim: Option<Uri>,
    /// Hold it no longer than this
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, requires = "claim")]
    pub(crate) ttl: Option<u64>,
    /// Not again within this time
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    pub(crate) cooldown: Option<u64>,
    /// Which of several comes first: 0 to 9, lower is first
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u8>,
    /// Only if the message has this label
    #[arg(long, value_name = "LABEL")]
    pub(crate) require_label: Option<Label>,
    /// As whom it acts: what that agent says does not fire it
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// Where the command runs; here if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// How long the command may take
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10m")]
    pub(crate) max_time: u64,
    /// How far the command is shut in: strict, workspace or off
    #[arg(long, value_name = "LEVEL", default_value = "off", value_parser = level)]
    pub(crate) sandbox: regatta_core::agent::Level,
    /// Give the messages to the built-in router instead of a command
    #[arg(long, conflicts_with = "command")]
    pub(crate) route: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "route")]
    pub(crate) command: Vec<String>,
}

fn level(text: &str) -> Result<regatta_core::agent::Level, String> {
    use regatta_core::agent::Level;
    match text {
        "strict" => Ok(Level::Strict),
        "workspace" => Ok(Level::Workspace),
        "off" => Ok(Level::Off),
        _ => Err("write strict, workspace or off".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// How many
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: Option<u16>,
    /// How they begin, such as shop-dev/
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}
