//! Sandboxes an agent's program and verifies the sandbox before the program starts (S6, S11).
//!
//! ```text
//! prepare:      choose a mechanism → plan the mounts → write the settings, build the command prefix
//! init process: [bubblewrap | own namespaces | nothing] → limits, rules, filter → checks → wait for the shim → exec
//! ```
//!
//! [`plan`] lists the visible parts of the file system. [`bubblewrap`], [`namespaces`] and
//! [`rules`] are the three mechanisms, in the order of preference. [`calls`] refuses system calls
//! that none of them covers. [`stage`] is the init process, which sets up its own sandbox, checks
//! it and becomes the program. [`doctor`] finds out which mechanisms work on this machine, and
//! [`words`] holds the messages.
//!
//! The init process tries inside the sandbox what must be impossible there, and starts nothing if
//! any of it is possible. No mechanism knows host names. A program that may reach only some hosts
//! therefore has no network at all, and a proxy in its shim connects it to these hosts (see
//! [`crate::egress`]).

mod bubblewrap;
mod calls;
mod doctor;
mod namespaces;
mod plan;
mod rules;
mod stage;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use regatta_core::agent::Level;
use regatta_engine::ports::agents::AgentError;
use serde::{Deserialize, Serialize};

use crate::egress::{Ways, socket_in};
use crate::rundir::{write_atomic, write_soon};
use plan::{Plan, What};

pub use doctor::{Finding, Report, available};
pub use plan::real_homes;
pub use stage::{FAILED, failure, main};

/// A sandbox mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The program `bwrap`.
    Bubblewrap,
    /// User, mount and process namespaces that Regatta creates itself.
    Namespaces,
    /// The kernel's rules about files, and a filter of system calls.
    Landlock,
}

impl Mechanism {
    /// All mechanisms in the order in which they are tried.
    pub const ALL: [Mechanism; 3] = [Mechanism::Bubblewrap, Mechanism::Namespaces, Mechanism::Landlock];
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Mechanism::Bubblewrap => "bubblewrap",
            Mechanism::Namespaces => "own namespaces",
            Mechanism::Landlock => "Landlock and seccomp",
        })
    }
}

/// The program's access to the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    Allowed,
    /// No network, not even this machine's loopback.
    None,
    /// Only these hosts, through a proxy in the shim. It needs a network namespace, so Landlock
    /// alone cannot provide it.
    Only(Vec<String>),
}

impl Network {
    /// Returns the network access that a profile's settings mean at a level. A list of hosts allows
    /// only these hosts. Without a list, `strict` has no network unless the profile allows it, and
    /// the other levels have one unless the profile forbids it.
    pub fn of(level: Level, said: Option<bool>, hosts: &[String]) -> Network {
        if !hosts.is_empty() {
            return Network::Only(hosts.to_vec());
        }
        if said.unwrap_or(level != Level::Strict) { Network::Allowed } else { Network::None }
    }

    fn hosts(&self) -> &[String] {
        match self {
            Network::Only(hosts) => hosts,
            Network::Allowed | Network::None => &[],
        }
    }
}

/// The resource limits of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads. With namespaces this counts only the program's own; otherwise it is
    /// added to the user's current number.
    pub processes: Option<u64>,
    /// Bytes of private memory of each process. The size of the address space is not a useful
    /// measure, because every JavaScript engine reserves more of it than the machine has memory.
    pub memory: Option<u64>,
    /// The maximum size of a file in bytes.
    pub file_size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { processes: Some(4096), memory: None, file_size: Some(16 << 30) }
    }
}

/// A program and the sandbox that it should get. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confine {
    pub level: Level,
    /// Set if a person requested this level. If no mechanism works, a requested level is an error,
    /// and a default level falls back to no sandbox with a warning.
    pub asked: bool,
    /// The only mechanism to use, if one is named.
    pub mechanism: Option<Mechanism>,
    pub network: Network,
    /// The URL of the daemon's tools, which the program can reach whatever its network is.
    pub tools: Option<String>,
    pub limits: Limits,
    /// The program's name or path, which must be visible in the sandbox.
    pub program: String,
    /// The directories of the child's PATH.
    pub path: Vec<PathBuf>,
    /// Set if the init process waits for the shim before it becomes the program, so that the shim
    /// can work in parallel. It needs namespaces.
    pub held: bool,
    /// The regatta program, which runs its init process inside the sandbox.
    pub exe: PathBuf,
    /// The data directory. It is hidden except for the paths below.
    pub data_dir: PathBuf,
    /// The run directory, which the program does not see.
    pub run_dir: PathBuf,
    /// The workspace. The program may write to it, to the agent's home, its temporary files and its
    /// outbox.
    pub workspace: PathBuf,
    /// The directory in the workspace in which the program starts, if it is not the root.
    pub begins: Option<PathBuf>,
    pub home: PathBuf,
    pub tmp: PathBuf,
    pub outbox: PathBuf,
    /// The objects of the project's vault, readable.
    pub vault_objects: Option<PathBuf>,
    /// Readable files of the run directory, such as the prompt.
    pub inputs: Vec<PathBuf>,
    /// The user's own homes, as [`real_homes`] finds them. They are hidden except for their
    /// toolchains.
    pub real_homes: Vec<PathBuf>,
    /// The user's repositories, which are hidden.
    pub hidden: Vec<PathBuf>,
    /// The additional paths of the agent's profile.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

/// A prepared sandbox and the way to start the program in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The arguments before the program's own command line. Empty without a sandbox.
    pub argv_prefix: Vec<OsString>,
    /// Additional variables, with which the program finds its tools.
    pub env: Vec<(String, String)>,
    /// A sentence that describes the sandbox.
    pub description: String,
    /// Sentences about missing protection, for `status` and `doctor`.
    pub warnings: Vec<String>,
    pub mechanism: Option<Mechanism>,
    /// The egress routes of a program without a network. A [`crate::egress::Gate`] must serve them
    /// in the program's directory for temporary files, or the program does not start.
    pub ways: Option<Ways>,
    /// Set if the program waits for such a gate, with or without routes.
    pub held: bool,
}

/// The settings that the init process reads from the program's directory for temporary files. They
/// name hidden paths, so an init process that waits for the shim removes the file before the
/// program starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    v: u32,
    mechanism: Mechanism,
    plan: Plan,
    network: bool,
    limits: Limits,
    dir: PathBuf,
    checks: Checks,
    /// The socket of the shim, and the addresses on which the sockets for the shim listen.
    shim: Option<(PathBuf, Vec<SocketAddr>)>,
    held: bool,
    /// The directory over which namespaces mount their root.
    root: PathBuf,
}

/// The file name of the settings in the program's directory for temporary files.
const ORDER: &str = ".regatta-confine.json";

/// The tests that the init process makes before it becomes the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Checks {
    /// Files that exist outside and must not be readable.
    closed: Vec<PathBuf>,
    /// Directories in which no file can be created.
    unwritable: Vec<PathBuf>,
    /// Directories in which a file can be created.
    writable: Vec<PathBuf>,
    /// Directories that can be listed.
    readable: Vec<PathBuf>,
}

/// Chooses a mechanism, writes the settings of the sandbox and returns the way to start the
/// program.
pub fn prepare(confine: &Confine) -> Result<Prepared, AgentError> {
    if confine.level == Level::Off {
        if let Network::Only(_) = confine.network {
            return Err(words::list_without_confinement());
        }
        let warning = "This agent has no sandbox: it can do everything that you can do.".to_owned();
        return Ok(Prepared { description: "no sandbox".to_owned(), warnings: vec![warning], ..Prepared::default() });
    }
    let report = available(&confine.exe);
    let Some(mechanism) = choose(confine, &report)? else {
        let warning = words::none_works(level_name(confine.level), &report.reasons()).what;
        let description = "no sandbox, because no mechanism works on this machine".to_owned();
        return Ok(Prepared { description, warnings: vec![warning], ..Prepared::default() });
    };
    engage(confine, mechanism)
}

/// Returns the mechanism to use, or `None` if the default level is not available.
fn choose(confine: &Confine, report: &Report) -> Result<Option<Mechanism>, AgentError> {
    if let Some(named) = confine.mechanism {
        return match report.finding(named).and_then(|it| it.broken.clone()) {
            Some(why) => Err(words::does_not_work(named, &why)),
            None => Ok(Some(named)),
        };
    }
    match report.best() {
        Some(mechanism) => Ok(Some(mechanism)),
        None if confine.asked || !confine.network.hosts().is_empty() => {
            Err(words::none_works(level_name(confine.level), &report.reasons()))
        }
        None => Ok(None),
    }
}

/// Prepares the sandbox with this mechanism, without testing whether it works.
fn engage(confine: &Confine, mechanism: Mechanism) -> Result<Prepared, AgentError> {
    // A program with a network needs no egress routes. Landlock gives a program no loopback of its
    // own, so it cannot have any.
    let ways = match confine.network {
        Network::Only(_) if mechanism == Mechanism::Landlock => return Err(words::no_allow_list()),
        Network::Only(_) | Network::None if mechanism != Mechanism::Landlock => {
            Ways::new(confine.network.hosts(), confine.tools.as_deref()).map_err(|why| words::no_host(&why))?
        }
        _ => None,
    };
    let plan = plan::plan(confine)?;
    let order_file = confine.tmp.join(ORDER);
    let network = confine.network == Network::Allowed;
    let begins = confine.begins.as_ref().unwrap_or(&confine.workspace);
    let dir = fs::canonicalize(begins).map_err(|error| words::unreachable(begins, error))?;
    let mut limits = confine.limits;
    limits.processes =
        limits.processes.map(|it| it + if mechanism == Mechanism::Landlock { tasks_of_user() } else { 0 });
    // Landlock leaves no socket through which the init process could reach the shim.
    let held = confine.held && mechanism != Mechanism::Landlock;
    let inside = ways.as_ref().map(Ways::inside);
    let shim = (held || inside.is_some()).then(|| (socket_in(&confine.tmp), inside.unwrap_or_default()));
    let checks = checks(confine, &plan);
    let root = make_root(&confine.run_dir).map_err(|error| words::file("create", &confine.run_dir, error))?;
    let order =
        Order { v: 1, mechanism, network, limits, dir: dir.clone(), checks, shim, held, root: root.clone(), plan };
    let json = serde_json::to_vec(&order).map_err(|error| words::file("write", &order_file, error))?;
    // A sandboxed program does not survive a power cut, so the file need not be synced.
    write_soon(&order_file, &json).map_err(|error| words::file("write", &order_file, error))?;
    let order_file = fs::canonicalize(&order_file).map_err(|error| words::unreachable(&order_file, error))?;
    let stage = |step: &str| {
        [confine.exe.clone().into(), "confine".into(), step.into(), order_file.clone().into(), "--".into()]
    };
    let argv_prefix: Vec<OsString> = match mechanism {
        Mechanism::Bubblewrap => {
            let program = bubblewrap::find(&search_path())
                .ok_or_else(|| words::does_not_work(mechanism, "the program bwrap is no longer on PATH."))?;
            let around = bubblewrap::Around { program: &program, plan: &order.plan, network, dir: &dir, empty: &root };
            around.arguments().into_iter().chain(stage("inside")).collect()
        }
        Mechanism::Namespaces => stage("enter").to_vec(),
        Mechanism::Landlock => stage("inside").to_vec(),
    };
    Ok(Prepared {
        argv_prefix,
        env: toolchain_env(confine)
            .into_iter()
            .chain(stage::small().into_iter().map(|(name, value)| (name.into(), value.into())))
            .chain(ways.iter().flat_map(Ways::environment))
            .collect(),
        description: describe(confine, mechanism),
        warnings: gaps(mechanism, confine),
        mechanism: Some(mechanism),
        ways,
        held,
    })
}

/// Creates a directory of the run that always stays empty outside. Own namespaces mount their root
/// over it, and bubblewrap shows it where a directory must be empty.
fn make_root(run_dir: &Path) -> io::Result<PathBuf> {
    let root = run_dir.join("root");
    DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
    fs::canonicalize(root)
}

/// Runs the sandbox's checks in the same way in which the program would be started.
pub fn verify(prepared: &Prepared) -> Result<(), AgentError> {
    let (Some(mechanism), Some((program, arguments))) = (prepared.mechanism, prepared.argv_prefix.split_first()) else {
        return Ok(());
    };
    match doctor::try_stage(program, arguments) {
        Ok(()) => Ok(()),
        Err(why) => Err(words::not_engaged(mechanism, &why)),
    }
}

/// Returns the tests for the sandbox: which existing files it must hide, and which directories must
/// and must not be writable.
fn checks(confine: &Confine, plan: &Plan) -> Checks {
    let seen = |path: &Path| {
        fs::canonicalize(path)
            .is_ok_and(|it| matches!(plan.covering(&it), Some((_, What::Read | What::Write | What::WriteFrom(_)))))
    };
    let homes = &confine.real_homes;
    let mut closed: Vec<PathBuf> = vec![];
    // These are the token, the database with its journal, and other files at the top of the data
    // directory.
    closed.extend(["token", "regatta.db", "regatta.db-wal"].map(|it| confine.data_dir.join(it)));
    closed.extend(files_in(&confine.data_dir, 4));
    closed.extend(canary(&confine.data_dir));
    closed.extend(other_workspace(&confine.workspace));
    closed.extend(confine.hidden.iter().map(|it| it.join(".git/HEAD")));
    closed.extend(confine.hidden.iter().map(|it| it.join("HEAD")));
    for home in homes {
        closed.extend(files_in(&home.join(".ssh"), 4));
        let known = [".netrc", ".gitconfig", ".bash_history", ".aws/credentials", ".config/gh/hosts.yml", ".bashrc"];
        closed.extend(known.map(|it| home.join(it)));
    }
    closed.retain(|it| fs::File::open(it).is_ok() && !seen(it));
    let mut unwritable: Vec<PathBuf> =
        [Path::new("/usr"), Path::new("/etc"), Path::new("/")].map(Path::to_owned).to_vec();
    unwritable.push(confine.data_dir.clone());
    unwritable.extend(confine.vault_objects.clone());
    unwritable.extend(confine.hidden.clone());
    unwritable.extend(homes.clone());
    let written = |path: &Path| {
        fs::canonicalize(path).is_ok_and(|it| matches!(plan.covering(&it), Some((_, What::Write | What::WriteFrom(_)))))
    };
    unwritable.retain(|it| !written(it));
    Checks {
        closed,
        unwritable,
        writable: vec![confine.workspace.clone(), confine.home.clone(), confine.tmp.clone(), confine.outbox.clone()],
        readable: confine.vault_objects.clone().into_iter().collect(),
    }
}

/// Creates a file that the sandbox must hide, so that there is at least one.
fn canary(data_dir: &Path) -> Option<PathBuf> {
    let path = data_dir.join(".canary");
    if !path.exists() {
        write_atomic(&path, b"No sandboxed program may read this.\n").ok()?;
    }
    Some(path)
}

fn files_in(dir: &Path, most: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_file())).map(|it| it.path()).take(most).collect()
}

/// Returns a file in another agent's workspace, if there is one.
fn other_workspace(workspace: &Path) -> Option<PathBuf> {
    let siblings = fs::read_dir(workspace.parent()?).ok()?.flatten().map(|it| it.path());
    siblings.filter(|it| it != workspace).map(|it| it.join(".git/HEAD")).find(|it| it.exists())
}

/// Returns the number of this user's tasks. Without a user namespace the kernel counts all of them
/// together.
fn tasks_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = processes.filter(|it| it.metadata().is_ok_and(|it| it.uid() == me)).map(|it| it.path().join("task"));
    mine.map(|it| fs::read_dir(it).map_or(0, |it| it.count() as u64)).sum()
}

/// Returns the variables that locate toolchains when HOME is not the user's own home.
fn toolchain_env(confine: &Confine) -> Vec<(String, String)> {
    let rustup = confine.real_homes.iter().map(|it| it.join(".rustup")).find(|it| it.is_dir());
    rustup.and_then(|it| Some(("RUSTUP_HOME".to_owned(), it.to_str()?.to_owned()))).into_iter().collect()
}

fn describe(confine: &Confine, mechanism: Mechanism) -> String {
    let network = match &confine.network {
        Network::Allowed => "with network",
        Network::None => "without network",
        Network::Only(_) => "with access only to the listed hosts",
    };
    format!("{}, by {mechanism}, {network}", level_name(confine.level))
}

/// Returns sentences about protection that the mechanism does not offer and that no level promises.
fn gaps(mechanism: Mechanism, confine: &Confine) -> Vec<String> {
    let mut gaps = vec![];
    if mechanism == Mechanism::Landlock {
        gaps.push("Landlock hides the contents of files, but not their names and sizes, nor the command lines of other processes.".to_owned());
        gaps.push(
            "Under Landlock a program has no terminals, no /tmp except TMPDIR, and no named unix sockets.".to_owned(),
        );
    }
    if mechanism == Mechanism::Landlock && confine.network == Network::None && confine.tools.is_some() {
        gaps.push(words::NO_TOOLS.to_owned());
    }
    if confine.limits.processes.is_some() && rustix::process::getuid().is_root() {
        gaps.push(words::NO_PROCESS_LIMIT.to_owned());
    }
    if rules::version() < 6 {
        let them = if mechanism == Mechanism::Landlock {
            "Signals to this user's processes"
        } else {
            "Sockets without a file"
        };
        gaps.push(format!("{them} are not blocked, because that needs Linux 6.12."));
    }
    gaps
}

/// Returns the name of a level as in the settings.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Strict => "strict",
        Level::Workspace => "workspace",
        Level::Off => "off",
    }
}

/// Returns the directories of this process's own PATH.
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|it| std::env::split_paths(&it).collect()).unwrap_or_default()
}
