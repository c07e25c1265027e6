//! Shuts an agent's program in, and checks that it is (S6, S11).
//!
//! ```text
//! prepare: which mechanism works here → what the program may see (plan) → an order, a command line prefix
//! stage:   prefix PROGRAM…  = [bubblewrap | own namespaces | nothing] → limits, rules, filter → checks → the shim's
//!          word → exec
//! ```
//! Layout, in reading order: [`plan`] is what is seen; [`bubblewrap`], [`namespaces`] and [`rules`] are the three
//! ways to make it so, in the order in which they are preferred; [`calls`] refuses what none of them covers;
//! [`stage`] is the process that sets itself up, checks, and becomes the program; [`doctor`] finds out what this
//! machine can do; [`words`] is what is said to people.
//!
//! What was asked is what is engaged: the stage tries, inside, what must be impossible, and starts nothing if it is
//! possible. None of the mechanisms knows names of hosts: a program that may reach only some has no network at all, and
//! a way out through its shim (see [`crate::egress`]).

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

/// How a program is shut in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The program `bwrap`.
    Bubblewrap,
    /// User, mount and process namespaces that we make ourselves.
    Namespaces,
    /// The kernel's rules about files, and a filter of system calls.
    Landlock,
}

impl Mechanism {
    /// In the order in which they are tried.
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

/// What the program may reach beyond this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    Allowed,
    /// Not even this machine's own loopback.
    None,
    /// Only these hosts, through a proxy in the shim. It needs a network namespace: rules alone cannot do it.
    Only(Vec<String>),
}

impl Network {
    /// What a profile's words mean at a level: a list of hosts is all there is; without one `strict` has no network
    /// unless it is said, the others have.
    pub fn of(level: Level, said: Option<bool>, hosts: &[String]) -> Network {
        match said.unwrap_or(level != Level::Strict) {
            _ if !hosts.is_empty() => Network::Only(hosts.to_vec()),
            true => Network::Allowed,
            false => Network::None,
        }
    }

    fn hosts(&self) -> &[String] {
        match self {
            Network::Only(hosts) => hosts,
            Network::Allowed | Network::None => &[],
        }
    }
}

/// How much the program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads. With namespaces those of this program, otherwise this many more than the user has now.
    pub processes: Option<u64>,
    /// Bytes of private memory, of each process: address space is no measure, since every JavaScript engine reserves
    /// more of it than there is.
    pub memory: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { processes: Some(4096), memory: None, file_size: Some(16 << 30) }
    }
}

/// A program to be shut in. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confine {
    pub level: Level,
    /// A person asked for this level. A default that cannot be had is none, loudly; what was asked for and cannot be
    /// had is an error.
    pub asked: bool,
    /// Only this one, if it is named.
    pub mechanism: Option<Mechanism>,
    pub network: Network,
    /// The URL of the daemon's own tools, which are reached whatever the network is.
    pub tools: Option<String>,
    pub limits: Limits,
    /// The program's name or path, so that it can be seen.
    pub program: String,
    /// Where programs are looked for: the directories of the child's PATH.
    pub path: Vec<PathBuf>,
    /// The stage waits for the word of a shim before it becomes the program, so that the shim can do its own part
    /// meanwhile. Where there are namespaces.
    pub held: bool,
    /// The regatta program, which starts its own stage inside.
    pub exe: PathBuf,
    /// The whole data directory: closed, but for what is named below.
    pub data_dir: PathBuf,
    /// The run directory. The program does not see it.
    pub run_dir: PathBuf,
    /// Written: the workspace, the agent's home, its temporary files, and where it leaves its result.
    pub workspace: PathBuf,
    /// Where in it the program begins, if not at its root.
    pub begins: Option<PathBuf>,
    pub home: PathBuf,
    pub tmp: PathBuf,
    pub outbox: PathBuf,
    /// Read: the objects of the project's vault.
    pub vault_objects: Option<PathBuf>,
    /// Read: files of the run directory, such as the prompt.
    pub inputs: Vec<PathBuf>,
    /// Closed, but for the toolchains in them: the user's own homes, as [`real_homes`] finds them.
    pub real_homes: Vec<PathBuf>,
    /// Closed: the user's repositories.
    pub hidden: Vec<PathBuf>,
    /// What the agent's profile lists on top.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

/// How to start the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Goes before the program's own command line. Empty when it is not shut in.
    pub argv_prefix: Vec<OsString>,
    /// Variables that the program needs to find its tools, on top of its own.
    pub env: Vec<(String, String)>,
    /// What is engaged, in a sentence.
    pub description: String,
    /// What is not, in sentences; to be shown in `status` and `doctor`.
    pub warnings: Vec<String>,
    pub mechanism: Option<Mechanism>,
    /// The ways out of a program without a network. They are served by a [`crate::egress::Gate`] in its directory for
    /// temporary files, or it does not start.
    pub ways: Option<Ways>,
    /// It waits for the word of such a gate, ways or not.
    pub held: bool,
}

/// What the stage reads, from the program's directory for temporary files. It names what is hidden, so a stage that is
/// held takes it away before the program starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    v: u32,
    mechanism: Mechanism,
    plan: Plan,
    network: bool,
    limits: Limits,
    dir: PathBuf,
    checks: Checks,
    /// Where the shim is reported to, and on what the sockets listen that it gets.
    shim: Option<(PathBuf, Vec<SocketAddr>)>,
    held: bool,
    /// Where own namespaces put their root together.
    root: PathBuf,
}

/// The name of the order, in the program's directory for temporary files.
const ORDER: &str = ".regatta-confine.json";

/// What the stage tries before it becomes the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Checks {
    /// Files that are there outside and must not open.
    closed: Vec<PathBuf>,
    /// Directories in which no file can be made.
    unwritable: Vec<PathBuf>,
    /// Directories in which one can.
    writable: Vec<PathBuf>,
    /// Directories that can be listed.
    readable: Vec<PathBuf>,
}

/// Finds how to start the program so that it is shut in as asked, and writes it down in its run directory.
pub fn prepare(confine: &Confine) -> Result<Prepared, AgentError> {
    if confine.level == Level::Off {
        if let Network::Only(_) = confine.network {
            return Err(words::list_without_confinement());
        }
        let warning = "This agent is not confined: it can do whatever you can.".to_owned();
        return Ok(Prepared { description: "not confined".to_owned(), warnings: vec![warning], ..Prepared::default() });
    }
    let report = available(&confine.exe);
    let Some(mechanism) = choose(confine, &report)? else {
        let warning = words::none_works(level_name(confine.level), &report.reasons()).what;
        let description = "not confined, because this machine cannot".to_owned();
        return Ok(Prepared { description, warnings: vec![warning], ..Prepared::default() });
    };
    engage(confine, mechanism)
}

/// The mechanism to use; `None` when a default cannot be had.
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

/// Prepares with this mechanism, whether or not it works.
fn engage(confine: &Confine, mechanism: Mechanism) -> Result<Prepared, AgentError> {
    // With a network there is nothing to let through; rules alone have no loopback that is the program's own.
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
    // Rules alone leave no socket to reach the shim by.
    let held = confine.held && mechanism != Mechanism::Landlock;
    let inside = ways.as_ref().map(Ways::inside);
    let shim = (held || inside.is_some()).then(|| (socket_in(&confine.tmp), inside.unwrap_or_default()));
    let checks = checks(confine, &plan);
    let root = make_root(&confine.run_dir).map_err(|error| words::file("create", &confine.run_dir, error))?;
    let order =
        Order { v: 1, mechanism, network, limits, dir: dir.clone(), checks, shim, held, root: root.clone(), plan };
    let json = serde_json::to_vec(&order).map_err(|error| words::file("write", &order_file, error))?;
    // Nothing that is confined outlives a power cut: the disk need not be waited for.
    write_soon(&order_file, &json).map_err(|error| words::file("write", &order_file, error))?;
    let order_file = fs::canonicalize(&order_file).map_err(|error| words::unreachable(&order_file, error))?;
    let stage = |step: &str| {
        [confine.exe.clone().into(), "confine".into(), step.into(), order_file.clone().into(), "--".into()]
    };
    let argv_prefix: Vec<OsString> = match mechanism {
        Mechanism::Bubblewrap => {
            let program = bubblewrap::find(&search_path())
                .ok_or_else(|| words::does_not_work(mechanism, "it is no longer on PATH."))?;
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

/// A directory of the run that stays empty outside for ever: own namespaces mount their root over it, bubblewrap shows
/// it where there is to be nothing.
fn make_root(run_dir: &Path) -> io::Result<PathBuf> {
    let root = run_dir.join("root");
    DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
    fs::canonicalize(root)
}

/// Starts nothing but the checks, exactly as the program would be started.
pub fn verify(prepared: &Prepared) -> Result<(), AgentError> {
    let (Some(mechanism), Some((program, arguments))) = (prepared.mechanism, prepared.argv_prefix.split_first()) else {
        return Ok(());
    };
    match doctor::try_stage(program, arguments) {
        Ok(()) => Ok(()),
        Err(why) => Err(words::not_engaged(mechanism, &why)),
    }
}

/// What must fail inside, of what is there outside.
fn checks(confine: &Confine, plan: &Plan) -> Checks {
    let seen = |path: &Path| {
        fs::canonicalize(path)
            .is_ok_and(|it| matches!(plan.covering(&it), Some((_, What::Read | What::Write | What::WriteFrom(_)))))
    };
    let homes = &confine.real_homes;
    let mut closed: Vec<PathBuf> = vec![];
    // The token, the database and its journal, and what else lies at the top of the data directory.
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

/// A file that is there to be closed, also when nothing else is yet.
fn canary(data_dir: &Path) -> Option<PathBuf> {
    let path = data_dir.join(".canary");
    if !path.exists() {
        write_atomic(&path, b"No confined program may read this.\n").ok()?;
    }
    Some(path)
}

fn files_in(dir: &Path, most: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_file())).map(|it| it.path()).take(most).collect()
}

/// A file in somebody else's workspace, if there is one.
fn other_workspace(workspace: &Path) -> Option<PathBuf> {
    let siblings = fs::read_dir(workspace.parent()?).ok()?.flatten().map(|it| it.path());
    siblings.filter(|it| it != workspace).map(|it| it.join(".git/HEAD")).find(|it| it.exists())
}

/// How many tasks the user has: without a user namespace the kernel counts all of them together.
fn tasks_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = processes.filter(|it| it.metadata().is_ok_and(|it| it.uid() == me)).map(|it| it.path().join("task"));
    mine.map(|it| fs::read_dir(it).map_or(0, |it| it.count() as u64)).sum()
}

/// Where toolchains are when HOME is not the user's own.
fn toolchain_env(confine: &Confine) -> Vec<(String, String)> {
    let rustup = confine.real_homes.iter().map(|it| it.join(".rustup")).find(|it| it.is_dir());
    rustup.and_then(|it| Some(("RUSTUP_HOME".to_owned(), it.to_str()?.to_owned()))).into_iter().collect()
}

fn describe(confine: &Confine, mechanism: Mechanism) -> String {
    let network = match &confine.network {
        Network::Allowed => "with network",
        Network::None => "without network",
        Network::Only(_) => "with no network but the listed hosts",
    };
    format!("{}, by {mechanism}, {network}", level_name(confine.level))
}

/// What this mechanism cannot do, though nobody's level promises it.
fn gaps(mechanism: Mechanism, confine: &Confine) -> Vec<String> {
    let mut gaps = vec![];
    if mechanism == Mechanism::Landlock {
        gaps.push("Landlock hides what is in files, not that they are there: names and sizes can still be asked for, and so can the command lines of other processes.".to_owned());
        gaps.push(
            "Under Landlock there are no terminals, no /tmp but TMPDIR, and no unix sockets with a name.".to_owned(),
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
        gaps.push(format!("{them} are not closed off: that needs Linux 6.12."));
    }
    gaps
}

/// A level as settings spell it.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Strict => "strict",
        Level::Workspace => "workspace",
        Level::Off => "off",
    }
}

/// The directories of this process's own PATH.
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|it| std::env::split_paths(&it).collect()).unwrap_or_default()
}
