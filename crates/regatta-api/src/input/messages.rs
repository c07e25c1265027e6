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
        channel: ChannelName,
        text: String,
        #[serde(default)] labels: Vec<Label>,
        /// The agent that sends the message. A caller with an agent's access token may name only
        /// that agent, which is also the default, or an agent below it, such as `claude-1/helper`.
        #[serde(default)]
        agent: Option<AgentName>,
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
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        /// Select only messages of this sender: an agent's name, `person:NAME` for a person, or
        /// `regatta:` for messages of the daemon itself.
        #[serde(default)]
        from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
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
        #[serde(default)] until: Option<u64>,
        #[serde(default)] after: Option<MessageId>,
        #[serde(default)] before: Option<MessageId>,
        /// The largest number of messages. If omitted, 50, or all messages if the caller reads
        /// pages.
        #[serde(default)]
        limit: Option<usize>,
    }
    #[derive(Default)]
    MsgWait {
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        #[serde(default)] from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        #[serde(default)] thread: Option<MessageId>,
        /// Wait only for messages that were posted after the message with this id. If omitted, wait
        /// only for messages that are posted from now on.
        #[serde(default)]
        after: Option<MessageId>,
        #[serde(default = "default_wait_ms")] timeout_ms: u64,
    }
    MsgRead { agent: AgentName, channel: ChannelName, #[serde(default)] keep_unread: bool }
    MsgInbox { agent: AgentName }
    MsgAttachment {
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
        trigger: HookTrigger,
        #[serde(default)] when: HookConditions,
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
    HookIdInput { hook: HookId }
    ConversationIdInput { conversation: ConversationId }
    ConversationFilter {
        /// List closed conversations too.
        #[serde(default)]
        all: bool,
        #[serde(default)] project: Option<ProjectName>,
    }
    BridgePause {
        agent: AgentName,
        /// The chat service whose bridge is paused, such as Slack. If omitted, the agent's bridges
        /// to all services.
        #[serde(default)]
        service: Option<Service>,
        /// `true` pauses the agent's bridges (connections to chat services), `false` resumes them.
        paused: bool,
    }
    HookPause { hook: HookId, #[serde(default)] reason: String }
    /// Tests a hook (a rule that runs a command) against an existing message, or against a text
    /// that is not posted.
    HookTest {
        hook: HookId,
        #[serde(default)] message: Option<MessageId>,
        #[serde(default)] text: Option<String>,
        /// The channel in which `text` is assumed to have been posted. If omitted, the hook's own
        /// channel.
        #[serde(default)]
        channel: Option<ChannelName>,
        #[serde(default)] labels: Vec<Label>,
        /// The agent that is assumed to have posted `text`. If omitted, the caller.
        #[serde(default)]
        from: Option<AgentName>,
    }
    HookLog {
        #[serde(default)] hook: Option<HookId>,
        #[serde(default)] before: Option<FiringId>,
        /// The largest number of firings. If omitted, 50, or all firings if the caller reads pages.
        #[serde(default)]
        limit: Option<usize>,
    }
}
