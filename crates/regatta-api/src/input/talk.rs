//! What the verbs of the bus and of hooks take.

use regatta_core::agent::Level;
use regatta_core::conversation::Service;
use regatta_core::hook::{Action, Conditions, Trigger};
use regatta_core::ids::{AgentName, ChannelName, ConversationId, FiringId, HookId, Label, MessageId, ProjectName};
use serde::{Deserialize, Serialize};

use super::{fifty, half_a_minute, inputs};

inputs! {
    MsgSend {
        channel: ChannelName,
        text: String,
        #[serde(default)] labels: Vec<Label>,
        /// In whose name; an agent's token knows its own, and may name a child of it.
        #[serde(default)] agent: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        /// Files on the daemon's machine, at most 10 of 4 MiB each: absolute, or for an attempt within its workspace.
        #[serde(default)] attach: Vec<String>,
    }
    /// Everything that is given must hold. The newest come first into the answer, which is in the order of posting;
    /// with `after`, the oldest after it.
    #[derive(Default)]
    MsgHistory {
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        /// Who sent it: an agent's name, `person:NAME`, or `regatta:`.
        #[serde(default)] from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        /// The whole thread that this message is in.
        #[serde(default)] thread: Option<MessageId>,
        /// Words that the text has, all of them; those in "quotes" in a row.
        #[serde(default)] search: Option<String>,
        /// Milliseconds since 1970.
        #[serde(default)] since: Option<u64>,
        #[serde(default)] until: Option<u64>,
        #[serde(default)] after: Option<MessageId>,
        #[serde(default)] before: Option<MessageId>,
        #[serde(default = "fifty")] limit: usize,
    }
    #[derive(Default)]
    MsgWait {
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] label: Option<Label>,
        #[serde(default)] from: Option<String>,
        #[serde(default)] mention: Option<AgentName>,
        #[serde(default)] reply_to: Option<MessageId>,
        #[serde(default)] thread: Option<MessageId>,
        /// Only messages after this one; none means after now.
        #[serde(default)] after: Option<MessageId>,
        #[serde(default = "half_a_minute")] timeout_ms: u64,
    }
    MsgRead { agent: AgentName, channel: ChannelName, #[serde(default)] keep_unread: bool }
    MsgInbox { agent: AgentName }
    MsgAttachment {
        message: MessageId,
        /// Which of them; the first is 0.
        #[serde(default)] nth: usize,
    }
    #[derive(Default)]
    NameAsk {
        /// How many; one, and not a list, if not given.
        #[serde(default)] count: Option<u16>,
        /// How they begin: `shop-dev/`.
        #[serde(default)] prefix: Option<String>,
    }

    HookAdd {
        /// The one named like the channel, or the only one, if not given.
        #[serde(default)] project: Option<ProjectName>,
        /// As whom it acts: what that agent says does not fire it.
        #[serde(default)] agent: Option<AgentName>,
        trigger: Trigger,
        #[serde(default)] when: Conditions,
        action: Action,
        /// 0 to 9: the lower comes first.
        #[serde(default)] priority: Option<u8>,
        /// How long its command may take; ten minutes if not given.
        #[serde(default)] timeout_ms: Option<u64>,
        /// How far its command is shut in; not at all if not given.
        #[serde(default)] sandbox: Option<Level>,
    }
    Hook { hook: HookId }
    Conversation { conversation: ConversationId }
    Conversations {
        /// Closed ones, too.
        #[serde(default)] all: bool,
        #[serde(default)] project: Option<ProjectName>,
    }
    BridgePause {
        agent: AgentName,
        /// One service; all of them if not given.
        #[serde(default)] service: Option<Service>,
        /// `false` lets them go on.
        paused: bool,
    }
    HookPause { hook: HookId, #[serde(default)] reason: String }
    /// A message that is there, or one that is only thought of.
    HookTest {
        hook: HookId,
        #[serde(default)] message: Option<MessageId>,
        #[serde(default)] text: Option<String>,
        /// Where it would be posted; in the hook's own channel if not given.
        #[serde(default)] channel: Option<ChannelName>,
        #[serde(default)] labels: Vec<Label>,
        /// Who would post it; you if not given.
        #[serde(default)] from: Option<AgentName>,
    }
    HookLog {
        #[serde(default)] hook: Option<HookId>,
        #[serde(default)] before: Option<FiringId>,
        #[serde(default = "fifty")] limit: usize,
    }
}
