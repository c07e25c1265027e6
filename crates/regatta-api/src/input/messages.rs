//! The inputs of the API verbs for messages, hooks, conversations and bridges.

use regatta_core::agent::SandboxLevel;
use regatta_core::conversation::Service;
use regatta_core::hook::{HookAction, HookConditions, HookTrigger};
use regatta_core::ids::{
    AgentName, ChannelName, ConversationId, FiringId, HookId, Label, MessageId, ProjectName,
};
use serde::{Deserialize, Serialize};

use super::{default_wait_ms, inputs};

inputs! {
    MsgSend {
        /// The channel, such as `shop`, or `@claude-1` for an agent's mailbox.
        channel: ChannelName,
        /// The text of the message. `@NAME` in the text mentions an agent.
        text: String,
        /// The labels of the message, such as `coord:interface`.
        #[serde(default)] labels: Vec<Label>,
        /// The agent that sends the message. A caller with an agent's access token may name only
        /// that agent, which is also the default, or an agent below it, such as `claude-1/helper`.
        #[serde(default)]
        agent: Option<AgentName>,
        /// The id of the message that this message answers, such as `B12`.
        #[serde(default)] reply_to: Option<MessageId>,
        /// Paths of the files to attach. At most 10 files of at most 4 MiB each. The daemon's own
        /// user can attach any file by its absolute path. An attempt can attach files from its
        /// workspace, a hook's command from its working directory, and the holder of an access
        /// token from the checkouts of projects.
        #[serde(default)]
        attach: Vec<String>,
    }
    /// Selects messages that satisfy all given conditions. The answer contains the newest of these
    /// messages or, if `after` is given, the oldest of these messages that were posted after the
    /// message `after`. The messages are sorted by the time of posting.
    #[derive(Default)]
    MsgHistory {
        /// Select only messages in this channel.
        #[serde(default)] channel: Option<ChannelName>,
        /// Select only messages with this label.
        #[serde(default)] label: Option<Label>,
        /// Select only messages of this sender: an agent's name, `person:NAME` for a person, or
        /// `regatta:` for messages of the daemon itself.
        #[serde(default)]
        from: Option<String>,
        /// Select only messages that mention this agent.
        #[serde(default)] mention: Option<AgentName>,
        /// Select only messages that answer the message with this id.
        #[serde(default)] reply_to: Option<MessageId>,
        /// Select only messages of the thread that contains the message with this id.
        #[serde(default)]
        thread: Option<MessageId>,
        /// Select only messages that contain all these words. "Quoted words" must be adjacent.
        #[serde(default)]
        search: Option<String>,
        /// Select only messages that were posted at or after this time, in milliseconds since 1970.
        #[serde(default)]
        since: Option<u64>,
        /// Select only messages that were posted before this time, in milliseconds since 1970.
        #[serde(default)] until: Option<u64>,
        /// Select only messages that were posted after the message with this id.
        #[serde(default)] after: Option<MessageId>,
        /// Select only messages that were posted before the message with this id.
        #[serde(default)] before: Option<MessageId>,
        /// The largest number of messages. If omitted, 50, or all messages if the caller reads
        /// pages.
        #[serde(default)]
        limit: Option<usize>,
    }
    #[derive(Default)]
    MsgWait {
        /// Wait only for messages in this channel.
        #[serde(default)] channel: Option<ChannelName>,
        /// Wait only for messages with this label.
        #[serde(default)] label: Option<Label>,
        /// Wait only for messages of this sender: an agent's name, `person:NAME` or `regatta:`.
        #[serde(default)] from: Option<String>,
        /// Wait only for messages that mention this agent.
        #[serde(default)] mention: Option<AgentName>,
        /// Wait only for messages that answer the message with this id.
        #[serde(default)] reply_to: Option<MessageId>,
        /// Wait only for messages of the thread that contains the message with this id.
        #[serde(default)] thread: Option<MessageId>,
        /// Wait only for messages that were posted after the message with this id. If omitted, wait
        /// only for messages that are posted from now on.
        #[serde(default)]
        after: Option<MessageId>,
        /// The time in milliseconds to wait, at most a day.
        #[serde(default = "default_wait_ms")] timeout_ms: u64,
    }
    MsgRead {
        /// The agent that reads.
        agent: AgentName,
        /// The channel to read.
        channel: ChannelName,
        /// List the messages without marking them read.
        #[serde(default)] keep_unread: bool,
    }
    MsgInbox {
        /// The agent whose unread messages are counted.
        agent: AgentName,
    }
    MsgAttachment {
        /// The id of the message, such as `B12`.
        message: MessageId,
        /// The position of the attachment in the message; the first has position 0.
        #[serde(default)]
        nth: usize,
    }
    #[derive(Default)]
    NameQuery {
        /// The number of unused names to return as a list. If omitted, the answer is a single name.
        #[serde(default)]
        count: Option<u16>,
        /// The text with which the generated names begin, such as `shop-dev/`.
        #[serde(default)]
        prefix: Option<String>,
    }

    HookAdd {
        /// The project to which the hook (a rule that runs a command) belongs. If omitted, the
        /// project that has the channel's name, or the only project.
        #[serde(default)]
        project: Option<ProjectName>,
        /// The agent in whose name the hook's command acts. Messages of that agent do not trigger
        /// the hook.
        #[serde(default)]
        agent: Option<AgentName>,
        /// The messages, events or freed claims that trigger the hook.
        trigger: HookTrigger,
        /// Further conditions, such as a claim, a label or a pause between two firings.
        #[serde(default)] when: HookConditions,
        /// The command that the hook runs, or the built-in router.
        action: HookAction,
        /// The priority of the hook (a rule that runs a command), from 0 to 9. Hooks with lower
        /// numbers run first.
        #[serde(default)]
        priority: Option<u8>,
        /// The time limit of the hook's command in milliseconds. If omitted, ten minutes.
        #[serde(default)]
        timeout_ms: Option<u64>,
        /// The sandbox level of the hook's command. If omitted, the command runs without a sandbox.
        #[serde(default)]
        sandbox: Option<SandboxLevel>,
    }
    HookIdInput {
        /// The id of the hook, such as `H3`.
        hook: HookId,
    }
    ConversationIdInput {
        /// The id of the conversation, such as `V3`.
        conversation: ConversationId,
    }
    ConversationFilter {
        /// List closed conversations too.
        #[serde(default)]
        all: bool,
        /// List only conversations of this project.
        #[serde(default)] project: Option<ProjectName>,
    }
    BridgePause {
        /// The agent whose bridges are paused or resumed.
        agent: AgentName,
        /// The chat service whose bridge is paused, such as Slack. If omitted, the agent's bridges
        /// to all services.
        #[serde(default)]
        service: Option<Service>,
        /// `true` pauses the agent's bridges (connections to chat services), `false` resumes them.
        paused: bool,
    }
    HookPause {
        /// The id of the hook, such as `H3`.
        hook: HookId,
        /// The reason for the pause, which `regatta hook list` shows.
        #[serde(default)] reason: String,
    }
    /// Tests a hook (a rule that runs a command) against an existing message, or against a text
    /// that is not posted.
    HookTest {
        /// The id of the hook, such as `H3`.
        hook: HookId,
        /// The id of an existing message with which to test the hook.
        #[serde(default)] message: Option<MessageId>,
        /// The text of an imagined message with which to test the hook.
        #[serde(default)] text: Option<String>,
        /// The channel in which `text` is assumed to have been posted. If omitted, the hook's own
        /// channel.
        #[serde(default)]
        channel: Option<ChannelName>,
        /// The labels that the imagined message has.
        #[serde(default)] labels: Vec<Label>,
        /// The agent that is assumed to have posted `text`. If omitted, the caller.
        #[serde(default)]
        from: Option<AgentName>,
    }
    HookLog {
        /// List only firings of this hook.
        #[serde(default)] hook: Option<HookId>,
        /// List only firings before the firing with this id, such as `F12`.
        #[serde(default)] before: Option<FiringId>,
        /// The largest number of firings. If omitted, 50, or all firings if the caller reads pages.
        #[serde(default)]
        limit: Option<usize>,
    }
}
