//! The kinds of work that are judged in different ways.
//!
//! The checks of an attempt's work and the decision about its task ask this module, so that they
//! treat each purpose of a task in the same way.

use crate::ids::{ChannelName, CommitId, MessageId, TaskId};
use crate::task::Purpose;

/// The kind of work that a task asks for, as the rules about finished work see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind<'a> {
    /// Changed files, which are checked and land, or a report if the task expects no change.
    Changes,
    /// A report. The attempt was only meant to read files, so its changes do not land.
    Report,
    /// An answer that completes the task. The attempt was only meant to read files, so its changes
    /// do not land.
    Answer(AnswerKind<'a>),
    /// A turn of a lead. Files that the lead changed become a task of their own.
    LeadTurn,
    /// A turn of a conversation, which keeps all changed files.
    ConversationTurn,
}

/// The question that an answer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind<'a> {
    /// The files that the task `explored` has to change.
    Manifest { explored: TaskId },
    /// The review of the task `reviewed`, which counts only for the commit.
    Review {
        reviewed: TaskId,
        commit: Option<&'a CommitId>,
    },
    /// The answer to a question in the message thread that began with `root`.
    Thread {
        channel: &'a ChannelName,
        root: MessageId,
    },
    /// The decision whether a message is answered, becomes a task, or goes to a lead.
    Triage {
        channel: &'a ChannelName,
        message: MessageId,
    },
}

impl WorkKind<'_> {
    /// Returns the kind of work that a task with this purpose asks for.
    pub(super) fn from_purpose(purpose: &Purpose) -> WorkKind<'_> {
        match purpose {
            Purpose::Work { .. } | Purpose::Session(_) | Purpose::MergeRemote { .. } => {
                WorkKind::Changes
            }
            Purpose::Plan { .. } => WorkKind::Report,
            Purpose::Explore { task } => WorkKind::Answer(AnswerKind::Manifest { explored: *task }),
            Purpose::Review { task, commit } => WorkKind::Answer(AnswerKind::Review {
                reviewed: *task,
                commit: commit.as_ref(),
            }),
            Purpose::Answer { channel, root } => WorkKind::Answer(AnswerKind::Thread {
                channel,
                root: *root,
            }),
            Purpose::Triage { channel, message } => WorkKind::Answer(AnswerKind::Triage {
                channel,
                message: *message,
            }),
            Purpose::Lead => WorkKind::LeadTurn,
            Purpose::Converse { .. } => WorkKind::ConversationTurn,
        }
    }
}
