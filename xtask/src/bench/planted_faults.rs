//! Planted faults that the checker must find: a true history is changed as a broken engine would
//! have changed it.
//!
//! Where an engine would also have logged its mistake, the log is changed too. All later revisions
//! and tokens are renumbered, so that only the broken law reveals the fault.

use super::checker::{BrokenLaw, HistoryVerdict};
use super::history::{
    LogEntry, LogEventKind, Operation, OperationAnswer, OperationRecord, RecordedHistory,
};

/// All faults, with the laws that they break.
pub(crate) const PLANTED_FAULTS: [(&str, BrokenLaw); 9] = [
    ("double-grant", BrokenLaw::Exclusion),
    ("token-reuse", BrokenLaw::Token),
    ("stale-write", BrokenLaw::Fence),
    ("foreign-release", BrokenLaw::Fence),
    ("stale-read", BrokenLaw::RealTime),
    ("stale-answer", BrokenLaw::Answer),
    ("lost-ack", BrokenLaw::Log),
    ("lost-reply", BrokenLaw::Log),
    ("early-expiry", BrokenLaw::Expiry),
];

/// Plants a fault in one of `every` suitable places, or in about twenty of them. Returns the number
/// of places.
pub(crate) fn plant_fault(
    history: &mut RecordedHistory,
    fault: &str,
    every: usize,
    truth: &HistoryVerdict,
) -> usize {
    let places = |fits: fn(&OperationRecord) -> bool| -> Vec<usize> {
        let mut fitting: Vec<usize> = (0..history.records.len())
            .filter(|index| fits(&history.records[*index]))
            .collect();
        fitting.sort_by_key(|fitting| history.records[*fitting].revision);
        // Skip the first places, because some faults need a past. Rare faults are planted more
        // often.
        let late = &fitting[fitting.len() / 3..];
        late.iter()
            .copied()
            .step_by(every.min(late.len() / 20).max(1))
            .collect()
    };
    match fault {
        "double-grant" => {
            let places = places(|operation| matches!(operation.answer, OperationAnswer::Held(_)));
            insert_accepted(history, places, |record, nth, revision| {
                let claim = (1 << 40) + nth;
                record.answer = OperationAnswer::Granted {
                    claim,
                    token: revision,
                };
                vec![(LogEventKind::Granted, claim)]
            })
        }
        "stale-write" => {
            let places = places(|operation| {
                matches!(
                    (&operation.operation, &operation.answer),
                    (Operation::Write { .. }, OperationAnswer::Stale)
                )
            });
            insert_accepted(history, places, |record, _, _| {
                record.answer = OperationAnswer::Done;
                let Operation::Write { attempt, .. } = record.operation else {
                    return vec![];
                };
                vec![
                    (LogEventKind::Kept, attempt),
                    (LogEventKind::Written, attempt),
                ]
            })
        }
        "foreign-release" => {
            let places = places(|operation| {
                matches!(
                    (&operation.operation, &operation.answer),
                    (Operation::Release { .. }, OperationAnswer::Stale)
                )
            });
            insert_accepted(history, places, |record, _, _| {
                record.answer = OperationAnswer::Done;
                let Operation::Release { claim, .. } = record.operation else {
                    return vec![];
                };
                vec![(LogEventKind::Released, claim)]
            })
        }
        "token-reuse" => {
            let places =
                places(|operation| matches!(operation.answer, OperationAnswer::Granted { .. }));
            for place in &places {
                if let OperationAnswer::Granted { token, .. } = &mut history.records[*place].answer
                {
                    *token -= 1;
                }
            }
            places.len()
        }
        "stale-read" => {
            let places = places(|operation| matches!(operation.answer, OperationAnswer::Held(_)));
            for place in &places {
                // The answer comes from a state long before the question.
                let revision = history.records[*place].revision;
                history.records[*place].revision =
                    history.first_revision + (revision - history.first_revision) / 2;
            }
            places.len()
        }
        "stale-answer" => {
            let places = places(
                |operation| matches!(&operation.answer, OperationAnswer::Held(holders) if holders.len() == 1),
            );
            for place in &places {
                history.records[*place].answer = OperationAnswer::Held(vec![1]);
            }
            places.len()
        }
        "lost-ack" => {
            let places = places(|operation| {
                matches!(
                    (&operation.operation, &operation.answer),
                    (Operation::Renew { .. }, OperationAnswer::Done)
                )
            });
            remove_events(history, &places)
        }
        "lost-reply" => {
            let places = places(|operation| {
                matches!(
                    (&operation.operation, &operation.answer),
                    (Operation::Renew { .. }, OperationAnswer::Done)
                )
            });
            let mut nth = 0;
            let lost: std::collections::BTreeSet<usize> = places.into_iter().collect();
            history.records.retain(|_| {
                nth += 1;
                !lost.contains(&(nth - 1))
            });
            lost.len()
        }
        "early-expiry" => {
            let often = every.min(truth.expiries.len() / 20).max(1);
            let ends: Vec<(u64, u64)> = truth.expiries.iter().copied().step_by(often).collect();
            for (revision, due) in &ends {
                if let Some(log) = history
                    .log
                    .get_mut((revision - history.first_revision) as usize)
                {
                    log.fleet_ms = due - 1;
                }
            }
            ends.len()
        }
        _ => 0,
    }
}

/// Makes refused operations accepted, with their events directly after the revision at which they
/// were refused. `accept` gets the record, the fault's number and the revision of its first event.
fn insert_accepted(
    history: &mut RecordedHistory,
    mut places: Vec<usize>,
    accept: impl Fn(&mut OperationRecord, u64, u64) -> Vec<(LogEventKind, u64)>,
) -> usize {
    places.sort_by_key(|place| history.records[*place].revision);
    let fleet_time = |revision: u64| history.entry(revision).map_or(0, |log| log.fleet_ms);
    let mut inserted: Vec<(u64, Vec<LogEntry>)> = Vec::new();
    let mut accepted: Vec<(usize, OperationRecord)> = Vec::new();
    let mut shift = 0;
    for (nth, place) in (0..).zip(&places) {
        let mut record = history.records[*place].clone();
        let after = record.revision;
        let events = accept(&mut record, nth, after + shift + 1);
        let entries: Vec<LogEntry> = events
            .into_iter()
            .map(|(kind, subject)| LogEntry {
                agent: record.agent,
                kind,
                subject,
                fleet_ms: fleet_time(after),
            })
            .collect();
        shift += entries.len() as u64;
        record.revision = after + shift;
        accepted.push((*place, record));
        inserted.push((after, entries));
    }
    let shifts: Vec<u64> = inserted
        .iter()
        .scan(0, |sum, inserted| {
            *sum += inserted.1.len() as u64;
            Some(*sum)
        })
        .collect();
    let moved = |revision: u64| match inserted.partition_point(|inserted| inserted.0 < revision) {
        0 => revision,
        before => revision + shifts[before - 1],
    };
    for record in &mut history.records {
        renumber(record, moved);
    }
    // Accepted operations are numbered already, except for the tokens in their requests.
    for (place, mut record) in accepted {
        renumber_op(&mut record.operation, moved);
        history.records[place] = record;
    }
    let mut log = Vec::with_capacity(history.log.len() + places.len() * 2);
    let mut next = inserted.iter().peekable();
    for (entry, revision) in history.log.iter().zip(history.first_revision..) {
        log.push(*entry);
        while let Some((_, entries)) = next.next_if(|pair| pair.0 == revision) {
            log.extend(entries);
        }
    }
    history.log = log;
    places.len()
}

/// Removes the events of accepted operations from the log, as if they had never been durable.
fn remove_events(history: &mut RecordedHistory, places: &[usize]) -> usize {
    let mut gone: Vec<u64> = places
        .iter()
        .map(|place| history.records[*place].revision)
        .collect();
    gone.sort_unstable();
    let moved = |revision: u64| revision - gone.partition_point(|gone| *gone <= revision) as u64;
    for record in &mut history.records {
        renumber(record, moved);
    }
    let first = history.first_revision;
    let mut revision = first;
    history.log.retain(|_| {
        revision += 1;
        gone.binary_search(&(revision - 1)).is_err()
    });
    places.len()
}

fn renumber(record: &mut OperationRecord, moved: impl Fn(u64) -> u64) {
    record.revision = moved(record.revision);
    if let OperationAnswer::Granted { token, .. } | OperationAnswer::Begun { token, .. } =
        &mut record.answer
    {
        *token = moved(*token);
    }
    renumber_op(&mut record.operation, moved);
}

fn renumber_op(op: &mut Operation, moved: impl Fn(u64) -> u64) {
    if let Operation::Renew { token, .. }
    | Operation::Release { token, .. }
    | Operation::Write { token, .. } = op
    {
        *token = moved(*token);
    }
}
