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

use super::history::{Answer, History, Kind, Op, REGATTA, Record};
use super::lake::{self, Bits, Lake};

/// The law that a violation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
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
pub(crate) struct Verdict {
    pub(crate) counts: BTreeMap<Law, usize>,
    pub(crate) examples: Vec<String>,
    /// The revision at which each lease expired, and the earliest time for it.
    pub(crate) expiries: Vec<(u64, u64)>,
}

impl Verdict {
    pub(crate) fn violations(&self) -> usize {
        self.counts.values().sum()
    }

    fn blame(&mut self, law: Law, what: impl FnOnce() -> String) {
        *self.counts.entry(law).or_default() += 1;
        if self.examples.len() < 5 {
            self.examples.push(format!("{law:?}: {}", what()));
        }
    }
}

struct Held {
    token: u64,
    patterns: Box<[u16]>,
    shared: bool,
    ttl_ms: u64,
    ends_at: u64,
}

/// The sequential model: the holders of claims, and the live attempt of each slot.
struct Model<'a> {
    lake: &'a Lake,
    claims: HashMap<u64, Held>,
    by_pattern: Vec<Vec<u64>>,
    any: Bits,
    last_token: u64,
    slots: Vec<Option<(u64, u64)>>,
}

/// Checks a history. `slots` are the live attempts of the slots at its beginning.
pub(crate) fn check(lake: &Lake, history: &History, slots: &[(u64, u64)]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut order: Vec<(u64, bool, u64, u32)> = history
        .records
        .iter()
        .zip(0..)
        .map(|(it, nth)| (it.revision, expects(history, it).is_empty(), it.asked, nth))
        .collect();
    order.sort_unstable();
    real_time(history, &order, &mut verdict);
    let mut model = Model {
        lake,
        claims: HashMap::new(),
        by_pattern: vec![Vec::new(); lake.uris.len()],
        any: Bits::default(),
        last_token: 0,
        slots: slots.iter().copied().map(Some).collect(),
    };
    let mut next = history.first;
    for (revision, _, _, nth) in order {
        let record = &history.records[nth as usize];
        let expected = expects(history, record);
        let begins = (revision + 1).saturating_sub(expected.len() as u64);
        while next < begins {
            unasked(history, next, &mut model, &mut verdict);
            next += 1;
        }
        if !expected.is_empty() {
            let logged = next == begins
                && expected.iter().zip(begins..).all(|(want, revision)| {
                    history
                        .entry(revision)
                        .is_some_and(|it| (it.kind, it.by) == (want.0, record.agent) && it.subject == want.1)
                });
            if !logged {
                verdict.blame(Law::Log, || format!("acknowledged but not in the log: {record:?}"));
            }
            next = next.max(revision + 1);
        }
        let at = history.entry(revision).map_or(0, |it| it.at);
        if let Err((law, why)) = model.step(record, at) {
            verdict.blame(law, || format!("{why}: {record:?}"));
        }
    }
    while history.entry(next).is_some() {
        unasked(history, next, &mut model, &mut verdict);
        next += 1;
    }
    verdict
}

/// Handles an event without an operation: an expired timer, or an event that was never
/// acknowledged.
fn unasked(history: &History, revision: u64, model: &mut Model, verdict: &mut Verdict) {
    match history.entry(revision) {
        Some(it) if it.by == REGATTA && it.kind == Kind::Released => match model.claims.get(&it.subject) {
            Some(held) => {
                verdict.expiries.push((revision, held.ends_at));
                if it.at < held.ends_at {
                    verdict.blame(Law::Expiry, || {
                        format!("C{} ended at {} and had until {}", it.subject, it.at, held.ends_at)
                    });
                }
                model.forget(it.subject);
            }
            None => verdict.blame(Law::Log, || format!("revision {revision} ends C{}, which is not held", it.subject)),
        },
        other => verdict.blame(Law::Log, || format!("revision {revision} was never acknowledged: {other:?}")),
    }
}

/// Checks that an operation that began after an answer comes later in the order; strictly later if
/// it changed something.
fn real_time(history: &History, order: &[(u64, bool, u64, u32)], verdict: &mut Verdict) {
    let reads: HashMap<u32, bool> = order.iter().map(|it| (it.3, it.1)).collect();
    let mut by_asked: Vec<u32> = order.iter().map(|it| it.3).collect();
    let mut by_answered = by_asked.clone();
    by_asked.sort_unstable_by_key(|it| history.records[*it as usize].asked);
    by_answered.sort_unstable_by_key(|it| history.records[*it as usize].answered);
    let (mut answered, mut newest) = (by_answered.into_iter().peekable(), 0);
    for nth in by_asked {
        let record = &history.records[nth as usize];
        while let Some(before) = answered.next_if(|it| history.records[*it as usize].answered < record.asked) {
            newest = newest.max(history.records[before as usize].revision);
        }
        let read = reads.get(&nth).copied().unwrap_or(true);
        if record.revision < newest || (!read && record.revision == newest) {
            verdict.blame(Law::RealTime, || format!("revision {newest} was known before this was asked: {record:?}"));
        }
    }
}

/// Returns the events of an accepted operation, the last one at its revision; none if the operation
/// changes nothing.
fn expects(history: &History, record: &Record) -> Vec<(Kind, u64)> {
    match (&record.op, &record.answer) {
        (Op::Acquire { .. }, Answer::Granted { claim, .. }) => vec![(Kind::Granted, *claim)],
        (Op::Renew { claim, .. }, Answer::Done) => vec![(Kind::Renewed, *claim)],
        (Op::Release { claim, .. }, Answer::Done) => vec![(Kind::Released, *claim)],
        (Op::Write { attempt, .. }, Answer::Done) => vec![(Kind::Kept, *attempt), (Kind::Written, *attempt)],
        (Op::Poll { .. }, Answer::Begun { attempt, .. }) => vec![(Kind::Begun, *attempt), (Kind::Started, *attempt)],
        // Stopping an attempt that does not run is accepted and changes nothing. Only the log tells
        // the two cases apart.
        (Op::Stop { slot }, Answer::Done) => match (
            history.entry(record.revision.saturating_sub(1)),
            history.entry(record.revision).filter(|it| it.kind == Kind::Returned && it.by == record.agent),
        ) {
            (Some(ended), Some(it)) if it.subject == *slot as u64 + 1 => {
                vec![(Kind::Ended, ended.subject), (Kind::Returned, it.subject)]
            }
            _ => vec![],
        },
        _ => vec![],
    }
}

impl Model<'_> {
    /// Returns the conflicting claims.
    fn in_the_way(&self, patterns: &[u16], shared: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for mine in patterns {
            for theirs in lake::common(self.lake.overlaps[usize::from(*mine)], self.any) {
                let live = self.by_pattern[theirs].iter();
                found.extend(live.filter(|it| !shared || self.claims.get(it).is_some_and(|it| !it.shared)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn forget(&mut self, claim: u64) {
        let Some(held) = self.claims.remove(&claim) else { return };
        for it in held.patterns {
            let live = &mut self.by_pattern[usize::from(it)];
            live.retain(|it| *it != claim);
            lake::set(&mut self.any, usize::from(it), !live.is_empty());
        }
    }

    /// Applies one operation. An operation that breaks a law is not applied, so that one fault is
    /// not reported a thousand times.
    fn step(&mut self, record: &Record, at: u64) -> Result<(), (Law, &'static str)> {
        match (&record.op, &record.answer) {
            (Op::Acquire { patterns, shared, ttl_ms }, Answer::Granted { claim, token }) => {
                if !self.in_the_way(patterns, *shared).is_empty() {
                    return Err((Law::Exclusion, "granted though held"));
                }
                if *token <= self.last_token || *token != record.revision {
                    return Err((Law::Token, "a token that is not its grant's revision"));
                }
                self.last_token = *token;
                for it in patterns {
                    self.by_pattern[usize::from(*it)].push(*claim);
                    lake::set(&mut self.any, usize::from(*it), true);
                }
                let (patterns, ttl_ms) = (patterns.clone(), *ttl_ms);
                let held = Held { token: *token, patterns, shared: *shared, ttl_ms, ends_at: at + ttl_ms };
                match self.claims.insert(*claim, held) {
                    Some(_) => Err((Law::Token, "a claim id was used twice")),
                    None => Ok(()),
                }
            }
            (Op::Acquire { patterns, shared, .. }, Answer::Held(named)) => {
                let mut named = named.clone();
                named.sort_unstable();
                match self.in_the_way(patterns, *shared) {
                    found if found.is_empty() => Err((Law::Answer, "refused though free")),
                    found if found != named => Err((Law::Answer, "the answer names other conflicting claims")),
                    _ => Ok(()),
                }
            }
            (Op::Renew { claim, token }, Answer::Done) => match self.claims.get_mut(claim) {
                Some(held) if held.token == *token => {
                    held.ends_at = at + held.ttl_ms;
                    Ok(())
                }
                _ => Err((Law::Fence, "renewed a claim that is not held")),
            },
            (Op::Release { claim, token }, Answer::Done) => match self.claims.get(claim) {
                Some(held) if held.token == *token => {
                    self.forget(*claim);
                    Ok(())
                }
                _ => Err((Law::Fence, "released a claim that is not held")),
            },
            (Op::Renew { claim, .. } | Op::Release { claim, .. }, Answer::Ended) => match self.claims.get(claim) {
                Some(_) => Err((Law::Answer, "answered that the claim has ended, but it is held")),
                None => Ok(()),
            },
            (Op::Renew { claim, token } | Op::Release { claim, token }, Answer::Stale) => {
                match self.claims.get(claim) {
                    Some(held) if held.token != *token => Ok(()),
                    _ => Err((Law::Answer, "answered that the token is stale, but it is not")),
                }
            }
            (Op::Write { slot, attempt, token }, Answer::Done) => match self.slots[*slot] {
                Some(live) if live == (*attempt, *token) => Ok(()),
                _ => Err((Law::Fence, "a write with a stale token")),
            },
            (Op::Write { slot, attempt, token }, Answer::Stale) => match self.slots[*slot] {
                Some(live) if live == (*attempt, *token) => Err((Law::Answer, "the live attempt was refused")),
                _ => Ok(()),
            },
            (Op::Stop { slot }, Answer::Done) => {
                self.slots[*slot] = None;
                Ok(())
            }
            (Op::Poll { slot }, Answer::Begun { attempt, token }) => {
                if self.slots[*slot].is_some() {
                    return Err((Law::Exclusion, "a second live attempt"));
                }
                if *token <= self.last_token || *token + 1 != record.revision {
                    return Err((Law::Token, "a token that is not its grant's revision"));
                }
                self.last_token = *token;
                self.slots[*slot] = Some((*attempt, *token));
                Ok(())
            }
            (Op::Poll { slot }, Answer::Nothing) => match self.slots[*slot] {
                Some(_) => Ok(()),
                None => Err((Law::Answer, "answered that there is no task, but there was one")),
            },
            _ => Err((Law::Answer, "no rule gives this answer")),
        }
    }
}
