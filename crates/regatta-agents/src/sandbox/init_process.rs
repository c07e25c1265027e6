//! The init process of a sandbox: the first process inside it, which restricts itself, checks the
//! restrictions and then becomes the program.
//!
//! The init process runs before the program and knows only its settings file. The init process has
//! one thread, because the kernel allows only single-threaded processes to create user namespaces.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, WaitOptions, setrlimit, wait};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, set_capabilities,
};

use super::seccomp::AllowedSockets;
use super::{InitSettings, SandboxMechanism, landlock_rules, namespaces, seccomp};
use crate::egress::send_sockets;

/// The exit code of the init process when the sandbox could not be set up or the program could not
/// be started.
pub const SANDBOX_FAILED_EXIT_CODE: u8 = 125;

/// The argument that stands in place of a program's path and makes the init process only check the
/// sandbox and start nothing.
pub(super) const VERIFY_ONLY: &str = "@verify";

/// Returns environment variables that limit the memory of the waiting init process, whose allocator
/// would otherwise use pages of 2 MiB. The variables are removed again before the program starts.
pub(super) fn allocator_settings() -> [(&'static str, &'static str); 2] {
    [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "0")]
}

/// The beginning of the error line that tells why the sandbox could not be set up.
const NOT_CONFINED_PREFIX: &str = "regatta: not confined: ";
/// The beginning of the error line that tells why the program could not be started.
const NOT_STARTED_PREFIX: &str = "regatta: not started: ";

/// Returns the reason why the init process failed to start the program, or `None` if the exit code
/// and the last line of standard error report no such failure.
pub fn failure_reason(code: i32, last_line: &str) -> Option<String> {
    if code != i32::from(SANDBOX_FAILED_EXIT_CODE) {
        return None;
    }
    let reason = last_line
        .strip_prefix(NOT_CONFINED_PREFIX)
        .map(|reason| format!("The sandbox could not be set up: {reason}"));
    reason.or_else(|| {
        last_line
            .strip_prefix(NOT_STARTED_PREFIX)
            .map(str::to_owned)
    })
}

/// Runs one step of setting up the sandbox. The arguments are `STEP SETTINGS-FILE -- PROGRAM
/// ARGUMENTS…`, where `prepare` has put the first three before the program's command line.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let [step, settings_file, dashes, program @ ..] = arguments.as_slice() else {
        return usage();
    };
    if dashes != "--" || program.is_empty() {
        return usage();
    }
    let result = match step.to_str() {
        Some("enter") => run_outer_step(Path::new(settings_file), program),
        Some("init") => run_namespace_step(Path::new(settings_file), program),
        Some("inside") => run_inner_step(Path::new(settings_file), program),
        _ => return usage(),
    };
    result.unwrap_or_else(|reason| {
        drop(writeln!(io::stderr(), "{reason}"));
        ExitCode::from(SANDBOX_FAILED_EXIT_CODE)
    })
}

fn usage() -> ExitCode {
    drop(writeln!(
        io::stderr(),
        "{NOT_CONFINED_PREFIX}this is an internal step of Regatta, not a command."
    ));
    ExitCode::from(SANDBOX_FAILED_EXIT_CODE)
}

fn not_confined(why: String) -> String {
    format!("{NOT_CONFINED_PREFIX}{why}.")
}

fn read_settings(settings_file: &Path) -> Result<InitSettings, String> {
    let unreadable = |error: &dyn std::fmt::Display| {
        not_confined(format!(
            "{} cannot be read ({error})",
            settings_file.display()
        ))
    };
    let json = fs::read(settings_file).map_err(|error| unreadable(&error))?;
    serde_json::from_slice(&json).map_err(|error| unreadable(&error))
}

/// Reads the settings for the last time. If this process waits for the supervisor process before it
/// becomes the program, also removes the settings file, because the file names hidden paths that
/// the program must not learn.
fn read_and_remove_settings(
    settings_file: &Path,
    program: &[OsString],
) -> Result<InitSettings, String> {
    let settings = read_settings(settings_file)?;
    if settings.waits_for_shim && !is_verify_only(program) {
        let removed = fs::remove_file(settings_file);
        removed.map_err(|error| {
            not_confined(format!(
                "{} cannot be removed ({error})",
                settings_file.display()
            ))
        })?;
    }
    Ok(settings)
}

/// Performs the first step of the sandbox setup with namespaces: creates the namespaces, starts the
/// second step inside them and waits for its end.
fn run_outer_step(settings_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let settings = read_settings(settings_file)?;
    let mut inner_step: Vec<OsString> = ["confine", "init"].map(OsString::from).to_vec();
    inner_step.extend([settings_file.into(), "--".into()]);
    inner_step.extend_from_slice(program);
    namespaces::run_in_namespaces(settings.network, &inner_step)
        .map(exit_code)
        .map_err(not_confined)
}

/// Performs the second step of the sandbox setup, as process 1 of the new namespaces. Mounts the
/// file system, drops capabilities, starts the program and collects the exit status of ended
/// processes.
fn run_namespace_step(settings_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let settings = read_and_remove_settings(settings_file, program)?;
    namespaces::build_root(&settings.plan, &settings.root, &settings.dir).map_err(not_confined)?;
    if !settings.network {
        namespaces::bring_up_loopback().map_err(not_confined)?;
    }
    restrict_process(&settings).map_err(not_confined)?;
    if is_verify_only(program) {
        return Ok(ExitCode::SUCCESS);
    }
    hand_over_sockets(&settings).map_err(not_confined)?;
    let child = program_command(program)
        .spawn()
        .map_err(|error| not_started(program, &error))?;
    let pid = child.id();
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((reaped, status))) if reaped.as_raw_nonzero().get().unsigned_abs() == pid => {
                let code = status
                    .exit_status()
                    .or_else(|| status.terminating_signal().map(|signal| signal + 128));
                return Ok(ExitCode::from(
                    u8::try_from(code.unwrap_or(255)).unwrap_or(255),
                ));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(not_confined(format!(
                    "the program could not be waited for ({error})"
                )));
            }
        }
    }
}

/// Performs the last step of the sandbox setup: restricts this process and replaces it by the
/// program. The program bubblewrap around this process, or Landlock (the kernel's access rules for
/// files), provides the rest of the sandbox.
fn run_inner_step(settings_file: &Path, program: &[OsString]) -> Result<ExitCode, String> {
    let settings = read_and_remove_settings(settings_file, program)?;
    std::env::set_current_dir(&settings.dir).map_err(|error| {
        not_confined(format!(
            "{} cannot be entered ({error})",
            settings.dir.display()
        ))
    })?;
    restrict_process(&settings).map_err(not_confined)?;
    if is_verify_only(program) {
        return Ok(ExitCode::SUCCESS);
    }
    hand_over_sockets(&settings).map_err(not_confined)?;
    Err(not_started(program, &program_command(program).exec()))
}

/// Passes to the shim (the supervisor process outside the sandbox) the listening sockets that are
/// the program's only network access, and waits until the shim lets this process continue.
fn hand_over_sockets(settings: &InitSettings) -> Result<(), String> {
    settings
        .shim
        .as_ref()
        .map_or(Ok(()), |(socket, inside)| send_sockets(socket, inside))
}

fn is_verify_only(program: &[OsString]) -> bool {
    matches!(program, [word] if word == VERIFY_ONLY)
}

fn program_command(program: &[OsString]) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    for (name, _) in allocator_settings() {
        command.env_remove(name);
    }
    // Undo one of the allocator's settings, which the allocator has turned into a setting of the
    // process that children inherit.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    command
}

fn not_started(program: &[OsString], error: &io::Error) -> String {
    let name = PathBuf::from(&program[0]);
    let reason = crate::errors::not_executable(&name, error);
    if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "{NOT_STARTED_PREFIX}{reason} If the program exists outside the sandbox, add its \
            directory to the agent's `read` list."
        );
    }
    format!("{NOT_STARTED_PREFIX}{reason}")
}

/// Returns a program's exit code as a shell reports it. For a program that a signal ended, that is
/// 128 plus the signal's number.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| signal + 128))
        .unwrap_or(255);
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

/// Applies all restrictions that a process can apply to itself (resource limits, file rules and a
/// filter of system calls), and checks that they work.
fn restrict_process(settings: &InitSettings) -> Result<(), String> {
    set_resource_limits(settings)?;
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| format!("the privileges could not be dropped ({error})"))?;
    let landlock = settings.mechanism == SandboxMechanism::Landlock;
    if landlock {
        landlock_rules::restrict_files(&settings.plan)?;
    } else {
        landlock_rules::restrict_signals_and_sockets()?;
    }
    // A program in a network namespace of its own may use internet sockets, because these sockets
    // lead nowhere else. Without a namespace, the program may use internet sockets only if it has a
    // network.
    seccomp::install_filters(AllowedSockets {
        allows_internet: settings.network || !landlock,
        allows_unix: !landlock,
    })?;
    check_restrictions(settings)
}

fn set_resource_limits(settings: &InitSettings) -> Result<(), String> {
    let limits = &settings.limits;
    let resources = [
        (Resource::Nproc, limits.processes),
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        // Prevent core files, which would contain the program's secrets.
        (Resource::Core, Some(0)),
    ];
    for (resource, limit) in resources {
        let Some(limit) = limit else { continue };
        // Keep the current limit if it is already lower.
        let current_limit = rustix::process::getrlimit(resource);
        let limit = current_limit
            .maximum
            .map_or(limit, |maximum| maximum.min(limit));
        setrlimit(
            resource,
            Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            },
        )
        .map_err(|error| format!("a limit could not be set ({error})"))?;
    }
    Ok(())
}

/// Drops permanently the capabilities that root, or the creator of a namespace, has.
fn drop_capabilities() -> Result<(), String> {
    let describe = |error: Errno| format!("the capabilities could not be dropped ({error})");
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // Stop at the first capability that the kernel does not know. A process without SETPCAP
        // cannot remove capabilities, but such a process has no capabilities either.
        match capability_is_in_bounding_set(capability) {
            Ok(true) => match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(describe(error)),
            },
            Ok(false) => {}
            Err(_) => break,
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(describe)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .map_err(describe)
}

/// Checks that the restrictions work, by trying actions that must fail and actions that must
/// succeed in the sandbox (S11).
fn check_restrictions(settings: &InitSettings) -> Result<(), String> {
    let capabilities = rustix::thread::capabilities(None)
        .map_err(|error| format!("the capabilities cannot be listed ({error})"))?;
    if !capabilities.permitted.is_empty() || !rustix::thread::no_new_privs().unwrap_or(false) {
        return Err("the process kept capabilities of root".to_owned());
    }
    if rustix::process::getuid().is_root()
        && capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN) != Ok(false)
    {
        return Err(
            "the program runs as root and could regain the capabilities of root".to_owned(),
        );
    }
    // Check that these files cannot be opened for writing, because root owns these files and could
    // write to them even without capabilities. Opening a file changes nothing.
    let protected_files = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ];
    if let Some(path) = protected_files
        .iter()
        .find(|path| OpenOptions::new().write(true).open(path).is_ok())
    {
        return Err(format!("{path} could still be written inside the sandbox"));
    }
    let checks = &settings.checks;
    if let Some(path) = checks.closed.iter().find(|path| File::open(path).is_ok()) {
        return Err(format!(
            "{} could still be read inside the sandbox",
            path.display()
        ));
    }
    // Use a new random file name for each start. The process id is not unique, because attempts of
    // one agent share a home and have the same process id inside their sandboxes.
    let name = crate::run_dir::new_launch_mark()
        .map_err(|error| format!("random bytes could not be read ({error})"))?;
    let make_file =
        |dir: &Path| create_and_remove_file(&dir.join(format!(".regatta-check-{name}")));
    if let Some(dir) = checks
        .unwritable
        .iter()
        .find(|path| make_file(path).is_ok())
    {
        return Err(format!(
            "{} could still be written inside the sandbox",
            dir.display()
        ));
    }
    for dir in &checks.writable {
        make_file(dir)
            .map_err(|error| format!("{} could not be written ({error})", dir.display()))?;
    }
    for dir in &checks.readable {
        fs::read_dir(dir)
            .map_err(|error| format!("{} could not be read ({error})", dir.display()))?;
    }
    if !settings.network && has_internet_route() {
        return Err("the network could still be reached from inside the sandbox".to_owned());
    }
    if !settings.network && settings.mechanism != SandboxMechanism::Landlock {
        check_only_loopback()?;
    }
    Ok(())
}

/// Checks that every network route leads to the loopback interface. The list of interfaces is not
/// checked, because some kernels put tunnels without an address into every network namespace.
fn check_only_loopback() -> Result<(), String> {
    let read = |name: &str| match fs::read_to_string(format!("/proc/self/net/{name}")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!(
            "the routes of the sandbox cannot be listed ({error})"
        )),
        text => Ok(text.unwrap_or_default()),
    };
    let (ipv4_routes, ipv6_routes) = (read("route")?, read("ipv6_route")?);
    // The list of IPv4 routes begins with a line of column names, and the interface is the first
    // field of each route. In the list of IPv6 routes the interface is the last field.
    let ipv4_routes = ipv4_routes
        .lines()
        .skip(1)
        .filter_map(|route| route.split_whitespace().next());
    let ipv6_routes = ipv6_routes
        .lines()
        .filter_map(|route| route.split_whitespace().last());
    match ipv4_routes
        .chain(ipv6_routes)
        .find(|interface| *interface != "lo")
    {
        Some(name) => Err(format!(
            "the network of the sandbox has a route through {name}"
        )),
        None => Ok(()),
    }
}

/// Creates a file and removes it again, to test whether the directory is writable.
fn create_and_remove_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?;
    fs::remove_file(path)
}

/// Returns whether there is a route to the internet. Connects a datagram socket, which only chooses
/// a route and sends nothing.
fn has_internet_route() -> bool {
    UdpSocket::bind("0.0.0.0:0").is_ok_and(|socket| socket.connect("192.0.2.1:9").is_ok())
}
