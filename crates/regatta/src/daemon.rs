//! The daemon: one per data directory, found by its socket, its card and its token.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_engine::{Engine, Tools};
use regatta_server::tokens::Keyring;
use regatta_server::trace::Collector;
use regatta_server::{Doors, Ended, Outside};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Listen;
use crate::bind::{self, Bound};
use crate::out::{Failed, Out, Said, failed};
use crate::project_files::ProjectFiles;
use crate::settings;
use crate::wire;

/// A data directory and the names of what is in it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
}

/// Who runs the daemon and how to reach it; written when it is ready, removed when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    pub(crate) url: String,
    pub(crate) pid: u32,
    pub(crate) data_dir: String,
    #[serde(default)]
    pub(crate) version: String,
    /// Where other machines reach it, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<String>,
    /// What it took over from the daemon before it, if there was anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovered: Option<Takeover>,
}

/// What a daemon found that another one had left in the middle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Takeover {
    /// Whether the other one could not say goodbye.
    pub(crate) unclean: bool,
    pub(crate) attempts: usize,
    /// Who was at work.
    #[serde(default)]
    pub(crate) agents: Vec<String>,
    /// What was on its way to the trunk.
    #[serde(default)]
    pub(crate) queue: Vec<String>,
    pub(crate) landings: usize,
    pub(crate) claims: usize,
    pub(crate) open_tasks: usize,
}

impl Card {
    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").trim_end_matches('/').to_owned()
    }
}

/// A path to the socket that is short enough for the kernel, and what keeps it valid.
pub(crate) struct ShortPath {
    path: PathBuf,
    _dir: Option<File>,
}

impl ShortPath {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Place {
    pub(crate) fn new(dir: &Path) -> Place {
        Place { dir: dir.to_owned() }
    }

    /// Makes the directory, for its owner only.
    pub(crate) fn make(&self) -> Result<(), Failed> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(|it| self.broken(&it))?;
        std::fs::create_dir_all(self.dir.join("logs")).map_err(|it| self.broken(&it))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("logs/daemon.log")
    }

    fn card(&self) -> PathBuf {
        self.dir.join("daemon.json")
    }

    pub(crate) fn port(&self) -> PathBuf {
        self.dir.join("port")
    }

    fn token(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// A file that is there from `regatta down` until a daemon starts again.
    fn stopped(&self) -> PathBuf {
        self.dir.join("stopped")
    }

    /// Whether a person has stopped the daemon, and nobody has started one since.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped().exists()
    }

    /// Notes that a person has stopped the daemon, or that one runs. Where there is no data directory there is nothing to
    /// note.
    pub(crate) fn note_stopped(&self, is_stopped: bool) -> std::io::Result<()> {
        let file = self.stopped();
        let noted = if is_stopped { std::fs::write(file, "") } else { std::fs::remove_file(file) };
        match noted {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The socket's path. The kernel takes at most 107 bytes, so a long one goes through an open directory.
    pub(crate) fn short_socket(&self) -> Result<ShortPath, Failed> {
        let path = self.dir.join(wire::SOCKET);
        if path.as_os_str().len() < 100 {
            return Ok(ShortPath { path, _dir: None });
        }
        use std::os::fd::AsRawFd;
        let dir = File::open(&self.dir).map_err(|it| self.broken(&it))?;
        Ok(ShortPath { path: PathBuf::from(format!("/proc/self/fd/{}/daemon.sock", dir.as_raw_fd())), _dir: Some(dir) })
    }

    /// Whether a daemon lives on it: it holds the lock from its first moment to its last.
    pub(crate) fn is_taken(&self) -> Result<bool, Failed> {
        let lock = match File::open(self.dir.join("daemon.lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.broken(&error)),
        };
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(self.broken(&error.into())),
        }
    }

    /// Returns whether a daemon, a runner or an agent test looks after the programs of this data directory. What cannot be
    /// found out counts as watched.
    pub(crate) fn is_watched(&self) -> bool {
        let is_free = |name: &str| match File::open(self.dir.join(name)) {
            Ok(lock) => rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        // The programs of a test are on a leash, beside its data directory.
        let on_leash = self.dir.parent().is_some_and(|place| place.join("leash").exists());
        on_leash || !is_free("daemon.lock") || !is_free("runner.lock")
    }

    /// Whether its disk has no room left.
    pub(crate) fn is_full(&self) -> bool {
        rustix::fs::statvfs(&self.dir).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) < 64 * 1024)
    }

    /// What an error of the data directory means for a person.
    pub(crate) fn broken(&self, error: &std::io::Error) -> Failed {
        let dir = self.dir.display();
        let (code, what, hint) = match error.kind() {
            std::io::ErrorKind::PermissionDenied => (
                "read_only",
                "may not be written",
                "look at its owner and mode, or set REGATTA_DATA_DIR to a directory of yours",
            ),
            std::io::ErrorKind::ReadOnlyFilesystem => (
                "read_only",
                "is on a read-only file system",
                "set REGATTA_DATA_DIR to a directory that can be written",
            ),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ("disk_full", "has no room left", "free some space there and try again; nothing was lost")
            }
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                ("bad_config", "is not a directory", "set REGATTA_DATA_DIR to a directory")
            }
            _ => ("io", "cannot be used", "see what is wrong: regatta doctor"),
        };
        failed(code, format!("the data directory {dir} {what}: {error}"), hint)
    }
}

/// Bytes from the kernel's dice, as hex.
pub(crate) fn random_hex(bytes: usize) -> std::io::Result<String> {
    let mut dice = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut dice)?;
    Ok(dice.iter().map(|it| format!("{it:02x}")).collect())
}

/// Reads the token that every caller must show.
pub(crate) fn read_token(place: &Place) -> Result<String, Failed> {
    match std::fs::read_to_string(place.token()) {
        Ok(token) => Ok(token.trim().to_owned()),
        Err(error) => Err(failed(
            "no_token",
            format!("the token in {} cannot be read: {error}", place.token().display()),
            "the daemon writes it at its first start: regatta up; for another daemon (--server), set REGATTA_TOKEN",
        )),
    }
}

/// Takes hold of a process by its number, so that its end can be waited for whoever has the number then.
pub(crate) fn hold(pid: u32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

/// Waits until a process that is held has ended, or the time is up.
pub(crate) fn see_off(process: &OwnedFd, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            rustix::event::Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Reads the card of a daemon that said it is ready.
pub(crate) fn read_card(place: &Place) -> Option<Card> {
    serde_json::from_slice(&std::fs::read(place.card()).ok()?).ok()
}

/// Writes a file whole or not at all, readable by its owner only (D8).
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Makes the token at the first start, with 256 bits of dice.
fn make_token(place: &Place) -> Result<String, Failed> {
    if let Ok(token) = read_token(place)
        && token.len() >= 32
    {
        return Ok(token);
    }
    let token = random_hex(32).map_err(|it| place.broken(&it))?;
    write_whole(&place.token(), &format!("{token}\n")).map_err(|it| place.broken(&it))?;
    Ok(token)
}

/// Takes the data directory for this process; a second daemon is refused with the first one's name.
fn take(place: &Place) -> Result<File, Failed> {
    let path = place.dir.join("daemon.lock");
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|it| place.broken(&it))?;
    let mut taken = Err(rustix::io::Errno::WOULDBLOCK);
    for round in 0..10 {
        taken = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if taken != Err(rustix::io::Errno::WOULDBLOCK) {
            break;
        }
        // Somebody may only be looking, as `is_taken` does for a moment.
        std::thread::sleep(std::time::Duration::from_millis(round));
    }
    match taken {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let who = match read_card(place) {
                Some(card) => format!("pid {}, at {}", card.pid, card.url),
                None => "it is still starting".into(),
            };
            Err(failed(
                "already_running",
                format!("a daemon already runs on {} ({who})", place.dir.display()),
                "use it as it is: regatta status; or stop it: regatta down",
            ))
        }
        Err(error) => Err(place.broken(&error.into())),
    }
}

/// Runs the daemon in the foreground until it is told to stop.
pub(crate) fn serve(out: &Out, data_dir: &Path, wished: Listen) -> Said {
    let place = Place::new(data_dir);
    place.make()?;
    let _lock = take(&place)?; // declared first, so it is let go of last: who gets it finds nothing of ours open
    // A card that a killed daemon left names an address that is nobody's, or somebody else's.
    let unclean = place.card().exists();
    let _absent = std::fs::remove_file(place.card());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|it| {
        failed("io", format!("the machine gives no more resources: {it}"), "close something and try again")
    })?;
    // The allocator would ask for huge pages, of which a daemon at rest needs none.
    let _only_larger = rustix::thread::disable_transparent_huge_pages(true);
    let keyring = Keyring::open(&place.dir, make_token(&place)?).map_err(|it| {
        let what = format!("the tokens in {} cannot be read: {it}", place.dir.display());
        failed("bad_config", what, "mend tokens.json, or move it away: every token in it is void then")
    })?;
    // Before the engine starts: attempts that it starts are told where we are. Who calls before the doors are open waits.
    let Bound { tcp, outside } = runtime.block_on(bind::bind(&place, &wished))?;
    let traces = Collector::from(|name| std::env::var(name).ok().filter(|it| !it.is_empty()))
        .map_err(|it| failed("bad_config", it, "mend OTEL_EXPORTER_OTLP_ENDPOINT, or take it away"))?;
    let address = tcp.local_addr().map_err(|it| place.broken(&it))?;
    let mint = keyring.mint().clone();
    let of_firings = mint.clone();
    let tools = Tools {
        server: format!("http://{address}"),
        mint: Arc::new(move |id, fence| mint.token(id, fence)),
        mint_firing: Arc::new(move |id, fence| of_firings.token_of_firing(id, fence)),
    };
    let (ports, settings) = wire::ports(data_dir, tools)?;
    let (engine, recovered) = Engine::start(ports, settings).map_err(|it| match it {
        regatta_engine::Failure::Store(error) => wire::from_store(error),
        other => failed("io", other.to_string(), "see what is wrong: regatta doctor"),
    })?;
    if let Err(error) = place.note_stopped(false) {
        tracing::warn!("{} cannot be removed: {error}", place.stopped().display());
    }
    if recovered.effects > 0 {
        tracing::info!(
            "recovered: {} tasks open, {} attempts live, {} landings, {} claims, {} effects to perform",
            recovered.open_tasks,
            recovered.attempts,
            recovered.landings,
            recovered.claims,
            recovered.effects
        );
    }
    let board = engine.board();
    let mut agents: Vec<String> = board.attempts.values().map(|it| it.agent.to_string()).collect();
    agents.sort_unstable();
    agents.dedup();
    let takeover = Takeover {
        unclean,
        agents,
        queue: board.landings.values().map(|it| it.task.to_string()).collect(),
        attempts: recovered.attempts,
        landings: recovered.landings,
        claims: recovered.claims,
        open_tasks: recovered.open_tasks,
    };
    let found = (unclean || recovered.effects > 0).then_some(takeover);
    set_limits(&engine)?;
    let files = Arc::new(ProjectFiles::new(engine.clone()));
    runtime.spawn(files.clone().watch());
    let entrance = Entrance { keyring, tcp, outside, traces, found, web_dir: wished.web_dir.clone(), files };
    let (dir, clear) = (data_dir.to_owned(), std::time::Duration::from_secs(3600));
    runtime.spawn(crate::notices::tell(engine.clone()));
    let (sweeper, own) = (engine.clone(), data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned()));
    runtime.spawn_blocking(move || {
        wire::sweep_at_start(&own, |attempt| sweeper.board().attempts.contains_key(&attempt));
    });
    let housekeeper = engine.clone();
    runtime.spawn(async move {
        let mut round = tokio::time::interval(clear);
        for nth in 0_u64.. {
            round.tick().await;
            let (dir, engine) = (dir.clone(), housekeeper.clone());
            // It ends with the daemon, whatever it has come to.
            let _ended = tokio::task::spawn_blocking(move || {
                let Some(today_unix_ms) = wire::retention_date(&dir) else { return };
                wire::clear_up(&dir, nth > 0, today_unix_ms);
                match engine.forget_dropped(today_unix_ms) {
                    Ok(0) => {}
                    Ok(many) => tracing::info!("what {many} attempts left, dropped a month ago, is forgotten"),
                    Err(error) => tracing::warn!("what was dropped long ago stays for now: {error}"),
                }
            })
            .await;
        }
    });
    let ended = runtime.block_on(open_doors(out, &place, engine.clone(), entrance));
    engine.shutdown();
    // The card and the socket say that somebody is here; they go before the lock does.
    let _gone = std::fs::remove_file(place.card());
    let _gone = std::fs::remove_file(place.dir.join("daemon.sock"));
    ended.map(|_| ())
}

/// Brings the machine's limits to what the settings say, if they say something, and to what fits the machine.
fn set_limits(engine: &Engine) -> Said {
    let mut limits = engine.board().limits;
    limits.landing_slots = crate::machine::slots();
    let settings = settings::all(Path::new("/"))?;
    let chosen = settings.iter().find(|it| it.name == "daemon.max_attempts" && it.origin != "default");
    let mend = || format!("mend it in {}", chosen.map_or("config.toml", |it| it.origin.as_str()));
    if let Some(chosen) = chosen {
        limits.max_attempts = chosen.value.parse().map_err(|_| {
            let what = format!("daemon.max_attempts is {:?}, which is not a number", chosen.value);
            failed("bad_config", what, mend())
        })?;
    }
    let command = regatta_core::command::Command::SetLimits { limits };
    let request = regatta_core::command::Request { by: regatta_core::command::Actor::Regatta, key: None, command };
    engine.submit(request).map(|_| ()).map_err(|it| failed("bad_config", it.to_string(), mend()))
}

/// What the doors say and ask of whoever comes.
struct Entrance {
    keyring: Keyring,
    tcp: TcpListener,
    outside: Option<Outside>,
    traces: Option<Collector>,
    found: Option<Takeover>,
    web_dir: Option<PathBuf>,
    files: Arc<ProjectFiles>,
}

async fn open_doors(out: &Out, place: &Place, engine: Engine, entrance: Entrance) -> Result<Ended, Failed> {
    let Entrance { keyring, tcp, outside, traces, found, web_dir, files } = entrance;
    let address = tcp.local_addr().map_err(|it| place.broken(&it))?;
    // Before anybody is told that we are ready: what is wrong with them is said to who starts us.
    let bridges = crate::bridges::Running::start(&engine, &place.dir).await?;
    let bridges = bridges.map(|it| Box::new(it) as Box<dyn regatta_server::Bridges>);
    let unix = bind_unix(place);
    let mut terminate = signal(SignalKind::terminate()).map_err(|it| place.broken(&it))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|it| place.broken(&it))?;
    let card = Card {
        url: format!("http://{address}/"),
        pid: std::process::id(),
        data_dir: place.dir.display().to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        outside: outside.as_ref().and_then(bind::url),
        recovered: found,
    };
    let recovered = card.recovered.as_ref().filter(|it| it.unclean).map(|it| {
        format!("recovered after an unclean stop: {} tasks open, {} at work joined again", it.open_tasks, it.attempts)
    });
    let text = serde_json::to_string(&card).map_err(|it| failed("bug", it.to_string(), "please report this"))?;
    write_whole(&place.card(), &text).map_err(|it| place.broken(&it))?;
    out.answer("ready", &card, &[], |_| {
        let outside = card.outside.as_ref().map_or(String::new(), |it| format!(" and {it}"));
        format!("ready at {}{outside} (pid {}, data in {})\n", card.url, card.pid, card.data_dir)
    })?;
    let dir = place.dir.clone();
    let (watched, stopper) = (Place::new(&dir), engine.clone());
    let signalled = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = data_dir_removed(&watched) => stop_without_data_dir(&watched, stopper).await,
        }
    };
    let doctor = crate::words::doctor::of_daemon(dir.clone());
    let plans = std::sync::Arc::new(crate::words::goal::read);
    let config: regatta_server::Config = Arc::new(move || files.apply());
    let doors =
        Doors { engine, keyring, tcp, outside, unix, dir, traces, web_dir, recovered, bridges, doctor, plans, config };
    regatta_server::serve(doors, signalled).await.map_err(|it| place.broken(&it))
}

/// How often the daemon looks whether its data directory is still there.
const DATA_DIR_INTERVAL: Duration = Duration::from_secs(2);

/// How long agents may take to end when their data directory is gone.
const REMOVED_STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns when the data directory is no longer the one that this daemon has locked.
async fn data_dir_removed(place: &Place) {
    let lock = place.dir.join("daemon.lock");
    let identity = || std::fs::metadata(&lock).map(|found| (found.dev(), found.ino()));
    // Only an answer counts: a disk that fails for a moment has not lost the directory.
    let Ok(own) = identity() else { return std::future::pending().await };
    let mut round = tokio::time::interval(DATA_DIR_INTERVAL);
    loop {
        round.tick().await;
        match identity() {
            Ok(found) if found != own => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Stops the agents of a daemon that nobody can reach any more, because its data directory was removed.
async fn stop_without_data_dir(place: &Place, engine: Engine) {
    tracing::error!("the data directory {} was removed, so the daemon and its agents stop", place.dir.display());
    let stopped = tokio::task::spawn_blocking(move || engine.stop_attempts("the data directory was removed"));
    match tokio::time::timeout(REMOVED_STOP_TIMEOUT, stopped).await {
        Ok(Ok(Ok(left))) if left.is_empty() => {}
        Ok(Ok(Ok(left))) => tracing::error!("could not stop {}", left.join(", ")),
        Ok(Ok(Err(error))) => tracing::error!("could not stop the agents: {error}"),
        Ok(Err(error)) => tracing::error!("could not stop the agents: {error}"),
        Err(_) => tracing::error!("the agents did not stop in time; find them: regatta doctor"),
    }
}

/// The unix socket, for its owner only. Without one, loopback is enough.
fn bind_unix(place: &Place) -> Option<UnixListener> {
    let _stale = std::fs::remove_file(place.dir.join("daemon.sock")); // the lock says that nobody else uses it
    let bound = place.short_socket().ok().and_then(|it| UnixListener::bind(it.path()).ok());
    if bound.is_some() {
        let _mode = std::fs::set_permissions(place.dir.join("daemon.sock"), std::fs::Permissions::from_mode(0o600));
    } else {
        tracing::warn!("no unix socket in {}; callers use loopback", place.dir.display());
    }
    bound
}
