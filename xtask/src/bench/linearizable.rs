//! A million operations on claims by 500 agents, and the check that they could have happened one by
//! one (L3).
//!
//! The run uses the engine and SQLite as shipped. Everything that the agents saw is checked against
//! a model that shares no code with core (`checker`, `pattern_universe`). Afterwards the same checker must find
//! every planted fault.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Request};
use regatta_core::ids::{AgentName, AttemptId, BranchName, ClaimId, ProjectName, TaskId};
use regatta_core::refusal::Refusal;
use regatta_core::schedule::PollRequest;
use regatta_core::task::{AddTask, AssignMode, IssueType};
use regatta_core::{agent, limits, project};
use regatta_engine::{CommandFailure, Engine};

use super::board::plain_task;
use super::checker::check_history;
use super::history::{Operation, OperationAnswer, OperationRecord, RecordedHistory, read_log};
use super::pattern_universe::PatternUniverse;
use super::planted_faults::{PLANTED_FAULTS, plant_fault};
use crate::args::Args;
use crate::bench_engine::{self, StoreKind};
use crate::report::{Report, Times, format_ms, format_thousands};
use crate::rng::Rng;

/// Attempts whose tokens guard writes.
const SLOT_COUNT: usize = 20;
/// The lifetime of leases that are meant to expire.
const SHORT_TTL_MS: u64 = 40;
/// The time that a lease may outlive its end before the run is aborted.
const MAX_LEASE_OVERTIME: std::time::Duration = std::time::Duration::from_secs(30);
/// The number of agents that begin with a lease and never renew it.
const FORGETFUL_AGENTS: u32 = 20;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (ops, agents): (usize, usize) =
        (args.number("ops", 1_000_000)?, args.number("agents", 500)?);
    let (seed, only) = (args.number("seed", 1)?, args.text("plant"));
    if let Some(fault) = only {
        ensure!(
            PLANTED_FAULTS.iter().any(|(name, _)| *name == fault),
            "unknown fault {fault:?}; the faults are {PLANTED_FAULTS:?}"
        );
    }
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("linearizable", args);
    let universe = PatternUniverse::new()?;
    let (wrong, pairs) = universe.disagreements();
    report.add_line(format!(
        "{} operations by {agents} agents on {} patterns (of them {} files) and {SLOT_COUNT} \
        guarded slots, seed {seed}",
        format_thousands(ops as u64),
        universe.uris.len(),
        universe.file_count
    ));
    report.require(
        wrong == 0,
        format!(
            "{wrong}/{} pairs of patterns differ from brute force",
            format_thousands(pairs as u64)
        ),
    );

    let run = run_agents(
        StoreKind::Sqlite,
        scratch.path(),
        &Arc::new(universe),
        ops,
        agents,
        seed,
    )?;
    let count = run.history.records.len();
    let rate = count as f64 / run.seconds;
    let mut times = Times::default();
    for operation in &run.history.records {
        times.add(std::time::Duration::from_nanos(
            operation.answered_ns - operation.asked_ns,
        ));
    }
    report.set_value("ops", count);
    report.set_value("ops_per_second", rate);
    report.add_line(format!(
        "ran in {:.1} s: {} ops/s, p50 {}, p99 {}, max {}; {} events in {} commits; {}",
        run.seconds,
        format_thousands(rate as u64),
        format_ms(times.percentile(0.5)),
        format_ms(times.percentile(0.99)),
        format_ms(times.percentile(1.0)),
        format_thousands(run.history.log.len() as u64),
        format_thousands(run.commits),
        operation_counts(&run.history)
    ));
    report.require(run.is_store_sound, "the store's own check passes (D3)");
    report.require(
        run.does_fold_match,
        format!(
            "applying all {} events gives the board (D4)",
            format_thousands(run.events)
        ),
    );
    report.require(
        run.does_reload_match,
        "a newly opened store loads the same board (D1, after a clean end without a power cut)",
    );

    let began = Instant::now();
    let truth = check_history(&run.universe, &run.history, &run.first_attempts);
    let found = truth.violation_count();
    report.set_value("violations", found);
    report.require(
        found == 0,
        format!(
            "{found}/{} violations (95 % upper bound {:.1e}), checked in {:.2} s; {} leases \
            expired",
            format_thousands(count as u64),
            3.84 / count.max(1) as f64,
            began.elapsed().as_secs_f64(),
            truth.expiries.len()
        ),
    );
    for example in &truth.examples {
        report.add_line(format!("         {example}"));
    }
    for (fault, law) in PLANTED_FAULTS
        .into_iter()
        .filter(|pair| only.is_none_or(|only| only == pair.0))
    {
        let mut planted = run.history.clone();
        let many = plant_fault(&mut planted, fault, 5_003, &truth);
        let verdict = check_history(&run.universe, &planted, &run.first_attempts);
        let caught = verdict.violation_counts.get(&law).copied().unwrap_or(0);
        let others = verdict.violation_count() - caught;
        report.require(
            many > 0 && caught >= many,
            format!(
                "planted {fault}: {many} faults, {caught} violations of {law:?} and {others} others"
            ),
        );
    }
    report.finish()
}

fn operation_counts(history: &RecordedHistory) -> String {
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for operation in &history.records {
        let kind = match (&operation.operation, &operation.answer) {
            (Operation::Acquire { .. }, OperationAnswer::Granted { .. }) => "granted",
            (Operation::Acquire { .. }, _) => "held",
            (Operation::Renew { .. }, OperationAnswer::Done) => "renewed",
            (Operation::Release { .. }, OperationAnswer::Done) => "released",
            (Operation::Renew { .. } | Operation::Release { .. }, _) => "refused by token",
            (Operation::Write { .. }, OperationAnswer::Done) => "written",
            (Operation::Write { .. }, _) => "writes fenced",
            (Operation::Stop { .. } | Operation::Poll { .. }, _) => "hand-overs",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
        .iter()
        .map(|(kind, many)| format!("{many} {kind}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The result of a run.
pub(crate) struct LinearizabilityRun {
    universe: Arc<PatternUniverse>,
    history: RecordedHistory,
    /// The attempts at the beginning of the run.
    first_attempts: Vec<(u64, u64)>,
    seconds: f64,
    commits: u64,
    events: u64,
    is_store_sound: bool,
    does_fold_match: bool,
    does_reload_match: bool,
}

/// The state that all agents share: claims and tokens of others, for attempts to misuse them.
struct Shared {
    engine: Engine,
    universe: Arc<PatternUniverse>,
    began: Instant,
    operations_left: AtomicUsize,
    slots: Vec<Mutex<(u64, u64)>>,
    foreign_claims: Mutex<Vec<(u64, u64)>>,
}

pub(crate) fn run_agents(
    kind: StoreKind,
    dir: &Path,
    universe: &Arc<PatternUniverse>,
    ops: usize,
    agents: usize,
    seed: u64,
) -> anyhow::Result<LinearizabilityRun> {
    let (engine, counts) = bench_engine::start_engine(kind, dir)?;
    let slots = set_up_slots(&engine)?;
    let first = engine.board().revision + 1;
    let commits = counts.commits.load(Relaxed);
    let shared = Arc::new(Shared {
        engine: engine.clone(),
        universe: universe.clone(),
        began: Instant::now(),
        operations_left: AtomicUsize::new(ops),
        slots: slots.iter().copied().map(Mutex::new).collect(),
        foreign_claims: Mutex::new(Vec::new()),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let mut records = Vec::with_capacity(ops);
    let ran: anyhow::Result<()> = runtime.block_on(async {
        let tasks: Vec<_> = (0..agents as u32)
            .map(|agent| tokio::spawn(run_agent(shared.clone(), agent, seed)))
            .collect();
        for task in tasks {
            records.extend(task.await.context("an agent panicked")??);
        }
        // Wait until all leases that nobody renews have expired.
        let mut board = engine.watch_board();
        while board
            .borrow_and_update()
            .claims
            .values()
            .any(|claim| claim.ttl_ms == Some(SHORT_TTL_MS))
        {
            tokio::time::timeout(MAX_LEASE_OVERTIME, board.changed())
                .await
                .context("a lease does not expire")??;
        }
        Ok(())
    });
    ran?;
    let seconds = shared.began.elapsed().as_secs_f64();
    let commits = counts.commits.load(Relaxed) - commits;
    let sound = runtime.block_on(engine.check_store()).is_ok();
    let history = engine.history().clone();
    engine.shutdown();
    let board = engine.board();
    let (log, folded) = read_log(&history, first - 1)?;
    let reloaded = match kind {
        StoreKind::Sqlite => {
            let mut store = regatta_store::SqliteStore::open(&dir.join("regatta.db"))?;
            regatta_engine::ports::store::Store::load(&mut store)?.board == *board
        }
        StoreKind::Memory => true,
    };
    Ok(LinearizabilityRun {
        universe: universe.clone(),
        history: RecordedHistory {
            records,
            log,
            first_revision: first,
        },
        first_attempts: slots,
        seconds,
        commits,
        events: board.revision,
        is_store_sound: sound,
        does_fold_match: folded == *board,
        does_reload_match: reloaded,
    })
}

fn run_command(engine: &Engine, command: Command) -> anyhow::Result<CommandOutcome> {
    Ok(engine
        .submit(Request {
            by: Actor::Person("bench".into()),
            key: None,
            command,
        })?
        .outcome)
}

/// Creates a project with one task per slot, each with an attempt.
fn set_up_slots(engine: &Engine) -> anyhow::Result<Vec<(u64, u64)>> {
    let name = ProjectName::new("lake")?;
    let add = project::AddProject {
        name: name.clone(),
        location: crate::bench_engine::REPO_PATH.into(),
        trunk: BranchName::new("main")?,
        validation: vec![],
        validation_timeout_ms: 60_000,
        settings: project::ProjectSettings::default(),
    };
    run_command(engine, Command::AddProject(add))?;
    run_command(
        engine,
        Command::SetLimits {
            limits: limits::MachineLimits {
                max_attempts: SLOT_COUNT as u32,
                ..Default::default()
            },
        },
    )?;
    let mut slots = Vec::new();
    for slot in 0..SLOT_COUNT {
        let register = agent::RegisterAgent {
            name: keeper_name(slot)?,
            runtime: agent::Runtime::Outside,
            role: agent::Role::Worker,
            provider: None,
            profile: regatta_core::agent::Profile::default(),
            description: String::new(),
            max_tasks: 1,
        };
        run_command(engine, Command::RegisterAgent(register))?;
        // A chore without files, so that its attempts hold no claims.
        let task = AddTask {
            issue_type: IssueType::Chore,
            ..plain_task(&name, format!("Keep slot {slot}"))
        };
        run_command(
            engine,
            Command::AddTask {
                task,
                assign: Some(keeper_name(slot)?),
                how: AssignMode::Direct,
            },
        )?;
        match run_command(engine, Command::Poll(poll_request(slot)?))? {
            CommandOutcome::Polled(Some(poll_grant)) => {
                slots.push((poll_grant.attempt.0, poll_grant.token))
            }
            other => bail!("slot {slot} got no attempt: {other:?}"),
        }
    }
    Ok(slots)
}

fn keeper_name(slot: usize) -> anyhow::Result<AgentName> {
    Ok(AgentName::new(&format!("keeper-{slot}"))?)
}

fn poll_request(slot: usize) -> anyhow::Result<PollRequest> {
    Ok(PollRequest {
        lease_ms: Some(3_600_000),
        ..PollRequest::new(keeper_name(slot)?)
    })
}

/// Runs one agent: an operation, its answer, the next operation.
async fn run_agent(
    shared: Arc<Shared>,
    number: u32,
    seed: u64,
) -> anyhow::Result<Vec<OperationRecord>> {
    let name = AgentName::new(&format!("agent-{number}"))?;
    let mut dice = Rng::new(seed ^ (u64::from(number) << 32));
    let (mut held, mut records): (Vec<(u64, u64)>, Vec<OperationRecord>) = (Vec::new(), Vec::new());
    while shared
        .operations_left
        .fetch_update(Relaxed, Relaxed, |operations_left| {
            operations_left.checked_sub(1)
        })
        .is_ok()
    {
        let forgetful = records.is_empty() && number < FORGETFUL_AGENTS;
        let op = if forgetful {
            Operation::Acquire {
                patterns: [number as u16 * 2].into(),
                is_shared: false,
                ttl_ms: SHORT_TTL_MS,
            }
        } else {
            choose_operation(&shared, &mut dice, &held)
        };
        let request = Request {
            by: Actor::Agent(name.clone()),
            key: None,
            command: command_for(&shared.universe, &name, &op)?,
        };
        let asked = shared.began.elapsed().as_nanos() as u64;
        let reply = shared.engine.submit_async(request).await;
        let answered = shared.began.elapsed().as_nanos() as u64;
        let (answer, revision) = match reply {
            Ok(command_reply) => (
                answer_from_outcome(&op, command_reply.outcome),
                command_reply.revision,
            ),
            Err(CommandFailure::Refused { refusal, revision }) => {
                (answer_from_refusal(refusal), revision)
            }
            Err(other) => return Err(other.into()),
        };
        match (&op, &answer) {
            (Operation::Acquire { .. }, OperationAnswer::Granted { claim, token }) => {
                if !forgetful {
                    held.push((*claim, *token));
                }
                let mut seen = shared
                    .foreign_claims
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let nth = dice.below(1_000);
                if seen.len() < 1_000 {
                    seen.push((*claim, *token))
                } else {
                    seen[nth] = (*claim, *token)
                }
            }
            (Operation::Release { claim, .. }, OperationAnswer::Done | OperationAnswer::Ended)
            | (Operation::Renew { claim, .. }, OperationAnswer::Ended) => {
                held.retain(|held| held.0 != *claim);
            }
            (Operation::Poll { slot }, OperationAnswer::Begun { attempt, token }) => {
                *shared.slots[*slot]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = (*attempt, *token);
            }
            _ => {}
        }
        records.push(OperationRecord {
            agent: number,
            asked_ns: asked,
            answered_ns: answered,
            operation: op,
            answer,
            revision,
        });
    }
    Ok(records)
}

fn choose_operation(shared: &Shared, dice: &mut Rng, held: &[(u64, u64)]) -> Operation {
    let universe = &shared.universe;
    let slot = dice.below(SLOT_COUNT);
    let what = dice.below(1_000);
    let own = dice.pick(held).copied();
    match (what, own) {
        (0..4, _) => Operation::Stop { slot },
        (4..14, _) => Operation::Poll { slot },
        (14..114, _) => {
            let (attempt, token) = *shared.slots[slot]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // Sometimes use an old token, or a guess.
            Operation::Write {
                slot,
                attempt,
                token: if dice.chance(5) { token - 1 } else { token },
            }
        }
        (114..154, _) => {
            // Use somebody else's claim with a wrong token, or a claim that has ended.
            let seen = shared
                .foreign_claims
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let (claim, token) = dice.pick(&seen).copied().unwrap_or((1, 1));
            match what % 2 {
                0 => Operation::Release {
                    claim,
                    token: token + 1,
                },
                _ => Operation::Renew {
                    claim,
                    token: token + 1,
                },
            }
        }
        (154..400, Some((claim, token))) => Operation::Renew { claim, token },
        (400..750, Some((claim, token))) => Operation::Release { claim, token },
        (_, Some((claim, token))) if held.len() >= 2 => Operation::Release { claim, token },
        _ => {
            let wide = dice.chance(12);
            let many = if dice.chance(15) {
                2 + dice.below(2)
            } else {
                1
            };
            let patterns = (0..many)
                .map(|_| {
                    if wide {
                        universe.file_count + dice.below(universe.uris.len() - universe.file_count)
                    } else {
                        dice.below(universe.file_count)
                    }
                })
                .map(|n| n as u16)
                .collect();
            let ttl_ms = if dice.chance(3) {
                SHORT_TTL_MS
            } else {
                3_600_000
            };
            Operation::Acquire {
                patterns,
                is_shared: dice.chance(25),
                ttl_ms,
            }
        }
    }
}

fn command_for(
    universe: &PatternUniverse,
    name: &AgentName,
    op: &Operation,
) -> anyhow::Result<Command> {
    Ok(match op {
        Operation::Acquire {
            patterns,
            is_shared: shared,
            ttl_ms,
        } => Command::Acquire(Acquire {
            owner: ClaimOwner::Agent(name.clone()),
            uris: patterns
                .iter()
                .map(|pattern| universe.uris[usize::from(*pattern)].clone())
                .collect(),
            mode: if *shared {
                ClaimMode::Shared
            } else {
                ClaimMode::Exclusive
            },
            ttl_ms: *ttl_ms,
            wait_ms: 0,
            memo: String::new(),
        }),
        Operation::Renew { claim, token } => Command::Renew {
            claim: ClaimId(*claim),
            token: *token,
        },
        Operation::Release { claim, token } => Command::Release {
            claim: ClaimId(*claim),
            token: *token,
        },
        Operation::Write {
            slot,
            attempt,
            token,
        } => Command::Progress {
            task: TaskId(*slot as u64 + 1),
            attempt: AttemptId(*attempt),
            token: *token,
            text: "half of it is done".into(),
        },
        Operation::Stop { slot } => Command::StopTask {
            task: TaskId(*slot as u64 + 1),
            reason: "hand it over".into(),
            pause: false,
        },
        Operation::Poll { slot } => Command::Poll(poll_request(*slot)?),
    })
}

fn answer_from_outcome(op: &Operation, outcome: CommandOutcome) -> OperationAnswer {
    match (op, outcome) {
        (
            Operation::Acquire { .. },
            CommandOutcome::Claim(Acquired::Granted { claim, token, .. }),
        ) => OperationAnswer::Granted {
            claim: claim.0,
            token,
        },
        (Operation::Renew { .. }, CommandOutcome::Renewed { .. }) => OperationAnswer::Done,
        (
            Operation::Release { .. } | Operation::Write { .. } | Operation::Stop { .. },
            CommandOutcome::Done,
        ) => OperationAnswer::Done,
        (Operation::Poll { .. }, CommandOutcome::Polled(Some(poll_grant))) => {
            OperationAnswer::Begun {
                attempt: poll_grant.attempt.0,
                token: poll_grant.token,
            }
        }
        (Operation::Poll { .. }, CommandOutcome::Polled(None)) => OperationAnswer::Nothing,
        (_, other) => OperationAnswer::Unexpected(format!("{other:?}")),
    }
}

fn answer_from_refusal(refusal: Refusal) -> OperationAnswer {
    match refusal {
        Refusal::ClaimHeld { holders } => OperationAnswer::Held(
            holders
                .iter()
                .filter_map(|claim_holder| claim_holder.claim)
                .map(|id| id.0)
                .collect(),
        ),
        Refusal::ClaimEnded { .. } => OperationAnswer::Ended,
        Refusal::StaleClaimToken { .. } | Refusal::StaleAttempt { .. } => OperationAnswer::Stale,
        other => OperationAnswer::Unexpected(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brute_force_and_core_agree_on_every_pair() {
        assert_eq!(PatternUniverse::new().unwrap().disagreements().0, 0);
    }

    /// L3 on a small scale, with all planted faults found. `cargo xtask bench linearizable` does a
    /// million operations.
    #[test]
    fn l3_claims_are_linearizable_and_planted_faults_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let run = run_agents(
            StoreKind::Memory,
            dir.path(),
            &Arc::new(PatternUniverse::new().unwrap()),
            10_000,
            50,
            7,
        )
        .unwrap();
        let truth = check_history(&run.universe, &run.history, &run.first_attempts);
        assert_eq!(truth.violation_count(), 0, "{:?}", truth.examples);
        assert!(run.does_fold_match && run.is_store_sound);
        assert_eq!(run.history.records.len(), 10_000);
        for (fault, law) in PLANTED_FAULTS {
            let mut planted = run.history.clone();
            let many = plant_fault(&mut planted, fault, 101, &truth);
            let verdict = check_history(&run.universe, &planted, &run.first_attempts);
            let caught = verdict.violation_counts.get(&law).copied().unwrap_or(0);
            assert!(
                many > 0 && caught >= many,
                "{fault}: {many} planted, {:?} found",
                verdict.violation_counts
            );
        }
    }
}
