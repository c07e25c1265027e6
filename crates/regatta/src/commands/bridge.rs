//! The command `bridge`, which manages the bridges that connect agents to Slack, GitHub, Linear and
//! Telegram, and the conversations on them.

use clap::{Subcommand, ValueEnum};
use regatta_api::verb::TypedCall;
use regatta_api::view::{BridgeView, ConversationLineView};
use regatta_api::{call, input};
use regatta_core::conversation::{Conversation, PostContent, Service};
use regatta_core::ids::{AgentName, ConversationId};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandResult, command_error, first_line, format_age, format_table, format_table_for,
    window_width,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("bridge list", &["regatta bridge list"]),
    ("bridge test", &["regatta bridge test claude"]),
    (
        "bridge pause",
        &["regatta bridge pause claude --service slack"],
    ),
    ("bridge resume", &["regatta bridge resume claude"]),
    (
        "bridge conversations",
        &["regatta bridge conversations --all"],
    ),
    ("bridge show", &["regatta bridge show V3"]),
    ("bridge accept", &["regatta bridge accept V3"]),
    ("bridge refuse", &["regatta bridge refuse V3"]),
    ("bridge stop", &["regatta bridge stop V3"]),
    ("bridge close", &["regatta bridge close V3"]),
];

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ServiceArg {
    Slack,
    Github,
    Linear,
    Telegram,
}

impl From<ServiceArg> for Service {
    fn from(service_arg: ServiceArg) -> Service {
        match service_arg {
            ServiceArg::Slack => Service::Slack,
            ServiceArg::Github => Service::Github,
            ServiceArg::Linear => Service::Linear,
            ServiceArg::Telegram => Service::Telegram,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// List each agent's bridges (connections to Slack, GitHub or Linear) and why a bridge is off
    List,
    /// Check that every bridge is connected to its service; fail if any bridge is not connected
    Test {
        /// Agent whose bridges to check (default: all agents)
        agent: Option<AgentName>,
    },
    /// Pause an agent's bridges, so that they receive and send nothing
    Pause {
        /// Agent whose bridges to pause
        agent: AgentName,
        /// Service whose bridge to pause (default: all services)
        #[arg(long, value_enum)]
        service: Option<ServiceArg>,
    },
    /// Resume an agent's paused bridges
    Resume {
        /// Agent whose bridges to resume
        agent: AgentName,
        /// Service whose bridge to resume (default: all services)
        #[arg(long, value_enum)]
        service: Option<ServiceArg>,
    },
    /// List the conversations of agents with people in chat services and issue trackers
    Conversations {
        /// Include closed conversations
        #[arg(long)]
        all: bool,
    },
    /// Show a conversation: the requests of people, and the messages that the agent posted
    Show {
        /// Conversation to show, such as V3
        id: ConversationId,
    },
    /// Let the agent answer a person whom the bridge's settings do not list
    Accept {
        /// Conversation with the person's request, such as V3
        id: ConversationId,
    },
    /// Discard the waiting requests of a person whom the bridge's settings do not list
    Refuse {
        /// Conversation with the requests to discard, such as V3
        id: ConversationId,
    },
    /// Stop the agent's current work for a conversation
    Stop {
        /// Conversation to stop, such as V3
        id: ConversationId,
    },
    /// End a conversation permanently, so that the agent no longer answers in it
    Close {
        /// Conversation to close, such as V3
        id: ConversationId,
    },
}

impl BridgeCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            BridgeCommand::List | BridgeCommand::Conversations { .. } | BridgeCommand::Show { .. }
        )
    }
}

/// Runs `regatta bridge`.
pub(crate) fn bridge(app: &CommandContext, command: BridgeCommand) -> CommandResult {
    let pause = |agent, service: Option<ServiceArg>, paused| {
        let request = input::BridgePause {
            agent,
            service: service.map(Into::into),
            paused,
        };
        let reply: CallReply<Vec<BridgeView>> = app.call(call::BridgePause(request))?;
        app.output
            .print_answer("bridge.list", &reply.data, &[], |_| {
                draw_bridges(&reply.data)
            })
    };
    match command {
        BridgeCommand::List => {
            let all = fetch_bridges(app)?;
            let none = [
                "see docs/bridges.md and .env.example for the variables that enable a bridge, \
                    and regatta inbox"
                    .to_owned(),
            ];
            app.output.print_answer(
                "bridge.list",
                &all,
                if all.is_empty() { &none } else { &[] },
                |_| draw_bridges(&all),
            )
        }
        BridgeCommand::Test { agent } => test_bridges(app, agent.as_ref()),
        BridgeCommand::Pause { agent, service } => pause(agent, service, true),
        BridgeCommand::Resume { agent, service } => pause(agent, service, false),
        BridgeCommand::Conversations { all } => {
            let request = input::ConversationFilter { all, project: None };
            let reply: CallReply<Vec<ConversationLineView>> =
                app.call(call::ConversationList(request))?;
            app.output
                .print_answer("conversation.list", &reply.data, &[], |_| {
                    draw_conversations(&reply.data, window_width())
                })
        }
        BridgeCommand::Show { id } => show_conversation(
            app,
            call::ConversationShow(input::ConversationIdInput { conversation: id }),
        ),
        BridgeCommand::Accept { id } => show_conversation(
            app,
            call::ConversationAccept(input::ConversationIdInput { conversation: id }),
        ),
        BridgeCommand::Refuse { id } => show_conversation(
            app,
            call::ConversationRefuse(input::ConversationIdInput { conversation: id }),
        ),
        BridgeCommand::Stop { id } => show_conversation(
            app,
            call::ConversationStop(input::ConversationIdInput { conversation: id }),
        ),
        BridgeCommand::Close { id } => show_conversation(
            app,
            call::ConversationClose(input::ConversationIdInput { conversation: id }),
        ),
    }
}

fn fetch_bridges(app: &CommandContext) -> Result<Vec<BridgeView>, crate::output::CommandError> {
    let reply: CallReply<Vec<BridgeView>> = app.call(call::BridgeList(input::EmptyInput {}))?;
    Ok(reply.data)
}

/// Describes in a few words whether a bridge is off, paused, connected or failing.
pub(crate) fn bridge_state(bridge: &BridgeView) -> String {
    match bridge {
        bridge if bridge.off.is_some() => {
            format!("off: {}", bridge.off.as_deref().unwrap_or_default())
        }
        bridge if bridge.health.paused => "paused".into(),
        bridge => {
            let connection = match (&bridge.health.connected, &bridge.health.trouble) {
                (Some(since), None) => format!("connected since {}", format_age(*since)),
                (Some(_), Some(trouble)) => format!("connected; last problem: {trouble}"),
                (None, Some(trouble)) => format!("not connected: {trouble}"),
                (None, None) => "connecting".into(),
            };
            bridge
                .warning
                .as_ref()
                .map_or(connection.clone(), |warning| {
                    format!("{connection}; {warning}")
                })
        }
    }
}

/// Draws bridges as a table.
pub(crate) fn draw_bridges(all: &[BridgeView]) -> String {
    if all.is_empty() {
        return "no bridges\n".into();
    }
    let rows = all.iter().map(|bridge| {
        let known = bridge.health.known_as.clone().unwrap_or_default();
        let counts = format!("{} in, {} out", bridge.health.taken, bridge.health.sent);
        let dead = if bridge.dead > 0 {
            format!(", {} dead", bridge.dead)
        } else {
            String::new()
        };
        vec![
            bridge.agent.to_string(),
            bridge.service.to_string(),
            first_line(&known),
            first_line(&bridge_state(bridge)),
            format!("{counts}{dead}"),
        ]
    });
    format_table(&rows.collect::<Vec<_>>())
}

/// Waits up to ten seconds until every bridge is connected or has failed, and prints the states.
fn test_bridges(
    app: &CommandContext,
    agent: Option<&regatta_core::ids::AgentName>,
) -> CommandResult {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let all = loop {
        let mut all = fetch_bridges(app)?;
        all.retain(|bridge| agent.is_none_or(|only| bridge.agent == *only));
        let connecting = |bridge: &BridgeView| {
            bridge.off.is_none()
                && bridge.health.connected.is_none()
                && bridge.health.trouble.is_none()
        };
        if !all.iter().any(connecting) || std::time::Instant::now() > until {
            break all;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let bad: Vec<String> = all
        .iter()
        .filter(|bridge| {
            bridge.off.is_some() || bridge.health.connected.is_none() || bridge.warning.is_some()
        })
        .map(|bridge| format!("{} ({})", bridge.name, bridge_state(bridge)))
        .collect();
    app.output
        .print_answer("bridge.list", &all, &[], |_| draw_bridges(&all))?;
    match bad.as_slice() {
        [] if all.is_empty() => Err(command_error(
            "no_bridge",
            "there is no bridge to test",
            "set up a bridge as docs/bridges.md describes",
        )),
        [] => Ok(()),
        bad => Err(command_error(
            "bridge_down",
            format!("some bridges do not work: {}", bad.join("; ")),
            "fix the cause, then run regatta up --restart",
        )),
    }
}

/// Draws conversations as a table.
pub(crate) fn draw_conversations(all: &[ConversationLineView], window: Option<usize>) -> String {
    if all.is_empty() {
        return "no conversations\n".into();
    }
    let rows = all.iter().map(|conversation_line| {
        vec![
            conversation_line.id.to_string(),
            conversation_line.service.to_string(),
            conversation_line.agent.to_string(),
            conversation_line.word.clone(),
            conversation_line
                .task
                .map_or(String::new(), |id| id.to_string()),
            format_age(conversation_line.updated_wall),
            first_line(&conversation_line.last),
        ]
    });
    format_table_for(&rows.collect::<Vec<_>>(), window)
}

/// Makes an API call about a conversation and prints the conversation in the answer.
fn show_conversation<C>(app: &CommandContext, call: C) -> CommandResult
where
    C: TypedCall<Output = Conversation>,
{
    let reply = app.call(call)?;
    let conversation = &reply.data;
    let mut next = Vec::new();
    if !conversation.held.is_empty() {
        next.push(format!("regatta bridge accept {}", conversation.id));
        next.push(format!("regatta bridge refuse {}", conversation.id));
    }
    next.extend(conversation.task.map(|id| format!("regatta show {id}")));
    app.output
        .print_answer("conversation.show", conversation, &next, |_| {
            let mut text = format!(
                "{} {} with {} in {}\n",
                conversation.id,
                conversation.service,
                conversation.agent,
                first_line(&conversation.title)
            );
            text += &format!("  {}\n", first_line(&conversation.key));
            for held in &conversation.held {
                text += &format!(
                    "  held: {} ({}:{}): {}\n",
                    first_line(&held.by.name),
                    conversation.service,
                    first_line(&held.by.id),
                    first_line(&held.text)
                );
            }
            for turn in &conversation.turns {
                text += &format!(
                    "  {:?} {}: {}\n",
                    turn.state,
                    first_line(&turn.by.name),
                    first_line(&turn.text)
                );
                if let Some(answer) = &turn.answer {
                    text += &format!("    {}\n", first_line(answer));
                }
                if let Some(reason) = &turn.reason {
                    text += &format!("    {}\n", first_line(reason));
                }
            }
            for post in conversation
                .posts
                .iter()
                .filter(|thread_post| thread_post.is_due() || thread_post.failure.is_some())
            {
                let what = match &post.content {
                    PostContent::Seen { .. } => "the first reaction".to_owned(),
                    PostContent::Turn { turn } => format!("turn {turn}"),
                    PostContent::Queued { turn, .. } => format!("the note that turn {turn} waits"),
                    PostContent::Ask { approval } => approval.to_string(),
                    PostContent::Note { text, .. } => first_line(text),
                    PostContent::Pull => "a pull request".into(),
                };
                let delivery = post
                    .failure
                    .as_ref()
                    .map_or("not posted yet".to_owned(), |failure| {
                        format!("could not be posted: {}", first_line(failure))
                    });
                text += &format!("  post {}: {what}, {delivery}\n", post.number);
            }
            text
        })
}
