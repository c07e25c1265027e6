//! The command `msg`, which sends, lists, waits for and reads messages.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regatta_api::view::{AttachmentView, MessageView, UnreadView};
use regatta_api::{call, input};
use regatta_core::ids::{AgentName, ChannelName, Label, MessageId};

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, command_error, format_table, internal_error, sanitize,
};
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "msg send",
        &[
            "regatta msg send shop 'the schema has changed' -L news",
            "regatta msg send @claude-1 'please rebase'",
        ],
    ),
    (
        "msg history",
        &[
            "regatta msg history shop --since 2h",
            "regatta msg history --search 'schema'",
        ],
    ),
    (
        "msg wait",
        &["regatta msg wait shop -L coord:merge --timeout 10m"],
    ),
    ("msg watch", &["regatta msg watch shop"]),
    ("msg read", &["regatta msg read shop --as ann"]),
    ("msg inbox", &["regatta msg inbox ann"]),
    (
        "msg attachment",
        &["regatta msg attachment B7 --out shot.png"],
    ),
];

#[derive(Debug, Subcommand)]
pub(crate) enum MsgCommand {
    /// Post a message; the channel @NAME is the mailbox of one agent
    Send {
        /// Channel to post to, such as shop, or @NAME for one agent
        #[arg(value_parser = parse_channel)]
        channel: ChannelName,
        /// Text of the message
        text: String,
        /// Label of the message, such as coord:merge; may be repeated
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
        /// Message to reply to, such as B7
        #[arg(long, value_name = "MESSAGE")]
        reply_to: Option<MessageId>,
        /// File to attach, at most 4 MiB; may be repeated up to 10 times
        #[arg(short = 'a', long = "attach", value_name = "FILE")]
        attach: Vec<PathBuf>,
    },
    /// List messages, oldest first
    History {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// List only messages that contain these words; put a phrase in "quotes"
        #[arg(short = 's', long, value_name = "TEXT")]
        search: Option<String>,
        /// List only messages that were sent after this time: 10m (ten minutes ago), or a date such
        /// as 2026-07-28T10:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = parse_time)]
        since: Option<u64>,
        /// List only messages that were sent before this time: 10m (ten minutes ago), or a date
        /// such as 2026-07-28T10:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = parse_time)]
        until: Option<u64>,
        /// List only messages after this message, such as B7, the oldest first
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
        /// List only messages before this message, such as B7
        #[arg(long, value_name = "MESSAGE")]
        before: Option<MessageId>,
        /// Maximum number of messages to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Wait for one message and print the message; --timeout limits the wait (exit code 124)
    Wait {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// Message after which to start, such as B7 (default: wait for a new message)
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print messages as they arrive, until interrupted
    Watch {
        #[command(flatten)]
        filter: MessageFilterArgs,
        /// Message after which to start, such as B7 (default: start with the next new message)
        #[arg(long, value_name = "MESSAGE")]
        after: Option<MessageId>,
    },
    /// Print an agent's unread messages and mark them as read
    Read {
        /// Channel to read, such as shop
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
        /// Agent whose unread messages to count
        #[arg(value_name = "AGENT", env = "REGATTA_AGENT", hide_env = true)]
        agent: AgentName,
    },
    /// Print or save an attachment of a message
    Attachment {
        /// Message that has the attachment, such as B7
        message: MessageId,
        /// Number of the attachment; the first is 0
        #[arg(default_value_t = 0)]
        nth: usize,
        /// File to write the attachment to (default: print the attachment)
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

impl MsgCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            MsgCommand::History { .. } | MsgCommand::Watch { .. } | MsgCommand::Attachment { .. }
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct MessageFilterArgs {
    /// Select only messages of this channel, such as shop
    #[arg(value_parser = parse_channel)]
    pub(crate) channel: Option<ChannelName>,
    /// Select only messages with this label, such as coord:merge
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<Label>,
    /// Select only messages of this sender: an agent's name, person:NAME, or regatta: for Regatta
    /// itself
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// Select only messages that mention this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) mention: Option<AgentName>,
    /// Select only replies to this message, such as B7
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) reply_to: Option<MessageId>,
    /// Select only messages in the thread (the replies and their replies) of this message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) thread: Option<MessageId>,
}

/// Parses a channel's name; `#dev` and `dev` are the same channel.
pub(crate) fn parse_channel(text: &str) -> Result<ChannelName, regatta_core::ids::BadName> {
    ChannelName::new(text.strip_prefix('#').unwrap_or(text))
}

/// Parses a time: a date such as `2026-07-28T10:00:00Z`, or a duration before now such as `10m`.
/// Returns Unix milliseconds.
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

/// The time that one API call of `msg watch` waits for a message, in milliseconds. After that time
/// `msg watch` calls again.
const WATCH_TIMEOUT_MS: u64 = 60_000;

/// Runs `regatta msg`.
pub(crate) fn msg(app: &CommandContext, command: MsgCommand) -> CommandResult {
    match command {
        MsgCommand::Send {
            channel,
            text,
            labels,
            agent,
            reply_to,
            attach,
        } => {
            let attach = attach
                .into_iter()
                .map(|path| absolute_path(app, path))
                .collect::<Result<_, CommandError>>()?;
            let reply: CallReply<MessageView> = app.call(call::MsgSend(input::MsgSend {
                channel,
                text,
                labels,
                agent,
                reply_to,
                attach,
            }))?;
            app.output.print_answer("msg.send", &reply.data, &[], |_| {
                draw_messages(std::slice::from_ref(&reply.data))
            })
        }
        MsgCommand::History {
            filter,
            search,
            since,
            until,
            after,
            before,
            limit,
        } => {
            let request = input::MsgHistory {
                search,
                since,
                until,
                after,
                before,
                limit: Some(limit),
                ..history_request(filter)
            };
            let reply: CallReply<Vec<MessageView>> = app.call(call::MsgHistory(request))?;
            app.output
                .print_answer("msg.history", &reply.data, &[], |_| {
                    draw_messages(&reply.data)
                })
        }
        MsgCommand::Wait { filter, after } => {
            let timeout_ms = app.global.timeout.unwrap_or(30_000);
            let reply: CallReply<MessageView> =
                client_without_timeout(app)?.call(wait_call(&filter, after, timeout_ms))?;
            app.output.print_answer("msg.wait", &reply.data, &[], |_| {
                draw_messages(std::slice::from_ref(&reply.data))
            })
        }
        MsgCommand::Watch { filter, after } => watch_messages(app, filter, after),
        MsgCommand::Read {
            channel,
            agent,
            keep_unread,
        } => {
            let reply: CallReply<Vec<MessageView>> = app.call(call::MsgRead(input::MsgRead {
                agent,
                channel,
                keep_unread,
            }))?;
            app.output
                .print_answer("msg.read", &reply.data, &[], |_| draw_messages(&reply.data))
        }
        MsgCommand::Inbox { agent } => {
            let next = format!("regatta msg read CHANNEL --as {agent}");
            let reply: CallReply<Vec<UnreadView>> =
                app.call(call::MsgInbox(input::MsgInbox { agent }))?;
            app.output
                .print_answer("msg.inbox", &reply.data, &[next], |_| {
                    let row = |unread: &UnreadView| {
                        let mentions = if unread.mentions > 0 {
                            format!("{} mention you", unread.mentions)
                        } else {
                            String::new()
                        };
                        vec![
                            unread.channel.to_string(),
                            format!("{} unread", unread.unread),
                            mentions,
                        ]
                    };
                    format_table(&reply.data.iter().map(row).collect::<Vec<_>>())
                })
        }
        MsgCommand::Attachment { message, nth, out } => save_attachment(app, message, nth, out),
    }
}

/// Connects without a timeout in this client, because the daemon ends the call after the waiting
/// time that the call contains.
fn client_without_timeout(app: &CommandContext) -> Result<Client, CommandError> {
    Client::connect(
        &app.data_dir()?,
        app.global.server.clone(),
        None,
        Some(&app.output),
    )
}

/// Returns the absolute path of a file to attach. If an agent in a sandbox runs this command, the
/// daemon translates the path to the agent's workspace.
fn absolute_path(app: &CommandContext, path: PathBuf) -> Result<String, CommandError> {
    let path = app.working_dir()?.join(path);
    let absolute = path.canonicalize().map_err(|error| {
        command_error(
            "bad_attachment",
            format!("cannot attach {}: {error}", path.display()),
            "name an existing file",
        )
    })?;
    Ok(absolute.to_string_lossy().into_owned())
}

fn history_request(filter: MessageFilterArgs) -> input::MsgHistory {
    input::MsgHistory {
        channel: filter.channel,
        label: filter.label,
        from: filter.from,
        mention: filter.mention,
        reply_to: filter.reply_to,
        thread: filter.thread,
        ..input::MsgHistory::default()
    }
}

fn wait_call(
    filter: &MessageFilterArgs,
    after: Option<MessageId>,
    timeout_ms: u64,
) -> call::MsgWait {
    call::MsgWait(input::MsgWait {
        channel: filter.channel.clone(),
        label: filter.label.clone(),
        from: filter.from.clone(),
        mention: filter.mention.clone(),
        reply_to: filter.reply_to,
        thread: filter.thread,
        after,
        timeout_ms,
    })
}

/// Prints messages as they arrive. Each call asks for messages after the last printed message, so
/// no message is printed twice.
fn watch_messages(
    app: &CommandContext,
    filter: MessageFilterArgs,
    after: Option<MessageId>,
) -> CommandResult {
    let client = client_without_timeout(app)?;
    let mut after = match after {
        Some(after) => after,
        // Start after the newest message that exists now, so that no message between now and the
        // first call is missed.
        None => {
            let newest = input::MsgHistory {
                limit: Some(1),
                ..input::MsgHistory::default()
            };
            let reply: CallReply<Vec<MessageView>> = client.call(call::MsgHistory(newest))?;
            reply.data.last().map_or(MessageId(0), |message| message.id)
        }
    };
    loop {
        let message: CallReply<MessageView> =
            match client.call(wait_call(&filter, Some(after), WATCH_TIMEOUT_MS)) {
                Ok(message) => message,
                Err(CommandError::Problem(problem)) if problem.code == "timed_out" => continue,
                Err(error) => return Err(error),
            };
        after = message.data.id;
        let text = if app.output.is_json {
            let text = serde_json::to_string(&message.data);
            text.map_err(|error| {
                internal_error(format!("could not encode message {after} as JSON: {error}"))
            })? + "\n"
        } else {
            draw_messages(std::slice::from_ref(&message.data))
        };
        app.output.print(&text)?;
    }
}

/// Runs `regatta msg attachment`.
fn save_attachment(
    app: &CommandContext,
    message: MessageId,
    nth: usize,
    out: Option<PathBuf>,
) -> CommandResult {
    let reply: CallReply<AttachmentView> =
        app.call(call::MsgAttachment(input::MsgAttachment { message, nth }))?;
    let attachment = &reply.data;
    let Some(path) = out else {
        return app
            .output
            .print_answer("msg.attachment", attachment, &[], |_| {
                match &attachment.text {
                    Some(text) => text.clone(),
                    None => format!(
                        "{} is not text; save it with -o FILE\n",
                        sanitize(&attachment.name)
                    ),
                }
            });
    };
    let bytes = match (&attachment.text, &attachment.hex) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(hex)) => from_hex(hex).ok_or_else(|| {
            internal_error(format!(
                "the daemon sent attachment {nth} of {message} in an invalid encoding"
            ))
        })?,
        (None, None) => vec![],
    };
    let path = app.working_dir()?.join(path);
    std::fs::write(&path, bytes).map_err(|error| {
        command_error(
            "io",
            format!(
                "could not write the attachment to {}: {error}",
                path.display()
            ),
            "name a file that you can write with --out",
        )
    })?;
    let result =
        serde_json::json!({ "file": path, "bytes": attachment.bytes, "sha256": attachment.sha256 });
    app.output
        .print_answer("msg.attachment", &result, &[], |_| {
            format!("wrote {} bytes to {}\n", attachment.bytes, path.display())
        })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(*pair.get(1)?)?).ok())
        .collect()
}

/// Formats messages for the terminal, with their labels and the names of their attachments.
fn draw_messages(messages: &[MessageView]) -> String {
    messages
        .iter()
        .map(|message| {
            let labels: String = message
                .labels
                .iter()
                .map(|label| format!(" [{label}]"))
                .collect();
            let sender = message.sender.to_string();
            let sender = sender.trim_start_matches("person:").trim_end_matches(':');
            let answers = message
                .reply_to
                .map(|id| format!(" to {id}"))
                .unwrap_or_default();
            let file = |(nth, file): (usize, &regatta_core::bus::Attachment)| {
                format!(
                    "    {nth} {} ({} bytes)\n",
                    sanitize(&file.name),
                    file.bytes
                )
            };
            let files: String = message.attachments.iter().enumerate().map(file).collect();
            format!(
                "{} {} {}{answers}{labels}: {}\n{files}",
                message.id,
                message.channel,
                sender,
                sanitize(&message.text)
            )
        })
        .collect()
}
