//! A data directory with a workspace, and a view of the process table.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_agents::AgentsAdapter;
use regatta_core::agent::{Profile, Runtime, SandboxLevel};
use regatta_core::ids::{AgentName, AttemptId};
use regatta_engine::ports::agents::{
    Agents, Exit, JournalRecord, JournalStream, ProcessIdentity, ProcessState, ProgramLaunch,
};
use tempfile::TempDir;

/// A timeout that is longer than anything here takes on a loaded machine. Only a failing test waits
/// for it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const A1: AttemptId = AttemptId(1);

pub(crate) struct World {
    pub(crate) adapter: AgentsAdapter,
    pub(crate) workspace: PathBuf,
    /// A text in the environment of every program of this world, and on some of their command
    /// lines.
    pub(crate) token: String,
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        // Many small files are slow on some disks, so the test uses memory if it can.
        let base = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("regatta-agents-")
            .tempdir_in(base)
            .unwrap();
        let workspace = directory.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let token = directory
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        World {
            adapter: adapter(&directory.path().join("data")),
            workspace,
            token,
            directory,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.data().join("attempts/A1")
    }

    pub(crate) fn launch(&self, argv: &[&str]) -> ProgramLaunch {
        ProgramLaunch {
            attempt: A1,
            agent: AgentName::new("tester").unwrap(),
            runtime: Runtime::Command {
                argv: argv.iter().map(|argv| (*argv).to_owned()).collect(),
            },
            profile: Profile {
                sandbox: Some(SandboxLevel::Off),
                ..Profile::default()
            },
            resume: None,
            mcp: None,
            recorded_usage: Default::default(),
            objects: None,
            hidden: vec![],
            workspace: self.workspace.clone(),
            prompt: "Do it.\n".to_owned(),
            script: None,
            env: vec![("TOKEN".to_owned(), self.token.clone())],
        }
    }

    /// Starts a shell script as attempt A1.
    pub(crate) fn start(&self, script: &str) {
        self.adapter
            .start(&self.launch(&["sh", "-c", script]))
            .unwrap();
    }

    pub(crate) fn wait(&self) -> Exit {
        self.adapter
            .wait(A1, TEST_TIMEOUT)
            .unwrap()
            .expect("the program ends in time")
    }

    /// Runs a shell script as attempt A1 to its end.
    pub(crate) fn run(&self, script: &str) -> Exit {
        self.start(script);
        self.wait()
    }

    /// Returns the output of attempt A1 on both streams, with a newline after each line.
    pub(crate) fn output(&self) -> String {
        printed_output(&self.adapter, A1)
    }

    /// Returns the journal of attempt A1.
    pub(crate) fn records(&self) -> Vec<JournalRecord> {
        self.adapter.read_journal(A1, 1, usize::MAX).unwrap()
    }

    /// Returns the lines that attempt A1 wrote to a stream.
    pub(crate) fn lines(&self, stream: JournalStream) -> Vec<String> {
        self.records()
            .into_iter()
            .filter(|record| record.stream == stream)
            .map(|record| record.line)
            .collect()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.workspace.join(name)).unwrap_or_default()
    }

    /// Waits for a file with which a program signals that it is ready. A test's program has no
    /// other way to signal that.
    pub(crate) fn wait_for(&self, name: &str) {
        let path = self.workspace.join(name);
        eventually(&format!("{name} appears"), || path.exists());
    }

    pub(crate) fn shim_identity(&self) -> ProcessIdentity {
        match self.adapter.state(A1).unwrap() {
            ProcessState::Running(identity) => identity,
            other => panic!("the program should run, but is {other:?}"),
        }
    }

    /// Returns the living processes of this world, by its token in their environment or on their
    /// command line.
    pub(crate) fn living_processes(&self) -> Vec<String> {
        let has = |file: String| {
            fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&self.token))
        };
        list_processes()
            .filter(|process| !process.is_zombie && process.pid != std::process::id())
            .filter(|process| {
                has(format!("/proc/{}/environ", process.pid))
                    || has(format!("/proc/{}/cmdline", process.pid))
            })
            .map(|process| {
                let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
                format!(
                    "{} {}",
                    process.pid,
                    String::from_utf8_lossy(&line).replace('\0', " ")
                )
            })
            .collect()
    }

    /// Checks that no process of this world is left (P3).
    pub(crate) fn assert_nothing_runs(&self) {
        assert_eq!(self.living_processes(), Vec::<String>::new())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A failed test must not leave processes either. Errors are ignored, because the test
        // reports its own failure.
        for entry in fs::read_dir(self.data().join("attempts"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Some(attempt) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                drop(self.adapter.stop(attempt, Duration::ZERO));
            }
        }
    }
}

pub(crate) fn fixture() -> &'static str {
    env!("CARGO_BIN_EXE_agents-fixture")
}

pub(crate) fn adapter(data: &Path) -> AgentsAdapter {
    AgentsAdapter::new(data.to_owned(), PathBuf::from(fixture()))
}

pub(crate) fn printed_output(adapter: &AgentsAdapter, attempt: AttemptId) -> String {
    let records = adapter.read_journal(attempt, 1, usize::MAX).unwrap();
    let printed = records
        .into_iter()
        .filter(|record| matches!(record.stream, JournalStream::Out | JournalStream::Err));
    printed.map(|record| record.line + "\n").collect()
}

pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out before {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) struct ProcessEntry {
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
    pub(crate) is_zombie: bool,
    pub(crate) is_stopped: bool,
    pub(crate) start_ticks: u64,
}

pub(crate) fn list_processes() -> impl Iterator<Item = ProcessEntry> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|result| process_entry(result.ok()?.file_name().to_str()?.parse().ok()?))
}

pub(crate) fn process_entry(pid: u32) -> Option<ProcessEntry> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(ProcessEntry {
        pid,
        parent_pid: fields[1].parse().ok()?,
        is_zombie: fields[0] == "Z",
        is_stopped: fields[0] == "T",
        start_ticks: fields[19].parse().ok()?,
    })
}

/// Sends a signal to a process that is known to belong to the test and to be alive.
pub(crate) fn send_signal(pid: u32, name: &str) {
    let done = std::process::Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}
