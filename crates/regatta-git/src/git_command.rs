//! Starts the program `git`. No other module starts git.
//!
//! Every git process starts with an empty environment and one of two configurations:
//!
//! - **Regatta's own configuration**, for commands that work on the vault (Regatta's own repository
//!   of a project), and for commands that read content which an agent wrote. Git reads no system
//!   configuration, and its global configuration is a file that Regatta wrote. This file only
//!   allows git to read repositories of any owner. (Regatta uses a file because `git fetch` does
//!   not pass `-c` settings to its helper programs.) If an agent's `.gitattributes` names a filter,
//!   no program runs, because no filter is configured (invariant S5).
//! - **The user's configuration**, for commands that read or update the user's checkout. These
//!   commands must use the user's settings for line endings, upper and lower case, LFS filters and
//!   trusted directories. With any other configuration, an unchanged file could look changed to
//!   git, or git could write a file in a different form than `git pull`.
//!
//! Hooks, file-system monitors, background maintenance, signing and remote helpers are switched off
//! in both configurations.

mod process;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError, GitRemote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

pub(crate) use process::GitProcess;

use regatta_engine::ports::git::PeerStreams;

use crate::errors;
use crate::git_stream::{self, StreamFault};

/// The largest output of one git process in bytes, so that git cannot fill the daemon's memory.
const MAX_STDOUT_BYTES: usize = 256 << 20;
const MAX_STDERR_BYTES: u64 = 64 << 10;
/// The time limit for one git process. No git process normally takes this long, and a hanging
/// process must not block Regatta.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The time limit for a transfer from or to another machine. Git aborts a connection that transfers
/// no data much earlier.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// The time limit for a query to another machine whose answer is not strictly needed.
const QUICK_QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between the signal on which git removes its lock files and the signal that kills git.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

const REGATTA_SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    // With this setting, git syncs every object to the disk before it reports the object as
    // written. By default git does not sync objects that it stores in separate files.
    "core.fsync=loose-object,pack,pack-metadata,reference,index",
    "core.packedRefsTimeout=10000",
    "core.filesRefLockTimeout=2000",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "protocol.ext.allow=never",
];

/// Git settings for connections to a Regatta server: no redirects, no prompts, and no credentials
/// other than the runner's token.
const ONLINE_SETTINGS: &[&str] = &[
    "http.followRedirects=false",
    "http.sslVerify=true",
    "credential.helper=",
    "credential.interactive=false",
    "core.askPass=",
    "transfer.credentialsInUrl=die",
    // The lowest speed at which a connection is kept. The limit is low, because a server that
    // receives a large push sends nothing until all data is on the server's disk.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
    // Git does not check the objects that the server sends, because an old repository may contain
    // unusual objects.
    "fetch.fsckObjects=false",
];

/// Git settings for connections to the remote of a submodule. Git may use only the protocols that
/// are listed here.
const SUBMODULE_ONLINE_SETTINGS: &[&str] = &[
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "protocol.ssh.allow=always",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "protocol.git.allow=always",
    "core.askPass=",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
];

/// Starts all git processes, and counts them.
#[derive(Debug)]
pub(crate) struct GitLauncher {
    program: OsString,
    global_config: PathBuf,
    search_path: OsString,
    user_env: Vec<(&'static str, OsString)>,
    started_count: Arc<AtomicU64>,
    timeout: Duration,
}

impl GitLauncher {
    pub(crate) fn new(global_config: PathBuf) -> GitLauncher {
        let user = ["HOME", "XDG_CONFIG_HOME"]
            .into_iter()
            .filter_map(|name| Some((name, env::var_os(name)?)));
        GitLauncher {
            program: "git".into(),
            global_config,
            search_path: env::var_os("PATH")
                .unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
            user_env: user.collect(),
            started_count: Arc::default(),
            timeout: COMMAND_TIMEOUT,
        }
    }

    /// Returns the total number of git processes that were started.
    pub(crate) fn started_count(&self) -> u64 {
        self.started_count.load(Ordering::Relaxed)
    }

    /// Returns the path and the content of Regatta's own global git configuration.
    pub(crate) fn global_config(&self) -> (&Path, &'static str) {
        (&self.global_config, "[safe]\n\tdirectory = *\n")
    }

    /// Returns a git command with Regatta's configuration for the repository `git_dir`. The command
    /// cannot connect to other machines.
    pub(crate) fn in_vault(&self, git_dir: &Path, operation: &'static str) -> GitCommand {
        let mut call = self.regatta_command(operation);
        call.command.env("GIT_DIR", git_dir).current_dir(git_dir);
        call
    }

    /// Returns a git command with Regatta's configuration. Git looks for its repository in `dir`
    /// and above.
    pub(crate) fn in_dir(&self, dir: &Path, operation: &'static str) -> GitCommand {
        let mut call = self.regatta_command(operation);
        call.command.current_dir(dir);
        call
    }

    /// Returns a git command with the user's configuration. Git looks for its repository in `dir`
    /// and above.
    pub(crate) fn in_checkout(&self, dir: &Path, operation: &'static str) -> GitCommand {
        let mut call = self.new_command(operation);
        call.command
            .envs(self.user_env.iter().map(|(name, value)| (name, value)))
            .current_dir(dir);
        call
    }

    /// Like [`GitLauncher::in_checkout`], but the returned git command may also connect to remotes
    /// with the user's credentials.
    pub(crate) fn in_checkout_online(&self, dir: &Path, operation: &'static str) -> GitCommand {
        let mut call = self.in_checkout(dir, operation);
        call.command.args([
            "-c",
            "protocol.allow=user",
            "-c",
            "protocol.file.allow=always",
            "-c",
            "protocol.ext.allow=never",
        ]);
        call.command.args([
            "-c",
            "protocol.ssh.allow=always",
            "-c",
            "protocol.https.allow=always",
            "-c",
            "protocol.http.allow=always",
            "-c",
            "protocol.git.allow=always",
        ]);
        call.command.envs(
            ["SSH_AUTH_SOCK", "GIT_SSH_COMMAND"]
                .into_iter()
                .filter_map(|name| Some((name, env::var_os(name)?))),
        );
        call
    }

    /// Returns a git command with the user's configuration for the repository `git_dir`. The
    /// command may connect to the remote of a submodule.
    ///
    /// Somebody else may have chosen the remote's address. Therefore the same limits apply as for
    /// `git submodule`. The address cannot start a program on this machine. It may be a path on
    /// this machine only if the user's settings allow such paths for submodules.
    pub(crate) fn in_submodule_online(
        &self,
        git_dir: &Path,
        allow_files: bool,
        operation: &'static str,
    ) -> GitCommand {
        let mut call = self.in_checkout(git_dir, operation);
        let file_setting = if allow_files {
            "protocol.file.allow=always"
        } else {
            "protocol.file.allow=never"
        };
        for setting in SUBMODULE_ONLINE_SETTINGS.iter().chain([&file_setting]) {
            call.command.args(["-c", setting]);
        }
        call.command
            .env("GIT_DIR", git_dir)
            .env("GIT_PROTOCOL_FROM_USER", "0");
        call.command.envs(
            ["SSH_AUTH_SOCK", "GIT_SSH_COMMAND"]
                .into_iter()
                .filter_map(|name| Some((name, env::var_os(name)?))),
        );
        call
    }

    /// Returns a git command with Regatta's configuration for the repository `git_dir`. The command
    /// may connect to the Regatta server `remote` and to no other host.
    ///
    /// Git gets the server's token in an environment variable, which only the same user can read,
    /// and never on a command line or in a file. Git sends the token only to the address of
    /// `remote`, because redirects are switched off.
    pub(crate) fn in_vault_online(
        &self,
        git_dir: &Path,
        remote: &GitRemote,
        operation: &'static str,
    ) -> GitCommand {
        let mut call = self.in_vault(git_dir, operation).with_long_timeout();
        let is_secure = remote.url.starts_with("https:");
        let protocol = if is_secure {
            "protocol.https.allow=always"
        } else {
            "protocol.http.allow=always"
        };
        for setting in ONLINE_SETTINGS.iter().chain([&protocol]) {
            call.command.args(["-c", setting]);
        }
        if let Some(ca) = &remote.ca {
            let mut setting = OsString::from("http.sslCAInfo=");
            setting.push(ca);
            call.command.arg("-c").arg(setting);
        }
        if is_secure {
            let proxies = ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"];
            call.command.envs(
                proxies
                    .into_iter()
                    .filter_map(|proxy| Some((proxy, env::var_os(proxy)?))),
            );
        }
        call.command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "http.extraHeader")
            .env(
                "GIT_CONFIG_VALUE_0",
                format!("Authorization: Bearer {}", remote.token),
            );
        call
    }

    fn regatta_command(&self, operation: &'static str) -> GitCommand {
        let mut call = self.new_command(operation);
        call.command
            .args([
                "-c",
                "safe.directory=*",
                "-c",
                "core.protectHFS=true",
                "-c",
                "core.protectNTFS=true",
            ])
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", &self.global_config);
        call
    }

    fn new_command(&self, operation: &'static str) -> GitCommand {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", &self.search_path)
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_AUTHOR_NAME", "Regatta")
            .env("GIT_AUTHOR_EMAIL", "regatta@localhost")
            .env("GIT_COMMITTER_NAME", "Regatta")
            .env("GIT_COMMITTER_EMAIL", "regatta@localhost")
            // The git process gets its own process group, so that Ctrl-C in the daemon's terminal
            // does not interrupt a checkout.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for setting in REGATTA_SETTINGS {
            command.args(["-c", setting]);
        }
        GitCommand {
            command,
            operation,
            input: None,
            started_count: Arc::clone(&self.started_count),
            timeout: self.timeout,
        }
    }
}

/// The exit status and the output of a git process that has ended.
#[derive(Debug)]
pub(crate) struct GitOutput {
    /// The exit status, or `None` if a signal ended the process.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// A git process that has not been started yet.
#[derive(Debug)]
pub(crate) struct GitCommand {
    command: Command,
    operation: &'static str,
    input: Option<Vec<u8>>,
    started_count: Arc<AtomicU64>,
    timeout: Duration,
}

impl GitCommand {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> GitCommand {
        self.command.arg(arg);
        self
    }
    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> GitCommand {
        self.command.args(args);
        self
    }
    /// Makes git work on the files in `tree`, and start in that directory.
    pub(crate) fn work_tree(mut self, tree: &Path) -> GitCommand {
        self.command.env("GIT_WORK_TREE", tree).current_dir(tree);
        self
    }
    pub(crate) fn index(mut self, index: &Path) -> GitCommand {
        self.command.env("GIT_INDEX_FILE", index);
        self
    }
    /// Makes git write new objects to the directory `objects`, and also read objects from the
    /// directory `alternates`.
    pub(crate) fn object_dirs(mut self, objects: &Path, alternates: &Path) -> GitCommand {
        self.command.env("GIT_OBJECT_DIRECTORY", objects).env(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            quote_object_dir(alternates),
        );
        self
    }
    /// Makes git also read objects from the object directory `alternates`.
    pub(crate) fn alternate_objects(mut self, alternates: &Path) -> GitCommand {
        self.command.env(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            quote_object_dir(alternates),
        );
        self
    }
    /// Makes git write objects without syncing them to the disk. Use this only for objects that
    /// Regatta can create again after a crash. Must be called before the arguments are added.
    pub(crate) fn without_sync(mut self) -> GitCommand {
        self.command.args(["-c", "core.fsync=none"]);
        self
    }
    /// Adds a git setting (`-c`). Must be called before the arguments are added.
    pub(crate) fn setting(mut self, setting: impl AsRef<OsStr>) -> GitCommand {
        self.command.arg("-c").arg(setting);
        self
    }
    /// Sets a short time limit, for a query whose result the caller does not strictly need.
    pub(crate) fn with_short_timeout(mut self) -> GitCommand {
        self.timeout = QUICK_QUERY_TIMEOUT.min(self.timeout);
        self
    }
    /// Sets a time limit that is long enough to transfer a large repository over a slow connection.
    pub(crate) fn with_long_timeout(mut self) -> GitCommand {
        self.timeout = TRANSFER_TIMEOUT.max(self.timeout);
        self
    }
    /// Makes git use the protocol version that the client requested.
    pub(crate) fn protocol(mut self, protocol: Option<&str>) -> GitCommand {
        self.command
            .envs(protocol.map(|protocol| ("GIT_PROTOCOL", protocol)));
        self
    }
    /// Makes git search for the repository only in `dir`, and not in the directories above `dir`.
    pub(crate) fn ceiling_dir(mut self, dir: &Path) -> GitCommand {
        if let Some(parent) = dir.parent() {
            self.command.env("GIT_CEILING_DIRECTORIES", parent);
        }
        self
    }
    pub(crate) fn authorship(mut self, authorship: &Authorship) -> GitCommand {
        let date = format!("@{} +0000", authorship.unix_seconds);
        // Git refuses a commit whose author has an empty name. Git itself removes `<`, `>` and
        // newlines from a name.
        let name = if authorship.name.trim().is_empty() {
            "Regatta"
        } else {
            &authorship.name
        };
        self.command
            .env("GIT_AUTHOR_NAME", name)
            .env("GIT_AUTHOR_EMAIL", &authorship.email)
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", &authorship.email)
            .env("GIT_COMMITTER_DATE", &date);
        self
    }
    pub(crate) fn input(mut self, input: Vec<u8>) -> GitCommand {
        self.input = Some(input);
        self
    }

    fn spawn(&mut self) -> Result<Child, GitError> {
        self.started_count.fetch_add(1, Ordering::Relaxed);
        self.command.spawn().map_err(|cause| {
            // The operating system reports "not found" both if the program `git` is missing and if
            // the working directory is missing, so find out which of the two is missing.
            let dir_exists = self.command.get_current_dir().is_none_or(Path::is_dir);
            if cause.kind() == io::ErrorKind::NotFound && dir_exists {
                return errors::git_missing();
            }
            match self.command.get_current_dir() {
                Some(dir) if !dir_exists => errors::io_error("enter the directory", dir, &cause),
                _ => errors::not_started(self.operation, &cause),
            }
        })
    }

    /// Starts the git process and keeps it running for repeated queries.
    pub(crate) fn start_process(mut self) -> Result<GitProcess, GitError> {
        self.command.stdin(Stdio::piped()).stderr(Stdio::null());
        let child = self.spawn()?;
        GitProcess::new(child, self.operation, self.timeout)
    }

    /// Runs the git process. Its input is the request of the client `peer`, and its output is sent
    /// to the client as the answer. Returns an error if the process fails.
    pub(crate) fn stream(mut self, peer: PeerStreams<'_>) -> Result<(), GitError> {
        self.command.stdin(Stdio::piped());
        let mut child = self.spawn()?;
        let (Some(stdin), Some(stdout), stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(errors::unexpected(self.operation));
        };
        thread::scope(|scope| {
            let stderr_reader = scope.spawn(move || read_stderr(stderr));
            let fault = git_stream::transfer(
                &child,
                (stdin, stdout),
                peer,
                (Instant::now() + self.timeout, CLEANUP_TIMEOUT),
            );
            if matches!(fault, Some(StreamFault::SystemCall(_))) {
                let _ = child.kill();
            }
            let status = child
                .wait()
                .map_err(|cause| errors::not_started(self.operation, &cause))?;
            let stderr_text = stderr_reader.join().unwrap_or_default();
            match fault {
                Some(StreamFault::TimedOut) => {
                    Err(errors::took_too_long(self.operation, self.timeout))
                }
                Some(StreamFault::Request(cause) | StreamFault::Answer(cause)) => {
                    Err(errors::transfer_interrupted(self.operation, &cause))
                }
                Some(StreamFault::SystemCall(cause)) => {
                    Err(errors::not_started(self.operation, &cause))
                }
                None if status.success() => Ok(()),
                None => Err(errors::git_failed(self.operation, &stderr_text)),
            }
        })
    }

    /// Runs the git process until it ends. Any exit status counts as success.
    pub(crate) fn run(mut self) -> Result<GitOutput, GitError> {
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let mut child = self.spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let input = self.input.take();
        thread::scope(|scope| {
            if let (Some(mut pipe), Some(input)) = (stdin, input) {
                // A failed write is ignored. If git stops reading its input, git's exit status and
                // output show the reason.
                scope.spawn(move || drop(pipe.write_all(&input)));
            }
            let stderr_reader = scope.spawn(move || read_stderr(stderr));
            let mut stdout_bytes = Vec::new();
            let (mut is_too_long, mut has_timed_out) = (false, false);
            if let Some(pipe) = stdout {
                let mut pipe = TimeLimitedOutput {
                    pipe,
                    child: &child,
                    deadline: Instant::now() + self.timeout,
                    signals_sent: 0,
                };
                let read = pipe
                    .by_ref()
                    .take(MAX_STDOUT_BYTES as u64 + 1)
                    .read_to_end(&mut stdout_bytes);
                read.map_err(|cause| errors::not_started(self.operation, &cause))?;
                (is_too_long, has_timed_out) =
                    (stdout_bytes.len() > MAX_STDOUT_BYTES, pipe.signals_sent > 0);
            }
            if is_too_long {
                let _ = child.kill();
            }
            let status = child
                .wait()
                .map_err(|cause| errors::not_started(self.operation, &cause))?;
            if has_timed_out {
                return Err(errors::took_too_long(self.operation, self.timeout));
            }
            if is_too_long {
                return Err(errors::too_much_output(self.operation, MAX_STDOUT_BYTES));
            }
            let stderr = stderr_reader.join().unwrap_or_default();
            Ok(GitOutput {
                status: status.code(),
                stdout: stdout_bytes,
                stderr,
            })
        })
    }

    /// Runs the git process until it ends. An exit status other than 0 is an error.
    pub(crate) fn run_expecting_success(self) -> Result<GitOutput, GitError> {
        let operation = self.operation;
        let output = self.run()?;
        if output.status == Some(0) {
            Ok(output)
        } else {
            Err(errors::git_failed(operation, &output.stderr))
        }
    }

    /// Runs the git process and returns `true` for exit status 0 and `false` for 1. Any other
    /// status is an error.
    pub(crate) fn run_yes_or_no(self) -> Result<bool, GitError> {
        let operation = self.operation;
        let output = self.run()?;
        match output.status {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(errors::git_failed(operation, &output.stderr)),
        }
    }

    /// Runs the git process and returns the first line of its output.
    pub(crate) fn run_for_line(self) -> Result<String, GitError> {
        let output = self.run_expecting_success()?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned())
    }

    /// Runs the git process and returns the object id that it prints.
    pub(crate) fn run_for_object(self) -> Result<CommitId, GitError> {
        let operation = self.operation;
        CommitId::new(&self.run_for_line()?).map_err(|_| errors::unexpected(operation))
    }

    /// Runs the git process, which must be `git rev-parse --verify --quiet`. Returns the object id
    /// that it prints, or `None` if the object does not exist.
    pub(crate) fn run_for_optional_object(self) -> Result<Option<CommitId>, GitError> {
        let operation = self.operation;
        let output = self.run()?;
        match output.status {
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout);
                CommitId::new(text.trim_end())
                    .map(Some)
                    .map_err(|_| errors::unexpected(operation))
            }
            Some(1) => Ok(None),
            _ => Err(errors::git_failed(operation, &output.stderr)),
        }
    }

    /// Runs the git process and returns its output, split at NUL bytes.
    pub(crate) fn run_for_list(self) -> Result<Vec<Vec<u8>>, GitError> {
        Ok(split_nul(&self.run_expecting_success()?.stdout))
    }
}

/// Reads the standard error of a git process to its end, and returns its beginning.
fn read_stderr(pipe: Option<ChildStderr>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
    }
    path_to_text(&bytes)
}

/// Reads the output of a process. Stops the process when its time limit is reached, so that its
/// output ends.
struct TimeLimitedOutput<'a> {
    pipe: ChildStdout,
    child: &'a Child,
    deadline: Instant,
    /// The number of signals that were sent to the process. The first signal is SIGTERM, on which
    /// git removes its lock files. The second is SIGKILL.
    signals_sent: u32,
}

impl Read for TimeLimitedOutput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            let wait = Timespec {
                tv_sec: remaining.as_secs() as i64,
                tv_nsec: i64::from(remaining.subsec_nanos()),
            };
            let ready = match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&wait)) {
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
            if ready > 0 {
                return self.pipe.read(buffer);
            }
            if self.signals_sent > 1 {
                return Ok(0); // another process holds its output open
            }
            let signal = if self.signals_sent == 0 {
                Signal::TERM
            } else {
                Signal::KILL
            };
            (self.signals_sent, self.deadline) =
                (self.signals_sent + 1, Instant::now() + CLEANUP_TIMEOUT);
            // Signals the whole process group of the git process. The call fails if the process has
            // just ended, and this failure can be ignored.
            let _gone = kill_process_group(Pid::from_child(self.child), signal);
        }
    }
}

/// Returns a path in the quoted form that git expects in a list of object directories.
fn quote_object_dir(path: &Path) -> OsString {
    let mut quoted = b"\"".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            0..=31 | 127.. => quoted.extend(format!("\\{byte:03o}").bytes()),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    OsStr::from_bytes(&quoted).to_owned()
}

/// Splits the bytes at NUL bytes and leaves out empty parts.
pub(crate) fn split_nul(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|bytes| !bytes.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Joins the items with a NUL byte after each, the format of git's input with `-z`.
pub(crate) fn join_nul<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for item in items {
        joined.extend_from_slice(item);
        joined.push(0);
    }
    joined
}

/// Converts the bytes that git printed for a path into a path.
pub(crate) fn path_from_bytes(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Converts the bytes that git printed for a path into text, for people and for other crates.
pub(crate) fn path_to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
