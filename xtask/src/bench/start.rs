//! The shipped program: its size, its time to ready, its idle memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_engine::ports::store::Store;
use regatta_store::SqliteStore;
use serde_json::json;

use super::board::BenchFleet;
use crate::args::Args;
use crate::report::{Report, Times, format_ms, format_thousands, reports_dir, workspace_root};

const TASK_COUNT: usize = 100_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 5)?;
    let binary = program_path(args)?;
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("start", args);
    let size = binary
        .metadata()
        .with_context(|| format!("could not read {}", binary.display()))?
        .len();
    report.add_line(format!("{}: {:.1} MB", binary.display(), size as f64 / 1e6));
    report.set_value("binary_bytes", size);
    report.check_target(
        size < 30_000_000,
        format!("{:.1} MB (target < 30 MB)", size as f64 / 1e6),
    );
    report.add_line(
        "  open tasks   store MB   ready (median of runs)   slowest   resident after 2 s",
    );
    for (tasks, patience) in [
        (0, Duration::from_millis(200)),
        (TASK_COUNT, Duration::from_secs(1)),
    ] {
        let dir = scratch.path().join(tasks.to_string());
        std::fs::create_dir_all(&dir)?;
        if tasks > 0 {
            fill_store(&dir.join("regatta.db"), tasks)?;
        }
        let (mut times, mut resident) = (Times::default(), 0);
        for nth in 0..runs.max(1) {
            let daemon = BenchDaemon::start(&binary, &dir)?;
            times.add(daemon.ready_after);
            if nth == 0 {
                std::thread::sleep(Duration::from_secs(2));
                resident = daemon.resident_kb()?;
            }
            daemon.terminate()?;
        }
        let (ready, slowest, resident) = (
            times.percentile(0.5),
            times.percentile(1.0),
            resident as f64 / 1e3,
        );
        let stored = std::fs::metadata(dir.join("regatta.db")).map_or(0, |metadata| metadata.len())
            as f64
            / 1e6;
        report.add_line(format!(
            "  {:>10}   {stored:>8.1}   {:>22}   {:>7}   {resident:>15.1} MB",
            format_thousands(tasks as u64),
            format_ms(ready),
            format_ms(slowest)
        ));
        report.set_value(
            &format!("open_{tasks}"),
            json!({ "ready_ms": ready.as_secs_f64() * 1e3, "slowest_ms": slowest.as_secs_f64() * 1e3, "resident_mb": resident }),
        );
        report.check_target(
            ready < patience,
            format!(
                "ready in {} (target < {})",
                format_ms(ready),
                format_ms(patience)
            ),
        );
        report.check_target(
            resident < 50.0,
            format!("{resident:.1} MB resident when idle (target < 50 MB)"),
        );
    }
    report.finish()
}

/// Returns the program to measure.
pub(crate) fn program_path(args: &Args) -> anyhow::Result<PathBuf> {
    match args.text("binary") {
        Some(path) => Ok(std::path::absolute(path)?),
        None => release_build(),
    }
}

/// Returns the release build, which is built now if it does not exist.
fn release_build() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace_root().join("target"), PathBuf::from);
    let binary = target.join("release/regatta");
    if !binary.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "--locked", "--package", "regatta"])
            .current_dir(workspace_root())
            .status()?;
        ensure!(built.success(), "the release build failed");
    }
    Ok(binary)
}

/// Creates a store with this many open tasks and no running attempts.
fn fill_store(path: &Path, tasks: usize) -> anyhow::Result<()> {
    let mut store = SqliteStore::open(path)?;
    let mut fleet = BenchFleet::new()?;
    while fleet.board.tasks.len() < tasks {
        fleet.add_task()?;
        if fleet.board.tasks.len().is_multiple_of(10_000) {
            store.commit(&fleet.take_batch())?;
        }
    }
    store.commit(&fleet.take_batch())?;
    ensure!(
        store.load()?.board == fleet.board,
        "the store does not load the same board"
    );
    Ok(())
}

/// A daemon that is killed when the value is dropped.
pub(crate) struct BenchDaemon {
    child: Child,
    pub(super) started: Instant,
    ready_after: Duration,
}

impl BenchDaemon {
    pub(crate) fn start(binary: &Path, dir: &Path) -> anyhow::Result<BenchDaemon> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("daemon.err"))?;
        let began = Instant::now();
        let mut child = Command::new(binary)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .env("REGATTA_DATA_DIR", dir)
            .current_dir(reports_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("could not start {}", binary.display()))?;
        let mut line = String::new();
        let read = child
            .stdout
            .take()
            .map(|child_stdout| BufReader::new(child_stdout).read_line(&mut line));
        let ready_after = began.elapsed();
        let daemon = BenchDaemon {
            child,
            started: began,
            ready_after,
        };
        ensure!(
            matches!(read, Some(Ok(_))) && line.contains("\"ready\""),
            "the daemon did not report that it is ready: {line:?} {}",
            std::fs::read_to_string(dir.join("daemon.err")).unwrap_or_default()
        );
        Ok(daemon)
    }

    pub(crate) fn resident_kb(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|status| status.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Sends SIGKILL to this process only.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the process has ended by itself.
    pub(super) fn wait_until_exited(mut self) -> anyhow::Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM to this process only, and waits for its clean end.
    fn terminate(mut self) -> anyhow::Result<()> {
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()?;
        ensure!(sent.success(), "the daemon has already ended");
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the daemon ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("the daemon did not end within 20 s of SIGTERM")
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _gone = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}
