//! A million operations on claims by 500 agents, and the check that they could have happened one by
//! one (L3).
//!
//! The run uses the engine and SQLite as shipped. Everything that the agents saw is checked against
//! a model that shares no code with core (`checker`, `lake`). Afterwards the same checker must find
//! every planted fault.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use regatta_core::claim::{Acquire, Acquired, Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome, Request};
use regatta_core::ids::{AgentName, AttemptId, BranchName, ClaimId, ProjectName, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::schedule::Poll;
use regatta_core::task::{Add, How, IssueType};
use regatta_core::{agent, fleet, project};
use regatta_engine::{Engine, Failure};

use super::board::task;
use super::checker::check;
use super::history::{Answer, History, Op, Record, read_log};
use super::lake::Lake;
use super::plant::{FAULTS, plant};
use crate::args::Args;
use crate::dice::Dice;
use crate::report::{Report, Times, ms, thousands};
use crate::world::{self, Kind};

/// Attempts whose tokens guard writes.
const SLOTS: usize = 20;
/// The lifetime of leases that are meant to expire.
const BRIEF_MS: u64 = 40;
/// How long a lease may outlive its time before the run is aborted.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// The number of agents that begin with a lease and never renew it.
const FORGETFUL: u32 = 20;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (ops, agents): (usize, usize) = (args.number("ops", 1_000_000)?, args.number("agents", 500)?);
    let (seed, only) = (args.number("seed", 1)?, args.text("plant"));
    if let Some(fault) = only {
        ensure!(FAULTS.iter().any(|it| it.0 == fault), "unknown fault {fault:?}; the faults are {FAULTS:?}");
    }
    let scratch = args.scratch()?;
    let mut report = Report::new("linearizable", args);
    let lake = Lake::new()?;
    let (wrong, pairs) = lake.disagreements();
    report.say(format!(
        "{} operations by {agents} agents on {} patterns (of them {} files) and {SLOTS} guarded slots, seed {seed}",
        thousands(ops as u64),
        lake.uris.len(),
        lake.files
    ));
    report.demand(wrong == 0, format!("{wrong}/{} pairs of patterns differ from brute force", thousands(pairs as u64)));

    let run = drive(Kind::Sqlite, scratch.path(), &Arc::new(lake), ops, agents, seed)?;
    let count = run.history.records.len();
    let rate = count as f64 / run.seconds;
    let mut times = Times::default();
    for it in &run.history.records {
        times.add(std::time::Duration::from_nanos(it.answered - it.asked));
    }
    report.value("ops", count);
    report.value("ops_per_second", rate);
    report.say(format!(
        "ran in {:.1} s: {} ops/s, p50 {}, p99 {}, max {}; {} events in {} commits; {}",
        run.seconds,
        thousands(rate as u64),
        ms(times.at(0.5)),
        ms(times.at(0.99)),
        ms(times.at(1.0)),
        thousands(run.history.log.len() as u64),
        thousands(run.commits),
        census(&run.history)
    ));
    report.demand(run.sound, "the store's own check passes (D3)");
    report.demand(run.folded, format!("applying all {} events gives the board (D4)", thousands(run.events)));
    report.demand(
        run.reloaded,
        "a newly opened store loads the same board (D1, after a clean end without a power cut)",
    );

    let began = Instant::now();
    let truth = check(&run.lake, &run.history, &run.slots);
    let found = truth.violations();
    report.value("violations", found);
    report.demand(
        found == 0,
        format!(
            "{found}/{} violations (95 % upper bound {:.1e}), checked in {:.2} s; {} leases expired",
            thousands(count as u64),
            3.84 / count.max(1) as f64,
            began.elapsed().as_secs_f64(),
            truth.expiries.len()
        ),
    );
    for example in &truth.examples {
        report.say(format!("         {example}"));
    }
    for (fault, law) in FAULTS.into_iter().filter(|it| only.is_none_or(|only| only == it.0)) {
        let mut planted = run.history.clone();
        let many = plant(&mut planted, fault, 5_003, &truth);
        let verdict = check(&run.lake, &planted, &run.slots);
        let caught = verdict.counts.get(&law).copied().unwrap_or(0);
        let others = verdict.violations() - caught;
        report.demand(
            many > 0 && caught >= many,
            format!("planted {fault}: {many} faults, {caught} violations of {law:?} and {others} others"),
        );
    }
    report.end()
}

fn census(history: &History) -> String {
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for it in &history.records {
        let kind = match (&it.op, &it.answer) {
            (Op::Acquire { .. }, Answer::Granted { .. }) => "granted",
            (Op::Acquire { .. }, _) => "held",
            (Op::Renew { .. }, Answer::Done) => "renewed",
            (Op::Release { .. }, Answer::Done) => "released",
            (Op::Renew { .. } | Op::Release { .. }, _) => "refused by token",
            (Op::Write { .. }, Answer::Done) => "written",
            (Op::Write { .. }, _) => "writes fenced",
            (Op::Stop { .. } | Op::Poll { .. }, _) => "hand-overs",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds.iter().map(|(kind, many)| format!("{many} {kind}")).collect::<Vec<_>>().join(", ")
}

/// The result of a run.
pub(crate) struct Run {
    lake: Arc<Lake>,
    history: History,
    /// The attempts at the beginning of the run.
    slots: Vec<(u64, u64)>,
    seconds: f64,
    commits: u64,
    events: u64,
    sound: bool,
    folded: bool,
    reloaded: bool,
}

/// The state that all agents share: claims and tokens of others, for attempts to misuse them.
struct Shared {
    engine: Engine,
    lake: Arc<Lake>,
    began: Instant,
    left: AtomicUsize,
    slots: Vec<Mutex<(u64, u64)>>,
    seen: Mutex<Vec<(u64, u64)>>,
}

pub(crate) fn drive(
    kind: Kind,
    dir: &Path,
    lake: &Arc<Lake>,
    ops: usize,
    agents: usize,
    seed: u64,
) -> anyhow::Result<Run> {
    let (engine, counts) = world::engine(kind, dir)?;
    let slots = set_up(&engine)?;
    let first = engine.board().revision + 1;
    let commits = counts.commits.load(Relaxed);
    let shared = Arc::new(Shared {
        engine: engine.clone(),
        lake: lake.clone(),
        began: Instant::now(),
        left: AtomicUsize::new(ops),
        slots: slots.iter().copied().map(Mutex::new).collect(),
        seen: Mutex::new(Vec::new()),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let mut records = Vec::with_capacity(ops);
    let ran: anyhow::Result<()> = runtime.block_on(async {
        let tasks: Vec<_> = (0..agents as u32).map(|it| tokio::spawn(work(shared.clone(), it, seed))).collect();
        for task in tasks {
            records.extend(task.await.context("an agent panicked")??);
        }
        // Wait until all leases that nobody renews have expired.
        let mut board = engine.watch();
        while board.borrow_and_update().claims.values().any(|it| it.ttl_ms == Some(BRIEF_MS)) {
            tokio::time::timeout(PATIENCE, board.changed()).await.context("a lease does not expire")??;
        }
        Ok(())
    });
    ran?;
    let seconds = shared.began.elapsed().as_secs_f64();
    let commits = counts.commits.load(Relaxed) - commits;
    let sound = runtime.block_on(engine.check()).is_ok();
    let history = engine.history().clone();
    engine.shutdown();
    let board = engine.board();
    let (log, folded) = read_log(&history, first - 1)?;
    let reloaded = match kind {
        Kind::Sqlite => {
            let mut store = regatta_store::SqliteStore::open(&dir.join("regatta.db"))?;
            regatta_engine::ports::store::Store::load(&mut store)?.board == *board
        }
        Kind::Memory => true,
    };
    Ok(Run {
        lake: lake.clone(),
        history: History { records, log, first },
        slots,
        seconds,
        commits,
        events: board.revision,
        sound,
        folded: folded == *board,
        reloaded,
    })
}

fn ask(engine: &Engine, command: Command) -> anyhow::Result<Outcome> {
    Ok(engine.submit(Request { by: Actor::Person("bench".into()), key: None, command })?.outcome)
}

/// Creates a project with one task per slot, each with an attempt.
fn set_up(engine: &Engine) -> anyhow::Result<Vec<(u64, u64)>> {
    let name = ProjectName::new("lake")?;
    let add = project::Add {
        name: name.clone(),
        location: crate::world::PLACE.into(),
        trunk: BranchName::new("main")?,
        validation: vec![],
        validation_timeout_ms: 60_000,
        settings: project::Settings::default(),
    };
    ask(engine, Command::AddProject(add))?;
    ask(engine, Command::SetLimits { limits: fleet::Limits { max_attempts: SLOTS as u32, ..Default::default() } })?;
    let mut slots = Vec::new();
    for slot in 0..SLOTS {
        let register = agent::Register {
            name: keeper(slot)?,
            runtime: agent::Runtime::Outside,
            role: agent::Role::Worker,
            provider: None,
            profile: regatta_core::agent::Profile::default(),
            description: String::new(),
            max_tasks: 1,
        };
        ask(engine, Command::RegisterAgent(register))?;
        // A chore without files, so that its attempts hold no claims.
        let task = Add { issue_type: IssueType::Chore, ..task(&name, format!("Keep slot {slot}")) };
        ask(engine, Command::AddTask { task, assign: Some(keeper(slot)?), how: How::Direct })?;
        match ask(engine, Command::Poll(poll(slot)?))? {
            Outcome::Polled(Some(it)) => slots.push((it.attempt.0, it.token)),
            other => bail!("slot {slot} got no attempt: {other:?}"),
        }
    }
    Ok(slots)
}

fn keeper(slot: usize) -> anyhow::Result<AgentName> {
    Ok(AgentName::new(&format!("keeper-{slot}"))?)
}

fn poll(slot: usize) -> anyhow::Result<Poll> {
    Ok(Poll { lease_ms: Some(3_600_000), ..Poll::of(keeper(slot)?) })
}

/// Runs one agent: an operation, its answer, the next operation.
async fn work(shared: Arc<Shared>, number: u32, seed: u64) -> anyhow::Result<Vec<Record>> {
    let name = AgentName::new(&format!("agent-{number}"))?;
    let mut dice = Dice::new(seed ^ (u64::from(number) << 32));
    let (mut held, mut records): (Vec<(u64, u64)>, Vec<Record>) = (Vec::new(), Vec::new());
    while shared.left.fetch_update(Relaxed, Relaxed, |it| it.checked_sub(1)).is_ok() {
        let forgetful = records.is_empty() && number < FORGETFUL;
        let op = if forgetful {
            Op::Acquire { patterns: [number as u16 * 2].into(), shared: false, ttl_ms: BRIEF_MS }
        } else {
            choose(&shared, &mut dice, &held)
        };
        let request =
            Request { by: Actor::Agent(name.clone()), key: None, command: command(&shared.lake, &name, &op)? };
        let asked = shared.began.elapsed().as_nanos() as u64;
        let reply = shared.engine.ask(request).await;
        let answered = shared.began.elapsed().as_nanos() as u64;
        let (answer, revision) = match reply {
            Ok(it) => (accepted(&op, it.outcome), it.revision),
            Err(Failure::Refused { refusal, revision }) => (refused(refusal), revision),
            Err(other) => return Err(other.into()),
        };
        match (&op, &answer) {
            (Op::Acquire { .. }, Answer::Granted { claim, token }) => {
                if !forgetful {
                    held.push((*claim, *token));
                }
                let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let nth = dice.below(1_000);
                if seen.len() < 1_000 { seen.push((*claim, *token)) } else { seen[nth] = (*claim, *token) }
            }
            (Op::Release { claim, .. }, Answer::Done | Answer::Ended) | (Op::Renew { claim, .. }, Answer::Ended) => {
                held.retain(|it| it.0 != *claim);
            }
            (Op::Poll { slot }, Answer::Begun { attempt, token }) => {
                *shared.slots[*slot].lock().unwrap_or_else(PoisonError::into_inner) = (*attempt, *token);
            }
            _ => {}
        }
        records.push(Record { agent: number, asked, answered, op, answer, revision });
    }
    Ok(records)
}

fn choose(shared: &Shared, dice: &mut Dice, held: &[(u64, u64)]) -> Op {
    let lake = &shared.lake;
    let slot = dice.below(SLOTS);
    let what = dice.below(1_000);
    let own = dice.pick(held).copied();
    match (what, own) {
        (0..4, _) => Op::Stop { slot },
        (4..14, _) => Op::Poll { slot },
        (14..114, _) => {
            let (attempt, token) = *shared.slots[slot].lock().unwrap_or_else(PoisonError::into_inner);
            // Sometimes use an old token, or a guess.
            Op::Write { slot, attempt, token: if dice.percent(5) { token - 1 } else { token } }
        }
        (114..154, _) => {
            // Use somebody else's claim with a wrong token, or a claim that has ended.
            let seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let (claim, token) = dice.pick(&seen).copied().unwrap_or((1, 1));
            match what % 2 {
                0 => Op::Release { claim, token: token + 1 },
                _ => Op::Renew { claim, token: token + 1 },
            }
        }
        (154..400, Some((claim, token))) => Op::Renew { claim, token },
        (400..750, Some((claim, token))) => Op::Release { claim, token },
        (_, Some((claim, token))) if held.len() >= 2 => Op::Release { claim, token },
        _ => {
            let wide = dice.percent(12);
            let many = if dice.percent(15) { 2 + dice.below(2) } else { 1 };
            let patterns =
                (0..many)
                    .map(|_| {
                        if wide {
                            lake.files + dice.below(lake.uris.len() - lake.files)
                        } else {
                            dice.below(lake.files)
                        }
                    })
                    .map(|it| it as u16)
                    .collect();
            let ttl_ms = if dice.percent(3) { BRIEF_MS } else { 3_600_000 };
            Op::Acquire { patterns, shared: dice.percent(25), ttl_ms }
        }
    }
}

fn command(lake: &Lake, name: &AgentName, op: &Op) -> anyhow::Result<Command> {
    Ok(match op {
        Op::Acquire { patterns, shared, ttl_ms } => Command::Acquire(Acquire {
            owner: Owner::Agent(name.clone()),
            uris: patterns.iter().map(|it| lake.uris[usize::from(*it)].clone()).collect(),
            mode: if *shared { Mode::Shared } else { Mode::Exclusive },
            ttl_ms: *ttl_ms,
            wait_ms: 0,
            memo: String::new(),
        }),
        Op::Renew { claim, token } => Command::Renew { claim: ClaimId(*claim), token: *token },
        Op::Release { claim, token } => Command::Release { claim: ClaimId(*claim), token: *token },
        Op::Write { slot, attempt, token } => Command::Progress {
            task: TaskId(*slot as u64 + 1),
            attempt: AttemptId(*attempt),
            token: *token,
            text: "half of it is done".into(),
        },
        Op::Stop { slot } => {
            Command::StopTask { task: TaskId(*slot as u64 + 1), reason: "hand it over".into(), pause: false }
        }
        Op::Poll { slot } => Command::Poll(poll(*slot)?),
    })
}

fn accepted(op: &Op, outcome: Outcome) -> Answer {
    match (op, outcome) {
        (Op::Acquire { .. }, Outcome::Claim(Acquired::Granted { claim, token, .. })) => {
            Answer::Granted { claim: claim.0, token }
        }
        (Op::Renew { .. }, Outcome::Renewed { .. }) => Answer::Done,
        (Op::Release { .. } | Op::Write { .. } | Op::Stop { .. }, Outcome::Done) => Answer::Done,
        (Op::Poll { .. }, Outcome::Polled(Some(it))) => Answer::Begun { attempt: it.attempt.0, token: it.token },
        (Op::Poll { .. }, Outcome::Polled(None)) => Answer::Nothing,
        (_, other) => Answer::Odd(format!("{other:?}")),
    }
}

fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::ClaimHeld { holders } => {
            Answer::Held(holders.iter().filter_map(|it| it.claim).map(|it| it.0).collect())
        }
        Refusal::ClaimEnded { .. } => Answer::Ended,
        Refusal::StaleClaimToken { .. } | Refusal::StaleAttempt { .. } => Answer::Stale,
        other => Answer::Odd(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brute_force_and_core_agree_on_every_pair() {
        assert_eq!(Lake::new().unwrap().disagreements().0, 0);
    }

    /// L3 on a small scale, with all planted faults found. `cargo xtask bench linearizable` does a
    /// million operations.
    #[test]
    fn l3_claims_are_linearizable_and_planted_faults_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let run = drive(Kind::Memory, dir.path(), &Arc::new(Lake::new().unwrap()), 10_000, 50, 7).unwrap();
        let truth = check(&run.lake, &run.history, &run.slots);
        assert_eq!(truth.violations(), 0, "{:?}", truth.examples);
        assert!(run.folded && run.sound);
        assert_eq!(run.history.records.len(), 10_000);
        for (fault, law) in FAULTS {
            let mut planted = run.history.clone();
            let many = plant(&mut planted, fault, 101, &truth);
            let verdict = check(&run.lake, &planted, &run.slots);
            let caught = verdict.counts.get(&law).copied().unwrap_or(0);
            assert!(many > 0 && caught >= many, "{fault}: {many} planted, {:?} found", verdict.counts);
        }
    }
}
