//! Stops of process trees that resist, at every level of containment that this machine supports.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::agent::SandboxLevel;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, ProcessState, ProgramLaunch};
use serde_json::json;

use super::{processes_with, shell_launch};
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, Times, format_ms};

const STOP_GRACE: Duration = Duration::from_millis(50);

/// P4 allows the grace period and this time.
const MAX_STOP_TIME: Duration = Duration::from_secs(5);

/// The number of concurrent trees.
const MAX_CONCURRENT_TREES: usize = 6;

/// The trees. Each creates the file `up` when it is ready to be stopped.
const HOSTILE_TREES: [(&str, &str); 8] = [
    (
        "ignores SIGTERM",
        "trap '' TERM; touch up; while :; do sleep 1000; done",
    ),
    (
        "double fork",
        "( ( trap '' TERM; touch up; while :; do sleep 1000; done ) & ) ; sleep 1000",
    ),
    (
        "its own sessions",
        "setsid sh -c 'setsid sh -c \"touch up; exec sleep 1000\" & sleep 1000' & wait",
    ),
    (
        "wiped its environment",
        "(setsid env -i sh -c 'sleep 1000; : '$TOKEN &); touch up; sleep 1000",
    ),
    (
        "holds the pipe open",
        "(trap '' TERM HUP; sleep 1000; echo no) & touch up; exec sleep 1000",
    ),
    (
        "fork storm",
        "i=0; while [ $i -lt 100 ]; do (setsid sleep 1000 &); i=$((i+1)); [ $i = 30 ] && touch \
        up; done; wait",
    ),
    (
        "flees by forking",
        "trap '' TERM; echo 'sh ./flee & sleep 0.02' > flee; sh ./flee & touch up; sleep 1000",
    ),
    (
        "flees by sessions",
        "trap '' TERM; echo 'setsid sh ./flee & sleep 0.02' > flee; sh ./flee & touch up; sleep \
        1000",
    ),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 1000)?;
    let binary = program_path(args)?;
    let mut report = Report::new("stops", args);
    report.add_line(format!(
        "  {runs} stops per level, {} kinds of trees, {MAX_CONCURRENT_TREES} at once, grace {}",
        HOSTILE_TREES.len(),
        format_ms(STOP_GRACE)
    ));
    report.add_line("  level           stops   survivors   errors   stop p50   p99   slowest");
    let mut seen = Vec::new();
    // A control group; a sandbox with a process namespace but no control group; neither.
    for (cgroups, confine) in [
        (true, SandboxLevel::Off),
        (false, SandboxLevel::Workspace),
        (false, SandboxLevel::Off),
    ] {
        let scratch = args.scratch_dir()?;
        let adapter = AgentsAdapter::new(scratch.path().join("data"), binary.clone());
        let adapter = if cgroups {
            adapter
        } else {
            adapter.without_cgroups()
        };
        let level = containment_of(&adapter, scratch.path(), confine)?;
        if seen.contains(&level) {
            let what = if cgroups {
                "cgroup2 to make groups in"
            } else {
                "process namespaces"
            };
            report.add_line(format!("  (this machine gives no {what})"));
            continue;
        }
        seen.push(level);
        let found = stop_all(&adapter, scratch.path(), confine, runs);
        let (mut times, survivors, errors) = found?;
        report.add_line(format!(
            "  {level:<14}  {runs:>6}   {survivors:>9}   {:>6}   {:>8}   {}   {}",
            errors.len(),
            format_ms(times.percentile(0.5)),
            format_ms(times.percentile(0.99)),
            format_ms(times.percentile(1.0))
        ));
        for error in errors.iter().take(5) {
            report.add_line(format!("    {error}"));
        }
        report.set_value(
            level,
            json!({ "stops": runs, "survivors": survivors, "errors": errors.len(), "slowest_ms": times.percentile(1.0).as_secs_f64() * 1e3 }),
        );
        report.require(
            survivors == 0 && errors.is_empty(),
            format!("{level}: no survivor in {runs} stops (P3)"),
        );
        report.check_target(
            times.percentile(1.0) < STOP_GRACE + MAX_STOP_TIME,
            format!("{level}: the slowest within grace + 5 s (P4)"),
        );
    }
    report.finish()
}

/// Returns the containment that this adapter uses for a launch.
fn containment_of(
    adapter: &AgentsAdapter,
    dir: &Path,
    confine: SandboxLevel,
) -> anyhow::Result<&'static str> {
    let attempt = AttemptId(1_000_000);
    let workspace = dir.join("w");
    std::fs::create_dir(&workspace)?;
    adapter.start(&with_sandbox(
        shell_launch(attempt, &workspace, "nobody", "exec sleep 1000")?,
        confine,
    ))?;
    let deadline = Instant::now() + Duration::from_secs(10);
    let level = loop {
        match adapter.containment(attempt)? {
            Some(level) => break level,
            None => ensure!(Instant::now() < deadline, "the launch does not start"),
        }
    };
    adapter.stop(attempt, STOP_GRACE)?;
    Ok(level)
}

/// Returns the same launch with this level of confinement.
fn with_sandbox(mut launch: ProgramLaunch, confine: SandboxLevel) -> ProgramLaunch {
    launch.profile.sandbox = Some(confine);
    launch
}

fn stop_all(
    adapter: &AgentsAdapter,
    dir: &Path,
    confine: SandboxLevel,
    runs: usize,
) -> anyhow::Result<(Times, usize, Vec<String>)> {
    let (next, survivors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (times, errors) = (Mutex::new(Times::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..MAX_CONCURRENT_TREES {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, SeqCst);
                    if nth >= runs {
                        return;
                    }
                    match stop_one(adapter, dir, confine, nth) {
                        Ok((took, left)) => {
                            times
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .add(took);
                            survivors.fetch_add(left, SeqCst);
                        }
                        Err(error) => {
                            errors
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(format!(
                                    "{}: {error:#}",
                                    HOSTILE_TREES[nth % HOSTILE_TREES.len()].0
                                ))
                        }
                    }
                }
            });
        }
    });
    let times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((
        times,
        survivors.into_inner(),
        errors.into_inner().unwrap_or_else(PoisonError::into_inner),
    ))
}

/// Starts and stops a tree. Returns the duration of the stop and the number of surviving processes.
fn stop_one(
    adapter: &AgentsAdapter,
    dir: &Path,
    confine: SandboxLevel,
    nth: usize,
) -> anyhow::Result<(Duration, usize)> {
    let (attempt, script) = (
        AttemptId(nth as u64 + 1),
        HOSTILE_TREES[nth % HOSTILE_TREES.len()].1,
    );
    let token = format!(
        "stops-{}-{nth}.",
        dir.file_name().unwrap_or_default().to_string_lossy()
    );
    let workspace = dir.join(format!("w{nth}"));
    std::fs::create_dir(&workspace)?;
    adapter.start(&with_sandbox(
        shell_launch(attempt, &workspace, &token, script)?,
        confine,
    ))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !workspace.join("up").exists() {
        if let ProcessState::Exited(exit) = adapter.state(attempt)?
            && !workspace.join("up").exists()
        {
            bail!(
                "the tree did not start: {exit:?}, {}",
                adapter.tail(attempt, 400)?.trim()
            );
        }
        ensure!(Instant::now() < deadline, "the tree does not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    let began = Instant::now();
    adapter.stop(attempt, STOP_GRACE)?;
    let took = began.elapsed();
    let processes = processes_with(&token);
    // Survivors are counted, and then killed.
    for pid in &processes {
        let _gone = std::process::Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status();
    }
    std::fs::remove_dir_all(&workspace)?;
    Ok((took, processes.len()))
}
