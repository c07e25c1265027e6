//! Checks whether a history could have happened one operation at a time (L3). It replays the
//! history in the order of revisions on a small model that has its own definition of overlap.
//!
//! The order is given, so the check takes O(n log n): an operation that changed something has its
//! revision, and an operation that changed nothing follows the event at its revision. Three
//! conditions must hold:
//!
//! - Each answer is the model's answer (L1, L2, L6, L7, L8, and L5 for expired leases).
//! - The order respects real time: an operation that began after another one was answered has no
//!   smaller revision.
//! - The log contains exactly the acknowledged operations (L4).

use std::collections::{BTreeMap, HashMap};

use super::history::{
    DAEMON_AGENT, LogEventKind, Operation, OperationAnswer, OperationRecord, RecordedHistory,
};
use super::pattern_universe::{self, PatternSet, PatternUniverse};

/// The law that a violation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BrokenLaw {
    /// Two holders of overlapping claims, or two live attempts (L1, J2).
    Exclusion,
    /// A token that does not rise, or that is not the revision of its grant (L2).
    Token,
    /// A stale or foreign token had an effect (L6, L8).
    Fence,
    /// An answer that was only true at another moment.
    Answer,
    /// The order of revisions contradicts real time.
    RealTime,
    /// An acknowledged operation is missing in the log, or the log has one that was never
    /// acknowledged (L4).
    Log,
    /// A lease ended before its time (L5).
    Expiry,
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct HistoryVerdict {
    pub(crate) violation_counts: BTreeMap<BrokenLaw, usize>,
    pub(crate) examples: Vec<String>,
    /// The revision at which each lease expired, and the earliest time for it.
    pub(crate) expiries: Vec<(u64, u64)>,
}

impl HistoryVerdict {
    pub(crate) fn violation_count(&self) -> usize {
        self.violation_counts.values().sum()
    }

    fn add_violation(&mut self, law: BrokenLaw, description: impl FnOnce() -> String) {
        *self.violation_counts.entry(law).or_default() += 1;
        if self.examples.len() < 5 {
            self.examples.push(format!("{law:?}: {}", description()));
        }
    }
}

struct HeldClaim {
    token: u64,
    patterns: Box<[u16]>,
    is_shared: bool,
    ttl_ms: u64,
    ends_fleet_ms: u64,
}

/// The sequential model: the holders of claims, and the live attempt of each slot.
struct Model<'a> {
    universe: &'a PatternUniverse,
    claims: HashMap<u64, HeldClaim>,
    by_pattern: Vec<Vec<u64>>,
    taken: PatternSet,
    last_token: u64,
    slots: Vec<Option<(u64, u64)>>,
}

/// Checks a history. `slots` are the live attempts of the slots at its beginning.
pub(crate) fn check_history(
    lake: &PatternUniverse,
    history: &RecordedHistory,
    slots: &[(u64, u64)],
) -> HistoryVerdict {
    let mut verdict = HistoryVerdict::default();
    let mut order: Vec<(u64, bool, u64, u32)> = history
        .records
        .iter()
        .zip(0..)
        .map(|(operation, nth)| {
            (
                operation.revision,
                expected_events(history, operation).is_empty(),
                operation.asked_ns,
                nth,
            )
        })
        .collect();
    order.sort_unstable();
    check_real_time(history, &order, &mut verdict);
    let mut model = Model {
        universe: lake,
        claims: HashMap::new(),
        by_pattern: vec![Vec::new(); lake.uris.len()],
        taken: PatternSet::default(),
        last_token: 0,
        slots: slots.iter().copied().map(Some).collect(),
    };
    let mut next = history.first_revision;
    for (revision, _, _, nth) in order {
        let record = &history.records[nth as usize];
        let expected = expected_events(history, record);
        let begins = (revision + 1).saturating_sub(expected.len() as u64);
        while next < begins {
            apply_unrequested_event(history, next, &mut model, &mut verdict);
            next += 1;
        }
        if !expected.is_empty() {
            let logged = next == begins
                && expected.iter().zip(begins..).all(|(want, revision)| {
                    history.entry(revision).is_some_and(|log| {
                        (log.kind, log.agent) == (want.0, record.agent) && log.subject == want.1
                    })
                });
            if !logged {
                verdict.add_violation(BrokenLaw::Log, || {
                    format!("acknowledged but not in the log: {record:?}")
                });
            }
            next = next.max(revision + 1);
        }
        let fleet_ms = history.entry(revision).map_or(0, |log| log.fleet_ms);
        if let Err((law, why)) = model.apply_operation(record, fleet_ms) {
            verdict.add_violation(law, || format!("{why}: {record:?}"));
        }
    }
    while history.entry(next).is_some() {
        apply_unrequested_event(history, next, &mut model, &mut verdict);
        next += 1;
    }
    verdict
}

/// Handles an event without an operation: an expired timer, or an event that was never
/// acknowledged.
fn apply_unrequested_event(
    history: &RecordedHistory,
    revision: u64,
    model: &mut Model,
    verdict: &mut HistoryVerdict,
) {
    match history.entry(revision) {
        Some(log) if log.agent == DAEMON_AGENT && log.kind == LogEventKind::Released => {
            match model.claims.get(&log.subject) {
                Some(held) => {
                    verdict.expiries.push((revision, held.ends_fleet_ms));
                    if log.fleet_ms < held.ends_fleet_ms {
                        verdict.add_violation(BrokenLaw::Expiry, || {
                            format!(
                                "C{} ended at {} and had until {}",
                                log.subject, log.fleet_ms, held.ends_fleet_ms
                            )
                        });
                    }
                    model.remove_claim(log.subject);
                }
                None => verdict.add_violation(BrokenLaw::Log, || {
                    format!(
                        "revision {revision} ends C{}, which is not held",
                        log.subject
                    )
                }),
            }
        }
        other => verdict.add_violation(BrokenLaw::Log, || {
            format!("revision {revision} was never acknowledged: {other:?}")
        }),
    }
}

/// Checks that an operation that began after an answer comes later in the order; strictly later if
/// it changed something.
fn check_real_time(
    history: &RecordedHistory,
    order: &[(u64, bool, u64, u32)],
    verdict: &mut HistoryVerdict,
) {
    let reads: HashMap<u32, bool> = order.iter().map(|order| (order.3, order.1)).collect();
    let mut by_asked: Vec<u32> = order.iter().map(|order| order.3).collect();
    let mut by_answered = by_asked.clone();
    by_asked.sort_unstable_by_key(|by_asked| history.records[*by_asked as usize].asked_ns);
    by_answered
        .sort_unstable_by_key(|by_answered| history.records[*by_answered as usize].answered_ns);
    let (mut answered, mut newest) = (by_answered.into_iter().peekable(), 0);
    for nth in by_asked {
        let record = &history.records[nth as usize];
        while let Some(before) = answered
            .next_if(|answered| history.records[*answered as usize].answered_ns < record.asked_ns)
        {
            newest = newest.max(history.records[before as usize].revision);
        }
        let read = reads.get(&nth).copied().unwrap_or(true);
        if record.revision < newest || (!read && record.revision == newest) {
            verdict.add_violation(BrokenLaw::RealTime, || {
                format!("revision {newest} was known before this was asked: {record:?}")
            });
        }
    }
}

/// Returns the events of an accepted operation, the last one at its revision; none if the operation
/// changes nothing.
fn expected_events(
    history: &RecordedHistory,
    record: &OperationRecord,
) -> Vec<(LogEventKind, u64)> {
    match (&record.operation, &record.answer) {
        (Operation::Acquire { .. }, OperationAnswer::Granted { claim, .. }) => {
            vec![(LogEventKind::Granted, *claim)]
        }
        (Operation::Renew { claim, .. }, OperationAnswer::Done) => {
            vec![(LogEventKind::Renewed, *claim)]
        }
        (Operation::Release { claim, .. }, OperationAnswer::Done) => {
            vec![(LogEventKind::Released, *claim)]
        }
        (Operation::Write { attempt, .. }, OperationAnswer::Done) => vec![
            (LogEventKind::Kept, *attempt),
            (LogEventKind::Written, *attempt),
        ],
        (Operation::Poll { .. }, OperationAnswer::Begun { attempt, .. }) => vec![
            (LogEventKind::Begun, *attempt),
            (LogEventKind::Started, *attempt),
        ],
        // Stopping an attempt that does not run is accepted and changes nothing. Only the log tells
        // the two cases apart.
        (Operation::Stop { slot }, OperationAnswer::Done) => match (
            history.entry(record.revision.saturating_sub(1)),
            history
                .entry(record.revision)
                .filter(|log| log.kind == LogEventKind::Returned && log.agent == record.agent),
        ) {
            (Some(ended), Some(log)) if log.subject == *slot as u64 + 1 => {
                vec![
                    (LogEventKind::Ended, ended.subject),
                    (LogEventKind::Returned, log.subject),
                ]
            }
            _ => vec![],
        },
        _ => vec![],
    }
}

impl Model<'_> {
    /// Returns the conflicting claims.
    fn conflicting_claims(&self, patterns: &[u16], shared: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for mine in patterns {
            for theirs in pattern_universe::common_bits(
                self.universe.overlaps[usize::from(*mine)],
                self.taken,
            ) {
                let live = self.by_pattern[theirs].iter();
                found.extend(live.filter(|live| {
                    !shared
                        || self
                            .claims
                            .get(live)
                            .is_some_and(|held_claim| !held_claim.is_shared)
                }));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn remove_claim(&mut self, claim: u64) {
        let Some(held) = self.claims.remove(&claim) else {
            return;
        };
        for pattern in held.patterns {
            let live = &mut self.by_pattern[usize::from(pattern)];
            live.retain(|live| *live != claim);
            pattern_universe::set_bit(&mut self.taken, usize::from(pattern), !live.is_empty());
        }
    }

    /// Applies one operation. An operation that breaks a law is not applied, so that one fault is
    /// not reported a thousand times.
    fn apply_operation(
        &mut self,
        record: &OperationRecord,
        at: u64,
    ) -> Result<(), (BrokenLaw, &'static str)> {
        match (&record.operation, &record.answer) {
            (
                Operation::Acquire {
                    patterns,
                    is_shared: shared,
                    ttl_ms,
                },
                OperationAnswer::Granted { claim, token },
            ) => {
                if !self.conflicting_claims(patterns, *shared).is_empty() {
                    return Err((BrokenLaw::Exclusion, "granted though held"));
                }
                if *token <= self.last_token || *token != record.revision {
                    return Err((BrokenLaw::Token, "a token that is not its grant's revision"));
                }
                self.last_token = *token;
                for pattern in patterns {
                    self.by_pattern[usize::from(*pattern)].push(*claim);
                    pattern_universe::set_bit(&mut self.taken, usize::from(*pattern), true);
                }
                let (patterns, ttl_ms) = (patterns.clone(), *ttl_ms);
                let held_claim = HeldClaim {
                    token: *token,
                    patterns,
                    is_shared: *shared,
                    ttl_ms,
                    ends_fleet_ms: at + ttl_ms,
                };
                match self.claims.insert(*claim, held_claim) {
                    Some(_) => Err((BrokenLaw::Token, "a claim id was used twice")),
                    None => Ok(()),
                }
            }
            (
                Operation::Acquire {
                    patterns,
                    is_shared: shared,
                    ..
                },
                OperationAnswer::Held(named),
            ) => {
                let mut named = named.clone();
                named.sort_unstable();
                match self.conflicting_claims(patterns, *shared) {
                    found if found.is_empty() => Err((BrokenLaw::Answer, "refused though free")),
                    found if found != named => Err((
                        BrokenLaw::Answer,
                        "the answer names other conflicting claims",
                    )),
                    _ => Ok(()),
                }
            }
            (Operation::Renew { claim, token }, OperationAnswer::Done) => {
                match self.claims.get_mut(claim) {
                    Some(held_claim) if held_claim.token == *token => {
                        held_claim.ends_fleet_ms = at + held_claim.ttl_ms;
                        Ok(())
                    }
                    _ => Err((BrokenLaw::Fence, "renewed a claim that is not held")),
                }
            }
            (Operation::Release { claim, token }, OperationAnswer::Done) => {
                match self.claims.get(claim) {
                    Some(held_claim) if held_claim.token == *token => {
                        self.remove_claim(*claim);
                        Ok(())
                    }
                    _ => Err((BrokenLaw::Fence, "released a claim that is not held")),
                }
            }
            (
                Operation::Renew { claim, .. } | Operation::Release { claim, .. },
                OperationAnswer::Ended,
            ) => match self.claims.get(claim) {
                Some(_) => Err((
                    BrokenLaw::Answer,
                    "answered that the claim has ended, but it is held",
                )),
                None => Ok(()),
            },
            (
                Operation::Renew { claim, token } | Operation::Release { claim, token },
                OperationAnswer::Stale,
            ) => match self.claims.get(claim) {
                Some(held_claim) if held_claim.token != *token => Ok(()),
                _ => Err((
                    BrokenLaw::Answer,
                    "answered that the token is stale, but it is not",
                )),
            },
            (
                Operation::Write {
                    slot,
                    attempt,
                    token,
                },
                OperationAnswer::Done,
            ) => match self.slots[*slot] {
                Some(live) if live == (*attempt, *token) => Ok(()),
                _ => Err((BrokenLaw::Fence, "a write with a stale token")),
            },
            (
                Operation::Write {
                    slot,
                    attempt,
                    token,
                },
                OperationAnswer::Stale,
            ) => match self.slots[*slot] {
                Some(live) if live == (*attempt, *token) => {
                    Err((BrokenLaw::Answer, "the live attempt was refused"))
                }
                _ => Ok(()),
            },
            (Operation::Stop { slot }, OperationAnswer::Done) => {
                self.slots[*slot] = None;
                Ok(())
            }
            (Operation::Poll { slot }, OperationAnswer::Begun { attempt, token }) => {
                if self.slots[*slot].is_some() {
                    return Err((BrokenLaw::Exclusion, "a second live attempt"));
                }
                if *token <= self.last_token || *token + 1 != record.revision {
                    return Err((BrokenLaw::Token, "a token that is not its grant's revision"));
                }
                self.last_token = *token;
                self.slots[*slot] = Some((*attempt, *token));
                Ok(())
            }
            (Operation::Poll { slot }, OperationAnswer::Nothing) => match self.slots[*slot] {
                Some(_) => Ok(()),
                None => Err((
                    BrokenLaw::Answer,
                    "answered that there is no task, but there was one",
                )),
            },
            _ => Err((BrokenLaw::Answer, "no rule gives this answer")),
        }
    }
}
