//! Inputs of the verbs of the bus, the hooks and the bridges.

use regatta_core::agent::SandboxLevel;
use regatta_core::conversation::Service;
use regatta_core::hook::{HookAction, HookConditions, HookTrigger};
use regatta_core::ids::{
    AgentName, ChannelName, ConversationId, FiringId, HookId, Label, MessageId, ProjectName,
};
use serde::{Deserialize, Serialize};

use super::{default_fifty, default_wait_ms, inputs};

inputs! {
    MsgSend {
        channel: ChannelName,
        text: String,
        #[serde(default)] labels: Vec<Label>,
        /// The sender. With an agent's token it is that agent by default, and may be a child of it.
        #[serde(default)] agent: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        /// Files on the daemon's machine, at most 10 of 4 MiB each: absolute paths, or for an
        /// attempt paths within its workspace.
        #[serde(default)] attach: Vec<String>,
    }
    /// All given conditions must hold. Returns the newest messages, in posting order; with `after`,
    /// the oldest messages after that one.
    #[derive(Default)]
    MsgHistory {
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        /// The sender: an agent's name, `person:NAME`, or `regatta:`.
        #[serde(default)] from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        /// Any message of a thread; the whole thread is listed.
        #[serde(default)] thread: Option<MessageId>,
        /// Words that must all be in the text; "quoted words" must be adjacent.
        #[serde(default)] search: Option<String>,
        /// Milliseconds since 1970.
        #[serde(default)] since: Option<u64>,
        #[serde(default)] until: Option<u64>,
        #[serde(default)] after: Option<MessageId>,
        #[serde(default)] before: Option<MessageId>,
        #[serde(default = "default_fifty")] limit: usize,
    }
    #[derive(Default)]
    MsgWait {
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        #[serde(default)] from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        #[serde(default)] thread: Option<MessageId>,
        /// Only messages after this one; if omitted, only messages that are posted from now on.
        #[serde(default)] after: Option<MessageId>,
        #[serde(default = "default_wait_ms")] timeout_ms: u64,
    }
    MsgRead { agent: AgentName, channel: ChannelName, #[serde(default)] keep_unread: bool }
    MsgInbox { agent: AgentName }
    MsgAttachment {
        message: MessageId,
        /// Position of the attachment in the message; the first is 0.
        #[serde(default)] nth: usize,
    }
    #[derive(Default)]
    NameQuery {
        /// Number of names. If given, the answer is a list; if omitted, it is one name.
        #[serde(default)] count: Option<u16>,
        /// Beginning of the names: `shop-dev/`.
        #[serde(default)] prefix: Option<String>,
    }

    HookAdd {
        /// If omitted, the project that has the channel's name, or the only project.
        #[serde(default)] project: Option<ProjectName>,
        /// Agent in whose name the hook acts; messages of that agent do not fire it.
        #[serde(default)] agent: Option<AgentName>,
        trigger: HookTrigger,
        #[serde(default)] when: HookConditions,
        action: HookAction,
        /// 0 to 9; hooks with lower numbers run first.
        #[serde(default)] priority: Option<u8>,
        /// Time limit of its command; ten minutes if omitted.
        #[serde(default)] timeout_ms: Option<u64>,
        /// Sandbox level of its command; no sandbox if omitted.
        #[serde(default)] sandbox: Option<SandboxLevel>,
    }
    HookIdInput { hook: HookId }
    ConversationIdInput { conversation: ConversationId }
    ConversationFilter {
        /// Also closed conversations.
        #[serde(default)] all: bool,
        #[serde(default)] project: Option<ProjectName>,
    }
    BridgePause {
        agent: AgentName,
        /// One service; all of them if omitted.
        #[serde(default)] service: Option<Service>,
        /// `false` resumes them.
        paused: bool,
    }
    HookPause { hook: HookId, #[serde(default)] reason: String }
    /// Tests a hook against an existing message, or against a text that is not posted.
    HookTest {
        hook: HookId,
        #[serde(default)] message: Option<MessageId>,
        #[serde(default)] text: Option<String>,
        /// Channel of the text that is not posted; the hook's own channel if omitted.
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] labels: Vec<Label>,
        /// Sender of the text that is not posted; the caller if omitted.
        #[serde(default)] from: Option<AgentName>,
    }
    HookLog {
        #[serde(default)] hook: Option<HookId>,
        #[serde(default)] before: Option<FiringId>,
        #[serde(default = "default_fifty")] limit: usize,
    }
}
