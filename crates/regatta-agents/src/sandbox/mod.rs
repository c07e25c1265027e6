//! Sandboxes an agent's program and verifies the sandbox before the program starts (S6, S11).
//!
//! ```text
//! prepare:      choose a mechanism → plan the mounts → write the settings
//!               → build the command prefix
//! init process: [bubblewrap | own namespaces | nothing] → limits, rules, filter
//!               → checks → wait for the shim → exec
//! ```
//!
//! [`mounts`] plans the visible parts of the file system. [`bubblewrap`], [`namespaces`] and
//! [`landlock_rules`] are the three mechanisms, in the order of preference. [`seccomp`] refuses
//! system calls that none of them covers. [`init_process`] is the init process, which sets up its own
//! sandbox, checks it and becomes the program. [`probe`] finds out which mechanisms work on this
//! machine, and [`messages`] holds the messages.
//!
//! The init process tries, inside the sandbox, actions that must be impossible there, and starts
//! nothing if one of these actions is possible. No mechanism knows host names. A program that may
//! reach only some hosts therefore has no network at all. A proxy in its shim (supervisor process)
//! connects the program to these hosts; see [`crate::egress`].

mod bubblewrap;
mod init_process;
mod landlock_rules;
mod messages;
mod mounts;
mod namespaces;
mod probe;
mod seccomp;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use regatta_core::agent::SandboxLevel;
use regatta_engine::ports::agents::AgentError;
use serde::{Deserialize, Serialize};

use crate::egress::{EgressRoutes, socket_in};
use crate::run_dir::{write_atomic, write_unsynced};
use mounts::{MountPlan, PathContent};

pub use init_process::{SANDBOX_FAILED_EXIT_CODE, failure_reason, main};
pub use mounts::user_homes;
pub use probe::{MechanismFinding, SandboxReport, detect_mechanisms};

/// A mechanism that can sandbox programs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMechanism {
    /// The program `bwrap` (bubblewrap).
    Bubblewrap,
    /// Linux namespaces for users, mounts and processes, which Regatta creates itself.
    Namespaces,
    /// Landlock (the kernel's access rules for files) together with a filter of system calls.
    Landlock,
}

impl SandboxMechanism {
    /// All sandbox mechanisms, in the order in which they are tried.
    pub const ALL: [SandboxMechanism; 3] = [
        SandboxMechanism::Bubblewrap,
        SandboxMechanism::Namespaces,
        SandboxMechanism::Landlock,
    ];
}

impl fmt::Display for SandboxMechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SandboxMechanism::Bubblewrap => "bubblewrap",
            SandboxMechanism::Namespaces => "own namespaces",
            SandboxMechanism::Landlock => "Landlock and seccomp",
        })
    }
}

/// The part of the network that a sandboxed program can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    Allowed,
    /// The program has no network, not even the loopback interface of this machine.
    None,
    /// The program reaches only these hosts, through a proxy in its supervisor process. This access
    /// needs a network namespace, so Landlock alone cannot provide it.
    Only(Vec<String>),
}

impl NetworkAccess {
    /// Returns the network access that follows from the sandbox level and an agent's settings. A
    /// list of hosts allows only those hosts. Without a list, the settings allow or forbid the
    /// network. If they do neither, a program at level `strict` has no network, and a program at
    /// another level has one.
    pub fn from_profile(
        level: SandboxLevel,
        allows_network: Option<bool>,
        hosts: &[String],
    ) -> NetworkAccess {
        if !hosts.is_empty() {
            return NetworkAccess::Only(hosts.to_vec());
        }
        if allows_network.unwrap_or(level != SandboxLevel::Strict) {
            NetworkAccess::Allowed
        } else {
            NetworkAccess::None
        }
    }

    fn allowed_hosts(&self) -> &[String] {
        match self {
            NetworkAccess::Only(hosts) => hosts,
            NetworkAccess::Allowed | NetworkAccess::None => &[],
        }
    }
}

/// The resource limits of a sandboxed program. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The maximum number of processes and threads. With a user namespace, only the processes and
    /// threads of the program count. Without a user namespace, the kernel counts all of the user's
    /// processes, so their current number is added to the limit.
    pub processes: Option<u64>,
    /// The maximum private memory of each process in bytes. The size of the address space is not
    /// limited, because every JavaScript engine reserves more addresses than the machine has
    /// memory.
    pub memory: Option<u64>,
    /// The maximum size in bytes of a file that the program writes.
    pub file_size: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> ResourceLimits {
        ResourceLimits {
            processes: Some(4096),
            memory: None,
            file_size: Some(16 << 30),
        }
    }
}

/// Describes a program and the sandbox that the program should get. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    pub level: SandboxLevel,
    /// True if a person requested this sandbox level. If no mechanism works, a requested level
    /// causes an error, while a default level causes only a warning and the program runs without a
    /// sandbox.
    pub is_requested: bool,
    /// The mechanism that the settings name, or `None` to use the best one that works.
    pub mechanism: Option<SandboxMechanism>,
    pub network: NetworkAccess,
    /// The URL of Regatta's tool server, which the program can reach even if it has no network.
    pub tools_url: Option<String>,
    pub limits: ResourceLimits,
    /// The program's name or path, which must be visible in the sandbox.
    pub program: String,
    /// The directories on the program's PATH.
    pub search_path: Vec<PathBuf>,
    /// True if the first process in the sandbox waits for the supervisor process before it becomes
    /// the program, so that the supervisor can do other work at the same time. This wait needs
    /// namespaces.
    pub waits_for_shim: bool,
    /// The path of the regatta program, which also runs as the first process inside the sandbox.
    pub regatta_exe: PathBuf,
    /// Regatta's data directory. The sandbox hides this directory, except for the paths in the
    /// fields below.
    pub data_dir: PathBuf,
    /// The run directory of the launch (one start of a program). The program does not see this
    /// directory.
    pub run_dir: PathBuf,
    /// The directory in which the agent works. The program may write to this directory, to the
    /// agent's home, to its temporary files and to the directory `outbox`, into which it puts its
    /// result file.
    pub workspace: PathBuf,
    /// The directory in the workspace in which the program starts, or `None` for the workspace
    /// itself.
    pub start_dir: Option<PathBuf>,
    pub home: PathBuf,
    pub tmp: PathBuf,
    pub outbox: PathBuf,
    /// The git objects of the project's vault (Regatta's own repository of the project), which the
    /// program may read because the workspace's repository refers to them.
    pub vault_objects: Option<PathBuf>,
    /// Files of the run directory that the program may read, such as the prompt.
    pub input_files: Vec<PathBuf>,
    /// The home directories of the user, as [`user_homes`] finds them. The sandbox hides these
    /// directories, except for the toolchains in them.
    pub user_homes: Vec<PathBuf>,
    /// The user's own git repositories of the projects that Regatta manages. The sandbox hides
    /// them.
    pub hidden_paths: Vec<PathBuf>,
    /// The additional paths that the agent's settings allow the program to read.
    pub read_paths: Vec<PathBuf>,
    pub write_paths: Vec<PathBuf>,
}

/// A prepared sandbox: the arguments and environment variables with which a program's command line
/// is started in the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedSandbox {
    /// The arguments to put before the program's command line. Empty without a sandbox.
    pub argv_prefix: Vec<OsString>,
    /// Additional environment variables that let the program find its tools.
    pub env: Vec<(String, String)>,
    /// A sentence for people that describes the sandbox.
    pub description: String,
    /// Warnings about the protection that this sandbox does not offer. The commands `status` and
    /// `doctor` print these warnings.
    pub warnings: Vec<String>,
    pub mechanism: Option<SandboxMechanism>,
    /// The addresses that a program without a network may still reach. An
    /// [`crate::egress::EgressGate`] must serve these routes in the program's directory for
    /// temporary files; otherwise the program does not start.
    pub egress_routes: Option<EgressRoutes>,
    /// True if the program waits until an [`crate::egress::EgressGate`] lets it continue, even if
    /// the program has no egress routes.
    pub waits_for_shim: bool,
}

/// The settings of the sandbox, which its first process (the init process) reads from a file in the
/// program's directory for temporary files. The settings name hidden paths, so an init process that
/// waits for the supervisor process removes the file before the program starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InitSettings {
    v: u32,
    mechanism: SandboxMechanism,
    plan: MountPlan,
    network: bool,
    limits: ResourceLimits,
    dir: PathBuf,
    checks: SandboxChecks,
    /// The unix socket of the supervisor process, and the addresses on which the init process
    /// listens before it passes the listening sockets to the supervisor.
    shim: Option<(PathBuf, Vec<SocketAddr>)>,
    #[serde(rename = "held")]
    waits_for_shim: bool,
    /// The empty directory over which the new root of the file system is mounted.
    root: PathBuf,
}

/// The name of the settings file in the program's directory for temporary files.
const SETTINGS_FILE: &str = ".regatta-confine.json";

/// The actions that the init process tries before it becomes the program, to check that the sandbox
/// works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SandboxChecks {
    /// Files that exist outside the sandbox and must not be readable inside.
    closed: Vec<PathBuf>,
    /// Directories inside the sandbox in which creating a file must fail.
    unwritable: Vec<PathBuf>,
    /// Directories inside the sandbox in which creating a file must succeed.
    writable: Vec<PathBuf>,
    /// Directories that the program must be able to list.
    readable: Vec<PathBuf>,
}

/// Chooses a sandbox mechanism, writes the settings of the sandbox and returns how to start the
/// program in it.
pub fn prepare(spec: &SandboxSpec) -> Result<PreparedSandbox, AgentError> {
    if spec.level == SandboxLevel::Off {
        if let NetworkAccess::Only(_) = spec.network {
            return Err(messages::allow_list_without_sandbox());
        }
        let warning = "This agent has no sandbox: it can do everything that you can do.".to_owned();
        return Ok(PreparedSandbox {
            description: "no sandbox".to_owned(),
            warnings: vec![warning],
            ..PreparedSandbox::default()
        });
    }
    let report = detect_mechanisms(&spec.regatta_exe);
    let Some(mechanism) = choose_mechanism(spec, &report)? else {
        let warning =
            messages::no_mechanism_works(level_name(spec.level), &report.problems()).message;
        let description = "no sandbox, because no mechanism works on this machine".to_owned();
        return Ok(PreparedSandbox {
            description,
            warnings: vec![warning],
            ..PreparedSandbox::default()
        });
    };
    prepare_with(spec, mechanism)
}

/// Returns the mechanism to use. Returns `None` if no mechanism works and no person requested the
/// sandbox level, so that the program runs without a sandbox.
fn choose_mechanism(
    spec: &SandboxSpec,
    report: &SandboxReport,
) -> Result<Option<SandboxMechanism>, AgentError> {
    if let Some(named) = spec.mechanism {
        return match report
            .finding(named)
            .and_then(|finding| finding.problem.clone())
        {
            Some(why) => Err(messages::mechanism_does_not_work(named, &why)),
            None => Ok(Some(named)),
        };
    }
    match report.best_mechanism() {
        Some(mechanism) => Ok(Some(mechanism)),
        None if spec.is_requested || !spec.network.allowed_hosts().is_empty() => Err(
            messages::no_mechanism_works(level_name(spec.level), &report.problems()),
        ),
        None => Ok(None),
    }
}

/// Prepares the sandbox with this mechanism without checking whether the mechanism works.
fn prepare_with(
    spec: &SandboxSpec,
    mechanism: SandboxMechanism,
) -> Result<PreparedSandbox, AgentError> {
    // Only a program without a full network gets egress routes (addresses that it reaches through
    // the supervisor process). With Landlock such a program gets no routes, because Landlock cannot
    // give the program a loopback interface of its own.
    let egress_routes = match spec.network {
        NetworkAccess::Only(_) if mechanism == SandboxMechanism::Landlock => {
            return Err(messages::landlock_has_no_allow_list());
        }
        NetworkAccess::Only(_) | NetworkAccess::None if mechanism != SandboxMechanism::Landlock => {
            EgressRoutes::new(spec.network.allowed_hosts(), spec.tools_url.as_deref())
                .map_err(|why| messages::invalid_host(&why))?
        }
        _ => None,
    };
    let plan = mounts::plan_mounts(spec)?;
    let settings_file = spec.tmp.join(SETTINGS_FILE);
    let network = spec.network == NetworkAccess::Allowed;
    let start_dir = spec.start_dir.as_ref().unwrap_or(&spec.workspace);
    let dir = fs::canonicalize(start_dir)
        .map_err(|error| messages::path_not_accessible(start_dir, error))?;
    let mut limits = spec.limits;
    if mechanism == SandboxMechanism::Landlock {
        // Add the user's current processes to the limit, because without a user namespace the
        // kernel counts all of them.
        limits.processes = limits
            .processes
            .map(|processes| processes + count_user_threads());
    }
    // With Landlock the init process has no socket through which it could reach the supervisor
    // process, so it cannot wait for the supervisor.
    let waits_for_shim = spec.waits_for_shim && mechanism != SandboxMechanism::Landlock;
    let inside = egress_routes.as_ref().map(EgressRoutes::inner_addresses);
    let shim = (waits_for_shim || inside.is_some())
        .then(|| (socket_in(&spec.tmp), inside.unwrap_or_default()));
    let checks = plan_checks(spec, &plan);
    let root = create_root(&spec.run_dir).map_err(|error| {
        messages::file_error("create the sandbox's root in", &spec.run_dir, error)
    })?;
    let settings = InitSettings {
        v: 1,
        mechanism,
        network,
        limits,
        dir: dir.clone(),
        checks,
        shim,
        waits_for_shim,
        root: root.clone(),
        plan,
    };
    let json = serde_json::to_vec(&settings).map_err(|error| {
        messages::file_error("write the sandbox settings", &settings_file, error)
    })?;
    // The file need not be synced to the disk, because the program that uses it does not survive a
    // power cut either.
    write_unsynced(&settings_file, &json).map_err(|error| {
        messages::file_error("write the sandbox settings", &settings_file, error)
    })?;
    let settings_file = fs::canonicalize(&settings_file)
        .map_err(|error| messages::path_not_accessible(&settings_file, error))?;
    let init_command = |step: &str| {
        [
            spec.regatta_exe.clone().into(),
            "confine".into(),
            step.into(),
            settings_file.clone().into(),
            "--".into(),
        ]
    };
    let argv_prefix: Vec<OsString> = match mechanism {
        SandboxMechanism::Bubblewrap => {
            let program = bubblewrap::find_bubblewrap(&search_path()).ok_or_else(|| {
                messages::mechanism_does_not_work(
                    mechanism,
                    "the program bwrap is no longer on PATH.",
                )
            })?;
            let command = bubblewrap::BubblewrapCommand {
                program: &program,
                plan: &settings.plan,
                has_network: network,
                working_dir: &dir,
                empty_dir: &root,
            };
            command
                .arguments()
                .into_iter()
                .chain(init_command("inside"))
                .collect()
        }
        SandboxMechanism::Namespaces => init_command("enter").to_vec(),
        SandboxMechanism::Landlock => init_command("inside").to_vec(),
    };
    Ok(PreparedSandbox {
        argv_prefix,
        env: toolchain_env(spec)
            .into_iter()
            .chain(
                init_process::allocator_settings()
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into())),
            )
            .chain(egress_routes.iter().flat_map(EgressRoutes::environment))
            .collect(),
        description: describe(spec, mechanism),
        warnings: missing_protection(mechanism, spec),
        mechanism: Some(mechanism),
        egress_routes,
        waits_for_shim,
    })
}

/// Creates the directory `root` in the run directory. Outside the sandbox the directory always
/// stays empty. The namespaces mechanism mounts the sandbox's root over the directory, and
/// bubblewrap shows the directory wherever a directory must be empty.
fn create_root(run_dir: &Path) -> io::Result<PathBuf> {
    let root = run_dir.join("root");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&root)?;
    fs::canonicalize(root)
}

/// Checks a prepared sandbox by starting its init process in the same way as for the program, but
/// without a program.
pub fn verify(prepared: &PreparedSandbox) -> Result<(), AgentError> {
    let (Some(mechanism), Some((program, arguments))) =
        (prepared.mechanism, prepared.argv_prefix.split_first())
    else {
        return Ok(());
    };
    match probe::run_sandbox_checks(program, arguments) {
        Ok(()) => Ok(()),
        Err(why) => Err(messages::sandbox_not_set_up(mechanism, &why)),
    }
}

/// Returns the checks that the init process must make: the existing files that must be hidden, and
/// the directories that must or must not be writable.
fn plan_checks(spec: &SandboxSpec, plan: &MountPlan) -> SandboxChecks {
    let is_visible = |path: &Path| {
        fs::canonicalize(path).is_ok_and(|path| {
            matches!(
                plan.entry_for(&path),
                Some((
                    _,
                    PathContent::Read | PathContent::Write | PathContent::WriteFrom(_)
                ))
            )
        })
    };
    let homes = &spec.user_homes;
    let mut closed: Vec<PathBuf> = vec![];
    // Check that the administrator's token, the database with its log, and other files at the top
    // of the data directory are hidden too.
    closed.extend(["token", "regatta.db", "regatta.db-wal"].map(|name| spec.data_dir.join(name)));
    closed.extend(files_in(&spec.data_dir, 4));
    closed.extend(ensure_canary(&spec.data_dir));
    closed.extend(other_workspace(&spec.workspace));
    closed.extend(spec.hidden_paths.iter().map(|path| path.join(".git/HEAD")));
    closed.extend(spec.hidden_paths.iter().map(|path| path.join("HEAD")));
    for home in homes {
        closed.extend(files_in(&home.join(".ssh"), 4));
        let secret_files = [
            ".netrc",
            ".gitconfig",
            ".bash_history",
            ".aws/credentials",
            ".config/gh/hosts.yml",
            ".bashrc",
        ];
        closed.extend(secret_files.map(|file| home.join(file)));
    }
    closed.retain(|path| fs::File::open(path).is_ok() && !is_visible(path));
    let mut unwritable: Vec<PathBuf> = [Path::new("/usr"), Path::new("/etc"), Path::new("/")]
        .map(Path::to_owned)
        .to_vec();
    unwritable.push(spec.data_dir.clone());
    unwritable.extend(spec.vault_objects.clone());
    unwritable.extend(spec.hidden_paths.clone());
    unwritable.extend(homes.clone());
    let is_writable = |path: &Path| {
        fs::canonicalize(path).is_ok_and(|path| {
            matches!(
                plan.entry_for(&path),
                Some((_, PathContent::Write | PathContent::WriteFrom(_)))
            )
        })
    };
    unwritable.retain(|path| !is_writable(path));
    SandboxChecks {
        closed,
        unwritable,
        writable: vec![
            spec.workspace.clone(),
            spec.home.clone(),
            spec.tmp.clone(),
            spec.outbox.clone(),
        ],
        readable: spec.vault_objects.clone().into_iter().collect(),
    }
}

/// Creates a file in the data directory that the sandbox must hide, so that the check of the
/// sandbox has at least one file to open.
fn ensure_canary(data_dir: &Path) -> Option<PathBuf> {
    let path = data_dir.join(".canary");
    if !path.exists() {
        write_atomic(&path, b"No sandboxed program may read this.\n").ok()?;
    }
    Some(path)
}

fn files_in(dir: &Path, limit: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .take(limit)
        .collect()
}

/// Returns a file in another agent's workspace, which the sandbox must hide, or `None` if there is
/// no such file.
fn other_workspace(workspace: &Path) -> Option<PathBuf> {
    let siblings = fs::read_dir(workspace.parent()?)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    siblings
        .filter(|path| path != workspace)
        .map(|path| path.join(".git/HEAD"))
        .find(|path| path.exists())
}

/// Returns the number of this user's processes and threads. Without a user namespace the kernel
/// counts all of these processes and threads against the limit.
fn count_user_threads() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let own_uid = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own_tasks = processes
        .filter(|entry| {
            entry
                .metadata()
                .is_ok_and(|metadata| metadata.uid() == own_uid)
        })
        .map(|entry| entry.path().join("task"));
    own_tasks
        .map(|path| fs::read_dir(path).map_or(0, |read_dir| read_dir.count() as u64))
        .sum()
}

/// Returns the environment variables that tell toolchains where their files are when `HOME` is not
/// the user's own home.
fn toolchain_env(spec: &SandboxSpec) -> Vec<(String, String)> {
    let rustup = spec
        .user_homes
        .iter()
        .map(|path| path.join(".rustup"))
        .find(|path| path.is_dir());
    rustup
        .and_then(|path| Some(("RUSTUP_HOME".to_owned(), path.to_str()?.to_owned())))
        .into_iter()
        .collect()
}

fn describe(spec: &SandboxSpec, mechanism: SandboxMechanism) -> String {
    let network = match &spec.network {
        NetworkAccess::Allowed => "with network",
        NetworkAccess::None => "without network",
        NetworkAccess::Only(_) => "with access only to the listed hosts",
    };
    format!("{}, by {mechanism}, {network}", level_name(spec.level))
}

/// Returns a warning for each protection that the profile asks for and the mechanism cannot offer.
/// The start is not refused, because no sandbox level promises these protections.
fn missing_protection(mechanism: SandboxMechanism, spec: &SandboxSpec) -> Vec<String> {
    let mut gaps = vec![];
    if mechanism == SandboxMechanism::Landlock {
        gaps.push(
            "Landlock hides the contents of files, but not their names and sizes, nor the \
            command lines of other processes."
                .to_owned(),
        );
        gaps.push(
            "Under Landlock a program has no terminals, no /tmp except TMPDIR, and no named unix \
            sockets."
                .to_owned(),
        );
    }
    if mechanism == SandboxMechanism::Landlock
        && spec.network == NetworkAccess::None
        && spec.tools_url.is_some()
    {
        gaps.push(messages::TOOLS_NOT_REACHABLE.to_owned());
    }
    if spec.limits.processes.is_some() && rustix::process::getuid().is_root() {
        gaps.push(messages::NO_PROCESS_LIMIT.to_owned());
    }
    if landlock_rules::landlock_version() < 6 {
        let subject = if mechanism == SandboxMechanism::Landlock {
            "Signals to this user's processes"
        } else {
            "Sockets without a file"
        };
        gaps.push(format!(
            "{subject} are not blocked, because that needs Linux 6.12."
        ));
    }
    gaps
}

/// Returns the name of a sandbox level as it is written in the settings.
pub fn level_name(level: SandboxLevel) -> &'static str {
    match level {
        SandboxLevel::Strict => "strict",
        SandboxLevel::Workspace => "workspace",
        SandboxLevel::Off => "off",
    }
}

/// Returns the directories on the PATH of this process.
fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default()
}
