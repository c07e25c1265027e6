//! The purpose of a task: the kind of work that it is, and the kind of result that ends it.
//!
//! Every rule that treats kinds of tasks differently asks this module or matches on [`Purpose`]
//! without a wildcard, so that a new purpose cannot be forgotten. Not here: the rules themselves,
//! such as the verdict on finished work (see [`crate::attempt::apply_verdict`]).

use serde::{Deserialize, Serialize};

use crate::ids::{ChannelName, CommitId, ConversationId, MessageId, TaskId};
use crate::launch::SessionOf;

/// The result that a finished task must have: changed files, or a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Expects {
    #[default]
    Changes,
    Report,
}

/// The purpose of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The task is ordinary work: changed files that land on the trunk, or a report.
    Work { expects: Expects },
    /// The task finds out which files the task `task` has to change.
    Explore { task: TaskId },
    /// The task reviews the finished work of the task `task`. An approval counts only for the
    /// commit, which reviews of older versions of Regatta do not name.
    Review {
        task: TaskId,
        commit: Option<CommitId>,
    },
    /// The task stands for leading its mission. Each attempt is a turn of the lead.
    Lead,
    /// The task answers a question in the message thread that began with `root`.
    Answer {
        channel: ChannelName,
        root: MessageId,
    },
    /// The task decides whether a message is answered, becomes a task, or goes to a lead.
    Triage {
        channel: ChannelName,
        message: MessageId,
    },
    /// The task stands for a conversation in a service such as Slack. Each turn answers messages
    /// of the conversation.
    Converse { conversation: ConversationId },
    /// The task makes a plan for `goal`, which is in the words of the person who asked.
    Plan { goal: String },
    /// The task stands for the session of a team's member. It is never given to another agent, and
    /// it ends with the session.
    Session(SessionOf),
    /// The task brings the commits of a git remote into the trunk. It has no work for an agent.
    MergeRemote { remote: String },
}

impl Default for Purpose {
    fn default() -> Purpose {
        Purpose::Work {
            expects: Expects::default(),
        }
    }
}

impl Purpose {
    /// Returns whether this is the usual purpose of a task, which is not stored: ordinary work that
    /// changes files.
    pub(crate) fn is_default(&self) -> bool {
        *self == Purpose::default()
    }

    /// Returns the kind of result that completes a task with this purpose.
    pub fn expects(&self) -> Expects {
        match self {
            Purpose::Work { expects } => *expects,
            Purpose::MergeRemote { .. } => Expects::Changes,
            Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Lead
            | Purpose::Answer { .. }
            | Purpose::Triage { .. }
            | Purpose::Converse { .. }
            | Purpose::Plan { .. }
            | Purpose::Session(_) => Expects::Report,
        }
    }

    /// Returns whether an agent gets a task with this purpose when the agent asks for work. A task
    /// that stands for a lead, an answer or a conversation is assigned to its agent directly.
    pub fn is_polled(&self) -> bool {
        match self {
            Purpose::Work { .. }
            | Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Plan { .. }
            | Purpose::Session(_)
            | Purpose::MergeRemote { .. } => true,
            Purpose::Lead
            | Purpose::Answer { .. }
            | Purpose::Triage { .. }
            | Purpose::Converse { .. } => false,
        }
    }

    /// Returns whether attempts at a task with this purpose do not count against the machine's
    /// maximum number of attempts. Attempts at conversations and plans do count, like attempts at
    /// ordinary work.
    pub fn is_light(&self) -> bool {
        match self {
            Purpose::Lead | Purpose::Answer { .. } | Purpose::Triage { .. } => true,
            Purpose::Work { .. }
            | Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Converse { .. }
            | Purpose::Plan { .. }
            | Purpose::Session(_)
            | Purpose::MergeRemote { .. } => false,
        }
    }

    /// Returns the message that a task with this purpose answers or triages, and its channel.
    /// Returns `None` for the other purposes.
    pub fn message(&self) -> Option<(&ChannelName, MessageId)> {
        match self {
            Purpose::Answer { channel, root } => Some((channel, *root)),
            Purpose::Triage { channel, message } => Some((channel, *message)),
            Purpose::Work { .. }
            | Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Lead
            | Purpose::Converse { .. }
            | Purpose::Plan { .. }
            | Purpose::Session(_)
            | Purpose::MergeRemote { .. } => None,
        }
    }

    /// Returns whether a task with this purpose has a manifest (the files that it may change) and
    /// checks. The other purposes read files or answer people, and other rules apply to them.
    pub fn has_contract(&self) -> bool {
        match self {
            Purpose::Work { .. }
            | Purpose::Explore { .. }
            | Purpose::Review { .. }
            | Purpose::Session(_)
            | Purpose::MergeRemote { .. } => true,
            Purpose::Lead
            | Purpose::Answer { .. }
            | Purpose::Triage { .. }
            | Purpose::Converse { .. }
            | Purpose::Plan { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LaunchId, MemberName};

    /// The rules for each purpose: the expected result, and whether the task is polled, takes no
    /// slot, and has a manifest with checks.
    #[test]
    fn every_purpose_has_its_rules() {
        use Expects::{Changes, Report};
        let channel = ChannelName::new("shop-dev").unwrap();
        let session = SessionOf {
            launch: LaunchId(1),
            member: MemberName::new("alice").unwrap(),
        };
        for (purpose, expects, is_polled, is_light, has_contract) in [
            (Purpose::default(), Changes, true, false, true),
            (Purpose::Work { expects: Report }, Report, true, false, true),
            (
                Purpose::Explore { task: TaskId(1) },
                Report,
                true,
                false,
                true,
            ),
            (
                Purpose::Review {
                    task: TaskId(1),
                    commit: None,
                },
                Report,
                true,
                false,
                true,
            ),
            (Purpose::Lead, Report, false, true, false),
            (
                Purpose::Answer {
                    channel: channel.clone(),
                    root: MessageId(1),
                },
                Report,
                false,
                true,
                false,
            ),
            (
                Purpose::Triage {
                    channel,
                    message: MessageId(2),
                },
                Report,
                false,
                true,
                false,
            ),
            (
                Purpose::Converse {
                    conversation: ConversationId(1),
                },
                Report,
                false,
                false,
                false,
            ),
            (
                Purpose::Plan {
                    goal: "Add login".into(),
                },
                Report,
                true,
                false,
                false,
            ),
            (Purpose::Session(session), Report, true, false, true),
            (
                Purpose::MergeRemote {
                    remote: "origin".into(),
                },
                Changes,
                true,
                false,
                true,
            ),
        ] {
            assert_eq!(purpose.expects(), expects, "{purpose:?}");
            assert_eq!(purpose.is_polled(), is_polled, "{purpose:?}");
            assert_eq!(purpose.is_light(), is_light, "{purpose:?}");
            assert_eq!(purpose.has_contract(), has_contract, "{purpose:?}");
            let message = purpose
                .message()
                .map(|(channel, id)| (channel.as_str(), id));
            let expected = match purpose {
                Purpose::Answer { .. } => Some(("shop-dev", MessageId(1))),
                Purpose::Triage { .. } => Some(("shop-dev", MessageId(2))),
                _ => None,
            };
            assert_eq!(message, expected, "{purpose:?}");
        }
    }
}
