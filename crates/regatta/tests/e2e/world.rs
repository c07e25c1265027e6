//! A data directory, a home and a repository for one test, and the binary to run in them.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything in these tests takes on a loaded machine. Only a failing test waits that
/// long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The directories of one test. Dropping the value stops the daemon and checks that no process is
/// left.
pub(crate) struct World {
    pub(crate) root: PathBuf,
    /// The user's repository, created by [`World::with_repo`].
    pub(crate) repo: PathBuf,
    pub(crate) data_dir: PathBuf,
    _directory: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) exit_code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The check of the sample repository. It fails while a file called `bad` exists.
const TEST_SCRIPT: &str = "#!/bin/sh\nset -e\n[ ! -e bad ] || { echo \"bad is here\"; exit 1; }\n";

impl World {
    /// Creates the directories only.
    pub(crate) fn new() -> World {
        // Commits are synchronous. Memory is faster than a disk and equally safe for a killed
        // process.
        let base = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("regatta-e2e-")
            .tempdir_in(base)
            .unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["home", "tmp", "shop"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        World {
            repo: root.join("shop"),
            data_dir: root.join("data"),
            root,
            _directory: directory,
        }
    }

    /// Creates a small repository called `shop` with a test, a text and one commit.
    pub(crate) fn with_repo() -> World {
        let world = World::new();
        world.git(&["init", "-q", "-b", "main", "."]);
        world.write_file("test.sh", TEST_SCRIPT);
        world.write_file(
            "a.txt",
            "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
        );
        world.commit_all("Start");
        world
    }

    /// Creates a repository, runs `init` and commits the settings.
    pub(crate) fn with_project() -> World {
        let world = World::with_repo();
        world.run_ok(&["init", "--yes"]);
        world.commit_all("Use regatta");
        world
    }

    /// Returns a command for the binary in the repository, without the caller's environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regatta"));
        command
            .args(args)
            .current_dir(&self.repo)
            .stdin(Stdio::null());
        self.clean_environment(&mut command);
        command
    }

    /// Replaces the caller's environment of a command.
    pub(crate) fn clean_environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.join("home"))
            .env("XDG_CONFIG_HOME", self.root.join("home/.config"))
            .env("TMPDIR", self.root.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("USER", "ann")
            .env("REGATTA_DATA_DIR", &self.data_dir)
            .env("REGATTA_LISTEN", "127.0.0.1:0");
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run_command(self.command(args), None)
    }

    /// Runs a command in a shell's environment that finds the program as `regatta`.
    pub(crate) fn run_on_path(&self, args: &[&str]) -> CommandOutput {
        let own = Path::new(env!("CARGO_BIN_EXE_regatta")).parent().unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(own.to_owned()).chain(std::env::split_paths(&path));
        let mut command = self.command(args);
        command.env("PATH", std::env::join_paths(dirs).unwrap());
        run_command(command, None)
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> CommandOutput {
        run_command(self.command(args), Some(input))
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.exit_code, 0, "{args:?}: {output:?}");
        output.stdout
    }

    /// Runs a command with `--json` that must succeed, and returns the data of its answer.
    #[track_caller]
    pub(crate) fn run_json(&self, args: &[&str]) -> Value {
        let (data, ran) = self.run_json_any_exit(args);
        assert_eq!(ran.exit_code, 0, "{args:?}: {ran:?}");
        assert_eq!(ran.stderr, "", "{args:?}: standard error must be empty");
        data
    }

    /// Runs a command with `--json`, and returns the data of its answer and how it ended, whatever
    /// its exit code.
    #[track_caller]
    pub(crate) fn run_json_any_exit(&self, args: &[&str]) -> (Value, CommandOutput) {
        let output = self.run(&[args, &["--json"]].concat());
        assert_eq!(
            output.stdout.lines().count(),
            1,
            "{args:?}: exactly one object: {output:?}"
        );
        let answer: Value = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
        assert_eq!(answer["v"], 1, "{args:?}: {answer}");
        assert!(answer["kind"].is_string(), "{args:?}: {answer}");
        let known = ["v", "kind", "data", "next"];
        assert!(
            answer
                .as_object()
                .unwrap()
                .keys()
                .all(|answer| known.contains(&answer.as_str())),
            "{args:?}: {answer}"
        );
        (answer["data"].clone(), output)
    }

    /// Runs a command with `--json` that must fail with this exit code, and returns the error.
    #[track_caller]
    pub(crate) fn run_refused(&self, args: &[&str], code: i32) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert_eq!(output.exit_code, code, "{args:?}: {output:?}");
        assert_eq!(output.stdout, "", "{args:?}: {output:?}");
        assert_eq!(
            output.stderr.lines().count(),
            1,
            "{args:?}: exactly one object: {output:?}"
        );
        let answer: Value = serde_json::from_str(&output.stderr)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
        let error = answer["error"].clone();
        assert_eq!(answer["v"], 1, "{args:?}: {answer}");
        for field in ["code", "message", "hint"] {
            assert!(
                error[field].as_str().is_some_and(|error| !error.is_empty()),
                "{args:?}: {field} in {answer}"
            );
        }
        assert!(error["retryable"].is_boolean(), "{args:?}: {answer}");
        error
    }

    pub(crate) fn write_file(&self, path: &str, text: &str) {
        let path = self.repo.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read_file(&self, path: &str) -> String {
        std::fs::read_to_string(self.repo.join(path)).unwrap()
    }

    /// Runs git in the user's repository, as the user.
    #[track_caller]
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.repo, args)
    }

    #[track_caller]
    pub(crate) fn git_in(&self, directory: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        self.clean_environment(&mut command);
        for (name, value) in [("NAME", "Ann"), ("EMAIL", "ann@example.invalid")] {
            command
                .env(format!("GIT_AUTHOR_{name}"), value)
                .env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.args(args).current_dir(directory);
        let output = run_command(command, None);
        assert_eq!(output.exit_code, 0, "git {args:?}: {output:?}");
        output.stdout.trim_end().to_owned()
    }

    pub(crate) fn commit_all(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", message]);
    }

    /// Returns the commits of the trunk along first parents, newest first.
    pub(crate) fn trunk_commits(&self) -> Vec<String> {
        self.git(&["rev-list", "--first-parent", "main"])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Checks that `sh ./test.sh` passes at every commit of the trunk's first-parent history (Q1).
    #[track_caller]
    pub(crate) fn assert_green_everywhere(&self) {
        assert_green_everywhere(self, &self.repo, &self.trunk_commits());
    }

    /// Returns the daemon's card, if there is one.
    pub(crate) fn daemon_info(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(self.data_dir.join("daemon.json")).ok()?).ok()
    }

    /// Returns every process of this world, by a path in its arguments, environment or working
    /// directory.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes_of(&self.root)
    }

    /// Returns every process of this world except the daemon and its own children: git programs,
    /// including those of a killed daemon, and a child that has not yet executed its program. A
    /// process that an agent started has the agent's name in its environment.
    fn other_processes(&self) -> Vec<ProcessSnapshot> {
        let daemon = self
            .daemon_info()
            .and_then(|status| status["pid"].as_u64())
            .map_or(0, |pid| pid as u32);
        let line = std::fs::read(format!("/proc/{daemon}/cmdline")).unwrap_or_default();
        let its_own = |process_snapshot: &ProcessSnapshot| {
            let not_yet = process_snapshot.parent() == daemon
                && (process_snapshot.command_line == line
                    || process_snapshot.command_line.is_empty());
            not_yet
                || process_snapshot.is_git()
                    && !process_snapshot
                        .environ
                        .split(|byte| *byte == 0)
                        .any(|environ| environ.starts_with(b"REGATTA_AGENT="))
        };
        processes_in(&self.root)
            .into_iter()
            .filter(|process_snapshot| process_snapshot.pid != daemon && !its_own(process_snapshot))
            .collect()
    }

    /// Returns every process of this world that is not Regatta's own.
    pub(crate) fn foreign_processes(&self) -> Vec<u32> {
        self.other_processes()
            .iter()
            .map(|process_snapshot| process_snapshot.pid)
            .collect()
    }

    /// Describes the processes of [`World::foreign_processes`], for assertions that none is left.
    pub(crate) fn describe_foreign_processes(&self) -> Vec<String> {
        self.other_processes()
            .iter()
            .map(ProcessSnapshot::command_text)
            .collect()
    }

    /// Returns all events.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.run_ok(&["events", "--json"]);
        text.lines()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect()
    }

    /// Writes a plan file into the repository's parent, so that the checkout stays clean, and
    /// returns its path.
    pub(crate) fn write_plan(&self, text: &str) -> String {
        let path = self.root.join("plan.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.daemon_info().is_some() {
            let mut down = self.command(&["down", "--timeout", "120s"]);
            down.current_dir(&self.root);
            let _ended = run_command_for(down, None, TEST_TIMEOUT);
        }
        let ended = wait_until(Duration::from_secs(60), || self.processes().is_empty());
        let processes = processes_in(&self.root);
        let words: Vec<String> = processes
            .iter()
            .map(ProcessSnapshot::command_text)
            .collect();
        for process_snapshot in &processes {
            kill_process(process_snapshot.pid);
        }
        if !ended && !std::thread::panicking() {
            panic!("P3: processes were left running: {words:?}");
        }
    }
}

/// Checks that `sh ./test.sh` passes at each of these commits of a repository.
#[track_caller]
pub(crate) fn assert_green_everywhere(world: &World, repo: &Path, commits: &[String]) {
    let place = tempfile::tempdir_in(&world.root).unwrap();
    for commit in commits {
        let tree = place.path().join(commit);
        world.git_in(
            repo,
            &[
                "worktree",
                "add",
                "-q",
                "--detach",
                tree.to_str().unwrap(),
                commit,
            ],
        );
        let mut test = Command::new("sh");
        world.clean_environment(&mut test);
        test.arg("./test.sh").current_dir(&tree);
        let output = run_command(test, None);
        assert_eq!(
            output.exit_code, 0,
            "Q1: {commit} fails the checks: {output:?}"
        );
        world.git_in(
            repo,
            &["worktree", "remove", "--force", tree.to_str().unwrap()],
        );
    }
}

/// A snapshot of a process, which stays valid when the process ends.
struct ProcessSnapshot {
    pid: u32,
    status: String,
    environ: Vec<u8>,
    command_line: Vec<u8>,
}

impl ProcessSnapshot {
    fn read(pid: u32) -> Option<ProcessSnapshot> {
        let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).ok();
        let status = String::from_utf8_lossy(&read("status")?).into_owned();
        // Parts of a sandboxed process may not be readable.
        Some(ProcessSnapshot {
            pid,
            status,
            environ: read("environ").unwrap_or_default(),
            command_line: read("cmdline").unwrap_or_default(),
        })
    }

    fn status_field(&self, field: &str) -> &str {
        self.status
            .lines()
            .find_map(|status| status.strip_prefix(field))
            .unwrap_or_default()
            .trim()
    }

    fn parent(&self) -> u32 {
        self.status_field("PPid:").parse().unwrap_or_default()
    }

    fn is_git(&self) -> bool {
        let first = String::from_utf8_lossy(
            self.command_line
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default(),
        )
        .into_owned();
        let called = first.rsplit('/').next().unwrap_or_default();
        [self.status_field("Name:"), called]
            .iter()
            .any(|name| *name == "git" || name.starts_with("git-"))
    }

    fn command_text(&self) -> String {
        let line = String::from_utf8_lossy(&self.command_line).replace('\0', " ");
        format!(
            "{} of {} ({}, {}): {line}",
            self.pid,
            self.parent(),
            self.status_field("Name:"),
            self.status_field("State:")
        )
    }
}

/// Returns every process, except zombies, that has a path in its arguments, environment or working
/// directory.
pub(crate) fn processes_of(path: &Path) -> Vec<u32> {
    processes_in(path)
        .iter()
        .map(|process_snapshot| process_snapshot.pid)
        .collect()
}

fn processes_in(path: &Path) -> Vec<ProcessSnapshot> {
    let mark = path.as_os_str().as_encoded_bytes();
    let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|bytes| bytes == mark);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let Some(process_snapshot) = ProcessSnapshot::read(pid) else {
            continue;
        };
        let inside = std::fs::read_link(entry.path().join("cwd"))
            .is_ok_and(|path| has(path.as_os_str().as_encoded_bytes()));
        if (has(&process_snapshot.command_line) || has(&process_snapshot.environ) || inside)
            && is_alive(pid)
        {
            found.push(process_snapshot);
        }
    }
    found
}

/// Returns whether a process runs. A zombie does not, unless some of its threads still run and hold
/// its files.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    let Some((_, rest)) = text.rsplit_once(") ") else {
        return false;
    };
    let threads = rest
        .split(' ')
        .nth(17)
        .and_then(|rest| rest.parse::<u32>().ok())
        .unwrap_or(0);
    !rest.starts_with(['Z', 'X']) || threads > 1
}

/// Kills a process. Only for processes that a test has started.
pub(crate) fn kill_process(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// Repeats a check until it holds or the time is up. Returns whether it held.
pub(crate) fn wait_until(deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if began.elapsed() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run_command(command: Command, input: Option<&str>) -> CommandOutput {
    let shown = format!("{command:?}");
    run_command_for(command, input, TEST_TIMEOUT)
        .unwrap_or_else(|| panic!("{shown} did not end within {TEST_TIMEOUT:?}"))
}

/// Runs a command to its end. Returns `None` if it did not end in time and was killed.
pub(crate) fn run_command_for(
    mut command: Command,
    input: Option<&str>,
    deadline: Duration,
) -> Option<CommandOutput> {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(text) = input {
        // A command that does not read its input shows that in its output.
        let _unread = child.stdin.take().unwrap().write_all(text.as_bytes());
    }
    wait_for_child(child, deadline)
}

/// Waits for a child with piped outputs.
pub(crate) fn wait_for_child(mut child: Child, deadline: Duration) -> Option<CommandOutput> {
    let out = read_in_thread(child.stdout.take().unwrap());
    let err = read_in_thread(child.stderr.take().unwrap());
    let mut status = None;
    wait_until(deadline, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        let _gone = child.kill();
        let _reaped = child.wait();
    }
    let output = CommandOutput {
        exit_code: status?.code().unwrap_or(-1),
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    };
    assert!(!output.stderr.contains("panicked"), "{output:?}");
    Some(output)
}

fn read_in_thread(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns whether this process may mount file systems.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Prints that a test did not run, the reason, and the test that stands in for it. The note appears
/// even when the output of passing tests is hidden.
pub(crate) fn note_skipped_test(test: &str, reason: &str, instead: &str) {
    let _gone = writeln!(
        std::io::stderr(),
        "NOT RUN: {test}: {reason}; {instead} stands in for it"
    );
}

/// Splits a command line into words, for tables of cases.
pub(crate) fn split_words(line: &str) -> Vec<&str> {
    line.split_ascii_whitespace().collect()
}

/// Returns a path as text.
pub(crate) fn path_text(path: &(impl AsRef<OsStr> + ?Sized)) -> &str {
    path.as_ref().to_str().unwrap()
}
