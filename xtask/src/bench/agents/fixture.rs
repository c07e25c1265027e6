//! A repository and a data directory, with the real program.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::JournalStream;
use regatta_store::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

use crate::args::Args;
use crate::bench::start::BenchDaemon;

/// The largest number of concurrent tasks of one agent.
const MAX_TASKS_PER_AGENT: u64 = 20;

pub(crate) struct BenchFixture {
    pub(crate) root: PathBuf,
    binary: PathBuf,
    agents: AgentsAdapter,
    /// True if the daemon is no longer our child process.
    is_detached: AtomicBool,
    _scratch: TempDir,
}

impl BenchFixture {
    /// Creates a repository with one commit. Nothing runs yet.
    pub(crate) fn new(args: &Args, binary: &Path) -> anyhow::Result<BenchFixture> {
        let scratch = args.scratch_dir()?;
        let root = scratch.path().canonicalize()?;
        std::fs::create_dir(root.join("shop"))?;
        let agents = AgentsAdapter::new(root.clone(), binary.to_owned());
        let fixture = BenchFixture {
            root,
            binary: binary.to_owned(),
            agents,
            is_detached: AtomicBool::new(false),
            _scratch: scratch,
        };
        std::fs::write(fixture.root.join("shop/a.txt"), "a\n")?;
        for words in [
            &["init", "-q", "-b", "main", "."][..],
            &["add", "-A"],
            &[
                "-c",
                "user.name=Ann",
                "-c",
                "user.email=ann@example.invalid",
                "commit",
                "-q",
                "-m",
                "Start",
            ],
        ] {
            ensure!(
                fixture.command("git").args(words).status()?.success(),
                "git {words:?} failed"
            );
        }
        Ok(fixture)
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.root)
            .env("REGATTA_DATA_DIR", &self.root)
            .current_dir(self.root.join("shop"))
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon, with the root as its data directory.
    pub(crate) fn start_daemon(&self) -> anyhow::Result<BenchDaemon> {
        BenchDaemon::start(&self.binary, &self.root)
    }

    /// Replaces the daemon by a new one, as an upgrade does.
    pub(crate) fn restart_daemon(&self) -> anyhow::Result<()> {
        self.is_detached.store(true, Ordering::Relaxed);
        self.run_command(&["up", "--restart"]).map(drop)
    }

    /// Runs a command and returns its answer.
    pub(crate) fn run_command(&self, args: &[&str]) -> anyhow::Result<Value> {
        let output = self
            .command(&self.binary)
            .args(args)
            .arg("--json")
            .output()?;
        ensure!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        Ok(answer["data"].clone())
    }

    /// Registers enough agents for this many concurrent tasks. Without a script they are scripted
    /// agents.
    pub(crate) fn add_agents(&self, tasks: u64, script: Option<&str>) -> anyhow::Result<()> {
        self.run_command(&["init", "--yes", "--validate", "true"])?;
        self.run_command(&["config", "set", "max_attempts", &tasks.to_string()])?;
        let file = self.root.join("agent.sh");
        std::fs::write(&file, script.unwrap_or_default())?;
        let command = format!("sh {}", file.display());
        for nth in 0..tasks.div_ceil(MAX_TASKS_PER_AGENT) {
            let (name, most) = (format!("bench-{nth}"), MAX_TASKS_PER_AGENT.to_string());
            let mut args = vec!["agent", "add", &name, "--max-tasks", &most, "--runtime"];
            args.extend(if script.is_some() {
                ["command", "--command", &command]
            } else {
                ["scripted", "--description", "-"]
            });
            args.extend(["--confine", "off"]); // the sandbox is measured separately
            self.run_command(&args)?;
        }
        Ok(())
    }

    /// Starts a mission with this many independent tasks.
    pub(crate) fn run_plan(&self, tasks: u64, script: Option<&str>) -> anyhow::Result<()> {
        let mut plan = String::new();
        for nth in 1..=tasks {
            writeln!(
                plan,
                "[[task]]\nsubject = \"Task {nth}\"\nfiles = [\"f{nth}\"]"
            )?;
            if let Some(script) = script {
                writeln!(plan, "script = {script}")?;
            }
        }
        let file = self.root.join("plan.toml");
        std::fs::write(&file, plan)?;
        let names: Vec<String> = (0..tasks.div_ceil(MAX_TASKS_PER_AGENT))
            .map(|n| format!("bench-{n}"))
            .collect();
        let file = file.to_string_lossy().into_owned();
        let workers = tasks.to_string();
        self.run_command(&[
            "run",
            &file,
            "--max-workers",
            &workers,
            "--agents",
            &names.join(","),
        ])?;
        Ok(())
    }

    /// Starts a mission from a plan.
    pub(crate) fn start_plan(&self, plan: &str, workers: u64, agents: &str) -> anyhow::Result<()> {
        let file = self.root.join("plan.toml");
        std::fs::write(&file, plan)?;
        self.run_command(&[
            "run",
            &file.to_string_lossy(),
            "--max-workers",
            &workers.to_string(),
            "--agents",
            agents,
        ])?;
        Ok(())
    }

    /// Starts a mission from a plan whose tasks may change the same files concurrently.
    pub(crate) fn start_isolated(
        &self,
        plan: &str,
        workers: u64,
        agents: &str,
    ) -> anyhow::Result<()> {
        let file = self.root.join("plan.toml");
        std::fs::write(&file, plan)?;
        let workers = workers.to_string();
        self.run_command(&[
            "run",
            &file.to_string_lossy(),
            "--isolate",
            "--max-workers",
            &workers,
            "--agents",
            agents,
        ])?;
        Ok(())
    }

    /// Runs git in the user's repository and returns its output.
    pub(crate) fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command("git").args(args).output()?;
        ensure!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// Returns all events.
    pub(crate) fn events(&self) -> anyhow::Result<Vec<Value>> {
        let output = self
            .command(&self.binary)
            .args(["events", "--json"])
            .output()?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines
            .lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// Waits until the status satisfies the condition.
    pub(crate) fn wait_for_status(&self, holds: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            let status = self.run_command(&["status"])?;
            if holds(&status) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "timeout while waiting for the status: {status}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until this many tasks have landed. A failed task ends the measurement.
    pub(crate) fn wait_until_landed(&self, tasks: u64, patience: Duration) -> anyhow::Result<()> {
        let mut child = self
            .command(&self.binary)
            .args(["events", "--follow", "--json"])
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = std::io::BufReader::new(child.stdout.take().context("its output is piped")?);
        let (send, receive) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in std::io::BufRead::lines(lines).map_while(Result::ok) {
                if (line.contains("\"task.completed\"") || line.contains("\"task.failed\""))
                    && send.send(line).is_err()
                {
                    return;
                }
            }
        });
        let deadline = Instant::now() + patience;
        let mut landed = 0;
        let outcome = loop {
            if landed == tasks {
                break Ok(());
            }
            match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains("\"task.failed\"") => {
                    break Err(anyhow::anyhow!("a task failed: {line}"));
                }
                Ok(_) => landed += 1,
                Err(_) => {
                    break Err(anyhow::anyhow!(
                        "only {landed} of {tasks} tasks landed in time"
                    ));
                }
            }
        };
        drop(receive);
        child.kill()?;
        child.wait()?;
        drop(reader.join());
        outcome
    }

    /// Returns the daemon's data, after the daemon has stopped.
    pub(crate) fn store(&self) -> anyhow::Result<SqliteStore> {
        Ok(SqliteStore::open(&self.root.join("regatta.db"))?)
    }

    /// Returns how many attempts run according to the daemon.
    pub(crate) fn running_attempts(&self) -> anyhow::Result<u64> {
        let agents = self.run_command(&["agent", "list"])?;
        let agents = agents.as_array().context("a list of agents")?;
        let current = |value: &Value| {
            value["capacity"]["current"]
                .as_u64()
                .or_else(|| value["current"].as_u64())
        };
        Ok(agents.iter().filter_map(current).sum())
    }

    pub(crate) fn run_dir(&self, attempt: AttemptId) -> PathBuf {
        self.root.join("attempts").join(attempt.to_string())
    }

    /// Returns all attempts that were ever started.
    pub(crate) fn all_attempts(&self) -> Vec<AttemptId> {
        let entries = std::fs::read_dir(self.root.join("attempts"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Returns the running shims.
    pub(crate) fn running_shims(&self) -> anyhow::Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        for attempt in self.all_attempts() {
            let Ok(record) = std::fs::read(self.run_dir(attempt).join("shim.json")) else {
                continue;
            };
            let record: Value = serde_json::from_slice(&record)?;
            let pid = record["pid"].as_u64().context("the number of a shim")?;
            let alive = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|command_line| command_line.contains("shim"));
            found.extend(alive.then_some(pid));
        }
        Ok(found)
    }

    /// Returns the standard output of an attempt.
    pub(crate) fn output_lines(&self, attempt: AttemptId) -> anyhow::Result<Vec<String>> {
        let records = self.agents.read_journal(attempt, 1, usize::MAX)?;
        ensure!(
            (1..)
                .zip(&records)
                .all(|(n, journal)| journal.position == n),
            "the journal of {attempt} has a gap"
        );
        Ok(records
            .into_iter()
            .filter(|journal| journal.stream == JournalStream::Out)
            .map(|journal| journal.line)
            .collect())
    }

    /// Returns the end of an attempt's output.
    pub(crate) fn output_tail(&self, attempt: AttemptId) -> anyhow::Result<String> {
        Ok(regatta_engine::ports::agents::Agents::tail(
            &self.agents,
            attempt,
            200,
        )?)
    }

    /// Ends everything.
    pub(crate) fn stop_daemon(&self, daemon: BenchDaemon) -> anyhow::Result<()> {
        let output = self
            .command(&self.binary)
            .args(["down", "--timeout", "120s"])
            .output()?;
        ensure!(
            output.status.success(),
            "down: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        daemon.wait_until_exited()
    }

    /// Performs one call over the daemon's socket, as a program would.
    pub(crate) fn call_verb(
        &self,
        line: &mut UnixStream,
        verb: &str,
        key: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let body = body.to_string();
        let token = std::fs::read_to_string(self.root.join("token")).unwrap_or_default();
        let request = format!(
            "POST /api/v1/{verb} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \
             {}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            token.trim(),
            body.len()
        );
        line.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let (end, length) = loop {
            let mut piece = [0; 4096];
            let read = line.read(&mut piece)?;
            ensure!(read > 0, "the daemon closed the connection");
            answer.extend_from_slice(&piece[..read]);
            if let Some(end) = answer.windows(4).position(|answer| answer == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|head| head.strip_prefix("content-length: ")?.parse::<usize>().ok());
                break (end + 4, length.context("an answer of known length")?);
            }
        };
        while answer.len() < end + length {
            let mut piece = [0; 4096];
            let read = line.read(&mut piece)?;
            ensure!(read > 0, "the daemon closed the connection");
            answer.extend_from_slice(&piece[..read]);
        }
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        ensure!(
            head.starts_with("HTTP/1.1 200"),
            "{verb}: {head}{}",
            String::from_utf8_lossy(&answer[end..])
        );
        Ok(serde_json::from_slice(&answer[end..end + length])?)
    }
}

impl Drop for BenchFixture {
    fn drop(&mut self) {
        // An aborted measurement must not leave a daemon behind. If the daemon is down already,
        // this does nothing.
        if self.is_detached.load(Ordering::Relaxed) {
            drop(
                self.command(&self.binary)
                    .args(["down", "--timeout", "30s"])
                    .output(),
            );
        }
    }
}
