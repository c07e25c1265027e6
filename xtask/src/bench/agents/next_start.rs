//! The time from "its blocker has landed" to "the process of the next attempt runs", in a chain of
//! tasks.
//!
//! Each task is blocked by the previous one. The program first writes the time to a file. The time
//! of the checkout is measured separately on the same repository with the same pool, and
//! subtracted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_core::ids::{AttemptId, BranchName, ProjectName};
use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{ProjectRepo, ReachabilityProof};
use regatta_engine::ports::store::Store;
use regatta_git::GitAdapter;

use super::fixture::BenchFixture;
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, Times, format_ms};

/// The longest time for one task of the chain before the measurement is aborted.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: u64 = args.number("runs", 40)?;
    let binary = program_path(args)?;
    let fixture = BenchFixture::new(args, &binary)?;
    let mut report = Report::new("next-start", args);
    let daemon = fixture.start_daemon()?;
    let notes = fixture.root.join("notes");
    std::fs::create_dir(&notes)?;
    let script = format!(
        "date +%s%N > {}/$REGATTA_TASK\necho $REGATTA_TASK > f${{REGATTA_TASK#T}}\n",
        notes.display()
    );
    fixture.add_agents(1, Some(&script))?;
    let mut plan = String::new();
    for nth in 1..=runs {
        writeln!(
            plan,
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Task {nth}\"\nfiles = [\"f{nth}\"]"
        )?;
        if nth > 1 {
            writeln!(plan, "blocked_by = [\"t{}\"]", nth - 1)?;
        }
    }
    fixture.start_plan(&plan, 1, "bench-0")?;
    fixture.wait_until_landed(runs, STEP_TIMEOUT * u32::try_from(runs)?)?;
    fixture.stop_daemon(daemon)?;
    let (mut whole, mut checkout) = (Times::default(), Times::default());
    let mut landed = BTreeMap::new();
    for event in fixture.store()?.history().events(0, usize::MAX)? {
        if event.event.kind() == "task.completed" {
            landed.insert(event.event.subject(), event.now.unix_ms);
        }
    }
    for nth in 2..=runs {
        let began: u64 = std::fs::read_to_string(notes.join(format!("T{nth}")))?
            .trim()
            .parse()?;
        let before = landed
            .get(&format!("T{}", nth - 1))
            .context("the blocker landed")?;
        // The first tasks fill the pool.
        if nth > 3 {
            whole.add(Duration::from_nanos(
                began.saturating_sub(before * 1_000_000),
            ));
        }
    }
    // Measure the same checkout alone.
    let repo = ProjectRepo {
        project: ProjectName::new("alone")?,
        path: fixture.root.join("shop"),
        trunk: BranchName::new("main")?,
        should_update_checkout: true,
        workspace: Default::default(),
    };
    let (adapter, branch) = (
        GitAdapter::new(fixture.root.join("alone")),
        BranchName::new("regatta/alone")?,
    );
    for nth in 1..=runs {
        let began = Instant::now();
        adapter.prepare_workspace(&repo, AttemptId(nth), &branch)?;
        if nth > 2 {
            checkout.add(began.elapsed());
        }
        adapter.remove_workspace(&ReachabilityProof::for_tests(AttemptId(nth)), &repo)?;
    }
    ensure!(whole.len() > 0, "nothing was measured");
    let (middle, late, apart) = (
        whole.percentile(0.5),
        whole.percentile(0.9),
        checkout.percentile(0.5),
    );
    let overhead = middle.saturating_sub(apart);
    report.add_line(format!(
        "  landed to running        {:>10} median, p90 {}",
        format_ms(middle),
        format_ms(late)
    ));
    report.add_line(format!(
        "  of it the checkout       {:>10} median, by itself",
        format_ms(apart)
    ));
    report.set_value("landed_to_running_ms", middle.as_secs_f64() * 1e3);
    report.set_value("checkout_ms", apart.as_secs_f64() * 1e3);
    report.set_value("overhead_ms", overhead.as_secs_f64() * 1e3);
    let target = Duration::from_millis(50);
    report.check_target(
        overhead < target,
        format!(
            "overhead {} (target < {})",
            format_ms(overhead),
            format_ms(target)
        ),
    );
    report.finish()
}
