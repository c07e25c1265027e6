//! The operations and answers as the callers saw them, and the log of events.

use std::sync::Arc;

use regatta_core::board::Board;
use regatta_core::command::Actor;
use regatta_core::event::Event;
use regatta_engine::ports::store;

/// The author of events without an operation, such as expired timers.
pub(crate) const DAEMON_AGENT: u32 = u32::MAX;

/// One operation of one agent.
#[derive(Clone, Debug)]
pub(crate) struct OperationRecord {
    pub(crate) agent: u32,
    /// The time in nanoseconds since the start of the run.
    pub(crate) asked_ns: u64,
    pub(crate) answered_ns: u64,
    pub(crate) operation: Operation,
    pub(crate) answer: OperationAnswer,
    /// The revision in the answer.
    pub(crate) revision: u64,
}

/// An operation. Patterns are numbers of the lake's patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire {
        patterns: Box<[u16]>,
        is_shared: bool,
        ttl_ms: u64,
    },
    Renew {
        claim: u64,
        token: u64,
    },
    Release {
        claim: u64,
        token: u64,
    },
    /// A guarded write: only the token of the live attempt is accepted.
    Write {
        slot: usize,
        attempt: u64,
        token: u64,
    },
    /// A person ends the attempt of the slot.
    Stop {
        slot: usize,
    },
    /// Starts a new attempt for the slot.
    Poll {
        slot: usize,
    },
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationAnswer {
    Granted {
        claim: u64,
        token: u64,
    },
    Held(Vec<u64>),
    Done,
    /// The claim has ended.
    Ended,
    /// The token does not belong to the live attempt.
    Stale,
    Begun {
        attempt: u64,
        token: u64,
    },
    Nothing,
    /// An answer that no rule allows.
    Unexpected(String),
}

/// The kind of an event. Other kinds cannot result from these operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEventKind {
    Granted,
    Renewed,
    Released,
    Kept,
    Written,
    Ended,
    Returned,
    Begun,
    Started,
    Other,
}

/// One event. Its revision follows from its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry {
    pub(crate) agent: u32,
    pub(crate) kind: LogEventKind,
    pub(crate) subject: u64,
    pub(crate) fleet_ms: u64,
}

/// A complete history. The first entry of the log has the revision `first_revision`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedHistory {
    pub(crate) records: Vec<OperationRecord>,
    pub(crate) log: Vec<LogEntry>,
    pub(crate) first_revision: u64,
}

impl RecordedHistory {
    pub(crate) fn entry(&self, revision: u64) -> Option<&LogEntry> {
        self.log
            .get(usize::try_from(revision.checked_sub(self.first_revision)?).ok()?)
    }
}

/// Reads the whole log. Returns the entries after `from`, and the board that all events give.
pub(crate) fn read_log(
    store: &Arc<dyn store::StoreHistory>,
    from: u64,
) -> anyhow::Result<(Vec<LogEntry>, Board)> {
    let (mut log, mut board, mut after) = (Vec::new(), Board::default(), 0);
    loop {
        let some = store.events(after, 20_000)?;
        let Some(last) = some.last() else {
            return Ok((log, board));
        };
        after = last.revision;
        for it in &some {
            board.fold(it);
            if it.revision > from {
                log.push(log_entry(it));
            }
        }
    }
}

fn log_entry(it: &regatta_core::event::Recorded) -> LogEntry {
    let by = match &it.by {
        Actor::Agent(name) => name
            .as_str()
            .trim_start_matches("agent-")
            .parse()
            .unwrap_or(DAEMON_AGENT),
        _ => DAEMON_AGENT,
    };
    let (kind, subject) = match &it.event {
        Event::ClaimGranted(it) => (LogEventKind::Granted, it.claim().id.0),
        Event::ClaimRenewed(it) => (LogEventKind::Renewed, it.claim().0),
        Event::ClaimReleased(it) => (LogEventKind::Released, it.claim().0),
        Event::AttemptRenewed(it) => (LogEventKind::Kept, it.attempt().0),
        Event::TaskProgressed(it) => (LogEventKind::Written, it.attempt().0),
        Event::AttemptEnded(it) => (LogEventKind::Ended, it.attempt().0),
        Event::TaskReturned(it) => (LogEventKind::Returned, it.task().0),
        Event::AttemptStarted(it) => (LogEventKind::Begun, it.attempt().id.0),
        Event::TaskStarted(it) => (LogEventKind::Started, it.attempt().0),
        _ => (LogEventKind::Other, 0),
    };
    LogEntry {
        agent: by,
        kind,
        subject,
        fleet_ms: it.now.fleet_ms,
    }
}
