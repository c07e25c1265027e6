//! Runs the daemon, and writes the files by which commands find the daemon.
//!
//! There is one daemon per data directory. The daemon holds the lock `daemon.lock` while it lives.
//! Clients find the daemon by its socket, its address file (`daemon.json`) and its token. This
//! module starts the engine, the bridges and the server, and stops them in order. Decisions about
//! tasks are made elsewhere.

use regatta_core::plural;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_engine::ports::git::ServeGit;
use regatta_engine::{BridgeReportSender, Engine, StartedEngine, ToolServer};
use regatta_server::otlp::TraceCollector;
use regatta_server::tokens::TokenStore;
use regatta_server::{PublicListener, ServerConfig, ShutdownCause};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::serve::ListenArgs;
use crate::composition;
use crate::listen_address::{self, BoundListeners};
use crate::output::{
    CommandError, CommandResult, Output, command_error, internal_error, runtime_error,
};
use crate::project_files::ProjectFiles;
use crate::settings::{self, ResolvedSetting};

/// The data directory, in which a daemon keeps all of its data. The methods return the paths of
/// files in the directory and check its locks.
#[derive(Clone, Debug)]
pub(crate) struct DataDir {
    pub(crate) path: PathBuf,
}

/// Describes a running daemon and how to reach it. The daemon writes it to `daemon.json` when it is
/// ready, and removes the file when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DaemonInfo {
    pub(crate) url: String,
    pub(crate) pid: u32,
    pub(crate) data_dir: String,
    #[serde(default)]
    pub(crate) version: String,
    /// The URL for other machines; `None` if the daemon listens only for this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<String>,
    /// The unfinished work that this daemon took over from the previous one, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovered: Option<RecoveredWork>,
}

/// Unfinished work of the previous daemon that a daemon found at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecoveredWork {
    /// True if the previous daemon was killed or crashed instead of being stopped.
    pub(crate) unclean: bool,
    pub(crate) attempts: usize,
    /// The names of the agents that were working when the previous daemon ended.
    #[serde(default)]
    pub(crate) agents: Vec<String>,
    /// The ids of the tasks that were in the landing queue.
    #[serde(default)]
    pub(crate) queue: Vec<String>,
    pub(crate) landings: usize,
    pub(crate) claims: usize,
    pub(crate) open_tasks: usize,
}

impl DaemonInfo {
    /// Returns `host:port`, on which the daemon listens for this machine.
    pub(crate) fn address(&self) -> String {
        self.url
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned()
    }
}

/// A path of the daemon's socket that is short enough for the kernel. `_dir` is an open directory
/// that the path may go through, so it must stay open.
pub(crate) struct ShortPath {
    path: PathBuf,
    _dir: Option<File>,
}

impl ShortPath {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl DataDir {
    pub(crate) fn new(dir: &Path) -> DataDir {
        DataDir {
            path: dir.to_owned(),
        }
    }

    /// Creates the data directory, accessible only to its owner, and its `logs` directory.
    pub(crate) fn create(&self) -> Result<(), CommandError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| self.io_error(&error))?;
        std::fs::create_dir_all(self.path.join("logs")).map_err(|error| self.io_error(&error))
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join("logs/daemon.log")
    }

    fn info_path(&self) -> PathBuf {
        self.path.join("daemon.json")
    }

    pub(crate) fn port_path(&self) -> PathBuf {
        self.path.join("port")
    }

    fn token_path(&self) -> PathBuf {
        self.path.join("token")
    }

    /// Returns the path of the file that exists from `regatta down` until a daemon starts again.
    fn stopped_path(&self) -> PathBuf {
        self.path.join("stopped")
    }

    /// Returns true if a person has stopped the daemon, and nobody has started a daemon since then.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_path().exists()
    }

    /// Records that a person has stopped the daemon, or that a daemon runs. Does nothing if the
    /// data directory does not exist.
    pub(crate) fn record_stopped(&self, is_stopped: bool) -> std::io::Result<()> {
        let file = self.stopped_path();
        let noted = if is_stopped {
            std::fs::write(file, "")
        } else {
            std::fs::remove_file(file)
        };
        match noted {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the path of the daemon's socket. The kernel accepts at most 107 bytes, so instead of
    /// a longer path this is a short path through an open directory.
    pub(crate) fn short_socket(&self) -> Result<ShortPath, CommandError> {
        let path = self.path.join(composition::SOCKET_FILE);
        if path.as_os_str().len() < 100 {
            return Ok(ShortPath { path, _dir: None });
        }
        use std::os::fd::AsRawFd;
        let dir = File::open(&self.path).map_err(|error| self.io_error(&error))?;
        Ok(ShortPath {
            path: PathBuf::from(format!("/proc/self/fd/{}/daemon.sock", dir.as_raw_fd())),
            _dir: Some(dir),
        })
    }

    /// Returns true if a daemon uses the data directory. A daemon holds the lock on `daemon.lock`
    /// as long as it lives.
    pub(crate) fn is_locked(&self) -> Result<bool, CommandError> {
        let lock = match File::open(self.path.join("daemon.lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.io_error(&error)),
        };
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(self.io_error(&error.into())),
        }
    }

    /// Returns true if a daemon, a runner or an agent test manages the agents' programs of this
    /// data directory, or if this cannot be found out.
    pub(crate) fn is_supervised(&self) -> bool {
        let is_free = |name: &str| match File::open(self.path.join(name)) {
            Ok(lock) => {
                rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
            }
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        // A running `regatta agent test` writes a contact file `leash` beside its data directory,
        // so the file shows that the test manages the program.
        let on_leash = self
            .path
            .parent()
            .is_some_and(|place| place.join("leash").exists());
        on_leash || !is_free("daemon.lock") || !is_free("runner.lock")
    }

    /// Returns true if the disk of the data directory has less than 64 KiB of free space.
    pub(crate) fn is_disk_full(&self) -> bool {
        rustix::fs::statvfs(&self.path)
            .is_ok_and(|stat_vfs| stat_vfs.f_bavail.saturating_mul(stat_vfs.f_frsize) < 64 * 1024)
    }

    /// Converts an I/O error in the data directory into an error of a command, with a hint that
    /// fits its cause.
    pub(crate) fn io_error(&self, error: &std::io::Error) -> CommandError {
        let dir = self.path.display();
        let (code, problem, hint) = match error.kind() {
            std::io::ErrorKind::PermissionDenied => (
                "read_only",
                "cannot be written",
                "check its owner and mode, or set REGATTA_DATA_DIR to a directory of your own",
            ),
            std::io::ErrorKind::ReadOnlyFilesystem => (
                "read_only",
                "is on a read-only file system",
                "set REGATTA_DATA_DIR to a directory that you can write",
            ),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => (
                "disk_full",
                "has no room left",
                "free some space on that disk and try again; nothing was lost",
            ),
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => (
                "bad_config",
                "is not a directory",
                "set REGATTA_DATA_DIR to a directory",
            ),
            _ => ("io", "cannot be used", "see what is wrong: regatta doctor"),
        };
        command_error(
            code,
            format!("the data directory {dir} {problem}: {error}"),
            hint,
        )
    }
}

/// Returns random bytes from the kernel, as hex digits.
pub(crate) fn random_hex(bytes: usize) -> std::io::Result<String> {
    let mut dice = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut dice)?;
    Ok(data_encoding::HEXLOWER.encode(&dice))
}

/// Reads the token that every request to the daemon of this data directory must contain.
pub(crate) fn read_token(data_dir: &DataDir) -> Result<String, CommandError> {
    match std::fs::read_to_string(data_dir.token_path()) {
        Ok(token) => Ok(token.trim().to_owned()),
        Err(error) => Err(command_error(
            "no_token",
            format!(
                "could not read the access token from the file {}: {error}",
                data_dir.token_path().display()
            ),
            "the daemon creates the file at its first start: regatta up; for another daemon \
             (--server), \
            set REGATTA_TOKEN",
        )),
    }
}

/// Opens a handle of a process, with which a caller can wait for the end of the process. Unlike the
/// pid, the handle never refers to another process.
pub(crate) fn open_process_handle(pid: u32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

/// Waits until the process has ended, or `timeout` has passed.
pub(crate) fn wait_for_exit(process: &OwnedFd, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let remaining = rustix::event::Timespec {
            tv_sec: remaining.as_secs().cast_signed(),
            tv_nsec: remaining.subsec_nanos().into(),
        };
        let mut fds = [rustix::event::PollFd::new(
            process,
            rustix::event::PollFlags::IN,
        )];
        match rustix::event::poll(&mut fds, Some(&remaining)) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Reads the address file `daemon.json`. Returns `None` if no daemon is ready.
pub(crate) fn read_daemon_info(data_dir: &DataDir) -> Option<DaemonInfo> {
    serde_json::from_slice(&std::fs::read(data_dir.info_path()).ok()?).ok()
}

/// Writes a file completely or not at all, even in a crash, and readable only by its owner
/// (invariant D8).
pub(crate) fn write_atomically(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Returns the token of the data directory. At the first start, creates it from 256 random bits.
fn load_or_create_token(data_dir: &DataDir) -> Result<String, CommandError> {
    if let Ok(token) = read_token(data_dir)
        && token.len() >= 32
    {
        return Ok(token);
    }
    let token = random_hex(32).map_err(|error| data_dir.io_error(&error))?;
    write_atomically(&data_dir.token_path(), &format!("{token}\n"))
        .map_err(|error| data_dir.io_error(&error))?;
    Ok(token)
}

/// Locks the data directory for this daemon. If another daemon holds the lock, returns an error
/// that names it.
fn lock_data_dir(data_dir: &DataDir) -> Result<File, CommandError> {
    let path = data_dir.path.join("daemon.lock");
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| data_dir.io_error(&error))?;
    let mut result = Err(rustix::io::Errno::WOULDBLOCK);
    for round in 0..10 {
        result = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if result != Err(rustix::io::Errno::WOULDBLOCK) {
            break;
        }
        // Another process may hold the lock for only a moment, because `is_locked` acquires the
        // lock to check it. Try again.
        std::thread::sleep(std::time::Duration::from_millis(round));
    }
    match result {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let owner = match read_daemon_info(data_dir) {
                Some(info) => format!("pid {}, at {}", info.pid, info.url),
                None => "it is still starting".into(),
            };
            Err(command_error(
                "already_running",
                format!(
                    "a daemon already uses the data directory {} ({owner})",
                    data_dir.path.display()
                ),
                "use the running daemon: regatta status; or stop the daemon: regatta down",
            ))
        }
        Err(error) => Err(data_dir.io_error(&error.into())),
    }
}

/// Runs the daemon in the foreground until a signal or a request stops it.
pub(crate) fn serve(out: &Output, data_dir: &Path, args: ListenArgs) -> CommandResult {
    crate::composition::require_supported_git()?;
    let daemon_dir = DataDir::new(data_dir);
    daemon_dir.create()?;
    // The lock is declared before everything else, so that Rust drops it last, when everything else
    // is closed.
    let _lock = lock_data_dir(&daemon_dir)?;
    // A daemon removes its address file when it ends. If the file exists, the previous daemon was
    // killed, and the address in the file is no longer valid.
    let was_unclean = daemon_dir.info_path().exists();
    let _absent = std::fs::remove_file(daemon_dir.info_path());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(runtime_error)?;
    // Turn off transparent huge pages, because they waste memory in an idle daemon.
    let _only_larger = rustix::thread::disable_transparent_huge_pages(true);
    let keyring = TokenStore::open(&daemon_dir.path, load_or_create_token(&daemon_dir)?).map_err(
        |error| {
            command_error(
                "bad_config",
                format!(
                    "could not read the access tokens in {directory}: {error}",
                    directory = daemon_dir.path.display()
                ),
                "correct the file tokens.json there, or move the file away, which revokes every \
                 token in it",
            )
        },
    )?;
    // Open the network ports before the engine starts, because the engine tells agents the daemon's
    // address. Requests to the ports wait until the server runs.
    let BoundListeners {
        tcp,
        public_listener: outside,
    } = runtime.block_on(listen_address::bind(&daemon_dir, &args))?;
    let traces =
        TraceCollector::from_env(|name| std::env::var(name).ok().filter(|text| !text.is_empty()))
            .map_err(|text| {
            command_error(
                "bad_config",
                text,
                "set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a trace collector, such as \
                 http://127.0.0.1:4318, or unset it",
            )
        })?;
    let address = tcp
        .local_addr()
        .map_err(|error| daemon_dir.io_error(&error))?;
    let mint = keyring.minter().clone();
    let firing_mint = mint.clone();
    let tools = ToolServer {
        url: format!("http://{address}"),
        mint_attempt_token: Arc::new(move |id, fence| mint.attempt_token(id, fence)),
        mint_firing_token: Arc::new(move |id, fence| firing_mint.firing_token(id, fence)),
    };
    let adapters = composition::open_ports(data_dir, tools)?;
    let StartedEngine {
        engine,
        reports,
        recovered,
    } = Engine::start(adapters.ports, adapters.settings).map_err(|command_failure| {
        match command_failure {
            regatta_engine::CommandFailure::Store(error) => composition::store_error(error),
            other => command_error(
                "io",
                other.to_string(),
                "see what is wrong with the daemon: regatta doctor",
            ),
        }
    })?;
    if let Err(error) = daemon_dir.record_stopped(false) {
        tracing::warn!(
            "could not remove the file {path}, which records that a person stopped the daemon; \
             after \
             a crash of this daemon, commands that only read will not start a new daemon: {error}",
            path = daemon_dir.stopped_path().display()
        );
    }
    if recovered.effects > 0 {
        tracing::info!(
            "took over from the previous daemon: {}, {}, {}, {}, {}",
            plural::count(recovered.open_tasks, "open task"),
            plural::count(recovered.attempts, "live attempt"),
            plural::count(recovered.landings, "landing"),
            plural::count(recovered.claims, "claim"),
            plural::count(recovered.effects, "unfinished action")
        );
    }
    let board = engine.board();
    let mut agents: Vec<String> = board
        .attempts
        .values()
        .map(|attempt| attempt.agent.to_string())
        .collect();
    agents.sort_unstable();
    agents.dedup();
    let takeover = RecoveredWork {
        unclean: was_unclean,
        agents,
        queue: board
            .landings
            .values()
            .map(|landing| landing.task.to_string())
            .collect(),
        attempts: recovered.attempts,
        landings: recovered.landings,
        claims: recovered.claims,
        open_tasks: recovered.open_tasks,
    };
    let reported = (was_unclean || recovered.effects > 0).then_some(takeover);
    set_machine_limits(&engine)?;
    let files = Arc::new(ProjectFiles::new(engine.clone()));
    runtime.spawn(files.clone().apply_until_daemon_ends());
    let setup = ServerSetup {
        git_server: adapters.git_server,
        token_store: keyring,
        tcp,
        public_listener: outside,
        traces,
        recovered: reported,
        web_dir: args.web_dir.clone(),
        project_files: files,
        bridge_reports: reports.for_bridges(),
    };
    let (dir, clear) = (data_dir.to_owned(), std::time::Duration::from_secs(3600));
    runtime.spawn(crate::notifications::send_notifications(engine.clone()));
    let (sweep_engine, canonical_dir) = (
        engine.clone(),
        data_dir
            .canonicalize()
            .unwrap_or_else(|_| data_dir.to_owned()),
    );
    runtime.spawn_blocking(move || {
        composition::sweep_at_start(&canonical_dir, |attempt| {
            sweep_engine.board().attempts.contains_key(&attempt)
        });
    });
    let prune_engine = engine.clone();
    runtime.spawn(async move {
        let mut interval = tokio::time::interval(clear);
        for nth in 0_u64.. {
            interval.tick().await;
            let (dir, engine) = (dir.clone(), prune_engine.clone());
            // Ignore the result of the job. When the daemon ends, the job may be interrupted at any
            // point.
            let _ended = tokio::task::spawn_blocking(move || {
                let Some(today_unix_ms) = composition::retention_date(&dir) else {
                    return;
                };
                composition::prune_old_data(&dir, nth > 0, today_unix_ms);
                match engine.forget_dropped(today_unix_ms) {
                    Ok(0) => {}
                    Ok(count) => tracing::info!(
                        "deleted the kept copies of the work of {}, because the work was dropped a \
                         month ago",
                        plural::count(count, "attempt")
                    ),
                    Err(error) => tracing::warn!(
                        "could not delete the kept copies of work that was dropped a month ago, \
                         trying again in an hour: {error}"
                    ),
                }
            })
            .await;
        }
    });
    // Boxed, because `block_on` is compiled for each type of future with every kind of runtime.
    let server: Pin<Box<dyn Future<Output = _> + '_>> =
        Box::pin(run_server(out, &daemon_dir, engine.clone(), setup));
    let ended = runtime.block_on(server);
    engine.shutdown();
    // Commands find a running daemon by its address file and socket, so remove both before the lock
    // is released.
    let _gone = std::fs::remove_file(daemon_dir.info_path());
    let _gone = std::fs::remove_file(daemon_dir.path.join("daemon.sock"));
    ended.map(|_| ())
}

/// Sets the limits of this machine. The number of trials (merge results) that are validated at the
/// same time is computed from the machine's size. `max_attempts` is set only if the settings
/// contain it.
fn set_machine_limits(engine: &Engine) -> CommandResult {
    let mut limits = engine.board().limits;
    limits.landing_slots = crate::this_machine::validation_slots();
    if let Some(max_attempts) = max_attempts_of(&settings::resolve_all(Path::new("/"))?)? {
        limits.max_attempts = max_attempts;
    }
    let command = regatta_core::command::Command::SetLimits { limits };
    let request = regatta_core::command::Request {
        by: regatta_core::command::Actor::Regatta,
        key: None,
        command,
    };
    engine
        .submit(request)
        .map(|_| ())
        .map_err(|command_failure| {
            let hint =
                "fix daemon.max_attempts in config.toml, or the variable REGATTA_MAX_ATTEMPTS";
            command_error("bad_config", command_failure.to_string(), hint)
        })
}

/// Returns the number of attempts that the settings allow on this machine, or `None` if they do not
/// set the number.
pub(crate) fn max_attempts_of(settings: &[ResolvedSetting]) -> Result<Option<u32>, CommandError> {
    let configured = settings.iter().find(|resolved_setting| {
        resolved_setting.name == "daemon.max_attempts" && resolved_setting.origin != "default"
    });
    let Some(configured) = configured else {
        return Ok(None);
    };
    configured.value.parse().map(Some).map_err(|_| {
        let what = format!(
            "daemon.max_attempts is {:?}, which is not a number",
            configured.value
        );
        command_error(
            "bad_config",
            what,
            format!("fix it in {}", configured.origin),
        )
    })
}

/// The arguments of [`run_server`], except the engine.
struct ServerSetup {
    git_server: Arc<dyn ServeGit>,
    token_store: TokenStore,
    tcp: TcpListener,
    public_listener: Option<PublicListener>,
    traces: Option<TraceCollector>,
    recovered: Option<RecoveredWork>,
    web_dir: Option<PathBuf>,
    project_files: Arc<ProjectFiles>,
    bridge_reports: BridgeReportSender,
}

async fn run_server(
    out: &Output,
    daemon_dir: &DataDir,
    engine: Engine,
    setup: ServerSetup,
) -> Result<ShutdownCause, CommandError> {
    let ServerSetup {
        git_server,
        token_store: keyring,
        tcp,
        public_listener: public_address,
        traces,
        recovered: recovered_work,
        web_dir,
        project_files: files,
        bridge_reports,
    } = setup;
    let address = tcp
        .local_addr()
        .map_err(|error| daemon_dir.io_error(&error))?;
    // Start the bridges before the daemon reports that it is ready, so that the command that starts
    // the daemon prints the errors of the bridges.
    let bridges =
        crate::bridges::RunningBridges::start(&engine, &bridge_reports, &daemon_dir.path).await?;
    let bridges = bridges
        .map(|running_bridges| Box::new(running_bridges) as Box<dyn regatta_server::BridgeControl>);
    let unix = bind_unix(daemon_dir);
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| daemon_dir.io_error(&error))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| daemon_dir.io_error(&error))?;
    let info = DaemonInfo {
        url: format!("http://{address}/"),
        pid: std::process::id(),
        data_dir: daemon_dir.path.display().to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        outside: public_address.as_ref().and_then(listen_address::public_url),
        recovered: recovered_work,
    };
    let recovered = info
        .recovered
        .as_ref()
        .filter(|recovered_work| recovered_work.unclean)
        .map(|recovered_work| {
            format!(
                "recovered after an unclean stop: {} open, {} resumed",
                plural::count(recovered_work.open_tasks, "task"),
                plural::count(recovered_work.attempts, "attempt")
            )
        });
    let text = serde_json::to_string(&info)
        .map_err(|error| internal_error(format!("could not encode daemon.json: {error}")))?;
    write_atomically(&daemon_dir.info_path(), &text)
        .map_err(|error| daemon_dir.io_error(&error))?;
    out.print_answer("ready", &info, &[], |_| {
        let public_address = info
            .outside
            .as_ref()
            .map_or(String::new(), |public_address| {
                format!(" and {public_address}")
            });
        format!(
            "ready at {}{public_address} (pid {}, data in {})\n",
            info.url, info.pid, info.data_dir
        )
    })?;
    let dir = daemon_dir.path.clone();
    let (watched, stopper) = (DataDir::new(&dir), engine.clone());
    let stop_signal = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = wait_until_data_dir_removed(&watched) => stop_without_data_dir(&watched, stopper).await,
        }
    };
    let doctor = crate::commands::doctor::daemon_doctor(dir.clone());
    let parse_plan = std::sync::Arc::new(crate::commands::run::from_prompt::parse_planner_report);
    let config: regatta_server::ApplyConfig = Arc::new(move || files.apply_changed());
    let config = ServerConfig {
        engine,
        git_server: Some(git_server),
        tokens: keyring,
        loopback_listener: tcp,
        public_listener: public_address,
        unix_listener: unix,
        data_dir: dir,
        trace_collector: traces,
        web_dir,
        recovery_notice: recovered,
        bridges,
        doctor,
        parse_plan,
        apply_config: config,
    };
    regatta_server::serve(config, stop_signal)
        .await
        .map_err(|error| daemon_dir.io_error(&error))
}

/// The interval at which the daemon checks that its data directory still exists.
const DATA_DIR_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum time that agents have for ending after the data directory was removed.
const REMOVED_STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the data directory was removed or replaced, so that the lock file in it is no longer
/// the file that this daemon has locked.
async fn wait_until_data_dir_removed(data_dir: &DataDir) {
    let lock = data_dir.path.join("daemon.lock");
    let identity = || std::fs::metadata(&lock).map(|found| (found.dev(), found.ino()));
    // Act only on a definite answer, because a temporary disk error does not mean that the
    // directory is gone.
    let Ok(locked) = identity() else {
        return std::future::pending().await;
    };
    let mut interval = tokio::time::interval(DATA_DIR_INTERVAL);
    loop {
        interval.tick().await;
        match identity() {
            Ok(found) if found != locked => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Stops the agents of this daemon after its data directory was removed, because no command can
/// reach the daemon any more.
async fn stop_without_data_dir(data_dir: &DataDir, engine: Engine) {
    tracing::error!(
        "the data directory {} was removed, so the daemon and its agents stop",
        data_dir.path.display()
    );
    let stopped =
        tokio::task::spawn_blocking(move || engine.stop_attempts("the data directory was removed"));
    match tokio::time::timeout(REMOVED_STOP_TIMEOUT, stopped).await {
        Ok(Ok(Ok(still_running))) if still_running.is_empty() => {}
        Ok(Ok(Ok(still_running))) => {
            tracing::error!(
                "could not stop these programs: {}; find them with regatta doctor",
                still_running.join(", ")
            )
        }
        Ok(Ok(Err(error))) => {
            tracing::error!(
                "could not stop the agents; find agents that still run with regatta doctor: {error}"
            )
        }
        Ok(Err(error)) => {
            tracing::error!(
                "could not stop the agents; find agents that still run with regatta doctor: {error}"
            )
        }
        Err(_) => tracing::error!(
            "the agents did not stop within {} s; find agents that still run with regatta doctor",
            REMOVED_STOP_TIMEOUT.as_secs()
        ),
    }
}

/// Opens the daemon's unix socket, accessible only to its owner. Returns `None` if that fails,
/// because commands can use the loopback address instead.
fn bind_unix(data_dir: &DataDir) -> Option<UnixListener> {
    // Remove the socket of an earlier daemon. This process holds the lock of the data directory, so
    // no other daemon uses the socket.
    let _stale = std::fs::remove_file(data_dir.path.join("daemon.sock"));
    let bound = data_dir
        .short_socket()
        .ok()
        .and_then(|short_path| UnixListener::bind(short_path.path()).ok());
    if bound.is_some() {
        let _mode = std::fs::set_permissions(
            data_dir.path.join("daemon.sock"),
            std::fs::Permissions::from_mode(0o600),
        );
    } else {
        tracing::warn!(
            "could not open a unix socket in {}, so commands use the loopback address instead",
            data_dir.path.display()
        );
    }
    bound
}
