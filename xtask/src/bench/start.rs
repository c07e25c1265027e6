//! The shipped program: its size, its time to ready, its idle memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_engine::ports::store::Store;
use regatta_store::SqliteStore;
use serde_json::json;

use super::board::Fleet;
use crate::args::Args;
use crate::report::{Report, Times, kept, ms, root, thousands};

const MANY: usize = 100_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 5)?;
    let binary = binary(args)?;
    let scratch = args.scratch()?;
    let mut report = Report::new("start", args);
    let size = binary.metadata().with_context(|| format!("could not read {}", binary.display()))?.len();
    report.say(format!("{}: {:.1} MB", binary.display(), size as f64 / 1e6));
    report.value("binary_bytes", size);
    report.target(size < 30_000_000, format!("{:.1} MB (target < 30 MB)", size as f64 / 1e6));
    report.say("  open tasks   store MB   ready (median of runs)   slowest   resident after 2 s");
    for (tasks, patience) in [(0, Duration::from_millis(200)), (MANY, Duration::from_secs(1))] {
        let dir = scratch.path().join(tasks.to_string());
        std::fs::create_dir_all(&dir)?;
        if tasks > 0 {
            fill(&dir.join("regatta.db"), tasks)?;
        }
        let (mut times, mut resident) = (Times::default(), 0);
        for nth in 0..runs.max(1) {
            let daemon = Daemon::start(&binary, &dir)?;
            times.add(daemon.ready_after);
            if nth == 0 {
                std::thread::sleep(Duration::from_secs(2));
                resident = daemon.resident_kb()?;
            }
            daemon.end()?;
        }
        let (ready, slowest, resident) = (times.at(0.5), times.at(1.0), resident as f64 / 1e3);
        let stored = std::fs::metadata(dir.join("regatta.db")).map_or(0, |it| it.len()) as f64 / 1e6;
        report.say(format!(
            "  {:>10}   {stored:>8.1}   {:>22}   {:>7}   {resident:>15.1} MB",
            thousands(tasks as u64),
            ms(ready),
            ms(slowest)
        ));
        report.value(
            &format!("open_{tasks}"),
            json!({ "ready_ms": ready.as_secs_f64() * 1e3, "slowest_ms": slowest.as_secs_f64() * 1e3, "resident_mb": resident }),
        );
        report.target(ready < patience, format!("ready in {} (target < {})", ms(ready), ms(patience)));
        report.target(resident < 50.0, format!("{resident:.1} MB resident when idle (target < 50 MB)"));
    }
    report.end()
}

/// Returns the program to measure.
pub(crate) fn binary(args: &Args) -> anyhow::Result<PathBuf> {
    match args.text("binary") {
        Some(path) => Ok(std::path::absolute(path)?),
        None => built(),
    }
}

/// Returns the release build, which is built now if it does not exist.
fn built() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let binary = target.join("release/regatta");
    if !binary.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "--locked", "--package", "regatta"])
            .current_dir(root())
            .status()?;
        ensure!(built.success(), "the release build failed");
    }
    Ok(binary)
}

/// Creates a store with this many open tasks and no running attempts.
fn fill(path: &Path, tasks: usize) -> anyhow::Result<()> {
    let mut store = SqliteStore::open(path)?;
    let mut fleet = Fleet::new()?;
    while fleet.board.tasks.len() < tasks {
        fleet.add()?;
        if fleet.board.tasks.len().is_multiple_of(10_000) {
            store.commit(&fleet.take_batch())?;
        }
    }
    store.commit(&fleet.take_batch())?;
    ensure!(store.load()?.board == fleet.board, "the store does not load the same board");
    Ok(())
}

/// A daemon that is killed when the value is dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(super) began: Instant,
    ready_after: Duration,
}

impl Daemon {
    pub(crate) fn start(binary: &Path, dir: &Path) -> anyhow::Result<Daemon> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("daemon.err"))?;
        let began = Instant::now();
        let mut child = Command::new(binary)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .env("REGATTA_DATA_DIR", dir)
            .current_dir(kept())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("could not start {}", binary.display()))?;
        let mut line = String::new();
        let read = child.stdout.take().map(|it| BufReader::new(it).read_line(&mut line));
        let ready_after = began.elapsed();
        let daemon = Daemon { child, began, ready_after };
        ensure!(
            matches!(read, Some(Ok(_))) && line.contains("\"ready\""),
            "the daemon did not report that it is ready: {line:?} {}",
            std::fs::read_to_string(dir.join("daemon.err")).unwrap_or_default()
        );
        Ok(daemon)
    }

    pub(crate) fn resident_kb(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Sends SIGKILL to this process only.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the process has ended by itself.
    pub(super) fn gone(mut self) -> anyhow::Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM to this process only, and waits for its clean end.
    fn end(mut self) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
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

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _gone = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}
