//! Many runners, each with a connection of its own, poll and finish many tasks without work.
//! Afterwards only the event log, read again from the store, is checked: no task is granted twice
//! or lost, and no agent ever exceeds its limit (J1, J2, J4 at every revision).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Context;
use regatta_core::event::Event;
use serde_json::json;

use super::{BenchServer, TOKEN, add_tasks, finish_task, wait_until_judged};
use crate::args::Args;
use crate::bench::http::connection::HttpConnection;
use crate::report::{Report, format_thousands};

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runners: usize = args.number("agents", 500)?;
    let tasks: usize = args.number("runs", 50_000)?;
    const SLOTS_PER_RUNNER: u32 = 2;
    let mut report = Report::new("runners", args);
    let scratch = args.scratch_dir()?;
    report.add_line(format!(
        "{runners} runners over HTTP, {SLOTS_PER_RUNNER} slots each, {} tasks",
        format_thousands(tasks as u64)
    ));
    let server = BenchServer::start(scratch.path())?;
    server.add_agents(runners, SLOTS_PER_RUNNER)?;
    let (done, began) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| -> anyhow::Result<()> {
        // Tasks are added during the run, so half of the polls find a task and the others wait for
        // one.
        let adding = scope.spawn(|| add_tasks(server.address, tasks));
        let (done, address) = (&done, server.address);
        let working: Vec<_> = (0..runners)
            .map(|nth| {
                let work = move || -> anyhow::Result<()> {
                    let mut line = HttpConnection::open(address, TOKEN)?;
                    let poll = json!({ "agent": format!("agent-{nth}"), "wait_ms": 500 });
                    let mut held = Vec::new();
                    loop {
                        let granted = line.call_verb("task.poll", &poll)?;
                        if granted.is_object() {
                            held.push(granted);
                        }
                        // Finish a task when both slots are in use, and sometimes earlier; near the
                        // end finish all.
                        if held.len() == SLOTS_PER_RUNNER as usize
                            || !held.is_empty() && nth % 3 == 0
                        {
                            finish_task(&mut line, &held.remove(0))?;
                            done.fetch_add(1, Relaxed);
                        } else if let Some(last) =
                            held.pop_if(|_| done.load(Relaxed) + runners * 2 >= tasks)
                        {
                            finish_task(&mut line, &last)?;
                            done.fetch_add(1, Relaxed);
                        }
                        if done.load(Relaxed) >= tasks && held.is_empty() {
                            return Ok(());
                        }
                    }
                };
                std::thread::Builder::new()
                    .stack_size(256 * 1024)
                    .spawn_scoped(scope, work)
            })
            .collect::<Result<_, _>>()?;
        for scoped_join_handle in working {
            scoped_join_handle
                .join()
                .map_err(|_| anyhow::anyhow!("a runner panicked"))??;
        }
        adding
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that adds tasks panicked"))?
    })?;
    let took = began.elapsed();
    report.add_line(format!(
        "done in {:.1} s: {} tasks a second, {} commits",
        took.as_secs_f64(),
        format_thousands((tasks as f64 / took.as_secs_f64()) as u64),
        format_thousands(server.counts.commits.load(Relaxed))
    ));
    wait_until_judged(&server)?;
    let checked = check_log(&server, SLOTS_PER_RUNNER)?;
    report.require(
        checked.double_attempts == 0,
        format!(
            "no task was granted while it had an attempt: {}",
            checked.double_attempts
        ),
    );
    report.require(
        checked.over_capacity == 0,
        format!(
            "no agent had more than {SLOTS_PER_RUNNER} at any revision: {}",
            checked.over_capacity
        ),
    );
    report.require(
        checked.ended == tasks,
        format!("every task ended: {} of {tasks}", checked.ended),
    );
    report.require(
        checked.restarts == 0,
        format!("no task was started again: {}", checked.restarts),
    );
    report.finish()
}

#[derive(Default)]
struct RunnerViolations {
    double_attempts: usize,
    over_capacity: usize,
    restarts: usize,
    ended: usize,
}

/// Checks the log, event by event.
fn check_log(server: &BenchServer, slots: u32) -> anyhow::Result<RunnerViolations> {
    let history = server.engine.history().clone();
    let (mut after, mut seen) = (0, RunnerViolations::default());
    let mut live: BTreeMap<_, _> = BTreeMap::new();
    let (mut running, mut started, mut ended) =
        (BTreeMap::<_, u32>::new(), BTreeSet::new(), BTreeSet::new());
    loop {
        let page = history.events(after, 5_000)?;
        let Some(last) = page.last() else { break };
        after = last.revision;
        for recorded in &page {
            match &recorded.event {
                Event::AttemptStarted(attempt_started) => {
                    let attempt = attempt_started.attempt();
                    seen.double_attempts +=
                        usize::from(live.values().any(|(task, _)| *task == attempt.task));
                    seen.restarts += usize::from(!started.insert(attempt.task));
                    live.insert(attempt.id, (attempt.task, attempt.agent.clone()));
                    let count = running.entry(attempt.agent.clone()).or_default();
                    *count += 1;
                    seen.over_capacity += usize::from(*count > slots);
                }
                Event::AttemptEnded(attempt_ended) => {
                    let (_, agent) = live
                        .remove(attempt_ended.attempt())
                        .context("an attempt ended that had not begun")?;
                    *running.entry(agent).or_default() -= 1;
                }
                Event::TaskCompleted(task_completed) => _ = ended.insert(*task_completed.task()),
                _ => {}
            }
        }
    }
    seen.ended = ended.len();
    Ok(seen)
}
