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

/// An operation. Patterns are indexes into `PatternUniverse`.
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
        for event in &some {
            board.fold(event);
            if event.revision > from {
                log.push(log_entry(event));
            }
        }
    }
}

fn log_entry(event: &regatta_core::event::Recorded) -> LogEntry {
    let by = match &event.by {
        Actor::Agent(name) => name
            .as_str()
            .trim_start_matches("agent-")
            .parse()
            .unwrap_or(DAEMON_AGENT),
        _ => DAEMON_AGENT,
    };
    let (kind, subject) = match &event.event {
        Event::ClaimGranted(claim_granted) => (LogEventKind::Granted, claim_granted.claim().id.0),
        Event::ClaimRenewed(claim_renewed) => (LogEventKind::Renewed, claim_renewed.claim().0),
        Event::ClaimReleased(claim_released) => (LogEventKind::Released, claim_released.claim().0),
        Event::AttemptRenewed(attempt_renewed) => (LogEventKind::Kept, attempt_renewed.attempt().0),
        Event::TaskProgressed(task_progressed) => {
            (LogEventKind::Written, task_progressed.attempt().0)
        }
        Event::AttemptEnded(attempt_ended) => (LogEventKind::Ended, attempt_ended.attempt().0),
        Event::TaskReturned(task_returned) => (LogEventKind::Returned, task_returned.task().0),
        Event::AttemptStarted(attempt_started) => {
            (LogEventKind::Begun, attempt_started.attempt().id.0)
        }
        Event::TaskStarted(task_started) => (LogEventKind::Started, task_started.attempt().0),
        _ => (LogEventKind::Other, 0),
    };
    LogEntry {
        agent: by,
        kind,
        subject,
        fleet_ms: event.now.fleet_ms,
    }
}
