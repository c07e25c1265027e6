//! A thousand tasks with the real program. Afterwards nothing may be left behind.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use regatta_engine::ports::store::Store;

use super::fixture::BenchFixture;
use super::processes_with;
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, format_thousands};

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let tasks: u64 = args.number("runs", 1_000)?;
    let binary = program_path(args)?;
    let fixture = BenchFixture::new(args, &binary)?;
    let mut report = Report::new("thousand", args);
    let daemon = fixture.start_daemon()?;
    fixture.add_agents(8, Some("echo $REGATTA_TASK > f${REGATTA_TASK#T}\n"))?;
    let mut plan = String::new();
    for nth in 1..=tasks {
        writeln!(
            plan,
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Task {nth}\"\nfiles = [\"f{nth}\"]"
        )?;
    }
    let began = Instant::now();
    fixture.start_plan(&plan, 8, "bench-0")?;
    fixture.wait_until_landed(tasks, Duration::from_secs(2 * tasks.max(60)))?;
    report.add_line(format!(
        "  {} tasks landed in {:.1} s",
        format_thousands(tasks),
        began.elapsed().as_secs_f64()
    ));
    // Workspaces are removed in the background; when no work is left, all must be gone.
    let deadline = Instant::now() + Duration::from_secs(120);
    while (entry_count(&fixture.root.join("workspaces/shop")) > 0
        || !fixture.running_shims()?.is_empty())
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(100));
    }
    let workspaces = entry_count(&fixture.root.join("workspaces/shop"));
    let warm = entry_count(&fixture.root.join("pool/shop"));
    let notes = entry_count(&fixture.root.join("vaults/shop.git/regatta"));
    let (checks, staging) = (
        entry_count(&fixture.root.join("checks")),
        entry_count(&fixture.root.join("staging/shop")),
    );
    let (attempts, commands) = (
        entry_count(&fixture.root.join("attempts")),
        entry_count(&fixture.root.join("commands")),
    );
    let shims = fixture.running_shims()?.len();
    let resident = daemon.resident_kb()? / 1_000;
    fixture.stop_daemon(daemon)?;
    let stored = fixture.store()?.load()?;
    let processes = processes_with(&fixture.root.to_string_lossy()).len();
    report.add_line(format!(
        "  daemon: {resident} MB resident at the end; {warm} workspaces kept warm"
    ));
    // These are kept deliberately for thirty days and are small: launch, exit and journal of each
    // attempt.
    report.add_line(format!(
        "  kept for a while: {attempts} directories of attempts, {commands} of commands; \
        {staging} slots"
    ));
    for (name, count) in [
        ("workspaces", workspaces),
        ("checks", checks),
        ("notes of workspaces", notes),
        (
            "claims",
            stored.board.claims.len() + stored.board.waits.len(),
        ),
        ("attempts", stored.board.attempts.len()),
        ("effects", stored.outbox.len()),
        ("shims", shims),
        ("processes after down", processes),
    ] {
        report.set_value(&name.replace(' ', "_"), count);
        report.require(count == 0, format!("{count} {name} left behind"));
    }
    report.require(warm <= 4, format!("{warm} warm workspaces (at most 4)"));
    report.finish()
}

fn entry_count(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}
