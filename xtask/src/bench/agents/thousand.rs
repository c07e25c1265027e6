//! A thousand tasks with the real program. Afterwards nothing may be left behind.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use regatta_engine::ports::store::Store;

use super::carrying;
use super::place::Place;
use crate::args::Args;
use crate::bench::start::binary;
use crate::report::{Report, thousands};

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let tasks: u64 = args.number("runs", 1_000)?;
    let binary = binary(args)?;
    let place = Place::new(args, &binary)?;
    let mut report = Report::new("thousand", args);
    let daemon = place.up()?;
    place.add_agents(8, Some("echo $REGATTA_TASK > f${REGATTA_TASK#T}\n"))?;
    let mut plan = String::new();
    for nth in 1..=tasks {
        writeln!(plan, "[[task]]\nid = \"t{nth}\"\nsubject = \"Task {nth}\"\nfiles = [\"f{nth}\"]")?;
    }
    let began = Instant::now();
    place.start_plan(&plan, 8, "bench-0")?;
    place.until_landed(tasks, Duration::from_secs(2 * tasks.max(60)))?;
    report.say(format!("  {} tasks landed in {:.1} s", thousands(tasks), began.elapsed().as_secs_f64()));
    // Workspaces are removed in the background; when no work is left, all must be gone.
    let deadline = Instant::now() + Duration::from_secs(120);
    while (entries(&place.root.join("workspaces/shop")) > 0 || !place.shims()?.is_empty()) && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(100));
    }
    let workspaces = entries(&place.root.join("workspaces/shop"));
    let warm = entries(&place.root.join("pool/shop"));
    let notes = entries(&place.root.join("vaults/shop.git/regatta"));
    let (checks, staging) = (entries(&place.root.join("checks")), entries(&place.root.join("staging/shop")));
    let (attempts, commands) = (entries(&place.root.join("attempts")), entries(&place.root.join("commands")));
    let shims = place.shims()?.len();
    let resident = daemon.resident_kb()? / 1_000;
    place.down(daemon)?;
    let kept = place.store()?.load()?;
    let processes = carrying(&place.root.to_string_lossy()).len();
    report.say(format!("  daemon: {resident} MB resident at the end; {warm} workspaces kept warm"));
    // These are kept deliberately for thirty days and are small: launch, exit and journal of each
    // attempt.
    report.say(format!(
        "  kept for a while: {attempts} directories of attempts, {commands} of commands; {staging} slots"
    ));
    for (name, count) in [
        ("workspaces", workspaces),
        ("checks", checks),
        ("notes of workspaces", notes),
        ("claims", kept.board.claims.len() + kept.board.waits.len()),
        ("attempts", kept.board.attempts.len()),
        ("effects", kept.outbox.len()),
        ("shims", shims),
        ("processes after down", processes),
    ] {
        report.value(&name.replace(' ', "_"), count);
        report.demand(count == 0, format!("{count} {name} left behind"));
    }
    report.demand(warm <= 4, format!("{warm} warm workspaces (at most 4)"));
    report.end()
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}
