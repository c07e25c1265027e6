//! Kills the process that supervises many agents, again and again. No agent and no output may be
//! lost.
//!
//! The first part uses a bare supervisor (this program, started again as `bench attendant`) and
//! checks every record. The second part uses the real daemon.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::agent_protocol::AgentEvent;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{
    Agents, JournalStream, ProcessState, SessionInput, SessionSink,
};
use serde_json::json;

use super::fixture::BenchFixture;
use super::{processes_with, shell_launch};
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, Times, format_ms};

/// The program prints numbered lines, and writes to a file how far it has printed.
const COUNTING_SCRIPT: &str =
    "i=0; while :; do i=$((i+1)); echo \"line $i\"; echo $i >> count; sleep 0.02; done";

/// Returns how many lines of the journal are missing or wrong, and how many are right. Call it only
/// after the program has ended, because until then a line may be in transit.
fn compare_output(count: &Path, out: &[String]) -> anyhow::Result<(u64, u64)> {
    let noted = std::fs::read_to_string(count)?;
    let said: u64 = noted
        .lines()
        .last()
        .context("the program printed nothing")?
        .parse()?;
    let whole = (1..)
        .zip(out)
        .take_while(|(n, s)| **s == format!("line {n}"))
        .count() as u64;
    Ok((
        said.saturating_sub(whole) + (out.len() as u64 - whole),
        whole,
    ))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (agents, kills): (u64, usize) = (args.number("agents", 20)?, args.number("runs", 10)?);
    let binary = program_path(args)?;
    let mut report = Report::new("reattach", args);
    if args.flag("restart") {
        measure_daemon(
            args,
            &mut report,
            &binary,
            agents,
            (kills, DaemonReplacement::Restart),
        )?;
        return report.finish();
    }
    measure_adapter(args, &mut report, &binary, agents, kills)?;
    measure_daemon(
        args,
        &mut report,
        &binary,
        agents,
        (kills, DaemonReplacement::Kill),
    )?;
    report.finish()
}

fn measure_adapter(
    args: &Args,
    report: &mut Report,
    binary: &Path,
    agents: u64,
    kills: usize,
) -> anyhow::Result<()> {
    let scratch = args.scratch_dir()?;
    let (data, token) = (
        scratch.path().join("data"),
        format!("reattach-{}", std::process::id()),
    );
    let adapter = AgentsAdapter::new(data.clone(), binary.to_owned());
    for nth in 1..=agents {
        let workspace = scratch.path().join(format!("w{nth}"));
        std::fs::create_dir(&workspace)?;
        adapter.start(&shell_launch(
            AttemptId(nth),
            &workspace,
            &token,
            COUNTING_SCRIPT,
        )?)?;
    }
    let mut times = Times::default();
    for _ in 0..kills {
        let (mut child, took) = start_attendant(&data, binary, agents)?;
        times.add(took);
        std::thread::sleep(Duration::from_millis(500));
        child.kill()?;
        child.wait()?;
    }
    let (mut lost, mut missing, mut lines) = (0, 0_u64, 0_u64);
    for nth in 1..=agents {
        lost += usize::from(!matches!(
            adapter.state(AttemptId(nth))?,
            ProcessState::Running(_)
        ));
        adapter.stop(AttemptId(nth), Duration::from_millis(200))?;
        let records = adapter.read_journal(AttemptId(nth), 1, usize::MAX)?;
        ensure!(
            (1..)
                .zip(&records)
                .all(|(n, journal)| journal.position == n),
            "the journal of A{nth} has a gap"
        );
        let out: Vec<String> = records
            .into_iter()
            .filter(|journal| journal.stream == JournalStream::Out)
            .map(|journal| journal.line)
            .collect();
        let found = compare_output(&scratch.path().join(format!("w{nth}/count")), &out)?;
        (missing, lines) = (missing + found.0, lines + found.1);
    }
    let survivors = processes_with(&token).len();
    report.add_line(format!(
        "  attendant: {kills} kills with {agents} agents: {lost} agents lost, {missing} of \
        {lines} lines lost or doubled, {survivors} processes left"
    ));
    report.add_line(format!(
        "    all attached again after {} (median), {} (slowest)",
        format_ms(times.percentile(0.5)),
        format_ms(times.percentile(1.0))
    ));
    report.set_value("attendant", json!({ "lost": lost, "missing": missing, "lines": lines, "left": survivors, "slowest_ms": times.percentile(1.0).as_secs_f64() * 1e3 }));
    report.require(
        lost == 0 && missing == 0 && survivors == 0,
        "no agent, no line lost; no process left (P1, P2, P3)",
    );
    report.check_target(
        times.percentile(1.0) < Duration::from_secs(1),
        "all attached within 1 s",
    );
    Ok(())
}

/// Starts a process that supervises all agents. Returns the time until it has read all journals.
fn start_attendant(data: &Path, binary: &Path, agents: u64) -> anyhow::Result<(Child, Duration)> {
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
    ensure!(line == "attached\n", "the attendant printed {line:?}");
    Ok((child, began.elapsed()))
}

/// A receiver that only records when its supervisor has read the whole journal.
struct ReadProgress {
    checks: AtomicUsize,
    finished: Arc<AtomicUsize>,
}

impl SessionSink for ReadProgress {
    fn on_event(&self, _: u64, _: AgentEvent) {}
    fn on_silence(&self, _: Option<Duration>) {}
    fn desired_input(&self) -> SessionInput {
        SessionInput::default()
    }
    fn should_continue(&self) -> bool {
        // Called once before reading begins, and again after the existing journal was read and
        // reported.
        if self.checks.fetch_add(1, SeqCst) == 1 {
            self.finished.fetch_add(1, SeqCst);
        }
        true
    }
}

/// Runs as the supervisor process until it is killed.
pub(crate) fn run_attendant(args: &Args) -> anyhow::Result<bool> {
    let data = PathBuf::from(args.text("dir").context("--dir names the data directory")?);
    let adapter = AgentsAdapter::new(data, program_path(args)?);
    let (agents, all) = (
        args.number("agents", 20_u64)?,
        Arc::new(AtomicUsize::new(0)),
    );
    for nth in 1..=agents {
        let (adapter, all) = (adapter.clone(), Arc::clone(&all));
        std::thread::spawn(move || {
            let watch = ReadProgress {
                checks: AtomicUsize::new(0),
                finished: all,
            };
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

/// The way in which a daemon is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DaemonReplacement {
    /// With `kill -9`.
    Kill,
    /// With `regatta up --restart`.
    Restart,
}

/// Does the same with the real daemon: agents of a mission that print numbered lines, daemons that
/// are killed or replaced, and a final `stop_daemon`.
fn measure_daemon(
    args: &Args,
    report: &mut Report,
    binary: &Path,
    agents: u64,
    (times_over, ends): (usize, DaemonReplacement),
) -> anyhow::Result<()> {
    let fixture = BenchFixture::new(args, binary)?;
    let mut up = fixture.start_daemon()?;
    fixture.add_agents(
        agents,
        Some(&COUNTING_SCRIPT.replace(">> count", ">> \"$REGATTA_RESULT.count\"")),
    )?;
    fixture.run_plan(agents, None)?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while fixture.running_shims()?.len() < agents as usize {
        ensure!(
            Instant::now() < deadline,
            "only {} agents came up",
            fixture.running_shims()?.len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let (before, mut times) = (fixture.running_shims()?, Times::default());
    for _ in 0..times_over {
        let began = match ends {
            DaemonReplacement::Kill => {
                up.kill()?;
                up = fixture.start_daemon()?;
                up.started
            }
            DaemonReplacement::Restart => {
                let began = Instant::now();
                fixture.restart_daemon()?;
                began
            }
        };
        // The API answers for attempts only after the runner has resumed them.
        let running = fixture.running_attempts()?;
        times.add(began.elapsed());
        ensure!(running == agents, "{running} attempts run after a restart");
        std::thread::sleep(Duration::from_millis(300));
    }
    let after = fixture.running_shims()?;
    let lost = before.difference(&after).count();
    fixture.stop_daemon(up)?;
    let (mut missing, mut lines) = (0_u64, 0_u64);
    for attempt in fixture.all_attempts() {
        let found = compare_output(
            &fixture.run_dir(attempt).join("outbox/result.json.count"),
            &fixture.output_lines(attempt)?,
        )?;
        (missing, lines) = (missing + found.0, lines + found.1);
    }
    let survivors: BTreeSet<u32> = processes_with(&fixture.root.to_string_lossy())
        .into_iter()
        .collect();
    report.add_line(format!(
        "  daemon: {times_over} {} with {agents} agents: {lost} agents lost, {missing} of {lines} \
        lines lost or doubled, {} processes left after down",
        if ends == DaemonReplacement::Kill {
            "kills -9"
        } else {
            "up --restart"
        },
        survivors.len()
    ));
    report.add_line(format!(
        "    ready, and all attempts running, after {} (median), {} (slowest)",
        format_ms(times.percentile(0.5)),
        format_ms(times.percentile(1.0))
    ));
    report.set_value("daemon", json!({ "lost": lost, "missing": missing, "lines": lines, "left": survivors.len(), "slowest_ms": times.percentile(1.0).as_secs_f64() * 1e3 }));
    report.require(
        lost == 0 && missing == 0 && survivors.is_empty(),
        "no agent, no line lost; no process left (P1, P2, P3)",
    );
    report.check_target(
        times.percentile(1.0) < Duration::from_secs(1),
        "all attached within 1 s",
    );
    Ok(())
}
