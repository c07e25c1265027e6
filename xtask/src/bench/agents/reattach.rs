//! Kills the process that attends many agents, again and again: nothing of them may be lost.
//!
//! First with a bare attendant (this program, started anew as `bench attendant`), whose every record is checked; then
//! with the real daemon.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::ids::AttemptId;
use regatta_core::session::Said;
use regatta_engine::ports::agents::{Agents, Desk, ProcessState, Stream, Wishes};
use serde_json::json;

use super::place::Place;
use super::{carrying, shell};
use crate::args::Args;
use crate::bench::start::binary;
use crate::report::{Report, Times, ms};

/// It counts aloud, and notes in a file how far it surely has said it.
const COUNTS: &str = "i=0; while :; do i=$((i+1)); echo \"line $i\"; echo $i >> count; sleep 0.02; done";

/// How many lines of the journal are not as they were said, and how many are. To be asked when it has ended: until
/// then a line may be on its way.
fn compare(count: &Path, out: &[String]) -> anyhow::Result<(u64, u64)> {
    let noted = std::fs::read_to_string(count)?;
    let said: u64 = noted.lines().last().context("it said nothing")?.parse()?;
    let whole = (1..).zip(out).take_while(|(n, it)| **it == format!("line {n}")).count() as u64;
    Ok((said.saturating_sub(whole) + (out.len() as u64 - whole), whole))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (agents, kills): (u64, usize) = (args.number("agents", 20)?, args.number("runs", 10)?);
    let binary = binary(args)?;
    let mut report = Report::new("reattach", args);
    if args.flag("restart") {
        daemon(args, &mut report, &binary, agents, (kills, Ends::Restart))?;
        return report.end();
    }
    bare(args, &mut report, &binary, agents, kills)?;
    daemon(args, &mut report, &binary, agents, (kills, Ends::Kill))?;
    report.end()
}

fn bare(args: &Args, report: &mut Report, binary: &Path, agents: u64, kills: usize) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let (data, token) = (scratch.path().join("data"), format!("reattach-{}", std::process::id()));
    let adapter = AgentsAdapter::new(data.clone(), binary.to_owned());
    for nth in 1..=agents {
        let workspace = scratch.path().join(format!("w{nth}"));
        std::fs::create_dir(&workspace)?;
        adapter.start(&shell(AttemptId(nth), &workspace, &token, COUNTS)?)?;
    }
    let mut times = Times::default();
    for _ in 0..kills {
        let (mut child, took) = attendant(&data, binary, agents)?;
        times.add(took);
        std::thread::sleep(Duration::from_millis(500));
        child.kill()?;
        child.wait()?;
    }
    let (mut lost, mut missing, mut lines) = (0, 0_u64, 0_u64);
    for nth in 1..=agents {
        lost += usize::from(!matches!(adapter.state(AttemptId(nth))?, ProcessState::Running(_)));
        adapter.stop(AttemptId(nth), Duration::from_millis(200))?;
        let records = adapter.journal(AttemptId(nth), 1, usize::MAX)?;
        ensure!((1..).zip(&records).all(|(n, it)| it.n == n), "the journal of A{nth} has a gap");
        let out: Vec<String> = records.into_iter().filter(|it| it.stream == Stream::Out).map(|it| it.line).collect();
        let found = compare(&scratch.path().join(format!("w{nth}/count")), &out)?;
        (missing, lines) = (missing + found.0, lines + found.1);
    }
    let left = carrying(&token).len();
    report.say(format!(
        "  attendant: {kills} kills with {agents} agents: {lost} agents lost, {missing} of {lines} lines lost or doubled, {left} processes left"
    ));
    report.say(format!("    all attached again after {} (median), {} (slowest)", ms(times.at(0.5)), ms(times.at(1.0))));
    report.value("attendant", json!({ "lost": lost, "missing": missing, "lines": lines, "left": left, "slowest_ms": times.at(1.0).as_secs_f64() * 1e3 }));
    report.demand(lost == 0 && missing == 0 && left == 0, "no agent, no line lost; no process left (P1, P2, P3)");
    report.target(times.at(1.0) < Duration::from_secs(1), "all attached within 1 s");
    Ok(())
}

/// Starts a process that attends all; how long until it is where each of them is.
fn attendant(data: &Path, binary: &Path, agents: u64) -> anyhow::Result<(Child, Duration)> {
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .args(["bench", "attendant", "--agents", &agents.to_string()])
        .arg("--dir")
        .arg(data)
        .arg("--binary")
        .arg(binary)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("its output is piped")?).read_line(&mut line)?;
    ensure!(line == "attached\n", "the attendant said {line:?}");
    Ok((child, began.elapsed()))
}

/// A desk that only wants to know when its attendant has read everything.
struct Watch {
    looks: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl Desk for Watch {
    fn heard(&self, _: u64, _: Said) {}
    fn silent(&self, _: Option<Duration>) {}
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }
    fn goes_on(&self) -> bool {
        // Asked before it begins, and then when it has read what was there, said what it could and waited for more.
        if self.looks.fetch_add(1, SeqCst) == 1 {
            self.all.fetch_add(1, SeqCst);
        }
        true
    }
}

/// Is that process: attends until it is killed.
pub(crate) fn attend(args: &Args) -> anyhow::Result<bool> {
    let data = PathBuf::from(args.text("dir").context("--dir names the data directory")?);
    let adapter = AgentsAdapter::new(data, binary(args)?);
    let (agents, all) = (args.number("agents", 20_u64)?, Arc::new(AtomicUsize::new(0)));
    for nth in 1..=agents {
        let (adapter, all) = (adapter.clone(), Arc::clone(&all));
        std::thread::spawn(move || {
            let watch = Watch { looks: AtomicUsize::new(0), all };
            adapter.attend(AttemptId(nth), &watch)
        });
    }
    while all.load(SeqCst) < agents as usize {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::io::stdout().write_all(b"attached\n")?;
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// How a daemon is replaced by the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// By `kill -9`.
    Kill,
    /// By `regatta up --restart`.
    Restart,
}

/// The same with the real daemon: agents of a mission that count, daemons that are killed or replaced, and a final
/// `down`.
fn daemon(
    args: &Args,
    report: &mut Report,
    binary: &Path,
    agents: u64,
    (times_over, ends): (usize, Ends),
) -> anyhow::Result<()> {
    let place = Place::new(args, binary)?;
    let mut up = place.up()?;
    place.add_agents(agents, Some(&COUNTS.replace(">> count", ">> \"$REGATTA_RESULT.count\"")))?;
    place.run_plan(agents, None)?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while place.shims()?.len() < agents as usize {
        ensure!(Instant::now() < deadline, "only {} agents came up", place.shims()?.len());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (before, mut times) = (place.shims()?, Times::default());
    for _ in 0..times_over {
        let began = match ends {
            Ends::Kill => {
                up.kill()?;
                up = place.up()?;
                up.began
            }
            Ends::Restart => {
                let began = Instant::now();
                place.restart()?;
                began
            }
        };
        // A runner that has joined its attempts again answers for them.
        let running = place.running()?;
        times.add(began.elapsed());
        ensure!(running == agents, "{running} attempts run after a restart");
        std::thread::sleep(Duration::from_millis(300));
    }
    let after = place.shims()?;
    let lost = before.difference(&after).count();
    place.down(up)?;
    let (mut missing, mut lines) = (0_u64, 0_u64);
    for attempt in place.attempts() {
        let found = compare(&place.run_dir(attempt).join("outbox/result.json.count"), &place.lines(attempt)?)?;
        (missing, lines) = (missing + found.0, lines + found.1);
    }
    let left: BTreeSet<u32> = carrying(&place.root.to_string_lossy()).into_iter().collect();
    report.say(format!(
        "  daemon: {times_over} {} with {agents} agents: {lost} agents lost, {missing} of {lines} lines lost or doubled, {} processes left after down",
        if ends == Ends::Kill { "kills -9" } else { "up --restart" },
        left.len()
    ));
    report.say(format!(
        "    ready, and all attempts running, after {} (median), {} (slowest)",
        ms(times.at(0.5)),
        ms(times.at(1.0))
    ));
    report.value("daemon", json!({ "lost": lost, "missing": missing, "lines": lines, "left": left.len(), "slowest_ms": times.at(1.0).as_secs_f64() * 1e3 }));
    report.demand(lost == 0 && missing == 0 && left.is_empty(), "no agent, no line lost; no process left (P1, P2, P3)");
    report.target(times.at(1.0) < Duration::from_secs(1), "all attached within 1 s");
    Ok(())
}
